use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{
    decide::{Known, Verdict},
    tests::{at, merge, on, pod, verdicts, zoned},
    volumes::Volumes,
};
use crate::world::{Case, parse};
use controllers::cache::Key;

pub const CASES: &[Case] = &[
    ("scheduler/volumes-missing", missing),
    ("scheduler/volumes-immediate", immediate),
    ("scheduler/volumes-first-consumer", first_consumer),
    ("scheduler/volumes-there-already", there_already),
    ("scheduler/volumes-node-affinity", node_affinity),
    ("scheduler/volumes-one-pod", one_pod),
];

fn uses(claims: &[&str]) -> Pod {
    let volumes: Vec<Value> =
        claims.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})).collect();
    pod("p", json!({"spec": {"volumes": volumes}}))
}

fn known(claims: &[(&str, Value)], volumes: &[(&str, Value)]) -> Known {
    let claim = |(name, more): &(&str, Value)| {
        let mut value = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name}, "status": {"phase": "Pending"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        merge(&mut value, more.clone());
        (Key::new("ns", name), Arc::new(parse(value)))
    };
    let volume = |(name, more): &(&str, Value)| {
        let mut value = json!({
            "metadata": {"name": name}, "status": {"phase": "Available"},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}, "storageClassName": "static"},
        });
        merge(&mut value, more.clone());
        ((*name).to_owned(), Arc::new(parse(value)))
    };
    let class = |name: &str, provisioner: &str, mode: &str, more: Value| {
        let mut value = json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode});
        merge(&mut value, more);
        (name.to_owned(), Arc::new(parse(value)))
    };
    let in_y = json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["y"]}]}]});
    let volumes = Volumes {
        claims: claims.iter().map(claim).collect(),
        volumes: volumes.iter().map(volume).collect(),
        classes: [
            class("now", "x.example/p", "Immediate", json!({})),
            class("later", "x.example/p", "WaitForFirstConsumer", json!({})),
            class("later-in-y", "x.example/p", "WaitForFirstConsumer", in_y),
            class("static", "kubernetes.io/no-provisioner", "WaitForFirstConsumer", json!({})),
        ]
        .into(),
    };
    Known { volumes, ..Known::default() }
}

fn of_class(name: &str) -> Value {
    json!({"spec": {"storageClassName": name}})
}

fn bound(volume: &str) -> Value {
    json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume}, "status": {"phase": "Bound"},
    })
}

fn near(zone: &str) -> Value {
    let terms = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]);
    json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}})
}

fn one(pod: &Pod, known: &Known) -> Verdict {
    verdicts(&zoned(), &[], std::slice::from_ref(pod), known).remove(0)
}

fn nowhere(why: &str) -> Verdict {
    let none =
        "no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.";
    Verdict::None(format!("0/3 nodes are available: {why}. {none}"))
}

