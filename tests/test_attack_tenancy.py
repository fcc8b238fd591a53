"""Tenants attack each other through what they share: edges, the workspaces that they lie in, and join tokens."""
import contextlib
import copy
import json
import ssl
import time

import pytest
from center import Center, wait_for
from edge import CONFIRM, SYNCTARGETS, WORKSPACE, annotate, fleet, make_workspace, selvedge
from placed import LOCATIONS, MERGE, PLACEMENTS, condition, placement
from test_join import ask, attempt, request_of, token

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SHOP = "/api/v1/namespaces/shop"
VICTIM, THIEF = "root:wa", "root:wb"
USERS = {VICTIM: "victor", THIEF: "mallory"}
GRANTED = "edge.selvedge.dev/workspace-granted"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"


def own(center, user, path):
    """Everything in one workspace, and nothing else."""
    center.api("POST", f"/clusters/{path}{RBAC}/clusterrolebindings", {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": f"{user}-owns"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]}, expect=(201, 409))


class Tenant:
    """A user in a workspace."""

    def __init__(self, center, user, path, token=None):
        self.center, self.user, self.path, self.token = center, user, path, token

    def ask(self, method, path, body=None, headers=None, **kw):
        """With a token it is really this user; without one, the administrator becomes it."""
        who = {"Impersonate-User": self.user, "Impersonate-Group": "system:authenticated"}
        if self.token:
            who = {"Authorization": f"Bearer {self.token}"}
        center = self.center.nobody if self.token else self.center
        status, _, said = center.request(method, f"/clusters/{self.path}{path}", body, headers={**who, **(headers or {})}, **kw)
        return status, json.loads(said)

    def do(self, method, path, body=None, **kw):
        status, said = self.ask(method, path, body, **kw)
        assert 200 <= status < 300, (method, path, status, said)
        return said

    def namespace(self, name, **labels):
        self.do("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels or {"of": name}}})

    def run(self, namespace, name):
        """A Pod that mounts the Secret pw. It needs the account of its namespace, which comes a moment later."""
        wait_for("the account", lambda: self.ask("POST", f"/api/v1/namespaces/{namespace}/pods", pod(name))[0] == 201)

    def place(self, name, where, namespaces=None, **spec):
        self.do("POST", PLACEMENTS, placement(name, where, namespaces or {"of": name}, **spec))

    def conflict(self, name):
        status = self.do("GET", f"{PLACEMENTS}/{name}").get("status", {})
        said = condition(status, "Conflict")
        return said["message"] if said.get("status") == "True" else ""

    def is_settled(self, name):
        """Everything that there is to say about a placement is said, and its edges have all that they are to have."""
        status = self.do("GET", f"{PLACEMENTS}/{name}").get("status", {})
        ready = condition(status, "Ready")
        # One with a conflict is never ready, but says so only when its edges have the rest.
        return ready.get("status") == "True" or ready.get("reason") == "Conflict"


def nobody(center):
    """The same center, for somebody without a certificate."""
    bare = copy.copy(center)
    bare._tls, bare.token = ssl.create_default_context(cafile=str(center.ca)), None
    return bare


def secret(name, **data):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def pod(name, **metadata):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": {
        "containers": [{"name": "c", "image": "sh", "volumeMounts": [{"name": "s", "mountPath": "/s"}]}],
        "volumes": [{"name": "s", "secret": {"secretName": "pw"}}]}}


def has(edge, path):
    return edge.request("GET", path)[0] == 200


def never(what, found, center, edge):
    """Something that is written now reaches the edge after all that was on its way before: the fence."""
    name = f"fence-{time.monotonic_ns()}"
    center.api("POST", "/api/v1/namespaces/fence/configmaps", {"metadata": {"name": name}}, expect=(201,))
    wait_for("the fence", lambda: has(edge, f"/api/v1/namespaces/fence/configmaps/{name}"), 30)
    assert not found(), what


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two edges of root, florin and guilder, and two tenants who may place on both."""
    with fleet("florin", "guilder", workspace=None, directory=tmp_path_factory.mktemp("tenants")) as (center, florin, guilder):
        for edge in (florin, guilder):
            center.api("PATCH", f"{SYNCTARGETS}/{edge.name}", {"metadata": {"labels": {"id": edge.name}}}, content_type=MERGE)
            center.api("POST", LOCATIONS, {
                "apiVersion": "scheduling.kcp.io/v1alpha1", "kind": "Location",
                "metadata": {"name": edge.name, "labels": {"at": edge.name, "env": "prod"}},
                "spec": {"instanceSelector": {"matchLabels": {"id": edge.name}}}})
        center.api("POST", "/api/v1/namespaces", {"metadata": {"name": "fence", "labels": {"of": "fence"}}}, expect=(201,))
        center.api("POST", PLACEMENTS, placement("fence", {"env": "prod"}, {"of": "fence"}), expect=(201,))
        tenants = []
        for path, user in USERS.items():
            make_workspace(center, path, "workload")
            own(center, user, path)
            tenants.append(Tenant(center, user, path))
        yield (center, florin, guilder, *tenants)
        for server in (center, florin, guilder):
            assert "panicked" not in server.log_path.read_text(errors="replace")


# ---- a namespace of an edge is one workspace's ----

def test_a_namesake_namespace_does_not_steal_secrets(world):
    center, florin, guilder, victor, mallory = world
    # Mallory's placement is the older one, and her Namespace too: they are nothing until they claim something.
    mallory.namespace("shop", not_yet="placed")
    mallory.place("shop", {"env": "prod"})
    victor.namespace("shop")
    victor.do("POST", f"{SHOP}/secrets", secret("pw", password="TENANT-A-SECRET"))
    victor.run("shop", "web")
    victor.place("shop", {"at": "florin"})
    wait_for("the secret", lambda: has(florin, f"{SHOP}/secrets/pw"))
    recorded(center, victor, "shop", "shop")
    mallory.run("shop", "spy")
    mallory.run("shop", "web")
    mallory.do("PATCH", f"{PLACEMENTS}/shop", {"spec": {"wantSingletonReportedState": True}}, content_type=MERGE)
    mallory.do("PATCH", "/api/v1/namespaces/shop", {"metadata": {"labels": {"of": "shop"}}}, content_type=MERGE)
    never("a spy among the victim's secrets", lambda: has(florin, f"{SHOP}/pods/spy"), center, florin)
    said = wait_for("the conflict", lambda: mallory.conflict("shop"))
    assert "namespace shop" in said and "edge florin" in said and "another name" in said, said
    assert VICTIM not in said and "victor" not in said, "nobody is told who else is there"
    assert florin.api("GET", f"{SHOP}/pods/web")["metadata"]["annotations"]["edge.selvedge.dev/source"] == VICTIM
    # Where the victim is not, the namespace is hers.
    wait_for("her own on the other edge", lambda: has(guilder, f"{SHOP}/pods/spy"))
    assert not victor.conflict("shop") and not has(guilder, f"{SHOP}/secrets/pw")
    # What the edge says of the victim's Pod is not told under hers of the same name.
    mallory.do("PATCH", f"{PLACEMENTS}/shop", {"spec": {"locationSelectors": [{"matchLabels": {"at": "florin"}}]}}, content_type=MERGE)
    florin.api("PATCH", f"{SHOP}/pods/web/status", {"status": {"phase": "Failed", "message": "THE-VICTIMS-STATE"}}, content_type=MERGE)
    wait_for("the report", lambda: "THE-VICTIMS-STATE" in json.dumps(report(center, florin, "core/pods/shop/web")))
    # The victim's own Pod is looked at together with hers.
    wait_for("it at the victim's", lambda: "THE-VICTIMS-STATE" in json.dumps(victor.do("GET", f"{SHOP}/pods/web")))
    never("the victim's state", lambda: "THE-VICTIMS-STATE" in json.dumps(mallory.do("GET", f"{SHOP}/pods/web"))
          or "THE-VICTIMS-STATE" in json.dumps(mallory.do("GET", f"{PLACEMENTS}/shop")), center, florin)


def claims(center, tenant, name):
    """What is recorded of a placement's claims, where no tenant may look."""
    uid = tenant.do("GET", f"{PLACEMENTS}/{name}")["metadata"]["uid"]
    record = center.api("GET", f"/clusters/root:espw/api/v1/namespaces/default/configmaps/claims-of-{uid}")
    return json.loads(record["data"]["claims"])["namespaces"]


def recorded(center, tenant, name, namespace):
    """Gives the center the moment that it needs to write a claim down. Whether it did shows in what follows."""
    with contextlib.suppress(AssertionError):
        wait_for("the record", lambda: namespace in claims(center, tenant, name), 5)


def report(center, edge, key):
    uid = edge.target()["metadata"]["uid"]
    boxes = center.api("GET", "/clusters/root:espw/apis/tenancy.kcp.io/v1alpha1/workspaces")["items"]
    [box] = [b["metadata"]["name"] for b in boxes if b["metadata"]["name"].endswith(uid)]
    _, namespace, name = key.rsplit("/", 2)
    return center.api("GET", f"/clusters/root:espw:{box}/api/v1/namespaces/{namespace}/pods/{name}")


def test_records_of_claims_are_nobodys_to_write(world):
    center, _, _, victor, mallory = world
    uid = victor.do("GET", f"{PLACEMENTS}/shop")["metadata"]["uid"]
    at_provider = Tenant(center, "mallory", "root:espw")
    path = f"/api/v1/namespaces/default/configmaps/claims-of-{uid}"
    for method, body in (("GET", None), ("DELETE", None), ("PATCH", {"data": {"claims": "{}"}})):
        assert at_provider.ask(method, path, body, content_type=MERGE)[0] == 403
    # One of the same name in her own workspace says nothing.
    hers = mallory.do("GET", f"{PLACEMENTS}/shop")["metadata"]["uid"]
    forged = {"uid": hers, "reach": "[]", "namespaces": {"shop": {"since": 0}}}
    mallory.do("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": f"claims-of-{hers}"}, "data": {
        "workspace": THIEF, "placement": "shop", "claims": json.dumps(forged)}})
    assert mallory.conflict("shop")


