"""Admission: webhooks over TLS written in Python and with kube-rs, and what the server itself does to writes."""
import json
import socket
import time

import pytest

from center import free_port, running, wait_for, Tools
from webhook import RustWebhook, Webhook, bundle, certificates, patch


@pytest.fixture(scope="module")
def center(tmp_path_factory):
    with running("sqlite") as center:
        yield center


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("certs"), "127.0.0.1", "localhost", "hook.hooks.svc")


@pytest.fixture(scope="module")
def hook(certs):
    hook = Webhook(certs)
    yield hook
    hook.stop()


@pytest.fixture(autouse=True)
def tidy(request, center):
    yield
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies",
                 "validatingadmissionpolicybindings"):
        center.api("DELETE", f"/apis/admissionregistration.k8s.io/v1/{kind}")


RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}


def configure(center, kind, name, *hooks):
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": name}, "webhooks": list(hooks)}
    return center.api("POST", f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}webhookconfigurations", body)


def entry(hook, certs, path, name="a.example.com", **fields):
    return {"name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5,
            "clientConfig": {"url": hook.url(path), "caBundle": bundle(certs / "ca.crt")},
            "rules": [RULE], **fields}


def config_map(name, **more):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **more}, "data": {"k": "v"}}


def create(center, ns, name, query="", code=201, **more):
    status, headers, raw = center.request("POST", f"/api/v1/namespaces/{ns}/configmaps{query}", config_map(name, **more))
    assert status == code, raw
    return json.loads(raw), {k.lower(): v for k, v in headers.items()}


