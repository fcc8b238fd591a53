//! Strategic merge patch on a small schema, and the JSON that property tests draw.

use proptest::prelude::*;
use schema::{Field, ListType, PatchStrategy, Schema, Shape, Struct, TypeId};
use serde_json::{Value, json};

use super::*;

/// Small JSON documents whose keys collide often.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3i64).prop_map(Value::from),
        "[xyz]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|m| m.into_iter().collect()),
        ]
    })
}

fn field(name: &str, ty: TypeId, patch: Option<PatchStrategy>) -> Field {
    Field { name: name.into(), ty, patch, ..Field::default() }
}

fn structure(mut fields: Vec<Field>) -> Shape {
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    Shape::Struct(Struct { fields: fields.into(), ..Struct::default() })
}

/// Something with containers (by name, with env by name, args and a nested map), finalizers, labels and a strategy.
fn pod() -> (Schema, TypeId) {
    let mut schema = Schema::default();
    let by = |key: &str| Some(PatchStrategy { merge: true, merge_key: Some(key.into()), ..PatchStrategy::default() });
    let merge = Some(PatchStrategy { merge: true, ..PatchStrategy::default() });
    let string = schema.add("", Shape::String);
    let strings = schema.add("", Shape::Array { items: string, list: ListType::Atomic });
    let map = schema.add("", Shape::Map { values: string, atomic: false });
    let env = schema.add("io.EnvVar", structure(vec![field("name", string, None), field("value", string, None)]));
    let envs = schema.add("", Shape::Array { items: env, list: ListType::Map(["name".into()].into()) });
    let container = schema.add(
        "io.Container",
        structure(vec![
            field("name", string, None),
            field("image", string, None),
            field("args", strings, None),
            field("env", envs, by("name")),
            field("labels", map, None),
        ]),
    );
    let containers = schema.add("", Shape::Array { items: container, list: ListType::Map(["name".into()].into()) });
    let replaced = Some(PatchStrategy { replace: true, ..PatchStrategy::default() });
    let retained = Some(PatchStrategy { retain_keys: true, ..PatchStrategy::default() });
    let root = schema.add(
        "io.Pod",
        structure(vec![
            field("containers", containers, by("name")),
            field("finalizers", strings, merge),
            field("labels", map, None),
            field("whole", map, replaced),
            field("strategy", map, retained),
        ]),
    );
    (schema, root)
}

fn patched(doc: Value, patch: Value) -> Result<Value, String> {
    let (schema, ty) = pod();
    let mut got = doc.clone();
    match strategic(&schema, ty, &mut got, &patch) {
        Ok(()) => Ok(got),
        Err(status) => {
            assert_eq!(got, doc, "a failed patch must change nothing");
            Err(format!("{} {}", status.code, status.message))
        }
    }
}

#[test]
fn merges_by_the_marks_of_the_schema() {
    let doc =
        json!({"containers": [{"name":"a","image":"1","args":["x"]},{"name":"b","image":"2"}], "labels": {"k":"v"}});
    let cases = [
        (json!({"containers":[{"name":"b","image":"3"}]}), "/containers/1", json!({"name":"b","image":"3"})),
        (json!({"containers":[{"name":"c"}]}), "/containers/0", json!({"name":"c"})),
        (json!({"containers":[{"name":"a","args":["y"]}]}), "/containers/0/args", json!(["y"])),
        (json!({"containers":[{"name":"a","$patch":"delete"}]}), "/containers", json!([{"name":"b","image":"2"}])),
        (json!({"containers":[{"$patch":"replace"},{"name":"z"}]}), "/containers", json!([{"name":"z"}])),
        (json!({"containers":[{"name":"a","image":null}]}), "/containers/0", json!({"name":"a","args":["x"]})),
        (json!({"labels":{"k":null,"n":"1"}}), "/labels", json!({"n":"1"})),
        (json!({"labels":{"$patch":"replace","n":"1"}}), "/labels", json!({"n":"1"})),
        (json!({"labels":{"$patch":"delete"}}), "/labels", json!({})),
        (json!({"containers":[]}), "/labels", json!({"k":"v"})),
        (json!({"whole":{"a":"1","gone":null}}), "/whole", json!({"a":"1"})),
    ];
    for (patch, at, want) in cases {
        let got = patched(doc.clone(), patch.clone()).unwrap();
        assert_eq!(got.pointer(at), Some(&want), "{patch}");
    }
    let doc = json!({"strategy":{"type":"RollingUpdate","rollingUpdate":"x"},"whole":{"a":"1"}});
    let got = patched(doc, json!({"strategy":{"$retainKeys":["type"],"type":"Recreate"},"whole":{"b":"2"}})).unwrap();
    assert_eq!(got, json!({"strategy":{"type":"Recreate"},"whole":{"b":"2"}}));
}

