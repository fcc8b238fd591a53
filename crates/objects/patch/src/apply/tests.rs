//! Ownership on small kinds: what the reference server answers for the same requests.

use schema::{Field, ListType, Shape, Struct};
use serde_json::{Value, json};

use super::*;

pub(super) const NOW: &str = "2026-01-02T03:04:05Z";
const LATER: &str = "2026-01-02T03:04:06Z";

pub(super) fn field(name: &str, ty: TypeId) -> Field {
    Field { name: name.into(), ty, ..Field::default() }
}

pub(super) fn structure(mut fields: Vec<Field>, atomic: bool) -> Shape {
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    Shape::Struct(Struct { fields: fields.into(), atomic, ..Struct::default() })
}

/// Something like a Deployment whose pods are its own: maps, sets, lists by key, atomic parts.
pub(super) fn schema() -> (Schema, TypeId) {
    let mut schema = Schema::default();
    let string = schema.add("", Shape::String);
    let integer = schema.add("", Shape::Integer { bits: 32 });
    let boolean = schema.add("", Shape::Boolean);
    let any = schema.add("", Shape::Any);
    let map = schema.add("", Shape::Map { values: string, atomic: false });
    let selector = schema.add("", Shape::Map { values: string, atomic: true });
    let set = schema.add("", Shape::Array { items: string, list: ListType::Set });
    let list = schema.add("", Shape::Array { items: string, list: ListType::Atomic });
    let meta = schema.add(
        "",
        structure(
            [
                ("name", string),
                ("namespace", string),
                ("uid", string),
                ("resourceVersion", string),
                ("labels", map),
                ("annotations", map),
                ("finalizers", set),
            ]
            .map(|(n, t)| field(n, t))
            .into(),
            false,
        ),
    );
    let protocol = Field { default: Some(json!("TCP")), ..field("protocol", string) };
    let port = schema.add("", structure(vec![field("containerPort", integer), protocol, field("name", string)], false));
    let ports = schema
        .add("", Shape::Array { items: port, list: ListType::Map(["containerPort".into(), "protocol".into()].into()) });
    let env = schema.add("", structure(vec![field("name", string), field("value", string)], false));
    let envs = schema.add("", Shape::Array { items: env, list: ListType::Map(["name".into()].into()) });
    let container = schema.add(
        "",
        structure(
            [("name", string), ("image", string), ("args", list), ("ports", ports), ("env", envs)]
                .map(|(n, t)| field(n, t))
                .into(),
            false,
        ),
    );
    let containers = schema.add("", Shape::Array { items: container, list: ListType::Map(["name".into()].into()) });
    let spec = schema.add(
        "",
        structure(
            [
                ("replicas", integer),
                ("paused", boolean),
                ("selector", selector),
                ("containers", containers),
                ("any", any),
            ]
            .map(|(n, t)| field(n, t))
            .into(),
            false,
        ),
    );
    let status = schema.add("", structure(vec![field("replicas", integer)], false));
    let root = schema.add(
        "test.Thing",
        structure(
            [
                ("apiVersion", string),
                ("kind", string),
                ("metadata", meta),
                ("data", map),
                ("spec", spec),
                ("status", status),
            ]
            .map(|(n, t)| field(n, t))
            .into(),
            false,
        ),
    );
    (schema, root)
}

/// One object and those who write it.
struct World {
    schema: Schema,
    ty: TypeId,
    live: Option<Value>,
    now: &'static str,
    subresource: &'static str,
}

impl World {
    fn new() -> Self {
        let (schema, ty) = schema();
        Self { schema, ty, live: None, now: NOW, subresource: "" }
    }

    fn context<'a>(&'a self, manager: &'a str) -> Context<'a> {
        Context {
            schema: &self.schema,
            ty: self.ty,
            api_version: "v1",
            kind: "Thing",
            manager,
            subresource: self.subresource,
            now: self.now,
            reset: reset_fields("", "things", self.subresource, true),
            versions: None,
        }
    }

    fn apply(&mut self, manager: &str, content: Value) -> Result<&Value> {
        self.apply_with(manager, content, false)
    }

    fn apply_with(&mut self, manager: &str, mut config: Value, force: bool) -> Result<&Value> {
        config["apiVersion"] = json!("v1");
        config["kind"] = json!("Thing");
        config["metadata"]["name"] = json!("t");
        let mut new = apply(&self.context(manager), self.live.as_ref(), &config, force)?;
        new["metadata"]["uid"] = json!("u");
        Ok(self.live.insert(new))
    }

