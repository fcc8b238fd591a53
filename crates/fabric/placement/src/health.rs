//! Whether an object does what it shall, by the status that an edge reports of it.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Healthy,
    Progressing,
    /// Why it will not become healthy by itself.
    Failed(String),
}

impl Health {
    /// The worse of two.
    pub fn and(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Failed(_), _) => self,
            (_, Self::Failed(_)) => other,
            (Self::Progressing, _) => self,
            _ => other,
        }
    }

    fn healthy_if(done: bool) -> Self {
        if done { Self::Healthy } else { Self::Progressing }
    }
}

/// Containers that wait for these reasons wait for somebody to do something.
const HOPELESS: [&str; 6] = [
    "CrashLoopBackOff",
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
];

/// Whether the status of such objects says how they fare. Others are healthy once they are there.
pub fn is_watched(collection: &str) -> bool {
    let (group, resource) = collection.split_once('/').unwrap_or_default();
    match group {
        "apps" => matches!(resource, "deployments" | "statefulsets" | "daemonsets" | "replicasets"),
        "core" => matches!(resource, "pods" | "replicationcontrollers"),
        "batch" => resource == "jobs",
        "apiextensions.k8s.io" => true,
        _ => group.contains('.') && !group.ends_with(".k8s.io"),
    }
}

/// `object` is what the edge shall hold, `status` what it last said of it.
pub fn healthy(collection: &str, object: &Value, status: Option<&Value>) -> Health {
    if !is_watched(collection) {
        return Health::Healthy;
    }
    let Some(status) = status.filter(|status| status.is_object()) else {
        // A custom kind need not have a status.
        return Health::healthy_if(collection.contains('.') && !collection.starts_with("apiextensions.k8s.io/"));
    };
    match collection {
        "apps/deployments" => deployment(object, status),
        "apps/statefulsets" => stateful_set(object, status),
        "apps/daemonsets" => daemon_set(object, status),
        "apps/replicasets" | "core/replicationcontrollers" => replicas(object, status),
        "batch/jobs" => job(object, status),
        "core/pods" => pod(status),
        "apiextensions.k8s.io/customresourcedefinitions" => definition(status),
        _ => custom(status),
    }
}

fn number(status: &Value, field: &str) -> i64 {
    status.get(field).and_then(Value::as_i64).unwrap_or_default()
}

fn wanted(object: &Value) -> i64 {
    object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

/// The value of a condition, and what it says besides.
fn condition<'a>(status: &'a Value, kind: &str) -> Option<(&'a str, &'a Value)> {
    let found = status.get("conditions")?.as_array()?.iter().find(|one| one["type"] == kind)?;
    Some((found.get("status")?.as_str()?, found))
}

fn is(status: &Value, kind: &str, value: &str) -> Option<String> {
    let (is, found) = condition(status, kind)?;
    (is == value).then(|| said(kind, found))
}

fn said(kind: &str, condition: &Value) -> String {
    let text = |field: &str| condition.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let text = text("message").or(text("reason")).unwrap_or(kind);
    text.chars().take(200).collect()
}

fn deployment(object: &Value, status: &Value) -> Health {
    if let Some(why) = is(status, "ReplicaFailure", "True") {
        return Health::Failed(why);
    }
    if let Some((_, found)) = condition(status, "Progressing")
        && found["reason"] == "ProgressDeadlineExceeded"
    {
        return Health::Failed(said("Progressing", found));
    }
    let (wanted, updated) = (wanted(object), number(status, "updatedReplicas"));
    let only_new = number(status, "replicas") <= updated;
    Health::healthy_if(updated >= wanted && only_new && number(status, "availableReplicas") >= wanted)
}

fn stateful_set(object: &Value, status: &Value) -> Health {
    let wanted = wanted(object);
    let strategy = |field: &str| object.pointer(&format!("/spec/updateStrategy/{field}"));
    let partition = strategy("rollingUpdate/partition").and_then(Value::as_i64).unwrap_or_default();
    let by_hand = strategy("type").is_some_and(|kind| kind == "OnDelete");
    let updated = by_hand || number(status, "updatedReplicas") >= (wanted - partition).max(0);
    Health::healthy_if(updated && number(status, "readyReplicas") >= wanted)
}

