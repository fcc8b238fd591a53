use std::{collections::HashSet, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use super::{
    affinity::Namespaces,
    decide::{Known, Scheduler, Verdict, by_priority, is_pending},
    nominated_of,
    request::amounts,
};
use crate::{
    pod,
    world::{Case, parse},
};

pub const CASES: &[Case] = &[
    ("scheduler/whose-pods", whose_pods),
    ("scheduler/resources", resources),
    ("scheduler/requests-of-a-pod", requests_of_a_pod),
    ("scheduler/pod-count", pod_count),
    ("scheduler/node-selector", node_selector),
    ("scheduler/node-affinity", node_affinity),
    ("scheduler/taints", taints),
    ("scheduler/cordoned", cordoned),
    ("scheduler/host-ports", host_ports),
    ("scheduler/pod-affinity", pod_affinity),
    ("scheduler/pod-anti-affinity", pod_anti_affinity),
    ("scheduler/namespaces-of-affinity", namespaces_of_affinity),
    ("scheduler/affinity-label-keys", affinity_label_keys),
    ("scheduler/preferences", preferences),
    ("scheduler/preferences-of-others", preferences_of_others),
    ("scheduler/spreads-a-set", spreads_a_set),
    ("scheduler/priority-order", priority_order),
    ("scheduler/says-why-not", says_why_not),
];

pub fn node(name: &str, more: Value) -> Node {
    let mut value = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "10"}},
    });
    merge(&mut value, more);
    parse(value)
}

pub fn pod(name: &str, more: Value) -> Pod {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    merge(&mut value, more);
    parse(value)
}

pub fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

pub fn asks(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
}

pub fn on(node: &str, mut pod: Pod) -> Pod {
    pod.spec.as_mut().unwrap().node_name = Some(node.into());
    pod
}

/// One after the other, on what is there.
pub fn verdicts(nodes: &[Node], there: &[Pod], pods: &[Pod], known: &Known) -> Vec<Verdict> {
    let nodes: Vec<Arc<Node>> = nodes.iter().cloned().map(Arc::new).collect();
    let there: Vec<Arc<Pod>> = there.iter().chain(pods).cloned().map(Arc::new).collect();
    let placed = |pod: &Pod| pod::node(pod).map(str::to_owned);
    let mut scheduler = Scheduler::new(&nodes, &there, placed, |pod| nominated_of(pod).cloned(), HashSet::new(), known);
    pods.iter().map(|pod| scheduler.schedule(&Arc::new(pod.clone()))).collect()
}

/// Without what is said of preemption.
pub fn schedule(nodes: &[Node], there: &[Pod], pods: &[Pod]) -> Vec<Verdict> {
    let short = |verdict: Verdict| match verdict {
        Verdict::None(why) => Verdict::None(why.split(" no new claims").next().unwrap().to_owned()),
        other => other,
    };
    verdicts(nodes, there, pods, &Known::default()).into_iter().map(short).collect()
}

pub fn at(node: &str) -> Verdict {
    Verdict::Node(node.into())
}

pub fn why(reason: &str) -> Verdict {
    Verdict::None(reason.into())
}

fn whose_pods() {
    assert!(is_pending(&pod("p", json!({}))));
    for more in [
        json!({"spec": {"nodeName": "n"}}),
        json!({"spec": {"schedulerName": "another"}}),
        json!({"spec": {"schedulingGates": [{"name": "g"}]}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"status": {"phase": "Failed"}}),
    ] {
        assert!(!is_pending(&pod("p", more.clone())), "{more}");
    }
}

fn resources() {
    let nodes = [node("a", json!({})), node("b", json!({"status": {"allocatable": {"cpu": "4"}}}))];
    let pods = [pod("1", asks("3")), pod("2", asks("1500m")), pod("3", asks("1")), pod("4", asks("1"))];
    assert_eq!(
        schedule(&nodes, &[], &pods),
        [at("b"), at("a"), at("b"), why("0/2 nodes are available: 2 Insufficient cpu.")]
    );
    let gpu = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"x.example/gpu": "1"}}}]}});
    assert_eq!(
        schedule(&nodes, &[], &[pod("g", gpu)]),
        [why("0/2 nodes are available: 2 Insufficient x.example/gpu.")]
    );
    // What has ended needs nothing; what is ending still does.
    let ended = on("a", pod("e", json!({"status": {"phase": "Succeeded"}, "spec": asks("2")["spec"]})));
    let ending = on(
        "a",
        pod("e", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": asks("2")["spec"]})),
    );
    assert_eq!(schedule(&nodes[..1], &[ended], &[pod("1", asks("2"))]), [at("a")]);
    assert_eq!(schedule(&nodes[..1], &[ending], &[pod("1", asks("2"))]).len(), 1);
}

