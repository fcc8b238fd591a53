"""Logs that cannot be written, damaged files, full disks, a process that does not want to end, and health that says so."""
import contextlib
import ctypes
import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time

import pytest

from center import Center, Etcd, die_with_parent, wait_for
from edge import Edge
from manifests import configmap
from test_pages import backup_with

PATH = "/api/v1/namespaces/default/configmaps"
BIG = "x" * 50_000
CLONE_NEWNS = 0x20000


@pytest.fixture(scope="module")
def mounts():
    """A mount namespace of our own: what is mounted in it goes with the process, however that ends."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNS) or subprocess.run(["mount", "--make-rprivate", "/"]).returncode:
        pytest.skip("a small disk needs the right to mount")


@pytest.fixture
def base():
    path = pathlib.Path(tempfile.mkdtemp(prefix="selvedge-attack-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def disk(mounts, base):
    """A disk of 26 MB."""
    path = base / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=26m", "tmpfs", str(path)], check=True)
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def write(center, name, value="v", timeout=30):
    return center.request("POST", PATH, configmap(name, x=value), timeout=timeout)


def names(center):
    return {item["metadata"]["name"] for item in center.api("GET", PATH)["items"]}


def fill(disk):
    """Takes every byte that is left."""
    with open(disk / f"ballast{time.monotonic_ns()}", "wb", buffering=0) as ballast:
        for size in (1 << 20, 1 << 16, 4096, 512, 1):
            with contextlib.suppress(OSError):
                while True:
                    ballast.write(b"x" * size)


def free(disk):
    for ballast in disk.glob("ballast*"):
        ballast.unlink()


def health(center, path):
    status, _, body = center.request("GET", path, accept="*/*", timeout=10)
    return status, body.decode()


def start_again(center, seconds=30):
    """Without touching any file, as a supervisor does."""
    with open(center.log_path, "ab") as log:
        center.process = subprocess.Popen([*center.command, "--listen", f"{center.listen}:{center.port}"], stdout=log, stderr=log,
                                          env=center.env, preexec_fn=die_with_parent)

    def answers():
        assert center.alive(), f"it ended with {center.process.returncode}:\n{center.log_tail()}"
        with contextlib.suppress(OSError):
            return center.request("GET", "/livez", accept="*/*", timeout=5)[0] == 200
    wait_for("the API", answers, seconds)


def until_refused(center):
    for n in range(500):
        status, _, body = write(center, f"fill{n:04}", BIG)
        if status != 201:
            return status, body
    raise AssertionError("the disk never got full")


# ---- R1: logs ----

def test_data_and_log_on_one_full_disk(disk):
    """R1: the line that could not be written ended the thread that writes the store."""
    center = Center(disk / "data")
    try:
        center.start()
        assert write(center, "before")[0] == 201
        (disk / "ballast").write_bytes(b"x" * (8 << 20))
        status, body = until_refused(center)
        assert status == 507 and b"disk is full" in body, (status, body)
        fill(disk)
        # The store still has some room of its own, so a few more may fit.
        refused = 0
        for n in range(300):
            status, _, body = write(center, f"more{n}", BIG)
            assert status in (201, 507), (status, body)
            refused += status == 507
            if refused == 20:
                break
        assert refused == 20
        assert "store-writer" in threads(center), "the writer is gone"
        # Health tells the truth of it, but nobody is to end the process for it.
        assert health(center, "/livez") == (200, "ok")
        status, said = health(center, "/readyz")
        assert status == 500 and "[-]store failed: the disk is full" in said and "readyz check failed" in said, said
        assert health(center, "/readyz/store")[0] == 500 and health(center, "/readyz/ping") == (200, "ok")
        assert health(center, "/readyz?exclude=store")[0] == 200
        assert "before" in names(center)
        free(disk)
        wait_for("writes to work again", lambda: write(center, f"after{time.monotonic_ns()}")[0] == 201, 10)
        wait_for("readiness", lambda: health(center, "/readyz") == (200, "ok"), 5)
        assert "[+]store ok" in health(center, "/readyz?verbose")[1]
        assert center.stop() == 0
    finally:
        center.kill()


def threads(center):
    tasks = pathlib.Path(f"/proc/{center.process.pid}/task")
    return {(task / "comm").read_text().strip() for task in tasks.iterdir()}


@contextlib.contextmanager
def unheard(server):
    """Starts it with a log whose reader goes away when it is ready."""
    server.kubeconfig.unlink(missing_ok=True)
    reader, writer = os.pipe()
    server.process = subprocess.Popen([*server.command, "--listen", "127.0.0.1:0", "--log", "debug"], stdout=writer, stderr=writer,
                                      env=server.env, preexec_fn=die_with_parent)
    server.log_path = server.data_dir.with_name("none.log")
    server.log_path.write_text("")
    os.close(writer)
    stop = threading.Event()

    def read():
        while not stop.is_set() and os.read(reader, 65536):
            pass
        os.close(reader)
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        server.wait_ready()
        stop.set()
        with contextlib.suppress(OSError):
            server.request("GET", "/version")
        thread.join(10)
        yield server
    finally:
        server.kill()


def test_logs_that_nobody_reads_any_more(base):
    """R1: an edge whose log had lost its reader ended with the next line; a center's requests broke off."""
    with unheard(Center(base / "center")) as center:
        for n in range(10):
            assert write(center, f"c{n}")[0] == 201
        edge = Edge(center, base / "edge")
        edge.command = [*edge.base, "--center", center.url, "--token", edge.join_token(), "--name", edge.name]
        with unheard(edge):
            assert write(edge, "here")[0] == 201
            assert center.alive() and len(names(center)) >= 10
            # This is worth a few lines to an edge.
            center.kill()
            for n in range(10):
                time.sleep(0.3)
                assert edge.alive(), "the edge ended"
                assert write(edge, f"e{n}")[0] == 201
            assert edge.stop() == 0


