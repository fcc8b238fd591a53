"""Identities × doors × verbs, compared with an independent model (attack_model.py): every answer, in both directions, and every line of
the audit log. Writes are dry runs, so no case changes what another one sees."""
import collections
import itertools
import json
import random
import socket
import ssl
import subprocess
from dataclasses import replace

import pytest

import attack_model as model
from attack_model import EVERYWHERE, MASTERS, SIGNED, Person, World
from center import Center, wait_for
from edge import Edge, make_workspace, selvedge
from exports import bind, export, schema, widget, widgets
from rbac_model import ACCOUNT, ROOT, What, Who
from test_authorization import Caller, Net, http_request, in_parallel
from test_placement_tenancy import owner

SIGNING_REQUEST = subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x",
                                  "-keyout", "/dev/null"], check=True, capture_output=True, text=True, timeout=60).stdout
A, TEAM, P, V, INV = "root:a", "root:a:team", "root:p", "root:v", "root:inv"
SPACES = [ROOT, A, TEAM, P, V, INV]
OWNERS = {A: "alice", TEAM: "victor", P: "bob", V: "victor", INV: "ivan"}
RBAC = "rbac.authorization.k8s.io"
ALL = "get list watch create update patch delete deletecollection"
# group, version, resource, subresource, namespaced, verbs, name
KINDS = [
    ("", "v1", "secrets", "", True, ALL, "s"),
    ("", "v1", "configmaps", "", True, ALL, "c"),
    ("", "v1", "pods", "", True, "get list create patch delete", "p"),
    ("", "v1", "serviceaccounts", "token", True, "create", "default"),
    ("", "v1", "events", "", True, "list create", "e"),
    ("coordination.k8s.io", "v1", "leases", "", True, "get create update", "l"),
    (RBAC, "v1", "clusterrolebindings", "", False, ALL.replace("watch ", ""), "idle"),
    ("apis.kcp.io", "v1alpha1", "apibindings", "", False, "get list create delete", "widgets"),
    ("apis.kcp.io", "v1alpha1", "apibindings", "status", False, "get update patch", "widgets"),
    ("apis.kcp.io", "v1alpha1", "apiexports", "", False, "get list delete", "widgets"),
    ("apis.kcp.io", "v1alpha1", "apiexports", "status", False, "get update patch", "widgets"),
    ("workload.kcp.io", "v1alpha1", "synctargets", "", False, "get list create patch delete", "florin"),
    ("workload.kcp.io", "v1alpha1", "synctargets", "status", False, "get patch", "florin"),
    ("edge.kcp.io", "v1alpha1", "edgeplacements", "", False, "get list create", "e"),
    ("tenancy.kcp.io", "v1alpha1", "workspaces", "", False, "get list create delete", "a"),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "", False, "get list create delete", "x.example.io"),
    ("example.io", "v1", "widgets", "", True, ALL, "w"),
]
PATHS = ["/metrics", "/api", "/version", "/logs/x", "/fleet", "/debug/pprof"]
VERSIONS = {(group, resource, sub): version for group, version, resource, sub, *_ in KINDS}
# What makes a server open a connection to an address that an object names.
DIALLED = [What("get", resource="nodes", subresource="proxy", name="n"),
           What("get", resource="pods", subresource="log", namespace="default", name="p"),
           What("get", resource="pods", subresource="proxy", namespace="default", name="p"),
           What("get", resource="services", subresource="proxy", namespace="default", name="s")]
DOORS = ("api", "mailbox", "tunnel", "part", "view", "proxy", "edge", "join", "renew", "forward")
MERGE = {"Content-Type": "application/merge-patch+json"}
# Namespaces of the edge, whose they are there, and the user whom a RoleBinding in them lets read.
PARTS = {"ovens": (A, "alice"), "beds": (V, "victor")}


def questions(*resources):
    for group, _, resource, sub, namespaced, verbs, name in KINDS:
        if not resources or resource in resources:
            for verb in verbs.split():
                named = sub or verb in ("get", "update", "patch", "delete")
                yield What(verb, group, resource, sub, "default" if namespaced else "", name if named else "")


class Case(collections.namedtuple("Case", "door space what person")):
    def __repr__(self):
        what = self.what.path or f"{self.what.verb} {self.what.resource}/{self.what.subresource}".rstrip("/")
        return f"{self.person.label} → {self.door} {self.space} {what}"


