//! The object that upstream compares a created one with: not `{}`, but what its Go types write for an empty value.
//!
//! It decides what a creator comes to own. `spec` of a Deployment is there in an empty one already, so only what is in it
//! is owned; `spec` of a custom resource is not, so it is owned too.

use std::sync::{LazyLock, OnceLock};

use schema::{Presence, Schema, Shape, TypeId, builtin};
use serde_json::{Map, Value, json};

static EMPTY: LazyLock<Value> = LazyLock::new(|| json!({}));

/// One place for each type of the built-in kinds, filled when it is first asked for.
static ZERO: LazyLock<Box<[OnceLock<Value>]>> =
    LazyLock::new(|| (0..builtin().types.len()).map(|_| OnceLock::new()).collect());

/// What an empty object of this type looks like. Custom resources have nothing that is always there.
pub(super) fn zero(schema: &Schema, ty: TypeId) -> &'static Value {
    if !std::ptr::eq(schema, builtin()) {
        return &EMPTY;
    }
    ZERO.get(ty.0 as usize).map_or(&EMPTY, |cell| cell.get_or_init(|| compute(schema, ty)))
}

fn compute(schema: &Schema, ty: TypeId) -> Value {
    match schema.shape(ty) {
        Shape::Boolean => Value::from(false),
        Shape::Integer { .. } | Shape::Number | Shape::IntOrString => Value::from(0),
        Shape::String => Value::from(""),
        Shape::Quantity => Value::from("0"),
        Shape::Duration => Value::from("0s"),
        Shape::Struct(s) => {
            let always = s.fields.iter().filter_map(|field| match field.presence {
                Presence::Always => Some((field.name.to_string(), compute(schema, field.ty))),
                Presence::Nullable => Some((field.name.to_string(), Value::Null)),
                Presence::OmitEmpty | Presence::Pointer => None,
            });
            Value::Object(always.collect::<Map<_, _>>())
        }
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_always_there() {
        let zero = |name: &str| zero(builtin(), builtin().find(name).unwrap());
        let cases = [
            ("io.k8s.api.core.v1.ConfigMap", json!({"metadata": {}})),
            ("io.k8s.api.core.v1.Pod", json!({"metadata": {}, "spec": {"containers": null}, "status": {}})),
            (
                "io.k8s.api.apps.v1.Deployment",
                json!({"metadata": {}, "status": {}, "spec": {"selector": null, "strategy": {},
                    "template": {"metadata": {}, "spec": {"containers": null}}}}),
            ),
            ("io.k8s.api.core.v1.Service", json!({"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}})),
            (
                "io.k8s.api.rbac.v1.RoleBinding",
                json!({"metadata": {}, "roleRef": {"apiGroup": "", "kind": "", "name": ""}}),
            ),
        ];
        for (name, want) in cases {
            assert_eq!(*zero(name), want, "{name}");
        }
    }
}
