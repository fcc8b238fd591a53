"""Admission: webhooks over TLS written in Python and with kube-rs, and what the server itself does to writes."""
import json
import pathlib
import re
import socket
import subprocess
import time

import pytest

from center import ROOT, Center, Tools, binary, free_port, running, wait_for
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
                 "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"):
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
    # What one workspace is told, another does not hear.
    made = center.api("POST", "/apis/tenancy.kcp.io/v1alpha1/workspaces", {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace",
                      "metadata": {"name": "other"}})
    assert made["status"]["phase"] == "Ready", made
    configure(center, "Validating", "v", entry(hook, certs, "/all"))
    center.api("POST", "/clusters/root:other/api/v1/namespaces/default/configmaps", config_map("a"))
    create(center, ns, "b", code=400)


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


# ---- ValidatingAdmissionPolicy ----

def policy(center, name, spec, expect=None):
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {"matchConstraints": {"resourceRules": [RULE]}, **spec}}
    return center.api("POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", body, expect=expect)


def bind(center, name, policy_name, *actions, **spec):
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": policy_name, "validationActions": list(actions), **spec}}
    return center.api("POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", body)


def test_policies_deny_and_warn(center, ns, tools_here):
    made = policy(center, "p", {
        "variables": [{"name": "size", "expression": "size(object.data)"}, {"name": "big", "expression": "variables.size > 2"}],
        "matchConditions": [{"name": "mine", "expression": f"request.namespace == '{ns}' && object.metadata.name != 'kube-root-ca.crt'"}],
        "validations": [{"expression": "!variables.big", "messageExpression": "'at most 2 entries, not ' + string(variables.size)"},
                        {"expression": "object.metadata.name != 'x'", "reason": "Forbidden"},
                        {"expression": "!has(object.data.secret)", "message": " no secrets here "},
                        {"expression": "oldObject == null || oldObject.data.k == object.data.k", "message": "k stays"},
                        {"expression": "namespaceObject.metadata.name == request.namespace"},
                        {"expression": "object.metadata.name != 'broken' || object.nope == 1"}]})
    bind(center, "b", "p", "Deny")
    create(center, ns, "fine")
    head = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request:"
    for name, data, code, reason, why in [
            ("many", {"a": "1", "b": "2", "c": "3"}, 422, "Invalid", "at most 2 entries, not 3"),
            ("x", {"k": "v"}, 403, "Forbidden", "failed expression: object.metadata.name != 'x'"),
            ("s", {"secret": "v"}, 422, "Invalid", "no secrets here"),
            ("broken", {"k": "v"}, 422, "Invalid", "expression 'object.metadata.name != 'broken' || object.nope == 1' resulted in error: no such key: nope")]:
        body = {**config_map(name), "data": data}
        status = center.api("POST", f"/api/v1/namespaces/{ns}/configmaps", body, expect=[code])
        assert (status["message"], status["reason"]) == (f'configmaps "{name}" is forbidden: {head} {why}', reason), status
        assert status["details"]["causes"] == [{"message": f"{head} {why}"}]
    said = tools_here.kubectl("-n", ns, "patch", "cm", "fine", "-p", '{"data":{"k":"w"}}', code=1)
    assert f'{head} k stays' in said
    wait_for("observedGeneration", lambda: center.api("GET", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/p")
             ["status"]["observedGeneration"] == made["metadata"]["generation"])
    # The same, only said; and a policy that is bound to nothing does nothing.
    center.api("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/b")
    create(center, ns, "unbound", labels={"x": "y"})
    bind(center, "b", "p", "Warn", "Audit", matchResources={"objectSelector": {"matchLabels": {"warn": "me"}}})
    _, headers = create(center, ns, "x", labels={"warn": "me"})
    assert "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': failed expression" in headers["warning"]
    assert "warning" not in create(center, ns, "x2")[1]


def test_policy_params(center, ns):
    policy(center, "p", {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                         "matchConditions": [{"name": "not-params", "expression": "!has(object.metadata.labels) || !('param' in object.metadata.labels)"},
                                             {"name": "mine", "expression": f"request.namespace == '{ns}'"}],
                         "validations": [{"expression": "object.metadata.name.size() <= int(params.data.most)",
                                          "messageExpression": "'names have at most ' + params.data.most + ' letters'"}]})
    bind(center, "b", "p", "Deny", paramRef={"name": "limits", "namespace": ns, "parameterNotFoundAction": "Deny"})
    status = center.api("POST", f"/api/v1/namespaces/{ns}/configmaps", config_map("abc"), expect=[422])
    assert "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction" in status["message"]
    for name, most in (("limits", "3"), ("loose", "9")):
        body = {**config_map(name, labels={"param": "yes"}), "data": {"most": most}}
        # While it is missing, the binding refuses even its own parameter: it is made through another door.
        center.api("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/b")
        center.api("POST", f"/api/v1/namespaces/{ns}/configmaps", body)
        bind(center, "b", "p", "Deny", paramRef={"name": "limits", "parameterNotFoundAction": "Deny"})
    create(center, ns, "abc")
    status, _ = create(center, ns, "abcd", code=422)
    assert status["message"].endswith("denied request: names have at most 3 letters")
    center.api("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/b")
    # A selector uses the policy with every set of parameters that it finds; none, where that is allowed, is none.
    bind(center, "b", "p", "Deny", paramRef={"selector": {"matchLabels": {"param": "yes"}}, "parameterNotFoundAction": "Allow"})
    create(center, ns, "abcde", code=422)
    center.api("DELETE", f"/api/v1/namespaces/{ns}/configmaps/limits")
    create(center, ns, "abcde")
    create(center, ns, "abcdefghijk", code=422)


def test_policies_that_cannot_be_right(center):
    for spec, why in [({"validations": [{"expression": "object.x +"}]}, "spec.validations[0].expression: Invalid value"),
                      ({"validations": [{"expression": "1 + 1"}]}, "must evaluate to bool"),
                      ({"validations": [{"expression": "params.x == 1"}]}, "undeclared reference to 'params'"),
                      ({"validations": [{"expression": "variables.a", }], "variables": [{"name": "b", "expression": "true"}]}, "undefined field 'a'"),
                      ({"validations": [{"expression": "true", "messageExpression": "1"}]}, "must evaluate to string")]:
        status = policy(center, "wrong", spec, expect=[422])
        assert why in status["message"], status["message"]


def test_mutating_policies(center, ns, hook, certs):
    api = "/apis/admissionregistration.k8s.io/v1"
    only = f"request.namespace == '{ns}' && object.metadata.name != 'kube-root-ca.crt'"
    def change(name, mutations, **spec):
        body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": name},
                "spec": {"matchConstraints": {"resourceRules": [RULE]}, "matchConditions": [{"name": "mine", "expression": only}],
                         "reinvocationPolicy": "Never", "mutations": mutations, **spec}}
        center.api("POST", f"{api}/mutatingadmissionpolicies", body)
        center.api("POST", f"{api}/mutatingadmissionpolicybindings", {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name}})
    change("a", [{"patchType": "ApplyConfiguration", "applyConfiguration": {
        "expression": "Object{metadata: Object.metadata{labels: {'by': variables.who}}, data: {'size': string(size(object.data))}}"}},
        {"patchType": "JSONPatch", "jsonPatch": {
            "expression": "[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('x'), value: object.data.size}]"}}],
        variables=[{"name": "who", "expression": "request.userInfo.username"}])
    hook.answers["/m"] = lambda r: patch({"op": "add", "path": "/data/hook", "value": r["object"]["data"]["x"]})
    configure(center, "Mutating", "m", entry(hook, certs, "/m", matchConditions=[{"name": "mine", "expression": only}]))
    change("b", [{"patchType": "JSONPatch", "jsonPatch": {
        "expression": "has(object.data.hook) ? [JSONPatch{op: 'add', path: '/data/again', value: 'yes'}] : []"}}],
        reinvocationPolicy="IfNeeded")
    made, _ = create(center, ns, "a")
    assert made["data"] == {"k": "v", "size": "1", "x": "1", "hook": "1", "again": "yes"}
    assert made["metadata"]["labels"] == {"by": "selvedge-admin"}
    change("c", [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{data: {'n': object.nope}}"}}])
    status, _ = create(center, ns, "b", code=403)
    assert "policy 'c' with binding 'c' denied request: expression 'Object{data: {'n': object.nope}}' resulted in error" in status["message"]


# ---- conversion of custom resources ----

GROUP = "looms.example.com"


def definition(hook, certs):
    schema = lambda field: {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
        field: {"type": "string"}, "size": {"type": "integer", "default": 7}}}}}}
    version = lambda name, field, storage: {
        "name": name, "served": True, "storage": storage, "schema": schema(field), "subresources": {"status": {}},
        "additionalPrinterColumns": [{"name": "Colour", "type": "string", "jsonPath": f".spec.{field}"}]}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"looms.{GROUP}"},
            "spec": {"group": GROUP, "scope": "Namespaced", "names": {"plural": "looms", "singular": "loom", "kind": "Loom"},
                     "versions": [version("v1", "colour", True), version("v2", "color", False)],
                     "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {
                         "url": hook.url("/convert"), "caBundle": bundle(certs / "ca.crt")}}}}}


