"""What users ran into at edges: the runtime that was forgotten, keepers in each other's way, help of every command, one identity on two machines,
and what a container of the process runtime may do."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

import pytest

from center import Center, binary, wait_for
from edge import Edge, selvedge

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One center for all edges of this file."""
    center = Center(tmp_path_factory.mktemp("world") / "center")
    try:
        yield center.start()
    finally:
        center.kill()


@pytest.fixture
def edges(world, tmp_path):
    """Makes edges of this center; all that they started ends with the test."""
    made = []

    def make(name, *args, directory=None, **more):
        edge = Edge(world, directory or tmp_path / name, name, args=args, **more)
        made.append(edge)
        return edge

    yield make
    for edge in made:
        edge.kill()
        edge.end_containers()
        edge.forget_memory()


def only_data(edge):
    """From now on it is started with --data-dir and --listen alone."""
    edge.base = [binary(), "edge", "--data-dir", str(edge.data_dir)]
    return edge


def refused(edge, *args):
    """What a start says that ends at once."""
    done = subprocess.run([binary(), "edge", "--data-dir", str(edge.data_dir), "--listen", "127.0.0.1:0", *args],
                          capture_output=True, text=True, timeout=30)
    assert done.returncode == 1, done
    return done.stderr


def nodes(edge):
    return [node["metadata"]["name"] for node in edge.api("GET", NODES)["items"]]


def run_pod(edge, name, script, seconds=60, node=None, container=None, **spec):
    """A pod of one container, when it runs."""
    command = {"command": ["sh", "-c", script]} if script else {}
    one = {"name": "c", "image": "selvedge.dev/sample/web", **command, **(container or {})}
    edge.api("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": node or edge.name, "terminationGracePeriodSeconds": 1, "containers": [one], **spec}})
    return wait_for(f"{name} to begin", lambda: begun(edge, name), seconds)


def begun(edge, name):
    pod = edge.api("GET", f"{PODS}/{name}")
    state = (pod["status"].get("containerStatuses") or [{}])[0].get("state", {})
    return pod if "running" in state or "terminated" in state else None


def log_of(edge, name):
    return edge.request("GET", f"{PODS}/{name}/log", accept="*/*")[2].decode()


def said_by(edge, name, script, **more):
    """What a pod writes that runs to its end."""
    run_pod(edge, name, script, restartPolicy="Never", **more)
    wait_for(f"{name} to end", lambda: edge.api("GET", f"{PODS}/{name}")["status"]["phase"] in ("Succeeded", "Failed"), 30)
    return log_of(edge, name)


# ---- the runtime is remembered ----

def test_a_later_start_uses_the_runtime_that_the_edge_was_joined_with(edges):
    edge = edges("rupee", "--runtime", "kubelet", "--controllers=").start().wait_connected()
    edge.stop()
    only_data(edge).start().wait_connected()
    # An edge with the process runtime that is started now registers its Node; this one, which was started before, does not.
    fence_edge = edges("rupee-fence", "--runtime", "process").start()
    wait_for("the Node of the other", lambda: nodes(fence_edge), 30)
    fence_edge.stop()
    assert nodes(edge) == [], "a Node that nobody asked for"
    assert not (edge.data_dir / "keeper").exists()
    edge.stop()
    said = refused(edge, "--runtime", "process")
    assert "--runtime kubelet" in said and "--runtime process" in said and "--change-runtime" in said, said
    said = refused(edge, "--image", "a=b")
    assert "--runtime kubelet" in said, said
    # Deliberately, and then for good.
    edge.base += ["--runtime", "process", "--change-runtime"]
    edge.start()
    wait_for("its own node", lambda: nodes(edge) == ["rupee"])
    edge.stop()
    only_data(edge).start()
    run_pod(edge, "here", "sleep 1000")
    edge.stop()
    assert "--runtime kubelet" in refused(edge, "--runtime", "kubelet")


def test_a_data_directory_of_an_earlier_version_goes_on(edges):
    edge = edges("dinar", "--runtime", "kubelet").start().wait_connected()
    edge.stop()
    record = edge.data_dir / "runtime.json"
    record.unlink()
    said = refused(edge)
    assert "--runtime kubelet" in said and str(edge.data_dir) in said, said
    assert not record.exists()
    edge.start().wait_connected()
    assert "kubelet" in wait_for("the record", lambda: record.exists() and record.read_text())
    assert "runtime: kubelet" in selvedge("edge", "config", "--data-dir", edge.data_dir)


