//! Objects that must be refused, with the exact words, and objects that must not be.

use serde_json::{Value, json};

use super::*;

fn resource(group: &str, kind: &str, namespaced: bool) -> Resource {
    Resource {
        group: group.into(),
        version: "v1".into(),
        resource: "things".into(),
        singular: "thing".into(),
        kind: kind.into(),
        namespaced,
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs: Vec::new(),
        subresources: Vec::new(),
        ty: None,
    }
}

/// The metadata that a stored object has.
fn named(mut object: Value, namespaced: bool) -> Value {
    let meta = &mut object["metadata"];
    if meta["name"].is_null() {
        meta["name"] = "a".into();
    }
    meta["resourceVersion"] = "1".into();
    meta["uid"] = "u".into();
    if namespaced && meta["namespace"].is_null() {
        meta["namespace"] = "ns".into();
    }
    object
}

fn texts(errors: FieldErrors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

pub(super) fn created(group: &str, kind: &str, object: Value) -> Vec<String> {
    let namespaced = !matches!(kind, "Namespace" | "ClusterRole" | "ClusterRoleBinding");
    texts(create(&resource(group, kind, namespaced), &named(object, namespaced)))
}

pub(super) fn updated(group: &str, kind: &str, old: Value, new: Value) -> Vec<String> {
    let namespaced = !matches!(kind, "Namespace" | "ClusterRole" | "ClusterRoleBinding");
    texts(update(&resource(group, kind, namespaced), "", &named(new, namespaced), &named(old, namespaced)))
}

#[test]
fn metadata() {
    let cases = [
        (json!({"name": "a", "namespace": "ns"}), vec![]),
        (json!({"namespace": "ns"}), vec!["metadata.name: Required value: name or generateName is required"]),
        (json!({"name": "a"}), vec!["metadata.namespace: Required value"]),
        (
            json!({"name": "a", "namespace": "ns", "finalizers": ["not ok"], "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": ""}]}),
            vec![
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
                "metadata.finalizers: Invalid value: \"not ok\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
                "metadata.finalizers[0]: Invalid value: \"not ok\": name is neither a standard finalizer name nor is it fully qualified",
            ],
        ),
        (
            json!({"name": "a", "namespace": "ns", "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1", "controller": true},
                {"apiVersion": "v1", "kind": "Pod", "name": "y", "uid": "2", "controller": true}]}),
            vec![
                "metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"x\",\"uid\":\"1\",\"controller\":true},{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"y\",\"uid\":\"2\",\"controller\":true}]: Only one reference can have Controller set to true. Found \"true\" in references for Pod/x and Pod/y",
            ],
        ),
        (
            json!({"name": "a", "namespace": "ns", "annotations": {"UPPER.example/x": "a".repeat(256 * 1024)}}),
            vec!["metadata.annotations: Too long: may not be more than 262144 bytes"],
        ),
        (
            json!({"name": "a", "namespace": "ns", "managedFields": [{"operation": "Guess", "fieldsType": "V2"}]}),
            vec![
                "metadata.managedFields[0].operation: Invalid value: \"Guess\": must be `Apply` or `Update`",
                "metadata.managedFields[0].fieldsType: Invalid value: \"V2\": must be `FieldsV1`",
            ],
        ),
    ];
    for (meta, want) in cases {
        let errors = create(&resource("", "ConfigMap", true), &json!({"metadata": meta}));
        assert_eq!(texts(errors), want, "{meta}");
    }
    let errors = create(&resource("", "Namespace", false), &json!({"metadata": {"name": "a.b", "namespace": "x"}}));
    assert_eq!(
        texts(errors),
        [
            "metadata.name: Invalid value: \"a.b\": must not contain dots",
            "metadata.namespace: Forbidden: not allowed on this type"
        ]
    );
}

#[test]
fn metadata_of_updates() {
    let old = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}});
    let new =
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b", "example.com/more"]}});
    let want = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/more\"}";
    assert_eq!(updated("", "ConfigMap", old, new), [want, want]);

    let mut changed = named(json!({}), true);
    changed["metadata"]["uid"] = "other".into();
    let errors = update(&resource("", "Secret", true), "", &changed, &named(json!({}), true));
    let want = "metadata.uid: Invalid value: \"other\": field is immutable";
    assert_eq!(texts(errors), [want, want]);

    // Each of four checks finds it, as upstream's do.
    let bad = json!({"metadata": {"labels": {"a": "not valid!"}}});
    assert_eq!(updated("", "ConfigMap", json!({}), bad).len(), 4);
}

#[test]
fn config_maps_and_secrets() {
    let frozen = json!({"immutable": true, "data": {"k": "v"}});
    assert_eq!(
        updated("", "ConfigMap", frozen, json!({"immutable": false, "data": {"k": "w"}})),
        [
            "immutable: Forbidden: field is immutable when `immutable` is set",
            "data: Forbidden: field is immutable when `immutable` is set"
        ]
    );
    assert_eq!(
        created("", "ConfigMap", json!({"data": {"a": "x".repeat(1_100_000)}})),
        ["[]: Too long: may not be more than 1048576 bytes"]
    );
    assert_eq!(
        created("", "ConfigMap", json!({"data": {"k": "v"}, "binaryData": {"k": "AA=="}})),
        ["data[k]: Invalid value: \"k\": duplicate of key present in binaryData"]
    );
    assert_eq!(
        created("", "Secret", json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "AA=="}})),
        ["data[tls.key]: Required value"]
    );
    assert_eq!(
        created("", "Secret", json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "eA=="}})),
        [
            "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": invalid character 'x' looking for beginning of value"
        ]
    );
    assert_eq!(
        updated("", "Secret", json!({"type": "example.com/a"}), json!({"type": "example.com/b"})),
        ["type: Invalid value: \"example.com/b\": field is immutable"]
    );
}

#[test]
fn roles_and_bindings() {
    let group = "rbac.authorization.k8s.io";
    assert_eq!(
        created(
            group,
            "Role",
            json!({"metadata": {"name": "system:x"}, "rules": [
            {"apiGroups": [""], "resources": ["pods"]}, {"nonResourceURLs": ["/x"], "verbs": ["get"]}]})
        ),
        [
            "rules[0].verbs: Required value: verbs must contain at least one value",
            "rules[1].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
        ]
    );
    let role = json!({"apiGroup": group, "kind": "ClusterRole", "name": "view"});
    assert_eq!(
        created(
            group,
            "RoleBinding",
            json!({"roleRef": {"apiGroup": group, "kind": "Gadget"},
            "subjects": [{"kind": "Martian", "name": "m"}]})
        ),
        [
            "roleRef.kind: Unsupported value: \"Gadget\": supported values: \"Role\", \"ClusterRole\"",
            "roleRef.name: Required value",
            "subjects[0].kind: Unsupported value: \"Martian\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
        ]
    );
    let mut other = role.clone();
    other["name"] = "edit".into();
    assert_eq!(
        updated(group, "RoleBinding", json!({"roleRef": role}), json!({"roleRef": other})),
        [
            "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"ClusterRole\",\"Name\":\"edit\"}: cannot change roleRef"
        ]
    );
}
