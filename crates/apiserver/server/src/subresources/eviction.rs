//! Eviction: a deletion that asks the disruption budgets first.

use schema::selector::LabelSelector;
use schema::status::{Cause, Result, Status};
use serde_json::{Value, json};

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

/// So many evictions may wait for the budget's controller to see them.
const MOST_UNCONFIRMED: usize = 2000;

pub async fn evict(call: &Call) -> Result<Reply> {
    let mut eviction = write::receive_kind(call, "policy/v1", "Eviction")?;
    let name = call.target.name.as_str();
    if eviction["metadata"]["name"].as_str().unwrap_or_default() != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let pods = on_pod(call, name, "")?;
    admission::review(call, admission::Operation::Create, &mut eviction, None).await?;
    let pod = pods.get().ok_or_else(|| pods.not_found())?.value();
    crate::admission::restrict_eviction(call, &pod)?;
    let options = Options::from_value(&eviction["deleteOptions"])?;
    if !options.is_dry_run() && !call.dry_run() {
        if counts(&pod) {
            disrupt(call, &pod).await?;
        }
        // Whoever names the revision that they saw means that one, and the mark would be another.
        let is_named = !eviction["deleteOptions"]["preconditions"]["resourceVersion"].is_null();
        if !is_named {
            mark(call, name).await?;
        }
    }
    delete::remove(&pods, &pods.key(), name, &options).await?;
    Ok(Reply::success(201))
}

/// Pods that are finished or not yet running take nothing from a budget.
fn counts(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    !matches!(phase, "Succeeded" | "Failed" | "Pending") && pod["metadata"]["deletionTimestamp"].is_null()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// A pod that is not ready helps nobody: whether it may go anyway is the budget's policy.
fn is_spare(budget: &Value, pod: &Value) -> bool {
    if is_ready(pod) {
        return false;
    }
    let count = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || count("desiredHealthy") > 0 && count("currentHealthy") >= count("desiredHealthy")
}

/// Says on the pod why it goes.
async fn mark(call: &Call, name: &str) -> Result<()> {
    const KIND: &str = "DisruptionTarget";
    let on_status = on_pod(call, name, "status")?;
    update::change(&on_status, |old| {
        let mut value = old.value();
        let mut conditions = value["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let since = conditions.iter().find(|one| one["type"] == KIND && one["status"] == "True");
        let since = since.map_or_else(|| clock::now().into(), |one| one["lastTransitionTime"].clone());
        conditions.retain(|one| one["type"] != KIND);
        conditions.push(json!({
            "type": KIND, "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
            "lastProbeTime": null, "lastTransitionTime": since,
        }));
        value["status"]["conditions"] = conditions.into();
        Ok(value)
    })
    .await?;
    Ok(())
}

/// Takes one disruption from the budget that covers the pod, or says why not.
async fn disrupt(call: &Call, pod: &Value) -> Result<()> {
    let budgets = budgets_of(call, pod)?;
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let [budget] = budgets.as_slice() else {
        if budgets.is_empty() {
            return Ok(());
        }
        let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(Status::new(500, "", why));
    };
    let mut on_budget = on_pod(call, budget, "status")?;
    on_budget.kind = call
        .server
        .kinds
        .find(&call.cluster, "policy", "v1", "poddisruptionbudgets")
        .ok_or_else(Status::no_such_path)?;
    update::change(&on_budget, |old| {
        let mut value = old.value();
        if is_spare(&value, pod) {
            return Ok(value);
        }
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
        if value["status"]["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MOST_UNCONFIRMED) {
            let message = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
            return Err(Status::forbidden("policy", "poddisruptionbudgets", budget, message));
        }
        if let Some(failure) = sync_failure(&value) {
            return Err(cause(format!(
                "The disruption budget {budget} does not allow evicting pods currently because it failed sync: {failure}"
            )));
        }
        if allowed <= 0 {
            let desired = value["status"]["desiredHealthy"].as_i64().unwrap_or(0);
            let current = value["status"]["currentHealthy"].as_i64().unwrap_or(0);
            return Err(cause(format!(
                "The disruption budget {budget} needs {desired} healthy pods and has {current} currently"
            )));
        }
        value["status"]["disruptionsAllowed"] = (allowed - 1).into();
        if allowed == 1 {
            say_no_more(&mut value);
        }
        value["status"]["disruptedPods"][name] = clock::now().into();
        Ok(value)
    })
    .await?;
    Ok(())
}

fn allowance(budget: &mut Value) -> Option<&mut Value> {
    let conditions = budget.pointer_mut("/status/conditions").and_then(Value::as_array_mut)?;
    conditions.iter_mut().find(|condition| condition["type"] == "DisruptionAllowed")
}

/// Why the budget's controller could not work it out, if it could not.
fn sync_failure(budget: &Value) -> Option<String> {
    let condition = allowance(&mut budget.clone())?.clone();
    let failed = condition["status"] == "False" && condition["reason"] == "SyncFailed";
    failed.then(|| condition["message"].as_str().unwrap_or_default().to_owned())
}

/// The last one was taken.
fn say_no_more(budget: &mut Value) {
    if let Some(condition) = allowance(budget).filter(|condition| condition["status"] == "True") {
        condition["status"] = "False".into();
        condition["reason"] = "InsufficientPods".into();
        condition["lastTransitionTime"] = clock::now().into();
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_is_not_ready_may_go_where_nobody_misses_it() {
        let pod = |ready: &str| json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let budget = |policy: Value, desired: i64, current: i64| {
            json!({
                "spec": {"unhealthyPodEvictionPolicy": policy},
                "status": {"desiredHealthy": desired, "currentHealthy": current},
            })
        };
        for (policy, desired, current, ready, expected) in [
            (Value::Null, 2, 2, "True", false),
            (Value::Null, 2, 2, "False", true),
            (Value::Null, 2, 1, "False", false),
            (Value::Null, 0, 0, "False", false),
            ("IfHealthyBudget".into(), 2, 2, "False", true),
            ("IfHealthyBudget".into(), 2, 1, "False", false),
            ("AlwaysAllow".into(), 2, 1, "False", true),
            ("AlwaysAllow".into(), 2, 1, "True", false),
        ] {
            let budget = budget(policy.clone(), desired, current);
            assert_eq!(is_spare(&budget, &pod(ready)), expected, "{policy} {desired} {current} {ready}");
        }
        assert!(is_spare(&budget("AlwaysAllow".into(), 1, 0), &json!({})));
    }

    #[test]
    fn the_last_disruption_is_said_to_be_the_last() {
        let mut budget = json!({"status": {"conditions": [
            {"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "lastTransitionTime": "x"}
        ]}});
        assert_eq!(sync_failure(&budget), None);
        say_no_more(&mut budget);
        let condition = &budget["status"]["conditions"][0];
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("InsufficientPods")));
        let failed = json!({"status": {"conditions": [
            {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "why"}
        ]}});
        assert_eq!(sync_failure(&failed).as_deref(), Some("why"));
    }
}
