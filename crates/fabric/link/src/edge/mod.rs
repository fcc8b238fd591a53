//! The edge's side: one state machine for the lifetime of the process, across all its connections.

mod apply;

use std::collections::VecDeque;

use crate::admission::reconnect_delay;
use crate::desired::Holding;
use crate::liveness::Liveness;
use crate::message::{Batch, CloseReason, Hello, Message, Report, Welcome};
use crate::queue::{DeliveryOrder, KeyQueue};
use crate::types::{Key, Millis, Position, Version};
use crate::walk::TreeWalk;

/// Limits of report messages in flight and of one report message.
const MAX_REPORTS_IN_FLIGHT: usize = 4;
const MAX_REPORT_KEYS: usize = 128;
const MAX_REPORT_BYTES: usize = 256 << 10;
/// Limit of the time between `Dial` and `Connected` or `Disconnected`.
const DIAL_TIMEOUT: Millis = 30_000;

#[derive(Debug)]
pub enum EdgeInput {
    Connected,
    Disconnected,
    Received(Message),
    /// The transaction is durable.
    Applied {
        ticket: u64,
    },
    /// The transaction failed and changed nothing.
    ApplyFailed {
        ticket: u64,
        failure: ApplyFailure,
    },
    /// The outbox has new reports for these keys. At start, the driver passes every key of the outbox.
    Reported(Vec<Key>),
    Tick,
    Blocked(bool),
}

#[derive(Debug)]
pub enum ApplyFailure {
    /// These keys cannot be applied. The others can.
    Keys(Vec<(Key, String)>),
    /// Nothing can be written at the moment.
    Whole(String),
}

#[derive(Debug, PartialEq)]
pub enum EdgeOutput {
    Dial,
    Send(Message),
    /// The driver applies the changes in one transaction, in which `seen` also moves on to the batch's position (never
    /// back within an incarnation, unless the batch has `adopt`). A batch with `adopt` also gives every report a new
    /// version, puts it back into the outbox, and raises the floor to just below these versions; the driver then passes
    /// `Reported`. There is one transaction at a time. The answer carries the ticket.
    Apply {
        ticket: u64,
        batch: Batch,
    },
    /// The driver removes these reports from the outbox, unless there are newer ones, and moves `seen` on to `at` in
    /// the same transaction.
    ReportsAcked {
        at: Position,
        reports: Vec<(Key, Version)>,
    },
    Disconnect,
    Status(EdgeStatus),
}

#[derive(Debug, Clone, PartialEq)]
pub enum EdgeStatus {
    Online,
    Offline,
    /// The center was restored from a backup or is another one. The edge keeps its objects until it is told to adopt.
    RolledBack {
        center: Position,
    },
    Closed(CloseReason),
    /// The batch waits because of this write error.
    Stalled(String),
}

#[derive(Debug, PartialEq, Clone, Copy)]
enum EdgePhase {
    Offline {
        dial_at: Millis,
    },
    Dialing {
        since: Millis,
    },
    /// Connected. The hello waits for the last transaction of an earlier session.
    Connected,
    Greeted,
    RolledBack,
    Open,
}

#[derive(Debug)]
struct Applying {
    ticket: u64,
    session: u64,
    batch: Batch,
    refused: Vec<(Key, String)>,
    attempts: u32,
    /// Set while the batch waits to be tried again.
    retry_at: Option<Millis>,
}

#[derive(Debug)]
pub struct Edge {
    phase: EdgePhase,
    liveness: Liveness,
    session: u64,
    expected: u64,
    backlog: VecDeque<Batch>,
    applying: Option<Applying>,
    tickets: u64,
    walk: TreeWalk,
    outbox: KeyQueue,
    reports: VecDeque<(u64, Vec<(Key, Version)>)>,
    report_seq: u64,
    blocked: bool,
    attempts: u32,
    random: u64,
    start: ProgramStart,
    /// The next hello carries earlier starts and place.
    introduces: bool,
}

