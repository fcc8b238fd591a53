//! What a Pod's claims mean for where it can go: one that is bound goes where its volume is, one that waits for its first consumer is made where the
//! Pod goes. Pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::core::{Selector, SelectorExt};

use super::fit;
use crate::quantity::milli;
use controllers::{cache::Key, owner};

/// Says for which node a claim is to be made.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BOUND: &str = "pv.kubernetes.io/bind-completed";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

const NO_MATCH: &str = "node(s) didn't find available persistent volumes to bind";
const ELSEWHERE: &str = "node(s) didn't match PersistentVolume's node affinity";
const NO_VOLUME: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// All that there is. Empty where nobody asks.
#[derive(Default)]
pub struct Volumes {
    pub claims: BTreeMap<Key, Arc<PersistentVolumeClaim>>,
    pub volumes: BTreeMap<String, Arc<PersistentVolume>>,
    pub classes: BTreeMap<String, Arc<StorageClass>>,
}

/// The names of a Pod's claims, and whether each was to be made for this Pod alone.
pub fn names(pod: &Pod) -> impl Iterator<Item = (String, bool)> + '_ {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        if let Some(claim) = &volume.persistent_volume_claim {
            return Some((claim.claim_name.clone(), false));
        }
        let pod = pod.metadata.name.as_deref().unwrap_or_default();
        volume.ephemeral.as_ref().map(|_| (format!("{pod}-{}", volume.name), true))
    })
}

/// What the claims of one Pod need.
#[derive(Default)]
pub struct Claims {
    /// Names of those that one Pod alone may use.
    pub exclusive: Vec<String>,
    /// Nothing where the volume is not there.
    bound: Vec<Option<Arc<PersistentVolume>>>,
    unbound: Vec<Unbound>,
}

struct Unbound {
    claim: Arc<PersistentVolumeClaim>,
    class: Arc<StorageClass>,
    /// Chosen before.
    node: Option<String>,
    /// Volumes that are there already and would do.
    fitting: Vec<Arc<PersistentVolume>>,
}

impl Volumes {
    /// Why the Pod can go nowhere at all, or what its claims need. `is_node` says whether there is a node of this name.
    pub fn of(&self, pod: &Pod, is_node: impl Fn(&str) -> bool) -> Result<Claims, String> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut found = Vec::new();
        for (name, is_own) in names(pod) {
            let Some(claim) = self.claims.get(&Key::new(namespace, &name)) else {
                return Err(match is_own {
                    true => {
                        format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}")
                    }
                    false => format!("persistentvolumeclaim {name:?} not found"),
                });
            };
            let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
            if claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Lost")) {
                return Err(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
                ));
            }
            if owner::is_deleting(&claim.metadata) {
                return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
            }
            let is_owned = || owner::controller_of(&claim.metadata).map(|owner| Some(&owner.uid));
            if is_own && is_owned() != Some(pod.metadata.uid.as_ref()) {
                let pod = Key::of(pod);
                return Err(format!("PVC {namespace}/{name} was not created for pod {pod} (pod is not owner)"));
            }
            found.push(claim);
        }
        let mut claims = Claims::default();
        for claim in found {
            let spec = claim.spec.clone().unwrap_or_default();
            if spec.access_modes.iter().flatten().any(|mode| mode == "ReadWriteOncePod") {
                claims.exclusive.extend(claim.metadata.name.clone());
            }
            let volume = spec.volume_name.as_deref().filter(|name| !name.is_empty());
            let is_done = claim.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(BOUND))
                || claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"));
            if let Some(volume) = volume.filter(|_| is_done) {
                claims.bound.push(self.volumes.get(volume).cloned());
                continue;
            }
            let class = spec.storage_class_name.as_ref().and_then(|name| self.classes.get(name));
            let waits =
                |class: &&Arc<StorageClass>| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
            let Some(class) = class.filter(|class| volume.is_none() && waits(class)) else {
                return Err("pod has unbound immediate PersistentVolumeClaims".into());
            };
            let chosen = claim.metadata.annotations.as_ref().and_then(|all| all.get(SELECTED_NODE));
            claims.unbound.push(Unbound {
                claim: claim.clone(),
                class: class.clone(),
                // One that is gone will never have it.
                node: chosen.filter(|node| is_node(node)).cloned(),
                fitting: self.volumes.values().filter(|volume| fits(volume, claim)).cloned().collect(),
            });
        }
        Ok(claims)
    }
}