def test_the_owner_of_a_namespace_stays_the_owner(world):
    center, florin, guilder, victor, mallory = world
    # She was first on the other edge, and then leads her placement to the victim's.
    mallory.namespace("bank")
    mallory.run("bank", "spy")
    mallory.place("bank", {"at": "guilder"})
    wait_for("hers", lambda: has(guilder, "/api/v1/namespaces/bank/pods/spy"))
    recorded(center, mallory, "bank", "bank")
    victor.namespace("bank")
    victor.do("POST", "/api/v1/namespaces/bank/secrets", secret("pw", password="x"))
    victor.place("bank", {"at": "florin"})
    there = lambda: has(florin, "/api/v1/namespaces/bank/secrets/pw")  # noqa: E731
    spied = lambda: has(florin, "/api/v1/namespaces/bank/pods/spy") or not there()  # noqa: E731
    wait_for("the victim's", there)
    recorded(center, victor, "bank", "bank")
    mallory.do("PATCH", f"{PLACEMENTS}/bank", {"spec": {"locationSelectors": [{"matchLabels": {"env": "prod"}}]}}, content_type=MERGE)
    never("an older claim to another edge", spied, center, florin)
    wait_for("the conflict", lambda: "edge florin" in mallory.conflict("bank"))
    # The victim's placement is edited, and one takes the place of the other: she who waits gets nothing.
    victor.do("PATCH", f"{PLACEMENTS}/bank", {"spec": {"locationSelectors": [{"matchLabels": {"at": "florin", "env": "prod"}}]}}, content_type=MERGE)
    never("the place of somebody who edits", spied, center, florin)
    victor.place("bank-2", {"at": "florin"}, {"of": "bank"})
    recorded(center, victor, "bank-2", "bank")
    victor.do("DELETE", f"{PLACEMENTS}/bank")
    never("the place of one of two placements", spied, center, florin)
    # Nor does a restart change it.
    center.stop()
    center.start()
    for edge in (florin, guilder):
        edge.wait_connected()
    wait_for("the conflict again", lambda: "edge florin" in mallory.conflict("bank"))
    never("the place of the owner after a restart", spied, center, florin)


