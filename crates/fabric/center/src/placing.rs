//! What each edge shall hold: drives the placement engine from the server's changes, in order, in one task, and keeps the desired sets of
//! those classes of edges that somebody has a use for.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::{Duration, Instant},
};

use bytes::Bytes;
use cache::object::Object;
use cache::{Change, ChangeKind};
use kinds::{EdgeId, ObjectKey};
use placement::{
    Id, Key,
    class::{Class, is_plain},
    engine::{Changes, Content, Engine},
    facts::{CUSTOMIZERS, Instance, LOCATIONS, Location, PLACEMENTS, Placement, SLICES, TARGETS, map},
    projection,
    slices::Slices,
};
use serde_json::Value;
use server::{BINDINGS, Server};
use tokio::sync::{broadcast, mpsc, watch};

use crate::{
    Fleet,
    bound::{self, Definitions},
    edges::Order,
    removals,
    resolved::{self, Due},
    set::{Progress, Set},
    target, tenures,
};

const WORKSPACES: &str = "tenancy.kcp.io/workspaces";
const NAMESPACES: &str = "core/namespaces";
/// At most this many changes are taken up before what they come to is passed on.
const AT_ONCE: usize = 1000;
/// A set that nobody has had a use for is let go of after this time.
const IDLE: Duration = Duration::from_secs(600);
const SWEEP: Duration = Duration::from_secs(60);
/// At most this many tellings wait for a listener that is slow. One that misses some looks at everything again.
const WAITING: usize = 1024;

pub struct Placing {
    state: Mutex<State>,
    feed: mpsc::UnboundedSender<Seen>,
    fed: Mutex<Option<mpsc::UnboundedReceiver<Seen>>>,
    /// Workspaces whose objects are passed on; nothing is before the fleet has started.
    follows: RwLock<Option<HashSet<Arc<str>>>>,
    progress: Arc<Progress>,
    ready: watch::Sender<bool>,
    moved: broadcast::Sender<Arc<Moved>>,
    pub(crate) due: Due,
}

#[derive(Default)]
pub(crate) struct State {
    pub engine: Engine,
    made: HashMap<Class, Made>,
    /// How the destinations of each placement are written.
    pub slices: HashMap<Id, Slices>,
    definitions: Definitions,
    asking: Asking,
    /// Workspaces that are being deleted. Nothing is placed there any more, although the placements may still be there.
    leaving: HashSet<Box<str>>,
}

/// SyncTargets by the workspace that they name, and the other way round.
#[derive(Default)]
struct Asking {
    targets: HashMap<Arc<str>, BTreeSet<Id>>,
    named: HashMap<Id, Arc<str>>,
}

impl Asking {
    fn set(&mut self, id: Id, named: Option<Arc<str>>) {
        let before = match &named {
            Some(named) => self.named.insert(id.clone(), named.clone()),
            None => self.named.remove(&id),
        };
        if before == named {
            return;
        }
        if let Some(before) = before
            && let Some(targets) = self.targets.get_mut(&before)
        {
            targets.remove(&id);
            if targets.is_empty() {
                self.targets.remove(&before);
            }
        }
        if let Some(named) = named {
            self.targets.entry(named).or_default().insert(id);
        }
    }
}

struct Made {
    set: Arc<Set>,
    used: Instant,
}

enum Seen {
    Change(Box<str>, Arc<Change>),
    /// Somebody else changed something in the engine.
    Look,
}

/// What changed, for whoever keeps accounts.
#[derive(Debug, Default)]
pub struct Moved {
    /// Placements of which something changed: what they select, where they go, what is wrong with them.
    pub placements: BTreeSet<Id>,
    /// Edges that other placements reach, or that are to hold something in another form.
    pub edges: BTreeSet<Id>,
}

impl Default for Placing {
    fn default() -> Self {
        let (feed, fed) = mpsc::unbounded_channel();
        Self {
            state: Mutex::default(),
            feed,
            fed: Mutex::new(Some(fed)),
            follows: RwLock::default(),
            progress: Arc::default(),
            ready: watch::channel(false).0,
            moved: broadcast::channel(WAITING).0,
            due: Due::default(),
        }
    }
}

pub fn id_of(edge: &EdgeId) -> Id {
    Id::new(&edge.workspace, &edge.name)
}

