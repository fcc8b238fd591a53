//! What definitions do with objects, told by cases.

use codec::openapi::Dialect;
use schema::field::FieldErrors;
use serde_json::{Value, json};

use super::*;

/// A definition with a bit of everything.
pub(crate) fn gadgets() -> Value {
    serde_json::from_str(include_str!("testdata/gadgets.json")).unwrap()
}

pub(crate) fn compiled() -> Definition {
    Definition::compile(&gadgets()).unwrap()
}

fn gadget(spec: Value) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Gadget", "metadata": { "name": "c" }, "spec": spec })
}

fn texts(errors: &FieldErrors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn decoded(spec: Value) -> Value {
    let definition = compiled();
    let mut object = gadget(spec);
    definition.versions[0].decode(&mut object).unwrap();
    definition.versions[0].default(&mut object);
    object
}

const BLOCKED: &str = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
    correct the existing errors to complete validation";

#[test]
fn objects_are_pruned_and_defaulted() {
    let definition = compiled();
    let mut object = gadget(json!({
        "size": 5, "unknown": 1, "any": { "kept": { "deep": [1] } }, "items": [{ "name": "x", "lost": 1 }, { "name": "y", "value": 1 }],
        "port": "http", "maybe": null, "colour": null, "code": null, "pod": { "metadata": { "name": "x", "odd": 1 }, "spec": { "free": 1 } },
    }));
    object["other"] = true.into();
    object["metadata"]["odd"] = 1.into();
    let unknown = definition.versions[0].decode(&mut object).unwrap();
    assert_eq!(unknown, ["metadata.odd", "other", "spec.items[0].lost", "spec.unknown", "spec.pod.metadata.odd"]);
    definition.versions[0].default(&mut object);
    assert_eq!(
        object["spec"],
        json!({ "size": 5, "any": { "kept": { "deep": [1] } }, "items": [{ "name": "x", "value": 7 }, { "name": "y", "value": 1 }],
            "port": "http", "maybe": null, "colour": "red", "max": 50, "pod": { "metadata": { "name": "x" }, "spec": { "free": 1 } } })
    );
}

#[test]
fn wrong_values_are_told_as_upstream_tells_them() {
    let cases: &[(Value, &[&str])] = &[
        (json!({}), &["spec.size: Required value", BLOCKED]),
        (
            json!({ "size": 0, "colour": "pink", "code": "A", "mail": "nobody", "when": "today", "ratio": 0.3, "port": true }),
            &[
                "spec.code: Invalid value: \"A\": spec.code in body should be at least 2 chars long",
                "spec.colour: Unsupported value: \"pink\": supported values: \"red\", \"green\", \"blue\"",
                "spec.mail: Invalid value: \"nobody\": spec.mail in body must be of type email: \"nobody\"",
                "spec.port: Invalid value: \"boolean\": spec.port in body must be of type integer,string: \"boolean\"",
                "spec.ratio: Invalid value: 0.3: spec.ratio in body should be a multiple of 0.5",
                "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
                "spec.when: Invalid value: \"today\": spec.when in body must be of type date-time: \"today\"",
                BLOCKED,
            ],
        ),
        (
            json!({ "size": "big", "strings": { "a": 1 } }),
            &[
                "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
                "spec.strings.a: Invalid value: \"integer\": spec.strings.a in body must be of type string: \"integer\"",
                BLOCKED,
            ],
        ),
        (
            json!({ "size": 1.5 }),
            &[
                "spec.size: Invalid value: \"float64\": spec.size in body must be of type int32: \"float64\"",
                "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.size",
                BLOCKED,
            ],
        ),
        (
            json!({ "size": 1, "when": 3 }),
            &["spec.when: Invalid value: \"int64\": spec.when in body must be of type date-time: \"int64\"", BLOCKED],
        ),
        (
            json!({ "size": 101, "code": "abcdefgh", "tags": ["a", "b", "c", "d"], "strings": { "a": "1", "b": "2", "c": "3" } }),
            &[
                "spec.code: Too long: may not be more than 5 bytes",
                "spec.size: Invalid value: 101: spec.size in body should be less than or equal to 100",
                "spec.strings: Too many: 3: must have at most 2 items",
                "spec.tags: Too many: 4: must have at most 3 items",
                BLOCKED,
            ],
        ),
        (
            json!({ "size": 5, "choice": { "a": "1", "b": "2" } }),
            &[
                "<nil>: Invalid value: \"\": \"spec.choice\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
            ],
        ),
        (
            json!({ "size": 6, "pod": { "metadata": { "name": "Bad Name" } } }),
            &["spec.pod.apiVersion: Required value", "spec.pod.kind: Required value", BLOCKED],
        ),
    ];
    for (spec, expected) in cases {
        let errors = compiled().versions[0].validate(&decoded(spec.clone()));
        assert_eq!(texts(&errors), *expected, "{spec}");
    }
}

#[test]
fn duplicates_in_lists_are_told_once() {
    let spec = json!({ "size": 5, "tags": ["a", "a", "a"], "items": [{ "name": "x" }, { "name": "x" }] });
    let errors = compiled().versions[0].validate(&decoded(spec));
    assert_eq!(
        texts(&errors),
        ["spec.items[1]: Duplicate value: {\"name\":\"x\"}", "spec.tags[1]: Duplicate value: \"a\""]
    );
}

#[test]
fn unchanged_values_are_let_pass() {
    let definition = compiled();
    let old = decoded(json!({ "size": 500, "code": "A", "items": [{ "name": "x", "value": "no" }], "colour": "pink" }));
    let mut new = old.clone();
    new["spec"]["code"] = "ok".into();
    let errors = definition.versions[0].validate_update(&new, &old);
    assert!(
        !texts(&errors).iter().any(|e| e.contains("spec.code") || e.contains("value") && e.contains("items")),
        "{errors:?}"
    );
    new["spec"]["code"] = "B".into();
    let errors = definition.versions[0].validate_update(&new, &old);
    assert_eq!(texts(&errors)[0], "spec.code: Invalid value: \"B\": spec.code in body should be at least 2 chars long");
}

#[test]
fn rules_are_told_as_upstream_tells_them() {
    let cases: &[(Value, &[&str])] = &[
        (json!({ "size": 60 }), &["spec: Invalid value: size may not exceed max"]),
        (json!({ "size": 6, "replicas": 12 }), &["spec.replicas: Forbidden: too many replicas"]),
        (json!({ "size": 6, "replicas": 21 }), &["spec.replicas: Forbidden: far too many replicas"]),
        (json!({ "size": 6, "fixed": "anything" }), &[]),
    ];
    for (spec, expected) in cases {
        let errors = compiled().versions[0].validate(&decoded(spec.clone()));
        assert_eq!(texts(&errors), *expected, "{spec}");
    }
    let mut other = gadget(json!({ "size": 6 }));
    other["kind"] = "Widget".into();
    let expected = [
        "kind: Invalid value: \"Widget\": must be Gadget",
        "spec: Invalid value: \"object\": no such key: max evaluating rule: size may not exceed max",
    ];
    assert_eq!(texts(&compiled().versions[0].validate(&other)), expected);
}

#[test]
fn transition_rules_look_at_the_old_object() {
    let definition = compiled();
    let old = decoded(json!({ "size": 5, "fixed": "one" }));
    for (fixed, expected) in [("one", None), ("two", Some("spec.fixed: Invalid value: \"two\": fixed is immutable"))] {
        let new = decoded(json!({ "size": 5, "fixed": fixed }));
        let errors = texts(&definition.versions[0].validate_update(&new, &old));
        assert_eq!(errors.first().map(String::as_str), expected);
    }
    assert!(definition.versions[0].validate_update(&decoded(json!({ "size": 5 })), &old).is_empty());
    // What was wrong before and did not change is let pass, rule or not.
    let wrong = decoded(json!({ "size": 60, "fixed": "one" }));
    let mut labelled = wrong.clone();
    labelled["metadata"]["labels"] = json!({ "a": "b" });
    assert!(definition.versions[0].validate_update(&labelled, &wrong).is_empty());
}

#[test]
fn versions_are_ordered_as_kubernetes_orders_them() {
    let mut versions = ["foo1", "v1", "v11alpha2", "v10", "foo10", "v1beta1", "v3beta1", "v2", "v12alpha1", "v11beta2"];
    versions.sort_by(|a, b| definition::compare_versions(a, b));
    assert_eq!(
        versions,
        ["v10", "v2", "v1", "v11beta2", "v3beta1", "v1beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
    );
}

#[test]
fn scale_reads_and_writes_by_path() {
    let definition = compiled();
    let version = &definition.versions[0];
    let mut object = decoded(json!({ "size": 5 }));
    let error = version.scale_get(&object).unwrap().unwrap_err();
    assert_eq!(error.message, "Internal error occurred: the spec replicas field \".spec.replicas\" does not exist");
    version.scale_set(&mut object, &json!({ "spec": { "replicas": 4 } })).unwrap();
    object["status"] = json!({ "replicas": 2, "selector": "app=a" });
    let scale = version.scale_get(&object).unwrap().unwrap();
    assert_eq!(scale["spec"], json!({ "replicas": 4 }));
    assert_eq!(scale["status"], json!({ "replicas": 2, "selector": "app=a" }));
    assert!(definition.versions[1].scale_get(&object).is_none());
}

#[test]
fn reading_as_another_version_prunes() {
    let definition = compiled();
    let mut object = decoded(json!({ "size": 5, "colour": "blue" }));
    assert!(definition.relabel(&mut object, "v2"));
    assert_eq!(
        object,
        json!({ "apiVersion": "example.com/v2", "kind": "Gadget", "metadata": { "name": "c" }, "spec": { "size": 5 } })
    );
    assert!(!definition.relabel(&mut object, "v3"));
}

#[test]
fn names_are_accepted_unless_taken() {
    let now = "2026-01-01T00:00:00Z";
    let mut first = gadgets();
    prepare(&mut first, None);
    assert_eq!(
        first["status"],
        json!({ "acceptedNames": { "kind": "", "plural": "" }, "conditions": null, "storedVersions": ["v1"] })
    );
    assert!(accept(&mut first, [], now));
    assert_eq!(first["status"]["acceptedNames"], first["spec"]["names"]);
    assert_eq!(
        first["status"]["conditions"],
        json!([
            { "type": "NamesAccepted", "status": "True", "lastTransitionTime": now, "reason": "NoConflicts", "message": "no conflicts found" },
            { "type": "Established", "status": "True", "lastTransitionTime": now, "reason": "InitialNamesAccepted", "message": "the initial names have been accepted" },
        ])
    );
    assert!(!accept(&mut first, [], "2027-01-01T00:00:00Z"));
    let mut second = gadgets();
    second["metadata"]["name"] = "things.example.com".into();
    second["spec"]["names"] =
        json!({ "plural": "things", "singular": "gadget", "kind": "Thing", "listKind": "ThingList" });
    prepare(&mut second, None);
    accept(&mut second, [&first], now);
    let condition = &second["status"]["conditions"][0];
    assert_eq!(
        (condition["reason"].as_str(), condition["message"].as_str()),
        (Some("SingularConflict"), Some("\"gadget\" is already in use"))
    );
    assert_eq!(second["status"]["conditions"][1]["status"], "False");
}

#[test]
fn bodies_of_unknown_versions_declare_nothing() {
    let definition = compiled();
    let mut object = gadget(json!({ "size": 6 }));
    object["apiVersion"] = "example.com/v9".into();
    assert_eq!(definition.decode(&mut object), Ok(vec!["spec".to_owned()]));
    let mut other = gadget(json!({ "size": 6, "unknown": 1 }));
    other["kind"] = "Widget".into();
    assert_eq!(definition.decode(&mut other), Ok(vec![]));
    let mut wrong = gadget(json!({ "size": 6 }));
    wrong["metadata"]["labels"] = json!({ "a": 1 });
    let why = "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string";
    assert_eq!(definition.decode(&mut wrong), Err(why.to_owned()));
}

#[test]
fn finalizers_without_a_domain_are_warned_of() {
    let object = |finalizers: Value| json!({ "metadata": { "finalizers": finalizers } });
    let new = object(json!(["example.com/ok", "orphan", "bare", "a.b"]));
    let tail = "to avoid accidental conflicts with other finalizer writers";
    let expected = [
        format!("metadata.finalizers: \"a.b\": prefer a domain-qualified finalizer name including a path (/) {tail}"),
        format!("metadata.finalizers: \"bare\": prefer a domain-qualified finalizer name {tail}"),
    ];
    assert_eq!(finalizer_warnings(&new, None), expected);
    assert!(finalizer_warnings(&new, Some(&new)).is_empty());
}

#[test]
fn webhooks_are_asked_and_their_answers_checked() {
    let from = json!({ "apiVersion": "example.com/v1", "kind": "Gadget", "metadata": { "name": "a", "uid": "u", "labels": { "x": "y" } } });
    let review = conversion_review("id", "v1", "example.com/v2", std::slice::from_ref(&from));
    assert_eq!(review["request"]["objects"][0], from);
    let mut to = from.clone();
    to["apiVersion"] = "example.com/v2".into();
    to["metadata"] = json!({ "name": "a", "uid": "u", "annotations": { "n": "1" }, "generation": 9 });
    let answer = |to: &Value| {
        json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "response": { "uid": "id", "result": { "status": "Success" }, "convertedObjects": [to] } })
    };
    let objects = converted("id", "example.com/v2", std::slice::from_ref(&from), &answer(&to)).unwrap();
    assert_eq!(objects[0]["metadata"], json!({ "name": "a", "uid": "u", "annotations": { "n": "1" } }));
    to["metadata"]["name"] = "b".into();
    let why = converted("id", "example.com/v2", std::slice::from_ref(&from), &answer(&to)).unwrap_err();
    assert_eq!(why, "returned invalid converted object at index 0: must have the same name: a != b");
    let failed = json!({ "apiVersion": "apiextensions.k8s.io/v1", "response": { "uid": "id", "result": { "status": "Failure", "message": "no" } } });
    assert_eq!(converted("id", "example.com/v2", &[from], &failed), Err("no".to_owned()));
}

