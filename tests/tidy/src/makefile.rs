//! What the Makefile names is there: programs and files of recipes, prerequisites, and targets in `.PHONY`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Offence, Tree};

/// Programs that a machine with a Rust toolchain, make and git has. A recipe with another one has to add it here.
const PROGRAMS: &[&str] =
    &["cargo", "cd", "echo", "env", "exit", "expand", "git", "head", "make", "python3", "rm", "sed", "test"];
/// Folders that are made by building and installing.
const MADE: &[&str] = &["target", ".tools", ".data"];

#[derive(Default)]
struct Makefile {
    variables: BTreeMap<String, String>,
    /// Targets with their prerequisites and lines of recipes.
    targets: BTreeMap<String, (Vec<String>, Vec<String>)>,
    phony: Vec<String>,
}

impl Makefile {
    fn read(text: &str) -> Self {
        let mut read = Self::default();
        let mut current = String::new();
        for line in text.replace("\\\n", " ").lines() {
            if let Some(recipe) = line.strip_prefix('\t') {
                if let Some((_, recipes)) = read.targets.get_mut(&current) {
                    recipes.push(recipe.to_owned());
                }
            } else if let Some((name, value)) = assignment(line) {
                read.variables.insert(name.to_owned(), value.to_owned());
            } else if let Some((name, rest)) = line.split_once(':').filter(|(name, _)| is_target(name)) {
                let needs = rest.split("##").next().unwrap_or_default();
                let needs = needs.split_whitespace().map(ToOwned::to_owned);
                current = name.to_owned();
                if name == ".PHONY" {
                    read.phony.extend(needs);
                } else if !rest.contains(":=") {
                    read.targets.entry(current.clone()).or_default().0.extend(needs);
                }
            }
        }
        read
    }

    /// Puts in the values of variables, and leaves out calls of functions.
    fn expand(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for _ in 0..8 {
            let Some(start) = out.find("$(") else { break };
            let Some(end) = matching(&out[start + 1..]) else { break };
            let name = &out[start + 2..start + 1 + end];
            let value = match name {
                "MAKE" => "make",
                "CURDIR" => ".",
                "CARGO_TARGET_DIR" => "target",
                _ => self.variables.get(name).map_or("…", String::as_str),
            };
            out = format!("{}{value}{}", &out[..start], &out[start + 2 + end..]);
        }
        out
    }
}

/// Where the bracket closes that the text begins with.
fn matching(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().find_map(|(at, c)| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        (depth == 0).then_some(at)
    })
}

fn is_target(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'))
}

fn assignment(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let name = name.trim_end().trim_end_matches([':', '?', '+']).trim_end();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    is_name.then_some((name, value.trim()))
}

/// The commands of a line of shell: words up to a separator, without assignments before them.
fn commands(line: &str) -> Vec<Vec<String>> {
    let line = without_quotes(line.trim_start_matches(['@', '-', '+']));
    let mut found = vec![Vec::new()];
    for word in line.split_whitespace() {
        let ends = matches!(word, "&&" | "||" | "|" | "{" | "}" | "--" | "<" | ">");
        let word_text = word.trim_end_matches(';');
        if let Some(last) = found.last_mut().filter(|_| !ends && !word_text.is_empty()) {
            let is_assignment = last.is_empty() && word_text.split_once('=').is_some_and(|(name, _)| is_target(name));
            let is_skipped = is_assignment || (last.is_empty() && word_text == "env");
            if !is_skipped {
                last.push(word_text.to_owned());
            }
        }
        if ends || word.ends_with(';') {
            found.push(Vec::new());
        }
    }
    found.into_iter().filter(|words| !words.is_empty()).collect()
}

fn without_quotes(line: &str) -> String {
    let mut out = String::new();
    let mut quote = None;
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                out.push('…');
            }
            None => out.push(c),
        }
    }
    out
}

