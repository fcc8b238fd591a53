//! What asks for devices: classes, claims and their templates. What offers them is in [`slice`].

mod slice;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use schema::names;

use super::expressions::Known;
use super::node::{Node, Quoted};
use super::pod::volume::driver_name;
use super::{Rules, internal, meta};

const MAX_REQUESTS: usize = 32;
const MAX_ALTERNATIVES: usize = 8;
const MAX_SELECTORS: usize = 32;
const MAX_EXPRESSION: usize = 10 * 1024;
const MAX_PARAMETERS: usize = 10 * 1024;
const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];
const NOT_A_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

pub(super) fn rules(kind: &str) -> Rules {
    match kind {
        "DeviceClass" => Rules::new(class).before(|_, _| {}),
        "ResourceClaim" => Rules::new(|root| claim(root.get("spec"))).updated(|new, old| {
            meta::built_in(new.get("metadata"), true, &meta::by(names::NameRule::Subdomain));
            spec_kept(new, old, "ResourceClaimSpec");
        }),
        "ResourceClaimTemplate" => {
            Rules::new(template).updated(|new, old| spec_kept(new, old, "ResourceClaimTemplateSpec"))
        }
        "ResourceSlice" => Rules::new(|root| slice::slice(root, None)).updated(|new, old| slice::slice(new, Some(old))),
        _ => Rules::new(|_| {}),
    }
}

fn spec_kept(new: Node<'_>, old: Node<'_>, ty: &str) {
    let spec = new.get("spec");
    if !spec.same(old.get("spec")) {
        spec.invalid_as(internal::shown(ty, spec.value), "field is immutable");
    }
}

fn class(root: Node<'_>) {
    let spec = root.get("spec");
    selectors(spec.get("selectors"));
    list(spec.get("config"), MAX_REQUESTS, configuration);
    let name = spec.get("extendedResourceName");
    if name.is_set() && !super::pod::resources::is_extended(name.str()) {
        name.invalid("must be a valid extended resource name");
    }
}

fn template(root: Node<'_>) {
    let spec = root.get("spec");
    meta::annotations(spec.get("metadata").get("annotations"));
    meta::labels(spec.get("metadata").get("labels"));
    claim(spec.get("spec"));
}

/// At most so many items, each as it should be. With too many, none is looked at.
fn list<'a>(list: Node<'a>, max: usize, check: impl Fn(Node<'a>)) -> bool {
    if list.len() > max {
        list.too_many(max);
        return false;
    }
    list.items().for_each(check);
    true
}

/// The same for a list whose items are known by something.
fn set<'a>(items: Node<'a>, max: usize, check: impl Fn(Node<'a>), key: impl Fn(Node<'a>) -> &'a str) {
    if list(items, max, check) {
        let mut seen = HashSet::new();
        for item in items.items() {
            if !seen.insert(key(item)) {
                item.duplicate_as(Quoted(key(item)));
            }
        }
    }
}

/// Requests by name, and what may be had in their place.
type Requests<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

fn claim(spec: Node<'_>) {
    let devices = spec.get("devices");
    let name = |item: Node<'_>| item.get("name").value.as_str().unwrap_or("").to_owned();
    let known: Vec<(String, Vec<String>)> = devices
        .get("requests")
        .items()
        .map(|request| (name(request), request.get("firstAvailable").items().map(name).collect()))
        .collect();
    let requests: Requests<'_> =
        known.iter().map(|(name, subs)| (name.as_str(), subs.iter().map(String::as_str).collect())).collect();
    set(devices.get("requests"), MAX_REQUESTS, request, |request| request.get("name").str());
    list(devices.get("constraints"), MAX_REQUESTS, |constraint_at| constraint(constraint_at, &requests));
    list(devices.get("config"), MAX_REQUESTS, |config| {
        request_names(config.get("requests"), &requests);
        configuration(config);
    });
}

fn request(request: Node<'_>) {
    request.get("name").check(names::dns1123_label);
    let (exactly, first) = (request.get("exactly"), request.get("firstAvailable"));
    match (exactly.is_set(), !first.is_empty()) {
        (false, false) => request.required("exactly one of `exactly` or `firstAvailable` is required"),
        (true, true) => request.invalid_as(
            "null",
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        ),
        (true, false) => wanted(exactly),
        (false, true) => set(
            first,
            MAX_ALTERNATIVES,
            |sub| {
                sub.get("name").check(names::dns1123_label);
                wanted(sub);
            },
            |sub| sub.get("name").str(),
        ),
    }
}

