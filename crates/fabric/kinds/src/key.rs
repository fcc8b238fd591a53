//! How the link names objects.

use std::fmt;

/// An object on its way between center and edge: `<group>/<resource>/<namespace>/<name>`, with `core` for the group
/// without a name and an empty namespace for cluster-scoped kinds. Each side has it in the workspace that it belongs to there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey<'a> {
    /// `<group>/<resource>`, as the store has it.
    pub collection: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl<'a> ObjectKey<'a> {
    pub fn parse(key: &'a str) -> Option<Self> {
        let second = key.match_indices('/').nth(1)?.0;
        let (namespace, name) = key[second + 1..].split_once('/')?;
        let (group, resource) = key[..second].split_once('/')?;
        let whole = !group.is_empty() && !resource.is_empty() && !name.is_empty();
        whole.then_some(Self { collection: &key[..second], namespace, name })
    }

    /// Where the object lies in a store, in this workspace.
    pub fn in_store(&self, cluster: &str) -> String {
        format!("{}/{cluster}/{}/{}", self.collection, self.namespace, self.name)
    }

    /// The opposite: the workspace that a store's key belongs to, and the object.
    pub fn of_store(key: &'a str) -> Option<(&'a str, Self)> {
        let mut slashes = key.match_indices('/').map(|(at, _)| at);
        let (second, third, fourth) = (slashes.nth(1)?, slashes.next()?, slashes.next()?);
        let (collection, cluster) = (&key[..second], &key[second + 1..third]);
        let (namespace, name) = (&key[third + 1..fourth], &key[fourth + 1..]);
        let whole = !cluster.is_empty() && !name.is_empty();
        whole.then_some((cluster, Self { collection, namespace, name }))
    }
}

impl fmt::Display for ObjectKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.collection, self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back() {
        for text in
            ["core/configmaps/default/a", "core/namespaces//shop", "rbac.authorization.k8s.io/clusterroles//a:b/c"]
        {
            let key = ObjectKey::parse(text).unwrap();
            assert_eq!(key.to_string(), text);
            let stored = key.in_store("root:org");
            assert_eq!(ObjectKey::of_store(&stored), Some(("root:org", key)));
        }
        for broken in ["", "core", "core/configmaps", "core/configmaps/a", "core/configmaps/a/", "//a/b"] {
            assert_eq!(ObjectKey::parse(broken), None, "{broken}");
        }
    }
}
