//! Work grows with what a client sends, and not with its square.
//!
//! For lists of built-in kinds an object with many items is made and taken through what a write does: reading,
//! conforming, defaulting, validating, patching, applying. Eight times the items may take little more than eight times
//! the time; quadratic work would take 64 times. The kinds that people use are tried, and all of them with
//! SELVEDGE_SCALING=all.

use std::collections::HashSet;
use std::time::Instant;

use codec::decode;
use patch::apply;
use schema::{Schema, Shape, TypeId, builtin, catalogue};
use selvedge_rules::crd::{Definition, validate_definition};
use selvedge_rules::{defaults, strategy, validate};
use serde_json::{Map, Value, json};

const FEW: usize = 500;
const TIMES: usize = 8;
/// More than this for so many times the items is not linear. Sorting, maps and memory take a little more.
const MOST: f64 = 24.0;
/// Shorter times than this say nothing.
const SHORT: f64 = 0.08;

const USED: [&str; 18] = [
    "ConfigMap",
    "Pod",
    "Service",
    "StatefulSet",
    "Job",
    "Endpoints",
    "EndpointSlice",
    "Ingress",
    "NetworkPolicy",
    "ClusterRole",
    "RoleBinding",
    "ValidatingWebhookConfiguration",
    "ValidatingAdmissionPolicy",
    "HorizontalPodAutoscaler",
    "Node",
    "ResourceQuota",
    "PersistentVolume",
    "CertificateSigningRequest",
];

fn cost(work: &dyn Fn(usize), n: usize) -> f64 {
    let begin = Instant::now();
    work(n);
    begin.elapsed().as_secs_f64()
}

/// Notes it unless the work for many is about that many times the work for few.
fn linear(name: &str, work: &dyn Fn(usize), slow: &mut Vec<String>) {
    // Whatever disturbs a measurement makes it longer, so the shortest counts.
    let (mut many, mut few) = (f64::MAX, f64::MAX);
    for _ in 0..5 {
        many = many.min(cost(work, FEW * TIMES));
        if many < SHORT {
            return;
        }
        few = (0..3).map(|_| cost(work, FEW)).fold(few, f64::min);
        if many / few < MOST {
            return;
        }
    }
    let (ratio, ms) = (many / few, many * 1e3);
    slow.push(format!("{name}: {TIMES} times the items take {ratio:.1} times as long ({ms:.0} ms)"));
}

/// A value of a type. `n` makes texts and numbers of different items differ; lists below have one item.
fn sample(schema: &Schema, ty: TypeId, n: usize, depth: usize) -> Option<Value> {
    Some(match schema.shape(ty) {
        Shape::Any | Shape::FieldsV1 => return None,
        Shape::Boolean => true.into(),
        Shape::Integer { .. } => (n % 60_000 + 1).into(),
        Shape::Number => (n as f64).into(),
        Shape::String => format!("n{n}").into(),
        Shape::Bytes => "YQ==".into(),
        Shape::IntOrString => (n % 60_000 + 1).into(),
        Shape::Quantity => n.to_string().into(),
        Shape::Time => "2024-01-01T00:00:00Z".into(),
        Shape::MicroTime => "2024-01-01T00:00:00.000000Z".into(),
        Shape::Duration => "1s".into(),
        Shape::Array { items, .. } => {
            if depth == 0 {
                return None;
            }
            json!([sample(schema, *items, n, depth - 1)?])
        }
        Shape::Map { values, .. } => {
            if depth == 0 {
                return None;
            }
            json!({ format!("k{n}"): sample(schema, *values, n, depth - 1)? })
        }
        Shape::Struct(s) => {
            let mut map = Map::new();
            for field in &s.fields {
                let deep = matches!(schema.shape(field.ty), Shape::Struct(_) | Shape::Array { .. } | Shape::Map { .. });
                if depth == 0 && deep {
                    continue;
                }
                if let Some(value) = sample(schema, field.ty, n, depth.saturating_sub(1)) {
                    map.insert(field.name.to_string(), value);
                }
            }
            Value::Object(map)
        }
    })
}

