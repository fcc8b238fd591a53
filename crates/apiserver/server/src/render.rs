//! Objects, lists and events in the form that a client asked for.

mod lists;

use std::{borrow::Cow, sync::OnceLock};

use bytes::Bytes;
use codec::proto;
use codec::table::{IncludeObject, Printer};
use rules::convert;
use schema::status::{Result, Status};
use serde_json::{Value, json};
use store::Revision;

use crate::{
    clock,
    kinds::Kind,
    negotiate::{Accept, Format, Shape},
    object::{self, Object},
    request::Query,
    types,
    verbs::{watch::bookmark_object, write},
};

pub use lists::list;

/// Brings a value from the stored version to the kind's own, or back.
pub fn convert_value(kind: &Kind, value: &mut Value, to_stored: bool) -> Result<(), String> {
    if let Some(custom) = &kind.custom {
        let definition = &custom.definition;
        // What a webhook has brought to the kind's version has had its defaults before.
        let own = value["apiVersion"] == kind.api_version.as_str() && kind.is_converted();
        if !to_stored && !own {
            definition.storage_version().default(value);
        }
        definition.relabel(value, if to_stored { &kind.stored_version } else { &kind.resource.version });
        return Ok(());
    }
    if !kind.is_converted() {
        return Ok(());
    }
    let own = (kind.group(), &*kind.resource.version);
    let stored = (kind.stored_group.as_str(), kind.stored_version.as_str());
    let (from, to) = if to_stored { (own, stored) } else { (stored, own) };
    convert::convert(kind.name(), from, to, value)
}

/// The object's JSON in the kind's version. Nearly always these are the stored bytes themselves.
pub fn json(kind: &Kind, object: &Object) -> Bytes {
    let as_stored = match &kind.custom {
        None => !kind.is_converted(),
        Some(custom) => object.revision > custom.since && starts_with_version(kind, &object.json),
    };
    if as_stored {
        return object.json.clone();
    }
    let mut value = object.value();
    if let Err(error) = convert_value(kind, &mut value, false) {
        tracing::error!(%error, key = %object.key, "a stored object cannot be converted");
        return object.json.clone();
    }
    let stored = object::encode(&value);
    // What a dry run shows has no revision yet.
    if object.revision == 0 {
        write::without_revision(&stored)
    } else {
        object::with_revision(&stored, object.revision)
    }
}

fn starts_with_version(kind: &Kind, json: &[u8]) -> bool {
    let prefix = format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",", kind.name(), kind.api_version);
    json.starts_with(prefix.as_bytes())
}

/// The object in the kind's version, with its revision as bytes show it.
fn in_version(kind: &Kind, object: &Object) -> Object {
    Object::new(object.key.clone(), json(kind, object), object.created, object.revision)
}

/// What the rows of a Table hold of their objects. Nobody else is asked.
pub fn include_object(accept: Accept, query: &Query) -> Result<IncludeObject> {
    IncludeObject::parse(if accept.shape == Shape::Table { query.get("includeObject") } else { "" })
}

/// One object.
pub fn object(kind: &Kind, accept: Accept, include: IncludeObject, object: &Object) -> Result<Bytes> {
    match (accept.shape, accept.format) {
        (Shape::Object, Format::Json) => Ok(json(kind, object)),
        (Shape::Object, Format::Protobuf) => {
            Ok(proto::wrap(&kind.api_version, kind.name(), &message(kind, object)).into())
        }
        (Shape::Object, Format::Yaml) => yaml(&in_version(kind, object).value()),
        (Shape::Partial, _) => value(&partial(object), accept.format),
        (Shape::PartialList, _) => Err(no_list(kind)),
        (Shape::Table, format) => in_format(table_of_one(kind, include, object, true), format),
    }
}

/// Metadata of a list was asked for, and there is only one object.
pub fn no_list(kind: &Kind) -> Status {
    Status::not_acceptable(format!(
        "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
        go_type(kind, "")
    ))
}

/// JSON text of a built-in kind in any format.
fn in_format(json: Vec<u8>, format: Format) -> Result<Bytes> {
    match format {
        Format::Json => Ok(json.into()),
        other => value(&serde_json::from_slice(&json).unwrap_or_default(), other),
    }
}

/// Any value of a built-in kind, such as a Status or a Scale.
pub fn value(value: &Value, format: Format) -> Result<Bytes> {
    match format {
        Format::Json => Ok(serde_json::to_vec(value).unwrap_or_default().into()),
        Format::Yaml => yaml(value),
        Format::Protobuf => {
            let (api_version, kind, message) = message_of(value)?;
            Ok(proto::wrap(api_version, kind, &message).into())
        }
    }
}

