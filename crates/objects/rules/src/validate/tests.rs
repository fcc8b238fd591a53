//! Objects that must be refused, with the exact words, and objects that must not be.

mod kinds;
mod more;

use serde_json::{Value, json};

use super::*;

fn resource(group: &str, kind: &str, namespaced: bool) -> Resource {
    Resource {
        group: group.into(),
        version: "v1".into(),
        resource: "things".into(),
        singular: "thing".into(),
        kind: kind.into(),
        namespaced,
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs: Vec::new(),
        subresources: Vec::new(),
        ty: None,
    }
}

/// The metadata that a stored object has.
fn named(mut object: Value, namespaced: bool) -> Value {
    let meta = &mut object["metadata"];
    if meta["name"].is_null() {
        meta["name"] = "a".into();
    }
    meta["resourceVersion"] = "1".into();
    meta["uid"] = "u".into();
    if namespaced && meta["namespace"].is_null() {
        meta["namespace"] = "ns".into();
    }
    object
}

const CLUSTER: &[&str] = &[
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    "PersistentVolume",
    "Node",
    "StorageClass",
    "PriorityClass",
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "FlowSchema",
    "PriorityLevelConfiguration",
    "ResourceSlice",
    "VolumeAttributesClass",
    "CSINode",
];

fn texts(errors: FieldErrors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

pub(super) fn created(group: &str, kind: &str, object: Value) -> Vec<String> {
    let namespaced = !CLUSTER.contains(&kind);
    texts(create(&resource(group, kind, namespaced), &named(object, namespaced)))
}

pub(super) fn updated(group: &str, kind: &str, old: Value, new: Value) -> Vec<String> {
    updated_through(group, kind, "", old, new)
}

fn updated_through(group: &str, kind: &str, subresource: &str, old: Value, new: Value) -> Vec<String> {
    let namespaced = !CLUSTER.contains(&kind);
    texts(update(&resource(group, kind, namespaced), subresource, &named(new, namespaced), &named(old, namespaced)))
}

#[test]
fn metadata() {
    let cases = [
        (json!({"name": "a", "namespace": "ns"}), vec![]),
        (json!({"namespace": "ns"}), vec!["metadata.name: Required value: name or generateName is required"]),
        (json!({"name": "a"}), vec!["metadata.namespace: Required value"]),
        (
            json!({"name": "a", "namespace": "ns", "finalizers": ["not ok"], "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": ""}]}),
            vec![
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
                "metadata.finalizers: Invalid value: \"not ok\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
                "metadata.finalizers[0]: Invalid value: \"not ok\": name is neither a standard finalizer name nor is it fully qualified",
            ],
        ),
        (
            json!({"name": "a", "namespace": "ns", "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1", "controller": true},
                {"apiVersion": "v1", "kind": "Pod", "name": "y", "uid": "2", "controller": true}]}),
            vec![
                "metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"x\",\"uid\":\"1\",\"controller\":true},{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"y\",\"uid\":\"2\",\"controller\":true}]: Only one reference can have Controller set to true. Found \"true\" in references for Pod/x and Pod/y",
            ],
        ),
        (
            json!({"name": "a", "namespace": "ns", "annotations": {"UPPER.example/x": "a".repeat(256 * 1024)}}),
            vec!["metadata.annotations: Too long: may not be more than 262144 bytes"],
        ),
        (
            json!({"name": "a", "namespace": "ns", "managedFields": [{"operation": "Guess", "fieldsType": "V2"}]}),
            vec![
                "metadata.managedFields[0].operation: Invalid value: \"Guess\": must be `Apply` or `Update`",
                "metadata.managedFields[0].fieldsType: Invalid value: \"V2\": must be `FieldsV1`",
            ],
        ),
    ];
    for (meta, want) in cases {
        let errors = create(&resource("", "ConfigMap", true), &json!({"metadata": meta}));
        assert_eq!(texts(errors), want, "{meta}");
    }
    let errors = create(&resource("", "Namespace", false), &json!({"metadata": {"name": "a.b", "namespace": "x"}}));
    assert_eq!(
        texts(errors),
        [
            "metadata.name: Invalid value: \"a.b\": must not contain dots",
            "metadata.namespace: Forbidden: not allowed on this type"
        ]
    );
}

