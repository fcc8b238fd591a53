//! What has happened and is not accounted for yet. The same twice is once, so it holds no more than there is, however slow the keeper.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use cache::Change;
use cache::object::Object;
use kinds::{EdgeId, ObjectKey};
use link::Key;
use placement::{Id, account::Source};
use tokio::sync::Notify;

use super::{COLLECTORS, COMBINED};
use crate::{news::News, target};

/// What to look at.
#[derive(Default)]
pub struct Heard {
    /// Everything: something was missed.
    pub everything: bool,
    /// How edges stand with the center.
    pub edges: HashSet<EdgeId>,
    /// Which placements reach them, and by what.
    pub moved: HashSet<EdgeId>,
    /// What they said of objects; nothing if an object is gone there.
    pub reports: HashMap<EdgeId, HashMap<Key, Option<Bytes>>>,
    /// Whose reports do not count any more.
    pub void: HashSet<EdgeId>,
    pub placements: BTreeSet<Id>,
    pub collectors: BTreeSet<Id>,
    pub objects: HashSet<Source>,
}

#[derive(Default)]
pub struct Inbox {
    heard: Mutex<Heard>,
    pub filled: Notify,
    open: AtomicBool,
    /// Workspaces whose objects matter.
    watched: RwLock<HashSet<Arc<str>>>,
}

impl Inbox {
    /// From now on everything is heard.
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub fn hear(&self, note: impl FnOnce(&mut Heard)) {
        if self.is_open() {
            note(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner));
            self.filled.notify_one();
        }
    }

    pub fn take(&self) -> Heard {
        std::mem::take(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn watch(&self, workspaces: HashSet<Arc<str>>) {
        *self.watched.write().unwrap_or_else(PoisonError::into_inner) = workspaces;
    }

    pub fn news(&self, news: &News) {
        self.hear(|heard| match news {
            News::Edge(edge) => _ = heard.edges.insert(edge.clone()),
            News::Reports(edge, reports) => {
                let said = heard.reports.entry(edge.clone()).or_default();
                said.extend(reports.iter().map(|report| (report.key.clone(), report.state.clone())));
            }
        });
    }

    pub fn void(&self, edge: &EdgeId) {
        self.hear(|heard| {
            heard.reports.remove(edge);
            heard.void.insert(edge.clone());
        });
    }

    pub fn again(&self, edge: &EdgeId) {
        if self.is_open() {
            self.hear(|heard| _ = heard.moved.insert(edge.clone()));
        }
    }

    /// Sees every change at the center.
    pub fn observe(&self, collection: &str, change: &Change) {
        if !self.is_open() {
            return;
        }
        let object = &change.object;
        let id = || Id::new(object.cluster(), object.name());
        match collection {
            placement::facts::PLACEMENTS => self.hear(|heard| _ = heard.placements.insert(id())),
            COLLECTORS | COMBINED => self.hear(|heard| _ = heard.collectors.insert(id())),
            target::COLLECTION => {
                let edge = EdgeId::new(object.cluster(), object.name());
                let labels = |object: &Object| object.value().pointer("/metadata/labels").cloned();
                let relabelled = change.previous.as_ref().is_some_and(|before| labels(before) != labels(object));
                self.hear(|heard| {
                    if relabelled {
                        heard.moved.insert(edge.clone());
                    }
                    heard.edges.insert(edge);
                });
            }
            _ => {
                let watched = self.watched.read().unwrap_or_else(PoisonError::into_inner);
                let Some(workspace) = watched.get(object.cluster()).cloned() else { return };
                drop(watched);
                let collection = crate::bound::plain(collection);
                let key = ObjectKey { collection, namespace: object.namespace(), name: object.name() };
                self.hear(|heard| _ = heard.objects.insert((workspace, key.to_string().into())));
            }
        }
    }
}
