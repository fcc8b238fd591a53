//! The task that keeps accounts.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use kinds::{EdgeId, ObjectKey};
use link::Key;
use placement::{
    Id,
    account::{Accounts, Source, Told},
    aggregate,
    class::is_plain,
    facts::PLACEMENTS,
    health::{self, Health},
    summary::{Collector, Summary},
};
use serde_json::Value;
use server::Server;
use tokio::sync::broadcast::{self, error::RecvError};

use super::{COLLECTORS, backlog::Backlog, inbox::Heard, pace::Pace, said, standing, wants::Wants};
use crate::{Fleet, bound, placing::Moved, retries::Retries};

/// What happens within this time is one write.
const SOON: Duration = Duration::from_millis(100);
/// An edit is acknowledged by most edges in a moment, the longer the more there are: what is so again after that need not be written twice.
const SETTLING: Duration = Duration::from_millis(400);
const SETTLING_FOR_EACH: Duration = Duration::from_micros(300);
const SETTLING_AT_MOST: Duration = Duration::from_secs(5);
/// So long after the start, what is found was there before.
const BEGINNING: Duration = Duration::from_secs(30);
/// Edges come back in this time after a start: what was known before is not written over while they do.
const RETURN: Duration = Duration::from_secs(5);
/// Rows of a new question come in one after the other. This long nothing is said before all are there.
const GATHERING: Duration = Duration::from_secs(10);
/// At most this many Locations are looked at for what holds objects back.
const FAULTS: usize = 50;
/// At most this many edges are looked at before others have a turn.
const AT_ONCE: usize = 64;

/// What is to be done at a pace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Due {
    /// Look at a placement again.
    Look(Id),
    /// Write what there is to say.
    Placement(Id),
    Combined(Id),
    Source(Source),
}

/// A collector and what it says.
pub struct Desk {
    pub uid: String,
    pub generation: i64,
    /// When it was asked.
    pub since: Instant,
    /// Or all that is wrong with it.
    pub summary: Result<Summary, Vec<String>>,
}

/// Rows of an edge that have to be looked at.
#[derive(Default)]
pub struct Todo {
    pub all: bool,
    pub keys: BTreeSet<Key>,
    /// What the edge said of them just now.
    pub said: HashMap<Key, Option<Bytes>>,
}

pub struct Keeper {
    pub fleet: Arc<Fleet>,
    pub server: Arc<Server>,
    pub accounts: Accounts,
    /// By workspace and name.
    pub desks: BTreeMap<Id, Desk>,
    pub todo: BTreeMap<EdgeId, Todo>,
    /// What objects that are summarised were, without what does not matter.
    pub prints: HashMap<Source, u64>,
    pub pace: Pace<Due>,
    pub retries: Retries<Due>,
    /// Sources that are due, and wait for their turn.
    pub backlog: Backlog,
    /// Which placements ask for the status of their objects at the source.
    pub wants: HashMap<Id, Wants>,
    /// Edges that a placement was found to reach. There may be very many at once: they are looked at in turns.
    unseen: Vec<EdgeId>,
    /// The edges' names, each once.
    names: HashMap<EdgeId, Arc<str>>,
    begun: Instant,
    /// What was there before.
    revision: u64,
}

pub async fn run(fleet: Arc<Fleet>, server: Arc<Server>) {
    fleet.placing.wait().await;
    fleet.accounts.inbox.open();
    let moved = fleet.placing.subscribe();
    let mut keeper = Keeper {
        accounts: Accounts::default(),
        desks: BTreeMap::new(),
        todo: BTreeMap::new(),
        prints: HashMap::new(),
        pace: Pace::default(),
        retries: Retries::default(),
        backlog: Backlog::default(),
        wants: HashMap::new(),
        unseen: Vec::new(),
        names: HashMap::new(),
        begun: Instant::now(),
        revision: server.cache.revision(),
        fleet: fleet.clone(),
        server: server.clone(),
    };
    fleet.accounts.inbox.hear(|heard| heard.everything = true);
    tokio::spawn(pump(fleet.clone(), moved));
    let mut shutdown = server.shutdown.clone();
    let mut led = fleet.lead.is_here();
    while !*shutdown.borrow() {
        let leads = fleet.lead.is_here();
        if leads && !led {
            keeper.take_over();
        }
        led = leads;
        let filled = fleet.accounts.inbox.filled.notified();
        let heard = fleet.accounts.inbox.take();
        // What is heard here is looked up there, so it has to be known there too.
        fleet.placing.wait().await;
        keeper.hear(heard);
        for _ in 0..AT_ONCE {
            let Some(edge) = keeper.unseen.pop() else { break };
            keeper.stands(&edge);
        }
        keeper.work(AT_ONCE).await;
        keeper.age();
        keeper.mark();
        let due = keeper.pace.take(Instant::now());
        keeper.carry_out(due).await;
        if !keeper.todo.is_empty() || !keeper.unseen.is_empty() {
            tokio::task::yield_now().await;
            continue;
        }
        let wake = keeper.wake();
        tokio::select! {
            () = filled => {}
            () = tokio::time::sleep_until(wake.into()) => {}
            _ = shutdown.wait_for(|down| *down) => return,
        }
    }
}

