//! Audit: who did what, in which workspace, from where, and what came of it.
//!
//! A [`Trail`] goes along with a request in its extensions and collects what is known; what of it is written down, the
//! policy says. Without a log there is no trail, and nothing here costs anything.

mod log;
mod policy;

use std::{
    fmt::Write,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::SystemTime,
};

use bytes::Bytes;
use flow::body::Body;
use flow::extensions::Upgraded;
use http::{Extensions, HeaderMap, HeaderValue, Request, Response};
use identity::{Attributes, User};
use serde_json::{Map, Value, json};

use log::Log;
pub use log::Options as LogOptions;
use policy::{Level, Policy, Stage, Verdict};

/// Where the log goes, and what says what is in it.
#[derive(Clone, Debug)]
pub struct Options {
    pub log: LogOptions,
    pub policy: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read the audit policy {path}: {why}")]
    Policy { path: PathBuf, why: String },
    #[error("cannot write the audit log {path}: {error}. Give this user the right to, or name another file")]
    Log { path: PathBuf, error: std::io::Error },
}

/// Bodies that are larger than this are left out, and it is said that they are.
const LARGEST: usize = 512 << 10;
/// Upstream's annotations and header.
const TRUNCATED: &str = "audit.k8s.io/truncated";
const DECISION: &str = "authorization.k8s.io/decision";
const REASON: &str = "authorization.k8s.io/reason";
const WORKSPACE: &str = "tenancy.kcp.io/workspace";
const AUDIT_ID: &str = "audit-id";

pub struct Audit {
    policy: Policy,
    log: Log,
}

/// What is known of a request so far.
pub struct Trail {
    audit: Arc<Audit>,
    /// What was known when it came.
    base: Map<String, Value>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    verdict: Option<Verdict>,
    more: Map<String, Value>,
    annotations: Map<String, Value>,
    bytes: usize,
}

impl Audit {
    pub fn open(options: Options) -> Result<Arc<Self>, Error> {
        let policy = match &options.policy {
            None => Policy::usual().map_err(|why| Error::Policy { path: PathBuf::new(), why })?,
            Some(path) => {
                let refuse = |why: String| Error::Policy { path: path.clone(), why };
                let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
                Policy::parse(&text).map_err(refuse)?
            }
        };
        let path = options.log.path.clone();
        let log = Log::open(options.log).map_err(|error| Error::Log { path, error })?;
        Ok(Arc::new(Self { policy, log }))
    }

    /// Puts a trail into a request that has just come.
    pub fn begin<B>(self: &Arc<Self>, request: &mut Request<B>, from: IpAddr) -> Arc<Trail> {
        let headers = request.headers();
        let id = header(headers, AUDIT_ID);
        let id = if id.is_empty() || id.len() > 64 { uuid::Uuid::new_v4().to_string() } else { id };
        let base = json!({
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "auditID": id,
            "requestURI": request.uri().path_and_query().map_or("/", |uri| uri.as_str()),
            "verb": request.method().as_str().to_ascii_lowercase(),
            "sourceIPs": sources(headers, from),
            "userAgent": header(headers, "user-agent").chars().take(1024).collect::<String>(),
            "requestReceivedTimestamp": now(),
        });
        let base = if let Value::Object(base) = base { base } else { Map::new() };
        let trail = Arc::new(Trail { audit: self.clone(), base, known: Mutex::default() });
        request.extensions_mut().insert(trail.clone());
        trail
    }

    pub async fn close(&self) {
        self.log.close().await;
    }

    /// For `/metrics`, under upstream's names.
    pub fn text(&self, out: &mut String) {
        let (written, lost) = (self.log.written.load(Relaxed), self.log.lost.load(Relaxed));
        let _ = writeln!(
            out,
            "# HELP apiserver_audit_event Audit events written.\n# TYPE apiserver_audit_event counter\napiserver_audit_event_total {written}\n\
             # HELP apiserver_audit_error Audit events lost.\n# TYPE apiserver_audit_error counter\napiserver_audit_error_total{{plugin=\"log\"}} {lost}"
        );
    }
}

/// The trail of a request, if there is one.
pub fn of(extensions: &Extensions) -> Option<&Arc<Trail>> {
    extensions.get()
}

