"""Changes that go to some edges first: real edges, whose workloads report what the tests say."""
import json
import pathlib
import re
import time

import pytest

from center import ROOT, Center, Tools, binary, wait_for
from edge import fleet, selvedge

PLACEMENTS = "/clusters/root/apis/edge.kcp.io/v1alpha1/edgeplacements"
DEPLOYMENTS = "/apis/apps/v1/namespaces/site/deployments"
PAGE = "/api/v1/namespaces/site/configmaps/page"
WELL = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1, "conditions": []}
ILL = {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "no room for it"}]}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with fleet("crown", "florin", "guilder", workspace=None, directory=tmp_path_factory.mktemp("rollout")) as (center, *edges):
        yield center, edges
        assert "panicked" not in center.log_path.read_text(errors="replace")


@pytest.fixture(scope="module")
def tools(site, tmp_path_factory):
    return Tools(site[0], tmp_path_factory.mktemp("home"))


def patch(server, path, change):
    return server.api("PATCH", path, change, content_type="application/merge-patch+json")


def rollout(center):
    return center.api("GET", f"{PLACEMENTS}/site").get("status", {}).get("rollout", {})


def wait_phase(center, phase, seconds=20, **fields):
    wait_for(f"{phase} {fields}", lambda: (r := rollout(center))["phase"] == phase and all(r[k] == v for k, v in fields.items()), seconds)
    return rollout(center)


def web(center, image):
    """One revision more, with a Deployment that has to become healthy."""
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": image}]}}}}
    before = rollout(center)["revision"]
    status, _, body = center.request("POST", f"/clusters/root{DEPLOYMENTS}", deployment)
    if status == 409:
        patch(center, f"/clusters/root{DEPLOYMENTS}/web", {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": image}]}}}})
    else:
        assert status == 201, body
    wait_for("the revision", lambda: rollout(center)["revision"] == before + 1)


def having(edges, image):
    found = []
    for edge in edges:
        status, _, body = edge.request("GET", f"{DEPLOYMENTS}/web")
        if status == 200 and json.loads(body)["spec"]["template"]["spec"]["containers"][0]["image"] == image:
            found.append(edge)
    return found


def report(edge, status):
    """As the controllers of that edge would, of what it has now."""
    generation = edge.api("GET", f"{DEPLOYMENTS}/web")["metadata"]["generation"]
    patch(edge, f"{DEPLOYMENTS}/web/status", {"status": {**status, "observedGeneration": generation}})


def test_the_page(site, tools):
    center, edges = site
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/how-to/rollout.md").read_text(), re.M | re.S)
    assert len(blocks) == 2
    path = f"{pathlib.Path(binary()).parent}:{tools.env['PATH']}"
    out = tools.run(["bash", "-euo", "pipefail", "-c", "\n".join(blocks)], env={"PATH": path}, timeout=100).stdout
    assert "site revision 2 Complete" in out and "█" * 30 + " 3/3 ready" in out, out
    assert "The rollout of site is paused" in out and "3 of 3 edges have it" in out, out
    for edge in edges:
        assert edge.api("GET", PAGE)["data"]["text"] == "third"


@pytest.mark.parametrize("image, end", [("web:1", Center.kill), ("web:2", Center.stop)], ids=["kill", "terminate"])
def test_unhealthy_edges_hold_the_others_back_also_over_a_restart(site, image, end):
    """The second time all edges report that they are well: of what they had before, which is no answer."""
    center, edges = site
    patch(center, f"{PLACEMENTS}/site", {"spec": {"rollout": {"minReadySeconds": None}}})
    web(center, image)
    wait_for("the first", lambda: len(having(edges, image)) == 1)
    time.sleep(2.5)
    assert len(having(edges, image)) == 1
    (first,) = having(edges, image)
    assert wait_phase(center, "Progressing", unavailable=1)["total"] == 3
    end(center)
    patch(first, f"{DEPLOYMENTS}/web/status", {"status": {"conditions": []}})
    center.start()
    for edge in edges:
        edge.wait_connected(60)
    time.sleep(1.5)
    assert [e.name for e in having(edges, image)] == [first.name], "a restart lets nobody through, and takes nothing back"
    said = selvedge("rollout", "status", "site", "--kubeconfig", center.kubeconfig)
    assert "Progressing" in said and "1 unavailable" in said, said
    for n in (1, 2, 3):
        wait_for(f"edge {n}", lambda: len(having(edges, image)) == n)
        for edge in having(edges, image):
            report(edge, WELL)
    selvedge("rollout", "status", "site", "--watch", "--kubeconfig", center.kubeconfig)
    wait_phase(center, "Complete", ready=3, failed=0)


def test_a_failure_stops_it_and_somebody_resumes(site):
    center, edges = site
    web(center, "web:bad")
    wait_for("the first", lambda: len(having(edges, "web:bad")) == 1)
    (first,) = having(edges, "web:bad")
    report(first, ILL)
    stopped = wait_phase(center, "Stopped", failed=1)
    assert "no room for it" in stopped["message"] and f"one of them: root:{first.name}: " in stopped["message"]
    said = selvedge("rollout", "status", "site", "--watch", "--kubeconfig", center.kubeconfig, code=1)
    assert "the rollout of site has stopped" in said and "1 failed" in said
    assert len(having(edges, "web:bad")) == 1
    assert "goes on" in selvedge("rollout", "resume", "root:site", "--kubeconfig", center.kubeconfig)
    for n in (2, 3):
        wait_for("the others", lambda: len(having(edges, "web:bad")) == n)
        for edge in set(having(edges, "web:bad")) - {first}:
            report(edge, WELL)
    wait_phase(center, "Complete", failed=1)
    report(first, WELL)
    assert center.api("GET", f"{PLACEMENTS}/site")["metadata"].get("annotations", {}).get("edge.selvedge.dev/rollout-resume") is None


def test_an_edge_that_is_away_is_waited_for_and_then_not(site):
    center, edges = site
    patch(center, f"{PLACEMENTS}/site", {"spec": {"rollout": {"batch": 3, "maxUnavailable": 2, "progressDeadlineSeconds": 4}}})
    for edge in edges:
        report(edge, WELL)
    edges[0].cut()
    patch(center, f"/clusters/root{PAGE}", {"data": {"text": "without crown"}})
    wait_for("the others", lambda: all(e.api("GET", PAGE)["data"]["text"] == "without crown" for e in edges[1:]))
    done = wait_phase(center, "Complete", ready=2, unavailable=1)
    assert "1 offline" in done["message"], done
    edges[0].heal()
    wait_for("crown", lambda: edges[0].api("GET", PAGE)["data"]["text"] == "without crown")


def test_without_a_rollout_it_goes_everywhere(site):
    center, edges = site
    patch(center, f"{PLACEMENTS}/site", {"spec": {"rollout": None}})
    wait_for("nothing to be said", lambda: not rollout(center))
    patch(center, f"/clusters/root{PAGE}", {"data": {"text": "at once"}})
    wait_for("everybody", lambda: all(e.api("GET", PAGE)["data"]["text"] == "at once" for e in edges))
    assert "has no rollout" in selvedge("rollout", "status", "site", "--kubeconfig", center.kubeconfig, code=1)
    assert "has no rollout" in selvedge("rollout", "pause", "site", "--kubeconfig", center.kubeconfig, code=1)
