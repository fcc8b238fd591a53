//! Limits: what one client may send, and how much work is taken on at once.

use std::{sync::Arc, time::Duration};

use api::status::{Result, Status};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request body.
    pub body: usize,
    /// Requests that only read, and requests that write, at one time. Watches do not count once they run.
    pub reads: usize,
    pub writes: usize,
    /// A request must have arrived whole within this time.
    pub arrival: Duration,
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // Upstream's values, where it has them.
        Self { body: 3 << 20, reads: 400, writes: 200, arrival: Duration::from_secs(30), connections: 20_000 }
    }
}

pub struct Inflight {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

impl Inflight {
    pub fn new(limits: &Limits) -> Self {
        Self { reads: Arc::new(Semaphore::new(limits.reads)), writes: Arc::new(Semaphore::new(limits.writes)) }
    }

    /// A place for one request; it is free again when what is answered here is dropped.
    pub fn enter(&self, writes: bool) -> Result<OwnedSemaphorePermit> {
        let room = if writes { &self.writes } else { &self.reads };
        room.clone()
            .try_acquire_owned()
            .map_err(|_| Status::too_many_requests("too many requests at the same time, please try again later", 1))
    }
}
