//! Kinds and rules that came later: devices, flow control, statuses, and what may be resized.

use super::*;

fn refused(group: &str, kind: &str, object: Value, want: &[&str]) {
    assert_eq!(created(group, kind, object.clone()), want, "{kind} {object}");
}

#[test]
fn flow_control() {
    let group = "flowcontrol.apiserver.k8s.io";
    refused(
        group,
        "FlowSchema",
        json!({"spec": {"matchingPrecedence": 1000, "priorityLevelConfiguration": {"name": "x"}}}),
        &[],
    );
    let rules = json!([{"subjects": [{"kind": "Group", "user": {"name": "x"}}],
        "resourceRules": [{"verbs": ["*", "get"], "apiGroups": [], "resources": ["a"], "clusterScope": true}],
        "nonResourceRules": [{"verbs": ["odd"], "nonResourceURLs": ["x", "/*x"]}]}]);
    refused(
        group,
        "FlowSchema",
        json!({"spec": {"matchingPrecedence": 20000, "distinguisherMethod": {"type": "Odd"}, "rules": rules}}),
        &[
            "spec.matchingPrecedence: Invalid value: 20000: must not be greater than 10000",
            "spec.distinguisherMethod.type: Unsupported value: {\"Type\":\"Odd\"}: supported values: \"ByNamespace\", \"ByUser\"",
            "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
            "spec.rules[0].subjects[0].group: Required value: group is required when subject kind is 'Group'",
            "spec.rules[0].subjects[0].user: Forbidden: user is forbidden when subject kind is not 'User'",
            "spec.rules[0].resourceRules[0].verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify other verbs",
            "spec.rules[0].resourceRules[0].apiGroups: Required value: resource rules must supply at least one api group",
            "spec.rules[0].nonResourceRules[0].verbs: Unsupported value: [\"odd\"]: supported values: \"create\", \"delete\", \
             \"deletecollection\", \"get\", \"list\", \"patch\", \"proxy\", \"update\", \"watch\"",
            "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"x\": must start with slash",
            "spec.rules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: \"/*x\": wildcard can only do suffix matching",
        ],
    );
    let level = |response: Value| json!({"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": response}}});
    refused(group, "PriorityLevelConfiguration", level(json!({"type": "Reject"})), &[]);
    refused(
        group,
        "PriorityLevelConfiguration",
        level(json!({"type": "Queue", "queuing": {"queues": 10_000_000, "handSize": 10, "queueLengthLimit": 0}})),
        &[
            "spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: 0: must be positive",
            "spec.limited.limitResponse.queuing.handSize: Invalid value: 10: required entropy bits of deckSize 10000000 and \
             handSize 10 should not be greater than 60",
        ],
    );
}

#[test]
fn devices() {
    let group = "resource.k8s.io";
    let claim = |requests: Value| json!({"spec": {"devices": {"requests": requests}}});
    let exactly = |mode: &str, count: i64| json!({"deviceClassName": "x", "allocationMode": mode, "count": count});
    refused(group, "ResourceClaim", claim(json!([{"name": "r", "exactly": exactly("ExactCount", 1)}])), &[]);
    refused(
        group,
        "ResourceClaim",
        claim(json!([{"name": "r"}, {"name": "r", "exactly": exactly("All", 3)},
            {"name": "s", "exactly": {"deviceClassName": "", "allocationMode": "Odd", "selectors": [{}, {"cel": {"expression": "1"}}]}}])),
        &[
            "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
            "spec.devices.requests[1].exactly.count: Invalid value: 3: must not be specified when allocationMode is 'All'",
            "spec.devices.requests[2].exactly.deviceClassName: Required value",
            "spec.devices.requests[2].exactly.selectors[0].cel: Required value",
            "spec.devices.requests[2].exactly.selectors[1].cel.expression: Invalid value: \"1\": must evaluate to bool or the unknown type, not int",
            "spec.devices.requests[2].exactly.allocationMode: Unsupported value: \"Odd\": supported values: \"All\", \"ExactCount\"",
            "spec.devices.requests[1]: Duplicate value: \"r\"",
        ],
    );
    let old = claim(json!([{"name": "r", "exactly": exactly("ExactCount", 1)}]));
    let new = claim(json!([{"name": "s", "exactly": exactly("ExactCount", 1)}]));
    assert_eq!(
        updated(group, "ResourceClaim", old, new),
        ["spec: Invalid value: {\"Devices\":{\"Requests\":[{\"Name\":\"s\",\"Exactly\":{\"DeviceClassName\":\"x\",\
          \"Selectors\":null,\"AllocationMode\":\"ExactCount\",\"Count\":1,\"AdminAccess\":null,\"Tolerations\":null,\
          \"Capacity\":null},\"FirstAvailable\":null}],\"Constraints\":null,\"Config\":null}}: field is immutable"]
    );
    refused(
        group,
        "ResourceSlice",
        json!({"spec": {"driver": "d", "nodeName": "n", "allNodes": true, "pool": {"name": "p", "resourceSliceCount": 1},
            "devices": [{"name": "a", "attributes": {"v": {"version": "1.2"}}}]}}),
        &[
            "spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, `allNodes`, \
             `perDeviceNodeSelection` is required, but multiple fields are set",
            "spec.devices[0].attributes[v].version: Invalid value: \"1.2\": must be a string compatible with semver.org spec 2.0.0",
        ],
    );
}

