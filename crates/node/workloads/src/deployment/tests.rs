use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use serde_json::{Value, json};

use super::{
    bounds,
    decide::{Plan, Step, plan},
    sets,
    status::{AVAILABLE, PROGRESSING, condition},
};
use crate::{
    world::Case,
    world::{at, parse},
};

pub const CASES: &[Case] = &[
    ("deployment/creates-set", creates_set),
    ("deployment/surge-and-unavailable", surge_and_unavailable),
    ("deployment/surge-first", surge_first),
    ("deployment/keeps-minimum-available", keeps_minimum_available),
    ("deployment/broken-old-first", broken_old_first),
    ("deployment/recreate", recreate),
    ("deployment/rollback", rollback),
    ("deployment/revision-history", revision_history),
    ("deployment/revision-history-limit", revision_history_limit),
    ("deployment/pause", pause),
    ("deployment/progress-deadline", progress_deadline),
    ("deployment/proportional", proportional),
    ("deployment/scales-only-active", scales_only_active),
    ("deployment/saturated", saturated),
    ("deployment/status-counts", status_counts),
    ("deployment/conditions", conditions),
    ("deployment/replica-failure", replica_failure),
    ("deployment/template-hash", template_hash),
    ("deployment/collisions", collisions),
    ("deployment/min-ready-seconds", min_ready_seconds),
    ("deployment/annotations", annotations),
    ("deployment/deleting", deleting),
];

/// Four Pods of an image; `more` is merged into its spec.
pub fn deployment(image: &str, more: Value) -> Deployment {
    let mut value = json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "d", "generation": 1},
        "spec": {
            "replicas": 4,
            "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 10,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}},
        },
    });
    for (name, field) in more.as_object().unwrap() {
        value["spec"][name] = field.clone();
    }
    parse(value)
}

/// The set of an image as the controller would have made it, with so many Pods, of which some are available.
pub fn set(image: &str, revision: i64, replicas: i32, available: i32) -> ReplicaSet {
    let mut set = sets::make(&deployment(image, json!({})), revision).unwrap();
    set.metadata.uid = Some(format!("set-{image}"));
    set.metadata.generation = Some(1);
    set.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(revision)));
    set.spec.as_mut().unwrap().replicas = Some(replicas);
    set.status = parse(json!({
        "replicas": replicas, "readyReplicas": available, "availableReplicas": available, "observedGeneration": 1,
    }));
    set
}

fn go(deployment: &Deployment, sets: Vec<ReplicaSet>) -> Plan {
    plan(deployment, sets, |_| false, at(100))
}

fn image(set: &ReplicaSet) -> String {
    let template = set.spec.as_ref().unwrap().template.as_ref().unwrap();
    template.spec.as_ref().unwrap().containers[0].image.clone().unwrap()
}

/// The changes of size, by image.
fn sizes(plan: &Plan) -> Vec<(String, i32)> {
    let size = |step: &Step| match step {
        Step::Create(set) | Step::Update(set, Some(_)) => Some((image(set), sets::replicas(set))),
        _ => None,
    };
    plan.steps.iter().filter_map(size).collect()
}

fn named(all: &[(&str, i32)]) -> Vec<(String, i32)> {
    all.iter().map(|(image, size)| ((*image).to_owned(), *size)).collect()
}

fn status(plan: &Plan) -> &DeploymentStatus {
    plan.deployment.status.as_ref().unwrap()
}

fn reason(status: &DeploymentStatus, kind: &str) -> (String, String) {
    let condition = condition(status, kind).unwrap_or_else(|| panic!("no condition {kind}"));
    (condition.status.clone(), condition.reason.clone().unwrap())
}

fn is(status: &DeploymentStatus, kind: &str, value: &str, why: &str) {
    assert_eq!(reason(status, kind), (value.to_owned(), why.to_owned()));
}

