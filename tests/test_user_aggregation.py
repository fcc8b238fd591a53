"""The aggregation layer: an API server that an APIService registers, as kubectl and other clients see it. FlowSchemas, named health checks."""
import base64
import http.client
import json
import pathlib
import ssl
import sys
import threading

import pytest
from aggregated import APISERVICES, AUTHENTICATION, BASE, AggregatedServer, apiservice, available, service
from center import Center, Tools, free_port, join, wait_for
from edge import fleet, make_workspace
from webhook import certificates

WARDLE = "v1alpha1.wardle.example.com"
MERGE = "application/merge-patch+json"
NAMESPACES = "/api/v1/namespaces"
FLUNDERS = f"{BASE}/namespaces/default/flunders"


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("certs"), "api.wardle.svc")


@pytest.fixture(scope="module")
def center(tmp_path_factory):
    center = Center(tmp_path_factory.mktemp("aggregation") / "data", args=["--webhook-allow-address", "127.0.0.1/32"])
    try:
        yield center.start()
        assert center.stop() == 0
    finally:
        center.kill()
    assert "panicked" not in center.log_path.read_text(errors="replace")


@pytest.fixture(scope="module")
def tools(center, tmp_path_factory):
    return Tools(center, tmp_path_factory.mktemp("home"))


