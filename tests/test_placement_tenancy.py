"""Who sees what of placement: teams nothing of each other, an inventory's owner nothing but the inventory, and nobody a mailbox."""
import json

import pytest
from center import wait_for
from edge import SYNCTARGETS, fleet
from test_placement import LOCATIONS, WMW_C, WMW_S, location, merge, placement, stuff, workspace

IMW, ESPW = "root:imw-1", "root:espw"
PLACEMENTS = "/apis/edge.kcp.io/v1alpha1/edgeplacements"
SLICES = "/apis/edge.kcp.io/v1alpha1/singleplacementslices"
COLLECTORS = "/apis/edge.selvedge.dev/v1alpha1/statuscollectors"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NAMESPACES = "/api/v1/namespaces"


def owner(center, user, path):
    """Everything in one workspace, and nothing else."""
    for role in ("cluster-admin", "system:kcp:workspace:access"):
        center.api("POST", f"/clusters/{path}{RBAC}/clusterrolebindings", {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{user}-{role.replace(':', '-')}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]}, expect=(201,))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """ann and sue have a workload each, ivy the inventory with one edge, on which both are placed."""
    with fleet("florin", workspace=None, directory=tmp_path_factory.mktemp("tenancy")) as (center, florin):
        workspace(center, "root:my-org")
        workspace(center, IMW, "inventory")
        for path, user, name, label in ((WMW_C, "ann", "commonstuff", "common"), (WMW_S, "sue", "specialstuff", "special")):
            workspace(center, path, "workload")
            owner(center, user, path)
            for one in stuff(name, label, f"{label}d"):
                where = f"/namespaces/{name}" if one["metadata"].get("namespace") else ""
                group, kind = ("api/v1" if "/" not in one["apiVersion"] else "apis/apps/v1"), one["kind"].lower() + "s"
                center.api("POST", f"/clusters/{path}/{group}{where}/{kind}", one, expect=(201,))
            center.api("POST", f"/clusters/{path}{PLACEMENTS}", placement(label, {"env": "prod"}, {label: "si"}), expect=(201,))
        owner(center, "ivy", IMW)
        merge(center, f"{SYNCTARGETS}/florin", {"metadata": {"labels": {"id": "florin"}}})
        center.api("POST", LOCATIONS, location("florin", env="prod"), expect=(201,))
        wait_for("both workloads", lambda: len(florin.api("GET", "/apis/apps/v1/deployments")["items"]) == 2)
        boxes = center.api("GET", f"/clusters/{ESPW}/apis/tenancy.kcp.io/v1alpha1/workspaces")["items"]
        yield center, f"{ESPW}:{boxes[0]['metadata']['name']}"


def asks(center, user, path, method="GET", body=None):
    status, _, said = center.request(method, path, body, headers={"Impersonate-User": user, "Impersonate-Group": "system:authenticated"})
    return status, said


THINGS = (NAMESPACES, "/api/v1/configmaps", "/apis/apps/v1/deployments", PLACEMENTS, SLICES, COLLECTORS)


@pytest.mark.parametrize("user, home, other", [("ann", WMW_C, WMW_S), ("sue", WMW_S, WMW_C)])
def test_teams_see_nothing_of_each_other(world, user, home, other):
    center, mailbox = world
    for path in THINGS:
        status, said = asks(center, user, f"/clusters/{home}{path}")
        assert status == 200, (path, said)
        label, theirs = ("common", "special") if home == WMW_C else ("special", "common")
        assert theirs.encode() not in said, path
        for elsewhere in (other, mailbox, ESPW, "*", "root", "root:my-org"):
            status, said = asks(center, user, f"/clusters/{elsewhere}{path}")
            assert status in (403, 404), (elsewhere, path, status, said[:200])
            assert b"items" not in said
    assert asks(center, user, f"/clusters/root{SYNCTARGETS}")[0] == 403
    assert asks(center, user, f"/clusters/root{LOCATIONS}")[0] == 403
    # The slice tells where one's own things go, and says nothing of what else is there.
    slices = lambda: json.loads(asks(center, user, f"/clusters/{home}{SLICES}")[1])["items"]  # noqa: E731
    wait_for("the slice", lambda: [d["syncTargetName"] for s in slices() for d in s["destinations"]] == ["florin"])


def test_an_inventory_owners_rights_end_at_inventory(world):
    center, mailbox = world
    assert asks(center, "ivy", f"/clusters/{IMW}{LOCATIONS}")[0] == 200
    target = {"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget", "metadata": {"name": "own"}}
    assert asks(center, "ivy", f"/clusters/{IMW}{SYNCTARGETS}", "POST", target)[0] == 201
    for elsewhere in (WMW_C, WMW_S, mailbox, ESPW, "*", "root", "root:my-org"):
        for path in THINGS:
            status, said = asks(center, "ivy", f"/clusters/{elsewhere}{path}")
            assert status in (403, 404) and b"items" not in said, (elsewhere, path, status)
    # Nor can she place anything herself: her workspace has no such kind.
    one = placement("mine", {"env": "prod"}, {})
    assert asks(center, "ivy", f"/clusters/{IMW}{PLACEMENTS}", "POST", one)[0] == 404
    assert asks(center, "ivy", f"/clusters/{WMW_C}{PLACEMENTS}", "POST", one)[0] == 403


def test_a_mailbox_of_her_own_edge_is_not_hers_either(world):
    center, _ = world
    boxes = center.api("GET", f"/clusters/{ESPW}/apis/tenancy.kcp.io/v1alpha1/workspaces")["items"]
    own = [b["metadata"]["name"] for b in boxes if b["metadata"]["annotations"]["edge.kcp.io/sync-target-name"] == "own"]
    assert own
    status, said = asks(center, "ivy", f"/clusters/{ESPW}:{own[0]}/api/v1/configmaps")
    assert status == 403 and b"items" not in said
