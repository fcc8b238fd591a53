"""The first example of the reference, and its variant: each expectation a check, through kubectl; then once more with an edge cut off during
every step."""
import contextlib
import json

import pytest
from center import ROOT, Center, Tools, wait_for
from edge import SYNCTARGETS, Edge

FIRST = ROOT / "examples/first"
IMW, ORG, C, S, ESPW = "root:imw-1", "root:my-org", "root:my-org:wmw-c", "root:my-org:wmw-s", "root:espw"
COUNT = "kubestellar.io/executing-count"


class World:
    """A center and two edges, and kubectl everywhere."""

    def __init__(self, base):
        self.center = Center(base / "center").start()
        self.tools = Tools(self.center, base / "home")
        self.edges = {name: Inventoried(self.center, base / name, name) for name in ("florin", "guilder")}
        self.homes = {name: Tools(edge, base / f"home-{name}") for name, edge in self.edges.items()}

    def kubectl(self, workspace, *args, **kw):
        return self.tools.kubectl("--server", f"{self.center.url}/clusters/{workspace}", *args, **kw)

    def get(self, workspace, *args):
        return json.loads(self.kubectl(workspace, "get", *args, "-o", "json"))

    def apply(self, workspace, *files):
        for file in files:
            self.kubectl(workspace, "apply", "-f", FIRST / file)

    def on(self, edge, *args, **kw):
        return self.homes[edge].kubectl(*args, **kw)

    def on_json(self, edge, *args):
        return json.loads(self.on(edge, "get", *args, "-o", "json"))

    def mailbox(self, edge):
        found = self.get(ESPW, "workspaces")["items"]
        return [f"{ESPW}:{w['metadata']['name']}" for w in found
                if w["metadata"].get("annotations", {}).get("edge.kcp.io/sync-target-name") == edge][0]

    def stop(self):
        for process in (*self.edges.values(), self.center):
            process.kill()


class Inventoried(Edge):
    """An edge whose SyncTarget is in the inventory."""

    def join_token(self, *args):
        return super().join_token("--workspace", IMW, *args)

    def target(self):
        return self.center.api("GET", f"/clusters/{IMW}{SYNCTARGETS}/{self.name}")

    def annotate(self, **to):
        self.center.api("PATCH", f"/clusters/{IMW}{SYNCTARGETS}/{self.name}", {"metadata": {"annotations": to}},
                        content_type="application/merge-patch+json")

    def cut(self):
        self.annotate(**{"edge.selvedge.dev/link": "cut"})
        return self.wait_offline(10)

    def heal(self, seconds=70):
        self.annotate(**{"edge.selvedge.dev/link": None})
        return self.wait_connected(seconds)


# ---- the steps, and what is expected of each ----

def make_inventory(world):
    world.apply("root", "workspaces.yaml")
    world.kubectl("root", "wait", "workspace/imw-1", "workspace/my-org", "--for=jsonpath={.status.phase}=Ready", "--timeout=30s")
    world.apply(IMW, "inventory.yaml")


def expect_mailboxes(world):
    names = lambda: sorted(w["metadata"].get("annotations", {}).get("edge.kcp.io/sync-target-name", "")  # noqa: E731
                           for w in world.get(ESPW, "workspaces")["items"] if "-mb-" in w["metadata"]["name"])
    wait_for("two mailboxes", lambda: names() == ["florin", "guilder"])


def join_edges(world):
    for edge in world.edges.values():
        edge.start().wait_connected()


def declare(world):
    world.apply(ORG, "teams.yaml")
    world.kubectl(ORG, "wait", "workspace/wmw-c", "workspace/wmw-s", "--for=jsonpath={.status.phase}=Ready", "--timeout=30s")
    world.apply(C, "common.yaml", "placement-c.yaml")
    world.apply(S, "special.yaml", "placement-s.yaml")


