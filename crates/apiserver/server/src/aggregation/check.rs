//! Is a remote API available? Its Service has to be there and have endpoints, and the server has to answer discovery.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request,
    header::{ACCEPT, USER_AGENT},
};
use http_body_util::{BodyExt, Limited};
use identity::User;
use request::ROOT;
use schema::status::Result;
use serde_json::{Value, json};

use super::{
    MOST,
    discovered::{self, Documents},
    proxy,
    remote::{Remote, Service},
};
use crate::{Server, discovery, internal::Internal};

/// How long a remote server may take to answer a check.
const LIMIT: Duration = Duration::from_secs(5);
/// A server that fails at once is asked again: another of its endpoints may answer.
const TRIES: usize = 3;
const AT_ONCE: Duration = Duration::from_secs(1);
/// How often a remote API is checked while it is available, and while it is not: at first, and at most.
const CALM: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(1);
/// Discovery larger than this is not taken: it is kept, and read for every request for discovery.
const DISCOVERY: usize = 128 << 10;
const DISCOVERY_OF_ROOT: usize = 1 << 20;
/// Other documents are read and forgotten.
const LARGEST: usize = 4 << 20;
/// Changes of Services and endpoints often come in groups.
const SETTLE: Duration = Duration::from_millis(50);

/// Why an API is not available, in upstream's words.
#[derive(Debug, PartialEq, Eq)]
struct Trouble {
    reason: &'static str,
    message: String,
}

/// Checks a remote API for as long as it is registered, and writes down what was found.
pub async fn tend(server: Arc<Server>, remote: Arc<Remote>) {
    let mut pause = SOON;
    loop {
        let changed = remote.changed();
        if remote.is_gone() {
            return;
        }
        let trouble = look(&server, &remote).await.err();
        if trouble.is_none() {
            remote.set_documents(learn(&server, &remote).await);
        }
        pause = if trouble.is_none() { CALM } else { (pause * 2).min(CALM) };
        if let Err(error) = write(&server, &remote, trouble).await {
            tracing::warn!(apiservice = &*remote.name, %error, "the status of an APIService could not be written");
            pause = SOON;
        }
        if tokio::time::timeout(pause, changed).await.is_ok() {
            pause = SOON;
            tokio::time::sleep(SETTLE).await;
        }
    }
}

async fn look(server: &Arc<Server>, remote: &Remote) -> std::result::Result<(), Trouble> {
    if server.aggregation.is_crowded_out(remote) {
        let message =
            format!("a workspace may have {MOST} APIServices that lead elsewhere: delete some that come first by name");
        return Err(Trouble { reason: "TooManyAPIServices", message });
    }
    let Service { namespace, name, .. } = &remote.service;
    let key = format!("{}/{namespace}/{name}", remote.cluster);
    let service = server.cache.get("core/services", &key).map(|object| object.value());
    let endpoints = server.cache.get("core/endpoints", &key).map(|object| object.value());
    let snapshot = server.cache.snapshot("discovery.k8s.io/endpointslices");
    let prefix = format!("{}/{namespace}/", remote.cluster);
    let slices = snapshot.items.range(&prefix, "").map(|object| object.value());
    let slices: Vec<Value> =
        slices.filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == **name).collect();
    judge(&remote.service, service.as_ref(), &slices, endpoints.as_ref())?;
    let path = format!("/apis/{}", remote.group_version());
    let mut failed = String::new();
    for _ in 0..TRIES {
        let begun = Instant::now();
        match fetch(server, remote, &path, "application/json").await {
            Ok((code, ..)) if (200..300).contains(&code) => return Ok(()),
            Ok((code, ..)) => failed = format!("bad status from {}: {code}", remote.url(&path)),
            Err(why) => failed = why,
        }
        if begun.elapsed() > AT_ONCE {
            break;
        }
    }
    let message = format!("failing or missing response from {}: {failed}", remote.url(&path));
    Err(Trouble { reason: "FailedDiscoveryCheck", message })
}

