//! Service, Endpoints, EndpointSlice.

use std::collections::HashSet;
use std::net::IpAddr;

use schema::names;
use schema::names::NameRule;
use serde_json::Value;

use super::Rules;
use super::meta;
use super::node::{Go, Node, Quoted};
use super::pod::container::{port_number, port_number_or_name};
use super::pod::optional;
use super::status::{self, balancer};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const NOT_EXTERNAL_NAME: &str = "may not be set for ExternalName services";
const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const MAX_AFFINITY_SECONDS: i64 = 86400;

pub(super) fn rules() -> Rules {
    Rules::new(service).updated(service_update).named(NameRule::Label).status(service_status)
}

fn service_status(new: Node<'_>, old: Node<'_>) {
    if new.get("spec").get("type").str() != "LoadBalancer" && !balancer(new).is_empty() {
        return balancer(new).forbidden("may only be used when `spec.type` is 'LoadBalancer'");
    }
    status::load_balancer(balancer(new), balancer(old), true);
}

fn is_headless(spec: Node<'_>) -> bool {
    matches!(spec.get("clusterIPs").array(), [one] if one == "None")
}

fn service(root: Node<'_>) {
    let (spec, notes) = (root.get("spec"), root.get("metadata").get("annotations"));
    let kind = spec.get("type").str();
    let ports = spec.get("ports");
    let headless = is_headless(spec);
    if ports.is_empty() && !headless && kind != "ExternalName" {
        ports.required("");
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            spec.get("clusterIPs").index(0).invalid(&format!("may not be set to 'None' for {kind} services"));
        }
        "ExternalName" => external_name(spec),
        _ => {}
    }
    let mut seen = HashSet::new();
    for port in ports.items() {
        service_port(port, ports.len() > 1, &mut seen);
    }
    meta::labels(spec.get("selector"));
    session_affinity(spec);
    cluster_ips(spec);
    for ip in spec.get("externalIPs").items() {
        let complaints = names::ip(ip.str());
        if complaints.is_empty() {
            endpoint_ip(ip);
        }
        ip.all(complaints);
    }
    spec.get("type").required_one_of(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    if kind == "ClusterIP" {
        for port in ports.items() {
            if port.get("nodePort").int_or_0() != 0 {
                port.get("nodePort").forbidden("may not be used when `type` is 'ClusterIP'");
            }
        }
    }
    no_port_twice(ports);
    source_ranges(spec, notes, kind);
    let allocate = spec.get("allocateLoadBalancerNodePorts");
    if allocate.is_set() && kind != "LoadBalancer" {
        allocate.forbidden(ONLY_LOAD_BALANCER);
    }
    if kind == "LoadBalancer" && !allocate.is_set() {
        root.get("allocateLoadBalancerNodePorts").required("");
    }
    load_balancer_class(spec);
    traffic_policies(spec, kind);
}

fn external_name(spec: Node<'_>) {
    for field in ["clusterIPs", "ipFamilies"] {
        if !spec.get(field).is_empty() {
            spec.get(field).forbidden(NOT_EXTERNAL_NAME);
        }
    }
    if spec.get("ipFamilyPolicy").is_set() {
        spec.get("ipFamilyPolicy").forbidden(NOT_EXTERNAL_NAME);
    }
    let at = spec.get("externalName");
    let name = at.str().strip_suffix('.').unwrap_or(at.str());
    if name.is_empty() {
        at.required("");
    }
    for complaint in names::dns1123_subdomain(name).into_iter().filter(|_| !name.is_empty()) {
        at.invalid_text(name, &complaint);
    }
}

fn service_port<'a>(port: Node<'a>, needs_name: bool, seen: &mut HashSet<&'a str>) {
    let name = port.get("name");
    if name.str().is_empty() {
        if needs_name {
            name.required("");
        }
    } else {
        name.check(names::dns1123_label);
        if !seen.insert(name.str()) {
            name.duplicate();
        }
    }
    port_number(port.get("port"));
    port.get("protocol").required_one_of(PROTOCOLS);
    port_number_or_name(port.get("targetPort"));
    if port.get("appProtocol").is_set() {
        port.get("appProtocol").check(names::qualified_name);
    }
}