def bound(user, role="cluster-admin", kind="User"):
    return {"metadata": {"name": f"{user}-{role}"}, "subjects": [{"kind": kind, "name": user}],
            "roleRef": {"kind": "ClusterRole", "name": role}}


ADMIN_ROLE = {"metadata": {"name": "cluster-admin"}, "rules": [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]}
READER = {"metadata": {"name": "reader"}, "rules": [
    {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps", "pods"]},
    {"verbs": ["access"], "nonResourceURLs": ["/"]}]}


def setup(center, florin, guilder):
    """Everything that the model knows of, made for real. Answers the model's world."""
    make_workspace(center, P)
    for path in (A, V):
        make_workspace(center, path, "workload")
    make_workspace(center, TEAM)
    make_workspace(center, INV, "inventory")
    for path, user in OWNERS.items():
        owner(center, user, path)
    at = lambda path, rest: f"/clusters/{path}{rest}"  # noqa: E731
    for path in SPACES:
        wait_for("default", lambda: center.request("GET", at(path, "/api/v1/namespaces/default"))[0] == 200)
        for kind, name in (("secrets", "s"), ("configmaps", "c")):
            center.api("POST", at(path, f"/api/v1/namespaces/default/{kind}"), {"metadata": {"name": name}, "data": {}})
        center.api("POST", at(path, f"/apis/{RBAC}/v1/clusterrolebindings"), {
            "metadata": {"name": "idle"}, "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": RBAC}})
    for server, path, user in ((center, f"/clusters/{A}", "vera"), (florin, "", "ivan")):
        rbac = f"{path}/apis/{RBAC}/v1"
        server.api("POST", f"{rbac}/clusterroles", {**READER, "metadata": {"name": "reader"}})
        subject = [{"kind": "User", "name": user, "apiGroup": RBAC}, {"kind": "ServiceAccount", "name": "default", "namespace": "default"}]
        ref = {"kind": "ClusterRole", "name": "reader", "apiGroup": RBAC}
        server.api("POST", f"{rbac}/clusterrolebindings", {"metadata": {"name": "reader"}, "subjects": subject, "roleRef": ref})
    claims = [{"resource": "configmaps", "all": True}, {"group": RBAC, "resource": "clusterrolebindings", "all": True}]
    export(center, P, schema(), permissionClaims=claims, maximalPermissionPolicy={"local": {}})
    rbac = f"/clusters/{P}/apis/{RBAC}/v1"
    center.api("POST", f"{rbac}/clusterroles", {"metadata": {"name": "binders"}, "rules": [
        {"verbs": ["get", "list", "watch"], "apiGroups": ["example.io"], "resources": ["widgets"]}]})
    everybody = [{"kind": "Group", "name": "apis.kcp.io:binding:system:authenticated", "apiGroup": RBAC}]
    center.api("POST", f"{rbac}/clusterrolebindings", {"metadata": {"name": "binders"}, "subjects": everybody,
                                                       "roleRef": {"kind": "ClusterRole", "name": "binders", "apiGroup": RBAC}})
    bind(center, V, P, claims=[{**claim, "state": "Accepted"} for claim in claims])
    bind(center, A, P, claims=[{**claim, "state": "Rejected"} for claim in claims])
    for path in (V, A):
        center.api("POST", widgets(path), widget("w"))
    boxes = center.api("GET", "/clusters/root:espw/apis/tenancy.kcp.io/v1alpha1/workspaces")["items"]
    named = {b["metadata"]["annotations"]["edge.kcp.io/sync-target-name"]: b["metadata"]["name"] for b in boxes}
    spaces = {path: {"roles": [ADMIN_ROLE, READER], "bindings": [bound(OWNERS[path])] if path in OWNERS else []} for path in SPACES}
    spaces[A]["bindings"].append(bound("vera", "reader"))
    edge = {ROOT: {"roles": [READER], "bindings": [bound("ivan", "reader")]}}
    for binding in (spaces[A]["bindings"][-1], edge[ROOT]["bindings"][-1]):
        binding["subjects"].append({"kind": "ServiceAccount", "name": "default", "namespace": "default"})
    for namespace, (path, user) in PARTS.items():
        have_part(center, florin, path, namespace, user)
        edge[ROOT]["bindings"].append({**bound(user, "reader"), "metadata": {"name": namespace, "namespace": namespace}})
        # The account of a workspace is another user on the edge.
        robot = {"kind": "User", "name": f"system:kcp:serviceaccount:{path}:default:default"}
        edge[ROOT]["bindings"][-1]["subjects"].append(robot)
    return World(spaces, edge, (INV, "florin"), f"root:espw:{named['florin']}", P, {V, A}, {V: {"configmaps", "clusterrolebindings"}},
                 parts={namespace: path for namespace, (path, _) in PARTS.items()})


