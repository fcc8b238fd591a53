"""Workspaces: made, entered, kept apart, limited, seen together, and deleted with everything inside."""
import concurrent.futures
import contextlib
import json
import re

import pytest
import yaml

from center import ROOT, Center, Tools, wait_for
from manifests import configmap

TENANCY = "/apis/tenancy.kcp.io/v1alpha1"
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def center(tmp_path_factory):
    center = Center(tmp_path_factory.mktemp("workspaces") / "data")
    yield center.start()
    assert center.stop() == 0
    assert "panicked" not in center.log_path.read_text(errors="replace")


@pytest.fixture(scope="module")
def tools(center, tmp_path_factory):
    return Tools(center, tmp_path_factory.mktemp("home"))


def at(path):
    return f"/clusters/{path}"


def workspace(name, of_type=None, path="root"):
    spec = {"type": {"name": of_type, "path": path}} if of_type else {}
    return {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, "spec": spec}


def make(center, path, **kw):
    """The workspace of that path, which must not exist yet, by whoever `headers` make the sender."""
    parent, name = path.rsplit(":", 1)
    headers = kw.pop("headers", None)
    made = center.api("POST", f"{at(parent)}{TENANCY}/workspaces", workspace(name, **kw), headers=headers)
    assert made["status"]["phase"] == "Ready", made
    return path


def delete(center, path, **kw):
    parent, name = path.rsplit(":", 1)
    return center.api("DELETE", f"{at(parent)}{TENANCY}/workspaces/{name}", **kw)


def get(center, path):
    parent, name = path.rsplit(":", 1)
    status, _, body = center.request("GET", f"{at(parent)}{TENANCY}/workspaces/{name}")
    return json.loads(body) if status == 200 else None


def gone(center, path):
    wait_for(f"the end of {path}", lambda: get(center, path) is None)


def as_user(name, *groups):
    """Headers; http.client takes one header of a name, so at most one group."""
    headers = {"Impersonate-User": name}
    if groups:
        headers["Impersonate-Group"] = groups[0]
    return headers


def maps(path, namespace="default"):
    return f"{at(path)}/api/v1/namespaces/{namespace}/configmaps"


def status_of(center, *args, **kw):
    code, _, body = center.request(*args, **kw)
    return code, json.loads(body)


def post_all(center, wanted):
    """Codes of many creations, over a few connections that stay open."""
    def some(mine):
        codes = []
        with contextlib.closing(center.connection()) as conn:
            for path, body in mine:
                conn.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
                reply = conn.getresponse()
                reply.read()
                codes.append(reply.status)
        return codes
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return {code for codes in pool.map(some, [wanted[i::8] for i in range(8)]) for code in codes}


def bind(center, path, role, user, name=None):
    center.api("POST", f"{at(path)}/apis/{RBAC}/v1/clusterrolebindings", {
        "metadata": {"name": name or f"{user}-{role.replace(':', '-')}"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "apiGroup": RBAC, "name": user}]})


def crd(plural, kind, group="example.io"):
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind, "singular": kind.lower()},
                     "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                         "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}


def token(center, path, account="default", namespace="default"):
    where = f"{at(path)}/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    return center.api("POST", where, {"spec": {}})["status"]["token"]


@contextlib.contextmanager
def bearer(center, text):
    """Requests with this token instead of the administrator's certificate."""
    context = __import__("ssl").create_default_context(cafile=str(center.ca))
    kept, center._tls = center._tls, context
    try:
        yield {"Authorization": f"Bearer {text}"}
    finally:
        center._tls = kept


# ---- made ----

