"""What users ran into when they took things away: one test for each finding. The edges are in an inventory of their own and run Pods; the
placements are in the workspace root:bakery."""
import json
import os
import re
import shutil

import pytest
from center import Tools, binary, wait_for
from edge import SYNCTARGETS, Edge, make_workspace, selvedge
from placed import MERGE, condition
from test_placement import LOCATIONS, location

DEPOT, BAKERY = "root:depot", "root:bakery"
TARGETS = f"/clusters/{DEPOT}{SYNCTARGETS}"
PLACEMENTS = f"/clusters/{BAKERY}/apis/edge.kcp.io/v1alpha1/edgeplacements"
SPACES = f"/clusters/{BAKERY}/api/v1/namespaces"
KIND = {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement"}
# How often a Namespace is deleted to see that all of it is held: the long form is for when somebody doubts it.
RUNS = int(os.environ.get("TAKING_RUNS", "4"))


class Depot(Edge):
    """An edge whose SyncTarget is in root:depot."""

    def join_token(self, *args):
        return super().join_token("--workspace", DEPOT, *args)

    def target(self):
        return self.center.api("GET", f"{TARGETS}/{self.name}")

    def held(self):
        return self.condition("DeletionHeld") or {}

    def is_held(self):
        return self.held().get("status") == "True"

    def has(self, path):
        return self.request("GET", path)[0] == 200


class World:
    def __init__(self, base):
        from center import Center
        self.base, self.center = base, Center(base / "center")
        self.edges = []

    def start(self):
        self.center.start()
        make_workspace(self.center, DEPOT, "inventory")
        make_workspace(self.center, BAKERY, "workload")
        for name in ("florin", "guilder"):
            edge = Depot(self.center, self.base / name, name, args=("--runtime", "process"))
            self.edges.append(edge)
            edge.start()
            self.center.api("POST", f"/clusters/{DEPOT}{LOCATIONS}", location(name, site=name, all="yes"), expect=(201,))
        for edge in self.edges:
            edge.wait_connected()
            self.center.api("PATCH", f"{TARGETS}/{edge.name}", {"metadata": {"labels": {"id": edge.name}}}, content_type=MERGE)
        config = self.base / "bakery.kubeconfig"
        config.write_text(selvedge("kubeconfig", "--data-dir", self.center.data_dir, "--workspace", BAKERY))
        # For the shell, `selvedge` is the program that is tested, and the kubeconfig is the administrator's, which points to root.
        tools = self.base / "bin"
        tools.mkdir()
        (tools / "selvedge").symlink_to(binary())
        self.admin = Tools(self.center, self.base / "home")
        self.admin.env["PATH"] = f"{tools}:{self.admin.env['PATH']}"
        self.owner = Tools(self.center, self.base / "owner")
        self.owner.env["KUBECONFIG"] = str(config)
        return self

    def stop(self):
        for process in (*self.edges, self.center):
            process.kill()
        for edge in self.edges:
            edge.end_containers()
            edge.forget_memory()

    def paste(self, command, code=0):
        """A printed command, in a shell, as it is."""
        return self.admin.run(["bash", "-c", command], code=code).stdout

    def namespace(self, name, maps=6, deployment=False, **annotations):
        """A Namespace with some ConfigMaps, labelled as a whole to be placed by place(name)."""
        self.center.api("POST", SPACES, {"metadata": {"name": name, "labels": {"of": name}, "annotations": annotations}}, expect=(201,))
        for n in range(maps):
            self.center.api("POST", f"{SPACES}/{name}/configmaps", {"metadata": {"name": f"m{n}"}}, expect=(201,))
        if deployment:
            labels = {"app": "web"}
            container = {"name": "web", "image": "selvedge.dev/sample/web"}
            self.center.api("POST", f"/clusters/{BAKERY}/apis/apps/v1/namespaces/{name}/deployments", {
                "metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": labels}, "template": {
                    "metadata": {"labels": labels}, "spec": {"containers": [container]}}}}, expect=(201,))

    def place(self, name, at="florin", **spec):
        where = {"all": "yes"} if at == "all" else {"site": at}
        self.center.api("POST", PLACEMENTS, {
            **KIND, "metadata": {"name": name}, "spec": {"locationSelectors": [{"matchLabels": where}], **spec,
                                                 "namespaceSelector": {"matchLabels": {"of": name}}}}, expect=(201,))

    def change(self, name, **spec):
        self.center.api("PATCH", f"{PLACEMENTS}/{name}", {"spec": spec}, content_type=MERGE)

    def events(self, name):
        listed = self.center.api("GET", f"{SPACES}/default/events")["items"]
        return {e["reason"]: e["message"] for e in listed if e["involvedObject"].get("name") == name}

    def live(self, edge):
        """What the center knows of an edge at this moment."""
        known = self.center.api("GET", f"/clusters/{DEPOT}/fleet")["edges"]
        return next((one for one in known if one["name"] == edge), {})

    def clear(self, name, *edges):
        """Ends what a test placed, wherever it is."""
        self.center.request("PATCH", f"{PLACEMENTS}/{name}", {"spec": {"removal": "Allow"}}, content_type=MERGE)
        self.center.request("DELETE", f"{PLACEMENTS}/{name}")
        self.center.request("DELETE", f"{SPACES}/{name}")
        for edge in edges or self.edges:
            wait_for(f"{name} to go from {edge.name}", lambda e=edge: not e.has(f"/api/v1/namespaces/{name}"), 30)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("taking"))
    try:
        yield world.start()
    finally:
        world.stop()


