use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use schema::{Shape, builtin};
use serde_json::{Map, json};

use super::*;

fn ty(api_version: &str, kind: &str) -> TypeId {
    let (group, version) = schema::catalogue::split_api_version(api_version);
    builtin().of_kind(group, version, kind).unwrap()
}

/// An object as the schema allows it, with the fields that protobuf knows.
fn random(rng: &mut StdRng, ty: TypeId, depth: u32) -> Value {
    let schema = builtin();
    match schema.shape(ty) {
        Shape::Any => match schema.schema_or(ty) {
            Some((schema::SchemaOr::Bool, _)) if rng.random() => rng.random::<bool>().into(),
            Some((schema::SchemaOr::StringArray, _)) if rng.random() => json!(["a", ""]),
            Some((schema::SchemaOr::Array, props)) if rng.random() => {
                (0..rng.random_range(1..3)).map(|_| random(rng, props, depth + 1)).collect()
            }
            Some((_, props)) => random(rng, props, depth + 1),
            None => json!({"any": [1, {"deep": null}], "n": rng.random_range(0..9)}),
        },
        Shape::Boolean => rng.random::<bool>().into(),
        Shape::Integer { bits: 32 } => pick(rng, &[0, 1, -1, 42, i64::from(i32::MAX), i64::from(i32::MIN)]),
        Shape::Integer { .. } => pick(rng, &[0, 1, -1, 1 << 40, i64::MAX, i64::MIN]),
        Shape::Number => pick(rng, &[0.0, 1.5, -2.25]),
        Shape::String => pick(rng, &["", "a", "text with \"quotes\" and ü", "two\nlines"]),
        Shape::Bytes => pick(rng, &["", "AA==", "AAEC/w=="]),
        Shape::IntOrString if rng.random() => pick(rng, &[0, 80, -1]),
        Shape::IntOrString => pick(rng, &["", "http", "50%"]),
        Shape::Quantity => pick(rng, &["0", "1", "500m", "1Gi", "2e3", "-3"]),
        Shape::Time => pick(rng, &["2024-02-29T12:00:00Z", "1969-12-31T23:59:59Z"]),
        Shape::MicroTime => pick(rng, &["2024-02-29T12:00:00.123456Z", "1960-01-01T00:00:00.000001Z"]),
        Shape::Duration => pick(rng, &["0s", "1h2m3s", "1.5ms"]),
        Shape::FieldsV1 => json!({"f:spec": {"f:x": {}, "k:{\"name\":\"a\"}": {".": {}}}}),
        Shape::Array { items, .. } => (0..rng.random_range(1..3)).map(|_| random(rng, *items, depth + 1)).collect(),
        Shape::Map { values, .. } => ["", "k", "a.b/c"]
            .iter()
            .take(rng.random_range(1..4))
            .map(|k| ((*k).to_owned(), random(rng, *values, depth + 1)))
            .collect(),
        Shape::Struct(s) => {
            let mut map = Map::new();
            // Deep structs get few fields, so that recursive ones come to an end.
            let odds = if depth < 3 { 0.7 } else { 0.7 / f64::from(depth) };
            for field in s.fields.iter().filter(|f| !f.numbers.is_empty()) {
                if rng.random_bool(odds) {
                    map.insert(field.name.to_string(), random(rng, field.ty, depth + 1));
                }
            }
            Value::Object(map)
        }
    }
}

fn pick<T: Clone + Into<Value>>(rng: &mut StdRng, choices: &[T]) -> Value {
    choices[rng.random_range(0..choices.len())].clone().into()
}

/// A random object of a random kind, conforming.
fn object(seed: u64) -> (TypeId, Value) {
    let mut rng = StdRng::seed_from_u64(seed);
    let resources = schema::catalogue::builtin();
    let ty = resources[rng.random_range(0..resources.len())].ty.unwrap();
    let mut value = random(&mut rng, ty, 0);
    crate::decode::conform(builtin(), ty, &mut value).unwrap();
    (ty, value)
}

#[test]
fn known_bytes() {
    // Written out by hand from the messages' definitions.
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}], "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}});
    let bytes = encode(builtin(), ty("v1", "Pod"), &pod);
    let want: &[u8] = &[
        0x0a, 3, 0x0a, 1, b'a', // metadata
        0x12, 0x15, // spec
        0x12, 3, 0x0a, 1, b'c', // containers
        0x0a, 0x0e, 0x12, 5, 0x0a, 3, 0x0a, 1, b'/', 0x0a, 1, b'v', // volumes: source, host path, path; name
    ];
    let want: Vec<u8> = {
        let mut w = want.to_vec();
        w[6] = (w.len() - 7) as u8;
        w[13] = (w.len() - 14) as u8;
        w
    };
    assert_eq!(bytes, want);
    let wrapped = wrap("v1", "Pod", &bytes);
    let unknown = unwrap(&wrapped).unwrap();
    assert_eq!((unknown.api_version.as_str(), unknown.kind.as_str(), unknown.raw), ("v1", "Pod", &bytes[..]));
    let mut from_text = Vec::new();
    encode_json(builtin(), ty("v1", "Pod"), pod.to_string().as_bytes(), &mut from_text).unwrap();
    assert_eq!(from_text, bytes);
}

