//! `topologySpreadConstraints`: Pods of a kind evenly over zones, nodes or whatever a label names. Pure.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::core::{Selector, SelectorExt};

use super::{filter::Ask, fit, place::Place};
use crate::pod;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// A constraint, ready to be asked.
pub struct Constraint {
    topology: String,
    most_skew: usize,
    /// Fewer domains than this count as if one of them had nobody.
    least_domains: usize,
    /// Nothing selects no Pod.
    selector: Option<Selector>,
    /// Labels that have to be the Pod's own.
    same: Vec<(String, String)>,
    honors_affinity: bool,
    honors_taints: bool,
}

/// Those of a Pod with this `whenUnsatisfiable`.
pub fn constraints(pod: &Pod, spec: &PodSpec, when: &str) -> Vec<Constraint> {
    let own = pod.metadata.labels.as_ref();
    let all = spec.topology_spread_constraints.iter().flatten();
    all.filter(|one| one.when_unsatisfiable == when)
        .map(|one| {
            let keys = one.match_label_keys.iter().flatten();
            Constraint {
                topology: one.topology_key.clone(),
                most_skew: usize::try_from(one.max_skew).unwrap_or(0),
                least_domains: one.min_domains.and_then(|least| usize::try_from(least).ok()).unwrap_or(1),
                selector: one.label_selector.as_ref().and_then(|labels| Selector::try_from(labels.clone()).ok()),
                same: keys.filter_map(|key| Some((key.clone(), own?.get(key)?.clone()))).collect(),
                honors_affinity: one.node_affinity_policy.as_deref() != Some("Ignore"),
                honors_taints: one.node_taints_policy.as_deref() == Some("Honor"),
            }
        })
        .collect()
}

impl Constraint {
    fn matches(&self, pod: &Pod) -> bool {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&NONE);
        self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
            && self.same.iter().all(|(key, value)| labels.get(key) == Some(value))
    }

    /// A selector that selects everything counts nobody, as upstream has it.
    fn count(&self, place: &Place<'_>, namespace: Option<&String>) -> usize {
        if self.same.is_empty() && self.selector.as_ref().is_none_or(Selector::selects_all) {
            return 0;
        }
        let counts =
            |pod: &Pod| !pod::is_deleting(pod) && pod.metadata.namespace.as_ref() == namespace && self.matches(pod);
        place.guests.iter().filter(|guest| counts(&guest.pod)).count()
    }

    /// Whether a node's Pods count at all.
    fn includes(&self, spec: &PodSpec, place: &Place<'_>) -> bool {
        let tolerations = spec.tolerations.as_deref().unwrap_or_default();
        (!self.honors_affinity || fit::suits(spec, place.node))
            && (!self.honors_taints || fit::untolerated(fit::taints(place.node), tolerations, fit::HARD).is_none())
    }
}

fn has_all(constraints: &[Constraint], place: &Place<'_>) -> bool {
    constraints.iter().all(|one| place.label(&one.topology).is_some())
}

/// How many Pods are in each domain, for each constraint.
pub struct Counts(Vec<HashMap<String, usize>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    NoLabel,
    Skew,
}

impl Counts {
    pub fn new(ask: &Ask<'_>, constraints: &[Constraint], places: &[Place<'_>]) -> Self {
        let namespace = ask.pod.metadata.namespace.as_ref();
        let domains = |one: &Constraint| {
            let mut domains: HashMap<String, usize> = HashMap::new();
            for place in places.iter().filter(|place| has_all(constraints, place) && one.includes(ask.spec, place)) {
                if let Some(value) = place.label(&one.topology) {
                    *domains.entry(value.clone()).or_default() += one.count(place, namespace);
                }
            }
            domains
        };
        Self(constraints.iter().map(domains).collect())
    }

    pub fn against(&self, ask: &Ask<'_>, place: &Place<'_>) -> Option<Against> {
        for (one, domains) in ask.spread.iter().zip(&self.0) {
            let Some(value) = place.label(&one.topology) else { return Some(Against::NoLabel) };
            let least =
                if domains.len() < one.least_domains { 0 } else { domains.values().min().copied().unwrap_or(0) };
            let here = domains.get(value).copied().unwrap_or(0);
            if here + usize::from(one.matches(ask.pod)) > one.most_skew + least {
                return Some(Against::Skew);
            }
        }
        None
    }
}

/// How crowded each of the places that fit is, before they are compared; nothing for one without the labels. `fits` are indexes into `places`.
pub fn crowded(ask: &Ask<'_>, places: &[Place<'_>], fits: &[usize]) -> Vec<Option<f64>> {
    let constraints = &ask.spread_rather;
    let namespace = ask.pod.metadata.namespace.as_ref();
    let counts = Counts::new(ask, constraints, places);
    let scored: Vec<&Place<'_>> =
        fits.iter().map(|index| &places[*index]).filter(|place| has_all(constraints, place)).collect();
    let weights: Vec<f64> = constraints
        .iter()
        .map(|one| {
            let size = if one.topology == HOSTNAME {
                scored.len()
            } else {
                let mut values: Vec<_> = scored.iter().filter_map(|place| place.label(&one.topology)).collect();
                values.sort_unstable();
                values.dedup();
                values.len()
            };
            // More domains have fewer Pods in each: they would count for less otherwise.
            ((size + 2) as f64).ln()
        })
        .collect();
    let score = |place: &Place<'_>| {
        let each = constraints.iter().zip(&counts.0).zip(&weights).map(|((one, domains), weight)| {
            let count = match place.label(&one.topology) {
                Some(_) if one.topology == HOSTNAME => one.count(place, namespace),
                Some(value) => domains.get(value).copied().unwrap_or(0),
                None => 0,
            };
            count as f64 * weight + (one.most_skew.max(1) - 1) as f64
        });
        each.sum::<f64>().round()
    };
    fits.iter().map(|index| has_all(constraints, &places[*index]).then(|| score(&places[*index]))).collect()
}