def have_part(center, florin, path, namespace, user):
    """A namespace of a workspace on florin, with a RoleBinding that goes there too."""
    at = f"/clusters/{path}"
    center.api("POST", f"{at}/api/v1/namespaces", {"metadata": {"name": namespace, "labels": {"of": namespace}}}, expect=(201,))
    for kind, name in (("secrets", "s"), ("configmaps", "c")):
        center.api("POST", f"{at}/api/v1/namespaces/{namespace}/{kind}", {"metadata": {"name": name}, "data": {}}, expect=(201,))
    robot = f"system:kcp:serviceaccount:{path}:default:default"
    center.api("POST", f"{at}/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings", {
        "metadata": {"name": "readers"}, "roleRef": {"kind": "ClusterRole", "name": "reader", "apiGroup": RBAC},
        "subjects": [{"kind": "User", "name": name, "apiGroup": RBAC} for name in (user, robot)]}, expect=(201,))
    if path == A:
        center.api("POST", f"/clusters/{INV}/apis/scheduling.kcp.io/v1alpha1/locations", {
            "apiVersion": "scheduling.kcp.io/v1alpha1", "kind": "Location", "metadata": {"name": "all", "labels": {"all": "yes"}},
            "spec": {"instanceSelector": {}}}, expect=(201,))
    center.api("POST", f"{at}/apis/edge.kcp.io/v1alpha1/edgeplacements", {
        "apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement", "metadata": {"name": namespace}, "spec": {
            "locationSelectors": [{"matchLabels": {"all": "yes"}}], "namespaceSelector": {"matchLabels": {"of": namespace}}}}, expect=(201,))
    for there in (f"/api/v1/namespaces/{namespace}/secrets/s", f"/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings/readers"):
        wait_for(f"{there} on the edge", lambda: florin.request("GET", there)[0] == 200)


