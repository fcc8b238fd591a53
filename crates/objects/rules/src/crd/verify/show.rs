//! Parts of a definition as Go prints its internal types: as JSON, with the names of the Go fields, none left out.

use schema::field::{FieldError, FieldErrorKind};
use schema::go;
use schema::json_schema::{Rule, text};
use serde_json::{Map, Value};

use super::internal::{Spec, Version};

/// Deeper than any schema that a request can bring.
const MAX_DEPTH: usize = 200;

/// An error about all versions at once.
pub(super) fn versions(spec: &Spec<'_>, why: &str) -> FieldError {
    let shown = match spec.versions.as_slice() {
        [] if !spec.has_versions => "null".to_owned(),
        versions => format!("[{}]", versions.iter().map(version).collect::<Vec<_>>().join(",")),
    };
    invalid("spec.versions".to_owned(), &shown, why)
}

/// An error whose value is already printed.
pub(super) fn invalid(path: String, shown: &str, why: &str) -> FieldError {
    FieldError { kind: FieldErrorKind::Invalid, path, message: format!("Invalid value: {shown}: {why}") }
}

/// JSON as Go's encoder writes it: characters that HTML minds are escaped.
pub(super) fn json(value: &Value) -> String {
    go::printable(value).to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn quoted(text: &str) -> String {
    json(&Value::String(text.to_owned()))
}

fn or_null(value: Option<&Value>, show: impl Fn(&Value) -> String) -> String {
    value.filter(|v| !v.is_null()).map_or_else(|| "null".to_owned(), show)
}

fn list(value: Option<&Value>, show: impl Fn(&Value) -> String) -> String {
    match value.and_then(Value::as_array).filter(|l| !l.is_empty()) {
        Some(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(",")),
        None => "null".to_owned(),
    }
}

fn field(value: &Value, key: &str) -> String {
    quoted(value.get(key).and_then(Value::as_str).unwrap_or(""))
}

fn version(version: &Version<'_>) -> String {
    let schema = or_null(version.schema, |s| {
        format!("{{\"OpenAPIV3Schema\":{}}}", or_null(s.get("openAPIV3Schema"), |s| schema(s, 0)))
    });
    let subresources = or_null(version.subresources, |s| {
        let scale = or_null(s.get("scale"), |scale| {
            format!(
                "{{\"SpecReplicasPath\":{},\"StatusReplicasPath\":{},\"LabelSelectorPath\":{}}}",
                field(scale, "specReplicasPath"),
                field(scale, "statusReplicasPath"),
                or_null(scale.get("labelSelectorPath"), json)
            )
        });
        format!("{{\"Status\":{},\"Scale\":{scale}}}", or_null(s.get("status"), |_| "{}".to_owned()))
    });
    let columns = list(version.columns, |c| {
        format!(
            "{{\"Name\":{},\"Type\":{},\"Format\":{},\"Description\":{},\"Priority\":{},\"JSONPath\":{}}}",
            field(c, "name"),
            field(c, "type"),
            field(c, "format"),
            field(c, "description"),
            c.get("priority").and_then(Value::as_i64).unwrap_or(0),
            field(c, "jsonPath")
        )
    });
    let selectable = list(version.selectable, |f| format!("{{\"JSONPath\":{}}}", field(f, "jsonPath")));
    format!(
        "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{schema},\
         \"Subresources\":{subresources},\"AdditionalPrinterColumns\":{columns},\"SelectableFields\":{selectable}}}",
        quoted(version.name),
        version.flag("served"),
        version.flag("storage"),
        version.flag("deprecated"),
        or_null(version.raw.get("deprecationWarning"), json),
    )
}

pub(super) fn rule(rule: &Rule) -> String {
    format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        quoted(&rule.rule),
        quoted(&rule.message),
        quoted(&rule.message_expression),
        rule.reason.as_deref().map_or_else(|| "null".to_owned(), quoted),
        quoted(&rule.field_path),
        rule.optional_old_self.map_or_else(|| "null".to_owned(), |flag| flag.to_string()),
    )
}

