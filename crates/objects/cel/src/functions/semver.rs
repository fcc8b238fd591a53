//! Semantic versions: `semver('1.2.3')`.

use std::cmp::Ordering;

use schema::go::quote;

use super::super::value::{Opaque, Value};
use super::super::{Evaluated, error, no_overload};

/// A version. What is built of it does not count when it is compared.
#[derive(Clone, Debug)]
pub struct Semver {
    core: [u64; 3],
    before: Vec<Identifier>,
}

/// A part of a pre-release. Numbers come before words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(String),
}

impl PartialEq for Semver {
    fn eq(&self, other: &Self) -> bool {
        self.order(other) == Ordering::Equal
    }
}

impl Semver {
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts[..] else { return Err("No Major.Minor.Patch elements found".to_owned()) };
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, before) = match rest.split_once('-') {
            Some((patch, before)) => (patch, Some(before)),
            None => (rest, None),
        };
        let core = [number("Major", major)?, number("Minor", minor)?, number("Patch", patch)?];
        let before = before.map(|all| all.split('.').map(identifier).collect::<Result<Vec<_>, _>>()).transpose()?;
        for part in build.into_iter().flat_map(|all| all.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !is_word(part) {
                return Err(format!("Invalid character(s) found in build meta data {}", quote(part)));
            }
        }
        Ok(Self { core, before: before.unwrap_or_default() })
    }

    /// Reads also what is nearly a version: with a `v`, with leading zeros, without a minor or patch number.
    fn parse_tolerant(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err("short version cannot contain PreRelease/Build meta data".to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    fn order(&self, other: &Self) -> Ordering {
        // A pre-release comes before the release.
        let release = |version: &Self| version.before.is_empty();
        self.core
            .cmp(&other.core)
            .then_with(|| release(self).cmp(&release(other)))
            .then_with(|| self.before.cmp(&other.before))
    }
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    let zero = if rest.starts_with(|c: char| c.is_ascii_digit()) { "" } else { "0" };
    format!("{zero}{rest}")
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn digits(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

fn integer(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| match text.is_empty() {
        true => "strconv.ParseUint: parsing \"\": invalid syntax".to_owned(),
        false => format!("strconv.ParseUint: parsing {}: value out of range", quote(text)),
    })
}

fn number(what: &str, text: &str) -> Result<u64, String> {
    if !digits(text) {
        return Err(format!("Invalid character(s) found in {} number {}", what.to_ascii_lowercase(), quote(text)));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{what} number must not contain leading zeroes {}", quote(text)));
    }
    integer(text)
}

fn identifier(text: &str) -> Result<Identifier, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if digits(text) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {}", quote(text)));
        }
        return integer(text).map(Identifier::Number);
    }
    if !is_word(text) {
        return Err(format!("Invalid character(s) found in prerelease {}", quote(text)));
    }
    Ok(Identifier::Word(text.to_owned()))
}

/// `semver` and `isSemver`, with or without a flag that says whether to be tolerant.
pub fn call(name: &str, text: &str, tolerant: bool) -> Evaluated {
    let parsed = if tolerant { Semver::parse_tolerant(text) } else { Semver::parse(text) };
    match (name, parsed) {
        ("isSemver", parsed) => Ok(parsed.is_ok().into()),
        (_, Ok(version)) => Ok(Value::opaque(Opaque::Semver(version))),
        (_, Err(why)) => error(why),
    }
}

pub fn method(name: &str, of: &Semver, args: &[Value]) -> Evaluated {
    let part = |at: usize| Ok(Value::Int(of.core[at] as i64));
    match (name, args) {
        ("major", []) => part(0),
        ("minor", []) => part(1),
        ("patch", []) => part(2),
        (_, [Value::Opaque(other)]) => {
            let Opaque::Semver(other) = &**other else { return no_overload() };
            let order = of.order(other);
            match name {
                "compareTo" => Ok(Value::Int(order as i64)),
                "isGreaterThan" => Ok(order.is_gt().into()),
                "isLessThan" => Ok(order.is_lt().into()),
                _ => no_overload(),
            }
        }
        _ => no_overload(),
    }
}
