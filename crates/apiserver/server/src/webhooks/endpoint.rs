//! One webhook as it is called: its URL, and the client that keeps connections to it.

use std::{error::Error, sync::OnceLock, time::Duration};

use bytes::Bytes;
use clock::rarely::Rarely;
use http::{
    Request, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use request::ROOT;
use serde_json::Value;

use super::{
    address::{self, Address, Own},
    connect::Connector,
    trust,
};
use crate::Server;

/// A quiet webhook keeps its connections this long, and this many.
const IDLE: Duration = Duration::from_secs(60);
const SPARE: usize = 4;

type Http = Client<Connector, Full<Bytes>>;

/// All that a tenant is told of a webhook that cannot be used. What exactly went wrong would tell of a network that is
/// not the tenant's.
const UNREACHABLE: &str = "the webhook cannot be reached, or gives no answer that can be used";

pub struct Endpoint {
    /// Of a workspace other than `root`: it leads only where tenants' webhooks may.
    tenant: Option<Box<str>>,
    place: Result<(Address, String), String>,
    bundle: String,
    /// Made by the first call.
    client: OnceLock<Result<Http, String>>,
    failed: Rarely,
}

impl Endpoint {
    /// From a `clientConfig`. What is wrong with it is told by whoever calls.
    pub fn new(cluster: &str, config: &Value) -> Self {
        let bundle = config["caBundle"].as_str().unwrap_or_default().to_owned();
        let tenant = (cluster != ROOT).then(|| cluster.into());
        let place = address::read(cluster, config);
        Self { tenant, place, bundle, client: OnceLock::new(), failed: Rarely::new() }
    }

    fn client(&self, address: &Address, server: &Server) -> Result<&Http, String> {
        let make = || {
            let reach = self.tenant.is_some().then(|| server.reach.clone());
            let connector = Connector::new(address.clone(), trust::tls(&self.bundle)?, &server.cache, reach)?;
            let mut builder = Client::builder(TokioExecutor::new());
            builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).pool_max_idle_per_host(SPARE);
            Ok(builder.build(connector))
        };
        self.client.get_or_init(make).as_ref().map_err(Clone::clone)
    }

    /// Asks, and waits for the answer. The error says what went wrong in upstream's words.
    pub async fn post(
        &self,
        server: &Server,
        question: &Value,
        timeout: Duration,
        limit: usize,
    ) -> Result<Value, String> {
        let (address, url) = self.place.as_ref().map_err(Clone::clone)?;
        let joint = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{joint}timeout={}s", timeout.as_secs());
        let client = self.client(address, server)?;
        let body = serde_json::to_vec(question).map_err(|error| error.to_string())?;
        let request = Request::post(&url)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, */*")
            .header(USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        let why = match tokio::time::timeout(timeout, exchange(client, request, limit)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(Failure::Own(why))) => return Err(format!("Post {url:?}: {why}")),
            Ok(Err(Failure::Transport(why))) => format!("Post {url:?}: {why}"),
            Ok(Err(Failure::Answer(why))) => why,
            Err(_) => format!("Post {url:?}: context deadline exceeded"),
        };
        let Some(workspace) = &self.tenant else { return Err(why) };
        if let Some(times) = self.failed.due() {
            tracing::warn!(%workspace, url, times, why, "a webhook of a workspace cannot be used");
        }
        Err(format!("Post {url:?}: {UNREACHABLE}"))
    }
}

pub enum Failure {
    /// Something is wrong with the objects that say where it is.
    Own(String),
    /// No answer came.
    Transport(String),
    /// One came that cannot be used.
    Answer(String),
}

async fn exchange(client: &Http, request: Request<Full<Bytes>>, limit: usize) -> Result<Value, Failure> {
    let response = client.request(request).await.map_err(|error| failure(&error))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), limit).collect().await.map_err(|error| {
        match error.downcast_ref::<http_body_util::LengthLimitError>() {
            Some(_) => Failure::Answer(format!("the webhook's answer is larger than {limit} bytes")),
            None => Failure::Transport(deepest(&*error)),
        }
    })?;
    let body = body.to_bytes();
    if status != StatusCode::OK {
        return Err(Failure::Answer(refusal(status, &body)));
    }
    serde_json::from_slice(&body)
        .map_err(|error| Failure::Answer(format!("couldn't get version/kind; json parse error: {error}")))
}

/// What upstream's client makes of an answer that is not one.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(1024)]).trim().to_owned();
    match status.as_u16() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => "forbidden: User \"system:anonymous\" cannot post path".to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        code if code >= 500 => {
            let text = if text.is_empty() { "unknown".to_owned() } else { text };
            format!("an error on the server ({text:?}) has prevented the request from succeeding")
        }
        code => format!("the server responded with the status code {code} but did not return more information"),
    }
}

/// Tells what went wrong with a request.
pub fn failure(error: &(dyn Error + 'static)) -> Failure {
    let mut at = Some(error);
    while let Some(here) = at {
        let inner = here.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(own) = inner.and_then(|inner| inner.downcast_ref::<Own>()) {
            return Failure::Own(own.to_string());
        }
        at = here.source();
    }
    Failure::Transport(deepest(error))
}

/// What an error is about in the end; what lies around it only says that a request failed.
fn deepest(error: &(dyn Error + 'static)) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}
