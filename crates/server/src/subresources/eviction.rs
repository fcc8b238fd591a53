//! Eviction: a deletion that asks the disruption budgets first.

use api::{
    selector::LabelSelector,
    status::{Cause, Result, Status},
};
use serde_json::Value;

use super::binding::on_pod;
use crate::{
    admission,
    call::Call,
    reply::Reply,
    verbs::{
        delete::{self, Options},
        update, write,
    },
};

pub async fn evict(call: &Call) -> Result<Reply> {
    let mut eviction = write::receive_as(call, "policy/v1", "Eviction")?.value;
    let name = call.target.name.as_str();
    if eviction["metadata"]["name"].as_str().unwrap_or_default() != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let pods = on_pod(call, name, "")?;
    admission::review(call, admission::Operation::Create, &mut eviction, None).await?;
    let pod = pods.get().ok_or_else(|| pods.not_found())?.value();
    crate::admission::restrict_eviction(call, &pod)?;
    let options = Options::from_value(&eviction["deleteOptions"])?;
    if !options.is_dry_run() && !call.dry_run() && counts(&pod) {
        disrupt(call, &pod).await?;
    }
    delete::remove(&pods, &pods.key(), name, &options).await?;
    Ok(Reply::success(201))
}

/// Pods that are finished or not yet running take nothing from a budget.
fn counts(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    !matches!(phase, "Succeeded" | "Failed" | "Pending") && pod["metadata"]["deletionTimestamp"].is_null()
}

/// Takes one disruption from the budget that covers the pod, or says why not.
async fn disrupt(call: &Call, pod: &Value) -> Result<()> {
    let budgets = budgets_of(call, pod)?;
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let [budget] = budgets.as_slice() else {
        if budgets.is_empty() {
            return Ok(());
        }
        return Err(Status::internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        ));
    };
    let mut on_budget = on_pod(call, budget, "status")?;
    on_budget.kind = call
        .server
        .kinds
        .find(&call.cluster, "policy", "v1", "poddisruptionbudgets")
        .ok_or_else(Status::no_such_path)?;
    update::change(&on_budget, |old| {
        let mut value = old.value();
        let allowed = value["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
        let observed = value["status"]["observedGeneration"].as_i64().unwrap_or(0);
        let cause = |message: String| {
            let message_cause = Cause { reason: "DisruptionBudget".into(), message, field: String::new() };
            Status::too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
                .with_causes(vec![message_cause])
        };
        if observed < value["metadata"]["generation"].as_i64().unwrap_or(0) {
            return Err(cause(format!("The disruption budget {budget} is still being processed by the server."))
                .retry_after(10));
        }
        if allowed <= 0 {
            let desired = value["status"]["desiredHealthy"].as_i64().unwrap_or(0);
            let current = value["status"]["currentHealthy"].as_i64().unwrap_or(0);
            return Err(cause(format!(
                "The disruption budget {budget} needs {desired} healthy pods and has {current} currently"
            )));
        }
        value["status"]["disruptionsAllowed"] = (allowed - 1).into();
        value["status"]["disruptedPods"][name] = crate::clock::now().into();
        Ok(value)
    })
    .await?;
    Ok(())
}

fn budgets_of(call: &Call, pod: &Value) -> Result<Vec<String>> {
    let snapshot = call.server.cache.snapshot("policy/poddisruptionbudgets");
    let prefix = format!("{}/{}/", call.cluster, call.target.namespace);
    let mut names = Vec::new();
    for object in snapshot.items.range(&prefix, "") {
        let budget = object.value();
        let selector = LabelSelector::from_value(&budget["spec"]["selector"])?;
        if selector.matches_object(pod) {
            names.push(object.name().to_owned());
        }
    }
    Ok(names)
}
