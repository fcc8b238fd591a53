//! Files of at most 600 lines, lines of at most 120 columns.

use crate::{Offence, Tree, lines_text};

const MAX_LINES: usize = 600;
const MAX_COLUMNS: usize = 120;
/// A line with a longer word than this (an address, a pattern) cannot be wrapped well and may be long.
const MAX_WORD: usize = 80;

/// Code has a known ending or says in its first line what runs it.
fn is_code(path: &str, text: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    [".rs", ".py", ".sh"].iter().any(|ending| name.ends_with(ending))
        || name == "Makefile"
        || (!name.contains('.') && text.starts_with("#!"))
}

pub fn files(tree: &Tree) -> Vec<Offence> {
    let code = tree.files.iter().filter(|(path, text)| is_code(path, text));
    code.filter_map(|(path, text)| {
        let lines = text.lines().count();
        (lines > MAX_LINES)
            .then(|| Offence::new(path, lines, format!("{lines} lines, at most {MAX_LINES} are allowed")))
    })
    .collect()
}

/// Tables of Markdown cannot be wrapped.
fn is_table(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

fn is_long(line: &str) -> bool {
    let columns = |text: &str| text.chars().count();
    line.len() > MAX_COLUMNS
        && columns(line) > MAX_COLUMNS
        && line.split_whitespace().all(|word| columns(word) <= MAX_WORD)
}

pub fn lines(tree: &Tree) -> Vec<Offence> {
    let mut found = Vec::new();
    for (path, text) in &tree.files {
        let is_markdown = path.ends_with(".md");
        if !is_markdown && !is_code(path, text) {
            continue;
        }
        let long = text.lines().enumerate().filter(|(_, line)| is_long(line) && !(is_markdown && is_table(line)));
        let long: Vec<usize> = long.map(|(at, _)| at + 1).collect();
        if !long.is_empty() {
            let detail = format!("more than {MAX_COLUMNS} columns, {}", lines_text(&long));
            found.push(Offence::new(path, long.len(), detail));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_600_lines_passes_and_one_more_fails() {
        let (fits, fails) = ("x\n".repeat(600), "x\n".repeat(601));
        let tree =
            Tree::of(&[("a.rs", &fits), ("b.py", &fails), ("tool", &format!("#!/bin/sh\n{fits}")), ("c.md", &fails)]);
        let found: Vec<(String, u64)> = files(&tree).into_iter().map(|one| (one.key, one.count)).collect();
        assert_eq!(found, [("b.py".to_owned(), 601), ("tool".to_owned(), 601)]);
    }

    #[test]
    fn long_lines_are_counted_by_columns() {
        let (fits, fails) = ("äb ".repeat(40), "äb ".repeat(41) + ".");
        let address = format!("see https://example.com/{} for more of it", "a".repeat(100));
        let row = format!("| {fails} |");
        let text = [fits.trim_end(), &fails, &address, &row].join("\n");
        let tree = Tree::of(&[("a.rs", &text), ("b.md", &text), ("c.txt", &text)]);
        let found: Vec<(String, u64)> = lines(&tree).into_iter().map(|one| (one.key, one.count)).collect();
        assert_eq!(found, [("a.rs".to_owned(), 2), ("b.md".to_owned(), 1)], "a table is long only in Markdown");
    }
}