def destinations(world, workspace, placement):
    slices = [s for s in world.get(workspace, "singleplacementslices")["items"]
              if s["metadata"]["labels"]["edge.kcp.io/source-placement"] == placement]
    return sorted((d["cluster"], d["locationName"], d["syncTargetName"], d["syncTargetUID"]) for s in slices for d in s["destinations"])


def expect_slices(world):
    uid = {name: edge.target()["metadata"]["uid"] for name, edge in world.edges.items()}
    wanted = lambda *names: [(IMW, name, name, uid[name]) for name in names]  # noqa: E731
    where = lambda d: [(x[1], x[2], x[3]) for x in d]  # noqa: E731
    wait_for("the slice of c", lambda: where(destinations(world, C, "edge-placement-c")) == where(wanted("florin", "guilder")))
    wait_for("the slice of s", lambda: where(destinations(world, S, "edge-placement-s")) == where(wanted("guilder")))


def expect_syncer_configs(world):
    first = {"apiGroup": "group1.test", "resources": ["sprockets", "flanges"], "namespaces": ["orbital"], "names": ["george", "cosmo"]}
    second = {"apiGroup": "group2.test", "resources": ["cogs"], "names": ["william"]}
    third = {"apiGroup": "group3.test", "resources": ["widgets"], "names": ["*"]}
    asked = lambda sets: sorted(json.dumps({k: sorted(v) if isinstance(v, list) else v for k, v in s.items() if v}, sort_keys=True) for s in sets)  # noqa: E731
    for edge, namespaces, upsync in (("florin", ["commonstuff"], [first, second]),
                                     ("guilder", ["commonstuff", "specialstuff"], [first, second, third])):
        def told():
            spec = world.get(world.mailbox(edge), "syncerconfig", "the-one")["spec"]
            return (sorted(spec["namespaceScope"]["namespaces"]), asked(spec.get("upsync", [])))
        wait_for(f"the SyncerConfig of {edge}", lambda: told() == (namespaces, asked(upsync)))


def deployments(world, edge):
    return sorted(f"{o['metadata']['namespace']}/{o['metadata']['name']}" for o in world.on_json(edge, "deployments", "-A")["items"])


def expect_workloads(world):
    wait_for("florin", lambda: deployments(world, "florin") == ["commonstuff/commond"])
    wait_for("guilder", lambda: deployments(world, "guilder") == ["commonstuff/commond", "specialstuff/speciald"])
    page = lambda edge, ns: world.on_json(edge, "configmap", "httpd-htdocs", "-n", ns)["data"]["index.html"]  # noqa: E731
    assert "common web site" in page("florin", "commonstuff") and "common web site" in page("guilder", "commonstuff")
    assert "special web site" in page("guilder", "specialstuff")
    labels = world.on_json("guilder", "namespace", "specialstuff")["metadata"]["labels"]
    assert labels["edge.kcp.io/projected"] == "yes"
    assert "specialstuff" not in world.on("florin", "get", "namespaces")
    # The mailbox shows the same.
    shown = world.get(world.mailbox("guilder"), "deployments", "-A")["items"]
    assert sorted(o["metadata"]["name"] for o in shown) == ["commond", "speciald"]


def vary(world):
    world.apply(C, "variant-c.yaml")
    world.apply(S, "variant-s-kind.yaml")
    world.kubectl(S, "wait", "crd/crontabs.stable.example.com", "--for=condition=Established", "--timeout=30s")
    world.apply(S, "variant-s.yaml")


def expect_variant(world):
    for edge in world.edges:
        page = lambda: world.on_json(edge, "configmap", "httpd-htdocs", "-n", "commonstuff")["data"]["index.html"]  # noqa: E731
        wait_for(f"the page of {edge}", lambda: f"running in {edge}." in page())
        env = lambda: world.on_json(edge, "deployment", "commond", "-n", "commonstuff")["spec"]["template"]["spec"]["containers"][0].get("env")  # noqa: E731
        wait_for(f"the variable of {edge}", lambda: env() == [{"name": "EXAMPLE_VAR", "value": "env is prod"}])
    wait_for("the custom resource", lambda: "my-new-cron-object" in world.on("guilder", "get", "crontabs", "-n", "specialstuff", code=None))
    assert world.on_json("guilder", "crontab", "my-new-cron-object", "-n", "specialstuff")["spec"]["image"] == "my-awesome-cron-image"
    assert "crontabs" not in world.on("florin", "get", "crds")


