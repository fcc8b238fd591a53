"""What no good client sends. After each: a proper Status, a server that still answers, memory that stays bounded."""
import contextlib
import json
import socket
import struct
import threading
import time

import pytest

from center import join
from manifests import configmap

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
MERGE, STRATEGIC, APPLY, JSON_PATCH = ("application/merge-patch+json", "application/strategic-merge-patch+json",
                                       "application/apply-patch+yaml", "application/json-patch+json")
DEEP = 100_000
GROWTH_KIB = 192 << 10  # what a test may leave behind; allocators keep some of a 10 MB body


@pytest.fixture(autouse=True)
def survives(center):
    before = center.rss()
    yield
    center.still_answers()
    assert center.rss() < before + GROWTH_KIB, f"memory grew from {before} to {center.rss()} KiB"


def a_status(status, headers, body, codes):
    assert status in codes, (status, body[:300])
    found = json.loads(body)
    assert found["kind"] == "Status" and found["status"] == "Failure" and found["code"] == status, found
    assert found["message"]
    return found


def nested(opening, closing, middle=""):
    return opening * DEEP + middle + closing * DEEP


MALFORMED = {
    "empty": (JSON, b""),
    "not json": (JSON, b"not json"),
    "cut short": (JSON, b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"'),
    "two values": (JSON, b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}} {}'),
    "a list": (JSON, b"[]"),
    "null": (JSON, b"null"),
    "a number": (JSON, b"1e999999"),
    "invalid utf-8": (JSON, b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"\xff\xfe"}}'),
    "lone surrogate": (JSON, b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"\\ud800"}}'),
    "nul in the name": (JSON, b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a\\u0000b"}}'),
    "metadata is a list": (JSON, b'{"apiVersion":"v1","kind":"ConfigMap","metadata":[]}'),
    "labels are numbers": (JSON, b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"x":1}}}'),
    "deep lists": (JSON, nested("[", "]").encode()),
    "deep maps": (JSON, ('{"apiVersion":"v1","kind":"ConfigMap","x":' + nested('{"a":', "}", "1") + "}").encode()),
    "deep and open": (JSON, ("[" * DEEP).encode()),
    "yaml tabs": (YAML, b"apiVersion: v1\n\tkind: ConfigMap\n"),
    "yaml cut short": (YAML, b"apiVersion: v1\nkind: {ConfigMap\n"),
    "yaml deep flow": (YAML, nested("[", "]").encode()),
    "yaml deep maps": (YAML, nested("{a: ", "}", "1").encode()),
    "yaml deep block": (YAML, "\n".join(" " * i + "a:" for i in range(1500)).encode()),
    "yaml aliases": (YAML, ("a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"a{i}: &a{i} [" + ",".join([f"*a{i - 1}"] * 9) + "]\n" for i in range(1, 12))).encode()),
    "yaml anchors to itself": (YAML, b"a: &a [*a]\n"),
    "yaml binary": (YAML, bytes(range(256))),
    "protobuf without magic": (PROTOBUF, b"\x0a\x02v1"),
    "protobuf of noise": (PROTOBUF, b"k8s\x00" + bytes((i * 37) % 256 for i in range(500))),
    "protobuf cut short": (PROTOBUF, b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\xff\xff\xff\x7f"),
    "protobuf of endless varints": (PROTOBUF, b"k8s\x00" + b"\xff" * 1000),
    "protobuf of deep groups": (PROTOBUF, b"k8s\x00" + b"\x0b" * DEEP),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_body(center, ns, name):
    content_type, body = MALFORMED[name]
    a_status(*center.request("POST", f"/api/v1/namespaces/{ns}/configmaps", body, content_type), codes={400, 413, 422})


def deep_message(levels):
    """JSONSchemaProps nested in themselves (`not`, field 26), the deepest a built-in kind can go in protobuf."""
    body = b""
    for _ in range(levels):
        length, size = len(body), b""
        while length >= 0x80:
            size += bytes([length & 0x7F | 0x80])
            length >>= 7
        body = b"\xd2\x01" + size + bytes([length]) + body
        if len(body) > 1_000_000:
            break
    return body


def test_protobuf_nested_deeply(center):
    inner = deep_message(5000)
    def field(number, data):
        key, length, size = number << 3 | 2, len(data), b""
        while length >= 0x80:
            size += bytes([length & 0x7F | 0x80])
            length >>= 7
        return bytes([key]) + size + bytes([length]) + data
    schema = field(1, inner)                      # CustomResourceValidation.openAPIV3Schema
    version = field(1, b"v1") + field(4, schema)  # CustomResourceDefinitionVersion
    spec = field(1, b"deep.example.com") + field(7, version)
    crd = field(1, field(1, b"deeps.deep.example.com")) + field(2, spec)
    meta = field(1, field(1, b"apiextensions.k8s.io/v1") + field(2, b"CustomResourceDefinition"))
    a_status(*center.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                             b"k8s\x00" + meta + field(2, crd), PROTOBUF), codes={400, 413, 422})


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC, APPLY, JSON_PATCH])
@pytest.mark.parametrize("body", [b"", b"{", b"[" * DEEP, nested('{"a":', "}", "1").encode(), b"\xff\xfe", b"null", b"17", b'"x"',
                                  b'[{"op":"nonsense"}]', b'[{"op":"add","path":"data"}]', b'{"data":{"$patch":"nonsense"}}',
                                  b'{"metadata":{"name":"other"}}'],
                         ids=["empty", "open", "deep-open", "deep", "utf8", "null", "number", "string", "op", "path", "directive", "name"])
