"""What upstream's own tests ran into with policies, quotas and protected storage (issue 19)."""
import json

import pytest

from center import running, wait_for
from edge import fleet

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
STORAGE = "/apis/storage.k8s.io/v1"


@pytest.fixture(scope="module")
def center():
    with running("sqlite") as center:
        yield center


@pytest.fixture(autouse=True)
def tidy(center):
    yield
    for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies",
                 "mutatingadmissionpolicybindings"):
        center.api("DELETE", f"{REGISTRATION}/{kind}")


def rule(group, *resources, operations=("CREATE", "UPDATE")):
    return {"apiGroups": [group], "apiVersions": ["v1"], "operations": list(operations), "resources": list(resources)}


def made(kind, name, spec):
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


CONFIG_MAPS = rule("", "configmaps")


def mutating(center, ns, name, *mutations, resource=CONFIG_MAPS, binding=None, expect=None, **spec):
    """Makes a policy that changes what is written in the namespace, and what binds it."""
    if expect is None:
        spec.setdefault("matchConditions", [{"name": "mine", "expression":
                                             f"request.namespace == '{ns}' && object.metadata.name != 'kube-root-ca.crt'"}])
    body = made("MutatingAdmissionPolicy", name, {"matchConstraints": {"resourceRules": [resource]}, "reinvocationPolicy": "Never",
                                                  "mutations": list(mutations), **spec})
    answer = center.api("POST", f"{REGISTRATION}/mutatingadmissionpolicies", body, expect=expect)
    if expect is None:
        center.api("POST", f"{REGISTRATION}/mutatingadmissionpolicybindings",
                   made("MutatingAdmissionPolicyBinding", name, {"policyName": name, **(binding or {})}))
    return answer


def apply(expression):
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def json_patch(expression):
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def config_map(center, ns, name, code=201, data=None):
    status, _, raw = center.request("POST", f"/api/v1/namespaces/{ns}/configmaps", {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data or {"k": "v"}})
    assert status == code, raw
    return json.loads(raw)


# ---- MutatingAdmissionPolicy ----

def test_mutations_that_are_refused_when_they_are_written(center, ns):
    for mutation, why in [
            (apply("Object.spec{replicas: 1}"), "must evaluate to Object but got Object.spec"),
            (apply("{'data': {'a': 'b'}}"), "must evaluate to Object but got map(string, map(string, string))"),
            (json_patch("[1]"), "must evaluate to list(JSONPatch) but got list(int)"),
            (json_patch("[JSONPatch{op: 1, path: '/a'}]"), "expected type of field 'op' is 'string' but provided type is 'int'"),
            (json_patch("[JSONPatch{op: 'add', way: '/a'}]"), "undefined field 'way'"),
            ({"patchType": "JSONPatch"}, "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch"),
            ({**apply("Object{}"), "jsonPatch": {"expression": "[]"}},
             'spec.mutations[0].jsonPatch: Invalid value: "{jsonPatch}": must not be specified when patchType is ApplyConfiguration'),
            ({"patchType": "Other"}, 'spec.mutations[0].patchType: Unsupported value: "Other"')]:
        status = mutating(center, ns, "wrong", mutation, expect=[422])
        assert why in status["message"], status["message"]
    status = mutating(center, ns, "wrong", apply("Object{}"), resource=rule("", "configmaps", operations=["DELETE"]), expect=[422])
    assert 'spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE"' in status["message"], status["message"]
    # Objects are made by mutations only, and conditions see no variables.
    status = mutating(center, ns, "wrong", apply("Object{}"), expect=[422], variables=[{"name": "a", "expression": "Object{}"}],
                      matchConditions=[{"name": "c", "expression": "variables.a"}])
    assert "undeclared reference to 'Object'" in status["message"], status["message"]
    assert "undeclared reference to 'variables'" in status["message"], status["message"]


