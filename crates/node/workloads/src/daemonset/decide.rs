//! What a DaemonSet needs next: one Pod on each node that suits, and a new one where the template changed. Pure.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, DaemonSetStatus},
        core::v1::{
            Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec,
            PodTemplateSpec, Toleration,
        },
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::revision::HASH;
use crate::{
    bounds,
    pod::{self, Available},
    replicaset::some,
    scheduler::fit,
};

/// At most so many Pods are made or deleted at once.
pub const BURST: usize = 250;
const NAME_FIELD: &str = "metadata.name";
const GENERATION: &str = "deprecated.daemonset.template.generation";
const GENERATION_LABEL: &str = "pod-template-generation";

/// Why a Pod goes, where that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Surplus,
    Failed,
    Succeeded,
}

#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// The nodes to make Pods for.
    pub create: Vec<String>,
    pub delete: Vec<(Arc<Pod>, Why)>,
    pub again: Option<Duration>,
}

/// The template as its Pods have it: they tolerate what is wrong with a node, and know which revision they are.
pub fn template(set: &DaemonSet, hash: &str) -> PodTemplateSpec {
    let mut template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH.into(), hash.into());
    // What the API counts changes of the template with, from the time before revisions.
    let generation = set.metadata.annotations.as_ref().and_then(|annotations| annotations.get(GENERATION));
    if let Some(generation) = generation.filter(|generation| generation.parse::<i64>().is_ok()) {
        labels.insert(GENERATION_LABEL.into(), generation.clone());
    }
    let spec = template.spec.get_or_insert_default();
    let more = if spec.host_network == Some(true) { Some(("network-unavailable", "NoSchedule")) } else { None };
    let all = [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ];
    let tolerations = spec.tolerations.get_or_insert_default();
    for (name, effect) in all.into_iter().chain(more) {
        let toleration = Toleration {
            key: Some(format!("node.kubernetes.io/{name}")),
            operator: Some("Exists".into()),
            effect: Some(effect.into()),
            ..Toleration::default()
        };
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    template
}

/// Nails a Pod to a node; the scheduler still looks whether there is room.
pub fn nail(spec: &mut PodSpec, node: &str) {
    let only =
        NodeSelectorRequirement { key: NAME_FIELD.into(), operator: "In".into(), values: Some(vec![node.to_owned()]) };
    let term = NodeSelectorTerm { match_fields: Some(vec![only]), match_expressions: None };
    let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
    let of_nodes: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    of_nodes.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
}

/// Where a Pod is, or is nailed to.
pub fn node_of(pod: &Pod) -> Option<&str> {
    if let Some(node) = pod::node(pod) {
        return Some(node);
    }
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields = required.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let mut names = fields.filter(|field| field.key == NAME_FIELD).flat_map(|field| field.values.iter().flatten());
    names.next().map(String::as_str)
}

/// Whether a node shall have a Pod of this template, and whether it may keep one.
pub fn suits(template: &PodTemplateSpec, node: &Node) -> (bool, bool) {
    let Some(spec) = &template.spec else { return (false, false) };
    let named = spec.node_name.as_deref().unwrap_or_default();
    if !named.is_empty() && node.metadata.name.as_deref() != Some(named) || !fit::suits(spec, node) {
        return (false, false);
    }
    let (taints, tolerations) = (fit::taints(node), spec.tolerations.as_deref().unwrap_or_default());
    if fit::untolerated(taints, tolerations, &["NoSchedule", "NoExecute"]).is_some() {
        return (false, fit::untolerated(taints, tolerations, &["NoExecute"]).is_none());
    }
    (true, true)
}

/// What is there, as one pass sees it.
pub struct Seen<'a> {
    pub set: &'a DaemonSet,
    pub nodes: &'a [Arc<Node>],
    /// The set's own.
    pub pods: &'a [Arc<Pod>],
    pub hash: &'a str,
    /// How long a node whose Pod failed has to wait for the next one; nothing if it need not.
    pub back_off: &'a (dyn Fn(&str) -> Option<Duration> + Sync),
    pub now: Timestamp,
}

