//! A session on a connection: reads until the other end leaves, writes what anybody says, and hands out streams as they are opened.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    sync::mpsc,
};

use super::{
    headers::Headers,
    session::{Event, Session},
};
use crate::{
    outgoing::{MAX_WAITING, Outgoing, write_all},
    stream::{Incoming, Sink},
};

/// A stream that the other end opened.
pub struct Stream {
    pub headers: Headers,
    pub incoming: Incoming,
    pub sink: Sink,
}

/// The streams as they are opened, who can say something, and what carries it all: it ends when the other end leaves or breaks the protocol.
pub fn start<Io>(io: Io) -> (mpsc::Receiver<Stream>, Outgoing, impl Future<Output = io::Result<()>>)
where
    Io: AsyncRead + AsyncWrite,
{
    let (opened, streams) = mpsc::channel(MAX_WAITING);
    let (out, waiting) = Outgoing::new();
    let (reader, writer) = tokio::io::split(io);
    let session = Arc::new(Mutex::new(Session::default()));
    let reading = read(reader, session, opened, out.clone());
    let carried = async move {
        tokio::select! {
            ended = reading => ended,
            ended = write_all(writer, waiting) => ended,
        }
    };
    (streams, out, carried)
}

async fn read(
    reader: impl AsyncRead,
    session: Arc<Mutex<Session>>,
    opened: mpsc::Sender<Stream>,
    out: Outgoing,
) -> io::Result<()> {
    let mut reader = std::pin::pin!(reader);
    let mut readers: BTreeMap<u32, mpsc::Sender<Bytes>> = BTreeMap::new();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = reader.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        lock(&session).feed(&buffer[..read]);
        loop {
            let next = lock(&session).next_event();
            let event = match next {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(violation) => {
                    let last = lock(&session).go_away(true);
                    out.send(last).await;
                    out.flushed().await;
                    return Err(io::Error::new(io::ErrorKind::InvalidData, violation));
                }
            };
            match event {
                Event::Opened { stream, headers } => {
                    let (sender, incoming) = mpsc::channel(MAX_WAITING);
                    let sink = Sink::Stream { session: session.clone(), id: stream, out: out.clone() };
                    let accepted = lock(&session).accept(stream);
                    out.send(accepted).await;
                    readers.insert(stream, sender);
                    let _ = opened.send(Stream { headers, incoming, sink }).await;
                }
                Event::Data { stream, data } => {
                    if let Some(reader) = readers.get(&stream) {
                        // Whoever does not listen any more misses nothing.
                        let _ = reader.send(data).await;
                    }
                }
                Event::Ended { stream } | Event::Reset { stream } => drop(readers.remove(&stream)),
                Event::Answer(bytes) => drop(out.send(bytes).await),
                Event::GoAway => {}
            }
        }
    }
}

fn lock(session: &Mutex<Session>) -> std::sync::MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}
