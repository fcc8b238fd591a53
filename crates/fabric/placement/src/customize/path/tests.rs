use super::*;
use proptest::prelude::*;
use serde_json::json;

fn budget() -> Budget {
    Budget { visits: 100_000, room: 1 << 20 }
}

/// Every place of a value, as a pointer and as a path.
fn places(value: &Value, pointer: &str, path: &str, into: &mut Vec<(String, String)>) {
    for (step, child) in children(value) {
        let (pointer, path) = match step {
            Step::Item(at) => (format!("{pointer}/{at}"), format!("{path}[{at}]")),
            Step::Member(name) => (
                format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1")),
                format!("{path}[{}]", Value::from(name)),
            ),
        };
        places(child, &pointer, &path, into);
        into.push((pointer, path));
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(null)), any::<i8>().prop_map(Value::from)];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let members = proptest::collection::btree_map("[ab]|\\PC{0,3}", inner.clone(), 0..4);
        prop_oneof![
            proptest::collection::vec(inner, 0..5).prop_map(Value::from),
            members.prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn every_place_can_be_named(value in any_value()) {
        let mut all = Vec::new();
        places(&value, "", "$", &mut all);
        for (pointer, path) in &all {
            let parsed: Path = path.parse().unwrap();
            prop_assert!(parsed.is_definite());
            let (mut done, mut model) = (value.clone(), value.clone());
            parsed.put(&mut done, &json!("new"), &mut budget(), 100).unwrap();
            *model.pointer_mut(pointer).unwrap() = json!("new");
            prop_assert_eq!(done, model);
        }
        let everything: Path = "$..*".parse().unwrap();
        prop_assert_eq!(everything.find(&value, &mut budget()).unwrap().len(), all.len());
    }

    /// `..` finds what looking everywhere finds, and what is put in is not looked into.
    #[test]
    fn deep_names(value in any_value()) {
        fn model(value: &mut Value) {
            match value {
                Value::Array(items) => items.iter_mut().for_each(model),
                Value::Object(members) => members.iter_mut().for_each(|(name, member)| {
                    if name == "a" { *member = json!({"a": 1}) } else { model(member) }
                }),
                _ => {}
            }
        }
        let (mut done, mut slow) = (value.clone(), value);
        "$..a".parse::<Path>().unwrap().put(&mut done, &json!({"a": 1}), &mut budget(), 100).unwrap();
        model(&mut slow);
        prop_assert_eq!(done, slow);
    }

    /// Slices against counting.
    #[test]
    fn slices(
        len in 0_usize..8,
        start in proptest::option::of(-9_i64..9),
        end in proptest::option::of(-9_i64..9),
        step in -4_i64..5,
    ) {
        let n = len as i64;
        let counted = |at: i64| if at < 0 { at + n } else { at };
        let mut model = Vec::new();
        if step > 0 {
            let mut at = counted(start.unwrap_or(0)).max(0);
            while at < counted(end.unwrap_or(n)).min(n) {
                model.push(at as usize);
                at += step;
            }
        } else if step < 0 {
            let mut at = counted(start.unwrap_or(n - 1)).min(n - 1);
            while at > end.map_or(-1, counted).max(-1) {
                model.push(at as usize);
                at += step;
            }
            model.reverse();
        }
        let found: Vec<usize> = (0..len).filter(|item| in_slice(*item, len, start, end, step)).collect();
        prop_assert_eq!(found, model);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,20}|\\$[\\[\\]\\.\\*'\",:0-9a\\-\\\\ ]{0,20}") {
        if let Ok(path) = text.parse::<Path>() {
            let mut value = json!({"a": [1, {"a": 2}], "b": null});
            let _ = path.put(&mut value, &json!(1), &mut budget(), 100);
        }
    }
}

#[test]
fn limits_of_numbers() {
    let long: Vec<usize> = (0..3).filter(|at| in_slice(*at, 3, Some(i64::MIN), Some(i64::MAX), i64::MAX)).collect();
    assert_eq!(long, [0]);
    let back: Vec<usize> = (0..3).filter(|at| in_slice(*at, 3, Some(i64::MAX), Some(i64::MIN), i64::MIN)).collect();
    assert_eq!(back, [2]);
    assert_eq!(absolute(i64::MIN, 3), None);
    assert_eq!(absolute(i64::MAX, 3), None);
}
