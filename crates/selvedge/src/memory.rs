//! Keeps a server small: most of what start-up touched is never needed again, and what many requests needed at once is free afterwards.

use std::time::Duration;

/// A server has settled by then.
const SETTLED: Duration = Duration::from_secs(1);
/// What common requests brought in since may be let go of again.
const AGAIN: Duration = Duration::from_secs(60);

pub async fn keep_small() {
    tokio::time::sleep(SETTLED).await;
    loop {
        if let Err(error) = resident::let_go_of_heap().and_then(|_| resident::let_go_of_code()) {
            tracing::debug!(%error, "memory that is not needed stays");
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}