#[test]
fn openapi_shows_what_objects_have() {
    let definition = compiled();
    let version = &definition.versions[0];
    let schema = definition.openapi(version, Dialect::V3, true).object.1;
    let meta = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(schema["properties"]["metadata"]["allOf"][0]["$ref"], meta);
    assert_eq!(
        schema["x-kubernetes-group-version-kind"],
        json!([{ "group": "example.com", "version": "v1", "kind": "Gadget" }])
    );
    let spec = &schema["properties"]["spec"]["properties"];
    assert_eq!(
        spec["port"],
        json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true })
    );
    assert_eq!(spec["pod"]["required"], json!(["kind", "apiVersion"]));
    assert_eq!(spec["pod"]["properties"]["metadata"]["allOf"][0]["$ref"], meta);
    assert_eq!(spec["choice"]["oneOf"], json!([{ "required": ["a"] }, { "required": ["b"] }]));
    let v2 = definition.openapi(version, Dialect::V2, true);
    assert_eq!((v2.object.0.as_str(), v2.list.0.as_str()), ("com.example.v1.Gadget", "com.example.v1.GadgetList"));
    let spec = &v2.object.1["properties"]["spec"]["properties"];
    assert_eq!(spec["maybe"], json!({}));
    assert!(spec["choice"].get("oneOf").is_none() && spec["pod"].get("properties").is_none());
    assert!(spec["colour"].get("default").is_none());
    let bare = definition.openapi(version, Dialect::V2, false).object.1;
    assert_eq!((&bare["type"], bare.get("properties")), (&json!("object"), None));
}

