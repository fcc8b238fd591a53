//! What has to be done about a claim. Pure.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{Node, ObjectReference, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};

use super::matching::{annotation, best, class_of_claim, is_of, mismatch};
use controllers::note::Note;

/// The volume of a claim was chosen here, and not by who made the claim; the same at a volume.
pub const BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Binding was complete once: a claim that loses its volume after that has lost its data.
pub const COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Where the Pod that needs it will be; the scheduler says so.
pub const NODE: &str = "volume.kubernetes.io/selected-node";
/// Who has to make a volume for the claim, for provisioners to find it.
pub const PROVISIONER: [&str; 2] =
    ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
const YES: &str = "yes";
/// The provisioner of classes whose volumes are made by hand.
const NOBODY: &str = "kubernetes.io/no-provisioner";

pub struct Found<'a> {
    pub claim: &'a PersistentVolumeClaim,
    pub volumes: &'a [Arc<PersistentVolume>],
    /// All there are.
    pub classes: &'a [Arc<StorageClass>],
    /// The node that the scheduler chose, if it did and there is such a node.
    pub node: Option<&'a Node>,
}

/// Written in this order; what is nothing stays as it is.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// With the claim's name in it.
    pub volume: Option<PersistentVolume>,
    /// With the volume's name, marks, or its class.
    pub claim: Option<PersistentVolumeClaim>,
    pub status: Option<Status>,
    pub note: Option<Note>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    Pending,
    /// With this volume's size and ways of access.
    Bound(Arc<PersistentVolume>),
    Lost,
}

impl Status {
    pub fn phase(&self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Bound(_) => "Bound",
            Self::Lost => "Lost",
        }
    }
}

pub fn decide(found: &Found<'_>) -> Plan {
    let claim = found.claim;
    // Nothing is begun for who is on the way out; what it had is looked after when it is gone.
    if claim.metadata.deletion_timestamp.is_some() {
        return Plan::default();
    }
    let mut plan = if annotation(&claim.metadata, COMPLETED).is_some() { keep(found) } else { find(found) };
    let said = claim.status.as_ref();
    let is_said = plan.status.as_ref().is_some_and(|status| {
        let is_same = said.and_then(|said| said.phase.as_deref()) == Some(status.phase());
        is_same && (!matches!(status, Status::Bound(_)) || said.is_some_and(|said| said.capacity.is_some()))
    });
    if is_said {
        plan.status = None;
    }
    plan
}

fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty())
}

fn named<'a>(found: &Found<'a>, name: &str) -> Option<&'a Arc<PersistentVolume>> {
    found.volumes.iter().find(|volume| volume.metadata.name.as_deref() == Some(name))
}

/// A claim that has no volume yet.
fn find(found: &Found<'_>) -> Plan {
    let claim = found.claim;
    let Some(name) = volume_name(claim) else { return choose(found) };
    let pending = |note: Option<Note>| Plan { status: Some(Status::Pending), note, ..Plan::default() };
    let Some(volume) = named(found, name) else { return pending(None) };
    let is_free = volume.spec.as_ref().is_none_or(|spec| spec.claim_ref.is_none());
    if is_free && let Some(why) = mismatch(volume, claim) {
        let message = format!("Cannot bind to requested volume {name:?}: {why}");
        return pending(Some(Note::warning("VolumeMismatch", message)));
    }
    if is_free || is_of(volume, claim) {
        return bind(claim, volume);
    }
    let message = format!("volume {name:?} already bound to a different claim.");
    pending(Some(Note::warning("FailedBinding", message)))
}

