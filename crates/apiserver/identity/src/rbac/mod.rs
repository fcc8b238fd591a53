//! Role-based access control over an index of a workspace's roles and bindings, kept by whoever sees them change.

mod index;
#[cfg(test)]
mod laws;
mod rule;
mod table;
#[cfg(test)]
pub(super) mod tests;

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;

use super::{
    authenticate::{MASTERS, User},
    authorize::{Attributes, Authorizer, Decision},
    escalation,
};
use index::{Binding, Bound, Scope, Words, role_key};
use rule::{Question, Rules};
use table::Table;

pub use rule::Rule;
pub(super) use rule::{listed, path_matches};

/// Of bindings to roles that are not there, no more are told about than these.
const MOST_ERRORS: usize = 64;

/// The roles and bindings of one workspace. Those of the cluster are under the empty namespace.
///
/// Users are taken as the workspace knows them: whoever asks here about a user of another workspace has to know who
/// that is in this one (`workspaces::seen_from`), or `system:masters` of one workspace would be those of all.
///
/// They can lie over others that many workspaces share. What has the same namespace and name counts as the upper one.
#[derive(Debug, Default)]
pub struct Roles {
    below: Option<Arc<Roles>>,
    /// How many of these hide one below.
    hiding: usize,
    words: Words,
    table: Table,
    scopes: HashMap<Arc<str>, Scope>,
}

impl Roles {
    /// Roles over others that do not change any more.
    pub fn over(below: Arc<Self>) -> Self {
        Self { below: Some(below), ..Self::default() }
    }

    /// Nothing is here but what lies below.
    pub fn is_empty(&self) -> bool {
        self.scopes.is_empty() && self.table.is_empty()
    }

    /// A role (or, in the empty namespace, a ClusterRole) is now this, or gone.
    pub fn set_role(&mut self, namespace: &str, name: &str, role: Option<&Value>) {
        let below = self.below.as_ref().and_then(|below| below.table.own(namespace, name)).cloned();
        if below.is_some() {
            let was = self.table.own(namespace, name).is_some();
            self.hiding = self.hiding + usize::from(role.is_some()) - usize::from(was);
        }
        let own = role.map(|role| Arc::new(Rules::new(Rule::all_of(role))));
        let is_own = own.is_some();
        self.table.set(&mut self.words, (namespace, name), own.or(below), is_own);
    }

    /// A binding (or, in the empty namespace, a ClusterRoleBinding) is now this, or gone.
    pub fn set_binding(&mut self, namespace: &str, name: &str, binding: Option<&Value>) {
        let hides = self.below.as_ref().is_some_and(|below| below.has_binding(namespace, name));
        let old = self.scopes.get_mut(namespace).and_then(|scope| scope.remove(name));
        if let Some(binding) = binding {
            let mut binding = Binding::new(&mut self.words, namespace, name, binding);
            let below =
                self.below.as_ref().zip(binding.role_key()).and_then(|(below, key)| below.table.own(key.0, key.1));
            binding.role = self.table.bind(&mut self.words, binding.role_key(), below.cloned());
            let scope = self.scopes.entry(binding.namespace.clone()).or_default();
            scope.insert(&mut self.words, Arc::new(binding));
        } else if self.scopes.get(namespace).is_some_and(|scope| scope.bindings.is_empty()) {
            self.scopes.remove(namespace);
        }
        if hides {
            self.hiding = self.hiding + usize::from(binding.is_some()) - usize::from(old.is_some());
        }
        // The role's number outlives the change of a binding that keeps its role.
        if let Some(old) = old {
            self.table.unbind(old.role_key(), old.role);
        }
    }

    fn has_binding(&self, namespace: &str, name: &str) -> bool {
        self.scopes.get(namespace).is_some_and(|scope| scope.bindings.contains_key(name))
    }

    /// What a user is bound to in this layer, for the cluster and in a namespace.
    fn bound<'a, 'u>(&'a self, user: &'u User, namespace: &'u str) -> impl Iterator<Item = &'a Bound> + use<'a, 'u> {
        let cluster = self.scopes.get("");
        let namespace = if namespace.is_empty() { None } else { self.scopes.get(namespace) };
        cluster.into_iter().chain(namespace).flat_map(move |scope| scope.of(user))
    }

    /// What this layer says about a binding of the one below: nothing, that it counts no more, or that its role is another.
    fn replaces(&self, binding: &Binding) -> Replaced<'_> {
        if self.has_binding(&binding.namespace, &binding.name) {
            return Replaced::Binding;
        }
        let role = binding.role_key().and_then(|(namespace, name)| self.table.own(namespace, name));
        role.map_or(Replaced::Nothing, Replaced::Role)
    }

