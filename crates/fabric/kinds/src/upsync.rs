//! Which objects of its own an edge reports: what the SyncerConfig that the center sent asks for. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::ObjectKey;

/// Where the configuration lies, and the key of the only one that counts.
pub const CONFIGS: &str = "edge.kcp.io/syncerconfigs";
pub const THE_ONE: &str = "root//the-one";

const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// What controllers here make of placed objects.
pub const ASSOCIATED: [&str; 3] = ["apps/replicasets", "core/pods", "batch/jobs"];

/// At most this many objects an edge reports whole, and no report is larger than this. Edges keep to it, and centers see to it.
pub const MOST: usize = 1000;
pub const LARGEST: usize = 256 << 10;

/// What an edge is asked to report besides how the center's own objects fare.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    sets: Vec<Upsync>,
    /// In which namespaces what came to be because of placed objects is asked for.
    associated: Names,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Upsync {
    group: String,
    resources: Names,
    namespaces: Names,
    names: Names,
}

/// All, some, or none.
#[derive(Clone, Debug, Default, PartialEq)]
struct Names {
    all: bool,
    these: BTreeSet<String>,
}

impl Names {
    fn read(list: &Value) -> Self {
        let these: BTreeSet<String> =
            list.as_array().into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect();
        Self { all: these.contains("*"), these }
    }

    fn has(&self, name: &str) -> bool {
        self.all || self.these.contains(name)
    }
}

impl Wanted {
    pub fn read(config: &Value) -> Self {
        let spec = &config["spec"];
        let set = |set: &Value| Upsync {
            group: set["apiGroup"].as_str().unwrap_or_default().to_owned(),
            resources: Names::read(&set["resources"]),
            namespaces: Names::read(&set["namespaces"]),
            names: Names::read(&set["names"]),
        };
        let associated = Names::read(&spec["associated"]["namespaces"]);
        Self { sets: spec["upsync"].as_array().into_iter().flatten().map(set).collect(), associated }
    }

    pub fn is_nothing(&self) -> bool {
        self.associated.these.is_empty() && self.sets.is_empty()
    }

    /// Whether there can be anything of interest in a collection.
    pub fn concerns(&self, collection: &str) -> bool {
        !self.associated.these.is_empty() && ASSOCIATED.contains(&collection)
            || !is_own(collection) && (collection == DEFINITIONS || self.sets.iter().any(|set| set.is_of(collection)))
    }

    /// Whether an object is asked for if it came to be because of a placed one.
    pub fn may_be_associated(&self, key: &ObjectKey<'_>) -> bool {
        ASSOCIATED.contains(&key.collection) && self.associated.has(key.namespace)
    }

    /// Whether an object is asked for by its name. The definition of what is asked for is asked for too: nobody could read the one
    /// without the other.
    pub fn asks_for(&self, key: &ObjectKey<'_>) -> bool {
        if is_own(key.collection) {
            return false;
        }
        let named = |set: &Upsync| {
            set.is_of(key.collection)
                && (key.namespace.is_empty() || set.namespaces.has(key.namespace))
                && set.names.has(key.name)
        };
        self.sets.iter().any(named) || key.collection == DEFINITIONS && self.defines(key.name)
    }

    fn defines(&self, definition: &str) -> bool {
        let Some((resource, group)) = definition.split_once('.') else { return false };
        self.sets.iter().any(|set| set.group == group && set.resources.has(resource))
    }
}

impl Upsync {
    fn is_of(&self, collection: &str) -> bool {
        let Some((group, resource)) = collection.split_once('/') else { return false };
        let group = if group == "core" { "" } else { group };
        (self.group == group || self.group == "*") && self.resources.has(resource)
    }
}

/// What the edge arranges for itself is nobody else's.
fn is_own(collection: &str) -> bool {
    collection.contains("/_") || collection.starts_with("edge.selvedge.dev/") || collection.starts_with("edge.kcp.io/")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_asked_for() {
        let wanted = Wanted::read(&json!({"spec": {"upsync": [
            {"apiGroup": "group1.test", "resources": ["sprockets", "flanges"], "namespaces": ["orbital"], "names": ["george", "cosmo"]},
            {"apiGroup": "group2.test", "resources": ["cogs"], "names": ["william"]},
            {"apiGroup": "group3.test", "resources": ["*"], "namespaces": ["*"], "names": ["*"]},
            {"apiGroup": "", "resources": ["configmaps"], "namespaces": ["a"], "names": ["*"]},
            {"apiGroup": "", "resources": ["pods"], "namespaces": [], "names": ["*"]},
            {"apiGroup": "", "resources": ["pods"], "namespaces": ["*"]},
        ]}}));
        for (key, asked) in [
            ("group1.test/sprockets/orbital/george", true),
            ("group1.test/flanges/orbital/cosmo", true),
            ("group1.test/flanges/orbital/jane", false),
            ("group1.test/flanges/elsewhere/cosmo", false),
            ("group1.test/others/orbital/cosmo", false),
            ("group2.test/cogs//william", true),
            ("group2.test/cogs/orbital/william", false),
            ("group3.test/anything/x/y", true),
            ("group3.test/anything//y", true),
            ("core/configmaps/a/b", true),
            ("core/configmaps/b/b", false),
            ("core/pods/a/b", false),
            ("apiextensions.k8s.io/customresourcedefinitions//sprockets.group1.test", true),
            ("apiextensions.k8s.io/customresourcedefinitions//widgets.group3.test", true),
            ("apiextensions.k8s.io/customresourcedefinitions//widgets.group1.test", false),
        ] {
            let key = ObjectKey::parse(key).unwrap();
            assert_eq!(wanted.asks_for(&key), asked, "{key}");
            assert!(!asked || wanted.concerns(key.collection), "{key}");
        }
        assert!(!wanted.is_nothing() && !wanted.concerns("core/secrets"));
    }

    #[test]
    fn everything_is_not_what_is_nobodys_business() {
        let wanted = Wanted::read(&json!({"spec": {"upsync": [
            {"apiGroup": "*", "resources": ["*"], "namespaces": ["*"], "names": ["*"]}]}}));
        for (key, asked) in [
            ("core/configmaps/a/b", true),
            ("edge.selvedge.dev/_held//x", false),
            ("identity.selvedge.dev/_files//x", false),
            ("edge.kcp.io/syncerconfigs//the-one", false),
        ] {
            assert_eq!(wanted.asks_for(&ObjectKey::parse(key).unwrap()), asked, "{key}");
        }
    }

    #[test]
    fn odd_configurations_ask_for_nothing() {
        for odd in [json!(null), json!({"spec": 7}), json!({"spec": {"upsync": [], "associated": {"namespaces": []}}})]
        {
            assert!(Wanted::read(&odd).is_nothing(), "{odd}");
        }
        let wanted = Wanted::read(&json!({"spec": {"associated": {"namespaces": ["shop"]}}}));
        assert!(!wanted.is_nothing() && wanted.concerns("core/pods") && !wanted.concerns("core/secrets"));
        for (key, may) in [("core/pods/shop/a", true), ("core/pods/other/a", false), ("core/secrets/shop/a", false)] {
            assert_eq!(wanted.may_be_associated(&ObjectKey::parse(key).unwrap()), may, "{key}");
        }
    }
}
