"""What users see of their objects and edges: statuses of sources, placements, `selvedge status`, and each tenant's own view of an edge."""
import base64
import calendar
import contextlib
import copy
import http.client
import json
import re
import ssl
import subprocess
import time

import pytest
import yaml
from center import Tools, wait_for
from charts import kiosk
from edge import SYNCTARGETS, fleet, make_workspace, selvedge
from placed import COLLECTORS, COMBINED, LOCATIONS, MERGE, PLACEMENTS, condition, placement
from test_attack_tenancy import Tenant, nobody, own, secret
from test_placement import location

PROCESS = ("--runtime", "process")
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
EDGES = "edge.selvedge.dev/edges"


@pytest.fixture(scope="module")
def bakery(tmp_path_factory):
    """A center and two edges that run Pods; Locations of the site `florin`, `guilder`, and both of the region `north`."""
    base = tmp_path_factory.mktemp("status")
    with fleet("florin", "guilder", workspace=None, directory=base, args=PROCESS) as (center, florin, guilder):
        for edge in (florin, guilder):
            center.api("PATCH", f"{SYNCTARGETS}/{edge.name}", {"metadata": {"labels": {"id": edge.name}}}, content_type=MERGE)
            center.api("POST", LOCATIONS, location(edge.name, site=edge.name, region="north"), expect=(201,))
        yield center, florin, guilder, Tools(center, base / "home")
        for server in (center, florin, guilder):
            assert "panicked" not in server.log_path.read_text(errors="replace")


def place(center, name, where, **spec):
    """A Namespace, and a placement of it."""
    center.api("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": {"of": name}}}, expect=(201,))
    center.api("POST", PLACEMENTS, placement(name, where, {"of": name}, **spec), expect=(201,))


def change(center, path, **spec):
    center.api("PATCH", path, {"spec": spec}, content_type=MERGE)


def web(name, replicas=1, **metadata):
    labels = {"app": name}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, **metadata}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "selvedge.dev/sample/web"}]}}}}


# ---- statuses of sources ----

def test_a_status_that_is_asked_for_later_is_filled_in_and_taken_away(bakery):
    center, florin, *_ = bakery
    place(center, "later", {"site": "florin"}, wantSingletonReportedState=False)
    path = DEPLOYMENTS.format("later")
    center.api("POST", path, web("web"), expect=(201,))
    ready = lambda server: server.api("GET", f"{path}/web").get("status", {}).get("readyReplicas") == 1  # noqa: E731
    wait_for("it at the edge", lambda: florin.request("GET", f"{path}/web")[0] == 200 and ready(florin), 30)
    wait_for("its count", lambda: center.api("GET", f"{path}/web")["metadata"].get("annotations"))
    # A second Deployment of a placement that shows statuses is the fence: what an edge said before it is known.
    place(center, "shown", {"site": "florin"})
    fence = DEPLOYMENTS.format("shown")
    center.api("POST", fence, web("web"), expect=(201,))
    wait_for("the fence", lambda: center.api("GET", f"{fence}/web").get("status", {}).get("readyReplicas") == 1, 30)
    assert not center.api("GET", f"{path}/web").get("status"), "an explicit false shows nothing"
    change(center, f"{PLACEMENTS}/later", wantSingletonReportedState=True)
    wait_for("the status of before", lambda: ready(center), 10)
    change(center, f"{PLACEMENTS}/later", wantSingletonReportedState=False)
    wait_for("no status", lambda: not center.api("GET", f"{path}/web").get("status"), 10)
    # Without the flag, a workload shows what its edge says.
    change(center, f"{PLACEMENTS}/later", wantSingletonReportedState=None)
    wait_for("the status by default", lambda: ready(center), 10)


