//! What has to be done about a volume. Pure.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::{claim::BY_CONTROLLER, matching::annotation};
use controllers::note::Note;

/// Who made the volume, and will remove it.
pub const BY: &str = "pv.kubernetes.io/provisioned-by";

/// What is nothing stays as it is.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// Free again.
    pub volume: Option<PersistentVolume>,
    /// Its phase, and why.
    pub phase: Option<(&'static str, Option<String>)>,
    pub note: Option<Note>,
}

/// `claim` is the one that the volume names, as the API has it and not only a cache; one of the same name with another uid is not it.
pub fn decide(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> Plan {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    // Somebody may have reserved it for a claim that is still to come.
    let Some(reference) = reference.filter(|reference| reference.uid.as_deref().is_some_and(|uid| !uid.is_empty()))
    else {
        return phase(volume, "Available");
    };
    let Some(claim) = claim.filter(|claim| claim.metadata.uid == reference.uid) else { return release(volume) };
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty());
    match named {
        Some(name) if Some(name) == volume.metadata.name.as_deref() => phase(volume, "Bound"),
        // The claim has another one. What was made only for it has no use.
        Some(_) if is_made(volume) && policy(volume) == "Delete" => release(volume),
        Some(_) => let_go(volume),
        // Binding is under way.
        None => Plan::default(),
    }
}

fn is_made(volume: &PersistentVolume) -> bool {
    annotation(&volume.metadata, BY).is_some()
}

fn policy(volume: &PersistentVolume) -> &str {
    let said = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    said.unwrap_or("Retain")
}

fn phase_of(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn phase(volume: &PersistentVolume, phase: &'static str) -> Plan {
    Plan { phase: (phase_of(volume) != phase).then_some((phase, None)), ..Plan::default() }
}

/// The claim is gone: the volume waits for who made it to remove it, or for a person.
fn release(volume: &PersistentVolume) -> Plan {
    if phase_of(volume) == "Failed" {
        return Plan::default();
    }
    let fail = |reason, message: String| Plan {
        phase: Some(("Failed", Some(message.clone()))),
        note: Some(Note::warning(reason, message)),
        ..Plan::default()
    };
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    match policy(volume) {
        // One after the other, so that everybody sees that it was released.
        _ if phase_of(volume) != "Released" => phase(volume, "Released"),
        "Delete" if !is_made(volume) => fail(
            "VolumeFailedDelete",
            format!("error getting deleter volume plugin for volume {name:?}: no deletable volume plugin matched"),
        ),
        "Recycle" => fail("VolumeFailedRecycle", "No recycler plugin found for the volume!".into()),
        _ => Plan::default(),
    }
}

/// Back to who had it before us: nobody, or the claim that it was reserved for by hand.
fn let_go(volume: &PersistentVolume) -> Plan {
    let mut changed = volume.clone();
    let is_ours = annotation(&volume.metadata, BY_CONTROLLER).is_some();
    let spec = changed.spec.get_or_insert_default();
    if is_ours {
        spec.claim_ref = None;
        changed.metadata.annotations.get_or_insert_default().remove(BY_CONTROLLER);
    } else if let Some(reference) = &mut spec.claim_ref {
        reference.uid = None;
        reference.resource_version = None;
    }
    Plan { volume: Some(changed), phase: Some(("Available", None)), note: None }
}
