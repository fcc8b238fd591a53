//! Containers: names, images, ports, mounts, probes and hooks.

use std::collections::{BTreeSet, HashMap, HashSet};

use schema::names;
use serde_json::Value;

use super::volume::{self, Volumes};
use super::{Spec, env, resources, security};
use crate::validate::node::{Node, Quoted};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
pub(super) const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const ONE_HANDLER: &str = "may not specify more than 1 handler type";
const NOT_FOR_INIT: &str = "may not be set for init containers without restartPolicy=Always";
const NOT_FOR_EPHEMERAL: &str = "cannot be set for an Ephemeral Container";

pub(super) fn containers(pod: Spec<'_>, volumes: &Volumes<'_>, claims: &BTreeSet<&str>) {
    let list = pod.spec.get("containers");
    if list.is_empty() {
        return list.required("");
    }
    let mut seen = HashSet::new();
    for container in list.items() {
        common(pod, container, volumes, claims);
        if !seen.insert(container.get("name").str()) {
            container.get("name").duplicate_as(Quoted(container.get("name").str()));
        }
        running(pod, container);
        restart_policy(container);
    }
    host_ports(list.items());
}

pub(super) fn init_containers(pod: Spec<'_>, volumes: &Volumes<'_>, claims: &BTreeSet<&str>) {
    let mut seen: HashSet<&str> =
        pod.spec.get("containers").array().iter().filter_map(|c| c.get("name").and_then(Value::as_str)).collect();
    for container in pod.spec.get("initContainers").items() {
        common(pod, container, volumes, claims);
        restart_policy(container);
        let name = container.get("name");
        if seen.contains(name.str()) {
            name.duplicate_as(Quoted(name.str()));
        } else if !name.str().is_empty() {
            seen.insert(name.str());
        }
        host_ports(std::iter::once(container));
        let sidecar = container.get("restartPolicy").str() == "Always";
        if sidecar {
            running(pod, container);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.get(field).is_set() {
                    container.get(field).forbidden(NOT_FOR_INIT);
                }
            }
            for policy in container.get("resizePolicy").items() {
                let restart = policy.get("restartPolicy");
                if restart.str() == "RestartContainer" {
                    restart.invalid("must not be set to 'RestartContainer' for non-sidecar initContainers");
                }
            }
        }
    }
}

pub(super) fn ephemeral_containers(pod: Spec<'_>, volumes: &Volumes<'_>, claims: &BTreeSet<&str>) {
    let list = pod.spec.get("ephemeralContainers");
    if list.is_empty() {
        return;
    }
    let mut others = HashSet::new();
    for field in ["containers", "initContainers"] {
        others.extend(pod.spec.get(field).items().map(|c| c.get("name").str()));
    }
    let mut seen = others.clone();
    for container in list.items() {
        common(pod, container, volumes, claims);
        trimmed_image(container);
        let name = container.get("name");
        if !seen.insert(name.str()) {
            name.duplicate_as(Quoted(name.str()));
        }
        let target = container.get("targetContainerName");
        if !target.is_empty() && !others.contains(target.str()) {
            target.not_found();
        }
        for field in [
            "ports",
            "resources",
            "resizePolicy",
            "restartPolicy",
            "restartPolicyRules",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
        ] {
            if !container.get(field).is_empty() {
                container.get(field).forbidden(NOT_FOR_EPHEMERAL);
            }
        }
        for mount in container.get("volumeMounts").items() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.get(field).is_empty() {
                    mount.get(field).forbidden(NOT_FOR_EPHEMERAL);
                }
            }
        }
    }
}

pub(super) fn trimmed_image(container: Node<'_>) {
    let image = container.get("image");
    if image.str().trim().len() != image.str().len() {
        image.invalid("must not have leading or trailing whitespace");
    }
}

fn common(pod: Spec<'_>, container: Node<'_>, volumes: &Volumes<'_>, claims: &BTreeSet<&str>) {
    container.get("name").required_and(names::dns1123_label);
    if container.get("image").str().is_empty() {
        container.get("image").required("");
    }
    container.get("terminationMessagePolicy").required_one_of(&["File", "FallbackToLogsOnError"]);
    ports(container.get("ports"));
    env::env(container.get("env"));
    env::env_from(container.get("envFrom"));
    mounts(container, volumes);
    devices(container, volumes);
    container.get("imagePullPolicy").required_one_of(PULL_POLICIES);
    resources::container(container.get("resources"), claims);
    resize_policy(container.get("resizePolicy"), pod.spec.get("restartPolicy").str());
    security::container(container.get("securityContext"), pod.host_users());
}

