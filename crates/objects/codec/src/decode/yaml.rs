//! YAML bodies: the first document, without surprises. Read as upstream does, which is YAML 1.1: `yes` is true and `0644` is 420.

use std::cell::{Cell, RefCell};
use std::fmt;

use schema::status::{Result, Status};
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{Parsed, older};

/// The scanner behind the parser looks at every open bracket for each token, so that depth costs time squared.
const MAX_BRACKETS: usize = 5_000;
/// What may begin or end a node: lines, commas, colons, dashes, brackets, anchors and aliases. A node takes hundreds of
/// bytes while it is read, and text with as many of these marks is far beyond what an object may hold.
const MAX_MARKS: usize = 400_000;
/// At most this many bytes before a word a tag is looked for: aliases may repeat the word, and each time it is looked at again.
const NEAR: usize = 256;
/// How many repeated keys are told; each costs one more pass.
const MAX_DUPLICATES: usize = 10;

pub(super) fn parse(body: &[u8]) -> Result<Parsed> {
    let Ok(text) = std::str::from_utf8(body) else {
        return Err(Status::bad_request("error converting YAML to JSON: yaml: invalid leading UTF-8 octet"));
    };
    if too_many_brackets(body) {
        return Err(Status::bad_request("error converting YAML to JSON: yaml: exceeded max depth"));
    }
    if marks(body) > MAX_MARKS {
        return Err(Status::bad_request(format!(
            "error converting YAML to JSON: yaml: document has too many nodes: at most {MAX_MARKS} lines, commas, colons and \
             other marks are read. Send it as JSON, or split it into several objects"
        )));
    }
    let mut told = Vec::new();
    loop {
        let pass = Pass::new(text, told.len());
        match pass.run() {
            Ok(value) => return Ok(Parsed { value, duplicates: sentence(&told) }),
            Err(error) => match pass.duplicate.into_inner() {
                // The pass stopped at a repeated key only to learn its line.
                Some(key) => {
                    let line = error.location().map_or(0, |l| l.line());
                    told.push(format!("  line {line}: key {} already set in map", Value::from(key)));
                }
                None => return Err(Status::bad_request(format!("error converting YAML to JSON: {}", go_like(&error)))),
            },
        }
    }
}

/// How many marks there are that may begin a node. A dash, an anchor or an alias does so only before or behind a space.
fn marks(body: &[u8]) -> usize {
    let mut count = 0;
    let mut before = b'\n';
    for &byte in body {
        let spaced = matches!(before, b' ' | b'\n' | b'[' | b',' | b'{');
        count += usize::from(match byte {
            b'\n' | b',' | b':' | b'?' | b'[' | b'{' => true,
            b'-' | b'&' | b'*' => spaced,
            _ => false,
        });
        before = byte;
    }
    count
}

fn sentence(told: &[String]) -> Vec<String> {
    if told.is_empty() { Vec::new() } else { vec![format!("yaml: unmarshal errors:\n{}", told.join("\n"))] }
}

/// `yaml: line 3: did not find expected key`, as upstream's parser, another child of the same C library, puts it.
fn go_like(error: &yaml_serde::Error) -> String {
    let text = error.to_string();
    let (told, context) = text.split_once(", while ").unwrap_or((&text, ""));
    let problem = told.split(" at line ").next().unwrap_or(told);
    // Go's child counts lines from zero, prefers where the construct began, names no first line, and remembers that
    // people count from one only if it was the scanner that stumbled.
    let line = |text: &str| text.split_once(" at line ")?.1.split(' ').next()?.parse::<usize>().ok()?.checked_sub(1);
    let at = error.location().map(|l| l.line().saturating_sub(1));
    let by_parser = PARSER_PROBLEMS.iter().any(|known| problem.ends_with(known));
    match line(context).filter(|line| *line != 0).or(at).unwrap_or(0) {
        0 => format!("yaml: {problem}"),
        line => format!("yaml: line {}: {problem}", line + usize::from(!by_parser)),
    }
}

