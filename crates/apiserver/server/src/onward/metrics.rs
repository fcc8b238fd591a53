//! metrics.k8s.io as discovery shows it, wherever somebody answers for it: an edge with a node inside, and that edge's mailbox at the center.

use schema::catalogue::Resource;

pub const METRICS: &str = "metrics.k8s.io";

pub fn metrics() -> Vec<Resource> {
    let kind = |resource: &str, kind: &str, namespaced| Resource {
        group: METRICS.into(),
        version: "v1beta1".into(),
        resource: resource.into(),
        singular: "".into(),
        kind: kind.into(),
        namespaced,
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs: vec!["get".into(), "list".into()],
        subresources: Vec::new(),
        ty: None,
    };
    vec![kind("nodes", "NodeMetrics", false), kind("pods", "PodMetrics", true)]
}
