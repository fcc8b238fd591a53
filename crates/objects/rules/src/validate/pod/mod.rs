//! Pods and pod templates.

pub(crate) mod container;
mod env;
pub(crate) mod plugins;
pub(crate) mod resize;
pub(crate) mod resources;
pub(crate) mod scheduling;
mod security;
pub(crate) mod status;
pub(crate) mod update;
pub(crate) mod volume;

use std::collections::HashSet;

use schema::names;
use serde_json::Value;

use super::meta;
use super::node::{Node, Quoted};

const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_TEXT: usize = 2048;
const MIRROR: &str = "kubernetes.io/config.mirror";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// What the rules of a pod's spec need to know of what is around it.
#[derive(Clone, Copy)]
pub(crate) struct Spec<'a> {
    pub(crate) spec: Node<'a>,
    /// The pod's metadata; absent for a template.
    pub(crate) meta: Option<Node<'a>>,
}

impl<'a> Spec<'a> {
    fn is_pod(self) -> bool {
        self.meta.is_some()
    }

    fn host_users(self) -> bool {
        self.spec.get("hostUsers").value.as_bool() != Some(false)
    }

    /// Init, regular and ephemeral containers, in the order upstream visits them.
    fn containers(self) -> impl Iterator<Item = Node<'a>> {
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(move |list| self.spec.get(list).items())
    }
}

pub(crate) fn pod(root: Node<'_>) {
    pod_spec_and_annotations(root);
    let spec = root.get("spec");
    if !spec.get("ephemeralContainers").is_empty() {
        spec.get("ephemeralContainers").forbidden("cannot be set on create");
    }
    if !spec.get("nodeName").is_empty() && !spec.get("schedulingGates").is_empty() {
        spec.get("nodeName").forbidden("cannot be set until all schedulingGates have been cleared");
    }
}

