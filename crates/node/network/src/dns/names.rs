//! What the names of Services and Pods mean, as the Kubernetes DNS specification has it. Pure.

use std::net::IpAddr;

use super::message::{A, AAAA, ANY, CNAME, Data, NO_SUCH_NAME, PTR, Record, Reply, SOA, SRV};
use crate::table::{Address, Endpoint, Known, Name, Protocol, Slice};

pub const ZONE: &str = "cluster.local";
/// So many addresses are in one answer at most.
const MOST: usize = 256;

/// None: it is not one of ours, somebody else may know.
pub fn look_up(known: &Known, name: &str, kind: u16) -> Option<Reply> {
    if let Some(ip) = reverse(name) {
        return pointers(known, ip, name, kind);
    }
    let labels: Vec<&str> = name.split('.').collect();
    let found = match labels.as_slice() {
        [rest @ .., "cluster", "local"] => zone(known, rest, name, kind),
        // Whoever has no search domains writes short names: those that there are.
        [service, namespace] | [service, namespace, "svc"] if known.services.contains_key(&key(namespace, service)) => {
            service_name(known, &[service, namespace], name, kind)
        }
        _ => return None,
    };
    Some(found.unwrap_or_else(|| Reply { code: NO_SUCH_NAME, authority: vec![soa()], ..Reply::default() }))
}

fn key(namespace: &str, service: &str) -> Name {
    (namespace.to_owned(), service.to_owned())
}

fn soa() -> Record {
    Record { name: ZONE.into(), data: Data::Soa(ZONE.into()) }
}

/// A name that is there, whatever is asked of it.
fn said(answers: Vec<Record>) -> Reply {
    let authority = if answers.is_empty() { vec![soa()] } else { Vec::new() };
    Reply { answers, authority, ..Reply::default() }
}

fn zone(known: &Known, rest: &[&str], name: &str, kind: u16) -> Option<Reply> {
    match rest {
        [] if matches!(kind, SOA | ANY) => Some(said(vec![soa()])),
        [] | ["svc" | "pod"] => Some(said(Vec::new())),
        [inner @ .., "svc"] => service_name(known, inner, name, kind),
        [ip, namespace, "pod"] if has_namespace(known, namespace) => {
            Some(said(address(name, dashed(ip)?, kind).into_iter().collect()))
        }
        _ => None,
    }
}

fn has_namespace(known: &Known, namespace: &str) -> bool {
    known.services.keys().map(|(namespace, _)| namespace).any(|one| one == namespace)
        || known.slices.keys().any(|(one, _)| one == namespace)
        || matches!(namespace, "default" | "kube-system")
}

fn address(name: &str, ip: IpAddr, kind: u16) -> Option<Record> {
    let data = match (ip, kind) {
        (IpAddr::V4(ip), A | ANY) => Data::A(ip),
        (IpAddr::V6(ip), AAAA | ANY) => Data::Aaaa(ip),
        _ => return None,
    };
    Some(Record { name: name.to_owned(), data })
}

/// What is before `.svc`.
fn service_name(known: &Known, inner: &[&str], name: &str, kind: u16) -> Option<Reply> {
    match inner {
        [namespace] => has_namespace(known, namespace).then(|| said(Vec::new())),
        [service, namespace] => {
            let key = key(namespace, service);
            let found = known.services.get(&key)?;
            if let Some(other) = &found.external {
                let alias = Record { name: name.to_owned(), data: Data::Cname(other.trim_end_matches('.').to_owned()) };
                return Some(said(if matches!(kind, A | AAAA | CNAME | ANY) { vec![alias] } else { Vec::new() }));
            }
            if kind == SRV {
                let all = found.ports.iter().map(|port| (port.name.as_str(), port.protocol));
                return Some(services(known, &key, found, all.collect(), name));
            }
            let ips = if is_headless(found) { endpoint_ips(known, &key) } else { found.ips.clone() };
            Some(said(ips.into_iter().filter_map(|ip| address(name, ip, kind)).take(MOST).collect()))
        }
        // One Pod behind a headless Service.
        [host, service, namespace] if !host.starts_with('_') => {
            let key = key(namespace, service);
            known.services.get(&key)?;
            let ips = known.endpoints(&key).map(|(_, one)| one).filter(|one| host_of(one) == *host).map(|one| one.ip);
            let ips: std::collections::BTreeSet<IpAddr> = ips.collect();
            (!ips.is_empty()).then(|| said(ips.into_iter().filter_map(|ip| address(name, ip, kind)).collect()))
        }
        [port, protocol, service, namespace] => {
            let key = key(namespace, service);
            let found = known.services.get(&key)?;
            let protocol = [Protocol::Tcp, Protocol::Udp]
                .into_iter()
                .find(|one| protocol.strip_prefix('_') == Some(one.name()))?;
            let port = port.strip_prefix('_')?;
            found.ports.iter().find(|one| one.name == port && one.protocol == protocol)?;
            match kind {
                SRV | ANY => Some(services(known, &key, found, vec![(port, protocol)], name)),
                _ => Some(said(Vec::new())),
            }
        }
        _ => None,
    }
}