# ---- R2: damage ----

def load(center, seconds):
    """Writes with 8 clients until the center is killed; what was acknowledged, by name, and the last revision."""
    acked, revisions, until = {}, [0], time.monotonic() + seconds

    def client(number):
        n = 0
        while time.monotonic() < until:
            with contextlib.suppress(OSError, Exception):
                name = f"w{number}-{n}"
                status, _, body = write(center, name, "v" * random.randrange(2000), timeout=5)
                if status == 201:
                    revision = int(json.loads(body)["metadata"]["resourceVersion"])
                    acked[name] = revision
                    revisions.append(revision)
                n += 1
    clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in clients:
        thread.start()
    time.sleep(seconds - 0.2)
    center.kill()
    for thread in clients:
        thread.join()
    return acked, max(revisions)


def newest(center):
    return int(center.api("GET", PATH)["metadata"]["resourceVersion"])


def test_damage_to_any_file_of_the_store_after_a_crash(base):
    """R2: a center started on a damaged journal without a word, with fewer objects and older revisions."""
    center = Center(base / "data")
    try:
        center.start()
        acked, last = load(center, 1.5)
        assert len(acked) > 20
        store = center.data_dir / "store"
        whole = base / "whole"
        shutil.copytree(store, whole)
        dice = random.Random(18)
        journal = (whole / "store.journal").read_bytes()
        # The journal is long and mostly old: what counts is at its beginning.
        places = [0, 512, 1024, dice.randrange(1024, 4096), dice.randrange(1024, 16384)]
        damages = [("store.journal", "flip", at) for at in places] + [
            ("store.journal", "zero", 0), ("store.journal", "cut", 3000), ("store.journal", "cut", len(journal) - 1),
            ("store.journal", "garbage", 1024), ("store.journal", "empty", 0), ("store.journal", "delete", 0),
            ("store.db-wal", "empty", 0), ("store.db-wal", "delete", 0), ("store.db-wal", "flip", 40)]
        if os.environ.get("SELVEDGE_ATTACK_LONG"):
            damages += [(file, how, dice.randrange(1 << 20)) for _ in range(20) for file in ("store.journal", "store.db-wal", "store.db")
                        for how in ("flip", "zero", "garbage", "cut")]
        refused = 0
        for file, how, at in damages:
            shutil.rmtree(store)
            shutil.copytree(whole, store)
            damage(store / file, how, at)
            done = started_or_refused(center)
            if done is not None:
                refused += 1
                assert "store" in done and ("Restore" in done or "missing" in done) and "panicked" not in done, (file, how, at, done)
            else:
                assert set(acked) <= names(center), (file, how, at)
                assert newest(center) >= last, (file, how, at)
                center.kill()
        assert refused >= 10, "nothing was noticed"
        # Somebody who has no backup can go on, and no revision is used twice.
        shutil.rmtree(store)
        shutil.copytree(whole, store)
        (store / "store.journal").unlink()
        said = started_or_refused(center)
        assert "store.journal is missing" in said and "--accept-lost-writes" in said, said
        center.command.append("--accept-lost-writes")
        center.start()
        assert newest(center) > last
        revision = int(center.api("POST", PATH, configmap("next", x="y"))["metadata"]["resourceVersion"])
        assert revision > last
        center.command.remove("--accept-lost-writes")
        assert center.stop() == 0
        center.start()
        assert "next" in names(center)
        # And undamaged it is whole.
        center.kill()
        shutil.rmtree(store)
        shutil.copytree(whole, store)
        center.start()
        assert set(acked) <= names(center) and newest(center) >= last
    finally:
        center.kill()


