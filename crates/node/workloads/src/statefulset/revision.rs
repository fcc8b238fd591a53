//! The revisions of a StatefulSet's template, kept as ControllerRevisions. Pure.

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, StatefulSet},
    core::v1::PodTemplateSpec,
};

use crate::revision::{self, template_of};

const HASH: &str = "controller.kubernetes.io/hash";

/// A template with the name of its revision.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    pub name: String,
    pub template: PodTemplateSpec,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    Create(Box<ControllerRevision>),
    /// An older one is the newest again: a rollback.
    Renumber(Box<ControllerRevision>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Versions {
    pub current: Version,
    pub update: Version,
    pub write: Option<Write>,
    /// Names of those that nobody needs any more.
    pub forget: Vec<String>,
}

/// `used` are the revisions that Pods have.
pub fn versions(set: &StatefulSet, known: &[&ControllerRevision], used: &[&str]) -> Option<Versions> {
    let spec = set.spec.as_ref()?;
    let mut known = known.to_vec();
    known.sort_by(|a, b| (a.revision, &a.metadata.name).cmp(&(b.revision, &b.metadata.name)));
    let next = known.last().map_or(0, |last| last.revision).saturating_add(1);
    let name = |one: &ControllerRevision| one.metadata.name.clone().unwrap_or_default();
    let same = known.iter().rev().find(|one| template_of(one).as_ref() == Some(&spec.template));
    let (update, write) = match same {
        Some(same) if same.revision.saturating_add(1) == next => (name(same), None),
        Some(same) => {
            let renumbered = ControllerRevision { revision: next, ..(*same).clone() };
            (name(same), Some(Write::Renumber(Box::new(renumbered))))
        }
        None => {
            let collisions = set.status.as_ref().and_then(|status| status.collision_count);
            let made = revision::make(set, &spec.template, collisions, HASH, next)?;
            (name(&made), Some(Write::Create(Box::new(made))))
        }
    };
    let update = Version { name: update, template: spec.template.clone() };
    let status = set.status.as_ref();
    let current = status.and_then(|status| status.current_revision.as_deref()).filter(|name| !name.is_empty());
    let current = current.and_then(|wanted| {
        let found = known.iter().find(|one| one.metadata.name.as_deref() == Some(wanted))?;
        Some(Version { name: wanted.to_owned(), template: template_of(found)? })
    });
    let current = current.unwrap_or_else(|| update.clone());
    let limit = spec.revision_history_limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(10);
    let is_live = |name: &str| name == current.name || name == update.name || used.contains(&name);
    let mut forget: Vec<String> = known.iter().map(|one| name(one)).filter(|name| !is_live(name)).collect();
    forget.truncate(forget.len().saturating_sub(limit));
    Some(Versions { current, update, write, forget })
}