impl Placing {
    /// Passes on what happened. Quick: the work is done by a task.
    pub fn observe(&self, collection: &str, change: &Arc<Change>) {
        let follows = self.follows.read().unwrap_or_else(PoisonError::into_inner);
        let Some(follows) = &*follows else { return };
        let concerns = match collection {
            PLACEMENTS | SLICES | LOCATIONS | TARGETS | WORKSPACES => true,
            BINDINGS => follows.contains(change.object.cluster()),
            tenures::COLLECTION if tenures::is_record(&change.object) => true,
            _ => follows.contains(change.object.cluster()) && matters(&key(collection, &change.object)),
        };
        if concerns {
            self.progress.expect(change.revision());
            // An error means that the task is gone with the runtime.
            let _ = self.feed.send(Seen::Change(collection.into(), change.clone()));
        }
    }

    /// Waits until what edges shall hold is known, with all that has happened so far.
    pub async fn wait(&self) {
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
        self.progress.catch_up().await;
    }

    /// What an edge shall hold, shared with all that shall hold the same. Not complete before placing is [ready](Self::wait).
    pub fn desired(&self, edge: &EdgeId) -> Arc<Set> {
        if !*self.ready.borrow() {
            return Arc::new(Set::new(self.progress.clone()));
        }
        let mut state = self.state();
        let class = state.engine.class_of(&id_of(edge));
        if let Some(made) = state.made.get_mut(&class) {
            made.used = Instant::now();
            return made.set.clone();
        }
        let set = Arc::new(Set::new(self.progress.clone()));
        set.apply_of(state.engine.contents_of(&class).into_iter().map(|(key, content)| (key, Some(content))));
        set.complete();
        state.engine.hold(&class);
        state.made.insert(class, Made { set: set.clone(), used: Instant::now() });
        set
    }

    /// The same, if somebody has a use for it already.
    pub fn peek(&self, edge: &EdgeId) -> Option<Arc<Set>> {
        let state = self.state();
        let class = state.engine.class_of(&id_of(edge));
        state.made.get(&class).map(|made| made.set.clone())
    }

    /// Whose object it is that an edge holds, or shall hold, under a key.
    pub fn source(&self, edge: &EdgeId, key: &str) -> Option<Id> {
        let state = self.state();
        state.engine.source(&state.engine.class_of(&id_of(edge)), key)
    }

    /// What an edge would hold under a key if the object were this.
    pub fn made_of(&self, edge: &EdgeId, key: &ObjectKey<'_>, value: Value) -> Option<Bytes> {
        let state = self.state();
        match state.engine.render_as(&state.engine.class_of(&id_of(edge)), key, value)? {
            Content::Whole(content) => Some(content),
            Content::Held(_) => None,
        }
    }

    /// An edge holds all that is in a set, and nothing else. If that is the one for it now, nothing is left to be taken
    /// away from it.
    pub fn settled(&self, edge: &EdgeId, set: u64) {
        let (mut state, id) = (self.state(), id_of(edge));
        if state.engine.removed(&id).next().is_none() {
            return;
        }
        let class = state.engine.class_of(&id);
        if state.made.get(&class).is_some_and(|made| made.set.id == set) {
            state.engine.settled(&id).iter().for_each(|placement| self.due.placement(placement));
        }
    }

    /// The deletion fuse of an edge holds these objects, which are gone from placements.
    pub fn hold_back(&self, edge: &EdgeId, objects: BTreeMap<Id, Vec<Key>>) {
        let (mut state, edge) = (self.state(), id_of(edge));
        for (placement, keys) in objects {
            if state.engine.hold_back(&placement, &edge, keys) {
                self.due.placement(&placement);
            }
        }
    }

    /// Those of these edges that have an object from this workspace, each with what it would hold if the object were
    /// this; nothing if it cannot be customized there. Rendered once for all edges of a class.
    pub fn made_for(
        &self,
        edges: &[EdgeId],
        workspace: &str,
        key: &ObjectKey<'_>,
        value: &Value,
    ) -> Vec<(EdgeId, Option<Bytes>)> {
        let (state, text) = (self.state(), key.to_string());
        let mut rendered: HashMap<Class, Option<Option<Bytes>>> = HashMap::new();
        let mut found = Vec::new();
        for edge in edges {
            let class = state.engine.class_of(&id_of(edge));
            let made = rendered.entry(class.clone()).or_insert_with(|| {
                state.engine.source(&class, &text).filter(|of| *of.workspace == *workspace)?;
                Some(match state.engine.render_as(&class, key, value.clone())? {
                    Content::Whole(content) => Some(content),
                    Content::Held(_) => None,
                })
            });
            if let Some(content) = made {
                found.push((edge.clone(), content.clone()));
            }
        }
        found
    }

