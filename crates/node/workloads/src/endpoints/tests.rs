use k8s_openapi::api::core::v1::{Pod, Service};
use serde_json::{Value, json};

use super::model::World;
use crate::world::{Case, parse};

pub const CASES: &[Case] = &[
    ("endpointslice/readiness", readiness),
    ("endpointslice/terminating", terminating),
    ("endpointslice/publish-not-ready", publish_not_ready),
    ("endpointslice/named-ports", named_ports),
    ("endpointslice/ports-differ", ports_differ),
    ("endpointslice/headless", headless),
    ("endpointslice/labels", labels),
    ("endpointslice/hundred", hundred),
    ("endpointslice/few-writes", few_writes),
    ("endpointslice/nobody", nobody),
    ("endpointslice/no-selector", no_selector),
    ("endpointslice/finished-pods", finished_pods),
    ("endpointslice/families", families),
    ("endpointslice/zone", zone),
    ("endpointslice/hints", hints),
    ("endpoints/subsets", subsets),
    ("endpoints/over-capacity", over_capacity),
];

fn service(more: Value) -> Service {
    let mut spec = json!({"selector": {"app": "a"}, "clusterIP": "10.96.0.5", "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    parse(json!({"metadata": {"name": "web", "namespace": "ns", "uid": "s", "labels": {"team": "t"}}, "spec": spec}))
}

fn pod(n: usize, more: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": format!("p{n}"), "namespace": "ns", "uid": format!("u{n}"), "labels": {"app": "a"}},
        "spec": {"nodeName": "n0", "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}]},
        "status": {"phase": "Running", "podIP": format!("10.0.{}.{}", n / 250, n % 250 + 1), "conditions": [{"type": "Ready", "status": "True"}]},
    });
    for (path, value) in more.as_object().unwrap() {
        let (parent, name) = path.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[name] = value.clone();
    }
    parse(pod)
}

fn only(service: &Service, pods: &[Pod]) -> Value {
    let mut world = World::default();
    world.reconcile(service, pods);
    assert_eq!(world.slices.len(), 1);
    world.json().remove(0)
}

fn not_ready(n: usize) -> Pod {
    pod(n, json!({"/status/conditions": [{"type": "Ready", "status": "False"}]}))
}

fn leaving(n: usize) -> Pod {
    pod(n, json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"}))
}

fn readiness() {
    let slice = only(&service(json!({})), &[pod(0, json!({})), not_ready(1)]);
    let conditions = |n: usize| slice["endpoints"][n]["conditions"].clone();
    assert_eq!(conditions(0), json!({"ready": true, "serving": true, "terminating": false}));
    assert_eq!(conditions(1), json!({"ready": false, "serving": false, "terminating": false}));
    let first = &slice["endpoints"][0];
    assert_eq!((&first["addresses"], &first["nodeName"]), (&json!(["10.0.0.1"]), &json!("n0")));
    assert_eq!(first["targetRef"], json!({"kind": "Pod", "namespace": "ns", "name": "p0", "uid": "u0"}));
    assert_eq!(slice["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    assert_eq!(slice["addressType"], "IPv4");
}

fn terminating() {
    let slice = only(&service(json!({})), &[leaving(0)]);
    assert_eq!(slice["endpoints"][0]["conditions"], json!({"ready": false, "serving": true, "terminating": true}));
}

fn publish_not_ready() {
    let slice = only(&service(json!({"publishNotReadyAddresses": true})), &[not_ready(0), leaving(1)]);
    assert_eq!(slice["endpoints"][0]["conditions"], json!({"ready": true, "serving": false, "terminating": false}));
    assert_eq!(slice["endpoints"][1]["conditions"], json!({"ready": true, "serving": true, "terminating": true}));
}

fn named_ports() {
    let named = service(
        json!({"ports": [{"port": 80, "targetPort": "web"}, {"name": "none", "port": 81, "targetPort": "other"}]}),
    );
    assert_eq!(only(&named, &[pod(0, json!({}))])["ports"], json!([{"name": "", "port": 8080, "protocol": "TCP"}]));
    let udp = service(json!({"ports": [{"port": 80, "targetPort": "web", "protocol": "UDP"}]}));
    assert_eq!(only(&udp, &[pod(0, json!({}))])["endpoints"], json!([]), "the protocol is part of a port");
}

fn ports_differ() {
    let named = service(json!({"ports": [{"port": 80, "targetPort": "web"}]}));
    let other = pod(1, json!({"/spec/containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 9090}]}]}));
    let mut world = World::default();
    world.reconcile(&named, &[pod(0, json!({})), other]);
    let mut ports: Vec<Value> = world.json().iter().map(|slice| slice["ports"][0]["port"].clone()).collect();
    ports.sort_by_key(|port| port.as_i64());
    assert_eq!(ports, [8080, 9090]);
}

fn headless() {
    let none = service(json!({"clusterIP": "None", "ports": null}));
    let named = pod(0, json!({"/spec/hostname": "p0", "/spec/subdomain": "web"}));
    let slice = only(&none, &[named, pod(1, json!({"/spec/hostname": "p1", "/spec/subdomain": "other"}))]);
    assert_eq!(slice["metadata"]["labels"]["service.kubernetes.io/headless"], "");
    assert_eq!((&slice["endpoints"][0]["hostname"], &slice["endpoints"][1]["hostname"]), (&json!("p0"), &Value::Null));
    assert_eq!(slice["ports"], Value::Null);
}

fn labels() {
    let slice = only(&service(json!({})), &[]);
    assert_eq!(
        slice["metadata"]["labels"],
        json!({"team": "t", "kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"})
    );
    let owner = &slice["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["controller"]),
        (&json!("Service"), &json!("web"), &json!(true))
    );
}

fn many(count: usize) -> Vec<Pod> {
    (0..count).map(|n| pod(n, json!({}))).collect()
}

fn sizes(world: &World) -> Vec<usize> {
    let mut sizes: Vec<usize> = world.slices.values().map(|slice| slice.endpoints.as_ref().unwrap().len()).collect();
    sizes.sort_unstable();
    sizes
}

fn hundred() {
    let mut world = World::default();
    world.reconcile(&service(json!({})), &many(250));
    assert_eq!(sizes(&world), [50, 100, 100]);
}

fn few_writes() {
    let mut world = World::default();
    let service = service(json!({}));
    world.reconcile(&service, &many(250));
    let mut pods = many(250);
    pods[7] = not_ready(7);
    assert_eq!(world.reconcile(&service, &pods), 2, "one slice and the Endpoints");
    pods.push(pod(300, json!({})));
    assert_eq!(world.reconcile(&service, &pods), 2, "one more goes where there is room");
    pods.truncate(1);
    world.reconcile(&service, &pods);
    assert_eq!(sizes(&world), [1], "empty slices go");
}

fn nobody() {
    let mut world = World::default();
    let service = service(json!({}));
    world.reconcile(&service, &[]);
    let slice = &world.json()[0];
    assert_eq!((&slice["endpoints"], &slice["ports"]), (&json!([]), &Value::Null));
    world.reconcile(&service, &many(1));
    assert_eq!(sizes(&world), [1], "the empty one is replaced");
    world.reconcile(&service, &[]);
    assert_eq!(sizes(&world), [0]);
}

fn no_selector() {
    for spec in [json!({"selector": null}), json!({"selector": {}}), json!({"type": "ExternalName"})] {
        let mut world = World::default();
        assert_eq!(world.reconcile(&service(spec.clone()), &many(2)), 0, "{spec}");
    }
}

fn finished_pods() {
    let over = |n: usize, phase: &str| pod(n, json!({"/status/phase": phase}));
    let without = pod(2, json!({"/status/podIP": null}));
    let slice = only(&service(json!({})), &[over(0, "Failed"), over(1, "Succeeded"), without]);
    assert_eq!(slice["endpoints"], json!([]));
}

fn families() {
    let both = service(json!({"ipFamilies": ["IPv4", "IPv6"]}));
    let mut world = World::default();
    world.reconcile(&both, &[pod(0, json!({"/status/podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}))]);
    let mut all: Vec<(Value, Value)> = world
        .json()
        .iter()
        .map(|slice| (slice["addressType"].clone(), slice["endpoints"][0]["addresses"][0].clone()))
        .collect();
    all.sort_by_key(|(family, _)| family.to_string());
    assert_eq!(all, [(json!("IPv4"), json!("10.0.0.1")), (json!("IPv6"), json!("fd00::1"))]);
}

fn zone() {
    assert_eq!(only(&service(json!({})), &many(1))["endpoints"][0]["zone"], "z");
}

fn hints() {
    let of = |preference: &str, pods: &[Pod]| {
        only(&service(json!({"trafficDistribution": preference})), pods)["endpoints"][0]["hints"].clone()
    };
    for preference in ["PreferClose", "PreferSameZone"] {
        assert_eq!(of(preference, &many(1)), json!({"forZones": [{"name": "z"}]}));
    }
    assert_eq!(of("PreferSameNode", &many(1)), json!({"forZones": [{"name": "z"}], "forNodes": [{"name": "n0"}]}));
    assert_eq!(of("PreferClose", &[not_ready(0)]), Value::Null);
    assert_eq!(only(&service(json!({})), &many(1))["endpoints"][0]["hints"], Value::Null);
}

fn subsets() {
    let mut world = World::default();
    world.reconcile(&service(json!({})), &[pod(0, json!({})), not_ready(1), leaving(2)]);
    let endpoints = serde_json::to_value(world.endpoints.as_ref().unwrap()).unwrap();
    let ips = |field: &str| -> Vec<Value> {
        endpoints["subsets"][0][field].as_array().unwrap().iter().map(|one| one["ip"].clone()).collect()
    };
    assert_eq!((ips("addresses"), ips("notReadyAddresses")), (vec![json!("10.0.0.1")], vec![json!("10.0.0.2")]));
    assert_eq!(endpoints["subsets"][0]["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    assert_eq!(
        endpoints["metadata"]["labels"],
        json!({"team": "t", "endpoints.kubernetes.io/managed-by": "endpoint-controller"})
    );
    world.reconcile(&service(json!({})), &[]);
    assert_eq!(serde_json::to_value(world.endpoints.as_ref().unwrap()).unwrap()["subsets"], Value::Null);
}

fn over_capacity() {
    let mut world = World::default();
    let mut pods = many(1001);
    pods[0] = not_ready(0);
    world.reconcile(&service(json!({})), &pods);
    let endpoints = serde_json::to_value(world.endpoints.as_ref().unwrap()).unwrap();
    assert_eq!(endpoints["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"], "truncated");
    assert_eq!(endpoints["subsets"][0]["addresses"].as_array().unwrap().len(), 1000, "those that are ready stay");
    assert_eq!(sizes(&world).iter().sum::<usize>(), 1001, "slices have all of them");
}
