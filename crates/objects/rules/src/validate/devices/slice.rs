//! What a driver offers: the devices of a pool, and what they share.

use std::collections::HashSet;

use schema::names;

use super::{EFFECTS, attribute_name, list, set};
use crate::validate::node::Node;
use crate::validate::pod::scheduling;
use crate::validate::pod::volume::driver_name;

const WHERE: [&str; 4] = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];

pub(super) fn slice(root: Node<'_>, old: Option<Node<'_>>) {
    let spec = root.get("spec");
    let old_spec = old.map(|old| old.get("spec"));
    driver_name(spec.get("driver"));
    pool(spec.get("pool"));
    if let Some(old) = old_spec {
        spec.get("pool").get("name").immutable(old.get("pool").get("name"));
        spec.get("driver").immutable(old.get("driver"));
        spec.get("nodeName").immutable(old.get("nodeName"));
    }
    let given = nodes(spec, &WHERE, "must be either unset or set to a non-empty string");
    let one_of = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match given.len() {
        0 => spec.required(one_of),
        1 => {}
        _ => spec.invalid_text(&shown(&given), &format!("{one_of}, but multiple fields are set")),
    }
    let (devices, counters) = (spec.get("devices"), spec.get("sharedCounters"));
    if devices.is_set() && counters.is_set() {
        spec.invalid_text("", "only one of `sharedCounters` or `devices` is allowed");
    }
    let each_selects = spec.get("perDeviceNodeSelection").bool();
    set(
        devices,
        most_devices(devices),
        |item| {
            let was = old_spec
                .and_then(|old| old.get("devices").items().find(|was| was.get("name").str() == item.get("name").str()));
            device(item, was, each_selects);
        },
        |item| item.get("name").str(),
    );
    set(counters, 8, counter_set, |item| item.get("name").str());
}

/// Devices that need more room in the scheduler's memory may be fewer.
fn most_devices(devices: Node<'_>) -> usize {
    let demanding = |device: Node<'_>| {
        !device.get("taints").is_empty()
            || !device.get("consumesCounters").is_empty()
            || device.get("attributes").entries().any(|(_, attribute)| {
                ["bools", "ints", "strings", "versions"].iter().any(|list| attribute.get(list).is_set())
            })
    };
    if devices.items().any(demanding) { 64 } else { 128 }
}

fn shown(given: &[&str]) -> String {
    format!("{{{}}}", given.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", "))
}

/// Which of the ways to say where devices are is used.
fn nodes(at: Node<'_>, ways: &[&'static str], empty_name: &str) -> Vec<&'static str> {
    let mut given = Vec::new();
    for way in ways {
        let node = at.get(way);
        if !node.is_set() {
            continue;
        }
        match *way {
            "nodeName" if node.is_empty() => node.invalid(empty_name),
            "nodeName" => {
                given.push(*way);
                node.check(names::dns1123_subdomain);
            }
            "nodeSelector" => {
                given.push(*way);
                scheduling::node_selector(node);
                let terms = node.get("nodeSelectorTerms");
                if ways.len() == WHERE.len() && terms.len() != 1 {
                    terms.invalid("must have exactly one node selector term");
                }
            }
            _ if node.bool() => given.push(*way),
            _ => node.invalid("must be either unset or set to true"),
        }
    }
    given
}

fn pool(pool: Node<'_>) {
    let name = pool.get("name");
    if name.is_empty() {
        name.required("");
    } else {
        if name.str().len() > 253 {
            name.too_long(253);
        }
        for part in name.str().split('/') {
            names::dns1123_subdomain(part).iter().for_each(|complaint| name.invalid_text(part, complaint));
        }
    }
    let (count, generation) = (pool.get("resourceSliceCount"), pool.get("generation"));
    if count.int_or_0() <= 0 {
        count.invalid_as(count.int_or_0(), "must be greater than zero");
    }
    if generation.int_or_0() < 0 {
        generation.invalid("must be greater than or equal to zero");
    }
}

