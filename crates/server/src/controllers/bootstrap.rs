//! What exists in a workspace from its first moment.

use std::sync::Arc;

use api::status::Result;
use serde_json::json;

use crate::{Server, internal::Internal};

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Makes what must exist before the first request is answered. What is there already stays as it is.
pub async fn prepare(server: &Arc<Server>, cluster: &str) -> Result<()> {
    let hand = Internal::new(server, cluster, "kube-apiserver");
    let namespaces = hand.kind("", "v1", "namespaces")?;
    for name in NAMESPACES {
        hand.ensure(&namespaces, "", json!({"metadata": {"name": name}})).await?;
    }
    let priorities = hand.kind("scheduling.k8s.io", "v1", "priorityclasses")?;
    for (name, value) in [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)] {
        let class = json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority",
            "description": "Used for system critical pods."});
        hand.ensure(&priorities, "", class).await?;
    }
    let ranges = hand.kind("networking.k8s.io", "v1", "servicecidrs")?;
    hand.ensure(&ranges, "", json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/12"]}})).await?;
    let services = hand.kind("", "v1", "services")?;
    let service = json!({"metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": server.address.port()}]}});
    hand.ensure(&services, "default", service).await
}