def test_a_plain_placement_shows_the_status_of_its_workloads(bakery):
    """Without flags, on two edges: counts of both, no other kinds, nobody else's status, and one write for status and annotations."""
    center, florin, guilder, tools = bakery
    place(center, "plain", {"region": "north"})
    path = DEPLOYMENTS.format("plain")
    kubectl = lambda *args, **kw: tools.kubectl("-n", "plain", *args, **kw)  # noqa: E731
    # Somebody else's status is there before any edge says something.
    center.api("POST", path, web("other"), expect=(201,))
    theirs = {"observedGeneration": 1, "replicas": 3, "readyReplicas": 2}
    center.api("PATCH", f"{path}/other/status?fieldManager=their-controller", {"status": theirs}, content_type=MERGE)
    center.api("POST", "/api/v1/namespaces/plain/services", {"metadata": {"name": "front"}, "spec": {"ports": [{"port": 80}]}}, expect=(201,))
    kubectl("create", "deployment", "web", "--image=selvedge.dev/sample/web")
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    assert kubectl("get", "deployment", "web").splitlines()[1].split()[1] == "1/1"
    for edge in (florin, guilder):
        assert edge.api("GET", f"{path}/web")["status"]["readyReplicas"] == 1, edge.name
    made = wait_for("both", lambda: (now := center.api("GET", f"{path}/web"))["metadata"]["annotations"].get(EDGES) == "2 of 2 ready" and now)
    assert made["metadata"]["generation"] == 1 and made["status"]["observedGeneration"] == 1
    assert not condition(center.api("GET", f"{PLACEMENTS}/plain")["status"], "StatusNotShown")
    # Both edges have the other one too, and what its own controller says stays.
    for edge in (florin, guilder):
        wait_for("the other", lambda e=edge: e.api("GET", f"{path}/other").get("status", {}).get("readyReplicas") == 1, 30)
    kubectl("create", "deployment", "fence", "--image=selvedge.dev/sample/web")
    kubectl("rollout", "status", "deployment/fence", "--timeout=30s")
    said = center.api("GET", f"{path}/other")
    assert said["status"] == theirs and EDGES not in said["metadata"].get("annotations", {}), said
    # Status and annotations are one write each time.
    query = f"?watch=true&timeoutSeconds=1&resourceVersion={center.api('GET', f'{path}/fence')['metadata']['resourceVersion']}"
    kubectl("scale", "deployment/fence", "--replicas=2")
    kubectl("rollout", "status", "deployment/fence", "--timeout=30s")
    _, _, told = center.request("GET", f"{path}{query}&fieldSelector=metadata.name=fence")
    events = [json.loads(line)["object"] for line in told.splitlines()]
    for before, after in zip(events, events[1:]):
        changed = before["metadata"]["annotations"].get(EDGES) != after["metadata"]["annotations"].get(EDGES)
        assert not changed or before.get("status") != after.get("status"), "annotations had a write of their own"
    # An explicit false takes it away, on several edges that of the flag for several.
    change(center, f"{PLACEMENTS}/plain", wantMultiWECReportedState=False)
    wait_for("no status", lambda: not center.api("GET", f"{path}/web").get("status"), 10)
    assert EDGES not in center.api("GET", f"{path}/web")["metadata"]["annotations"]
    assert center.api("GET", f"{path}/other")["status"] == theirs
    # One edge's status is asked for, and there are two: that of both is shown for workloads, and of Services none.
    change(center, f"{PLACEMENTS}/plain", wantMultiWECReportedState=None, wantSingletonReportedState=True)
    wait_for("it again", lambda: center.api("GET", f"{path}/web").get("status", {}).get("readyReplicas") == 1, 10)
    why = wait_for("why", lambda: condition(center.api("GET", f"{PLACEMENTS}/plain")["status"], "StatusNotShown"))
    assert why["reason"] == "SeveralEdges" and "only workloads" in why["message"], why
    center.api("DELETE", "/api/v1/namespaces/plain/services/front")
    gone = lambda: condition(center.api("GET", f"{PLACEMENTS}/plain")["status"], "StatusNotShown")  # noqa: E731
    wait_for("nothing that is not shown", lambda: gone()["status"] == "False", 10)
    center.api("DELETE", f"{PLACEMENTS}/plain")


