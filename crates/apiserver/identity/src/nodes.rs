//! What each node has to do with: an index from objects to the nodes whose pods use them, kept as pods and volumes change.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use schema::selector::scan;
use serde_json::Value;

use super::pod_references::{self, MIRROR};

/// What a pod makes its node need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    Pod,
    Secret,
    ConfigMap,
    Claim,
    ServiceAccount,
    ResourceClaim,
    Volume,
    Attachment,
    Slice,
}

type Key = (What, Box<str>);

/// The nodes of one workspace. Objects are named `namespace/name`, with an empty namespace for those of the cluster.
#[derive(Debug, Default)]
pub struct Nodes {
    /// What each object on a node leads to, to take it back when the object changes.
    needs: HashMap<Key, (Arc<str>, Vec<Key>)>,
    /// Which nodes use an object, and how often.
    users: HashMap<Key, BTreeMap<Arc<str>, u32>>,
    volumes: HashMap<Box<str>, Volume>,
    /// Volumes by the secrets they need.
    secrets: HashMap<Box<str>, HashSet<Box<str>>>,
}

/// The claim that a volume is bound to, and the secrets that mounting it takes.
#[derive(Debug)]
struct Volume {
    claim: Box<str>,
    secrets: Vec<Box<str>>,
}

/// The collections that matter here.
pub fn concerns(collection: &str) -> bool {
    matches!(
        collection,
        "core/pods" | "core/persistentvolumes" | "storage.k8s.io/volumeattachments" | "resource.k8s.io/resourceslices"
    )
}

/// Whether a change of a pod can change what its node needs: most only report how it is doing.
pub fn is_news(collection: &str, old: &[u8], new: &[u8]) -> bool {
    let parts: [&[&str]; 4] = [
        &["spec"],
        &["metadata", "annotations"],
        &["status", "resourceClaimStatuses"],
        &["status", "extendedResourceClaimStatus"],
    ];
    collection != "core/pods" || parts.iter().any(|part| scan::raw_at(old, part) != scan::raw_at(new, part))
}

impl Nodes {
    /// An object is now this, or gone.
    pub fn set(&mut self, collection: &str, namespace: &str, name: &str, value: Option<&Value>) {
        let key: Box<str> = format!("{namespace}/{name}").into();
        let text = |pointer: &str| value.and_then(|v| v.pointer(pointer)).and_then(Value::as_str).unwrap_or_default();
        match collection {
            "core/pods" => {
                let needs = value.map(|pod| of_pod(pod, namespace)).unwrap_or_default();
                self.put((What::Pod, key), text("/spec/nodeName"), needs);
            }
            "core/persistentvolumes" => self.set_volume(key, value),
            "storage.k8s.io/volumeattachments" => self.put((What::Attachment, key), text("/spec/nodeName"), Vec::new()),
            "resource.k8s.io/resourceslices" => self.put((What::Slice, key), text("/spec/nodeName"), Vec::new()),
            _ => {}
        }
    }

    fn put(&mut self, key: Key, node: &str, needs: Vec<Key>) {
        if let Some((node, needs)) = self.needs.remove(&key) {
            for need in needs.iter().chain([&key]) {
                let Some(users) = self.users.get_mut(need) else { continue };
                match users.get_mut(&node) {
                    Some(count) if *count > 1 => *count -= 1,
                    _ => _ = users.remove(&node),
                }
                if users.is_empty() {
                    self.users.remove(need);
                }
            }
        }
        if node.is_empty() {
            return;
        }
        let node: Arc<str> = node.into();
        for need in needs.iter().chain([&key]) {
            *self.users.entry(need.clone()).or_default().entry(node.clone()).or_default() += 1;
        }
        self.needs.insert(key, (node, needs));
    }

    fn set_volume(&mut self, key: Box<str>, value: Option<&Value>) {
        if let Some(old) = self.volumes.remove(&key) {
            for secret in old.secrets {
                if let Some(volumes) = self.secrets.get_mut(&secret) {
                    volumes.remove(&key);
                    if volumes.is_empty() {
                        self.secrets.remove(&secret);
                    }
                }
            }
        }
        let Some(spec) = value.map(|v| &v["spec"]).filter(|spec| spec["claimRef"].is_object()) else { return };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let namespace = text(&spec["claimRef"]["namespace"]);
        let claim = format!("{namespace}/{}", text(&spec["claimRef"]["name"]));
        let secrets = pod_references::volume_secrets(spec, &namespace);
        for secret in &secrets {
            self.secrets.entry(secret.clone()).or_default().insert(key.clone());
        }
        self.volumes.insert(key, Volume { claim: claim.into(), secrets });
    }

    /// Whether an object has to do with a node: by a pod on it, or by a volume that such a pod mounts.
    pub fn is_related(&self, node: &str, what: What, namespace: &str, name: &str) -> bool {
        let key: Box<str> = format!("{namespace}/{name}").into();
        match what {
            What::Volume => self.mounts(node, &key),
            What::Secret
                if self.secrets.get(&key).is_some_and(|volumes| volumes.iter().any(|v| self.mounts(node, v))) =>
            {
                true
            }
            _ => self.uses(node, (what, key)),
        }
    }

    fn uses(&self, node: &str, key: Key) -> bool {
        self.users.get(&key).is_some_and(|users| users.contains_key(node))
    }