#[test]
fn pointers_keep_their_zeros_and_others_do_not() {
    let deployment = json!({"metadata": {}, "status": {}, "spec": {"replicas": 0, "selector": {}, "strategy": {},
        "template": {"metadata": {}, "spec": {"containers": null, "volumes": [{"name": "v", "emptyDir": {}}]}}}});
    let ty = ty("apps/v1", "Deployment");
    assert_eq!(decode(builtin(), ty, &encode(builtin(), ty, &deployment)).unwrap(), deployment);
    // paused: false and minReadySeconds: 0 are written by Go and not by JSON.
    assert_eq!(decode(builtin(), ty, &[0x12, 4, 0x28, 0, 0x38, 0]).unwrap()["spec"].get("paused"), None);
    // Unknown fields and empty messages are no error.
    assert_eq!(decode(builtin(), ty, &[0xfa, 1, 1, 7]).unwrap()["metadata"], json!({}));
}

#[test]
fn lists_and_events_are_framed() {
    let list_type = ty("v1", "ConfigMapList");
    let items = [json!({"metadata": {"name": "a"}}), json!({"data": {"k": "v".repeat(200)}})];
    let items = items.map(|item| encode(builtin(), ty("v1", "ConfigMap"), &item));
    let (metadata, lengths) = (json!({"resourceVersion": "7"}), items.iter().map(Vec::len));
    let mut body = list_head(builtin(), list_type, "v1", "ConfigMapList", &metadata, lengths);
    items.iter().for_each(|item| put_item(&mut body, item));
    body.extend_from_slice(END);
    let unknown = unwrap(&body).unwrap();
    let list = decode(builtin(), list_type, unknown.raw).unwrap();
    assert_eq!(list["metadata"], json!({"resourceVersion": "7"}));
    assert_eq!(list["items"][0], json!({"metadata": {"name": "a"}}));
    assert_eq!(list["items"][1]["data"]["k"], "v".repeat(200));

    let mut frame = Vec::new();
    put_event(&mut frame, "ADDED", "v1", "ConfigMap", &items[1]);
    assert_eq!(u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize, frame.len() - 4);
    let event =
        decode(builtin(), builtin().find("io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent").unwrap(), &frame[4..])
            .unwrap();
    assert_eq!(event["type"], "ADDED");
    assert_eq!(event["object"]["kind"], "ConfigMap");
}

#[test]
fn items_are_field_two_of_every_list() {
    let kinds = schema::catalogue::builtin().iter().filter_map(|kind| kind.ty);
    let lists: Vec<_> = kinds.filter_map(|ty| builtin().list_of(ty)).collect();
    assert!(lists.len() > 50);
    for list in lists {
        assert_eq!(*builtin().field(list, "items").unwrap().numbers, [2]);
    }
}

#[test]
fn hostile_messages_are_refused() {
    let ty = ty("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let props = builtin().find("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps").unwrap();
    let number = builtin().field(props, "not").unwrap().numbers[0];
    // not: {not: {not: …}}
    let mut deep = Vec::new();
    for _ in 0..300 {
        let mut outer = Vec::new();
        put_bytes(&mut outer, number, &deep);
        deep = outer;
    }
    assert!(decode(builtin(), props, &deep).unwrap_err().contains("depth"));
    for bytes in [
        &[0x0a][..],
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0xff; 11],
        &[0x08, 1],
        &[0x0b],
        &[0x0a, 3, 0x0a, 1, 0xff],
    ] {
        assert!(decode(builtin(), ty, bytes).is_err(), "{bytes:?}");
    }
    for body in [&b""[..], b"{}", b"k8s\0", b"k8s\0\xff"] {
        assert_eq!(unwrap(body).unwrap_err().code, 400);
    }
}

proptest! {
    #[test]
    fn what_goes_out_comes_back(seed in any::<u64>()) {
        let (ty, value) = object(seed);
        let bytes = encode(builtin(), ty, &value);
        prop_assert_eq!(decode(builtin(), ty, &bytes), Ok(value.clone()));
        let mut direct = Vec::new();
        encode_json(builtin(), ty, value.to_string().as_bytes(), &mut direct).unwrap();
        prop_assert_eq!(direct, bytes);
    }

    #[test]
    fn no_message_panics(seed in any::<u64>(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let (ty, value) = object(seed);
        let mut bytes = encode(builtin(), ty, &value);
        bytes.push(0);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = decode(builtin(), ty, &bytes);
        let _ = unwrap(&wrap("v1", "Pod", &bytes)).map(|u| u.raw.len());
        let at = bytes.len() / 2;
        let _ = decode(builtin(), ty, &bytes[at..]);
    }
}
