"""What containers of the process runtime get that they should not: signals that the agent ignores, its open files, another user's home, privileges
that they gave up; and Secrets that lie on a disk. The edges are started as badly as a shell can start them; one is root's, one is not."""
import contextlib
import json
import os
import pathlib
import pty
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from center import Center, binary, wait_for
from edge import Edge
from test_pods import Here, pod as any_pod, shell

NOBODY = 65534
STRAY = "/etc/hostname"
# As a shell starts what is in its background, and worse: signals ignored and blocked, files open that are nobody's.
BADLY = f"""
import os, signal, sys
some = [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, *map(int, sys.argv[1].split())]
for one in some:
    signal.signal(one, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, some)
for number in (10, 251):
    os.dup2(os.open({STRAY!r}, os.O_RDONLY), number)
os.execvp(sys.argv[2], sys.argv[2:])
"""
# Every program of Rust ignores it.
SIGPIPE = 1 << (signal.SIGPIPE - 1)
IS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can become another user")


class Containers(Here):
    """An edge, and its containers as the machine sees them."""

    user = 0

    def pids(self, name):
        """All processes of a pod; those that were set up, and not those that are just becoming it."""
        mark = f"SELVEDGE_ROOT={self.edge.data_dir}/keeper/roots/{self.uid(name)}/".encode()
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if any(part.startswith(mark) for part in (path / "environ").read_bytes().split(b"\0")):
                    found.append(int(path.name))
        return found

    def keeper(self):
        return int((self.edge.data_dir / "keeper" / "lock").read_text())

    def exec(self, name, script, *options):
        return self.tools.kubectl("exec", *options, name, "--", "sh", "-c", script)

    def run(self, name, script, container=None, **spec):
        """What a container writes that ends."""
        self.apply(pod(self, name, shell(script, **(container or {})), restartPolicy="Never", **spec))
        self.phase(name, "Succeeded")
        return self.log(name)

    def home(self):
        return pathlib.Path(f"/dev/shm/selvedge-{self.user}")

    def delete(self, *names):
        self.tools.kubectl("delete", "pod", *names, "--grace-period=1", "--timeout=30s")


def pod(there, name, *containers, **spec):
    made = any_pod(name, *containers, **spec)
    made["spec"]["nodeName"] = there.edge.name
    return made


@contextlib.contextmanager
def edge_of(center, base, name, *prefix, ignored=""):
    edge = Edge(center, base / name, name, args=["--runtime", "process"])
    program = shutil.copy(binary(), base / "selvedge") if not (base / "selvedge").exists() else base / "selvedge"
    edge.base = [*prefix, sys.executable, "-c", BADLY, str(ignored), str(program), *edge.base[1:]]
    try:
        edge.start()
        tools = edge.tools(base / f"home-{name}")
        wait_for("the node", lambda: name in tools.kubectl("get", "nodes"), 30)
        wait_for("the account", lambda: tools.kubectl("get", "serviceaccount", "default"), 30)
        yield Containers(edge, tools)
        assert "panicked" not in edge.log_path.read_text(errors="replace")
    finally:
        edge.kill()
        edge.end_containers()
        edge.forget_memory()


@pytest.fixture(scope="module")
def world():
    base = pathlib.Path(tempfile.mkdtemp(prefix="selvedge-"))
    base.chmod(0o755)
    center = Center(base / "center")
    try:
        yield center.start(), base
    finally:
        center.kill()
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="module")
def roots(world):
    """An edge that is root's, if the tests are."""
    center, base = world
    with edge_of(center, base, "florin") as there:
        there.user = os.geteuid()
        yield there


@pytest.fixture(scope="module")
def nobodys(world):
    if not IS_ROOT:
        pytest.skip("the other edge is not root's already")
    center, base = world
    (base / "guilder").mkdir()
    os.chown(base / "guilder", NOBODY, NOBODY)
    with edge_of(center, base, "guilder", "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups") as there:
        there.user = NOBODY
        yield there


@pytest.fixture(params=["roots", "nobodys"])
def there(request):
    return request.getfixturevalue(request.param)


def signals(status):
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return int(lines["SigIgn"], 16), int(lines["SigBlk"], 16)


def test_the_agent_itself_was_started_badly(there):
    ignored, blocked = signals(pathlib.Path(f"/proc/{there.edge.process.pid}/status").read_text())
    assert ignored & (1 << (signal.SIGHUP - 1)) and blocked & (1 << (signal.SIGINT - 1))
    assert os.path.realpath(f"/proc/{there.edge.process.pid}/fd/251") == os.path.realpath(STRAY)


