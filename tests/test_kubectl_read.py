"""kubectl get in its forms, -w, wait, explain, discovery, selectors."""
import json
import subprocess

import pytest

from center import TOOLS, wait_for
from manifests import configmap, crd, deployment, node, pod, service


def columns(text):
    return text.splitlines()[0].split()


def test_get_formats(kubectl):
    kubectl("apply", "-f", "-", stdin=[deployment(), service()])
    assert columns(kubectl("get", "deployment")) == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]
    wide = kubectl("get", "deployment", "-o", "wide")
    assert columns(wide)[-3:] == ["CONTAINERS", "IMAGES", "SELECTOR"] and "nginx:1.27" in wide and "0/2" in wide
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "2"
    assert kubectl("get", "deployment", "-o", "custom-columns=N:.metadata.name", "--no-headers").strip() == "web"
    assert kubectl("get", "deployment,svc", "-o", "name").split() == ["deployment.apps/web", "service/web"]
    assert "kind: Deployment" in kubectl("get", "deployment", "web", "-o", "yaml")
    assert kubectl("get", "deployment", "-o", "go-template={{range .items}}{{.metadata.name}}{{end}}") == "web"
    assert "No resources found" in kubectl("get", "jobs", code=None) or kubectl("get", "jobs") == ""
    assert "app=web" in kubectl("get", "deployment", "--show-labels")
    assert columns(kubectl("get", "svc", "web")) == ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]


def test_get_what_is_not_there(kubectl):
    out = kubectl("get", "cm", "nothing", code=1)
    assert 'Error from server (NotFound): configmaps "nothing" not found' in out
    assert "the server doesn't have a resource type" in kubectl("get", "nonsense", code=1)
    assert kubectl("get", "cm", "nothing", "--ignore-not-found") == ""


def test_selectors(kubectl):
    kubectl("apply", "-f", "-", stdin=[configmap("a", {"tier": "front"}), configmap("b", {"tier": "back"}), configmap("c")])
    def names(*args):
        out = [n.split("/")[1] for n in kubectl("get", "cm", *args, "-o", "name").split()]
        return [n for n in out if n != "kube-root-ca.crt"]
    assert names("-l", "tier=front") == ["a"]
    assert names("-l", "tier in (front, back)") == ["a", "b"]
    assert names("-l", "!tier") == ["c"]
    assert names("-l", "tier notin (front)") == ["b", "c"]
    assert names("--field-selector", "metadata.name=b") == ["b"]
    kubectl("apply", "-f", "-", stdin=[pod("one", nodeName="n1"), pod("two")])
    assert kubectl("get", "pods", "--field-selector", "spec.nodeName=n1", "-o", "name").split() == ["pod/one"]
    assert "field label not supported" in kubectl("get", "pods", "--field-selector", "spec.colour=red", code=1)


def test_sorting_and_chunks(kubectl):
    kubectl("apply", "-f", "-", stdin=[configmap(f"c{i:02}") for i in range(25)])
    out = [n for n in kubectl("get", "cm", "--chunk-size=4", "-o", "name").split() if "/c" in n]
    assert out == [f"configmap/c{i:02}" for i in range(25)]


def test_get_watch_shows_changes(kubectl, center):
    kubectl("apply", "-f", "-", stdin=configmap("a", x="1"))
    watch = subprocess.Popen([TOOLS / "kubectl", "-n", kubectl.ns, "get", "cm", "-w", "-o", "json", "--output-watch-events"],
                             env=kubectl.tools.env, stdout=subprocess.PIPE, text=True)
    try:
        # An event is a line. The first is the object as it is: from then on the watch sees changes.
        seen = []
        for line in watch.stdout:
            event = json.loads(line)
            if event["object"]["metadata"]["name"] != "a":
                continue
            seen.append((event["type"], event["object"]["data"]["x"]))
            if event["type"] == "ADDED":
                kubectl("patch", "cm", "a", "-p", '{"data":{"x":"2"}}')
                kubectl("delete", "cm", "a")
            elif event["type"] == "DELETED":
                break
        assert seen == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]
    finally:
        watch.kill()
        watch.wait(30)


