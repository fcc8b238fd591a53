"""Joining: tokens, what is said when they are not good, proxies, certificates that are renewed and revoked."""
import concurrent.futures
import contextlib
import http.client
import json
import re
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest
import yaml

from center import HERE, ROOT, Center, Tools, binary, free_port, wait_for
from edge import SYNCTARGETS, Edge, make_workspace, selvedge

JOIN = "/selvedge.link.v1.Link/Join"
TOKEN = re.compile(r"[0-9a-f]{8}\.[0-9a-f]{32}\.[0-9a-f]{64}\.root(:[a-z0-9-]+)*\n")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("join")


@pytest.fixture(scope="module")
def center(home):
    center = Center(home / "center", args=["--tls-names", "center.test"])
    try:
        yield center.start()
    finally:
        center.kill()


@pytest.fixture
def edges():
    started = []
    yield started
    for edge in started:
        edge.kill()


def token(center, *args):
    made = selvedge("join-token", "create", "--kubeconfig", center.kubeconfig, *args)
    assert TOKEN.fullmatch(made), made
    return made.strip()


def attempt(center, home, name, token, url=None, env=None, args=()):
    """`selvedge edge` that has to fail: what it says."""
    done = subprocess.run([binary(), "edge", "--data-dir", home / f"{name}-{time.monotonic_ns()}", "--listen", "127.0.0.1:0",
                           "--center", url or center.url, "--token", token, "--name", name, *args],
                          capture_output=True, text=True, timeout=30, env={**center.env, **(env or {})})
    assert done.returncode != 0, "it joined"
    return done.stderr


def request_of(home, name):
    """A signing request in PEM, with its key beside it."""
    subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x",
                    "-keyout", home / f"{name}.key", "-out", home / f"{name}.csr"], check=True, capture_output=True, timeout=60)
    return (home / f"{name}.csr").read_text()


def ask(center, body, cert=None):
    """The status and the answer of the join path, with nothing but this certificate."""
    tls = ssl.create_default_context(cafile=str(center.ca))
    if cert:
        tls.load_cert_chain(*cert)
    with contextlib.closing(http.client.HTTPSConnection(center.host, center.port, context=tls, timeout=20)) as conn:
        conn.request("POST", JOIN, json.dumps(body), {"Content-Type": "application/json"})
        reply = conn.getresponse()
        return reply.status, json.loads(reply.read())


def certificate_of(edge):
    """Files with the certificate and key that an edge has now."""
    saved = json.loads((edge.data_dir / "edge.json").read_text())
    paths = []
    for part in ("certificate", "key"):
        path = edge.data_dir.with_name(f"{edge.data_dir.name}-{time.monotonic_ns()}.{part}")
        path.write_text(saved[part])
        paths.append(path)
    return paths


def test_one_line_at_the_center_and_one_on_the_edge(center, home, edges):
    made = token(center, "--name", "florin", "--allow-labels", "region,size")
    secret = center.api("GET", f"/api/v1/namespaces/kube-system/secrets/join-token-{made.split('.')[0]}")
    assert secret["type"] == "edge.selvedge.dev/join-token"
    assert made.split(".")[1] not in json.dumps(secret), "only a hash is kept"
    florin = Edge(center, home / "florin", args=["--labels", "region=west,size=s"])
    edges.append(florin)
    florin.start(token=made).wait_connected()
    assert florin.target()["metadata"]["labels"] == {"region": "west", "size": "s"}
    assert florin.api("GET", "/api/v1/namespaces")["items"], "its own API answers its own administrator"
    config = yaml.safe_load(selvedge("edge", "kubeconfig", "--data-dir", florin.data_dir))
    assert config["clusters"][0]["cluster"]["server"] == f"{florin.url}/clusters/root"
    assert "takes no edges" in selvedge("join-token", "create", "--name", "x", "--kubeconfig", florin.kubeconfig, code=1)
    assert (florin.data_dir / "edge.json").stat().st_mode & 0o777 == 0o600
    subject = subprocess.run(["openssl", "x509", "-noout", "-subject", "-in", certificate_of(florin)[0]], capture_output=True, text=True, timeout=60)
    assert "system:edges" in subject.stdout and "system:edge:root:florin" in subject.stdout
    listed = selvedge("join-token", "list", "--kubeconfig", center.kubeconfig)
    assert re.search(rf"{made.split('.')[0]} +florin +0 .*used up", listed), listed
    # Nothing is needed to start again; what was needed the first time does no harm.
    assert florin.stop() == 0
    florin.start().wait_connected()
    assert florin.stop() == 0
    florin.joined = False
    florin.start(token=made).wait_connected()
    assert florin.stop() == 0
    other = subprocess.run([*florin.base, "--name", "guilder"], capture_output=True, text=True, timeout=20)
    assert other.returncode and "belongs to the edge florin, not to guilder" in other.stderr