def test_malformed_patch(center, ns, content_type, body):
    path = f"/api/v1/namespaces/{ns}/configmaps/m"
    center.request("POST", f"/api/v1/namespaces/{ns}/configmaps", configmap("m", a="1"))
    answer = center.request("PATCH", f"{path}?fieldManager=t", body, content_type)
    if answer[0] == 200:
        # A patch of nothing is one; it must have changed nothing.
        assert json.loads(answer[2])["data"] == {"a": "1"}
    else:
        a_status(*answer, codes={400, 409, 413, 415, 422, 500})  # upstream says 500 to an unknown directive


@pytest.mark.parametrize("content_type,body", [
    (JSON, b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"big"},"data":{"x":"' + b"x" * 10_000_000 + b'"}}'),
    (YAML, b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: big}\ndata:\n  x: " + b"x" * 10_000_000),
    (PROTOBUF, b"k8s\x00" + b"\x0a\x80\xad\xe2\x04" + b"x" * 10_000_000),
    (JSON, b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"big"},"x":[' + b"[]," * 3_300_000 + b"0]}"),
], ids=["json", "yaml", "protobuf", "many-lists"])
def test_ten_megabytes(center, ns, content_type, body):
    try:
        answer = center.request("POST", f"/api/v1/namespaces/{ns}/configmaps", body, content_type)
    except OSError:
        return  # refused while still sending is right too
    a_status(*answer, codes={400, 413, 422})


def test_ten_megabytes_without_a_length(center, ns):
    """Chunked, so the limit must be kept while reading."""
    with center.socket() as s:
        s.sendall(f"POST /api/v1/namespaces/{ns}/configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\n"
                  f"{authorization(center)}Transfer-Encoding: chunked\r\n\r\n".encode())
        with contextlib.suppress(OSError):  # the server may close its end while this is still sent
            for _ in range(160):
                s.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            s.sendall(b"0\r\n\r\n")
        assert status_code(s) in (400, 413)


def status_code(s):
    """The status of the answer on a socket. A connection that ends without an answer fails the test."""
    first = s.recv(65536).split(b"\r\n")[0]
    assert first.startswith(b"HTTP/1.1 "), f"the connection ended without an answer: {first!r}"
    return int(first.split()[1])


def authorization(center):
    return f"Authorization: Bearer {center.token}\r\n" if center.token else ""


@pytest.mark.parametrize("headers,code", [
    ([f"X-{i}: y" for i in range(5000)], 431), (["X-Big: " + "y" * 2_000_000], 431), (["X-Space : y"], 400),
    ([": y"], 400), (["\x00: y"], 400), (["Host: a", "Host: b"], 200),
    (["Content-Length: 5", "Content-Length: 6"], 400), (["Content-Length: -1"], 400),
    (["Content-Length: 99999999999999999999"], 400), (["Transfer-Encoding: chunked", "Content-Length: 3"], 200),
], ids=["many", "large", "space", "nameless", "nul", "two-hosts", "two-lengths", "negative", "huge", "smuggle"])
def test_header_floods(center, headers, code):
    with center.socket(timeout=15) as s:
        with contextlib.suppress(OSError):  # the server may close its end while this is still sent
            s.sendall(("GET /version HTTP/1.1\r\n" + authorization(center) + "Host: x\r\nConnection: close\r\n"
                       + "\r\n".join(headers) + "\r\n\r\n").encode())
        assert status_code(s) == code