def test_mutating_and_validating(center, ns, hook, certs):
    hook.asked.clear()
    hook.answers["/m"] = lambda r: {
        **patch({"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}},
                {"op": "add", "path": "/metadata/uid", "value": "forged"}),
        "warnings": ["mind the gap"], "auditAnnotations": {"seen": "yes"}}
    hook.answers["/v"] = lambda r: {"allowed": r["object"]["metadata"]["labels"]["by"] == "hook"}
    configure(center, "Mutating", "m", entry(hook, certs, "/m"))
    configure(center, "Validating", "v", entry(hook, certs, "/v"))
    made, headers = create(center, ns, "a", "?fieldManager=me")
    assert made["metadata"]["labels"] == {"by": "hook"} and made["metadata"]["uid"] != "forged"
    assert 'mind the gap' in headers["warning"]
    asked, = hook.requests("/m")
    assert {k: asked[k] for k in ("kind", "resource", "requestKind", "requestResource", "name", "namespace", "operation",
                                  "oldObject", "dryRun")} == {
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "requestKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "requestResource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "a", "namespace": ns, "operation": "CREATE", "oldObject": None, "dryRun": False}
    assert asked["options"] == {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"}
    assert "system:masters" in asked["userInfo"]["groups"]
    assert asked["object"]["kind"] == "ConfigMap" and "uid" not in asked["object"]["metadata"]
    judged, = hook.requests("/v")
    assert judged["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    # An update shows both sides; what did not change anything is asked about too.
    made["data"]["k"] = "w"
    status = center.api("PUT", f"/api/v1/namespaces/{ns}/configmaps/a", made, expect=[422])
    assert 'metadata.uid: Invalid value: "forged": field is immutable' in status["message"]
    hook.answers["/m"] = lambda r: {}
    center.api("PUT", f"/api/v1/namespaces/{ns}/configmaps/a", made)
    asked = hook.requests("/v")[-1]
    assert (asked["operation"], asked["oldObject"]["data"], asked["object"]["data"]) == ("UPDATE", {"k": "v"}, {"k": "w"})


def test_denials(center, ns, hook, certs, tools_here):
    results = {"a": None, "b": {"message": "not today"}, "c": {"code": 403, "reason": "Forbidden", "message": "no"},
               "d": {"code": 422, "reason": "Invalid", "message": "m", "details": {"causes": [{"field": "f", "message": "x"}]}}}
    hook.answers["/deny"] = lambda r: {"allowed": False, "status": results[r["name"]]}
    configure(center, "Validating", "v", entry(hook, certs, "/deny"))
    denied = 'admission webhook "a.example.com" denied the request'
    for name, code, reason, message in [("a", 400, None, f"{denied} without explanation"), ("b", 400, None, f"{denied}: not today"),
                                        ("c", 403, "Forbidden", f"{denied}: no"), ("d", 422, "Invalid", f"{denied}: m")]:
        status, _ = create(center, ns, name, code=code)
        assert (status["message"], status.get("reason")) == (message, reason), status
    assert status["details"]["causes"] == [{"field": "f", "message": "x"}]
    said = tools_here.kubectl("-n", ns, "create", "cm", "b", code=1)
    assert 'Error from server: admission webhook "a.example.com" denied the request: not today' in said or \
        'error: failed to create configmap: admission webhook "a.example.com" denied the request: not today' in said, said


@pytest.fixture(scope="module")
def tools_here(center, tmp_path_factory):
    return Tools(center, tmp_path_factory.mktemp("home"))


def failure(center, ns, name):
    status, _ = create(center, ns, name, code=500)
    assert status["reason"] == "InternalError"
    return status["message"]


def test_failures_close_or_open(center, ns, hook, certs):
    hook.answers.update({"/slow": lambda r: time.sleep(3) or {}, "/broken": lambda r: b"no json", "/500": lambda r: 500,
                         "/302": lambda r: 302, "/uid": lambda r: {"uid": "other"}, "/patch": lambda r: patch({"op": "remove", "path": "/x/y"})})
    closed = f"https://127.0.0.1:{free_port()}/"
    trust = bundle(certs / "ca.crt")
    stranger = bundle(center.ca)
    cases = [("slow", hook.url("/slow"), trust, "context deadline exceeded"),
             ("broken", hook.url("/broken"), trust, "json parse error"),
             ("500", hook.url("/500"), trust, "prevented the request from succeeding"),
             ("302", hook.url("/302"), trust, "status code 302"),
             ("uid", hook.url("/uid"), trust, "received invalid webhook response: expected response.uid="),
             ("refused", closed, trust, "connect: connection refused"),
             ("stranger", hook.url("/"), stranger, "certificate signed by unknown authority"),
             ("no-bundle", hook.url("/"), "", "certificate signed by unknown authority"),
             ("name", hook.url("/").replace("127.0.0.1", "127.0.0.2"), trust, "certificate is valid for")]
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v"
    for name, url, ca, why in cases:
        one = entry(hook, certs, "/", timeoutSeconds=1)
        one["clientConfig"] = {"url": url, "caBundle": ca} if ca else {"url": url}
        made = configure(center, "Validating", "v", one)
        message = failure(center, ns, name)
        assert message.startswith('Internal error occurred: failed calling webhook "a.example.com": '), message
        assert why in message, message
        made["webhooks"][0]["failurePolicy"] = "Ignore"
        center.api("PUT", path, made)
        create(center, ns, name)
        center.api("DELETE", path)
    # A patch that does not apply is the webhook's fault in any case.
    configure(center, "Mutating", "m", entry(hook, certs, "/patch", failurePolicy="Ignore"))
    assert "does not apply" in failure(center, ns, "p")


def test_self_signed_certificates_are_trusted_by_name(center, ns, certs):
    hook = Webhook(certs, "self")
    hook.answers["/d"] = lambda r: {"allowed": False}
    one = entry(hook, certs, "/d")
    one["clientConfig"]["caBundle"] = bundle(certs / "self.crt")
    configure(center, "Validating", "v", one)
    create(center, ns, "a", code=400)
    hook.stop()


def test_selectors_conditions_and_dry_run(center, ns, hook, certs):
    hook.asked.clear()
    hook.answers["/v"] = lambda r: {}
    selected = entry(hook, certs, "/v", objectSelector={"matchLabels": {"watch": "me"}},
                     namespaceSelector={"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": [ns]}]},
                     matchConditions=[{"name": "not-me", "expression": "request.userInfo.username != 'nobody'"},
                                      {"name": "named", "expression": "object.metadata.name.startsWith('x')"},
                                      {"name": "allowed", "expression": "authorizer.group('').resource('pods').namespace(request.namespace).check('create').allowed()"}])
    configure(center, "Validating", "v", selected)
    create(center, ns, "x1", labels={"watch": "me"})
    create(center, ns, "x2")
    create(center, ns, "y", labels={"watch": "me"})
    create(center, "default", "x1", labels={"watch": "me"})
    create(center, ns, "x3", "?dryRun=All", labels={"watch": "me"})
    assert [(r["name"], r["dryRun"]) for r in hook.requests("/v")] == [("x1", False), ("x3", True)]
    center.api("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v")
    # A condition that fails refuses or lets pass, as the policy says; one that is false wins over one that fails.
    broken = {"name": "broken", "expression": "object.nope == 1"}
    for policy, conditions, code in [("Fail", [broken], 403), ("Ignore", [broken], 201),
                                     ("Fail", [broken, {"name": "no", "expression": "false"}], 201)]:
        configure(center, "Validating", "v", entry(hook, certs, "/v", failurePolicy=policy, matchConditions=conditions))
        answer, _ = create(center, ns, f"z-{policy.lower()}-{len(conditions)}", code=code)
        if code == 403:
            assert "expression 'object.nope == 1' resulted in error: no such key: nope" in answer["message"]
        center.api("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v")


def test_order_and_reinvocation(center, ns, hook, certs):
    hook.asked.clear()
    count = lambda r: int(r["object"].get("data", {}).get("count", "0"))
    hook.answers["/first"] = lambda r: patch({"op": "add", "path": "/data/count", "value": str(count(r) + 1)})
    hook.answers["/second"] = lambda r: {} if count(r) > 1 else patch({"op": "add", "path": "/data/second", "value": "yes"})
    configure(center, "Mutating", "b", entry(hook, certs, "/second", "second.example.com"))
    configure(center, "Mutating", "a", entry(hook, certs, "/first", "first.example.com", reinvocationPolicy="IfNeeded"))
    made, _ = create(center, ns, "a")
    asked = [path for path, review in hook.asked if review["request"]["name"] == "a"]
    assert asked == ["/first", "/second", "/first"]
    assert made["data"] == {"k": "v", "count": "2", "second": "yes"}


def test_deletes_subresources_and_matching_versions(center, ns, hook, certs):
    hook.asked.clear()
    hook.answers["/v"] = lambda r: {"allowed": r["operation"] != "DELETE" or r["oldObject"]["metadata"]["name"] != "kept",
                                    "status": {"message": "keep it"}}
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["configmaps", "*/scale", "pods/eviction", "pods/binding"]}
    scalers = {"apiGroups": ["autoscaling"], "apiVersions": ["v2"], "operations": ["CREATE"], "resources": ["horizontalpodautoscalers"]}
    configure(center, "Validating", "v", entry(hook, certs, "/v", rules=[rule, scalers]))
    for name in ("kept", "gone"):
        create(center, ns, name)
    base = f"/api/v1/namespaces/{ns}"
    status = center.api("DELETE", f"{base}/configmaps/kept", expect=[400])
    assert status["message"].endswith("denied the request: keep it")
    center.api("DELETE", f"{base}/configmaps/gone", {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})
    asked = hook.requests("/v")[-1]
    assert asked["object"] is None and asked["options"]["propagationPolicy"] == "Background", asked
    center.api("DELETE", f"{base}/configmaps", expect=[400])
    deploy = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
              "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}
    center.api("POST", f"/apis/apps/v1/namespaces/{ns}/deployments", deploy)
    center.api("PATCH", f"/apis/apps/v1/namespaces/{ns}/deployments/d/scale", {"spec": {"replicas": 3}}, content_type="application/merge-patch+json")
    asked = hook.requests("/v")[-1]
    assert (asked["kind"]["kind"], asked["subResource"], asked["object"]["spec"], asked["oldObject"]["spec"]) == (
        "Scale", "scale", {"replicas": 3}, {"replicas": 1}), asked
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    center.api("POST", f"{base}/pods", pod)
    center.api("POST", f"{base}/pods/p/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}})
    center.api("POST", f"{base}/pods/p/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}})
    assert [(r["kind"]["kind"], r["operation"]) for r in hook.requests("/v")[-2:]] == [("Binding", "CREATE"), ("Eviction", "CREATE")]
    # Asked in v1, told in v2, as the rule wants it.
    center.api("POST", f"/apis/autoscaling/v1/namespaces/{ns}/horizontalpodautoscalers", {
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}})
    asked = hook.requests("/v")[-1]
    assert (asked["kind"]["version"], asked["requestKind"]["version"]) == ("v2", "v1")
    assert asked["object"]["apiVersion"] == "autoscaling/v2" and asked["object"]["spec"]["metrics"][0]["type"] == "Resource"


def own_address():
    """Endpoints may not be loopback addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("192.0.2.1", 9))
        return s.getsockname()[0]


def test_service_reference(center, hook, certs):
    hook.asked.clear()
    hook.answers["/svc"] = lambda r: {}
    center.api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hooks"}})
    center.api("POST", "/api/v1/namespaces/hooks/services", {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
               "spec": {"ports": [{"name": "https", "port": 443, "targetPort": 9443}]}})
    one = entry(hook, certs, "/svc")
    one["clientConfig"] = {"service": {"name": "hook", "namespace": "hooks", "path": "/svc"}, "caBundle": bundle(certs / "ca.crt")}
    one["timeoutSeconds"] = 1
    center.api("POST", "/apis/discovery.k8s.io/v1/namespaces/hooks/endpointslices", {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "endpoints": [{"addresses": [own_address()], "conditions": {"ready": True}}, {"addresses": ["192.0.2.9"], "conditions": {"ready": False}}],
        "ports": [{"name": "https", "port": hook.port, "protocol": "TCP"}]})
    configure(center, "Validating", "v", one)
    create(center, "default", "by-service")
    assert len(hook.requests("/svc")) == 1
    center.api("DELETE", "/api/v1/namespaces/hooks/services/hook")
    center.api("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v")
    one["clientConfig"]["service"]["name"] = "nowhere"
    configure(center, "Validating", "v", one)
    assert 'service "nowhere" not found' in failure(center, "default", "by-nobody")


def test_configurations_are_exempt_and_belong_to_their_workspace(center, ns, hook, certs):
    hook.answers["/all"] = lambda r: {"allowed": False}
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
    configure(center, "Validating", "v", entry(hook, certs, "/all", rules=[rule]))
    create(center, ns, "a", code=400)
    center.api("PATCH", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v", {"metadata": {"labels": {"a": "b"}}},
               content_type="application/merge-patch+json")
    center.api("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v")
    create(center, ns, "a")


def test_kube_rs(center, ns, certs):
    hook = RustWebhook(certs)
    try:
        configure(center, "Mutating", "m", entry(hook, certs, "/mutate"))
        configure(center, "Validating", "v", entry(hook, certs, "/validate"))
        for i in range(20):
            made, _ = create(center, ns, f"a-{i}")
            assert made["metadata"]["annotations"] == {"kube-rs": "was here"}
        status, _ = create(center, ns, "forbidden", code=400)
        assert status["message"] == 'admission webhook "a.example.com" denied the request: its name says it'
    finally:
        hook.stop()
