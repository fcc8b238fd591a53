//! Lists in the form that a client asked for, written piece by piece while the client reads.
//!
//! No format builds a list as a whole: a list of thousands of objects by many clients takes no more memory than one
//! piece for each. What cannot be written piece by piece (protobuf says its length first) at least gives others a turn
//! on the way.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use codec::proto;
use codec::table::IncludeObject;
use schema::status::{Result, Status};
use serde_json::{Value, json};

use super::{go_type, head_of, in_format, in_version, message, partial, printer, table_head, write_partial, write_row};
use crate::{
    body::Body,
    clock,
    kinds::Kind,
    negotiate::{Accept, Format, Shape},
    object::{self, Object},
    reply::List,
    turns::Turns,
    types, yaml,
};

/// Bodies are made in pieces of about this size while the client reads.
const PIECE: usize = 64 << 10;
/// A Table is read back whole to be written in another format, so one with more rows than this is told in pages only.
const MOST_ROWS: usize = 5_000;

const META: &str = "meta.k8s.io/v1";

/// A list, made piece by piece.
pub async fn list(kind: &Arc<Kind>, accept: Accept, include: IncludeObject, list: List) -> Result<Body> {
    match (accept.shape, accept.format) {
        (Shape::Object, Format::Json) => Ok(json_list(kind.clone(), list).await),
        (Shape::Object, Format::Protobuf) => protobuf_list(kind, list).await,
        (Shape::Object, Format::Yaml) => Ok(yaml_list(kind.clone(), list).await),
        (Shape::Partial, _) => Err(Status::not_acceptable(format!(
            "you requested PartialObjectMetadata, but the requested object is a list ({})",
            go_type(kind, "List")
        ))),
        (Shape::PartialList, Format::Json) => Ok(partial_json(list).await),
        (Shape::PartialList, Format::Yaml) => Ok(partial_yaml(list).await),
        (Shape::PartialList, Format::Protobuf) => partial_protobuf(list).await,
        (Shape::Table, Format::Json) => Ok(table_pieces(kind.clone(), include, list).body().await),
        (Shape::Table, Format::Yaml) => Ok(table_yaml(kind.clone(), include, list).await),
        (Shape::Table, Format::Protobuf) => {
            if list.items.len() > MOST_ROWS {
                return Err(Status::not_acceptable(format!(
                    "a Table of more than {MOST_ROWS} rows is told in JSON only, or in pages (limit=)"
                )));
            }
            let json = table_pieces(kind.clone(), include, list).whole().await;
            in_format(json, Format::Protobuf).map(Body::from)
        }
    }
}

fn list_metadata(list: &List) -> Value {
    let mut metadata = json!({"resourceVersion": list.revision.to_string()});
    if let Some(next) = &list.next {
        metadata["continue"] = next.as_str().into();
    }
    if let Some(remaining) = list.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    metadata
}

async fn json_list(kind: Arc<Kind>, list: List) -> Body {
    let mut metadata = list_metadata(&list);
    if kind.custom.is_some() && list.next.is_none() {
        metadata["continue"] = "".into();
    }
    let mut head = head_of(&[
        ("kind", kind.list_kind().into()),
        ("apiVersion", kind.api_version.as_str().into()),
        ("metadata", metadata),
    ]);
    head.extend_from_slice(b"\"items\":[");
    let copies = kind.custom.is_none() && !kind.is_converted();
    let list =
        pieces(head, list.items, "]}", b",", move |out: &mut Vec<u8>, object: &Object| write_item(out, &kind, object));
    Pieces { copies, ..list }.body().await
}

fn table_pieces(
    kind: Arc<Kind>,
    include: IncludeObject,
    list: List,
) -> Pieces<impl FnMut(&mut Vec<u8>, &Object) + Send + 'static> {
    let metadata = list_metadata(&list);
    let (printer, now) = (printer(&kind), clock::unix());
    let mut head = table_head(&printer, metadata, true);
    let tail = if list.items.is_empty() {
        object::write_json(&mut head, &printer.no_rows());
        "}"
    } else {
        head.push(b'[');
        "]}"
    };
    pieces(head, list.items, tail, b",", move |out: &mut Vec<u8>, object: &Object| {
        write_row(out, &kind, &printer, include, object, now);
    })
}