impl Seen<'_> {
    fn min_ready(&self) -> i32 {
        self.set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pod::available(pod, self.min_ready(), self.now) == Available::Yes
    }

    fn is_current(&self, pod: &Pod) -> bool {
        pod.metadata.labels.as_ref().and_then(|labels| labels.get(HASH)).is_some_and(|hash| hash == self.hash)
    }

    /// The oldest first.
    fn by_node(&self) -> BTreeMap<&str, Vec<&Arc<Pod>>> {
        let mut by_node: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
        for pod in self.pods {
            if let Some(node) = node_of(pod) {
                by_node.entry(node).or_default().push(pod);
            }
        }
        let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|Time(time)| *time);
        for pods in by_node.values_mut() {
            pods.sort_by_key(|pod| (pod::node(pod).is_none(), created(pod), pod.metadata.name.clone()));
        }
        by_node
    }

    /// How many more and how many less than one on each node, while an update rolls.
    fn fences(&self, desired: usize) -> (usize, usize) {
        let strategy = self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let total = i32::try_from(desired).unwrap_or(i32::MAX);
        let of = |given: Option<_>, or| given.map_or(Some(or), |given| bounds::of(given, total, true)).unwrap_or(or);
        let surge = of(rolling.and_then(|rolling| rolling.max_surge.as_ref()), 0);
        let unavailable = of(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), 1);
        let (surge, unavailable) = (usize::try_from(surge).unwrap_or(0), usize::try_from(unavailable).unwrap_or(0));
        if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
    }

    fn is_rolling(&self) -> bool {
        let strategy = self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        strategy.and_then(|strategy| strategy.type_.as_deref()).unwrap_or("RollingUpdate") == "RollingUpdate"
    }

    pub fn plan(&self) -> Plan {
        let template = template(self.set, self.hash);
        let by_node = self.by_node();
        let suited: BTreeMap<&str, (bool, bool)> = self
            .nodes
            .iter()
            .filter_map(|node| Some((node.metadata.name.as_deref()?, suits(&template, node))))
            .collect();
        let desired = suited.values().filter(|(shall, _)| *shall).count();
        let (surge, unavailable) = if self.is_rolling() { self.fences(desired) } else { (0, 0) };
        let mut plan = self.place(&suited, &by_node, surge > 0);
        if self.is_rolling() && plan.create.is_empty() && plan.delete.is_empty() {
            let shall: Vec<&str> = suited.iter().filter(|(_, (shall, _))| *shall).map(|(name, _)| *name).collect();
            if surge > 0 {
                self.roll_with_surge(&mut plan, &shall, &by_node, surge);
            } else {
                self.roll(&mut plan, &shall, &by_node, unavailable);
            }
        }
        plan.create.truncate(BURST);
        plan.delete.truncate(BURST);
        plan
    }

    /// One Pod for each node that shall have one, none for those that may not.
    fn place(
        &self,
        suited: &BTreeMap<&str, (bool, bool)>,
        by_node: &BTreeMap<&str, Vec<&Arc<Pod>>>,
        surges: bool,
    ) -> Plan {
        let mut plan = Plan::default();
        for (node, (shall, may)) in suited {
            let pods = by_node.get(node).map(Vec::as_slice).unwrap_or_default();
            let there: Vec<&&Arc<Pod>> = pods.iter().filter(|pod| !pod::is_deleting(pod)).collect();
            if !may {
                plan.delete.extend(there.into_iter().map(|pod| ((*pod).clone(), Why::Surplus)));
                continue;
            }
            // A Pod that is being deleted keeps its place until it is gone.
            if pods.is_empty() {
                if *shall {
                    plan.create.push((*node).to_owned());
                }
                continue;
            }
            let mut running: Vec<&Arc<Pod>> = Vec::new();
            for pod in there {
                match pod::phase(pod) {
                    "Failed" => match (self.back_off)(node) {
                        Some(wait) => plan.again = Some(plan.again.map_or(wait, |again| again.min(wait))),
                        None => plan.delete.push(((*pod).clone(), Why::Failed)),
                    },
                    "Succeeded" => plan.delete.push(((*pod).clone(), Why::Succeeded)),
                    _ => running.push(pod),
                }
            }
            // With a surge, an old and a new one may be there together.
            let (new, mut old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = running.iter().partition(|pod| self.is_current(pod));
            // If the template changed once more, the one that works stays.
            old.sort_by_key(|pod| !self.is_available(pod));
            let surplus: Vec<&Arc<Pod>> = if surges {
                old.into_iter().skip(1).chain(new.into_iter().skip(1)).collect()
            } else {
                running.into_iter().skip(1).collect()
            };
            plan.delete.extend(surplus.into_iter().map(|pod| (pod.clone(), Why::Surplus)));
        }
        // Those that wait for a node that is gone wait in vain.
        for (_, pods) in by_node.iter().filter(|(node, _)| !suited.contains_key(*node)) {
            let vain = pods.iter().filter(|pod| pod::node(pod).is_none() && !pod::is_deleting(pod));
            plan.delete.extend(vain.map(|pod| ((*pod).clone(), Why::Surplus)));
        }
        plan
    }

    /// The current and the old Pod of a node that are not being deleted.
    fn pair<'a>(&self, pods: &[&'a Arc<Pod>]) -> (Option<&'a Arc<Pod>>, Option<&'a Arc<Pod>>) {
        let there = || pods.iter().filter(|pod| !pod::is_deleting(pod)).copied();
        (there().find(|pod| self.is_current(pod)), there().find(|pod| !self.is_current(pod)))
    }

    fn roll(&self, plan: &mut Plan, shall: &[&str], by_node: &BTreeMap<&str, Vec<&Arc<Pod>>>, most: usize) {
        let (mut missing, mut broken, mut candidates) = (0, Vec::new(), Vec::new());
        for node in shall {
            match self.pair(by_node.get(node).map(Vec::as_slice).unwrap_or_default()) {
                (Some(new), None) => missing += usize::from(!self.is_available(new)),
                (None, Some(old)) if self.is_available(old) => candidates.push(old),
                // It takes nothing away that is there.
                (None, Some(old)) => {
                    missing += 1;
                    broken.push(old);
                }
                _ => missing += 1,
            }
        }
        let now = candidates.into_iter().take(most.saturating_sub(missing));
        plan.delete.extend(broken.into_iter().chain(now).map(|pod| (pod.clone(), Why::Surplus)));
    }

    fn roll_with_surge(&self, plan: &mut Plan, shall: &[&str], by_node: &BTreeMap<&str, Vec<&Arc<Pod>>>, most: usize) {
        let (mut surging, mut broken, mut candidates) = (0, Vec::new(), Vec::new());
        for node in shall {
            match self.pair(by_node.get(node).map(Vec::as_slice).unwrap_or_default()) {
                (Some(new), Some(old)) if self.is_available(new) || !self.is_available(old) => {
                    plan.delete.push((old.clone(), Why::Surplus));
                }
                (Some(_), Some(_)) => surging += 1,
                (None, Some(old)) if self.is_available(old) => candidates.push((*node).to_owned()),
                (None, Some(_)) => broken.push((*node).to_owned()),
                _ => {}
            }
        }
        let room = most.saturating_sub(surging);
        plan.create.extend(broken.into_iter().chain(candidates.into_iter().take(room)));
    }

    /// The status, and after how long it changes although nothing happens.
    pub fn status(&self) -> (DaemonSetStatus, Option<Duration>) {
        let template = template(self.set, self.hash);
        let by_node = self.by_node();
        let mut again: Option<Duration> = None;
        let (mut desired, mut scheduled, mut ready, mut ready_long, mut updated, mut wrong) = (0, 0, 0, 0, 0, 0);
        for node in self.nodes {
            let pods = node.metadata.name.as_deref().and_then(|name| by_node.get(name));
            let (shall, _) = suits(&template, node);
            if !shall {
                wrong += i32::from(pods.is_some());
                continue;
            }
            desired += 1;
            let Some(pods) = pods else { continue };
            scheduled += 1;
            // With a surge, the oldest counts: the new one when it is alone.
            let Some(first) = pods.first() else { continue };
            ready += i32::from(pod::is_ready(first));
            ready_long += i32::from(self.is_available(first));
            updated += i32::from(self.is_current(first));
            for pod in pods {
                if let Available::In(left) = pod::available(pod, self.min_ready(), self.now) {
                    again = Some(again.map_or(left, |again| again.min(left)));
                }
            }
        }
        let before = self.set.status.clone().unwrap_or_default();
        let status = DaemonSetStatus {
            desired_number_scheduled: desired,
            current_number_scheduled: scheduled,
            number_misscheduled: wrong,
            number_ready: ready,
            number_available: some(ready_long),
            number_unavailable: some(desired - ready_long),
            updated_number_scheduled: some(updated),
            observed_generation: self.set.metadata.generation,
            collision_count: before.collision_count,
            conditions: before.conditions,
        };
        (status, again)
    }
}