def test_long_request_line(center):
    with center.socket(timeout=15) as s:
        with contextlib.suppress(OSError):
            s.sendall(b"GET /api/v1/" + b"a" * 3_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status_code(s) in (414, 431)


def test_slow_clients_do_not_hold_up_others(center):
    """Slowloris: many connections that send a header now and then, and some that never finish the handshake."""
    slow = []
    for i in range(150):
        if i % 3:
            s = center.socket()
            s.sendall(b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n")
        else:
            s = socket.create_connection((center.host, center.port), timeout=30)
        slow.append(s)
    took = []
    for round_ in range(5):
        for s in slow:
            try:
                s.sendall(b"X" if round_ == 0 else b"y")
            except OSError:
                pass
        begun = time.monotonic()
        center.still_answers()
        took.append(time.monotonic() - begun)
        time.sleep(0.1)
    for s in slow:
        s.close()
    assert max(took) < 5, took


def test_slow_body(center, ns):
    """A body that stops in the middle must not hold anything that others need."""
    with center.socket(timeout=5) as s:
        s.sendall(f"POST /api/v1/namespaces/{ns}/configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\n{authorization(center)}"
                  "Content-Length: 1000\r\n\r\n{".encode())
        center.api("POST", f"/api/v1/namespaces/{ns}/configmaps", configmap("m"))


def watched(answer, until):
    """The objects of a watch's events as they come, up to the first for which `until` says so."""
    for line in answer:
        found = json.loads(line)["object"]
        yield found
        if until(found):
            return


def rest_of_answer(s):
    """Everything up to the last chunk of an answer in chunks."""
    rest = bytearray()
    while not rest.endswith(b"\r\n0\r\n\r\n"):
        piece = s.recv(1 << 20)
        assert piece, f"the connection ended inside of an answer: {rest[-200:]!r}"
        rest += piece
    return bytes(rest)


def test_slow_watcher_is_cut_and_not_the_server(center, ns):
    """Watchers that read nothing while a lot is written: the server's memory stays bounded, another watcher sees every
    event, and each of the slow ones is told at last that it has missed some, and its answer ends."""
    path, writes = f"/api/v1/namespaces/{ns}/configmaps", 300
    version = center.api("POST", path, configmap("m", x="0"))["metadata"]["resourceVersion"]
    query = f"?watch=true&resourceVersion={version}"
    slow, seen, reader = [], [], None
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            s = stack.enter_context(center.socket(timeout=60))
            s.sendall(f"GET {path}{query} HTTP/1.1\r\nHost: x\r\n{authorization(center)}\r\n".encode())
            slow.append(s)
            # The answer's head shows that the watch has begun.
            assert status_code(s) == 200
        quick = stack.enter_context(contextlib.closing(center.connection(60)))
        quick.request("GET", path + query, headers={"Authorization": f"Bearer {center.token}"} if center.token else {})
        answer = quick.getresponse()
        last = lambda object_: object_["data"].get("x", "").startswith(f"{writes - 1}x")
        reader = threading.Thread(
            target=lambda: seen.extend(o["data"].get("x", "").split("x")[0] for o in watched(answer, last)))
        reader.start()
        before = center.rss()
        for i in range(writes):
            center.api("PATCH", f"{path}/m", {"data": {"x": f"{i}x" + "x" * 200_000}}, content_type=MERGE)
        grown = center.rss() - before
        join(reader)
        assert seen == [str(i) for i in range(writes)], f"{len(seen)} of {writes} events"
        # 60 MB of events for each of twenty idle watchers would be 1200 MB if they were kept for each.
        assert grown < 256 << 10, f"grew by {grown} KiB"
        for s in slow:
            rest = rest_of_answer(s)
            assert b'"code":410' in rest[-1000:] and b"too old resource version" in rest[-1000:], rest[-1000:]
            assert len(rest) < writes * 200_000 // 2, "it was sent more than what was on its way when it stopped reading"


@pytest.mark.parametrize("path,codes", [
    ("/api/v1/namespaces/default/../kube-system/configmaps", {301, 400, 403, 404}),
    ("/../../../../etc/passwd", {301, 400, 403, 404}),
    ("/api/v1/namespaces/%2e%2e/configmaps", {200, 301, 400, 403, 404, 500}),
    ("/api/v1/namespaces/a%2fb/configmaps/x", {301, 400, 403, 404}),
    ("/api/v1/namespaces/default/configmaps/a%2Fb", {400, 403, 404}),
    ("/api/v1//namespaces", {200, 301, 400, 403, 404}),
    ("//api/v1/namespaces", {200, 301, 400, 403, 404}),
    ("/api/v1/namespaces//configmaps", {200, 301, 400, 403, 404}),
    ("/api/v1/namespaces/default/configmaps//", {200, 301, 400, 404}),
    ("/api/v1/namespaces/%00/configmaps", {200, 400, 404}),
    ("/api/v1/namespaces/%ff%fe/configmaps", {200, 400, 404}),
    ("/api/v1/namespaces/%zz/configmaps", {400, 404}),
    ("/api/v1/namespaces/default/configmaps?labelSelector=" + "a," * 5000, {200, 400, 414, 431}),
    ("/api/v1/namespaces/default/configmaps?labelSelector=%28%28%28", {400}),
    ("/api/v1/namespaces/default/configmaps?fieldSelector=%3D%3D%2C", {200, 400}),
    ("/api/v1/namespaces/default/configmaps?limit=-1", {200, 400}),
    ("/api/v1/namespaces/default/configmaps?limit=99999999999999999999", {400}),
    ("/api/v1/namespaces/default/configmaps?resourceVersion=-1", {400}),
    ("/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=-5&resourceVersion=abc", {400, 500}),
    ("/api/v1/namespaces/default/configmaps?continue=" + "A" * 4000, {400}),
    ("/clusters/", {400, 403, 404}),
    ("/clusters/%2e%2e/api", {400, 403, 404}),
    ("/clusters/root:nowhere/api/v1/namespaces", {200, 400, 403, 404}),
    ("/api/v1/" + "x/" * 2000, {400, 404, 414}),
])
def test_path_tricks(center, path, codes):
    status, headers, body = center.request("GET", path)
    assert status in codes, (status, body[:300])
    assert b"root:x:" not in body
    if status >= 400 and "json" in headers.get("Content-Type", headers.get("content-type", "")):
        assert json.loads(body)["kind"] == "Status"


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "OPTIONS", "PROPFIND", "get"])
def test_odd_methods(center, method):
    with center.socket(timeout=10) as s:
        s.sendall(f"{method} /api/v1/namespaces HTTP/1.1\r\nHost: x\r\n{authorization(center)}Connection: close\r\n\r\n".encode())
        first = s.recv(65536).split(b"\r\n")[0]
        assert first.split()[1] in (b"400", b"403", b"404", b"405", b"501"), first


