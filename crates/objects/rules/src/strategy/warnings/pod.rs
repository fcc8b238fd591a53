//! Pods and pod templates.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use super::addresses::ip;
use super::volumes::claim_spec;
use crate::defaults::fields::{at, list, text, unset};
use crate::strategy::limits::is_fractional;

/// At most this many overlapping paths are told of: there can be as many as pairs of paths.
const MOST_OVERLAPS: usize = 100;

const NODE_LABELS: &[(&str, &str)] = &[
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

pub(super) fn deprecated_label(key: &str) -> Option<&'static str> {
    NODE_LABELS.iter().find(|(label, _)| *label == key).map(|(_, why)| *why)
}

/// Terms of a node selector that use labels on their way out.
pub(super) fn selector_terms(path: &str, selector: &Value, out: &mut Vec<String>) {
    for (i, term) in list(selector, &["nodeSelectorTerms"]).iter().enumerate() {
        selector_term(&format!("{path}[{i}]"), term, false, out);
    }
}

/// Values are refused where they must match, and only warned of where they may.
fn selector_term(path: &str, term: &Value, check_values: bool, out: &mut Vec<String>) {
    for (i, expression) in list(term, &["matchExpressions"]).iter().enumerate() {
        let key = text(expression, &["key"]);
        if let Some(why) = deprecated_label(key) {
            out.push(format!("{path}.matchExpressions[{i}].key: {key} is {why}"));
        }
        for (j, value) in list(expression, &["values"]).iter().enumerate().filter(|_| check_values) {
            let value = value.as_str().unwrap_or_default();
            for why in schema::names::label_value(value) {
                out.push(format!("{path}.matchExpressions[{i}].values[{j}]: {value} is invalid, {why}"));
            }
        }
    }
}

pub(super) fn pod(pod: &Value, out: &mut Vec<String>) {
    Check { prefix: String::new(), pod, out }.run();
}

/// `path` is where in its object the template is.
pub(super) fn template(path: &str, template: &Value, out: &mut Vec<String>) {
    Check { prefix: format!("{path}."), pod: template, out }.run();
}

struct Check<'a> {
    prefix: String,
    pod: &'a Value,
    out: &'a mut Vec<String>,
}

