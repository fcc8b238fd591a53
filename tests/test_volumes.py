"""Volumes that outlive their pods, on an edge that is nothing but our binary: claims, the default class, volumes made by hand, and what is removed when."""
import os
import pathlib
import shutil
import stat

import pytest
from center import wait_for
from test_pods import Here, conditions, pod, running, shell

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"


class There(Here):
    """As there, with claims and volumes."""

    def claim(self, name):
        return self.edge.api("GET", f"{CLAIMS}/{name}", expect=(200, 404))

    def volume(self, name):
        return self.edge.api("GET", f"{VOLUMES}/{name}", expect=(200, 404))

    def bound(self, name):
        def seen():
            claim = self.claim(name)
            return claim if claim.get("status", {}).get("phase") == "Bound" else None

        return wait_for(f"claim {name} to be bound", seen, 30, every=0.1)

    def dir(self, name):
        """Where a pod has what is its own."""
        return self.edge.data_dir / "pods" / self.uid(name)

    def gone(self, path):
        wait_for(f"{path} to be gone", lambda: self.edge.api("GET", path, expect=(200, 404)).get("code") == 404, 30, every=0.1)


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    with running(tmp_path_factory.mktemp("volumes"), as_seen=There) as there:
        # Needs its time, so it begins at once.
        big = [{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}]
        fill = shell("head -c 3000000 /dev/zero > $SELVEDGE_ROOT/scratch/full; sleep 1000",
                     volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}])
        there.apply(pod("big", fill, volumes=big))
        yield there


def mode(path):
    return oct(stat.S_IMODE(path.stat().st_mode))


def claim(name, **spec):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def test_a_claim_has_a_class_by_default_and_waits_for_its_first_pod(there):
    classes = wait_for("the class", lambda: there.tools.json("get", "storageclasses")["items"], 30)
    assert [(c["metadata"]["name"], c["provisioner"], c["volumeBindingMode"], c["reclaimPolicy"]) for c in classes] == [
        ("local", "selvedge.dev/local", "WaitForFirstConsumer", "Delete")]
    there.apply(claim("waits"))
    found = wait_for("the event", lambda: [r for r, _ in there.events("waits") if r == "WaitForFirstConsumer"], 30)
    assert found and there.claim("waits")["spec"]["storageClassName"] == "local"
    assert there.claim("waits")["status"]["phase"] == "Pending"
    there.tools.kubectl("delete", "pvc", "waits", "--timeout=30s")


def test_a_stateful_set_keeps_its_data(there):
    """Through the deletion of its pod, the end of the agent, and what a reboot leaves; and nothing is left when its claim goes."""
    script = "echo one >> $SELVEDGE_ROOT/data/log; wc -l < $SELVEDGE_ROOT/data/log; sleep 1000"
    there.apply({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "serviceName": "db", "replicas": 2, "podManagementPolicy": "Parallel", "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"terminationGracePeriodSeconds": 1,
                         "containers": [shell(script, volumeMounts=[{"name": "data", "mountPath": "/data"}])]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim("x")["spec"]}],
        },
    })
    there.ready("db-0", 60)
    there.ready("db-1", 60)
    has = there.bound("data-db-0")
    volume = there.volume(has["spec"]["volumeName"])
    assert volume["status"]["phase"] == "Bound" and volume["spec"]["claimRef"]["uid"] == has["metadata"]["uid"]
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete" and volume["spec"]["storageClassName"] == "local"
    assert has["status"]["capacity"] == {"storage": "1Mi"}
    path = there.edge.data_dir / "volumes" / volume["metadata"]["name"]
    assert volume["spec"]["local"]["path"] == str(path)
    assert mode(path) == "0o777" and mode(path.parent) == "0o700", "for whoever runs there, and nobody else on the machine"
    assert there.claim("data-db-1")["spec"]["volumeName"] != volume["metadata"]["name"]
    lines = lambda: (path / "log").read_text().count("\n")
    assert lines() == 1
    before = there.uid("db-0")
    there.tools.kubectl("delete", "pod", "db-0", "--timeout=30s")
    wait_for("the next pod", lambda: there.edge.api("GET", "/api/v1/namespaces/default/pods/db-0", expect=(200, 404)).get(
        "metadata", {}).get("uid") not in (None, before), 30)
    there.ready("db-0", 60)
    assert lines() == 2 and there.log("db-0") == "2\n"
    # As a machine that was started again: nothing runs, and its disk is as it was.
    there.edge.kill()
    there.edge.end_containers()
    there.edge.start()
    there.wait("db-0", "started again", lambda found: found["status"]["containerStatuses"][0]["restartCount"] > 0, 60)
    wait_for("the third line", lambda: lines() == 3, 30)
    there.tools.kubectl("delete", "sts", "db", "--timeout=30s")
    there.gone("/api/v1/namespaces/default/pods/db-0")
    assert there.claim("data-db-0")["status"]["phase"] == "Bound" and lines() == 3, "claims stay"
    there.tools.kubectl("delete", "pvc", "data-db-0", "data-db-1", "--timeout=30s")
    there.gone(f"{VOLUMES}/{volume['metadata']['name']}")
    assert not path.exists()


