//! The EndpointSlices of a Service. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::{Pod, Service},
        discovery::v1::{Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::address::{self, Family, HEADLESS, Port};
use crate::pod;
use controllers::owner;

pub const SERVICE: &str = "kubernetes.io/service-name";
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub const CONTROLLER: &str = "endpointslice-controller.k8s.io";
/// So many endpoints are in one slice.
pub const MOST: usize = 100;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub create: Vec<EndpointSlice>,
    pub update: Vec<EndpointSlice>,
    /// Names of slices.
    pub delete: Vec<String>,
}

/// Of which Service a slice is, if it is this controller's.
pub fn service_of<'a>(slice: &'a EndpointSlice, controller: &str) -> Option<&'a str> {
    let labels = slice.metadata.labels.as_ref()?;
    labels.get(SERVICE).map(String::as_str).filter(|_| labels.get(MANAGED_BY).is_some_and(|by| by == controller))
}

pub type Shape = (Family, Vec<Port>);

/// `pods` are those that the Service selects; `slices` those that this controller made for it. `zones` is by node.
pub fn decide(service: &Service, pods: &[&Pod], slices: &[&EndpointSlice], zones: &BTreeMap<String, String>) -> Plan {
    let Some(spec) = service.spec.as_ref().filter(|_| address::has_endpoints(service)) else { return Plan::default() };
    let mut wanted = Wanted::new();
    for family in address::families(spec) {
        for one in pods {
            let Some(ip) = address::address(one, family) else { continue };
            let ports = address::ports(spec, one);
            if ports.is_empty() && spec.ports.as_ref().is_some_and(|ports| !ports.is_empty()) {
                continue;
            }
            wanted.entry((family, ports)).or_default().insert(key(one), endpoint(service, one, ip, zones));
        }
        // A Service without endpoints has a slice that says so.
        if !wanted.keys().any(|(of, _)| *of == family) {
            wanted.insert((family, Vec::new()), BTreeMap::new());
        }
    }
    pack(&Mold { meta: meta(service), most: MOST, key: key_of, has_annotations: false }, wanted, slices)
}

/// What is the same of all slices that are made of one thing.
pub struct Mold {
    pub meta: ObjectMeta,
    /// So many endpoints are in one slice.
    pub most: usize,
    /// What an endpoint is found again by.
    pub key: fn(&Endpoint) -> Option<String>,
    /// Whether annotations are ours, too.
    pub has_annotations: bool,
}

/// By shape, the endpoints that there have to be, by what they are found again by.
pub type Wanted = BTreeMap<Shape, BTreeMap<String, Endpoint>>;

/// What has to be written so that slices hold what is wanted. A shape without endpoints has a slice that says so.
pub fn pack(mold: &Mold, wanted: Wanted, slices: &[&EndpointSlice]) -> Plan {
    let mut plan = Plan::default();
    let mut rest: Vec<&EndpointSlice> = slices.to_vec();
    rest.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    for (shape, endpoints) in wanted {
        let (same, others) = rest.into_iter().partition(|slice| shape_of(slice).as_ref() == Some(&shape));
        rest = others;
        fit(mold, &shape, endpoints, same, &mut plan);
    }
    plan.delete.extend(rest.iter().filter_map(|slice| slice.metadata.name.clone()));
    plan
}

/// Puts endpoints of one shape into slices, with as few writes as possible: who is in a slice stays there.
fn fit(
    mold: &Mold,
    shape: &Shape,
    mut endpoints: BTreeMap<String, Endpoint>,
    slices: Vec<&EndpointSlice>,
    plan: &mut Plan,
) {
    let is_empty = endpoints.is_empty();
    let mut kept: Vec<(&EndpointSlice, Vec<Endpoint>)> = Vec::new();
    for slice in slices {
        let have = slice.endpoints.iter().flatten().filter_map(mold.key);
        let stay: Vec<Endpoint> = have.filter_map(|key| endpoints.remove(&key)).take(mold.most).collect();
        kept.push((slice, stay));
    }
    // New ones go where something changes anyway, then where there is room.
    let changes = |slice: &EndpointSlice, stay: &[Endpoint]| slice.endpoints.as_deref().unwrap_or_default() != stay;
    kept.sort_by_key(|(slice, stay)| (!changes(slice, stay), std::cmp::Reverse(stay.len())));
    let mut new = endpoints.into_values();
    for (_, stay) in &mut kept {
        let room = mold.most.saturating_sub(stay.len());
        stay.extend(new.by_ref().take(room));
    }
    loop {
        let more: Vec<Endpoint> = new.by_ref().take(mold.most).collect();
        if more.is_empty() {
            break;
        }
        plan.create.push(make(mold, shape, more));
    }
    let mut has_one = false;
    for (slice, stay) in kept {
        // The one that says that there is nobody stays, once.
        if stay.is_empty() && (!is_empty || has_one) {
            plan.delete.extend(slice.metadata.name.clone());
            continue;
        }
        has_one = true;
        let mut wanted = make(mold, shape, stay);
        let meta = std::mem::take(&mut wanted.metadata);
        let annotations = if mold.has_annotations { meta.annotations } else { slice.metadata.annotations.clone() };
        wanted.metadata = ObjectMeta {
            labels: meta.labels,
            annotations,
            owner_references: meta.owner_references,
            ..slice.metadata.clone()
        };
        if !is_same(&wanted, slice) {
            plan.update.push(wanted);
        }
    }
    if is_empty && !has_one {
        plan.create.push(make(mold, shape, Vec::new()));
    }
}

