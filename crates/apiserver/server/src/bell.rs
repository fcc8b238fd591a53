//! Who rings for a connection while it has its turn is heard in that turn.
//!
//! An answer that is made in a connection's turn rings for the connection to send it. Left to the runtime, the connection would have
//! another turn afterwards, and a second thread would be woken to give it: for every request, and with nothing left to do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::task::AtomicWaker;

pub struct Bell {
    waker: Waker,
    rope: Arc<Rope>,
}

#[derive(Default)]
struct Rope {
    task: AtomicWaker,
    is_turn: AtomicBool,
    rang: AtomicBool,
}

impl Default for Bell {
    fn default() -> Self {
        let rope = Arc::<Rope>::default();
        Self { waker: rope.clone().into(), rope }
    }
}

impl Bell {
    /// Gives a turn, and a second one at once to whom somebody rang for meanwhile. Whoever rings again has to wait for the others.
    pub fn turn<T>(&self, cx: &mut Context<'_>, mut turn: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let rope = &*self.rope;
        rope.task.register(cx.waker());
        rope.is_turn.store(true, Ordering::SeqCst);
        let mut own = Context::from_waker(&self.waker);
        let mut result = Poll::Pending;
        for _ in 0..2 {
            rope.rang.store(false, Ordering::SeqCst);
            result = turn(&mut own);
            if result.is_ready() || !rope.rang.load(Ordering::SeqCst) {
                break;
            }
        }
        rope.is_turn.store(false, Ordering::SeqCst);
        // Looked at only now: who rings from here on sees that the turn is over.
        if result.is_pending() && rope.rang.load(Ordering::SeqCst) {
            cx.waker().wake_by_ref();
        }
        result
    }
}

impl Wake for Rope {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rang.store(true, Ordering::SeqCst);
        if !self.is_turn.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::atomic::AtomicUsize,
        time::{Duration, Instant},
    };

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn who_rings_in_a_turn_wakes_nobody() {
        let woken = Arc::new(Woken::default());
        let (waker, bell) = (woken.clone().into(), Bell::default());
        let mut cx = Context::from_waker(&waker);
        let times = || woken.0.load(Ordering::SeqCst);
        let mut turns = 0;
        let mut kept = None;
        let mut ring = |upto| {
            turns = 0;
            assert!(
                bell.turn(&mut cx, |cx| {
                    turns += 1;
                    kept = Some(cx.waker().clone());
                    if turns <= upto {
                        cx.waker().wake_by_ref();
                    }
                    Poll::<()>::Pending
                })
                .is_pending()
            );
            turns
        };
        assert_eq!((ring(0), times()), (1, 0));
        assert_eq!((ring(1), times()), (2, 0));
        // Not without end.
        assert_eq!((ring(9), times()), (2, 1));
        kept.unwrap().wake();
        assert_eq!(times(), 2, "after the turn");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_ring_is_lost() {
        for _ in 0..200 {
            let rang = Arc::new(AtomicUsize::new(0));
            let bell = Bell::default();
            let mut ringer = None;
            let all = poll_fn(|cx| {
                bell.turn(cx, |cx| {
                    ringer.get_or_insert_with(|| {
                        let (waker, rang) = (cx.waker().clone(), rang.clone());
                        std::thread::spawn(move || {
                            for _ in 0..100 {
                                rang.fetch_add(1, Ordering::SeqCst);
                                waker.wake_by_ref();
                                let until = Instant::now() + Duration::from_micros(3);
                                while Instant::now() < until {}
                            }
                        })
                    });
                    if rang.load(Ordering::SeqCst) == 100 { Poll::Ready(()) } else { Poll::Pending }
                })
            });
            tokio::time::timeout(Duration::from_secs(10), all).await.unwrap();
            ringer.unwrap().join().unwrap();
        }
    }
}