fn creates_set() {
    let plan = go(&deployment("v1", json!({})), vec![]);
    let [Step::Create(set)] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
    assert_eq!(sets::replicas(set), 4, "the first set comes at once");
    let name = set.metadata.name.as_deref().unwrap();
    let hash = &set.metadata.labels.as_ref().unwrap()[sets::HASH];
    assert_eq!(name, format!("web-{hash}"));
    let value = serde_json::to_value(set).unwrap();
    assert_eq!(value["spec"]["selector"]["matchLabels"], json!({"app": "web", "pod-template-hash": hash}));
    assert_eq!(value["spec"]["template"]["metadata"]["labels"], json!({"app": "web", "pod-template-hash": hash}));
    assert_eq!(value["metadata"]["ownerReferences"][0]["kind"], "Deployment");
    assert_eq!(
        value["metadata"]["annotations"],
        json!({
            "deployment.kubernetes.io/revision": "1",
            "deployment.kubernetes.io/desired-replicas": "4",
            "deployment.kubernetes.io/max-replicas": "5",
        })
    );
    assert_eq!(plan.deployment.metadata.annotations.as_ref().unwrap()[sets::REVISION], "1");
    is(status(&plan), PROGRESSING, "True", "NewReplicaSetCreated");
    is(status(&plan), AVAILABLE, "False", "MinimumReplicasUnavailable");
}

fn surge_and_unavailable() {
    for (replicas, strategy, surge, unavailable) in [
        (10, json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}), 3, 2),
        (1, json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}), 1, 0),
        (10, json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}), 0, 1),
        (10, json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "1%"}}), 0, 1),
        (2, json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 5, "maxUnavailable": 5}}), 5, 2),
        (4, json!({"type": "RollingUpdate"}), 1, 1),
        (4, json!({"type": "Recreate"}), 0, 0),
        (0, json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}), 1, 0),
    ] {
        let deployment = deployment("v1", json!({"replicas": replicas, "strategy": strategy}));
        let got = (bounds::max_surge(&deployment), bounds::max_unavailable(&deployment));
        assert_eq!(got, (surge, unavailable), "{replicas} {strategy}");
    }
}

fn surge_first() {
    // A new template with four of the old running: one more may come.
    let old = set("v1", 1, 4, 4);
    let plan = go(&deployment("v2", json!({})), vec![old.clone()]);
    assert_eq!(sizes(&plan), named(&[("v2", 1)]));
    // It is not available yet: one of the old may go, as one may be missing.
    let plan = go(&deployment("v2", json!({})), vec![old, set("v2", 2, 1, 0)]);
    assert_eq!(sizes(&plan), named(&[("v1", 3)]));
    let Step::Update(_, Some(told)) = &plan.steps[0] else { panic!("{:?}", plan.steps) };
    assert!(told.starts_with("Scaled down replica set web-") && told.ends_with("from 4 to 3"), "{told}");
    // Which makes room for the next.
    let plan = go(&deployment("v2", json!({})), vec![set("v1", 1, 3, 3), set("v2", 2, 1, 0)]);
    assert_eq!(sizes(&plan), named(&[("v2", 2)]));
}

fn keeps_minimum_available() {
    let none_missing =
        json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}});
    let plan = go(&deployment("v2", none_missing.clone()), vec![set("v1", 1, 4, 4), set("v2", 2, 1, 0)]);
    assert_eq!(sizes(&plan), [], "nothing goes before the new one is available");
    let plan = go(&deployment("v2", none_missing.clone()), vec![set("v1", 1, 4, 4), set("v2", 2, 1, 1)]);
    assert_eq!(sizes(&plan), named(&[("v1", 3)]));
    // A broken new set stops the rollout where it is.
    let plan = go(&deployment("v2", json!({})), vec![set("v1", 1, 3, 3), set("v2", 2, 2, 0)]);
    assert_eq!(sizes(&plan), []);
}

fn broken_old_first() {
    let sets = vec![set("v1", 1, 2, 1), set("v2", 2, 2, 2), set("v3", 3, 1, 0)];
    let plan = go(&deployment("v3", json!({})), sets);
    assert_eq!(sizes(&plan), named(&[("v1", 1)]), "the broken one counts nothing, and three must stay");
}

