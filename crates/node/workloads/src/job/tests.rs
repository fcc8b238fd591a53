use jiff::SignedDuration;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use serde_json::{Value, json};

use super::{
    decide::{decide, expires},
    finished,
    model::World,
    pod,
};
use crate::{
    world::Case,
    world::{at, parse},
};

pub const CASES: &[Case] = &[
    ("job/parallelism", parallelism),
    ("job/completions", completions),
    ("job/work-queue", work_queue),
    ("job/indexed", indexed),
    ("job/indexed-pod", indexed_pod),
    ("job/backoff-limit", backoff_limit),
    ("job/back-off", back_off),
    ("job/restarts-on-failure", restarts_on_failure),
    ("job/backoff-limit-per-index", backoff_limit_per_index),
    ("job/max-failed-indexes", max_failed_indexes),
    ("job/active-deadline", active_deadline),
    ("job/ttl-after-finished", ttl_after_finished),
    ("job/suspend", suspend),
    ("job/scale-down", scale_down),
    ("job/tracking-finalizer", tracking_finalizer),
    ("job/failure-policy-fail-job", failure_policy_fail_job),
    ("job/failure-policy-ignore", failure_policy_ignore),
    ("job/failure-policy-condition", failure_policy_condition),
    ("job/success-policy", success_policy),
    ("job/replacement-policy", replacement_policy),
    ("job/waits-for-terminating", waits_for_terminating),
    ("job/managed-by", managed_by),
    ("job/refused", refused),
];

fn status(world: &World) -> Value {
    serde_json::to_value(world.job().status.as_ref().unwrap()).unwrap()
}

fn reason(world: &World) -> (Option<&str>, String) {
    let job = world.job();
    let how = finished(job);
    let conditions = job.status.as_ref().unwrap().conditions.iter().flatten();
    let mut found = conditions.filter(|one| Some(one.type_.as_str()) == how).filter_map(|one| one.reason.clone());
    (how, found.next().unwrap_or_default())
}

/// All Pods that run by now end.
fn end_all(world: &mut World, phase: &str) {
    for key in world.all() {
        world.end(&key, phase);
    }
    world.settle();
}

fn active(world: &World) -> usize {
    world.count(pod::is_active)
}

fn parallelism() {
    let mut world = World::new(json!({"completions": 5, "parallelism": 2}));
    world.settle();
    assert_eq!(active(&world), 2);
    assert_eq!((&status(&world)["active"], &status(&world)["ready"]), (&json!(2), &json!(0)));
    end_all(&mut world, "Succeeded");
    assert_eq!((active(&world), &status(&world)["succeeded"]), (2, &json!(2)));
    end_all(&mut world, "Succeeded");
    assert_eq!(active(&world), 1, "no more than are needed");
}

fn completions() {
    let mut world = World::new(json!({"completions": 3, "parallelism": 3}));
    world.settle();
    end_all(&mut world, "Succeeded");
    assert_eq!(reason(&world), (Some("Complete"), "CompletionsReached".to_owned()));
    assert_eq!(status(&world)["succeeded"], 3);
    assert!(status(&world)["completionTime"].is_string() && status(&world)["startTime"].is_string());
    assert_eq!(status(&world)["active"], Value::Null);
    assert_eq!(world.reasons, ["Completed"]);
    let mut none = World::new(json!({"completions": 0, "parallelism": 3}));
    none.settle();
    assert_eq!((reason(&none).0, active(&none)), (Some("Complete"), 0));
    assert!(status(&none)["startTime"].is_string());
}

fn work_queue() {
    let mut world = World::new(json!({"parallelism": 3}));
    world.settle();
    let first = world.all()[0].clone();
    world.end(&first, "Succeeded");
    world.settle();
    assert_eq!((active(&world), reason(&world).0), (2, None), "one success is enough, but the others may finish");
    end_all(&mut world, "Failed");
    assert_eq!((active(&world), reason(&world).0), (0, Some("Complete")));
}

fn indexes_of(world: &World) -> Vec<i32> {
    let mut all: Vec<i32> =
        world.pods.objects.values().filter(|pod| pod::is_active(pod)).filter_map(pod::index).collect();
    all.sort_unstable();
    all
}

