//! Reads Rust sources as far as the rules need it: which bytes are code, strings, comments and tests, and which file is
//! which module. It does not parse Rust.

use std::collections::{BTreeMap, BTreeSet};

use crate::Tree;

/// One file. All texts have the same length and the same lines, with what is left out replaced by spaces.
#[derive(Debug, Default)]
pub struct Source {
    /// Code without comments, contents of strings, and tests.
    pub code: String,
    /// Code and strings, without comments and tests.
    pub strings: String,
    /// Code with tests, without comments and contents of strings.
    pub all_code: String,
    /// Modules that are declared in this file for tests only.
    pub test_modules: Vec<String>,
    /// Set for files that only tests use.
    pub is_test: bool,
}

impl Source {
    pub fn read(text: &str) -> Self {
        let (code, strings) = mask(text.as_bytes());
        let tests = test_ranges(&code);
        let test_modules = tests.iter().filter_map(|range| declared_module(&code[range.0..range.1])).collect();
        let (mut bare, mut strings) = (code.clone(), strings);
        for (start, end) in tests {
            blank(&mut bare, start, end);
            blank(&mut strings, start, end);
        }
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap_or_default();
        Self { code: text(bare), strings: text(strings), all_code: text(code), test_modules, is_test: false }
    }
}

/// Replaces a range by spaces, but keeps line breaks.
fn blank(bytes: &mut [u8], start: usize, end: usize) {
    bytes[start..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
}

/// The text without comments and contents of strings, and the text without comments only.
fn mask(text: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut code, mut strings) = (text.to_vec(), text.to_vec());
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let is_inside_name = at > 0 && is_name_byte(text[at - 1]);
        let length = match rest[0] {
            b'/' if rest.starts_with(b"//") || rest.starts_with(b"/*") => {
                let length = comment_length(rest);
                blank(&mut code, at, at + length);
                blank(&mut strings, at, at + length);
                length
            }
            b'"' => {
                let length = string_length(rest);
                blank(&mut code, at + 1, at + length.max(2) - 1);
                length
            }
            b'r' | b'b' | b'c' if !is_inside_name && raw_hashes(rest).is_some() => {
                let length = raw_length(rest);
                blank(&mut code, at, at + length);
                length
            }
            b'\'' => {
                let length = char_length(rest);
                blank(&mut code, at, at + if length > 1 { length } else { 0 });
                length
            }
            _ => 1,
        };
        at += length;
    }
    (code, strings)
}

pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn comment_length(rest: &[u8]) -> usize {
    if rest.starts_with(b"//") {
        return rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    }
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// How many `#` a raw string begins with, as in `r#"…"#` or `br"…"`.
fn raw_hashes(rest: &[u8]) -> Option<usize> {
    let prefix = rest.iter().take_while(|byte| matches!(byte, b'r' | b'b' | b'c')).count();
    if prefix > 2 || rest[prefix - 1] != b'r' {
        return None;
    }
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    (rest.get(prefix + hashes) == Some(&b'"')).then_some(hashes)
}

fn raw_length(rest: &[u8]) -> usize {
    let end = [&b"\""[..], &vec![b'#'; raw_hashes(rest).unwrap_or(0)]].concat();
    let begin = rest.iter().position(|byte| *byte == b'"').unwrap_or(0) + 1;
    let found = rest[begin..].windows(end.len()).position(|part| part == end);
    found.map_or(rest.len(), |found| begin + found + end.len())
}

/// The length of a character literal; 1 for the beginning of a lifetime.
fn char_length(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        let end = rest.iter().skip(3).position(|byte| *byte == b'\'');
        return end.map_or(1, |end| end + 4);
    }
    let width = match rest.get(1) {
        None => return 1,
        Some(byte) if *byte < 0x80 => 1,
        Some(byte) if *byte < 0xe0 => 2,
        Some(byte) if *byte < 0xf0 => 3,
        Some(_) => 4,
    };
    if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 1 }
}

/// The items below `#[cfg(test)]`, with their attributes.
fn test_ranges(code: &[u8]) -> Vec<(usize, usize)> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(found) = find(&code[at..], b"#[cfg(") {
        let start = at + found;
        let inside = &code[start + 6..];
        let is_test = inside.starts_with(b"test)") || inside.starts_with(b"all(test");
        let end = if is_test { item_end(code, start) } else { start + 6 };
        if is_test {
            ranges.push((start, end));
        }
        at = end;
    }
    ranges
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Where the item ends that begins, with its attributes, at `start`.
fn item_end(code: &[u8], start: usize) -> usize {
    let mut at = start;
    // Attributes and the spaces around them.
    loop {
        while code.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        if code.get(at) != Some(&b'#') {
            break;
        }
        at = closing(code, at + 1);
    }
    let is_use = code[at..].starts_with(b"use ") || code[at..].starts_with(b"pub use ");
    while at < code.len() {
        match code[at] {
            b';' => return at + 1,
            b'{' if !is_use => return closing(code, at),
            b'(' | b'[' | b'{' => at = closing(code, at),
            _ => at += 1,
        }
    }
    code.len()
}

