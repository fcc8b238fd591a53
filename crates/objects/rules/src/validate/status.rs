//! Parts of statuses that several kinds have: conditions, and where a load balancer is reached.

use std::collections::HashSet;

use schema::names;
use serde_json::Value;

use super::node::{Node, Quoted};

const MAX_REASON: usize = 1024;
const MAX_MESSAGE: usize = 32 * 1024;
const BAD_REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or \
'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is \
'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

pub(super) fn conditions(list: Node<'_>) {
    let mut seen = HashSet::new();
    for condition in list.items() {
        let (ty, reason) = (condition.get("type"), condition.get("reason"));
        if !seen.insert(ty.str()) {
            ty.duplicate_as(Quoted(ty.str()));
        }
        ty.check(names::qualified_name);
        condition.get("status").one_of(&["False", "True", "Unknown"]);
        let generation = condition.get("observedGeneration");
        if generation.int_or_0() < 0 {
            generation.invalid("must be greater than or equal to zero");
        }
        if !condition.get("lastTransitionTime").is_set() {
            condition.get("lastTransitionTime").required("");
        }
        if reason.is_empty() {
            reason.required("");
        } else {
            if !is_reason(reason.str()) {
                reason.invalid(BAD_REASON);
            }
            if reason.str().len() > MAX_REASON {
                reason.too_long(MAX_REASON);
            }
        }
        if condition.get("message").str().len() > MAX_MESSAGE {
            condition.get("message").too_long(MAX_MESSAGE);
        }
    }
}

fn is_reason(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|b| word(*b))
        && bytes.iter().all(|b| word(*b) || matches!(b, b',' | b':'))
}

pub(super) fn balancer(root: Node<'_>) -> Node<'_> {
    root.get("status").get("loadBalancer").get("ingress")
}

/// Addresses and names of a load balancer. An address that was there before may stay however it is written.
pub(super) fn load_balancer(ingress: Node<'_>, was: Node<'_>, with_mode: bool) {
    let had: HashSet<&str> = was.array().iter().filter_map(|w| w.get("ip").and_then(Value::as_str)).collect();
    for entry in ingress.items() {
        let (address, host) = (entry.get("ip"), entry.get("hostname"));
        if !address.is_empty() && !had.contains(address.str()) {
            address.check(names::ip);
        }
        if with_mode {
            mode(entry.get("ipMode"), !address.is_empty());
        }
        if !host.is_empty() {
            host.check(names::dns1123_subdomain);
            if names::parse_ip(host.str()).is_some() {
                host.invalid("must be a DNS name, not an IP address");
            }
        }
    }
}

fn mode(mode: Node<'_>, has_address: bool) {
    match (mode.is_set(), has_address) {
        (false, true) => mode.required("must be specified when `ip` is set"),
        (true, false) => mode.forbidden("may not be specified when `ip` is not set"),
        (true, true) => mode.one_of(&["Proxy", "VIP"]),
        (false, false) => {}
    }
}
