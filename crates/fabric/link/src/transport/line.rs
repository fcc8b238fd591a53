//! A bidirectional channel of messages on a byte stream of its own.
//!
//! It carries the session of an edge, of which a center has thousands, so an idle channel keeps no buffers. HTTP/2 is
//! not used because it keeps about thirty kilobytes of buffers for each connection, idle or not.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    sync::oneshot,
};

use super::{
    error::{Code, Error},
    frame::{self, FrameDecoder, FrameError, Refusal},
    pipe::Pipe,
};
use crate::Message;

/// Size of one read. The buffer is on the stack and exists only during the read.
const READ_BYTES: usize = 8 << 10;
/// Queued frames are joined up to this size for one write.
const MAX_WRITE_BYTES: usize = 16 << 10;
/// Limit of the wait for the peer's end after our last frame: closing at once could reset data still in flight.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// The peer does not read any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the link is gone")]
pub struct Gone;

type LineReader = Box<dyn AsyncRead + Send + Sync + Unpin>;

/// Both directions. Dropping it and its senders ends it, after the queued frames have been sent.
pub struct Line {
    sender: LineSender,
    reader: Option<LineReader>,
    /// Returns the reader to the writing task for lingering.
    back: Option<oneshot::Sender<LineReader>>,
    decoder: FrameDecoder,
    ended: bool,
}

/// The sending half; there may be several.
#[derive(Clone)]
pub struct LineSender(Arc<LineShared>);

#[derive(Default)]
struct LineShared {
    pipe: Arc<Pipe>,
    received: AtomicU64,
}

impl Drop for LineShared {
    fn drop(&mut self) {
        self.pipe.end();
    }
}

impl LineSender {
    /// Waits for room in the queue, then sends. A message that exceeds the limit ends the channel, as the session
    /// cannot go on without it.
    pub async fn send(&self, message: Message) -> Result<(), Gone> {
        let mut frame = self.encode(&message)?;
        drop(message);
        loop {
            match self.0.pipe.try_put(frame) {
                Err(()) => return Err(Gone),
                Ok(None) => return Ok(()),
                Ok(Some(back)) => frame = back,
            }
            poll_fn(|cx| self.0.pipe.poll_room(cx)).await;
        }
    }

    /// Sends if there is room in the queue. Returns whether there was.
    pub fn try_send(&self, message: &Message) -> Result<bool, Gone> {
        if !self.has_room() {
            return if self.0.pipe.is_gone() { Err(Gone) } else { Ok(false) };
        }
        let frame = self.encode(message)?;
        self.0.pipe.try_put(frame).map(|back| back.is_none()).map_err(|()| Gone)
    }

    /// Whether the queue has room for a message.
    pub fn has_room(&self) -> bool {
        let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
        !self.0.pipe.is_gone() && self.0.pipe.poll_room(&mut nobody).is_ready()
    }

    /// Ends the channel once the queued frames have been sent. Further messages are refused.
    pub fn end(&self) {
        self.0.pipe.end();
    }

    /// Bytes sent and received, without the overhead of TLS.
    pub fn traffic(&self) -> (u64, u64) {
        (self.0.pipe.sent(), self.0.received.load(Ordering::Relaxed))
    }

    fn encode(&self, message: &Message) -> Result<Bytes, Gone> {
        frame::encode(message, true).map_err(|_| {
            self.0.pipe.end();
            Gone
        })
    }
}

impl Line {
    pub fn over<S>(stream: S) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static,
    {
        let (reader, writer) = tokio::io::split(stream);
        let (back, at_the_end) = oneshot::channel();
        let sender = LineSender(Arc::default());
        tokio::spawn(pump(sender.0.pipe.clone(), writer, at_the_end));
        Self {
            sender,
            reader: Some(Box::new(reader)),
            back: Some(back),
            decoder: FrameDecoder::default(),
            ended: false,
        }
    }

