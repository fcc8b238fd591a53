"""Through the link to an edge's own API: kubectl at the center, `/clusters/root:florin-mb/…`, with rights on both sides."""
import contextlib
import http.client
import json
import re
import socket
import ssl
import time

import pytest

from center import ROOT, Tools, wait_for
from edge import SYNCTARGETS, Edge, annotate, fleet
from kubelet import Kubelet
from test_identity import Client
from test_kubelet import raw, started

MAILBOX = "/clusters/root:florin-mb"
PODS = "/api/v1/namespaces/default/pods"
REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def pod(name, **spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "app", "image": "x"}], **spec}}


def give(server, user, name, resources, verbs, groups=("",), **rule):
    """A ClusterRole and its binding."""
    server.api("POST", f"{RBAC}/clusterroles", {
        "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name},
        "rules": [{"apiGroups": list(groups), "resources": resources, "verbs": verbs, **rule}]})
    server.api("POST", f"{RBAC}/clusterrolebindings", {
        "kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]})


def member(edge):
    """Requests to the center as the edge itself makes them."""
    saved = json.loads((edge.data_dir / "edge.json").read_text())
    files = edge.data_dir.with_name("member.crt"), edge.data_dir.with_name("member.key")
    for file, text in zip(files, (saved["certificate"], saved["key"])):
        file.write_text(text)
    return Client(edge.center, cert=files)


@pytest.fixture(scope="module")
def edge(tmp_path_factory):
    """A center, and florin with a node and a pod of its own."""
    base = tmp_path_factory.mktemp("tunnel")
    with fleet("florin", workspace=None, directory=base, wire=True) as (center, florin):
        florin.node = Kubelet(base, str(florin.ca))
        florin.node.register(florin.api)
        for name, container in (("web", "app"), ("quiet", "silent")):
            made = florin.api("POST", PODS, pod(name, nodeName="n1", containers=[{"name": container, "image": "x"}]))
            florin.api("PUT", f"{PODS}/{name}/status", {**made, "status": {"phase": "Running"}})
        yield florin
        florin.node.close()
        for server in (center, florin):
            assert "panicked" not in server.log_path.read_text(errors="replace")


@pytest.fixture(scope="module")
def kubectl(edge, tmp_path_factory):
    """kubectl with the center's kubeconfig, pointed at the mailbox."""
    tools = Tools(edge.center, tmp_path_factory.mktemp("home"))
    server = ["--server", edge.center.url + MAILBOX]

    def run(*args, **kw):
        return tools.kubectl(*server, *args, **kw)

    run.started = lambda *args: started(tools, "kubectl", *server, *args)
    return run


def test_kubectl_reads_the_edge(edge, kubectl):
    assert "pod/web" in kubectl("get", "pods", "-o", "name")
    assert "Running" in kubectl("get", "pods") and "n1" in kubectl("get", "nodes")
    assert kubectl("api-resources", "--namespaced=false").count("\n") > 10
    assert "FIELDS:" in kubectl("explain", "pod.spec")
    assert "Name:" in kubectl("describe", "pod", "web")
    kubectl("create", "configmap", "live", "--from-literal=a=b")
    assert edge.api("GET", "/api/v1/namespaces/default/configmaps/live")["data"] == {"a": "b"}
    assert edge.center.request("GET", "/api/v1/namespaces/default/configmaps/live")[0] == 404
    kubectl("delete", "configmap", "live")


def test_a_watch_shows_what_happens_at_the_edge(edge, kubectl):
    with kubectl.started("get", "pods", "-w", "-o", "name") as process:
        assert {process.stdout.readline(), process.stdout.readline()} == {"pod/web\n", "pod/quiet\n"}
        edge.api("POST", PODS, pod("later"))
        assert process.stdout.readline() == "pod/later\n"
        edge.api("DELETE", f"{PODS}/later")


def test_into_pods(edge, kubectl, tmp_path):
    assert kubectl("logs", "web", "--tail=1") == "three\n"
    with kubectl.started("logs", "-f", "--tail=1", "web") as process:
        assert process.stdout.readline() == "three\n"
        edge.node.say("four")
        assert process.stdout.readline() == "four\n"
    edge.node.lines[:] = ["one", "two", "three"]
    text = "line\n" * 20_000
    assert kubectl("exec", "-i", "web", "--", "cat", stdin=text) == text
    kubectl("exec", "web", "--", "exit", "7", code=7)
    (tmp_path / "in").write_text("content" * 100_000)
    kubectl("cp", tmp_path / "in", f"web:{tmp_path}/there")
    assert (tmp_path / "there").read_text() == "content" * 100_000
    with kubectl.started("port-forward", "pod/web", ":8080") as process:
        port = int(process.stdout.readline().split("127.0.0.1:")[1].split()[0])
        with socket.create_connection(("127.0.0.1", port), 10) as conn:
            conn.sendall(b"hello")
            assert conn.recv(100) == b"echo hello"


def test_both_sides_decide(edge, kubectl):
    center, proxy = edge.center, {"resources": ["synctargets/proxy"], "groups": ("workload.kcp.io",)}
    center.api("POST", SYNCTARGETS, {"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget",
                                     "metadata": {"name": "penny"}, "spec": {}})
    for user in ("both", "center-only"):
        give(center, user, f"{user}-at-center", verbs=["get"], resourceNames=["florin"], **proxy)
    give(center, "doer", "doer-at-center", verbs=["get", "create"], resourceNames=["florin"], **proxy)
    for user in ("both", "edge-only", "doer"):
        give(edge, user, f"{user}-at-edge", ["pods", "pods/log", "pods/exec"], ["*"])
    assert "web" in kubectl("--as=both", "get", "pods")
    refused = kubectl("--as=edge-only", "get", "pods", code=1)
    assert 'User "edge-only" cannot get resource "synctargets/proxy" in API group "workload.kcp.io"' in refused
    refused = kubectl("--as=center-only", "get", "pods", code=1)
    assert 'User "center-only" cannot list resource "pods"' in refused
    # To look is not to do, and exec is opened with GET.
    assert 'cannot create resource "synctargets/proxy"' in kubectl("--as=both", "exec", "web", "--", "x", code=1)
    assert kubectl("--as=doer", "exec", "web", "--", "x") == "x\n"
    assert 'cannot delete resource "synctargets/proxy"' in kubectl("--as=doer", "delete", "pod", "web", code=1)
    # A right to one edge is none to another.
    code, _, body = center.request("GET", "/clusters/root:penny-mb" + PODS, headers={"Impersonate-User": "both"})
    assert code == 403 and b"synctargets/proxy" in body
    code, _, body = center.request("GET", "/clusters/root:penny-mb" + PODS)
    assert code == 503 and b"root:penny is not connected, and was never seen" in body


def test_who_asks_is_what_the_center_says(edge, tmp_path):
    """Names in headers count on the tunnel alone, and there only the center's."""
    center = edge.center
    lie = {"X-Remote-User": "mallory", "X-Remote-Group": "system:masters", "X-Remote-Extra-A": "b"}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    for server, path in ((center, ""), (edge, ""), (center, MAILBOX)):
        user = server.api("POST", path + REVIEW, review, headers=lie)["status"]["userInfo"]
        assert user["username"] == "selvedge-admin" and "a" not in user.get("extra", {}), (path, user)
    for server, path in ((center, ""), (edge, ""), (center, MAILBOX)):
        nobody = json.dumps(review).encode()
        head = {**lie, "Content-Type": "application/json", "Content-Length": str(len(nobody)), "Connection": "close",
                "Authorization": "Bearer nonsense"}
        tls = server._tls
        anonymous = ssl.create_default_context(cafile=str(server.ca))
        server._tls = anonymous
        try:
            with raw(server, path + REVIEW, head, "POST") as conn:
                conn.sendall(nobody)
                assert conn.recv(100).split()[1] in (b"401", b"403")
        finally:
            server._tls = tls
    asked = lambda **headers: center.api("POST", MAILBOX + REVIEW, review, headers=headers)["status"]["userInfo"]
    alice = {"Impersonate-User": "alice ä".encode(), "Impersonate-Group": "devs", "Impersonate-Extra-Example.Com%2FTeam": "a b"}
    give(center, "alice ä", "alice", ["synctargets/proxy"], ["*"], groups=("workload.kcp.io",))
    user = asked(**alice)
    assert user["username"] == "alice ä" and "devs" in user["groups"] and user["extra"] == {"example.com/team": ["a b"]}
    # Many groups are many headers.
    with contextlib.closing(center.connection(10)) as conn:
        conn.putrequest("POST", center.path + MAILBOX + REVIEW)
        body = json.dumps(review).encode()
        said = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Impersonate-User", "alice ä".encode())]
        if center.token:
            said.append(("Authorization", f"Bearer {center.token}"))
        for name, value in said + [("Impersonate-Group", f"group-{n}") for n in range(90)]:
            conn.putheader(name, value)
        conn.endheaders(body)
        user = json.load(conn.getresponse())["status"]["userInfo"]
        assert len(user["groups"]) == 91, user
    # An account of the center is not the edge's account of that name.
    account = {"Impersonate-User": "system:serviceaccount:default:default"}
    give(center, account["Impersonate-User"], "account", ["synctargets/proxy"], ["*"], groups=("workload.kcp.io",))
    user = asked(**account)
    assert user["username"] == "system:kcp:serviceaccount:root:default:default"
    assert "system:serviceaccounts" not in user["groups"]


def test_what_is_large_arrives_whole_and_what_is_refused_early_is_refused(edge, kubectl):
    center = edge.center
    data = {"k": "x" * 900_000}
    path = f"{MAILBOX}/api/v1/namespaces/default/configmaps"
    for n in range(6):
        center.api("POST", path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"large-{n}"}, "data": data})
    listed = center.api("GET", path)
    assert sum(o.get("data") == data for o in listed["items"]) == 6
    give(center, "large", "large-at-center", ["synctargets/proxy"], ["*"], groups=("workload.kcp.io",))
    body = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "no"}, "data": data})
    for _ in range(3):
        # The edge refuses before it has read all of it.
        assert 'User "large" cannot create resource "configmaps"' in kubectl("--as=large", "create", "--validate=false", "-f", "-", stdin=body, code=1)
    for n in range(6):
        center.api("DELETE", f"{path}/large-{n}")


