//! Node, PriorityClass, RuntimeClass, Lease, Event, CertificateSigningRequest, APIService.

use std::collections::HashSet;

use base64::Engine;
use schema::field::FieldErrorKind;
use schema::names;
use schema::names::NameRule;
use serde_json::Value;

use super::node::{Node, Quoted};
use super::pod::scheduling::{taint_effect, toleration as one_toleration};
use super::pod::{optional, resources};
use super::{Rules, internal, meta};

const MAX_USER_PRIORITY: i64 = 1_000_000_000;
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(super) fn node(root: Node<'_>) {
    taints(root);
    node_resources(root);
    let cidrs = root.get("spec").get("podCIDRs");
    cidrs.items().for_each(|cidr| cidr.check(names::cidr));
    if cidrs.len() > 1 {
        let v6 = |i: usize| cidrs.array().get(i).and_then(Value::as_str).is_some_and(|c| c.contains(':'));
        if cidrs.len() > 2 || v6(0) == v6(1) {
            cidrs.invalid("may specify no more than one CIDR for each IP family");
        }
    }
}

fn taints(root: Node<'_>) {
    // Upstream's path says metadata.
    let taints = root.get("metadata").get("taints").with(root.get("spec").get("taints").value);
    let mut seen = HashSet::new();
    for taint in taints.items() {
        let (key, value, effect) = (taint.get("key"), taint.get("value"), taint.get("effect"));
        key.check(names::qualified_name);
        let complaints = names::label_value(value.str());
        if !complaints.is_empty() {
            value.invalid(&complaints.join(";"));
        }
        taint_effect(effect);
        if !seen.insert((effect.str(), key.str())) {
            let shown = internal::shown("Taint", taint.value);
            taint.shown(FieldErrorKind::Duplicate, shown, "taints must be unique by key and effect pair");
        }
    }
}

fn node_resources(root: Node<'_>) {
    for field in ["capacity", "allocatable"] {
        for (name, value) in root.get("status").get(field).map().into_iter().flatten() {
            let errors = super::at(root.get("status").get(field), value, |node| resources::quantity(node, name));
            for mut error in errors {
                error.path = format!("{}.{name}", error.path);
                root.push(error);
            }
        }
    }
}

pub(super) fn node_update(new: Node<'_>, old: Node<'_>) {
    node_resources(new);
    let addresses = new.get("status").get("addresses");
    let mut seen = HashSet::new();
    for (i, address) in addresses.array().iter().enumerate() {
        if !seen.insert(address) {
            addresses.index(i).duplicate_as(internal::shown("NodeAddress", address));
        }
    }
    let fixed = "node updates may not change podCIDR except from \"\" to valid";
    let (cidrs, was) = (new.get("spec").get("podCIDRs"), old.get("spec").get("podCIDRs"));
    if !was.is_empty() {
        if was.len() != cidrs.len() {
            cidrs.forbidden(fixed);
        } else {
            for _ in cidrs.array().iter().zip(was.array()).filter(|(a, b)| a != b) {
                cidrs.forbidden(fixed);
            }
        }
    }
    let (id, was) = (new.get("spec").get("providerID"), old.get("spec").get("providerID"));
    if !was.is_empty() && !id.same(was) {
        id.forbidden("node updates may not change providerID except from \"\" to valid");
    }
    taints(new);
}

pub(super) fn priority_class(root: Node<'_>) {
    let (name, value) = (root.get("metadata").get("name"), root.get("value"));
    if name.str().starts_with("system-") {
        let known = match name.str() {
            "system-node-critical" => Some(2_000_001_000),
            "system-cluster-critical" => Some(2_000_000_000),
            _ => None,
        };
        let problem = match known {
            None => Some(format!("{} is not a known system priority class", name.str())),
            Some(n) if n != value.int_or_0() => Some(format!("value of {} PriorityClass must be {n}", name.str())),
            Some(_) if root.get("globalDefault").bool() => {
                Some(format!("globalDefault of {} PriorityClass must be false", name.str()))
            }
            Some(_) => None,
        };
        if let Some(problem) = problem {
            name.forbidden(&format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {problem}"
            ));
        }
    } else if value.int_or_0() > MAX_USER_PRIORITY {
        value.forbidden(&format!("maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}"));
    }
    if root.get("preemptionPolicy").is_set() {
        root.get("preemptionPolicy").required_one_of(&["PreemptLowerPriority", "Never"]);
    }
}

