"""An edge of a whole cluster: what the center sent is applied to a second API server, kept so, and reported. The cluster here is another
instance of our own server, and once more Kubernetes' own if SELVEDGE_UPSTREAM names it."""
import contextlib
import json
import time

import pytest
from center import Center, Tools, wait_for
from edge import Edge, Wire, make_workspace, reported
from upstream import PROGRAMS, Upstream

SHOP = "root:shop"
AT = f"/clusters/{SHOP}"
MERGE = "application/merge-patch+json"
MARK, EDGE, REFUSED = "edge.kcp.io/downsynced", "edge.selvedge.dev/edge", "edge.selvedge.dev/refused"
STATE = "/api/v1/namespaces/kube-system/configmaps/selvedge-cluster"


def path(namespace, name="", resource="configmaps", base="/api/v1"):
    return f"{base}/namespaces/{namespace}/{resource}" + (f"/{name}" if name else "")


def deployments(namespace, name=""):
    return path(namespace, name, "deployments", "/apis/apps/v1")


def namespace(name):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data or {"k": "v"}}


def deployment(name, label="web", replicas=1):
    labels = {"app": label}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}}


class World:
    """A center, an edge, and the cluster that the edge applies to, with a wire between the two that can be cut."""

    def __init__(self, base, kind):
        self.center, self.cluster = Center(base / "center").start(), kind(base / "cluster").start()
        self.wire = Wire(self.cluster.port)
        kubeconfig = base / "cluster.kubeconfig"
        text = self.cluster.kubeconfig.read_text()
        kubeconfig.write_text(text.replace(f"127.0.0.1:{self.cluster.port}", f"127.0.0.1:{self.wire.port}"))
        make_workspace(self.center, SHOP)
        self.florin = Edge(self.center, base / "florin", "florin", SHOP, args=("--runtime", "cluster", "--kubeconfig", kubeconfig))
        # So many that what a test deletes is never more than half of them, which the deletion fuse would hold.
        for n in range(12):
            self.put(path("default"), config_map(f"ballast{n}"))
        self.florin.start().wait_connected()

    def at(self, where):
        """An object of the cluster's, or nothing."""
        status, _, body = self.cluster.request("GET", where)
        return json.loads(body) if status == 200 else None

    def has(self, where, what=lambda found: True, seconds=30):
        return wait_for(where, lambda: (found := self.at(where)) and what(found) and found, seconds, every=0.05)

    def hasnt(self, where, seconds=30):
        wait_for(f"no {where}", lambda: self.at(where) is None, seconds, every=0.05)

    def put(self, where, body):
        """At the center."""
        name = body["metadata"]["name"]
        status, _, said = self.center.request("POST", f"{AT}{where}", body)
        if status == 409:
            status, _, said = self.center.request("PUT", f"{AT}{where}/{name}", body)
        assert status in (200, 201), said

    def home(self, name):
        self.put("/api/v1/namespaces", namespace(name))

    def drop(self, where):
        self.center.api("DELETE", f"{AT}{where}")

    def report(self, key):
        return reported(self.center, self.florin).get(key, {})

    def state(self):
        return self.florin.api("GET", STATE)["data"]["state"]

    @contextlib.contextmanager
    def away(self):
        self.wire.cut()
        try:
            yield
        finally:
            self.wire.open()


UPSTREAM = pytest.param(Upstream, marks=pytest.mark.skipif(not (PROGRAMS / "kube-apiserver").exists(),
                                                           reason="SELVEDGE_UPSTREAM names no kube-apiserver"))


@pytest.fixture(scope="module", params=[Center, UPSTREAM])
def world(request, tmp_path_factory):
    world = None
    try:
        world = World(tmp_path_factory.mktemp("cluster"), request.param)
        yield world
        assert "panicked" not in world.florin.log_path.read_text(errors="replace")
    finally:
        if world:
            for process in (world.florin, world.center, world.cluster):
                process.kill()
            world.wire.close()


def test_what_the_center_sent_is_applied_changed_and_taken_away(world):
    world.home("first")
    world.put(path("first"), config_map("prices", apple="4"))
    world.put(deployments("first"), deployment("web"))
    there = world.has(path("first", "prices"))
    assert there["data"] == {"apple": "4"}
    assert there["metadata"]["labels"][MARK] == "yes" and there["metadata"]["annotations"][EDGE] == "root:florin"
    ours = [e for e in there["metadata"]["managedFields"] if e["manager"] == "selvedge-edge"]
    assert [e["operation"] for e in ours] == ["Apply"]
    assert world.has("/api/v1/namespaces/first")["metadata"]["labels"][MARK] == "yes"
    world.has(deployments("first", "web"))
    here = world.florin.api("GET", path("first", "prices"))
    assert here["data"] == {"apple": "4"} and MARK not in here["metadata"].get("labels", {}), "the edge's own API has it as always"
    world.put(path("first"), config_map("prices", pear="5"))
    world.has(path("first", "prices"), lambda found: found["data"] == {"pear": "5"})
    world.drop(path("first", "prices"))
    world.hasnt(path("first", "prices"))
    # What cannot be changed is made anew.
    before = world.at(deployments("first", "web"))["metadata"]["uid"]
    world.drop(deployments("first", "web"))
    wait_for("it to be gone at the center", lambda: world.center.request("GET", f"{AT}{deployments('first', 'web')}")[0] == 404)
    world.put(deployments("first"), deployment("web", "shop"))
    world.has(deployments("first", "web"), lambda found: found["spec"]["selector"]["matchLabels"] == {"app": "shop"})
    assert world.at(deployments("first", "web"))["metadata"]["uid"] != before
    world.drop("/api/v1/namespaces/first")
    world.hasnt("/api/v1/namespaces/first")


