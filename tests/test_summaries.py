"""StatusCollectors ask about all edges at once; CombinedStatuses answer, and keep up."""
import pytest
from center import Tools, wait_for
from placed import COLLECTORS, COMBINED, DEPLOYMENTS, MERGE, condition, page, placed, status_at


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    with placed(tmp_path_factory.mktemp("summaries")) as (center, florin, guilder):
        status_at(florin, "commond", replicas=2, readyReplicas=2)
        status_at(guilder, "commond", replicas=2, readyReplicas=1)
        yield center, florin, guilder


def collector(name, **spec):
    return {"apiVersion": "edge.selvedge.dev/v1alpha1", "kind": "StatusCollector", "metadata": {"name": name},
            "spec": {"resource": {"apiGroup": "apps", "resource": "deployments"}, **spec}}


def answer(center, name):
    return center.api("GET", f"{COMBINED}/{name}")


READY = "obj.?status.?readyReplicas.orValue(0)"
BY_REGION = dict(
    groupBy=[{"name": "region", "def": "location.labels.region"}],
    combinedFields=[{"name": "copies", "type": "COUNT"}, {"name": "ready", "type": "SUM", "subject": READY}],
    broken=f"{READY} < obj.spec.replicas ? string({READY}) + ' ready' : ''")


def groups(center, name):
    return {r["groupBy"]["region"]: (r["combinedFields"]["copies"], r["combinedFields"]["ready"]) for r in answer(center, name)["results"]}


def test_a_question_is_answered_and_the_answer_keeps_up(shop):
    center, florin, guilder = shop
    center.api("POST", COLLECTORS, collector("by-region", **BY_REGION))
    wait_for("the answer", lambda: groups(center, "by-region") == {"south": (1, 2), "north": (1, 1)})
    found = answer(center, "by-region")
    [broken] = found["broken"]
    assert (broken["object"], broken["location"], broken["reason"]) == ("apps/deployments/commonstuff/commond", "root:guilder", "1 ready")
    assert found["summary"]["rows"] == 2 and condition(found["status"], "Ready")["status"] == "True"
    status_at(guilder, "commond", readyReplicas=2)
    wait_for("what is new", lambda: groups(center, "by-region") == {"south": (1, 2), "north": (1, 2)})
    assert answer(center, "by-region")["broken"] == []
    text = center.request("GET", "/metrics", accept="*/*")[2].decode()
    line = 'selvedge_combined_status{workspace="root",collector="by-region",group="region=north",field="ready"} 2'
    assert line in text, [x for x in text.splitlines() if "combined" in x]


def test_rows_come_and_go_with_objects_and_labels(shop):
    center, _, _ = shop
    center.api("PATCH", f"{DEPLOYMENTS}/commond", {"spec": {"replicas": 3}}, content_type=MERGE)
    wait_for("both to be too few", lambda: len(answer(center, "by-region")["broken"]) == 2)
    center.api("PATCH", f"{DEPLOYMENTS}/commond", {"spec": {"replicas": 2}}, content_type=MERGE)
    path = "/apis/scheduling.kcp.io/v1alpha1/locations/florin"
    center.api("PATCH", path, {"metadata": {"labels": {"region": "north"}}}, content_type=MERGE)
    wait_for("one region", lambda: groups(center, "by-region") == {"north": (2, 4)})
    center.api("PATCH", path, {"metadata": {"labels": {"env": "test"}}}, content_type=MERGE)
    wait_for("one edge", lambda: groups(center, "by-region") == {"north": (1, 2)})
    center.api("PATCH", path, {"metadata": {"labels": {"env": "prod", "region": "south"}}}, content_type=MERGE)
    wait_for("both to be back", lambda: set(groups(center, "by-region")) == {"north", "south"})


def test_what_is_old_is_said_to_be(shop):
    center, florin, guilder = shop
    status_at(florin, "commond", readyReplicas=2)
    center.api("POST", COLLECTORS, collector("rows", staleAfter="1s", select=[{"name": "ready", "def": "obj.status.readyReplicas"}],
                                             filter="sync.reported"))
    wait_for("both rows", lambda: [r["columns"]["ready"] for r in answer(center, "rows")["results"]] == [2, 2])
    guilder.cut()
    wait_for("one to be old", lambda: answer(center, "rows")["summary"]["stale"] == 1)
    assert [r.get("stale", False) for r in answer(center, "rows")["results"]] == [False, True]
    center.kill()
    center.start()
    florin.wait_connected()
    wait_for("the same after a restart", lambda: groups(center, "by-region") == {"south": (1, 2), "north": (1, 2)}
             and answer(center, "rows")["summary"]["stale"] == 1, 30)
    guilder.heal()
    wait_for("nothing to be old", lambda: answer(center, "rows")["summary"]["stale"] == 0)


def test_what_is_wrong_with_a_question_is_said(shop):
    center, _, _ = shop
    center.api("POST", COLLECTORS, collector("broken", filter="obj.status."))
    wait_for("the complaint", lambda: condition(answer(center, "broken")["status"], "Ready")["reason"] == "Invalid")
    asked = wait_for("the same there", lambda: condition(center.api("GET", f"{COLLECTORS}/broken")["status"], "Ready"))
    assert asked["status"] == "False" and "spec.filter" in asked["message"]
    center.api("PATCH", f"{COLLECTORS}/broken", {"spec": {"filter": "obj.status.nothing > 1"}}, content_type=MERGE)
    wait_for("errors to be counted", lambda: answer(center, "broken")["summary"]["errors"] == 2)
    assert "no such key" in condition(answer(center, "broken")["status"], "Ready")["message"]
    center.api("DELETE", f"{COLLECTORS}/broken")
    wait_for("the answer to go", lambda: center.request("GET", f"{COMBINED}/broken")[0] == 404)


def test_an_answer_that_is_meddled_with_is_put_right(shop):
    center, _, _ = shop
    center.api("PATCH", f"{COMBINED}/by-region", {"summary": {"rows": 77}}, content_type=MERGE, expect=(405,))
    center.api("DELETE", f"{COMBINED}/by-region")
    wait_for("another one", lambda: groups(center, "by-region"))


def test_the_page(shop, tmp_path):
    center, _, _ = shop
    out = page("reference/summaries.md", center, tmp_path, 4)
    for said in ("2 of 2 rows", "copies", "fewest"):
        assert said in out, said
    assert "Valid" in Tools(center, tmp_path).kubectl("get", "statuscollector", "deployments", "-o", "yaml")
