//! What an autoscaler makes of its metrics: how many replicas, and what its conditions say of that. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::autoscaling::v2::{
        HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerCondition, MetricStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::behavior::{History, Rules};

/// What one metric asks for.
#[derive(Clone, Debug)]
pub struct Asked {
    pub replicas: i32,
    /// How events and conditions call the metric.
    pub name: String,
    pub status: MetricStatus,
}

/// Why a metric cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Unusable {
    /// Of the condition and the event.
    pub reason: &'static str,
    pub message: String,
    /// The same, as part of the message about all metrics.
    pub whole: String,
}

/// What the metrics of one reconciliation ask for together.
#[derive(Debug)]
pub enum Wanted {
    Replicas { replicas: i32, name: String },
    Unknown { message: String },
}

/// The target gets another size, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Rescale {
    pub to: i32,
    pub reason: String,
}

/// The conditions of an autoscaler during one reconciliation.
pub struct Conditions {
    list: Vec<HorizontalPodAutoscalerCondition>,
    now: Timestamp,
}

impl Conditions {
    pub fn of(hpa: &HorizontalPodAutoscaler, now: Timestamp) -> Self {
        let list = hpa.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        Self { list, now }
    }

    pub fn set(&mut self, kind: &str, is_true: bool, reason: &str, message: impl Into<String>) {
        let status = if is_true { "True" } else { "False" };
        let mut made = HorizontalPodAutoscalerCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.into()),
            last_transition_time: Some(Time(self.now)),
        };
        match self.list.iter_mut().find(|condition| condition.type_ == kind) {
            Some(condition) => {
                if condition.status == status {
                    made.last_transition_time = condition.last_transition_time.take();
                }
                *condition = made;
            }
            None => self.list.push(made),
        }
    }

    pub fn into_list(self) -> Vec<HorizontalPodAutoscalerCondition> {
        self.list
    }
}

pub fn bounds(hpa: &HorizontalPodAutoscaler) -> (i32, i32) {
    (hpa.spec.min_replicas.unwrap_or(1), hpa.spec.max_replicas)
}

/// What is known without any metric. `None`: the metrics decide.
pub fn without_metrics(
    hpa: &HorizontalPodAutoscaler,
    current: i32,
    conditions: &mut Conditions,
) -> Option<Option<Rescale>> {
    let (least, most) = bounds(hpa);
    if current == 0 && least != 0 {
        let message = "scaling is disabled since the replica count of the target is zero";
        conditions.set("ScalingActive", false, "ScalingDisabled", message);
        return Some(None);
    }
    if current > most {
        let reason = "Current number of replicas above Spec.MaxReplicas".to_owned();
        return Some(Some(Rescale { to: most, reason }));
    }
    if current < least {
        let reason = "Current number of replicas below Spec.MinReplicas".to_owned();
        return Some(Some(Rescale { to: least, reason }));
    }
    None
}

/// The largest of what the metrics ask for. Where one of them is unknown, nobody can tell whether less would do.
pub fn combine(current: i32, metrics: &[Result<Asked, Unusable>], conditions: &mut Conditions) -> Wanted {
    let mut best: Option<&Asked> = None;
    for asked in metrics.iter().flatten() {
        if best.is_none_or(|best| asked.replicas > best.replicas) {
            best = Some(asked);
        }
    }
    let mut failed = metrics.iter().filter_map(|metric| metric.as_ref().err());
    let first = failed.next();
    match (best, first) {
        (Some(best), None) => usable(best, conditions),
        (Some(best), Some(_)) if best.replicas >= current => usable(best, conditions),
        (_, Some(first)) => {
            let message = format!("the HPA was unable to compute the replica count: {}", first.message);
            conditions.set("ScalingActive", false, first.reason, message);
            let (invalid, all) = (failed.count() + 1, metrics.len());
            let why = &first.whole;
            let message = format!("invalid metrics ({invalid} invalid out of {all}), first error is: {why}");
            Wanted::Unknown { message }
        }
        (None, None) => {
            let message = "no metrics are given: set spec.metrics".to_owned();
            let said = format!("the HPA was unable to compute the replica count: {message}");
            conditions.set("ScalingActive", false, "InvalidMetricSourceType", said);
            Wanted::Unknown { message }
        }
    }
}

fn usable(best: &Asked, conditions: &mut Conditions) -> Wanted {
    let message = format!("the HPA was able to successfully calculate a replica count from {}", best.name);
    conditions.set("ScalingActive", true, "ValidMetricFound", message);
    Wanted::Replicas { replicas: best.replicas, name: best.name.clone() }
}

/// The size that windows, policies and bounds make of what the metrics ask for.
pub fn normalize(
    behavior: Option<&HorizontalPodAutoscalerBehavior>,
    bounds: (i32, i32),
    current: i32,
    (wanted, name): (i32, &str),
    history: &mut History,
    conditions: &mut Conditions,
    now: Duration,
) -> Option<Rescale> {
    let reason = match wanted > current {
        true => format!("{name} above target"),
        false => "All metrics below target".to_owned(),
    };
    let rules = Rules(behavior);
    let (stable, (why, message)) = history.stabilize(rules, current, wanted, now);
    conditions.set("AbleToScale", true, why, message);
    let (desired, (why, message)) = history.limit(rules, bounds, current, stable, now);
    conditions.set("ScalingLimited", desired != stable, why, message);
    (desired != current).then_some(Rescale { to: desired, reason })
}
