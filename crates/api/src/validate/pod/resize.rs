//! Through the resize subresource, a pod's containers may get more or less of a node. The subresource keeps everything
//! else as it was.

use serde_json::Value;

use super::{MIRROR, pod_spec_and_annotations};
use crate::strategy::qos_class;
use crate::validate::node::{Node, same};

const ONLY_CPU_AND_MEMORY: &str = "only cpu and memory resources are mutable";

pub(crate) fn resize(new: Node<'_>, old: Node<'_>) {
    let (spec, was) = (new.get("spec"), old.get("spec"));
    let never = |why: &str| new.get("").forbidden(why);
    if old.get("metadata").get("annotations").value.get(MIRROR).is_some() {
        return never("static pods cannot be resized");
    }
    if was.get("os").get("name").str() == "windows" {
        return never("windows pods cannot be resized");
    }
    pod_spec_and_annotations(new);
    if qos_class(old.value) != qos_class(new.value) {
        let class = new.get("status").get("qosClass").str();
        spec.invalid_text(class, "Pod QOS Class may not change as a result of resizing");
    }
    if !is_supported(old) {
        spec.forbidden("Pod running on node without support for resize");
    }
    whole_pod(spec, was);
    if !same_containers(spec, was) {
        return;
    }
    for list in ["initContainers", "containers"] {
        for (container, before) in spec.get(list).items().zip(was.get(list).items()) {
            nothing_removed(container.get("resources"), before.get("resources"), "");
        }
    }
    for (container, before) in spec.get("containers").items().zip(was.get("containers").items()) {
        if !same(&without_cpu_and_memory(container.value), &without_cpu_and_memory(before.value)) {
            spec.forbidden(ONLY_CPU_AND_MEMORY);
        }
    }
    for (container, before) in spec.get("initContainers").items().zip(was.get("initContainers").items()) {
        if !same(&without_cpu_and_memory(container.value), &without_cpu_and_memory(before.value)) {
            container.forbidden("only cpu and memory resources for init or sidecar containers are mutable");
        }
    }
}

/// A node that knows of resizing says of running containers what they have.
fn is_supported(old: Node<'_>) -> bool {
    let statuses = old.get("status").get("containerStatuses");
    let running = statuses.items().find(|status| status.get("state").get("running").is_set());
    running.is_none_or(|status| status.get("resources").is_set())
}

fn whole_pod(spec: Node<'_>, was: Node<'_>) {
    let (resources, before) = (spec.get("resources"), was.get("resources"));
    let has = |resources: Node<'_>| !resources.get("requests").is_empty() || !resources.get("limits").is_empty();
    if !has(resources) && !has(before) {
        return;
    }
    if before.is_set() && !resources.is_set() {
        return resources.forbidden("pod-level resources cannot be removed");
    }
    nothing_removed(resources, before, "pod-level ");
    let wrap = |resources: Node<'_>| without_cpu_and_memory(&serde_json::json!({"resources": resources.value}));
    if !same(&wrap(resources), &wrap(before)) {
        spec.forbidden("only cpu and memory resources are mutable at pod-level");
    }
}

fn same_containers(spec: Node<'_>, was: Node<'_>) -> bool {
    let errors = spec.errors();
    for list in ["containers", "initContainers"] {
        let (now, before) = (spec.get(list), was.get(list));
        if now.len() != before.len() {
            now.forbidden(&format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (container, before) in now.items().zip(before.items()) {
            if container.get("name").str() != before.get("name").str() {
                container.get("name").forbidden(&format!("{list} may not be renamed or reordered on resize"));
            }
        }
    }
    spec.errors() == errors
}

fn nothing_removed(resources: Node<'_>, was: Node<'_>, of: &str) {
    for list in ["requests", "limits"] {
        let (now, before) = (resources.get(list), was.get(list));
        let kept = before.map().into_iter().flatten().all(|(name, _)| now.value.get(name).is_some());
        if !kept {
            now.forbidden(&format!("{of}resource {list} cannot be removed"));
        }
    }
}

fn without_cpu_and_memory(container: &Value) -> Value {
    let mut rest = container.clone();
    for list in ["requests", "limits"] {
        if let Some(amounts) = rest.pointer_mut(&format!("/resources/{list}")).and_then(Value::as_object_mut) {
            amounts.remove("cpu");
            amounts.remove("memory");
        }
    }
    rest
}
