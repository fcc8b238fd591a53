//! Names that say nothing: some are banned, others may stand for one type only.

use std::collections::BTreeMap;

use crate::{Offence, Tree, lines_text, source::tokens};

const BANNED: &[&str] = &["PATIENCE", "MOST", "Desk", "Paper", "Bell"];
const VAGUE: &[&str] =
    &["Place", "Plan", "Found", "Known", "Said", "Wanted", "Step", "Told", "Standing", "Held", "Seen", "Made", "Set"];

pub fn banned(tree: &Tree) -> Vec<Offence> {
    let mut found = Vec::new();
    for (path, source) in &tree.sources {
        let names = tokens(&source.all_code).filter(|(name, _)| BANNED.contains(name));
        let lines: Vec<usize> = names.map(|(_, line)| line).collect();
        if !lines.is_empty() {
            let detail = format!("banned names ({}), {}", BANNED.join(", "), lines_text(&lines));
            found.push(Offence::new(path, lines.len(), detail));
        }
    }
    found
}

pub fn vague(tree: &Tree) -> Vec<Offence> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, source) in tree.programs() {
        let mut before = "";
        for (name, line) in tokens(&source.code) {
            if matches!(before, "struct" | "enum" | "trait" | "type") && VAGUE.contains(&name) {
                places.entry(name).or_default().push(format!("{path}:{line}"));
            }
            before = name;
        }
    }
    let several = places.into_iter().filter(|(_, places)| places.len() > 1);
    several
        .map(|(name, places)| Offence::new(name, places.len(), format!("defined in {}", places.join(", "))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_names_are_whole_names_of_code() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "const PATIENCE: u8 = 1;\nstruct Desk;\nconst ALMOST: u8 = 2; // MOST\n"),
            ("crates/a/src/b.rs", "struct Paperback;\nconst CONNECT_TIMEOUT: &str = \"Bell\";\n"),
        ]);
        let found = banned(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].key.as_str(), found[0].count), ("crates/a/src/lib.rs", 2));
    }

    #[test]
    fn a_vague_type_may_be_there_once() {
        let once =
            ("crates/a/src/lib.rs", "pub struct Plan;\nenum Step {}\n#[cfg(test)]\nmod tests { struct Step; }\n");
        assert_eq!(vague(&Tree::of(&[once])), []);
        let again = ("crates/b/src/lib.rs", "pub(crate) struct Plan<T>(T);\n");
        let found = vague(&Tree::of(&[once, again]));
        assert_eq!(found, [Offence::new("Plan", 2, "defined in crates/a/src/lib.rs:1, crates/b/src/lib.rs:1")]);
    }
}