fn is_headless(address: &Address) -> bool {
    address.ips.is_empty() && address.external.is_none()
}

fn endpoint_ips(known: &Known, key: &Name) -> Vec<IpAddr> {
    let all: std::collections::BTreeSet<IpAddr> = known.endpoints(key).map(|(_, one)| one.ip).collect();
    all.into_iter().collect()
}

/// The name of an endpoint below its Service.
fn host_of(endpoint: &Endpoint) -> String {
    endpoint.hostname.clone().unwrap_or_else(|| match endpoint.ip {
        IpAddr::V4(ip) => ip.to_string().replace('.', "-"),
        IpAddr::V6(ip) => ip.to_string().replace(':', "-"),
    })
}

fn services(known: &Known, key: &Name, found: &Address, ports: Vec<(&str, Protocol)>, name: &str) -> Reply {
    let (namespace, service) = key;
    let whole = format!("{service}.{namespace}.svc.{ZONE}");
    let mut reply = Reply::default();
    let mut add = |port: u16, target: String, ip: IpAddr| {
        if reply.answers.len() < MOST {
            reply.additional.extend(address(&target, ip, ANY));
            reply.answers.push(Record { name: name.to_owned(), data: Data::Srv { port, target } });
        }
    };
    if is_headless(found) {
        for (slice, one) in known.endpoints(key) {
            let fits = |(name, protocol, number): &(String, Protocol, u16)| {
                ports.iter().any(|(port, of)| name == port && protocol == of).then_some(*number)
            };
            for port in slice_ports(slice).filter_map(fits) {
                add(port, format!("{}.{whole}", host_of(one)), one.ip);
            }
        }
    } else {
        let of = |port: &&crate::table::Port| ports.contains(&(port.name.as_str(), port.protocol));
        for (port, ip) in found.ports.iter().filter(of).flat_map(|port| found.ips.iter().map(|ip| (port.port, *ip))) {
            add(port, whole.clone(), ip);
        }
    }
    if reply.answers.is_empty() {
        reply.authority.push(soa());
    }
    reply
}

fn slice_ports(slice: &Slice) -> impl Iterator<Item = &(String, Protocol, u16)> {
    slice.ports.iter()
}

fn dashed(text: &str) -> Option<IpAddr> {
    text.replace('-', ".").parse().ok().or_else(|| text.replace('-', ":").parse().ok())
}

/// The address that `4.3.2.1.in-addr.arpa` asks about.
fn reverse(name: &str) -> Option<IpAddr> {
    let digits: Vec<&str> = name.strip_suffix(".in-addr.arpa")?.split('.').rev().collect();
    digits.join(".").parse().ok()
}

