"""The provider's view: its kinds and claims over all workspaces that bind its export, and nothing else."""
import contextlib
import itertools
import json

from center import wait_for
from exports import APIS, admit, alice, allow, bind, center, condition, export, homes, schema, unbind, view, widget, widgets, workspace  # noqa: F401 (fixtures)


@contextlib.contextmanager
def watching(center, path):
    """The events of a watch, one after the other."""
    conn = center.connection(timeout=10)
    conn.request("GET", center.path + path, headers={"Accept": "application/json"})
    reply = conn.getresponse()
    assert reply.status == 200, reply.read()
    def events():
        while line := reply.readline():
            event = json.loads(line)
            if event["type"] != "BOOKMARK":
                yield event
    try:
        yield events()
    finally:
        conn.close()


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def claim(state=None, group="", resource="configmaps", identity="", **what):
    made = {"group": group, "resource": resource, "identityHash": identity, **(what or {"all": True})}
    return {**made, "state": state} if state else made


def maps(base, name=""):
    return f"{base}/api/v1/namespaces/default/configmaps" + (f"/{name}" if name else "")


def test_the_provider_sees_its_objects_everywhere(center):
    provider, one, two, other = (workspace(center, stem) for stem in ("provider", "one", "two", "other"))
    made = export(center, provider, schema())
    for path in (one, two):
        bind(center, path, provider)
        center.api("POST", widgets(path), widget("a"))
    # An export of the same name and shape elsewhere has nothing to do with it.
    export(center, other, schema())
    stranger = workspace(center, "stranger")
    bind(center, stranger, other)
    center.api("POST", widgets(stranger), widget("hidden"))
    everywhere = view(made, "*") + "/apis/example.io/v1"
    listed = center.api("GET", f"{everywhere}/widgets")
    assert homes(listed) == [(one, "a"), (two, "a")]
    version = listed["metadata"]["resourceVersion"]
    with watching(center, f"{everywhere}/widgets?watch=1&resourceVersion={version}") as events:
        center.api("POST", widgets(two), widget("b"))
        center.api("POST", widgets(stranger), widget("c"))
        # The provider writes in one workspace, and what it was shown it may send back.
        mine = view(made, one) + "/apis/example.io/v1/namespaces/default/widgets"
        got = center.api("GET", f"{mine}/a")
        assert got["metadata"]["annotations"]["kcp.io/cluster"] == one
        got["spec"]["size"] = 9
        assert center.api("PUT", f"{mine}/a", got)["spec"]["size"] == 9
        center.api("PATCH", f"{mine}/a/status", {"status": {"phase": "Seen"}}, content_type="application/merge-patch+json")
        stored = center.api("GET", widgets(one, "a"))
        assert stored["status"] == {"phase": "Seen"} and "annotations" not in stored["metadata"]
        center.api("POST", mine, widget("by-provider"))
        center.api("DELETE", f"{mine}/by-provider")
        late = workspace(center, "late")
        bind(center, late, provider)
        center.api("POST", widgets(late), widget("z"))
        unbind(center, late)
        seen = [(e["type"], e["object"]["metadata"]["annotations"]["kcp.io/cluster"], e["object"]["metadata"]["name"])
                for e in itertools.islice(events, 7)]
    assert seen == [("ADDED", two, "b"), ("MODIFIED", one, "a"), ("MODIFIED", one, "a"), ("ADDED", one, "by-provider"),
                    ("DELETED", one, "by-provider"), ("ADDED", late, "z"), ("DELETED", late, "z")]
    # Across workspaces one only looks.
    for method, at in (("POST", f"{everywhere}/namespaces/default/widgets"), ("DELETE", f"{everywhere}/namespaces/default/widgets/a"),
                       ("DELETE", f"{everywhere}/namespaces/default/widgets"), ("GET", f"{everywhere}/namespaces/default/widgets/a")):
        assert center.request(method, at, widget("x") if method == "POST" else None)[0] in (400, 404, 405), (method, at)


