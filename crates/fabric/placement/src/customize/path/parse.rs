//! How paths are written.

use super::{Path, Segment, Selector};

const LONGEST: usize = 4096;
const MOST_SEGMENTS: usize = 64;

impl std::str::FromStr for Path {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!("the path is longer than {LONGEST} bytes"));
        }
        let mut reader = Reader { text, rest: text.trim() };
        reader.expect("$").map_err(|_| "a path begins with $, as in $.spec.replicas".to_owned())?;
        let mut segments = Vec::new();
        while reader.skip_space() {
            segments.push(reader.segment()?);
            if segments.len() > MOST_SEGMENTS {
                return Err(format!("the path has more than {MOST_SEGMENTS} steps"));
            }
        }
        if segments.is_empty() {
            return Err("$ is the whole object, which cannot be replaced".to_owned());
        }
        Ok(Self(segments))
    }
}

/// Whether a name can be written behind a dot.
pub fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(in_name)
}

fn in_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '/')
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn fail<T>(&self, wanted: &str) -> Result<T, String> {
        let at = self.text.trim_end().len().saturating_sub(self.rest.len());
        Err(match self.rest.chars().next() {
            Some(c) => format!("{wanted} instead of {c:?} at character {}", self.text[..at].chars().count() + 1),
            None => format!("{wanted} at the end of the path"),
        })
    }

    /// Whether there is more.
    fn skip_space(&mut self) -> bool {
        self.rest = self.rest.trim_start();
        !self.rest.is_empty()
    }

    fn takes(&mut self, token: &str) -> bool {
        let after = self.rest.strip_prefix(token);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.takes(token) { Ok(()) } else { self.fail(&format!("{token:?} is wanted")) }
    }

    fn segment(&mut self) -> Result<Segment, String> {
        let deep = self.takes("..");
        if deep && self.rest.starts_with('[') {
            self.rest = &self.rest[1..];
            return Ok(Segment { deep, selectors: self.bracket()? });
        }
        if deep || self.takes(".") {
            return Ok(Segment { deep, selectors: vec![self.shorthand()?] });
        }
        if self.takes("[") {
            return Ok(Segment { deep, selectors: self.bracket()? });
        }
        self.fail("a dot or a bracket is wanted")
    }

    /// Behind a dot.
    fn shorthand(&mut self) -> Result<Selector, String> {
        if self.takes("*") {
            return Ok(Selector::All);
        }
        let end = self.rest.find(|c| !in_name(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if name.is_empty() {
            return self.fail("a name, a number or * is wanted");
        }
        self.rest = rest;
        let digits = name.strip_prefix('-').unwrap_or(name);
        if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
            return match name.parse() {
                Ok(number) => Ok(Selector::Number(number, name.to_owned())),
                Err(_) => Err(format!("no list has an item number {name}")),
            };
        }
        Ok(Selector::Name(name.to_owned()))
    }

    /// Behind an opening bracket.
    fn bracket(&mut self) -> Result<Vec<Selector>, String> {
        let mut selectors = Vec::new();
        loop {
            self.skip_space();
            selectors.push(self.selector()?);
            self.skip_space();
            if self.takes("]") {
                return Ok(selectors);
            }
            if !self.takes(",") {
                return self.fail("] or , is wanted");
            }
        }
    }

    fn selector(&mut self) -> Result<Selector, String> {
        match self.rest.chars().next() {
            Some('*') => {
                self.rest = &self.rest[1..];
                Ok(Selector::All)
            }
            Some(quote @ ('"' | '\'')) => {
                self.rest = &self.rest[1..];
                self.quoted(quote).map(Selector::Name)
            }
            Some('?') => {
                Err("filters, as in [?(…)], cannot be used here: name the items by number, or all by *".to_owned())
            }
            Some('(') => Err("scripts, as in [(…)], cannot be used here".to_owned()),
            _ => self.numbers(),
        }
    }

    /// `N` or a slice.
    fn numbers(&mut self) -> Result<Selector, String> {
        let start = self.number()?;
        self.skip_space();
        if !self.takes(":") {
            return match start {
                Some(at) => Ok(Selector::Index(at)),
                None => self.fail("a number, a quoted name, a slice or * is wanted"),
            };
        }
        self.skip_space();
        let end = self.number()?;
        self.skip_space();
        let mut step = None;
        if self.takes(":") {
            self.skip_space();
            step = self.number()?;
        }
        Ok(Selector::Slice { start, end, step: step.unwrap_or(1) })
    }

    fn number(&mut self) -> Result<Option<i64>, String> {
        let sign = usize::from(self.rest.starts_with('-'));
        let end = self.rest[sign..].find(|c: char| !c.is_ascii_digit()).map_or(self.rest.len(), |end| sign + end);
        let (digits, rest) = self.rest.split_at(end);
        if digits.is_empty() {
            return Ok(None);
        }
        match digits.parse() {
            Ok(number) => {
                self.rest = rest;
                Ok(Some(number))
            }
            Err(_) if digits == "-" => self.fail("a number is wanted"),
            Err(_) => Err(format!("no list has an item number {digits}")),
        }
    }

    /// Up to the closing quote, which is taken too. Escapes are JSON's, and the quote itself.
    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let mut json = String::from('"');
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                _ if c == quote => {
                    self.rest = &self.rest[at + 1..];
                    json.push('"');
                    return serde_json::from_str(&json).map_err(|_| format!("{json} is no name: an escape is wrong"));
                }
                '\\' => match chars.next() {
                    Some((_, '\'')) => json.push('\''),
                    Some((_, escaped)) => json.extend(['\\', escaped]),
                    None => break,
                },
                '"' => json.push_str("\\\""),
                _ => json.push(c),
            }
        }
        self.rest = "";
        self.fail(&format!("a closing {quote} is wanted"))
    }
}
