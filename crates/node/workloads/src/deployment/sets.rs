//! The ReplicaSets of a Deployment: which is the new one, what their annotations say, and how a new one is made. Pure.

use std::{cmp::Ordering, collections::BTreeMap};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use super::bounds::max_surge;
use controllers::owner;

pub const HASH: &str = "pod-template-hash";
pub const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// So long is what is remembered of revisions that came back.
const LONGEST_HISTORY: usize = 2000;

/// These say something of the Deployment itself, or of each of its sets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];

pub fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

pub fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

pub fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

pub fn number(meta: &ObjectMeta, name: &str) -> Option<i32> {
    annotation(meta, name)?.parse().ok()
}

pub fn revision(meta: &ObjectMeta) -> i64 {
    annotation(meta, REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Older first; of the same second, by name.
pub fn by_age(a: &ReplicaSet, b: &ReplicaSet) -> Ordering {
    let created = |set: &ReplicaSet| set.metadata.creation_timestamp.as_ref().map(|Time(time)| *time);
    created(a).cmp(&created(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
}

/// The same template, but for the label that sets have and Deployments do not.
pub fn is_same(template: &PodTemplateSpec, set: &ReplicaSet) -> bool {
    let Some(other) = set.spec.as_ref().and_then(|spec| spec.template.as_ref()) else { return false };
    if template.spec != other.spec {
        return false;
    }
    let bare = |template: &PodTemplateSpec| {
        let mut meta = template.metadata.clone().unwrap_or_default();
        if let Some(labels) = &mut meta.labels {
            labels.remove(HASH);
        }
        meta.labels = meta.labels.filter(|labels| !labels.is_empty());
        meta.annotations = meta.annotations.filter(|annotations| !annotations.is_empty());
        meta
    };
    bare(template) == bare(other)
}

/// A set's name ends with it.
pub fn hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    crate::hash::of(&serde_json::to_vec(template).unwrap_or_default(), collisions)
}

/// The set of a Deployment's template, with nothing to run yet.
pub fn make(deployment: &Deployment, revision: i64) -> Option<ReplicaSet> {
    let spec = deployment.spec.as_ref()?;
    let hash = hash(&spec.template, deployment.status.as_ref().and_then(|status| status.collision_count));
    let mut template = spec.template.clone();
    template.metadata.get_or_insert_default().labels.get_or_insert_default().insert(HASH.into(), hash.clone());
    let mut selector = spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(HASH.into(), hash.clone());
    let mut set = ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", deployment.metadata.name.as_deref().unwrap_or_default())),
            namespace: deployment.metadata.namespace.clone(),
            labels: template.metadata.as_ref().and_then(|meta| meta.labels.clone()),
            owner_references: owner::reference(deployment).map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(0),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    };
    note_revision(deployment, &mut set, revision);
    note_size(deployment, &mut set);
    Some(set)
}

/// Says on the new set which revision it is, and what the Deployment says of itself. True if that was not said yet.
pub fn note_revision(deployment: &Deployment, set: &mut ReplicaSet, revision: i64) -> bool {
    let mut changed = false;
    let annotations = set.metadata.annotations.get_or_insert_default();
    for (name, value) in deployment.metadata.annotations.iter().flatten() {
        if !NOT_COPIED.contains(&name.as_str()) && annotations.get(name) != Some(value) {
            annotations.insert(name.clone(), value.clone());
            changed = true;
        }
    }
    let before = annotations.get(REVISION).cloned();
    if before.as_ref().and_then(|before| before.parse().ok()).unwrap_or(0) < revision {
        annotations.insert(REVISION.into(), revision.to_string());
        changed = true;
        if let Some(before) = before {
            remember(annotations, before);
        }
    }
    changed
}

fn remember(annotations: &mut BTreeMap<String, String>, revision: String) {
    let history = annotations.remove(HISTORY).unwrap_or_default();
    let mut all: Vec<&str> = history.split(',').filter(|one| !one.is_empty()).collect();
    all.push(&revision);
    while all.len() > 1 && all.iter().map(|one| one.len() + 1).sum::<usize>() > LONGEST_HISTORY {
        all.remove(0);
    }
    let joined = all.join(",");
    annotations.insert(HISTORY.into(), joined);
}

/// Says on a set how large the Deployment is, so that the next change of size can be shared out. True if that was not said yet.
pub fn note_size(deployment: &Deployment, set: &mut ReplicaSet) -> bool {
    let desired = super::bounds::replicas(deployment);
    let annotations = set.metadata.annotations.get_or_insert_default();
    let mut changed = false;
    for (name, value) in [(DESIRED, desired), (MAX, desired.saturating_add(max_surge(deployment)))] {
        let value = value.to_string();
        if annotations.get(name) != Some(&value) {
            annotations.insert(name.into(), value);
            changed = true;
        }
    }
    changed
}