impl Trail {
    /// Somebody is known to ask for something.
    pub async fn asked(&self, sender: &User, cluster: &str, attributes: &Attributes) {
        let verdict = self.audit.policy.verdict(sender, attributes);
        {
            let mut known = self.known();
            known.more.insert("verb".into(), attributes.verb.as_str().into());
            known.more.insert("user".into(), of_user(sender));
            known.annotations.insert(WORKSPACE.into(), cluster.into());
            if attributes.path.is_empty() {
                known.more.insert("objectRef".into(), of_target(attributes));
            }
            known.verdict = Some(verdict.clone());
        }
        if verdict.shows(Stage::RequestReceived) {
            self.write(Stage::RequestReceived, None).await;
        }
    }

    /// They were allowed to act as this user. What they may do as that one is another question.
    pub fn became(&self, user: &User) {
        self.known().more.insert("impersonatedUser".into(), of_user(user));
    }

    /// They may, for this reason.
    pub fn allowed(&self, reason: impl FnOnce() -> String) {
        let mut known = self.known();
        if known.verdict.as_ref().is_none_or(|verdict| verdict.level == Level::None) {
            return;
        }
        known.annotations.insert(DECISION.into(), "allow".into());
        known.annotations.insert(REASON.into(), reason().into());
    }

    /// What was sent, if it is to be written down.
    pub fn sent(&self, size: usize, value: impl FnOnce() -> Option<Value>) {
        self.body("requestObject", Level::Request, size, value);
    }

    /// What was answered.
    pub fn answered(&self, size: usize, value: impl FnOnce() -> Option<Value>) {
        self.body("responseObject", Level::RequestResponse, size, value);
    }

    fn body(&self, field: &str, from: Level, size: usize, value: impl FnOnce() -> Option<Value>) {
        let mut known = self.known();
        let Some(verdict) = known.verdict.clone().filter(|verdict| verdict.level >= from && size > 0) else { return };
        if size > LARGEST {
            known.annotations.insert(TRUNCATED.into(), "true".into());
            return;
        }
        let Some(mut value) = value() else { return };
        if verdict.omit_managed_fields {
            bare(&mut value);
        }
        known.bytes += size;
        known.more.insert(field.into(), value);
    }

    /// Something that admission has to say.
    pub fn annotate(&self, annotations: impl IntoIterator<Item = (String, String)>) {
        let mut known = self.known();
        known.annotations.extend(annotations.into_iter().map(|(key, value)| (key, value.into())));
    }

    /// The request has its answer. What streams is finished when it ends.
    /// What is answered. What `streams` has only begun.
    pub async fn finish(self: Arc<Self>, mut response: Response<Body>, streams: bool) -> Response<Body> {
        if let Some(id) = self.base.get("auditID").and_then(Value::as_str).and_then(|id| HeaderValue::from_str(id).ok())
        {
            response.headers_mut().insert(AUDIT_ID, id);
        }
        let status = of_response(&response);
        if self.known().verdict.is_none() {
            // Nobody, or nothing that has a meaning: as upstream does, what is known is held against the policy.
            let sender = User::default();
            let path = self.base.get("requestURI").and_then(Value::as_str).unwrap_or("/");
            let method = self.base.get("verb").and_then(Value::as_str).unwrap_or_default();
            let attributes = Attributes::path(method, path.split('?').next().unwrap_or_default());
            self.known().verdict = Some(self.audit.policy.verdict(&sender, &attributes));
        }
        if response.status() == http::StatusCode::FORBIDDEN {
            let mut known = self.known();
            let reason = status["message"].as_str().unwrap_or_default().to_owned();
            known.annotations.entry(DECISION).or_insert_with(|| "forbid".into());
            known.annotations.entry(REASON).or_insert_with(|| reason.into());
        }
        if !streams {
            self.write(Stage::ResponseComplete, Some(status)).await;
            return response;
        }
        self.write(Stage::ResponseStarted, Some(status.clone())).await;
        let ending = Box::new(Ending { trail: self, status });
        match response.extensions().get::<Upgraded>() {
            Some(upgraded) => upgraded.keep(ending),
            None => return response.map(|body| body.until_end(ending)),
        }
        response
    }

    /// The server failed in the middle of it.
    pub async fn panicked(&self) {
        self.write(Stage::Panic, Some(json!({"metadata": {}, "status": "Failure", "code": 500}))).await;
    }

