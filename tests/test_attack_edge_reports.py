"""A malicious edge is bounded by the center: what it reports, what it forwards, and what others see of it. It speaks the link's protocol by hand, with
the certificate that the edge got when it joined."""
import contextlib
import json
import pathlib
import subprocess

import pytest

from center import Center, Tools, binary, wait_for
from edge import SYNCTARGETS, WORKSPACE, fleet, in_sync, make_workspace, reported, selvedge
from strangers import H2, Link, scaled
from test_mailbox import Kubectl, mailbox
from test_placement import location, merge, placement, stuff, workspace

FORWARD = "/selvedge.link.v1.Link/Forward"
LARGEST = 256 << 10
WMW = "root:wmw"
UPSYNC = [{"apiGroup": "", "resources": ["configmaps"], "namespaces": ["orbital"], "names": ["*"]}]


def credentials(data_dir):
    """The files of an edge's certificate and key."""
    saved = json.loads((pathlib.Path(data_dir) / "edge.json").read_text())
    cert, key = (pathlib.Path(data_dir).with_name(pathlib.Path(data_dir).name + f".{end}") for end in ("crt", "key"))
    cert.write_text(saved["certificate"])
    key.write_text(saved["key"])
    return cert, key


def metric(center, name):
    text = center.request("GET", "/metrics", accept="*/*")[2].decode()
    return int(next(line.split()[-1] for line in text.splitlines() if line.startswith(name)))


def store_size(center):
    return sum(file.stat().st_size for file in (center.data_dir / "store").iterdir())


def whole(name, size=0):
    return {"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "orbital"}, "data": {"x": "x" * size}}}


@pytest.fixture(scope="module")
def placed(tmp_path_factory):
    """florin, on which a Deployment is placed and from which ConfigMaps are asked for; it is gone, and a test speaks in its place."""
    base = tmp_path_factory.mktemp("reports")
    with fleet("florin", workspace=None, directory=base) as (center, florin):
        workspace(center, WMW, "workload")
        merge(center, f"{SYNCTARGETS}/florin", {"metadata": {"labels": {"id": "florin"}}})
        center.api("POST", "/apis/scheduling.kcp.io/v1alpha1/locations", location("florin", env="prod"), expect=(201,))
        at = Kubectl(Tools(center, base / "home"), f"{center.url}/clusters/{WMW}")
        at("apply", "-f", "-", stdin=[*stuff("commonstuff", "common", "commond"), placement("c", {"env": "prod"}, {"common": "si"}, upsync=UPSYNC)])
        wait_for("commond", lambda: florin.api("GET", "/apis/apps/v1/namespaces/commonstuff/deployments/commond"))
        # It works for an honest edge, to begin with.
        florin.api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "orbital"}}, expect=(201,))
        florin.api("POST", "/api/v1/namespaces/orbital/configmaps", {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "honest"}, "data": {"k": "v"}}, expect=(201,))
        wait_for("an honest report", lambda: "core/configmaps/orbital/honest" in reported(center, florin))
        florin.kill()
        yield center, florin, credentials(florin.data_dir)
        assert "panicked" not in center.log_path.read_text(errors="replace")


def refused(center, reason):
    with contextlib.suppress(StopIteration):
        return metric(center, f'selvedge_edge_reports_refused_total{{reason="{reason}"}}')
    return 0


def test_only_what_is_held_or_asked_for_is_kept(placed):
    center, florin, (cert, key) = placed
    before, size = reported(center, florin), store_size(center)
    link = Link(center, cert, key)
    count = scaled(40)
    for n in range(0, count, 10):
        link.report(*((f"core/secrets/invented/{n + i}", {"status": {"x": "x" * 100_000}}) for i in range(10)))
        link.report(*((f"core/pods/invented/{n + i}", whole(f"{n + i}", 100_000)) for i in range(10)))
    link.report(("core/configmaps/commonstuff/never-placed", {"status": {}}), ("edge.selvedge.dev/_held//x", whole("x")))
    assert reported(center, florin) == before
    assert refused(center, "NotHeld") >= 2 * count + 2
    assert store_size(center) - size < 8 << 20, "nothing of it was written"
    # What it shall hold it may report, and what it was asked for.
    deployment = "apps/deployments/commonstuff/commond"
    link.report((deployment, {"status": {"replicas": 7}}), ("core/configmaps/orbital/made", whole("made")))
    found = reported(center, florin)
    assert found[deployment] == {"status": {"replicas": 7}} and found["core/configmaps/orbital/made"] == whole("made")
    # An object that is gone is withdrawn.
    link.report(("core/configmaps/orbital/made", None))
    assert "core/configmaps/orbital/made" not in reported(center, florin)
    says = wait_for("the condition", lambda: florin.condition("ReportsRefused"), 10)
    assert says["status"] == "True" and "neither placed on the edge nor asked for" in says["message"], says
    assert len(says["message"]) < 2000
    written = florin.target()["metadata"]["resourceVersion"]
    already = refused(center, "NotHeld")
    link.report(*((f"core/secrets/invented/{n}", {"status": {}}) for n in range(100)))
    wait_for("them to be refused", lambda: refused(center, "NotHeld") >= already + 100)
    # Reports that are accepted after them are kept, while nothing more is said of the refused ones.
    for replicas in range(10, 20):
        link.report((deployment, {"status": {"replicas": replicas}}))
        assert reported(center, florin)[deployment] == {"status": {"replicas": replicas}}
    assert florin.target()["metadata"]["resourceVersion"] == written, "it is said once"
    link.close()


