//! How fast replicas may come and go: stabilization over past recommendations, and limits over past changes. Pure.
//!
//! Times are durations since the controller started: a clock that is set changes no window.

use std::{collections::VecDeque, time::Duration};

use k8s_openapi::api::autoscaling::v2::{HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior};

/// The stabilization window for scaling down where the autoscaler names none.
const DOWN_WINDOW: i32 = 300;
/// No window and no period is longer, so nothing older is kept.
const MEMORY: Duration = Duration::from_secs(3600);

/// What is remembered of an autoscaler between two reconciliations.
#[derive(Clone, Debug, Default)]
pub struct History {
    recommendations: VecDeque<(Duration, i32)>,
    /// Replicas that were added (positive) or removed.
    changes: VecDeque<(Duration, i32)>,
}

/// A reason and a message of a condition.
pub type Why = (&'static str, &'static str);

const WITHIN_RANGE: Why = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_MANY: Why = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: Why = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const UP_LIMIT: Why = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: Why =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const READY: Why = ("ReadyForNewScale", "recommended size matches current size");
const UP_STABILIZED: Why = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const DOWN_STABILIZED: Why = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);

impl History {
    /// The size that an autoscaler finds first counts as its first recommendation.
    pub fn begin(&mut self, current: i32, now: Duration) {
        if self.recommendations.is_empty() {
            self.recommendations.push_back((now, current));
        }
    }

    fn recommended(&mut self, replicas: i32, now: Duration) {
        self.recommendations.push_back((now, replicas));
        let is_old = |at: Duration| at + MEMORY < now;
        while self.recommendations.front().is_some_and(|(at, _)| is_old(*at)) {
            self.recommendations.pop_front();
        }
        while self.changes.front().is_some_and(|(at, _)| is_old(*at)) {
            self.changes.pop_front();
        }
    }

    pub fn changed(&mut self, from: i32, to: i32, now: Duration) {
        self.changes.push_back((now, to.saturating_sub(from)));
    }

    /// The size that the stabilization windows let through. The recommendation is remembered.
    pub fn stabilize(&mut self, rules: Rules<'_>, current: i32, desired: i32, now: Duration) -> (i32, Why) {
        let within = |window: i32| {
            let since = now.checked_sub(seconds(window));
            let recent = self.recommendations.iter().filter(move |(at, _)| since.is_none_or(|since| *at > since));
            recent.map(|(_, replicas)| *replicas)
        };
        let highest = within(rules.down_window()).fold(desired, i32::max);
        let stable = match rules.0 {
            // Without rules of its own an autoscaler follows the highest recommendation of the window.
            None => highest,
            Some(_) => {
                let lowest = within(rules.up_window()).fold(desired, i32::min);
                current.max(lowest).min(highest)
            }
        };
        self.recommended(desired, now);
        let why = match rules.0 {
            _ if stable == desired => READY,
            Some(_) if desired >= current => UP_STABILIZED,
            _ => DOWN_STABILIZED,
        };
        (stable, why)
    }

    /// The size that bounds and policies let through, and why it is that one.
    pub fn limit(
        &self,
        rules: Rules<'_>,
        (least, most): (i32, i32),
        current: i32,
        desired: i32,
        now: Duration,
    ) -> (i32, Why) {
        if rules.0.is_none() {
            let limit = current.saturating_mul(2).max(4);
            let (most, why) = if most > limit { (limit, UP_LIMIT) } else { (most, TOO_MANY) };
            return match desired {
                _ if desired < least => (least, TOO_FEW),
                _ if desired > most => (most, why),
                _ => (desired, WITHIN_RANGE),
            };
        }
        if desired > current {
            let limit = self.up_limit(rules, current, now).max(current);
            let (most, why) = if most > limit { (limit, UP_LIMIT) } else { (most, TOO_MANY) };
            return if desired > most { (most, why) } else { (desired, WITHIN_RANGE) };
        }
        if desired < current {
            let limit = self.down_limit(rules, current, now).min(current);
            let (least, why) = if least < limit { (limit, DOWN_LIMIT) } else { (least, TOO_FEW) };
            return if desired < least { (least, why) } else { (desired, WITHIN_RANGE) };
        }
        (desired, WITHIN_RANGE)
    }

    /// The size at the beginning of a policy's period.
    fn size_before(&self, policy: &HPAScalingPolicy, current: i32, now: Duration) -> i32 {
        let since = now.checked_sub(seconds(policy.period_seconds));
        let recent = self.changes.iter().filter(|(at, _)| since.is_none_or(|since| *at > since));
        recent.fold(current, |size, (_, change)| size.saturating_sub(*change))
    }

    fn up_limit(&self, rules: Rules<'_>, current: i32, now: Duration) -> i32 {
        let Some(up) = rules.up() else { return i32::MAX };
        let limits = up.policies.iter().flatten().map(|policy| {
            let before = self.size_before(policy, current, now);
            match policy.type_.as_str() {
                // Rounded up, as a small set could never grow otherwise.
                "Percent" => percent(before, i64::from(policy.value) + 100, true),
                _ => before.saturating_add(policy.value),
            }
        });
        match up.select_policy.as_deref() {
            Some("Disabled") => current,
            Some("Min") => limits.min().unwrap_or(current),
            _ => limits.max().unwrap_or(i32::MAX),
        }
    }

    fn down_limit(&self, rules: Rules<'_>, current: i32, now: Duration) -> i32 {
        let Some(down) = rules.down() else { return 0 };
        let limits = down.policies.iter().flatten().map(|policy| {
            let before = self.size_before(policy, current, now);
            match policy.type_.as_str() {
                "Percent" => percent(before, 100 - i64::from(policy.value), false),
                _ => before.saturating_sub(policy.value),
            }
        });
        match down.select_policy.as_deref() {
            Some("Disabled") => current,
            // The policy that changes the least leaves the most.
            Some("Min") => limits.max().unwrap_or(current),
            _ => limits.min().unwrap_or(0),
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.recommendations.len() + self.changes.len()
    }
}

fn seconds(count: i32) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}

fn percent(count: i32, percent: i64, up: bool) -> i32 {
    let hundredths = i64::from(count) * percent;
    let rounded = if up { (hundredths + 99).div_euclid(100) } else { hundredths.div_euclid(100) };
    i32::try_from(rounded).unwrap_or(if rounded > 0 { i32::MAX } else { i32::MIN })
}

/// `spec.behavior` of an autoscaler. The API server fills in what a given behavior leaves out.
#[derive(Clone, Copy)]
pub struct Rules<'a>(pub Option<&'a HorizontalPodAutoscalerBehavior>);

impl<'a> Rules<'a> {
    pub fn up(self) -> Option<&'a HPAScalingRules> {
        self.0?.scale_up.as_ref()
    }

    pub fn down(self) -> Option<&'a HPAScalingRules> {
        self.0?.scale_down.as_ref()
    }

    fn up_window(self) -> i32 {
        self.up().and_then(|rules| rules.stabilization_window_seconds).unwrap_or(0)
    }

    fn down_window(self) -> i32 {
        self.down().and_then(|rules| rules.stabilization_window_seconds).unwrap_or(DOWN_WINDOW)
    }
}
