//! The status of admission policies: that this server has seen them as they are, and which of their expressions do not fit
//! the kinds that they are about.

use std::{collections::BTreeMap, sync::Arc};

use cache::object::Object;
use cel::Type;
use rules::validate::{Checked, type_warnings};
use schema::status::Result;
use serde_json::{Value, json};

use super::Controllers;
use crate::{Server, internal::Internal, kinds::Kind};

pub const POLICIES: &str = "admissionregistration.k8s.io/validatingadmissionpolicies";
/// Expressions are checked against at most this many kinds.
const MOST_KINDS: usize = 10;

pub async fn run(controllers: Arc<Controllers>, server: Arc<Server>) {
    loop {
        let key = controllers.policies.pop().await;
        let Some(object) = server.cache.get(POLICIES, &key) else { continue };
        let hand = Internal::new(&server, object.cluster(), "kube-apiserver");
        if let Err(status) = observe(&server, &hand, &object).await {
            tracing::warn!(policy = object.name(), error = %status, "the status of a policy could not be written");
        }
    }
}

async fn observe(server: &Arc<Server>, hand: &Internal, object: &Arc<Object>) -> Result<()> {
    let value = object.value();
    let generation = value["metadata"]["generation"].clone();
    if value["status"]["observedGeneration"] == generation {
        return Ok(());
    }
    let (checking, cluster, size) = (server.clone(), object.cluster().to_owned(), object.json.len());
    let work = Box::pin(async move { check(&checking, &cluster, &value) });
    let checked = server.apart(object.cluster(), "system:apiserver", size, work).await?;
    let kind = hand.kind("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies")?;
    let edit = |value: &mut Value| {
        // What was checked is the policy as it was; a later one is checked in its turn.
        if value["metadata"]["generation"] == generation {
            value["status"]["observedGeneration"] = generation.clone();
            value["status"]["typeChecking"] = checked.clone();
        }
    };
    hand.change(&kind, "", object.name(), "status", edit).await?;
    Ok(())
}

/// `status.typeChecking` of a policy.
fn check(server: &Server, cluster: &str, policy: &Value) -> Value {
    let params = &policy["spec"]["paramKind"];
    let params = match (params["apiVersion"].as_str(), params["kind"].as_str()) {
        (Some(version), Some(kind)) => server.kinds.find_kind(cluster, version, kind).and_then(|kind| declared(&kind)),
        _ => None,
    };
    let kinds: Vec<Checked> = matched(server, cluster, policy)
        .into_iter()
        .filter_map(|(name, kind)| Some(Checked { name, object: declared(&kind)? }))
        .collect();
    let warnings = type_warnings(policy, &kinds, params.as_ref().unwrap_or(&Type::Dyn));
    let warnings: Vec<Value> =
        warnings.into_iter().map(|found| json!({"fieldRef": found.field, "warning": found.text})).collect();
    if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) }
}

fn declared(kind: &Kind) -> Option<Type> {
    kind.schema().map(|(schema, ty)| Type::declared(&schema, ty, kind.name()))
}

/// The kinds that a policy names, without those that are meant by a `*`: `apps/v1, Kind=Deployment`.
fn matched(server: &Server, cluster: &str, policy: &Value) -> BTreeMap<String, Arc<Kind>> {
    let texts = |list: &Value| -> Vec<String> {
        let mut texts: Vec<String> =
            list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect();
        texts.sort();
        texts
    };
    let mut found = BTreeMap::new();
    for rule in policy["spec"]["matchConstraints"]["resourceRules"].as_array().into_iter().flatten() {
        let (groups, versions) = (texts(&rule["apiGroups"]), texts(&rule["apiVersions"]));
        if groups.iter().chain(&versions).any(|text| text.contains('*')) {
            continue;
        }
        let resources = texts(&rule["resources"]);
        for resource in resources.iter().filter(|resource| !resource.contains(['*', '/'])) {
            for (group, version) in groups.iter().flat_map(|group| versions.iter().map(move |v| (group, v))) {
                let Some(kind) = server.kinds.find(cluster, group, version, resource) else { continue };
                found.insert(format!("{group}/{version}, Kind={}", kind.name()), kind);
                if found.len() == MOST_KINDS {
                    return found;
                }
            }
        }
    }
    found
}
