"""Writers at the center, status writers at the edges, watchers on the edges; and kill -9 of either side, cut, stalled, half-open and
slow links, restarts while offline, at random moments, over and over (`make link-torture`).

What must hold after every round, once the faults are over and all is quiet:
  - each edge holds exactly what the center's workspace says: nothing lost, nothing too many, nothing old;
  - an object vanished from an edge only if somebody deleted it at the center;
  - the status that the center knows of an object is the edge's;
  - versions go back nowhere;
  - who watches an edge, resuming by version through every restart, has seen an unbroken history that ends in what is there;
  - an edge that starts without its center serves what it served before.
"""
import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import time

from center import Center, wait_for
from edge import CONFIRM, Edge, Wire, annotate, differences, make_workspace, objects, reported
from manifests import configmap, deployment

SHOP = "root:shop"
MAPS, APPS = "/api/v1/namespaces/default/configmaps", "/apis/apps/v1/namespaces/default/deployments"
COLLECTIONS = (MAPS, APPS, "/api/v1/namespaces")
# Never deleted, so that no deletion of others is more than half of what there is.
STEADY = 30


class Writer(threading.Thread):
    """Creates, changes and deletes its own objects at the center. What fails under a fault is tried again with another."""

    def __init__(self, torture, number):
        super().__init__(daemon=True)
        self.torture, self.number = torture, number
        self.random = random.Random(f"{torture.seed}-{torture.round}-{number}")

    def run(self):
        while not self.torture.stopping:
            try:
                self.one_write()
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)  # the center is dead just now
            time.sleep(self.random.random() * 0.02)

    def one_write(self):
        t, name = self.torture, f"w{self.number}-{self.random.randrange(8)}"
        path = APPS if self.random.random() < 0.3 else MAPS
        what = self.random.random()
        if what < 0.2:
            t.deleting(path, name)
            return t.write("DELETE", f"{path}/{name}")
        value = t.next_value()
        padding = "x" * self.random.choice([0, 10, 1000, 20000])
        labels = {"torture": "yes", "value": value} if self.random.random() < 0.5 else {"torture": "yes"}
        body = configmap(name, labels, value=value, padding=padding) if path == MAPS else deployment(name, int(value) % 7)
        if path == APPS:
            body["metadata"]["annotations"] = {"value": value}
        if t.write("PUT", f"{path}/{name}", body) == 404:
            t.write("POST", path, body)
        return None


class Reporter(threading.Thread):
    """Writes the status of Deployments on an edge, as its workload controllers would."""

    def __init__(self, torture, edge):
        super().__init__(daemon=True)
        self.torture, self.edge = torture, edge
        self.random = random.Random(f"{torture.seed}-{torture.round}-{edge.name}")

    def run(self):
        while not self.torture.stopping:
            try:
                there = list(objects(self.edge, APPS))
                if there:
                    name = self.random.choice(there).split("/")[1]
                    status = {"status": {"observedGeneration": self.random.randrange(1, 1000), "replicas": self.random.randrange(9)}}
                    self.edge.request("PATCH", f"{APPS}/{name}/status", status, content_type="application/merge-patch+json", timeout=5)
            except (OSError, http.client.HTTPException, AssertionError):
                time.sleep(0.05)
            time.sleep(self.random.random() * 0.05)


class Watcher(threading.Thread):
    """Follows a collection of an edge as an informer does: from the last version it saw, through every restart."""

    def __init__(self, torture, edge, path):
        super().__init__(daemon=True)
        self.torture, self.edge, self.path = torture, edge, path
        listed = edge.api("GET", path)
        self.last = int(listed["metadata"]["resourceVersion"])
        self.copy = {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in listed["items"]}
        self.uids = {o["metadata"]["name"]: o["metadata"]["uid"] for o in listed["items"]}
        self.deleted, self.events = collections.Counter(), 0

    def run(self):
        while not self.torture.over:
            try:
                self.follow()
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.02)

    def follow(self):
        connection = self.edge.connection(timeout=5)
        connection.request("GET", f"{self.path}?watch=true&allowWatchBookmarks=true&resourceVersion={self.last}")
        reply = connection.getresponse()
        if reply.status != 200:
            body = reply.read()[:300]
            return self.wrong(f"watch from {self.last}: {reply.status} {body!r}") if reply.status < 429 else None
        while not self.torture.over:
            line = reply.readline()
            if not line.endswith(b"\n"):
                return None  # cut in the middle of an event: it will come again
            self.take(json.loads(line))
        return None

    def take(self, event):
        o, kind = event["object"], event["type"]
        if kind == "ERROR":
            return self.wrong(f"who resumes from {self.last} is told {o}")
        rv, name = int(o["metadata"]["resourceVersion"]), o["metadata"].get("name")
        if rv < self.last or (rv == self.last and kind != "BOOKMARK"):
            return self.wrong(f"{kind} {rv} after {self.last}: out of order, or twice")
        self.last = rv
        if kind == "BOOKMARK":
            return None
        self.events += 1
        known = name in self.copy
        if (kind == "ADDED") == known:
            self.wrong(f"{kind} of {name}, which was {'there' if known else 'not there'}: something in between was missed")
        if known and kind == "MODIFIED" and self.uids[name] != o["metadata"]["uid"]:
            self.wrong(f"{name} is another object all of a sudden")
        if kind == "DELETED":
            self.copy.pop(name, None)
            self.deleted[name] += 1
        else:
            self.copy[name], self.uids[name] = o["metadata"]["resourceVersion"], o["metadata"]["uid"]
        return None

    def wrong(self, message):
        self.torture.fail(f"watcher of {self.edge.name} {self.path.rsplit('/', 1)[1]}: {message}")


