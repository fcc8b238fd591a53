"""Panics in tasks of the node: each is logged with its name and counted, and the work goes on.

A debug build of the program panics once in each task that SELVEDGE_PANIC_TASK names. One edge has all of them.
"""
import re
import socket

import pytest
from center import Center, wait_for
from edge import Edge, make_workspace

SHOP = "root:shop"
# One of each kind: controllers, the runner of Pods, a Pod's worker, Services, the node's own API.
TASKS = ["deployment-controller", "replicaset-controller:9", "scheduler-controller", "cache-watch", "event-writer",
         "node-rim", "node-status", "container-lister", "pod-worker", "service-watch", "service-proxy", "proxy-tcp",
         "dns-resolver", "node-connection"]
NAMES = [task.split(":")[0] for task in TASKS]
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def edge(tmp_path_factory):
    directory = tmp_path_factory.mktemp("supervision")
    center = Center(directory / "center").start()
    make_workspace(center, SHOP)
    env = {"SELVEDGE_PANIC_TASK": ",".join(TASKS)}
    edge = Edge(center, directory / "florin", "florin", SHOP, env=env, args=("--runtime", "process"))
    edge.start().wait_connected()
    yield edge
    edge.kill()
    edge.end_containers()
    center.kill()


@pytest.fixture(scope="module")
def answered(edge):
    """A Deployment and a Service, up to an answer through the Service's address: all tasks but one have work by that."""
    labels = {"app": "web"}
    container = {"name": "c", "image": "selvedge.dev/sample/echo", "ports": [{"name": "main", "containerPort": 8080}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    edge.api("POST", "/apis/apps/v1/namespaces/default/deployments", {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}})
    made = edge.api("POST", "/api/v1/namespaces/default/services", {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": labels, "ports": [{"name": "http", "port": 8000, "targetPort": "main"}]}})
    wait_for("two Pods that are ready", lambda: len(ready_pods(edge)) == 2, 90)
    wait_for("an answer of the Service", lambda: get(made["spec"]["clusterIP"], 8000), 60)
    return ready_pods(edge)


def ready_pods(edge):
    def is_ready(pod):
        return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))

    return [pod["metadata"]["name"] for pod in edge.api("GET", PODS)["items"] if is_ready(pod)]


def get(ip, port):
    """The answer of a web server, or None where there is none."""
    try:
        with socket.create_connection((ip, port), 10) as stream:
            stream.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            return stream.recv(4096)
    except OSError:
        return None


def counted(edge, task, metric="selvedge_task_panics_total"):
    status, _, text = edge.request("GET", "/metrics")
    assert status == 200
    found = re.search(rf'^{metric}\{{task="{task}"\}} (\d+)$', text.decode(), re.M)
    return int(found[1]) if found else 0


def test_the_work_goes_on_after_a_panic_in_every_kind_of_task(edge, answered):
    assert len(answered) == 2


def test_the_nodes_api_goes_on_after_a_panic_in_a_connection(edge, answered):
    def log():
        status, _, body = edge.request("GET", f"{PODS}/{answered[0]}/log")
        return status == 200 and body

    # The first connection to the node's API is the one that panics.
    wait_for("a Pod's log", log, 30)


@pytest.mark.parametrize("task", NAMES)
def test_a_panic_is_counted_and_logged_with_the_name_of_its_task(edge, answered, task):
    if task == "node-connection":
        edge.request("GET", f"{PODS}/{answered[0]}/log")
    assert wait_for(f"a panic of {task} in the metrics", lambda: counted(edge, task), 30) == 1
    plain = re.sub(r"\x1b\[[0-9;]*m", "", edge.log_path.read_text(errors="replace"))
    lines = [line for line in plain.splitlines() if "a task panicked" in line and f'task="{task}"' in line]
    assert len(lines) == 1, edge.log_tail()


def test_a_pod_whose_worker_panicked_gets_another_one_and_can_be_deleted(edge, answered):
    assert counted(edge, "pod-worker") == 1
    for name in answered:
        edge.api("DELETE", f"{PODS}/{name}")
    wait_for("the deleted Pods to be replaced", lambda: len(set(ready_pods(edge)) - set(answered)) == 2, 60)
    gone = lambda: not set(answered) & {pod["metadata"]["name"] for pod in edge.api("GET", PODS)["items"]}
    wait_for("the deleted Pods to be gone", gone, 30)
