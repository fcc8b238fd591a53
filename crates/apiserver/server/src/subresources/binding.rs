//! Binding: gives a pod its node, once.

use std::sync::Arc;

use request::Target;
use schema::status::{Result, Status};
use serde_json::Value;

use crate::{
    admission,
    admission::Notes,
    call::Call,
    reply::Reply,
    verbs::{update, write},
};

pub async fn bind(call: &Call, pod: &str) -> Result<Reply> {
    let binding = write::receive_kind(call, "v1", "Binding")?;
    if binding["metadata"]["name"].as_str() != Some(pod) {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    bind_to(call, pod, binding).await
}

/// Through `/bindings`: the object names the pod.
pub async fn bind_named(call: &Call) -> Result<Reply> {
    let binding = write::receive_kind(call, "v1", "Binding")?;
    let pod = binding["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if pod.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    bind_to(call, &pod, binding).await
}

async fn bind_to(call: &Call, pod: &str, mut binding: Value) -> Result<Reply> {
    let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
    if binding["target"]["kind"] == "Node" {
        admission::pods::topology(call, &mut binding, &node);
    }
    admission::review(call, admission::Operation::Create, &mut binding, None).await?;
    let errors = check(&binding);
    if !errors.is_empty() {
        return Err(Status::new(500, "", schema::field::FieldError::join(&errors)));
    }
    let pods = on_pod(call, pod, "binding")?;
    let now = clock::now();
    let uid = binding["metadata"]["uid"].as_str().unwrap_or_default();
    update::change(&pods, |old| {
        update::check_uid(&pods, uid, old)?;
        let mut value = old.value();
        rules::strategy::bind(&mut value, &binding, rules::strategy::Now { rfc3339: &now })
            .map_err(|why| Status::conflict("", "pods/binding", pod, &why))?;
        Ok(value)
    })
    .await?;
    Ok(Reply::success(201))
}

fn check(binding: &Value) -> Vec<schema::field::FieldError> {
    use schema::field::FieldError;
    let target = &binding["target"];
    let mut errors = Vec::new();
    if let Some(kind) = target["kind"].as_str().filter(|k| !k.is_empty() && *k != "Node") {
        errors.push(FieldError::not_supported("target.kind", &kind.into(), &["Node", "<empty>"]));
    }
    if target["name"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    errors
}

/// The same call, aimed at a pod. It was admitted as what it is, and is not admitted again as what it does.
pub fn on_pod(call: &Call, pod: &str, subresource: &str) -> Result<Call> {
    let kind = call.server.kinds.find(&call.cluster, "", "v1", "pods").ok_or_else(Status::no_such_path)?;
    Ok(Call {
        server: Arc::clone(&call.server),
        cluster: call.cluster.clone(),
        kind,
        target: Target {
            version: "v1".into(),
            resource: "pods".into(),
            namespace: call.target.namespace.clone(),
            name: pod.to_owned(),
            subresource: subresource.to_owned(),
            ..Target::default()
        },
        query: call.query.clone(),
        accept: call.accept,
        headers: call.headers.clone(),
        user: call.user.clone(),
        body: bytes::Bytes::new(),
        warnings: Default::default(),
        view: None,
        notes: Notes::exempt(),
        verb: call.verb,
        also: call.also.clone(),
        relays_status: false,
    })
}
