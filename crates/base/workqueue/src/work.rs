//! The loop that works a queue off.

use std::{
    fmt::{self, Display},
    hash::Hash,
};

use futures::{StreamExt, stream::FuturesUnordered};
use tracing::Instrument;

use crate::{Again, Queue, Work};

/// Why a reconcile failed. It is retried in any case.
pub trait Failure: Display {
    /// The failure is nothing to warn of, as with a write that lost a race.
    fn is_expected(&self) -> bool {
        false
    }
}

impl Failure for &str {}
impl Failure for String {}
impl Failure for fmt::Error {}

/// Reconciles the keys of a queue, at most `workers` at the same time, until it is dropped. Reconciles that run then
/// are dropped with it.
///
/// Start it with `Tasks::spawn_until_shutdown`, with the name of the queue as the name of the task. Panics of
/// reconciles are counted under this name.
pub async fn work<K, E, Fut>(queue: &Queue<K>, workers: usize, reconcile: impl Fn(K) -> Fut)
where
    K: Clone + Display + Eq + Hash + Send + 'static,
    E: Failure,
    Fut: Future<Output = Result<Again, E>>,
{
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            work = queue.next(), if running.len() < workers.max(1) => running.push(one(work, &reconcile)),
            Some(()) = running.next(), if !running.is_empty() => {}
        }
    }
}

async fn one<K, E, Fut>(work: Work<K>, reconcile: &impl Fn(K) -> Fut)
where
    K: Clone + Display + Eq + Hash + Send + 'static,
    E: Failure,
    Fut: Future<Output = Result<Again, E>>,
{
    let span = tracing::info_span!("reconcile", controller = work.controller(), key = %work.key());
    async {
        let key = work.key().clone();
        // A panic has been logged and counted when it gets here.
        let again = match tasks::caught(work.controller(), async { reconcile(key).await }).await {
            Ok(Ok(again)) => again,
            Ok(Err(error)) if error.is_expected() => {
                tracing::debug!(%error, "a reconcile was too early or too late; it is retried");
                Again::Failed
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "a reconcile failed; it is retried");
                Again::Failed
            }
            Err(_panicked) => Again::Failed,
        };
        work.done(again);
    }
    .instrument(span)
    .await;
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Mutex,
            atomic::{AtomicUsize, Ordering::SeqCst},
        },
        time::Duration,
    };

    use backoff::Schedule;

    use super::*;

    const RETRY: Schedule = Schedule::new(Duration::from_millis(5), Duration::from_secs(60)).exact();

    fn panics_of(name: &str) -> u64 {
        tasks::counts().iter().find(|counts| counts.name == name).map_or(0, |counts| counts.panics)
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_in_a_reconcile_is_a_failed_reconcile() {
        let queue = Queue::new("work-panics", RETRY);
        ["bad", "good"].into_iter().for_each(|key| queue.add(key));
        let (tries, good) = (&AtomicUsize::new(0), &Mutex::new(Vec::new()));
        let all = work(&queue, 1, |key| {
            // Also a panic before the future is there is one of the reconcile.
            assert!(key != "bad" || tries.fetch_add(1, SeqCst) != 1, "panics in the closure");
            async move {
                assert!(key != "bad" || tries.load(SeqCst) != 1, "panics in the future");
                good.lock().unwrap().push(key);
                Ok::<_, String>(Again::No)
            }
        });
        assert!(tokio::time::timeout(Duration::from_secs(1), all).await.is_err(), "it never ends by itself");
        assert_eq!(*good.lock().unwrap(), ["good", "bad"]);
        assert_eq!((tries.load(SeqCst), panics_of("work-panics"), queue.numbers().retries), (3, 2, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_run_together_as_there_are_workers() {
        let queue = Queue::new("work-together", RETRY);
        (0..20).for_each(|key| queue.add(key));
        let (running, most, ended) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let all = work(&queue, 5, |_| async {
            most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            running.fetch_sub(1, SeqCst);
            ended.fetch_add(1, SeqCst);
            Ok::<_, String>(Again::No)
        });
        assert!(tokio::time::timeout(Duration::from_millis(4500), all).await.is_err());
        assert_eq!((most.load(SeqCst), ended.load(SeqCst)), (5, 20));
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_is_dropped_gives_its_key_back() {
        let queue = Queue::new("work-dropped", RETRY);
        queue.add("a");
        let stuck = work(&queue, 1, |_| std::future::pending::<Result<Again, String>>());
        assert!(tokio::time::timeout(Duration::from_secs(1), stuck).await.is_err());
        assert_eq!(queue.next().await.key(), &"a");
    }

    #[tokio::test(start_paused = true)]
    async fn keys_come_when_they_are_due_and_adding_ends_a_wait() {
        let queue = Queue::new("work-due", RETRY);
        queue.add_after("late", Duration::from_secs(10));
        queue.add_after("soon", Duration::from_secs(2));
        let began = tokio::time::Instant::now();
        let next = queue.next().await;
        assert_eq!((*next.key(), began.elapsed().as_secs()), ("soon", 2));
        next.done(Again::In(Duration::from_secs(60)));
        queue.add("soon");
        let next = queue.next().await;
        assert_eq!((*next.key(), began.elapsed().as_secs()), ("soon", 2));
        next.done(Again::No);
        assert_eq!((*queue.next().await.key(), began.elapsed().as_secs()), ("late", 10));
    }

    #[tokio::test]
    async fn queues_of_one_name_are_counted_together_while_they_live() {
        let (one, other) = (Queue::new("work-counted", RETRY), Queue::new("work-counted", RETRY));
        one.add(1);
        other.add("a");
        let counted = || crate::numbers().into_iter().find(|numbers| numbers.name == "work-counted");
        assert_eq!(counted().map(|numbers| (numbers.depth, numbers.adds)), Some((2, 2)));
        drop((one, other));
        assert_eq!(counted(), None);
    }
}