fn session_affinity(spec: Node<'_>) {
    let affinity = spec.get("sessionAffinity");
    affinity.required_one_of(&["ClientIP", "None"]);
    let config = spec.get("sessionAffinityConfig");
    match affinity.str() {
        "ClientIP" => {
            let seconds = config.get("clientIP").get("timeoutSeconds");
            let missing = [config, config.get("clientIP"), seconds].into_iter().find(|node| !node.is_set());
            if let Some(missing) = missing {
                missing.required("when session affinity type is ClientIP");
            } else if !(1..=MAX_AFFINITY_SECONDS).contains(&seconds.int_or_0()) {
                seconds.invalid(&format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}"));
            }
        }
        "None" if config.is_set() => config.forbidden("must not be set when session affinity is None"),
        _ => {}
    }
}

pub(super) fn cluster_ips(spec: Node<'_>) {
    if spec.get("type").str() == "ExternalName" {
        return;
    }
    let (ip, ips, families) = (spec.get("clusterIP").str(), spec.get("clusterIPs"), spec.get("ipFamilies"));
    let first = ips.array().first().and_then(Value::as_str);
    match (ip, first) {
        ("", Some(_)) => ips.invalid("must be empty when `clusterIP` is not specified"),
        ("", None) => {}
        (_, None) => ips.required(""),
        (ip, Some(first)) if ip != first => ips.invalid("first value must match `clusterIP`"),
        _ => {}
    }
    let mut seen = HashSet::new();
    for family in families.items() {
        family.one_of(&["IPv4", "IPv6"]);
        if !seen.insert(family.str()) {
            family.duplicate();
        }
    }
    if spec.get("ipFamilyPolicy").is_set() {
        spec.get("ipFamilyPolicy").one_of(&["PreferDualStack", "RequireDualStack", "SingleStack"]);
    }
    let before = ips.errors();
    for (i, address) in ips.items().enumerate() {
        if i == 0 && address.str() == "None" {
            if ips.len() > 1 {
                ips.invalid("'None' must be the first and only value");
            }
        } else {
            address.check(names::ip);
        }
    }
    let broken = ips.errors() > before;
    if ips.len() > 2 {
        ips.invalid("may only hold up to 2 values");
    }
    if broken {
        return;
    }
    let is_v6 = |ip: &Value| matches!(ip.as_str().and_then(names::parse_ip), Some(IpAddr::V6(_)));
    if let [a, b, ..] = ips.array()
        && is_v6(a) == is_v6(b)
    {
        ips.invalid("may specify no more than one IP for each IP family");
    }
    if !is_headless(spec) {
        for (i, (address, family)) in ips.items().zip(families.array()).enumerate() {
            let v6 = is_v6(address.value);
            if (family == "IPv4" && v6) || (family == "IPv6" && !v6) {
                let family = family.as_str().unwrap_or("");
                address.invalid(&format!("expected an {family} value as indicated by `ipFamilies[{i}]`"));
            }
        }
    }
}

fn no_port_twice(ports: Node<'_>) {
    let mut seen = HashSet::new();
    for port in ports.items() {
        let node_port = port.get("nodePort");
        if node_port.int_or_0() != 0 && !seen.insert((port.get("protocol").str(), node_port.int_or_0())) {
            node_port.duplicate();
        }
    }
    let mut seen = HashSet::new();
    for port in ports.items() {
        let (protocol, number) = (port.get("protocol").str(), port.get("port").int_or_0());
        if !seen.insert((protocol, number)) {
            port.duplicate_as(format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\"NodePort\":0}}",
                Quoted(protocol)
            ));
        }
    }
}

fn source_ranges(spec: Node<'_>, notes: Node<'_>, kind: &str) {
    let ranges = spec.get("loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let at = spec.get("LoadBalancerSourceRanges").with(ranges.value);
        if kind != "LoadBalancer" {
            at.forbidden(ONLY_LOAD_BALANCER);
        }
        for range in at.items() {
            let text = range.str().trim();
            for complaint in names::cidr(text) {
                range.invalid_text(text, &complaint);
            }
        }
    } else if notes.value.get(SOURCE_RANGES).is_some() {
        let at = notes.key(SOURCE_RANGES);
        if kind != "LoadBalancer" {
            at.forbidden(ONLY_LOAD_BALANCER);
        }
        for range in at.str().split(',').map(str::trim).filter(|_| !at.str().trim().is_empty()) {
            for complaint in names::cidr(range) {
                at.invalid_text(range, &complaint);
            }
        }
    }
}

fn load_balancer_class(spec: Node<'_>) {
    let class = spec.get("loadBalancerClass");
    if class.is_set() {
        if spec.get("type").str() == "LoadBalancer" {
            class.check(names::qualified_name);
        } else {
            class.forbidden(ONLY_LOAD_BALANCER);
        }
    }
}

fn needs_health_check(spec: Node<'_>) -> bool {
    spec.get("type").str() == "LoadBalancer" && spec.get("externalTrafficPolicy").str() == "Local"
}

