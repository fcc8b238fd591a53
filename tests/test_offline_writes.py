"""Writes on an edge to what is the center's: decided there in the client's name; without a link refused, or kept and replayed."""
import base64
import json
import re
import threading

import pytest

from center import ROOT, join, wait_for
from edge import fleet, selvedge

SHOP = "/clusters/root:shop"
MAPS = "/api/v1/namespaces/shop/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/shop/deployments"
WRITES = "/apis/edge.selvedge.dev/v1alpha1/offlinewrites"
QUEUE = "edge.selvedge.dev/offline-writes"
PENDING = "edge.selvedge.dev/pending-write"
VAULT, SECRET = "/api/v1/namespaces/shop/secrets/vault", base64.b64encode(b"a pin that is nowhere else").decode()
MERGE = {"content_type": "application/merge-patch+json"}


def role(center, name, subject, rules=None, kind="User"):
    """Lets somebody do that in root:shop, and come in."""
    rbac = f"{SHOP}/apis/rbac.authorization.k8s.io/v1"
    if rules is not None:
        rules = [*rules, {"nonResourceURLs": ["/"], "verbs": ["access"]}]
        center.api("POST", f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    center.api("POST", f"{rbac}/clusterrolebindings", {
        "metadata": {"name": f"{name}-{subject.replace(':', '-')}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name if rules is not None else "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": subject}]})


def config(name, queue=False, **data):
    annotations = {"team": "a", **({QUEUE: "queue"} if queue else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": "web"}, "annotations": annotations},
            "data": data or {"a": "1"}}


def deployment(name, queue=False):
    return {"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "annotations": {QUEUE: "queue"} if queue else {"team": "a"}},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}},
                     "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with fleet("florin", directory=tmp_path_factory.mktemp("offline")) as (center, florin):
        center.api("POST", f"{SHOP}/api/v1/namespaces", {"metadata": {"name": "shop"}})
        role(center, "admins", "edge:root:florin:system:masters", kind="Group")
        wait_for("the namespace", lambda: florin.api("GET", "/api/v1/namespaces/shop"))
        yield center, florin
        assert "panicked" not in florin.log_path.read_text() + center.log_path.read_text()


@pytest.fixture
def both(pair):
    """center, edge, and a function that makes objects at the center and waits until the edge has them."""
    center, florin = pair

    def make(*objects):
        for o in objects:
            path = MAPS if o["kind"] == "ConfigMap" else DEPLOYMENTS
            center.api("POST", SHOP + path, o)
            wait_for(o["metadata"]["name"], lambda: florin.api("GET", f"{path}/{o['metadata']['name']}"), every=0.01)

    return center, florin, make


def at_center(center, path):
    return center.api("GET", SHOP + path)


def writes(edge):
    return {w["metadata"]["name"]: w for w in edge.api("GET", WRITES)["items"]}


# ---- with a link ----

def test_writes_are_read_where_they_were_made(both, tmp_path):
    """Whatever the verb: the center has it when the client is answered, and the edge shows it."""
    center, florin, make = both
    make(config("verbs", a="1"), deployment("verbs"))
    one, dep = f"{MAPS}/verbs", f"{DEPLOYMENTS}/verbs"
    local = florin.api("GET", one)

    def check(path, got, read):
        assert read(got) == read(florin.api("GET", path)) == read(at_center(center, path))

    check(one, florin.api("PATCH", one, {"data": {"b": "2"}}, **MERGE), lambda o: o["data"])
    ops = [{"op": "replace", "path": "/data/b", "value": "3"}, {"op": "remove", "path": "/data/a"}]
    check(one, florin.api("PATCH", one, ops, content_type="application/json-patch+json"), lambda o: o["data"])
    whole = florin.api("GET", one)
    whole["data"] = {"c": "4"}
    whole["metadata"]["labels"]["app"] = "shop"
    got = florin.api("PUT", one, whole)
    check(one, got, lambda o: (o["data"], o["metadata"]["labels"]["app"]))
    assert got["metadata"]["uid"] == local["metadata"]["uid"] and got["data"] == {"c": "4"}
    assert int(got["metadata"]["resourceVersion"]) > int(local["metadata"]["resourceVersion"])
    apply = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "verbs"}, "data": {"d": "5"}}
    check(one, florin.api("PATCH", f"{one}?fieldManager=me", apply, content_type="application/apply-patch+yaml"), lambda o: o["data"])
    del apply["data"]["d"]
    got = florin.api("PATCH", f"{one}?fieldManager=me", apply, content_type="application/apply-patch+yaml")
    assert got["data"] == {"c": "4"}, "apply takes away what it had set"
    check(one, got, lambda o: o["data"])

    kubectl = florin.tools(tmp_path).kubectl
    kubectl("scale", "-n", "shop", "deployment/verbs", "--replicas=3")
    check(dep, florin.api("GET", dep), lambda o: o["spec"]["replicas"])
    assert florin.api("PATCH", f"{dep}/scale", {"spec": {"replicas": 2}}, **MERGE)["spec"]["replicas"] == 2
    check(dep, florin.api("GET", dep), lambda o: o["spec"]["replicas"])
    kubectl("set", "image", "-n", "shop", "deployment/verbs", "c=y")
    check(dep, florin.api("GET", dep), lambda o: o["spec"]["template"])
    kubectl("delete", "-n", "shop", "deployment/verbs", "--wait=false")
    assert center.request("GET", SHOP + dep)[0] == florin.request("GET", dep)[0] == 404
    kubectl("delete", "-n", "shop", "configmap", "-l", "app=shop")
    assert center.request("GET", SHOP + one)[0] == florin.request("GET", one)[0] == 404


def test_each_keeps_its_own_part(both):
    center, florin, make = both
    make(config("parts", a="1"), deployment("parts"))
    one, dep = f"{MAPS}/parts", f"{DEPLOYMENTS}/parts"
    florin.api("PATCH", one, {"metadata": {"labels": {"rack": "4"}, "annotations": {"seen": "yes"}, "finalizers": ["example.org/x"]}}, **MERGE)
    florin.api("PATCH", f"{dep}/status", {"status": {"replicas": 1, "readyReplicas": 1}}, **MERGE)
    there = at_center(center, one)
    assert "rack" not in there["metadata"]["labels"] and "seen" not in there["metadata"]["annotations"]
    assert "finalizers" not in there["metadata"]
    # Both parts in one write.
    got = florin.api("PATCH", one, {"data": {"a": "2"}, "metadata": {"labels": {"rack": "5", "app": "shop"}}}, **MERGE)
    assert got["data"] == {"a": "2"} and got["metadata"]["labels"]["rack"] == "5" and got["metadata"]["labels"]["app"] == "shop"
    there = at_center(center, one)
    assert there["data"] == {"a": "2"} and there["metadata"]["labels"] == {"app": "shop"}
    # What the center does leaves the edge's part alone.
    center.api("PATCH", SHOP + one, {"data": {"a": "3"}, "metadata": {"labels": {"app": "x"}}}, **MERGE)
    wait_for("the center's change", lambda: florin.api("GET", one)["data"]["a"] == "3")
    labels = florin.api("GET", one)["metadata"]["labels"]
    assert labels["rack"] == "5" and labels["app"] == "x"
    assert florin.api("GET", dep)["status"]["readyReplicas"] == 1
    # That an object is the center's cannot be taken off it.
    florin.api("PATCH", one, {"metadata": {"labels": {"edge.kcp.io/projected": None}}}, **MERGE)
    assert florin.api("GET", one)["metadata"]["labels"]["edge.kcp.io/projected"] == "yes"
    # Its owners are the edge's, whose collector leaves it alone all the same.
    owner = florin.api("POST", MAPS, config("owner"))["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    florin.api("PATCH", one, {"metadata": {"ownerReferences": [reference]}}, **MERGE)
    florin.api("POST", MAPS, {**config("owned"), "metadata": {"name": "owned", "ownerReferences": [reference]}})
    florin.api("DELETE", f"{MAPS}/owner")
    wait_for("what the edge owns to be collected", lambda: florin.request("GET", f"{MAPS}/owned")[0] == 404)
    assert florin.api("GET", one)["data"] == at_center(center, one)["data"] == {"a": "3"}
    # Made here, it is the edge's.
    florin.api("POST", MAPS, config("mine"))
    florin.api("PATCH", f"{MAPS}/mine", {"data": {"a": "9"}}, **MERGE)
    assert center.request("GET", f"{SHOP}{MAPS}/mine")[0] == 404
    florin.api("DELETE", f"{MAPS}/mine")
    florin.api("PATCH", one, {"metadata": {"finalizers": None}}, **MERGE)


def test_the_center_judges(both):
    """Admission, validation, versions and dry runs are the center's, told in its own words."""
    center, florin, make = both
    make(config("judged", a="1"), deployment("judged"))
    one = f"{MAPS}/judged"
    old = florin.api("GET", one)
    florin.api("PATCH", one, {"data": {"a": "2"}}, **MERGE)
    old["data"]["a"] = "3"
    assert florin.api("PUT", one, old, expect=(409,))["reason"] == "Conflict"
    dry = florin.api("PATCH", f"{one}?dryRun=All", {"data": {"a": "4"}}, **MERGE)
    assert dry["data"]["a"] == "4"
    assert florin.api("GET", one)["data"]["a"] == at_center(center, one)["data"]["a"] == "2"
    florin.api("DELETE", f"{one}?dryRun=All")
    assert florin.api("GET", one) and at_center(center, one)
    center.api("PATCH", SHOP + one, {"immutable": True}, **MERGE)
    wait_for("the change", lambda: florin.api("GET", one).get("immutable"))
    florin.api("PATCH", one, {"data": {"a": "5"}}, **MERGE, expect=(422,))
    # Somebody whom the edge lets do it, and the center does not.
    status = as_local(florin, "bob", "PATCH", one, {"metadata": {"labels": {"app": "y"}}})
    assert status["code"] == 403 and '"edge:root:florin:bob"' in status["message"] and "root:shop" in status["message"], status


def as_local(edge, user, method, path, body=None, groups=()):
    """A Status or an object, as a user of the edge who may do everything there."""
    name = "everything-" + user.replace(":", "-")
    edge.api("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
        "metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]}, expect=(201, 409))
    status, _, raw = edge.request(method, path, body, headers={"Impersonate-User": user}, **MERGE)
    return json.loads(raw)


def test_both_sides_write_at_once(both):
    """Nothing is lost when the center and clients on the edge change the same object."""
    center, florin, make = both
    make(config("race", start="0"))
    one, rounds, failures = f"{MAPS}/race", 12, []

    def write(server, path, who):
        for n in range(rounds):
            code, _, raw = server.request("PATCH", path, {"data": {f"{who}{n}": "x"}}, **MERGE)
            if code != 200:
                failures.append((who, n, code, raw[:200]))

    threads = [threading.Thread(target=write, args=args) for args in
               [(center, SHOP + one, "center"), (florin, one, "a"), (florin, one, "b")]]
    [t.start() for t in threads]
    join(*threads)
    assert not failures, failures[:3]
    want = {f"{who}{n}" for who in ("center", "a", "b") for n in range(rounds)} | {"start"}
    assert set(at_center(center, one)["data"]) == want
    wait_for("the edge to agree", lambda: set(florin.api("GET", one)["data"]) == want)


def test_the_page(both, tmp_path):
    """The commands of docs/explanation/ownership.md, in order."""
    center, florin, make = both
    make(config("menu"))
    shop = tmp_path / "shop.kubeconfig"
    shop.write_text(selvedge("kubeconfig", "--data-dir", center.data_dir, "--workspace", "root:shop"))
    page = (ROOT / "docs/explanation/ownership.md").read_text()
    commands = "".join(re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S))
    tools = florin.tools(tmp_path / "home")
    done = tools.run(["bash", "-euxc", commands], env={"SHOP": str(shop), "EDGE": str(florin.kubeconfig)})
    assert commands.count("kubectl") == 3 and "florin created" in done.stdout and "menu annotated" in done.stdout
    wait_for("the annotation", lambda: QUEUE in florin.api("GET", f"{MAPS}/menu")["metadata"]["annotations"])
    # Everybody of the edge may write now, and nobody else: bob was refused before.
    assert as_local(florin, "bob", "PATCH", f"{MAPS}/menu", {"data": {"a": "bob's"}}).get("data") == {"a": "bob's"}
    center.api("DELETE", f"{SHOP}/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/florin")


# ---- without ----

def test_without_a_link(both, tmp_path):
    center, florin, make = both
    make(config("strict", a="1"), deployment("strict"), config("waits", queue=True, a="1"), deployment("waits", queue=True),
         config("goes", queue=True), config("clash", queue=True, a="1"), config("denied", queue=True, a="1"),
         config("regret", queue=True, a="1"))
    center.api("POST", f"{SHOP}/api/v1/namespaces/shop/secrets", {"metadata": {"name": "vault", "annotations": {QUEUE: "queue"}}, "data": {"pin": "MDAwMA=="}})
    wait_for("the Secret", lambda: florin.api("GET", VAULT))
    florin.cut()
    strict = f"{MAPS}/strict"

    # What is the edge's own goes on.
    assert florin.api("GET", strict)["data"] == {"a": "1"}
    florin.api("PATCH", strict, {"metadata": {"labels": {"rack": "4"}, "annotations": {"seen": "yes"}}}, **MERGE)
    florin.api("PATCH", f"{DEPLOYMENTS}/strict/status", {"status": {"replicas": 1}}, **MERGE)
    florin.api("POST", MAPS, config("offline"))
    florin.api("DELETE", f"{MAPS}/offline")

    # What is the center's is refused, and says why and for how long.
    for method, path, body in [("PATCH", strict, {"data": {"a": "2"}}), ("PATCH", strict, {"metadata": {"labels": {"app": "x"}}}),
                               ("DELETE", strict, None), ("PATCH", f"{DEPLOYMENTS}/strict/scale", {"spec": {"replicas": 2}}),
                               ("PATCH", f"{MAPS}/waits?dryRun=All", {"data": {"a": "2"}})]:
        code, headers, raw = florin.request(method, path, body, **(MERGE if body else {}))
        status = json.loads(raw)
        assert code == 503 and int(headers["retry-after"]) >= 1, (method, path, code, raw)
        assert status["reason"] == "ServiceUnavailable" and "center" in status["message"] and "since" in status["message"], status
    # An edge cannot allow itself to keep writes.
    florin.api("PATCH", strict, {"metadata": {"annotations": {QUEUE: "queue"}}}, **MERGE)
    assert florin.request("PATCH", strict, {"data": {"a": "2"}}, **MERGE)[0] == 503

    # Where the center allows it, writes are kept, and read.
    code, headers, raw = florin.request("PATCH", f"{MAPS}/waits", {"data": {"a": "2"}, "metadata": {"labels": {"rack": "4"}}}, **MERGE)
    got = json.loads(raw)
    assert code == 200 and got["data"] == {"a": "2"} and "OfflineWrite write-" in headers["warning"], (headers, raw)
    assert got["metadata"]["annotations"][PENDING] in headers["warning"]
    florin.api("PATCH", f"{MAPS}/waits", {"data": {"a": None, "b": "3"}}, **MERGE)
    whole = florin.api("GET", f"{MAPS}/waits")
    assert whole["data"] == {"b": "3"}
    whole["data"]["c"] = "4"
    florin.api("PUT", f"{MAPS}/waits", whole)
    florin.api("PATCH", f"{DEPLOYMENTS}/waits/scale", {"spec": {"replicas": 4}}, **MERGE)
    assert florin.api("GET", f"{DEPLOYMENTS}/waits")["spec"]["replicas"] == 4
    florin.api("DELETE", f"{MAPS}/goes")
    assert florin.request("GET", f"{MAPS}/goes")[0] == 404
    florin.api("PATCH", f"{MAPS}/clash", {"data": {"a": "edge"}}, **MERGE)
    florin.api("PATCH", f"{MAPS}/clash", {"data": {"b": "edge too"}}, **MERGE)
    assert as_local(florin, "carol", "PATCH", f"{MAPS}/denied", {"data": {"a": "carol's"}})["data"]["a"] == "carol's"
    florin.api("PATCH", f"{MAPS}/regret", {"data": {"a": "oh no"}}, **MERGE)
    center.api("PATCH", f"{SHOP}{MAPS}/clash", {"data": {"a": "center"}}, **MERGE)
    florin.api("PATCH", VAULT, {"data": {"pin": SECRET}}, **MERGE)
    waiting = writes(florin)
    assert [w["spec"]["object"]["name"] for w in waiting.values()] == ["waits"] * 4 + ["goes", "clash", "clash", "denied", "regret", "vault"]
    assert {w["status"]["state"] for w in waiting.values()} == {"Pending"}
    assert at_center(center, f"{MAPS}/waits")["data"] == {"a": "1"}

    # What waits for a Secret is sealed as it is.
    stored = b"".join(file.read_bytes() for file in (florin.data_dir / "store").rglob("*") if file.is_file())
    assert b"offlinewrites" in stored and SECRET.encode() not in stored and SECRET not in florin.log_path.read_text()
    assert next(w for w in waiting.values() if w["spec"]["object"]["name"] == "vault")["spec"]["write"]["patch"]["data"] == {"pin": SECRET}

    # They can be looked at, not made, and not by everybody.
    table = florin.tools(tmp_path).kubectl("get", "offlinewrites")
    assert "Pending" in table and "clash" in table and "carol" in table, table
    florin.api("POST", WRITES, next(iter(waiting.values())), expect=(405,))
    assert florin.request("GET", WRITES, headers={"Impersonate-User": "nobody"})[0] == 403
    # Taken back, it never was.
    regret = next(n for n, w in waiting.items() if w["spec"]["object"]["name"] == "regret")
    florin.api("DELETE", f"{WRITES}/{regret}")
    wait_for("the write to be undone", lambda: florin.api("GET", f"{MAPS}/regret")["data"] == {"a": "1"})
    assert PENDING not in florin.api("GET", f"{MAPS}/regret")["metadata"]["annotations"]

    # Through a restart, without a link.
    florin.kill()
    florin.start()
    assert florin.api("GET", f"{MAPS}/waits")["data"] == {"b": "3", "c": "4"}
    del waiting[regret]
    assert list(writes(florin)) == list(waiting)
    assert florin.request("PATCH", strict, {"data": {"a": "2"}}, **MERGE)[0] == 503

    florin.heal()
    wait_for("the queue to be decided", lambda: all(w["status"]["state"] != "Pending" for w in writes(florin).values()), 30)
    left = writes(florin)
    assert [(w["spec"]["object"]["name"], w["status"]["state"], w["status"]["code"]) for w in left.values()] == [
        ("clash", "Conflict", 409), ("clash", "Conflict", 409), ("denied", "Refused", 403)], left

    # What was taken is at the center, in order, once.
    there = at_center(center, f"{MAPS}/waits")
    assert there["data"] == {"b": "3", "c": "4"} and "rack" not in there["metadata"]["labels"]
    scaled = at_center(center, f"{DEPLOYMENTS}/waits")
    assert scaled["spec"]["replicas"] == 4
    assert int(there["metadata"]["resourceVersion"]) < int(scaled["metadata"]["resourceVersion"])
    assert center.request("GET", f"{SHOP}{MAPS}/goes")[0] == 404 and at_center(center, VAULT)["data"]["pin"] == SECRET
    here = florin.api("GET", f"{MAPS}/waits")
    assert here["metadata"]["labels"]["rack"] == "4" and PENDING not in here["metadata"]["annotations"]

    # What was not taken can be read, and the objects are the center's again.
    wait_for("clash to be the center's", lambda: florin.api("GET", f"{MAPS}/clash")["data"] == {"a": "center"})
    wait_for("denied to be the center's", lambda: florin.api("GET", f"{MAPS}/denied")["data"] == {"a": "1"})
    assert at_center(center, f"{MAPS}/clash")["data"] == {"a": "center"} and at_center(center, f"{MAPS}/denied")["data"] == {"a": "1"}
    first, second, denied = left.values()
    assert first["spec"]["write"]["patch"] == {"data": {"a": "edge"}} and first["status"]["wanted"]["data"] == {"a": "edge"}
    assert second["status"]["wanted"]["data"] == {"a": "edge", "b": "edge too"} and first["metadata"]["name"] in second["status"]["message"]
    assert denied["status"]["wanted"]["data"] == {"a": "carol's"} and "edge:root:florin:carol" in denied["status"]["message"]
    for name, reason in (("clash", "OfflineWriteConflict"), ("denied", "OfflineWriteRefused")):
        for server, prefix in ((florin, ""), (center, SHOP)):
            told = server.api("GET", f"{prefix}/api/v1/namespaces/shop/events?fieldSelector=involvedObject.name={name}")["items"]
            assert [e for e in told if e["reason"] == reason and e["type"] == "Warning"], (name, prefix, told)
    told = wait_for("the condition", lambda: florin.condition("OfflineWritesRefused"))
    assert told["status"] == "True" and "3 writes" in told["message"] and "ConfigMap shop/denied" in told["message"], told
    for name in left:
        florin.api("DELETE", f"{WRITES}/{name}")
    assert not writes(florin)
    wait_for("the condition to go", lambda: florin.condition("OfflineWritesRefused")["status"] == "False")


def test_a_replay_happens_once(both):
    """However often edge or center are killed during a replay, each write is done once."""
    center, florin, make = both
    make(deployment("once", queue=True))
    dep = f"{DEPLOYMENTS}/once"
    before = at_center(center, dep)["metadata"]["generation"]
    florin.cut()
    count = 30
    for n in range(count):
        florin.api("PATCH", dep, {"spec": {"replicas": n + 2}}, **MERGE)
    center.api("PATCH", "/apis/workload.kcp.io/v1alpha1/synctargets/florin", {"metadata": {"annotations": {"edge.selvedge.dev/link": None}}}, **MERGE)
    left, rounds = count, 0
    while left:
        wait_for("progress", lambda: len(writes(florin)) < left or not writes(florin), 60, every=0.001)
        killed = center if rounds % 3 == 2 else florin
        killed.kill()
        killed.start()
        left, rounds = len(writes(florin)), rounds + 1
        assert {w["status"]["state"] for w in writes(florin).values()} <= {"Pending"}, writes(florin)
    there = at_center(center, dep)
    assert there["spec"]["replicas"] == count + 1 and there["metadata"]["generation"] == before + count, rounds
    florin.wait_connected()
    wait_for("the edge to agree", lambda: florin.api("GET", dep)["spec"]["replicas"] == count + 1)