def test_a_deployment_on_two_edges_can_be_waited_for(bakery):
    center, florin, guilder, tools = bakery
    place(center, "two", {"region": "north"}, wantMultiWECReportedState=True)
    kubectl = lambda *args, **kw: tools.kubectl("-n", "two", *args, **kw)  # noqa: E731
    kubectl("create", "deployment", "plain", "--image=selvedge.dev/sample/web")
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/plain", "--timeout=30s")
    kubectl("wait", "--for=condition=Available", "deployment/plain", "--timeout=10s")
    assert kubectl("get", "deployment", "plain").splitlines()[1].split()[1] == "1/1"
    for edge in (florin, guilder):
        assert edge.api("GET", DEPLOYMENTS.format("two") + "/plain")["status"]["readyReplicas"] == 1, edge.name
    wait_for("both", lambda: tools.json("-n", "two", "get", "deployment", "plain")["metadata"]["annotations"].get(EDGES) == "2 of 2 ready")
    made = tools.json("-n", "two", "get", "deployment", "plain")
    assert made["metadata"]["generation"] == 1, "what the center counts is no change of what is wanted"
    assert made["status"]["observedGeneration"] == 1
    assert EDGES not in guilder.api("GET", DEPLOYMENTS.format("two") + "/plain")["metadata"]["annotations"]
    kubectl("scale", "deployment/plain", "--replicas=2")
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/plain", "--timeout=30s")
    assert kubectl("get", "deployment", "plain").splitlines()[1].split()[1] == "2/2"
    # An image that cannot run: nobody is told that it does.
    kubectl("set", "image", "deployment/plain", "web=selvedge.dev/sample/nonsense")
    assert "timed out" in kubectl("rollout", "status", "deployment/plain", "--timeout=2s", code=1)
    # The status of one edge is asked for, and there are two: with an explicit false for several there is none.
    change(center, f"{PLACEMENTS}/two", wantMultiWECReportedState=False, wantSingletonReportedState=True)
    wait_for("nobody's", lambda: not tools.json("-n", "two", "get", "deployment", "plain").get("status"))
    assert EDGES not in tools.json("-n", "two", "get", "deployment", "plain")["metadata"]["annotations"]
    said = wait_for("why", lambda: condition(center.api("GET", f"{PLACEMENTS}/two")["status"], "StatusNotShown"))
    assert said["status"] == "True" and "wantMultiWECReportedState" in said["message"]
    center.api("DELETE", f"{PLACEMENTS}/two")


def test_other_workloads_on_two_edges_can_be_waited_for(bakery):
    center, *_, tools = bakery
    place(center, "kinds", {"region": "north"}, wantMultiWECReportedState=True)
    template = lambda name: {"metadata": {"labels": {"app": name}},  # noqa: E731
                             "spec": {"containers": [{"name": "c", "image": "selvedge.dev/sample/web"}]}}
    selector = lambda name: {"matchLabels": {"app": name}}  # noqa: E731
    for kind, name, spec in (("StatefulSet", "set", {"serviceName": "set", "replicas": 1}), ("DaemonSet", "daemon", {})):
        center.api("POST", f"/apis/apps/v1/namespaces/kinds/{kind.lower()}s", {
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
            "spec": {**spec, "selector": selector(name), "template": template(name)}}, expect=(201,))
    for name in ("statefulset/set", "daemonset/daemon"):
        tools.kubectl("-n", "kinds", "rollout", "status", name, "--timeout=30s")
    assert tools.kubectl("-n", "kinds", "get", "statefulset", "set").splitlines()[1].split()[1] == "1/1"
    assert tools.json("-n", "kinds", "get", "daemonset", "daemon")["status"]["numberReady"] == 2, "one node on each of two edges"
    job = lambda name, command: {"apiVersion": "batch/v1", "kind": "Job", "metadata": {  # noqa: E731
        "name": name, "annotations": {"edge.kcp.io/expand-parameters": "true"}}, "spec": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "selvedge.dev/sample/web", "command": command}]}}}}
    jobs = "/apis/batch/v1/namespaces/kinds/jobs"
    center.api("POST", jobs, job("good", ["true"]), expect=(201,))
    center.api("POST", jobs, job("half", ["sh", "-c", "test %(site) = florin"]), expect=(201,))
    tools.kubectl("-n", "kinds", "wait", "--for=condition=Complete", "job/good", "--timeout=30s")
    tools.kubectl("-n", "kinds", "wait", "--for=condition=Failed", "job/half", "--timeout=30s")
    said = condition(center.api("GET", f"{jobs}/half")["status"], "Failed")
    assert "guilder" in said["message"] and not condition(center.api("GET", f"{jobs}/half")["status"], "Complete"), said
    center.api("DELETE", f"{PLACEMENTS}/kinds")


HOOK = """
apiVersion: batch/v1
kind: Job
metadata:
  name: HOOK
  annotations: {helm.sh/hook: "HOOK", edge.kcp.io/expand-parameters: "true"}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: selvedge.dev/sample/web, command: [sh, -c, "{{ .Values.hook | default "true" }}"]}]
"""
TEST = """
apiVersion: v1
kind: Pod
metadata:
  name: try-kiosk
  annotations: {helm.sh/hook: test, edge.kcp.io/expand-parameters: "true"}
spec:
  restartPolicy: Never
  containers: [{name: c, image: selvedge.dev/sample/web, command: [sh, -c, "{{ .Values.test | default "true" }}"]}]
"""


