//! Style of comments and pages, as far as a machine can see it.

use crate::{Offence, Tree, lines_text};

const MAX_WORDS: usize = 40;

/// The text of a comment that fills a line.
fn comment<'a>(path: &str, line: &'a str) -> Option<&'a str> {
    let line = line.trim_start();
    let marks: &[&str] = if path.ends_with(".rs") { &["///", "//!", "//"] } else { &["#"] };
    marks.iter().find_map(|mark| line.strip_prefix(mark)).map(str::trim_start)
}

/// Whether a sentence begins with a person instead of the thing that the code is about.
fn begins_with_who(text: &str) -> bool {
    text.split(". ").any(|sentence| ["Who ", "Whoever ", "Whom "].iter().any(|word| sentence.starts_with(word)))
}

pub fn comments(tree: &Tree) -> Vec<Offence> {
    let mut found = Vec::new();
    for (path, text) in tree.files.iter().filter(|(path, _)| path.ends_with(".rs") || path.ends_with(".py")) {
        let lines = text.lines().enumerate();
        let lines = lines.filter(|(_, line)| comment(path, line).is_some_and(begins_with_who));
        let lines: Vec<usize> = lines.map(|(at, _)| at + 1).collect();
        if !lines.is_empty() {
            let detail = format!("a sentence begins with Who, Whoever or Whom, {}", lines_text(&lines));
            found.push(Offence::new(path, lines.len(), detail));
        }
    }
    found
}

/// Sentences of pages that are too long to be read once, with their pages. They are a warning, not an offence.
pub fn long_sentences(tree: &Tree) -> Vec<(String, usize)> {
    let pages = tree.files.iter().filter(|(path, _)| path.ends_with(".md"));
    pages.map(|(path, text)| (path.clone(), count_long(text))).filter(|(_, count)| *count > 0).collect()
}

fn count_long(text: &str) -> usize {
    let mut is_code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let is_break =
            is_code || line.trim().is_empty() || line.starts_with(['#', '|', '`']) || line.starts_with("    ");
        let item = line.trim_start().strip_prefix("- ");
        if is_break || item.is_some() {
            prose.push_str(". ");
        }
        if !is_break {
            prose.push_str(item.unwrap_or(line));
            prose.push(' ');
        }
    }
    let sentences = prose.split_inclusive(['.', '!', '?', ':', ';']);
    sentences.filter(|sentence| sentence.split_whitespace().count() > MAX_WORDS).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_begin_with_the_thing() {
        let bad = "//! Who rings is heard.\n/// A bell. Whoever rings it is heard.\
                   \n// Whom it concerns\nlet x = \"Who is it\";\n";
        let good = "/// The caller who rings is heard.\n// Whole numbers only.\n";
        let tree = Tree::of(&[("a.rs", bad), ("b.rs", good), ("c.py", "# Who knows\nx = 'Who '\n")]);
        let found: Vec<(String, u64)> = comments(&tree).into_iter().map(|one| (one.key, one.count)).collect();
        assert_eq!(found, [("a.rs".to_owned(), 3), ("c.py".to_owned(), 1)]);
    }

    #[test]
    fn long_sentences_are_counted_across_lines() {
        let long = "word ".repeat(25) + "\n" + &"more ".repeat(25) + ".\n";
        let short = "word ".repeat(25) + ".\n- " + &"more ".repeat(25) + "\n";
        let tree = Tree::of(&[("a.md", &long), ("b.md", &short), ("c.md", &format!("```\n{long}```\n"))]);
        assert_eq!(long_sentences(&tree), [("a.md".to_owned(), 1)]);
    }
}