fn ports(ports: Node<'_>) {
    let mut seen = HashSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if !name.str().is_empty() {
            let complaints = names::port_name(name.str());
            if complaints.is_empty() && !seen.insert(name.str()) {
                name.duplicate();
            }
            name.all(complaints);
        }
        let number = port.get("containerPort");
        if number.int_or_0() == 0 {
            number.required("");
        } else {
            port_number(number);
        }
        if port.get("hostPort").int_or_0() != 0 {
            port_number(port.get("hostPort"));
        }
        port.get("protocol").required_one_of(PROTOCOLS);
    }
}

pub(crate) fn port_number(port: Node<'_>) {
    for complaint in names::port_number(port.int_or_0()) {
        port.invalid_as(port.int_or_0(), &complaint);
    }
}

/// A port by number, or by the name a container gives it.
pub(crate) fn port_number_or_name(port: Node<'_>) {
    match port.value {
        Value::String(_) => port.check(names::port_name),
        _ => port_number(port),
    }
}

fn host_ports<'a>(containers: impl Iterator<Item = Node<'a>>) {
    let mut seen = HashSet::new();
    for container in containers {
        for port in container.get("ports").items() {
            let host = port.get("hostPort");
            if host.int_or_0() == 0 {
                continue;
            }
            let key = format!("{}/{}/{}", port.get("protocol").str(), port.get("hostIP").str(), host.int_or_0());
            if seen.contains(&key) {
                host.duplicate_as(Quoted(&key));
            } else {
                seen.insert(key);
            }
        }
    }
}

fn mounts(container: Node<'_>, volumes: &Volumes<'_>) {
    let list = container.get("volumeMounts");
    let devices: HashMap<&str, &str> =
        container.get("volumeDevices").items().map(|d| (d.get("name").str(), d.get("devicePath").str())).collect();
    let device_paths: HashSet<&str> = devices.values().copied().collect();
    let mut paths = HashSet::new();
    for mount in list.items() {
        let (name, path) = (mount.get("name"), mount.get("mountPath"));
        if name.str().is_empty() {
            name.required("");
        }
        if !volumes.contains_key(name.str()) {
            name.shown(schema::field::FieldErrorKind::NotFound, Quoted(name.str()), "");
        }
        if path.str().is_empty() {
            path.required("");
        }
        if !paths.insert(path.str()) {
            path.invalid_str("must be unique");
        }
        if devices.contains_key(name.str()) {
            name.invalid("must not already exist in volumeDevices");
        }
        if device_paths.contains(path.str()) {
            path.invalid("must not already exist as a path in volumeDevices");
        }
        // Upstream names the list, not the item, for what follows.
        let (sub, expr) = (mount.get("subPath"), mount.get("subPathExpr"));
        if !sub.str().is_empty() {
            volume::local_path(list.get("subPath").with(sub.value));
        }
        if !expr.str().is_empty() {
            if !sub.str().is_empty() {
                expr.invalid("subPathExpr and subPath are mutually exclusive");
            }
            volume::local_path(list.get("subPathExpr").with(expr.value));
        }
        propagation(list, mount, container);
        let recursive = list.get("recursiveReadOnly").with(mount.get("recursiveReadOnly").value);
        match recursive.str() {
            "" if !recursive.is_set() => {}
            "Disabled" => {}
            "Enabled" | "IfPossible" => {
                if !mount.get("readOnly").bool() {
                    recursive.forbidden("may only be specified when readOnly is true");
                }
                if !matches!(mount.get("mountPropagation").str(), "" | "None") {
                    recursive.forbidden("may only be specified when mountPropagation is None or not specified");
                }
            }
            _ => recursive.not_supported(&["Disabled", "Enabled", "IfPossible"]),
        }
    }
}

fn propagation(list: Node<'_>, mount: Node<'_>, container: Node<'_>) {
    let mode = list.get("mountPropagation").with(mount.get("mountPropagation").value);
    if mode.is_set() {
        mode.one_of(&["Bidirectional", "HostToContainer", "None"]);
        if mode.str() == "Bidirectional" && !container.get("securityContext").get("privileged").bool() {
            mode.forbidden("Bidirectional mount propagation is available only to privileged containers");
        }
    }
}

