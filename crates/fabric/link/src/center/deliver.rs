//! Delivery to the edge: queued keys, batches, and the edge's acks and nacks.

use bytes::Bytes;

use super::{CenterOutput, CenterStatus, InFlight, RefusedKey, Session};
use crate::desired::Desired;
use crate::message::{Batch, CloseReason, Message};
use crate::queue::DeliveryOrder;
use crate::types::{Key, Millis};

/// Limits of batches in flight and of one batch: enough to fill a slow connection with high latency, little memory.
const MAX_BATCHES_IN_FLIGHT: usize = 4;
const MAX_BATCH_CHANGES: usize = 128;
const MAX_BATCH_BYTES: usize = 256 << 10;
/// Limit of queued keys. Beyond it, keys are dropped and the edge is compared again.
const MAX_QUEUED_KEYS: usize = 20_000;
/// Backoff of an object that the edge refused.
const MIN_RETRY_BACKOFF: Millis = 30_000;
pub(super) const MAX_RETRY_BACKOFF: Millis = 600_000;

impl Session {
    /// Queues a key. The desired set decides at sending time whether the key is put or deleted.
    pub(super) fn enqueue(&mut self, key: Key, desired: &dyn Desired) {
        if desired.get(&key).is_some() {
            self.deletes.remove(&key);
            if self.puts.len() >= MAX_QUEUED_KEYS {
                self.rewalk = true;
                return;
            }
            let order = desired.delivery_order(&key);
            self.puts.push(key, order);
        } else if desired.is_held(&key) {
            self.deletes.remove(&key);
        } else if self.deletes.len() + self.going.len() >= MAX_QUEUED_KEYS {
            self.unnamed = true;
        } else if !self.going.contains(&key) {
            self.deletes.insert(key);
        }
    }

    pub(super) fn send_batches(&mut self, desired: &dyn Desired, out: &mut Vec<CenterOutput>) {
        while !self.blocked && self.in_flight.len() < MAX_BATCHES_IN_FLIGHT {
            let mut changes = Vec::new();
            let mut bytes = 0;
            while changes.len() < MAX_BATCH_CHANGES && bytes < MAX_BATCH_BYTES {
                let Some(key) = self.puts.pop() else { break };
                match desired.get(&key) {
                    None if desired.is_held(&key) => {}
                    None => drop(self.deletes.insert(key)),
                    Some(content) if !changes.is_empty() && bytes + content.len() > MAX_BATCH_BYTES => {
                        let order = desired.delivery_order(&key);
                        self.puts.put_back(key, order);
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

    /// Deletions are sent last, and only when all of them are known.
    fn add_deletes(&mut self, desired: &dyn Desired, changes: &mut Vec<(Key, Option<Bytes>)>) {
        self.deletes.retain(|key| !desired.is_held(key));
        let back: Vec<Key> = self.deletes.iter().filter(|key| desired.get(key).is_some()).cloned().collect();
        for key in back {
            self.deletes.remove(&key);
            let order = desired.delivery_order(&key);
            self.puts.push(key, order);
        }
        if !self.walking && desired.ready() {
            self.decide(desired);
        }
        while changes.len() < MAX_BATCH_CHANGES {
            let Some(key) = self.going.pop() else { break };
            if desired.get(&key).is_none() && !desired.is_held(&key) {
                changes.push((key, None));
            } else {
                // The object is desired again or to be kept. Its content, if any, is in the other queue.
                self.fuse.done(1);
            }
        }
    }

    /// Decides all waiting deletions together: they are sent as a whole or held as a whole. Intended deletions are
    /// always sent.
    fn decide(&mut self, desired: &dyn Desired) {
        let intended: Vec<Key> = self.deletes.iter().filter(|key| desired.is_intended(key)).cloned().collect();
        self.fuse.spend_intended(intended.len() as u64);
        for key in intended {
            self.deletes.remove(&key);
            self.go(key, desired);
        }
        let incidental = self.deletes.iter().filter(|key| desired.is_incidental(key)).count() as u64;
        let waiting = self.deletes.len() as u64 - incidental;
        // Only the number is known of deletions that the queue dropped.
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

    /// Queues a decided deletion. The order is the reverse of delivery: workloads before what they read, namespaces
    /// after their contents.
    fn go(&mut self, key: Key, desired: &dyn Desired) {
        let order = match desired.delivery_order(&key) {
            DeliveryOrder::First => DeliveryOrder::Last,
            DeliveryOrder::Second => DeliveryOrder::Second,
            DeliveryOrder::Last => DeliveryOrder::First,
        };
        self.going.push(key, order);
    }

    pub(super) fn send(
        &mut self,
        changes: Vec<(Key, Option<Bytes>)>,
        adopt: bool,
        desired: &dyn Desired,
        out: &mut Vec<CenterOutput>,
    ) {
        self.seq += 1;
        let (seq, position) = (self.seq, desired.position());
        let keys = changes.iter().map(|(key, _)| key.clone()).collect();
        let deletions = changes.iter().filter(|(_, content)| content.is_none()).count() as u64;
        self.in_flight.push_back(InFlight { seq, position, keys, deletions });
        out.push(CenterOutput::Send(Message::Batch(Batch { session: self.id, seq, position, adopt, changes })));
    }

    pub(super) fn ack(&mut self, now: Millis, seq: u64, holds: u64, out: &mut Vec<CenterOutput>) {
        if self.in_flight.front().is_none_or(|first| first.seq != seq) {
            return self.close(CloseReason::Protocol, None, out);
        }
        if std::mem::take(&mut self.stalled) {
            out.push(CenterOutput::Status(CenterStatus::Stalled(None)));
        }
        let Some(InFlight { position, keys, deletions, .. }) = self.in_flight.pop_front() else { return };
        self.fuse.done(deletions);
        self.fuse.holds(now, holds);
        for key in &keys {
            if self.refused.remove(key).is_some() {
                out.push(CenterOutput::Recovered(key.clone()));
            }
        }
        out.push(CenterOutput::Applied { seq, position, keys });
    }

    pub(super) fn nack(
        &mut self,
        now: Millis,
        seq: u64,
        keys: Vec<(Key, String)>,
        reason: String,
        out: &mut Vec<CenterOutput>,
    ) {
        let Some(batch) = self.in_flight.iter_mut().find(|batch| batch.seq == seq) else { return };
        if keys.is_empty() {
            self.stalled = true;
            out.push(CenterOutput::Status(CenterStatus::Stalled(Some(reason))));
            return;
        }
        for (key, reason) in keys {
            let Some(at) = batch.keys.iter().position(|sent| *sent == key) else { continue };
            batch.keys.remove(at);
            let refused = self.refused.entry(key.clone()).or_insert(RefusedKey { attempts: 0, retry_at: 0 });
            refused.retry_at = now + (MIN_RETRY_BACKOFF << refused.attempts.min(8)).min(MAX_RETRY_BACKOFF);
            refused.attempts += 1;
            out.push(CenterOutput::Failed { key, reason });
        }
    }
}
