"""What Kubernetes answers in corners that few clients reach, found by asking both servers the same. One test per area."""
import base64
import json

from center import wait_for
from manifests import configmap

APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def told(center, method, path, body=None, **kw):
    """(code, message) of a refusal."""
    status, _, raw = center.request(method, path, body, **kw)
    found = json.loads(raw)
    return status, found.get("message", found)


def definition(plural, kind, scope="Namespaced", versions=None, **version):
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}, **version}
    return {"metadata": {"name": f"{plural}.corner.example"},
            "spec": {"group": "corner.example", "scope": scope, "names": {"plural": plural, "kind": kind}, "versions": versions or [one]}}


def define(center, crd, path):
    center.api("POST", DEFINITIONS, crd)
    wait_for(path, lambda: center.request("GET", path)[0] == 200, 20)


def test_deletion(center, ns):
    maps, pods = f"/api/v1/namespaces/{ns}/configmaps", f"/api/v1/namespaces/{ns}/pods"
    center.api("POST", maps, {"metadata": {"name": "held", "finalizers": ["example.com/x"]}})
    center.api("DELETE", f"{maps}/held")
    assert told(center, "POST", maps, configmap("held")) == (409, 'object is being deleted: configmaps "held" already exists')
    center.api("PATCH", f"{maps}/held", {"metadata": {"finalizers": None}}, content_type=MERGE)
    center.api("POST", maps, configmap("plain"))
    code, why = told(center, "DELETE", f"{maps}/plain", {"kind": "Pod", "apiVersion": "v1"})
    assert code == 400 and why.startswith('no kind "Pod" is registered for version "v1" in scheme')
    code, why = told(center, "DELETE", f"/api/v1/namespaces/{ns}", {"preconditions": {"resourceVersion": "1"}})
    assert code == 409 and f'on namespaces "{ns}": Precondition failed: ResourceVersion in precondition: 1, ' in why

    spec = {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}
    wait_for("the account", lambda: center.request("GET", f"/api/v1/namespaces/{ns}/serviceaccounts/default")[0] == 200, 20)
    pod = center.api("POST", pods, {"metadata": {"name": "p"}, "spec": {**spec, "nodeName": "n", "terminationGracePeriodSeconds": -3}})
    assert pod["spec"]["terminationGracePeriodSeconds"] == 1
    # A collection is answered as it was found.
    assert "deletionTimestamp" not in center.api("DELETE", pods)["items"][0]["metadata"]
    center.api("DELETE", f"{pods}/p?gracePeriodSeconds=0")


def test_yaml_is_of_the_older_kind(center, ns):
    maps = f"/api/v1/namespaces/{ns}/configmaps"
    yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {}}}\ndata: {{a: {}}}\nimmutable: yes\n".format
    made = center.api("POST", maps, yaml("quoted", "'yes'"), content_type="application/yaml")
    assert made["immutable"] is True and made["data"] == {"a": "yes"}
    code, why = told(center, "POST", maps, yaml("plain", "off"), content_type="application/yaml")
    assert code == 400 and "cannot unmarshal bool into Go struct field ConfigMap.data of type string" in why
    pod = """{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {automountServiceAccountToken: off, containers: [{name: c, image: i}],
              volumes: [{name: v, secret: {secretName: s, defaultMode: 0440}}]}}"""
    made = center.api("PATCH", f"/api/v1/namespaces/{ns}/pods/p?fieldManager=m", pod, content_type=APPLY)
    assert made["spec"]["volumes"][0]["secret"]["defaultMode"] == 0o440 and made["spec"]["automountServiceAccountToken"] is False


def test_owner_named_twice(center, ns):
    owner = center.api("POST", f"/api/v1/namespaces/{ns}/secrets", {"metadata": {"name": "o"}})
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "o", "uid": owner["metadata"]["uid"]}
    status, headers, raw = center.request("POST", f"/api/v1/namespaces/{ns}/configmaps",
                                          {"metadata": {"name": "c", "ownerReferences": [reference, reference]}})
    assert status == 201 and json.loads(raw)["metadata"]["ownerReferences"] == [reference]
    assert ".metadata.ownerReferences contains duplicate entries; " in headers["warning"]


