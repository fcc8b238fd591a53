//! Puts together what a mailbox shows, and keeps it up: from the set that the edge shall hold, and from what it reports.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use cache::object::Object;
use flow::body::Body;
use futures::future::BoxFuture;
use http::Response;
use kinds::{ObjectKey, names};
use link::{Desired, Key};
use schema::catalogue::Resource;
use schema::selector::scan;
use schema::status::Status;
use serde_json::Value;
use server::embedded::Embedded;
use server::replica::{Place, Seen};
use server::{Mount, Mounted, Server, onward};
use store::{Commit, Compare, Op};
use tokio::sync::mpsc;

use super::{
    contents::{self, Said, Shown},
    open::Mailbox,
};
use crate::{
    Fleet, bound,
    edges::Edge,
    history::History,
    placing, reports,
    set::{Set, Since},
    target,
};

/// The workspace in which a mailbox has its objects, in its own server.
const CLUSTER: &str = "root";
const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions/";
/// A desired set that is being put together is waited for this long.
const PATIENCE: Duration = Duration::from_secs(20);
/// Reports are read in pages of so many.
const PAGE: usize = 500;

/// What a mailbox hears.
pub enum Work {
    /// The edge said something of these objects.
    Said(Vec<Key>),
    /// Something about the edge is new.
    Look,
    /// Nobody knows what was missed.
    All,
}

/// Shows in a mailbox that its edge can be asked what it uses. The edge answers, before anything gets here.
struct Measures;

impl Mount for Measures {
    fn takes(&self, _cluster: &str, _path: &str) -> bool {
        false
    }

    fn resources(&self, _cluster: &str) -> Vec<Resource> {
        onward::metrics()
    }

    fn serve(&self, _server: Arc<Server>, _asked: Mounted) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        Box::pin(async { Err(Status::no_such_path()) })
    }
}

/// Puts a mailbox together, with a task that keeps it up until nobody has it any more.
pub async fn make(
    fleet: Arc<Fleet>,
    server: Arc<Server>,
    edge: Arc<Edge>,
    begin: u64,
    work: mpsc::UnboundedReceiver<Work>,
) -> Option<Arc<Mailbox>> {
    let embedded = Embedded::within(&server, begin, vec![Arc::new(Measures)]).await;
    let shown = Arc::new(embedded.inspect_err(|error| tracing::warn!(%error, edge = %edge.id, "no mailbox")).ok()?);
    let _ = tokio::time::timeout(PATIENCE, fleet.placing.wait()).await;
    let set = fleet.desired(&edge);
    let uid = edge.target().uid.clone();
    let mut keeper = Keeper { fleet, server, edge, uid, shown: shown.clone(), set, cursor: 0, held: BTreeSet::new() };
    keeper.all().await;
    shown.begin_here();
    tokio::spawn(keeper.run(work));
    Some(Arc::new(Mailbox { shown }))
}

struct Keeper {
    fleet: Arc<Fleet>,
    server: Arc<Server>,
    edge: Arc<Edge>,
    uid: Box<str>,
    shown: Arc<Embedded>,
    set: Arc<Set>,
    /// How many changes of the set are shown.
    cursor: u64,
    /// What cannot be shown yet, as its kind is not known.
    held: BTreeSet<Key>,
}

