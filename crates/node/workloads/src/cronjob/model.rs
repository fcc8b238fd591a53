//! A CronJob whose Jobs end when they like, while its controller looks seldom, late, or dies in between.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::batch::v1::{CronJob, Job},
    apimachinery::pkg::apis::meta::v1::Time,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::decide::{decide, reference};
use crate::{
    job::finished,
    world::{Revision, Truth, at, parse},
};
use controllers::{cache::Key, written::Written};

pub struct World {
    pub crons: Truth<CronJob>,
    pub jobs: Truth<Job>,
    written: Written,
    pub now: Timestamp,
    /// Names of all Jobs that there ever were.
    pub made: Vec<String>,
    pub reasons: Vec<&'static str>,
}

impl World {
    /// At a full minute, by a clock of 20 seconds past another one.
    pub fn new(spec: Value) -> Self {
        let revision = Revision::default();
        let mut crons = Truth::new(&revision);
        let mut spec = spec;
        spec["jobTemplate"] =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"template": {"spec": {"containers": []}}}});
        crons.create(parse(json!({"metadata": {"name": "c", "namespace": "ns"}, "spec": spec})));
        let jobs = Truth::new(&revision);
        Self { crons, jobs, written: Written::default(), now: at(0), made: Vec::new(), reasons: Vec::new() }
    }

    fn key() -> Key {
        Key::new("ns", "c")
    }

    pub fn cron(&self) -> &CronJob {
        &self.crons.objects[&Self::key()]
    }

    pub fn wait(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    pub fn look(&mut self) {
        for _ in 0..3 {
            self.crons.show_all();
            self.jobs.show_all();
            self.reconcile(true);
        }
        self.crons.show_all();
        self.jobs.show_all();
    }

    /// What the rim does. One that dies does not write the status.
    fn reconcile(&mut self, lives: bool) {
        let key = Self::key();
        if !self.written.is_shown(&key) {
            return;
        }
        let Some(cron) = self.crons.cache.get(&key) else { return };
        let shown = self.jobs.cache.all();
        let jobs: Vec<&Job> = shown.iter().map(|job| &**job).collect();
        let plan = decide(&cron, &jobs, self.now);
        self.delete(&plan.replace);
        let mut status = plan.status;
        if let Some(wanted) = plan.create {
            let there = self.jobs.objects.get(&Key::of(&*wanted)).cloned();
            let made = there.unwrap_or_else(|| {
                self.made.push(wanted.metadata.name.clone().unwrap());
                self.jobs.create(*wanted)
            });
            self.written.wrote(&key, &self.jobs.cache, &made);
            status.active.get_or_insert_default().extend(finished(&made).is_none().then(|| reference(&made)));
        }
        self.check();
        if lives && cron.status.clone().unwrap_or_default() != status {
            assert!(cron.status.clone().unwrap_or_default().last_schedule_time <= status.last_schedule_time);
            let made = self.crons.change(&key, |cron| cron.status = Some(status)).unwrap();
            self.written.wrote(&key, &self.crons.cache, &made);
            self.reasons.extend(plan.notes.iter().map(|note| note.reason));
        }
        if lives {
            self.delete(&plan.delete);
        }
    }

    fn delete(&mut self, names: &[String]) {
        for name in names {
            if let Some(gone) = self.jobs.remove(&Key::new("ns", name)) {
                self.written.deleted(&Self::key(), &self.jobs.cache, &gone);
            }
        }
    }

    /// Whether the status says that this time was served.
    fn is_noted(&self, key: &Key) -> bool {
        let last = self.cron().status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
        let minute = key.name.strip_prefix("c-").and_then(|minute| minute.parse().ok());
        last.zip(minute).is_some_and(|(last, minute): (_, i64)| last.0.as_second() >= minute * 60)
    }

    pub fn running(&self) -> usize {
        self.jobs.objects.values().filter(|job| finished(job).is_none()).count()
    }

    fn check(&self) {
        let policy = self.cron().spec.concurrency_policy.as_deref();
        assert!(
            !matches!(policy, Some("Forbid" | "Replace")) || self.running() <= 1,
            "{policy:?} and {} run",
            self.running()
        );
        let names: BTreeSet<&String> = self.made.iter().collect();
        assert_eq!(names.len(), self.made.len(), "no time is served twice");
    }

    pub fn end(&mut self, key: &Key, how: &str) {
        let now = self.now;
        if self.jobs.objects.get(key).is_some_and(|job| finished(job).is_none()) {
            self.jobs.change(key, |job| {
                let status = job.status.get_or_insert_default();
                status.conditions = Some(vec![parse(json!({"type": how, "status": "True"}))]);
                status.start_time = Some(Time(now));
                status.completion_time = (how == "Complete").then_some(Time(now));
            });
        }
    }

    pub fn status(&self) -> Value {
        serde_json::to_value(self.cron().status.clone().unwrap_or_default()).unwrap()
    }
}

