"""The components of a native node against an edge: what a kubelet, kube-proxy, CoreDNS and flannel ask, recorded from the real ones (tests/recordings,
made with tests/recorder.py) and asked again here with their identities and no more, online and while the edge is cut off. And the real ones, where
SELVEDGE_UPSTREAM names a directory that has them."""
import base64
import contextlib
import http.client
import json
import os
import re
import ssl
import struct
import subprocess
import sys
import threading
import urllib.parse

import pytest
import yaml

import native_node
from center import HERE, ROOT, TOOLS, Tools, wait_for
from edge import fleet, in_sync, selvedge
from manifests import container, pod
from test_identity import Client, certificate, csr

SHOP = "root:shop"
AT = f"/clusters/{SHOP}/api/v1/namespaces/default"
UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
MAGIC = b"k8s\0"
PROTOBUF = "application/vnd.kubernetes.protobuf"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
MAX_INITIAL_EVENTS = 10_000


# ---- protobuf, as little of it as is needed ----

def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, wire type, value) of a message. Groups are not used by Kubernetes."""
    found, at = [], 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size, at = varint(data, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value, at = data[at:at + size], at + size
        found.append((key >> 3, key & 7, value))
    return found


def encode(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def message(parts):
    out = b""
    for number, wire, value in parts:
        out += encode(number << 3 | wire)
        out += encode(value) if wire == 0 else (encode(len(value)) if wire == 2 else b"") + value
    return out


def put(data, path, value):
    """The message with another string at a path of field numbers; it has to be there."""
    assert any(number == path[0] for number, _, _ in fields(data)), f"no field {path[0]}"
    return message([(n, w, v if n != path[0] else value if len(path) == 1 else put(v, path[1:], value)) for n, w, v in fields(data)])


def put_in_object(body, path, value):
    """The same in an object with its envelope."""
    return MAGIC + put(body.removeprefix(MAGIC), (2, *path), value.encode())


def get(data, *path):
    for step in path:
        data = next((value for number, _, value in fields(data) if number == step), b"")
    return data


def unwrapped(data):
    """The object in an envelope."""
    assert data[:4] == MAGIC, data[:40]
    return get(data[4:], 2)


def name_of(object_):
    return get(object_, 1, 1).decode()


# ---- asking again ----

class Component:
    """Asks with one identity, as it was recorded."""

    def __init__(self, edge, cert=None, token=None):
        self.edge, self.token = edge, token
        self.client = Client(edge, cert=cert, token=token)
        self.tls = ssl.create_default_context(cafile=str(edge.ca))
        if cert:
            self.tls.load_cert_chain(*map(str, cert))

    def open(self, record, body=None, **query):
        connection = http.client.HTTPSConnection(self.edge.host, self.edge.port, context=self.tls, timeout=30)
        asked = urllib.parse.urlencode({**record["query"], **query})
        headers = dict(record["headers"]) | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        connection.request(record["method"], record["path"] + (f"?{asked}" if asked else ""), body, headers)
        return connection, connection.getresponse()

    def ask(self, record, body=None, **query):
        """The answer's bytes, if its status is the one that was recorded."""
        connection, answer = self.open(record, body, **query)
        with contextlib.closing(connection):
            raw = answer.read()
            what = f"{record['method']} {record['path']} {record['query']}"
            assert answer.status == record["status"], f"{what}: {answer.status}, not {record['status']}: {raw[:600]!r}"
            wanted = record["headers"].get("Accept", "")
            if answer.status < 300 and wanted.startswith(PROTOBUF):
                assert answer.headers["Content-Type"].startswith(PROTOBUF) and raw[:4] == MAGIC, what
            return raw

    @contextlib.contextmanager
    def watch(self, record, **query):
        """A function that gives the next event: type, name, object."""
        connection, answer = self.open(record, **query)
        try:
            assert answer.status == 200, answer.read()
            protobuf = answer.headers["Content-Type"].startswith(PROTOBUF)
            assert protobuf == record["headers"]["Accept"].startswith(PROTOBUF), answer.headers["Content-Type"]
            yield (lambda: next_frame(answer)) if protobuf else (lambda: next_line(answer))
        finally:
            connection.close()

    def initial(self, record):
        """The names with which a streaming list begins. The bookmark that ends it has to come."""
        names = []
        with self.watch(record) as event:
            for _ in range(MAX_INITIAL_EVENTS):
                kind, name, object_ = event()
                if kind == "BOOKMARK":
                    assert b"k8s.io/initial-events-end" in object_
                    return names
                assert kind == "ADDED", kind
                names.append(name)
        raise AssertionError("the bookmark did not come")


