"""Nobody can pretend to be the server, and nobody is more elsewhere than they are at home: attacks by tenants, each administrator of
one workspace and of nothing else."""
import base64
import contextlib
import itertools
import json
import os
import re
import signal
import ssl
import subprocess
import time

import pytest

from center import Center, wait_for
from edge import SYNCTARGETS, Edge, make_workspace, selvedge
from exports import APIS, allow, bound, condition, export, homes, names, schema, view, widget, widgets
from test_identity import CSR, Client, certificate, csr
from test_join import ask, certificate_of, request_of

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
MASTERS = {"Impersonate-User": "x", "Impersonate-Group": "system:masters"}
SERVER = {"Impersonate-User": "system:apiserver", "Impersonate-Group": "system:masters"}
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SECRETS = "/api/v1/namespaces/default/secrets"
MAPS = "/api/v1/namespaces/default/configmaps"
REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
WHO = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
OURS = {"edgeplacements": "edge.kcp.io/v1alpha1", "synctargets": "workload.kcp.io/v1alpha1", "locations": "scheduling.kcp.io/v1alpha1"}
AUDIT = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata}]
"""
counter = itertools.count(1)


class Tenant(Client):
    """Somebody with a token. Answers (status, decoded body)."""

    def __init__(self, center, name):
        super().__init__(center, token=f"tok-{name}")
        self.name = name

    def send(self, method, path, body=None, content_type="application/json", **headers):
        return self.request(method, path, body, {"Content-Type": content_type, **{k.replace("_", "-"): v for k, v in headers.items()}})


class World:
    def __init__(self, center, base):
        self.center, self.base, self.log = center, base, base / "audit.log"
        for name in ("alice", "bob", "victor", "mallory"):
            setattr(self, name, Tenant(center, name))

    def home(self, user, of_type=None):
        """A new workspace below root that this user administers."""
        path = f"root:{user.name}-{next(counter)}"
        make_workspace(self.center, path, of_type)
        wait_for("its namespace", lambda: self.center.request("GET", f"/clusters/{path}/api/v1/namespaces/default")[0] == 200)
        self.center.api("POST", f"/clusters/{path}{RBAC}/clusterrolebindings", cluster_admin(user.name))
        return path

    def events(self, audit_id):
        found = [json.loads(line) for line in self.log.read_text().splitlines() if audit_id in line]
        return [event for event in found if event["auditID"] == audit_id]

    def event(self, audit_id):
        return wait_for(f"the event {audit_id}", lambda: self.events(audit_id), 5)[0]


def cluster_admin(user, name=None):
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name or f"{user}-rules"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]}


def secret(name, **data):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def gadgets(prefix="v1"):
    made = json.loads(json.dumps(schema(prefix, group="alice.io")).replace("widget", "gadget").replace("Widget", "Gadget"))
    made["spec"]["names"]["shortNames"] = ["ga"]
    return made


def start(base):
    base.mkdir(exist_ok=True)
    (base / "tokens.csv").write_text("".join(f'tok-{name},{name},u-{name}\n' for name in ("alice", "bob", "victor", "mallory")))
    (base / "policy.yaml").write_text(AUDIT)
    return Center(base / "center", args=["--token-auth-file", str(base / "tokens.csv"), "--audit-log-path", str(base / "audit.log"),
                                         "--audit-policy-file", str(base / "policy.yaml")])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    base = tmp_path_factory.mktemp("attack")
    center = start(base)
    try:
        center.start()
        yield World(center, base)
        center.still_answers()
        assert "panicked" not in center.log_path.read_text(errors="replace")
    finally:
        center.kill()


@pytest.fixture(scope="module")
def thief(world):
    """An edge of alice's: its SyncTarget is in a workspace that she administers, and the machine belongs to somebody else."""
    home = world.home(world.alice, "inventory")
    token = selvedge("join-token", "create", "--kubeconfig", world.center.kubeconfig, "--name", "thief", "--workspace", home).strip()
    edge = Edge(world.center, world.base / "thief", "thief")
    edge.home = home
    try:
        edge.start(token=token)
        target = lambda: world.center.api("GET", f"/clusters/{home}{SYNCTARGETS}/thief")  # noqa: E731
        wait_for("the link", lambda: any(c["type"] == "Ready" and c["status"] == "True" for c in target()["status"]["conditions"]))
        edge.api("POST", SECRETS, secret("hidden", a="EDGESECRET"))
        yield edge
    finally:
        edge.kill()


# ---- S1: nobody writes what only the server writes ----

@pytest.fixture(scope="module")
def market(world):
    """bob offers widgets, alice gadgets; victor binds both."""
    center = world.center
    of_bob, of_alice, of_victor = world.home(world.bob), world.home(world.alice), world.home(world.victor)
    made = export(center, of_bob, schema())
    export(center, of_alice, gadgets(), name="gadgets")
    for path, name in ((of_bob, "widgets"), (of_alice, "gadgets")):
        allow(center, path, "victor", ["bind"], ["apiexports"], resourceNames=[name])
        body = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": name},
                "spec": {"reference": {"export": {"path": path, "name": name}}}}
        assert world.victor.send("POST", f"/clusters/{of_victor}{APIS}/apibindings", body)[0] == 201
        bound(center, of_victor, name)
    center.api("POST", widgets(of_victor), widget("victims-widget"))
    return of_bob, of_alice, of_victor, made["status"]["identityHash"]


