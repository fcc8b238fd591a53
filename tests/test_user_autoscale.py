"""HorizontalPodAutoscalers, ReplicationControllers and metrics.k8s.io of an edge with the process runtime, made there and placed from the center."""
import json

import pytest

from aggregated import APISERVICES, AUTHENTICATION, AggregatedServer, apiservice, available, service
from center import Center, Tools, wait_for
from edge import Edge, make_workspace, selvedge
from webhook import certificates

MERGE = "application/merge-patch+json"
HERE = "local"
HPAS = f"/apis/autoscaling/v2/namespaces/{HERE}/horizontalpodautoscalers"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{HERE}/deployments"
CONTROLLERS = f"/api/v1/namespaces/{HERE}/replicationcontrollers"
PODS = f"/api/v1/namespaces/{HERE}/pods"
SHOP = "/clusters/root:shop"
WAITS = "trap 'exit 0' TERM; while :; do sleep 0.3; done"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("autoscale")


@pytest.fixture(scope="module")
def edge(base):
    """It holds root:shop, and looks at autoscalers every second."""
    center = Center(base / "center").start()
    florin = Edge(center, base / "florin", "florin", "root:shop", args=["--runtime", "process"],
                  env={"SELVEDGE_HORIZONTAL_POD_AUTOSCALER_SYNC_PERIOD": "1s"})
    try:
        make_workspace(center, "root:shop")
        florin.start().wait_connected()
        ready = lambda: any(c["type"] == "Ready" and c["status"] == "True"
                            for c in florin.api("GET", "/api/v1/nodes/florin")["status"]["conditions"])
        wait_for("the node", ready, 60, every=0.05)
        florin.api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HERE}})
        yield florin
        for server in (center, florin):
            assert "panicked" not in server.log_path.read_text(errors="replace")
    finally:
        for process in (florin, center):
            process.kill()
        florin.end_containers()
        florin.forget_memory()


@pytest.fixture(scope="module")
def kubectl(edge, base):
    tools = Tools(edge, base / "home")
    return lambda *args, **kw: tools.kubectl("-n", HERE, *args, **kw)


def template(name, script=WAITS, **container):
    spec = {"name": "app", "image": "selvedge.dev/sample/web", "command": ["sh", "-c", script], **container}
    return {"metadata": {"labels": {"app": name}}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [spec]}}


def deployment(name, replicas=None, **more):
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template(name, **more)}
    if replicas is not None:
        spec["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def controller(name, replicas):
    return {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"app": name}, "template": template(name)}}


def autoscaler(name, kind="Deployment", version="apps/v1", least=1, most=3, metrics=None, target=None, **spec):
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}, "spec": {
        "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": target or name}, "minReplicas": least, "maxReplicas": most,
        "metrics": [cpu] if metrics is None else metrics, **spec}}


def short(window):
    """Scaling down waits for so long."""
    return {"scaleDown": {"stabilizationWindowSeconds": window, "policies": [{"type": "Percent", "value": 100, "periodSeconds": 1}]}}


def size(edge, path):
    return edge.api("GET", path)["spec"].get("replicas")


def condition(edge, name, kind, path=HPAS):
    found = edge.api("GET", f"{path}/{name}").get("status", {}).get("conditions") or []
    found = [c for c in found if c["type"] == kind]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else None


def events(edge, name, reason):
    all_ = edge.api("GET", f"/api/v1/namespaces/{HERE}/events")["items"]
    return [e["message"] for e in all_ if e["involvedObject"]["name"] == name and e["reason"] == reason]


def pods(edge, app):
    return edge.api("GET", f"{PODS}?labelSelector=app%3D{app}")["items"]


