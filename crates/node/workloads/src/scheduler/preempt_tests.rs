use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

use super::{
    decide::{Known, Verdict},
    preempt::Budget,
    tests::{at, merge, node, on, pod, verdicts},
};
use crate::world::{Case, parse};

pub const CASES: &[Case] = &[
    ("scheduler/preempts", preempts),
    ("scheduler/preempts-as-few-as-possible", as_few_as_possible),
    ("scheduler/preempts-where-it-costs-least", where_it_costs_least),
    ("scheduler/preemption-and-budgets", budgets),
    ("scheduler/preemption-policy", policy),
    ("scheduler/preemption-does-not-help", does_not_help),
    ("scheduler/nominated-node", nominated),
];

fn important(name: &str, priority: i32, cpu: &str) -> Pod {
    pod(
        name,
        json!({"spec": {"priority": priority, "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        ]}}),
    )
}

fn started(mut pod: Pod, second: i64) -> Pod {
    pod.status = Some(parse(json!({"startTime": format!("2026-01-01T00:00:{second:02}Z")})));
    pod
}

/// The node, and the names of those who go.
fn room(nodes: &[Node], there: &[Pod], one: &Pod, known: &Known) -> Option<(String, Vec<String>)> {
    match verdicts(nodes, there, std::slice::from_ref(one), known).remove(0) {
        Verdict::Preempt { node, victims, .. } => {
            Some((node, victims.iter().map(|pod| pod.metadata.name.clone().unwrap()).collect()))
        }
        _ => None,
    }
}

fn gone(node: &str, victims: &[&str]) -> Option<(String, Vec<String>)> {
    Some((node.to_owned(), victims.iter().map(|name| (*name).to_owned()).collect()))
}

fn two() -> [Node; 2] {
    [node("a", json!({})), node("b", json!({}))]
}

fn preempts() {
    let one = &two()[..1];
    let there = [on("a", important("low", 1, "2"))];
    let none = Known::default();
    assert_eq!(room(one, &there, &important("high", 2, "1"), &none), gone("a", &["low"]));
    assert_eq!(room(one, &there, &important("same", 1, "1"), &none), None);
    let told = verdicts(one, &there, &[important("high", 2, "1")], &none).remove(0);
    let Verdict::Preempt { why, .. } = told else { panic!("{told:?}") };
    assert_eq!(why, "0/1 nodes are available: 1 Insufficient cpu.");
    // Ports, the number of Pods and anti-affinity can be had that way, too.
    let ports = |name: &str, priority: i32| {
        let container = json!({"name": "c", "image": "i", "ports": [{"containerPort": 1, "hostPort": 80}]});
        pod(name, json!({"spec": {"priority": priority, "containers": [container]}}))
    };
    assert_eq!(room(one, &[on("a", ports("low", 0))], &ports("high", 1), &none), gone("a", &["low"]));
    let small = [node("a", json!({"status": {"allocatable": {"pods": "1"}}}))];
    assert_eq!(
        room(&small, &[on("a", important("low", 0, "0"))], &important("high", 1, "0"), &none),
        gone("a", &["low"])
    );
    let mut loner = important("loner", 0, "0");
    loner.spec.as_mut().unwrap().affinity = Some(parse(json!({"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}, "topologyKey": "kubernetes.io/hostname"}]}})));
    assert_eq!(room(one, &[on("a", loner)], &important("high", 1, "0"), &none), gone("a", &["loner"]));
}

fn as_few_as_possible() {
    let one = &two()[..1];
    let there = [
        on("a", important("lowest", -5, "500m")),
        on("a", important("low", 0, "500m")),
        on("a", important("middle", 5, "500m")),
        on("a", important("top", 50, "500m")),
    ];
    let none = Known::default();
    // The least important go, and no more than needed.
    assert_eq!(room(one, &there, &important("high", 10, "500m"), &none), gone("a", &["lowest"]));
    assert_eq!(room(one, &there, &important("high", 10, "1"), &none), gone("a", &["low", "lowest"]));
    assert_eq!(room(one, &there, &important("high", 10, "1500m"), &none), gone("a", &["middle", "low", "lowest"]));
    assert_eq!(room(one, &there, &important("high", 10, "2"), &none), None);
    // Of equals, who has run longer stays.
    let there = [on("a", started(important("older", 0, "1"), 1)), on("a", started(important("younger", 0, "1"), 9))];
    assert_eq!(room(one, &there, &important("high", 1, "1"), &none), gone("a", &["younger"]));
}

fn where_it_costs_least() {
    let none = Known::default();
    let high = important("high", 10, "2");
    for (on_a, on_b, expected) in [
        // The least important of those that are most important.
        (vec![("a1", 5, "2", 1)], vec![("b1", 4, "2", 1)], gone("b", &["b1"])),
        // The smallest sum, and so the fewest.
        (vec![("a1", 5, "1", 1), ("a2", 5, "1", 1)], vec![("b1", 5, "2", 1)], gone("b", &["b1"])),
        (vec![("a1", -5, "1", 1), ("a2", -5, "1", 1)], vec![("b1", -5, "2", 1)], gone("b", &["b1"])),
        // Who has run for the shortest time.
        (vec![("a1", 5, "2", 1)], vec![("b1", 5, "2", 9)], gone("b", &["b1"])),
        (vec![("a1", 5, "2", 9)], vec![("b1", 5, "2", 1)], gone("a", &["a1"])),
    ] {
        let make = |node: &str, all: &[(&str, i32, &str, i64)]| -> Vec<Pod> {
            all.iter()
                .map(|(name, priority, cpu, second)| on(node, started(important(name, *priority, cpu), *second)))
                .collect()
        };
        let there = [make("a", &on_a), make("b", &on_b)].concat();
        assert_eq!(room(&two(), &there, &high, &none), expected, "{on_a:?} {on_b:?}");
    }
}

fn budget(app: &str, allowed: i32, disrupted: &[&str]) -> Known {
    let disrupted: serde_json::Map<String, serde_json::Value> =
        disrupted.iter().map(|name| ((*name).to_owned(), json!("2026-01-01T00:00:00Z"))).collect();
    let budget = parse(json!({
        "metadata": {"name": "b", "namespace": "ns"}, "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed, "disruptedPods": disrupted, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
    }));
    Known { budgets: Budget::new(&budget).into_iter().collect(), ..Known::default() }
}

fn budgets() {
    let high = important("high", 10, "1");
    let one = &two()[..1];
    let there = [on("a", important("kept", 0, "1")), on("a", important("other", 5, "1"))];
    // Rather a more important one than one that a budget protects.
    assert_eq!(room(one, &there, &high, &budget("kept", 0, &[])), gone("a", &["other"]));
    assert_eq!(room(one, &there, &high, &budget("kept", 1, &[])), gone("a", &["kept"]));
    // Another node, then.
    let there = [on("a", important("kept", 0, "2")), on("b", important("other", 5, "2"))];
    assert_eq!(room(&two(), &there, &high, &budget("kept", 0, &[])), gone("b", &["other"]));
    assert_eq!(room(&two(), &there, &high, &budget("kept", 0, &["kept"])), gone("a", &["kept"]), "counted already");
    // But if there is no other way, the budget gives way.
    assert_eq!(room(one, &there, &high, &budget("kept", 0, &[])), gone("a", &["kept"]));
}

fn policy() {
    let there = [on("a", important("low", 0, "2"))];
    let mut polite = important("polite", 10, "1");
    polite.spec.as_mut().unwrap().preemption_policy = Some("Never".into());
    let got = verdicts(&two()[..1], &there, &[polite], &Known::default());
    let why = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.";
    assert_eq!(got, [Verdict::None(why.into())]);
}

fn does_not_help() {
    let nodes = [
        node("a", json!({"spec": {"unschedulable": true}})),
        node("b", json!({})),
        node("c", json!({"status": {"allocatable": {"cpu": "1"}}})),
    ];
    let there = [on("a", important("1", 0, "2")), on("b", important("2", 10, "2")), on("c", important("3", 0, "1"))];
    let got = verdicts(&nodes, &there, &[important("high", 10, "2")], &Known::default());
    let why = "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. no new claims to deallocate, \
               preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.";
    assert_eq!(got, [Verdict::None(why.into())]);
}

fn nominated() {
    let one = &two()[..1];
    let none = Known::default();
    let mut high = important("high", 10, "2");
    high.status = Some(parse(json!({"nominatedNodeName": "a"})));
    let mut victim = important("victim", 0, "2");
    merge_into(
        &mut victim,
        json!({
            "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
        }),
    );
    let there = [on("a", victim)];
    // It waits until they have gone.
    let waits = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to a terminating pod on the nominated node.";
    assert_eq!(verdicts(one, &there, std::slice::from_ref(&high), &none), [Verdict::Waits(waits.into())]);
    // Nobody who is less important, or as important, takes the room meanwhile.
    let same = important("same", 10, "1");
    let low = important("low", 5, "1");
    let got = verdicts(one, &[], &[same.clone(), low.clone(), high.clone()], &none);
    assert!(matches!(&got[..], [Verdict::None(_), Verdict::None(_), Verdict::Node(_)]), "{got:?}");
    // A more important one does.
    let got = verdicts(one, &[], &[important("top", 20, "1"), high.clone()], &none);
    assert!(matches!(&got[..], [Verdict::Node(_), Verdict::None(_)]), "{got:?}");
    // Two who need room do not count on the same.
    let there = [on("a", important("v1", 0, "1")), on("a", important("v2", 1, "1"))];
    let got = verdicts(one, &there, &[important("h1", 10, "1"), important("h2", 10, "1")], &none);
    let names: Vec<Vec<&str>> = got
        .iter()
        .map(|verdict| match verdict {
            Verdict::Preempt { victims, .. } => {
                victims.iter().map(|pod| pod.metadata.name.as_deref().unwrap()).collect()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(names, [["v1"], ["v2"]]);
    // There it goes when there is room, although another node has more.
    high.spec.as_mut().unwrap().containers[0].resources = None;
    assert_eq!(verdicts(&two(), &[on("a", important("x", 0, "1"))], &[high], &none), [at("a")]);
}

/// Who asks for the same as somebody who was refused is refused without another look; who asks for something else, or comes when something changed, is
/// looked at.
#[test]
fn a_refusal_is_not_passed_on_to_who_may_fit() {
    let one = &two()[..1];
    let there = [on("a", important("there", 0, "1"))];
    let (big, small) = (|name: &str| important(name, 0, "2"), |name: &str| important(name, 0, "1"));
    let with_app = |mut pod: Pod| {
        pod.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
        pod
    };
    let pods = [big("1"), big("2"), small("3"), small("4"), big("5")].map(with_app);
    let got = verdicts(one, &there, &pods, &Known::default());
    assert_eq!(got[2], at("a"));
    for at in [0, 1, 3, 4] {
        assert!(
            matches!(&got[at], Verdict::None(why) if why.starts_with("0/1 nodes are available: 1 Insufficient cpu.")),
            "{:?}",
            got[at]
        );
    }
    // One that waited for room and gives it up makes room.
    let mut gives_up = with_app(important("1", 5, "3"));
    gives_up.status = Some(parse(json!({"nominatedNodeName": "a"})));
    let got = verdicts(one, &[], &[gives_up, with_app(important("2", 5, "2"))], &Known::default());
    assert!(matches!(&got[..], [Verdict::None(_), Verdict::Node(_)]), "{got:?}");
}

fn merge_into(pod: &mut Pod, more: serde_json::Value) {
    let mut value = serde_json::to_value(&*pod).unwrap();
    merge(&mut value, more);
    *pod = parse(value);
}
