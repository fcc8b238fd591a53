"""Measures what others notice of an attack: latency of /livez and of a read in another workspace, and the server's memory.

    with Prober(center, path="/clusters/root:quiet/api/v1/namespaces/default") as prober:
        quiet = prober.measure(2)                   # a part of the time, as {"livez": Latency, "get": Latency}
        with prober.part() as during:
            attack()
        print(compare(quiet, during.result()))      # p50, p99, maximum, and the ratio to quiet
        print(prober.memory().peak_mib)

The probes are sent by a process of their own at a fixed rate, so that threads of the attack do not disturb them. A latency counts from
the time at which a probe was due: one that is stuck counts for all that should have followed it.
"""
import contextlib
import dataclasses
import json
import math
import os
import pathlib
import subprocess
import sys
import threading
import time

from center import wait_for

SCALE = float(os.environ.get("SELVEDGE_ATTACK_SCALE", "1"))


@dataclasses.dataclass
class Latency:
    """Latencies of one probe over some time, in milliseconds."""
    count: int
    failed: int
    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, samples):
        """Of (time at which it was due, seconds, status) of each probe."""
        times = sorted(seconds * 1e3 for _, seconds, _ in samples)

        def quantile(q):
            return times[max(0, math.ceil(q * len(times)) - 1)] if times else float("nan")
        return cls(len(times), sum(status != 200 for _, _, status in samples), quantile(0.5), quantile(0.99),
                   times[-1] if times else float("nan"))

    def __str__(self):
        return f"p50 {self.p50:.1f}, p99 {self.p99:.1f}, max {self.max:.1f} ms of {self.count}, {self.failed} failed"


@dataclasses.dataclass
class Memory:
    """The server's memory over some time, in MiB."""
    first_mib: float
    peak_mib: float
    last_mib: float

    def __str__(self):
        return f"memory {self.first_mib:.0f} -> at most {self.peak_mib:.0f} -> {self.last_mib:.0f} MiB"