def test_each_refusal_has_its_own_words(center, home, edges):
    good = token(center, "--name", "lira", "--uses", "2", "--allow-labels", "x")
    one, secret, pin, workspace = good.split(".")
    short = token(center, "--name", "lira", "--expires", "1s")
    once = token(center, "--name", "drachma")
    ask(center, {"token": ".".join(once.split(".")[:2]), "workspace": "root", "name": "drachma", "request": request_of(home, "d")})
    made = time.monotonic()
    said = [
        ("mark", good, "for the edge lira, not for mark"),
        ("lira", f"{one}.{secret[::-1]}.{pin}.{workspace}", "knows no such join token"),
        ("lira", f"{one[::-1]}.{secret}.{pin}.{workspace}", "knows no such join token"),
        ("lira", f"{one}.{secret}.{pin}.root:nowhere", "knows no such join token"),
        ("lira", f"{one}.{secret}.{pin[::-1]}.{workspace}", "is not the center that the token is from"),
        ("lira", "abcdef.0123456789abcdef", "this is no join token"),
        ("drachma", once, "used up"),
        ("Lira", good, "the edge lira, not for Lira|is no name of an edge"),
    ]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for (_name, _given, words), stderr in zip(said, pool.map(lambda s: attempt(center, home, s[0], s[1]), said)):
            assert re.search(words, stderr), f"{words!r} is not in {stderr!r}"
            assert secret not in stderr
    time.sleep(max(0, 1.5 - (time.monotonic() - made)))
    assert "the join token expired at" in attempt(center, home, "lira", short)
    assert "has to begin with https" in attempt(center, home, "lira", good, url="http://127.0.0.1:1")
    assert "is no label" in attempt(center, home, "lira", good, args=["--labels", "x"])
    assert "Invalid value" in attempt(center, home, "lira", good, args=["--labels", "x=-"])
    bare = subprocess.run([binary(), "edge", "--data-dir", home / "bare", "--listen", "127.0.0.1:0"], capture_output=True, text=True, timeout=20)
    assert bare.returncode and "pass --center, --token and --name" in bare.stderr
    # None of this has used the token.
    listed = selvedge("join-token", "list", "--kubeconfig", center.kubeconfig)
    assert re.search(rf"{one} +lira +2 .*good", listed), listed
    selvedge("join-token", "delete", one, "--kubeconfig", center.kubeconfig)
    assert "knows no such join token" in attempt(center, home, "lira", good)
    assert "there is no join token" in selvedge("join-token", "delete", one, "--kubeconfig", center.kubeconfig, code=1)
    assert "--name" in selvedge("join-token", "create", "--kubeconfig", center.kubeconfig, code=2)


def test_clocks_that_disagree(center, home, edges):
    library, moved = home / "clock.so", home / "moved"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, HERE / "clock" / "clock.c", "-ldl"], check=True, timeout=60)
    good = token(center, "--name", "franc")
    for seconds in (-3 * 86400, -3600, 5 * 365 * 86400):
        moved.write_bytes(struct.pack("q", seconds))
        said = attempt(center, home, "franc", good, env={"LD_PRELOAD": str(library), "CLOCK_FILE": str(moved)})
        assert "the clocks disagree: it is 20" in said and "at the center" in said and "set the clock" in said, said
    assert re.search(r"franc +1 ", selvedge("join-token", "list", "--kubeconfig", center.kubeconfig)), "the token is still good"


