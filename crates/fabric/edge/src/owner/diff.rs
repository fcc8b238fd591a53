//! The merge patch that leads from one value to another.

use serde_json::{Map, Value};

/// What [`patch::merge`] needs to make `new` of `old`. `None` if no merge patch can: it has no word for a null.
pub fn between(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let mut patch = Map::new();
            for (key, value) in new {
                match old.get(key) {
                    Some(before) if before == value => {}
                    Some(before) => _ = patch.insert(key.clone(), between(before, value)?),
                    None => _ = patch.insert(key.clone(), between(&Value::Null, value)?),
                }
            }
            for key in old.keys().filter(|key| !new.contains_key(*key)) {
                patch.insert(key.clone(), Value::Null);
            }
            Some(Value::Object(patch))
        }
        // In place of something else, an object is merged into nothing.
        (_, Value::Object(new)) => {
            let whole: Option<Map<_, _>> =
                new.iter().map(|(key, value)| Some((key.clone(), between(&Value::Null, value)?))).collect();
            whole.map(Value::Object)
        }
        (_, Value::Null) => None,
        // What is within a list is replaced with it, nulls and all.
        (_, other) => Some(other.clone()),
    }
}

/// A patch that changes nothing.
pub fn is_nothing(patch: &Value) -> bool {
    patch.as_object().is_some_and(Map::is_empty)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3i64).prop_map(Value::from),
            "[xyz]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|m| m.into_iter().collect()),
            ]
        })
    }

    fn has_null(value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Object(map) => map.values().any(has_null),
            _ => false,
        }
    }

    #[test]
    fn examples() {
        for (old, new, want) in [
            (json!({"a": 1}), json!({"a": 1}), json!({})),
            (json!({"a": 1, "b": 2}), json!({"a": 1}), json!({"b": null})),
            (json!({"a": {"x": 1, "y": 2}}), json!({"a": {"x": 1, "y": 3}}), json!({"a": {"y": 3}})),
            (json!({"a": [1, 2]}), json!({"a": [2]}), json!({"a": [2]})),
            (json!({"a": "x"}), json!({"a": {"b": {}}}), json!({"a": {"b": {}}})),
            (json!({"a": {"b": 1}}), json!({"a": {}}), json!({"a": {"b": null}})),
        ] {
            assert_eq!(between(&old, &new), Some(want), "{old} -> {new}");
        }
        assert_eq!(between(&json!({"a": 1}), &json!({"a": null})), None);
    }

    proptest! {
        #[test]
        fn a_patch_leads_there(old in any_json(), new in any_json()) {
            match between(&old, &new) {
                Some(patch) => {
                    let mut got = old.clone();
                    patch::merge(&mut got, &patch);
                    prop_assert_eq!(got, new);
                }
                None => prop_assert!(has_null(&new)),
            }
        }

        #[test]
        fn nothing_leads_to_the_same(value in any_json()) {
            if let Value::Object(_) = &value {
                prop_assert!(is_nothing(&between(&value, &value).unwrap()));
            }
        }
    }
}