fn recreate() {
    let how = json!({"strategy": {"type": "Recreate"}});
    let deployment = deployment("v2", how);
    assert_eq!(sizes(&go(&deployment, vec![set("v1", 1, 4, 4)])), named(&[("v1", 0)]));
    // The set is scaled, but its Pods are not gone yet, by its status or in truth.
    let mut stopping = set("v1", 1, 0, 0);
    stopping.status.as_mut().unwrap().replicas = 2;
    assert_eq!(sizes(&go(&deployment, vec![stopping])), []);
    assert_eq!(sizes(&plan(&deployment, vec![set("v1", 1, 0, 0)], |_| true, at(0))), []);
    // It may be making Pods, as it has not seen yet that it shall have none.
    let mut unaware = set("v1", 1, 0, 0);
    unaware.metadata.generation = Some(2);
    unaware.status.as_mut().unwrap().observed_generation = Some(1);
    assert_eq!(sizes(&go(&deployment, vec![unaware])), []);
    assert_eq!(sizes(&go(&deployment, vec![set("v1", 1, 0, 0)])), named(&[("v2", 4)]));
    assert_eq!(sizes(&go(&deployment, vec![set("v1", 1, 0, 0), set("v2", 2, 0, 0)])), named(&[("v2", 4)]));
}

fn rollback() {
    // `kubectl rollout undo` writes the template of an old set: that set is the new one again, under a new number.
    let plan = go(&deployment("v1", json!({})), vec![set("v1", 1, 0, 0), set("v2", 2, 4, 4)]);
    let [Step::Update(set, told)] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
    assert_eq!((image(set).as_str(), sets::replicas(set)), ("v1", 1));
    assert!(told.is_some());
    let annotations = set.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations[sets::REVISION], "3");
    assert_eq!(annotations["deployment.kubernetes.io/revision-history"], "1");
    assert_eq!(plan.deployment.metadata.annotations.as_ref().unwrap()[sets::REVISION], "3");
}

fn revision_history() {
    let deployment = deployment("v1", json!({}));
    let mut set = set("v1", 1, 4, 4);
    for next in [4, 9] {
        assert!(sets::note_revision(&deployment, &mut set, next));
    }
    let history = |set: &ReplicaSet| {
        set.metadata.annotations.as_ref().unwrap()["deployment.kubernetes.io/revision-history"].clone()
    };
    assert_eq!(history(&set), "1,4");
    assert!(!sets::note_revision(&deployment, &mut set, 9), "nothing new");
    assert!(!sets::note_revision(&deployment, &mut set, 5), "a revision never goes back");
    for next in 10..2000 {
        sets::note_revision(&deployment, &mut set, next);
    }
    assert!(history(&set).len() <= 2000 && history(&set).ends_with("1997,1998"));
}

fn revision_history_limit() {
    let mut deployment = deployment("v9", json!({"revisionHistoryLimit": 1}));
    let sets = || {
        let mut busy = set("v2", 2, 0, 0);
        busy.status.as_mut().unwrap().replicas = 1;
        vec![set("v1", 1, 0, 0), busy, set("v3", 3, 0, 0), set("v4", 4, 0, 0), set("v9", 9, 4, 4)]
    };
    let deleted = |plan: &Plan| -> Vec<String> {
        let of = |step: &Step| if let Step::Delete(set) = step { Some(image(set)) } else { None };
        plan.steps.iter().filter_map(of).collect()
    };
    deployment.status =
        parse(json!({"replicas": 4, "updatedReplicas": 4, "availableReplicas": 4, "observedGeneration": 1}));
    assert_eq!(deleted(&go(&deployment, sets())), ["v1", "v3"], "the newest stays, and one with Pods is left alone");
    deployment.spec.as_mut().unwrap().revision_history_limit = Some(0);
    assert_eq!(deleted(&go(&deployment, sets())), ["v1", "v3", "v4"]);
    deployment.status = None;
    assert_eq!(deleted(&go(&deployment, sets())), [] as [&str; 0], "only when the rollout is complete");
}

fn pause() {
    let paused = deployment("v2", json!({"paused": true, "replicas": 6}));
    let plan = go(&paused, vec![set("v1", 1, 4, 4)]);
    assert_eq!(sizes(&plan), named(&[("v1", 6)]), "its size changes, its template does not");
    is(status(&plan), PROGRESSING, "Unknown", "DeploymentPaused");
    let mut resumed = plan.deployment;
    resumed.spec.as_mut().unwrap().paused = Some(false);
    let mut old = set("v1", 1, 6, 6);
    sets::note_size(&resumed, &mut old);
    let plan = go(&resumed, vec![old]);
    assert_eq!(sizes(&plan), named(&[("v2", 1)]));
}

