//! Field selectors: their grammar, which fields each resource can be selected by, and the value of such a field.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use super::labels::{MAX_TERMS, too_many_terms};
use super::scan;
use crate::catalogue::api_version;
use crate::status::Status;

const META: &[&str] = &["metadata.name", "metadata.namespace"];
const CLUSTER_META: &[&str] = &["metadata.name"];

/// A conjunction of equalities and inequalities on fields. Without any it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub field: String,
    /// Whether the field must equal the value, or differ from it.
    pub equal: bool,
    pub value: String,
}

impl FieldSelector {
    /// Reads the text of a `fieldSelector` parameter, whatever the fields in it are.
    pub fn parse(text: &str) -> Result<Self, Status> {
        let mut parts = split_unescaped_commas(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((field, equal, value)) = split_term(part) else {
                let message = format!("invalid selector: '{text}'; can't understand '{part}'");
                return Err(Status::bad_request(message));
            };
            terms.push(Term { field: field.to_owned(), equal, value: unescape(value)? });
        }
        if terms.len() > MAX_TERMS {
            return Err(too_many_terms("field", terms.len()));
        }
        Ok(Self { terms })
    }

    /// Checks the fields against what a built-in resource supports, and translates old names of them.
    pub fn for_resource(mut self, group: &str, version: &str, resource: &str) -> Result<Self, Status> {
        let known = supported(group, resource);
        for term in &mut self.terms {
            if let Some(name) = renamed(group, resource, &term.field) {
                term.field = name;
            } else if !known.contains(&term.field.as_str())
                || group == "events.k8s.io" && !is_new_event_field(&term.field)
            {
                return Err(not_supported(group, version, resource, &term.field));
            }
        }
        Ok(self)
    }

    /// Checks the fields against what a custom resource supports: metadata and the paths in `selectableFields`
    /// (with or without the leading dot).
    pub fn for_custom<S: AsRef<str>>(self, namespaced: bool, selectable: &[S]) -> Result<Self, Status> {
        for Term { field, .. } in &self.terms {
            let known = field == "metadata.name"
                || namespaced && field == "metadata.namespace"
                || selectable.iter().any(|path| path.as_ref().trim_start_matches('.') == field);
            if !known {
                return Err(Status::bad_request(format!("field label not supported: {field}")));
            }
        }
        Ok(self)
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The value that a field must have, if the selector demands one: lets a list by name become a get.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|t| t.equal && t.field == field).map(|t| t.value.as_str())
    }

    /// Everything that is demanded to be equal: fields and values.
    pub fn equalities(self) -> Vec<(String, String)> {
        self.terms.into_iter().filter(|t| t.equal).map(|t| (t.field, t.value)).collect()
    }

    pub fn matches<S: AsRef<str>>(&self, value: impl Fn(&str) -> S) -> bool {
        self.terms.iter().all(|term| (value(&term.field).as_ref() == term.value) == term.equal)
    }

    /// Matches an object given as JSON text; `custom` says that the fields are those of a custom resource.
    pub fn matches_json(&self, group: &str, resource: &str, custom: bool, json: &[u8]) -> bool {
        self.matches(|field| if custom { custom_value_in(field, json) } else { value_in(group, resource, field, json) })
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let operator = if term.equal { "=" } else { "!=" };
            let value = term.value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            write!(f, "{comma}{}{operator}{value}", term.field)?;
        }
        Ok(())
    }
}

fn split_unescaped_commas(text: &str) -> Vec<&str> {
    let mut escaped = false;
    text.split(|c| {
        let splits = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    })
    .collect()
}

/// Field, whether `=` or `!=`, and the value still escaped. The first operator splits: fields know no escapes.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.find('=')?;
    let (before, after) = (&term[..at], &term[at + 1..]);
    // A `!` only counts as part of `!=`.
    match before.strip_suffix('!') {
        Some(field) => Some((field, false, after)),
        None => Some((before, true, after.strip_prefix('=').unwrap_or(after))),
    }
}

fn unescape(value: &str) -> Result<String, Status> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                other => {
                    let rest: String = other.into_iter().collect();
                    let message = format!("invalid field selector: invalid escape sequence: \\{rest}");
                    return Err(Status::bad_request(message));
                }
            },
            // Upstream prints the character's number.
            ',' | '=' => {
                let message = format!("invalid field selector: unescaped character in value: {}", u32::from(c));
                return Err(Status::bad_request(message));
            }
            c => plain.push(c),
        }
    }
    Ok(plain)
}

