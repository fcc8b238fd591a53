//! LimitRanges at work: what they fill into new pods, and what they refuse.

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
                let mut resources = at(obj, &["spec", "resources"]).cloned().unwrap_or(json!({}));
                // A claim has no limits to speak of: what it asks for is what it gets.
                let requests = resources.get("requests").cloned().unwrap_or(json!({}));
                put(&mut resources, "limits", requests);
                check(item, "PersistentVolumeClaim", &resources, &mut found);
            }
            _ => {}
        }
    }
    found
}

fn check(item: &Value, what: &str, resources: &Value, found: &mut Vec<String>) {
    let entries = |key: &str| item.get(key).and_then(Value::as_object).into_iter().flatten();
    let given = |key: &str, name: &str| {
        let value = at(resources, &[key, name])?;
        Some((amount(value)?, value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
    };
    for (name, bound) in entries("min") {
        let (Some(least), shown) = (amount(bound), show(bound)) else { continue };
        match (given("requests", name), given("limits", name)) {
            (None, _) => found.push(format!("minimum {name} usage per {what} is {shown}.  No request is specified")),
            (Some((asked, text)), _) if asked < least => {
                found.push(format!("minimum {name} usage per {what} is {shown}, but request is {text}"));
            }
            (_, Some((allowed, text))) if allowed < least => {
                found.push(format!("minimum {name} usage per {what} is {shown}, but limit is {text}"));
            }
            _ => {}
        }
    }
    for (name, bound) in entries("max") {
        let (Some(most), shown) = (amount(bound), show(bound)) else { continue };
        match (given("requests", name), given("limits", name)) {
            (_, None) => found.push(format!("maximum {name} usage per {what} is {shown}.  No limit is specified")),
            (_, Some((allowed, text))) if allowed > most => {
                found.push(format!("maximum {name} usage per {what} is {shown}, but limit is {text}"));
            }
            (Some((asked, text)), _) if asked > most => {
                found.push(format!("maximum {name} usage per {what} is {shown}, but request is {text}"));
            }
            _ => {}
        }
    }
}

fn show(bound: &Value) -> String {
    bound.as_str().map_or_else(|| bound.to_string(), str::to_owned)
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
            let value = match amounts.as_slice() {
                [one] => (*one).clone(),
                many => {
                    let nano = many.iter().filter_map(|v| amount(v)).fold(0_i128, i128::saturating_add);
                    let unit = nano / NANO;
                    if nano % NANO == 0 { unit.to_string().into() } else { format!("{}m", nano / (NANO / 1000)).into() }
                }
            };
            if let Some(map) = total.get_mut(key) {
                put(map, name, value);
            }
        }
    }
    total
}

const NANO: i128 = 1_000_000_000;

/// A quantity in billionths, for comparing; `None` if it is none.
pub(super) fn amount(value: &Value) -> Option<i128> {
    let text = match value {
        Value::String(text) => text.as_str(),
        Value::Number(number) => &number.to_string(),
        _ => return None,
    };
    let digits = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let negative = whole.starts_with('-');
    let whole = whole.trim_start_matches(['+', '-']);
    let mantissa: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let mut scale = i32::try_from(fraction.len()).ok()?.checked_neg()?;
    let mut factor: i128 = 1;
    match suffix {
        "" => {}
        "n" => scale -= 9,
        "u" => scale -= 6,
        "m" => scale -= 3,
        "k" => scale += 3,
        "M" => scale += 6,
        "G" => scale += 9,
        "T" => scale += 12,
        "P" => scale += 15,
        "E" => scale += 18,
        "Ki" => factor = 1 << 10,
        "Mi" => factor = 1 << 20,
        "Gi" => factor = 1 << 30,
        "Ti" => factor = 1 << 40,
        "Pi" => factor = 1 << 50,
        "Ei" => factor = 1 << 60,
        exponent => scale = scale.checked_add(exponent.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?)?,
    }
    let mut result = mantissa.checked_mul(factor)?;
    let scale = scale + 9;
    let power = 10_i128.checked_pow(scale.unsigned_abs())?;
    result = if scale >= 0 { result.checked_mul(power)? } else { result.div_euclid(power) };
    Some(if negative { -result } else { result })
}

/// The quantity as it was written, if it is no whole number.
pub(super) fn is_fractional(value: &Value) -> Option<String> {
    // Thousandths are all that upstream looks at.
    let thousandths = amount(value)? / (NANO / 1000);
    (thousandths % 1000 != 0).then(|| show(value))
}