/// Passes on what placing tells.
async fn pump(fleet: Arc<Fleet>, mut moved: broadcast::Receiver<Arc<Moved>>) {
    loop {
        match moved.recv().await {
            Ok(moved) => fleet.accounts.inbox.hear(|heard| {
                heard.placements.extend(moved.placements.iter().cloned());
                heard.moved.extend(moved.edges.iter().map(|edge| EdgeId::new(&edge.workspace, &edge.name)));
            }),
            Err(RecvError::Lagged(_)) => fleet.accounts.inbox.hear(|heard| heard.everything = true),
            Err(RecvError::Closed) => return,
        }
    }
}

impl Keeper {
    pub fn name(&mut self, edge: &EdgeId) -> Arc<str> {
        self.names.entry(edge.clone()).or_insert_with(|| edge.to_string().into()).clone()
    }

    fn hear(&mut self, mut heard: Heard) {
        if heard.everything {
            let found = |collection: &str| -> Vec<Id> {
                let snapshot = self.server.cache.snapshot(collection);
                snapshot.items.range("", "").map(|object| Id::new(object.cluster(), object.name())).collect()
            };
            heard.placements.extend(found(PLACEMENTS));
            heard.collectors.extend(found(COLLECTORS));
            heard.moved.extend(self.names.keys().cloned());
        }
        let now = Instant::now();
        for id in heard.placements.into_iter().filter(|id| !is_plain(id)) {
            self.pace.push(Due::Look(id), Duration::ZERO, now);
        }
        for edge in heard.moved {
            self.moved(&edge);
            heard.edges.insert(edge);
        }
        for edge in heard.void {
            let name = self.name(&edge);
            self.accounts.void(&name);
            self.todo(&edge).all = true;
        }
        for (edge, said) in heard.reports {
            self.reported(&edge, said);
        }
        for edge in heard.edges {
            self.stands(&edge);
        }
        for id in heard.collectors {
            self.collector(&id);
        }
        for source in heard.objects {
            self.object(&source);
        }
    }

    /// Another center may have left something unsaid.
    fn take_over(&mut self) {
        self.fleet.accounts.inbox.hear(|heard| heard.everything = true);
        let workspaces: BTreeSet<Arc<str>> = self.accounts.workspaces().collect();
        for workspace in workspaces {
            for id in self.accounts.placements_of(&workspace) {
                let sources: Vec<Source> =
                    self.accounts.objects_of(&id).map(|key| (workspace.clone(), key.clone())).collect();
                sources.into_iter().for_each(|source| self.pace.push(Due::Source(source), SETTLING, Instant::now()));
            }
        }
    }

    pub fn todo(&mut self, edge: &EdgeId) -> &mut Todo {
        self.todo.entry(edge.clone()).or_default()
    }

