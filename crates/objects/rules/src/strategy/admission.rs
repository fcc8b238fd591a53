//! The built-in admission steps that change objects. They need other objects, which the server looks up and hands in.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::defaults::fields::{at, blank, fill, list, put, text, unset, within};

/// Where a pod finds the token of its service account.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME: &str = "kube-api-access-";

/// The account a pod runs as: its own, or `default`.
pub fn service_account_name(pod: &Value) -> &str {
    match text(pod, &["spec", "serviceAccountName"]) {
        "" => "default",
        name => name,
    }
}

/// Gives a new pod its account, and its token unless the pod or the account does not want one.
///
/// `account` is the ServiceAccount named by [`service_account_name`]; `suffix` makes the volume's name unique.
pub fn service_account(pod: &mut Value, account: &Value, suffix: &str) {
    // A mirror of a static pod is what the node says it is.
    if !unset(at(pod, &["metadata", "annotations", "kubernetes.io/config.mirror"])) {
        return;
    }
    let name = service_account_name(pod).to_owned();
    let Some(spec) = within(pod, "spec") else { return };
    put(spec, "serviceAccountName", name.clone());
    put(spec, "serviceAccount", name);
    if let Some(secrets) = account.get("imagePullSecrets").filter(|s| !blank(Some(s)))
        && blank(spec.get("imagePullSecrets"))
    {
        put(spec, "imagePullSecrets", secrets.clone());
    }
    let wanted = [spec.get("automountServiceAccountToken"), account.get("automountServiceAccountToken")];
    if wanted.into_iter().flatten().find_map(Value::as_bool).unwrap_or(true) {
        mount_token(spec, suffix);
    }
}

fn mount_token(spec: &mut Value, suffix: &str) {
    let existing = list(spec, &["volumes"]).iter().map(|v| text(v, &["name"])).find(|n| n.starts_with(TOKEN_VOLUME));
    let name = existing.map_or_else(|| format!("{TOKEN_VOLUME}{suffix}"), str::to_owned);
    let known = existing.is_some();
    let mut needed = false;
    for containers in ["initContainers", "containers"] {
        let Some(containers) = spec.get_mut(containers).and_then(Value::as_array_mut) else { continue };
        for container in containers {
            if list(container, &["volumeMounts"]).iter().any(|m| text(m, &["mountPath"]) == TOKEN_PATH) {
                continue;
            }
            needed = true;
            fill(container, "volumeMounts", json!([]));
            if let Some(mounts) = container.get_mut("volumeMounts").and_then(Value::as_array_mut) {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": TOKEN_PATH}));
            }
        }
    }
    if needed && !known {
        fill(spec, "volumes", json!([]));
        if let Some(volumes) = spec.get_mut("volumes").and_then(Value::as_array_mut) {
            volumes.push(json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
                // A little more than an hour, by which upstream tells these tokens from those that are asked for.
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
                ]}},
            ]}}));
        }
    }
}

/// Resolves a new pod's priority. `class` is the one the pod names or, if it names none, the cluster's default one.
pub fn priority(pod: &mut Value, class: Option<&Value>) -> Result<(), String> {
    let Some(spec) = within(pod, "spec") else { return Ok(()) };
    let named = text(spec, &["priorityClassName"]).to_owned();
    let value = match class {
        Some(class) => class.get("value").and_then(Value::as_i64).unwrap_or_default(),
        None if named.is_empty() => 0,
        None => return Err(format!("no PriorityClass with name {named} was found")),
    };
    let policy = class.map_or("", |class| text(class, &["preemptionPolicy"]));
    let policy = if policy.is_empty() { "PreemptLowerPriority" } else { policy };
    if let Some(class) = class
        && named.is_empty()
    {
        put(spec, "priorityClassName", text(class, &["metadata", "name"]));
    }
    if let Some(given) = spec.get("priority").and_then(Value::as_i64)
        && given != value
    {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; \
             priority admission controller computed {value} from the given PriorityClass name"
        ));
    }
    if let Some(given) = spec.get("preemptionPolicy").and_then(Value::as_str)
        && given != policy
    {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; \
             priority admission controller computed {policy} from the given PriorityClass name"
        ));
    }
    put(spec, "priority", value);
    put(spec, "preemptionPolicy", policy);
    Ok(())
}

/// A pod stays on a node that is in trouble for five minutes unless it says otherwise.
pub fn default_tolerations(pod: &mut Value) {
    let Some(spec) = within(pod, "spec") else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list(spec, &["tolerations"]).iter().any(|toleration| {
            let (of, effect) = (text(toleration, &["key"]), text(toleration, &["effect"]));
            (of.is_empty() || of == key) && matches!(effect, "" | "NoExecute")
        });
        if !tolerated {
            fill(spec, "tolerations", json!([]));
            if let Some(tolerations) = spec.get_mut("tolerations").and_then(Value::as_array_mut) {
                tolerations.push(json!({
                    "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
                }));
            }
        }
    }
}

