//! The mailboxes that somebody looks into: a bounded number, each made once however many ask, let go when nobody has looked for a while.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use flow::body::Body;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use http::{HeaderMap, Response};
use kinds::EdgeId;
use schema::status::{Result, Status};
use server::Server;
use server::embedded::Embedded;
use tokio::sync::{broadcast, mpsc};

use super::keep::{self, Work};
use crate::{
    Fleet,
    edges::Edge,
    news::News,
    placing::{Moved, id_of},
};

/// One that nobody has looked into for so long is let go.
const IDLE: Duration = Duration::from_secs(60);
/// With so many open, the one that was looked into longest ago makes room. Those that are watched stay,
const MANY: usize = 64;
/// up to this number.
const MOST: usize = 512;
/// How often it is looked for idle ones.
const LOOK: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct Open(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    open: HashMap<EdgeId, Slot>,
    /// The furthest revision that one of those was at which are gone: no later one begins before it.
    gone_at: u64,
    /// Somebody passes on what is heard of edges.
    tended: bool,
}

struct Slot {
    uid: Box<str>,
    used: Instant,
    tell: mpsc::UnboundedSender<Work>,
    making: Making,
}

/// A mailbox once it is made; nothing if it could not be.
type Making = Shared<BoxFuture<'static, Option<Arc<Mailbox>>>>;

/// What is shown of one edge. Whoever holds it keeps it open.
pub struct Mailbox {
    pub shown: Arc<Embedded>,
}

impl Mailbox {
    pub fn server(&self) -> &Arc<Server> {
        self.shown.server()
    }

    /// Answers a request for reading, and stays open until the answer has ended.
    pub async fn read(self: Arc<Self>, path_and_query: &str, headers: HeaderMap) -> Option<Response<Body>> {
        let response = self.shown.read(path_and_query, headers).await?;
        let open: Box<dyn Send> = Box::new(self);
        Some(response.map(|body| body.until_end(open)))
    }
}

impl Open {
    /// The mailbox of an edge, made if nobody looks into it.
    pub async fn at(fleet: &Arc<Fleet>, server: &Arc<Server>, edge: &Arc<Edge>) -> Result<Arc<Mailbox>> {
        let making = {
            let mut inner = fleet.open.lock();
            inner.tend(fleet, server);
            inner.slot(fleet, server, edge)?
        };
        match making.await {
            Some(mailbox) => Ok(mailbox),
            None => {
                fleet.open.lock().open.remove(&edge.id);
                Err(Status::unavailable("the mailbox could not be put together: ask again").retry_after(1))
            }
        }
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.lock().open.len()
    }

