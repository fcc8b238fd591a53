"""APIExport, APIResourceSchema, APIBinding: kinds shared between workspaces, through raw HTTP, kubectl and a watch."""
import contextlib
import itertools
import json
import re
import ssl
import subprocess

import pytest

from center import ROOT, Tools, running, wait_for

APIS = "/apis/apis.kcp.io/v1alpha1"
counter = itertools.count(1)


@pytest.fixture(scope="module")
def center(tmp_path_factory):
    with running(directory=tmp_path_factory.mktemp("exports")) as center:
        yield center
        assert center.stop() == 0
        assert "panicked" not in center.log_path.read_text(errors="replace")


class User:
    """Somebody with a certificate of the center's own authority."""

    def __init__(self, center, directory, name):
        self.center, self.name = center, name
        key, csr, crt = (directory / f"{name}.{end}" for end in ("key", "csr", "crt"))
        pki = center.data_dir / "pki"
        run = lambda *command: subprocess.run(command, check=True, capture_output=True)  # noqa: E731
        run("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(key),
            "-out", str(csr), "-subj", f"/CN={name}")
        usage = directory / "usage"
        usage.write_text("extendedKeyUsage=clientAuth\n")
        run("openssl", "x509", "-req", "-extfile", str(usage), "-in", str(csr), "-CA", str(pki / "ca.crt"), "-CAkey", str(pki / "ca.key"),
            "-CAcreateserial", "-days", "1", "-out", str(crt))
        self.tls = ssl.create_default_context(cafile=str(center.ca))
        self.tls.load_cert_chain(str(crt), str(key))

    def api(self, method, path, body=None, expect=None, **kw):
        admin, self.center._tls = self.center._tls, self.tls
        try:
            return self.center.api(method, path, body, expect, **kw)
        finally:
            self.center._tls = admin


@pytest.fixture(scope="module")
def alice(center, tmp_path_factory):
    return User(center, tmp_path_factory.mktemp("alice"), "alice")


def workspace(center, stem):
    """A new workspace below root; its path."""
    name = f"{stem}-{next(counter)}"
    center.api("POST", "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces",
               {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}})
    at = f"/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/{name}"
    wait_for(f"workspace {name}", lambda: center.api("GET", at)["status"]["phase"] == "Ready")
    wait_for("its namespace", lambda: center.request("GET", f"/clusters/root:{name}/api/v1/namespaces/default")[0] == 200)
    return f"root:{name}"


def schema(prefix="v1", group="example.io", fields=None, **more):
    fields = fields or {"size": {"type": "integer", "maximum": 100, "default": 7}}
    return {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
            "metadata": {"name": f"{prefix}.widgets.{group}"},
            "spec": {"group": group, "scope": "Namespaced",
                     "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wi"]},
                     "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                                   "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                                   "schema": {"type": "object", "properties": {
                                       "spec": {"type": "object", "properties": fields},
                                       "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}},
                                   **more}]}}


def export(center, path, *schemas, name="widgets", **spec):
    """Schemas and an export of them; the export, with its identity."""
    for one in schemas:
        center.api("POST", f"/clusters/{path}{APIS}/apiresourceschemas", one)
    names = [one["metadata"]["name"] for one in schemas]
    center.api("POST", f"/clusters/{path}{APIS}/apiexports",
               {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport", "metadata": {"name": name},
                "spec": {"latestResourceSchemas": names, **spec}})
    def ready():
        got = center.api("GET", f"/clusters/{path}{APIS}/apiexports/{name}")
        return got if got["status"]["identityHash"] and got["status"]["virtualWorkspaces"] else None
    return wait_for("the export's identity", ready)