pub(super) fn priority_class_update(new: Node<'_>, old: Node<'_>) {
    if new.get("value").int_or_0() != old.get("value").int_or_0() {
        new.get("value").forbidden("may not be changed in an update.");
    }
    new.get("preemptionPolicy").immutable(old.get("preemptionPolicy"));
}

pub(super) fn runtime_class(root: Node<'_>) {
    root.get("handler").required_and(names::dns1123_label);
    let overhead = root.get("overhead");
    if overhead.is_set() {
        resources::limits_only(overhead, overhead.get("limits").with(overhead.get("podFixed").value));
    }
    let scheduling = root.get("scheduling");
    meta::labels(scheduling.get("nodeSelector"));
    let list = scheduling.get("tolerations");
    let mut seen = HashSet::new();
    for toleration in list.items() {
        one_toleration(toleration);
        if !seen.insert(toleration.value) {
            toleration.duplicate_as(internal::shown("Toleration", toleration.value));
        }
    }
}

pub(super) fn runtime_class_update(new: Node<'_>, old: Node<'_>) {
    new.get("handler").immutable(old.get("handler"));
}

pub(super) fn lease(root: Node<'_>) {
    let spec = root.get("spec");
    spec.get("leaseDurationSeconds").positive();
    spec.get("leaseTransitions").non_negative();
}

/// Events of the core group; those of `events.k8s.io` have more to say.
pub(super) fn event_rules(group: &str) -> Rules {
    if group.is_empty() {
        Rules::new(|root| event(root, "involvedObject", "reportingComponent", "message"))
            .before(|_, _| {})
            .without_meta()
            .named(NameRule::PathSegment)
    } else {
        Rules::new(new_event).updated(event_update)
    }
}

fn event(root: Node<'_>, object: &'static str, controller: &'static str, note: &'static str) {
    let namespace = root.get("metadata").get("namespace").str();
    let about = root.get(object).get("namespace");
    let at = root.get("involvedObject").get("namespace").with(about.value);
    if root.get("eventTime").is_set() {
        if about.is_empty() && !matches!(namespace, "default" | "kube-system") {
            at.invalid_str("does not match event.namespace");
        }
        let from = root.get(controller);
        if from.is_empty() {
            from.required("");
        }
        from.check(names::qualified_name);
        for (field, limit) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
            let text = root.get(field);
            if text.is_empty() {
                text.required("");
            }
            if text.str().len() > limit {
                text.invalid_text("", &format!("can have at most {limit} characters"));
            }
        }
        if root.get(note).str().len() > 1024 {
            root.get("message").invalid_text("", "can have at most 1024 characters");
        }
    } else if about.is_empty() {
        if !matches!(namespace, "" | "default") {
            at.invalid_str("does not match event.namespace");
        }
    } else if about.str() != namespace {
        at.invalid_str("does not match event.namespace");
    }
    for complaint in names::dns1123_subdomain(namespace) {
        root.get("namespace").invalid_text(namespace, &complaint);
    }
}

fn new_event(root: Node<'_>) {
    event(root, "regarding", "reportingController", "note");
    series(root);
    if !root.get("eventTime").is_set() {
        root.get("eventTime").required("");
    }
    if !matches!(root.get("type").str(), "Normal" | "Warning") {
        root.get("type").invalid_text("", &format!("has invalid value: {}", root.get("type").str()));
    }
    for (field, path) in [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("deprecatedSource", "source"),
    ] {
        if !root.get(field).is_empty() {
            root.get(path).invalid_text("", "needs to be unset");
        }
    }
}

fn series(root: Node<'_>) {
    let series = root.get("series");
    if series.is_set() {
        if series.get("count").int_or_0() < 2 {
            series.get("count").invalid_text("", "should be at least 2");
        }
        if !series.get("lastObservedTime").is_set() {
            series.get("lastObservedTime").required("");
        }
    }
}