/// The place behind the bracket that closes the one at `start`.
fn closing(code: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.iter().enumerate().skip(start) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// The name in `mod name;`.
fn declared_module(item: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(item).ok()?.trim_end().strip_suffix(';')?;
    let (before, name) = text.rsplit_once(char::is_whitespace)?;
    before.trim_end().ends_with("mod").then(|| name.to_owned())
}

/// Words and signs of code with their lines: names, `::`, and single other characters.
pub fn tokens(code: &str) -> impl Iterator<Item = (&str, usize)> {
    let (mut at, mut line) = (0, 1);
    let bytes = code.as_bytes();
    std::iter::from_fn(move || {
        while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            line += usize::from(bytes[at] == b'\n');
            at += 1;
        }
        let first = *bytes.get(at)?;
        let length = if is_name_byte(first) {
            bytes[at..].iter().take_while(|byte| is_name_byte(**byte)).count()
        } else if bytes[at..].starts_with(b"::") {
            2
        } else {
            code[at..].chars().next().map_or(1, char::len_utf8)
        };
        at += length;
        Some((&code[at - length..at], line))
    })
}

/// The modules of one crate. The path of a module is the list of its names, without the crate's own.
#[derive(Debug)]
pub struct Crate {
    pub modules: BTreeMap<Vec<String>, String>,
    other: Vec<String>,
    test_modules: BTreeSet<Vec<String>>,
}

impl Crate {
    pub fn of(tree: &Tree, folder: &str) -> Self {
        let (mut modules, mut other, mut test_modules) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
        let inside = format!("{folder}/");
        for (path, source) in tree.sources.range(inside.clone()..).take_while(|(path, _)| path.starts_with(&inside)) {
            let Some(module) = path.strip_prefix(&inside).and_then(module_of) else {
                other.push(path.clone());
                continue;
            };
            for name in &source.test_modules {
                test_modules.insert(module.iter().cloned().chain([name.clone()]).collect());
            }
            modules.insert(module, path.clone());
        }
        Self { modules, other, test_modules }
    }

    /// Modules that are declared for tests, and those that are named so: `#[path]` gives some a file of another name.
    pub fn is_test(&self, module: &[String]) -> bool {
        let is_named_so = |name: &String| name == "tests" || name.ends_with("_tests");
        module.iter().any(is_named_so) || (1..=module.len()).any(|length| self.test_modules.contains(&module[..length]))
    }

    pub(crate) fn test_files(&self) -> Vec<String> {
        let inside = self.modules.iter().filter(|(module, _)| self.is_test(module)).map(|(_, path)| path.clone());
        inside.chain(self.other.iter().cloned()).collect()
    }
}

/// The module of a file by its path in the crate's folder.
fn module_of(path: &str) -> Option<Vec<String>> {
    let path = path.strip_prefix("src/")?.strip_suffix(".rs")?;
    let mut names: Vec<String> = path.split('/').map(ToOwned::to_owned).collect();
    if matches!(names.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        names.pop();
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_tests_are_told_from_code() {
        let text = "fn a<'a>(b: &'a str) { let c = ('\"', \"// no\", r#\"\"x\"\"#); } // tokio\n\
                    /* /* */ d */ fn e() {}\n\
                    #[cfg(test)]\nmod f { fn g() {} }\n#[cfg(test)]\nmod h;\nfn i() {}\n";
        let source = Source::read(text);
        assert_eq!(source.code.lines().count(), text.lines().count());
        for gone in ["tokio", "no", "x", "d *", "mod f", "fn g", "mod h"] {
            assert!(!source.code.contains(gone), "{gone} in {}", source.code);
        }
        for kept in ["fn a<'a>(b: &'a str)", "fn e()", "fn i()"] {
            assert!(source.code.contains(kept), "{kept} not in {}", source.code);
        }
        assert!(source.strings.contains("// no") && !source.strings.contains("tokio"));
        assert!(source.all_code.contains("fn g"));
        assert_eq!(source.test_modules, ["h"]);
    }

    #[test]
    fn modules_for_tests_are_found_by_their_declaration() {
        let tree = Tree::of(&[
            ("crates/a/Cargo.toml", ""),
            ("crates/a/src/lib.rs", "mod b;\n#[cfg(test)]\nmod laws;\n"),
            ("crates/a/src/b/mod.rs", ""),
            ("crates/a/src/b_tests.rs", ""),
            ("crates/a/src/laws.rs", ""),
            ("crates/a/src/laws/deep.rs", ""),
            ("crates/a/tests/outside.rs", ""),
        ]);
        let programs: Vec<&str> = tree.programs().map(|(path, _)| path).collect();
        assert_eq!(programs, ["crates/a/src/b/mod.rs", "crates/a/src/lib.rs"]);
    }

    #[test]
    fn tokens_have_their_lines() {
        let found: Vec<(&str, usize)> = tokens("use a::b;\n c").collect();
        assert_eq!(found, [("use", 1), ("a", 1), ("::", 1), ("b", 1), (";", 1), ("c", 2)]);
    }
}
