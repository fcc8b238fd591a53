//! Claims and volumes that are in use are not removed under their users: a finalizer holds them. Pure.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::{PersistentVolume, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::pod;

pub const CLAIM: &str = "kubernetes.io/pvc-protection";
pub const VOLUME: &str = "kubernetes.io/pv-protection";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Nothing,
    /// It was made without.
    Hold,
    LetGo,
}

/// Whether the finalizer has to come or to go.
pub fn next(meta: &ObjectMeta, finalizer: &str, is_used: impl FnOnce() -> bool) -> Next {
    let is_held = meta.finalizers.iter().flatten().any(|name| name == finalizer);
    match (is_held, meta.deletion_timestamp.is_some()) {
        (false, false) => Next::Hold,
        (true, true) if !is_used() => Next::LetGo,
        _ => Next::Nothing,
    }
}

pub fn change(meta: &mut ObjectMeta, finalizer: &str, next: Next) {
    let finalizers = meta.finalizers.get_or_insert_default();
    finalizers.retain(|name| name != finalizer);
    if next == Next::Hold {
        finalizers.push(finalizer.to_owned());
    }
}

/// A Pod that is on no node yet does not count: no node starts one whose claim is on its way out.
pub fn is_claim_used(name: &str, pods: &[Arc<Pod>]) -> bool {
    pods.iter().any(|pod| pod::node(pod).is_some() && claims(pod).any(|claim| claim == name))
}

/// The claims of a Pod, by name in its namespace.
pub fn claims(pod: &Pod) -> impl Iterator<Item = String> {
    let volumes = pod.spec.iter().filter_map(|spec| spec.volumes.as_ref()).flatten();
    volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name)),
        (None, None) => None,
    })
}

/// One whose binding is under way is used as well.
pub fn is_volume_used(volume: &PersistentVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let is_taken = reference.is_some_and(|reference| reference.uid.as_deref().is_some_and(|uid| !uid.is_empty()));
    phase == "Bound" || is_taken && !matches!(phase, "Released" | "Failed")
}
