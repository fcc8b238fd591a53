//! Stories of single pods, told step by step.

use k8s_openapi::api::core::v1::ContainerStatus;
use serde_json::{Value, json};

use super::{story::Story, *};

fn one(policy: &str) -> Value {
    json!({"restartPolicy": policy, "containers": [{"name": "a", "image": "i"}]})
}

#[test]
fn a_pod_comes_up_and_is_ready() {
    let mut story = Story::new(one("Always"));
    assert_eq!((story.phase().as_str(), story.state("a").as_str()), ("Pending", "Waiting ContainerCreating"));
    assert_eq!(story.condition("PodReadyToStartContainers"), "False");
    assert_eq!(story.condition("Ready"), "False ContainersNotReady: containers with unready status: [a]");
    story.go();
    assert_eq!(
        story.events(),
        [
            "Pulled: Container image \"i\" already present on machine and can be accessed by the pod",
            "Created: Container created",
            "Started: Container started"
        ]
    );
    assert_eq!((story.phase().as_str(), story.state("a").as_str()), ("Running", "Running"));
    for name in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        assert_eq!(story.condition(name), "True", "{name}");
    }
    let status = story.status();
    assert_eq!((status.pod_ip.as_deref(), status.host_ip.as_deref()), (Some("127.1.0.5"), Some("10.0.0.1")));
    assert_eq!((status.qos_class.as_deref(), status.observed_generation), (Some("BestEffort"), Some(1)));
    let container = story.container("a");
    assert_eq!(container.container_id.as_deref(), Some("process://u/a/0"));
    assert_eq!((container.started, container.ready, container.restart_count), (Some(true), true, 0));
}

#[test]
fn restart_policies_decide_what_an_end_means() {
    for (policy, code, phase, state) in [
        ("Always", 0, "Running", "Running"),
        ("Always", 1, "Running", "Running"),
        ("OnFailure", 0, "Succeeded", "Terminated Completed 0"),
        ("OnFailure", 1, "Running", "Running"),
        ("Never", 0, "Succeeded", "Terminated Completed 0"),
        ("Never", 3, "Failed", "Terminated Error 3"),
    ] {
        let mut story = Story::new(one(policy));
        story.go().end("a", code);
        assert_eq!((story.phase().as_str(), story.state("a").as_str()), (phase, state), "{policy} {code}");
        let ready = match phase {
            "Succeeded" => "False PodCompleted",
            "Failed" => "False PodFailed",
            _ => "True",
        };
        assert_eq!(story.condition("Ready"), ready);
    }
}

#[test]
fn who_crashes_waits_longer_each_time() {
    let mut story = Story::new(one("Always"));
    story.go();
    for (wait, words) in
        [(0, ""), (10, "10s"), (20, "20s"), (40, "40s"), (80, "1m20s"), (160, "2m40s"), (300, "5m0s"), (300, "5m0s")]
    {
        story.wait(1).end("a", 1);
        if wait > 0 {
            assert_eq!(story.state("a"), "Waiting CrashLoopBackOff");
            let container = story.container("a");
            let message = container.state.unwrap().waiting.unwrap().message.unwrap();
            assert_eq!(message, format!("back-off {words} restarting failed container=a pod=web_shop(u)"));
            assert_eq!(container.last_state.unwrap().terminated.unwrap().exit_code, 1);
            assert_eq!(story.phase(), "Running");
            story.wait(wait - 1);
            assert_eq!(story.state("a"), "Waiting CrashLoopBackOff", "{wait}");
            story.wait(1);
        }
        assert_eq!(story.state("a"), "Running", "{wait}");
    }
    assert_eq!(story.container("a").restart_count, 8);
    // Only the last two runs are kept.
    story.list();
    story.go();
    assert_eq!(story.containers.len(), 2);
    // Ten minutes without a crash, and it starts at once again.
    story.wait(601).end("a", 1);
    assert_eq!(story.state("a"), "Running");
}

