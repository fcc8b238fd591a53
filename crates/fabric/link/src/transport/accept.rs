//! The center's end of byte streams, which arrive as requests on the API's port.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};

use super::{BoxError, pipe::Pipe, stream::Stream};

pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// Accepts a byte stream: returns the response to send and the stream that it carries.
pub fn accept_stream<B>(request: Request<B>) -> (Response<ResponseBody>, Stream)
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let pipe = Arc::new(Pipe::default());
    let response = Response::new(pipe.body().boxed_unsync());
    (response, Stream::new(pipe, request.into_body().map_err(Into::into).boxed_unsync()))
}