def test_helm_waits_for_two_edges(bakery, tmp_path):
    """install --wait, hooks before and after it, upgrade, helm test, and a hook that fails on one of two edges."""
    center, florin, guilder, tools = bakery
    place(center, "charts", {"region": "north"}, wantMultiWECReportedState=True)
    hooks = {hook: HOOK.replace("HOOK", hook) for hook in ("pre-install", "post-install", "post-upgrade")}
    chart = kiosk(tmp_path, test=TEST, **hooks)
    helm = lambda *args, **kw: tools.helm(*args, "-n", "charts", timeout=110, **kw)  # noqa: E731
    assert "STATUS: deployed" in helm("install", "kiosk", chart, "--wait", "--timeout", "40s")
    for edge in (florin, guilder):
        assert edge.api("GET", DEPLOYMENTS.format("charts") + "/kiosk")["status"]["readyReplicas"] == 1, edge.name
        done = edge.api("GET", "/apis/batch/v1/namespaces/charts/jobs")["items"]
        done = {job["metadata"]["name"] for job in done if condition(job["status"], "Complete").get("status") == "True"}
        assert done == {"pre-install", "post-install"}, (edge.name, done)
    assert "Succeeded" in helm("test", "kiosk", "--timeout", "40s")
    for edge in (florin, guilder):
        assert edge.api("GET", "/api/v1/namespaces/charts/pods/try-kiosk")["status"]["phase"] == "Succeeded", edge.name
    assert "STATUS: deployed" in helm("upgrade", "kiosk", chart, "--wait", "--timeout", "40s", "--set", "note=b")
    # A hook that fails on one edge has failed.
    begun = time.monotonic()
    said = helm("upgrade", "kiosk", chart, "--timeout", "40s", "--set", "hook=test %(site) = florin", code=1)
    assert "timed out" not in said and time.monotonic() - begun < 30, said
    helm("uninstall", "kiosk", "--wait", "--timeout", "40s")


# ---- what placements say ----

def test_a_placement_that_lost_a_conflict_is_not_ready(bakery):
    """Bug 10: it said Ready beside Conflict."""
    center, *_ = bakery
    for name in ("first", "second"):
        make_workspace(center, f"root:{name}", "workload")
        at = f"/clusters/root:{name}"
        center.api("POST", f"{at}/api/v1/namespaces", {"metadata": {"name": "same", "labels": {"of": "same"}}}, expect=(201,))
        center.api("POST", f"{at}{PLACEMENTS}", placement("same", {"site": "florin"}, {"of": "same"}), expect=(201,))
        status = lambda kind, at=at: condition(center.api("GET", f"{at}{PLACEMENTS}/same").get("status", {}), kind)  # noqa: E731
        if name == "first":
            wait_for("the first", lambda: status("Ready").get("status") == "True")
    wait_for("the conflict", lambda: status("Conflict").get("status") == "True")
    wait_for("nothing that is said beside it", lambda: status("Ready").get("reason") == "Conflict")
    assert status("Ready")["status"] == "False"


def test_a_rollout_that_was_just_switched_on_is_not_complete(bakery):
    """A6: for a second it said `Complete 0/4 ready, 4 unavailable`."""
    center, *_ = bakery
    place(center, "rolling", {"region": "north"})
    path = f"{PLACEMENTS}/rolling"
    wait_for("it on both", lambda: center.api("GET", path).get("status", {}).get("inSync") == 2)
    version = center.api("GET", path)["metadata"]["resourceVersion"]
    change(center, path, rollout={"batch": 1})
    complete = lambda one: one.get("status", {}).get("rollout", {}).get("phase") == "Complete"  # noqa: E731
    wait_for("its end", lambda: complete(center.api("GET", path)))
    query = f"?watch=true&timeoutSeconds=1&resourceVersion={version}&fieldSelector=metadata.name=rolling"
    _, _, said = center.request("GET", PLACEMENTS + query)
    events = [json.loads(line)["object"] for line in said.splitlines()]
    told = [one["status"]["rollout"] for one in events if "rollout" in one.get("status", {})]
    assert told and all(one["ready"] == one["total"] == 2 for one in told if one["phase"] == "Complete"), told


