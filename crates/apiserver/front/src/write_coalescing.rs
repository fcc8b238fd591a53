//! Writes of one poll of a connection leave in one piece.
//!
//! HTTP/2 hands its frames down one by one and flushes each: every frame would be a TLS record of its own and a system
//! call. Here they are buffered while the connection is polled, and sent when it has nothing more to write.

use std::{
    future::{Future, poll_fn},
    io::{IoSlice, Result},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{inline_executor::InlineExecutor, poll_once::Coalescer};

/// A buffer of this size is sent at once.
const MAX_BUFFER_BYTES: usize = 64 << 10;

/// The stream, as the connection uses it.
pub struct CoalescedStream<S>(Arc<Mutex<Buffered<S>>>);

/// The same stream for the driver of the connection.
pub struct Driver<S>(Arc<Mutex<Buffered<S>>>);

struct Buffered<S> {
    stream: S,
    out: Vec<u8>,
    /// How much of `out` the stream has taken.
    sent: usize,
    /// A driver sends the buffer after each poll. Without one, every write goes through at once.
    driven: bool,
}

pub fn coalesced<S>(stream: S) -> (CoalescedStream<S>, Driver<S>) {
    let shared = Arc::new(Mutex::new(Buffered { stream, out: Vec::new(), sent: 0, driven: true }));
    (CoalescedStream(shared.clone()), Driver(shared))
}

impl<S: AsyncWrite + Unpin> Driver<S> {
    /// Polls a connection and sends what it wrote in each poll. Ends with the connection, or when the peer is gone.
    pub async fn drive<C, E>(
        &self,
        mut connection: Pin<&mut C>,
        executor: &InlineExecutor,
    ) -> std::result::Result<(), E>
    where
        C: Future<Output = std::result::Result<(), E>>,
    {
        let coalescer = Coalescer::default();
        poll_fn(|cx| coalescer.poll(cx, |cx| self.poll(cx, connection.as_mut(), executor))).await
    }

    fn poll<C, E>(
        &self,
        cx: &mut Context<'_>,
        mut connection: Pin<&mut C>,
        executor: &InlineExecutor,
    ) -> Poll<std::result::Result<(), E>>
    where
        C: Future<Output = std::result::Result<(), E>>,
    {
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                // A connection shuts its stream down before it ends, unless the stream was upgraded. The upgraded protocol
                // has no driver: its first write sends what is left in the buffer.
                let mut shared = lock(&self.0);
                let _ = shared.send(cx);
                shared.driven = false;
                executor.leave();
                return Poll::Ready(ended);
            }
            // A response that has ended has frames for the connection to write.
            if executor.poll(cx).is_pending() {
                break;
            }
        }
        match ready!(lock(&self.0).send(cx)) {
            Ok(()) => Poll::Pending,
            // The peer is gone.
            Err(_) => {
                executor.leave();
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> Buffered<S> {
    fn send(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.out.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while self.sent < self.out.len() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.out[self.sent..])) {
                Ok(0) => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                Ok(taken) => self.sent += taken,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        // Most connections are quiet most of the time, and then hold nothing.
        (self.out, self.sent) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }

    fn buffer(&mut self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        if self.out.len() >= MAX_BUFFER_BYTES || !self.driven {
            ready!(self.send(cx))?;
        }
        if !self.driven {
            return Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        }
        let before = self.out.len();
        let more: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.out.reserve(more.min(MAX_BUFFER_BYTES - before));
        for piece in pieces {
            let fits = piece.len().min(MAX_BUFFER_BYTES - self.out.len());
            self.out.extend_from_slice(&piece[..fits]);
        }
        Poll::Ready(Ok(self.out.len() - before))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CoalescedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut lock(&self.0).stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CoalescedStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        lock(&self.0).buffer(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        lock(&self.0).buffer(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut shared = lock(&self.0);
        if shared.driven {
            return Poll::Ready(Ok(()));
        }
        ready!(shared.send(cx))?;
        Pin::new(&mut shared.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut shared = lock(&self.0);
        ready!(shared.send(cx))?;
        Pin::new(&mut shared.stream).poll_shutdown(cx)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    /// Counts how often something was written to it.
    struct Counted(DuplexStream, usize);

    impl AsyncWrite for Counted {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
            self.1 += 1;
            Pin::new(&mut self.0).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    #[tokio::test]
    async fn one_turn_is_one_write() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let (mut wire, driver) = coalesced(Counted(near, 0));
        let connection = async {
            for _ in 0..10 {
                wire.write_all(b"frame ").await?;
                wire.flush().await?;
            }
            tokio::task::yield_now().await;
            wire.write_all(b"end").await?;
            Ok::<_, std::io::Error>(())
        };
        driver.drive(std::pin::pin!(connection), &InlineExecutor::default()).await.unwrap();
        assert_eq!(lock(&driver.0).stream.1, 2, "two turns, two writes");
        drop((wire, driver));
        let mut got = String::new();
        far.read_to_string(&mut got).await.unwrap();
        assert_eq!(got, format!("{}end", "frame ".repeat(10)));
    }

    #[tokio::test]
    async fn a_slow_reader_gets_everything_in_order_and_bounds_what_gathers() {
        let sent: Vec<u8> = (0..600_000u32).map(|n| (n % 251) as u8).collect();
        let (near, mut far) = tokio::io::duplex(1000);
        let (mut wire, driver) = coalesced(Counted(near, 0));
        let connection = async {
            for piece in sent.chunks(7001) {
                wire.write_all(piece).await?;
                assert!(lock(&driver.0).out.len() <= MAX_BUFFER_BYTES);
            }
            wire.shutdown().await
        };
        let read = async {
            let mut got = Vec::new();
            far.read_to_end(&mut got).await.unwrap();
            got
        };
        let (connection, executor) = (std::pin::pin!(connection), InlineExecutor::default());
        let (ended, got) = tokio::join!(driver.drive(connection, &executor), read);
        ended.unwrap();
        assert!(got == sent, "{} bytes of {}", got.len(), sent.len());
    }

    #[tokio::test]
    async fn without_a_driver_a_flush_sends() {
        let (near, mut far) = tokio::io::duplex(1 << 10);
        let (mut wire, driver) = coalesced(Counted(near, 0));
        driver.drive(std::pin::pin!(async { Ok::<_, ()>(()) }), &InlineExecutor::default()).await.unwrap();
        wire.write_all(b"upgraded").await.unwrap();
        wire.flush().await.unwrap();
        let mut got = [0; 8];
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"upgraded");
    }

    #[tokio::test]
    async fn a_broken_stream_ends_the_connection() {
        let (near, far) = tokio::io::duplex(1 << 10);
        drop(far);
        let (mut wire, driver) = coalesced(Counted(near, 0));
        let connection = async {
            wire.write_all(&[0; 50_000]).await?;
            std::future::pending::<Result<()>>().await
        };
        let ended = tokio::time::timeout(
            Duration::from_secs(5),
            driver.drive(std::pin::pin!(connection), &InlineExecutor::default()),
        )
        .await;
        assert!(ended.is_ok());
    }
}