def whole(edge, name, maps):
    """What is missing of a namespace on an edge."""
    missing = [f"m{n}" for n in range(maps) if not edge.has(f"/api/v1/namespaces/{name}/configmaps/m{n}")]
    space = edge.api("GET", f"/api/v1/namespaces/{name}")
    return missing + (["the namespace is ending"] if "deletionTimestamp" in space["metadata"] else [])


def test_a_namespace_is_held_as_a_whole_in_every_run(world):
    """Its objects were deleted one by one at the center, and the first ones were gone on the edge before the fuse held the rest."""
    florin, _ = world.edges
    for run in range(RUNS):
        name, maps = f"run-{run}", 7
        world.namespace(name, maps)
        world.place(name)
        wait_for("all of it", lambda: florin.has(f"/api/v1/namespaces/{name}/configmaps/m{maps - 1}"))
        wait_for("quiet", lambda: not florin.is_held())
        world.center.api("DELETE", f"{SPACES}/{name}")
        wait_for("the fuse", florin.is_held)
        wait_for("the center to be done", lambda: world.center.request("GET", f"{SPACES}/{name}")[0] == 404, 20)
        assert whole(florin, name, maps) == []
        message = florin.held()["message"]
        # The namespace and seven ConfigMaps, of these and the edge's SyncerConfig.
        assert message.startswith(f"{maps + 1} of {maps + 2} objects would be deleted at the edge "), message
        assert f"({maps + 1} of the placement {BAKERY}:{name})" in message, message
        said = wait_for("the owner to be told", lambda: condition(
            world.center.api("GET", f"{PLACEMENTS}/{name}").get("status", {}), "RemovalHeld"))
        assert said["status"] == "True" and f"{DEPOT}:florin" in said["message"], said
        # What the message says can be pasted as it is, with the administrator's kubeconfig.
        command = message.rsplit("If it is meant: ", 1)[1]
        assert command == f"selvedge edge confirm {DEPOT}:florin --objects={maps + 1}", command
        assert "confirmed and done" in world.paste(command)
        wait_for("it to go", lambda: not florin.has(f"/api/v1/namespaces/{name}"))
        # Of the placement only the edge's SyncerConfig is left, and nobody is asked for that.
        world.center.api("DELETE", f"{PLACEMENTS}/{name}")
    wait_for("all to be well", lambda: not florin.is_held())


