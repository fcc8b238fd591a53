//! What is not in order yet: one line for each rule and key, with a count. The file only shrinks.

use std::collections::BTreeMap;

use crate::Offence;

pub const FILE: &str = "tests/tidy/debt.txt";
const HEAD: &str = "# Exceptions of the rules in tests/tidy: rule, count, key. The test fails when something is \
                    worse than its line,\n# and when a line could be lowered. \
                    `TIDY_UPDATE=1 cargo test -p selvedge-tidy` writes this file anew.\n";

/// Counts by rule and key.
pub type Debt = BTreeMap<(String, String), u64>;

pub fn read(text: &str) -> Debt {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut parts = line.splitn(3, ' ');
            let (rule, count, key) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
            Some(((rule.to_owned(), key.to_owned()), count))
        })
        .collect()
}

pub fn write(found: &[(&str, Vec<Offence>)]) -> String {
    let counted = count(found);
    let lines = counted.iter().map(|((rule, key), count)| format!("{rule} {count} {key}\n"));
    HEAD.to_owned() + &lines.collect::<String>()
}

fn count(found: &[(&str, Vec<Offence>)]) -> Debt {
    let mut counted = Debt::new();
    for (rule, offences) in found {
        for offence in offences {
            *counted.entry(((*rule).to_owned(), offence.key.clone())).or_default() += offence.count;
        }
    }
    counted
}

/// What is worse than the file allows, and which lines of it could be lowered.
pub fn compare(found: &[(&str, Vec<Offence>)], debt: &Debt) -> Vec<String> {
    let counted = count(found);
    let mut problems = Vec::new();
    for (rule, offences) in found {
        for offence in offences {
            let key = ((*rule).to_owned(), offence.key.clone());
            let allowed = debt.get(&key).copied().unwrap_or(0);
            let now = counted.get(&key).copied().unwrap_or(0);
            if now > allowed {
                problems.push(format!("{rule}: {} has {now}, at most {allowed}: {}", offence.key, offence.detail));
            }
        }
    }
    for ((rule, key), allowed) in debt {
        let now = counted.get(&(rule.clone(), key.clone())).copied().unwrap_or(0);
        if now < *allowed {
            problems.push(format!(
                "{rule}: {key} has {now} now, {FILE} says {allowed}: run with TIDY_UPDATE=1 and commit it"
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(count: usize) -> Vec<(&'static str, Vec<Offence>)> {
        vec![("line-length", vec![Offence::new("a b.rs", count, "line 3")])]
    }

    #[test]
    fn the_file_says_what_was_found() {
        let text = write(&found(2));
        assert!(text.ends_with("\nline-length 2 a b.rs\n"), "{text}");
        assert_eq!(compare(&found(2), &read(&text)), [""; 0]);
    }

    #[test]
    fn worse_and_better_both_fail() {
        let debt = read(&write(&found(2)));
        let worse = compare(&found(3), &debt);
        assert!(worse.len() == 1 && worse[0].contains("a b.rs has 3, at most 2: line 3"), "{worse:?}");
        let better = compare(&found(1), &debt);
        assert!(better.len() == 1 && better[0].contains("run with TIDY_UPDATE=1"), "{better:?}");
        assert_eq!(compare(&[], &debt).len(), 1, "a line whose key is gone is removed");
    }
}