def test_a_namespace_is_given_back_empty(world):
    _, florin, _, victor, mallory = world
    # Somebody of the victim's made this on the edge itself; the center knows nothing of it.
    florin.api("POST", f"{SHOP}/secrets", secret("local", password="MADE-ON-THE-EDGE"))
    victor.do("DELETE", f"{PLACEMENTS}/shop")
    wait_for("her turn", lambda: has(florin, f"{SHOP}/pods/spy"), 40)
    left = [s["metadata"]["name"] for s in florin.api("GET", f"{SHOP}/secrets")["items"]]
    assert left == [], "what the former owner left behind is gone"
    assert florin.api("GET", SHOP)["metadata"]["annotations"]["edge.selvedge.dev/source"] == THIEF
    wait_for("no conflict", lambda: not mallory.conflict("shop"))


def test_namespaces_that_an_edge_made_are_the_edges(world):
    center, florin, _, _, mallory = world
    for name, spec in (("ours", {}), ("ours-too", {"createOnly": True})):
        florin.api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        florin.api("POST", f"/api/v1/namespaces/{name}/secrets", secret("pw", password="the edge's"))
        mallory.namespace(name)
        mallory.run(name, "spy")
        mallory.place(name, {"at": "florin"}, **spec)
        refused = lambda n=name: condition(mallory.do("GET", f"{PLACEMENTS}/{n}").get("status", {}), "Refused")  # noqa: E731
        wait_for("the refusal", lambda: "belongs to it" in refused().get("message", ""))
        never("a spy in a namespace of the edge", lambda n=name: has(florin, f"/api/v1/namespaces/{n}/pods/spy"), center, florin)
        mallory.do("DELETE", f"{PLACEMENTS}/{name}")