def test_pods_go_on_while_their_namespace_is_held(world):
    florin, _ = world.edges
    pods = "/api/v1/namespaces/ovens/pods"

    def ready():
        found = florin.api("GET", pods)["items"]
        return found and condition(found[0].get("status", {}), "Ready").get("status") == "True" and found[0]["metadata"]["uid"]

    world.namespace("ovens", 6, deployment=True)
    world.place("ovens")
    wait_for("the namespace", lambda: florin.has("/api/v1/namespaces/ovens"))
    before = wait_for("the Pod", ready, 30)
    world.center.api("DELETE", f"{SPACES}/ovens")
    wait_for("the fuse", florin.is_held)
    # A namespace of the edge's own that is deleted now is gone after one that was deleted before it would be.
    florin.api("POST", "/api/v1/namespaces", {"metadata": {"name": "fence"}}, expect=(201,))
    florin.api("DELETE", "/api/v1/namespaces/fence")
    wait_for("the fence", lambda: not florin.has("/api/v1/namespaces/fence"), 30)
    assert whole(florin, "ovens", 6) == [] and ready() == before, "it goes on running"
    assert len(florin.api("GET", pods)["items"]) == 1
    start = len(florin.log_path.read_text(errors="replace"))
    world.paste(florin.held()["message"].rsplit("If it is meant: ", 1)[1])
    wait_for("it to go", lambda: not florin.has("/api/v1/namespaces/ovens"), 30)
    log = florin.log_path.read_text(errors="replace")[start:]
    warned = [line for line in log.splitlines() if " WARN " in line and "workloads" in line]
    assert warned == [], "controllers do not complain of ordinary races"
    world.center.api("DELETE", f"{PLACEMENTS}/ovens")


def test_an_owner_states_the_intent(world):
    """Deleting or moving a placement waited for the inventory's owner, edge by edge."""
    florin, guilder = world.edges
    assert "Allow" in world.owner.kubectl("explain", "edgeplacement.spec.removal")
    refused = world.center.request("POST", PLACEMENTS, {**KIND, "metadata": {"name": "odd"}, "spec": {"removal": "Perhaps"}})
    assert refused[0] == 422 and "spec.removal" in str(refused)
    world.namespace("moved")
    world.place("moved", removal="Allow")
    wait_for("it", lambda: florin.has("/api/v1/namespaces/moved/configmaps/m5"))
    world.change("moved", locationSelectors=[{"matchLabels": {"site": "guilder"}}])
    wait_for("it to move", lambda: guilder.has("/api/v1/namespaces/moved/configmaps/m5") and not florin.has("/api/v1/namespaces/moved"))
    assert not florin.is_held()
    # An edge that is away, and a center that starts again meanwhile: the intent is not forgotten.
    guilder.kill()
    world.owner.kubectl("delete", "edgeplacement", "moved", "--timeout=10s")
    records = "/clusters/root:espw/api/v1/namespaces/default/configmaps"
    left = lambda: [c["metadata"]["name"] for c in world.center.api("GET", records)["items"]
                    if "removal-of-" in c["metadata"]["name"]]
    wait_for("the record of the intent", left)
    world.center.stop()
    world.center.start()
    guilder.start()
    wait_for("it to go", lambda: not guilder.has("/api/v1/namespaces/moved"), 30)
    assert not guilder.is_held()
    florin.wait_connected()
    wait_for("the record to go", lambda: not left())
    world.center.api("DELETE", f"{SPACES}/moved")


@pytest.mark.parametrize("meanwhile", ["nothing", "edge", "center"])
def test_an_owner_states_the_intent_when_a_namespace_is_gone(world, meanwhile):
    """With the placement still there, `removal: Allow` changed nothing, and after a reconnect nobody knew whose objects were held."""
    florin, _ = world.edges
    name = f"regret-{meanwhile}"
    world.namespace(name, 13)
    world.place(name)
    wait_for("all of it", lambda: florin.has(f"/api/v1/namespaces/{name}/configmaps/m12"))
    world.center.api("DELETE", f"{SPACES}/{name}")
    wait_for("the fuse", lambda: florin.is_held() and f"14 of the placement {BAKERY}:{name}" in florin.held()["message"])
    wait_for("the center to be done", lambda: world.center.request("GET", f"{SPACES}/{name}")[0] == 404, 20)
    records = "/clusters/root:espw/api/v1/namespaces/default/configmaps"

    def record():
        of_it = [c["data"] for c in world.center.api("GET", records)["items"] if c["metadata"]["name"].startswith("removal-of-")]
        return [json.loads(data["objects"]) for data in of_it if data["placement"] == name]

    if meanwhile != "nothing":
        wait_for("the record", lambda: [len(objects) for objects in record()] == [14])
    if meanwhile == "edge":
        florin.kill()
        florin.start()
    elif meanwhile == "center":
        world.center.stop()
        world.center.start()
    wait_for("the edge to hold it", lambda: f"{BAKERY}:{name}" in str(world.live("florin").get("heldPlacements")), 40)
    assert whole(florin, name, 13) == []
    assert "allows removals" in world.paste(f"selvedge edge confirm --owner --placement {BAKERY}:{name}")
    wait_for("it to go", lambda: not florin.has(f"/api/v1/namespaces/{name}"))
    wait_for("all to be well", lambda: not florin.is_held() and not record())
    world.center.api("DELETE", f"{PLACEMENTS}/{name}")


