//! Upstream's behaviours, each with a case: what `docs/reference/controllers.md` lists and what is tried here are
//! the same.
//!
//! A controller's cases are beside it, in a table `CASES` of its `tests.rs`: the name as the page has it, and what tries it.

use std::{collections::BTreeSet, panic::catch_unwind};

use crate::world::Case;

const PAGE: &str = include_str!("../../../../docs/reference/controllers.md");

fn cases() -> Vec<Case> {
    [
        crate::replicaset::CASES,
        crate::replicaset::CONTROLLERS,
        crate::autoscale::CASES,
        crate::deployment::CASES,
        crate::statefulset::CASES,
        crate::job::CASES,
        crate::cronjob::CASES,
        crate::endpoints::CASES,
        crate::endpoints::MIRRORING,
        crate::podgc::CASES,
        crate::daemonset::CASES,
        crate::disruption::CASES,
        crate::scheduler::CASES,
        crate::scheduler::SPREAD,
        crate::scheduler::PREEMPTION,
        crate::scheduler::VOLUMES,
        crate::nodes::CASES,
        crate::volumes::CASES,
    ]
    .concat()
}

#[test]
fn every_behaviour_that_the_page_lists_is_tried_and_holds() {
    let listed: Vec<&str> =
        PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name).collect();
    let listed_once: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(listed.len(), listed_once.len(), "the page lists a behaviour twice");
    let tried: BTreeSet<&str> = cases().into_iter().map(|(name, _)| name).collect();
    assert_eq!(tried.len(), cases().len(), "two cases have the same name");
    let differ: Vec<&&str> = listed_once.symmetric_difference(&tried).collect();
    assert!(differ.is_empty(), "only on the page, or only tried: {differ:?}");
    let failed: Vec<&str> =
        cases().into_iter().filter(|(_, case)| catch_unwind(case).is_err()).map(|(name, _)| name).collect();
    assert!(failed.is_empty(), "{failed:?} do not hold");
}
