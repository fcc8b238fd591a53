//! A small world with simulated time: one center, one edge, a network and two disks that fail in every way they can.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use bytes::Bytes;
use selvedge_link::testing::MemoryHolding;
use selvedge_link::*;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mutant {
    AckBeforeCommit,
    DropInFlightOnReconnect,
    DeleteWhatIsNotListed,
    ReportAckedBeforeDurable,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    ToCenter(u64, Bytes),
    ToEdge(u64, Bytes),
    Connected(u64),
    EdgeLost(u64),
    CenterLost(u64),
    Commit(u64),
    Stored { life: u64, write: u64 },
}

type Reports = BTreeMap<Key, (Version, Option<Bytes>)>;

pub struct World {
    random: u64,
    now: Millis,
    order: u64,
    events: BinaryHeap<Reverse<(Millis, u64, Event)>>,
    faults: bool,
    mutant: Option<Mutant>,
    desired: MemoryDesired,
    reports: Reports,
    floor: Version,
    backup: Option<(MemoryDesired, Reports)>,
    sessions: BTreeMap<u64, Session>,
    center_life: u64,
    writes: BTreeMap<u64, (u64, u64, Vec<Report>)>,
    edge: Edge,
    /// Survives crashes of the edge.
    pub disk: MemoryHolding,
    /// Session and number of every batch that was committed.
    committed: BTreeSet<(u64, u64)>,
    connection: Option<u64>,
    connections: u64,
    /// When the last message of each connection and direction arrives: a connection keeps its order.
    arrival: BTreeMap<(u64, bool), Millis>,
    severed: BTreeSet<(u64, bool)>,
    pending: Option<(u64, Batch)>,
    instructed: BTreeSet<Key>,
    confirmed: BTreeSet<u64>,
    lost_in_flight: BTreeSet<u64>,
    in_flight: BTreeSet<u64>,
    /// How often each kind of thing happened: a world in which nothing does proves nothing.
    pub happened: BTreeMap<&'static str, u64>,
    pub violation: Option<String>,
}

