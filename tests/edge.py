"""Starts edges beside the center of center.py: joined with a token, started again without one, killed, cut off."""
import contextlib
import json
import pathlib
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import uuid

from center import Center, Tools, binary, wait_for

SYNCTARGETS = "/apis/workload.kcp.io/v1alpha1/synctargets"
WORKSPACE = "edge.selvedge.dev/workspace"
LINK = "edge.selvedge.dev/link"
PROJECTED = "edge.kcp.io/projected"
CONFIRM = "edge.selvedge.dev/confirm-deletion"
# An edge of which a test plays the workloads itself.
BARE = ("--runtime", "kubelet", "--controllers=")


def selvedge(*args, code=0, timeout=60, env=None):
    """stdout of one of our own commands."""
    done = subprocess.run([binary(), *map(str, args)], capture_output=True, text=True, timeout=timeout, env=env)
    assert code is None or done.returncode == code, (
        f"selvedge {' '.join(map(str, args))} ended with {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done.stdout if code == 0 else done.stdout + done.stderr


def make_workspace(center, path, of_type=None):
    """root:shop, made ready."""
    parent, name = path.rsplit(":", 1)
    workspaces = f"/clusters/{parent}/apis/tenancy.kcp.io/v1alpha1/workspaces"
    spec = {"spec": {"type": {"name": of_type}}} if of_type else {}
    center.api("POST", workspaces, {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, **spec},
               expect=(201, 409))
    wait_for(path, lambda: center.api("GET", f"{workspaces}/{name}").get("status", {}).get("phase") == "Ready")


def annotate(center, name, **to):
    """Sets annotations of a SyncTarget in root; None takes one away. Slashes and dots cannot be in keywords: pass **{...}."""
    return center.api("PATCH", f"{SYNCTARGETS}/{name}", {"metadata": {"annotations": to}},
                      content_type="application/merge-patch+json")


class Edge(Center):
    """`selvedge edge` on a data directory. The first start joins with a token; later ones need none."""

    def __init__(self, center, data_dir, name="florin", workspace=None, env=None, args=(), through=None, listen="127.0.0.1"):
        super().__init__(data_dir, env=env, listen=listen)
        self.center, self.name, self.through = center, name, through
        # Nothing runs there unless a test says what shall.
        if "--runtime" not in args:
            args = (*BARE, *args)
        self.workspace = workspace
        self.base = [binary(), "edge", "--data-dir", str(self.data_dir), *map(str, args)]
        self.joined = False

    def join_token(self, *args):
        return selvedge("join-token", "create", "--kubeconfig", self.center.kubeconfig, "--name", self.name, *args).strip()

    def center_url(self):
        return f"https://127.0.0.1:{self.through.port}" if self.through else self.center.url

    def start(self, seconds=30.0, wait=True, token=None):
        self.command = list(self.base)
        if not self.joined:
            self.command += ["--center", self.center_url(), "--token", token or self.join_token(), "--name", self.name]
        super().start(seconds, wait)
        if wait and not self.joined:
            self.joined = True
            if self.workspace:
                # An edge answers before it has joined: on a bad network that takes a while.
                wait_for(f"{self.name} to join", lambda: self.center.request("GET", f"{SYNCTARGETS}/{self.name}")[0] == 200, 60)
                annotate(self.center, self.name, **{WORKSPACE: self.workspace})
        return self

    # ---- what the center says of it ----

    def target(self):
        return self.center.api("GET", f"{SYNCTARGETS}/{self.name}")

    def condition(self, kind):
        found = [c for c in self.target().get("status", {}).get("conditions", []) if c["type"] == kind]
        return found[0] if found else None

    def connected(self):
        ready = self.condition("HeartbeatHealthy")
        return bool(ready) and ready["status"] == "True"

    def wait_connected(self, seconds=30):
        wait_for(f"the link of {self.name}", self.connected, seconds, every=0.05)
        return self

    def wait_offline(self, seconds=60):
        wait_for(f"{self.name} to be missed", lambda: not self.connected(), seconds, every=0.05)
        return self

    def cut(self):
        annotate(self.center, self.name, **{LINK: "cut"})
        return self.wait_offline(10)

    def heal(self, seconds=70):
        annotate(self.center, self.name, **{LINK: None})
        return self.wait_connected(seconds)

    def tools(self, home):
        return Tools(self, home)

    def end_containers(self):
        """Containers outlive the agent, killed or not; a test that is over ends them."""
        subprocess.run([binary(), "keeper", self.data_dir / "keeper", "--stop"], capture_output=True, timeout=60)

    def forget_memory(self):
        """What pods have in memory stays until the machine is started again, if their edge is killed and never comes back."""
        for pod in (self.data_dir / "pods").glob("*"):
            for memory in pathlib.Path("/dev/shm").glob(f"selvedge-*/{pod.name}"):
                shutil.rmtree(memory, ignore_errors=True)


class Wire:
    """A TCP proxy in front of the center. It can be cut (connections reset, new ones refused), stall (bytes stay where they are,
    as in a network that drops everything), stay half open (one direction goes on) and be slow."""

    def __init__(self, target_port):
        self.target_port = target_port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.mode, self.delay = "open", 0.0
        self.lock, self.pairs, self.lost, self.over = threading.Lock(), set(), [], False
        self.carried = [0, 0]  # bytes up, bytes down
        threading.Thread(target=self._accept, daemon=True).start()

    def open(self, delay=0.0):
        self.mode, self.delay = "open", delay

    def cut(self):
        """As a router that answers: what is connected is reset, what comes is refused."""
        self.mode = "cut"
        self.reset()

    def stall(self):
        """As a cable pulled out: nothing arrives any more, and nobody is told."""
        self.mode = "stall"

    def half_open(self, way="up"):
        """Only one direction still gets through."""
        self.mode = f"only-{way}"

    def reset(self):
        with self.lock:
            pairs, self.pairs = self.pairs, set()
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    # Linger of zero: a reset, not an orderly end.
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    end.shutdown(socket.SHUT_RDWR)
                    end.close()

    def lose_edge(self):
        """The edge sees its connections end; the center hears nothing of it and keeps its half."""
        with self.lock:
            pairs, self.pairs = self.pairs, set()
            self.lost += [far for _, far in pairs]
        for near, _ in pairs:
            with contextlib.suppress(OSError):
                near.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.over = True
        self.listener.close()
        self.reset()

    def _accept(self):
        while not self.over:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            if self.mode == "cut":
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.target_port), timeout=5)
            except OSError:
                near.close()
                continue
            with self.lock:
                self.pairs.add((near, far))
            for way, source, sink in (("up", near, far), ("down", far, near)):
                threading.Thread(target=self._carry, args=(way, source, sink, (near, far)), daemon=True).start()

    def _passes(self, way):
        return self.mode in ("open", f"only-{way}")

    def _carry(self, way, source, sink, pair):
        try:
            while True:
                while not self._passes(way):
                    time.sleep(0.01)
                    if pair not in self.pairs:
                        return
                if not select.select([source], [], [], 0.05)[0]:
                    continue
                if not self._passes(way):
                    continue
                data = source.recv(65536)
                if not data:
                    break
                if self.delay:
                    time.sleep(self.delay)
                sink.sendall(data)
                self.carried[way == "down"] += len(data)
        except (OSError, ValueError):
            pass
        with self.lock:
            self.pairs.discard(pair)
        for end in pair:
            if end in self.lost:
                continue
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(OSError):
                end.close()