def test_nothing_else_is_behind_the_door(center):
    provider, one, other = (workspace(center, stem) for stem in ("provider", "one", "other"))
    made = export(center, provider, schema())
    bind(center, one, provider)
    center.api("POST", widgets(one), widget("a"))
    center.api("POST", maps(f"/clusters/{one}"), config_map("private"))
    for where in ("*", one):
        base = view(made, where)
        assert [g["name"] for g in center.api("GET", f"{base}/apis")["groups"]] == ["example.io"]
        resources = center.api("GET", f"{base}/apis/example.io/v1")["resources"]
        assert sorted(r["name"] for r in resources) == ["widgets", "widgets/status"]
        assert "apis/example.io/v1" in center.api("GET", f"{base}/openapi/v3")["paths"]
        for path in ("/api/v1/configmaps", "/api/v1/secrets", "/api/v1/namespaces", "/apis/apis.kcp.io/v1alpha1/apibindings",
                     "/apis/example.io/v2/widgets", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/metrics",
                     "/api/v1/namespaces/default/configmaps/private", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"):
            assert center.request("GET", base + path)[0] == 404, path
    # Workspaces that do not bind, that do not exist, and the provider's own.
    for where in (other, provider, "root", "root:nowhere"):
        base = view(made, where) + "/apis/example.io/v1/namespaces/default/widgets"
        assert center.request("GET", base)[0] == 404
        assert center.request("GET", f"{base}/a")[0] == 404
        assert center.request("POST", base, widget("x"))[0] == 404
        assert center.request("GET", view(made, where) + "/apis")[0] == 404
    # Exports that are not there, and paths that are not quite right.
    for path in (f"/services/apiexport/{provider}/none/clusters/*/apis/example.io/v1/widgets",
                 f"/services/apiexport/{other}/widgets/clusters/*/apis/example.io/v1/widgets"):
        assert center.request("GET", path)[0] == 404, path
    for path in (f"/services/apiexport/{provider}/widgets/apis/example.io/v1/widgets",
                 f"/services/apiexport/{provider}/widgets/clusters/{one}/../{other}/apis/example.io/v1/widgets",
                 f"/services/apiexport/{provider}/widgets/clusters/{one}%2f..%2f{other}/apis/example.io/v1/widgets",
                 "/services/apiexport/*/widgets/clusters/*/apis/example.io/v1/widgets"):
        assert center.request("GET", path)[0] == 400, path
    assert center.request("GET", f"/clusters/{one}{view(made, '*')}/apis/example.io/v1/widgets")[0] == 404


def test_the_view_needs_a_right_of_its_own(center, alice):
    provider, one = workspace(center, "provider"), workspace(center, "one")
    made = export(center, provider, schema())
    bind(center, one, provider)
    center.api("POST", widgets(one), widget("a"))
    everywhere = view(made, "*") + "/apis/example.io/v1/widgets"
    mine = view(made, one) + "/apis/example.io/v1/namespaces/default/widgets"
    alice.api("GET", everywhere, expect=[403])
    # To see the export, or to bind it, is not to see its content; nor are rights in the binder's workspace.
    admit(center, provider, "alice", "system:kcp:workspace:access")
    allow(center, provider, "alice", ["*"], ["apiexports"])
    admit(center, one, "alice")
    alice.api("GET", everywhere, expect=[403])
    alice.api("GET", view(made, "*") + "/apis", expect=[403])
    take = allow(center, provider, "alice", ["get", "list", "watch"], ["apiexports/content"], resourceNames=["widgets"])
    assert homes(alice.api("GET", everywhere)) == [(one, "a")]
    alice.api("GET", view(made, "*") + "/apis")
    refused = alice.api("DELETE", f"{mine}/a", expect=[403])
    assert "apiexports/content" in refused["message"]
    take()
    alice.api("GET", everywhere, expect=[403])
    alice.api("GET", f"{mine}/a", expect=[403])


def test_claims_give_what_binders_accept(center):
    provider, yes, no, some = (workspace(center, stem) for stem in ("provider", "yes", "no", "some"))
    made = export(center, provider, schema(), permissionClaims=[claim(), claim(resource="serviceaccounts")])
    for path in (yes, no, some):
        for name in ("one", "two"):
            center.api("POST", maps(f"/clusters/{path}"), config_map(name))
    everywhere = view(made, "*") + "/api/v1/configmaps"
    seen = lambda: [home for home in homes(center.api("GET", everywhere)) if home[1] in ("one", "two", "new")]  # noqa: E731
    assert seen() == []
    bind(center, no, provider, claims=[claim("Rejected")])
    only = {"resourceSelector": [{"namespace": "default", "name": "one"}]}
    bind(center, some, provider, claims=[claim("Accepted", **only)])
    assert seen() == [(some, "one")]
    version = center.api("GET", everywhere)["metadata"]["resourceVersion"]
    with watching(center, f"{everywhere}?watch=1&resourceVersion={version}") as events:
        # What comes into view without changing is found by listing anew, as every informer does when told so.
        got = bind(center, yes, provider, claims=[claim("Accepted"), claim("Accepted", resource="secrets")])
        event = next(events)
        assert event["type"] == "ERROR" and event["object"]["code"] == 410
    assert condition(got, "PermissionClaimsValid")["status"] == "False", "it does not claim secrets"
    assert [c["resource"] for c in got["status"]["appliedPermissionClaims"]] == ["configmaps"]
    assert seen() == [(some, "one"), (yes, "one"), (yes, "two")]
    assert center.request("GET", view(made, "*") + "/api/v1/secrets")[0] == 404
    # One workspace: what is given can be read and written, what is not is not there.
    assert center.request("GET", maps(view(made, some), "one"))[0] == 200
    for path, name in ((some, "two"), (no, "one")):
        for method in ("GET", "DELETE"):
            assert center.request(method, maps(view(made, path), name))[0] == 404, (path, name, method)
        put = {**config_map(name), "metadata": {"name": name, "namespace": "default"}}
        assert center.request("PUT", maps(view(made, path), name), put)[0] == 404
        assert center.request("POST", maps(view(made, path)), config_map("new"))[0] in (403, 404)
    generated = {**config_map("x"), "metadata": {"generateName": "one"}}
    assert center.request("POST", maps(view(made, some)), generated)[0] == 403
    assert center.request("DELETE", maps(view(made, some)))[0] == 200
    assert center.request("GET", maps(f"/clusters/{some}", "one"))[0] == 404
    assert center.request("GET", maps(f"/clusters/{some}", "two"))[0] == 200
    center.api("POST", maps(view(made, yes)), config_map("new"))
    # Objects are claimed, not what one can do with them.
    at = view(made, yes) + "/api/v1/namespaces/default/serviceaccounts/default/token"
    assert center.request("POST", at, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})[0] == 404
    # And taken back.
    center.api("PATCH", f"/clusters/{yes}{APIS}/apibindings/widgets",
               {"spec": {"permissionClaims": [claim("Rejected")]}}, content_type="application/merge-patch+json")
    wait_for("the claim to be taken back", lambda: seen() == [])
    unbind(center, yes)
    assert center.request("GET", maps(f"/clusters/{yes}", "new"))[0] == 200, "only bound objects go with a binding"


