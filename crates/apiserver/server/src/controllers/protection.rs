//! Finalizers that protect storage go when nobody uses the object any more.
//!
//! Admission puts them on claims, volumes and classes of volume attributes. Where Pods run, the controllers of volumes
//! take those of claims and volumes off again; a center and an edge of another cluster have no such controllers, so the
//! server does it there. Classes of volume attributes are the server's everywhere.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use cache::{Change, ChangeKind};
use schema::selector::scan;
use schema::status::Result;
use serde_json::Value;

use super::{Controllers, background, queue::Queue};
use crate::{
    Server,
    internal::{Internal, is_held},
};

const RETRY: Duration = Duration::from_secs(2);
const CLAIMS: &str = "core/persistentvolumeclaims";
const VOLUMES: &str = "core/persistentvolumes";
const CLASSES: &str = "storage.k8s.io/volumeattributesclasses";
const PODS: &str = "core/pods";

/// What is deleted and protected, by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protected {
    Claim,
    Volume,
    Class,
}

impl Protected {
    const ALL: [Self; 3] = [Self::Claim, Self::Volume, Self::Class];

    fn collection(self) -> &'static str {
        match self {
            Self::Claim => CLAIMS,
            Self::Volume => VOLUMES,
            Self::Class => CLASSES,
        }
    }

    fn finalizer(self) -> &'static str {
        match self {
            Self::Claim => "kubernetes.io/pvc-protection",
            Self::Volume => "kubernetes.io/pv-protection",
            Self::Class => "kubernetes.io/vac-protection",
        }
    }

    /// Whether objects of this collection may use it.
    fn is_used_in(self, collection: &str) -> bool {
        match self {
            Self::Claim => collection == PODS,
            Self::Volume => collection == CLAIMS,
            Self::Class => matches!(collection, CLAIMS | VOLUMES),
        }
    }
}

/// Keys of objects that are to go: those of the cache, one queue for each kind.
#[derive(Default)]
pub struct Protection {
    /// Whether claims and volumes are looked after, too.
    all: bool,
    queues: [Queue; 3],
    /// Objects that are still used, by kind and key. What is used may be free after any change of its users.
    waiting: Mutex<HashSet<(usize, Box<str>)>>,
}

impl Protection {
    pub fn new(all: bool) -> Self {
        Self { all, ..Self::default() }
    }

