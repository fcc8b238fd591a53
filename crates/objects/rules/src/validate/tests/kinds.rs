//! One table for the kinds that need no set-up of their own.

use super::*;

/// Each row: group, kind, object, complaints.
fn refused(rows: Vec<(&str, &str, Value, Vec<&str>)>) {
    for (group, kind, object, want) in rows {
        assert_eq!(created(group, kind, object.clone()), want, "{kind} {object}");
    }
}

fn service(mut spec: Value) -> Value {
    for (key, value) in [("type", "ClusterIP"), ("sessionAffinity", "None"), ("internalTrafficPolicy", "Cluster")] {
        if spec.get(key).is_none() {
            spec[key] = value.into();
        }
    }
    json!({"spec": spec})
}

#[test]
fn services() {
    let port = |number: i64, protocol: &str| json!({"port": number, "protocol": protocol, "targetPort": number});
    let good = service(
        json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        "selector": {"app": "web"}, "ports": [port(80, "TCP")]}),
    );
    assert_eq!(created("", "Service", good.clone()), Vec::<String>::new());
    refused(vec![
        (
            "",
            "Service",
            service(json!({"type": "Sideways", "ports": [port(0, "TCP"), port(80, "ICMP")]})),
            vec![
                "spec.ports[0].name: Required value",
                "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[1].name: Required value",
                "spec.ports[1].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
                "spec.type: Unsupported value: \"Sideways\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
            ],
        ),
        ("", "Service", service(json!({"selector": {"a": "b"}})), vec!["spec.ports: Required value"]),
        (
            "",
            "Service",
            service(json!({"type": "ExternalName", "clusterIP": "None", "clusterIPs": ["None"]})),
            vec![
                "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
                "spec.externalName: Required value",
            ],
        ),
        (
            "",
            "Service",
            service(
                json!({"ports": [{"name": "a", "port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": 30000},
                {"name": "b", "port": 80, "protocol": "TCP", "targetPort": 81}]}),
            ),
            vec![
                "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
                "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80,\"TargetPort\":0,\"NodePort\":0}",
            ],
        ),
    ]);
    let headless = service(
        json!({"clusterIP": "None", "clusterIPs": ["None"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        "ports": [port(80, "TCP")]}),
    );
    assert_eq!(
        updated("", "Service", good, headless),
        ["spec.clusterIPs[0]: Invalid value: [\"None\"]: may not change once set"]
    );
}

fn job(spec: Value) -> Value {
    let labels = json!({"controller-uid": "u", "job-name": "a", "batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "a"});
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}});
    spec["template"]["metadata"]["labels"] = labels;
    let template = spec["template"]["spec"].take();
    spec["template"]["spec"] = pod_spec(template);
    json!({"spec": spec})
}