/// The apiVersion, kind and message of a value.
fn message_of(value: &Value) -> Result<(&str, &str, Vec<u8>)> {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = schema::catalogue::split_api_version(api_version);
    let ty = types::find(group, version, kind)
        .ok_or_else(|| Status::not_acceptable(format!("{kind} has no protobuf form")))?;
    Ok((api_version, kind, proto::encode(schema::builtin(), ty, value)))
}

fn yaml(value: &Value) -> Result<Bytes> {
    Ok(crate::yaml::write(value).into())
}

/// What upstream's code calls the type of an answer.
fn go_type(kind: &Kind, suffix: &str) -> String {
    match &kind.custom {
        Some(_) => format!("*unstructured.Unstructured{suffix}"),
        None => format!("*{}", crate::verbs::write::go_type(kind, suffix)),
    }
}

/// The same JSON over several lines, for people.
pub fn pretty(json: &[u8]) -> Bytes {
    match serde_json::from_slice::<Value>(json) {
        Ok(value) => {
            let mut text = serde_json::to_vec_pretty(&value).unwrap_or_default();
            text.push(b'\n');
            text.into()
        }
        Err(_) => Bytes::copy_from_slice(json),
    }
}

/// The object's message in protobuf.
fn message<'a>(kind: &Kind, object: &'a Object) -> Cow<'a, [u8]> {
    let Some(ty) = kind.resource.ty else { return Cow::Borrowed(&[]) };
    let encode = |json: &[u8]| {
        let mut out = Vec::with_capacity(json.len());
        if let Err(error) = proto::encode_json(schema::builtin(), ty, json, &mut out) {
            tracing::error!(%error, key = %object.key, "a stored object has no protobuf form");
            out.clear();
        }
        out
    };
    // What is kept is in the stored version; others are made when they are asked for.
    if kind.is_converted() { Cow::Owned(encode(&json(kind, object))) } else { object.message(encode) }
}