    fn update(&mut self, manager: &str, mut new: Value) -> &Value {
        new["apiVersion"] = json!("v1");
        new["kind"] = json!("Thing");
        new["metadata"]["name"] = json!("t");
        track_update(&self.context(manager), self.live.as_ref(), &mut new);
        new["metadata"]["uid"] = json!("u");
        self.live.insert(new)
    }

    /// `manager/operation` and what it owns.
    fn owners(&self) -> Vec<(String, Value)> {
        let list = self.live.as_ref().and_then(|l| l.pointer("/metadata/managedFields")).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .map(|e| {
                let text = |key: &str| e.get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
                (format!("{}/{}/{}", text("manager"), text("operation"), text("subresource")), e["fieldsV1"].clone())
            })
            .collect()
    }

    fn owner(&self, id: &str) -> Value {
        self.owners().into_iter().find(|(i, _)| i == id).map(|(_, set)| set).unwrap_or_default()
    }

    fn get(&self, path: &str) -> &Value {
        self.live.as_ref().and_then(|l| l.pointer(path)).unwrap_or(&Value::Null)
    }
}

#[test]
fn appliers_share_conflict_force_and_leave() {
    let mut w = World::new();
    w.apply("one", json!({"metadata":{"labels":{"l":"1"}},"data":{"k":"1","m":"1"}})).unwrap();
    assert_eq!(
        w.owners(),
        [("one/Apply/-".into(), json!({"f:data":{"f:k":{},"f:m":{}},"f:metadata":{"f:labels":{"f:l":{}}}}))]
    );
    assert_eq!(w.get("/metadata/managedFields/0/time"), NOW);
    assert_eq!(w.get("/metadata/managedFields/0/apiVersion"), "v1");

    let before = w.live.clone().unwrap();
    w.now = LATER;
    let again = w.apply("one", json!({"metadata":{"labels":{"l":"1"}},"data":{"k":"1","m":"1"}})).unwrap();
    assert_eq!(*again, before, "applying the same again changes nothing, not even a time");

    w.apply("two", json!({"data":{"two":"2","k":"1"}})).unwrap();
    assert_eq!(w.owner("two/Apply/-"), json!({"f:data":{"f:k":{},"f:two":{}}}));

    let refused =
        w.apply("two", json!({"metadata":{"labels":{"l":"2"}},"data":{"k":"changed","m":"changed"}})).unwrap_err();
    assert_eq!((refused.code, refused.reason), (409, "Conflict"));
    assert_eq!(
        refused.message,
        "Apply failed with 3 conflicts: conflicts with \"one\":\n- .data.k\n- .data.m\n- .metadata.labels.l"
    );
    let causes = refused.details.unwrap().causes;
    assert_eq!(causes[0].reason, "FieldManagerConflict");
    assert_eq!(causes[0].message, "conflict with \"one\"");
    assert_eq!(causes[2].field, ".metadata.labels.l");

    w.apply_with("two", json!({"data":{"k":"forced"}}), true).unwrap();
    assert_eq!(w.owner("one/Apply/-"), json!({"f:data":{"f:m":{}},"f:metadata":{"f:labels":{"f:l":{}}}}));
    assert_eq!(w.owner("two/Apply/-"), json!({"f:data":{"f:k":{}}}));
    assert_eq!(*w.get("/data"), json!({"k":"forced","m":"1"}), "what two no longer lists is gone");

    w.apply("one", json!({})).unwrap();
    assert_eq!(*w.get("/data"), json!({"k":"forced"}));
    assert_eq!(*w.get("/metadata/labels"), Value::Null);
    w.apply("two", json!({})).unwrap();
    assert_eq!(*w.get("/data"), Value::Null);
    assert!(w.owners().is_empty());
}

#[test]
fn updates_take_what_they_change() {
    let mut w = World::new();
    w.update("poster", json!({"data":{"a":"1","b":"1"}}));
    assert_eq!(w.owners(), [("poster/Update/-".into(), json!({"f:data":{".":{},"f:a":{},"f:b":{}}}))]);

    let refused = w.apply("one", json!({"data":{"a":"2"}})).unwrap_err();
    assert_eq!(refused.message, "Apply failed with 1 conflict: conflict with \"poster\" using v1: .data.a");

    w.apply("one", json!({"data":{"a":"1"}})).unwrap();
    assert_eq!(w.owner("one/Apply/-"), json!({"f:data":{"f:a":{}}}));
    assert_eq!(*w.get("/metadata/managedFields/0/time"), Value::Null, "nothing changed at any time");

    w.update("third", json!({"data":{"a":"3","b":"1"}}));
    assert_eq!(
        w.owners(),
        [
            ("poster/Update/-".into(), json!({"f:data":{".":{},"f:b":{}}})),
            ("third/Update/-".into(), json!({"f:data":{"f:a":{}}})),
        ]
    );
    let same = w.live.clone().unwrap();
    w.now = LATER;
    w.update("fourth", json!({"data":{"a":"3","b":"1"},"metadata":{"uid":"u"}}));
    assert_eq!(w.live.as_ref(), Some(&same));
    w.update("third", json!({"data":{"a":"3"},"metadata":{"uid":"u"}}));
    assert_eq!(w.owner("poster/Update/-"), json!({"f:data":{}}), "a removed field is nobody's");
}