    /// For questions about placements: where they go, what they select, what is wrong with them. Briefly: everybody waits for the answer.
    pub fn read<T>(&self, look: impl FnOnce(&Engine) -> T) -> T {
        look(&self.state().engine)
    }

    /// Tells of what changed, once for what happened together.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Moved>> {
        self.moved.subscribe()
    }

    /// Changes something in the engine that is not the server's: which edge gets which revision of a placement.
    pub fn edit<T>(&self, change: impl FnOnce(&mut Engine) -> T) -> T {
        let answer = change(&mut self.state().engine);
        let _ = self.feed.send(Seen::Look);
        answer
    }

    /// How many sets there are.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.state().made.len()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up everything that there is, and follows it until the server stops.
    pub async fn run(&self, fleet: Arc<Fleet>, server: Arc<Server>) {
        let fed = self.fed.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut fed) = fed else { return };
        *self.follows.write().unwrap_or_else(PoisonError::into_inner) = Some(HashSet::new());
        while let Err(error) = fleet.rollouts.recall(fleet.store(), &server).await {
            if matches!(error, store::Error::Closed) {
                return;
            }
            tracing::warn!(%error, "edges have to wait for what was saved of rollouts");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.load(&server).await;
        // Snapshots were taken one after the other: all is right once it has followed to where the store is now.
        let Some(whole_at) = reach_newest(&server).await else { return };
        let mut reached = 0;
        while let Ok(seen) = fed.try_recv() {
            reached = reached.max(self.take_up(&fleet, &server, &mut self.state(), &seen));
        }
        self.settle(&server);
        fleet.rollouts.begin(&mut self.state().engine, &server);
        resolved::load(&mut self.state(), &server, &self.due);
        tenures::tidy(&self.state().engine, &self.due);
        removals::load(&mut self.state().engine, &server);
        removals::recorded(&server).iter().for_each(|id| self.due.placement(id));
        self.progress.reach(whole_at.max(reached));
        self.ready.send_replace(true);
        let mut sweep = tokio::time::interval(SWEEP);
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let next = self.state().engine.schedule().next_tick().map(|at| (at - clock::unix()).clamp(0, 3600) as u64);
            let later = tokio::time::sleep(Duration::from_secs(next.unwrap_or(3600)));
            let mut some = Vec::new();
            tokio::select! {
                count = fed.recv_many(&mut some, AT_ONCE) => if count == 0 { return },
                () = later => {}
                _ = sweep.tick() => self.sweep(),
            }
            let mut reached = 0;
            {
                let mut state = self.state();
                state.engine.tick(clock::unix());
                for seen in &some {
                    reached = reached.max(self.take_up(&fleet, &server, &mut state, seen));
                }
            }
            let changes = self.settle(&server);
            self.carry_out(&fleet, changes);
            // More of the same revision may be waiting.
            self.progress.reach(if fed.is_empty() { reached } else { reached.saturating_sub(1) });
        }
    }

    /// Passes the engine what there is of inventory and placements.
    async fn load(&self, server: &Arc<Server>) {
        self.state().engine.tick(clock::unix());
        resolved::recall(&mut self.state(), server);
        for collection in [WORKSPACES, LOCATIONS, PLACEMENTS, TARGETS] {
            let snapshot = server.cache.snapshot(collection);
            let all: Vec<&Arc<Object>> = snapshot.items.range("", "").collect();
            for some in all.chunks(AT_ONCE) {
                {
                    let mut state = self.state();
                    some.iter().for_each(|object| feed(&mut state, server, collection, object, false));
                }
                tokio::task::yield_now().await;
            }
        }
        tenures::load(&mut self.state().engine, server);
    }

    /// Takes up one change; answers with its revision.
    fn take_up(&self, fleet: &Fleet, server: &Server, state: &mut State, seen: &Seen) -> u64 {
        let Seen::Change(collection, change) = seen else { return 0 };
        let gone = change.kind == ChangeKind::Deleted;
        match &**collection {
            SLICES => resolved::changed(state, &change.object, gone, &self.due),
            BINDINGS => {
                let State { engine, definitions, .. } = state;
                definitions.set(engine, server, &change.object, gone);
            }
            tenures::COLLECTION if tenures::is_record(&change.object) => {
                tenures::feed(&mut state.engine, &change.object, gone);
                if gone && let Some(id) = tenures::of(&change.object) {
                    self.due.placement(&id);
                }
            }
            collection => feed(state, server, collection, &change.object, gone),
        }
        if &**collection == WORKSPACES {
            // One that is made anew is another workspace: who named it has to be asked about again.
            let path = format!("{}:{}", change.object.cluster(), change.object.name());
            for id in state.asking.targets.get(&*path).cloned().unwrap_or_default() {
                let key = format!("{}//{}", id.workspace, id.name);
                if let Some(target) = server.cache.get(TARGETS, &key) {
                    feed(state, server, TARGETS, &target, false);
                    fleet.statuses.push(&EdgeId::new(&id.workspace, &id.name), Duration::ZERO);
                }
            }
        }
        if &**collection == PLACEMENTS {
            let id = Id::new(change.object.cluster(), change.object.name());
            let value = (!gone).then(|| change.object.value());
            fleet.rollouts.placement(&mut state.engine, &id, value.as_ref());
        }
        change.revision()
    }

    /// Has the engine know everything that it wants to know, and brings the sets up to date.
    fn settle(&self, server: &Arc<Server>) -> Changes {
        let mut state = self.state();
        let mut changes = state.engine.take_changes();
        while !changes.wanted.is_empty() || !changes.unwanted.is_empty() {
            let (wanted, unwanted) = (std::mem::take(&mut changes.wanted), std::mem::take(&mut changes.unwanted));
            {
                let mut follows = self.follows.write().unwrap_or_else(PoisonError::into_inner);
                let follows = follows.get_or_insert_default();
                follows.retain(|workspace| !unwanted.contains(workspace));
                follows.extend(wanted.iter().cloned());
            }
            // Followed first: what changes from now on comes as a change, and says the same or more.
            for workspace in &wanted {
                let State { engine, definitions, .. } = &mut *state;
                definitions.load(engine, server, workspace);
                feed_all(&mut state, server, workspace);
            }
            changes.join(state.engine.take_changes());
        }
        for class in &changes.dropped {
            state.made.remove(class);
        }
        for (class, keys) in std::mem::take(&mut changes.keys) {
            let Some(set) = state.made.get(&class).map(|made| made.set.clone()) else { continue };
            let engine = &state.engine;
            set.apply_of(keys.into_iter().map(|key| {
                let content = engine.render_of(&class, &key);
                (key, content)
            }));
        }
        changes
    }

    /// Tells everybody whom it concerns.
    fn carry_out(&self, fleet: &Arc<Fleet>, changes: Changes) {
        {
            let mut state = self.state();
            let State { engine, slices, .. } = &mut *state;
            for id in changes.placements.iter().filter(|id| !is_plain(id)) {
                if engine.placement(id).is_none() {
                    // Whoever cleans up after owners deletes the slices.
                    slices.remove(id);
                    self.due.placement(id);
                    continue;
                }
                let slices = slices.entry(id.clone()).or_default();
                slices.ensure_first();
                for target in changes.moves.placements.get(id).into_iter().flatten() {
                    slices.set(target, engine.schedule().destination_at(id, target).is_some());
                }
                self.due.placement(id);
            }
        }
        changes.moves.locations.iter().for_each(|location| self.due.location(location));
        for edge in &changes.edges {
            let edge = fleet.edges.get(&EdgeId::new(&edge.workspace, &edge.name));
            if let Some(live) = edge.and_then(|edge| edge.session()) {
                live.order(Order::Move);
            }
        }
        if self.moved.receiver_count() > 0 && !(changes.placements.is_empty() && changes.edges.is_empty()) {
            let _ = self.moved.send(Arc::new(Moved { placements: changes.placements, edges: changes.edges }));
        }
    }

    /// Lets go of sets that nobody uses.
    fn sweep(&self) {
        let mut state = self.state();
        let now = Instant::now();
        let mut idle = Vec::new();
        for (class, made) in &mut state.made {
            if Arc::strong_count(&made.set) > 1 {
                made.used = now;
            } else if now.duration_since(made.used) > IDLE {
                idle.push(class.clone());
            }
        }
        for class in idle {
            state.made.remove(&class);
            state.engine.release(&class);
        }
    }
}

