//! What grows old: Events are forgotten after an hour, and history that nobody can ask for any more is given up.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use store::{Commit, Op, Revision};
use tokio::time::Instant;

use crate::{Server, internal::Internal, verbs::delete::Options};

const EVERY: Duration = Duration::from_secs(60);
/// Upstream's default: how long an Event lives after it was last written.
const EVENTS: Duration = Duration::from_secs(3600);
/// A key that is written so that the revision moves on.
const MARK: &str = "~compaction";

pub async fn run(server: Arc<Server>) {
    let mut past = Past::default();
    // How long history is kept.
    let history = server.limits.history_age;
    let every = EVERY.min(history / 5);
    loop {
        past.note(Instant::now(), server.cache.revision());
        tokio::time::sleep(every).await;
        if server.cache.is_paged() {
            move_on(&server).await;
        }
        let now = Instant::now();
        if let Some(revision) = past.before(now, EVENTS) {
            forget_events(&server, revision).await;
        }
        let Some(revision) = past.before(now, history) else { continue };
        server.cache.age(revision);
        // A store of our own trims itself; a shared one waits for somebody to say what may go.
        if server.has_shared_store()
            && let Err(error) = server.cache.store().compact(revision).await
        {
            tracing::warn!(%error, revision, "old history could not be given up; trying again");
        }
    }
}

/// Lists of which somebody has a part grow old on a quiet server too. As upstream's compaction does, a write sees to it
/// that what is listed later is of another revision.
async fn move_on(server: &Arc<Server>) {
    let mark = Op::Put { key: MARK.to_owned(), value: Bytes::from(clock::now()) };
    if let Err(error) = server.cache.store().commit(Commit { compares: Vec::new(), ops: vec![mark] }).await {
        tracing::debug!(%error, "the revision could not be moved on; trying again");
    }
}

async fn forget_events(server: &Arc<Server>, written_until: Revision) {
    let Some(kind) = server.kinds.find(request::ROOT, "", "v1", "events") else { return };
    let snapshot = server.cache.snapshot(&kind.collection);
    for event in snapshot.items.range("", "").filter(|event| event.revision <= written_until) {
        let hand = Internal::new(server, event.cluster(), "kube-apiserver");
        if let Err(error) = hand.delete(&kind, event, &Options::background()).await {
            tracing::warn!(%error, key = %event.key, "an old Event could not be deleted");
        }
    }
}

/// Which revision was the newest when: the age of an object is that of its revision, and nothing has to be parsed for it.
#[derive(Default)]
struct Past(VecDeque<(Instant, Revision)>);

impl Past {
    fn note(&mut self, now: Instant, revision: Revision) {
        self.0.push_back((now, revision));
        while self.0.len() > 2 && self.0.get(1).is_some_and(|(at, _)| now.duration_since(*at) > EVENTS) {
            self.0.pop_front();
        }
    }

    /// Everything up to this revision is older than `age`.
    fn before(&self, now: Instant, age: Duration) -> Option<Revision> {
        let old = self.0.iter().take_while(|(at, _)| now.duration_since(*at) >= age);
        old.last().map(|(_, revision)| *revision).filter(|revision| *revision > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_have_an_age() {
        let start = Instant::now();
        let mut past = Past::default();
        for minute in 0..200u64 {
            past.note(start + EVERY * minute as u32, minute * 10);
        }
        let now = start + EVERY * 199;
        assert_eq!(past.before(now, EVENTS), Some(1390));
        assert_eq!(past.before(now, EVERY * 5), Some(1940));
        assert!(past.0.len() < 70, "what is too old to matter is forgotten: {}", past.0.len());
        assert_eq!(Past::default().before(now, EVENTS), None);
    }
}
