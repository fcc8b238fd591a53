"""Services of an edge without root or a network: addresses on the loopback, a proxy and a resolver in the agent. And the controllers behind
them, through kubectl's API, with Pods that really run."""
import os
import socket
import struct
import subprocess
import time

import pytest
from center import Center, wait_for
from edge import Edge, make_workspace

NS = "/api/v1/namespaces/default"
SHOP = "root:shop"
ECHO, WEB = "selvedge.dev/sample/echo", "selvedge.dev/sample/web"


@pytest.fixture(scope="module")
def center(tmp_path_factory):
    center = Center(tmp_path_factory.mktemp("services") / "center").start()
    make_workspace(center, SHOP)
    yield center
    center.kill()


@pytest.fixture(scope="module")
def edge(center, tmp_path_factory):
    edge = Edge(center, tmp_path_factory.mktemp("edge") / "florin", "florin", SHOP, args=("--runtime", "process"))
    edge.start().wait_connected()
    wait_for("the node", lambda: nodes_ready(edge), 60)
    yield edge
    log = edge.log_path.read_text(errors="replace")
    edge.kill()
    edge.end_containers()
    assert "panicked" not in log


def nodes_ready(edge):
    nodes = edge.api("GET", "/api/v1/nodes")["items"]
    return bool(nodes) and not any(n["spec"].get("taints") for n in nodes) and all(any(c["type"] == "Ready" and c["status"] == "True" for c in n["status"]["conditions"]) for n in nodes)


def network(edge):
    """127.X"""
    said = (edge.data_dir / "network").read_text().strip()
    assert said.startswith("127.") and said.endswith(".0.0/16"), said
    return said.removesuffix(".0.0/16")


def may_use_port(port):
    return int(open("/proc/sys/net/ipv4/ip_unprivileged_port_start").read()) <= port or os.geteuid() == 0


def deployment(name, image=ECHO, replicas=1, port=8080, **container):
    labels = {"app": name}
    spec = {"containers": [{"name": "c", "image": image, "ports": [{"name": "main", "containerPort": port}], **container}],
            "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}}


def service(name, app=None, **spec):
    spec.setdefault("ports", [{"name": "http", "port": 8000, "targetPort": "main"}])
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"selector": {"app": app or name}, **spec}}


def make(edge, *objects):
    for one in objects:
        base = {"apps/v1": "/apis/apps/v1/namespaces/default", "batch/v1": "/apis/batch/v1/namespaces/default"}.get(one["apiVersion"], NS)
        edge.api("POST", f"{base}/{one['kind'].lower()}s", one)


def slices(edge, name):
    found = edge.api("GET", f"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name%3D{name}")
    return [e for s in found["items"] for e in s.get("endpoints") or []]


def ready(edge, name):
    return sorted(e["addresses"][0] for e in slices(edge, name) if e["conditions"]["ready"])


def wait_ready(edge, name, count):
    wait_for(f"{count} behind {name}", lambda: len(ready(edge, name)) == count, 60)
    return ready(edge, name)


def ip_of(edge, name):
    return edge.api("GET", f"{NS}/services/{name}")["spec"]["clusterIP"]


def get(ip, port=8000, path="/", source=None):
    """The body, or None where nobody listens."""
    try:
        with socket.create_connection((ip, port), 10, (source, 0) if source else None) as stream:
            stream.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
            data = b""
            while chunk := stream.recv(4096):
                data += chunk
            return data.decode().split("\r\n\r\n", 1)[-1] if data else None
    except ConnectionError:
        return None


def pod_of(text):
    return next(line.split()[1] for line in (text or "").splitlines() if line.startswith("pod "))


# ---- a small DNS client ----

