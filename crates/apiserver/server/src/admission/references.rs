//! Parameters of policies are read for their authors: nobody lets a policy read what they may not read themselves.

use identity::{Attributes, Authorizer, User};
use schema::field::FieldError;
use schema::status::{Result, Status};
use serde_json::Value;

use super::one;
use crate::call::Call;

/// Judges a valid policy or binding that is created, or changed from `old`.
pub fn judge(call: &Call, new: &Value, old: Option<&Value>) -> Result<()> {
    if !call.target.subresource.is_empty() || call.user.rules(&call.cluster) {
        return Ok(());
    }
    let unchanged = |fields: &[&str]| old.is_some_and(|old| fields.iter().all(|f| old["spec"][*f] == new["spec"][*f]));
    let spec = &new["spec"];
    let (field, verdict) = match call.kind.plural() {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
            if !spec["paramKind"].is_object() || unchanged(&["paramKind"]) {
                return Ok(());
            }
            ("paramKind", policy(call, &spec["paramKind"]))
        }
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => {
            if !spec["paramRef"].is_object() || unchanged(&["paramRef", "policyName"]) {
                return Ok(());
            }
            ("paramRef", binding(call, spec))
        }
        _ => return Ok(()),
    };
    verdict.map_err(|why| {
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        let error = FieldError::forbidden(format!("spec.{field}"), &why);
        Status::invalid(call.kind.group(), call.kind.name(), name, &vec![error])
    })
}

/// A policy may read all objects of its kind of parameters.
fn policy(call: &Call, kind: &Value) -> Result<(), String> {
    let attributes =
        Attributes { namespace: "*".to_owned(), name: "*".to_owned(), ..reading(call, "get", Some(kind)).attributes };
    if allows(call, &attributes) {
        return Ok(());
    }
    Err(format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        shown(&call.user),
        text(&kind["kind"]),
        text(&kind["apiVersion"])
    ))
}

/// A binding says which of them.
fn binding(call: &Call, spec: &Value) -> Result<(), String> {
    let reference = &spec["paramRef"];
    let verb = if text(&reference["name"]).is_empty() { "list" } else { "get" };
    let policies = call.kind.collection.replace("bindings", "").replace("admissionpolicy", "admissionpolicies");
    let name = text(&spec["policyName"]);
    let policy = one(call, &policies, "", name);
    let kind = policy.as_ref().map(|policy| &policy["spec"]["paramKind"]).filter(|kind| kind.is_object());
    let read = reading(call, verb, kind);
    let attributes = Attributes {
        namespace: text(&reference["namespace"]).to_owned(),
        name: text(&reference["name"]).to_owned(),
        ..read.attributes
    };
    if allows(call, &attributes) {
        return Ok(());
    }
    let user = shown(&call.user);
    let lacks = format!("user {user} does not have \"{verb}\" permission");
    let everywhere = "for all groups, versions and resources";
    Err(match (policy.is_some(), kind.is_some() && !read.resolved) {
        (false, _) => {
            format!("unable to get policy {name} to determine minimum required permissions and {lacks} {everywhere}")
        }
        (true, true) => format!(
            "unable to resolve paramKind {}, Kind={} to determine minimum required permissions and {lacks} {everywhere}",
            kind.map_or("", |kind| text(&kind["apiVersion"])),
            kind.map_or("", |kind| text(&kind["kind"]))
        ),
        (true, false) => format!("{lacks} on the object referenced by paramRef"),
    })
}

struct Reading {
    attributes: Attributes,
    /// Whether the kind is served.
    resolved: bool,
}

/// Reading objects of a kind; of every kind if it is not known which.
fn reading(call: &Call, verb: &str, kind: Option<&Value>) -> Reading {
    let all = || "*".to_owned();
    let mut attributes =
        Attributes { verb: verb.to_owned(), group: all(), version: all(), resource: all(), ..Attributes::default() };
    let Some(kind) = kind else { return Reading { attributes, resolved: false } };
    let version = text(&kind["apiVersion"]);
    let (group, name) = version.split_once('/').unwrap_or(("", version));
    (attributes.group, attributes.version) = (group.to_owned(), name.to_owned());
    let found = call.server.kinds.find_kind(&call.cluster, version, text(&kind["kind"]));
    if let Some(found) = &found {
        attributes.resource = found.plural().to_owned();
    }
    Reading { attributes, resolved: found.is_some() }
}

fn allows(call: &Call, attributes: &Attributes) -> bool {
    call.server.authorization.in_workspace(&call.cluster).allows(&call.user, attributes)
}

/// As Go prints a user.
fn shown(user: &User) -> String {
    let info = user.info();
    format!("&{{{} {} [{}] map[]}}", user.name, text(&info["uid"]), user.groups.join(" "))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
