//! A byte stream on the link, used by tunnels.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{AnyBody, pipe::Pipe};

/// Limit of one write: the size of an HTTP/2 frame.
const MAX_WRITE_BYTES: usize = 16 << 10;

/// Both directions. Shutdown ends the writing direction; dropping ends both.
pub struct Stream {
    pipe: Arc<Pipe>,
    /// Never locked: the mutex only makes the type `Sync`.
    incoming: Mutex<AnyBody>,
    rest: Bytes,
}

impl Stream {
    pub(super) fn new(pipe: Arc<Pipe>, incoming: AnyBody) -> Self {
        Self { pipe, incoming: Mutex::new(incoming), rest: Bytes::new() }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.pipe.end();
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.rest.is_empty() {
            let body = this.incoming.get_mut().unwrap_or_else(PoisonError::into_inner);
            match ready!(Pin::new(body).poll_frame(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, error))),
                Some(Ok(frame)) => this.rest = frame.into_data().unwrap_or_default(),
            }
        }
        let length = this.rest.len().min(into.remaining());
        into.put_slice(&this.rest[..length]);
        this.rest.advance(length);
        if this.rest.is_empty() {
            this.rest = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        if from.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.pipe.poll_room(cx));
        let piece = &from[..from.len().min(MAX_WRITE_BYTES)];
        match self.pipe.try_put(Bytes::copy_from_slice(piece)) {
            Ok(None) => Poll::Ready(Ok(piece.len())),
            // Unreachable: a stream has one writer, so the room is still there.
            Ok(Some(_)) => Poll::Pending,
            Err(()) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pipe.end();
        Poll::Ready(Ok(()))
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}
