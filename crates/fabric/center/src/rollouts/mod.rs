//! Rollouts: which revision of what a placement places each edge is to have. The decisions are [`placement::rollout`]'s; here they are fed
//! with how edges fare, carried out through the engine, and written to `EdgePlacement.status.rollout`.
//!
//! What may not be late happens with the engine's own changes, in order: a placement has its rollout before any edge hears of it. The
//! rest is a task's. It writes down where a rollout is before edges hear of it, so a center that starts anew never takes anything back.

mod contents;
pub mod facts;
mod follow;
mod run;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use placement::{
    Id,
    engine::{Assign, Engine, Saved},
    facts::PLACEMENTS,
    rollout::{RESUME, Spec, State, order},
};
use serde_json::Value;
use server::Server;
use store::Store;
use tokio::sync::Notify;

use facts::Known;
use kinds::EdgeId;

use crate::{Fleet, others::Step};

pub use run::run;

/// The engine's number for what was there before the first revision. Its zero is what is declared now.
const NOTHING: u64 = u64::MAX;
/// What is changed within this time is one revision,
const QUIET: Duration = Duration::from_millis(300);
/// unless it goes on for longer than this.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Default)]
pub struct Rollouts {
    table: Mutex<HashMap<Id, Rollout>>,
    /// Placements that have none any more, and their uids.
    ended: Mutex<Vec<(Id, Box<str>)>>,
    wake: Notify,
}

struct Rollout {
    uid: Box<str>,
    spec: Result<Spec, String>,
    generation: i64,
    /// Somebody says to go on although edges failed.
    resume: bool,
    state: State,
    saved: BTreeMap<u64, Arc<Saved>>,
    /// What its first revision is was not written down yet.
    unsaved: bool,
    /// What it selects may be something else: since when, and when that was last said.
    touched: Option<(Instant, Instant)>,
    /// When to look at it again.
    due: Option<Instant>,
    /// Its edges may be others.
    moved: bool,
    edges: HashMap<Id, Known>,
    /// Edges that fare in another way than before.
    stale: BTreeSet<Id>,
    /// What was last written.
    said: Option<Value>,
    /// What another center has written since.
    told: Option<(State, Value)>,
}

/// What a placement says of its rollout.
struct Said {
    uid: Box<str>,
    spec: Result<Spec, String>,
    generation: i64,
    resume: bool,
    state: Option<State>,
    status: Option<Value>,
}

impl Said {
    fn read(value: &Value) -> Option<Self> {
        let metadata = value.get("metadata").filter(|metadata| metadata.get("deletionTimestamp").is_none())?;
        let spec = Spec::read(value)?;
        let status = value.pointer("/status/rollout");
        Some(Self {
            uid: metadata.get("uid").and_then(Value::as_str).unwrap_or_default().into(),
            spec,
            generation: metadata.get("generation").and_then(Value::as_i64).unwrap_or_default(),
            resume: metadata.get("annotations").is_some_and(|all| all.get(RESUME).is_some()),
            state: status.and_then(State::read),
            status: status.cloned(),
        })
    }
}

impl Rollout {
    fn new(said: Said, state: State, saved: BTreeMap<u64, Arc<Saved>>, unsaved: bool) -> Self {
        Self {
            uid: said.uid,
            spec: said.spec,
            generation: said.generation,
            resume: said.resume,
            state,
            saved,
            unsaved,
            touched: None,
            due: Some(Instant::now()),
            moved: true,
            edges: HashMap::new(),
            stale: BTreeSet::new(),
            said: said.status,
            told: None,
        }
    }

    /// Who gets which revision, as the engine asks for it.
    fn assign(&self) -> Assign {
        let (uid, state) = (self.uid.clone(), self.state.clone());
        Arc::new(move |target| number(state.of(order(&uid, target))))
    }

    fn contents(&self) -> BTreeMap<u64, Arc<Saved>> {
        let of = |(number_, saved): (&u64, &Arc<Saved>)| (number(*number_), saved.clone());
        let mut all: BTreeMap<u64, Arc<Saved>> = self.saved.iter().map(of).collect();
        all.insert(NOTHING, Arc::default());
        all
    }

    fn touch(&mut self) {
        let now = Instant::now();
        self.touched = Some((self.touched.map_or(now, |(since, _)| since), now));
    }

    /// When what it selects is to be looked at.
    fn settled(&self) -> Option<Instant> {
        self.touched.map(|(since, last)| (last + QUIET).min(since + PATIENCE))
    }