def test_reports_are_small_and_few(placed):
    center, florin, (cert, key) = placed
    link = Link(center, cert, key)
    large, fits = whole("large", LARGEST), whole("fits", LARGEST - 1000)
    link.report(("core/configmaps/orbital/large", large), ("core/configmaps/orbital/fits", fits))
    assert "core/configmaps/orbital/fits" in reported(center, florin) and "core/configmaps/orbital/large" not in reported(center, florin)
    link.report(("apps/deployments/commonstuff/commond", {"status": {"x": "x" * LARGEST}}))
    assert refused(center, "TooLarge") == 2
    for n in range(0, 1100, 100):
        link.report(*((f"core/configmaps/orbital/m{n + i:04}", whole(f"m{n + i:04}")) for i in range(100)))
    own = [name for name in reported(center, florin) if name.startswith("core/configmaps/orbital/")]
    assert len(own) == 1000, len(own)
    assert refused(center, "TooMany") > 50
    # Looking at its mailbox shows that and no more.
    box = Kubectl(Tools(center, center.data_dir.with_name("home")), center.url + mailbox(center, "florin"))
    shown = box("-n", "orbital", "get", "configmaps", "-o", "name").split()
    assert len(shown) == 1000, len(shown)
    # What was kept may change; when some of it is withdrawn there is room for other objects.
    link.report(("core/configmaps/orbital/m0001", whole("m0001", 5)), ("core/configmaps/orbital/m0002", None), ("core/configmaps/orbital/late", whole("late")))
    found = reported(center, florin)
    assert found["core/configmaps/orbital/m0001"] == whole("m0001", 5) and "core/configmaps/orbital/late" in found
    link.report(*((name, None) for name in found if name.startswith("core/configmaps/orbital/")))
    link.close()


def test_an_honest_edge_goes_on_and_does_not_loop_over_what_is_refused(placed):
    center, florin, _ = placed
    florin.start()
    florin.wait_connected()
    # A status that is larger than any report may be.
    merge(florin, "/apis/apps/v1/namespaces/commonstuff/deployments/commond/status", {"status": {"conditions": [
        {"type": "Large", "status": "True", "message": "x" * 30_000, "reason": f"R{n}"} for n in range(10)]}})
    florin.api("POST", "/api/v1/namespaces/orbital/configmaps", {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "again"}, "data": {"k": "x" * 500}}, expect=(201,))
    wait_for("its report", lambda: "core/configmaps/orbital/again" in reported(center, florin))
    before = metric(center, "selvedge_revision")
    for n in range(20):
        florin.api("POST", "/api/v1/namespaces/orbital/configmaps", {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"fence-{n}"}}, expect=(201,))
        wait_for("its report", lambda: f"core/configmaps/orbital/fence-{n}" in reported(center, florin))
    assert metric(center, "selvedge_revision") - before < 20 + 5, "nothing is written again and again"
    florin.kill()


