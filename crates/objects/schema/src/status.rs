//! Kubernetes `Status`: how every failure is told to a client, and the constructors for the ones upstream uses.

use std::fmt;

use serde_json::{Value, json};

use crate::field::{FieldError, FieldErrors};

/// A failure on its way to a client. Becomes a `v1.Status` body and an HTTP code.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    pub code: u16,
    /// Upstream's machine-readable reason, for example `NotFound`. Empty means none is sent.
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Details>,
    /// `metadata.continue`: where a list that cannot be continued as it began can be continued all the same.
    pub next: Option<Box<str>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    pub name: String,
    pub group: String,
    /// Upstream puts the resource here for most errors and the kind for `Invalid`.
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

impl From<&FieldError> for Cause {
    fn from(error: &FieldError) -> Self {
        let reason = error.kind.reason().to_owned();
        Self { reason, message: error.message.clone(), field: error.path_or_nil() }
    }
}

/// Upstream's reasons, as far as a failure has one.
const REASONS: [&str; 20] = [
    "Unauthorized",
    "Forbidden",
    "NotFound",
    "AlreadyExists",
    "Conflict",
    "Gone",
    "Invalid",
    "ServerTimeout",
    "StoreReadError",
    "Timeout",
    "TooManyRequests",
    "BadRequest",
    "MethodNotAllowed",
    "NotAcceptable",
    "RequestEntityTooLarge",
    "UnsupportedMediaType",
    "InternalError",
    "Expired",
    "ServiceUnavailable",
    "InsufficientStorage",
];

pub type Result<T, E = Status> = std::result::Result<T, E>;

/// `deployments.apps`, or `pods` in the core group.
pub fn qualified(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// At most this many wrong fields are told of in one answer.
const MAX_ERRORS: usize = 1_000;

impl Status {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, next: None }
    }

    /// Names the object an error is about.
    pub fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.details.get_or_insert_with(Details::default);
        details.group = group.to_owned();
        details.kind = kind.to_owned();
        details.name = name.to_owned();
        self
    }

    pub fn with_causes(mut self, causes: Vec<Cause>) -> Self {
        self.details.get_or_insert_with(Details::default).causes = causes;
        self
    }

    pub fn causes(&self) -> &[Cause] {
        self.details.as_ref().map_or(&[], |details| &details.causes)
    }

    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_with(Details::default).retry_after_seconds = seconds;
        self
    }

    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", qualified(group, resource));
        Self::new(404, "NotFound", message).about(group, resource, name)
    }

    /// The path leads to no resource at all.
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_causes(Vec::new())
    }

    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", qualified(group, resource));
        Self::new(409, "AlreadyExists", message).about(group, resource, name)
    }

    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(group, resource));
        Self::new(409, "Conflict", message).about(group, resource, name)
    }

    /// The object changed between a client's read and its write.
    pub fn modified(group: &str, resource: &str, name: &str) -> Self {
        Self::conflict(
            group,
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn invalid(group: &str, kind: &str, name: &str, errors: &FieldErrors) -> Self {
        // Nobody reads more, and an object of megabytes can have something wrong with every field.
        let errors = &errors[..errors.len().min(MAX_ERRORS)];
        let message = format!("{} \"{name}\" is invalid: {}", qualified(group, kind), FieldError::join(errors));
        let causes = errors.iter().map(Cause::from).collect();
        Self::new(422, "Invalid", message).about(group, kind, name).with_causes(causes)
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let message = match (resource, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{} is forbidden: {why}", qualified(group, resource)),
            _ => format!("{} \"{name}\" is forbidden: {why}", qualified(group, resource)),
        };
        Self::new(403, "Forbidden", message).about(group, resource, name)
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub fn method_not_supported(group: &str, resource: &str, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind \"{}\"", qualified(group, resource));
        Self::new(405, "MethodNotAllowed", message).about(group, resource, "")
    }

    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            .with_causes(Vec::new())
    }

    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(406, "NotAcceptable", message)
    }

    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The same with a token that continues the list from where it was, as things are now.
    pub fn expired_page(message: impl Into<String>, next: String) -> Self {
        Self { next: Some(next.into()), ..Self::expired(message) }
    }

    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, "RequestEntityTooLarge", message)
    }

    pub fn too_many_requests(message: impl Into<String>, seconds: u32) -> Self {
        Self::new(429, "TooManyRequests", message).retry_after(seconds)
    }

    pub fn internal(message: impl fmt::Display) -> Self {
        let message = message.to_string();
        let cause = Cause { message: message.clone(), ..Cause::default() };
        Self::new(500, "InternalError", format!("Internal error occurred: {message}")).with_causes(vec![cause])
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// A `v1.Status` that another server answered with this code. What is no Status becomes one.
    pub fn from_value(code: u16, value: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let reason = REASONS.iter().find(|reason| value["reason"] == **reason).copied().unwrap_or_default();
        let message = match value["message"].as_str() {
            Some(message) if !message.is_empty() => message.to_owned(),
            _ => format!("the other server answered with {code}"),
        };
        let details = value.get("details").filter(|details| details.is_object()).map(|details| Details {
            name: text(&details["name"]),
            group: text(&details["group"]),
            kind: text(&details["kind"]),
            uid: text(&details["uid"]),
            causes: details["causes"].as_array().into_iter().flatten().map(Cause::from_value).collect(),
            retry_after_seconds: details["retryAfterSeconds"].as_u64().and_then(|s| s.try_into().ok()).unwrap_or(0),
        });
        let next = value["metadata"]["continue"].as_str().filter(|next| !next.is_empty()).map(Into::into);
        Self { code, reason, message, details, next }
    }

    /// The `v1.Status` object.
    pub fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_value();
        }
        if let Some(next) = &self.next {
            status["metadata"]["continue"] = (**next).into();
        }
        status
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut value = json!({});
        for (key, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)] {
            if !text.is_empty() {
                value[key] = text.as_str().into();
            }
        }
        if !self.causes.is_empty() {
            value["causes"] = self.causes.iter().map(Cause::to_value).collect();
        }
        if self.retry_after_seconds > 0 {
            value["retryAfterSeconds"] = self.retry_after_seconds.into();
        }
        value
    }
}

impl Cause {
    fn from_value(value: &Value) -> Self {
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        Self { reason: text("reason"), message: text("message"), field: text("field") }
    }

    fn to_value(&self) -> Value {
        let mut value = json!({});
        for (key, text) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                value[key] = text.as_str().into();
            }
        }
        value
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_server_said_reads_back() {
        let causes = vec![Cause { reason: "r".into(), message: "m".into(), field: "f".into() }];
        for status in [
            Status::not_found("apps", "deployments", "web"),
            Status::too_many_requests("busy", 7),
            Status::internal("disk"),
            Status::bad_request("no"),
            Status::conflict("", "pods", "a", "why").with_causes(causes),
            Status::new(418, "", "teapot"),
            Status::expired_page("too old", "token".into()),
        ] {
            assert_eq!(Status::from_value(status.code, &status.to_value()), status);
        }
        assert_eq!(Status::from_value(502, &json!("bad gateway")).message, "the other server answered with 502");
        assert_eq!(Status::from_value(403, &json!({"reason": "Whatever"})).reason, "");
    }
}