def damage(path, how, at):
    data = bytearray(path.read_bytes())
    at = min(at, max(len(data) - 1, 0))
    if how == "flip":
        data[at] ^= 0x10
    elif how == "zero":
        data[at:at + 4096] = bytes(len(data[at:at + 4096]))
    elif how == "garbage":
        data[at:at + 700] = os.urandom(len(data[at:at + 700]))
    elif how == "cut":
        del data[at:]
    elif how == "empty":
        data.clear()
    else:
        path.unlink()
        return
    path.write_bytes(data)


def started_or_refused(center, seconds=20):
    """None if it started; else what it said."""
    before = center.log_path.stat().st_size
    center.start(wait=False)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if center.process.poll() is not None:
            assert center.process.returncode == 1, center.process.returncode
            return center.log_path.read_bytes()[before:].decode()
        if center.kubeconfig.exists():
            center.wait_ready()
            return None
        time.sleep(0.01)
    raise AssertionError(center.log_tail())


def test_a_backup_made_while_it_runs_needs_no_journal(base):
    center = Center(base / "data")
    other = Center(base / "other")
    try:
        center.start()
        for n in range(30):
            assert write(center, f"c{n}")[0] == 201
        (other.data_dir / "store").mkdir(parents=True)
        copy = other.data_dir / "store/store.db"

        def vacuum():
            with contextlib.closing(sqlite3.connect(center.data_dir / "store/store.db")) as db:
                db.execute("VACUUM INTO ?", [str(copy)])

        backup_with("c29", copy, vacuum)
        shutil.copytree(center.data_dir / "pki", other.data_dir / "pki")
        other.start()
        assert names(other) == names(center)
        assert write(other, "more")[0] == 201
    finally:
        center.kill()
        other.kill()


# ---- R3: full disks ----

def test_a_center_on_a_full_disk_starts_and_objects_can_be_deleted(disk):
    """R3: neither was so, and a store that had filled its own disk could be freed by nobody."""
    center = Center(disk / "data")
    center.log_path = disk.parent / "center.log"
    try:
        center.start()
        (disk / "ballast").write_bytes(b"x" * (8 << 20))
        until_refused(center)
        fill(disk)
        kept = names(center)
        # After a crash and after an orderly end, with not a byte to spare, twice.
        for end in (center.kill, lambda: center.stop() == 0 or pytest.fail(center.log_tail())) * 2:
            end()
            fill(disk)
            start_again(center)
            assert names(center) == kept
            assert write(center, "refused", BIG)[0] == 507
        # Deleting makes room, and with room for the store itself writes work again, without a byte more on the disk.
        for name in sorted(kept - {"kube-root-ca.crt"}):
            status, _, body = center.request("DELETE", f"{PATH}/{name}")
            assert status == 200, (name, status, body)
        assert names(center) <= {"kube-root-ca.crt"}
        fill(disk)
        wait_for("room in the store", lambda: write(center, f"new{time.monotonic_ns()}", BIG)[0] == 201, 40, every=0.5)
        free(disk)
        reserve = center.data_dir / "store/store.reserve"
        wait_for("the reserve", lambda: reserve.stat().st_size == 4 << 20, 15)
        assert write(center, "at-last", BIG)[0] == 201
    finally:
        center.kill()


