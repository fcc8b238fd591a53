//! Watch: what exists, if asked for, and then every change, from the collection's own history.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::Bytes;
use cache::object::Object;
use cache::{Audience, Change, ChangeKind, Collection, TooOld};
use schema::status::{Result, Status};
use serde_json::json;
use store::Revision;
use tokio::{sync::watch, time::Instant};

use super::{
    get::reach,
    options::{self, Start},
    selection::Selection,
};
use crate::{
    call::Call,
    exports,
    kinds::Kind,
    negotiate::Shape,
    render,
    render::EventWriter,
    reply::Reply,
    turns::Turns,
    webhooks::convert,
    workspaces::{Stay, wildcard},
};

/// How many changes are taken from the history at once; how much is sent in one piece.
const CHANGES: usize = 512;
const PIECE: usize = 128 << 10;
/// What an event adds to its object.
const EVENT: usize = 40;
/// A watcher that was quiet hears of a change at once. When changes come thick, it hears of them in bundles: each piece costs a
/// system call and an encryption, whatever is in it, so the more watch, the further bundles are apart. All watchers of a collection
/// hear of them at the same moments: whoever watches the same then hears the same, which is made once.
const BUNDLE_FOR_EACH: Duration = Duration::from_micros(250);
const BUNDLE: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(25);
/// What the moments of all bundles are counted from.
static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);
/// How often an idle watch that allows it is told how far the world has gone.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Watches without a timeout end between half an hour and an hour from now, so that clients spread out.
const SHORTEST: u64 = 1800;

pub async fn watch(call: &Call) -> Result<Reply> {
    let start = match call.target.watch {
        // The old form of a watch is checked as a list, as it says nothing of a watch in its query.
        true if !call.query.flag("watch") => {
            options::list(&call.query)?;
            options::watch(&call.query.without("resourceVersionMatch").without("continue"))?
        }
        _ => options::watch(&call.query)?,
    };
    options::limit(&call.query)?;
    let selection = Selection::of(call)?;
    if let Start::Existing { at_least, .. } = start {
        reach(call, at_least).await?;
    }
    // Fields that only a webhook knows are looked at behind it.
    let later = selection.sees_converted(&call.kind);
    let collection = call.server.cache.collection(&call.kind.collection);
    let changed = collection.subscribe();
    let (existing, position) = match start {
        Start::Existing { .. } => {
            let snapshot = call.snapshot();
            let wanted = |object: &Object| match later {
                true => selection.might_match(object),
                false => selection.matches(&call.kind, object),
            };
            let mut items = Vec::new();
            let mut turns = Turns::default();
            for object in snapshot.items.range(selection.prefix(), "") {
                turns.pass().await;
                if wanted(object) {
                    items.push(if call.is_across() { wildcard::annotated(object) } else { object.clone() });
                }
            }
            (items, snapshot.revision)
        }
        Start::After(revision) if revision < call.server.workspaces.born(&call.cluster) => {
            let born = call.server.workspaces.born(&call.cluster);
            return Err(Status::expired(format!("too old resource version: {revision} ({born})")));
        }
        Start::After(revision) => (Vec::new(), revision),
        Start::Now => (Vec::new(), call.snapshot().revision),
    };
    let mut existing = convert::objects(&call.server, &call.kind, existing).await?;
    if later {
        existing.retain(|object| selection.matches(&call.kind, object));
    }
    let seconds = match call.query.get("timeoutSeconds").parse::<u64>() {
        Ok(seconds) if seconds > 0 => seconds.min(86_400),
        _ => SHORTEST + rand::random_range(0..SHORTEST),
    };
    let include = render::include_object(call.accept, &call.query)?;
    let gate = exports::Gate::of(call, position)?;
    let alike = gate.is_none() && convert::by_webhook(&call.kind).is_none() && call.accept.shape != Shape::Table;
    let audience = selection.text().filter(|_| alike).map(|selected| {
        let form = (call.accept, include, call.is_across());
        collection.audiences.join(&format!("{:p} {form:?} {selected}", Arc::as_ptr(&call.kind)))
    });
    let watcher = Watcher {
        audience,
        call_kind: call.kind.clone(),
        across: call.is_across(),
        gate,
        stay: call.server.workspaces.stay(&call.cluster),
        server: call.server.clone(),
        cache: call.server.cache.clone(),
        collection,
        changed,
        position,
        selection,
        existing: existing.into_iter(),
        mark: matches!(start, Start::Existing { marked: true, .. }),
        bookmarks: call.query.flag("allowWatchBookmarks"),
        next_bookmark: Instant::now() + BOOKMARK_EVERY,
        deadline: Instant::now() + Duration::from_secs(seconds),
        shutdown: call.server.shutdown.clone(),
        writer: EventWriter::new(call.accept, include),
        ended: false,
        last_sent: None,
    };
    Ok(Reply::Watch(Box::pin(futures::stream::unfold(watcher, |mut w| async move { w.next().await.map(|b| (b, w)) }))))
}