fn indexed() {
    let mut world = World::new(json!({"completions": 4, "parallelism": 3, "completionMode": "Indexed"}));
    world.settle();
    assert_eq!(indexes_of(&world), [0, 1, 2]);
    let second = world.pods.objects.iter().find(|(_, pod)| pod::index(pod) == Some(1)).unwrap().0.clone();
    world.end(&second, "Succeeded");
    world.settle();
    assert_eq!((indexes_of(&world), status(&world)["completedIndexes"].clone()), (vec![0, 2, 3], json!("1")));
    let failed = world.pods.objects.iter().find(|(_, pod)| pod::index(pod) == Some(2)).unwrap().0.clone();
    world.end(&failed, "Failed");
    world.wait(60);
    world.settle();
    assert_eq!(indexes_of(&world), [0, 2, 3], "the same index again");
    end_all(&mut world, "Succeeded");
    assert_eq!((reason(&world).0, &status(&world)["completedIndexes"]), (Some("Complete"), &json!("0-3")));
}

fn indexed_pod() {
    let job: Job = parse(
        json!({"metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "spec": {"completions": 2, "completionMode": "Indexed",
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}, {"name": "d", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "x"}]}]}}}}),
    );
    let plan = decide(&job, &[], at(0));
    let made: Value = serde_json::to_value(&plan.create[0]).unwrap();
    assert_eq!(made["metadata"]["generateName"], "j-0-");
    assert_eq!(made["spec"]["hostname"], "j-0");
    assert_eq!(made["metadata"]["labels"], json!({"a": "b", pod::INDEX: "0"}));
    assert_eq!(made["metadata"]["annotations"], json!({pod::INDEX: "0"}));
    assert_eq!(made["metadata"]["finalizers"], json!([pod::FINALIZER]));
    let env = &made["spec"]["containers"][0]["env"][0];
    assert_eq!(env["valueFrom"]["fieldRef"]["fieldPath"], format!("metadata.labels['{}']", pod::INDEX));
    assert_eq!(made["spec"]["containers"][1]["env"], json!([{"name": "JOB_COMPLETION_INDEX", "value": "x"}]));
    let owner = &made["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["controller"], &owner["uid"]), (&json!("Job"), &json!(true), &json!("u")));
}

fn backoff_limit() {
    let mut world = World::new(json!({"completions": 1, "parallelism": 1, "backoffLimit": 1}));
    world.settle();
    end_all(&mut world, "Failed");
    assert_eq!(reason(&world).0, None);
    world.wait(60);
    world.settle();
    assert_eq!(active(&world), 1);
    end_all(&mut world, "Failed");
    assert_eq!(reason(&world), (Some("Failed"), "BackoffLimitExceeded".to_owned()));
    assert_eq!((&status(&world)["failed"], active(&world)), (&json!(2), 0));
    assert_eq!(world.reasons, ["BackoffLimitExceeded"]);
}

fn back_off() {
    let mut world = World::new(json!({"completions": 9, "parallelism": 1, "backoffLimit": 9}));
    world.settle();
    for wait in [10, 20, 40, 80] {
        end_all(&mut world, "Failed");
        world.wait(wait - 1);
        world.settle();
        assert_eq!(active(&world), 0, "{wait} s are not over yet");
        let shown: Vec<Pod> = world.pods.objects.values().cloned().collect();
        let plan = decide(world.job(), &shown.iter().collect::<Vec<_>>(), world.now);
        assert_eq!(plan.again.map(|again| again.as_secs()), Some(1));
        world.wait(1);
        world.settle();
        assert_eq!(active(&world), 1, "after {wait} s");
    }
    end_all(&mut world, "Succeeded");
    assert_eq!(active(&world), 1, "a success ends the waiting");
}

fn restarts_on_failure() {
    let mut world = World::new(json!({"completions": 1, "parallelism": 1, "backoffLimit": 2}));
    world.jobs.change(&World::key(), |job| {
        job.spec.as_mut().unwrap().template.spec.as_mut().unwrap().restart_policy = Some("OnFailure".into());
    });
    world.settle();
    let key = world.all()[0].clone();
    for (restarts, ends) in [(1, None), (2, Some("Failed"))] {
        world.pods.change(&key, |pod| {
            let one = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": restarts});
            pod.status.get_or_insert_default().container_statuses = Some(vec![parse(one)]);
        });
        world.settle();
        assert_eq!(reason(&world).0, ends, "{restarts} restarts");
    }
}