def test_made_with_kubectl(center, tools):
    manifest = yaml.safe_dump_all([workspace("acme", "organization")])
    tools.kubectl("create", "-f", "-", stdin=manifest)
    tools.kubectl("wait", "--for=condition=Ready", "ws/acme", "--timeout=10s")
    acme = tools.json("get", "ws", "acme")
    assert acme["spec"] == {"type": {"name": "organization", "path": "root"}, "cluster": "root:acme",
                            "URL": f"{center.url}/clusters/root:acme"}
    row = tools.kubectl("get", "ws").splitlines()
    assert row[0].split() == ["NAME", "TYPE", "PHASE", "URL", "AGE"]
    assert row[1].split()[:4] == ["acme", "organization", "Ready", f"{center.url}/clusters/root:acme"]
    inside = ("--server", acme["spec"]["URL"])
    tools.kubectl(*inside, "create", "-f", "-", stdin=yaml.safe_dump(workspace("team", "team")))
    deep = tools.json(*inside, "get", "workspace", "team")["spec"]["URL"]
    assert deep.endswith("/clusters/root:acme:team")
    tools.kubectl("--server", deep, "create", "configmap", "hello", "--from-literal=a=b")
    assert tools.kubectl("--server", deep, "get", "cm,sa", "-o", "name").split() == [
        "configmap/hello", "configmap/kube-root-ca.crt", "serviceaccount/default"]
    assert tools.kubectl("--server", deep, "get", "ns", "-o", "name").split() == ["namespace/default"]
    assert tools.kubectl("get", "cm", "hello", code=1)