@pytest.mark.parametrize("accept,codes", [("application/xml", {406}), ("text/*;q=x", {406, 200}), ("," * 3000, {200, 406, 400}),
                                          ("application/json;as=Table;v=v99;g=meta.k8s.io", {406})])
def test_odd_accept(center, accept, codes):
    assert center.request("GET", "/api/v1/namespaces/default/configmaps", accept=accept)[0] in codes


def test_odd_content_type(center, ns):
    a_status(*center.request("POST", f"/api/v1/namespaces/{ns}/configmaps", configmap("m"), "text/xml"), codes={415})
    a_status(*center.request("PATCH", f"/api/v1/namespaces/{ns}/configmaps/m", b"{}", "application/json"), codes={404, 415})


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def test_http2_floods(center):
    """Resets and pings by the thousand (the rapid-reset attack), and nonsense frames."""
    import ssl
    context = ssl.create_default_context(cafile=str(center.ca))
    context.set_alpn_protocols(["h2"])
    if center.cert:
        context.load_cert_chain(str(center.cert), str(center.key))
    for flood in (b"".join(frame(1, 5, 2 * i + 1, b"\x82\x84\x87") + frame(3, 0, 2 * i + 1, b"\0\0\0\x08") for i in range(20000)),
                  b"".join(frame(6, 0, 0, b"12345678") for _ in range(50000)),
                  frame(4, 0, 0, struct.pack(">HI", 4, 0xFFFFFFFF)), frame(99, 0xFF, 7, b"x" * 5000),
                  frame(1, 4, 1, b"\xff" * 4000)):
        with context.wrap_socket(socket.create_connection((center.host, center.port), timeout=10), server_hostname=center.host) as s:
            try:
                s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
                s.sendall(flood)
            except OSError:
                pass
        center.still_answers()


def test_not_tls_at_all(center):
    for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 1000, b"\0" * 70000):
        with socket.create_connection((center.host, center.port), timeout=5) as s:
            try:
                s.sendall(junk)
                s.recv(100)
            except OSError:
                pass
        center.still_answers()
