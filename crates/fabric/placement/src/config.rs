//! The SyncerConfig of a class: what an edge is told to hold and to report, in short. Pure.

use std::collections::{BTreeMap, BTreeSet};

use kinds::{ObjectKey, names};
use serde_json::{Value, json};

use crate::{
    Key,
    facts::Placement,
    workspace::{NAMESPACES, Take},
};

/// Its key on the link.
pub const CONFIG: &str = "edge.kcp.io/syncerconfigs//the-one";

#[derive(Default)]
pub struct Config {
    namespaces: BTreeSet<String>,
    namespaced: BTreeSet<[String; 3]>,
    others: BTreeMap<[String; 3], BTreeSet<String>>,
    /// As text, as that can be sorted.
    upsync: BTreeMap<String, Value>,
    associated: BTreeSet<String>,
}

impl Config {
    /// What one placement adds: objects with the version of their kind.
    pub fn add<'a>(&mut self, placement: &Placement, objects: impl Iterator<Item = (&'a Key, Take, &'a str)>) {
        for (key, take, version) in objects {
            let Some(key) = ObjectKey::parse(key) else { continue };
            let (group, resource) = key.collection.split_once('/').unwrap_or_default();
            let group = if group == "core" { "" } else { group };
            let kind = [group, resource, version].map(str::to_owned);
            let namespace = if key.collection == NAMESPACES { key.name } else { key.namespace };
            if !namespace.is_empty() {
                self.namespaces.insert(namespace.to_owned());
                if placement.associated {
                    self.associated.insert(namespace.to_owned());
                }
            }
            if !key.namespace.is_empty() {
                self.namespaced.insert(kind);
            } else if take == Take::Whole {
                self.others.entry(kind).or_default().insert(key.name.to_owned());
            }
        }
        self.upsync.extend(placement.upsync.iter().map(|set| (set.to_string(), set.clone())));
    }

    pub fn object(&self) -> Value {
        let kind = |[group, resource, version]: &[String; 3]| json!({"group": group, "resource": resource, "apiVersion": version});
        let cluster_scope: Vec<Value> = self
            .others
            .iter()
            .map(|(one, objects)| {
                let mut value = kind(one);
                value["objects"] = json!(objects);
                value
            })
            .collect();
        let mut spec = json!({
            "namespaceScope": {"namespaces": self.namespaces, "resources": self.namespaced.iter().map(kind).collect::<Vec<_>>()},
            "clusterScope": cluster_scope,
            "upsync": self.upsync.values().collect::<Vec<_>>(),
        });
        if !self.associated.is_empty() {
            spec["associated"] = json!({"namespaces": self.associated});
        }
        json!({"apiVersion": "edge.kcp.io/v1alpha1", "kind": "SyncerConfig", "spec": spec,
            "metadata": {"name": "the-one", "labels": {names::PROJECTED: "yes"}}})
    }
}
