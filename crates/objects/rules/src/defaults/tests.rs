use proptest::prelude::*;
use serde_json::{Value, json};

use super::apply;
use super::fields::at;

/// The object after defaulting, with only `path` compared.
fn check(kind: (&str, &str, &str), given: Value, path: &[&str], want: Value) {
    let mut obj = given.clone();
    apply(kind.0, kind.1, kind.2, &mut obj);
    assert_eq!(at(&obj, path).unwrap_or(&Value::Null), &want, "{} {given} at {path:?}", kind.2);
    let once = obj.clone();
    apply(kind.0, kind.1, kind.2, &mut obj);
    assert_eq!(obj, once, "defaulting twice must change nothing");
}

const POD: (&str, &str, &str) = ("", "v1", "Pod");

fn pod(container: Value) -> Value {
    json!({"spec": {"containers": [container]}})
}

#[test]
fn pull_policy_follows_the_tag() {
    for (image, want) in [
        ("app", "Always"),
        ("app:latest", "Always"),
        ("app:v1", "IfNotPresent"),
        ("localhost:5000/app", "Always"),
        ("localhost:5000/team/app:v2", "IfNotPresent"),
        ("app@sha256:00", "IfNotPresent"),
        ("app:latest@sha256:00", "Always"),
        ("Not Parsed", "IfNotPresent"),
        ("", "IfNotPresent"),
    ] {
        let mut obj = pod(json!({"image": image}));
        apply("", "v1", "Pod", &mut obj);
        assert_eq!(obj["spec"]["containers"][0]["imagePullPolicy"], want, "{image}");
    }
}

