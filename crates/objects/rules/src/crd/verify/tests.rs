use serde_json::{Value, json};

use super::*;
use crate::crd::{prepare, tests::gadgets};

fn plains(schema: Value) -> Value {
    let mut crd = json!({
        "metadata": { "name": "plains.example.com" },
        "spec": { "group": "example.com", "scope": "Namespaced", "conversion": { "strategy": "None" },
            "names": { "plural": "plains", "singular": "plain", "kind": "Plain", "listKind": "PlainList" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }] },
    });
    prepare(&mut crd, None);
    crd
}

fn refused(crd: &Value) -> Vec<String> {
    validate_definition(crd, None).iter().map(ToString::to_string).collect()
}

#[test]
fn a_good_definition_is_accepted() {
    let mut crd = gadgets();
    prepare(&mut crd, None);
    assert_eq!(refused(&crd), [""; 0]);
    assert_eq!(definition_warnings(&crd, None), [""; 0]);
}

#[test]
fn names_and_groups() {
    let cases: &[(&str, Value, &str)] = &[
        (
            "/metadata/name",
            json!("x.example.com"),
            "metadata.name: Invalid value: \"x.example.com\": must be spec.names.plural+\".\"+spec.group",
        ),
        (
            "/spec/names/kind",
            json!("plain list"),
            "spec.names.kind: Invalid value: \"plain list\": may have mixed case, but should otherwise match: a DNS-1035 label",
        ),
        (
            "/spec/names/listKind",
            json!("Plain"),
            "spec.names.listKind: Invalid value: \"Plain\": kind and listKind may not be the same",
        ),
        (
            "/spec/scope",
            json!("Everywhere"),
            "spec.scope: Unsupported value: \"Everywhere\": supported values: \"Cluster\", \"Namespaced\"",
        ),
        (
            "/spec/versions/0/storage",
            json!(false),
            "spec.versions: Invalid value: [{\"Name\":\"v1\",\"Served\":true,\"Storage\":false,\"Deprecated\":false,\"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}]: must have exactly one version marked as storage version",
        ),
        ("/spec/versions/0/name", json!("1"), "spec.versions[0].name: Invalid value: \"1\": a DNS-1035 label"),
        (
            "/spec/conversion/strategy",
            json!("Magic"),
            "spec.conversion.strategy: Unsupported value: \"Magic\": supported values: \"None\", \"Webhook\"",
        ),
        (
            "/spec/conversion/strategy",
            json!("Webhook"),
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
        ),
    ];
    for (pointer, value, expected) in cases {
        let mut crd = plains(json!({ "type": "object" }));
        *crd.pointer_mut(pointer).unwrap() = value.clone();
        let errors = refused(&crd);
        assert!(errors[0].starts_with(expected), "{pointer}: {errors:?}");
    }
    let mut crd = plains(json!({ "type": "object" }));
    crd["metadata"]["name"] = "plains.x.k8s.io".into();
    crd["spec"]["group"] = "x.k8s.io".into();
    assert_eq!(
        refused(&crd),
        [
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111"
        ]
    );
    crd["metadata"]["annotations"] = json!({ "api-approved.kubernetes.io": "unapproved, an experiment" });
    assert_eq!(refused(&crd), [""; 0]);
}

#[test]
fn several_versions_are_told_one_by_one() {
    let mut crd = plains(json!({ "type": "object" }));
    crd["spec"]["scope"] = "Everywhere".into();
    crd["spec"]["versions"] = json!([
        { "name": "v1", "served": true, "storage": true },
        { "name": "v2", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } } },
    ]);
    let errors = refused(&crd);
    assert_eq!(errors.len(), 4, "{errors:?}");
    assert_eq!(errors[1], "spec.versions[0].schema.openAPIV3Schema: Required value");
    assert!(errors[2].contains("\"Schema\":{\"OpenAPIV3Schema\":{\"ID\":\"\",\"Schema\":\"\",\"Ref\":null,\"Description\":\"\",\"Type\":\"object\",\"Nullable\":false"), "{}", errors[2]);
    assert!(errors[2].contains("\"XMapType\":null,\"XValidations\":null}},\"Subresources\":null"), "{}", errors[2]);
    assert_eq!(errors[3], "status.storedVersions: Invalid value: [\"v1\"]: must have the storage version v2");
}