fn event_update(new: Node<'_>, old: Node<'_>) {
    event(new, "regarding", "reportingController", "note");
    if !new.get("series").same(old.get("series")) {
        series(new);
    }
    for (field, path) in [
        ("regarding", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        new.get(path).with(new.get(field).value).immutable(old.get(field));
    }
}

pub(super) fn signing_request(root: Node<'_>) {
    let spec = root.get("spec");
    let request = spec.get("request");
    let pem = base64::engine::general_purpose::STANDARD.decode(request.str()).unwrap_or_default();
    match pem_block(&pem, "CERTIFICATE REQUEST") {
        None if request.is_empty() => request.invalid_as("null", "PEM block type must be CERTIFICATE REQUEST"),
        None => request.invalid_str("PEM block type must be CERTIFICATE REQUEST"),
        Some(der) => {
            if let Some(why) = not_a_sequence(&der) {
                request.invalid_str(&why);
            }
        }
    }
    let usages = spec.get("usages");
    if usages.is_empty() {
        usages.required("");
    }
    usages.items().for_each(|usage| usage.one_of(USAGES));
    let mut seen = HashSet::new();
    for usage in usages.items() {
        if !seen.insert(usage.str()) {
            usage.duplicate();
        }
    }
    let signer = spec.get("signerName");
    if signer.str() == "kubernetes.io/legacy-unknown" {
        signer.invalid("the legacy signerName is not allowed via this API version");
    } else {
        signer_name(signer);
    }
    let seconds = spec.get("expirationSeconds");
    if seconds.int().is_some_and(|n| n < 600) {
        seconds.invalid("may not specify a duration less than 600 seconds (10 minutes)");
    }
    conditions(root.get("status").get("conditions"));
}

/// What is in the first PEM block of this type.
fn pem_block(bytes: &[u8], label: &str) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(bytes);
    let (_, rest) = text.split_once(&format!("-----BEGIN {label}-----"))?;
    let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
    let body: String = body.split_whitespace().collect();
    base64::engine::general_purpose::STANDARD.decode(body).ok()
}

/// Why this cannot be a request at all, in the words of Go's parser: it does not even begin like one.
fn not_a_sequence(der: &[u8]) -> Option<String> {
    const SEQUENCE: u8 = 0x30;
    match *der {
        [] => Some("asn1: syntax error: sequence truncated".to_owned()),
        [SEQUENCE, ..] => None,
        [first, ref rest @ ..] => {
            let (class, tag, compound) = (first >> 6, first & 0x1f, first & 0x20 != 0);
            let length = rest.first().copied().unwrap_or(0) & 0x7f;
            Some(format!(
                "asn1: structure error: tags don't match (16 vs {{class:{class} tag:{tag} length:{length} \
                 isCompound:{compound}}}) {{optional:false explicit:false application:false private:false \
                 defaultValue:<nil> tag:<nil> stringType:0 timeType:0 set:false omitEmpty:false}} certificateRequest @2"
            ))
        }
    }
}

fn signer_name(signer: Node<'_>) {
    if signer.is_empty() {
        return signer.required("");
    }
    let (domain, path) = match signer.str().split('/').collect::<Vec<_>>()[..] {
        [domain, path] => (domain, path),
        _ => return signer.invalid("must be a fully qualified domain and path of the form 'example.com/signer-name'"),
    };
    if domain.len() > 253 {
        signer.too_long(253);
    }
    let parts = [(domain, names::dns1123_label as fn(&str) -> _), (path, names::dns1123_subdomain)];
    for (text, check) in parts {
        if let Some((label, complaints)) = text.split('.').map(|l| (l, check(l))).find(|(_, c)| !c.is_empty()) {
            for complaint in complaints {
                signer.invalid_text(text, &format!("validating label {}: {complaint}", Quoted(label)));
            }
        }
        if text == domain && !domain.contains('.') {
            signer.invalid_text(domain, "should be a domain with at least two segments separated by dots");
        }
    }
    if signer.str().len() > 571 {
        signer.too_long(571);
    }
}