def rss_mib(pid):
    """Resident memory of a process."""
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def pss_mib(pid):
    """Resident memory of a process with its share of what it has in common with others."""
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        for line in rollup:
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def cpu_seconds(pid):
    """Processor time that a process has used, in user and system mode."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def compare(quiet, during):
    """One line for each probe, with the ratio of its p99 to the quiet one."""
    lines = []
    for name, latency in during.items():
        ratio = latency.p99 / max(quiet[name].p99, 0.001)
        lines.append(f"{name}: quiet p99 {quiet[name].p99:.1f} ms; under attack {latency} ({ratio:.1f}x)")
    return "\n".join(lines)


class Prober:
    """Probes a server from a process of its own until it is closed.

    `path` is what is read with GET (by the administrator, or with `token`); without it only /livez is asked for. `every` is the time between
    two probes of a kind; `timeout` is how long one may take.
    """

    def __init__(self, center, path=None, token=None, every=0.02, timeout=30.0, pid=None):
        self.pid = pid if pid is not None else center.process.pid
        probes = {"livez": center.path + "/livez"}
        if path:
            probes["get"] = center.path + path
        self.config = {"host": center.host, "port": center.port, "ca": str(center.ca), "every": every, "timeout": timeout,
                       "token": token or center.token, "probes": probes}
        if not token and center.cert:
            self.config.update(cert=str(center.cert), key=str(center.key))
        self._samples = {name: [] for name in probes}
        self._memory = []
        self._lock = threading.Lock()
        self._process = None
        self._closed = threading.Event()

    def __enter__(self):
        # It competes for the processor with the attack, which is not what is measured.
        command = [sys.executable, str(pathlib.Path(__file__).resolve()), json.dumps(self.config)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._threads = [threading.Thread(target=self._read, daemon=True), threading.Thread(target=self._look, daemon=True)]
        for thread in self._threads:
            thread.start()
        wait_for("the first probes", lambda: all(self._samples.values()))
        return self

    def __exit__(self, *_):
        self._closed.set()
        self._process.terminate()
        self._process.wait(10)
        for thread in self._threads:
            thread.join(10)

    def _read(self):
        for line in self._process.stdout:
            name, due, seconds, status = json.loads(line)
            with self._lock:
                self._samples[name].append((due, seconds, status))

    def _look(self):
        while not self._closed.wait(0.05):
            with contextlib.suppress(OSError):
                self._memory.append((time.monotonic(), rss_mib(self.pid)))

    def samples(self, since=0.0, until=math.inf):
        """All probes that were due in that time (of time.monotonic): {name: [(due, seconds, status)]}."""
        with self._lock:
            return {name: [s for s in samples if since <= s[0] <= until] for name, samples in self._samples.items()}

    def result(self, since=0.0, until=math.inf, settle=30.0):
        """The latencies of that time. Waits until the probes that were due in it have been answered."""
        until = min(until, time.monotonic())

        def behind():
            with self._lock:
                return all(samples and samples[-1][0] >= until for samples in self._samples.values())
        wait_for("the last probes", behind, settle + self.config["timeout"])
        return {name: Latency.of(samples) for name, samples in self.samples(since, until).items()}

    def measure(self, seconds):
        """The latencies of the next seconds."""
        since = time.monotonic()
        time.sleep(seconds)
        return self.result(since, time.monotonic())

    @contextlib.contextmanager
    def part(self):
        """Measures what happens inside."""
        part = Part(self, time.monotonic())
        try:
            yield part
        finally:
            part.until = time.monotonic()

    def memory(self, since=0.0, until=math.inf):
        seen = [mib for at, mib in list(self._memory) if since <= at <= until] or [rss_mib(self.pid)]
        return Memory(seen[0], max(seen), seen[-1])


class Part:
    """A part of the time that a prober has measured."""

    def __init__(self, prober, since):
        self.prober, self.since, self.until = prober, since, math.inf

    def result(self):
        return self.prober.result(self.since, self.until)

    def memory(self):
        return self.prober.memory(self.since, self.until)


def together(count, work):
    """Does `work(i)` in so many threads at once; the results, or the exceptions, in order."""
    results = [None] * count

    def one(i):
        try:
            results[i] = work(i)
        except Exception as e:  # noqa: BLE001 - told to the caller
            results[i] = e
    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    return results


def tenant(center, name):
    """A workspace with an administrator of its own: its path and a token."""
    center.api("POST", "/apis/tenancy.kcp.io/v1alpha1/workspaces",
               {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}})
    path = f"/clusters/root:{name}"
    wait_for(f"workspace {name}", lambda: center.request("GET", f"{path}/api/v1/namespaces/default")[0] == 200)
    user = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "owner"}}
    center.api("POST", f"{path}/api/v1/namespaces/default/serviceaccounts", user)
    center.api("POST", f"{path}/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "owner"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "owner", "namespace": "default"}]})
    asked = center.api("POST", f"{path}/api/v1/namespaces/default/serviceaccounts/owner/token",
                       {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    return path, asked["status"]["token"]


def probe(config, name, path, say):
    """Sends one kind of probe for ever, one after the other."""
    import http.client
    import ssl
    tls = ssl.create_default_context(cafile=config["ca"])
    if "cert" in config:
        tls.load_cert_chain(config["cert"], config["key"])
    headers = {"Accept": "application/json", "User-Agent": "probe"}
    if config["token"]:
        headers["Authorization"] = f"Bearer {config['token']}"
    connection, due = None, time.monotonic()
    while True:
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            if connection is None:
                connection = http.client.HTTPSConnection(config["host"], config["port"], context=tls, timeout=config["timeout"])
            connection.request("GET", path, headers=headers)
            reply = connection.getresponse()
            reply.read()
            status = reply.status
        except (OSError, http.client.HTTPException):
            status, connection = 0, None
        now = time.monotonic()
        say(name, due, now - due, status)
        due += config["every"]
        # Of those that were due meanwhile each is counted, but not all are sent.
        while due + config["every"] < now:
            say(name, due, now - due, status)
            due += config["every"]


def main():
    config, lock = json.loads(sys.argv[1]), threading.Lock()

    def say(*sample):
        with lock:
            print(json.dumps(sample), flush=True)
    for name, path in config["probes"].items():
        threading.Thread(target=probe, args=(config, name, path, say), daemon=True).start()
    # It ends with whoever started it.
    while os.getppid() != 1:
        time.sleep(0.5)


if __name__ == "__main__":
    main()
