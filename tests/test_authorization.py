"""Identities × verbs × kinds × workspaces × subresources, against an independent model (rbac_model.py)."""
import base64
import contextlib
import itertools
import json
import random
import shutil
import socket
import ssl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from center import running, wait_for
from rbac_model import ACCOUNT, ROOT, What, Who, allowed, matches, may_enter

RBAC = "/apis/rbac.authorization.k8s.io/v1"
# Made in this order; `alien` has nothing bound to anybody.
SPACES = [ROOT, "root:alpha", "root:beta", "root:alpha:deep", "root:alien"]
NAMESPACES = ["n1", "n2"]
KINDS = [  # group, version, resource, subresource, namespaced, verbs over HTTP that do no harm
    ("", "v1", "configmaps", "", True, "get list watch create update patch delete deletecollection"),
    ("", "v1", "secrets", "", True, "get list watch create update patch delete deletecollection"),
    ("", "v1", "services", "", True, "get list watch create patch delete"),
    ("", "v1", "pods", "", True, "get list watch patch delete deletecollection"),
    ("", "v1", "pods", "log", True, "get"),
    ("", "v1", "pods", "status", True, "get patch"),
    ("", "v1", "serviceaccounts", "token", True, "create"),
    ("apps", "v1", "deployments", "", True, "get list watch create update patch delete deletecollection"),
    ("apps", "v1", "deployments", "scale", True, "get update patch"),
    ("apps", "v1", "deployments", "status", True, "get patch"),
    ("batch", "v1", "jobs", "", True, "get list create delete"),
    ("", "v1", "namespaces", "", False, "get list watch create patch delete"),
    ("rbac.authorization.k8s.io", "v1", "clusterroles", "", False, "get list watch delete"),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions", "", False, "get list delete deletecollection"),
]
VERBS = "get list watch create update patch delete deletecollection escalate bind impersonate".split()
PATHS = ["/metrics", "/healthz", "/version", "/api", "/apis/apps", "/logs/x", "/openapi/v2", "/debug/pprof"]
NAMES = ["x", "y"]


def rule(rng):
    pick = lambda values, most: sorted(rng.sample(values, rng.randint(1, most)))  # noqa: E731
    if rng.random() < 0.15:
        return {"verbs": pick(["get", "*", "head"], 2), "nonResourceURLs": pick(["/metrics", "/logs/*", "/debug/*", "*", "/apis/apps"], 2)}
    resources = pick(["configmaps", "secrets", "services", "pods", "pods/log", "pods/*", "*/scale", "*/status", "deployments", "deployments/scale",
                      "jobs", "namespaces", "clusterroles", "customresourcedefinitions", "serviceaccounts/token"] + (["*"] if rng.random() < 0.15 else []), 3)
    made = {"verbs": pick(VERBS[:8] + (["*"] if rng.random() < 0.2 else []), 4), "resources": resources,
            "apiGroups": pick(["", "apps", "batch", "rbac.authorization.k8s.io"] + (["*"] if rng.random() < 0.3 else []), 2)}
    if rng.random() < 0.25:
        made["resourceNames"] = pick(NAMES, 1)
    return made


