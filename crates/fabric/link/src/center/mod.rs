//! The center's side of one connection. A session exists from connect to disconnect and assumes nothing about the edge
//! that the edge did not say in it.

mod deliver;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::desired::Desired;
use crate::fuse::Fuse;
use crate::liveness::Liveness;
use crate::message::{CloseReason, Differences, Hello, Message, Report, Welcome};
use crate::queue::KeyQueue;
use crate::tree::Prefix;
use crate::types::{Key, Millis, Position, Version};
use crate::walk::describe;

#[derive(Debug)]
pub enum CenterInput {
    Received(Message),
    /// The content of these keys of the desired set changed or is gone.
    Changed(Vec<Key>),
    /// Changes were lost, so the edge is compared again.
    Lost,
    /// The reports of this message are durable at this position.
    ReportsStored {
        seq: u64,
        at: Position,
    },
    ReportsFailed,
    Tick,
    /// The transport cannot take more (true), or can again (false).
    Blocked(bool),
    /// An operator allows this many deletions.
    ConfirmDeletion {
        up_to: u64,
    },
    /// An operator decided that the edge follows this center's history.
    Adopt,
    /// The edge connected again, or is not admitted any more.
    End(CloseReason),
}

#[derive(Debug, PartialEq)]
pub enum CenterOutput {
    Send(Message),
    /// The driver stores reports that are not older than what it has, in one transaction, and answers `ReportsStored`.
    StoreReports {
        seq: u64,
        reports: Vec<Report>,
    },
    /// Reports of this edge below this version are void, including those that arrive late.
    ReportFloor(Version),
    /// These keys are durable at the edge as they were in the desired set at that position.
    Applied {
        seq: u64,
        position: Position,
        keys: Vec<Key>,
    },
    /// The edge could not apply this object. The driver shows this on the object.
    Failed {
        key: Key,
        reason: String,
    },
    /// The edge has applied an object that it refused before.
    Recovered(Key),
    Status(CenterStatus),
    /// The driver closes the connection after sending what is queued.
    Close,
}

#[derive(Debug, Clone, PartialEq)]
pub enum CenterStatus {
    Connected {
        version: u32,
        features: u64,
    },
    InSync(bool),
    /// Whether the edge has acknowledged everything, except objects that it refused and deletions that are held.
    Delivered(bool),
    /// Number of deletions that wait for confirmation, and number of objects.
    DeletionHeld(Option<(u64, u64)>),
    /// The edge depends on a history that this center does not have; it keeps what it has.
    RolledBack {
        edge: Position,
    },
    /// The edge cannot write at the moment.
    Stalled(Option<String>),
}

#[derive(Debug)]
struct InFlight {
    seq: u64,
    position: Position,
    keys: Vec<Key>,
    deletions: u64,
}

#[derive(Debug)]
struct RefusedKey {
    attempts: u32,
    retry_at: Millis,
}

#[derive(Debug, PartialEq, Clone, Copy)]
enum CenterPhase {
    New,
    /// Waits for `Adopt`.
    RolledBack,
    Open,
    Closed,
}

#[derive(Debug)]
pub struct Session {
    id: u64,
    phase: CenterPhase,
    liveness: Liveness,
    blocked: bool,
    seq: u64,
    walk: u64,
    walking: bool,
    /// A full queue dropped keys, so the edge has to be compared again.
    rewalk: bool,
    /// A full queue dropped deletions. They are searched for again once the queued ones are decided.
    unnamed: bool,
    puts: KeyQueue,
    /// Deletions that are not decided yet, or that are held.
    deletes: BTreeSet<Key>,
    /// Deletions that are decided. All of them are sent, even if later ones are held.
    going: KeyQueue,
    in_flight: VecDeque<InFlight>,
    refused: BTreeMap<Key, RefusedKey>,
    fuse: Fuse,
    in_sync: bool,
    delivered: bool,
    held: Option<(u64, u64)>,
    held_said: Option<(u64, u64)>,
    stalled: bool,
}

impl Session {
    /// `id` is new for every connection.
    pub fn new(id: u64, now: Millis) -> Self {
        Self {
            id,
            phase: CenterPhase::New,
            liveness: Liveness::new(now),
            blocked: false,
            seq: 0,
            walk: 0,
            walking: false,
            rewalk: false,
            unnamed: false,
            puts: KeyQueue::default(),
            deletes: BTreeSet::new(),
            going: KeyQueue::default(),
            in_flight: VecDeque::new(),
            refused: BTreeMap::new(),
            fuse: Fuse::default(),
            in_sync: false,
            delivered: false,
            held: None,
            held_said: None,
            stalled: false,
        }
    }