#[test]
fn init_containers_run_in_order() {
    let mut story = Story::new(json!({
        "restartPolicy": "Always",
        "initContainers": [{"name": "x", "image": "i"}, {"name": "s", "image": "i", "restartPolicy": "Always"}, {"name": "y", "image": "i"}],
        "containers": [{"name": "b", "image": "i"}, {"name": "a", "image": "i"}],
    }));
    story.go();
    assert_eq!(story.done(), ["start x#0"]);
    assert_eq!((story.phase().as_str(), story.state("a").as_str()), ("Pending", "Waiting PodInitializing"));
    assert_eq!(
        story.condition("Initialized"),
        "False ContainersNotInitialized: containers with incomplete status: [x s y]"
    );
    story.end("x", 1);
    assert_eq!(story.done(), ["start x#1"]);
    story.end("x", 0);
    assert_eq!(story.done(), ["start s#0", "start y#0"]);
    assert_eq!(story.phase(), "Pending");
    story.end("y", 0);
    assert_eq!(story.done(), ["start b#0", "start a#0"]);
    assert_eq!((story.phase().as_str(), story.condition("Initialized").as_str()), ("Running", "True"));
    // In the status, containers are sorted by name, init containers are not.
    let names =
        |list: Option<Vec<ContainerStatus>>| list.unwrap().into_iter().map(|status| status.name).collect::<Vec<_>>();
    assert_eq!(names(story.status().container_statuses), ["a", "b"]);
    assert_eq!(names(story.status().init_container_statuses), ["x", "s", "y"]);
    // A sidecar comes back, whatever it ended with.
    story.end("s", 0);
    assert_eq!(story.done(), ["start s#1"]);
    assert_eq!(story.phase(), "Running");
    // Sidecars end after what they serve.
    story.delete(30);
    assert_eq!(story.done(), ["signal 15 b", "signal 15 a"]);
    story.end("a", 0);
    assert_eq!(story.done(), Vec::<String>::new());
    story.end("b", 0);
    assert_eq!(story.done(), ["signal 15 s"]);
    story.end("s", 0);
    assert_eq!(story.done(), ["delete"]);
    assert_eq!(story.phase(), "Succeeded");
    story.machine.hear(Fact::Gone, story.now);
    story.go();
    assert_eq!(story.done(), ["end"]);
}

#[test]
fn an_init_container_that_fails_for_good_fails_the_pod() {
    let mut spec = one("Never");
    spec["initContainers"] = json!([{"name": "x", "image": "i"}]);
    let mut story = Story::new(spec);
    story.go().end("x", 2);
    assert_eq!((story.phase().as_str(), story.state("x").as_str()), ("Failed", "Terminated Error 2"));
    assert_eq!(story.state("a"), "Waiting PodInitializing");
    assert_eq!(story.done(), ["start x#0"]);
}

#[test]
fn sidecars_end_with_a_job() {
    let mut spec = one("Never");
    spec["initContainers"] = json!([{"name": "s", "image": "i", "restartPolicy": "Always"}, {"name": "t", "image": "i", "restartPolicy": "Always"}]);
    let mut story = Story::new(spec);
    story.go();
    assert_eq!(story.done(), ["start s#0", "start t#0", "start a#0"]);
    story.end("a", 0);
    assert_eq!(story.phase(), "Running");
    assert_eq!(story.done(), ["signal 15 t"]);
    story.end("t", 143);
    assert_eq!(story.done(), ["signal 15 s"]);
    story.end("s", 143);
    assert_eq!((story.phase().as_str(), story.condition("Ready").as_str()), ("Succeeded", "False PodCompleted"));
}

#[test]
fn who_ignores_the_signal_is_killed() {
    let mut story = Story::new(one("Always"));
    story.go().delete(5);
    assert_eq!(story.done(), ["start a#0", "signal 15 a"]);
    assert_eq!(story.phase(), "Running");
    story.wait(4);
    assert_eq!(story.done(), Vec::<String>::new());
    story.wait(1);
    assert_eq!(story.done(), ["signal 9 a", "delete"]);
    assert_eq!((story.phase().as_str(), story.state("a").as_str()), ("Failed", "Terminated Error 137"));
}

