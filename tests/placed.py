"""A center with edges, Locations for them, and something placed: what tests of accounts begin with."""
import contextlib
import pathlib
import re
import subprocess

from center import ROOT, TOOLS, wait_for
from edge import SYNCTARGETS, fleet

LOCATIONS = "/apis/scheduling.kcp.io/v1alpha1/locations"
PLACEMENTS = "/apis/edge.kcp.io/v1alpha1/edgeplacements"
COLLECTORS = "/apis/edge.selvedge.dev/v1alpha1/statuscollectors"
COMBINED = "/apis/edge.selvedge.dev/v1alpha1/combinedstatuses"
DEPLOYMENTS = "/apis/apps/v1/namespaces/commonstuff/deployments"
MAPS = "/api/v1/namespaces/commonstuff/configmaps"
COUNT = "kubestellar.io/executing-count"
REGIONS = {"florin": "south", "guilder": "north"}
MERGE = "application/merge-patch+json"


def deployment(name, replicas=2):
    labels = {"app": name}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
                     "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "httpd"}]}}}}


def placement(name, selector, namespaces, **spec):
    return {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement", "metadata": {"name": name},
            "spec": {"locationSelectors": [{"matchLabels": selector}], "namespaceSelector": {"matchLabels": namespaces}, **spec}}


def status_at(edge, name, path=DEPLOYMENTS, **status):
    """Says at an edge how a Deployment fares, as its controllers would."""
    edge.api("PATCH", f"{path}/{name}/status", {"status": status}, content_type=MERGE)


def status_of(center, name):
    return center.api("GET", f"{PLACEMENTS}/{name}").get("status", {})


def counts(center, name):
    status = status_of(center, name)
    return tuple(status.get(field) for field in ("matched", "inSync", "behind", "offline", "failing"))


def condition(status, kind):
    return next((c for c in status.get("conditions", []) if c["type"] == kind), {})


@contextlib.contextmanager
def placed(directory):
    """florin and guilder, with Locations in root; Deployment commond and a ConfigMap in commonstuff on both of them."""
    with fleet("florin", "guilder", workspace=None, directory=directory) as (center, florin, guilder):
        for edge in (florin, guilder):
            center.api("PATCH", f"{SYNCTARGETS}/{edge.name}", {"metadata": {"labels": {"id": edge.name}}}, content_type=MERGE)
            labels = {"env": "prod", "region": REGIONS[edge.name]} | ({"extended": "si"} if edge.name == "guilder" else {})
            center.api("POST", LOCATIONS, {
                "apiVersion": "scheduling.kcp.io/v1alpha1", "kind": "Location", "metadata": {"name": edge.name, "labels": labels},
                "spec": {"resource": {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"},
                         "instanceSelector": {"matchLabels": {"id": edge.name}}}})
        center.api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                                  "metadata": {"name": "commonstuff", "labels": {"common": "si"}}})
        center.api("POST", DEPLOYMENTS, deployment("commond"))
        center.api("POST", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "httpd-htdocs"}, "data": {"a": "1"}})
        center.api("POST", PLACEMENTS, placement("edge-placement-c", {"env": "prod"}, {"common": "si"}))
        for edge in (florin, guilder):
            wait_for(f"commond at {edge.name}", lambda e=edge: e.api("GET", f"{DEPLOYMENTS}/commond"))
        yield center, florin, guilder
        for server in (center, florin, guilder):
            assert "panicked" not in server.log_path.read_text(errors="replace")


def page(name, center, home, at_least):
    """All commands of a page, in one shell, with the center's kubeconfig."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / name).read_text(), re.M | re.S)
    assert len(blocks) >= at_least
    env = {"PATH": f"{TOOLS}:/usr/bin:/bin", "HOME": str(pathlib.Path(home)), "TERM": "dumb", "KUBECONFIG": str(center.kubeconfig)}
    done = subprocess.run(["bash", "-exuo", "pipefail", "-c", "\n".join(blocks)], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
