//! Which requests a webhook or a policy is about: rules, selectors, and the equivalent forms of one resource.

use std::sync::Arc;

use schema::selector::LabelSelector;
use schema::status::Result;
use serde_json::Value;

use super::question::Question;
use crate::kinds::Kind;

/// What rules look at.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub operation: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

#[derive(Debug, Default)]
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    /// Only policies have them; empty means all.
    names: Vec<String>,
    scope: String,
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

fn any(list: &[String], wanted: &str) -> bool {
    list.iter().any(|one| one == "*" || one == wanted)
}

impl Rule {
    pub fn read(rule: &Value) -> Self {
        Self {
            operations: strings(&rule["operations"]),
            groups: strings(&rule["apiGroups"]),
            versions: strings(&rule["apiVersions"]),
            resources: strings(&rule["resources"]),
            names: strings(&rule["resourceNames"]),
            scope: rule["scope"].as_str().unwrap_or("*").to_owned(),
        }
    }

    pub fn matches(&self, asked: &Asked<'_>) -> bool {
        self.in_scope(asked)
            && any(&self.operations, asked.operation)
            && any(&self.groups, asked.group)
            && any(&self.versions, asked.version)
            && self.resources.iter().any(|resource| covers(resource, asked))
            && (self.names.is_empty() || self.names.iter().any(|name| name == asked.name))
    }

    fn in_scope(&self, asked: &Asked<'_>) -> bool {
        // A namespace's requests carry its own name as namespace, but it lies in none.
        let in_namespace = !asked.namespace.is_empty() && asked.resource != "namespaces";
        match self.scope.as_str() {
            "Namespaced" => in_namespace,
            "Cluster" => !in_namespace,
            _ => true,
        }
    }
}

/// `pods`, `pods/status`, `pods/*` (the pod too), `*/scale`, `*` (no subresources), `*/*`.
fn covers(pattern: &str, asked: &Asked<'_>) -> bool {
    let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    (resource == "*" || resource == asked.resource) && (subresource == "*" || subresource == asked.subresource)
}

/// All that decides whether a request concerns a webhook, a policy or a binding.
#[derive(Debug)]
pub struct Constraints {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    /// Without rules everything is meant, as in bindings.
    open: bool,
    namespaces: LabelSelector,
    objects: LabelSelector,
    equivalent: bool,
}

impl Constraints {
    /// `rules` is the field that lists them.
    pub fn read(value: &Value, rules: &str) -> Self {
        let list =
            |field: &str| -> Vec<Rule> { value[field].as_array().into_iter().flatten().map(Rule::read).collect() };
        let selector = |field: &str| match &value[field] {
            Value::Null => LabelSelector::everything(),
            selector => LabelSelector::from_value(selector).unwrap_or_else(|_| LabelSelector::nothing()),
        };
        let (found, open) = (list(rules), rules == "resourceRules");
        Self {
            open: open && found.is_empty(),
            rules: found,
            excluded: list("excludeResourceRules"),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            equivalent: value["matchPolicy"] != "Exact",
        }
    }

    /// The kind in whose form the request matches; mostly the kind of the request itself.
    pub fn find(&self, question: &Question<'_>) -> Result<Option<Arc<Kind>>> {
        let own = &question.call.kind;
        if self.hit(&self.excluded, question).is_some() {
            return Ok(None);
        }
        let found = if self.open { Some(own.clone()) } else { self.hit(&self.rules, question) };
        if found.is_none() || !self.selects_object(question) || !self.selects_namespace(question)? {
            return Ok(None);
        }
        Ok(found)
    }

    fn hit(&self, rules: &[Rule], question: &Question<'_>) -> Option<Arc<Kind>> {
        if rules.is_empty() {
            return None;
        }
        let own = &question.call.kind;
        let matches = |kind: &Kind| {
            let asked = question.asked(kind);
            rules.iter().any(|rule| rule.matches(&asked))
        };
        if matches(own) {
            return Some(own.clone());
        }
        if !self.equivalent {
            return None;
        }
        question.equivalents().into_iter().find(|kind| matches(kind))
    }

