"""What edge platforms are known to get wrong, one test each. The link runs over a wire that the tests cut and stall."""
import contextlib
import json
import sqlite3
import threading
import time

import pytest

from center import join, wait_for
from edge import fence, fleet, in_sync, objects
from manifests import configmap, node, pod
from test_identity import Client

SHOP = "root:shop"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def both():
    with fleet("florin", wire=True) as (center, florin):
        yield center, florin
        assert "panicked" not in florin.log_path.read_text(errors="replace") + center.log_path.read_text(errors="replace")


@pytest.fixture
def shop(both):
    """(center, edge), connected, whatever the test before did."""
    center, florin = both
    if not florin.alive():
        florin.start()
    florin.through.open()
    florin.wait_connected(60)
    yield center, florin
    florin.through.open()


def write(center, name, **data):
    center.api("PUT", f"/clusters/{SHOP}{MAPS}/{name}", configmap(name, **data), expect=(200, 201, 404)).get("code") == 404 and \
        center.api("POST", f"/clusters/{SHOP}{MAPS}", configmap(name, **data))


def arrives(florin, name, **data):
    wait_for(f"{name} at the edge", lambda: florin.api("GET", f"{MAPS}/{name}")["data"] == data, 30)


def quickest(times, request):
    """The median, so that one busy moment of the machine proves nothing."""
    took = []
    for _ in range(times):
        began = time.monotonic()
        request()
        took.append(time.monotonic() - began)
    return sorted(took)[times // 2]


def offline(florin):
    florin.through.cut()


# "reads go to the cloud first and wait 10 s"
def test_reads_never_wait_for_the_center(shop):
    center, florin = shop
    write(center, "near", v="1")
    arrives(florin, "near", v="1")
    florin.through.stall()  # the worst case: nobody says that the center is away
    assert quickest(9, lambda: florin.api("GET", f"{MAPS}/near")) < 0.25
    assert quickest(9, lambda: florin.api("GET", MAPS)) < 0.25


# "lists from the cloud not kept"
def test_lists_are_kept_through_an_offline_restart(shop):
    center, florin = shop
    for i in range(20):
        write(center, f"kept-{i}", v=str(i))
    in_sync(center, SHOP, florin)
    before = {name: o["metadata"] for name, o in objects(florin, MAPS).items()}
    offline(florin)
    florin.kill()
    florin.start()
    after = {name: o["metadata"] for name, o in objects(florin, MAPS).items()}
    assert len(after) >= 20 and after == before
    assert len(florin.api("GET", f"{MAPS}?limit=7")["items"]) == 7


def follow(florin, query, seconds=10):
    """Events of a watch, until it ends or nothing comes for that long."""
    with contextlib.closing(florin.connection(timeout=seconds)) as connection:
        connection.request("GET", f"{MAPS}?watch=true&{query}")
        reply = connection.getresponse()
        if reply.status != 200:
            yield {"type": "ERROR", "object": json.loads(reply.read())}
            return
        with contextlib.suppress(TimeoutError):
            while line := reply.readline():
                yield json.loads(line)


# "watch ignores the RV": only what came after it is sent.
def test_a_watch_starts_at_its_version(shop):
    center, florin = shop
    write(center, "rv", v="1")
    arrives(florin, "rv", v="1")
    since = florin.api("GET", MAPS)["metadata"]["resourceVersion"]
    write(center, "rv", v="2")
    first = next(e for e in follow(florin, f"resourceVersion={since}&timeoutSeconds=20"))
    assert first["type"] == "MODIFIED" and first["object"]["metadata"]["name"] == "rv" and first["object"]["data"] == {"v": "2"}


# "no bookmarks"
def test_watches_have_bookmarks(shop):
    _, florin = shop
    streamed = follow(florin, "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=5")
    mark = next(e for e in streamed if e["type"] == "BOOKMARK")
    assert mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
    assert int(mark["object"]["metadata"]["resourceVersion"]) > 0


# "no 410": versions that are no more, or not yet, are refused, never guessed at.
def test_versions_that_do_not_exist_are_refused(shop):
    _, florin = shop
    now = int(florin.api("GET", MAPS)["metadata"]["resourceVersion"])
    status, _, body = florin.request("GET", f"{MAPS}?resourceVersion={now + 100_000}&resourceVersionMatch=NotOlderThan", timeout=30)
    assert status == 504 and b"Too large resource version" in body, body
    status, _, body = florin.request("GET", f"{MAPS}?limit=1&continue=bm9uc2Vuc2U")
    assert status in (400, 410), body


# "an event gap between list and watch", while the link delivers all the time
def test_nothing_is_missed_between_list_and_watch(shop):
    center, florin = shop
    stop = threading.Event()

    def busy():
        i = 0
        while not stop.is_set():
            i += 1
            write(center, f"gap-{i % 10}", v=str(i))

    writer = threading.Thread(target=busy)
    writer.start()
    copies = []
    try:
        for _ in range(10):
            listed = florin.api("GET", MAPS)
            copies.append(({o["metadata"]["name"]: o for o in listed["items"]}, listed["metadata"]["resourceVersion"]))
            time.sleep(0.1)
    finally:
        stop.set()
        join(writer)
    in_sync(center, SHOP, florin)
    final = {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in florin.api("GET", MAPS)["items"]}
    for copy, since in copies:
        versions = {name: o["metadata"]["resourceVersion"] for name, o in copy.items()}
        for event in follow(florin, f"resourceVersion={since}&timeoutSeconds=2", 5):
            o = event["object"]["metadata"]
            if event["type"] == "DELETED":
                versions.pop(o["name"], None)
            elif event["type"] in ("ADDED", "MODIFIED"):
                assert int(o["resourceVersion"]) > int(versions.get(o["name"], 0))
                versions[o["name"]] = o["resourceVersion"]
            if versions == final:
                break
        assert versions == final


# "field selectors other than name ignored offline (spec.nodeName returns nothing)"
def test_field_selectors_work_offline(shop):
    center, florin = shop
    center.api("POST", f"/clusters/{SHOP}{PODS}", pod("placed", nodeName="n1"), expect=(201, 409))
    center.api("POST", f"/clusters/{SHOP}{PODS}", pod("elsewhere", nodeName="n2"), expect=(201, 409))
    in_sync(center, SHOP, florin, collections=(PODS,))
    offline(florin)
    florin.kill()
    florin.start()
    found = florin.api("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1")["items"]
    assert [p["metadata"]["name"] for p in found] == ["placed"]
    others = florin.api("GET", "/api/v1/pods?fieldSelector=spec.nodeName!%3Dn1,status.phase%3DPending")["items"]
    assert [p["metadata"]["name"] for p in others] == ["elsewhere"]


# "a failed local write is still acknowledged", and "database is locked panics"
def test_a_write_that_the_disk_refuses_is_not_acknowledged(shop):
    center, florin = shop
    file = next(p for p in florin.data_dir.rglob("*") if p.is_file() and p.read_bytes()[:15] == b"SQLite format 3")
    with contextlib.closing(sqlite3.connect(file, timeout=10, isolation_level=None)) as stranger:
        stranger.execute("begin immediate")  # the database is locked for everybody else
        stranger.execute("pragma user_version")
        local = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "locked"}, "involvedObject": {"namespace": "default"}}
        answers = []
        request = threading.Thread(target=lambda: answers.append(
            florin.request("POST", "/api/v1/namespaces/default/events", local, timeout=60)[0]))
        request.start()
        write(center, "while-locked", v="1")
        # The server has a second to give a wrong answer, and answers other requests meanwhile.
        request.join(1)
        assert not answers or answers[0] >= 500, f"{answers} was said before anything could be durable"
        assert florin.api("GET", MAPS)["items"], "reading goes on"
        stranger.execute("rollback")
    join(request)
    there = florin.request("GET", "/api/v1/namespaces/default/events/locked")[0] == 200
    assert answers and (answers[0] == 201) == there, f"said {answers}, there: {there}"
    arrives(florin, "while-locked", v="1")
    assert florin.still_answers()


