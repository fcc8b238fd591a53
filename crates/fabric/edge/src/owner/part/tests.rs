use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const DEPLOYMENTS: &str = "apps/deployments";

fn held() -> Held {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Held {
        hash: 7,
        source: "root:shop".into(),
        labels: set(&["app"]),
        annotations: set(&["team", "deployment.kubernetes.io/revision"]),
        finalizers: set(&["center.example.org/keep"]),
        ..Held::default()
    }
}

fn web() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "uid": "u",
        "resourceVersion": "12", "generation": 2, "labels": {"app": "web", "edge.kcp.io/projected": "yes", "rack": "4"},
        "annotations": {"edge.selvedge.dev/source": "root:shop", "team": "a", "deployment.kubernetes.io/revision": "1"},
        "finalizers": ["center.example.org/keep", "local.example.org/wait"]},
        "spec": {"replicas": 1}, "status": {"readyReplicas": 1}})
}

fn with(pointer: &[&str], value: Value) -> Value {
    let mut patch = value;
    for name in pointer.iter().rev() {
        patch = json!({*name: patch});
    }
    let mut web = web();
    patch::merge(&mut web, &patch);
    web
}

#[test]
fn whose_a_change_is() {
    let held = held();
    for (centers, subresource, new, why) in [
        (true, "", with(&["spec", "replicas"], json!(2)), "the spec"),
        (true, "scale", with(&["spec", "replicas"], json!(2)), "the spec, through scale"),
        (true, "", with(&["metadata", "labels", "app"], json!("other")), "a label that it sent"),
        (true, "", with(&["metadata", "labels", "app"], Value::Null), "taking away a label that it sent"),
        (true, "", with(&["metadata", "labels", "edge.kcp.io/projected"], Value::Null), "that it is the center's"),
        (true, "", with(&["metadata", "annotations", "team"], json!("b")), "an annotation that it sent"),
        (true, "", with(&["metadata", "finalizers"], json!(["local.example.org/wait"])), "a finalizer that it sent"),
        (true, "", with(&["data"], json!({"a": "b"})), "a field that is new"),
        (false, "", web(), "nothing"),
        (false, "status", with(&["status", "readyReplicas"], json!(2)), "the status"),
        (false, "", with(&["status", "readyReplicas"], json!(2)), "the status, of kinds without the subresource"),
        (false, "", with(&["metadata", "labels", "rack"], json!("5")), "a label of its own"),
        (false, "", with(&["metadata", "labels", "new"], json!("5")), "a new label"),
        (false, "", with(&["metadata", "annotations", "new"], json!("5")), "a new annotation"),
        (false, "", with(&["metadata", "annotations", "deployment.kubernetes.io/revision"], json!("2")), "a note"),
        (false, "", with(&["metadata", "finalizers"], json!(["center.example.org/keep"])), "a finalizer of its own"),
        (false, "", with(&["metadata", "ownerReferences"], json!([{"name": "x"}])), "owners, that are local"),
        (false, "", with(&["metadata", "managedFields"], json!([{"manager": "x"}])), "who manages what"),
        (false, "finalize", with(&["spec", "replicas"], json!(2)), "what happens here"),
    ] {
        assert_eq!(is_centers(DEPLOYMENTS, subresource, &held, &web(), Some(&new)), centers, "{why}");
    }
    assert!(is_centers(DEPLOYMENTS, "", &held, &web(), None), "a deletion");
    let elsewhere = with(&["spec", "replicas"], json!(2));
    for kind in ["core/pods", "core/nodes", "coordination.k8s.io/leases", "crd.projectcalico.org/ipamblocks"] {
        assert!(!is_centers(kind, "", &held, &web(), Some(&elsewhere)), "{kind}");
        assert!(!is_centers(kind, "", &held, &web(), None), "{kind}");
    }
    for (collection, path) in [
        ("core/persistentvolumeclaims", &["spec", "volumeName"][..]),
        ("core/persistentvolumes", &["spec", "claimRef"]),
        ("core/namespaces", &["spec", "finalizers"]),
        ("core/serviceaccounts", &["secrets"]),
    ] {
        let new = with(path, json!(["x"]));
        assert!(!is_centers(collection, "", &held, &web(), Some(&new)), "{collection}");
        assert!(is_centers(DEPLOYMENTS, "", &held, &web(), Some(&new)), "{collection}");
    }
}

#[test]
fn replicas_are_the_edges_while_an_autoscaler_sets_them() {
    let (plain, scaled) = (held(), Held { is_autoscaled: true, ..held() });
    let more = with(&["spec", "replicas"], json!(5));
    for subresource in ["", "scale"] {
        assert!(is_centers(DEPLOYMENTS, subresource, &plain, &web(), Some(&more)));
        assert!(!is_centers(DEPLOYMENTS, subresource, &scaled, &web(), Some(&more)), "{subresource}");
    }
    let mut both = more.clone();
    both["spec"]["paused"] = true.into();
    let split = split(DEPLOYMENTS, &scaled, &web(), &both).unwrap();
    assert_eq!((split.center, split.edge), (json!({"spec": {"paused": true}}), json!({"spec": {"replicas": 5}})));
    // A write that waited goes back, and the autoscaler came or went meanwhile: a number stays in any case.
    for (then, now, replicas) in
        [(&scaled, &plain, 5), (&scaled, &scaled, 5), (&plain, &scaled, 5), (&plain, &plain, 1)]
    {
        let mut value = both.clone();
        replace_center(DEPLOYMENTS, now, &mut value, &center_part(DEPLOYMENTS, then, &web()));
        assert_eq!(value["spec"], json!({"replicas": replicas}));
    }
}