fn missing() {
    assert_eq!(one(&uses(&["data"]), &known(&[], &[])), nowhere(r#"persistentvolumeclaim "data" not found"#));
    let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let got = one(&uses(&["data"]), &known(&[("data", going)], &[]));
    assert_eq!(got, nowhere(r#"persistentvolumeclaim "data" is being deleted"#));
    let lost = json!({"spec": {"volumeName": "v"}, "status": {"phase": "Lost"}});
    let got = one(&uses(&["data"]), &known(&[("data", lost)], &[]));
    assert_eq!(got, nowhere(r#"persistentvolumeclaim "data" bound to non-existent persistentvolume "v""#));
    let own = pod("p", json!({"spec": {"volumes": [{"name": "v", "ephemeral": {}}]}}));
    let why = r#"waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v""#;
    assert_eq!(one(&own, &known(&[], &[])), nowhere(why));
    let why = "PVC ns/p-v was not created for pod ns/p (pod is not owner)";
    assert_eq!(one(&own, &known(&[("p-v", bound("v"))], &[])), nowhere(why));
}

fn immediate() {
    let why = nowhere("pod has unbound immediate PersistentVolumeClaims");
    assert_eq!(one(&uses(&["data"]), &known(&[("data", of_class("now"))], &[])), why);
    assert_eq!(one(&uses(&["data"]), &known(&[("data", json!({}))], &[])), why);
    assert_eq!(one(&uses(&["data"]), &known(&[("data", of_class("not-there"))], &[])), why);
    let got = one(&uses(&["data"]), &known(&[("data", bound("v"))], &[("v", json!({}))]));
    assert!(matches!(got, Verdict::Node(_)), "{got:?}");
}

/// Where it goes, and which claims are told so.
fn chosen(verdict: Verdict) -> (String, Vec<String>) {
    let Verdict::Volumes(node, claims) = verdict else { panic!("{verdict:?}") };
    (node, claims.iter().map(|claim| claim.metadata.name.clone().unwrap()).collect())
}

fn first_consumer() {
    let both = uses(&["data", "done"]);
    let at_b = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "b"}}, "spec": {"storageClassName": "later"}});
    let claims = [("data", of_class("later")), ("done", bound("v"))];
    let (_, told) = chosen(one(&both, &known(&claims, &[("v", json!({}))])));
    assert_eq!(told, ["data"]);
    // One that was chosen stays chosen, and is not said twice.
    assert_eq!(chosen(one(&uses(&["data"]), &known(&[("data", at_b.clone())], &[]))), ("b".into(), vec![]));
    // Unless that node is gone.
    let mut at_gone = at_b;
    at_gone["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = "gone".into();
    assert_eq!(chosen(one(&uses(&["data"]), &known(&[("data", at_gone)], &[]))).1, ["data"]);
    // A class that makes volumes in some places only.
    let known_in_y = known(&[("data", of_class("later-in-y"))], &[]);
    assert_eq!(chosen(one(&uses(&["data"]), &known_in_y)), ("c".into(), vec!["data".into()]));
}

fn there_already() {
    let claims = [("data", of_class("static"))];
    let found = |volumes: &[(&str, Value)]| one(&uses(&["data"]), &known(&claims, volumes));
    assert_eq!(found(&[]), nowhere("3 node(s) didn't find available persistent volumes to bind"));
    assert_eq!(chosen(found(&[("v", near("y"))])).0, "c");
    for unfit in [
        json!({"spec": {"capacity": {"storage": "1Mi"}}}),
        json!({"spec": {"accessModes": ["ReadOnlyMany"]}}),
        json!({"spec": {"storageClassName": "other"}}),
        json!({"spec": {"claimRef": {"namespace": "ns", "name": "another"}}}),
        json!({"status": {"phase": "Released"}}),
    ] {
        assert!(matches!(found(&[("v", unfit.clone())]), Verdict::None(_)), "{unfit}");
    }
    // One volume is not enough for two claims.
    let claims = [("data", of_class("static")), ("more", of_class("static"))];
    let got = one(&uses(&["data", "more"]), &known(&claims, &[("v", near("y"))]));
    assert!(matches!(got, Verdict::None(_)), "{got:?}");
    let got = one(&uses(&["data", "more"]), &known(&claims, &[("v", near("y")), ("w", near("y"))]));
    assert_eq!(chosen(got), ("c".into(), vec!["data".into(), "more".into()]));
}

fn node_affinity() {
    let claims = [("data", bound("v"))];
    assert_eq!(one(&uses(&["data"]), &known(&claims, &[("v", near("y"))])), at("c"));
    let got = one(&uses(&["data"]), &known(&claims, &[("v", near("z"))]));
    assert_eq!(got, nowhere("3 node(s) didn't match PersistentVolume's node affinity"));
    let got = one(&uses(&["data"]), &known(&claims, &[]));
    assert_eq!(got, nowhere("3 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"));
}

fn one_pod() {
    let mut claim = bound("v");
    claim["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    let known = known(&[("data", claim)], &[("v", json!({}))]);
    let mut other = uses(&["data"]);
    other.metadata.uid = Some("other".into());
    let got = verdicts(&zoned(), &[on("a", other.clone())], &[uses(&["data"])], &known).remove(0);
    let why = "0/3 nodes are available: 3 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode. ";
    assert!(matches!(&got, Verdict::None(told) if told.starts_with(why)), "{got:?}");
    // A more important one takes it over.
    let mut high = uses(&["data"]);
    high.spec.as_mut().unwrap().priority = Some(1);
    let got = verdicts(&zoned(), &[on("a", other.clone())], &[high], &known).remove(0);
    assert!(matches!(&got, Verdict::Preempt { node, .. } if node == "a"), "{got:?}");
    // Another namespace has another claim of this name.
    other.metadata.namespace = Some("other".into());
    let got = verdicts(&zoned(), &[on("a", other)], &[uses(&["data"])], &known).remove(0);
    assert!(matches!(got, Verdict::Node(_)), "{got:?}");
}