/// What the parser misses; everything else is missed by the scanner before it.
const PARSER_PROBLEMS: &[&str] = &[
    "expected <stream-start>",
    "expected <document start>",
    "expected node content",
    "expected '-' indicator",
    "expected key",
    "expected ',' or ']'",
    "expected ',' or '}'",
];

/// Whether so many brackets are open at once as no honest document has. Brackets in text count as well, which
/// only matters beyond thousands of unbalanced ones.
fn too_many_brackets(body: &[u8]) -> bool {
    let mut open = 0usize;
    for byte in body {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => continue,
        }
        if open > MAX_BRACKETS {
            return true;
        }
    }
    false
}

/// One reading of the document.
struct Pass<'t> {
    text: &'t str,
    /// Aliases may repeat what is written, but not without end: what is built stays in proportion to the text.
    nodes: Cell<usize>,
    /// Lists and objects that are not empty.
    containers: Cell<usize>,
    bytes: Cell<usize>,
    /// At most this many repeated keys are passed over before one stops the pass.
    skip: Cell<usize>,
    duplicate: RefCell<Option<String>>,
}

impl<'t> Pass<'t> {
    fn new(text: &'t str, skip: usize) -> Self {
        let skip = if skip < MAX_DUPLICATES { skip } else { usize::MAX };
        Self {
            text,
            nodes: Cell::new((text.len() + 10_000).min(super::MAX_VALUES)),
            containers: Cell::new(super::MAX_CONTAINERS),
            bytes: Cell::new(4 * text.len() + 1_000_000),
            skip: Cell::new(skip),
            duplicate: RefCell::default(),
        }
    }

    fn run(&self) -> std::result::Result<Value, yaml_serde::Error> {
        match yaml_serde::Deserializer::from_str(self.text).next() {
            Some(document) => Seed(self).deserialize(document),
            None => Ok(Value::Null),
        }
    }

    /// What a word of the text means, which the parser, being of YAML 1.2, takes for a string: nothing else if it is quoted or tagged.
    fn meaning(&self, word: &str) -> Option<Value> {
        let meaning = older::meaning(word)?;
        let at = word.as_ptr().addr().checked_sub(self.text.as_ptr().addr())?;
        let before = self.text.as_bytes().get(at.saturating_sub(NEAR)..at)?;
        let is_quoted = before.ends_with(b"\"") || before.ends_with(b"'");
        // An anchor may stand between a tag and what it is for.
        let mut properties =
            before.rsplit(u8::is_ascii_whitespace).filter(|it| !it.is_empty() && !it.starts_with(b"&"));
        let is_tagged = properties.next().is_some_and(|it| it.starts_with(b"!"));
        Some(meaning).filter(|_| !is_quoted && !is_tagged)
    }

    /// A list or an object begins to fill.
    fn contain<E: Error>(&self) -> std::result::Result<(), E> {
        match self.containers.get().checked_sub(1) {
            Some(left) => {
                self.containers.set(left);
                Ok(())
            }
            None => Err(E::custom(super::Room::complaint())),
        }
    }

    fn spend<E: Error>(&self, bytes: usize) -> std::result::Result<(), E> {
        match (self.nodes.get().checked_sub(1), self.bytes.get().checked_sub(bytes)) {
            (Some(nodes), Some(bytes)) => {
                self.nodes.set(nodes);
                self.bytes.set(bytes);
                Ok(())
            }
            _ => Err(E::custom("document contains excessive aliasing")),
        }
    }
}

