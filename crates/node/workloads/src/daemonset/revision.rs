//! The revisions of a DaemonSet's template, kept as ControllerRevisions: what `kubectl rollout history` and `undo` read. Pure.

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};

use crate::revision::{self, template_of};

pub const HASH: &str = "controller-revision-hash";

#[derive(Debug, PartialEq)]
pub enum Write {
    Nothing,
    Create(Box<ControllerRevision>),
    /// A template that was there before is the newest again.
    Renumber(Box<ControllerRevision>),
}

/// The hash of the template as it is now, and what is to be written for it.
pub fn current(set: &DaemonSet, known: &[ControllerRevision]) -> Option<(String, Write)> {
    let template = &set.spec.as_ref()?.template;
    let newest = known.iter().map(|revision| revision.revision).max().unwrap_or(0);
    let same = known.iter().filter(|one| template_of(one).as_ref() == Some(template)).max_by_key(|one| one.revision);
    let Some(same) = same else {
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let made = revision::make(set, template, collisions, HASH, newest.saturating_add(1))?;
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