fn conditions(list: Node<'_>) {
    let mut seen = HashSet::new();
    for condition in list.items() {
        let (kind, status) = (condition.get("type"), condition.get("status"));
        if kind.is_empty() {
            kind.required("");
        }
        let decided = matches!(kind.str(), "Approved" | "Denied" | "Failed");
        status.required_one_of(if decided { &["True"] } else { &["False", "True", "Unknown"] });
        let other = match kind.str() {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !other.is_empty() && seen.contains(other) {
            list.invalid_text(kind.str(), "Approved and Denied conditions are mutually exclusive");
        }
        if !seen.insert(kind.str()) {
            kind.duplicate();
        }
    }
}

fn has_condition(root: Node<'_>, kind: &str) -> Vec<Value> {
    let list = root.get("status").get("conditions").array();
    list.iter().filter(|c| c.get("type").and_then(Value::as_str) == Some(kind)).cloned().collect()
}

/// `which` is the subresource: `approval` may add decisions, `status` certificates.
pub(super) fn signing_request_update(new: Node<'_>, old: Node<'_>, which: &str) {
    let at = new.get("status").get("conditions");
    if !at.same(old.get("status").get("conditions")) {
        conditions(at);
    }
    for kind in ["Approved", "Denied", "Failed"] {
        if has_condition(new, kind).len() < has_condition(old, kind).len() {
            at.forbidden(&format!("updates may not remove a condition of type \"{kind}\""));
        }
    }
    if which != "approval" {
        for kind in ["Approved", "Denied"] {
            let (now, was) = (has_condition(new, kind), has_condition(old, kind));
            if now.len() > was.len() {
                at.forbidden(&format!("updates may not add a condition of type \"{kind}\""));
            } else if now.len() == was.len() && now != was {
                at.forbidden(&format!("updates may not modify a condition of type \"{kind}\""));
            }
        }
    }
    let (certificate, was) = (new.get("status").get("certificate"), old.get("status").get("certificate"));
    if !certificate.same(was) {
        if which != "status" {
            certificate.forbidden("updates may not set certificate content");
        } else if !was.is_empty() {
            certificate.forbidden("updates may not modify existing certificate content");
        } else {
            let pem = base64::engine::general_purpose::STANDARD.decode(certificate.str()).unwrap_or_default();
            if pem_block(&pem, "CERTIFICATE").is_none() {
                let why = "must contain at least one CERTIFICATE PEM block";
                certificate.invalid_as(Quoted("<certificate data>"), why);
            }
        }
    }
}

pub(super) fn api_service(root: Node<'_>) {
    let (name, spec) = (root.get("metadata").get("name"), root.get("spec"));
    let (group, version) = (spec.get("group"), spec.get("version"));
    let wanted = format!("{}.{}", version.str(), group.str());
    if name.str() != wanted && !name.is_empty() {
        name.invalid(&format!("must be `spec.version+\".\"+spec.group`: {}", Quoted(&wanted)));
    }
    if group.is_empty() && version.str() != "v1" {
        group.required("only v1 may have an empty group and it better be legacy kube");
    }
    optional(group, names::dns1123_subdomain);
    version.check(names::dns1035_label);
    for (field, max) in [("groupPriorityMinimum", 20000), ("versionPriority", 1000)] {
        let number = spec.get(field);
        if !(1..=max).contains(&number.int_or_0()) {
            number.invalid_as(number.int_or_0(), &format!("must be positive and less than {max}"));
        }
    }
    let (service, insecure, bundle) = (spec.get("service"), spec.get("insecureSkipTLSVerify"), spec.get("caBundle"));
    if !service.is_set() {
        if !bundle.is_empty() {
            let text = bundle.str();
            let size = text.len() / 4 * 3 - text.bytes().rev().take(2).filter(|b| *b == b'=').count();
            bundle.invalid_text(&format!("{size} bytes"), "local APIServices may not have a caBundle");
        }
        if insecure.bool() {
            insecure.invalid("local APIServices may not have insecureSkipTLSVerify");
        }
        return;
    }
    for field in ["namespace", "name"] {
        if service.get(field).is_empty() {
            service.get(field).required("");
        }
    }
    let port = service.get("port");
    if port.is_set() && !names::port_number(port.int_or_0()).is_empty() {
        port.invalid(&format!("port is not valid: {}", names::between(1, 65535)));
    }
    if insecure.bool() && !bundle.is_empty() {
        insecure.invalid("may not be true if caBundle is present");
    }
}