def test_what_is_in_use_is_not_removed(there):
    there.apply(claim("used"), pod("user", shell("sleep 1000", volumeMounts=[{"name": "v", "mountPath": "/v"}]), nodeName=None,
                                   volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "used"}}]))
    there.ready("user", 60)
    name = there.bound("used")["spec"]["volumeName"]
    there.tools.kubectl("delete", "pvc", "used", "--wait=false")
    there.tools.kubectl("delete", "pv", name, "--wait=false")
    assert there.claim("used")["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert "kubernetes.io/pv-protection" in there.volume(name)["metadata"]["finalizers"]
    assert conditions(there.pod("user"))["Ready"] == "True" and (there.edge.data_dir / "volumes" / name).is_dir()
    there.tools.kubectl("delete", "pod", "user", "--grace-period=1", "--timeout=30s")
    there.gone(f"{CLAIMS}/used")
    there.gone(f"{VOLUMES}/{name}")
    # Although the volume's object was deleted first, by hand.
    assert not (there.edge.data_dir / "volumes" / name).exists()


def test_volumes_made_by_hand_are_bound_and_kept(there, tmp_path):
    (tmp_path / "hello").write_text("from before\n")
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "by-hand", "labels": {"disk": "old"}},
              "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "5Gi"}, "hostPath": {"path": str(tmp_path)},
                       "persistentVolumeReclaimPolicy": "Retain", "storageClassName": ""}}
    there.apply(volume, claim("mine", storageClassName="", selector={"matchLabels": {"disk": "old"}}))
    found = there.bound("mine")
    assert found["spec"]["volumeName"] == "by-hand" and found["status"]["capacity"] == {"storage": "5Gi"}
    there.apply(pod("reader", shell("cat $SELVEDGE_ROOT/v/hello", volumeMounts=[{"name": "v", "mountPath": "/v"}]), nodeName=None,
                    restartPolicy="Never", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "mine"}}]))
    there.phase("reader", "Succeeded")
    assert there.log("reader") == "from before\n"
    there.tools.kubectl("delete", "pod", "reader", "--timeout=30s")
    there.tools.kubectl("delete", "pvc", "mine", "--timeout=30s")
    wait_for("the volume to be released", lambda: there.volume("by-hand")["status"]["phase"] == "Released", 30)
    assert (tmp_path / "hello").exists()
    there.tools.kubectl("delete", "pv", "by-hand", "--timeout=30s")


def test_an_ephemeral_volume_comes_and_goes_with_its_pod(there):
    template = {"spec": claim("x")["spec"]}
    there.apply(pod("brief", shell("touch $SELVEDGE_ROOT/v/x; sleep 1000", volumeMounts=[{"name": "v", "mountPath": "/v"}]),
                    nodeName=None, volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]))
    there.ready("brief", 60)
    name = there.bound("brief-v")["spec"]["volumeName"]
    wait_for("the file", lambda: (there.edge.data_dir / "volumes" / name / "x").exists(), 30)
    there.tools.kubectl("delete", "pod", "brief", "--grace-period=1", "--timeout=30s")
    there.gone(f"{CLAIMS}/brief-v")
    there.gone(f"{VOLUMES}/{name}")


