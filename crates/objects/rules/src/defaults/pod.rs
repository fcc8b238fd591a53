//! Pods and pod templates.

use serde_json::{Value, json};

use super::fields::{add_missing, each, fill, fill_blank, flag, list, put, text, with, within};
use super::volume;

/// What a pod gets beyond its spec's defaults: a template must not get these, or old templates would change.
pub(super) fn pod(obj: &mut Value) {
    with(obj, "status", addresses);
    let Some(spec) = within(obj, "spec") else { return };
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        // Nobody can wait for less than nothing; of old this has meant the shortest wait there is.
        put(spec, "terminationGracePeriodSeconds", 1);
    }
    pod_spec(spec);
    // Of a pod, unlike of a template, this is mended as it comes in.
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        put(spec, "terminationGracePeriodSeconds", 1);
    }
    for containers in ["containers", "initContainers"] {
        each(spec, containers, |container| with(container, "resources", requests_from_limits));
    }
    super::resource::pod_level(spec);
    fill(spec, "enableServiceLinks", true);
    if flag(spec, &["hostNetwork"]) {
        for containers in ["containers", "initContainers"] {
            each(spec, containers, |container| {
                each(container, "ports", |port| {
                    if let Some(number) = port.get("containerPort").cloned() {
                        fill_blank(port, "hostPort", number);
                    }
                });
            });
        }
    }
}

/// The single form of the address and the list are kept in step, the list winning.
fn addresses(status: &mut Value) {
    let single = text(status, &["podIP"]).to_owned();
    match list(status, &["podIPs"]).first().map(|first| text(first, &["ip"]).to_owned()) {
        Some(first) => put(status, "podIP", first),
        None if !single.is_empty() => put(status, "podIPs", json!([{"ip": single}])),
        None => {}
    }
}

/// The template under `key`, as workloads hold it. A template that is missing is made, as a Go struct always is there.
pub(super) fn template(parent: &mut Value, key: &str) {
    let Some(template) = within(parent, key) else { return };
    fill(template, "metadata", json!({}));
    if let Some(spec) = within(template, "spec") {
        pod_spec(spec);
    }
}

fn pod_spec(spec: &mut Value) {
    fill_blank(spec, "dnsPolicy", "ClusterFirst");
    fill_blank(spec, "restartPolicy", "Always");
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", 30);
    fill_blank(spec, "schedulerName", "default-scheduler");
    each(spec, "volumes", volume::volume);
    with(spec, "overhead", super::resource::round);
    with(spec, "resources", super::resource::round_requirements);
    for containers in ["containers", "initContainers", "ephemeralContainers"] {
        each(spec, containers, container);
    }
    // The deprecated name of the field is kept in step with the one in use.
    let account = text(spec, &["serviceAccountName"]).to_owned();
    let deprecated = text(spec, &["serviceAccount"]).to_owned();
    if account.is_empty() && !deprecated.is_empty() {
        put(spec, "serviceAccountName", deprecated);
    } else if !account.is_empty() {
        put(spec, "serviceAccount", account);
    }
}

fn container(container: &mut Value) {
    let policy = pull_policy(text(container, &["image"]));
    fill_blank(container, "imagePullPolicy", policy);
    fill_blank(container, "terminationMessagePath", "/dev/termination-log");
    fill_blank(container, "terminationMessagePolicy", "File");
    fill(container, "resources", json!({}));
    with(container, "resources", super::resource::round_requirements);
    each(container, "ports", |port| fill_blank(port, "protocol", "TCP"));
    each(container, "env", |env| {
        with(env, "valueFrom", |from| {
            with(from, "fieldRef", |field| fill_blank(field, "apiVersion", "v1"));
            with(from, "fileKeyRef", |file| fill(file, "optional", false));
        });
    });
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        with(container, name, probe);
    }
    with(container, "lifecycle", |lifecycle| {
        for hook in ["postStart", "preStop"] {
            with(lifecycle, hook, handler);
        }
    });
}

fn probe(probe: &mut Value) {
    fill_blank(probe, "timeoutSeconds", 1);
    fill_blank(probe, "periodSeconds", 10);
    fill_blank(probe, "successThreshold", 1);
    fill_blank(probe, "failureThreshold", 3);
    handler(probe);
    with(probe, "grpc", |grpc| fill(grpc, "service", ""));
}

fn handler(handler: &mut Value) {
    with(handler, "httpGet", |get| {
        fill_blank(get, "path", "/");
        fill_blank(get, "scheme", "HTTP");
    });
}

fn requests_from_limits(resources: &mut Value) {
    if let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() {
        add_missing(resources, "requests", &limits);
    }
}

/// `Always` for an image that can move under its name, `IfNotPresent` for one with a fixed tag or digest.
///
/// A reference that upstream cannot parse has no implied `latest`, as its error is ignored there.
pub(super) fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    // A colon before the last slash belongs to the registry's port.
    let (name, tag) = match name[last..].find(':') {
        Some(colon) => (&name[..last + colon], Some(&name[last + colon + 1..])),
        None => (name, None),
    };
    let moving = tag == Some("latest") || (tag.is_none() && digest.is_none());
    if moving && parses(name) { "Always" } else { "IfNotPresent" }
}

/// Roughly the grammar of image names.
fn parses(name: &str) -> bool {
    let path = name.split_once('/').map_or(name, |(first, rest)| {
        let registry = first.contains(['.', ':']) || first == "localhost" || first.to_lowercase() != first;
        if registry { rest } else { name }
    });
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    path.split('/').all(|part| {
        part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
            && edge(part.bytes().next())
            && edge(part.bytes().last())
    })
}
