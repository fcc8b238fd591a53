//! Who has to go so that a more important Pod finds a place: as few and as unimportant ones as possible, and rather nobody whom a budget protects. Pure.

use std::{cmp::Reverse, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::core::{Selector, SelectorExt};

use super::{
    affinity::Namespaces,
    filter::{Against, Ask, Filter},
    place::{Guest, Place},
};
use crate::pod;

pub const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
pub const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";

pub fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

/// One that has not begun has run for the shortest time.
fn started(pod: &Pod) -> Timestamp {
    let start = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    start.map_or(Timestamp::MAX, |Time(time)| *time)
}

/// Whether a Pod is going to make room for a more important one.
pub fn is_victim(pod: &Pod) -> bool {
    pod::is_deleting(pod)
        && pod::condition(pod, "DisruptionTarget").is_some_and(|condition| {
            condition.status == "True" && condition.reason.as_deref() == Some("PreemptionByScheduler")
        })
}

/// How many of a budget's Pods may still go.
pub struct Budget {
    namespace: Option<String>,
    selector: Selector,
    allowed: i32,
    /// Evicted already, and counted.
    disrupted: Vec<String>,
}

impl Budget {
    /// One that selects everything by selecting nothing protects nobody from this, as upstream has it.
    pub fn new(budget: &PodDisruptionBudget) -> Option<Self> {
        let selector = budget.spec.as_ref()?.selector.clone()?;
        let selector = Selector::try_from(selector).ok().filter(|selector| !selector.selects_all())?;
        let status = budget.status.clone().unwrap_or_default();
        Some(Self {
            namespace: budget.metadata.namespace.clone(),
            selector,
            allowed: status.disruptions_allowed.unwrap_or(0),
            disrupted: status.disrupted_pods.unwrap_or_default().into_keys().collect(),
        })
    }

    fn protects(&self, pod: &Pod) -> bool {
        let is_counted = |name: &String| self.disrupted.contains(name);
        pod.metadata.namespace == self.namespace
            && !pod.metadata.name.as_ref().is_some_and(is_counted)
            && pod.metadata.labels.as_ref().is_some_and(|labels| self.selector.matches(labels))
    }
}

/// A node that would do if these went.
pub struct Candidate {
    pub place: usize,
    /// The most important first.
    pub victims: Vec<Arc<Pod>>,
    violations: usize,
}

impl Candidate {
    /// The less of it the better.
    fn cost(&self) -> impl Ord + use<> {
        let highest = self.victims.iter().map(|pod| priority(pod)).max();
        // So that more of them are never cheaper than fewer.
        let sum: i64 = self.victims.iter().map(|pod| i64::from(priority(pod)) + (1 << 31)).sum();
        let of_highest = self.victims.iter().filter(|pod| Some(priority(pod)) == highest);
        let earliest = of_highest.map(|pod| started(pod)).min();
        (self.violations, highest, sum, self.victims.len(), Reverse(earliest))
    }
}

/// The best of all nodes, or what speaks against each of them. `against` is what spoke against each before. Every place is left as it was, but for the
/// order of its guests.
pub fn choose(
    ask: &Ask<'_>,
    places: &mut [Place<'_>],
    against: &[Against],
    budgets: &[Budget],
    namespaces: &Namespaces,
) -> Result<Candidate, Vec<Vec<String>>> {
    let mut best: Option<Candidate> = None;
    let mut reasons = Vec::new();
    for (index, against) in against.iter().enumerate() {
        let found = match against.is_final {
            true => Err(vec![NOT_HELPFUL.to_owned()]),
            false => victims(ask, places, index, budgets, namespaces),
        };
        match found {
            Ok(found) => {
                if best.as_ref().is_none_or(|best| found.cost() < best.cost()) {
                    best = Some(found);
                }
            }
            Err(why) => reasons.push(why),
        }
    }
    best.ok_or(reasons)
}

fn victims(
    ask: &Ask<'_>,
    places: &mut [Place<'_>],
    index: usize,
    budgets: &[Budget],
    namespaces: &Namespaces,
) -> Result<Candidate, Vec<String>> {
    let mut possible = places[index].leave(|pod| priority(pod) < priority(ask.pod));
    if possible.is_empty() {
        return Err(vec![NO_VICTIMS.to_owned()]);
    }
    let against = |places: &[Place<'_>]| Filter::new(ask, places, namespaces).against(&places[index]);
    let first = against(places);
    if !first.fits() {
        possible.into_iter().for_each(|guest| places[index].enter(guest));
        return Err(first.reasons);
    }
    possible.sort_by_key(|guest| (Reverse(priority(&guest.pod)), started(&guest.pod)));
    let (protected, others) = by_budgets(possible, budgets);
    let (mut gone, mut violations): (Vec<Guest>, usize) = (Vec::new(), 0);
    let protected_count = protected.len();
    for (number, guest) in protected.into_iter().chain(others).enumerate() {
        let uid = guest.pod.metadata.uid.clone();
        places[index].enter(guest);
        if against(places).fits() {
            continue;
        }
        violations += usize::from(number < protected_count);
        gone.extend(places[index].leave(|pod| pod.metadata.uid == uid));
    }
    let mut victims: Vec<Arc<Pod>> = gone.iter().map(|guest| guest.pod.clone()).collect();
    gone.into_iter().for_each(|guest| places[index].enter(guest));
    victims.sort_by_key(|pod| (Reverse(priority(pod)), started(pod)));
    if victims.is_empty() {
        return Err(vec![NO_VICTIMS.to_owned()]);
    }
    Ok(Candidate { place: index, victims, violations })
}

/// Those whose going would break a budget, and the others.
fn by_budgets(guests: Vec<Guest>, budgets: &[Budget]) -> (Vec<Guest>, Vec<Guest>) {
    let mut left: Vec<i32> = budgets.iter().map(|budget| budget.allowed).collect();
    guests.into_iter().partition(|guest| {
        let mut breaks = false;
        for (_, left) in budgets.iter().zip(&mut left).filter(|(budget, _)| budget.protects(&guest.pod)) {
            *left -= 1;
            breaks |= *left < 0;
        }
        breaks
    })
}