/// A new node takes no pods before it has said that it is ready.
pub fn taint_new_node(node: &mut Value) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    let Some(spec) = within(node, "spec") else { return };
    let tainted = |t: &Value| text(t, &["key"]) == KEY && text(t, &["effect"]) == "NoSchedule";
    if !list(spec, &["taints"]).iter().any(tainted) {
        fill(spec, "taints", json!([]));
        if let Some(taints) = spec.get_mut("taints").and_then(Value::as_array_mut) {
            taints.push(json!({"key": KEY, "effect": "NoSchedule"}));
        }
    }
}

/// A volume or claim in use is not removed under its users.
pub fn protect_storage(kind: &str, obj: &mut Value) {
    let finalizer = match kind {
        "PersistentVolume" => "kubernetes.io/pv-protection",
        "PersistentVolumeClaim" => "kubernetes.io/pvc-protection",
        "VolumeAttributesClass" => "kubernetes.io/vac-protection",
        _ => return,
    };
    let Some(metadata) = within(obj, "metadata") else { return };
    fill(metadata, "finalizers", json!([]));
    if let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut)
        && !finalizers.iter().any(|f| f == finalizer)
    {
        finalizers.push(finalizer.into());
    }
}

/// A claim that names no class gets the cluster's default: of several, the newest, then the first by name.
pub fn default_storage_class(claim: &mut Value, classes: &[Value]) {
    const BETA: &str = "volume.beta.kubernetes.io/storage-class";
    if !unset(at(claim, &["spec", "storageClassName"])) || !unset(at(claim, &["metadata", "annotations", BETA])) {
        return;
    }
    let marks = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    if let Some(name) = newest_default(classes, &marks)
        && let Some(spec) = within(claim, "spec")
    {
        put(spec, "storageClassName", name);
    }
}

/// As [`default_storage_class`], for ingresses.
pub fn default_ingress_class(ingress: &mut Value, classes: &[Value]) {
    const ANNOTATION: &str = "kubernetes.io/ingress.class";
    if !unset(at(ingress, &["spec", "ingressClassName"]))
        || !unset(at(ingress, &["metadata", "annotations", ANNOTATION]))
    {
        return;
    }
    if let Some(name) = newest_default(classes, &["ingressclass.kubernetes.io/is-default-class"])
        && let Some(spec) = within(ingress, "spec")
    {
        put(spec, "ingressClassName", name);
    }
}

fn newest_default<'a>(classes: &'a [Value], marks: &[&str]) -> Option<&'a str> {
    let marked = |class: &&Value| marks.iter().any(|mark| text(class, &["metadata", "annotations", mark]) == "true");
    let time = |class: &'a Value| text(class, &["metadata", "creationTimestamp"]);
    let name = |class: &'a Value| text(class, &["metadata", "name"]);
    let newest =
        classes.iter().filter(marked).min_by(|a, b| time(b).cmp(time(a)).then_with(|| name(a).cmp(name(b))))?;
    Some(name(newest))
}

/// A pod of a runtime class takes over what the class says of its nodes and its overhead.
pub fn runtime_class(pod: &mut Value, class: &Value) -> Result<(), String> {
    let Some(spec) = within(pod, "spec") else { return Ok(()) };
    if let Some(overhead) = at(class, &["overhead", "podFixed"]).filter(|o| !blank(Some(o))) {
        if spec.get("overhead").is_some_and(|given| !blank(Some(given)) && given != overhead) {
            return Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned());
        }
        put(spec, "overhead", overhead.clone());
    }
    if let Some(selector) = at(class, &["scheduling", "nodeSelector"]).and_then(Value::as_object)
        && let Some(own) = within(spec, "nodeSelector").and_then(Value::as_object_mut)
    {
        for (key, value) in selector {
            if own.get(key).is_some_and(|own| own != value) {
                return Err(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                    value.as_str().unwrap_or_default(),
                    own.get(key).and_then(Value::as_str).unwrap_or_default(),
                ));
            }
            own.insert(key.clone(), value.clone());
        }
    }
    let added = list(class, &["scheduling", "tolerations"]);
    if !added.is_empty() {
        fill(spec, "tolerations", json!([]));
        if let Some(own) = spec.get_mut("tolerations").and_then(Value::as_array_mut) {
            let mut known: HashSet<Value> = own.iter().cloned().collect();
            own.extend(added.iter().filter(|toleration| known.insert((*toleration).clone())).cloned());
        }
    }
    Ok(())
}

/// A pod learns where its node is: the node's topology labels go into a pod that has a node, or into the binding and from there to the pod.
pub fn topology_labels(object: &mut Value, node: &Value) {
    for key in ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"] {
        if let Some(value) = at(node, &["metadata", "labels", key]).filter(|v| !v.is_null())
            && let Some(labels) = within(object, "metadata").and_then(|metadata| within(metadata, "labels"))
        {
            put(labels, key, value.clone());
        }
    }
}