def forgeries(tenant, path, status, tries=(SERVER, MASTERS, {})):
    """Writes a status in every way that there is: as oneself and as whoever one can become. Answers what was taken."""
    got = tenant.request("GET", path)[1]
    whole = {**got, "status": {**got.get("status", {}), **status}}
    whole["metadata"] = {k: v for k, v in whole["metadata"].items() if k != "resourceVersion"}
    bare = {k: got[k] for k in ("apiVersion", "kind")} | {"metadata": {"name": got["metadata"]["name"]}, "status": status}
    patch = [{"op": "add", "path": "/status", "value": whole["status"]}]
    taken = []
    for who in tries:
        for at in (f"{path}/status", path):
            for method, body, kind in (("PATCH", {"status": status}, MERGE), ("PATCH", patch, "application/json-patch+json"),
                                       ("PUT", whole, "application/json"), ("PATCH", bare, APPLY)):
                query = "?fieldManager=thief&force=true" if kind == APPLY else ""
                code, said = tenant.request(method, at + query, body, {"Content-Type": kind, **who})
                now = said.get("status") if code < 300 else None
                if isinstance(now, dict) and all(now.get(key) == value for key, value in status.items()):
                    taken.append((who, method, kind, at, code))
    return taken


def test_identities_are_not_forged(world, market):
    """S1a: with another's identity a provider would read, change and delete what is bound to that other."""
    of_bob, of_alice, of_victor, identity = market
    center, alice = world.center, world.alice
    alice.send("POST", f"/clusters/{of_alice}{APIS}/apiresourceschemas", schema())
    at = f"/clusters/{of_alice}{APIS}/apiexports/gadgets"
    assert alice.send("PATCH", at, {"spec": {"latestResourceSchemas": [gadgets()["metadata"]["name"], "v1.widgets.example.io"]}}, MERGE)[0] == 200
    own = center.api("GET", at)["status"]["identityHash"]
    assert own != identity
    assert forgeries(alice, at, {"identityHash": identity}) == []
    # Made with a status, it has none of it.
    body = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExport", "metadata": {"name": "forged"},
            "spec": {"latestResourceSchemas": ["v1.widgets.example.io"]}, "status": {"identityHash": identity}}
    for who in (MASTERS, {}):
        code, said = alice.request("POST", f"/clusters/{of_alice}{APIS}/apiexports", body, who)
        assert code in (201, 409) and (code == 409 or said.get("status", {}).get("identityHash") != identity)
    assert alice.request("POST", f"/clusters/{of_alice}{APIS}/apiexports", body, SERVER)[0] == 403
    for name in ("gadgets", "forged"):
        door = f"/services/apiexport/{of_alice}/{name}/clusters"
        for who in ({}, MASTERS):
            code, said = alice.request("GET", f"{door}/*/apis/example.io/v1/widgets", headers=who)
            assert code in (403, 404) or said["items"] == [], said
            one = f"{door}/{of_victor}/apis/example.io/v1/namespaces/default/widgets/victims-widget"
            assert alice.request("GET", one, headers=who)[0] in (403, 404)
            assert alice.request("PATCH", one, {"spec": {"size": 1}}, {"Content-Type": MERGE, **who})[0] in (403, 404)
            assert alice.request("DELETE", one, headers=who)[0] in (403, 404)
    assert center.api("GET", widgets(of_victor, "victims-widget"))["spec"]["size"] == 7
    assert center.api("GET", at)["status"]["identityHash"] == own
    # What is bob's he still sees.
    door = f"/services/apiexport/{of_bob}/widgets/clusters"
    assert homes(world.bob.send("GET", f"{door}/*/apis/example.io/v1/widgets")[1]) == [(of_victor, "victims-widget")]


def test_an_export_without_its_key_serves_nothing(world):
    """An identity counts while its key is there, and no other key takes its place."""
    center, bob = world.center, world.bob
    home, user = world.home(bob), world.home(world.victor)
    made = export(center, home, schema())
    center.api("POST", f"/clusters/{user}{APIS}/apibindings", {
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": "widgets"},
        "spec": {"reference": {"export": {"path": home, "name": "widgets"}}}})
    bound(center, user)
    center.api("POST", widgets(user), widget("a"))
    everywhere = view(made, "*") + "/apis/example.io/v1/widgets"
    at = f"/clusters/{home}/api/v1/namespaces/kcp-system/secrets/widgets"
    key = center.api("GET", at)
    valid = lambda: condition(center.api("GET", f"/clusters/{home}{APIS}/apiexports/widgets"), "IdentityValid")["status"]  # noqa: E731
    assert homes(bob.send("GET", everywhere)[1]) == [(user, "a")]
    for spoil in (lambda: bob.send("PATCH", at, {"data": {"key": base64.b64encode(b"another").decode()}}, MERGE),
                  lambda: bob.send("DELETE", at)):
        assert spoil()[0] == 200
        wait_for("the export to lose its identity", lambda: valid() == "False")
        wait_for("its view to close", lambda: bob.send("GET", everywhere)[0] == 404)
        # Workspaces that bind it keep what is there.
        assert names(world.victor.send("GET", widgets(user))[1]) == ["a"]
        bob.send("DELETE", at)
        key["metadata"] = {"name": "widgets", "namespace": "kcp-system"}
        assert bob.send("POST", at.rsplit("/", 1)[0], key)[0] == 201
        wait_for("the export to have it back", lambda: valid() == "True")
        wait_for("its view", lambda: bob.send("GET", everywhere)[0] == 200)
        assert homes(bob.send("GET", everywhere)[1]) == [(user, "a")]


