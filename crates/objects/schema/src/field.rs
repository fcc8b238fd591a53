//! Field errors: what is wrong with which field, worded as upstream words it.

use std::fmt;

pub type FieldErrors = Vec<FieldError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    Internal,
    TypeInvalid,
}

/// One wrong field. `message` is the whole text after `path: `, for example `Required value: name or generateName is required`.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub kind: FieldErrorKind,
    /// Go-style path: `spec.containers[0].name`, `metadata.labels[a.b/c]`. May be empty (shown as `<nil>`).
    pub path: String,
    pub message: String,
}

impl FieldErrorKind {
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

impl FieldError {
    /// For values that are not shown as plain JSON: what `value` displays is what is shown.
    pub fn shown(kind: FieldErrorKind, path: impl Into<String>, value: impl fmt::Display, detail: &str) -> Self {
        Self::valued(kind, path, value, detail)
    }

    fn valued(kind: FieldErrorKind, path: impl Into<String>, value: impl fmt::Display, detail: &str) -> Self {
        let label = kind.label();
        let message =
            if detail.is_empty() { format!("{label}: {value}") } else { format!("{label}: {value}: {detail}") };
        Self { kind, path: path.into(), message }
    }

    fn plain(kind: FieldErrorKind, path: impl Into<String>, detail: &str) -> Self {
        let label = kind.label();
        let message = if detail.is_empty() { label.to_owned() } else { format!("{label}: {detail}") };
        Self { kind, path: path.into(), message }
    }

    pub fn required(path: impl Into<String>, detail: &str) -> Self {
        Self::plain(FieldErrorKind::Required, path, detail)
    }

    pub fn forbidden(path: impl Into<String>, detail: &str) -> Self {
        Self::plain(FieldErrorKind::Forbidden, path, detail)
    }

    /// `value` is shown as JSON shows it, so strings come quoted.
    pub fn invalid(path: impl Into<String>, value: &serde_json::Value, detail: &str) -> Self {
        Self::valued(FieldErrorKind::Invalid, path, value, detail)
    }

    pub fn type_invalid(path: impl Into<String>, value: &serde_json::Value, detail: &str) -> Self {
        Self::valued(FieldErrorKind::TypeInvalid, path, value, detail)
    }

    pub fn duplicate(path: impl Into<String>, value: &serde_json::Value) -> Self {
        Self::valued(FieldErrorKind::Duplicate, path, value, "")
    }

    pub fn not_found(path: impl Into<String>, value: &serde_json::Value) -> Self {
        Self::valued(FieldErrorKind::NotFound, path, value, "")
    }

    pub fn not_supported(path: impl Into<String>, value: &serde_json::Value, supported: &[&str]) -> Self {
        let list = supported.iter().map(|s| format!("\"{s}\"")).collect::<Vec<_>>().join(", ");
        let detail = if list.is_empty() { String::new() } else { format!("supported values: {list}") };
        Self::valued(FieldErrorKind::NotSupported, path, value, &detail)
    }

    pub fn too_long(path: impl Into<String>, max_bytes: usize) -> Self {
        let bytes = if max_bytes == 1 { "byte" } else { "bytes" };
        Self::plain(FieldErrorKind::TooLong, path, &format!("may not be more than {max_bytes} {bytes}"))
    }

    pub fn too_many(path: impl Into<String>, actual: usize, max: usize) -> Self {
        let items = if max == 1 { "item" } else { "items" };
        Self::valued(FieldErrorKind::TooMany, path, actual, &format!("must have at most {max} {items}"))
    }

    pub fn internal(path: impl Into<String>, detail: &str) -> Self {
        Self::plain(FieldErrorKind::Internal, path, detail)
    }

    pub(crate) fn path_or_nil(&self) -> String {
        if self.path.is_empty() { "<nil>".to_owned() } else { self.path.clone() }
    }

    /// One error as it is, several in brackets, as Go's aggregate prints them; repeated texts once.
    pub fn join(errors: &[FieldError]) -> String {
        let mut seen = std::collections::HashSet::with_capacity(errors.len());
        let mut texts: Vec<String> = Vec::with_capacity(errors.len());
        for error in errors {
            let text = error.to_string();
            if seen.insert(text.clone()) {
                texts.push(text);
            }
        }
        match texts.as_slice() {
            [] => "[]".to_owned(),
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path_or_nil(), self.message)
    }
}