    /// The binding that lets a user do that.
    fn find(&self, user: &User, attributes: &Attributes) -> Option<&Arc<Binding>> {
        let question = Question::new(attributes);
        let mut candidates = self.table.candidates(&question);
        if !candidates.none() {
            let mut bound = self.bound(user, &attributes.namespace);
            if let Some(found) = bound.find(|bound| candidates.allow(bound.role)) {
                return Some(&found.binding);
            }
        }
        let below = self.below.as_ref()?;
        let mut candidates = below.table.candidates(&question);
        // Without a layer above that changes something, this is nearly always the end.
        let interferes = self.hiding > 0 || below.table.dangling > 0;
        if candidates.none() && !interferes {
            return None;
        }
        let found = below.bound(user, &attributes.namespace).find(|bound| {
            if !interferes {
                return candidates.allow(bound.role);
            }
            match self.replaces(&bound.binding) {
                Replaced::Nothing => candidates.allow(bound.role),
                Replaced::Binding => false,
                Replaced::Role(rules) => rules.allow(&question),
            }
        });
        found.map(|bound| &bound.binding)
    }

    /// The bindings that concern a user, each once and in the order of their names, with the rules of their roles.
    fn bindings_of(&self, user: &User, namespace: &str) -> Vec<(&Arc<Binding>, Option<&Arc<Rules>>)> {
        let own = self.bound(user, namespace).map(|bound| (&bound.binding, self.table.rules(bound.role)));
        let mut all: Vec<_> = own.collect();
        if let Some(below) = &self.below {
            all.extend(below.bound(user, namespace).filter_map(|bound| match self.replaces(&bound.binding) {
                Replaced::Nothing => Some((&bound.binding, below.table.rules(bound.role))),
                Replaced::Binding => None,
                Replaced::Role(rules) => Some((&bound.binding, Some(rules))),
            }));
        }
        all.sort_by_key(|(binding, _)| (&binding.namespace, &binding.name));
        all.dedup_by(|(a, _), (b, _)| Arc::ptr_eq(a, b));
        all
    }

    /// The rules of the role that a binding in `namespace` refers to.
    pub fn referenced(&self, kind: &str, namespace: &str, name: &str) -> Result<&[Rule], String> {
        let key = role_key(kind, namespace, name).ok_or_else(|| unresolved(kind, name))?;
        let below = || self.below.as_ref().and_then(|below| below.table.own(key.0, key.1));
        let rules = self.table.own(key.0, key.1).or_else(below);
        rules.map(|rules| rules.list()).ok_or_else(|| unresolved(kind, name))
    }

    /// All rules that apply to a user in a namespace, and what could not be resolved.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        if user.is_in(MASTERS) {
            let all = vec!["*".to_owned()];
            let resources = Rule { verbs: all.clone(), groups: all.clone(), resources: all.clone(), ..Rule::default() };
            rules.extend([resources, Rule { verbs: all.clone(), paths: all, ..Rule::default() }]);
        }
        for (binding, found) in self.bindings_of(user, namespace) {
            match found {
                Some(found) => rules.extend_from_slice(found.list()),
                None => errors.push(unresolved(&binding.role_kind, &binding.role_name)),
            }
        }
        errors.truncate(MOST_ERRORS);
        (rules, errors)
    }

    /// What a refused user is told: nothing, or which roles are not there.
    fn refusal(&self, user: &User, namespace: &str) -> String {
        if self.table.dangling == 0 && self.below.as_ref().is_none_or(|below| below.table.dangling == 0) {
            return String::new();
        }
        let missing = self.bindings_of(user, namespace).into_iter().filter(|(_, rules)| rules.is_none());
        let errors = missing.take(MOST_ERRORS).map(|(binding, _)| unresolved(&binding.role_kind, &binding.role_name));
        let errors: Vec<String> = errors.collect();
        match errors.len() {
            0 => String::new(),
            1 => format!("RBAC: {}", errors.concat()),
            _ => format!("RBAC: [{}]", errors.join(", ")),
        }
    }

    /// Nobody may give others what they do not have: checks the rules of a role that a user wants to write or to bind.
    pub fn check_escalation(&self, user: &User, namespace: &str, rules: &[Rule]) -> Result<(), String> {
        let (owned, errors) = self.rules_for(user, namespace);
        escalation::check(user, &owned, rules, &errors)
    }
}

fn unresolved(kind: &str, name: &str) -> String {
    match kind {
        "Role" => format!("role.rbac.authorization.k8s.io {name:?} not found"),
        "ClusterRole" => format!("clusterrole.rbac.authorization.k8s.io {name:?} not found"),
        _ => format!("unsupported role reference kind: {kind:?}"),
    }
}

/// What an upper layer makes of a binding below.
enum Replaced<'a> {
    Nothing,
    Binding,
    Role(&'a Arc<Rules>),
}

impl Authorizer for Roles {
    fn authorize(&self, user: &User, attributes: &Attributes) -> Decision {
        if user.is_in(MASTERS) {
            return Decision::allowed("");
        }
        match self.find(user, attributes) {
            Some(binding) => Decision::allowed(format!("RBAC: allowed by {}", binding.explain(user))),
            None => Decision { reason: self.refusal(user, &attributes.namespace), ..Decision::default() },
        }
    }

    fn verdict(&self, user: &User, attributes: &Attributes) -> Result<(), String> {
        if user.is_in(MASTERS) || self.find(user, attributes).is_some() {
            return Ok(());
        }
        Err(self.refusal(user, &attributes.namespace))
    }
}