def test_an_edge_on_a_full_disk_starts_and_manages_its_pods(disk, base):
    """R3: an edge that rebooted with a full disk had no API and managed no Pods."""
    center = Center(base / "center").start()
    edge = Edge(center, disk / "edge", args=("--runtime", "process"))
    edge.log_path = base / "edge.log"
    pods = "/api/v1/namespaces/default/pods"
    try:
        edge.start()
        tools = edge.tools(base / "home")
        wait_for("the node", lambda: edge.name in tools.kubectl("get", "nodes"), 30)
        wait_for("the account", lambda: tools.kubectl("get", "serviceaccount", "default", code=None), 30)
        container = {"name": "a", "image": "selvedge.dev/sample/echo", "command": ["sh", "-c", "sleep 1000"]}
        spec = {"nodeName": edge.name, "containers": [container], "terminationGracePeriodSeconds": 1}
        edge.api("POST", pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "steady"}, "spec": spec})
        of = lambda: edge.api("GET", f"{pods}/steady")["status"]
        wait_for("the pod", lambda: of().get("phase") == "Running" and of()["containerStatuses"][0]["ready"], 30)
        before = of()["containerStatuses"][0]["containerID"]
        edge.command = list(edge.base)
        for end in (edge.kill, lambda: edge.stop() == 0 or pytest.fail(edge.log_tail())):
            end()
            fill(disk)
            start_again(edge)
            assert of()["containerStatuses"][0]["containerID"] == before
        assert write(edge, "refused", BIG)[0] == 507
        assert edge.request("DELETE", f"{pods}/steady")[0] == 200
        wait_for("the end of the pod", lambda: edge.request("GET", f"{pods}/steady")[0] == 404, 30)
    finally:
        edge.end_containers()
        edge.kill()
        center.kill()


# ---- R4: the end ----