/// The paths of all lists and maps of a kind, down to some depth.
fn lists(schema: &Schema, ty: TypeId, path: &[String], depth: usize, out: &mut Vec<Vec<String>>) {
    let Shape::Struct(s) = schema.shape(ty) else { return };
    for field in &s.fields {
        let mut path = path.to_vec();
        path.push(field.name.to_string());
        match schema.shape(field.ty) {
            Shape::Struct(_) if depth > 0 => lists(schema, field.ty, &path, depth - 1, out),
            Shape::Array { items, .. } => {
                if depth > 0 {
                    let mut below = path.clone();
                    below.push("0".to_owned());
                    lists(schema, *items, &below, depth - 1, out);
                }
                out.push(path);
            }
            Shape::Map { .. } => out.push(path),
            _ => {}
        }
    }
}

/// An object that has `n` items in the list at that path, all the same ones if they repeat.
fn object(schema: &Schema, ty: TypeId, path: &[String], n: usize, repeat: bool) -> Option<Value> {
    let (first, rest) = match path.split_first() {
        Some(split) => split,
        None => {
            let number = |i: usize| if repeat { i / 2 } else { i };
            return Some(match schema.shape(ty) {
                Shape::Array { items, .. } => {
                    (0..n).map(|i| sample(schema, *items, number(i), 1)).collect::<Option<Vec<_>>>()?.into()
                }
                Shape::Map { values, .. } => {
                    let entry = |i: usize| Some((format!("k{i}"), sample(schema, *values, i, 1)?));
                    Value::Object((0..n).map(entry).collect::<Option<Map<_, _>>>()?)
                }
                _ => return None,
            });
        }
    };
    match schema.shape(ty) {
        Shape::Array { items, .. } if first == "0" => Some(json!([object(schema, *items, rest, n, repeat)?])),
        Shape::Struct(s) => {
            let inner = object(schema, s.field(first)?.ty, rest, n, repeat)?;
            Some(json!({ first: inner }))
        }
        _ => None,
    }
}

/// What a create, an update, a patch and an apply of such an object do.
fn write(resource: &catalogue::Resource, ty: TypeId, body: &[u8]) {
    let schema = builtin();
    let Ok(parsed) = decode::parse(body, decode::Format::Json) else { return };
    let mut value = parsed.value;
    let Ok(unknown) = decode::conform(schema, ty, &mut value) else { return };
    drop(decode::strict_errors(body, decode::Format::Json, parsed.duplicates, unknown));
    defaults::apply(&resource.group, &resource.version, &resource.kind, &mut value);
    let time = "2024-01-01T00:00:00Z";
    let reset = apply::reset_fields(&resource.group, &resource.resource, "", true);
    let api_version = resource.api_version();
    let context = apply::Context {
        schema,
        ty,
        api_version: &api_version,
        kind: &resource.kind,
        manager: "m",
        subresource: "",
        now: time,
        reset,
        versions: None,
    };
    let mut new = value.clone();
    apply::track_update(&context, None, &mut new);
    drop(validate::create(resource, &new));
    drop(strategy::warnings(resource, &new, None));
    let errors = validate::update(resource, "", &new, &value);
    drop(schema::status::Status::invalid("", "", "", &errors));
    drop(validate::update(resource, "status", &new, &value));
    drop(strategy::warnings(resource, &new, Some(&value)));
    let mut patched = new.clone();
    let _ = patch::strategic(schema, ty, &mut patched, &value);
    apply::track_update(&context, Some(&new), &mut patched);
    if let Ok(applied) = apply::apply(&context, Some(&value), &value, true) {
        let mut again = applied.clone();
        apply::keep_times(&value, &mut again);
        drop(apply::apply(&apply::Context { manager: "other", ..context }, Some(&applied), &value, false));
    }
    drop(codec::proto::encode(schema, ty, &value));
}

/// The struct that a path leads through last, and the name of its list: what is tried once for all kinds that have it.
fn place(schema: &Schema, ty: TypeId, path: &[String]) -> Option<(TypeId, String)> {
    let (last, before) = path.split_last()?;
    let mut at = ty;
    for step in before {
        at = match schema.shape(at) {
            Shape::Array { items, .. } => *items,
            Shape::Struct(s) => s.field(step)?.ty,
            _ => return None,
        };
    }
    Some((at, last.clone()))
}