fn progress_deadline() {
    let mut stuck = go(&deployment("v2", json!({})), vec![set("v1", 1, 4, 4)]).deployment;
    let sets = || vec![set("v1", 1, 3, 3), set("v2", 2, 2, 0)];
    let at_second = |deployment: &Deployment, second| plan(deployment, sets(), |_| false, at(second));
    stuck = at_second(&stuck, 100).deployment;
    is(stuck.status.as_ref().unwrap(), PROGRESSING, "True", "ReplicaSetUpdated");
    let waiting = at_second(&stuck, 400);
    is(status(&waiting), PROGRESSING, "True", "ReplicaSetUpdated");
    assert_eq!(waiting.again, Some(Duration::from_secs(301)), "it is looked at when the deadline is over");
    let over = at_second(&stuck, 701);
    is(status(&over), PROGRESSING, "False", "ProgressDeadlineExceeded");
    assert_eq!(over.again, None);
    // Progress after all.
    let sets = vec![set("v1", 1, 3, 3), set("v2", 2, 2, 1)];
    is(status(&plan(&over.deployment, sets, |_| false, at(800))), PROGRESSING, "True", "ReplicaSetUpdated");
    let patient = deployment("v2", json!({"progressDeadlineSeconds": i32::MAX}));
    assert!(condition(status(&at_second(&patient, 900)), PROGRESSING).is_none(), "no deadline, nothing said");
}

fn proportional() {
    // Ten, three of which may be more, in the middle of a rollout; now there shall be fifteen.
    let how = |replicas: i32| json!({"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}});
    let sized = |mut set: ReplicaSet| {
        sets::note_size(&deployment("v1", how(10)), &mut set);
        set
    };
    let sets = || vec![sized(set("v1", 1, 8, 8)), sized(set("v2", 2, 5, 0))];
    let mut up = sizes(&go(&deployment("v2", how(15)), sets()));
    up.sort();
    assert_eq!(up, named(&[("v1", 11), ("v2", 7)]));
    let mut down = sizes(&go(&deployment("v2", how(5)), sets()));
    down.sort();
    assert_eq!(down, named(&[("v1", 5), ("v2", 3)]));
    let mut none = sizes(&go(&deployment("v2", how(0)), sets()));
    none.sort();
    assert_eq!(none, named(&[("v1", 0), ("v2", 0)]));
    // Afterwards the sets say for which size that was.
    let plan = go(&deployment("v2", how(15)), sets());
    for step in &plan.steps {
        let Step::Update(set, _) = step else { panic!("{step:?}") };
        let annotations = set.metadata.annotations.as_ref().unwrap();
        assert_eq!((annotations[sets::DESIRED].as_str(), annotations[sets::MAX].as_str()), ("15", "18"));
    }
}

fn scales_only_active() {
    let plan = go(&deployment("v2", json!({"replicas": 7})), vec![set("v1", 1, 0, 0), set("v2", 2, 4, 4)]);
    assert_eq!(sizes(&plan), named(&[("v2", 7)]));
}

fn saturated() {
    // The new set is complete, and an old one came back to life: it goes at once.
    let mut old = set("v1", 1, 2, 2);
    old.metadata.annotations.as_mut().unwrap().insert(sets::DESIRED.into(), "9".into());
    let plan = go(&deployment("v2", json!({})), vec![old, set("v2", 2, 4, 4)]);
    assert_eq!(sizes(&plan), named(&[("v1", 0)]));
}

fn status_counts() {
    let mut new = set("v2", 2, 2, 1);
    new.status.as_mut().unwrap().ready_replicas = Some(2);
    new.status.as_mut().unwrap().terminating_replicas = Some(1);
    let how = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}});
    let plan = go(&deployment("v2", how), vec![set("v1", 1, 3, 3), new]);
    let mut value = serde_json::to_value(status(&plan)).unwrap();
    value.as_object_mut().unwrap().remove("conditions");
    assert_eq!(
        value,
        json!({
            "observedGeneration": 1, "replicas": 5, "updatedReplicas": 2, "readyReplicas": 5,
            "availableReplicas": 4, "unavailableReplicas": 1, "terminatingReplicas": 1,
        })
    );
}

