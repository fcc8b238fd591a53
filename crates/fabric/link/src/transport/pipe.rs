//! The send queue of a connection. It allocates nothing while it is empty and makes writers wait while it is full.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::Frame;

/// Writers wait while at least this much is queued. The last piece may exceed it.
const MAX_QUEUED_BYTES: usize = 64 << 10;

#[derive(Default)]
pub(super) struct Pipe(Mutex<PipeState>);

#[derive(Default)]
struct PipeState {
    pieces: VecDeque<Bytes>,
    waiting: usize,
    sent: u64,
    /// No more pieces will be put in.
    ended: bool,
    /// The reader is gone.
    gone: bool,
    reader: Option<Waker>,
    writers: Vec<Waker>,
}

impl Pipe {
    /// The body that the connection reads from. Writers are refused once it is dropped.
    pub fn body(self: &Arc<Self>) -> PipeBody {
        PipeBody(self.clone())
    }

    pub fn sent(&self) -> u64 {
        self.state().sent
    }

    pub fn is_gone(&self) -> bool {
        self.state().gone
    }

    /// Puts the piece in if there is room. `Ok(Some(piece))` returns it if there is none; `Err` means that the reader
    /// is gone.
    pub fn try_put(&self, piece: Bytes) -> Result<Option<Bytes>, ()> {
        let mut state = self.state();
        if state.gone || state.ended {
            return Err(());
        }
        if state.waiting >= MAX_QUEUED_BYTES {
            return Ok(Some(piece));
        }
        state.waiting += piece.len();
        state.pieces.push_back(piece);
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        Ok(None)
    }

    /// Ready when there is room or the reader is gone.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.gone || state.ended || state.waiting < MAX_QUEUED_BYTES {
            return Poll::Ready(());
        }
        if !state.writers.iter().any(|writer| writer.will_wake(cx.waker())) {
            state.writers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The oldest piece; `None` once the pipe has ended.
    pub fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.state();
        if let Some(piece) = state.pieces.pop_front() {
            state.waiting -= piece.len();
            state.sent += piece.len() as u64;
            if state.pieces.is_empty() {
                state.pieces = VecDeque::new();
            }
            if state.waiting < MAX_QUEUED_BYTES {
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

    /// The reader is gone: drops the queue and wakes the writers.
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

    fn state(&self) -> MutexGuard<'_, PipeState> {
        // No critical section can leave the state inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(state: &mut PipeState) {
    std::mem::take(&mut state.writers).into_iter().for_each(Waker::wake);
}

/// The body of a request or response that is written through a pipe.
pub struct PipeBody(Arc<Pipe>);

impl http_body::Body for PipeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_take(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

impl Drop for PipeBody {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
