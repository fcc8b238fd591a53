//! Bodies that ask for something and are not stored: scales, tokens, bindings, access reviews.

use serde_json::Value;

use super::meta;
use super::node::{Ctx, Node, Quoted};
use crate::field::FieldErrors;
use crate::names::NameRule;

fn run(obj: &Value, rules: impl FnOnce(Node<'_>)) -> FieldErrors {
    let ctx = Ctx::default();
    rules(ctx.root(obj));
    ctx.take()
}

/// `autoscaling/v1` Scale, whatever it scales.
pub fn scale(obj: &Value) -> FieldErrors {
    run(obj, |root| {
        meta::built_in(root.get("metadata"), true, &meta::by(NameRule::Subdomain));
        root.get("spec").get("replicas").non_negative();
    })
}

/// TokenRequest: for how long a token is asked.
pub fn token_request(obj: &Value) -> FieldErrors {
    run(obj, |root| {
        let seconds = root.get("spec").get("expirationSeconds");
        if seconds.int_or_0() < 600 {
            seconds.invalid_as(seconds.int_or_0(), "may not specify a duration less than 10 minutes");
        }
        if seconds.int_or_0() > 1 << 32 {
            seconds.invalid("may not specify a duration larger than 2^32 seconds");
        }
    })
}

/// Binding of a pod to a node.
pub fn binding(obj: &Value) -> FieldErrors {
    run(obj, |root| {
        let (kind, name) = (root.get("target").get("kind"), root.get("target").get("name"));
        if !matches!(kind.str(), "" | "Node") {
            kind.not_supported(&["Node", "<empty>"]);
        }
        if name.is_empty() {
            name.required("");
        }
    })
}

/// The three reviews that ask whether something is allowed, by kind.
pub fn access_review(kind: &str, obj: &Value) -> FieldErrors {
    run(obj, |root| {
        let spec = root.get("spec");
        let (resource, other) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
        match (resource.is_set(), other.is_set()) {
            (true, true) => other.invalid("cannot be specified in combination with resourceAttributes"),
            (false, false) => resource
                .invalid_as("null", "exactly one of nonResourceAttributes or resourceAttributes must be specified"),
            _ => {}
        }
        if kind != "SelfSubjectAccessReview" && spec.get("user").is_empty() && spec.get("groups").is_empty() {
            spec.get("user").invalid_as(Quoted(""), "at least one of user or group must be specified");
        }
        for field in ["fieldSelector", "labelSelector"] {
            selector_attributes(resource.get(field));
        }
        let metadata = root.get("metadata");
        let local = kind == "LocalSubjectAccessReview";
        let given = metadata.map().into_iter().flatten().any(|(key, value)| {
            key != "managedFields" && !(local && key == "namespace") && !value.is_null() && value != ""
        });
        if given {
            metadata.invalid(if local { "must be empty except for namespace" } else { "must be empty" });
        }
        if local {
            let namespace = metadata.get("namespace").str();
            let about = resource.get("namespace");
            if resource.is_set() && about.str() != namespace {
                about.invalid_str("must match metadata.namespace");
            }
            if other.is_set() {
                other.invalid("disallowed on this kind of request");
            }
        }
    })
}

fn selector_attributes(selector: Node<'_>) {
    if !selector.is_set() {
        return;
    }
    let (raw, requirements) = (selector.get("rawSelector"), selector.get("requirements"));
    if !raw.is_empty() && !requirements.is_empty() {
        raw.invalid("may not specified at the same time as requirements");
    }
    if raw.is_empty() && requirements.is_empty() {
        requirements
            .required(&format!("when {} is specified, requirements or rawSelector is required", selector.path()));
    }
}