def ask(edge, name, kind=1, stream=False):
    """Code and answers: addresses, or names for CNAME, PTR and SRV (with the port)."""
    question = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0" + struct.pack(">HH", kind, 1)
    query = struct.pack(">6H", 4711, 0x0100, 1, 0, 0, 0) + question
    at = (f"{network(edge)}.128.10", 53 if may_use_port(53) else 5353)
    if stream:
        with socket.create_connection(at, 5) as tcp:
            tcp.sendall(struct.pack(">H", len(query)) + query)
            length = struct.unpack(">H", tcp.recv(2))[0]
            answer = b""
            while len(answer) < length:
                answer += tcp.recv(length - len(answer))
    else:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.settimeout(5)
            udp.sendto(query, at)
            answer, _ = udp.recvfrom(4096)
    ident, flags, _, count, _, _ = struct.unpack(">6H", answer[:12])
    assert ident == 4711 and flags & 0x8000
    at, found = 12 + len(question), []

    def text(at):
        labels = []
        while length := answer[at]:
            if length >= 0xC0:
                return ".".join(labels + [text(struct.unpack(">H", answer[at:at + 2])[0] & 0x3FFF)[0]]), at + 2
            labels.append(answer[at + 1:at + 1 + length].decode())
            at += 1 + length
        return ".".join(labels), at + 1

    for _ in range(count):
        _, at = text(at)
        kind, _, _, length = struct.unpack(">HHIH", answer[at:at + 10])
        at += 10
        if kind == 1:
            found.append(socket.inet_ntoa(answer[at:at + 4]))
        elif kind == 33:
            found.append(f"{text(at + 6)[0]}:{struct.unpack('>H', answer[at + 4:at + 6])[0]}")
        else:
            found.append(text(at)[0])
        at += length
    return flags & 0xF, sorted(found)


# ---- tests ----

def test_a_service_by_its_address_and_by_its_name(edge):
    make(edge, deployment("web", replicas=2), service("web"))
    pods = wait_ready(edge, "web", 2)
    ip = ip_of(edge, "web")
    assert ip.startswith(f"{network(edge)}.") and all(pod.startswith(f"{network(edge)}.") for pod in pods)
    wait_for("the proxy", lambda: get(ip), 20)
    assert len({pod_of(get(ip)) for _ in range(4)}) == 2, "both are asked in turn"
    done = subprocess.run(["curl", "-sf", f"http://{ip}:8000/there"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and "GET /there" in done.stdout
    name = "web.default.svc.cluster.local"
    assert ask(edge, name) == (0, [ip]) == ask(edge, name, stream=True) == ask(edge, "web.default")
    assert ask(edge, f"_http._tcp.{name}", 33) == (0, [f"{name}:8000"])
    assert ask(edge, ".".join(reversed(ip.split("."))) + ".in-addr.arpa", 12) == (0, [name])
    assert ask(edge, "nobody.default.svc.cluster.local") == (3, [])
    endpoints = edge.api("GET", f"{NS}/endpoints/web")
    assert sorted(a["ip"] for a in endpoints["subsets"][0]["addresses"]) == pods
    # Nothing is written again and again.
    where = ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", f"{NS}/endpoints", "/apis/apps/v1/namespaces/default/deployments")
    versions = lambda: [[o["metadata"]["resourceVersion"] for o in edge.api("GET", at)["items"]
                         if "fence" not in o["metadata"]["name"]] for at in where]
    before = versions()
    # The controllers do their work for other Services meanwhile.
    for n in range(5):
        make(edge, service(f"fence-{n}"))
        wait_for("its endpoints", lambda: edge.api("GET", f"{NS}/endpoints/fence-{n}"))
        edge.api("DELETE", f"{NS}/services/fence-{n}")
    assert versions() == before
    # Through the API server as well, which leads nobody else to this machine.
    assert "GET /deep" in edge.request("GET", f"{NS}/services/web:8000/proxy/deep")[2].decode()


def test_headless_services_have_the_addresses_of_their_pods(edge):
    stateful = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
        "serviceName": "db", "replicas": 2, "selector": {"matchLabels": {"app": "db"}},
        "template": deployment("db")["spec"]["template"]}}
    make(edge, service("db", clusterIP="None"), stateful)
    pods = wait_ready(edge, "db", 2)
    wait_for("the resolver", lambda: ask(edge, "db.default.svc.cluster.local") == (0, pods), 20)
    named = {e["hostname"]: e["addresses"][0] for e in slices(edge, "db")}
    assert sorted(named) == ["db-0", "db-1"]
    assert ask(edge, "db-1.db.default.svc.cluster.local") == (0, [named["db-1"]])
    started = [edge.api("GET", f"{NS}/pods/db-{n}")["metadata"]["creationTimestamp"] for n in (0, 1)]
    assert started == sorted(started)
    status = wait_for("its status", lambda: (s := edge.api("GET", "/apis/apps/v1/namespaces/default/statefulsets/db")["status"])
                      .get("readyReplicas") == 2 and s)
    assert status["currentRevision"] == status["updateRevision"] and status["replicas"] == 2