def binding(path, name="widgets", export="widgets", claims=None):
    spec = {"reference": {"export": {"path": path, "name": export}}}
    if claims is not None:
        spec["permissionClaims"] = claims
    return {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": name}, "spec": spec}


def bind(center, path, to, **kw):
    made = binding(to, **kw)
    center.api("POST", f"/clusters/{path}{APIS}/apibindings", made)
    return bound(center, path, made["metadata"]["name"])


def bound(center, path, name="widgets"):
    def ready():
        got = center.api("GET", f"/clusters/{path}{APIS}/apibindings/{name}")
        return got if condition(got, "Ready")["status"] == "True" else None
    return wait_for(f"{path} to be bound", ready)


def condition(thing, ty):
    return next(c for c in thing["status"]["conditions"] if c["type"] == ty)


def unbind(center, path, name="widgets"):
    center.api("DELETE", f"/clusters/{path}{APIS}/apibindings/{name}")
    wait_for("the binding to go", lambda: center.request("GET", f"/clusters/{path}{APIS}/apibindings/{name}")[0] == 404)


def widgets(path, name=""):
    return f"/clusters/{path}/apis/example.io/v1/namespaces/default/widgets" + (f"/{name}" if name else "")


def widget(name, **spec):
    return {"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


def names(listed):
    return sorted(item["metadata"]["name"] for item in listed["items"])


def allow(center, path, user, verbs, resources, group="apis.kcp.io", **rule):
    """A role for this in a workspace; answers what takes it away again."""
    name = f"test-{next(counter)}"
    at = f"/clusters/{path}/apis/rbac.authorization.k8s.io/v1"
    center.api("POST", f"{at}/clusterroles", {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [{"apiGroups": [group], "resources": resources, "verbs": verbs, **rule}]})
    center.api("POST", f"{at}/clusterrolebindings", {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]})
    return lambda: center.api("DELETE", f"{at}/clusterrolebindings/{name}")


def admit(center, path, user, role="cluster-admin"):
    """The user may do everything in a workspace, or what a role says."""
    at = f"/clusters/{path}/apis/rbac.authorization.k8s.io/v1"
    center.api("POST", f"{at}/clusterrolebindings", {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": f"{user}-{next(counter)}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]})


# ---- sharing ----

def test_a_kind_is_shared_with_two_workspaces(center, tmp_path):
    provider, one, two, other = (workspace(center, stem) for stem in ("provider", "one", "two", "other"))
    made = export(center, provider, schema())
    assert condition(made, "IdentityValid")["status"] == "True"
    assert len(made["status"]["identityHash"]) == 64
    secret = center.api("GET", f"/clusters/{provider}/api/v1/namespaces/kcp-system/secrets/widgets")
    assert secret["data"]["key"]
    for path in (one, two):
        got = bind(center, path, provider)
        assert got["status"]["phase"] == "Bound" and got["status"]["apiExportClusterName"] == provider
        [resource] = got["status"]["boundResources"]
        assert resource["schema"]["identityHash"] == made["status"]["identityHash"]
        assert resource["storageVersions"] == ["v1"]
    # Defaults, validation, the status subresource, tables: all there, as if it were the workspace's own.
    center.api("POST", widgets(one), widget("a"))
    assert center.api("GET", widgets(one, "a"))["spec"] == {"size": 7}
    refused = center.api("POST", widgets(one), widget("b", size=101), expect=[422])
    assert "spec.size" in refused["message"]
    patched = center.api("PATCH", widgets(one, "a") + "/status", {"status": {"phase": "Fine"}}, content_type="application/merge-patch+json")
    assert patched["status"] == {"phase": "Fine"}
    # Objects stay where they are made, and the provider's own workspace does not bind.
    assert names(center.api("GET", widgets(one))) == ["a"]
    assert names(center.api("GET", widgets(two))) == []
    for path in (other, provider):
        assert center.request("GET", widgets(path))[0] == 404
    for path, there in ((one, True), (other, False)):
        groups = [g["name"] for g in center.api("GET", f"/clusters/{path}/apis")["groups"]]
        assert ("example.io" in groups) == there
        assert ("apis/example.io/v1" in center.api("GET", f"/clusters/{path}/openapi/v3")["paths"]) == there
    tools = Tools(center, tmp_path)
    server = f"--server={center.url}/clusters/{one}"
    assert tools.kubectl(server, "get", "wi").split() == ["NAME", "SIZE", "a", "7"]
    assert "integer" in tools.kubectl(server, "explain", "widget.spec.size")
    assert "Bound" in tools.kubectl(server, "get", "apibindings")


