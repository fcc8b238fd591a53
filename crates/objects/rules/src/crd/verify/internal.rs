//! A definition as upstream's internal type has it: what is the same in all versions stands once, above them.

use std::sync::LazyLock;

use schema::json_schema::text;
use serde_json::{Map, Value};

pub(super) struct Spec<'a> {
    pub(super) group: &'a str,
    pub(super) scope: &'a str,
    pub(super) names: &'a Map<String, Value>,
    pub(super) conversion: Option<&'a Map<String, Value>>,
    pub(super) preserve_unknown: bool,
    pub(super) versions: Vec<Version<'a>>,
    /// Whether there is a list of them at all, be it an empty one.
    pub(super) has_versions: bool,
    pub(super) schema: Option<&'a Value>,
    pub(super) subresources: Option<&'a Value>,
    pub(super) columns: Option<&'a Value>,
    pub(super) selectable: Option<&'a Value>,
}

pub(super) struct Version<'a> {
    pub(super) name: &'a str,
    pub(super) raw: &'a Map<String, Value>,
    pub(super) schema: Option<&'a Value>,
    pub(super) subresources: Option<&'a Value>,
    pub(super) columns: Option<&'a Value>,
    pub(super) selectable: Option<&'a Value>,
}

static NO_NAMES: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

fn has_status(subresources: Option<&Value>) -> bool {
    subresources.and_then(|s| s.get("status")).is_some_and(|s| !s.is_null())
}

impl<'a> Spec<'a> {
    pub(super) fn read(raw: &'a Map<String, Value>) -> Self {
        let list = raw.get("versions").and_then(Value::as_array);
        let mut versions: Vec<Version<'a>> =
            list.into_iter().flatten().filter_map(Value::as_object).map(Version::read).collect();
        let mut spec = Self {
            group: text(raw, "group"),
            scope: text(raw, "scope"),
            names: raw.get("names").and_then(Value::as_object).unwrap_or(&NO_NAMES),
            conversion: raw.get("conversion").and_then(Value::as_object),
            preserve_unknown: raw.get("preserveUnknownFields").and_then(Value::as_bool).unwrap_or(false),
            versions: Vec::new(),
            has_versions: list.is_some(),
            schema: None,
            subresources: None,
            columns: None,
            selectable: None,
        };
        spec.schema = lift(&mut versions, |v| &mut v.schema);
        spec.subresources = lift(&mut versions, |v| &mut v.subresources);
        spec.columns = lift(&mut versions, |v| &mut v.columns);
        spec.selectable = lift(&mut versions, |v| &mut v.selectable);
        spec.versions = versions;
        spec
    }

    pub(super) fn any_status(&self) -> bool {
        has_status(self.subresources) || self.versions.iter().any(|v| has_status(v.subresources))
    }

    pub(super) fn status_of(&self, version: &Version<'_>) -> bool {
        let own = self.versions.iter().any(|v| v.subresources.is_some());
        has_status(if own { version.subresources } else { self.subresources })
    }

    pub(super) fn has_defaults(&self) -> bool {
        fn has_default(schema: &Value, depth: usize) -> bool {
            match schema {
                Value::Object(map) if depth < 200 => {
                    map.contains_key("default") || map.values().any(|v| has_default(v, depth + 1))
                }
                Value::Array(list) if depth < 200 => list.iter().any(|v| has_default(v, depth + 1)),
                _ => false,
            }
        }
        let schemas = self.versions.iter().filter_map(|v| v.schema).chain(self.schema);
        schemas.into_iter().any(|schema| has_default(schema, 0))
    }
}

/// Takes a field out of all versions if it is the same in all of them.
fn lift<'a>(
    versions: &mut [Version<'a>],
    field: impl for<'v> Fn(&'v mut Version<'a>) -> &'v mut Option<&'a Value>,
) -> Option<&'a Value> {
    let first = versions.first_mut().and_then(|v| *field(v));
    if !versions.iter_mut().all(|v| *field(v) == first) {
        return None;
    }
    versions.iter_mut().for_each(|v| *field(v) = None);
    first
}

impl<'a> Version<'a> {
    fn read(raw: &'a Map<String, Value>) -> Self {
        let get = |key: &str| raw.get(key).filter(|v| !v.is_null());
        let listed = |key: &str| get(key).filter(|v| v.as_array().is_none_or(|list| !list.is_empty()));
        Self {
            name: text(raw, "name"),
            raw,
            schema: get("schema"),
            subresources: get("subresources"),
            columns: listed("additionalPrinterColumns"),
            selectable: listed("selectableFields"),
        }
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        self.raw.get(key).and_then(Value::as_bool).unwrap_or(false)
    }
}
