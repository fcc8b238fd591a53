//! The catalogue: which resources exist, what they are called, what can be done with them.

use std::sync::LazyLock;

use crate::TypeId;

/// The version of Kubernetes whose API this is.
pub const KUBERNETES_VERSION: &str = "v1.36.4";

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
    /// The kind it speaks, with the kind's own group and version (`autoscaling/v1` `Scale`).
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

/// An API group as discovery shows it.
#[derive(Clone, Debug)]
pub struct Group {
    pub name: Box<str>,
    /// Preferred first.
    pub versions: Vec<Box<str>>,
}

static BUILTIN: LazyLock<Vec<Resource>> = LazyLock::new(|| load(include_str!("../data/catalogue.txt")));
static GROUPS: LazyLock<Vec<Group>> = LazyLock::new(|| group(&BUILTIN));

/// The built-in resources, in upstream's order of discovery. Their types are in [`crate::builtin`].
pub fn builtin() -> &'static [Resource] {
    &BUILTIN
}

/// The groups of the built-in resources, in upstream's order of discovery.
pub fn groups() -> &'static [Group] {
    &GROUPS
}

/// The built-in resource of this name.
pub fn find(group: &str, version: &str, resource: &str) -> Option<&'static Resource> {
    BUILTIN.iter().find(|r| &*r.resource == resource && &*r.version == version && &*r.group == group)
}

/// The built-in resource of this kind.
pub fn find_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    BUILTIN.iter().find(|r| &*r.kind == kind && &*r.version == version && &*r.group == group)
}

fn group(resources: &[Resource]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for resource in resources {
        match groups.iter_mut().find(|g| g.name == resource.group) {
            Some(group) if group.versions.contains(&resource.version) => {}
            Some(group) => group.versions.push(resource.version.clone()),
            None => groups.push(Group { name: resource.group.clone(), versions: vec![resource.version.clone()] }),
        }
    }
    groups
}

/// Reads the data file, whose first lines explain it. The preferred version of a group is its first.
fn load(text: &str) -> Vec<Resource> {
    let mut resources: Vec<Resource> = Vec::new();
    let mut api_version = ("", "");
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (line.bytes().take_while(|b| *b == b' ').count(), words.as_slice()) {
            (0, [gv, ..]) => api_version = split_api_version(gv),
            (1, [resource, kind, scope, singular, verbs, short_names, categories]) => resources.push(Resource {
                group: api_version.0.into(),
                version: api_version.1.into(),
                resource: (*resource).into(),
                singular: (*singular).into(),
                kind: (*kind).into(),
                namespaced: *scope == "Namespaced",
                short_names: words_of(short_names),
                categories: words_of(categories),
                verbs: words_of(verbs),
                subresources: Vec::new(),
                ty: crate::builtin().of_kind(api_version.0, api_version.1, kind),
            }),
            (2, [name, kind, verbs, other @ ..]) => {
                let (group, version) = other.first().map_or(api_version, |gv| split_api_version(gv));
                let subresource = Subresource {
                    name: (*name).into(),
                    group: group.into(),
                    version: version.into(),
                    kind: (*kind).into(),
                    verbs: words_of(verbs),
                };
                if let Some(resource) = resources.last_mut() {
                    resource.subresources.push(subresource);
                }
            }
            _ => {}
        }
    }
    resources
}

fn words_of(list: &str) -> Vec<Box<str>> {
    list.split(',').filter(|w| *w != "-").map(Box::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_there_and_typed() {
        assert!(builtin().len() > 60, "{}", builtin().len());
        for resource in builtin() {
            assert!(resource.ty.is_some(), "{} has no type", resource.resource);
            assert!(!resource.verbs.is_empty());
        }
        assert_eq!(&*groups()[0].name, "");
        let autoscaling = groups().iter().find(|g| &*g.name == "autoscaling").unwrap();
        assert_eq!(autoscaling.versions, ["v2".into(), "v1".into()]);
    }

    #[test]
    fn subresources_speak_their_own_kind() {
        let deployments = find("apps", "v1", "deployments").unwrap();
        let scale = deployments.subresource("scale").unwrap();
        assert_eq!((&*scale.group, &*scale.version, &*scale.kind), ("autoscaling", "v1", "Scale"));
        let status = deployments.subresource("status").unwrap();
        assert_eq!((&*status.group, &*status.version), ("apps", "v1"));
        assert_eq!(deployments.short_names, ["deploy".into()]);
    }
}
