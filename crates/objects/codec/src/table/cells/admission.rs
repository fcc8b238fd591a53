//! Rows of what configures the API server itself: webhooks, admission policies, priority and fairness, API services.

use serde_json::Value;

use super::default;
use crate::table::age::age;
use crate::table::read::{condition, count, has, int, items, name, strings, text};
use crate::table::tree::Node;

pub(super) fn admission(resource: &str, o: &Node<'_>, now: i64) -> Vec<Value> {
    match resource {
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => {
            vec![name(o), count(o, "/webhooks").into(), age(o, now)]
        }
        "validatingadmissionpolicies" => policy(o, "/spec/validations", now),
        "mutatingadmissionpolicies" => policy(o, "/spec/mutations", now),
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => {
            vec![name(o), text(o, "/spec/policyName").into(), param_ref(o).into(), age(o, now)]
        }
        _ => default(o),
    }
}

fn policy(o: &Node<'_>, rules: &str, now: i64) -> Vec<Value> {
    let kind = if has(o, "/spec/paramKind") {
        format!("{}/{}", text(o, "/spec/paramKind/apiVersion"), text(o, "/spec/paramKind/kind"))
    } else {
        "<unset>".to_owned()
    };
    vec![name(o), count(o, rules).into(), kind.into(), age(o, now)]
}

fn param_ref(o: &Node<'_>) -> String {
    let (namespace, name) = (text(o, "/spec/paramRef/namespace"), text(o, "/spec/paramRef/name"));
    match (&*namespace, &*name) {
        (_, "") => match o.pointer("/spec/paramRef/selector") {
            Some(selector) if selector.is_object() => go_selector(&selector),
            _ => "<unset>".to_owned(),
        },
        ("", name) => format!("*/{name}"),
        _ => format!("{namespace}/{name}"),
    }
}

/// A label selector as Go's generated code prints the struct.
fn go_selector(selector: &Node<'_>) -> String {
    let labels = selector.get("matchLabels").into_iter().flat_map(|labels| labels.members());
    let labels: String = labels.map(|(k, v)| format!("{k}: {},", v.as_str().unwrap_or_default())).collect();
    let expression = |e: &Node<'_>| {
        let values = strings(e, "/values").join(" ");
        let (key, operator) = (text(e, "/key"), text(e, "/operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    };
    let expressions: String = items(selector, "/matchExpressions").iter().map(expression).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

pub(super) fn api_service(o: &Node<'_>, now: i64) -> Vec<Value> {
    let service = if has(o, "/spec/service") {
        format!("{}/{}", text(o, "/spec/service/namespace"), text(o, "/spec/service/name"))
    } else {
        "Local".to_owned()
    };
    let available = match condition(&items(o, "/status/conditions"), "Available") {
        None => "Unknown".to_owned(),
        Some(c) => match (&*text(&c, "/status"), &*text(&c, "/reason")) {
            ("True", _) => "True".to_owned(),
            (status, "") => status.to_owned(),
            (status, reason) => format!("{status} ({reason})"),
        },
    };
    vec![name(o), service.into(), available.into(), age(o, now)]
}

pub(super) fn flow_schema(o: &Node<'_>, now: i64) -> Vec<Value> {
    let method =
        if has(o, "/spec/distinguisherMethod") { text(o, "/spec/distinguisherMethod/type") } else { "<none>".into() };
    let dangling = condition(&items(o, "/status/conditions"), "Dangling").map_or("?".into(), |c| text(&c, "/status"));
    vec![
        name(o),
        text(o, "/spec/priorityLevelConfiguration/name").into(),
        int(o, "/spec/matchingPrecedence").into(),
        method.into(),
        age(o, now),
        dangling.into(),
    ]
}

pub(super) fn priority_level(o: &Node<'_>, now: i64) -> Vec<Value> {
    let number = |within: &str, field: &str| match has(o, within) {
        true => Value::from(int(o, &format!("{within}/{field}"))),
        false => "<none>".into(),
    };
    let queuing = "/spec/limited/limitResponse/queuing";
    vec![
        name(o),
        text(o, "/spec/type").into(),
        number("/spec/limited", "nominalConcurrencyShares"),
        number(queuing, "queues"),
        number(queuing, "handSize"),
        number(queuing, "queueLengthLimit"),
        age(o, now),
    ]
}
