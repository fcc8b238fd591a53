//! Regular expressions as Go has them (RE2), run by the `regex` crate, whose syntax differs a little.
//!
//! A pattern is rewritten before it is compiled: `\d`, `\w`, `\s` and `\b` mean ASCII in Go, and a bracket or an
//! operator on sets in a class is nothing but a character. What Go refuses is refused in its words.

use std::cell::RefCell;
use std::collections::HashMap;

use regex::{Regex, RegexBuilder};

use super::super::{Evaluated, Failure, error};
use super::strings::texts;

/// How large a compiled pattern may be.
const MAX_COMPILED_BYTES: usize = 1 << 20;
/// How many patterns a thread keeps.
const MAX_PATTERNS: usize = 512;
/// How often Go repeats something at most.
const MAX_REPEAT: u32 = 1000;
/// How deep groups may nest.
const MAX_GROUPS: usize = 200;

thread_local! {
    static PATTERNS: RefCell<HashMap<String, Result<Regex, String>>> = RefCell::default();
}

fn with<T>(pattern: &str, run: impl FnOnce(&Regex) -> T) -> Result<T, String> {
    PATTERNS.with_borrow_mut(|patterns| {
        if !patterns.contains_key(pattern) {
            if patterns.len() >= MAX_PATTERNS {
                patterns.clear();
            }
            patterns.insert(pattern.to_owned(), compile(pattern));
        }
        match patterns.get(pattern) {
            Some(Ok(regex)) => Ok(run(regex)),
            Some(Err(why)) => Err(why.clone()),
            None => Err(String::new()),
        }
    })
}

pub fn matches(text: &str, pattern: &str) -> Result<bool, Failure> {
    with(pattern, |regex| regex.is_match(text)).or_else(error)
}

pub fn find(text: &str, pattern: &str) -> Evaluated {
    with(pattern, |regex| regex.find(text).map_or("", |found| found.as_str()).into()).or_else(illegal)
}

/// All that is found, or the first `most`.
pub fn find_all(text: &str, pattern: &str, most: i64) -> Evaluated {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    with(pattern, |regex| texts(regex.find_iter(text).take(most).map(|found| found.as_str()))).or_else(illegal)
}

fn illegal(why: String) -> Evaluated {
    error(format!("Illegal regex: {why}"))
}

fn compile(pattern: &str) -> Result<Regex, String> {
    let wrong = |why: String| format!("error parsing regexp: {why}");
    let rewritten =
        Rewriter { rest: pattern, out: String::with_capacity(pattern.len()) }.all(pattern).map_err(wrong)?;
    let built = RegexBuilder::new(&rewritten).size_limit(MAX_COMPILED_BYTES).build();
    built.map_err(|_| wrong(format!("invalid pattern: `{pattern}`")))
}

struct Rewriter<'p> {
    rest: &'p str,
    out: String,
}

impl<'p> Rewriter<'p> {
    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn all(mut self, pattern: &'p str) -> Result<String, String> {
        let mut open = 0usize;
        // Where the last repetition started, if one may not follow it.
        let mut repeated: Option<&'p str> = None;
        let mut something = false;
        loop {
            let before = self.rest;
            let Some(c) = self.take() else { break };
            let (was, had) = (repeated.take(), something);
            something = true;
            match c {
                '(' => {
                    open += usize::from(self.group(before)?);
                    something = false;
                    if open > MAX_GROUPS {
                        return Err(format!("expression nests too deeply: `{pattern}`"));
                    }
                }
                ')' => {
                    open = open.checked_sub(1).ok_or_else(|| format!("unexpected ): `{pattern}`"))?;
                    self.out.push(')');
                }
                '|' => {
                    self.out.push('|');
                    something = false;
                }
                '[' => self.class(before)?,
                '\\' => self.escape(before, false)?,
                '*' | '+' | '?' => {
                    self.repeat(before, &c.to_string(), was, had)?;
                    repeated = Some(was.unwrap_or(before));
                }
                '{' => match bounds(before)? {
                    Some(text) => {
                        self.rest = &before[text.len()..];
                        self.repeat(before, text, was, had)?;
                        repeated = Some(was.unwrap_or(before));
                    }
                    None => self.out.push_str("\\{"),
                },
                '}' | ']' | '#' | '&' | '~' | '-' | ' ' => {
                    self.out.push('\\');
                    self.out.push(c);
                }
                '^' | '$' | '.' => self.out.push(c),
                c => self.out.push(c),
            }
        }
        if open > 0 {
            return Err(format!("missing closing ): `{pattern}`"));
        }
        Ok(self.out)
    }

