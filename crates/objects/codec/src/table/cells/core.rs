//! Rows of the core group's simple kinds, and of small kinds from other groups.

use std::borrow::Cow;

use serde_json::Value;

use crate::table::age::{age, since};
use crate::table::read::{condition, containers, count, flag, has, int, items, labels, name, scalar, text, text_or};
use crate::table::tree::Node;

pub(super) fn pod_template(o: &Node<'_>) -> Vec<Value> {
    let [names, images] = containers(o, "/template/spec/containers");
    vec![name(o), names, images, labels(o, "/template/metadata/labels")]
}

pub(super) fn component_status(o: &Node<'_>) -> Vec<Value> {
    let healthy = condition(&items(o, "/conditions"), "Healthy");
    let status = match healthy.map(|c| text(&c, "/status")).as_deref() {
        None => "Unknown",
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
    };
    let said = |field| healthy.map(|c| text(&c, field)).unwrap_or_default();
    vec![name(o), status.into(), said("/message").into(), said("/error").into()]
}

pub(super) fn config_map(o: &Node<'_>, now: i64) -> Vec<Value> {
    vec![name(o), (count(o, "/data") + count(o, "/binaryData")).into(), age(o, now)]
}

pub(super) fn secret(o: &Node<'_>, now: i64) -> Vec<Value> {
    vec![name(o), text(o, "/type").into(), count(o, "/data").into(), age(o, now)]
}

pub(super) fn node(o: &Node<'_>, now: i64) -> Vec<Value> {
    let mut status =
        match condition(&items(o, "/status/conditions"), "Ready").map(|c| text(&c, "/status")).as_deref() {
            None => "Unknown",
            Some("True") => "Ready",
            Some(_) => "NotReady",
        }
        .to_owned();
    if flag(o, "/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let info = |field: &str| text(o, &format!("/status/nodeInfo/{field}"));
    let known = |field: &str| text_or(o, &format!("/status/nodeInfo/{field}"), "<unknown>").into_owned();
    let mut kernel = known("kernelVersion");
    if !info("architecture").is_empty() {
        kernel = format!("{kernel} ({})", info("architecture"));
    }
    let address = |kind: &str| {
        let found = items(o, "/status/addresses").into_iter().find(|a| text(a, "/type") == kind);
        Value::from(found.map_or("<none>".into(), |a| text(&a, "/address")))
    };
    vec![
        name(o),
        status.into(),
        node_roles(o).into(),
        age(o, now),
        info("kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        known("osImage").into(),
        kernel.into(),
        known("containerRuntimeVersion").into(),
    ]
}

/// Roles come from labels: `node-role.kubernetes.io/<role>`, or `kubernetes.io/role: <role>`.
fn node_roles(o: &Node<'_>) -> String {
    let labels = o.pointer("/metadata/labels").into_iter().flat_map(|labels| labels.members());
    let role = |(key, value): (Cow<'_, str>, Node<'_>)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().map(Cow::into_owned),
        None => None,
    };
    let mut roles: Vec<String> = labels.filter_map(role).filter(|role| !role.is_empty()).collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

/// Events are the same objects in the core group and in events.k8s.io, under different names of their fields.
pub(super) fn event(o: &Node<'_>, now: i64) -> Vec<Value> {
    let either = |old: &str, new: &str| -> String { text_or(o, old, text(o, new)).into_owned() };
    let time = |pointers: &[&str]| {
        let found = pointers.iter().find(|pointer| !text(o, pointer).is_empty());
        found.map_or_else(|| "<unknown>".to_owned(), |pointer| since(o, pointer, now))
    };
    let first = time(&["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]);
    let mut last = match time(&["/lastTimestamp", "/deprecatedLastTimestamp"]) {
        unknown if unknown == "<unknown>" => first.clone(),
        last => last,
    };
    let mut times = int(o, "/count").max(int(o, "/deprecatedCount"));
    if has(o, "/series") {
        last = since(o, "/series/lastObservedTime", now);
        times = int(o, "/series/count");
    } else if times == 0 {
        times = 1;
    }

    let kind = either("/involvedObject/kind", "/regarding/kind").to_lowercase();
    let target = match either("/involvedObject/name", "/regarding/name") {
        name if name.is_empty() => kind,
        name => format!("{kind}/{name}"),
    };
    let reporter = either("/reportingComponent", "/reportingController");
    let old_component = either("/source/component", "/deprecatedSource/component");
    let component = if old_component.is_empty() { reporter } else { old_component };
    let host = match either("/source/host", "/deprecatedSource/host") {
        host if host.is_empty() => text(o, "/reportingInstance").into_owned(),
        host => host,
    };
    let source = if host.is_empty() { component } else { format!("{component}, {host}") };
    vec![
        last.into(),
        text(o, "/type").into(),
        text(o, "/reason").into(),
        target.into(),
        either("/involvedObject/fieldPath", "/regarding/fieldPath").into(),
        source.into(),
        either("/message", "/note").trim().into(),
        first.into(),
        times.into(),
        name(o),
    ]
}

pub(super) fn resource_quota(o: &Node<'_>, now: i64) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let hard = o.pointer("/status/hard");
    for resource in hard.into_iter().flat_map(|hard| hard.members()).map(|(resource, _)| resource) {
        let quantity = |of: &str| {
            let quantities = o.pointer(of).and_then(|all| all.get(&resource));
            quantities.and_then(|q| scalar(&q, "")).unwrap_or_else(|| "0".to_owned())
        };
        let entry = format!("{resource}: {}/{}", quantity("/status/used"), quantity("/status/hard"));
        if resource.starts_with("limits.") { limits.push(entry) } else { requests.push(entry) }
    }
    vec![name(o), requests.join(", ").into(), limits.join(", ").into(), age(o, now)]
}

pub(super) fn priority_class(o: &Node<'_>, now: i64) -> Vec<Value> {
    vec![
        name(o),
        int(o, "/value").into(),
        flag(o, "/globalDefault").into(),
        age(o, now),
        text(o, "/preemptionPolicy").into(),
    ]
}

pub(super) fn resource_claim(o: &Node<'_>, now: i64) -> Vec<Value> {
    let deleted = has(o, "/metadata/deletionTimestamp");
    let allocated = has(o, "/status/allocation");
    let mut states = Vec::new();
    if deleted {
        states.push("deleted");
    }
    if allocated {
        states.push("allocated");
        if count(o, "/status/reservedFor") > 0 {
            states.push("reserved");
        }
    } else if !deleted {
        states.push("pending");
    }
    vec![name(o), states.join(",").into(), age(o, now)]
}

pub(super) fn resource_slice(o: &Node<'_>, now: i64) -> Vec<Value> {
    let texts = ["/spec/nodeName", "/spec/driver", "/spec/pool/name"].map(|field| Value::from(text(o, field)));
    let [node, driver, pool] = texts;
    vec![name(o), node, driver, pool, age(o, now)]
}
