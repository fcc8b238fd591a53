//! Is a CustomResourceDefinition one that can be served? Upstream's validation, in its order and words.
//!
//! Upstream validates its internal version of the type, and its messages show that: what all versions have in common is
//! told once, as `spec.validation`, `spec.subresources` and so on, and values are printed with the names of Go fields.

mod columns;
mod internal;
mod rules;
mod schema;
mod show;
mod structural;

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use ::schema::field::{FieldError, FieldErrors};
use ::schema::names;
use serde_json::{Map, Value, json};

pub use rules::is_about_cost;

use ::schema::json_schema::{strings, text};
use internal::Spec;

const APPROVED: &str = "api-approved.kubernetes.io";

/// Everything wrong with a definition. `new` is defaulted and [`super::prepare`]d; `old` is there on an update.
pub fn validate_definition(new: &Value, old: Option<&Value>) -> FieldErrors {
    let empty = Map::new();
    let raw = new.get("spec").and_then(Value::as_object).unwrap_or(&empty);
    let spec = Spec::read(raw);
    let mut errors = FieldErrors::new();
    if old.is_none() {
        name(new, &spec, &mut errors);
    }
    validate_spec(&spec, &mut errors);
    if let Some(old) = old.and_then(|old| old.get("spec")).and_then(Value::as_object)
        && errors.iter().any(rules::is_about_cost)
    {
        // Rules that were too expensive already may stay.
        let mut before = FieldErrors::new();
        validate_spec(&Spec::read(old), &mut before);
        if before.iter().any(rules::is_about_cost) {
            errors.retain(|error| !rules::is_about_cost(error));
        }
    }
    if let Some(old) = old {
        immutable(raw, old, &mut errors);
    }
    let status = new.get("status");
    if let Some(accepted) = status.and_then(|s| s.get("acceptedNames")).and_then(Value::as_object) {
        validate_names(accepted, "status.acceptedNames", &mut errors);
    }
    stored_versions(status, &spec, &mut errors);
    approval(new, old, spec.group, &mut errors);
    if raw.get("preserveUnknownFields") == Some(&json!(true)) && !preserved(old) {
        let why =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &json!(true), why));
    }
    errors
}

fn preserved(old: Option<&Value>) -> bool {
    old.and_then(|old| old.pointer("/spec/preserveUnknownFields")) == Some(&json!(true))
}

fn name(new: &Value, spec: &Spec<'_>, errors: &mut FieldErrors) {
    let name = new.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("");
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
        return;
    }
    let shown = json!(name);
    // That it is a name at all is checked with the rest of the metadata.
    if name != format!("{}.{}", text(spec.names, "plural"), spec.group) {
        errors.push(FieldError::invalid("metadata.name", &shown, "must be spec.names.plural+\".\"+spec.group"));
    }
}

fn one_of(path: &str, value: &str, supported: &[&str], errors: &mut FieldErrors) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !supported.contains(&value) {
        errors.push(FieldError::not_supported(path, &json!(value), supported));
    }
}

fn label(path: &str, value: &str, errors: &mut FieldErrors) {
    let complaints = names::dns1035_label(value);
    if !complaints.is_empty() {
        errors.push(FieldError::invalid(path, &json!(value), &complaints.join(",")));
    }
}

fn validate_spec(spec: &Spec<'_>, errors: &mut FieldErrors) {
    let complaints = names::dns1123_subdomain(spec.group);
    if spec.group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !complaints.is_empty() {
        errors.push(FieldError::invalid("spec.group", &json!(spec.group), &complaints.join(",")));
    } else if !spec.group.contains('.') {
        let why = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", &json!(spec.group), why));
    }
    one_of("spec.scope", spec.scope, &["Cluster", "Namespaced"], errors);
    if spec.schema.is_none() {
        for (index, version) in spec.versions.iter().enumerate() {
            if version.schema.and_then(|s| s.get("openAPIV3Schema")).is_none() {
                errors.push(FieldError::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
            }
        }
    } else if spec.schema.and_then(|s| s.get("openAPIV3Schema")).is_none() {
        for index in 0..spec.versions.len() {
            errors.push(FieldError::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    if spec.preserve_unknown && spec.has_defaults() {
        let why = "must be false in order to use defaults in the schema";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &json!(true), why));
    }
    versions(spec, errors);
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(spec.names, key).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{key}"), ""));
        }
    }
    validate_names(spec.names, "spec.names", errors);
    schema::validate(spec.schema, spec.any_status(), "spec.validation", errors);
    columns::subresources(spec.subresources, "spec.subresources", errors);
    columns::printer_columns(spec.columns, "spec.additionalPrinterColumns", errors);
    columns::selectable(spec.selectable, spec.schema, "spec.selectableFields", errors);
    conversion(spec, errors);
}

