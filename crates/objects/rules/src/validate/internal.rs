//! How upstream shows whole structs in its complaints: by its internal types, every field in their order.
//!
//! `internal.txt` lists those types, one a line: `Type Field=json=kind …`, where the JSON name is left out when it is the
//! field's own with a small first letter; no name stands for metadata whose fields stand beside the others. Kinds: `s` string, `i` integer, `b` boolean, `q` quantity, `*` anything that may
//! be null, `S` label selector, `O` object metadata, `T:`/`P:`/`L:` a struct, a pointer to one, a list of them.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde_json::Value;

use super::meta::selector_shown;
use super::node::html_safe;

struct Field {
    name: &'static str,
    json: String,
    kind: &'static str,
}

fn types() -> &'static HashMap<&'static str, Vec<Field>> {
    static TYPES: OnceLock<HashMap<&'static str, Vec<Field>>> = OnceLock::new();
    TYPES.get_or_init(|| {
        let mut types = HashMap::new();
        for line in include_str!("internal.txt").lines() {
            let mut words = line.split(' ');
            let Some(name) = words.next() else { continue };
            types.insert(name, words.filter_map(field).collect());
        }
        types
    })
}

fn field(word: &'static str) -> Option<Field> {
    let mut parts = word.splitn(3, '=');
    let (name, json, kind) = (parts.next()?, parts.next()?, parts.next()?);
    let json = if json.is_empty() {
        let mut letters = name.chars();
        let first = letters.next()?.to_ascii_lowercase();
        std::iter::once(first).chain(letters).collect()
    } else {
        json.to_owned()
    };
    Some(Field { name, json, kind })
}

/// The value as compact JSON.
pub(crate) fn shown(ty: &str, value: &Value) -> String {
    write(ty, value, None, 0)
}

/// What changed between two values, as lines of indented JSON with three lines around each change.
pub(crate) fn diff(ty: &str, old: &Value, new: &Value) -> String {
    super::lines::unified(&write(ty, old, Some(0), 0), &write(ty, new, Some(0), 0))
}

/// Deeper than any type goes; a bound all the same.
const MAX_DEPTH: usize = 32;

fn write(ty: &str, value: &Value, indent: Option<usize>, depth: usize) -> String {
    let (Some(fields), true) = (types().get(ty), depth < MAX_DEPTH) else { return plain(value, indent) };
    let inner = indent.map(|n| n + 1);
    let mut entries = Vec::new();
    for field in fields {
        let own = value.get(&field.json).unwrap_or(&Value::Null);
        if field.name.is_empty() {
            let space = if indent.is_some() { " " } else { "" };
            let set = METADATA.iter().filter_map(|name| Some((name, own.get(name).filter(|v| !is_blank(v))?)));
            entries.extend(set.map(|(name, value)| format!("\"{name}\":{space}{}", plain(value, inner))));
            continue;
        }
        let text = match field.kind.split_at_checked(2) {
            Some(("T:", ty)) => write(ty, own, inner, depth + 1),
            Some(("P:", "PodSecurityContext")) => {
                write("PodSecurityContext", &pod_security(own, value), inner, depth + 1)
            }
            Some(("P:", ty)) if !own.is_null() => write(ty, own, inner, depth + 1),
            Some(("L:", ty)) if own.is_array() => {
                let item = inner.map(|n| n + 1);
                let items = own.as_array().into_iter().flatten().map(|v| write(ty, v, item, depth + 1)).collect();
                enclose('[', ']', items, inner)
            }
            _ => scalar(field.kind, own, inner),
        };
        let space = if indent.is_some() { " " } else { "" };
        entries.push(format!("\"{}\":{space}{text}", field.name));
    }
    enclose('{', '}', entries, indent)
}

/// Fields of metadata that a template may have, in the order of Go's struct.
const METADATA: &[&str] =
    &["name", "generateName", "namespace", "labels", "annotations", "ownerReferences", "finalizers"];

fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn scalar(kind: &str, value: &Value, indent: Option<usize>) -> String {
    match (kind, value) {
        ("s", Value::Null) => "\"\"".to_owned(),
        ("i", Value::Null) => "0".to_owned(),
        ("b", Value::Null) => "false".to_owned(),
        ("q", Value::Null) => "\"0\"".to_owned(),
        ("S", value) if indent.is_none() => selector_shown(value),
        (_, value) => plain(value, indent),
    }
}

fn plain(value: &Value, indent: Option<usize>) -> String {
    let inner = indent.map(|n| n + 1);
    match (value, indent) {
        (Value::Object(map), Some(_)) => {
            let entries =
                map.iter().map(|(k, v)| format!("{}: {}", Value::from(k.as_str()), plain(v, inner))).collect();
            enclose('{', '}', entries, indent)
        }
        (Value::Array(items), Some(_)) => enclose('[', ']', items.iter().map(|v| plain(v, inner)).collect(), indent),
        _ => html_safe(&value.to_string()),
    }
}

fn enclose(open: char, close: char, entries: Vec<String>, indent: Option<usize>) -> String {
    match indent {
        _ if entries.is_empty() => format!("{open}{close}"),
        None => format!("{open}{}{close}", entries.join(",")),
        Some(n) => {
            let pad = " ".repeat(n + 1);
            let lines: Vec<String> = entries.iter().map(|e| format!("{pad}{e}")).collect();
            format!("{open}\n{}\n{}{close}", lines.join(",\n"), " ".repeat(n))
        }
    }
}

/// Upstream keeps what a pod shares with its host in the security context.
fn pod_security(own: &Value, spec: &Value) -> Value {
    let mut context = own.clone();
    if !context.is_object() {
        context = Value::Object(serde_json::Map::new());
    }
    for field in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"] {
        if let Some(value) = spec.get(field) {
            context[field] = value.clone();
        }
    }
    context
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_named_type_is_there() {
        for (name, fields) in types() {
            for field in fields {
                if let Some(("T:" | "P:" | "L:", ty)) = field.kind.split_at_checked(2) {
                    assert!(types().contains_key(ty), "{name}.{} is a {ty}", field.name);
                }
            }
        }
    }

    #[test]
    fn compact() {
        let spec = json!({"minAvailable": 1, "maxUnavailable": "150%", "selector": {}});
        assert_eq!(
            shown("PodDisruptionBudgetSpec", &spec),
            r#"{"MinAvailable":1,"Selector":{},"MaxUnavailable":"150%","UnhealthyPodEvictionPolicy":null}"#
        );
    }

    #[test]
    fn a_pod_that_wants_the_hosts_network() {
        let mut spec = json!({
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "automountServiceAccountToken": false, "schedulerName": "default-scheduler",
            "securityContext": {}, "enableServiceLinks": true, "priority": 0,
            "containers": [{"name": "c", "image": "x", "resources": {}, "imagePullPolicy": "Always",
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
        });
        let old = spec.clone();
        spec["hostNetwork"] = true.into();
        let diff = diff("PodSpec", &old, &spec);
        let want = [
            "@@ -44,7 +44,7 @@",
            "  \"AutomountServiceAccountToken\": false,",
            "  \"NodeName\": \"\",",
            "  \"SecurityContext\": {",
            "-  \"HostNetwork\": false,",
            "+  \"HostNetwork\": true,",
            "   \"HostPID\": false,",
            "   \"HostIPC\": false,",
            "   \"ShareProcessNamespace\": null,",
            "",
        ];
        assert_eq!(diff, want.join("\n"));
    }
}