def test_definitions_come_before_their_objects(world):
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gears.example.com"},
           "spec": {"group": "example.com", "scope": "Namespaced",
                    "names": {"plural": "gears", "singular": "gear", "kind": "Gear", "listKind": "GearList"},
                    "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {
                        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    gears = path("kinds", "", "gears", "/apis/example.com/v1")
    with world.away():
        # Together, so that the edge has all of it before the cluster has any.
        world.home("kinds")
        world.put(definitions, crd)
        gear = {"apiVersion": "example.com/v1", "kind": "Gear", "metadata": {"name": "g"}, "spec": {"teeth": 12}}
        wait_for("the kind", lambda: world.center.request("POST", f"{AT}{gears}", gear)[0] in (201, 409))
        wait_for("the gear", lambda: world.florin.request("GET", f"{gears}/g")[0] == 200)
    assert world.has(f"{gears}/g")["spec"] == {"teeth": 12}
    world.cluster.api("PATCH", f"{gears}/g/status", {"status": {"turns": 7}}, content_type=MERGE)
    wait_for("the status at the center", lambda: world.report("example.com/gears/kinds/g").get("status") == {"turns": 7})
    world.drop(f"{gears}/g")
    world.drop(f"{definitions}/gears.example.com")
    world.hasnt(f"{definitions}/gears.example.com")


def test_drift_is_corrected_and_reported(world):
    world.home("drift")
    world.put(path("drift"), config_map("rules", a="1", b="2"))
    world.has(path("drift", "rules"))
    edit = {"data": {"a": "theirs", "own": "x"}, "metadata": {"labels": {"shelf": "4"}}}
    world.cluster.api("PATCH", path("drift", "rules") + "?fieldManager=somebody", edit, content_type=MERGE)
    there = world.has(path("drift", "rules"), lambda found: found["data"]["a"] == "1")
    assert there["data"] == {"a": "1", "b": "2", "own": "x"}, "what others add stays"
    assert there["metadata"]["labels"]["shelf"] == "4"
    said = wait_for("the report", lambda: world.report("core/configmaps/drift/rules").get("overruled"))
    assert "somebody" in said and ".data.a" in said
    # Without its mark it is still ours; deleted, it comes back.
    world.cluster.api("PATCH", path("drift", "rules"), {"metadata": {"labels": {MARK: None}}}, content_type=MERGE)
    world.has(path("drift", "rules"), lambda found: found["metadata"]["labels"].get(MARK) == "yes")
    before = there["metadata"]["uid"]
    world.cluster.api("DELETE", path("drift", "rules"))
    world.has(path("drift", "rules"), lambda found: found["metadata"]["uid"] != before)


def test_what_is_the_clusters_stays_the_clusters(world, tmp_path):
    world.cluster.api("POST", "/api/v1/namespaces", namespace("theirs"))
    world.cluster.api("POST", path("theirs"), config_map("kept", of="the cluster"))
    world.cluster.api("POST", path("theirs"), config_map("alone", of="the cluster"))
    kept, alone = world.at(path("theirs", "kept")), world.at(path("theirs", "alone"))
    world.home("theirs")
    world.put(path("theirs"), config_map("kept", of="the center"))
    world.put(path("theirs"), config_map("ours", of="the center"))
    world.has(path("theirs", "ours"))
    reason = wait_for("the refusal", lambda: world.report("core/configmaps/theirs/kept").get("refused"))
    assert "belongs to it" in reason
    tools = Tools(world.center, tmp_path)
    events = lambda: tools.kubectl("--server", f"{world.center.url}{AT}", "-n", "theirs", "get", "events")  # noqa: E731
    wait_for("an Event on the source object", lambda: "RefusedByEdge" in events() and "belongs to it" in events())
    wait_for("the SyncTarget", lambda: "kept" in json.dumps(world.florin.condition("ObjectsRefused") or {}))
    assert world.florin.api("GET", path("theirs", "kept"))["metadata"]["annotations"][REFUSED] == reason
    assert world.at(path("theirs", "kept")) == kept
    # Once nothing is in its way, it goes there.
    world.cluster.api("DELETE", path("theirs", "kept"))
    # It would be tried again after a while anyway; what is new is tried at once.
    world.put(path("theirs"), config_map("kept", of="the center", again="yes"))
    world.has(path("theirs", "kept"), lambda found: found["data"] == {"of": "the center", "again": "yes"})
    wait_for("the refusal to end", lambda: "refused" not in world.report("core/configmaps/theirs/kept"))
    wait_for("the SyncTarget", lambda: (world.florin.condition("ObjectsRefused") or {}).get("status") == "False")
    # A namespace that was there before stays, without any trace of us.
    world.drop("/api/v1/namespaces/theirs")
    world.hasnt(path("theirs", "ours"))
    world.hasnt(path("theirs", "kept"))
    left = world.has("/api/v1/namespaces/theirs", lambda found: MARK not in found["metadata"].get("labels", {}))
    assert EDGE not in left["metadata"].get("annotations", {}) and left["status"]["phase"] == "Active"
    assert world.at(path("theirs", "alone")) == alone


def test_a_rejection_is_seen_at_the_center_and_passes(world):
    world.home("small")
    world.has("/api/v1/namespaces/small")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "1"}}}
    world.cluster.api("POST", path("small", "", "resourcequotas"), quota)
    wait_for("the quota", lambda: world.at(path("small", "q", "resourcequotas")).get("status", {}).get("used"))
    world.put(path("small"), config_map("too-much"))
    reason = wait_for("the refusal", lambda: world.report("core/configmaps/small/too-much").get("refused"))
    assert "exceeded quota" in reason
    world.put(path("small", "", "secrets"), {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}})
    world.has(path("small", "s", "secrets"))
    world.cluster.api("DELETE", path("small", "q", "resourcequotas"))
    world.has(path("small", "too-much"), seconds=60)
    wait_for("the end of it", lambda: "refused" not in world.report("core/configmaps/small/too-much"))


