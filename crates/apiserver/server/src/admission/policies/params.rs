//! The parameters with which a binding uses its policy.

use schema::selector::LabelSelector;
use serde_json::Value;

use super::{Binding, Policy};
use crate::admission::question::Question;

/// Every set of parameters to evaluate with; one of them may be none at all.
pub fn find(policy: &Policy, binding: &Binding, question: &Question<'_>) -> Result<Vec<Option<Value>>, String> {
    let Some((api_version, kind)) = &policy.param_kind else { return Ok(vec![None]) };
    let wanted = &binding.param_ref;
    if !wanted.is_object() {
        return Ok(vec![None]);
    }
    let call = question.call;
    let Some(kind) = call.server.kinds.find_kind(&call.cluster, api_version, kind) else {
        return Err(format!("paramKind kind `{api_version}, Kind={kind}` not known"));
    };
    let text = |field: &str| wanted[field].as_str().unwrap_or_default();
    let namespace = match (kind.resource.namespaced, text("namespace"), question.namespace()) {
        (false, "", _) => "",
        (false, ..) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
        (true, "", "") => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned()
            );
        }
        (true, "", own) => own,
        (true, given, _) => given,
    };
    let shown = |object: &cache::object::Object| {
        let mut value = object.value();
        crate::render::convert_value(&kind, &mut value, false)?;
        Ok::<_, String>(Some(value))
    };
    let found: Vec<Option<Value>> = match text("name") {
        "" => {
            let selector = LabelSelector::from_value(&wanted["selector"]).map_err(|status| status.message)?;
            let snapshot = call.server.cache.snapshot(&kind.collection);
            let prefix = format!("{}/{namespace}/", call.cluster);
            let chosen =
                snapshot.items.range(&prefix, "").filter(|o| schema::selector::scan::labels_match(&o.json, &selector));
            chosen.map(|o| shown(o)).collect::<Result<_, _>>()?
        }
        name => {
            let found = call.server.cache.get(&kind.collection, &kind.key(&call.cluster, namespace, name));
            found.map(|o| shown(&o)).into_iter().collect::<Result<_, _>>()?
        }
    };
    if found.is_empty() && wanted["parameterNotFoundAction"] == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}