def test_a_summary_says_that_rows_were_cut_off(bakery):
    """A10: `select` with a limit listed as many rows as it had room for, and nothing said so."""
    center, *_ = bakery
    place(center, "many", {"site": "florin"})
    for n in range(5):
        center.api("POST", "/api/v1/namespaces/many/configmaps", {"metadata": {"name": f"m{n}"}}, expect=(201,))
    center.api("POST", COLLECTORS, {"apiVersion": "edge.selvedge.dev/v1alpha1", "kind": "StatusCollector", "metadata": {"name": "few"}, "spec": {
        "placement": "many", "resource": {"apiGroup": "", "resource": "configmaps"}, "names": [f"m{n}" for n in range(5)], "limit": 2,
        "select": [{"name": "n", "def": "obj.metadata.name"}]}}, expect=(201,))
    said = lambda: json.loads(center.request("GET", f"{COMBINED}/few")[2]).get("summary", {})  # noqa: E731
    wait_for("all of them", lambda: said().get("selected") == 5)
    assert len(center.api("GET", f"{COMBINED}/few")["results"]) == 2
    assert said()["cutOff"] == 3 and "3 of 5 results not listed" in said()["message"], said()
    center.api("PATCH", f"{COLLECTORS}/few", {"spec": {"limit": 10}}, content_type=MERGE)
    wait_for("nothing cut off", lambda: said().get("cutOff") == 0 and "not listed" not in said()["message"])


# ---- `selvedge status` ----

@pytest.fixture(scope="module")
def depot(tmp_path_factory):
    """A center and an edge on which nothing runs; the Namespace `site` is placed there."""
    with fleet("florin", workspace=None, directory=tmp_path_factory.mktemp("depot")) as (center, florin):
        center.api("PATCH", f"{SYNCTARGETS}/florin", {"metadata": {"labels": {"id": "florin"}}}, content_type=MERGE)
        center.api("POST", LOCATIONS, location("florin", site="florin"), expect=(201,))
        place(center, "site", {"site": "florin"})
        wait_for("it there", lambda: center.api("GET", f"{PLACEMENTS}/site").get("status", {}).get("inSync") == 1)
        yield center, florin, Tools(center, florin.data_dir / "home")


def test_status_against_an_edge_says_so(depot):
    """UX 5: it said `the server answered 404`."""
    _, florin, _ = depot
    said = selvedge("status", "--kubeconfig", florin.kubeconfig, code=1)
    assert "is an edge's own API" in said and "the center's kubeconfig" in said and "404" not in said, said


def test_the_mailbox_of_an_edge_is_found_by_its_name(depot):
    """UX 4: names of mailboxes were opaque."""
    center, florin, tools = depot
    path = selvedge("mailbox", "florin", "--kubeconfig", center.kubeconfig).strip()
    assert path.startswith("root:espw:") and path in tools.kubectl("get", "synctargets")
    server = selvedge("mailbox", "florin", "-o", "server", "--kubeconfig", center.kubeconfig).strip()
    assert "site" in tools.kubectl("--server", server, "get", "namespaces")
    config = florin.data_dir / "mailbox.kubeconfig"
    config.write_text(selvedge("mailbox", "florin", "--live", "-o", "kubeconfig", "--kubeconfig", center.kubeconfig))
    assert "site" in tools.kubectl("--kubeconfig", config, "get", "namespaces")


def test_deletions_that_are_held_are_still_held_objects(depot):
    """UX 3: `HOLDS 0 objects` while 17 were held back."""
    center, florin, _ = depot
    for n in range(16):
        center.api("POST", "/api/v1/namespaces/site/configmaps", {"metadata": {"name": f"m{n}"}}, expect=(201,))
    has = lambda: florin.request("GET", "/api/v1/namespaces/site/configmaps/m15")[0] == 200  # noqa: E731
    wait_for("all of it", has)
    row = lambda: selvedge("status", "--kubeconfig", center.kubeconfig).splitlines()[1]  # noqa: E731
    wait_for("in sync", lambda: "in sync" in row())
    holds = lambda: int(re.search(r"(\d+) objects$", row().strip())[1])  # noqa: E731
    before = holds()
    center.api("DELETE", f"{PLACEMENTS}/site")
    wait_for("the fuse", lambda: "deletions held" in row())
    # Its SyncerConfig is no user's object, and goes unasked.
    assert has() and before - 1 <= holds() <= before and before > 16, (before, row())