/// Identifies a start of the edge's program, so that the center can tell two machines with one identity apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramStart {
    /// Random, and never 0.
    pub id: u64,
    /// The earlier starts, the last one first.
    pub before: Vec<u64>,
    /// Machine and data directory of the edge, for people.
    pub place: String,
}

impl Edge {
    /// `seed` is the source of jitter for reconnects.
    pub fn new(now: Millis, seed: u64) -> Self {
        Self {
            phase: EdgePhase::Offline { dial_at: now },
            liveness: Liveness::new(now),
            session: 0,
            expected: 1,
            backlog: VecDeque::new(),
            applying: None,
            tickets: 0,
            walk: TreeWalk::default(),
            outbox: KeyQueue::default(),
            reports: VecDeque::new(),
            report_seq: 0,
            blocked: false,
            attempts: 0,
            random: seed,
            start: ProgramStart::default(),
            introduces: true,
        }
    }

    /// Sets the start that a hello carries. Called before the first input.
    pub fn is(mut self, start: ProgramStart) -> Self {
        self.start = start;
        self
    }

    pub fn handle(&mut self, now: Millis, input: EdgeInput, holding: &dyn Holding) -> Vec<EdgeOutput> {
        let mut out = Vec::new();
        match input {
            EdgeInput::Connected => {
                self.phase = EdgePhase::Connected;
                self.liveness = Liveness::new(now);
            }
            EdgeInput::Disconnected => self.offline(now, None, &mut out),
            EdgeInput::Received(message) => {
                self.liveness.heard(now);
                self.received(now, message, holding, &mut out);
            }
            EdgeInput::Applied { ticket } => self.applied(now, ticket, holding, &mut out),
            EdgeInput::ApplyFailed { ticket, failure } => self.apply_failed(now, ticket, failure, holding, &mut out),
            EdgeInput::Reported(keys) => {
                keys.into_iter().for_each(|key| self.outbox.push(key, DeliveryOrder::default()))
            }
            EdgeInput::Tick => self.tick(now, &mut out),
            EdgeInput::Blocked(blocked) => self.blocked = blocked,
        }
        if self.phase == EdgePhase::Connected && self.applying.is_none() {
            self.phase = EdgePhase::Greeted;
            out.push(EdgeOutput::Send(Message::Hello(Hello {
                min_version: *crate::VERSIONS.start(),
                max_version: *crate::VERSIONS.end(),
                features: 0,
                seen: holding.seen(),
                floor: holding.floor(),
                root: holding.root(),
                holds: holding.count(),
                start: self.start.id,
                before: if self.introduces { self.start.before.clone() } else { Vec::new() },
                place: if self.introduces { self.start.place.clone() } else { String::new() },
            })));
        }
        self.apply_next(&mut out);
        self.send_reports(holding, &mut out);
        if out.iter().any(|output| matches!(output, EdgeOutput::Send(_))) {
            self.liveness.sent(now);
        }
        out
    }

    fn received(&mut self, now: Millis, message: Message, holding: &dyn Holding, out: &mut Vec<EdgeOutput>) {
        match (self.phase, message) {
            (EdgePhase::Offline { .. } | EdgePhase::Dialing { .. }, _) => {}
            (_, Message::Close { reason, retry_after }) => {
                self.introduces |= matches!(reason, CloseReason::Superseded | CloseReason::Shared);
                out.push(EdgeOutput::Status(EdgeStatus::Closed(reason)));
                out.push(EdgeOutput::Disconnect);
                self.offline(now, retry_after, out);
            }
            (EdgePhase::Greeted, Message::Welcome(welcome)) => self.welcome(&welcome, holding, out),
            (EdgePhase::Open, Message::Nodes { walk, nodes }) => {
                let found = self.walk.answer(holding, walk, &nodes);
                out.extend(found.into_iter().map(|found| EdgeOutput::Send(Message::Differences(found))));
            }
            (EdgePhase::Open | EdgePhase::RolledBack, Message::Batch(batch)) => self.batch(now, batch, out),
            (EdgePhase::Open, Message::ReportAck { seq, at }) => {
                // Acks may come out of order: the center's store may finish a later write first.
                if let Some(index) = self.reports.iter().position(|(sent, _)| *sent == seq)
                    && let Some((_, reports)) = self.reports.remove(index)
                {
                    out.push(EdgeOutput::ReportsAcked { at, reports });
                }
            }
            _ => {}
        }
    }