#[test]
fn lists_of_built_in_kinds() {
    let schema = builtin();
    let all = std::env::var("SELVEDGE_SCALING").is_ok_and(|what| what == "all");
    let mut slow = Vec::new();
    let mut tried = HashSet::new();
    for resource in catalogue::builtin() {
        let Some(ty) = resource.ty.filter(|_| all || USED.contains(&&*resource.kind)) else { continue };
        let mut paths = Vec::new();
        lists(schema, ty, &[], if all { 6 } else { 3 }, &mut paths);
        for path in paths {
            if path[0] == "metadata" && &*resource.kind != "ConfigMap" || !tried.insert(place(schema, ty, &path)) {
                continue;
            }
            // Every item comes twice, so there are both different ones and repeated ones.
            let work = |n: usize| {
                let Some(mut value) = object(schema, ty, &path, n, true) else { return };
                value["apiVersion"] = resource.api_version().into();
                value["kind"] = (*resource.kind).into();
                if !value["metadata"].is_object() {
                    value["metadata"] = json!({});
                }
                value["metadata"]["name"] = "x".into();
                write(resource, ty, value.to_string().as_bytes());
            };
            linear(&format!("{}.{}", resource.kind, path.join(".")), &work, &mut slow);
        }
    }
    assert!(tried.len() > 100, "{}", tried.len());
    assert!(slow.is_empty(), "quadratic work:\n{}", slow.join("\n"));
}

#[test]
fn managers_and_their_fields() {
    let ty = builtin().of_kind("", "v1", "ConfigMap").unwrap();
    let resource = catalogue::find("", "v1", "configmaps").unwrap();
    let entry = |i: usize, operation: &str, field: usize| {
        json!({"manager": format!("m{i}"), "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
            "time": "2024-01-01T00:00:00Z", "fieldsV1": {"f:data": {format!("f:k{field}"): {}}}})
    };
    let mut slow = Vec::new();
    for (name, operation) in [("appliers", "Apply"), ("updaters", "Update")] {
        let work = |n: usize| {
            let data: Map<String, Value> = (0..n).map(|i| (format!("k{i}"), "v".into())).collect();
            let entries: Vec<Value> = (0..n).map(|i| entry(i, operation, i)).collect();
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
                "metadata": {"name": "x", "uid": "u", "managedFields": entries}});
            write(resource, ty, object.to_string().as_bytes());
        };
        linear(name, &work, &mut slow);
    }
    assert!(slow.is_empty(), "quadratic work:\n{}", slow.join("\n"));
}

#[test]
fn custom_resources_and_their_definitions() {
    let definition = |n: usize| {
        let properties: Map<String, Value> = (0..n)
            .map(|i| (format!("p{i}"), json!({"type": "string", "enum": ["a", "b"], "description": "d"})))
            .collect();
        let required: Vec<String> = (0..n).map(|i| format!("p{i}")).collect();
        let many: Vec<String> = (0..n).map(|i| format!("e{i}")).collect();
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "as.g.io"},
            "spec": {"group": "g.io", "scope": "Namespaced", "names": {"plural": "as", "singular": "a", "kind": "A", "listKind": "AList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "all": {"type": "object", "properties": properties, "required": required},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "unique": {"type": "array", "items": {"type": "string", "enum": many}},
                "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}}}}}}]},
            "status": {"storedVersions": ["v1"]}})
    };
    let mut slow = Vec::new();
    let define = |n: usize| {
        let crd = definition(n);
        drop(validate_definition(&crd, None));
        drop(validate_definition(&crd, Some(&crd)));
        drop(Definition::compile(&crd).unwrap().versions[0].body());
    };
    linear("a definition", &define, &mut slow);
    for repeat in [1, 2] {
        let work = |n: usize| {
            let compiled = Definition::compile(&definition(n)).unwrap();
            let version = &compiled.versions[0];
            let all: Map<String, Value> = (0..n).map(|i| (format!("p{i}"), "a".into())).collect();
            let texts: Vec<String> = (0..n).map(|i| format!("e{}", i / repeat)).collect();
            let map: Vec<Value> = (0..n).map(|i| json!({"k": format!("e{}", i / repeat)})).collect();
            let mut object = json!({"apiVersion": "g.io/v1", "kind": "A", "metadata": {"name": "x"},
                "all": all, "set": texts, "unique": texts, "map": map});
            version.decode(&mut object).unwrap();
            version.default(&mut object);
            drop(version.validate(&object));
            drop(version.validate_update(&object, &object));
        };
        linear(&format!("a custom resource, each item {repeat} times"), &work, &mut slow);
    }
    assert!(slow.is_empty(), "quadratic work:\n{}", slow.join("\n"));
}