/// What holds for a new pod and for a changed one.
pub(crate) fn pod_spec_and_annotations(root: Node<'_>) {
    let (meta, spec) = (root.get("metadata"), root.get("spec"));
    annotations(meta.get("annotations"), spec);
    pod_spec(Spec { spec, meta: Some(meta) });
    if spec.get("serviceAccountName").is_empty() {
        for volume in spec.get("volumes").items() {
            for source in volume.get("projected").get("sources").items() {
                let token = source.get("serviceAccountToken");
                if token.is_set() {
                    token.forbidden("must not be specified when serviceAccountName is not set");
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        spec.get(list).items().for_each(container::trimmed_image);
    }
}

pub(crate) fn template(template: Node<'_>) {
    let meta = template.get("metadata");
    // Upstream's paths leave out the metadata.
    meta::labels(template.get("labels").with(meta.get("labels").value));
    let notes = template.get("annotations").with(meta.get("annotations").value);
    meta::annotations(notes);
    let spec = template.get("spec");
    annotations(notes, spec);
    pod_spec(Spec { spec, meta: None });
    if !spec.get("ephemeralContainers").is_empty() {
        spec.get("ephemeralContainers").forbidden("ephemeral containers not allowed in pod template");
    }
}

fn annotations(notes: Node<'_>, spec: Node<'_>) {
    let Some(map) = notes.map() else { return };
    if map.contains_key(MIRROR) && spec.get("nodeName").is_empty() {
        notes.key(MIRROR).invalid("must set spec.nodeName if mirror pod annotation is set");
    }
    app_armor(notes, spec);
    if let Some(text) = map.get(TOLERATIONS).and_then(|v| v.as_str())
        && let Ok(list @ Value::Array(_)) = serde_json::from_str::<Value>(text)
    {
        super::at(notes.get(TOLERATIONS), &list, scheduling::tolerations).into_iter().for_each(|e| notes.push(e));
    }
    if let Some(cost) = map.get(DELETION_COST).and_then(|v| v.as_str()) {
        let plain = !cost.starts_with('+') && (cost == "0" || !cost.trim_start_matches('-').starts_with('0'));
        if !plain || cost.parse::<i32>().is_err() {
            notes.key(DELETION_COST).invalid("must be a 32bit integer");
        }
    }
}

/// The old way to say which profile a container has.
fn app_armor(notes: Node<'_>, spec: Node<'_>) {
    let pod = Spec { spec, meta: None };
    let mut names: Option<HashSet<&str>> = None;
    for (key, note) in notes.entries() {
        let Some(name) = key.strip_prefix(APP_ARMOR) else { continue };
        let names = names.get_or_insert_with(|| pod.containers().map(|c| c.get("name").str()).collect());
        if !names.contains(name) {
            note.invalid_text(name, "container not found");
        }
        let profile = note.str();
        if !matches!(profile, "" | "runtime/default" | "unconfined") && !profile.starts_with("localhost/") {
            note.invalid(&format!("invalid AppArmor profile name: {}", Quoted(profile)));
        }
    }
}

fn pod_spec(pod: Spec<'_>) {
    let spec = pod.spec;
    if !spec.get("terminationGracePeriodSeconds").is_set() {
        spec.get("terminationGracePeriodSeconds").required("");
    }
    let volumes = volume::volumes(pod);
    let claims = resources::pod_claims(pod);
    container::containers(pod, &volumes, &claims);
    container::init_containers(pod, &volumes, &claims);
    container::ephemeral_containers(pod, &volumes, &claims);
    resources::pod_resources(pod, &claims);
    host_network(pod);
    spec.get("restartPolicy").required_one_of(&["Always", "OnFailure", "Never"]);
    spec.get("dnsPolicy").required_one_of(&["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    meta::labels(spec.get("nodeSelector"));
    security::pod(pod);
    scheduling::affinity(spec.get("affinity"));
    dns_config(spec);
    for gate in spec.get("readinessGates").items() {
        gate.get("conditionType").check(names::qualified_name);
    }
    scheduling_gates(spec.get("schedulingGates"));
    scheduling::topology_spread(spec.get("topologySpreadConstraints"));
    security::windows_host_process(pod);
    security::host_users(pod);
    host_name(spec);
    optional(spec.get("serviceAccountName"), names::dns1123_subdomain);
    optional(spec.get("nodeName"), names::dns1123_subdomain);
    let deadline = spec.get("activeDeadlineSeconds");
    if deadline.int().is_some_and(|n| !(1..=i64::from(i32::MAX)).contains(&n)) {
        deadline.invalid(&names::between(1, i32::MAX.into()));
    }
    optional(spec.get("hostname"), names::dns1123_label);
    optional(spec.get("subdomain"), names::dns1123_label);
    scheduling::tolerations(spec.get("tolerations"));
    for alias in spec.get("hostAliases").items() {
        alias.get("ip").check(names::ip);
        alias.get("hostnames").items().for_each(|name| name.check(names::dns1123_subdomain));
    }
    optional(spec.get("priorityClassName"), names::dns1123_subdomain);
    if spec.get("runtimeClassName").is_set() {
        spec.get("runtimeClassName").check(names::dns1123_subdomain);
    }
    if spec.get("preemptionPolicy").is_set() {
        spec.get("preemptionPolicy").required_one_of(&["PreemptLowerPriority", "Never"]);
    }
    if spec.get("overhead").is_set() {
        resources::limits_only(
            spec.get("overhead"),
            spec.get("overhead").get("limits").with(spec.get("overhead").value),
        );
    }
    security::os(pod);
    env::file_key_volumes(pod);
}

/// Checked when it is given.
pub(crate) fn optional(node: Node<'_>, rule: fn(&str) -> names::Complaints) {
    if !node.str().is_empty() {
        node.check(rule);
    }
}

fn host_network(pod: Spec<'_>) {
    if !pod.spec.get("hostNetwork").bool() {
        return;
    }
    for container in pod.spec.get("containers").items() {
        for port in container.get("ports").items() {
            let host = port.get("hostPort");
            let number = host.int_or_0();
            if (pod.is_pod() || number != 0) && number != port.get("containerPort").int_or_0() {
                host.invalid_as(number, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

fn dns_config(spec: Node<'_>) {
    let config = spec.get("dnsConfig");
    let (servers, searches) = (config.get("nameservers"), config.get("searches"));
    if spec.get("dnsPolicy").str() == "None" {
        if !config.is_set() {
            return config.required("must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            return servers.required("must provide at least one DNS nameserver when `dnsPolicy` is None");
        }
    }
    if servers.len() > MAX_NAMESERVERS {
        servers.invalid(&format!("must not have more than {MAX_NAMESERVERS} nameservers"));
    }
    servers.items().for_each(|server| server.check(names::ip));
    if searches.len() > MAX_SEARCHES {
        searches.invalid(&format!("must not have more than {MAX_SEARCHES} search paths"));
    }
    let text: usize = searches.array().iter().map(|s| s.as_str().map_or(0, str::len) + 1).sum();
    if text.saturating_sub(1) > MAX_SEARCH_TEXT {
        searches.invalid(&format!(
            "must not have more than {MAX_SEARCH_TEXT} characters (including spaces) in the search list"
        ));
    }
    for search in searches.items() {
        let name = search.str();
        if name != "." {
            let name = name.strip_suffix('.').unwrap_or(name);
            for complaint in names::dns1123_subdomain_with_underscore(name) {
                search.invalid_text(name, &complaint);
            }
        }
    }
    for option in config.get("options").items() {
        if option.get("name").is_empty() {
            option.required("must not be empty");
        }
    }
}

fn scheduling_gates(gates: Node<'_>) {
    let mut seen = HashSet::new();
    for gate in gates.items() {
        let name = gate.get("name");
        let at = gate.with(name.value);
        at.check(names::qualified_name);
        if !seen.insert(name.str()) {
            at.duplicate();
        }
    }
}

fn host_name(spec: Node<'_>) {
    let name = spec.get("hostnameOverride");
    if !name.is_set() {
        return;
    }
    if spec.get("setHostnameAsFQDN").bool() {
        name.forbidden("may not be specified when setHostnameAsFQDN is true");
    }
    if spec.get("hostNetwork").bool() {
        name.forbidden("may not be specified when hostNetwork is true");
    }
    if name.str().len() > 64 {
        name.too_long(64);
    }
    name.check(names::dns1123_subdomain);
}