def cast(center, florin, guilder, directory):
    """Everybody who tries, and how they show themselves."""
    bare = ssl.create_default_context(cafile=str(center.ca))

    def certified(edge, server=center):
        saved = json.loads((edge.data_dir / "edge.json").read_text())
        files = [directory / f"{edge.name}.{part}" for part in ("certificate", "key")]
        for file in files:
            file.write_text(saved[file.suffix[1:]])
        tls = ssl.create_default_context(cafile=str(server.ca))
        tls.load_cert_chain(*files)
        return tls

    def account(server, path):
        made = server.api("POST", f"{path}/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}})
        return {"Authorization": f"Bearer {made['status']['token']}"}

    groups = SIGNED | {"system:serviceaccounts", "system:serviceaccounts:default"}
    robot = f"{ACCOUNT}default:default"
    edge = lambda name: Who(f"system:edge:{INV}:{name}", SIGNED | {"system:edges"})  # noqa: E731
    shown = {  # label: who, headers, TLS, whether the credential is good
        "admin": (Who("selvedge-admin", SIGNED | {MASTERS}), {}, None, True),
        "anonymous": (Who("system:anonymous", frozenset({"system:unauthenticated"})), {}, bare, True),
        **{user: (Who(user, SIGNED), {"Authorization": f"Bearer tok-{user}"}, bare, True)
           for user in ("alice", "bob", "victor", "ivan", "vera", "sam")},
        "account of a": (Who(robot, groups, A), account(center, f"/clusters/{A}"), bare, True),
        "pod of the edge": (Who(robot, groups), account(florin, ""), bare, False),
        "edge": (edge("florin"), {}, certified(florin), True),
        "revoked edge": (edge("guilder"), {}, certified(guilder), False),
        "wrong token": (Who("x"), {"Authorization": "Bearer tok-nobody"}, bare, False),
    }
    people = {label: Person(label, who, valid) for label, (who, _, _, valid) in shown.items()}
    scopes = [("authentication.kcp.io/scopes", f"cluster:{V}")]
    home = [("authentication.kcp.io/cluster-name", V)]
    masks = [("x",), ("x", MASTERS), ("system:apiserver", MASTERS), ("system:apiserver",), ("victor",), ("ivan", MASTERS),
             ("system:node:n", "system:nodes"), ("x", "system:selvedge:controllers"), ("system:kube-controller-manager",),
             ("system:kube-controller-manager", MASTERS), (robot,), (f"system:edge:{INV}:florin", "system:edges")]
    people["pod of the edge"] = replace(people["pod of the edge"], at_edge=Who(robot, groups))
    people["anonymous"] = replace(people["anonymous"], at_edge=people["anonymous"].who)
    everybody = list(people.values())
    everybody += [people["alice"].wearing(*mask) for mask in masks]
    everybody += [people["alice"].wearing("x", MASTERS, extra=extra) for extra in (scopes, home)]
    everybody += [people["alice"].wearing(robot, extra=home)]
    for label in ("bob", "ivan", "victor"):
        everybody += [people[label].wearing(*mask) for mask in masks[1:4]]
    for label in ("vera", "sam", "account of a", "edge", "anonymous", "revoked edge", "pod of the edge"):
        everybody.append(people[label].wearing("x", MASTERS))
    outside = ssl.create_default_context(cafile=str(florin.ca))
    of_admin = ssl.create_default_context(cafile=str(florin.ca))
    of_admin.load_cert_chain(center.cert, center.key)
    to_edge = {"admin": of_admin, "edge": certified(florin, florin), "revoked edge": certified(guilder, florin)}
    callers, at_edge = {}, {}
    for person in everybody:
        base = person.label.split(" as ")[0]
        who, headers, tls, _ = shown[base]
        told = dict(headers)
        if person.mask:
            told["Impersonate-User"] = person.mask.name
            for group in person.mask.groups:
                told["Impersonate-Group"] = group
            for key, value in person.mask.extra:
                told["Impersonate-Extra-" + key.replace("/", "%2F")] = value
        callers[person.label] = Caller(who, told, tls)
        at_edge[person.label] = Caller(who, told, to_edge.get(base, outside))
    return everybody, callers, at_edge


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    base = tmp_path_factory.mktemp("matrix")
    tokens = base / "tokens.csv"
    tokens.write_text("".join(f"tok-{user},{user},\n" for user in ("alice", "bob", "victor", "ivan", "vera", "sam")))
    policy = base / "policy.yaml"
    policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted]\nrules:\n- level: Metadata\n")
    audit = base / "audit.log"
    args = ["--token-auth-file", tokens, "--audit-policy-file", policy, "--audit-log-path", audit, "--audit-log-maxsize", "1000"]
    center = Center(base / "center", args=[*map(str, args)])
    edges = [Edge(center, base / name, name) for name in ("florin", "guilder")]
    try:
        center.start()
        make_workspace(center, INV, "inventory")
        for edge in edges:
            edge.start(token=edge.join_token("--workspace", INV))
        target = lambda name: center.api("GET", f"/clusters/{INV}/apis/workload.kcp.io/v1alpha1/synctargets/{name}")  # noqa: E731
        for edge in edges:
            wait_for("the link", lambda: any(c["type"] == "Ready" and c["status"] == "True" for c in target(edge.name)["status"]["conditions"]))
        made = setup(center, *edges)
        selvedge("edge", "revoke", f"{INV}:guilder", "--kubeconfig", center.kubeconfig)
        yield center, edges[0], made, *cast(center, *edges, base), audit
        for server in (center, *edges):
            assert "panicked" not in server.log_path.read_text(errors="replace")
    finally:
        for server in (*edges, center):
            server.kill()


