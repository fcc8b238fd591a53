//! What holds for any sets, objects and configurations.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::{NOW, schema};
use super::*;

fn element() -> impl Strategy<Value = PathElement<'static>> {
    prop_oneof![
        4 => "[a-c]".prop_map(|s| PathElement::Field(s.into())),
        1 => "[a-c\"\\\\é]{0,2}".prop_map(|s| PathElement::Value(Literal::Text(s.into()))),
        1 => (0..3i64).prop_map(|i| PathElement::Value(Literal::Other(std::borrow::Cow::Owned(i.into())))),
        1 => (0..3i64).prop_map(PathElement::Index),
        1 => ("[a-c]", "[xy\"]").prop_map(|(k, v)| PathElement::Key(vec![(k.into(), Literal::Text(v.into()))])),
    ]
}

fn set() -> impl Strategy<Value = FieldSet<'static>> {
    prop::collection::vec(prop::collection::vec(element(), 1..4), 0..8).prop_map(|paths| {
        let mut set = FieldSet::new();
        for path in paths {
            set.insert(&path);
        }
        set
    })
}

fn minus<'a>(a: &FieldSet<'a>, b: &FieldSet<'_>) -> FieldSet<'a> {
    let mut a = a.clone();
    a.subtract(b);
    a
}

proptest! {
    #[test]
    fn sets_obey_the_algebra(a in set(), b in set(), c in set()) {
        let or = |x: &FieldSet<'static>, y: &FieldSet<'static>| x.clone().union(y.clone());
        prop_assert_eq!(or(&a, &b), or(&b, &a));
        prop_assert_eq!(or(&or(&a, &b), &c), or(&a, &or(&b, &c)));
        prop_assert_eq!(or(&a, &a), a.clone());
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.intersection(&or(&b, &c)), or(&a.intersection(&b), &a.intersection(&c)));
        prop_assert_eq!(or(&minus(&a, &b), &a.intersection(&b)), a.clone());
        prop_assert!(minus(&a, &b).intersection(&b).is_empty());
        prop_assert!(minus(&a, &a).is_empty());
        let mut deep = a.clone();
        let changed = deep.subtract_deep(&b);
        prop_assert_eq!(changed, deep != a);
        prop_assert_eq!(minus(&deep, &minus(&a, &b)), FieldSet::new(), "deep removes at least as much");
    }

    #[test]
    fn membership_follows_the_operations(a in set(), b in set(), path in prop::collection::vec(element(), 1..4)) {
        let (in_a, in_b) = (a.has(&path), b.has(&path));
        prop_assert_eq!(a.clone().union(b.clone()).has(&path), in_a || in_b);
        prop_assert_eq!(a.intersection(&b).has(&path), in_a && in_b);
        prop_assert_eq!(minus(&a, &b).has(&path), in_a && !in_b);
        prop_assert_eq!(in_a, a.paths().contains(&path));
    }

    #[test]
    fn fields_v1_round_trips(a in set()) {
        let value = a.to_value();
        prop_assert_eq!(FieldSet::from_value(&value).unwrap(), a);
    }

    #[test]
    fn any_fields_v1_is_survived(value in crate::tests::any_json(), text in ".{0,8}") {
        let _ = FieldSet::from_value(&value);
        let _ = PathElement::parse(&text);
        let _ = FieldSet::from_value(&json!({format!("k:{text}"): value}));
    }
}

fn content() -> impl Strategy<Value = Value> {
    let map = || prop::collection::btree_map("[a-c]", "[xy]", 0..3);
    let env = || prop::collection::btree_map("[EF]", "[xy]", 0..3);
    let container = (prop::sample::select(vec!["c1", "c2", "c3"]), "[ij]", env(), prop::collection::vec("[pq]", 0..3));
    let containers = prop::collection::vec(container, 0..4).prop_map(|list| {
        let mut seen = Vec::new();
        list.into_iter()
            .filter(|(name, ..)| {
                !seen.contains(name) && {
                    seen.push(*name);
                    true
                }
            })
            .map(|(name, image, env, args)| {
                let env: Vec<_> = env.into_iter().map(|(n, v)| json!({"name": n, "value": v})).collect();
                json!({"name": name, "image": image, "env": env, "args": args})
            })
            .collect::<Vec<_>>()
    });
    let finalizers = prop::collection::btree_set("[xyz]", 0..3);
    (map(), map(), map(), containers, finalizers, prop::option::of(0..3)).prop_map(
        |(data, labels, selector, containers, finalizers, replicas)| {
            let mut object = json!({
                "apiVersion": "v1", "kind": "Thing", "metadata": {"name": "t", "labels": labels, "finalizers": finalizers},
                "data": data, "spec": {"selector": selector, "containers": containers},
            });
            if let Some(replicas) = replicas {
                object["spec"]["replicas"] = json!(replicas);
            }
            object
        },
    )
}

