//! JSON merge patch, RFC 7386.

use serde_json::{Map, Value};

/// Merges `patch` into `doc`: objects key by key, null removes, everything else replaces.
pub fn merge(doc: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        doc.clone_from(patch);
        return;
    };
    if !doc.is_object() {
        *doc = Value::Object(Map::new());
    }
    let Value::Object(doc) = doc else { return };
    for (key, value) in patch {
        if value.is_null() {
            doc.remove(key);
        } else if let Some(old) = doc.get_mut(key) {
            merge(old, value);
        } else {
            let mut fresh = Value::Null;
            merge(&mut fresh, value);
            doc.insert(key.clone(), fresh);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::tests::any_json;

    /// The examples of RFC 7386, appendix A.
    #[test]
    fn examples_of_the_rfc() {
        let cases = [
            (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
            (json!({"a":"b"}), json!({"a":null}), json!({})),
            (json!({"a":"b","b":"c"}), json!({"a":null}), json!({"b":"c"})),
            (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"c"}), json!({"a":["b"]}), json!({"a":["b"]})),
            (json!({"a":{"b":"c"}}), json!({"a":{"b":"d","c":null}}), json!({"a":{"b":"d"}})),
            (json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a":"b"}), json!(["c"]), json!(["c"])),
            (json!({"a":"foo"}), json!(null), json!(null)),
            (json!({"a":"foo"}), json!("bar"), json!("bar")),
            (json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1})),
            (json!([1, 2]), json!({"a":"b","c":null}), json!({"a":"b"})),
            (json!({}), json!({"a":{"bb":{"ccc":null}}}), json!({"a":{"bb":{}}})),
        ];
        for (doc, patch, want) in cases {
            let mut got = doc.clone();
            merge(&mut got, &patch);
            assert_eq!(got, want, "{doc} + {patch}");
        }
    }

    fn null_free(value: &Value) -> bool {
        match value {
            Value::Object(map) => map.values().all(|v| !v.is_null() && null_free(v)),
            _ => true,
        }
    }

    proptest! {
        #[test]
        fn merging_twice_is_merging_once(doc in any_json(), patch in any_json()) {
            let mut once = doc;
            merge(&mut once, &patch);
            let mut twice = once.clone();
            merge(&mut twice, &patch);
            prop_assert_eq!(once, twice);
        }

        #[test]
        fn a_null_free_patch_stays_as_it_is(doc in any_json(), patch in any_json()) {
            prop_assume!(null_free(&patch));
            let mut got = json!({});
            merge(&mut got, &patch);
            prop_assert_eq!(&got, &patch);
            let mut onto = doc;
            merge(&mut onto, &json!({}));
            prop_assert!(onto.is_object());
        }

        #[test]
        fn what_the_patch_removes_is_gone_and_the_rest_is_untouched(doc in any_json(), key in "[a-c]") {
            prop_assume!(doc.is_object());
            let mut got = doc.clone();
            merge(&mut got, &json!({key.clone(): null}));
            let mut want = doc;
            want.as_object_mut().unwrap().remove(&key);
            prop_assert_eq!(got, want);
        }
    }
}