class LinkTorture:
    def __init__(self, directory, edges=("florin", "guilder"), writers=3, seed=None):
        self.seed = seed if seed is not None else random.randrange(1 << 30)
        self.random = random.Random(self.seed)
        base = pathlib.Path(directory)
        self.center = Center(base / "center")
        self.base, self.names, self.writers = base, edges, writers
        self.lock, self.failures, self.values, self.round = threading.Lock(), [], 0, 0
        self.deletions = collections.Counter()
        self.stopping = self.over = False
        self.edges, self.wires, self.watchers, self.newest = [], [], [], collections.defaultdict(int)
        self.writes, self.faults = 0, collections.Counter()

    def fail(self, message):
        with self.lock:
            self.failures.append(f"round {self.round}: {message}")

    def next_value(self):
        with self.lock:
            self.values += 1
            return str(self.values)

    def deleting(self, path, name):
        with self.lock:
            self.deletions[path, name] += 1

    def write(self, method, path, body=None):
        status, _, raw = self.center.request(method, f"/clusters/{SHOP}{path}", body, timeout=10)
        if status in (200, 201):
            self.writes += 1
        elif status not in (404, 409, 429, 503):
            self.fail(f"{method} {path}: {status} {raw[:300]!r}")
        return status

    # ---- a run ----

    def run(self, rounds, report=lambda line: None):
        try:
            self.set_up()
            for self.round in range(1, rounds + 1):
                began = time.monotonic()
                faults = self.one_round()
                report(f"round {self.round}: {'; '.join(faults)}: {time.monotonic() - began:.1f} s, {self.writes} writes, "
                       f"{sum(w.events for w in self.watchers)} events")
                if self.failures:
                    break
        finally:
            self.over = True
            for process in (*self.edges, self.center):
                process.kill()
            for wire in self.wires:
                wire.close()
        return self.failures

    def set_up(self):
        self.center.start()
        make_workspace(self.center, SHOP)
        for i in range(STEADY):
            self.write("POST", MAPS, configmap(f"steady-{i}", value="0"))
        for name in self.names:
            wire = Wire(self.center.port)
            self.wires.append(wire)
            edge = Edge(self.center, self.base / name, name, SHOP, through=wire)
            self.edges.append(edge)
            edge.start()
        self.settle()
        for edge in self.edges:
            self.watchers += [Watcher(self, edge, path) for path in (MAPS, APPS)]
        for watcher in self.watchers:
            watcher.start()

    def one_round(self):
        self.stopping = False
        threads = [Writer(self, i) for i in range(self.writers)] + [Reporter(self, edge) for edge in self.edges]
        for thread in threads:
            thread.start()
        done = []
        for _ in range(self.random.choice([1, 1, 2, 3])):
            time.sleep(self.random.random() * 0.4)
            done.append(self.one_fault())
        time.sleep(self.random.random() * 0.3)
        self.stopping = True
        for thread in threads:
            thread.join(20)
        self.mend()
        self.settle()
        self.check()
        return done

    def one_fault(self):
        at = self.random.randrange(len(self.edges))
        edge, wire = self.edges[at], self.wires[at]
        name, fault = self.random.choice([
            ("kill -9 of the center", lambda: (self.center.kill(), self.center.start())),
            ("kill -9 of the center, away for a while", lambda: (self.center.kill(), time.sleep(0.7), self.center.start())),
            ("kill -9 of EDGE", lambda: (edge.kill(), edge.start())),
            ("kill -9 of both", lambda: (edge.kill(), self.center.kill(), edge.start(), self.center.start())),
            ("stop of EDGE", lambda: (edge.stop(), edge.start())),
            ("cut of EDGE", wire.cut),
            ("stall of EDGE", wire.stall),
            ("EDGE hears nothing", lambda: wire.half_open("up")),
            ("EDGE is not heard", lambda: wire.half_open("down")),
            ("slow link of EDGE", lambda: wire.open(delay=0.05)),
            ("EDGE is reset", wire.reset),
            ("the center does not notice that EDGE is gone", wire.lose_edge),
            ("restart of EDGE offline", lambda: self.offline_restart(edge, wire)),
        ])
        self.faults[name] += 1
        fault()
        return name.replace("EDGE", edge.name)

    def offline_restart(self, edge, wire):
        wire.cut()
        link = "/api/v1/namespaces/kube-system/configmaps/selvedge-link"
        wait_for("the edge to notice", lambda: edge.api("GET", link)["data"]["state"] == "Offline", 20)
        # What had arrived may still be applied: two looks in a row that see the same.
        before, earlier = {MAPS: self.shapes(edge, MAPS)}, None
        while before != earlier:
            time.sleep(0.3)
            before, earlier = {MAPS: self.shapes(edge, MAPS)}, before
        edge.kill()
        edge.start()
        for path, shapes in before.items():
            after = self.shapes(edge, path)
            if after != shapes:
                gone, new = sorted(shapes.keys() - after.keys()), sorted(after.keys() - shapes.keys())
                changed = [n for n in shapes if n in after and shapes[n] != after[n]]
                self.fail(f"{edge.name} started offline with another {path}: without {gone}, with {new}, changed {changed}")

    def shapes(self, edge, path):
        return {n: (o["metadata"]["resourceVersion"], o["metadata"]["uid"]) for n, o in objects(edge, path).items()}

    def mend(self):
        for wire in self.wires:
            wire.open()
        for process in (self.center, *self.edges):
            if not process.alive():
                self.fail(f"a process ended by itself: {process.log_tail(5)}")
                process.start()

    # ---- what must hold ----

    def settle(self, seconds=90):
        """Waits until both ends agree; what still differs then is a failure."""
        end = time.monotonic() + seconds
        while True:
            wrong = [f"{edge.name}: {d}" for edge in self.edges for path in COLLECTIONS
                     for d in differences(self.center, SHOP, edge, path, local=False)]
            wrong = wrong or [f"{edge.name}: {d}" for edge in self.edges for d in self.status_differences(edge)]
            if not wrong:
                return
            for edge in self.edges:
                self.confirm(edge)
            if time.monotonic() > end:
                for message in wrong[:5]:
                    self.fail(f"not settled after {seconds} s: {message}")
                return
            time.sleep(0.1)

    def confirm(self, edge):
        """So many deletions in a minute may be more than half of what the edge has: then somebody has to say that they are meant."""
        held = edge.condition("DeletionHeld")
        if held and held["status"] == "True":
            self.faults["deletions confirmed"] += 1
            annotate(self.center, edge.name, **{CONFIRM: held["message"].split()[0]})

    def status_differences(self, edge):
        known = reported(self.center, edge)
        for name, o in objects(edge, APPS).items():
            state = known.get(f"apps/deployments/{name}") or {}
            if (state.get("status") or {}) != (o.get("status") or {}):
                yield f"the center knows {state} of {name}, which is {o.get('status')}"

    def check(self):
        for server in (self.center, *self.edges):
            rv = int(server.api("GET", MAPS)["metadata"]["resourceVersion"])
            if rv < self.newest[server]:
                self.fail(f"{server.data_dir.name} went back from {self.newest[server]} to {rv}")
            self.newest[server] = rv
        for watcher in self.watchers:
            there = {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in objects(watcher.edge, watcher.path).values()}
            end = time.monotonic() + 20
            while watcher.copy != there and time.monotonic() < end and not self.failures:
                time.sleep(0.02)
                there = {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in objects(watcher.edge, watcher.path).values()}
            if watcher.copy != there:
                odd = sorted(n for n in watcher.copy.keys() | there.keys() if watcher.copy.get(n) != there.get(n))
                watcher.wrong(f"ends with a copy that differs from the list in {odd[:5]}")
            for name, times in watcher.deleted.items():
                if times > self.deletions[watcher.path, name]:
                    watcher.wrong(f"{name} vanished {times} times, and was deleted {self.deletions[watcher.path, name]} times")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("LINK_ROUNDS", "200")))
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="selvedge-link-torture-")
    torture = LinkTorture(directory, seed=args.seed)
    print(f"{args.rounds} rounds, seed {torture.seed}", flush=True)
    failures = torture.run(args.rounds, lambda line: print(line, flush=True))
    if failures:
        print(*failures[:20], f"the data directories are kept: {directory}", sep="\n")
        sys.exit(1)
    shutil.rmtree(directory)
    print(f"{args.rounds} rounds: both sides agree; nothing lost, nothing deleted unasked, no gap", dict(torture.faults))


if __name__ == "__main__":
    main()