def next_frame(answer):
    size = struct.unpack(">I", answer.read(4))[0]
    # A frame is a WatchEvent, the object in it has an envelope.
    frame = answer.read(size)
    event = unwrapped(frame) if frame[:4] == MAGIC else frame
    object_ = unwrapped(get(event, 2, 1))
    return get(event, 1).decode(), name_of(object_), object_


def next_line(answer):
    event = json.loads(answer.readline())
    return event["type"], event["object"]["metadata"].get("name", ""), event["object"]


def records(name):
    return [json.loads(line) for line in (HERE / "recordings" / f"{name}.jsonl").read_text().splitlines()]


def body_of(record):
    body = record.get("body")
    return base64.b64decode(body["base64"]) if isinstance(body, dict) else body.encode() if body else None


def is_watch(record):
    return record["query"].get("watch") == "true"


def later(edge, *requests):
    """Changes that an administrator makes while somebody watches."""
    thread = threading.Timer(0.2, lambda: [edge.api(*request) for request in requests])
    thread.daemon = True
    thread.start()


def service(name, **spec):
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80, "targetPort": 8080}], **spec}}


def slice_of(name, **labels):
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name, **labels}},
            "addressType": "IPv4", "ports": [{"port": 8080}], "endpoints": [{"addresses": ["10.244.0.9"], "conditions": {"ready": True}}]}


SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    """Two that hold the same; the second is cut off before anybody asks it."""
    with fleet("florin", "tulip", directory=tmp_path_factory.mktemp("nodes"), wire=True) as (center, florin, tulip):
        center.api("POST", f"{AT}/secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"k": "v"}})
        center.api("POST", f"{AT}/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "page"}, "data": {"p": "q"}})
        center.api("POST", f"{AT}/services", service("web", selector={"app": "web"}))
        center.api("POST", f"{AT}/services", service("hidden", clusterIP="None", selector={"app": "web"}))
        volumes = [{"name": "key", "secret": {"secretName": "key"}}, {"name": "page", "configMap": {"name": "page"}}]
        mounts = [{"name": "key", "mountPath": "/key"}, {"name": "page", "mountPath": "/page"}]
        center.api("POST", f"{AT}/pods", pod("web", nodeName="florin-1", volumes=volumes, containers=[container("c", volumeMounts=mounts)]))
        for edge in (florin, tulip):
            in_sync(center, SHOP, edge, collections=[f"/api/v1/namespaces/default/{kind}" for kind in ("pods", "services", "secrets", "configmaps")])
            edge.api("POST", "/api/v1/namespaces/default/services", {
                **service("other"), "metadata": {"name": "other", "labels": {"service.kubernetes.io/service-proxy-name": "mine"}}})
            edge.api("POST", SLICES, slice_of("web"))
            edge.api("POST", SLICES, slice_of("hidden", **{"service.kubernetes.io/headless": ""}))
            edge.home = edge.data_dir.with_name(edge.name + "-home")
            edge.home.mkdir()
        tulip.through.cut()
        state = lambda: tulip.api("GET", "/api/v1/namespaces/kube-system/configmaps/selvedge-link")["data"]["state"]
        wait_for("the edge to notice", lambda: state() == "Offline", 30)
        yield {"online": florin, "offline": tulip}


@pytest.fixture(scope="module", params=["online", "offline"])
def edge(request, edges):
    return edges[request.param]


def certified(edge, name, subject, signer="kubernetes.io/kube-apiserver-client"):
    admin = Client(edge, cert=(edge.cert, edge.key))
    base, _ = csr(admin, edge.home, name, subject, signer)
    Tools(edge, edge.home).kubectl("certificate", "approve", name)
    return certificate(edge, base, name)


def page_blocks(name):
    return re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / name).read_text(), re.M | re.S)


