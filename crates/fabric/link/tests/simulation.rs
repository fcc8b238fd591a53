//! Thousands of small worlds in which everything fails, each from its seed.
//! `LINK_SEEDS=n` runs more of them, `LINK_SEED=s` runs one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that finds something panics"
)]

mod sim;

use std::collections::BTreeMap;

use sim::{Mutant, World};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn violation(seed: u64, mutant: Option<Mutant>) -> Option<String> {
    let mut world = World::new(seed, mutant);
    world.run();
    world.violation
}

#[test]
fn every_seed_holds() {
    if let Some(seed) = number("LINK_SEED") {
        assert_eq!(violation(seed, None), None);
        return;
    }
    let seeds = number("LINK_SEEDS").unwrap_or(10_000);
    let half = |start| {
        let mut happened = BTreeMap::<_, u64>::new();
        for seed in (start..seeds).step_by(2) {
            let mut world = World::new(seed, None);
            world.run();
            if let Some(what) = world.violation {
                panic!("LINK_SEED={seed}: {what}");
            }
            for (what, count) in world.happened {
                *happened.entry(what).or_default() += count;
            }
        }
        happened
    };
    let (odd, mut happened) = std::thread::scope(|scope| {
        let odd = scope.spawn(|| half(1));
        let even = half(0);
        (odd.join().unwrap(), even)
    });
    for (what, count) in odd {
        *happened.entry(what).or_default() += count;
    }
    println!("{seeds} worlds: {happened:#?}");
    assert_eq!(happened.len(), 11, "something never happens any more: {happened:?}");
    assert!(happened.values().all(|count| *count >= seeds / 50), "hardly happens: {happened:?}");
}

#[test]
fn mutants_are_caught() {
    use Mutant::*;
    for mutant in [AckBeforeCommit, DropInFlightOnReconnect, DeleteWhatIsNotListed, ReportAckedBeforeDurable] {
        let caught = (0..200).find(|seed| violation(*seed, Some(mutant)).is_some());
        println!("{mutant:?} is caught by seed {caught:?}");
        assert!(caught.is_some(), "{mutant:?} was not caught");
    }
}
