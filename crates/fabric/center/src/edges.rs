//! What is known of each edge at this moment: what its SyncTarget says, and the session that it has, if any.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use kinds::{EdgeId, forward::Standing};
use link::{CloseReason, Key, Position, transport::LineSender};
use placement::Id;
use tokio::sync::Notify;

use crate::{bodies::Bodies, instances::Seen, intake::Books, target::Target};

/// At most this many writes that an edge forwards are worked on at a time, and so many wait.
const FORWARDS: usize = 4;
const MAY_WAIT: usize = 256;
/// At most this many refused objects are remembered of one edge; the others are only counted.
const REFUSED: usize = 64;
const LONGEST_REASON: usize = 1024;
/// At most this many reports that were not kept are named.
const UNKEPT: usize = 5;

#[derive(Default)]
pub struct Edges(RwLock<HashMap<EdgeId, Arc<Edge>>>);

/// One edge, for as long as its SyncTarget is there.
pub struct Edge {
    pub id: EdgeId,
    state: Mutex<State>,
    /// Whoever writes its reports takes a turn.
    pub writing: tokio::sync::Mutex<Books>,
    /// How it stands with writes that waited there, once the edge has said so.
    pub writes: Mutex<Option<Standing>>,
    /// The starts of its program that were seen.
    pub seen: Mutex<Seen>,
    /// Made when it first forwards a write.
    forwards: OnceLock<Box<Bodies>>,
}

struct State {
    target: Arc<Target>,
    session: Option<Arc<Live>>,
    lost: Option<Lost>,
}

/// What is remembered of an edge that was connected to this center.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    pub at: i64,
    pub heard: i64,
    /// Which desired set it had, and how many changes that had had when the edge was last known to hold them all.
    pub in_sync_at: Option<(u64, u64)>,
}

/// A session as others see it.
pub struct Live {
    pub id: u64,
    pub since: i64,
    pub sender: LineSender,
    pub heard: AtomicU64,
    pub waiting: AtomicU64,
    pub in_flight: AtomicU64,
    pub wake: Notify,
    orders: Mutex<Vec<Order>>,
    pub facts: Mutex<Facts>,
}

/// What a session knows about its edge.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The handshake is done.
    pub connected: bool,
    pub in_sync: bool,
    pub in_sync_at: Option<(u64, u64)>,
    /// It has acknowledged everything, except objects that it refused and deletions that are held.
    pub delivered: bool,
    /// The set of which that was last so.
    pub delivered_of: Option<u64>,
    /// How many deletions are held, of how many objects.
    pub held: Option<(u64, u64)>,
    /// The same by placement, as far as that is known.
    pub held_by: BTreeMap<Id, u64>,
    pub rolled_back: Option<Position>,
    pub stalled: Option<String>,
    pub refused: BTreeMap<Key, String>,
    pub refused_more: u64,
    /// Which set the session follows.
    pub set: Option<u64>,
    /// What was refused and is another by now: what becomes of that is not known yet.
    pub outdated: BTreeSet<Key>,
    /// Reports that the center did not keep, and why: the first ones.
    pub unkept: BTreeMap<Key, String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    End(CloseReason),
    /// Ends without a word.
    Cut,
    /// The SyncTarget says something new.
    Attend,
    /// It may be of another class by now.
    Move,
}

impl Edges {
    pub fn get(&self, id: &EdgeId) -> Option<Arc<Edge>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// All of one workspace, or of all workspaces.
    pub fn list(&self, workspace: Option<&str>) -> Vec<Arc<Edge>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut list: Vec<_> =
            all.values().filter(|edge| workspace.is_none_or(|w| edge.id.workspace == w)).cloned().collect();
        list.sort_by(|a, b| a.id.cmp(&b.id));
        list
    }

    /// A SyncTarget is there, or has changed: the edge and what it was before.
    pub fn set(&self, id: EdgeId, target: Target) -> (Arc<Edge>, Option<Arc<Target>>) {
        let target = Arc::new(target);
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(edge) = all.get(&id) {
            let before = std::mem::replace(&mut edge.state().target, target);
            return (edge.clone(), Some(before));
        }
        let state = Mutex::new(State { target, session: None, lost: None });
        let edge = Arc::new(Edge {
            id: id.clone(),
            state,
            writing: Default::default(),
            writes: Mutex::default(),
            seen: Mutex::default(),
            forwards: OnceLock::new(),
        });
        all.insert(id, edge.clone());
        (edge, None)
    }

    pub fn remove(&self, id: &EdgeId) -> Option<Arc<Edge>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(id)
    }
}

