//! How a change of what is placed reaches the edges of a placement one batch after the other.
//!
//! What a placement places is a revision; whenever that changes, a new one is made. Edges stand in an order that nothing changes: by a
//! hash of their placement and their SyncTarget. A revision covers all edges below a bound, and the newest that covers an edge is the one it
//! shall hold. So a rollout is a few numbers, whatever the number of edges: they lie in `EdgePlacement.status.rollout`, and a center that
//! starts anew goes on from there.

mod spec;
mod step;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

pub use spec::{Amount, Spec};
pub use step::{Fact, Phase, Progress, step};

/// On a placement, with any value: go on although edges failed. Taken away once done.
pub const RESUME: &str = "edge.selvedge.dev/rollout-resume";

/// So many revisions can be on edges at once. Who changes things faster than that skips one.
const MOST: usize = 16;

/// Where an edge stands in the order of a placement.
pub fn order(placement_uid: &str, target_uid: &str) -> u64 {
    let mut hash = Sha256::new();
    hash.update(placement_uid);
    hash.update([0]);
    hash.update(target_uid);
    hash.finalize().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

/// All edges that stand before it in the order. `None`: all there are and will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound(pub Option<u64>);

impl Bound {
    pub const NONE: Self = Self(Some(0));
    pub const ALL: Self = Self(None);

    pub fn covers(self, edge: u64) -> bool {
        self.0.is_none_or(|bound| edge < bound)
    }

    /// The one that covers this edge and those before it.
    fn through(edge: u64) -> Self {
        Self(edge.checked_add(1))
    }

    /// Whether everything that the other covers is covered.
    fn includes(self, other: Self) -> bool {
        match (self.0, other.0) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(other)) => own >= other,
        }
    }

    fn read(value: &Value) -> Option<Self> {
        match value.as_str()? {
            "all" => Some(Self::ALL),
            text => u64::from_str_radix(text, 16).ok().map(|bound| Self(Some(bound))),
        }
    }

    fn text(self) -> String {
        self.0.map_or_else(|| "all".to_owned(), |bound| format!("{bound:016x}"))
    }
}

/// A revision that edges hold, or shall.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// Counted from one; zero is nothing at all.
    pub number: u64,
    /// What stands for its contents.
    pub digest: String,
    pub below: Bound,
}

/// How far a rollout is. What `status.rollout` has to keep.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The newest first. Each covers more than the one before it, the last all.
    pub revisions: Vec<Revision>,
    /// How far the batch goes that is under way.
    batch: Bound,
    /// Every edge is ready, or away.
    complete: bool,
    /// Why it does not go on by itself.
    stopped: Option<String>,
    /// So many failures were there when somebody said to go on.
    tolerated: usize,
    paused: bool,
    generation: i64,
}

impl State {
    /// A placement that has a rollout from now on. If it was placed without one, all edges hold what has this digest; if not, nothing.
    pub fn begin(digest: Option<&str>) -> Self {
        let (number, digest) = digest.map_or((0, ""), |digest| (1, digest));
        Self {
            revisions: vec![Revision { number, digest: digest.to_owned(), below: Bound::ALL }],
            batch: Bound::ALL,
            // Edges have not said yet that they hold it.
            complete: false,
            stopped: None,
            tolerated: 0,
            paused: false,
            generation: 0,
        }
    }

    /// What is placed has become something else: the number of the new revision, if it is one.
    pub fn offer(&mut self, digest: &str) -> Option<u64> {
        let newest = self.revisions.first()?;
        if newest.digest == digest {
            return None;
        }
        let number = newest.number + 1;
        self.revisions.insert(0, Revision { number, digest: digest.to_owned(), below: Bound::NONE });
        if self.revisions.len() > MOST {
            self.revisions.remove(1);
        }
        (self.batch, self.complete, self.stopped, self.tolerated) = (Bound::NONE, false, None, 0);
        self.prune();
        Some(number)
    }

    /// The revision that an edge shall hold.
    pub fn of(&self, edge: u64) -> u64 {
        self.revisions.iter().find(|revision| revision.below.covers(edge)).map_or(0, |revision| revision.number)
    }

    pub fn newest(&self) -> u64 {
        self.revisions.first().map_or(0, |revision| revision.number)
    }

    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Forgets revisions that no edge can have any more. The newest stays, also before it covers anyone.
    fn prune(&mut self) {
        let mut widest: Option<Bound> = None;
        self.revisions.retain(|revision| {
            let needed = widest.is_none_or(|widest| !widest.includes(revision.below));
            widest = if needed { Some(revision.below) } else { widest };
            needed
        });
    }

    /// What was written with [`State::write`].
    pub fn read(status: &Value) -> Option<Self> {
        let revision = |value: &Value| {
            Some(Revision {
                number: value.get("revision")?.as_u64()?,
                digest: value.get("digest")?.as_str()?.to_owned(),
                below: Bound::read(value.get("below")?)?,
            })
        };
        let revisions: Vec<Revision> =
            status.get("revisions")?.as_array()?.iter().take(2 * MOST).map(revision).collect::<Option<_>>()?;
        let is_whole = revisions.last()?.below == Bound::ALL
            && revisions
                .windows(2)
                .all(|pair| pair[0].number > pair[1].number && !pair[0].below.includes(pair[1].below));
        let phase = status.get("phase").and_then(Value::as_str).unwrap_or_default();
        let message = status.get("message").and_then(Value::as_str).unwrap_or_default();
        is_whole.then(|| Self {
            revisions,
            batch: status.get("batch").and_then(Bound::read).unwrap_or(Bound::NONE),
            complete: status.get("complete").and_then(Value::as_bool).unwrap_or_default(),
            stopped: (phase == "Stopped").then(|| message.to_owned()),
            tolerated: status.get("tolerated").and_then(Value::as_u64).unwrap_or_default() as usize,
            paused: status.get("paused").and_then(Value::as_bool).unwrap_or_default(),
            generation: status.get("observedGeneration").and_then(Value::as_i64).unwrap_or_default(),
        })
    }

    /// As it is kept in `status.rollout`, with what is said of it.
    pub fn write(&self, progress: &Progress) -> Value {
        let revision =
            |one: &Revision| json!({"revision": one.number, "digest": one.digest, "below": one.below.text()});
        let fields = [
            ("phase", json!(progress.phase.text())),
            ("message", json!(progress.message)),
            ("revision", json!(self.newest())),
            ("total", json!(progress.total)),
            ("updated", json!(progress.updated)),
            ("ready", json!(progress.ready)),
            ("unavailable", json!(progress.unavailable)),
            ("failed", json!(progress.failed)),
            ("revisions", self.revisions.iter().map(revision).collect()),
            ("batch", json!(self.batch.text())),
            ("complete", json!(self.complete)),
            ("paused", json!(self.paused)),
            ("tolerated", json!(self.tolerated)),
            ("observedGeneration", json!(self.generation)),
        ];
        Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
    }
}

#[cfg(test)]
mod tests;
