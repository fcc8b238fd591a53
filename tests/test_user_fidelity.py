"""What upstream's own tests found to differ: each as Kubernetes 1.36 answers it.

A center of its own, as histories have to grow old within a test.
"""
import json
import re
import time

import pytest
from center import Center, Tools, wait_for
from webhook import Webhook, bundle, certificates

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def center(tmp_path_factory):
    """Histories grow old here after two seconds. (An older program does not know the flag, but its variable.)"""
    center = Center(tmp_path_factory.mktemp("fidelity") / "data", env={"SELVEDGE_COMPACTION_INTERVAL": "2"})
    try:
        yield center.start()
        assert center.stop() == 0
    finally:
        center.kill()


@pytest.fixture(scope="module")
def tools(center, tmp_path_factory):
    return Tools(center, tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def hook(tmp_path_factory):
    certs = certificates(tmp_path_factory.mktemp("certs"), "127.0.0.1", "localhost")
    hook = Webhook(certs)
    hook.ca = bundle(certs / "ca.crt")
    yield hook
    hook.stop()


def define(center, plural, kind, *versions, group="fidelity.example.com", **spec):
    """Makes a CustomResourceDefinition and waits until it is served."""
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind}, **spec,
                     "versions": [{"served": True, "storage": i == 0, **version} for i, version in enumerate(versions)]}}
    center.api("POST", CRDS, body, expect=(201,))
    path = f"/apis/{group}/{versions[0]['name']}"
    wait_for(f"{plural} to be served", lambda: center.request("GET", f"{path}/namespaces/default/{plural}")[0] == 200)
    return path


def schema(properties=None, **more):
    fields = {"properties": properties} if properties else {}
    return {"openAPIV3Schema": {"type": "object", **fields, **more}}


def events(center, path, wanted, seconds=10):
    """The first events of a watch, at most `wanted` of them."""
    status, _, raw = center.request("GET", f"{path}{'&' if '?' in path else '?'}watch=1&timeoutSeconds={seconds}", timeout=seconds + 10)
    assert status == 200, raw
    return [json.loads(line) for line in raw.splitlines()][:wanted]


# ---- OpenAPI of custom resources ----

FOO = {"spec": {"type": "object", "description": "Specification of Foo", "properties": {
    "bars": {"description": "List of Bars and their specs.", "type": "array", "items": {
        "type": "object", "required": ["name"], "properties": {
            "name": {"description": "Name of Bar.", "type": "string"},
            "feeling": {"type": "string", "enum": ["Great", "Down"], "default": "Great"},
            "port": {"x-kubernetes-int-or-string": True, "description": "A port."}}}}}}}


def test_kubectl_explains_custom_resources(center, tools):
    """Conformance: "works for CRD with validation schema". Fields of every object had no description."""
    define(center, "foos", "Foo", {"name": "v1", "schema": schema(FOO, description="Foo CRD for Testing")})
    for name, pattern in [
        ("foos", r"DESCRIPTION:.*Foo CRD for Testing.*FIELDS:.*apiVersion.*<string>.*APIVersion defines.*spec.*<Object>.*Specification of Foo"),
        ("foos.metadata", r"DESCRIPTION:.*Standard object's metadata.*FIELDS:.*creationTimestamp.*<string>.*CreationTimestamp is a timestamp"),
        ("foos.spec.bars", r"<\[\]Object>.*DESCRIPTION:.*List of Bars and their specs.*FIELDS:.*name.*<string>.*Name of Bar"),
    ]:
        assert re.search(pattern, tools.kubectl("explain", name), re.S), tools.kubectl("explain", name)
    assert 'field "bars2" does not exist' in tools.kubectl("explain", "foos.spec.bars2", code=1)


def definition(center, name):
    return center.api("GET", "/openapi/v2")["definitions"][name]


def published(model):
    """Without what the server adds to every kind."""
    fields = {k: v for k, v in model.get("properties", {}).items() if k not in ("metadata", "apiVersion", "kind")}
    rest = {k: v for k, v in model.items() if k not in ("properties", "x-kubernetes-group-version-kind")}
    return {**rest, **({"properties": fields} if fields else {})}