fn requests_of_a_pod() {
    let container = |cpu: &str| json!({"name": cpu, "image": "i", "resources": {"requests": {"cpu": cpu}}});
    let sidecar = |cpu: &str| {
        let mut sidecar = container(cpu);
        sidecar["restartPolicy"] = "Always".into();
        sidecar
    };
    for (init, containers, more, expected) in [
        (vec![], vec![container("1"), container("500m")], json!({}), 1500),
        (vec![container("3"), container("2")], vec![container("1")], json!({}), 3000),
        (vec![sidecar("1")], vec![container("1")], json!({}), 2000),
        (vec![sidecar("1"), container("3")], vec![container("1")], json!({}), 4000),
        (vec![container("3"), sidecar("1")], vec![container("1")], json!({}), 3000),
        (vec![], vec![container("1")], json!({"overhead": {"cpu": "250m"}}), 1250),
        (vec![], vec![container("1")], json!({"resources": {"requests": {"cpu": "5"}}}), 5000),
    ] {
        let mut spec = json!({"initContainers": init, "containers": containers});
        merge(&mut spec, more);
        let got = amounts(&pod("p", json!({"spec": spec})));
        assert_eq!(got["cpu"], expected, "{spec}");
    }
}

fn pod_count() {
    let nodes = [node("a", json!({"status": {"allocatable": {"pods": "1"}}}))];
    let pods = [pod("1", json!({})), pod("2", json!({}))];
    assert_eq!(schedule(&nodes, &[], &pods), [at("a"), why("0/1 nodes are available: 1 Too many pods.")]);
}

fn node_selector() {
    let nodes = [node("a", json!({})), node("b", json!({"metadata": {"labels": {"disk": "ssd"}}}))];
    let wants = |disk: &str| pod("p", json!({"spec": {"nodeSelector": {"disk": disk}}}));
    assert_eq!(schedule(&nodes, &[], &[wants("ssd")]), [at("b")]);
    let none = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.";
    assert_eq!(schedule(&nodes, &[], &[wants("tape")]), [why(none)]);
}

fn node_affinity() {
    let nodes = [
        node("a", json!({"metadata": {"labels": {"cores": "4"}}})),
        node("b", json!({"metadata": {"labels": {"cores": "16", "zone": "x"}}})),
    ];
    for (terms, expected) in [
        (json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x", "y"]}]}]), Some("b")),
        (json!([{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["x"]}]}]), Some("a")),
        (json!([{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]), Some("b")),
        (json!([{"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}]), Some("a")),
        (json!([{"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["8"]}]}]), Some("b")),
        (json!([{"matchExpressions": [{"key": "cores", "operator": "Lt", "values": ["8"]}]}]), Some("a")),
        (json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]), Some("b")),
        // Terms are alternatives; what is in one holds together.
        (
            json!([{"matchExpressions": [{"key": "no", "operator": "Exists"}]}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]),
            Some("b"),
        ),
        (
            json!([{"matchExpressions": [{"key": "no", "operator": "Exists"}, {"key": "zone", "operator": "Exists"}]}]),
            None,
        ),
        (json!([{}]), None),
    ] {
        let affinity =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        let got = schedule(&nodes, &[], &[pod("p", json!({"spec": {"affinity": affinity}}))]);
        let none = why("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.");
        assert_eq!(got, [expected.map_or(none, at)], "{terms}");
    }
}

fn taints() {
    let tainted = |effect: &str| node("a", json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}}));
    let tolerates = |toleration: Value| pod("p", json!({"spec": {"tolerations": [toleration]}}));
    let refused = why("0/1 nodes are available: 1 node(s) had untolerated taint(s).");
    for (effect, toleration, fits) in [
        ("NoSchedule", None, false),
        ("NoExecute", None, false),
        ("PreferNoSchedule", None, true),
        ("NoSchedule", Some(json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"})), true),
        ("NoSchedule", Some(json!({"key": "k", "value": "v"})), true),
        ("NoSchedule", Some(json!({"key": "k", "value": "w"})), false),
        ("NoSchedule", Some(json!({"key": "k", "operator": "Exists"})), true),
        ("NoSchedule", Some(json!({"operator": "Exists"})), true),
        ("NoSchedule", Some(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"})), false),
        ("NoSchedule", Some(json!({"key": "other", "operator": "Exists"})), false),
    ] {
        let pod = toleration.clone().map_or_else(|| pod("p", json!({})), tolerates);
        let got = schedule(&[tainted(effect)], &[], &[pod]);
        assert_eq!(got == [at("a")], fits, "{effect} {toleration:?}");
        assert!(fits || got == [refused.clone()], "{got:?}");
    }
}

fn cordoned() {
    let nodes = [node("a", json!({"spec": {"unschedulable": true}}))];
    let none = "0/1 nodes are available: 1 node(s) were unschedulable.";
    assert_eq!(schedule(&nodes, &[], &[pod("p", json!({}))]), [why(none)]);
    let toleration =
        json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}});
    assert_eq!(schedule(&nodes, &[], &[pod("p", toleration)]), [at("a")]);
}

fn host_ports() {
    let nodes = [node("a", json!({}))];
    let wants = |name: &str, port: Value| {
        pod(name, json!({"spec": {"containers": [{"name": "c", "image": "i", "ports": [port]}]}}))
    };
    let none = || why("0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.");
    let pods = [
        wants("1", json!({"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1"})),
        wants("2", json!({"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.2"})),
        wants("3", json!({"containerPort": 80, "hostPort": 8080, "protocol": "UDP"})),
        wants("4", json!({"containerPort": 80})),
        wants("5", json!({"containerPort": 80, "hostPort": 8080})),
        wants("6", json!({"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1"})),
    ];
    assert_eq!(schedule(&nodes, &[], &pods), [at("a"), at("a"), at("a"), at("a"), none(), none()]);
}

fn near(kind: &str, app: &str, topology: &str) -> Value {
    json!({"spec": {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology}
    ]}}}})
}