def test_a_customizer_cannot_change_where_an_object_comes_from(world):
    _, florin, _, _, mallory = world
    mallory.namespace("tailor")
    mallory.do("POST", "/apis/edge.kcp.io/v1alpha1/namespaces/tailor/customizers", {
        "apiVersion": "edge.kcp.io/v1alpha1", "kind": "Customizer", "metadata": {"name": "c"}, "replacements": [
            {"path": "$.metadata.annotations['edge.selvedge.dev/source']", "value": json.dumps(VICTIM)},
            {"path": "$.metadata.labels", "value": "{}"}, {"path": "$.data.a", "value": '"changed"'}]})
    mallory.do("POST", "/api/v1/namespaces/tailor/configmaps", {
        "metadata": {"name": "a", "annotations": {"edge.kcp.io/customizer": "c"}}, "data": {"a": "b"}})
    mallory.place("tailor", {"at": "florin"})
    made = wait_for("it", lambda: florin.api("GET", "/api/v1/namespaces/tailor/configmaps/a"))
    assert made["metadata"]["annotations"]["edge.selvedge.dev/source"] == THIEF
    assert made["metadata"]["labels"] == {"edge.kcp.io/projected": "yes"} and made["data"]["a"] == "changed"


# ---- what concerns the whole edge comes from those whom its owner trusts ----

