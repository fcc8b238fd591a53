//! Events about the node and its Pods, in the name of the kubelet.

use controllers::events::{Events, Weight};
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::Client;
use tasks::Tasks;

use crate::{
    machine::Note,
    spec::{self, Role},
};

const COMPONENT: &str = "kubelet";

#[derive(Clone)]
pub struct Recorder(controllers::events::Recorder);

impl Recorder {
    pub fn start(client: Client, node: &str, tasks: &Tasks) -> Self {
        Self(Events::start(tasks).recorder_of_host(client, COMPONENT, node))
    }

    pub fn of_pod(&self, pod: &Pod, note: Note) {
        let field_path = note.container.as_deref().and_then(|name| field_path(pod, name));
        let about = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            resource_version: pod.metadata.resource_version.clone(),
            field_path,
        };
        let weight = if note.is_warning { Weight::Warning } else { Weight::Normal };
        self.0.tell_of(about, weight, note.reason, note.message);
    }

    pub fn of_node(&self, name: &str, reason: &str, message: String) {
        let about = ObjectReference {
            kind: Some("Node".into()),
            name: Some(name.to_owned()),
            uid: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        self.0.tell_of(about, Weight::Normal, reason, message);
    }
}

fn field_path(pod: &Pod, container: &str) -> Option<String> {
    let (role, _) = spec::containers(pod.spec.as_ref()?).find(|(_, known)| known.name == container)?;
    Some(match role {
        Role::Main => format!("spec.containers{{{container}}}"),
        Role::Init | Role::Sidecar => format!("spec.initContainers{{{container}}}"),
        Role::Ephemeral => format!("spec.ephemeralContainers{{{container}}}"),
    })
}