#[derive(Clone, Copy)]
struct Seed<'a>(&'a Pass<'a>);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> std::result::Result<Value, E> {
        self.0.spend(0)?;
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> std::result::Result<Value, E> {
        self.0.spend(0)?;
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> std::result::Result<Value, E> {
        self.0.spend(0)?;
        Ok(value.into())
    }

    /// Integers that fit nowhere else are numbers with an exponent.
    fn visit_i128<E: Error>(self, value: i128) -> std::result::Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_u128<E: Error>(self, value: u128) -> std::result::Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> std::result::Result<Value, E> {
        self.0.spend(0)?;
        // Neither infinity nor NaN has a JSON form; upstream refuses them too.
        serde_json::Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("json: unsupported value: a number without a JSON form"))
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> std::result::Result<Value, E> {
        match self.0.meaning(value) {
            Some(meaning) => self.0.spend(0).map(|()| meaning),
            None => self.visit_str(value),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> std::result::Result<Value, E> {
        self.0.spend(value.len())?;
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> std::result::Result<Value, E> {
        self.0.spend(0)?;
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> std::result::Result<Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: serde::Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> std::result::Result<Value, A::Error> {
        self.0.spend(0)?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self)? {
            if items.is_empty() {
                self.0.contain()?;
            }
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> std::result::Result<Value, A::Error> {
        self.0.spend(0)?;
        let mut map = Map::new();
        let mut merged = Vec::new();
        while let Some(key) = access.next_key_seed(Key { pass: self.0, seen: &map })? {
            let value = access.next_value_seed(self)?;
            if map.is_empty() {
                self.0.contain()?;
            }
            if key == "<<" { merged.push(value) } else { drop(map.insert(key, value)) }
        }
        for value in merged {
            merge(&mut map, value);
        }
        Ok(Value::Object(map))
    }

    fn visit_enum<A: serde::de::EnumAccess<'de>>(self, access: A) -> std::result::Result<Value, A::Error> {
        use serde::de::VariantAccess;
        // A tag (`!thing value`) is passed over, as upstream does.
        let (_, variant) = access.variant::<String>()?;
        variant.newtype_variant_seed(self)
    }
}

/// `<<: *base`: what is written beside it wins.
fn merge(map: &mut Map<String, Value>, value: Value) {
    match value {
        Value::Object(base) => {
            for (key, value) in base {
                map.entry(key).or_insert(value);
            }
        }
        Value::Array(bases) => bases.into_iter().for_each(|base| merge(map, base)),
        _ => {}
    }
}

/// Reads a key, which becomes a string whatever it is, and stops the pass at a repeated one.
struct Key<'a> {
    pass: &'a Pass<'a>,
    seen: &'a Map<String, Value>,
}

impl Key<'_> {
    fn checked<E: Error>(self, key: String) -> std::result::Result<String, E> {
        self.pass.spend(key.len())?;
        if self.seen.contains_key(&key) {
            match self.pass.skip.get().checked_sub(1) {
                Some(skip) => self.pass.skip.set(skip),
                None => {
                    self.pass.duplicate.replace(Some(key));
                    return Err(E::custom("duplicate key"));
                }
            }
        }
        Ok(key)
    }
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> std::result::Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Key<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key that is a string, number or boolean")
    }

    fn visit_borrowed_str<E: Error>(self, key: &'de str) -> std::result::Result<String, E> {
        match self.pass.meaning(key) {
            Some(meaning) => self.checked(meaning.to_string()),
            None => self.visit_str(key),
        }
    }

    fn visit_str<E: Error>(self, key: &str) -> std::result::Result<String, E> {
        self.checked(key.to_owned())
    }

    fn visit_bool<E: Error>(self, key: bool) -> std::result::Result<String, E> {
        self.checked(key.to_string())
    }

    fn visit_i64<E: Error>(self, key: i64) -> std::result::Result<String, E> {
        self.checked(key.to_string())
    }

    fn visit_u64<E: Error>(self, key: u64) -> std::result::Result<String, E> {
        self.checked(key.to_string())
    }

    fn visit_f64<E: Error>(self, key: f64) -> std::result::Result<String, E> {
        self.checked(key.to_string())
    }

    fn visit_unit<E: Error>(self) -> std::result::Result<String, E> {
        Err(E::custom("unsupported map key of type: null"))
    }
}
