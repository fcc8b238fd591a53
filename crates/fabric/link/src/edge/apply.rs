//! Batches are received in order, applied one transaction at a time, and acked when durable.

use super::{ApplyFailure, Applying, Edge, EdgeOutput, EdgePhase, EdgeStatus};
use crate::desired::Holding;
use crate::message::{Batch, CloseReason, Message};
use crate::types::Millis;

/// Limit of batches that wait to be applied. A center has fewer in flight.
const MAX_WAITING_BATCHES: usize = 64;
/// Backoff of a batch that could not be written.
const MIN_RETRY_BACKOFF: Millis = 1_000;
const MAX_RETRY_BACKOFF: Millis = 30_000;

impl Edge {
    pub(super) fn batch(&mut self, now: Millis, batch: Batch, out: &mut Vec<EdgeOutput>) {
        if batch.session != self.session || batch.seq < self.expected {
            return;
        }
        if batch.seq > self.expected
            || self.backlog.len() >= MAX_WAITING_BATCHES
            || (self.phase == EdgePhase::RolledBack && !batch.adopt)
        {
            out.push(EdgeOutput::Send(Message::Close { reason: CloseReason::Protocol, retry_after: None }));
            out.push(EdgeOutput::Disconnect);
            return self.offline(now, None, out);
        }
        self.expected += 1;
        self.backlog.push_back(batch);
    }

    pub(super) fn apply_next(&mut self, out: &mut Vec<EdgeOutput>) {
        if self.applying.is_some() {
            return;
        }
        let Some(batch) = self.backlog.pop_front() else { return };
        self.tickets += 1;
        let ticket = self.tickets;
        out.push(EdgeOutput::Apply { ticket, batch: batch.clone() });
        let session = batch.session;
        self.applying = Some(Applying { ticket, session, batch, refused: Vec::new(), attempts: 0, retry_at: None });
    }

    pub(super) fn applied(&mut self, now: Millis, ticket: u64, holding: &dyn Holding, out: &mut Vec<EdgeOutput>) {
        let Some(done) = self.applying.take_if(|applying| applying.ticket == ticket) else { return };
        let anew = done.batch.adopt && self.current(done.session);
        self.finish(done, holding, out);
        if anew {
            // Everything said about the former history is void, so a new session starts.
            out.push(EdgeOutput::Disconnect);
            self.offline(now, Some(0), out);
        }
    }

    /// Sends the result of a batch, if the session that it came in is still the current one.
    fn finish(&mut self, done: Applying, holding: &dyn Holding, out: &mut Vec<EdgeOutput>) {
        let (session, seq) = (done.session, done.batch.seq);
        if !self.current(session) {
            return;
        }
        if !done.refused.is_empty() {
            let nack = Message::Nack { session, seq, keys: done.refused, reason: String::new() };
            out.push(EdgeOutput::Send(nack));
        }
        out.push(EdgeOutput::Send(Message::Ack { session, seq, holds: holding.count() }));
    }

    pub(super) fn apply_failed(
        &mut self,
        now: Millis,
        ticket: u64,
        failure: ApplyFailure,
        holding: &dyn Holding,
        out: &mut Vec<EdgeOutput>,
    ) {
        let Some(mut failed) = self.applying.take_if(|applying| applying.ticket == ticket) else { return };
        if !self.current(failed.session) {
            return;
        }
        match failure {
            ApplyFailure::Keys(keys) => {
                failed.batch.changes.retain(|(key, _)| !keys.iter().any(|(refused, _)| refused == key));
                failed.refused.extend(keys);
                if failed.batch.changes.is_empty() && !failed.batch.adopt {
                    return self.finish(failed, holding, out);
                }
                self.again(failed, out);
            }
            ApplyFailure::Whole(reason) => {
                if failed.attempts == 0 {
                    let (session, seq) = (failed.session, failed.batch.seq);
                    out.push(EdgeOutput::Send(Message::Nack {
                        session,
                        seq,
                        keys: Vec::new(),
                        reason: reason.clone(),
                    }));
                }
                out.push(EdgeOutput::Status(EdgeStatus::Stalled(reason)));
                failed.retry_at = Some(now + (MIN_RETRY_BACKOFF << failed.attempts.min(8)).min(MAX_RETRY_BACKOFF));
                failed.attempts += 1;
                self.applying = Some(failed);
            }
        }
    }

    pub(super) fn again(&mut self, mut applying: Applying, out: &mut Vec<EdgeOutput>) {
        self.tickets += 1;
        applying.ticket = self.tickets;
        applying.retry_at = None;
        out.push(EdgeOutput::Apply { ticket: applying.ticket, batch: applying.batch.clone() });
        self.applying = Some(applying);
    }

    fn current(&self, session: u64) -> bool {
        matches!(self.phase, EdgePhase::Open | EdgePhase::RolledBack) && self.session == session
    }
}
