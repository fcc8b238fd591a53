//! Expressions of a ValidatingAdmissionPolicy held against the schemas of the kinds that it is about. What does not fit is
//! only a warning: kinds may change after the policy.

use cel::Type;
use serde_json::Value;

use super::expressions::Known;

/// A kind that a policy is about: `apps/v1, Kind=Deployment`, and what its objects are.
pub struct Checked {
    pub name: String,
    pub object: Type,
}

/// What is wrong with an expression.
#[derive(Debug, PartialEq)]
pub struct Warning {
    /// `spec.validations[0].expression`.
    pub field: String,
    pub text: String,
}

/// All warnings about a policy. `params` is the type of its parameters, if its kind of parameters is known.
pub fn type_warnings(policy: &Value, kinds: &[Checked], params: &Type) -> Vec<Warning> {
    let spec = &policy["spec"];
    let environments: Vec<(&str, Known)> = kinds
        .iter()
        .map(|kind| {
            let mut known = Known::of_policy(spec["paramKind"].is_object()).typed(&kind.object, params);
            for variable in list(&spec["variables"]) {
                // One that is wrong may be anything to those that read it.
                let ty = known.compile(text(&variable["expression"])).unwrap_or(Type::Unknown);
                known.declare(text(&variable["name"]), ty);
            }
            (kind.name.as_str(), known)
        })
        .collect();
    let mut warnings = Vec::new();
    for (index, validation) in list(&spec["validations"]).iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let expression = text(&validation[field]);
            if expression.is_empty() {
                continue;
            }
            let found: Vec<String> = environments
                .iter()
                .filter_map(|(name, known)| known.compile(expression).err().map(|why| format!("{name}: {why}\n")))
                .collect();
            if !found.is_empty() {
                warnings.push(Warning { field: format!("spec.validations[{index}].{field}"), text: found.join("\n") });
            }
        }
    }
    warnings
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use schema::builtin;

    #[test]
    fn warnings_name_the_expression_and_the_kind() {
        let kind = |group: &str, kind: &str| Checked {
            name: format!("{group}/v1, Kind={kind}"),
            object: Type::declared(builtin(), builtin().of_kind(group, "v1", kind).expect("a kind"), kind),
        };
        let policy = json!({"spec": {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "variables": [{"name": "n", "expression": "object.spec.replicas"}],
            "validations": [
                {"expression": "variables.n > 1"},
                {"expression": "variables.n > '1'", "messageExpression": "'n: ' + string(variables.n)"},
                {"expression": "params.data['a'] == 1"}]}});
        let params = builtin().of_kind("", "v1", "ConfigMap").expect("a kind");
        let params = Type::declared(builtin(), params, "ConfigMap");
        let found = type_warnings(&policy, &[kind("apps", "Deployment"), kind("apps", "DaemonSet")], &params);
        let told: Vec<(&str, &str)> = found.iter().map(|w| (w.field.as_str(), w.text.as_str())).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!(told[0].0, "spec.validations[1].expression");
        assert!(told[0].1.starts_with("apps/v1, Kind=Deployment: ERROR: <input>:1:13: found no matching overload"));
        assert!(!told[0].1.contains("DaemonSet"), "a variable that does not compile may be anything");
        assert_eq!(told[1].0, "spec.validations[2].expression");
        assert!(told[1].1.contains("apps/v1, Kind=DaemonSet: ERROR"));
    }
}