def test_load_makes_a_deployment_grow_and_its_end_makes_it_shrink(edge, kubectl, base):
    fire = base / "fire"
    script = f"trap 'exit 0' TERM; while :; do if [ -e {fire} ]; then i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; else sleep 0.3; fi; done"
    fire.write_text("")
    edge.api("POST", DEPLOYMENTS, deployment("burner", script=script, resources={"requests": {"cpu": "100m", "memory": "16Mi"}}))
    edge.api("POST", HPAS, autoscaler("burner", behavior=short(2)))
    wait_for("more replicas", lambda: size(edge, f"{DEPLOYMENTS}/burner") > 1, 60, every=0.2)
    assert any("above target" in m for m in events(edge, "burner", "SuccessfulRescale"))
    wait_for("all of them", lambda: size(edge, f"{DEPLOYMENTS}/burner") == 3, 30, every=0.2)
    status = edge.api("GET", f"{HPAS}/burner")["status"]
    current = status["currentMetrics"][0]["resource"]
    assert current["name"] == "cpu" and current["current"]["averageUtilization"] > 50 and current["current"]["averageValue"].endswith(("m", "1"))
    assert condition(edge, "burner", "ScalingActive")[:2] == ("True", "ValidMetricFound")
    assert condition(edge, "burner", "AbleToScale")[0] == "True"
    wait_for("its limit", lambda: condition(edge, "burner", "ScalingLimited") == (
        "True", "TooManyReplicas", "the desired replica count is more than the maximum replica count"), 20, every=0.2)
    assert "cpu: " in kubectl("get", "hpa", "burner") and "%/50%" in kubectl("get", "hpa", "burner")
    assert "SuccessfulRescale" in kubectl("describe", "hpa", "burner")
    fire.unlink()
    wait_for("fewer", lambda: size(edge, f"{DEPLOYMENTS}/burner") == 1, 60, every=0.2)
    assert any("All metrics below target" in m for m in events(edge, "burner", "SuccessfulRescale"))
    # The rest of a core's noise asks for one, which is just what is allowed.
    wait_for("rest", lambda: condition(edge, "burner", "ScalingLimited")[:2] == ("False", "DesiredWithinRange"), 20, every=0.2)
    edge.api("DELETE", f"{DEPLOYMENTS}/burner")
    edge.api("DELETE", f"{HPAS}/burner")


@pytest.mark.parametrize("period", ["soon", "0s", "2h"])
def test_a_period_that_makes_no_sense_is_refused(period, tmp_path):
    said = selvedge("edge", "--data-dir", tmp_path, "--horizontal-pod-autoscaler-sync-period", period, code=1)
    assert "give a duration from 1s to 1h, as in 15s" in said


def test_metrics_as_a_table(edge, kubectl):
    edge.api("POST", DEPLOYMENTS, deployment("calm"))
    wait_for("its metrics", lambda: edge.api("GET", f"/apis/metrics.k8s.io/v1beta1/namespaces/{HERE}/pods?labelSelector=app%3Dcalm")["items"], 30, every=0.2)
    header, row = kubectl("get", "pods.metrics.k8s.io", "-l", "app=calm").splitlines()
    assert header.split() == ["NAME", "CPU", "MEMORY", "WINDOW"]
    assert row.startswith("calm-") and row.split()[3].endswith("s") and row.split()[2].endswith("i")
    one = json.loads(kubectl("get", "pods.metrics.k8s.io", row.split()[0], "-o", "json"))
    assert one["kind"] == "PodMetrics" and one["containers"][0]["name"] == "app"
    assert kubectl("get", "nodes.metrics.k8s.io", "florin", "--no-headers").startswith("florin")
    edge.api("DELETE", f"{DEPLOYMENTS}/calm")


def test_what_is_missing_is_said(edge):
    edge.api("POST", DEPLOYMENTS, deployment("bare", 1))
    edge.api("POST", HPAS, autoscaler("bare"))
    edge.api("POST", HPAS, autoscaler("lost", target="nothing"))
    edge.api("POST", HPAS, autoscaler("odd", "Oddity", "example.com/v1"))
    external = {"type": "External", "external": {"metric": {"name": "none"}, "target": {"type": "Value", "value": "1"}}}
    edge.api("POST", DEPLOYMENTS, deployment("outside", 1))
    edge.api("POST", HPAS, autoscaler("outside", metrics=[external]))
    said = lambda name, kind: condition(edge, name, kind) or ("", "", "")
    wait_for("the target", lambda: said("lost", "AbleToScale")[:2] == ("False", "FailedGetScale"), 20)
    assert 'deployments.apps "nothing" not found' in said("lost", "AbleToScale")[2]
    wait_for("the kind", lambda: said("odd", "AbleToScale")[:2] == ("False", "FailedGetScale"), 20)
    wait_for("the metric", lambda: said("outside", "ScalingActive")[:2] == ("False", "FailedGetExternalMetric"), 20)
    assert "unable to get external metric local/none/nil: unable to fetch metrics from external metrics API" in said("outside", "ScalingActive")[2]
    wait_for("the request", lambda: "missing request for cpu in container app of Pod bare-" in said("bare", "ScalingActive")[2], 40, every=0.2)
    assert said("bare", "ScalingActive")[1] == "FailedGetResourceMetric"
    assert events(edge, "lost", "FailedGetScale")
    wait_for("the events", lambda: events(edge, "bare", "FailedGetResourceMetric") and events(edge, "bare", "FailedComputeMetricsReplicas"), 20)
    # Nothing is known, so nothing changes.
    assert size(edge, f"{DEPLOYMENTS}/bare") == size(edge, f"{DEPLOYMENTS}/outside") == 1
    for name in ("bare", "outside"):
        edge.api("DELETE", f"{DEPLOYMENTS}/{name}")
    for name in ("bare", "lost", "odd", "outside"):
        edge.api("DELETE", f"{HPAS}/{name}")