#[test]
fn jobs() {
    let once = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}});
    assert_eq!(created("batch", "Job", job(once.clone())), Vec::<String>::new());
    let mut more = once.clone();
    more["completions"] = 3.into();
    assert_eq!(
        updated("batch", "Job", job(once.clone()), job(more)),
        ["spec.completions: Invalid value: 3: field is immutable"]
    );
    refused(vec![
        (
            "batch",
            "Job",
            job(json!({"template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}})),
            vec!["spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""],
        ),
        (
            "batch",
            "CronJob",
            json!({"spec": {"schedule": "every day", "concurrencyPolicy": "Never", "jobTemplate": {"spec": {"template": {"spec":
                pod_spec(json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}))}}}}}),
            vec![
                "spec.schedule: Invalid value: \"every day\": expected exactly 5 fields, found 2: [every day]",
                "spec.concurrencyPolicy: Unsupported value: \"Never\": supported values: \"Allow\", \"Forbid\", \"Replace\"",
            ],
        ),
    ]);
}

#[test]
fn one_of_each() {
    let net = "networking.k8s.io";
    refused(vec![
        (
            net,
            "Ingress",
            json!({"spec": {"rules": [{"host": "1.2.3.4", "http": {"paths": [{"path": "x", "pathType": "Exact", "backend": {}}]}}]}}),
            vec![
                "spec.rules[0].host: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
                "spec.rules[0].http.paths[0].path: Invalid value: \"x\": must be an absolute path",
                "spec.rules[0].http.paths[0].backend: Invalid value: \"\": resource or service backend is required",
            ],
        ),
        (
            net,
            "NetworkPolicy",
            json!({"spec": {"podSelector": {}, "policyTypes": ["Sideways"], "ingress": [{"ports": [{"port": 70000}],
                "from": [{"ipBlock": {"cidr": "10.0.0.0/33"}}]}]}}),
            vec![
                "spec.ingress[0].ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
                "spec.ingress[0].from[0].ipBlock.cidr: Invalid value: \"10.0.0.0/33\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                "spec.policyTypes[0]: Unsupported value: \"Sideways\": supported values: \"Ingress\", \"Egress\"",
            ],
        ),
        (
            "autoscaling",
            "HorizontalPodAutoscaler",
            json!({"spec": {"minReplicas": 5, "maxReplicas": 2, "scaleTargetRef": {"kind": "", "name": "x"}}}),
            vec![
                "spec.maxReplicas: Invalid value: 2: must be greater than or equal to `minReplicas`",
                "spec.scaleTargetRef.kind: Required value",
                "spec.scaleTargetRef.apiVersion: Invalid value: \"\": apiVersion must specify API group",
            ],
        ),
        (
            "policy",
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": 1, "maxUnavailable": "150%", "selector": {}}}),
            vec![
                "spec: Invalid value: {\"MinAvailable\":1,\"Selector\":{},\"MaxUnavailable\":\"150%\",\"UnhealthyPodEvictionPolicy\":null}: minAvailable and maxUnavailable cannot be both set",
                "spec.maxUnavailable: Invalid value: \"150%\": must not be greater than 100%",
            ],
        ),
        (
            "coordination.k8s.io",
            "Lease",
            json!({"spec": {"leaseDurationSeconds": -5}}),
            vec!["spec.leaseDurationSeconds: Invalid value: -5: must be greater than 0"],
        ),
        (
            "discovery.k8s.io",
            "EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["::1"]}, {"addresses": []}]}),
            vec![
                "endpoints[0].addresses: Invalid value: \"::1\": must be an IPv4 address",
                "endpoints[0].addresses[0]: Invalid value: \"::1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
                "endpoints[1].addresses: Required value: must contain at least 1 address",
            ],
        ),
        (
            "",
            "LimitRange",
            json!({"spec": {"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}, {"type": "Thing"}]}}),
            vec![
                "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
                "spec.limits[1].type: Invalid value: \"Thing\": must be a standard limit type or fully qualified",
            ],
        ),
        (
            "",
            "ResourceQuota",
            json!({"spec": {"hard": {"pods": "1.5", "things": "1"}, "scopes": ["Sometimes"]}}),
            vec![
                "spec.hard[pods]: Invalid value: \"1.5\": must be an integer",
                "spec.hard[things]: Invalid value: \"things\": must be a standard resource type or fully qualified",
                "spec.hard[things]: Invalid value: \"things\": must be a standard resource for quota",
                "spec.scopes: Invalid value: [\"Sometimes\"]: unsupported scope",
            ],
        ),
        (
            "scheduling.k8s.io",
            "PriorityClass",
            json!({"value": 2_000_000_000}),
            vec!["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
        ),
        (
            "storage.k8s.io",
            "StorageClass",
            json!({"provisioner": "", "volumeBindingMode": "Later"}),
            vec![
                "provisioner: Required value",
                "volumeBindingMode: Unsupported value: \"Later\": supported values: \"Immediate\", \"WaitForFirstConsumer\"",
            ],
        ),
        (
            "",
            "Node",
            json!({"spec": {"taints": [{"key": "a", "effect": "Never"}]}}),
            vec![
                "metadata.taints[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
            ],
        ),
        (
            "",
            "Event",
            json!({"involvedObject": {"namespace": "elsewhere"}}),
            vec!["involvedObject.namespace: Invalid value: \"elsewhere\": does not match event.namespace"],
        ),
    ]);
}

#[test]
fn webhook_configurations() {
    let hook = |name: &str| {
        json!({"name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
        "clientConfig": {"service": {"name": "s", "namespace": "ns", "path": "/x", "port": 443}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "scope": "*"}]})
    };
    let group = "admissionregistration.k8s.io";
    refused(vec![
        (group, "ValidatingWebhookConfiguration", json!({"webhooks": [hook("a.example.com")]}), vec![]),
        (
            group,
            "MutatingWebhookConfiguration",
            json!({"webhooks": [{"name": "short", "rules": [{"operations": ["*", "CREATE"]}]}]}),
            vec![
                "webhooks[0].name: Invalid value: \"short\": should be a domain with at least three segments separated by dots",
                "webhooks[0].rules[0].operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is present, must not specify other operations",
                "webhooks[0].rules[0].apiGroups: Required value",
                "webhooks[0].rules[0].apiVersions: Required value",
                "webhooks[0].rules[0].resources: Required value",
                "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
                "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
                "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
            ],
        ),
    ]);
}

#[test]
fn fields_a_schema_requires() {
    use schema::{Field, Schema, Shape, Struct};
    let mut schema = Schema::default();
    let text = schema.add("", Shape::String);
    let field = |name: &str, ty, required| Field {
        name: name.into(),
        ty,
        required,
        nullable: false,
        default: None,
        patch: None,
        numbers: Box::default(),
        presence: schema::Presence::default(),
        published: None,
    };
    let spec = Struct { fields: Box::new([field("b", text, true), field("c", text, false)]), ..Struct::default() };
    let spec = schema.add("", Shape::Struct(spec));
    let list = schema.add("", Shape::Array { items: spec, list: schema::ListType::Atomic });
    let root =
        Struct { fields: Box::new([field("list", list, false), field("spec", spec, true)]), ..Struct::default() };
    let root = schema.add("", Shape::Struct(root));
    assert_eq!(texts(required(&schema, root, &json!({"spec": {"b": "x"}}))), Vec::<String>::new());
    assert_eq!(
        texts(required(&schema, root, &json!({"list": [{"b": "x"}, {}], "spec": null}))),
        ["list[1].b: Required value", "spec: Required value"]
    );
}

#[test]
fn objects_of_helm_charts_pass() {
    refused(vec![
        (
            "networking.k8s.io",
            "Ingress",
            json!({"spec": {"ingressClassName": "nginx", "tls": [{"hosts": ["*.example.com"], "secretName": "tls"}], "rules": [
                {"host": "a.example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix",
                    "backend": {"service": {"name": "web", "port": {"number": 80}}}}]}}]}}),
            vec![],
        ),
        (
            "networking.k8s.io",
            "NetworkPolicy",
            json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress", "Egress"],
                "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}], "ports": [{"port": 53, "protocol": "UDP"}]}]}}),
            vec![],
        ),
        (
            "autoscaling",
            "HorizontalPodAutoscaler",
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "v1", "kind": "ReplicationController", "name": "x"}}}),
            vec![],
        ),
        (
            "autoscaling",
            "HorizontalPodAutoscaler",
            json!({"spec": {"minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"},
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]}}),
            vec![],
        ),
        (
            "policy",
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}}),
            vec![],
        ),
        ("", "ServiceAccount", json!({"automountServiceAccountToken": false}), vec![]),
        (
            "",
            "ResourceQuota",
            json!({"spec": {"hard": {"pods": "10", "requests.cpu": "1", "count/deployments.apps": "5", "requests.nvidia.com/gpu": "4"}}}),
            vec![],
        ),
        (
            "",
            "LimitRange",
            json!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}}]}}),
            vec![],
        ),
        (
            "",
            "Event",
            json!({"involvedObject": {"namespace": "ns", "kind": "Pod", "name": "p"}, "reason": "R"}),
            vec![],
        ),
        ("example.com", "Gadget", json!({"spec": {"anything": [1, {"a": null}]}}), vec![]),
    ]);
}