def test_traffic_goes_where_pods_are_ready(edge, tmp_path):
    (tmp_path / "ready").write_text("yes")
    probe = {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 1, "failureThreshold": 1}
    gated = deployment("gated", WEB, readinessProbe=probe, volumeMounts=[{"name": "www", "mountPath": "/srv"}])
    gated["spec"]["template"]["spec"]["volumes"] = [{"name": "www", "hostPath": {"path": str(tmp_path)}}]
    make(edge, gated, service("gated"))
    wait_ready(edge, "gated", 1)
    ip = ip_of(edge, "gated")
    wait_for("the proxy", lambda: get(ip, path="/ready") == "yes", 20)
    (tmp_path / "ready").unlink()
    wait_ready(edge, "gated", 0)
    assert [e["conditions"] for e in slices(edge, "gated")] == [{"ready": False, "serving": False, "terminating": False}]
    wait_for("nobody to be asked", lambda: get(ip, path="/ready") is None, 20)
    (tmp_path / "ready").write_text("again")
    wait_for("it to come back", lambda: get(ip, path="/ready") == "again", 30)


def test_node_ports_and_host_ports(edge):
    one = deployment("door")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    one["spec"]["template"]["spec"]["containers"][0]["ports"][0]["hostPort"] = port
    make(edge, one, service("door", type="NodePort"))
    wait_ready(edge, "door", 1)
    node_port = edge.api("GET", f"{NS}/services/door")["spec"]["ports"][0]["nodePort"]
    node = next(a["address"] for a in edge.api("GET", "/api/v1/nodes")["items"][0]["status"]["addresses"] if a["type"] == "InternalIP")
    assert node == f"{network(edge)}.0.1"
    for at in (node_port, port):
        wait_for(f"port {at} of the node", lambda at=at: pod_of(get(node, at) or "pod ?").endswith("?") is False, 20)
    edge.api("DELETE", f"{NS}/services/door")
    wait_for("the node port to be shut", lambda: get(node, node_port) is None, 20)
    assert get(node, port), "the host port stays as long as its Pod"
    wait_for("its slices to go", lambda: not slices(edge, "door"), 20)


def test_clients_stay_with_one_pod_if_they_are_to(edge):
    make(edge, deployment("sticky", replicas=3), service("sticky", sessionAffinity="ClientIP"))
    wait_ready(edge, "sticky", 3)
    ip = ip_of(edge, "sticky")
    wait_for("the proxy", lambda: get(ip), 20)
    # The table may have come in two steps: what was chosen before all three were there stays chosen.
    assert len({pod_of(get(ip)) for _ in range(6)}) == 1
    clients = [f"127.0.0.{n}" for n in range(20, 26)]
    assert len({pod_of(get(ip, source=client)) for client in clients}) >= 2, "others go elsewhere"
    assert all(pod_of(get(ip, source=c)) == pod_of(get(ip, source=c)) for c in clients)


