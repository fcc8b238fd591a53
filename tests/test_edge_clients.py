"""Real clients against an edge: kubectl and a kube-rs informer, online, offline, across restart and resync."""
import json
import os
import pathlib
import subprocess

import pytest

from center import Tools, binary, die_with_parent, wait_for
from edge import fleet, in_sync, objects
from manifests import configmap, crd, deployment

SHOP = "root:shop"
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def shop():
    with fleet("florin", wire=True) as (center, florin):
        yield center, florin


@pytest.fixture(scope="module")
def here(shop, tmp_path_factory):
    """kubectl at the edge."""
    return Tools(shop[1], tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def there(shop, tmp_path_factory):
    """kubectl at the center, in the workspace."""
    tools = Tools(shop[0], tmp_path_factory.mktemp("home"))
    return lambda *args, **kw: tools.kubectl("--server", f"{shop[0].url}/clusters/{SHOP}", *args, **kw)


def test_kubectl_online(shop, here, there):
    there("apply", "-f", "-", stdin=[deployment("web"), configmap("page", text="hello"), crd()])
    there("wait", "crd/fabrics.weave.example.com", "--for=condition=Established", "--timeout=20s")
    there("apply", "-f", "-", stdin={"apiVersion": "weave.example.com/v1", "kind": "Fabric", "metadata": {"name": "silk"}, "spec": {"threads": 2}})
    wait_for("the custom object", lambda: here.json("get", "fabric", "silk")["spec"]["threads"] == 2, 30, every=0.3)
    assert "web" in here.kubectl("get", "deployments", "-o", "wide")
    said = here.kubectl("describe", "configmap", "page")
    assert "hello" in said
    assert "silk" in here.kubectl("get", "fabrics")
    assert "threads" in here.kubectl("explain", "fabric.spec")
    # What is the edge's own is applied like anywhere.
    assert "created" in here.kubectl("apply", "-f", "-", stdin=configmap("local", a="1"))
    assert "unchanged" in here.kubectl("apply", "-f", "-", stdin=configmap("local", a="1"))
    # What is the center's is written at the center; the edge's administrator is nobody there.
    refused = here.kubectl("apply", "-f", "-", stdin=configmap("page", text="other"), code=1)
    assert "orbidden" in refused and "edge:root:florin:" in refused, refused


def test_kubectl_offline(shop, here, there):
    center, florin = shop
    there("apply", "-f", "-", stdin=[deployment("off"), configmap("off", text="1")])
    in_sync(center, SHOP, florin)
    wait_for("the deployment", lambda: here.json("get", "deployment", "off"), 20, every=0.3)
    florin.through.cut()
    try:
        florin.wait_offline()
        assert "off" in here.kubectl("get", "deployments,configmaps")
        assert "Replicas" in here.kubectl("describe", "deployment", "off")
        assert "created" in here.kubectl("apply", "-f", "-", stdin=configmap("made-offline", a="1"))
        assert "configured" in here.kubectl("apply", "-f", "-", stdin=configmap("made-offline", a="2"))
        said = here.kubectl("patch", "configmap", "off", "--type=merge", "-p", '{"data":{"text":"2"}}', code=1)
        assert "is the center's, and this edge has no link to it" in said, said
        assert "unable to connect" not in said.lower(), said
        said = here.kubectl("logs", "deployment/off", "--pod-running-timeout=1s", code=1)
        # The Deployment has no Pod, and kubectl looks for one as long as it was told to.
        assert said == "error: timed out waiting for the condition\n", said
    finally:
        florin.through.open()
    florin.wait_connected(60)
    assert here.json("get", "configmap", "made-offline")["data"] == {"a": "2"}


class Informer:
    def __init__(self, server):
        program = pathlib.Path(os.environ.get("KUBE_CONTROLLER_BIN") or pathlib.Path(binary()).with_name("kube-controller"))
        if not program.exists():
            pytest.fail(f"{program} is missing: 'make build' builds it")
        self.server = server
        self.process = subprocess.Popen([program, "default", "--follow"], env={**os.environ, "KUBECONFIG": str(server.kubeconfig)},
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)

    def ask(self):
        self.process.stdin.write("?\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def agrees(self, seconds=40):
        """Waits until it believes exactly what is there."""
        def same():
            listed = {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in objects(self.server, MAPS).values()}
            believed = self.ask()
            if believed["state"] != listed:
                raise AssertionError(f"{believed} but there is {listed}")
            return believed
        return wait_for("the informer to agree", same, seconds, every=0.1)

    def close(self):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait(30)
        self.process.stdout.close()


def test_an_informer_stays_consistent_across_cut_restart_and_resync(shop, there):
    center, florin = shop

    def turn(number):
        for i in range(10):
            body = configmap(f"turn-{i}", v=str(number))
            if center.request("PUT", f"/clusters/{SHOP}{MAPS}/turn-{i}", body)[0] == 404:
                center.api("POST", f"/clusters/{SHOP}{MAPS}", body)

    turn(0)
    in_sync(center, SHOP, florin)
    informer = Informer(florin)
    try:
        informer.agrees()
        turn(1)
        in_sync(center, SHOP, florin)
        assert informer.agrees()["lists"] == 1

        florin.through.cut()
        florin.wait_offline()
        turn(2)
        center.api("DELETE", f"/clusters/{SHOP}{MAPS}/turn-9")
        florin.api("POST", MAPS, configmap("from-here", v="1"), expect=(201, 409))
        informer.agrees()
        florin.through.open()
        in_sync(center, SHOP, florin, 60)
        believed = informer.agrees()
        assert believed["lists"] == 1 and believed["errors"] == 0, "a cut link is nothing to those who watch the edge"

        # Restarted while it is offline, changed meanwhile, resynced afterwards.
        florin.through.cut()
        florin.kill()
        turn(3)
        florin.start()
        informer.agrees()
        florin.through.open()
        in_sync(center, SHOP, florin, 60)
        assert informer.agrees()["changes"] >= 30
    finally:
        informer.close()
