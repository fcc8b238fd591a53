//! How thousands of edges come back at a rate that the center can bear: edges wait at random, ever longer, and the center
//! gives those it turns away an appointment instead of a race.

use crate::types::Millis;

const FIRST: Millis = 500;
const LONGEST: Millis = 60_000;

/// How long an edge waits before it dials again, after so many attempts in a row that failed. `random` is any number.
///
/// An appointment is kept, with a little spread behind it as clocks and timers of many edges agree too well.
pub fn reconnect_delay(attempt: u32, retry_after: Option<Millis>, random: u64) -> Millis {
    if let Some(after) = retry_after {
        let after = after.min(60 * LONGEST);
        return after + random % (after / 8 + 100);
    }
    let most = FIRST.saturating_mul(1 << attempt.min(16)).min(LONGEST);
    most / 2 + random % (most / 2 + 1)
}

/// Admits at a bounded rate, after a burst. Who is refused is told when its turn is, and turns are handed out once.
#[derive(Debug, Clone)]
pub struct Admission {
    /// Milliseconds between two admissions, as a fraction of a thousand for rates above one per millisecond.
    gap_micros: u64,
    burst: u64,
    /// When, in microseconds, the bucket would be full if nobody came any more.
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

    /// `Err` is how long to wait before coming again.
    pub fn admit(&mut self, now: Millis) -> Result<(), Millis> {
        let now = now.saturating_mul(1000);
        let next = self.full_at.max(now) + self.gap_micros;
        if next <= now + self.burst * self.gap_micros {
            self.full_at = next;
            return Ok(());
        }
        // Half of the rate is for appointments, so that who comes late or without one finds the door open as well.
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
                assert!((FIRST / 2..=LONGEST).contains(&delay), "{attempt} {random}: {delay}");
            }
        }
        assert!(reconnect_delay(10, None, 0) >= LONGEST / 2);
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
