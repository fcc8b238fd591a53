//! Wake-ups that arrive while a connection is being polled are handled in the same poll.
//!
//! A response that is made while its connection is polled wakes the connection to send it. Left to the runtime, the
//! connection would be polled once more afterwards, often on a second thread that is woken for it: for every request,
//! and with nothing left to do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::task::AtomicWaker;

pub struct Coalescer {
    waker: Waker,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    task: AtomicWaker,
    is_turn: AtomicBool,
    woken: AtomicBool,
}

impl Default for Coalescer {
    fn default() -> Self {
        let shared = Arc::<Shared>::default();
        Self { waker: shared.clone().into(), shared }
    }
}

impl Coalescer {
    /// Polls once, and a second time if there was a wake-up meanwhile. A wake-up during the second poll goes to the
    /// runtime, so that other tasks are not kept waiting.
    pub fn poll<T>(&self, cx: &mut Context<'_>, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let shared = &*self.shared;
        shared.task.register(cx.waker());
        shared.is_turn.store(true, Ordering::SeqCst);
        let mut own = Context::from_waker(&self.waker);
        let mut result = Poll::Pending;
        for _ in 0..2 {
            shared.woken.store(false, Ordering::SeqCst);
            result = poll(&mut own);
            if result.is_ready() || !shared.woken.load(Ordering::SeqCst) {
                break;
            }
        }
        shared.is_turn.store(false, Ordering::SeqCst);
        // Read only now: a wake-up from here on sees that the poll is over, and wakes the task itself.
        if result.is_pending() && shared.woken.load(Ordering::SeqCst) {
            cx.waker().wake_by_ref();
        }
        result
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
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
    fn a_wake_up_during_a_poll_wakes_no_task() {
        let woken = Arc::new(Woken::default());
        let (waker, coalescer) = (woken.clone().into(), Coalescer::default());
        let mut cx = Context::from_waker(&waker);
        let times = || woken.0.load(Ordering::SeqCst);
        let mut polls = 0;
        let mut kept = None;
        let mut poll = |upto| {
            polls = 0;
            assert!(
                coalescer
                    .poll(&mut cx, |cx| {
                        polls += 1;
                        kept = Some(cx.waker().clone());
                        if polls <= upto {
                            cx.waker().wake_by_ref();
                        }
                        Poll::<()>::Pending
                    })
                    .is_pending()
            );
            polls
        };
        assert_eq!((poll(0), times()), (1, 0));
        assert_eq!((poll(1), times()), (2, 0));
        // A poll that always wakes itself is not repeated without end.
        assert_eq!((poll(9), times()), (2, 1));
        kept.unwrap().wake();
        assert_eq!(times(), 2, "after the poll");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_up_is_lost() {
        for _ in 0..200 {
            let wakes = Arc::new(AtomicUsize::new(0));
            let coalescer = Coalescer::default();
            let mut waker_thread = None;
            let all = poll_fn(|cx| {
                coalescer.poll(cx, |cx| {
                    waker_thread.get_or_insert_with(|| {
                        let (waker, wakes) = (cx.waker().clone(), wakes.clone());
                        std::thread::spawn(move || {
                            for _ in 0..100 {
                                wakes.fetch_add(1, Ordering::SeqCst);
                                waker.wake_by_ref();
                                let until = Instant::now() + Duration::from_micros(3);
                                while Instant::now() < until {}
                            }
                        })
                    });
                    if wakes.load(Ordering::SeqCst) == 100 { Poll::Ready(()) } else { Poll::Pending }
                })
            });
            tokio::time::timeout(Duration::from_secs(10), all).await.unwrap();
            waker_thread.unwrap().join().unwrap();
        }
    }
}
