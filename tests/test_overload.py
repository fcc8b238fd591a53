"""Overload: one tenant asks for ten times what the server can do, and another hardly notices.

A short form by default; OVERLOAD_SECONDS=60 for the whole minute.
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import threading
import time

import pytest

from attacks import tenant
from center import Center, binary, join, wait_for

SECONDS = int(os.environ.get("OVERLOAD_SECONDS", "6"))
# The promise is 5 times the quiet value, and the whole minute holds a release build to it. An unoptimised build needs several times the
# processor for a request, so that who has a seat is waited for longer; a starved tenant would wait for seconds.
BOUND = 5 if SECONDS >= 60 else 30
# Twenty times what is worked on at once: requests in flight, from clients that do not hold back when they are refused.
TENFOLD = 20 * (4 + 16) * max(os.cpu_count(), 2)


@pytest.fixture(scope="module")
def center(tmp_path_factory):
    center = Center(tmp_path_factory.mktemp("overload") / "data")
    try:
        yield center.start()
    finally:
        center.kill()


def kbench():
    path = pathlib.Path(os.environ.get("KBENCH_BIN") or pathlib.Path(binary()).parent / "kbench")
    if not path.is_file():
        pytest.skip(f"{path} is not built: 'make build' builds it")
    return str(path)


def load(center, who, *args, **kw):
    path, token = who
    command = [kbench(), "--url", center.url.split("/clusters/")[0] + path, "--ca", str(center.ca), "--token", token,
               "--pid", str(center.process.pid), *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **kw)


def result(process):
    said = json.loads(process.communicate(timeout=SECONDS * 2 + 60)[0])
    assert "error" not in said, said
    return said


@pytest.mark.timeout(SECONDS * 4 + 60)
@pytest.mark.alone
def test_one_tenant_does_not_starve_another(center):
    loud, quiet = tenant(center, "loud"), tenant(center, "quiet")
    # Neighbours on the same machine can spoil a measurement of some seconds, so there is a second one.
    tries = [one_against_the_other(center, loud, quiet, attempt=1)]
    if tries[0][0] >= BOUND:
        tries.append(one_against_the_other(center, loud, quiet, attempt=2))
    assert min(tries)[0] < BOUND, [said for _, said in tries]


def step_back():
    """A process of its own session competes as its session does, where the kernel groups by session."""
    os.nice(19)
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/autogroup").write_text("19")


def one_against_the_other(center, loud, quiet, attempt):
    """How many times its quiet value the quiet tenant's p99 is while the loud one floods, and the whole story."""
    calm = ("mixed", "--clients", 2, "--objects", 5, "--count", 1_000_000)
    alone = result(load(center, quiet, *calm, "--seconds", max(3, SECONDS // 4), "--namespace", "calm"))
    before = center.rss()
    # The load generator shares the cores with the server: it must not be what the quiet tenant waits for.
    flood = load(center, loud, "flood", "--clients", TENFOLD, "--seconds", SECONDS + 2, "--namespace", f"flood{attempt}",
                 preexec_fn=step_back, start_new_session=True)
    made = f"/clusters/root:loud/api/v1/namespaces/flood{attempt}/configmaps?labelSelector=kbench-run&limit=1"
    wait_for("the flood", lambda: center.api("GET", made)["items"], 30)
    peak, alive = [center.rss()], []

    def look():
        while flood.poll() is None:
            begun = time.monotonic()
            alive.append((center.request("GET", "/readyz", accept="*/*", timeout=10)[0], time.monotonic() - begun))
            peak.append(center.rss())
            time.sleep(0.25)

    looking = threading.Thread(target=look)
    looking.start()
    meanwhile = result(load(center, quiet, *calm, "--seconds", max(2, SECONDS - 2), "--namespace", "calm"))
    flooded = result(flood)
    join(looking)
    p99 = alone["latency_ms"]["p99"], meanwhile["latency_ms"]["p99"]
    said = (f"quiet p99 {p99[0]:.1f} -> {p99[1]:.1f} ms ({p99[1] / p99[0]:.1f}x), {alone['ops_per_second']:.0f} -> {meanwhile['ops_per_second']:.0f}/s; "
            f"flood: {flooded['ok']} done, {flooded['refused']} refused, {flooded['errors']} failed; memory {before >> 10} -> {max(peak) >> 10} MiB; "
            f"readyz at most {max(t for _, t in alive) * 1e3:.0f} ms")
    print(said)
    assert meanwhile["errors"] == 0, meanwhile["first_error"]
    assert all(status == 200 for status, _ in alive), "health is always answered"
    assert flooded["errors"] == 0, flooded["first_error"]
    assert flooded["ok"] > 100, "the loud one gets what is left"
    # Nothing acknowledged is lost, and nothing refused was done.
    items = center.api("GET", f"/clusters/root:loud/api/v1/namespaces/flood{attempt}/configmaps?labelSelector=kbench-run", timeout=60)["items"]
    assert len(items) == flooded["made"], said
    assert max(peak) - before < 150 << 10, said
    return p99[1] / p99[0], said


def as_tenant(center, token, method, path, body=None):
    """(status, headers, bytes). Without the administrator's certificate, which would count for more than the token."""
    context = ssl.create_default_context(cafile=str(center.ca))
    connection = http.client.HTTPSConnection(center.host, center.port, context=context, timeout=30)
    connection.request(method, path, body and json.dumps(body), {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
    reply = connection.getresponse()
    answer = reply.status, reply.headers, reply.read()
    connection.close()
    return answer


def test_too_much_is_refused_politely(tmp_path):
    """One seat, and slow uploads on it: it is given on, those who wait too long are told to come again, and the system goes on."""
    center = Center(tmp_path / "data", args=["--max-mutating-requests-inflight", "1"])
    try:
        center.start()
        path, token = tenant(center, "slow")
        url = f"{path}/api/v1/namespaces/default/configmaps"
        context = ssl.create_default_context(cafile=str(center.ca))

        def upload():
            slow = context.wrap_socket(socket.create_connection((center.host, center.port), timeout=30), server_hostname=center.host)
            slow.sendall((f"POST {url} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
                          "Content-Length: 1000\r\n\r\n{").encode())
            return slow

        def metric(name):
            metrics = center.request("GET", "/metrics", accept="*/*")[2].decode()
            return int(re.search(rf'apiserver_flowcontrol_{name}\{{priority_level="write"\}} (\d+)', metrics).group(1))

        def write(name):
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
            return as_tenant(center, token, "POST", url, body)

        slow = upload()
        wait_for("the slow upload to have the seat", lambda: metric("current_executing_seats") == 1)
        assert write("a")[0] == 201, "its seat was given on"
        assert b"429" in slow.recv(1000).split(b"\r\n")[0], "and it is gone"

        slow = [upload() for _ in range(20)]
        wait_for("the others to wait", lambda: metric("current_inqueue_requests") > 12)
        assert center.request("GET", "/livez", accept="*/*")[0] == 200
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"}, "spec": {}}
        leases = f"{path}/apis/coordination.k8s.io/v1/namespaces/default/leases"
        assert as_tenant(center, token, "POST", leases, lease)[0] == 429, "leases of a tenant wait with its other writes"
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        assert center.request("POST", leases, lease)[0] == 201, "leader election of the server goes on"
        # Some had to wait too long.
        wait_for("nobody to wait any more", lambda: metric("current_inqueue_requests") == 0)
        told = []
        for s in slow:
            s.settimeout(1)
            with contextlib.suppress(TimeoutError):  # the last one keeps its seat, as nobody wants it
                reply = http.client.HTTPResponse(s, method="POST")
                reply.begin()
                told.append((reply.status, reply.getheader("retry-after"), json.loads(reply.read())))
            s.close()
        assert {status for status, _, _ in told} == {429}, told
        refused = [(after, body) for _, after, body in told if body["message"] == "Too many requests, please try again later."]
        assert refused, told
        for after, body in refused:
            assert body["reason"] == "TooManyRequests" and body["code"] == 429
            assert 1 <= int(after) <= 10 and body["details"]["retryAfterSeconds"] == int(after)
        wait_for("everything to be given back", lambda: metric("current_executing_seats") == metric("current_inqueue_requests") == 0)
        assert metric("rejected_requests_total") >= 1
        assert write("b")[0] == 201
    finally:
        center.kill()
