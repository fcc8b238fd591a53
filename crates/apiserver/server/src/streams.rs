//! The requests of an HTTP/2 connection.
//!
//! One that is alone runs in the connection's own turn: its answer leaves in one piece, and no other thread is woken for it. Whatever comes
//! beside it, takes long or goes on for ever runs as a task of its own: so nobody waits for another on the same connection, and a long
//! answer is made while what there is of it is encrypted.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use hyper::rt::Executor;

/// Most requests need two or three turns, one of them with a sync of the store.
const TURNS: usize = 16;
const LONG: Duration = Duration::from_millis(1);

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone, Default)]
pub struct Streams(Arc<Mutex<Place>>);

/// For the one that is alone.
#[derive(Default)]
struct Place {
    is_taken: bool,
    /// Not while it has its turn.
    request: Option<Request>,
    turns: usize,
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
            *place = Place { is_taken: true, request: Some(Box::pin(request)), turns: 0 };
        }
    }
}

impl Streams {
    /// Gives the request that is alone its turn. Ready when it has ended just now.
    pub fn turn(&self, cx: &mut Context<'_>) -> Poll<()> {
        // Not held meanwhile, as it may begin another.
        let Some(mut request) = self.place().request.take() else { return Poll::Pending };
        let begun = Instant::now();
        let turn = request.as_mut().poll(cx);
        let took = begun.elapsed();
        let mut place = self.place();
        place.turns += 1;
        if turn.is_pending() && took < LONG && place.turns < TURNS {
            place.request = Some(request);
        } else {
            *place = Place::default();
            drop(place);
            if turn.is_pending() {
                tokio::spawn(request);
            }
        }
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
    async fn what_takes_long_or_many_turns_gets_a_task_of_its_own() {
        let streams = Streams::default();
        let turn = || poll_fn(|cx| Poll::Ready(streams.turn(cx)));
        let (said, heard) = oneshot::channel();
        streams.execute(async move {
            std::thread::sleep(LONG * 2);
            tokio::task::yield_now().await;
            let _ = said.send(());
        });
        assert!(turn().await.is_pending());
        heard.await.unwrap();
        let (go, heard) = answer(&streams);
        for _ in 0..TURNS {
            assert!(turn().await.is_pending());
        }
        go.send(()).unwrap();
        heard.await.unwrap();
        assert!(!streams.place().is_taken, "the next one is alone again");
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
