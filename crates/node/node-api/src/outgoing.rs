//! One writer of a connection, and many senders.

use std::{io, time::Duration};

use bytes::Bytes;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::{mpsc, oneshot},
};

/// Pieces that wait for their reader. Behind that, the connection waits.
pub const MAX_WAITING: usize = 16;

/// The time that the other end has to leave after it was told that this is all.
pub const LINGER: Duration = Duration::from_secs(5);

pub enum Out {
    Bytes(Bytes),
    /// Everything before this was taken.
    Mark(oneshot::Sender<()>),
}

#[derive(Clone)]
pub struct Outgoing(mpsc::Sender<Out>);

impl Outgoing {
    pub fn new() -> (Self, mpsc::Receiver<Out>) {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        (Self(sender), receiver)
    }

    /// False if nobody is there any more.
    pub async fn send(&self, bytes: Bytes) -> bool {
        self.0.send(Out::Bytes(bytes)).await.is_ok()
    }

    /// Waits until all that was sent so far has been taken.
    pub async fn flushed(&self) {
        let (mark, marked) = oneshot::channel();
        if self.0.send(Out::Mark(mark)).await.is_ok() {
            let _ = marked.await;
        }
    }
}

/// Writes what comes until nobody is left who could say anything.
pub async fn write_all(mut io: impl AsyncWrite + Unpin, mut out: mpsc::Receiver<Out>) -> io::Result<()> {
    while let Some(next) = out.recv().await {
        match next {
            Out::Bytes(bytes) => io.write_all(&bytes).await?,
            Out::Mark(mark) => {
                io.flush().await?;
                let _ = mark.send(());
            }
        }
    }
    io.flush().await
}