    fn wanted(&self) -> Option<Instant> {
        [self.due, self.settled()].into_iter().flatten().min()
    }
}

fn number(revision: u64) -> u64 {
    if revision == 0 { NOTHING } else { revision }
}

impl Rollouts {
    /// Before the engine is fed: what was written down of rollouts.
    pub async fn recall(&self, store: &dyn Store, server: &Server) -> Result<(), store::Error> {
        for object in server.cache.snapshot(PLACEMENTS).items.range("", "") {
            let Some(said) = Said::read(&object.value()) else { continue };
            let Some(state) = said.state.clone() else { continue };
            let mut saved = BTreeMap::new();
            for revision in state.revisions.iter().filter(|revision| revision.number > 0) {
                match contents::load(store, &said.uid, revision.number, &revision.digest).await? {
                    Some(found) => drop(saved.insert(revision.number, found)),
                    None => tracing::warn!(
                        placement = object.name(),
                        workspace = object.cluster(),
                        revision = revision.number,
                        "what was in a revision is lost; its edges get what is declared now"
                    ),
                }
            }
            let id = Id::new(object.cluster(), object.name());
            self.table().insert(id, Rollout::new(said, state, saved, false));
        }
        Ok(())
    }

    /// Once the engine knows everything, and before anybody asks it.
    pub fn begin(&self, engine: &mut Engine, server: &Server) {
        for object in server.cache.snapshot(PLACEMENTS).items.range("", "") {
            let id = Id::new(object.cluster(), object.name());
            self.placement(engine, &id, Some(&object.value()));
            if let Some(rollout) = self.table().get_mut(&id) {
                rollout.touch();
                engine.set_rollout(&id, Some(rollout.assign()), rollout.contents());
            }
        }
        self.wake.notify_one();
    }

    /// The engine has just heard of a placement.
    pub fn placement(&self, engine: &mut Engine, id: &Id, value: Option<&Value>) {
        let mut table = self.table();
        let Some(said) = value.and_then(Said::read) else {
            if let Some(rollout) = table.remove(id) {
                self.end(id, rollout);
                if engine.placement(id).is_some() {
                    engine.set_rollout(id, None, BTreeMap::new());
                }
                self.wake.notify_one();
            }
            return;
        };
        match table.get_mut(id).filter(|rollout| rollout.uid == said.uid) {
            Some(rollout) => {
                if let (Some(state), Some(status)) = (said.state, said.status)
                    && state != rollout.state
                {
                    rollout.told = Some((state, status));
                    rollout.due = Some(Instant::now());
                }
                let now = (&said.spec, said.generation, said.resume);
                if now != (&rollout.spec, rollout.generation, rollout.resume) {
                    (rollout.spec, rollout.generation, rollout.resume) = (said.spec, said.generation, said.resume);
                    rollout.due = Some(Instant::now());
                    rollout.touch();
                }
            }
            None => {
                // One that had its rollout from the start has not reached anybody yet.
                let rollout = if said.generation <= 1 {
                    Rollout::new(said, State::begin(None), BTreeMap::new(), false)
                } else {
                    let items = engine.items(id);
                    let state = State::begin(Some(&contents::digest(&items)));
                    Rollout::new(said, state, [(1, Arc::new(Saved::new(items)))].into(), true)
                };
                engine.set_rollout(id, Some(rollout.assign()), rollout.contents());
                // One of the same name may have been there before.
                if let Some(before) = table.insert(id.clone(), rollout) {
                    self.end(id, before);
                }
                table.entry(id.clone()).and_modify(Rollout::touch);
            }
        }
        self.wake.notify_one();
    }

    /// How the edges that are connected here fare with rollouts that are under way, by the uids of their placements.
    pub fn steps(&self, fleet: &Fleet) -> HashMap<EdgeId, BTreeMap<String, Step>> {
        let mut steps: HashMap<EdgeId, BTreeMap<String, Step>> = HashMap::new();
        for rollout in self.table().values().filter(|rollout| !rollout.state.is_complete()) {
            for (id, known) in &rollout.edges {
                let edge = EdgeId::new(&id.workspace, &id.name);
                if fleet.is_connected(&edge) {
                    let step = Step::new(known.revision, known.fact.acked, &known.fact.health);
                    steps.entry(edge).or_default().insert(rollout.uid.to_string(), step);
                }
            }
        }
        steps
    }

    fn end(&self, id: &Id, rollout: Rollout) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push((id.clone(), rollout.uid));
    }

    fn take_ended(&self) -> Vec<(Id, Box<str>)> {
        std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Id, Rollout>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