def cases(world, everybody):
    for person in everybody:
        for space, what in itertools.product([*SPACES, EVERYWHERE, "root:nowhere"], questions()):
            if space != EVERYWHERE or (what.verb in ("list", "watch") and what.resource != "widgets"):
                yield Case("api", space, what, person)
        for space, path in itertools.product(SPACES, PATHS):
            yield Case("api", space, What("get", path=path), person)
        for what in questions("secrets", "configmaps", "pods", "clusterrolebindings"):
            if what.verb != "deletecollection":
                yield Case("mailbox", world.mailbox, what, person)
            yield Case("tunnel", f"{INV}:florin-mb", what, person)
        for space, namespace, what in itertools.product((A, V, P), PARTS, questions("secrets", "configmaps")):
            yield Case("part", space, replace(what, namespace=namespace), person)
        for space, what in itertools.product([EVERYWHERE, V, A, P, TEAM], questions("widgets", "configmaps", "secrets", "clusterrolebindings")):
            # What a watch shows cannot be told from its head.
            if what.verb != "watch" and (space != EVERYWHERE or what.verb == "list"):
                yield Case("view", space, what, person)
        for space, target in itertools.product(SPACES, DIALLED):
            yield Case("proxy", space, target, person)
        for door, path in (("join", "Join"), ("renew", "Join"), ("forward", "Forward")):
            yield Case(door, "", What("create", path=f"/selvedge.link.v1.Link/{path}"), person)
        for what in questions("secrets", "configmaps", "clusterrolebindings"):
            yield Case("edge", "", what, person)


def expected(world, case):
    door, space, what, person = case
    if door == "api":
        return model.api(world, person, space, what)
    if door == "mailbox":
        return model.mailbox(world, person, what)
    if door == "tunnel":
        return model.tunnel(world, person, what, method_of(what))
    if door == "part":
        return model.part(world, person, space, what)
    if door == "view":
        return model.view(world, person, space, what)
    if door == "proxy":
        return model.proxy(world, person, space, what)
    if door == "edge":
        return model.edge(world, person, what)
    return model.link(world, person, door)


def method_of(what):
    return http_request(what, "v1")[0]