pub fn zoned() -> [Node; 3] {
    [("a", "x"), ("b", "x"), ("c", "y")].map(|(name, zone)| node(name, json!({"metadata": {"labels": {"zone": zone}}})))
}

fn pod_affinity() {
    let there = [on("c", pod("db", json!({})))];
    assert_eq!(schedule(&zoned(), &there, &[pod("web", near("podAffinity", "db", "zone"))]), [at("c")]);
    let none = "0/3 nodes are available: 3 node(s) didn't match pod affinity rules.";
    assert_eq!(schedule(&zoned(), &[], &[pod("web", near("podAffinity", "db", "zone"))]), [why(none)]);
    // The first of those that want to be together goes anywhere; the next follows.
    let together = |name: &str| {
        pod(name, json!({"metadata": {"labels": {"app": "g"}}, "spec": near("podAffinity", "g", "zone")["spec"]}))
    };
    let verdicts = schedule(&zoned(), &[], &[together("1"), together("2")]);
    let zone = |verdict: &Verdict| if *verdict == at("c") { "y" } else { "x" };
    assert!(
        verdicts.iter().all(|verdict| matches!(verdict, Verdict::Node(_))) && zone(&verdicts[0]) == zone(&verdicts[1])
    );
}

fn pod_anti_affinity() {
    let apart = |name: &str| {
        pod(
            name,
            json!({"metadata": {"labels": {"app": "s"}}, "spec": near("podAntiAffinity", "s", "kubernetes.io/hostname")["spec"]}),
        )
    };
    let verdicts = schedule(&zoned(), &[], &[apart("1"), apart("2"), apart("3"), apart("4")]);
    let mut nodes: Vec<String> = verdicts[..3].iter().map(|verdict| format!("{verdict:?}")).collect();
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 3);
    assert_eq!(verdicts[3], why("0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules."));
    // Who is there already may not want company, either.
    let loner = on("a", pod("loner", near("podAntiAffinity", "web", "zone")));
    assert_eq!(schedule(&zoned(), std::slice::from_ref(&loner), &[pod("web", json!({}))]), [at("c")]);
    let none = "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules.";
    assert_eq!(schedule(&zoned()[..2], &[loner], &[pod("web", json!({}))]), [why(none)]);
}