def test_services(center, ns):
    path = f"/api/v1/namespaces/{ns}/services"

    def service(name, **spec):
        return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}
    assert told(center, "POST", path, service("a", ports=[{"port": 80, "nodePort": 31999}]))[1].endswith(
        "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'")
    twice = [{"name": "a", "port": 80, "nodePort": 31998}, {"name": "b", "port": 81, "nodePort": 31998}]
    assert told(center, "POST", path, service("a", type="NodePort", ports=twice))[1].endswith(
        "spec.ports[1].nodePort: Invalid value: 31998: provided port is already allocated")
    assert "spec.clusterIPs[0]: Invalid value: \"1.2.3\": must be a valid IP address" in told(center, "POST", path, service("a", clusterIP="1.2.3"))[1]
    center.api("POST", path, service("a"))
    code, why = told(center, "PATCH", f"{path}/a/status", {"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}, content_type=MERGE)
    assert code == 422 and "may only be used when `spec.type` is 'LoadBalancer'" in why


def test_apply(center, ns):
    maps = f"/api/v1/namespaces/{ns}/configmaps"

    def apply(name, body, query=""):
        return center.request("PATCH", f"{maps}/{name}?fieldManager=one{query}", body, content_type=APPLY)
    nameless = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}
    status, _, raw = apply("a", nameless)
    assert status == 400 and b"(a based on URL) was undeterminable: name must be provided" in raw
    assert b"invalid object type: /, Kind=" in apply("a", b"")[2]
    assert b"YAML to JSON: yaml: mapping values are not allowed" in apply("a", b"a: b: c")[2]
    assert b"yaml: line 1: did not find expected ',' or '}'" in apply("a", b'{"kind":"ConfigMap"')[2]
    assert apply("a", {**nameless, "metadata": {"name": "a"}})[0] == 201
    assert apply("a", nameless)[0] == 200, "an object that is there has its name"
    _, headers, _ = apply("a", b'{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"1","a":"1"}}')
    assert headers["warning"] == '299 - "line 1: key \\"a\\" already set in map"'

    gone = {"manager": "x", "operation": "Update", "apiVersion": "v7", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}}
    found = center.api("PATCH", f"{maps}/a", {"metadata": {"managedFields": [gone]}}, content_type=MERGE)
    assert "managedFields" not in found["metadata"], "nobody owns anything in a version that is not there"
    apply("a", {**nameless, "data": {"a": "2"}}, "&force=true")
    found = center.api("PUT", f"{maps}/a", {"metadata": {"name": "a", "managedFields": []}, "data": {"a": "2"}})
    assert "managedFields" not in found["metadata"], "an empty list resets them"