#[test]
fn metadata_of_updates() {
    let old = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}});
    let new =
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b", "example.com/more"]}});
    let want = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/more\"}";
    assert_eq!(updated("", "ConfigMap", old, new), [want, want]);

    let mut changed = named(json!({}), true);
    changed["metadata"]["uid"] = "other".into();
    let errors = update(&resource("", "Secret", true), "", &changed, &named(json!({}), true));
    let want = "metadata.uid: Invalid value: \"other\": field is immutable";
    assert_eq!(texts(errors), [want, want]);

    // Each of four checks finds it, as upstream's do.
    let bad = json!({"metadata": {"labels": {"a": "not valid!"}}});
    assert_eq!(updated("", "ConfigMap", json!({}), bad).len(), 4);
}

#[test]
fn config_maps_and_secrets() {
    let frozen = json!({"immutable": true, "data": {"k": "v"}});
    assert_eq!(
        updated("", "ConfigMap", frozen, json!({"immutable": false, "data": {"k": "w"}})),
        [
            "immutable: Forbidden: field is immutable when `immutable` is set",
            "data: Forbidden: field is immutable when `immutable` is set"
        ]
    );
    assert_eq!(
        created("", "ConfigMap", json!({"data": {"a": "x".repeat(1_100_000)}})),
        ["[]: Too long: may not be more than 1048576 bytes"]
    );
    assert_eq!(
        created("", "ConfigMap", json!({"data": {"k": "v"}, "binaryData": {"k": "AA=="}})),
        ["data[k]: Invalid value: \"k\": duplicate of key present in binaryData"]
    );
    assert_eq!(
        created("", "Secret", json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "AA=="}})),
        ["data[tls.key]: Required value"]
    );
    assert_eq!(
        created("", "Secret", json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "eA=="}})),
        [
            "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": invalid character 'x' looking for beginning of value"
        ]
    );
    assert_eq!(
        updated("", "Secret", json!({"type": "example.com/a"}), json!({"type": "example.com/b"})),
        ["type: Invalid value: \"example.com/b\": field is immutable"]
    );
}

#[test]
fn roles_and_bindings() {
    let group = "rbac.authorization.k8s.io";
    assert_eq!(
        created(
            group,
            "Role",
            json!({"metadata": {"name": "system:x"}, "rules": [
            {"apiGroups": [""], "resources": ["pods"]}, {"nonResourceURLs": ["/x"], "verbs": ["get"]}]})
        ),
        [
            "rules[0].verbs: Required value: verbs must contain at least one value",
            "rules[1].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
        ]
    );
    let role = json!({"apiGroup": group, "kind": "ClusterRole", "name": "view"});
    assert_eq!(
        created(
            group,
            "RoleBinding",
            json!({"roleRef": {"apiGroup": group, "kind": "Gadget"},
            "subjects": [{"kind": "Martian", "name": "m"}]})
        ),
        [
            "roleRef.kind: Unsupported value: \"Gadget\": supported values: \"Role\", \"ClusterRole\"",
            "roleRef.name: Required value",
            "subjects[0].kind: Unsupported value: \"Martian\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
        ]
    );
    let mut other = role.clone();
    other["name"] = "edit".into();
    assert_eq!(
        updated(group, "RoleBinding", json!({"roleRef": role}), json!({"roleRef": other})),
        [
            "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"ClusterRole\",\"Name\":\"edit\"}: cannot change roleRef"
        ]
    );
}

