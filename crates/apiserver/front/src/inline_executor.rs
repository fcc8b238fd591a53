//! An executor for the requests of one HTTP/2 connection that polls a lone request inside the connection's task.
//!
//! The response of a lone request leaves in one write, and no other thread is woken for it. A second request, and one that
//! takes long, runs as a task of its own: requests of one connection do not wait for each other, and a long response is
//! made while its beginning is encrypted.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use hyper::rt::Executor;

/// A request that needs more polls, or a longer one, becomes a task. Most need two or three, one with a sync of the store.
const MAX_POLLS: usize = 16;
const MAX_POLL_TIME: Duration = Duration::from_millis(1);

static REQUEST: tasks::Kind = tasks::Kind::new("request");

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone, Default)]
pub struct InlineExecutor(Arc<Mutex<Inline>>);

/// The request that is polled inside the connection.
#[derive(Default)]
struct Inline {
    is_taken: bool,
    /// `None` while it is being polled.
    request: Option<Request>,
    polls: usize,
}

impl<F> Executor<F> for InlineExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, request: F) {
        let mut inline = self.inline();
        if inline.is_taken {
            drop(inline);
            tasks::spawn_short(&REQUEST, request);
        } else {
            *inline = Inline { is_taken: true, request: Some(Box::pin(request)), polls: 0 };
        }
    }
}

impl InlineExecutor {
    /// Polls the inline request. Ready when it has just ended.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        // The lock is not held during the poll, which may start another request.
        let Some(mut request) = self.inline().request.take() else { return Poll::Pending };
        let begun = Instant::now();
        let polled = request.as_mut().poll(cx);
        let took = begun.elapsed();
        let mut inline = self.inline();
        inline.polls += 1;
        if polled.is_pending() && took < MAX_POLL_TIME && inline.polls < MAX_POLLS {
            inline.request = Some(request);
        } else {
            *inline = Inline::default();
            drop(inline);
            if polled.is_pending() {
                tasks::spawn_short(&REQUEST, request);
            }
        }
        polled
    }

    /// The connection is over. The inline request goes on as a task.
    pub fn leave(&self) {
        if let Some(request) = self.inline().request.take() {
            tasks::spawn_short(&REQUEST, request);
        }
    }

    fn inline(&self) -> MutexGuard<'_, Inline> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::sync::oneshot;

    use super::*;

    fn answer(executor: &InlineExecutor) -> (oneshot::Sender<()>, oneshot::Receiver<()>) {
        let ((go, gone), (said, heard)) = (oneshot::channel::<()>(), oneshot::channel());
        executor.execute(async move {
            let _ = gone.await;
            let _ = said.send(());
        });
        (go, heard)
    }

    #[tokio::test]
    async fn a_lone_request_is_polled_inline_and_others_are_tasks() {
        let executor = InlineExecutor::default();
        for _ in 0..2 {
            let (first, mut first_heard) = answer(&executor);
            let (second, second_heard) = answer(&executor);
            second.send(()).unwrap();
            second_heard.await.unwrap();
            first.send(()).unwrap();
            tokio::task::yield_now().await;
            assert!(first_heard.try_recv().is_err(), "nothing happens without a poll");
            poll_fn(|cx| executor.poll(cx)).await;
            first_heard.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_request_that_takes_long_or_many_polls_becomes_a_task() {
        let executor = InlineExecutor::default();
        let poll = || poll_fn(|cx| Poll::Ready(executor.poll(cx)));
        let (said, heard) = oneshot::channel();
        executor.execute(async move {
            std::thread::sleep(MAX_POLL_TIME * 2);
            tokio::task::yield_now().await;
            let _ = said.send(());
        });
        assert!(poll().await.is_pending());
        heard.await.unwrap();
        let (go, heard) = answer(&executor);
        for _ in 0..MAX_POLLS {
            assert!(poll().await.is_pending());
        }
        go.send(()).unwrap();
        heard.await.unwrap();
        assert!(!executor.inline().is_taken, "the next one is alone again");
    }

    #[tokio::test]
    async fn a_request_outlives_its_connection() {
        let executor = InlineExecutor::default();
        let (go, heard) = answer(&executor);
        assert!(poll_fn(|cx| Poll::Ready(executor.poll(cx))).await.is_pending());
        executor.leave();
        go.send(()).unwrap();
        heard.await.unwrap();
    }
}