#[test]
fn a_change_of_both_parts_is_taken_apart() {
    let mut new = with(&["spec", "replicas"], json!(3));
    new["metadata"]["labels"]["rack"] = "5".into();
    new["metadata"]["labels"]["app"] = "shop".into();
    new["metadata"]["finalizers"] = json!(["center.example.org/keep", "other.example.org/wait"]);
    let split = split(DEPLOYMENTS, &held(), &web(), &new).unwrap();
    assert_eq!(split.center, json!({"metadata": {"labels": {"app": "shop"}}, "spec": {"replicas": 3}}));
    let finalizers = json!({"local.example.org/wait": null, "other.example.org/wait": true});
    assert_eq!(split.edge, json!({"metadata": {"labels": {"rack": "5"}, "finalizers": finalizers}}));
    let mut now = with(&["spec", "replicas"], json!(7));
    now["metadata"]["labels"]["since"] = "then".into();
    apply_edge(&mut now, &split.edge);
    assert_eq!(now["metadata"]["labels"]["rack"], "5");
    assert_eq!(now["metadata"]["labels"]["since"], "then", "others' changes stay");
    assert_eq!(now["metadata"]["finalizers"], json!(["center.example.org/keep", "other.example.org/wait"]));
    assert_eq!(now["spec"]["replicas"], 7);
}

#[test]
fn the_centers_part_goes_back() {
    let before = center_part(DEPLOYMENTS, &held(), &web());
    let mut now = with(&["spec", "replicas"], json!(9));
    now["metadata"]["labels"]["app"] = "other".into();
    now["metadata"]["labels"]["since"] = "then".into();
    now["status"]["readyReplicas"] = 9.into();
    replace_center(DEPLOYMENTS, &held(), &mut now, &before);
    let mut want = web();
    want["metadata"]["labels"]["since"] = "then".into();
    want["status"]["readyReplicas"] = 9.into();
    assert_eq!(now, want);
}

fn names() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("app|team|rack|new", "[xy]", 0..4).prop_map(|map| map.into_iter().collect())
}

fn objects() -> impl Strategy<Value = Value> {
    let finalizers = prop::collection::btree_set("center.example.org/keep|a|b", 0..3);
    let spec = prop::collection::btree_map("[a-c]", 0..3i64, 0..3);
    (names(), names(), finalizers, spec, 0..3i64).prop_map(|(labels, annotations, finalizers, spec, status)| {
        let mut value =
            json!({"metadata": {"name": "web", "generation": status}, "spec": spec, "status": {"x": status}});
        let finalizers: Vec<String> = finalizers.into_iter().collect();
        for (field, part) in [("labels", labels), ("annotations", annotations), ("finalizers", finalizers.into())] {
            // As objects lie in the store: nothing empty.
            if part.as_object().is_some_and(|m| !m.is_empty()) || part.as_array().is_some_and(|l| !l.is_empty()) {
                value["metadata"][field] = part;
            }
        }
        value
    })
}

proptest! {
    /// Both parts together are the whole change, but for what the server says of its own copy.
    #[test]
    fn nothing_is_lost_between_the_parts(old in objects(), new in objects()) {
        let held = held();
        let split = split(DEPLOYMENTS, &held, &old, &new).unwrap();
        let mut center = center_part(DEPLOYMENTS, &held, &old);
        patch::merge(&mut center, &split.center);
        prop_assert_eq!(&center, &center_part(DEPLOYMENTS, &held, &new));
        let mut got = old.clone();
        replace_center(DEPLOYMENTS, &held, &mut got, &center);
        apply_edge(&mut got, &split.edge);
        let mut want = new.clone();
        want["metadata"]["generation"] = old["metadata"]["generation"].clone();
        let sorted = |value: &mut Value| {
            if let Some(list) = value["metadata"]["finalizers"].as_array_mut() {
                list.sort_by_key(Value::to_string);
            }
        };
        sorted(&mut got);
        sorted(&mut want);
        prop_assert_eq!(got, want);
    }

    #[test]
    fn only_the_centers_part_goes_to_the_center(old in objects(), new in objects()) {
        let held = held();
        let split = split(DEPLOYMENTS, &held, &old, &new).unwrap();
        prop_assert_eq!(is_centers(DEPLOYMENTS, "", &held, &old, Some(&new)), !diff::is_nothing(&split.center));
        let part = center_part(DEPLOYMENTS, &held, &new);
        prop_assert_eq!(&center_part(DEPLOYMENTS, &held, &part), &part);
        prop_assert!(part["status"].is_null() && part["metadata"]["labels"]["rack"].is_null());
    }
}