def test_the_page_about_it(edge, tmp_path):
    page = (ROOT / "docs/explanation/tunnel.md").read_text()
    shell, = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    role, = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    tools = Tools(edge.center, tmp_path)
    done = tools.run(["bash", "-exuo", "pipefail", "-c", shell], env={"CENTER": edge.center.url})
    assert "Running" in done.stdout and "three\n" in done.stdout and done.stdout.endswith("ls\n")
    tools.kubectl("apply", "-f", "-", stdin=role)


def test_an_edge_that_is_revoked_is_out_at_once(edge, tmp_path):
    """Also of what is under way; and it gets nothing with tickets of others, nor with none."""
    guilder = Edge(edge.center, tmp_path / "guilder", "guilder").start().wait_connected()
    try:
        code, said = member(guilder).request("POST", "/selvedge.link.v1.Link/Tunnel", "", {"selvedge-ticket": "0" * 32})
        assert code == 404 and "nobody waits" in said["message"]
        mailbox = "/clusters/root:guilder-mb"
        with contextlib.closing(edge.center.connection(10)) as conn:
            conn.request("GET", f"{mailbox}{PODS}?watch=true")
            watch = conn.getresponse()
            assert watch.status == 200
            edge.center.api("DELETE", f"{SYNCTARGETS}/guilder")
            began = time.monotonic()
            with pytest.raises((http.client.IncompleteRead, ConnectionError, OSError)):
                watch.read()
            assert time.monotonic() - began < 2
        assert edge.center.request("GET", mailbox + PODS)[0] in (403, 404)
    finally:
        guilder.kill()


