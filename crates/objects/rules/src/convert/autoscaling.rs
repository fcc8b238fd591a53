//! Horizontal pod autoscalers. What v1 has no field for travels in annotations, written as upstream writes them.

use serde_json::{Value, json};

use crate::defaults;
use crate::defaults::fields::{at, blank, fill, list, put, take, text, unset, within};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// The kinds of metrics and the name of their part of a metric.
const SOURCES: &[(&str, &str)] = &[
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
    ("External", "external"),
];

pub(super) fn to_v2(hpa: &mut Value) {
    let annotation = |hpa: &mut Value, key: &str| -> Option<Value> {
        let taken = take(within(hpa, "metadata")?.get_mut("annotations")?, key)?;
        serde_json::from_str(taken.as_str()?).ok()
    };
    let metrics = annotation(hpa, METRICS);
    let current = annotation(hpa, CURRENT_METRICS);
    let conditions = annotation(hpa, CONDITIONS);
    let behavior = annotation(hpa, BEHAVIOR);
    drop_empty_annotations(hpa);
    if let Some(spec) = within(hpa, "spec") {
        let mut all: Vec<Value> = elements(metrics).iter().map(|m| metric(m, Side::Wish, false)).collect();
        all.extend(take(spec, "targetCPUUtilizationPercentage").filter(|v| !v.is_null()).map(|percent| {
            json!({"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": percent}}})
        }));
        if !all.is_empty() {
            put(spec, "metrics", all);
        }
        if let Some(behavior) = behavior.filter(Value::is_object) {
            put(spec, "behavior", recase(&behavior, false));
        }
    }
    if let Some(status) = within(hpa, "status") {
        let mut all: Vec<Value> = elements(current).iter().map(|m| metric(m, Side::Seen, false)).collect();
        all.extend(take(status, "currentCPUUtilizationPercentage").filter(|v| !v.is_null()).map(|percent| {
            json!({"type": "Resource", "resource": {"name": "cpu",
                "current": {"averageUtilization": percent, "averageValue": "0"}}})
        }));
        put(status, "currentMetrics", if all.is_empty() { Value::Null } else { all.into() });
        if let Some(conditions) = conditions.filter(Value::is_array) {
            put(status, "conditions", conditions);
        }
        // v2 leaves this counter out when it is zero.
        if blank(status.get("currentReplicas")) {
            take(status, "currentReplicas");
        }
        fill(status, "desiredReplicas", 0);
    }
    // Upstream reads it back from storage in this version, which fills in what v1 could not say.
    defaults::apply("autoscaling", "v2", "HorizontalPodAutoscaler", hpa);
}

pub(super) fn to_v1(hpa: &mut Value) {
    let mut annotations: Vec<(&str, String)> = Vec::new();
    if let Some(spec) = within(hpa, "spec") {
        let (mut percent, mut others) = (None, Vec::new());
        for wish in elements(take(spec, "metrics")) {
            match cpu_percent(&wish, "target") {
                Some(cpu) => percent = percent.or(Some(cpu)),
                None => others.push(metric_text(&wish, Side::Wish)),
            }
        }
        if let Some(percent) = percent {
            put(spec, "targetCPUUtilizationPercentage", percent);
        }
        if !others.is_empty() {
            annotations.push((METRICS, format!("[{}]", others.join(","))));
        }
        if let Some(behavior) = take(spec, "behavior").filter(|b| !b.is_null()) {
            annotations.push((BEHAVIOR, behavior_text(&behavior)));
        }
    }
    if let Some(status) = within(hpa, "status") {
        let (mut percent, mut others) = (None, Vec::new());
        for seen in elements(take(status, "currentMetrics")) {
            match cpu_percent(&seen, "current") {
                Some(cpu) => percent = percent.or(Some(cpu)),
                None => others.push(metric_text(&seen, Side::Seen)),
            }
        }
        if let Some(percent) = percent {
            put(status, "currentCPUUtilizationPercentage", percent);
        }
        if !others.is_empty() {
            annotations.push((CURRENT_METRICS, format!("[{}]", others.join(","))));
        }
        let conditions = elements(take(status, "conditions"));
        if !conditions.is_empty() {
            const ORDER: &[&str] = &["type", "status", "lastTransitionTime", "reason", "message"];
            let texts: Vec<String> = conditions.iter().map(|c| in_order(c, ORDER)).collect();
            annotations.push((CONDITIONS, format!("[{}]", texts.join(","))));
        }
        fill(status, "currentReplicas", 0);
        fill(status, "desiredReplicas", 0);
    }
    if !annotations.is_empty()
        && let Some(map) = within(hpa, "metadata").and_then(|metadata| within(metadata, "annotations"))
    {
        for (key, text) in annotations {
            put(map, key, text);
        }
    }
}

