"""What goes wrong around placements, and what they say of it: conflicts, refusals, selectors that match nothing, Locations that are relabelled,
edges that were away for very long. Whoever watches an edge sees each change once, and nothing of what was not to be."""
import collections
import contextlib
import http.client
import json
import re
import socket
import threading
import urllib.request

import pytest
from center import Center, Etcd, wait_for
from edge import CONFIRM, LINK, SYNCTARGETS, Edge, annotate, make_workspace
from placed import DEPLOYMENTS, LOCATIONS, MAPS, MERGE, PLACEMENTS, condition, counts, deployment, placed, placement, status_of

C = "edge-placement-c"
RIVAL = "root:rival"


class Watch(threading.Thread):
    """Every event of a collection of an edge, from now on: (type, name) → how often, and what was seen of each object."""

    def __init__(self, edge, path):
        super().__init__(daemon=True)
        self.edge, self.path, self.over = edge, path, False
        self.version = edge.api("GET", path)["metadata"]["resourceVersion"]
        self.events = []
        self.connection = edge.connection(timeout=120)
        self.connection.request("GET", f"{path}?watch=true&resourceVersion={self.version}", headers={"Accept": "application/json"})
        self.reply = self.connection.getresponse()
        assert self.reply.status == 200
        self.start()

    def run(self):
        try:
            for line in self.reply:
                event = json.loads(line)
                self.events.append((event["type"], event["object"]))
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass

    def counted(self):
        return collections.Counter((kind, o["metadata"]["name"]) for kind, o in self.events)

    def of(self, name):
        return [(kind, o) for kind, o in self.events if o["metadata"]["name"] == name]

    def close(self):
        """Closing it would wait for the thread that reads."""
        with contextlib.suppress(OSError):
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.join(5)


def merge(server, path, patch):
    return server.api("PATCH", path, patch, content_type=MERGE)


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    with placed(tmp_path_factory.mktemp("faults")) as all_of_it:
        wait_for("both in sync", lambda: counts(all_of_it[0], C) == (2, 2, 0, 0, 0))
        yield all_of_it


