//! The requests of an HTTP/2 connection.
//!
//! One that is alone runs in the connection's own turn: its answer leaves in one piece, and no other thread is woken for it. Whatever comes
//! beside it runs as a task of its own, so that nobody waits for another on the same connection.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use hyper::rt::Executor;

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone, Default)]
pub struct Streams(Arc<Mutex<Place>>);

/// For the one that is alone.
#[derive(Default)]
struct Place {
    is_taken: bool,
    /// Not while it has its turn.
    request: Option<Request>,
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, request: F) {
        let mut place = self.place();
        if place.is_taken {
            drop(place);
            tokio::spawn(request);
        } else {
            *place = Place { is_taken: true, request: Some(Box::pin(request)) };
        }
    }
}

impl Streams {
    /// Gives the request that is alone its turn. Ready when it has ended just now.
    pub fn turn(&self, cx: &mut Context<'_>) -> Poll<()> {
        // Not held meanwhile, as it may begin another.
        let Some(mut request) = self.place().request.take() else { return Poll::Pending };
        let turn = request.as_mut().poll(cx);
        *self.place() = match turn {
            Poll::Ready(()) => Place::default(),
            Poll::Pending => Place { is_taken: true, request: Some(request) },
        };
        turn
    }

    /// The connection is over. What is under way ends by itself, as the others do.
    pub fn leave(&self) {
        if let Some(request) = self.place().request.take() {
            tokio::spawn(request);
        }
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::sync::oneshot;

    use super::*;

    fn answer(streams: &Streams) -> (oneshot::Sender<()>, oneshot::Receiver<()>) {
        let ((go, gone), (said, heard)) = (oneshot::channel::<()>(), oneshot::channel());
        streams.execute(async move {
            let _ = gone.await;
            let _ = said.send(());
        });
        (go, heard)
    }

    #[tokio::test]
    async fn the_first_has_the_connections_turns_and_others_their_own() {
        let streams = Streams::default();
        for _ in 0..2 {
            let (first, mut first_heard) = answer(&streams);
            let (second, second_heard) = answer(&streams);
            second.send(()).unwrap();
            second_heard.await.unwrap();
            first.send(()).unwrap();
            tokio::task::yield_now().await;
            assert!(first_heard.try_recv().is_err(), "without a turn nothing happens");
            poll_fn(|cx| streams.turn(cx)).await;
            first_heard.await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_a_connection_leaves_goes_on() {
        let streams = Streams::default();
        let (go, heard) = answer(&streams);
        assert!(poll_fn(|cx| Poll::Ready(streams.turn(cx))).await.is_pending());
        streams.leave();
        go.send(()).unwrap();
        heard.await.unwrap();
    }
}
