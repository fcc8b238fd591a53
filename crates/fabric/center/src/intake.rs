//! Takes in what an edge reports in one session: keeps what it may report, and says what was refused.

use std::{
    collections::HashSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use kinds::{
    ObjectKey,
    upsync::{MOST, Wanted},
};
use link::{Key, Report};
use placement::config::CONFIG;
use server::Server;

use crate::{
    Fleet,
    allowance::{Ledger, Refusal, Standing},
    edges::{Edge, Live},
    news::News,
    reports::{self, Saved, Source},
    set::Set,
};

/// At most this many objects are remembered that the edge was told to hold no more.
const LEFT: usize = 4096;
/// No object has a longer key.
const LONGEST_KEY: usize = 1024;
/// Reports that are of no use any more are not looked for more often than this.
const AGAIN: Duration = Duration::from_secs(60);

/// What is kept of an edge's reports. Whoever writes some has it locked.
#[derive(Default)]
pub struct Books {
    /// Nothing if somebody else may have written since.
    pub ledger: Option<Ledger>,
    /// At most this many bytes are counted for the workspace of the SyncTarget.
    counted: i64,
    pruned: Option<Instant>,
}

impl Books {
    async fn ledger(&mut self, fleet: &Fleet, uid: &str) -> Result<Ledger, store::Error> {
        match self.ledger {
            Some(ledger) => Ok(ledger),
            None => reports::measure(fleet.store(), uid).await,
        }
    }

    fn keep(&mut self, server: &Server, edge: &Edge, ledger: Ledger) {
        let bytes = i64::try_from(ledger.bytes).unwrap_or(i64::MAX);
        server.workspaces.count_bytes(&edge.id.workspace, bytes - self.counted);
        (self.ledger, self.counted) = (Some(ledger), bytes);
    }

    /// Counts what there is, if that was not done before.
    pub async fn open(&mut self, fleet: &Fleet, server: &Server, edge: &Edge) -> Result<(), store::Error> {
        let ledger = self.ledger(fleet, &edge.target().uid).await?;
        self.keep(server, edge, ledger);
        Ok(())
    }

    /// The reports are of an edge that is gone.
    pub fn close(&mut self, server: &Server, edge: &Edge) {
        self.keep(server, edge, Ledger::default());
        self.ledger = None;
    }
}

/// How many reports were refused, by reason.
#[derive(Default)]
pub struct Refused([AtomicU64; Refusal::REASONS.len()]);

impl Refused {
    fn count(&self, why: &Refusal) {
        self.0[why.reason()].fetch_add(1, Relaxed);
    }

    pub fn by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refusal::REASONS.into_iter().zip(self.0.iter().map(|count| count.load(Relaxed)))
    }
}

/// What a session knows of what its edge may report, besides what it shall hold.
#[derive(Default)]
pub struct Intake {
    /// What the edge is asked for, and where that was read.
    asked: Option<(Bytes, Wanted)>,
    /// What it held in this session. It may have something to say of it until it has let go of it.
    left: HashSet<Key>,
}

impl Intake {
    /// The edge shall hold these in another form from now on, or not at all.
    pub fn leave(&mut self, keys: &[Key]) {
        if self.left.len() + keys.len() > LEFT {
            self.left = HashSet::new();
        }
        self.left.extend(keys.iter().take(LEFT).cloned());
    }

    fn read(&mut self, set: &Set) {
        let config = set.content(CONFIG).unwrap_or_default();
        if self.asked.as_ref().is_none_or(|(read, _)| *read != config) {
            let wanted = Wanted::read(&serde_json::from_slice(&config).unwrap_or_default());
            self.asked = Some((config, wanted));
        }
    }

    /// The revision at which the reports are durable, and which of them were refused. Nothing if they could not be
    /// stored.
    pub async fn take(
        &mut self,
        fleet: &Fleet,
        server: &Arc<Server>,
        (edge, live, uid): (&Edge, &Live, &str),
        set: &Set,
        reports: &[Report],
    ) -> Option<Saved> {
        let mut books = edge.writing.lock().await;
        if !edge.is_current(live) {
            return None;
        }
        self.read(set);
        let saved = self.save(fleet, server, (edge, uid), set, &mut books, reports).await;
        match saved {
            Ok(saved) => {
                fleet.acked(saved.revision);
                saved.refused.iter().for_each(|(_, why)| fleet.reports_refused.count(why));
                let kept: Arc<[Report]> = match saved.refused.is_empty() {
                    true => reports.into(),
                    false => reports.iter().filter(|report| saved.keeps(&report.key)).cloned().collect(),
                };
                if !kept.is_empty() {
                    fleet.news.tell(|| News::Reports(edge.id.clone(), kept));
                }
                Some(saved)
            }
            Err(error) => {
                // Nobody knows how much of it was written.
                books.ledger = None;
                tracing::warn!(%error, edge = %edge.id, "reports of an edge could not be stored");
                None
            }
        }
    }

    async fn save(
        &self,
        fleet: &Fleet,
        server: &Arc<Server>,
        (edge, uid): (&Edge, &str),
        set: &Set,
        books: &mut Books,
        reports: &[Report],
    ) -> Result<Saved, store::Error> {
        let lately = OnceLock::new();
        let standing = |key: &str| {
            let asked = |key: ObjectKey<'_>| {
                let wanted = self.asked.as_ref().map(|(_, wanted)| wanted);
                wanted.is_some_and(|wanted| wanted.asks_for(&key) || wanted.may_be_associated(&key))
            };
            if key.len() > LONGEST_KEY {
                Standing::Nothing
            } else if set.has(key) || self.left.contains(key) {
                Standing::Held
            } else if ObjectKey::parse(key).is_some_and(asked) {
                Standing::AskedFor
            } else if lately.get_or_init(|| set.lately()).contains(key) {
                Standing::Held
            } else {
                Standing::Nothing
            }
        };
        let room = |more: i64| server.workspaces.has_room(&edge.id.workspace, 0, more);
        let source = Source { uid, held: set.len(), standing: &standing, room: &room };
        let mut ledger = books.ledger(fleet, uid).await?;
        let full = ledger.whole >= MOST || ledger.fares >= source.held + MOST;
        if full && books.pruned.is_none_or(|at| at.elapsed() > AGAIN) {
            books.pruned = Some(Instant::now());
            ledger = reports::prune(fleet.store(), &source).await?;
        }
        let saved = reports::save(fleet.store(), &source, &mut ledger, reports).await?;
        books.keep(server, edge, ledger);
        Ok(saved)
    }
}
