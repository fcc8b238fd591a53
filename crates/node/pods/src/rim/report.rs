//! How a status is written: a patch that says all that is ours, and nothing of what is others'.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};

use crate::{machine::OWN_CONDITIONS, spec};

/// What happened to something that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Done,
    /// The object is gone, or another one has its name.
    Gone,
    /// To be tried again.
    Failed,
}

/// A strategic merge patch: conditions are merged by type, so that those of others stay.
fn patch(uid: &str, status: &PodStatus) -> Value {
    let mut status = serde_json::to_value(status).unwrap_or_default();
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|condition| condition["type"].as_str().is_some_and(|name| OWN_CONDITIONS.contains(&name)));
        for condition in conditions {
            for field in ["reason", "message"] {
                if condition.get(field).is_none() {
                    condition[field] = Value::Null;
                }
            }
        }
    }
    for field in ["reason", "message"] {
        if status.get(field).is_none() {
            status[field] = Value::Null;
        }
    }
    json!({"metadata": {"uid": uid}, "status": status})
}

pub async fn write(client: Client, pod: &Pod, status: &PodStatus) -> Written {
    let pods: Api<Pod> = Api::namespaced(client, spec::namespace(pod));
    let patch = patch(spec::uid(pod), status);
    match pods.patch_status(spec::name(pod), &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(_) => Written::Done,
        Err(kube::Error::Api(error)) if matches!(error.code, 404 | 409) => Written::Gone,
        Err(error) => {
            tracing::warn!(%error, pod = spec::name(pod), "a pod's status could not be written");
            Written::Failed
        }
    }
}

pub async fn delete(client: Client, pod: &Pod) -> Written {
    let pods: Api<Pod> = Api::namespaced(client, spec::namespace(pod));
    let only = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
    let parameters =
        DeleteParams { grace_period_seconds: Some(0), preconditions: Some(only), ..DeleteParams::default() };
    match pods.delete(spec::name(pod), &parameters).await {
        Ok(_) => Written::Done,
        Err(kube::Error::Api(error)) if matches!(error.code, 404 | 409) => Written::Gone,
        Err(error) => {
            tracing::warn!(%error, pod = spec::name(pod), "a pod could not be taken out of the API");
            Written::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ours_is_written() {
        let status: PodStatus = serde_json::from_value(json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "example.com/gate", "status": "True"}],
        }))
        .unwrap();
        let expected = json!({"metadata": {"uid": "u"}, "status": {
            "phase": "Running", "reason": null, "message": null,
            "conditions": [{"type": "Ready", "status": "True", "reason": null, "message": null}],
        }});
        assert_eq!(patch("u", &status), expected);
    }
}