/// The fields of `JSONSchemaProps` in the order of the Go type, with what each one is.
const FIELDS: &[(&str, &str, Shown)] = &[
    ("ID", "id", Shown::Text),
    ("Schema", "$schema", Shown::Text),
    ("Ref", "$ref", Shown::Json),
    ("Description", "description", Shown::Text),
    ("Type", "type", Shown::Text),
    ("Nullable", "nullable", Shown::Flag),
    ("Format", "format", Shown::Text),
    ("Title", "title", Shown::Text),
    ("Default", "default", Shown::Json),
    ("Maximum", "maximum", Shown::Json),
    ("ExclusiveMaximum", "exclusiveMaximum", Shown::Flag),
    ("Minimum", "minimum", Shown::Json),
    ("ExclusiveMinimum", "exclusiveMinimum", Shown::Flag),
    ("MaxLength", "maxLength", Shown::Json),
    ("MinLength", "minLength", Shown::Json),
    ("Pattern", "pattern", Shown::Text),
    ("MaxItems", "maxItems", Shown::Json),
    ("MinItems", "minItems", Shown::Json),
    ("UniqueItems", "uniqueItems", Shown::Flag),
    ("MultipleOf", "multipleOf", Shown::Json),
    ("Enum", "enum", Shown::Json),
    ("MaxProperties", "maxProperties", Shown::Json),
    ("MinProperties", "minProperties", Shown::Json),
    ("Required", "required", Shown::Json),
    ("Items", "items", Shown::Items),
    ("AllOf", "allOf", Shown::Schemas),
    ("OneOf", "oneOf", Shown::Schemas),
    ("AnyOf", "anyOf", Shown::Schemas),
    ("Not", "not", Shown::Schema),
    ("Properties", "properties", Shown::Map),
    ("AdditionalProperties", "additionalProperties", Shown::OrBool),
    ("PatternProperties", "patternProperties", Shown::Map),
    ("Dependencies", "dependencies", Shown::Json),
    ("AdditionalItems", "additionalItems", Shown::OrBool),
    ("Definitions", "definitions", Shown::Map),
    ("ExternalDocs", "externalDocs", Shown::Json),
    ("Example", "example", Shown::Json),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", Shown::Json),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", Shown::Flag),
    ("XIntOrString", "x-kubernetes-int-or-string", Shown::Flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Shown::Json),
    ("XListType", "x-kubernetes-list-type", Shown::Json),
    ("XMapType", "x-kubernetes-map-type", Shown::Json),
    ("XValidations", "x-kubernetes-validations", Shown::Rules),
];

#[derive(Clone, Copy)]
enum Shown {
    Text,
    Flag,
    Json,
    Schema,
    Schemas,
    Map,
    Items,
    OrBool,
    Rules,
}

/// The Go names of the fields that a schema sets, in the order of the Go type.
pub(super) fn set_fields(schema: &Map<String, Value>) -> Vec<&'static str> {
    let is_set = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    };
    FIELDS.iter().filter(|(_, key, _)| schema.get(*key).is_some_and(is_set)).map(|(name, ..)| *name).collect()
}

pub(super) fn schema(value: &Value, depth: usize) -> String {
    if depth > MAX_DEPTH {
        return "null".to_owned();
    }
    let empty = Map::new();
    let map = value.as_object().unwrap_or(&empty);
    let below = |v: &Value| schema(v, depth + 1);
    let fields = FIELDS.iter().map(|(name, key, how)| {
        let value = map.get(*key);
        let shown = match how {
            Shown::Text => quoted(text(map, key)),
            Shown::Flag => value.and_then(Value::as_bool).unwrap_or(false).to_string(),
            Shown::Json => or_null(value, json),
            Shown::Schema => or_null(value, below),
            Shown::Schemas => list(value, below),
            Shown::Map => or_null(value, |v| {
                let empty = Map::new();
                let entries = v.as_object().unwrap_or(&empty).iter();
                let entries = entries.map(|(k, v)| format!("{}:{}", quoted(k), below(v))).collect::<Vec<_>>();
                format!("{{{}}}", entries.join(","))
            }),
            Shown::Items => or_null(value, |v| format!("{{\"Schema\":{},\"JSONSchemas\":null}}", below(v))),
            Shown::OrBool => or_null(value, |v| match v {
                Value::Bool(allows) => format!("{{\"Allows\":{allows},\"Schema\":null}}"),
                schema => format!("{{\"Allows\":true,\"Schema\":{}}}", below(schema)),
            }),
            Shown::Rules => match Rule::all(map).as_slice() {
                [] => "null".to_owned(),
                rules => format!("[{}]", rules.iter().map(rule).collect::<Vec<_>>().join(",")),
            },
        };
        format!("\"{name}\":{shown}")
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}
