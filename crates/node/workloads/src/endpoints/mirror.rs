//! Endpoints that somebody wrote by hand, as EndpointSlices: whoever reads only those sees them, too. Pure.

use std::{collections::BTreeMap, net::IpAddr};

use k8s_openapi::{
    api::{
        core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service},
        discovery::v1::{Endpoint, EndpointConditions, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    address::{Family, Port},
    slices::{MANAGED_BY, Mold, Plan, SERVICE, Wanted, pack},
};
use controllers::{note::Note, owner};

pub const CONTROLLER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Endpoints that are used as a lock.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Annotations that speak of the Endpoints themselves.
const OWN: [&str; 2] =
    ["endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration"];
/// So many addresses of a subset are mirrored.
pub const MOST: usize = 1000;

/// `slices` are those that were made of these Endpoints before.
pub fn decide(
    service: Option<&Service>,
    endpoints: Option<&Endpoints>,
    slices: &[&EndpointSlice],
) -> (Plan, Vec<Note>) {
    let is_by_hand = |service: &Service| {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        selector.is_none_or(|labels| labels.is_empty())
    };
    let endpoints = endpoints.filter(|endpoints| service.is_some_and(is_by_hand) && may_be_mirrored(endpoints));
    let Some(endpoints) = endpoints else {
        let delete = slices.iter().filter_map(|slice| slice.metadata.name.clone()).collect();
        return (Plan { delete, ..Plan::default() }, Vec::new());
    };
    let (wanted, notes) = wanted(endpoints.subsets.as_deref().unwrap_or_default());
    let mold = Mold { meta: meta(endpoints), most: MOST, key: key_of, has_annotations: true };
    let mut plan = pack(&mold, wanted, slices);
    if owner::is_deleting(&endpoints.metadata) {
        plan.create.clear();
    }
    (plan, notes)
}

fn may_be_mirrored(endpoints: &Endpoints) -> bool {
    let has = |all: Option<&BTreeMap<String, String>>, name: &str| all.and_then(|all| all.get(name)).cloned();
    has(endpoints.metadata.labels.as_ref(), SKIP).as_deref() != Some("true")
        && has(endpoints.metadata.annotations.as_ref(), LEADER).is_none()
}

/// An address, and whom it speaks of: two with the same address may come from different Pods.
type Who = (String, Option<String>);

/// Ports, and who has them, ready or not.
type Packed<'a> = (Vec<Port>, Vec<(&'a EndpointAddress, bool)>);

/// Subsets as they would be written today: all ports that have the same addresses together, and none twice. Who is not ready in one place is not ready.
fn packed(subsets: &[EndpointSubset]) -> Vec<Packed<'_>> {
    let mut known: BTreeMap<Who, &EndpointAddress> = BTreeMap::new();
    let mut by_port: BTreeMap<Option<Port>, BTreeMap<Who, bool>> = BTreeMap::new();
    for subset in subsets {
        let ports = ports(subset);
        let ports: Vec<Option<Port>> =
            if ports.is_empty() { vec![None] } else { ports.into_iter().map(Some).collect() };
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let other = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        for (address, ready) in ready.chain(other) {
            let who = (address.ip.clone(), address.target_ref.as_ref().and_then(|target| target.uid.clone()));
            known.entry(who.clone()).or_insert(address);
            for port in &ports {
                *by_port.entry(port.clone()).or_default().entry(who.clone()).or_insert(true) &= ready;
            }
        }
    }
    let mut by_addresses: BTreeMap<BTreeMap<Who, bool>, Vec<Port>> = BTreeMap::new();
    for (port, addresses) in by_port {
        by_addresses.entry(addresses).or_default().extend(port);
    }
    let pack = |(addresses, ports): (BTreeMap<Who, bool>, Vec<Port>)| {
        let mut all: Vec<(&EndpointAddress, bool)> =
            addresses.iter().filter_map(|(who, ready)| Some((*known.get(who)?, *ready))).collect();
        // If not all have room, those that are ready do.
        all.sort_by_key(|(_, ready)| !ready);
        (ports, all)
    };
    by_addresses.into_iter().map(pack).collect()
}

fn wanted(subsets: &[EndpointSubset]) -> (Wanted, Vec<Note>) {
    let (mut wanted, mut unusable, mut too_many) = (Wanted::new(), 0, 0);
    for (ports, addresses) in packed(subsets) {
        let mut taken = 0;
        for (address, ready) in addresses {
            if taken == MOST {
                too_many += 1;
                continue;
            }
            let Ok(ip) = address.ip.parse::<IpAddr>() else {
                unusable += 1;
                continue;
            };
            taken += 1;
            let family = if ip.is_ipv4() { Family::V4 } else { Family::V6 };
            let endpoint = endpoint(address, ip, ready);
            let key = key_of(&endpoint).unwrap_or_default();
            wanted.entry((family, ports.clone())).or_default().insert(key, endpoint);
        }
    }
    let mut notes = Vec::new();
    if unusable > 0 {
        let message = format!("Skipped {unusable} invalid IP addresses when mirroring to EndpointSlices");
        notes.push(Note::warning("InvalidIPAddress", message));
    }
    if too_many > 0 {
        let message = format!(
            "A max of {MOST} addresses can be mirrored to EndpointSlices per Endpoints subset. {too_many} addresses were skipped"
        );
        notes.push(Note::warning("TooManyAddressesToMirror", message));
    }
    (wanted, notes)
}

fn ports(subset: &EndpointSubset) -> Vec<Port> {
    let ports = subset.ports.iter().flatten().map(|port| Port {
        name: port.name.clone().unwrap_or_default(),
        protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
        number: port.port,
        app_protocol: port.app_protocol.clone(),
    });
    ports.collect()
}

fn endpoint(address: &EndpointAddress, ip: IpAddr, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

fn key_of(endpoint: &Endpoint) -> Option<String> {
    let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.as_deref()).unwrap_or_default();
    endpoint.addresses.first().map(|address| format!("{address} {uid}"))
}

fn meta(endpoints: &Endpoints) -> ObjectMeta {
    let name = endpoints.metadata.name.clone().unwrap_or_default();
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE.into(), name.clone());
    labels.insert(MANAGED_BY.into(), CONTROLLER.into());
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|name, _| !OWN.contains(&name.as_str()));
    ObjectMeta {
        generate_name: Some(format!("{name}-")),
        namespace: endpoints.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        owner_references: owner::reference(endpoints).map(|reference| vec![reference]),
        ..ObjectMeta::default()
    }
}
