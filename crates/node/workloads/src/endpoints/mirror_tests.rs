use std::collections::BTreeMap;

use k8s_openapi::api::{
    core::v1::{Endpoints, Service},
    discovery::v1::EndpointSlice,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    mirror::{MOST, decide},
    model::World,
};
use crate::world::{Case, parse};
use controllers::note::Note;

pub const CASES: &[Case] = &[
    ("mirroring/slices", slices),
    ("mirroring/packed", packed),
    ("mirroring/labels", labels),
    ("mirroring/who-is-mirrored", who_is_mirrored),
    ("mirroring/goes-with-them", goes_with_them),
    ("mirroring/limit", limit),
    ("mirroring/invalid", invalid),
];

/// How many writes it took, and what was said.
fn reconcile(world: &mut World, service: Option<&Service>, endpoints: Option<&Endpoints>) -> (usize, Vec<Note>) {
    let have: Vec<&EndpointSlice> = world.slices.values().collect();
    let (plan, notes) = decide(service, endpoints, &have);
    (world.write(plan), notes)
}

fn service(selector: Value) -> Service {
    parse(
        json!({"metadata": {"name": "s", "namespace": "ns", "uid": "s"}, "spec": {"selector": selector, "ports": [{"port": 80}]}}),
    )
}

fn endpoints(subsets: Value) -> Endpoints {
    parse(json!({"metadata": {"name": "s", "namespace": "ns", "uid": "e"}, "subsets": subsets}))
}

fn mirrored(subsets: Value) -> World {
    let mut world = World::default();
    let (service, endpoints) = (service(Value::Null), endpoints(subsets));
    reconcile(&mut world, Some(&service), Some(&endpoints));
    assert_eq!(reconcile(&mut world, Some(&service), Some(&endpoints)).0, 0, "nothing more to do");
    world
}

fn slices() {
    let world = mirrored(json!([
        {"addresses": [{"ip": "10.0.0.1", "hostname": "h", "nodeName": "n", "targetRef": {"kind": "Pod", "name": "p"}}, {"ip": "fd00::1"}],
         "notReadyAddresses": [{"ip": "10.0.0.2"}], "ports": [{"name": "http", "port": 8080}]},
        {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]},
    ]));
    let mut got: Vec<Value> = world
        .json()
        .iter()
        .map(|slice| {
            json!([slice["addressType"], slice["ports"][0]["port"], slice["ports"][0]["protocol"], slice["endpoints"]])
        })
        .collect();
    got.sort_by_key(Value::to_string);
    let ready = json!({"ready": true});
    assert_eq!(
        got,
        [
            json!(["IPv4", 53, "UDP", [
                {"addresses": ["10.0.0.1"], "conditions": ready, "hostname": "h", "nodeName": "n", "targetRef": {"kind": "Pod", "name": "p"}},
            ]]),
            json!(["IPv4", 8080, "TCP", [
                {"addresses": ["10.0.0.1"], "conditions": ready, "hostname": "h", "nodeName": "n", "targetRef": {"kind": "Pod", "name": "p"}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
            ]]),
            json!(["IPv6", 8080, "TCP", [{"addresses": ["fd00::1"], "conditions": ready}]]),
        ]
    );
}

fn packed() {
    let address = json!({"ip": "10.0.0.1", "hostname": "h"});
    let got = |subsets: Value| -> Vec<Value> {
        mirrored(subsets).json().iter().map(|slice| json!([slice["ports"], slice["endpoints"]])).collect()
    };
    let port = |name: &str, number: i32| json!({"name": name, "port": number, "protocol": "TCP"});
    let is = |ready: bool| json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}, "hostname": "h"}]);
    let subset = |kind: &str, address: &Value, ports: Value| json!({kind: [address], "ports": ports});
    // Not ready in one place, in whichever order they come.
    for (first, second) in [("addresses", "notReadyAddresses"), ("notReadyAddresses", "addresses")] {
        let ports = json!([port("a", 1)]);
        let both = json!([subset(first, &address, ports.clone()), subset(second, &address, ports.clone())]);
        assert_eq!(got(both), [json!([ports, is(false)])]);
    }
    // Two ports of the same addresses are in one slice, whoever wrote them apart.
    let apart = json!([
        subset("addresses", &address, json!([port("a", 1)])),
        subset("addresses", &json!({"ip": "10.0.0.1"}), json!([port("b", 2)])),
    ]);
    assert_eq!(got(apart), [json!([[port("a", 1), port("b", 2)], is(true)])]);
}

fn labels() {
    let mut world = World::default();
    let mut by_hand = endpoints(json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}]}]));
    by_hand.metadata.labels = Some([("team".to_owned(), "x".to_owned())].into());
    by_hand.metadata.annotations = Some(parse(json!({
        "a": "b", "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z",
    })));
    let service = service(Value::Null);
    reconcile(&mut world, Some(&service), Some(&by_hand));
    let meta = &world.json()[0]["metadata"];
    let managed_by = "endpointslicemirroring-controller.k8s.io";
    assert_eq!(
        meta["labels"],
        json!({"team": "x", "kubernetes.io/service-name": "s", "endpointslice.kubernetes.io/managed-by": managed_by})
    );
    assert_eq!(meta["annotations"], json!({"a": "b"}));
    assert_eq!(
        (&meta["ownerReferences"][0]["kind"], &meta["ownerReferences"][0]["uid"]),
        (&json!("Endpoints"), &json!("e"))
    );
    // What is taken away there goes here.
    by_hand.metadata.annotations = None;
    assert_eq!(reconcile(&mut world, Some(&service), Some(&by_hand)).0, 1);
    assert_eq!(world.json()[0]["metadata"]["annotations"], Value::Null);
}

