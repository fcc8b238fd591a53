//! What waits to be sent: a queue that is empty memory while nothing waits, and that makes writers wait while the connection does.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::Frame;

/// Writers wait while this much waits already. The last one in may be larger.
const ROOM: usize = 64 << 10;

#[derive(Default)]
pub(super) struct Pipe(Mutex<State>);

#[derive(Default)]
struct State {
    pieces: VecDeque<Bytes>,
    waiting: usize,
    sent: u64,
    /// Nothing more will be put in.
    ended: bool,
    /// Nobody takes anything out any more.
    gone: bool,
    reader: Option<Waker>,
    writers: Vec<Waker>,
}

impl Pipe {
    /// What the connection reads from. Once it is dropped, writers are told so.
    pub fn body(self: &Arc<Self>) -> Outgoing {
        Outgoing(self.clone())
    }

    pub fn sent(&self) -> u64 {
        self.state().sent
    }

    pub fn is_gone(&self) -> bool {
        self.state().gone
    }

    /// Puts the piece in if there is room: `Ok(Some(piece))` gives it back if not, `Err` says that nobody reads any more.
    pub fn try_put(&self, piece: Bytes) -> Result<Option<Bytes>, ()> {
        let mut state = self.state();
        if state.gone || state.ended {
            return Err(());
        }
        if state.waiting >= ROOM {
            return Ok(Some(piece));
        }
        state.waiting += piece.len();
        state.pieces.push_back(piece);
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        Ok(None)
    }

    /// Ready when there is room, or nobody reads any more.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.gone || state.ended || state.waiting < ROOM {
            return Poll::Ready(());
        }
        if !state.writers.iter().any(|writer| writer.will_wake(cx.waker())) {
            state.writers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// What waited longest; `None` once it has ended.
    pub fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.state();
        if let Some(piece) = state.pieces.pop_front() {
            state.waiting -= piece.len();
            state.sent += piece.len() as u64;
            if state.pieces.is_empty() {
                state.pieces = VecDeque::new();
            }
            if state.waiting < ROOM {
                wake(&mut state);
            }
            return Poll::Ready(Some(piece));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Nobody takes anything out any more.
    pub fn abandon(&self) {
        let mut state = self.state();
        state.gone = true;
        state.pieces = VecDeque::new();
        state.waiting = 0;
        wake(&mut state);
    }

    pub fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        wake(&mut state);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here can be left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(state: &mut State) {
    std::mem::take(&mut state.writers).into_iter().for_each(Waker::wake);
}

/// The body of a request or response that somebody else writes.
pub struct Outgoing(Arc<Pipe>);

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_take(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