impl Keeper {
    async fn run(mut self, mut work: mpsc::UnboundedReceiver<Work>) {
        let mut changes = self.set.follow();
        loop {
            let heard = tokio::select! {
                heard = work.recv() => match heard {
                    Some(heard) => Some(heard),
                    None => return,
                },
                _ = changes.changed() => None,
            };
            let (mut keys, mut everything) = (BTreeSet::new(), false);
            let set = self.fleet.desired(&self.edge);
            if !Arc::ptr_eq(&set, &self.set) {
                changes = set.follow();
                let before = std::mem::replace(&mut self.set, set);
                let since = self.fleet.history().map(|history| before.view(history, 0).since(self.cursor));
                self.cursor = self.fleet.history().map_or(0, |history| self.set.view(history, 0).head());
                keys.extend(placing::differences(&before, &self.set));
                match since {
                    Some(Since::Keys(some)) => keys.extend(some),
                    _ => everything = true,
                }
            }
            for heard in heard.into_iter().chain(std::iter::from_fn(|| work.try_recv().ok())) {
                match heard {
                    Work::Said(some) => keys.extend(some),
                    Work::Look => {}
                    Work::All => everything = true,
                }
            }
            match self.changed() {
                Since::Keys(some) => keys.extend(some),
                Since::Lost => everything = true,
            }
            if everything {
                self.all().await;
            } else if !keys.is_empty() {
                self.show(keys, None).await;
            }
        }
    }

    fn history(&self) -> Option<&History> {
        self.fleet.history()
    }

    fn changed(&mut self) -> Since {
        let Some(history) = self.fleet.history() else { return Since::Keys(Vec::new()) };
        let view = self.set.view(history, 0);
        let since = view.since(self.cursor);
        self.cursor = view.head();
        since
    }

    /// Shows everything as it is now.
    async fn all(&mut self) {
        let mut keys: BTreeSet<Key> = self.shown_now();
        if let Some(history) = self.fleet.history() {
            let view = self.set.view(history, 0);
            self.cursor = view.head();
            keys.extend(view.objects().map(|(key, _)| key.clone()));
        }
        let states = match self.reported().await {
            Ok(states) => states,
            Err(error) => {
                return tracing::warn!(%error, edge = %self.edge.id, "a mailbox could not be brought up to date");
            }
        };
        keys.extend(states.keys().cloned());
        self.show(keys, Some(states)).await;
    }

    async fn reported(&self) -> Result<HashMap<Key, Bytes>, store::Error> {
        let mut states = HashMap::new();
        let mut after = Key::from("");
        loop {
            let page = reports::list(self.fleet.store(), &self.uid, &after, PAGE).await?;
            let full = page.len() == PAGE;
            for report in page {
                after = report.key.clone();
                states.extend(report.state.map(|state| (report.key, state)));
            }
            if !full {
                return Ok(states);
            }
        }
    }

    /// The keys of what is shown.
    fn shown_now(&self) -> BTreeSet<Key> {
        let cache = &self.shown.server().cache;
        let mut keys = BTreeSet::new();
        for collection in cache.names().iter().filter(|name| !name.contains("/_")) {
            let snapshot = cache.snapshot(collection);
            let local = snapshot.items.range("root/", "").filter_map(|object| object.key.strip_prefix("root/"));
            keys.extend(local.map(|local| Key::from(format!("{collection}/{local}"))));
        }
        keys
    }

