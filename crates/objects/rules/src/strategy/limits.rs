//! LimitRanges at work: what they fill into new pods, and what they refuse.

use schema::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::defaults::fields::{at, each, list, put, text, within};

/// Fills in the limits and requests that the limit ranges of a pod's namespace say containers have by default.
pub fn apply(pod: &mut Value, ranges: &[Value]) {
    for range in ranges {
        let of = |key: &str| -> Map<String, Value> {
            let items = list(range, &["spec", "limits"]).iter().filter(|item| text(item, &["type"]) == "Container");
            items.filter_map(|item| item.get(key)?.as_object()).flatten().map(|(k, v)| (k.clone(), v.clone())).collect()
        };
        let (limits, requests) = (of("default"), of("defaultRequest"));
        let mut told = Vec::new();
        if let Some(spec) = pod.get_mut("spec") {
            for (containers, word) in [("containers", "container"), ("initContainers", "init container")] {
                each(spec, containers, |container| {
                    let name = text(container, &["name"]).to_owned();
                    for (key, defaults, noun) in [("requests", &requests, "request"), ("limits", &limits, "limit")] {
                        let set = fill_in(container, key, defaults);
                        if !set.is_empty() {
                            told.push(format!("{} {noun} for {word} {name}", set.join(", ")));
                        }
                    }
                });
            }
        }
        if !told.is_empty()
            && let Some(annotations) = within(pod, "metadata").and_then(|metadata| within(metadata, "annotations"))
        {
            let text = format!("LimitRanger plugin set: {}", told.join("; "));
            put(annotations, "kubernetes.io/limit-ranger", text);
        }
    }
}

/// Sets those of `defaults` that are missing and answers their names.
fn fill_in(container: &mut Value, key: &str, defaults: &Map<String, Value>) -> Vec<String> {
    let missing: Vec<(&String, &Value)> =
        defaults.iter().filter(|(name, _)| at(container, &["resources", key, name]).is_none()).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let Some(amounts) = within(container, "resources").and_then(|resources| within(resources, key)) else {
        return Vec::new();
    };
    let mut set = Vec::new();
    for (name, value) in missing {
        put(amounts, name, value.clone());
        set.push(name.clone());
    }
    set
}

/// What the limit ranges of a namespace have against a pod or a claim; nothing if they allow it.
pub fn violations(kind: &str, obj: &Value, ranges: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    for item in ranges.iter().flat_map(|range| list(range, &["spec", "limits"])) {
        match (kind, text(item, &["type"])) {
            ("Pod", "Container") => {
                for containers in ["containers", "initContainers"] {
                    for container in list(obj, &["spec", containers]) {
                        let resources = container.get("resources").cloned().unwrap_or(json!({}));
                        check(item, "Container", &resources, &mut found);
                    }
                }
            }
            ("Pod", "Pod") => check(item, "Pod", &pod_total(obj), &mut found),
            ("PersistentVolumeClaim", "PersistentVolumeClaim") => {
                let nothing = json!({});
                check_claim(item, at(obj, &["spec", "resources"]).unwrap_or(&nothing), &mut found);
            }
            _ => {}
        }
    }
    found
}

/// A claim has no limits to speak of: what it asks for is what it gets.
fn check_claim(item: &Value, resources: &Value, found: &mut Vec<String>) {
    for (key, word) in [("min", "minimum"), ("max", "maximum")] {
        for (name, bound) in item.get(key).and_then(Value::as_object).into_iter().flatten() {
            let Some(bound) = Quantity::of(bound) else { continue };
            let rule = format!("{word} {name} usage per PersistentVolumeClaim is {bound}");
            match at(resources, &["requests", name]).and_then(Quantity::of) {
                None => found.push(format!("{rule}.  No request is specified")),
                Some(asked) if (key == "min" && asked < bound) || (key == "max" && asked > bound) => {
                    found.push(format!("{rule}, but request is {asked}"));
                }
                Some(_) => {}
            }
        }
    }
}

fn check(item: &Value, what: &str, resources: &Value, found: &mut Vec<String>) {
    let entries = |key: &str| item.get(key).and_then(Value::as_object).into_iter().flatten();
    let given = |key: &str, name: &str| {
        let quantity = Quantity::of(at(resources, &[key, name])?)?;
        let shown = quantity.to_string();
        Some((quantity, shown))
    };
    for (name, bound) in entries("min") {
        let Some(least) = Quantity::of(bound) else { continue };
        match (given("requests", name), given("limits", name)) {
            (None, _) => found.push(format!("minimum {name} usage per {what} is {least}.  No request is specified")),
            (Some((asked, text)), _) if asked < least => {
                found.push(format!("minimum {name} usage per {what} is {least}, but request is {text}"));
            }
            (_, Some((allowed, text))) if allowed < least => {
                found.push(format!("minimum {name} usage per {what} is {least}, but limit is {text}"));
            }
            _ => {}
        }
    }
    for (name, bound) in entries("max") {
        let Some(most) = Quantity::of(bound) else { continue };
        match (given("requests", name), given("limits", name)) {
            (_, None) => found.push(format!("maximum {name} usage per {what} is {most}.  No limit is specified")),
            (_, Some((allowed, text))) if allowed > most => {
                found.push(format!("maximum {name} usage per {what} is {most}, but limit is {text}"));
            }
            (Some((asked, text)), _) if asked > most => {
                found.push(format!("maximum {name} usage per {what} is {most}, but request is {text}"));
            }
            _ => {}
        }
    }
    for (name, bound) in entries("maxLimitRequestRatio") {
        let Some(most) = Quantity::of(bound) else { continue };
        let ratio = format!("{name} max limit to request ratio per {what} is {most}");
        match (given("requests", name), given("limits", name)) {
            (None, _) => found.push(format!("{ratio}, but no request is specified or request is 0")),
            (Some((asked, _)), _) if asked.is_zero() => {
                found.push(format!("{ratio}, but no request is specified or request is 0"));
            }
            (_, None) => found.push(format!("{ratio}, but no limit is specified or limit is 0")),
            (Some((asked, _)), Some((allowed, _))) => {
                let times = thousandths(&allowed) / thousandths(&asked);
                if times > thousandths(&most) / 1000.0 {
                    found.push(format!("{ratio}, but provided ratio is {times:.6}"));
                }
            }
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a ratio to compare, which upstream computes in floating point too")]
fn thousandths(quantity: &Quantity) -> f64 {
    quantity.milli_value() as f64
}

/// What all containers of a pod ask for and are limited to. A resource counts only if every container has a limit.
fn pod_total(pod: &Value) -> Value {
    let containers = list(pod, &["spec", "containers"]);
    let mut total = json!({"requests": {}, "limits": {}});
    for key in ["requests", "limits"] {
        let mut names: Vec<&String> =
            containers.iter().filter_map(|c| at(c, &["resources", key])?.as_object()).flat_map(Map::keys).collect();
        names.sort();
        names.dedup();
        for name in names {
            let amounts: Vec<&Value> = containers.iter().filter_map(|c| at(c, &["resources", key, name])).collect();
            let mut sum = Quantity::zero();
            amounts.iter().filter_map(|value| Quantity::of(value)).for_each(|quantity| sum.add(&quantity));
            if let Some(map) = total.get_mut(key) {
                put(map, name, sum.to_string());
            }
        }
    }
    total
}

/// The quantity as it is shown, if it is no whole number. Thousandths are all that upstream looks at.
pub(super) fn is_fractional(value: &Value) -> Option<String> {
    Quantity::of(value).filter(|quantity| quantity.milli_value() % 1000 != 0).map(|quantity| quantity.to_string())
}