def definition(group, plural, kind, schema, **version):
    name = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {
        "name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "https://example.com/a-test"}}, "spec": {
        "group": group, "names": name, "scope": "Namespaced", "versions": [{
            "name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object", "properties": schema}}, **version}]}}


def test_external_metrics_and_custom_targets(edge):
    """The metrics come from custom resources, whose lists look like those of the external metrics API."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    queues = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{HERE}/queue"
    shops = f"/apis/example.com/v1beta1/namespaces/{HERE}/shops"
    edge.api("POST", path, definition("external.metrics.k8s.io", "queue", "Queue", {"value": {"type": "string"}}))
    spec = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
    status = {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}
    edge.api("POST", path, definition("example.com", "shops", "Shop", {"spec": spec, "status": status}, subresources={"status": {}, "scale": scale}))
    for collection in (queues, shops):
        wait_for("the kinds", lambda: edge.request("GET", collection)[0] == 200, 20)
    kind = {"apiVersion": "external.metrics.k8s.io/v1beta1", "kind": "Queue"}
    for name, value, of in (("a", "12", "mine"), ("b", "8", "mine"), ("c", "90", "others")):
        edge.api("POST", queues, {**kind, "metadata": {"name": name, "labels": {"of": of}}, "value": value})
    edge.api("POST", shops, {"apiVersion": "example.com/v1beta1", "kind": "Shop", "metadata": {"name": "corner"}, "spec": {"replicas": 1}})
    edge.api("PATCH", f"{shops}/corner/status", {"status": {"replicas": 1, "selector": "app=corner"}}, content_type=MERGE)
    metric = {"type": "External", "external": {"metric": {"name": "queue", "selector": {"matchLabels": {"of": "mine"}}},
                                               "target": {"type": "AverageValue", "averageValue": "5"}}}
    # The version does not matter, as long as there is one of the group.
    edge.api("POST", HPAS, autoscaler("corner", "Shop", "example.com/v9", most=10, metrics=[metric], behavior=short(0)))
    wait_for("what the queue asks for", lambda: size(edge, f"{shops}/corner") == 4, 20)
    edge.api("PATCH", f"{shops}/corner/status", {"status": {"replicas": 4}}, content_type=MERGE)
    shown = lambda: (edge.api("GET", f"{HPAS}/corner")["status"].get("currentMetrics") or [{}])[0].get("external", {}).get("current")
    wait_for("the status", lambda: shown() == {"averageValue": "5"}, 20)
    edge.api("PATCH", f"{queues}/a", {"value": "2"}, content_type=MERGE)
    wait_for("less", lambda: size(edge, f"{shops}/corner") == 2, 20)
    edge.api("DELETE", f"{HPAS}/corner")
    for name in ("queue.external.metrics.k8s.io", "shops.example.com"):
        edge.api("DELETE", f"{path}/{name}")


def test_external_metrics_of_an_aggregated_api(edge, tmp_path):
    """A server that an APIService registers says how long a queue is."""
    certs = certificates(tmp_path, "api.wardle.svc")
    server = AggregatedServer(certs, edge.api("GET", AUTHENTICATION)["data"])
    server.external = {"waiting": ["7", "5"]}
    name, spaces = "v1beta1.external.metrics.k8s.io", "/api/v1/namespaces"
    try:
        edge.api("POST", spaces, {"metadata": {"name": "wardle"}}, expect=(201,))
        edge.api("POST", f"{spaces}/wardle/services", service("api", "wardle", server.port), expect=(201,))
        edge.api("POST", APISERVICES, apiservice(name, server.port, certs / "ca.crt"), expect=(201,))
        wait_for("the APIService", lambda: available(edge.api, name)[:2] == ("True", "Passed"), 30)
        edge.api("POST", DEPLOYMENTS, deployment("queue", 1))
        metric = {"type": "External", "external": {"metric": {"name": "waiting"}, "target": {"type": "AverageValue", "averageValue": "4"}}}
        edge.api("POST", HPAS, autoscaler("queue", most=5, metrics=[metric], behavior=short(0)))
        wait_for("what waits to be served by three", lambda: size(edge, f"{DEPLOYMENTS}/queue") == 3, 30)
        server.external = {"waiting": ["3"]}
        wait_for("one to be enough", lambda: size(edge, f"{DEPLOYMENTS}/queue") == 1, 30)
        asked = server.requests(f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{HERE}/waiting")
        assert asked[0]["user"]["name"].endswith("horizontal-pod-autoscaler"), asked[0]
    finally:
        edge.request("DELETE", f"{HPAS}/queue")
        edge.request("DELETE", f"{DEPLOYMENTS}/queue")
        edge.request("DELETE", f"{APISERVICES}/{name}")
        server.stop()


def test_replication_controllers(edge, kubectl):
    edge.api("POST", CONTROLLERS, controller("web", 2))
    ready = lambda count: lambda: edge.api("GET", f"{CONTROLLERS}/web").get("status", {}).get("readyReplicas", 0) == count
    wait_for("two Pods", ready(2), 30)
    wait_for("them to be available", lambda: edge.api("GET", f"{CONTROLLERS}/web")["status"].get("availableReplicas") == 2, 20)
    status = edge.api("GET", f"{CONTROLLERS}/web")["status"]
    assert (status["replicas"], status["fullyLabeledReplicas"], status["observedGeneration"]) == (2, 2, 1)
    owner = pods(edge, "web")[0]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["apiVersion"], owner["controller"], owner["blockOwnerDeletion"]) == ("ReplicationController", "v1", True, True)
    assert kubectl("get", "rc", "web", "--no-headers").split()[:4] == ["web", "2", "2", "2"]
    wait_for("the events", lambda: len(events(edge, "web", "SuccessfulCreate")) == 2, 10)
    # A Pod whose labels change is let go of and replaced; one that matches and is nobody's is taken, and is one too many.
    first = pods(edge, "web")[0]["metadata"]["name"]
    kubectl("label", "pod", first, "app=freed", "--overwrite")
    wait_for("it to be freed", lambda: not edge.api("GET", f"{PODS}/{first}")["metadata"].get("ownerReferences"), 20)
    wait_for("its successor", lambda: len(pods(edge, "web")) == 2, 20)
    kubectl("label", "pod", first, "app=web", "--overwrite")
    wait_for("a Pod to go", lambda: events(edge, "web", "SuccessfulDelete"), 20)
    wait_for("two again", lambda: len(pods(edge, "web")) == 2 and ready(2)(), 30)
    kubectl("scale", "rc", "web", "--replicas=1", "--current-replicas=2")
    wait_for("one", lambda: len(pods(edge, "web")) == 1, 30)
    # A status that somebody else wrote does not stay.
    edge.api("PATCH", f"{CONTROLLERS}/web/status", {"status": {"readyReplicas": 0, "availableReplicas": 0}}, content_type=MERGE)
    wait_for("its status", ready(1), 20)
    # A budget knows the size of its controller, and an autoscaler scales it.
    kubectl("create", "pdb", "web", "--selector=app=web", "--max-unavailable=50%")
    edge.api("POST", HPAS, autoscaler("web", "ReplicationController", "v1", least=2))
    wait_for("the autoscaler", lambda: size(edge, f"{CONTROLLERS}/web") == 2, 20)
    wait_for("what it says", lambda: (condition(edge, "web", "AbleToScale") or [""])[0] == "True", 10)
    assert "Current number of replicas below Spec.MinReplicas" in events(edge, "web", "SuccessfulRescale")[0]
    budget = f"/apis/policy/v1/namespaces/{HERE}/poddisruptionbudgets/web"
    wait_for("the budget", lambda: edge.api("GET", budget).get("status", {}).get("expectedPods") == 2, 20)
    edge.api("DELETE", f"{HPAS}/web")
    edge.api("DELETE", budget)
    # Without its dependents, and with them.
    kubectl("delete", "rc", "web", "--cascade=orphan")
    wait_for("orphans", lambda: all(not p["metadata"].get("ownerReferences") for p in pods(edge, "web")), 20)
    assert len(pods(edge, "web")) == 2
    edge.api("POST", CONTROLLERS, controller("web", 2))
    wait_for("them to be taken over", lambda: all(p["metadata"].get("ownerReferences") for p in pods(edge, "web")), 20)
    kubectl("delete", "rc", "web", "--cascade=foreground")
    wait_for("all to be gone", lambda: not pods(edge, "web"), 30)


def test_a_full_quota_is_a_condition_of_a_replication_controller(edge, kubectl):
    edge.api("POST", f"/api/v1/namespaces/{HERE}/resourcequotas", {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {
        "hard": {"pods": str(len(edge.api("GET", PODS)["items"]) + 1)}}})
    wait_for("the quota", lambda: edge.api("GET", f"/api/v1/namespaces/{HERE}/resourcequotas/few").get("status", {}).get("used"), 20)
    edge.api("POST", CONTROLLERS, controller("many", 3))
    failure = lambda: {c["type"]: c for c in edge.api("GET", f"{CONTROLLERS}/many").get("status", {}).get("conditions") or []}.get("ReplicaFailure")
    wait_for("the condition", failure, 20)
    assert failure()["status"] == "True" and failure()["reason"] == "FailedCreate" and "exceeded quota: few" in failure()["message"]
    assert any("exceeded quota" in m for m in events(edge, "many", "FailedCreate"))
    kubectl("scale", "rc", "many", "--replicas=1")
    wait_for("it to be over", lambda: not failure(), 20)
    kubectl("delete", "rc/many", "quota/few")


def test_an_autoscaler_that_was_placed_keeps_its_number(edge, kubectl):
    """The center goes on deciding on everything but the replicas, which are the edge's while an autoscaler there sets them."""
    center, namespace = edge.center, "/api/v1/namespaces/shop"
    at_center = f"{SHOP}/apis/apps/v1/namespaces/shop/deployments"
    here = "/apis/apps/v1/namespaces/shop/deployments/till"
    center.api("POST", f"{SHOP}/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    center.api("POST", at_center, deployment("till"))
    hpas = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
    center.api("POST", f"{SHOP}{hpas}", autoscaler("till", least=2, most=4))
    wait_for("the Deployment", lambda: edge.request("GET", here)[0] == 200, 30)
    wait_for("the autoscaler's number", lambda: size(edge, here) == 2, 30)
    wait_for("two Pods", lambda: edge.api("GET", here).get("status", {}).get("readyReplicas") == 2, 40)
    assert size(center, f"{at_center}/till") == 1
    # What is changed at the center comes, without the center's number. Both numbers are tried: the one that it had, and another one.
    for change in ({"minReadySeconds": 1}, {"replicas": 3, "minReadySeconds": 2}):
        center.api("PATCH", f"{at_center}/till", {"spec": change}, content_type=MERGE)
        wait_for("the change", lambda: edge.api("GET", here)["spec"].get("minReadySeconds") == change["minReadySeconds"], 30)
        assert size(edge, here) == 2
    assert condition(edge, "till", "AbleToScale", hpas)[0] == "True"
    # Without a link, too. Everything else of the object is still the center's.
    edge.cut()
    assert edge.request("PATCH", here, {"spec": {"minReadySeconds": 9}}, content_type=MERGE)[0] == 503
    edge.api("PATCH", f"{here}/scale", {"spec": {"replicas": 6}}, content_type=MERGE)
    wait_for("the autoscaler to bound it", lambda: size(edge, here) == 4, 20)
    edge.heal()
    wait_for("a Pod", lambda: edge.api("GET", f"{namespace}/pods")["items"], 10)
    assert size(edge, here) == 4 and size(center, f"{at_center}/till") == 3
    # When the autoscaler goes, the number stays until the center sends the object again.
    center.api("DELETE", f"{SHOP}{hpas}/till")
    wait_for("it to go", lambda: edge.request("GET", f"{hpas}/till")[0] == 404, 30)
    assert size(edge, here) == 4
    center.api("PATCH", f"{at_center}/till", {"spec": {"minReadySeconds": 3}}, content_type=MERGE)
    wait_for("the center's number", lambda: size(edge, here) == 3, 30)