#[test]
fn definitions_of_the_kind_people_write() {
    let shapes: Value = serde_json::from_str(include_str!("testdata/shapes.json")).unwrap();
    for shape in shapes.as_array().unwrap() {
        let what = &shape["what"];
        let mut crd = gadgets();
        crd["spec"]["versions"] = json!([{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": shape["schema"] } }]);
        prepare(&mut crd, None);
        assert_eq!(texts(&validate_definition(&crd, None)), [""; 0], "{what}");
        let definition = Definition::compile(&crd).unwrap();
        let version = &definition.versions[0];
        let read = |object: &Value| {
            let mut object = object.clone();
            object["apiVersion"] = "example.com/v1".into();
            object["kind"] = "Gadget".into();
            assert_eq!(version.decode(&mut object), Ok(vec![]), "{what}");
            version.default(&mut object);
            texts(&version.validate(&object))
        };
        for object in shape["good"].as_array().unwrap() {
            assert_eq!(read(object), [""; 0], "{what}");
        }
        for case in shape["bad"].as_array().unwrap() {
            assert_eq!(read(&case[0]).first().map(String::as_str), case[1].as_str(), "{what}");
        }
    }
}

mod laws {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::{Definition, compiled, gadget, gadgets, validate_definition};
    use cel;

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z]{0,4}".prop_map(Value::from),
            any::<f32>().prop_filter("JSON has no infinities", |f| f.is_finite()).prop_map(Value::from),
        ];
        let keys = prop_oneof![
            prop::sample::select(vec![
                "size",
                "max",
                "colour",
                "code",
                "fixed",
                "replicas",
                "port",
                "maybe",
                "any",
                "strings",
                "tags",
                "items",
                "choice",
                "pod",
                "name",
                "value",
                "spec",
                "status",
                "metadata",
                "apiVersion",
                "kind",
                "labels",
            ])
            .prop_map(str::to_owned),
            "[a-z]{1,3}",
        ];
        leaf.prop_recursive(4, 32, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(keys.clone(), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn pruning_and_defaulting_settle_at_once(spec in any_json(), status in any_json(), metadata in any_json()) {
            let definition = compiled();
            let version = &definition.versions[0];
            let mut object = gadget(spec);
            object["status"] = status;
            object["metadata"] = metadata;
            version.prune(&mut object);
            let pruned = object.clone();
            prop_assert!(version.prune(&mut object).is_empty());
            prop_assert_eq!(&object, &pruned);
            version.default(&mut object);
            let defaulted = object.clone();
            version.default(&mut object);
            version.prune(&mut object);
            prop_assert_eq!(&object, &defaulted);
            // Nothing that is wrong with it before and after is held against an update.
            let errors = version.validate_update(&object, &object);
            prop_assert!(errors.iter().all(|e| !e.message.contains("in body")), "{:?}", errors);
            version.validate(&object);
        }

        #[test]
        fn any_definition_is_judged_and_compiled(schema in any_json(), names in any_json()) {
            let mut crd = gadgets();
            crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
            crd["spec"]["names"] = names;
            validate_definition(&crd, None);
            drop(Definition::compile(&crd));
        }

        #[test]
        fn any_text_is_an_expression_or_not(source in "[a-z0-9 .()\\[\\]'\"?:+*/<>=!&|{},-]{0,40}") {
            drop(cel::Expression::parse(&source));
        }
    }
}
