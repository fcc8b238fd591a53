//! Which node a Pod goes to, or why none. Pure.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{Node, Pod, PodSpec},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    affinity::{Namespaces, Term, Wishes},
    fit,
    request::{Amounts, HostPort, add, amounts, ports, read},
};
use crate::{owner, pod};

pub const NAME: &str = "default-scheduler";

/// Waits for a node, from us.
pub fn is_pending(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    pod::node(pod).is_none()
        && pod::is_active(pod)
        && spec.scheduler_name.as_deref().unwrap_or(NAME) == NAME
        && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
}

/// A node, and what is on it.
struct Place<'a> {
    node: &'a Node,
    name: &'a str,
    capacity: Amounts,
    used: Amounts,
    pods: Vec<(Arc<Pod>, Vec<Term>)>,
    ports: Vec<HostPort>,
}

impl Place<'_> {
    fn take(&mut self, pod: &Arc<Pod>) {
        add(&mut self.used, &amounts(pod));
        if let Some(spec) = &pod.spec {
            self.ports.extend(ports(spec));
        }
        self.pods.push((pod.clone(), Wishes::of(pod).apart));
    }

    fn label(&self, name: &str) -> Option<&String> {
        self.node.metadata.labels.as_ref()?.get(name)
    }
}

/// What came of a Pod.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Node(String),
    /// Why not, as an event says it.
    None(String),
}

pub struct Scheduler<'a> {
    places: Vec<Place<'a>>,
    namespaces: &'a Namespaces,
}

impl<'a> Scheduler<'a> {
    /// `placed` says of a Pod where it is, which may be more than the cache shows.
    pub fn new(
        nodes: &'a [Arc<Node>],
        pods: &[Arc<Pod>],
        placed: impl Fn(&Pod) -> Option<String>,
        namespaces: &'a Namespaces,
    ) -> Self {
        let mut places: Vec<Place<'a>> = nodes
            .iter()
            .filter_map(|node| {
                let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
                Some(Place {
                    node,
                    name: node.metadata.name.as_deref()?,
                    capacity: read(allocatable),
                    used: Amounts::new(),
                    pods: Vec::new(),
                    ports: Vec::new(),
                })
            })
            .collect();
        places.sort_by_key(|place| place.name);
        let mut scheduler = Self { places, namespaces };
        // What is being deleted still uses what it has.
        for pod in pods.iter().filter(|pod| !pod::is_finished(pod)) {
            if let Some(node) = placed(pod) {
                scheduler.put(pod, &node);
            }
        }
        scheduler
    }

    fn put(&mut self, pod: &Arc<Pod>, node: &str) {
        if let Some(place) = self.places.iter_mut().find(|place| place.name == node) {
            place.take(pod);
        }
    }

    /// Decides, and counts the Pod as placed.
    pub fn schedule(&mut self, pod: &Arc<Pod>) -> Verdict {
        if self.places.is_empty() {
            return Verdict::None("no nodes available to schedule pods".into());
        }
        let Some(spec) = &pod.spec else { return Verdict::None("the pod has no spec".into()) };
        let ask = Ask { pod, spec, amounts: amounts(pod), ports: ports(spec), wishes: Wishes::of(pod) };
        let neighbours = self.neighbours(&ask);
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut best: Option<(f64, usize)> = None;
        for (index, place) in self.places.iter().enumerate() {
            let against = self.against(&ask, place, &neighbours);
            if against.is_empty() {
                let score = self.score(&ask, place);
                if best.is_none_or(|(most, _)| score > most) {
                    best = Some((score, index));
                }
            }
            for reason in against {
                *reasons.entry(reason).or_default() += 1;
            }
        }
        match best {
            Some((_, index)) => {
                self.places[index].take(pod);
                Verdict::Node(self.places[index].name.to_owned())
            }
            None => {
                let mut lines: Vec<String> =
                    reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
                lines.sort();
                Verdict::None(format!("0/{} nodes are available: {}.", self.places.len(), lines.join(", ")))
            }
        }
    }

    /// Everything that speaks against a node, of the first kind of thing that does.
    fn against(&self, ask: &Ask<'_>, place: &Place<'_>, neighbours: &Neighbours) -> Vec<String> {
        let tolerations = ask.spec.tolerations.as_deref().unwrap_or_default();
        if fit::is_closed(ask.spec, place.node) {
            return vec!["node(s) were unschedulable".into()];
        }
        if let Some(taint) = fit::untolerated(fit::taints(place.node), tolerations, &["NoSchedule", "NoExecute"]) {
            let value = taint.value.as_deref().unwrap_or_default();
            return vec![format!("node(s) had untolerated taint {{{}: {value}}}", taint.key)];
        }
        if !fit::suits(ask.spec, place.node) {
            return vec!["node(s) didn't match Pod's node affinity/selector".into()];
        }
        if ask.ports.iter().any(|port| place.ports.iter().any(|taken| port.conflicts(taken))) {
            return vec!["node(s) didn't have free ports for the requested pod ports".into()];
        }
        let mut missing = Vec::new();
        let limit = place.capacity.get("pods").copied().unwrap_or(0) / 1000;
        if i128::try_from(place.pods.len()).unwrap_or(i128::MAX) >= limit {
            missing.push("Too many pods".to_owned());
        }
        for (name, amount) in &ask.amounts {
            let (has, used) = (place.capacity.get(name).copied(), place.used.get(name).copied());
            if amount.saturating_add(used.unwrap_or(0)) > has.unwrap_or(0) {
                missing.push(format!("Insufficient {name}"));
            }
        }
        if !missing.is_empty() {
            return missing;
        }
        neighbours.against(place).into_iter().map(str::to_owned).collect()
    }

