//! PodSecurity: what pods of a namespace may ask for, as the namespace's labels say.

mod baseline;
mod pod;
mod restricted;
#[cfg(test)]
mod tests;

use schema::field::FieldError;
use schema::status::{Result, Status};
use serde_json::Value;

use super::forbid;
use crate::call::Call;
use pod::{Pod, Violation, text};

const LABEL: &str = "pod-security.kubernetes.io/";
/// The newest version of the policies that is known here.
const LATEST: u32 = 36;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// One mode of a namespace: how strict, and by the policies of which version.
#[derive(Clone, Debug, PartialEq)]
struct Standard {
    level: Level,
    /// `latest` or `v1.24`.
    version: String,
    minor: u32,
}

impl Standard {
    /// What the labels say for `enforce`, `audit` or `warn`. What cannot be understood counts as the strictest.
    fn read(labels: &Value, mode: &str) -> Self {
        let level = match labels[format!("{LABEL}{mode}")].as_str() {
            None | Some("privileged") => Level::Privileged,
            Some("baseline") => Level::Baseline,
            Some(_) => Level::Restricted,
        };
        let version = labels[format!("{LABEL}{mode}-version")].as_str().unwrap_or("latest").to_owned();
        let minor = version.strip_prefix("v1.").and_then(|minor| minor.parse().ok()).unwrap_or(LATEST);
        Self { level, version, minor }
    }

    fn shown(&self) -> String {
        format!("\"{}:{}\"", self.level.name(), self.version)
    }

    fn violations(&self, pod: &Pod<'_>) -> Vec<Violation> {
        let minor = self.minor;
        let strict = self.level == Level::Restricted;
        let checks: [Option<Violation>; 18] = match self.level {
            Level::Privileged => return Vec::new(),
            _ => [
                baseline::app_armor(pod),
                baseline::capabilities(pod).filter(|_| !strict),
                baseline::host_namespaces(pod),
                baseline::host_path(pod).filter(|_| !strict),
                baseline::host_ports(pod),
                baseline::host_probes(pod).filter(|_| minor >= 34),
                baseline::privileged(pod),
                baseline::proc_mount(pod),
                baseline::selinux(pod, minor),
                baseline::seccomp(pod).filter(|_| !strict),
                baseline::sysctls(pod, minor),
                baseline::windows_host_process(pod),
                restricted::privilege_escalation(pod).filter(|_| strict),
                restricted::capabilities(pod).filter(|_| strict),
                restricted::volumes(pod).filter(|_| strict),
                restricted::run_as_non_root(pod).filter(|_| strict),
                restricted::run_as_user(pod).filter(|_| strict),
                restricted::seccomp(pod).filter(|_| strict),
            ],
        };
        checks.into_iter().flatten().collect()
    }

    /// What the policy says of a pod, in one sentence; nothing if it is fine.
    fn judge(&self, pod: &Pod<'_>) -> Option<String> {
        let violations = self.violations(pod);
        if violations.is_empty() {
            return None;
        }
        let told: Vec<String> = violations.iter().map(|v| format!("{} ({})", v.reason, v.detail)).collect();
        Some(format!("PodSecurity {}: {}", self.shown(), told.join(", ")))
    }
}

/// The pod that an object is or makes; `false`: it only makes it.
fn pod_in<'a>(collection: &str, value: &'a Value) -> Option<(Pod<'a>, bool)> {
    let (template, is_pod) = match collection {
        "core/pods" => (value, true),
        "core/podtemplates" => (&value["template"], false),
        "core/replicationcontrollers"
        | "apps/deployments"
        | "apps/replicasets"
        | "apps/statefulsets"
        | "apps/daemonsets"
        | "batch/jobs" => (&value["spec"]["template"], false),
        "batch/cronjobs" => (&value["spec"]["jobTemplate"]["spec"]["template"], false),
        _ => return None,
    };
    let pod = Pod { metadata: &template["metadata"], spec: &template["spec"] };
    pod.spec.is_object().then_some((pod, is_pod))
}

/// Holds a valid object against the standards of its namespace.
pub fn judge(call: &Call, value: &Value, old: Option<&Value>) -> Result<()> {
    let collection = &*call.kind.collection;
    if collection == "core/namespaces" && call.target.subresource.is_empty() {
        return labels_are_known(call, value, old);
    }
    let Some((pod, is_pod)) = pod_in(collection, value) else { return Ok(()) };
    if !matters(call, &pod, is_pod, old.and_then(|old| pod_in(collection, old)).map(|(pod, _)| pod).as_ref()) {
        return Ok(());
    }
    let Some(labels) = labels_of(call) else { return Ok(()) };
    let notes = &call.notes;
    let enforced = Standard::read(&labels, "enforce");
    if is_pod {
        notes.annotate(format!("{LABEL}enforce-policy"), enforced.shown().trim_matches('"').to_owned());
        if let Some(why) = enforced.judge(&pod) {
            return Err(forbid(call, value, &format!("violates {why}")));
        }
    }
    if let Some(why) = Standard::read(&labels, "audit").judge(&pod) {
        notes.annotate(format!("{LABEL}audit-violations"), format!("would violate {why}"));
    }
    if let Some(why) = Standard::read(&labels, "warn").judge(&pod) {
        call.warn(format!("would violate {why}"));
    }
    Ok(())
}