fn without_managed(object: &Value) -> Value {
    let mut object = object.clone();
    take_managed_fields(&mut object);
    object
}

proptest! {
    #[test]
    fn applying_holds_its_promises(first in content(), second in content(), other in content(), updated in content()) {
        let (schema, ty) = schema();
        let ctx = |manager: &'static str| Context {
            schema: &schema, ty, api_version: "v1", kind: "Thing", manager, subresource: "", now: NOW,
            reset: reset_fields("", "things", "", true), versions: None,
        };
        let root = ctx("x").ty();
        let mut live = updated;
        track_update(&ctx("poster"), None, &mut live);
        let one = apply(&ctx("one"), Some(&live), &first, true).unwrap();
        let two = apply(&ctx("two"), Some(&one), &other, true).unwrap();

        // Twice is once.
        prop_assert_eq!(&apply(&ctx("two"), Some(&two), &other, false).unwrap(), &two);

        // What was applied is there, with its value.
        let config = root.fields(&other);
        let merged = without_managed(&two);
        let comparison = root.compare(&other, &merged);
        prop_assert!(config.intersection(&comparison.modified).is_empty());
        prop_assert!(comparison.removed.intersection(&config).is_empty());

        // What a manager no longer lists goes, if nobody else owns it.
        let after = apply(&ctx("one"), Some(&two), &second, true).unwrap();
        let owners = after["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let owned = Managed::decode(&owners).unwrap().entries.into_iter().fold(FieldSet::new(), |all, e| all.union(e.set));
        let had = two["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let had = Managed::decode(&had).unwrap().entries.into_iter().find(|e| e.manager == "one").map(|e| e.set).unwrap_or_default();
        let body = without_managed(&after);
        let left = minus(&had.intersection(&root.fields(&body)), &owned);
        for path in left.paths() {
            // A list element or map item stays for what others own in it.
            let below = path.iter().try_fold(&owned, |set, element| set.below(element)).is_some();
            prop_assert!(below, "{} is left", show(&path));
        }

        // Nobody owns what is not there, but perhaps a map that was emptied, or what never is owned.
        let maps = FieldSet::of_fields(&[&["data"], &["metadata", "labels"]]);
        let all = root.fields(&body).with_named_fields(Some(root));
        for entry in &owners {
            let set = FieldSet::from_value(&entry["fieldsV1"]).unwrap();
            prop_assert!(!set.has(&[PathElement::field("metadata"), PathElement::field("name")]));
            if entry["operation"] == "Apply" {
                prop_assert!(minus(&minus(&set, &all), &maps).is_empty(), "{entry} in {body}");
            }
        }
    }

    #[test]
    fn merging_and_comparing_agree(a in content(), b in content()) {
        let (schema, ty) = schema();
        let root = Ty::new(&schema, ty);
        let merged = root.merge(&a, &b);
        let comparison = root.compare(&b, &merged);
        prop_assert!(comparison.removed.is_empty() , "{:?}", comparison.removed);
        prop_assert!(comparison.modified.is_empty(), "{:?}", comparison.modified);
        let nothing = root.compare(&a, &a);
        prop_assert!(nothing.removed.is_empty() && nothing.modified.is_empty() && nothing.added.is_empty());
        let forth = root.compare(&a, &b);
        let back = root.compare(&b, &a);
        prop_assert_eq!(forth.added, back.removed);
        prop_assert_eq!(forth.modified, back.modified);
    }
}