#[test]
fn a_second_deletion_may_give_less_time() {
    let mut story = Story::new(one("Always"));
    story.go().delete(600).wait(3).delete(5).wait(1);
    assert_eq!(story.done(), ["start a#0", "signal 15 a"]);
    story.wait(1);
    assert_eq!(story.done(), ["signal 9 a", "delete"]);
}

#[test]
fn a_runtime_that_cannot_begin_says_so_at_the_pod() {
    let mut story = Story::new(one("Always"));
    story.unprepared = Some("the keeper does not start");
    story.go();
    assert_eq!(story.state("a"), "Waiting ContainerCreating");
    assert_eq!(story.events(), ["FailedCreatePodSandBox: Failed to create pod sandbox: the keeper does not start"]);
    story.unprepared = None;
    story.wait(60);
    assert_eq!(story.state("a"), "Running");
}

#[test]
fn a_pod_that_never_started_is_deleted_at_once() {
    let mut story = Story::new(one("Always"));
    story.volumes = Err("configmap \"c\" not found".into());
    story.go();
    assert_eq!(story.state("a"), "Waiting ContainerCreating");
    assert_eq!(
        story.container("a").state.unwrap().waiting.unwrap().message.as_deref(),
        Some("configmap \"c\" not found")
    );
    assert_eq!(story.events(), ["FailedMount: configmap \"c\" not found"]);
    story.delete(30);
    assert_eq!((story.phase().as_str(), story.done()), ("Failed", vec!["delete".to_owned()]));
}

#[test]
fn what_was_missing_is_tried_again() {
    let mut story = Story::new(one("Always"));
    story.volumes = Err("no".into());
    story.go();
    story.volumes = Ok(());
    story.wait(9);
    assert_eq!(story.phase(), "Pending");
    story.wait(1);
    assert_eq!(story.phase(), "Running");
    // And at once when the object appears.
    let mut story = Story::new(one("Always"));
    story.refuses = Some(Failure { reason: "CreateContainerConfigError", message: "secret \"s\" not found".into() });
    story.go();
    assert_eq!(story.state("a"), "Waiting CreateContainerConfigError");
    assert_eq!(story.phase(), "Pending");
    story.refuses = None;
    story.machine.hear(Fact::Sources, story.now);
    story.go();
    assert_eq!((story.phase().as_str(), story.container("a").restart_count), ("Running", 0));
}

#[test]
fn images_that_are_not_there() {
    let mut story = Story::new(one("Always"));
    story.missing.push("i");
    story.go();
    assert_eq!((story.phase().as_str(), story.state("a").as_str()), ("Pending", "Waiting ErrImagePull"));
    story.wait(2);
    assert_eq!(story.state("a"), "Waiting ImagePullBackOff");
    let message = story.container("a").state.unwrap().waiting.unwrap().message.unwrap();
    assert_eq!(message, "Back-off pulling image \"i\": ErrImagePull: no such image");
    story.wait(8);
    assert_eq!(story.state("a"), "Waiting ErrImagePull");
    story.missing.clear();
    story.wait(20);
    assert_eq!(story.state("a"), "Running");
}

