//! `selvedge-tidy` prints what the rules find; `selvedge-tidy errors` adds rows to fill in to the errors page.

#![allow(clippy::print_stdout, reason = "a command line tool prints")]

use selvedge_tidy::{RULES, debt, errors, repository};

fn main() -> anyhow::Result<()> {
    let tree = repository::read()?;
    if std::env::args().nth(1).as_deref() == Some("errors") {
        std::fs::write(repository::root().join(errors::PAGE), errors::with_missing_rows(&tree))?;
        return Ok(());
    }
    let found: Vec<_> = RULES.iter().map(|(name, rule)| (*name, rule(&tree))).collect();
    for problem in debt::compare(&found, &debt::Debt::new()) {
        println!("{problem}");
    }
    Ok(())
}