fn partial(object: &Object) -> Value {
    let metadata: Value = serde_json::from_slice(object.metadata()).unwrap_or_default();
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

/// The metadata of something that is not stored, such as a review.
pub fn partial_of(value: &Value) -> Value {
    let metadata = value.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

/// How a kind is printed: by upstream's code, by a definition's columns, or by name and age.
fn printer(kind: &Kind) -> Printer {
    match kind.custom.as_ref().and_then(|c| c.version()) {
        Some(version) => Printer::custom(&version.printer_columns.clone().into()),
        None => Printer::built_in(kind.group(), &kind.resource.version, kind.plural()),
    }
}

/// Everything of a Table before its rows. In a watch only the first event has columns.
fn table_head(printer: &Printer, metadata: Value, with_columns: bool) -> Vec<u8> {
    let columns = if with_columns { printer.column_definitions() } else { Value::Null };
    let mut head = head_of(&[
        ("kind", "Table".into()),
        ("apiVersion", "meta.k8s.io/v1".into()),
        ("metadata", metadata),
        ("columnDefinitions", columns),
    ]);
    head.extend_from_slice(b"\"rows\":");
    head
}

fn table_of_one(kind: &Kind, include: IncludeObject, object: &Object, with_columns: bool) -> Vec<u8> {
    let printer = printer(kind);
    let mut table = table_head(&printer, revision_only(object.revision), with_columns);
    table.push(b'[');
    write_row(&mut table, kind, &printer, include, object, clock::unix());
    table.extend_from_slice(b"]}");
    table
}

fn write_row(out: &mut Vec<u8>, kind: &Kind, printer: &Printer, include: IncludeObject, object: &Object, now: i64) {
    let converted;
    let shown = if kind.custom.is_some() || kind.is_converted() {
        converted = in_version(kind, object);
        &converted
    } else {
        object
    };
    let row = printer.row(&shown.tree(), now);
    out.extend_from_slice(b"{\"cells\":");
    object::write_json(out, &row.cells);
    if let Some(conditions) = &row.conditions {
        out.extend_from_slice(b",\"conditions\":");
        object::write_json(out, conditions);
    }
    out.extend_from_slice(b",\"object\":");
    match include {
        IncludeObject::None => out.extend_from_slice(b"null"),
        IncludeObject::Object => out.extend_from_slice(&shown.json),
        IncludeObject::Metadata => write_partial(out, shown),
    }
    out.push(b'}');
}

fn write_partial(out: &mut Vec<u8>, object: &Object) {
    out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#);
    out.extend_from_slice(object.metadata());
    out.push(b'}');
}

fn revision_only(revision: Revision) -> Value {
    json!({"resourceVersion": revision.to_string()})
}

/// The fields before the list, and the comma behind them.
fn head_of(fields: &[(&str, Value)]) -> Vec<u8> {
    let mut head = vec![b'{'];
    for (field, value) in fields {
        object::write_json(&mut head, field);
        head.push(b':');
        object::write_json(&mut head, value);
        head.push(b',');
    }
    head
}

/// Writes watch events in one client's form.
pub struct EventWriter {
    accept: Accept,
    include: IncludeObject,
    columns_sent: bool,
}

impl EventWriter {
    pub fn new(accept: Accept, include: IncludeObject) -> Self {
        Self { accept, include, columns_sent: false }
    }

    /// `shared` keeps the protobuf form for the next watcher of the same change.
    pub fn write(
        &mut self,
        out: &mut Vec<u8>,
        kind: &Kind,
        event: &str,
        object: &Object,
        shared: Option<&OnceLock<Box<[u8]>>>,
    ) {
        match (self.accept.shape, self.accept.format) {
            (Shape::Object, Format::Json | Format::Yaml) => json_event(out, event, &json(kind, object)),
            (Shape::Object, Format::Protobuf) => {
                let (api_version, name) = (&kind.api_version, kind.name());
                match shared.filter(|_| !kind.is_converted() && object.kept_message().is_none()) {
                    Some(shared) => {
                        let message = shared.get_or_init(|| message(kind, object).into());
                        proto::put_event(out, event, api_version, name, message);
                    }
                    None => proto::put_event(out, event, api_version, name, &message(kind, object)),
                }
            }
            (Shape::Partial | Shape::PartialList, _) => self.value(out, event, &partial(object)),
            (Shape::Table, _) => {
                let with_columns = !std::mem::replace(&mut self.columns_sent, true);
                let table = table_of_one(kind, self.include, object, with_columns);
                if self.accept.format == Format::Protobuf {
                    self.value(out, event, &serde_json::from_slice(&table).unwrap_or_default());
                } else {
                    json_event(out, event, &table);
                }
            }
        }
    }

    pub fn bookmark(&mut self, out: &mut Vec<u8>, kind: &Kind, revision: Revision, initial_end: bool) {
        let mut object = bookmark_object(kind, revision, initial_end);
        match self.accept.shape {
            Shape::Object => {}
            Shape::Partial | Shape::PartialList => {
                object["kind"] = "PartialObjectMetadata".into();
                object["apiVersion"] = "meta.k8s.io/v1".into();
            }
            Shape::Table => object = self.bookmark_table(kind, object, revision, initial_end),
        }
        self.value(out, "BOOKMARK", &object);
    }

    /// A bookmark is printed as an object would be that has nothing but a revision.
    fn bookmark_table(&mut self, kind: &Kind, bookmark: Value, revision: Revision, initial_end: bool) -> Value {
        let with_columns = !std::mem::replace(&mut self.columns_sent, true);
        let printer = printer(kind);
        let columns = if with_columns { printer.column_definitions() } else { Value::Null };
        let text = serde_json::to_vec(&bookmark).unwrap_or_default();
        let cells = printer.row(&Object::new("".into(), text.into(), revision, revision).tree(), clock::unix()).cells;
        let shown = match self.include {
            IncludeObject::Object => bookmark,
            // The mark at the end of what existed is always told.
            IncludeObject::None if !initial_end => Value::Null,
            IncludeObject::None | IncludeObject::Metadata => partial_of(&bookmark),
        };
        json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": revision_only(revision),
            "columnDefinitions": columns, "rows": [{"cells": cells, "object": shown}]})
    }

    pub fn error(&mut self, out: &mut Vec<u8>, status: &Status) {
        self.value(out, "ERROR", &status.to_value());
    }

    fn value(&self, out: &mut Vec<u8>, event: &str, object: &Value) {
        if self.accept.format == Format::Protobuf
            && let Ok((api_version, kind, message)) = message_of(object)
        {
            return proto::put_event(out, event, api_version, kind, &message);
        }
        json_event(out, event, &serde_json::to_vec(object).unwrap_or_default());
    }
}

fn json_event(out: &mut Vec<u8>, event: &str, object: &[u8]) {
    out.reserve(object.len() + 40);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
}
