//! Asks the runtime what there is whenever something may be different.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::clock::Clock;
use crate::runtime::{Container, Runtime};

/// In case the runtime says nothing although something changed.
const AT_LEAST: Duration = Duration::from_secs(60);
/// Many changes at once are one.
const TOGETHER: Duration = Duration::from_millis(5);
const RETRY: Duration = Duration::from_secs(1);

pub type Listed = (Duration, Vec<Container>);

pub async fn list(runtime: Arc<dyn Runtime>, clock: Clock, tell: mpsc::Sender<Listed>) {
    loop {
        let asked = clock.mono();
        match runtime.list().await {
            Ok(containers) => {
                if tell.send((asked, containers)).await.is_err() {
                    return;
                }
                let _ = tokio::time::timeout(AT_LEAST, runtime.changed()).await;
                tokio::time::sleep(TOGETHER).await;
            }
            Err(failure) => {
                tracing::warn!(%failure, "the runtime does not say what it runs");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