    /// Looks at a placement: where it goes, what it selects, what is wrong with it.
    pub fn look(&mut self, id: &Id) {
        let fleet = self.fleet.clone();
        let found = fleet.placing.read(|engine| {
            engine.placement(id)?;
            let objects: BTreeSet<Key> = engine.objects(id).into_iter().collect();
            let conflicts = engine.conflicts(id);
            Some((engine.schedule().location_count(id), objects, engine.faults(id, FAULTS), conflicts))
        });
        let Some((locations, objects, faults, conflicts)) = found else { return self.forget(id) };
        let lost = said::lost(&conflicts, &objects);
        let conflicts: Vec<Told> = conflicts.iter().map(|one| said::conflict(id, one)).collect();
        let is_new = !self.accounts.knows(id);
        self.accounts.open(id, locations);
        if is_new {
            let destinations = fleet.placing.read(|engine| engine.schedule().destinations(id));
            for to in destinations {
                let edge = EdgeId::new(&to.target.workspace, &to.target.name);
                let name = self.name(&edge);
                self.accounts.reach(id, &name, Some(&to.location.to_string().into()));
                // What it reported before anybody listened.
                self.todo(&edge).all = true;
                self.unseen.push(edge);
            }
            self.watch();
        }
        let (new, gone) = self.accounts.select(id, &objects);
        if !new.is_empty() && !is_new {
            // An edge may have acknowledged it before it was looked at here, and will not say so again.
            self.unseen.extend(self.accounts.edges_of(id).filter_map(|name| name.parse().ok()));
        }
        if new.iter().chain(&gone).any(|key| self.is_summarised(&id.workspace, key)) {
            let edges: Vec<EdgeId> = self.accounts.edges_of(id).filter_map(|name| name.parse().ok()).collect();
            let asked: Vec<Key> =
                new.into_iter().chain(gone).filter(|key| self.is_summarised(&id.workspace, key)).collect();
            for edge in edges {
                self.todo(&edge).keys.extend(asked.iter().cloned());
            }
        }
        self.accounts.hold(id, &faults, &conflicts, &lost);
        self.wanted(id);
        if self.begun.elapsed() < BEGINNING {
            self.begin(id);
        }
        let after = self.patience(PLACEMENTS, id).max(self.settling(id));
        self.pace.push(Due::Placement(id.clone()), after, Instant::now());
    }

    /// A placement that asks for other statuses than before: those of its objects are filled in, or taken away.
    fn wanted(&mut self, id: &Id) {
        let found = self.server.cache.get(PLACEMENTS, &format!("{}//{}", id.workspace, id.name));
        let now = found.map_or_else(Wants::default, |object| Wants::read(&object.value()["spec"]));
        let before = self.wants.insert(id.clone(), now);
        if before == Some(now) {
            return;
        }
        // By default only workloads show a status.
        let is_concerned = |key: &&Key| {
            let is_workload = ObjectKey::parse(key).is_some_and(|key| aggregate::is_workload(key.collection));
            is_workload || before.is_some() || now != Wants::default()
        };
        let sources: Vec<Source> =
            self.accounts.objects_of(id).filter(is_concerned).cloned().map(|key| (id.workspace.clone(), key)).collect();
        let after = self.patience(PLACEMENTS, id).max(SETTLING);
        sources.into_iter().for_each(|source| self.pace.push(Due::Source(source), after, Instant::now()));
    }

    /// How long to wait for the edges of a placement to follow.
    fn settling(&self, id: &Id) -> Duration {
        let edges = u32::try_from(self.accounts.edge_count(id)).unwrap_or(u32::MAX);
        SETTLING_FOR_EACH.saturating_mul(edges).clamp(SETTLING, SETTLING_AT_MOST)
    }

    /// How long to wait before something that was there before this center is told anew.
    fn patience(&self, collection: &str, id: &Id) -> Duration {
        let left = RETURN.saturating_sub(self.begun.elapsed());
        if left.is_zero() || !self.is_old(collection, &format!("{}//{}", id.workspace, id.name)) {
            return Duration::ZERO;
        }
        left
    }

    fn is_old(&self, collection: &str, key: &str) -> bool {
        self.server.cache.get(collection, key).is_some_and(|object| object.created <= self.revision)
    }

    /// Whether a collector has to wait: rows of it may still be missing.
    pub fn gathers(&self, desk: &Desk) -> bool {
        !self.todo.is_empty() && desk.since.elapsed() < GATHERING
    }

    /// What was there when this center started is taken to be where it was.
    fn begin(&mut self, id: &Id) {
        if !self.is_old(PLACEMENTS, &format!("{}//{}", id.workspace, id.name)) {
            return;
        }
        let is_old = |key: &&Key| {
            let parsed = ObjectKey::parse(key);
            let source = parsed.and_then(|key| bound::source(&self.server, &id.workspace, &key));
            source.is_some_and(|object| object.created <= self.revision)
        };
        let old: HashSet<Key> = self.accounts.objects_of(id).filter(is_old).cloned().collect();
        self.accounts.begin(id, |key| old.contains(key));
    }

