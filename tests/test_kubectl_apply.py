"""kubectl apply in all its forms, diff, edit, patch, replace."""
import re

import pytest

from manifests import configmap, deployment, service


def test_apply_creates_configures_and_leaves_alone(kubectl):
    assert "created" in kubectl("apply", "-f", "-", stdin=configmap(a="1"))
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=configmap(a="1"))
    assert "configured" in kubectl("apply", "-f", "-", stdin=configmap(b="2"))
    assert kubectl.json("get", "cm", "settings")["data"] == {"b": "2"}, "what apply set and no longer sets is gone"


def test_apply_keeps_what_others_set(kubectl):
    kubectl("apply", "-f", "-", stdin=deployment(replicas=2))
    kubectl("scale", "deployment/web", "--replicas=5")
    again = deployment(image="nginx:1.28")
    del again["spec"]["replicas"]
    kubectl("apply", "-f", "-", stdin=again)
    spec = kubectl.json("get", "deployment", "web")["spec"]
    # replicas was applied before and is not any more: apply removes it, and the default returns.
    assert spec["replicas"] == 1
    assert spec["template"]["spec"]["containers"][0]["image"] == "nginx:1.28"


def test_apply_merges_lists_by_key(kubectl):
    kubectl("apply", "-f", "-", stdin=deployment(env=[{"name": "A", "value": "1"}]))
    kubectl("set", "env", "deployment/web", "B=2")
    kubectl("apply", "-f", "-", stdin=deployment(env=[{"name": "A", "value": "3"}]))
    env = kubectl.json("get", "deployment", "web")["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {e["name"]: e["value"] for e in env} == {"A": "3", "B": "2"}


def test_diff_says_what_apply_would_change(kubectl):
    kubectl("apply", "-f", "-", stdin=configmap(a="1"))
    assert kubectl("diff", "-f", "-", stdin=configmap(a="1")) == ""
    out = kubectl("diff", "-f", "-", stdin=configmap(a="2"), code=1)
    assert re.search(r'^-\s+a: "1"$', out, re.M) and re.search(r'^\+\s+a: "2"$', out, re.M)
    assert kubectl.json("get", "cm", "settings")["data"] == {"a": "1"}


def test_server_side_apply_conflicts_forces_and_shares(kubectl):
    apply = ["apply", "--server-side", "-f", "-"]
    kubectl(*apply, "--field-manager=one", stdin=configmap(a="1", b="1"))
    out = kubectl(*apply, "--field-manager=two", stdin=configmap(a="2"), code=1)
    assert "conflict" in out and "one" in out and ".data.a" in out
    kubectl(*apply, "--field-manager=two", "--force-conflicts", stdin=configmap(a="2"))
    assert kubectl.json("get", "cm", "settings")["data"] == {"a": "2", "b": "1"}
    # one no longer owns a; leaving b out removes it.
    kubectl(*apply, "--field-manager=one", stdin=configmap(c="1"))
    assert kubectl.json("get", "cm", "settings")["data"] == {"a": "2", "c": "1"}
    # the same value from both is co-owned: one may leave without removing it.
    kubectl(*apply, "--field-manager=one", stdin=configmap(a="2"))
    kubectl(*apply, "--field-manager=one", stdin=configmap(d="1"))
    assert kubectl.json("get", "cm", "settings")["data"] == {"a": "2", "d": "1"}
    managers = {m["manager"]: m for m in kubectl.json("get", "cm", "settings", "--show-managed-fields")["metadata"]["managedFields"]}
    assert set(managers) == {"one", "two"}
    assert managers["two"]["fieldsV1"] == {"f:data": {"f:a": {}}}


def test_moving_from_client_side_to_server_side_apply(kubectl):
    kubectl("apply", "-f", "-", stdin=configmap(a="1", b="1"))
    kubectl("apply", "--server-side", "-f", "-", stdin=configmap(a="2"))
    assert kubectl.json("get", "cm", "settings")["data"] == {"a": "2"}


def test_prune_removes_what_left_the_set(kubectl):
    first = [configmap("a", {"set": "red"}), configmap("b", {"set": "red"}), configmap("other", {"set": "blue"})]
    kubectl("apply", "-f", "-", stdin=first)
    kubectl("apply", "--prune", "-l", "set=red", "--prune-allowlist=core/v1/ConfigMap", "-f", "-",
            stdin=[configmap("a", {"set": "red"})])
    names = kubectl("get", "cm", "-o", "name").split()
    assert "configmap/a" in names and "configmap/other" in names and "configmap/b" not in names


def test_apply_set_prunes(kubectl):
    apply = ["apply", "-f", "-", "--prune", "--applyset=secrets/parent"]
    env = {"KUBECTL_APPLYSET": "true"}
    kubectl(*apply, stdin=[configmap("a"), configmap("b")], env=env)
    kubectl(*apply, stdin=[configmap("a")], env=env)
    names = kubectl("get", "cm", "-o", "name").split()
    assert "configmap/a" in names and "configmap/b" not in names


def test_edit_changes_only_what_was_edited(kubectl, tmp_path):
    kubectl("apply", "-f", "-", stdin=configmap(a="1", b="1"))
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nexec sed -i \'s/^  a: "1"/  a: "2"/\' "$1"\n')
    editor.chmod(0o755)
    assert "edited" in kubectl("edit", "cm", "settings", env={"EDITOR": str(editor)})
    assert kubectl.json("get", "cm", "settings")["data"] == {"a": "2", "b": "1"}


