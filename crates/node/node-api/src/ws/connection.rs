//! A WebSocket on a connection: messages as they come, pings answered, and a last frame that says why it ended.

use std::io;

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};

use super::frame::{self, Decoder, Event};
use crate::outgoing::{LINGER, MAX_WAITING, Outgoing, write_all};

/// The messages, who can say something, and what carries it all: it ends when the other end leaves or breaks the protocol.
pub fn start<Io>(io: Io) -> (mpsc::Receiver<Bytes>, Outgoing, impl Future<Output = io::Result<()>>)
where
    Io: AsyncRead + AsyncWrite,
{
    let (sender, messages) = mpsc::channel(MAX_WAITING);
    let (out, waiting) = Outgoing::new();
    let (reader, writer) = tokio::io::split(io);
    let reading = read(reader, sender, out.clone());
    let carried = async move {
        tokio::select! {
            ended = reading => ended,
            ended = write_all(writer, waiting) => ended,
        }
    };
    (messages, out, carried)
}

async fn read(reader: impl AsyncRead, messages: mpsc::Sender<Bytes>, out: Outgoing) -> io::Result<()> {
    let mut reader = std::pin::pin!(reader);
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = reader.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        decoder.feed(&buffer[..read]);
        loop {
            match decoder.next_event() {
                Ok(None) => break,
                // Whoever does not listen any more misses nothing.
                Ok(Some(Event::Message(message))) => drop(messages.send(message).await),
                Ok(Some(Event::Ping(payload))) => drop(out.send(frame::pong(&payload)).await),
                Ok(Some(Event::Pong)) => {}
                Ok(Some(Event::Close)) => {
                    out.send(frame::close(1000)).await;
                    out.flushed().await;
                    return Ok(());
                }
                Err(violation) => {
                    out.send(frame::close(violation.code())).await;
                    out.flushed().await;
                    return Err(io::Error::new(io::ErrorKind::InvalidData, violation));
                }
            }
        }
    }
}

/// Whoever speaks on the other end of `io` sees only bytes: each message is some of them. Ends with the connection.
pub async fn as_bytes<Io, Inner>(io: Io, inner: Inner)
where
    Io: AsyncRead + AsyncWrite,
    Inner: AsyncRead + AsyncWrite,
{
    let (mut messages, out, carried) = start(io);
    let (mut from_inner, mut to_inner) = tokio::io::split(inner);
    let inward = async {
        while let Some(message) = messages.recv().await {
            if to_inner.write_all(&message).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let outward = async {
        let mut buffer = vec![0; 32 << 10];
        while let Ok(read) = from_inner.read(&mut buffer).await {
            if read == 0 || !out.send(frame::message(false, &[], &buffer[..read])).await {
                break;
            }
        }
        out.send(frame::close(1000)).await;
        out.flushed().await;
        tokio::time::sleep(LINGER).await;
    };
    tokio::select! {
        _ = carried => {}
        () = inward => {}
        () = outward => {}
    }
}