fn elements(list: Option<Value>) -> Vec<Value> {
    match list {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn drop_empty_annotations(hpa: &mut Value) {
    if let Some(metadata) = hpa.get_mut("metadata")
        && metadata.get("annotations").is_some_and(|a| blank(Some(a)))
    {
        take(metadata, "annotations");
    }
}

/// The one metric that v1 has a field for.
fn cpu_percent(metric: &Value, side: &str) -> Option<Value> {
    let cpu = text(metric, &["type"]) == "Resource" && text(metric, &["resource", "name"]) == "cpu";
    at(metric, &["resource", side, "averageUtilization"]).filter(|v| cpu && !v.is_null()).cloned()
}

/// A metric says what it should be, or what it was seen to be.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Wish,
    Seen,
}

impl Side {
    fn key(self) -> &'static str {
        match self {
            Self::Wish => "target",
            Self::Seen => "current",
        }
    }

    /// v1's names of the fields, per source: (path in v2, name in v1), in the order upstream writes them.
    fn names(self, source: &str) -> &'static [(&'static [&'static str], &'static str)] {
        match (self, source) {
            (Self::Wish, "object") => &[
                (&["describedObject"], "target"),
                (&["metric", "name"], "metricName"),
                (&["target", "value"], "targetValue"),
                (&["metric", "selector"], "selector"),
                (&["target", "averageValue"], "averageValue"),
            ],
            (Self::Wish, "pods") => &[
                (&["metric", "name"], "metricName"),
                (&["target", "averageValue"], "targetAverageValue"),
                (&["metric", "selector"], "selector"),
            ],
            (Self::Wish, "external") => &[
                (&["metric", "name"], "metricName"),
                (&["metric", "selector"], "metricSelector"),
                (&["target", "value"], "targetValue"),
                (&["target", "averageValue"], "targetAverageValue"),
            ],
            (Self::Wish, _) => &[
                (&["name"], "name"),
                (&["target", "averageUtilization"], "targetAverageUtilization"),
                (&["target", "averageValue"], "targetAverageValue"),
                (&["container"], "container"),
            ],
            (Self::Seen, "object") => &[
                (&["describedObject"], "target"),
                (&["metric", "name"], "metricName"),
                (&["current", "value"], "currentValue"),
                (&["metric", "selector"], "selector"),
                (&["current", "averageValue"], "averageValue"),
            ],
            (Self::Seen, "pods") => &[
                (&["metric", "name"], "metricName"),
                (&["current", "averageValue"], "currentAverageValue"),
                (&["metric", "selector"], "selector"),
            ],
            (Self::Seen, "external") => &[
                (&["metric", "name"], "metricName"),
                (&["metric", "selector"], "metricSelector"),
                (&["current", "value"], "currentValue"),
                (&["current", "averageValue"], "currentAverageValue"),
            ],
            (Self::Seen, _) => &[
                (&["name"], "name"),
                (&["current", "averageUtilization"], "currentAverageUtilization"),
                (&["current", "averageValue"], "currentAverageValue"),
                (&["container"], "container"),
            ],
        }
    }
}

