//! Admission policies: rules and changes in CEL that the server itself holds requests against, or makes to them.

mod evaluate;
mod judge;
mod mutate;
mod params;
mod variables;

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::Expression;
use serde_json::Value;

use super::{expressions::Conditions, matching::Constraints};

pub use judge::judge;
pub use mutate::mutate;

/// An expression as it was written, and what it was compiled to.
pub struct Source {
    text: String,
    expression: Result<Expression, String>,
}

impl Source {
    fn read(value: &Value) -> Self {
        let text = value.as_str().unwrap_or_default().to_owned();
        Self { expression: Expression::parse(&text), text }
    }

    /// One that may be left out.
    fn maybe(value: &Value) -> Option<Self> {
        value.as_str().filter(|text| !text.trim().is_empty()).map(|_| Self::read(value))
    }
}

pub struct Policy {
    name: String,
    constraints: Constraints,
    conditions: Conditions,
    variables: Vec<(String, Source)>,
    validations: Vec<Validation>,
    annotations: Vec<(String, Source)>,
    mutations: Vec<Mutation>,
    /// `reinvocationPolicy: IfNeeded`.
    again: bool,
    /// `apiVersion` and `kind` of parameters.
    param_kind: Option<(String, String)>,
    /// `failurePolicy: Ignore`.
    fails_open: bool,
}

struct Validation {
    expression: Source,
    message: String,
    message_expression: Option<Source>,
    reason: String,
}

pub struct Binding {
    name: String,
    policy: String,
    constraints: Constraints,
    param_ref: Value,
    actions: Vec<String>,
}

/// The policies of a workspace, and what binds them, by name.
#[derive(Clone, Default)]
pub struct Policies {
    policies: BTreeMap<Box<str>, Arc<Policy>>,
    bindings: BTreeMap<Box<str>, Arc<Binding>>,
}

impl Policies {
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty() && self.bindings.is_empty()
    }

    pub fn set_policy(&mut self, name: &str, value: Option<&Value>) {
        match value {
            Some(value) => self.policies.insert(name.into(), Arc::new(Policy::read(name, value))),
            None => self.policies.remove(name),
        };
    }

    pub fn set_binding(&mut self, name: &str, value: Option<&Value>) {
        match value {
            Some(value) => self.bindings.insert(name.into(), Arc::new(Binding::read(name, value))),
            None => self.bindings.remove(name),
        };
    }

    /// What binds a policy, in order.
    fn bindings_of(&self, policy: &Policy) -> impl Iterator<Item = &Arc<Binding>> {
        self.bindings.values().filter(move |binding| binding.policy == policy.name)
    }
}

impl Policy {
    fn read(name: &str, value: &Value) -> Self {
        let spec = &value["spec"];
        let items = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let named = |field: &str, key: &str, expression: &str| {
            items(field).iter().map(|item| (text(&item[key]), Source::read(&item[expression]))).collect()
        };
        Self {
            name: name.to_owned(),
            constraints: Constraints::read(&spec["matchConstraints"], "resourceRules"),
            conditions: Conditions::read(&spec["matchConditions"]),
            variables: named("variables", "name", "expression"),
            validations: items("validations").iter().map(Validation::read).collect(),
            annotations: named("auditAnnotations", "key", "valueExpression"),
            mutations: items("mutations").iter().map(Mutation::read).collect(),
            again: spec["reinvocationPolicy"] == "IfNeeded",
            param_kind: spec["paramKind"]
                .is_object()
                .then(|| (text(&spec["paramKind"]["apiVersion"]), text(&spec["paramKind"]["kind"]))),
            fails_open: spec["failurePolicy"] == "Ignore",
        }
    }
}

/// One change that a policy makes.
enum Mutation {
    Apply(Source),
    Patch(Source),
}

impl Mutation {
    fn read(value: &Value) -> Self {
        match value["patchType"].as_str() {
            Some("JSONPatch") => Self::Patch(Source::read(&value["jsonPatch"]["expression"])),
            _ => Self::Apply(Source::read(&value["applyConfiguration"]["expression"])),
        }
    }
}

impl Validation {
    fn read(value: &Value) -> Self {
        let text = |field: &str| value[field].as_str().unwrap_or_default().trim().to_owned();
        Self {
            expression: Source::read(&value["expression"]),
            message: text("message"),
            message_expression: Source::maybe(&value["messageExpression"]),
            reason: text("reason"),
        }
    }
}

impl Binding {
    fn read(name: &str, value: &Value) -> Self {
        let spec = &value["spec"];
        let actions = spec["validationActions"].as_array().into_iter().flatten();
        Self {
            name: name.to_owned(),
            policy: spec["policyName"].as_str().unwrap_or_default().to_owned(),
            constraints: Constraints::read(&spec["matchResources"], "resourceRules"),
            param_ref: spec["paramRef"].clone(),
            actions: actions.filter_map(|action| action.as_str().map(str::to_owned)).collect(),
        }
    }

    fn has(&self, action: &str) -> bool {
        self.actions.iter().any(|known| known == action)
    }
}
