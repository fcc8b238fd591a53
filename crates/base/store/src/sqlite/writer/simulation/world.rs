//! One world: a client that writes, and a machine that fails.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    path::{Path, PathBuf},
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::watch;

use super::{
    super::{
        super::{
            Shared,
            reader::Readers,
            recent::Recent,
            recovery::{self, InJournal},
        },
        Task,
        commit_path::CommitPath,
        state::{Found, Mutant, State, UPKEEP_INTERVAL},
    },
    database::ModelDatabase,
    disk::{Chance, Disk, SharedChance},
};
use crate::{Commit, Compare, Entry, Error, Event, Op, Outcome, Revision};

/// Things that must happen often enough, or the worlds show nothing.
pub(super) const EXPECTED: [&str; 17] = [
    "a COMMIT acknowledged a group",
    "a failed COMMIT is in the WAL",
    "a failed COMMIT is not in the WAL",
    "a group without an answer was kept",
    "a group without an answer was lost",
    "a process was killed",
    "a start failed",
    "a statement failed",
    "a sync of the journal failed",
    "a write to the journal failed",
    "closed in order",
    "no space for a COMMIT",
    "no space for the journal",
    "served from the journal",
    "the journal acknowledged a group",
    "the journal was replayed",
    "the power failed",
];

const STEPS: usize = 40;
const KEYS: u64 = 6;

/// What a key has: its last revision, the revision of its creation, and its value.
type Entries = BTreeMap<String, (Revision, Revision, Bytes)>;
type Batches = BTreeMap<Revision, Vec<Event>>;
type Verdict = Result<(), String>;

/// A group as it should be applied.
#[derive(Clone)]
struct Expected {
    outcomes: Vec<Outcome>,
    batches: Batches,
    entries: Entries,
}

pub(super) struct World {
    chance: SharedChance,
    disk: Disk,
    /// `None` only while a crash is being recovered from.
    path: Option<CommitPath<ModelDatabase, Disk>>,
    shared: Arc<Shared>,
    now: Instant,
    mutant: Option<Mutant>,
    /// What was acknowledged, or seen after a start.
    batches: Batches,
    entries: Entries,
    newest: Revision,
    /// Groups that may or may not have happened. At most one of them may appear.
    unknown: Vec<Expected>,
    value: u64,
}