def do(edge, block):
    """A block of a page, on the edge, with a directory of its own for what goes to /etc/kubernetes."""
    etc = edge.home / "etc"
    env = {"PATH": f"{TOOLS}:/usr/bin:/bin", "HOME": str(edge.home), "KUBECONFIG": str(edge.kubeconfig)}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", block.replace("/etc/kubernetes", str(etc)).replace("node NODE", "node florin-1")],
                          cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
    return etc


def native(edge, title, name=None, user=None):
    """A step of docs/how-to/native-node.md; the one that makes certificates also for somebody else."""
    block = next(block for block in page_blocks("how-to/native-node.md") if block.startswith(f"# {title}"))
    if name:
        block = block.replace("name=kube-proxy user=system:kube-proxy", f"name={name} user={user}")
    if not (edge.home / "etc/edge-ca.crt").exists():
        do(edge, page_blocks("how-to/kubelet-runtime.md")[1])
    return do(edge, block)


# ---- the kubelet ----

def test_kubelet_asks_for_its_certificate(edge):
    """With a bootstrap token, and nobody approves anything: docs/how-to/kubelet-runtime.md's own commands."""
    do(edge, page_blocks("how-to/kubelet-runtime.md")[0])
    kubelet = Component(edge, token="07401b.f395accd246ae52d")
    for record in records("kubelet-bootstrap"):
        if is_watch(record):
            with kubelet.watch(record) as event:
                issued = b""
                while not issued:
                    kind, _, object_ = event()
                    # status.certificate
                    issued = get(object_, 3, 2) if kind in ("ADDED", "MODIFIED") else b""
                assert issued.startswith(b"-----BEGIN CERTIFICATE-----")
        elif record["path"] == "/healthz":
            connection, answer = kubelet.open(record)
            with contextlib.closing(connection):
                assert (answer.status, answer.read()) == (200, b"ok")
        else:
            kubelet.ask(record, body_of(record))


def test_kubelet_registers_and_runs_a_pod(edge):
    kubelet = Component(edge, cert=certified(edge, "n1", "/O=system:nodes/CN=system:node:florin-1", "kubernetes.io/kube-apiserver-client-kubelet"))
    uid = lambda path: edge.api("GET", path)["metadata"]["uid"]
    web = "/api/v1/namespaces/default/pods/web"
    pod_uid, phases, asked = uid(web), [], set()
    seen = {"/api/v1/services": {"kubernetes", "web", "other"}, "/api/v1/pods": {"web"}, "/api/v1/namespaces/default/secrets": {"key"}}
    for record in records("kubelet"):
        path, body = record["path"], body_of(record)
        if is_watch(record):
            names = kubelet.initial(record)
            wanted = record["query"].get("fieldSelector", "").removeprefix("metadata.name=")
            assert set(names) == seen.get(path, {wanted} if "/configmaps" in path else set()), (path, names)
            asked.add(path)
            continue
        if path == f"{LEASES}/florin-1" and record["method"] == "PUT":
            now = edge.api("GET", path)["metadata"]
            body = put_in_object(put_in_object(body, (1, 5), now["uid"]), (1, 6), now["resourceVersion"])
            body = put_in_object(body, (1, 13, 4), uid("/api/v1/nodes/florin-1"))
        elif path in (LEASES, "/apis/storage.k8s.io/v1/csinodes"):
            body = UUID.sub(uid("/api/v1/nodes/florin-1").encode(), body)
        elif body and (path.startswith(web) or path.endswith("/token")):
            body = UUID.sub(pod_uid.encode(), body)
        raw = kubelet.ask(record, body)
        if path.endswith("/token"):
            token = get(unwrapped(raw), 3, 1).decode()
            assert Client(edge, token=token).who()["username"] == "system:serviceaccount:default:default"
        if path == f"{web}/status":
            phases.append(edge.api("GET", web)["status"]["phase"])
            if phases.count("Running") == 1 and phases[-1] == "Running":
                # Somebody wants it to go; the kubelet ends it and deletes it then.
                edge.api("DELETE", web, {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 30})
    assert phases[0] == "Pending" and "Running" in phases and phases[-1] == "Succeeded", phases
    assert edge.request("GET", web)[0] == 404
    node = edge.api("GET", "/api/v1/nodes/florin-1")
    assert {"type": "InternalIP", "address": "192.0.2.1"} in node["status"]["addresses"]
    assert any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])
    lease = edge.api("GET", f"{LEASES}/florin-1")
    assert lease["spec"]["holderIdentity"] == "florin-1" and lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
    assert edge.api("GET", "/apis/storage.k8s.io/v1/csinodes/florin-1")["metadata"]["ownerReferences"][0]["kind"] == "Node"
    assert len(asked) == 7, asked
    # And no more than a node may.
    for path in ("/api/v1/secrets", "/api/v1/namespaces/kube-system/secrets"):
        assert kubelet.client.code("GET", path) == 403