def test_what_is_intended_goes_from_edges_that_were_away(world):
    """Docs said so of Namespaces and objects too, but only deleted or moved placements were remembered."""
    florin, _ = world.edges
    world.namespace("absent", 13)
    world.place("absent", removal="Allow")
    wait_for("all of it", lambda: florin.has("/api/v1/namespaces/absent/configmaps/m12"))
    florin.kill()
    florin.wait_offline()
    world.center.api("DELETE", f"{SPACES}/absent")
    wait_for("the center to be done", lambda: world.center.request("GET", f"{SPACES}/absent")[0] == 404, 20)
    florin.start()
    wait_for("it to go", lambda: not florin.has("/api/v1/namespaces/absent"))
    wait_for("the edge", lambda: world.live("florin")["inSync"])
    assert not florin.is_held()
    world.center.api("DELETE", f"{PLACEMENTS}/absent")


def test_status_and_condition_count_alike_when_an_edge_is_evicted(world):
    """`HOLDS 9 objects` beside `9 of 10 objects`: what describes the edge is deleted last, and was not counted."""
    florin, _ = world.edges
    world.namespace("evicted", 8)
    world.place("evicted")
    wait_for("all of it", lambda: florin.has("/api/v1/namespaces/evicted/configmaps/m7"))
    path = f"{TARGETS}/florin"
    world.center.api("PATCH", path, {"spec": {"evictAfter": "2020-01-01T00:00:00Z"}}, content_type=MERGE)
    message = wait_for("the fuse", lambda: florin.is_held() and florin.held()["message"])
    assert message.startswith("9 of 10 objects would be deleted"), message
    said = world.paste("selvedge status")
    row = next(line for line in said.splitlines() if line.startswith("florin "))
    assert "9 deletions held" in row and row.endswith(" 10 objects"), said
    world.center.api("PATCH", path, {"spec": {"evictAfter": None}}, content_type=MERGE)
    wait_for("all to be well", lambda: not florin.is_held())
    world.clear("evicted", florin)


def test_the_command_for_trust_can_be_pasted_and_adds_to_the_list(world):
    """It replaced the list: all others that the Location trusted lost what they had placed."""
    florin, _ = world.edges
    at, of = f"/clusters/{DEPOT}{LOCATIONS}/florin", {"matchLabels": {"of": "rush"}}
    world.center.api("PATCH", at, {"spec": {"trustedWorkspaces": ["root:other"]}}, content_type=MERGE)
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    world.center.api("POST", f"/clusters/{BAKERY}{classes}", {"metadata": {"name": "rush", "labels": {"of": "rush"}}, "value": 10},
                     expect=(201,))
    world.place("rush", removal="Allow", nonNamespacedObjects=[
        {"apiGroup": "scheduling.k8s.io", "resources": ["priorityclasses"], "labelSelectors": [of]}])
    said = wait_for("the conflict", lambda: condition(world.center.api("GET", f"{PLACEMENTS}/rush").get("status", {}), "Conflict"))
    assert (said["status"], said["reason"]) == ("True", "NotTrusted"), said
    world.paste(said["message"].split("Its owner can allow it: ", 1)[1])
    world.paste("selvedge ws root")
    wait_for("it", lambda: florin.has(f"{classes}/rush"))
    assert world.center.api("GET", at)["spec"]["trustedWorkspaces"] == ["root:other", BAKERY]
    world.center.api("DELETE", f"{PLACEMENTS}/rush")
    wait_for("it to go", lambda: not florin.has(f"{classes}/rush"))
    world.center.api("PATCH", at, {"spec": {"trustedWorkspaces": None}}, content_type=MERGE)