fn backoff_limit_per_index() {
    let mut world =
        World::new(json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1,
        "backoffLimit": 2147483647}));
    world.settle();
    for _ in 0..2 {
        let first =
            world.pods.objects.iter().find(|(_, pod)| pod::index(pod) == Some(0) && pod::is_active(pod)).unwrap();
        let first = first.0.clone();
        world.end(&first, "Failed");
        world.settle();
        world.wait(60);
        world.settle();
    }
    assert_eq!((indexes_of(&world), &status(&world)["failedIndexes"]), (vec![1], &json!("0")));
    assert_eq!(reason(&world).0, None, "the other index goes on");
    end_all(&mut world, "Succeeded");
    assert_eq!(reason(&world), (Some("Failed"), "FailedIndexes".to_owned()));
    assert_eq!((&status(&world)["completedIndexes"], &status(&world)["failed"]), (&json!("1"), &json!(2)));
}

fn max_failed_indexes() {
    let mut world =
        World::new(json!({"completions": 5, "parallelism": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 0,
        "maxFailedIndexes": 1, "backoffLimit": 2147483647}));
    world.settle();
    end_all(&mut world, "Failed");
    assert_eq!(reason(&world), (Some("Failed"), "MaxFailedIndexesExceeded".to_owned()));
}

fn active_deadline() {
    let mut world = World::new(json!({"completions": 1, "parallelism": 1, "activeDeadlineSeconds": 30}));
    world.settle();
    let shown: Vec<Pod> = world.pods.objects.values().cloned().collect();
    let plan = decide(world.job(), &shown.iter().collect::<Vec<_>>(), world.now);
    assert_eq!(plan.again.map(|again| again.as_secs()), Some(30));
    world.wait(30);
    world.settle();
    assert_eq!(reason(&world), (Some("Failed"), "DeadlineExceeded".to_owned()));
    assert_eq!(active(&world), 0);
}

fn ttl_after_finished() {
    let mut world = World::new(json!({"completions": 1, "parallelism": 1, "ttlSecondsAfterFinished": 100}));
    world.settle();
    assert_eq!(expires(world.job()), None);
    end_all(&mut world, "Succeeded");
    assert_eq!(expires(world.job()), at(0).checked_add(SignedDuration::from_secs(100)).ok());
}

fn suspend() {
    let mut world = World::new(json!({"completions": 2, "parallelism": 2, "suspend": true}));
    world.settle();
    assert_eq!((active(&world), &status(&world)["startTime"]), (0, &Value::Null));
    assert_eq!(status(&world)["conditions"][0]["type"], "Suspended");
    let to = |world: &mut World, suspend: bool| {
        world.jobs.change(&World::key(), |job| job.spec.as_mut().unwrap().suspend = Some(suspend));
        world.settle();
    };
    to(&mut world, false);
    assert_eq!((active(&world), &status(&world)["conditions"][0]["status"]), (2, &json!("False")));
    assert!(status(&world)["startTime"].is_string());
    to(&mut world, true);
    assert_eq!((active(&world), &status(&world)["failed"]), (0, &Value::Null), "being suspended is no failure");
    assert_eq!(world.reasons, ["Suspended", "Resumed", "Suspended"]);
}

fn scale_down() {
    let mut world = World::new(json!({"completions": 5, "parallelism": 3}));
    world.settle();
    let ready = world.all()[2].clone();
    world.pods.start(&ready, "n");
    world.pods.set_ready(&ready, true, at(0));
    world.jobs.change(&World::key(), |job| job.spec.as_mut().unwrap().parallelism = Some(1));
    world.settle();
    assert_eq!((active(&world), &status(&world)["failed"]), (1, &Value::Null));
    assert!(world.pods.objects.contains_key(&ready), "the one that is ready stays");
}

fn tracking_finalizer() {
    let mut world = World::new(json!({"completions": 2, "parallelism": 1}));
    world.settle();
    let key = world.all()[0].clone();
    let uid = world.pods.objects[&key].metadata.uid.clone().unwrap();
    world.end(&key, "Succeeded");
    world.show_all();
    // The next Pod is made, the status written, and nothing more.
    world.reconcile(2);
    assert_eq!(status(&world)["uncountedTerminatedPods"], json!({"succeeded": [uid]}), "written down first");
    assert!(pod::is_tracked(&world.pods.objects[&key]) && status(&world)["succeeded"].is_null());
    world.settle();
    assert!(!pod::is_tracked(&world.pods.objects[&key]));
    assert_eq!((&status(&world)["uncountedTerminatedPods"], &status(&world)["succeeded"]), (&json!({}), &json!(1)));
}

fn with_policy(rules: Value) -> World {
    World::new(json!({"completions": 2, "parallelism": 1, "backoffLimit": 0, "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": rules}}))
}