/// Whether a word names a file of the repository that is not there.
fn is_missing(tree: &Tree, word: &str) -> bool {
    let path = word.trim_start_matches("./");
    let is_path =
        path.contains('/') && !path.contains(['$', '…', '*', '=', ':']) && !path.starts_with(['-', '/', '>', '<']);
    let is_made = MADE.iter().any(|folder| path.split('/').next() == Some(*folder));
    let is_folder = || tree.files.keys().any(|file| file.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')));
    is_path && !is_made && !tree.files.contains_key(path) && !is_folder()
}

pub fn check(tree: &Tree) -> Vec<Offence> {
    let Some(text) = tree.files.get("Makefile") else { return Vec::new() };
    let makefile = Makefile::read(text);
    let mut wrong: BTreeSet<(String, String)> = BTreeSet::new();
    for name in makefile.phony.iter().filter(|name| !makefile.targets.contains_key(*name)) {
        wrong.insert((name.clone(), "is in .PHONY and is no target".into()));
    }
    for (target, (needs, recipes)) in &makefile.targets {
        for need in needs.iter().filter(|need| !makefile.targets.contains_key(*need) && !need.contains(['$', '='])) {
            wrong.insert((target.clone(), format!("needs {need}, which is no target")));
        }
        for words in recipes.iter().flat_map(|recipe| commands(&makefile.expand(recipe))) {
            let program = words[0].as_str();
            let is_plain = !program.contains(['/', '$', '…']) && !program.starts_with('-');
            if is_plain && !PROGRAMS.contains(&program) {
                wrong.insert((target.clone(), format!("calls {program}, which PROGRAMS in tests/tidy does not have")));
            }
            if program == "make" {
                let targets = words[1..].iter().filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
                let targets = targets.filter(|word| !word.starts_with('-') && !makefile.targets.contains_key(*word));
                wrong.extend(targets.map(|word| (target.clone(), format!("makes {word}, which is no target"))));
            }
            let missing = words.iter().filter(|word| is_missing(tree, word));
            wrong.extend(missing.map(|word| (target.clone(), format!("names {word}, which is not there"))));
        }
    }
    wrong.into_iter().map(|(target, what)| Offence::new(format!("{target} {what}"), 1, "mend the Makefile")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(makefile: &str) -> Vec<String> {
        let tree = Tree::of(&[("Makefile", makefile), ("tools/run", ""), ("tests/a.py", "")]);
        check(&tree).into_iter().map(|offence| offence.key).collect()
    }

    #[test]
    fn what_is_there_passes() {
        let text = ".PHONY: all one\nCARGO ?= cargo\nWATCH := $(CURDIR)/tools/run --x\nBESIDE := $(MAKE) -j 2\n\
                    all: one ## everything\n\
                    \t@$(WATCH) all -- tools/run x\n\t$(BESIDE) one\n\tA=b python3 tests/a.py $(ARGS) && $(CARGO) fmt\n\
                    one: export B := $(shell date)\none:\n\t$(CARGO) build\n\ttarget/debug/x --y\n\trm -rf .tools\n";
        assert_eq!(keys(text), [""; 0]);
    }

    #[test]
    fn what_is_not_there_fails() {
        assert_eq!(keys("a:\n\tgenerate/run\n"), ["a names generate/run, which is not there"]);
        assert_eq!(keys("a:\n\tpython3 tests/b.py\n"), ["a names tests/b.py, which is not there"]);
        assert_eq!(keys("T := tools/none\na:\n\tX=1 $(T) y\n"), ["a names tools/none, which is not there"]);
        assert_eq!(keys("a: b\n"), ["a needs b, which is no target"]);
        assert_eq!(keys(".PHONY: c\n"), ["c is in .PHONY and is no target"]);
        assert_eq!(keys("a:\n\t$(MAKE) -j 2 d\n"), ["a makes d, which is no target"]);
        assert_eq!(keys("a:\n\tfrobnicate\n"), ["a calls frobnicate, which PROGRAMS in tests/tidy does not have"]);
    }
}