fn traffic_policies(spec: Node<'_>, kind: &str) {
    let external = spec.get("externalTrafficPolicy");
    let reachable =
        matches!(kind, "LoadBalancer" | "NodePort") || (kind == "ClusterIP" && !spec.get("externalIPs").is_empty());
    if reachable {
        external.required_one_of(&["Cluster", "Local"]);
    } else if !external.is_empty() {
        external.invalid("may only be set for externally-accessible services");
    }
    let health = spec.get("healthCheckNodePort");
    if needs_health_check(spec) {
        if health.int_or_0() == 0 {
            health.required("");
        } else {
            port_number(health);
        }
    } else if health.int_or_0() != 0 {
        health.invalid("may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'");
    }
    let internal = spec.get("internalTrafficPolicy");
    if internal.is_set() {
        internal.one_of(&["Cluster", "Local"]);
    } else if matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") {
        internal.required("");
    }
    let distribution = spec.get("trafficDistribution");
    if distribution.is_set() {
        distribution.one_of(&["PreferClose", "PreferSameZone", "PreferSameNode"]);
    }
}

fn service_update(new: Node<'_>, old: Node<'_>) {
    let (spec, old_spec) = (new.get("spec"), old.get("spec"));
    let external = |spec: Node<'_>| spec.get("type").str() == "ExternalName";
    let both_headless = is_headless(spec) && is_headless(old_spec);
    if !external(spec) && !external(old_spec) && !both_headless {
        ips_kept(spec, old_spec);
        families_kept(spec, old_spec);
    }
    let balanced = |spec: Node<'_>| spec.get("type").str() == "LoadBalancer";
    let class = spec.get("loadBalancerClass");
    if balanced(spec) && balanced(old_spec) && !class.same(old_spec.get("loadBalancerClass")) {
        class.invalid("may not change once set");
    }
    load_balancer_class(spec);
    if needs_health_check(spec)
        && needs_health_check(old_spec)
        && !spec.get("healthCheckNodePort").same(old_spec.get("healthCheckNodePort"))
    {
        spec.get("healthCheckNodePort").forbidden("field is immutable");
    }
    service(new);
}

fn ips_kept(spec: Node<'_>, old: Node<'_>) {
    let (ips, old_ips) = (spec.get("clusterIPs"), old.get("clusterIPs"));
    let shown = || if ips.is_set() { Go(ips.value).to_string() } else { "null".to_owned() };
    let changed = |i: usize| ips.array().get(i) != old_ips.array().get(i);
    let count = |ips: Node<'_>| ips.array().len();
    if count(ips) == count(old_ips) {
        for i in (0..count(ips)).filter(|i| changed(*i)) {
            ips.index(i).invalid_as(shown(), "may not change once set");
        }
    } else if count(old_ips) > count(ips) {
        if count(ips) == 0 {
            ips.index(0).invalid_as(shown(), "primary clusterIP can not be unset");
        } else if changed(0) {
            ips.index(0).invalid_as(shown(), "may not change once set");
        }
        let policy = spec.get("ipFamilyPolicy");
        if count(ips) == 1 && policy.str() != "SingleStack" {
            policy.invalid("must be set to 'SingleStack' when releasing the secondary clusterIP");
        }
    } else if count(old_ips) > 0 && changed(0) {
        ips.index(0).invalid_as(shown(), "may not change once set");
    }
}

fn families_kept(spec: Node<'_>, old: Node<'_>) {
    let (families, old_families) = (spec.get("ipFamilies"), old.get("ipFamilies"));
    let (Some(was), now) = (old_families.array().first(), families.array().first()) else { return };
    if Some(was) != now && !families.is_empty() && !old.get("clusterIPs").is_empty() && !is_headless(spec) {
        families.index(0).invalid_as(Go(families.value), "may not change once set");
    }
}

