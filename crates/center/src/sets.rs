//! The desired sets that some edge needs: each is put together when it is first asked for, kept up from the server's changes, and let go
//! of when no SyncTarget names it any more.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use server::{
    Server,
    cache::{Change, ChangeKind},
    object::Object,
};
use tokio::sync::mpsc;
use types::ObjectKey;

use crate::{projection, set::Set};

#[derive(Default)]
pub struct Sets {
    kept: Mutex<HashMap<Arc<str>, Kept>>,
    none: Arc<Set>,
}

#[derive(Default)]
struct Kept {
    /// How many SyncTargets name it.
    wanted: usize,
    made: Option<(Arc<Set>, mpsc::UnboundedSender<Seen>)>,
}

/// A change that may matter, and the collection it is in.
type Seen = (Box<str>, Arc<Change>);

impl Sets {
    pub fn new() -> Self {
        Self { none: Arc::new(Set::empty()), ..Self::default() }
    }

    /// A SyncTarget names another workspace than before.
    pub fn named(&self, before: Option<&Arc<str>>, now: Option<&Arc<str>>) {
        if before == now {
            return;
        }
        let mut kept = self.kept();
        if let Some(now) = now {
            kept.entry(now.clone()).or_default().wanted += 1;
        }
        if let Some(before) = before
            && let Some(one) = kept.get_mut(before)
        {
            one.wanted = one.wanted.saturating_sub(1);
            if one.wanted == 0 {
                // Who still has it keeps what it was; its follower ends as nobody tells it anything any more.
                kept.remove(before);
            }
        }
    }

    /// The set of a workspace's objects, made if nobody has asked before. It may not be complete yet.
    pub fn of(&self, server: &Arc<Server>, workspace: Option<&Arc<str>>) -> Arc<Set> {
        let Some(workspace) = workspace else { return self.none.clone() };
        let mut kept = self.kept();
        // Nobody names it any more: whoever asks is about to hear of it.
        let Some(one) = kept.get_mut(workspace) else { return Arc::new(Set::default()) };
        if let Some((set, _)) = &one.made {
            return set.clone();
        }
        let (sender, changes) = mpsc::unbounded_channel();
        let set = Arc::new(Set::default());
        one.made = Some((set.clone(), sender));
        drop(kept);
        tokio::spawn(keep_up(server.clone(), workspace.clone(), set.clone(), changes));
        set
    }

    /// Passes on what happened. Quick: the work is done by the set's own task.
    pub fn observe(&self, collection: &str, change: &Arc<Change>) {
        let kept = self.kept();
        let Some((set, sender)) = kept.get(change.object.cluster()).and_then(|one| one.made.as_ref()) else { return };
        if projection::may_belong(&key(collection, &change.object)) {
            set.expect(change.revision());
            // An error means that the set's task is gone with the runtime.
            let _ = sender.send((collection.into(), change.clone()));
        }
    }

    /// How many sets there are.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.kept().values().filter(|one| one.made.is_some()).count()
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Arc<str>, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key<'a>(collection: &'a str, object: &'a Object) -> ObjectKey<'a> {
    ObjectKey { collection, namespace: object.namespace(), name: object.name() }
}

/// Puts a set together and keeps it up until nobody wants it.
async fn keep_up(server: Arc<Server>, workspace: Arc<str>, set: Arc<Set>, mut changes: mpsc::UnboundedReceiver<Seen>) {
    let put = |collection: &str, object: &Object, gone: bool| {
        let key = key(collection, object);
        let content = if gone { None } else { projection::project(&key, object.value(), &workspace) };
        set.apply(&key.to_string(), content, object.revision);
    };
    let apply = |(collection, change): &Seen| put(collection, &change.object, change.kind == ChangeKind::Deleted);
    let prefix = format!("{workspace}/");
    for collection in server.cache.names() {
        for object in server.cache.snapshot(&collection).items.range(&prefix, "") {
            if projection::may_belong(&key(&collection, object)) {
                put(&collection, object, false);
            }
        }
        tokio::task::yield_now().await;
    }
    // Snapshots were taken one after the other: the set is whole when it has followed to where the store is now.
    let Some(whole_at) = reach_newest(&server).await else { return };
    let mut later = None;
    while let Ok(change) = changes.try_recv() {
        if change.1.revision() > whole_at {
            later = Some(change);
            break;
        }
        apply(&change);
    }
    set.complete();
    if let Some(change) = later {
        apply(&change);
    }
    while let Some(change) = changes.recv().await {
        apply(&change);
    }
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
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}