/// Nobody and an empty list are the same.
fn is_same(a: &EndpointSlice, b: &EndpointSlice) -> bool {
    let endpoints = |slice: &EndpointSlice| slice.endpoints.clone().unwrap_or_default();
    a.metadata == b.metadata && shape_of(a) == shape_of(b) && endpoints(a) == endpoints(b)
}

fn shape_of(slice: &EndpointSlice) -> Option<Shape> {
    let family = match slice.address_type.as_str() {
        "IPv4" => Family::V4,
        "IPv6" => Family::V6,
        _ => return None,
    };
    let ports = slice.ports.iter().flatten().map(|port| {
        Some(Port {
            name: port.name.clone().unwrap_or_default(),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
            number: port.port?,
            app_protocol: port.app_protocol.clone(),
        })
    });
    Some((family, ports.collect::<Option<Vec<Port>>>()?))
}

fn make(mold: &Mold, (family, ports): &Shape, endpoints: Vec<Endpoint>) -> EndpointSlice {
    let ports = ports.iter().map(|port| EndpointPort {
        name: Some(port.name.clone()),
        protocol: Some(port.protocol.clone()),
        port: Some(port.number),
        app_protocol: port.app_protocol.clone(),
    });
    EndpointSlice {
        metadata: mold.meta.clone(),
        address_type: family.name().into(),
        endpoints: Some(endpoints),
        ports: Some(ports.collect::<Vec<_>>()).filter(|ports| !ports.is_empty()),
    }
}

fn meta(service: &Service) -> ObjectMeta {
    let name = service.metadata.name.clone().unwrap_or_default();
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    labels.insert(SERVICE.into(), name.clone());
    labels.insert(MANAGED_BY.into(), CONTROLLER.into());
    if service.spec.as_ref().is_some_and(address::is_headless) {
        labels.insert(HEADLESS.into(), String::new());
    }
    ObjectMeta {
        generate_name: Some(format!("{name}-")),
        namespace: service.metadata.namespace.clone(),
        labels: Some(labels),
        owner_references: owner::reference(service).map(|reference| vec![reference]),
        ..ObjectMeta::default()
    }
}

fn key(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

fn key_of(endpoint: &Endpoint) -> Option<String> {
    endpoint.target_ref.as_ref()?.uid.clone()
}

fn endpoint(service: &Service, one: &Pod, ip: &str, zones: &BTreeMap<String, String>) -> Endpoint {
    let serving = pod::is_ready(one);
    let terminating = pod::is_deleting(one);
    let publishes = service.spec.as_ref().is_some_and(|spec| spec.publish_not_ready_addresses == Some(true));
    let ready = publishes || serving && !terminating;
    let node = pod::node(one).map(str::to_owned);
    let zone = node.as_ref().and_then(|node| zones.get(node).cloned());
    Endpoint {
        addresses: vec![ip.to_owned()],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: address::hostname(service, one),
        hints: if ready { hints(service, zone.as_ref(), node.as_ref()) } else { None },
        zone,
        node_name: node,
        target_ref: Some(address::reference(one)),
        ..Endpoint::default()
    }
}

/// For whom an endpoint is meant, where the Service prefers those that are near.
fn hints(service: &Service, zone: Option<&String>, node: Option<&String>) -> Option<EndpointHints> {
    let preference = service.spec.as_ref()?.traffic_distribution.as_deref()?;
    let same_node = preference == "PreferSameNode";
    if !same_node && !matches!(preference, "PreferClose" | "PreferSameZone") {
        return None;
    }
    let for_zones = zone.map(|name| vec![ForZone { name: name.clone() }]);
    let for_nodes = node.filter(|_| same_node).map(|name| vec![ForNode { name: name.clone() }]);
    (for_zones.is_some() || for_nodes.is_some()).then_some(EndpointHints { for_zones, for_nodes })
}
