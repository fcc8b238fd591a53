//! The edges of a center, as one thing that a server is started with.

use std::sync::{Arc, OnceLock};

use server::{Mount, Server, cache};

/// Made before the server, as it observes the server's changes from the first on; started once the server serves.
#[derive(Default)]
pub struct Fleet {
    server: OnceLock<Arc<Server>>,
}

impl Fleet {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// What is served on the API's port besides the API: for [`server::Options::mounts`].
    pub fn mounts(self: &Arc<Self>) -> Vec<Arc<dyn Mount>> {
        Vec::new()
    }

    /// For [`server::Options::observers`].
    pub fn observer(self: &Arc<Self>) -> cache::Observer {
        Box::new(|_collection, _change| {})
    }

    /// Starts what runs in the background. Until then edges are told to come again.
    pub fn start(self: &Arc<Self>, server: &Arc<Server>) {
        let _ = self.server.set(server.clone());
    }

    /// The server, once there is one.
    pub fn server(&self) -> Option<&Arc<Server>> {
        self.server.get()
    }
}
