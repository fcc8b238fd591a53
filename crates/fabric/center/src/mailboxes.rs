//! A Workspace object for every SyncTarget: what people see of mailboxes in the workspace of the edge service provider.
//!
//! Each is one small object and nothing else. Whatever was missed (a restart, another center) is found by comparing everything once at
//! the start; from then on only what changed is looked at.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use cache::object::Object;
use cache::{Change, ChangeKind};
use kinds::{EdgeId, mailbox};
use schema::selector::scan;
use server::Server;
use server::workspaces::light::Light;
use server::workspaces::{WORKSPACES, light};
use tokio::sync::Notify;

use crate::target;

/// Objects in one commit: etcd takes at most 128 operations.
const AT_ONCE: usize = 64;
const RETRY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Mailboxes {
    /// Mailboxes to be looked at, by name, with whose they are or were.
    due: Mutex<BTreeMap<String, EdgeId>>,
    filled: Notify,
    /// Until then nothing is noted, as everything is going to be compared.
    started: AtomicBool,
}

impl Mailboxes {
    /// Sees every change of the server's.
    pub fn observe(&self, collection: &str, change: &Change) {
        let of_target = collection == target::COLLECTION;
        if !(of_target || collection == WORKSPACES) || !self.started.load(Relaxed) {
            return;
        }
        match change.kind {
            // A SyncTarget's mailbox has its uid, which never changes.
            ChangeKind::Added | ChangeKind::Deleted if of_target => self.push(named(&change.object)),
            // Whoever changes one may have changed what it says of whose it is: what was known before counts.
            ChangeKind::Modified | ChangeKind::Deleted if !of_target => {
                let known = change.previous.as_ref().unwrap_or(&change.object);
                if let Some((name, edge)) = whose(known) {
                    self.due().entry(name).or_insert(edge);
                    self.filled.notify_one();
                }
            }
            _ => {}
        }
    }

    fn push(&self, some: impl IntoIterator<Item = (String, EdgeId)>) {
        self.due().extend(some);
        self.filled.notify_one();
    }

    fn due(&self) -> MutexGuard<'_, BTreeMap<String, EdgeId>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take(&self) -> Vec<(String, EdgeId)> {
        loop {
            let filled = self.filled.notified();
            {
                let mut due = self.due();
                let some: Vec<_> = std::iter::from_fn(|| due.pop_first()).take(AT_ONCE).collect();
                if !some.is_empty() {
                    return some;
                }
            }
            filled.await;
        }
    }

    /// Keeps mailboxes as they should be, until the server stops.
    pub async fn run(&self, server: Arc<Server>) {
        self.started.store(true, Relaxed);
        self.compare(&server).await;
        loop {
            let some = self.take().await;
            self.settle(&server, some).await;
        }
    }

    /// Looks at everything once.
    async fn compare(&self, server: &Arc<Server>) {
        let mut batch = Vec::new();
        let snapshot = server.cache.snapshot(target::COLLECTION);
        for object in snapshot.items.range("", "") {
            batch.extend(named(object).filter(|(name, edge)| is_due(server, name, edge)));
            if batch.len() >= AT_ONCE {
                self.settle(server, std::mem::take(&mut batch)).await;
            }
        }
        let snapshot = server.cache.snapshot(WORKSPACES);
        for object in snapshot.items.range(&format!("{}/", mailbox::PROVIDER), "") {
            batch.extend(whose(object).filter(|(name, edge)| is_due(server, name, edge)));
            if batch.len() >= AT_ONCE {
                self.settle(server, std::mem::take(&mut batch)).await;
            }
        }
        self.settle(server, batch).await;
    }

    /// Brings these to order. What could not be done is due again.
    async fn settle(&self, server: &Arc<Server>, some: Vec<(String, EdgeId)>) {
        let (made, gone): (Vec<_>, Vec<_>) = some
            .iter()
            .filter(|(name, edge)| is_due(server, name, edge))
            .partition(|(name, edge)| is_wanted(server, name, edge));
        let annotations: Vec<_> = made.iter().map(|(_, edge)| annotations(edge)).collect();
        let made: Vec<_> =
            made.iter().zip(&annotations).map(|((name, _), annotations)| Light { name, annotations }).collect();
        let gone: Vec<&str> = gone.iter().map(|(name, _)| name.as_str()).collect();
        if made.is_empty() && gone.is_empty() || *server.shutdown.borrow() {
            return;
        }
        match light::write(server, &made, &gone).await {
            Ok(true) => return,
            // Somebody was faster.
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(error = error.message, "mailboxes could not be written; they are tried again");
                tokio::time::sleep(RETRY).await;
            }
        }
        self.push(some);
    }
}

fn annotations(edge: &EdgeId) -> [(&str, &str); 2] {
    [(mailbox::SYNC_TARGET, &edge.name), (mailbox::INVENTORY, &edge.workspace)]
}

/// The mailbox of a SyncTarget.
fn named(target: &Object) -> Option<(String, EdgeId)> {
    let uid = scan::string_at(&target.json, &["metadata", "uid"])?;
    Some((mailbox::name(target.cluster(), &uid), EdgeId::new(target.cluster(), target.name())))
}

/// Whose mailbox a Workspace object is; `None` if it is none.
pub fn whose(object: &Object) -> Option<(String, EdgeId)> {
    if object.cluster() != mailbox::PROVIDER || !light::is_light(object) {
        return None;
    }
    let annotation = |key: &str| scan::string_at(&object.json, &["metadata", "annotations", key]).unwrap_or_default();
    let edge = EdgeId::new(&annotation(mailbox::INVENTORY), &annotation(mailbox::SYNC_TARGET));
    Some((object.name().to_owned(), edge))
}

/// Whether the SyncTarget is there whose uid is in the name.
fn is_wanted(server: &Server, name: &str, edge: &EdgeId) -> bool {
    let key = format!("{}//{}", edge.workspace, edge.name);
    let uid = server.cache.get(target::COLLECTION, &key).and_then(|object| named(&object));
    uid.is_some_and(|(of, _)| of == name)
}

/// Whether something has to be written.
fn is_due(server: &Server, name: &str, edge: &EdgeId) -> bool {
    let found = server.cache.get(WORKSPACES, &format!("{}//{name}", mailbox::PROVIDER));
    match (found, is_wanted(server, name, edge)) {
        (Some(object), true) => !Light { name, annotations: &annotations(edge) }.is_shown(server, &object),
        (None, wanted) => wanted,
        (Some(_), false) => true,
    }
}