/// Most updates of pods change nothing that the policies look at.
fn matters(call: &Call, pod: &Pod<'_>, is_pod: bool, old: Option<&Pod<'_>>) -> bool {
    let Some(old) = old else { return call.target.subresource.is_empty() };
    match (is_pod, call.target.subresource.as_str()) {
        (true, "ephemeralcontainers" | "resize") => true,
        (true, "") => {
            let profiles = |pod: &Pod<'_>| {
                let all = pod.metadata["annotations"].as_object().into_iter().flatten();
                all.filter(|(key, _)| key.contains("apparmor")).map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>()
            };
            profiles(pod) != profiles(old)
        }
        (false, "") => pod.spec != old.spec || pod.metadata != old.metadata,
        _ => false,
    }
}

/// The labels of the namespace, if any of them is about this.
fn labels_of(call: &Call) -> Option<Value> {
    let key = format!("{}//{}", call.cluster, call.target.namespace);
    let namespace = call.server.cache.get("core/namespaces", &key)?;
    let has = |bytes: &[u8]| bytes.windows(LABEL.len()).any(|w| w == LABEL.as_bytes());
    has(&namespace.json).then(|| namespace.value()["metadata"]["labels"].clone())
}

/// A namespace cannot ask for a level that nobody knows. What stood there before may stay.
fn labels_are_known(call: &Call, value: &Value, old: Option<&Value>) -> Result<()> {
    let labels = &value["metadata"]["labels"];
    let mut errors = Vec::new();
    for mode in ["enforce", "audit", "warn"] {
        for (label, fine) in [(format!("{LABEL}{mode}"), false), (format!("{LABEL}{mode}-version"), true)] {
            let Some(given) = labels[&label].as_str() else { continue };
            if old.is_some_and(|old| old["metadata"]["labels"][&label] == given) {
                continue;
            }
            let path = format!("metadata.labels[{label}]");
            if !fine && !matches!(given, "privileged" | "baseline" | "restricted") {
                let why = "must be one of privileged, baseline, restricted";
                errors.push(FieldError::invalid(path, &given.into(), why));
            } else if fine && !is_version(given) {
                let why = "must be \"latest\" or \"v1.x\"";
                errors.push(FieldError::invalid(path, &given.into(), why));
            }
        }
    }
    if errors.is_empty() {
        warn_of_existing(call, value, old);
        return Ok(());
    }
    Err(Status::invalid("", "Namespace", text(&value["metadata"]["name"]), &errors))
}

fn is_version(text: &str) -> bool {
    text == "latest" || text.strip_prefix("v1.").is_some_and(|minor| minor.parse::<u32>().is_ok())
}

/// Pods that run already are left alone; whoever tightens the rules is told which of them break them.
fn warn_of_existing(call: &Call, value: &Value, old: Option<&Value>) {
    const MOST: usize = 3000;
    let Some(old) = old else { return };
    let (new, before) = (&value["metadata"]["labels"], &old["metadata"]["labels"]);
    let (new, before) = (Standard::read(new, "enforce"), Standard::read(before, "enforce"));
    if new == before || new.level <= before.level && new.level != Level::Restricted || new.level == Level::Privileged {
        return;
    }
    let name = text(&value["metadata"]["name"]);
    let snapshot = call.server.cache.snapshot("core/pods");
    let prefix = format!("{}/{name}/", call.cluster);
    let mut told: Vec<(String, Vec<String>)> = Vec::new();
    for object in snapshot.items.range(&prefix, "").take(MOST) {
        let value = object.value();
        let pod = Pod { metadata: &value["metadata"], spec: &value["spec"] };
        let reasons: Vec<&str> = new.violations(&pod).iter().map(|v| v.reason).collect();
        if reasons.is_empty() {
            continue;
        }
        let why = reasons.join(", ");
        match told.iter_mut().find(|(known, _)| *known == why) {
            Some((_, pods)) => pods.push(object.name().to_owned()),
            None => told.push((why, vec![object.name().to_owned()])),
        }
    }
    if told.is_empty() {
        return;
    }
    call.warn(format!("existing pods in namespace {name:?} violate the new PodSecurity enforce level {}", new.shown()));
    for (why, pods) in told {
        let others = match pods.len() - 1 {
            0 => String::new(),
            1 => " (and 1 other pod)".to_owned(),
            n => format!(" (and {n} other pods)"),
        };
        call.warn(format!("{}{others}: {why}", pods[0]));
    }
}