def test_n_uses_are_n_however_many_come(center, home):
    made = token(center, "--labels", "env=prod,tier=1", "--allow-labels", "n", "--uses", "5")
    request, (one, secret, *_) = request_of(home, "many"), made.split(".")

    def join(n):
        return ask(center, {"token": f"{one}.{secret}", "workspace": "root", "name": f"many-{n}", "labels": {"n": str(n)}, "request": request})

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(join, range(24)))
    assert sorted(status for status, _ in answers) == [200] * 5 + [403] * 19
    assert all("used up" in reply["message"] for status, reply in answers if status == 403)
    targets = center.api("GET", f"{SYNCTARGETS}?labelSelector=env=prod,tier=1")["items"]
    assert len(targets) == 5 and all(t["metadata"]["labels"]["n"] == t["metadata"]["name"].split("-")[1] for t in targets)
    # A token for labels makes edges; it does not take over what has joined, nor what was meant for others.
    wide = token(center, "--labels", "env=prod", "--uses", "9").split(".")
    center.api("POST", SYNCTARGETS, {"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget", "metadata": {"name": "vault"}})
    body = {"token": ".".join(wide[:2]), "workspace": "root", "request": request}
    for name, labels, words in ((targets[0]["metadata"]["name"], {}, "has joined already"), ("vault", {}, "with other labels"),
                                ("new", {"env": "test"}, "gives env=prod"), ("../x", {}, "no name of an edge")):
        status, reply = ask(center, {**body, "name": name, "labels": labels})
        assert status in (400, 403) and words in reply["message"], reply
    assert re.search(rf"{wide[0]} +env=prod +9 ", selvedge("join-token", "list", "--kubeconfig", center.kubeconfig))


class Proxy:
    """An HTTP proxy that knows where center.test is."""

    def __init__(self, port, answer=b"200 Here you are"):
        self.to, self.answer, self.asked = port, answer, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near):
        head = b""
        while b"\r\n\r\n" not in head:
            if not (more := near.recv(4096)):
                return near.close()
            head += more
        self.asked.append(head.decode())
        near.sendall(b"HTTP/1.1 " + self.answer + b"\r\n\r\n")
        if not self.answer.startswith(b"200"):
            return near.close()
        far = socket.create_connection(("127.0.0.1", self.to), timeout=30)
        # What goes through it may be silent for longer.
        far.settimeout(None)

        def carry(source, sink):
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    sink.sendall(data)
            for end in (source, sink):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=carry, args=(near, far), daemon=True).start()
        carry(far, near)


def test_through_a_proxy(center, home, edges):
    url = f"https://center.test:{center.port}"
    proxy = Proxy(center.port)
    krona = Edge(center, home / "krona", "krona", env={"HTTPS_PROXY": f"http://me:p%40w@127.0.0.1:{proxy.port}", "NO_PROXY": "other.test"})
    krona.center_url = lambda: url
    edges.append(krona)
    krona.start().wait_connected()
    assert len(proxy.asked) >= 3 and all(a.startswith(f"CONNECT center.test:{center.port} HTTP/1.1\r\n") for a in proxy.asked)
    assert all("Proxy-Authorization: Basic bWU6cEB3\r\n" in a for a in proxy.asked)
    for answer, words in ((b"403 Not there", "refuses to connect to center.test.*403 Not there"), (b"407 Who", "wants a name and a password")):
        said = attempt(center, home, "krona", krona.join_token(), url=url, env={"HTTPS_PROXY": f"http://127.0.0.1:{Proxy(0, answer).port}"})
        assert re.search(words, said), said
    # Who is in NO_PROXY is looked for directly; here nobody knows the name.
    proxy.asked.clear()
    rand = Edge(center, home / "rand", "rand", env={"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}", "NO_PROXY": ".test"})
    rand.center_url = lambda: url
    edges.append(rand)
    rand.start(wait=False)
    wait_for("an attempt", lambda: "cannot reach center.test" in rand.log_path.read_text(), 20)
    assert rand.alive() and not proxy.asked


def test_a_center_that_is_away_is_waited_for(home, edges):
    # One that knows nobody without credentials has to hear of the token all the same.
    center = Center(home / "away", args=["--anonymous-auth=false"]).start()
    edges.append(center)
    rupee = Edge(center, home / "rupee", "rupee")
    edges.append(rupee)
    made = rupee.join_token()
    center.kill()
    rupee.start(wait=False, token=made)
    wait_for("an attempt", lambda: "cannot reach 127.0.0.1" in rupee.log_path.read_text(), 10)
    assert rupee.alive() and not rupee.kubeconfig.exists()
    center.start()
    rupee.wait_ready()
    rupee.wait_connected()
    # One that has joined starts without the center.
    center.kill()
    assert rupee.stop() == 0
    rupee.joined = True
    rupee.start()
    assert rupee.api("GET", "/api/v1/namespaces/default")["metadata"]["name"] == "default"


