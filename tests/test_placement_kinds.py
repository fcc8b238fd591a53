"""The kinds of placement: served where they are bound, explained, printed and refused by kubectl; mailboxes as Workspaces."""
import json
import pathlib
import re

import pytest

from center import ROOT, Tools, binary, running, wait_for
from edge import SYNCTARGETS, Edge, make_workspace, selvedge
from exports import User, allow

EDGE = "/apis/edge.kcp.io/v1alpha1"
MAILBOXES = "/clusters/root:espw/apis/tenancy.kcp.io/v1alpha1/workspaces"
BINDINGS = "/apis/apis.kcp.io/v1alpha1/apibindings"
OURS = ["edge.kcp.io", "edge.selvedge.dev", "scheduling.kcp.io", "workload.kcp.io"]


@pytest.fixture(scope="module")
def center(tmp_path_factory):
    with running(directory=tmp_path_factory.mktemp("kinds")) as center:
        yield center
        assert center.stop() == 0
        log = center.log_path.read_text(errors="replace")
        assert "panicked" not in log and "ERROR" not in log, log


@pytest.fixture(scope="module")
def tools(center, tmp_path_factory):
    return Tools(center, tmp_path_factory.mktemp("home"))


def groups(center, where):
    return [g["name"] for g in center.api("GET", f"{where}/apis")["groups"]]


def names(center, path):
    return sorted(o["metadata"]["name"] for o in center.api("GET", path)["items"])


def placement(name, **spec):
    return {"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement", "metadata": {"name": name}, "spec": spec}


def target(name, **labels):
    return {"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget", "metadata": {"name": name, "labels": labels}}


# ---- as kubectl sees them ----

