//! Ingress, IngressClass, NetworkPolicy, IPAddress, ServiceCIDR.

use schema::names;
use schema::names::NameRule;

use super::batch::domain_prefixed_path;
use super::meta;
use super::node::Node;
use super::pod::container::port_number;
use super::pod::optional;
use super::status::{self, balancer};
use super::{Rules, internal};

const CLASS_NOTE: &str = "kubernetes.io/ingress.class";
const BAD_SEQUENCES: &[&str] = &["//", "/./", "/../", "%2f", "%2F"];
const BAD_SUFFIXES: &[&str] = &["/..", "/."];

pub(super) fn rules(kind: &str) -> Rules {
    match kind {
        "Ingress" => Rules::new(ingress_create).updated(|new, _| ingress(new)).status(ingress_status),
        "IngressClass" => Rules::new(ingress_class).again(|new, old| {
            let controller = new.get("spec").get("controller");
            if !controller.same(old.get("spec").get("controller")) {
                controller.invalid_str("field is immutable");
            }
        }),
        "NetworkPolicy" => Rules::new(network_policy).updated(|new, _| network_policy(new)),
        "ServiceCIDR" => Rules::new(|root| service_cidr(root.get("spec"))).updated(service_cidr_update),
        "IPAddress" => Rules::new(ip_address).updated(ip_address_update).named(NameRule::Ip),
        _ => Rules::new(|_| {}),
    }
}

fn ingress_status(new: Node<'_>, old: Node<'_>) {
    status::load_balancer(balancer(new), balancer(old), false);
}

fn ingress_create(root: Node<'_>) {
    ingress(root);
    let note = root.get("metadata").get("annotations").value.get(CLASS_NOTE).and_then(|v| v.as_str());
    let class = root.get("spec").get("ingressClassName");
    if let Some(note) = note.filter(|note| class.is_set() && *note != class.str()) {
        root.get("annotations")
            .get(CLASS_NOTE)
            .invalid_text(note, "must match `ingressClassName` when both are specified");
    }
}

fn ingress(root: Node<'_>) {
    let spec = root.get("spec");
    let (rules, backend) = (spec.get("rules"), spec.get("defaultBackend"));
    if rules.is_empty() && !backend.is_set() {
        let shown = if rules.is_set() { "[]" } else { "null" };
        spec.invalid_as(shown, "either `defaultBackend` or `rules` must be specified");
    }
    if backend.is_set() {
        ingress_backend(backend);
    }
    rules.items().for_each(ingress_rule);
    for tls in spec.get("tls").items() {
        tls.get("hosts").items().for_each(host_name);
        optional(tls.get("secretName"), names::dns1123_subdomain);
    }
    if spec.get("ingressClassName").is_set() {
        spec.get("ingressClassName").check(names::dns1123_subdomain);
    }
}

fn host_name(host: Node<'_>) {
    if host.str().contains('*') {
        host.check(names::wildcard_subdomain);
    } else {
        host.check(names::dns1123_subdomain);
    }
}

fn ingress_rule(rule: Node<'_>) {
    let host = rule.get("host");
    if !host.str().is_empty() {
        if names::parse_ip(host.str()).is_some() {
            host.invalid("must be a DNS name, not an IP address");
        }
        host_name(host);
    }
    let http = rule.get("http");
    if !http.is_set() {
        return;
    }
    let paths = http.get("paths");
    if paths.is_empty() {
        paths.required("");
    }
    paths.items().for_each(ingress_path);
}

fn ingress_path(item: Node<'_>) {
    let (path, kind) = (item.get("path"), item.get("pathType"));
    if !kind.is_set() {
        return kind.required("pathType must be specified");
    }
    match kind.str() {
        "Exact" | "Prefix" => {
            if !path.str().starts_with('/') {
                path.invalid_str("must be an absolute path");
            }
            for sequence in BAD_SEQUENCES.iter().filter(|s| path.str().contains(**s)) {
                path.invalid(&format!("must not contain '{sequence}'"));
            }
            for suffix in BAD_SUFFIXES.iter().filter(|s| path.str().ends_with(**s)) {
                path.invalid(&format!("cannot end with '{suffix}'"));
            }
        }
        "ImplementationSpecific" => {
            if !path.str().is_empty() && !path.str().starts_with('/') {
                path.invalid("must be an absolute path");
            }
        }
        _ => kind.not_supported(&["Exact", "ImplementationSpecific", "Prefix"]),
    }
    ingress_backend(item.get("backend"));
}

fn ingress_backend(backend: Node<'_>) {
    let (resource, service) = (backend.get("resource"), backend.get("service"));
    match (resource.is_set(), service.is_set()) {
        (true, true) => backend.invalid_text("", "cannot set both resource and service backends"),
        (true, false) => object_reference(resource),
        (false, true) => {
            service.get("name").required_and(names::dns1123_label);
            let (name, number) = (service.get("port").get("name"), service.get("port").get("number"));
            match (!name.is_empty(), number.int_or_0() != 0) {
                (true, true) => backend.invalid_text("", "cannot set both port name & port number"),
                (true, false) => name.check(names::port_name),
                (false, true) => port_number(number),
                (false, false) => backend.required("port name or number is required"),
            }
        }
        (false, false) => backend.invalid_text("", "resource or service backend is required"),
    }
}

fn object_reference(reference: Node<'_>) {
    if reference.get("apiGroup").is_set() {
        reference.get("apiGroup").check(names::dns1123_subdomain);
    }
    reference.get("kind").required_and(names::path_segment);
    reference.get("name").required_and(names::path_segment);
}