def test_openapi_v2_shows_the_schema_and_nothing_else(center):
    """Conformance: specs of CustomResourcePublishOpenAPI compare the definition in OpenAPI v2 with the schema."""
    define(center, "waldos", "Waldo", {"name": "v1", "schema": schema(FOO, description="Waldo CRD for Testing")})
    define(center, "empties", "Empty", {"name": "v1", "schema": schema(**{"x-kubernetes-preserve-unknown-fields": True})})
    define(center, "roots", "Root", {"name": "v1", "schema": schema(FOO, description="at root", **{"x-kubernetes-preserve-unknown-fields": True})})
    define(center, "nests", "Nest", {"name": "v1", "schema": schema({
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "description": "Anything"},
        "maybe": {"type": "string", "nullable": True},
        "pod": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}})})
    model = definition(center, "com.example.fidelity.v1.Waldo")
    bars = {**FOO["spec"]["properties"]["bars"]}
    bars["items"] = {**bars["items"], "properties": {**bars["items"]["properties"], "feeling": {"type": "string", "enum": ["Great", "Down"]}}}
    assert published(model) == {"type": "object", "description": "Waldo CRD for Testing",
                                "properties": {"spec": {**FOO["spec"], "properties": {"bars": bars}}}}
    assert model["properties"]["kind"]["description"].startswith("Kind is a string value representing the REST resource")
    meta = model["properties"]["metadata"]
    assert meta["$ref"] == "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" and "Standard object's metadata" in meta["description"]
    # Whatever keeps everything has no fields at all: clients would refuse the others.
    for kind in ("Empty", "Root"):
        model = definition(center, f"com.example.fidelity.v1.{kind}")
        assert published(model) == {"type": "object"} and "properties" not in model
    nest = definition(center, "com.example.fidelity.v1.Nest")["properties"]
    assert nest["spec"] == {"x-kubernetes-preserve-unknown-fields": True, "description": "Anything"}
    assert nest["maybe"] == {}
    assert nest["pod"]["required"] == ["kind", "apiVersion"]
    assert nest["pod"]["properties"]["kind"]["description"].startswith("kind is a string value representing the type of this object")
    list_model = definition(center, "com.example.fidelity.v1.WaldoList")
    assert list_model["description"] == "WaldoList is a list of Waldo"
    assert list_model["properties"]["items"]["description"].startswith("List of waldos. More info")


def test_openapi_v3_keeps_what_v2_cannot_say(center):
    define(center, "trees", "Tree", {"name": "v1", "schema": schema({
        "maybe": {"type": "string", "nullable": True, "default": "x"}}, **{"x-kubernetes-preserve-unknown-fields": True})})
    document = center.api("GET", "/openapi/v3/apis/fidelity.example.com/v1")
    model = document["components"]["schemas"]["com.example.fidelity.v1.Tree"]
    assert model["x-kubernetes-preserve-unknown-fields"] and model["properties"]["maybe"] == {"type": "string", "nullable": True, "default": "x"}
    assert model["properties"]["metadata"]["allOf"] == [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]
    assert model["properties"]["apiVersion"]["description"].startswith("APIVersion defines")


def test_openapi_need_not_be_sent_twice(center):
    status, headers, body = center.request("GET", "/openapi/v2")
    assert status == 200
    status, again, nothing = center.request("GET", "/openapi/v2", headers={"If-None-Match": headers["etag"]})
    assert (status, nothing, again["etag"]) == (304, b"", headers["etag"])


# ---- Tables and metadata ----

def test_reviews_have_no_table(center):
    """Conformance: "should return a 406 for a backend which does not implement metadata"."""
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
              "spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    refused = center.api("POST", reviews, review, accept=TABLE, expect=(406,))
    assert refused["reason"] == "NotAcceptable"
    assert refused["message"] == ("only the following media types are accepted: application/json, application/yaml, "
                                  "application/vnd.kubernetes.protobuf")
    # Whoever takes something else as well gets that.
    assert center.api("POST", reviews, review, accept=f"{TABLE},application/json")["status"]["allowed"]
    partial = center.api("POST", reviews, review, accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
    assert partial["kind"] == "PartialObjectMetadata" and "spec" not in partial
    token = "/api/v1/namespaces/default/serviceaccounts/default/token"
    center.api("POST", token, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}, accept=TABLE, expect=(406,))


