"""The scheduler of an edge beside Kubernetes' own: the same Pods on the same nodes get the same places and the same words. Upstream's program is no part of
this repository: SELVEDGE_UPSTREAM names a directory with kube-scheduler 1.36; without it there is nothing to try."""
import os
import pathlib
import subprocess

import pytest

from center import Center, die_with_parent, wait_for
from edge import Edge
from test_workloads import Nodes

PROGRAM = pathlib.Path(os.environ.get("SELVEDGE_UPSTREAM", "/nowhere")) / "kube-scheduler"
PODS = "/api/v1/namespaces/default/pods"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="SELVEDGE_UPSTREAM names no programs")

IN_X, IN_Y = {"nodeSelector": {"zone": "x"}}, {"nodeSelector": {"zone": "y"}}


def term(app, kind="zone"):
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": kind}


def required(kind, app):
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term(app)]}}}


def preferred(kind, app):
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term(app)}]}}}


def spread(**more):
    return {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term("web"), **more}]}


def claim(name):
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}


# Names of Pods with what they ask for, in the order in which they come. After each group all go.
GROUPS = [
    [("too-big", {"cpu": "9"})],
    [("nowhere", {"nodeSelector": {"no": "where"}})],
    [("unbound", claim("static"))],
    [("first", {"cpu": "1900m", **IN_X}), ("second", {"cpu": "1900m", **IN_X}), ("third", {"cpu": "1500m"})],
    [("port", {"hostPort": 8080, **IN_Y}), ("same-port", {"hostPort": 8080, **IN_Y})],
    [(f"web{n}", {"app": "web", **spread()}) for n in range(4)]
    + [("domains", {"app": "web", **spread(minDomains=5)}), ("no-label", {"app": "web", **spread(topologyKey="none")})],
    [("web", IN_Y), ("rather", spread(whenUnsatisfiable="ScheduleAnyway") | {"app": "web"})],
    [(f"apart{n}", {"app": "apart", **required("podAntiAffinity", "apart")}) for n in range(3)],
    [("lonely", required("podAffinity", "nobody"))],
    [("db", IN_Y), ("near", required("podAffinity", "db")), ("rather-near", preferred("podAffinity", "db"))],
    [("full", {"cpu": "900m", **IN_Y}), ("polite", {"cpu": "900m", "priorityClassName": "polite", **IN_Y}),
     ("high", {"cpu": "900m", "priorityClassName": "high", **IN_Y}), ("as-high", {"cpu": "900m", "priorityClassName": "high", **IN_Y})],
    [("gated", {"schedulingGates": [{"name": "x.example/gate"}]})],
]


def pod(name, cpu="100m", app=None, hostPort=None, **spec):
    ports = [{"containerPort": 80, "hostPort": hostPort}] if hostPort else []
    container = {"name": "c", "image": "web:1", "ports": ports, "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app or name}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **spec}}


def prepare(edge):
    nodes = Nodes(edge)
    for name, cpu, zone in (("a", "2", "x"), ("b", "2", "x"), ("c", "1", "y")):
        nodes.add(name, cpu=cpu, zone=zone)
    for name, policy in (("high", "PreemptLowerPriority"), ("polite", "Never")):
        edge.api("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000, "preemptionPolicy": policy})
    edge.api("POST", "/apis/storage.k8s.io/v1/storageclasses", {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "static"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer"})
    edge.api("POST", "/api/v1/namespaces/default/persistentvolumeclaims", {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "static"}, "spec": {
            "storageClassName": "static", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
    return nodes


def verdict(edge, name):
    """Where it is, or why it waits. Nodes a and b are the same to both schedulers, so either will do."""
    pod = edge.api("GET", f"{PODS}/{name}")
    node, status = pod["spec"].get("nodeName"), pod["status"]
    if node:
        return {"a": "x", "b": "x", "c": "y"}[node], status.get("nominatedNodeName")
    said = next((c for c in status.get("conditions", []) if c["type"] == "PodScheduled" and c["status"] == "False"), None)
    # One for whom others go is waited for.
    return said and not status.get("nominatedNodeName") and (said["reason"], said["message"])


def verdicts(tmp_path, upstream):
    tmp_path.mkdir()
    center, program, found = Center(tmp_path / "center"), None, {}
    edge = Edge(center, tmp_path / "edge", args=["--runtime", "kubelet", *(["--controllers", "*,-scheduler"] if upstream else [])])
    try:
        center.start()
        edge.start()
        nodes = prepare(edge)
        if upstream:
            command = [PROGRAM, "--kubeconfig", edge.kubeconfig, "--leader-elect=false", "--secure-port=0"]
            log = open(tmp_path / "scheduler.log", "wb")
            program = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, preexec_fn=die_with_parent)
        for group in GROUPS:
            for name, asks in group:
                edge.api("POST", PODS, pod(name, **asks))
                found[name] = wait_for(name, lambda: verdict(edge, name), 40)
            for name, _ in group:
                edge.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
            wait_for("an empty place", lambda: not edge.api("GET", PODS)["items"])
        nodes.over = True
        return found
    finally:
        if program:
            program.kill()
            program.wait(30)
        edge.kill()
        center.kill()


def test_pods_get_the_same_places_and_words(tmp_path):
    ours, upstreams = verdicts(tmp_path / "ours", False), verdicts(tmp_path / "upstreams", True)
    differ = {name: (ours[name], upstreams[name]) for name in ours if ours[name] != upstreams[name]}
    assert not differ, differ
