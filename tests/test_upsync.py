"""What comes up from edges: objects that were made there, and what came to be because of placed ones."""
import pytest

from center import Tools, wait_for
from edge import SYNCTARGETS, fleet, reported
from test_mailbox import Kubectl, mailbox
from test_placement import location, merge, placement, stuff, workspace

WMW = "root:wmw"
MAPS = "/api/v1/namespaces/orbital/configmaps"
COG = {"apiVersion": "group2.test/v1", "kind": "Cog", "metadata": {"name": "william"}, "spec": {"teeth": 7}}
COGS = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "cogs.group2.test"},
        "spec": {"group": "group2.test", "scope": "Cluster", "names": {"plural": "cogs", "singular": "cog", "kind": "Cog", "listKind": "CogList"},
                 "versions": [{"name": "v1", "served": True, "storage": True,
                               "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}
UPSYNC = [{"apiGroup": "", "resources": ["configmaps"], "namespaces": ["orbital"], "names": ["george", "cosmo"]},
          {"apiGroup": "group2.test", "resources": ["cogs"], "names": ["william"]}]


@pytest.fixture(scope="module")
def placed(tmp_path_factory):
    """florin, on which a Deployment is placed, and from which something is asked for."""
    base = tmp_path_factory.mktemp("upsync")
    with fleet("florin", workspace=None, directory=base) as (center, florin):
        workspace(center, WMW, "workload")
        merge(center, f"{SYNCTARGETS}/florin", {"metadata": {"labels": {"id": "florin"}}})
        center.api("POST", "/apis/scheduling.kcp.io/v1alpha1/locations", location("florin", env="prod"), expect=(201,))
        tools = Tools(center, base / "home")
        at = Kubectl(tools, f"{center.url}/clusters/{WMW}")
        at("apply", "-f", "-", stdin=[*stuff("commonstuff", "common", "commond"),
                                      placement("c", {"env": "prod"}, {"common": "si"}, upsync=UPSYNC, returnAssociated=True)])
        yield center, florin, at, Kubectl(tools, center.url + mailbox(center, "florin"))
        for server in (center, florin):
            assert "panicked" not in server.log_path.read_text(errors="replace")


def configmap(name, value):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}}


def test_what_is_made_at_the_edge_comes_up_whole(placed):
    center, florin, at, box = placed
    wait_for("the configuration", lambda: florin.api("GET", "/apis/edge.kcp.io/v1alpha1/syncerconfigs/the-one")["spec"]["upsync"])
    florin.api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "orbital"}}, expect=(201,))
    for name in ("george", "jane"):
        florin.api("POST", MAPS, configmap(name, "1"), expect=(201,))
    florin.api("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", COGS, expect=(201,))
    wait_for("the kind", lambda: florin.request("POST", "/apis/group2.test/v1/cogs", COG)[0] == 201)
    wait_for("george", lambda: "george" in box("-n", "orbital", "get", "configmaps", "-l", "edge.kcp.io/upsynced=yes"))
    wait_for("william and his kind", lambda: box("get", "cogs.group2.test", "william", "-o", "jsonpath={.spec.teeth}") == "7")
    own = florin.api("GET", f"{MAPS}/george")
    shown = box.tools.json(*box.args, "-n", "orbital", "get", "configmap", "george")
    assert (shown["metadata"]["uid"], shown["data"]) == (own["metadata"]["uid"], {"k": "1"})
    assert "core/configmaps/orbital/jane" not in reported(center, florin)
    assert "was made at the edge root:florin itself" in box("-n", "orbital", "delete", "configmap", "george", code=1)
    merge(florin, f"{MAPS}/george", {"data": {"k": "2"}})
    wait_for("the edit", lambda: box("-n", "orbital", "get", "configmap", "george", "-o", "jsonpath={.data.k}") == "2")


def test_what_came_to_be_because_of_placed_objects(placed):
    center, florin, at, box = placed
    deployment = wait_for("commond", lambda: florin.api("GET", "/apis/apps/v1/namespaces/commonstuff/deployments/commond"))
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "commond", "uid": deployment["metadata"]["uid"], "controller": True}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "commond"}}, "template": deployment["spec"]["template"]}
    path = "/apis/apps/v1/namespaces/commonstuff/replicasets"
    florin.api("POST", path, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "commond-1", "ownerReferences": [owner]},
                              "spec": spec}, expect=(201, 409))
    wait_for("the ReplicaSet", lambda: "commond" in box("-n", "commonstuff", "get", "replicasets"))
    shown = box.tools.json(*box.args, "-n", "commonstuff", "get", "replicasets")["items"][0]
    above = box("-n", "commonstuff", "get", "deployment", "commond", "-o", "jsonpath={.metadata.uid}")
    assert shown["metadata"]["ownerReferences"][0]["uid"] == above, "the owner is the one that is shown"


def test_nothing_is_lost_or_sent_twice_over_restarts(placed):
    center, florin, at, box = placed
    before = reported(center, florin)
    florin.kill()
    florin.start()
    florin.wait_connected()
    florin.api("POST", MAPS, configmap("cosmo", "1"), expect=(201,))
    wait_for("cosmo", lambda: "cosmo" in box("-n", "orbital", "get", "configmaps"))
    after = reported(center, florin)
    assert {k: v for k, v in after.items() if k in before and "orbital" in k} == {k: v for k, v in before.items() if "orbital" in k}
    florin.cut()
    florin.api("DELETE", f"{MAPS}/cosmo")
    florin.heal()
    wait_for("cosmo to go", lambda: "cosmo" not in box("-n", "orbital", "get", "configmaps"))


def test_what_is_no_longer_asked_for_is_withdrawn(placed):
    center, florin, at, box = placed
    at("patch", "edgeplacement", "c", "--type=merge", "-p", '{"spec":{"upsync":[],"returnAssociated":false}}')
    wait_for("george to go", lambda: "george" not in box("-n", "orbital", "get", "configmaps"))
    wait_for("all reports of it to go", lambda: not [k for k in reported(center, florin)
                                                     if "orbital" in k or "cogs" in k or "replicasets" in k])
    assert florin.request("GET", f"{MAPS}/george")[0] == 200, "it is the edge's"
