"""The center's side of the link, with real edges: what goes down, what comes up, what is held, and who is let in."""
import contextlib
import json
import re
import shutil
import socket
import subprocess
import time

import pytest

from center import ROOT, Center, Etcd, Tools, binary, wait_for
from edge import SYNCTARGETS, Edge, Wire, annotate, fence, fleet, in_sync, make_workspace, selvedge

CONFIG = "/clusters/root:shop/api/v1/namespaces/default/configmaps"
LOCAL = "/api/v1/namespaces/default/configmaps"
CONFIRM, ADOPT = "edge.selvedge.dev/confirm-deletion", "edge.selvedge.dev/adopt"


@pytest.fixture(scope="module")
def shop():
    with fleet("florin") as (center, florin):
        yield center, florin


def put(center, name, data="1", path=CONFIG):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": data}}
    if center.api("POST", path, body, expect=(201, 409)).get("reason") == "AlreadyExists":
        center.api("PUT", f"{path}/{name}", body)


def names(server, path):
    return {o["metadata"]["name"] for o in server.api("GET", path)["items"]} - {"kube-root-ca.crt"}


def live(center, name, workspace="root"):
    return next(e for e in center.api("GET", f"/clusters/{workspace}/fleet")["edges"] if e["name"] == name)


def says(edge, kind):
    found = edge.condition(kind) or {}
    return found.get("status"), found.get("message", "")


def metric(center, name):
    text = center.request("GET", "/metrics", accept="*/*")[2].decode()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith(name + " ")))


def test_what_is_applied_at_the_center_is_read_at_the_edge(shop):
    center, florin = shop
    put(center, "first")
    in_sync(center, "root:shop", florin)
    took = []
    for n in range(10):
        begun = time.monotonic()
        put(center, "first", f"round {n}")
        wait_for("the change", lambda: florin.api("GET", f"{LOCAL}/first")["data"]["a"] == f"round {n}", every=0.002)
        took.append(time.monotonic() - begun)
    assert sorted(took)[5] < 1, took
    o = florin.api("GET", f"{LOCAL}/first")["metadata"]
    assert o["labels"]["edge.kcp.io/projected"] == "yes"
    assert o["annotations"]["edge.selvedge.dev/source"] == "root:shop"
    center.api("DELETE", f"{CONFIG}/first")
    wait_for("the deletion", lambda: "first" not in names(florin, LOCAL))
    wait_for("in sync", lambda: live(center, "florin")["inSync"])
    assert metric(center, "selvedge_edges_connected") == 1


def test_a_definition_and_its_objects_arrive_and_are_served(shop):
    center, florin = shop
    group = {"group": "loom.example.com", "scope": "Namespaced", "names": {"plural": "looms", "singular": "loom", "kind": "Loom"},
             "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                 "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}
    center.api("POST", "/clusters/root:shop/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
               {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "looms.loom.example.com"}, "spec": group})
    looms = "/apis/loom.example.com/v1/namespaces/default/looms"
    loom = {"apiVersion": "loom.example.com/v1", "kind": "Loom", "metadata": {"name": "jacquard"}, "threads": 400}
    wait_for("the kind", lambda: center.api("POST", f"/clusters/root:shop{looms}", loom, expect=(201, 409)))
    wait_for("the loom at the edge", lambda: florin.api("GET", f"{looms}/jacquard")["threads"] == 400)


def test_nothing_happening_writes_nothing(shop):
    center, florin = shop
    wait_for("in sync", lambda: live(center, "florin")["inSync"])
    revision = lambda: metric(center, "selvedge_revision")

    def only_fences():
        """Whether an object that goes to the edge and is removed there costs two writes, and nothing else is written."""
        before = revision()
        fence(center, florin)
        return revision() == before + 2

    # What the tests before have caused comes to its end; after that there is nothing but the fences.
    wait_for("silence", only_fences, every=0.2)
    assert all(only_fences() for _ in range(20))


