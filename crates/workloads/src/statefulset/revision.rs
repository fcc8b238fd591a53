//! The revisions of a StatefulSet's template, kept as ControllerRevisions. Pure.

use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, StatefulSet},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, runtime::RawExtension},
};
use serde_json::{Value, json};

use crate::owner;

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
        Some(same) if same.revision + 1 == next => (name(same), None),
        Some(same) => {
            let renumbered = ControllerRevision { revision: next, ..(*same).clone() };
            (name(same), Some(Write::Renumber(Box::new(renumbered))))
        }
        None => {
            let made = make(set, &spec.template, next)?;
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

fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

fn make(set: &StatefulSet, template: &PodTemplateSpec, revision: i64) -> Option<ControllerRevision> {
    let mut inner = serde_json::to_value(template).ok()?;
    inner.as_object_mut()?.insert("$patch".into(), "replace".into());
    let data = json!({"spec": {"template": inner}});
    let collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0);
    let hash = hash(&data, collisions);
    let mut labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
    labels.insert(HASH.into(), hash.clone());
    // A name of the set that is as long as it may be leaves room for this.
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let name = name.get(..223.min(name.len())).unwrap_or(name);
    Some(ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{hash}")),
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

/// Letters that make no words, as upstream's names have them.
fn hash(data: &Value, collisions: i32) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let text = format!("{data}{}", if collisions > 0 { collisions.to_string() } else { String::new() });
    let fnv = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    fnv.to_string().bytes().map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()])).collect()
}
