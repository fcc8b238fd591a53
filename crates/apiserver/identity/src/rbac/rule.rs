//! The rules of a role, and which of them a question has to be held against.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::authorize::Attributes;

/// A `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    pub resources: Vec<String>,
    pub names: Vec<String>,
    pub paths: Vec<String>,
}

/// All rules of a role, found by what they are about.
#[derive(Debug, Default)]
pub(super) struct Rules {
    list: Box<[Rule]>,
    /// Hashes of what rules are about, with the rules' places in the list; sorted.
    index: Box<[(Key, u32)]>,
}

/// A hash of what a rule is about. Two things of one hash cost a comparison, nothing else.
pub(super) type Key = u32;

/// What somebody wants, hashed once for all roles.
pub(super) struct Question<'a> {
    attributes: &'a Attributes,
    combined: Cow<'a, str>,
    keys: Vec<Key>,
}

impl Rule {
    pub fn from_value(rule: &Value) -> Self {
        let list = |name: &str| strings(rule.get(name));
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            paths: list("nonResourceURLs"),
        }
    }

    /// The rules of a Role or ClusterRole.
    pub fn all_of(role: &Value) -> Vec<Self> {
        let rules = role.get("rules").and_then(Value::as_array).into_iter().flatten();
        rules.map(Self::from_value).collect()
    }

    pub(crate) fn allows(&self, attributes: &Attributes) -> bool {
        self.allows_combined(attributes, &attributes.combined_resource())
    }

    fn allows_combined(&self, attributes: &Attributes, combined: &str) -> bool {
        let listed = |list: &[String], wanted: &str| list.iter().any(|have| have == "*" || have == wanted);
        if !listed(&self.verbs, &attributes.verb) {
            return false;
        }
        if !attributes.path.is_empty() {
            return self.paths.iter().any(|have| path_matches(have, &attributes.path));
        }
        listed(&self.groups, &attributes.group)
            && self.allows_resource(combined, &attributes.subresource)
            && (self.names.is_empty() || self.names.contains(&attributes.name))
    }

    fn allows_resource(&self, combined: &str, subresource: &str) -> bool {
        self.resources.iter().any(|have| {
            let any_of_subresource =
                have.strip_prefix("*/").is_some_and(|sub| !subresource.is_empty() && sub == subresource);
            have == "*" || have == combined || any_of_subresource
        })
    }

    /// The hashes under which a question can find this rule.
    fn keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        if !self.paths.is_empty() {
            keys.push(PATHS);
        }
        // Many resources with many names would make more pairs than they are worth.
        let by_name = self.names.len() == 1 || self.names.len() * self.resources.len() <= MOST_PAIRS;
        for resource in &self.resources {
            if self.names.is_empty() || !by_name {
                keys.push(about(resource, None));
            } else {
                keys.extend(self.names.iter().map(|name| about(resource, Some(name))));
            }
        }
        keys
    }
}

const MOST_PAIRS: usize = 64;
/// All rules about paths lie under this: there are few, and stars at their end cannot be hashed.
const PATHS: Key = 1;

/// FNV-1a.
fn about(resource: &str, name: Option<&str>) -> Key {
    let name = name.map(|name| std::iter::once(0xff).chain(name.bytes()));
    let bytes = resource.bytes().chain(name.into_iter().flatten());
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

impl Rules {
    pub fn new(list: Vec<Rule>) -> Self {
        let place = |(at, rule): (usize, &Rule)| {
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            rule.keys().into_iter().map(move |key| (key, at))
        };
        let mut index: Vec<(Key, u32)> = list.iter().enumerate().flat_map(place).collect();
        index.sort_unstable();
        index.dedup();
        Self { list: list.into(), index: index.into() }
    }

    /// Everything its rules are about.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.index.chunk_by(|a, b| a.0 == b.0).filter_map(|same| same.first()).map(|(key, _)| *key)
    }

    pub fn list(&self) -> &[Rule] {
        &self.list
    }

    pub fn allow(&self, question: &Question<'_>) -> bool {
        question.keys.iter().any(|key| {
            let first = self.index.partition_point(|(have, _)| have < key);
            let same = self.index[first..].iter().take_while(|(have, _)| have == key);
            same.filter_map(|(_, at)| self.list.get(*at as usize))
                .any(|rule| rule.allows_combined(question.attributes, &question.combined))
        })
    }
}

impl<'a> Question<'a> {
    pub fn new(attributes: &'a Attributes) -> Self {
        let Attributes { resource, subresource, name, path, .. } = attributes;
        if !path.is_empty() {
            return Self { attributes, combined: Cow::Borrowed(""), keys: vec![PATHS] };
        }
        let both = |resource: &str| [about(resource, None), about(resource, Some(name))];
        let mut keys = Vec::with_capacity(6);
        let mut combined = Cow::Borrowed(resource.as_str());
        if !subresource.is_empty() {
            combined = Cow::Owned(format!("{resource}/{subresource}"));
            keys.extend(both(&format!("*/{subresource}")));
        }
        keys.extend(both(&combined));
        keys.extend(both("*"));
        Self { attributes, combined, keys }
    }

    /// The same question to those who know only these keys.
    pub fn among(&self, known: impl Fn(Key) -> bool) -> Self {
        let keys = self.keys.iter().copied().filter(|key| known(*key)).collect();
        Self { attributes: self.attributes, combined: self.combined.clone(), keys }
    }

    pub fn keys(&self) -> &[Key] {
        &self.keys
    }
}

/// `*`, the path itself, or a prefix that ends in a star.
pub(crate) fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == "*" || pattern == path || pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*'))
}

fn strings(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The rules as a `SelfSubjectRulesReview` lists them: those about resources, and those about paths.
pub(crate) fn listed(rules: &[Rule]) -> (Vec<Value>, Vec<Value>) {
    let resource = |rule: &Rule| {
        let mut value = json!({"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources});
        if !rule.names.is_empty() {
            value["resourceNames"] = json!(rule.names);
        }
        value
    };
    let path = |rule: &Rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.paths});
    (
        rules.iter().filter(|rule| !rule.resources.is_empty()).map(resource).collect(),
        rules.iter().filter(|rule| !rule.paths.is_empty()).map(path).collect(),
    )
}
