//! A line of messages in both directions.

use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use http_body_util::BodyExt;

use super::{
    AnyBody,
    error::{Code, Error},
    frame::{self, Decoder},
    pipe::Pipe,
};
use crate::Message;

/// The other side does not listen any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the link is gone")]
pub struct Gone;

/// Both directions. Dropping it and its senders ends the stream, after what waits has been sent.
pub struct Line {
    sender: LineSender,
    /// Never locked: bodies may not be looked at from two threads, but a line is passed around by reference.
    incoming: Mutex<AnyBody>,
    decoder: Decoder,
    ended: bool,
}

/// The sending half; there may be several.
#[derive(Clone)]
pub struct LineSender(Arc<Shared>);

struct Shared {
    pipe: Arc<Pipe>,
    compress: AtomicBool,
    received: AtomicU64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.pipe.end();
    }
}

impl LineSender {
    pub(super) fn new(pipe: Arc<Pipe>, compress: bool) -> Self {
        Self(Arc::new(Shared { pipe, compress: AtomicBool::new(compress), received: AtomicU64::new(0) }))
    }

    pub(super) fn compress(&self, yes: bool) {
        self.0.compress.store(yes, Ordering::Relaxed);
    }

    /// Sends when there is room. A message that is too long for the link ends it: the other side could not go on either.
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

    /// Sends if there is room; whether there was.
    pub fn try_send(&self, message: &Message) -> Result<bool, Gone> {
        if !self.has_room() {
            return if self.0.pipe.is_gone() { Err(Gone) } else { Ok(false) };
        }
        let frame = self.encode(message)?;
        self.0.pipe.try_put(frame).map(|back| back.is_none()).map_err(|()| Gone)
    }

    /// Whether a message would be taken now.
    pub fn has_room(&self) -> bool {
        let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
        !self.0.pipe.is_gone() && self.0.pipe.poll_room(&mut nobody).is_ready()
    }

    /// Ends the stream once what waits has been sent; further messages are refused.
    pub fn end(&self) {
        self.0.pipe.end();
    }

    /// Bytes sent and received, as they went over the wire.
    pub fn traffic(&self) -> (u64, u64) {
        (self.0.pipe.sent(), self.0.received.load(Ordering::Relaxed))
    }

    fn encode(&self, message: &Message) -> Result<bytes::Bytes, Gone> {
        frame::encode(message, self.0.compress.load(Ordering::Relaxed)).map_err(|_| {
            self.0.pipe.end();
            Gone
        })
    }
}

impl Line {
    pub(super) fn new(sender: LineSender, incoming: AnyBody) -> Self {
        Self { sender, incoming: Mutex::new(incoming), decoder: Decoder::default(), ended: false }
    }

    /// For sending while somebody waits for the next message.
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

    /// The next message. `None`: the other side ended the stream. After an error nothing more comes. May be cancelled.
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
            if let Some(message) = self.decoder.next()? {
                return Ok(Some(message));
            }
            let body = self.incoming.get_mut().unwrap_or_else(PoisonError::into_inner);
            let Some(frame) = body.frame().await else {
                self.decoder.finish()?;
                return Ok(None);
            };
            match frame.map_err(Error::Lost)?.into_data() {
                Ok(piece) => {
                    self.sender.0.received.fetch_add(piece.len() as u64, Ordering::Relaxed);
                    self.decoder.push(piece)?;
                }
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers()
                        && let Some(error) = Error::of_trailers(&trailers)
                    {
                        return Err(error);
                    }
                }
            }
        }
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("traffic", &self.traffic()).finish_non_exhaustive()
    }
}

impl Error {
    /// What a stream's end says, if it is not well.
    fn of_trailers(trailers: &http::HeaderMap) -> Option<Self> {
        let text = |name| trailers.get(name).and_then(|v: &http::HeaderValue| v.to_str().ok());
        let code: u32 = text("grpc-status")?.parse().ok()?;
        let message = text("grpc-message").unwrap_or_default().to_owned();
        (code != 0).then(|| Self::Refused { code: Code::of_grpc(code), message, retry_after: None })
    }
}
