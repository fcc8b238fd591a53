"""Into the pods of an edge's own node, with kubectl: logs, exec, attach, cp, port-forward and top, on the edge and from the center through the link."""
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import urllib.request

import fcntl
import pytest

from center import Center, Tools, binary, wait_for
from edge import Edge
from test_kubelet import started
from test_mailbox import mailbox
from test_tunnel import give

PODS = "/api/v1/namespaces/default/pods"
METRICS = "/apis/metrics.k8s.io/v1beta1"
# kubectl's older way.
SPDY = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}


def make(edge, name, script=None, labels=None, **container):
    """A pod on florin's node with one container: a script of this machine, or a sample."""
    spec = {"name": "app", "image": "selvedge.dev/sample/web", **container}
    if script:
        spec["command"] = ["sh", "-c", script]
    restart = "Always" if name == "phoenix" else "Never"
    edge.api("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}}, "spec": {
        "nodeName": edge.name, "restartPolicy": restart, "terminationGracePeriodSeconds": 1, "containers": [spec]}})


def status(edge, name):
    return (edge.api("GET", f"{PODS}/{name}").get("status", {}).get("containerStatuses") or [{}])[0]


def running(edge, name):
    wait_for(f"{name} to run", lambda: "running" in status(edge, name).get("state", {}), 60, every=0.05)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("node-api")


@pytest.fixture(scope="module")
def edge(base):
    center = Center(base / "center").start()
    florin = Edge(center, base / "florin", "florin", args=["--runtime", "process"]).start()
    try:
        ready = lambda: any(c["type"] == "Ready" and c["status"] == "True"
                            for c in florin.api("GET", "/api/v1/nodes/florin")["status"]["conditions"])
        wait_for("the node", ready, 60, every=0.05)
        # Two pipes: which of them is read first is nobody's promise.
        make(florin, "talker", f"echo one; sleep 0.2; echo two >&2; sleep 0.2; echo three; while [ ! -e {base}/go ]; do sleep 0.05; done; echo four")
        make(florin, "phoenix", f"[ -e {base}/flag ] || {{ touch {base}/flag; echo first; exit 1; }}; echo second; exec sleep 1000")
        make(florin, "web", labels={"app": "web"})
        make(florin, "listener", "while read x; do echo got $x; done", stdin=True)
        make(florin, "foreign", image="example.com/nothing:1")
        for name in ("talker", "web", "listener"):
            running(florin, name)
        florin.wait_connected()
        wait_for("three lines", lambda: florin.request("GET", f"{PODS}/talker/log")[2].count(b"\n") == 3)
        yield florin
        for server in (center, florin):
            assert "panicked" not in server.log_path.read_text(errors="replace")
    finally:
        florin.kill()
        center.kill()
        subprocess.run([binary(), "keeper", str(base / "florin/keeper"), "--stop"], capture_output=True, timeout=30)


class Kubectl:
    """kubectl on the edge, or at the center pointed at the edge's mailbox."""

    def __init__(self, server, home, *args):
        self.tools, self.args = Tools(server, home), args

    def __call__(self, *args, env=None, **kw):
        if env:
            kw["env"] = {**self.tools.env, **env}
        return self.tools.kubectl(*self.args, *args, **kw)

    def started(self, *args):
        return started(self.tools, "kubectl", *self.args, *args)

    def terminal(self, *args, typed, env=None, size=(33, 101)):
        """What a terminal of this size shows, and how kubectl ends. What is typed is typed when something has been shown."""
        pid, fd = pty.fork()
        if pid == 0:
            os.execvpe("kubectl", ["kubectl", *self.args, *args], {**self.tools.env, **(env or {})})
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        shown, end = b"", time.monotonic() + 60
        while time.monotonic() < end:
            if not select.select([fd], [], [], 1)[0]:
                continue
            try:
                piece = os.read(fd, 4096)
            except OSError:
                piece = b""
            if not piece:
                break
            shown += piece
            if typed and b"ready" in shown:
                os.write(fd, typed)
                typed = b""
        os.close(fd)
        return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture(scope="module")
def here(edge, base):
    return Kubectl(edge, base / "home")


@pytest.fixture(scope="module")
def there(edge, base):
    """From the center, through the link."""
    return Kubectl(edge.center, base / "home-center", "--server", f"{edge.center.url}/clusters/root:florin-mb")


@pytest.fixture(params=["here", "there"])
def kubectl(request):
    return request.getfixturevalue(request.param)


# ---- logs ----

