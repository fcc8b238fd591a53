//! What the resize subresource may change: cpu and memory of containers and of the pod, as long as they stay set.

use serde_json::{Map, Value};

use super::{MIRROR, pod_spec_and_annotations};
use crate::{
    qos::qos_class,
    validate::node::{Node, same},
};

const ONLY: &str = "only cpu and memory resources are mutable";

pub(crate) fn pod(new: Node<'_>, old: Node<'_>) {
    if old.get("metadata").get("annotations").value.get(MIRROR).is_some() {
        return new.forbidden("static pods cannot be resized");
    }
    if old.get("spec").get("os").get("name").str() == "windows" {
        return new.forbidden("windows pods cannot be resized");
    }
    pod_spec_and_annotations(new);
    let (spec, before) = (new.get("spec"), old.get("spec"));
    let had = match old.get("status").get("qosClass").str() {
        "" => qos_class(old.value),
        class => class,
    };
    if had != qos_class(new.value) {
        let class = new.get("status").get("qosClass").value;
        spec.with(class).invalid("Pod QOS Class may not change as a result of resizing");
    }
    if !is_supported(old) {
        spec.forbidden("Pod running on node without support for resize");
    }
    let mut undone = spec.value.clone();
    whole_pod(spec, before, &mut undone);
    if !in_order(spec, before) {
        return;
    }
    for list in ["initContainers", "containers"] {
        for (container, was) in spec.get(list).items().zip(before.get(list).items()) {
            kept(container.get("resources"), was.get("resources"), "resource");
        }
    }
    containers(spec, before, &mut undone);
    init_containers(spec, before, &mut undone);
    if new.errors() == 0 && !same(&undone, before.value) {
        spec.forbidden(ONLY);
    }
}

/// A node that can resize says of its running containers what they have.
fn is_supported(old: Node<'_>) -> bool {
    let mut statuses = old.get("status").get("containerStatuses").items();
    let running = statuses.find(|status| status.get("state").get("running").is_set());
    running.is_none_or(|status| status.get("resources").is_set())
}

fn whole_pod(spec: Node<'_>, before: Node<'_>, undone: &mut Value) {
    let (now, was) = (spec.get("resources"), before.get("resources"));
    let is_some = |resources: Node<'_>| !resources.get("requests").is_empty() || !resources.get("limits").is_empty();
    if !is_some(now) && !is_some(was) {
        return;
    }
    if was.is_set() && !now.is_set() {
        return now.forbidden("pod-level resources cannot be removed");
    }
    kept(now, was, "pod-level resource");
    undo(undone, was.value);
    if !same(undone.get("resources").unwrap_or(&Value::Null), was.value) {
        spec.forbidden("only cpu and memory resources are mutable at pod-level");
    }
}

/// Containers are told apart by their places.
fn in_order(spec: Node<'_>, before: Node<'_>) -> bool {
    let errors = spec.errors();
    for list in ["containers", "initContainers"] {
        let (now, was) = (spec.get(list), before.get(list));
        if now.len() != was.len() {
            now.forbidden(&format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (container, was) in now.items().zip(was.array()) {
            if was.get("name") != container.value.get("name") {
                container.get("name").forbidden(&format!("{list} may not be renamed or reordered on resize"));
            }
        }
    }
    spec.errors() == errors
}

/// What was asked for or limited may change, but not go.
fn kept(now: Node<'_>, was: Node<'_>, what: &str) {
    for field in ["requests", "limits"] {
        let gone = |name: &str| now.get(field).value.get(name).is_none();
        if was.get(field).map().into_iter().flatten().any(|(name, _)| gone(name)) {
            now.get(field).forbidden(&format!("{what} {field} cannot be removed"));
        }
    }
}

fn containers(spec: Node<'_>, before: Node<'_>, undone: &mut Value) {
    for (container, was) in each(undone, "containers").zip(before.get("containers").array()) {
        undo(container, was.get("resources").unwrap_or(&Value::Null));
        if !same(container, was) {
            spec.forbidden(ONLY);
        }
    }
}

fn init_containers(spec: Node<'_>, before: Node<'_>, undone: &mut Value) {
    let list = spec.get("initContainers").items().zip(before.get("initContainers").items());
    for (container, (now, was)) in each(undone, "initContainers").zip(list) {
        undo(container, was.get("resources").value);
        if !same(container, was.value) {
            now.forbidden("only cpu and memory resources for init or sidecar containers are mutable");
        }
        if now.get("restartPolicy").str() == "Always" || now.same(was) {
            continue;
        }
        for policy in now.get("resizePolicy").items() {
            if policy.get("restartPolicy").str() == "RestartContainer" {
                let why = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                now.forbidden(why);
            }
        }
    }
}

fn each<'a>(spec: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Puts cpu and memory back to what they were.
fn undo(holder: &mut Value, was: &Value) {
    let Some(holder) = holder.as_object_mut() else { return };
    let resources = holder.entry("resources").or_insert_with(|| Map::new().into());
    let Some(resources) = resources.as_object_mut() else { return };
    for field in ["requests", "limits"] {
        let amounts = resources.entry(field).or_insert_with(|| Map::new().into());
        let Some(amounts) = amounts.as_object_mut() else { continue };
        for name in ["cpu", "memory"] {
            match was.get(field).and_then(|was| was.get(name)) {
                Some(amount) => amounts.insert(name.to_owned(), amount.clone()),
                None => amounts.remove(name),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validate::node::Ctx;

    fn complaints(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let old = json!({
            "metadata": {"name": "p", "namespace": "n"},
            "spec": {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30, "containers": [{
                "name": "c", "image": "x", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
                "resources": {"requests": {"cpu": "100m", "memory": "10Mi"}, "limits": {"cpu": "200m", "memory": "20Mi"}},
            }]},
            "status": {"qosClass": "Burstable"},
        });
        let mut new = old.clone();
        change(&mut new);
        let ctx = Ctx::default();
        pod(ctx.root(&new), ctx.root(&old));
        ctx.take().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn cpu_and_memory_change_and_nothing_else() {
        let resources = |new: &mut Value, resources: Value| new["spec"]["containers"][0]["resources"] = resources;
        let fine = json!({"requests": {"cpu": "150m", "memory": "10Mi"}, "limits": {"cpu": "300m", "memory": "20Mi"}});
        assert_eq!(complaints(|new| resources(new, fine.clone())), Vec::<String>::new());
        let mut gone = fine.clone();
        gone["limits"] = json!({"cpu": "300m"});
        assert_eq!(
            complaints(|new| resources(new, gone)),
            ["spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"]
        );
        let mut more = fine.clone();
        more["requests"]["ephemeral-storage"] = "1Gi".into();
        assert_eq!(complaints(|new| resources(new, more)), [format!("spec: Forbidden: {ONLY}")]);
        let same = json!({"requests": {"cpu": "200m", "memory": "20Mi"}, "limits": {"cpu": "200m", "memory": "20Mi"}});
        assert_eq!(
            complaints(|new| resources(new, same)),
            ["spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing"]
        );
    }

    #[test]
    fn containers_stay_where_they_are() {
        let more = complaints(|new| {
            let mut second = new["spec"]["containers"][0].clone();
            second["name"] = "d".into();
            new["spec"]["containers"].as_array_mut().unwrap().push(second);
        });
        assert_eq!(more, ["spec.containers: Forbidden: containers may not be added or removed on resize"]);
        let renamed = complaints(|new| new["spec"]["containers"][0]["name"] = "d".into());
        assert_eq!(
            renamed,
            ["spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"]
        );
    }
}
