//! A stream that is not dropped before the other end has had its say. Whoever refuses a request before it has read all of it closes the
//! stream with something unread on it; the other end is still writing, and must not find out before it has read the refusal.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

/// For so long it is waited for the other end.
pub const PATIENCE: Duration = Duration::from_secs(5);

pub struct Lingering<T: AsyncRead + AsyncWrite + Send + Unpin + 'static>(Option<T>);

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Lingering<T> {
    pub fn new(stream: T) -> Self {
        Self(Some(stream))
    }

    fn stream(&mut self) -> io::Result<Pin<&mut T>> {
        self.0.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Drop for Lingering<T> {
    fn drop(&mut self) {
        if let (Some(mut stream), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(PATIENCE, async move {
                let _ = stream.shutdown().await;
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            }));
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> AsyncRead for Lingering<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream()?.poll_read(cx, into)
    }
}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> AsyncWrite for Lingering<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().stream()?.poll_write(cx, from)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream()?.poll_shutdown(cx)
    }
}
