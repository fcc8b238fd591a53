//! Random pods in random worlds: whatever happens, in whatever order, what must hold does.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{story::Story, *};
use crate::runtime::Container;

#[derive(Clone, Debug)]
enum Happens {
    Ends {
        which: usize,
        code: i32,
    },
    Answered {
        which: usize,
        ok: bool,
    },
    Passes {
        seconds: u64,
    },
    Lists,
    /// A list that was made a while ago.
    ListsLate,
    Deleted {
        grace: i64,
    },
    Vanished,
    Restarted,
    Image {
        is_there: bool,
    },
    Loses,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => (0..5_usize, prop_oneof![Just(0), Just(1)]).prop_map(|(which, code)| Happens::Ends { which, code }),
        6 => (0..8_usize, any::<bool>()).prop_map(|(which, ok)| Happens::Answered { which, ok }),
        6 => (0..40_u64).prop_map(|seconds| Happens::Passes { seconds }),
        1 => (100..900_u64).prop_map(|seconds| Happens::Passes { seconds }),
        2 => Just(Happens::Lists),
        2 => Just(Happens::ListsLate),
        1 => (0..20_i64).prop_map(|grace| Happens::Deleted { grace }),
        1 => Just(Happens::Vanished),
        2 => Just(Happens::Restarted),
        1 => any::<bool>().prop_map(|is_there| Happens::Image { is_there }),
        1 => Just(Happens::Loses),
    ]
}

fn container(name: String) -> impl Strategy<Value = Value> {
    (any::<[bool; 5]>(), 1..3_i32).prop_map(move |([startup, readiness, liveness, before, after], failures)| {
        let probe = json!({"exec": {"command": ["x"]}, "periodSeconds": 3, "failureThreshold": failures});
        let hook = json!({"exec": {"command": ["x"]}});
        let mut container = json!({"name": name, "image": "i", "lifecycle": {}});
        for (is, field) in [(startup, "startupProbe"), (readiness, "readinessProbe"), (liveness, "livenessProbe")] {
            if is {
                container[field] = probe.clone();
            }
        }
        for (is, field) in [(before, "postStart"), (after, "preStop")] {
            if is {
                container["lifecycle"][field] = hook.clone();
            }
        }
        container
    })
}

fn spec() -> impl Strategy<Value = Value> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    let init = prop::collection::vec(any::<bool>(), 0..3);
    (policy, init, prop::collection::vec(container(String::new()), 1..3), prop::option::of(50..500_i64)).prop_map(
        |(policy, init, mut mains, deadline)| {
            for (index, main) in mains.iter_mut().enumerate() {
                main["name"] = format!("m{index}").into();
            }
            let init: Vec<Value> = init
                .into_iter()
                .enumerate()
                .map(|(index, is_sidecar)| {
                    let mut container = json!({"name": format!("i{index}"), "image": "i"});
                    if is_sidecar {
                        container["restartPolicy"] = "Always".into();
                    }
                    container
                })
                .collect();
            let mut spec = json!({"restartPolicy": policy, "initContainers": init, "containers": mains, "terminationGracePeriodSeconds": 10});
            if let Some(deadline) = deadline {
                spec["activeDeadlineSeconds"] = deadline.into();
            }
            spec
        },
    )
}

fn rank(phase: &str) -> u8 {
    match phase {
        "Pending" => 0,
        "Running" => 1,
        _ => 2,
    }
}

