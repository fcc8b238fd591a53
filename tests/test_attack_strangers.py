"""People without credentials cannot exhaust a center: silent connections, floods of bodies, resets; and webhooks of tenants lead to nothing near."""
import contextlib
import http.client
import json
import pathlib
import resource
import socket
import subprocess
import threading
import time

import pytest

import strangers
from center import Center, Tools, binary, wait_for
from edge import make_workspace, selvedge
from strangers import H2, PREFACE, connect, context, ended_after, frame, scaled

JOIN = "/selvedge.link.v1.Link/Join"
TENANT = "secret-of-alice"
# What every tenant is told of a webhook that cannot be used.
UNREACHABLE = "the webhook cannot be reached, or gives no answer that can be used"


@pytest.fixture(scope="module")
def center(tmp_path_factory):
    base = tmp_path_factory.mktemp("strangers")
    (base / "tokens.csv").write_text(f"{TENANT},alice,1,\nsecret-of-bob,bob,2,\n")
    center = Center(base / "data", args=["--token-auth-file", str(base / "tokens.csv")])
    try:
        center.start()
        for name, user in (("a", "alice"), ("b", "bob")):
            make_workspace(center, f"root:{name}")
            center.api("POST", f"/clusters/root:{name}/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "own"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]})
        yield center
    finally:
        center.kill()


def as_user(center, token, method, path, body=None, timeout=10):
    """(status, text) of a request with a token and without a certificate."""
    with contextlib.closing(http.client.HTTPSConnection(center.host, center.port, timeout=timeout, context=context(center.ca))) as conn:
        conn.request(method, path, body and json.dumps(body), {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
        reply = conn.getresponse()
        return reply.status, reply.read().decode()


# ---- connections ----

STATES = {
    "nothing after TCP": (None, b""),
    "half of a handshake": (None, b"\x16\x03\x01\x02\x00\x01"),
    "TLS and nothing, h2": (["h2"], b""),
    "TLS and nothing, http/1.1": (["http/1.1"], b""),
    "TLS and nothing, no ALPN": ([], b""),
    "P": ([], b"P"),
    "half of a preface": ([], b"PRI * HTTP/2"),
    "preface": (["h2"], PREFACE),
    "preface and settings": (["h2"], PREFACE + frame(strangers.SETTINGS, 0, 0)),
    "settings and half of the headers": (["h2"], PREFACE + frame(strangers.SETTINGS, 0, 0) + frame(strangers.HEADERS, 0, 1, b"\x82")),
    "half of a head": (["http/1.1"], b"GET /version HTTP/1.1\r\nHost: x\r\n"),
    "drops of a head": (["http/1.1"], b"GET"),
}


def silent(center, alpn, sends):
    if alpn is None:
        sock = socket.create_connection((center.host, center.port), timeout=10)
    else:
        sock = connect(center, context(center.ca, alpn))
    if sends:
        sock.sendall(sends)
    return sock


@pytest.mark.alone
def test_silent_connections_end_in_every_state(center):
    socks = {name: silent(center, *state) for name, state in STATES.items()}
    begun, ended = time.monotonic(), {}

    def wait(name, sock):
        took = ended_after(sock, 16)
        ended[name] = took and time.monotonic() - begun

    def drip(sock):
        with contextlib.suppress(OSError):
            for letter in b" /version HTTP/1.1\r\n":
                time.sleep(1)
                sock.sendall(bytes((letter,)))

    threading.Thread(target=drip, args=(socks["drops of a head"],), daemon=True).start()
    # A connection that has had a request is none of these: HTTP/2 stays open while it answers pings.
    used = H2(center)
    assert used.wait(used.post("/version"), 10) is not None
    threads = [threading.Thread(target=wait, args=each) for each in socks.items()]
    [thread.start() for thread in threads]
    [thread.join(20) for thread in threads]
    late = {name: took for name, took in ended.items() if took is None or not took < 13}
    assert not late, late
    assert not used.over, "a connection with a request stays"
    used.close()


def hold(center, count, seconds, stop):
    """Opens silent TLS connections for so long and keeps them; how many were open at most."""
    tls, held, most = context(center.ca), [], 0
    until = time.monotonic() + seconds
    while time.monotonic() < until and not stop.is_set():
        if len(held) < count:
            with contextlib.suppress(OSError):
                held.append(connect(center, tls, timeout=3))
                most = max(most, len(held))
                continue
        time.sleep(0.05)
    for sock in held:
        sock.close()
    return most


@pytest.mark.alone
def test_many_silent_connections_shut_nobody_out(tmp_path):
    """With the usual soft limit of 1,024 files. The long form also lowers the hard limit."""
    (tmp_path / "tokens.csv").write_text(f"{TENANT},alice,1,\n")
    center = Center(tmp_path / "data", args=["--token-auth-file", str(tmp_path / "tokens.csv")])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    allowed = 1024 if strangers.SCALE > 1 else min(hard, 4096)
    center.command = ["prlimit", f"--nofile=1024:{allowed}", *center.command]
    # This process holds as many.
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    stop, count = threading.Event(), scaled(1100)
    try:
        center.start()
        tools = Tools(center, tmp_path / "home")
        holders = [threading.Thread(target=hold, args=(center, count // 4, 30, stop)) for _ in range(4)]
        [holder.start() for holder in holders]
        begun, slowest = time.monotonic(), 0.0
        while time.monotonic() - begun < 8 * max(1.0, strangers.SCALE):
            at = time.monotonic()
            assert as_user(center, TENANT, "GET", "/version", timeout=5)[0] == 200
            assert center.request("GET", "/api/v1/namespaces", timeout=5)[0] == 200
            slowest = max(slowest, time.monotonic() - at)
            time.sleep(0.1)
        tools.kubectl("get", "namespaces", "--request-timeout=5s")
        text = center.request("GET", "/metrics", accept="*/*")[2].decode()
        unproved = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("selvedge_connections_unproved "))
        assert unproved < count, unproved
        stop.set()
        [holder.join(30) for holder in holders]
        assert slowest < 5, slowest
        limits = pathlib.Path(f"/proc/{center.process.pid}/limits").read_text()
        soft = next(line.split()[3] for line in limits.splitlines() if line.startswith("Max open files"))
        assert soft == str(allowed), limits
        log = center.log_path.read_text(errors="replace")
        warned = [line for line in log.splitlines() if "too many connections" in line or "cannot accept" in line]
        assert len(warned) <= 2 + 2 * int(time.monotonic() - begun) // 10, warned
    finally:
        stop.set()
        center.kill()


@pytest.mark.alone
def test_peers_with_a_certificate_do_not_count_against_their_address(tmp_path):
    """Many more connections of one address than strangers may have: each proved a certificate, and none gives way."""
    center = Center(tmp_path / "data")
    # As many files as make 256 the number of strangers of an address.
    center.command = ["prlimit", "--nofile=2048:2048", *center.command]
    try:
        many_with_certificates(center.start())
    finally:
        center.kill()


def many_with_certificates(center):
    tls = context(center.ca, ["h2"], center.cert, center.key)
    mine = [connect(center, tls) for _ in range(300)]
    for sock in mine:
        sock.sendall(PREFACE + frame(strangers.SETTINGS, 0, 0) + frame(strangers.HEADERS, strangers.END_HEADERS | strangers.END_STREAM, 1,
                     strangers.header_block([(":method", "GET"), (":scheme", "https"), (":authority", "x"), (":path", "/version")])))
    for sock in mine:
        assert sock.recv(65536), "the server answers before others come"
    other, begun = context(center.ca), time.monotonic()
    more = [connect(center, other) for _ in range(300)]
    late = [connect(center, other) for _ in range(20)]
    # The address has more strangers than it may have: some of them give way, and nobody else does.
    given_way = lambda: sum(ended_after(sock, 0.01) is not None for sock in more)
    ended = wait_for("strangers to give way", lambda: (n := given_way()) >= 20 and n)
    # Every silent connection ends after some seconds: on a slow machine all of them may have by now.
    assert ended < 300 or time.monotonic() - begun > 8, f"{ended} of the silent ones gave way"
    open_still = sum(ended_after(sock, 0.01) is None for sock in mine)
    assert open_still == 300, open_still
    for sock in (*mine, *more, *late):
        sock.close()


# ---- bodies ----

def flood(center, cert, key, path, connections, streams, size, unfinished):
    """Many unfinished bodies on many connections."""
    body = b'{"token":"' + b"x" * size
    for _ in range(connections):
        try:
            h2 = H2(center, cert, key)
            unfinished.append(h2)
            for _ in range(streams):
                h2.body(h2.post(path), body)
        except OSError:
            continue


@pytest.mark.alone
def test_bodies_of_those_who_join_take_little_memory(center):
    """24 connections with 1,000 unfinished bodies of 60 KB each: it was 1.9 GB."""
    as_user(center, TENANT, "GET", "/version")
    before, open_ones, peak = center.rss(), [], []
    flooding = [threading.Thread(target=flood, args=(center, None, None, JOIN, 3, scaled(600), 60_000, open_ones)) for _ in range(8)]
    [thread.start() for thread in flooding]
    while any(thread.is_alive() for thread in flooding):
        peak.append(center.rss())
        time.sleep(0.1)
        assert as_user(center, TENANT, "GET", "/clusters/root:a/api/v1/namespaces")[0] == 200
    peak.append(center.rss())
    assert max(peak) < 300 << 10, f"{before >> 10} -> {max(peak) >> 10} MiB"
    assert all(h2.streams_allowed <= 100 for h2 in open_ones)
    [h2.close() for h2 in open_ones]
    # Somebody who behaves can still join.
    made = selvedge("join-token", "create", "--kubeconfig", center.kubeconfig, "--name", "florin").strip()
    assert as_user(center, TENANT, "POST", JOIN, {})[0] == 200, made
    wait_for("the memory to be given back", lambda: center.rss() < before + (60 << 10), 90, every=1)


@pytest.mark.alone
def test_resets_and_failed_handshakes_are_one_line_in_a_while(center):
    log = center.log_path
    start = len(log.read_text(errors="replace"))
    begun = time.monotonic()
    for _ in range(scaled(10)):
        h2 = H2(center)
        with contextlib.suppress(OSError):
            for _ in range(3000):
                h2.reset(h2.post("/version"))
                if h2.over:
                    break
        h2.close()
    for _ in range(50):
        with socket.create_connection((center.host, center.port)) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
    # A handshake that is made after these has been served.
    assert as_user(center, TENANT, "GET", "/version")[0] == 200
    lines = [line for line in log.read_text(errors="replace")[start:].splitlines() if " WARN" in line or " ERROR" in line]
    assert len(lines) <= 2 + int((time.monotonic() - begun) / 10), lines[:10]


# ---- webhooks ----

def listener(answer):
    """A TLS server of a certificate that nobody knows: its port, and how often somebody connected."""
    sock = socket.create_server(("0.0.0.0", 0))
    sock.settimeout(120)
    heard = []

    def run():
        while True:
            try:
                peer, _ = sock.accept()
            except OSError:  # the test has closed it, or nobody came for two minutes
                return
            heard.append(peer.getpeername())
            with contextlib.suppress(OSError):
                peer.sendall(answer)
                peer.close()

    threading.Thread(target=run, daemon=True).start()
    return sock, sock.getsockname()[1], heard


def configure(center, workspace, client, token, name="probe"):
    base = f"/clusters/{workspace}/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    as_user(center, token, "DELETE", f"{base}/{name}")
    status, text = as_user(center, token, "POST", base, {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": name},
        "webhooks": [{"name": "probe.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": client,
                      "timeoutSeconds": 5, "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]}]})
    assert status == 201, text


def ask(center, workspace, token):
    status, text = as_user(center, token, "POST", f"/clusters/{workspace}/api/v1/namespaces/default/configmaps",
                           {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}}, timeout=15)
    return status, json.loads(text).get("message", "")


def service(center, name, spec, address=None, port=None):
    """A Service without a selector, with an address if there is one to lead to."""
    base = "/clusters/root:a"
    status, text = as_user(center, TENANT, "POST", f"{base}/api/v1/namespaces/default/services", {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
    assert status == 201, text
    if address:
        # Upstream's validation knows these, and refuses most of them; Endpoints of the old kind and slices alike.
        return as_user(center, TENANT, "POST", f"{base}/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", {
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}], "ports": [{"port": port, "name": ""}]})[0]
    return status


def own_address():
    """The address from which this machine would reach others. Nothing is sent for that."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        address = probe.getsockname()[0]
        return None if address.startswith(("127.", "169.254.")) else address


def test_webhooks_of_tenants_lead_to_nothing_near(center):
    sock, port, heard = listener(b"no TLS at all")
    closed = socket.create_server(("127.0.0.1", 0))
    free = closed.getsockname()[1]
    closed.close()
    said = {}
    try:
        targets = {"loopback": f"https://127.0.0.1:{port}/latest/meta-data", "name": f"https://localhost:{port}/x",
                   "other loopback": f"https://127.9.9.9:{port}/", "mapped": f"https://[::ffff:127.0.0.1]:{port}/",
                   "unspecified": f"https://0.0.0.0:{port}/", "six": f"https://[::1]:{port}/", "closed": f"https://127.0.0.1:{free}/",
                   "center": f"https://127.0.0.1:{center.port}/"}
        for name, url in targets.items():
            configure(center, "root:a", {"url": url}, TENANT)
            wait_for(f"the webhook {name} to be asked", lambda: ask(center, "root:a", TENANT)[0] == 500, 10)
            said[name] = ask(center, "root:a", TENANT)[1].replace(url, "URL")
        configure(center, "root:a", {"service": {"name": "external", "namespace": "default"}}, TENANT)
        service(center, "external", {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]})
        said["external name"] = ask(center, "root:a", TENANT)[1].replace("https://external.default.svc:443/", "URL")
        # An address of this machine that is neither loopback nor link-local, if it has one.
        near = own_address()
        if near and service(center, "slice", {"ports": [{"port": 443, "targetPort": port}]}, near, port) == 201:
            configure(center, "root:a", {"service": {"name": "slice", "namespace": "default"}}, TENANT)
            said["slice"] = ask(center, "root:a", TENANT)[1].replace("https://slice.default.svc:443/", "URL")
        assert len(set(said.values())) == 1, said
        assert UNREACHABLE in said["loopback"], said
        assert not heard, "nobody was connected to"
        log = center.log_path.read_text(errors="replace")
        assert "may not lead to" in log, "the log has the reason"
    finally:
        sock.close()
        as_user(center, TENANT, "DELETE", "/clusters/root:a/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/probe")


def test_the_administrator_reaches_what_the_machine_reaches(center):
    sock, port, heard = listener(b"")
    try:
        center.api("POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "probe"},
            "webhooks": [{"name": "probe.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
                          "clientConfig": {"url": f"https://127.0.0.1:{port}/"}, "namespaceSelector": {"matchLabels": {"probe": "yes"}},
                          "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]}]})
        center.api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "probe", "labels": {"probe": "yes"}}})
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}}
        status, _, text = wait_for("the webhook to be asked", lambda: (lambda r: r[0] == 500 and r)(
            center.request("POST", "/api/v1/namespaces/probe/configmaps", body)), 10)
        assert heard and UNREACHABLE not in text.decode(), text
    finally:
        sock.close()
        center.request("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/probe")


def test_what_is_allowed_is_reached(tmp_path):
    (tmp_path / "tokens.csv").write_text(f"{TENANT},alice,1,\n")
    center = Center(tmp_path / "data", args=["--token-auth-file", str(tmp_path / "tokens.csv"), "--webhook-allow-address", "127.0.0.1/32"])
    sock, port, heard = listener(b"")
    try:
        center.start()
        make_workspace(center, "root:a")
        center.api("POST", "/clusters/root:a/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "own"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]})
        configure(center, "root:a", {"url": f"https://127.0.0.1:{port}/"}, TENANT)
        wait_for("the webhook to be asked", lambda: ask(center, "root:a", TENANT)[0] == 500 and heard, 10)
        assert UNREACHABLE in ask(center, "root:a", TENANT)[1], "what went wrong is not told all the same"
        bad = subprocess.run([binary(), "center", "--data-dir", str(tmp_path / "x"), "--webhook-allow-address", "nonsense"],
                             capture_output=True, text=True, timeout=30)
        assert bad.returncode and "--webhook-allow-address" in bad.stderr, bad.stderr
    finally:
        sock.close()
        center.kill()


# ---- the token ----

def test_a_join_token_is_read_from_a_file(center, tmp_path):
    token = selvedge("join-token", "create", "--kubeconfig", center.kubeconfig, "--name", "guilder").strip()
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text(token + "\n")
    command = [binary(), "edge", "--data-dir", str(tmp_path / "edge"), "--listen", "127.0.0.1:0", "--center", center.url, "--name", "guilder",
               "--runtime", "kubelet", "--controllers="]
    with open(tmp_path / "log", "wb") as log:
        edge = subprocess.Popen([*command, "--token-file", str(file)], stdout=log, stderr=log)
    try:
        wait_for("the edge to join", lambda: center.request("GET", "/apis/workload.kcp.io/v1alpha1/synctargets/guilder")[0] == 200
                 and (tmp_path / "edge/edge.json").exists(), 30)
        arguments = pathlib.Path(f"/proc/{edge.pid}/cmdline").read_bytes()
        assert token.split(".")[1].encode() not in arguments
    finally:
        edge.kill()
        edge.wait()
    # Once it has joined it needs no token; with one among its arguments it says what that means.
    file.unlink()
    for more, warns in ((["--token-file", str(file)], False), (["--token", token], True)):
        (tmp_path / "edge/admin.kubeconfig").unlink(missing_ok=True)
        with open(tmp_path / "log", "wb") as log:
            edge = subprocess.Popen([*command, *more], stdout=log, stderr=log)
        try:
            wait_for("the edge to start", lambda: (tmp_path / "edge/admin.kubeconfig").exists(), 20)
            assert edge.poll() is None, (tmp_path / "log").read_text()
            assert ("--token-file" in (tmp_path / "log").read_text()) == warns
        finally:
            edge.kill()
            edge.wait()
    for part in ("manifest", "systemd-unit"):
        args = ["--center", center.url, "--token", token, "--name", "guilder"] if part == "manifest" else []
        printed = selvedge("edge", part, *args)
        assert "--token-file" in printed and "SELVEDGE_TOKEN" not in printed