#[test]
fn one_end_may_be_a_new_beginning_for_all() {
    let rule = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]);
    let mut story = Story::new(json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "x", "image": "i"}, {"name": "s", "image": "i", "restartPolicy": "Always"}],
        "containers": [
            {"name": "a", "image": "i", "restartPolicy": "Never", "restartPolicyRules": rule},
            {"name": "b", "image": "i"},
        ],
    }));
    story.go().end("x", 0);
    assert_eq!(story.done(), ["start x#0", "start s#0", "start a#0", "start b#0"]);
    assert_eq!(story.condition("AllContainersRestarting"), "False");
    story.end("a", 42);
    assert_eq!(story.done(), ["signal 15 s", "signal 15 b"]);
    let said = "True RestartAllContainersStarted: container exited with restart policy rule";
    assert_eq!((story.phase().as_str(), story.condition("AllContainersRestarting").as_str()), ("Running", said));
    story.end("b", 143).end("s", 143);
    assert_eq!(story.done(), ["start x#1"]);
    assert_eq!((story.phase().as_str(), story.condition("AllContainersRestarting").as_str()), ("Running", "False"));
    // What the runtime still has of before does not matter.
    story.list();
    story.go().end("x", 0);
    assert_eq!(story.done(), ["start s#1", "start a#1", "start b#1"]);
    for name in ["x", "s", "a", "b"] {
        assert_eq!(story.container(name).restart_count, 1, "{name}");
    }
    let last = story.container("a").last_state.unwrap().terminated.unwrap();
    assert_eq!(last.exit_code, 42);
    // Any other end is one.
    story.end("a", 1);
    assert_eq!((story.done(), story.state("a").as_str()), (Vec::new(), "Terminated Error 1"));
}

#[test]
fn what_never_begins_counts_as_a_run() {
    let refused = || Some(Failure { reason: NEVER_BEGAN, message: "no such program".into() });
    let mut story = Story::new(one("Never"));
    story.refuses = refused();
    story.go();
    assert_eq!((story.phase().as_str(), story.state("a").as_str()), ("Failed", "Terminated StartError 128"));
    assert!(story.events().contains(&"Failed: Error: no such program"));
    let mut story = Story::new(one("Always"));
    story.refuses = refused();
    // The second time comes at once, the third after a while.
    story.go();
    assert_eq!((story.phase().as_str(), story.state("a").as_str()), ("Running", "Waiting CrashLoopBackOff"));
    story.refuses = None;
    story.wait(10);
    let container = story.container("a");
    assert_eq!((story.state("a").as_str(), container.restart_count), ("Running", 2));
    story.list();
    let last = story.container("a").last_state.unwrap().terminated.unwrap();
    assert_eq!((last.reason.as_deref(), last.message.as_deref()), (Some("StartError"), Some("no such program")));
}

#[test]
fn what_never_began_is_counted_by_the_next_agent() {
    let mut known = (*super::story::pod(one("Always"))).clone();
    known.status = serde_json::from_value(json!({"phase": "Running", "containerStatuses": [{
        "name": "a", "image": "i", "imageID": "i", "ready": false, "restartCount": 1, "containerID": "process://u/a/1",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 128, "reason": "StartError", "containerID": "process://u/a/1"}},
    }]}))
    .unwrap();
    let mut story = Story::of(Arc::new(known));
    story.go();
    assert_eq!((story.done(), story.container("a").restart_count), (vec!["start a#2".to_owned()], 2));
}

#[test]
fn an_image_that_must_not_be_pulled() {
    let mut spec = one("Always");
    spec["containers"][0]["imagePullPolicy"] = "Never".into();
    let mut story = Story::new(spec);
    story.missing.push("i");
    story.go();
    let said = "Container image \"i\" is not present with pull policy of Never";
    let waiting = story.container("a").state.unwrap().waiting.unwrap();
    assert_eq!((waiting.reason.as_deref(), waiting.message.as_deref()), (Some("ErrImageNeverPull"), Some(said)));
    assert_eq!(story.events(), [&format!("ErrImageNeverPull: {said}"), "Failed: Error: ErrImageNeverPull"]);
    story.wait(5);
    assert_eq!(story.state("a"), "Waiting ErrImageNeverPull");
}