def test_edit_of_a_status_subresource(kubectl, tmp_path):
    kubectl("apply", "-f", "-", stdin=deployment())
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nexec sed -i 's/^status:.*/status:\\n  observedGeneration: 7/' \"$1\"\n")
    editor.chmod(0o755)
    kubectl("edit", "deployment", "web", "--subresource=status", env={"EDITOR": str(editor)})
    assert kubectl.json("get", "deployment", "web")["status"]["observedGeneration"] == 7


@pytest.mark.parametrize("kind,patch,want", [
    ("json", '[{"op":"test","path":"/data/a","value":"1"},{"op":"add","path":"/data/c","value":"3"}]',
     {"a": "1", "b": "2", "c": "3"}),
    ("merge", '{"data":{"a":null,"c":"3"}}', {"b": "2", "c": "3"}),
    ("strategic", '{"data":{"$patch":"replace","c":"3"}}', {"c": "3"}),
    ("strategic", '{"data":{"a":null}}', {"b": "2"}),
])
def test_patch(kubectl, kind, patch, want):
    kubectl("apply", "-f", "-", stdin=configmap(a="1", b="2"))
    kubectl("patch", "cm", "settings", f"--type={kind}", "-p", patch)
    assert kubectl.json("get", "cm", "settings")["data"] == want


def test_strategic_patch_merges_containers_by_name(kubectl):
    kubectl("apply", "-f", "-", stdin=deployment())
    kubectl("patch", "deployment", "web", "-p",
            '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"busybox"}]}}}}')
    names = [c["name"] for c in kubectl.json("get", "deployment", "web")["spec"]["template"]["spec"]["containers"]]
    assert sorted(names) == ["side", "web"]
    kubectl("patch", "deployment", "web", "-p",
            '{"spec":{"template":{"spec":{"containers":[{"name":"side","$patch":"delete"}]}}}}')
    names = [c["name"] for c in kubectl.json("get", "deployment", "web")["spec"]["template"]["spec"]["containers"]]
    assert names == ["web"]


def test_patch_that_does_not_apply_is_refused(kubectl):
    kubectl("apply", "-f", "-", stdin=configmap(a="1"))
    out = kubectl("patch", "cm", "settings", "--type=json", "-p", '[{"op":"test","path":"/data/a","value":"9"}]', code=1)
    assert "The request is invalid" in out
    out = kubectl("patch", "cm", "settings", "--type=merge", "-p", '{"metadata":{"resourceVersion":"1"}}', code=1)
    assert "Conflict" in out or "the object has been modified" in out


def test_replace_and_force(kubectl):
    kubectl("create", "-f", "-", stdin=service())
    old = kubectl.json("get", "svc", "web")
    changed = service()
    changed["spec"]["ports"][0]["port"] = 81
    changed["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
    kubectl("replace", "-f", "-", stdin=changed)
    new = kubectl.json("get", "svc", "web")
    assert new["spec"]["clusterIP"] == old["spec"]["clusterIP"] and new["metadata"]["uid"] == old["metadata"]["uid"]
    out = kubectl("replace", "-f", "-", stdin=changed, code=1)
    assert "the object has been modified" in out
    del changed["metadata"]["resourceVersion"]
    kubectl("replace", "--force", "-f", "-", stdin=changed)
    assert kubectl.json("get", "svc", "web")["metadata"]["uid"] != old["metadata"]["uid"]


def test_dry_run_leaves_no_trace(kubectl):
    out = kubectl("apply", "--dry-run=server", "-f", "-", stdin=deployment())
    assert "created (server dry run)" in out
    kubectl("get", "deployment", "web", code=1)
    kubectl("apply", "-f", "-", stdin=deployment())
    kubectl("delete", "deployment", "web", "--dry-run=server")
    kubectl("scale", "deployment", "web", "--replicas=9", "--dry-run=server")
    assert kubectl.json("get", "deployment", "web")["spec"]["replicas"] == 2