/// Whether the objects of the workspace say that there is somebody to ask.
fn judge(
    wanted: &Service,
    service: Option<&Value>,
    slices: &[Value],
    endpoints: Option<&Value>,
) -> std::result::Result<(), Trouble> {
    let Service { namespace, name, port } = wanted;
    let trouble = |reason: &'static str, message: String| Err(Trouble { reason, message });
    let Some(service) = service else {
        return trouble("ServiceNotFound", format!("service/{name} in {namespace:?} is not present"));
    };
    let spec = &service["spec"];
    if spec["type"].as_str().is_some_and(|kind| kind != "ClusterIP") {
        return Ok(());
    }
    let ports = spec["ports"].as_array().into_iter().flatten();
    let Some(found) = ports.into_iter().find(|one| one["port"].as_u64() == Some((*port).into())) else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return trouble("ServicePortError", message);
    };
    let port_name = found["name"].as_str().unwrap_or_default();
    let named = |ports: &Value| {
        let mut ports = ports.as_array().into_iter().flatten();
        ports.any(|one| one["name"].as_str().unwrap_or_default() == port_name && !one["port"].is_null())
    };
    let in_slice = |slice: &Value| {
        let mut all = slice["endpoints"].as_array().into_iter().flatten();
        all.any(|one| one["conditions"]["ready"] != false) && named(&slice["ports"])
    };
    // Endpoints that somebody wrote by hand count where nobody mirrors them into slices.
    let in_subset =
        |subset: &Value| subset["addresses"].as_array().is_some_and(|list| !list.is_empty()) && named(&subset["ports"]);
    let subsets = endpoints.and_then(|endpoints| endpoints["subsets"].as_array());
    if slices.is_empty() && subsets.is_none() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return trouble("EndpointsNotFound", message);
    }
    if !slices.iter().any(in_slice) && !subsets.into_iter().flatten().any(in_subset) {
        let message = format!(
            "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
        );
        return trouble("MissingEndpoints", message);
    }
    Ok(())
}

type Answer = (u16, HeaderMap, Bytes);

/// Asks the remote server in the aggregator's own name.
pub async fn fetch(
    server: &Arc<Server>,
    remote: &Remote,
    path: &str,
    accept: &'static str,
) -> std::result::Result<Answer, String> {
    let request = Request::builder().method(Method::GET).uri(path).body(());
    let (mut parts, ()) = request.map_err(|error| error.to_string())?.into_parts();
    parts.headers.insert(ACCEPT, HeaderValue::from_static(accept));
    parts.headers.insert(USER_AGENT, HeaderValue::from_static("kube-aggregator"));
    ask(server, remote, &aggregator(), parts, Bytes::new(), LARGEST).await
}

/// Sends a request and reads the whole answer.
pub async fn ask(
    server: &Arc<Server>,
    remote: &Remote,
    user: &User,
    parts: http::request::Parts,
    body: Bytes,
    largest: usize,
) -> std::result::Result<Answer, String> {
    let body = http_body_util::Full::new(body).map_err(|never| match never {}).boxed_unsync();
    let asked = async {
        let response = proxy::send(server, remote, user, parts, body).await?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, largest).collect().await.map_err(|error| remote.failure(&*error))?;
        Ok((parts.status.as_u16(), parts.headers, body.to_bytes()))
    };
    let late =
        || remote.untold("context deadline exceeded (Client.Timeout exceeded while awaiting headers)".to_owned());
    tokio::time::timeout(LIMIT, asked).await.unwrap_or_else(|_| Err(late()))
}

/// Remote servers let this user see everything that concerns discovery, as it is in `system:masters`.
fn aggregator() -> User {
    let groups = vec!["system:masters".to_owned()];
    User { name: "system:kube-aggregator".to_owned(), groups, ..User::default() }
}

/// Asks an available server what it serves. What it does not tell stays as it was known.
async fn learn(server: &Arc<Server>, remote: &Remote) -> Documents {
    let known = remote.documents();
    let (group, version) = (&*remote.group, &*remote.version);
    let most = if *remote.cluster == *ROOT { DISCOVERY_OF_ROOT } else { DISCOVERY };
    let read = |answer: std::result::Result<Answer, String>| {
        let (code, _, body) = answer.ok()?;
        (code == 200 && body.len() <= most).then(|| serde_json::from_slice::<Value>(&body).ok()).flatten()
    };
    let mut resources = read(fetch(server, remote, "/apis", discovery::AGGREGATED).await)
        .and_then(|list| discovered::from_aggregated(&list, group, version));
    if resources.is_none() {
        let path = format!("/apis/{group}/{version}");
        let list = read(fetch(server, remote, &path, "application/json").await);
        resources = list.and_then(|list| discovered::from_list(&list, group, version));
    }
    let index = read(fetch(server, remote, "/openapi/v3", "application/json").await);
    Documents {
        is_known: known.is_known || resources.is_some(),
        resources: resources.map_or_else(
            || known.resources.clone(),
            |resources| serde_json::to_vec(&resources).unwrap_or_default().into(),
        ),
        openapi: index.map_or_else(|| known.openapi.clone(), |index| discovered::openapi(&index, group, version)),
    }
}