fn failure_policy_fail_job() {
    let rule = |operator: &str, values: &[i32]| json!({"action": "FailJob", "onExitCodes": {"operator": operator, "values": values}});
    for (rule, expected) in [
        (rule("In", &[1]), "PodFailurePolicy"),
        (rule("In", &[2]), "BackoffLimitExceeded"),
        (rule("NotIn", &[2]), "PodFailurePolicy"),
    ] {
        let mut world = with_policy(json!([rule]));
        world.settle();
        end_all(&mut world, "Failed");
        assert_eq!(reason(&world), (Some("Failed"), expected.to_owned()), "{rule}");
    }
}

fn failure_policy_ignore() {
    let mut world = with_policy(json!([{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}}]));
    world.settle();
    end_all(&mut world, "Failed");
    world.wait(60);
    world.settle();
    assert_eq!((reason(&world).0, active(&world), &status(&world)["failed"]), (None, 1, &Value::Null));
}

fn failure_policy_condition() {
    let mut world =
        with_policy(json!([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]));
    world.settle();
    let key = world.all()[0].clone();
    world.pods.change(&key, |pod| {
        pod.status.get_or_insert_default().conditions =
            Some(vec![parse(json!({"type": "DisruptionTarget", "status": "True"}))]);
    });
    end_all(&mut world, "Failed");
    assert_eq!((reason(&world).0, &status(&world)["failed"]), (None, &Value::Null));
}

fn success_policy() {
    for (rule, expected) in [
        (json!({"succeededIndexes": "0"}), Some("Complete")),
        (json!({"succeededIndexes": "1-2"}), None),
        (json!({"succeededIndexes": "0,2", "succeededCount": 1}), Some("Complete")),
        (json!({"succeededCount": 2}), None),
    ] {
        let mut world = World::new(
            json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed", "successPolicy": {"rules": [rule]}}),
        );
        world.settle();
        let first = world.pods.objects.iter().find(|(_, pod)| pod::index(pod) == Some(0)).unwrap().0.clone();
        world.end(&first, "Succeeded");
        world.settle();
        assert_eq!(reason(&world).0, expected, "{rule}");
        assert_eq!(active(&world), if expected.is_some() { 0 } else { 2 }, "{rule}");
        assert!(status(&world)["failed"].is_null(), "who is not needed any more has not failed");
    }
}

fn replacement_policy() {
    for (policy, expected) in [("TerminatingOrFailed", 1), ("Failed", 0)] {
        let mut world = World::new(json!({"completions": 1, "parallelism": 1, "podReplacementPolicy": policy}));
        world.settle();
        let key = world.all()[0].clone();
        world.pods.start(&key, "n");
        let seen = world.pods.objects[&key].clone();
        world.delete(&seen);
        world.settle();
        assert_eq!(active(&world), 0, "{policy}: it counts as a failure, and the next one waits");
        world.wait(10);
        world.settle();
        assert_eq!(active(&world), expected, "{policy}");
        assert_eq!(status(&world)["terminating"], 1, "{policy}");
    }
}

fn waits_for_terminating() {
    let mut world =
        World::new(json!({"completions": 1, "parallelism": 1, "backoffLimit": 0, "activeDeadlineSeconds": 5}));
    world.settle();
    let key = world.all()[0].clone();
    world.pods.start(&key, "n");
    world.wait(5);
    world.settle();
    assert_eq!((reason(&world).0, &status(&world)["conditions"][0]["type"]), (None, &json!("FailureTarget")));
    assert_eq!(status(&world)["terminating"], 1);
    world.end(&key, "Failed");
    world.settle();
    assert_eq!(reason(&world), (Some("Failed"), "DeadlineExceeded".to_owned()));
}

fn managed_by() {
    let mut world = World::new(json!({"completions": 1, "parallelism": 1, "managedBy": "example.com/other"}));
    world.settle();
    assert!(world.all().is_empty() && world.job().status.is_none());
}

fn refused() {
    let mut world = World::new(json!({"completions": 3, "parallelism": 3}));
    world.room = 1;
    world.show_all();
    world.reconcile(usize::MAX);
    assert_eq!(
        (active(&world), &status(&world)["active"]),
        (1, &json!(1)),
        "those that could not be made do not count"
    );
    world.room = 0;
    world.show_all();
    world.reconcile(usize::MAX);
    assert_eq!(status(&world)["active"], 1);
    world.room = usize::MAX;
    world.settle();
    assert_eq!((active(&world), &status(&world)["active"]), (3, &json!(3)));
}