fn key<'a>(collection: &'a str, object: &'a Object) -> ObjectKey<'a> {
    ObjectKey { collection: bound::plain(collection), namespace: object.namespace(), name: object.name() }
}

fn matters(key: &ObjectKey<'_>) -> bool {
    matches!(key.collection, CUSTOMIZERS | NAMESPACES) || projection::may_belong(key)
}

/// Passes one object to the engine.
fn feed(state: &mut State, server: &Server, collection: &str, object: &Object, gone: bool) {
    let State { engine, asking, leaving, .. } = state;
    let id = || Id::new(object.cluster(), object.name());
    let value = || (!gone).then(|| object.value());
    match collection {
        PLACEMENTS if leaving.contains(object.cluster()) => engine.set_placement(&id(), None),
        PLACEMENTS => engine.set_placement(&id(), value().as_ref().and_then(Placement::read)),
        LOCATIONS => engine.set_location(&id(), value().as_ref().and_then(Location::read)),
        TARGETS => {
            let found = value().as_ref().and_then(|value| instance(server, object.cluster(), value));
            let (named, instance) = found.map_or((None, None), |(named, instance)| (named, Some(instance)));
            asking.set(id(), named);
            engine.set_target(&id(), instance);
        }
        WORKSPACES => {
            let (path, value) = (format!("{}:{}", object.cluster(), object.name()), value().unwrap_or_default());
            engine.set_inventory(&path, value["spec"]["type"]["name"] == "inventory");
            if value["metadata"]["deletionTimestamp"].is_string() {
                engine.end_workspace(&path);
                leaving.insert(path.into());
            } else {
                leaving.remove(&*path);
            }
        }
        _ => {
            let json = (!gone).then_some(&object.json);
            engine.set_object(object.cluster(), &key(collection, object), json, object.revision);
        }
    }
}