def generate(rng, people):
    """Roles and bindings for one workspace. Some bindings are to roles that do not exist, some roles to nobody."""
    roles, bindings = [], []
    for n in range(6):
        labels = {"gather": "yes"} if n % 2 else {}
        roles.append({"kind": "ClusterRole", "metadata": {"name": f"c{n}", "labels": labels}, "rules": [rule(rng) for _ in range(rng.randint(1, 3))]})
    roles.append({"kind": "ClusterRole", "metadata": {"name": "gathers"}, "rules": [],
                  "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"gather": "yes"}}]}})
    roles.append({"kind": "ClusterRole", "metadata": {"name": "enters"}, "rules": [{"verbs": ["access"], "nonResourceURLs": ["/"]}]})
    for ns, n in itertools.product(NAMESPACES, range(4)):
        made = rule(rng)
        if "nonResourceURLs" not in made:
            roles.append({"kind": "Role", "metadata": {"name": f"r{n}", "namespace": ns}, "rules": [made]})
    subjects = [{"kind": "User", "name": n} for n in people["users"]] + [{"kind": "Group", "name": n} for n in people["groups"]]
    accounts = [{"kind": "ServiceAccount", "name": n, "namespace": ns} for n, ns in itertools.product(["robot", "idle"], NAMESPACES)]
    for s in subjects + accounts:
        s.setdefault("apiGroup", "" if s["kind"] == "ServiceAccount" else "rbac.authorization.k8s.io")
    names = [f"c{n}" for n in range(6)] + ["gathers", "missing"]
    for n in range(5):
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": rng.choice(names)}
        bindings.append({"kind": "ClusterRoleBinding", "metadata": {"name": f"b{n}"}, "roleRef": ref, "subjects": rng.sample(subjects + accounts, 2)})
    bindings.append({"kind": "ClusterRoleBinding", "metadata": {"name": "enters"}, "subjects": rng.sample(subjects, 5),
                     "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "enters"}})
    for ns, n in itertools.product(NAMESPACES, range(5)):
        kind, name = ("Role", f"r{rng.randrange(4)}") if n % 2 else ("ClusterRole", rng.choice(names))
        bindings.append({"kind": "RoleBinding", "metadata": {"name": f"b{n}", "namespace": ns}, "subjects": rng.sample(subjects + accounts, 2),
                         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}})
    return {"roles": roles, "bindings": bindings}


class Caller:
    """An identity and how it shows itself: a token, a certificate, or the administrator's word."""

    def __init__(self, who, headers=None, tls=None):
        self.who, self.headers, self.tls = who, headers or {}, tls

    def __repr__(self):
        return f"{self.who.name}@{self.who.home}"


class Wire:
    """One connection that is kept. A request goes out in one piece, as Go's clients send it."""

    def __init__(self, center, tls):
        raw = socket.create_connection((center.host, center.port), timeout=30)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = tls.wrap_socket(raw, server_hostname=center.host)
        self.file = self.socket.makefile("rb")

    def send(self, method, path, headers, body):
        lines = [f"{method} {path} HTTP/1.1", "Host: center", *(f"{k}: {v}" for k, v in headers.items())]
        if body is not None or method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {len(body or b'')}")
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode() + (body or b""))
        first = self.file.readline()
        if not first:
            raise ConnectionError("closed while it was idle")
        told = {}
        while (line := self.file.readline().strip()):
            name, _, value = line.decode().partition(":")
            told[name.lower()] = value.strip()
        return int(first.split()[1]), told

    def body(self, told):
        if told.get("transfer-encoding") != "chunked":
            return self.file.read(int(told.get("content-length", 0)))
        parts = []
        while (size := int(self.file.readline(), 16)):
            parts.append(self.file.read(size))
            self.file.readline()
        self.file.readline()
        return b"".join(parts)

    def close(self):
        self.file.close()
        self.socket.close()


class Net:
    """Connections that are kept, one for each thread and TLS context."""

    def __init__(self, center):
        self.center, self.mine = center, threading.local()

    def send(self, caller, method, path, body=None, headers=None, status_only=False):
        tls = caller.tls or self.center._tls
        pool = self.mine.__dict__.setdefault("pool", {})
        send = {"Accept": "application/json", **caller.headers, **(headers or {})}
        if body is not None:
            send.setdefault("Content-Type", "application/json")
            body = json.dumps(body).encode()
        for attempt in (1, 2):
            wire = pool.pop(id(tls), None) or Wire(self.center, tls)
            try:
                status, told = wire.send(method, path, send, body)
                break
            except OSError:
                wire.close()
                if attempt == 2:
                    raise
        if status_only:
            wire.close()
            return status, b""
        raw = b"" if method == "HEAD" else wire.body(told)
        if told.get("connection") == "close":
            wire.close()
        else:
            pool[id(tls)] = wire
        return status, raw

    def ok(self, caller, method, path, body=None, expect=(200, 201, 409), **kw):
        status, raw = self.send(caller, method, path, body, **kw)
        assert status in expect, f"{caller} {method} {path}: {status} {raw[:400]!r}"
        return json.loads(raw)


def certificate(net, admin, directory, name, groups):
    """Asks for one as a person does: a request, somebody's approval, the answer."""
    key, csr, crt = (directory / f"{name}.{end}" for end in ("key", "csr", "crt"))
    subject = "".join(f"/O={g}" for g in groups) + f"/CN={name}"
    subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", csr, "-subj", subject],
                   check=True, capture_output=True, timeout=60)
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    made = net.ok(admin, "POST", path, {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}, "spec": {
        "request": base64.b64encode(csr.read_bytes()).decode(), "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}})
    made["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "Test", "message": ""}]}
    net.ok(admin, "PUT", f"{path}/{name}/approval", made)
    pem = wait_for("the certificate", lambda: net.ok(admin, "GET", f"{path}/{name}").get("status", {}).get("certificate"))
    crt.write_bytes(base64.b64decode(pem))
    tls = ssl.create_default_context(cafile=str(net.center.ca))
    tls.load_cert_chain(str(crt), str(key))
    return tls


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Workspaces full of roles and bindings, and everybody who will try them."""
    rng = random.Random(1136)
    people = {"users": ["alice", "bob", "carol", "dave", "system:bootstrap:abcdef", f"{ACCOUNT}n1:fake", "system:kcp:serviceaccount:root:alpha:n1:robot"],
              "groups": ["team-a", "team-b", "system:serviceaccounts:n1", "system:bootstrappers"]}
    with running() as center:
        net = Net(center)
        admin = Caller(Who("admin", frozenset({"system:masters"})), {"Authorization": f"Bearer {center.token}"} if center.token else {})
        plan = {space: generate(rng, people) for space in SPACES[:-1]}
        plan[SPACES[-1]] = {"roles": [], "bindings": []}
        for space in SPACES[1:]:
            parent, name = space.rsplit(":", 1)
            path = f"/clusters/{parent}/apis/tenancy.kcp.io/v1alpha1/workspaces"
            net.ok(admin, "POST", path, {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}})
            wait_for(space, lambda: net.ok(admin, "GET", f"{path}/{name}")["status"]["phase"] == "Ready")
        for space, content in plan.items():
            base = f"/clusters/{space}"
            for ns in NAMESPACES:
                net.ok(admin, "POST", f"{base}/api/v1/namespaces", {"metadata": {"name": ns}})
                for n in NAMES:
                    net.ok(admin, "POST", f"{base}/api/v1/namespaces/{ns}/configmaps", {"metadata": {"name": n}, "data": {"of": space}})
                for n in ("robot", "idle"):
                    net.ok(admin, "POST", f"{base}/api/v1/namespaces/{ns}/serviceaccounts", {"metadata": {"name": n}})
            for made in content["roles"] + content["bindings"]:
                made["apiVersion"] = "rbac.authorization.k8s.io/v1"
                ns = made["metadata"].get("namespace")
                place = (f"/namespaces/{ns}" if ns else "") + f"/{made['kind'].lower()}s"
                net.ok(admin, "POST", f"{base}{RBAC}{place}", made)
        for space in SPACES[:-1]:
            wait_for("gathered rules", lambda: net.ok(admin, "GET", f"/clusters/{space}{RBAC}/clusterroles/gathers")["rules"])

        signed = frozenset({"system:authenticated"})
        bare = ssl.create_default_context(cafile=str(center.ca))
        callers = [admin, Caller(Who("system:anonymous", frozenset({"system:unauthenticated"})), tls=bare)]

        def spoken(name, *groups):
            told = {"Impersonate-User": name}
            for g in groups:
                told["Impersonate-Group"] = g
            callers.append(Caller(Who(name, signed | set(groups)), {**admin.headers, **told}))

        with_certificates = shutil.which("openssl")
        directory = tmp_path_factory.mktemp("certificates")
        for name, groups in (("alice", []), ("bob", ["team-a"]), ("carol", ["team-a", "team-b"])):
            if with_certificates:
                callers.append(Caller(Who(name, signed | set(groups)), tls=certificate(net, admin, directory, name, groups)))
            else:
                spoken(name, *groups[:1])
        spoken("dave", "team-b")
        spoken("nobody")
        spoken("system:bootstrap:abcdef", "system:bootstrappers")
        spoken("system:node:node-1", "system:nodes")
        for space, ns, name in [(s, "n1", "robot") for s in SPACES] + [("root:alpha", "n2", "robot"), ("root:beta", "n1", "idle")]:
            made = net.ok(admin, "POST", f"/clusters/{space}/api/v1/namespaces/{ns}/serviceaccounts/{name}/token", {"spec": {}})
            groups = signed | {"system:serviceaccounts", f"system:serviceaccounts:{ns}"}
            who = Who(f"{ACCOUNT}{ns}:{name}", groups, space)
            callers.append(Caller(who, {"Authorization": f"Bearer {made['status']['token']}"}, bare))
        yield net, admin, callers, plan
        assert "panicked" not in center.log_path.read_text(errors="replace")


def questions():
    for (group, _, resource, sub, namespaced, _), verb in itertools.product(KINDS, VERBS[:8]):
        for ns in NAMESPACES + [""] if namespaced else [""]:
            named = verb not in ("list", "watch", "create", "deletecollection") or sub
            for name in (NAMES if named else [""]):
                yield What(verb, group, resource, sub, ns, name)
            if verb in ("list", "watch"):
                yield What(verb, group, resource, sub, ns, "x", by_selector=True)
    for verb, path in itertools.product(["get", "head", "post"], PATHS):
        yield What(verb, path=path)


def in_parallel(cases, check):
    """Runs all cases and names everything that is wrong, not only the first."""
    with ThreadPoolExecutor(6) as pool:
        wrong = [problem for problem in pool.map(lambda case: check(*case), cases) if problem]
    assert not wrong, f"{len(wrong)} of {len(cases)} are wrong:\n" + "\n".join(wrong[:20])


def test_reviews_decide_as_the_model_does(world):
    """SubjectAccessReviews about everybody, in every workspace."""
    net, admin, callers, plan = world
    everybody = {c.who.name: c.who for c in callers}.values()
    cases = list(itertools.product(SPACES, everybody, questions()))
    cases = random.Random(7).sample(cases, 4000)

    def check(space, who, what):
        # In a review a ServiceAccount is the workspace's own.
        local_who = Who(who.name, who.groups, space) if who.name.startswith(ACCOUNT) else who
        spec = {"user": who.name, "groups": sorted(who.groups)}
        if what.path:
            spec["nonResourceAttributes"] = {"path": what.path, "verb": what.verb}
        else:
            spec["resourceAttributes"] = {k: v for k, v in (("verb", what.verb), ("group", what.group), ("resource", what.resource), (
                "subresource", what.subresource), ("namespace", what.namespace), ("name", what.name)) if v}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = net.ok(admin, "POST", f"/clusters/{space}/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        said, meant = answer["status"]["allowed"], allowed(plan, space, local_who, what)
        return None if said == meant else f"{space} {who.name} {what}: {answer['status']}, the model says {meant}"

    in_parallel(cases, check)


def http_request(what, version):
    """Method, path below the workspace and body of a request that changes nothing."""
    if what.path:
        return what.verb.upper(), what.path, None
    base = f"/api/{version}" if not what.group else f"/apis/{what.group}/{version}"
    path = base + (f"/namespaces/{what.namespace}" if what.namespace else "") + f"/{what.resource}"
    single = what.verb in ("get", "update", "patch", "delete") or what.subresource
    if single:
        path += f"/{what.name}" + (f"/{what.subresource}" if what.subresource else "")
    method = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH"}.get(what.verb, "DELETE")
    query = ["dryRun=All"] if method != "GET" else []
    if what.verb == "watch":
        query.append("watch=1")
    if what.verb in ("list", "watch") and what.by_selector:
        query.append("fieldSelector=metadata.name%3D" + what.name)
    body = {} if method in ("POST", "PUT", "PATCH") else None
    return method, path + ("?" + "&".join(query) if query else ""), body


def test_requests_are_let_through_as_the_model_says(world):
    """The real verbs, with real credentials, also in workspaces where the credential is nobody."""
    net, _, callers, plan = world
    versions = {(g, r, s): (v, set(verbs.split())) for g, v, r, s, _, verbs in KINDS}
    harmless = [w for w in questions() if w.path and w.verb == "get" or not w.path and w.verb in versions[w.group, w.resource, w.subresource][1]
                and (w.namespace or w.resource in ("namespaces", "clusterroles", "customresourcedefinitions") or w.verb in ("list", "watch"))]
    cases = list(itertools.product(SPACES + ["root:nowhere"], callers[1:], harmless))
    cases = random.Random(11).sample(cases, 4000)

    def check(space, caller, what):
        version = versions[what.group, what.resource, what.subresource][0] if not what.path else ""
        method, path, body = http_request(what, version)
        kind = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
        status, raw = net.send(caller, method, f"/clusters/{space}{path}", body, kind, status_only=what.verb == "watch")
        # A namespace is within itself.
        itself = what.resource == "namespaces" and path.split("?")[0].endswith(f"/namespaces/{what.name}")
        meant = allowed(plan, space, caller.who, replace(what, namespace=what.name) if itself else what)
        if space not in plan and "Impersonate-User" in caller.headers and status == 404:
            return None  # the administrator, in whose name they come, may know that it is not there
        if (status != 403) == meant and status not in (401, 500):
            return None
        crossing = " ACROSS WORKSPACES" if not meant and space != caller.who.home else ""
        return f"{space} {caller} {method} {path}: {status} {raw[:200]!r}, the model says {meant}{crossing}"

    in_parallel(cases, check)


def test_own_reviews(world):
    """SelfSubjectReview, SelfSubjectAccessReview and SelfSubjectRulesReview say the same, in every workspace that lets one in."""
    net, _, callers, plan = world
    rng, asked = random.Random(13), list(questions())
    cases = [(s, c) for s, c in itertools.product(SPACES, callers[2:]) if "system:nodes" not in c.who.groups]

    def check(space, caller):
        api = f"/clusters/{space}/apis"
        status, raw = net.send(caller, "POST", f"{api}/authentication.k8s.io/v1/selfsubjectreviews", {})
        if not may_enter(plan, space, caller.who):
            return None if status == 403 else f"{space} {caller} may not enter, but {status} {raw[:200]!r}"
        seen = json.loads(raw)["status"]["userInfo"]["username"]
        if seen != caller.who.seen_from(space).name:
            return f"{space} {caller} is seen as {seen}"
        ns = rng.choice(NAMESPACES)
        rules = net.ok(caller, "POST", f"{api}/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": ns}})["status"]
        rules = rules["resourceRules"] + rules["nonResourceRules"]
        for what in asked:
            if what.namespace in ("", ns) and (what.namespace or what.path):
                meant = allowed(plan, space, caller.who, what)
                # As upstream's, the list has rules about paths that a RoleBinding brought, though they count for nothing.
                if (listed := any(matches(r, what) for r in rules)) != meant and not (listed and what.path):
                    return f"{space} {caller} {what}: the listed rules say {not meant}"
        for what in rng.sample([w for w in asked if not w.path], 12):
            spec = {"resourceAttributes": {"verb": what.verb, "group": what.group, "resource": what.resource, "subresource": what.subresource,
                                           "namespace": what.namespace, "name": what.name}}
            said = net.ok(caller, "POST", f"{api}/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": spec})["status"]
            if said["allowed"] != allowed(plan, space, caller.who, what):
                return f"{space} {caller} {what}: {said}"
        return None

    in_parallel(cases, check)


def test_reviews_in_a_namespace(world):
    net, admin, callers, plan = world
    everybody = list({c.who.name: c.who for c in callers}.values())
    asked = [w for w in questions() if w.namespace]
    cases = random.Random(17).sample(list(itertools.product(SPACES, everybody, asked)), 300)

    def check(space, who, what):
        mine = Who(who.name, who.groups, space) if who.name.startswith(ACCOUNT) else who
        spec = {"user": who.name, "groups": sorted(who.groups), "resourceAttributes": {
            "verb": what.verb, "group": what.group, "resource": what.resource, "subresource": what.subresource, "namespace": what.namespace, "name": what.name}}
        path = f"/clusters/{space}/apis/authorization.k8s.io/v1/namespaces/{what.namespace}/localsubjectaccessreviews"
        said = net.ok(admin, "POST", path, {"metadata": {"namespace": what.namespace}, "spec": spec})["status"]
        meant = allowed(plan, space, mine, what)
        return None if said["allowed"] == meant else f"{space} {who.name} {what}: {said}, the model says {meant}"

    in_parallel(cases, check)


def test_nobody_gives_away_what_they_do_not_have(world):
    """Escalation and binding, as upstream decides them."""
    net, admin, callers, _ = world
    space = "/clusters/root:beta"
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}

    def grant(name, rules):
        net.ok(admin, "POST", f"{space}{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
        net.ok(admin, "POST", f"{space}{RBAC}/clusterrolebindings", {"metadata": {"name": name}, "roleRef": {**ref, "name": name}, "subjects": [
            {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}]})
        return Caller(Who(name), {**admin.headers, "Impersonate-User": name})

    group = ["rbac.authorization.k8s.io"]
    enter = {"verbs": ["access"], "nonResourceURLs": ["/"]}
    write = {"verbs": ["create", "update", "patch", "get"], "apiGroups": group, "resources": ["clusterroles", "clusterrolebindings", "roles", "rolebindings"]}
    pods = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}
    writer = grant("writer", [enter, write, pods])
    escalator = grant("escalator", [enter, write, {"verbs": ["escalate"], "apiGroups": group, "resources": ["clusterroles"]}])
    named = grant("named", [enter, write, {"verbs": ["escalate"], "apiGroups": group, "resources": ["clusterroles"], "resourceNames": ["victim"]}])
    binder = grant("binder", [enter, write, {"verbs": ["bind"], "apiGroups": group, "resources": ["clusterroles"], "resourceNames": ["cluster-admin"]}])
    secrets = {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}
    net.ok(admin, "POST", f"{space}{RBAC}/clusterroles", {"metadata": {"name": "victim"}, "rules": []})

    def role(caller, rules, method="POST", name="", **more):
        body = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name or "new"}, "rules": rules, **more}
        return net.send(caller, method, f"{space}{RBAC}/clusterroles{'/' + name if name else ''}?dryRun=All", body)[0]

    def binding(caller, name, namespace=""):
        kind = "rolebindings" if namespace else "clusterrolebindings"
        place = f"/namespaces/{namespace}" if namespace else ""
        body = {"metadata": {"name": "new"}, "roleRef": {**ref, "name": name}, "subjects": [{"kind": "User", "apiGroup": group[0], "name": "x"}]}
        return net.send(caller, "POST", f"{space}{RBAC}{place}/{kind}?dryRun=All", body)[0]

    for got, wanted, what in [
        (role(writer, [pods]), 201, "what one has"),
        (role(writer, [{**pods, "resourceNames": ["a"]}]), 201, "less than one has"),
        (role(writer, [secrets]), 403, "what one does not have"),
        (role(writer, [{**pods, "verbs": ["*"]}]), 403, "more verbs"),
        (role(writer, [{**pods, "resources": ["*"]}]), 403, "more resources"),
        (role(writer, [{**pods, "apiGroups": ["*"]}]), 403, "more groups"),
        (role(writer, [{**pods, "resources": ["pods/log"]}]), 403, "a subresource"),
        (role(writer, [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]), 403, "a path"),
        (role(writer, [{"verbs": ["access"], "nonResourceURLs": ["/"]}]), 201, "a path one has"),
        (role(writer, [], aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}), 403, "gathering"),
        (role(escalator, [secrets]), 201, "escalate"),
        (role(escalator, [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]), 201, "escalate to everything"),
        (role(named, [secrets], "PUT", "victim"), 200, "escalate by name"),
        (role(named, [secrets]), 403, "escalate by another name"),
        (role(named, [secrets], name=""), 403, "escalate by name does not create"),
        (binding(writer, "writer"), 201, "binding what one has"),
        (binding(writer, "view"), 403, "binding more than one has"),
        (binding(writer, "no-such-role"), 404, "binding nothing"),
        (binding(binder, "cluster-admin"), 201, "bind"),
        (binding(binder, "cluster-admin", "n1"), 201, "bind in a namespace"),
        (binding(binder, "edit"), 403, "bind another"),
    ]:
        assert got == wanted, what
    with contextlib.suppress(AssertionError):
        net.ok(admin, "DELETE", f"{space}{RBAC}/clusterroles/victim")
