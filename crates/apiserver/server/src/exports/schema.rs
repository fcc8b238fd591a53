//! An APIResourceSchema is a CustomResourceDefinition that nobody serves until it is bound. Pure.

use schema::field::{FieldError, FieldErrors};
use serde_json::{Value, json};

use crate::kinds::system;

/// The definition that a schema stands for, complete and prepared.
pub fn definition(schema: &Value) -> Value {
    let spec = &schema["spec"];
    let mut versions = spec["versions"].as_array().cloned().unwrap_or_default();
    for version in &mut versions {
        version["schema"] = json!({"openAPIV3Schema": version["schema"].take()});
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"]));
    let mut crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "annotations": schema["metadata"]["annotations"]},
        "spec": {"group": spec["group"], "names": spec["names"], "scope": spec["scope"], "versions": versions}});
    rules::defaults::apply("apiextensions.k8s.io", "v1", "CustomResourceDefinition", &mut crd);
    rules::crd::prepare(&mut crd, None);
    crd
}

/// What is wrong with a schema; `old` is there on an update.
pub fn validate(new: &Value, old: Option<&Value>) -> FieldErrors {
    if let Some(old) = old {
        let same = new["spec"] == old["spec"];
        let why = "an APIResourceSchema never changes: make a new one and point the APIExport to it";
        return if same { Vec::new() } else { vec![FieldError::forbidden("spec", why)] };
    }
    let crd = definition(new);
    let mut errors = FieldErrors::new();
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let wanted = crd["metadata"]["name"].as_str().unwrap_or_default();
    let prefix = name.strip_suffix(wanted).and_then(|rest| rest.strip_suffix('.')).unwrap_or_default();
    if prefix.is_empty() || prefix.contains('.') {
        let why = format!("must be <prefix>.{wanted}, with a prefix without dots, such as v1");
        errors.push(FieldError::invalid("metadata.name", &name.into(), &why));
    }
    let group = new["spec"]["group"].as_str().unwrap_or_default();
    if is_ours(group) {
        errors.push(FieldError::forbidden("spec.group", &format!("the group {group} belongs to the server")));
    }
    errors.extend(rules::crd::validate_definition(&crd, None));
    errors
}

/// Groups that come with the server can be claimed, but not exported.
pub fn is_ours(group: &str) -> bool {
    group.is_empty() || schema::catalogue::groups().iter().any(|g| *g.name == *group) || system::is_ours(group)
}

/// Whether a binding of this export can bring kinds of a group. Groups of the server itself come from its own exports,
/// each from the one of its name, and from nowhere else.
pub fn may_come_from(provider: &str, export: &str, group: &str) -> bool {
    !is_ours(group) || provider == system::PROVIDER && export == group && system::is_exported(group)
}

/// `v1.widgets.example.io` → `widgets`, `example.io`
pub fn resource_of(name: &str) -> Option<(&str, &str)> {
    name.split_once('.')?.1.split_once('.')
}

/// What is wrong with an APIExport beyond what its own schema says.
pub fn validate_export(export: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = &export["spec"];
    let mut seen = Vec::new();
    for (i, name) in spec["latestResourceSchemas"].as_array().into_iter().flatten().enumerate() {
        let path = format!("spec.latestResourceSchemas[{i}]");
        match resource_of(name.as_str().unwrap_or_default()) {
            None => errors.push(FieldError::invalid(path, name, "must be <prefix>.<plural>.<group>")),
            Some(resource) if seen.contains(&resource) => {
                errors.push(FieldError::invalid(path, name, "another schema of the same resource is exported already"));
            }
            Some(resource) => seen.push(resource),
        }
    }
    for (i, claim) in spec["permissionClaims"].as_array().into_iter().flatten().enumerate() {
        let group = claim["group"].as_str().unwrap_or_default();
        if !is_ours(group) && claim["identityHash"].as_str().unwrap_or_default().is_empty() {
            let why = "must be that of the APIExport from which the claimed resource comes";
            errors.push(FieldError::required(format!("spec.permissionClaims[{i}].identityHash"), why));
        }
    }
    errors
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn widgets(prefix: &str, fields: Value) -> Value {
        json!({"metadata": {"name": format!("{prefix}.widgets.example.io"), "uid": format!("uid-{prefix}")}, "spec": {
            "group": "example.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}}]}})
    }

    #[test]
    fn schemas_are_judged_as_definitions_are() {
        let good = widgets("v1", json!({"size": {"type": "integer"}}));
        assert_eq!(validate(&good, None), Vec::new());
        assert!(rules::crd::Definition::compile(&definition(&good)).is_ok());
        let with = |pointer: &str, value: Value| {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).unwrap() = value;
            bad
        };
        for (bad, path) in [
            (with("/metadata/name", json!("widgets.example.io")), "metadata.name"),
            (with("/metadata/name", json!("a.b.widgets.example.io")), "metadata.name"),
            (with("/spec/group", json!("rbac.authorization.k8s.io")), "spec.group"),
            (with("/spec/group", json!("apis.kcp.io")), "spec.group"),
            (with("/spec/scope", json!("Galaxy")), "spec.scope"),
            (with("/spec/versions/0/storage", json!(false)), "spec.versions"),
            (with("/spec/versions/0/schema/type", json!("strange")), "spec.validation"),
        ] {
            let errors = validate(&bad, None);
            assert!(errors.iter().any(|e| e.path.starts_with(path)), "{path}: {errors:?}");
        }
        assert_eq!(validate(&good, Some(&good)), Vec::new());
        assert_eq!(validate(&widgets("v1", json!({})), Some(&good)).len(), 1);
    }

    #[test]
    fn exports_name_a_resource_once_and_whose_they_claim() {
        let export = json!({"spec": {"latestResourceSchemas": ["a.widgets.example.io", "b.widgets.example.io", "x"],
            "permissionClaims": [{"resource": "configmaps"}, {"group": "example.io", "resource": "widgets"},
                {"group": "example.io", "resource": "widgets", "identityHash": "abc"}]}});
        let paths: Vec<String> = validate_export(&export).iter().map(|e| e.path.to_string()).collect();
        assert_eq!(
            paths,
            ["spec.latestResourceSchemas[1]", "spec.latestResourceSchemas[2]", "spec.permissionClaims[1].identityHash"]
        );
    }
}
