//! What `kubectl top` reads: objects of metrics.k8s.io/v1beta1. Pure.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Measured, OfPod, Used};

pub const API_VERSION: &str = "metrics.k8s.io/v1beta1";

/// `labels` are those of the Node object.
pub fn node(name: &str, labels: &Value, measured: &Measured) -> Value {
    json!({"kind": "NodeMetrics", "apiVersion": API_VERSION,
        "metadata": {"name": name, "creationTimestamp": whole_seconds(measured), "labels": labels},
        "timestamp": whole_seconds(measured), "window": window(measured.window), "usage": usage(&measured.machine)})
}

/// Of all namespaces.
pub fn pods(measured: &Measured) -> Vec<Value> {
    measured.pods.iter().map(|pod| of_pod(pod, measured)).collect()
}

fn of_pod(pod: &OfPod, measured: &Measured) -> Value {
    let containers: Vec<Value> = pod
        .containers
        .iter()
        .map(|container| json!({"name": container.name, "usage": usage(&container.used)}))
        .collect();
    json!({"kind": "PodMetrics", "apiVersion": API_VERSION,
        "metadata": {"name": pod.name, "namespace": pod.namespace, "creationTimestamp": whole_seconds(measured),
            "labels": pod.pod.metadata.labels.clone().unwrap_or_default()},
        "timestamp": whole_seconds(measured), "window": window(pod.window), "containers": containers})
}

fn usage(used: &Used) -> Value {
    json!({"cpu": format!("{}n", used.cpu_rate), "memory": format!("{}Ki", used.memory.div_ceil(1024))})
}

fn whole_seconds(measured: &Measured) -> String {
    jiff::Timestamp::from_second(measured.at.as_second()).unwrap_or(measured.at).to_string()
}

fn window(window: Duration) -> String {
    format!("{}.{:03}s", window.as_secs(), window.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_kubectl_reads() {
        let measured = super::super::tests::measured();
        let node = node("n1", &json!({"a": "b"}), &measured);
        assert_eq!(node["usage"], json!({"cpu": "500000000n", "memory": "1Ki"}));
        assert_eq!((node["window"].as_str(), &node["metadata"]["labels"]["a"]), (Some("2.000s"), &json!("b")));
        let pods = pods(&measured);
        assert_eq!(pods[0]["containers"], json!([{"name": "app", "usage": {"cpu": "500000000n", "memory": "4Ki"}}]));
        assert_eq!(
            (&pods[1]["metadata"]["namespace"], &pods[1]["metadata"]["labels"]["app"]),
            (&json!("other"), &json!("new"))
        );
        assert_eq!(pods[0]["timestamp"], "2026-01-02T03:04:02Z");
    }
}
