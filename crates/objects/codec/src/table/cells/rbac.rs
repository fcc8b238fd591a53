//! Rows of role bindings and certificate signing requests.

use serde_json::Value;

use crate::table::age::{age, human};
use crate::table::read::{condition, has, items, name, text, text_or};
use crate::table::tree::Node;

pub(super) fn binding(o: &Node<'_>, now: i64) -> Vec<Value> {
    let subjects = |kind: &str, with_namespace: bool| {
        let subjects = items(o, "/subjects").into_iter().filter(|s| text(s, "/kind") == kind);
        let shown = subjects.map(|s| match with_namespace {
            true => format!("{}/{}", text(&s, "/namespace"), text(&s, "/name")),
            false => text(&s, "/name").into_owned(),
        });
        Value::from(shown.collect::<Vec<_>>().join(", "))
    };
    vec![
        name(o),
        format!("{}/{}", text(o, "/roleRef/kind"), text(o, "/roleRef/name")).into(),
        age(o, now),
        subjects("User", false),
        subjects("Group", false),
        subjects("ServiceAccount", true),
    ]
}

pub(super) fn signing_request(o: &Node<'_>, now: i64) -> Vec<Value> {
    let conditions = &items(o, "/status/conditions");
    let mut status = if condition(conditions, "Denied").is_some() {
        "Denied"
    } else if condition(conditions, "Approved").is_some() {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if condition(conditions, "Failed").is_some() {
        status.push_str(",Failed");
    }
    if has(o, "/status/certificate") && !text(o, "/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    let duration = o.pointer("/spec/expirationSeconds").and_then(|node| node.as_i64());
    vec![
        name(o),
        age(o, now),
        text_or(o, "/spec/signerName", "<none>").into(),
        text(o, "/spec/username").into(),
        duration.map_or_else(|| "<none>".to_owned(), human).into(),
        status.into(),
    ]
}
