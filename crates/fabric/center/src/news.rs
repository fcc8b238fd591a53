//! What is heard of edges, for whoever keeps accounts: mailboxes, the status of placements, summaries.

use std::sync::Arc;

use kinds::EdgeId;
use link::Report;
use tokio::sync::broadcast;

use crate::accounts::Accounts;

/// So much waits for a listener that is slow. One that misses something is told so, and looks at everything again.
const WAITING: usize = 4096;

#[derive(Clone, Debug)]
pub enum News {
    /// It came, went, is in sync or not any more, refused something or took it after all.
    Edge(EdgeId),
    /// It said how objects fare; durable by now.
    Reports(EdgeId, Arc<[Report]>),
}

pub struct Paper {
    sender: broadcast::Sender<News>,
    /// Delivered to without fail: they miss nothing, however much there is.
    accounts: Arc<Accounts>,
}

impl Paper {
    pub fn new(accounts: Arc<Accounts>) -> Self {
        Self { sender: broadcast::channel(WAITING).0, accounts }
    }

    pub fn subscribe(&self) -> broadcast::Receiver<News> {
        self.sender.subscribe()
    }

    /// Costs nothing while nobody listens.
    pub fn tell(&self, news: impl FnOnce() -> News) {
        let heard = self.sender.receiver_count() > 0;
        if !heard && !self.accounts.listens() {
            return;
        }
        let news = news();
        self.accounts.news(&news);
        if heard {
            // Whoever listened a moment ago may be gone.
            let _ = self.sender.send(news);
        }
    }
}
