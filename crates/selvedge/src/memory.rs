//! Gives free heap back to the system while a server runs.

use std::time::Duration;

/// Start-up is over by then, and what it allocated is free.
const STARTUP: Duration = Duration::from_secs(1);
/// Time between two looks at the heap.
const INTERVAL: Duration = Duration::from_secs(60);

pub async fn keep_small() {
    tokio::time::sleep(STARTUP).await;
    loop {
        if let Err(error) = resident::let_go_of_heap() {
            tracing::debug!(%error, "free memory is not given back to the system");
            return;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
