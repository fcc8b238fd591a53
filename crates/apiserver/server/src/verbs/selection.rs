//! Which objects of a collection a list, watch or collection delete is about.

use cache::object::Object;
use schema::selector::{FieldSelector, LabelSelector, scan};
use schema::status::{Result, Status};

use crate::{call::Call, exports::View, kinds::Kind, render, webhooks::convert, workspaces::wildcard::EVERYWHERE};

pub struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    prefix: String,
    /// The one name that can match, if there is such a one: the cheapest test of all.
    name: Option<String>,
    /// Across workspaces a prefix cannot tell the namespace.
    namespace: Option<String>,
    /// The provider of an export sees only so much.
    view: Option<View>,
    /// The selectors as they were asked for.
    asked: Box<str>,
}

impl Selection {
    pub fn of(call: &Call) -> Result<Self> {
        let kind = &call.kind;
        let labels = LabelSelector::parse(call.query.get("labelSelector"))?;
        let fields = FieldSelector::parse(call.query.get("fieldSelector"))?;
        let fields = match kind.custom.as_ref().and_then(|c| c.version()) {
            Some(version) => fields.for_custom(kind.resource.namespaced, &version.selectable_fields)?,
            None => fields.for_resource(kind.group(), &kind.resource.version, kind.plural())?,
        };
        // The old form of a watch on one object names it in the path.
        let in_path = Some(call.target.name.clone()).filter(|name| !name.is_empty());
        if in_path.is_some() && !fields.is_empty() && fields.exact("metadata.name") != in_path.as_deref() {
            return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
        }
        let name = fields.exact("metadata.name").map(str::to_owned).or(in_path);
        let across = call.cluster == EVERYWHERE && !call.target.namespace.is_empty();
        let namespace = across.then(|| call.target.namespace.clone());
        let asked = format!("{}&{}", call.query.get("labelSelector"), call.query.get("fieldSelector")).into();
        Ok(Self { labels, fields, prefix: call.prefix(), name, namespace, view: call.view.clone(), asked })
    }

    /// The same text for selections that select the same. There is none for the views of providers: they change.
    pub fn text(&self) -> Option<String> {
        let (name, namespace) = (self.name.as_deref(), self.namespace.as_deref());
        self.view.is_none().then(|| format!("{} {name:?} {namespace:?} {}", self.prefix, self.asked))
    }

    /// Without selectors a page can tell how many are left.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty()
            && self.fields.is_empty()
            && self.name.is_none()
            && self.namespace.is_none()
            && self.view.is_none()
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn covers(&self, object: &Object) -> bool {
        object.key.starts_with(&self.prefix)
    }

    /// Selectors only; the caller has checked that it [`covers`](Self::covers) the object, and has converted it if
    /// [`sees_converted`](Self::sees_converted) says so.
    pub fn matches(&self, kind: &Kind, object: &Object) -> bool {
        self.might_match(object) && (self.fields.is_empty() || self.fields_match(kind, object))
    }

    /// The same without the fields.
    pub fn might_match(&self, object: &Object) -> bool {
        self.name.as_ref().is_none_or(|name| object.name() == name)
            && self.namespace.as_ref().is_none_or(|namespace| object.namespace() == namespace)
            && self.view.as_ref().is_none_or(|view| view.shows(object))
            && (self.labels.is_empty() || scan::labels_match(&object.json, &self.labels))
    }

    /// Whether fields are selected that only a webhook knows: those of the version that was asked for.
    pub fn sees_converted(&self, kind: &Kind) -> bool {
        let is_own = |field: &str| !field.starts_with("metadata.");
        convert::by_webhook(kind).is_some() && self.fields.terms().iter().any(|term| is_own(&term.field))
    }

    fn fields_match(&self, kind: &Kind, object: &Object) -> bool {
        let matches = |json: &[u8]| self.fields.matches_json(kind.group(), kind.plural(), kind.custom.is_some(), json);
        match &kind.custom {
            // It may lack defaults that were declared after it was written.
            Some(custom) if object.revision <= custom.since => matches(&render::json(kind, object)),
            _ => matches(&object.json),
        }
    }
}