def test_nothing_is_bound_by_a_status(world, market):
    """S1b: kinds of placement are served where somebody may bind them, whatever a status says."""
    _, of_alice, _, _ = market
    center, alice = world.center, world.alice
    bindings = f"/clusters/{of_alice}{APIS}/apibindings"
    for group in ("edge.kcp.io", "workload.kcp.io"):
        wanted = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": f"ours-{group}"},
                  "spec": {"reference": {"export": {"path": "root:espw", "name": group}}}}
        for who in ({}, MASTERS, SERVER):
            assert alice.request("POST", bindings, wanted, who)[0] == 403, who
    made = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": "own"},
            "spec": {"reference": {"export": {"name": "gadgets"}}}}
    forged = [{"group": version.split("/")[0], "resource": resource, "storageVersions": ["v1alpha1"],
               "schema": {"name": f"v0.{resource}", "UID": f"00000000-0000-0000-0000-00000000000{i}", "identityHash": "00"}}
              for i, (resource, version) in enumerate(OURS.items())]
    assert alice.send("POST", bindings, {**made, "status": {"phase": "Bound", "boundResources": forged}})[0] == 201
    right = bound(center, of_alice, "own")["status"]["boundResources"]
    assert not any(one["resource"] in OURS for one in right)
    assert forgeries(alice, f"{bindings}/own", {"boundResources": [*right, *forged], "phase": "Bound"}) == []
    for resource, version in OURS.items():
        for who in ({}, MASTERS):
            assert alice.request("GET", f"/clusters/{of_alice}/apis/{version}/{resource}", headers=who)[0] == 404, resource
    assert center.api("GET", f"{bindings}/own")["status"]["boundResources"] == right
    # Nor does a schema have a status that means anything, nor may it be another's group.
    named = gadgets("v2")
    named["spec"]["group"], named["metadata"]["name"] = "edge.kcp.io", "v2.gadgets.edge.kcp.io"
    for who in ({}, MASTERS, SERVER):
        assert alice.request("POST", f"/clusters/{of_alice}{APIS}/apiresourceschemas", named, who)[0] in (403, 422)


def test_a_type_brings_nothing_that_its_user_may_not_have(world):
    """A WorkspaceType that extends another brings what that one binds: it takes the right to use that one."""
    center, alice = world.center, world.alice
    home, space = world.home(alice), {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace"}
    types, spaces = (f"/clusters/{home}/apis/tenancy.kcp.io/v1alpha1/{what}" for what in ("workspacetypes", "workspaces"))

    def of_type(name, *extended, **spec):
        return {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": name},
                "spec": {"extend": {"with": [{"name": one, "path": "root"} for one in extended]}, **spec}}
    for who in ({}, MASTERS):
        for one in ("workload", "inventory"):
            code, said = alice.request("POST", types, of_type("sneaky", "universal", one), who)
            assert code == 403 and f"extends root:{one}" in said["message"], (who, code, said)
    # Neither later, nor while a workspace of it is being made.
    assert alice.send("POST", types, of_type("slow", "universal", initializer=True))[0] == 201
    waiting = {**space, "metadata": {"name": "waiting"}, "spec": {"type": {"name": "slow", "path": home}}}
    assert alice.send("POST", spaces, waiting)[0] == 201
    for who in ({}, MASTERS):
        assert alice.request("PATCH", f"{types}/slow", {"spec": of_type("slow", "workload")["spec"]}, {"Content-Type": MERGE, **who})[0] == 403
    # Nor by a type that is there already, as an older server may have taken it.
    center.api("POST", types, of_type("old", "workload"))
    code, said = alice.send("POST", spaces, {**space, "metadata": {"name": "w"}, "spec": {"type": {"name": "old", "path": home}}})
    assert code == 422 and "extends root:workload, which you may not use" in said["message"], said
    assert alice.send("GET", f"/clusters/{home}:w/apis/edge.kcp.io/v1alpha1/edgeplacements")[0] in (403, 404)
    # With the right to, it works; and what it had it may keep.
    assert alice.send("PATCH", f"{types}/old", {"spec": {"additionalWorkspaceLabels": {"a": "b"}}}, MERGE)[0] == 200
    take = allow(center, "root", "alice", ["use"], ["workspacetypes"], group="tenancy.kcp.io", resourceNames=["workload"])
    assert alice.send("POST", spaces, {**space, "metadata": {"name": "w"}, "spec": {"type": {"name": "old", "path": home}}})[0] == 201
    take()


def test_nobody_becomes_the_server(world):
    """Neither by name, nor by name and group, nor with anything that says where one counts."""
    alice, home = world.alice, world.home(world.alice)
    at = f"/clusters/{home}"
    for extra in ({}, {"Impersonate-Uid": "1"}, {"Impersonate-Extra-authentication.kcp.io%2fscopes": "cluster:root"}):
        code, said = alice.request("POST", at + REVIEW, WHO, {**SERVER, **extra})
        assert code == 403 and "nobody but the server itself" in said["message"], said
        assert alice.request("POST", at + REVIEW, WHO, {"Impersonate-User": "system:apiserver", **extra})[0] == 403
    # A subject of that name is nobody either.
    assert alice.send("POST", f"{at}{RBAC}/clusterrolebindings", cluster_admin("system:apiserver"))[0] == 201
    for key in ("scopes", "cluster-name", "anything"):
        code, said = alice.request("POST", at + REVIEW, WHO, {**MASTERS, f"Impersonate-Extra-authentication.kcp.io%2f{key}": "cluster:root"})
        assert code == 201 and said["status"]["userInfo"]["extra"] == {"authentication.kcp.io/scopes": [f"cluster:{home}"]}, said
    # Limits and what belongs to the server stand, whoever one is.
    space = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "w"}}
    assert alice.request("POST", f"{at}/apis/tenancy.kcp.io/v1alpha1/workspaces", space, MASTERS)[0] == 201
    code, _ = alice.request("PATCH", f"{at}/apis/tenancy.kcp.io/v1alpha1/workspaces/w", {"spec": {"cluster": "root"}},
                            {"Content-Type": MERGE, **MASTERS})
    assert code == 422
    assert alice.request("GET", f"{at}:w/api/v1/secrets", headers=MASTERS)[0] == 403, "what one became is nothing in a workspace inside"


