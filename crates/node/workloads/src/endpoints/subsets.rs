//! The Endpoints of a Service, for who does not read EndpointSlices. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::address::{self, HEADLESS, Port};
use crate::pod;

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const TRIGGERED: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Whoever needs more reads EndpointSlices.
const MOST: usize = 1000;

/// Whether this controller made them.
pub fn is_ours(endpoints: &Endpoints) -> bool {
    endpoints.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(MANAGED_BY))
}

/// What the Endpoints should be. None: as they are.
pub fn decide(service: &Service, pods: &[&Pod], have: Option<&Endpoints>) -> Option<Endpoints> {
    let spec = service.spec.as_ref().filter(|_| address::has_endpoints(service))?;
    let family = *address::families(spec).first()?;
    // By ports: who is ready, and who is not.
    let mut wanted: BTreeMap<Vec<Port>, [BTreeMap<String, EndpointAddress>; 2]> = BTreeMap::new();
    let publishes = spec.publish_not_ready_addresses == Some(true);
    let (mut count, mut left_out) = (0, false);
    let mut pods = pods.to_vec();
    // If not all have room, those that are ready do.
    pods.sort_by_key(|one| (!pod::is_ready(one), one.metadata.name.clone()));
    for one in pods {
        let Some(ip) = address::address(one, family).filter(|_| publishes || !pod::is_deleting(one)) else { continue };
        let ports = address::ports(spec, one);
        if ports.is_empty() && spec.ports.as_ref().is_some_and(|ports| !ports.is_empty()) {
            continue;
        }
        if count == MOST {
            left_out = true;
            continue;
        }
        count += 1;
        let entry = EndpointAddress {
            ip: ip.to_owned(),
            hostname: address::hostname(service, one),
            node_name: pod::node(one).map(str::to_owned),
            target_ref: Some(address::reference(one)),
        };
        let at = usize::from(!(publishes || pod::is_ready(one)));
        wanted.entry(ports).or_default()[at].insert(ip.to_owned(), entry);
    }
    let subsets: Vec<EndpointSubset> =
        wanted.into_iter().map(|(ports, [ready, other])| subset(ports, ready, other)).collect();
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    labels.insert(MANAGED_BY.into(), "endpoint-controller".into());
    if address::is_headless(spec) {
        labels.insert(HEADLESS.into(), String::new());
    }
    let before = have.cloned().unwrap_or_default();
    let mut annotations = before.metadata.annotations.clone().unwrap_or_default();
    annotations.remove(TRIGGERED);
    annotations.remove(OVER_CAPACITY);
    if left_out {
        annotations.insert(OVER_CAPACITY.into(), "truncated".into());
    }
    let wanted = Endpoints {
        metadata: ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
            ..before.metadata.clone()
        },
        subsets: Some(subsets).filter(|subsets| !subsets.is_empty()),
    };
    let same = |have: &Endpoints| have.metadata == wanted.metadata && subsets_of(have) == subsets_of(&wanted);
    (!have.is_some_and(same)).then_some(wanted)
}

fn subsets_of(endpoints: &Endpoints) -> &[EndpointSubset] {
    endpoints.subsets.as_deref().unwrap_or_default()
}

fn subset(
    ports: Vec<Port>,
    ready: BTreeMap<String, EndpointAddress>,
    other: BTreeMap<String, EndpointAddress>,
) -> EndpointSubset {
    let list = |all: BTreeMap<String, EndpointAddress>| {
        Some(all.into_values().collect()).filter(|all: &Vec<_>| !all.is_empty())
    };
    let ports = ports.into_iter().map(|port| EndpointPort {
        name: Some(port.name).filter(|name| !name.is_empty()),
        protocol: Some(port.protocol),
        port: port.number,
        app_protocol: port.app_protocol,
    });
    let ports: Vec<EndpointPort> = ports.collect();
    EndpointSubset {
        addresses: list(ready),
        not_ready_addresses: list(other),
        ports: Some(ports).filter(|ports| !ports.is_empty()),
    }
}