def test_a_conflict_names_the_edge_and_who_was_first_stays(shop):
    center, florin, guilder = shop
    make_workspace(center, RIVAL, "workload")
    at = f"/clusters/{RIVAL}"
    center.api("POST", f"{at}/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                                   "metadata": {"name": "commonstuff", "labels": {"common": "si"}}})
    center.api("POST", f"{at}{MAPS}", config_map("httpd-htdocs", a="the rival's"))
    center.api("POST", f"{at}{MAPS}", config_map("other", a="the rival's"))
    center.api("POST", f"{at}{PLACEMENTS}", placement("late", {"env": "prod"}, {"common": "si"}))
    rivals = lambda: center.api("GET", f"{at}{PLACEMENTS}/late").get("status", {})  # noqa: E731
    said = wait_for("the conflict", lambda: (c := condition(rivals(), "Conflict")).get("status") == "True" and c)
    assert said["reason"] == "OlderPlacement"
    assert re.search("the namespace commonstuff belongs to another workspace on the edge (florin|guilder)", said["message"]), said
    assert C not in said["message"], "who else is there is not said"
    assert not condition(status_of(center, C), "Conflict"), "the older one has nothing to complain about"
    for edge in (florin, guilder):
        assert edge.request("GET", f"{MAPS}/other")[0] == 404, "nothing comes into a namespace of another workspace"
        assert edge.api("GET", f"{MAPS}/httpd-htdocs")["data"]["a"] != "the rival's"
    # Once the older one lets go of it, the other has its turn, and nothing is in conflict any more.
    merge(center, f"{PLACEMENTS}/{C}", {"spec": {"locationSelectors": [{"matchLabels": {"env": "prod", "extended": "si"}}]}})
    wait_for("the rival's turn", lambda: florin.api("GET", f"{MAPS}/httpd-htdocs")["data"]["a"] == "the rival's")
    assert condition(rivals(), "Conflict")["status"] == "True", "guilder still has both"
    assert florin.api("GET", f"{MAPS}/other")["data"]["a"] == "the rival's"
    merge(center, f"{at}/api/v1/namespaces/commonstuff", {"metadata": {"labels": {"common": "no"}}})
    wait_for("the end of it", lambda: condition(rivals(), "Conflict")["status"] == "False")
    center.api("DELETE", f"{at}{PLACEMENTS}/late")
    merge(center, f"{PLACEMENTS}/{C}", {"spec": {"locationSelectors": [{"matchLabels": {"env": "prod"}}]}})
    wait_for("all as before", lambda: counts(center, C) == (2, 2, 0, 0, 0))


def test_what_an_edge_refuses_is_named_and_the_rest_goes_on(shop):
    center, florin, guilder = shop
    florin.api("POST", MAPS, config_map("taken", whose="florin's"))
    center.api("POST", MAPS, config_map("taken", whose="the center's"))
    center.api("POST", MAPS, config_map("free", whose="the center's"))
    said = wait_for("the refusal", lambda: (c := condition(status_of(center, C), "Refused")).get("status") == "True" and c)
    assert said["reason"] == "RefusedByEdges"
    for named in ("core/configmaps/commonstuff/taken", "root:florin", "belongs to it"):
        assert named in said["message"], said
    wait_for("one failing", lambda: counts(center, C) == (2, 1, 0, 0, 1))
    [broken] = status_of(center, C)["broken"]
    assert (broken["object"], broken["namespace"], broken["name"]) == ("core/configmaps/commonstuff/taken", "commonstuff", "taken")
    assert condition(status_of(center, C), "Ready")["reason"] == "Failing"
    for edge in (florin, guilder):
        wait_for("the rest", lambda e=edge: e.api("GET", f"{MAPS}/free"))
    assert florin.api("GET", f"{MAPS}/taken")["data"]["whose"] == "florin's", "what is the edge's stays the edge's"
    florin.api("DELETE", f"{MAPS}/taken")
    # Tried again when it changes; by itself ever more rarely.
    merge(center, f"{MAPS}/taken", {"data": {"again": "yes"}})
    wait_for("it to be taken", lambda: florin.api("GET", f"{MAPS}/taken")["data"]["whose"] == "the center's", 30)
    wait_for("nothing to be wrong", lambda: counts(center, C) == (2, 2, 0, 0, 0) and condition(status_of(center, C), "Refused")["status"] == "False")
    for name in ("taken", "free"):
        center.api("DELETE", f"{MAPS}/{name}")
        for edge in (florin, guilder):
            wait_for("it to go", lambda e=edge, n=name: e.request("GET", f"{MAPS}/{n}")[0] == 404)


def test_a_placement_that_matches_nothing_trips_the_fuse(shop):
    center, florin, guilder = shop
    wait_for("quiet", lambda: counts(center, C) == (2, 2, 0, 0, 0))
    before = {edge.name: edge.api("GET", f"{MAPS}/httpd-htdocs")["metadata"]["uid"] for edge in (florin, guilder)}
    watches = [Watch(edge, MAPS) for edge in (florin, guilder)]
    merge(center, f"{PLACEMENTS}/{C}", {"spec": {"locationSelectors": [{"matchLabels": {"env": "prdo"}}]}})
    wait_for("the placement to say so", lambda: condition(status_of(center, C), "Ready").get("reason") == "NothingMatches")
    for edge in (florin, guilder):
        held = lambda e=edge: (e.condition("DeletionHeld") or {}).get("status") == "True"  # noqa: E731
        wait_for(f"the fuse of {edge.name}", held)
        assert edge.api("GET", f"{DEPLOYMENTS}/commond")["metadata"]["name"] == "commond"
    # A slip of the pen: put right, and nothing has happened.
    merge(center, f"{PLACEMENTS}/{C}", {"spec": {"locationSelectors": [{"matchLabels": {"env": "prod"}}]}})
    for edge in (florin, guilder):
        wait_for(f"{edge.name} to be well", lambda e=edge: (e.condition("DeletionHeld") or {}).get("status") == "False")
    wait_for("both in sync", lambda: counts(center, C) == (2, 2, 0, 0, 0))
    merge(center, f"{MAPS}/httpd-htdocs", {"data": {"a": "after the slip"}})
    for edge, watch in zip((florin, guilder), watches):
        wait_for("what is new", lambda w=watch: w.of("httpd-htdocs"))
        watch.close()
        assert watch.counted() == {("MODIFIED", "httpd-htdocs"): 1}, watch.counted()
        assert edge.api("GET", f"{MAPS}/httpd-htdocs")["metadata"]["uid"] == before[edge.name]
    # Meant: confirmed on one edge, it goes there, and only there.
    merge(center, f"{PLACEMENTS}/{C}", {"spec": {"locationSelectors": [{"matchLabels": {"env": "none"}}]}})
    held = wait_for("the fuse", lambda: (c := florin.condition("DeletionHeld")) and c["status"] == "True" and c)
    annotate(center, "florin", **{CONFIRM: held["message"].rsplit("=", 1)[1]})
    wait_for("florin to be empty", lambda: florin.request("GET", f"{DEPLOYMENTS}/commond")[0] == 404)
    assert guilder.request("GET", f"{DEPLOYMENTS}/commond")[0] == 200
    merge(center, f"{PLACEMENTS}/{C}", {"spec": {"locationSelectors": [{"matchLabels": {"env": "prod"}}]}})
    wait_for("both in sync", lambda: counts(center, C) == (2, 2, 0, 0, 0))


def test_a_relabelled_location_moves_its_workload_exactly_once(shop):
    center, florin, guilder = shop
    special, maps = (f"/{group}/namespaces/specialstuff/{kind}" for group, kind in (("apis/apps/v1", "deployments"), ("api/v1", "configmaps")))
    center.api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                              "metadata": {"name": "specialstuff", "labels": {"special": "si"}}})
    center.api("POST", special, deployment("speciald", 0))
    # So much stays that nobody has to confirm what goes, although other tests deleted something a moment ago.
    for n in range(24):
        center.api("POST", MAPS, config_map(f"ballast{n}"))
    names = [f"page{n}" for n in range(5)]
    for name in names:
        center.api("POST", maps, config_map(name, a="1"))
    center.api("POST", PLACEMENTS, placement("edge-placement-s", {"env": "prod", "extended": "si"}, {"special": "si"}))
    for edge in (florin, guilder):
        wait_for("the ballast", lambda e=edge: e.request("GET", f"{MAPS}/ballast23")[0] == 200)
    wait_for("guilder to have it", lambda: guilder.request("GET", f"{special}/speciald")[0] == 200 and
             all(guilder.request("GET", f"{maps}/{name}")[0] == 200 for name in names))
    # What was there before is no event; the edge makes one of them by itself, when it comes to it.
    wait_for("what stays", lambda: all(florin.request("GET", f"{MAPS}/{name}")[0] == 200 for name in ("httpd-htdocs", "kube-root-ca.crt")))
    came, went = [Watch(florin, p) for p in (special, maps)], [Watch(guilder, p) for p in (special, maps)]
    common = Watch(florin, MAPS)
    merge(center, f"{LOCATIONS}/florin", {"metadata": {"labels": {"extended": "si"}}})
    merge(center, f"{LOCATIONS}/guilder", {"metadata": {"labels": {"extended": None}}})
    wait_for("florin to have it", lambda: all(w.events for w in came))
    wait_for("guilder to be without", lambda: guilder.request("GET", f"{special}/speciald")[0] == 404)
    wait_for("the slice", lambda: [d["syncTargetName"] for d in center.api(
        "GET", "/apis/edge.kcp.io/v1alpha1/singleplacementslices/edge-placement-s")["destinations"]] == ["florin"])
    # Something later, so that whatever flaps has had its time.
    merge(center, f"{MAPS}/httpd-htdocs", {"data": {"a": "after the move"}})
    wait_for("what is later", lambda: common.of("httpd-htdocs"))
    wait_for("all of it", lambda: sum(came[1].counted().values()) >= len(names) and sum(went[1].counted().values()) >= len(names))
    for watch in (*came, *went, common):
        watch.close()
    moved = lambda watch: {key: n for key, n in watch.counted().items() if key[0] != "MODIFIED"}  # noqa: E731
    ours = lambda watch: {key: n for key, n in watch.counted().items() if key[1] in names}  # noqa: E731
    assert ours(came[1]) == {("ADDED", name): 1 for name in names}
    assert ours(went[1]) == {("DELETED", name): 1 for name in names}
    assert moved(came[0]) == {("ADDED", "speciald"): 1} and moved(went[0]) == {("DELETED", "speciald"): 1}
    assert common.counted() == {("MODIFIED", "httpd-htdocs"): 1}, "what is common stays where it is"