# ---- S2: what one becomes counts at home ----

def test_an_edge_is_told_of_nobody_whom_somebody_became(world, thief):
    alice, box = world.alice, f"/clusters/{thief.home}:thief-mb"
    assert alice.send("GET", f"{box}/api/v1/secrets")[0] == 403, "the edge knows alice and gives her nothing"
    code, said = alice.send("POST", box + REVIEW, WHO)
    assert code == 201 and said["status"]["userInfo"]["username"] == "alice"
    became = [MASTERS, SERVER, {"Impersonate-User": "selvedge-admin", "Impersonate-Group": "system:masters"},
              {"Impersonate-User": "system:node:n1", "Impersonate-Group": "system:nodes"}, {"Impersonate-User": "victor"},
              {"Impersonate-User": "system:kube-controller-manager"}, {"Impersonate-User": "system:serviceaccount:kube-system:admin"},
              {**MASTERS, "Impersonate-Extra-authentication.kcp.io%2fscopes": "cluster:root"},
              {"X-Remote-User": "x", "X-Remote-Group": "system:masters", **MASTERS}]
    for who in became:
        for method, path, body in (("GET", "/api/v1/secrets", None), ("POST", REVIEW, WHO), ("GET", f"{SECRETS}/hidden", None)):
            code, said = alice.request(method, box + path, body, who)
            assert code == 403 and "EDGESECRET" not in json.dumps(said), (who, path, code, said)
    code, said = alice.request("GET", f"{box}/api/v1/secrets", headers=MASTERS)
    assert "counts in the workspace" in said["message"] and "without impersonation" in said["message"]
    # Headers alone make nobody somebody, and the administrator of the server still is one there, in others' names too.
    code, said = alice.request("POST", box + REVIEW, WHO, {"X-Remote-User": "x", "X-Remote-Group": "system:masters"})
    assert said["status"]["userInfo"]["username"] == "alice"
    assert world.center.api("GET", f"{box}{SECRETS}/hidden")["data"]
    assert world.center.request("GET", f"{box}/api/v1/secrets", headers={"Impersonate-User": "alice"})[0] == 403


def test_nobody_goes_to_an_edge_through_a_mailbox_as_somebody_else(world, thief):
    """The rights in root:espw are rights there, also for what mailboxes pass on."""
    center, bob = world.center, world.bob
    center.api("POST", f"/clusters/root:espw{RBAC}/clusterrolebindings", cluster_admin("bob"))
    try:
        uid = center.api("GET", f"/clusters/{thief.home}{SYNCTARGETS}/thief")["metadata"]["uid"]
        boxes = center.api("GET", "/clusters/root:espw/apis/tenancy.kcp.io/v1alpha1/workspaces")["items"]
        box = next(f"/clusters/root:espw:{b['metadata']['name']}" for b in boxes if b["metadata"]["name"].endswith(uid))
        assert bob.request("GET", f"{box}/api/v1/namespaces", headers=MASTERS)[0] == 200
        at = f"{box}/api/v1/nodes/n1/proxy/"
        assert bob.request("GET", at)[0] == 403, "bob is nobody at the edge"
        code, said = bob.request("GET", at, headers=MASTERS)
        assert code == 403 and "counts in the workspace root:espw" in said["message"], (code, said)
    finally:
        center.api("DELETE", f"/clusters/root:espw{RBAC}/clusterrolebindings/bob-rules")


