//! What Pods that are there mean for one that comes. Pure.

use std::collections::{HashMap, HashSet};

use super::{
    affinity::{Namespaces, Term},
    filter::Ask,
    place::Place,
};

/// For each term the values of its topology in which somebody is who matches.
type Found = Vec<(String, HashSet<String>)>;

pub struct Neighbours {
    near: Found,
    is_first: bool,
    apart: Found,
    /// Topologies and values where somebody is who does not want this Pod near.
    unwanted: HashMap<String, HashSet<String>>,
}

impl Neighbours {
    pub fn new(ask: &Ask<'_>, places: &[Place<'_>], namespaces: &Namespaces) -> Self {
        let find = |terms: &[Term]| -> Found {
            let values = |term: &Term| {
                let there = |place: &&Place<'_>| place.guests.iter().any(|guest| term.matches(&guest.pod, namespaces));
                places.iter().filter(there).filter_map(|place| place.label(&term.topology).cloned()).collect()
            };
            terms.iter().map(|term| (term.topology.clone(), values(term))).collect()
        };
        let near = find(&ask.wishes.near);
        // The first of a group that wants to be together has nobody to be near to yet.
        let is_first = near.iter().all(|(_, found)| found.is_empty())
            && ask.wishes.near.iter().all(|term| term.matches(ask.pod, namespaces));
        let mut unwanted: HashMap<String, HashSet<String>> = HashMap::new();
        for place in places {
            for term in place.guests.iter().flat_map(|guest| &guest.wishes.apart) {
                if let Some(value) = place.label(&term.topology)
                    && term.matches(ask.pod, namespaces)
                {
                    unwanted.entry(term.topology.clone()).or_default().insert(value.clone());
                }
            }
        }
        Self { near, is_first, apart: find(&ask.wishes.apart), unwanted }
    }

    pub fn is_near(&self, place: &Place<'_>) -> bool {
        self.near
            .iter()
            .all(|(topology, found)| place.label(topology).is_some_and(|value| self.is_first || found.contains(value)))
    }

    pub fn is_too_near(&self, place: &Place<'_>) -> bool {
        self.apart.iter().any(|(topology, found)| place.label(topology).is_some_and(|value| found.contains(value)))
    }

    pub fn is_unwanted(&self, place: &Place<'_>) -> bool {
        self.unwanted.iter().any(|(topology, found)| place.label(topology).is_some_and(|value| found.contains(value)))
    }
}

/// How much each node is liked for who is there, before it is compared with others: what the Pod would rather have near or not, and what those
/// who are there would rather have.
pub fn company(ask: &Ask<'_>, places: &[Place<'_>], namespaces: &Namespaces) -> Vec<f64> {
    let mut liked: HashMap<(&str, &str), f64> = HashMap::new();
    for place in places {
        let mut count = |term: &Term, weight: f64| {
            let topology = term.topology.as_str();
            let Some((name, value)) =
                place.node.metadata.labels.as_ref().and_then(|labels| labels.get_key_value(topology))
            else {
                return;
            };
            *liked.entry((name.as_str(), value.as_str())).or_default() += weight;
        };
        for guest in &place.guests {
            for (weight, term) in &ask.wishes.rather {
                if term.matches(&guest.pod, namespaces) {
                    count(term, *weight as f64);
                }
            }
            for (weight, term) in &guest.wishes.rather {
                if term.matches(ask.pod, namespaces) {
                    count(term, *weight as f64);
                }
            }
            // Who has to be near this one is glad of it, a little.
            for term in &guest.wishes.near {
                if term.matches(ask.pod, namespaces) {
                    count(term, 1.0);
                }
            }
        }
    }
    let sum = |place: &Place<'_>| {
        let here = |((topology, value), weight): (&(&str, &str), &f64)| {
            place.label(topology).filter(|own| own.as_str() == *value).map(|_| *weight)
        };
        liked.iter().filter_map(here).sum()
    };
    places.iter().map(sum).collect()
}
