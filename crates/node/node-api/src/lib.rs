//! What a kubelet's port answers, for a node that is part of this process: logs, exec, attach, port-forward, statistics.
//!
//! Nobody is let in or refused here: whoever connects has decided that already, as the API server does for its users. The protocols are
//! state machines without I/O ([`ws::frame`], [`spdy::session`]); what carries them is thin.

mod answer;
mod exec;
mod files;
mod forward;
mod logs;
mod outgoing;
mod route;
pub mod spdy;
mod stream;
mod upgrade;
pub mod usage;
pub mod ws;

use std::{convert::Infallible, path::PathBuf, sync::Arc};

use http::{Method, Request, Response, StatusCode};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use pods::{Pods, runtime::Runtime};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};

use answer::Body;
use route::{Query, Route};
use usage::{Measured, Meter};

/// What lies in between when somebody connects within the process.
const BUFFER: usize = 64 << 10;

pub struct Options {
    /// That of the Node object.
    pub name: String,
    pub pods: Pods,
    pub runtime: Arc<dyn Runtime>,
    /// Where the logs of all pods lie, of those that are gone too.
    pub logs: PathBuf,
}

/// A node that can be asked. Cheap to clone.
#[derive(Clone)]
pub struct Node(Arc<Inner>);

struct Inner {
    options: Options,
    meter: Meter,
}

impl Node {
    pub fn new(options: Options) -> Self {
        let meter = Meter::new(options.pods.clone(), options.runtime.clone());
        Self(Arc::new(Inner { options, meter }))
    }

    pub fn name(&self) -> &str {
        &self.0.options.name
    }

    /// A connection to whom HTTP/1.1 is spoken. Needs a runtime of tokio around it.
    pub fn connect(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(BUFFER);
        tasks::spawn_short("node-connection", self.clone().serve(ours));
        theirs
    }

    /// Answers on a connection until it ends.
    pub async fn serve(self, io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let service = service_fn(move |request| {
            let node = self.clone();
            async move { Ok::<_, Infallible>(node.answer(request).await) }
        });
        let served = http1::Builder::new().serve_connection(TokioIo::new(io), service).with_upgrades().await;
        if let Err(error) = served {
            tracing::debug!(%error, "a connection to the node ended early");
        }
    }

    /// What is used now. It takes half a second if nobody has asked for a while.
    pub async fn measure(&self) -> Result<Arc<Measured>, pods::runtime::Failure> {
        self.0.meter.measure().await
    }

    async fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        let Options { name, pods, runtime, logs } = &self.0.options;
        let route = Route::of(request.uri().path());
        let query = Query::parse(request.uri().query());
        let streams = matches!(route, Route::Exec(_) | Route::Attach(_) | Route::PortForward(_));
        let known =
            matches!(*request.method(), Method::GET | Method::HEAD) || streams && request.method() == Method::POST;
        if !known {
            return answer::text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
        }
        let upgraded = hyper::upgrade::on(&mut request);
        let headers = request.headers();
        match route {
            Route::Health => answer::text(StatusCode::OK, "ok"),
            Route::Pods => answer::json(&list(pods, false)),
            Route::RunningPods => answer::json(&list(pods, true)),
            Route::Logs(place) => logs::answer(pods, &place, &query).await,
            Route::Exec(place) => exec::answer(pods, runtime, &place, &query, false, headers, upgraded),
            Route::Attach(place) => exec::answer(pods, runtime, &place, &query, true, headers, upgraded),
            Route::PortForward(place) => forward::answer(pods, &place, &query, headers, upgraded),
            Route::Summary => self.measured(|measured| answer::json(&usage::summary::summary(name, measured))).await,
            Route::ResourceMetrics => {
                self.measured(|measured| answer::metrics(usage::metrics::resource(measured))).await
            }
            Route::ContainerMetrics => {
                self.measured(|measured| answer::metrics(usage::metrics::containers(measured))).await
            }
            Route::File(path) => files::answer(logs, &path).await,
            Route::Unknown => answer::text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    async fn measured(&self, show: impl FnOnce(&Measured) -> Response<Body>) -> Response<Body> {
        match self.measure().await {
            Ok(measured) => show(&measured),
            Err(failure) => answer::text(StatusCode::INTERNAL_SERVER_ERROR, failure.to_string()),
        }
    }
}

/// A PodList of all pods, or of those of which anything runs.
fn list(pods: &Pods, running: bool) -> Value {
    let runs = |known: &pods::Known| {
        known.containers.iter().any(|container| container.current.as_ref().is_some_and(|run| run.is_running))
    };
    let shown = |pod: &Pod| {
        let mut shown = serde_json::to_value(pod).unwrap_or_default();
        // Of a list each item is as it is without a kind of its own.
        if let Some(fields) = shown.as_object_mut() {
            fields.remove("kind");
            fields.remove("apiVersion");
        }
        shown
    };
    let items: Vec<Value> =
        pods.list().iter().filter(|known| !running || runs(known)).map(|known| shown(&known.pod)).collect();
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
}