def test_signals_and_files_of_the_agent_are_not_the_containers(there):
    there.apply(pod(there, "plain", shell("sleep 1000; true"), {"name": "web", "image": "selvedge.dev/sample/web"},
                    shell("sleep 1000; true", name="terminal", tty=True, stdin=True)))
    there.ready("plain")
    pids = wait_for("all processes", lambda: (found := there.pids("plain")) and len(found) >= 5 and found, 20)
    for pid in [*pids, there.keeper()]:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        ignored, blocked = signals(status)
        allowed = SIGPIPE if command.startswith(b"selvedge\0") else 0
        assert (hex(ignored & ~allowed), hex(blocked)) == ("0x0", "0x0"), command
        files = {entry.name: os.readlink(entry) for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
        assert STRAY not in files.values(), (command, files)
    for options in ([], ["-c", "web"], ["-c", "terminal"]):
        said = there.exec("plain", "cat /proc/self/status; ls -l /proc/self/fd", *options)
        assert signals(said) == (0, 0), said
        assert STRAY not in said, said
    # Stopped by what it does not ignore.
    begun = time.monotonic()
    there.tools.kubectl("delete", "pod", "plain", "--grace-period=20", "--timeout=40s")
    assert time.monotonic() - begun < 15, "SIGTERM did not end it"


def test_ctrl_c_in_a_terminal(there):
    there.apply(pod(there, "shell", shell("sleep 1000")))
    there.ready("shell")
    ours, theirs = pty.openpty()
    command = ["kubectl", "exec", "-it", "shell", "--", "sh", "-c", "echo begun; exec sleep 1000"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=there.tools.env, start_new_session=True)
    try:
        os.close(theirs)
        os.set_blocking(ours, False)
        said = b""

        def begun():
            nonlocal said
            with contextlib.suppress(BlockingIOError):
                said += os.read(ours, 4096)
            return b"begun" in said

        wait_for("the command", begun, 20, every=0.05)
        until = time.monotonic() + 15
        while process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(OSError):
                os.write(ours, b"\x03")
            time.sleep(0.3)
        assert process.poll() == 130, said
    finally:
        process.kill()
        process.wait(20)
        os.close(ours)
    there.delete("shell")


def test_home_is_that_of_the_user(there):
    other = next(user for user in pwd.getpwall() if user.pw_uid not in (0, there.user) and user.pw_dir.startswith("/") and len(user.pw_dir) > 1)
    users = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "users"}, "data": {"passwd": "app:x:4711:4711::/srv/app:/bin/sh\n"}}
    there.apply(users)
    say = "echo $HOME; sleep 1000"
    of = lambda user: {"securityContext": {"runAsUser": user}}
    mounts = {"volumeMounts": [{"name": "users", "mountPath": "/etc/passwd", "subPath": "passwd"}]}
    there.apply(pod(there, "homes", shell(say, name="same"), shell(say, name="known", **of(other.pw_uid)), shell(say, name="unknown", **of(4711)),
                    shell(say, name="mounted", **of(4711), **mounts),
                    shell(say, name="own", **of(4711), env=[{"name": "HOME", "value": "/my/own"}]),
                    volumes=[{"name": "users", "configMap": {"name": "users"}}]))
    there.ready("homes")
    expected = {"same": os.environ.get("HOME", "/root"), "known": other.pw_dir, "unknown": "/", "mounted": "/srv/app", "own": "/my/own"}
    found = lambda: {name: there.log("homes", name).strip() for name in expected}
    wait_for("all to say it", lambda: all(found().values()), 10)
    assert found() == expected
    assert {name: there.exec("homes", "echo $HOME", "-c", name).strip() for name in expected} == expected
    there.delete("homes")


def files_with(directory, text):
    """Files below a directory in which there is this text. Links are not followed."""
    found = []
    for path in pathlib.Path(directory).rglob("*"):
        with contextlib.suppress(OSError):
            if not path.is_symlink() and path.is_file() and text in path.read_bytes():
                found.append(path)
    return found


def on_disk(there, text):
    return [path for part in ("pods", "keeper", "logs") for path in files_with(there.edge.data_dir / part, text.encode())]


