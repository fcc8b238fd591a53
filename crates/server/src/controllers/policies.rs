//! The status of admission policies: that this server has seen them as they are.

use std::sync::Arc;

use api::status::Result;
use serde_json::json;

use super::Controllers;
use crate::{Server, internal::Internal, object::Object};

pub const POLICIES: &str = "admissionregistration.k8s.io/validatingadmissionpolicies";

pub async fn run(controllers: Arc<Controllers>, server: Arc<Server>) {
    loop {
        let key = controllers.policies.pop().await;
        let Some(object) = server.cache.get(POLICIES, &key) else { continue };
        let hand = Internal::new(&server, object.cluster(), "kube-apiserver");
        if let Err(status) = observe(&hand, &object).await {
            tracing::warn!(policy = object.name(), error = %status, "the status of a policy could not be written");
        }
    }
}

async fn observe(hand: &Internal, object: &Object) -> Result<()> {
    let value = object.value();
    let generation = &value["metadata"]["generation"];
    if value["status"]["observedGeneration"] == *generation {
        return Ok(());
    }
    let kind = hand.kind("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies")?;
    let edit = |value: &mut serde_json::Value| {
        value["status"]["observedGeneration"] = generation.clone();
        if value["status"]["typeChecking"].is_null() {
            value["status"]["typeChecking"] = json!({});
        }
    };
    hand.change(&kind, "", object.name(), "status", edit).await?;
    Ok(())
}