    pub fn handle(&mut self, now: Millis, input: CenterInput, desired: &dyn Desired) -> Vec<CenterOutput> {
        let mut out = Vec::new();
        if self.phase == CenterPhase::Closed {
            return out;
        }
        match input {
            CenterInput::Received(message) => {
                self.liveness.heard(now);
                self.received(now, message, desired, &mut out);
            }
            CenterInput::Changed(keys) if self.phase == CenterPhase::Open => {
                for key in keys {
                    if let Some(refused) = self.refused.get_mut(&key) {
                        *refused = RefusedKey { attempts: 0, retry_at: Millis::MAX };
                    }
                    self.enqueue(key, desired);
                }
            }
            CenterInput::Changed(_) => {}
            CenterInput::Lost => self.rewalk = true,
            CenterInput::ReportsStored { seq, at } => out.push(CenterOutput::Send(Message::ReportAck { seq, at })),
            CenterInput::ReportsFailed => self.close(CloseReason::Storage, Some(5_000), &mut out),
            CenterInput::Tick => self.tick(now, desired, &mut out),
            CenterInput::Blocked(blocked) => self.blocked = blocked,
            CenterInput::ConfirmDeletion { up_to } => self.fuse.confirm(up_to),
            CenterInput::Adopt => self.adopt(desired, &mut out),
            CenterInput::End(reason) => self.close(reason, None, &mut out),
        }
        if self.phase == CenterPhase::Open {
            self.send_batches(desired, &mut out);
            let idle = !self.walking && self.puts.is_empty() && self.going.is_empty() && self.in_flight.is_empty();
            if self.rewalk && idle {
                self.rewalk = false;
                self.start_walk(desired, &mut out);
            }
            self.say_status(&mut out);
        }
        if out.iter().any(|output| matches!(output, CenterOutput::Send(_))) {
            self.liveness.sent(now);
        }
        out
    }

    /// Number of keys that wait to be sent, and number of keys sent and not acked. A later comparison may find more.
    pub fn behind(&self) -> (usize, usize) {
        (self.waiting(), self.in_flight.iter().map(|batch| batch.keys.len()).sum())
    }

    /// The deletions that are held.
    pub fn held(&self) -> impl Iterator<Item = &Key> {
        self.deletes.iter().filter(|_| self.held.is_some())
    }

    fn waiting(&self) -> usize {
        self.puts.len() + self.deletes.len() + self.going.len()
    }

    /// Approximate memory of this session in bytes.
    pub fn memory(&self) -> usize {
        let in_flight: usize = self.in_flight.iter().map(|batch| batch.keys.capacity() * size_of::<Key>()).sum();
        size_of::<Self>()
            + self.puts.memory()
            + self.going.memory()
            + self.deletes.len() * 2 * size_of::<Key>()
            + self.in_flight.capacity() * size_of::<InFlight>()
            + in_flight
            + self.refused.len() * 2 * (size_of::<Key>() + size_of::<RefusedKey>())
    }

    fn received(&mut self, now: Millis, message: Message, desired: &dyn Desired, out: &mut Vec<CenterOutput>) {
        match (self.phase, message) {
            (CenterPhase::New, Message::Hello(hello)) => self.hello(now, &hello, desired, out),
            (CenterPhase::New, Message::Unknown(_) | Message::Heartbeat) => {}
            (_, Message::Close { .. }) => {
                self.phase = CenterPhase::Closed;
                out.push(CenterOutput::Close);
            }
            (CenterPhase::New, _) | (_, Message::Hello(_)) => self.close(CloseReason::Protocol, None, out),
            (CenterPhase::Open, Message::Differences(found)) if found.walk == self.walk => {
                self.differences(found, desired, out)
            }
            (_, Message::Ack { session, seq, holds }) if session == self.id => self.ack(now, seq, holds, out),
            (_, Message::Nack { session, seq, keys, reason }) if session == self.id => {
                self.nack(now, seq, keys, reason, out);
            }
            (_, Message::Report { seq, reports }) => out.push(CenterOutput::StoreReports { seq, reports }),
            _ => {}
        }
    }