def test_types_decide(center):
    api = center.api
    types = {t["metadata"]["name"] for t in api("GET", f"{TENANCY}/workspacetypes")["items"]}
    assert {"root", "organization", "team", "universal"} <= types
    post = lambda parent, body: status_of(center, "POST", f"{at(parent)}{TENANCY}/workspaces", body)  # noqa: E731
    for parent, body, why in [
        ("root", workspace("t", "team"), "cannot be in one of type"),
        ("root", workspace("t", "root"), "cannot be in one of type"),
        ("root", workspace("t", "nothing"), "Not found"),
        ("root", workspace("a.b"), "metadata.name"),
        ("root", workspace("a" * 64), "metadata.name"),
    ]:
        code, body = post(parent, body)
        assert code == 422 and why in body["message"], body
    api("POST", f"{TENANCY}/workspacetypes", {
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "shop"},
        "spec": {"additionalWorkspaceLabels": {"tier": "shop"}, "limitAllowedChildren": {"none": True}, "initializer": True}})
    made = api("POST", f"{TENANCY}/workspaces", workspace("shop", "shop"))
    assert made["metadata"]["labels"] == {"tier": "shop"}
    assert made["status"]["phase"] == "Initializing" and made["status"]["initializers"] == ["root:shop"]
    code, body = post("root:shop", workspace("x"))
    assert code == 422 and "hold none of type" in body["message"]
    api("PATCH", f"{TENANCY}/workspaces/shop/status", {"status": {"initializers": []}},
        content_type="application/merge-patch+json")
    wait_for("the workspace to be ready", lambda: get(center, "root:shop")["status"]["phase"] == "Ready")
    for patch in [{"spec": {"type": {"name": "universal"}}}, {"spec": {"URL": "https://elsewhere"}}]:
        code, body = status_of(center, "PATCH", f"{TENANCY}/workspaces/shop", patch, content_type="application/merge-patch+json")
        assert code == 422 and "never change" in body["message"], body
    # Nobody takes the finalizer off, so nothing is left behind.
    api("PATCH", f"{TENANCY}/workspaces/shop", {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json")
    assert get(center, "root:shop")["metadata"]["finalizers"] == ["core.kcp.io/logicalcluster"]
    delete(center, "root:shop")
    gone(center, "root:shop")


def test_a_type_binds(center):
    provider = make(center, "root:provider")
    apis = "/apis/apis.kcp.io/v1alpha1"
    kind = {"apiVersion": "apis.kcp.io/v1alpha1", "metadata": {"name": "gears"}}
    center.api("POST", f"{TENANCY}/workspacetypes", {
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "geared"},
        "spec": {"defaultAPIBindings": [{"path": provider, "export": "gears"}]}})
    # The workspace waits for what its type binds, and says so.
    made = center.api("POST", f"{TENANCY}/workspaces", workspace("geared", "geared"))
    assert made["status"]["phase"] == "Initializing"
    assert "APIBinding gears" in made["status"]["conditions"][0]["message"]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    center.api("POST", f"{at(provider)}{apis}/apiresourceschemas", {
        **kind, "kind": "APIResourceSchema", "metadata": {"name": "v1.gears.example.io"},
        "spec": {"group": "example.io", "scope": "Namespaced", "names": {"plural": "gears", "singular": "gear", "kind": "Gear"},
                 "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}]}})
    center.api("POST", f"{at(provider)}{apis}/apiexports", {**kind, "kind": "APIExport", "spec": {"latestResourceSchemas": ["v1.gears.example.io"]}})
    wait_for("the workspace to be ready", lambda: get(center, "root:geared")["status"]["phase"] == "Ready")
    gears = f"{at('root:geared')}/apis/example.io/v1/namespaces/default/gears"
    center.api("POST", gears, {"apiVersion": "example.io/v1", "kind": "Gear", "metadata": {"name": "g", "finalizers": ["example.io/hold"]}})
    # Now it is ready at once, or nearly.
    center.api("POST", f"{TENANCY}/workspaces", workspace("geared-too", "geared"))
    wait_for("the second", lambda: get(center, "root:geared-too")["status"]["phase"] == "Ready")
    assert center.api("GET", gears.replace("root:geared", "root:geared-too"))["items"] == []
    for path in ("root:geared", "root:geared-too"):
        delete(center, path)
    gone(center, "root:geared-too")
    wait_for("the report", lambda: "example.io/hold" in json.dumps(get(center, "root:geared")["status"]))
    center.api("PATCH", f"{gears}/g", {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json")
    gone(center, "root:geared")
    delete(center, provider)
    gone(center, provider)


def test_nested_to_any_depth_but_not_beyond_a_path(center):
    path = make(center, "root:deep")
    while len(path) + 61 <= 512:
        path = make(center, f"{path}:{'d' * 60}")
    assert center.request("POST", maps(path), configmap("here"))[0] == 201
    code, body = status_of(center, "POST", f"{at(path)}{TENANCY}/workspaces", workspace("d" * 60))
    assert code == 422 and "longer than 512" in body["message"], body
    delete(center, "root:deep")
    gone(center, "root:deep")
    assert center.request("GET", maps(path))[0] == 404


# ---- kept apart ----

def test_objects_and_kinds_are_apart(center):
    a, b = make(center, "root:apart-a"), make(center, "root:apart-b")
    center.api("POST", maps(a), configmap("one", v="a"))
    assert center.request("GET", f"{maps(b)}/one")[0] == 404 and center.request("GET", f"{maps('root')}/one")[0] == 404
    center.api("POST", maps(b), configmap("one", v="b"))
    assert center.api("GET", f"{maps(a)}/one")["data"] == {"v": "a"}
    center.api("POST", f"{at(a)}/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd("widgets", "Widget"))
    widgets = "/apis/example.io/v1/namespaces/default/widgets"
    wait_for("the kind", lambda: center.request("GET", f"{at(a)}{widgets}")[0] == 200)
    assert center.request("GET", f"{at(b)}{widgets}")[0] == 404 and center.request("GET", widgets)[0] == 404
    groups = lambda p: {g["name"] for g in center.api("GET", f"{at(p)}/apis")["groups"]}  # noqa: E731
    assert "example.io" in groups(a) and "example.io" not in groups(b) and "example.io" not in groups("root")
    assert "widgets" in str(center.api("GET", f"{at(a)}/openapi/v3/apis/example.io/v1"))
    assert center.request("GET", f"{at(b)}/openapi/v3/apis/example.io/v1")[0] == 404


def test_controllers_work_inside(center):
    path = make(center, "root:inside")
    api = center.api
    api("POST", f"{at(path)}/api/v1/namespaces", {"metadata": {"name": "shop"}})
    wait_for("the namespace's account", lambda: center.request("GET", f"{at(path)}/api/v1/namespaces/shop/serviceaccounts/default")[0] == 200)
    owner = api("POST", maps(path, "shop"), configmap("owner"))
    child = configmap("child")
    child["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]
    api("POST", maps(path, "shop"), child)
    api("DELETE", f"{maps(path, 'shop')}/owner")
    wait_for("the garbage to go", lambda: center.request("GET", f"{maps(path, 'shop')}/child")[0] == 404)
    api("POST", f"{at(path)}/api/v1/namespaces/shop/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"count/secrets": "1"}}})
    secrets = f"{at(path)}/api/v1/namespaces/shop/secrets"
    wait_for("the quota to count", lambda: "hard" in api("GET", f"{at(path)}/api/v1/namespaces/shop/resourcequotas/q").get("status", {}))
    codes = [center.request("POST", secrets, {"metadata": {"name": f"s{i}"}})[0] for i in range(2)]
    assert codes == [201, 403]
    # A role that adds to a default one: the workspace then has it for its own, and nobody else does.
    api("POST", f"{at(path)}/apis/{RBAC}/v1/clusterroles", {
        "metadata": {"name": "more", "labels": {f"{RBAC}/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["example.io"], "resources": ["widgets"], "verbs": ["get"]}]})
    view = wait_for("the role", lambda: api("GET", f"{at(path)}/apis/{RBAC}/v1/clusterroles/view"))
    assert any(r.get("apiGroups") == ["example.io"] for r in view["rules"]) and len(view["rules"]) > 5
    api("DELETE", f"{at(path)}/api/v1/namespaces/shop")
    wait_for("the namespace to go", lambda: center.request("GET", f"{at(path)}/api/v1/namespaces/shop")[0] == 404)


def test_accounts_are_strangers_elsewhere(center):
    a, b = make(center, "root:sa-a"), make(center, "root:sa-b")
    for path in (a, b, "root"):
        bind(center, path, "cluster-admin", "nobody", name=f"x-{path.replace(':', '-')}")
        center.api("PATCH", f"{at(path)}/apis/{RBAC}/v1/clusterrolebindings/x-{path.replace(':', '-')}", {
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "default"}]},
            content_type="application/merge-patch+json")
    tokens = {path: token(center, path) for path in (a, b, "root")}
    for own, text in tokens.items():
        with bearer(center, text) as headers:
            for path in (a, b, "root"):
                code, body = status_of(center, "GET", maps(path), headers=headers)
                assert code == (200 if path == own else 403), (own, path, body)
            me = {} if own == "root" else {"authentication.kcp.io/cluster-name": [own]}
            who = center.api("POST", f"{at(own)}/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, headers=headers)
            info = who["status"]["userInfo"]
            assert info["username"] == "system:serviceaccount:default:default"
            assert {k: v for k, v in info["extra"].items() if "kcp" in k} == me
            assert center.request("GET", f"{at('*')}/api/v1/configmaps", headers=headers)[0] == 403
    # Who reviews a token of elsewhere is told so.
    review = center.api("POST", f"{at(b)}/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": tokens[a]}})
    assert review["status"]["user"]["username"] == "system:kcp:serviceaccount:root:sa-a:default:default"
    # Somebody in the other workspace may mean it.
    bind(center, b, "cluster-admin", "system:kcp:serviceaccount:root:sa-a:default:default", name="friend")
    with bearer(center, tokens[a]) as headers:
        assert center.request("GET", maps(b), headers=headers)[0] == 200
    # A workspace's own account gets in, and may there what roles say.
    center.api("DELETE", f"{at(a)}/apis/{RBAC}/v1/clusterrolebindings/x-root-sa-a")
    with bearer(center, tokens[a]) as headers:
        code, body = status_of(center, "GET", maps(a), headers=headers)
        assert code == 403 and "cannot list resource" in body["message"]
        center_who = center.request("POST", f"{at(a)}/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, headers=headers)
        assert center_who[0] == 201
    center.api("DELETE", f"/apis/{RBAC}/v1/clusterrolebindings/x-root")


# ---- entered ----

def test_entering_needs_a_right(center):
    bind(center, "root", "cluster-admin", "boss")
    path = make(center, "root:mine", headers=as_user("boss"))
    boss, eve = as_user("boss"), as_user("eve")
    assert center.request("GET", maps(path), headers=boss)[0] == 200
    # No role in root leads in; whether there is such a workspace is nobody's business.
    bind(center, "root", "cluster-admin", "rooty")
    there, nowhere = (status_of(center, "GET", maps(p), headers=eve) for p in (path, "root:none"))
    assert there[0] == nowhere[0] == 403
    assert there[1]["message"].replace("root:mine", "root:none") == nowhere[1]["message"]
    assert status_of(center, "GET", maps(path), headers=as_user("rooty"))[0] == 403
    for what in ("/api", "/apis", "/openapi/v2", "/healthz", "/version", "/apis/apps/v1"):
        assert center.request("GET", at(path) + what, headers=eve)[0] == 403, what
    # Other rights count for nothing without that of entering.
    bind(center, path, "view", "eve")
    assert center.request("GET", maps(path), headers=eve)[0] == 403
    bind(center, path, "system:kcp:workspace:access", "eve")
    assert center.request("GET", maps(path), headers=eve)[0] == 200
    assert center.request("POST", maps(path), configmap("x"), headers=eve)[0] == 403
    assert center.request("GET", at(path) + "/apis", headers=eve)[0] == 200
    # Who may look it up is told that it is not there.
    code, body = status_of(center, "GET", maps("root:mine:none"), headers=boss)
    assert code == 404 and 'no Workspace \\"none\\"' in json.dumps(body["message"]), body
    assert status_of(center, "GET", maps("root:mine:none"), headers=eve)[0] == 403
    assert status_of(center, "GET", maps("nowhere"))[0] == 404


def test_who_administers_one_is_nobody_elsewhere(center):
    bind(center, "root", "cluster-admin", "tenant-maker")
    a, b = make(center, "root:ten-a", headers=as_user("tenant-maker")), make(center, "root:ten-b")
    ca = token(center, a)
    bind(center, a, "cluster-admin", "x", name="all-accounts")
    center.api("PATCH", f"{at(a)}/apis/{RBAC}/v1/clusterrolebindings/all-accounts", {
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "default"}]}, content_type="application/merge-patch+json")
    with bearer(center, ca) as headers:
        # Here one may become anybody, even an administrator, and be it only here.
        admin = {**headers, **as_user("anybody", "system:masters")}
        assert center.request("GET", maps(a), headers=admin)[0] == 200
        for path in (b, "root", "*"):
            assert center.request("GET", f"{at(path)}/api/v1/configmaps", headers=admin)[0] == 403, path
        types = f"{at(a)}{TENANCY}/workspacetypes"
        center.api("POST", types, {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "thief"},
                                   "spec": {"defaultAPIBindings": [{"path": b, "export": "secret"}]}}, headers=headers)
        code, body = status_of(center, "POST", f"{at(a)}{TENANCY}/workspaces", workspace("loot", "thief", a), headers=admin)
        assert code == 422 and "beside the export may bind it" in body["message"], body
        # Certificates count everywhere: they are not signed here.
        code, body = status_of(center, "POST", f"{at(a)}/apis/certificates.k8s.io/v1/certificatesigningrequests", {
            "metadata": {"name": "x"}, "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "request": "eA==",
                                                "usages": ["client auth"]}}, headers=headers)
        assert code == 403 and "root only" in body["message"], body


def test_default_policy_is_shared(center, tools):
    path = make(center, "root:policy")
    inside = ("--server", f"{center.url}/clusters/{path}")
    assert tools.kubectl(*inside, "get", "clusterroles,roles", "-A", "-o", "name") == ""
    tools.kubectl(*inside, "create", "clusterrolebinding", "in", "--clusterrole=system:kcp:workspace:access", "--user=kim")
    tools.kubectl(*inside, "create", "rolebinding", "ed", "--clusterrole=edit", "--user=kim")
    kim = (*inside, "--as", "kim")
    tools.kubectl(*kim, "create", "configmap", "k")
    assert tools.kubectl(*kim, "auth", "can-i", "create", "configmaps") == "yes\n"
    assert "no" in tools.kubectl(*kim, "auth", "can-i", "create", "clusterroles", code=1)
    assert "configmaps" in tools.kubectl(*kim, "auth", "can-i", "--list")
    assert "forbidden" in tools.kubectl(*kim, "create", "rolebinding", "up", "--clusterrole=cluster-admin", "--user=kim", code=1)
    # The components of upstream have their rights in root.
    for user in ("system:kube-controller-manager", "system:kube-scheduler"):
        assert center.request("GET", f"{at(path)}/api/v1/pods", headers=as_user(user))[0] == 403


# ---- seen together ----

def test_across_workspaces(center):
    a, b = make(center, "root:wild-a"), make(center, "root:wild-a:wild-b")
    lie = configmap("wild")
    lie["metadata"]["annotations"] = {"kcp.io/cluster": "root:lie", "x": "y"}
    center.api("POST", maps(a), lie)
    center.api("POST", maps(b), configmap("wild"))
    where = f"{at('*')}/api/v1/configmaps"
    found = {(i["metadata"]["annotations"]["kcp.io/cluster"], i["metadata"]["name"]) for i in center.api("GET", where)["items"]}
    assert {(a, "wild"), (b, "wild"), ("root", "kube-root-ca.crt")} <= found and len(found) > 5
    page, seen = center.api("GET", f"{where}?limit=3"), []
    while True:
        seen += [(i["metadata"]["annotations"]["kcp.io/cluster"], i["metadata"]["namespace"], i["metadata"]["name"]) for i in page["items"]]
        if not page["metadata"].get("continue"):
            break
        page = center.api("GET", f"{where}?limit=3&continue={page['metadata']['continue']}")
    assert len(seen) == len(set(seen)) and {(c, n) for c, _, n in seen} == found
    named = center.api("GET", f"{at('*')}/api/v1/namespaces/kube-public/configmaps")["items"]
    assert named and {i["metadata"]["namespace"] for i in named} == {"kube-public"}
    assert "kcp.io/cluster" not in center.api("GET", f"{maps(b)}/wild")["metadata"].get("annotations", {})
    spaces = center.api("GET", f"{at('*')}{TENANCY}/workspaces")["items"]
    assert {a, b} <= {f"{w['metadata']['annotations']['kcp.io/cluster']}:{w['metadata']['name']}" for w in spaces}
    # A watch that began before hears of everything after, with its workspace.
    revision = center.api("GET", where)["metadata"]["resourceVersion"]
    center.api("PATCH", f"{maps(b)}/wild", {"data": {"n": "1"}}, content_type="application/merge-patch+json")
    center.api("DELETE", f"{maps(a)}/wild")
    _, _, body = center.request("GET", f"{where}?watch=1&resourceVersion={revision}&timeoutSeconds=1")
    events = [json.loads(line) for line in body.splitlines()]
    assert [(e["type"], e["object"]["metadata"]["annotations"]["kcp.io/cluster"]) for e in events] == [("MODIFIED", b), ("DELETED", a)]
    _, _, table = center.request("GET", where, accept="application/json;as=Table;g=meta.k8s.io;v=v1")
    assert json.loads(table)["rows"][0]["object"]["metadata"]["annotations"]["kcp.io/cluster"]
    # Only to read, and only for system controllers.
    for method, path in [("POST", maps("*")), ("DELETE", maps("*")), ("GET", f"{maps(b).replace(b, '*')}/wild"),
                         ("PUT", f"{maps('*')}/wild"), ("PATCH", f"{maps('*')}/wild")]:
        assert center.request(method, path, configmap("wild") if method != "GET" else None)[0] in (400, 405, 415), (method, path)
    ctl, eve = as_user("ctl", "system:selvedge:controllers"), as_user("eve", "system:authenticated")
    assert center.request("GET", where, headers=ctl)[0] == 200
    assert center.request("GET", "/api/v1/configmaps", headers=ctl)[0] == 403, "elsewhere they are nobody"
    assert center.request("GET", where, headers=eve)[0] == 403


# ---- limited ----

def test_limits(center):
    center.api("POST", f"{TENANCY}/workspacetypes", {
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "small"},
        "spec": {"limits": {"objects": 12, "bytes": 60_000}}})
    path = make(center, "root:small", of_type="small")
    inner = make(center, f"{path}:inner")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda i: center.request("POST", maps(inner if i % 2 else path), configmap(f"m{i}"))[0], range(16)))
    # Four came with each of the two, and one stands for the inner one.
    assert sorted(codes) == [201] * 3 + [403] * 13, codes
    code, body = status_of(center, "POST", maps(inner), configmap("more"))
    assert code == 403 and body["reason"] == "Forbidden"
    assert "limit of workspace root:small: objects: requested 1, used 12, limited to 12 by its type root:small" in body["message"]
    metrics = center.request("GET", "/metrics", accept="*/*")[2].decode()
    assert 'selvedge_workspace_objects{workspace="root:small"} 12' in metrics
    # A workspace inside weighs what it begins with.
    assert status_of(center, "POST", f"{at(path)}{TENANCY}/workspaces", workspace("heavy"))[0] == 403
    # Changing is fine until it becomes too much; deleting always is.
    name = next(i["metadata"]["name"] for i in center.api("GET", maps(path))["items"] + center.api("GET", maps(inner))["items"] if i["metadata"]["name"] != "kube-root-ca.crt")
    home = path if center.request("GET", f"{maps(path)}/{name}")[0] == 200 else inner
    patch = lambda n: status_of(center, "PATCH", f"{maps(home)}/{name}", {"data": {"x": "x" * n}}, content_type="application/merge-patch+json")  # noqa: E731
    assert patch(1000)[0] == 200
    code, body = patch(60_000)
    assert code == 403 and "bytes: requested" in body["message"]
    center.api("DELETE", f"{maps(home)}/{name}")
    assert center.request("POST", maps(inner), configmap("again"))[0] == 201
    center.api("PATCH", f"{TENANCY}/workspacetypes/small", {"spec": {"limits": {"objects": 16}}}, content_type="application/merge-patch+json")
    code, body = status_of(center, "POST", f"{at(path)}{TENANCY}/workspaces", workspace("heavy"))
    assert code == 403 and "objects: requested 5, used 12, limited to 16" in body["message"], body
    # More is allowed as soon as the type allows it.
    center.api("PATCH", f"{TENANCY}/workspacetypes/small", {"spec": {"limits": {"objects": 13}}}, content_type="application/merge-patch+json")
    assert [center.request("POST", maps(inner), configmap(f"b{i}"))[0] for i in range(2)] == [201, 403]
    delete(center, path)
    gone(center, path)


# ---- deleted ----

def test_deleted_with_everything_inside(center):
    path = make(center, "root:doomed")
    inner = make(center, "root:doomed:inner")
    center.api("POST", f"{at(path)}/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd("gizmos", "Gizmo"))
    gizmos = f"{at(path)}/apis/example.io/v1/namespaces/default/gizmos"
    wait_for("the kind", lambda: center.request("GET", gizmos)[0] == 200)
    held = {"apiVersion": "example.io/v1", "kind": "Gizmo", "metadata": {"name": "g", "finalizers": ["example.io/hold"]}}
    center.api("POST", gizmos, held)
    center.api("POST", maps(path), configmap("m"))
    center.api("POST", maps(inner), configmap("m"))
    center.api("POST", f"{at(path)}/api/v1/namespaces/default/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    delete(center, path)

    def waiting():
        conditions = {c["type"]: c for c in get(center, path)["status"]["conditions"]}
        return conditions.get("WorkspaceContentDeleted", {}).get("message", "").startswith("Some resources are remaining: gizmos") and conditions
    conditions = wait_for("the report", waiting)
    assert conditions["Ready"]["status"] == "False" and conditions["WorkspaceContentDeleted"]["reason"] == "SomeFinalizersRemain"
    assert "example.io/hold in 1 resource" in conditions["WorkspaceContentDeleted"]["message"]
    assert get(center, path)["status"]["phase"] == "Deleting"
    assert get(center, inner) is None and center.request("GET", f"{maps(path)}/m")[0] == 404
    for method, where, body in [("POST", maps(path), configmap("late")), ("POST", f"{at(path)}{TENANCY}/workspaces", workspace("late"))]:
        code, body = status_of(center, method, where, body)
        assert code == 403 and "is being deleted with everything in it" in body["message"], body
    code, body = status_of(center, "POST", f"{TENANCY}/workspaces", workspace("doomed"))
    assert code == 409
    center.api("PATCH", f"{gizmos}/g", {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json")
    gone(center, path)
    assert status_of(center, "GET", maps(path))[0] == 404
    # The same name begins anew.
    make(center, path)
    assert [i["metadata"]["name"] for i in center.api("GET", maps(path))["items"]] == ["kube-root-ca.crt"]
    assert center.request("GET", gizmos)[0] == 404 and get(center, inner) is None
    assert center.api("GET", f"{at(path)}/api/v1/namespaces/default/services")["items"] == []


def left_over(center, path):
    """Whatever any collection still holds of a workspace, seen across all of them."""
    found = []
    for resource in ("/api/v1/configmaps", "/api/v1/namespaces", "/api/v1/serviceaccounts", f"{TENANCY}/workspaces",
                     f"/apis/{RBAC}/v1/clusterrolebindings"):
        for item in center.api("GET", at("*") + resource)["items"]:
            cluster = item["metadata"]["annotations"]["kcp.io/cluster"]
            if cluster == path or cluster.startswith(path + ":"):
                found.append((cluster, resource, item["metadata"]["name"]))
    return found


def test_the_page(tmp_path):
    """The commands in docs/reference/workspaces.md, as they stand there."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/reference/workspaces.md").read_text(), re.M | re.S)
    assert len(blocks) == 4
    center = Center(tmp_path / ".data/center")
    (tmp_path / ".data").mkdir()
    try:
        tools = Tools(center.start(), tmp_path)
        done = tools.run(["bash", "-exuo", "pipefail", "-c", "\n".join(blocks)])
        for said in ("root:org", "configmap/from-jane created", 'workspace.tenancy.kcp.io "org" deleted'):
            assert said in done.stdout, done.stdout
    finally:
        center.kill()


def test_the_next_of_a_name_sees_nothing_of_the_last(center):
    """Neither history, nor pages, nor watches lead from one workspace to another that had or gets its path."""
    path = make(center, "root:lease")
    center.api("POST", maps(path), configmap("secret-of-the-first", v="x"))
    old = center.api("GET", f"{maps(path)}?limit=1")
    revision, token_ = old["metadata"]["resourceVersion"], old["metadata"]["continue"]
    with contextlib.closing(center.connection()) as watch:
        watch.request("GET", f"{maps(path)}?watch=1&resourceVersion={revision}")
        stream = watch.getresponse()
        delete(center, path)
        gone(center, path)
        make(center, path)
        center.api("POST", maps(path), configmap("secret-of-the-second"))
        seen = [json.loads(line) for line in stream]
    assert {(e["type"], e["object"]["metadata"]["name"]) for e in seen} == {
        ("DELETED", "secret-of-the-first"), ("DELETED", "kube-root-ca.crt")}
    for query in (f"watch=1&timeoutSeconds=1&resourceVersion={revision}", f"resourceVersion={revision}&resourceVersionMatch=Exact",
                  f"continue={token_}&limit=1"):
        code, _, body = center.request("GET", f"{maps(path)}?{query}")
        assert code == 410 and b"secret-of-the-first" not in body, (query, code, body)
    # What concerns all workspaces is not shown in one.
    assert center.request("GET", f"{at(path)}/metrics", accept="*/*")[0] == 404
