//! How many Pods a Job should have, and which. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};

use super::{
    decide::{AT_ONCE, Count, Plan, back_off, has_failed, name, replaces_only_failed, wait_after},
    indexes::Indexes,
    pod,
};

pub(super) fn manage(job: &Job, count: &Count<'_>, pods: &[&Pod], suspended: bool, now: Timestamp, plan: &mut Plan) {
    let wanted = if suspended { 0 } else { wanted(count) };
    let kept = keep(count, wanted, plan);
    // Where only failed Pods are replaced, one that is about to end still has its place.
    let waits: Vec<&&Pod> = count.terminating.iter().filter(|_| replaces_only_failed(count.spec)).collect();
    let missing = wanted.saturating_sub(kept.len() + waits.len()).min(AT_ONCE);
    if suspended || missing == 0 {
        return;
    }
    if count.indexed.is_some() {
        let taken: BTreeSet<i32> = kept.iter().chain(waits.iter().copied()).filter_map(|pod| pod::index(pod)).collect();
        create_indexed(job, count, pods, &taken, missing, now, plan);
    } else if let Some(wait) = back_off(failures(count, pods), last_success(pods), now) {
        plan.look_again(wait);
    } else {
        plan.create.extend((0..missing).map(|_| pod::make(job, count.spec, None)));
    }
}

fn wanted(count: &Count<'_>) -> usize {
    let parallelism = count.spec.parallelism.unwrap_or(1);
    let wanted = match count.spec.completions {
        None if count.succeeded > 0 => i32::try_from(count.active.len()).unwrap_or(i32::MAX).min(parallelism),
        None => parallelism,
        Some(completions) => {
            let failed = i32::try_from(count.failed_indexes.len()).unwrap_or(0);
            parallelism.min(completions - count.succeeded - failed)
        }
    };
    usize::try_from(wanted).unwrap_or(0)
}

/// Decides who stays: nobody whose index is done, not there or another's; then those that are furthest.
fn keep<'a>(count: &Count<'a>, wanted: usize, plan: &mut Plan) -> Vec<&'a Pod> {
    let mut all = count.active.clone();
    let age = |pod: &Pod| pod.metadata.creation_timestamp.clone();
    all.sort_by_key(|pod| (!pod::is_ready(pod), pod::phase(pod) != "Running", pod::index(pod), age(pod), name(pod)));
    let (mut kept, mut seen) = (Vec::new(), Indexes::new());
    for one in all {
        let index = pod::index(one);
        let fits = match (count.indexed, index) {
            (None, _) => true,
            (Some(all), Some(index)) if index < all => {
                !count.completed.contains(&index) && !count.failed_indexes.contains(&index) && seen.insert(index)
            }
            _ => false,
        };
        if fits && kept.len() < wanted {
            kept.push(one);
        } else {
            plan.drop.push(name(one));
        }
    }
    kept
}

fn failures<'a>(count: &Count<'_>, pods: &[&'a Pod]) -> impl Iterator<Item = &'a Pod> {
    pods.iter().copied().filter(|pod| has_failed(count.spec, pod))
}

fn last_success(pods: &[&Pod]) -> Option<Timestamp> {
    pods.iter().filter(|pod| pod::phase(pod) == "Succeeded").filter_map(|pod| pod::ended_at(pod)).max()
}

fn create_indexed(
    job: &Job,
    count: &Count<'_>,
    pods: &[&Pod],
    taken: &BTreeSet<i32>,
    missing: usize,
    now: Timestamp,
    plan: &mut Plan,
) {
    let per_index = count.spec.backoff_limit_per_index.is_some();
    if !per_index && let Some(wait) = back_off(failures(count, pods), last_success(pods), now) {
        return plan.look_again(wait);
    }
    let failed = if per_index { failures_by_index(count, pods) } else { BTreeMap::new() };
    let is_free = |index: &i32| {
        !taken.contains(index) && !count.completed.contains(index) && !count.failed_indexes.contains(index)
    };
    let mut waits: Option<Duration> = None;
    for index in (0..count.indexed.unwrap_or(0)).filter(is_free) {
        if plan.create.len() >= missing {
            break;
        }
        let (failures, last) = failed.get(&index).copied().unwrap_or_default();
        let wait = last.and_then(|last| wait_after(usize::try_from(failures).unwrap_or(0), last, now));
        match wait {
            Some(wait) => waits = Some(waits.map_or(wait, |other| other.min(wait))),
            None => plan.create.push(pod::make(job, count.spec, Some((index, failures)))),
        }
    }
    if let Some(wait) = waits {
        plan.look_again(wait);
    }
}

/// How often each index failed, and when the last time was.
fn failures_by_index(count: &Count<'_>, pods: &[&Pod]) -> BTreeMap<i32, (i32, Option<Timestamp>)> {
    let mut all: BTreeMap<i32, (i32, Option<Timestamp>)> = BTreeMap::new();
    for one in pods.iter().filter(|pod| has_failed(count.spec, pod)) {
        let Some(index) = pod::index(one) else { continue };
        let entry = all.entry(index).or_default();
        let ignored = super::failure::meaning(count.spec, one) == super::failure::Meaning::Ignored;
        entry.0 = entry.0.max(pod::failures_before(one).saturating_add(i32::from(!ignored)));
        entry.1 = entry.1.max(pod::ended_at(one));
    }
    all
}