#[test]
fn managed_fields_can_be_reset_and_rewritten() {
    let mut w = World::new();
    w.update("poster", json!({"data":{"a":"3","b":"1"}}));
    for reset in [json!([{}]), json!([])] {
        let mut w = World { live: w.live.clone(), ..World::new() };
        w.update("one", json!({"data":{"a":"3","b":"1"},"metadata":{"managedFields":reset}}));
        assert_eq!(*w.get("/metadata/managedFields"), Value::Null);
        w.update("one", json!({"data":{"a":"4","b":"1"}}));
        assert_eq!(*w.get("/metadata/managedFields"), Value::Null, "stays unowned until applied to");
        w.apply_with("one", json!({"data":{"a":"1"}}), true).unwrap();
        assert_eq!(
            w.owners(),
            [
                ("one/Apply/-".into(), json!({"f:data":{"f:a":{}}})),
                ("before-first-apply/Update/-".into(), json!({"f:data":{".":{},"f:b":{}}})),
            ]
        );
    }
    let mut sent = w.live.clone().unwrap();
    sent["metadata"]["managedFields"][0]["manager"] = json!("renamed");
    w.update("mover", sent);
    assert_eq!(w.owners()[0].0, "renamed/Update/-");
    let mut broken = w.live.clone().unwrap();
    broken["metadata"]["managedFields"][0]["operation"] = json!("Steal");
    w.update("mover", broken);
    assert_eq!(w.owners()[0].0, "renamed/Update/-", "what does not decode is ignored");
}