async fn partial_json(list: List) -> Body {
    let mut head = head_of(&[
        ("kind", "PartialObjectMetadataList".into()),
        ("apiVersion", META.into()),
        ("metadata", list_metadata(&list)),
    ]);
    if list.items.is_empty() {
        head.extend_from_slice(b"\"items\":null}");
        return head.into();
    }
    head.extend_from_slice(b"\"items\":[");
    pieces(head, list.items, "]}", b",", write_partial).body().await
}

/// Keys of YAML come in order: `apiVersion`, `items`, `kind`, `metadata`.
async fn yaml_list(kind: Arc<Kind>, list: List) -> Body {
    let tail = json!({"kind": kind.list_kind(), "metadata": list_metadata(&list)});
    let api_version = json!({"apiVersion": kind.api_version});
    yaml_items(&api_version, "items", "[]", tail, list.items, move |object: &Object| {
        let mut item = Vec::with_capacity(object.json.len());
        write_item(&mut item, &kind, object);
        item
    })
    .await
}

async fn partial_yaml(list: List) -> Body {
    let tail = json!({"kind": "PartialObjectMetadataList", "metadata": list_metadata(&list)});
    yaml_items(&json!({"apiVersion": META}), "items", "null", tail, list.items, |object| {
        let mut item = Vec::with_capacity(object.metadata().len() + 80);
        write_partial(&mut item, object);
        item
    })
    .await
}

async fn table_yaml(kind: Arc<Kind>, include: IncludeObject, list: List) -> Body {
    let (printer, now) = (printer(&kind), clock::unix());
    let head = json!({"apiVersion": META, "columnDefinitions": printer.column_definitions(), "kind": "Table",
        "metadata": list_metadata(&list)});
    let none = if printer.no_rows().is_null() { "null" } else { "[]" };
    yaml_items(&head, "rows", none, json!({}), list.items, move |object| {
        let mut row = Vec::with_capacity(512);
        write_row(&mut row, &kind, &printer, include, object, now);
        row
    })
    .await
}

/// A list in YAML: what stands before the items, each item as its JSON says, what stands behind.
async fn yaml_items(
    head: &Value,
    name: &str,
    none: &str,
    tail: Value,
    items: Vec<Arc<Object>>,
    item: impl Fn(&Object) -> Vec<u8> + Send + 'static,
) -> Body {
    let mut head = yaml::write(head);
    head.extend_from_slice(name.as_bytes());
    head.push(b':');
    let end = if tail.as_object().is_some_and(serde_json::Map::is_empty) { Vec::new() } else { yaml::write(&tail) };
    if items.is_empty() {
        head.push(b' ');
        head.extend_from_slice(none.as_bytes());
    }
    head.push(b'\n');
    pieces(head, items, end, b"", move |out: &mut Vec<u8>, object: &Object| {
        let value: Value = serde_json::from_slice(&item(object)).unwrap_or_default();
        yaml::write_item(out, &value);
    })
    .body()
    .await
}

/// A list that is written while it is read: never much more than one piece is in memory.
struct Pieces<W> {
    head: Vec<u8>,
    items: std::vec::IntoIter<Arc<Object>>,
    tail: Bytes,
    between: &'static [u8],
    is_first: bool,
    /// Objects are only copied: a piece of them takes a few microseconds, so nobody looks at the clock.
    copies: bool,
    write: W,
}

fn pieces<W: FnMut(&mut Vec<u8>, &Object)>(
    head: Vec<u8>,
    items: Vec<Arc<Object>>,
    tail: impl Into<Bytes>,
    between: &'static [u8],
    write: W,
) -> Pieces<W> {
    Pieces { head, items: items.into_iter(), tail: tail.into(), between, is_first: true, copies: false, write }
}

impl<W: FnMut(&mut Vec<u8>, &Object)> Pieces<W> {
    /// Writes one more object, or what stands behind the last; says whether there was one.
    fn write_next(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(object) = self.items.next() else {
            out.extend_from_slice(&self.tail);
            return false;
        };
        if !std::mem::take(&mut self.is_first) {
            out.extend_from_slice(self.between);
        }
        (self.write)(out, &object);
        true
    }

