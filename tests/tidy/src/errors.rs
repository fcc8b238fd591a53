//! The errors page has a row for each message that a user or operator can meet: the texts of `#[error("…")]`, and log
//! lines of the levels warn and error. A row without an explanation does not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Offence, Tree};

pub const PAGE: &str = "docs/reference/errors.md";

/// Messages with the files that have them. What is filled in is `…`.
pub fn messages(tree: &Tree) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, source) in tree.programs() {
        for message in literals(&source.code, &source.strings) {
            let message = normal(&message);
            if message.chars().filter(|c| c.is_alphabetic()).count() > 3 {
                found.entry(message).or_default().insert(path.to_owned());
            }
        }
    }
    found
}

/// The first string in each `#[error(…)]`, and the last one in each `warn!(…)` and `error!(…)` that is an argument of
/// its own.
fn literals(code: &str, strings: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (start, is_log) in starts(code) {
        let end = start + closing(&code[start..]);
        // Only quotes of strings are left in the code, so they come in pairs, and only one level of brackets counts.
        let mut depth = 0;
        let mut own: Vec<(usize, usize)> = Vec::new();
        let mut open = None;
        let mut before = b'(';
        for (at, byte) in code.bytes().enumerate().take(end).skip(start) {
            match byte {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth -= 1,
                b'"' => match open.take() {
                    None => open = Some((at, depth == 1 && matches!(before, b'(' | b','))),
                    Some((begin, true)) => own.push((begin + 1, at)),
                    Some(_) => {}
                },
                _ => {}
            }
            if !byte.is_ascii_whitespace() {
                before = byte;
            }
        }
        let chosen = if is_log { own.last() } else { own.first() };
        found.extend(chosen.map(|(begin, end)| strings[*begin..*end].to_owned()));
    }
    found
}

/// Where the brackets of attributes and log lines begin, and whether it is a log line.
fn starts(code: &str) -> Vec<(usize, bool)> {
    let mut found = Vec::new();
    for (word, is_log) in [("#[error(", false), ("warn!(", true), ("error!(", true)] {
        let places = code.match_indices(word).map(|(at, _)| at);
        let whole = places.filter(|at| !is_log || *at == 0 || !crate::source::is_name_byte(code.as_bytes()[at - 1]));
        found.extend(whole.map(|at| (at + word.len() - 1, is_log)));
    }
    found
}

fn closing(code: &str) -> usize {
    let mut depth = 0;
    let end = code.bytes().position(|byte| {
        depth += i32::from(byte == b'(') - i32::from(byte == b')');
        depth == 0
    });
    end.unwrap_or(code.len())
}

/// A message as it stands in the page: one line, with `…` for what is filled in.
fn normal(message: &str) -> String {
    let unescaped =
        message.replace("\\\n", "").replace("\\n", " ").replace("\\\"", "\"").replace("{{", "(").replace("}}", ")");
    let mut out = String::new();
    let mut depth = 0;
    for c in unescaped.chars() {
        match c {
            '{' => {
                depth += 1;
                out.push('…');
            }
            '}' => depth -= 1,
            '|' => out.push('/'),
            '`' => {}
            _ if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The exact messages of the page, which stand as code, and whether they have a meaning and something to do.
fn rows(page: &str) -> BTreeMap<String, bool> {
    let rows = page.lines().filter_map(|line| line.trim().strip_prefix('|')?.strip_suffix('|'));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    let exact = cells.filter_map(|cells| {
        let message = cells.first()?.strip_prefix('`')?.strip_suffix('`')?.to_owned();
        let is_whole = cells.len() == 3 && cells.iter().all(|cell| !cell.is_empty() && *cell != "TODO");
        Some((message, is_whole))
    });
    exact.collect()
}

/// Messages without a row, by crate, and rows whose message is gone.
pub fn check(tree: &Tree) -> Vec<Offence> {
    let page = rows(tree.files.get(PAGE).map_or("", String::as_str));
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let all = messages(tree);
    let gone = page.keys().filter(|message| !all.contains_key(*message)).map(String::as_str);
    let gone: Vec<&str> = gone.collect();
    if !gone.is_empty() {
        missing.insert(PAGE, gone);
    }
    for (message, paths) in all.iter().filter(|(message, _)| page.get(*message) != Some(&true)) {
        let folder = paths.iter().next().and_then(|path| path.split_once("/src/")).map_or("", |(folder, _)| folder);
        missing.entry(folder).or_default().push(message);
    }
    let offence = |(place, messages): (&&str, &Vec<&str>)| {
        let what =
            if *place == PAGE { "rows whose message is gone" } else { "no explained row in the errors page for" };
        Offence::new(*place, messages.len(), format!("{what}: {}", messages.join(" / ")))
    };
    missing.iter().map(offence).collect()
}

/// The page with rows to fill in for the messages that have none, under the crate that has them.
pub fn with_missing_rows(tree: &Tree) -> String {
    let old = tree.files.get(PAGE).map_or("", String::as_str);
    let known = rows(old);
    let rows = messages(tree).into_keys().filter(|message| known.get(message) != Some(&true));
    let rows: Vec<String> = rows.map(|message| format!("| `{message}` | TODO | TODO |")).collect();
    let kept: Vec<&str> = old.lines().filter(|line| !line.ends_with("| TODO | TODO |")).collect();
    [kept.join("\n"), rows.join("\n"), String::new()].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = r#"
#[derive(Error)]
enum E {
    #[error("cannot read {path}: {0}", path.display())]
    Read(String),
    #[error(transparent)]
    Other(Io),
}
fn f() {
    tracing::warn!(%error, name = "x", "the link broke; trying again");
    tracing::error!("not closed within {} s", CLOSE.as_secs());
    tracing::info!("started");
    // warn!("a comment")
}
#[cfg(test)]
mod tests { fn g() { warn!("only in tests") } }
"#;

    fn tree(page: &str) -> Tree {
        Tree::of(&[("crates/a/Cargo.toml", ""), ("crates/a/src/lib.rs", CODE), (PAGE, page)])
    }

    #[test]
    fn messages_are_found_without_what_is_filled_in() {
        let found: Vec<String> = messages(&tree("")).into_keys().collect();
        assert_eq!(found, ["cannot read …: …", "not closed within … s", "the link broke; trying again"]);
    }

    #[test]
    fn each_needs_a_row_with_an_explanation() {
        let page = "| message | meaning | what to do |\n|---|---|---|\n\
                    | `cannot read …: …` | damaged | restore it |\n\
                    | `the link broke; trying again` | | wait |\n| `not closed within … s` | TODO | TODO |\n";
        let found = check(&tree(page));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].key.as_str(), found[0].count), ("crates/a", 2));
        let whole = page.replace("| | wait", "| cut | wait").replace("TODO | TODO", "a disk hangs | look at it");
        assert_eq!(check(&tree(&whole)), []);
        let stale = check(&tree(&format!("{whole}| free text | is | allowed |\n| `an old message` | a | b |\n")));
        assert_eq!(stale, [Offence::new(PAGE, 1, "rows whose message is gone: an old message")]);
    }

    #[test]
    fn rows_to_fill_in_are_added_once() {
        let once = with_missing_rows(&tree("# Errors\n"));
        assert!(once.starts_with("# Errors\n| `cannot read …: …` | TODO | TODO |\n"), "{once}");
        assert_eq!(with_missing_rows(&tree(&once)), once);
    }
}