def test_what_nobody_intended_is_held(world):
    """A label typo on a Location is not the placement's owner's doing, whatever that owner allows."""
    florin, _ = world.edges
    world.namespace("typo")
    world.place("typo", removal="Allow")
    wait_for("it", lambda: florin.has("/api/v1/namespaces/typo/configmaps/m5"))
    at = f"/clusters/{DEPOT}{LOCATIONS}/florin"
    world.center.api("PATCH", at, {"metadata": {"labels": {"site": "flroin"}}}, content_type=MERGE)
    wait_for("the fuse", florin.is_held)
    assert whole(florin, "typo", 6) == []
    said = wait_for("the owner to be told", lambda: condition(
        world.center.api("GET", f"{PLACEMENTS}/typo").get("status", {}), "RemovalHeld").get("message"))
    assert "Locations or SyncTargets were changed" in said, said
    world.center.api("PATCH", at, {"metadata": {"labels": {"site": "florin"}}}, content_type=MERGE)
    wait_for("all to be well", lambda: not florin.is_held())
    assert whole(florin, "typo", 6) == []
    world.clear("typo", florin)


def test_a_workspace_that_goes_is_held_as_a_whole(world):
    florin, _ = world.edges
    workspaces, popup = "/apis/tenancy.kcp.io/v1alpha1/workspaces", "root:popup"
    make_workspace(world.center, popup, "workload")
    spaces = f"/clusters/{popup}/api/v1/namespaces"
    for name in ("one", "two"):
        world.center.api("POST", spaces, {"metadata": {"name": name, "labels": {"of": "popup"}}}, expect=(201,))
        for n in range(4):
            world.center.api("POST", f"{spaces}/{name}/configmaps", {"metadata": {"name": f"m{n}"}}, expect=(201,))
    world.center.api("POST", PLACEMENTS.replace(BAKERY, popup), {
        **KIND, "metadata": {"name": "popup"}, "spec": {"locationSelectors": [{"matchLabels": {"site": "florin"}}],
                                                        "namespaceSelector": {"matchLabels": {"of": "popup"}}}}, expect=(201,))
    wait_for("all of it", lambda: florin.has("/api/v1/namespaces/one/configmaps/m3") and florin.has("/api/v1/namespaces/two/configmaps/m3"))
    world.center.api("DELETE", f"{workspaces}/popup")
    wait_for("the fuse", florin.is_held)
    wait_for("the workspace to go", lambda: world.center.request("GET", f"{workspaces}/popup")[0] == 404, 30)
    assert whole(florin, "one", 4) == [] and whole(florin, "two", 4) == []
    world.paste(f"selvedge edge confirm --all --placement {popup}:popup")
    wait_for("it to go", lambda: not florin.has("/api/v1/namespaces/one") and not florin.has("/api/v1/namespaces/two"))


