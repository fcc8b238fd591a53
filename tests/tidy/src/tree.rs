//! The files that the rules look at.

use std::collections::BTreeMap;

use crate::source::{Crate, Source};

/// A dependency of one crate of the workspace on another, by their folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrow {
    pub from: String,
    pub to: String,
}

/// Paths from the root of the repository, with `/`, and the text of each file.
#[derive(Debug, Default)]
pub struct Tree {
    pub files: BTreeMap<String, String>,
    /// The dependencies between crates of the workspace, from `cargo metadata`.
    pub arrows: Vec<Arrow>,
    /// The Rust sources, read once for all rules.
    pub sources: BTreeMap<String, Source>,
}

impl Tree {
    pub fn new(files: impl IntoIterator<Item = (String, String)>, arrows: Vec<Arrow>) -> Self {
        let files: BTreeMap<String, String> = files.into_iter().collect();
        let rust = files.iter().filter(|(path, _)| path.ends_with(".rs"));
        let sources = rust.map(|(path, text)| (path.clone(), Source::read(text))).collect();
        let mut tree = Self { files, arrows, sources };
        tree.mark_tests();
        tree
    }

    /// A tree of made-up files, for tests of rules.
    pub fn of(files: &[(&str, &str)]) -> Self {
        Self::new(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())), Vec::new())
    }

    /// Rust sources that are part of a program, with their tests blanked out.
    pub fn programs(&self) -> impl Iterator<Item = (&str, &Source)> {
        let programs = self.sources.iter().filter(|(path, source)| path.starts_with("crates/") && !source.is_test);
        programs.map(|(path, source)| (path.as_str(), source))
    }

    /// The folders below `crates/` that have a `Cargo.toml`.
    pub fn crate_folders(&self) -> impl Iterator<Item = &str> {
        let manifests = self.files.keys().filter(|path| path.starts_with("crates/"));
        manifests.filter_map(|path| path.strip_suffix("/Cargo.toml"))
    }

    /// Files that only tests use: those outside `src/`, and modules that are declared for tests.
    fn mark_tests(&mut self) {
        let folders: Vec<String> = self.crate_folders().map(ToOwned::to_owned).collect();
        for folder in folders {
            for path in Crate::of(self, &folder).test_files() {
                if let Some(source) = self.sources.get_mut(&path) {
                    source.is_test = true;
                }
            }
        }
    }
}
