//! What has to be done for a StatefulSet. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus},
        core::v1::{PersistentVolumeClaim, Pod},
    },
    apimachinery::pkg::{apis::meta::v1::OwnerReference, util::intstr::IntOrString},
};

use super::{
    pod::{self, ordinal, revision},
    revision::{Versions, Write, versions},
};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Written before Pods are made of it.
    pub revision: Option<Write>,
    /// Names of revisions that nobody needs any more.
    pub forget: Vec<String>,
    pub claims: Vec<PersistentVolumeClaim>,
    /// Claims by name, whose owners become these.
    pub owners: Vec<(String, Vec<OwnerReference>)>,
    pub create: Vec<Pod>,
    /// Names of Pods.
    pub delete: Vec<String>,
    pub status: StatefulSetStatus,
    /// What is to be said if all this cannot be done: what is there already.
    pub counted: StatefulSetStatus,
    /// Look again after this, if nothing happens before.
    pub again: Option<Duration>,
}

pub struct Found<'a> {
    pub set: &'a StatefulSet,
    /// All that the set controls.
    pub revisions: &'a [&'a ControllerRevision],
    pub pods: &'a [&'a Pod],
    /// Those of the namespace, by name.
    pub claims: &'a BTreeMap<String, &'a PersistentVolumeClaim>,
    pub now: Timestamp,
}

pub fn decide(found: &Found<'_>) -> Plan {
    let set = found.set;
    let mut plan = Plan { status: set.status.clone().unwrap_or_default(), ..Plan::default() };
    let Some(spec) = &set.spec else { return plan };
    let used: Vec<&str> = found.pods.iter().map(|pod| revision(pod)).collect();
    let Some(versions) = versions(set, found.revisions, &used) else { return plan };
    plan.revision = versions.write.clone();
    plan.forget = versions.forget.clone();
    let world = World::new(found, spec, &versions);
    world.count(&mut plan);
    plan.counted = plan.status.clone();
    if set.metadata.deletion_timestamp.is_none() {
        world.claims(&mut plan);
        if world.replicas(&mut plan) && world.condemned(&mut plan) {
            world.update(&mut plan);
        }
    }
    world.close(&mut plan.status);
    world.close(&mut plan.counted);
    plan
}

struct World<'a> {
    found: &'a Found<'a>,
    spec: &'a StatefulSetSpec,
    versions: &'a Versions,
    start: i32,
    wanted: i32,
    /// One after the other.
    ordered: bool,
    by_ordinal: BTreeMap<i32, &'a Pod>,
    /// Too many, the highest first.
    condemned: Vec<&'a Pod>,
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn ready_since(pod: &Pod) -> Option<Option<Timestamp>> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|one| one.type_ == "Ready" && one.status == "True")?;
    (phase(pod) == "Running").then(|| ready.last_transition_time.as_ref().map(|time| time.0))
}

fn name(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap_or_default()
}

fn add(counter: &mut Option<i32>, by: i32) {
    *counter = Some(counter.unwrap_or(0) + by);
}