/// Passes all objects of a workspace.
fn feed_all(state: &mut State, server: &Server, workspace: &str) {
    let prefix = format!("{workspace}/");
    for collection in server.cache.names() {
        if !matters(&ObjectKey { collection: bound::plain(&collection), namespace: "x", name: "x" }) {
            continue;
        }
        for object in server.cache.snapshot(&collection).items.range(&prefix, "") {
            if matters(&key(&collection, object)) {
                feed(state, server, &collection, object, false);
            }
        }
    }
}

/// The workspace that a SyncTarget names, and the SyncTarget as the scheduler sees it. `None` for one that is being deleted.
fn instance(server: &Server, home: &str, value: &Value) -> Option<(Option<Arc<str>>, Instance)> {
    let target = target::Target::read(value)?;
    let allowed = target.asks_for(server, home).filter(|(_, allowed)| *allowed == target::Allowed::Yes);
    let workspace = allowed.map(|(name, _)| (&**name).into());
    let evict_after = value["spec"]["evictAfter"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
    let instance = Instance {
        joined: target.credential.is_some(),
        uid: target.uid,
        labels: map(&value["metadata"]["labels"]),
        unschedulable: value["spec"]["unschedulable"] == true,
        evict_after: evict_after.map(|at| at.as_second()),
        ready: target.ready,
        workspace,
    };
    Some((target.workspace, instance))
}

/// Waits until the cache is where the store is. `None` when the store is closed: nobody is left to serve.
async fn reach_newest(server: &Server) -> Option<u64> {
    loop {
        let reached = async {
            let newest = server.cache.store().revision().await?;
            server.cache.catch_up(newest).await.map(|()| newest)
        };
        match reached.await {
            Ok(newest) => return Some(newest),
            Err(store::Error::Closed) => return None,
            Err(error) => tracing::warn!(%error, "edges have to wait for the store"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The keys in which two sets differ.
pub fn differences(one: &Set, other: &Set) -> Vec<Key> {
    let one = one.objects();
    let other = other.objects();
    let lost = one.keys().filter(|key| !other.contains_key(*key));
    let new = other.iter().filter(|(key, content)| one.get(*key) != Some(content)).map(|(key, _)| key);
    lost.chain(new).cloned().collect()
}