def watching(kubectl, *args):
    """`kubectl wait deployment/web`, begun: its log says when the server has answered its watch."""
    command = [TOOLS / "kubectl", "-n", kubectl.ns, "wait", "deployment/web", *args, "--timeout=30s", "-v=6"]
    process = subprocess.Popen(command, env=kubectl.tools.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "watch=true" in line and "200" in line:
            return process
    raise AssertionError(f"kubectl wait ended with {process.wait(10)} and had no watch")


def test_wait_for_a_condition_and_for_deletion(kubectl):
    kubectl("apply", "-f", "-", stdin=deployment())
    wait = watching(kubectl, "--for=condition=Available")
    kubectl("patch", "deployment", "web", "--subresource=status", "--type=merge", "-p",
            '{"status":{"conditions":[{"type":"Available","status":"True","reason":"Test","message":""}]}}')
    assert "condition met" in wait.communicate(timeout=30)[0]
    assert wait.returncode == 0
    kubectl("wait", "deployment/web", "--for=jsonpath={.spec.replicas}=2", "--timeout=10s")
    gone = watching(kubectl, "--for=delete")
    kubectl("delete", "deployment", "web")
    gone.communicate(timeout=30)
    assert gone.returncode == 0
    assert "timed out" in kubectl("wait", "ns/default", "--for=jsonpath={.status.phase}=Gone", "--timeout=1s", code=1)


def test_explain(kubectl):
    out = kubectl.all("explain", "deployment.spec.replicas")
    assert "KIND:       Deployment" in out and "FIELD: replicas <integer>" in out
    out = kubectl.all("explain", "pod", "--recursive")
    assert "containers\t<[]Container> -required-" in out
    assert "does not exist" in kubectl.all("explain", "deployment.spec.nonsense", code=1)


def test_discovery(kubectl):
    names = set(kubectl.all("api-resources", "-o", "name").split())
    for want in ["pods", "deployments.apps", "customresourcedefinitions.apiextensions.k8s.io", "leases.coordination.k8s.io",
                 "validatingadmissionpolicies.admissionregistration.k8s.io"]:
        assert want in names
    table = kubectl.all("api-resources", "--api-group=apps", "-o", "wide")
    assert "StatefulSet" in table and "create,delete,deletecollection,get,list,patch,update,watch" in table
    versions = set(kubectl.all("api-versions").split())
    assert {"v1", "apps/v1", "batch/v1", "rbac.authorization.k8s.io/v1", "apiextensions.k8s.io/v1"} <= versions
    assert "v1.36" in kubectl.all("version")
    assert "is running at" in kubectl.all("cluster-info")


def test_custom_kind_is_served_at_once(kubectl):
    group = f"g{kubectl.ns}.example.com"
    kind = crd(group=group)
    kubectl.all("apply", "-f", "-", stdin=kind)
    kubectl.all("wait", f"crd/{kind['metadata']['name']}", "--for=condition=Established", "--timeout=20s")
    fabric = {"apiVersion": f"{group}/v1", "kind": "Fabric", "metadata": {"name": "denim"}, "spec": {"threads": 4, "junk": 1}}
    assert "unknown field" in kubectl("apply", "-f", "-", stdin=fabric, code=1)
    del fabric["spec"]["junk"]
    kubectl("apply", "-f", "-", stdin=fabric)
    resource = f"fabrics.{group}"
    assert kubectl.json("get", resource, "denim")["spec"] == {"threads": 4, "replicas": 1, "colour": "indigo"}
    assert columns(kubectl("get", resource)) == ["NAME", "THREADS"]
    fabric["spec"]["threads"] = 3
    assert "threads come in pairs" in kubectl("apply", "-f", "-", stdin=fabric, code=1)
    assert "dyed with" in kubectl.all("explain", f"{resource}.spec.colour")
    kubectl("scale", resource, "denim", "--replicas=3")
    assert kubectl.json("get", resource, "denim")["spec"]["replicas"] == 3
    kubectl("patch", resource, "denim", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"woven"}}')
    assert kubectl.json("get", resource, "denim")["status"] == {"phase": "woven"}
    assert kubectl("get", resource, "--field-selector", "spec.colour=ecru", "-o", "name") == ""
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin={**fabric, "spec": {"threads": 6}})
    kubectl.all("delete", "crd", kind["metadata"]["name"])
    wait_for("the kind to be gone", lambda: "the server doesn't have" in kubectl("get", resource, code=1))


def test_describe(kubectl):
    kubectl("apply", "-f", "-", stdin=[deployment(), service(), pod(), configmap(a="1")])
    kubectl.all("apply", "-f", "-", stdin=node(f"n-{kubectl.ns}"))
    for what in ["deployment/web", "service/web", "pod/one", "cm/settings", "sa/default"]:
        assert "Name:" in kubectl("describe", what)
    assert "Name:" in kubectl.all("describe", "node", f"n-{kubectl.ns}")
    assert "Status:" in kubectl.all("describe", "ns", kubectl.ns)


def test_events(kubectl):
    kubectl("create", "-f", "-", stdin={
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "one.1"}, "reason": "Tested", "type": "Normal",
        "message": "hello", "involvedObject": {"kind": "Pod", "namespace": kubectl.ns, "name": "one"}})
    assert "Tested" in kubectl("events") and "Tested" in kubectl("get", "events")
    assert kubectl("get", "events", "--field-selector", "involvedObject.name=two", "-o", "name") == ""


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/version", "/metrics", "/openapi/v2", "/openapi/v3"])
def test_raw_paths(kubectl, path):
    assert kubectl.all("get", "--raw", path)
