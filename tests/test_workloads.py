"""The workload controllers of an edge, through kubectl. Nodes are played here: their Pods become ready as soon as they are bound, and go
as soon as they are deleted, unless a test wants it otherwise."""
import json
import threading
import time

import pytest

from center import Center, Tools, join, wait_for
from edge import Edge, selvedge

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Nodes:
    """All nodes of an edge, as far as their Pods notice."""

    def __init__(self, edge):
        self.edge, self.over, self.names, self.told = edge, False, [], 0.0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def alive(self, name):
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return {"type": "Ready", "status": "True", "reason": "Played", "lastHeartbeatTime": now, "lastTransitionTime": "2026-01-01T00:00:00Z"}

    def add(self, name, cpu="4", **labels):
        self.edge.api("POST", "/api/v1/nodes", {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}}, expect=(201, 409))
        self.edge.api("PATCH", f"/api/v1/nodes/{name}/status", {"status": {
            "allocatable": {"cpu": cpu, "memory": "4Gi", "pods": "50"}, "capacity": {"cpu": cpu, "memory": "4Gi", "pods": "50"},
            "conditions": [self.alive(name)]}}, content_type=MERGE)
        wait_for(f"{name} to be let in", lambda: not self.edge.api("GET", f"/api/v1/nodes/{name}")["spec"].get("taints"))
        self.names.append(name)

    def _run(self):
        while not self.over:
            try:
                if time.monotonic() - self.told > 10:
                    for name in self.names:
                        self.edge.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [self.alive(name)]}}, content_type=STRATEGIC)
                    self.told = time.monotonic()
                for pod in self.edge.api("GET", "/api/v1/pods")["items"]:
                    self._look(pod)
            except (AssertionError, OSError, ValueError, AttributeError):
                pass  # the edge is being killed, or somebody else was faster
            time.sleep(0.05)

    def _look(self, pod):
        meta, spec = pod["metadata"], pod["spec"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if not spec.get("nodeName"):
            return
        if "deletionTimestamp" in meta:
            self.edge.request("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}})
            return
        ready = "broken" not in spec["containers"][0]["image"]
        if pod["status"].get("phase") == "Pending":
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            conditions = [{"type": kind, "status": "True" if ready else "False", "lastTransitionTime": now} for kind in ("Ready", "ContainersReady")]
            self.edge.request("PATCH", path + "/status", {"metadata": {"uid": meta["uid"]}, "status": {"phase": "Running", "conditions": conditions}},
                              content_type=STRATEGIC)


@pytest.fixture(scope="module")
def edge(tmp_path_factory):
    base = tmp_path_factory.mktemp("workloads")
    center = Center(base / "center")
    edge = Edge(center, base / "florin", args=["--runtime", "kubelet", "--terminated-pod-gc-threshold", "5"])
    nodes = None
    try:
        center.start()
        edge.start()
        nodes = Nodes(edge)
        nodes.add("n1")
        nodes.add("n2")
        edge.nodes = nodes
        yield edge
        nodes.over = True
        join(nodes.thread)
        assert edge.stop() == 0
        assert "panicked" not in edge.log_path.read_text(errors="replace")
    finally:
        if nodes:
            nodes.over = True
        edge.kill()
        center.kill()


@pytest.fixture
def kubectl(edge, tmp_path, request):
    tools = Tools(edge, tmp_path / "home")
    name = request.node.originalname.removeprefix("test_").replace("_", "-")[:40].strip("-")
    tools.kubectl("create", "namespace", name)

    def run(*args, **kw):
        return tools.kubectl("-n", name, *args, **kw)

    run.json = lambda *args, **kw: tools.json("-n", name, *args, **kw)
    run.all, run.ns = tools.kubectl, name
    yield run
    tools.kubectl("delete", "namespace", name, "--wait=false")


def deployment(replicas=3, image="web:1", **spec):
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, **spec,
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": image}]}}}}


def images(kubectl):
    pods = [pod for pod in kubectl.json("get", "pods")["items"] if "deletionTimestamp" not in pod["metadata"]]
    return sorted(pod["spec"]["containers"][0]["image"] for pod in pods)


def rolled_out(kubectl, what="deployment/web", seconds=60):
    return kubectl("rollout", "status", what, f"--timeout={seconds}s", timeout=seconds + 30)


def test_a_deployment_rolls_out_and_back(kubectl):
    kubectl("apply", "-f", "-", stdin=deployment())
    assert "successfully rolled out" in rolled_out(kubectl)
    assert images(kubectl) == ["web:1"] * 3
    kubectl("set", "image", "deployment/web", "c=web:2")
    kubectl("annotate", "deployment/web", "kubernetes.io/change-cause=the second")
    rolled_out(kubectl)
    assert images(kubectl) == ["web:2"] * 3
    history = kubectl("rollout", "history", "deployment/web")
    assert "the second" in history and len([line for line in history.splitlines() if line[:1].isdigit()]) == 2
    kubectl("rollout", "undo", "deployment/web")
    rolled_out(kubectl)
    assert images(kubectl) == ["web:1"] * 3
    now = kubectl.json("get", "deployment", "web")
    assert now["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
    assert {c["type"]: c["status"] for c in now["status"]["conditions"]} == {"Available": "True", "Progressing": "True"}
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    assert [now["status"][field] for field in counts] == [3] * 4 and now["status"]["observedGeneration"] == now["metadata"]["generation"]
    told = wait_for("events", lambda: (text := kubectl("describe", "deployment", "web")) and "ScalingReplicaSet" in text and text)
    assert "Scaled up replica set web-" in told and "Scaled down replica set web-" in told
    sets = kubectl.json("get", "replicasets")["items"]
    assert sorted(rs["spec"]["replicas"] for rs in sets) == [0, 3]
    assert "managedFields" in json.loads(kubectl("get", "deployment", "web", "-o", "json", "--show-managed-fields"))["metadata"]
    assert "Created pod: web-" in kubectl("describe", "replicaset", sets[0]["metadata"]["name"])


def test_a_broken_rollout_stops_and_says_so(kubectl):
    kubectl("apply", "-f", "-", stdin=deployment(4, progressDeadlineSeconds=2))
    rolled_out(kubectl)
    kubectl("set", "image", "deployment/web", "c=web:broken")
    failed = kubectl("rollout", "status", "deployment/web", "--timeout=60s", code=1, timeout=90)
    assert "exceeded its progress deadline" in failed
    now = kubectl.json("get", "deployment", "web")["status"]
    assert now["availableReplicas"] == 3, now
    assert sorted(images(kubectl)) == ["web:1"] * 3 + ["web:broken"] * 2
    kubectl("rollout", "undo", "deployment/web")
    rolled_out(kubectl)
    assert images(kubectl) == ["web:1"] * 4


def test_pausing_scaling_and_dying(kubectl):
    kubectl("apply", "-f", "-", stdin=deployment(2))
    rolled_out(kubectl)
    kubectl("rollout", "pause", "deployment/web")
    kubectl("set", "image", "deployment/web", "c=web:2")
    kubectl("scale", "deployment/web", "--replicas=4")
    wait_for("four", lambda: images(kubectl) == ["web:1"] * 4)
    kubectl("rollout", "resume", "deployment/web")
    rolled_out(kubectl)
    assert images(kubectl) == ["web:2"] * 4
    victim = kubectl.json("get", "pods")["items"][0]["metadata"]["name"]
    kubectl("delete", "pod", victim)
    wait_for("a successor", lambda: images(kubectl) == ["web:2"] * 4)
    assert victim not in kubectl("get", "pods")
    kubectl("scale", "deployment/web", "--replicas=0")
    wait_for("nobody", lambda: images(kubectl) == [])


def test_recreate_and_orphans(kubectl):
    kubectl("apply", "-f", "-", stdin=deployment(2, strategy={"type": "Recreate"}))
    rolled_out(kubectl)
    kubectl("set", "image", "deployment/web", "c=web:2")
    rolled_out(kubectl)
    assert images(kubectl) == ["web:2"] * 2
    pods = sorted(pod["metadata"]["name"] for pod in kubectl.json("get", "pods")["items"])
    kubectl("delete", "deployment", "web", "--cascade=orphan")
    wait_for("orphans", lambda: all("ownerReferences" not in rs["metadata"] for rs in kubectl.json("get", "replicasets")["items"]))
    kubectl("apply", "-f", "-", stdin=deployment(2, "web:2", strategy={"type": "Recreate"}))
    rolled_out(kubectl)
    assert pods == sorted(pod["metadata"]["name"] for pod in kubectl.json("get", "pods")["items"]), "they were adopted, not made again"
    kubectl("delete", "deployment", "web")
    wait_for("nothing left", lambda: not kubectl.json("get", "replicasets,pods")["items"])


def test_a_daemonset_has_one_pod_on_each_node(kubectl, edge):
    spec = deployment()["spec"]
    daemons = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": {"selector": spec["selector"], "template": spec["template"]}}
    kubectl("apply", "-f", "-", stdin=daemons)
    rolled_out(kubectl, "daemonset/agent")

    def nodes():
        return sorted(pod["spec"].get("nodeName", "") for pod in kubectl.json("get", "pods")["items"])

    assert nodes() == ["n1", "n2"]
    kubectl("set", "image", "daemonset/agent", "c=web:2")
    rolled_out(kubectl, "daemonset/agent")
    assert images(kubectl) == ["web:2"] * 2
    kubectl("rollout", "undo", "daemonset/agent")
    rolled_out(kubectl, "daemonset/agent")
    assert images(kubectl) == ["web:1"] * 2
    edge.nodes.add("n3")
    wait_for("the third", lambda: nodes() == ["n1", "n2", "n3"])
    status = wait_for("its status", lambda: (s := kubectl.json("get", "daemonset", "agent")["status"]).get("numberAvailable") == 3 and s)
    assert status["desiredNumberScheduled"] == status["currentNumberScheduled"] == status["updatedNumberScheduled"] == 3
    kubectl.all("delete", "node", "n3")
    kubectl("delete", "daemonset", "agent")


def test_a_pod_that_fits_nowhere_is_told_why(kubectl, edge):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "big"}, "spec": {"containers": [
        {"name": "c", "image": "web:1", "resources": {"requests": {"cpu": "30"}}}], "nodeSelector": {"size": "big"}}}
    kubectl("apply", "-f", "-", stdin=pod)

    def condition():
        conditions = kubectl.json("get", "pod", "big")["status"].get("conditions", [])
        return next((c for c in conditions if c["type"] == "PodScheduled"), None)

    said = wait_for("a reason", condition)
    assert (said["status"], said["reason"]) == ("False", "Unschedulable")
    assert said["message"] == ("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, "
                               "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.")
    wait_for("an event", lambda: "FailedScheduling" in kubectl("get", "events"))
    edge.nodes.add("huge", cpu="64", size="big")
    wait_for("a node", lambda: kubectl.json("get", "pod", "big")["spec"].get("nodeName") == "huge")
    wait_for("an event", lambda: f"Successfully assigned {kubectl.ns}/big to huge" in kubectl("get", "events"))
    kubectl.all("delete", "node", "huge")


def a_pod(name, cpu="1", **spec):
    container = {"name": "c", "image": "web:1", "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [container], **spec}}


def test_an_important_pod_makes_room(kubectl, edge):
    edge.nodes.add("small", cpu="1", size="small")
    there = {"nodeSelector": {"size": "small"}}
    for name, policy in (("high", "PreemptLowerPriority"), ("polite", "Never")):
        kubectl.all("apply", "-f", "-", stdin={"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000,
                                               "preemptionPolicy": policy})
    kubectl("apply", "-f", "-", stdin=a_pod("low", **there))
    wait_for("its node", lambda: kubectl.json("get", "pod", "low")["spec"].get("nodeName") == "small")
    kubectl("apply", "-f", "-", stdin=a_pod("polite", priorityClassName="polite", **there))
    wait_for("why it waits", lambda: "not eligible due to preemptionPolicy=Never" in kubectl("get", "events"))
    kubectl("delete", "pod", "polite")
    kubectl("apply", "-f", "-", stdin=a_pod("high", priorityClassName="high", **there))
    wait_for("room", lambda: kubectl.json("get", "pod", "high")["spec"].get("nodeName") == "small")
    uid = kubectl.json("get", "pod", "high")["metadata"]["uid"]
    assert [pod["metadata"]["name"] for pod in kubectl.json("get", "pods")["items"]] == ["high"]
    wait_for("why it went", lambda: f"Preempted by pod {uid} on node small" in kubectl("get", "events"))
    kubectl("delete", "pod", "high")
    kubectl.all("delete", "node/small", "priorityclass/high", "priorityclass/polite")


def test_a_claim_is_made_where_its_first_pod_goes(kubectl):
    kubectl.all("apply", "-f", "-", stdin={"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "played"},
                                           "provisioner": "played.example/p", "volumeBindingMode": "WaitForFirstConsumer"})
    volumes = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    kubectl("apply", "-f", "-", stdin=a_pod("db", **volumes))
    wait_for("why it waits", lambda: 'persistentvolumeclaim "data" not found' in kubectl("get", "events"))
    kubectl("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "played", "resources": {"requests": {"storage": "1Gi"}}}})
    node = wait_for("a node", lambda: kubectl.json("get", "pvc", "data")["metadata"].get("annotations", {}).get("volume.kubernetes.io/selected-node"))
    assert node in ("n1", "n2") and not kubectl.json("get", "pod", "db")["spec"].get("nodeName")
    kubectl("delete", "pod/db", "pvc/data", "--wait=false")
    kubectl.all("delete", "storageclass", "played")


def test_endpoints_by_hand_are_mirrored(kubectl):
    kubectl("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "Service", "metadata": {"name": "outside"}, "spec": {"ports": [{"port": 80}]}})
    kubectl("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "outside", "labels": {"team": "x"}}, "subsets": [
        {"addresses": [{"ip": "192.0.2.7"}], "ports": [{"port": 8080}]}]})

    def slices():
        return kubectl.json("get", "endpointslices", "-l", "kubernetes.io/service-name=outside")["items"]

    slice = wait_for("a slice", slices)[0]
    assert slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == "endpointslicemirroring-controller.k8s.io"
    assert slice["metadata"]["labels"]["team"] == "x" and slice["endpoints"][0]["addresses"] == ["192.0.2.7"] and slice["ports"][0]["port"] == 8080
    kubectl("patch", "endpoints", "outside", "--type=json", "-p", '[{"op": "replace", "path": "/subsets/0/addresses/0/ip", "value": "192.0.2.8"}]')
    wait_for("the change", lambda: slices()[0]["endpoints"][0]["addresses"] == ["192.0.2.8"])
    revision = slices()[0]["metadata"]["resourceVersion"]
    kubectl("label", "endpoints", "outside", "endpointslice.kubernetes.io/skip-mirror=true")
    wait_for("that it goes", lambda: not slices())
    kubectl("label", "endpoints", "outside", "endpointslice.kubernetes.io/skip-mirror-")
    assert wait_for("that it comes", slices)[0]["metadata"]["resourceVersion"] != revision


def test_pods_that_have_ended_do_not_pile_up(kubectl, edge):
    names = [f"p{number}" for number in range(8)]
    for name in names:
        kubectl("apply", "-f", "-", stdin=a_pod(name, schedulerName="nobody"))
        path = f"/api/v1/namespaces/{kubectl.ns}/pods/{name}/status"
        edge.api("PATCH", path, {"status": {"phase": "Succeeded"}}, content_type=MERGE)
    wait_for("the newest", lambda: sorted(pod["metadata"]["name"] for pod in kubectl.json("get", "pods")["items"]) == names[3:])


def test_drain_respects_a_budget(kubectl, edge):
    kubectl("apply", "-f", "-", stdin=deployment(2))
    kubectl("apply", "-f", "-", stdin={"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
                                       "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}})
    rolled_out(kubectl)

    def status():
        return kubectl.json("get", "pdb", "web").get("status", {})

    wait_for("the budget", lambda: status().get("currentHealthy") == 2)
    assert status()["disruptionsAllowed"] == 0
    pod = kubectl.json("get", "pods")["items"][0]
    path = f"/api/v1/namespaces/{kubectl.ns}/pods/{pod['metadata']['name']}/eviction"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}}
    refused = edge.api("POST", path, eviction, expect=(429,))
    assert "needs 2 healthy pods and has 2 currently" in json.dumps(refused)
    kubectl("scale", "deployment/web", "--replicas=3")
    wait_for("room", lambda: status().get("disruptionsAllowed") == 1)
    edge.api("POST", path, eviction)
    wait_for("a successor", lambda: pod["metadata"]["name"] not in kubectl("get", "pods") and status().get("disruptionsAllowed") == 1)
    # Draining evicts one after the other, and waits for the budget in between.
    node = kubectl.json("get", "pods")["items"][0]["spec"]["nodeName"]
    kubectl.all("drain", node, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=60s", timeout=90)
    wait_for("all elsewhere", lambda: len(where := [p["spec"].get("nodeName") for p in kubectl.json("get", "pods")["items"]]) == 3 and node not in where)
    kubectl.all("uncordon", node)


def test_a_rollout_goes_on_after_a_crash(kubectl, edge):
    kubectl("apply", "-f", "-", stdin=deployment(6, minReadySeconds=1))
    rolled_out(kubectl)
    kubectl("set", "image", "deployment/web", "c=web:2")
    wait_for("the middle of it", lambda: len(set(images(kubectl))) == 2)
    edge.kill()
    edge.start()
    rolled_out(kubectl)
    assert images(kubectl) == ["web:2"] * 6


def test_controllers_can_be_switched_off(tmp_path):
    center = Center(tmp_path / "center")
    try:
        center.start()
        edge = Edge(center, tmp_path / "guilder", name="guilder", args=["--runtime", "kubelet", "--controllers", "*,-scheduler"])
        try:
            edge.start()
            nodes = Nodes(edge)
            nodes.add("n1")
            tools = Tools(edge, tmp_path / "home")
            tools.kubectl("apply", "-f", "-", stdin=deployment(1))
            pod = wait_for("a pod", lambda: tools.json("get", "pods")["items"])[0]
            tools.kubectl("wait", "--for=condition=Progressing", "deployment/web")
            assert not pod["spec"].get("nodeName") and not pod["status"].get("conditions"), pod["status"]
            assert not tools.json("get", "pods")["items"][0]["spec"].get("nodeName")
            nodes.over = True
            assert edge.stop() == 0
        finally:
            edge.kill()
    finally:
        center.kill()
    said = selvedge("edge", "config", "--controllers", "*,-schedulr", code=1)
    assert "schedulr" in said and "daemonset" in said
    assert "'*'" in (text := selvedge("edge", "config")) and "controllers" in text
    assert "controllers: []" in selvedge("edge", "config", "--controllers=")
    assert "terminatedPodGcThreshold: 500" in text