def convert(request):
    desired = request["desiredAPIVersion"]
    old, new = ("colour", "color") if desired.endswith("v2") else ("color", "colour")
    objects = []
    for it in request["objects"]:
        it["apiVersion"] = desired
        if old in it.get("spec", {}):
            it["spec"][new] = it["spec"].pop(old)
        objects.append(it)
    return {"convertedObjects": objects, "result": {"status": "Success"}}


def test_conversion_webhooks(center, ns, hook, certs, tools_here):
    hook.answers["/convert"] = convert
    center.api("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(hook, certs))
    base = f"/apis/{GROUP}/%s/namespaces/{ns}/looms"
    wait_for("the kind", lambda: center.api("GET", base % "v2"))
    loom = {"apiVersion": f"{GROUP}/v1", "kind": "Loom", "metadata": {"name": "a"}, "spec": {"colour": "red"}}
    made = center.api("POST", base % "v1", loom)
    assert hook.requests("/convert") == []
    # Read, listed, watched and changed in the other version.
    got = center.api("GET", base % "v2" + "/a")
    assert (got["apiVersion"], got["spec"]) == (f"{GROUP}/v2", {"color": "red", "size": 7})
    assert got["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    asked = len(hook.requests("/convert"))
    listed = center.api("GET", base % "v2")
    assert [i["spec"]["color"] for i in listed["items"]] == ["red"] and listed["items"][0]["apiVersion"] == f"{GROUP}/v2"
    assert len(hook.requests("/convert")) == asked, "what was converted is known"
    version = listed["metadata"]["resourceVersion"]
    center.api("PATCH", base % "v2" + "/a", {"spec": {"color": "blue"}}, content_type="application/merge-patch+json")
    assert center.api("GET", base % "v1" + "/a")["spec"] == {"colour": "blue", "size": 7}
    b = center.api("POST", base % "v2", {"apiVersion": f"{GROUP}/v2", "kind": "Loom", "metadata": {"name": "b"}, "spec": {"color": "green"}})
    assert (b["spec"]["color"], center.api("GET", base % "v1" + "/b")["spec"]["colour"]) == ("green", "green")
    b["spec"]["color"] = "grey"
    assert center.api("PUT", base % "v2" + "/b", b)["spec"]["color"] == "grey"
    applied = {"apiVersion": f"{GROUP}/v2", "kind": "Loom", "metadata": {"name": "b"}, "spec": {"size": 9}}
    done = center.api("PATCH", base % "v2" + "/b?fieldManager=me&force=true", applied, content_type="application/apply-patch+yaml")
    assert done["spec"] == {"color": "grey", "size": 9}
    status, _, raw = center.request("GET", base % "v2" + f"?watch=1&timeoutSeconds=1&resourceVersion={version}")
    events = [json.loads(line) for line in raw.splitlines()]
    assert [(e["type"], e["object"]["apiVersion"], e["object"]["spec"]["color"]) for e in events] == [
        ("MODIFIED", f"{GROUP}/v2", "blue"), ("ADDED", f"{GROUP}/v2", "green"),
        ("MODIFIED", f"{GROUP}/v2", "grey"), ("MODIFIED", f"{GROUP}/v2", "grey")]
    for version in ("v1", "v2"):
        table = tools_here.kubectl("-n", ns, "get", f"looms.{version}.{GROUP}").split()
        assert table == ["NAME", "COLOUR", "a", "blue", "b", "grey"], table
    # A webhook that fails makes the other version unreadable, and says why; the stored one is as it was.
    hook.answers["/convert"] = lambda r: {"result": {"status": "Failure", "message": "out of yarn"}}
    made = center.api("POST", base % "v1", {**loom, "metadata": {"name": "c"}})
    status = center.api("GET", base % "v2" + "/c", expect=[500])
    assert status["message"] == f"conversion webhook for {GROUP}/v1, Kind=Loom failed: out of yarn"
    _, _, raw = center.request("GET", base % "v2" + f"?watch=1&timeoutSeconds=1&resourceVersion={int(made['metadata']['resourceVersion']) - 1}")
    assert "out of yarn" in json.loads(raw)["object"]["message"] and json.loads(raw)["type"] == "ERROR"
    hook.answers["/convert"] = convert
    gone = center.api("DELETE", base % "v2" + "/c")
    assert gone["status"] == "Success"
    center.api("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/looms.{GROUP}")


# ---- the server's own plugins ----

def pod(name, **spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def test_pod_security(center, tools_here):
    label = "pod-security.kubernetes.io/"
    namespace = lambda name, **levels: {"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": name, "labels": {label + mode.replace("_", "-"): level for mode, level in levels.items()}}}
    center.api("POST", "/api/v1/namespaces", namespace("secure", enforce="baseline", warn="restricted", warn_version="v1.30"))
    status, headers, _ = center.request("POST", "/api/v1/namespaces/secure/pods", pod("plain"))
    assert status == 201
    assert 'would violate PodSecurity \\"restricted:v1.30\\": allowPrivilegeEscalation != false' in {k.lower(): v for k, v in headers.items()}["warning"]
    refused = center.api("POST", "/api/v1/namespaces/secure/pods", pod("host", hostNetwork=True), expect=[403])
    assert refused["message"] == 'pods "host" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'
    # What makes pods is only warned about; what tightens a namespace tells of what is there.
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "hostPID": True, "containers": [{"name": "c", "image": "i"}]}}}}
    said = tools_here.run(["kubectl", "-n", "secure", "create", "-f", "-"], json.dumps(job)).stderr
    assert 'Warning: would violate PodSecurity "restricted:v1.30": host namespaces (hostPID=true)' in said, said
    said = tools_here.run(["kubectl", "label", "ns", "secure", "--overwrite", f"{label}enforce=restricted"]).stderr
    assert 'Warning: existing pods in namespace "secure" violate the new PodSecurity enforce level "restricted:latest"' in said
    assert "Warning: plain: allowPrivilegeEscalation != false" in said, said
    bad = center.api("POST", "/api/v1/namespaces", namespace("odd", enforce="paranoid"), expect=[422])
    assert "must be one of privileged, baseline, restricted" in bad["message"]


