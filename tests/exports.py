"""What the tests of exports share: a center, a user, and the objects that they make."""
import itertools
import ssl
import subprocess

import pytest

from center import running, wait_for

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
        run = lambda *command: subprocess.run(command, check=True, capture_output=True, timeout=60)  # noqa: E731
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


def view(made, where):
    """The path of an export's virtual workspace."""
    url = made["status"]["virtualWorkspaces"][0]["url"]
    return "/services" + url.split("/services", 1)[1] + f"/clusters/{where}"


def homes(listed):
    return sorted((item["metadata"]["annotations"]["kcp.io/cluster"], item["metadata"]["name"]) for item in listed["items"])