def test_streamed_lists_end_with_a_row(center):
    """A bookmark in a Table had no cells, and was told in full to those who want no objects."""
    maps = "/api/v1/namespaces/default/configmaps"
    center.api("POST", maps, {"metadata": {"name": "row"}}, expect=(201,))
    asked = f"{maps}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1&fieldSelector=metadata.name%3Drow"

    def told(include):
        raw = center.request("GET", f"{asked}&includeObject={include}", accept=TABLE)[2]
        return [json.loads(line) for line in raw.splitlines()][:2]

    added, mark = told("Metadata")
    assert (added["type"], mark["type"]) == ("ADDED", "BOOKMARK")
    assert added["object"]["rows"][0]["cells"][:2] == ["row", 0]
    [row] = mark["object"]["rows"]
    assert row["cells"] == ["", 0, "<unknown>"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert row["object"]["metadata"]["resourceVersion"] == mark["object"]["metadata"]["resourceVersion"]
    added, mark = told("None")
    assert added["object"]["rows"][0]["object"] is None and mark["object"]["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert told("Object")[1]["object"]["rows"][0]["object"]["kind"] == "ConfigMap"


# ---- lists in pages, and the past ----

def test_continue_tokens_grow_old(center):
    """Conformance: "should support continue listing from the last key if the original version has been compacted away"."""
    maps = "/api/v1/namespaces/paged/configmaps"
    center.api("POST", "/api/v1/namespaces", {"metadata": {"name": "paged"}}, expect=(201,))
    for i in range(6):
        center.api("POST", maps, {"metadata": {"name": f"page-{i}"}}, expect=(201,))
    first = center.api("GET", f"{maps}?limit=2")
    token = first["metadata"]["continue"]
    page = center.api("GET", f"{maps}?limit=2&continue={token}")
    assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    # Nobody writes anything here: time alone has to be enough.
    expired = wait_for("the token to expire", lambda: (lambda s, _, b: s == 410 and json.loads(b))(
        *center.request("GET", f"{maps}?limit=2&continue={token}")), seconds=15, every=0.3)
    assert expired["reason"] == "Expired"
    assert expired["message"].startswith("The provided continue parameter is too old to display a consistent list result. You can start a new "
                                         "list without the continue parameter, or use the continue token in this response")
    names, version, token = [i["metadata"]["name"] for i in first["items"]], None, expired["metadata"]["continue"]
    while token:
        page = center.api("GET", f"{maps}?limit=2&continue={token}")
        version = version or page["metadata"]["resourceVersion"]
        assert page["metadata"]["resourceVersion"] == version != first["metadata"]["resourceVersion"]
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue")
    assert names == sorted([f"page-{i}" for i in range(6)] + ["kube-root-ca.crt"])
    # The past can be listed for as long.
    old = first["metadata"]["resourceVersion"]
    gone = center.api("GET", f"{maps}?resourceVersion={old}&resourceVersionMatch=Exact", expect=(410,))
    assert gone["message"] == "The resourceVersion for the provided list is too old." and gone["metadata"] == {}


def test_watches_have_no_pages(center):
    """As upstream: `continue` is refused where what exists comes first, and `limit` is passed over."""
    watch = "/api/v1/configmaps?watch=1&timeoutSeconds=1"
    refused = center.api("GET", f"{watch}&continue=x", expect=(422,))
    assert refused["message"] == ('ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
                                  "resourceVersionMatch is forbidden when continue is provided")
    center.api("GET", f"{watch}&continue=x&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", expect=(422,))
    assert center.request("GET", f"{watch}&limit=1")[0] == 200
    both = center.api("GET", f"{watch}&resourceVersionMatch=Exact", expect=(422,))
    assert len(both["details"]["causes"]) == 2


# ---- fields that custom resources are selected by ----

def split(request):
    """Converts between `hostPort` of v1 and `host`, `port` of v2."""
    done = []
    for one in request["objects"]:
        one = {**one, "apiVersion": request["desiredAPIVersion"]}
        if one["apiVersion"].endswith("/v2") and "hostPort" in one:
            one["host"], one["port"] = one.pop("hostPort").split(":")
        elif one["apiVersion"].endswith("/v1") and "host" in one:
            one["hostPort"] = f"{one.pop('host')}:{one.pop('port', '')}"
        done.append(one)
    return {"result": {"status": "Success"}, "convertedObjects": done}


def test_fields_are_selected_in_the_version_asked_for(center, hook):
    """Conformance: CustomResourceFieldSelectors "MUST list and watch custom resources matching the field selector"."""
    hook.answers["/split"] = split
    text = {"type": "string"}
    define(center, "hosts", "Host",
           {"name": "v1", "schema": schema({"hostPort": text}), "selectableFields": [{"jsonPath": ".hostPort"}]},
           {"name": "v2", "schema": schema({"host": text, "port": text}), "selectableFields": [{"jsonPath": ".host"}, {"jsonPath": ".port"}]},
           conversion={"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {
               "url": hook.url("/split"), "caBundle": hook.ca}}})
    v1, v2 = (f"/apis/fidelity.example.com/{v}/namespaces/default/hosts" for v in ("v1", "v2"))
    start = center.api("GET", v2)["metadata"]["resourceVersion"]
    for name, host, port in [("a", "host1", "80"), ("b", "host1", "8080"), ("c", "host2", "80")]:
        center.api("POST", v2, {"apiVersion": "fidelity.example.com/v2", "kind": "Host", "metadata": {"name": name}, "host": host, "port": port}, expect=(201,))

    def names(path, selector, more=""):
        return [item["metadata"]["name"] for item in center.api("GET", f"{path}?fieldSelector={selector}{more}")["items"]]

    assert names(v2, "host%3Dhost1") == ["a", "b"]
    assert names(v2, "host%3Dhost1,port%3D80") == ["a"]
    assert names(v2, "host!%3Dhost1") == ["c"]
    assert names(v1, "hostPort%3Dhost1:8080") == ["b"]
    first = center.api("GET", f"{v2}?fieldSelector=port%3D80&limit=1")
    rest = center.api("GET", f"{v2}?fieldSelector=port%3D80&limit=1&continue={first['metadata']['continue']}")
    assert [i["metadata"]["name"] for i in first["items"] + rest["items"]] == ["a", "c"] and not rest["metadata"].get("continue")
    # What exists when a watch begins, and what comes later.
    assert [e["object"]["metadata"]["name"] for e in events(center, f"{v2}?fieldSelector=host%3Dhost1", 9, seconds=1)] == ["a", "b"]
    center.api("DELETE", f"{v2}?fieldSelector=host%3Dhost1,port%3D80")
    b = center.api("GET", f"{v2}/b")
    center.api("PUT", f"{v2}/b", {**b, "host": "host2"})
    assert names(v2, "host%3Dhost1") == []
    told = [(e["type"], e["object"]["metadata"]["name"]) for e in events(center, f"{v2}?fieldSelector=host%3Dhost1&resourceVersion={start}", 9, seconds=1)]
    assert told == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a"), ("DELETED", "b")]


