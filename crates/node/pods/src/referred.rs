//! The ConfigMaps and Secrets that a pod refers to: which, and what is in them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};

use crate::spec;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    ConfigMap,
    Secret,
}

impl Kind {
    /// As messages have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

/// One of them, by name in the pod's namespace.
pub type Ref = (Kind, String);

/// What one of them holds, whichever kind it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data {
    pub entries: BTreeMap<String, Entry>,
    pub is_immutable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub bytes: Vec<u8>,
    /// Files only: variables do not see it.
    pub is_binary: bool,
}

impl From<ConfigMap> for Data {
    fn from(map: ConfigMap) -> Self {
        let text = map.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes(), false));
        let binary = map.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0, true));
        let entries = text.chain(binary).map(|(key, bytes, is_binary)| (key, Entry { bytes, is_binary }));
        Self { entries: entries.collect(), is_immutable: map.immutable.unwrap_or_default() }
    }
}

impl From<Secret> for Data {
    fn from(secret: Secret) -> Self {
        let entries = secret.data.into_iter().flatten();
        let entries = entries.map(|(key, bytes)| (key, Entry { bytes: bytes.0, is_binary: false })).collect();
        Self { entries, is_immutable: secret.immutable.unwrap_or_default() }
    }
}

/// All that a pod refers to, as it was read. What is missing does not exist.
pub type Referred = BTreeMap<Ref, Arc<Data>>;

/// What the volumes and the variables of a pod are made of.
pub fn of(pod: &Pod) -> BTreeSet<Ref> {
    let mut found = of_volumes(pod);
    let Some(spec) = &pod.spec else { return found };
    for (_, container) in spec::containers(spec) {
        for from in container.env_from.iter().flatten() {
            found.extend(from.config_map_ref.iter().map(|map| (Kind::ConfigMap, map.name.clone())));
            found.extend(from.secret_ref.iter().map(|secret| (Kind::Secret, secret.name.clone())));
        }
        for from in container.env.iter().flatten().filter_map(|env| env.value_from.as_ref()) {
            found.extend(from.config_map_key_ref.iter().map(|map| (Kind::ConfigMap, map.name.clone())));
            found.extend(from.secret_key_ref.iter().map(|secret| (Kind::Secret, secret.name.clone())));
        }
    }
    found.retain(|(_, name)| !name.is_empty());
    found
}

/// What the volumes of a pod are made of: they follow every change.
pub fn of_volumes(pod: &Pod) -> BTreeSet<Ref> {
    let mut found = BTreeSet::new();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    for volume in volumes.into_iter().flatten() {
        found.extend(volume.config_map.iter().map(|map| (Kind::ConfigMap, map.name.clone())));
        found.extend(volume.secret.iter().filter_map(|secret| Some((Kind::Secret, secret.secret_name.clone()?))));
        let sources = volume.projected.iter().filter_map(|projected| projected.sources.as_ref()).flatten();
        for source in sources {
            found.extend(source.config_map.iter().map(|map| (Kind::ConfigMap, map.name.clone())));
            found.extend(source.secret.iter().map(|secret| (Kind::Secret, secret.name.clone())));
        }
    }
    found.retain(|(_, name)| !name.is_empty());
    found
}