impl World {
    pub fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        Self {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d,
            now: 1_000,
            order: 0,
            events: BinaryHeap::new(),
            faults: true,
            mutant,
            desired: MemoryDesired::new(1),
            reports: Reports::new(),
            floor: Version::default(),
            backup: None,
            sessions: BTreeMap::new(),
            center_life: 1,
            writes: BTreeMap::new(),
            edge: Edge::new(1_000, seed),
            disk: MemoryHolding::default(),
            committed: BTreeSet::new(),
            connection: None,
            connections: 0,
            arrival: BTreeMap::new(),
            severed: BTreeSet::new(),
            pending: None,
            instructed: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            lost_in_flight: BTreeSet::new(),
            in_flight: BTreeSet::new(),
            happened: BTreeMap::new(),
            violation: None,
        }
    }

    pub fn run(&mut self) {
        for _ in 0..60 {
            self.act();
            let gap = [1, 20, 200, 1_500, 20_000][self.below(5)];
            let until = self.now + self.below(gap) as u64;
            self.pass(until);
            if self.violation.is_some() {
                return;
            }
        }
        self.faults = false;
        for _ in 0..2_000 {
            self.pass(self.now + 500);
            if self.violation.is_some() || self.converged() {
                return;
            }
            self.confirm();
        }
        self.violate(format!(
            "no convergence: edge {:?}, desired {:?}, reports {:?}, states {:?}",
            self.disk.objects,
            self.desired.objects(),
            self.reports,
            self.disk.states
        ));
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as usize % bound.max(1)
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.faults && self.below(100) < percent
    }

    fn count(&mut self, what: &'static str) {
        *self.happened.entry(what).or_default() += 1;
    }

    fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    fn converged(&self) -> bool {
        let poison = |content: &Bytes| content.starts_with(b"!");
        let wanted = self.desired.objects();
        let held = wanted.iter().all(|(key, content)| poison(content) || self.disk.objects.get(key) == Some(content));
        let live = |all: &Reports| -> BTreeMap<Key, Bytes> {
            all.iter().filter_map(|(key, (_, state))| Some((key.clone(), state.clone()?))).collect()
        };
        held && self.disk.objects.keys().all(|key| wanted.contains_key(key))
            && live(&self.reports) == live(&self.disk.states)
            && self.disk.outbox.is_empty()
    }

    /// Something happens that nobody planned.
    fn act(&mut self) {
        let key: Key = format!("apps/deployments/n/{}", self.below(14)).into();
        match self.below(100) {
            0..30 => {
                let poison = if self.below(12) == 0 { "!" } else { "" };
                let content = format!("{poison}{}", self.below(1000));
                self.desired.put(&key, content.into());
                self.changed(vec![key]);
            }
            30..45 => {
                self.desired.delete(&key);
                self.changed(vec![key]);
            }
            45..48 => {
                let keys: Vec<Key> = self.desired.objects().keys().cloned().collect();
                keys.iter().for_each(|key| self.desired.delete(key));
                self.changed(keys);
            }
            48..66 => {
                let state = (self.below(4) > 0).then(|| Bytes::from(format!("{}", self.below(1000))));
                self.disk.note(&key, state);
                self.edge(EdgeInput::Reported(vec![key]));
            }
            66..76 => self.cut(),
            76..84 => self.crash_edge(),
            84..90 => self.crash_center(false),
            90..92 => self.backup = Some((self.desired.clone(), self.reports.clone())),
            92..94 => self.crash_center(true),
            94..96 => {
                self.confirm();
            }
            _ => {}
        }
    }

    /// An operator says that it is all meant.
    fn confirm(&mut self) {
        self.confirmed.extend(self.sessions.keys());
        self.center_all(|| CenterInput::ConfirmDeletion { up_to: 1_000 });
        self.center_all(|| CenterInput::Adopt);
    }

    fn changed(&mut self, keys: Vec<Key>) {
        self.center_all(|| CenterInput::Changed(keys.clone()));
    }

    fn cut(&mut self) {
        let Some(connection) = self.connection else { return };
        // Either direction may go on for a while, and either side may be the last to notice.
        for up in [false, true] {
            if self.below(3) > 0 {
                self.severed.insert((connection, up));
            }
        }
        let (edge, center) = (self.below(100) as u64, [50, 5_000, 100_000][self.below(3)]);
        self.at(edge, Event::EdgeLost(connection));
        self.at(center, Event::CenterLost(connection));
    }

    fn crash_edge(&mut self) {
        if let Some((_, batch)) = self.pending.take()
            && self.below(2) == 0
        {
            self.commit(&batch);
        }
        self.drop_connection();
        let seed = self.random;
        self.edge = Edge::new(self.now, seed);
        let outbox = self.disk.outbox.iter().cloned().collect();
        self.edge(EdgeInput::Reported(outbox));
    }

    fn drop_connection(&mut self) {
        if let Some(connection) = self.connection.take() {
            let after = [5, 5_000][self.below(2)];
            self.at(after, Event::CenterLost(connection));
        }
    }

    fn crash_center(&mut self, restore: bool) {
        self.center_life += 1;
        let writes = std::mem::take(&mut self.writes);
        for (_, (_, _, reports)) in writes {
            if self.below(2) == 0 {
                self.store(&reports);
            }
        }
        let lost: Vec<u64> = self.sessions.keys().copied().collect();
        self.sessions.clear();
        self.in_flight.clear();
        for connection in lost {
            self.at(10, Event::EdgeLost(connection));
        }
        if let (true, Some((desired, reports))) = (restore, self.backup.clone()) {
            (self.desired, self.reports) = (desired, reports);
        }
        self.desired.restart(1_000 + self.random % 1_000_000_007);
    }

    fn at(&mut self, after: Millis, event: Event) {
        self.order += 1;
        self.events.push(Reverse((self.now + after, self.order, event)));
    }

    fn pass(&mut self, until: Millis) {
        let mut tick = self.now;
        loop {
            let next = self.events.peek().map(|Reverse((at, ..))| *at).filter(|at| *at <= until);
            tick = (tick + 1_000).min(until);
            match next {
                Some(at) if at <= tick || tick >= until => {
                    self.now = self.now.max(at);
                    if let Some(Reverse((_, _, event))) = self.events.pop() {
                        self.event(event);
                    }
                    tick = self.now;
                }
                _ => {
                    self.now = tick;
                    self.edge(EdgeInput::Tick);
                    self.center_all(|| CenterInput::Tick);
                    if tick >= until {
                        return;
                    }
                }
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::ToCenter(connection, bytes) => {
                let mut message = Message::decode(bytes).expect("what was encoded");
                if self.mutant == Some(Mutant::DropInFlightOnReconnect)
                    && let Message::Differences(found) = &mut message
                {
                    found.need.retain(|at| !self.lost_in_flight.contains(at));
                    found.extra.retain(|key| !self.lost_in_flight.contains(&key_hash(key)));
                }
                self.center(connection, CenterInput::Received(message));
            }
            Event::ToEdge(connection, bytes) if self.connection == Some(connection) => {
                let message = Message::decode(bytes).expect("what was encoded");
                if self.mutant == Some(Mutant::DeleteWhatIsNotListed)
                    && let Message::Nodes { nodes, .. } = &message
                {
                    self.delete_unlisted(nodes);
                }
                self.edge(EdgeInput::Received(message));
            }
            Event::Connected(connection) if self.connection.is_none() => {
                self.connection = Some(connection);
                for old in self.sessions.keys().copied().collect::<Vec<_>>() {
                    self.count("superseded sessions");
                    self.center(old, CenterInput::End(CloseReason::Superseded));
                }
                self.lost_in_flight = std::mem::take(&mut self.in_flight);
                self.sessions.insert(connection, Session::new(connection, self.now));
                self.edge(EdgeInput::Connected);
            }
            Event::EdgeLost(connection) if self.connection == Some(connection) => {
                self.connection = None;
                self.edge(EdgeInput::Disconnected);
            }
            Event::CenterLost(connection) => drop(self.sessions.remove(&connection)),
            Event::Commit(ticket) => self.try_commit(ticket),
            Event::Stored { life, write } if life == self.center_life => {
                if let Some((connection, seq, reports)) = self.writes.remove(&write) {
                    if self.chance(5) {
                        return self.center(connection, CenterInput::ReportsFailed);
                    }
                    self.store(&reports);
                    let at = self.desired.position();
                    if self.mutant != Some(Mutant::ReportAckedBeforeDurable) {
                        self.center(connection, CenterInput::ReportsStored { seq, at });
                    }
                }
            }
            _ => {}
        }
    }

    fn try_commit(&mut self, ticket: u64) {
        let Some((_, batch)) = self.pending.take_if(|(pending, _)| *pending == ticket) else { return };
        let poison: Vec<(Key, String)> = (batch.changes.iter())
            .filter(|(_, content)| content.as_ref().is_some_and(|content| content.starts_with(b"!")))
            .map(|(key, _)| (key.clone(), "invalid".to_owned()))
            .collect();
        let whole = self.chance(5);
        if whole || !poison.is_empty() {
            let failure = if whole { ApplyFailure::Whole("disk full".into()) } else { ApplyFailure::Keys(poison) };
            return self.edge(EdgeInput::ApplyFailed { ticket, failure });
        }
        self.commit(&batch);
        if batch.adopt {
            let outbox = self.disk.outbox.iter().cloned().collect();
            self.edge(EdgeInput::Reported(outbox));
        }
        if self.mutant != Some(Mutant::AckBeforeCommit) {
            self.edge(EdgeInput::Applied { ticket });
        }
    }

    fn commit(&mut self, batch: &Batch) {
        if !self.committed.insert((batch.session, batch.seq)) {
            self.violate(format!("applied twice: {} {}", batch.session, batch.seq));
        }
        self.count(if batch.adopt { "adoptions" } else { "batches" });
        if self.connection.is_none() {
            self.count("commits without a connection");
        }
        if batch.changes.iter().any(|(key, content)| content.is_none() && self.disk.objects.contains_key(key)) {
            self.count("batches that delete");
        }
        let before: Vec<Key> = self.disk.objects.keys().cloned().collect();
        self.disk.commit(batch);
        self.check_deletions(&before);
    }

    fn check_deletions(&mut self, before: &[Key]) {
        for key in before {
            if !self.disk.objects.contains_key(key) && !self.instructed.contains(key) {
                self.violate(format!("{key} deleted without instruction"));
            }
        }
    }

    fn delete_unlisted(&mut self, nodes: &[TreeNode]) {
        let before: Vec<Key> = self.disk.objects.keys().cloned().collect();
        for node in nodes {
            let TreeNode::Entries(prefix, entries) = node else { continue };
            for key in &before {
                let at = key_hash(key);
                if (prefix.first()..=prefix.last()).contains(&at) && !entries.iter().any(|entry| entry.0 == at) {
                    self.disk.remove(key);
                }
            }
        }
        self.check_deletions(&before);
    }

    fn store(&mut self, reports: &[Report]) {
        self.desired.touch();
        for report in reports.iter().filter(|report| report.version >= self.floor) {
            let newer = self.reports.get(&report.key).is_none_or(|(stored, _)| *stored < report.version);
            if newer {
                self.reports.insert(report.key.clone(), (report.version, report.state.clone()));
            }
        }
    }

    fn edge(&mut self, input: EdgeInput) {
        let outputs = self.edge.handle(self.now, input, &self.disk);
        for output in outputs {
            match output {
                EdgeOutput::Dial => {
                    self.connections += 1;
                    let (after, connection) = (1 + self.below(50) as u64, self.connections);
                    if self.chance(10) {
                        continue;
                    }
                    self.at(after, Event::Connected(connection));
                }
                EdgeOutput::Send(message) => {
                    if let Some(connection) = self.connection {
                        self.carry(connection, true, Event::ToCenter(connection, message.encode()));
                    }
                }
                EdgeOutput::Apply { ticket, batch } => {
                    let slow = if self.chance(10) { 3_000 } else { 30 };
                    let after = 1 + self.below(slow) as u64;
                    self.pending = Some((ticket, batch));
                    self.at(after, Event::Commit(ticket));
                    if self.mutant == Some(Mutant::AckBeforeCommit) {
                        self.edge(EdgeInput::Applied { ticket });
                    }
                }
                EdgeOutput::ReportsAcked { at, reports } => {
                    self.count("acked reports");
                    self.disk.acked(at, &reports);
                }
                EdgeOutput::Disconnect => self.drop_connection(),
                EdgeOutput::Status(_) => {}
            }
        }
    }

    fn center_all(&mut self, input: impl Fn() -> CenterInput) {
        for connection in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.center(connection, input());
        }
    }

    fn center(&mut self, connection: u64, input: CenterInput) {
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        for output in session.handle(self.now, input, &self.desired) {
            match output {
                CenterOutput::Send(message) => {
                    self.check_sent(&message);
                    self.carry(connection, false, Event::ToEdge(connection, message.encode()));
                }
                CenterOutput::StoreReports { seq, reports } => {
                    self.order += 1;
                    let (write, life, after) = (self.order, self.center_life, 1 + self.below(40) as u64);
                    self.writes.insert(write, (connection, seq, reports));
                    self.at(after, Event::Stored { life, write });
                    if self.mutant == Some(Mutant::ReportAckedBeforeDurable) {
                        let at = self.desired.position();
                        self.center(connection, CenterInput::ReportsStored { seq, at });
                    }
                }
                CenterOutput::ReportFloor(floor) => {
                    self.floor = self.floor.max(floor);
                    self.reports.retain(|_, (version, _)| *version >= floor);
                }
                CenterOutput::Applied { seq, keys, .. } => {
                    self.landed(&keys);
                    // A batch of which every key was refused changed nothing.
                    if !keys.is_empty() && !self.committed.contains(&(connection, seq)) {
                        self.violate(format!("acked, not durable: {connection} {seq}"));
                    }
                }
                CenterOutput::Close => {
                    self.sessions.remove(&connection);
                    self.at(20, Event::EdgeLost(connection));
                }
                CenterOutput::Failed { key, .. } => {
                    self.count("refused objects");
                    self.landed(&[key]);
                }
                CenterOutput::Status(CenterStatus::DeletionHeld(Some(_))) => self.count("held deletions"),
                CenterOutput::Status(CenterStatus::RolledBack { .. }) => self.count("rollbacks refused"),
                CenterOutput::Status(CenterStatus::Stalled(Some(_))) => self.count("stalled edges"),
                CenterOutput::Recovered(_) => self.count("recovered objects"),
                CenterOutput::Status(_) => {}
            }
        }
    }

    fn landed(&mut self, keys: &[Key]) {
        for key in keys {
            self.in_flight.remove(&key_hash(key));
        }
    }

    fn check_sent(&mut self, message: &Message) {
        let Message::Batch(batch) = message else { return };
        if let Some(seen) = self.disk.seen
            && !batch.adopt
            && self.desired.through(seen.incarnation).is_none_or(|through| through < seen.revision)
        {
            self.violate(format!("rolls back from {seen:?} to {:?}", batch.position));
        }
        if batch.adopt && !self.confirmed.contains(&batch.session) {
            self.violate("adopted by nobody".into());
        }
        let deleted: Vec<&Key> =
            batch.changes.iter().filter(|change| change.1.is_none()).map(|change| &change.0).collect();
        if deleted.iter().any(|key| self.desired.get(key).is_some()) {
            self.violate("instructed to delete what is desired".into());
        }
        let (few, empty) = (deleted.len() as u64 <= MAX_UNHELD_DELETIONS, self.desired.count() == 0);
        if !self.confirmed.contains(&batch.session)
            && !deleted.is_empty()
            && (empty || (!few && deleted.len() * 2 > 14))
        {
            self.violate(format!("{} deletions were not held", deleted.len()));
        }
        self.instructed.extend(deleted.into_iter().cloned());
        self.in_flight.extend(batch.changes.iter().map(|(key, _)| key_hash(key)));
    }

    fn carry(&mut self, connection: u64, up: bool, event: Event) {
        if self.severed.contains(&(connection, up)) {
            return;
        }
        let delay = if self.chance(5) { 2_000 } else { 40 };
        let at = self.now + 1 + self.below(delay) as u64;
        let arrival = self.arrival.entry((connection, up)).or_default();
        *arrival = at.max(*arrival);
        self.order += 1;
        self.events.push(Reverse((*arrival, self.order, event)));
    }
}
