//! The catalogue: which resources exist, what they are called, what can be done with them.

use crate::schema::TypeId;

/// A resource as discovery shows it, in one version.
#[derive(Clone, Debug)]
pub struct Resource {
    pub group: Box<str>,
    pub version: Box<str>,
    /// Plural, as in the path: `deployments`.
    pub resource: Box<str>,
    pub singular: Box<str>,
    pub kind: Box<str>,
    pub namespaced: bool,
    pub short_names: Vec<Box<str>>,
    pub categories: Vec<Box<str>>,
    pub verbs: Vec<Box<str>>,
    pub subresources: Vec<Subresource>,
    /// The object's type in the schema that goes with this resource.
    pub ty: Option<TypeId>,
}

#[derive(Clone, Debug)]
pub struct Subresource {
    pub name: Box<str>,
    /// The kind it speaks, with its own group and version where they differ (`autoscaling/v1` `Scale`).
    pub group: Box<str>,
    pub version: Box<str>,
    pub kind: Box<str>,
    pub verbs: Vec<Box<str>>,
}

impl Resource {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    pub fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| &**v == verb)
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| &*s.name == name)
    }
}

pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Splits `apps/v1` into group and version; `v1` is the core group.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}
