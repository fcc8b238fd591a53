//! `/stats/summary`, in a kubelet's shape. Pure.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Measured, OfContainer, OfPod, Used};

pub fn summary(node: &str, measured: &Measured) -> Value {
    let at = measured.at.to_string();
    let mut of_node = used(&measured.machine, &at);
    of_node["nodeName"] = node.into();
    if let Ok(booted) = Timestamp::from_second(measured.booted_at) {
        of_node["startTime"] = booted.to_string().into();
    }
    of_node["memory"]["availableBytes"] = measured.memory_available.into();
    json!({"node": of_node, "pods": measured.pods.iter().map(|pod| of_pod(pod, &at)).collect::<Vec<_>>()})
}

fn of_pod(pod: &OfPod, at: &str) -> Value {
    let mut shown = used(&pod.used(), at);
    shown["podRef"] = json!({"name": pod.name, "namespace": pod.namespace, "uid": pod.uid});
    let started = pod.pod.status.as_ref().and_then(|status| serde_json::to_value(status.start_time.as_ref()?).ok());
    shown["startTime"] = started.unwrap_or_default();
    shown["containers"] = pod.containers.iter().map(|container| of_container(container, at)).collect();
    shown["process_stats"] =
        json!({"process_count": pod.containers.iter().map(|container| container.processes).sum::<u64>()});
    shown
}

fn of_container(container: &OfContainer, at: &str) -> Value {
    let mut shown = used(&container.used, at);
    shown["name"] = container.name.as_str().into();
    shown["startTime"] = container.started_at.as_str().into();
    shown
}

fn used(used: &Used, at: &str) -> Value {
    json!({
        "cpu": {"time": at, "usageNanoCores": used.cpu_rate, "usageCoreNanoSeconds": used.cpu_nanos},
        "memory": {"time": at, "usageBytes": used.memory, "workingSetBytes": used.memory},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_of_a_kubelets() {
        let shown = summary("n1", &super::super::tests::measured());
        assert_eq!(shown["node"]["nodeName"], "n1");
        assert_eq!(shown["node"]["cpu"]["usageNanoCores"], 500_000_000);
        assert_eq!(shown["node"]["memory"]["availableBytes"], 40);
        let web = &shown["pods"][0];
        assert_eq!(web["podRef"], json!({"name": "web", "namespace": "default", "uid": "uid-web"}));
        assert_eq!(web["startTime"], "2026-01-02T03:03:30Z");
        assert_eq!(web["containers"][0]["name"], "app");
        assert_eq!(web["containers"][0]["memory"]["workingSetBytes"], 4096);
        assert_eq!(web["cpu"]["time"], "2026-01-02T03:04:02Z");
    }
}
