//! What a verb answers, before it is put into the form that the client asked for.

use std::sync::Arc;

use cache::object::Object;
use flow::body::BoxStream;
use serde_json::{Value, json};
use store::Revision;

use crate::kinds::Kind;

pub enum Reply {
    Object {
        code: u16,
        object: Arc<Object>,
    },
    /// An object that is not stored as it is: a Scale, a review, a Status.
    Value {
        code: u16,
        value: Value,
    },
    List(List),
    Watch(BoxStream),
}

pub struct List {
    pub items: Vec<Arc<Object>>,
    pub revision: Revision,
    /// Set when there is a next page.
    pub next: Option<String>,
    pub remaining: Option<usize>,
}

impl Reply {
    pub fn ok(object: Arc<Object>) -> Self {
        Self::Object { code: 200, object }
    }

    pub fn created(object: Arc<Object>) -> Self {
        Self::Object { code: 201, object }
    }

    /// The Status that a finished deletion answers.
    pub fn deleted(kind: &Kind, object: &Object) -> Self {
        let uid = object.value()["metadata"]["uid"].clone();
        let mut details = json!({"name": object.name(), "kind": kind.plural(), "uid": uid});
        if !kind.group().is_empty() {
            details["group"] = kind.group().into();
        }
        let value =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
        Self::Value { code: 200, value }
    }

    /// The Status of something done that has no object to show.
    pub fn success(code: u16) -> Self {
        let value = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code});
        Self::Value { code, value }
    }
}