@pytest.mark.alone
@pytest.mark.parametrize("role", ["center", "edge"])
def test_sigterm_ends_what_cannot_end_by_itself(base, role):
    """R4: a log that blocks is one way to keep every thread busy for ever; the process ends all the same, within its limit."""
    center = Center(base / "center")
    stuck = center
    reader = None
    try:
        if role == "edge":
            center.start()
            stuck = Edge(center, base / "edge")
            stuck.start()
            assert stuck.stop() == 0
            stuck.command = list(stuck.base)
        stuck.kubeconfig.unlink(missing_ok=True)
        reader, writer = os.pipe()
        stuck.log_path = base / "none.log"
        stuck.log_path.write_text("")
        stuck.process = subprocess.Popen([*stuck.command, "--listen", "127.0.0.1:0"], stdout=writer, stderr=writer,
                                         env={**stuck.env, "SELVEDGE_STOP_LIMIT": "3"}, preexec_fn=die_with_parent)
        stuck.wait_ready()
        said = b""
        while b"the API is ready" not in said:
            said += os.read(reader, 65536)
        os.set_blocking(writer, False)
        for size in (4096, 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(writer, b"x" * size)
        os.set_blocking(writer, True)
        begun = time.monotonic()
        stuck.process.send_signal(signal.SIGTERM)
        assert stuck.process.wait(12) == 1
        assert 2 < time.monotonic() - begun < 8
    finally:
        if reader is not None:
            os.close(reader)
            os.close(writer)
        stuck.kill()
        center.kill()


def test_a_disk_that_does_not_answer_keeps_nobody_from_ending(base):
    """R4 and S13: every sync takes a minute. Readiness says so in time, and SIGTERM ends the process."""
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    center = Center(base / "data", env={"SELVEDGE_STOP_LIMIT": "6"})
    try:
        center.start()
        assert write(center, "a")[0] == 201
        wait_for("the start", lambda: "the API is ready" in center.log_tail())
        # After a slow sync the next one is not waited for by whoever answers requests.
        with traced(center, "delay_enter=20000"):
            for n in range(3):
                assert write(center, f"slow{n}")[0] == 201
        tracer = trace(center, "delay_enter=60000000")
        try:
            thread = threading.Thread(target=write_quietly, args=(center,), daemon=True)
            thread.start()
            wait_for("the store to be missed", lambda: health(center, "/readyz")[0] == 500)
            begun = time.monotonic()
            status, said = health(center, "/readyz")
            assert status == 500 and "[-]store failed: no answer within" in said, said
            assert time.monotonic() - begun < 5
            assert health(center, "/livez")[0] == 200
            center.process.send_signal(signal.SIGTERM)
            begun = time.monotonic()
            # Its last thread is the tracer's until that lets go.
            status = pathlib.Path(f"/proc/{center.process.pid}/status")
            wait_for("the end", lambda: center.process.poll() is not None or "zombie" in status.read_text(), 15)
            assert "what was acknowledged is durable" in center.log_tail() or "not closed within" in center.log_tail(), center.log_tail()
        finally:
            tracer.kill()
            tracer.wait()
    finally:
        center.kill()


def trace(center, inject):
    """Lets something happen to every sync of a center."""
    tracer = subprocess.Popen(["strace", "-f", "-qq", "-e", "trace=fdatasync,fsync", "-e", f"inject=fdatasync,fsync:{inject}",
                               "-o", "/dev/null", "-p", str(center.process.pid)], stderr=subprocess.DEVNULL)
    tasks = pathlib.Path(f"/proc/{center.process.pid}/task")
    wait_for("the tracer", lambda: all("TracerPid:\t0" not in (task / "status").read_text() for task in tasks.iterdir()), 10)
    return tracer


@contextlib.contextmanager
def traced(center, inject):
    tracer = trace(center, inject)
    try:
        yield
    finally:
        tracer.terminate()
        tracer.wait()


def write_quietly(center):
    with contextlib.suppress(Exception):
        write(center, "stuck", timeout=20)


# ---- S13: health ----

def test_health_says_when_etcd_is_away(base):
    """S13: `[+]store ok`, whatever had happened."""
    etcd = Etcd(base)
    center = Center(base / "data", "etcd", etcd)
    try:
        center.start()
        assert health(center, "/readyz?verbose")[1].splitlines()[:2] == ["[+]ping ok", "[+]store ok"]
        assert health(center, "/readyz/etcd") == (200, "ok") and health(center, "/readyz/nothing")[0] == 404
        etcd.process.send_signal(signal.SIGSTOP)
        try:
            wait_for("readiness to end", lambda: health(center, "/readyz")[0] == 500, 10)
            begun = time.monotonic()
            status, said = health(center, "/readyz")
            assert status == 500 and "[-]store failed" in said and time.monotonic() - begun < 5, said
            assert health(center, "/livez") == (200, "ok")
            assert health(center, "/healthz")[0] == 500
        finally:
            etcd.process.send_signal(signal.SIGCONT)
        wait_for("readiness", lambda: health(center, "/readyz") == (200, "ok"), 20)
    finally:
        center.kill()
        etcd.stop()


def test_health_says_when_the_disk_fails(base):
    """S13: all syncs fail with EIO, and work again."""
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    center = Center(base / "data")
    try:
        center.start()
        assert write(center, "a")[0] == 201
        with traced(center, "error=EIO"):
            def fails():
                write(center, f"b{time.monotonic_ns()}")
                return health(center, "/readyz")[0] == 500
            wait_for("readiness to end", fails, 15)
            status, said = health(center, "/readyz")
            assert status == 500 and "[-]store failed" in said, said
            assert health(center, "/livez")[0] == 200
        wait_for("readiness", lambda: health(center, "/readyz") == (200, "ok"), 15)
        assert write(center, "c")[0] == 201
    finally:
        center.kill()