#[test]
fn probes_decide_who_is_started_and_ready() {
    let probe = |more: Value| {
        let mut probe = json!({"exec": {"command": ["x"]}, "periodSeconds": 5, "failureThreshold": 2});
        probe.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        probe
    };
    let mut story = Story::new(json!({"restartPolicy": "Always", "containers": [{
        "name": "a", "image": "i", "startupProbe": probe(json!({})), "readinessProbe": probe(json!({})),
        "livenessProbe": probe(json!({"terminationGracePeriodSeconds": 3})),
    }]}));
    story.go();
    assert_eq!(story.open.len(), 1, "only the startup probe: {:?}", story.open);
    assert_eq!((story.container("a").started, story.container("a").ready), (Some(false), false));
    story.answer("a", Err("not yet")).wait(5).answer("a", Ok(()));
    assert_eq!((story.container("a").started, story.container("a").ready), (Some(true), false));
    assert_eq!(story.condition("Ready"), "False ContainersNotReady: containers with unready status: [a]");
    story.answer("a", Ok(()));
    assert_eq!((story.condition("Ready").as_str(), story.container("a").ready), ("True", true));
    story.wait(5).answer("a", Err("500"));
    assert_eq!(story.condition("Ready"), "True");
    story.wait(5).answer("a", Err("500"));
    assert!(!story.container("a").ready);
    assert!(story.events().contains(&"Unhealthy: Liveness probe failed: 500"));
    assert!(story.events().contains(&"Killing: Container a failed liveness probe, will be restarted"));
    assert_eq!(story.done(), ["start a#0", "signal 15 a"]);
    story.wait(3);
    assert_eq!(story.done(), ["signal 9 a", "start a#1"]);
    assert_eq!((story.container("a").restart_count, story.container("a").started), (1, Some(false)));
}

#[test]
fn hooks_hold_up_what_comes_after() {
    let mut story = Story::new(json!({"restartPolicy": "Always", "containers": [
        {"name": "a", "image": "i", "lifecycle": {"postStart": {"exec": {"command": ["x"]}}, "preStop": {"exec": {"command": ["y"]}}}},
        {"name": "b", "image": "i"},
    ]}));
    story.go();
    assert_eq!(story.done(), ["start a#0", "PostStart a"]);
    assert_eq!((story.state("a").as_str(), story.phase().as_str()), ("Waiting ContainerCreating", "Pending"));
    story.answer("a", Ok(()));
    assert_eq!(story.done(), ["start b#0"]);
    assert_eq!(story.phase(), "Running");
    story.delete(10);
    assert_eq!(story.done(), ["PreStop a", "signal 15 b"]);
    story.end("b", 0).answer("a", Err("exit 1"));
    assert!(story.events().contains(&"FailedPreStopHook: PreStopHook failed: exit 1"));
    assert_eq!(story.done(), ["signal 15 a"]);
    story.end("a", 0);
    assert_eq!(story.done(), ["delete"]);
}

#[test]
fn a_hook_that_fails_after_the_start_ends_the_run() {
    let mut story = Story::new(json!({"restartPolicy": "Always", "containers": [
        {"name": "a", "image": "i", "lifecycle": {"postStart": {"exec": {"command": ["x"]}}}},
    ]}));
    story.go().answer("a", Err("exit 1"));
    assert_eq!(story.done(), ["start a#0", "PostStart a", "signal 15 a"]);
    story.end("a", 143);
    assert_eq!(story.done(), ["start a#1", "PostStart a"]);
    // Its hook before the end runs all the same.
    let mut story = Story::new(json!({"restartPolicy": "Always", "containers": [
        {"name": "a", "image": "i", "lifecycle": {"postStart": {"exec": {"command": ["x"]}}, "preStop": {"exec": {"command": ["y"]}}}},
    ]}));
    story.go().answer("a", Err("exit 1"));
    assert_eq!(story.done(), ["start a#0", "PostStart a", "PreStop a"]);
    story.answer("a", Ok(()));
    assert_eq!(story.done(), ["signal 15 a"]);
}

#[test]
fn a_probe_that_cannot_be_asked_tells_nothing() {
    let mut story = Story::new(json!({"restartPolicy": "Always", "containers": [
        {"name": "a", "image": "i", "livenessProbe": {"exec": {"command": ["x"]}, "periodSeconds": 1, "failureThreshold": 1}},
    ]}));
    story.go();
    for _ in 0..3 {
        story.answer("a", Err("cannot ask: no such program"));
        let said = "Unhealthy: Liveness probe errored and resulted in unknown state: no such program";
        assert!(story.events().contains(&said));
        story.wait(1);
    }
    assert!(!story.done().contains(&"signal 15 a".to_owned()));
    story.answer("a", Err("exit 1"));
    assert_eq!(story.done(), ["signal 15 a"]);
}

