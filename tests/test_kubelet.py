"""Logs, exec, attach, port-forward, cp and proxies with kubectl, against a kubelet that runs nothing."""
import contextlib
import http.server
import json
import socket
import subprocess
import threading
import time

import pytest

from center import Center, Tools, free_port, wait_for
from kubelet import Kubelet, self_signed


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    base = tmp_path_factory.mktemp("kubelet")
    policy = base / "policy.yaml"
    policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
    center = Center(base / "data", args=["--audit-log-path", str(base / "audit.log"), "--audit-policy-file", str(policy)]).start()
    center.audit = base / "audit.log"
    yield center
    assert center.stop() == 0
    assert "panicked" not in center.log_path.read_text(errors="replace")


@pytest.fixture(scope="module")
def node(server, tmp_path_factory):
    kubelet = Kubelet(tmp_path_factory.mktemp("n1"), str(server.ca))
    kubelet.register(server.api)
    for name, containers, where in (("web", ["app"], "n1"), ("two", ["a", "b"], "n1"), ("nowhere", ["app"], None),
                                    ("lost", ["app"], "gone")):
        spec = {"containers": [{"name": c, "image": "x"} for c in containers]}
        if where:
            spec["nodeName"] = where
        pod = server.api("POST", "/api/v1/namespaces/default/pods",
                         {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
        server.api("PUT", f"/api/v1/namespaces/default/pods/{name}/status", {**pod, "status": {"phase": "Running"}})
    yield kubelet
    kubelet.close()


@pytest.fixture(scope="module")
def tools(server, tmp_path_factory):
    return Tools(server, tmp_path_factory.mktemp("home"))


@contextlib.contextmanager
def started(tools, *args):
    process = subprocess.Popen([str(a) for a in args], env=tools.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               stdin=subprocess.PIPE, text=True, cwd=tools.home)
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)


def test_logs(tools, node):
    assert tools.kubectl("logs", "web") == "one\ntwo\nthree\n"
    path, query, who, headers = node.asked[-1]
    assert (path, query, who) == ("/containerLogs/default/web/app", {}, "kube-apiserver-kubelet-client")
    assert "Authorization" not in headers
    assert tools.kubectl("logs", "web", "--tail=1", "--timestamps").endswith("Z three\n")
    assert tools.kubectl("logs", "web", "--limit-bytes=5") == "one\nt"
    tools.kubectl("logs", "web", "--since=1h")
    assert node.asked[-1][1] == {"sinceSeconds": ["3600"]}
    tools.kubectl("logs", "web", "--since-time=2026-01-02T03:04:05Z")
    assert node.asked[-1][1] == {"sinceTime": ["2026-01-02T03:04:05Z"]}
    assert "previous terminated container not found" in tools.kubectl("logs", "web", "-p", code=1)


def test_following_a_log(tools, node):
    with started(tools, "kubectl", "logs", "-f", "--tail=1", "web") as process:
        assert process.stdout.readline() == "three\n"
        node.say("four")
        assert process.stdout.readline() == "four\n"
        node.say("EOF")
        assert process.wait(10) == 0
    with started(tools, "kubectl", "logs", "-f", "--tail=1", "web") as process:
        process.stdout.readline()
        node.say("CRASH")
        assert process.wait(10) == 1, "a log that breaks off is no whole log"
    node.lines[:] = ["one", "two", "three"]


@pytest.mark.parametrize("pod, args, message", [
    ("two", (), "a container name must be specified for pod two, choose one of: [a b]"),
    ("two", ("-c", "x"), "container x is not valid for pod two"),
    ("lost", (), 'nodes "gone" not found'),
    ("absent", (), 'pods "absent" not found'),
])
def test_refusals_have_upstreams_words(tools, node, server, pod, args, message):
    query = f"?container={args[1]}" if args else ""
    for sub in ("log", "exec"):
        code, _, body = server.request("GET", f"/api/v1/namespaces/default/pods/{pod}/{sub}{query}")
        assert message in json.loads(body)["message"] and code in (400, 404), body


def test_more_refusals(server, node):
    def ask(method, path):
        code, _, body = server.request(method, f"/api/v1/namespaces/default/pods/{path}")
        return code, json.loads(body)["message"] if body else ""

    assert ask("GET", "nowhere/log") == (204, "")
    assert ask("POST", "nowhere/exec?command=x") == (400, "pod nowhere does not have a host assigned")
    assert ask("POST", "web/exec?command=x") == (400, "Upgrade request required")
    assert ask("POST", "web/exec?dryRun=All&command=x") == (400, "dryRun is not supported")
    assert ask("GET", "web/log?tailLines=-1")[0] == 422
    assert ask("PUT", "web/exec")[0] == 405
    assert ask("GET", "web/log/more")[0] == 404
    port = free_port()
    made = server.api("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "off"}})
    server.api("PUT", "/api/v1/nodes/off/status", {**made, "status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}})
    server.api("POST", "/api/v1/namespaces/default/pods", {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "off"},
        "spec": {"nodeName": "off", "containers": [{"name": "a", "image": "x"}]}})
    refused = f"dial tcp 127.0.0.1:{port}: connect: connection refused"
    assert ask("GET", "off/log") == (500, f'Get "https://127.0.0.1:{port}/containerLogs/default/off/a": {refused}')
    code, _, body = server.request("POST", "/api/v1/namespaces/default/pods/off/exec?command=x",
                                   headers={"Connection": "Upgrade", "Upgrade": "SPDY/3.1"})
    assert (code, json.loads(body)["message"]) == (500, f"error dialing backend: {refused}")


def test_exec(tools, node):
    assert tools.kubectl("exec", "web", "--", "echo", "a b", "ä&=") == "echo a b ä&=\n"
    assert node.asked[-1][1] == {"command": ["echo", "a b", "ä&="], "output": ["1"], "error": ["1"]}
    done = tools.run(["kubectl", "exec", "web", "--", "exit", "7"], code=7)
    assert "going" in done.stderr
    text = "line\n" * 20_000
    assert tools.kubectl("exec", "-i", "web", "--", "cat", stdin=text) == text
    assert "attached" not in tools.kubectl("attach", "two", "-c", "b", code=None)
    assert node.asked[-1][0] == "/attach/default/two/b"


def test_cp(tools, node, tmp_path):
    (tmp_path / "in").write_text("content" * 10_000)
    tools.kubectl("cp", tmp_path / "in", f"web:{tmp_path}/there")
    assert (tmp_path / "there").read_text() == "content" * 10_000
    tools.kubectl("cp", f"web:{tmp_path}/there", tmp_path / "back")
    assert (tmp_path / "back").read_text() == "content" * 10_000


def test_port_forward(tools, node):
    with started(tools, "kubectl", "port-forward", "pod/web", ":8080") as process:
        port = int(process.stdout.readline().split("127.0.0.1:")[1].split()[0])
        for message in (b"hello", b"again"):
            with socket.create_connection(("127.0.0.1", port), 10) as conn:
                conn.sendall(message)
                assert conn.recv(100) == b"echo " + message


def raw(server, path, headers, method="GET"):
    conn = server.socket(10)
    head = "".join(f"{k}: {v}\r\n" for k, v in {"Host": "x", **headers}.items())
    conn.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())
    return conn


def test_bytes_of_any_protocol_pass_both_ways(server, node):
    """As SPDY does: the server knows nothing of what is spoken."""
    path = "/api/v1/namespaces/default/pods/web/exec?command=x&stdin=true"
    with raw(server, path, {"Connection": "keep-alive, Upgrade", "Upgrade": "echo"}, "POST") as conn:
        reply = conn.recv(4096)
        assert reply.startswith(b"HTTP/1.1 101 ") and b"upgrade: echo" in reply.lower(), reply
        sent = bytes(range(256)) * 4000
        threading.Thread(target=conn.sendall, args=(sent,), daemon=True).start()
        got = b""
        while len(got) < len(sent):
            got += conn.recv(65536)
        assert got == sent
    with raw(server, path, {"Connection": "Upgrade", "Upgrade": "unknown"}, "POST") as conn:
        assert b"HTTP/1.1 403" in conn.recv(4096), "what the kubelet refuses is refused"


def test_who_may(server, node, tools):
    """GET opens a WebSocket, but to look is not to do: exec needs create."""
    for name, verbs in (("looker", ["get"]), ("doer", ["get", "create"])):
        server.api("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", {
            "kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": verbs}]})
        server.api("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", {
            "kind": "RoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]})
    asked = len(node.asked)
    refused = tools.kubectl("--as=looker", "exec", "web", "--", "x", code=1)
    assert 'cannot create resource "pods/exec"' in refused and len(node.asked) == asked
    assert tools.kubectl("--as=doer", "exec", "web", "--", "x") == "x\n"
    assert "impersonate" not in " ".join(node.asked[-1][3]).lower()
    assert "pods/log" in tools.kubectl("--as=doer", "logs", "web", code=1)


def test_admission_sees_exec(server, node, tools):
    server.api("POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", {
        "kind": "ValidatingAdmissionPolicy", "apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "no-exec"},
        "spec": {"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"],
                                                         "resources": ["pods/exec"]}]},
                 "validations": [{"expression": "!('forbidden' in object.command)", "message": "not this"}]}})
    server.api("POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", {
        "kind": "ValidatingAdmissionPolicyBinding", "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": {"name": "no-exec"}, "spec": {"policyName": "no-exec", "validationActions": ["Deny"]}})
    wait_for("the policy", lambda: "not this" in tools.kubectl("exec", "web", "--", "forbidden", code=None) + tools.run(
        ["kubectl", "exec", "web", "--", "forbidden"], code=None).stderr)
    assert tools.kubectl("exec", "web", "--", "allowed") == "allowed\n"