def test_a_pod_learns_where_its_node_is(center, ns):
    zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
    labels = {zone: "west-1", region: "west", "shelf": "4"}
    center.api("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here", "labels": labels}})
    pods = f"/api/v1/namespaces/{ns}/pods"
    pod = lambda name, **spec: {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"a": "b", zone: "unknown"}},  # noqa: E731
                                "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
    center.api("POST", pods, pod("bound"))
    center.api("POST", f"{pods}/bound/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"},
                                                 "target": {"kind": "Node", "name": "here"}})
    center.api("POST", pods, pod("nailed", nodeName="here"))
    center.api("POST", pods, pod("elsewhere", nodeName="nowhere"))
    seen = {p["metadata"]["name"]: p["metadata"]["labels"] for p in center.api("GET", pods)["items"]}
    assert seen["bound"] == seen["nailed"] == {"a": "b", zone: "west-1", region: "west"}
    assert seen["elsewhere"] == {"a": "b", zone: "unknown"}
    # And one that has to wait says since when.
    gated = center.api("POST", pods, pod("gated", schedulingGates=[{"name": "example.com/later"}]))
    assert gated["status"]["conditions"][0]["lastTransitionTime"] == gated["metadata"]["creationTimestamp"]


def test_plugins_are_switched_by_name(tmp_path):
    center = Center(tmp_path / "data", args=["--disable-admission-plugins=ServiceAccount,PodSecurity,NamespaceLifecycle",
                                             "--enable-admission-plugins=AlwaysPullImages,DenyServiceExternalIPs"])
    try:
        center.start()
        center.api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": "a", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
        made = center.api("POST", "/api/v1/namespaces/a/pods", pod("p", hostNetwork=True))
        assert "serviceAccountName" not in made["spec"] and made["spec"]["containers"][0]["imagePullPolicy"] == "Always"
        create(center, "nowhere", "a")
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}], "externalIPs": ["192.0.2.1"]}}
        status = center.api("POST", "/api/v1/namespaces/a/services", service, expect=[403])
        assert "Use of external IPs is denied by admission control" in status["message"]
    finally:
        center.kill()
    printed = subprocess.run([binary(), "config", "--disable-admission-plugins=Priority"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert "disableAdmissionPlugins:\n- Priority" in printed, printed
    wrong = subprocess.run([binary(), "config", "--disable-admission-plugins=PodPolice"], capture_output=True, text=True, timeout=60)
    assert wrong.returncode != 0 and 'there is no admission plugin "PodPolice": choose from NamespaceLifecycle' in wrong.stderr


def test_the_page_says_what_happens(center, tools_here):
    """The commands in docs/reference/admission.md, as they stand there."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/reference/admission.md").read_text(), re.M | re.S)
    assert len(blocks) == 5
    path = f"{pathlib.Path(binary()).parent}:{tools_here.env['PATH']}"
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", "\n".join(blocks)], env={**tools_here.env, "PATH": path},
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "denied request: at most 5 replicas, not 9" in done.stderr and 'violates PodSecurity "baseline:latest"' in done.stderr, done.stderr
    assert done.stdout.count("refused") == 2 and "- DefaultTolerationSeconds" in done.stdout
    assert "undefined field 'replica'" in done.stdout and '"example.com/by":"policy","team":"default"' in done.stdout, done.stdout