def test_mutations_that_fail(center, ns):
    """The answer names the policy that failed. With failurePolicy Ignore only the mutation that failed is left out."""
    for name, mutation, why in [
            ("names", apply("Object{data: Object.dat{a: 'b'}}"),
             'type mismatch: unexpected type name "Object.dat", expected "Object.data", which matches field name path'),
            ("unknown", apply("Object{nope: Object.nope{a: 'b'}}"), "error applying patch: failed to convert patch object to typed object"),
            ("path", json_patch("[JSONPatch{op: 'remove', path: '/no/way'}]"), "JSON Patch: "),
            ("read", apply("Object{data: {'n': object.nope}}"), "resulted in error: no such key: nope")]:
        mutating(center, ns, name, mutation)
        status = config_map(center, ns, "x", code=403)
        assert f"policy '{name}' with binding '{name}' denied request: " in status["message"], status["message"]
        assert why in status["message"] and status["reason"] == "Invalid", status
        assert [cause["message"] for cause in status["details"]["causes"]] == [status["message"]]
        center.api("DELETE", f"{REGISTRATION}/mutatingadmissionpolicies/{name}")
    mutating(center, ns, "atomic", apply("Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}"),
             resource=rule("apps", "deployments"))
    pod = {"metadata": {"labels": {"a": "c"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    status = center.api("POST", f"/apis/apps/v1/namespaces/{ns}/deployments", {
        "metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "c"}}, "template": pod}}, expect=[403])
    assert "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector" \
        in status["message"], status["message"]
    mutating(center, ns, "open", apply("Object{data: {'a': '1'}}"), apply("Object{data: {'n': object.nope}}"),
             apply("Object{data: {'b': '2'}}"), failurePolicy="Ignore")
    assert config_map(center, ns, "open")["data"] == {"k": "v", "a": "1", "b": "2"}


def test_mutations_of_all_sorts(center, ns):
    # A patch whose test fails changes nothing, and is no failure.
    mutating(center, ns, "a", json_patch(
        "[JSONPatch{op: 'test', path: '/data/k', value: 'other'}, JSONPatch{op: 'add', path: '/data/tested', value: 'yes'}]"))
    mutating(center, ns, "b", json_patch(
        "[JSONPatch{op: 'test', path: '/data/k', value: 'v'}, JSONPatch{op: 'copy', from: '/data/k', path: '/data/copy'},"
        " JSONPatch{op: 'add', path: '/metadata/labels', value: {}},"
        " JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/x'), value: 'z'}]"))
    # Optional fields, and lists merged by their keys, with defaults after each step.
    mutating(center, ns, "c", apply("""Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
        ?hostname: has(object.metadata.labels) ? optional.of('h') : optional.none(),
        initContainers: [Object.spec.template.spec.initContainers{name: 'mesh', image: 'mesh', restartPolicy: 'Always'}]}}}}"""),
             apply("Object{metadata: Object.metadata{annotations: {'seen': object.spec.template.spec.initContainers[0].terminationMessagePath}}}"),
             resource=rule("apps", "deployments"))
    assert config_map(center, ns, "a")["data"] == {"k": "v", "copy": "v"}
    found = center.api("GET", f"/api/v1/namespaces/{ns}/configmaps/a")
    assert found["metadata"]["labels"] == {"example.com/x": "z"}
    pod = {"metadata": {"labels": {"a": "c"}}, "spec": {"containers": [{"name": "c", "image": "i"}], "initContainers": [{"name": "i", "image": "i"}]}}
    deployment = center.api("POST", f"/apis/apps/v1/namespaces/{ns}/deployments", {
        "metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "c"}}, "template": pod}})
    spec = deployment["spec"]["template"]["spec"]
    assert "hostname" not in spec
    assert {c["name"] for c in spec["initContainers"]} == {"i", "mesh"}
    assert deployment["metadata"]["annotations"]["seen"] == "/dev/termination-log"


def test_mutations_of_custom_kinds_and_their_versions(center, ns):
    group = "map.example.com"
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer"}, "kept": {"type": "string", "default": "yes"},
        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                  "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}}}}}}}}
    center.api("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"looms.{group}"},
        "spec": {"group": group, "names": {"plural": "looms", "kind": "Loom"}, "scope": "Namespaced",
                 "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema},
                              {"name": "v2", "served": True, "storage": False, "schema": schema}]}})
    wait_for("looms", lambda: center.request("GET", f"/apis/{group}/v2/looms")[0] == 200)
    mutating(center, ns, "looms", apply("""Object{spec: Object.spec{size: object.apiVersion.endsWith('v1') ? 1 : 2,
                                           parts: [Object.spec.parts{name: 'a', n: 7}]}}"""), resource=rule(group, "looms"))
    loom = center.api("POST", f"/apis/{group}/v2/namespaces/{ns}/looms", {
        "apiVersion": f"{group}/v2", "kind": "Loom", "metadata": {"name": "l"},
        "spec": {"parts": [{"name": "a", "n": 1}, {"name": "b", "n": 2}]}})
    # The rule names v1, so it is shown v1; the answer is v2 again.
    assert loom["apiVersion"] == f"{group}/v2"
    assert loom["spec"] == {"size": 1, "kept": "yes", "parts": [{"name": "a", "n": 7}, {"name": "b", "n": 2}]}
    mutating(center, ns, "wrong", apply("Object{spec: Object.spec{nope: 1}}"), resource=rule(group, "looms"))
    status = center.api("POST", f"/apis/{group}/v1/namespaces/{ns}/looms", {
        "apiVersion": f"{group}/v1", "kind": "Loom", "metadata": {"name": "m"}}, expect=[403])
    assert ".spec.nope: field not declared in schema" in status["message"], status["message"]


def test_mutations_with_parameters(center, ns):
    config_map(center, ns, "one", data={"tier": "gold"})
    config_map(center, ns, "two", data={"tier": "silver"})
    center.api("PATCH", f"/api/v1/namespaces/{ns}/configmaps/two", {"metadata": {"labels": {"use": "me"}}},
               content_type="application/merge-patch+json")
    mutating(center, ns, "byname", apply("Object{metadata: Object.metadata{labels: {'name': params.data.tier}}}"),
             resource=rule("", "secrets"), paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
             binding={"paramRef": {"name": "one", "parameterNotFoundAction": "Deny"}})
    mutating(center, ns, "chosen", apply("Object{metadata: Object.metadata{labels: {'chosen': params.data.tier}}}"),
             resource=rule("", "secrets"), paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
             binding={"paramRef": {"selector": {"matchLabels": {"use": "me"}}, "parameterNotFoundAction": "Allow"}})
    secret = center.api("POST", f"/api/v1/namespaces/{ns}/secrets", {"metadata": {"name": "s"}})
    assert secret["metadata"]["labels"] == {"name": "gold", "chosen": "silver"}
    center.api("DELETE", f"/api/v1/namespaces/{ns}/configmaps/one")
    status = center.api("POST", f"/api/v1/namespaces/{ns}/secrets", {"metadata": {"name": "t"}}, expect=[403])
    assert "policy 'byname' with binding 'byname' denied request: failed to configure binding: no params found for policy binding" \
        " with `Deny` parameterNotFoundAction" in status["message"], status["message"]


def test_policies_read_what_their_authors_may_read(center, ns):
    """Parameters are read for whoever writes the policy, so they need the right to read them."""
    center.api("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "author"}, "rules": [
        {"verbs": ["*"], "apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]})
    center.api("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
        "metadata": {"name": "author"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "author"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann"}]})
    ann = {"Impersonate-User": "ann"}
    for kind, plural, body in [
            ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", {"validations": [{"expression": "params != null"}]}),
            ("MutatingAdmissionPolicy", "mutatingadmissionpolicies", {"mutations": [apply("Object{}")], "reinvocationPolicy": "Never"})]:
        bindings = plural.replace("policies", "policybindings")
        spec = {"matchConstraints": {"resourceRules": [rule("", "pods")]}, **body}
        for params, allowed in [("ConfigMap", True), ("Secret", False), ("Unheard", False)]:
            policy = made(kind, params.lower(), {**spec, "paramKind": {"apiVersion": "v1", "kind": params}})
            answer = center.api("POST", f"{REGISTRATION}/{plural}", policy, headers=ann, expect=[201 if allowed else 422])
            if not allowed:
                assert "spec.paramKind: Forbidden: user &{ann " in answer["message"], answer["message"]
                assert f'must have "get" permission on all objects of the referenced paramKind (kind={params}, apiVersion=v1)' in answer["message"]
        center.api("POST", f"{REGISTRATION}/{plural}", made(kind, "secret", {**spec, "paramKind": {"apiVersion": "v1", "kind": "Secret"}}))
        for policy, reference, allowed in [("configmap", {"name": "a"}, True), ("configmap", {"selector": {}}, False),
                                           ("secret", {"name": "a"}, False), ("gone", {"name": "a"}, False)]:
            binding = made(f"{kind}Binding", f"b-{policy}", {"policyName": policy, "paramRef": {**reference, "parameterNotFoundAction": "Deny"}})
            if kind.startswith("Validating"):
                binding["spec"]["validationActions"] = ["Deny"]
            answer = center.api("POST", f"{REGISTRATION}/{bindings}?dryRun=All", binding, headers=ann, expect=[201 if allowed else 422])
            assert allowed or "spec.paramRef: Forbidden: " in answer["message"], answer


# ---- ValidatingAdmissionPolicy ----

def validating(center, name, resource, *validations, expect=None, **spec):
    return center.api("POST", f"{REGISTRATION}/validatingadmissionpolicies", made("ValidatingAdmissionPolicy", name, {
        "matchConstraints": {"resourceRules": [resource]}, "validations": list(validations), **spec}), expect=expect)


def warnings_of(center, name, generation=1):
    def checked():
        status = center.api("GET", f"{REGISTRATION}/validatingadmissionpolicies/{name}")["status"]
        return status if status.get("observedGeneration") == generation else None
    return wait_for(f"the types of {name}", checked)["typeChecking"].get("expressionWarnings", [])


def test_types_are_checked(center, ns):
    """Upstream: should type check validation expressions."""
    deployments = rule("apps", "deployments")
    validating(center, "right", deployments, {"expression": "object.spec.replicas > 1"})
    assert warnings_of(center, "right") == []
    validating(center, "confused", deployments, {"expression": "object.spec.replicas > '1'",
                                                 "messageExpression": "'wants replicas > 1, got ' + object.spec.replicas"},
               {"expression": "object.spec.replica == 1 || oldObject.spec.template.spec.containers.exists(c, c.nam == 'a')"})
    first, second, third = warnings_of(center, "confused")
    assert first["fieldRef"] == "spec.validations[0].expression"
    assert first["warning"].startswith("apps/v1, Kind=Deployment: ERROR: <input>:1:22: ")
    assert "found no matching overload for '_>_' applied to '(int, string)'" in first["warning"]
    assert second["fieldRef"] == "spec.validations[0].messageExpression"
    assert "found no matching overload for '_+_' applied to '(string, int)'" in second["warning"]
    assert "undefined field 'replica'" in third["warning"] and "undefined field 'nam'" in third["warning"]
    # Warnings go with what they are about; each kind that a policy names is looked at, `*` is not.
    found = center.api("GET", f"{REGISTRATION}/validatingadmissionpolicies/confused")
    found["spec"]["matchConstraints"]["resourceRules"] = [rule("apps", "deployments", "daemonsets")]
    found["spec"]["validations"] = [{"expression": "object.spec.replicas > 1"}]
    center.api("PUT", f"{REGISTRATION}/validatingadmissionpolicies/confused", found)
    warning, = warnings_of(center, "confused", 2)
    assert "apps/v1, Kind=DaemonSet: " in warning["warning"] and "Deployment" not in warning["warning"]
    validating(center, "all", {**deployments, "apiVersions": ["*"]}, {"expression": "object.nope"  " == 1"})
    assert warnings_of(center, "all") == []


def test_types_of_custom_kinds_variables_and_parameters(center, ns):
    """Upstream: should type check a CRD."""
    group = "cron.example.com"
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "replicas": {"type": "integer"}, "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}}}
    center.api("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"crontabs.{group}"},
        "spec": {"group": group, "names": {"plural": "crontabs", "kind": "CronTab"}, "scope": "Namespaced",
                 "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]}})
    wait_for("crontabs", lambda: center.request("GET", f"/apis/{group}/v1/crontabs")[0] == 200)
    validating(center, "crontabs", rule(group, "crontabs"), {"expression": "object.spec.replicas > '1'"},
               {"expression": "object.spec.maxRetries < 10"}, {"expression": "variables.n + size(params.data) > 1 && object.metadata.name != ''"},
               {"expression": "params.nope == 1"}, variables=[{"name": "n", "expression": "object.spec.replicas"}],
               paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    told = {warning["fieldRef"]: warning["warning"] for warning in warnings_of(center, "crontabs")}
    assert set(told) == {"spec.validations[0].expression", "spec.validations[1].expression", "spec.validations[3].expression"}
    assert "found no matching overload for '_>_' applied to '(int, string)'" in told["spec.validations[0].expression"]
    assert "undefined field 'maxRetries'" in told["spec.validations[1].expression"]
    assert "undefined field 'nope'" in told["spec.validations[3].expression"]


def test_expressions_that_are_refused_when_they_are_written(center, ns):
    pods = rule("", "pods")
    for spec, why in [
            ({"validations": [{"expression": "object.spec.flag"}]}, "must evaluate to bool but got dyn"),
            ({"validations": [{"expression": "namespaceObject.metadata.lables.a == 'b'"}]}, "undefined field 'lables'"),
            ({"validations": [{"expression": "true", "messageExpression": "string(authorizer.path('/').check('get').allowed())"}]},
             "undeclared reference to 'authorizer'"),
            ({"validations": [{"expression": "true"}], "variables": [{"name": "in", "expression": "true"}]}, "must be a valid CEL identifier"),
            ({"validations": [{"expression": "Object{} == Object{}"}]}, "undeclared reference to 'Object'")]:
        status = validating(center, "wrong", pods, *spec.pop("validations"), expect=[422], **spec)
        assert why in status["message"], status["message"]


# ---- what rules of custom kinds may cost ----

def test_rules_that_may_cost_too_much_are_refused(center):
    def define(properties, expect):
        return center.api("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All", {
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "dear.cost.example.com"},
            "spec": {"group": "cost.example.com", "names": {"plural": "dear", "kind": "Dear"}, "scope": "Namespaced",
                     "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                         "type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}}}]}}, expect=expect)
    text, advice = {"type": "string"}, "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"

    def ruled(schema, rule):
        return {**schema, "x-kubernetes-validations": [{"rule": rule}]}
    lists = {"type": "array", "items": text}
    rule_of_all = "self.all(x, self.all(y, x == y || x != y))"
    status = define({"a": ruled(lists, rule_of_all)}, [422])
    assert f"estimated rule cost exceeds budget by factor of more than 100x {advice}" in status["message"], status["message"]
    # Bounds make the same rule cheap.
    define({"a": ruled({**lists, "maxItems": 10, "items": {**text, "maxLength": 10}}, rule_of_all)}, [201])
    define({"a": ruled({**lists, "maxItems": 10, "items": {**text, "enum": ["a", "b"]}}, rule_of_all)}, [201])
    # A rule below an unbounded list counts as often as the list may have items.
    status = define({"a": {"type": "array", "items": ruled({"type": "string"}, "self.contains('abcdefghijklmnopqrstuvwxyz')")}}, [422])
    assert "estimated rule cost exceeds budget" in status["message"], status["message"]
    # Functions of the libraries cost what they read.
    status = define({"a": {"type": "array", "maxItems": 1000, "items": ruled(text, "isQuantity(self)")}}, [422])
    assert f"estimated rule cost exceeds budget by factor of 31.5x {advice}" in status["message"], status["message"]
    define({"a": {"type": "array", "maxItems": 1000, "items": ruled({**text, "maxLength": 20}, "isQuantity(self) && quantity(self) == quantity('1')")}}, [201])
    # Each rule is cheap enough; all of them are not.
    many = {f"a{n}": ruled({**lists, "maxItems": 1000, "items": {**text, "maxLength": 1000}}, "self.all(x, x.contains('0123456789'))"
                           " && self.all(x, self.all(y, x == y))") for n in range(5)}
    status = define(many, [422])
    assert "exceeds budget" in status["message"], status["message"]


# ---- quotas ----

def quota(center, ns, name, hard, *scopes, **selector):
    spec = {"hard": hard}
    if scopes:
        spec["scopes"] = list(scopes)
    if selector:
        spec["scopeSelector"] = {"matchExpressions": [selector]}
    center.api("POST", f"/api/v1/namespaces/{ns}/resourcequotas", {"metadata": {"name": name}, "spec": spec})
    used(center, ns, name, **{key: "0" for key in hard})


def used(center, ns, name, **expected):
    """Waits until the quota says that so much is used. Dots and slashes of names are themselves."""
    def said():
        return center.api("GET", f"/api/v1/namespaces/{ns}/resourcequotas/{name}").get("status", {}).get("used") == expected
    wait_for(f"{name} to be {expected}", said)


def pod(center, ns, name, expect=None, requests=None, limits=None, **spec):
    container = {"name": "c", "image": "i", "resources": {"requests": requests or {}, "limits": limits or {}}}
    return center.api("POST", f"/api/v1/namespaces/{ns}/pods", {
        "metadata": {"name": name}, "spec": {"containers": [container], **spec}}, expect=expect)


def remove(center, path):
    center.api("DELETE", f"{path}?gracePeriodSeconds=0")


def test_quota_of_pods_near_other_namespaces(center, ns):
    """Upstream: should verify ResourceQuota with cross namespace pod affinity scope using scope-selectors."""
    quota(center, ns, "q", {"pods": "2"}, scopeName="CrossNamespacePodAffinity", operator="Exists")
    anti = "requiredDuringSchedulingIgnoredDuringExecution"

    def near(**term):
        return {"podAntiAffinity": {anti: [{"topologyKey": "region", **term}]}}
    pod(center, ns, "none", affinity=near())
    pod(center, ns, "names", affinity=near(namespaces=["ns1"]))
    used(center, ns, "q", pods="1")
    pod(center, ns, "selector", affinity=near(namespaceSelector={"matchLabels": {"team": "ads"}}))
    used(center, ns, "q", pods="2")
    status = pod(center, ns, "third", affinity=near(namespaces=["ns1"]), expect=[403])
    assert "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2" in status["message"]
    pod(center, ns, "fourth", affinity=near())
    for name in ("none", "names", "selector", "fourth"):
        remove(center, f"/api/v1/namespaces/{ns}/pods/{name}")
    used(center, ns, "q", pods="0")


def claim(center, ns, name, expect=None, **spec):
    return center.api("POST", f"/api/v1/namespaces/{ns}/persistentvolumeclaims", {
        "metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
                                             "resources": {"requests": {"storage": "1Gi"}}, **spec}}, expect=expect)


def test_quota_by_class_of_volume_attributes(center, ns):
    """Upstream: should verify ResourceQuota's volume attributes class scope, against claims with the same and another class."""
    path = f"/api/v1/namespaces/{ns}/persistentvolumeclaims"
    hard = {"persistentvolumeclaims": "1", "requests.storage": "5Gi"}
    nothing, one = {"persistentvolumeclaims": "0", "requests.storage": "0"}, {"persistentvolumeclaims": "1", "requests.storage": "1Gi"}
    for name in ("gold", "silver"):
        quota(center, ns, name, hard, scopeName="VolumeAttributesClass", operator="In", values=[name])
    claim(center, ns, "a", volumeAttributesClassName="gold")
    used(center, ns, "gold", **one)
    used(center, ns, "silver", **nothing)
    assert "exceeded quota: gold" in claim(center, ns, "b", volumeAttributesClassName="gold", expect=[403])["message"]
    claim(center, ns, "plain")
    # A claim that is on its way from one class to another counts for both.
    status = {"phase": "Bound", "currentVolumeAttributesClassName": "gold"}
    center.api("PATCH", f"{path}/a/status", {"status": status}, content_type="application/merge-patch+json")
    center.api("PATCH", f"{path}/a", {"spec": {"volumeAttributesClassName": "silver"}}, content_type="application/merge-patch+json")
    used(center, ns, "silver", **one)
    used(center, ns, "gold", **one)
    assert "exceeded quota: silver" in claim(center, ns, "b", volumeAttributesClassName="silver", expect=[403])["message"]
    center.api("PATCH", f"{path}/a/status", {"status": {"currentVolumeAttributesClassName": "silver"}}, content_type="application/merge-patch+json")
    used(center, ns, "gold", **nothing)
    center.api("DELETE", f"{path}/a")
    used(center, ns, "silver", **nothing)


def test_quota_of_pods_that_change(center, ns):
    """A resize, and a Pod that is given an end, are charged like new Pods; what ends or shrinks is freed."""
    path = f"/api/v1/namespaces/{ns}/pods"
    cpu = {"requests.cpu": "1", "limits.cpu": "1"}
    quota(center, ns, "all", cpu)
    pod(center, ns, "a", requests={"cpu": "400m"}, limits={"cpu": "400m"})
    used(center, ns, "all", **{key: "400m" for key in cpu})

    def resize(size, expect=None):
        patch = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": size}, "limits": {"cpu": size}}}]}}
        return center.api("PATCH", f"{path}/a/resize", patch, content_type="application/strategic-merge-patch+json", expect=expect)
    status = resize("1200m", [403])
    assert 'pods "a" is forbidden: exceeded quota: all, requested: limits.cpu=800m,requests.cpu=800m, used: limits.cpu=400m,requests.cpu=400m, ' \
        "limited: limits.cpu=1,requests.cpu=1" in status["message"], status["message"]
    resize("900m")
    used(center, ns, "all", **{key: "900m" for key in cpu})
    # What a container has counts until it has less.
    center.api("PATCH", f"{path}/a/status", {"status": {"phase": "Running", "containerStatuses": [
        {"name": "c", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "allocatedResources": {"cpu": "900m"},
         "resources": {"requests": {"cpu": "900m"}, "limits": {"cpu": "900m"}}}]}}, content_type="application/merge-patch+json")
    resize("500m")
    used(center, ns, "all", **{key: "900m" for key in cpu})
    center.api("PATCH", f"{path}/a/status", {"status": {"containerStatuses": [
        {"name": "c", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "allocatedResources": {"cpu": "500m"},
         "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}}}]}}, content_type="application/merge-patch+json")
    used(center, ns, "all", **{key: "500m" for key in cpu})
    center.api("PATCH", f"{path}/a/status", {"status": {"phase": "Succeeded"}}, content_type="application/merge-patch+json")
    used(center, ns, "all", **{key: "0" for key in cpu})


def test_quota_of_pods_that_are_given_an_end(center, ns):
    quota(center, ns, "ending", {"pods": "1"}, "Terminating")
    quota(center, ns, "lasting", {"pods": "2"}, "NotTerminating")
    path = f"/api/v1/namespaces/{ns}/pods"
    for name in ("a", "b"):
        pod(center, ns, name)
    used(center, ns, "lasting", pods="2")

    def end(name, expect=None):
        return center.api("PATCH", f"{path}/{name}", {"spec": {"activeDeadlineSeconds": 3600}},
                          content_type="application/merge-patch+json", expect=expect)
    end("a")
    used(center, ns, "ending", pods="1")
    used(center, ns, "lasting", pods="1")
    assert "exceeded quota: ending" in end("b", [403])["message"]
    used(center, ns, "lasting", pods="1")


def test_quota_of_devices(center, ns):
    """Upstream: should create a ResourceQuota and capture the life of a ResourceClaim."""
    gold, count = "gold.deviceclass.resource.k8s.io/devices", "count/resourceclaims.resource.k8s.io"
    quota(center, ns, "q", {gold: "2", count: "5"})
    path = f"/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims"

    def devices(name, n, expect=None):
        return center.api("POST", path, {"metadata": {"name": name}, "spec": {"devices": {"requests": [
            {"name": "r", "exactly": {"deviceClassName": "gold", "count": n}}]}}}, expect=expect)
    devices("a", 2)
    used(center, ns, "q", **{gold: "2", count: "1"})
    assert f"exceeded quota: q, requested: {gold}=1, used: {gold}=2, limited: {gold}=2" in devices("b", 1, [403])["message"]
    center.api("DELETE", f"{path}/a")
    used(center, ns, "q", **{gold: "0", count: "0"})


# ---- what protects storage ----

def gone(center, path):
    wait_for(f"{path} to be gone", lambda: center.request("GET", path)[0] == 404)


def test_protected_storage_goes_at_a_center(center, ns):
    claims, volumes, classes = f"/api/v1/namespaces/{ns}/persistentvolumeclaims", "/api/v1/persistentvolumes", f"{STORAGE}/volumeattributesclasses"
    made = center.api("POST", classes, {"metadata": {"name": "gold"}, "driverName": "example.com", "parameters": {"a": "b"}})
    assert made["metadata"]["finalizers"] == ["kubernetes.io/vac-protection"]
    center.api("POST", classes, {"metadata": {"name": "unused"}, "driverName": "example.com", "parameters": {"a": "b"}})
    center.api("DELETE", f"{classes}/unused")
    gone(center, f"{classes}/unused")
    made = claim(center, ns, "c", volumeAttributesClassName="gold", volumeName="v")
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    center.api("POST", volumes, {"metadata": {"name": "v"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"},
        "claimRef": {"namespace": ns, "name": "c", "uid": made["metadata"]["uid"]}}})
    pod(center, ns, "p", nodeName="n", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    # Each is used by the one before it: all wait until the Pod has gone.
    for path in (f"{claims}/c", f"{volumes}/v", f"{classes}/gold"):
        found = center.api("DELETE", path)
        assert found["metadata"]["deletionTimestamp"], found
    center.api("PATCH", f"/api/v1/namespaces/{ns}/pods/p", {"metadata": {"labels": {"a": "b"}}}, content_type="application/merge-patch+json")
    for path in (f"{claims}/c", f"{volumes}/v", f"{classes}/gold"):
        assert center.api("GET", path)["metadata"]["finalizers"], path
    remove(center, f"/api/v1/namespaces/{ns}/pods/p")
    for path in (f"{claims}/c", f"{volumes}/v", f"{classes}/gold"):
        gone(center, path)


def test_a_namespace_with_claims_goes(center, ns):
    claim(center, ns, "c")
    center.api("DELETE", f"/api/v1/namespaces/{ns}")
    gone(center, f"/api/v1/namespaces/{ns}")


@pytest.mark.parametrize("runtime", ["process", "cluster"])
def test_protected_storage_goes_at_an_edge(center, tmp_path, runtime):
    """Controllers of volumes look after claims where they run. An edge of another cluster has none, so its server does."""
    args = ("--runtime", "cluster", "--kubeconfig", center.kubeconfig) if runtime == "cluster" else ("--controllers", "*,-local-provisioner")
    with fleet("florin", directory=tmp_path, connected=False, args=args) as (_, florin):
        classes, claims = f"{STORAGE}/volumeattributesclasses", "/api/v1/namespaces/default/persistentvolumeclaims"
        made = florin.api("POST", classes, {"metadata": {"name": "gold"}, "driverName": "example.com", "parameters": {"a": "b"}})
        assert made["metadata"]["finalizers"] == ["kubernetes.io/vac-protection"]
        claim(florin, "default", "c", volumeAttributesClassName="gold")
        assert florin.api("DELETE", f"{classes}/gold")["metadata"]["deletionTimestamp"]
        florin.api("PATCH", f"{claims}/c", {"metadata": {"labels": {"a": "b"}}}, content_type="application/merge-patch+json")
        assert florin.api("GET", f"{classes}/gold")["metadata"]["finalizers"]
        florin.api("DELETE", f"{claims}/c")
        gone(florin, f"{claims}/c")
        gone(florin, f"{classes}/gold")
