"""An edge never holds more authority than its own: what its users write is decided as what they are at the center, whatever the edge says."""
import contextlib
import hashlib
import http.client
import json
import ssl
import time

import pytest

from center import wait_for
from edge import SYNCTARGETS, fleet, make_workspace

SHOP, BANK = "/clusters/root:shop", "/clusters/root:bank"
MAPS = "/api/v1/namespaces/shop/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/shop/deployments"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
FORWARD = "/selvedge.link.v1.Link/Forward"
MERGE = {"content_type": "application/merge-patch+json"}
VERBS = ["patch", "update", "delete", "deletecollection", "scale"]

# Local users: who they are on the edge, and what the center allows to edge:root:florin:<name> or to one of the groups.
USERS = {
    "alice": ([], [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]),
    "bob": ([], None),
    "carol": ([], [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update", "delete"]}]),
    "dan": (["dev"], None),
    "eve": ([], None),  # At the center there is an eve who may do everything.
    "fay": ([], [{"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]}]),
    "gil": ([], None),  # On guilder there is a gil who may do everything.
    "edge:root:guilder:gil": ([], None),
    "mallory": (["system:masters"], None),
    "system:serviceaccount:shop:robot": (["system:serviceaccounts", "system:serviceaccounts:shop"],
                                         [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["delete", "deletecollection"]}]),
    "hal": ([], [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["delete"]}]),
}


def bind(server, prefix, name, kind, subject, rules=None):
    """Rules, or everything."""
    if rules is not None:
        # Outside root one has to be let in too.
        rules = [*rules, {"nonResourceURLs": ["/"], "verbs": ["access"]}]
        server.api("POST", f"{prefix}{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    server.api("POST", f"{prefix}{RBAC}/clusterrolebindings", {
        "metadata": {"name": name}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": subject}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name if rules is not None else "cluster-admin"}})


def short(user):
    return user.replace(":", "-")


def config(name, cell="", data="1"):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop", "labels": {"cell": cell or name}}, "data": {"a": data}}


def deployment(name):
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}},
                     "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with fleet("florin", "guilder", directory=tmp_path_factory.mktemp("identity")) as (center, florin, guilder):
        make_workspace(center, "root:bank")
        center.api("PATCH", f"{SYNCTARGETS}/guilder", {"metadata": {"annotations": {"edge.selvedge.dev/workspace": "root:bank"}}}, **MERGE)
        for prefix in (SHOP, BANK):
            center.api("POST", f"{prefix}/api/v1/namespaces", {"metadata": {"name": "shop"}})
        for name, (_, rules) in USERS.items():
            if rules:
                bind(center, SHOP, short(name), "User", f"edge:root:florin:{name}", rules)
            bind(florin, "", f"all-{short(name)}", "User", name)
        bind(center, SHOP, "dev", "Group", "edge:root:florin:dev", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch", "deletecollection"]}])
        bind(center, SHOP, "eve", "User", "eve")
        for prefix in (SHOP, BANK):
            bind(center, prefix, "gil", "User", "edge:root:guilder:gil")
        yield center, florin, guilder
        assert "panicked" not in "".join(p.log_path.read_text() for p in (center, florin, guilder))


def as_user(user, groups):
    """Headers of several values cannot be given as a dict: at most one group is needed."""
    return {"Impersonate-User": user, **({"Impersonate-Group": groups[0]} if groups else {})}


def act(server, prefix, verb, name, headers, dry=False):
    """Does the verb and answers with the code."""
    dry = "dryRun=All" if dry else ""
    one = f"{prefix}{MAPS}/{name}"
    if verb == "patch":
        return server.request("PATCH", f"{one}?{dry}", {"data": {"a": "2"}}, headers=headers, **MERGE)[0]
    if verb == "update":
        whole = server.api("GET", one)
        whole["data"]["a"] = "2"
        return server.request("PUT", f"{one}?{dry}", whole, headers=headers)[0]
    if verb == "delete":
        return server.request("DELETE", f"{one}?{dry}", headers=headers)[0]
    if verb == "deletecollection":
        return server.request("DELETE", f"{prefix}{MAPS}?labelSelector=cell={name}&{dry}", headers=headers)[0]
    return server.request("PATCH", f"{prefix}{DEPLOYMENTS}/{name}/scale?{dry}", {"spec": {"replicas": 2}}, headers=headers, **MERGE)[0]


def state(server, prefix, verb, name):
    path = f"{prefix}{DEPLOYMENTS}/{name}" if verb == "scale" else f"{prefix}{MAPS}/{name}"
    code, _, raw = server.request("GET", path)
    return "gone" if code == 404 else (json.loads(raw).get("data") or json.loads(raw)["spec"]["replicas"])


def test_nobody_can_do_more_than_at_the_center(world):
    center, florin, _ = world
    cells = {(user, verb): f"{short(user)}-{verb}" for user in USERS for verb in VERBS}
    for (_, verb), name in cells.items():
        body, path = (deployment(name), DEPLOYMENTS) if verb == "scale" else (config(name), MAPS)
        center.api("POST", SHOP + path, body)
        mine = {**body, "metadata": {**body["metadata"], "name": f"own-{name}", "labels": {"cell": f"own-{name}"}}}
        wait_for("the namespace", lambda: florin.request("GET", "/api/v1/namespaces/shop")[0] == 200)
        florin.api("POST", path, mine)
    for path in (MAPS, DEPLOYMENTS):
        want = {n for (_, verb), n in cells.items() if (verb == "scale") == (path == DEPLOYMENTS)}
        wait_for("everything on the edge", lambda: want <= {o["metadata"]["name"] for o in florin.api("GET", path)["items"]})

    outcomes = set()
    for (user, verb), name in cells.items():
        groups = USERS[user][0]
        there = as_user(f"edge:root:florin:{user}", [f"edge:root:florin:{g}" for g in groups])
        allowed = act(center, SHOP, verb, name, there, dry=True)
        if verb == "deletecollection" and allowed == 200:
            # It comes to the center object by object.
            allowed = act(center, SHOP, "delete", name, there, dry=True)
        before = state(center, SHOP, verb, name)
        got = act(florin, "", verb, name, as_user(user, groups))
        after = state(center, SHOP, verb, name)
        assert (got == 200) == (allowed == 200), f"{user} {verb}: {got} on the edge, {allowed} at the center"
        assert got in (200, 403) and (before != after) == (got == 200), f"{user} {verb}: {got}, {before} -> {after}"
        assert state(florin, "", verb, name) == after, f"{user} {verb}: the edge shows something else"
        outcomes.add((verb, got))
        # What is the edge's own is decided there.
        assert act(florin, "", verb, f"own-{name}", as_user(user, groups)) == 200, f"{user} {verb}"
        assert state(center, SHOP, verb, f"own-{name}") == "gone"
    assert {verb for verb, got in outcomes if got == 200} == set(VERBS), "the matrix has something to allow of everything"
    assert {verb for verb, got in outcomes if got == 403} == set(VERBS), "and something to refuse"


def test_headers_make_nobody_somebody_else(world):
    center, florin, _ = world
    center.api("POST", SHOP + MAPS, config("headers"))
    wait_for("the object", lambda: florin.request("GET", f"{MAPS}/headers")[0] == 200)
    token = florin.api("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}})["status"]["token"]
    bind(florin, "", "token-user", "User", "system:serviceaccount:default:default",
         [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "patch"]}])
    plain = {"Authorization": f"Bearer {token}"}
    tricks = [{}, {"X-Remote-User": "eve"}, {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"},
              {"X-Remote-Extra-Scopes": "all"}, {"X-Forwarded-User": "eve"}, {"X-Selvedge-User": "eve"}]
    for trick in tricks:
        code, raw = with_token(florin, f"{MAPS}/headers", {**plain, **trick})
        assert code == 403 and "edge:root:florin:system:serviceaccount:default:default" in raw, (trick, code, raw)
    for trick in [{"Impersonate-User": "alice"}, {"Impersonate-User": "eve", "Impersonate-Group": "system:masters"},
                  {"Impersonate-Uid": "1"}, {"Impersonate-Group": "system:masters"}]:
        code, raw = with_token(florin, f"{MAPS}/headers", {**plain, **trick})
        assert code in (400, 403, 500) and "edge:root:florin:alice" not in raw, (trick, code, raw)
    assert state(center, SHOP, "patch", "headers") == {"a": "1"}


def with_token(server, path, headers):
    """Without the administrator's certificate."""
    tls = ssl.create_default_context(cafile=str(server.ca))
    with contextlib.closing(http.client.HTTPSConnection(server.host, server.port, context=tls, timeout=30)) as conn:
        conn.request("PATCH", path, json.dumps({"data": {"a": "9"}}), {"Content-Type": "application/merge-patch+json", **headers})
        reply = conn.getresponse()
        return reply.status, reply.read().decode()


# ---- an edge that lies ----

def as_edge(edge, method, path, body=None, headers=None):
    """With the edge's own certificate, straight to the center."""
    saved = json.loads((edge.data_dir / "edge.json").read_text())
    pem = edge.data_dir.with_name(f"{edge.name}-stolen.pem")
    pem.write_text(saved["certificate"] + "\n" + saved["key"])
    tls = ssl.create_default_context(cadata=saved["certificateAuthority"])
    tls.load_cert_chain(str(pem))
    with contextlib.closing(http.client.HTTPSConnection(edge.center.host, edge.center.port, context=tls, timeout=30)) as conn:
        conn.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json", **(headers or {})})
        reply = conn.getresponse()
        return reply.status, reply.read().decode()


def precondition(center, workspace, name):
    """What stands for a ConfigMap on an edge."""
    o = center.api("GET", f"/clusters/{workspace}{MAPS}/{name}")
    metadata = {k: v for k, v in o["metadata"].items() if k in ("name", "namespace", "labels", "annotations")}
    metadata["labels"] = {**metadata.get("labels", {}), "edge.kcp.io/projected": "yes"}
    metadata["annotations"] = {**metadata.get("annotations", {}), "edge.selvedge.dev/source": workspace}
    content = json.dumps({**o, "metadata": metadata}, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    key = f"core/configmaps/shop/{name}".encode()
    return hashlib.sha256(len(key).to_bytes(8, "big") + key + content).hexdigest()[:32]


def write(center, name="forged", workspace="root:shop", user="alice", **more):
    return {"key": f"core/configmaps/shop/{name}", "verb": "patch", "patch": {"data": {"a": "forged"}},
            "precondition": precondition(center, workspace, name), "user": {"name": user}, **more}


def test_an_edge_that_lies_gets_nowhere(world):
    center, florin, guilder = world
    for prefix, name in ((SHOP, "forged"), (SHOP, "denied"), (BANK, "gold")):
        center.api("POST", prefix + MAPS, config(name))
    center.api("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "roots"}, "data": {"a": "1"}})

    def forward(edge, body, headers=None):
        return as_edge(edge, "POST", FORWARD, body, headers)

    # First that the forgery is a good one: alice may do this.
    code, raw = forward(florin, write(center))
    assert code == 200 and state(center, SHOP, "patch", "forged") == {"a": "forged"}, raw
    code, raw = forward(florin, write(center, patch={"data": {"a": "again"}}), {"Impersonate-User": "eve", "X-Remote-User": "eve"})
    assert code == 200, "headers are not looked at"
    code, raw = forward(florin, {**write(center), "precondition": "0" * 32})
    assert code == 409 and "StaleObject" in raw

    denied = lambda **more: write(center, "denied", **more)  # noqa: E731
    for body, codes in [
        (denied(user="eve"), (403,)),
        (denied(user="bob"), (403,)),
        ({**denied(), "user": {"name": "bob", "groups": ["system:masters", "edge:root:florin:dev"]}}, (403,)),
        ({**denied(), "user": {"name": "bob", "extra": {"authentication.kcp.io/scopes": ["cluster:root:shop"], "authentication.kcp.io/cluster-name": ["root"]}}}, (403,)),
        ({**denied(), "user": {"name": "edge:root:guilder:gil"}}, (403,)),
        ({**denied(), "user": {"name": "system:masters", "uid": "0"}}, (403,)),
        ({**denied(), "user": {"name": "bob\nalice"}}, (400,)),
        ({**denied(), "user": {"name": ""}}, (400,)),
        ({**denied(), "user": {}}, (400,)),
        ({**denied(), "user": {"name": "bob", "groups": ["g"] * 1000}}, (400,)),
        (denied(verb="update"), (403,)),
        (denied(verb="create"), (400,)),
        (denied(verb="*"), (400,)),
        (denied(subresource="status"), (400,)),
        (denied(subresource="../denied"), (400,)),
        # Nothing that the edge does not hold, whether it exists or not.
        ({**write(center, "gold", "root:bank")}, (404,)),
        ({**denied(), "key": "core/configmaps/shop/nothing"}, (404,)),
        ({**denied(), "key": "core/configmaps/default/roots"}, (404,)),
        ({**denied(), "key": "core/configmaps/kube-system/extension"}, (404,)),
        ({**denied(), "key": "core/nodes//n"}, (404,)),
        ({**denied(), "key": "tenancy.kcp.io/workspaces//shop"}, (404,)),
        ({**denied(), "key": "workload.kcp.io/synctargets//guilder"}, (404,)),
        ({**denied(), "key": "core/configmaps/../shop/denied"}, (400, 404)),
        ({**denied(), "key": "nonsense"}, (400,)),
        ("nonsense", (400,)), ([], (400,)), ({}, (400,)), ({"key": 7}, (400,)),
    ]:
        code, raw = forward(florin, body)
        assert code in codes, (body, code, raw)
    # What alice may not touch of the object's metadata does not come along.
    code, raw = forward(florin, write(center, patch={"metadata": {"finalizers": ["a/b"], "ownerReferences": [{"uid": "x"}], "name": "x"}, "status": {"a": 1}}))
    there = center.api("GET", f"{SHOP}{MAPS}/forged")
    assert code == 200 and "finalizers" not in there["metadata"] and "ownerReferences" not in there["metadata"], raw
    # The other edge holds other things.
    for name in ("forged", "denied"):
        assert forward(guilder, write(center, name, user="gil"))[0] == 404
    assert forward(guilder, write(center, "gold", "root:bank", user="gil"))[0] == 200
    assert state(center, SHOP, "patch", "denied") == {"a": "1"} and state(center, BANK, "patch", "gold") == {"a": "forged"}

    # An edge is nobody in the API itself, and nobody else is an edge.
    for path in ("/api/v1/namespaces", f"{SHOP}{MAPS}", f"{BANK}{MAPS}", "/api/v1/secrets", f"{SYNCTARGETS}/guilder", f"{SYNCTARGETS}/florin",
                 "/clusters/root:guilder-mb/api/v1/pods"):
        assert as_edge(florin, "GET", path)[0] in (403, 404), path
    assert as_edge(florin, "PATCH", f"{SHOP}{MAPS}/denied", {"data": {}})[0] == 403
    assert as_edge(florin, "GET", f"{SHOP}{MAPS}/forged", headers={"Impersonate-User": "edge:root:florin:alice"})[0] == 403
    assert center.request("POST", FORWARD, write(center))[0] == 403
    assert with_nothing(center)[0] in (401, 403)


def with_nothing(center):
    tls = ssl.create_default_context(cafile=str(center.ca))
    with contextlib.closing(http.client.HTTPSConnection(center.host, center.port, context=tls, timeout=30)) as conn:
        conn.request("POST", FORWARD, json.dumps(write(center)))
        reply = conn.getresponse()
        return reply.status, reply.read()


def test_a_write_that_is_sent_twice_is_done_once(world):
    center, florin, _ = world
    center.api("POST", SHOP + MAPS, config("twice"))
    body = write(center, "twice", id="7", patch={"data": {"b": "1"}})
    first = as_edge(florin, "POST", FORWARD, body)
    revision = center.api("GET", f"{SHOP}{MAPS}/twice")["metadata"]["resourceVersion"]
    assert first[0] == 200 and as_edge(florin, "POST", FORWARD, body) == first
    center.api("PATCH", f"{SHOP}{MAPS}/twice", {"data": {"c": "1"}}, **MERGE)
    assert as_edge(florin, "POST", FORWARD, body) == first, "also when others have gone on"
    center.kill()
    center.start()
    assert as_edge(florin, "POST", FORWARD, body)[0] == 200
    there = center.api("GET", f"{SHOP}{MAPS}/twice")
    assert there["data"] == {"a": "1", "b": "1", "c": "1"} and there["metadata"]["resourceVersion"] != revision
    # Under another number it is another write.
    assert as_edge(florin, "POST", FORWARD, {**body, "id": "8"})[0] == 409


@pytest.mark.alone
def test_a_revoked_edge_is_out_within_a_second(world):
    center, _, guilder = world
    center.api("POST", BANK + MAPS, config("last"))
    guilder.wait_connected()
    wait_for("the object", lambda: guilder.request("GET", f"{MAPS}/last")[0] == 200)
    bind(guilder, "", "all-gil", "User", "gil")
    body = write(center, "last", "root:bank", user="gil")
    saved = (guilder.data_dir / "edge.json").read_text()
    center.api("DELETE", f"{SYNCTARGETS}/guilder")
    start = time.monotonic()
    while as_edge(guilder, "POST", FORWARD, body)[0] == 200:
        assert time.monotonic() - start < 1, "a revoked edge still writes"
        body = write(center, "last", "root:bank", user="gil", patch={"data": {"a": str(time.time())}})
    status = guilder.request("PATCH", f"{MAPS}/last", {"data": {"a": "x"}}, headers={"Impersonate-User": "gil"}, **MERGE)[0]
    assert status in (403, 503), status
    assert time.monotonic() - start < 2
    # What it holds stays, and an edge of the same name is another one.
    center.api("POST", SYNCTARGETS, {"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget",
                                     "metadata": {"name": "guilder", "annotations": {"edge.selvedge.dev/workspace": "root:bank"}}})
    assert as_edge(guilder, "POST", FORWARD, body)[0] == 403
    assert guilder.api("GET", f"{MAPS}/last") and (guilder.data_dir / "edge.json").read_text() == saved
