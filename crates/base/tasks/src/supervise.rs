//! Tasks that are started anew after a failure.

use std::{
    fmt::Display,
    future::{Future, poll_fn},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::Poll,
};

use backoff::{Backoff, Schedule};
use tokio::{
    sync::watch,
    task::AbortHandle,
    time::{Instant, sleep},
};

use crate::{
    Kind,
    panics::{guarded, guarded_call, message},
};

/// The result of a task. An error is treated as a panic is: the task is started anew, or the process stops.
pub trait Outcome {
    /// Why the task failed, if it did.
    fn failure(self) -> Option<String>;
}

impl Outcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<T, E: Display> Outcome for Result<T, E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

/// `None` is what a future that was dropped at shutdown leaves.
impl<T: Outcome> Outcome for Option<T> {
    fn failure(self) -> Option<String> {
        self.and_then(Outcome::failure)
    }
}

/// A task that a group runs.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) kind: &'static Kind,
    pub(crate) abort: AbortHandle,
    pub(crate) failures: Arc<AtomicU32>,
}

impl Handle {
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// The task has ended and will not be started anew.
    pub fn is_finished(&self) -> bool {
        self.abort.is_finished()
    }

    /// Failures in a row: panics and errors since the task last ran for longer than its longest wait.
    pub fn failures(&self) -> u32 {
        self.failures.load(Relaxed)
    }

    pub fn abort(&self) {
        self.abort.abort();
    }

    pub fn abort_handle(&self) -> AbortHandle {
        self.abort.clone()
    }
}

/// Runs a future to its end. A panic is logged, counted, and returned as a failure.
pub(crate) async fn run<Fut>(kind: &'static Kind, make: impl FnOnce() -> Fut) -> Option<String>
where
    Fut: Future<Output: Outcome>,
{
    let failure = |payload| Some(format!("it panicked: {}", message(&payload)));
    let mut future = match guarded_call(kind, || Box::pin(make())) {
        Ok(future) => future,
        Err(payload) => return failure(payload),
    };
    poll_fn(|cx| match guarded(kind, || future.as_mut().poll(cx)) {
        Ok(poll) => poll.map(Outcome::failure),
        Err(payload) => Poll::Ready(failure(payload)),
    })
    .await
}

/// Runs a task until it ends well or the group stops. After a failure it is made anew.
pub(crate) async fn restarting<Fut>(
    kind: &'static Kind,
    schedule: Schedule,
    failures: Arc<AtomicU32>,
    mut stop: watch::Receiver<bool>,
    mut make: impl FnMut() -> Fut,
) where
    Fut: Future<Output: Outcome>,
{
    let mut backoff = Backoff::following(schedule);
    loop {
        let began = Instant::now();
        let Some(reason) = run(kind, &mut make).await else { return };
        if began.elapsed() > schedule.max() {
            backoff.reset();
        }
        let wait = backoff.next();
        failures.store(backoff.failures(), Relaxed);
        if *stop.borrow() {
            tracing::warn!(task = kind.name(), reason, "a task failed while it was stopping");
            return;
        }
        kind.count_restart();
        let seconds = wait.as_secs_f32();
        tracing::error!(
            task = kind.name(),
            reason,
            failures = backoff.failures(),
            "a task failed; it restarts in {seconds} s"
        );
        tokio::select! {
            () = sleep(wait) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}