def test_a_provider_does_not_take_over_who_binds_it(world):
    """Claims on roles give no more than the provider has there itself, whoever it becomes at home."""
    center, bob, victor = world.center, world.bob, world.victor
    home, target = world.home(bob), world.home(victor)
    claims = [{"group": "rbac.authorization.k8s.io", "resource": resource, "identityHash": "", "all": True}
              for resource in ("clusterrolebindings", "clusterroles")]
    made = export(center, home, schema(), permissionClaims=claims)
    allow(center, home, "victor", ["bind"], ["apiexports"])
    body = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": "widgets"},
            "spec": {"reference": {"export": {"path": home, "name": "widgets"}}, "permissionClaims": [{**c, "state": "Accepted"} for c in claims]}}
    assert victor.send("POST", f"/clusters/{target}{APIS}/apibindings", body)[0] == 201
    bound(center, target)
    center.api("POST", f"/clusters/{target}{SECRETS}", secret("topsecret", a="TOPSECRET"))
    at = view(made, target) + RBAC
    everything = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "all"},
                  "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
    # victor administers the target: bob must not be him there either.
    for who in ({}, MASTERS, {"Impersonate-User": "victor"}, {"Impersonate-User": "victor", "Impersonate-Group": "system:masters"},
                {**MASTERS, "Impersonate-Extra-authentication.kcp.io%2fscopes": f"cluster:{target}"},
                {"Impersonate-User": "system:serviceaccount:default:default",
                 "Impersonate-Extra-authentication.kcp.io%2fcluster-name": target}, SERVER):
        for resource, what in (("clusterrolebindings", cluster_admin("bob", f"b-{next(counter)}")), ("clusterroles", everything)):
            code, said = bob.request("POST", f"{at}/{resource}", what, who)
            assert code == 403, (who, resource, code, said)
        mine = next(b["metadata"]["name"] for b in center.api("GET", f"/clusters/{target}{RBAC}/clusterrolebindings")["items"]
                    if b["metadata"]["name"].startswith("victor"))
        code, said = bob.request("PATCH", f"{at}/clusterrolebindings/{mine}", {"subjects": cluster_admin("bob")["subjects"]},
                                 {"Content-Type": MERGE, **who})
        assert code == 403, (who, code, said)
    assert bob.send("GET", f"/clusters/{target}{SECRETS}/topsecret")[0] == 403
    # What it may give, it gives: nothing is forbidden but more.
    harmless = {**everything, "metadata": {"name": "none"}, "rules": []}
    assert bob.request("POST", f"{at}/clusterroles", harmless, MASTERS)[0] == 201