fn versions(spec: &Spec<'_>, errors: &mut FieldErrors) {
    let mut storage = 0;
    let mut names = HashSet::new();
    let mut unique = true;
    for (index, version) in spec.versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        storage += usize::from(version.flag("storage"));
        unique &= names.insert(version.name);
        label(&format!("{path}.name"), version.name, errors);
        deprecation(version, &path, errors);
        let status = spec.status_of(version);
        schema::validate(version.schema, status, &format!("{path}.schema"), errors);
        columns::subresources(version.subresources, &format!("{path}.subresources"), errors);
        columns::printer_columns(version.columns, &format!("{path}.additionalPrinterColumns"), errors);
        columns::selectable(version.selectable, version.schema, &format!("{path}.selectableFields"), errors);
    }
    if !unique {
        errors.push(show::versions(spec, "must contain unique version names"));
    }
    if storage != 1 {
        errors.push(show::versions(spec, "must have exactly one version marked as storage version"));
    }
    if let Some(first) = spec.versions.first() {
        // The internal type has the first version's name once more.
        label("spec.version", first.name, errors);
    }
}

fn deprecation(version: &internal::Version<'_>, path: &str, errors: &mut FieldErrors) {
    let Some(warning) = version.raw.get("deprecationWarning").and_then(Value::as_str) else { return };
    let path = format!("{path}.deprecationWarning");
    let mut wrong = |why: &str| errors.push(FieldError::invalid(path.clone(), &json!(warning), why));
    if !version.flag("deprecated") {
        return wrong("can only be set for deprecated versions");
    }
    if warning.len() > 256 {
        wrong("must be <= 256 characters long");
    }
    if warning.is_empty() {
        wrong("must not be an empty string");
    }
    if let Some((at, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
        wrong(&format!("must only contain printable UTF-8 characters; non-printable character found at index {at}"));
    }
}

fn validate_names(names: &Map<String, Value>, path: &str, errors: &mut FieldErrors) {
    for key in ["plural", "singular"] {
        if !text(names, key).is_empty() {
            label(&format!("{path}.{key}"), text(names, key), errors);
        }
    }
    for key in ["kind", "listKind"] {
        let kind = text(names, key);
        let complaints = names::dns1035_label(&kind.to_lowercase());
        if !kind.is_empty() && !complaints.is_empty() {
            let why = format!("may have mixed case, but should otherwise match: {}", complaints.join(","));
            errors.push(FieldError::invalid(format!("{path}.{key}"), &json!(kind), &why));
        }
    }
    for (index, short) in strings(names.get("shortNames")).iter().enumerate() {
        label(&format!("{path}.shortNames[{index}]"), short, errors);
    }
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        let why = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(format!("{path}.listKind"), &json!(list_kind), why));
    }
    for (index, category) in strings(names.get("categories")).iter().enumerate() {
        label(&format!("{path}.categories[{index}]"), category, errors);
    }
}

fn conversion(spec: &Spec<'_>, errors: &mut FieldErrors) {
    let Some(conversion) = spec.conversion else { return };
    let strategy = text(conversion, "strategy");
    if strategy != "None" && spec.preserve_unknown {
        let why = "must be None if spec.preserveUnknownFields is true";
        errors.push(FieldError::invalid("spec.conversion.strategy", &json!(strategy), why));
    }
    one_of("spec.conversion.strategy", strategy, &["None", "Webhook"], errors);
    let webhook = conversion.get("webhook").and_then(Value::as_object);
    let client = webhook.and_then(|w| w.get("clientConfig")).and_then(Value::as_object);
    let reviews = strings(webhook.and_then(|w| w.get("conversionReviewVersions")));
    if strategy != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        if client.is_some() {
            errors.push(FieldError::forbidden("spec.conversion.webhookClientConfig", why));
        }
        if !reviews.is_empty() {
            errors.push(FieldError::forbidden("spec.conversion.conversionReviewVersions", why));
        }
        return;
    }
    match client {
        None => {
            let why = "required when strategy is set to Webhook";
            errors.push(FieldError::required("spec.conversion.webhookClientConfig", why));
        }
        Some(client) => columns::webhook_client(client, "spec.conversion.webhookClientConfig", errors),
    }
    let path = "spec.conversion.conversionReviewVersions";
    if reviews.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let mut seen = HashSet::new();
    for (index, review) in reviews.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if !seen.insert(review) {
            errors.push(FieldError::invalid(path, &json!(review), "duplicate version"));
            continue;
        }
        for complaint in names::dns1035_label(review) {
            errors.push(FieldError::invalid(path.clone(), &json!(review), &complaint));
        }
    }
    if !reviews.iter().any(|v| matches!(&**v, "v1" | "v1beta1")) {
        errors.push(FieldError::invalid(path, &json!(reviews), "must include at least one of v1, v1beta1"));
    }
}