fn daemon_set(object: &Value, status: &Value) -> Health {
    let wanted = number(status, "desiredNumberScheduled");
    let by_hand = object.pointer("/spec/updateStrategy/type").is_some_and(|kind| kind == "OnDelete");
    let updated = by_hand || number(status, "updatedNumberScheduled") >= wanted;
    // Before the controller has looked, it wants none.
    let looked = status.get("observedGeneration").is_some() || wanted > 0;
    Health::healthy_if(looked && updated && number(status, "numberAvailable") >= wanted)
}

fn replicas(object: &Value, status: &Value) -> Health {
    match is(status, "ReplicaFailure", "True") {
        Some(why) => Health::Failed(why),
        None => Health::healthy_if(number(status, "availableReplicas") >= wanted(object)),
    }
}

fn job(object: &Value, status: &Value) -> Health {
    if let Some(why) = is(status, "Failed", "True") {
        return Health::Failed(why);
    }
    let suspended = object.pointer("/spec/suspend").is_some_and(|suspend| suspend == true);
    Health::healthy_if(suspended || is(status, "Complete", "True").is_some())
}

fn pod(status: &Value) -> Health {
    match status.get("phase").and_then(Value::as_str) {
        Some("Succeeded") => return Health::Healthy,
        Some("Failed") => return Health::Failed(said("the pod failed", status)),
        _ => {}
    }
    let all = ["initContainerStatuses", "containerStatuses"];
    let containers = all.iter().filter_map(|field| status.get(field)?.as_array()).flatten();
    for waiting in containers.filter_map(|container| container.pointer("/state/waiting")) {
        let reason = waiting.get("reason").and_then(Value::as_str).unwrap_or_default();
        if HOPELESS.contains(&reason) {
            return Health::Failed(said(reason, waiting));
        }
    }
    Health::healthy_if(is(status, "Ready", "True").is_some())
}

fn definition(status: &Value) -> Health {
    match is(status, "NamesAccepted", "False") {
        Some(why) => Health::Failed(why),
        None => Health::healthy_if(is(status, "Established", "True").is_some()),
    }
}