def test_custom_objects(center, ns):
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "n": {"type": "integer", "format": "int32"}, "x": {"type": "number"}, "b": {"type": "string", "default": "bee"}}}}}
    plain = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
    path = f"/apis/corner.example/v1/namespaces/{ns}/corners"
    define(center, definition("corners", "Corner", versions=[
        {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}},
        {"name": "v1beta1", "served": True, "storage": False, "schema": {"openAPIV3Schema": plain}}]), path)

    def corner(name, version="v1", **spec):
        return {"apiVersion": f"corner.example/{version}", "kind": "Corner", "metadata": {"name": name}, "spec": spec}
    body = '{"apiVersion":"corner.example/v1","kind":"Corner","metadata":{"name":"a"},"spec":{"n":2.0,"x":1e3}}'
    assert b'"n":2,"x":1000' in center.request("POST", path, body)[2].replace(b'"b":"bee",', b"")
    code, why = told(center, "POST", path, corner("b", n=2147483648))
    assert code == 422 and "Checked value must be of type integer with format int32 in spec.n" in why
    bad = {**corner("b"), "metadata": {"name": "b", "labels": {"a": 1}}}
    assert told(center, "POST", path, bad)[1].startswith('Corner in version "v1" cannot be handled as a Corner: json: cannot unmarshal')
    dry = center.api("POST", path.replace("v1/", "v1beta1/") + "?dryRun=All", corner("dry", "v1beta1"))
    assert "resourceVersion" not in dry["metadata"]
    center.api("POST", path.replace("v1/", "v1beta1/"), corner("old", "v1beta1", n=1))
    assert center.api("GET", f"{path}/old")["spec"] == {"n": 1, "b": "bee"}, "the stored version's defaults"
    assert told(center, "GET", f"{path}/a/scale") == (404, 'corners.corner.example "a" not found')
    code, why = told(center, "PATCH", f"{path}/a", {"apiVersion": "corner.example/v9"}, content_type=MERGE)
    assert code == 422 and "must be corner.example/v1" in why

    center.api("PATCH", f"{path}/a", {"metadata": {"finalizers": ["example.com/x"]}}, content_type=MERGE)
    marked = center.api("DELETE", f"{DEFINITIONS}/corners.corner.example?propagationPolicy=Foreground")
    assert marked["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    code, why = told(center, "POST", path, corner("late"))
    assert code == 403 and why.endswith("create not allowed while custom resource definition is terminating")
    center.api("PATCH", f"{path}/a", {"metadata": {"finalizers": None}}, content_type=MERGE)
    wait_for("the definition to go", lambda: center.request("GET", f"{DEFINITIONS}/corners.corner.example")[0] == 404, 30)


def test_scale_without_a_namespace(center):
    path = "/apis/corner.example/v1/crates"
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
    keeps = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    define(center, definition("crates", "Crate", "Cluster", subresources={"scale": scale}, schema={"openAPIV3Schema": keeps}), path)
    made = center.api("POST", path, {"apiVersion": "corner.example/v1", "kind": "Crate", "metadata": {"name": "c", "namespace": "x"}, "spec": {"n": 1}})
    assert "namespace" not in made["metadata"]
    assert center.api("PATCH", f"{path}/c/scale", {"spec": {"replicas": 7}}, content_type=MERGE)["spec"] == {"replicas": 7}
    assert told(center, "PATCH", f"{path}/c/scale", {"spec": {"replicas": -1}}, content_type=MERGE)[1].endswith(
        ".spec.n: Invalid value: -1: should be a non-negative integer")
    assert told(center, "PUT", f"{path}/c/scale", made)[0] == 400, "a Crate is no Scale"
    center.api("DELETE", f"{DEFINITIONS}/crates.corner.example")


def test_discovery_and_tokens(center, ns):
    assert told(center, "POST", "/version", {}) == (405, "the server does not allow this method on the requested resource")
    assert told(center, "POST", "/api/v1", {})[0] == 405
    assert told(center, "GET", "/apis", accept="text/html")[0] == 406
    listed = {r["name"]: r for r in center.api("GET", "/api/v1")["resources"]}
    assert listed["pods"]["storageVersionHash"] == "xPOwRZ+Yhw8=" and "storageVersionHash" not in listed["bindings"]
    groups = center.api("GET", "/api", accept="application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")["items"]
    assert groups[0]["metadata"] == {}
    assert groups[0]["versions"][0]["resources"][0]["responseKind"] == {"group": "", "version": "", "kind": "Binding"}

    token = f"/api/v1/namespaces/{ns}/serviceaccounts/default/token"
    assert told(center, "POST", token, {"apiVersion": "v1", "kind": "Pod"}) == (
        400, 'Pod in version "v1" cannot be handled as a TokenRequest: converting (v1.Pod) to (authentication.TokenRequest): unknown conversion')
    assert told(center, "POST", token, {"metadata": {"namespace": "other"}})[0] == 400


def test_signing_requests(center):
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    garbage = base64.b64encode(b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n").decode()
    sequence = base64.b64encode(b"-----BEGIN CERTIFICATE REQUEST-----\nMAAA\n-----END CERTIFICATE REQUEST-----\n").decode()

    def request(content):
        return {"metadata": {"name": "corner"}, "spec": {"request": content, "signerName": "example.com/mine", "usages": ["client auth"]}}
    assert "spec.request: Invalid value: " in told(center, "POST", path, request(garbage))[1]
    center.api("POST", path, request(sequence))
    denied = {"status": {"conditions": [{"type": "Denied", "status": "False", "reason": "no"}]}}
    code, why = told(center, "PATCH", f"{path}/corner/approval", denied, content_type=MERGE)
    assert code == 422 and 'status.conditions[0].status: Unsupported value: "False": supported values: "True"' in why
    code, why = told(center, "PATCH", f"{path}/corner/status", {"status": {"certificate": "bm90IFBFTQ=="}}, content_type=MERGE)
    assert code == 422 and "must contain at least one CERTIFICATE PEM block" in why
    center.api("DELETE", f"{path}/corner")
