//! `kubectl apply` before and after: objects that were applied by the client go over to server-side apply without
//! conflicts about what the client had set itself, and its annotation is kept up to date.

use serde_json::Value;

use super::Context;
use super::fieldset::FieldSet;
use super::merge::Conflict;
use super::typed::Comparison;

/// The manager name of `kubectl apply --server-side`.
pub(super) const KUBECTL: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// All annotations together may not be larger.
const MAX_ANNOTATIONS: usize = 256 * 1024;

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// The conflicts about fields that do not have the value which the client applied last.
pub(super) fn remaining<'a>(ctx: &Context<'_>, live: &Value, conflicts: Vec<Conflict<'a>>) -> Vec<Conflict<'a>> {
    let Some(last) = annotation(live).and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
        return conflicts;
    };
    if last.get("apiVersion").and_then(Value::as_str) != Some(ctx.api_version) || ctx.ty().validate(&last).is_err() {
        return conflicts;
    }
    let mut unchanged: FieldSet<'_> = ctx.ty().fields(&last);
    let Comparison { removed, modified, added } = ctx.ty().compare(&last, live);
    for changed in [modified, added, removed] {
        unchanged.subtract(&changed);
    }
    conflicts.into_iter().filter(|conflict| !unchanged.has(&conflict.path)).collect()
}

/// Writes the configuration into the annotation, if the object has it.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(Value::Object(annotations)) = config.pointer_mut("/metadata/annotations") {
        annotations.remove(ANNOTATION);
    }
    let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") else { return };
    annotations.insert(ANNOTATION.to_owned(), Value::from(format!("{config}\n")));
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
}
