//! `metadata.managedFields`: who owns which fields, how, since when.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};

use serde_json::{Map, Value, json};

use super::fieldset::FieldSet;

/// How many entries of updaters an object keeps; older ones become one.
const MAX_UPDATERS: usize = 10;

const ANCIENT: &str = "ancient-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// One manager's entry. An applier is the same whatever version it applies in, an updater is not.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) manager: Cow<'a, str>,
    pub(super) operation: Operation,
    pub(super) api_version: Cow<'a, str>,
    pub(super) subresource: Cow<'a, str>,
    pub(super) time: Option<Cow<'a, str>>,
    pub(super) set: FieldSet<'a>,
    /// As it was read; gone when anything changed.
    source: Option<&'a Value>,
}

/// All entries of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Managed<'a> {
    pub(super) entries: Vec<Entry<'a>>,
}

impl<'a> Entry<'a> {
    pub(super) fn new(manager: &'a str, operation: Operation, api_version: &'a str, subresource: &'a str) -> Self {
        Self {
            manager: Cow::Borrowed(manager),
            operation,
            api_version: Cow::Borrowed(api_version),
            subresource: Cow::Borrowed(subresource),
            time: None,
            set: FieldSet::new(),
            source: None,
        }
    }

    fn decode(value: &'a Value, index: usize) -> Result<Self, String> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
            other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {index}")),
        }
        let set = match value.get("fieldsV1") {
            None | Some(Value::Null) => FieldSet::new(),
            Some(fields) => FieldSet::from_value(fields).map_err(|why| format!("error decoding set: {why}"))?,
        };
        Ok(Self {
            time: value.get("time").and_then(Value::as_str).map(Cow::Borrowed),
            set,
            source: Some(value),
            ..Self::new(text("manager"), operation, api_version, text("subresource"))
        })
    }

    pub(super) fn is(&self, other: &Entry<'_>) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// What two entries have in common if they are the same manager's.
    fn key(&self) -> (Cow<'a, str>, Operation, Cow<'a, str>, Cow<'a, str>) {
        let version = if self.operation == Operation::Apply { Cow::Borrowed("") } else { self.api_version.clone() };
        (self.manager.clone(), self.operation, self.subresource.clone(), version)
    }

    /// To be called when the set or the time has been changed.
    pub(super) fn touch(&mut self) {
        self.source = None;
    }

    /// Upstream's key of a manager, by which it sorts.
    pub(super) fn identity(&self) -> String {
        let mut id = format!("{{\"manager\":{},\"operation\":\"{}\"", json!(self.manager), self.operation.name());
        if self.operation == Operation::Update {
            id.push_str(&format!(",\"apiVersion\":{}", json!(self.api_version)));
        }
        if !self.subresource.is_empty() {
            id.push_str(&format!(",\"subresource\":{}", json!(self.subresource)));
        }
        id.push('}');
        id
    }

    fn seconds(&self) -> i64 {
        let time = self.time.as_deref().and_then(|time| time.parse::<jiff::Timestamp>().ok());
        time.map_or(0, jiff::Timestamp::as_second)
    }

    fn encode(&self) -> Value {
        if let Some(source) = self.source {
            return source.clone();
        }
        let mut out = Map::new();
        let mut put = |key: &str, text: &str| {
            if !text.is_empty() {
                out.insert(key.to_owned(), Value::from(text));
            }
        };
        put("manager", &self.manager);
        put("operation", self.operation.name());
        put("apiVersion", &self.api_version);
        put("time", self.time.as_deref().unwrap_or_default());
        put("fieldsType", "FieldsV1");
        put("subresource", &self.subresource);
        out.insert("fieldsV1".to_owned(), self.set.to_value());
        Value::Object(out)
    }
}