#[derive(Clone, Copy, Debug)]
enum Happens {
    Reconcile,
    Die,
    Show(usize),
    Wait(i64),
    Complete(usize),
    Fail(usize),
    Remove(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        5 => Just(Happens::Reconcile),
        1 => Just(Happens::Die),
        4 => (1..4_usize).prop_map(Happens::Show),
        4 => (1..200_i64).prop_map(Happens::Wait),
        3 => any::<usize>().prop_map(Happens::Complete),
        2 => any::<usize>().prop_map(Happens::Fail),
        1 => any::<usize>().prop_map(Happens::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_time_is_served_twice_and_policies_hold(
        policy in prop::sample::select(vec!["Allow", "Forbid", "Replace"]), deadline in prop::option::of(10..300_i64),
        kept in 0..3_i32, events in prop::collection::vec(happens(), 0..100),
    ) {
        let mut world = World::new(json!({"schedule": "* * * * *", "concurrencyPolicy": policy, "startingDeadlineSeconds": deadline,
            "successfulJobsHistoryLimit": kept, "failedJobsHistoryLimit": kept}));
        for event in events {
            match event {
                Happens::Reconcile => world.reconcile(true),
                Happens::Die => {
                    world.reconcile(false);
                    world.written = Written::default();
                    world.jobs.relist();
                    world.crons.relist();
                }
                Happens::Show(events) => {
                    world.jobs.show(events);
                    world.crons.show(events);
                }
                Happens::Wait(seconds) => world.wait(seconds),
                Happens::Complete(n) | Happens::Fail(n) | Happens::Remove(n) => {
                    let Some(key) = world.jobs.pick(n) else { continue };
                    match event {
                        Happens::Complete(_) => world.end(&key, "Complete"),
                        Happens::Fail(_) => world.end(&key, "Failed"),
                        // One that somebody deletes before anybody noted it is made again, and nobody could know better.
                        _ if world.is_noted(&key) => drop(world.jobs.remove(&key)),
                        _ => {}
                    }
                }
            }
        }
        // Everything ends, and a minute later one more is due.
        for key in world.jobs.objects.keys().cloned().collect::<Vec<_>>() {
            world.end(&key, "Complete");
        }
        world.look();
        let before = world.made.len();
        for key in world.jobs.objects.keys().cloned().collect::<Vec<_>>() {
            world.end(&key, "Complete");
        }
        world.look();
        world.wait(60 - world.now.as_second() % 60);
        world.look();
        prop_assert_eq!(world.made.len(), before + 1, "exactly one per minute: {:?}", world.made);
        prop_assert_eq!(world.status()["active"].as_array().map_or(0, Vec::len), world.running());
        let done = |how: &str| world.jobs.objects.values().filter(|job| finished(job) == Some(how)).count();
        let kept = usize::try_from(kept).unwrap();
        prop_assert!(done("Complete") <= kept && done("Failed") <= kept);
    }
}