def test_tickets(edge):
    """Streams are for edges, and for nothing but a ticket that somebody waits for."""
    code, _, body = edge.center.request("POST", "/selvedge.link.v1.Link/Tunnel", "", headers={"selvedge-ticket": "0" * 32})
    assert code == 403 and b"only edges" in body


def test_so_many_at_once(edge, kubectl):
    """One edge has so many places; who leaves makes room."""
    with contextlib.ExitStack() as stack:
        for _ in range(64):
            conn = stack.enter_context(contextlib.closing(edge.center.connection(20)))
            conn.request("GET", f"{MAILBOX}{PODS}?watch=true")
            assert conn.getresponse().status == 200
        code, headers, body = edge.center.request("GET", MAILBOX + PODS)
        assert code == 429 and b"root:florin" in body, body
    wait_for("room", lambda: edge.center.request("GET", MAILBOX + PODS)[0] == 200)


@pytest.mark.parametrize("way", ["cut", "reset", "killed"])
def test_what_is_cut_ends_with_an_error_and_the_edge_is_named(edge, kubectl, way):
    began = time.time()
    with kubectl.started("logs", "-f", "web") as log, kubectl.started("exec", "web", "--", "hold") as exec_, \
            kubectl.started("logs", "quiet") as unanswered:
        asked = lambda: any(path.endswith("/silent") for path, *_ in edge.node.asked)
        wait_for("the question without an answer", asked)
        assert log.stdout.readline() == "one\n" and exec_.stdout.readline() == "holding\n"
        if way == "cut":
            annotate(edge.center, "florin", **{"edge.selvedge.dev/link": "cut"})
        elif way == "reset":
            edge.through.cut()
        else:
            edge.kill()
        assert log.wait(10) == 1 and exec_.wait(10) == 1 and unanswered.wait(10) == 1
        edge.node.asked.clear()
        began_away = time.monotonic()
        refused = kubectl("get", "pods", code=1)
        assert "the edge root:florin is not connected since 20" in refused and time.monotonic() - began_away < 5, refused
    wait_for("the kubelet to be left", lambda: not edge.node.open, 20)
    if way == "cut":
        annotate(edge.center, "florin", **{"edge.selvedge.dev/link": None})
    elif way == "reset":
        edge.through.open()
    else:
        edge.start()
    wait_for("the edge to come back", lambda: edge.center.request("GET", MAILBOX + PODS)[0] == 200, 70, every=0.1)
    assert time.time() - began < 90