def test_a_policy_of_a_provider_holds_for_whoever_one_becomes(world):
    center, alice, bob = world.center, world.alice, world.bob
    home, user = world.home(bob), world.home(alice)
    export(center, home, schema(), maximalPermissionPolicy={"local": {}})
    allow(center, home, "alice", ["bind"], ["apiexports"])
    role = lambda name, verbs, kind, subject: (  # noqa: E731
        center.api("POST", f"/clusters/{home}{RBAC}/clusterroles", {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"apiGroups": ["example.io"], "resources": ["widgets"], "verbs": verbs}]}),
        center.api("POST", f"/clusters/{home}{RBAC}/clusterrolebindings", {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": f"apis.kcp.io:binding:{subject}"}]}))
    role("all-read", ["get", "list"], "Group", "system:authenticated")
    role("jane-writes", ["*"], "User", "jane")
    body = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": "widgets"},
            "spec": {"reference": {"export": {"path": home, "name": "widgets"}}}}
    assert alice.send("POST", f"/clusters/{user}{APIS}/apibindings", body)[0] == 201
    bound(center, user)
    for who in ({}, MASTERS, {"Impersonate-User": "jane"}, {"Impersonate-User": "apis.kcp.io:binding:jane"}, SERVER,
                {"Impersonate-User": "x", "Impersonate-Group": "apis.kcp.io:binding:system:masters"}):
        assert alice.request("POST", widgets(user), widget("a"), who)[0] == 403, who
    assert alice.request("GET", widgets(user), headers=MASTERS)[0] == 200
    # jane herself may, and so may the administrator of the server.
    center.api("POST", f"/clusters/{user}{RBAC}/clusterrolebindings", cluster_admin("jane"))
    center.api("POST", widgets(user), widget("a"), headers={"Impersonate-User": "jane"})
    center.api("POST", widgets(user), widget("b"))


def test_seats_of_the_system_are_not_a_tenants(world):
    """Neither masters of a workspace nor leases in one are served before others. A body that does not come keeps its seat."""
    alice, home = world.alice, world.home(world.alice)

    def taken(level):
        text = world.center.request("GET", "/metrics", accept="*/*")[2].decode()
        return int(re.search(rf'apiserver_flowcontrol_current_executing_seats\{{priority_level="{level}"\}} (\d+)', text).group(1))

    def sits(path, **headers):
        with contextlib.closing(world.center.connection(10)) as conn:
            conn._context = ssl.create_default_context(cafile=str(world.center.ca))
            conn.putrequest("POST", path)
            for name, value in {"Content-Type": "application/json", "Content-Length": "1000", **alice.headers, **headers}.items():
                conn.putheader(name, value)
            conn.endheaders(b"{")
            wait_for("a seat", lambda: taken("write") + taken("system") > 0, 5)
            return taken("write"), taken("system")
    wait_for("a quiet center", lambda: taken("write") + taken("system") == 0)
    for path, who in ((MAPS, {}), (MAPS, MASTERS), ("/apis/coordination.k8s.io/v1/namespaces/default/leases", {})):
        assert sits(f"/clusters/{home}{path}", **who) == (1, 0), (path, who)
        wait_for("the seat to be free", lambda: taken("write") + taken("system") == 0)


# ---- S12: what the log says ----

def told(world, who, method, path, body=None, headers=None, code=None):
    audit_id = f"attack-{next(counter)}"
    status, said = who.request(method, path, body, {**(headers or {}), "Audit-Id": audit_id})
    assert code is None or status == code, (status, said)
    return world.event(audit_id)


def test_the_log_says_who_was_impersonated_and_why_it_was_allowed(world, thief, market):
    center, alice, bob = world.center, world.alice, world.bob
    of_bob, _, of_victor, _ = market
    note = "authorization.k8s.io/"
    tunnel, door = f"/clusters/{thief.home}:thief-mb", f"/services/apiexport/{of_bob}/widgets/clusters"
    event = told(world, alice, "GET", f"{tunnel}/api/v1/secrets", code=403)
    assert event["user"]["username"] == "alice" and "impersonatedUser" not in event
    assert event["annotations"][note + "decision"] == "allow", "the center let it pass; the edge did not"
    assert "alice-rules" in event["annotations"][note + "reason"]
    event = told(world, alice, "GET", f"{tunnel}/api/v1/secrets", headers=MASTERS, code=403)
    assert (event["user"]["username"], event["impersonatedUser"]["username"]) == ("alice", "x")
    assert "system:masters" in event["impersonatedUser"]["groups"]
    assert event["impersonatedUser"]["extra"] == {"authentication.kcp.io/scopes": [f"cluster:{thief.home}"]}
    for where, code in (("*", 200), (of_victor, 200)):
        event = told(world, bob, "GET", f"{door}/{where}/apis/example.io/v1/widgets", headers={"Impersonate-User": "robot", "Impersonate-Group": "system:masters"}, code=code)
        assert (event["user"]["username"], event["impersonatedUser"]["username"]) == ("bob", "robot")
        assert event["annotations"][note + "decision"] == "allow" and note + "reason" in event["annotations"]
        event = told(world, bob, "GET", f"{door}/{where}/apis/example.io/v1/widgets", code=code)
        assert "bob-rules" in event["annotations"][note + "reason"] and "impersonatedUser" not in event
        event = told(world, bob, "GET", f"{door}/{where}/apis", headers=MASTERS, code=code)
        assert event["impersonatedUser"]["username"] == "x" and event["annotations"][note + "decision"] == "allow"
    # An impersonation that was allowed is written down as well if the request itself was refused.
    event = told(world, bob, "GET", f"{door}/*/apis/example.io/v1/widgets", headers={"Impersonate-User": "nobody"}, code=403)
    assert event["impersonatedUser"]["username"] == "nobody" and event["annotations"][note + "decision"] == "forbid"
    uid = center.api("GET", f"/clusters/{thief.home}{SYNCTARGETS}/thief")["metadata"]["uid"]
    boxes = center.api("GET", "/clusters/root:espw/apis/tenancy.kcp.io/v1alpha1/workspaces")["items"]
    box = next(f"/clusters/root:espw:{b['metadata']['name']}" for b in boxes if b["metadata"]["name"].endswith(uid))
    admin = Client(center, cert=(center.cert, center.key))
    event = told(world, admin, "GET", f"{box}/api/v1/namespaces", headers=MASTERS, code=200)
    assert event["impersonatedUser"]["username"] == "x" and event["annotations"][note + "decision"] == "allow"


# ---- S13 ----

def test_strangers_cannot_tell_which_edges_there_are(world, thief):
    """The same answer, whether there is an edge or not: to nobody, and to somebody who may know nothing of edges there."""
    center, home = world.center, thief.home
    center.api("POST", SYNCTARGETS, {"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget", "metadata": {"name": "penny"}})
    center.api("POST", f"/clusters/{home}{RBAC}/clusterrolebindings", {
        **cluster_admin("mallory"), "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kcp:workspace:access"}})
    said = lambda who, path, method, headers: [  # noqa: E731
        json.dumps(part).replace("nothing", "NAME").replace("thief", "NAME").replace("penny", "NAME")
        for part in who.request(method, path, None, headers)]
    nobody = Client(center)
    for (there, missing), who in itertools.product(((f"{home}:thief", f"{home}:nothing"), ("root:penny", "root:nothing")),
                                                   (nobody, world.mallory, world.bob)):
        for path, method, headers in itertools.product(("/api", "/api/v1/pods", "/version", "/livez", "/", "/apis/x/v1/y/z", "/fleet", "/api/v1/a/b/c/d/e/f/g"),
                                                       ("GET", "POST", "HEAD", "OPTIONS", "DELETE"), ({}, MASTERS)):
            a = said(who, f"/clusters/{there}-mb{path}", method, headers)
            b = said(who, f"/clusters/{missing}-mb{path}", method, headers)
            assert a == b, (path, method, headers, a, b)
    # A user who may ask the edge for something, or see its SyncTarget, is told what is wrong.
    allow(center, home, "mallory", ["get"], ["synctargets/proxy"], group="workload.kcp.io", resourceNames=["thief"])
    wait_for("the role", lambda: world.mallory.code("GET", f"/clusters/{home}:thief-mb/version") == 200)
    code, reply = world.mallory.request("DELETE", f"/clusters/{home}:thief-mb{SECRETS}/hidden")
    assert code == 403 and "synctargets/proxy" in reply["message"], reply
    code, reply = world.alice.request("GET", f"/clusters/{home}:thief-mb/api/v1/secrets")
    assert code == 403 and "secrets" in reply["message"]