def flunder(name):
    return {"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "metadata": {"name": name}, "spec": {"reference": "other"}}


def register(api, server, certs, prefix="", names=(WARDLE,)):
    """A Service that leads to the server, and APIServices for it."""
    api("POST", f"{prefix}{NAMESPACES}", {"metadata": {"name": "wardle"}}, expect=(201, 409))
    api("POST", f"{prefix}{NAMESPACES}/wardle/services", service("api", "wardle", server.port), expect=(201,))
    for name in names:
        api("POST", f"{prefix}{APISERVICES}", apiservice(name, server.port, certs / "ca.crt"), expect=(201,))


def unregister(center, prefix="", names=(WARDLE,)):
    for name in names:
        center.request("DELETE", f"{prefix}{APISERVICES}/{name}")
    center.request("DELETE", f"{prefix}{NAMESPACES}/wardle/services/api")


def passed(api, name=WARDLE, prefix=""):
    wait_for(f"{name} to be available", lambda: available(api, name, prefix)[:2] == ("True", "Passed"))


@pytest.fixture
def wardle(center, certs):
    """The sample server, registered in the root workspace and available."""
    where = center.api("GET", AUTHENTICATION)["data"]
    server = AggregatedServer(certs, where)
    try:
        register(center.api, server, certs)
        passed(center.api)
        yield server
    finally:
        unregister(center)
        server.stop()


def test_every_group_version_has_a_local_apiservice(center, tools):
    groups = center.api("GET", "/apis")["groups"]
    served = {f"{v['version']}.{g['name']}" for g in groups for v in g["versions"]} - {"v1.apiregistration.k8s.io"}
    named = lambda: {o["metadata"]["name"] for o in center.api("GET", APISERVICES)["items"]}
    # They are written one after the other while the server starts.
    wait_for("an APIService for each", lambda: not served - named())
    wait_for("all to be available", lambda: all(available(center.api, name)[0] == "True" for name in served))
    lines = [line.split() for line in tools.kubectl("get", "apiservices").splitlines()]
    assert lines[0] == ["NAME", "SERVICE", "AVAILABLE", "AGE"]
    rows = {line[0]: line[1:3] for line in lines[1:]}
    assert rows["v1."] == rows["v2.autoscaling"] == ["Local", "True"] and "v1.apiregistration.k8s.io" not in rows
    assert served <= set(rows), served - set(rows)
    one = center.api("GET", f"{APISERVICES}/v1.apps")
    assert one["spec"] == {"group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15}
    assert one["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"] == "onstart"
    # What the server serves itself is not given away.
    center.api("PATCH", f"{APISERVICES}/v1.apps", {"spec": {"service": {"name": "x", "namespace": "y", "port": 443}}}, content_type=MERGE)
    wait_for("v1.apps to be local again", lambda: "service" not in center.api("GET", f"{APISERVICES}/v1.apps")["spec"])
    wait_for("v1.apps to be available", lambda: available(center.api, "v1.apps")[:2] == ("True", "Local"))
    # One that is deleted comes back.
    center.api("DELETE", f"{APISERVICES}/v1.batch")
    wait_for("v1.batch", lambda: center.api("GET", f"{APISERVICES}/v1.batch"))


def test_local_apiservices_follow_definitions(center):
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gears.follow.example.com"},
           "spec": {"group": "follow.example.com", "scope": "Namespaced", "names": {"plural": "gears", "kind": "Gear"},
                    "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    center.api("POST", definitions, crd, expect=(201,))
    made = wait_for("an APIService", lambda: center.api("GET", f"{APISERVICES}/v1.follow.example.com"))
    assert made["spec"] == {"group": "follow.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100}
    center.api("DELETE", f"{definitions}/gears.follow.example.com")
    wait_for("it to go", lambda: center.request("GET", f"{APISERVICES}/v1.follow.example.com")[0] == 404)


def test_the_walk_of_upstreams_aggregator_test(center, tools, wardle, certs):
    """test/e2e/apimachinery/aggregator.go, step by step, with kubectl beside the raw requests."""
    made = center.request("POST", FLUNDERS, flunder("rest"))
    assert made[0] == 201
    value = json.loads(made[2])
    assert (value["kind"], value["metadata"]["name"]) == ("Flunder", "rest")
    assert value["metadata"]["annotations"]["made-by"] == "selvedge-admin"
    assert len(center.api("GET", FLUNDERS)["items"]) == 1
    center.api("DELETE", f"{FLUNDERS}/rest")
    assert center.api("GET", FLUNDERS)["items"] == []
    # The remote server hears who asks from the front proxy alone.
    asked = wardle.requests(FLUNDERS)[0]
    assert asked["user"]["name"] == "selvedge-admin" and "system:masters" in asked["user"]["groups"]
    assert "authorization" not in asked["headers"]
    # kubectl finds it by discovery, in every form.
    assert "flunders" in tools.kubectl("api-resources", "--api-group=wardle.example.com")
    assert "wardle.example.com/v1alpha1" in tools.kubectl("api-versions")
    tools.kubectl("create", "-f", "-", stdin=flunder("dynamic"))
    assert "dynamic" in tools.kubectl("get", "fl")
    assert tools.json("get", "flunders", "dynamic")["spec"] == {"reference": "other"}
    assert "Name:         dynamic" in tools.kubectl("describe", "flunder", "dynamic")
    assert "The name of another flunder" in tools.kubectl("explain", "flunders.spec.reference")
    groups = [group["name"] for group in center.api("GET", "/apis")["groups"]]
    assert groups.index("apps") < groups.index("wardle.example.com")
    assert center.api("GET", "/apis/wardle.example.com")["preferredVersion"]["version"] == "v1alpha1"
    assert center.api("GET", BASE)["resources"][0]["name"] == "flunders"
    assert BASE in center.api("GET", "/")["paths"]
    v2 = center.api("GET", "/openapi/v2")
    assert f"{BASE}/namespaces/{{namespace}}/flunders" in v2["paths"] and "com.example.wardle.v1alpha1.Flunder" in v2["definitions"]
    # Its status, its priority, its labels.
    read = center.api("GET", f"{APISERVICES}/{WARDLE}/status")
    assert read["status"]["conditions"][0]["message"] == "all checks passed"
    patched = center.api("PATCH", f"{APISERVICES}/{WARDLE}", {"spec": {"versionPriority": 400}}, content_type=MERGE)
    assert patched["spec"]["versionPriority"] == 400 and int(patched["metadata"]["resourceVersion"]) > int(read["metadata"]["resourceVersion"])
    assert WARDLE in [item["metadata"]["name"] for item in center.api("GET", APISERVICES)["items"]]
    center.api("PATCH", f"{APISERVICES}/{WARDLE}", {"metadata": {"labels": {"e2e-apiservice": "patched"}}}, content_type=MERGE)
    told = center.api("GET", f"{APISERVICES}/{WARDLE}/status")
    told["status"]["conditions"].append({"type": "StatusUpdated", "status": "True", "reason": "E2E", "message": "Set from e2e test"})
    center.api("PUT", f"{APISERVICES}/{WARDLE}/status", told)
    kinds = [c["type"] for c in center.api("GET", f"{APISERVICES}/{WARDLE}/status")["status"]["conditions"]]
    assert kinds == ["Available", "StatusUpdated"]
    # Deleted by its label, the group is gone from everywhere.
    center.api("DELETE", f"{APISERVICES}?labelSelector=e2e-apiservice%3Dpatched")
    assert center.request("GET", FLUNDERS)[0] == 404
    assert "wardle.example.com" not in [group["name"] for group in center.api("GET", "/apis")["groups"]]
    assert center.request("GET", "/apis/wardle.example.com")[0] == 404


def test_watches_stream(center, wardle):
    seen, opened = [], threading.Event()

    def watch():
        conn = center.connection(20)
        conn.request("GET", f"{FLUNDERS}?watch=true")
        reply = conn.getresponse()
        opened.set()
        while len(seen) < 2:
            seen.append(json.loads(reply.readline()))
        conn.close()

    thread = threading.Thread(target=watch)
    thread.start()
    assert opened.wait(10)
    center.api("POST", FLUNDERS, flunder("seen"), expect=(201,))
    wait_for("the first event", lambda: seen, 5)
    assert seen[0]["type"] == "ADDED" and seen[0]["object"]["metadata"]["name"] == "seen"
    center.api("DELETE", f"{FLUNDERS}/seen")
    join(thread, seconds=10)
    assert seen[1]["type"] == "DELETED"


def test_upgraded_connections_pass(center, wardle):
    with center.socket(10) as stream:
        head = (f"POST {FLUNDERS}/x/exec HTTP/1.1\r\nHost: {center.host}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n"
                f"Authorization: Bearer {center.token or ''}\r\nContent-Length: 0\r\n\r\n")
        if not center.token:
            head = head.replace("Authorization: Bearer \r\n", "")
        stream.sendall(head.encode())
        reader = stream.makefile("rb")
        assert b"101" in reader.readline()
        while reader.readline() != b"\r\n":
            pass
        for word in (b"one\n", b"two\n"):
            stream.sendall(word)
            assert reader.readline() == word.upper()


def test_rights_are_asked_for_before_and_credentials_stay_here(center, wardle):
    accounts = f"{NAMESPACES}/default/serviceaccounts"
    center.api("POST", accounts, {"metadata": {"name": "reader"}}, expect=(201, 409))
    token = center.api("POST", f"{accounts}/reader/token", {"spec": {}}, expect=(201,))["status"]["token"]
    as_reader = {"Authorization": f"Bearer {token}"}

    def ask(path, method="GET", headers=as_reader, **kw):
        # Without the admin's certificate, which would count first.
        conn = http.client.HTTPSConnection(center.host, center.port, context=ssl.create_default_context(cafile=str(center.ca)), timeout=20)
        conn.request(method, path, headers={"Accept": "application/json", **headers}, **kw)
        reply = conn.getresponse()
        return reply.status, reply.read()

    before = len(wardle.requests(FLUNDERS))
    code, body = ask(FLUNDERS)
    assert code == 403 and b"flunders" in body and b"wardle.example.com" in body
    # Headers of a front proxy mean nothing from others, and nobody gets further by them.
    assert ask(FLUNDERS, headers={**as_reader, "X-Remote-User": "admin", "X-Remote-Group": "system:masters"})[0] == 403
    assert ask(FLUNDERS, headers={})[0] == 403, "anonymous"
    assert len(wardle.requests(FLUNDERS)) == before, "nothing of it reached the server"
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    center.api("POST", f"{rbac}/roles", {"metadata": {"name": "flunders"}, "rules": [
        {"apiGroups": ["wardle.example.com"], "resources": ["flunders"], "verbs": ["get", "list"]}]}, expect=(201, 409))
    center.api("POST", f"{rbac}/rolebindings", {"metadata": {"name": "flunders"}, "subjects": [
        {"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "flunders"}}, expect=(201, 409))
    wait_for("the right", lambda: ask(FLUNDERS)[0] == 200)
    assert ask(FLUNDERS, "POST", body=json.dumps(flunder("x")))[0] == 403
    ask(FLUNDERS, headers={**as_reader, "X-Remote-User": "admin", "X-Remote-Group": "system:masters", "X-Remote-Extra-Scopes": "all"})
    asked = wardle.requests(FLUNDERS)[-1]
    assert asked["user"]["name"] == "system:serviceaccount:default:reader"
    assert set(asked["user"]["groups"]) == {"system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"}
    assert asked["user"]["uid"] and "scopes" not in asked["user"]["extra"]
    assert token not in json.dumps(asked["headers"])
    # The remote server sees the user whom an administrator impersonates.
    center.request("GET", FLUNDERS, headers={"Impersonate-User": "alice", "Impersonate-Group": "system:masters"})
    asked = wardle.requests(FLUNDERS)[-1]
    assert asked["user"]["name"] == "alice" and not any(name.startswith("impersonate") for name in asked["headers"])


def test_conditions_say_what_is_missing(center, certs):
    """Each reason of upstream's availability controller, and 503 meanwhile."""
    api, home = center.api, f"{NAMESPACES}/wardle"
    api("POST", NAMESPACES, {"metadata": {"name": "wardle"}}, expect=(201, 409))
    where = api("GET", AUTHENTICATION)["data"]
    server = AggregatedServer(certs, where)
    reason = lambda: available(api, WARDLE)[:2]  # noqa: E731
    try:
        api("POST", APISERVICES, apiservice(WARDLE, 443, certs / "ca.crt"), expect=(201,))
        wait_for("ServiceNotFound", lambda: reason() == ("False", "ServiceNotFound"))
        assert available(api, WARDLE)[2] == 'service/api in "wardle" is not present'
        code, headers, body = center.request("GET", FLUNDERS)
        assert (code, body.strip()) == (503, b"service unavailable")
        # It stays in discovery, as something that cannot be asked now.
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        group = [g for g in api("GET", "/apis", accept=accept)["items"] if g["metadata"].get("name") == "wardle.example.com"]
        assert group[0]["versions"][0]["freshness"] == "Stale"
        assert center.request("GET", BASE)[0] == 503
        cluster = {"metadata": {"name": "api"}, "spec": {"ports": [{"port": 80, "name": "web"}]}}
        api("POST", f"{home}/services", cluster, expect=(201,))
        wait_for("ServicePortError", lambda: reason() == ("False", "ServicePortError"))
        api("PATCH", f"{home}/services/api", {"spec": {"ports": [{"port": 443, "name": "https"}]}}, content_type=MERGE)
        wait_for("EndpointsNotFound", lambda: reason() == ("False", "EndpointsNotFound"))
        slice_ = {"metadata": {"name": "api-1", "labels": {"kubernetes.io/service-name": "api"}}, "addressType": "IPv4",
                  "ports": [{"name": "https", "port": server.port}], "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": False}}]}
        api("POST", "/apis/discovery.k8s.io/v1/namespaces/wardle/endpointslices", slice_, expect=(201,))
        wait_for("MissingEndpoints", lambda: reason() == ("False", "MissingEndpoints"))
        # A Service that leads to the server, with a name that its certificate does not have.
        api("DELETE", f"{home}/services/api")
        api("POST", f"{home}/services", service("api", "wardle", server.port), expect=(201,))
        api("PATCH", f"{APISERVICES}/{WARDLE}", {"spec": {"service": {"port": server.port}}}, content_type=MERGE)
        wait_for("Passed", lambda: reason() == ("True", "Passed"))
        assert center.request("GET", FLUNDERS)[0] == 200
        server.failing = True
        api("PATCH", f"{APISERVICES}/{WARDLE}", {"spec": {"versionPriority": 201}}, content_type=MERGE)
        wait_for("FailedDiscoveryCheck", lambda: reason() == ("False", "FailedDiscoveryCheck"))
        assert "bad status from" in available(api, WARDLE)[2]
        server.failing = False
        # Another authority than that of the server's certificate.
        wrong = apiservice(WARDLE, server.port, certs / "self.crt")["spec"]["caBundle"]
        api("PATCH", f"{APISERVICES}/{WARDLE}", {"spec": {"caBundle": wrong}}, content_type=MERGE)
        wait_for("x509", lambda: "x509" in available(api, WARDLE)[2])
        api("PATCH", f"{APISERVICES}/{WARDLE}", {"spec": {"caBundle": None, "insecureSkipTLSVerify": True}}, content_type=MERGE)
        wait_for("Passed", lambda: reason() == ("True", "Passed"))
    finally:
        unregister(center)
        server.stop()


def test_namespaces_are_emptied_of_aggregated_objects(center, wardle):
    api = center.api
    for name in ("emptied", "stuck"):
        api("POST", NAMESPACES, {"metadata": {"name": name}}, expect=(201,))
        api("POST", f"{BASE}/namespaces/{name}/flunders", flunder("left"), expect=(201,))
    api("DELETE", f"{NAMESPACES}/emptied")
    wait_for("the namespace to go", lambda: center.request("GET", f"{NAMESPACES}/emptied")[0] == 404)
    assert list(wardle.flunders.objects) == [("stuck", "left")]
    deletions = [asked for asked in wardle.asked if asked["method"] == "DELETE"]
    assert deletions[-1]["user"]["name"] == "system:serviceaccount:kube-system:namespace-controller"
    # While the API is unavailable, nobody knows what is left.
    api("DELETE", f"{NAMESPACES}/wardle/services/api")
    wait_for("ServiceNotFound", lambda: available(api, WARDLE)[1] == "ServiceNotFound")
    api("DELETE", f"{NAMESPACES}/stuck")

    def failure():
        conditions = api("GET", f"{NAMESPACES}/stuck")["status"].get("conditions", [])
        return [c for c in conditions if c["type"] == "NamespaceDeletionDiscoveryFailure" and c["status"] == "True"]

    found = wait_for("DiscoveryFailed", failure)[0]
    assert found["reason"] == "DiscoveryFailed" and "wardle.example.com/v1alpha1" in found["message"]
    assert center.request("GET", f"{NAMESPACES}/stuck")[0] == 200
    api("DELETE", f"{APISERVICES}/{WARDLE}")
    wait_for("the namespace to go", lambda: center.request("GET", f"{NAMESPACES}/stuck")[0] == 404)


def test_workspaces_have_their_own(center, certs):
    """A tenant's APIService counts in its workspace only, and its server believes nobody else's front proxy."""
    api = center.api
    for name in ("loom", "spindle"):
        make_workspace(center, f"root:{name}")
    loom, spindle = "/clusters/root:loom", "/clusters/root:spindle"
    # Whoever asks for APIServices finds those of what is served there.
    assert "v1.apps" in [item["metadata"]["name"] for item in api("GET", f"{loom}{APISERVICES}")["items"]]
    where = api("GET", f"{loom}{AUTHENTICATION}")["data"]
    assert json.loads(where["requestheader-allowed-names"]) != json.loads(api("GET", AUTHENTICATION)["data"]["requestheader-allowed-names"])
    server = AggregatedServer(certs, where)
    try:
        register(api, server, certs, loom)
        passed(api, prefix=loom)
        assert api("POST", f"{loom}{FLUNDERS}", flunder("here"), expect=(201,))["metadata"]["name"] == "here"
        for other in ("", spindle):
            assert center.request("GET", f"{other}{FLUNDERS}")[0] == 404
            assert "wardle.example.com" not in [group["name"] for group in api("GET", f"{other}/apis")["groups"]]
        # The same server registered by another workspace: it hears a name that it does not believe.
        register(api, server, certs, spindle)
        wait_for("a refusal", lambda: available(api, WARDLE, spindle)[1] == "FailedDiscoveryCheck")
        assert center.request("GET", f"{spindle}{FLUNDERS}")[0] == 503
        assert server.refused and len(server.flunders.objects) == 1
    finally:
        for prefix in (loom, spindle):
            unregister(center, prefix)
        server.stop()


def test_a_workspace_has_a_limited_number_of_remote_apiservices(center, certs):
    make_workspace(center, "root:crowd")
    crowd = "/clusters/root:crowd"
    for n in range(33):
        center.api("POST", f"{crowd}{APISERVICES}", apiservice(f"v1.crowd-{n:02}.example.com", 443, certs / "ca.crt"), expect=(201,))
    wait_for("the last", lambda: available(center.api, "v1.crowd-32.example.com", crowd)[1] == "TooManyAPIServices")
    wait_for("the one before", lambda: available(center.api, "v1.crowd-31.example.com", crowd)[1] == "ServiceNotFound")


def test_tenants_do_not_reach_the_centers_own_addresses(tmp_path, certs):
    """Without --webhook-allow-address an APIService of a tenant leads to no address of this machine, and learns nothing of it."""
    center = Center(tmp_path / "data")
    try:
        center.start()
        make_workspace(center, "root:loom")
        loom = "/clusters/root:loom"
        where = center.api("GET", AUTHENTICATION)["data"]
        server = AggregatedServer(certs, where)
        register(center.api, server, certs, loom)
        status = wait_for("a condition", lambda: available(center.api, WARDLE, loom) if available(center.api, WARDLE, loom)[1] else None)
        assert status[:2] == ("False", "FailedDiscoveryCheck") and "127.0.0.1" not in status[2], status
        assert center.request("GET", f"{loom}{FLUNDERS}")[0] == 503
        assert server.asked == [] and server.refused == []
        server.stop()
    finally:
        center.kill()


def test_kubectl_top_through_a_server_in_a_pod(tmp_path):
    """On an edge: a metrics-server-like Pod behind a Service. Its APIService wins over what the edge serves itself, also from the center."""
    name, port, here = "v1beta1.metrics.k8s.io", free_port(), pathlib.Path(__file__).resolve().parent
    certs = certificates(tmp_path, "api.wardle.svc")
    args = ("--runtime", "process", "--image", f"acme/metrics={sys.executable} {here / 'aggregated.py'}")
    with fleet("florin", directory=tmp_path, args=args) as (center, edge):
        kubectl = Tools(edge, tmp_path / "home").kubectl
        assert "told-node" not in wait_for("top", lambda: kubectl("top", "nodes", "--no-headers"))
        edge.api("POST", NAMESPACES, {"metadata": {"name": "wardle"}}, expect=(201,))
        secret = {key: base64.b64encode((certs / key).read_bytes()).decode() for key in ("tls.crt", "tls.key")}
        edge.api("POST", f"{NAMESPACES}/wardle/secrets", {"metadata": {"name": "certs"}, "data": secret}, expect=(201,))
        edge.api("POST", f"{NAMESPACES}/wardle/configmaps", {"metadata": {"name": "where"}, "data": edge.api("GET", AUTHENTICATION)["data"]},
                 expect=(201,))
        container = {"name": "metrics", "image": "acme/metrics", "ports": [{"containerPort": port}],
                     "env": [{"name": "CERTS", "value": "/certs"}, {"name": "WHERE", "value": "/where"}, {"name": "PORT", "value": str(port)},
                             {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                     "volumeMounts": [{"name": "certs", "mountPath": "/certs"}, {"name": "where", "mountPath": "/where"}]}
        edge.api("POST", f"{NAMESPACES}/wardle/pods", {"metadata": {"name": "metrics", "labels": {"app": "metrics"}}, "spec": {
            "containers": [container], "volumes": [{"name": "certs", "secret": {"secretName": "certs"}},
                                                   {"name": "where", "configMap": {"name": "where"}}]}}, expect=(201,))
        edge.api("POST", f"{NAMESPACES}/wardle/services", {"metadata": {"name": "api"}, "spec": {
            "selector": {"app": "metrics"}, "ports": [{"port": 443, "targetPort": port}]}}, expect=(201,))
        edge.api("POST", APISERVICES, apiservice(name, 443, certs / "ca.crt", priorities=(100, 100)), expect=(201,))
        wait_for("the APIService", lambda: available(edge.api, name)[:2] == ("True", "Passed"), 30)
        assert "told-node" in kubectl("top", "nodes", "--no-headers", "--show-capacity", code=None) or \
            edge.api("GET", "/apis/metrics.k8s.io/v1beta1/nodes")["items"][0]["metadata"]["name"] == "told-node"
        assert "told-pod" in kubectl("top", "pods", "--no-headers") and "123m" in kubectl("top", "pods", "--no-headers")
        box = "/clusters/root:florin-mb"
        told = center.api("GET", f"{box}/apis/metrics.k8s.io/v1beta1/namespaces/default/pods")
        assert told["items"][0]["metadata"]["name"] == "told-pod"
        # Without it the edge answers itself again.
        edge.api("DELETE", f"{APISERVICES}/{name}")
        assert edge.api("GET", "/apis/metrics.k8s.io/v1beta1/nodes")["items"][0]["metadata"]["name"] == "florin"


def test_a_center_on_another_port_says_so(tmp_path):
    """Bug 13: Endpoints and EndpointSlice `kubernetes` kept the port of the first start."""
    center = Center(tmp_path / "data")

    def ports():
        endpoints = center.api("GET", f"{NAMESPACES}/default/endpoints/kubernetes")
        slice_ = center.api("GET", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes")
        assert endpoints["subsets"][0]["addresses"][0]["ip"] == slice_["endpoints"][0]["addresses"][0] == "127.0.0.1"
        service = center.api("GET", f"{NAMESPACES}/default/services/kubernetes")["spec"]["ports"][0]["targetPort"]
        return endpoints["subsets"][0]["ports"][0]["port"], slice_["ports"][0]["port"], service

    try:
        center.start()
        first = center.port
        assert ports() == (first,) * 3
        center.stop()
        center.port = free_port()
        center.start()
        assert center.port != first and ports() == (center.port,) * 3
    finally:
        center.kill()


def test_health_checks_have_names(center):
    def ask(path):
        code, _, body = center.request("GET", path, accept="*/*")
        return code, body.decode()

    wait_for("readiness", lambda: ask("/readyz")[0] == 200)
    for name in ("readyz", "livez", "healthz"):
        code, text = ask(f"/{name}?verbose")
        lines = text.splitlines()
        assert code == 200 and lines[-1] == f"{name} check passed" and all(line.startswith("[+]") for line in lines[:-1]), text
        assert {"[+]ping ok", "[+]log ok", "[+]etcd ok", "[+]store ok", "[+]poststarthook/start-garbage-collector-controller ok"} <= set(lines)
        for line in lines[:-1]:
            check = line.removeprefix("[+]").removesuffix(" ok")
            assert ask(f"/{name}/{check}") == (200, "ok"), check
        assert ask(f"/{name}/nonsense")[0] == 404
        assert ask(f"/{name}") == (200, "ok")
    assert "[+]informer-sync ok" in ask("/readyz?verbose")[1] and "[+]autoregister-completion ok" in ask("/readyz?verbose")[1]
    code, text = ask("/readyz?verbose&exclude=etcd&exclude=poststarthook/start-garbage-collector-controller")
    assert code == 200 and "[+]etcd excluded: ok" in text and "[+]poststarthook/start-garbage-collector-controller excluded: ok" in text
    code, text = ask("/livez?verbose&exclude=nonsense")
    assert code == 200 and 'warn: some health checks cannot be excluded: no matches for "nonsense"' in text


# ---- priority and fairness ----

FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"
SCHEMA_UID, LEVEL_UID = "x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"


def priority_level(name, shares=1):
    return {"metadata": {"name": name}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": shares, "limitResponse": {"type": "Reject"}}}}


def flow_schema(name, level, *users, precedence=1000):
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    return {"metadata": {"name": name}, "spec": {"matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": level},
            "distinguisherMethod": {"type": "ByUser"}, "rules": [{
                "subjects": [{"kind": "User", "user": {"name": user}} for user in users], "resourceRules": [rule],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}]}}


def classified(center, user, path="/api/v1/namespaces", prefix=""):
    """The uids of schema and level that a request of this user counted as."""
    _, headers, _ = center.request("GET", f"{prefix}{path}", headers={"Impersonate-User": user})
    headers = {name.lower(): value for name, value in headers.items()}
    return headers.get(SCHEMA_UID), headers.get(LEVEL_UID)


def dangling(center, name, prefix=""):
    conditions = center.api("GET", f"{prefix}{FLOWS}/flowschemas/{name}").get("status", {}).get("conditions", [])
    return [(c["status"], c["reason"]) for c in conditions if c["type"] == "Dangling"]


def test_mandatory_and_suggested_flow_objects(center):
    levels = {o["metadata"]["name"]: o["spec"] for o in center.api("GET", f"{FLOWS}/prioritylevelconfigurations")["items"]}
    assert {"exempt", "catch-all", "system", "node-high", "leader-election", "workload-high", "workload-low", "global-default"} <= set(levels)
    assert levels["workload-low"]["limited"]["nominalConcurrencyShares"] == 100 and levels["exempt"]["type"] == "Exempt"
    schemas = {o["metadata"]["name"]: o["spec"]["matchingPrecedence"] for o in center.api("GET", f"{FLOWS}/flowschemas")["items"]}
    wanted = {"exempt": 1, "probes": 2, "system-leader-election": 100, "system-node-high": 400, "system-nodes": 500, "kube-controller-manager": 800,
              "kube-scheduler": 800, "kube-system-service-accounts": 900, "service-accounts": 9000, "global-default": 9900, "catch-all": 10000}
    assert wanted.items() <= schemas.items()
    for name in wanted:
        wait_for(name, lambda name=name: dangling(center, name) == [("False", "Found")])
    # What cannot be missing comes back, and comes back as it was.
    center.api("DELETE", f"{FLOWS}/flowschemas/catch-all")
    wait_for("catch-all", lambda: center.request("GET", f"{FLOWS}/flowschemas/catch-all")[0] == 200)
    center.api("PATCH", f"{FLOWS}/prioritylevelconfigurations/system", {"spec": {"limited": {"nominalConcurrencyShares": 7}}}, content_type=MERGE)
    shares = lambda: center.api("GET", f"{FLOWS}/prioritylevelconfigurations/system")["spec"]["limited"]["nominalConcurrencyShares"]  # noqa: E731
    wait_for("its shares", lambda: shares() == 30)
    # Unless its annotation says that the administrator wants it otherwise.
    center.api("PATCH", f"{FLOWS}/prioritylevelconfigurations/system", {
        "metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}},
        "spec": {"limited": {"nominalConcurrencyShares": 8}}}, content_type=MERGE)
    center.api("PATCH", f"{FLOWS}/flowschemas/probes", {"metadata": {"labels": {"looked": "at"}}}, content_type=MERGE)
    assert shares() == 8


def test_requests_are_classified(center):
    """test/e2e/apimachinery/flowcontrol.go: response headers name what a request counted as."""
    level = center.api("POST", f"{FLOWS}/prioritylevelconfigurations", priority_level("e2e-level"), expect=(201,))["metadata"]["uid"]
    schema = center.api("POST", f"{FLOWS}/flowschemas", flow_schema("e2e-schema", "e2e-level", "noxu"), expect=(201,))["metadata"]["uid"]
    wait_for("steady state", lambda: dangling(center, "e2e-schema") == [("False", "Found")])
    assert classified(center, "noxu") == (schema, level)
    uid = lambda resource, name: center.api("GET", f"{FLOWS}/{resource}/{name}")["metadata"]["uid"]  # noqa: E731
    default = uid("flowschemas", "global-default"), uid("prioritylevelconfigurations", "global-default")
    assert classified(center, "foo") == default
    # The lower number is tried first.
    first = center.api("POST", f"{FLOWS}/flowschemas", flow_schema("e2e-first", "e2e-level", "noxu", precedence=900), expect=(201,))["metadata"]["uid"]
    assert classified(center, "noxu") == (first, level)
    assert 'apiserver_flowcontrol_nominal_limit_seats{priority_level="e2e-level"}' in center.request("GET", "/metrics", accept="*/*")[2].decode()
    # Without their level the schemas dangle, and others match.
    center.api("DELETE", f"{FLOWS}/prioritylevelconfigurations/e2e-level")
    wait_for("dangling", lambda: dangling(center, "e2e-schema") == [("True", "NotFound")])
    assert classified(center, "noxu") == default
    for name in ("e2e-schema", "e2e-first"):
        center.api("DELETE", f"{FLOWS}/flowschemas/{name}")


def test_flow_schemas_of_a_workspace_count_there(center):
    make_workspace(center, "root:flows")
    here = "/clusters/root:flows"
    center.api("POST", f"{here}/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
        "metadata": {"name": "noxu"}, "subjects": [{"kind": "User", "name": "noxu", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"}}, expect=(201,))
    assert classified(center, "noxu", prefix=here) == (None, None), "nobody has asked for FlowSchemas there yet"
    names = [o["metadata"]["name"] for o in center.api("GET", f"{here}{FLOWS}/flowschemas")["items"]]
    assert "global-default" in names
    level = center.api("GET", f"{here}{FLOWS}/prioritylevelconfigurations/exempt")["metadata"]["uid"]
    schema = center.api("POST", f"{here}{FLOWS}/flowschemas", flow_schema("mine", "exempt", "noxu"), expect=(201,))["metadata"]["uid"]
    assert classified(center, "noxu", prefix=here) == (schema, level)
    assert classified(center, "noxu")[0] != schema