/// A claim that leaves the choice to us.
fn choose(found: &Found<'_>) -> Plan {
    let claim = found.claim;
    let class_name = class_of_claim(claim);
    if class_name.is_none()
        && let Some(default) = default_class(found.classes)
    {
        // It was made before there was a default.
        let mut changed = claim.clone();
        changed.spec.get_or_insert_default().storage_class_name = Some(default.to_owned());
        return Plan { claim: Some(changed), ..Plan::default() };
    }
    let class_name = class_name.unwrap_or_default();
    let class = found.classes.iter().find(|class| class.metadata.name.as_deref() == Some(class_name));
    let waits = class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
    let is_delayed = waits && annotation(&claim.metadata, NODE).is_none();
    if let Some(volume) = best(claim, found.volumes, is_delayed, found.node) {
        return bind(claim, volume);
    }
    let pending =
        |note: Note, claim| Plan { claim, status: Some(Status::Pending), note: Some(note), ..Plan::default() };
    if is_delayed {
        let message = "waiting for first consumer to be created before binding";
        return pending(Note::normal("WaitForFirstConsumer", message), None);
    }
    if class_name.is_empty() {
        let message = "no persistent volumes available for this claim and no storage class is set";
        return pending(Note::normal("FailedBinding", message), None);
    }
    let Some(class) = class else {
        let message = format!("storageclass.storage.k8s.io {class_name:?} not found");
        return pending(Note::warning("ProvisioningFailed", message), None);
    };
    let provisioner = class.provisioner.as_str();
    if provisioner == NOBODY {
        let message = "no persistent volumes available for this claim, and its class makes none";
        return pending(Note::normal("FailedBinding", message), None);
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system \
         administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
    );
    let is_marked = PROVISIONER.iter().all(|name| annotation(&claim.metadata, name) == Some(provisioner));
    let marked = (!is_marked).then(|| {
        let mut changed = claim.clone();
        let annotations = changed.metadata.annotations.get_or_insert_default();
        annotations.extend(PROVISIONER.map(|name| (name.to_owned(), provisioner.to_owned())));
        changed
    });
    pending(Note::normal("ExternalProvisioning", message), marked)
}

/// The newest of the defaults, then the first by name.
fn default_class(classes: &[Arc<StorageClass>]) -> Option<&str> {
    const MARKS: [&str; 2] =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    let is_default =
        |class: &&Arc<StorageClass>| MARKS.iter().any(|mark| annotation(&class.metadata, mark) == Some("true"));
    let order = |class: &&Arc<StorageClass>| {
        let made = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (std::cmp::Reverse(made), class.metadata.name.clone())
    };
    classes.iter().filter(is_default).min_by_key(order).and_then(|class| class.metadata.name.as_deref())
}

/// A claim that had its volume once.
fn keep(found: &Found<'_>) -> Plan {
    let lost = |reason, message: &str| Plan {
        status: Some(Status::Lost),
        note: (found.claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Lost"))
            .then(|| Note::warning(reason, message)),
        ..Plan::default()
    };
    let Some(name) = volume_name(found.claim) else {
        return lost("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!");
    };
    let Some(volume) = named(found, name) else {
        return lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!");
    };
    let is_free = volume.spec.as_ref().is_none_or(|spec| spec.claim_ref.is_none());
    if is_free || is_of(volume, found.claim) {
        return bind(found.claim, volume);
    }
    lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
}

/// The volume says whose it is, then the claim what it has: whoever is stopped in between goes on from there.
fn bind(claim: &PersistentVolumeClaim, volume: &Arc<PersistentVolume>) -> Plan {
    let mut plan = Plan { status: Some(Status::Bound(volume.clone())), ..Plan::default() };
    let uid = claim.metadata.uid.clone();
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    if reference.is_none_or(|reference| reference.uid != uid) {
        let mut changed = (**volume).clone();
        if !is_of(volume, claim) {
            changed.metadata.annotations.get_or_insert_default().insert(BY_CONTROLLER.into(), YES.into());
        }
        changed.spec.get_or_insert_default().claim_ref = Some(ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("PersistentVolumeClaim".into()),
            namespace: claim.metadata.namespace.clone(),
            name: claim.metadata.name.clone(),
            uid,
            resource_version: claim.metadata.resource_version.clone(),
            field_path: None,
        });
        plan.volume = Some(changed);
    }
    let mut changed = claim.clone();
    let has_name = volume_name(claim).is_some();
    changed.spec.get_or_insert_default().volume_name.clone_from(&volume.metadata.name);
    let annotations = changed.metadata.annotations.get_or_insert_default();
    if !has_name {
        annotations.insert(BY_CONTROLLER.into(), YES.into());
    }
    annotations.entry(COMPLETED.into()).or_insert_with(|| YES.into());
    plan.claim = (changed != *claim).then_some(changed);
    plan
}
