//! What a placement asks of its rollout: `spec.rollout`.

use serde_json::Value;

/// A number of edges, or a share of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Count(u64),
    Percent(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// So many edges are one batch; the next begins when this one is ready.
    pub batch: Amount,
    /// So many edges may be unavailable at once; if not said, as many as a batch has.
    pub max_unavailable: Option<Amount>,
    pub paused: bool,
    /// With more failed edges than these it stops.
    pub max_failures: Amount,
    /// Whether an edge is ready only once what it reports is healthy, or as soon as it holds everything.
    pub health_gate: bool,
    /// For so many seconds an edge has to be healthy before it is ready.
    pub min_ready: i64,
    /// An edge that is not healthy after so many seconds has failed.
    pub deadline: i64,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            batch: Amount::Percent(10),
            max_unavailable: None,
            paused: false,
            max_failures: Amount::Count(0),
            health_gate: true,
            min_ready: 0,
            deadline: 600,
        }
    }
}

impl Amount {
    fn read(value: &Value) -> Option<Self> {
        if let Some(count) = value.as_u64() {
            return Some(Self::Count(count));
        }
        let text = value.as_str()?.trim();
        match text.strip_suffix('%') {
            Some(percent) => percent.trim().parse().ok().filter(|percent| *percent <= 100).map(Self::Percent),
            None => text.parse().ok().map(Self::Count),
        }
    }

    /// Of so many edges, a share of an edge being none.
    pub fn of(self, total: usize) -> usize {
        match self {
            Self::Count(count) => usize::try_from(count).unwrap_or(usize::MAX),
            Self::Percent(percent) => total.saturating_mul(percent as usize) / 100,
        }
    }

    /// The same, a share of an edge being one.
    pub fn of_up(self, total: usize) -> usize {
        match self {
            Self::Count(_) => self.of(total),
            Self::Percent(percent) => total.saturating_mul(percent as usize).div_ceil(100),
        }
    }
}

impl Spec {
    /// Reads `spec.rollout` of a placement. `None`: it has none, and changes go everywhere at once.
    pub fn read(placement: &Value) -> Option<Result<Self, String>> {
        let value = placement.get("spec")?.get("rollout").filter(|value| !value.is_null())?;
        Some(Self::of(value))
    }

    fn of(value: &Value) -> Result<Self, String> {
        let said = |field: &str| value.get(field).filter(|value| !value.is_null());
        let amount = |field: &str| {
            let wrong = || format!("spec.rollout.{field} is neither a number nor a percentage such as 10%");
            said(field).map(|value| Amount::read(value).ok_or_else(wrong)).transpose()
        };
        let yes = |field: &str| {
            said(field)
                .map(|value| value.as_bool().ok_or(format!("spec.rollout.{field} is neither true nor false")))
                .transpose()
        };
        let seconds = |field: &str| {
            let read = |value: &Value| value.as_i64().filter(|seconds| (0..=1 << 31).contains(seconds));
            said(field)
                .map(|value| read(value).ok_or(format!("spec.rollout.{field} is no number of seconds")))
                .transpose()
        };
        let other = Self::default();
        Ok(Self {
            batch: amount("batch")?.unwrap_or(other.batch),
            max_unavailable: amount("maxUnavailable")?,
            paused: yes("paused")?.unwrap_or(other.paused),
            max_failures: amount("maxFailures")?.unwrap_or(other.max_failures),
            health_gate: yes("healthGate")?.unwrap_or(other.health_gate),
            min_ready: seconds("minReadySeconds")?.unwrap_or(other.min_ready),
            deadline: seconds("progressDeadlineSeconds")?.unwrap_or(other.deadline),
        })
    }

    /// How many of so many edges are one batch: at least one.
    pub fn batch_of(&self, total: usize) -> usize {
        self.batch.of_up(total).max(1)
    }

    /// How many of so many edges may be unavailable: at least one, or nothing could ever change.
    pub fn unavailable_of(&self, total: usize) -> usize {
        self.max_unavailable.map_or(self.batch_of(total), |amount| amount.of(total)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn specs_are_read() {
        let read = |rollout: Value| Spec::read(&json!({"spec": {"rollout": rollout}}));
        assert_eq!(read(json!(null)), None);
        assert_eq!(Spec::read(&json!({"spec": {}})), None);
        assert_eq!(read(json!({})), Some(Ok(Spec::default())));
        let full = json!({"batch": "25%", "maxUnavailable": 3, "paused": true, "maxFailures": "2", "healthGate": false,
            "minReadySeconds": 5, "progressDeadlineSeconds": 60});
        let want = Spec {
            batch: Amount::Percent(25),
            max_unavailable: Some(Amount::Count(3)),
            paused: true,
            max_failures: Amount::Count(2),
            health_gate: false,
            min_ready: 5,
            deadline: 60,
        };
        assert_eq!(read(full), Some(Ok(want)));
        for (wrong, field) in [
            (json!({"batch": "x"}), "batch"),
            (json!({"batch": -1}), "batch"),
            (json!({"batch": "101%"}), "batch"),
            (json!({"maxUnavailable": {}}), "maxUnavailable"),
            (json!({"paused": "yes"}), "paused"),
            (json!({"minReadySeconds": "5"}), "minReadySeconds"),
            (json!({"minReadySeconds": -5}), "minReadySeconds"),
        ] {
            assert!(read(wrong).unwrap().unwrap_err().contains(field), "{field}");
        }
    }

    #[test]
    fn amounts() {
        let spec = |batch, max_unavailable| Spec { batch, max_unavailable, ..Spec::default() };
        for (spec, total, batch, unavailable) in [
            (spec(Amount::Count(3), None), 10, 3, 3),
            (spec(Amount::Percent(10), None), 15, 2, 2),
            (spec(Amount::Percent(10), Some(Amount::Percent(10))), 15, 2, 1),
            (spec(Amount::Count(0), Some(Amount::Count(0))), 15, 1, 1),
            (spec(Amount::Percent(100), Some(Amount::Percent(1))), 7, 7, 1),
            (spec(Amount::Count(u64::MAX), Some(Amount::Percent(100))), 0, usize::MAX, 1),
        ] {
            assert_eq!((spec.batch_of(total), spec.unavailable_of(total)), (batch, unavailable));
        }
    }
}
