"""What an edge costs, how fast a change reaches it, and what coming back costs on the wire. One real edge; thousands simulated by kbench."""
import http.client
import json
import pathlib
import statistics
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from center import rss_kib, wait_for  # noqa: E402
from edge import Edge, Wire, make_workspace  # noqa: E402

WORKSPACE = "root:bench"
FLEET = "root:fleet"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
CENTER = f"/clusters/{WORKSPACE}{CONFIGMAPS}"


def configmap(name, n=0, size=1024):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": str(n), "payload": "x" * size}}


class Arrivals:
    """When each object was seen on the edge, by a watch."""

    def __init__(self, edge):
        self.seen, self.changed = {}, threading.Condition()
        headers = {"Authorization": f"Bearer {edge.token}"} if edge.token else {}
        self.connection = http.client.HTTPSConnection(edge.host, edge.port, context=edge._tls, timeout=120)
        self.connection.request("GET", f"{CONFIGMAPS}?watch=true", headers=headers)
        self.reply = self.connection.getresponse()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            for line in self.reply:
                now, name = time.perf_counter(), json.loads(line)["object"]["metadata"]["name"]
                with self.changed:
                    self.seen[name] = now
                    self.changed.notify_all()
        except (OSError, ValueError, http.client.HTTPException):
            pass

    def of(self, name):
        with self.changed:
            if not self.changed.wait_for(lambda: name in self.seen, 30):
                raise SystemExit(f"{name} did not arrive at the edge")
            return self.seen[name]


def percentile(values, q):
    return sorted(values)[min(len(values) - 1, int(len(values) * q))]


def resident(edge):
    """As it is after a restart, connected and quiet."""
    edge.stop()
    edge.start()
    edge.wait_connected()
    time.sleep(3)
    return rss_kib(edge.process.pid) / 1024


def held(edge):
    return len(edge.api("GET", CONFIGMAPS)["items"])


def reconnect(wire, while_away=lambda: None):
    """Bytes in both directions, everything counted, from the first of the new connection until it is quiet again."""
    wire.cut()
    while_away()
    time.sleep(0.3)
    before = sum(wire.carried)
    wire.open()
    carried, since = before, time.monotonic()
    while time.monotonic() - since < 2 or carried == before:
        if sum(wire.carried) != carried:
            carried, since = sum(wire.carried), time.monotonic()
        time.sleep(0.05)
    return carried - before


def measure(args, server, found, kbench):
    """`server` is a fresh center that runs."""
    center, count = server.center, 100 if args.quick else 1000
    make_workspace(center, WORKSPACE)
    wire = Wire(center.port)
    edge = Edge(center, server.directory / "edge", "bench", WORKSPACE, args=["--runtime", "process"], through=wire)
    try:
        edge.start()
        edge.wait_connected()
        found["rss_edge"] = resident(edge)
        arrivals, taken = Arrivals(edge), []
        for n in range(20 if args.quick else 300):
            begun = time.perf_counter()
            center.api("POST", CENTER, configmap(f"arrival-{n}"))
            taken.append((arrivals.of(f"arrival-{n}") - begun) * 1e3)
        taken = taken[10:]
        found["arrival"], found["arrival_p99"] = statistics.median(taken), percentile(taken, 0.99)
        existing = held(edge)
        for n in range(existing, count):
            center.api("POST", CENTER, configmap(f"more-{n}"))
        wait_for("all objects on the edge", lambda: held(edge) >= count, 60)
        found["rss_edge_1k"] = resident(edge)
        found["reconnect"] = statistics.median(reconnect(wire) for _ in range(3))

        def change():
            for n in range(10):
                center.api("PUT", f"{CENTER}/arrival-{n}", configmap(f"arrival-{n}", n + 1))
        found["reconnect_10"] = reconnect(wire, change)
    finally:
        edge.kill()
        wire.close()
    make_workspace(center, FLEET)
    for n in range(20):
        center.api("POST", f"/clusters/{FLEET}{CONFIGMAPS}", configmap(f"fleet-{n}"))
    for suffix, edges in (("", 1000), ("_10k", 10_000)):
        if args.quick and suffix:
            return
        seen = kbench("edges", "--count", edges // 10 if args.quick else edges, "--data-dir", center.data_dir, "--workspace", FLEET,
                      "--pid", center.process.pid)
        if "memory" not in seen:
            return
        found["edges_rss" + suffix] = seen["memory"]["per_edge_kib"]
        found["edges_acked" + suffix] = seen["change"]["acked_by_all_ms"] / 1e3
        found["edges_writes" + suffix] = seen["change"]["store_writes"]
        found["edges_back" + suffix] = seen["storm"]["all_back_ms"] / 1e3
        found["edges_p99" + suffix] = seen["storm"]["api_ms"]["p99"]