#[test]
fn containers() {
    let spec = ["spec", "containers"];
    check(
        POD,
        pod(json!({"image": "a:1", "livenessProbe": {"httpGet": {"port": 1}, "timeoutSeconds": 0},
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
            "ports": [{"containerPort": 1}, {"containerPort": 2, "protocol": "UDP"}],
            "env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]})),
        &spec,
        json!([{"image": "a:1", "imagePullPolicy": "IfNotPresent",
            "livenessProbe": {"httpGet": {"port": 1, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1,
                "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "ports": [{"containerPort": 1, "protocol": "TCP"}, {"containerPort": 2, "protocol": "UDP"}],
            "env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}}}]}]),
    );
    let mut host = pod(json!({"image": "a:1", "ports": [{"containerPort": 80}]}));
    host["spec"]["hostNetwork"] = true.into();
    apply("", "v1", "Pod", &mut host);
    assert_eq!(host["spec"]["containers"][0]["ports"][0]["hostPort"], 80);
}

#[test]
fn templates_get_less_than_pods() {
    let spec = json!({"hostNetwork": true,
        "containers": [{"image": "a:1", "resources": {"limits": {"cpu": "1"}}, "ports": [{"containerPort": 80}]}]});
    let mut obj = json!({"template": {"spec": spec}});
    apply("", "v1", "PodTemplate", &mut obj);
    let spec = &obj["template"]["spec"];
    assert!(spec.get("enableServiceLinks").is_none());
    assert!(spec["containers"][0]["ports"][0].get("hostPort").is_none());
    assert!(spec["containers"][0]["resources"].get("requests").is_none());
    assert_eq!(spec["terminationGracePeriodSeconds"], 30);
    assert_eq!(obj["template"]["metadata"], json!({}));
}

#[test]
fn volumes() {
    for (given, want) in [
        (json!({"name": "a"}), json!({"name": "a", "emptyDir": {}})),
        (json!({"secret": {}}), json!({"secret": {"defaultMode": 420}})),
        (json!({"hostPath": {"path": "/"}}), json!({"hostPath": {"path": "/", "type": ""}})),
        (
            json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}),
            json!({"projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}}),
        ),
        (json!({"rbd": {"user": "me"}}), json!({"rbd": {"user": "me", "pool": "rbd", "keyring": "/etc/ceph/keyring"}})),
        (
            json!({"image": {"reference": "app:v1"}}),
            json!({"image": {"reference": "app:v1", "pullPolicy": "IfNotPresent"}}),
        ),
    ] {
        check(POD, json!({"spec": {"volumes": [given]}}), &["spec", "volumes"], json!([want]));
    }
}

#[test]
fn one_field_of_many_kinds() {
    let rbac = "rbac.authorization.k8s.io";
    let hooks = "admissionregistration.k8s.io";
    for (group, version, kind, given, path, want) in [
        ("apps", "v1", "Deployment", json!({}), vec!["spec", "strategy", "rollingUpdate", "maxSurge"], json!("25%")),
        ("apps", "v1", "Deployment", json!({"spec": {"replicas": 0}}), vec!["spec", "replicas"], json!(0)),
        (
            "apps",
            "v1",
            "Deployment",
            json!({"spec": {"strategy": {"type": "Recreate"}}}),
            vec!["spec", "strategy"],
            json!({"type": "Recreate"}),
        ),
        (
            "apps",
            "v1",
            "StatefulSet",
            json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}),
            vec!["spec", "updateStrategy"],
            json!({"type": "OnDelete"}),
        ),
        ("apps", "v1", "DaemonSet", json!({"spec": {}}), vec!["spec", "revisionHistoryLimit"], json!(10)),
        ("batch", "v1", "Job", json!({"spec": {"parallelism": 2}}), vec!["spec", "completions"], Value::Null),
        (
            "batch",
            "v1",
            "Job",
            json!({"spec": {"backoffLimitPerIndex": 1}}),
            vec!["spec", "backoffLimit"],
            json!(i32::MAX),
        ),
        (
            "batch",
            "v1",
            "Job",
            json!({"spec": {"podFailurePolicy": {"rules": []}}}),
            vec!["spec", "podReplacementPolicy"],
            json!("Failed"),
        ),
        (
            "batch",
            "v1",
            "CronJob",
            json!({"spec": {"jobTemplate": {"spec": {}}}}),
            vec!["spec", "jobTemplate", "spec", "parallelism"],
            Value::Null,
        ),
        (
            "",
            "v1",
            "Service",
            json!({"spec": {"ports": [{"port": 80}]}}),
            vec!["spec", "ports"],
            json!([{"port": 80, "targetPort": 80, "protocol": "TCP"}]),
        ),
        (
            "",
            "v1",
            "Service",
            json!({"spec": {"type": "ExternalName"}}),
            vec!["spec"],
            json!({"type": "ExternalName", "sessionAffinity": "None"}),
        ),
        (
            "",
            "v1",
            "Service",
            json!({"spec": {"externalIPs": ["1.2.3.4"]}}),
            vec!["spec", "externalTrafficPolicy"],
            json!("Cluster"),
        ),
        ("", "v1", "Secret", json!({"stringData": {"a": "b"}}), vec!["data"], json!({"a": "Yg=="})),
        ("", "v1", "Secret", json!({}), vec!["type"], json!("Opaque")),
        (
            "",
            "v1",
            "Namespace",
            json!({"metadata": {"name": "n"}}),
            vec!["metadata", "labels"],
            json!({"kubernetes.io/metadata.name": "n"}),
        ),
        ("", "v1", "Node", json!({"spec": {"podCIDRs": ["a", "b"]}}), vec!["spec", "podCIDR"], json!("a")),
        (
            "",
            "v1",
            "LimitRange",
            json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}),
            vec!["spec", "limits"],
            json!([{"type": "Pod", "max": {"cpu": "1"}}]),
        ),
        (
            "",
            "v1",
            "ReplicationController",
            json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}),
            vec!["spec", "selector"],
            json!({"a": "b"}),
        ),
        ("autoscaling", "v1", "HorizontalPodAutoscaler", json!({}), vec!["spec"], json!({"minReplicas": 1})),
        (
            "autoscaling",
            "v2",
            "HorizontalPodAutoscaler",
            json!({"spec": {"behavior": {}}}),
            vec!["spec", "behavior", "scaleDown", "selectPolicy"],
            json!("Max"),
        ),
        (
            "networking.k8s.io",
            "v1",
            "NetworkPolicy",
            json!({"spec": {"egress": []}}),
            vec!["spec", "policyTypes"],
            json!(["Ingress"]),
        ),
        (
            rbac,
            "v1",
            "ClusterRoleBinding",
            json!({"subjects": [{"kind": "ServiceAccount"}]}),
            vec!["subjects"],
            json!([{"kind": "ServiceAccount"}]),
        ),
        (
            hooks,
            "v1",
            "MutatingWebhookConfiguration",
            json!({"webhooks": [{"timeoutSeconds": 3}]}),
            vec!["webhooks"],
            json!([{"timeoutSeconds": 3, "failurePolicy": "Fail", "matchPolicy": "Equivalent", "namespaceSelector": {},
                "objectSelector": {}, "reinvocationPolicy": "Never"}]),
        ),
        (
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            json!({"spec": {"names": {"kind": "Gadget"}}}),
            vec!["spec"],
            json!({"names": {"kind": "Gadget", "singular": "gadget", "listKind": "GadgetList"}, "conversion": {"strategy": "None"}}),
        ),
        (
            "flowcontrol.apiserver.k8s.io",
            "v1",
            "PriorityLevelConfiguration",
            json!({"spec": {"limited": {"nominalConcurrencyShares": 0}}}),
            vec!["spec", "limited"],
            json!({"nominalConcurrencyShares": 0, "lendablePercent": 0}),
        ),
        (
            "resource.k8s.io",
            "v1",
            "ResourceClaim",
            json!({"spec": {"devices": {"requests": [{"exactly": {}}]}}}),
            vec!["spec", "devices", "requests"],
            json!([{"exactly": {"allocationMode": "ExactCount", "count": 1}}]),
        ),
    ] {
        check((group, version, kind), given, &path, want);
    }
}

#[test]
fn amounts_are_rounded_up_to_thousandths() {
    let mut obj = json!({"spec": {"hard": {"cpu": "1500u", "memory": "1Gi"}}});
    apply("", "v1", "ResourceQuota", &mut obj);
    assert_eq!(obj["spec"]["hard"], json!({"cpu": "2m", "memory": "1Gi"}));
}

#[test]
fn pods_as_a_whole_ask_for_what_their_containers_ask_for() {
    let requests = |cpu: &str| json!({"image": "a:1", "resources": {"requests": {"cpu": cpu}}});
    let mut sidecar = requests("1");
    sidecar["restartPolicy"] = "Always".into();
    for (inits, want) in [
        (json!([]), json!({"cpu": "1500m", "memory": "1Gi"})),
        (json!([requests("5")]), json!({"cpu": "5", "memory": "1Gi"})),
        (json!([sidecar, requests("5")]), json!({"cpu": "6", "memory": "1Gi"})),
    ] {
        let mut obj = json!({"spec": {"resources": {"limits": {"cpu": "8", "memory": "1Gi"}},
            "containers": [requests("1"), requests("500m")], "initContainers": inits}});
        apply("", "v1", "Pod", &mut obj);
        assert_eq!(obj["spec"]["resources"]["requests"], want);
    }
}

/// Any JSON, shallow but with the field names that defaulting looks for.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z:/@]{0,6}".prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "template",
        "containers",
        "volumes",
        "projected",
        "sources",
        "resources",
        "limits",
        "requests",
        "behavior",
        "webhooks",
        "ports",
        "labels",
        "type",
        "image",
        "limited",
        "strategy",
    ]);
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn never_panics_and_settles(given in any_json()) {
        for (group, kind) in [
            ("", "Pod"), ("", "Service"), ("", "Secret"), ("", "Node"), ("", "LimitRange"), ("", "Namespace"),
            ("", "ReplicationController"), ("", "PersistentVolume"), ("apps", "Deployment"), ("apps", "StatefulSet"),
            ("batch", "Job"), ("batch", "CronJob"), ("autoscaling", "HorizontalPodAutoscaler"),
            ("networking.k8s.io", "NetworkPolicy"), ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
            ("apiextensions.k8s.io", "CustomResourceDefinition"), ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
        ] {
            let mut once = given.clone();
            apply(group, "v1", kind, &mut once);
            let mut twice = once.clone();
            apply(group, "v1", kind, &mut twice);
            prop_assert_eq!(&once, &twice);
        }
    }
}
