//! Small worlds, each from its seed, in which a disk drops, reorders and fails what the commit path writes.
//!
//! The commit path, the journal's format and the recovery are the real ones; the disk and SQLite are models. After
//! every crash all acknowledged commits must be there, no commit in part, and revisions in order. A write that was
//! answered with an error which says that it did not happen must not appear.
//!
//! `STORE_SEEDS=n` runs more worlds, `STORE_SEED=s` runs one.

mod database;
mod disk;
mod world;

use std::collections::BTreeMap;

use self::world::World;
use super::state::Mutant;

const SEEDS: u64 = 500;
/// Every mutant must be found within this many worlds.
const MAX_MUTANT_SEEDS: u64 = 500;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn violation(seed: u64, mutant: Option<Mutant>) -> Option<String> {
    World::new(seed, mutant).run().err()
}

#[test]
fn no_acknowledged_commit_is_lost_in_any_world() {
    if let Some(seed) = number("STORE_SEED") {
        assert_eq!(violation(seed, None), None);
        return;
    }
    let seeds = number("STORE_SEEDS").unwrap_or(SEEDS);
    let half = |start| {
        let mut happened = BTreeMap::<_, u64>::new();
        for seed in (start..seeds).step_by(2) {
            let mut world = World::new(seed, None);
            if let Err(what) = world.run() {
                panic!("STORE_SEED={seed}: {what}");
            }
            for (what, count) in world.happened() {
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
    eprintln!("{seeds} worlds: {happened:#?}");
    for what in world::EXPECTED {
        let count = happened.get(what).copied().unwrap_or(0);
        assert!(count >= seeds / 50, "{what:?} hardly happens: {count} times in {seeds} worlds");
    }
}

#[test]
fn mutants_are_caught() {
    use Mutant::*;
    let mutants = [
        ForgetDoubt,
        UseUnnamedJournal,
        AcknowledgeFailedSync,
        TrustSuspectJournal,
        SkipReplay,
        SettleEarly,
        ServeUnsynced,
        KeepJournalPlace,
        NeverSync,
        SynchronousNormal,
    ];
    for mutant in mutants {
        let caught = (0..MAX_MUTANT_SEEDS).find_map(|seed| violation(seed, Some(mutant)).map(|what| (seed, what)));
        let (seed, what) = caught.unwrap_or_else(|| panic!("{mutant:?} was not caught"));
        eprintln!("{mutant:?} is caught by seed {seed}: {what}");
    }
}