def test_unbinding_takes_the_objects_and_nothing_else(center):
    provider, one, two = (workspace(center, stem) for stem in ("provider", "one", "two"))
    export(center, provider, schema())
    for path in (one, two):
        bind(center, path, provider)
        center.api("POST", widgets(path), widget("a"))
    held = center.api("POST", widgets(one), {**widget("held"), "metadata": {"name": "held", "finalizers": ["example.io/x"]}})
    assert held["metadata"]["finalizers"]
    center.api("DELETE", f"/clusters/{one}{APIS}/apibindings/widgets")
    wait_for("the first to go", lambda: names(center.api("GET", widgets(one))) == ["held"])
    # What is being taken away takes nothing new in.
    assert center.request("POST", widgets(one), widget("late"))[0] == 405
    center.api("PATCH", widgets(one, "held"), {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json")
    wait_for("the binding to go", lambda: center.request("GET", f"/clusters/{one}{APIS}/apibindings/widgets")[0] == 404)
    assert center.request("GET", widgets(one))[0] == 404
    assert names(center.api("GET", widgets(two))) == ["a"]
    bind(center, one, provider)
    assert names(center.api("GET", widgets(one))) == []


def test_two_exports_of_one_name_do_not_mix(center):
    first, second, one = (workspace(center, stem) for stem in ("first", "second", "one"))
    hashes = {export(center, path, schema())["status"]["identityHash"] for path in (first, second)}
    assert len(hashes) == 2
    bind(center, one, first)
    center.api("POST", widgets(one), widget("of-first"))
    # While one has the names, the other does not get them.
    center.api("POST", f"/clusters/{one}{APIS}/apibindings", binding(second, name="second"))
    def conflict():
        got = center.api("GET", f"/clusters/{one}{APIS}/apibindings/second")
        return condition(got, "BindingUpToDate")["reason"] == "NamingConflicts" and got["status"]["phase"] == "Binding"
    wait_for("the conflict to be told", conflict)
    assert names(center.api("GET", widgets(one))) == ["of-first"]
    unbind(center, one)
    bound(center, one, "second")
    assert names(center.api("GET", widgets(one))) == []
    center.api("POST", widgets(one), widget("of-second"))
    assert names(center.api("GET", widgets(one))) == ["of-second"]


def test_definitions_and_bindings_do_not_take_each_others_names(center):
    provider, one, two = (workspace(center, stem) for stem in ("provider", "one", "two"))
    export(center, provider, schema())
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.io"},
           "spec": {"group": "example.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                    "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    bind(center, one, provider)
    center.api("POST", widgets(one), widget("a"))
    center.api("POST", f"/clusters/{one}{crds}", crd)
    at = f"/clusters/{one}{crds}/widgets.example.io"
    wait_for("the names to be refused", lambda: condition(center.api("GET", at), "NamesAccepted")["status"] == "False")
    center.api("DELETE", at)
    wait_for("the definition to go", lambda: center.request("GET", at)[0] == 404)
    assert names(center.api("GET", widgets(one))) == ["a"], "it took what was not its own"
    # The other way round.
    center.api("POST", f"/clusters/{two}{crds}", crd)
    wait_for("the definition", lambda: center.request("GET", widgets(two))[0] == 200)
    center.api("POST", f"/clusters/{two}{APIS}/apibindings", binding(provider))
    at = f"/clusters/{two}{APIS}/apibindings/widgets"
    wait_for("the conflict", lambda: condition(center.api("GET", at), "BindingUpToDate")["reason"] == "NamingConflicts")
    center.api("DELETE", f"/clusters/{two}{crds}/widgets.example.io")
    bound(center, two)


def test_our_own_kinds_cannot_be_taken(center):
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "apiexports.apis.kcp.io"},
           "spec": {"group": "apis.kcp.io", "scope": "Cluster", "names": {"plural": "apiexports", "kind": "APIExport"},
                    "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}
    path = workspace(center, "taker")
    export(center, path, schema())
    crds = f"/clusters/{path}/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    center.api("POST", crds, crd)
    wait_for("the refusal", lambda: condition(center.api("GET", f"{crds}/apiexports.apis.kcp.io"), "NamesAccepted")["status"] == "False")
    center.api("DELETE", f"{crds}/apiexports.apis.kcp.io")
    wait_for("it to go", lambda: center.request("GET", f"{crds}/apiexports.apis.kcp.io")[0] == 404)
    assert names(center.api("GET", f"/clusters/{path}{APIS}/apiexports")) == ["widgets"]
    for group in ("rbac.authorization.k8s.io", "tenancy.kcp.io"):
        refused = center.api("POST", f"/clusters/{path}{APIS}/apiresourceschemas", schema(group=group), expect=[422])
        assert "belongs to the server" in refused["message"]


# ---- schemas that change ----

def test_binders_follow_a_new_schema_that_fits(center):
    provider, one = workspace(center, "provider"), workspace(center, "one")
    export(center, provider, schema())
    bind(center, one, provider)
    center.api("POST", widgets(one), widget("old", size=3))
    small, colour = {"size": {"type": "integer", "maximum": 100, "default": 7}}, {"type": "string", "default": "red"}
    at = f"/clusters/{provider}{APIS}"
    center.api("POST", f"{at}/apiresourceschemas", schema("v2", fields={**small, "colour": colour}))
    merge = {"content_type": "application/merge-patch+json"}
    center.api("PATCH", f"{at}/apiexports/widgets", {"spec": {"latestResourceSchemas": ["v2.widgets.example.io"]}}, **merge)
    wait_for("the new field", lambda: center.api("GET", widgets(one, "old"))["spec"] == {"size": 3, "colour": "red"})
    # What does not fit is told, and the old schema stays.
    center.api("POST", f"{at}/apiresourceschemas", schema("v3", fields={"size": {"type": "string"}}))
    center.api("PATCH", f"{at}/apiexports/widgets", {"spec": {"latestResourceSchemas": ["v3.widgets.example.io"]}}, **merge)
    def told():
        got = center.api("GET", f"/clusters/{one}{APIS}/apibindings/widgets")
        state = condition(got, "BindingUpToDate")
        return state["reason"] == "IncompatibleSchema" and "size: type changed" in state["message"] and got["status"]["phase"] == "Bound"
    wait_for("the complaint", told)
    center.api("POST", widgets(one), widget("new", size=4))
    # A schema never changes, and stays while somebody needs it.
    refused = center.api("PATCH", f"{at}/apiresourceschemas/v2.widgets.example.io", {"spec": {"scope": "Cluster"}}, expect=[422], **merge)
    assert "never changes" in refused["message"]
    for name, why in (("v3", "exports it"), ("v2", "still use it")):
        refused = center.api("DELETE", f"{at}/apiresourceschemas/{name}.widgets.example.io", expect=[403])
        assert why in refused["message"]
    center.api("DELETE", f"{at}/apiresourceschemas/v1.widgets.example.io")


def test_everything_is_there_after_a_restart(center):
    provider, one = workspace(center, "provider"), workspace(center, "one")
    export(center, provider, schema())
    bind(center, one, provider)
    center.api("POST", widgets(one), widget("a"))
    assert center.stop() == 0
    center.start()
    assert names(center.api("GET", widgets(one))) == ["a"]
    center.api("POST", widgets(one), widget("b"))


# ---- rights ----

def test_binding_needs_the_right_to(center, alice):
    provider, one = workspace(center, "provider"), workspace(center, "one")
    export(center, provider, schema())
    admit(center, one, "alice")
    at = f"/clusters/{one}{APIS}/apibindings"
    refused = alice.api("POST", at, binding(provider), expect=[403])
    assert "no permission to bind" in refused["message"]
    # The right to another export is not the right to this one.
    allow(center, provider, "alice", ["bind"], ["apiexports"], resourceNames=["others"])
    alice.api("POST", at, binding(provider), expect=[403])
    # Whoever she may become in her own workspace, she becomes it only there.
    allow(center, provider, "bob", ["bind"], ["apiexports"])
    admit(center, one, "bob")
    alice.api("POST", at, binding(provider), expect=[403], headers={"Impersonate-User": "bob"})
    alice.api("POST", at, binding(provider), expect=[403], headers={"Impersonate-User": "x", "Impersonate-Group": "system:masters"})
    take = allow(center, provider, "alice", ["bind"], ["apiexports"], resourceNames=["widgets"])
    alice.api("POST", at, binding(provider))
    bound(center, one)
    alice.api("POST", widgets(one), widget("a"))
    # It cannot be pointed elsewhere, nor can its owner say what is bound, nor let it go before its objects have.
    merge = {"content_type": "application/merge-patch+json"}
    refused = alice.api("PATCH", f"{at}/widgets", {"spec": {"reference": {"export": {"name": "x"}}}}, expect=[422], **merge)
    assert "must not be changed" in refused["message"]
    alice.api("PATCH", f"{at}/widgets/status", {"status": {"boundResources": []}}, expect=[403], **merge)
    kept = alice.api("PATCH", f"{at}/widgets", {"metadata": {"finalizers": None}}, **merge)
    assert kept["metadata"]["finalizers"]
    take()
    alice.api("POST", at, binding(provider, name="again"), expect=[403])
    alice.api("GET", widgets(one, "a"))


def test_a_provider_can_limit_what_binders_do(center, alice):
    provider, one = workspace(center, "provider"), workspace(center, "one")
    export(center, provider, schema(), maximalPermissionPolicy={"local": {}})
    admit(center, one, "alice")
    bind(center, one, provider)
    refused = alice.api("GET", widgets(one), expect=[403])
    assert "maximalPermissionPolicy" in refused["message"]
    take = allow(center, provider, "apis.kcp.io:binding:alice", ["get", "list", "create"], ["widgets"], group="example.io")
    alice.api("POST", widgets(one), widget("a"))
    assert names(alice.api("GET", widgets(one))) == ["a"]
    alice.api("DELETE", widgets(one, "a"), expect=[403])
    take()
    alice.api("GET", widgets(one), expect=[403])


# ---- the provider's view ----

def view(made, where):
    """The path of an export's virtual workspace."""
    url = made["status"]["virtualWorkspaces"][0]["url"]
    return "/services" + url.split("/services", 1)[1] + f"/clusters/{where}"


def homes(listed):
    return sorted((item["metadata"]["annotations"]["kcp.io/cluster"], item["metadata"]["name"]) for item in listed["items"])


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
                 f"/services/apiexport/*/widgets/clusters/*/apis/example.io/v1/widgets"):
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


# ---- living with the rest ----

def account(center, path, name):
    """A ServiceAccount of a workspace, by its token."""
    at = f"/clusters/{path}/api/v1/namespaces/default/serviceaccounts"
    center.api("POST", at, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    made = center.api("POST", f"{at}/{name}/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    # Without the administrator's certificate, which would count first.
    tls = ssl.create_default_context(cafile=str(center.ca))
    def api(method, path, body=None, **kw):
        admin, center._tls = center._tls, tls
        try:
            return center.api(method, path, body, headers={"Authorization": f"Bearer {made['status']['token']}"}, **kw)
        finally:
            center._tls = admin
    return api


def test_a_controller_works_with_the_account_of_its_workspace(center):
    provider, one = workspace(center, "provider"), workspace(center, "one")
    made = export(center, provider, schema())
    bind(center, one, provider)
    center.api("POST", widgets(one), widget("a"))
    robot, namesake = account(center, provider, "robot"), account(center, one, "robot")
    allow(center, provider, "system:serviceaccount:default:robot", ["*"], ["apiexports/content"])
    everywhere = view(made, "*") + "/apis/example.io/v1/widgets"
    assert homes(robot("GET", everywhere)) == [(one, "a")]
    mine = view(made, one) + "/apis/example.io/v1/namespaces/default/widgets"
    robot("PATCH", f"{mine}/a/status", {"status": {"phase": "Done"}}, content_type="application/merge-patch+json")
    assert center.api("GET", widgets(one, "a"))["status"] == {"phase": "Done"}
    # Behind the door it is somebody; in the workspace itself, and under the same name elsewhere, nobody.
    robot("GET", widgets(one), expect=[403])
    namesake("GET", everywhere, expect=[403])


def test_owners_namespaces_and_workspaces_take_bound_objects_along(center):
    provider, one = workspace(center, "provider"), workspace(center, "one")
    export(center, provider, schema())
    bind(center, one, provider)
    owner = center.api("POST", widgets(one), widget("owner"))
    owned = widget("owned")
    owned["metadata"]["ownerReferences"] = [{"apiVersion": "example.io/v1", "kind": "Widget", "name": "owner", "uid": owner["metadata"]["uid"]}]
    center.api("POST", widgets(one), owned)
    center.api("DELETE", widgets(one, "owner"))
    wait_for("what it owned to go", lambda: names(center.api("GET", widgets(one))) == [])
    center.api("POST", f"/clusters/{one}/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "short"}})
    short = widgets(one).replace("/default/", "/short/")
    center.api("POST", short, widget("a"))
    center.api("DELETE", f"/clusters/{one}/api/v1/namespaces/short")
    wait_for("the namespace to go", lambda: center.request("GET", f"/clusters/{one}/api/v1/namespaces/short")[0] == 404)
    assert names(center.api("GET", f"/clusters/{one}/apis/example.io/v1/widgets")) == []
    center.api("POST", widgets(one), widget("last"))
    name = one.removeprefix("root:")
    at = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces"
    center.api("DELETE", f"{at}/{name}")
    wait_for("the workspace to go", lambda: center.request("GET", f"{at}/{name}")[0] == 404)
    # One of the same path has nothing of the old one.
    center.api("POST", at, {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}})
    wait_for("the new workspace", lambda: center.api("GET", f"{at}/{name}")["status"]["phase"] == "Ready")
    assert center.request("GET", widgets(one))[0] == 404
    bind(center, one, provider)
    assert names(center.api("GET", widgets(one))) == []
    # Providers go too. What was bound stays readable, and can be let go.
    center.api("POST", widgets(one), widget("a"))
    center.api("DELETE", f"/clusters/{provider}{APIS}/apiexports/widgets")
    wait_for("the binder to know", lambda: condition(
        center.api("GET", f"/clusters/{one}{APIS}/apibindings/widgets"), "APIExportValid")["reason"] == "APIExportNotFound")
    assert names(center.api("GET", widgets(one))) == ["a"]
    center.api("DELETE", f"{at}/{provider.removeprefix('root:')}")
    wait_for("the provider to go", lambda: center.request("GET", f"{at}/{provider.removeprefix('root:')}")[0] == 404)
    unbind(center, one)


def test_the_page_does_what_it_says(center, tmp_path):
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / "exports.md").read_text(), re.M | re.S))
    done = Tools(center, tmp_path).run(["bash", "-euo", "pipefail", "-c", script])
    for said in ("400 threads", "loom.weaving.example/jacquard", "configmap/patterns", "3 woven"):
        assert said in done.stdout, done.stdout
    assert "diary" not in done.stdout.split("3 woven")[0].split("400 threads")[1]
