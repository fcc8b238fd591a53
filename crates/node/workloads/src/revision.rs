//! A template as a ControllerRevision keeps it, for the kinds whose history is made of those: what `kubectl rollout history` and `undo` read. Pure.

use k8s_openapi::{
    api::{apps::v1::ControllerRevision, core::v1::PodTemplateSpec},
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, runtime::RawExtension},
};
use kube::Resource;
use serde_json::json;

use crate::hash;
use controllers::owner;

/// A name of an owner that is as long as it may be leaves room for the hash.
const LONGEST_NAME: usize = 223;

pub fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.pointer("/spec/template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// The revision of a template, with its hash in its name and in this label.
pub fn make(
    owner: &impl Resource<DynamicType = ()>,
    template: &PodTemplateSpec,
    collisions: Option<i32>,
    label: &str,
    revision: i64,
) -> Option<ControllerRevision> {
    let mut inner = serde_json::to_value(template).ok()?;
    inner.as_object_mut()?.insert("$patch".into(), "replace".into());
    let data = json!({"spec": {"template": inner}});
    let hash = hash::of(data.to_string().as_bytes(), collisions.filter(|count| *count > 0));
    let mut labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
    labels.insert(label.into(), hash.clone());
    let name = owner.meta().name.as_deref().unwrap_or_default();
    let name = name.get(..LONGEST_NAME.min(name.len())).unwrap_or(name);
    Some(ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{hash}")),
            namespace: owner.meta().namespace.clone(),
            labels: Some(labels),
            annotations: owner.meta().annotations.clone(),
            owner_references: owner::reference(owner).map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision,
    })
}
