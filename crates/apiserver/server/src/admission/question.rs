//! One request as admission sees it: what is done to what, by whom, and the objects before and after.

use std::{borrow::Cow, sync::Arc};

use schema::status::{Result, Status};
use serde_json::{Value, json};

use super::matching::Asked;
use crate::{
    call::Call,
    kinds::{Kind, Kinds},
    webhooks::convert,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    /// Something is asked of an object that goes on elsewhere: exec, a proxy.
    Connect,
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

pub struct Question<'a> {
    pub call: &'a Call,
    pub operation: Operation,
    /// In the version of the request; for some subresources their own kind.
    pub object: Option<Value>,
    pub old: Option<Value>,
    pub options: Value,
    pub name: String,
}

/// Webhooks and policies never judge webhooks and policies: nobody could repair a broken one.
pub fn is_exempt(call: &Call) -> bool {
    call.kind.group() == "admissionregistration.k8s.io"
}

impl<'a> Question<'a> {
    pub fn new(call: &'a Call, operation: Operation, object: Option<Value>, old: Option<Value>) -> Self {
        let named = |object: &Option<Value>| {
            object.as_ref().and_then(|o| o["metadata"]["name"].as_str()).unwrap_or_default().to_owned()
        };
        let name = match operation {
            Operation::Create if call.target.name.is_empty() => named(&object),
            _ => call.target.name.clone(),
        };
        let options = options(call, operation);
        Self { call, operation, object, old, options, name }
    }

    pub fn with_options(mut self, options: Value) -> Self {
        self.options = options;
        self
    }

    pub fn is_dry_run(&self) -> bool {
        self.options["dryRun"].as_array().is_some_and(|runs| !runs.is_empty())
    }

    /// A Namespace counts as lying in itself.
    pub fn namespace(&self) -> &str {
        if is_namespace(&self.call.kind) { &self.name } else { &self.call.target.namespace }
    }

    /// The request as rules see it, were it made for this form of its resource.
    pub fn asked<'k>(&'k self, kind: &'k Kind) -> Asked<'k> {
        Asked {
            operation: self.operation.name(),
            group: kind.group(),
            version: &kind.resource.version,
            resource: kind.plural(),
            subresource: &self.call.target.subresource,
            namespace: self.namespace(),
            name: &self.name,
        }
    }

    /// Other versions in which the same objects are served.
    pub fn equivalents(&self) -> Vec<Arc<Kind>> {
        let own = &self.call.kind;
        if own.custom.is_none() && !matches!(own.name(), "HorizontalPodAutoscaler" | "Event") {
            return Vec::new();
        }
        let mut kinds = match own.custom.is_some() {
            true => self.call.server.kinds.of_group(&self.call.cluster, own.group()),
            false => Kinds::builtin().to_vec(),
        };
        kinds.retain(|kind| kind.collection == own.collection && kind.api_version != own.api_version);
        kinds
    }

    /// Labels of the namespace in which this happens; `None` where there is none.
    pub fn namespace_labels(&self) -> Result<Option<Value>> {
        let is_namespace = is_namespace(&self.call.kind);
        if is_namespace && self.call.target.subresource.is_empty() && self.operation != Operation::Delete {
            return Ok(self.object.as_ref().map(|object| object["metadata"]["labels"].clone()));
        }
        Ok(self.namespace_object()?.map(|namespace| namespace["metadata"]["labels"].clone()))
    }

    /// The namespace in which this happens.
    pub fn namespace_object(&self) -> Result<Option<Value>> {
        let name = self.namespace();
        if name.is_empty() {
            return Ok(None);
        }
        let found = super::one(self.call, "core/namespaces", "", name);
        if found.is_none() && is_namespace(&self.call.kind) {
            return Ok(self.object.clone());
        }
        found.map(Some).ok_or_else(|| Status::not_found("", "namespaces", name))
    }

    /// `namespaceObject` of expressions: nothing for what lies in no namespace, and for namespaces themselves.
    pub fn namespace_seen(&self) -> Option<Value> {
        if is_namespace(&self.call.kind) { None } else { self.namespace_object().unwrap_or_default() }
    }

    /// Brings an object of this request from one form of its resource to another.
    pub async fn convert(&self, value: Value, from: &Arc<Kind>, to: &Arc<Kind>) -> Result<Value> {
        if !self.speaks_own_kind() {
            return Ok(value);
        }
        convert::value(&self.call.server, &self.call.cluster, from, to, value).await
    }

    /// Whether the objects are of the kind that the resource is of, not a Scale or an Eviction of it.
    pub fn speaks_own_kind(&self) -> bool {
        self.kind_of(&self.call.kind)["kind"] == self.call.kind.name()
    }

    /// Group, version and kind of the objects, in this form of the resource.
    pub fn kind_of(&self, kind: &Kind) -> Value {
        let of = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
        match kind.resource.subresource(&self.call.target.subresource) {
            Some(sub) if *sub.kind != *kind.resource.kind => of(&sub.group, &sub.version, &sub.kind),
            _ => of(kind.group(), &kind.resource.version, kind.name()),
        }
    }

    /// `request` of an AdmissionReview, without its uid and objects: also what expressions see as `request`.
    pub fn request(&self, kind: &Kind) -> Value {
        let resource =
            |kind: &Kind| json!({"group": kind.group(), "version": kind.resource.version, "resource": kind.plural()});
        let own = &self.call.kind;
        let mut request = json!({
            "kind": self.kind_of(kind), "resource": resource(kind),
            "requestKind": self.kind_of(own), "requestResource": resource(own),
            "operation": self.operation.name(),
            "userInfo": self.call.user.info(),
            "dryRun": self.is_dry_run(),
            "options": self.options,
        });
        let subresource = &self.call.target.subresource;
        for (field, text) in [
            ("subResource", Cow::Borrowed(subresource.as_str())),
            ("requestSubResource", Cow::Borrowed(subresource)),
            ("name", Cow::Borrowed(&self.name)),
            ("namespace", Cow::Borrowed(self.namespace())),
        ] {
            if !text.is_empty() {
                request[field] = text.into_owned().into();
            }
        }
        request
    }
}

fn is_namespace(kind: &Kind) -> bool {
    &*kind.collection == "core/namespaces"
}

/// The options of a write as the object that webhooks are shown.
fn options(call: &Call, operation: Operation) -> Value {
    let kind = match operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
        Operation::Connect => return Value::Null,
    };
    let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    let runs: Vec<&str> = call.query.all("dryRun").collect();
    if !runs.is_empty() {
        options["dryRun"] = runs.into();
    }
    for field in ["fieldManager", "fieldValidation"] {
        let text = call.query.get(field);
        if !text.is_empty() {
            options[field] = text.into();
        }
    }
    options
}