# ---- gone for a week ----

def compact(etcd):
    """Forgets everything that was."""
    def call(path, body):
        request = urllib.request.Request(f"{etcd.endpoint}/v3/kv/{path}", json.dumps(body).encode())
        return json.loads(urllib.request.urlopen(request, timeout=10).read())
    now = call("range", {"key": "AA=="})["header"]["revision"]
    call("compaction", {"revision": now, "physical": True})


def test_an_edge_gone_for_a_week_comes_back_to_the_present_only(tmp_path):
    etcd = Etcd(tmp_path)
    center = Center(tmp_path / "center", "etcd", etcd)
    florin = Edge(center, tmp_path / "florin", "florin")
    try:
        center.start()
        florin.start().wait_connected()
        merge(center, f"{SYNCTARGETS}/florin", {"metadata": {"labels": {"id": "florin"}}})
        location = {"apiVersion": "scheduling.kcp.io/v1alpha1", "kind": "Location",
                    "metadata": {"name": "florin", "labels": {"env": "prod", "shift": "day"}},
                    "spec": {"instanceSelector": {"matchLabels": {"id": "florin"}}}}
        center.api("POST", LOCATIONS, location)
        center.api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                                  "metadata": {"name": "commonstuff", "labels": {"common": "si"}}})
        for n in range(12):
            center.api("POST", MAPS, config_map(f"stays{n}", a="1"))
        for name in ("edited", "dropped", "remade", "tailored"):
            center.api("POST", MAPS, config_map(name, a="%(shift)"))
        merge(center, f"{MAPS}/tailored", {"metadata": {"annotations": {"edge.kcp.io/expand-parameters": "true"}}})
        center.api("POST", PLACEMENTS, placement(C, {"env": "prod"}, {"common": "si"}))
        wait_for("all of it", lambda: florin.api("GET", f"{MAPS}/tailored")["data"]["a"] == "day" and counts(center, C) == (1, 1, 0, 0, 0))
        assert florin.stop() == 0
        florin.wait_offline()

        for n in range(10):
            merge(center, f"{MAPS}/edited", {"data": {"a": f"draft {n}"}})
            center.api("POST", MAPS, config_map("transient", n=str(n)))
            center.api("DELETE", f"{MAPS}/transient")
            merge(center, f"{LOCATIONS}/florin", {"metadata": {"labels": {"shift": "night" if n % 2 else "dusk", "env": "test" if n % 2 else "prod"}}})
        merge(center, f"{MAPS}/edited", {"data": {"a": "final"}})
        for name in ("dropped", "remade"):
            center.api("DELETE", f"{MAPS}/{name}")
        center.api("POST", MAPS, config_map("remade", b="2"))
        center.api("POST", MAPS, config_map("fresh", a="0"))
        merge(center, f"{MAPS}/fresh", {"data": {"a": "1"}})
        merge(center, f"{LOCATIONS}/florin", {"metadata": {"labels": {"env": "prod"}}})
        # Nobody remembers how it came to be: neither the store nor a center that was there.
        center.kill()
        compact(etcd)
        center.start()
        annotate(center, "florin", **{LINK: "cut"})
        florin.start()
        assert florin.api("GET", f"{MAPS}/edited")["data"]["a"] == "%(shift)", "it has what it had"
        watch = Watch(florin, MAPS)
        annotate(center, "florin", **{LINK: None})
        wait_for("the present", lambda: counts(center, C) == (1, 1, 0, 0, 0) and watch.of("fresh"), 90)
        wait_for("all of it", lambda: florin.api("GET", f"{MAPS}/tailored")["data"]["a"] == "night" and
                 florin.request("GET", f"{MAPS}/dropped")[0] == 404)
        wait_for("the watch", lambda: len(watch.events) >= 5)
        # An object that is made now comes after everything else.
        center.api("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fence"}})
        wait_for("the fence", lambda: watch.of("fence"))
        watch.close()
        names = {name for _, name in watch.counted()} - {"fence"}
        seen = {name: [(kind, o.get("data")) for kind, o in watch.of(name)] for name in names}
        assert seen == {"edited": [("MODIFIED", {"a": "final"})], "dropped": [("DELETED", {"a": "%(shift)"})], "remade": [("MODIFIED", {"b": "2"})],
                        "fresh": [("ADDED", {"a": "1"})], "tailored": [("MODIFIED", {"a": "night"})]}, seen
        for one in (center, florin):
            assert "panicked" not in one.log_path.read_text(errors="replace")
    finally:
        florin.kill()
        center.kill()
        etcd.stop()