def test_a_certificate_names_all_groups_that_were_asked_for(world, tmp_path):
    center = world.center
    admin, signer = Client(center, cert=(center.cert, center.key)), "kubernetes.io/kube-apiserver-client"

    def signed(name, subject):
        base, (status, reply) = csr(admin, tmp_path, name, subject, signer)
        assert status == 201, reply
        approval = center.api("GET", f"{CSR}/{name}")
        approval["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "x"}]}
        center.api("PUT", f"{CSR}/{name}/approval", approval)
        return base
    user = Client(center, cert=certificate(center, signed("two", "/O=devs/O=ops/CN=jane/O=third"), "two")).who()
    assert (user["username"], user["groups"]) == ("jane", ["devs", "ops", "third", "system:authenticated"])
    text = subprocess.run(["openssl", "verify", "-CAfile", str(center.data_dir / "pki" / "ca.crt"), f"{tmp_path}/nothing"], capture_output=True)
    assert text.returncode != 0
    for i, subject in enumerate(("/O=system:masters/O=devs/CN=boss", "/O=devs/O=system:masters/CN=boss", "/O=a/O=system:masters/O=b/CN=boss",
                                 "/CN=boss/O=system:masters", "/O=system:masters/CN=boss/O=system:masters/O=z")):
        _, (status, reply) = csr(admin, tmp_path, f"boss-{i}", subject, signer)
        assert status == 403 and "system:masters group is not allowed" in reply["message"], (subject, status, reply)
    # Nobody is the server by a certificate.
    signed("server", "/CN=system:apiserver")
    failed = lambda: [c for c in center.api("GET", f"{CSR}/server")["status"].get("conditions", []) if c["type"] == "Failed"]  # noqa: E731
    assert "reserved" in wait_for("the refusal", failed, 10)[0]["message"]


def test_a_revoked_edge_is_nobody_anywhere(world):
    center = world.center
    edge = Edge(center, world.base / "yen", "yen")
    try:
        edge.start().wait_connected()
        cert = certificate_of(edge)
        as_edge = Client(center, cert=cert)
        paths = ("/api", "/apis", "/version", "/api/v1/namespaces", "/clusters/root/api", "/clusters/root:espw/api", "/readyz", REVIEW)
        assert as_edge.who()["username"] == "system:edge:root:yen" and as_edge.code("GET", "/api") == 200
        selvedge("edge", "revoke", "yen", "--kubeconfig", center.kubeconfig)
        for path in paths:
            assert as_edge.code("POST" if path == REVIEW else "GET", path, WHO if path == REVIEW else None) == 401, path
        assert as_edge.who() == 401
        # The link says why.
        status, reply = ask(center, {"request": request_of(world.base, "yen")}, cert)
        assert status == 403 and "not good any more" in reply["message"]
        # Nor when it is gone, nor when there is another of its name.
        center.api("DELETE", f"{SYNCTARGETS}/yen")
        wait_for("it to go", lambda: center.request("GET", f"{SYNCTARGETS}/yen")[0] == 404)
        assert as_edge.code("GET", "/api") == 401
        center.api("POST", SYNCTARGETS, {"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget", "metadata": {"name": "yen"}})
        assert as_edge.code("GET", "/api") == 401
    finally:
        edge.kill()


def test_a_session_ends_with_its_certificate(tmp_path):
    """An edge that never comes back with a new certificate is sent away when its old one ends."""
    center = Center(tmp_path / "center", args=["--edge-certificate-lifetime=8s"])
    edge = Edge(center, tmp_path / "yen", "yen")
    try:
        center.start()
        edge.start().wait_connected()
        cert = certificate_of(edge)
        # It neither renews the certificate nor says anything more.
        edge.process.send_signal(signal.SIGSTOP)
        end = subprocess.run(["openssl", "x509", "-noout", "-enddate", "-in", cert[0]], capture_output=True, text=True, check=True).stdout
        ends = ssl.cert_time_to_seconds(end.strip().removeprefix("notAfter="))
        assert time.time() < ends

        def is_away():
            conditions = center.api("GET", f"{SYNCTARGETS}/yen")["status"]["conditions"]
            return next(c["status"] for c in conditions if c["type"] == "Ready") == "False"

        assert not is_away()
        wait_for("its session to end", is_away, 20)
        assert ends - 1 <= time.time() <= ends + 7, f"it ended {time.time() - ends:.1f} s after the certificate"
    finally:
        edge.kill()
        center.kill()


# ---- What an older version has stored ----

@pytest.mark.skipif(not os.environ.get("SELVEDGE_OLD_BIN"), reason="SELVEDGE_OLD_BIN names no program from before")
def test_what_was_forged_before_counts_no_more(tmp_path):
    center = start(tmp_path / "old")
    new, center.command[0] = center.command[0], os.environ["SELVEDGE_OLD_BIN"]
    try:
        center.start()
        world = World(center, tmp_path / "old")
        of_bob, of_alice, of_victor = world.home(world.bob), world.home(world.alice), world.home(world.victor)
        made = export(center, of_bob, schema())
        identity = made["status"]["identityHash"]
        export(center, of_alice, gadgets(), name="gadgets")
        export(center, of_bob, gadgets(), name="late")
        for path, name in ((of_bob, "widgets"), (of_alice, "gadgets")):
            center.api("POST", f"/clusters/{of_victor}{APIS}/apibindings", {
                "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": name},
                "spec": {"reference": {"export": {"path": path, "name": name}}}})
            bound(center, of_victor, name)
        center.api("POST", f"/clusters/{of_alice}{APIS}/apiresourceschemas", schema())
        both = [gadgets()["metadata"]["name"], "v1.widgets.example.io"]
        center.api("PATCH", f"/clusters/{of_alice}{APIS}/apiexports/gadgets", {"spec": {"latestResourceSchemas": both}}, content_type=MERGE)
        center.api("POST", widgets(of_victor), widget("victims-widget"))
        allow(center, of_bob, "alice", ["bind"], ["apiexports"])
        bindings = f"/clusters/{of_alice}{APIS}/apibindings"
        for name, path in (("own", of_alice), ("late", of_bob)):
            center.api("POST", bindings, {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": name},
                                          "spec": {"reference": {"export": {"path": path, "name": "gadgets" if name == "own" else "late"}}}})
        right = bound(center, of_alice, "own")["status"]["boundResources"]
        center.api("POST", f"/clusters/{of_alice}/apis/alice.io/v1/namespaces/default/gadgets",
                   {"apiVersion": "alice.io/v1", "kind": "Gadget", "metadata": {"name": "kept"}})
        # What an export drops stays where it was bound.
        center.api("PATCH", f"/clusters/{of_alice}{APIS}/apiexports/gadgets", {"spec": {"latestResourceSchemas": ["v1.widgets.example.io"]}}, content_type=MERGE)
        bobs = center.api("GET", f"/clusters/{of_bob}{APIS}/apiresourceschemas/v1.widgets.example.io")["metadata"]["uid"]
        forged = [{"group": version.split("/")[0], "resource": resource, "storageVersions": ["v1alpha1"],
                   "schema": {"name": f"v0.{resource}", "UID": f"00000000-0000-0000-0000-00000000000{i}", "identityHash": "00"}}
                  for i, (resource, version) in enumerate(OURS.items())]
        forged.append({"group": "foreign.io", "resource": "things", "storageVersions": ["v1"],
                       "schema": {"name": "v1.things.foreign.io", "UID": bobs, "identityHash": identity}})
        path = f"{bindings}/own/status"
        code, said = world.alice.request("PATCH", path, {"status": {"boundResources": [*right, *forged]}}, {"Content-Type": MERGE, **SERVER})
        assert code == 200, said
        path = f"/clusters/{of_alice}{APIS}/apiexports/gadgets/status"
        assert world.alice.request("PATCH", path, {"status": {"identityHash": identity}}, {"Content-Type": MERGE, **SERVER})[0] == 200
        stolen = f"/services/apiexport/{of_alice}/gadgets/clusters/*/apis/example.io/v1/widgets"
        assert "victims-widget" in json.dumps(world.alice.send("GET", stolen)[1]), "the older version is taken in"
        assert world.alice.send("GET", f"/clusters/{of_alice}/apis/edge.kcp.io/v1alpha1/edgeplacements")[0] == 200
        assert center.stop() == 0
        center.command[0] = new
        center.start()
        code, said = world.alice.send("GET", stolen)
        assert code == 404 or said["items"] == [], said
        for resource, version in OURS.items():
            assert world.alice.send("GET", f"/clusters/{of_alice}/apis/{version}/{resource}")[0] == 404
        listed = lambda: {one["resource"] for one in center.api("GET", f"{bindings}/own")["status"]["boundResources"]}  # noqa: E731
        wait_for("the status to be put right", lambda: listed() == {"widgets", "gadgets"})
        assert names(world.alice.send("GET", f"/clusters/{of_alice}/apis/alice.io/v1/namespaces/default/gadgets")[1]) == ["kept"]
        made = center.api("GET", f"/clusters/{of_alice}{APIS}/apiexports/gadgets")
        assert condition(made, "IdentityValid")["status"] == "True" and made["status"]["identityHash"] == right[0]["schema"]["identityHash"]
        everywhere = f"/services/apiexport/{of_bob}/widgets/clusters/*/apis/example.io/v1/widgets"
        assert homes(world.bob.send("GET", everywhere)[1]) == [(of_victor, "victims-widget")]
    finally:
        center.kill()
