//! Affinity between Pods: who wants to be near whom, and who does not. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Pod, PodAffinityTerm},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::core::{Selector, SelectorExt};

/// The labels of namespaces, for terms that select them.
pub type Namespaces = BTreeMap<String, BTreeMap<String, String>>;

/// A term, ready to be asked.
pub struct Term {
    pub topology: String,
    namespaces: Vec<String>,
    /// Nothing: no further ones than those named.
    selected: Option<Selector>,
    /// Nothing selects no Pod.
    selector: Option<Selector>,
    /// Labels that have to be the Pod's own, and those that must not.
    same: Vec<(String, String)>,
    other: Vec<(String, String)>,
}

impl Term {
    pub fn new(term: &PodAffinityTerm, of: &Pod) -> Self {
        let parse = |selector: &LabelSelector| Selector::try_from(selector.clone()).ok();
        let mut namespaces = term.namespaces.clone().unwrap_or_default();
        let selected = term.namespace_selector.as_ref().and_then(parse);
        if namespaces.is_empty() && selected.is_none() {
            namespaces = of.metadata.namespace.iter().cloned().collect();
        }
        let selector = term.label_selector.as_ref().and_then(parse);
        let own = |keys: Option<&Vec<String>>| -> Vec<(String, String)> {
            let labels = of.metadata.labels.as_ref();
            keys.into_iter().flatten().filter_map(|key| Some((key.clone(), labels?.get(key)?.clone()))).collect()
        };
        let (same, other) = (own(term.match_label_keys.as_ref()), own(term.mismatch_label_keys.as_ref()));
        Self { topology: term.topology_key.clone(), namespaces, selected, selector, same, other }
    }

    pub fn matches(&self, pod: &Pod, known: &Namespaces) -> bool {
        let none = BTreeMap::new();
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let is_selected = |selector: &Selector| {
            selector.selects_all() || known.get(&namespace).is_some_and(|labels| selector.matches(labels))
        };
        let is_there = self.namespaces.contains(&namespace) || self.selected.as_ref().is_some_and(is_selected);
        let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
        is_there
            && self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
            && self.same.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.other.iter().all(|(key, value)| labels.get(key) != Some(value))
    }

    /// Whether namespaces have to be known to answer.
    pub fn needs_namespaces(&self) -> bool {
        self.selected.as_ref().is_some_and(|selector| !selector.selects_all())
    }
}

/// What a Pod asks of its neighbours.
#[derive(Default)]
pub struct Wishes {
    pub near: Vec<Term>,
    pub apart: Vec<Term>,
    /// With a weight, negative to be apart.
    pub rather: Vec<(i64, Term)>,
}

impl Wishes {
    pub fn of(pod: &Pod) -> Self {
        let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
        let mut wishes = Self::default();
        let Some(affinity) = affinity else { return wishes };
        let read = |terms: Option<&Vec<PodAffinityTerm>>| {
            terms.into_iter().flatten().map(|term| Term::new(term, pod)).collect()
        };
        if let Some(near) = &affinity.pod_affinity {
            wishes.near = read(near.required_during_scheduling_ignored_during_execution.as_ref());
            for weighted in near.preferred_during_scheduling_ignored_during_execution.iter().flatten() {
                wishes.rather.push((weighted.weight.into(), Term::new(&weighted.pod_affinity_term, pod)));
            }
        }
        if let Some(apart) = &affinity.pod_anti_affinity {
            wishes.apart = read(apart.required_during_scheduling_ignored_during_execution.as_ref());
            for weighted in apart.preferred_during_scheduling_ignored_during_execution.iter().flatten() {
                wishes.rather.push((-i64::from(weighted.weight), Term::new(&weighted.pod_affinity_term, pod)));
            }
        }
        wishes
    }

    pub fn needs_namespaces(&self) -> bool {
        let rather = self.rather.iter().map(|(_, term)| term);
        self.near.iter().chain(&self.apart).chain(rather).any(Term::needs_namespaces)
    }
}
