//! Bodies that ask for something and are not stored: scales, tokens, bindings, access reviews.

use schema::field::FieldErrors;
use schema::names::NameRule;
use serde_json::Value;

use super::meta;
use super::node::{Ctx, Node};

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
