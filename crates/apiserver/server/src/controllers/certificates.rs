//! Signs the certificates that were approved, and approves what nodes may ask for themselves.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use cache::object::Object;
use identity::signing::{CLIENT, EDGE, KUBELET_CLIENT, KUBELET_SERVING, Request, SYNCTARGETS, edge_of};
use identity::{Attributes, Authorizer, User};
use schema::status::Result;
use serde_json::{Value, json};

use super::Controllers;
use crate::{Server, internal::Internal};

pub const REQUESTS: &str = "certificates.k8s.io/certificatesigningrequests";
const RETRY: Duration = Duration::from_secs(2);
/// What a certificate lasts at most, and what it lasts if nobody says.
const YEAR: i64 = 365 * 24 * 60 * 60;
const LEAST: i64 = 600;

pub async fn run(controllers: Arc<Controllers>, server: Arc<Server>) {
    loop {
        let key = controllers.requests.pop().await;
        let Some(object) = server.cache.get(REQUESTS, &key) else { continue };
        if let Err(error) = handle(&server, &object).await {
            tracing::warn!(request = object.name(), %error, "a certificate could not be signed; trying again");
            let again = controllers.clone();
            controllers.requests.again(key, move |key| again.requests.push(key), RETRY);
        }
    }
}

async fn handle(server: &Arc<Server>, object: &Object) -> Result<()> {
    let value = object.value();
    let (spec, status) = (&value["spec"], &value["status"]);
    let signer = spec["signerName"].as_str().unwrap_or_default();
    if !matches!(signer, CLIENT | EDGE | KUBELET_CLIENT | KUBELET_SERVING)
        || has(status, "Failed")
        || has(status, "Denied")
    {
        return Ok(());
    }
    // What is signed counts everywhere, so nobody but root's administrators approves it. Only edges are a workspace's own.
    if object.cluster() != request::ROOT && signer != EDGE {
        return Ok(());
    }
    if status["certificate"].as_str().is_some_and(|text| !text.is_empty()) {
        return Ok(());
    }
    let hand = Internal::new(server, object.cluster(), "kube-controller-manager");
    let usages: Vec<&str> = spec["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let request = Request::parse(spec["request"].as_str().unwrap_or_default());
    if !has(status, "Approved") {
        let Ok(request) = request else { return Ok(()) };
        return match approval(server, object, &value, &request, &usages) {
            Some(message) => add(&hand, object, "approval", "Approved", "AutoApproved", &message).await,
            None => Ok(()),
        };
    }
    let checked = request.and_then(|request| {
        request.is_for(signer, &usages)?;
        let edge = if signer == EDGE { Some(credential(server, object.cluster(), &request)?) } else { None };
        Ok((request, edge))
    });
    let (request, edge) = match checked {
        Ok(checked) => checked,
        Err(why) => return add(&hand, object, "status", "Failed", "SignerValidationFailure", &why).await,
    };
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(YEAR).clamp(LEAST, YEAR);
    let (pki, now) = (server.identity.pki(), clock::unix());
    let signed = match edge {
        Some(credential) => pki.sign_edge(&request, &request.common_name(), &credential, seconds, now),
        None => pki.sign(&request, &usages, seconds, now),
    };
    let pem = match signed {
        Ok(pem) => pem,
        Err(error) => return add(&hand, object, "status", "Failed", "SigningFailure", &error.to_string()).await,
    };
    let certificate = STANDARD.encode(pem);
    let kind = hand.kind("certificates.k8s.io", "v1", "certificatesigningrequests")?;
    let edit = |value: &mut Value| value["status"]["certificate"] = certificate.as_str().into();
    hand.change(&kind, "", object.name(), "status", edit).await.map(|_| ())
}

/// What makes a certificate good for the edge that a request names: one of this workspace, with a SyncTarget.
fn credential(server: &Server, cluster: &str, request: &Request) -> Result<String, String> {
    let user = request.common_name();
    let (_, name) =
        edge_of(&user).filter(|(workspace, _)| *workspace == cluster).ok_or("the edge is not of this workspace")?;
    let target = server.cache.get(SYNCTARGETS, &format!("{cluster}//{name}")).ok_or("the edge has no SyncTarget")?;
    let credential = ::kinds::join::credential_of(&target.value());
    Ok(credential.ok_or("the edge was revoked, or its SyncTarget is being deleted: join again with a new token")?)
}

fn has(status: &Value, condition: &str) -> bool {
    status["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == condition)
}

/// Why a node's or an edge's request needs nobody's approval: the requester has the right to such certificates.
fn approval(server: &Server, object: &Object, value: &Value, request: &Request, usages: &[&str]) -> Option<String> {
    let spec = &value["spec"];
    let signer = spec["signerName"].as_str().unwrap_or_default();
    let (what, own, any) = match signer {
        KUBELET_CLIENT => ("kubelet", "selfnodeclient", "nodeclient"),
        EDGE => ("edge", "selfedgeclient", "edgeclient"),
        _ => return None,
    };
    request.is_for(signer, usages).ok()?;
    let list = |v: &Value| v.as_array().into_iter().flatten().filter_map(|g| g.as_str().map(str::to_owned)).collect();
    let extra = spec["extra"].as_object().into_iter().flatten();
    let user = User {
        name: spec["username"].as_str().unwrap_or_default().to_owned(),
        uid: spec["uid"].as_str().unwrap_or_default().to_owned(),
        groups: list(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), list(values))).collect(),
        ..User::default()
    };
    let may = |subresource: &str| {
        let attributes = Attributes {
            verb: "create".into(),
            group: "certificates.k8s.io".into(),
            version: "*".into(),
            resource: "certificatesigningrequests".into(),
            subresource: subresource.into(),
            ..Attributes::default()
        };
        server.authorization.in_workspace(object.cluster()).authorize(&user, &attributes).allowed
    };
    // A certificate of before a revocation is nobody's.
    let is_welcome =
        || signer != EDGE || credential(server, object.cluster(), request).is_ok_and(|now| now == user.uid);
    if user.name == request.common_name() && may(own) && is_welcome() {
        return Some(format!("Auto approving self {what} client certificate after SubjectAccessReview."));
    }
    may(any).then(|| format!("Auto approving {what} client certificate after SubjectAccessReview."))
}

async fn add(
    hand: &Internal,
    object: &Object,
    subresource: &str,
    condition: &str,
    reason: &str,
    message: &str,
) -> Result<()> {
    let kind = hand.kind("certificates.k8s.io", "v1", "certificatesigningrequests")?;
    let now = clock::now();
    let new = json!({"type": condition, "status": "True", "reason": reason, "message": message,
        "lastUpdateTime": now, "lastTransitionTime": now});
    let edit = |value: &mut Value| {
        if !value["status"]["conditions"].is_array() {
            value["status"]["conditions"] = json!([]);
        }
        if let Some(conditions) = value["status"]["conditions"].as_array_mut() {
            conditions.push(new.clone());
        }
    };
    hand.change(&kind, "", object.name(), subresource, edit).await.map(|_| ())
}
