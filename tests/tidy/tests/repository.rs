//! Holds this repository to the rules, with the exceptions of `debt.txt`.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Write;

use selvedge_tidy::{Offence, RULES, Tree, cycles, debt, errors, prose, repository};

#[test]
fn the_house_is_in_order() {
    let tree = repository::read().unwrap();
    assert!(tree.files.len() > 500 && tree.arrows.len() > 20, "the repository was not read");
    assert!(errors::messages(&tree).len() > 50, "messages were not found");
    let found: Vec<_> = RULES.iter().map(|(name, rule)| (*name, rule(&tree))).collect();

    // Written past the capture of test output, so that every run of the tests shows it.
    std::io::stdout().write_all(table(&tree, &found).as_bytes()).unwrap();

    let file = repository::root().join(debt::FILE);
    if std::env::var_os("TIDY_UPDATE").is_some() {
        std::fs::write(&file, debt::write(&found)).unwrap();
    }
    let problems = debt::compare(&found, &debt::read(&std::fs::read_to_string(&file).unwrap()));
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

/// The offences that are left by rule, and the largest circle of modules.
fn table(tree: &Tree, found: &[(&str, Vec<Offence>)]) -> String {
    let mut text = format!("\n{:<18} {:>8} {:>8}\n", "rule", "offences", "places");
    for (rule, offences) in found {
        let count: u64 = offences.iter().map(|offence| offence.count).sum();
        text += &format!("{rule:<18} {count:>8} {:>8}\n", offences.len());
    }
    let long: usize = prose::long_sentences(tree).iter().map(|(_, count)| count).sum();
    text += &format!("sentences of more than 40 words in pages (a warning only): {long}\n");
    match cycles::find(tree).first() {
        Some(cycle) => {
            let (modules, place) = (cycle.modules.join(", "), &cycle.place);
            text + &format!("largest module cycle: {} modules, in {place}: {modules}\n", cycle.modules.len())
        }
        None => text + "largest module cycle: none\n",
    }
}
