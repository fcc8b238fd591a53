//! The names that definitions have been given, by workspace and group: whether a name is taken is one lookup, however
//! many there are.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use cache::object::Object;
use rules::crd::Light;
use serde_json::Value;

/// A workspace and a group in it.
type Place = (Box<str>, Box<str>);

#[derive(Default)]
pub struct Names {
    groups: RwLock<HashMap<Place, Group>>,
}

/// The owners of each name of a group. A definition stands twice with a name that it has as plural and as singular.
#[derive(Default)]
struct Group {
    resources: HashMap<Box<str>, Vec<Box<str>>>,
    kinds: HashMap<Box<str>, Vec<Box<str>>>,
    given: HashMap<Box<str>, Given>,
}

/// The names that one definition has been given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Given {
    resources: Vec<Box<str>>,
    kinds: Vec<Box<str>>,
}

impl Given {
    fn of(light: &Light) -> Self {
        let names = &light.value["status"]["acceptedNames"];
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(Box::from);
        let short = names["shortNames"].as_array().into_iter().flatten();
        Self {
            resources: ["plural", "singular"].iter().map(|key| &names[key]).chain(short).filter_map(text).collect(),
            kinds: ["kind", "listKind"].iter().filter_map(|key| text(&names[key])).collect(),
        }
    }
}

impl Group {
    fn forget(&mut self, definition: &str) {
        let Some(given) = self.given.remove(definition) else { return };
        for (names, all) in [(given.resources, &mut self.resources), (given.kinds, &mut self.kinds)] {
            for name in names {
                if let Some(holders) = all.get_mut(&name) {
                    holders.retain(|holder| **holder != *definition);
                    if holders.is_empty() {
                        all.remove(&name);
                    }
                }
            }
        }
    }

    fn note(&mut self, definition: &str, given: Given) {
        for (names, all) in [(&given.resources, &mut self.resources), (&given.kinds, &mut self.kinds)] {
            for name in names {
                all.entry(name.clone()).or_default().push(definition.into());
            }
        }
        self.given.insert(definition.into(), given);
    }
}

impl Names {
    /// Notes what a definition has, or that it is gone. Its group never changes, and is the end of its name.
    pub fn set(&self, object: &Object, light: &Light) {
        let group = object.name().split_once('.').map_or("", |(_, group)| group);
        let given = Given::of(light);
        let place = (object.cluster().into(), group.into());
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        let there = groups.entry(place.clone()).or_default();
        if there.given.get(object.name()).is_some_and(|had| *had == given) {
            return;
        }
        there.forget(object.name());
        if given != Given::default() {
            there.note(object.name(), given);
        }
        if there.given.is_empty() {
            groups.remove(&place);
        }
    }

    /// Whether another definition of the group has this name for its resource, or, if asked so, for its kind.
    pub fn taken(&self, cluster: &str, definition: &str, name: &str, as_kind: bool) -> bool {
        let group = definition.split_once('.').map_or("", |(_, group)| group);
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        let Some(group) = groups.get(&(cluster.into(), group.into())) else { return false };
        let names = if as_kind { &group.kinds } else { &group.resources };
        names.get(name).is_some_and(|holders| holders.iter().any(|holder| **holder != *definition))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(name: &str, plural: &str, kind: &str) -> (Object, Light) {
        let value = json!({"metadata": {"name": name}, "spec": {}, "status": {"acceptedNames": {
            "plural": plural, "singular": plural, "shortNames": ["s"], "kind": kind, "listKind": format!("{kind}List")}}});
        let json = cache::object::with_revision(&cache::object::encode(&value), 1);
        (Object::new(format!("root:a//{name}").into(), json, 1, 1), Light::of(&value))
    }

    #[test]
    fn names_belong_to_whoever_was_given_them() {
        let names = Names::default();
        let (object, light) = definition("as.g.io", "as", "A");
        names.set(&object, &light);
        let taken = |by: &str, name: &str, as_kind: bool| names.taken("root:a", by, name, as_kind);
        assert!(taken("bs.g.io", "as", false) && taken("bs.g.io", "s", false) && taken("bs.g.io", "AList", true));
        assert!(!taken("as.g.io", "as", false), "its own");
        assert!(!taken("bs.h.io", "as", false), "another group");
        assert!(!names.taken("root:b", "bs.g.io", "as", false), "another workspace");
        assert!(!taken("bs.g.io", "A", false) && !taken("bs.g.io", "as", true), "kinds and resources are apart");
        let (object, light) = definition("as.g.io", "as", "Z");
        names.set(&object, &light);
        assert!(!taken("bs.g.io", "A", true) && taken("bs.g.io", "Z", true));
        names.set(&object, &Light::default());
        assert!(!taken("bs.g.io", "as", false) && names.groups.read().unwrap().is_empty());
    }
}