#[test]
fn schemas() {
    const AT: &str = "spec.validation.openAPIV3Schema";
    let cases: &[(Value, &[&str])] = &[
        (
            json!({ "spec": { "properties": { "a": { "type": "string" } } }, "b": { "type": "array" } }),
            &[
                ".properties[b].items: Required value: must be specified",
                ".properties[spec].type: Required value: must not be empty for specified object fields",
            ],
        ),
        (
            json!({ "a": { "type": "integer", "default": "x" },
                "b": { "type": "array", "x-kubernetes-list-type": "map", "items": { "type": "object", "properties": { "k": { "type": "string" } } } },
                "c": { "type": "thing" } }),
            &[
                ".properties[a].default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
                ".properties[b].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
                ".properties[c].type: Unsupported value: \"thing\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
            ],
        ),
        (
            json!({ "spec": { "type": "object", "properties": { "a": { "type": "string" } },
                "x-kubernetes-validations": [{ "rule": "self.a > 5" }, { "rule": "self.nosuch == 1" }] } }),
            &[
                ".properties[spec].x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self.a \\u003e 5\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:8: found no matching overload for '_>_' applied to '(string, int)'\n | self.a > 5\n | .......^",
                ".properties[spec].x-kubernetes-validations[1].rule: Invalid value: {\"Rule\":\"self.nosuch == 1\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:5: undefined field 'nosuch'\n | self.nosuch == 1\n | ....^",
            ],
        ),
        (
            json!({ "l": { "type": "array", "maxItems": 9, "items": { "type": "string", "x-kubernetes-validations": [{ "rule": "self == oldSelf" }] } } }),
            &[
                ".properties[l].items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within spec.validation.openAPIV3Schema.properties[l]",
            ],
        ),
        (
            json!({ "a": { "type": "string", "pattern": "(" } }),
            &[
                ".properties[a].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`",
            ],
        ),
        (
            json!({ "a": { "type": "object", "properties": { "x": { "type": "string" } }, "oneOf": [{ "properties": { "y": { "minLength": 1 } } }, { "type": "object" }] } }),
            &[
                ".properties[a].oneOf[1].type: Forbidden: must be empty to be structural",
                ".properties[a].properties[y]: Required value: because it is defined in spec.validation.openAPIV3Schema.properties[a].oneOf[0].properties[y]",
            ],
        ),
        (
            json!({ "a": { "type": "object", "default": { "b": 1 }, "properties": {} }, "metadata": { "type": "object", "default": {} } }),
            &[
                ".properties[a].default: Invalid value: {\"b\":1}: must not have unknown fields",
                ".properties[metadata].default: Forbidden: must not be set in top-level metadata",
            ],
        ),
        (
            json!({ "a": { "type": "array", "uniqueItems": true, "items": { "type": "string" } }, "r": { "type": "string", "$ref": "#/x" } }),
            &[
                ".properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
                ".properties[r].$ref: Forbidden: $ref is not supported",
            ],
        ),
        (
            json!({ "s": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "object" } } }),
            &[
                ".properties[s].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
            ],
        ),
    ];
    for (properties, expected) in cases {
        let crd = plains(json!({ "type": "object", "properties": properties }));
        let expected: Vec<String> = expected.iter().map(|e| format!("{AT}{e}")).collect();
        assert_eq!(refused(&crd), expected, "{properties}");
    }
}

#[test]
fn updates_keep_what_may_not_change() {
    let mut old = gadgets();
    prepare(&mut old, None);
    crate::crd::accept(&mut old, [], "2026-01-01T00:00:00Z");
    let update = |change: &dyn Fn(&mut Value)| {
        let mut new = old.clone();
        change(&mut new);
        prepare(&mut new, Some(&old));
        validate_definition(&new, Some(&old)).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(update(&|_| {}), [""; 0]);
    assert_eq!(
        update(&|new| new["spec"]["scope"] = "Cluster".into()),
        ["spec.scope: Invalid value: \"Cluster\": field is immutable"]
    );
    let errors = update(&|new| {
        new["spec"]["versions"].as_array_mut().unwrap().remove(0);
    });
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(
        errors[1].starts_with(
            "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously"
        ),
        "{errors:?}"
    );
}

#[test]
fn literals_are_tried_and_reserved_words_are_names() {
    let with = |rule: &str| {
        let crd = plains(json!({ "type": "object", "properties": { "spec": { "type": "object",
            "properties": { "namespace": { "type": "string", "maxLength": 9 } },
            "x-kubernetes-validations": [{ "rule": rule }] } } }));
        validate_definition(&crd, None).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(with("self.namespace == 'x' && self.__namespace__.matches('^a+$')"), "");
    assert!(with("self.namespace.matches('[')").contains("<input>:1:24: invalid matches argument"));
    assert!(with("timestamp('x') < timestamp('2020-01-01T00:00:00Z')").contains("1:11: invalid timestamp argument"));
    assert!(with("duration('x') < duration('1h')").contains("1:10: invalid duration argument"));
}

#[test]
fn what_has_no_structural_form_is_told_once() {
    let crd = plains(json!({ "type": "object", "properties": {
        "a": { "type": "array", "items": [{ "type": "string" }] }, "b": { "$ref": "#/x" } } }));
    let errors: Vec<String> = validate_definition(&crd, None).iter().map(ToString::to_string).collect();
    assert!(!errors.is_empty() && errors.iter().all(|e| e.contains("Forbidden: ")), "{errors:?}");
}

#[test]
fn sets_of_objects_are_not_warned_of() {
    let items = json!({ "type": "object", "x-kubernetes-map-type": "atomic" });
    let crd = plains(json!({ "type": "object", "properties": {
        "a": { "type": "array", "x-kubernetes-list-type": "set", "items": items } } }));
    assert_eq!(definition_warnings(&crd, None), [""; 0]);
}

#[test]
fn unknown_formats_are_warned_of() {
    let crd = plains(json!({ "type": "object", "properties": { "a": { "type": "string", "format": "nonsense" } } }));
    assert_eq!(definition_warnings(&crd, None), ["unrecognized format \"nonsense\""]);
    assert_eq!(definition_warnings(&crd, Some(&crd)), [""; 0]);
}
