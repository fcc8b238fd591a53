"""Two centers on one etcd are one center: one of them drives rollouts and keeps accounts, also of the edges that the other one has; and when it is
killed the other goes on."""
import json

import pytest

from center import Center, Etcd, wait_for
from edge import SYNCTARGETS, Edge, Wire
from placed import LOCATIONS, MERGE, PLACEMENTS, condition

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/selvedge-center"
DEPLOYMENTS = "/apis/apps/v1/namespaces/site/deployments"
MAPS = "/api/v1/namespaces/site/configmaps"
WELL = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1, "conditions": []}


class World:
    """Each edge has a center of its own, by a wire that can lead to the other one."""

    def __init__(self, base):
        self.etcd = Etcd(base)
        # Centers of one store have one key.
        keys = ("--secrets-key-file", str(base / "secrets.key"))
        self.centers = [Center(base / name, "etcd", self.etcd, args=keys) for name in ("left", "right")]
        self.wires, self.edges = [], []
        for center in self.centers:
            center.start()
        for center, name in zip(self.centers, ("florin", "guilder")):
            self.wires.append(Wire(center.port))
            self.edges.append(Edge(center, base / name, name, through=self.wires[-1]))
            self.edges[-1].start().wait_connected()

    def stop(self):
        for process in (*self.edges, *self.centers):
            process.kill()
        for wire in self.wires:
            wire.close()
        self.etcd.stop()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("two"))
    try:
        yield world
        for one in (*world.centers, *world.edges):
            assert "panicked" not in one.log_path.read_text(errors="replace")
    finally:
        world.stop()


def merge(server, path, patch):
    return server.api("PATCH", path, patch, content_type=MERGE)


def status(center):
    return center.api("GET", f"{PLACEMENTS}/site").get("status", {})


def counts(center):
    found = status(center)
    return tuple(found.get(field) for field in ("matched", "inSync", "behind", "offline", "failing"))


def phase(center):
    return status(center).get("rollout", {}).get("phase")


def web(image):
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": image}]}}}}


def having(edges, image):
    found = []
    for edge in edges:
        code, _, body = edge.request("GET", f"{DEPLOYMENTS}/web")
        if code == 200 and json.loads(body)["spec"]["template"]["spec"]["containers"][0]["image"] == image:
            found.append(edge)
    return found


def report(edge):
    generation = edge.api("GET", f"{DEPLOYMENTS}/web")["metadata"]["generation"]
    merge(edge, f"{DEPLOYMENTS}/web/status", {"status": {**WELL, "observedGeneration": generation}})


def test_one_of_them_leads(world):
    left, right = world.centers
    holder = lambda center: center.api("GET", LEASE)["spec"]["holderIdentity"]  # noqa: E731
    wait_for("somebody to lead", lambda: holder(left) and holder(left) == holder(right))
    assert sum("this center leads" in center.log_path.read_text() for center in world.centers) == 1


def test_a_rollout_goes_to_the_edges_of_both(world):
    left, right = world.centers
    location = {"apiVersion": "scheduling.kcp.io/v1alpha1", "kind": "Location", "metadata": {"name": "all", "labels": {"env": "prod"}},
                "spec": {"instanceSelector": {}}}
    left.api("POST", LOCATIONS, location)
    left.api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "site", "labels": {"site": "yes"}}})
    left.api("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "page"}, "data": {"text": "first"}})
    left.api("POST", PLACEMENTS, {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement", "metadata": {"name": "site"}, "spec": {
        "locationSelectors": [{"matchLabels": {"env": "prod"}}], "namespaceSelector": {"matchLabels": {"site": "yes"}}, "rollout": {"batch": 1}}})
    for edge in world.edges:
        wait_for(f"the page at {edge.name}", lambda e=edge: e.api("GET", f"{MAPS}/page")["data"]["text"] == "first", 40)
    for center in world.centers:
        wait_for("all to be in sync", lambda c=center: counts(c) == (2, 2, 0, 0, 0) and phase(c) == "Complete", 40)
    right.api("POST", DEPLOYMENTS, web("web:1"))
    for n in (1, 2):
        wait_for(f"edge {n}", lambda: len(having(world.edges, "web:1")) == n, 40)
        for edge in having(world.edges, "web:1"):
            report(edge)
    wait_for("the end", lambda: phase(left) == phase(right) == "Complete", 40)


def test_what_an_edge_of_either_refuses_is_known(world):
    left, right = world.centers
    for n, edge in enumerate(world.edges):
        edge.api("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"taken{n}"}})
        merge(left, f"{PLACEMENTS}/site", {"spec": {"rollout": None}})
        left.api("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"taken{n}"}, "data": {"a": "b"}})
        wait_for("the refusal", lambda e=edge: [b["edge"] for b in status(right)["broken"]] == [f"root:{e.name}"], 40)
        assert condition(status(right), "Refused")["status"] == "True"
        assert counts(right) == (2, 1, 0, 0, 1)
        left.api("DELETE", f"{MAPS}/taken{n}")
        wait_for("all to be well", lambda: counts(right) == (2, 2, 0, 0, 0), 40)
    merge(left, f"{PLACEMENTS}/site", {"spec": {"rollout": {"batch": 1}}})
    wait_for("a rollout again", lambda: phase(left) == "Complete", 40)


@pytest.mark.timeout(180)
def test_when_the_one_that_leads_is_killed_the_other_goes_on(world):
    leads = next(c for c in world.centers if "this center leads" in c.log_path.read_text())
    [other] = [c for c in world.centers if c is not leads]
    before = other.api("GET", LEASE)["spec"]["holderIdentity"]
    merge(other, f"{DEPLOYMENTS}/web", {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:2"}]}}}})
    wait_for("the first", lambda: len(having(world.edges, "web:2")) == 1, 40)
    [first] = having(world.edges, "web:2")
    leads.kill()
    for wire in world.wires:
        wire.target_port = other.port
        wire.reset()
    wait_for("another to lead", lambda: other.api("GET", LEASE)["spec"]["holderIdentity"] not in ("", before), 60)
    for edge in world.edges:
        target = lambda e=edge: other.api("GET", f"{SYNCTARGETS}/{e.name}")["status"]  # noqa: E731
        wait_for(f"{edge.name} to come", lambda t=target: next(c for c in t()["conditions"] if c["type"] == "Ready")["status"] == "True", 90)
    assert [e.name for e in having(world.edges, "web:2")] == [first.name], "nobody is let through because somebody died"
    for n in (1, 2):
        wait_for(f"edge {n}", lambda: len(having(world.edges, "web:2")) == n, 60)
        for edge in having(world.edges, "web:2"):
            report(edge)
    wait_for("the end", lambda: phase(other) == "Complete" and counts(other) == (2, 2, 0, 0, 0), 60)
