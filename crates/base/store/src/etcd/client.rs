//! Calls to etcd: the connection, time limits, and what its errors mean.

use std::{error::Error as _, time::Duration};

use prost::Message;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tonic_prost::ProstCodec;

use super::{EtcdOptions, proto};
use crate::Error;

/// How long a call may take. etcd itself gives up on a proposal after about 7 seconds.
const CALL: Duration = Duration::from_secs(10);
/// A page holds at most a few hundred values of at most a few MiB; this only stops what cannot be right.
const MAX_MESSAGE: usize = 1 << 30;

#[derive(Clone)]
pub(super) struct Client {
    grpc: Grpc<Channel>,
}

impl Client {
    pub(super) fn new(options: &EtcdOptions) -> Result<Self, Error> {
        let endpoints = options.endpoints.iter().map(|endpoint| to_endpoint(endpoint, options));
        let mut endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        let channel = match endpoints.len() {
            0 => return Err(Error::Unusable("no etcd endpoint is given, such as http://127.0.0.1:2379".into())),
            1 => endpoints.remove(0).connect_lazy(),
            _ => Channel::balance_list(endpoints.into_iter()),
        };
        let grpc = Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE);
        Ok(Self { grpc })
    }

    pub(super) async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.grpc.clone();
        let call = async {
            grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
            grpc.unary(Request::new(request), PathAndQuery::from_static(path), ProstCodec::default()).await
        };
        let answer = tokio::time::timeout(CALL, call).await;
        Ok(answer.map_err(|_| Status::deadline_exceeded("etcd did not answer in time"))??.into_inner())
    }

    /// Opens a stream for one watch. The sender must be kept: etcd ends the watch when it is dropped.
    pub(super) async fn watch(&self, create: proto::WatchCreate) -> Result<WatchStream, Status> {
        let mut grpc = self.grpc.clone();
        let (keep, requests) = futures::channel::mpsc::unbounded();
        let request = proto::WatchRequest { create: Some(create) };
        keep.unbounded_send(request).map_err(|_| Status::internal("the request stream has no reader"))?;
        let call = async {
            grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
            let path = PathAndQuery::from_static(proto::WATCH);
            grpc.streaming(Request::new(requests), path, ProstCodec::default()).await
        };
        let answer = tokio::time::timeout(CALL, call).await;
        let messages = answer.map_err(|_| Status::deadline_exceeded("etcd did not answer in time"))??.into_inner();
        Ok(WatchStream { messages, _keep: keep })
    }
}

pub(super) struct WatchStream {
    pub(super) messages: tonic::Streaming<proto::WatchResponse>,
    _keep: futures::channel::mpsc::UnboundedSender<proto::WatchRequest>,
}

fn to_endpoint(address: &str, options: &EtcdOptions) -> Result<Endpoint, Error> {
    let unusable = |error: &dyn std::fmt::Display| Error::Unusable(format!("the etcd endpoint {address}: {error}"));
    let endpoint = Endpoint::from_shared(address.to_owned())
        .map_err(|error| unusable(&error))?
        .connect_timeout(Duration::from_secs(3))
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(5))
        .keep_alive_while_idle(true);
    let Some(tls) = &options.tls else {
        if endpoint.uri().scheme_str() == Some("https") {
            return Err(unusable(&"it is https, but no CA certificate is given"));
        }
        return Ok(endpoint);
    };
    let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
    if let Some((certificate, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(certificate, key));
    }
    if let Some(name) = &tls.server_name {
        config = config.domain_name(name);
    }
    endpoint.tls_config(config).map_err(|error| unusable(&error))
}

/// What etcd refused for a reason that concerns the asked revision.
pub(super) enum Refused {
    Compacted,
    Future,
    Other(Error),
}

pub(super) fn reading(status: &Status) -> Refused {
    match (status.code(), status.message()) {
        (Code::OutOfRange, message) if message.contains("compacted") => Refused::Compacted,
        (Code::OutOfRange, message) if message.contains("future") => Refused::Future,
        _ => Refused::Other(definite(status).unwrap_or_else(|| Error::Unavailable(told(status)))),
    }
}

/// A commit that was not surely refused may have taken place.
pub(super) fn writing(status: &Status) -> Error {
    definite(status).unwrap_or_else(|| Error::Unknown(told(status)))
}

/// Errors after which the request has surely not been carried out.
fn definite(status: &Status) -> Option<Error> {
    if never_sent(status) {
        return Some(Error::Unavailable(told(status)));
    }
    match status.code() {
        Code::ResourceExhausted if status.message().contains("space exceeded") => Some(Error::Full(told(status))),
        // "too many requests": etcd asks to come again later.
        Code::ResourceExhausted => Some(Error::Unavailable(told(status))),
        Code::InvalidArgument | Code::FailedPrecondition | Code::Unimplemented => Some(Error::Unusable(told(status))),
        Code::PermissionDenied | Code::Unauthenticated => Some(Error::Unusable(told(status))),
        _ => None,
    }
}

fn never_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

fn told(status: &Status) -> String {
    let mut text = format!("etcd: {}", status.message());
    let mut cause = status.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sure_refusals_are_not_unknown() {
        let cases = [
            (Code::Unavailable, "etcdserver: request timed out", "Unknown"),
            (Code::DeadlineExceeded, "late", "Unknown"),
            (Code::Cancelled, "gone", "Unknown"),
            (Code::Unknown, "h2 protocol error", "Unknown"),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "Full"),
            (Code::ResourceExhausted, "etcdserver: too many requests", "Unavailable"),
            (Code::InvalidArgument, "etcdserver: request is too large", "Unusable"),
        ];
        for (code, message, expected) in cases {
            let error = writing(&Status::new(code, message));
            assert!(format!("{error:?}").starts_with(expected), "{message}: {error:?}");
        }
    }

    #[test]
    fn endpoints_are_checked() {
        let options = |endpoint: &str| EtcdOptions { endpoints: vec![endpoint.into()], ..EtcdOptions::default() };
        assert!(matches!(Client::new(&options("https://etcd:2379")).err(), Some(Error::Unusable(_))));
        assert!(matches!(Client::new(&options("a b")).err(), Some(Error::Unusable(_))));
        assert!(matches!(
            Client::new(&EtcdOptions { endpoints: vec![], ..options("") }).err(),
            Some(Error::Unusable(_))
        ));
    }
}