impl Check<'_> {
    fn run(&mut self) {
        self.node_labels();
        self.annotations();
        self.volumes();
        self.duplicates();
        self.containers();
        self.ports();
        self.rest();
    }

    fn say(&mut self, path: &str, why: &str) {
        self.out.push(format!("{}{path}: {why}", self.prefix));
    }

    fn node_labels(&mut self) {
        let selector = at(self.pod, &["spec", "nodeSelector"]).and_then(Value::as_object);
        for (key, _) in selector.into_iter().flatten() {
            if let Some(why) = deprecated_label(key) {
                self.say(&format!("spec.nodeSelector[{key}]"), why);
            }
        }
        let affinity = at(self.pod, &["spec", "affinity", "nodeAffinity"]).unwrap_or(&Value::Null);
        let base = format!("{}spec.affinity.nodeAffinity", self.prefix);
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let terms = affinity.get(required).unwrap_or(&Value::Null);
        selector_terms(&format!("{base}.{required}.nodeSelectorTerms"), terms, self.out);
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (i, term) in list(affinity, &[preferred]).iter().enumerate() {
            let term = term.get("preference").unwrap_or(&Value::Null);
            selector_term(&format!("{base}.{preferred}[{i}].preference"), term, true, self.out);
        }
        for (i, constraint) in list(self.pod, &["spec", "topologySpreadConstraints"]).iter().enumerate() {
            let key = text(constraint, &["topologyKey"]);
            if let Some(why) = deprecated_label(key) {
                self.say(&format!("spec.topologySpreadConstraints[{i}].topologyKey"), &format!("{key} is {why}"));
            }
            if unset(constraint.get("labelSelector")) {
                self.say(&format!("spec.topologySpreadConstraints[{i}].labelSelector"), NO_SELECTOR);
            }
        }
    }

    fn annotations(&mut self) {
        for (key, why) in [
            (
                "scheduler.alpha.kubernetes.io/critical-pod",
                "non-functional in v1.16+; use the \"priorityClassName\" field instead",
            ),
            ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
            (
                "security.alpha.kubernetes.io/unsafe-sysctls",
                "non-functional in v1.11+; use the \"sysctls\" field instead",
            ),
        ] {
            if self.annotated(key) {
                self.say(&format!("metadata.annotations[{key}]"), why);
            }
        }
    }

    fn annotated(&self, key: &str) -> bool {
        !unset(at(self.pod, &["metadata", "annotations", key]))
    }

    fn volumes(&mut self) {
        for (i, volume) in list(self.pod, &["spec", "volumes"]).iter().enumerate() {
            for (source, shown, why) in [
                ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
                ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
                ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
                ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
                ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
                ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
                ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
                ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
                ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
            ] {
                if !unset(volume.get(source)) {
                    self.say(&format!("spec.volumes[{i}].{shown}"), why);
                }
            }
            if let Some(spec) = at(volume, &["ephemeral", "volumeClaimTemplate", "spec"]) {
                let path = format!("{}spec.volumes[{i}].ephemeral.volumeClaimTemplate.spec", self.prefix);
                claim_spec(&path, spec, self.out);
            }
        }
        self.overlapping_paths();
    }

    /// Two keys of one volume that would be written to the same place.
    fn overlapping_paths(&mut self) {
        for volume in list(self.pod, &["spec", "volumes"]) {
            let name = text(volume, &["name"]);
            for (source, word, key) in [
                ("configMap", "ConfigMap", "name"),
                ("secret", "Secret", "secretName"),
                ("downwardAPI", "DownwardAPI", ""),
            ] {
                let Some(content) = volume.get(source) else { continue };
                let of = if key.is_empty() { word.to_owned() } else { format!("{word} \"{}\"", text(content, &[key])) };
                let paths = list(content, &["items"]).iter().map(|item| (text(item, &["path"]), String::new()));
                self.overlaps(name, &of, paths.collect());
            }
            let mut paths = Vec::new();
            for projection in list(volume, &["projected", "sources"]) {
                if projection.as_object().is_some_and(serde_json::Map::is_empty) {
                    self.out.push(format!("volume \"{name}\" (Projected) has no sources provided"));
                }
                for (source, word) in [("configMap", "ConfigMap"), ("secret", "Secret"), ("downwardAPI", "DownwardAPI")]
                {
                    let Some(content) = projection.get(source) else { continue };
                    let of = match source {
                        "downwardAPI" => word.to_owned(),
                        _ => format!("{word} \"{}\"", text(content, &["name"])),
                    };
                    paths.extend(list(content, &["items"]).iter().map(|item| (text(item, &["path"]), of.clone())));
                }
                if let Some(token) = projection.get("serviceAccountToken") {
                    paths.push((text(token, &["path"]), "ServiceAccountToken".to_owned()));
                }
            }
            self.overlaps(name, "Projected", paths);
        }
    }

    fn overlaps(&mut self, volume: &str, of: &str, paths: Vec<(&str, String)>) {
        let shown = |(path, source): &(&str, String)| {
            if source.is_empty() { format!("\"{path}\"") } else { format!("\"{path}\" ({source})") }
        };
        let mut seen: Vec<(&str, String)> = Vec::new();
        // Where each path is among those that were seen, by the path with a slash behind it.
        let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (path, source) in paths {
            let one = (path.trim_end_matches('/'), source);
            if one.0.is_empty() {
                continue;
            }
            let own = format!("{}/", one.0);
            let above = own.match_indices('/').map(|(at, _)| &own[..=at]).filter(|above| above.len() < own.len());
            let below = places.range(own.clone()..).take_while(|(path, _)| path.starts_with(&own));
            let overlapping = above.filter_map(|above| places.get(above)).chain(below.map(|(_, at)| at));
            let mut overlapping: Vec<usize> = overlapping.flatten().copied().take(MOST_OVERLAPS).collect();
            overlapping.sort_unstable();
            for at in overlapping {
                if self.out.len() >= MOST_OVERLAPS {
                    return;
                }
                let (one, other) = (shown(&one), shown(&seen[at]));
                self.out.push(format!("volume \"{volume}\" ({of}): overlapping paths: {one} with {other}"));
            }
            places.entry(own).or_default().push(seen.len());
            seen.push(one);
        }
    }

    fn duplicates(&mut self) {
        for (key, field) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
            let mut seen = HashSet::new();
            for (i, item) in list(self.pod, &["spec", key]).iter().enumerate() {
                let value = text(item, &[field]);
                if !seen.insert(value) {
                    self.say(&format!("spec.{key}[{i}].{field}"), &format!("duplicate {field} \"{value}\""));
                }
            }
        }
        for (i, secret) in list(self.pod, &["spec", "imagePullSecrets"]).iter().enumerate() {
            if text(secret, &["name"]).is_empty() {
                self.say(&format!("spec.imagePullSecrets[{i}].name"), "invalid empty name \"\"");
            }
        }
    }

    fn containers(&mut self) {
        for name in ["memory", "ephemeral-storage"] {
            if let Some(shown) = at(self.pod, &["spec", "overhead", name]).and_then(is_fractional) {
                self.say(&format!("spec.overhead[{name}]"), &fractional(&shown));
            }
        }
        const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
        if unset(at(self.pod, &["spec", "securityContext", "seccompProfile"])) && self.annotated(SECCOMP) {
            self.say(&format!("metadata.annotations[{SECCOMP}]"), NO_SECCOMP);
        }
        for (path, container) in containers(self.pod) {
            let annotation = format!("container.seccomp.security.alpha.kubernetes.io/{}", text(container, &["name"]));
            if unset(at(container, &["securityContext", "seccompProfile"])) && self.annotated(&annotation) {
                self.say(&format!("metadata.annotations[{annotation}]"), NO_SECCOMP);
            }
            let annotation = format!("container.apparmor.security.beta.kubernetes.io/{}", text(container, &["name"]));
            if unset(at(container, &["securityContext", "appArmorProfile"]))
                && unset(at(self.pod, &["spec", "securityContext", "appArmorProfile"]))
                && self.annotated(&annotation)
            {
                let why = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
                self.say(&format!("metadata.annotations[{annotation}]"), why);
            }
            for name in ["memory", "ephemeral-storage"] {
                for key in ["limits", "requests"] {
                    if let Some(shown) = at(container, &["resources", key, name]).and_then(is_fractional) {
                        self.say(&format!("{path}.resources.{key}[{name}]"), &fractional(&shown));
                    }
                }
            }
            self.environment(&path, container);
        }
    }

    /// A variable defined twice hides the first, unless the second builds on it.
    fn environment(&mut self, path: &str, container: &Value) {
        let mut seen = HashSet::new();
        for (i, variable) in list(container, &["env"]).iter().enumerate() {
            let name = text(variable, &["name"]);
            if seen.insert(name) {
                continue;
            }
            let (reference, value) = (format!("$({name})"), text(variable, &["value"]));
            if !unset(variable.get("valueFrom")) || value == reference || !value.contains(&reference) {
                let why = format!("hides previous definition of \"{name}\", which may be dropped when using apply");
                self.say(&format!("{path}.env[{i}]"), &why);
            }
        }
    }

    fn ports(&mut self) {
        let mut numbers: HashMap<(i64, &str), Vec<(String, &Value)>> = HashMap::new();
        for (path, container) in containers(self.pod) {
            for (i, port) in list(container, &["ports"]).iter().enumerate() {
                let number = |port: &Value, key: &str| port.get(key).and_then(Value::as_i64).unwrap_or_default();
                let here = format!("{path}.ports[{i}]");
                let host = text(port, &["hostIP"]);
                if !host.is_empty() && number(port, "hostPort") == 0 {
                    let (name, number, protocol) =
                        (text(port, &["name"]), number(port, "containerPort"), text(port, &["protocol"]));
                    let why = format!(
                        "hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{host}}}"
                    );
                    self.out.push(format!("{}{here}: {why}", self.prefix));
                }
                let others = numbers.entry((number(port, "containerPort"), text(port, &["protocol"]))).or_default();
                for (other_path, other) in others.iter() {
                    let (a, b) = (text(port, &["hostIP"]), text(other, &["hostIP"]));
                    let (m, n) = (number(port, "hostPort"), number(other, "hostPort"));
                    let what = if a == b && m == n {
                        "duplicate"
                    } else if m == 0 || n == 0 {
                        "overlapping"
                    } else if m == n && a.is_empty() != b.is_empty() {
                        "dangerously ambiguous"
                    } else {
                        continue;
                    };
                    let prefix = &self.prefix;
                    self.out.push(format!("{prefix}{here}: {what} port definition with {prefix}{other_path}"));
                }
                others.push((here, port));
            }
        }
        let mut names: HashMap<&str, String> = HashMap::new();
        for (path, container) in containers(self.pod) {
            for (i, port) in list(container, &["ports"]).iter().enumerate() {
                let name = text(port, &["name"]);
                if name.is_empty() {
                    continue;
                }
                let here = format!("{}{path}.ports[{i}]", self.prefix);
                match names.get(name) {
                    Some(other) => self.out.push(format!(
                        "{here}: duplicate port name \"{name}\" with {other}, \
                         services and probes that select ports by name will use {other}"
                    )),
                    None => {
                        names.insert(name, here);
                    }
                }
            }
        }
    }

    fn rest(&mut self) {
        let grace = at(self.pod, &["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64);
        if grace.is_some_and(|seconds| seconds < 0) {
            let why = "must be >= 0; negative values are invalid and will be treated as 1";
            self.say("spec.terminationGracePeriodSeconds", why);
        }
        for side in ["podAffinity", "podAntiAffinity"] {
            for (terms, inner) in [
                ("requiredDuringSchedulingIgnoredDuringExecution", ""),
                ("preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm."),
            ] {
                for (i, term) in list(self.pod, &["spec", "affinity", side, terms]).iter().enumerate() {
                    let term = if inner.is_empty() { Some(term) } else { term.get("podAffinityTerm") };
                    if term.is_none_or(|term| unset(term.get("labelSelector"))) {
                        self.say(&format!("spec.affinity.{side}.{terms}[{i}].{inner}labelSelector"), NO_SELECTOR);
                    }
                }
            }
        }
        for (i, server) in list(self.pod, &["spec", "dnsConfig", "nameservers"]).iter().enumerate() {
            let path = format!("{}spec.dnsConfig.nameservers[{i}]", self.prefix);
            ip(&path, server.as_str().unwrap_or_default(), self.out);
        }
        for (i, alias) in list(self.pod, &["spec", "hostAliases"]).iter().enumerate() {
            ip(&format!("{}spec.hostAliases[{i}].ip", self.prefix), text(alias, &["ip"]), self.out);
        }
    }
}

const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";
const NO_SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";

fn fractional(shown: &str) -> String {
    format!("fractional byte value \"{shown}\" is invalid, must be an integer")
}

/// All containers of a pod, in the order upstream visits them, each with its path.
fn containers(pod: &Value) -> impl Iterator<Item = (String, &Value)> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |key| {
        list(pod, &["spec", key]).iter().enumerate().map(move |(i, container)| (format!("spec.{key}[{i}]"), container))
    })
}