/// The fields a built-in resource can be selected by.
pub fn supported(group: &str, resource: &str) -> &'static [&'static str] {
    match (group, resource) {
        ("", "pods") => &[
            "metadata.name",
            "metadata.namespace",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("" | "events.k8s.io", "events") => &[
            "metadata.name",
            "metadata.namespace",
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("", "nodes") => &["metadata.name", "spec.unschedulable"],
        ("", "namespaces") => &["metadata.name", "status.phase"],
        ("", "secrets") => &["metadata.name", "metadata.namespace", "type"],
        ("", "services") => &["metadata.name", "metadata.namespace", "spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") => &["metadata.name", "metadata.namespace", "status.replicas"],
        ("batch", "jobs") => &["metadata.name", "metadata.namespace", "status.successful"],
        ("certificates.k8s.io", "certificatesigningrequests" | "clustertrustbundles") => {
            &["metadata.name", "spec.signerName"]
        }
        ("certificates.k8s.io", "podcertificaterequests") => {
            &["metadata.name", "spec.signerName", "spec.podName", "spec.nodeName"]
        }
        ("resource.k8s.io", "resourceslices") => &["metadata.name", "spec.nodeName", "spec.driver", "spec.pool.name"],
        _ => META,
    }
}

/// Names that clients may use for a field that is known under another one.
fn renamed(group: &str, resource: &str, field: &str) -> Option<String> {
    match (group, resource, field) {
        ("", "pods", "spec.host") => Some("spec.nodeName".to_owned()),
        ("events.k8s.io", "events", "reportingController") => Some("reportingComponent".to_owned()),
        ("events.k8s.io", "events", field) => {
            let part = field.strip_prefix("regarding.")?;
            let parts = ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"];
            parts.contains(&part).then(|| format!("involvedObject.{part}"))
        }
        _ => None,
    }
}

/// What events.k8s.io calls as the core group does.
fn is_new_event_field(field: &str) -> bool {
    matches!(field, "metadata.name" | "metadata.namespace" | "reason" | "type")
}

fn not_supported(group: &str, version: &str, resource: &str, field: &str) -> Status {
    Status::bad_request(match (group, resource) {
        ("batch", "jobs") => format!("field label {field:?} not supported for Job"),
        ("resource.k8s.io", "resourceslices") => {
            let gv = api_version(group, version);
            format!("field label not supported for {gv}, Kind=ResourceSlice: {field}")
        }
        _ if std::ptr::eq(supported(group, resource), META) => {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
        _ => format!("field label not supported: {field}"),
    })
}

/// Where the value of a field is, and what an absent one reads as.
enum Source {
    Path(&'static [&'static str], &'static str),
    /// The first of two places that is not empty.
    Either(&'static [&'static str], &'static [&'static str]),
    FirstPodIp,
    Empty,
}

fn source(group: &str, resource: &str, field: &str) -> Source {
    use Source::{Either, Path};
    match (group, resource, field) {
        (_, _, "metadata.name") => Path(&["metadata", "name"], ""),
        (_, _, "metadata.namespace") => Path(&["metadata", "namespace"], ""),
        ("", "pods", "spec.nodeName") => Path(&["spec", "nodeName"], ""),
        ("", "pods", "spec.restartPolicy") => Path(&["spec", "restartPolicy"], ""),
        ("", "pods", "spec.schedulerName") => Path(&["spec", "schedulerName"], ""),
        ("", "pods", "spec.serviceAccountName") => Path(&["spec", "serviceAccountName"], ""),
        ("", "pods", "spec.hostNetwork") => Path(&["spec", "hostNetwork"], "false"),
        ("", "pods" | "namespaces", "status.phase") => Path(&["status", "phase"], ""),
        ("", "pods", "status.nominatedNodeName") => Path(&["status", "nominatedNodeName"], ""),
        ("", "pods", "status.podIP") => Source::FirstPodIp,
        (_, "events", "involvedObject.kind") => Either(&["involvedObject", "kind"], &["regarding", "kind"]),
        (_, "events", "involvedObject.namespace") => {
            Either(&["involvedObject", "namespace"], &["regarding", "namespace"])
        }
        (_, "events", "involvedObject.name") => Either(&["involvedObject", "name"], &["regarding", "name"]),
        (_, "events", "involvedObject.uid") => Either(&["involvedObject", "uid"], &["regarding", "uid"]),
        (_, "events", "involvedObject.apiVersion") => {
            Either(&["involvedObject", "apiVersion"], &["regarding", "apiVersion"])
        }
        (_, "events", "involvedObject.resourceVersion") => {
            Either(&["involvedObject", "resourceVersion"], &["regarding", "resourceVersion"])
        }
        (_, "events", "involvedObject.fieldPath") => {
            Either(&["involvedObject", "fieldPath"], &["regarding", "fieldPath"])
        }
        (_, "events", "reason") => Path(&["reason"], ""),
        (_, "events" | "secrets", "type") => Path(&["type"], ""),
        (_, "events", "reportingComponent") => Either(&["reportingComponent"], &["reportingController"]),
        (_, "events", "source") => Either(&["source", "component"], &["reportingComponent"]),
        ("", "nodes", "spec.unschedulable") => Path(&["spec", "unschedulable"], "false"),
        ("", "services", "spec.clusterIP") => Path(&["spec", "clusterIP"], ""),
        ("", "services", "spec.type") => Path(&["spec", "type"], ""),
        (_, "replicationcontrollers", "status.replicas") => Path(&["status", "replicas"], "0"),
        ("batch", "jobs", "status.successful") => Path(&["status", "succeeded"], "0"),
        ("certificates.k8s.io", _, "spec.signerName") => Path(&["spec", "signerName"], ""),
        ("certificates.k8s.io", _, "spec.podName") => Path(&["spec", "podName"], ""),
        ("certificates.k8s.io" | "resource.k8s.io", _, "spec.nodeName") => Path(&["spec", "nodeName"], ""),
        ("resource.k8s.io", _, "spec.driver") => Path(&["spec", "driver"], ""),
        ("resource.k8s.io", _, "spec.pool.name") => Path(&["spec", "pool", "name"], ""),
        _ => Source::Empty,
    }
}

/// The value of a field of a built-in object, as the selector compares it.
pub fn value<'a>(group: &str, resource: &str, field: &str, object: &'a Value) -> Cow<'a, str> {
    read(
        source(group, resource, field),
        |path| path.iter().try_fold(object, |at, name| at.get(name)).map_or(Cow::Borrowed(""), scalar),
        || {
            let first = object.pointer("/status/podIPs/0/ip").or_else(|| object.pointer("/status/podIP"));
            first.map_or(Cow::Borrowed(""), scalar)
        },
    )
}

