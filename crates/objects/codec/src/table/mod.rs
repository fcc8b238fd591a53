//! Tables: what `kubectl get` shows of objects.

mod age;
mod cells;
mod columns;
pub mod custom;
pub mod jsonpath;
mod read;
mod tree;

use serde_json::{Value, json};

pub use age::human;
pub use cells::cells;
pub use columns::{Column, DEFAULT, columns};
pub use custom::CustomColumns;
pub use tree::Node;

use schema::status::Status;

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

    /// What the row of an object says.
    pub fn row(&self, object: &Node<'_>, now: i64) -> Row {
        let (cells, conditions) = match self {
            // What only has the default columns has no printer of its own.
            Self::BuiltIn { columns, .. } if *columns == DEFAULT => (cells::default(object), None),
            Self::BuiltIn { group, resource, .. } => {
                (cells(group, resource, object, now), cells::conditions(group, resource, object))
            }
            Self::Custom(columns) => (columns.cells(object, now), None),
        };
        Row { cells, conditions }
    }

    /// What a table without rows has instead of them: null upstream for a kind without a printer of its own.
    pub fn no_rows(&self) -> Value {
        if matches!(self, Self::BuiltIn { columns, .. } if *columns == DEFAULT) { Value::Null } else { json!([]) }
    }
}

/// What a row says; the object is put beside it as far as asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub cells: Vec<Value>,
    pub conditions: Option<Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        let map = Node::new(
            br#"{"kind":"ConfigMap","apiVersion":"v1","data":{"k":"v"},
            "metadata":{"name":"a","creationTimestamp":"1970-01-01T00:00:00Z","resourceVersion":"7"}}"#,
        );
        let printer = Printer::built_in("", "v1", "configmaps");
        assert_eq!(printer.row(&map, 60).cells, [json!("a"), json!(1), json!("60s")]);
        assert_eq!(printer.column_definitions()[1]["name"], "Data");
        assert_eq!(printer.no_rows(), json!([]));

        let roles = Printer::built_in("rbac.authorization.k8s.io", "v1", "roles");
        assert_eq!(roles.no_rows(), Value::Null);
        assert_eq!(roles.row(&map, 0).cells, [json!("a"), json!("1970-01-01T00:00:00Z")]);
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