#[test]
fn requests_that_are_not_stored() {
    let meta = json!({"name": "d", "namespace": "ns"});
    assert_eq!(
        texts(scale(&json!({"metadata": meta, "spec": {"replicas": -1}}))),
        ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]
    );
    assert_eq!(
        texts(token_request(&json!({"spec": {"expirationSeconds": 10}}))),
        ["spec.expirationSeconds: Invalid value: 10: may not specify a duration less than 10 minutes"]
    );
    assert_eq!(
        texts(binding(&json!({"target": {"kind": "Pod"}}))),
        [
            "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\"",
            "target.name: Required value"
        ]
    );
}

/// Whatever JSON comes, of whatever kind: complaints, never a panic.
#[test]
fn no_shape_panics() {
    let shapes = [
        json!(null),
        json!(1),
        json!("x"),
        json!([]),
        json!([[]]),
        json!({}),
        json!({"spec": 1}),
        json!({"spec": []}),
        json!({"metadata": []}),
    ];
    let kinds = [
        ("", "Pod"),
        ("", "Service"),
        ("", "ConfigMap"),
        ("", "Secret"),
        ("", "Node"),
        ("", "PersistentVolume"),
        ("", "PersistentVolumeClaim"),
        ("", "Endpoints"),
        ("", "LimitRange"),
        ("", "ResourceQuota"),
        ("", "Event"),
        ("", "ReplicationController"),
        ("", "Namespace"),
        ("apps", "Deployment"),
        ("apps", "StatefulSet"),
        ("apps", "DaemonSet"),
        ("batch", "Job"),
        ("batch", "CronJob"),
        ("networking.k8s.io", "Ingress"),
        ("networking.k8s.io", "NetworkPolicy"),
        ("autoscaling", "HorizontalPodAutoscaler"),
        ("policy", "PodDisruptionBudget"),
        ("rbac.authorization.k8s.io", "Role"),
        ("storage.k8s.io", "CSIDriver"),
        ("certificates.k8s.io", "CertificateSigningRequest"),
        ("apiregistration.k8s.io", "APIService"),
    ];
    for (group, kind) in kinds {
        for shape in &shapes {
            for field in [
                "containers",
                "volumes",
                "ports",
                "clusterIPs",
                "template",
                "selector",
                "taints",
                "podCIDRs",
                "limits",
                "hard",
                "rules",
                "metrics",
            ] {
                let object = json!({"metadata": {"name": "a"}, "spec": {field: shape}, "rules": shape, "data": shape});
                let resource = resource(group, kind, true);
                create(&resource, &object);
                create(&resource, shape);
                update(&resource, "", &object, shape);
                update(&resource, "status", shape, &object);
            }
        }
    }
}

#[test]
fn the_version_of_an_autoscalers_target_is_looked_at_when_it_changes() {
    let of = |version: &str, kind: &str, most: i32| json!({"spec": {"maxReplicas": most, "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": "x"}}});
    let update = |old: Value, new: Value| updated("autoscaling", "HorizontalPodAutoscaler", old, new);
    assert!(update(of("v1", "Deployment", 1), of("v1", "Deployment", 2)).is_empty());
    for (version, why) in
        [("v1", "apiVersion must specify API group"), ("a/b/c", "unexpected GroupVersion string: a/b/c")]
    {
        let said = update(of("apps/v1", "Deployment", 1), of(version, "Deployment", 1));
        assert_eq!(said, [format!("spec.scaleTargetRef.apiVersion: Invalid value: {version:?}: {why}")]);
    }
}