impl World {
    pub(super) fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let chance = Rc::new(RefCell::new(Chance::new(seed)));
        let disk = Disk::new(Rc::clone(&chance), mutant == Some(Mutant::NeverSync));
        let db = ModelDatabase::new(Rc::clone(&chance), mutant == Some(Mutant::SynchronousNormal));
        let shared = shared(0, 0);
        let state = State::new(Found {
            newest: 0,
            settled: 0,
            oldest: 0,
            trimmed: 0,
            has_journal: false,
            supports_journal: true,
        });
        let mut path = CommitPath::new(db, disk.clone(), None, 0, state, Arc::clone(&shared));
        path.state.mutant = mutant;
        Self {
            chance,
            disk,
            path: Some(path),
            shared,
            now: Instant::now(),
            mutant,
            batches: Batches::new(),
            entries: Entries::new(),
            newest: 0,
            unknown: Vec::new(),
            value: 0,
        }
    }

    pub(super) fn happened(&self) -> BTreeMap<&'static str, u64> {
        self.chance.borrow().happened.clone()
    }

    pub(super) fn run(&mut self) -> Verdict {
        for _ in 0..STEPS {
            self.step()?;
        }
        self.fault_rates(0, 0, 0);
        self.crash()?;
        // With a disk that works, so does everything.
        for _ in 0..3 {
            self.now += UPKEEP_INTERVAL;
            self.write(false)?;
        }
        self.path().settle().map_err(|error| format!("the disk works, and yet: {error}"))?;
        self.crash()?;
        if self.path().state.needs_settling() { Err("the disk works, and nothing settles".into()) } else { Ok(()) }
    }

    fn path(&mut self) -> &mut CommitPath<ModelDatabase, Disk> {
        self.path.as_mut().expect("the store is open")
    }

    fn below(&self, end: u64) -> u64 {
        self.chance.borrow_mut().below(end)
    }

    fn note(&self, what: &'static str) {
        self.chance.borrow_mut().note(what);
    }

    fn fault_rates(&self, failures: u64, full: u64, sync_failures: u64) {
        let mut chance = self.chance.borrow_mut();
        (chance.failures, chance.full, chance.sync_failures, chance.crash_in) = (failures, full, sync_failures, None);
    }

    fn step(&mut self) -> Verdict {
        self.now += [Duration::from_millis(1), UPKEEP_INTERVAL][usize::from(self.below(6) == 0)];
        let failures = [0, 0, 0, 0, 15, 100][self.below(6) as usize];
        let full = [0, 0, 0, 200][self.below(4) as usize];
        self.fault_rates(failures, full, [0, 0, 500][self.below(3) as usize]);
        if self.below(5) == 0 {
            let crash_in = self.below(24);
            self.chance.borrow_mut().crash_in = Some(crash_in);
        }
        match self.below(100) {
            0..70 => {
                let is_quiet = self.below(8) == 0;
                self.write(is_quiet)?;
            }
            // What fails here is tried again later. What must hold is seen after a crash.
            70..78 => drop(self.path().settle()),
            78..84 => self.compact()?,
            84..88 => drop(self.path().probe()),
            88..91 if self.path().settle().is_ok() => drop(self.path().wipe_journal()),
            91..95 => {
                if self.path().settle().is_ok() {
                    self.path().forget_journal();
                    self.note("closed in order");
                }
                return self.crash();
            }
            _ => return self.crash(),
        }
        if self.chance.borrow().has_crashed { self.crash() } else { Ok(()) }
    }

    fn compact(&mut self) -> Verdict {
        let newest = self.path().state.newest();
        let revision = newest - self.below(newest + 1).min(newest).min(4);
        if revision > self.path().state.oldest() && self.path().compact(revision).is_ok() {
            drop(self.path().trim_some(3));
        }
        Ok(())
    }

    // --- writes ---

    fn write(&mut self, is_quiet: bool) -> Verdict {
        let tasks = self.tasks();
        let expected = self.expect(&tasks);
        let now = self.now;
        let written = self.path().write(tasks.iter(), is_quiet, now);
        if self.chance.borrow().has_crashed {
            // The process has ended before it could answer.
            self.unknown.push(expected);
            return Ok(());
        }
        match written {
            Ok(outcomes) if outcomes == expected.outcomes => self.acknowledged(expected),
            Ok(outcomes) => Err(format!("answered {outcomes:?} instead of {:?}", expected.outcomes)),
            Err(Error::Unknown(_)) => {
                self.unknown.push(expected);
                Ok(())
            }
            // These say that nothing was written.
            Err(Error::Full(_) | Error::Unavailable(_)) => Ok(()),
            Err(other) => Err(format!("an error that no disk causes: {other}")),
        }
    }

    fn acknowledged(&mut self, expected: Expected) -> Verdict {
        if expected.batches.is_empty() {
            return Ok(());
        }
        self.take(expected);
        let newest = *self.shared.newest.borrow();
        if newest != self.newest {
            return Err(format!("revision {newest} was published, and not {}", self.newest));
        }
        if self.path().state.is_all_settled() {
            self.note("a COMMIT acknowledged a group");
        } else {
            self.note("the journal acknowledged a group");
            if self.disk.is_untrusted() {
                return Err("a group was acknowledged by a journal that is not trusted since a sync failed".into());
            }
        }
        Ok(())
    }

    /// A group has happened, so no other has in its place.
    fn take(&mut self, group: Expected) {
        self.newest = group.batches.keys().next_back().copied().unwrap_or(self.newest);
        self.batches.extend(group.batches);
        self.entries = group.entries;
        self.unknown.clear();
    }

    fn tasks(&mut self) -> Vec<Task> {
        let count = 1 + self.below(3);
        (0..count).map(|_| self.task()).collect()
    }

    fn task(&mut self) -> Task {
        let key = |world: &Self| format!("k{}", world.below(KEYS));
        let mut compares = Vec::new();
        if self.below(3) == 0 {
            let key = key(self);
            let modified = self.entries.get(&key).map_or(0, |entry| entry.0);
            compares.push(Compare { key, modified: modified + u64::from(self.below(4) == 0) });
        }
        let mut ops = BTreeMap::new();
        for _ in 0..self.below(4) {
            let key = key(self);
            self.value += 1;
            // Some fill a good part of the journal.
            let bytes = [10, 700, 3_000, 300_000][(self.below(40) as usize).saturating_sub(36)] + self.below(600);
            let mut value = self.value.to_be_bytes().to_vec();
            value.resize(8 + bytes as usize, b'x');
            let op = if self.below(4) == 0 {
                Op::Delete { key: key.clone() }
            } else {
                Op::Put { key: key.clone(), value: Bytes::from(value) }
            };
            ops.insert(key, op);
        }
        Task { commit: Commit { compares, ops: ops.into_values().collect() }, apart: self.below(3) == 0, frees: false }
    }

    /// What the contract says about a group.
    fn expect(&self, tasks: &[Task]) -> Expected {
        let (mut newest, mut entries, mut batches) = (self.newest, self.entries.clone(), Batches::new());
        let mut outcomes = Vec::new();
        for Task { commit, apart, .. } in tasks {
            let found = |compare: &&Compare| entries.get(&compare.key).map_or(0, |entry| entry.0) != compare.modified;
            if let Some(compare) = commit.compares.iter().find(found) {
                let found = entries.get(&compare.key).map_or(0, |entry| entry.0);
                outcomes.push(Outcome::Conflict { key: compare.key.clone(), found });
                continue;
            }
            for ops in commit.ops.chunks(if *apart { 1 } else { commit.ops.len().max(1) }) {
                let revision = newest + 1;
                let events: Vec<_> = ops.iter().filter_map(|op| event(op, revision, &mut entries)).collect();
                if !events.is_empty() {
                    newest = revision;
                    batches.insert(revision, events);
                }
            }
            outcomes.push(Outcome::Committed(newest));
        }
        Expected { outcomes, batches, entries }
    }

    // --- crashes ---

    /// The process is killed or the power fails; then the store is opened, perhaps with further failures.
    fn crash(&mut self) -> Verdict {
        for attempt in 0.. {
            let path = self.path.take().expect("there is a store");
            let has_power_failed = self.below(2) == 0;
            self.note(if has_power_failed { "the power failed" } else { "a process was killed" });
            if has_power_failed {
                self.disk.lose_power();
            }
            let db = path.db.after_crash(has_power_failed);
            let rate = if attempt < 3 { [0, 0, 60, 300][self.below(4) as usize] } else { 0 };
            let full = if attempt < 3 { [0, 0, 300][self.below(3) as usize] } else { 0 };
            self.fault_rates(rate, full, rate);
            self.chance.borrow_mut().has_crashed = false;
            if attempt < 3 && self.below(4) == 0 {
                let crash_in = self.below(12);
                self.chance.borrow_mut().crash_in = Some(crash_in);
            }
            if self.open(db)? {
                self.fault_rates(0, 0, 0);
                return self.check();
            }
            self.note("a start failed");
        }
        Ok(())
    }

    /// As `schema::open` and `Writer::new` do it. `false`: the disk did not let it.
    fn open(&mut self, db: ModelDatabase) -> Result<bool, String> {
        let tables = db.tables();
        let (named, settled) = (tables.meta("journal").cast_unsigned(), tables.newest());
        let found = recovery::read_journal(&self.disk, Path::new("simulated"), named, settled, false);
        let is_read = found.is_ok();
        let none = InJournal { journal: None, unsettled: Vec::new(), damage: None };
        let InJournal { journal, unsettled, damage } = found.unwrap_or(none);
        if let Some(damage) = damage {
            return Err(format!("a crash counts as damage: {damage}"));
        }
        let newest = unsettled.last().map_or(settled, |batch| batch.revision);
        self.shared = shared(settled, newest);
        if !unsettled.is_empty() {
            self.note("the journal was replayed");
        }
        unsettled.into_iter().for_each(|batch| self.shared.recent().push(Arc::new(batch)));
        let state = State::new(Found {
            newest,
            settled,
            oldest: tables.meta("oldest").cast_unsigned(),
            trimmed: tables.meta("trimmed"),
            has_journal: journal.is_some(),
            supports_journal: true,
        });
        let mut path = CommitPath::new(db, self.disk.clone(), journal, named, state, Arc::clone(&self.shared));
        path.state.mutant = self.mutant;
        let recovered = if is_read { path.recover().map(|failed| failed.is_some()) } else { Err(Error::Closed) };
        if recovered.as_ref().is_ok_and(|from_journal| *from_journal) {
            self.note("served from the journal");
        }
        self.path = Some(path);
        Ok(recovered.is_ok() && !self.chance.borrow().has_crashed)
    }

    /// What the store has after a start: everything acknowledged, and at most one group that was not answered, whole.
    fn check(&mut self) -> Verdict {
        let path = self.path.as_ref().expect("the store is open");
        let (newest, settled) = (path.state.newest(), path.state.settled());
        let tables = path.db.tables();
        let unsettled = self.shared.recent().unsettled();
        let oldest = tables.meta("oldest").cast_unsigned();
        if newest < self.newest {
            return Err(format!("revision {} was acknowledged, and the store ends at {newest}", self.newest));
        }
        if tables.newest() != settled || unsettled.iter().map(|batch| batch.revision).ne(settled + 1..=newest) {
            return Err(format!("the store has revisions up to {settled}, and not all of those up to {newest}"));
        }
        let (mut batches, mut entries) = (Batches::new(), tables.entries());
        batches.extend((oldest + 1..=settled).map(|revision| (revision, tables.events(revision))));
        for batch in &unsettled {
            for event in &batch.events {
                match event {
                    Event::Put(Entry { key, value, created, modified }) => {
                        entries.insert(key.clone(), (*modified, *created, value.clone()));
                    }
                    Event::Delete { key, .. } => drop(entries.remove(key)),
                }
            }
            batches.insert(batch.revision, batch.events.clone());
        }
        if newest > self.newest {
            let next = self.newest + 1;
            let later =
                batches.range(next..).map(|(revision, events)| (*revision, events.clone())).collect::<Batches>();
            // Only history that was compacted may be missing.
            let is_whole = |group: &&Expected| {
                group.batches.keys().next_back() == Some(&newest)
                    && group.batches.range(oldest + 1..).eq(later.iter())
                    && group.entries == entries
            };
            let Some(group) = self.unknown.iter().find(is_whole).cloned() else {
                return Err(format!("revisions {next} to {newest} are no group that may have happened"));
            };
            self.note("a group without an answer was kept");
            self.take(group);
        } else if self.unknown.iter().any(|group| !group.batches.is_empty()) {
            self.note("a group without an answer was lost");
        }
        self.unknown.clear();
        if entries != self.entries {
            return Err(format!("the keys are {entries:?} and should be {:?}", self.entries));
        }
        match batches.iter().find(|(revision, events)| self.batches.get(*revision) != Some(*events)) {
            Some((revision, events)) => Err(format!("revision {revision} has become {events:?}")),
            None => Ok(()),
        }
    }
}

fn shared(settled: Revision, newest: Revision) -> Arc<Shared> {
    Arc::new(Shared {
        readers: Readers::new(PathBuf::new(), 1),
        recent: Mutex::new(Recent::new(settled)),
        newest: watch::Sender::new(newest),
        oldest: AtomicU64::new(0),
        closed: AtomicBool::new(false),
        died: watch::Sender::new(false),
    })
}

fn event(op: &Op, revision: Revision, entries: &mut Entries) -> Option<Event> {
    match op {
        Op::Put { key, value } => {
            let created = entries.get(key).map_or(revision, |entry| entry.1);
            entries.insert(key.clone(), (revision, created, value.clone()));
            Some(Event::Put(Entry { key: key.clone(), value: value.clone(), created, modified: revision }))
        }
        Op::Delete { key } => {
            entries.remove(key)?;
            Some(Event::Delete { key: key.clone(), revision })
        }
    }
}