    async fn write(&self, stage: Stage, status: Option<Value>) {
        if let Some((event, bytes)) = self.event(stage, status) {
            self.audit.log.take(event, bytes).await;
        }
    }

    fn event(&self, stage: Stage, status: Option<Value>) -> Option<(Value, usize)> {
        let known = self.known();
        let verdict = known.verdict.as_ref().filter(|verdict| verdict.shows(stage))?;
        let mut event = self.base.clone();
        event.insert("level".into(), format!("{:?}", verdict.level).into());
        event.insert("stage".into(), format!("{stage:?}").into());
        event.insert("stageTimestamp".into(), now().into());
        event.extend(known.more.clone());
        if let Some(status) = status {
            event.insert("responseStatus".into(), status);
        }
        event.insert("annotations".into(), known.annotations.clone().into());
        Some((event.into(), 1024 + known.bytes))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kept by the body of an answer that streams: when it goes, the request is over.
struct Ending {
    trail: Arc<Trail>,
    status: Value,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some((event, bytes)) = self.trail.event(Stage::ResponseComplete, Some(std::mem::take(&mut self.status)))
        {
            self.trail.audit.log.take_now(event, bytes);
        }
    }
}

fn now() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = clock::at(since.as_secs() as i64);
    format!("{}.{:06}Z", at.trim_end_matches('Z'), since.subsec_micros())
}

fn header(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

/// Who proxies say it is, and then the address that is certain.
fn sources(headers: &HeaderMap, from: IpAddr) -> Vec<String> {
    let said = header(headers, "x-forwarded-for");
    let forwarded = said.split(',').map(str::trim).filter_map(|address| address.parse::<IpAddr>().ok());
    let real = header(headers, "x-real-ip").parse::<IpAddr>().ok();
    let mut all: Vec<String> = Vec::new();
    for address in forwarded.take(16).chain(real).chain([from]).map(|address| address.to_string()) {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    all
}

fn of_user(user: &User) -> Value {
    let mut value = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        value["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        value["extra"] = json!(user.extra);
    }
    value
}

fn of_target(attributes: &Attributes) -> Value {
    let fields = [
        ("resource", &attributes.resource),
        ("namespace", &attributes.namespace),
        ("name", &attributes.name),
        ("apiGroup", &attributes.group),
        ("apiVersion", &attributes.version),
        ("subresource", &attributes.subresource),
    ];
    let there = fields.into_iter().filter(|(_, value)| !value.is_empty());
    Value::Object(there.map(|(field, value)| (field.to_owned(), value.as_str().into())).collect())
}

/// What the answer says of itself: its code, and of a failure what the Status says.
fn of_response(response: &Response<Body>) -> Value {
    let code = response.status().as_u16();
    let mut status = json!({"metadata": {}, "code": code});
    if code >= 400 {
        status["status"] = "Failure".into();
        if let Body::Full(Some(body)) = response.body()
            && body.len() < LARGEST
            && let Ok(told) = serde_json::from_slice::<Value>(body)
        {
            for field in ["message", "reason", "details"] {
                if !told[field].is_null() {
                    status[field] = told[field].clone();
                }
            }
        }
    }
    status
}

/// Without `managedFields`, also in the items of a list.
fn bare(value: &mut Value) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    for item in value.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        bare(item);
    }
}

/// A body as JSON, whatever form it came in.
pub fn json_of(content_type: &str, body: &Bytes) -> Option<Value> {
    let format = if content_type.contains("yaml") { codec::decode::Format::Yaml } else { codec::decode::Format::Json };
    codec::decode::parse(body, format).ok().map(|parsed| parsed.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_end_with_what_is_certain() {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_static("10.0.0.1, nonsense,10.0.0.2"));
        let from: IpAddr = [192, 0, 2, 1].into();
        assert_eq!(sources(&headers, from), ["10.0.0.1", "10.0.0.2", "192.0.2.1"]);
        assert_eq!(sources(&HeaderMap::new(), from), ["192.0.2.1"]);
    }

    #[test]
    fn a_moment_has_microseconds() {
        let now = now();
        assert!(now.len() == "2026-01-02T03:04:05.123456Z".len() && now.ends_with('Z'), "{now}");
    }
}
