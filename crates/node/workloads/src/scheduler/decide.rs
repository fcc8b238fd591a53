//! Which node a Pod goes to, who has to go for it, or why there is none. Pure.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{Node, PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    affinity::Namespaces,
    filter::{Against, Ask, Filter},
    place::{Guest, Place},
    preempt::{self, Budget, is_victim, priority},
    request::{amounts, ports},
    score, uid,
    volumes::{self, Volumes},
};
use crate::pod;

pub const NAME: &str = "default-scheduler";
/// What upstream's other plugin of this kind says before preemption has its say.
const NO_CLAIMS: &str = "no new claims to deallocate";

/// Waits for a node, from us.
pub fn is_pending(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    pod::node(pod).is_none()
        && pod::is_active(pod)
        && spec.scheduler_name.as_deref().unwrap_or(NAME) == NAME
        && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
}

/// What came of a Pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Node(String),
    /// It will go there when its claims are bound; these do not say yet that they are to be made for this node.
    Volumes(String, Vec<Arc<PersistentVolumeClaim>>),
    /// It will go there when others have gone for it.
    Preempt {
        node: String,
        victims: Vec<Arc<Pod>>,
        why: String,
    },
    /// Those that go for it have not gone yet.
    Waits(String),
    /// Why not, as an event says it.
    None(String),
}

/// What else is known, besides nodes and Pods.
#[derive(Default)]
pub struct Known {
    pub namespaces: Namespaces,
    pub volumes: Volumes,
    pub budgets: Vec<Budget>,
}

pub struct Scheduler<'a> {
    places: Vec<Place<'a>>,
    known: &'a Known,
    /// Who waits for others to go, and where.
    nominated: Vec<(Arc<Pod>, String)>,
    /// Pods that were told to go, whether that is shown or not.
    going: HashSet<String>,
    /// Who was refused last, and why. A thousand Pods of one set that does not fit are looked at once.
    refused: Option<(Arc<Pod>, Verdict)>,
}

impl<'a> Scheduler<'a> {
    /// `placed` says of a Pod where it is, and `nominated` where it waits for others to go, both of which may be more than the cache shows; `going` are Pods that
    /// were told to go.
    pub fn new(
        nodes: &'a [Arc<Node>],
        pods: &[Arc<Pod>],
        placed: impl Fn(&Pod) -> Option<String>,
        nominated: impl Fn(&Pod) -> Option<String>,
        going: HashSet<String>,
        known: &'a Known,
    ) -> Self {
        let mut places: Vec<Place<'a>> = nodes.iter().filter_map(|node| Place::new(node)).collect();
        places.sort_by_key(|place| place.name);
        let mut scheduler = Self { places, known, nominated: Vec::new(), going, refused: None };
        // What is being deleted still uses what it has.
        for pod in pods.iter().filter(|pod| !pod::is_finished(pod)) {
            if let Some(node) = placed(pod) {
                if let Some(place) = scheduler.place(&node) {
                    place.enter(Guest::new(pod));
                }
            } else if is_pending(pod)
                && let Some(node) = nominated(pod)
            {
                scheduler.nominated.push((pod.clone(), node));
            }
        }
        scheduler
    }