def test_the_kubeconfig_of_the_cluster_runtime_is_remembered(world, edges, tmp_path):
    kubeconfig = tmp_path / "cluster.kubeconfig"
    shutil.copy(world.kubeconfig, kubeconfig)
    edge = edges("lira", "--runtime", "cluster", "--kubeconfig", kubeconfig).start().wait_connected()
    edge.stop()
    only_data(edge)
    assert str(kubeconfig) in selvedge("edge", "config", "--data-dir", edge.data_dir)
    said = refused(edge, "--kubeconfig", tmp_path / "other")
    assert str(kubeconfig) in said and str(tmp_path / "other") in said and "--change-runtime" in said, said


def test_a_systemd_unit_can_name_the_runtime():
    assert "SELVEDGE_RUNTIME=" not in selvedge("edge", "systemd-unit").replace("# ", "")
    assert "\nEnvironment=SELVEDGE_RUNTIME=kubelet\n" in selvedge("edge", "systemd-unit", "--runtime", "kubelet")


# ---- keepers ----

def keeper(edge, *args, directory=None):
    return subprocess.run([binary(), "keeper", str(directory or edge.data_dir / "keeper"), *args],
                          capture_output=True, text=True, timeout=90)


def keeper_pid(directory):
    return int((directory / "lock").read_text())


def test_an_old_keeper_leaves_a_new_ones_socket_alone(edges, tmp_path):
    edge = edges("florin", "--runtime", "process").start()
    run_pod(edge, "old", "sleep 1000")
    edge.stop()
    aside = tmp_path / "aside"
    edge.data_dir.rename(aside)
    old = keeper_pid(aside / "keeper")
    # Another edge at the same place, with a pod of its own.
    new = edges("guilder", "--runtime", "process", directory=edge.data_dir).start()
    run_pod(new, "new", "sleep 1000")
    assert keeper_pid(new.data_dir / "keeper") != old
    done = keeper(None, "--stop", directory=aside / "keeper")
    assert done.returncode == 0 and f"pid {old}" in done.stdout and "1 container" in done.stdout, done
    wait_for("the old keeper to be gone", lambda: not os.path.exists(f"/proc/{old}"))
    assert (new.data_dir / "keeper/socket").exists()
    assert not (aside / "keeper/socket").exists()
    # The node of the new edge goes on, and so does its pod.
    new.stop()
    new.start()
    assert begun(new, "new")["status"]["containerStatuses"][0]["restartCount"] == 0
    run_pod(new, "another", "sleep 1000")


def test_a_keeper_whose_socket_was_removed_makes_it_anew(edges):
    edge = edges("florint", "--runtime", "process").start()
    run_pod(edge, "one", "sleep 1000")
    socket, pid = edge.data_dir / "keeper/socket", keeper_pid(edge.data_dir / "keeper")
    edge.stop()
    socket.unlink()
    wait_for("the socket", socket.exists, 5)
    edge.start()
    run_pod(edge, "two", "sleep 1000")
    assert keeper_pid(edge.data_dir / "keeper") == pid
    assert begun(edge, "one")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_stop_says_what_it_stopped(edges, tmp_path):
    edge = edges("zloty", "--runtime", "process").start()
    assert "nothing was stopped" in keeper(edge, "--stop").stdout
    run_pod(edge, "one", "sleep 1000")
    edge.stop()
    directory = edge.data_dir / "keeper"
    pid = keeper_pid(directory)
    wrong = keeper(edge, "--stop", directory=edge.data_dir)
    assert wrong.returncode == 1 and str(directory) in wrong.stderr, wrong
    # A keeper that nobody can ask: something else is where its socket was.
    (directory / "other").write_text("")
    (directory / "other").replace(directory / "socket")
    edge.start()
    said = wait_for("the agent to say what to do", lambda: re.search(
        rf"another keeper \(pid {pid}\).*--stop", edge.log_path.read_text()), 30)
    assert str(directory) in said.group(0)
    edge.stop()
    done = keeper(edge, "--stop")
    assert done.returncode == 0 and f"pid {pid}" in done.stdout, done
    wait_for("the keeper to be gone", lambda: not os.path.exists(f"/proc/{pid}"))
    assert "nothing was stopped" in keeper(edge, "--stop").stdout
    # The edge starts its pods anew.
    edge.start()
    wait_for("the pod again", lambda: begun(edge, "one")["status"]["containerStatuses"][0]["restartCount"] == 1, 30)


