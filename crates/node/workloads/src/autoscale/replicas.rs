//! How many replicas one metric asks for, by the rules of upstream's autoscaler. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};

use super::behavior::Rules;
use crate::{pod, quantity};

/// A usage this close to the target changes nothing, unless the behavior says otherwise.
const TOLERANCE: f64 = 0.1;
/// For so long after its start, a Pod's CPU usage counts only if the Pod is ready.
const INITIALIZATION: SignedDuration = SignedDuration::from_mins(5);
/// A Pod that became unready within this time of its start has never been ready.
const FIRST_READINESS: SignedDuration = SignedDuration::from_secs(30);

/// What was measured of one Pod, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub value: i128,
    pub at: Timestamp,
    pub window: SignedDuration,
}

pub type Samples = BTreeMap<String, Sample>;

/// How far a usage may be from its target without a change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerances {
    pub down: f64,
    pub up: f64,
}

impl Default for Tolerances {
    fn default() -> Self {
        Self { down: TOLERANCE, up: TOLERANCE }
    }
}

impl Tolerances {
    pub fn of(rules: Rules<'_>) -> Self {
        let given = |rules: Option<&k8s_openapi::api::autoscaling::v2::HPAScalingRules>| {
            let milli = rules?.tolerance.as_ref().and_then(quantity::milli)?;
            Some(float(milli) / 1000.0)
        };
        Self { down: given(rules.down()).unwrap_or(TOLERANCE), up: given(rules.up()).unwrap_or(TOLERANCE) }
    }

    fn contain(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// A target for each Pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PodTarget {
    /// Per cent of what the Pods request.
    Utilization(i32),
    /// Thousandths.
    Average(i128),
}

/// A target for a metric that is not about Pods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TotalTarget {
    Value(i128),
    /// For each Pod.
    Average(i128),
}

/// What a metric asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    pub replicas: i32,
    /// Per cent of the requests, where the target is one.
    pub utilization: Option<i32>,
    /// Thousandths: of each Pod or in all, as the target counts.
    pub value: i128,
}

#[derive(Default)]
struct Groups<'a> {
    measured: Vec<&'a Pod>,
    unready: Vec<&'a Pod>,
    missing: Vec<&'a Pod>,
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// Pods that count, Pods that are not ready, and Pods without a measurement. Failed and terminating Pods are left out.
fn group<'a>(pods: &'a [Pod], samples: &Samples, is_cpu: bool, now: Timestamp) -> Groups<'a> {
    let mut groups = Groups::default();
    for pod in pods.iter().filter(|pod| !pod::is_deleting(pod) && pod::phase(pod) != "Failed") {
        if pod::phase(pod) == "Pending" {
            groups.unready.push(pod);
            continue;
        }
        match samples.get(name(pod)) {
            None => groups.missing.push(pod),
            Some(sample) if is_cpu && is_unready(pod, sample, now) => groups.unready.push(pod),
            Some(_) => groups.measured.push(pod),
        }
    }
    groups
}

fn is_unready(pod: &Pod, sample: &Sample, now: Timestamp) -> bool {
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
    let (Some(condition), Some(started)) = (pod::condition(pod, "Ready"), started) else { return true };
    let changed = condition.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let is_false = condition.status == "False";
    match now.duration_since(started) < INITIALIZATION {
        true => is_false || sample.at.duration_since(changed) < sample.window,
        false => is_false && changed.duration_since(started) < FIRST_READINESS,
    }
}

/// What a Pod requests of a resource, in thousandths. Every container has to say it, unless the Pod does as a whole.
fn request(pod: &Pod, resource: &str, container: Option<&str>) -> Result<i128, String> {
    let Some(spec) = &pod.spec else { return Ok(0) };
    let whole = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    if let (None, Some(whole)) = (container, whole.filter(|requests| !requests.is_empty())) {
        let of_pod = whole.get(resource).and_then(quantity::milli);
        return of_pod.ok_or_else(|| format!("missing pod-level request for {resource} in Pod {}", name(pod)));
    }
    let is_sidecar = |one: &&Container| one.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(is_sidecar);
    let mut found = spec.containers.iter().chain(sidecars).filter(|one| container.is_none_or(|name| one.name == name));
    let sum = found.try_fold(None, |sum: Option<i128>, one| {
        let requested = one.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get(resource));
        let Some(amount) = requested.and_then(quantity::milli) else {
            return Err(format!("missing request for {resource} in container {} of Pod {}", one.name, name(pod)));
        };
        Ok(Some(sum.unwrap_or(0).saturating_add(amount)))
    })?;
    match (sum, container) {
        (None, Some(container)) => Err(format!("container {container} not found in Pod {}", name(pod))),
        (sum, _) => Ok(sum.unwrap_or(0)),
    }
}

/// The whole number above.
#[allow(clippy::cast_possible_truncation, reason = "the value is clamped to the range of i32 first")]
fn ceil(count: f64) -> i32 {
    count.ceil().clamp(0.0, f64::from(i32::MAX)) as i32
}

#[allow(clippy::cast_precision_loss, reason = "upstream computes ratios as doubles, too")]
fn float(value: i128) -> f64 {
    value as f64
}

/// Nothing compared with nothing is just right; anything compared with nothing is more than any count.
fn ratio(value: i128, target: i128) -> f64 {
    match (value, target) {
        (0, 0) => 1.0,
        _ => float(value) / float(target),
    }
}

