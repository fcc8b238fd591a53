//! Which run of a container somebody means, or why there is none, in a kubelet's words. Pure.

use http::StatusCode;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use pods::{Known, Run};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("container {container:?} not found in pod {pod:?}\n")]
    NoContainer { container: String, pod: String },
    #[error("container {container:?} in pod {pod:?} is not available")]
    Unknown { container: String, pod: String },
    #[error("previous terminated container {container:?} in pod {pod:?} not found")]
    NoPrevious { container: String, pod: String },
    #[error("container {container:?} in pod {pod:?} is waiting to start: {why}")]
    Waiting { container: String, pod: String, why: String },
}

impl Refusal {
    pub fn code(&self) -> StatusCode {
        match self {
            Self::NoContainer { .. } => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

pub fn run(known: &Known, name: &str, previous: bool) -> Result<Run, Refusal> {
    let (container, pod) = (name.to_owned(), known.name.clone());
    if !is_in_spec(&known.pod, name) {
        return Err(Refusal::NoContainer { container, pod });
    }
    let Some(of_it) = known.container(name) else { return Err(Refusal::Unknown { container, pod }) };
    let waiting = status(&known.pod, name).and_then(|status| status.state.as_ref()?.waiting.as_ref());
    let ended = of_it.current.as_ref().filter(|run| !run.is_running);
    if previous {
        // While the next run waits for its time, the last one is the previous one already.
        let last = ended.filter(|_| waiting.is_some()).or(of_it.previous.as_ref());
        return last.cloned().ok_or(Refusal::NoPrevious { container, pod });
    }
    if let Some(run) = &of_it.current {
        return Ok(run.clone());
    }
    let why = match waiting.and_then(|waiting| waiting.reason.as_deref()) {
        Some("ErrImagePull") => "image can't be pulled",
        Some("ImagePullBackOff") => "trying and failing to pull image",
        Some(reason) => reason,
        None => "no logs yet",
    };
    Err(Refusal::Waiting { container, pod, why: why.to_owned() })
}

fn is_in_spec(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    spec.containers.iter().chain(spec.init_containers.iter().flatten()).any(|container| container.name == name)
        || spec.ephemeral_containers.iter().flatten().any(|container| container.name == name)
}

fn status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let lists = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().find(|status| status.name == name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pods::{KnownContainer, runtime::ContainerId};
    use serde_json::json;

    use super::*;

    fn ran(attempt: u32, is_running: bool) -> Run {
        let id = ContainerId { pod: "u".into(), name: "app".into(), attempt };
        Run { id, log: format!("{attempt}.log").into(), is_running, started_at: "2026-01-02T03:04:05Z".into() }
    }

    #[test]
    fn the_run_that_is_meant() {
        let (first, second, over) = (ran(0, false), ran(1, true), ran(1, false));
        let none = json!({});
        let waits = |reason: &str| json!({"waiting": {"reason": reason}});
        let not_started = |why: &str| Err(format!("container \"app\" in pod \"web\" is waiting to start: {why}"));
        let no_previous = || Err("previous terminated container \"app\" in pod \"web\" not found".to_owned());
        for (current, before, state, previous, expected) in [
            (Some(&second), Some(&first), &none, false, Ok(1)),
            (Some(&second), Some(&first), &none, true, Ok(0)),
            (Some(&first), None, &none, false, Ok(0)),
            (Some(&first), None, &none, true, no_previous()),
            (Some(&over), Some(&first), &json!({"terminated": {"exitCode": 1}}), true, Ok(0)),
            (Some(&over), Some(&first), &waits("CrashLoopBackOff"), true, Ok(1)),
            (Some(&over), Some(&first), &waits("CrashLoopBackOff"), false, Ok(1)),
            (None, None, &waits("ContainerCreating"), false, not_started("ContainerCreating")),
            (None, None, &waits("ErrImagePull"), false, not_started("image can't be pulled")),
            (None, None, &waits("ImagePullBackOff"), false, not_started("trying and failing to pull image")),
            (None, None, &none, false, not_started("no logs yet")),
            (None, None, &waits("ContainerCreating"), true, no_previous()),
        ] {
            let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "app"}]},
                "status": {"containerStatuses": [{"name": "app", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]}});
            let known = Known {
                uid: "u".into(),
                namespace: "default".into(),
                name: "web".into(),
                address: None,
                pod: Arc::new(serde_json::from_value(pod).unwrap()),
                containers: vec![KnownContainer {
                    name: "app".into(),
                    is_init: false,
                    current: current.cloned(),
                    previous: before.cloned(),
                }],
            };
            let got = run(&known, "app", previous).map(|run| run.id.attempt).map_err(|refusal| refusal.to_string());
            assert_eq!(got, expected, "{state} {previous}");
            assert_eq!(run(&known, "x", previous).unwrap_err().code(), StatusCode::NOT_FOUND);
        }
    }
}