def test_kubectl_knows_them(tools):
    """Names, short names, columns, explanations."""
    known = {line.split()[0]: line.split() for line in tools.kubectl("api-resources", "--no-headers").splitlines()}
    for plural, short, namespaced, kind in [
            ("synctargets", "st", "false", "SyncTarget"), ("locations", "loc", "false", "Location"), ("edgeplacements", "epl", "false", "EdgePlacement"),
            ("singleplacementslices", "sps", "false", "SinglePlacementSlice"), ("syncerconfigs", "escfg", "false", "SyncerConfig"),
            ("statuscollectors", "scol", "false", "StatusCollector"), ("combinedstatuses", "cst", "false", "CombinedStatus")]:
        row = known[plural]
        assert row[1:] == [short, row[2], namespaced, kind], row
    assert known["customizers"][-2:] == ["true", "Customizer"]
    for what, words in [("edgeplacement.spec.namespaceSelector", "An empty selector selects all"), ("location.spec.instanceSelector", "of this workspace"),
                        ("edgeplacement.spec.rollout.batch", "percentage"), ("customizers.replacements.path", "JSONPath"),
                        ("statuscollectors.spec.combinedFields.type", "COUNT")]:
        assert words in " ".join(tools.kubectl("explain", what).split()), what
    tools.kubectl("apply", "-f", "-", stdin=[
        placement("shown", locationSelectors=[{"matchLabels": {"env": "prod"}}], namespaceSelector={"matchLabels": {"common": "si"}}),
        {"apiVersion": "scheduling.kcp.io/v1alpha1", "kind": "Location", "metadata": {"name": "shown"}, "spec": {"description": "a place"}}])
    head, row = tools.kubectl("get", "epl").splitlines()
    assert head.split() == ["NAME", "LOCATIONS", "EDGES", "INSYNC", "BEHIND", "OFFLINE", "FAILING", "AGE"] and row.split()[0] == "shown"
    head, row = tools.kubectl("get", "loc").splitlines()
    assert head.split() == ["NAME", "RESOURCE", "AVAILABLE", "INSTANCES", "AGE"] and row.split()[:2] == ["shown", "synctargets"]
    assert tools.json("get", "loc", "shown")["spec"]["resource"] == {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"}
    # The status is a subresource: the spec stays when it is written, and the other way round.
    shown = json.loads(tools.kubectl("patch", "epl", "shown", "--subresource=status", "--type=merge", "-o", "json", "-p",
                                     json.dumps({"spec": {"createOnly": True}, "status": {"matched": 7, "rollout": {"anything": [1]}}})))
    assert "createOnly" not in shown["spec"] and (shown["status"]["matched"], shown["status"]["rollout"]) == (7, {"anything": [1]})
    tools.kubectl("delete", "epl,loc", "shown")


@pytest.mark.parametrize("spec, said", [
    ({"locationSelectors": [{"matchExpressions": [{"key": "env", "operator": "In"}]}]}, "In and NotIn need values"),
    ({"locationSelectors": [{"matchExpressions": [{"key": "env", "operator": "Is", "values": ["a"]}]}]}, 'supported values: "In", "NotIn", "Exists", "DoesNotExist"'),
    ({"namespaceSelector": {"matchLabels": {"a": "not a value"}}}, "the value of a label is made of"),
    ({"nonNamespacedObjects": [{"resources": ["ClusterRole"]}]}, "named by their plural in lower case"),
    ({"rollout": {"batch": 0}}, "a batch is a number of edges from 1"),
    ({"rollout": {"batch": "a third"}}, 'or a percentage like "10%"'),
    ({"rollout": {"maxUnavailable": "101%"}}, "maxUnavailable is"),
    ({"locationSelector": {}}, 'unknown field "spec.locationSelector"'),
])
def test_bad_placements_are_explained(tools, spec, said):
    answer = " ".join(tools.kubectl("create", "-f", "-", stdin=placement("bad", **spec), code=1).split())
    assert said in answer


def test_other_bad_input_is_explained(center, tools):
    make = lambda kind, group, **rest: {"apiVersion": f"{group}/v1alpha1", "kind": kind, "metadata": {"name": "bad"}, **rest}
    resource = {"apiGroup": "apps", "resource": "deployments"}
    for bad, said in [
            (make("Location", "scheduling.kcp.io", spec={"resource": {"group": "", "version": "v1", "resource": "nodes"}}), "a Location is a place of synctargets"),
            (make("Customizer", "edge.kcp.io", replacements=[{"path": "spec.replicas", "value": "1"}]), 'a path begins with "$"'),
            (make("Customizer", "edge.kcp.io", replacements=[{"path": "$.metadata.name", "value": '"x"'}]), "cannot be customised"),
            (make("Customizer", "edge.kcp.io", replacements=[{"path": "$.a", "value": "1"}] * 2), "Duplicate value"),
            (make("StatusCollector", "edge.selvedge.dev", spec={"resource": {"resource": "Deployment"}}), "named by its plural in lower case"),
            (make("StatusCollector", "edge.selvedge.dev", spec={"resource": resource, "combinedFields": [{"name": "a", "type": "SUM"}]}), "need a subject"),
            (make("StatusCollector", "edge.selvedge.dev", spec={"resource": resource, "combinedFields": [{"name": "a", "type": "MEDIAN"}]}), "COUNT"),
            (make("StatusCollector", "edge.selvedge.dev", spec={"resource": resource, "groupBy": [{"name": "a", "def": "1"}]}), "groupBy needs combinedFields"),
            (make("StatusCollector", "edge.selvedge.dev", spec={"resource": resource, "staleAfter": "soon"}), "a duration is written as in 90s"),
            (make("SinglePlacementSlice", "edge.kcp.io", destinations=[{"cluster": "root"}]), "destinations[0].locationName"),
    ]:
        answer = " ".join(tools.kubectl("create", "-f", "-", stdin=bad, code=1).split())
        assert said in answer, bad
    good = make("StatusCollector", "edge.selvedge.dev", spec={"resource": resource, "staleAfter": "1h30m", "combinedFields": [{"name": "all", "type": "COUNT"}]})
    tools.kubectl("create", "-f", "-", stdin=good)
    # Answers are the server's to write.
    assert "MethodNotAllowed" in tools.kubectl("create", "-f", "-", stdin=make("CombinedStatus", "edge.selvedge.dev"), code=1)
    tools.kubectl("delete", "scol", "bad")
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "edgeplacements.edge.kcp.io"}, "spec": {
        "group": "edge.kcp.io", "scope": "Cluster", "names": {"plural": "edgeplacements", "kind": "EdgePlacement"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}
    # Nobody else defines kinds among ours, also where ours are not bound.
    make_workspace(center, "root:other")
    at = "/clusters/root:other/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    center.api("POST", at, crd)
    accepted = lambda: {c["type"]: c["status"] for c in center.api("GET", f"{at}/edgeplacements.edge.kcp.io")["status"].get("conditions", [])}
    assert wait_for("the judgement", accepted)["NamesAccepted"] == "False"
    center.api("DELETE", f"{at}/edgeplacements.edge.kcp.io")


# ---- who announces what ----

def test_the_bare_path_is_kubernetes(center):
    """Our groups are served everywhere in root, but announced only where somebody speaks of workspaces."""
    assert not [g for g in groups(center, "") if "kcp.io" in g or "selvedge" in g]
    named = groups(center, "/clusters/root")
    assert set(OURS + ["apis.kcp.io", "tenancy.kcp.io"]) <= set(named) and len(named) == len(set(named))
    assert names(center, f"{EDGE}/edgeplacements") == []
    assert center.request("GET", "/apis/tenancy.kcp.io")[0] == 404
    for document in ("/openapi/v3", "/openapi/v2"):
        assert ("edge.kcp.io" in json.dumps(center.api("GET", document)), "edge.kcp.io" in json.dumps(center.api("GET", "/clusters/root" + document))) == (False, True)
    # A client that appends to its kubeconfig's address means what it appends.
    make_workspace(center, "root:alias")
    center.api("POST", "/clusters/root/clusters/root:alias/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "here"}})
    assert center.request("GET", "/clusters/root:alias/api/v1/namespaces/here")[0] == 200
    assert center.request("GET", "/clusters/root/api/v1/namespaces/here")[0] == 404
    assert center.request("GET", "/clusters/root:alias/clusters/root/api/v1/namespaces")[0] == 404


# ---- exports, bindings, workspace types ----

def test_they_are_exported_and_bound(center, tools):
    espw = ("--server", f"{center.url}/clusters/root:espw")
    made = wait_for("the exports", lambda: [e for e in tools.json(*espw, "get", "apiexports")["items"] if e["status"].get("identityHash")])
    assert [e["metadata"]["name"] for e in made] == OURS
    schemas = tools.json(*espw, "get", "apiresourceschemas")["items"]
    assert sorted(n for e in made for n in e["spec"]["latestResourceSchemas"]) == sorted(s["metadata"]["name"] for s in schemas)
    assert len(schemas) == 8 and all(s["spec"]["versions"][0]["schema"]["type"] == "object" for s in schemas)
    bound = lambda where: {b["metadata"]["name"]: b["status"].get("phase") for b in center.api("GET", f"/clusters/{where}{BINDINGS}")["items"]}
    wait_for("the bindings of root", lambda: bound("root") == dict.fromkeys(OURS, "Bound"))
    # By type, or by hand.
    selvedge("ws", "--kubeconfig", center.kubeconfig, "create", "imw-1", "--type", "inventory")
    tools.kubectl("create", "-f", "-", stdin={"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "wmw-1"},
                                             "spec": {"type": {"name": "workload"}}})
    tools.kubectl("wait", "workspace/wmw-1", "--for=jsonpath={.status.phase}=Ready", "--timeout=20s")
    for where, has in (("root:imw-1", ["scheduling.kcp.io", "workload.kcp.io"]), ("root:wmw-1", ["edge.kcp.io", "edge.selvedge.dev"])):
        assert bound(where) == dict.fromkeys(has, "Bound")
        assert [g for g in groups(center, f"/clusters/{where}") if g in OURS] == has
    make_workspace(center, "root:plain")
    told = center.api("POST", f"/clusters/root:plain{SYNCTARGETS}", target("lost"), expect=[404])
    assert "bind the APIExport workload.kcp.io of root:espw there" in told["message"]
    [binding] = re.findall(r"\{.*\}", told["message"])
    center.api("POST", f"/clusters/root:plain{BINDINGS}", json.loads(binding))
    wait_for("the binding", lambda: bound("root:plain") == {"workload.kcp.io": "Bound"})
    center.api("POST", f"/clusters/root:plain{SYNCTARGETS}", target("found"))
    assert "found" in names(center, f"/clusters/*{SYNCTARGETS}")
    seen = "/services/apiexport/root:espw/workload.kcp.io/clusters/*" + SYNCTARGETS
    assert "found" in names(center, seen), "its provider sees it"
    # With the binding go the objects; the others stay.
    center.api("POST", SYNCTARGETS, target("stays"))
    center.api("DELETE", f"/clusters/root:plain{BINDINGS}/workload.kcp.io")
    wait_for("the binding to go", lambda: bound("root:plain") == {})
    assert names(center, f"/clusters/*{SYNCTARGETS}") == ["stays"]
    center.api("DELETE", f"{SYNCTARGETS}/stays")
    # What everybody's kinds come from stays.
    for path in ("/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/espw", f"{BINDINGS}/edge.kcp.io",
                 "/clusters/root:espw/apis/apis.kcp.io/v1alpha1/apiexports/edge.kcp.io"):
        assert center.request("DELETE", path)[0] == 403, path


def test_rights_end_at_inventory(center, tmp_path):
    """Who has an inventory places nothing, sees no mailboxes, and had to be given it."""
    alice = User(center, tmp_path, "alice")
    workspaces = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces"
    make = lambda name, of_type: {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}, "spec": {"type": {"name": of_type}}}
    allow(center, "root", "alice", ["create", "get", "list"], ["workspaces"], "tenancy.kcp.io")
    assert "you may not use the type root:inventory" in alice.api("POST", workspaces, make("alices", "inventory"), expect=[422])["message"]
    allow(center, "root", "alice", ["use"], ["workspacetypes"], "tenancy.kcp.io", resourceNames=["inventory"])
    alice.api("POST", workspaces, make("alices", "inventory"))
    wait_for("her workspace", lambda: center.api("GET", f"{workspaces}/alices")["status"]["phase"] == "Ready")
    alice.api("POST", f"/clusters/root:alices{SYNCTARGETS}", target("hers"))
    wait_for("its mailbox", lambda: "hers" in mailboxes(center))
    alice.api("POST", workspaces, make("more", "workload"), expect=[422])
    there = f"/clusters/root:alices{EDGE}/edgeplacements"
    assert "bind the APIExport edge.kcp.io" in alice.api("POST", there, placement("sly"), expect=[404])["message"]
    binding = {"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIBinding", "metadata": {"name": "sly"},
               "spec": {"reference": {"export": {"path": "root:espw", "name": "edge.kcp.io"}}}}
    assert "needs the verb bind" in alice.api("POST", f"/clusters/root:alices{BINDINGS}", binding, expect=[403])["message"]
    for path in (MAILBOXES, f"/clusters/*{SYNCTARGETS}", f"/clusters/root{SYNCTARGETS}", f"/clusters/root{EDGE}/edgeplacements",
                 "/services/apiexport/root:espw/workload.kcp.io/clusters/*" + SYNCTARGETS):
        alice.api("GET", path, expect=[403])
    box = mailboxes(center)["hers"]["metadata"]["name"]
    alice.api("GET", f"/clusters/root:espw:{box}/api/v1/configmaps", expect=[403])
    center.api("DELETE", f"{workspaces}/alices")
    wait_for("it to go", lambda: "hers" not in mailboxes(center))


# ---- mailboxes ----

def mailboxes(center):
    return {w["metadata"]["annotations"]["edge.kcp.io/sync-target-name"]: w for w in center.api("GET", MAILBOXES)["items"]}


def test_every_synctarget_has_a_mailbox(center, tools):
    make_workspace(center, "root:imw-2", "inventory")
    for name in ("florin", "guilder"):
        center.api("POST", f"/clusters/root:imw-2{SYNCTARGETS}", target(name, env="prod"))
    center.api("POST", SYNCTARGETS, target("thaler"))
    boxes = wait_for("the mailboxes", lambda: len(mailboxes(center)) == 3 and mailboxes(center))
    uid = center.api("GET", f"/clusters/root:imw-2{SYNCTARGETS}/florin")["metadata"]["uid"]
    florin = boxes["florin"]["metadata"]["name"]
    assert re.fullmatch(f"[0-9a-z]{{13}}-mb-{uid}", florin)
    assert florin.split("-mb-")[0] == boxes["guilder"]["metadata"]["name"].split("-mb-")[0] != boxes["thaler"]["metadata"]["name"].split("-mb-")[0]
    assert boxes["florin"]["spec"] == {"type": {"name": "mailbox", "path": "root"}, "cluster": f"root:espw:{florin}", "URL": f"{center.url}/clusters/root:espw:{florin}"}
    assert boxes["florin"]["status"]["phase"] == "Ready"
    listed = tools.kubectl("--server", f"{center.url}/clusters/root:espw", "get", "workspaces").splitlines()
    assert len(listed) == 4 and [row.split()[1:3] for row in listed[1:]] == [["mailbox", "Ready"]] * 3
    # One that somebody deletes comes back; one that somebody forges is refused.
    center.api("DELETE", f"{MAILBOXES}/{florin}")
    again = wait_for("the mailbox to come back", lambda: mailboxes(center).get("florin"))
    assert again["metadata"]["name"] == florin and again["metadata"]["uid"] != boxes["florin"]["metadata"]["uid"]
    forged = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "forged"}, "spec": {"type": {"name": "mailbox", "path": "root"}}}
    assert "workspaces of type root:mailbox cannot be in one of type" in center.api("POST", MAILBOXES, forged, expect=[422])["message"]
    # They cost an object each: nothing lies in them.
    assert len(json.dumps(again)) < 1000
    # They go with their SyncTargets, also those that went while nobody looked.
    center.api("DELETE", f"/clusters/root:imw-2{SYNCTARGETS}/florin")
    wait_for("florin's mailbox to go", lambda: set(mailboxes(center)) == {"guilder", "thaler"})
    # One made anew is another edge, and has another mailbox.
    center.api("POST", f"/clusters/root:imw-2{SYNCTARGETS}", target("florin"))
    wait_for("the new one", lambda: mailboxes(center).get("florin", {}).get("metadata", {}).get("name") not in (None, florin))
    before = {name: box["metadata"]["uid"] for name, box in mailboxes(center).items()}
    center.kill()
    center.start()
    # The mailbox of another SyncTarget comes after whatever is done at a start.
    center.api("POST", f"/clusters/root:imw-2{SYNCTARGETS}", target("zloty"))
    wait_for("another mailbox", lambda: "zloty" in mailboxes(center))
    after = {name: box["metadata"]["uid"] for name, box in mailboxes(center).items() if name != "zloty"}
    assert after == before, "nothing was written anew"
    center.api("DELETE", "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces/imw-2")
    wait_for("an inventory's mailboxes to go with it", lambda: set(mailboxes(center)) == {"thaler"})
    center.api("DELETE", f"{SYNCTARGETS}/thaler")
    wait_for("the last one to go", lambda: not mailboxes(center))