#[test]
fn statuses() {
    let of = |kind: &str, group: &str, old: Value, new: Value| updated_through(group, kind, "status", old, new);
    let job = |status: Value| json!({"spec": {"completionMode": "Indexed", "completions": 3, "backoffLimitPerIndex": 1}, "status": status});
    assert_eq!(
        of(
            "Job",
            "batch",
            job(json!({})),
            job(
                json!({"conditions": [{"type": "Complete", "status": "True"}], "completedIndexes": "0-1", "failedIndexes": "1,5"})
            )
        ),
        [
            "status.completionTime: Required value: completionTime is required for Complete jobs",
            "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
            "status.startTime: Required value: startTime is required for finished job",
            "status.failedIndexes: Invalid value: \"1,5\": error parsing failedIndexes: too large index: \"5\"",
        ]
    );
    assert_eq!(
        of("Job", "batch", job(json!({"failed": 2})), job(json!({"failed": 1, "ready": 2}))),
        [
            "status.ready: Invalid value: 2: cannot set more ready pods than active",
            "status.failed: Invalid value: 1: cannot decrease the failed counter",
        ]
    );
    let pod =
        |status: Value| json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}, "status": status});
    let container = |state: &str| json!([{"name": "c", "state": {state: {}}}]);
    assert_eq!(
        of(
            "Pod",
            "",
            pod(json!({"containerStatuses": container("terminated")})),
            pod(
                json!({"containerStatuses": container("running"), "podIPs": [{"ip": "x"}], "conditions": [{"type": "a b"}]})
            )
        )[1..],
        [
            "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state",
            "status.podIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ]
    );
    let service =
        |ingress: Value| json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": ingress}}});
    assert_eq!(
        of("Service", "", service(json!([])), service(json!([{"ip": "x"}, {"hostname": "1.2.3.4", "ipMode": "VIP"}]))),
        [
            "status.loadBalancer.ingress[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            "status.loadBalancer.ingress[0].ipMode: Required value: must be specified when `ip` is set",
            "status.loadBalancer.ingress[1].ipMode: Forbidden: may not be specified when `ip` is not set",
            "status.loadBalancer.ingress[1].hostname: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
        ]
    );
}

