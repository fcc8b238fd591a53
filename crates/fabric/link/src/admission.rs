//! Reconnects of thousands of edges at a bounded rate: edges back off exponentially with jitter, and the center gives
//! every edge that it refuses a time to come again.

use crate::types::Millis;

const MIN_BACKOFF: Millis = 500;
const MAX_BACKOFF: Millis = 60_000;

/// Backoff before an edge dials again, after `attempt` failures in a row. `random` is any number.
///
/// An edge keeps the time that the center gave it, plus jitter, as the timers of many edges would fire together.
pub fn reconnect_delay(attempt: u32, retry_after: Option<Millis>, random: u64) -> Millis {
    if let Some(after) = retry_after {
        let after = after.min(60 * MAX_BACKOFF);
        return after + random % (after / 8 + 100);
    }
    let most = MIN_BACKOFF.saturating_mul(1 << attempt.min(16)).min(MAX_BACKOFF);
    most / 2 + random % (most / 2 + 1)
}

/// A token bucket. A refused caller is given its own time to come again.
#[derive(Debug, Clone)]
pub struct Admission {
    /// Time between two admissions; microseconds allow rates above one per millisecond.
    gap_micros: u64,
    burst: u64,
    /// Time in microseconds at which the bucket would be full without further admissions.
    full_at: u64,
    /// The last appointment given, in microseconds.
    booked: u64,
}

impl Admission {
    pub fn new(per_second: u32, burst: u32) -> Self {
        Self {
            gap_micros: 1_000_000 / u64::from(per_second.max(1)),
            burst: u64::from(burst.max(1)),
            full_at: 0,
            booked: 0,
        }
    }

    /// `Err` is the time to wait before the next attempt.
    pub fn admit(&mut self, now: Millis) -> Result<(), Millis> {
        let now = now.saturating_mul(1000);
        let next = self.full_at.max(now) + self.gap_micros;
        if next <= now + self.burst * self.gap_micros {
            self.full_at = next;
            return Ok(());
        }
        // Appointments use half of the rate; the other half is for edges that come late or without one.
        self.booked = self.booked.max(now) + 2 * self.gap_micros;
        Err((self.booked - now).div_ceil(1000).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_within_bounds() {
        for attempt in 0..80 {
            for random in [0, 1, 77_777, u64::MAX] {
                let delay = reconnect_delay(attempt, None, random);
                assert!((MIN_BACKOFF / 2..=MAX_BACKOFF).contains(&delay), "{attempt} {random}: {delay}");
            }
        }
        assert!(reconnect_delay(10, None, 0) >= MAX_BACKOFF / 2);
        let kept = reconnect_delay(0, Some(8_000), 12_345);
        assert!((8_000..=9_100).contains(&kept));
    }

    #[test]
    fn a_storm_is_admitted_at_the_rate() {
        let mut admission = Admission::new(500, 100);
        let mut due: Vec<(Millis, u32)> = (0..5_000).map(|edge| (u64::from(edge % 10), edge)).collect();
        let mut admitted = Vec::new();
        let mut attempts = 0;
        while !due.is_empty() {
            due.sort();
            let (now, edge) = due.remove(0);
            attempts += 1;
            match admission.admit(now) {
                Ok(()) => admitted.push(now),
                Err(after) => {
                    due.push((now + reconnect_delay(0, Some(after), u64::from(edge).wrapping_mul(0x9e37_79b9)), edge))
                }
            }
        }
        let end = admitted.iter().copied().max().unwrap();
        assert!((9_000..30_000).contains(&end), "5,000 edges took {end} ms");
        assert!(attempts < 12_000, "{attempts} attempts");
        for second in 0..end / 1000 {
            let within = admitted.iter().filter(|at| **at / 1000 == second).count();
            assert!(within <= 601, "{within} in second {second}");
        }
    }
}