def test_kubelet_shows_static_pods_and_asks_who_may_ask_it(edge):
    kubelet = Component(edge, cert=certified(edge, "n1b", "/O=system:nodes/CN=system:node:florin-1", "kubernetes.io/kube-apiserver-client-kubelet"))
    if edge.request("GET", "/api/v1/nodes/florin-1")[0] == 404:
        edge.api("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "florin-1"}})
    node = edge.api("GET", "/api/v1/nodes/florin-1")["metadata"]["uid"].encode()
    token = edge.api("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})["status"]["token"]
    fixed = "/api/v1/namespaces/default/pods/fixed-florin-1"
    for record in records("kubelet-more"):
        path, body = record["path"], body_of(record)
        if path.startswith(fixed) and body:
            body = UUID.sub(edge.api("GET", fixed)["metadata"]["uid"].encode(), body)
        elif path.endswith("/tokenreviews"):
            body = put_in_object(body, (2, 1), token)
        elif body:
            body = UUID.sub(node, body)
        raw = kubelet.ask(record, body)
        if path.endswith("/tokenreviews"):
            assert get(unwrapped(raw), 3, 2, 1) == b"system:serviceaccount:default:default"
        elif path.endswith("/subjectaccessreviews"):
            allowed = [value for number, _, value in fields(get(unwrapped(raw), 3)) if number == 1]
            assert allowed == [1], "the edge's own API server may use a kubelet"
        elif path.endswith("/pods"):
            assert edge.api("GET", fixed)["metadata"]["annotations"]["kubernetes.io/config.source"] == "file"
    assert edge.request("GET", fixed)[0] == 404


# ---- kube-proxy ----

def test_kube_proxy(edge):
    etc = native(edge, "kube-proxy")
    assert (etc / "kube-proxy.yaml").read_text() == (native_node.DEPLOY / "kube-proxy.yaml").read_text()
    who = subprocess.run([TOOLS / "kubectl", "--kubeconfig", etc / "kube-proxy.kubeconfig", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"],
                         capture_output=True, text=True, check=True, timeout=60).stdout
    assert who == "system:kube-proxy"
    proxy = Component(edge, cert=(etc / "kube-proxy.crt", etc / "kube-proxy.key"))
    assert proxy.client.who()["username"] == "system:kube-proxy"
    begins = {}
    for record in records("kube-proxy"):
        if is_watch(record):
            begins[record["path"]] = set(proxy.initial(record))
        else:
            proxy.ask(record, body_of(record))
    # Headless ones are not its, nor those of another proxy.
    assert begins["/api/v1/services"] == {"kubernetes", "web"}
    assert "web" in begins["/apis/discovery.k8s.io/v1/endpointslices"] and "hidden" not in begins["/apis/discovery.k8s.io/v1/endpointslices"]
    assert begins["/apis/networking.k8s.io/v1/servicecidrs"] == {"kubernetes"}
    assert any(e["reason"] == "Starting" and e["reportingController"] == "kube-proxy"
               for e in edge.api("GET", "/apis/events.k8s.io/v1/namespaces/default/events")["items"])
    for method, path in (("GET", "/api/v1/secrets"), ("GET", "/api/v1/pods"), ("DELETE", "/api/v1/namespaces/default/services/web")):
        assert proxy.client.code(method, path) == 403, path

    # What changes on the edge is told to it at once, with a selector that it enters and leaves.
    watching = next(r for r in records("kube-proxy") if r["path"] == "/api/v1/services")
    at = "/api/v1/namespaces/default/services"
    with proxy.watch(watching) as event:
        while event()[0] != "BOOKMARK":
            pass
        mine = {"metadata": {"labels": {"service.kubernetes.io/service-proxy-name": "mine"}}}
        later(edge, ("POST", at, service("fresh")))
        assert event()[:2] == ("ADDED", "fresh")
        edge.api("PATCH", f"{at}/fresh", mine, content_type="application/merge-patch+json")
        assert event()[:2] == ("DELETED", "fresh")
        edge.api("DELETE", f"{at}/fresh")


# ---- CoreDNS ----

def test_coredns(edge):
    native(edge, "DNS")
    token = edge.api("POST", "/api/v1/namespaces/kube-system/serviceaccounts/coredns/token", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})["status"]["token"]
    dns = Component(edge, token=token)
    assert dns.client.who()["username"] == "system:serviceaccount:kube-system:coredns"
    made = {"/api/v1/services": ("/api/v1/namespaces/default/services", service("news")),
            "/api/v1/namespaces": ("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "news"}}),
            "/apis/discovery.k8s.io/v1/endpointslices": (SLICES, slice_of("news"))}
    holds = {"/api/v1/services": {"kubernetes", "web", "hidden", "kube-dns"}, "/api/v1/namespaces": {"default", "kube-system"},
             "/apis/discovery.k8s.io/v1/endpointslices": {"web", "hidden"}}
    versions = {}
    for record in records("coredns"):
        path = record["path"]
        if not is_watch(record):
            list_ = unwrapped(dns.ask(record))
            versions[path] = get(list_, 1, 2).decode()
            assert holds[path] <= {name_of(value) for number, _, value in fields(list_) if number == 2}
            continue
        with dns.watch(record, resourceVersion=versions[path]) as event:
            later(edge, ("POST", *made[path]))
            kind, name, _ = event()
            while name != "news":
                kind, name, _ = event()
            assert kind == "ADDED"
    for path in ("/api/v1/secrets", "/api/v1/nodes", "/api/v1/configmaps"):
        assert dns.client.code("GET", path) == 403, path
    for path, object_ in made.values():
        edge.api("DELETE", f"{path}/{object_['metadata']['name']}")


# ---- flannel ----

def relabelled(edge):
    node = edge.api("GET", "/api/v1/nodes/florin-1")
    node["metadata"].setdefault("labels", {})["seen"] = "yes"
    return node


def test_flannel(edge):
    if edge.request("GET", "/api/v1/nodes/florin-1")[0] == 404:
        edge.api("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "florin-1"}})
    etc = native(edge, "flannel")
    assert (etc / "flannel-net-conf.json").exists()
    native(edge, "kube-proxy", "flannel", "flannel")
    flannel = Component(edge, cert=(etc / "flannel.crt", etc / "flannel.key"))
    version = None
    for record in records("flannel"):
        if is_watch(record):
            with flannel.watch(record, resourceVersion=version) as event:
                later(edge, ("PUT", "/api/v1/nodes/florin-1", relabelled(edge)))
                kind, name, object_ = event()
                assert (kind, name, object_["spec"]["podCIDR"]) == ("MODIFIED", "florin-1", "10.244.0.0/24")
            continue
        answer = json.loads(flannel.ask(record, body_of(record)))
        version = answer["metadata"]["resourceVersion"] if record["method"] == "GET" else version
    node = edge.api("GET", "/api/v1/nodes/florin-1")
    assert node["metadata"]["annotations"]["flannel.alpha.coreos.com/public-ip"] == "192.0.2.1"
    assert [c["reason"] for c in node["status"]["conditions"] if c["type"] == "NetworkUnavailable"] == ["FlannelIsUp"]
    assert flannel.client.code("GET", "/api/v1/secrets") == 403
    assert flannel.client.code("PATCH", "/api/v1/nodes/florin-1") == 403, "its own status, and nothing else of a Node"


# ---- found by upstream's own tests ----

def owned(edge, name, owner):
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "blockOwnerDeletion": True}
    edge.api("PATCH", f"/api/v1/namespaces/default/configmaps/{name}", {"metadata": {"ownerReferences": [reference]}}, content_type="application/merge-patch+json")


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_circle_of_owners_is_deleted(edges, size):
    """Everybody blocks everybody's deletion; upstream breaks the circle where it closes."""
    edge = edges["online"]
    at = "/api/v1/namespaces/default/configmaps"
    names = [f"ring-{size}-{i}" for i in range(size)]
    ring = [edge.api("POST", at, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}) for name in names]
    for i, name in enumerate(names):
        owned(edge, name, ring[i - 1])
    edge.api("DELETE", f"{at}/{names[0]}", {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"})
    left = lambda: [o for o in edge.api("GET", at)["items"] if o["metadata"]["name"] in names]
    wait_for("the circle to go", lambda: not left(), 10, every=0.1)


def test_an_owner_waits_no_longer_for_what_does_not_block_it(edges):
    """A dependent that cannot go yet lets its owner go when it says so."""
    edge = edges["online"]
    at = "/api/v1/namespaces/default/configmaps"
    owner, dependent = [edge.api("POST", at, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": name, "finalizers": finalizers}}) for name, finalizers in (("unblocked", []), ("dependent", ["example.com/stay"]))]
    owned(edge, "dependent", owner)
    edge.api("DELETE", f"{at}/unblocked", {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"})
    wait_for("the dependent to be deleted", lambda: edge.api("GET", f"{at}/dependent")["metadata"].get("deletionTimestamp"), 10)
    assert edge.request("GET", f"{at}/unblocked")[0] == 200
    free = [{**edge.api("GET", f"{at}/dependent")["metadata"]["ownerReferences"][0], "blockOwnerDeletion": False}]
    edge.api("PATCH", f"{at}/dependent", {"metadata": {"ownerReferences": free}}, content_type="application/merge-patch+json")
    wait_for("the owner to go", lambda: edge.request("GET", f"{at}/unblocked")[0] == 404, 10, every=0.1)
    edge.api("PATCH", f"{at}/dependent", {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json")


# ---- the files in deploy/ ----

PROXY = set("""apiVersion kind featureGates clientConnection logging hostnameOverride bindAddress healthzBindAddress metricsBindAddress bindAddressHardFail
enableProfiling showHiddenMetricsForVersion mode iptables ipvs nftables winkernel detectLocalMode detectLocal clusterCIDR nodePortAddresses oomScoreAdj
conntrack configSyncPeriod portRange windowsRunAsService""".split())
NESTED = {"clientConnection": {"kubeconfig", "acceptContentTypes", "contentType", "qps", "burst"},
          "conntrack": {"maxPerCore", "min", "tcpEstablishedTimeout", "tcpCloseWaitTimeout", "tcpBeLiberal", "udpTimeout", "udpStreamTimeout"}}


def test_every_field_of_the_files_is_known():
    config = yaml.safe_load((native_node.DEPLOY / "kube-proxy.yaml").read_text())
    assert (config["apiVersion"], config["kind"]) == ("kubeproxy.config.k8s.io/v1alpha1", "KubeProxyConfiguration")
    assert set(config) <= PROXY, set(config) - PROXY
    for field, known in NESTED.items():
        assert set(config[field]) <= known, field
    ranges = {config["clusterCIDR"], json.loads((native_node.DEPLOY / "flannel-net-conf.json").read_text())["Network"]}
    assert ranges == {"10.244.0.0/16"}
    for name in ("10-bridge.conflist", "10-flannel.conflist"):
        network = json.loads((native_node.DEPLOY / name).read_text())
        assert network["cniVersion"] == "1.0.0" and [p["type"] for p in network["plugins"]] == [name[3:].split(".")[0], "portmap"]
    # The Service has the address that the kubelet tells its Pods.
    objects = list(yaml.safe_load_all((native_node.DEPLOY / "coredns.yaml").read_text()))
    kubelet = yaml.safe_load((ROOT / "deploy/kubelet/config.yaml").read_text())
    assert [o["spec"]["clusterIP"] for o in objects if o["kind"] == "Service"] == kubelet["clusterDNS"]


def test_every_file_is_in_the_page():
    page = (ROOT / "docs/how-to/native-node.md").read_text()
    for file in native_node.DEPLOY.iterdir():
        assert file.name in page, file.name
    # The edge's own command has no other options than it knows.
    command = page_blocks("how-to/native-node.md")[0].split()
    assert command[:2] == ["selvedge", "edge"]
    assert {word for word in command if word.startswith("--")} <= set(re.findall(r"--[a-z-]+", selvedge("edge", "--help")))


# ---- the programs themselves ----

@pytest.mark.alone
@pytest.mark.timeout(600)
@pytest.mark.parametrize("network", ["bridge", "flannel"])
def test_a_native_node_works_and_comes_back_without_the_center(tmp_path, network):
    """kubelet, containerd, CNI, kube-proxy and CoreDNS: see native_node.py."""
    missing = native_node.missing(network)
    if missing or os.geteuid() != 0:
        pytest.skip(f"SELVEDGE_UPSTREAM or this machine lacks {', '.join(missing) or 'root'}")
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, HERE / "native_node.py", tmp_path, network]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=540)
    assert done.returncode == 0 and done.stdout.rstrip().endswith("ok"), done.stdout[-6000:] + done.stderr[-3000:]


# ---- more that upstream's own tests found ----

def test_every_method_reaches_what_is_behind_a_proxy(tmp_path):
    """OPTIONS too. It has no verb of its own: only who may do everything may send it."""
    with fleet("florin", directory=tmp_path, workspace=None, args=("--runtime", "process")) as (_, florin):
        pods = "/api/v1/namespaces/default/pods"
        florin.api("POST", pods, pod("echo", containers=[container("c", "selvedge.dev/sample/echo", ports=[{"containerPort": 8080}])]))
        florin.api("POST", "/api/v1/namespaces/default/services", {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "echo"}, "spec": {"selector": {"app": "echo"}, "ports": [{"port": 80, "targetPort": 8080}]}})
        paths = (f"{pods}/echo:8080/proxy/some/path", "/api/v1/namespaces/default/services/echo:80/proxy/some/path")
        for path in paths:
            wait_for(path, lambda: florin.request("GET", path)[0] == 200, 60, every=0.1)
            for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
                code, _, body = florin.request(method, path)
                assert code == 200 and f"{method} /some/path".encode() in body, (method, path, code, body)
        for name, verbs in (("most", ["get", "list", "create", "update", "patch", "delete"]), ("all", ["*"])):
            florin.api("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
                "rules": [{"apiGroups": [""], "resources": ["pods/proxy", "services/proxy"], "verbs": verbs}]})
            florin.api("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]})
            wait_for("the role", lambda: florin.request("GET", paths[0], headers={"Impersonate-User": name})[0] == 200, 10)
            for path in paths:
                assert florin.request("OPTIONS", path, headers={"Impersonate-User": name})[0] == (200 if name == "all" else 403), (name, path)
        # Nothing else takes it.
        for path in (pods, f"{pods}/echo", f"{pods}/echo/log", "/api/v1/nodes"):
            assert florin.request("OPTIONS", path)[0] == 405, path


def test_links_of_a_page_lead_through_the_proxy(tmp_path):
    with fleet("florin", directory=tmp_path, workspace=None, args=("--runtime", "process")) as (_, florin):
        pods, services = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/services"
        page = '<html><a href="/next">next</a><img src=/logo.png><a href="here">here</a><script>var a = \'<a href="/x">\'</script>'
        florin.api("POST", "/api/v1/namespaces/default/configmaps", {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pages"}, "data": {"index.html": page, "plain.txt": page}})
        florin.api("POST", pods, pod("site", volumes=[{"name": "pages", "configMap": {"name": "pages"}}], containers=[container(
            "c", "selvedge.dev/sample/web", ports=[{"containerPort": 8080}], volumeMounts=[{"name": "pages", "mountPath": "/srv"}])]))
        florin.api("POST", services, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "site"}, "spec": {
            "selector": {"app": "site"}, "ports": [{"port": 80, "targetPort": 8080}]}})
        for prefix in (f"{pods}/site:8080/proxy", f"{services}/site:80/proxy"):
            wait_for(prefix, lambda: florin.request("GET", f"{prefix}/index.html", accept="*/*")[0] == 200, 60, every=0.1)
            code, headers, body = florin.request("GET", f"{prefix}/index.html", accept="*/*")
            assert code == 200 and headers["content-type"].startswith("text/html")
            assert body.decode() == page.replace('href="/next"', f'href="{prefix}/next"').replace("src=/logo", f"src={prefix}/logo")
            assert florin.request("GET", f"{prefix}/plain.txt", accept="*/*")[2].decode() == page
            assert florin.request("HEAD", f"{prefix}/index.html", accept="*/*")[0] == 200