    fn welcome(&mut self, welcome: &Welcome, holding: &dyn Holding, out: &mut Vec<EdgeOutput>) {
        self.session = welcome.session;
        self.expected = 1;
        self.attempts = 0;
        self.introduces = false;
        let known = |seen: Position| welcome.through.is_some_and(|through| through >= seen.revision);
        if holding.seen().is_none_or(known) {
            self.phase = EdgePhase::Open;
            out.push(EdgeOutput::Status(EdgeStatus::Online));
        } else {
            self.phase = EdgePhase::RolledBack;
            out.push(EdgeOutput::Status(EdgeStatus::RolledBack { center: welcome.position }));
        }
    }

    fn send_reports(&mut self, holding: &dyn Holding, out: &mut Vec<EdgeOutput>) {
        while self.phase == EdgePhase::Open
            && !self.blocked
            && self.reports.len() < MAX_REPORTS_IN_FLIGHT
            && !self.outbox.is_empty()
        {
            let (mut reports, mut bytes) = (Vec::<Report>::new(), 0);
            while reports.len() < MAX_REPORT_KEYS && bytes < MAX_REPORT_BYTES {
                let Some(key) = self.outbox.pop() else { break };
                let Some(report) = holding.report(&key) else { continue };
                bytes += key.len() + report.state.as_ref().map_or(0, |state| state.len());
                reports.push(report);
            }
            if reports.is_empty() {
                return;
            }
            self.report_seq += 1;
            let sent = reports.iter().map(|report| (report.key.clone(), report.version)).collect();
            self.reports.push_back((self.report_seq, sent));
            out.push(EdgeOutput::Send(Message::Report { seq: self.report_seq, reports }));
        }
    }

    fn tick(&mut self, now: Millis, out: &mut Vec<EdgeOutput>) {
        match self.phase {
            EdgePhase::Offline { dial_at } if dial_at <= now => {
                self.phase = EdgePhase::Dialing { since: now };
                out.push(EdgeOutput::Dial);
            }
            EdgePhase::Dialing { since } if now.saturating_sub(since) > DIAL_TIMEOUT => self.offline(now, None, out),
            EdgePhase::Offline { .. } | EdgePhase::Dialing { .. } => {}
            _ if self.liveness.dead(now) => {
                out.push(EdgeOutput::Disconnect);
                self.offline(now, None, out);
            }
            EdgePhase::Open | EdgePhase::RolledBack if self.liveness.due(now) => {
                out.push(EdgeOutput::Send(Message::Heartbeat))
            }
            _ => {}
        }
        if let Some(waiting) = self.applying.take_if(|applying| applying.retry_at.is_some_and(|at| at <= now)) {
            self.again(waiting, out);
        }
    }

    /// The connection is gone. A running transaction continues; the center sends waiting batches again.
    fn offline(&mut self, now: Millis, retry_after: Option<Millis>, out: &mut Vec<EdgeOutput>) {
        if matches!(self.phase, EdgePhase::Offline { .. }) {
            return;
        }
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let dial_at = now + reconnect_delay(self.attempts, retry_after, self.random >> 16);
        self.attempts = self.attempts.saturating_add(1);
        self.phase = EdgePhase::Offline { dial_at };
        self.backlog.clear();
        self.applying.take_if(|applying| applying.retry_at.is_some());
        for (_, reports) in self.reports.drain(..) {
            reports.into_iter().for_each(|(key, _)| self.outbox.push(key, DeliveryOrder::default()));
        }
        out.push(EdgeOutput::Status(EdgeStatus::Offline));
    }
}