def test_status_after_a_crash_of_the_center(depot):
    """Bug 14: edges that were connected until then were `offline` since they had come."""
    center, florin, _ = depot
    shown = lambda: json.loads(selvedge("status", "--kubeconfig", center.kubeconfig, "-o", "json"))["edges"][0]  # noqa: E731
    wait_for("a while", lambda: shown()["state"] == "connected")
    came = calendar.timegm(time.strptime(shown()["since"], "%Y-%m-%dT%H:%M:%SZ"))
    wait_for("two seconds since it came", lambda: time.time() > came + 2)
    florin.kill()
    center.kill()
    center.start()
    edge = shown()
    since = calendar.timegm(time.strptime(edge["since"], "%Y-%m-%dT%H:%M:%SZ"))
    assert edge["state"] == "offline" and edge["heard"] is None and since >= came + 2, (edge, came)


def test_a_kind_that_is_not_served_names_the_type_that_has_it(bakery):
    """UX 5: it suggested the type that the workspace already had."""
    center, *_ = bakery
    make_workspace(center, "root:maker", "workload")
    status, _, said = center.request("GET", f"/clusters/root:maker{LOCATIONS}")
    said = json.loads(said)["message"]
    assert status == 404 and "type inventory" in said and "workload, " not in said and "type workload" not in said, said


# ---- a tenant's own part of an edge ----

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
AT = "/edges/root:florin"


class Citizen(Tenant):
    """A user with a certificate of their own, in a workspace."""

    def __init__(self, center, user, path, directory):
        super().__init__(center, user, path)
        self.key, self.crt = directory / f"{user}.key", directory / f"{user}.crt"
        if not self.crt.exists():
            self._ask_for_certificate(directory / f"{user}.csr")
        self.server = copy.copy(center)
        self.server._tls, self.server.token = ssl.create_default_context(cafile=str(center.ca)), None
        self.server._tls.load_cert_chain(str(self.crt), str(self.key))

    def _ask_for_certificate(self, csr):
        subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key, "-out", csr,
                        "-subj", f"/CN={self.user}"], check=True, capture_output=True, timeout=60)
        made = self.center.api("POST", REQUESTS, {
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": self.user}, "spec": {
                "request": base64.b64encode(csr.read_bytes()).decode(), "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}})
        made["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "Test", "message": ""}]}
        self.center.api("PUT", f"{REQUESTS}/{self.user}/approval", made)
        pem = wait_for("the certificate", lambda: self.center.api("GET", f"{REQUESTS}/{self.user}").get("status", {}).get("certificate"))
        self.crt.write_bytes(base64.b64decode(pem))

    def raw(self, method, path, body=None, **kw):
        status, _, said = self.server.request(method, f"/clusters/{self.path}{path}", body, **kw)
        return status, said

    def ask(self, method, path, body=None, headers=None, **kw):
        status, said = self.raw(method, path, body, headers=headers, **kw)
        return status, json.loads(said)

    @contextlib.contextmanager
    def open(self, path):
        """An answer that is read as it comes."""
        with contextlib.closing(self.server.connection(20)) as connection:
            connection.request("GET", f"/clusters/{self.path}{path}", headers={"Accept": "application/json"})
            yield connection.getresponse()

    def kubeconfig(self, to, path):
        data = lambda file: base64.b64encode(file.read_bytes()).decode()  # noqa: E731
        to.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"{self.center.url}{path}", "certificate-authority-data": data(self.center.ca)}}],
            "users": [{"name": "u", "user": {"client-certificate-data": data(self.crt), "client-key-data": data(self.key)}}]}))


def may(center, path, user, namespace, role):
    """A RoleBinding in a namespace of a workspace. It is placed with the namespace."""
    center.api("POST", f"/clusters/{path}{RBAC}/namespaces/{namespace}/rolebindings", {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": f"{user}-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]}, expect=(201,))


def script(name, command):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [
        {"name": "c", "image": "selvedge.dev/sample/web", "command": ["sh", "-c", command]}]}}