#[test]
fn a_pod_has_its_time() {
    let mut spec = one("Always");
    spec["activeDeadlineSeconds"] = 60.into();
    spec["terminationGracePeriodSeconds"] = 5.into();
    let mut story = Story::new(spec);
    story.go().wait(59);
    assert_eq!(story.phase(), "Running");
    story.wait(1);
    assert_eq!(
        (story.phase().as_str(), story.done()),
        ("Running", vec!["start a#0".to_owned(), "signal 15 a".to_owned()])
    );
    story.end("a", 0);
    let status = story.status();
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("DeadlineExceeded")));
    assert_eq!(story.done(), Vec::<String>::new());
}

#[test]
fn of_a_pod_that_is_over_nothing_waits() {
    let mut spec = one("Always");
    spec["activeDeadlineSeconds"] = 60.into();
    let mut story = Story::new(spec.clone());
    story.missing.push("i");
    story.go().wait(60);
    assert_eq!(
        (story.phase().as_str(), story.state("a").as_str()),
        ("Failed", "Terminated ContainerStatusUnknown 137")
    );
    // What comes after an init container that never ended was never to run.
    spec["initContainers"] = json!([{"name": "x", "image": "j"}, {"name": "y", "image": "i"}]);
    let mut story = Story::new(spec);
    story.missing.push("i");
    story.go().end("x", 0).wait(60);
    let states = ["x", "y", "a"].map(|name| story.state(name));
    assert_eq!(states, ["Terminated Completed 0", "Waiting ImagePullBackOff", "Waiting PodInitializing"]);
}

#[test]
fn what_is_mounted_and_granted_is_said_whatever_became_of_it() {
    let mut story = Story::new(json!({"restartPolicy": "Never", "containers": [{
        "name": "a", "image": "i", "resources": {"requests": {"cpu": "10m"}},
        "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true}],
    }], "volumes": [{"name": "v", "emptyDir": {}}]}));
    let mounted = |story: &mut Story| story.container("a").volume_mounts.unwrap()[0].recursive_read_only.clone();
    assert_eq!(mounted(&mut story).as_deref(), Some("Disabled"));
    story.go().end("a", 0);
    assert_eq!(mounted(&mut story).as_deref(), Some("Disabled"));
    let container = story.container("a");
    assert_eq!(container.allocated_resources.unwrap()["cpu"].0, "10m");
    assert!(container.resources.unwrap().requests.is_some());
}

#[test]
fn a_node_that_is_full_says_why() {
    let mut story = Story::new(one("Always"));
    story.machine.hear(Fact::Rejected { reason: "OutOfcpu".into(), message: "Pod was rejected: no".into() }, story.now);
    story.go();
    let status = story.status();
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("OutOfcpu")));
    assert_eq!((status.container_statuses, story.done()), (None, Vec::new()));
    story.delete(30);
    assert_eq!(story.done(), ["delete"]);
}

#[test]
fn an_agent_that_comes_back_restarts_nothing() {
    let spec = json!({"restartPolicy": "Always", "containers": [
        {"name": "a", "image": "i", "readinessProbe": {"exec": {"command": ["x"]}}, "lifecycle": {"postStart": {"exec": {"command": ["x"]}}}},
    ]});
    let mut before = Story::new(spec);
    before.go().answer("a", Ok(())).answer("a", Ok(()));
    assert_eq!(before.condition("Ready"), "True");
    let mut pod = (**before.machine.pod()).clone();
    pod.status = Some(before.status());
    let setting = before.machine.setting.clone();
    let written = before.status();
    let mut after = before;
    after.machine = Machine::new(setting, Arc::new(pod));
    after.done();
    after.list();
    after.go();
    assert_eq!(after.done(), Vec::<String>::new());
    assert_eq!((after.phase().as_str(), after.condition("Ready").as_str()), ("Running", "True"));
    let mut status = after.status();
    // Not known again yet in this story: volumes and address are asked for again, and are the same.
    status.conditions = written.conditions.clone();
    assert_eq!(status, written);
    // One that ended meanwhile is started again.
    after.end("a", 1);
    assert_eq!(after.done(), ["start a#1", "PostStart a"]);
}