    fn hello(&mut self, now: Millis, hello: &Hello, desired: &dyn Desired, out: &mut Vec<CenterOutput>) {
        let version = hello.max_version.min(*crate::VERSIONS.end());
        if version < hello.min_version.max(*crate::VERSIONS.start()) {
            return self.close(CloseReason::Incompatible, Some(600_000), out);
        }
        if !desired.ready() {
            return self.close(CloseReason::NotReady, Some(2_000), out);
        }
        let through = hello.seen.and_then(|seen| desired.through(seen.incarnation));
        self.fuse.holds(now, hello.holds);
        out.push(CenterOutput::ReportFloor(hello.floor));
        out.push(CenterOutput::Send(Message::Welcome(Welcome {
            version,
            features: 0,
            session: self.id,
            position: desired.position(),
            through,
        })));
        out.push(CenterOutput::Status(CenterStatus::Connected { version, features: hello.features }));
        match hello.seen {
            Some(seen) if through.is_none_or(|through| through < seen.revision) => {
                self.phase = CenterPhase::RolledBack;
                out.push(CenterOutput::Status(CenterStatus::RolledBack { edge: seen }));
            }
            _ => {
                self.phase = CenterPhase::Open;
                if hello.root != desired.root() || hello.holds != desired.count() {
                    self.start_walk(desired, out);
                }
            }
        }
    }

    fn start_walk(&mut self, desired: &dyn Desired, out: &mut Vec<CenterOutput>) {
        self.walk += 1;
        self.walking = true;
        out.push(CenterOutput::Send(Message::Nodes { walk: self.walk, nodes: vec![describe(desired, Prefix::ROOT)] }));
    }

    fn differences(&mut self, found: Differences, desired: &dyn Desired, out: &mut Vec<CenterOutput>) {
        let mut keys = Vec::new();
        for at in found.need {
            desired.range(at, at, &mut |_, key, _| keys.push(key.clone()));
        }
        for prefix in found.all {
            desired.range(prefix.first(), prefix.last(), &mut |_, key, _| keys.push(key.clone()));
        }
        for key in keys.into_iter().chain(found.extra) {
            self.enqueue(key, desired);
        }
        if !found.want.is_empty() {
            let nodes = found.want.into_iter().map(|prefix| describe(desired, prefix)).collect();
            out.push(CenterOutput::Send(Message::Nodes { walk: self.walk, nodes }));
        } else if found.done {
            self.walking = false;
        }
    }

    fn adopt(&mut self, desired: &dyn Desired, out: &mut Vec<CenterOutput>) {
        if self.phase != CenterPhase::RolledBack {
            return;
        }
        // The edge reconnects after it has committed this batch.
        self.send(Vec::new(), true, desired, out);
    }

    fn tick(&mut self, now: Millis, desired: &dyn Desired, out: &mut Vec<CenterOutput>) {
        if self.liveness.dead(now) {
            return self.close(CloseReason::Silent, None, out);
        }
        if self.liveness.due(now) {
            out.push(CenterOutput::Send(Message::Heartbeat));
        }
        if self.in_flight.is_empty() {
            self.fuse.roll_window(now);
        }
        let due: Vec<Key> =
            self.refused.iter().filter(|(_, refused)| refused.retry_at <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            if let Some(refused) = self.refused.get_mut(&key) {
                refused.retry_at = now + deliver::MAX_RETRY_BACKOFF;
            }
            self.enqueue(key, desired);
        }
    }

    fn say_status(&mut self, out: &mut Vec<CenterOutput>) {
        if self.deletes.is_empty() {
            self.held = None;
        }
        if self.held != self.held_said {
            self.held_said = self.held;
            out.push(CenterOutput::Status(CenterStatus::DeletionHeld(self.held)));
        }
        let sent = !self.walking && self.in_flight.is_empty() && self.puts.is_empty() && self.going.is_empty();
        let delivered = sent && (self.deletes.is_empty() || self.held.is_some());
        if delivered != self.delivered {
            self.delivered = delivered;
            out.push(CenterOutput::Status(CenterStatus::Delivered(delivered)));
        }
        let in_sync = sent && self.deletes.is_empty() && self.refused.is_empty();
        if in_sync != self.in_sync {
            self.in_sync = in_sync;
            out.push(CenterOutput::Status(CenterStatus::InSync(in_sync)));
        }
    }

    fn close(&mut self, reason: CloseReason, retry_after: Option<Millis>, out: &mut Vec<CenterOutput>) {
        self.phase = CenterPhase::Closed;
        out.push(CenterOutput::Send(Message::Close { reason, retry_after }));
        out.push(CenterOutput::Close);
    }
}