def test_certificates_are_renewed_and_the_link_stays(home, edges):
    center = Center(home / "short", args=["--edge-certificate-lifetime", "6s"]).start()
    edges.append(center)
    peso = Edge(center, home / "peso", "peso")
    edges.append(peso)
    peso.start().wait_connected()
    saved = lambda: json.loads((peso.data_dir / "edge.json").read_text())
    first, since = saved(), peso.condition("Ready")["lastTransitionTime"]
    old = certificate_of(peso)
    wait_for("two renewals", lambda: saved()["since"] >= first["since"] + 8, 25, every=0.1)
    assert saved()["key"] != first["key"] and saved()["certificate"] != first["certificate"]
    assert time.time() > first["ends"] - 0.5
    time.sleep(1.5)
    ready = peso.condition("Ready")
    assert (ready["status"], ready["lastTransitionTime"]) == ("True", since), "nobody has missed it"
    assert peso.api("GET", "/api/v1/namespaces/default"), "and it still works"
    status, reply = ask(center, {"request": request_of(home, "late")}, old)
    assert status == 401 and "needs a token" in reply["message"], "the first certificate has ended"
    assert ask(center, {"request": request_of(home, "late")}, certificate_of(peso))[0] == 200
    # One that was away for too long says what is the matter.
    assert peso.stop() == 0
    time.sleep(max(0.0, saved()["ends"] - time.time() + 1))
    peso.start()
    wait_for("the words", lambda: "certificate of this edge ended at" in peso.log_path.read_text(), 10)
    assert peso.stop() == 0
    peso.joined = False
    peso.start().wait_connected()


def gone_within(edge, seconds, do):
    edge.wait_connected()
    do()
    done = time.monotonic()
    wait_for("the end of the link", lambda: not edge.connected(), 10, every=0.02)
    took = time.monotonic() - done
    assert took < seconds, f"it took {took:.2f} s"


@pytest.mark.alone
def test_who_is_revoked_is_out(center, home, edges):
    yen = Edge(center, home / "yen", "yen")
    edges.append(yen)
    yen.start()
    cert, request = certificate_of(yen), request_of(home, "yen")
    assert ask(center, {"request": request}, cert)[0] == 200
    gone_within(yen, 1.0, lambda: selvedge("edge", "revoke", "yen", "--kubeconfig", center.kubeconfig))
    status, reply = ask(center, {"request": request}, cert)
    assert status == 403 and "not good any more" in reply["message"]
    time.sleep(1)
    assert not yen.connected()
    assert yen.api("GET", "/api/v1/namespaces/default"), "what is there goes on"
    # A new token is a new welcome, for the one who has it.
    assert yen.stop() == 0
    yen.joined = False
    yen.start().wait_connected()
    assert ask(center, {"request": request}, cert)[0] == 403
    # Whoever joins in the same name takes its place.
    now = certificate_of(yen)
    twin = Edge(center, home / "twin", "yen")
    edges.append(twin)
    twin.start().wait_connected()
    assert ask(center, {"request": request}, now)[0] == 403
    assert "there is no edge nobody" in selvedge("edge", "revoke", "nobody", "--kubeconfig", center.kubeconfig, code=1)


@pytest.mark.alone
def test_a_synctarget_made_anew_does_not_know_the_old_certificate(center, home, edges):
    won = Edge(center, home / "won", "won")
    edges.append(won)
    won.start().wait_connected()
    cert, request, target = certificate_of(won), request_of(home, "won"), won.target()
    center.api("DELETE", f"{SYNCTARGETS}/won")
    deleted = time.monotonic()
    wait_for("the edge to hear of it", lambda: "revoked or its SyncTarget deleted" in won.log_path.read_text(), 5)
    assert time.monotonic() - deleted < 1.0
    assert ask(center, {"request": request}, cert)[0] == 403
    for annotations in ({}, target["metadata"]["annotations"]):
        center.api("POST", SYNCTARGETS, {"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget",
                                         "metadata": {"name": "won", "annotations": annotations}})
        assert ask(center, {"request": request}, cert)[0] == 403
        time.sleep(1)
        assert not won.connected()
        center.api("DELETE", f"{SYNCTARGETS}/won")


