//! One step of a rollout: from how the edges fare to how far the newest revision reaches.

use std::sync::Arc;

use super::{Bound, Spec, State};
use crate::health::Health;

/// How an edge fares with the revision that it shall hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Its name, as people are told.
    pub edge: Arc<str>,
    /// Where it stands in the order.
    pub order: u64,
    pub online: bool,
    /// It holds all of it.
    pub acked: bool,
    /// What is worst in what it reports of it.
    pub health: Health,
    /// Since when all that is so, in seconds.
    pub since: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Progressing,
    Paused,
    Stopped,
    Complete,
}

impl Phase {
    pub fn text(self) -> &'static str {
        match self {
            Self::Progressing => "Progressing",
            Self::Paused => "Paused",
            Self::Stopped => "Stopped",
            Self::Complete => "Complete",
        }
    }
}

/// What people are told.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub phase: Phase,
    pub message: String,
    pub total: usize,
    /// Edges that hold the newest revision.
    pub updated: usize,
    /// Of those, the healthy ones.
    pub ready: usize,
    /// Edges that are away, or do not do what they shall.
    pub unavailable: usize,
    pub failed: usize,
    /// When to look again although nothing happens.
    pub again: Option<i64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Standing {
    /// Its turn has not come.
    Waiting,
    /// The same, and it is away.
    Away,
    /// It is away for so long that nobody waits for it.
    Gone,
    Progressing,
    Failed,
    Ready,
}

/// How edges stand, counted.
#[derive(Default)]
struct Count {
    /// Of these nobody knows when they come back.
    gone: usize,
    away: usize,
    offline: usize,
    updated: usize,
    progressing: usize,
    failed: usize,
    ready: usize,
    again: Option<i64>,
    why: Option<String>,
}

impl Count {
    fn of(spec: &Spec, below: Bound, facts: &[Fact], now: i64) -> Self {
        let mut count = Self::default();
        for fact in facts {
            let covered = below.covers(fact.order);
            count.offline += usize::from(!fact.online);
            count.updated += usize::from(covered && fact.online && fact.acked);
            match standing(spec, covered, fact, now) {
                Standing::Progressing => {
                    count.progressing += 1;
                    // It becomes ready, or late, without anything happening.
                    let wait = if is_well(spec, fact) { spec.min_ready } else { spec.deadline };
                    count.look_at(fact.since.saturating_add(wait), now);
                }
                Standing::Failed => {
                    count.failed += 1;
                    count.why = count.why.or_else(|| {
                        Some(match &fact.health {
                            Health::Failed(why) => format!("{}: {why}", fact.edge),
                            _ => format!("{}: not ready after {} seconds", fact.edge, spec.deadline),
                        })
                    });
                }
                Standing::Ready => count.ready += 1,
                Standing::Gone => count.gone += 1,
                Standing::Away => {
                    count.away += 1;
                    count.look_at(fact.since.saturating_add(spec.deadline), now);
                }
                Standing::Waiting => {}
            }
        }
        count
    }

    fn look_at(&mut self, due: i64, now: i64) {
        let due = due.max(now + 1);
        self.again = Some(self.again.map_or(due, |again| again.min(due)));
    }
}

fn is_well(spec: &Spec, fact: &Fact) -> bool {
    fact.online && fact.acked && (!spec.health_gate || fact.health == Health::Healthy)
}

fn standing(spec: &Spec, covered: bool, fact: &Fact, now: i64) -> Standing {
    let age = now.saturating_sub(fact.since);
    let has_failed = matches!(fact.health, Health::Failed(_)) && (spec.health_gate || !fact.acked);
    match fact {
        Fact { online: false, .. } if age >= spec.deadline => Standing::Gone,
        Fact { online: false, .. } if !covered => Standing::Away,
        Fact { online: false, .. } => Standing::Progressing,
        _ if !covered => Standing::Waiting,
        _ if is_well(spec, fact) && age >= spec.min_ready => Standing::Ready,
        _ if is_well(spec, fact) => Standing::Progressing,
        _ if has_failed || age >= spec.deadline => Standing::Failed,
        _ => Standing::Progressing,
    }
}