    /// A repetition, and a question mark that makes it match as little as it can.
    fn repeat(&mut self, before: &'p str, text: &str, was: Option<&'p str>, had: bool) -> Result<(), String> {
        self.out.push_str(text);
        if let Some(rest) = self.rest.strip_prefix('?') {
            self.rest = rest;
            self.out.push('?');
        }
        let length = before.len() - self.rest.len();
        if let Some(first) = was {
            let end = first.len() - self.rest.len();
            return Err(format!("invalid nested repetition operator: `{}`", &first[..end]));
        }
        if !had {
            return Err(format!("missing argument to repetition operator: `{}`", &before[..length]));
        }
        Ok(())
    }

    /// What is behind an opening parenthesis: nothing, a name, or flags. Answers whether a group was opened.
    fn group(&mut self, before: &'p str) -> Result<bool, String> {
        let Some(rest) = before.strip_prefix("(?") else {
            self.out.push('(');
            return Ok(true);
        };
        if let Some(named) = rest.strip_prefix("P<").or_else(|| rest.strip_prefix('<')) {
            if rest.starts_with("<=") || rest.starts_with("<!") {
                return Err(format!("invalid or unsupported Perl syntax: `{}`", &before[..4]));
            }
            let Some(end) = named.find('>') else { return Err(format!("invalid named capture: `{before}`")) };
            let name = &named[..end];
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                let until = before.len() - named.len() + end + 1;
                return Err(format!("invalid named capture: `{}`", &before[..until]));
            }
            // Names do not matter here, and may start with digits in Go.
            self.out.push('(');
            self.rest = &named[end + 1..];
            return Ok(true);
        }
        let end = rest.find(|c: char| !matches!(c, 'i' | 'm' | 's' | 'U' | '-')).unwrap_or(rest.len());
        let closed = rest[end..].starts_with([':', ')']);
        if !closed || rest[..end].matches('-').count() > 1 || rest[..end].ends_with('-') || before.starts_with("(?)") {
            let until = rest[end..].chars().next().map_or(0, char::len_utf8);
            return Err(format!("invalid or unsupported Perl syntax: `{}`", &before[..2 + end + until]));
        }
        self.out.push_str(&before[..2 + end]);
        self.rest = &rest[end..];
        let flags = self.take() == Some(')');
        self.out.push(if flags { ')' } else { ':' });
        Ok(!flags)
    }

    /// What is behind a backslash.
    fn escape(&mut self, before: &'p str, class: bool) -> Result<(), String> {
        let Some(c) = self.take() else { return Err("trailing backslash at end of expression: ``".to_owned()) };
        let (open, close) = if class { ("", "") } else { ("[", "]") };
        let mut put = |set: &str| {
            self.out.push_str(open);
            self.out.push_str(set);
            self.out.push_str(close);
        };
        match c {
            'd' => put("0-9"),
            'w' => put("0-9A-Za-z_"),
            's' => put("\\t\\n\\x0c\\r\\x20"),
            'D' => self.out.push_str("[^0-9]"),
            'W' => self.out.push_str("[^0-9A-Za-z_]"),
            'S' => self.out.push_str("[^\\t\\n\\x0c\\r\\x20]"),
            'b' if !class => self.out.push_str("(?-u:\\b)"),
            // Not between the bytes of a character.
            'B' if !class => self.out.push_str("\\B"),
            'A' | 'z' if !class => {
                self.out.push('\\');
                self.out.push(c);
            }
            'a' | 'f' | 'n' | 'r' | 't' | 'v' => {
                self.out.push('\\');
                self.out.push(c);
            }
            'Q' if !class => {
                let (literal, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
                self.rest = rest;
                self.out.push_str(&regex::escape(literal));
            }
            'E' if !class => {}
            'p' | 'P' => {
                let end = match self.rest.strip_prefix('{') {
                    Some(rest) => rest.find('}').map(|at| at + 2),
                    None => self.rest.chars().next().map(char::len_utf8),
                };
                let Some(end) = end else { return Err(format!("invalid character class range: `{before}`")) };
                self.out.push('\\');
                self.out.push(c);
                self.out.push_str(&self.rest[..end]);
                self.rest = &self.rest[end..];
            }
            'x' => {
                let end = match self.rest.strip_prefix('{') {
                    Some(rest) => rest.find('}').map(|at| at + 2),
                    None => Some(2).filter(|_| self.rest.is_char_boundary(2) && self.rest.len() >= 2),
                };
                let Some(end) = end else { return Err(format!("invalid escape sequence: `{before}`")) };
                let digits = self.rest[..end].trim_matches(['{', '}']);
                let code = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
                let Some(code) = code else {
                    return Err(format!("invalid escape sequence: `{}`", &before[..2 + end]));
                };
                self.rest = &self.rest[end..];
                self.literal(code);
            }
            '0'..='7' => {
                // A digit alone would be a reference to a group, which Go does not have.
                let more = self.rest.bytes().take(2).take_while(|b| (b'0'..=b'7').contains(b)).count();
                if c != '0' && more == 0 {
                    return Err(format!("invalid escape sequence: `\\{c}`"));
                }
                let digits = &before[1..2 + more];
                self.rest = &self.rest[more..];
                let code = u32::from_str_radix(digits, 8).ok().and_then(char::from_u32).unwrap_or('\0');
                self.literal(code);
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => self.literal(c),
            c => return Err(format!("invalid escape sequence: `\\{c}`")),
        }
        Ok(())
    }

    fn literal(&mut self, c: char) {
        self.out.push_str(&format!("\\x{{{:x}}}", u32::from(c)));
    }

    /// A class in brackets.
    fn class(&mut self, before: &'p str) -> Result<(), String> {
        let missing = || format!("missing closing ]: `{before}`");
        self.out.push('[');
        if let Some(rest) = self.rest.strip_prefix('^') {
            self.rest = rest;
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let here = self.rest;
            let c = self.take().ok_or_else(missing)?;
            match c {
                ']' if !first => break,
                '[' if here.starts_with("[:") && here.contains(":]") => {
                    let end = here.find(":]").unwrap_or(0) + 2;
                    self.out.push_str(&here[..end]);
                    self.rest = &here[end..];
                }
                '\\' => self.escape(here, true)?,
                '-' => {
                    // A dash is a character at the ends, and the sign of a range otherwise.
                    let range = !first && !self.rest.starts_with(']');
                    self.out.push_str(if range { "-" } else { "\\-" });
                }
                c if c.is_ascii_punctuation() => {
                    self.out.push('\\');
                    self.out.push(c);
                }
                c => self.out.push(c),
            }
            first = false;
        }
        self.out.push(']');
        Ok(())
    }
}

/// `{2}`, `{2,}` or `{2,3}` at the start of a text; `None` if it is something else, which then is only characters.
fn bounds(text: &str) -> Result<Option<&str>, String> {
    let Some(end) = text.find('}') else { return Ok(None) };
    let inner = &text[1..end];
    let (least, most) = match inner.split_once(',') {
        Some((least, most)) => (least, most),
        None => (inner, inner),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if least.is_empty() || !digits(least) || !digits(most) {
        return Ok(None);
    }
    let number = |text: &str| text.parse::<u32>().unwrap_or(u32::MAX);
    let most = if most.is_empty() { number(least) } else { number(most) };
    if number(least) > MAX_REPEAT || most > MAX_REPEAT || number(least) > most {
        return Err(format!("invalid repeat count: `{}`", &text[..=end]));
    }
    Ok(Some(&text[..=end]))
}
