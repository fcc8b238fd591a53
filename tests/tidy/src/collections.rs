//! The name of a collection, such as `apps/deployments`, is a constant in one place.

use std::collections::BTreeMap;

use crate::{Offence, Tree};

/// The value of `const NAME: &str = "group/plural";`.
fn constant(line: &str) -> Option<&str> {
    let (before, value) = line.split_once(": &str = \"").or_else(|| line.split_once(": &'static str = \""))?;
    let value = value.strip_suffix("\";")?;
    before.split_whitespace().any(|word| word == "const").then_some(value).filter(|value| is_collection(value))
}

fn is_collection(value: &str) -> bool {
    let Some((group, plural)) = value.split_once('/') else { return false };
    let is_group = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
    let is_known = group.contains('.') || matches!(group, "core" | "apps" | "batch" | "autoscaling" | "policy");
    is_known && group.chars().all(is_group) && plural.len() > 2 && plural.chars().all(|c| c.is_ascii_lowercase())
}

pub fn check(tree: &Tree) -> Vec<Offence> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, source) in tree.programs() {
        for (at, line) in source.strings.lines().enumerate() {
            if let Some(value) = constant(line.trim_end()) {
                places.entry(value).or_default().push(format!("{path}:{}", at + 1));
            }
        }
    }
    let several = places.into_iter().filter(|(_, places)| places.len() > 1);
    several
        .map(|(value, places)| Offence::new(value, places.len(), format!("a constant in {}", places.join(", "))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_is_named_once() {
        let one = ("crates/a/src/lib.rs", "pub const PODS: &str = \"core/pods\";\nconst TEXT: &str = \"a/b\";\n");
        assert_eq!(check(&Tree::of(&[one])), []);
        let other =
            ("crates/b/src/lib.rs", "    const P: &str = \"core/pods\"; // again\nconst TEXT: &str = \"a/b\";\n");
        let found = check(&Tree::of(&[one, other]));
        assert_eq!(found, [Offence::new("core/pods", 2, "a constant in crates/a/src/lib.rs:1, crates/b/src/lib.rs:1")]);
    }
}