    /// What Pods that are there mean for one that comes: worked out once for all nodes.
    fn neighbours(&self, ask: &Ask<'_>) -> Neighbours {
        let domains = |term: &Term| -> HashMap<String, usize> {
            let mut found: HashMap<String, usize> = HashMap::new();
            for place in &self.places {
                let Some(value) = place.label(&term.topology) else { continue };
                let count = place.pods.iter().filter(|(pod, _)| term.matches(pod, self.namespaces)).count();
                if count > 0 {
                    *found.entry(value.clone()).or_default() += count;
                }
            }
            found
        };
        let near: Vec<(String, HashMap<String, usize>)> =
            ask.wishes.near.iter().map(|term| (term.topology.clone(), domains(term))).collect();
        // The first of a group that wants to be together has nobody to be near to yet.
        let is_first = near.iter().all(|(_, found)| found.is_empty())
            && ask.wishes.near.iter().all(|term| term.matches(ask.pod, self.namespaces));
        let apart = ask.wishes.apart.iter().map(|term| (term.topology.clone(), domains(term))).collect();
        let mut unwanted: Vec<(String, String)> = Vec::new();
        for place in &self.places {
            for term in place.pods.iter().flat_map(|(_, apart)| apart) {
                if let Some(value) = place.label(&term.topology)
                    && term.matches(ask.pod, self.namespaces)
                {
                    unwanted.push((term.topology.clone(), value.clone()));
                }
            }
        }
        Neighbours { near, is_first, apart, unwanted }
    }

    /// More is better. As upstream's default plugins, with their weights.
    fn score(&self, ask: &Ask<'_>, place: &Place<'_>) -> f64 {
        let after = |name: &str, least: i128| -> Option<f64> {
            let capacity = place.capacity.get(name).copied().filter(|capacity| *capacity > 0)?;
            let used = place.used.get(name).copied().unwrap_or(0) + ask.amounts.get(name).copied().unwrap_or(least);
            Some((used as f64 / capacity as f64).clamp(0.0, 1.0))
        };
        let shares: Vec<f64> =
            [after("cpu", 100), after("memory", 200 * 1024 * 1024 * 1000)].into_iter().flatten().collect();
        let free = mean(shares.iter().map(|share| 1.0 - share)) * 100.0;
        let balance = match shares.as_slice() {
            [cpu, memory] => (1.0 - (cpu - memory).abs() / 2.0) * 100.0,
            _ => 0.0,
        };
        let tolerations = ask.spec.tolerations.as_deref().unwrap_or_default();
        let disliked = fit::taints(place.node).iter().filter(|taint| {
            fit::untolerated(std::slice::from_ref(taint), tolerations, &["PreferNoSchedule"]).is_some()
        });
        let affinity = ask.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let preferred =
            affinity.and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref());
        let liked: f64 = preferred
            .into_iter()
            .flatten()
            .filter(|term| fit::matches(&term.preference, place.node))
            .map(|term| f64::from(term.weight))
            .sum();
        let mut company = 0.0;
        for (weight, term) in &ask.wishes.rather {
            let Some(value) = place.label(&term.topology) else { continue };
            let same = self.places.iter().filter(|other| other.label(&term.topology) == Some(value));
            let count =
                same.flat_map(|other| &other.pods).filter(|(pod, _)| term.matches(pod, self.namespaces)).count();
            company += *weight as f64 * count as f64;
        }
        // Of one set, not all on one node.
        let set = owner::controller_of(&ask.pod.metadata).map(|owner| &owner.uid);
        let is_sibling =
            |pod: &Pod| set.is_some() && owner::controller_of(&pod.metadata).map(|owner| &owner.uid) == set;
        let siblings = place.pods.iter().filter(|(pod, _)| is_sibling(pod)).count() as f64;
        free + balance - 3.0 * 100.0 * disliked.count() as f64
            + 2.0 * liked
            + 2.0 * company
            + 2.0 * 100.0 / (1.0 + siblings)
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len();
    if count == 0 { 0.0 } else { values.sum::<f64>() / count as f64 }
}

struct Ask<'a> {
    pod: &'a Arc<Pod>,
    spec: &'a PodSpec,
    amounts: Amounts,
    ports: Vec<HostPort>,
    wishes: Wishes,
}

struct Neighbours {
    near: Vec<(String, HashMap<String, usize>)>,
    is_first: bool,
    apart: Vec<(String, HashMap<String, usize>)>,
    unwanted: Vec<(String, String)>,
}

impl Neighbours {
    fn against(&self, place: &Place<'_>) -> Option<&'static str> {
        let has = |topology: &str, found: &HashMap<String, usize>| {
            place.label(topology).is_some_and(|value| found.contains_key(value))
        };
        let is_near = self
            .near
            .iter()
            .all(|(topology, found)| has(topology, found) || self.is_first && place.label(topology).is_some());
        if !is_near {
            return Some("node(s) didn't match pod affinity rules");
        }
        if self.apart.iter().any(|(topology, found)| has(topology, found)) {
            return Some("node(s) didn't match pod anti-affinity rules");
        }
        let is_unwanted = |(topology, value): &(String, String)| place.label(topology) == Some(value);
        self.unwanted.iter().any(is_unwanted).then_some("node(s) didn't satisfy existing pods anti-affinity rules")
    }
}

/// Who comes first: the more important, then who waits longer.
pub fn by_priority(a: &Pod, b: &Pod) -> std::cmp::Ordering {
    let priority = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|Time(time)| *time);
    priority(b)
        .cmp(&priority(a))
        .then_with(|| created(a).cmp(&created(b)))
        .then_with(|| a.metadata.name.cmp(&b.metadata.name))
}
