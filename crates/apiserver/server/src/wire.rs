//! What a connection writes in one turn leaves in one piece.
//!
//! HTTP/2 hands its frames down one by one and wants each flushed; every one of them would be a record of TLS of its own and a
//! system call. Here they gather while the connection has its turn, and are sent when it has nothing more to say.

use std::{
    future::{Future, poll_fn},
    io::{IoSlice, Result},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{bell::Bell, streams::Streams};

/// So much gathers before it is sent in any case.
const ROOM: usize = 64 << 10;

/// The stream, as the connection uses it.
pub struct Wire<S>(Arc<Mutex<Gathered<S>>>);

/// The same stream, as whoever drives the connection sees it.
pub struct Driver<S>(Arc<Mutex<Gathered<S>>>);

struct Gathered<S> {
    stream: S,
    out: Vec<u8>,
    /// How much of it the stream has taken.
    sent: usize,
    /// Somebody will send what gathers. When nobody does any more, a flush is a flush.
    driven: bool,
}

pub fn gathered<S>(stream: S) -> (Wire<S>, Driver<S>) {
    let shared = Arc::new(Mutex::new(Gathered { stream, out: Vec::new(), sent: 0, driven: true }));
    (Wire(shared.clone()), Driver(shared))
}

impl<S: AsyncWrite + Unpin> Driver<S> {
    /// Gives a connection its turns, and sends what it has written in each. Ends with the connection, or when the other end is gone.
    pub async fn drive<C, E>(&self, mut connection: Pin<&mut C>, streams: &Streams) -> std::result::Result<(), E>
    where
        C: Future<Output = std::result::Result<(), E>>,
    {
        let bell = Bell::default();
        poll_fn(|cx| bell.turn(cx, |cx| self.turn(cx, connection.as_mut(), streams))).await
    }

    fn turn<C, E>(
        &self,
        cx: &mut Context<'_>,
        mut connection: Pin<&mut C>,
        streams: &Streams,
    ) -> Poll<std::result::Result<(), E>>
    where
        C: Future<Output = std::result::Result<(), E>>,
    {
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                // A connection has shut its stream down before it ends, unless it gave it away for something else to be spoken
                // on it. Whoever has it then has no driver, and sends what may be left together with its own.
                let mut shared = lock(&self.0);
                let _ = shared.send(cx);
                shared.driven = false;
                streams.leave();
                return Poll::Ready(ended);
            }
            // An answer that has ended has frames for the connection to write.
            if streams.turn(cx).is_pending() {
                break;
            }
        }
        match ready!(lock(&self.0).send(cx)) {
            Ok(()) => Poll::Pending,
            // The other end is gone, and nobody is left to tell.
            Err(_) => {
                streams.leave();
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> Gathered<S> {
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

    fn gather(&mut self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        if self.out.len() >= ROOM || !self.driven {
            ready!(self.send(cx))?;
        }
        if !self.driven {
            return Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        }
        let before = self.out.len();
        let more: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.out.reserve(more.min(ROOM - before));
        for piece in pieces {
            let fits = piece.len().min(ROOM - self.out.len());
            self.out.extend_from_slice(&piece[..fits]);
        }
        Poll::Ready(Ok(self.out.len() - before))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut lock(&self.0).stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        lock(&self.0).gather(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        lock(&self.0).gather(cx, pieces)
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
        let (mut wire, driver) = gathered(Counted(near, 0));
        let connection = async {
            for _ in 0..10 {
                wire.write_all(b"frame ").await?;
                wire.flush().await?;
            }
            tokio::task::yield_now().await;
            wire.write_all(b"end").await?;
            Ok::<_, std::io::Error>(())
        };
        driver.drive(std::pin::pin!(connection), &Streams::default()).await.unwrap();
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
        let (mut wire, driver) = gathered(Counted(near, 0));
        let connection = async {
            for piece in sent.chunks(7001) {
                wire.write_all(piece).await?;
                assert!(lock(&driver.0).out.len() <= ROOM);
            }
            wire.shutdown().await
        };
        let read = async {
            let mut got = Vec::new();
            far.read_to_end(&mut got).await.unwrap();
            got
        };
        let (connection, streams) = (std::pin::pin!(connection), Streams::default());
        let (ended, got) = tokio::join!(driver.drive(connection, &streams), read);
        ended.unwrap();
        assert!(got == sent, "{} bytes of {}", got.len(), sent.len());
    }

    #[tokio::test]
    async fn without_a_driver_a_flush_sends() {
        let (near, mut far) = tokio::io::duplex(1 << 10);
        let (mut wire, driver) = gathered(Counted(near, 0));
        driver.drive(std::pin::pin!(async { Ok::<_, ()>(()) }), &Streams::default()).await.unwrap();
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
        let (mut wire, driver) = gathered(Counted(near, 0));
        let connection = async {
            wire.write_all(&[0; 50_000]).await?;
            std::future::pending::<Result<()>>().await
        };
        let ended =
            tokio::time::timeout(Duration::from_secs(5), driver.drive(std::pin::pin!(connection), &Streams::default()))
                .await;
        assert!(ended.is_ok());
    }
}