struct Watcher {
    /// Those who are told the very same, if there can be any.
    audience: Option<Arc<Audience>>,
    call_kind: Arc<Kind>,
    /// Over all workspaces, of which objects then say theirs.
    across: bool,
    stay: Stay,
    server: Arc<crate::Server>,
    /// What the provider of an export may see can change under a watch, which then has to begin anew.
    gate: Option<exports::Gate>,
    cache: Arc<cache::Cache>,
    collection: Arc<Collection>,
    changed: watch::Receiver<()>,
    /// Everything up to here was sent or did not concern this watch.
    position: Revision,
    selection: Selection,
    existing: std::vec::IntoIter<Arc<Object>>,
    /// A bookmark marks the end of what existed.
    mark: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    shutdown: watch::Receiver<bool>,
    writer: EventWriter,
    ended: bool,
    last_sent: Option<Instant>,
}

impl Watcher {
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        if self.existing.len() > 0 {
            // Others have a turn between two pieces of many objects.
            tokio::task::yield_now().await;
        }
        let mut out = Vec::new();
        while out.len() < PIECE
            && let Some(object) = self.existing.next()
        {
            self.writer.write(&mut out, &self.call_kind, "ADDED", &object, None);
        }
        if self.existing.len() == 0 && self.mark {
            self.mark = false;
            self.writer.bookmark(&mut out, &self.call_kind, self.position, true);
        }
        if !out.is_empty() {
            return Some(out.into());
        }
        loop {
            if let Some(bundled) = self.next_bundle()
                && self.has_more()
            {
                tokio::time::sleep_until(bundled).await;
            }
            self.changed.mark_unchanged();
            let shared = self.audience.take().map(|audience| {
                let news = self.news_of_all(&audience);
                self.audience = Some(audience);
                news
            });
            let news = match shared.filter(|_| self.stay.until().is_none()) {
                Some(news) => news,
                None => self.own_news().await,
            };
            match news {
                Ok(Some((until, bytes))) => {
                    self.position = until;
                    if !bytes.is_empty() {
                        self.last_sent = Some(Instant::now());
                        return Some(bytes);
                    }
                    if self.ended {
                        return None;
                    }
                    continue;
                }
                Ok(None) => {}
                Err(status) => {
                    self.ended = true;
                    self.writer.error(&mut out, &status);
                    return Some(out.into());
                }
            }
            tokio::select! {
                biased;
                changed = self.changed.changed() => changed.ok()?,
                _ = self.shutdown.wait_for(|down| *down) => return None,
                why = exports::Gate::closed(&mut self.gate) => {
                    self.ended = true;
                    self.writer.error(&mut out, &why);
                    return Some(out.into());
                }
                () = tokio::time::sleep_until(self.deadline) => return None,
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                    // Every change up to the cache's revision has been through this collection; look once more, then tell.
                    let seen = self.cache.revision();
                    if self.collection.since(self.position, 1).is_ok_and(|rest| rest.is_empty()) {
                        self.position = self.position.max(seen);
                        self.writer.bookmark(&mut out, &self.call_kind, self.position, false);
                        return Some(out.into());
                    }
                }
            }
        }
    }

    fn has_more(&self) -> bool {
        self.collection.newest() > self.position
    }

    /// When to hear of changes again; at once if the last were before this bundle's time began.
    fn next_bundle(&self) -> Option<Instant> {
        let apart = bundle(self.collection.watchers());
        let number = |at: Instant| at.duration_since(*BEGINNING).as_nanos() / apart.as_nanos();
        let current = number(Instant::now());
        if number(self.last_sent?) < current {
            return None;
        }
        Some(*BEGINNING + apart.saturating_mul(u32::try_from(current + 1).unwrap_or(u32::MAX)))
    }

    /// The changes since this watch's position as its audience is told of them, and up to which revision.
    fn news_of_all(&mut self, audience: &Arc<Audience>) -> Result<Option<(Revision, Bytes)>> {
        let mut failed = None;
        let news = audience.after(self.position, || match self.collection.since(self.position, CHANGES) {
            Ok(changes) => self.told(&changes),
            Err(too_old) => {
                failed = Some(too_old);
                None
            }
        });
        match failed {
            Some(too_old) => Err(self.expired(&too_old)),
            None => Ok(news),
        }
    }

    /// The same for one whom nobody is like, or whose workspace has ended: what came later is another one's.
    async fn own_news(&mut self) -> Result<Option<(Revision, Bytes)>> {
        let changes = self.collection.since(self.position, CHANGES).map_err(|too_old| self.expired(&too_old))?;
        let mut changes = convert::changes(&self.server, &self.call_kind, changes).await?;
        if let Some(until) = self.stay.until() {
            let still = changes.partition_point(|change| change.revision() <= until);
            self.ended = still < changes.len();
            changes.truncate(still);
            if self.ended && changes.is_empty() {
                return Ok(Some((until, Bytes::new())));
            }
        }
        Ok(self.told(&changes))
    }

    fn told(&mut self, changes: &[Arc<Change>]) -> Option<(Revision, Bytes)> {
        let until = changes.last()?.revision();
        let mut out = Vec::with_capacity(changes.iter().map(|change| change.object.json.len() + EVENT).sum());
        for change in changes {
            self.tell(&mut out, change);
        }
        Some((until, out.into()))
    }

    fn expired(&self, too_old: &TooOld) -> Status {
        Status::expired(format!("too old resource version: {} ({})", self.position, too_old.oldest))
    }

    /// A change as this watcher's selection sees it: objects come into view, change, and leave it.
    fn tell(&mut self, out: &mut Vec<u8>, change: &Arc<Change>) {
        if !self.selection.covers(&change.object) {
            return;
        }
        let change = &if self.across { wildcard::annotated_change(change) } else { change.clone() };
        let kind = &self.call_kind;
        let matches = |o: &Object| self.selection.matches(kind, o);
        let is = change.kind != ChangeKind::Deleted && matches(&change.object);
        let was = change.previous.as_deref().is_some_and(matches);
        match (was, is) {
            (false, false) => {}
            (true, true) => self.writer.write(out, kind, "MODIFIED", &change.object, Some(&change.message)),
            (false, true) => self.writer.write(out, kind, "ADDED", &change.object, Some(&change.message)),
            (true, false) if change.kind == ChangeKind::Deleted => {
                self.writer.write(out, kind, "DELETED", &change.object, Some(&change.message));
            }
            (true, false) => {
                // It left the selection: told as it last was in it, under the revision at which it left.
                if let Some(previous) = &change.previous {
                    let gone = previous.at_revision(change.revision());
                    self.writer.write(out, kind, "DELETED", &gone, None);
                }
            }
        }
    }
}

/// How far apart bundles are when so many watch.
fn bundle(watchers: usize) -> Duration {
    let wanted = BUNDLE_FOR_EACH.saturating_mul(u32::try_from(watchers).unwrap_or(u32::MAX));
    wanted.clamp(*BUNDLE.start(), *BUNDLE.end())
}

/// The empty object that carries a bookmark's revision.
pub fn bookmark_object(kind: &Kind, revision: Revision, initial_end: bool) -> serde_json::Value {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if initial_end {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    json!({"kind": kind.name(), "apiVersion": kind.api_version, "metadata": metadata})
}