/// As [`value`], over JSON text.
pub fn value_in<'a>(group: &str, resource: &str, field: &str, json: &'a [u8]) -> Cow<'a, str> {
    let at = |path: &[&str]| scan::scalar_at(json, path).unwrap_or_default();
    read(source(group, resource, field), at, || {
        // Pods are always stored with both fields, the first of `podIPs` being `podIP`.
        at(&["status", "podIP"])
    })
}

fn read<'a>(source: Source, at: impl Fn(&[&str]) -> Cow<'a, str>, pod_ip: impl Fn() -> Cow<'a, str>) -> Cow<'a, str> {
    match source {
        Source::Path(path, absent) => match at(path) {
            text if text.is_empty() => Cow::Borrowed(absent),
            text => text,
        },
        Source::Either(first, second) => match at(first) {
            text if text.is_empty() => at(second),
            text => text,
        },
        Source::FirstPodIp => pod_ip(),
        Source::Empty => Cow::Borrowed(""),
    }
}

/// The value of a custom resource's field: `spec.colour` is that path.
pub fn custom_value<'a>(field: &str, object: &'a Value) -> Cow<'a, str> {
    let mut names = field.trim_start_matches('.').split('.');
    names.try_fold(object, |at, name| at.get(name)).map_or(Cow::Borrowed(""), scalar)
}

/// As [`custom_value`], over JSON text.
pub fn custom_value_in<'a>(field: &str, json: &'a [u8]) -> Cow<'a, str> {
    let path: Vec<&str> = field.trim_start_matches('.').split('.').collect();
    scan::scalar_at(json, &path).unwrap_or_default()
}

