"""What a process in a pod sees, on an edge of root and on one of a plain user: volumes where they say, and the machine as it is beside them."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest
from center import Center, binary, wait_for
from edge import Edge
from test_pods import Here, pod, shell

NOBODY = 65534
# As any program in a cluster does: nothing of ours is named.
IN_CLUSTER = """
import kubernetes
kubernetes.config.load_incluster_config()
try:
    kubernetes.client.CoreV1Api().list_namespaced_pod("default")
except kubernetes.client.ApiException as refused:
    print(refused.status, refused.body, flush=True)
"""


@pytest.fixture(scope="module", params=["root", "plain"])
def here(request, tmp_path_factory):
    is_root = os.getuid() == 0
    if request.param == "root" and not is_root:
        pytest.skip("needs root")
    base = pathlib.Path(tempfile.mkdtemp(prefix="selvedge-"))
    base.chmod(0o755)
    as_user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if request.param == "plain" and is_root else []
    tried = subprocess.run([*as_user, shutil.copy(binary(), base / "selvedge"), "try-view", "/tmp"], stdin=subprocess.DEVNULL, timeout=60)
    if tried.returncode != 0:
        pytest.skip("namespaces are not permitted here")
    center = Center(base / "center")
    edge = Edge(center, base / "florin", args=["--runtime", "process"])
    edge.base[0] = str(base / "selvedge")
    if as_user:
        edge.data_dir.mkdir()
        os.chown(edge.data_dir, NOBODY, NOBODY)
        edge.base = [*as_user, *edge.base]
    try:
        center.start()
        edge.start().wait_connected()
        found = Here(edge, edge.tools(tmp_path_factory.mktemp("views")))
        found.is_root = request.param == "root"
        yield found
    finally:
        edge.kill()
        edge.end_containers()
        center.kill()
        shutil.rmtree(base, ignore_errors=True)


def test_a_pod_as_people_write_it(here):
    """ConfigMap, Secret, scratch space and last words at their paths, none of them on the machine, read-only where it has to be."""
    here.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app"}, "data": {"greeting": "hello"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"key": "s3cret"}})
    script = ("cat /etc/view/app/greeting /keys/key; echo; touch /etc/view/app/x 2>&1; echo kept > /scratch-view/x; cat /scratch-view/x; "
              "cat /scratch-view/nested/greeting; echo; hostname; ls -d /usr/bin /proc/self/fd; printf last > /dev/termination-log; exit 3")
    mounts = [{"name": "app", "mountPath": "/etc/view/app"}, {"name": "keys", "mountPath": "/keys"},
              {"name": "scratch", "mountPath": "/scratch-view"}, {"name": "app", "mountPath": "/scratch-view/nested"}]
    volumes = [{"name": "app", "configMap": {"name": "app"}}, {"name": "keys", "secret": {"secretName": "keys"}},
               {"name": "scratch", "emptyDir": {}}]
    here.apply(pod("written", shell(script, volumeMounts=mounts), volumes=volumes, restartPolicy="Never"))
    ended = here.phase("written", "Failed")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (3, "last")
    said = here.log("written").splitlines()
    assert said[0] == "hellos3cret" and "Read-only file system" in said[1], said
    assert said[2:] == ["kept", "hello", "written", "/proc/self/fd", "/usr/bin"], said
    assert not any(pathlib.Path(path).exists() for path in ("/etc/view", "/keys", "/scratch-view", "/dev/termination-log"))
    assert not [message for reason, message in here.events("written") if "namespaces" in message]


def test_a_client_library_finds_the_cluster(here):
    libraries = os.environ["PYTHONPATH"].split(":")[0]
    env = [{"name": "PYTHONPATH", "value": libraries}, {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}]
    container = {"name": "a", "image": "selvedge.dev/sample/echo", "command": ["python3", "-c", IN_CLUSTER], "env": env}
    here.apply(pod("client", container, restartPolicy="Never"))
    here.phase("client", "Succeeded", 60)
    said = here.log("client")
    assert said.startswith("403 ") and "system:serviceaccount:default:default" in said, said


def test_users_and_commands_that_join_them(here):
    """Who asks for a user has it, in a command too; without root only from within, where that user is the edge's own."""
    script = "echo $(id -u) $(id -g); echo by name > /dev/stdout; touch /work/$(id -u); sleep 1000"
    here.apply(pod("somebody", shell(script, volumeMounts=[{"name": "work", "mountPath": "/work"}]),
                   volumes=[{"name": "work", "emptyDir": {}}], securityContext={"runAsUser": 4242, "runAsGroup": 4343, "runAsNonRoot": True}))
    here.ready("somebody")
    assert here.tools.kubectl("exec", "somebody", "--", "sh", "-c", "id -u; cd /work; ls; touch more; hostname").splitlines() == [
        "4242", "4242", "somebody"]
    assert here.log("somebody").splitlines() == ["4242 4343", "by name"]
    work = here.edge.data_dir / "pods" / here.uid("somebody") / "volumes" / "work"
    assert sorted((file.name, file.stat().st_uid) for file in work.iterdir()) == [
        ("4242", 4242 if here.is_root else NOBODY), ("more", 4242 if here.is_root else NOBODY)]
    here.apply(pod("nobody", shell("id -u"), restartPolicy="Never", securityContext={"runAsNonRoot": True}))
    here.phase("nobody", "Succeeded")
    assert here.log("nobody") == f"{NOBODY}\n"
    assert json.dumps(here.events("somebody")).find("runs as") < 0


def test_names_memory_and_groups_from_within(here):
    script = ("getent hosts db; getent hosts $(hostname); stat -f -c %T /fast; touch /fast/x && head -c 2 /var/run/secrets/kubernetes.io/serviceaccount/token; "
              "echo; getent hosts kubernetes; stat -c '%g %a' /fast /fast/x")
    here.apply(pod("inside", shell(script, volumeMounts=[{"name": "fast", "mountPath": "/fast"}]), restartPolicy="Never",
                   securityContext={"runAsUser": 4242, "fsGroup": 4343}, hostAliases=[{"ip": "192.0.2.7", "hostnames": ["db"]}],
                   volumes=[{"name": "fast", "emptyDir": {"medium": "Memory"}}]))
    address = here.phase("inside", "Succeeded")["status"]["podIP"]
    said = [line.split() for line in here.log("inside").splitlines()]
    assert said[:4] == [["192.0.2.7", "db"], [address, "inside"], ["tmpfs"], ["ey"]], said
    # A plain user's resolver is not where a resolv.conf can say, and all its files are its own.
    if here.is_root:
        assert said[4][1] == "kubernetes.default.svc.cluster.local" and said[5:] == [["4343", "2777"], ["4343", "644"]], said
    # The machine's memory would keep it for longer than this test's directory.
    memory = pathlib.Path("/dev/shm") / f"selvedge-{here.edge.data_dir.stat().st_uid}" / here.uid("inside")
    assert memory.is_dir()
    here.tools.kubectl("delete", "pod", "inside", "--timeout=30s")
    wait_for("its memory to be free", lambda: not memory.exists(), 30)
