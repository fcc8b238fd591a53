//! Environment variables and where they come from.

use schema::names;
use schema::names::NameRule;

use super::Spec;
use super::volume::no_backsteps;
use crate::validate::amount::Amount;
use crate::validate::node::{Node, Quoted};

const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
pub(super) const VOLUME_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// Fields that the API knows, whether or not they may be used where they stand.
const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SIZES: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

pub(super) fn env(vars: Node<'_>) {
    for var in vars.items() {
        var.get("name").required_and(names::env_var_name);
        let from = var.get("valueFrom");
        if from.is_set() {
            value_from(var, from);
        }
    }
}

fn value_from(var: Node<'_>, from: Node<'_>) {
    let mut sources = 0;
    for kind in ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"] {
        let source = from.get(kind);
        if !source.is_set() {
            continue;
        }
        sources += 1;
        match kind {
            "fieldRef" => field_ref(source, ENV_FIELDS),
            "resourceFieldRef" => resource_ref(source, false),
            "fileKeyRef" => {
                source.get("key").required_and(names::env_var_name);
                source.get("volumeName").required_and(names::dns1123_label);
                let path = source.get("path");
                if path.str().is_empty() {
                    path.required("");
                } else {
                    no_backsteps(path);
                }
            }
            _ => {
                source.get("name").check(names::dns1123_subdomain);
                source.get("key").required_and(names::config_key);
            }
        }
    }
    if sources == 0 {
        from.invalid_text(
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        );
    } else if !var.get("value").str().is_empty() {
        from.invalid_text("", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        from.invalid_text("", "may not have more than one field specified at a time");
    }
}

/// `metadata.labels['key']` as path and key.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (field, rest) = path.strip_suffix("']")?.split_once("['")?;
    (!field.is_empty()).then_some((field, rest))
}

pub(super) fn field_ref(source: Node<'_>, allowed: &[&str]) {
    let (version, path) = (source.get("apiVersion"), source.get("fieldPath"));
    if version.str().is_empty() {
        return version.required("");
    }
    if path.str().is_empty() {
        return path.required("");
    }
    if version.str() != "v1" {
        return path.invalid(&format!("error converting fieldPath: unsupported pod version: {}", version.str()));
    }
    if let Some((field, key)) = subscript(path.str()) {
        let lower = key.to_lowercase();
        let (key, complaints) = match field {
            "metadata.annotations" => (lower.as_str(), names::qualified_name(&lower)),
            "metadata.labels" => (key, names::qualified_name(key)),
            _ => {
                let text =
                    format!("error converting fieldPath: field label does not support subscript: {}", path.str());
                return path.invalid(&text);
            }
        };
        for complaint in complaints {
            source.invalid_text(key, &complaint);
        }
        return;
    }
    let field = if path.str() == "spec.host" { "spec.nodeName" } else { path.str() };
    if !KNOWN_FIELDS.contains(&field) {
        path.invalid(&format!("error converting fieldPath: field label not supported: {field}"));
    } else if !allowed.contains(&field) {
        path.not_supported_as(Quoted(field), allowed);
    }
}

pub(super) fn resource_ref(source: Node<'_>, volume: bool) {
    let resource = source.get("resource");
    let name = resource.str();
    let huge = name.starts_with("requests.hugepages-") || name.starts_with("limits.hugepages-");
    if volume && source.get("containerName").str().is_empty() {
        source.get("containerName").required("");
    } else if name.is_empty() {
        resource.required("");
    } else if !RESOURCES.contains(&name) && !huge {
        resource.not_supported(RESOURCES);
    }
    let divisor = source.get("divisor");
    if Amount::of(divisor.value) == Amount::zero() {
        return;
    }
    let (what, values) = match name {
        "limits.cpu" | "requests.cpu" => ("cpu", &["1m", "1"][..]),
        "limits.memory" | "requests.memory" => ("memory", SIZES),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => ("local ephemeral storage", SIZES),
        _ if huge => ("hugepages", SIZES),
        _ => return,
    };
    if !values.contains(&divisor.str()) {
        let list = if what == "cpu" { "1m and 1".to_owned() } else { values.join(", ") };
        divisor.invalid_text(name, &format!("only divisor's values {list} are supported with the {what} resource"));
    }
}

pub(super) fn env_from(sources: Node<'_>) {
    for source in sources.items() {
        if !source.get("prefix").str().is_empty() {
            source.get("prefix").check(names::env_var_name);
        }
        let mut found = 0;
        for kind in ["configMapRef", "secretRef"] {
            let name = source.get(kind).get("name");
            if source.get(kind).is_set() {
                found += 1;
                if name.str().is_empty() {
                    name.required("");
                } else {
                    name.all(NameRule::Subdomain.check(name.str(), true));
                }
            }
        }
        if found == 0 {
            sources.invalid_text("", "must specify one of: `configMapRef` or `secretRef`");
        } else if found > 1 {
            sources.invalid_text("", "may not have more than one field specified at a time");
        }
    }
}

/// A file with variables lies in an emptyDir of the same pod.
pub(super) fn file_key_volumes(pod: Spec<'_>) {
    for container in pod.containers() {
        for var in container.get("env").items() {
            let name = var.get("valueFrom").get("fileKeyRef").get("volumeName");
            if !var.get("valueFrom").get("fileKeyRef").is_set() {
                continue;
            }
            match pod.spec.get("volumes").items().find(|v| v.get("name").str() == name.str()) {
                None => name.not_found(),
                Some(volume) if !volume.get("emptyDir").is_set() => {
                    name.invalid("referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    }
}
