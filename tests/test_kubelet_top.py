"""`kubectl top` on an edge whose nodes have kubelets, here and from the center: what they say of themselves, in the words of metrics.k8s.io."""
import json
import re

import pytest
from center import Tools
from edge import fleet
from kubelet import Kubelet
from test_kubelet import own_address

TIME = "2026-01-02T03:04:05Z"


def used(millis, mebibytes, **names):
    return {**names, "cpu": {"time": TIME, "usageNanoCores": millis * 1_000_000}, "memory": {"time": TIME, "workingSetBytes": mebibytes << 20}}


SUMMARY = {"node": used(250, 512, nodeName="n1"), "pods": [
    {"podRef": {"name": "web", "namespace": "default"}, "containers": [used(15, 20, name="app"), used(5, 4, name="log")]},
    {"podRef": {"name": "other", "namespace": "shop"}, "containers": [used(1, 1, name="app")]},
    {"podRef": {"name": "begun", "namespace": "default"}, "containers": [{"name": "app"}]}]}


class Measuring(Kubelet):
    """That answers this, too."""

    def answer(self, request):
        if request.path != "/stats/summary":
            return super().answer(request)
        body = json.dumps(SUMMARY).encode()
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


@pytest.fixture(scope="module", params=["here", "from the center"])
def kubectl(request, tmp_path_factory):
    if not own_address():
        pytest.skip("this machine has no address besides 127.0.0.1")
    base = tmp_path_factory.mktemp("top")
    with fleet("florin", workspace=None, directory=base) as (center, florin):
        # Nothing is passed on to this machine's own loopback addresses.
        kubelet = Measuring(base, str(florin.ca), address=own_address())
        kubelet.register(florin.api)
        Kubelet.register(Gone(kubelet), florin.api, "n2")
        node = florin.api("GET", "/api/v1/nodes/n1")
        node["status"]["allocatable"] = node["status"]["capacity"] = {"cpu": "2", "memory": "1Gi"}
        florin.api("PUT", "/api/v1/nodes/n1/status", node)
        florin.api("POST", "/api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}},
                                                             "spec": {"nodeName": "n1", "containers": [{"name": "app", "image": "x"}]}})
        where = (florin, ()) if request.param == "here" else (center, ("--server", f"{center.url}/clusters/root:florin-mb"))
        tools = Tools(where[0], base / "home")
        yield lambda *args, **kw: tools.kubectl(*where[1], *args, **kw)
        kubelet.close()


class Gone:
    """A kubelet that nobody reaches."""

    def __init__(self, kubelet):
        self.node = lambda name: ({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}},
                                  {**kubelet.node(name)[1], "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}})


def test_top(kubectl):
    lines = [line.split() for line in kubectl("top", "pods", "-A", "--no-headers").splitlines()]
    assert sorted(lines) == [["default", "web", "20m", "24Mi"], ["shop", "other", "1m", "1Mi"]]
    assert [line.split()[0] for line in kubectl("top", "pods", "-l", "app=web", "--no-headers").splitlines()] == ["web"]
    assert re.search(r"^web +log +5m +4Mi", kubectl("top", "pods", "web", "--containers", "--no-headers"), re.M)
    # Who does not answer is left out, and keeps nobody waiting.
    assert kubectl("top", "nodes", "n1", "--no-headers").split() == ["n1", "250m", "12%", "512Mi", "50%"]
    assert "begun" in kubectl("top", "pods", "begun", code=1)