/// Takes the rollout as far as it may go now. `resume`: somebody said to go on although edges failed.
pub fn step(
    spec: &Spec,
    mut state: State,
    facts: &[Fact],
    generation: i64,
    resume: bool,
    now: i64,
) -> (State, Progress) {
    let mut ordered: Vec<&Fact> = facts.iter().collect();
    ordered.sort_by_key(|fact| fact.order);
    let below = state.revisions.first().map_or(Bound::ALL, |newest| newest.below);
    let count = Count::of(spec, below, facts, now);
    let edited = state.stopped.is_some() && generation != state.generation;
    if resume || edited || (state.paused && !spec.paused) {
        (state.stopped, state.tolerated) = (None, count.failed);
    }
    // Who recovered and fails again is a new failure.
    state.tolerated = state.tolerated.min(count.failed);
    (state.paused, state.generation) = (spec.paused, generation);

    let total = facts.len();
    let allowed = spec.max_failures.of(total);
    if !state.complete && state.stopped.is_none() && count.failed - state.tolerated > allowed {
        let why = count.why.as_deref().map(|why| format!(", one of them: {why}")).unwrap_or_default();
        let edges = if count.failed == 1 { "1 edge has".to_owned() } else { format!("{} edges have", count.failed) };
        let stop = format!("{edges} failed, and {allowed} may{why}; change what is placed, or resume the rollout");
        state.stopped = Some(stop);
    }

    let (mut released, mut waits) = (0, None);
    if below == Bound::ALL {
        state.complete |= state.stopped.is_none() && count.progressing == 0;
    } else if state.stopped.is_none() && !spec.paused {
        (released, waits) = release(spec, &mut state, &ordered, &count, below, now);
    }
    state.prune();

    let unavailable = count.gone + count.away + count.progressing + count.failed + released;
    let (phase, message) = if let (Some(why), false) = (&state.stopped, state.complete) {
        (Phase::Stopped, why.clone())
    } else if state.complete {
        let left = |n: usize, what: &str| (n > 0).then(|| format!("{n} {what}"));
        let left = [left(count.offline, "offline, to follow when back"), left(count.failed, "failed")];
        let left: Vec<String> = left.into_iter().flatten().collect();
        let tail = if left.is_empty() { String::new() } else { format!(" ({})", left.join("; ")) };
        (Phase::Complete, format!("{} of {total} edges have it{tail}", count.ready))
    } else if spec.paused {
        (Phase::Paused, format!("{} of {total} edges have it; spec.rollout.paused keeps the others", count.updated))
    } else {
        let tail = waits.map(|why| format!("; {why}")).unwrap_or_default();
        (Phase::Progressing, format!("{} of {total} edges have it{tail}", count.updated))
    };
    let again = if released > 0 { Some(now + 1) } else { count.again };
    let (updated, ready, failed) = (count.updated, count.ready, count.failed);
    (state, Progress { phase, message, total, updated, ready, unavailable, failed, again })
}

/// Lets more edges have the newest revision, as many as may be unavailable: how many of them are there, and why not more.
fn release(
    spec: &Spec,
    state: &mut State,
    ordered: &[&Fact],
    count: &Count,
    reached: Bound,
    now: i64,
) -> (usize, Option<String>) {
    let total = ordered.len();
    let is_gone = |fact: &Fact| standing(spec, false, fact, now) == Standing::Gone;
    // It is rather the center that is cut off. When they come back, they take turns.
    if total > 0 && ordered.iter().all(|fact| !fact.online) {
        return (0, Some("waits, as no edge is connected".to_owned()));
    }
    if reached.includes(state.batch) {
        if count.progressing > 0 {
            return (0, Some(format!("waits for {} of this batch", count.progressing)));
        }
        // Who is gone is no part of a batch, and gets it on coming back.
        let mut others = ordered.iter().filter(|fact| !is_gone(fact) && !reached.covers(fact.order));
        let size = spec.batch_of(total);
        let last = others.nth(size - 1).filter(|_| others.next().is_some());
        state.batch = last.map_or(Bound::ALL, |last| Bound::through(last.order));
    }
    // Those that are away leave less room, but some: nobody knows when they come back.
    let room = spec.unavailable_of(total).saturating_sub(count.gone + count.away).max(1);
    let used = count.progressing + count.failed - state.tolerated;
    // Also of a batch that became larger, as edges came back, no more than a batch is under way.
    let mut left = room.saturating_sub(used).min(spec.batch_of(total).saturating_sub(count.progressing));
    let (mut released, mut below) = (0, reached);
    let mut waiting = ordered.iter().filter(|fact| !reached.covers(fact.order)).peekable();
    while let Some(fact) = waiting.next_if(|fact| state.batch.covers(fact.order) && (is_gone(fact) || left > 0)) {
        if !is_gone(fact) {
            (left, released) = (left - 1, released + 1);
        }
        below = Bound::through(fact.order);
    }
    if waiting.peek().is_none_or(|next| !state.batch.covers(next.order)) {
        below = state.batch;
    }
    if let Some(newest) = state.revisions.first_mut() {
        newest.below = below;
    }
    let why = (released == 0 && used >= room)
        .then(|| format!("{used} unavailable, and no more than {room} may be now: waits for them"));
    (released, why)
}
