//! What kubelets say that they and their containers use (`/stats/summary`), as `kubectl top` reads it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, Request};
use http_body_util::{BodyExt, Full, Limited};
use identity::User;
use node_api::usage::top::API_VERSION;
use serde_json::{Value, json};
use server::Server;

use crate::CLUSTER;

/// A kubelet that takes longer is left out.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of a node with hundreds of pods.
const LARGEST: usize = 16 << 20;
/// Kubelets look that often.
const WINDOW: &str = "10s";

/// Asks all kubelets at once: a summary from each that answers.
pub async fn ask(server: &Arc<Server>) -> Vec<Value> {
    let nodes = server.cache.snapshot("core/nodes");
    let names = nodes.items.range(&format!("{CLUSTER}//"), "").filter_map(|node| {
        let name = node.value()["metadata"]["name"].as_str()?.to_owned();
        Some(ask_one(server.clone(), name))
    });
    join_all(names.collect::<Vec<_>>()).await.into_iter().flatten().collect()
}

async fn ask_one(server: Arc<Server>, node: String) -> Option<Value> {
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.method_mut() = Method::GET;
    *request.uri_mut() = format!("/api/v1/nodes/{node}/proxy/stats/summary").parse().ok()?;
    let asked = async {
        let response = server.request_as(User::itself(), request).await;
        if !response.status().is_success() {
            tracing::debug!(node, status = %response.status(), "the kubelet does not say what it uses");
            return None;
        }
        let body = Limited::new(response.into_body(), LARGEST).collect().await.ok()?.to_bytes();
        serde_json::from_slice(&body).ok()
    };
    tokio::time::timeout(PATIENCE, asked).await.ok()?
}

/// NodeMetrics, or nothing if it has not looked yet. `labels` finds those of an object by its name.
pub fn node(summary: &Value, labels: impl Fn(&str) -> Value) -> Option<Value> {
    let node = &summary["node"];
    let name = node["nodeName"].as_str()?;
    let (usage, at) = usage(node)?;
    Some(json!({"kind": "NodeMetrics", "apiVersion": API_VERSION,
        "metadata": {"name": name, "creationTimestamp": at, "labels": labels(name)},
        "timestamp": at, "window": WINDOW, "usage": usage}))
}

/// PodMetrics of those whose containers have all been looked at. `labels` finds those of a pod by its namespace and name.
pub fn pods(summary: &Value, labels: impl Fn(&str, &str) -> Value) -> Vec<Value> {
    let pods = summary["pods"].as_array().map(Vec::as_slice).unwrap_or_default();
    let metrics = pods.iter().filter_map(|pod| {
        let (namespace, name) = (pod["podRef"]["namespace"].as_str()?, pod["podRef"]["name"].as_str()?);
        let mut oldest = None::<String>;
        let containers = pod["containers"].as_array()?.iter().map(|container| {
            let (usage, at) = usage(container)?;
            oldest = Some(oldest.take().map_or_else(|| at.clone(), |known| known.min(at.clone())));
            Some(json!({"name": container["name"], "usage": usage}))
        });
        let containers = containers.collect::<Option<Vec<Value>>>()?;
        let at = oldest?;
        Some(json!({"kind": "PodMetrics", "apiVersion": API_VERSION,
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": at, "labels": labels(namespace, name)},
            "timestamp": at, "window": WINDOW, "containers": containers}))
    });
    metrics.collect()
}

/// And when it was looked at.
fn usage(of: &Value) -> Option<(Value, String)> {
    let (cpu, memory) = (of["cpu"]["usageNanoCores"].as_u64()?, of["memory"]["workingSetBytes"].as_u64()?);
    let at = of["cpu"]["time"].as_str()?.to_owned();
    Some((json!({"cpu": format!("{cpu}n"), "memory": format!("{}Ki", memory.div_ceil(1024))}), at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kubelet_says_as_kubectl_reads_it() {
        let used = |cpu: u64, memory: u64, second: u32| {
            json!({"cpu": {"time": format!("2026-01-02T03:04:{second:02}Z"), "usageNanoCores": cpu, "usageCoreNanoSeconds": 9},
                "memory": {"time": "2026-01-02T03:04:09Z", "workingSetBytes": memory, "rssBytes": 1}})
        };
        let named = |name: &str, mut used: Value| {
            used["name"] = name.into();
            used
        };
        let mut of_node = used(250_000_000, 3_000_000, 5);
        of_node["nodeName"] = "n1".into();
        let summary = json!({"node": of_node, "pods": [
            {"podRef": {"name": "web", "namespace": "shop", "uid": "u"},
                "containers": [named("a", used(1, 1024, 8)), named("b", used(2, 1025, 7))]},
            // Just started: not all of it has been looked at, so nothing is known.
            {"podRef": {"name": "new", "namespace": "shop"},
                "containers": [named("a", used(1, 1024, 8)), {"name": "b", "cpu": {"time": "x"}}]},
            {"podRef": {"name": "empty", "namespace": "shop"}, "containers": []},
        ]});
        let seen = node(&summary, |name| json!({"host": name})).unwrap();
        assert_eq!(seen["usage"], json!({"cpu": "250000000n", "memory": "2930Ki"}));
        assert_eq!(
            seen["metadata"],
            json!({"name": "n1", "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"host": "n1"}})
        );
        let pods = pods(&summary, |namespace, name| json!({"of": format!("{namespace}/{name}")}));
        assert_eq!(pods.len(), 1);
        assert_eq!(
            (&pods[0]["timestamp"], &pods[0]["metadata"]["labels"]["of"]),
            (&json!("2026-01-02T03:04:07Z"), &json!("shop/web"))
        );
        assert_eq!(pods[0]["containers"][1], json!({"name": "b", "usage": {"cpu": "2n", "memory": "2Ki"}}));
        for nothing in [json!(null), json!({"node": {"nodeName": "n"}, "pods": {}}), json!([])] {
            assert_eq!((node(&nothing, |_| json!({})), super::pods(&nothing, |_, _| json!({})).len()), (None, 0));
        }
    }
}