fn device(device: Node<'_>, old: Option<Node<'_>>, selects: bool) {
    device.get("name").check(names::dns1123_label);
    let (attributes, capacity) = (device.get("attributes"), device.get("capacity"));
    if attributes.len() + capacity.len() > 32 {
        let detail = "the total number of attributes and capacities must not exceed 32";
        device.invalid_as(attributes.len() + capacity.len(), detail);
    }
    for (name, value) in attributes.entries() {
        attribute_name(attributes, name);
        attribute(value);
    }
    for (name, value) in capacity.entries() {
        attribute_name(capacity, name);
        if value.get("requestPolicy").is_set() && !device.get("allowMultipleAllocations").bool() {
            value.get("requestPolicy").forbidden("allowMultipleAllocations must be true");
        }
    }
    let taints = device.get("taints");
    if !old.is_some_and(|old| old.get("taints").same(taints)) {
        list(taints, 16, taint);
    }
    set(device.get("consumesCounters"), 2, |item| counters(item, "counterSet"), |item| item.get("counterSet").str());
    whereabouts(device, selects);
    conditions(device);
}

fn whereabouts(device: Node<'_>, selects: bool) {
    let ways = &WHERE[..3];
    if !selects {
        if ways.iter().any(|way| device.get(way).is_set()) {
            device.invalid_as(
                "null",
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true \
                 in the ResourceSlice spec",
            );
        }
        return;
    }
    let given = nodes(device, ways, "must not be empty");
    let one_of = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is \
                  set to true in the ResourceSlice spec";
    match given.len() {
        0 => device.required(one_of),
        1 => {}
        _ => device.invalid_text(&shown(&given), one_of),
    }
}

fn attribute(attribute: Node<'_>) {
    let fields = ["bool", "int", "string", "version", "bools", "ints", "strings", "versions"];
    let mut given = 0;
    for field in fields {
        let value = attribute.get(field);
        if !value.is_set() {
            continue;
        }
        given += 1;
        match field {
            "string" => text(value),
            "version" => version(value),
            "bools" | "ints" | "strings" | "versions" => {
                if value.is_empty() {
                    value.invalid("must not be empty if specified");
                }
                match field {
                    "strings" => value.items().for_each(text),
                    "versions" => value.items().for_each(version),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    match given {
        0 => attribute.invalid_text("", "exactly one value must be specified"),
        1 => {}
        _ => attribute.invalid_as(
            crate::validate::internal::shown("DeviceAttribute", attribute.value),
            "exactly one value must be specified",
        ),
    }
}

fn text(value: Node<'_>) {
    if value.str().len() > 64 {
        value.too_long(64);
    }
}

fn version(value: Node<'_>) {
    if !is_semver(value.str()) {
        value.invalid("must be a string compatible with semver.org spec 2.0.0");
    }
    text(value);
}

fn is_semver(value: &str) -> bool {
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let number = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let (rest, build) = value.split_once('+').map_or((value, None), |(rest, build)| (rest, Some(build)));
    let (core, pre) = rest.split_once('-').map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let numeric = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|pre| pre.split('.').all(|part| word(part) && (!numeric(part) || number(part))))
        && build.is_none_or(|build| build.split('.').all(word))
}

fn taint(taint: Node<'_>) {
    taint.get("key").check(names::qualified_name);
    if !taint.get("value").is_empty() {
        taint.get("value").check(names::label_value);
    }
    taint.get("effect").required_one_of(EFFECTS);
}

fn counter_set(set: Node<'_>) {
    counters(set, "name");
}

fn counters(of: Node<'_>, name: &'static str) {
    of.get(name).required_and(names::dns1123_label);
    let counters = of.get("counters");
    if counters.is_empty() {
        counters.required("");
    } else if counters.len() > 32 {
        counters.too_many(32);
    } else {
        for (name, _) in counters.entries() {
            names::dns1123_label(name).iter().for_each(|complaint| counters.invalid_text(name, complaint));
        }
    }
}

/// What must hold before a device is bound, and what says that it never will.
fn conditions(device: Node<'_>) {
    let (good, bad) = (device.get("bindingConditions"), device.get("bindingFailureConditions"));
    for conditions in [good, bad] {
        list(conditions, 4, |condition| condition.check(names::qualified_name));
    }
    let wanted: HashSet<&serde_json::Value> = good.array().iter().collect();
    for conditions in [good, bad] {
        let mut seen = HashSet::new();
        for condition in conditions.items() {
            if !seen.insert(condition.str()) {
                condition.duplicate();
            }
            if conditions.path() == bad.path() && wanted.contains(condition.value) {
                condition.invalid("bindingFailureConditions must not overlap with bindingConditions");
            }
        }
    }
    if good.is_empty() && !bad.is_empty() {
        good.invalid("bindingConditions are required to use bindingFailureConditions");
    }
    if bad.is_empty() && !good.is_empty() {
        bad.invalid("bindingFailureConditions are required to use bindingConditions");
    }
}