    /// A placement is gone.
    fn forget(&mut self, id: &Id) {
        let edges: Vec<EdgeId> = self.accounts.edges_of(id).filter_map(|name| name.parse().ok()).collect();
        self.accounts.remove(id);
        self.wants.remove(id);
        self.fleet.accounts.board.placement(id, None);
        if self.desks.keys().any(|desk| desk.workspace == id.workspace) {
            for edge in edges {
                self.todo(&edge).all = true;
            }
        }
        self.watch();
    }

    /// Other placements reach an edge than before, or by other Locations, or what they say is another.
    fn moved(&mut self, edge: &EdgeId) {
        let name = self.name(edge);
        let id = Id::new(&edge.workspace, &edge.name);
        let now: BTreeMap<Id, Arc<str>> = self.fleet.placing.read(|engine| {
            let reaching = engine.schedule().reaching(&id).into_iter();
            reaching.map(|(placement, location)| (placement.clone(), location.to_string().into())).collect()
        });
        let before: Vec<Id> = self.accounts.reaching(&name).into_iter().map(|(id, _)| id.clone()).collect();
        for gone in before.iter().filter(|id| !now.contains_key(id)) {
            self.accounts.reach(gone, &name, None);
        }
        for (placement, location) in &now {
            // One that was not looked at yet will be, and then knows.
            if self.accounts.knows(placement) {
                self.accounts.reach(placement, &name, Some(location));
            }
        }
        self.todo(edge).all = true;
        if self.fleet.edges.get(edge).is_none() {
            self.accounts.drop_edge(&name);
            self.names.remove(edge);
        }
    }

    /// An edge came or went, or acknowledged something.
    fn stands(&mut self, edge: &EdgeId) {
        let name = self.name(edge);
        let workspaces: HashSet<Arc<str>> =
            self.accounts.reaching(&name).into_iter().map(|(id, _)| id.workspace.clone()).collect();
        if workspaces.is_empty() {
            return;
        }
        let (now, link, seen) = standing::of(&self.fleet, &self.server, edge);
        self.accounts.edge(&name, now, seen && self.begun.elapsed() < BEGINNING);
        let (time, mut again, mut touched) = (clock::unix(), BTreeSet::new(), Vec::new());
        for (id, desk) in self.desks.iter_mut().filter(|(id, _)| workspaces.contains(&id.workspace)) {
            if let Ok(summary) = &mut desk.summary {
                again.extend(summary.relink(&name, &link, time).into_iter().map(|row| row.object));
                touched.push(id.clone());
            }
        }
        touched.into_iter().for_each(|id| self.touch(id));
        if !again.is_empty() {
            self.todo(edge).keys.extend(again);
        }
    }

    fn reported(&mut self, edge: &EdgeId, said: HashMap<Key, Option<Bytes>>) {
        let name = self.name(edge);
        let reaching: Vec<Id> = self.accounts.reaching(&name).into_iter().map(|(id, _)| id.clone()).collect();
        if reaching.is_empty() {
            return;
        }
        for (key, state) in said {
            self.judge(&name, &key, state.as_deref());
            for id in reaching.iter().filter(|id| self.accounts.selects(id, &key)) {
                self.pace.push(Due::Source((id.workspace.clone(), key.clone())), SETTLING, Instant::now());
            }
            if reaching.iter().any(|id| self.is_summarised(&id.workspace, &key)) {
                self.todo(edge).said.insert(key, state);
            }
        }
    }

    /// Whether what an edge says of an object is good.
    pub fn judge(&mut self, edge: &Arc<str>, key: &Key, state: Option<&[u8]>) {
        let status = state.and_then(|state| serde_json::from_slice::<Value>(state).ok());
        let collection = ObjectKey::parse(key).map_or("", |key| key.collection);
        // Whether it is done is not asked here, so nothing of the object matters but that.
        let health = status.map(|state| health::healthy(collection, &Value::Null, state.get("status")));
        let trouble = match health {
            Some(Health::Failed(why)) => Some(why.into()),
            _ => None,
        };
        self.accounts.report(edge, key, trouble);
    }