@pytest.fixture(scope="module")
def tenants(bakery, tmp_path_factory):
    """alice has everything in root:bread, bob everything in root:clinic; both have Pods on florin. carol may only read in alice's namespace."""
    center, florin, _, _ = bakery
    directory = tmp_path_factory.mktemp("people")
    users = {}
    for user, path, namespace in (("alice", "root:bread", "ovens"), ("bob", "root:clinic", "beds")):
        make_workspace(center, path, "workload")
        own(center, user, path)
        users[user] = Citizen(center, user, path, directory)
        users[user].namespace(namespace)
        users[user].do("POST", f"/api/v1/namespaces/{namespace}/secrets", secret("key", pin=f"pin of {user}"))
        may(center, path, user, namespace, "admin")
        wait_for("the account", lambda u=user, n=namespace: users[u].ask(
            "POST", f"/api/v1/namespaces/{n}/pods", script("web", f"echo I am {u}; sleep 1000"))[0] in (201, 409))
        users[user].place(namespace, {"site": "florin"})
    users["carol"] = Citizen(center, "carol", "root:bread", directory)
    may(center, "root:bread", "carol", "ovens", "view")
    center.api("POST", f"/clusters/root:bread{RBAC}/clusterroles", {
        "metadata": {"name": "enter"}, "rules": [{"verbs": ["access"], "nonResourceURLs": ["/"]}]}, expect=(201,))
    center.api("POST", f"/clusters/root:bread{RBAC}/clusterrolebindings", {
        "metadata": {"name": "carol-enters"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "enter"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "carol"}]}, expect=(201,))
    for namespace in ("ovens", "beds"):
        wait_for(f"the Pod in {namespace}", lambda n=namespace: florin.request("GET", f"/api/v1/namespaces/{n}/pods/web")[0] == 200
                 and florin.api("GET", f"/api/v1/namespaces/{n}/pods/web")["status"].get("phase") == "Running", 30)
        wait_for("its roles", lambda n=namespace: florin.api("GET", f"{RBAC}/namespaces/{n}/rolebindings")["items"])
    return center, florin, users


def test_a_tenant_sees_its_own_part_of_an_edge(tenants):
    center, florin, users = tenants
    alice, bob, carol = users["alice"], users["bob"], users["carol"]
    for user, namespace in ((alice, "ovens"), (bob, "beds")):
        listed = user.do("GET", "/edges")["edges"]
        assert [(one["edge"], one["namespaces"]) for one in listed] == [("root:florin", [namespace])], listed
        pods = user.do("GET", f"{AT}/api/v1/namespaces/{namespace}/pods")["items"]
        assert [pod["metadata"]["name"] for pod in pods] == ["web"] and pods[0]["status"]["phase"] == "Running"
        log = wait_for("its log", lambda u=user, n=namespace: u.raw("GET", f"{AT}/api/v1/namespaces/{n}/pods/web/log")[1])
        assert log.decode().strip() == f"I am {user.user}"
        assert user.do("GET", f"{AT}/api/v1/namespaces/{namespace}")["metadata"]["name"] == namespace
        assert user.do("GET", f"{AT}/api/v1/namespaces/{namespace}/secrets/key")
    # A reader of the namespace reads, and no more.
    assert carol.do("GET", f"{AT}/api/v1/namespaces/ovens/pods/web")
    assert carol.raw("GET", f"{AT}/api/v1/namespaces/ovens/pods/web/log")[0] == 200
    for method, path in (("GET", "secrets/key"), ("POST", "pods/web/exec?command=id&stdout=true")):
        status, said = carol.ask(method, f"{AT}/api/v1/namespaces/ovens/{path}")
        assert status == 403, (path, status, said)


def test_a_tenant_uses_kubectl_for_its_own_part(tenants, tmp_path):
    center, florin, users = tenants
    alice = users["alice"]
    config = tmp_path / "alice"
    alice.kubeconfig(config, f"/clusters/{alice.path}")
    server = selvedge("mailbox", "root:florin", "--own", "-o", "server", "--kubeconfig", config).strip()
    assert server == f"{center.url}/clusters/root:bread{AT}"
    alice.kubeconfig(config, f"/clusters/root:bread{AT}")
    tools = Tools(center, tmp_path / "home")
    kubectl = lambda *args, **kw: tools.kubectl("--kubeconfig", config, *args, **kw)  # noqa: E731
    assert "Running" in kubectl("-n", "ovens", "get", "pods")
    assert "I am alice" in kubectl("-n", "ovens", "logs", "web")
    assert "hello" in kubectl("-n", "ovens", "exec", "web", "--", "echo", "hello")
    assert "name one with -n" in kubectl("get", "pods", "-A", code=1)


