//! Rules of the house that a machine can check. Each rule is a pure function over a [`Tree`] of files, and answers with
//! [`Offence`]s. The test in `tests/repository.rs` runs all rules on this repository and compares the result with
//! [`debt`].

pub mod arrows;
pub mod collections;
pub mod cycles;
pub mod debt;
pub mod errors;
pub mod lengths;
pub mod makefile;
pub mod names;
pub mod prose;
pub mod repository;
pub mod source;
pub mod tasks;
pub mod tree;
pub mod words;

pub use tree::Tree;

/// A place where a rule does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offence {
    /// What the debt file counts by: mostly the path of a file.
    pub key: String,
    /// How much the rule is broken there, for example the number of long lines.
    pub count: u64,
    /// The explanation, with lines where there are any.
    pub detail: String,
}

impl Offence {
    pub fn new(key: impl Into<String>, count: usize, detail: impl Into<String>) -> Self {
        Self { key: key.into(), count: count as u64, detail: detail.into() }
    }
}

/// A rule by its name in the debt file.
pub type Rule = (&'static str, fn(&Tree) -> Vec<Offence>);

/// Every rule, in the order of the printed table.
pub const RULES: &[Rule] = &[
    ("arrow", arrows::check),
    ("apiserver-word", words::check),
    ("file-length", lengths::files),
    ("line-length", lengths::lines),
    ("module-cycle", cycles::check),
    ("makefile", makefile::check),
    ("error-row", errors::check),
    ("spawn", tasks::check),
    ("banned-name", names::banned),
    ("vague-type", names::vague),
    ("who-comment", prose::comments),
    ("collection-const", collections::check),
];

/// Joins line numbers for the detail of an offence, shortened after the first few.
pub(crate) fn lines_text(lines: &[usize]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = lines.iter().take(SHOWN).map(ToString::to_string).collect();
    let rest = if lines.len() > SHOWN { ", …" } else { "" };
    format!("line {}{rest}", shown.join(", "))
}
