//! What one Pod is to a Service: its address, its ports and whether it may be asked. Pure.

use std::net::IpAddr;

use k8s_openapi::{
    api::core::v1::{ObjectReference, Pod, Service, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::pod;

pub const HEADLESS: &str = "service.kubernetes.io/headless";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// A port of a Service, as a Pod has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    pub name: String,
    pub protocol: String,
    pub number: i32,
    pub app_protocol: Option<String>,
}

/// The families that a Service is for.
pub fn families(spec: &ServiceSpec) -> Vec<Family> {
    let named = spec.ip_families.iter().flatten();
    let mut all: Vec<Family> = named.map(|name| if name == "IPv6" { Family::V6 } else { Family::V4 }).collect();
    if all.is_empty() {
        let v6 = spec.cluster_ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok()).is_some_and(|ip| ip.is_ipv6());
        all.push(if v6 { Family::V6 } else { Family::V4 });
    }
    all.dedup();
    all
}

pub fn is_headless(spec: &ServiceSpec) -> bool {
    spec.cluster_ip.as_deref() == Some("None")
}

/// Whether this controller fills the endpoints of a Service at all: those of one without a selector are somebody else's.
pub fn has_endpoints(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    spec.type_.as_deref() != Some("ExternalName") && spec.selector.as_ref().is_some_and(|labels| !labels.is_empty())
}

pub fn selects(service: &Service, pod: &Pod) -> bool {
    let Some(selector) = service.spec.as_ref().and_then(|spec| spec.selector.as_ref()) else { return false };
    let labels = pod.metadata.labels.as_ref();
    selector.iter().all(|(name, value)| labels.and_then(|labels| labels.get(name)) == Some(value))
}

/// The Pod's address of a family. One that has ended has none that counts.
pub fn address(pod: &Pod, family: Family) -> Option<&str> {
    if pod::is_finished(pod) {
        return None;
    }
    let status = pod.status.as_ref()?;
    let all = status.pod_ips.iter().flatten().map(|one| one.ip.as_str()).chain(status.pod_ip.as_deref());
    let fits = |ip: &&str| match ip.parse::<IpAddr>() {
        Ok(ip) => ip.is_ipv4() == (family == Family::V4),
        Err(_) => false,
    };
    all.into_iter().find(fits)
}

/// The ports of a Service that a Pod has: a name that none of its containers gives is none.
pub fn ports(spec: &ServiceSpec, pod: &Pod) -> Vec<Port> {
    let mut all = Vec::new();
    for port in spec.ports.iter().flatten() {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let number = match &port.target_port {
            None => Some(port.port),
            Some(IntOrString::Int(0)) => Some(port.port),
            Some(IntOrString::Int(number)) => Some(*number),
            Some(IntOrString::String(name)) if name.is_empty() => Some(port.port),
            Some(IntOrString::String(name)) => named(pod, name, protocol),
        };
        all.extend(number.map(|number| Port {
            name: port.name.clone().unwrap_or_default(),
            protocol: protocol.to_owned(),
            number,
            app_protocol: port.app_protocol.clone(),
        }));
    }
    all
}

fn named(pod: &Pod, name: &str, protocol: &str) -> Option<i32> {
    let spec = pod.spec.as_ref()?;
    // Of those that come first, only the ones that go on have ports to be asked.
    let sidecars = spec.init_containers.iter().flatten().filter(|one| one.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let mut found = ports
        .filter(|port| port.name.as_deref() == Some(name) && port.protocol.as_deref().unwrap_or("TCP") == protocol);
    found.next().map(|port| port.container_port)
}

pub fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".into()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// A name of its own below the Service's.
pub fn hostname(service: &Service, pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let below = spec.subdomain.as_ref().filter(|name| !name.is_empty()) == service.metadata.name.as_ref();
    spec.hostname.clone().filter(|name| below && !name.is_empty())
}
