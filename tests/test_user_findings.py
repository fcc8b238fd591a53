"""What users ran into: one test for each bug, named by it. Real edges with the process runtime, kubectl and helm."""
import time

import pytest
from center import Tools, wait_for
from charts import kiosk
from edge import SYNCTARGETS, fleet, make_workspace
from placed import MERGE, PLACEMENTS, placement
from test_placement import LOCATIONS, location

JOBS = "/apis/batch/v1/namespaces/ovens/jobs"
PROCESS = ("--runtime", "process")


@pytest.fixture(scope="module")
def bakery(tmp_path_factory):
    """A center and two edges that run Pods. Namespace `ovens` is placed on florin, with singleton status."""
    base = tmp_path_factory.mktemp("users")
    with fleet("florin", "guilder", workspace=None, directory=base, args=PROCESS) as (center, florin, guilder):
        for edge in (florin, guilder):
            center.api("PATCH", f"{SYNCTARGETS}/{edge.name}", {"metadata": {"labels": {"id": edge.name}}}, content_type=MERGE)
            center.api("POST", LOCATIONS, location(edge.name, site=edge.name), expect=(201,))
        center.api("POST", "/api/v1/namespaces", {"metadata": {"name": "ovens", "labels": {"bakery": "yes"}}}, expect=(201,))
        center.api("POST", PLACEMENTS, placement("ovens", {"site": "florin"}, {"bakery": "yes"}, wantSingletonReportedState=True), expect=(201,))
        yield center, florin, guilder, Tools(center, base / "home")


def test_rollout_status_and_wait_end_for_a_placed_deployment(bakery):
    """Bug 1: observedGeneration was the edge's own count and stayed below the source's generation."""
    *_, tools = bakery
    kubectl = lambda *args, **kw: tools.kubectl("-n", "ovens", *args, **kw)  # noqa: E731
    kubectl("create", "deployment", "plain", "--image=selvedge.dev/sample/web")
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/plain", "--timeout=30s")
    kubectl("wait", "--for=condition=Available", "deployment/plain", "--timeout=10s")
    made = tools.json("-n", "ovens", "get", "deployment", "plain")
    assert made["metadata"]["generation"] == 1, "counting edges is no change of what is wanted"
    assert made["metadata"]["annotations"]["kubestellar.io/executing-count"] == "1"
    kubectl("scale", "deployment/plain", "--replicas=2")
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/plain", "--timeout=30s")
    assert tools.json("-n", "ovens", "get", "deployment", "plain")["status"]["readyReplicas"] == 2
    # A change that only the center counts: the status follows.
    kubectl("annotate", "deployment/plain", "internal.kcp.io/note=1")
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/plain", "--timeout=30s")


def test_helm_waits_for_a_placed_release(bakery, tmp_path):
    """Bug 1, as helm sees it: `--wait` timed out."""
    *_, tools = bakery
    chart = kiosk(tmp_path)
    helm = lambda *args: tools.helm(*args, "-n", "ovens", timeout=90)  # noqa: E731
    assert "STATUS: deployed" in helm("install", "kiosk", chart, "--wait", "--timeout", "40s")
    assert "STATUS: deployed" in helm("upgrade", "kiosk", chart, "--wait", "--timeout", "40s", "--set", "note=b")
    helm("rollback", "kiosk", "1", "--wait", "--timeout", "40s")
    helm("uninstall", "kiosk", "--wait", "--timeout", "40s")


def test_a_finished_job_can_be_withdrawn_and_moved(bakery):
    """Bug 3: the center's own validation kept a finished Job's status for ever."""
    center, florin, guilder, tools = bakery
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "bake"},
           "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [
               {"name": "c", "image": "selvedge.dev/sample/web", "command": ["true"]}]}}}}
    center.api("POST", JOBS, job, expect=(201,))
    tools.kubectl("-n", "ovens", "wait", "--for=condition=Complete", "job/bake", "--timeout=30s")
    center.api("PATCH", f"{PLACEMENTS}/ovens", {"spec": {"locationSelectors": [{"matchLabels": {"site": "nowhere"}}]}}, content_type=MERGE)
    wait_for("the status to go", lambda: not center.api("GET", f"{JOBS}/bake").get("status", {}).get("conditions"), 30)
    center.api("PATCH", f"{PLACEMENTS}/ovens", {"spec": {"locationSelectors": [{"matchLabels": {"site": "guilder"}}]}}, content_type=MERGE)
    tools.kubectl("-n", "ovens", "wait", "--for=condition=Complete", "job/bake", "--timeout=30s")
    center.api("PATCH", f"{PLACEMENTS}/ovens", {"spec": {"locationSelectors": [{"matchLabels": {"site": "florin"}}]}}, content_type=MERGE)


def test_location_counts_follow_labels_of_synctargets(bakery):
    """Bug 4: the Location that a SyncTarget left was not told."""
    center, *_ = bakery
    counts = lambda name: center.api("GET", f"{LOCATIONS}/{name}").get("status", {}).get("instances")  # noqa: E731
    for name in ("one", "two"):
        center.api("POST", LOCATIONS, location(name, kind=name), expect=(201,))
    target = {"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget", "metadata": {"name": "mover", "labels": {"id": "one"}}}
    center.api("POST", SYNCTARGETS, target, expect=(201,))
    wait_for("one", lambda: (counts("one"), counts("two")) == (1, 0))
    center.api("PATCH", f"{SYNCTARGETS}/mover", {"metadata": {"labels": {"id": "two"}}}, content_type=MERGE)
    wait_for("two", lambda: (counts("one"), counts("two")) == (0, 1))
    center.api("DELETE", f"{SYNCTARGETS}/mover")
    wait_for("none", lambda: (counts("one"), counts("two")) == (0, 0))


@pytest.mark.alone
def test_a_deleted_inventory_delays_nobody(bakery):
    """Bug 7: a Location that went with its workspace was written for ever, and everybody else waited 5 s for it."""
    center, *_ = bakery
    make_workspace(center, "root:gone", "inventory")
    center.api("POST", f"/clusters/root:gone{LOCATIONS}", location("lost"), expect=(201,))
    wait_for("its status", lambda: "status" in center.api("GET", f"/clusters/root:gone{LOCATIONS}/lost"))
    center.api("DELETE", "/apis/tenancy.kcp.io/v1alpha1/workspaces/gone")
    wait_for("it to go", lambda: center.request("GET", "/apis/tenancy.kcp.io/v1alpha1/workspaces/gone")[0] == 404)
    times = []
    for n in range(3):
        begun = time.monotonic()
        center.api("POST", LOCATIONS, location(f"quick-{n}"), expect=(201,))
        wait_for("its status", lambda: "status" in center.api("GET", f"{LOCATIONS}/quick-{n}"))
        times.append(time.monotonic() - begun)
    assert max(times) < 2, times
