//! Keeps a server small that has started: most of what start-up touched is never needed again.

use std::time::Duration;

/// A server has settled by then.
const SETTLED: Duration = Duration::from_secs(1);
/// What common requests brought in since may be let go of again.
const AGAIN: Duration = Duration::from_secs(60);
/// The heap is gone through only while it is small: going through a large one would be felt.
const HEAPS: usize = 2;

pub async fn keep_small() {
    tokio::time::sleep(SETTLED).await;
    for round in 0.. {
        if round < HEAPS {
            resident::let_go_of_heap();
        }
        if let Err(error) = resident::let_go_of_code() {
            tracing::debug!(%error, "code that is not needed stays in memory");
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}