#[test]
fn lists_of_scalars_merge_as_sets() {
    let doc = json!({"finalizers":["a","b","c"]});
    let cases = [
        (json!({"finalizers":["d","a"]}), json!(["d", "a", "b", "c"])),
        (json!({"finalizers":["c","a"]}), json!(["b", "c", "a"])),
        (json!({"$deleteFromPrimitiveList/finalizers":["b"]}), json!(["a", "c"])),
        (
            json!({"$deleteFromPrimitiveList/finalizers":["b"],"$setElementOrder/finalizers":["c","a"]}),
            json!(["c", "a"]),
        ),
        (json!({"finalizers":["d"],"$setElementOrder/finalizers":["d","c","b","a"]}), json!(["d", "c", "b", "a"])),
    ];
    for (patch, want) in cases {
        assert_eq!(patched(doc.clone(), patch.clone()).unwrap()["finalizers"], want, "{patch}");
    }
}

#[test]
fn order_of_elements() {
    let doc = json!({"containers":[{"name":"a"},{"name":"b"},{"name":"s"},{"name":"c"}]});
    let names = |value: &Value| {
        value["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect::<String>()
    };
    let cases = [
        // What only the server has keeps its place relative to its neighbours.
        (json!({"$setElementOrder/containers":[{"name":"c"},{"name":"b"},{"name":"a"}]}), "scba"),
        (json!({"$setElementOrder/containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}), "absc"),
        (
            json!({"$setElementOrder/containers":[{"name":"n"},{"name":"a"},{"name":"b"},{"name":"c"}],"containers":[{"name":"n"}]}),
            "nabsc",
        ),
        (
            json!({"$setElementOrder/containers":[{"name":"a"},{"name":"c"}],"containers":[{"name":"b","$patch":"delete"}]}),
            "asc",
        ),
    ];
    for (patch, want) in cases {
        assert_eq!(names(&patched(doc.clone(), patch.clone()).unwrap()), want, "{patch}");
    }
}

#[test]
fn mistakes_in_upstreams_words() {
    let doc = json!({"containers":[{"name":"a"}],"finalizers":["x"],"strategy":{"type":"a"},"labels":{"k":"v"}});
    let cases = [
        (json!({"containers":[{"image":"x"}]}), "500 map: map[image:x] does not contain declared merge key: name"),
        (
            json!({"containers":[{"name":"a","$patch":"explode"}]}),
            "500 unknown patch type: explode in map: map[$patch:explode name:a]",
        ),
        (json!({"labels":{"$patch":"merge"}}), "500 unknown patch type: merge in map: map[$patch:merge]"),
        (
            json!({"containers":[{"name":"a","image":"j"}],"$setElementOrder/containers":[{"name":"other"}]}),
            "500 The order in patch list:\n[map[image:j name:a]]\n doesn't match $setElementOrder list:\n[map[name:other]]\n",
        ),
        (json!({"strategy":{"$retainKeys":["type"],"other":"x"}}), "400 invalid patch format of retainKeys"),
        (json!({"strategy":{"$retainKeys":"type"}}), "400 invalid patch format of retainKeys"),
        (json!({"containers":["x"]}), "500 list element types are not identical: [[map[name:a]] [x]]"),
        (json!({"$setElementOrder":[]}), "400 invalid patch format of setElementOrder list"),
        (json!({"$deleteFromPrimitiveList":["a"]}), "400 invalid patch format of primitive list"),
        (json!([1]), "400 invalid JSON document"),
    ];
    for (patch, want) in cases {
        assert_eq!(patched(doc.clone(), patch.clone()).unwrap_err(), want, "{patch}");
    }
}

#[test]
fn built_in_kinds_have_their_marks() {
    let schema = schema::builtin();
    let patched = |kind: &str, mut doc: Value, patch: Value| {
        strategic(schema, schema.find(kind).unwrap(), &mut doc, &patch).map(|()| doc)
    };
    let pod = "io.k8s.api.core.v1.Pod";
    let doc = json!({"spec":{"volumes":[{"name":"v1","emptyDir":{}}],"tolerations":[{"key":"a"}],"containers":[{"name":"c",
        "ports":[{"containerPort":80,"name":"http"}],"volumeMounts":[{"name":"v1","mountPath":"/v1"}],"env":[{"name":"E","value":"1"}]}]}});
    let patch = json!({"spec":{"volumes":[{"name":"v1","$retainKeys":["name","secret"],"secret":{"secretName":"s"}}],
        "tolerations":[{"key":"b"}],"containers":[{"name":"c","ports":[{"containerPort":80,"name":"web"},{"containerPort":81}],
        "volumeMounts":[{"mountPath":"/v2","name":"v2"}],"env":[{"name":"E","$patch":"delete"},{"name":"F","value":"2"}]}]}});
    assert_eq!(
        patched(pod, doc, patch).unwrap(),
        json!({"spec":{"volumes":[{"name":"v1","secret":{"secretName":"s"}}],"tolerations":[{"key":"b"}],"containers":[{"name":"c",
            "ports":[{"containerPort":80,"name":"web"},{"containerPort":81}],
            "volumeMounts":[{"mountPath":"/v2","name":"v2"},{"name":"v1","mountPath":"/v1"}],"env":[{"name":"F","value":"2"}]}]}})
    );
    let service = json!({"spec":{"ports":[{"name":"p80","port":80},{"name":"p81","port":81}]}});
    assert_eq!(
        patched(
            "io.k8s.api.core.v1.Service",
            service,
            json!({"spec":{"ports":[{"port":80,"targetPort":8080},{"port":81,"$patch":"delete"},{"port":82,"name":"p82"}]}}),
        )
        .unwrap(),
        json!({"spec":{"ports":[{"name":"p80","port":80,"targetPort":8080},{"port":82,"name":"p82"}]}})
    );
    let config_map = json!({"metadata":{"finalizers":["a","b","c"],"labels":{"x":"y"}},"data":{"k":"v"}});
    assert_eq!(
        patched(
            "io.k8s.api.core.v1.ConfigMap",
            config_map,
            json!({"metadata":{"finalizers":["d","a"]},"data":{"k":null}})
        )
        .unwrap(),
        json!({"metadata":{"finalizers":["d","a","b","c"],"labels":{"x":"y"}},"data":{}})
    );
    let unknown = patched(pod, json!({"spec":{"odd":{"a":1}}}), json!({"spec":{"odd":{"b":1}}})).unwrap_err();
    assert_eq!(unknown.message, "unable to find api field in struct PodSpec for the json field \"odd\"");
}

fn names() -> impl Strategy<Value = Vec<String>> {
    prop::sample::subsequence(vec!["a", "b", "c", "d", "e"], 0..=5)
        .prop_shuffle()
        .prop_map(|v| v.into_iter().map(str::to_owned).collect())
}

fn objects(names: &[String]) -> Value {
    names.iter().map(|name| json!({"name": name})).collect()
}

proptest! {
    #[test]
    fn any_patch_is_survived(doc in any_json(), patch in any_json()) {
        let (schema, ty) = pod();
        let mut wrapped = json!({"containers": doc, "labels": {"a": "b"}});
        let _ = strategic(&schema, ty, &mut wrapped, &json!({"containers": patch.clone(), "labels": patch.clone(), "$setElementOrder/containers": patch}));
    }

    #[test]
    fn set_element_order_orders(live in names(), patch in names(), order in names()) {
        let listed: Vec<String> = order.iter().filter(|n| patch.contains(n)).cloned().collect();
        prop_assume!(!live.is_empty() || !listed.is_empty());
        let doc = json!({"containers": objects(&live)});
        let got = patched(doc, json!({"containers": objects(&listed), "$setElementOrder/containers": objects(&order)})).unwrap();
        let got: Vec<&str> = got["containers"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
        let mut all: Vec<&str> = live.iter().chain(&listed).map(String::as_str).collect();
        all.sort_unstable();
        all.dedup();
        let mut sorted = got.clone();
        sorted.sort_unstable();
        prop_assert_eq!(&sorted, &all, "nothing is lost, nothing doubled");
        let of = |list: &[String]| got.iter().filter(|n| list.iter().any(|x| x == *n)).copied().collect::<Vec<_>>();
        let wanted: Vec<&str> = order.iter().map(String::as_str).filter(|n| all.contains(n)).collect();
        prop_assert_eq!(of(&order), wanted);
        let only: Vec<String> = live.iter().filter(|n| !order.contains(n)).cloned().collect();
        prop_assert_eq!(of(&only), only.iter().map(String::as_str).collect::<Vec<_>>(), "the server's own keep their order");
    }

    #[test]
    fn patching_twice_is_patching_once(live in names(), patch in names()) {
        prop_assume!(!live.is_empty());
        let patch = json!({"containers": objects(&patch)});
        let once = patched(json!({"containers": objects(&live)}), patch.clone()).unwrap();
        let twice = patched(once.clone(), patch).unwrap();
        prop_assert_eq!(once, twice);
    }
}