    fn selects_object(&self, question: &Question<'_>) -> bool {
        let matches = |object: &Option<Value>| object.as_ref().is_some_and(|o| self.objects.matches_object(o));
        self.objects.is_empty() || matches(&question.object) || matches(&question.old)
    }

    fn selects_namespace(&self, question: &Question<'_>) -> Result<bool> {
        if self.namespaces.is_empty() {
            return Ok(true);
        }
        Ok(match question.namespace_labels()? {
            Some(labels) => self.namespaces.matches_labels(&labels),
            None => true,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked<'a>(path: &'a str, operation: &'a str, namespace: &'a str) -> Asked<'a> {
        let parts: Vec<&str> = path.split('/').collect();
        let [group, version, resource, rest @ ..] = parts.as_slice() else { panic!("{path}") };
        let subresource = rest.first().copied().unwrap_or_default();
        Asked { operation, group, version, resource, subresource, namespace, name: "x" }
    }

    #[test]
    fn resources_and_subresources() {
        for (patterns, path, wanted) in [
            (json!(["pods"]), "/v1/pods", true),
            (json!(["pods"]), "/v1/pods/status", false),
            (json!(["pods/status"]), "/v1/pods/status", true),
            (json!(["pods/status"]), "/v1/pods", false),
            (json!(["pods/*"]), "/v1/pods", true),
            (json!(["pods/*"]), "/v1/pods/eviction", true),
            (json!(["pods/*"]), "/v1/services", false),
            (json!(["*"]), "/v1/services", true),
            (json!(["*"]), "/v1/services/status", false),
            (json!(["*/*"]), "/v1/services/status", true),
            (json!(["*/*"]), "/v1/services", true),
            (json!(["*/scale"]), "/v1/replicationcontrollers/scale", true),
            (json!(["*/scale"]), "/v1/replicationcontrollers", false),
            (json!(["configmaps", "secrets"]), "/v1/secrets", true),
        ] {
            let rule = Rule::read(&json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": patterns, "scope": "*"}));
            assert_eq!(rule.matches(&asked(path, "CREATE", "a")), wanted, "{patterns} {path}");
        }
    }

    #[test]
    fn operations_groups_versions_scopes_and_names() {
        let base = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
        for (change, path, operation, namespace, wanted) in [
            (json!({}), "apps/v1/deployments", "DELETE", "a", true),
            (json!({"operations": ["CREATE", "UPDATE"]}), "/v1/pods", "UPDATE", "a", true),
            (json!({"operations": ["CREATE", "UPDATE"]}), "/v1/pods", "DELETE", "a", false),
            (json!({"apiGroups": ["apps"]}), "apps/v1/deployments", "CREATE", "a", true),
            (json!({"apiGroups": ["apps"]}), "/v1/pods", "CREATE", "a", false),
            (json!({"apiGroups": [""]}), "apps/v1/deployments", "CREATE", "a", false),
            (json!({"apiVersions": ["v1beta1"]}), "apps/v1/deployments", "CREATE", "a", false),
            (json!({"scope": "Namespaced"}), "/v1/pods", "CREATE", "a", true),
            (json!({"scope": "Namespaced"}), "/v1/nodes", "CREATE", "", false),
            (json!({"scope": "Cluster"}), "/v1/nodes", "CREATE", "", true),
            (json!({"scope": "Cluster"}), "/v1/pods", "CREATE", "a", false),
            (json!({"scope": "Cluster"}), "/v1/namespaces", "CREATE", "a", true),
            (json!({"scope": "Namespaced"}), "/v1/namespaces", "CREATE", "a", false),
            (json!({"resourceNames": ["x"]}), "/v1/pods", "CREATE", "a", true),
            (json!({"resourceNames": ["y"]}), "/v1/pods", "CREATE", "a", false),
        ] {
            let mut rule = base.clone();
            for (key, value) in change.as_object().unwrap() {
                rule[key] = value.clone();
            }
            assert_eq!(Rule::read(&rule).matches(&asked(path, operation, namespace)), wanted, "{rule} {path}");
        }
    }
}
