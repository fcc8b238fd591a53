"""Bad disks, bad directories, bad neighbours: a clear message, the right exit code, and nothing lost."""
import contextlib
import os
import pathlib
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time

import pytest

from center import Center, binary, free_port, wait_for
from manifests import configmap

PATH = "/api/v1/namespaces/default/configmaps"
BIG = "x" * 50_000


@pytest.fixture
def base():
    """Unlike tmp_path, a directory other users can enter."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="selvedge-fault-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def center(base):
    center = Center(base / "data")
    yield center
    center.kill()


def write(center, name, **data):
    return center.request("POST", PATH, configmap(name, **data))


def refused(*args, seconds=20, **kw):
    """What the binary says when it should not start."""
    done = subprocess.run([binary(), "center", *map(str, args)], capture_output=True, text=True, timeout=seconds, **kw)
    said = done.stdout + done.stderr
    assert done.returncode not in (0, None) and done.returncode > 0, f"ended with {done.returncode}: {said}"
    assert "panicked" not in said and "RUST_BACKTRACE" not in said, said
    return said


def database(center):
    files = [p for p in center.data_dir.rglob("*") if p.is_file() and p.read_bytes()[:15] == b"SQLite format 3"]
    assert len(files) == 1, files
    return files[0]


def test_second_process_on_the_same_directory(center):
    center.start()
    said = refused("--data-dir", center.data_dir, "--listen", "127.0.0.1:0")
    assert str(center.data_dir) in said and any(w in said for w in ("in use", "already", "another", "lock")), said
    assert center.kubeconfig.exists(), "the second process must not take the first one's files along"
    assert write(center, "a")[0] == 201


def test_port_in_use(center, base):
    center.start()
    said = refused("--data-dir", base / "other", "--listen", f"127.0.0.1:{center.port}")
    assert str(center.port) in said and "in use" in said.lower(), said


def test_read_only_directory(base):
    directory = base / "data"
    directory.mkdir()
    directory.chmod(0o555)
    # Root may write anywhere, so as root the binary is run as nobody, from a place nobody can reach.
    program, who = binary(), {}
    if os.getuid() == 0:
        program = shutil.copy(binary(), base / "selvedge")
        who = {"user": 65534, "group": 65534, "extra_groups": []}
    done = subprocess.run([program, "center", "--data-dir", str(directory), "--listen", "127.0.0.1:0"],
                          capture_output=True, text=True, timeout=20, **who)
    said = done.stdout + done.stderr
    assert done.returncode > 0 and str(directory) in said and "ermission denied" in said and "panicked" not in said, said


def test_directory_is_a_file(base):
    (base / "file").write_text("hello")
    assert "file" in refused("--data-dir", base / "file", "--listen", "127.0.0.1:0")
    assert (base / "file").read_text() == "hello"


def test_file_from_a_newer_version(center):
    center.start()
    write(center, "a")
    assert center.stop() == 0
    path = database(center)
    with contextlib.closing(sqlite3.connect(path)) as db:
        version = db.execute("pragma user_version").fetchone()[0]
        assert version > 0, "the file should carry the version of its layout"
        db.execute(f"pragma user_version = {version + 1000}")
        db.commit()
    said = refused("--data-dir", center.data_dir, "--listen", "127.0.0.1:0")
    assert "newer" in said and str(version + 1000) in said, said
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"pragma user_version = {version}")
        db.commit()
    center.start()
    assert center.api("GET", f"{PATH}/a")


def test_truncated_file(center):
    center.start()
    for i in range(20):
        assert write(center, f"c{i}", x=BIG)[0] == 201
    assert center.stop() == 0
    path = database(center)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    said = refused("--data-dir", center.data_dir, "--listen", "127.0.0.1:0")
    assert str(path) in said and any(w in said for w in ("cut off", "damaged", "malformed")), said
    assert path.read_bytes() == whole[: len(whole) // 2], "a damaged file is left as it was found"
    path.write_bytes(whole)
    center.start()
    assert center.api("GET", f"{PATH}/c19")


@pytest.mark.parametrize("content", [b"this is not a database" * 100, b"SQLite format 3\0" + b"\xff" * 8000])
def test_file_that_is_no_database(center, content):
    center.start()
    center.stop()
    path = database(center)
    for other in path.parent.glob(path.name + "-*"):
        other.unlink()
    path.write_bytes(content)
    said = refused("--data-dir", center.data_dir, "--listen", "127.0.0.1:0")
    assert str(path) in said, said
    assert path.read_bytes() == content


def test_foreign_database(center):
    center.start()
    center.stop()
    path = database(center)
    for other in [path, *path.parent.glob(path.name + "-*")]:
        other.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("create table customers (name text)")
        db.commit()
    said = refused("--data-dir", center.data_dir, "--listen", "127.0.0.1:0")
    assert str(path) in said, said
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("select name from sqlite_master").fetchall() == [("customers",)], "nothing was put into a stranger's file"


def fill_until_refused(center, limit=400):
    """Writes until one is refused; the names that were acknowledged, and the refusal."""
    done = []
    for i in range(limit):
        status, _, body = write(center, f"fill{i:04}", x=BIG)
        if status != 201:
            return done, status, body
        done.append(f"fill{i:04}")
    raise AssertionError("the disk never got full")


def names(center):
    return {o["metadata"]["name"] for o in center.api("GET", PATH)["items"]}


def test_disk_full(base):
    disk = base / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(disk)], capture_output=True, timeout=60)
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root; the file size limit test stands in for it")
    center = Center(base / "data")
    try:
        center.data_dir, center.kubeconfig = disk / "data", disk / "data" / "admin.kubeconfig"
        center.command[center.command.index("--data-dir") + 1] = str(center.data_dir)
        ballast = disk / "ballast"
        center.start()
        ballast.write_bytes(b"x" * (10 << 20))
        done, status, body = fill_until_refused(center)
        assert status in (500, 503, 507) and b"Status" in body and b"full" in body, (status, body)
        assert set(done) <= names(center), "reading goes on while the disk is full"
        assert write(center, "refused-too", x=BIG)[0] >= 500
        ballast.unlink()
        wait_for("writes to work again", lambda: write(center, "after")[0] in (201, 409), 20)
        center.kill()
        center.start()
        assert set(done) | {"after"} <= names(center)
    finally:
        center.kill()
        subprocess.run(["umount", str(disk)], check=True, timeout=60)


def test_file_size_limit(base):
    """Needs no root: files may not grow past 6 MB, which a write meets as an error of the disk."""
    center = Center(base / "data")
    log = open(base / "limited.log", "wb")
    center.kubeconfig.parent.mkdir(parents=True)
    # Python ignores SIGXFSZ and, with restore_signals off, so does the child: the write fails instead.
    center.process = subprocess.Popen(
        [*center.command, "--listen", "127.0.0.1:0"], stdout=log, stderr=log, restore_signals=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (6 << 20, 6 << 20)))
    center.log_path = base / "limited.log"
    try:
        center.wait_ready()
        done, status, body = fill_until_refused(center)
        assert status in (500, 503, 507) and b"Status" in body, (status, body)
        assert done and set(done) <= names(center)
        center.kill()
        center.start()
        assert set(done) <= names(center)
        assert write(center, "after")[0] == 201
    finally:
        center.kill()
        log.close()


def test_sigterm_ends_watches_and_drains(center):
    center.start()
    watch = center.connection(timeout=20)
    headers = {"Authorization": f"Bearer {center.token}"} if center.token else {}
    watch.request("GET", f"{PATH}?watch=true", headers=headers)
    reply = watch.getresponse()
    assert reply.status == 200
    ended = []
    reader = threading.Thread(target=lambda: ended.append(reply.read()))
    reader.start()
    statuses, stop = [], threading.Event()

    def keep_writing():
        i = 0
        while not stop.is_set():
            i += 1
            try:
                statuses.append((i, write(center, f"w{i}")[0]))
            except OSError:
                return

    writer = threading.Thread(target=keep_writing)
    writer.start()
    time.sleep(0.5)
    begun = time.monotonic()
    assert center.stop() == 0, center.log_tail()
    assert time.monotonic() - begun < 15
    stop.set()
    writer.join(10)
    reader.join(10)
    assert ended, "the watch must end properly (no broken chunk) when the server goes"
    center.start()
    there = names(center)
    assert all(f"w{i}" in there for i, status in statuses if status == 201)


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_with_zero(center, signal_):
    center.start()
    center.process.send_signal(signal_)
    assert center.process.wait(15) == 0


def test_identity_survives_a_restart(center):
    center.start()
    ca, before = center.ca.read_text(), center.kubeconfig.read_text()
    center.api("POST", PATH, configmap("a"))
    uid = center.api("GET", f"{PATH}/a")["metadata"]["uid"]
    center.stop()
    center.start()
    assert center.ca.read_text() == ca and center.kubeconfig.read_text() == before
    assert center.api("GET", f"{PATH}/a")["metadata"]["uid"] == uid


def test_secrets_are_not_for_everybody(center):
    center.start()
    for path in center.data_dir.rglob("*"):
        if path.is_file() and (path.name == "admin.kubeconfig" or "key" in path.name):
            assert path.stat().st_mode & 0o077 == 0, f"{path} is readable by others"


@pytest.mark.parametrize("args,says", [
    (["--store", "etcd"], "etcd"),
    (["--store", "nonsense"], "nonsense"),
    (["--listen", "nonsense"], "nonsense"),
    (["--no-such-flag"], "no-such-flag"),
])
def test_bad_flags(base, args, says):
    said = refused("--data-dir", base / "data", *args)
    assert says in said, said


def test_etcd_that_is_not_there(base):
    port = free_port()
    said = refused("--data-dir", base / "data", "--listen", "127.0.0.1:0", "--store", "etcd", "--etcd-endpoints",
                   f"http://127.0.0.1:{port}", seconds=60)
    assert str(port) in said, said
