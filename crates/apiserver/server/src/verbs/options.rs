//! ListOptions: the rules about resourceVersion, its match, initial events, limit and continue. Pure but for the query.

use request::Query;
use schema::field::FieldError;
use schema::status::{Cause, Result, Status};
use store::Revision;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The newest.
    Latest,
    /// Any; ours is always the newest.
    Any,
    NotOlderThan(Revision),
    Exactly(Revision),
}

pub fn list(query: &Query) -> Result<Version> {
    let (version, rule) = (query.get("resourceVersion"), query.get("resourceVersionMatch"));
    let mut errors = Vec::new();
    if !rule.is_empty() {
        if version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        }
        if query.has("continue") && !query.get("continue").is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        }
        if !matches!(rule, "Exact" | "NotOlderThan") {
            let supported = ["Exact", "NotOlderThan", ""];
            errors.push(FieldError::not_supported("resourceVersionMatch", &rule.into(), &supported));
        }
        if rule == "Exact" && version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        }
    }
    if query.has("sendInitialEvents") {
        errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    refuse(errors)?;
    let revision = match version {
        "" => return Ok(Version::Latest),
        "0" => return Ok(Version::Any),
        text => text.parse().map_err(|_| {
            Status::bad_request(format!("invalid resource version: {}", not_a_number("resourceVersion", text)))
        })?,
    };
    // A limited list at a version is that version, exactly, as upstream's has been from its beginning.
    let limited = query.get("limit").parse().unwrap_or(0i64) > 0;
    Ok(match rule {
        "Exact" => Version::Exactly(revision),
        "" if limited => Version::Exactly(revision),
        _ => Version::NotOlderThan(revision),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// What exists comes first; `marked` by a bookmark at its end.
    Existing { at_least: Revision, marked: bool },
    /// Only what comes after this revision.
    After(Revision),
    /// Only what comes from now on.
    Now,
}

const NOT_OLDER_THAN: &str = "NotOlderThan";

pub fn watch(query: &Query) -> Result<Start> {
    let (version, rule) = (query.get("resourceVersion"), query.get("resourceVersionMatch"));
    let initial = query.has("sendInitialEvents").then(|| query.flag("sendInitialEvents"));
    // A watch without options gets what exists first, by the same rules as a watch that asks for it.
    let legacy = initial.is_none() && rule.is_empty() && matches!(version, "" | "0");
    let mut errors = Vec::new();
    if initial.is_some() && rule != NOT_OLDER_THAN {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.push(FieldError::forbidden("resourceVersionMatch", why));
    }
    if legacy || !rule.is_empty() {
        if !legacy && initial.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        }
        if !legacy && rule != NOT_OLDER_THAN {
            errors.push(FieldError::not_supported("resourceVersionMatch", &rule.into(), &[NOT_OLDER_THAN]));
        }
        if !query.get("continue").is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden("resourceVersionMatch", why));
        }
    }
    refuse(errors)?;
    let revision: Revision = match version {
        "" => 0,
        text => text.parse().map_err(|_| Status::new(500, "", not_a_number("resourceVersion", text)))?,
    };
    let marks = query.flag("allowWatchBookmarks");
    Ok(match (initial, version) {
        (Some(true), _) => Start::Existing { at_least: revision, marked: marks },
        (Some(false), "" | "0") => Start::Now,
        (None, "") => Start::Existing { at_least: 0, marked: false },
        (None, "0") => Start::Existing { at_least: 0, marked: marks },
        _ => Start::After(revision),
    })
}

/// Of a get: how new the answer must be at least.
pub fn get(query: &Query) -> Result<Revision> {
    match query.get("resourceVersion") {
        "" => Ok(0),
        text => text.parse().map_err(|_| Status::new(500, "", not_a_number("resourceVersion", text))),
    }
}

/// Objects were once told without what the server had added.
pub fn check_export(query: &Query) -> Result<()> {
    match query.flag("export") {
        false => Ok(()),
        true => Err(Status::bad_request("the export parameter, deprecated since v1.14, is no longer supported")),
    }
}

pub fn limit(query: &Query) -> Result<usize> {
    let number = |name: &str| if query.has(name) { int(query.get(name)) } else { Ok(0) };
    number("timeoutSeconds")?;
    Ok(usize::try_from(number("limit")?).unwrap_or(0))
}

/// A number in a query.
pub fn int(text: &str) -> Result<i64> {
    text.parse().map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing \"{text}\": {}", fault(text))))
}

fn not_a_number(field: &str, text: &str) -> String {
    format!("{field}: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": {}", fault(text))
}

/// What Go has against a text that is not a number it can hold.
fn fault(text: &str) -> &'static str {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if is_number && !text.starts_with('-') { "value out of range" } else { "invalid syntax" }
}

fn refuse(errors: Vec<FieldError>) -> Result<()> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid("meta.k8s.io", "ListOptions", "", &errors)) }
}

pub fn too_large(asked: Revision, current: Revision) -> Status {
    let cause = Cause {
        reason: "ResourceVersionTooLarge".into(),
        message: "Too large resource version".into(),
        field: String::new(),
    };
    Status::new(504, "Timeout", format!("Timeout: Too large resource version: {asked}, current: {current}"))
        .with_causes(vec![cause])
        .retry_after(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_that_upstream_refuses() {
        let refused = |query: &str| watch(&Query::parse(Some(query))).err().map(|status| (status.code, status.message));
        for fine in
            ["", "limit=5", "resourceVersion=7&continue=x", "sendInitialEvents=1&resourceVersionMatch=NotOlderThan"]
        {
            assert_eq!(refused(fine), None, "{fine}");
        }
        let forbidden = |why: &str| format!("resourceVersionMatch: Forbidden: {why}");
        let supported = |got: &str| {
            format!("resourceVersionMatch: Unsupported value: \"{got}\": supported values: \"NotOlderThan\"")
        };
        let paged = forbidden("resourceVersionMatch is forbidden when continue is provided");
        let needed = forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        let alone = forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
        for (query, errors) in [
            ("continue=x", vec![paged.clone()]),
            ("continue=x&resourceVersion=0", vec![paged.clone()]),
            ("sendInitialEvents=1&resourceVersionMatch=NotOlderThan&continue=x", vec![paged]),
            ("sendInitialEvents=1", vec![needed.clone()]),
            ("sendInitialEvents=1&resourceVersionMatch=Exact", vec![needed, supported("Exact")]),
            ("resourceVersionMatch=Exact", vec![alone.clone(), supported("Exact")]),
            ("resourceVersionMatch=NotOlderThan", vec![alone]),
        ] {
            let all = match errors.len() {
                1 => errors[0].clone(),
                _ => format!("[{}]", errors.join(", ")),
            };
            let want = format!("ListOptions.meta.k8s.io \"\" is invalid: {all}");
            assert_eq!(refused(query), Some((422, want)), "{query}");
        }
    }
}
