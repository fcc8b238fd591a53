//! Which volume suits a claim. Pure.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use kube::core::{Selector, SelectorExt};

use crate::{quantity::milli, scheduler::fit};

/// Where classes were said before there was a field for them; it still counts.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Nothing means that none was said, which is not the same as an empty one.
pub fn class_of_claim(claim: &PersistentVolumeClaim) -> Option<&str> {
    let said = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    annotation(&claim.metadata, OLD_CLASS).or(said)
}

pub fn class_of_volume(volume: &PersistentVolume) -> &str {
    let said = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    annotation(&volume.metadata, OLD_CLASS).or(said).unwrap_or_default()
}

/// Whether the volume says that it is this claim's. Who made the claim's reservation by hand need not know its uid.
pub fn is_of(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    reference.is_some_and(|reference| {
        let uid = reference.uid.as_deref().filter(|uid| !uid.is_empty());
        reference.namespace == claim.metadata.namespace
            && reference.name == claim.metadata.name
            && uid.is_none_or(|uid| Some(uid) == claim.metadata.uid.as_deref())
    })
}

/// Why a volume that somebody asked for by name is not what the claim asks for.
pub fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<&'static str> {
    if size(volume) < asked(claim) {
        Some("requested PV is too small")
    } else if class_of_volume(volume) != class_of_claim(claim).unwrap_or_default() {
        Some("storageClassName does not match")
    } else if !has_same_mode(volume, claim) {
        Some("incompatible volumeMode")
    } else if !has_access(volume, claim) {
        Some("incompatible accessMode")
    } else {
        None
    }
}

/// The volume to bind: the one that is reserved for the claim, else of those that suit it the one with the fewest ways of access, then the smallest.
///
/// Where the scheduler has a say (`is_delayed`) only a reservation counts; once it has chosen a node, what is reachable from there.
pub fn best<'a>(
    claim: &PersistentVolumeClaim,
    volumes: &'a [Arc<PersistentVolume>],
    is_delayed: bool,
    node: Option<&Node>,
) -> Option<&'a Arc<PersistentVolume>> {
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.clone());
    let selector = match selector.map(Selector::try_from) {
        Some(Ok(selector)) => Some(selector),
        None => None,
        // What cannot be understood selects nothing.
        Some(Err(_)) => return None,
    };
    let is_selected = |volume: &PersistentVolume| {
        let labels = volume.metadata.labels.clone().unwrap_or_default();
        selector.as_ref().is_none_or(|selector| selector.matches(&labels))
    };
    let suits = |volume: &&Arc<PersistentVolume>| {
        let attributes = |volume: &PersistentVolume| volume.spec.as_ref()?.volume_attributes_class_name.clone();
        let wanted = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.clone());
        volume.metadata.deletion_timestamp.is_none()
            && size(volume) >= asked(claim)
            && has_same_mode(volume, claim)
            && has_access(volume, claim)
            && attributes(volume) == wanted
            && node.is_none_or(|node| is_reachable(volume, node))
    };
    let is_free = |volume: &&Arc<PersistentVolume>| {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        !is_delayed
            && volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none())
            && phase == Some("Available")
            && class_of_volume(volume) == class_of_claim(claim).unwrap_or_default()
            && is_selected(volume)
    };
    let reserved = volumes.iter().filter(|volume| is_of(volume, claim)).find(suits);
    reserved.or_else(|| {
        let order = |volume: &&Arc<PersistentVolume>| {
            (modes(volume).len(), size(volume), volume.metadata.name.clone().unwrap_or_default())
        };
        volumes.iter().filter(suits).filter(is_free).min_by_key(order)
    })
}

fn is_reachable(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required| required.node_selector_terms.iter().any(|term| fit::matches(term, node)))
}

fn storage<'a>(amounts: impl IntoIterator<Item = (&'a String, &'a Quantity)>) -> i128 {
    amounts.into_iter().find(|(name, _)| *name == "storage").and_then(|(_, amount)| milli(amount)).unwrap_or(0)
}

fn size(volume: &PersistentVolume) -> i128 {
    storage(volume.spec.iter().filter_map(|spec| spec.capacity.as_ref()).flatten())
}

fn asked(claim: &PersistentVolumeClaim) -> i128 {
    let resources = claim.spec.iter().filter_map(|spec| spec.resources.as_ref());
    storage(resources.filter_map(|resources| resources.requests.as_ref()).flatten())
}

fn has_same_mode(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let of_volume = volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    let of_claim = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    of_volume.unwrap_or("Filesystem") == of_claim.unwrap_or("Filesystem")
}

fn modes(volume: &PersistentVolume) -> &[String] {
    volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default()
}

fn has_access(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let wanted = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    wanted.iter().all(|mode| modes(volume).contains(mode))
}
