"""Mailboxes: what an edge shall hold and what it reports, read with kubectl as a workspace of its own at the center."""
import json
import re
import subprocess

import pytest

from center import ROOT, Tools, wait_for
from edge import SYNCTARGETS, fleet
from kubelet import Kubelet
from test_kubelet import started
from test_placement import LOCATIONS, location, merge, placement, workspace
from test_tunnel import RBAC, pod

BOXES = "/clusters/root:espw/apis/tenancy.kcp.io/v1alpha1/workspaces"
SHOP = "/clusters/root:shop"
WEB = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
       "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "httpd"}]}}}}


def mailbox(center, name):
    """Its path, once its Workspace is there."""
    def found():
        boxes = center.api("GET", BOXES)["items"]
        return [b["metadata"]["name"] for b in boxes if b["metadata"]["annotations"]["edge.kcp.io/sync-target-name"] == name]
    return f"/clusters/root:espw:{wait_for(f'the mailbox of {name}', found)[0]}"


class Kubectl:
    """kubectl in one workspace, as the administrator or somebody else."""

    def __init__(self, tools, url, *args):
        self.tools, self.args = tools, ("--server", url, *args)

    def __call__(self, *args, **kw):
        return self.tools.kubectl(*self.args, *args, **kw)

    def started(self, *args):
        return started(self.tools, "kubectl", *self.args, *args)

    def as_user(self, user):
        return Kubectl(self.tools, *self.args[1:], "--as", user)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A center and florin, on which all of root:shop is placed, with a Deployment in it; kubectl in florin's mailbox."""
    base = tmp_path_factory.mktemp("mailbox")
    with fleet("florin", workspace=None, directory=base) as (center, florin):
        tools = Tools(center, base / "home")
        workspace(center, "root:shop", "workload")
        merge(center, f"{SYNCTARGETS}/florin", {"metadata": {"labels": {"id": "florin"}}})
        center.api("POST", LOCATIONS, location("florin", env="prod"), expect=(201,))
        at_shop = Kubectl(tools, f"{center.url}{SHOP}")
        at_shop("apply", "-f", "-", stdin=[WEB, placement("everything", {"env": "prod"}, {})])
        at_shop("create", "configmap", "page", "--from-literal=a=1")
        box = Kubectl(tools, center.url + mailbox(center, "florin"))
        yield center, florin, at_shop, box
        for server in (center, florin):
            assert "panicked" not in server.log_path.read_text(errors="replace")


def test_kubectl_reads_it(shop):
    center, florin, at_shop, box = shop
    wait_for("the objects", lambda: "web" in box("get", "deployments"))
    wide = box("get", "deployments", "-o", "wide")
    assert "CONTAINERS" in wide and "httpd" in wide and "app=web" in wide
    assert box("get", "deploy", "-l", "app=web", "-o", "name").split() == ["deployment.apps/web"]
    assert box("get", "deploy", "-l", "app!=web", "-A", "-o", "name") == ""
    assert box("get", "configmaps", "--field-selector", "metadata.name=page", "-o", "name").split() == ["configmap/page"]
    assert box("get", "configmap", "page", "-o", "jsonpath={.data.a} {.metadata.annotations.edge\\.selvedge\\.dev/source}") == "1 root:shop"
    assert box("get", "syncerconfigs", "-o", "name").split() == ["syncerconfig.edge.kcp.io/the-one"]
    assert "deployments" in box("api-resources", "--api-group=apps") and "FIELDS:" in box("explain", "deployment.spec")
    assert "Name:" in box("describe", "deployment", "web")
    assert "NotFound" in box("get", "configmap", "none", code=1)


def test_status_appears_once_the_edge_has_said_it(shop):
    center, florin, at_shop, box = shop
    path = "/apis/apps/v1/namespaces/default/deployments/web"
    wait_for("the deployment", lambda: florin.request("GET", path)[0] == 200)
    florin.api("PATCH", f"{path}/status", {"status": {"replicas": 3, "readyReplicas": 2, "observedGeneration": 1}},
               content_type="application/merge-patch+json")
    wait_for("its status", lambda: box("get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}") == "2")
    assert "2/0" in box("get", "deployment", "web")
    assert at_shop("get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}") == "", "the source says nothing of it"


def test_a_watch_goes_on_across_edits(shop):
    center, florin, at_shop, box = shop
    with box.started("get", "configmap", "page", "-w", "-o", "jsonpath={.data.a}{\"\\n\"}") as watch:
        assert watch.stdout.readline().strip() == "1"
        uid = box("get", "configmap", "page", "-o", "jsonpath={.metadata.uid}")
        at_shop("patch", "configmap", "page", "-p", '{"data":{"a":"2"}}')
        assert watch.stdout.readline().strip() == "2"
        at_shop("delete", "configmap", "page")
        at_shop("create", "configmap", "page", "--from-literal=a=3")
        assert "3" in (watch.stdout.readline() + watch.stdout.readline())
        watch.kill()
    assert box("get", "configmap", "page", "-o", "jsonpath={.metadata.uid}") == uid


