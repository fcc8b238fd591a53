//! The row of a horizontal pod autoscaler: what is measured against what is wanted.

use serde_json::Value;

use crate::table::age::age;
use crate::table::read::{first_of, has, int, items, name, scalar, text};
use crate::table::tree::Node;

pub(super) fn autoscaler(o: &Node<'_>, now: i64) -> Vec<Value> {
    let reference = format!("{}/{}", text(o, "/spec/scaleTargetRef/kind"), text(o, "/spec/scaleTargetRef/name"));
    vec![
        name(o),
        reference.into(),
        targets(o).into(),
        scalar(o, "/spec/minReplicas").unwrap_or_else(|| "<unset>".to_owned()).into(),
        int(o, "/spec/maxReplicas").into(),
        int(o, "/status/currentReplicas").into(),
        age(o, now),
    ]
}

fn targets(o: &Node<'_>) -> String {
    let specs = items(o, "/spec/metrics");
    if specs.is_empty() {
        // Version 1 only knows processor use.
        return match scalar(o, "/spec/targetCPUUtilizationPercentage") {
            None => "<none>".to_owned(),
            Some(target) => {
                let current = scalar(o, "/status/currentCPUUtilizationPercentage");
                format!("cpu: {}/{target}%", current.map_or_else(unknown, |c| format!("{c}%")))
            }
        };
    }
    let statuses = items(o, "/status/currentMetrics");
    let list: Vec<String> = specs.iter().enumerate().map(|(i, spec)| metric(spec, statuses.get(i))).collect();
    first_of(list, 2, ", ")
}

fn unknown() -> String {
    "<unknown>".to_owned()
}

fn metric(spec: &Node<'_>, status: Option<&Node<'_>>) -> String {
    let source = match &*text(spec, "/type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let target = |field: &str| scalar(spec, &format!("/{source}/target/{field}"));
    let status = status.filter(|status| has(status, &format!("/{source}")));
    let current = |field: &str| status.and_then(|s| scalar(s, &format!("/{source}/current/{field}")));
    let measured = |field: &str| match (status, current(field)) {
        (None, _) => unknown(),
        (Some(_), current) => current.unwrap_or_else(|| "0".to_owned()),
    };
    match source {
        "pods" => format!("{}/{}", measured("averageValue"), target("averageValue").unwrap_or_default()),
        "resource" | "containerResource" => {
            let resource = text(spec, &format!("/{source}/name"));
            match target("averageValue") {
                Some(target) => format!("{resource}: {}/{target}", measured("averageValue")),
                None => {
                    let percent = |value: String| format!("{value}%");
                    let current = current("averageUtilization").map_or_else(unknown, percent);
                    let target = target("averageUtilization").map_or_else(|| "<auto>".to_owned(), percent);
                    format!("{resource}: {current}/{target}")
                }
            }
        }
        _ => match target("averageValue") {
            Some(target) => format!("{}/{target} (avg)", current("averageValue").unwrap_or_else(unknown)),
            None => format!("{}/{}", measured("value"), target("value").unwrap_or_default()),
        },
    }
}