def test_logs(kubectl):
    assert kubectl("logs", "talker") == "one\ntwo\nthree\n"
    assert kubectl("logs", "talker", "--tail=2") == "two\nthree\n"
    assert kubectl("logs", "talker", "--tail=0") == ""
    assert kubectl("logs", "talker", "--limit-bytes=5") == "one\nt"
    assert kubectl("logs", "talker", "--since=1h") == "one\ntwo\nthree\n"
    assert kubectl("logs", "talker", "--since-time=2999-01-02T03:04:05Z") == ""
    stamped = kubectl("logs", "talker", "--timestamps").splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (one|two|three)$", line) for line in stamped), stamped


def test_logs_that_are_not_there(here):
    assert 'previous terminated container "app" in pod "talker" not found' in here("logs", "-p", "talker", code=1)
    waits = 'container "app" in pod "foreign" is waiting to start: '
    refused = wait_for("the refusal of its image", lambda: re.search(".*image.*", here("logs", "foreign", code=1)), 30)[0]
    assert waits + "image can't be pulled" in refused or waits + "trying and failing to pull image" in refused


def test_logs_of_the_run_before(edge, here):
    wait_for("the second run", lambda: status(edge, "phoenix").get("restartCount") == 1 and "running" in status(edge, "phoenix")["state"], 60)
    wait_for("its first words", lambda: here("logs", "phoenix") == "second\n")
    assert here("logs", "--previous", "phoenix") == "first\n"


def test_following_ends_with_the_container(edge, here, there, base):
    with here.started("logs", "-f", "talker") as near, there.started("logs", "-f", "--tail=1", "talker") as far:
        assert [near.stdout.readline() for _ in range(3)] == ["one\n", "two\n", "three\n"]
        assert far.stdout.readline() == "three\n"
        (base / "go").touch()
        for process in (near, far):
            assert process.stdout.readline() == "four\n"
            assert process.stdout.read() == "" and process.wait(20) == 0


# ---- exec, attach, cp ----

@pytest.mark.parametrize("env", [None, SPDY], ids=["websocket", "spdy"])
def test_exec(kubectl, env):
    assert kubectl("exec", "web", "--", "echo", "hello", env=env) == "hello\n"
    failed = kubectl("exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 7", code=7, env=env)
    assert "out\n" in failed and "err\n" in failed and "exit code 7" in failed
    text = "line\n" * 50_000
    assert kubectl("exec", "-i", "web", "--", "cat", stdin=text, env=env) == text
    # The end of what is typed is heard: otherwise wc would wait for ever.
    assert kubectl("exec", "-i", "web", "--", "wc", "-c", stdin="x" * 1000, env=env).strip() == "1000"


def test_what_cannot_be_executed(edge, here):
    done = here.tools.run(["kubectl", "exec", "web", "--", "no-such-program"], code=None)
    assert done.returncode != 0 and "no-such-program" in done.stderr, done.stderr
    assert 'container not found ("app")' in here("exec", "foreign", "--", "true", code=1)


@pytest.mark.parametrize("env", [None, SPDY], ids=["websocket", "spdy"])
def test_a_terminal(kubectl, env):
    script = "echo ready; read x; echo got $x; stty size; test -t 0 && test -t 1; exit 3"
    shown, code = kubectl.terminal("exec", "-it", "web", "--", "sh", "-c", script, typed=b"abc\r", env=env)
    assert "got abc" in shown and code == 3, (shown, code)
    assert "33 101" in shown, shown


def test_attach(here):
    with here.started("attach", "-i", "listener") as process:
        process.stdin.write("hello\n")
        process.stdin.flush()
        heard = process.stdout.readline()
        assert heard == "got hello\n", heard or process.stderr.read()


def test_cp(kubectl, tmp_path):
    (tmp_path / "in").write_text("content" * 100_000)
    kubectl("cp", tmp_path / "in", f"web:{tmp_path}/inside")
    assert (tmp_path / "inside").read_text() == "content" * 100_000
    kubectl("cp", f"web:{tmp_path}/inside", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "content" * 100_000


# ---- port-forward ----

@pytest.mark.parametrize("env", [None, SPDY], ids=["websocket", "spdy"])
def test_port_forward(kubectl, env):
    kubectl.tools.env.update(env or {})
    try:
        with kubectl.started("port-forward", "pod/web", ":8080") as process:
            port = int(process.stdout.readline().split("127.0.0.1:")[1].split()[0])
            for _ in range(3):
                assert urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=20).status == 200
        with kubectl.started("port-forward", "pod/web", ":81") as process:
            port = int(process.stdout.readline().split("127.0.0.1:")[1].split()[0])
            with pytest.raises(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20)
            refused = process.stderr.readline()
            assert "error forwarding port 81 to pod" in refused and "connection refused" in refused, refused
    finally:
        for name in env or {}:
            kubectl.tools.env.pop(name)


