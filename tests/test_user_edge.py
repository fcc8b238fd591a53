"""What users ran into at edges: the runtime that was forgotten, keepers in each other's way, help of every command, one identity on two machines,
and what a container of the process runtime may do."""
import os
import re
import shutil
import subprocess
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
    one = {"name": "c", "image": "selvedge.dev/sample/web", "command": ["sh", "-c", script], **(container or {})}
    if script is None:
        one.pop("command")
    edge.api("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": node or edge.name, "terminationGracePeriodSeconds": 1, "containers": [one], **spec}})
    return wait_for(f"{name} to begin", lambda: begun(edge, name), seconds)


def begun(edge, name):
    pod = edge.api("GET", f"{PODS}/{name}")
    state = (pod["status"].get("containerStatuses") or [{}])[0].get("state", {})
    return pod if "running" in state or "terminated" in state else None


def log_of(edge, name):
    status, body = edge.request("GET", f"{PODS}/{name}/log")[:2]
    return body if isinstance(body, str) else body.decode() if isinstance(body, bytes) else str(body)


# ---- the runtime is remembered ----

def test_a_later_start_uses_the_runtime_that_the_edge_was_joined_with(edges):
    edge = edges("rupee", "--runtime", "kubelet", "--controllers=").start().wait_connected()
    edge.stop()
    only_data(edge).start().wait_connected()
    # The process runtime registers its Node in less than a second.
    time.sleep(1.5)
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
    # Without arguments a command does its work, or says in one line what is missing. These would begin to serve.
    for words in known:
        if words in {("center",), ("up",), ("ws",)}:
            continue
        done = run(*words)
        assert done.returncode in (0, 1, 2) and (done.stdout or done.stderr), (words, done)
        if done.returncode:
            assert done.stderr and "panicked" not in done.stderr, (words, done)
    assert run("keeper", "x", "--what").returncode == 2
    assert list(here.iterdir()) == [], "nothing is made in the directory that one is in"