def test_long_requests_take_no_seats_and_are_written_down(server, node, tools):
    """Many follow a log while others read and write; the audit log has the beginning and the end."""
    with contextlib.ExitStack() as stack:
        followers = []
        for _ in range(30):
            conn = stack.enter_context(contextlib.closing(server.connection(10)))
            conn.request("GET", "/api/v1/namespaces/default/pods/web/log?follow=true")
            followers.append(conn.getresponse())
        assert all(reply.readline() == b"one\n" for reply in followers)
        began = time.monotonic()
        tools.kubectl("get", "pods")
        tools.kubectl("create", "configmap", "beside")
        assert time.monotonic() - began < 10
        events = lambda: [json.loads(line) for line in server.audit.read_text().splitlines()]
        logs = lambda stage: [e for e in events() if "/web/log?follow" in e["requestURI"] and e["stage"] == stage]
        started = wait_for("events", lambda: len(logs("ResponseStarted")) >= 30 and logs("ResponseStarted"))
        assert started[-1]["objectRef"]["subresource"] == "log"
        ended = len(logs("ResponseComplete"))
    wait_for("the end of the logs", lambda: len(logs("ResponseComplete")) >= ended + 30)


def test_certificates_of_kubelets(server, tmp_path):
    """One that our authority signed must be for the address that is dialled; one that a kubelet signed itself is taken."""
    pki = server.data_dir / "pki"
    good = self_signed(tmp_path, "good", ca=(pki / "ca.crt", pki / "ca.key"))
    bad = self_signed(tmp_path, "bad", addresses=("10.9.9.9",), ca=(pki / "ca.crt", pki / "ca.key"))
    for name, certificate, expected in (("good", good, 200), ("bad", bad, 500)):
        kubelet = Kubelet(tmp_path, str(server.ca), certificate=certificate)
        kubelet.register(server.api, name)
        server.api("POST", "/api/v1/namespaces/default/pods", {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": name, "containers": [{"name": "a", "image": "x"}]}})
        path = f"/api/v1/namespaces/default/pods/{name}/log"
        code, _, body = server.request("GET", path)
        assert code == expected, body
        assert code == 200 or b"x509: certificate is valid for 10.9.9.9, not 127.0.0.1" in body
        assert server.request("GET", path + "?insecureSkipTLSVerifyBackend=true")[0] == 200
        kubelet.close()


def test_an_authority_for_kubelets(tmp_path):
    """Where one is named, a kubelet that signed its own certificate is nobody."""
    (tmp_path / "ca").mkdir()
    authority = self_signed(tmp_path / "ca", "authority")
    center = Center(tmp_path / "data", args=["--kubelet-certificate-authority", str(authority[0])]).start()
    try:
        kubelet = Kubelet(tmp_path, str(center.ca))
        kubelet.register(center.api)
        center.api("POST", "/api/v1/namespaces/default/pods", {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
            "spec": {"nodeName": "n1", "containers": [{"name": "a", "image": "x"}]}})
        code, _, body = center.request("GET", "/api/v1/namespaces/default/pods/web/log")
        assert code == 500 and b"x509: certificate signed by unknown authority" in body, body
        kubelet.close()
    finally:
        center.kill()
    center = Center(tmp_path / "other", args=["--kubelet-certificate-authority", str(tmp_path / "none.crt")])
    with pytest.raises(SystemExit, match="none.crt"):
        center.start()


def own_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        with contextlib.suppress(OSError):
            s.connect(("10.255.255.255", 9))
            address = s.getsockname()[0]
            if not address.startswith("127."):
                return address
    return None


def test_proxies(server, node, tmp_path):
    ask = lambda method, path, body=None, **kw: server.request(method, path, body, **kw)
    code, _, body = ask("GET", "/api/v1/nodes/n1/proxy/pods")
    assert code == 400 and b"address not allowed" in body, "nobody is led to this machine itself"
    assert b'nodes \\"none\\" not found' in ask("GET", "/api/v1/nodes/none/proxy/")[2]
    assert b"invalid pod request" in ask("GET", "/api/v1/namespaces/default/pods/ftp:web:1/proxy/")[2]
    assert b'services \\"none\\" not found' in ask("GET", "/api/v1/namespaces/default/services/none/proxy/")[2]
    assert b'endpoints available for service \\"kubernetes\\"' in ask("GET", "/api/v1/namespaces/default/services/kubernetes/proxy/")[2]
    address = own_address()
    if not address:
        pytest.skip("this machine has no address besides 127.0.0.1")
    kubelet = Kubelet(tmp_path, str(server.ca), address=address)
    kubelet.register(server.api, "far")
    code, _, body = ask("POST", "/api/v1/nodes/far/proxy/some/path/?x=1&y=%20", "text", content_type="text/plain",
                        headers={"Impersonate-Group": "system:masters", "Impersonate-User": "me"})
    assert (code, json.loads(body)) == (200, {"path": "/some/path/?x=1&y=%20", "method": "POST", "body": "text"})
    seen = kubelet.asked[-1][3]
    assert not any(name.lower().startswith(("impersonate", "authorization")) for name in seen)
    assert seen["x-forwarded-uri"] == "/api/v1/nodes/far/proxy/some/path/"
    assert ask("GET", "/api/v1/nodes/far/proxy/missing")[0] == 404
    code, headers, _ = ask("GET", "/api/v1/nodes/far/proxy?a=b")
    assert (code, headers["location"]) == (301, "/api/v1/nodes/far/proxy/?a=b")
    kubelet.close()
    code, _, body = ask("GET", "/api/v1/nodes/far/proxy/pods")
    assert code == 503 and b"error trying to reach service" in body


class Page(http.server.BaseHTTPRequestHandler):
    """A pod's page: says what it was asked, and leads elsewhere."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        body = f"{self.command} {self.path} {self.rfile.read(int(self.headers.get('Content-Length') or 0)).decode()}".encode()
        self.send_response(302 if self.path == "/moved" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Access-Control-Allow-Origin", "*")
        if self.path == "/moved":
            self.send_header("Location", "/there")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_GET


def test_pods_and_services_behind_a_proxy(server, node):
    address = own_address()
    if not address:
        pytest.skip("this machine has no address besides 127.0.0.1")
    page = http.server.ThreadingHTTPServer((address, 0), Page)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    port = page.server_address[1]
    base = "/api/v1/namespaces/default"
    made = server.api("POST", f"{base}/pods", {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "page"},
        "spec": {"nodeName": "n1", "containers": [{"name": "a", "image": "x", "ports": [{"containerPort": port}]}]}})
    server.api("PUT", f"{base}/pods/page/status", {**made, "status": {"podIP": address, "podIPs": [{"ip": address}]}})
    server.api("POST", f"{base}/services", {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop"}, "spec": {"ports": [{"name": "http", "port": 80}]}})
    server.api("POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "ports": [{"name": "http", "port": port}],
        "metadata": {"name": "shop-1", "labels": {"kubernetes.io/service-name": "shop"}},
        "endpoints": [{"addresses": ["10.9.9.9"], "targetRef": {"kind": "Pod", "name": "page"}},
                      {"addresses": [address], "targetRef": {"kind": "Pod", "name": "page"}}]})
    for way in (f"{base}/pods/page/proxy", f"{base}/pods/http:page:{port}/proxy", f"{base}/services/shop:http/proxy",
                f"{base}/services/shop:80/proxy"):
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            code, headers, body = server.request(method, f"{way}/a%20b?c=d", None if method == "GET" else "text", content_type="text/plain")
            assert (code, body.decode()) == (200, f"{method} /a%20b?c=d " + ("" if method == "GET" else "text")), way
            assert "access-control-allow-origin" not in headers
        code, headers, _ = server.request("GET", f"{way}/moved")
        assert (code, headers["location"]) == (302, f"{way}/there")
        assert server.request("HEAD", f"{way}/x")[0] == 200
    assert server.request("GET", f"{base}/services/shop:https/proxy/")[0] == 503
    page.shutdown()
    page.server_close()


def test_tenants_lead_the_server_nowhere(server, node):
    """In a workspace, nodes and pods are what a tenant writes."""
    server.api("POST", "/apis/tenancy.kcp.io/v1alpha1/workspaces",
               {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "tenant"}})
    wait_for("the workspace", lambda: server.request("GET", "/clusters/root:tenant/api/v1/nodes")[0] == 200)
    at = lambda method, path, body: server.api(method, "/clusters/root:tenant" + path, body)
    node.register(at, "mine")
    wait_for("the account", lambda: server.request(
        "GET", "/clusters/root:tenant/api/v1/namespaces/default/serviceaccounts/default")[0] == 200)
    at("POST", "/api/v1/namespaces/default/pods", {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"nodeName": "mine", "containers": [{"name": "a", "image": "x"}]}})
    asked = len(node.asked)
    for path in ("/api/v1/namespaces/default/pods/web/log", "/api/v1/nodes/mine/proxy/x"):
        code, _, body = server.request("GET", "/clusters/root:tenant" + path)
        assert code == 501 and b"mailbox" in body, body
    assert len(node.asked) == asked


def test_the_end_of_the_server_ends_streams(tmp_path):
    center = Center(tmp_path / "data").start()
    kubelet = Kubelet(tmp_path, str(center.ca))
    kubelet.register(center.api)
    center.api("POST", "/api/v1/namespaces/default/pods", {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"nodeName": "n1", "containers": [{"name": "a", "image": "x"}]}})
    tools = Tools(center, tmp_path / "home")
    with started(tools, "kubectl", "logs", "-f", "web") as log, \
            started(tools, "kubectl", "exec", "web", "--", "hold") as exec_:
        assert log.stdout.readline() == "one\n" and exec_.stdout.readline() == "holding\n"
        began = time.monotonic()
        assert center.stop() == 0
        assert time.monotonic() - began < 5
        assert log.wait(5) == 1 and exec_.wait(5) == 1
    kubelet.close()