def test_an_owner_sees_what_is_held_and_confirms_afterwards(world):
    florin, guilder = world.edges
    world.namespace("gone")
    world.place("gone", "all")
    for edge in world.edges:
        wait_for("it", lambda e=edge: e.has("/api/v1/namespaces/gone/configmaps/m5"))
    world.owner.kubectl("delete", "edgeplacement", "gone", "--timeout=10s")
    wait_for("both", lambda: florin.is_held() and guilder.is_held())
    said = wait_for("the Event", lambda: world.events("gone").get("RemovalHeld", "").startswith("14 objects") and world.events("gone")["RemovalHeld"])
    assert "stay on 2 edges" in said and f"{DEPOT}:florin" in said, said
    command = re.search(r"runs: (selvedge edge confirm --owner --placement \S+)", said)[1]
    assert command.endswith(f" {BAKERY}:gone")
    # The owner needs no rights on the edges: this kubeconfig is a ServiceAccount's of root:bakery alone.
    world.owner.kubectl("-n", "default", "create", "serviceaccount", "owner")
    world.owner.kubectl("create", "clusterrolebinding", "owner", "--clusterrole=cluster-admin", "--serviceaccount=default:owner")
    token = world.owner.kubectl("-n", "default", "create", "token", "owner").strip()
    config = world.base / "token.kubeconfig"
    shutil.copy(world.owner.env["KUBECONFIG"], config)
    for args in (("config", "set-credentials", "owner", f"--token={token}"), ("config", "set-context", "--current", "--user=owner")):
        world.owner.kubectl("--kubeconfig", config, *args)
    assert world.admin.run(["bash", "-c", command.replace("--owner", "--all")], code=None, env={"KUBECONFIG": str(config)}).returncode != 0
    world.admin.run(["bash", "-c", command], env={"KUBECONFIG": str(config)})
    for edge in world.edges:
        wait_for(f"it to go from {edge.name}", lambda e=edge: not e.has("/api/v1/namespaces/gone"))
    wait_for("the end to be told", lambda: "RemovalDone" in world.events("gone"))
    assert world.center.request("GET", f"{PLACEMENTS}/gone")[0] == 404
    world.center.api("DELETE", f"{SPACES}/gone")


def test_an_operator_confirms_for_many_edges_at_once(world):
    florin, guilder = world.edges
    for name, at, maps in (("many", "all", 9), ("other", "florin", 3)):
        world.namespace(name, maps)
        world.place(name, at)
        wait_for(name, lambda n=name, m=maps: florin.has(f"/api/v1/namespaces/{n}/configmaps/m{m - 1}"))
    wait_for("many", lambda: guilder.has("/api/v1/namespaces/many/configmaps/m8"))
    held = lambda e, n: wait_for(f"{n} on {e.name}", lambda: e.is_held() and e.held()["message"].startswith(f"{n} of "))  # noqa: E731
    world.center.api("DELETE", f"{PLACEMENTS}/many")
    held(florin, 10)
    held(guilder, 10)
    world.center.api("DELETE", f"{PLACEMENTS}/other")
    held(florin, 14)
    # Not if there is more than somebody has seen.
    assert "more than 3" in world.paste(f"selvedge edge confirm --all --placement {BAKERY}:many --objects 3", code=1)
    assert whole(florin, "many", 9) == [] and whole(guilder, "many", 9) == []
    said = world.paste(f"selvedge edge confirm --all --placement {BAKERY}:many")
    for line in (f"{DEPOT}:florin: the deletion of 10 objects of {BAKERY}:many is confirmed", f"{DEPOT}:guilder: done", "(2 of 2)",
                 "20 objects on 2 edges confirmed and done."):
        assert line in said, said
    wait_for("it to go", lambda: not florin.has("/api/v1/namespaces/many") and not guilder.has("/api/v1/namespaces/many"))
    assert whole(florin, "other", 3) == [], "another placement's is still held"
    assert florin.is_held()
    assert "which edges?" in world.admin.run(["bash", "-c", "selvedge edge confirm"], code=1).stderr
    assert "done" in world.paste(f"selvedge edge confirm --edge florin --placement {BAKERY}:other")
    wait_for("the other to go", lambda: not florin.has("/api/v1/namespaces/other"))
    assert "nothing is held back" in world.paste("selvedge edge confirm florin")
    for name in ("many", "other"):
        world.center.api("DELETE", f"{SPACES}/{name}")