impl<'a> World<'a> {
    fn new(found: &'a Found<'a>, spec: &'a StatefulSetSpec, versions: &'a Versions) -> Self {
        let start = spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0);
        let wanted = spec.replicas.unwrap_or(1).max(0);
        let (mut by_ordinal, mut condemned) = (BTreeMap::new(), Vec::new());
        for one in found.pods {
            let Some(ordinal) = ordinal(found.set, one) else { continue };
            if ordinal >= start && ordinal < start.saturating_add(wanted) {
                by_ordinal.insert(ordinal, *one);
            } else {
                condemned.push((ordinal, *one));
            }
        }
        condemned.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
        let condemned = condemned.into_iter().map(|(_, pod)| pod).collect();
        let ordered = spec.pod_management_policy.as_deref() != Some("Parallel");
        Self { found, spec, versions, start, wanted, ordered, by_ordinal, condemned }
    }

    fn is_available(&self, pod: &Pod) -> bool {
        self.until_available(pod).is_some_and(|wait| wait.is_zero())
    }

    /// How long until a Pod that is ready has been so for long enough.
    fn until_available(&self, pod: &Pod) -> Option<Duration> {
        let since = ready_since(pod)?;
        let least = i64::from(self.spec.min_ready_seconds.unwrap_or(0));
        if least <= 0 {
            return Some(Duration::ZERO);
        }
        let at = since?.checked_add(SignedDuration::from_secs(least)).ok()?;
        Some(Duration::try_from(at.duration_since(self.found.now)).unwrap_or_default())
    }

    fn rolls(&self) -> bool {
        self.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete")
    }

    fn partition(&self) -> i32 {
        let strategy = self.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        strategy.and_then(|rolling| rolling.partition).unwrap_or(0)
    }

    fn count(&self, plan: &mut Plan) {
        let status = &mut plan.status;
        let (current, update) = (&self.versions.current.name, &self.versions.update.name);
        status.observed_generation = self.found.set.metadata.generation;
        (status.current_revision, status.update_revision) = (Some(current.clone()), Some(update.clone()));
        status.replicas = 0;
        for counter in [
            &mut status.ready_replicas,
            &mut status.available_replicas,
            &mut status.current_replicas,
            &mut status.updated_replicas,
        ] {
            *counter = Some(0);
        }
        status.collision_count = Some(status.collision_count.unwrap_or(0));
        for one in self.by_ordinal.values().chain(&self.condemned) {
            status.replicas += 1;
            if ready_since(one).is_some() {
                add(&mut status.ready_replicas, 1);
                if let Some(wait) = self.until_available(one).filter(|wait| !wait.is_zero()) {
                    plan.again = Some(plan.again.map_or(wait, |before| before.min(wait)));
                } else {
                    add(&mut status.available_replicas, 1);
                }
            }
            if !is_terminating(one) {
                if revision(one) == current {
                    add(&mut status.current_replicas, 1);
                }
                if revision(one) == update {
                    add(&mut status.updated_replicas, 1);
                }
            }
        }
    }

    /// Claims follow the retention policy, and a Pod that waits may wait for a claim that somebody deleted.
    fn claims(&self, plan: &mut Plan) {
        let pods = self.by_ordinal.values().map(|pod| (*pod, false));
        for (one, condemned) in pods.chain(self.condemned.iter().map(|pod| (*pod, true))) {
            let Some(ordinal) = ordinal(self.found.set, one) else { continue };
            for claim in pod::claim_names(self.found.set, self.spec, ordinal) {
                let Some(have) = self.found.claims.get(&claim) else { continue };
                let have = have.metadata.owner_references.as_deref().unwrap_or_default();
                let owner = condemned.then_some(one);
                let wanted = pod::wanted_owners(self.found.set, self.spec, owner, have).unwrap_or_default();
                let uids =
                    |owners: &[OwnerReference]| owners.iter().map(|one| one.uid.clone()).collect::<BTreeSet<_>>();
                if uids(&wanted) != uids(have) {
                    plan.owners.push((claim, wanted));
                }
            }
            if phase(one) == "Pending" && !is_terminating(one) && !condemned {
                self.missing_claims(ordinal, plan);
            }
        }
    }

    /// False if one is on its way out: a Pod would wait for it for ever.
    fn missing_claims(&self, ordinal: i32, plan: &mut Plan) -> bool {
        let mut usable = true;
        for claim in pod::claims(self.found.set, self.spec, ordinal) {
            let there = claim.metadata.name.as_ref().and_then(|name| self.found.claims.get(name));
            match there {
                Some(there) => usable &= there.metadata.deletion_timestamp.is_none(),
                None => plan.claims.push(claim),
            }
        }
        usable
    }

    /// From the lowest to the highest. False: wait until something happens.
    fn replicas(&self, plan: &mut Plan) -> bool {
        for ordinal in self.start..self.start.saturating_add(self.wanted) {
            let Some(one) = self.by_ordinal.get(&ordinal) else {
                self.create(ordinal, plan);
                if self.ordered {
                    return false;
                }
                continue;
            };
            if matches!(phase(one), "Failed" | "Succeeded") && !is_terminating(one) {
                self.delete(one, plan);
                if self.ordered {
                    return false;
                }
                continue;
            }
            if self.ordered && (is_terminating(one) || !self.is_available(one)) {
                // It may be the very Pod whose revision does not work; but an update of others must not go on.
                return false;
            }
        }
        true
    }

    fn create(&self, ordinal: i32, plan: &mut Plan) {
        if !self.missing_claims(ordinal, plan) {
            return;
        }
        let keeps = self.rolls() && ordinal < self.start.saturating_add(self.partition());
        let version = if keeps { &self.versions.current } else { &self.versions.update };
        let made = pod::make(self.found.set, self.spec, version, ordinal);
        plan.status.replicas += 1;
        if version.name == self.versions.current.name {
            add(&mut plan.status.current_replicas, 1);
        }
        if version.name == self.versions.update.name {
            add(&mut plan.status.updated_replicas, 1);
        }
        plan.create.push(made);
    }

    fn delete(&self, pod: &Pod, plan: &mut Plan) {
        if revision(pod) == self.versions.current.name {
            add(&mut plan.status.current_replicas, -1);
        }
        if revision(pod) == self.versions.update.name {
            add(&mut plan.status.updated_replicas, -1);
        }
        plan.delete.push(name(pod));
    }

    /// From the highest to the lowest.
    fn condemned(&self, plan: &mut Plan) -> bool {
        let first_unhealthy = self.condemned.iter().rev().find(|pod| ready_since(pod).is_none() || is_terminating(pod));
        for one in &self.condemned {
            if is_terminating(one) {
                if self.ordered {
                    return false;
                }
                continue;
            }
            let unhealthy = first_unhealthy.is_some_and(|first| std::ptr::eq(*first, *one));
            // One that has ended will never be ready: there is nothing to wait for.
            let ended = matches!(phase(one), "Failed" | "Succeeded");
            if self.ordered && !self.is_available(one) && !unhealthy && !ended {
                return false;
            }
            self.delete(one, plan);
            if self.ordered {
                return false;
            }
        }
        true
    }

    /// From the highest to the lowest, down to the partition.
    fn update(&self, plan: &mut Plan) {
        if !self.rolls() {
            return;
        }
        let from = self.start.saturating_add(self.partition().max(0));
        let strategy = self.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        let Some(most) = strategy.and_then(|rolling| rolling.max_unavailable.as_ref()) else {
            for ordinal in (from..self.start.saturating_add(self.wanted)).rev() {
                // One that is about to be made is not there yet.
                let Some(one) = self.by_ordinal.get(&ordinal) else { return };
                if revision(one) != self.versions.update.name && !is_terminating(one) {
                    return self.delete(one, plan);
                }
                if is_terminating(one) || !self.is_available(one) {
                    return;
                }
            }
            return;
        };
        let most = match most {
            IntOrString::Int(number) => *number,
            // Rounded up, so that there is always one.
            IntOrString::String(text) => {
                let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
                i32::try_from((percent.clamp(0, 100) * i64::from(self.wanted) + 99) / 100).unwrap_or(1)
            }
        };
        let is_away = |ordinal: i32| {
            let there = self.by_ordinal.get(&ordinal);
            there.is_none_or(|pod| is_terminating(pod) || !self.is_available(pod))
        };
        let away = (self.start..self.start.saturating_add(self.wanted)).filter(|ordinal| is_away(*ordinal)).count();
        let mut budget = most.max(1) - i32::try_from(away).unwrap_or(i32::MAX);
        for one in self.by_ordinal.range(from..).rev().map(|(_, pod)| pod) {
            if budget <= 0 {
                return;
            }
            if revision(one) != self.versions.update.name && !is_terminating(one) && !plan.delete.contains(&name(one)) {
                self.delete(one, plan);
                budget -= 1;
            }
        }
    }

    /// The update is complete when all have it and are ready.
    fn close(&self, status: &mut StatefulSetStatus) {
        let all = |counter: Option<i32>| counter.unwrap_or(0) == self.wanted;
        if self.rolls() && all(status.updated_replicas) && all(status.ready_replicas) && all(Some(status.replicas)) {
            status.current_revision = status.update_revision.clone();
            status.current_replicas = status.updated_replicas;
        }
        for counter in [&mut status.ready_replicas, &mut status.current_replicas, &mut status.updated_replicas] {
            *counter = counter.filter(|count| *count > 0);
        }
    }
}
