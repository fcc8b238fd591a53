"""APIExport, APIResourceSchema, APIBinding: kinds shared between workspaces, through raw HTTP, kubectl and a watch."""
import re
import ssl

from center import ROOT, Tools, wait_for
from exports import APIS, admit, alice, allow, bind, binding, bound, center, condition, export, homes, names, schema, unbind, view, widget, widgets, workspace  # noqa: F401 (fixtures)


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
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/reference/exports.md").read_text(), re.M | re.S))
    done = Tools(center, tmp_path).run(["bash", "-euo", "pipefail", "-c", script])
    for said in ("400 threads", "loom.weaving.example/jacquard", "configmap/patterns", "3 woven"):
        assert said in done.stdout, done.stdout
    assert "diary" not in done.stdout.split("3 woven")[0].split("400 threads")[1]
