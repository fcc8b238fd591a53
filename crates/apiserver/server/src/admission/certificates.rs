//! Who asks for a certificate, who may approve it, and who may sign it.

use identity::signing::{EDGE, EDGES, Request};
use identity::{Attributes, Authorizer};
use schema::status::Result;
use serde_json::{Value, json};

use super::{Plugin, forbid, on};
use crate::call::Call;

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

/// Nobody becomes an administrator by a certificate of this server, and no edge becomes another.
pub fn create(call: &Call, value: &Value) -> Result<()> {
    // A certificate of this server counts in every workspace: who administers one must not make them.
    let signer = value["spec"]["signerName"].as_str().unwrap_or_default();
    let ours = signer.starts_with("kubernetes.io/") || signer.contains("selvedge") && signer != EDGE;
    if call.cluster != request::ROOT && ours {
        return Err(forbid(
            call,
            value,
            "certificates of this server are asked for, approved and signed in the workspace root only",
        ));
    }
    if signer == EDGE && call.user.is_in(EDGES) {
        let asked = value["spec"]["request"].as_str().and_then(|text| Request::parse(text).ok());
        if asked.is_none_or(|asked| asked.common_name() != call.user.name) {
            return Err(forbid(call, value, &format!("can only create an edge CSR with CN={}", call.user.name)));
        }
    }
    if value["spec"]["signerName"] != CLIENT || !on(call, Plugin::CertificateSubjectRestriction) {
        return Ok(());
    }
    // What is no request at all is for validation to refuse.
    let Some(request) = value["spec"]["request"].as_str().and_then(|text| Request::parse(text).ok()) else {
        return Ok(());
    };
    if request.organizations().iter().any(|group| group == MASTERS) {
        let why = format!("use of {CLIENT} signer with {MASTERS} group is not allowed");
        return Err(forbid(call, value, &why));
    }
    Ok(())
}

/// Writes down who asks. That is the server's to say, whatever the client sent.
pub fn name_requester(call: &Call, value: &mut Value) {
    let user = &call.user;
    let Some(spec) = value["spec"].as_object_mut() else { return };
    for (field, given) in [
        ("username", json!(user.name)),
        ("uid", json!(user.uid)),
        ("groups", json!(user.groups)),
        ("extra", json!(user.extra)),
    ] {
        let is_empty = match &given {
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => true,
        };
        if is_empty {
            spec.remove(field);
        } else {
            spec.insert(field.to_owned(), given);
        }
    }
}

/// Approving and signing need rights on the signer, besides those on the request.
pub fn update(call: &Call, new: &Value, old: &Value) -> Result<()> {
    let signer = old["spec"]["signerName"].as_str().unwrap_or_default();
    let (verb, deed) = match call.target.subresource.as_str() {
        "approval" if on(call, Plugin::CertificateApproval) => ("approve", "approve"),
        "status" if on(call, Plugin::CertificateSigning) && signs(new, old) => ("sign", "sign"),
        _ => return Ok(()),
    };
    if may(call, verb, signer) {
        return Ok(());
    }
    Err(forbid(call, old, &format!("user not permitted to {deed} requests with signerName {signer:?}")))
}

fn signs(new: &Value, old: &Value) -> bool {
    let failed = |value: &Value| {
        let conditions = value["status"]["conditions"].as_array().into_iter().flatten();
        conditions.filter(|c| c["type"] == "Failed").count()
    };
    new["status"]["certificate"] != old["status"]["certificate"] || failed(new) != failed(old)
}

/// A right on one signer, or on all of its domain.
fn may(call: &Call, verb: &str, signer: &str) -> bool {
    let workspace = call.server.authorization.in_workspace(&call.cluster);
    let domain = signer.split('/').next().unwrap_or_default();
    [signer.to_owned(), format!("{domain}/*")].into_iter().any(|name| {
        let attributes = Attributes {
            verb: verb.to_owned(),
            group: "certificates.k8s.io".to_owned(),
            version: "*".to_owned(),
            resource: "signers".to_owned(),
            name,
            ..Attributes::default()
        };
        workspace.authorize(&call.user, &attributes).allowed
    })
}