def test_edges_belong_to_workspaces(center, home, edges):
    make_workspace(center, "root:plain", "inventory")
    made = token(center, "--name", "lost", "--workspace", "root:plain")
    bindings = "/clusters/root:plain/apis/apis.kcp.io/v1alpha1/apibindings"
    center.api("DELETE", f"{bindings}/workload.kcp.io")
    wait_for("the binding to go", lambda: center.request("GET", f"{bindings}/workload.kcp.io")[0] == 404)
    refused = selvedge("join-token", "create", "--kubeconfig", center.kubeconfig, "--name", "lost", "--workspace", "root:plain", code=1)
    assert "no edge can join in root:plain" in refused and "bind the APIExport workload.kcp.io" in refused
    lost = Edge(center, home / "lost", "lost")
    edges.append(lost)
    lost.start(token=made, wait=False)
    wait_for("an edge to be told that its workspace has none", lambda: lost.process.poll() is not None, 20)
    assert "bind the APIExport workload.kcp.io of root:espw" in lost.log_path.read_text()
    make_workspace(center, "root:org", "inventory")
    made = token(center, "--name", "zloty", "--workspace", "root:org")
    assert made.endswith(".root:org")
    zloty = Edge(center, home / "zloty", "zloty")
    edges.append(zloty)
    zloty.start(token=made)
    target = lambda: center.api("GET", f"/clusters/root:org{SYNCTARGETS}/zloty")
    wait_for("the link", lambda: any(c["type"] == "Ready" and c["status"] == "True" for c in target()["status"]["conditions"]))
    assert not [t for t in center.api("GET", SYNCTARGETS)["items"] if t["metadata"]["name"] == "zloty"]
    # Tokens are known where they were made, and only there.
    one, secret, *_ = token(center, "--name", "zloty", "--workspace", "root:org").split(".")
    assert ask(center, {"token": f"{one}.{secret}", "workspace": "root", "name": "zloty", "request": request_of(home, "z")})[0] == 403


def test_what_runs_it_elsewhere(center, home):
    tools = Tools(center, home / "home")
    made = token(center, "--name", "dong")
    manifest = selvedge("edge", "manifest", "--center", center.url, "--token", made, "--name", "dong", "--image", "example/selvedge:1")
    kinds = {o["kind"]: o for o in yaml.safe_load_all(manifest)}
    assert {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Secret", "Deployment"} <= kinds.keys()
    # A dry run makes no namespace for what is in it.
    tools.kubectl("create", "namespace", "selvedge-edge")
    applied = tools.kubectl("apply", "--dry-run=server", "-f", "-", stdin=manifest)
    assert applied.count("(server dry run)") == len(list(yaml.safe_load_all(manifest))), applied
    assert kinds["Deployment"]["spec"]["template"]["spec"]["containers"][0]["image"] == "example/selvedge:1"
    assert "this is no join token" in selvedge("edge", "manifest", "--center", center.url, "--token", "x", "--name", "dong", code=1)
    unit = selvedge("edge", "systemd-unit")
    assert unit == (ROOT / "deploy/systemd/selvedge-edge.service").read_text() and "ExecStart=" in unit


def test_the_page_says_what_works(center, home, edges):
    """Every command of docs/how-to/joining.md, in one shell, against a center and an edge of this test."""
    page = (ROOT / "docs/how-to/joining.md").read_text()
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S))
    assert "join-token create" in script and "edge revoke" in script
    port = free_port()
    for old, new in (("https://center.example:6443", center.url), ("127.0.0.1:6444", f"127.0.0.1:{port}"), ("/var/lib/selvedge-edge", str(home / "page"))):
        assert old in script, old
        script = script.replace(old, new)
    tools = Tools(center, home / "page-home")
    (home / "bin").mkdir()
    (home / "bin" / "selvedge").symlink_to(binary())
    env = {**tools.env, "PATH": f"{home / 'bin'}:{tools.env['PATH']}"}
    # `wait` would wait for the edge that the page leaves running.
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", "trap 'kill $(jobs -p) 2>/dev/null' EXIT\n" + script], env=env, cwd=home,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, script + done.stdout[-2000:] + done.stderr[-3000:]
    assert "is revoked" in done.stdout and "used up" in done.stdout
