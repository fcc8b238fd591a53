//! Random edits.

use kinds::ObjectKey;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::WORKSPACES;
use crate::facts::{Instance, map};

#[derive(Clone, Debug)]
pub enum Edit {
    Placement(usize, u8, Option<Value>),
    Location(usize, u8, Option<Value>),
    Target(usize, u8, Option<Instance>),
    Object(usize, usize, Option<Value>),
    /// A revision of what the placement holds now is kept for some of its edges, or none any more.
    Keep(usize, u8, bool),
    /// The claims of a placement are recorded.
    Record(usize, u8),
    Later,
}

pub const KEYS: [&str; 12] = [
    "core/configmaps/default/d",
    "core/namespaces//n0",
    "core/namespaces//n1",
    "core/configmaps/n0/a",
    "core/configmaps/n1/a",
    "core/configmaps/n1/b",
    "rbac.authorization.k8s.io/clusterroles//r",
    "apiextensions.k8s.io/customresourcedefinitions//widgets.example.com",
    "apiextensions.k8s.io/customresourcedefinitions//gadgets.example.com",
    "example.com/widgets/n0/w",
    "example.com/gadgets//g",
    "edge.kcp.io/customizers/n1/c",
];

/// Fills in who it is.
pub fn object(n: usize, value: &Value) -> Value {
    let key = ObjectKey::parse(KEYS[n]).unwrap();
    let mut value = value.clone();
    value["apiVersion"] = "x/v1".into();
    value["kind"] = "X".into();
    value["metadata"]["name"] = key.name.into();
    if !key.namespace.is_empty() {
        value["metadata"]["namespace"] = key.namespace.into();
    }
    value
}

fn some_labels() -> impl Strategy<Value = Value> {
    proptest::collection::btree_map("[ab]", "[xy]", 0..3).prop_map(|labels| json!(labels))
}

fn some_selector() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => some_labels().prop_map(|labels| json!({"matchLabels": labels})),
        1 => ("[ab]", "(Exists|DoesNotExist)").prop_map(|(key, op)| json!({"matchExpressions": [{"key": key, "operator": op}]})),
    ]
}

fn some_placement() -> impl Strategy<Value = Value> {
    let others = prop_oneof![
        Just(json!({"apiGroup": "", "resources": ["namespaces"], "resourceNames": ["n0"]})),
        Just(
            json!({"apiGroup": "example.com", "resources": ["gadgets"], "labelSelectors": [{"matchLabels": {"a": "x"}}]})
        ),
        Just(json!({"apiGroup": "rbac.authorization.k8s.io", "resources": ["*"], "resourceNames": ["*"]})),
        Just(json!({"apiGroup": "*", "resources": ["*"], "labelSelectors": [{}]})),
    ];
    let selectors = proptest::collection::vec(some_selector(), 0..3);
    let (namespaces, others) = (proptest::option::of(some_selector()), proptest::collection::vec(others, 0..3));
    (selectors, namespaces, others, 0u8..3, any::<bool>(), 0u8..3).prop_map(|(l, n, o, created, create_only, uid)| {
        let mut spec = json!({"locationSelectors": l, "nonNamespacedObjects": o, "createOnly": create_only,
            "upsync": [{"apiGroup": "g", "resources": [created.to_string()]}]});
        if let Some(n) = n {
            spec["namespaceSelector"] = n;
        }
        json!({"metadata": {"uid": format!("u{uid}"), "creationTimestamp": created.to_string()}, "spec": spec})
    })
}

fn some_object() -> impl Strategy<Value = Value> {
    (some_labels(), 0u8..8, 0u8..3).prop_map(|(labels, kind, data)| {
        let mut value = json!({"metadata": {"labels": labels}, "data": {"n": data.to_string()},
            "replacements": [{"path": "$.data.n", "value": format!("\"{data} on %(name)\"")}]});
        let annotations = match kind {
            0 | 1 => json!({"edge.kcp.io/expand-parameters": "true"}),
            2 => json!({"edge.kcp.io/customizer": "n1/c"}),
            3 => json!({"edge.kcp.io/customizer": "n1/none"}),
            4 => {
                value["metadata"]["deletionTimestamp"] = "t".into();
                return value;
            }
            _ => return value,
        };
        value["metadata"]["annotations"] = annotations;
        value["data"]["n"] = format!("%(a) {data}").into();
        if kind == 1 {
            value["replacements"] = json!([{"path": "$[", "value": "1"}]);
        }
        value
    })
}

pub fn some_edit() -> impl Strategy<Value = Edit> {
    let trusted = proptest::collection::vec("(root:a|root:b|root:a:\\*|\\*)", 0..2);
    let location = (some_labels(), proptest::option::weighted(0.9, some_selector()), "[mn]", trusted).prop_map(
        |(labels, selector, name, trusted)| {
            let mut value = json!({"metadata": {"labels": labels, "annotations": {"name": name}},
                "spec": {"trustedWorkspaces": trusted}});
            if let Some(selector) = selector {
                value["spec"]["instanceSelector"] = selector;
            }
            value
        },
    );
    let evict = proptest::option::weighted(0.2, 0i64..40);
    let plain = proptest::option::weighted(0.3, 0usize..3);
    let instance = (some_labels(), any::<u8>(), proptest::bool::weighted(0.3), evict, plain).prop_map(
        |(labels, uid, unschedulable, evict_after, plain)| Instance {
            joined: true,
            uid: format!("u{}", uid % 4).into(),
            labels: map(&labels),
            unschedulable,
            evict_after,
            ready: true,
            workspace: plain.map(|n| WORKSPACES[n].into()),
        },
    );
    prop_oneof![
        4 => (0usize..3, 0u8..2, proptest::option::weighted(0.9, some_placement())).prop_map(|(w, n, v)| Edit::Placement(w, n, v)),
        3 => (0usize..3, 0u8..2, proptest::option::weighted(0.85, location)).prop_map(|(h, n, v)| Edit::Location(h, n, v)),
        3 => (0usize..3, 0u8..2, proptest::option::weighted(0.85, instance)).prop_map(|(h, n, v)| Edit::Target(h, n, v)),
        8 => (0usize..3, 0..KEYS.len(), proptest::option::weighted(0.85, some_object())).prop_map(|(w, n, v)| Edit::Object(w, n, v)),
        1 => (0usize..3, 0u8..2, any::<bool>()).prop_map(|(w, n, keep)| Edit::Keep(w, n, keep)),
        3 => (0usize..3, 0u8..2).prop_map(|(w, n)| Edit::Record(w, n)),
        1 => Just(Edit::Later),
    ]
}