@contextlib.contextmanager
def fleet(*names, workspace="root:shop", directory=None, store="sqlite", connected=True, wire=False, args=(), data=None):
    """A center, a workspace, and edges that hold it, all ready: `with fleet("florin") as (center, florin):`. `args` are the edges', `data` says
    where one keeps its data if not beside the others."""
    base = pathlib.Path(directory or tempfile.mkdtemp(prefix="selvedge-"))
    center, edges, wires = Center(base / "center", store), [], []
    try:
        center.start()
        if workspace:
            make_workspace(center, workspace)
        for name in names:
            through = None
            if wire:
                through = Wire(center.port)
                wires.append(through)
            edge = Edge(center, (data or {}).get(name, base / name), name, workspace, through=through, args=args)
            edges.append(edge)
            edge.start()
        if connected:
            for edge in edges:
                edge.wait_connected()
        yield (center, *edges)
    finally:
        for process in (*edges, center):
            process.kill()
        for edge in edges:
            edge.end_containers()
            edge.forget_memory()
        for each in wires:
            each.close()
        if directory is None:
            shutil.rmtree(base, ignore_errors=True)


# ---- fences ----

def fence(center, edge, workspace="root:shop"):
    """Waits until the edge has applied and removed an object that is written at the center now. What was sent to the edge
    before has been dealt with then, as a session delivers changes in their order."""
    path, name = "/api/v1/namespaces/default/configmaps", f"fence-{uuid.uuid4().hex[:12]}"
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    center.api("POST", f"/clusters/{workspace}{path}", made)
    wait_for(f"the fence at {edge.name}", lambda: edge.request("GET", f"{path}/{name}")[0] == 200, 30)
    center.api("DELETE", f"/clusters/{workspace}{path}/{name}")
    wait_for(f"the fence to go from {edge.name}", lambda: edge.request("GET", f"{path}/{name}")[0] == 404, 30)