def test_only_trusted_workspaces_place_what_concerns_the_whole_edge(world):
    center, florin, _, _, mallory = world
    power = {"labels": {"power": "yes"}}
    only = {**power, "annotations": {"edge.selvedge.dev/only": "edge"}}
    mallory.do("POST", f"{RBAC}/clusterrolebindings", {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "all-of-it", **only},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "shop"}]})
    mallory.do("POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", {
        "metadata": {"name": "listens", **only}, "webhooks": [{
            "name": "listens.example.com", "clientConfig": {"url": "https://hooks.example.com/"}, "sideEffects": "None", "failurePolicy": "Ignore",
            "admissionReviewVersions": ["v1"], "rules": [{"apiGroups": ["none.example.com"], "apiVersions": ["v1"], "resources": ["things"], "operations": ["*"]}]}]})
    mallory.do("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "above-all", **power}, "value": 1000000})
    mallory.do("POST", "/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": "disk", **power}, "provisioner": "x"})
    mallory.do("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "in-default"}, "data": {"a": "b"}})
    mallory.do("PATCH", "/api/v1/namespaces/default", {"metadata": {"labels": {"power": "yes"}}}, content_type=MERGE)
    everything = [{"apiGroup": "*", "resources": ["*"], "labelSelectors": [{"matchLabels": {"power": "yes"}}]}]
    mallory.place("power", {"at": "florin"}, {"power": "yes"}, nonNamespacedObjects=everything)
    said = wait_for("the conflict", lambda: mallory.conflict("power"))
    for words in ("root:florin", THIEF, "selvedge ws root && kubectl patch location florin --type=json -p"):
        assert words in said, said
    paths = (f"{RBAC}/clusterrolebindings/all-of-it", "/apis/scheduling.k8s.io/v1/priorityclasses/above-all",
             "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/listens", "/apis/storage.k8s.io/v1/storageclasses/disk",
             "/api/v1/namespaces/default/configmaps/in-default")
    wait_for("the rest of it", lambda: mallory.is_settled("power"))
    never("power over the whole edge", lambda: any(has(florin, path) for path in paths), center, florin)
    # What the message says to do, done by the owner of the inventory; nobody else may.
    patch = said.split(" -p '")[1].split("'")[0]
    json_patch = "application/json-patch+json"
    assert mallory.ask("PATCH", f"{LOCATIONS}/florin", patch, content_type=json_patch)[0] in (403, 404)
    assert Tenant(center, "mallory", "root").ask("PATCH", f"{LOCATIONS}/florin", patch, content_type=json_patch)[0] == 403
    center.api("PATCH", f"{LOCATIONS}/florin", patch, content_type=json_patch)
    wait_for("all of it", lambda: all(has(florin, path) for path in paths))
    wait_for("no conflict", lambda: not mallory.conflict("power"))
    center.api("PATCH", f"{LOCATIONS}/florin", {"spec": {"trustedWorkspaces": ["root:someone-else", "root:wb:*"]}}, content_type=MERGE)
    def gone():
        held = florin.condition("DeletionHeld") or {}
        if held.get("status") == "True":
            annotate(center, "florin", **{CONFIRM: held["message"].rsplit("=", 1)[1]})
        return not any(has(florin, path) for path in paths)

    wait_for("it to be taken away", gone)


# ---- rights do not flow down: a workspace's content goes to an edge only if somebody in it says so ----

@pytest.fixture
def family(tmp_path):
    """alice administers root:a, with SyncTargets; victor root:a:team, inside it."""
    (tmp_path / "tokens").write_text("tok-alice,alice,1\ntok-victor,victor,2\n")
    center = Center(tmp_path / "center", args=["--token-auth-file", str(tmp_path / "tokens")])
    try:
        center.start()
        make_workspace(center, "root:a", "inventory")
        make_workspace(center, "root:a:team")
        own(center, "alice", "root:a")
        own(center, "victor", "root:a:team")
        # The administrator's certificate would say more than a token.
        center.nobody = nobody(center)
        yield center, Tenant(center, "alice", "root:a", "tok-alice"), Tenant(center, "victor", "root:a:team", "tok-victor")
    finally:
        center.kill()


def target(name, **annotations):
    return {"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget", "metadata": {"name": name, "annotations": annotations}}


def test_who_administers_a_parent_does_not_read_its_children(family):
    center, alice, victor = family
    assert Tenant(center, "alice", "root:a:team", "tok-alice").ask("GET", "/api/v1/secrets")[0] == 403
    uid = center.api("GET", "/clusters/root:a/apis/tenancy.kcp.io/v1alpha1/workspaces/team")["metadata"]["uid"]
    forged = json.dumps({"workspace": "root:a:team", "uid": uid, "by": "victor"})
    team = {WORKSPACE: "root:a:team"}
    status, said = alice.ask("POST", SYNCTARGETS, target("thief", **team))
    assert status == 403 and '"project" on the path "/" in root:a:team' in said["message"], said
    # The same, whether there is such a workspace or not.
    status, other = alice.ask("POST", SYNCTARGETS, target("thief", **{WORKSPACE: "root:a:none"}))
    assert status == 403 and other["message"] == said["message"].replace("root:a:team", "root:a:none")
    assert alice.ask("POST", SYNCTARGETS, target("thief", **{**team, GRANTED: forged}))[0] == 403
    # A record that she writes herself is none, wherever she puts it first.
    alice.do("POST", SYNCTARGETS, target("thief", **{WORKSPACE: "root:a", GRANTED: forged}))
    one = f"{SYNCTARGETS}/thief"
    kept = lambda: alice.do("GET", one)["metadata"].get("annotations", {})  # noqa: E731
    assert kept() == {WORKSPACE: "root:a"}
    alice.do("PATCH", one, {"metadata": {"annotations": {GRANTED: forged}}}, content_type=MERGE)
    assert kept() == {WORKSPACE: "root:a"}
    tries = [
        ("PATCH", one, {"metadata": {"annotations": team}}, MERGE),
        ("PATCH", one, {"metadata": {"annotations": {**team, GRANTED: forged}}}, MERGE),
        ("PATCH", one, [{"op": "replace", "path": "/metadata/annotations/edge.selvedge.dev~1workspace", "value": "root:a:team"}], JSON_PATCH),
        ("PATCH", f"{one}?fieldManager=x&force=true", target("thief", **team), APPLY),
        ("PATCH", f"{SYNCTARGETS}/new?fieldManager=x", target("new", **team), APPLY),
        ("PUT", one, {**alice.do("GET", one), "metadata": {**alice.do("GET", one)["metadata"], "annotations": team}}, "application/json"),
    ]
    for method, path, body, kind in tries:
        status, said = alice.ask(method, path, body, content_type=kind)
        assert status == 403 and "project" in said["message"], (path, kind, status, said)
    alice.ask("PATCH", f"{one}/status", {"metadata": {"annotations": {**team, GRANTED: forged}}}, content_type=MERGE)
    # Nor does she get it by becoming an administrator in her own workspace, or the server.
    for user in ("x", "system:apiserver"):
        becomes = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        status, said = alice.ask("PATCH", one, {"metadata": {"annotations": team}}, headers=becomes, content_type=MERGE)
        assert status == 403, said
    assert kept() == {WORKSPACE: "root:a"}
    # One whom the child's owner lets.
    victor.do("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "projects"}, "rules": [{"verbs": ["project", "access"], "nonResourceURLs": ["/"]}]})
    victor.do("POST", f"{RBAC}/clusterrolebindings", {
        "metadata": {"name": "alice-projects"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "projects"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]})
    alice.do("PATCH", one, {"metadata": {"annotations": team}}, content_type=MERGE)
    granted = json.loads(kept()[GRANTED])
    assert granted == {"workspace": "root:a:team", "uid": uid, "by": "alice"}
    # Other writes leave the record as it is, whatever they say of it.
    alice.do("PATCH", one, {"metadata": {"labels": {"x": "y"}, "annotations": {GRANTED: None}}}, content_type=MERGE)
    assert json.loads(kept()[GRANTED]) == granted
    alice.do("PATCH", one, {"metadata": {"annotations": {WORKSPACE: "root:a"}}}, content_type=MERGE)
    assert kept() == {WORKSPACE: "root:a"}


def test_a_workspace_that_is_made_anew_is_another(tmp_path):
    with fleet("florin", directory=tmp_path) as (center, florin):
        center.api("POST", "/clusters/root:shop/api/v1/namespaces/default/secrets", secret("first", a="b"))
        wait_for("the first", lambda: has(florin, "/api/v1/namespaces/default/secrets/first"))
        workspace = "/apis/tenancy.kcp.io/v1alpha1/workspaces/shop"
        center.api("DELETE", workspace)
        wait_for("its end", lambda: center.request("GET", workspace)[0] == 404)
        make_workspace(center, "root:shop")
        center.api("POST", "/clusters/root:shop/api/v1/namespaces/default/secrets", secret("second", a="b"))
        second = lambda: has(florin, "/api/v1/namespaces/default/secrets/second")  # noqa: E731
        wait_for("the refusal", lambda: florin.condition("Ready")["reason"] == "WorkspaceNotAllowed")
        assert "kubectl annotate synctarget florin" in florin.condition("Ready")["message"]
        assert not second(), "what is in the new workspace"
        annotate(center, "florin", **{WORKSPACE: None})
        annotate(center, "florin", **{WORKSPACE: "root:shop"})
        wait_for("it after all", second, 40)


# ---- a join token says which labels an edge may bring ----

def test_an_edge_brings_no_labels_but_those_that_its_token_allows(tmp_path):
    center = Center(tmp_path / "center")
    try:
        center.start()
        request = request_of(tmp_path, "edge")
        join = lambda made, name, **labels: ask(center, {  # noqa: E731
            "token": ".".join(made.split(".")[:2]), "workspace": "root", "name": name, "labels": labels, "request": request})
        labels = lambda name: center.api("GET", f"{SYNCTARGETS}/{name}")["metadata"].get("labels", {})  # noqa: E731
        plain = token(center, "--labels", "env=test", "--uses", "9")
        status, said = join(plain, "thief", env="test", tier="vault")
        assert status == 403 and "tier=vault" in said["message"] and "--allow-labels tier" in said["message"], said
        assert center.request("GET", f"{SYNCTARGETS}/thief")[0] == 404
        assert "tier=vault" in attempt(center, tmp_path, "thief", plain, args=["--labels", "tier=vault"])
        assert join(plain, "honest", env="test")[0] == 200 and labels("honest") == {"env": "test"}
        some = token(center, "--labels", "env=test", "--allow-labels", "region,size=s", "--uses", "9")
        assert join(some, "one", region="west", size="s")[0] == 200
        assert labels("one") == {"env": "test", "region": "west", "size": "s"}
        for brought in ({"size": "l"}, {"regional": "x"}, {"region": "x", "tier": "vault"}, {"env": "prod"}):
            assert join(some, "two", **brought)[0] == 403, brought
        # A token for a name is for that edge, not for other labels of it.
        center.api("POST", SYNCTARGETS, {"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget",
                                         "metadata": {"name": "vault", "labels": {"tier": "test", "region": "west"}}})
        named = token(center, "--name", "vault", "--allow-labels", "region", "--uses", "9")
        assert join(named, "vault", tier="vault")[0] == 403
        assert join(named, "vault", region="east")[0] == 200 and labels("vault") == {"tier": "test", "region": "east"}
        # One of before there were such lists allows nothing.
        old = token(center, "--name", "vault", "--uses", "9")
        path = f"/api/v1/namespaces/kube-system/secrets/join-token-{old.split('.')[0]}"
        center.api("PATCH", path, {"data": {"allowed-labels": None}}, content_type=MERGE)
        assert join(old, "vault", tier="vault")[0] == 403 and join(old, "vault")[0] == 200
        assert "--allow-labels" in selvedge("join-token", "create", "--help")
    finally:
        center.kill()