# "delivery is stop-and-wait with one bookkeeping object per node × object in etcd"
def test_one_change_is_one_write_however_many_edges(tmp_path):
    with fleet("florin", "guilder", directory=tmp_path) as (center, florin, guilder):
        for name in ("a", "b", "c"):
            write(center, name, v="0")
        in_sync(center, SHOP, florin)
        in_sync(center, SHOP, guilder)
        revision = lambda: int(center.api("GET", f"/clusters/{SHOP}{MAPS}")["metadata"]["resourceVersion"])
        # What the beginning wrote down of connections is over when a fence is all that is written.
        def only_fences():
            before = revision()
            fence(center, florin)
            fence(center, guilder)
            return revision() == before + 4

        wait_for("silence", only_fences, every=0.2)
        before = revision()
        for i in range(1, 11):
            write(center, "a", v=str(i))
        for edge in (florin, guilder):
            arrives(edge, "a", v="10")
            fence(center, edge)
        assert revision() - before == 10 + 4, "ten changes for two edges are ten writes, and two fences four"


def test_delivery_does_not_stop_and_wait(tmp_path):
    """A round trip of 0.2 s and 150 objects: one at a time would take half a minute."""
    with fleet("florin", directory=tmp_path, wire=True) as (center, florin):
        florin.through.open(delay=0.1)
        began = time.monotonic()
        for i in range(150):
            write(center, f"many-{i}", v=str(i))
        in_sync(center, SHOP, florin, 20)
        assert time.monotonic() - began < 20