/// By the conditions that most kinds have.
fn custom(status: &Value) -> Health {
    for bad in ["Failed", "Stalled"] {
        if let Some(why) = is(status, bad, "True") {
            return Health::Failed(why);
        }
    }
    let good = ["Ready", "Available"].iter().find_map(|kind| condition(status, kind));
    Health::healthy_if(good.is_none_or(|(is, _)| is == "True"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn conditions(all: &[(&str, &str)]) -> Value {
        all.iter()
            .map(|(kind, status)| json!({"type": kind, "status": status, "message": format!("about {kind}")}))
            .collect()
    }

    #[test]
    fn health() {
        let (healthy_, progressing) = (|| Health::Healthy, || Health::Progressing);
        let failed = |why: &str| Health::Failed(why.to_owned());
        let two = json!({"spec": {"replicas": 2}});
        let late =
            json!({"conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]});
        for (collection, object, status, want) in [
            ("core/configmaps", json!({}), json!(null), healthy_()),
            ("core/services", json!({}), json!({"conditions": conditions(&[("Ready", "False")])}), healthy_()),
            ("networking.k8s.io/ingresses", json!({}), json!({}), healthy_()),
            ("apps/deployments", json!({}), json!(null), progressing()),
            ("apps/deployments", json!({}), json!({}), progressing()),
            ("apps/deployments", json!({"spec": {"replicas": 0}}), json!({}), healthy_()),
            (
                "apps/deployments",
                two.clone(),
                json!({"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}),
                healthy_(),
            ),
            (
                "apps/deployments",
                two.clone(),
                json!({"replicas": 2, "updatedReplicas": 2, "availableReplicas": 1}),
                progressing(),
            ),
            (
                "apps/deployments",
                two.clone(),
                json!({"replicas": 2, "updatedReplicas": 1, "availableReplicas": 2}),
                progressing(),
            ),
            (
                "apps/deployments",
                two.clone(),
                json!({"replicas": 3, "updatedReplicas": 2, "availableReplicas": 3}),
                progressing(),
            ),
            ("apps/deployments", two.clone(), late, failed("ProgressDeadlineExceeded")),
            (
                "apps/deployments",
                two.clone(),
                json!({"conditions": conditions(&[("ReplicaFailure", "True")])}),
                failed("about ReplicaFailure"),
            ),
            ("apps/statefulsets", two.clone(), json!({"updatedReplicas": 2, "readyReplicas": 2}), healthy_()),
            ("apps/statefulsets", two.clone(), json!({"updatedReplicas": 1, "readyReplicas": 2}), progressing()),
            (
                "apps/statefulsets",
                json!({"spec": {"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}}}),
                json!({"updatedReplicas": 1, "readyReplicas": 2}),
                healthy_(),
            ),
            (
                "apps/statefulsets",
                json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}),
                json!({"readyReplicas": 1}),
                healthy_(),
            ),
            ("apps/daemonsets", json!({}), json!({}), progressing()),
            ("apps/daemonsets", json!({}), json!({"observedGeneration": 1}), healthy_()),
            (
                "apps/daemonsets",
                json!({}),
                json!({"desiredNumberScheduled": 1, "updatedNumberScheduled": 1, "numberAvailable": 1}),
                healthy_(),
            ),
            (
                "apps/daemonsets",
                json!({}),
                json!({"desiredNumberScheduled": 1, "updatedNumberScheduled": 1}),
                progressing(),
            ),
            ("apps/replicasets", two.clone(), json!({"availableReplicas": 2}), healthy_()),
            ("apps/replicasets", two, json!({"availableReplicas": 1}), progressing()),
            ("apps/controllerrevisions", json!({}), json!(null), healthy_()),
            ("batch/jobs", json!({}), json!({"active": 1}), progressing()),
            ("batch/jobs", json!({"spec": {"suspend": true}}), json!({}), healthy_()),
            ("batch/jobs", json!({}), json!({"conditions": conditions(&[("Complete", "True")])}), healthy_()),
            ("batch/jobs", json!({}), json!({"conditions": conditions(&[("Failed", "True")])}), failed("about Failed")),
            ("batch/cronjobs", json!({}), json!({}), healthy_()),
            (
                "core/pods",
                json!({}),
                json!({"phase": "Running", "conditions": conditions(&[("Ready", "True")])}),
                healthy_(),
            ),
            (
                "core/pods",
                json!({}),
                json!({"phase": "Running", "conditions": conditions(&[("Ready", "False")])}),
                progressing(),
            ),
            ("core/pods", json!({}), json!({"phase": "Succeeded"}), healthy_()),
            ("core/pods", json!({}), json!({"phase": "Failed", "reason": "Evicted"}), failed("Evicted")),
            (
                "core/pods",
                json!({}),
                json!({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}),
                failed("ImagePullBackOff"),
            ),
            (
                "core/pods",
                json!({}),
                json!({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}),
                progressing(),
            ),
            ("apiextensions.k8s.io/customresourcedefinitions", json!({}), json!(null), progressing()),
            (
                "apiextensions.k8s.io/customresourcedefinitions",
                json!({}),
                json!({"conditions": conditions(&[("Established", "True")])}),
                healthy_(),
            ),
            (
                "apiextensions.k8s.io/customresourcedefinitions",
                json!({}),
                json!({"conditions": conditions(&[("NamesAccepted", "False")])}),
                failed("about NamesAccepted"),
            ),
            ("example.com/widgets", json!({}), json!(null), healthy_()),
            ("example.com/widgets", json!({}), json!({"phase": "x"}), healthy_()),
            ("example.com/widgets", json!({}), json!({"conditions": conditions(&[("Ready", "True")])}), healthy_()),
            (
                "example.com/widgets",
                json!({}),
                json!({"conditions": conditions(&[("Ready", "Unknown")])}),
                progressing(),
            ),
            (
                "example.com/widgets",
                json!({}),
                json!({"conditions": conditions(&[("Available", "False")])}),
                progressing(),
            ),
            (
                "example.com/widgets",
                json!({}),
                json!({"conditions": conditions(&[("Ready", "True"), ("Failed", "True")])}),
                failed("about Failed"),
            ),
            ("example.com/widgets", json!({}), json!({"conditions": 7}), healthy_()),
        ] {
            assert_eq!(healthy(collection, &object, Some(&status)), want, "{collection} {object} {status}");
        }
        assert_eq!(healthy("apps/deployments", &json!({}), None), Health::Progressing);
    }

    #[test]
    fn the_worst_counts() {
        let failed = || Health::Failed("x".into());
        assert_eq!(Health::Healthy.and(Health::Progressing), Health::Progressing);
        assert_eq!(Health::Progressing.and(Health::Healthy), Health::Progressing);
        assert_eq!(Health::Progressing.and(failed()), failed());
        assert_eq!(failed().and(Health::Healthy), failed());
        assert_eq!(Health::Healthy.and(Health::Healthy), Health::Healthy);
    }
}