/// Was refused whatever it asked for.
#[test]
fn a_pod_is_resized() {
    let pod = |requests: Value| {
        json!({"spec": {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30, "serviceAccountName": "default",
            "containers": [{"name": "c", "image": "x", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
                "resources": {"requests": requests}}]}, "status": {"qosClass": "Burstable"}})
    };
    let resized = |new: Value| updated_through("", "Pod", "resize", pod(json!({"cpu": "1"})), pod(new));
    assert_eq!(resized(json!({"cpu": "2"})), Vec::<String>::new());
    assert_eq!(resized(json!({"cpu": "1", "memory": "1Gi"})), Vec::<String>::new());
    assert_eq!(
        resized(json!({})),
        [
            "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        ]
    );
    assert_eq!(
        resized(json!({"cpu": "1", "ephemeral-storage": "1Gi"})),
        ["spec: Forbidden: only cpu and memory resources are mutable"]
    );
}

#[test]
fn storage_kinds() {
    let group = "storage.k8s.io";
    refused(
        group,
        "VolumeAttributesClass",
        json!({"driverName": "A_"}),
        &[
            "driverName: Invalid value: \"a_\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
             end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            "parameters: Required value: must contain at least one key/value pair",
        ],
    );
    let class = |topologies: Value| json!({"provisioner": "p", "volumeBindingMode": "Immediate", "allowedTopologies": topologies});
    let term = |key: &str, values: Value| json!({"matchLabelExpressions": [{"key": key, "values": values}]});
    refused(
        group,
        "StorageClass",
        class(json!([term("k", json!(["a", "a"])), term("k", json!(["a"])), term("l", json!([]))])),
        &[
            "allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: \"a\"",
            "allowedTopologies[1].matchLabelExpressions: Duplicate value: \"\"",
            "allowedTopologies[2].matchLabelExpressions[0].values: Required value",
        ],
    );
    let node = |id: &str| json!({"spec": {"drivers": [{"name": "d", "nodeID": id, "allocatable": {"count": 1}}]}});
    assert_eq!(
        updated(group, "CSINode", node("a"), node("b")),
        [
            "spec.drivers: Invalid value: {\"Name\":\"d\",\"NodeID\":\"b\",\"TopologyKeys\":null,\"Allocatable\":null}: field is immutable"
        ]
    );
    let volume = |source: (&str, Value)| {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}});
        spec[source.0] = source.1;
        json!({ "spec": spec })
    };
    refused(
        "",
        "PersistentVolume",
        volume(("iscsi", json!({"targetPortal": "p", "iqn": "disk", "lun": 300}))),
        &[
            "spec.iscsi.iqn: Invalid value: \"disk\": must be valid format",
            "spec.iscsi.lun: Invalid value: 300: must be between 0 and 255, inclusive",
        ],
    );
    refused(
        "",
        "PersistentVolume",
        volume(("csi", json!({"driver": "d", "volumeHandle": "h", "nodePublishSecretRef": {"name": "s"}}))),
        &["spec.csi.nodePublishSecretRef.namespace: Required value"],
    );
}

#[test]
fn addresses_of_services_come_first() {
    let wrong = |spec: Value| texts(service_addresses(&spec));
    assert_eq!(
        wrong(json!({"type": "ClusterIP", "ipFamilies": ["IPv4", "IPv4", "IPv5"], "ipFamilyPolicy": "SingleStack"})),
        [
            "spec.ipFamilies[1]: Duplicate value: \"IPv4\"",
            "spec.ipFamilies[2]: Unsupported value: \"IPv5\": supported values: \"IPv4\", \"IPv6\"",
        ]
    );
    assert_eq!(
        wrong(json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None", "10.96.0.3"]})),
        ["spec.clusterIPs: Invalid value: [\"None\",\"10.96.0.3\"]: 'None' must be the first and only value"]
    );
}

#[test]
fn time_zones_by_name() {
    let cron = |zone: &str| {
        json!({"spec": {"schedule": "* * * * *", "timeZone": zone, "concurrencyPolicy": "Allow", "jobTemplate": {"spec": {"template":
            {"spec": {"restartPolicy": "Never", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30, "containers": [
                {"name": "c", "image": "x", "imagePullPolicy": "Always", "terminationMessagePolicy": "File"}]}}}}}})
    };
    refused("batch", "CronJob", cron("Europe/Berlin"), &[]);
    refused("batch", "CronJob", cron("Etc/UTC"), &[]);
    for zone in ["Nowhere/X", "europe/berlin"] {
        let want = format!("spec.timeZone: Invalid value: \"{zone}\": unknown time zone {zone}");
        assert_eq!(created("batch", "CronJob", cron(zone)), [want]);
    }
}
