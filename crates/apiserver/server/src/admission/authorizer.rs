//! `authorizer` in expressions: may the user of this request do something else too?
//!
//! A check is built step by step (`authorizer.group('apps').resource('deployments').check('create').allowed()`); between
//! steps it is a map of what was said so far, under a key that no expression needs.

use cel::{Failure, Value};
use identity::{Attributes, Authorizer as _, User};
use serde_json::{Value as Json, json};

use super::question::Question;
use crate::call::Call;

const MARK: &str = "@authorizer";
/// What upstream says one check costs.
const COST: u64 = 350_000;

pub struct Authorizer<'a> {
    pub call: &'a Call,
}

impl Authorizer<'_> {
    /// The variable itself. `requestResource` is a check that is already filled in.
    pub fn root(question: &Question<'_>) -> Value {
        let (kind, target) = (&question.call.kind, &question.call.target);
        cel::from_json(&json!({MARK: {"is": "authorizer"}, "requestResource": {MARK: {
            "is": "resource", "group": kind.group(), "resource": kind.plural(), "subresource": target.subresource,
            "namespace": question.namespace(), "name": question.name,
        }}}))
    }

    fn decide(&self, check: &Json, verb: &str) -> Json {
        let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
        let attributes = match text("is").as_str() {
            "path" => Attributes::path(verb, &text("path")),
            _ => Attributes {
                verb: verb.to_owned(),
                group: text("group"),
                version: "*".to_owned(),
                resource: text("resource"),
                subresource: text("subresource"),
                namespace: text("namespace"),
                name: text("name"),
                ..Attributes::default()
            },
        };
        let (namespace, account) = (text("saNamespace"), text("saName"));
        let user = if account.is_empty() { self.call.user.clone() } else { service_account(&namespace, &account) };
        let decision = self.call.server.authorization.in_workspace(&self.call.cluster).authorize(&user, &attributes);
        json!({"is": "decision", "allowed": decision.allowed, "reason": decision.reason})
    }
}

fn service_account(namespace: &str, name: &str) -> User {
    User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ],
        ..User::default()
    }
}

/// What was said so far, if the value is one of ours.
fn said(value: &Value) -> Option<Json> {
    let Value::Map(map) = value else { return None };
    let Value::Map(said) = map.field(MARK)? else { return None };
    let entry = |(key, value): (&_, &Value)| {
        let key = match key {
            cel::Key::String(text) => text.to_string(),
            _ => return None,
        };
        let value = match value {
            Value::String(text) => Json::from(&**text),
            Value::Bool(flag) => Json::from(*flag),
            _ => return None,
        };
        Some((key, value))
    };
    Some(Json::Object(said.iter().filter_map(entry).collect()))
}

impl cel::Host for Authorizer<'_> {
    fn member(&self, _: &str, _: &str, _: &mut u64) -> Option<Result<Value, Failure>> {
        None
    }

    fn method(&self, of: &Value, name: &str, args: &[Value], left: &mut u64) -> Option<Result<Value, Failure>> {
        let mut said = said(of)?;
        let texts: Option<Vec<&str>> = args
            .iter()
            .map(|arg| match arg {
                Value::String(text) => Some(&**text),
                _ => None,
            })
            .collect();
        let is = said["is"].as_str().unwrap_or_default().to_owned();
        let next = match (is.as_str(), name, texts?.as_slice()) {
            ("authorizer", "path", [path]) => {
                said["is"] = "path".into();
                said["path"] = (*path).into();
                said
            }
            ("authorizer", "serviceAccount", [namespace, account]) => {
                said["saNamespace"] = (*namespace).into();
                said["saName"] = (*account).into();
                said
            }
            ("authorizer", "group", [group]) => {
                said["is"] = "group".into();
                said["group"] = (*group).into();
                said
            }
            ("group", "resource", [resource]) => {
                said["is"] = "resource".into();
                said["resource"] = (*resource).into();
                said
            }
            ("resource", "subresource" | "namespace" | "name", [text]) => {
                said[name] = (*text).into();
                said
            }
            // Roles do not look at selectors, so a check with one asks for everything.
            ("resource", "fieldSelector" | "labelSelector", [_]) => said,
            ("resource" | "path", "check", [verb]) => {
                if *left < COST {
                    *left = 0;
                    return Some(Err(Failure::Cost));
                }
                *left -= COST;
                self.decide(&said, verb)
            }
            ("decision", "allowed", []) => return Some(Ok(Value::Bool(said["allowed"] == true))),
            ("decision", "errored", []) => return Some(Ok(Value::Bool(false))),
            ("decision", "reason", []) => return Some(Ok(cel::from_json(&said["reason"]))),
            ("decision", "error", []) => return Some(Ok(cel::from_json(&json!("")))),
            _ => return Some(Err(Failure::Error("no such overload".to_owned()))),
        };
        Some(Ok(cel::from_json(&json!({MARK: next}))))
    }
}