fn devices(container: Node<'_>, volumes: &Volumes<'_>) {
    let mounts: HashMap<&str, &str> =
        container.get("volumeMounts").items().map(|m| (m.get("name").str(), m.get("mountPath").str())).collect();
    let mount_paths: HashSet<&str> = mounts.values().copied().collect();
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for device in container.get("volumeDevices").items() {
        let (name, path) = (device.get("name"), device.get("devicePath"));
        if name.str().is_empty() {
            name.required("");
        }
        if names.contains(name.str()) {
            name.invalid("must be unique");
        }
        match volumes.get(name.str()) {
            Some(source) if source.get("persistentVolumeClaim").is_some() || source.get("ephemeral").is_some() => {}
            Some(_) => {
                name.invalid("can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode");
            }
            None => name.shown(schema::field::FieldErrorKind::NotFound, Quoted(name.str()), ""),
        }
        if path.str().is_empty() {
            path.required("");
        }
        if paths.contains(path.str()) {
            path.invalid_str("must be unique");
        }
        if volume::has_backsteps(path.str()) {
            path.invalid("can not contain backsteps ('..')");
        } else {
            paths.insert(path.str());
        }
        if mounts.contains_key(name.str()) {
            name.invalid("must not already exist in volumeMounts");
        }
        if mount_paths.contains(path.str()) {
            path.invalid("must not already exist as a path in volumeMounts");
        }
        if !name.str().is_empty() {
            names.insert(name.str());
        }
    }
}

fn resize_policy(policies: Node<'_>, restart: &str) {
    let mut seen = HashSet::new();
    for policy in policies.items() {
        let name = policy.get("resourceName");
        if !seen.insert(name.str()) {
            policy.duplicate_as(Quoted(name.str()));
        }
        // Upstream names the list, not the item.
        policies.with(name.value).required_one_of(&["cpu", "memory"]);
        let action = policies.with(policy.get("restartPolicy").value);
        action.required_one_of(&["NotRequired", "RestartContainer"]);
        if restart == "Never" && action.str() != "NotRequired" {
            action.invalid_str("must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

fn restart_policy(container: Node<'_>) {
    let (policy, rules) = (container.get("restartPolicy"), container.get("restartPolicyRules"));
    if !policy.is_set() {
        if rules.is_empty() {
            return;
        }
        policy.required("must specify restartPolicy when restart rules are used");
    } else {
        policy.one_of(&["Always", "Never", "OnFailure"]);
    }
    if rules.len() > 20 {
        rules.too_many(20);
    }
    for rule in rules.items() {
        rule.get("action").one_of(&["Restart", "RestartAllContainers"]);
        let codes = rule.get("exitCodes");
        if codes.is_set() {
            codes.get("operator").one_of(&["In", "NotIn"]);
            if codes.get("values").len() > 255 {
                codes.get("values").too_many(255);
            }
        } else {
            codes.required("must be specified");
        }
    }
}

/// Probes and hooks of a container that keeps running.
fn running(pod: Spec<'_>, container: Node<'_>) {
    let grace = pod.spec.get("terminationGracePeriodSeconds").int();
    let lifecycle = container.get("lifecycle");
    for hook in ["postStart", "preStop"] {
        if lifecycle.get(hook).is_set() {
            handler(lifecycle.get(hook), grace);
        }
    }
    let liveness = container.get("livenessProbe");
    probe(liveness, grace);
    once(liveness);
    let readiness = container.get("readinessProbe");
    probe(readiness, grace);
    if readiness.get("terminationGracePeriodSeconds").is_set() {
        readiness.get("terminationGracePeriodSeconds").invalid("must not be set for readinessProbes");
    }
    let startup = container.get("startupProbe");
    probe(startup, grace);
    once(startup);
}

fn once(probe: Node<'_>) {
    let threshold = probe.get("successThreshold");
    if probe.is_set() && threshold.int_or_0() != 1 {
        threshold.invalid_as(threshold.int_or_0(), "must be 1");
    }
}

fn probe(probe: Node<'_>, grace: Option<i64>) {
    if !probe.is_set() {
        return;
    }
    handler(probe, grace);
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        probe.get(field).non_negative();
    }
    probe.get("terminationGracePeriodSeconds").positive();
}

fn handler(handler: Node<'_>, grace: Option<i64>) {
    let mut found = false;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let action = handler.get(kind);
        if !action.is_set() {
            continue;
        }
        if found {
            action.forbidden(ONE_HANDLER);
            continue;
        }
        found = true;
        match kind {
            "exec" if action.get("command").is_empty() => action.get("command").required(""),
            "httpGet" => http_get(action),
            "tcpSocket" => port_number_or_name(action.get("port")),
            "grpc" => port_number(action.get("port")),
            "sleep" => {
                let seconds = action.get("seconds").int_or_0();
                if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    action.invalid_as(
                        seconds,
                        &format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})"),
                    );
                }
            }
            _ => {}
        }
    }
    if !found {
        handler.required("must specify a handler type");
    }
}

fn http_get(action: Node<'_>) {
    if action.get("path").str().is_empty() {
        action.get("path").required("");
    }
    port_number_or_name(action.get("port"));
    action.get("scheme").one_of(&["HTTP", "HTTPS"]);
    let headers = action.get("httpHeaders");
    for header in headers.items() {
        headers.with(header.get("name").value).check(names::http_header_name);
    }
}
