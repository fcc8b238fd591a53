//! The row of a pod: how its containers' states become one word.

use serde_json::Value;

use crate::table::age::{age, human, seconds};
use crate::table::read::{flag, has, int, is_true, items, name, text, text_or};
use crate::table::tree::Node;

pub(super) fn pod(pod: &Node<'_>, now: i64) -> Vec<Value> {
    let summary = summarise(pod);
    let restarts = match summary.last_restart {
        Some(at) if summary.restarts != 0 => format!("{} ({} ago)", summary.restarts, human(now.saturating_sub(at))),
        _ => summary.restarts.to_string(),
    };
    let ip = pod.pointer("/status/podIPs/0/ip").or_else(|| pod.pointer("/status/podIP")).and_then(|ip| ip.as_str());
    vec![
        name(pod),
        format!("{}/{}", summary.ready, summary.containers).into(),
        summary.reason.into(),
        restarts.into(),
        age(pod, now),
        ip.filter(|ip| !ip.is_empty()).unwrap_or("<none>".into()).into(),
        text_or(pod, "/spec/nodeName", "<none>").into(),
        text_or(pod, "/status/nominatedNodeName", "<none>").into(),
        readiness_gates(pod).into(),
    ]
}

fn readiness_gates(pod: &Node<'_>) -> String {
    let gates = items(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let conditions = items(pod, "/status/conditions");
    let passed = gates.iter().filter(|gate| is_true(&conditions, &text(gate, "/conditionType"))).count();
    format!("{passed}/{}", gates.len())
}

struct Summary {
    reason: String,
    restarts: i64,
    last_restart: Option<i64>,
    ready: usize,
    containers: usize,
}

/// The restarts of a set of containers, and when the last of them was.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<i64>,
}

impl Restarts {
    fn add(&mut self, container: &Node<'_>) {
        self.count = self.count.saturating_add(int(container, "/restartCount"));
        self.last = self.last.max(seconds(&text(container, "/lastState/terminated/finishedAt")));
    }
}

fn summarise(pod: &Node<'_>) -> Summary {
    let phase = text(pod, "/status/phase");
    let conditions = items(pod, "/status/conditions");
    let mut reason = text_or(pod, "/status/reason", &*phase).into_owned();
    if conditions.iter().any(|c| text(c, "/type") == "PodScheduled" && text(c, "/reason") == "SchedulingGated") {
        "SchedulingGated".clone_into(&mut reason);
    }

    let init_containers = items(pod, "/spec/initContainers");
    let is_sidecar = |container: &Node<'_>| text(container, "/restartPolicy") == "Always";
    let mut ready = 0;
    let containers = items(pod, "/spec/containers").len() + init_containers.iter().filter(|c| is_sidecar(c)).count();

    let (mut all, mut sidecars) = (Restarts::default(), Restarts::default());
    let mut initializing = false;
    for (i, container) in items(pod, "/status/initContainerStatuses").iter().enumerate() {
        let declared = init_containers.iter().find(|c| text(c, "/name") == text(container, "/name"));
        let sidecar = declared.is_some_and(is_sidecar);
        all.add(container);
        if sidecar {
            sidecars.add(container);
        }
        let terminated = has(container, "/state/terminated");
        let waiting = text(container, "/state/waiting/reason");
        if terminated && int(container, "/state/terminated/exitCode") == 0 {
            continue;
        }
        if sidecar && flag(container, "/started") {
            ready += usize::from(flag(container, "/ready"));
            continue;
        }
        reason = if terminated {
            format!("Init:{}", termination(container))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{i}/{}", init_containers.len())
        };
        initializing = true;
        break;
    }

    if !initializing || is_true(&conditions, "Initialized") {
        all = sidecars;
        let mut running = false;
        let mut failure = None;
        for container in items(pod, "/status/containerStatuses").iter().rev() {
            all.add(container);
            let waiting = text(container, "/state/waiting/reason");
            if !waiting.is_empty() {
                reason = waiting.into_owned();
            } else if has(container, "/state/terminated") {
                reason = termination(container);
                if int(container, "/state/terminated/exitCode") != 0 {
                    failure = Some(reason.clone());
                }
            } else if flag(container, "/ready") && has(container, "/state/running") {
                running = true;
                ready += 1;
            }
        }
        // One container that ended well says nothing about the others.
        if reason == "Completed" {
            if running && is_true(&conditions, "Ready") {
                "Running".clone_into(&mut reason);
            } else if let Some(failure) = failure {
                reason = failure;
            } else if running {
                "NotReady".clone_into(&mut reason);
            }
        }
    }

    if has(pod, "/metadata/deletionTimestamp") {
        if text(pod, "/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if !matches!(&*phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut reason);
        }
    }
    Summary { reason, restarts: all.count, last_restart: all.last, ready, containers }
}

/// Why a container ended.
fn termination(container: &Node<'_>) -> String {
    let reason = text(container, "/state/terminated/reason");
    let signal = int(container, "/state/terminated/signal");
    if !reason.is_empty() {
        reason.into_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", int(container, "/state/terminated/exitCode"))
    }
}
