//! The object that upstream compares a created one with: not `{}`, but what its Go types write for an empty value.
//!
//! It decides what a creator comes to own. `spec` of a Deployment is there in an empty one already, so only what is in it
//! is owned; `spec` of a custom resource is not, so it is owned too. The list holds, by type, the fields below the
//! root that are always written.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::schema::{Schema, TypeId};

static ZERO: LazyLock<HashMap<String, Value>> =
    LazyLock::new(|| serde_json::from_str(include_str!("zero.json")).unwrap_or_default());

static EMPTY: LazyLock<Value> = LazyLock::new(|| json!({}));

/// What an empty object of this type looks like, without its apiVersion, kind and metadata.
pub(super) fn zero(schema: &Schema, ty: TypeId) -> &'static Value {
    ZERO.get(&*schema.get(ty).name).unwrap_or(&EMPTY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read() {
        assert!(ZERO.len() > 40);
        assert!(ZERO.values().all(Value::is_object));
        assert_eq!(ZERO["io.k8s.api.core.v1.Pod"], json!({"spec": {"containers": null}, "status": {}}));
    }
}