def test_a_namespace_of_the_edge_only_has_to_exist(world):
    """Bug 6: it made a placement Failing for ever."""
    florin, _ = world.edges
    florin.api("POST", "/api/v1/namespaces", {"metadata": {"name": "pre", "labels": {"mine": "yes"}}}, expect=(201,))
    world.namespace("pre", maps=0)
    world.place("pre")
    status = lambda: world.center.api("GET", f"{PLACEMENTS}/pre").get("status", {})  # noqa: E731
    wait_for("the placement to be well", lambda: status().get("inSync") == 1 and status().get("failing") == 0)
    # Whoever is not trusted with the edge gets nothing into it; whoever is, does.
    world.center.api("POST", f"{SPACES}/pre/configmaps", {"metadata": {"name": "in"}}, expect=(201,))
    wait_for("the refusal", lambda: "belongs to it" in condition(status(), "Refused").get("message", ""))
    at = f"/clusters/{DEPOT}{LOCATIONS}/florin"
    world.center.api("PATCH", at, {"spec": {"trustedWorkspaces": [BAKERY]}}, content_type=MERGE)
    wait_for("the object", lambda: florin.has("/api/v1/namespaces/pre/configmaps/in"), 40)
    wait_for("the placement to be well", lambda: status().get("inSync") == 1 and status().get("failing") == 0)
    world.center.api("PATCH", f"{PLACEMENTS}/pre", {"spec": {"removal": "Allow"}}, content_type=MERGE)
    world.center.api("DELETE", f"{PLACEMENTS}/pre")
    wait_for("it to go", lambda: not florin.has("/api/v1/namespaces/pre/configmaps/in"))
    assert florin.api("GET", "/api/v1/namespaces/pre")["metadata"]["labels"]["mine"] == "yes", "the namespace is the edge's"
    world.center.api("PATCH", at, {"spec": {"trustedWorkspaces": None}}, content_type=MERGE)
    florin.api("DELETE", "/api/v1/namespaces/pre")
    world.center.api("DELETE", f"{SPACES}/pre")


def test_what_the_edge_made_in_a_placed_namespace_stays(world):
    """Bug 8: it went with the namespace, and the fuse did not count it."""
    florin, _ = world.edges
    world.namespace("mixed", deployment=True)
    world.place("mixed", removal="Allow")
    pods = "/api/v1/namespaces/mixed/pods"
    wait_for("the Pod", lambda: florin.has("/api/v1/namespaces/mixed") and florin.api("GET", pods)["items"], 30)
    for n in range(3):
        florin.api("POST", "/api/v1/namespaces/mixed/configmaps", {"metadata": {"name": f"local-{n}"}}, expect=(201,))
    world.center.api("DELETE", f"{PLACEMENTS}/mixed")
    wait_for("the center's to go", lambda: not florin.has("/api/v1/namespaces/mixed/configmaps/m0") and not florin.api("GET", pods)["items"], 30)
    space = florin.api("GET", "/api/v1/namespaces/mixed")["metadata"]
    assert "deletionTimestamp" not in space and space["annotations"]["edge.selvedge.dev/left-by"] == BAKERY
    assert all(florin.has(f"/api/v1/namespaces/mixed/configmaps/local-{n}") for n in range(3))
    told = wait_for("the Event", lambda: [e["message"] for e in florin.api("GET", "/api/v1/namespaces/mixed/events")["items"]
                                          if e["reason"] == "NamespaceKept"])
    assert "3 objects of their own in it (configmaps/local-0, " in told[0], told
    # It can be placed again, and goes once nothing of the edge's own is in it.
    world.place("mixed", removal="Allow")
    wait_for("it again", lambda: florin.has("/api/v1/namespaces/mixed/configmaps/m0"))
    for n in range(3):
        florin.api("DELETE", f"/api/v1/namespaces/mixed/configmaps/local-{n}")
    world.clear("mixed", florin)


