//! One watch on etcd, through as many streams as it takes.

use std::{collections::VecDeque, time::Duration};

use tokio::sync::watch;

use super::{
    Keys, MARK,
    client::{self, Client, Refused, WatchStream},
    proto,
};
use crate::{Batch, Error, Event, Range, Revision};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct Watcher {
    client: Client,
    keys: Keys,
    range: Range,
    closed: watch::Receiver<bool>,
    stream: Option<WatchStream>,
    /// Everything up to here has been delivered or is in `ready`.
    seen: Revision,
    /// Parts of a response that is not complete yet.
    parts: Vec<proto::WatchEvent>,
    ready: VecDeque<Batch>,
    pause: Duration,
}

impl Watcher {
    pub(super) fn new(
        client: Client,
        keys: Keys,
        range: Range,
        after: Revision,
        closed: watch::Receiver<bool>,
    ) -> Self {
        let (parts, ready) = (Vec::new(), VecDeque::new());
        Self { client, keys, range, closed, stream: None, seen: after, parts, ready, pause: FIRST_PAUSE }
    }

    pub(super) async fn next(&mut self) -> Result<Batch, Error> {
        let mut closed = self.closed.clone();
        tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => Err(Error::Closed),
            result = self.advance() => result,
        }
    }

    async fn advance(&mut self) -> Result<Batch, Error> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(batch);
            }
            if self.range.is_empty() {
                // etcd would refuse it; nothing can ever come.
                std::future::pending::<()>().await;
            }
            let result = match &mut self.stream {
                None => self.open().await,
                Some(stream) => match stream.messages.message().await {
                    Ok(Some(response)) => {
                        self.pause = FIRST_PAUSE;
                        self.take(response)?;
                        continue;
                    }
                    Ok(None) => Err(None),
                    Err(status) => Err(Some(status)),
                },
            };
            if let Err(status) = result {
                self.lost(status).await?;
            }
        }
    }

    async fn open(&mut self) -> Result<(), Option<tonic::Status>> {
        let (key, range_end) = self.keys.range(&self.range);
        let create = proto::WatchCreate {
            key,
            range_end,
            // What was seen is asked for once more, so that etcd refuses it when it is compacted. 0 would mean "now".
            start_revision: self.seen.max(1).cast_signed(),
            progress_notify: true,
            fragment: true,
        };
        self.stream = Some(self.client.watch(create).await?);
        Ok(())
    }

    /// The stream broke: opens another one after a pause, from what was seen. What is half received comes again.
    async fn lost(&mut self, status: Option<tonic::Status>) -> Result<(), Error> {
        self.stream = None;
        self.parts.clear();
        if let Some(status) = status {
            if let Refused::Other(error @ Error::Unusable(_)) = client::reading(&status) {
                return Err(error);
            }
            tracing::debug!(%status, seen = self.seen, "a watch on etcd broke; it goes on from there");
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LAST_PAUSE);
        Ok(())
    }

    fn take(&mut self, response: proto::WatchResponse) -> Result<(), Error> {
        if response.compact_revision > 0 {
            return Err(Error::Compacted { asked: self.seen, oldest: response.compact_revision.cast_unsigned() });
        }
        if response.canceled {
            tracing::debug!(reason = response.cancel_reason, "etcd has ended a watch; it goes on from what was seen");
            self.stream = None;
            self.parts.clear();
            return Ok(());
        }
        let progress = !response.created && response.events.is_empty() && self.parts.is_empty() && !response.fragment;
        self.parts.extend(response.events);
        if progress {
            // Nothing up to here concerns us. Remembering it keeps a quiet watch from falling behind compaction.
            let upto = response.header.unwrap_or_default().revision.cast_unsigned();
            self.seen = self.seen.max(upto);
        } else if !response.fragment {
            self.deliver();
        }
        Ok(())
    }

    fn deliver(&mut self) {
        let seen = self.seen;
        let mut events: Vec<Event> = std::mem::take(&mut self.parts)
            .into_iter()
            .filter_map(|event| self.event(event))
            .filter(|event| revision(event) > seen)
            .collect();
        events.sort_by(|a, b| (revision(a), a.key()).cmp(&(revision(b), b.key())));
        for event in events {
            let revision = revision(&event);
            self.seen = revision;
            if event.key() == MARK {
                // Nothing but how far the watch has come.
                self.ready.push_back(Batch { revision, events: Vec::new() });
                continue;
            }
            match self.ready.back_mut().filter(|batch| batch.revision == revision) {
                Some(batch) => batch.events.push(event),
                None => self.ready.push_back(Batch { revision, events: vec![event] }),
            }
        }
    }

    fn event(&self, event: proto::WatchEvent) -> Option<Event> {
        let entry = self.keys.entry(event.kv?)?;
        Some(match event.kind {
            proto::EVENT_DELETE => Event::Delete { key: entry.key, revision: entry.modified },
            _ => Event::Put(entry),
        })
    }
}

fn revision(event: &Event) -> Revision {
    match event {
        Event::Put(entry) => entry.modified,
        Event::Delete { revision, .. } => *revision,
    }
}
