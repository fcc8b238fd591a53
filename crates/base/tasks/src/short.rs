//! Tasks that no group waits for: of a connection, a request, a message.

use std::{
    fmt,
    future::Future,
    io,
    panic::resume_unwind,
    pin::Pin,
    task::{Context, Poll},
    thread,
};

use pin_project_lite::pin_project;
use tokio::task::JoinHandle;

use crate::{
    Kind,
    kind::Running,
    panics::{guarded, message},
};

/// Starts a task that is not waited for at shutdown.
///
/// It costs 8 bytes more than `tokio::spawn`. It has no span of its own: a span takes hundreds of bytes while it is
/// open, and there may be thousands of these tasks. Wrap the future with `tracing::Instrument` where one is wanted.
///
/// A panic is logged and counted, and then told by the handle as tokio does.
#[track_caller]
pub fn spawn_short<F>(kind: impl Into<&'static Kind>, future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(watched(kind, future))
}

/// The future of a task that something else runs, such as a `JoinSet` or an executor.
pub fn watched<F: Future>(kind: impl Into<&'static Kind>, future: F) -> Watched<F> {
    Watched { running: kind.into().begin(), future }
}

/// Runs a function that blocks on tokio's threads for such functions.
#[track_caller]
pub fn spawn_blocking<R, F>(kind: impl Into<&'static Kind>, work: F) -> JoinHandle<R>
where
    R: Send + 'static,
    F: FnOnce() -> R + Send + 'static,
{
    let running = kind.into().begin();
    tokio::task::spawn_blocking(move || run(running, work))
}

/// Starts a thread. It has the name of its kind.
pub fn spawn_thread<R, F>(kind: impl Into<&'static Kind>, work: F) -> io::Result<thread::JoinHandle<R>>
where
    R: Send + 'static,
    F: FnOnce() -> R + Send + 'static,
{
    spawn_thread_with(kind, thread::Builder::new(), work)
}

/// The same for a thread whose stack has a size of its own.
pub fn spawn_thread_with<R, F>(
    kind: impl Into<&'static Kind>,
    builder: thread::Builder,
    work: F,
) -> io::Result<thread::JoinHandle<R>>
where
    R: Send + 'static,
    F: FnOnce() -> R + Send + 'static,
{
    let running = kind.into().begin();
    builder.name(running.0.name().to_owned()).spawn(move || run(running, work))
}

fn run<R>(running: Running, work: impl FnOnce() -> R) -> R {
    guarded(running.0, work).unwrap_or_else(|payload| resume_unwind(payload))
}

pin_project! {
    /// A future that is counted as a task of its kind. A panic in it is logged and counted, and goes on to the
    /// executor.
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct Watched<F> {
        running: Running,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        guarded(this.running.0, || this.future.poll(cx)).unwrap_or_else(|payload| resume_unwind(payload))
    }
}

/// One step of a longer task, such as the work on one key: a panic in it is logged, counted, and returned,
/// and the task goes on with the next step.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let done = selvedge_tasks::caught("work", async { 1 / "".len() }).await;
/// assert_eq!(done.unwrap_err().to_string(), "a panic in work: attempt to divide by zero");
/// # }
/// ```
pub fn caught<F: Future>(kind: impl Into<&'static Kind>, future: F) -> Caught<F> {
    Caught { running: kind.into().begin(), future }
}

/// A panic that was caught. It has been logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked {
    pub task: &'static str,
    pub message: String,
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a panic in {}: {}", self.task, self.message)
    }
}

impl std::error::Error for Panicked {}

pin_project! {
    /// A future whose panic is returned. It must not be polled after that.
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct Caught<F> {
        running: Running,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let kind = this.running.0;
        match guarded(kind, || this.future.poll(cx)) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(Panicked { task: kind.name(), message: message(&payload).to_owned() })),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Counts, counts, inject_panic};

    fn of(name: &str) -> Counts {
        counts().into_iter().find(|counts| counts.name == name).unwrap()
    }

    #[tokio::test]
    async fn a_panic_is_counted_and_told() {
        let ended = spawn_short("short-panics", async { panic!("told") }).await;
        assert!(ended.unwrap_err().is_panic());
        assert_eq!(spawn_short("short-panics", async { 7 }).await.unwrap(), 7);
        assert_eq!(of("short-panics"), Counts { name: "short-panics", running: 0, panics: 1, restarts: 0 });
    }

    #[tokio::test]
    async fn a_task_is_counted_until_it_ends_or_is_aborted() {
        let task = spawn_short("short-aborted", std::future::pending::<()>());
        assert_eq!(of("short-aborted").running, 1);
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert_eq!(of("short-aborted"), Counts { name: "short-aborted", running: 0, panics: 0, restarts: 0 });
    }

    #[tokio::test]
    async fn panics_of_functions_that_block_are_counted() {
        assert!(spawn_blocking("short-blocking", || panic!("told")).await.unwrap_err().is_panic());
        assert_eq!(spawn_blocking("short-blocking", || 7).await.unwrap(), 7);
        let name = || thread::current().name().map(str::to_owned);
        assert_eq!(spawn_thread("short-thread", name).unwrap().join().unwrap().as_deref(), Some("short-thread"));
        assert!(spawn_thread("short-thread", || panic!("told")).unwrap().join().is_err());
        assert_eq!((of("short-blocking").panics, of("short-thread").panics), (1, 1));
        assert_eq!((of("short-blocking").running, of("short-thread").running), (0, 0));
    }

    #[tokio::test]
    async fn a_panic_can_be_injected() {
        inject_panic("short-injected", 2);
        let yields = || async { tokio::task::yield_now().await };
        let ended = spawn_short("short-injected", yields()).await;
        assert!(ended.unwrap_err().is_panic(), "the second poll panics");
        spawn_short("short-injected", yields()).await.unwrap();
        assert_eq!(of("short-injected").panics, 1);
    }

    #[tokio::test]
    async fn a_step_that_panics_does_not_end_its_task() {
        let step = |number: u32| caught("short-steps", async move { 6_u32.checked_div(number).expect("not zero") });
        let sum = spawn_short("short-of-steps", async move {
            assert_eq!(step(0).await.unwrap_err().message, "not zero");
            step(3).await.unwrap()
        });
        assert_eq!(sum.await.unwrap(), 2);
        assert_eq!((of("short-steps").panics, of("short-of-steps").panics), (1, 0));
    }

    #[test]
    fn a_short_task_takes_eight_bytes_more() {
        let future = || async {
            let kept = [0_u8; 1000];
            tokio::time::sleep(Duration::from_secs(1)).await;
            std::hint::black_box(kept);
        };
        let (plain, watched) = (future(), watched("short-size", future()));
        assert_eq!(size_of_val(&watched), size_of_val(&plain) + size_of::<usize>());
    }
}