def test_objects_can_be_left_out(world, tmp_path):
    """Helm's release Secrets went to the edges too, and nothing of a selected namespace could be left out."""
    florin, _ = world.edges
    world.namespace("kiosks", maps=1)
    world.place("kiosks", removal="Allow")
    chart = tmp_path / "kiosk"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: kiosk\nversion: 0.1.0\n")
    (chart / "templates" / "all.yaml").write_text("""
apiVersion: v1
kind: ConfigMap
metadata: {name: menu}
---
apiVersion: v1
kind: Secret
metadata: {name: till}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: notes, annotations: {edge.selvedge.dev/only: center}}
""")
    helm = lambda *args, **kw: world.owner.helm(*args, "-n", "kiosks", **kw)  # noqa: E731
    helm("install", "kiosk", chart)
    helm("install", "second", chart.with_name("kiosk"), "--set", "x=1", code=None, env={"HELM_DRIVER": "configmap"})
    at = "/api/v1/namespaces/kiosks"
    wait_for("what travels", lambda: florin.has(f"{at}/configmaps/menu") and florin.has(f"{at}/secrets/till"))
    names = lambda kind: {o["metadata"]["name"] for o in florin.api("GET", f"{at}/{kind}")["items"]}  # noqa: E731
    world.center.api("POST", f"{SPACES}/kiosks/configmaps", {"metadata": {"name": "fence"}}, expect=(201,))
    wait_for("the fence", lambda: florin.has(f"{at}/configmaps/fence"))
    assert names("secrets") == {"till"}
    assert names("configmaps") == {"menu", "m0", "fence", "kube-root-ca.crt"}
    # Said later, it goes from the edge; taken back, it comes again.
    menu = f"{SPACES}/kiosks/configmaps/menu"
    world.center.api("PATCH", menu, {"metadata": {"annotations": {"edge.selvedge.dev/only": "center"}}}, content_type=MERGE)
    wait_for("it to go", lambda: "menu" not in names("configmaps"))
    world.center.api("PATCH", menu, {"metadata": {"annotations": {"edge.selvedge.dev/only": None}}}, content_type=MERGE)
    wait_for("it to come", lambda: "menu" in names("configmaps"))
    assert "kiosk" in helm("list")
    helm("uninstall", "kiosk")
    wait_for("it to go", lambda: names("configmaps") == {"m0", "fence", "kube-root-ca.crt"})
    world.clear("kiosks", florin)


def test_numbers_of_the_fuse_are_true(world):
    """Bug 5: `1 of 28 objects would be deleted` on an edge with 8, because what was confirmed counted."""
    florin, _ = world.edges
    world.namespace("stays", 7)
    world.namespace("goes", 20)
    for name in ("stays", "goes"):
        world.place(name)
    wait_for("all", lambda: florin.has("/api/v1/namespaces/goes/configmaps/m9") and florin.has("/api/v1/namespaces/stays/configmaps/m6"))
    world.center.api("DELETE", f"{PLACEMENTS}/goes")
    wait_for("the fuse", florin.is_held)
    message = florin.held()["message"]
    assert message.startswith("21 of 30 objects would be deleted at the edge (21 of the placement root:bakery:goes)"), message
    world.paste(message.rsplit("If it is meant: ", 1)[1])
    wait_for("it to go", lambda: not florin.has("/api/v1/namespaces/goes"))
    world.center.api("DELETE", f"{SPACES}/stays/configmaps/m0")
    wait_for("one more to go", lambda: not florin.has("/api/v1/namespaces/stays/configmaps/m0"), 5)
    assert not florin.is_held()
    world.clear("stays", florin)
    world.center.api("DELETE", f"{SPACES}/goes")


def test_commands_that_are_printed_can_be_pasted(world):
    """UX 2: they lacked the workspace. Here: joining after a revocation, and adopting after a restored backup."""
    florin, guilder = world.edges
    said = world.paste("selvedge edge revoke guilder")
    command = said.rsplit("join again: ", 1)[1].strip()
    assert command == f"selvedge join-token create --workspace {DEPOT} --name guilder"
    token = world.paste(command).strip()
    guilder.kill()
    guilder.joined = False
    guilder.start(token=token)
    guilder.wait_connected()
    # A center from a backup: florin has seen more than it knows.
    world.center.stop()
    backup = world.base / "backup"
    shutil.copytree(world.center.data_dir, backup)
    world.center.start()
    for edge in world.edges:
        edge.wait_connected()
    world.namespace("later", 1)
    world.place("later", "all")
    for edge in world.edges:
        wait_for("it", lambda e=edge: e.has("/api/v1/namespaces/later/configmaps/m0"))
    world.center.stop()
    shutil.rmtree(world.center.data_dir)
    shutil.copytree(backup, world.center.data_dir)
    world.center.start()
    message = wait_for("the rollback", lambda: (florin.condition("RolledBack") or {}).get("status") == "True"
                       and florin.condition("RolledBack")["message"], 70)
    command = message.rsplit("To make it follow this center: ", 1)[1]
    assert command == f"selvedge edge adopt {DEPOT}:florin"
    assert "follows this center from now on" in world.paste(command)
    wait_for("it to be well", lambda: (florin.condition("Ready") or {}).get("status") == "True")
    assert "already" in world.paste(command)
