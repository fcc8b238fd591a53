//! The webhooks and policies of every workspace, compiled as their configurations change. A workspace without any costs one look.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, RwLock},
};

use cache::object::Object;
use cache::{Change, ChangeKind, Observer};
use serde_json::Value;

use super::{hooks::Hook, policies::Policies};

const GROUP: &str = "admissionregistration.k8s.io/";

/// In the order in which they are asked: by the configuration's name, then as it lists them.
type Hooks = BTreeMap<Box<str>, Vec<Arc<Hook>>>;

#[derive(Clone, Default)]
pub struct Workspace {
    pub mutating: Hooks,
    pub validating: Hooks,
    pub policies: Policies,
    /// Policies that change objects.
    pub mutations: Policies,
}

impl Workspace {
    /// Nobody here changes objects; some may judge them.
    pub fn changes_nothing(&self) -> bool {
        self.mutating.is_empty() && self.mutations.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.mutating.is_empty() && self.validating.is_empty() && self.policies.is_empty() && self.mutations.is_empty()
    }
}

#[derive(Default)]
pub struct Registry {
    workspaces: RwLock<HashMap<Box<str>, Arc<Workspace>>>,
}

impl Registry {
    /// What was configured in a workspace; nothing for most.
    pub fn of(&self, cluster: &str) -> Option<Arc<Workspace>> {
        self.workspaces.read().unwrap_or_else(PoisonError::into_inner).get(cluster).cloned()
    }

    pub fn observer(self: &Arc<Self>) -> Observer {
        let registry = self.clone();
        Box::new(move |collection: &str, change: &Arc<Change>| {
            if let Some(resource) = collection.strip_prefix(GROUP) {
                registry.observe(resource, change);
            }
        })
    }

    fn observe(&self, resource: &str, change: &Change) {
        let object = &change.object;
        let acts = change.kind != ChangeKind::Deleted && object.acts_here();
        let value = acts.then(|| object.value());
        let mut workspaces = self.workspaces.write().unwrap_or_else(PoisonError::into_inner);
        let mut workspace = workspaces.get(object.cluster()).map(|known| (**known).clone()).unwrap_or_default();
        match resource {
            "mutatingwebhookconfigurations" => set(&mut workspace.mutating, object, value.as_ref()),
            "validatingwebhookconfigurations" => set(&mut workspace.validating, object, value.as_ref()),
            "validatingadmissionpolicies" => workspace.policies.set_policy(object.name(), value.as_ref()),
            "validatingadmissionpolicybindings" => workspace.policies.set_binding(object.name(), value.as_ref()),
            "mutatingadmissionpolicies" => workspace.mutations.set_policy(object.name(), value.as_ref()),
            "mutatingadmissionpolicybindings" => workspace.mutations.set_binding(object.name(), value.as_ref()),
            _ => return,
        }
        if workspace.is_empty() {
            workspaces.remove(object.cluster());
        } else {
            workspaces.insert(object.cluster().into(), Arc::new(workspace));
        }
    }
}

fn set(hooks: &mut Hooks, object: &Object, value: Option<&Value>) {
    match value {
        Some(value) => hooks.insert(object.name().into(), Hook::all(object.cluster(), value)),
        None => hooks.remove(object.name()),
    };
}
