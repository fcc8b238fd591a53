//! From a request body to a value, as strictly as the client asks.
//!
//! [`parse`] reads JSON or YAML; [`conform`] then does to the value what decoding into a typed Go struct and writing it
//! again does upstream.

mod conform;
mod older;
mod scalar;
mod syntax;
mod yaml;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;

use schema::status::{Result, Status};
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

pub use conform::conform;
pub(crate) use scalar::{format_duration, parse_duration};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

/// A body that was read.
#[derive(Debug, PartialEq)]
pub struct Parsed {
    pub value: Value,
    /// Upstream's sentences about keys that were given twice (the last one counts), for strict decoding.
    pub duplicates: Vec<String>,
}

/// Values that one body may hold, and lists and objects among them. An object in memory takes many times its text (a
/// list of `{"a":1}` ninety times), so that the number of bytes alone bounds nothing. Real objects have some thousand.
const MAX_VALUES: usize = 500_000;
const MAX_CONTAINERS: usize = 100_000;

/// Upstream tells no more than this many strict errors.
const MAX_STRICT_ERRORS: usize = 100;

/// Reads a body. The message of an error is the one that Go's decoder gives, without what a server says before it.
pub fn parse(body: &[u8], format: Format) -> Result<Parsed> {
    match format {
        Format::Json => parse_json(body),
        Format::Yaml => yaml::parse(body),
    }
}

fn parse_json(body: &[u8]) -> Result<Parsed> {
    let Ok(text) = std::str::from_utf8(body) else {
        return Err(Status::bad_request("the body of the request is not valid UTF-8"));
    };
    let duplicates = RefCell::default();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let room = Room::default();
    let seed = Seed { path: None, duplicates: &duplicates, room: &room };
    let value = seed.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    match value {
        Ok(value) => Ok(Parsed { value, duplicates: duplicates.into_inner() }),
        Err(_) if room.is_full() => Err(Status::bad_request(Room::complaint())),
        Err(error) => Err(Status::bad_request(syntax::explain(body).unwrap_or_else(|| limit(&error)))),
    }
}

/// What is right by the grammar and yet refused: too deep, or a number that nothing can hold.
fn limit(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if text.starts_with("recursion limit") { "exceeded max depth".to_owned() } else { text }
}

/// Puts the sentences about duplicate and unknown fields together as upstream orders them: by their place in a JSON
/// document, and by name for YAML.
pub fn strict_errors(body: &[u8], format: Format, duplicates: Vec<String>, unknown: Vec<String>) -> Vec<String> {
    let mut errors = duplicates;
    errors.extend(unknown);
    if format == Format::Json && errors.len() > 1 {
        let places = places(body, &errors);
        errors.sort_by_key(|e| places.get(e).copied().unwrap_or(usize::MAX));
    }
    errors.dedup();
    errors.truncate(MAX_STRICT_ERRORS);
    errors
}

/// Where in the document each sentence was earned.
fn places(body: &[u8], errors: &[String]) -> HashMap<String, usize> {
    let found = RefCell::new((0, errors.iter().map(|e| (e.clone(), usize::MAX)).collect::<HashMap<_, _>>()));
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    // It was read once already, so an error here is none of ours.
    let _ = Places { path: None, found: &found }.deserialize(&mut deserializer);
    found.into_inner().1
}

/// How many values a body may still hold.
struct Room {
    values: Cell<usize>,
    containers: Cell<usize>,
}

impl Default for Room {
    fn default() -> Self {
        Self { values: Cell::new(MAX_VALUES), containers: Cell::new(MAX_CONTAINERS) }
    }
}

impl Room {
    fn complaint() -> String {
        format!(
            "the body holds too many values: at most {MAX_VALUES} are read, {MAX_CONTAINERS} of them lists and objects. \
             Split what you send into several objects"
        )
    }

    fn is_full(&self) -> bool {
        self.values.get() == 0 || self.containers.get() == 0
    }

    fn take<E: serde::de::Error>(left: &Cell<usize>) -> std::result::Result<(), E> {
        match left.get() {
            0 | 1 => {
                left.set(0);
                Err(E::custom(Self::complaint()))
            }
            n => {
                left.set(n - 1);
                Ok(())
            }
        }
    }

    fn value<E: serde::de::Error>(&self) -> std::result::Result<(), E> {
        Self::take(&self.values)
    }

    fn container<E: serde::de::Error>(&self) -> std::result::Result<(), E> {
        Self::take(&self.containers)
    }
}

/// A place in a document, as a chain up to its root.
#[derive(Clone, Copy)]
struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    /// A field of a struct, or any key where nothing tells them from keys of maps.
    Key(&'a str),
    /// A key of a map.
    Entry(&'a str),
    Index(usize),
}

impl fmt::Display for Path<'_> {
    /// `spec.containers[0].name`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Key(key) | Step::Entry(key) if self.parent.is_some() => write!(f, ".{key}"),
            Step::Key(key) | Step::Entry(key) => f.write_str(key),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Builds a value and notes keys that come twice.
#[derive(Clone, Copy)]
struct Seed<'a> {
    path: Option<&'a Path<'a>>,
    duplicates: &'a RefCell<Vec<String>>,
    room: &'a Room,
}

impl Seed<'_> {
    fn duplicate(&self, key: &str) {
        let mut duplicates = self.duplicates.borrow_mut();
        if duplicates.len() < MAX_STRICT_ERRORS {
            let sentence = format!("duplicate field \"{}\"", Path { parent: self.path, step: Step::Key(key) });
            if !duplicates.contains(&sentence) {
                duplicates.push(sentence);
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> std::result::Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> std::result::Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let path = Path { parent: self.path, step: Step::Index(items.len()) };
            match access.next_element_seed(Seed { path: Some(&path), ..self })? {
                Some(item) => {
                    if items.is_empty() {
                        self.room.container()?;
                    }
                    self.room.value()?;
                    items.push(item);
                }
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> std::result::Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                self.duplicate(&key);
            }
            let path = Path { parent: self.path, step: Step::Key(&key) };
            let value = access.next_value_seed(Seed { path: Some(&path), ..self })?;
            if map.is_empty() {
                self.room.container()?;
            }
            self.room.value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// Walks a document without keeping it and notes where the wanted sentences belong.
#[derive(Clone, Copy)]
struct Places<'a> {
    path: Option<&'a Path<'a>>,
    found: &'a RefCell<(usize, HashMap<String, usize>)>,
}

impl Places<'_> {
    fn note(&self, sentence: &str) {
        let (count, places) = &mut *self.found.borrow_mut();
        if let Some(place) = places.get_mut(sentence)
            && *place == usize::MAX
        {
            *place = *count;
            *count += 1;
        }
    }
}

impl<'de> DeserializeSeed<'de> for Places<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Places<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> std::result::Result<(), A::Error> {
        for index in 0.. {
            let path = Path { parent: self.path, step: Step::Index(index) };
            if access.next_element_seed(Places { path: Some(&path), ..self })?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> std::result::Result<(), A::Error> {
        let mut seen = std::collections::HashSet::new();
        while let Some(key) = access.next_key::<String>()? {
            let path = Path { parent: self.path, step: Step::Key(&key) };
            self.note(&format!("unknown field \"{path}\""));
            if seen.contains(&key) {
                self.note(&format!("duplicate field \"{path}\""));
            }
            access.next_value_seed(Places { path: Some(&path), ..self })?;
            seen.insert(key);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