/// A pod spec as defaulting leaves it.
fn pod_spec(mut spec: Value) -> Value {
    let defaults = json!({"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30,
        "securityContext": {}, "schedulerName": "default-scheduler"});
    for (key, value) in defaults.as_object().unwrap() {
        if spec.get(key).is_none() {
            spec[key] = value.clone();
        }
    }
    let defaults = json!({"imagePullPolicy": "Always", "terminationMessagePolicy": "File", "resources": {},
        "terminationMessagePath": "/dev/termination-log"});
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        for (key, value) in defaults.as_object().unwrap() {
            if container.get(key).is_none() {
                container[key] = value.clone();
            }
        }
    }
    spec
}

fn plain_pod() -> Value {
    pod_spec(json!({"containers": [{"name": "c", "image": "x"}]}))
}

#[test]
fn pods() {
    let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let bad_name = |i: usize| format!("spec.containers[{i}].name: Invalid value: \"C_1\": {label}");
    let cases = [
        (json!({}), vec!["spec.containers: Required value".to_owned()]),
        (
            json!({"restartPolicy": "Sometimes", "dnsPolicy": "Mine", "terminationGracePeriodSeconds": -1, "containers": [
                {"name": "C_1", "image": "", "imagePullPolicy": "Perhaps",
                 "ports": [{"containerPort": 70000, "protocol": "TCP"}, {"containerPort": 80, "protocol": "XXX"}],
                 "env": [{"name": "", "value": "x"}], "volumeMounts": [{"name": "nosuch", "mountPath": ""}]},
                {"name": "C_1", "image": "x"}]}),
            vec![
                bad_name(0),
                "spec.containers[0].image: Required value".into(),
                "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive".into(),
                "spec.containers[0].ports[1].protocol: Unsupported value: \"XXX\": supported values: \"SCTP\", \"TCP\", \"UDP\"".into(),
                "spec.containers[0].env[0].name: Required value".into(),
                "spec.containers[0].volumeMounts[0].name: Not found: \"nosuch\"".into(),
                "spec.containers[0].volumeMounts[0].mountPath: Required value".into(),
                "spec.containers[0].imagePullPolicy: Unsupported value: \"Perhaps\": supported values: \"Always\", \"IfNotPresent\", \"Never\"".into(),
                bad_name(1),
                "spec.containers[1].name: Duplicate value: \"C_1\"".into(),
                "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"".into(),
                "spec.dnsPolicy: Unsupported value: \"Mine\": supported values: \"ClusterFirstWithHostNet\", \"ClusterFirst\", \"Default\", \"None\"".into(),
            ],
        ),
        (
            json!({"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]}),
            vec!["spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1".into()],
        ),
        (
            json!({"containers": [{"name": "c", "image": "x"}], "volumes": [
                {"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}, {"name": "v", "emptyDir": {}}]}),
            vec!["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type".into()],
        ),
        (
            json!({"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}], "containers": [{"name": "c", "image": "x",
                "livenessProbe": {"successThreshold": 2, "httpGet": {"port": 0, "path": "/", "scheme": "HTTP"}}}]}),
            vec![
                "spec.containers[0].livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive".into(),
                "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1".into(),
                "spec.tolerations[0].operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'".into(),
            ],
        ),
        (
            json!({"containers": [{"name": "c", "image": "x", "resources": {"limits": {"example.com/gpu": "1.5", "nope": "1"}}}]}),
            vec![
                "spec.containers[0].resources.limits[example.com/gpu]: Invalid value: \"1.5\": must be an integer".into(),
                "spec.containers[0].resources.limits[nope]: Invalid value: \"nope\": must be a standard resource type or fully qualified".into(),
                "spec.containers[0].resources.limits[nope]: Invalid value: \"nope\": must be a standard resource for containers".into(),
            ],
        ),
        (
            json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 101, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname"}}]}},
                "containers": [{"name": "c", "image": "x", "env": [{"name": "A", "valueFrom": {}}]}]}),
            vec![
                "spec.containers[0].env[0].valueFrom: Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`".into(),
                "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100".into(),
            ],
        ),
        (
            json!({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "No"}],
                "containers": [{"name": "c", "image": "x"}]}),
            vec![
                "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero".into(),
                "spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: \"No\": supported values: \"DoNotSchedule\", \"ScheduleAnyway\"".into(),
            ],
        ),
    ];
    for (spec, want) in cases {
        assert_eq!(created("", "Pod", json!({"spec": pod_spec(spec.clone())})), want, "{spec}");
    }
}