fn who_is_mirrored() {
    let one = json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}]}]);
    let plain = endpoints(one.clone());
    let mut skipped = plain.clone();
    skipped.metadata.labels = Some([("endpointslice.kubernetes.io/skip-mirror".to_owned(), "true".to_owned())].into());
    let mut lock = plain.clone();
    lock.metadata.annotations = Some([("control-plane.alpha.kubernetes.io/leader".to_owned(), "{}".to_owned())].into());
    let by_hand = service(Value::Null);
    for (service, endpoints, count) in [
        (Some(&by_hand), &plain, 1),
        (Some(&service(json!({"app": "a"}))), &plain, 0),
        (None, &plain, 0),
        (Some(&by_hand), &skipped, 0),
        (Some(&by_hand), &lock, 0),
    ] {
        let mut world = World::default();
        reconcile(&mut world, service, Some(endpoints));
        assert_eq!(world.slices.len(), count, "{service:?} {endpoints:?}");
        // One that was mirrored before is not left behind.
        let mut world = mirrored(one.clone());
        reconcile(&mut world, service, Some(endpoints));
        assert_eq!(world.slices.len(), count, "{service:?} {endpoints:?}");
    }
}

fn goes_with_them() {
    let service = service(Value::Null);
    let one = json!([{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}]}]);
    let mut world = mirrored(one.clone());
    reconcile(&mut world, Some(&service), None);
    assert!(world.slices.is_empty());
    let mut world = mirrored(one.clone());
    reconcile(&mut world, Some(&service), Some(&endpoints(Value::Null)));
    assert!(world.slices.is_empty());
    // Endpoints that are being deleted get nothing new.
    let mut going = endpoints(one);
    going.metadata.deletion_timestamp = parse(json!("2026-01-01T00:00:00Z"));
    assert_eq!(reconcile(&mut world, Some(&service), Some(&going)).0, 0);
}

fn limit() {
    let address = |n: usize| json!({"ip": format!("10.0.{}.{}", n / 250, n % 250 + 1)});
    let addresses: Vec<Value> = (0..MOST).map(address).collect();
    let other: Vec<Value> = (MOST..MOST + 5).map(address).collect();
    let subsets = json!([{"addresses": addresses, "notReadyAddresses": other, "ports": [{"port": 1}]}]);
    let mut world = World::default();
    let (_, notes) = reconcile(&mut world, Some(&service(Value::Null)), Some(&endpoints(subsets)));
    assert_eq!(world.slices.len(), 1);
    assert_eq!(world.json()[0]["endpoints"].as_array().unwrap().len(), MOST);
    let message =
        "A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. 5 addresses were skipped";
    assert_eq!(notes, [Note::warning("TooManyAddressesToMirror", message)]);
}

fn invalid() {
    let subsets = json!([{"addresses": [{"ip": "10.0.0.1"}, {"ip": "no"}], "ports": [{"port": 1}]}]);
    let mut world = World::default();
    let (_, notes) = reconcile(&mut world, Some(&service(Value::Null)), Some(&endpoints(subsets)));
    assert_eq!(world.json()[0]["endpoints"].as_array().unwrap().len(), 1);
    let message = "Skipped 1 invalid IP addresses when mirroring to EndpointSlices";
    assert_eq!(notes, [Note::warning("InvalidIPAddress", message)]);
}

type Row = (u8, bool, i32);

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever somebody writes: slices say the same, and once they do nothing is written any more.
    #[test]
    fn slices_say_what_was_written(steps in prop::collection::vec((prop::collection::vec((0..20_u8, any::<bool>(), 1..4_i32), 0..12), any::<bool>(), 0..5_u8), 1..8)) {
        let mut world = World::default();
        for (rows, is_skipped, selects) in steps {
            let mut by_port: BTreeMap<i32, BTreeMap<u8, bool>> = BTreeMap::new();
            let mut subsets: BTreeMap<i32, (Vec<Value>, Vec<Value>)> = BTreeMap::new();
            for (ip, ready, port) in rows {
                let subset = subsets.entry(port).or_default();
                let address = json!({"ip": format!("10.0.0.{ip}")});
                if ready { subset.0.push(address) } else { subset.1.push(address) }
                *by_port.entry(port).or_default().entry(ip).or_insert(true) &= ready;
            }
            let subsets: Vec<Value> = subsets
                .into_iter()
                .map(|(port, (ready, other))| json!({"addresses": ready, "notReadyAddresses": other, "ports": [{"port": port}]}))
                .collect();
            let mut endpoints = endpoints(json!(subsets));
            if is_skipped {
                endpoints.metadata.labels = Some([("endpointslice.kubernetes.io/skip-mirror".to_owned(), "true".to_owned())].into());
            }
            let service = service(if selects == 0 { json!({"a": "b"}) } else { Value::Null });
            reconcile(&mut world, Some(&service), Some(&endpoints));
            let mut got: Vec<Row> = Vec::new();
            for slice in world.slices.values() {
                for port in slice.ports.iter().flatten().filter_map(|port| port.port) {
                    for one in slice.endpoints.iter().flatten() {
                        let ip = one.addresses[0].rsplit('.').next().unwrap().parse().unwrap();
                        got.push((ip, one.conditions.as_ref().unwrap().ready.unwrap(), port));
                    }
                }
            }
            got.sort_unstable();
            let mut expected: Vec<Row> = Vec::new();
            if !is_skipped && selects != 0 {
                for (port, ips) in &by_port {
                    expected.extend(ips.iter().map(|(ip, ready)| (*ip, *ready, *port)));
                }
            }
            expected.sort_unstable();
            prop_assert_eq!(got, expected);
            prop_assert_eq!(reconcile(&mut world, Some(&service), Some(&endpoints)).0, 0, "nothing more to do");
        }
    }
}