def test_fields_are_selected_with_their_defaults(center):
    """An object that was written before a field had a default is selected by what a client would read."""
    colour = {"type": "string"}
    path = define(center, "crates", "Crate", {"name": "v1", "schema": schema({"colour": colour}), "selectableFields": [{"jsonPath": ".colour"}]})
    crates = f"{path}/namespaces/default/crates"
    center.api("POST", crates, {"apiVersion": "fidelity.example.com/v1", "kind": "Crate", "metadata": {"name": "plain"}}, expect=(201,))
    center.api("PATCH", f"{CRDS}/crates.fidelity.example.com", [
        {"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/colour/default", "value": "red"}], content_type=JSON_PATCH)
    wait_for("the default", lambda: center.api("GET", f"{crates}/plain").get("colour") == "red")
    assert [i["metadata"]["name"] for i in center.api("GET", f"{crates}?fieldSelector=colour%3Dred")["items"]] == ["plain"]


# ---- namespaces that go ----

def test_a_namespace_takes_its_pods_first(center):
    """Conformance: OrderedNamespaceDeletion "namespace deletion should delete pod first"."""
    core = "/api/v1/namespaces/ordered"
    center.api("POST", "/api/v1/namespaces", {"metadata": {"name": "ordered"}}, expect=(201,))
    wait_for("the account", lambda: center.request("GET", f"{core}/serviceaccounts/default")[0] == 200)
    center.api("PATCH", f"{core}/status", {"status": {"conditions": [{"type": "Theirs", "status": "True", "reason": "E2E", "message": "m"}]}}, content_type=MERGE)
    center.api("POST", f"{core}/pods", {"metadata": {"name": "held", "finalizers": ["e2e.example.com/finalizer"]},
                                       "spec": {"containers": [{"name": "c", "image": "i"}]}}, expect=(201,))
    center.api("POST", f"{core}/configmaps", {"metadata": {"name": "kept"}}, expect=(201,))
    center.api("DELETE", core)

    def conditions():
        return {c["type"]: c for c in center.api("GET", core)["status"].get("conditions", [])}

    wait_for("the controller", lambda: "NamespaceDeletionContentFailure" in conditions())
    wait_for("what remains", lambda: conditions().get("NamespaceContentRemaining", {}).get("status") == "True")
    assert center.api("GET", f"{core}/pods/held")["metadata"]["deletionTimestamp"]
    center.api("GET", f"{core}/configmaps/kept")
    told = conditions()
    assert (told["NamespaceContentRemaining"]["status"], told["NamespaceContentRemaining"]["message"]) == (
        "True", "Some resources are remaining: pods. has 1 resource instances")
    assert told["NamespaceFinalizersRemaining"]["message"].endswith("e2e.example.com/finalizer in 1 resource instances")
    assert told["NamespaceDeletionContentFailure"]["status"] == "False" and told["Theirs"]["reason"] == "E2E"
    center.api("PATCH", f"{core}/pods/held", {"metadata": {"finalizers": None}}, content_type=MERGE)
    wait_for("the namespace to go", lambda: center.request("GET", core)[0] == 404)