#[test]
fn a_pod_with_everything_people_use() {
    let spec = pod_spec(json!({
        "serviceAccountName": "web", "nodeSelector": {"kubernetes.io/os": "linux"}, "priorityClassName": "high",
        "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "fsGroup": 2000, "seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": [{"operator": "Exists"}, {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["pod-template-hash"]}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]}}},
        "initContainers": [{"name": "wait", "image": "busybox", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
            "restartPolicy": "Always", "startupProbe": {"exec": {"command": ["true"]}, "successThreshold": 1}}],
        "containers": [{"name": "web", "image": "nginx:1", "command": ["sh"],
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "env": [{"name": "POD", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
                {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "L", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels['app']"}}}],
            "envFrom": [{"configMapRef": {"name": "cm"}}],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi", "nvidia.com/gpu": "1"}},
            "livenessProbe": {"httpGet": {"path": "/", "port": "http", "scheme": "HTTP"}, "successThreshold": 1, "periodSeconds": 10},
            "readinessProbe": {"grpc": {"port": 8080}, "successThreshold": 2},
            "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true},
            "volumeMounts": [{"name": "data", "mountPath": "/data", "subPath": "a/b"}, {"name": "token", "mountPath": "/t", "readOnly": true}]}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
            {"name": "token", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "host", "hostPath": {"path": "/var/log", "type": ""}}],
    }));
    assert_eq!(created("", "Pod", json!({"spec": spec})), Vec::<String>::new());
}

#[test]
fn ephemeral_containers_are_only_added() {
    let pod = |names: &[&str], image: &str| {
        let mut spec = plain_pod();
        let one = |name: &&str| {
            json!({"name": name, "image": image, "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
                "terminationMessagePath": "/dev/termination-log"})
        };
        spec["ephemeralContainers"] = names.iter().map(one).collect();
        json!({"spec": spec})
    };
    let change = |old: Value, new: Value| updated_through("", "Pod", "ephemeralcontainers", old, new);
    assert_eq!(change(pod(&[], "x"), pod(&["look"], "x")), Vec::<String>::new());
    assert_eq!(change(pod(&["look"], "x"), pod(&["look", "again"], "x")), Vec::<String>::new());
    let said = |what: &str| {
        format!("spec.ephemeralContainers: Forbidden: existing ephemeral containers \"look\" may not be {what}\n")
    };
    assert_eq!(change(pod(&["look"], "x"), pod(&["again"], "x")), [said("removed")]);
    let changed = change(pod(&["look"], "x"), pod(&["look"], "y"));
    assert!(changed.len() == 1 && changed[0].starts_with(&said("changed")), "{changed:?}");
    assert!(changed[0].contains("\n- \"Image\": \"x\",\n+ \"Image\": \"y\",\n"), "{changed:?}");
}

#[test]
fn pod_updates() {
    let pod = json!({"spec": plain_pod()});
    let change = |path: &str, value: Value| {
        let mut changed = pod.clone();
        let (parent, field) = path.rsplit_once('/').unwrap();
        changed.pointer_mut(parent).unwrap()[field] = value;
        updated("", "Pod", pod.clone(), changed)
    };
    assert_eq!(change("/spec/containers/0/image", "y".into()), Vec::<String>::new());
    assert_eq!(change("/spec/activeDeadlineSeconds", 10.into()), Vec::<String>::new());
    assert_eq!(change("/spec/tolerations", json!([{"operator": "Exists"}])), Vec::<String>::new());
    let refused = change("/spec/hostNetwork", true.into());
    assert_eq!(refused.len(), 1);
    assert!(refused[0].starts_with("spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n@@ "), "{refused:?}");
    assert_eq!(
        change("/spec/containers", json!([])),
        ["spec.containers: Required value", "spec.containers: Forbidden: pod updates may not add or remove containers"]
    );
}

fn deployment(spec: Value) -> Value {
    let mut spec = spec;
    for (key, value) in [
        ("strategy", json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})),
        ("progressDeadlineSeconds", json!(600)),
        ("revisionHistoryLimit", json!(10)),
        ("replicas", json!(1)),
    ] {
        if spec.get(key).is_none() {
            spec[key] = value;
        }
    }
    let template = spec["template"]["spec"].take();
    spec["template"]["spec"] = if template.is_null() { plain_pod() } else { pod_spec(template) };
    json!({"spec": spec})
}

#[test]
fn workloads() {
    let good =
        deployment(json!({"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}}}));
    assert_eq!(created("apps", "Deployment", good.clone()), Vec::<String>::new());
    assert_eq!(
        created(
            "apps",
            "Deployment",
            deployment(
                json!({"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "c"}}}})
            )
        ),
        ["spec.template.metadata.labels: Invalid value: {\"a\":\"c\"}: `selector` does not match template `labels`"]
    );
    let bad = deployment(json!({"replicas": -1, "strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}},
        "template": {"metadata": {"labels": {"a": "c"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}));
    assert_eq!(
        created("apps", "Deployment", bad),
        [
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            "spec.selector: Required value",
            "spec.template.metadata.labels: Invalid value: {\"a\":\"c\"}: `selector` does not match template `labels`",
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ]
    );
    let moved =
        deployment(json!({"selector": {"matchLabels": {"a": "c"}}, "template": {"metadata": {"labels": {"a": "c"}}}}));
    assert_eq!(
        updated("apps", "Deployment", good, moved),
        ["spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"c\"}}: field is immutable"]
    );

    let set = |service: &str| {
        json!({"spec": {"replicas": 1, "serviceName": service, "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod_spec(json!({"containers": [{"name": "c", "image": "x",
            "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}))},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}}}}]}})
    };
    assert_eq!(created("apps", "StatefulSet", set("s")), Vec::<String>::new());
    assert_eq!(
        updated("apps", "StatefulSet", set("s"), set("t")),
        [
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
        ]
    );
    let mut broken = set("s");
    broken["spec"]["template"]["spec"]["containers"][0]["image"] = "".into();
    assert_eq!(created("apps", "StatefulSet", broken), ["spec.template.spec.containers[0].image: Required value"]);
}

#[test]
fn claims_and_volumes() {
    assert_eq!(
        created("", "PersistentVolumeClaim", json!({"spec": {}})),
        [
            "spec.accessModes: Required value: at least 1 access mode is required",
            "spec.resources[storage]: Required value"
        ]
    );
    let claim = |size: &str, class: &str| {
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class, "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": size}}}, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}})
    };
    assert_eq!(updated("", "PersistentVolumeClaim", claim("1Gi", "a"), claim("2Gi", "a")), Vec::<String>::new());
    assert_eq!(
        updated("", "PersistentVolumeClaim", claim("2Gi", "a"), claim("1Gi", "a")),
        ["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"]
    );
    let refused = updated("", "PersistentVolumeClaim", claim("1Gi", "a"), claim("1Gi", "b"));
    assert!(refused[0].starts_with("spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n@@ "), "{refused:?}");
    assert!(refused[0].contains("- \"StorageClassName\": \"a\",\n+ \"StorageClassName\": \"b\",\n"), "{refused:?}");
}