    fn begin(&mut self) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.head);
        out.reserve(PIECE.min(self.items.len() * 1024) + 4096);
        out
    }

    /// What is short is sent whole. Others have a turn while the first piece is made, and between all others.
    async fn body(mut self) -> Body
    where
        W: Send + 'static,
    {
        let mut first = self.begin();
        let mut turns = Turns::default();
        while first.len() < PIECE {
            if !self.write_next(&mut first) {
                return first.into();
            }
            if !self.copies {
                turns.pass().await;
            }
        }
        let mut more = true;
        let rest = std::iter::from_fn(move || {
            if !more {
                return None;
            }
            let mut out = self.begin();
            let mut turn = Turns::default();
            while more && out.len() < PIECE && (self.copies || !turn.is_over()) {
                more = self.write_next(&mut out);
            }
            Some(Bytes::from(out))
        });
        Body::stream(futures::stream::iter(std::iter::once(Bytes::from(first)).chain(rest)))
    }

    /// All of it at once.
    async fn whole(mut self) -> Vec<u8> {
        let mut out = self.begin();
        let mut turns = Turns::default();
        while self.write_next(&mut out) {
            turns.pass().await;
        }
        out
    }
}

/// Items of built-in lists carry no kind and no apiVersion; those of custom ones do.
fn write_item(out: &mut Vec<u8>, kind: &Kind, object: &Object) {
    if kind.custom.is_some() {
        out.extend_from_slice(&super::json(kind, object));
    } else if kind.is_converted() {
        out.push(b'{');
        out.extend_from_slice(in_version(kind, object).bare());
    } else {
        out.push(b'{');
        out.extend_from_slice(object.bare());
    }
}

async fn protobuf_list(kind: &Arc<Kind>, list: List) -> Result<Body> {
    let metadata = list_metadata(&list);
    let schema = schema::builtin();
    let ty = kind
        .resource
        .ty
        .and_then(|ty| schema.list_of(ty))
        .ok_or_else(|| Status::not_acceptable("this list has no protobuf form"))?;
    // The length of all comes first on the wire. What is not kept with its object is kept here until it is sent.
    let mut made: VecDeque<(usize, Vec<u8>)> = VecDeque::new();
    let mut lengths = Vec::with_capacity(list.items.len());
    let mut turns = Turns::default();
    for (at, object) in list.items.iter().enumerate() {
        if object.kept_message().is_none() {
            turns.pass().await;
        }
        match message(kind, object) {
            std::borrow::Cow::Borrowed(kept) => lengths.push(kept.len()),
            std::borrow::Cow::Owned(message) => {
                lengths.push(message.len());
                made.push_back((at, message));
            }
        }
    }
    let head = proto::list_head(schema, ty, &kind.api_version, &kind.list_kind(), &metadata, lengths.into_iter());
    let mut at = 0;
    let list = pieces(head, list.items, proto::END, b"", move |out: &mut Vec<u8>, object: &Object| {
        match made.pop_front_if(|(of, _)| *of == at) {
            Some((_, message)) => proto::put_item(out, &message),
            None => proto::put_item(out, object.kept_message().unwrap_or_default()),
        }
        at += 1;
    });
    Ok(Pieces { copies: true, ..list }.body().await)
}

/// The messages of metadata are made once for their lengths and once more when they are sent, so that none is kept.
async fn partial_protobuf(list: List) -> Result<Body> {
    let schema = schema::builtin();
    let find = |kind: &str| {
        types::find("meta.k8s.io", "v1", kind)
            .ok_or_else(|| Status::not_acceptable(format!("{kind} has no protobuf form")))
    };
    let (item, all) = (find("PartialObjectMetadata")?, find("PartialObjectMetadataList")?);
    let mut lengths = Vec::with_capacity(list.items.len());
    let mut turns = Turns::default();
    for object in &list.items {
        turns.pass().await;
        lengths.push(proto::encode(schema, item, &partial(object)).len());
    }
    let metadata = list_metadata(&list);
    let head = proto::list_head(schema, all, META, "PartialObjectMetadataList", &metadata, lengths.into_iter());
    let list = pieces(head, list.items, proto::END, b"", move |out: &mut Vec<u8>, object: &Object| {
        proto::put_item(out, &proto::encode(schema, item, &partial(object)));
    });
    Ok(list.body().await)
}
