"""Tricks with paths, headers and framing: never another workspace, never another identity.

Every workspace has a ConfigMap with a marker of its own. Whatever is sent, what comes back may hold only markers that the sender
may read by asking plainly.
"""
import http.client
import json
import re
import socket
import ssl
import struct
import uuid

import pytest

from center import running, wait_for

SPACES = ["root", "root:a", "root:b"]
CONFIG = "/api/v1/namespaces/default/configmaps/marker"


class Town:
    """A center with two tenants. `insider` rules root:a, `guest` may only look around there, and neither is anybody elsewhere."""

    def __init__(self, center):
        self.center, self.markers, self.tokens = center, {}, {}
        self.bare = ssl.create_default_context(cafile=str(center.ca))
        self.h2 = ssl.create_default_context(cafile=str(center.ca))
        self.h2.set_alpn_protocols(["h2"])
        for space in SPACES:
            if space != "root":
                parent, name = space.rsplit(":", 1)
                path = f"/clusters/{parent}/apis/tenancy.kcp.io/v1alpha1/workspaces"
                center.api("POST", path, {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}})
                wait_for(space, lambda: center.api("GET", f"{path}/{name}")["status"]["phase"] == "Ready")
            self.markers[space] = f"marker-{space.replace(':', '-')}-{uuid.uuid4().hex}"
            wait_for("the default namespace", lambda: center.api("GET", f"/clusters/{space}/api/v1/namespaces/default"))
            for ns in ("default", "private"):
                if ns == "private":
                    center.api("POST", f"/clusters/{space}/api/v1/namespaces", {"metadata": {"name": ns}})
                center.api("POST", f"/clusters/{space}/api/v1/namespaces/{ns}/configmaps", {
                    "metadata": {"name": "marker"}, "data": {"is": self.markers[space] + ("-private" if ns == "private" else "")}})
        base = "/clusters/root:a"
        for name, role in (("insider", "cluster-admin"), ("guest", "")):
            center.api("POST", f"{base}/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
            made = center.api("POST", f"{base}/api/v1/namespaces/default/serviceaccounts/{name}/token", {"spec": {}})
            self.tokens[name] = made["status"]["token"]
            subject = [{"kind": "ServiceAccount", "namespace": "default", "name": name}]
            rbac = f"{base}/apis/rbac.authorization.k8s.io/v1"
            if role:
                center.api("POST", f"{rbac}/clusterrolebindings", {"metadata": {"name": name}, "subjects": subject, "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}})
            else:
                center.api("POST", f"{rbac}/namespaces/default/rolebindings", {"metadata": {"name": name}, "subjects": subject, "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}})

    def exchange(self, data, certificate=False, seconds=3.0):
        """Sends bytes as they are on a fresh connection and returns everything that comes back until it is quiet or closed."""
        raw = socket.create_connection((self.center.host, self.center.port), timeout=10)
        tls = self.center._tls if certificate else self.bare
        with tls.wrap_socket(raw, server_hostname=self.center.host) as s:
            s.settimeout(seconds)
            got = b""
            try:
                s.sendall(data)
                while chunk := s.recv(65536):
                    got += chunk
                    if complete(got):
                        s.settimeout(0.15)  # a second answer would come at once
            except (TimeoutError, OSError):
                pass
            return got

    def ask(self, who, method, path, headers=(), body=b"", host="center", certificate=False):
        lines = [f"{method} ".encode() + path.encode("latin-1") + b" HTTP/1.1", f"Host: {host}".encode(), b"Connection: close"]
        if who:
            lines.append(f"Authorization: Bearer {self.tokens[who]}".encode())
        lines += [h if isinstance(h, bytes) else h.encode() for h in headers]
        if body or method == "POST":
            lines += [b"Content-Type: application/json", f"Content-Length: {len(body)}".encode()]
        return self.exchange(b"\r\n".join([*lines, b"", b""]) + body, certificate)

    def leaks(self, got, allowed=()):
        return [space for space, marker in self.markers.items() if marker.encode() in got and space not in allowed]

    def alive(self):
        assert self.center.still_answers()


def complete(got):
    head, gap, rest = got.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.I)
    return bool(gap) and (b"\r\n0\r\n\r\n" in got or bool(length) and len(rest) >= int(length[1]))


def statuses(got):
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", got)]


@pytest.fixture(scope="module")
def town():
    with running() as center:
        yield Town(center)
        assert "panicked" not in center.log_path.read_text(errors="replace")


def test_plainly(town):
    """The markers can be read, or the rest of this file shows nothing."""
    assert town.markers["root:a"].encode() in town.ask("insider", "GET", "/clusters/root:a" + CONFIG)
    assert town.markers["root:a"].encode() in town.ask("guest", "GET", "/clusters/root:a" + CONFIG)
    for who, space in [("insider", "root:b"), ("insider", "root"), ("guest", "root:b"), (None, "root:a"), (None, "root")]:
        got = town.ask(who, "GET", f"/clusters/{space}{CONFIG}")
        assert statuses(got) == [403] and not town.leaks(got), got
    for space in SPACES:
        got = town.ask(None, "GET", f"/clusters/{space}{CONFIG}", certificate=True)
        assert town.markers[space].encode() in got
    assert b"-private" not in town.ask("guest", "GET", "/clusters/root:a/api/v1/namespaces/private/configmaps/marker")


PATHS = [p + CONFIG for p in [
    "/clusters/root:a/../root:b", "/clusters/root:a/..;/root:b", "/clusters/root:a/%2e%2e/root:b", "/clusters/root:a/%252e%252e/root:b",
    "/clusters/root:a/.%2e/root:b", "/clusters/root:a/..%2froot:b", "/clusters/root:a%2f..%2froot:b", "/clusters/root:a%2f%2e%2e%2froot:b",
    "/clusters/root:a%252f..%252froot:b", "/clusters/root:a/..%5croot:b", "/clusters/root:a\\..\\root:b", "/clusters/root:a/..\\root:b", "\\clusters\\root:b",
    "/clusters/root:a//clusters/root:b", "/clusters/root:a/clusters/root:b", "/clusters/root:a/./clusters/root:b", "//clusters/root:b",
    "/clusters//root:b", "/./clusters/root:b", "/x/../clusters/root:b", "/CLUSTERS/root:b", "/Clusters/root:b", "/clusterS/root:b", "/%63lusters/root:b",
    "/clusters/ROOT:B", "/clusters/Root:b", "/clusters/root:B", "/clusters/root%3Ab", "/clusters/root%3ab", "/clusters/root%253ab",
    "/clusters/root:a;root:b", "/clusters/root:b;root:a", "/clusters/root:a;/root:b", "/clusters/root:a,root:b", "/clusters/root:a&root:b",
    "/clusters/root:a%00root:b", "/clusters/root:b%00", "/clusters/root:b%00root:a", "/clusters/root:b%20", "/clusters/%20root:b", "/clusters/root:b%09",
    "/clusters/root:b%0d%0aX:y", "/clusters/root:b.", "/clusters/.root:b", "/clusters/root:b:", "/clusters/:root:b", "/clusters/root::b",
    "/clusters/root:a:..:b", "/clusters/root:..:root:b", "/clusters/*", "/clusters/%2a", "/clusters/root:*", "/clusters/**", "/clusters/",
    "/clusters/%c0%ae%c0%ae/root:b", "/clusters/root:a/%c0%ae%c0%ae/root:b", "/clusters/root:a/%e0%80%ae%e0%80%ae/root:b", "/clusters/root:a%c0%af..%c0%afroot:b",
    "/clusters/root%ef%bc%9ab", "/clusters/r%d0%be%d0%bet:b", "/clusters/root:%ef%bd%82", "/clusters/root:b%cc%81", "/clusters/root\uff1ab".encode().decode("latin-1"),
    "/clusters/root:a?/../root:b", "/clusters/root:a#/../root:b", "/clusters/root:a%3f/../root:b", "/clusters/root:a%23/../root:b",
    "/clusters/root:a/api/v1/../../../root:b", "/clusters/root:a/apis/../../root:b", "/api/v1/../../clusters/root:b", "/clusters/root/../root:b", "/clusters/root:b/../root:b",
    "http://center/clusters/root:b", "https://root:b/clusters/root:a/../root:b", "http://x/clusters/root:a%2f..%2froot:b", "//root:b/clusters/root:b",
    "/services/apiexport/root:b/x/clusters/root:b", "/proxy/clusters/root:b", "/api/v1/namespaces/default/services/x/proxy/clusters/root:b",
]]
# Written differently, but it is what it says: a colon may be escaped, and an absolute address is one.
SAME = {p + CONFIG for p in ("/clusters/root%3Ab", "/clusters/root%3ab", "/%63lusters/root:b", "http://center/clusters/root:b")}


def test_paths_do_not_lead_into_another_workspace(town):
    for path in PATHS:
        for who in ("insider", "guest", None):
            got = town.ask(who, "GET", path)
            assert not town.leaks(got, ["root:a"]), f"{who} {path}: {got[:300]!r}"
            # What stands behind a question mark or a hash is no path.
            refused = statuses(got) and 400 <= statuses(got)[0] < 500
            assert refused or re.match(r"/clusters/root:a[?#]", path), f"{who} {path}: {got[:200]!r}"
        # Even the administrator is not led anywhere that the path does not plainly name.
        got = town.ask(None, "GET", path, certificate=True)
        assert not town.leaks(got, ["root:b"] if path in SAME else []), f"administrator {path}: {got[:300]!r}"
    town.alive()


def test_paths_do_not_lead_into_another_namespace(town):
    base = "/clusters/root:a/api/v1/namespaces/"
    for path in ["default/../private/configmaps/marker", "default/configmaps/../../private/configmaps/marker", "default%2f..%2fprivate/configmaps/marker",
                 "default/configmaps/..%2f..%2fprivate%2fconfigmaps%2fmarker", "default;private/configmaps/marker", "private;default/configmaps/marker",
                 "default%00private/configmaps/marker", "private%00/configmaps/marker", "default//private/configmaps/marker", "default,private/configmaps/marker",
                 "PRIVATE/configmaps/marker", "private%20/configmaps/marker", "default/configmaps/%2e%2e/%2e%2e/private/configmaps/marker",
                 "default/configmaps?namespace=private", "default/configmaps?fieldSelector=metadata.namespace%3Dprivate", "*/configmaps", "default/configmaps/marker/../../../private/configmaps/marker",
                 "default/configmaps?labelSelector=&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi9wcml2YXRlL21hcmtlciJ9"]:
        got = town.ask("guest", "GET", base + path)
        assert b"-private" not in got and not town.leaks(got, ["root:a"]), f"{path}: {got[:300]!r}"


def test_a_continue_token_does_not_carry_into_another_place(town):
    """A token from one's own list, used where one may list nothing, or with its place changed."""
    for n in range(3):
        town.center.api("POST", "/clusters/root:a/api/v1/namespaces/default/configmaps", {"metadata": {"name": f"page-{n}"}})
    got = town.ask("guest", "GET", "/clusters/root:a/api/v1/namespaces/default/configmaps?limit=1")
    token = re.search(rb'"continue":"([^"]+)"', got)[1].decode()
    for path in ["/clusters/root:b/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/configmaps",
                 "/clusters/root:a/api/v1/namespaces/private/configmaps", "/clusters/root:a/api/v1/configmaps"]:
        got = town.ask("guest", "GET", f"{path}?limit=500&continue={token}")
        assert statuses(got) == [403] and not town.leaks(got), got
    # The insider may list everything in root:a, and nothing of others with any token.
    for changed in (token, token[:-4] + "AAAA", "Li4vLi4vcm9vdDpiL2RlZmF1bHQvbWFya2Vy"):
        got = town.ask("insider", "GET", f"/clusters/root:a/api/v1/configmaps?limit=500&continue={changed}")
        assert not town.leaks(got, ["root:a"]), got


WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
GUEST, ANONYMOUS = "system:serviceaccount:default:guest", "system:anonymous"


def told(got):
    """The user that the server takes one for; None if it refuses."""
    found = re.search(rb'"username":"([^"]*)"', got)
    return found[1].decode() if found and statuses(got) == [201] else None


def test_headers_make_nobody_else(town):
    names = ["selvedge-admin", "system:admin", "system:apiserver", "kubernetes-admin"]
    tricks = []
    for user in names:
        for prefix in ("X-Remote-", "X-REMOTE-", "x-remote-", "X_Remote_", "X-Forwarded-", "X-Auth-Request-", "X-Webauth-", "X-Original-", "X-Authenticated-", "X-Proxy-"):
            tricks.append([f"{prefix}User: {user}", f"{prefix}Group: system:masters", f"{prefix}Groups: system:masters", f"{prefix}Extra-Scopes: x", f"{prefix}Uid: 1"])
    tricks += [
        ["X-Forwarded-For: 127.0.0.1", "X-Real-IP: ::1", "Forwarded: for=127.0.0.1;by=localhost"],
        ["X-Forwarded-Client-Cert: Subject=\"CN=selvedge-admin,O=system:masters\""], ["X-SSL-Client-S-DN: CN=selvedge-admin,O=system:masters"], ["SSL_CLIENT_S_DN: CN=selvedge-admin"],
        ["X-Original-URL: /clusters/root:b" + CONFIG], ["X-Rewrite-URL: /clusters/root:b" + CONFIG], ["X-HTTP-Method-Override: DELETE", "X-Method-Override: PUT"],
        ["X-Kubernetes-Cluster: root:b"], ["X-Cluster: root:b"], ["X-Kcp-Cluster: root:b"], ["Cookie: token=x; user=selvedge-admin"],
    ]
    for headers in tricks:
        for who, expected in (("guest", GUEST), (None, None)):
            got = town.ask(who, "POST", "/clusters/root:a" + WHO, headers, b"{}")
            assert told(got) == expected, f"{headers}: {got[:400]!r}"
            if who:
                assert b"system:masters" not in got, f"{headers}: {got!r}"
            got = town.ask(who, "GET", "/clusters/root:b" + CONFIG, headers)
            assert statuses(got) == [403] and not town.leaks(got), f"{headers}: {got[:300]!r}"
        # Anonymous at the root, where reviews are for known users only.
        assert told(town.ask(None, "POST", WHO, headers, b"{}")) in (None, ANONYMOUS)


def test_nobody_is_impersonated_without_the_right(town):
    tricks = [["Impersonate-User: selvedge-admin"], ["impersonate-user: selvedge-admin"], ["IMPERSONATE-USER: selvedge-admin"], ["iMpErSoNaTe-uSeR: selvedge-admin"],
              ["Impersonate-User: " + GUEST, "Impersonate-User: selvedge-admin"], ["Impersonate-User: selvedge-admin", "Impersonate-User: " + GUEST],
              ["Impersonate-User: " + GUEST, "Impersonate-Group: system:masters"], ["Impersonate-Group: system:masters"], ["Impersonate-Group: a", "Impersonate-Group: system:masters"],
              ["Impersonate-Uid: 1"], ["Impersonate-UID: 1", "Impersonate-User: x"], ["Impersonate-Extra-Scopes: x"], ["Impersonate-Extra-authentication.kcp.io%2Fcluster-name: root:b", "Impersonate-User: " + GUEST],
              ["Impersonate-User: " + GUEST, "Impersonate-Extra-authentication.kcp.io%2fscopes: cluster:root:b"], ["Impersonate-User:selvedge-admin"], ["Impersonate-User:\tselvedge-admin"],
              ["Impersonate-User: system:node:n1", "Impersonate-Group: system:nodes"], ["Impersonate-User: system:serviceaccount:kube-system:admin"], ["Impersonate-User: system:kcp:serviceaccount:root:b:default:insider"]]
    for headers in tricks:
        got = town.ask("guest", "POST", "/clusters/root:a" + WHO, headers, b"{}")
        assert told(got) is None and statuses(got)[0] in (400, 403), f"{headers}: {got[:400]!r}"
    # Headers that only look like it change nothing, or are refused.
    for headers in [["Impersonate_User: selvedge-admin"], ["Impersonate-Users: selvedge-admin"], ["X-Impersonate-User: selvedge-admin"], ["Impersonate-User : selvedge-admin"],
                    [" Impersonate-User: selvedge-admin"], [b"Impersonate-User\x00: selvedge-admin"], [b"Impersonate-User\xef\xbb\xbf: selvedge-admin"], ["Impersonate-User: "], ["Impersonate-User:"],
                    ["X: y\r\n Impersonate-User: selvedge-admin"], ["X: y\n\tImpersonate-User: selvedge-admin"]]:
        got = town.ask("guest", "POST", "/clusters/root:a" + WHO, headers, b"{}")
        assert told(got) in (None, GUEST), f"{headers}: {got[:400]!r}"


def test_whoever_rules_one_workspace_rules_only_that(town):
    """The insider may impersonate anybody in root:a, and is nobody elsewhere whatever the name."""
    masters = ["Impersonate-User: selvedge-admin", "Impersonate-Group: system:masters"]
    assert told(town.ask("insider", "POST", "/clusters/root:a" + WHO, masters, b"{}")) == "selvedge-admin"
    for headers in [masters, ["Impersonate-User: x", "Impersonate-Group: system:selvedge:controllers"], ["Impersonate-User: system:apiserver", "Impersonate-Group: system:masters"],
                    [*masters, "Impersonate-Extra-authentication.kcp.io%2fscopes: cluster:root:b"], [*masters, "Impersonate-Extra-authentication.kcp.io%2fcluster-name: root:b"],
                    ["Impersonate-User: system:serviceaccount:default:default", "Impersonate-Extra-authentication.kcp.io%2fcluster-name: root:b"]]:
        for space in ("root:b", "root", "*"):
            for path in (CONFIG, "/api/v1/configmaps", "/apis/tenancy.kcp.io/v1alpha1/workspaces"):
                got = town.ask("insider", "GET", f"/clusters/{space}{path}", headers)
                assert statuses(got) == [403] and not town.leaks(got), f"{space}{path} {headers}: {got[:300]!r}"
        got = town.ask("insider", "GET", "/clusters/root:a/api/v1/configmaps", headers)
        assert not town.leaks(got, ["root:a"])


def test_tokens_and_their_tricks(town):
    guest, insider = town.tokens["guest"], town.tokens["insider"]
    header, claims, signature = guest.split(".")
    other = insider.split(".")
    unsigned = "eyJhbGciOiJub25lIn0"  # {"alg":"none"}
    for bad in [f"{header}.{other[1]}.{signature}", f"{unsigned}.{claims}.", f"{unsigned}.{other[1]}.{signature}", f"{header}.{claims}.", f"{header}.{claims}", guest[:-2], guest + "A",
                guest.upper(), f"{guest},{insider}", f"{guest}\t{insider}", "null", "undefined", "a.b.c", "." * 3, "A" * 9000]:
        got = town.ask(None, "POST", "/clusters/root:a" + WHO, [f"Authorization: Bearer {bad}"], b"{}")
        assert told(got) is None and statuses(got)[0] in (400, 401, 431), f"{bad[-60:]}: {got[:300]!r}"
    # Two tokens: one of them counts, or none; never somebody else's rights with somebody's name.
    for first, second in ((guest, insider), (insider, guest), (guest, "nonsense"), ("nonsense", guest)):
        headers = [f"Authorization: Bearer {first}", f"Authorization: Bearer {second}"]
        seen = told(town.ask(None, "POST", "/clusters/root:a" + WHO, headers, b"{}"))
        assert seen in (None, GUEST if first == guest else "system:serviceaccount:default:insider"), seen
    # Upstream takes the first word behind the scheme.
    assert told(town.ask(None, "POST", "/clusters/root:a" + WHO, [f"Authorization: Bearer {guest} {insider}"], b"{}")) == GUEST
    for scheme in ("bearer", "BEARER", "Bearer "):
        assert told(town.ask(None, "POST", "/clusters/root:a" + WHO, [f"Authorization: {scheme} {guest}"], b"{}")) in (GUEST, None)
    for scheme in ("Basic", "Token", "JWT", "Negotiate", ""):
        assert told(town.ask(None, "POST", "/clusters/root:a" + WHO, [f"Authorization: {scheme} {guest}"], b"{}")) is None
    # Tokens in other places are not credentials.
    assert statuses(town.ask(None, "GET", f"/clusters/root:a{CONFIG}?access_token={insider}&token={insider}")) == [403]
    assert statuses(town.ask(None, "GET", "/clusters/root:a" + CONFIG, [f"Cookie: access_token={insider}"])) == [403]
    assert statuses(town.ask(None, "GET", "/clusters/root:a" + CONFIG, [f"Proxy-Authorization: Bearer {insider}"])) == [403]


def test_hosts(town):
    for host in ("root:b", "root-b.center", "evil", "center\\clusters\\root:b", "", "[::1]", "localhost/clusters/root:b", "a" * 5000):
        got = town.ask("guest", "GET", "/clusters/root:a" + CONFIG, host=host)
        assert not town.leaks(got, ["root:a"]) and statuses(got), f"{host}: {got[:200]!r}"
    got = town.ask("guest", "GET", "/clusters/root:a" + CONFIG, ["Host: other"])
    assert not town.leaks(got, ["root:a"])


def smuggle(town, framing, body, certificate=False):
    """A refused request whose tail is a request of its own; the tail must not be answered. Its marker would give it away."""
    auth = [] if certificate else [f"Authorization: Bearer {town.tokens['insider']}"]
    head = ["POST /clusters/root:a/api/v1/namespaces/default/configmaps?dryRun=All HTTP/1.1", "Host: center", *auth, "Content-Type: application/json"]
    lines = [h.encode() for h in head] + [f if isinstance(f, bytes) else f.encode() for f in framing]
    return town.exchange(b"\r\n".join([*lines, b"", b""]) + body, certificate)


def test_no_request_is_smuggled_inside_another(town):
    auth = f"Authorization: Bearer {town.tokens['insider']}"
    inner = "\r\n".join([f"GET /clusters/root:a{CONFIG} HTTP/1.1", "Host: center", auth, "", ""]).encode()
    chunked = b"0\r\n\r\n" + inner
    wrapped = f"{len(inner):x}\r\n".encode() + inner + b"\r\n0\r\n\r\n"
    cases = [
        (["Content-Length: 5", f"Content-Length: {len(inner)}"], b"{}   " + inner),
        ([f"Content-Length: {len(inner)}", "Content-Length: 0"], inner),
        (["Content-Length: 0, 5"], inner), (["Content-Length: +0"], inner), (["Content-Length: -1"], inner), (["Content-Length: 0x0"], inner), (["Content-Length: 0 0"], inner),
        (["Content-Length: 1e1"], inner), (["Content-Length: "], inner), (["Content-Length: 99999999999999999999999"], inner), ([b"Content-Length: \xd9\xa0"], inner), (["Content-Length : 0"], inner),
        (["Content-Length:\r\n 0"], inner), ([" Content-Length: 0"], inner),
        (["Transfer-Encoding: chunked", f"Content-Length: {len(chunked)}"], chunked), ([f"Content-Length: {len(chunked)}", "Transfer-Encoding: chunked"], chunked),
        ([f"Content-Length: {len(wrapped)}", "Transfer-Encoding: xchunked"], wrapped), ([f"Content-Length: {len(wrapped)}", "Transfer-Encoding : chunked"], wrapped),
        ([f"Content-Length: {len(wrapped)}", "Transfer-Encoding: identity"], wrapped), ([f"Content-Length: {len(wrapped)}", "Transfer-Encoding: chunked, identity"], wrapped),
        (["Transfer-Encoding: identity, chunked"], wrapped), (["Transfer-Encoding: chunked", "Transfer-Encoding: identity"], wrapped), (["Transfer-Encoding: chunked\x0b"], wrapped),
        (["Transfer-Encoding:\x00chunked"], wrapped), (["Transfer-Encoding: \"chunked\""], wrapped), (["X: y\r\n Transfer-Encoding: chunked", f"Content-Length: {len(wrapped)}"], wrapped),
        (["Transfer-Encoding: chunked"], b"0x0\r\n\r\n" + inner), (["Transfer-Encoding: chunked"], b"+0\r\n\r\n" + inner), (["Transfer-Encoding: chunked"], b"-1\r\n\r\n" + inner),
        (["Transfer-Encoding: chunked"], b"ffffffffffffffffff\r\n" + inner), (["Transfer-Encoding: chunked"], b"\r\n\r\n" + inner), (["Transfer-Encoding: chunked"], b"g\r\n\r\n" + inner),
        (["Transfer-Encoding: chunked"], b"2\r\n{}XX0\r\n\r\n" + inner), (["Transfer-Encoding: chunked"], b"2;a=\"\r\n\"\r\n{}\r\n" + inner),
        (["Expect: 100-continue", f"Content-Length: {len(inner)}"], inner), ([f"Content-Length: {len(inner)}", "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"], inner),
    ]
    for framing, body in cases:
        for certificate in (False, True):
            got = smuggle(town, framing, body, certificate)
            plain = framing == ["Transfer-Encoding: identity, chunked"] or "Expect: 100-continue" in framing
            codes = [c for c in statuses(got) if c != 100]
            assert not town.leaks(got), f"{framing} {body[:40]!r} was answered inside: {got[:600]!r}"
            assert len(codes) <= 1 and (plain or not codes or 400 <= codes[0] < 600), f"{framing}: {codes} {got[:300]!r}"
    town.alive()


def test_requests_in_a_row_keep_their_own_identity(town):
    """Pipelined on one connection: each is judged by its own header, and one without any is nobody's."""
    def get(space, who):
        auth = [f"Authorization: Bearer {town.tokens[who]}"] if who else []
        return "\r\n".join([f"GET /clusters/{space}{CONFIG} HTTP/1.1", "Host: center", *auth, "", ""]).encode()
    got = town.exchange(get("root:a", "insider") + get("root:a", None) + get("root:b", "insider") + get("root:a", "guest") + get("root", None), seconds=1.0)
    assert statuses(got) == [200, 403, 403, 200, 403] and not town.leaks(got, ["root:a"]), got
    assert got.count(town.markers["root:a"].encode()) == 2


def test_a_refusal_keeps_the_connection(town):
    """Clients that send head and body apart are not cut off because they were told no."""
    conn = http.client.HTTPSConnection(town.center.host, town.center.port, context=town.bare, timeout=10)
    for size in (2, 1000, 60_000):
        for _ in range(5):
            body = json.dumps({"metadata": {"name": "x"}, "data": {"a": "x" * size}})
            conn.request("POST", "/clusters/root:b/api/v1/namespaces/default/configmaps", body,
                         {"Content-Type": "application/json", "Authorization": f"Bearer {town.tokens['guest']}"})
            reply = conn.getresponse()
            assert reply.status == 403 and reply.read()
    conn.close()


def integer(value, bits, first=0):
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = [first | most], value - most
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def http2(town, headers, body=b"", certificate=None):
    """One request over HTTP/2 with exactly these headers. All data that came back, and whether the stream or connection was ended."""
    encode = lambda text: text if isinstance(text, bytes) else text.encode()  # noqa: E731
    block = b"".join(b"\x00" + integer(len(encode(k)), 7) + encode(k) + integer(len(encode(v)), 7) + encode(v) for k, v in headers)
    raw = socket.create_connection((town.center.host, town.center.port), timeout=10)
    with town.h2.wrap_socket(raw, server_hostname=town.center.host) as s:
        assert s.selected_alpn_protocol() == "h2"
        s.settimeout(3)
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4 if body else 5, 1, block) + (frame(0, 1, 1, body) if body else b""))
        data, buffer, ended = b"", b"", None
        try:
            while not ended and (chunk := s.recv(65536)):
                buffer += chunk
                while len(buffer) >= 9 and len(buffer) >= 9 + (size := int.from_bytes(buffer[:3], "big")):
                    kind, flags, stream = buffer[3], buffer[4], int.from_bytes(buffer[5:9], "big")
                    payload, buffer = buffer[9:9 + size], buffer[9 + size:]
                    if kind == 0 and stream == 1:
                        data += payload
                    if kind in (0, 1) and stream == 1 and flags & 1:
                        ended = "answered"
                    if kind == 3 and stream == 1:
                        ended = ended or "reset"
                    if kind == 7:
                        ended = ended or "gone"
                    if kind == 4 and not flags & 1:
                        s.sendall(frame(4, 1, 0, b""))
        except (TimeoutError, OSError):
            pass
        return data, ended


def pseudo(path, method="GET", authority="center", scheme="https"):
    return [(":method", method), (":scheme", scheme), (":authority", authority), (":path", path)]


def test_http2(town):
    auth = ("authorization", f"Bearer {town.tokens['guest']}")
    data, ended = http2(town, [*pseudo("/clusters/root:a" + CONFIG), auth])
    assert town.markers["root:a"].encode() in data and ended == "answered"
    a, b = "/clusters/root:a" + CONFIG, "/clusters/root:b" + CONFIG
    refused = [
        [*pseudo(a), (":path", b), auth], [(":path", b), *pseudo(a), auth], [*pseudo(a), (":authority", "root:b"), auth], [*pseudo(a), auth, (":path", b)], [auth, *pseudo(a)],
        [*pseudo(a), ("Authorization", auth[1])], [*pseudo(a), ("transfer-encoding", "chunked"), auth], [*pseudo(a), ("connection", "close"), auth], [*pseudo(a), (":cluster", "root:b"), auth],
        [*pseudo(""), auth], [*pseudo("clusters/root:a" + CONFIG), auth], [(":method", "GET"), (":scheme", "https"), (":authority", "center"), auth],
        [*pseudo(a), ("x", "y\r\nimpersonate-user: selvedge-admin"), auth], [*pseudo(a), ("x\r\nimpersonate-user", "selvedge-admin"), auth], [*pseudo(a + "\r\nHost: x"), auth], [*pseudo(a + "\0"), auth],
        [*pseudo(a), ("impersonate-user", "selvedge-admin"), auth], [*pseudo(a), ("impersonate-user", GUEST), ("impersonate-group", "system:masters"), auth],
    ]
    for headers in refused:
        data, ended = http2(town, headers)
        assert not town.leaks(data), f"{headers}: {data[:300]!r}"
        code = json.loads(data)["code"] if data.startswith(b"{") else 400
        assert code in (400, 403, 404) and ended, f"{headers}: {data[:300]!r} {ended}"
    for path in PATHS:
        data, _ = http2(town, [*pseudo(path.split("#")[0] if "#" in path else path), auth])
        assert not town.leaks(data, ["root:a"]), f"{path}: {data[:300]!r}"
    for extra in [("x-remote-user", "selvedge-admin"), ("x-remote-group", "system:masters"), ("x-forwarded-user", "selvedge-admin"), ("host", "root:b"), ("cookie", "a=b"), ("te", "trailers")]:
        data, _ = http2(town, [*pseudo("/clusters/root:a" + WHO, "POST"), ("content-type", "application/json"), extra, auth], b"{}")
        assert not data or json.loads(data).get("status", {}) == "Failure" or json.loads(data)["status"]["userInfo"]["username"] == GUEST, f"{extra}: {data!r}"
    # A body that is not as long as it claims ends the stream, nothing is made of it.
    data, ended = http2(town, [*pseudo("/clusters/root:a" + WHO, "POST"), ("content-length", "50"), ("content-type", "application/json"), auth], b"{}")
    assert b"username" not in data and ended, data
    town.alive()


def test_nobody_learns_which_workspaces_there_are(town):
    """The same words for one that exists and one that does not."""
    for who in ("guest", "insider", None):
        for path in (CONFIG, "/api", "/version", "/openapi/v3", "/apis/tenancy.kcp.io/v1alpha1/workspaces"):
            there, nowhere = (town.ask(who, "GET", f"/clusters/{space}{path}") for space in ("root:b", "root:z"))
            strip = lambda got: re.sub(rb"root:[bz]|\"[bz]\"|\r\ndate: [^\r]*|[0-9a-f-]{36}", b"", got, flags=re.I)  # noqa: E731
            assert strip(there) == strip(nowhere) and statuses(there) == [403], f"{who} {path}: {there[:400]!r} {nowhere[:400]!r}"