fn conditions() {
    let plan = go(&deployment("v2", json!({})), vec![set("v1", 1, 0, 0), set("v2", 2, 4, 4)]);
    is(status(&plan), AVAILABLE, "True", "MinimumReplicasAvailable");
    is(status(&plan), PROGRESSING, "True", "NewReplicaSetAvailable");
    let complete = plan.deployment;
    // One dies: still complete as a rollout, but not as available as before.
    let plan = plan_at(&complete, vec![set("v2", 2, 4, 2)], 200);
    is(status(&plan), PROGRESSING, "True", "NewReplicaSetAvailable");
    is(status(&plan), AVAILABLE, "False", "MinimumReplicasUnavailable");
    let since = |deployment: &Deployment| {
        condition(deployment.status.as_ref().unwrap(), AVAILABLE).unwrap().last_transition_time.clone().unwrap().0
    };
    assert_eq!((since(&complete), since(&plan.deployment)), (at(100), at(200)));
}

fn plan_at(deployment: &Deployment, sets: Vec<ReplicaSet>, second: i64) -> Plan {
    plan(deployment, sets, |_| false, at(second))
}

fn replica_failure() {
    let mut new = set("v2", 2, 2, 0);
    new.status.as_mut().unwrap().conditions = parse(json!([
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}
    ]));
    let plan = go(&deployment("v2", json!({})), vec![set("v1", 1, 3, 3), new]);
    is(status(&plan), "ReplicaFailure", "True", "FailedCreate");
    let plan = go(&plan.deployment, vec![set("v1", 1, 3, 3), set("v2", 2, 2, 0)]);
    assert!(condition(status(&plan), "ReplicaFailure").is_none());
}

fn template_hash() {
    let template = |image: &str| deployment(image, json!({})).spec.unwrap().template;
    let hash = sets::hash(&template("v1"), None);
    assert_eq!(hash, sets::hash(&template("v1"), None));
    assert_ne!(hash, sets::hash(&template("v2"), None));
    assert!(hash.len() <= 10 && hash.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "{hash}");
    assert!(sets::is_same(&template("v1"), &set("v1", 1, 1, 1)), "the label does not count");
    assert!(!sets::is_same(&template("v1"), &set("v2", 1, 1, 1)));
}

fn collisions() {
    let mut deployment = deployment("v1", json!({}));
    let name = |deployment: &Deployment| sets::make(deployment, 1).unwrap().metadata.name.unwrap();
    let first = name(&deployment);
    deployment.status = parse(json!({"collisionCount": 1}));
    assert_ne!(name(&deployment), first, "a name that is taken is not tried again");
}

fn min_ready_seconds() {
    let plan = go(&deployment("v1", json!({"minReadySeconds": 7})), vec![set("v1", 1, 4, 4)]);
    let [Step::Update(set, None)] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
    assert_eq!(set.spec.as_ref().unwrap().min_ready_seconds, Some(7));
}

fn annotations() {
    let mut deployment = deployment("v1", json!({}));
    deployment.metadata.annotations = Some(
        [
            ("kubernetes.io/change-cause", "why"),
            ("kubectl.kubernetes.io/last-applied-configuration", "{}"),
            (sets::REVISION, "77"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
    );
    let set = sets::make(&deployment, 3).unwrap();
    let annotations = set.metadata.annotations.unwrap();
    assert_eq!(annotations["kubernetes.io/change-cause"], "why");
    assert_eq!(annotations[sets::REVISION], "3");
    assert!(!annotations.contains_key("kubectl.kubernetes.io/last-applied-configuration"));
}

fn deleting() {
    let mut deployment = deployment("v2", json!({}));
    deployment.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
    let plan = go(&deployment, vec![set("v1", 1, 4, 4)]);
    assert_eq!(plan.steps, []);
    assert_eq!(status(&plan).replicas, Some(4));
}