# ---- help ----

def commands(words=()):
    """Every command and subcommand, from what help says."""
    text = selvedge(*words, "--help")
    found = re.search(r"^Commands:\n((?:  .*\n|\n)*)", text, re.M)
    names = re.findall(r"^  ([a-z][a-z-]*)", found.group(1), re.M) if found else []
    yield tuple(words), text
    for name in names:
        if name != "help":
            yield from commands((*words, name))


HIDDEN = [("keeper",), ("container",), ("try-view",)]


def test_help_of_every_command(tmp_path):
    here = tmp_path / "here"
    here.mkdir()

    def run(*words):
        return subprocess.run([binary(), *words], cwd=here, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)

    known = [words for words, _ in commands()]
    assert len(known) > 25 and ("edge", "manifest") in known, known
    for words in known + HIDDEN:
        for flag in ("--help", "-h"):
            done = run(*words, flag)
            assert done.returncode == 0 and "Usage: selvedge" in done.stdout and not done.stderr, (words, flag, done)
    for words in HIDDEN:
        done = run("help", *words)
        assert done.returncode == 0 and f"Usage: selvedge {words[0]}" in done.stdout, done
        done = run(*words)
        assert done.returncode == 2 and f"Usage: selvedge {words[0]}" in done.stderr, done
        assert "selvedge: " in done.stderr.splitlines()[0], done
    # Without arguments a command does its work, or says in one line what is missing. These would begin to serve, or write an image.
    for words in known:
        if words in {("center",), ("up",), ("ws",), ("image",)}:
            continue
        done = run(*words)
        assert done.returncode in (0, 1, 2) and (done.stdout or done.stderr), (words, done)
        if done.returncode:
            assert done.stderr and "panicked" not in done.stderr, (words, done)
    assert run("keeper", "x", "--what").returncode == 2
    assert list(here.iterdir()) == [], "nothing is made in the directory that one is in"


# ---- one identity on two machines ----

def count(edge, text):
    return edge.log_path.read_text(errors="replace").count(text)


UP, REFUSED = "the link is up", "is used by another machine too"


def test_one_identity_on_two_machines_is_noticed_and_stopped(world, edges, tmp_path):
    first = edges("peso").start().wait_connected()
    first.stop()
    copied = tmp_path / "copy"
    shutil.copytree(first.data_dir, copied)
    first.start().wait_connected()
    copy = edges("peso", directory=copied)
    copy.joined = True
    copy.start()
    shared = wait_for("the condition", lambda: (first.condition("IdentityShared") or {}).get("status") == "True"
                      and first.condition("IdentityShared"), 40)
    assert str(first.data_dir) in shared["message"] and str(copied) in shared["message"], shared
    events = wait_for("the Event", lambda: [e for e in world.api("GET", "/api/v1/namespaces/default/events")["items"]
                                            if e["reason"] == "IdentityShared"])
    assert events[0]["involvedObject"]["name"] == "peso" and events[0]["message"][:200] == shared["message"][:200]
    assert "two machines use the identity" in world.log_path.read_text()
    # One of them stays, the other says why it does not.
    wait_for("the copy to say so", lambda: count(copy, REFUSED), 20)
    first.wait_connected()
    before = count(first, UP), count(copy, UP)
    time.sleep(3)
    assert (count(first, UP), count(copy, UP)) == before
    shown = copy.api("GET", "/api/v1/namespaces/kube-system/configmaps/selvedge-link")["data"]
    assert shown["state"] == "Refused" and "join it anew" in shown["message"], shown
    # The one that was let in is let in again, also after a crash; the other is not.
    first.kill()
    copy.stop()
    copy.start()
    wait_for("the copy to be refused again", lambda: count(copy, REFUSED) > 1, 20)
    first.start()
    wait_for("the first one", lambda: count(first, UP) > before[0], 20)
    # An operator decides for the other one.
    command = r"selvedge ws root && kubectl annotate synctarget peso --overwrite \S+/accept-instance="
    chosen = re.search(command + r"([0-9a-f]{16}); ", shared["message"]).group(1)
    path = "/apis/workload.kcp.io/v1alpha1/synctargets/peso"

    def annotate(value):
        world.api("PATCH", path, {"metadata": {"annotations": {"edge.selvedge.dev/accept-instance": value}}},
                  content_type="application/merge-patch+json")

    annotate(chosen)
    wait_for("the first one to be sent away", lambda: count(first, REFUSED), 20)
    copy.stop()
    ups = count(copy, UP)
    copy.start()
    wait_for("the copy", lambda: count(copy, UP) > ups, 20)
    first.stop()
    annotate("any")
    wait_for("the condition to go", lambda: copy.condition("IdentityShared")["status"] == "False")
    assert "edge.selvedge.dev/accept-instance" not in copy.target()["metadata"].get("annotations", {})


