//! What speaks against a node for a Pod, in upstream's order and words. Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec};

use super::{
    affinity::{Namespaces, Wishes},
    fit,
    neighbours::Neighbours,
    place::Place,
    request::{Amounts, HostPort, amounts, ports},
    spread::{self, Constraint},
    volumes::{self, Claims},
};

/// A Pod that asks for a node.
pub struct Ask<'a> {
    pub pod: &'a Arc<Pod>,
    pub spec: &'a PodSpec,
    pub amounts: Amounts,
    pub ports: Vec<HostPort>,
    pub wishes: Wishes,
    /// What has to be kept, and what would be nice.
    pub spread: Vec<Constraint>,
    pub spread_rather: Vec<Constraint>,
    pub claims: Claims,
}

impl<'a> Ask<'a> {
    pub fn new(pod: &'a Arc<Pod>, spec: &'a PodSpec, claims: Claims) -> Self {
        Self {
            pod,
            spec,
            amounts: amounts(pod),
            ports: ports(spec),
            wishes: Wishes::of(pod),
            spread: spread::constraints(pod, spec, "DoNotSchedule"),
            spread_rather: spread::constraints(pod, spec, "ScheduleAnyway"),
            claims,
        }
    }
}

/// What speaks against a node: nothing if it fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Against {
    pub reasons: Vec<String>,
    /// Not even if other Pods went.
    pub is_final: bool,
}

impl Against {
    pub fn fits(&self) -> bool {
        self.reasons.is_empty()
    }

    fn never(reason: &str) -> Self {
        Self { reasons: vec![reason.to_owned()], is_final: true }
    }

    fn now(reason: &str) -> Self {
        Self { reasons: vec![reason.to_owned()], is_final: false }
    }
}

/// What all nodes together mean for a Pod: worked out once, then asked for each of them.
pub struct Filter<'a> {
    ask: &'a Ask<'a>,
    neighbours: Neighbours,
    spread: spread::Counts,
    /// Somebody has a claim that only one may have.
    is_claim_taken: bool,
}

impl<'a> Filter<'a> {
    pub fn new(ask: &'a Ask<'a>, places: &[Place<'_>], namespaces: &Namespaces) -> Self {
        let spread = spread::Counts::new(ask, &ask.spread, places);
        let mut guests = places.iter().flat_map(|place| &place.guests);
        let is_claim_taken = !ask.claims.exclusive.is_empty()
            && guests.any(|guest| {
                let is_near = guest.pod.metadata.namespace == ask.pod.metadata.namespace;
                is_near && volumes::names(&guest.pod).any(|(name, _)| ask.claims.exclusive.contains(&name))
            });
        Self { ask, neighbours: Neighbours::new(ask, places, namespaces), spread, is_claim_taken }
    }

    /// Everything that speaks against a node, of the first kind of thing that does.
    pub fn against(&self, place: &Place<'_>) -> Against {
        let ask = self.ask;
        let tolerations = ask.spec.tolerations.as_deref().unwrap_or_default();
        if fit::is_closed(ask.spec, place.node) {
            return Against::never("node(s) were unschedulable");
        }
        if fit::untolerated(fit::taints(place.node), tolerations, fit::HARD).is_some() {
            return Against::never("node(s) had untolerated taint(s)");
        }
        if !fit::suits(ask.spec, place.node) {
            return Against::never("node(s) didn't match Pod's node affinity/selector");
        }
        let taken = || place.guests.iter().flat_map(|guest| &guest.ports);
        if ask.ports.iter().any(|port| taken().any(|taken| port.conflicts(taken))) {
            return Against::now("node(s) didn't have free ports for the requested pod ports");
        }
        let missing = self.missing(place);
        if !missing.fits() {
            return missing;
        }
        if self.is_claim_taken {
            return Against::now(
                "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode",
            );
        }
        let reasons = ask.claims.against(place.node);
        if !reasons.is_empty() {
            return Against { reasons: reasons.into_iter().map(str::to_owned).collect(), is_final: true };
        }
        match self.spread.against(ask, place) {
            Some(spread::Against::NoLabel) => {
                return Against::never("node(s) didn't match pod topology spread constraints (missing required label)");
            }
            Some(spread::Against::Skew) => {
                return Against::now("node(s) didn't match pod topology spread constraints");
            }
            None => {}
        }
        self.neighbours.against(place)
    }

    fn missing(&self, place: &Place<'_>) -> Against {
        let mut against = Against::default();
        let limit = place.capacity.get("pods").copied().unwrap_or(0) / 1000;
        if i128::try_from(place.guests.len()).unwrap_or(i128::MAX) >= limit {
            against.reasons.push("Too many pods".to_owned());
        }
        for (name, amount) in &self.ask.amounts {
            let has = place.capacity.get(name).copied().unwrap_or(0);
            let used = place.used.get(name).copied().unwrap_or(0);
            if amount.saturating_add(used) > has {
                against.reasons.push(format!("Insufficient {name}"));
                against.is_final |= *amount > has;
            }
        }
        against
    }
}

impl Neighbours {
    fn against(&self, place: &Place<'_>) -> Against {
        if !self.is_near(place) {
            return Against::never("node(s) didn't match pod affinity rules");
        }
        if self.is_too_near(place) {
            return Against::now("node(s) didn't match pod anti-affinity rules");
        }
        if self.is_unwanted(place) {
            return Against::now("node(s) didn't satisfy existing pods anti-affinity rules");
        }
        Against::default()
    }
}