fn namespaces_of_affinity() {
    let there = [on("c", pod("db", json!({"metadata": {"namespace": "data"}})))];
    let namespaces: Namespaces = [("data".to_owned(), [("team".to_owned(), "d".to_owned())].into())].into();
    let known = Known { namespaces, ..Known::default() };
    for (more, found) in [
        (json!({}), false),
        (json!({"namespaces": ["data"]}), true),
        (json!({"namespaceSelector": {}}), true),
        (json!({"namespaceSelector": {"matchLabels": {"team": "d"}}}), true),
        (json!({"namespaceSelector": {"matchLabels": {"team": "e"}}}), false),
    ] {
        let mut web = near("podAffinity", "db", "zone");
        let term = &mut web["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
        merge(term, more.clone());
        let verdict = verdicts(&zoned(), &there, &[pod("web", web)], &known).remove(0);
        assert_eq!(verdict == at("c"), found, "{more}");
    }
}

fn affinity_label_keys() {
    let there = [on("c", pod("db", json!({"metadata": {"labels": {"version": "1"}}})))];
    for (keys, version, found) in [
        ("matchLabelKeys", "1", true),
        ("matchLabelKeys", "2", false),
        ("mismatchLabelKeys", "1", false),
        ("mismatchLabelKeys", "2", true),
    ] {
        let mut web = near("podAffinity", "db", "zone");
        let term = &mut web["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
        // A key that the Pod does not have says nothing.
        term[keys] = json!(["version", "other"]);
        web["metadata"] = json!({"labels": {"version": version}});
        assert_eq!(schedule(&zoned(), &there, &[pod("web", web)]) == [at("c")], found, "{keys} {version}");
    }
}

fn preferences_of_others() {
    // Who is there would rather have it near, or not.
    for (kind, is_near) in [("podAffinity", true), ("podAntiAffinity", false)] {
        let wish = json!({"spec": {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "podAffinityTerm": {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}}
        ]}}}});
        let got = schedule(&zoned(), &[on("c", pod("db", wish))], &[pod("web", json!({}))]);
        assert_eq!(got == [at("c")], is_near, "{kind}");
    }
}

fn preferences() {
    let nodes = zoned();
    let prefers = json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["y"]}]}}
    ]}}}});
    assert_eq!(schedule(&nodes, &[], &[pod("p", prefers)]), [at("c")]);
    let rather = |kind: &str| {
        json!({"spec": {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "podAffinityTerm": {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}}
        ]}}}})
    };
    let there = [on("c", pod("db", json!({})))];
    assert_eq!(schedule(&nodes, &there, &[pod("p", rather("podAffinity"))]), [at("c")]);
    assert_ne!(schedule(&nodes, &there, &[pod("p", rather("podAntiAffinity"))]), [at("c")]);
    let disliked =
        [node("a", json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}})), node("b", json!({}))];
    assert_eq!(schedule(&disliked, &[], &[pod("p", json!({}))]), [at("b")]);
    // Where there is more room.
    let nodes = [node("a", json!({})), node("b", json!({}))];
    assert_eq!(schedule(&nodes, &[on("a", pod("x", asks("1")))], &[pod("p", json!({}))]), [at("b")]);
}

fn spreads_a_set() {
    let owner = json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "s", "uid": "s", "controller": true}]});
    let of_set = |name: &str| pod(name, json!({"metadata": owner}));
    let nodes = [node("a", json!({"status": {"allocatable": {"cpu": "64", "memory": "64Gi"}}})), node("b", json!({}))];
    let verdicts = schedule(&nodes, &[], &[of_set("1"), of_set("2")]);
    assert_ne!(verdicts[0], verdicts[1]);
}

fn priority_order() {
    let at_second = |name: &str, priority: i32, second: i64| {
        pod(
            name,
            json!({"metadata": {"creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")}, "spec": {"priority": priority}}),
        )
    };
    let mut pods = [at_second("c", 0, 2), at_second("b", 0, 1), at_second("a", 100, 3), at_second("d", -5, 0)];
    pods.sort_by(by_priority);
    let names: Vec<&str> = pods.iter().map(|pod| pod.metadata.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
}

fn says_why_not() {
    assert_eq!(schedule(&[], &[], &[pod("p", json!({}))]), [why("no nodes available to schedule pods")]);
    let nodes = [
        node("a", json!({"spec": {"unschedulable": true}})),
        node("b", json!({"status": {"allocatable": {"cpu": "100m", "memory": "1Ki"}}})),
        node("c", json!({"status": {"allocatable": {"cpu": "100m"}}})),
    ];
    let pod = pod(
        "p",
        json!({"spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Mi"}}}
        ]}}),
    );
    let expected = "0/3 nodes are available: 1 Insufficient memory, 1 node(s) were unschedulable, 2 Insufficient cpu.";
    assert_eq!(schedule(&nodes, &[], &[pod]), [why(expected)]);
}
