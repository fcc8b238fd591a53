//! Bindings, found by whom they concern: a decision looks only at what the user and the user's groups are bound to.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::Arc,
};

use serde_json::Value;

use super::table::{NOWHERE, RoleId};
use crate::authenticate::User;

/// Names that occur often are kept once.
#[derive(Debug, Default)]
pub(super) struct Words {
    known: HashSet<Arc<str>>,
    /// When so many are known, those that nobody uses any more are forgotten.
    sweep_at: usize,
}

impl Words {
    pub fn word(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|word| Arc::strong_count(word) > 1);
            self.sweep_at = (self.known.len() * 2).max(64);
        }
        let word: Arc<str> = text.into();
        self.known.insert(word.clone());
        word
    }
}

/// The bindings of one namespace, or those of the cluster.
#[derive(Debug, Default)]
pub(super) struct Scope {
    pub bindings: BTreeMap<Arc<str>, Arc<Binding>>,
    users: People,
    groups: People,
}

/// What everybody of these names is bound to.
type People = HashMap<Arc<str>, Vec<Bound>>;

/// One binding of somebody.
#[derive(Debug)]
pub(super) struct Bound {
    pub role: RoleId,
    pub binding: Arc<Binding>,
}

impl Scope {
    /// What a user is bound to here; what several of the user's groups are bound to may come several times.
    pub fn of<'a, 'u>(&'a self, user: &'u User) -> impl Iterator<Item = &'a Bound> + use<'a, 'u> {
        let groups = user.groups.iter().filter_map(|group| self.groups.get(group.as_str()));
        self.users.get(user.name.as_str()).into_iter().chain(groups).flatten()
    }

    pub fn insert(&mut self, words: &mut Words, binding: Arc<Binding>) {
        for subject in &binding.subjects {
            let Some((people, name)) = self.people(subject, &binding.namespace) else { continue };
            // Most are bound once: a list that starts larger would cost more than all else.
            let bound = people.entry(words.word(&name)).or_insert_with(|| Vec::with_capacity(1));
            // A binding that names somebody twice is still one.
            if !bound.last().is_some_and(|last| Arc::ptr_eq(&last.binding, &binding)) {
                bound.push(Bound { role: binding.role, binding: binding.clone() });
            }
        }
        self.bindings.insert(binding.name.clone(), binding);
    }

    pub fn remove(&mut self, name: &str) -> Option<Arc<Binding>> {
        let binding = self.bindings.remove(name)?;
        for subject in &binding.subjects {
            let Some((people, name)) = self.people(subject, &binding.namespace) else { continue };
            let Some(bound) = people.get_mut(&*name) else { continue };
            bound.retain(|other| !Arc::ptr_eq(&other.binding, &binding));
            if bound.is_empty() {
                people.remove(&*name);
            }
        }
        Some(binding)
    }

    fn people<'a>(&mut self, subject: &'a Subject, namespace: &str) -> Option<(&mut People, Cow<'a, str>)> {
        match &*subject.kind {
            "User" => Some((&mut self.users, (&*subject.name).into())),
            "Group" => Some((&mut self.groups, (&*subject.name).into())),
            // Accounts are users with long names.
            "ServiceAccount" => subject.account(namespace).map(|name| (&mut self.users, name.into())),
            _ => None,
        }
    }
}

/// A RoleBinding, or in the empty namespace a ClusterRoleBinding.
#[derive(Debug)]
pub(super) struct Binding {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub role_kind: Arc<str>,
    pub role_name: Arc<str>,
    pub role: RoleId,
    pub subjects: Box<[Subject]>,
}

#[derive(Debug)]
pub(super) struct Subject {
    kind: Arc<str>,
    namespace: Arc<str>,
    name: Arc<str>,
}

impl Binding {
    pub fn new(words: &mut Words, namespace: &str, name: &str, binding: &Value) -> Self {
        let mut text = |value: &Value, pointer: &str| {
            words.word(value.pointer(pointer).and_then(Value::as_str).unwrap_or_default())
        };
        let subjects = binding.get("subjects").and_then(Value::as_array).into_iter().flatten();
        let subjects = subjects
            .map(|s| Subject { kind: text(s, "/kind"), namespace: text(s, "/namespace"), name: text(s, "/name") })
            .collect();
        let (role_kind, role_name) = (text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
        Self { namespace: words.word(namespace), name: name.into(), role_kind, role_name, role: NOWHERE, subjects }
    }

    /// Namespace and name of the role; nothing if no role can be meant.
    pub fn role_key(&self) -> Option<(&str, &str)> {
        role_key(&self.role_kind, &self.namespace, &self.role_name)
    }

    /// Why this binding concerns a user, in upstream's words.
    pub fn explain(&self, user: &User) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            let Self { namespace, name, role_kind, role_name, .. } = self;
            match &**namespace {
                "" => write!(f, "ClusterRoleBinding {name:?}")?,
                namespace => write!(f, "RoleBinding \"{name}/{namespace}\"")?,
            }
            write!(f, " of {role_kind} {role_name:?} to ")?;
            let Some(subject) = self.subjects.iter().find(|subject| subject.is(user, namespace)) else { return Ok(()) };
            match &*subject.kind {
                "ServiceAccount" => write!(f, "ServiceAccount \"{}/{}\"", subject.name, subject.home(namespace)),
                kind => write!(f, "{kind} {:?}", subject.name),
            }
        })
    }
}

/// Where the role lies that a binding in `namespace` refers to.
pub(super) fn role_key<'a>(kind: &str, namespace: &'a str, name: &'a str) -> Option<(&'a str, &'a str)> {
    match kind {
        "ClusterRole" => Some(("", name)),
        "Role" if !namespace.is_empty() => Some((namespace, name)),
        _ => None,
    }
}

impl Subject {
    fn home<'a>(&'a self, namespace: &'a str) -> &'a str {
        if self.namespace.is_empty() { namespace } else { &self.namespace }
    }

    /// The user name of an account, if it is known where it lives.
    fn account(&self, namespace: &str) -> Option<String> {
        let home = self.home(namespace);
        (!home.is_empty()).then(|| format!("system:serviceaccount:{home}:{}", self.name))
    }

    fn is(&self, user: &User, namespace: &str) -> bool {
        match &*self.kind {
            "User" => *user.name == *self.name,
            "Group" => user.is_in(&self.name),
            "ServiceAccount" => self.account(namespace).is_some_and(|name| name == user.name),
            _ => false,
        }
    }
}
