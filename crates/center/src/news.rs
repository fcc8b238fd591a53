//! What is heard of edges, for whoever keeps accounts: mailboxes, the status of placements, summaries.

use std::sync::Arc;

use link::Report;
use tokio::sync::broadcast;
use types::EdgeId;

/// So much waits for a listener that is slow. One that misses something is told so, and looks at everything again.
const WAITING: usize = 4096;

#[derive(Clone, Debug)]
pub enum News {
    /// It came, went, is in sync or not any more, refused something or took it after all.
    Edge(EdgeId),
    /// It said how objects fare; durable by now.
    Reports(EdgeId, Arc<[Report]>),
}

pub struct Paper(broadcast::Sender<News>);

impl Default for Paper {
    fn default() -> Self {
        Self(broadcast::channel(WAITING).0)
    }
}

impl Paper {
    pub fn subscribe(&self) -> broadcast::Receiver<News> {
        self.0.subscribe()
    }

    /// Costs nothing while nobody listens.
    pub fn tell(&self, news: impl FnOnce() -> News) {
        if self.0.receiver_count() > 0 {
            // Whoever listened a moment ago may be gone.
            let _ = self.0.send(news());
        }
    }
}
