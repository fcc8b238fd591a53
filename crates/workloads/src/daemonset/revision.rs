//! The revisions of a DaemonSet's template, kept as ControllerRevisions: what `kubectl rollout history` and `undo` read. Pure.

use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, DaemonSet},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, runtime::RawExtension},
};
use serde_json::json;

use crate::{hash, owner};

pub const HASH: &str = "controller-revision-hash";

#[derive(Debug, PartialEq)]
pub enum Write {
    Nothing,
    Create(Box<ControllerRevision>),
    /// A template that was there before is the newest again.
    Renumber(Box<ControllerRevision>),
}

fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// The hash of the template as it is now, and what is to be written for it.
pub fn current(set: &DaemonSet, known: &[ControllerRevision]) -> Option<(String, Write)> {
    let template = &set.spec.as_ref()?.template;
    let newest = known.iter().map(|revision| revision.revision).max().unwrap_or(0);
    let same = known.iter().filter(|one| template_of(one).as_ref() == Some(template)).max_by_key(|one| one.revision);
    let Some(same) = same else {
        let made = make(set, template, newest.saturating_add(1))?;
        return Some((hash_of(&made)?, Write::Create(Box::new(made))));
    };
    let hash = hash_of(same)?;
    if same.revision == newest {
        return Some((hash, Write::Nothing));
    }
    let renumbered = ControllerRevision { revision: newest.saturating_add(1), ..same.clone() };
    Some((hash, Write::Renumber(Box::new(renumbered))))
}

fn hash_of(revision: &ControllerRevision) -> Option<String> {
    revision.metadata.labels.as_ref()?.get(HASH).cloned()
}

fn make(set: &DaemonSet, template: &PodTemplateSpec, revision: i64) -> Option<ControllerRevision> {
    let mut inner = serde_json::to_value(template).ok()?;
    inner.as_object_mut()?.insert("$patch".into(), "replace".into());
    let data = json!({"spec": {"template": inner}});
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let hash = hash::of(data.to_string().as_bytes(), collisions);
    let mut labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
    labels.insert(HASH.into(), hash.clone());
    Some(ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", set.metadata.name.as_deref().unwrap_or_default())),
            namespace: set.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: set.metadata.annotations.clone(),
            owner_references: owner::reference(set).map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision,
    })
}

/// Those that nobody needs any more: the oldest beyond the limit, but none that a Pod has.
pub fn forgotten<'a>(
    set: &DaemonSet,
    known: &'a [ControllerRevision],
    current: &str,
    used: &[String],
) -> Vec<&'a ControllerRevision> {
    let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
    let limit = usize::try_from(limit).unwrap_or(0);
    let is_needed = |one: &ControllerRevision| hash_of(one).is_none_or(|hash| hash == current || used.contains(&hash));
    let mut old: Vec<&ControllerRevision> = known.iter().filter(|one| !is_needed(one)).collect();
    old.sort_by_key(|one| one.revision);
    old.truncate(old.len().saturating_sub(limit));
    old
}
