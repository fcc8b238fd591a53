//! Tables: what `kubectl get` shows of objects.

mod age;
mod cells;
mod columns;
pub mod custom;
pub mod jsonpath;
mod read;

use serde_json::{Map, Value, json};

pub use age::human;
pub use cells::cells;
pub use columns::{Column, DEFAULT, columns};
pub use custom::CustomColumns;

use crate::status::Status;

/// How much of the object comes with its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    /// Reads the `includeObject` parameter.
    pub fn parse(parameter: &str) -> Result<Self, Status> {
        match parameter {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::None),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', \
                 'Object', 'None', or empty",
                Value::from(other)
            ))),
        }
    }
}

/// Makes tables of one resource.
#[derive(Clone, Debug)]
pub enum Printer {
    BuiltIn { group: Box<str>, resource: Box<str>, columns: &'static [Column] },
    Custom(CustomColumns),
}

impl Printer {
    pub fn built_in(group: &str, version: &str, resource: &str) -> Self {
        let columns = columns(group, version, resource).unwrap_or(DEFAULT);
        Self::BuiltIn { group: group.into(), resource: resource.into(), columns }
    }

    /// For a custom resource, by the `additionalPrinterColumns` of its version.
    pub fn custom(additional_printer_columns: &Value) -> Self {
        Self::Custom(custom::columns(additional_printer_columns))
    }

    pub fn column_definitions(&self) -> Value {
        let definition = |c: &Column| json!({"name": c.name, "type": c.kind, "format": c.format, "description": "", "priority": c.priority});
        match self {
            Self::BuiltIn { columns, .. } => columns.iter().map(definition).collect(),
            Self::Custom(columns) => {
                DEFAULT.iter().take(1).map(definition).chain(columns.definitions().cloned()).collect()
            }
        }
    }

    /// The row of an object, which goes into it as far as asked for.
    pub fn row(&self, object: Value, include: IncludeObject, now: i64) -> Value {
        let (cells, conditions) = match self {
            // What only has the default columns has no printer of its own.
            Self::BuiltIn { columns, .. } if *columns == DEFAULT => (cells::default(&object), None),
            Self::BuiltIn { group, resource, .. } => {
                (cells(group, resource, &object, now), cells::conditions(group, resource, &object))
            }
            Self::Custom(columns) => (columns.cells(&object, now), None),
        };
        row(cells, conditions, object, include)
    }

    /// A whole table. `metadata` is that of the list, or only the resourceVersion of a single object. In a watch only the
    /// first event has columns.
    pub fn document(&self, metadata: Value, rows: Vec<Value>, with_columns: bool) -> Value {
        // An empty list of a kind without a printer of its own is null upstream.
        let no_rows = matches!(self, Self::BuiltIn { columns, .. } if *columns == DEFAULT) && rows.is_empty();
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": if with_columns { self.column_definitions() } else { Value::Null },
            "rows": if no_rows { Value::Null } else { Value::Array(rows) },
        })
    }
}

/// A row of given cells.
pub fn row(cells: Vec<Value>, conditions: Option<Value>, object: Value, include: IncludeObject) -> Value {
    let mut row = Map::new();
    row.insert("cells".to_owned(), Value::Array(cells));
    if let Some(conditions) = conditions {
        row.insert("conditions".to_owned(), conditions);
    }
    row.insert("object".to_owned(), included(object, include));
    Value::Object(row)
}

fn included(mut object: Value, include: IncludeObject) -> Value {
    match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Object => object,
        IncludeObject::Metadata => json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": object.get_mut("metadata").map(Value::take).unwrap_or_else(|| json!({})),
        }),
    }
}

/// The metadata of a table of a single object.
pub fn metadata_of(object: &Value) -> Value {
    match object.pointer("/metadata/resourceVersion") {
        Some(version) => json!({"resourceVersion": version}),
        None => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents() {
        let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"k": "v"},
            "metadata": {"name": "a", "creationTimestamp": "1970-01-01T00:00:00Z", "resourceVersion": "7"}});
        let printer = Printer::built_in("", "v1", "configmaps");
        let metadata = metadata_of(&map);
        let rows = vec![printer.row(map.clone(), IncludeObject::Metadata, 60)];
        let table = printer.document(metadata, rows, true);
        assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
        assert_eq!(table["rows"][0]["cells"], json!(["a", 1, "60s"]));
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(table["rows"][0]["object"]["metadata"], map["metadata"]);
        assert_eq!(table["columnDefinitions"][1]["name"], "Data");
        assert_eq!(printer.row(map.clone(), IncludeObject::None, 0)["object"], Value::Null);
        assert_eq!(printer.row(map.clone(), IncludeObject::Object, 0)["object"], map);
        assert_eq!(printer.document(json!({}), vec![], false)["columnDefinitions"], Value::Null);
        assert_eq!(printer.document(json!({}), vec![], false)["rows"], json!([]));

        let roles = Printer::built_in("rbac.authorization.k8s.io", "v1", "roles");
        assert_eq!(roles.document(json!({}), vec![], true)["rows"], Value::Null);
        assert_eq!(roles.row(map, IncludeObject::None, 0)["cells"], json!(["a", "1970-01-01T00:00:00Z"]));
        assert_eq!(Printer::built_in("x", "v1", "y").column_definitions()[1]["name"], "Created At");
    }

    #[test]
    fn include_object() {
        assert_eq!(IncludeObject::parse(""), Ok(IncludeObject::Metadata));
        assert_eq!(
            IncludeObject::parse("Half").unwrap_err().message,
            "Unable to convert to Table as requested: includeObject: Invalid value: \"Half\": must be 'Metadata', \
             'Object', 'None', or empty"
        );
    }

    #[test]
    fn custom_definitions() {
        let printer = Printer::custom(&json!([
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1, "description": "How large"}]));
        assert_eq!(
            printer.column_definitions()[1],
            json!({"name": "Size", "type": "integer", "format": "", "description": "How large", "priority": 1})
        );
        assert_eq!(Printer::custom(&Value::Null).column_definitions()[1]["name"], "Age");
    }
}