fn ingress_class(root: Node<'_>) {
    let spec = root.get("spec");
    if spec.get("controller").str().len() > 250 {
        spec.get("controller").too_long(250);
    }
    domain_prefixed_path(spec.get("controller"));
    let parameters = spec.get("parameters");
    if !parameters.is_set() {
        return;
    }
    object_reference(parameters);
    let (scope, namespace) = (parameters.get("scope"), parameters.get("namespace"));
    match scope.str() {
        _ if !scope.is_set() => scope.required(""),
        "Namespace" if !namespace.is_set() => namespace.required("`parameters.scope` is set to 'Namespace'"),
        "Namespace" => namespace.check(names::dns1123_label),
        "Cluster" if namespace.is_set() => namespace.forbidden("`parameters.scope` is set to 'Cluster'"),
        "Cluster" => {}
        _ => scope.not_supported(&["Cluster", "Namespace"]),
    }
}

fn network_policy(root: Node<'_>) {
    let spec = root.get("spec");
    meta::label_selector(spec.get("podSelector"));
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.get(direction).items() {
            rule.get("ports").items().for_each(policy_port);
            rule.get(peers).items().for_each(policy_peer);
        }
    }
    let types = spec.get("policyTypes");
    if types.len() > 2 {
        return types.invalid("may not specify more than two policyTypes");
    }
    types.items().for_each(|kind| kind.one_of(&["Ingress", "Egress"]));
}

fn policy_port(port: Node<'_>) {
    if port.get("protocol").is_set() {
        port.get("protocol").one_of(&["TCP", "UDP", "SCTP"]);
    }
    let (start, end) = (port.get("port"), port.get("endPort"));
    if !start.is_set() {
        if end.is_set() {
            end.invalid("may not be specified when `port` is not specified");
        }
    } else if start.value.is_string() {
        if end.is_set() {
            end.invalid("may not be specified when `port` is non-numeric");
        }
        start.check(names::port_name);
    } else {
        port_number(start);
        if end.is_set() {
            if end.int_or_0() < start.int_or_0() {
                end.invalid_as(start.int_or_0(), "must be greater than or equal to `port`");
            }
            port_number(end);
        }
    }
}

fn policy_peer(peer: Node<'_>) {
    let (pods, namespaces, block) = (peer.get("podSelector"), peer.get("namespaceSelector"), peer.get("ipBlock"));
    meta::label_selector(pods);
    meta::label_selector(namespaces);
    if block.is_set() {
        ip_block(block);
    }
    let selectors = pods.is_set() || namespaces.is_set();
    if !selectors && !block.is_set() {
        peer.required("must specify a peer");
    } else if selectors && block.is_set() {
        peer.forbidden("may not specify both ipBlock and another peer");
    }
}

fn ip_block(block: Node<'_>) {
    let cidr = block.get("cidr");
    if cidr.is_empty() {
        return cidr.required("");
    }
    cidr.check(names::cidr);
    let Some((network, bits)) = names::parse_cidr(cidr.str()) else { return };
    let network = names::masked(network, bits);
    for except in block.get("except").items() {
        except.check(names::cidr);
        if let Some((inner, inner_bits)) = names::parse_cidr(except.str()) {
            let inside = inner.is_ipv4() == network.is_ipv4() && names::masked(inner, bits) == network;
            if !inside || bits >= inner_bits {
                except.invalid("must be a strict subset of `cidr`");
            }
        }
    }
}

fn service_cidr(spec: Node<'_>) {
    let cidrs = spec.get("cidrs");
    if cidrs.is_empty() {
        return cidrs.required("at least one CIDR required");
    }
    if cidrs.len() > 2 {
        return cidrs.invalid_as(internal::shown("ServiceCIDRSpec", spec.value), "may only hold up to 2 values");
    }
    cidrs.items().for_each(|cidr| cidr.check(names::canonical_cidr));
    let family = |i: usize| names::parse_cidr(cidrs.index(i).str()).map(|(address, _)| address.is_ipv4());
    if cidrs.len() == 2 && family(0).is_some() && family(0) == family(1) {
        cidrs.invalid("may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64");
    }
}

/// A range stays as it is; another may be added for the other family of addresses.
fn service_cidr_update(new: Node<'_>, old: Node<'_>) {
    let (cidrs, was) = (new.get("spec").get("cidrs"), old.get("spec").get("cidrs"));
    if cidrs.len() == was.len() {
        for (i, cidr) in cidrs.items().enumerate() {
            cidr.immutable(was.index(i));
        }
    } else if was.len() == 1 && cidrs.len() == 2 {
        cidrs.index(0).immutable(was.index(0));
        service_cidr(new.get("spec"));
    } else {
        cidrs.immutable(was);
    }
}

fn ip_address(root: Node<'_>) {
    let parent = root.get("spec").get("parentRef");
    if !parent.is_set() {
        return parent.required("");
    }
    optional(parent.get("group"), names::dns1123_subdomain);
    parent.get("resource").required_and(names::path_segment);
    parent.get("name").required_and(names::path_segment);
    optional(parent.get("namespace"), names::path_segment);
}

fn ip_address_update(new: Node<'_>, old: Node<'_>) {
    let parent = new.get("spec").get("parentRef");
    if !parent.same(old.get("spec").get("parentRef")) {
        parent.invalid_as(internal::shown("ParentReference", parent.value), "field is immutable");
    }
}
