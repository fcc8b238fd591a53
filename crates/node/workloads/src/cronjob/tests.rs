use serde_json::{Value, json};

use super::{decide::decide, model::World};
use crate::{
    world::Case,
    world::{at, parse},
};

pub const CASES: &[Case] = &[
    ("cronjob/schedule", schedule),
    ("cronjob/job-of-template", job_of_template),
    ("cronjob/allow", allow),
    ("cronjob/forbid", forbid),
    ("cronjob/replace", replace),
    ("cronjob/starting-deadline", starting_deadline),
    ("cronjob/missed-many", missed_many),
    ("cronjob/suspend", suspend),
    ("cronjob/history", history),
    ("cronjob/time-zone", time_zone),
    ("cronjob/unparseable", unparseable),
    ("cronjob/status", status),
    ("cronjob/missing-job", missing_job),
    ("cronjob/clock-set-back", clock_set_back),
];

/// The model's clock starts at 1970-01-12T13:46:40Z: 20 seconds before a full minute.
fn every_minute(more: Value) -> World {
    let mut spec = json!({"schedule": "* * * * *", "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1});
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    World::new(spec)
}

fn end_all(world: &mut World, how: &str) {
    for key in world.jobs.objects.keys().cloned().collect::<Vec<_>>() {
        world.end(&key, how);
    }
    world.look();
}

fn schedule() {
    let mut world = every_minute(json!({}));
    world.look();
    assert!(world.made.is_empty(), "nothing is due yet");
    world.wait(19);
    world.look();
    assert!(world.made.is_empty());
    world.wait(1);
    world.look();
    assert_eq!(world.made, ["c-16667"], "named by the minute that it is for");
    world.wait(59);
    world.look();
    assert_eq!(world.made.len(), 1);
    world.wait(1);
    world.look();
    assert_eq!(world.made.len(), 2);
}

fn job_of_template() {
    let mut world = every_minute(json!({}));
    world.wait(20);
    world.look();
    let job: Value = serde_json::to_value(world.jobs.objects.values().next().unwrap()).unwrap();
    assert_eq!(job["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(job["metadata"]["annotations"], json!({super::decide::SCHEDULED: "1970-01-12T13:47:00Z"}));
    let owner = &job["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["controller"]), (&json!("CronJob"), &json!(true)));
    assert_eq!(job["spec"], json!({"template": {"spec": {"containers": []}}}));
}

fn two_minutes(policy: &str) -> World {
    let mut world = every_minute(json!({"concurrencyPolicy": policy}));
    world.wait(20);
    world.look();
    world.wait(60);
    world.look();
    world
}

fn allow() {
    let world = two_minutes("Allow");
    assert_eq!((world.running(), world.status()["active"].as_array().unwrap().len()), (2, 2));
}

fn forbid() {
    let mut world = two_minutes("Forbid");
    assert_eq!((world.made.len(), world.running()), (1, 1));
    world.wait(10);
    end_all(&mut world, "Complete");
    assert_eq!(world.made.len(), 2, "the one that had to wait starts late");
}

fn replace() {
    let world = two_minutes("Replace");
    assert_eq!((world.made.len(), world.running()), (2, 1));
    assert_eq!(world.status()["active"][0]["name"], world.made[1]);
}

fn starting_deadline() {
    for (deadline, expected) in [(10, 0), (40, 1)] {
        let mut world = every_minute(json!({"startingDeadlineSeconds": deadline}));
        world.wait(20 + 30);
        world.look();
        assert_eq!(world.made.len(), expected, "{deadline}");
    }
}

fn missed_many() {
    let mut world = every_minute(json!({}));
    world.wait(60 * 60 * 24 * 365 * 3 + 20);
    world.look();
    assert_eq!(world.made.len(), 1, "only the last one is made up for");
    let last = world.status()["lastScheduleTime"].as_str().unwrap().to_owned();
    assert_eq!(last, "1973-01-11T13:47:00Z");
    assert!(world.reasons.contains(&"TooManyMissedTimes"));
}

fn suspend() {
    let mut world = every_minute(json!({"suspend": true}));
    world.wait(600);
    world.look();
    assert!(world.made.is_empty());
}

fn history() {
    let mut world = every_minute(json!({"successfulJobsHistoryLimit": 2, "failedJobsHistoryLimit": 1}));
    world.wait(20);
    for how in ["Complete", "Complete", "Complete", "Failed", "Failed"] {
        world.look();
        end_all(&mut world, how);
        world.wait(60);
    }
    let left: Vec<String> = world.jobs.objects.keys().map(|key| key.name.clone()).collect();
    assert_eq!(
        left,
        world.made[1..3].iter().chain(&world.made[4..]).cloned().collect::<Vec<_>>(),
        "the newest of each"
    );
}

fn time_zone() {
    let mut world = World::new(json!({"schedule": "0 0 * * *", "timeZone": "Nowhere/Nothing"}));
    world.wait(60 * 60 * 24 * 2);
    world.look();
    assert!(world.made.is_empty());
    if jiff::tz::TimeZone::get("Asia/Tokyo").is_err() {
        return; // a machine without a database of time zones
    }
    let mut world = World::new(json!({"schedule": "0 0 * * *", "timeZone": "Asia/Tokyo"}));
    world.wait(60 * 60 * 24);
    world.look();
    assert_eq!(world.status()["lastScheduleTime"], "1970-01-12T15:00:00Z");
    let job: Value = serde_json::to_value(world.jobs.objects.values().next().unwrap()).unwrap();
    assert_eq!(job["metadata"]["annotations"][super::decide::SCHEDULED], "1970-01-13T00:00:00+09:00");
}

fn unparseable() {
    let mut world = World::new(json!({"schedule": "every day"}));
    world.wait(600);
    let plan = super::decide::decide(world.cron(), &[], world.now);
    assert_eq!(plan.notes[0].reason, "UnparseableSchedule");
    world.look();
    assert!(world.made.is_empty());
}

fn status() {
    let mut world = every_minute(json!({}));
    world.wait(20);
    world.look();
    let active = &world.status()["active"][0];
    assert_eq!(
        (&active["kind"], &active["name"], &active["apiVersion"]),
        (&json!("Job"), &json!("c-16667"), &json!("batch/v1"))
    );
    assert_eq!(world.status()["lastScheduleTime"], "1970-01-12T13:47:00Z");
    world.wait(5);
    end_all(&mut world, "Complete");
    assert_eq!(
        world.status(),
        json!({"lastScheduleTime": "1970-01-12T13:47:00Z", "lastSuccessfulTime": "1970-01-12T13:47:05Z"})
    );
    assert_eq!(world.reasons, ["SuccessfulCreate", "SawCompletedJob"]);
}

fn missing_job() {
    let mut world = every_minute(json!({}));
    world.wait(20);
    world.look();
    let key = world.jobs.objects.keys().next().unwrap().clone();
    world.jobs.remove(&key);
    world.look();
    assert_eq!((&world.status()["active"], world.reasons.last()), (&Value::Null, Some(&"MissingJob")));
    assert_eq!(world.made.len(), 1, "what somebody deleted is not made again");
}

fn clock_set_back() {
    let world = every_minute(json!({}));
    let after = |last: &str, second: i64| {
        let mut cron = world.cron().clone();
        cron.status = Some(parse(json!({"lastScheduleTime": last})));
        decide(&cron, &[], at(second))
    };
    // In ten years, says the clock that was wrong: from now on, then.
    let plan = after("1980-01-01T00:00:00Z", 0);
    assert!(plan.create.is_none());
    let last = serde_json::to_value(&plan.status).unwrap()["lastScheduleTime"].clone();
    assert_eq!(last, "1970-01-12T13:46:40Z");
    assert!(after(last.as_str().unwrap(), 20).create.is_some());
    // A little is waited for: what it is for has been started.
    let plan = after("1970-01-12T13:50:00Z", 20);
    assert!(plan.create.is_none());
    assert_eq!(serde_json::to_value(&plan.status).unwrap()["lastScheduleTime"], "1970-01-12T13:50:00Z");
}