def test_datagrams(edge):
    one = deployment("udp")
    one["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"name": "main", "containerPort": 8080, "protocol": "UDP"}]
    make(edge, one, service("udp", ports=[{"name": "echo", "port": 9000, "targetPort": "main", "protocol": "UDP"}]))
    wait_ready(edge, "udp", 1)
    ip = ip_of(edge, "udp")

    def echo(text):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.settimeout(1)
            udp.connect((ip, 9000))
            try:
                udp.send(text)
                return udp.recv(65535)
            except OSError:
                return None

    wait_for("an echo", lambda: echo(b"hello") == b"hello", 20)
    assert echo(b"x" * 9000) == b"x" * 9000
    assert ask(edge, "_echo._udp.udp.default.svc.cluster.local", 33) == (0, ["udp.default.svc.cluster.local:9000"])


def test_the_api_is_a_service_too(edge):
    kubernetes = edge.api("GET", f"{NS}/services/kubernetes")["spec"]
    assert kubernetes["clusterIP"] == f"{network(edge)}.128.1"
    assert ask(edge, "kubernetes.default.svc.cluster.local") == (0, [kubernetes["clusterIP"]])
    if not may_use_port(443):
        pytest.skip("port 443 needs a right that this user does not have")
    done = subprocess.run(["curl", "-s", "--cacert", str(edge.data_dir / "pki" / "ca.crt"), f"https://{kubernetes['clusterIP']}/version"],
                          capture_output=True, text=True, timeout=30)
    assert "gitVersion" in done.stdout, done


def job(name, script, **spec):
    template = {"metadata": {"labels": {"app": name}}, "spec": {"restartPolicy": "Never", "containers": [
        {"name": "c", "image": ECHO, "command": ["sh", "-c", script]}]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {**spec, "template": template}}


def test_jobs_and_cron_jobs_run(edge):
    indexed = job("counts", 'test "$JOB_COMPLETION_INDEX" -lt 3', completions=3, parallelism=2, completionMode="Indexed")
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "often"}, "spec": {
        "schedule": "@every 1s", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": job("j", "sleep 600")["spec"]}}}
    make(edge, indexed, job("fails", "exit 3", backoffLimit=0), job("goes", "true", ttlSecondsAfterFinished=0), cron)
    at = "/apis/batch/v1/namespaces/default/jobs"

    def ended(name, how):
        conditions = edge.api("GET", f"{at}/{name}").get("status", {}).get("conditions", [])
        return next((c["reason"] for c in conditions if c["type"] == how and c["status"] == "True"), None)

    assert wait_for("the failure", lambda: ended("fails", "Failed"), 60) == "BackoffLimitExceeded"
    assert edge.api("GET", f"{at}/fails")["status"]["failed"] == 1
    assert wait_for("the end", lambda: ended("counts", "Complete"), 60) == "CompletionsReached"
    status = edge.api("GET", f"{at}/counts")["status"]
    assert (status["succeeded"], status["completedIndexes"]) == (3, "0-2") and "completionTime" in status
    # What is counted is let go of.
    pods = edge.api("GET", f"{NS}/pods?labelSelector=app%3Dcounts")["items"]
    assert len(pods) == 3 and not any(pod["metadata"].get("finalizers") for pod in pods)
    wait_for("a finished Job to be deleted", lambda: edge.request("GET", f"{at}/goes")[0] == 404, 60)
    wait_for("its Pod to go with it", lambda: not edge.api("GET", f"{NS}/pods?labelSelector=app%3Dgoes")["items"], 30)
    often = "/apis/batch/v1/namespaces/default/cronjobs/often"
    active = wait_for("a Job of the CronJob", lambda: edge.api("GET", often).get("status", {}).get("active"), 30)
    owner = edge.api("GET", f"{at}/{active[0]['name']}")["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["controller"]) == ("CronJob", True)
    # The one that runs keeps others from starting.
    time.sleep(2)
    mine = [j for j in edge.api("GET", at)["items"] if j["metadata"]["name"].startswith("often-")]
    assert len(mine) == 1
    edge.api("DELETE", often)


def test_a_service_of_the_center_has_an_address_of_the_edge(center, edge):
    """The center's own address would be nobody's here."""
    at = f"/clusters/{SHOP}/api/v1/namespaces/default/services"
    center.api("POST", at, service("sent", "web"))
    sent = center.api("GET", f"{at}/sent")["spec"]["clusterIP"]
    wait_for("it to arrive", lambda: edge.request("GET", f"{NS}/services/sent")[0] == 200, 30)
    ip = ip_of(edge, "sent")
    assert sent.startswith("10.") and ip.startswith(f"{network(edge)}.")
    center.api("PATCH", f"{at}/sent", {"metadata": {"labels": {"seen": "yes"}}}, content_type="application/merge-patch+json")
    wait_for("the change", lambda: edge.api("GET", f"{NS}/services/sent")["metadata"].get("labels", {}).get("seen") == "yes", 30)
    assert ip_of(edge, "sent") == ip
    wait_for("the proxy", lambda: get(ip), 30)


def test_another_edge_and_a_restart(center, edge, tmp_path_factory):
    other = Edge(center, tmp_path_factory.mktemp("other") / "guilder", "guilder", SHOP, args=("--runtime", "process"))
    try:
        other.start().wait_connected()
        assert network(other) != network(edge)
        mine = network(other)
        other.kill()
        other.start().wait_connected()
        assert network(other) == mine
    finally:
        other.kill()
        other.end_containers()
