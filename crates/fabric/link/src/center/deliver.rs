//! Downward: which keys wait, what goes into a batch, and what the edge says became of it.

use bytes::Bytes;

use super::{InFlight, Output, Refused, Session, Status};
use crate::desired::Desired;
use crate::message::{Batch, CloseReason, Message};
use crate::queue::Turn;
use crate::types::{Key, Millis};

/// Batches in flight, and how large one gets: enough to fill a slow, long line, little enough to wait in memory.
const WINDOW: usize = 4;
const BATCH_CHANGES: usize = 128;
const BATCH_BYTES: usize = 256 << 10;
/// More keys than this do not wait in memory: the edge is compared again instead.
const QUEUE: usize = 20_000;
const RETRY_FIRST: Millis = 30_000;
pub(super) const RETRY_LONGEST: Millis = 600_000;

impl Session {
    /// The queue says which key; what becomes of it is decided by the desired set when it is sent.
    pub(super) fn enqueue(&mut self, key: Key, desired: &dyn Desired) {
        if desired.get(&key).is_some() {
            self.deletes.remove(&key);
            if self.puts.len() >= QUEUE {
                self.rewalk = true;
                return;
            }
            let turn = desired.turn(&key);
            self.puts.push(key, turn);
        } else if desired.is_held(&key) {
            self.deletes.remove(&key);
        } else if self.deletes.len() + self.going.len() >= QUEUE {
            self.unnamed = true;
        } else if !self.going.contains(&key) {
            self.deletes.insert(key);
        }
    }

    pub(super) fn send_batches(&mut self, desired: &dyn Desired, out: &mut Vec<Output>) {
        while !self.blocked && self.in_flight.len() < WINDOW {
            let mut changes = Vec::new();
            let mut bytes = 0;
            while changes.len() < BATCH_CHANGES && bytes < BATCH_BYTES {
                let Some(key) = self.puts.pop() else { break };
                match desired.get(&key) {
                    None if desired.is_held(&key) => {}
                    None => drop(self.deletes.insert(key)),
                    Some(content) if !changes.is_empty() && bytes + content.len() > BATCH_BYTES => {
                        let turn = desired.turn(&key);
                        self.puts.put_back(key, turn);
                        break;
                    }
                    Some(content) => {
                        bytes += key.len() + content.len();
                        changes.push((key, Some(content)));
                    }
                }
            }
            if self.puts.is_empty() {
                self.add_deletes(desired, &mut changes);
            }
            if changes.is_empty() {
                break;
            }
            self.send(changes, false, desired, out);
        }
    }

    /// Deletions go last, and only when the whole of them is known.
    fn add_deletes(&mut self, desired: &dyn Desired, changes: &mut Vec<(Key, Option<Bytes>)>) {
        self.deletes.retain(|key| !desired.is_held(key));
        let back: Vec<Key> = self.deletes.iter().filter(|key| desired.get(key).is_some()).cloned().collect();
        for key in back {
            self.deletes.remove(&key);
            let turn = desired.turn(&key);
            self.puts.push(key, turn);
        }
        if !self.walking && desired.ready() {
            self.decide(desired);
        }
        while changes.len() < BATCH_CHANGES {
            let Some(key) = self.going.pop() else { break };
            if desired.get(&key).is_none() && !desired.is_held(&key) {
                changes.push((key, None));
            } else {
                // It is wanted again, or to be kept; what there is of it to send is in the other queue.
                self.fuse.done(1);
            }
        }
    }

    /// Decides all deletions that wait, together: they go as a whole or are held as a whole. What its owner intends to
    /// remove goes.
    fn decide(&mut self, desired: &dyn Desired) {
        let intended: Vec<Key> = self.deletes.iter().filter(|key| desired.is_intended(key)).cloned().collect();
        self.fuse.spend_intended(intended.len() as u64);
        for key in intended {
            self.deletes.remove(&key);
            self.go(key, desired);
        }
        let incidental = self.deletes.iter().filter(|key| desired.is_incidental(key)).count() as u64;
        let waiting = self.deletes.len() as u64 - incidental;
        // Of what has no room in the queue only the number is known.
        let all = self.fuse.count().saturating_sub(desired.count());
        let pending = if self.unnamed { waiting.max(all) } else { waiting };
        if pending > 0 && !self.fuse.permits(pending, desired.count()) {
            self.held = Some((pending, self.fuse.count()));
            return;
        }
        self.held = None;
        self.rewalk |= std::mem::take(&mut self.unnamed);
        self.fuse.spend(waiting);
        self.fuse.spend_intended(incidental);
        for key in std::mem::take(&mut self.deletes) {
            self.go(key, desired);
        }
    }

    /// In the opposite order of what is made: workloads before what they read, namespaces after what is in them.
    fn go(&mut self, key: Key, desired: &dyn Desired) {
        let turn = match desired.turn(&key) {
            Turn::First => Turn::Last,
            Turn::Second => Turn::Second,
            Turn::Last => Turn::First,
        };
        self.going.push(key, turn);
    }

    pub(super) fn send(
        &mut self,
        changes: Vec<(Key, Option<Bytes>)>,
        adopt: bool,
        desired: &dyn Desired,
        out: &mut Vec<Output>,
    ) {
        self.seq += 1;
        let (seq, position) = (self.seq, desired.position());
        let keys = changes.iter().map(|(key, _)| key.clone()).collect();
        let deletions = changes.iter().filter(|(_, content)| content.is_none()).count() as u64;
        self.in_flight.push_back(InFlight { seq, position, keys, deletions });
        out.push(Output::Send(Message::Batch(Batch { session: self.id, seq, position, adopt, changes })));
    }

    pub(super) fn ack(&mut self, now: Millis, seq: u64, holds: u64, out: &mut Vec<Output>) {
        if self.in_flight.front().is_none_or(|first| first.seq != seq) {
            return self.close(CloseReason::Protocol, None, out);
        }
        if std::mem::take(&mut self.stalled) {
            out.push(Output::Status(Status::Stalled(None)));
        }
        let Some(InFlight { position, keys, deletions, .. }) = self.in_flight.pop_front() else { return };
        self.fuse.done(deletions);
        self.fuse.holds(now, holds);
        for key in &keys {
            if self.refused.remove(key).is_some() {
                out.push(Output::Recovered(key.clone()));
            }
        }
        out.push(Output::Applied { seq, position, keys });
    }

    pub(super) fn nack(
        &mut self,
        now: Millis,
        seq: u64,
        keys: Vec<(Key, String)>,
        reason: String,
        out: &mut Vec<Output>,
    ) {
        let Some(batch) = self.in_flight.iter_mut().find(|batch| batch.seq == seq) else { return };
        if keys.is_empty() {
            self.stalled = true;
            out.push(Output::Status(Status::Stalled(Some(reason))));
            return;
        }
        for (key, reason) in keys {
            let Some(at) = batch.keys.iter().position(|sent| *sent == key) else { continue };
            batch.keys.remove(at);
            let refused = self.refused.entry(key.clone()).or_insert(Refused { attempts: 0, retry_at: 0 });
            refused.retry_at = now + (RETRY_FIRST << refused.attempts.min(8)).min(RETRY_LONGEST);
            refused.attempts += 1;
            out.push(Output::Failed { key, reason });
        }
    }
}
