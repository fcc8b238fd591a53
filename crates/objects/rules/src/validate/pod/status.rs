//! What may be said of a pod's state, and how that may change.

use std::collections::{HashMap, HashSet};

use schema::names;
use serde_json::Value;

use crate::validate::node::Node;

const OWN_CONDITIONS: &[&str] = &["PodScheduled", "Ready", "Initialized"];

pub(crate) fn update(new: Node<'_>, old: Node<'_>) {
    let (status, was) = (new.get("status"), old.get("status"));
    for condition in status.get("conditions").items() {
        generation(condition.get("observedGeneration"));
        if !OWN_CONDITIONS.contains(&condition.get("type").str()) {
            // Upstream's path has a capital.
            condition.get("Type").with(condition.get("type").value).check(names::qualified_name);
        }
    }
    nominated(new, old);
    generation(status.get("observedGeneration"));
    if !status.get("qosClass").same(was.get("qosClass")) {
        status.get("qosClass").invalid_str("field is immutable");
    }
    for (list, of) in [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")] {
        states(status.get(list), was.get(list), old.get("spec"), of);
    }
    never_again(status.get("ephemeralContainerStatuses"), was.get("ephemeralContainerStatuses"));
    claims(status.get("resourceClaimStatuses"), new.get("spec").get("resourceClaims"));
    addresses(status.get("podIPs"), was.get("podIPs"), "PodIP");
    let hosts = status.get("hostIPs");
    if !hosts.is_empty() {
        let first = hosts.index(0).get("ip");
        if first.str() != status.get("hostIP").str() {
            first.invalid_str("must be equal to `hostIP`");
        }
        addresses(hosts, was.get("hostIPs"), "HostIP");
    }
}

fn generation(at: Node<'_>) {
    if at.int_or_0() < 0 {
        at.invalid("must be a non-negative integer");
    }
}

fn nominated(new: Node<'_>, old: Node<'_>) {
    let (node, was) = (new.get("status").get("nominatedNodeName"), old.get("status").get("nominatedNodeName"));
    if node.is_empty() || node.same(was) {
        return;
    }
    node.check(names::dns1123_subdomain);
    if !old.get("spec").get("nodeName").is_empty() {
        node.forbidden("may not be set on pods that are already bound to a node");
    }
}

/// What ended may only run again where the pod says that it shall.
fn states(statuses: Node<'_>, was: Node<'_>, spec: Node<'_>, of: &'static str) {
    let restarts_all =
        ["containers", "initContainers"].iter().flat_map(|list| spec.get(list).items()).any(|container| {
            container.get("restartPolicyRules").items().any(|rule| rule.get("action").str() == "RestartAllContainers")
        });
    if restarts_all {
        return;
    }
    let running = running(statuses);
    let mut containers: HashMap<&str, Node<'_>> = HashMap::new();
    for container in spec.get(of).items() {
        containers.entry(container.get("name").str()).or_insert(container);
    }
    for (i, status) in was.array().iter().enumerate() {
        let Some(ended) = status.pointer("/state/terminated").filter(|v| !v.is_null()) else { continue };
        let name = status.get("name").and_then(Value::as_str).unwrap_or("");
        let code = ended.get("exitCode").and_then(Value::as_i64).unwrap_or(0);
        let again = containers.get(name).is_some_and(|container| restarts(*container, spec, code));
        if running.contains(name) && !again {
            statuses.index(i).get("state").forbidden("may not be transitioned to non-terminated state");
        }
    }
}

fn restarts(container: Node<'_>, spec: Node<'_>, code: i64) -> bool {
    let own = container.get("restartPolicy");
    if own.is_set() {
        let ruled = container.get("restartPolicyRules").items().any(|rule| {
            let codes = rule.get("exitCodes");
            let listed = codes.get("values").array().iter().any(|v| v.as_i64() == Some(code));
            match codes.get("operator").str() {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
        });
        if ruled {
            return true;
        }
    }
    match if own.is_set() { own.str() } else { spec.get("restartPolicy").str() } {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

/// The names of containers that have not ended.
fn running<'a>(statuses: Node<'a>) -> HashSet<&'a str> {
    let running = statuses.items().filter(|s| !s.get("state").get("terminated").is_set());
    running.map(|s| s.get("name").str()).collect()
}

fn never_again(statuses: Node<'_>, was: Node<'_>) {
    let running = running(statuses);
    for (i, status) in was.array().iter().enumerate() {
        let ended = status.pointer("/state/terminated").is_some_and(|v| !v.is_null());
        let name = status.get("name").and_then(Value::as_str).unwrap_or("");
        if ended && running.contains(name) {
            statuses.index(i).get("state").forbidden("may not be transitioned to non-terminated state");
        }
    }
}

fn claims(statuses: Node<'_>, claims: Node<'_>) {
    let known: HashSet<&str> = claims.items().map(|claim| claim.get("name").str()).collect();
    let mut seen = HashSet::new();
    for status in statuses.items() {
        let (name, claim) = (status.get("name"), status.get("resourceClaimName"));
        if !known.contains(name.str()) {
            name.invalid_str("must match the name of an entry in `spec.resourceClaims`");
        }
        if !seen.insert(name.str()) {
            name.duplicate();
        }
        if claim.is_set() {
            claim.check(names::dns1123_subdomain);
        }
    }
}

/// At most one of each family. One that was there before may stay however it is written.
fn addresses(list: Node<'_>, was: Node<'_>, ty: &str) {
    let had: HashSet<&str> = was.array().iter().filter_map(|w| w.get("ip").and_then(Value::as_str)).collect();
    for at in list.items() {
        let address = at.get("ip");
        if !had.contains(address.str()) {
            names::ip(address.str()).iter().for_each(|complaint| at.invalid_text(address.str(), complaint));
        }
    }
    if list.len() < 2 {
        return;
    }
    let families: Option<Vec<bool>> =
        list.items().map(|at| names::parse_ip(at.get("ip").str()).map(|ip| ip.is_ipv4())).collect();
    let dual = families.is_some_and(|families| families.contains(&true) && families.contains(&false));
    if !dual || list.len() > 2 {
        let shown: Vec<String> = list.array().iter().map(|at| crate::validate::internal::shown(ty, at)).collect();
        list.invalid_as(format!("[{}]", shown.join(",")), "may specify no more than one IP for each IP family");
    }
}