#[test]
fn what_the_runtime_lost_is_started_again() {
    let mut story = Story::new(one("Always"));
    story.go().wait(1);
    story.containers.clear();
    story.list();
    story.go();
    assert_eq!(story.done(), ["start a#0", "start a#1"]);
    let last = story.container("a").last_state.unwrap();
    let ended = last.terminated.unwrap();
    assert_eq!((ended.reason.as_deref(), ended.exit_code), (Some("ContainerStatusUnknown"), 137));
    assert_eq!(story.container("a").restart_count, 1);
}

#[test]
fn gates_of_others_count() {
    let mut spec = one("Always");
    spec["readinessGates"] = json!([{"conditionType": "example.com/gate"}]);
    let mut story = Story::new(spec);
    story.go();
    let missing = "False ReadinessGatesNotReady: corresponding condition of pod readiness gate \"example.com/gate\" does not exist.";
    assert_eq!((story.condition("ContainersReady").as_str(), story.condition("Ready").as_str()), ("True", missing));
    story.change(|pod| {
        let gate = json!({"type": "example.com/gate", "status": "True"});
        pod.status.as_mut().unwrap().conditions.as_mut().unwrap().push(serde_json::from_value(gate).unwrap());
    });
    assert_eq!(story.condition("Ready"), "True");
    assert_eq!(story.condition("example.com/gate"), "True");
}

#[test]
fn a_new_image_is_a_new_run() {
    let mut story = Story::new(one("Always"));
    story.go().change(|pod| pod.spec.as_mut().unwrap().containers[0].image = Some("j".into()));
    assert_eq!(story.done(), ["start a#0", "signal 15 a"]);
    story.end("a", 0);
    assert_eq!(story.done(), ["start a#1"]);
    assert_eq!(story.container("a").image, "j");
}

#[test]
fn an_ephemeral_container_joins() {
    let mut story = Story::new(one("Always"));
    story.go().change(|pod| {
        let debug = json!([{"name": "d", "image": "i"}]);
        pod.spec.as_mut().unwrap().ephemeral_containers = serde_json::from_value(debug).unwrap();
    });
    assert_eq!(story.done(), ["start a#0", "start d#0"]);
    story.end("d", 1);
    assert_eq!((story.state("d").as_str(), story.condition("Ready").as_str()), ("Terminated Error 1", "True"));
    assert_eq!(story.done(), Vec::<String>::new());
}

#[test]
fn new_resources_wait_for_the_next_run() {
    let mut story = Story::new(json!({"restartPolicy": "Always", "containers": [{
        "name": "a", "image": "i", "resources": {"requests": {"cpu": "10m"}},
    }]}));
    let granted = |story: &mut Story| story.container("a").resources.unwrap().requests.unwrap()["cpu"].0.clone();
    let waits = |story: &mut Story| {
        let conditions = story.status().conditions.unwrap();
        conditions.into_iter().find(|condition| condition.type_ == "PodResizePending").and_then(|one| one.reason)
    };
    story.go();
    story.change(|pod| {
        let more = json!({"requests": {"cpu": "20m"}});
        pod.spec.as_mut().unwrap().containers[0].resources = serde_json::from_value(more).unwrap();
    });
    assert_eq!((granted(&mut story).as_str(), waits(&mut story).as_deref()), ("10m", Some("Deferred")));
    assert_eq!(story.done(), ["start a#0"]);
    story.end("a", 0);
    assert_eq!(story.done(), ["start a#1"]);
    assert_eq!((granted(&mut story).as_str(), waits(&mut story)), ("20m", None));
}
