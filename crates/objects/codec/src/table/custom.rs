//! Tables of custom resources: the columns that their definition asks for.

use serde_json::{Value, json};

use super::age::{human, seconds};
use super::jsonpath::JsonPath;
use super::tree::Node;

/// The columns of one version of a custom resource. The name comes first and is not among them.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomColumns {
    columns: Vec<CustomColumn>,
}

#[derive(Clone, Debug, PartialEq)]
struct CustomColumn {
    definition: Value,
    kind: Box<str>,
    path: JsonPath,
}

/// Reads `additionalPrinterColumns`; without any there is the age. As upstream, nothing is shown from the first path on
/// that cannot be read.
pub fn columns(additional_printer_columns: &Value) -> CustomColumns {
    let given = additional_printer_columns.as_array().map(Vec::as_slice).unwrap_or_default();
    let age = [json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})];
    let given = if given.is_empty() { &age } else { given };
    CustomColumns { columns: given.iter().map_while(column).collect() }
}

fn column(spec: &Value) -> Option<CustomColumn> {
    let text = |field: &str| spec[field].as_str().unwrap_or_default();
    let path = text("jsonPath");
    let description = match text("description") {
        "" => format!("Custom resource definition column (in JSONPath format): {path}"),
        description => description.to_owned(),
    };
    let definition = json!({
        "name": text("name"), "type": text("type"), "format": text("format"),
        "description": description, "priority": spec["priority"].as_i64().unwrap_or_default(),
    });
    Some(CustomColumn { definition, kind: text("type").into(), path: JsonPath::parse(path)? })
}

impl CustomColumns {
    /// The `columnDefinitions` after the name.
    pub(super) fn definitions(&self) -> impl Iterator<Item = &Value> {
        self.columns.iter().map(|column| &column.definition)
    }

    /// The cells of an object's row.
    pub(super) fn cells(&self, object: &Node<'_>, now: i64) -> Vec<Value> {
        let object = object.to_value();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let mut cells = vec![name.into()];
        cells.extend(self.columns.iter().map(|column| column.cell(&object, now)));
        cells
    }
}

impl CustomColumn {
    fn cell(&self, object: &Value, now: i64) -> Value {
        let found = self.path.find(object).unwrap_or_default();
        let Some(&value) = found.first() else { return Value::Null };
        match (&*self.kind, value) {
            ("string", _) => printed(value).into(),
            ("integer", Value::Number(number)) => match number.as_i64() {
                Some(integer) => integer.into(),
                // Go truncates, too.
                None => number.as_f64().map_or(Value::Null, |float| (float as i64).into()),
            },
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(time)) if time.is_empty() => "<unknown>".into(),
            ("date", Value::String(time)) => match seconds(time) {
                Some(then) => human(now.saturating_sub(then)).into(),
                None => "<invalid>".into(),
            },
            _ => Value::Null,
        }
    }
}

/// A value as Go prints it.
fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<no value>".to_owned(),
        Value::Number(number) if number.is_f64() => number.as_f64().map(go_float).unwrap_or_default(),
        other => other.to_string(),
    }
}

/// Go's `%v` of a float: the shortest digits, with an exponent only for the very large and the very small.
fn go_float(float: f64) -> String {
    let magnitude = float.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{float:e}");
        if let Some((digits, exponent)) = text.split_once('e') {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
            return format!("{digits}e{sign}{exponent:0>2}");
        }
    }
    float.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_by_type() {
        let object = json!({"metadata": {"name": "n", "creationTimestamp": "1970-01-01T00:00:00Z"}, "spec": {
            "s": "text", "i": 5, "f": 2.5, "b": true, "o": {"x": 1}, "null": null, "whole": 3.0, "d": "never"}})
        .to_string();
        let object = Node::new(object.as_bytes());
        for (kind, path, expected) in [
            ("string", ".spec.s", json!("text")),
            ("string", ".spec.i", json!("5")),
            ("string", ".spec.f", json!("2.5")),
            ("string", ".spec.whole", json!("3")),
            ("string", ".spec.b", json!("true")),
            ("string", ".spec.o", json!("{\"x\":1}")),
            ("string", ".spec.none", Value::Null),
            ("string", ".spec.null", json!("<no value>")),
            ("integer", ".spec.i", json!(5)),
            ("integer", ".spec.f", json!(2)),
            ("integer", ".spec.s", Value::Null),
            ("number", ".spec.f", json!(2.5)),
            ("number", ".spec.i", json!(5)),
            ("boolean", ".spec.b", json!(true)),
            ("boolean", ".spec.s", Value::Null),
            ("date", ".metadata.creationTimestamp", json!("100s")),
            ("date", ".spec.d", json!("<invalid>")),
            ("date", ".spec.i", Value::Null),
        ] {
            let columns = columns(&json!([{"name": "C", "type": kind, "jsonPath": path}]));
            assert_eq!(columns.cells(&object, 100), [json!("n"), expected], "{kind} {path}");
        }
        assert_eq!(columns(&Value::Null).cells(&object, 100), [json!("n"), json!("100s")]);
        let broken =
            columns(&json!([{"name": "A", "type": "string", "jsonPath": ".a["}, {"name": "B", "type": "string"}]));
        assert_eq!(broken.cells(&object, 0), [json!("n")]);
    }

    #[test]
    fn floats_as_go_prints_them() {
        for (float, text) in
            [(0.0, "0"), (1e20, "100000000000000000000"), (1e21, "1e+21"), (1.5e-7, "1.5e-07"), (0.001, "0.001")]
        {
            assert_eq!(go_float(float), text);
        }
    }
}
