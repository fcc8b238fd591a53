//! The center's side of one connection. It is made when an edge connects and dropped when the connection ends; nothing is
//! assumed about the edge but what it said in this session.

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
pub enum Input {
    Received(Message),
    /// These keys of the desired set have other content, or none any more.
    Changed(Vec<Key>),
    /// More changed than can be named: the edge is compared again.
    Lost,
    /// The reports of this message are durable at this position.
    ReportsStored {
        seq: u64,
        at: Position,
    },
    ReportsFailed,
    Tick,
    /// The transport can take no more for now, or can again.
    Blocked(bool),
    /// Somebody allows so many deletions.
    ConfirmDeletion {
        up_to: u64,
    },
    /// Somebody decided that the edge shall follow this center's history.
    Adopt,
    /// The edge connected again, or is not welcome any more.
    End(CloseReason),
}

#[derive(Debug, PartialEq)]
pub enum Output {
    Send(Message),
    /// To be stored where a key's version is not older, in one transaction; answered with `ReportsStored`.
    StoreReports {
        seq: u64,
        reports: Vec<Report>,
    },
    /// Reports of this edge below this version are void, now and when they come late.
    ReportFloor(Version),
    /// These keys are durable at the edge as they were in the desired set at that position.
    Applied {
        seq: u64,
        position: Position,
        keys: Vec<Key>,
    },
    /// The edge could not take this object; to be shown on it.
    Failed {
        key: Key,
        reason: String,
    },
    /// It could after all.
    Recovered(Key),
    Status(Status),
    /// The connection is to be ended, after what was to be sent.
    Close,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Status {
    Connected {
        version: u32,
        features: u64,
    },
    InSync(bool),
    /// Whether the edge has acknowledged everything, except objects that it refused and deletions that are held.
    Delivered(bool),
    /// How many deletions wait for confirmation, of how many objects.
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
struct Refused {
    attempts: u32,
    retry_at: Millis,
}

#[derive(Debug, PartialEq, Clone, Copy)]
enum Phase {
    New,
    /// Waiting for somebody to say `Adopt`.
    RolledBack,
    Open,
    Closed,
}

#[derive(Debug)]
pub struct Session {
    id: u64,
    phase: Phase,
    liveness: Liveness,
    blocked: bool,
    seq: u64,
    walk: u64,
    walking: bool,
    /// Something was left out for want of room in the queue.
    rewalk: bool,
    /// There are more deletions than have room in the queue. They are looked for again once those that have are
    /// decided.
    unnamed: bool,
    puts: KeyQueue,
    /// Deletions that are not decided yet, or that are held.
    deletes: BTreeSet<Key>,
    /// Deletions that are decided: all of them go, whatever is held meanwhile.
    going: KeyQueue,
    in_flight: VecDeque<InFlight>,
    refused: BTreeMap<Key, Refused>,
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
            phase: Phase::New,
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

    pub fn handle(&mut self, now: Millis, input: Input, desired: &dyn Desired) -> Vec<Output> {
        let mut out = Vec::new();
        if self.phase == Phase::Closed {
            return out;
        }
        match input {
            Input::Received(message) => {
                self.liveness.heard(now);
                self.received(now, message, desired, &mut out);
            }
            Input::Changed(keys) if self.phase == Phase::Open => {
                for key in keys {
                    if let Some(refused) = self.refused.get_mut(&key) {
                        *refused = Refused { attempts: 0, retry_at: Millis::MAX };
                    }
                    self.enqueue(key, desired);
                }
            }
            Input::Changed(_) => {}
            Input::Lost => self.rewalk = true,
            Input::ReportsStored { seq, at } => out.push(Output::Send(Message::ReportAck { seq, at })),
            Input::ReportsFailed => self.close(CloseReason::Storage, Some(5_000), &mut out),
            Input::Tick => self.tick(now, desired, &mut out),
            Input::Blocked(blocked) => self.blocked = blocked,
            Input::ConfirmDeletion { up_to } => self.fuse.confirm(up_to),
            Input::Adopt => self.adopt(desired, &mut out),
            Input::End(reason) => self.close(reason, None, &mut out),
        }
        if self.phase == Phase::Open {
            self.send_batches(desired, &mut out);
            let idle = !self.walking && self.puts.is_empty() && self.going.is_empty() && self.in_flight.is_empty();
            if self.rewalk && idle {
                self.rewalk = false;
                self.start_walk(desired, &mut out);
            }
            self.say_status(&mut out);
        }
        if out.iter().any(|output| matches!(output, Output::Send(_))) {
            self.liveness.sent(now);
        }
        out
    }

    /// How many keys wait to be sent, and how many were sent and are not acked. More may be behind them.
    pub fn behind(&self) -> (usize, usize) {
        (self.waiting(), self.in_flight.iter().map(|batch| batch.keys.len()).sum())
    }

    /// The deletions that are held, if any are.
    pub fn held(&self) -> impl Iterator<Item = &Key> {
        self.deletes.iter().filter(|_| self.held.is_some())
    }

    fn waiting(&self) -> usize {
        self.puts.len() + self.deletes.len() + self.going.len()
    }

    /// Bytes that this session holds, roughly.
    pub fn memory(&self) -> usize {
        let in_flight: usize = self.in_flight.iter().map(|batch| batch.keys.capacity() * size_of::<Key>()).sum();
        size_of::<Self>()
            + self.puts.memory()
            + self.going.memory()
            + self.deletes.len() * 2 * size_of::<Key>()
            + self.in_flight.capacity() * size_of::<InFlight>()
            + in_flight
            + self.refused.len() * 2 * (size_of::<Key>() + size_of::<Refused>())
    }

    fn received(&mut self, now: Millis, message: Message, desired: &dyn Desired, out: &mut Vec<Output>) {
        match (self.phase, message) {
            (Phase::New, Message::Hello(hello)) => self.hello(now, &hello, desired, out),
            (Phase::New, Message::Unknown(_) | Message::Heartbeat) => {}
            (_, Message::Close { .. }) => {
                self.phase = Phase::Closed;
                out.push(Output::Close);
            }
            (Phase::New, _) | (_, Message::Hello(_)) => self.close(CloseReason::Protocol, None, out),
            (Phase::Open, Message::Differences(found)) if found.walk == self.walk => {
                self.differences(found, desired, out)
            }
            (_, Message::Ack { session, seq, holds }) if session == self.id => self.ack(now, seq, holds, out),
            (_, Message::Nack { session, seq, keys, reason }) if session == self.id => {
                self.nack(now, seq, keys, reason, out);
            }
            (_, Message::Report { seq, reports }) => out.push(Output::StoreReports { seq, reports }),
            _ => {}
        }
    }

    fn hello(&mut self, now: Millis, hello: &Hello, desired: &dyn Desired, out: &mut Vec<Output>) {
        let version = hello.max_version.min(*crate::VERSIONS.end());
        if version < hello.min_version.max(*crate::VERSIONS.start()) {
            return self.close(CloseReason::Incompatible, Some(600_000), out);
        }
        if !desired.ready() {
            return self.close(CloseReason::NotReady, Some(2_000), out);
        }
        let through = hello.seen.and_then(|seen| desired.through(seen.incarnation));
        self.fuse.holds(now, hello.holds);
        out.push(Output::ReportFloor(hello.floor));
        out.push(Output::Send(Message::Welcome(Welcome {
            version,
            features: 0,
            session: self.id,
            position: desired.position(),
            through,
        })));
        out.push(Output::Status(Status::Connected { version, features: hello.features }));
        match hello.seen {
            Some(seen) if through.is_none_or(|through| through < seen.revision) => {
                self.phase = Phase::RolledBack;
                out.push(Output::Status(Status::RolledBack { edge: seen }));
            }
            _ => {
                self.phase = Phase::Open;
                if hello.root != desired.root() || hello.holds != desired.count() {
                    self.start_walk(desired, out);
                }
            }
        }
    }

    fn start_walk(&mut self, desired: &dyn Desired, out: &mut Vec<Output>) {
        self.walk += 1;
        self.walking = true;
        out.push(Output::Send(Message::Nodes { walk: self.walk, nodes: vec![describe(desired, Prefix::ROOT)] }));
    }

    fn differences(&mut self, found: Differences, desired: &dyn Desired, out: &mut Vec<Output>) {
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
            out.push(Output::Send(Message::Nodes { walk: self.walk, nodes }));
        } else if found.done {
            self.walking = false;
        }
    }

    fn adopt(&mut self, desired: &dyn Desired, out: &mut Vec<Output>) {
        if self.phase != Phase::RolledBack {
            return;
        }
        // Once it has committed that, the edge connects anew.
        self.send(Vec::new(), true, desired, out);
    }

    fn tick(&mut self, now: Millis, desired: &dyn Desired, out: &mut Vec<Output>) {
        if self.liveness.dead(now) {
            return self.close(CloseReason::Silent, None, out);
        }
        if self.liveness.due(now) {
            out.push(Output::Send(Message::Heartbeat));
        }
        if self.in_flight.is_empty() {
            self.fuse.turn(now);
        }
        let due: Vec<Key> =
            self.refused.iter().filter(|(_, refused)| refused.retry_at <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            if let Some(refused) = self.refused.get_mut(&key) {
                refused.retry_at = now + deliver::RETRY_LONGEST;
            }
            self.enqueue(key, desired);
        }
    }

    fn say_status(&mut self, out: &mut Vec<Output>) {
        if self.deletes.is_empty() {
            self.held = None;
        }
        if self.held != self.held_said {
            self.held_said = self.held;
            out.push(Output::Status(Status::DeletionHeld(self.held)));
        }
        let sent = !self.walking && self.in_flight.is_empty() && self.puts.is_empty() && self.going.is_empty();
        let delivered = sent && (self.deletes.is_empty() || self.held.is_some());
        if delivered != self.delivered {
            self.delivered = delivered;
            out.push(Output::Status(Status::Delivered(delivered)));
        }
        let in_sync = sent && self.deletes.is_empty() && self.refused.is_empty();
        if in_sync != self.in_sync {
            self.in_sync = in_sync;
            out.push(Output::Status(Status::InSync(in_sync)));
        }
    }

    fn close(&mut self, reason: CloseReason, retry_after: Option<Millis>, out: &mut Vec<Output>) {
        self.phase = Phase::Closed;
        out.push(Output::Send(Message::Close { reason, retry_after }));
        out.push(Output::Close);
    }
}