/// Writes the condition, if it says something new.
async fn write(server: &Arc<Server>, remote: &Remote, trouble: Option<Trouble>) -> Result<()> {
    let (status, reason, message) = match trouble {
        None => ("True", "Passed", "all checks passed".to_owned()),
        Some(trouble) => ("False", trouble.reason, trouble.message),
    };
    let hand = Internal::new(server, &remote.cluster, "kube-aggregator");
    let kind = hand.kind("apiregistration.k8s.io", "v1", "apiservices")?;
    let Some(object) = hand.get(&kind, "", &remote.name).filter(|_| !remote.is_gone()) else { return Ok(()) };
    let now = clock::now();
    let mut value = object.value();
    if !set_available(&mut value, status, reason, &message, &now) {
        return Ok(());
    }
    // An APIService that was made local since, or leads elsewhere, has another status than this.
    let edit = |value: &mut Value| {
        if leads_to(value, &remote.service) {
            set_available(value, status, reason, &message, &now);
        }
    };
    hand.change(&kind, "", &remote.name, "status", edit).await.map(drop)
}

/// Whether an APIService still names this Service.
fn leads_to(apiservice: &Value, service: &Service) -> bool {
    let named = &apiservice["spec"]["service"];
    named["name"] == *service.name && named["namespace"] == *service.namespace
}

/// Sets the condition `Available`, and leaves the others. Says whether it is another one than before.
pub fn set_available(value: &mut Value, status: &str, reason: &str, message: &str, now: &str) -> bool {
    let mut new = json!({"type": "Available", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now});
    let mut conditions = value["status"]["conditions"].as_array().cloned().unwrap_or_default();
    match conditions.iter_mut().find(|condition| condition["type"] == "Available") {
        Some(old) => {
            if ["status", "reason", "message"].iter().all(|field| old[*field] == new[*field]) {
                return false;
            }
            if old["status"] == new["status"] {
                new["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = new;
        }
        None => conditions.push(new),
    }
    value["status"]["conditions"] = conditions.into();
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let wanted = Service { namespace: "kube-system".into(), name: "metrics".into(), port: 443 };
        let service = json!({"spec": {"type": "ClusterIP", "ports": [{"port": 443, "name": "https"}]}});
        let slice = |ready: bool, port: &str| {
            json!({"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}],
                "ports": [{"name": port, "port": 8443}]})
        };
        let reason = |service: Option<&Value>, slices: &[Value], endpoints: Option<&Value>| {
            judge(&wanted, service, slices, endpoints).err().map_or("", |trouble| trouble.reason)
        };
        assert_eq!(reason(None, &[], None), "ServiceNotFound");
        let other = json!({"spec": {"ports": [{"port": 80}]}});
        assert_eq!(reason(Some(&other), &[], None), "ServicePortError");
        assert_eq!(reason(Some(&service), &[], None), "EndpointsNotFound");
        assert_eq!(reason(Some(&service), &[slice(false, "https")], None), "MissingEndpoints");
        assert_eq!(reason(Some(&service), &[slice(true, "other")], None), "MissingEndpoints");
        assert_eq!(reason(Some(&service), &[slice(false, "https"), slice(true, "https")], None), "");
        let by_hand =
            json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"name": "https", "port": 1}]}]});
        assert_eq!(reason(Some(&service), &[], Some(&by_hand)), "");
        let external = json!({"spec": {"type": "ExternalName", "externalName": "a.example.com"}});
        assert_eq!(reason(Some(&external), &[], None), "");
    }

    #[test]
    fn the_status_of_another_service_is_not_written() {
        let service = Service { namespace: "kube-system".into(), name: "metrics".into(), port: 443 };
        let spec = |service: Value| json!({"spec": {"service": service}});
        assert!(leads_to(&spec(json!({"name": "metrics", "namespace": "kube-system", "port": 443})), &service));
        assert!(!leads_to(&spec(json!({"name": "other", "namespace": "kube-system"})), &service));
        assert!(!leads_to(&spec(json!({"name": "metrics", "namespace": "default"})), &service));
        assert!(!leads_to(&json!({"spec": {"group": "apps"}}), &service), "it is local");
    }

    #[test]
    fn other_conditions_stay() {
        let mut value = json!({"status": {"conditions": [{"type": "StatusUpdated", "status": "True"}]}});
        assert!(set_available(&mut value, "True", "Passed", "all checks passed", "t1"));
        assert!(!set_available(&mut value, "True", "Passed", "all checks passed", "t2"));
        assert!(set_available(&mut value, "False", "MissingEndpoints", "none", "t3"));
        assert!(set_available(&mut value, "False", "FailedDiscoveryCheck", "none", "t4"));
        assert_eq!(value["status"]["conditions"][1]["lastTransitionTime"], "t3", "the status is the same");
        assert_eq!(value["status"]["conditions"][0]["type"], "StatusUpdated");
    }
}