/// A metric between the two forms: `to_v1`, or back.
fn metric(given: &Value, side: Side, to_v1: bool) -> Value {
    let kind = text(given, &["type"]);
    let mut out = json!({"type": kind});
    let Some((_, source)) = SOURCES.iter().find(|(name, _)| *name == kind) else { return out };
    let Some(part) = given.get(*source) else { return out };
    let mut converted = json!({});
    for (path, flat) in side.names(source) {
        let value = if to_v1 { at(part, path) } else { part.get(*flat) };
        let Some(value) = value.filter(|v| !v.is_null()).cloned() else { continue };
        match (to_v1, *path) {
            (true, _) => put(&mut converted, flat, value),
            (false, [one]) => put(&mut converted, one, value),
            (false, [outer, inner]) => {
                // A zero value beside an average is v1's way of leaving it out.
                if *inner == "value" && value == "0" && !unset(part.get("averageValue")) {
                    continue;
                }
                if let Some(outer) = within(&mut converted, outer) {
                    put(outer, inner, value);
                }
            }
            _ => {}
        }
    }
    if !to_v1 {
        let values = within(&mut converted, side.key());
        if let (Side::Wish, Some(target)) = (side, values) {
            let kind = if !unset(target.get("averageUtilization")) {
                "Utilization"
            } else if !unset(target.get("averageValue")) {
                "AverageValue"
            } else {
                "Value"
            };
            put(target, "type", kind);
        }
    }
    put(&mut out, source, converted);
    out
}

/// A metric as the annotation has it.
fn metric_text(given: &Value, side: Side) -> String {
    let flat = metric(given, side, true);
    let kind = text(&flat, &["type"]);
    let Some((_, source)) = SOURCES.iter().find(|(name, _)| *name == kind) else { return flat.to_string() };
    let Some(part) = flat.get(*source) else { return flat.to_string() };
    let order: Vec<&str> = side.names(source).iter().map(|(_, name)| *name).collect();
    let mut part = part.clone();
    // The value of an object or its current average is no pointer in v1, so it is written even if there is none.
    for always in ["targetValue", "currentValue"] {
        if *source == "object" && order.contains(&always) {
            fill(&mut part, always, "0");
        }
    }
    if side == Side::Seen && *source != "object" && order.contains(&"currentAverageValue") && *source != "external" {
        fill(&mut part, "currentAverageValue", "0");
    }
    format!("{{\"type\":{},\"{source}\":{}}}", Value::from(kind), in_order(&part, &order))
}

/// The fields of an object in Go's order, those that are absent left out.
fn in_order(object: &Value, order: &[&str]) -> String {
    let fields = order.iter().filter_map(|key| object.get(*key).map(|value| format!("\"{key}\":{value}")));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

/// Upstream writes its internal type here, whose fields have Go's names, all of them, null when not set.
fn behavior_text(behavior: &Value) -> String {
    let rules = |key: &str| match behavior.get(key).filter(|r| r.is_object()) {
        None => "null".to_owned(),
        Some(rules) => {
            let policies: Vec<String> = list(rules, &["policies"])
                .iter()
                .map(|p| in_order(&recase(p, true), &["Type", "Value", "PeriodSeconds"]))
                .collect();
            let field = |key: &str| rules.get(key).cloned().unwrap_or(Value::Null);
            format!(
                "{{\"StabilizationWindowSeconds\":{},\"SelectPolicy\":{},\"Policies\":[{}],\"Tolerance\":{}}}",
                field("stabilizationWindowSeconds"),
                field("selectPolicy"),
                policies.join(","),
                field("tolerance"),
            )
        }
    };
    format!("{{\"ScaleUp\":{},\"ScaleDown\":{}}}", rules("scaleUp"), rules("scaleDown"))
}

/// Field names with the first letter in the other case, all the way down; nulls are dropped on the way back.
fn recase(value: &Value, upper: bool) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(_, value)| upper || !value.is_null())
            .map(|(key, value)| {
                let mut letters = key.chars();
                let first = letters.next().map(|c| if upper { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() });
                (first.into_iter().chain(letters).collect::<String>(), recase(value, upper))
            })
            .collect(),
        Value::Array(items) => items.iter().map(|item| recase(item, upper)).collect(),
        other => other.clone(),
    }
}