/// Which devices, and how many of them.
fn wanted(request: Node<'_>) {
    request.get("deviceClassName").required_and(names::dns1123_subdomain);
    selectors(request.get("selectors"));
    let (mode, count) = (request.get("allocationMode"), request.get("count"));
    match mode.str() {
        "All" if count.int_or_0() != 0 => {
            count.invalid("must not be specified when allocationMode is 'All'");
        }
        "All" => {}
        "ExactCount" if count.int_or_0() <= 0 => count.invalid_as(count.int_or_0(), "must be greater than zero"),
        "ExactCount" => {}
        _ => mode.not_supported(&["All", "ExactCount"]),
    }
    request.get("tolerations").items().for_each(toleration);
}

fn selectors(selectors: Node<'_>) {
    list(selectors, MAX_SELECTORS, |selector| {
        let cel = selector.get("cel");
        if !cel.is_set() {
            return cel.required("");
        }
        let expression = cel.get("expression");
        if expression.str().len() > MAX_EXPRESSION {
            expression.too_long(MAX_EXPRESSION);
        } else {
            Known::of_device().check_device(expression);
        }
    });
}

fn toleration(toleration: Node<'_>) {
    let (key, operator, value, effect) =
        (toleration.get("key"), toleration.get("operator"), toleration.get("value"), toleration.get("effect"));
    if !key.is_empty() {
        key.check(names::qualified_name);
    }
    match operator.str() {
        "Exists" if !value.is_empty() => value.invalid("must be empty for operator `Exists`"),
        "Exists" => {}
        "Equal" => value.check(names::label_value),
        _ => operator.required_one_of(&["Equal", "Exists"]),
    }
    if !effect.is_empty() {
        effect.one_of(EFFECTS);
    }
}

fn request_names(list: Node<'_>, requests: &Requests<'_>) {
    let check = |name: Node<'_>| {
        let parts: Vec<&str> = name.str().split('/').collect();
        if parts.len() > 2 {
            return name.invalid(NOT_A_REQUEST);
        }
        for part in &parts {
            names::dns1123_label(part).iter().for_each(|complaint| name.invalid_text(part, complaint));
        }
        let known = parts
            .first()
            .and_then(|first| requests.get(first))
            .is_some_and(|subs| parts.get(1).is_none_or(|second| subs.contains(second)));
        if !known {
            name.invalid(NOT_A_REQUEST);
        }
    };
    set(list, MAX_REQUESTS, check, |name| name.str());
}

fn constraint(constraint: Node<'_>, requests: &Requests<'_>) {
    request_names(constraint.get("requests"), requests);
    let (matching, distinct) = (constraint.get("matchAttribute"), constraint.get("distinctAttribute"));
    if matching.is_set() {
        full_name(matching);
    } else if distinct.is_set() {
        full_name(distinct);
    } else {
        constraint.required(
            "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
        );
    }
}

/// `example.com/attribute`.
fn full_name(at: Node<'_>) {
    attribute_name(at, at.str());
    if !at.str().contains('/') {
        at.invalid("a fully qualified name must be a domain and a name separated by a slash");
    }
}

/// The name of an attribute or a capacity, with a domain or without.
fn attribute_name(at: Node<'_>, name: &str) {
    let identifier = |part: &str| {
        if part.len() > 32 {
            at.too_long(32);
        }
        names::c_identifier(part).iter().for_each(|complaint| at.invalid_text(part, complaint));
    };
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [one] => identifier(one),
        [domain, one] => {
            if domain.is_empty() {
                at.invalid_text("", "the domain must not be empty");
            } else {
                driver_name(at.with(&domain.into()));
            }
            if one.is_empty() {
                at.invalid_text("", "the name must not be empty");
            } else {
                identifier(one);
            }
        }
        _ => {}
    }
}

fn configuration(config: Node<'_>) {
    let opaque = config.get("opaque");
    if !opaque.is_set() {
        return opaque.required("");
    }
    driver_name(opaque.get("driver"));
    let parameters = opaque.get("parameters");
    if !parameters.is_set() {
        parameters.required("");
    } else if parameters.value.to_string().len() > MAX_PARAMETERS {
        parameters.too_long(MAX_PARAMETERS);
    } else if !parameters.value.is_object() {
        parameters.invalid_text("<value omitted>", "must be a valid JSON object");
    }
}