def test_an_edge_has_what_it_needs(center, tmp_path):
    florin = Edge(center, tmp_path / "florin")
    try:
        florin.start().wait_connected()
        assert not [g for g in groups(florin, "") if "kcp.io" in g or "selvedge" in g]
        ours = lambda group: [r["name"] for r in florin.api("GET", f"/clusters/root/apis/{group}/v1alpha1")["resources"] if "/" not in r["name"]]
        assert (ours("edge.kcp.io"), ours("edge.selvedge.dev")) == (["syncerconfigs"], ["offlinewrites"])
        assert not {"workload.kcp.io", "scheduling.kcp.io"} & set(groups(florin, "/clusters/root"))
        assert florin.request("GET", f"{EDGE}/edgeplacements")[0] == 404
        assert names(florin, f"{EDGE}/syncerconfigs") in ([], ["the-one"])
    finally:
        florin.kill()
    center.api("DELETE", f"{SYNCTARGETS}/florin")
    wait_for("its mailbox to go", lambda: not mailboxes(center))


# ---- the page ----

def test_the_page(center, tools):
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/reference/placement-kinds.md").read_text(), re.M | re.S)
    assert len(blocks) == 3
    path = f"{pathlib.Path(binary()).parent}:{tools.env['PATH']}"
    out = tools.run(["bash", "-euo", "pipefail", "-c", "\n".join(blocks)], env={"CENTER": center.url, "PATH": path}).stdout
    for said in ("everything-common", "apiexport.apis.kcp.io/workload.kcp.io", ".edgeplacements.edge.kcp.io", "Bound"):
        assert said in out, said