# "writes lose the client's identity (privilege leak)"
def test_a_local_administrator_is_nobody_at_the_center(shop, tmp_path):
    center, florin = shop
    write(center, "guarded", v="1")
    arrives(florin, "guarded", v="1")
    florin.api("POST", "/api/v1/namespaces/default/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount",
               "metadata": {"name": "mighty"}}, expect=(201, 409))
    florin.api("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "mighty"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "mighty"}]}, expect=(201, 409))
    token = florin.api("POST", "/api/v1/namespaces/default/serviceaccounts/mighty/token",
                       {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})["status"]["token"]
    mighty = Client(florin, token=token)
    status, reply = mighty.request("PUT", f"{MAPS}/guarded", configmap("guarded", v="2"))
    assert status == 403 and "edge:root:florin:system:serviceaccount:default:mighty" in reply["message"], reply
    assert center.api("GET", f"/clusters/{SHOP}{MAPS}/guarded")["data"] == {"v": "1"}
    assert Client(center, token=token).who() == 401, "an edge's token is no token of the center"


# "offline create is echoed with 201 and forgotten"
def test_what_is_created_offline_stays(shop):
    _, florin = shop
    offline(florin)
    made = florin.api("POST", MAPS, configmap("made-offline", v="1"))
    florin.kill()
    florin.start()
    assert florin.api("GET", f"{MAPS}/made-offline")["metadata"]["uid"] == made["metadata"]["uid"]
    florin.through.open()
    florin.wait_connected(60)
    assert florin.api("GET", f"{MAPS}/made-offline")["data"] == {"v": "1"}, "and no reconnect takes it away"


# "offline update returns the old object"
def test_an_offline_update_happens_or_is_refused(shop):
    center, florin = shop
    write(center, "owned", v="1")
    arrives(florin, "owned", v="1")
    florin.api("POST", MAPS, configmap("mine", v="1"), expect=(201, 409))
    offline(florin)
    wait_for("the edge to know", lambda: florin.request("PUT", f"{MAPS}/owned", configmap("owned", v="2"), timeout=60)[0] == 503, 60)
    status, headers, body = florin.request("PUT", f"{MAPS}/owned", configmap("owned", v="2"))
    assert status == 503 and int(headers["retry-after"]) > 0 and b"center" in body, (status, headers, body)
    assert florin.api("GET", f"{MAPS}/owned")["data"] == {"v": "1"}
    assert florin.api("PUT", f"{MAPS}/mine", configmap("mine", v="2"))["data"] == {"v": "2"}
    assert florin.api("GET", f"{MAPS}/mine")["data"] == {"v": "2"}


# "no authentication by default"
def test_nobody_is_served_nothing(shop):
    center, florin = shop
    for server in (florin, center):
        assert Client(server).code("GET", "/api/v1/secrets") in (401, 403)
        assert Client(server).code("POST", MAPS, configmap("x")) in (401, 403)
        for method in ("Session", "Forward", "Tunnel"):
            assert Client(server).code("POST", f"/selvedge.link.v1.Link/{method}") in (401, 403, 404, 415), method


# "stale bookkeeping sends endless deletes"
def test_a_deletion_is_sent_once_and_then_there_is_silence(shop):
    center, florin = shop
    for i in range(5):
        write(center, f"gone-{i}", v="1")
        arrives(florin, f"gone-{i}", v="1")
    offline(florin)
    for i in range(5):
        center.api("DELETE", f"/clusters/{SHOP}{MAPS}/gone-{i}")
    florin.through.open()
    florin.wait_connected(60)
    in_sync(center, SHOP, florin)
    # One of the same name that is the edge's own is nobody else's to delete.
    florin.api("POST", MAPS, configmap("gone-0", mine="yes"))
    time.sleep(0.5)
    before = sum(florin.through.carried)
    time.sleep(3)
    assert sum(florin.through.carried) - before < 500, "the link is silent when there is nothing to say"
    assert florin.api("GET", f"{MAPS}/gone-0")["data"] == {"mine": "yes"}
    florin.api("DELETE", f"{MAPS}/gone-0")


# "in-flight messages lost at disconnect"
def test_what_was_in_flight_arrives_after_all(shop):
    center, florin = shop
    florin.through.open(delay=0.02)
    for i in range(120):
        write(center, f"flight-{i}", v="1", padding="x" * 2000)
        if i % 30 == 29:
            florin.through.cut()
            time.sleep(0.1)
            florin.through.open(delay=0.02)
    florin.through.open()
    in_sync(center, SHOP, florin, 60)


# "pods do not start after an offline reboot": everything that a kubelet asks for then is there.
def test_after_an_offline_reboot_a_kubelet_finds_everything(shop):
    center, florin = shop
    at = f"/clusters/{SHOP}/api/v1/namespaces/default"
    center.api("POST", f"{at}/secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"k": "v"}},
               expect=(201, 409))
    center.api("POST", f"{at}/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "app"}}, expect=(201, 409))
    center.api("POST", f"{at}/pods", pod("reboot", nodeName="n1", serviceAccountName="app"), expect=(201, 409))
    florin.api("POST", "/api/v1/nodes", node("n1"), expect=(201, 409))
    in_sync(center, SHOP, florin, collections=(PODS, "/api/v1/namespaces/default/secrets"))
    offline(florin)
    florin.kill()
    florin.start()
    assert florin.api("GET", "/api/v1/nodes?fieldSelector=metadata.name%3Dn1")["items"]
    pods = florin.api("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1")["items"]
    mine = next(p for p in pods if p["metadata"]["name"] == "reboot")
    assert florin.api("GET", "/api/v1/namespaces/default/secrets/key")["data"] == {"k": "dg=="}
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "reboot", "uid": mine["metadata"]["uid"]}
    token = florin.api("POST", "/api/v1/namespaces/default/serviceaccounts/app/token", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}})["status"]["token"]
    assert Client(florin, token=token).who()["username"] == "system:serviceaccount:default:app"
    status = {"status": {"phase": "Running", "podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}]}}
    patched = florin.api("PATCH", f"{PODS}/reboot/status", status, content_type="application/strategic-merge-patch+json")
    assert patched["status"]["phase"] == "Running"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}}
    florin.api("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease, expect=(201, 409))
