//! Subresources, and kinds that are asked but never stored.

mod binding;
mod eviction;
mod reviews;
pub mod scale;
mod token;

use request::{Target, Verb};
use schema::status::{Result, Status};

use crate::{call::Call, kinds::Kind, reply::Reply, verbs};

pub async fn run(call: &Call, verb: Verb) -> Result<Reply> {
    let sub = call.target.subresource.as_str();
    let missing = || if call.kind.custom.is_some() { call.not_found() } else { Status::no_such_path() };
    let known = call.kind.resource.subresource(sub).ok_or_else(missing)?;
    if call.kind.resource.namespaced == call.target.namespace.is_empty() || call.target.name.is_empty() {
        return Err(Status::no_such_path());
    }
    if !known.verbs.iter().any(|v| &**v == verb.name()) {
        return Err(Status::method_not_allowed());
    }
    match (sub, verb) {
        ("scale", _) => scale::run(call, verb).await,
        ("binding", _) => binding::bind(call, &call.target.name).await,
        ("eviction", _) => eviction::evict(call).await,
        ("token", _) => token::request(call).await,
        // Answered in `onward`; providers of exports do not get there.
        ("log" | "exec" | "attach" | "portforward" | "proxy", _) => Err(Status::no_such_path()),
        // The rest is the object itself, of which this subresource may change a part.
        (_, Verb::Get) => verbs::get::get(call).await,
        (_, Verb::Update) => verbs::update::update(call).await,
        (_, Verb::Patch) => verbs::patch::patch(call).await,
        _ => Err(Status::method_not_allowed()),
    }
}

/// Kinds that are answered on the spot: reviews, bindings through the collection, component statuses.
pub async fn virtual_kind(call: &Call, verb: Verb) -> Option<Result<Reply>> {
    match (&*call.kind.collection, verb) {
        ("core/bindings", Verb::Create) => Some(binding::bind_named(call).await),
        ("core/componentstatuses", Verb::Get | Verb::List) => Some(component_statuses(call, verb)),
        (collection, Verb::Create)
            if collection.starts_with("authentication.k8s.io/") || collection.starts_with("authorization.k8s.io/") =>
        {
            Some(reviews::review(call).await)
        }
        _ => None,
    }
}

/// Whether upstream prints what a request to this place answers. It prints neither reviews nor what only does
/// something.
pub fn have_table(kind: &Kind, target: &Target) -> bool {
    match target.subresource.as_str() {
        "" => {
            !matches!(kind.group(), "authentication.k8s.io" | "authorization.k8s.io")
                && &*kind.collection != "core/bindings"
        }
        "approval" | "binding" | "ephemeralcontainers" | "eviction" | "finalize" | "resize" | "token" => false,
        _ => true,
    }
}

fn component_statuses(call: &Call, verb: Verb) -> Result<Reply> {
    use serde_json::json;
    let healthy = |name: &str| json!({"metadata": {"name": name}, "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]});
    let names = ["controller-manager", "etcd-0", "scheduler"];
    if verb == Verb::List {
        let items: Vec<_> = names.iter().map(|n| healthy(n)).collect();
        let value = json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": items});
        return Ok(Reply::Value { code: 200, value });
    }
    if !names.contains(&call.target.name.as_str()) {
        return Err(call.not_found());
    }
    let mut value = healthy(&call.target.name);
    value["kind"] = "ComponentStatus".into();
    value["apiVersion"] = "v1".into();
    Ok(Reply::Value { code: 200, value })
}
