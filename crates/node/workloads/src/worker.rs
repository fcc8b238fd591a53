//! Works a queue off: looks at each key, and again where that is needed.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use tokio::sync::{Notify, watch};

use crate::{
    cache::Key,
    queue::{Again, Queue},
};

/// So many keys of one controller are looked at together, as upstream's controllers do.
const TOGETHER: usize = 5;

/// What the server says of new objects in a namespace that is being deleted.
const TERMINATING: &str = "because it is being terminated";

/// Why a controller could not do its work. It tries again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Api(Box<kube::Error>),
    /// The object asks for something that cannot be done; the message says what to change.
    #[error("{0}")]
    Unusable(String),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}

impl Error {
    pub fn code(&self) -> u16 {
        match self {
            Self::Api(error) => code(error),
            Self::Unusable(_) => 0,
        }
    }

    /// Somebody else wrote first: nothing is wrong, the cache is only late.
    pub fn is_conflict(&self) -> bool {
        self.code() == 409
    }

    /// Nothing is wrong, the cache is only late: somebody else wrote first, or what this is about is gone or goes with
    /// its namespace.
    pub fn is_race(&self) -> bool {
        match self.code() {
            404 | 409 => true,
            403 => self.to_string().contains(TERMINATING),
            _ => false,
        }
    }
}

/// The HTTP code of what the API said, 0 if it said nothing.
pub fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

pub trait Reconciler: Send + Sync + 'static {
    /// Does what is needed for one object by now, also if it is gone. What comes back is how long it may take until it has to be looked at
    /// again although nothing changed.
    fn reconcile(&self, key: &Key) -> impl Future<Output = Result<Option<Duration>, Error>> + Send;
}

/// Waits until there is reason to look at everything again: somebody says so, or it is time. `false` if it is time to stop.
pub async fn is_woken(wake: &Notify, again: Option<Duration>, stop: &mut watch::Receiver<bool>) -> bool {
    let timer = async {
        match again {
            Some(wait) => tokio::time::sleep(wait).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = wake.notified() => true,
        () = timer => true,
        _ = stop.wait_for(|stop| *stop) => false,
    }
}

pub async fn work<R: Reconciler>(name: &'static str, queue: Arc<Queue>, reconciler: R, stop: watch::Receiver<bool>) {
    let one = || async {
        let mut stop = stop.clone();
        loop {
            let key = tokio::select! {
                key = queue.next() => key,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            let again = match reconciler.reconcile(&key).await {
                Ok(None) => Again::No,
                Ok(Some(wait)) => Again::In(wait),
                Err(error) => {
                    if error.is_race() {
                        tracing::debug!(controller = name, %key, %error, "the cache is late; trying again");
                    } else {
                        tracing::warn!(controller = name, %key, %error, "it did not work; trying again");
                    }
                    Again::Failed
                }
            };
            queue.done(&key, again);
        }
    };
    join_all((0..TOGETHER).map(|_| one())).await;
}

/// Does something `count` times: once, then twice at the same time, then four times, as long as nothing fails. A quota that refuses everything is asked once, not
/// a hundred times.
pub async fn slow_start<F>(count: usize, mut one: impl FnMut(usize) -> F) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    let (mut begun, mut batch) = (0, 1);
    while begun < count {
        let size = batch.min(count - begun);
        let results = join_all((begun..begun + size).map(&mut one)).await;
        results.into_iter().collect::<Result<(), Error>>()?;
        begun += size;
        batch *= 2;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_fails_is_not_tried_a_hundred_times() {
        let mut tried = 0;
        let all = slow_start(100, |_| {
            tried += 1;
            async { Ok(()) }
        });
        assert!(all.await.is_ok());
        assert_eq!(tried, 100);
        let mut tried = 0;
        let none = slow_start(100, |n| {
            tried += 1;
            async move { if n < 3 { Ok(()) } else { Err(Error::Unusable("full".into())) } }
        });
        assert!(none.await.is_err());
        assert_eq!(tried, 1 + 2 + 4);
    }
}