def test_secrets_are_in_memory_and_follow(there):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"password": "hunter-one"}}
    there.apply(secret)
    volumes = [{"name": "keys", "secret": {"secretName": "keys"}},
               {"name": "both", "projected": {"sources": [{"secret": {"name": "keys"}}, {"serviceAccountToken": {"path": "token"}}]}},
               {"name": "about", "downwardAPI": {"items": [{"path": "note", "fieldRef": {"fieldPath": "metadata.annotations['note']"}}]}}]
    mounts = [{"name": "keys", "mountPath": "/keys"}, {"name": "both", "mountPath": "/both"}, {"name": "about", "mountPath": "/about"},
              {"name": "keys", "mountPath": "/part/password", "subPath": "password"}]
    # Where there are no namespaces, that is the only place.
    script = "sleep 1000"
    made = pod(there, "keys", shell(script, volumeMounts=mounts), volumes=volumes, metadata={"annotations": {"note": "hunter-note"}})
    there.apply(made)
    there.ready("keys")
    read = "cd $SELVEDGE_ROOT; cat keys/password; echo; cat both/password; echo; cat part/password; echo; cat about/note; echo; wc -c < both/token"
    said = there.exec("keys", read).split()
    assert said[:4] == ["hunter-one", "hunter-one", "hunter-one", "hunter-note"] and int(said[4]) > 100
    token = there.exec("keys", "cat $SELVEDGE_ROOT/both/token").strip()
    for text in ("hunter-one", "hunter-note", token):
        assert not on_disk(there, text), text
    uid = there.uid("keys")
    for path in [there.home(), there.home() / uid]:
        assert (path.stat().st_mode & 0o777, path.stat().st_uid) == (0o700, there.user)
    assert len(files_with(there.home() / uid, b"hunter-one")) == 3
    for volume in ("keys", "both", "about"):
        real = (there.edge.data_dir / "pods" / uid / "volumes" / volume).resolve()
        assert real.is_relative_to(there.home()), real
        kind = subprocess.run(["stat", "-f", "-c", "%T", real], capture_output=True, text=True, timeout=10).stdout.strip()
        assert kind == "tmpfs"
    # What changes arrives, but not at a part of it.
    there.tools.kubectl("patch", "secret", "keys", "-p", json.dumps({"stringData": {"password": "hunter-two"}}))
    wait_for("the change", lambda: there.exec("keys", read).split()[:3] == ["hunter-two", "hunter-two", "hunter-one"], 20)
    assert not on_disk(there, "hunter-two")
    there.delete("keys")
    wait_for("its memory to be free", lambda: not (there.home() / uid).exists(), 20)


def test_what_an_older_version_left_on_disk_goes_when_nothing_reads_it(there):
    there.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "old"}, "stringData": {"password": "hunter-old"}})
    mounts = [{"name": "old", "mountPath": "/old"}, {"name": "old", "mountPath": "/part", "subPath": "password"}]
    there.apply(pod(there, "old", shell("sleep 1000", volumeMounts=mounts), volumes=[{"name": "old", "secret": {"secretName": "old"}}]))
    there.ready("old")
    uid = there.uid("old")
    # The machine is started again: nothing runs, nothing is in memory. On disk there is what the version before this one had there.
    there.edge.kill()
    there.edge.end_containers()
    shutil.rmtree(there.home() / uid, ignore_errors=True)
    directory = there.edge.data_dir / "pods" / uid
    volume = directory / "volumes" / "old"
    if volume.is_symlink():
        volume.unlink()
    volume.mkdir(exist_ok=True)
    (volume / "..0").mkdir(exist_ok=True)
    (volume / "..0" / "password").write_text("hunter-old")
    if not (volume / "..data").is_symlink():
        (volume / "..data").symlink_to("..0")
        (volume / "password").symlink_to("..data/password")
    (directory / "subpaths" / "a").mkdir(parents=True, exist_ok=True)
    (directory / "subpaths" / "a" / "1").write_text("hunter-old")
    for path in [volume, *volume.rglob("*"), directory / "subpaths", *(directory / "subpaths").rglob("*")]:
        os.chown(path, there.user, -1, follow_symlinks=False)
    assert on_disk(there, "hunter-old")
    there.edge.start()
    there.wait("old", "started again", lambda found: found["status"]["containerStatuses"][0]["restartCount"] > 0 and
               "running" in found["status"]["containerStatuses"][0]["state"], 40)
    assert there.exec("old", "cat $SELVEDGE_ROOT/old/password; cat $SELVEDGE_ROOT/part") == "hunter-oldhunter-old"
    assert not on_disk(there, "hunter-old")
    there.delete("old")


