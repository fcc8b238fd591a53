//! What grows old: Events are forgotten after an hour, and history that nobody can ask for any more is given up.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use store::Revision;
use tokio::time::Instant;

use crate::{Server, internal::Internal, verbs::delete::Options};

const EVERY: Duration = Duration::from_secs(60);
/// Upstream's defaults: how long an Event lives after it was last written, and how long history is kept.
const EVENTS: Duration = Duration::from_secs(3600);
const HISTORY: Duration = Duration::from_secs(300);

pub async fn run(server: Arc<Server>) {
    let mut past = Past::default();
    loop {
        past.note(Instant::now(), server.cache.revision());
        tokio::time::sleep(EVERY).await;
        let now = Instant::now();
        if let Some(revision) = past.before(now, EVENTS) {
            forget_events(&server, revision).await;
        }
        let Some(revision) = past.before(now, HISTORY) else { continue };
        server.cache.age(revision);
        // A store of our own trims itself; a shared one waits for somebody to say what may go.
        if server.has_shared_store()
            && let Err(error) = server.cache.store().compact(revision).await
        {
            tracing::warn!(%error, revision, "old history could not be given up; trying again");
        }
    }
}

async fn forget_events(server: &Arc<Server>, written_until: Revision) {
    let Some(kind) = server.kinds.find(crate::request::ROOT, "", "v1", "events") else { return };
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
        assert_eq!(past.before(now, HISTORY), Some(1940));
        assert!(past.0.len() < 70, "what is too old to matter is forgotten: {}", past.0.len());
        assert_eq!(Past::default().before(now, EVENTS), None);
    }
}