#[test]
fn lists_by_key_by_value_and_atomic() {
    let mut w = World::new();
    let first = json!({"spec":{"selector":{"a":"b"},"containers":[
        {"name":"c1","image":"i1","args":["x"],"ports":[{"containerPort":80}],"env":[{"name":"E","value":"1"}]}]}});
    w.apply("one", first).unwrap();
    assert_eq!(
        w.owner("one/Apply/-"),
        json!({"f:spec":{"f:selector":{},"f:containers":{"k:{\"name\":\"c1\"}":{".":{},"f:args":{},"f:name":{},"f:image":{},
            "f:env":{"k:{\"name\":\"E\"}":{".":{},"f:name":{},"f:value":{}}},
            "f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}})
    );
    let second = json!({"spec":{"containers":[{"name":"c2","image":"i2"},{"name":"c1","ports":[{"containerPort":80,"protocol":"UDP"}]}]}});
    w.apply("two", second).unwrap();
    let names: Vec<_> = w.get("/spec/containers").as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
    assert_eq!(names, ["c2", "c1"]);
    assert_eq!(*w.get("/spec/containers/1/ports"), json!([{"containerPort":80},{"containerPort":80,"protocol":"UDP"}]));
    w.apply("two", json!({"spec":{"containers":[{"name":"c1","ports":[{"containerPort":80,"protocol":"UDP"}]}]}}))
        .unwrap();
    assert_eq!(w.get("/spec/containers").as_array().unwrap().len(), 1, "its only owner dropped it");

    let refused = w
        .apply(
            "two",
            json!({"spec":{"containers":[{"name":"c1","image":"o","args":["y"],"env":[{"name":"E","value":"2"}]}]}}),
        )
        .unwrap_err();
    assert_eq!(
        refused.message,
        "Apply failed with 3 conflicts: conflicts with \"one\":\n- .spec.containers[name=\"c1\"].args\n\
         - .spec.containers[name=\"c1\"].image\n- .spec.containers[name=\"c1\"].env[name=\"E\"].value"
    );
    let refused = w.apply("two", json!({"spec":{"selector":{"other":"x"}}})).unwrap_err();
    assert_eq!(refused.message, "Apply failed with 1 conflict: conflict with \"one\": .spec.selector");
    w.apply_with("two", json!({"spec":{"selector":{"other":"x"}}}), true).unwrap();
    assert_eq!(*w.get("/spec/selector"), json!({"other":"x"}));

    let mut w = World::new();
    w.apply("one", json!({"metadata":{"finalizers":["a"]}})).unwrap();
    w.apply("two", json!({"metadata":{"finalizers":["b"]}})).unwrap();
    assert_eq!(*w.get("/metadata/finalizers"), json!(["a", "b"]));
    assert_eq!(w.owner("two/Apply/-"), json!({"f:metadata":{"f:finalizers":{"v:\"b\"":{}}}}));
    w.apply("one", json!({"metadata":{"labels":{"x":"y"}}})).unwrap();
    assert_eq!(*w.get("/metadata/finalizers"), json!(["b"]));
}

#[test]
fn configurations_that_do_not_fit() {
    let cases = [
        (json!({"dat":{"x":"y"}}), ".dat: field not declared in schema"),
        (json!({"spec":{"replicas":"many"}}), ".spec.replicas: expected numeric (int or float), got string"),
        (json!({"spec":{"paused":"yes"}}), ".spec.paused: expected boolean, got &{yes}"),
        (json!({"data":{"k":1}}), ".data.k: expected string, got &value.valueUnstructured{Value:1}"),
        (json!({"spec":{"containers":{"a":"b"}}}), ".spec.containers: expected list, got &{map[a:b]}"),
        (json!({"spec":[]}), ".spec: expected map, got &{[]}"),
        (
            json!({"spec":{"containers":[{"name":"c3","image":"a"},{"name":"c3","image":"b"}]}}),
            ".spec.containers: duplicate entries for key [name=\"c3\"]",
        ),
        (json!({"metadata":{"finalizers":["a","a"]}}), ".metadata.finalizers: duplicate entries for key [=\"a\"]"),
        (
            json!({"spec":{"containers":[{"image":"x"}]}}),
            ".spec.containers: element 0: associative list with keys has an element that omits all key fields [\"name\"] (and doesn't have default values for any key fields)",
        ),
        (
            json!({"spec":{"replicas":"x","paused":1}}),
            "errors:\n  .spec.paused: expected boolean, got &{1}\n  .spec.replicas: expected numeric (int or float), got string",
        ),
    ];
    for (config, want) in cases {
        let error = World::new().apply("one", config).unwrap_err();
        assert_eq!((error.code, error.reason), (500, ""));
        assert_eq!(error.message, format!("failed to create typed patch object (/t; /v1, Kind=Thing): {want}"));
    }
    let mut w = World::new();
    let error = w.apply("one", json!({"metadata":{"managedFields":[{}]}})).unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (400, "metadata.managedFields must be nil"));
    let error = apply(&w.context("one"), None, &json!({"metadata":{"name":"a"}}), false).unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (400, "invalid object type: /, Kind="));
    w.apply("one", json!({"data":{"a":"b"}})).unwrap();
    w.apply("two", json!({"data":null})).unwrap();
    assert_eq!(*w.get("/data"), json!({"a":"b"}), "null removes nothing it does not own");
}

#[test]
fn subresources_and_what_they_reset() {
    let mut w = World::new();
    w.apply("one", json!({"spec":{"replicas":1},"status":{"replicas":5}})).unwrap();
    assert_eq!(w.owner("one/Apply/-"), json!({"f:spec":{"f:replicas":{}}}));
    w.subresource = "status";
    w.apply("watcher", json!({"metadata":{"labels":{"not":"taken"}},"spec":{"replicas":3},"status":{"replicas":1}}))
        .unwrap();
    assert_eq!(
        w.owner("watcher/Apply/status"),
        json!({"f:metadata":{"f:labels":{"f:not":{}}},"f:status":{"f:replicas":{}}})
    );
    let refused = w.apply("watcher2", json!({"status":{"replicas":2}})).unwrap_err();
    assert_eq!(
        refused.message,
        "Apply failed with 1 conflict: conflict with \"watcher\" with subresource \"status\": .status.replicas"
    );
    let mut sent = w.live.clone().unwrap();
    sent["status"]["replicas"] = json!(7);
    sent["metadata"]["managedFields"] = json!([]);
    w.update("kubelet", sent);
    assert_eq!(w.owner("kubelet/Update/status"), json!({"f:status":{"f:replicas":{}}}));
    assert_eq!(w.owner("one/Apply/-"), json!({"f:spec":{"f:replicas":{}}}), "no reset through a subresource");
}

#[test]
fn untyped_fields_are_owned_one_by_one() {
    let mut w = World::new();
    w.update("poster", json!({"spec":{"any":{"kept":{"deep":[1]}}}}));
    assert_eq!(w.owner("poster/Update/-"), json!({"f:spec":{".":{},"f:any":{".":{},"f:kept":{".":{},"f:deep":{}}}}}));
    w.apply("one", json!({"spec":{"any":{"kept":{"more":true}}}})).unwrap();
    assert_eq!(w.owner("one/Apply/-"), json!({"f:spec":{"f:any":{"f:kept":{".":{},"f:more":{}}}}}));
    w.update("poster", json!({"metadata":{"uid":"u"},"spec":{"any":["now","a","list"]}}));
    assert_eq!(w.owner("poster/Update/-"), json!({"f:spec":{".":{},"f:any":{}}}));
}

#[test]
fn old_updaters_become_one() {
    let mut w = World::new();
    let mut data = json!({});
    for i in 0..15 {
        data[format!("k{i:02}")] = json!("v");
        w.update(&format!("m{i:02}"), json!({"data": data}));
    }
    let owners = w.owners();
    assert_eq!(owners.len(), 10);
    let ancient = w.owner("ancient-changes/Update/-");
    assert_eq!(ancient["f:data"].as_object().unwrap().len(), 7, "{ancient}");
}

#[test]
fn kubectl_goes_over_from_client_side_apply() {
    let config = json!({"apiVersion":"v1","kind":"Thing","metadata":{"name":"t"},"data":{"a":"1","b":"1"}});
    let mut w = World::new();
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let last = format!("{config}\n");
    w.update(
        "kubectl-client-side-apply",
        json!({"metadata":{"annotations":{annotation:last}},"data":{"a":"1","b":"1"}}),
    );
    w.update("editor", json!({"metadata":{"uid":"u","annotations":{annotation:last}},"data":{"a":"1","b":"edited"}}));
    let refused = w.apply("kubectl", json!({"data":{"a":"2","b":"2"}})).unwrap_err();
    assert_eq!(refused.message, "Apply failed with 1 conflict: conflict with \"editor\" using v1: .data.b");
    w.apply("kubectl", json!({"data":{"a":"2"}})).unwrap();
    let text = w.get("/metadata/annotations")[annotation].as_str().unwrap();
    assert_eq!(
        text,
        "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"2\"},\"kind\":\"Thing\",\"metadata\":{\"name\":\"t\"}}\n"
    );
}

#[test]
fn scale_moves_the_owner_of_replicas() {
    let path: &[&str] = &["spec", "replicas"];
    let versions = [("v1", Some(path))];
    let mut w = World::new();
    w.apply("one", json!({"spec":{"replicas":1,"paused":true}})).unwrap();
    let parent = w.get("/metadata/managedFields").as_array().unwrap().clone();
    let scale = scale_entries(&parent, &versions);
    assert_eq!(scale[0]["apiVersion"], "autoscaling/v1");
    assert_eq!(scale[0]["fieldsV1"], json!({"f:spec":{"f:replicas":{}}}));
    let unchanged = parent_entries(&parent, &scale, "v1", &versions).unwrap();
    assert_eq!(unchanged, parent);
    let taken = json!([{"manager":"scaler","operation":"Update","apiVersion":"autoscaling/v1","time":NOW,"subresource":"scale",
        "fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}}}]);
    let after = parent_entries(&parent, taken.as_array().unwrap(), "v1", &versions).unwrap();
    assert_eq!(after[0]["fieldsV1"], json!({"f:spec":{"f:paused":{}}}));
    assert_eq!(
        after[1],
        json!({"manager":"scaler","operation":"Update","apiVersion":"v1","subresource":"scale","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}}})
    );
}

#[test]
fn times_alone_are_no_change() {
    let mut w = World::new();
    w.update("poster", json!({"data":{"a":"1"}}));
    let old = w.live.clone().unwrap();
    let mut new = old.clone();
    new["metadata"]["managedFields"][0]["time"] = json!(LATER);
    assert!(keep_times(&old, &mut new));
    assert_eq!(old, new);
    new["metadata"]["resourceVersion"] = json!("7");
    assert!(keep_times(&old, &mut new), "the version is the store's");
    new["data"]["a"] = json!("2");
    new["metadata"]["managedFields"][0]["time"] = json!(LATER);
    assert!(!keep_times(&old, &mut new));
    assert_eq!(new["metadata"]["managedFields"][0]["time"], LATER);
}