    fn place(&mut self, name: &str) -> Option<&mut Place<'a>> {
        let at = self.places.binary_search_by(|place| place.name.cmp(name)).ok()?;
        self.places.get_mut(at)
    }

    /// Decides, and counts the Pod as placed.
    pub fn schedule(&mut self, pod: &Arc<Pod>) -> Verdict {
        let at = self.nominated.iter().position(|(other, _)| uid(other) == uid(pod));
        if at.is_none()
            && let Some((other, verdict)) = &self.refused
            && asks_the_same(other, pod)
        {
            return verdict.clone();
        }
        let own = at.map(|at| self.nominated.swap_remove(at).1);
        let verdict = self.decide(pod, own);
        self.refused = (at.is_none() && matches!(verdict, Verdict::None(_))).then(|| (pod.clone(), verdict.clone()));
        verdict
    }

    fn decide(&mut self, pod: &Arc<Pod>, own: Option<String>) -> Verdict {
        if self.places.is_empty() {
            return Verdict::None("no nodes available to schedule pods".into());
        }
        let Some(spec) = &pod.spec else { return Verdict::None("the pod has no spec".into()) };
        let is_node = |name: &str| self.places.binary_search_by(|place| place.name.cmp(name)).is_ok();
        let claims = match self.known.volumes.of(pod, is_node) {
            Ok(claims) => claims,
            Err(why) => {
                let none = self.told([format!("{} {}", self.places.len(), preempt::NOT_HELPFUL)]);
                return Verdict::None(format!("{} {why}. {NO_CLAIMS}, preemption: {none}", self.begin()));
            }
        };
        let ask = Ask::new(pod, spec, claims);
        let against = self.against(&ask);
        let fits: Vec<usize> =
            against.iter().enumerate().filter(|(_, against)| against.fits()).map(|(at, _)| at).collect();
        // Where others have gone for it.
        let kept = fits.iter().copied().find(|at| Some(self.places[*at].name) == own.as_deref());
        let best = kept.or_else(|| score::best(&ask, &self.places, &fits, &self.known.namespaces));
        let Some(best) = best else { return self.make_room(&ask, own, &against) };
        let node = self.places[best].name.to_owned();
        self.places[best].enter(Guest::new(pod));
        match ask.claims.are_bound() {
            true => Verdict::Node(node),
            false => {
                let claims = ask.claims.to_choose(&node);
                Verdict::Volumes(node, claims)
            }
        }
    }

    /// What speaks against each place. Who waits for room there and is not less important has to fit as well, and the Pod must not need them.
    fn against(&mut self, ask: &Ask<'_>) -> Vec<Against> {
        let all = |places: &[Place<'_>]| -> Vec<Against> {
            let filter = Filter::new(ask, places, &self.known.namespaces);
            places.iter().map(|place| filter.against(place)).collect()
        };
        let alone = all(&self.places);
        let entered = self.enter_nominated(ask.pod);
        if entered.is_empty() {
            return alone;
        }
        let filter = Filter::new(ask, &self.places, &self.known.namespaces);
        let together: Vec<Against> = self.places.iter().map(|place| filter.against(place)).collect();
        self.leave_nominated(&entered);
        together.into_iter().zip(alone).map(|(with, without)| if with.fits() { without } else { with }).collect()
    }

    /// Those who wait for room count as if they were there. Their uids.
    fn enter_nominated(&mut self, pod: &Pod) -> Vec<String> {
        let nominated = std::mem::take(&mut self.nominated);
        let mut entered = Vec::new();
        for (other, node) in &nominated {
            if priority(other) >= priority(pod)
                && let Some(place) = self.place(node)
            {
                place.enter(Guest::new(other));
                entered.push(uid(other).to_owned());
            }
        }
        self.nominated = nominated;
        entered
    }

    fn leave_nominated(&mut self, uids: &[String]) {
        for place in &mut self.places {
            place.leave(|pod| uids.iter().any(|one| one == uid(pod)));
        }
    }

    fn make_room(&mut self, ask: &Ask<'_>, own: Option<String>, against: &[Against]) -> Verdict {
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in against.iter().flat_map(|against| &against.reasons) {
            *reasons.entry(reason).or_default() += 1;
        }
        let why = self.told(reasons.iter().map(|(reason, count)| format!("{count} {reason}")));
        let not_allowed = |what: &str| format!("{why} {NO_CLAIMS}, preemption: not eligible due to {what}.");
        if ask.spec.preemption_policy.as_deref() == Some("Never") {
            return Verdict::None(not_allowed("preemptionPolicy=Never"));
        }
        if let Some(own) = own
            && self.is_being_cleared(ask.pod, &own, against)
        {
            // Nobody may take the room that is being made.
            self.nominated.push((ask.pod.clone(), own));
            return Verdict::Waits(not_allowed("a terminating pod on the nominated node"));
        }
        let entered = self.enter_nominated(ask.pod);
        let known = self.known;
        let found = preempt::choose(ask, &mut self.places, against, &known.budgets, &known.namespaces);
        self.leave_nominated(&entered);
        match found {
            Ok(found) => {
                let node = self.places[found.place].name.to_owned();
                self.nominated.push((ask.pod.clone(), node.clone()));
                let is_told = |pod: &Arc<Pod>| pod::is_deleting(pod) || self.going.contains(uid(pod));
                let victims: Vec<Arc<Pod>> = found.victims.into_iter().filter(|pod| !is_told(pod)).collect();
                self.going.extend(victims.iter().map(|pod| uid(pod).to_owned()));
                Verdict::Preempt { node, victims, why }
            }
            Err(all) => {
                let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
                for reason in all.into_iter().flatten() {
                    *reasons.entry(reason).or_default() += 1;
                }
                let none = self.told(reasons.iter().map(|(reason, count)| format!("{count} {reason}")));
                Verdict::None(format!("{why} {NO_CLAIMS}, preemption: {none}"))
            }
        }
    }

    /// Whether somebody still has to go where the Pod is to go.
    fn is_being_cleared(&self, pod: &Pod, node: &str, against: &[Against]) -> bool {
        let at = self.places.iter().position(|place| place.name == node);
        at.is_some_and(|at| {
            let goes = |guest: &Guest| {
                priority(&guest.pod) < priority(pod) && (is_victim(&guest.pod) || self.going.contains(uid(&guest.pod)))
            };
            !against[at].is_final && self.places[at].guests.iter().any(goes)
        })
    }

    fn begin(&self) -> String {
        format!("0/{} nodes are available:", self.places.len())
    }

    fn told(&self, lines: impl IntoIterator<Item = String>) -> String {
        let mut lines: Vec<String> = lines.into_iter().collect();
        lines.sort();
        format!("{} {}.", self.begin(), lines.join(", "))
    }
}

/// Whether what holds for one of them holds for the other. Claims are each Pod's own.
fn asks_the_same(a: &Pod, b: &Pod) -> bool {
    let (Some(one), Some(other)) = (&a.spec, &b.spec) else { return false };
    a.metadata.namespace == b.metadata.namespace
        && a.metadata.labels == b.metadata.labels
        && one.affinity == other.affinity
        && one.node_selector == other.node_selector
        && one.tolerations == other.tolerations
        && one.topology_spread_constraints == other.topology_spread_constraints
        && one.priority == other.priority
        && one.preemption_policy == other.preemption_policy
        && amounts(a) == amounts(b)
        && ports(one) == ports(other)
        && volumes::names(a).chain(volumes::names(b)).next().is_none()
}

/// Who comes first: the more important, then who waits longer.
pub fn by_priority(a: &Pod, b: &Pod) -> std::cmp::Ordering {
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|Time(time)| *time);
    priority(b)
        .cmp(&priority(a))
        .then_with(|| created(a).cmp(&created(b)))
        .then_with(|| a.metadata.name.cmp(&b.metadata.name))
}