def test_neither_tenant_sees_the_others_part(tenants):
    center, florin, users = tenants
    bob, carol = users["bob"], users["carol"]
    # Everything that bob asks for about alice, through his own workspace and through hers.
    paths = ["api/v1/namespaces/ovens", "api/v1/namespaces/ovens/pods", "api/v1/namespaces/ovens/pods/web", "api/v1/namespaces/ovens/pods/web/log",
             "api/v1/namespaces/ovens/secrets/key", "api/v1/namespaces/ovens/pods?watch=true", "api/v1/watch/namespaces/ovens/pods",
             "apis/metrics.k8s.io/v1beta1/namespaces/ovens/pods", "api/v1/namespaces", "api/v1/pods", "api/v1/secrets", "api/v1/nodes",
             "api/v1/pods?fieldSelector=metadata.namespace=ovens", "apis/edge.kcp.io/v1alpha1/syncerconfigs", "metrics", "api/v1/events",
             "api/v1/namespaces/beds%2f..%2fovens/pods", "api/v1/namespaces/beds/../ovens/pods", "api/v1/namespaces/default/pods",
             "api/v1/namespaces/kube-system/secrets", "clusters/root:bread/api/v1/namespaces/ovens/pods"]
    for door in (bob, Citizen(center, "bob", "root:bread", bob.key.parent)):
        for path in paths:
            status, said = door.raw("GET", f"{AT}/{path}")
            assert status in (400, 403, 404), (door.path, path, status, said[:300])
            assert b"alice" not in said and b"pin of" not in said, (path, said[:300])
        status, said = door.raw("POST", f"{AT}/api/v1/namespaces/ovens/pods/web/exec?command=id&stdout=true")
        assert status in (403, 404), (status, said[:300])
    # Upsync shows bob nothing of hers either.
    bob.do("PATCH", f"{PLACEMENTS}/beds", {"spec": {"upsync": [{"apiGroup": "", "resources": ["*"], "namespaces": ["*"], "names": ["*"]}]}},
           content_type=MERGE)
    status, said = bob.raw("GET", f"{AT}/api/v1/namespaces/ovens/pods")
    assert status == 404, (status, said)
    # Nothing is written through this door, nor in a name that somebody took in one workspace only, nor without a name.
    for method, path, body in (("POST", "pods", script("spy", "true")), ("DELETE", "pods/web", None), ("PATCH", "pods/web", {}),
                               ("POST", "pods/web/eviction", {}), ("POST", "serviceaccounts/default/token", {})):
        status, said = bob.raw(method, f"{AT}/api/v1/namespaces/beds/{path}", body, content_type=MERGE if method == "PATCH" else "application/json")
        assert status in (403, 405), (method, path, status, said[:300])
    status, said = bob.raw("GET", f"{AT}/api/v1/namespaces/beds/pods", headers={"Impersonate-User": "alice"})
    assert status == 403, (status, said)
    for path in (f"{AT}/api", f"{AT}/api/v1/namespaces/beds/pods", "/edges"):
        status, _, said = nobody(center).request("GET", f"/clusters/root:clinic{path}")
        assert status in (401, 403), (path, status, said)
    status, said = carol.raw("GET", "/edges")
    assert status == 403, (status, said)
    # An edge on which a workspace has nothing is none, whether it is there or not.
    there, none = (bob.raw("GET", f"/edges/root:{name}/api/v1/namespaces/beds/pods") for name in ("guilder", "nowhere"))
    assert there[0] == none[0] == 404 and there[1].replace(b"guilder", b"nowhere") == none[1]


def test_what_is_open_ends_when_the_namespace_changes_hands(tenants):
    center, florin, users = tenants
    alice, bob = users["alice"], users["bob"]
    alice.namespace("shared", of="shared")
    may(center, alice.path, "alice", "shared", "admin")
    alice.place("shared", {"site": "florin"})
    wait_for("it there", lambda: alice.raw("GET", f"{AT}/api/v1/namespaces/shared/configmaps")[0] == 200)
    bob.namespace("shared", of="shared")
    bob.place("shared", {"site": "florin"})
    wait_for("the conflict", lambda: bob.conflict("shared"))
    assert bob.raw("GET", f"{AT}/api/v1/namespaces/shared/configmaps")[0] == 404
    with alice.open(f"{AT}/api/v1/namespaces/shared/configmaps?watch=true") as watch:
        assert watch.status == 200
        alice.do("DELETE", f"{PLACEMENTS}/shared")
        begun = time.monotonic()
        with contextlib.suppress(OSError, http.client.HTTPException):
            assert b"bob" not in watch.read()
        assert time.monotonic() - begun < 10, "it stayed open"
    assert alice.raw("GET", f"{AT}/api/v1/namespaces/shared/configmaps")[0] == 404