fn whole(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// A set of measurements against the target.
struct Usage {
    ratio: f64,
    utilization: Option<i32>,
    mean: i128,
}

fn usage(values: &[i128], requests: &[i128], target: PodTarget) -> Result<Usage, String> {
    let total = |all: &[i128]| all.iter().fold(0_i128, |sum, one| sum.saturating_add(*one));
    let (sum, requested) = (total(values), total(requests));
    let mean = sum / i128::try_from(values.len().max(1)).unwrap_or(1);
    match target {
        PodTarget::Average(each) => Ok(Usage { ratio: ratio(mean, each), utilization: None, mean }),
        PodTarget::Utilization(_) if requested == 0 => Err("no metrics returned matched known pods".to_owned()),
        PodTarget::Utilization(percent) => {
            let used = i32::try_from(sum.saturating_mul(100) / requested).unwrap_or(i32::MAX);
            Ok(Usage { ratio: f64::from(used) / f64::from(percent.max(1)), utilization: Some(used), mean })
        }
    }
}

/// A metric that each Pod has: a resource (`cpu`, `memory`) or a metric of its own.
pub struct OfPods<'a> {
    /// None for a metric that is no resource.
    pub resource: Option<&'a str>,
    pub container: Option<&'a str>,
    pub target: PodTarget,
}

impl OfPods<'_> {
    /// What measurements ask for when so many replicas are wanted now.
    pub fn propose(
        &self,
        current: i32,
        pods: &[Pod],
        samples: &Samples,
        tolerances: Tolerances,
        now: Timestamp,
    ) -> Result<Proposal, String> {
        if pods.is_empty() {
            return Err("no pods returned by selector while calculating replica count".to_owned());
        }
        let groups = group(pods, samples, self.resource == Some("cpu"), now);
        if groups.measured.is_empty() {
            return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
        }
        let needs_requests = matches!(self.target, PodTarget::Utilization(_));
        let request_of = |pod: &Pod| match self.resource.filter(|_| needs_requests) {
            Some(resource) => request(pod, resource, self.container),
            None => Ok(0),
        };
        // One Pod without a request makes the whole metric unusable.
        for pod in pods {
            request_of(pod)?;
        }
        let requests = |pods: &[&Pod]| pods.iter().map(|pod| request_of(pod)).collect::<Result<Vec<i128>, String>>();
        let mut values: Vec<i128> =
            groups.measured.iter().filter_map(|pod| samples.get(name(pod))).map(|sample| sample.value).collect();
        let mut requested = requests(&groups.measured)?;
        let first = usage(&values, &requested, self.target)?;
        let done = |replicas: i32| Proposal { replicas, utilization: first.utilization, value: first.mean };
        let direction = first.ratio.total_cmp(&1.0);
        let with_unready = !groups.unready.is_empty() && direction.is_gt();
        if !with_unready && groups.missing.is_empty() {
            let steady = tolerances.contain(first.ratio);
            return Ok(done(if steady { current } else { ceil(first.ratio * whole(groups.measured.len())) }));
        }
        // Pods without a measurement are taken to use what speaks against a change.
        if direction.is_ne() {
            for pod in &groups.missing {
                let request = request_of(pod)?;
                values.push(match self.target {
                    _ if direction.is_gt() => 0,
                    PodTarget::Utilization(percent) => request.saturating_mul(percent.max(100).into()) / 100,
                    PodTarget::Average(each) => each,
                });
                requested.push(request);
            }
        }
        if with_unready {
            values.extend(groups.unready.iter().map(|_| 0));
            requested.extend(requests(&groups.unready)?);
        }
        let second = usage(&values, &requested, self.target)?;
        let second_direction = second.ratio.total_cmp(&1.0);
        let turned = direction.is_ne() && direction == second_direction.reverse();
        if tolerances.contain(second.ratio) || turned {
            return Ok(done(current));
        }
        let replicas = ceil(second.ratio * whole(values.len()));
        let turned = second_direction == current.cmp(&replicas) && second_direction.is_ne();
        Ok(done(if turned { current } else { replicas }))
    }
}

/// Pods that serve now. An error if nothing is selected at all.
pub fn ready(pods: &[Pod]) -> Result<usize, String> {
    if pods.is_empty() {
        return Err(
            "unable to calculate ready pods: no pods returned by selector while calculating replica count".to_owned()
        );
    }
    Ok(pods.iter().filter(|pod| pod::phase(pod) == "Running" && pod::is_ready(pod)).count())
}

/// What an amount that is not about Pods asks for. `wanted` is the size that the target asks for, `there` the size that it has.
pub fn of_total(
    (wanted, there): (i32, i32),
    pods: &[Pod],
    value: i128,
    target: TotalTarget,
    tolerances: Tolerances,
) -> Result<Proposal, String> {
    match target {
        TotalTarget::Value(limit) => {
            let used = ratio(value, limit);
            let replicas = match wanted {
                0 => ceil(used),
                _ if tolerances.contain(used) => wanted,
                _ => ceil(used * whole(ready(pods)?)),
            };
            Ok(Proposal { replicas, utilization: None, value })
        }
        TotalTarget::Average(each) => {
            let steady = there > 0 && tolerances.contain(ratio(value, each.saturating_mul(there.into())));
            let replicas = if steady { there } else { ceil(ratio(value, each)) };
            let sharing = i128::from(there.max(1));
            let value = value / sharing + i128::from(value % sharing > 0);
            Ok(Proposal { replicas, utilization: None, value })
        }
    }
}
