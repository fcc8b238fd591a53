//! What a Pod asks of a node: resources and ports. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use crate::quantity::milli;

/// By the resource's name, in thousandths.
pub type Amounts = BTreeMap<String, i128>;

fn requests(resources: Option<&ResourceRequirements>) -> Amounts {
    read(resources.and_then(|resources| resources.requests.as_ref()))
}

pub fn read(quantities: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    let amounts = quantities.into_iter().flatten();
    amounts.map(|(name, quantity)| (name.clone(), milli(quantity).unwrap_or(0).max(0))).collect()
}

pub fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

pub fn subtract(from: &mut Amounts, less: &Amounts) {
    for (name, amount) in less {
        if let Some(sum) = from.get_mut(name) {
            *sum = sum.saturating_sub(*amount);
        }
    }
}

fn raise(to: &mut Amounts, least: &Amounts) {
    for (name, amount) in least {
        let most = to.entry(name.clone()).or_default();
        *most = (*most).max(*amount);
    }
}

/// All that runs at the same time, at the time when that is most.
pub fn amounts(pod: &Pod) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::new() };
    let mut running = Amounts::new();
    for container in &spec.containers {
        add(&mut running, &requests(container.resources.as_ref()));
    }
    let (mut sidecars, mut starting) = (Amounts::new(), Amounts::new());
    for container in spec.init_containers.iter().flatten() {
        let own = requests(container.resources.as_ref());
        let mut now = sidecars.clone();
        add(&mut now, &own);
        if is_sidecar(container) {
            add(&mut running, &own);
            sidecars = now.clone();
        }
        raise(&mut starting, &now);
    }
    raise(&mut running, &starting);
    // What is said of the whole Pod holds instead of what its containers say.
    running.extend(requests(spec.resources.as_ref()));
    add(&mut running, &read(spec.overhead.as_ref()));
    running.retain(|_, amount| *amount > 0);
    running
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// A port of the node itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    pub address: String,
    pub protocol: String,
    pub port: i32,
}

impl HostPort {
    pub fn conflicts(&self, other: &Self) -> bool {
        let is_any = |address: &str| matches!(address, "" | "0.0.0.0" | "::");
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address || is_any(&self.address) || is_any(&other.address))
    }
}

pub fn ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let taken = ports.filter_map(|port| {
        Some(HostPort {
            address: port.host_ip.clone().unwrap_or_default(),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
            port: port.host_port.filter(|port| *port > 0)?,
        })
    });
    taken.collect()
}