def test_writes_are_refused_and_the_source_is_named(shop):
    center, florin, at_shop, box = shop
    for args in (("patch", "deployment", "web", "-p", '{"spec":{"replicas":5}}'), ("delete", "deployment", "web"),
                 ("label", "deployment", "web", "a=b"), ("scale", "deployment", "web", "--replicas=2")):
        said = box(*args, code=1)
        assert "Deployment default/web in the workspace root:shop" in said, said
    assert "EdgePlacement" in box("create", "configmap", "mine", code=1)
    assert "MethodNotAllowed" in box("delete", "configmaps", "--all", code=1)
    assert at_shop("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "0"


def test_who_may_look(shop):
    center, florin, at_shop, box = shop
    jane = box.as_user("jane")
    assert "orbidden" in jane("get", "configmaps", code=1)
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "jane"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]}
    binding = lambda name: {  # noqa: E731
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "jane-" + name.replace(":", "-")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]}
    # Rights in the workload's workspace, or over inventory, are none here.
    for place in (SHOP, "/clusters/root"):
        center.api("POST", f"{place}{RBAC}/clusterroles", role, expect=(201,))
        center.api("POST", f"{place}{RBAC}/clusterrolebindings", binding("jane"), expect=(201,))
        center.api("POST", f"{place}{RBAC}/clusterrolebindings", binding("cluster-admin"), expect=(201,))
    assert "orbidden" in jane("get", "configmaps", code=1)
    for access in ("jane", "system:kcp:workspace:access"):
        if access == "jane":
            center.api("POST", f"/clusters/root:espw{RBAC}/clusterroles", role, expect=(201,))
        center.api("POST", f"/clusters/root:espw{RBAC}/clusterrolebindings", binding(access), expect=(201,))
    wait_for("jane's rights", lambda: "page" in jane("get", "configmaps"))
    assert "orbidden" in jane("get", "deployments", code=1)
    assert jane("auth", "can-i", "list", "configmaps").strip() == "yes"
    assert jane("auth", "can-i", "list", "secrets", code=1).strip() == "no"
    nobody = Kubectl(box.tools, re.sub("-mb-.*", "-mb-00000000-0000-4000-8000-000000000000", center.url + mailbox(center, "florin")))
    assert "notfound" in nobody("get", "configmaps", code=1).lower()
    assert "items" not in nobody.as_user("jane")("get", "deployments", "-o", "json", code=1)


def test_logs_come_from_the_edge(shop, tmp_path):
    center, florin, at_shop, box = shop
    node = Kubelet(tmp_path, str(florin.ca))
    node.register(florin.api)
    made = florin.api("POST", "/api/v1/namespaces/default/pods", pod("quick", nodeName="n1"))
    florin.api("PUT", "/api/v1/namespaces/default/pods/quick/status", {**made, "status": {"phase": "Running"}})
    code, _, direct = florin.request("GET", "/api/v1/namespaces/default/pods/quick/log")
    through = center.request("GET", f"{mailbox(center, 'florin')}/api/v1/namespaces/default/pods/quick/log")
    assert (through[0], through[2]) == (code, direct)
    node.close()


def test_an_edge_that_is_away_is_said_to_be(shop):
    center, florin, at_shop, box = shop
    florin.cut()
    done = box.tools.run(["kubectl", *box.args, "get", "deployment", "web"])
    assert "web" in done.stdout and re.search(r"root:florin is offline since 20\d\d-", done.stderr), done.stderr
    code, _, said = center.request("GET", f"{mailbox(center, 'florin')}/api/v1/namespaces/default/pods/quick/log")
    assert code == 503 and b"is not connected" in said, said
    florin.heal()
    done = box.tools.run(["kubectl", *box.args, "get", "deployment", "web"])
    assert "offline" not in done.stderr


def test_the_page_about_mailboxes(shop):
    """Its commands, in one shell."""
    center, florin, at_shop, box = shop
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/reference/mailboxes.md").read_text(), re.M | re.S)
    assert len(blocks) >= 2
    script = "\n".join(blocks).replace("$CENTER", center.url)
    done = subprocess.run(["bash", "-exuo", "pipefail", "-c", script], env=box.tools.env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "web" in done.stdout and "edit Deployment default/web in the workspace root:shop" in done.stdout + done.stderr
    assert json.loads(re.search(r"\[\{.*?\}\]", done.stdout)[0])[0]["readyReplicas"] == 2
