"""An edge as its users see it: what the center sent is there, and it is all there without the center."""
import base64
import contextlib
import json
import re
import subprocess
import threading
import time

import pytest
from center import ROOT, Tools, binary, join, wait_for
from edge import SYNCTARGETS, Edge, fence, fleet, in_sync, reported, selvedge

SHOP = "root:shop"
MAPS = "/api/v1/namespaces/default/configmaps"
AT_CENTER = f"/clusters/{SHOP}{MAPS}"
LINK = "/api/v1/namespaces/kube-system/configmaps/selvedge-link"


def config_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data or {"k": "v"}}


def write(center, name, path=AT_CENTER, **data):
    status, _, body = center.request("PUT", f"{path}/{name}", config_map(name, **data))
    if status == 404:
        status, _, body = center.request("POST", path, config_map(name, **data))
    assert status in (200, 201), (status, body)


def shown(edge):
    return edge.api("GET", LINK)["data"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A center and one edge that holds root:shop, with a wire between them that can be cut."""
    with fleet("florin", workspace=SHOP, directory=tmp_path_factory.mktemp("edge"), wire=True) as (center, florin):
        yield center, florin
        assert "panicked" not in florin.log_path.read_text(errors="replace")


@contextlib.contextmanager
def offline(edge):
    """No way to the center."""
    edge.through.cut()
    try:
        wait_for("the edge to notice", lambda: shown(edge)["state"] == "Offline", 20)
        yield
    finally:
        edge.through.open()


def test_what_is_applied_at_the_center_is_there_and_every_watcher_sees_it(shop):
    center, florin = shop
    write(center, "first", n="0")
    in_sync(center, SHOP, florin)
    here = florin.api("GET", f"{MAPS}/first")
    there = center.api("GET", f"{AT_CENTER}/first")
    assert here["metadata"]["uid"] != there["metadata"]["uid"], "an edge's objects are its own"
    assert here["metadata"]["labels"] == {"edge.kcp.io/projected": "yes"}
    assert here["metadata"]["annotations"] == {"edge.selvedge.dev/source": SHOP}
    listed = florin.api("GET", MAPS)
    known = {o["metadata"]["name"]: o for o in listed["items"]}
    events = []

    def follow():
        connection = florin.connection(timeout=30)
        connection.request("GET", f"{MAPS}?watch=true&resourceVersion={listed['metadata']['resourceVersion']}&timeoutSeconds=25")
        for line in connection.getresponse():
            events.append(json.loads(line))
            if events[-1]["object"]["metadata"]["name"] == "last":
                return

    watcher = threading.Thread(target=follow)
    watcher.start()
    for n in range(60):
        write(center, f"w{n % 7}", n=str(n))
        if n % 20 == 19:
            center.api("DELETE", f"{AT_CENTER}/w{n % 7}")
    write(center, "last")
    watcher.join(30)
    assert events and events[-1]["object"]["metadata"]["name"] == "last", f"{len(events)} events"
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in events]
    assert versions == sorted(versions) and versions[0] > int(listed["metadata"]["resourceVersion"])
    in_sync(center, SHOP, florin)
    for event in events:
        name = event["object"]["metadata"]["name"]
        assert (event["type"] == "ADDED") == (name not in known), f"{event['type']} of {name} after {list(known)}"
        known.pop(name, None)
        if event["type"] != "DELETED":
            known[name] = event["object"]
    bare = lambda o: {k: v for k, v in o.items() if k not in ("kind", "apiVersion")}  # noqa: E731
    assert {n: bare(o) for n, o in known.items()} == {o["metadata"]["name"]: bare(o) for o in florin.api("GET", MAPS)["items"]}


def test_definitions_and_their_objects_arrive(shop):
    center, florin = shop
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
           "metadata": {"name": "widgets.example.com"},
           "spec": {"group": "example.com", "scope": "Namespaced",
                    "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                    "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {
                        "openAPIV3Schema": {"type": "object", "properties": {
                            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}}}]}}
    center.api("POST", f"/clusters/{SHOP}/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    widgets = "/apis/example.com/v1/namespaces/default/widgets"
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3}}
    wait_for("the kind", lambda: center.request("POST", f"/clusters/{SHOP}{widgets}", widget)[0] == 201)
    wait_for("the widget", lambda: florin.api("GET", f"{widgets}/w")["spec"]["size"] == 3)
    florin.api("PATCH", f"{widgets}/w/status", {"status": {"ok": True}}, content_type="application/merge-patch+json")
    center.api("PATCH", f"/clusters/{SHOP}{widgets}/w", {"spec": {"size": 4}}, content_type="application/merge-patch+json")
    here = wait_for("the change", lambda: (o := florin.api("GET", f"{widgets}/w"))["spec"]["size"] == 4 and o)
    assert here["status"] == {"ok": True} and here["metadata"]["generation"] == 2


def test_a_job_finds_its_pods_by_its_uid_here(shop):
    center, edge = shop
    jobs, uid = "/apis/batch/v1/namespaces/default/jobs", "batch.kubernetes.io/controller-uid"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"parallelism": 1, "template": template}}

    def here(what=lambda job: True):
        code, _, body = edge.request("GET", f"{jobs}/once")
        return code == 200 and what(json.loads(body)) and json.loads(body)

    there = center.api("POST", f"/clusters/{SHOP}{jobs}", job)
    first = wait_for("the Job", here)
    own = first["metadata"]["uid"]
    assert own != there["metadata"]["uid"] and first["spec"]["selector"] == {"matchLabels": {uid: own}}
    assert first["spec"]["template"]["metadata"]["labels"][uid] == first["metadata"]["labels"][uid] == own
    center.api("PATCH", f"/clusters/{SHOP}{jobs}/once", {"spec": {"parallelism": 2}}, content_type="application/merge-patch+json")
    second = wait_for("the change", lambda: here(lambda job: job["spec"]["parallelism"] == 2))
    assert second["metadata"]["uid"] == own and second["spec"]["selector"] == first["spec"]["selector"]
    # Made anew at the center, it is another one here as well.
    center.api("DELETE", f"/clusters/{SHOP}{jobs}/once?propagationPolicy=Background")
    wait_for("its end at the center", lambda: center.request("GET", f"/clusters/{SHOP}{jobs}/once")[0] == 404)
    template["spec"]["containers"][0]["image"] = "other"
    center.api("POST", f"/clusters/{SHOP}{jobs}", job)
    third = wait_for("the next", lambda: here(lambda job: job["spec"]["template"]["spec"]["containers"][0]["image"] == "other"))
    assert third["metadata"]["uid"] not in (own, there["metadata"]["uid"])
    assert third["spec"]["selector"] == {"matchLabels": {uid: third["metadata"]["uid"]}}


def test_it_starts_and_serves_everything_without_the_center(shop, tmp_path):
    center, florin = shop
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
                                                                 "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}}
    center.api("POST", f"/clusters/{SHOP}/apis/apps/v1/namespaces/default/deployments", deployment)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": "tulip"}}
    center.api("POST", f"/clusters/{SHOP}/api/v1/namespaces/default/secrets", secret)
    for n in range(20):
        write(center, f"kept{n}", n=str(n))
    in_sync(center, SHOP, florin)
    wait_for("the rest", lambda: florin.api("GET", "/api/v1/namespaces/default/secrets/s") and
             florin.api("GET", "/apis/apps/v1/namespaces/default/deployments/web"))
    before = florin.api("GET", MAPS)
    with offline(florin):
        assert florin.stop() == 0, florin.log_tail()
        florin.start()
        after = florin.api("GET", MAPS)
        assert after["items"] == before["items"], "everything is there, under the same versions"
        assert int(after["metadata"]["resourceVersion"]) >= int(before["metadata"]["resourceVersion"])
        tools = florin.tools(tmp_path)
        assert "web" in tools.kubectl("get", "deployments")
        assert "nginx" in tools.kubectl("describe", "deployment", "web")
        got = tools.json("get", "secret", "s")
        assert base64.b64decode(got["data"]["password"]) == b"tulip"
        assert b"tulip" not in b"".join(p.read_bytes() for p in (florin.data_dir / "store").iterdir() if p.is_file())
        tools.kubectl("apply", "-f", "-", stdin=config_map("local", made="here"))
        tools.kubectl("apply", "-f", "-", stdin=config_map("local", made="still here"))
        assert tools.json("get", "configmap", "local")["data"] == {"made": "still here"}
        # Accounts and their tokens are the edge's own.
        tools.kubectl("create", "serviceaccount", "robot")
        tools.kubectl("create", "role", "reader", "--verb=get,list", "--resource=configmaps")
        tools.kubectl("create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:robot")
        token = tools.kubectl("create", "token", "robot").strip()
        robot = ["--kubeconfig", "/dev/null", "--server", florin.url, "--certificate-authority", florin.ca, "--token", token]
        assert "kept3" in tools.kubectl(*robot, "get", "configmaps")
        assert "orbidden" in tools.kubectl(*robot, "get", "secrets", code=1)
        # What a kubelet asks for.
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
               "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "nginx"}]}}
        florin.api("POST", "/api/v1/namespaces/default/pods", pod)
        on = lambda node: florin.api("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")["items"]  # noqa: E731
        assert [p["metadata"]["name"] for p in on("n1")] == ["p"] and on("n2") == []
        assert shown(florin)["state"] == "Offline"
        write(center, "kept0", n="changed meanwhile")
        center.api("DELETE", f"{AT_CENTER}/kept1")
        newest = int(florin.api("GET", MAPS)["metadata"]["resourceVersion"])
    florin.api("DELETE", f"{MAPS}/local")
    # Another start dials at once.
    florin.stop()
    florin.start()
    in_sync(center, SHOP, florin)
    assert int(florin.api("GET", MAPS)["metadata"]["resourceVersion"]) > newest
    assert shown(florin)["state"] == "Online"


def test_what_was_made_on_the_edge_is_not_overwritten(shop):
    center, florin = shop
    florin.api("POST", MAPS, config_map("ours", of="the edge"))
    write(center, "ours", of="the center")
    # The center is told that the edge refused it, so the edge has dealt with it.
    wait_for("the refusal", lambda: "default/ours" in florin.condition("ObjectsRefused").get("message", ""))
    assert florin.api("GET", f"{MAPS}/ours")["data"] == {"of": "the edge"}
    center.api("DELETE", f"{AT_CENTER}/ours")
    write(center, "after", of="the center again")
    in_sync_but_ours = lambda: florin.api("GET", f"{MAPS}/after")["data"]["of"] == "the center again"  # noqa: E731
    wait_for("the next one", in_sync_but_ours)
    assert florin.api("GET", f"{MAPS}/ours")["data"] == {"of": "the edge"}
    florin.api("DELETE", f"{MAPS}/ours")


def test_local_labels_and_finalizers_stay(shop):
    center, florin = shop
    write(center, "shared", n="1")
    in_sync(center, SHOP, florin)
    mine = {"metadata": {"labels": {"shelf": "4"}, "finalizers": ["example.com/edge"]}}
    florin.api("PATCH", f"{MAPS}/shared", mine, content_type="application/merge-patch+json")
    write(center, "shared", n="2")
    here = wait_for("the change", lambda: (o := florin.api("GET", f"{MAPS}/shared"))["data"] == {"n": "2"} and o)
    assert here["metadata"]["labels"] == {"edge.kcp.io/projected": "yes", "shelf": "4"}
    center.api("DELETE", f"{AT_CENTER}/shared")
    wait_for("the mark", lambda: "deletionTimestamp" in florin.api("GET", f"{MAPS}/shared")["metadata"])
    # It is still going when the center makes another: that one comes as soon as it can.
    write(center, "shared", n="3")
    fence(center, florin)
    assert florin.api("GET", f"{MAPS}/shared")["data"] == {"n": "2"}
    florin.api("PATCH", f"{MAPS}/shared", {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json")
    wait_for("the other one", lambda: florin.api("GET", f"{MAPS}/shared")["data"] == {"n": "3"}, 25)


def test_status_comes_back_also_after_a_cut(shop):
    center, florin = shop
    path = "/apis/apps/v1/namespaces/default/deployments"
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "back"}, "spec": {
        "selector": {"matchLabels": {"app": "back"}}, "template": {"metadata": {"labels": {"app": "back"}},
                                                                  "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}}
    center.api("POST", f"/clusters/{SHOP}{path}", deployment)
    wait_for("the deployment", lambda: florin.api("GET", f"{path}/back"))

    def say(replicas):
        florin.api("PATCH", f"{path}/back/status", {"status": {"replicas": replicas}}, content_type="application/merge-patch+json")

    key = "apps/deployments/default/back"
    say(1)
    state = lambda: reported(center, florin).get(key)
    wait_for("the report", lambda: state() == {"status": {"replicas": 1}})
    with offline(florin):
        say(2)
        florin.kill()
        florin.start()
        say(3)
    wait_for("the report", lambda: state() == {"status": {"replicas": 3}}, 90)
    center.api("DELETE", f"/clusters/{SHOP}{path}/back")
    wait_for("its end", lambda: state() is None)


def test_it_can_be_killed_at_any_moment(tmp_path):
    with fleet("guilder", workspace=SHOP, directory=tmp_path) as (center, guilder):
        stop, written = threading.Event(), [0]

        def keep_writing():
            while not stop.is_set():
                n = written[0]
                write(center, f"m{n % 40}", n=str(n), pad="x" * 2000)
                if n % 17 == 16:
                    center.api("DELETE", f"{AT_CENTER}/m{(n - 5) % 40}", expect=(200, 404))
                written[0] += 1

        writer = threading.Thread(target=keep_writing)
        writer.start()
        newest = 0
        try:
            for _ in range(5):
                time.sleep(0.4)
                guilder.kill()
                guilder.start()
                revision = int(guilder.api("GET", MAPS)["metadata"]["resourceVersion"])
                assert revision >= newest
                newest = revision
                wait_for("the link", lambda: shown(guilder)["state"] == "Online")
        finally:
            stop.set()
            join(writer)
        assert written[0] > 20
        in_sync(center, SHOP, guilder, 60)


def test_a_full_disk_holds_it_up_and_loses_nothing(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True, timeout=60).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        with fleet(workspace=SHOP, directory=tmp_path) as (center,):
            edge = Edge(center, disk / "edge", "small", SHOP)
            edge.log_path = tmp_path / "small.log"
            try:
                edge.start().wait_connected()
                write(center, "before")
                in_sync(center, SHOP, edge)
                ballast = disk / "ballast"
                with contextlib.suppress(OSError):
                    with open(ballast, "wb") as f:
                        while True:
                            f.write(b"x" * 65536)
                            f.flush()
                for n in range(12):
                    write(center, f"big{n}", pad="x" * 400_000)
                wait_for("the edge to say so", lambda: "cannot be written" in edge.log_path.read_text(), 30)
                assert edge.api("GET", f"{MAPS}/before"), "reading goes on"
                ballast.unlink()
                in_sync(center, SHOP, edge, 60)
                edge.kill()
                edge.start()
                in_sync(center, SHOP, edge)
            finally:
                edge.kill()
    finally:
        subprocess.run(["umount", str(disk)], check=True, timeout=60)


def test_the_page_says_what_works(shop, tmp_path):
    center, _ = shop
    page = (ROOT / "docs/explanation/edge.md").read_text()
    start, print_, look = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    token = selvedge("join-token", "create", "--kubeconfig", center.kubeconfig, "--name", "page", "--allow-labels", "region").strip()
    tools = Tools(center, tmp_path)

    def here(text):
        for said, meant in ((".data/florin", str(tmp_path / "page")), ("florin", "page"), ("127.0.0.1:6444", "127.0.0.1:0"),
                            ("https://127.0.0.1:6443", center.url), ("selvedge edge", f"{binary()} edge")):
            text = text.replace(said, meant)
        return text

    log = open(tmp_path / "page.log", "wb")
    process = subprocess.Popen(["bash", "-euc", "exec " + here(start)], env={**tools.env, "TOKEN": token}, stdout=log, stderr=log)
    try:
        wait_for("the edge", (tmp_path / "page" / "admin.kubeconfig").exists, 30)
        run = lambda text: subprocess.run(["bash", "-euc", here(text)], env=tools.env, capture_output=True, text=True, timeout=60).stdout  # noqa: E731
        printed = run(print_)
        assert "current-context" in printed and "dataDir" in printed
        wait_for("the link", lambda: "state: Online" in run(look), 30, every=0.5)
        assert center.api("GET", f"{SYNCTARGETS}/page")["metadata"]["labels"]["region"] == "west"
    finally:
        process.terminate()
        assert process.wait(20) == 0, (tmp_path / "page.log").read_text()