def test_most_of_an_edge_goes_only_when_somebody_says_so(shop):
    center, florin = shop
    for n in range(20):
        put(center, f"held-{n}")
    in_sync(center, "root:shop", florin)
    center.api("DELETE", f"{CONFIG}?labelSelector=")
    wait_for("DeletionHeld", lambda: says(florin, "DeletionHeld")[0] == "True")
    kept = names(florin, LOCAL)
    # Half of all that the edge holds may go, and that is up to four objects more than these twenty.
    assert len(kept) >= 8, kept
    # The message ends with what to do; it is done as it is written.
    def confirm():
        status, message = says(florin, "DeletionHeld")
        if status == "True":
            selvedge(*message.rsplit("selvedge ", 1)[1].split(), code=None, env={"KUBECONFIG": str(center.kubeconfig)})
        return not names(florin, LOCAL)

    wait_for("the deletions", confirm, every=0.5)
    wait_for("the fuse to be in again", lambda: says(florin, "DeletionHeld")[0] == "False")
    wait_for("the annotation to be gone", lambda: CONFIRM not in florin.target()["metadata"]["annotations"])


def test_a_link_that_is_cut_and_healed(shop):
    center, florin = shop
    florin.cut()
    put(center, "while-cut")
    status, message = says(florin, "Ready")
    assert (status, "its link was cut here" in message) == ("False", True), message
    wait_for("how far it is behind", lambda: live(center, "florin")["pending"] == 1)
    assert "while-cut" not in names(florin, LOCAL)
    assert live(center, "florin")["cut"] is True
    florin.heal(seconds=20)
    in_sync(center, "root:shop", florin)


def test_what_the_edge_refuses_is_told_where_it_is(shop):
    center, florin = shop
    # An object of the edge's own has the name already: the center's does not replace it.
    put(florin, "taken", "local", LOCAL)
    put(center, "taken", "central")
    put(center, "not-taken")
    wait_for("the refusal", lambda: says(florin, "ObjectsRefused")[0] == "True")
    assert "core/configmaps/default/taken" in says(florin, "ObjectsRefused")[1]
    wait_for("the other", lambda: "not-taken" in names(florin, LOCAL))
    assert florin.api("GET", f"{LOCAL}/taken")["data"]["a"] == "local"

    def event():
        events = center.api("GET", "/clusters/root:shop/api/v1/namespaces/default/events")["items"]
        return [e for e in events if e["reason"] == "RefusedByEdge" and e["involvedObject"]["name"] == "taken"]

    assert "root:florin could not take it" in wait_for("the event", event)[0]["message"]
    florin.api("DELETE", f"{LOCAL}/taken")
    put(center, "taken", "central 2")
    wait_for("it after all", lambda: florin.api("GET", f"{LOCAL}/taken")["data"]["a"] == "central 2")
    wait_for("the condition to go", lambda: says(florin, "ObjectsRefused")[0] == "False")


def test_only_what_is_inside_its_workspace_can_be_asked_for(shop):
    center, florin = shop
    annotate(center, "florin", **{"edge.selvedge.dev/workspace": "elsewhere"})
    wait_for("the refusal", lambda: florin.condition("Ready")["reason"] == "WorkspaceNotAllowed", every=0.05)
    annotate(center, "florin", **{"edge.selvedge.dev/workspace": "root:shop"})
    florin.wait_connected()
    in_sync(center, "root:shop", florin)


def test_the_fleet_is_shown_to_those_who_may_list_it(shop):
    center, _ = shop
    status, _, body = center.request("GET", "/clusters/root/fleet", headers={"Impersonate-User": "nobody"})
    assert (status, json.loads(body)["reason"]) == (403, "Forbidden"), body
    assert center.api("GET", "/clusters/root:shop/fleet") == {"edges": []}