def request_of(world, case):
    """Method, path and body."""
    door, space, what, _ = case
    if door in ("join", "forward"):
        return "POST", what.path, {}
    if door == "renew":
        return "POST", what.path, {"request": SIGNING_REQUEST}
    if what.path:
        return "GET", f"/clusters/{space}{what.path}", None
    version = VERSIONS.get((what.group, what.resource, what.subresource), "v1")
    if space == EVERYWHERE:
        what = What(what.verb, what.group, what.resource, what.subresource)
    method, path, body = http_request(what, version)
    if what.resource == "clusterrolebindings" and what.verb == "create":
        # What a thief would write.
        body = {"metadata": {"name": "thief"}, "subjects": [{"kind": "User", "name": "bob", "apiGroup": RBAC}],
                "roleRef": {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": RBAC}}
    if what.subresource == "status" and what.verb in ("update", "patch"):
        kind = {"apibindings": "APIBinding", "apiexports": "APIExport", "synctargets": "SyncTarget"}[what.resource]
        body = {"apiVersion": f"{what.group}/{version}", "kind": kind, "metadata": {"name": what.name},
                "status": {"identityHash": "00", "boundResources": []}}
    prefix = {"view": f"/services/apiexport/{P}/widgets/clusters/{space}", "edge": "", "part": f"/clusters/{space}/edges/{INV}:florin"}.get(door, f"/clusters/{space}")
    return method, prefix + path, body


def let_in(case, status, raw=b""):
    """Whether an answer shows that the request got past the decision who may."""
    if case.door == "view" and case.what.verb in ("list", "deletecollection") and status == 200:
        # A view shows a list of what was given, which may be nothing.
        return bool(json.loads(raw)["items"])
    if case.what.subresource == "status" and case.what.resource in model.SERVER_ONLY and case.what.verb != "get" and case.space in SPACES:
        # Where there is no such object, nobody is asked who writes its status.
        return status < 300
    # 501: the server dials nobody for this workspace.
    return status not in (401, 403, 501) and not (case.door in ("view", "part") and status == 404)


def test_every_door_for_everybody(world):
    center, florin, known, everybody, callers, at_edge, _ = world
    net, there = Net(center), Net(florin)
    todo = list(cases(known, everybody))
    answers = {}

    def check(number, case):
        method, path, body = request_of(known, case)
        headers = {"Audit-Id": f"case-{number}", **(MERGE if method == "PATCH" else {})}
        to, by = (there, at_edge) if case.door == "edge" else (net, callers)
        status, raw = to.send(by[case.person.label], method, path, body, headers, status_only=case.what.verb == "watch")
        meant, got = expected(known, case), let_in(case, status, raw)
        answers[number] = (case, got)
        if status in (500, 502, 503, 504) or meant != got:
            return f"{case}: {method} {path}: {status} {raw[:160]!r}; the model says {'allowed' if meant else 'refused'}"
        return None

    in_parallel(list(enumerate(todo)), check)
    by_door = collections.Counter((case.door, got) for case, got in answers.values())
    print(f"\n{len(answers)} cases, {len(everybody)} identities; let in / refused by door: " + ", ".join(
        f"{door} {by_door[door, True]}/{by_door[door, False]}" for door in DOORS))
    assert len(answers) >= 10_000
    for door in DOORS:
        assert by_door[door, True] and (by_door[door, False] or door == "join"), f"{door} was not tried both ways"


def test_the_audit_log_says_who_and_why(world):
    """Every case of the test before is one line, with the sender, whom they became, and the decision."""
    center, _, known, everybody, callers, _, audit = world
    net = Net(center)
    todo = [c for c in cases(known, everybody) if c.what.verb != "watch" and c.door in ("api", "mailbox", "tunnel", "view")]
    todo = random.Random(7).sample(todo, 1_500)
    codes = {}

    def send(number, case):
        method, path, body = request_of(known, case)
        headers = {"Audit-Id": f"audit-{number}", **(MERGE if method == "PATCH" else {})}
        status, raw = net.send(callers[case.person.label], method, path, body, headers)
        codes[number] = status, let_in(case, status, raw)

    in_parallel(list(enumerate(todo)), send)

    def events():
        lines = [json.loads(line) for line in audit.read_text().splitlines() if '"audit-' in line]
        found = {e["auditID"]: e for e in lines if e["auditID"].startswith("audit-")}
        return found if len(found) == len(todo) else None

    found = wait_for("a line for every request", events, 20)
    wrong = []
    for number, case in enumerate(todo):
        event, (code, inside) = found[f"audit-{number}"], codes[number]
        problems = []
        if event["responseStatus"]["code"] != code:
            problems.append(f"code {event['responseStatus']['code']} instead of {code}")
        if code != 401:
            if event["user"]["username"] != callers[case.person.label].who.name and not case.person.who.name.startswith(ACCOUNT):
                problems.append(f"user {event['user']['username']}")
            decision = event.get("annotations", {}).get("authorization.k8s.io/decision")
            if inside and decision != "allow" and case.space in known.spaces:
                problems.append(f"let in, but the decision is {decision}")
            mask = case.person.mask
            if mask and inside and event.get("impersonatedUser", {}).get("username") != mask.name:
                problems.append(f"impersonated {event.get('impersonatedUser')}")
        if problems:
            wrong.append(f"{case}: {', '.join(problems)}")
    assert not wrong, f"{len(wrong)} of {len(todo)}:\n" + "\n".join(wrong[:20])


def test_only_welcome_edges_have_sessions_of_the_link(world):
    """The link's own protocol, by the name that TLS agrees on: strangers are refused with a code, an edge is waited for to say
    who it is."""
    center, _, _, _, _, _, _ = world
    base = center.data_dir.parent
    of_edge = lambda name: (base / f"{name}.certificate", base / f"{name}.key")  # noqa: E731
    for label, certificate, welcome in (("anonymous", None, False), ("administrator", (center.cert, center.key), False),
                                        ("revoked edge", of_edge("guilder"), False), ("edge", of_edge("florin"), True)):
        tls = ssl.create_default_context(cafile=str(center.ca))
        tls.set_alpn_protocols(["selvedge-link"])
        if certificate:
            tls.load_cert_chain(*certificate)
        with socket.create_connection((center.host, center.port), timeout=10) as raw, tls.wrap_socket(raw, server_hostname=center.host) as line:
            assert line.selected_alpn_protocol() == "selvedge-link", label
            line.settimeout(3)
            try:
                said = line.recv(4096)
            except TimeoutError:
                said = b""
        refused = b"401" in said or b"403" in said
        assert refused != welcome, f"{label}: {said!r}"
