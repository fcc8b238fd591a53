"""Placement as its users see it: EdgePlacements of two workspaces, slices, and what arrives at two edges."""
import json
import re

import pytest
import yaml
from center import ROOT, Tools, wait_for
from edge import CONFIRM, SYNCTARGETS, annotate, fleet

WMW_C, WMW_S = "root:my-org:wmw-c", "root:my-org:wmw-s"
LOCATIONS = "/apis/scheduling.kcp.io/v1alpha1/locations"
WORKSPACES = "apis/tenancy.kcp.io/v1alpha1/workspaces"


def merge(center, path, patch):
    return center.api("PATCH", path, patch, content_type="application/merge-patch+json")


def workspace(center, path, of_type=None):
    parent, name = path.rsplit(":", 1)
    one = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}}
    if of_type:
        one["spec"] = {"type": {"name": of_type}}
    center.api("POST", f"/clusters/{parent}/{WORKSPACES}", one, expect=(201, 409))
    wait_for(path, lambda: center.api("GET", f"/clusters/{parent}/{WORKSPACES}/{name}").get("status", {}).get("phase") == "Ready")


def location(name, **labels):
    return {"apiVersion": "scheduling.kcp.io/v1alpha1", "kind": "Location", "metadata": {"name": name, "labels": labels},
            "spec": {"resource": {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"},
                     "instanceSelector": {"matchLabels": {"id": name}}, "trustedWorkspaces": ["root:my-org:*", "root:shop"]}}


def stuff(namespace, label, deployment):
    pod = {"metadata": {"labels": {"app": deployment}}, "spec": {"containers": [{"name": "httpd", "image": "httpd"}]}}
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {label: "si"}}},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "httpd-htdocs", "namespace": namespace},
             "data": {"index.html": label}},
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": deployment, "namespace": namespace},
             "spec": {"replicas": 0, "selector": {"matchLabels": {"app": deployment}}, "template": pod}}]


