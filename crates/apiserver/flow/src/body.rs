//! Bodies: of requests, as they arrive, and of responses, one piece or a stream that is made as fast as the client reads.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::Stream;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::Incoming;

use crate::Seat;

pub type BoxStream = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A request's body: as it comes from a connection, or whole as somebody in this process has made it.
pub enum Arriving {
    Stream(Incoming),
    Whole(Full<Bytes>),
}

pub enum Body {
    Full(Option<Bytes>),
    Stream(BoxStream),
    /// Passed on as it comes, and its failure too: a reader must not take a part for the whole.
    Passed(UnsyncBoxBody<Bytes, BoxError>),
    /// Made by somebody else, trailers and all.
    Other(UnsyncBoxBody<Bytes, Infallible>),
}

impl Body {
    pub fn empty() -> Self {
        Self::Full(None)
    }

    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::Stream(Box::pin(stream))
    }

    /// A body that is still to be made is made on this seat.
    pub fn on(self, seat: Seat) -> Self {
        match self {
            Self::Stream(stream) => Self::stream(Seated { stream, seat: Some(seat), rest: false }),
            made => made,
        }
    }

    /// Keeps something until the body has ended.
    pub fn until_end(self, kept: Box<dyn Send>) -> Self {
        match self {
            Self::Stream(stream) => Self::stream(Kept { stream, kept: Some(kept) }),
            Self::Passed(body) => Self::Passed(
                body.map_frame(move |frame| {
                    let _ = &kept;
                    frame
                })
                .boxed_unsync(),
            ),
            made => made,
        }
    }
}

/// A stream with something that is let go of when the stream ends, or nobody wants it any more.
struct Kept {
    stream: BoxStream,
    kept: Option<Box<dyn Send>>,
}

impl Stream for Kept {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        let next = this.stream.as_mut().poll_next(cx);
        if matches!(next, Poll::Ready(None)) {
            this.kept = None;
        }
        next
    }
}

/// A stream that others get a turn between the pieces of, however fast its client reads: one long list must not keep a
/// thread for itself.
struct Seated {
    stream: BoxStream,
    seat: Option<Seat>,
    rest: bool,
}

impl Stream for Seated {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        if std::mem::take(&mut this.rest) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = this.stream.as_mut().poll_next(cx);
        match &next {
            Poll::Ready(Some(_)) => this.rest = true,
            Poll::Ready(None) => this.seat = None,
            Poll::Pending => {}
        }
        next
    }
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Stream(body) => Pin::new(body).poll_frame(cx),
            Self::Whole(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Stream(body) => body.is_end_stream(),
            Self::Whole(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Stream(body) => body.size_hint(),
            Self::Whole(body) => body.size_hint(),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Full(Some(bytes).filter(|b| !b.is_empty()))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Stream(stream) => stream.as_mut().poll_next(cx).map(|next| next.map(|b| Ok(Frame::data(b)))),
            Self::Passed(body) => Pin::new(body).poll_frame(cx),
            Self::Other(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Stream(_) => false,
            Self::Passed(body) => body.is_end_stream(),
            Self::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Stream(_) => SizeHint::default(),
            Self::Passed(body) => body.size_hint(),
            Self::Other(body) => body.size_hint(),
        }
    }
}
