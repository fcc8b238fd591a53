//! The Pods and claims of a StatefulSet, each with its number. Pure.

use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetSpec},
        core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, Volume},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use super::revision::Version;
use controllers::owner;

pub const REVISION: &str = "controller-revision-hash";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// Which number a Pod has, if its name is one of this set's.
pub fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let name = pod.metadata.name.as_deref()?.strip_prefix(set.metadata.name.as_deref()?)?.strip_prefix('-')?;
    let plain = name == "0" || !name.starts_with(['0', '+', '-']);
    name.parse().ok().filter(|_| plain)
}

pub fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION)).map(String::as_str).unwrap_or_default()
}

pub fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.metadata.name.as_deref().unwrap_or_default())
}

pub fn make(set: &StatefulSet, spec: &StatefulSetSpec, version: &Version, ordinal: i32) -> Pod {
    let template = version.template.metadata.clone().unwrap_or_default();
    let name = pod_name(set, ordinal);
    let mut labels = template.labels.unwrap_or_default();
    labels.insert(REVISION.into(), version.name.clone());
    labels.insert(POD_NAME.into(), name.clone());
    labels.insert(POD_INDEX.into(), ordinal.to_string());
    let mut pod = Pod {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: set.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: template.annotations,
            finalizers: template.finalizers,
            owner_references: owner::reference(set).map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        spec: version.template.spec.clone(),
        status: None,
    };
    if let Some(inner) = &mut pod.spec {
        inner.hostname = Some(name);
        inner.subdomain = spec.service_name.clone().filter(|name| !name.is_empty());
        let volumes = inner.volumes.get_or_insert_default();
        for claim in spec.volume_claim_templates.iter().flatten() {
            let volume = claim.metadata.name.clone().unwrap_or_default();
            volumes.retain(|one| one.name != volume);
            volumes.push(Volume {
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                    claim_name: claim_name(set, claim, ordinal),
                    read_only: Some(false),
                }),
                name: volume,
                ..Volume::default()
            });
        }
        if volumes.is_empty() {
            inner.volumes = None;
        }
    }
    pod
}

fn claim_name(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i32) -> String {
    format!("{}-{}", template.metadata.name.as_deref().unwrap_or_default(), pod_name(set, ordinal))
}

pub fn claim_names(set: &StatefulSet, spec: &StatefulSetSpec, ordinal: i32) -> Vec<String> {
    spec.volume_claim_templates.iter().flatten().map(|one| claim_name(set, one, ordinal)).collect()
}

pub fn claims(set: &StatefulSet, spec: &StatefulSetSpec, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let one = |template: &PersistentVolumeClaim| {
        let mut labels = template.metadata.labels.clone().unwrap_or_default();
        labels.extend(spec.selector.match_labels.clone().unwrap_or_default());
        PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(claim_name(set, template, ordinal)),
                namespace: set.metadata.namespace.clone(),
                labels: Some(labels),
                annotations: template.metadata.annotations.clone(),
                owner_references: wanted_owners(set, spec, None, &[]),
                ..ObjectMeta::default()
            },
            spec: template.spec.clone(),
            status: None,
        }
    };
    spec.volume_claim_templates.iter().flatten().map(one).collect()
}

/// Who owns a claim, and so takes it along: by the retention policy. `condemned` is the claim's Pod if it is too many.
pub fn wanted_owners(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    condemned: Option<&Pod>,
    have: &[OwnerReference],
) -> Option<Vec<OwnerReference>> {
    let policy = spec.persistent_volume_claim_retention_policy.as_ref();
    let deletes = |when: Option<&String>| when.is_some_and(|when| when == "Delete");
    let when_deleted = deletes(policy.and_then(|policy| policy.when_deleted.as_ref()));
    let when_scaled = deletes(policy.and_then(|policy| policy.when_scaled.as_ref()));
    // Only what this controller put there is its business.
    let is_pods = |one: &OwnerReference| one.kind == "Pod" && one.api_version == "v1";
    let is_ours = |one: &OwnerReference| Some(&one.uid) == set.metadata.uid.as_ref() || is_pods(one);
    let mut owners: Vec<OwnerReference> = have.iter().filter(|one| !is_ours(one)).cloned().collect();
    match condemned.filter(|_| when_scaled) {
        Some(pod) => owners.extend(owner::reference(pod)),
        None if when_deleted => owners.extend(owner::reference(set)),
        None => {}
    }
    Some(owners).filter(|owners| !owners.is_empty())
}