impl<'a> Managed<'a> {
    pub(super) fn decode(list: &'a [Value]) -> Result<Self, String> {
        let mut entries: Vec<Entry<'a>> = Vec::with_capacity(list.len() + 1);
        let mut known = HashMap::with_capacity(list.len());
        for (i, value) in list.iter().enumerate() {
            let entry = Entry::decode(value, i)?;
            match known.entry(entry.key()) {
                Occupied(at) => entries[*at.get()] = entry,
                Vacant(free) => {
                    free.insert(entries.len());
                    entries.push(entry);
                }
            }
        }
        Ok(Self { entries })
    }

    pub(super) fn position(&self, entry: &Entry<'_>) -> Option<usize> {
        self.entries.iter().position(|e| e.is(entry))
    }

    pub(super) fn drop_empty(&mut self) {
        self.entries.retain(|entry| !entry.set.is_empty());
    }

    /// The list as it is stored, in upstream's order. `None` when nobody owns anything.
    pub(super) fn encode(mut self) -> Option<Vec<Value>> {
        if self.entries.is_empty() {
            return None;
        }
        if self.entries.len() > 1 {
            self.entries.sort_by_cached_key(|e| {
                (e.operation, e.seconds(), e.manager.clone(), e.api_version.clone(), e.subresource.clone())
            });
        }
        Some(self.entries.iter().map(Entry::encode).collect())
    }

    /// Makes one entry of the oldest updaters of each version until there are few enough.
    pub(super) fn cap_updaters(&mut self) {
        let mut updaters = self.entries.iter().filter(|e| e.operation == Operation::Update).count();
        if updaters <= MAX_UPDATERS {
            return;
        }
        let (mut updating, applying): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.entries).into_iter().partition(|e| e.operation == Operation::Update);
        self.entries = applying;
        updating.sort_by_cached_key(|e| (e.seconds(), e.identity()));
        let mut updating: Vec<Option<Entry<'a>>> = updating.into_iter().map(Some).collect();
        // Where the oldest entry of each version is, and where the one that older ones have become already.
        let mut first_of: HashMap<Cow<'a, str>, usize> = HashMap::new();
        let mut bucket_of: HashMap<Cow<'a, str>, usize> = HashMap::new();
        for (at, entry) in updating.iter().flatten().enumerate() {
            if entry.manager == ANCIENT && entry.subresource.is_empty() {
                bucket_of.entry(entry.api_version.clone()).or_insert(at);
            }
        }
        // What goes into each of them, and the time of the last.
        let mut gathered: HashMap<usize, (Vec<FieldSet<'a>>, Option<Cow<'a, str>>)> = HashMap::new();
        for (i, slot) in updating.iter_mut().enumerate() {
            if updaters <= MAX_UPDATERS {
                break;
            }
            let Some(version) = slot.as_ref().map(|e| e.api_version.clone()) else { continue };
            let Some(first) = first_of.get(&version).copied() else {
                first_of.insert(version, i);
                continue;
            };
            let at = *bucket_of.entry(version).or_insert(first);
            if at == i {
                continue;
            }
            let Some(entry) = slot.take() else { continue };
            let bucket = gathered.entry(at).or_default();
            bucket.0.push(entry.set);
            bucket.1 = entry.time;
            updaters -= 1;
        }
        for (at, (mut sets, time)) in gathered {
            if let Some(bucket) = &mut updating[at] {
                sets.push(std::mem::take(&mut bucket.set));
                bucket.manager = Cow::Borrowed(ANCIENT);
                bucket.subresource = Cow::Borrowed("");
                bucket.time = time;
                bucket.set = FieldSet::union_all(sets);
                bucket.touch();
            }
        }
        self.entries.extend(updating.into_iter().flatten());
    }
}

/// Whether a client asks for nobody to own anything: an empty list, or one empty entry.
pub(super) fn is_reset(list: &[Value]) -> bool {
    match list {
        [] => true,
        [Value::Object(only)] => only.values().all(|v| v.is_null() || v.as_str() == Some("")),
        _ => false,
    }
}
