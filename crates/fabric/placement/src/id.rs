//! How placements and Locations are named, and what a Location lends to what is placed on it.

use std::{collections::BTreeMap, fmt, sync::Arc};

/// A cluster-scoped object of a workspace: an EdgePlacement, a Location.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    pub workspace: Arc<str>,
    pub name: Arc<str>,
}

impl Id {
    pub fn new(workspace: &str, name: &str) -> Self {
        Self { workspace: workspace.into(), name: name.into() }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.workspace, self.name)
    }
}

/// What `%(key)` stands for on one Location: its labels, then its annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Parameters {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl Parameters {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.labels.get(key).or_else(|| self.annotations.get(key)).map(String::as_str)
    }
}