def test_files_that_a_container_has_mounted_are_not_taken_from_it(roots):
    """The agent becomes this version while containers of the last one run: they go on reading what they have."""
    roots.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kept"}, "stringData": {"password": "hunter-kept"}})
    roots.apply(pod(roots, "kept", shell("while :; do cat $SELVEDGE_ROOT/kept/password || echo lost; echo; sleep 0.1; done",
                                         volumeMounts=[{"name": "kept", "mountPath": "/kept"}]),
                    volumes=[{"name": "kept", "secret": {"secretName": "kept"}}]))
    roots.ready("kept")
    roots.edge.kill()
    roots.edge.start()
    lines = lambda: roots.log("kept").split()
    before = len(lines())
    wait_for("more of it", lambda: len(lines()) > before + 20, 20)
    assert set(lines()) == {"hunter-kept"}
    assert roots.pod("kept")["status"]["containerStatuses"][0]["restartCount"] == 0
    roots.delete("kept")


@needs_root
def test_without_memory_secrets_are_on_disk_and_it_is_said(world):
    center, base = world
    (base / "shm").mkdir()
    hidden = ["unshare", "-m", "sh", "-c", f'mount --bind {base / "shm"} /dev/shm && exec "$@"', "sh"]
    # Besides, whoever ignores this cannot see how its children end.
    with edge_of(center, base, "thaler", *hidden, ignored=int(signal.SIGCHLD)) as there:
        there.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"password": "hunter"}})
        there.apply(pod(there, "keys", shell("sleep 1000", volumeMounts=[{"name": "keys", "mountPath": "/keys"}]),
                        volumes=[{"name": "keys", "secret": {"secretName": "keys"}}]))
        there.ready("keys")
        assert there.exec("keys", "cat $SELVEDGE_ROOT/keys/password") == "hunter"
        said = lambda: [message for reason, message in there.events("keys") if reason == "NotSupported" and '"keys"' in message]
        wait_for("the Event", said, 10)
        assert "on disk" in said()[0]


@needs_root
def test_who_gives_up_privileges_does_not_get_them_back(roots):
    base = roots.edge.data_dir.parent
    # Says as whom it runs: root, if the machine lets it.
    program = shutil.copy(shutil.which("id"), base / "id")
    os.chmod(program, 0o4755)
    say = f"{program} -u; grep NoNewPrivs /proc/self/status"
    as_other = lambda **more: {"securityContext": {"runAsUser": 4711, **more}}
    assert roots.run("may", say, as_other()).split() == ["0", "NoNewPrivs:", "0"]
    assert roots.run("may-too", say, as_other(allowPrivilegeEscalation=True)).split() == ["0", "NoNewPrivs:", "0"]
    assert roots.run("may-not", say, as_other(allowPrivilegeEscalation=False)).split() == ["4711", "NoNewPrivs:", "1"]
    roots.apply(pod(roots, "watched", shell("sleep 1000", **as_other(allowPrivilegeEscalation=False)),
                    {"name": "web", "image": "selvedge.dev/sample/web", **as_other(allowPrivilegeEscalation=False)}))
    roots.ready("watched")
    assert roots.exec("watched", say, "-c", "a").split() == ["4711", "NoNewPrivs:", "1"]
    for pid in roots.pids("watched"):
        assert "NoNewPrivs:\t1" in pathlib.Path(f"/proc/{pid}/status").read_text()
    roots.delete("may", "may-too", "may-not", "watched")


def test_who_asks_for_more_than_there_is_is_told(roots):
    asks = {"capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True, "seccompProfile": {"type": "RuntimeDefault"},
            "allowPrivilegeEscalation": False}
    roots.apply(pod(roots, "careful", shell("sleep 1000", securityContext=asks)), pod(roots, "careless", shell("sleep 1000")))
    roots.ready("careful")
    roots.ready("careless")
    said = lambda name: [message for reason, message in roots.events(name) if reason == "NotSupported"]
    wait_for("the Event", lambda: [message for message in said("careful") if "has no effect" in message], 10)
    told = next(message for message in said("careful") if "has no effect" in message)
    assert "readOnlyRootFilesystem, seccompProfile" in told and "allowPrivilegeEscalation" not in told and "capabilities" not in told
    assert not [message for message in said("careless") if "has no effect" in message]
    roots.delete("careful", "careless")
