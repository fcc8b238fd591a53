//! Which of the nodes that fit is the best: upstream's default plugins with their weights, each from 0 to 100 over the nodes that are compared. Pure.

use k8s_openapi::api::core::v1::Pod;

use super::{affinity::Namespaces, filter::Ask, fit, neighbours, place::Place, spread};
use controllers::owner;

/// What a Pod that asks for nothing counts as, in thousandths.
const LEAST_CPU: i128 = 100;
const LEAST_MEMORY: i128 = 200 * 1024 * 1024 * 1000;

/// The index of the best of `fits`, which are indexes into `places`. Of equals, the first.
pub fn best(ask: &Ask<'_>, places: &[Place<'_>], fits: &[usize], namespaces: &Namespaces) -> Option<usize> {
    if let [only] = fits {
        return Some(*only);
    }
    let each = |of: &dyn Fn(&Place<'_>) -> f64| -> Vec<f64> { fits.iter().map(|index| of(&places[*index])).collect() };
    let room = each(&|place| room(ask, place));
    let disliked = share_of_most(&each(&|place| disliked(ask, place)), true);
    let liked = share_of_most(&each(&|place| liked(ask, place)), false);
    let all = neighbours::company(ask, places, namespaces);
    let company = between(&fits.iter().map(|index| all[*index]).collect::<Vec<f64>>());
    let spread = if ask.spec.topology_spread_constraints.as_ref().is_some_and(|all| !all.is_empty()) {
        match ask.spread_rather.is_empty() {
            true => vec![0.0; fits.len()],
            false => least_crowded(&spread::crowded(ask, places, fits)),
        }
    } else {
        // Of one set, not all on one node.
        least_crowded(&fits.iter().map(|index| Some(siblings(ask, &places[*index]))).collect::<Vec<_>>())
    };
    let mut best: Option<(f64, usize)> = None;
    for (at, index) in fits.iter().enumerate() {
        let score = room[at] + 3.0 * disliked[at] + 2.0 * (liked[at] + company[at] + spread[at]);
        if best.is_none_or(|(most, _)| score > most) {
            best = Some((score, *index));
        }
    }
    best.map(|(_, index)| index)
}

/// Free room, and how evenly cpu and memory are used.
fn room(ask: &Ask<'_>, place: &Place<'_>) -> f64 {
    let after = |name: &str, least: i128| -> Option<f64> {
        let capacity = place.capacity.get(name).copied().filter(|capacity| *capacity > 0)?;
        let used = place.used.get(name).copied().unwrap_or(0);
        let used = used.saturating_add(ask.amounts.get(name).copied().unwrap_or(least));
        Some((used as f64 / capacity as f64).clamp(0.0, 1.0))
    };
    let shares: Vec<f64> = [after("cpu", LEAST_CPU), after("memory", LEAST_MEMORY)].into_iter().flatten().collect();
    let free = shares.iter().map(|share| 1.0 - share).sum::<f64>() / (shares.len().max(1) as f64) * 100.0;
    let balance = match shares.as_slice() {
        [cpu, memory] => (1.0 - (cpu - memory).abs() / 2.0) * 100.0,
        _ => 0.0,
    };
    free + balance
}

/// How many taints say that it should rather not go there.
fn disliked(ask: &Ask<'_>, place: &Place<'_>) -> f64 {
    let tolerations = ask.spec.tolerations.as_deref().unwrap_or_default();
    let hurts =
        |taint: &&_| fit::untolerated(std::slice::from_ref(*taint), tolerations, &["PreferNoSchedule"]).is_some();
    fit::taints(place.node).iter().filter(hurts).count() as f64
}

/// By preferred node affinity.
fn liked(ask: &Ask<'_>, place: &Place<'_>) -> f64 {
    let affinity = ask.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let preferred = affinity.and_then(|one| one.preferred_during_scheduling_ignored_during_execution.as_ref());
    let terms = preferred.into_iter().flatten().filter(|term| fit::matches(&term.preference, place.node));
    terms.map(|term| f64::from(term.weight)).sum()
}

fn siblings(ask: &Ask<'_>, place: &Place<'_>) -> f64 {
    let Some(set) = owner::controller_of(&ask.pod.metadata).map(|owner| &owner.uid) else { return 0.0 };
    let is_sibling = |pod: &Pod| owner::controller_of(&pod.metadata).map(|owner| &owner.uid) == Some(set);
    place.guests.iter().filter(|guest| is_sibling(&guest.pod)).count() as f64
}

/// Compared with the most; the other way round if less is better.
fn share_of_most(values: &[f64], less_is_better: bool) -> Vec<f64> {
    let most = values.iter().copied().fold(0.0, f64::max);
    let share = |value: &f64| if most > 0.0 { 100.0 * value / most } else { 0.0 };
    values.iter().map(|value| if less_is_better { 100.0 - share(value) } else { share(value) }).collect()
}

/// Between the least and the most of them.
fn between(values: &[f64]) -> Vec<f64> {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    values.iter().map(|value| if most > least { 100.0 * (value - least) / (most - least) } else { 0.0 }).collect()
}

/// Those of which nothing is known come last.
fn least_crowded(values: &[Option<f64>]) -> Vec<f64> {
    let known = || values.iter().flatten().copied();
    let (least, most) = (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max));
    let score = |value: f64| if most > 0.0 { 100.0 * (most + least - value) / most } else { 100.0 };
    values.iter().map(|value| value.map_or(0.0, score)).collect()
}