def test_restarts_and_backups_are_not_taken_for_a_second_machine(edges, tmp_path):
    edge = edges("real").start().wait_connected()
    edge.stop()
    backup = tmp_path / "backup"
    shutil.copytree(edge.data_dir, backup)
    ups = count(edge, UP)
    for turn in range(6):
        if turn in (2, 4):
            shutil.rmtree(edge.data_dir)
            shutil.copytree(backup, edge.data_dir)
        edge.start()
        ups = wait_for("the link", lambda: (now := count(edge, UP)) > ups and now, 20)
        edge.kill()
    edge.start().wait_connected()
    assert edge.condition("IdentityShared") is None and not count(edge, REFUSED)


# ---- texts ----

def test_an_edge_does_not_join_an_edge(world, edges, tmp_path):
    edge = edges("krona").start().wait_connected()
    other = subprocess.run([binary(), "edge", "--data-dir", str(tmp_path / "other"), "--listen", "127.0.0.1:0", "--center", edge.url,
                            "--token", edge.join_token(), "--name", "other", "--runtime", "kubelet"],
                           capture_output=True, text=True, timeout=30)
    assert other.returncode == 1 and "is no center's address" in other.stderr and "edge" in other.stderr, other.stderr


def test_an_address_that_is_not_this_machines(tmp_path):
    done = subprocess.run([binary(), "center", "--data-dir", str(tmp_path / "c"), "--listen", "203.0.113.7:6443"],
                          capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "no such address" in done.stderr and "using the port" not in done.stderr, done.stderr


def test_a_wrong_clock_is_named_by_an_edge_that_has_joined(edges, tmp_path):
    if not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("there is no C compiler")
    from test_clock import Clock
    clock = Clock(tmp_path, "krone")
    edge = edges("krone", env=clock.env).start().wait_connected()
    edge.stop()
    clock.jump(3 * 365 * 24 * 3600)
    edge.start()
    said = wait_for("the message", lambda: re.search(r"the clocks disagree: .*", edge.log_path.read_text()), 20).group(0)
    assert "only until 20" in said and "UNIX" not in said, said


# ---- the process runtime ----

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user and have capabilities")


@pytest.fixture(scope="module")
def machine(world, tmp_path_factory):
    """An edge with the process runtime and mapped images."""
    base = tmp_path_factory.mktemp("machine")
    # Others of this machine's users run the script, too, and pytest's directories are not open to them.
    open_to_all = pathlib.Path(tempfile.mkdtemp(prefix="selvedge-images-"))
    open_to_all.chmod(0o755)
    script = open_to_all / "reporter.sh"
    script.write_text("#!/bin/sh\necho \"args: $*\"\necho \"mode: $MODE\"\necho \"home: $HOME\"\necho \"user: $(id -u)\"\necho \"dir: $(pwd)\"\n")
    script.chmod(0o755)
    config = base / "edge.yaml"
    config.write_text(f"""
images:
  acme/tool:
    entrypoint: [{script}, --tool]
    cmd: [by, default]
    env: {{MODE: quiet}}
    workingDir: /usr
    user: nobody
  acme/plain: [{script}, plain]
""")
    edge = Edge(world, base / "mark", "mark", args=("--runtime", "process", "--config", config,
                                                    "--image", f"acme/reporter={script} --in -- --verbose 'two words'"))
    try:
        edge.start()
        wait_for("its node", lambda: nodes(edge) == ["mark"], 30)
        yield edge
    finally:
        edge.kill()
        edge.end_containers()
        edge.forget_memory()
        shutil.rmtree(open_to_all)


def test_args_replace_the_cmd_of_an_image_and_command_both(machine):
    def of(name, image="acme/reporter:2", **container):
        said = said_by(machine, name, None, container={"image": image, **container})
        return said.splitlines()[0]

    assert of("plain") == "args: --in --verbose two words"
    assert of("args", args=["-q"]) == "args: --in -q"
    assert of("command", command=["echo", "another"]) == "another"
    assert of("both", command=["echo", "another"], args=["word"]) == "another word"
    assert of("listed", image="acme/plain", args=["-x"]) == "args: plain -x"


@root_only
def test_an_image_says_more_than_its_command(machine):
    said = said_by(machine, "tool", None, container={"image": "acme/tool"})
    nobody = next(line.split(":") for line in open("/etc/passwd") if line.startswith("nobody:"))
    assert said.splitlines() == ["args: --tool by default", "mode: quiet", f"home: {nobody[5]}", f"user: {nobody[2]}", "dir: /usr"], said
    said = said_by(machine, "own", None, container={"image": "acme/tool", "workingDir": "/etc", "env": [{"name": "MODE", "value": "loud"}],
                                                    "securityContext": {"runAsUser": 4242}})
    assert said.splitlines()[1:] == ["mode: loud", "home: /", "user: 4242", "dir: /etc"], said


@root_only
def test_what_a_container_may_not_see_or_do_by_default(world, machine):
    keys = world.data_dir / "pki"
    assert (keys / "ca.key").exists()
    script = f"""
cat {keys}/ca.key && echo SAW center key
cat {machine.data_dir}/edge.json && echo SAW edge key
cat {machine.data_dir}/admin.kubeconfig && echo SAW kubeconfig
ls -A {machine.data_dir}/pods | grep . && echo SAW pods
ls -A /dev/shm/selvedge-0 | grep . && echo SAW Secrets
cat /proc/{machine.process.pid}/root{keys}/ca.key && echo SAW around
mount -t tmpfs x /mnt && echo MAY mount
touch /var/lib/selvedge/unlisted && echo MAY change the list
echo x > $SELVEDGE_ROOT/mine && cat $SELVEDGE_ROOT/mine
grep CapEff /proc/self/status
"""
    said = said_by(machine, "curious", script + "exit 0")
    assert "SAW" not in said and "MAY" not in said, said
    assert "\nx\n" in f"\n{said}", said
    usual = int(re.search(r"CapEff:\s*([0-9a-f]+)", said).group(1), 16)
    # CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_MKNOD are not there, CAP_CHOWN and CAP_NET_BIND_SERVICE are.
    assert [bool(usual >> bit & 1) for bit in (21, 19, 27, 0, 10)] == [False, False, False, True, True], said

    def effective(name, **security):
        text = said_by(machine, name, "grep CapEff /proc/self/status", container={"securityContext": security})
        return int(re.search(r"CapEff:\s*([0-9a-f]+)", text).group(1), 16)

    assert effective("none", capabilities={"drop": ["ALL"]}) == 0
    assert effective("one", capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}) == 1 << 10
    assert effective("more", capabilities={"add": ["SYS_TIME"]}) == usual | 1 << 25
    assert effective("all", privileged=True) >> 21 & 1
    said = said_by(machine, "privileged", f"test -s {machine.data_dir}/edge.json && echo sees it",
                   container={"securityContext": {"privileged": True}})
    assert "sees it" in said, said
    # What it mounts is there although it is in the edge's data directory, and a command that joins it sees no more.
    run_pod(machine, "joined", "sleep 1000", volumes=[{"name": "v", "emptyDir": {}}],
            container={"volumeMounts": [{"name": "v", "mountPath": "/data"}]})
    tools = machine.tools(machine.data_dir.with_name("home"))
    done = tools.kubectl("exec", "joined", "--", "sh", "-c",
                         f"echo y > /data/y; cat /data/y; cat {keys}/ca.key; grep CapBnd /proc/self/status", code=None)
    assert "y\n" in str(done) and "BEGIN" not in str(done), done
    assert f"CapBnd:\t{usual:016x}" in str(done), done
