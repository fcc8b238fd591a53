//! Horizontal pod autoscalers, in both of their versions.

use serde_json::{Value, json};

use super::fields::{fill, fill_blank, unset, with, within};

pub(super) fn horizontal_pod_autoscaler(version: &str, obj: &mut Value) {
    let Some(spec) = within(obj, "spec") else { return };
    fill(spec, "minReplicas", 1);
    if version == "v1" {
        return;
    }
    fill_blank(spec, "metrics", default_metrics());
    with(spec, "behavior", behavior);
}

/// Without any metric, an autoscaler holds the average use of CPU at 80 %.
pub(crate) fn default_metrics() -> Value {
    json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}])
}

fn behavior(behavior: &mut Value) {
    if let Some(up) = within(behavior, "scaleUp") {
        fill(up, "stabilizationWindowSeconds", 0);
        rules(
            up,
            json!([
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15},
            ]),
        );
    }
    if let Some(down) = within(behavior, "scaleDown") {
        rules(down, json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]));
    }
}

fn rules(rules: &mut Value, policies: Value) {
    fill(rules, "selectPolicy", "Max");
    if unset(rules.get("policies")) {
        fill(rules, "policies", policies);
    }
}
