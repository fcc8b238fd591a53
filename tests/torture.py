"""Writers, watchers and kill -9 at random moments; then a restart on the same directory, over and over (`make torture`).

What must hold, whatever the moment:
  - every acknowledged write is there afterwards, and what was in flight happened wholly or not at all;
  - watchers that resume where they were see every acknowledged write exactly once, in order;
  - revisions never go back.
"""
import argparse
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

from center import Center, Etcd

NS = "/api/v1/namespaces/default/configmaps"
GONE = None


class Writer(threading.Thread):
    """Writes its own few objects; knows, for each, the states it may be in after a crash."""

    def __init__(self, torture, number):
        super().__init__(daemon=True)
        self.torture, self.number = torture, number
        self.random = random.Random(f"{torture.seed}-{torture.round}-{number}")
        self.may_be = torture.may_be[number]  # name -> list of possible values, GONE for absent; one when certain

    def run(self):
        connection = self.torture.center.connection(timeout=10)
        try:
            while not self.torture.stopping:
                self.one_write(connection)
        except (OSError, http.client.HTTPException):
            pass  # killed under us: the last write stays uncertain
        finally:
            connection.close()

    def one_write(self, connection):
        t = self.torture
        name = f"w{self.number}-{self.random.randrange(12)}"
        now = self.may_be.get(name, [GONE])[0]
        value = t.next_value()
        padding = "x" * self.random.choice([0, 10, 1000, 20000])
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"torture": "yes"}},
                "data": {"value": value, "padding": padding}}
        if now is GONE:
            method, path = "POST", NS
        elif self.random.random() < 0.25:
            method, path, body, value = "DELETE", f"{NS}/{name}", None, GONE
        else:
            method, path = "PUT", f"{NS}/{name}"
        self.may_be[name] = [now, value]
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if t.center.token:
            headers["Authorization"] = f"Bearer {t.center.token}"
        connection.request(method, path, json.dumps(body) if body else None, headers)
        reply = connection.getresponse()
        raw = reply.read()
        if reply.status == 429:
            self.may_be[name] = [now]
            return time.sleep(0.05)
        if reply.status not in (200, 201):
            return t.fail(f"{method} {name}: {reply.status} {raw[:300]!r}")
        self.may_be[name] = [value]
        # A DELETE answers with the object's last version or a Status, which is not the version of the deletion.
        if value is not GONE:
            t.acknowledged(int(json.loads(raw)["metadata"]["resourceVersion"]), name, value)


class Watcher(threading.Thread):
    """Follows the collection through every crash from the last version it saw, and keeps a copy."""

    def __init__(self, torture, start):
        super().__init__(daemon=True)
        self.torture, self.last, self.copy, self.seen = torture, start, {}, {}
        self.idle_at = 0
        self.lock = threading.Lock()

    def run(self):
        while not self.torture.over:
            try:
                self.follow()
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.02)

    def follow(self):
        t = self.torture
        connection = t.center.connection(timeout=5)
        headers = {"Authorization": f"Bearer {t.center.token}"} if t.center.token else {}
        path = f"{NS}?watch=true&allowWatchBookmarks=true&labelSelector=torture&resourceVersion={self.last}"
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        if reply.status != 200:
            return t.fail(f"watch from {self.last}: {reply.status} {reply.read()[:300]!r}") if reply.status < 429 else None
        while not t.over:
            line = reply.readline()
            if not line.endswith(b"\n"):
                return None  # cut in the middle of an event: it will come again
            self.take(json.loads(line))

    def take(self, event):
        t, o = self.torture, event["object"]
        if event["type"] == "ERROR":
            return t.fail(f"a watch that resumes from {self.last} is told {o}")
        rv = int(o["metadata"]["resourceVersion"])
        with self.lock:
            if event["type"] == "BOOKMARK":
                if rv < self.last:
                    t.fail(f"a bookmark goes back from {self.last} to {rv}")
                self.last = max(self.last, rv)
                return None
            if rv <= self.last:
                return t.fail(f"event {rv} after {self.last}: out of order, or twice")
            self.last = rv
            name = o["metadata"]["name"]
            if event["type"] == "DELETED":
                self.copy.pop(name, None)
            else:
                self.copy[name] = o["data"]["value"]
                self.seen[rv] = (name, o["data"]["value"])
        return None