# ---- top ----

def test_top(kubectl):
    shown = kubectl("top", "pods", "--no-headers")
    assert re.search(r"^web +\d+m +\d+Mi", shown, re.M) and "phoenix" in shown and "foreign" not in shown, shown
    assert [line.split()[0] for line in kubectl("top", "pods", "-l", "app=web", "--no-headers").splitlines()] == ["web"]
    assert re.search(r"^web +app +\d+m", kubectl("top", "pods", "web", "--containers", "--no-headers"), re.M)
    assert re.match(r"florin +\d+m +\d+% +\d+Mi +\d+%", kubectl("top", "nodes", "--no-headers"))


def test_metrics_are_resources(edge, here):
    assert {r["name"]: r["kind"] for r in edge.api("GET", METRICS)["resources"]} == {"nodes": "NodeMetrics", "pods": "PodMetrics"}
    assert "metrics.k8s.io/v1beta1" in here("api-versions")
    one = edge.api("GET", f"{METRICS}/namespaces/default/pods/web")
    assert one["kind"] == "PodMetrics" and one["containers"][0]["usage"]["cpu"].endswith("n")
    assert edge.request("GET", f"{METRICS}/namespaces/default/pods/none")[0] == 404
    assert edge.request("POST", f"{METRICS}/nodes")[0] == 405
    # As where metrics-server is installed: whoever may view a namespace may see what its pods use.
    here("create", "rolebinding", "viewers", "--clusterrole=view", "--user=vera")
    wait_for("the role", lambda: "web" in here("top", "pods", "--as=vera", code=None))
    assert "forbidden" in here("top", "pods", "--as=nobody", code=1).lower()
    assert "forbidden" in here("top", "nodes", "--as=vera", code=1).lower()


def test_top_in_the_mailbox_below_espw(edge, base):
    box = Kubectl(edge.center, base / "home-box", "--server", edge.center.url + mailbox(edge.center, "florin"))
    assert re.search(r"^default +web +\d+m", box("top", "pods", "-A", "--no-headers"), re.M)
    path = mailbox(edge.center, "florin") + PODS
    assert edge.center.request("GET", f"{path}/web/log")[0] == 200
    give(edge.center, "looker", "looker", ["pods"], ["list"])
    code, _, body = edge.center.request("GET", f"{mailbox(edge.center, 'florin')}{METRICS}/pods", headers={"Impersonate-User": "looker"})
    assert code == 403, body


# ---- the rest of a kubelet's port ----

def test_what_a_kubelet_answers(edge):
    ask = lambda path: edge.request("GET", f"/api/v1/nodes/florin/proxy/{path}")[2].decode()
    assert ask("healthz") == "ok"
    assert "web" in {p["metadata"]["name"] for p in json.loads(ask("pods"))["items"]}
    summary = json.loads(ask("stats/summary"))
    web = next(p for p in summary["pods"] if p["podRef"]["name"] == "web")
    assert web["containers"][0]["memory"]["workingSetBytes"] > 0 and summary["node"]["nodeName"] == "florin"
    assert 'pod_memory_working_set_bytes{namespace="default",pod="web"}' in ask("metrics/resource")


def test_logs_outlive_their_pod(edge, base):
    make(edge, "brief", "echo last words")
    wait_for("its end", lambda: "terminated" in status(edge, "brief").get("state", {}), 60, every=0.05)
    uid = edge.api("GET", f"{PODS}/brief")["metadata"]["uid"]
    edge.api("DELETE", f"{PODS}/brief")
    wait_for("it to be gone", lambda: edge.request("GET", f"{PODS}/brief")[0] == 404, 30)
    ask = lambda path: edge.request("GET", f"/api/v1/nodes/florin/proxy/logs/{path}")[2].decode()
    assert f"default_brief_{uid}/" in ask("")
    assert ask(f"default_brief_{uid}/app/0.log").endswith(" stdout F last words\n")
    assert edge.request("GET", "/api/v1/nodes/florin/proxy/logs/..%2f..%2fadmin.kubeconfig")[0] in (400, 404)