    /// A sender that can be used while `next` is pending.
    pub fn sender(&self) -> LineSender {
        self.sender.clone()
    }

    pub async fn send(&self, message: Message) -> Result<(), Gone> {
        self.sender.send(message).await
    }

    pub fn try_send(&self, message: &Message) -> Result<bool, Gone> {
        self.sender.try_send(message)
    }

    pub fn traffic(&self) -> (u64, u64) {
        self.sender.traffic()
    }

    /// The next message; `None` once the peer ended the channel. Nothing follows an error. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<Message, Error>> {
        if self.ended {
            return None;
        }
        let next = self.read().await.transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }

    async fn read(&mut self) -> Result<Option<Message>, Error> {
        loop {
            if let Some(message) = self.decoder.next().map_err(told)? {
                return Ok(Some(message));
            }
            let Some(reader) = &mut self.reader else { return Ok(None) };
            let piece = piece(reader).await.map_err(|error| Error::Lost(error.into()))?;
            if piece.is_empty() {
                self.decoder.finish()?;
                return Ok(None);
            }
            self.sender.0.received.fetch_add(piece.len() as u64, Ordering::Relaxed);
            self.decoder.push(piece).map_err(told)?;
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let (Some(back), Some(reader)) = (self.back.take(), self.reader.take()) {
            // A closed channel means that the writing task has ended.
            let _ = back.send(reader);
        }
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("traffic", &self.traffic()).finish_non_exhaustive()
    }
}

/// Refuses a session, with the reason.
pub async fn refuse<S>(mut stream: S, refusal: &Refusal)
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let told = async {
        stream.write_all(&frame::refuse(refusal)).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(LINGER_TIMEOUT, told).await;
}

fn told(error: FrameError) -> Error {
    match error {
        FrameError::Refused(Refusal { code, message, retry_after }) => {
            Error::Refused { code: Code(code), message, retry_after: retry_after.map(Duration::from_secs) }
        }
        other => other.into(),
    }
}

/// Reads available bytes; empty at the end of the stream.
async fn piece(reader: &mut LineReader) -> std::io::Result<Bytes> {
    poll_fn(|cx| {
        let mut room = [0; READ_BYTES];
        let mut buffer = ReadBuf::new(&mut room);
        ready!(Pin::new(&mut *reader).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(Bytes::copy_from_slice(buffer.filled())))
    })
    .await
}

/// The writing task: sends everything that is put into the pipe until the pipe ends.
async fn pump<W>(pipe: Arc<Pipe>, mut writer: W, at_the_end: oneshot::Receiver<LineReader>)
where
    W: AsyncWrite + Unpin,
{
    let sent = async {
        while let Some(pieces) = poll_fn(|cx| gather(&pipe, cx)).await {
            writer.write_all(&pieces).await?;
            writer.flush().await?;
        }
        writer.shutdown().await
    };
    let sent = sent.await;
    pipe.abandon();
    if sent.is_ok() {
        let listen = async {
            let mut reader = at_the_end.await.ok()?;
            while !piece(&mut reader).await.ok()?.is_empty() {}
            Some(())
        };
        let _ = tokio::time::timeout(LINGER_TIMEOUT, listen).await;
    }
}

/// Takes queued frames and joins small ones, as TLS seals each write separately.
fn gather(pipe: &Pipe, cx: &mut std::task::Context<'_>) -> Poll<Option<Bytes>> {
    let Some(first) = ready!(pipe.poll_take(cx)) else { return Poll::Ready(None) };
    let mut all = Vec::new();
    while all.len().max(first.len()) < MAX_WRITE_BYTES {
        let Poll::Ready(Some(more)) = pipe.poll_take(cx) else { break };
        if all.is_empty() {
            all.extend_from_slice(&first);
        }
        all.extend_from_slice(&more);
    }
    Poll::Ready(Some(if all.is_empty() { first } else { all.into() }))
}