class Torture:
    def __init__(self, directory, store="sqlite", writers=6, watchers=3, seed=None):
        self.seed = seed if seed is not None else random.randrange(1 << 30)
        self.random = random.Random(self.seed)
        self.etcd = Etcd(directory) if store == "etcd" else None
        self.center = Center(pathlib.Path(directory) / "data", store, self.etcd)
        self.writers, self.watcher_count = writers, watchers
        self.may_be = [{} for _ in range(writers)]
        self.acks, self.max_acked, self.values, self.round = {}, 0, 0, 0
        self.lock, self.failures = threading.Lock(), []
        self.stopping = self.over = False
        self.watchers = []

    def next_value(self):
        with self.lock:
            self.values += 1
            return str(self.values)

    def acknowledged(self, rv, name, value):
        with self.lock:
            if rv in self.acks:
                self.failures.append(f"two writes were told the same version {rv}: {self.acks[rv]} and {(name, value)}")
            if rv <= self.floor:
                self.failures.append(f"version {rv} of {name} is not above {self.floor}, acknowledged before the restart")
            self.acks[rv] = (name, value)
            self.max_acked = max(self.max_acked, rv)

    def fail(self, message):
        with self.lock:
            self.failures.append(f"round {self.round}: {message}")

    def run(self, rounds, report=lambda line: None):
        self.floor = 0
        try:
            self.center.start()
            start = int(self.center.api("GET", NS)["metadata"]["resourceVersion"])
            self.watchers = [Watcher(self, start) for _ in range(self.watcher_count)]
            for w in self.watchers:
                w.start()
            for self.round in range(1, rounds + 1):
                self.one_round()
                if self.failures:
                    break
                if self.round % 20 == 0 or self.round == rounds:
                    report(f"round {self.round}: {len(self.acks)} writes acknowledged, revision {self.max_acked}")
            if not self.failures:
                self.check_watchers()
        finally:
            self.over = True
            self.center.kill()
            if self.etcd:
                self.etcd.stop()
        return self.failures

    def one_round(self):
        self.stopping = False
        self.floor = self.max_acked
        threads = [Writer(self, i) for i in range(self.writers)]
        for t in threads:
            t.start()
        # Mostly amid the writing, now and then right after the start.
        time.sleep(self.random.choice([0.0, 0.01, 0.1]) + self.random.random() * 0.4)
        self.center.kill()
        self.stopping = True
        for t in threads:
            t.join(20)
        self.center.start()
        self.check_objects()

    def check_objects(self):
        found = self.center.api("GET", f"{NS}?labelSelector=torture")
        if int(found["metadata"]["resourceVersion"]) < self.max_acked:
            self.fail(f"the collection is at {found['metadata']['resourceVersion']} after {self.max_acked} was acknowledged")
        there = {o["metadata"]["name"]: o["data"]["value"] for o in found["items"]}
        if len(there) != len(found["items"]):
            self.fail("an object is listed twice")
        for states in self.may_be:
            for name, allowed in states.items():
                value = there.pop(name, GONE)
                if value not in allowed:
                    self.fail(f"{name} is {value}, and should be {' or '.join(map(str, allowed))}")
                states[name] = [value]
        if there:
            self.fail(f"nobody wrote {there}")

    def check_watchers(self):
        """After the last restart nothing is written any more: every watcher catches up with the list."""
        listed = {o["metadata"]["name"]: o["data"]["value"]
                  for o in self.center.api("GET", f"{NS}?labelSelector=torture")["items"]}
        end = time.monotonic() + 20
        for number, w in enumerate(self.watchers):
            while w.copy != listed and time.monotonic() < end and not self.failures:
                time.sleep(0.05)
            if w.copy != listed:
                self.fail(f"watcher {number} ends with a copy that differs from the list")
            missed = {rv: a for rv, a in self.acks.items() if w.seen.get(rv) != a}
            if missed:
                self.fail(f"watcher {number} missed {len(missed)} acknowledged writes, the first {sorted(missed.items())[0]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("TORTURE_ROUNDS", "200")))
    parser.add_argument("--store", default="sqlite", choices=["sqlite", "etcd"])
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="selvedge-torture-")
    torture = Torture(directory, args.store, seed=args.seed)
    print(f"{args.rounds} rounds on {args.store}, seed {torture.seed}", flush=True)
    failures = torture.run(args.rounds, lambda line: print(line, flush=True))
    if failures:
        print(*failures[:20], f"the data directory is kept: {directory}", sep="\n")
        sys.exit(1)
    shutil.rmtree(directory)
    print(f"{args.rounds} rounds: nothing lost, nothing twice, no gap")


if __name__ == "__main__":
    main()
