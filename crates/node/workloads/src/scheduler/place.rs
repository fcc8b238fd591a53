//! A node, and who is on it. Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};

use super::{
    affinity::Wishes,
    request::{Amounts, HostPort, add, amounts, ports, read, subtract},
};

/// A Pod that is on a node, or counts as being there.
pub struct Guest {
    pub pod: Arc<Pod>,
    pub ports: Vec<HostPort>,
    pub wishes: Wishes,
    amounts: Amounts,
}

impl Guest {
    pub fn new(pod: &Arc<Pod>) -> Self {
        let ports = pod.spec.as_ref().map(ports).unwrap_or_default();
        Self { pod: pod.clone(), ports, wishes: Wishes::of(pod), amounts: amounts(pod) }
    }
}

pub struct Place<'a> {
    pub node: &'a Node,
    pub name: &'a str,
    pub capacity: Amounts,
    pub used: Amounts,
    pub guests: Vec<Guest>,
}

impl<'a> Place<'a> {
    pub fn new(node: &'a Node) -> Option<Self> {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        Some(Self {
            node,
            name: node.metadata.name.as_deref()?,
            capacity: read(allocatable),
            used: Amounts::new(),
            guests: Vec::new(),
        })
    }

    pub fn enter(&mut self, guest: Guest) {
        add(&mut self.used, &guest.amounts);
        self.guests.push(guest);
    }

    /// All guests of a kind leave; they may be let in again.
    pub fn leave(&mut self, who: impl Fn(&Pod) -> bool) -> Vec<Guest> {
        let (gone, stay) = std::mem::take(&mut self.guests).into_iter().partition(|guest| who(&guest.pod));
        self.guests = stay;
        let gone: Vec<Guest> = gone;
        for guest in &gone {
            subtract(&mut self.used, &guest.amounts);
        }
        gone
    }

    pub fn label(&self, name: &str) -> Option<&String> {
        self.node.metadata.labels.as_ref()?.get(name)
    }
}