    /// As if nobody had looked for a long time.
    #[cfg(test)]
    pub fn let_go(&self) {
        let mut inner = self.lock();
        let long_ago = Instant::now().checked_sub(2 * IDLE).unwrap();
        inner.open.values_mut().for_each(|slot| slot.used = long_ago);
        inner.sweep();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn slot(&mut self, fleet: &Arc<Fleet>, server: &Arc<Server>, edge: &Arc<Edge>) -> Result<Making> {
        let uid = edge.target().uid.clone();
        if let Some(slot) = self.open.get_mut(&edge.id).filter(|slot| slot.uid == uid) {
            slot.used = Instant::now();
            return Ok(slot.making.clone());
        }
        // What is left of a SyncTarget of the same name shows another edge.
        self.remove(&edge.id);
        if self.open.len() >= MANY {
            let idle = self.open.iter().filter(|(_, slot)| slot.is_idle());
            let oldest = idle.min_by_key(|(_, slot)| slot.used).map(|(id, _)| id.clone());
            if let Some(oldest) = oldest {
                self.remove(&oldest);
            }
        }
        if self.open.len() >= MOST {
            return Err(Status::too_many_requests("too many mailboxes are being watched already", 5));
        }
        let (tell, work) = mpsc::unbounded_channel();
        let begin = self.gone_at.max(fleet.newest());
        let made = tokio::spawn(keep::make(fleet.clone(), server.clone(), edge.clone(), begin, work));
        let making = async move { made.await.ok().flatten() }.boxed().shared();
        self.open.insert(edge.id.clone(), Slot { uid, used: Instant::now(), tell, making: making.clone() });
        Ok(making)
    }

    fn remove(&mut self, id: &EdgeId) {
        let Some(slot) = self.open.remove(id) else { return };
        if let Some(Some(mailbox)) = slot.making.peek() {
            self.gone_at = self.gone_at.max(mailbox.server().cache.revision());
        }
    }

    fn sweep(&mut self) {
        let gone = self.open.iter().filter(|(_, slot)| slot.used.elapsed() > IDLE && slot.is_idle());
        let gone: Vec<EdgeId> = gone.map(|(id, _)| id.clone()).collect();
        gone.iter().for_each(|id| self.remove(id));
        // Whoever watched was looking all the time.
        for slot in self.open.values_mut().filter(|slot| !slot.is_idle()) {
            slot.used = Instant::now();
        }
    }

    fn tend(&mut self, fleet: &Arc<Fleet>, server: &Arc<Server>) {
        if !std::mem::replace(&mut self.tended, true) {
            let heard = (fleet.news.subscribe(), fleet.placing.subscribe());
            tokio::spawn(tend(fleet.clone(), server.clone(), heard.0, heard.1));
        }
    }

    fn tell(&self, edge: &EdgeId, work: Work) {
        if let Some(slot) = self.open.get(edge) {
            // One that ends just now needs to hear nothing.
            let _ = slot.tell.send(work);
        }
    }
}

impl Slot {
    /// Made, and nobody has it but this.
    fn is_idle(&self) -> bool {
        match self.making.peek() {
            Some(Some(mailbox)) => Arc::strong_count(mailbox) == 1,
            Some(None) => true,
            None => false,
        }
    }
}

/// Passes on what is heard of edges to the mailboxes of these, and lets idle ones go. Ends with the last one.
async fn tend(
    fleet: Arc<Fleet>,
    server: Arc<Server>,
    mut news: broadcast::Receiver<News>,
    mut moves: broadcast::Receiver<Arc<Moved>>,
) {
    let mut shutdown = server.shutdown.clone();
    let mut looks = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = shutdown.wait_for(|down| *down) => return,
            heard = news.recv() => {
                let inner = fleet.open.lock();
                match heard {
                    Ok(News::Edge(edge)) => inner.tell(&edge, Work::Look),
                    Ok(News::Reports(edge, reports)) => {
                        inner.tell(&edge, Work::Said(reports.iter().map(|report| report.key.clone()).collect()));
                    }
                    Err(broadcast::error::RecvError::Lagged(_)) => {
                        inner.open.keys().for_each(|edge| inner.tell(edge, Work::All));
                    }
                    Err(broadcast::error::RecvError::Closed) => return,
                }
            }
            moved = moves.recv() => {
                let inner = fleet.open.lock();
                match moved {
                    Ok(moved) => {
                        let of = |edge: &&EdgeId| moved.edges.contains(&id_of(edge));
                        inner.open.keys().filter(of).for_each(|edge| inner.tell(edge, Work::Look));
                    }
                    Err(broadcast::error::RecvError::Lagged(_)) => {
                        inner.open.keys().for_each(|edge| inner.tell(edge, Work::Look));
                    }
                    Err(broadcast::error::RecvError::Closed) => return,
                }
            }
            _ = looks.tick() => {
                let mut inner = fleet.open.lock();
                inner.sweep();
                if inner.open.is_empty() {
                    inner.tended = false;
                    return;
                }
                // What edges tell other centers is not heard here.
                let work = if server.has_shared_store() { || Work::All } else { || Work::Look };
                inner.open.keys().for_each(|edge| inner.tell(edge, work()));
            }
        }
    }
}
