//! What a PodDisruptionBudget allows. Pure.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        core::v1::Pod,
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
    },
    apimachinery::pkg::{
        apis::meta::v1::{Condition, Time},
        util::intstr::IntOrString,
    },
};

use crate::{bounds, pod};
use controllers::owner;

/// Who may be evicted has to be gone by then; afterwards the eviction counts as not done.
const PATIENCE: SignedDuration = SignedDuration::from_mins(2);
const CONDITION: &str = "DisruptionAllowed";

/// How many Pods there should be, by those who control them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    Count(i32),
    /// Why that cannot be known.
    Unknown(String),
}

#[derive(Debug, PartialEq)]
pub struct Decision {
    pub status: PodDisruptionBudgetStatus,
    /// When an eviction that is not done has to be forgotten.
    pub again: Option<Duration>,
    /// Pods that were to go and did not.
    pub stayed: Vec<String>,
    /// Why nothing can be said: nothing is allowed then.
    pub failure: Option<String>,
}

pub fn decide(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], expected: &Expected, now: Timestamp) -> Decision {
    let before = budget.status.clone().unwrap_or_default();
    let (disrupted, stayed, again) = disrupted(&before, pods, now);
    let counted = counts(budget, pods, expected);
    let (expected, needed) = match counted {
        Ok(counts) => counts,
        Err(failure) => {
            let mut status = PodDisruptionBudgetStatus {
                disruptions_allowed: Some(0),
                observed_generation: budget.metadata.generation,
                ..before
            };
            set_condition(&mut status, "False", "SyncFailed", &failure, budget.metadata.generation, now);
            return Decision { status, again, stayed: Vec::new(), failure: Some(failure) };
        }
    };
    let is_there = |pod: &&Arc<Pod>| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        !pod::is_deleting(pod) && pod::is_ready(pod) && !disrupted.contains_key(name)
    };
    let healthy = i32::try_from(pods.iter().filter(is_there).count()).unwrap_or(i32::MAX);
    let allowed = if expected <= 0 { 0 } else { healthy.saturating_sub(needed).max(0) };
    let mut status = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(needed),
        expected_pods: Some(expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        observed_generation: budget.metadata.generation,
        conditions: before.conditions,
    };
    let (value, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    set_condition(&mut status, value, reason, "", budget.metadata.generation, now);
    Decision { status, again, stayed, failure: None }
}

/// How many Pods there should be, and how many of them healthy.
fn counts(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], expected: &Expected) -> Result<(i32, i32), String> {
    let spec = budget.spec.clone().unwrap_or_default();
    let there = i32::try_from(pods.len()).unwrap_or(i32::MAX);
    let by_controllers = || match expected {
        Expected::Count(count) => Ok(*count),
        Expected::Unknown(why) => Err(why.clone()),
    };
    let of = |value: &IntOrString, total: i32| {
        bounds::of(value, total, true).ok_or_else(|| "a budget is a number or a percentage, as in 1 or 50%".to_owned())
    };
    if let Some(most) = &spec.max_unavailable {
        let expected = by_controllers()?;
        return Ok((expected, expected.saturating_sub(of(most, expected)?).max(0)));
    }
    match &spec.min_available {
        Some(IntOrString::Int(least)) => Ok((there, *least)),
        Some(percent) => {
            let expected = by_controllers()?;
            Ok((expected, of(percent, expected)?))
        }
        None => Ok((there, 0)),
    }
}

/// What is told where Pods that nobody controls are to be counted by who controls them.
pub fn unmanaged(budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> Option<String> {
    let spec = budget.spec.as_ref()?;
    let by_controllers = spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)));
    let is_lone = |pod: &Arc<Pod>| owner::controller_of(&pod.metadata).is_none();
    if !by_controllers || !pods.iter().any(is_lone) {
        return None;
    }
    let selector = spec.selector.clone().unwrap_or_default();
    let labels = selector.match_labels.unwrap_or_default();
    let labels: String = labels.iter().map(|(name, value)| format!("{name}: {value},")).collect();
    let expressions = selector.match_expressions.unwrap_or_default();
    let expressions: String = expressions
        .iter()
        .map(|one| {
            let values = one.values.as_deref().unwrap_or_default().join(" ");
            format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", one.key, one.operator)
        })
        .collect();
    Some(format!(
        "Pods selected by this PodDisruptionBudget (selector: &LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}) were found to be unmanaged. As a result, the status of \
         the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \
         \".spec.minAvailable\" field of the PDB to an integer value."
    ))
}

type Disrupted = BTreeMap<String, Time>;

/// Evictions that were allowed and are not shown yet, names of those that were not done in time, and when the next is due.
fn disrupted(
    before: &PodDisruptionBudgetStatus,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> (Disrupted, Vec<String>, Option<Duration>) {
    let (mut kept, mut stayed, mut again) = (Disrupted::new(), Vec::new(), None::<Duration>);
    for (name, Time(at)) in before.disrupted_pods.iter().flatten() {
        let there = pods.iter().find(|pod| pod.metadata.name.as_ref() == Some(name));
        if there.is_none_or(|pod| pod::is_deleting(pod)) {
            continue;
        }
        let left = Duration::try_from(PATIENCE - now.duration_since(*at)).unwrap_or_default();
        if left.is_zero() {
            stayed.push(name.clone());
        } else {
            kept.insert(name.clone(), Time(*at));
            again = Some(again.map_or(left, |again| again.min(left)));
        }
    }
    (kept, stayed, again)
}

fn set_condition(
    status: &mut PodDisruptionBudgetStatus,
    value: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    let conditions = status.conditions.get_or_insert_default();
    let since = conditions.iter().find(|condition| condition.type_ == CONDITION && condition.status == value);
    let since = since.map_or(Time(now), |condition| condition.last_transition_time.clone());
    conditions.retain(|condition| condition.type_ != CONDITION);
    conditions.push(Condition {
        type_: CONDITION.into(),
        status: value.into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: since,
        observed_generation: generation,
    });
}