/// An address that packets can go to.
pub(super) fn endpoint_ip(ip: Node<'_>) {
    let Some(address) = names::parse_ip(ip.str()) else { return ip.invalid_str("must be a valid IP address") };
    let (unspecified, loopback, link_local, multicast) = match address {
        IpAddr::V4(v4) => (v4.is_unspecified(), v4.is_loopback(), v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            (v6.is_unspecified(), v6.is_loopback(), first & 0xffc0 == 0xfe80, first & 0xff0f == 0xff02)
        }
    };
    if unspecified {
        ip.invalid(&format!("may not be unspecified ({})", ip.str()));
    }
    if loopback {
        ip.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if link_local {
        ip.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        ip.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

pub(super) fn endpoints(root: Node<'_>) {
    for subset in root.get("subsets").items() {
        let (ready, waiting, ports) = (subset.get("addresses"), subset.get("notReadyAddresses"), subset.get("ports"));
        if ready.is_empty() && waiting.is_empty() {
            subset.required("must specify `addresses` or `notReadyAddresses`");
        }
        for address in ready.items().chain(waiting.items()) {
            address.get("ip").check(names::ip);
            optional(address.get("hostname"), names::dns1123_label);
            if address.get("nodeName").is_set() {
                address.get("nodeName").check(names::dns1123_subdomain);
            }
            endpoint_ip(address.get("ip"));
        }
        for port in ports.items() {
            if port.get("name").is_empty() {
                if ports.len() > 1 {
                    port.get("name").required("");
                }
            } else {
                port.get("name").check(names::dns1123_label);
            }
            port_number(port.get("port"));
            port.get("protocol").required_one_of(PROTOCOLS);
            if port.get("appProtocol").is_set() {
                port.get("appProtocol").check(names::qualified_name);
            }
        }
    }
}

pub(super) fn endpoint_slice(root: Node<'_>) {
    let kind = root.get("addressType");
    kind.required_one_of(&["FQDN", "IPv4", "IPv6"]);
    slice_ports(root.get("ports"));
    let endpoints = root.get("endpoints");
    if endpoints.len() > 1000 {
        return endpoints.too_many(1000);
    }
    for endpoint in endpoints.items() {
        let addresses = endpoint.get("addresses");
        if addresses.is_empty() {
            addresses.required("must contain at least 1 address");
        } else if addresses.len() > 100 {
            addresses.too_many(100);
        }
        addresses.items().for_each(|address| slice_address(addresses, address, kind.str()));
        if endpoint.get("nodeName").is_set() {
            endpoint.get("nodeName").check(names::dns1123_subdomain);
        }
        let topology = endpoint.get("deprecatedTopology");
        if topology.len() > 16 {
            topology.too_many(16);
        }
        meta::labels(topology);
        if endpoint.get("hostname").is_set() {
            endpoint.get("hostname").check(names::dns1123_label);
        }
        hints(endpoint.get("hints"));
    }
}

fn slice_address(list: Node<'_>, address: Node<'_>, kind: &str) {
    let (complaints, v6) = match kind {
        "IPv4" => (names::ip(address.str()), false),
        "IPv6" => (names::canonical_ip(address.str()), true),
        "FQDN" => return domain_name(address),
        _ => return,
    };
    if complaints.is_empty() {
        if names::parse_ip(address.str()).is_some_and(|ip| ip.is_ipv6() != v6) {
            list.with(address.value).invalid(&format!("must be an {kind} address"));
        }
        endpoint_ip(address);
    }
    address.all(complaints);
}

fn domain_name(at: Node<'_>) {
    if at.str().is_empty() {
        return at.required("");
    }
    let name = at.str().strip_suffix('.').unwrap_or(at.str());
    let complaints = names::dns1123_subdomain(name);
    if !complaints.is_empty() {
        return at.invalid_text(name, &complaints.join(","));
    }
    if !name.contains('.') {
        return at.invalid_text(name, "should be a domain with at least two segments separated by dots");
    }
    for label in name.split('.') {
        let complaints = names::dns1123_label(label);
        if !complaints.is_empty() {
            return at.invalid_text(label, &complaints.join(","));
        }
    }
}

fn slice_ports(ports: Node<'_>) {
    if ports.len() > 20000 {
        return ports.too_many(20000);
    }
    let mut seen = HashSet::new();
    for port in ports.items() {
        let name = port.get("name");
        optional(name, names::dns1123_label);
        if !seen.insert(name.str()) {
            name.duplicate_as(Quoted(name.str()));
        }
        if port.get("protocol").is_set() {
            port.get("protocol").one_of(PROTOCOLS);
        } else {
            port.get("protocol").required("");
        }
        if port.get("appProtocol").is_set() {
            port.get("appProtocol").check(names::qualified_name);
        }
    }
}

fn hints(hints: Node<'_>) {
    for (field, check) in [("forZones", names::label_value as fn(&str) -> _), ("forNodes", names::dns1123_subdomain)] {
        let list = hints.get(field);
        if list.len() > 8 {
            return list.too_many(8);
        }
        let mut seen = HashSet::new();
        for name in list.items().map(|item| item.get("name")) {
            if !seen.insert(name.str()) {
                name.duplicate();
            }
            name.check(check);
        }
    }
}
