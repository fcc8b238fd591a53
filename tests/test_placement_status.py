"""What an EdgePlacement says of its edges, and source objects of where they run."""
import time

import pytest
from center import wait_for
from edge import CONFIRM, annotate
from placed import COUNT, DEPLOYMENTS, MAPS, MERGE, PLACEMENTS, condition, counts, deployment, page, placed, placement, status_at, status_of

C = "edge-placement-c"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    with placed(tmp_path_factory.mktemp("status")) as all_of_it:
        yield all_of_it


def executing(center, path):
    return center.api("GET", path)["metadata"].get("annotations", {}).get(COUNT)


def test_edges_are_counted_and_what_they_hold(shop):
    center, florin, _ = shop
    wait_for("both in sync", lambda: counts(center, C) == (2, 2, 0, 0, 0))
    status, generation = status_of(center, C), center.api("GET", f"{PLACEMENTS}/{C}")["metadata"]["generation"]
    assert status["matchingLocationCount"] == 2 and status["specGeneration"] == status["observedGeneration"] == generation
    assert condition(status, "Ready")["status"] == "True" and not condition(status, "Conflict")
    for path in (f"{DEPLOYMENTS}/commond", f"{MAPS}/httpd-htdocs"):
        wait_for(f"the count of {path}", lambda p=path: executing(center, p) == "2")
        assert COUNT not in florin.api("GET", path)["metadata"].get("annotations", {}), "it says nothing about the edge"


def test_an_edit_is_one_write_and_few_words(shop):
    center, florin, guilder = shop
    wait_for("quiet", lambda: counts(center, C) == (2, 2, 0, 0, 0))
    time.sleep(1.2)
    before = int(center.api("GET", MAPS)["metadata"]["resourceVersion"])
    center.api("PATCH", f"{MAPS}/httpd-htdocs", {"data": {"a": "2"}}, content_type=MERGE)
    for edge in (florin, guilder):
        wait_for(f"the edit at {edge.name}", lambda e=edge: e.api("GET", f"{MAPS}/httpd-htdocs")["data"]["a"] == "2")
    time.sleep(2.5)
    after = int(center.api("GET", MAPS)["metadata"]["resourceVersion"])
    assert after - before <= 3, "the edit, and at most that the edges were behind for a moment"
    assert counts(center, C) == (2, 2, 0, 0, 0)


def test_absence_and_return(shop):
    center, _, guilder = shop
    guilder.cut()
    wait_for("one offline", lambda: counts(center, C) == (2, 1, 0, 1, 0))
    assert condition(status_of(center, C), "Ready")["reason"] == "Offline"
    center.api("PATCH", f"{MAPS}/httpd-htdocs", {"data": {"a": "3"}}, content_type=MERGE)
    center.api("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"a": "1"}})
    wait_for("one to hold the new one", lambda: executing(center, f"{MAPS}/new") == "1")
    assert executing(center, f"{MAPS}/httpd-htdocs") == "2", "an absent edge still runs what it has"
    guilder.heal()
    wait_for("both again", lambda: counts(center, C) == (2, 2, 0, 0, 0) and executing(center, f"{MAPS}/new") == "2")


def test_what_fails_is_named(shop):
    center, florin, _ = shop
    status_at(florin, "commond", conditions=[{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
                                              "message": "no image"}])
    wait_for("one failing", lambda: counts(center, C) == (2, 1, 0, 0, 1))
    status = status_of(center, C)
    [broken] = status["broken"]
    assert (broken["object"], broken["location"]) == ("apps/deployments/commonstuff/commond", "root:florin")
    assert broken["reason"] == "no image" and condition(status, "Ready")["reason"] == "Failing"
    status_at(florin, "commond", conditions=[], replicas=2, readyReplicas=2)
    wait_for("it to be well again", lambda: counts(center, C) == (2, 2, 0, 0, 0) and not status_of(center, C)["broken"])


def test_the_only_copy_says_how_it_fares_at_the_source(shop):
    center, florin, guilder = shop
    special = "/apis/apps/v1/namespaces/specialstuff/deployments"
    center.api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                              "metadata": {"name": "specialstuff", "labels": {"special": "si"}}})
    center.api("POST", special, deployment("speciald", 1))
    center.api("POST", PLACEMENTS, placement("edge-placement-s", {"env": "prod", "extended": "si"}, {"special": "si"},
                                             wantSingletonReportedState=True))
    wait_for("speciald at guilder", lambda: guilder.api("GET", f"{special}/speciald"))
    status_at(guilder, "speciald", special, replicas=1, readyReplicas=1)
    wait_for("its status at the center", lambda: center.api("GET", f"{special}/speciald")["status"].get("readyReplicas") == 1)
    wait_for("one runs it", lambda: executing(center, f"{special}/speciald") == "1")
    center.api("PATCH", f"{PLACEMENTS}/edge-placement-s", {"spec": {"locationSelectors": [{"matchLabels": {"env": "prod"}}]}},
               content_type=MERGE)
    wait_for("two run it", lambda: executing(center, f"{special}/speciald") == "2")
    wait_for("nobody's status", lambda: "readyReplicas" not in center.api("GET", f"{special}/speciald").get("status", {}))
    center.api("DELETE", f"{PLACEMENTS}/edge-placement-s")
    wait_for("nobody to run it", lambda: executing(center, f"{special}/speciald") is None)