fn pointers(known: &Known, ip: IpAddr, name: &str, kind: u16) -> Option<Reply> {
    let record = |target: String| Record { name: name.to_owned(), data: Data::Ptr(target) };
    let mut all = Vec::new();
    for ((namespace, service), address) in &known.services {
        if address.ips.contains(&ip) {
            all.push(record(format!("{service}.{namespace}.svc.{ZONE}")));
        }
    }
    for slice in known.slices.values() {
        let (namespace, service) = &slice.service;
        for one in slice.endpoints.iter().filter(|one| one.ip == ip && one.hostname.is_some()) {
            all.push(record(format!("{}.{service}.{namespace}.svc.{ZONE}", host_of(one))));
        }
    }
    all.truncate(MOST);
    // Others know the names of other addresses.
    if all.is_empty() {
        return None;
    }
    Some(said(if matches!(kind, PTR | ANY) { all } else { Vec::new() }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::table;

    fn known() -> Known {
        let mut known = Known::default();
        let mut service = |name: &str, spec: Value| {
            let one: k8s_openapi::api::core::v1::Service =
                serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec})).unwrap();
            known.services.extend(table::Address::of(&one));
        };
        let ports = json!([{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
        service("web", json!({"clusterIP": "127.9.128.5", "ports": ports}));
        service("db", json!({"clusterIP": "None", "ports": [{"name": "sql", "port": 5432}]}));
        service("out", json!({"type": "ExternalName", "externalName": "example.com."}));
        let slice: k8s_openapi::api::discovery::v1::EndpointSlice = serde_json::from_value(json!({
            "metadata": {"name": "db-1", "namespace": "ns", "labels": {"kubernetes.io/service-name": "db"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["127.9.0.7"], "hostname": "db-0"}, {"addresses": ["127.9.0.8"]},
                {"addresses": ["127.9.0.9"], "conditions": {"ready": false}}],
            "ports": [{"name": "sql", "port": 5432}]}))
        .unwrap();
        known.slices.extend(table::Slice::of(&slice));
        known
    }

    fn told(name: &str, kind: u16) -> Vec<String> {
        let Some(reply) = look_up(&known(), name, kind) else { return vec!["?".into()] };
        if reply.code == NO_SUCH_NAME {
            return vec!["no".into()];
        }
        let text = |record: Record| match record.data {
            Data::A(ip) => ip.to_string(),
            Data::Aaaa(ip) => ip.to_string(),
            Data::Cname(name) | Data::Ptr(name) | Data::Soa(name) => name,
            Data::Srv { port, target } => format!("{target}:{port}"),
        };
        reply.answers.into_iter().map(text).collect()
    }

    #[test]
    fn what_names_mean() {
        for (name, kind, expected) in [
            ("web.ns.svc.cluster.local", A, &["127.9.128.5"][..]),
            ("web.ns.svc.cluster.local", AAAA, &[]),
            ("web.ns", A, &["127.9.128.5"]),
            ("web.ns.svc", A, &["127.9.128.5"]),
            ("nope.ns.svc.cluster.local", A, &["no"]),
            ("web.other.svc.cluster.local", A, &["no"]),
            ("ns.svc.cluster.local", A, &[]),
            ("other.svc.cluster.local", A, &["no"]),
            ("db.ns.svc.cluster.local", A, &["127.9.0.7", "127.9.0.8"]),
            ("db-0.db.ns.svc.cluster.local", A, &["127.9.0.7"]),
            ("127-9-0-8.db.ns.svc.cluster.local", A, &["127.9.0.8"]),
            ("db-9.db.ns.svc.cluster.local", A, &["no"]),
            ("_http._tcp.web.ns.svc.cluster.local", SRV, &["web.ns.svc.cluster.local:80"]),
            ("_dns._udp.web.ns.svc.cluster.local", SRV, &["web.ns.svc.cluster.local:53"]),
            ("_http._udp.web.ns.svc.cluster.local", SRV, &["no"]),
            (
                "_sql._tcp.db.ns.svc.cluster.local",
                SRV,
                &["db-0.db.ns.svc.cluster.local:5432", "127-9-0-8.db.ns.svc.cluster.local:5432"],
            ),
            ("out.ns.svc.cluster.local", A, &["example.com"]),
            ("127-9-0-3.ns.pod.cluster.local", A, &["127.9.0.3"]),
            ("5.128.9.127.in-addr.arpa", PTR, &["web.ns.svc.cluster.local"]),
            ("7.0.9.127.in-addr.arpa", PTR, &["db-0.db.ns.svc.cluster.local"]),
            ("1.1.1.1.in-addr.arpa", PTR, &["?"]),
            ("cluster.local", SOA, &["cluster.local"]),
            ("example.com", A, &["?"]),
            ("localhost", A, &["?"]),
            ("", A, &["?"]),
        ] {
            assert_eq!(told(name, kind), expected, "{name} {kind}");
        }
    }

    #[test]
    fn what_is_not_there_can_be_remembered() {
        let reply = look_up(&known(), "nope.ns.svc.cluster.local", A).unwrap();
        assert_eq!((reply.code, reply.authority), (NO_SUCH_NAME, vec![soa()]));
        let srv = look_up(&known(), "_sql._tcp.db.ns.svc.cluster.local", SRV).unwrap();
        assert_eq!(
            srv.additional[0],
            Record { name: "db-0.db.ns.svc.cluster.local".into(), data: Data::A([127, 9, 0, 7].into()) }
        );
    }
}