/// What holds at every moment.
fn check(story: &mut Story, before: &mut String) {
    let status = story.status();
    let phase = status.phase.clone().unwrap();
    assert!(rank(&phase) > rank(before) || phase == *before, "{before} became {phase}");
    before.clone_from(&phase);
    let mut running = BTreeSet::new();
    for container in story.containers.values().filter(|container| container.exit.is_none()) {
        assert!(running.insert(container.id.name.clone()), "two runs of {}", container.id.name);
    }
    let pod = story.machine.pod().clone();
    let spec = pod.spec.as_ref().unwrap();
    let condition = |name: &str| {
        let conditions = status.conditions.as_ref().unwrap();
        conditions.iter().find(|condition| condition.type_ == name).unwrap().status == "True"
    };
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let all: Vec<_> = lists.into_iter().flatten().flatten().collect();
    let of = |name: &str| *all.iter().find(|status| status.name == name).unwrap();
    if condition("Ready") {
        for main in &spec.containers {
            assert!(of(&main.name).ready && running.contains(&main.name), "{} is not ready", main.name);
        }
        assert_eq!(phase, "Running");
    }
    for status in &all {
        assert!(!status.ready || status.started == Some(true) || status.state.as_ref().unwrap().terminated.is_some());
    }
    // Nothing that comes later has ever run before what has to come first.
    let mut may_follow = true;
    for init in spec.init_containers.iter().flatten() {
        let runs = || story.containers.values().filter(|container| container.id.name == init.name);
        assert!(may_follow || runs().next().is_none(), "{} came too early", init.name);
        let is_sidecar = init.restart_policy.is_some();
        may_follow &= if is_sidecar {
            runs().next().is_some()
        } else {
            runs().any(|run| run.exit.as_ref().is_some_and(|exit| exit.code == 0))
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens(spec in spec(), story in prop::collection::vec(happens(), 0..60)) {
        tell(spec, story);
    }
}

fn tell(spec: Value, happens: Vec<Happens>) {
    let mut story = Story::new(spec);
    let mut phase = "Pending".to_owned();
    let mut late: Vec<Container> = Vec::new();
    let mut asked = story.now.mono;
    let mut has_lost = false;
    story.go();
    for event in happens {
        match event {
            Happens::Ends { which, code } => {
                let running: Vec<String> = story
                    .containers
                    .values()
                    .filter(|known| known.exit.is_none())
                    .map(|known| known.id.name.clone())
                    .collect();
                if let Some(name) = running.get(which % running.len().max(1)) {
                    story.end(&name.clone(), code);
                }
            }
            Happens::Answered { which, ok } => {
                if !story.open.is_empty() {
                    let action = story.open.remove(which % story.open.len());
                    let result = if ok { Ok(()) } else { Err("no".to_owned()) };
                    let fact = match action {
                        Action::Hook { id, hook, .. } => Fact::Hooked { id, hook, result },
                        Action::Probe { id, probe } => Fact::Probed { id, probe, result: result.map_err(Miss::Failed) },
                        _ => continue,
                    };
                    story.machine.hear(fact, story.now);
                    story.go();
                }
            }
            Happens::Passes { seconds } => {
                late = story.containers.values().cloned().collect();
                asked = story.now.mono;
                story.wait(seconds);
            }
            Happens::Lists => {
                story.list();
                story.go();
            }
            Happens::ListsLate => {
                story.machine.hear(Fact::Containers { asked, containers: late.clone() }, story.now);
                story.go();
            }
            Happens::Deleted { grace } => {
                if story.machine.pod().metadata.deletion_timestamp.is_none() {
                    story.delete(grace);
                }
            }
            Happens::Vanished => {
                story.machine.hear(Fact::Gone, story.now);
                story.go();
            }
            Happens::Restarted => {
                let mut pod = (**story.machine.pod()).clone();
                pod.status = Some(story.status());
                let is_gone = story.machine.is_gone;
                story.machine = Machine::new(story.machine.setting.clone(), Arc::new(pod));
                if is_gone {
                    story.machine.hear(Fact::Gone, story.now);
                }
                story.open.clear();
                late.clear();
                asked = Duration::ZERO;
                story.list();
                story.go();
            }
            Happens::Image { is_there } => story.missing = if is_there { Vec::new() } else { vec!["i"] },
            Happens::Loses => {
                // The runtime forgets how something ended: rare, but no reason to do anything twice.
                let ended = story.containers.iter().find(|(_, known)| known.exit.is_some()).map(|(key, _)| key.clone());
                if let Some(key) = ended.filter(|key| key.0.starts_with('m')) {
                    story.containers.remove(&key);
                    has_lost = true;
                }
            }
        }
        if !has_lost {
            check(&mut story, &mut phase);
        }
    }
    // Whatever was, a pod that is deleted ends, without help from its containers.
    if story.machine.pod().metadata.deletion_timestamp.is_none() {
        story.delete(10);
    }
    story.wait(60);
    assert!(story.containers.values().all(|container| container.exit.is_some()), "something still runs");
    let is_over = story.done.iter().any(|done| done == "delete" || done == "end");
    assert!(is_over, "it was not taken out of the API: {:?}", story.done);
    story.machine.hear(Fact::Gone, story.now);
    story.go();
    assert!(story.machine.is_ended);
    story.done();
}