# ---- comparing both ends ----

def projected(o):
    """What an edge shall hold of a center's object, apart from what each server says for itself."""
    m = o["metadata"]
    kept = {k: v for k, v in m.items() if k in ("name", "namespace")}
    own = ("edge.selvedge.dev/", "edge.kcp.io/", "kubestellar.io/")
    for field in ("labels", "annotations"):
        kept[field] = {k: v for k, v in m.get(field, {}).items() if not k.startswith(own)}
    return json.dumps({**{k: v for k, v in o.items() if k not in ("metadata", "status")}, "metadata": kept}, sort_keys=True)


def objects(server, path):
    """name → object, of a list without pages."""
    listed = server.api("GET", path)
    return {o["metadata"].get("namespace", "") + "/" + o["metadata"]["name"]: o for o in listed["items"]}


def reported(center, edge):
    """What the center has of an edge's objects: key on the link → state."""
    found, after = {}, ""
    while after is not None:
        part = center.api("GET", f"/fleet/{edge.name}/reports?after={urllib.parse.quote(after)}")
        found.update((r["key"], r["state"]) for r in part["reports"])
        after = part["next"]
    return found


def of_a_server(name):
    """What every server has of its own."""
    return name.endswith("/kube-root-ca.crt") or name.startswith("/kube-") or name.endswith("/default")


def differences(center, workspace, edge, collection="/api/v1/namespaces/default/configmaps", local=True):
    """What the edge holds otherwise than the center says: an empty list when they agree. What is the edge's own may be there with `local`."""
    want = {n: projected(o) for n, o in objects(center, f"/clusters/{workspace}{collection}").items()
            if not of_a_server(n) and "deletionTimestamp" not in o["metadata"]}
    have = {n: projected(o) for n, o in objects(edge, collection).items()
            if not of_a_server(n) and (not local or n in want or o["metadata"].get("labels", {}).get(PROJECTED))}
    return ([f"{n} is missing" for n in want.keys() - have.keys()] + [f"{n} is too many" for n in have.keys() - want.keys()]
            + [f"{n} differs: {have[n][:300]} instead of {want[n][:300]}" for n in want.keys() & have.keys() if want[n] != have[n]])


def in_sync(center, workspace, edge, seconds=30, collections=("/api/v1/namespaces/default/configmaps",)):
    """Waits until the edge holds what the center says."""
    end = time.monotonic() + seconds
    for collection in collections:
        while different := differences(center, workspace, edge, collection):
            if time.monotonic() > end:
                raise AssertionError(f"{edge.name} does not converge in {collection}: {different[:3]}\n{edge.log_tail(10)}")
            time.sleep(0.05)
