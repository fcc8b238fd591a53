//! Slices that follow Pods through any history, against what one would write down from scratch.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    core::v1::{Endpoints, Pod, Service},
    discovery::v1::EndpointSlice,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    address,
    slices::{self, Plan},
    subsets,
};
use crate::world::parse;

/// The API, as far as a Service's endpoints go.
#[derive(Default)]
pub struct World {
    pub slices: BTreeMap<String, EndpointSlice>,
    pub endpoints: Option<Endpoints>,
    next: usize,
}

impl World {
    /// How many writes it took.
    pub fn reconcile(&mut self, service: &Service, pods: &[Pod]) -> usize {
        let pods: Vec<&Pod> = pods.iter().filter(|pod| address::selects(service, pod)).collect();
        let have: Vec<&EndpointSlice> = self.slices.values().collect();
        let plan = slices::decide(service, &pods, &have, &[("n0".to_owned(), "z".to_owned())].into());
        let mut writes = self.write(plan);
        if let Some(endpoints) = subsets::decide(service, &pods, self.endpoints.as_ref()) {
            self.endpoints = Some(endpoints);
            writes += 1;
        }
        writes
    }

    /// How many writes a plan is.
    pub fn write(&mut self, plan: Plan) -> usize {
        let writes = plan.create.len() + plan.update.len() + plan.delete.len();
        for name in plan.delete {
            assert!(self.slices.remove(&name).is_some());
        }
        for slice in plan.update {
            let name = slice.metadata.name.clone().unwrap();
            assert_ne!(self.slices.insert(name, slice.clone()), Some(slice), "a write that changes nothing");
        }
        for mut slice in plan.create {
            self.next += 1;
            let name = format!("{}{}", slice.metadata.generate_name.as_ref().unwrap(), self.next);
            slice.metadata.name = Some(name.clone());
            self.slices.insert(name, slice);
        }
        writes
    }

    pub fn json(&self) -> Vec<Value> {
        self.slices.values().map(|slice| serde_json::to_value(slice).unwrap()).collect()
    }
}

/// Address, port, ready, serving, terminating.
type Row = (String, Vec<i32>, bool, bool, bool);

fn rows(world: &World) -> Vec<Row> {
    let mut all = Vec::new();
    for slice in world.slices.values() {
        let ports: Vec<i32> = slice.ports.iter().flatten().filter_map(|port| port.port).collect();
        for one in slice.endpoints.iter().flatten() {
            let conditions = one.conditions.clone().unwrap();
            let is = |condition: Option<bool>| condition.unwrap();
            all.push((
                one.addresses[0].clone(),
                ports.clone(),
                is(conditions.ready),
                is(conditions.serving),
                is(conditions.terminating),
            ));
        }
    }
    all.sort();
    all
}

#[derive(Clone, Debug)]
struct Someone {
    ready: bool,
    terminating: bool,
    /// Of the container's port, or none of that name.
    port: Option<i32>,
    phase: &'static str,
    selected: bool,
    address: bool,
}

fn someone() -> impl Strategy<Value = Someone> {
    let phase = prop::sample::select(vec!["Running", "Running", "Running", "Pending", "Failed", "Succeeded"]);
    let port = prop::sample::select(vec![Some(8080), Some(8080), Some(9090), None]);
    (any::<bool>(), any::<bool>(), port, phase, any::<bool>(), any::<bool>()).prop_map(
        |(ready, terminating, port, phase, selected, address)| Someone {
            ready,
            terminating,
            port,
            phase,
            selected,
            address,
        },
    )
}

impl Someone {
    fn pod(&self, n: usize) -> Pod {
        let ports: Vec<Value> = self.port.iter().map(|port| json!({"name": "http", "containerPort": port})).collect();
        let mut pod = json!({"metadata": {"name": format!("p{n}"), "uid": format!("u{n}"), "namespace": "ns",
                "labels": {"app": if self.selected { "a" } else { "b" }}},
            "spec": {"nodeName": "n0", "containers": [{"name": "c", "ports": ports}]},
            "status": {"phase": self.phase, "conditions": [{"type": "Ready", "status": if self.ready { "True" } else { "False" }}]}});
        if self.terminating {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        if self.address {
            pod["status"]["podIP"] = format!("10.0.{}.{}", n / 250, n % 250 + 1).into();
        }
        parse(pod)
    }

    fn row(&self, n: usize, publishes: bool) -> Option<Row> {
        let over = matches!(self.phase, "Failed" | "Succeeded");
        let port = self.port.filter(|_| self.selected && self.address && !over)?;
        let ready = publishes || self.ready && !self.terminating;
        Some((format!("10.0.{}.{}", n / 250, n % 250 + 1), vec![port], ready, self.ready, self.terminating))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn slices_say_what_pods_are(
        publishes in any::<bool>(), count in 1..260_usize,
        changes in prop::collection::vec(prop::collection::vec((any::<usize>(), someone()), 0..60), 1..6),
        first in someone(),
    ) {
        let service: Service = parse(json!({"metadata": {"name": "s", "namespace": "ns", "uid": "s"}, "spec": {"selector": {"app": "a"},
            "publishNotReadyAddresses": publishes, "ports": [{"port": 80, "targetPort": "http"}]}}));
        let mut all = vec![first; count];
        let mut world = World::default();
        for change in changes {
            for (at, someone) in change {
                let at = at % count;
                all[at] = someone;
            }
            let pods: Vec<Pod> = all.iter().enumerate().map(|(n, one)| one.pod(n)).collect();
            world.reconcile(&service, &pods);
            let mut expected: Vec<Row> = all.iter().enumerate().filter_map(|(n, one)| one.row(n, publishes)).collect();
            expected.sort();
            prop_assert_eq!(rows(&world), expected.clone());
            prop_assert!(world.slices.values().all(|slice| slice.endpoints.as_ref().unwrap().len() <= slices::MOST));
            prop_assert!(!world.slices.is_empty(), "one says that there is nobody");
            prop_assert!(!expected.is_empty() || world.slices.len() == 1);
            prop_assert_eq!(world.reconcile(&service, &pods), 0, "nothing more to do");
            let subsets = world.endpoints.clone().unwrap().subsets.unwrap_or_default();
            let of = |ready: bool| -> BTreeSet<String> {
                let some = |subset: &k8s_openapi::api::core::v1::EndpointSubset| {
                    if ready { subset.addresses.clone() } else { subset.not_ready_addresses.clone() }
                };
                subsets.iter().flat_map(some).flatten().map(|one| one.ip).collect()
            };
            let ready: BTreeSet<String> = expected.iter().filter(|row| row.2).map(|row| row.0.clone()).collect();
            let other = expected.iter().filter(|row| !row.2 && !row.4).map(|row| row.0.clone()).collect::<BTreeSet<_>>();
            prop_assert_eq!((of(true), of(false)), (ready, other));
        }
    }
}