def test_a_center_restored_from_a_backup_takes_nothing_back_unasked(tmp_path):
    with fleet("florin", directory=tmp_path) as (center, florin):
        put(center, "old")
        in_sync(center, "root:shop", florin)
        center.stop()
        shutil.copytree(center.data_dir, tmp_path / "backup")
        center.start()
        put(center, "new")
        in_sync(center, "root:shop", florin, seconds=60)
        center.stop()
        shutil.rmtree(center.data_dir)
        (tmp_path / "backup").rename(center.data_dir)
        center.start()
        wait_for("RolledBack", lambda: says(florin, "RolledBack")[0] == "True", 60)
        assert names(florin, LOCAL) == {"old", "new"}, "it keeps what it has"
        put(center, "newer")
        # Another edge of the same workspace gets it; this one does not.
        guilder = Edge(center, tmp_path / "guilder", "guilder", workspace="root:shop")
        try:
            guilder.start()
            in_sync(center, "root:shop", guilder)
            assert names(guilder, LOCAL) == {"old", "newer"}
        finally:
            guilder.kill()
        assert "newer" not in names(florin, LOCAL)
        annotate(center, "florin", **{ADOPT: "yes"})
        in_sync(center, "root:shop", florin)
        assert names(florin, LOCAL) == {"old", "newer"}
        wait_for("the condition to go", lambda: says(florin, "RolledBack")[0] == "False")
        wait_for("the annotation to be gone", lambda: ADOPT not in florin.target()["metadata"]["annotations"])
        # Deleting the SyncTarget ends it at once, and what is there stays.
        begun = time.monotonic()
        center.api("DELETE", f"{SYNCTARGETS}/florin")
        wait_for("the edge to be out", lambda: metric(center, "selvedge_edges_connected") == 0, every=0.01)
        assert time.monotonic() - begun < 1
        assert names(florin, LOCAL) == {"old", "newer"}


def test_the_page_says_what_works(shop, tmp_path):
    center, florin = shop
    page = (ROOT / "docs/reference/fleet.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    assert len(blocks) >= 3
    script = "\n".join([f'selvedge() {{ {binary()} "$@"; }}', *blocks])
    done = subprocess.run(["bash", "-exuo", "pipefail", "-c", script], env=Tools(center, tmp_path).env,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    for said in ("Connected", "it holds the objects of root:shop", '"name":"florin"'):
        assert said in done.stdout, done.stdout
    # Asked for without need, both are simply done.
    wait_for("the annotations to be gone", lambda: not {CONFIRM, ADOPT} & florin.target()["metadata"]["annotations"].keys())
    in_sync(center, "root:shop", florin)


def test_an_edge_goes_from_one_center_to_another_of_the_same_etcd(tmp_path):
    etcd = Etcd(tmp_path)
    shared = ["--secrets-key-file", str(tmp_path / "shared.key")]
    one, two = (Center(tmp_path / name, "etcd", etcd, args=shared) for name in ("one", "two"))
    wire, florin = None, None
    try:
        one.start()
        two.start()
        make_workspace(one, "root:shop")
        wire = Wire(one.port)
        florin = Edge(one, tmp_path / "florin", workspace="root:shop", through=wire).start().wait_connected()
        put(one, "a")
        in_sync(one, "root:shop", florin)
        first = florin.target()["status"]["center"]
        wire.target_port = two.port
        wire.reset()
        wait_for("it at the other center", lambda: metric(two, "selvedge_edges_connected") == 1, 30)
        wait_for("the status to say so", lambda: florin.target()["status"]["center"] != first)
        put(two, "b")
        in_sync(two, "root:shop", florin)
        # The center that lost it has nothing to say any more, though it sees what the other one writes.
        annotate(one, "florin", **{"example.com/fence": "yes"})
        put(two, "c")
        in_sync(two, "root:shop", florin)
        assert florin.connected()
        assert says(florin, "RolledBack")[0] is None
    finally:
        for process in (florin, two, one):
            if process:
                process.kill()
        if wire:
            wire.close()
        etcd.stop()


def test_edges_that_stop_in_the_middle_of_a_handshake_keep_nobody_out(shop):
    center, florin = shop
    with contextlib.ExitStack() as stack:
        for n in range(60):
            stalled = stack.enter_context(socket.create_connection((center.host, center.port), timeout=10))
            # The beginning of a ClientHello, or nothing at all.
            stalled.sendall(b"\x16\x03\x01\x02\x00\x01" if n % 2 else b"")
        begun = time.monotonic()
        center.still_answers()
        assert time.monotonic() - begun < 3
    assert florin.connected()