impl Edge {
    pub fn target(&self) -> Arc<Target> {
        self.state().target.clone()
    }

    /// Room for the writes that it forwards.
    pub fn forwards(&self) -> &Bodies {
        self.forwards.get_or_init(|| Box::new(Bodies::new(FORWARDS, MAY_WAIT)))
    }

    pub fn session(&self) -> Option<Arc<Live>> {
        self.state().session.clone()
    }

    pub fn lost(&self) -> Option<Lost> {
        self.state().lost
    }

    /// A new session begins; the one before it ends.
    pub fn begin(&self, live: Arc<Live>) {
        if let Some(before) = self.state().session.replace(live) {
            before.order(Order::End(CloseReason::Superseded));
        }
    }

    /// A session has ended. Whether the edge is gone with it: false if it has a newer one.
    pub fn end(&self, live: &Live, now: i64) -> bool {
        let mut state = self.state();
        if state.session.as_ref().is_none_or(|current| current.id != live.id) {
            return false;
        }
        let facts = live.facts();
        if facts.connected {
            let heard = live.heard.load(Relaxed) as i64;
            state.lost = Some(Lost { at: now, heard, in_sync_at: facts.in_sync_at });
        }
        drop(facts);
        state.session = None;
        true
    }

    pub fn is_current(&self, live: &Live) -> bool {
        self.state().session.as_ref().is_some_and(|current| current.id == live.id)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    pub fn new(id: u64, now: i64, sender: LineSender) -> Self {
        Self {
            id,
            since: now,
            sender,
            heard: AtomicU64::new(now.max(0) as u64),
            waiting: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            wake: Notify::new(),
            orders: Mutex::default(),
            facts: Mutex::default(),
        }
    }

    pub fn order(&self, order: Order) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        self.wake.notify_one();
    }

    pub fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut *self.orders.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Facts {
    /// What the session says of the edge's troubles is all there is: before, the last known ones stand.
    pub fn is_settled(&self) -> bool {
        self.in_sync || self.held.is_some() || self.refused_count() > 0
    }

    pub fn refuse(&mut self, key: Key, mut reason: String) {
        if let Some((end, _)) = reason.char_indices().nth(LONGEST_REASON) {
            reason = reason[..end].to_owned();
        }
        self.outdated.remove(&key);
        if self.refused.len() < REFUSED || self.refused.contains_key(&key) {
            self.refused.insert(key, reason);
        } else {
            self.refused_more += 1;
        }
    }

    /// The center did not keep a report. Whether that is to be said.
    pub fn not_kept(&mut self, key: &Key, why: impl FnOnce() -> String) -> bool {
        let new = self.unkept.len() < UNKEPT && !self.unkept.contains_key(key);
        if new {
            self.unkept.insert(key.clone(), why());
        }
        new
    }

    pub fn recover(&mut self, key: &Key) {
        self.outdated.remove(key);
        if self.refused.remove(key).is_none() {
            self.refused_more = self.refused_more.saturating_sub(1);
        }
    }

    /// The session follows another set from now on, in which these are another.
    pub fn go_over(&mut self, set: u64, different: &[Key]) {
        self.set = Some(set);
        self.outdated.extend(different.iter().filter(|key| self.refused.contains_key(*key)).cloned());
    }

    /// What was refused of what is in this set.
    pub fn refused_of(&self, set: u64) -> impl Iterator<Item = (&Key, &String)> {
        let all = (self.set == Some(set)).then_some(&self.refused).into_iter().flatten();
        all.filter(|(key, _)| !self.outdated.contains(*key))
    }

    pub fn refused_count(&self) -> u64 {
        self.refused.len() as u64 + self.refused_more
    }
}