    /// A StatusCollector or what was answered to it has changed.
    fn collector(&mut self, id: &Id) {
        let key = format!("{}//{}", id.workspace, id.name);
        let object = self.server.cache.get(COLLECTORS, &key).map(|object| object.value());
        let object = object.filter(|value| value.pointer("/metadata/deletionTimestamp").is_none());
        let Some(value) = object else {
            self.desks.remove(id);
            self.fleet.accounts.board.collector(id, None);
            return self.watch();
        };
        let uid = value["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let generation = value["metadata"]["generation"].as_i64().unwrap_or_default();
        let same = |desk: &Desk| desk.uid == uid && desk.generation == generation;
        if !self.desks.get(id).is_some_and(same) {
            let summary = Collector::read(&value).map(Summary::new);
            let (ok, is_new) = (summary.is_ok(), !self.desks.contains_key(id));
            self.desks.insert(id.clone(), Desk { uid, generation, since: Instant::now(), summary });
            if is_new {
                self.watch();
            }
            for placement in self.accounts.placements_of(&id.workspace).iter().filter(|_| ok) {
                let edges: Vec<EdgeId> =
                    self.accounts.edges_of(placement).filter_map(|name| name.parse().ok()).collect();
                for edge in edges {
                    self.todo(&edge).all = true;
                }
            }
        }
        self.touch(id.clone());
    }

    /// An object of a workspace has changed.
    fn object(&mut self, source: &Source) {
        self.pace.push(Due::Source(source.clone()), SETTLING, Instant::now());
        let (workspace, key) = source;
        if !self.is_summarised(workspace, key) || !self.is_another(source) {
            return;
        }
        let (edges, _) = self.accounts.held(source);
        for edge in edges.iter().filter_map(|name| name.parse().ok()) {
            self.todo(&edge).keys.insert(key.clone());
        }
    }

    /// Whether some collector of a workspace asks for an object.
    fn is_summarised(&self, workspace: &Arc<str>, key: &str) -> bool {
        let Some(key) = ObjectKey::parse(key) else { return false };
        let first = Id { workspace: workspace.clone(), name: "".into() };
        let mut desks = self.desks.range(first..).take_while(|(id, _)| id.workspace == *workspace);
        desks.any(|(_, desk)| desk.summary.as_ref().is_ok_and(|summary| summary.collector().names(&key)))
    }

    /// There may be something new to say about a collector.
    pub fn touch(&mut self, id: Id) {
        let after = self.patience(COLLECTORS, &id).max(SOON);
        self.pace.push(Due::Combined(id), after, Instant::now());
    }

    /// Rows become old by themselves.
    fn age(&mut self) {
        let (now, mut again, mut touched) = (clock::unix(), Vec::new(), Vec::new());
        for (id, desk) in &mut self.desks {
            if let Ok(summary) = &mut desk.summary
                && summary.next_tick().is_some_and(|at| at <= now)
            {
                again.extend(summary.tick(now));
                touched.push(id.clone());
            }
        }
        touched.into_iter().for_each(|id| self.touch(id));
        for row in again {
            if let Ok(edge) = row.edge.parse::<EdgeId>() {
                self.todo(&edge).keys.insert(row.object);
            }
        }
    }

    fn mark(&mut self) {
        let now = Instant::now();
        for id in self.accounts.take_changed() {
            let after = self.patience(PLACEMENTS, &id).max(self.settling(&id));
            self.pace.push(Due::Placement(id), after, now);
        }
        for source in self.accounts.take_counted() {
            self.pace.push(Due::Source(source), SETTLING, now);
        }
    }

    /// Objects of these workspaces matter.
    fn watch(&self) {
        let placed = self.accounts.workspaces();
        let asked = self.desks.keys().map(|id| id.workspace.clone());
        self.fleet.accounts.inbox.watch(placed.chain(asked).collect());
    }

    /// When there is something to do if nothing happens.
    fn wake(&self) -> Instant {
        let now = Instant::now();
        let old = self.desks.values().filter_map(|desk| desk.summary.as_ref().ok()?.next_tick()).min();
        let old = old.map(|at| now + Duration::from_secs((at - clock::unix()).clamp(0, 60) as u64 + 1));
        // Where there are several centers, this one may come to lead.
        let far = now + Duration::from_secs(if self.fleet.center().is_some() { 2 } else { 60 });
        self.pace.next().into_iter().chain(self.backlog.next()).chain(old).min().unwrap_or(far)
    }
}
