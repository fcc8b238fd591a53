//! `managedFields` between an object and its `scale` subresource, where the number of replicas has another path.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::element::PathElement;
use super::fieldset::FieldSet;
use super::managed::{Entry, Managed};

const SCALE: &str = "autoscaling/v1";
const SPEC_REPLICAS: [&str; 2] = ["spec", "replicas"];

/// Where a version of the resource keeps its replicas; `None` if that version has no scale subresource.
pub type ReplicasPath<'a> = (&'a str, Option<&'a [&'a str]>);

fn steps<'a>(path: &[&'a str]) -> Vec<PathElement<'a>> {
    path.iter().map(|name| PathElement::field(name)).collect()
}

fn entries(list: &[Value]) -> Managed<'_> {
    Managed::decode(list).unwrap_or_default()
}

/// The entries of a Scale: who owns the replicas of the object.
pub fn scale_entries(parent: &[Value], versions: &[ReplicasPath<'_>]) -> Vec<Value> {
    let mut managed = entries(parent);
    managed.entries.retain_mut(|entry| {
        let path = versions.iter().find(|(version, _)| *version == entry.api_version).and_then(|(_, path)| *path);
        let owns = path.is_some_and(|path| entry.set.has(&steps(path)));
        if owns {
            entry.api_version = SCALE.into();
            entry.set = FieldSet::of_fields(&[&SPEC_REPLICAS]);
            entry.touch();
        }
        owns
    });
    managed.encode().unwrap_or_default()
}

/// The entries of the object after its Scale was written in `api_version` of the object.
pub fn parent_entries(
    parent: &[Value],
    scale: &[Value],
    api_version: &str,
    versions: &[ReplicasPath<'_>],
) -> Option<Vec<Value>> {
    let (mut managed, mut scale) = (entries(parent), entries(scale));
    // A manager is the same on both sides whatever the version of its entry says.
    let manager_of = |e: &Entry<'_>| (e.manager.to_string(), e.operation, e.subresource.to_string());
    let mut places: HashMap<_, Vec<usize>> = HashMap::new();
    for (at, entry) in scale.entries.iter().enumerate().rev() {
        places.entry(manager_of(entry)).or_default().push(at);
    }
    let mut taken = HashSet::new();
    managed.entries.retain_mut(|entry| {
        let Some((_, path)) = versions.iter().find(|(version, _)| *version == entry.api_version) else { return false };
        let Some(path) = path.map(steps).filter(|path| entry.set.has(path)) else { return true };
        match places.get_mut(&manager_of(entry)).and_then(Vec::pop) {
            Some(at) => {
                taken.insert(at);
            }
            None => {
                let mut stolen = FieldSet::new();
                stolen.insert(&path);
                entry.set.subtract(&stolen);
                entry.touch();
            }
        }
        !entry.set.is_empty()
    });
    let path = versions.iter().find(|(version, _)| *version == api_version).and_then(|(_, path)| *path);
    let mut at = 0;
    scale.entries.retain(|_| {
        at += 1;
        !taken.contains(&(at - 1))
    });
    for mut entry in scale.entries {
        let Some(path) = path.filter(|_| entry.set.has(&steps(&SPEC_REPLICAS))) else { continue };
        entry.api_version = api_version.to_owned().into();
        entry.set = FieldSet::of_fields(&[path]);
        // Upstream looks the time up among the object's own entries, where this one is not.
        entry.time = None;
        entry.touch();
        managed.entries.push(entry);
    }
    managed.encode()
}