    fn mounts(&self, node: &str, volume: &str) -> bool {
        self.volumes.get(volume).is_some_and(|v| self.uses(node, (What::Claim, v.claim.clone())))
    }
}

/// What a pod lets its node read. A pod that a node made itself gives it nothing.
fn of_pod(pod: &Value, namespace: &str) -> Vec<Key> {
    if pod["metadata"]["annotations"].get(MIRROR).is_some() {
        return Vec::new();
    }
    let mut needs: Vec<Key> = Vec::new();
    let mut add = |what: What, name: &str| {
        let key = (what, format!("{namespace}/{name}").into());
        if !name.is_empty() && !needs.contains(&key) {
            needs.push(key);
        }
    };
    add(What::ServiceAccount, pod["spec"]["serviceAccountName"].as_str().unwrap_or_default());
    pod_references::secrets(pod).for_each(|name| add(What::Secret, name));
    pod_references::config_maps(pod).for_each(|name| add(What::ConfigMap, name));
    pod_references::claims(pod).iter().for_each(|name| add(What::Claim, name));
    pod_references::resource_claims(pod).for_each(|name| add(What::ResourceClaim, name));
    needs
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(node: &str) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": node, "serviceAccountName": "robot",
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "env"}}}, {"value": "x"}],
                "envFrom": [{"configMapRef": {"name": "all"}}]}],
            "ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "debug"}}]}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}, {"name": "x", "resourceClaimName": "direct"}],
            "volumes": [{"name": "a", "secret": {"secretName": "mounted"}}, {"name": "b", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "scratch", "ephemeral": {}}, {"name": "d", "projected": {"sources": [{"configMap": {"name": "projected"}}]}}]},
            "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]}})
    }

    #[test]
    fn a_node_is_related_to_what_its_pods_use() {
        let mut nodes = Nodes::default();
        nodes.set("core/pods", "ns", "p", Some(&pod("n1")));
        let volume = json!({"spec": {"claimRef": {"namespace": "ns", "name": "c"},
            "csi": {"nodePublishSecretRef": {"namespace": "vault", "name": "key"},
                "controllerExpandSecretRef": {"namespace": "vault", "name": "admin"}}}});
        nodes.set("core/persistentvolumes", "", "pv", Some(&volume));
        nodes.set("storage.k8s.io/volumeattachments", "", "va", Some(&json!({"spec": {"nodeName": "n1"}})));
        let all = [
            (What::Pod, "ns", "p"),
            (What::Secret, "ns", "pull"),
            (What::Secret, "ns", "env"),
            (What::Secret, "ns", "debug"),
            (What::Secret, "ns", "mounted"),
            (What::Secret, "vault", "key"),
            (What::ConfigMap, "ns", "all"),
            (What::ConfigMap, "ns", "projected"),
            (What::Claim, "ns", "c"),
            (What::Claim, "ns", "p-scratch"),
            (What::ServiceAccount, "ns", "robot"),
            (What::ResourceClaim, "ns", "made"),
            (What::ResourceClaim, "ns", "direct"),
            (What::Volume, "", "pv"),
            (What::Attachment, "", "va"),
        ];
        for (what, namespace, name) in all {
            assert!(nodes.is_related("n1", what, namespace, name), "{what:?} {name}");
            assert!(!nodes.is_related("n2", what, namespace, name), "{what:?} {name}");
        }
        assert!(!nodes.is_related("n1", What::Secret, "vault", "admin"), "only the controller sees it");
        assert!(!nodes.is_related("n1", What::Secret, "other", "pull"));

        nodes.set("core/pods", "ns", "second", Some(&pod("n2")));
        nodes.set("core/pods", "ns", "p", None);
        assert!(!nodes.is_related("n1", What::Secret, "ns", "pull"));
        assert!(!nodes.is_related("n1", What::Secret, "vault", "key"));
        assert!(nodes.is_related("n2", What::Secret, "vault", "key"));
        nodes.set("core/pods", "ns", "second", Some(&pod("")));
        nodes.set("core/persistentvolumes", "", "pv", None);
        nodes.set("storage.k8s.io/volumeattachments", "", "va", None);
        assert!(
            nodes.users.is_empty() && nodes.needs.is_empty() && nodes.volumes.is_empty() && nodes.secrets.is_empty()
        );
    }

    #[test]
    fn mirror_pods_give_nothing() {
        let mut nodes = Nodes::default();
        let mut mirror = pod("n1");
        mirror["metadata"]["annotations"] = json!({MIRROR: "x"});
        nodes.set("core/pods", "ns", "p", Some(&mirror));
        assert!(nodes.is_related("n1", What::Pod, "ns", "p"));
        assert!(!nodes.is_related("n1", What::Secret, "ns", "pull"));
    }

    #[test]
    fn status_reports_are_no_news() {
        let bytes = |value: &Value| serde_json::to_vec(value).unwrap();
        let (old, mut new) = (pod("n1"), pod("n1"));
        new["status"]["phase"] = json!("Running");
        assert!(!is_news("core/pods", &bytes(&old), &bytes(&new)));
        new["status"]["resourceClaimStatuses"] = json!([]);
        assert!(is_news("core/pods", &bytes(&old), &bytes(&new)));
        assert!(is_news("core/pods", &bytes(&old), &bytes(&pod("n2"))));
    }
}