def test_troubles_of_another_placement_are_not_this_ones(shop):
    center, florin, _ = shop
    wait_for("both in sync", lambda: counts(center, C) == (2, 2, 0, 0, 0), 30)
    theirs = "/api/v1/namespaces/theirs/configmaps"
    config_map = {"apiVersion": "v1", "kind": "ConfigMap"}
    center.api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                              "metadata": {"name": "theirs", "labels": {"theirs": "si"}}})
    for n in range(12):
        center.api("POST", theirs, config_map | {"metadata": {"name": f"c{n}"}})
    center.api("POST", PLACEMENTS, placement("theirs", {"region": "south"}, {"theirs": "si"}))
    wait_for("theirs to arrive", lambda: counts(center, "theirs") == (1, 1, 0, 0, 0))
    florin.api("POST", theirs, config_map | {"metadata": {"name": "same"}, "data": {"made": "here"}})
    center.api("POST", theirs, config_map | {"metadata": {"name": "same"}, "data": {"made": "there"}})
    wait_for("theirs to be refused", lambda: counts(center, "theirs") == (1, 0, 0, 0, 1))
    center.api("POST", MAPS, config_map | {"metadata": {"name": "later"}})
    wait_for("both to hold what came later", lambda: executing(center, f"{MAPS}/later") == "2")
    assert executing(center, f"{theirs}/same") == "0", "it was refused"
    wait_for("nothing to be wrong with this one", lambda: counts(center, C) == (2, 2, 0, 0, 0))
    center.api("PATCH", f"{PLACEMENTS}/{C}", {"spec": {"rollout": {"batch": 2, "healthGate": False}}}, content_type=MERGE)
    wait_for("its rollout to end", lambda: status_of(center, C).get("rollout", {}).get("phase") == "Complete", 30)
    center.api("PATCH", f"{PLACEMENTS}/{C}", {"spec": {"rollout": None}}, content_type=MERGE)

    center.api("DELETE", "/api/v1/namespaces/theirs")

    def held():
        return condition(florin.target().get("status", {}), "DeletionHeld").get("status") == "True"

    wait_for("their removal to be held", held)
    center.api("POST", MAPS, config_map | {"metadata": {"name": "last"}})
    wait_for("both to hold what came last", lambda: executing(center, f"{MAPS}/last") == "2")
    wait_for("nothing to be wrong with this one", lambda: counts(center, C) == (2, 2, 0, 0, 0))
    assert held()
    wait_for("it to be said to their owner", lambda: condition(status_of(center, "theirs"), "RemovalHeld").get("status") == "True")
    assert counts(center, "theirs")[4] == 1
    annotate(center, "florin", **{CONFIRM: "100"})
    wait_for("it to be done", lambda: not held() and counts(center, "theirs")[4] == 0)
    center.api("DELETE", f"{PLACEMENTS}/theirs")


def test_nothing_is_forgotten_by_a_restart(shop):
    center, florin, guilder = shop
    guilder.cut()
    wait_for("one offline", lambda: counts(center, C)[3] == 1)
    center.kill()
    center.start()
    florin.wait_connected()
    wait_for("the same again", lambda: counts(center, C) == (2, 1, 0, 1, 0), 30)
    # An edit goes to the edge that is there and is counted anew: what a start would forget is gone by then.
    center.api("PATCH", f"{MAPS}/httpd-htdocs", {"data": {"a": "after the restart"}}, content_type=MERGE)
    wait_for("the edit", lambda: florin.api("GET", f"{MAPS}/httpd-htdocs")["data"]["a"] == "after the restart")
    wait_for("one behind no more", lambda: counts(center, C) == (2, 1, 0, 1, 0))
    assert executing(center, f"{MAPS}/httpd-htdocs") == "2"
    guilder.heal()


def test_the_page(shop, tmp_path):
    center, _, _ = shop
    wait_for("both in sync", lambda: counts(center, C) == (2, 2, 0, 0, 0), 30)
    out = page("reference/status.md", center, tmp_path, 3)
    for said in ("edge-placement-c", "InSync", "2"):
        assert said in out, said
