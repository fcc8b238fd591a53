//! The API server knows nothing of edges: words of the layers above do not appear in its folder, not even in comments.

use crate::{Offence, Tree, lines_text};

const FOLDER: &str = "crates/apiserver/";

/// Words in any case, alone or as a part of a name such as `edge_id`, also in the plural.
const PARTS: &[&str] = &["edge", "mailbox", "synctarget", "edgeplacement"];
/// Names that count as they are written, also in the plural.
const NAMES: &[&str] = &[
    "SyncTarget",
    "EdgePlacement",
    "SinglePlacementSlice",
    "Customizer",
    "SyncerConfig",
    "StatusCollector",
    "CombinedStatus",
];

fn names_of(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.split(move |c: char| !is_inside(c))
        .filter(|name| !name.is_empty())
        .map(move |name| (name.as_ptr() as usize - line.as_ptr() as usize, name))
}

fn singular(word: &str) -> &str {
    word.strip_suffix("es").filter(|word| word.ends_with('x')).or_else(|| word.strip_suffix('s')).unwrap_or(word)
}

/// An edge case is no edge.
fn is_case(rest: &str) -> bool {
    let rest = rest.trim_start_matches(['_', ' ', '-']).to_ascii_lowercase();
    rest.starts_with("case")
}

fn has_word(line: &str) -> bool {
    names_of(line).any(|(at, name)| {
        let is_name = NAMES.contains(&singular(name));
        let mut inside = at;
        let has_part = name.split('_').any(|part| {
            let rest = &line[inside + part.len()..];
            inside += part.len() + 1;
            let part = part.to_ascii_lowercase();
            PARTS.contains(&singular(&part)) && !is_case(rest)
        });
        is_name || has_part
    })
}

pub fn check(tree: &Tree) -> Vec<Offence> {
    let inside = tree.files.range(FOLDER.to_owned()..).take_while(|(path, _)| path.starts_with(FOLDER));
    inside
        .filter_map(|(path, text)| {
            let lines: Vec<usize> =
                text.lines().enumerate().filter(|(_, line)| has_word(line)).map(|(at, _)| at + 1).collect();
            let detail = format!("words of the fabric in the API server, {}", lines_text(&lines));
            (!lines.is_empty()).then(|| Offence::new(path, lines.len(), detail))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_as_words() {
        for line in [
            "let edge = 1;",
            "// The edges of it.",
            "fn edge_id() {}",
            "const EDGE: &str = \"\";",
            "\"edge.selvedge.dev/agent\"",
            "struct SyncTargets;",
            "mailboxes",
            "kind: EdgePlacement",
        ] {
            assert!(has_word(line), "{line}");
        }
        for line in ["knowledge of selvedge", "EdgeCase", "an edge case", "edge_cases", "hedges", "Location", "ledger"]
        {
            assert!(!has_word(line), "{line}");
        }
    }

    #[test]
    fn only_the_api_server_is_held_to_it() {
        let tree = Tree::of(&[
            ("crates/apiserver/server/src/lib.rs", "// fine\n// an edge\nlet edges = 2;\n"),
            ("crates/fabric/edge/src/lib.rs", "// an edge\n"),
        ]);
        let found = check(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].key.as_str(), found[0].count), ("crates/apiserver/server/src/lib.rs", 2));
        assert!(found[0].detail.ends_with("line 2, 3"), "{}", found[0].detail);
    }
}