def test_owners_in_a_circle_do_not_wait_for_each_other(center):
    """Conformance: Garbage collector "should not be blocked by dependency circle"."""
    maps = "/api/v1/namespaces/default/configmaps"
    uids = [center.api("POST", maps, {"metadata": {"name": f"circle-{i}"}}, expect=(201,))["metadata"]["uid"] for i in range(3)]
    for i in range(3):
        owner = (i - 1) % 3
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": f"circle-{owner}", "uid": uids[owner], "controller": True, "blockOwnerDeletion": True}
        center.api("PATCH", f"{maps}/circle-{i}", {"metadata": {"ownerReferences": [reference]}}, content_type=MERGE)
    center.api("DELETE", f"{maps}/circle-0", {"propagationPolicy": "Foreground", "preconditions": {"uid": uids[0]}})
    wait_for("the circle to go", lambda: not [i for i in center.api("GET", maps)["items"] if i["metadata"]["name"].startswith("circle-")])


# ---- requests ----

def test_timeouts_are_read(center, hook):
    """`?timeout=` was passed over, whatever it said."""
    for path in ("/version", "/api/v1/namespaces", "/apis"):
        refused = center.api("GET", f"{path}?timeout=invalid", expect=(400,))
        assert refused["message"] == 'invalid timeout specified in the request URL - time: invalid duration "invalid"'
    assert center.api("GET", "/version?timeout=5", expect=(400,))["message"].endswith('time: missing unit in duration "5"')
    for fine in ("3m", "0s", "-1s", "1.5s", "30s", ""):
        center.api("GET", f"/version?timeout={fine}")
    # Watches have their own.
    assert center.request("GET", "/api/v1/configmaps?watch=1&timeoutSeconds=1&timeout=x")[0] == 200

    def slow(request):
        time.sleep(3)
        return {}

    hook.answers["/slow"] = slow
    hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    center.api("POST", hooks, {"metadata": {"name": "slow"}, "webhooks": [{
        "name": "slow.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
        "clientConfig": {"url": hook.url("/slow"), "caBundle": hook.ca}, "objectSelector": {"matchLabels": {"slow": "yes"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}]}, expect=(201,))
    body = {"metadata": {"name": "slow", "labels": {"slow": "yes"}}}
    begun = time.monotonic()
    late = wait_for("the webhook", lambda: (lambda s, _, b: s == 504 and json.loads(b))(*center.request(
        "POST", "/api/v1/namespaces/default/configmaps?timeout=1s&dryRun=All", body)), every=0.1)
    assert late["reason"] == "Timeout" and late["message"].startswith("Timeout: request did not complete within requested timeout")
    assert time.monotonic() - begun < 3
    center.api("DELETE", f"{hooks}/slow")


def test_a_patch_may_replace_the_whole_document(center):
    maps = "/api/v1/namespaces/default/configmaps"
    made = center.api("POST", maps, {"metadata": {"name": "whole", "labels": {"a": "1"}}, "data": {"k": "v"}}, expect=(201,))
    new = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "whole", "namespace": "default"}, "data": {"other": "x"}}
    got = center.api("PATCH", f"{maps}/whole", [{"op": "test", "path": "/data/k", "value": "v"}, {"op": "replace", "path": "", "value": new},
                                                {"op": "add", "path": "/data/more", "value": "y"}], content_type=JSON_PATCH)
    assert got["data"] == {"other": "x", "more": "y"} and "labels" not in got["metadata"]
    assert got["metadata"]["uid"] == made["metadata"]["uid"] and got["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    listed = center.api("PATCH", f"{maps}/whole", [{"op": "replace", "path": "", "value": [1]}], content_type=JSON_PATCH, expect=(422,))
    assert "couldn't get version/kind; json parse error: json: cannot unmarshal array" in listed["message"]
    for value in ("x", 1, None):
        rejected = center.api("PATCH", f"{maps}/whole", [{"op": "replace", "path": "", "value": value}], content_type=JSON_PATCH, expect=(422,))
        assert rejected["message"] == "the server rejected our request due to an error in our request"
    center.api("PATCH", f"{maps}/whole", [{"op": "test", "path": "", "value": {}}], content_type=JSON_PATCH, expect=(422,))


def refusal(center, path, patch, content_type=MERGE):
    """What a patch is refused with that leads to no object of its kind."""
    refused = center.api("PATCH", path, patch, content_type=content_type, expect=(422,))
    assert refused["reason"] == "Invalid" and refused["details"]["causes"][0]["field"] == "patch", refused
    assert refused["message"].startswith(' "" is invalid: patch: Invalid value: "{'), refused["message"]
    return refused["message"].rsplit('}": ', 1)[1]


def test_patches_that_change_the_kind(center):
    maps = "/api/v1/namespaces/default/configmaps"
    center.api("POST", maps, {"metadata": {"name": "kind"}, "data": {"k": "dmFs"}}, expect=(201,))
    scheme = 'in scheme "pkg/api/legacyscheme/scheme.go:30"'
    for patch, why in [
        ({"kind": "Secret"}, "converting (v1.Secret) to (core.ConfigMap): unknown conversion"),
        ({"kind": "Secret", "data": {"k": "?"}}, "illegal base64 data at input byte 0"),
        ({"kind": "Frob"}, f'no kind "Frob" is registered for version "v1" {scheme}'),
        ({"apiVersion": "v9"}, f'no kind "ConfigMap" is registered for version "v9" {scheme}'),
        ({"kind": 5}, "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string"),
    ]:
        assert refusal(center, f"{maps}/kind", patch) == why
    # A kind that is taken away is put back; a version is not.
    assert center.api("PATCH", f"{maps}/kind", {"kind": None, "data": {"x": "y"}}, content_type=MERGE)["data"]["x"] == "y"
    gone = center.api("PATCH", f"{maps}/kind", {"apiVersion": None}, content_type=MERGE, expect=(400,))
    assert gone["message"] == "the name of the object (kind based on URL) was undeterminable: name must be provided"
    # A strategic patch says nothing by it, and another version of the same kind is as good.
    center.api("PATCH", f"{maps}/kind", {"kind": "Secret"}, content_type="application/strategic-merge-patch+json")
    scalers = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    center.api("POST", scalers, {"metadata": {"name": "s"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target}}, expect=(201,))
    got = center.api("PATCH", f"{scalers}/s", {"apiVersion": "autoscaling/v2", "spec": {"maxReplicas": 4}}, content_type=MERGE)
    assert (got["apiVersion"], got["spec"]["maxReplicas"]) == ("autoscaling/v1", 4)


def test_patches_of_custom_resources_and_scales(center):
    path = define(center, "shapes", "Shape", {"name": "v1", "schema": schema({"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}})})
    shape = f"{path}/namespaces/default/shapes"
    center.api("POST", shape, {"apiVersion": "fidelity.example.com/v1", "kind": "Shape", "metadata": {"name": "a"}}, expect=(201,))
    assert refusal(center, f"{shape}/a", {"kind": None}).startswith("Object 'Kind' is missing in '{")
    assert refusal(center, f"{shape}/a", {"kind": 5}).startswith("couldn't get version/kind")
    other = center.api("PATCH", f"{shape}/a", {"apiVersion": "v9"}, content_type=MERGE, expect=(422,))
    assert other["message"] == 'Shape "a" is invalid: apiVersion: Invalid value: "v9": must be fidelity.example.com/v1'
    # Custom resources are not changed without saying which version is meant.
    whole = {"apiVersion": "fidelity.example.com/v1", "kind": "Shape", "metadata": {"name": "a"}}
    refused = center.api("PATCH", f"{shape}/a", [{"op": "replace", "path": "", "value": whole}], content_type=JSON_PATCH, expect=(422,))
    assert refused["message"] == ('shapes.fidelity.example.com "a" is invalid: metadata.resourceVersion: Invalid value: 0: '
                                  "must be specified for an update")
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    center.api("POST", deployments, {"metadata": {"name": "scaled"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pod}}, expect=(201,))
    scale = f"{deployments}/scaled/scale"
    assert refusal(center, scale, {"kind": "Frob"}).startswith('no kind "Frob" is registered for version "autoscaling/v1"')
    wrong = center.api("PATCH", scale, {"spec": {"replicas": "x"}}, content_type=MERGE, expect=(422,))
    assert wrong["message"].endswith("json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32")


def test_small_answers(center):
    """Found by asking a real kube-apiserver of 1.36.4 the same."""
    maps = "/api/v1/namespaces/default/configmaps"
    center.api("POST", maps, {"metadata": {"name": "small"}}, expect=(201,))
    export = center.api("GET", f"{maps}/small?export=true", expect=(400,))
    assert export["message"] == "the export parameter, deprecated since v1.14, is no longer supported"
    # Only a Table has rows that may include objects.
    center.api("GET", f"{maps}?includeObject=x")
    center.api("GET", f"{maps}?includeObject=x", accept=TABLE, expect=(400,))
    assert center.api("GET", "/version", accept="text/html", expect=(406,))["message"].endswith("Available representations: application/json")
    center.api("GET", "/apis/apps", accept=TABLE, expect=(406,))
    # The old form of a watch names an object, and is checked as a list.
    old = "/api/v1/watch/namespaces/default/configmaps"
    other = center.api("GET", f"{old}/small?timeoutSeconds=1&fieldSelector=metadata.name%3Dother", expect=(400,))
    assert other["message"] == "fieldSelector metadata.name doesn't match requested name"
    listed = center.api("GET", f"{old}?timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0", expect=(422,))
    assert "sendInitialEvents is forbidden for list" in listed["message"]
    broken = center.api("GET", f"{maps}?continue=x", expect=(400,))
    assert broken["message"].endswith("illegal base64 data at input byte 0")
    # A version of a group that only definitions serve is unknown to everybody.
    path = define(center, "voids", "Void", {"name": "v1", "schema": schema()}, group="void.example.com")
    status, headers, body = center.request("GET", path.replace("/v1", "/v2"))
    assert (status, body) == (404, b"404 page not found\n"), body
    refused = center.api("GET", f"{path}/namespaces/default/voids", accept="text/html", expect=(406,))
    assert refused["message"].endswith("application/json, application/yaml, application/vnd.kubernetes.protobuf")
    document = center.api("GET", "/openapi/v3/apis/void.example.com/v1")
    assert document["info"] == {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}
    one = document["paths"]["/apis/void.example.com/v1/namespaces/{namespace}/voids/{name}"]
    assert sorted(one["get"]["responses"]["200"]["content"]) == ["application/json", "application/yaml"]
    assert sorted(one["patch"]["responses"]) == ["200", "401"]