def test_status_comes_back_to_the_center(world):
    world.home("status")
    world.put(deployments("status"), deployment("web", replicas=2))
    there = world.has(deployments("status", "web"))
    status = {"observedGeneration": there["metadata"]["generation"], "replicas": 2, "readyReplicas": 2}
    world.cluster.api("PATCH", deployments("status", "web") + "/status", {"status": status}, content_type=MERGE)
    key = "apps/deployments/status/web"
    wait_for("the report", lambda: world.report(key).get("status", {}).get("readyReplicas") == 2)
    here = world.florin.api("GET", deployments("status", "web"))
    assert here["status"]["observedGeneration"] == here["metadata"]["generation"]
    # What the cluster has seen of the next one is told in this edge's generations.
    world.put(deployments("status"), deployment("web", replicas=3))
    world.has(deployments("status", "web"), lambda found: found["spec"]["replicas"] == 3)
    here = world.florin.api("GET", deployments("status", "web"))
    assert here["status"]["observedGeneration"] < here["metadata"]["generation"]
    assert here["status"]["readyReplicas"] == 2


def test_the_cluster_may_be_away_and_the_edge_restarted(world):
    world.home("away")
    for n in range(5):
        world.put(path("away"), config_map(f"c{n}", n=str(n)))
    world.has(path("away", "c4"))
    with world.away():
        world.put(path("away"), config_map("c0", n="changed meanwhile"))
        world.drop(path("away", "c1"))
        world.put(path("away"), config_map("new"))
        wait_for("the edge to have it", lambda: world.florin.request("GET", path("away", "new"))[0] == 200)
        wait_for("the edge to say so", lambda: world.state() == "Away")
        assert world.florin.stop() == 0, world.florin.log_tail()
        world.florin.start().wait_connected()
        world.drop(path("away", "c2"))
        wait_for("the edge to be without", lambda: world.florin.request("GET", path("away", "c2"))[0] == 404)
        # Meanwhile somebody works in the cluster.
        world.cluster.api("PATCH", path("away", "c3"), {"data": {"n": "theirs"}}, content_type=MERGE)
        time.sleep(1)
        assert world.at(path("away", "c1")) and not world.at(path("away", "new"))
    world.has(path("away", "new"))
    world.has(path("away", "c0"), lambda found: found["data"] == {"n": "changed meanwhile"})
    world.has(path("away", "c3"), lambda found: found["data"] == {"n": "3"})
    world.hasnt(path("away", "c1"))
    world.hasnt(path("away", "c2"))
    wait_for("the edge to say so", lambda: world.state() == "Online")
    # A restart changes nothing there.
    versions = lambda: {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in world.at(path("away"))["items"]}  # noqa: E731
    before = versions()
    world.florin.stop()
    world.florin.start().wait_connected()
    world.put(path("away"), config_map("after"))
    world.has(path("away", "after"))
    assert {name: version for name, version in versions().items() if name != "after"} == before
    # Nor does one of the cluster.
    world.cluster.stop()
    world.cluster.start()
    world.wire.target_port = world.cluster.port
    world.put(path("away"), config_map("later"))
    world.has(path("away", "later"), seconds=40)