    pub fn observe(&self, collection: &str, change: &Change) {
        let which = Protected::ALL.iter().position(|kind| kind.collection() == collection);
        if which.is_none() && collection != PODS {
            return;
        }
        let object = &change.object;
        if let Some(which) = which
            && (self.all || Protected::ALL[which] == Protected::Class)
            && change.kind != ChangeKind::Deleted
            && scan::rare_at(&object.json, &["metadata", "deletionTimestamp"]).is_some()
        {
            self.queues[which].push(&object.key);
        }
        if change.kind == ChangeKind::Added || collection == PODS && change.kind != ChangeKind::Deleted {
            return;
        }
        let waiting = self.waiting();
        if waiting.is_empty() {
            return;
        }
        let prefix = format!("{}/", object.cluster());
        for (which, key) in waiting.iter().filter(|(_, key)| key.starts_with(&prefix)) {
            if Protected::ALL[*which].is_used_in(collection) {
                self.queues[*which].push(key);
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashSet<(usize, Box<str>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts one task for each kind.
pub fn start(controllers: &Arc<Controllers>, server: &Arc<Server>) {
    for (which, protected) in Protected::ALL.into_iter().enumerate() {
        // Controllers of volumes know better where they run.
        if protected == Protected::Class || controllers.protection.all {
            background(server, run(which, controllers.clone(), server.clone()));
        }
    }
}

async fn run(which: usize, controllers: Arc<Controllers>, server: Arc<Server>) {
    let queue = &controllers.protection.queues[which];
    loop {
        let key = queue.pop().await;
        if let Err(error) = handle(&controllers.protection, &server, which, &key).await {
            tracing::warn!(%error, "a finalizer that protects storage could not be taken away; trying again");
            let again = controllers.clone();
            queue.again(key, move |key| again.protection.queues[which].push(key), RETRY);
        }
    }
}

async fn handle(protection: &Protection, server: &Arc<Server>, which: usize, key: &str) -> Result<()> {
    let protected = Protected::ALL[which];
    // It waits before it is looked at: a user that goes meanwhile brings it back.
    protection.waiting().insert((which, key.into()));
    let Some(object) = server.cache.get(protected.collection(), key) else {
        protection.waiting().remove(&(which, key.into()));
        return Ok(());
    };
    let value = object.value();
    let goes = !value["metadata"]["deletionTimestamp"].is_null() && is_held(&value, protected.finalizer());
    if goes && is_used(server, object.cluster(), protected, &value) {
        return Ok(());
    }
    protection.waiting().remove(&(which, key.into()));
    if !goes {
        return Ok(());
    }
    let (group, resource) = match protected {
        Protected::Claim => ("", "persistentvolumeclaims"),
        Protected::Volume => ("", "persistentvolumes"),
        Protected::Class => ("storage.k8s.io", "volumeattributesclasses"),
    };
    let hand = Internal::new(server, object.cluster(), "kube-controller-manager");
    let kind = hand.kind(group, "v1", resource)?;
    let edit = |value: &mut Value| {
        if let Some(list) = value["metadata"]["finalizers"].as_array_mut() {
            list.retain(|finalizer| finalizer != protected.finalizer());
        }
    };
    hand.change(&kind, object.namespace(), object.name(), "", edit).await.map(drop)
}

fn is_used(server: &Server, cluster: &str, protected: Protected, value: &Value) -> bool {
    let name = text(&value["metadata"]["name"]);
    match protected {
        Protected::Claim => {
            let prefix = format!("{cluster}/{}/", text(&value["metadata"]["namespace"]));
            server.cache.snapshot(PODS).items.range(&prefix, "").any(|pod| is_used_by(&pod.value(), name))
        }
        Protected::Volume => {
            let reference = &value["spec"]["claimRef"];
            let key = format!("{cluster}/{}/{}", text(&reference["namespace"]), text(&reference["name"]));
            server.cache.get(CLAIMS, &key).is_some_and(|claim| is_bound_to(&claim.value(), value))
        }
        Protected::Class => [CLAIMS, VOLUMES].into_iter().any(|collection| {
            let snapshot = server.cache.snapshot(collection);
            snapshot.items.range(&format!("{cluster}/"), "").any(|object| names_class(&object.json, name))
        }),
    }
}

/// Whether a Pod that has a node uses the claim.
fn is_used_by(pod: &Value, claim: &str) -> bool {
    let owner = text(&pod["metadata"]["name"]);
    !text(&pod["spec"]["nodeName"]).is_empty()
        && pod["spec"]["volumes"].as_array().into_iter().flatten().any(|volume| {
            let ephemeral = volume["ephemeral"].is_object() && format!("{owner}-{}", text(&volume["name"])) == claim;
            volume["persistentVolumeClaim"]["claimName"] == claim || ephemeral
        })
}

/// Whether a claim is the one that a volume is bound to.
fn is_bound_to(claim: &Value, volume: &Value) -> bool {
    let (metadata, reference) = (&claim["metadata"], &volume["spec"]["claimRef"]);
    let same = reference["namespace"] == metadata["namespace"]
        && reference["name"] == metadata["name"]
        && (reference["uid"].is_null() || reference["uid"] == "" || reference["uid"] == metadata["uid"]);
    same && claim["spec"]["volumeName"] == volume["metadata"]["name"]
}

/// Whether a claim or a volume has a class, had it, or is to have it.
fn names_class(json: &[u8], class: &str) -> bool {
    let paths: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    paths.iter().any(|path| scan::string_at(json, path).is_some_and(|name| name == class))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_are_used_by_pods_that_have_a_node() {
        let volumes =
            json!([{"name": "a", "persistentVolumeClaim": {"claimName": "mine"}}, {"name": "b", "ephemeral": {}}]);
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "volumes": volumes}});
        for (claim, used) in [("mine", true), ("p-b", true), ("p-a", false), ("other", false)] {
            assert_eq!(is_used_by(&pod, claim), used, "{claim}");
        }
        assert!(!is_used_by(&json!({"metadata": {"name": "p"}, "spec": {"volumes": volumes}}), "mine"));
    }

    #[test]
    fn volumes_are_used_by_the_claim_that_they_are_bound_to() {
        let claim = json!({"metadata": {"name": "c", "namespace": "n", "uid": "1"}, "spec": {"volumeName": "v"}});
        for (reference, used) in [
            (json!({"name": "c", "namespace": "n", "uid": "1"}), true),
            (json!({"name": "c", "namespace": "n"}), true),
            (json!({"name": "c", "namespace": "n", "uid": "2"}), false),
            (json!({"name": "d", "namespace": "n"}), false),
            (json!(null), false),
        ] {
            let volume = json!({"metadata": {"name": "v"}, "spec": {"claimRef": reference}});
            assert_eq!(is_bound_to(&claim, &volume), used, "{reference}");
        }
    }

    #[test]
    fn classes_are_used_by_claims_and_volumes() {
        for object in [
            json!({"spec": {"volumeAttributesClassName": "gold"}}),
            json!({"status": {"currentVolumeAttributesClassName": "gold"}}),
            json!({"status": {"modifyVolumeStatus": {"targetVolumeAttributesClassName": "gold"}}}),
        ] {
            let json = object.to_string();
            assert!(names_class(json.as_bytes(), "gold"), "{json}");
            assert!(!names_class(json.as_bytes(), "silver"), "{json}");
        }
    }
}