def placement(name, locations, namespaces, **more):
    return {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement", "metadata": {"name": name},
            "spec": {"locationSelectors": [{"matchLabels": locations}], "namespaceSelector": {"matchLabels": namespaces}, **more}}


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The first example of the reference, with its inventory in root."""
    base = tmp_path_factory.mktemp("placement")
    with fleet("florin", "guilder", workspace=None, directory=base) as (center, florin, guilder):
        workspace(center, "root:my-org")
        for path in (WMW_C, WMW_S):
            workspace(center, path, "workload")
        for edge, labels in ((florin, {}), (guilder, {"extended": "si"})):
            merge(center, f"{SYNCTARGETS}/{edge.name}", {"metadata": {"labels": {"id": edge.name}}})
            center.api("POST", LOCATIONS, location(edge.name, env="prod", **labels), expect=(201,))
        kubectl = Tools(center, base / "home")
        at = lambda path: ("--server", f"{center.url}/clusters/{path}")  # noqa: E731
        kubectl.kubectl(*at(WMW_C), "apply", "-f", "-", stdin=[
            *stuff("commonstuff", "common", "commond"), placement("edge-placement-c", {"env": "prod"}, {"common": "si"})])
        kubectl.kubectl(*at(WMW_S), "apply", "-f", "-", stdin=[
            *stuff("specialstuff", "special", "speciald"),
            placement("edge-placement-s", {"env": "prod", "extended": "si"}, {"special": "si"})])
        yield center, florin, guilder, lambda path, *args, **kw: kubectl.kubectl(*at(path), *args, **kw)
        for one in (center, florin, guilder):
            assert "panicked" not in one.log_path.read_text(errors="replace")


def deployments(edge):
    return sorted(o["metadata"]["name"] for o in edge.api("GET", "/apis/apps/v1/deployments")["items"])


def holds(edge, *names):
    wait_for(f"{edge.name} to hold {names}", lambda: deployments(edge) == sorted(names))


def destinations(kubectl, path, name):
    return kubectl(path, "get", "sps", name, "-o", "jsonpath={.destinations[*].syncTargetName}").split()


def test_the_two_edges_hold_what_is_placed_on_them(example):
    center, florin, guilder, kubectl = example
    holds(florin, "commond")
    holds(guilder, "commond", "speciald")
    wait_for("the slices", lambda: destinations(kubectl, WMW_C, "edge-placement-c") == ["florin", "guilder"])
    wait_for("the slice", lambda: destinations(kubectl, WMW_S, "edge-placement-s") == ["guilder"])
    assert kubectl(WMW_C, "get", "sps", "-l", "edge.kcp.io/source-placement=edge-placement-c", "-o", "name").split() == [
        "singleplacementslice.edge.kcp.io/edge-placement-c"]
    deployment = florin.api("GET", "/apis/apps/v1/namespaces/commonstuff/deployments/commond")
    assert deployment["metadata"]["annotations"]["edge.selvedge.dev/source"] == WMW_C
    namespace = florin.api("GET", "/api/v1/namespaces/commonstuff")["metadata"]["labels"]
    assert "common" not in namespace and namespace["edge.kcp.io/projected"] == "yes", "only its existence matters"
    config = guilder.api("GET", "/apis/edge.kcp.io/v1alpha1/syncerconfigs/the-one")["spec"]
    assert config["namespaceScope"]["namespaces"] == ["commonstuff", "specialstuff"]
    wait_for("the Location's status", lambda: center.api("GET", f"{LOCATIONS}/florin").get("status") ==
             {"instances": 1, "availableInstances": 1})


def definition(plural, kind, **annotations):
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": kind + "List"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.stable.example.com", "annotations": annotations},
            "spec": {"group": "stable.example.com", "scope": "Namespaced", "names": names,
                     "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}]}}


def test_a_custom_resource_brings_its_definition(example):
    _, florin, guilder, kubectl = example
    kubectl(WMW_S, "apply", "-f", "-", stdin=[definition("crontabs", "CronTab")])
    kubectl(WMW_S, "wait", "--for=condition=established", "crd/crontabs.stable.example.com")
    kubectl(WMW_S, "apply", "-f", "-", stdin=[{"apiVersion": "stable.example.com/v1", "kind": "CronTab", "spec": {"cron": "*"},
                                               "metadata": {"name": "one", "namespace": "specialstuff"}}])
    path = "/apis/stable.example.com/v1/namespaces/specialstuff/crontabs/one"
    wait_for("the custom resource", lambda: guilder.api("GET", path)["spec"] == {"cron": "*"})
    assert florin.request("GET", path)[0] == 404


def test_a_kind_from_an_export_brings_its_definition(example):
    """The workspace has no definition of it: one is made of the schema that it is bound to."""
    center, florin, guilder, kubectl = example
    workspace(center, "root:maker")
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"threads": {"type": "integer", "maximum": 1000}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}}
    kubectl("root:maker", "apply", "-f", "-", stdin=[
        {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema", "metadata": {"name": "v1.looms.weaving.example"},
         "spec": {"group": "weaving.example", "scope": "Namespaced", "names": {"plural": "looms", "singular": "loom", "kind": "Loom"}, "versions": [version]}},
        {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport", "metadata": {"name": "looms"},
         "spec": {"latestResourceSchemas": ["v1.looms.weaving.example"]}}])
    kubectl(WMW_S, "apply", "-f", "-", stdin=[{"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": "looms"},
                                               "spec": {"reference": {"export": {"path": "root:maker", "name": "looms"}}}}])
    kubectl(WMW_S, "wait", "--for=condition=Ready", "apibinding/looms", "--timeout=20s")
    kubectl(WMW_S, "apply", "-f", "-", stdin=[{"apiVersion": "weaving.example/v1", "kind": "Loom", "spec": {"threads": 400},
                                               "metadata": {"name": "jacquard", "namespace": "specialstuff"}}])
    path = "/apis/weaving.example/v1/namespaces/specialstuff/looms/jacquard"
    wait_for("the loom", lambda: guilder.api("GET", path)["spec"] == {"threads": 400})
    assert guilder.request("PATCH", path, {"spec": {"threads": 2000}}, content_type="application/merge-patch+json")[0] == 422, "with its schema"
    assert florin.request("GET", path)[0] == 404
    # An edit, its account, and its status in the mailbox, as of any other kind.
    merge(center, f"/clusters/{WMW_S}{path}", {"spec": {"threads": 500}})
    wait_for("the edit", lambda: guilder.api("GET", path)["spec"] == {"threads": 500})
    count = "kubestellar.io/executing-count"
    wait_for("its count", lambda: center.api("GET", f"/clusters/{WMW_S}{path}")["metadata"].get("annotations", {}).get(count) == "1")
    merge(guilder, f"{path}/status", {"status": {"woven": 7}})
    boxes = center.api("GET", f"/clusters/root:espw/{WORKSPACES}")["items"]
    [box] = [w["metadata"]["name"] for w in boxes if w["metadata"].get("annotations", {}).get("edge.kcp.io/sync-target-name") == "guilder"]
    wait_for("the mailbox", lambda: center.api("GET", f"/clusters/root:espw:{box}{path}").get("status") == {"woven": 7})
    # Without a binding there are no looms, nor on the edge.
    kubectl(WMW_S, "delete", "apibinding", "looms", "--timeout=20s")
    wait_for("the loom to go", lambda: guilder.request("GET", path)[0] == 404)
    wait_for("its kind to go", lambda: "looms" not in json.dumps(guilder.api("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")))


def test_an_object_meant_for_edges_does_nothing_at_the_center(example):
    center, florin, _, kubectl = example
    (block,) = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs/explanation/placement.md").read_text(), re.M | re.S)
    only = yaml.safe_load(block)["metadata"]["annotations"]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
            "metadata": {"name": "reader", "namespace": "commonstuff", "annotations": only}}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "reader", "namespace": "commonstuff", "annotations": only},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
               "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]}
    kubectl(WMW_C, "apply", "-f", "-", stdin=[role, binding])
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "jane", "resourceAttributes": {
        "namespace": "commonstuff", "resource": "configmaps", "verb": "get"}}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    wait_for("the edge to know jane", lambda: florin.api("POST", path, review, expect=(201,))["status"]["allowed"])
    assert not center.api("POST", f"/clusters/{WMW_C}{path}", review, expect=(201,))["status"]["allowed"]
    # A definition, too: the kind is there on the edge, and not at the center.
    kubectl(WMW_C, "apply", "-f", "-", stdin=[
        definition("gauges", "Gauge", **only),
        placement("definitions", {"env": "prod"}, {"no": "namespace"}, nonNamespacedObjects=[
            {"apiGroup": "apiextensions.k8s.io", "resources": ["customresourcedefinitions"], "resourceNames": ["*"]}])])
    gauges = "/apis/stable.example.com/v1/gauges"
    wait_for("the kind on the edge", lambda: florin.api("GET", gauges)["kind"] == "GaugeList")
    assert center.request("GET", f"/clusters/{WMW_C}{gauges}")[0] == 404


def test_a_relabelled_location_moves_its_workload(example):
    center, florin, guilder, kubectl = example
    merge(center, f"{LOCATIONS}/florin", {"metadata": {"labels": {"extended": "si"}}})
    holds(florin, "commond", "speciald")
    wait_for("the slice", lambda: destinations(kubectl, WMW_S, "edge-placement-s") == ["florin", "guilder"])
    merge(center, f"{LOCATIONS}/florin", {"metadata": {"labels": {"extended": None}}})
    holds(florin, "commond")
    wait_for("the slice", lambda: destinations(kubectl, WMW_S, "edge-placement-s") == ["guilder"])


def test_an_unschedulable_edge_keeps_what_it_has_until_it_is_evicted(example):
    center, florin, guilder, kubectl = example
    merge(center, f"{SYNCTARGETS}/florin", {"spec": {"unschedulable": True}})
    wait_for("the Location's status", lambda: center.api("GET", f"{LOCATIONS}/florin")["status"]["availableInstances"] == 0)
    merge(center, f"{LOCATIONS}/florin", {"metadata": {"labels": {"extended": "si"}}})
    kubectl(WMW_C, "-n", "commonstuff", "create", "configmap", "later")
    wait_for("what belongs to a placement that is there",
             lambda: florin.api("GET", "/api/v1/namespaces/commonstuff/configmaps/later"))
    assert deployments(florin) == ["commond"], "nothing new comes"
    merge(center, f"{LOCATIONS}/florin", {"metadata": {"labels": {"extended": None}}})
    merge(center, f"{SYNCTARGETS}/florin", {"spec": {"evictAfter": "2020-01-01T00:00:00Z"}})
    held = wait_for("the fuse", lambda: (florin.condition("DeletionHeld") or {}).get("status") == "True" and florin.condition("DeletionHeld"))
    assert deployments(florin) == ["commond"]
    annotate(center, "florin", **{CONFIRM: held["message"].rsplit("=", 1)[1]})
    holds(florin)
    wait_for("the slice", lambda: destinations(kubectl, WMW_C, "edge-placement-c") == ["guilder"])
    merge(center, f"{SYNCTARGETS}/florin", {"spec": {"evictAfter": None, "unschedulable": False}})
    holds(florin, "commond")


def test_the_center_comes_back_and_everything_is_as_it_was(example):
    center, florin, guilder, kubectl = example
    wait_for("the slice", lambda: destinations(kubectl, WMW_C, "edge-placement-c") == ["florin", "guilder"])
    before = center.api("GET", f"/clusters/{WMW_C}/apis/edge.kcp.io/v1alpha1/singleplacementslices/edge-placement-c")
    center.kill()
    center.start()
    for edge in (florin, guilder):
        edge.wait_connected()
    kubectl(WMW_C, "-n", "commonstuff", "create", "configmap", "after")
    wait_for("the change", lambda: florin.api("GET", "/api/v1/namespaces/commonstuff/configmaps/after"))
    assert (deployments(florin), deployments(guilder)) == (["commond"], ["commond", "speciald"])
    after = center.api("GET", f"/clusters/{WMW_C}/apis/edge.kcp.io/v1alpha1/singleplacementslices/edge-placement-c")
    assert after == before, "what is right is not written again"