fn scalar(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Bool(_) | Value::Number(_) => Cow::Owned(value.to_string()),
        _ => Cow::Borrowed(""),
    }
}

/// The fields every namespaced or cluster-wide object has.
pub fn metadata(namespaced: bool) -> &'static [&'static str] {
    if namespaced { META } else { CLUSTER_META }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn grammar() {
        for (text, canonical) in [
            ("", ""),
            ("b=1,a==2", "a=2,b=1"),
            ("a!=1", "a!=1"),
            (r"a=x\,y\=z\\", r"a=x\,y\=z\\"),
            ("a=", "a="),
            (",a=1,", "a=1"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap().to_string(), canonical, "{text}");
        }
        assert_eq!(FieldSelector::parse(r"a=x\,y").unwrap().exact("a"), Some("x,y"));
        for (text, message) in [
            ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
            ("a=1,b", "invalid selector: 'a=1,b'; can't understand 'b'"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            (r"a=\n", r"invalid field selector: invalid escape sequence: \n"),
            (r"a=x\", r"invalid field selector: invalid escape sequence: \"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().message, message);
        }
    }

    #[test]
    fn fields_that_are_not_supported() {
        for (group, resource, field, message) in [
            (
                "",
                "configmaps",
                "data.k",
                "\"data.k\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
            ("", "pods", "spec.hostname", "field label not supported: spec.hostname"),
            ("batch", "jobs", "x", "field label \"x\" not supported for Job"),
            ("events.k8s.io", "events", "involvedObject.kind", "field label not supported: involvedObject.kind"),
            (
                "resource.k8s.io",
                "resourceslices",
                "x",
                "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: x",
            ),
            (
                "apps",
                "replicasets",
                "status.replicas",
                "\"status.replicas\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
        ] {
            let selector = FieldSelector::parse(&format!("{field}=1")).unwrap();
            assert_eq!(selector.for_resource(group, "v1", resource).unwrap_err().message, message);
        }
        let custom = FieldSelector::parse("spec.size=5").unwrap();
        assert!(custom.clone().for_custom(true, &[".spec.size"]).is_ok());
        assert_eq!(
            custom.for_custom(true, &[".spec.colour"]).unwrap_err().message,
            "field label not supported: spec.size"
        );
        assert!(FieldSelector::parse("metadata.namespace=x").unwrap().for_custom::<&str>(false, &[]).is_err());
    }

    #[test]
    fn values_agree_between_values_and_text() {
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "n1", "hostNetwork": true},
            "status": {"phase": "Running", "podIP": "1.2.3.4", "podIPs": [{"ip": "1.2.3.4"}]}});
        let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}, "type": "Warning",
            "reportingComponent": "me", "source": {}});
        let node = json!({"metadata": {"name": "n"}, "spec": {}});
        let job = json!({"metadata": {}, "status": {"succeeded": 3}});
        for (group, resource, object, field, expected) in [
            ("", "pods", &pod, "spec.nodeName", "n1"),
            ("", "pods", &pod, "spec.hostNetwork", "true"),
            ("", "pods", &pod, "status.podIP", "1.2.3.4"),
            ("", "pods", &pod, "spec.schedulerName", ""),
            ("", "pods", &pod, "metadata.namespace", "n"),
            ("", "events", &event, "involvedObject.kind", "Pod"),
            ("", "events", &event, "source", "me"),
            ("", "nodes", &node, "spec.unschedulable", "false"),
            ("batch", "jobs", &job, "status.successful", "3"),
        ] {
            assert_eq!(value(group, resource, field, object), expected, "{field}");
            assert_eq!(value_in(group, resource, field, object.to_string().as_bytes()), expected, "{field} in text");
        }
        let by_old_name = FieldSelector::parse("spec.host=n1").unwrap().for_resource("", "v1", "pods").unwrap();
        assert!(by_old_name.matches_json("", "pods", false, pod.to_string().as_bytes()));
        assert!(!by_old_name.matches_json("", "pods", false, node.to_string().as_bytes()));
        let regarding = FieldSelector::parse("regarding.name=p").unwrap();
        let regarding = regarding.for_resource("events.k8s.io", "v1", "events").unwrap();
        assert!(regarding.matches(|field| value("events.k8s.io", "events", field, &event)));
        assert_eq!(custom_value("spec.size", &json!({"spec": {"size": 5}})), "5");
    }
}