def test_a_claim_that_one_machine_cannot_give_is_told_so(there):
    there.apply(claim("shared", accessModes=["ReadWriteMany"]),
                pod("sharer", shell("sleep 1000"), nodeName=None,
                    volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "shared"}}]))
    found = wait_for("the event", lambda: [m for r, m in there.events("shared") if r == "ProvisioningFailed"], 30)
    assert "ReadWriteMany" in found[0]
    there.tools.kubectl("delete", "pod", "sharer", "--timeout=30s")
    there.tools.kubectl("delete", "pvc", "shared", "--timeout=30s")


def test_a_directory_in_memory_goes_with_its_pod_and_with_the_machine(there):
    mounts = [{"name": "fast", "mountPath": "/fast"}]
    there.apply(pod("quick", shell("touch $SELVEDGE_ROOT/fast/x; sleep 1000", volumeMounts=mounts),
                    volumes=[{"name": "fast", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]))
    there.ready("quick")
    uid, home = there.uid("quick"), pathlib.Path(f"/dev/shm/selvedge-{os.geteuid()}")
    link, real = there.dir("quick") / "volumes" / "fast", home / uid / "fast"
    assert mode(there.dir("quick")) == "0o700"
    assert os.readlink(link) == str(real) and mode(real) == "0o777" and mode(real.parent) == mode(home) == "0o700"
    wait_for("the file", (real / "x").exists, 30)
    # As a machine that was started again: nothing is in memory. Another pod went while nobody was there to see it.
    there.edge.kill()
    there.edge.end_containers()
    shutil.rmtree(home / uid)
    (there.edge.data_dir / "pods" / "went-away").mkdir()
    (home / "went-away" / "fast").mkdir(parents=True)
    there.edge.start()
    there.wait("quick", "started again", lambda found: found["status"]["containerStatuses"][0]["restartCount"] > 0, 60)
    wait_for("the file again", (real / "x").exists, 30)
    wait_for("what the other had to be gone", lambda: not (home / "went-away").exists(), 30)
    (real / "full").write_bytes(bytes(2 << 20))
    assert there.phase("quick", "Failed", 40)["status"]["reason"] == "Evicted"
    there.tools.kubectl("delete", "pod", "quick", "--grace-period=1", "--timeout=30s")
    wait_for("its memory to be free", lambda: not (home / uid).exists(), 30)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to a group")
def test_volumes_are_given_to_the_pods_group(there):
    names = ("work", "memory", "config", "data")
    sources = [{"emptyDir": {}}, {"emptyDir": {"medium": "Memory"}}, {"configMap": {"name": "grouped"}},
               {"persistentVolumeClaim": {"claimName": "grouped"}}]
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "grouped"}, "data": {"a": "1"}}
    there.apply(claim("grouped"), config, pod(
        "grouped", shell("sleep 1000", volumeMounts=[{"name": name, "mountPath": f"/{name}"} for name in names]),
        nodeName=None, securityContext={"fsGroup": 4711, "runAsUser": 4712},
        volumes=[{"name": name, **source} for name, source in zip(names, sources)]))
    found = there.ready("grouped", 60)
    volumes = there.dir("grouped") / "volumes"
    data = there.edge.data_dir / "volumes" / there.bound("grouped")["spec"]["volumeName"]
    token = next(v["name"] for v in found["spec"]["volumes"] if "projected" in v)
    seen = lambda path: (path.stat().st_uid, path.stat().st_gid, mode(path))
    for path in (volumes / "work", volumes / "memory", data):
        assert seen(path) == (0, 4711, "0o2777")
    assert seen(volumes / "config") == (0, 4711, "0o2755") and seen(volumes / "config" / "a") == (0, 4711, "0o644")
    assert seen(volumes / token / "token") == (4712, 4711, "0o640")
    there.apply({**config, "data": {"a": "2"}})
    wait_for("the change", lambda: (volumes / "config" / "a").read_text() == "2", 30)
    assert seen(volumes / "config" / "a") == (0, 4711, "0o644") and seen(volumes / "work") == (0, 4711, "0o2777")
    there.tools.kubectl("delete", "pod", "grouped", "--grace-period=1", "--timeout=30s")
    there.tools.kubectl("delete", "pvc", "grouped", "--timeout=30s")


def test_a_directory_beyond_its_limit_evicts_its_pod(there):
    found = there.phase("big", "Failed", 40)
    assert found["status"]["reason"] == "Evicted"
    assert found["status"]["message"].strip() == 'Usage of EmptyDir volume "scratch" exceeds the limit "1Mi".'