def report(world):
    """What whoever runs Pods would say."""
    for edge, ns, name in (("florin", "commonstuff", "commond"), ("guilder", "commonstuff", "commond"), ("guilder", "specialstuff", "speciald")):
        world.on(edge, "-n", ns, "patch", "deployment", name, "--subresource=status", "--type=merge", "-p",
                 '{"status":{"replicas":1,"readyReplicas":1}}')


def expect_reports(world):
    of = lambda workspace, ns, name: world.get(workspace, "deployment", name, "-n", ns)  # noqa: E731
    wait_for("the status in the source", lambda: of(S, "specialstuff", "speciald").get("status", {}).get("readyReplicas") == 1)
    wait_for("the count of commond", lambda: of(C, "commonstuff", "commond")["metadata"].get("annotations", {}).get(COUNT) == "2")
    wait_for("the count of speciald", lambda: of(S, "specialstuff", "speciald")["metadata"].get("annotations", {}).get(COUNT) == "1")
    # Workloads show one status of all their edges by default: docs/reference/status.md.
    wait_for("one status of both edges", lambda: of(C, "commonstuff", "commond").get("status", {}).get("readyReplicas") == 1)
    for edge in world.edges:
        shown = lambda: world.get(world.mailbox(edge), "deployment", "commond", "-n", "commonstuff").get("status", {})  # noqa: E731
        wait_for(f"the mailbox of {edge}", lambda: shown().get("readyReplicas") == 1)


STEPS = [
    (declare, [expect_slices, expect_syncer_configs, expect_workloads]),
    (vary, [expect_variant]),
    (report, [expect_reports]),
]


@contextlib.contextmanager
def world_in(base):
    world = World(base)
    try:
        make_inventory(world)
        expect_mailboxes(world)
        join_edges(world)
        yield world
        for process in (world.center, *world.edges.values()):
            assert "panicked" not in process.log_path.read_text(errors="replace")
    finally:
        world.stop()


def test_each_expectation(tmp_path):
    with world_in(tmp_path) as world:
        for step, expectations in STEPS:
            step(world)
            for expect in expectations:
                expect(world)


def held(world, edge):
    """What is on an edge, apart from what each server says for itself."""
    found = {}
    for kind in ("namespaces", "configmaps", "deployments", "customresourcedefinitions"):
        for o in world.on_json(edge, kind, "-A")["items"]:
            if o["metadata"].get("labels", {}).get("edge.kcp.io/projected") == "yes":
                m = o["metadata"]
                found[f"{kind}/{m.get('namespace', '')}/{m['name']}"] = {
                    "labels": m.get("labels"), "spec": o.get("spec"), "data": o.get("data")}
    return found


@pytest.mark.timeout(240)
def test_with_an_edge_cut_off_during_every_step(tmp_path):
    with world_in(tmp_path) as world:
        for (step, expectations), cut in zip(STEPS, ("guilder", "florin", "guilder")):
            before = held(world, cut)
            world.edges[cut].cut()
            step(world)
            if step is declare:
                expect_slices(world)
            assert held(world, cut) == before, "nothing changes on an edge that is cut off"
            world.edges[cut].heal()
            for expect in expectations:
                expect(world)
        # Both came to the same as an edge that was never cut off.
        common = {edge: {k: v for k, v in held(world, edge).items() if "commonstuff" in k} for edge in world.edges}
        assert json.dumps(common["florin"]).replace("florin", "guilder") == json.dumps(common["guilder"])