def test_claims_on_what_another_export_brings(center):
    maker, provider, one, two = (workspace(center, stem) for stem in ("maker", "provider", "one", "two"))
    identity = export(center, maker, schema())["status"]["identityHash"]
    gadgets = json.loads(json.dumps(schema(group="gadgets.io")))
    asked = claim(group="example.io", resource="widgets", identity=identity)
    made = export(center, provider, gadgets, name="gadgets", permissionClaims=[asked])
    accepted = claim("Accepted", group="example.io", resource="widgets", identity=identity)
    for path in (one, two):
        bind(center, path, provider, export="gadgets", name="gadgets", claims=[accepted])
    bind(center, one, maker)
    center.api("POST", widgets(one), widget("a"))
    assert homes(center.api("GET", view(made, "*") + "/apis/example.io/v1/widgets")) == [(one, "a")]
    # The other workspace does not have that kind, so nothing of it can be made there.
    at = view(made, two) + "/apis/example.io/v1/namespaces/default/widgets"
    assert center.request("POST", at, widget("x"))[0] in (403, 404)
    # A claim without, or with another, identity is none.
    refused = center.api("POST", f"/clusters/{maker}{APIS}/apiexports", expect=[422], body={
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport", "metadata": {"name": "x"},
        "spec": {"permissionClaims": [claim(group="example.io", resource="widgets")]}})
    assert "identityHash" in refused["message"]
    other = export(center, maker, name="other", permissionClaims=[claim(group="example.io", resource="widgets", identity="0" * 64)])
    assert center.request("GET", view(other, "*") + "/apis/example.io/v1/widgets")[0] == 404