def test_reports_count_for_the_workspace_of_the_edge(tmp_path):
    center = Center(tmp_path / "data")
    tenancy = "/apis/tenancy.kcp.io/v1alpha1"
    edge = None
    try:
        center.start()
        make_workspace(center, "root:inv", "inventory")
        token = selvedge("join-token", "create", "--kubeconfig", center.kubeconfig, "--workspace", "root:inv", "--name", "florin").strip()
        (tmp_path / "token").write_text(token)
        with open(tmp_path / "log", "wb") as log:
            edge = subprocess.Popen([binary(), "edge", "--data-dir", str(tmp_path / "florin"), "--listen", "127.0.0.1:0", "--center", center.url,
                                     "--token", token, "--name", "florin", "--runtime", "kubelet", "--controllers="], stdout=log, stderr=log)
        target = f"/clusters/root:inv{SYNCTARGETS}/florin"
        wait_for("the edge to join", lambda: center.request("GET", target)[0] == 200 and (tmp_path / "florin/edge.json").exists(), 30)
        for name in ("one", "two", "three"):
            center.api("POST", "/clusters/root:inv/api/v1/namespaces/default/configmaps", {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
        center.api("PATCH", target, {"metadata": {"annotations": {WORKSPACE: "root:inv"}}}, content_type="application/merge-patch+json")
        wait_for("the edge to hold them", lambda: center.api("GET", "/clusters/root:inv/fleet")["edges"][0].get("inSync"), 20)
        edge.kill()
        edge.wait()
        center.api("PATCH", f"{tenancy}/workspacetypes/inventory", {"spec": {"limits": {"bytes": 10 << 20}}}, content_type="application/merge-patch+json")
        used = lambda: metric(center, 'selvedge_workspace_bytes{workspace="root:inv"}')  # noqa: E731
        before = wait_for("the limit", used)
        link = Link(center, *credentials(tmp_path / "florin"))
        report = lambda name, size: link.report((f"core/configmaps/default/{name}", {"status": {"x": "x" * size}}))  # noqa: E731
        report("one", 200_000)
        assert 190_000 < used() - before < 230_000, used() - before
        center.api("PATCH", f"{tenancy}/workspacetypes/inventory", {"spec": {"limits": {"bytes": used() + 100_000}}},
                   content_type="application/merge-patch+json")
        wait_for("the smaller limit", lambda: report("two", 200_000) or refused(center, "NoRoom"), 10, every=0.2)
        report("three", 50_000)
        assert 240_000 < used() - before < 290_000, used() - before
        # They also count when the center starts again, and not any more when the edge is gone.
        link.close()
        center.stop()
        center.start()
        wait_for("the reports to count", lambda: 240_000 < used() - before < 290_000, 20)
        center.api("DELETE", target)
        wait_for("the reports to be gone", lambda: used() - before < 20_000, 20)
    finally:
        if edge:
            edge.kill()
            edge.wait()
        center.kill()


# ---- forwarded writes ----

@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    base = tmp_path_factory.mktemp("forwards")
    with fleet("guilder", directory=base) as (center, guilder):
        for name in ("first", "second"):
            center.api("POST", "/clusters/root:shop/api/v1/namespaces/default/configmaps", {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
        in_sync(center, "root:shop", guilder)
        guilder.kill()
        yield center, guilder, credentials(guilder.data_dir)


def forward(h2, name, number):
    stream = h2.post(FORWARD)
    body = {"id": f"w{number}", "key": f"core/configmaps/default/{name}", "verb": "patch", "patch": {"data": {"a": "2"}},
            "precondition": "0" * 32, "user": {"name": "eve"}}
    h2.body(stream, json.dumps(body).encode(), end=True, seconds=10)
    return stream


def test_refused_writes_make_few_events(shop):
    center, guilder, (cert, key) = shop
    h2 = H2(center, cert, key)
    count = scaled(300)
    for n in range(count):
        stream = forward(h2, ("first", "second")[n % 2], n)
        if n % 50 == 49:
            assert h2.wait(stream) is not None
    wait_for("the answers", lambda: len(h2.status) == count, 30)
    events = center.api("GET", "/clusters/root:shop/api/v1/namespaces/default/events")["items"]
    told = [e for e in events if e["reason"].startswith("OfflineWrite")]
    assert 2 <= len(told) <= 25, len(told)
    assert {e["involvedObject"]["name"] for e in told} == {"first", "second"}
    assert metric(center, "selvedge_edge_events_dropped_total") >= count - len(told)
    h2.close()


@pytest.mark.alone
def test_forwarded_bodies_take_little_memory(shop):
    """One connection with 800 unfinished bodies of 1 MB each: it was 780 MB more. And an edge has a few connections only."""
    center, guilder, (cert, key) = shop
    before, peak, open_ones = center.rss(), [], []
    body = b'{"x":"' + b"x" * 1_000_000
    for _ in range(30):
        try:
            h2 = H2(center, cert, key)
            open_ones.append(h2)
            for _ in range(scaled(80)):
                h2.body(h2.post(FORWARD), body, seconds=0.002)
            peak.append(center.rss())
        except OSError:
            continue
    assert max(peak) < before + (200 << 10), f"{before >> 10} -> {max(peak) >> 10} MiB"
    assert sum(not h2.over for h2 in open_ones) <= 24
    assert center.request("GET", "/readyz", accept="*/*", timeout=5)[0] == 200
    [h2.close() for h2 in open_ones]
    wait_for("the memory to be given back", lambda: center.rss() < before + (60 << 10), 90, every=1)
    # A forward that behaves is answered.
    def answered():
        with contextlib.closing(H2(center, cert, key)) as behaves:
            return behaves.wait(forward(behaves, "first", 1), 5) is not None

    wait_for("an answer", answered, 40)