    /// Shows these as they are now. `states` is all that the edge reported, if that is known; else it is looked up.
    async fn show(&mut self, keys: BTreeSet<Key>, states: Option<HashMap<Key, Bytes>>) {
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let state = match &states {
                Some(states) => states.get(&key).cloned(),
                None => match reports::get(self.fleet.store(), &self.uid, &key).await {
                    Ok(report) => report.and_then(|report| report.state),
                    Err(error) => return tracing::warn!(%error, "a mailbox could not be brought up to date"),
                },
            };
            found.push((key, state));
        }
        // Definitions first: whatever they define can be shown only then, also what came before them.
        let (definitions, mut others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(key, _)| key.starts_with(DEFINITIONS));
        if !definitions.is_empty() {
            self.write(definitions).await;
            for key in std::mem::take(&mut self.held) {
                if let Ok(report) = reports::get(self.fleet.store(), &self.uid, &key).await
                    && !others.iter().any(|(other, _)| *other == key)
                {
                    others.push((key, report.and_then(|report| report.state)));
                }
            }
        }
        self.write(others).await;
    }

    async fn write(&mut self, objects: Vec<(Key, Option<Bytes>)>) {
        let mut commit = Commit::default();
        for (key, state) in &objects {
            self.add(key, state.as_ref(), &mut commit);
        }
        match self.commit(commit).await {
            Some(false) if objects.len() > 1 => {}
            _ => return,
        }
        // Something stands in the way of something else: one after the other, then.
        for (key, state) in &objects {
            let mut commit = Commit::default();
            self.add(key, state.as_ref(), &mut commit);
            if self.commit(commit).await == Some(false) {
                tracing::debug!(%key, edge = %self.edge.id, "not shown in the mailbox");
            }
        }
    }

    async fn commit(&self, commit: Commit) -> Option<bool> {
        if commit.ops.is_empty() {
            return None;
        }
        // No further than the center itself is, as far as that goes: the next mailbox of this edge begins there.
        self.shown.commit(commit, self.fleet.newest()).await.ok()
    }

    fn add(&mut self, key: &Key, state: Option<&Bytes>, commit: &mut Commit) {
        match self.change(key, state, commit) {
            Ok(()) => {
                self.held.remove(key);
            }
            Err(status) => {
                tracing::debug!(%key, edge = %self.edge.id, error = %status, "not shown in the mailbox");
                self.held.insert(key.clone());
            }
        }
    }

    fn change(&self, name: &Key, state: Option<&Bytes>, commit: &mut Commit) -> Result<(), Status> {
        let Some(key) = ObjectKey::parse(name).filter(|key| !key.collection.contains("/_")) else { return Ok(()) };
        let desired = self.history().and_then(|history| self.set.view(history, 0).get(name));
        let said = state.map(|state| Said::read(state));
        let has_spoken = said.is_some();
        let (server, collection) = (self.shown.server(), key.collection);
        let place = Place { server, cluster: CLUSTER, collection, namespace: key.namespace, name: key.name };
        let old = place.get();
        match contents::shown(&key, desired.as_ref(), said) {
            Shown::Nothing => {
                if let Some(old) = old {
                    let key = key.in_store(CLUSTER);
                    commit.compares.push(Compare { key: key.clone(), modified: old.revision });
                    commit.ops.push(Op::Delete { key });
                }
            }
            Shown::Placed(value, status) => {
                let (uid, created) = (contents::uid(&self.uid, name), self.created(&key, &value));
                // One that has said that there is nothing to say has taken back what it said before.
                let status = status.or_else(|| (has_spoken && old.is_some()).then_some(Value::Null));
                let seen = Seen { uid: &uid, created: &created, status: status.as_ref() };
                place.show(value, seen, old.as_deref(), commit)?;
            }
            Shown::Upsynced(mut value) => {
                contents::point_to_owners(&mut value, |version, kind, name| {
                    self.uid_of_placed(version, kind, key.namespace, name)
                });
                place.mirror(value, old.as_deref(), commit)?;
            }
        }
        Ok(())
    }

    /// Under which uid an object is shown, if the edge has it from here.
    fn uid_of_placed(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<String> {
        let kind = self.shown.server().kinds.find_kind(CLUSTER, api_version, kind)?;
        let namespace = if kind.resource.namespaced { namespace } else { "" };
        let key = format!("{}/{namespace}/{name}", kind.collection);
        self.set.view(self.history()?, 0).get(&key)?;
        Some(contents::uid(&self.uid, &key))
    }

    /// Since when there is such an object: where it comes from, or else since there is the edge.
    fn created(&self, key: &ObjectKey<'_>, value: &Value) -> String {
        let text = |object: Arc<Object>| -> Option<String> {
            serde_json::from_slice(scan::raw_at(&object.json, &["metadata", "creationTimestamp"])?).ok()
        };
        let source = value["metadata"]["annotations"][names::SOURCE].as_str();
        let source = source.and_then(|source| bound::source(&self.server, source, key)).and_then(text);
        let edge = || {
            let place = format!("{}//{}", self.edge.id.workspace, self.edge.id.name);
            self.server.cache.get(target::COLLECTION, &place).and_then(text)
        };
        source.or_else(edge).unwrap_or_else(clock::now)
    }
}