impl Claims {
    /// What speaks against a node.
    pub fn against(&self, node: &Node) -> Vec<&'static str> {
        let mut reasons = Vec::new();
        if self.bound.iter().flatten().any(|volume| !is_within_reach(volume, node)) {
            reasons.push(ELSEWHERE);
        }
        if !self.can_be_made(node) {
            reasons.push(NO_MATCH);
        }
        if self.bound.iter().any(Option::is_none) {
            reasons.push(NO_VOLUME);
        }
        reasons
    }

    fn can_be_made(&self, node: &Node) -> bool {
        let mut taken: Vec<&str> = Vec::new();
        self.unbound.iter().all(|one| {
            if let Some(chosen) = &one.node {
                return Some(chosen) == node.metadata.name.as_ref();
            }
            let names = one.fitting.iter().filter(|volume| is_within_reach(volume, node));
            let mut names = names.filter_map(|volume| volume.metadata.name.as_deref());
            if let Some(free) = names.find(|name| !taken.contains(name)) {
                taken.push(free);
                return true;
            }
            one.class.provisioner != NO_PROVISIONER && is_allowed(&one.class, node)
        })
    }

    pub fn are_bound(&self) -> bool {
        self.unbound.is_empty()
    }

    /// Those that do not say yet that they are to be made for this node.
    pub fn to_choose(&self, node: &str) -> Vec<Arc<PersistentVolumeClaim>> {
        let differs = |one: &&Unbound| one.node.as_deref() != Some(node);
        self.unbound.iter().filter(differs).map(|one| one.claim.clone()).collect()
    }
}

fn is_within_reach(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    affinity.and_then(|affinity| affinity.required.as_ref()).is_none_or(|required| fit::matches_any(required, node))
}

/// Whether a class makes volumes for a node at all.
fn is_allowed(class: &StorageClass, node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    let holds = |term: &k8s_openapi::api::core::v1::TopologySelectorTerm| {
        let mut all = term.match_label_expressions.iter().flatten();
        all.all(|one| labels.and_then(|labels| labels.get(&one.key)).is_some_and(|value| one.values.contains(value)))
    };
    terms.is_empty() || terms.iter().any(holds)
}

/// Whether a volume that is there would do for a claim, wherever it is.
fn fits(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (Some(has), Some(wants)) = (&volume.spec, &claim.spec) else { return false };
    let is_free = match &has.claim_ref {
        None => volume.status.as_ref().is_none_or(|status| matches!(status.phase.as_deref(), None | Some("Available"))),
        Some(by) => {
            by.namespace == claim.metadata.namespace
                && by.name == claim.metadata.name
                && (by.uid.is_none() || by.uid == claim.metadata.uid)
        }
    };
    let class = |name: &Option<String>| name.clone().unwrap_or_default();
    let asked = wants.resources.as_ref().and_then(|asked| asked.requests.as_ref()?.get("storage"));
    let room = has.capacity.as_ref().and_then(|capacity| capacity.get("storage")).and_then(milli).unwrap_or(0);
    let modes = has.access_modes.as_deref().unwrap_or_default();
    let labels = volume.metadata.labels.clone().unwrap_or_default();
    let is_selected = wants
        .selector
        .as_ref()
        .is_none_or(|selector| Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(&labels)));
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".into());
    is_free
        && !owner::is_deleting(&volume.metadata)
        && class(&has.storage_class_name) == class(&wants.storage_class_name)
        && asked.and_then(milli).unwrap_or(0) <= room
        && wants.access_modes.iter().flatten().all(|mode| modes.contains(mode))
        && mode(&has.volume_mode) == mode(&wants.volume_mode)
        && is_selected
}