fn immutable(spec: &Map<String, Value>, old: &Value, errors: &mut FieldErrors) {
    let conditions = old.pointer("/status/conditions").and_then(Value::as_array);
    let established = conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True");
    let get = |pointer: &str| -> (Option<Value>, Option<Value>) {
        let mut steps = pointer.split('/');
        let first = steps.next().and_then(|step| spec.get(step));
        let new = steps.fold(first, |here, step| here.and_then(|h| h.get(step)));
        (new.cloned(), old.pointer(&format!("/spec/{pointer}")).cloned())
    };
    let fields: &[(&str, bool)] =
        &[("scope", established), ("names/kind", established), ("group", true), ("names/plural", true)];
    for (pointer, fixed) in fields {
        let (new, old) = get(pointer);
        if *fixed && new != old {
            let path = format!("spec.{}", pointer.replace('/', "."));
            errors.push(FieldError::invalid(path, &new.unwrap_or(json!("")), "field is immutable"));
        }
    }
}

fn stored_versions(status: Option<&Value>, spec: &Spec<'_>, errors: &mut FieldErrors) {
    let path = "status.storedVersions";
    let stored = strings(status.and_then(|s| s.get("storedVersions")));
    if stored.is_empty() {
        // An empty list is shown as the client wrote it, or as Go shows one that is not there.
        let shown = status.and_then(|s| s.get("storedVersions")).unwrap_or(&Value::Null);
        errors.push(FieldError::invalid(path, shown, "must have at least one stored version"));
        return;
    }
    let known: HashSet<&str> = stored.iter().map(|name| &**name).collect();
    for version in spec.versions.iter().filter(|v| v.flag("storage")) {
        if !known.contains(version.name) {
            let why = format!("must have the storage version {}", version.name);
            errors.push(FieldError::invalid(path, &json!(stored), &why));
        }
    }
    let versions: HashSet<&str> = spec.versions.iter().map(|version| version.name).collect();
    for (index, name) in stored.iter().enumerate() {
        if !versions.contains(&**name) {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until \
                 a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("{path}[{index}]"), &json!(name), &why));
        }
    }
}

#[derive(PartialEq)]
enum Approval {
    Invalid,
    Given,
    Missing,
}

/// Groups of the Kubernetes community are not for everybody.
fn approval(new: &Value, old: Option<&Value>, group: &str, errors: &mut FieldErrors) {
    let protected = ["k8s.io", "kubernetes.io"];
    if !protected.iter().any(|p| group == *p || group.ends_with(&format!(".{p}"))) {
        return;
    }
    let annotation = |crd: &Value| {
        let annotations = crd.pointer("/metadata/annotations");
        annotations.and_then(|a| a.get(APPROVED)).and_then(Value::as_str).unwrap_or("").to_owned()
    };
    let state = |text: &str| match text {
        "" => Approval::Missing,
        text if text.starts_with("unapproved") => Approval::Given,
        text if text.split_once("://").is_some_and(|(s, rest)| !s.is_empty() && !rest.is_empty()) => Approval::Given,
        _ => Approval::Invalid,
    };
    let now = annotation(new);
    if old.is_some_and(|old| state(&annotation(old)) == state(&now)) {
        return;
    }
    let path = format!("metadata.annotations[{APPROVED}]");
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    match state(&now) {
        Approval::Given => {}
        Approval::Missing => {
            let why = format!("protected groups must have approval annotation \"{APPROVED}\", {see}");
            errors.push(FieldError::required(path, &why));
        }
        Approval::Invalid => {
            let why = format!(
                "protected groups must have approval annotation \"{APPROVED}\" with either a URL or a reason starting with \"unapproved\", {see}"
            );
            errors.push(FieldError::invalid(path, &json!(now), &why));
        }
    }
}

/// What a client is warned of about a definition that is accepted all the same; on an update only what is new.
pub fn definition_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut before = Vec::new();
    if let Some(old) = old {
        schema::warnings(old, &mut before);
    }
    let before: HashSet<String> = before.into_iter().collect();
    let mut warnings = Vec::new();
    schema::warnings(new, &mut warnings);
    warnings.retain(|warning| !before.contains(warning));
    warnings
}
