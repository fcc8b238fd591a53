use serde_json::{Value, json};

use super::cells as cells_of;
use crate::table::{Node, columns};

const NOW: i64 = 1_000_000;

/// A time so many seconds before `NOW`.
fn ago(seconds: i64) -> String {
    jiff::Timestamp::from_second(NOW - seconds).unwrap().to_string()
}

fn cells(group: &str, resource: &str, object: &Value, now: i64) -> Vec<Value> {
    let text = object.to_string();
    cells_of(group, resource, &Node::new(text.as_bytes()), now)
}

fn object(mut rest: Value) -> Value {
    let metadata = rest.as_object_mut().unwrap().entry("metadata").or_insert_with(|| json!({}));
    metadata["name"] = json!("o");
    metadata["creationTimestamp"] = json!(ago(300));
    rest
}

fn check(group: &str, resource: &str, rest: Value, expected: Value) {
    let got = cells(group, resource, &object(rest), NOW);
    assert_eq!(Value::from(got), expected, "{group}/{resource}");
}

fn container(name: &str, state: Value) -> Value {
    json!({"name": name, "state": state, "restartCount": 0, "ready": false})
}

fn pod_status(pod: Value) -> (String, String, String) {
    let row = cells("", "pods", &object(pod), NOW);
    let cell = |i: usize| row[i].as_str().unwrap().to_owned();
    (cell(1), cell(2), cell(3))
}

fn status(ready: &str, reason: &str, restarts: &str) -> (String, String, String) {
    (ready.to_owned(), reason.to_owned(), restarts.to_owned())
}

#[test]
fn pods() {
    let spec = json!({"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}, {"name": "s",
        "restartPolicy": "Always"}]});
    let pod = |status: Value| json!({"spec": spec.clone(), "status": status});
    assert_eq!(pod_status(pod(json!({"phase": "Pending"}))), status("0/3", "Pending", "0"));
    let running = json!({"name": "a", "ready": true, "restartCount": 3, "state": {"running": {}},
        "lastState": {"terminated": {"finishedAt": ago(600)}}});
    assert_eq!(
        pod_status(pod(json!({"phase": "Running", "containerStatuses": [running]}))),
        status("1/3", "Running", "3 (10m ago)")
    );
    let crash = container("a", json!({"waiting": {"reason": "CrashLoopBackOff"}}));
    assert_eq!(
        pod_status(pod(json!({"phase": "Running", "containerStatuses": [crash, running]}))),
        status("1/3", "CrashLoopBackOff", "3 (10m ago)")
    );
    let done = container("a", json!({"terminated": {"reason": "Completed", "exitCode": 0}}));
    let ready = json!([{"type": "Ready", "status": "True"}]);
    assert_eq!(
        pod_status(pod(json!({"phase": "Running", "containerStatuses": [done, running], "conditions": ready}))),
        status("1/3", "Running", "3 (10m ago)")
    );
    assert_eq!(
        pod_status(pod(json!({"phase": "Running", "containerStatuses": [done, running]}))),
        status("1/3", "NotReady", "3 (10m ago)")
    );
    assert_eq!(
        pod_status(pod(json!({"phase": "Succeeded", "containerStatuses": [done]}))),
        status("0/3", "Completed", "0")
    );
    let failed = container("a", json!({"terminated": {"exitCode": 7}}));
    assert_eq!(
        pod_status(pod(json!({"phase": "Failed", "containerStatuses": [failed]}))),
        status("0/3", "ExitCode:7", "0")
    );
    let signal = container("i", json!({"terminated": {"exitCode": 1, "signal": 9}}));
    assert_eq!(
        pod_status(pod(json!({"phase": "Pending", "initContainerStatuses": [signal]}))),
        status("0/3", "Init:Signal:9", "0")
    );
    let pulling = container("i", json!({"waiting": {"reason": "ImagePullBackOff"}}));
    assert_eq!(
        pod_status(pod(json!({"phase": "Pending", "initContainerStatuses": [pulling]}))),
        status("0/3", "Init:ImagePullBackOff", "0")
    );
    let initialised = container("i", json!({"terminated": {"exitCode": 0}}));
    let starting = container("s", json!({"waiting": {"reason": "PodInitializing"}}));
    assert_eq!(
        pod_status(pod(json!({"phase": "Pending", "initContainerStatuses": [initialised, starting]}))),
        status("0/3", "Init:1/2", "0")
    );
    let sidecar = json!({"name": "s", "started": true, "ready": true, "restartCount": 2, "state": {"running": {}}});
    assert_eq!(
        pod_status(pod(json!({"phase": "Running", "initContainerStatuses": [initialised, sidecar],
            "containerStatuses": [running]}))),
        status("2/3", "Running", "5 (10m ago)")
    );
    let gated = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
    assert_eq!(
        pod_status(pod(json!({"phase": "Pending", "conditions": gated}))),
        status("0/3", "SchedulingGated", "0")
    );
    let mut going = pod(json!({"phase": "Running"}));
    going["metadata"] = json!({"deletionTimestamp": ago(1)});
    assert_eq!(pod_status(going.clone()), status("0/3", "Terminating", "0"));
    going["status"]["reason"] = json!("NodeLost");
    assert_eq!(pod_status(going), status("0/3", "Unknown", "0"));
    assert_eq!(pod_status(pod(json!({"phase": "Failed", "reason": "Evicted"}))), status("0/3", "Evicted", "0"));

    let wide = object(
        json!({"spec": {"nodeName": "n", "containers": [{}], "readinessGates": [{"conditionType": "x"}]},
        "status": {"podIPs": [{"ip": "10.0.0.1"}], "nominatedNodeName": "m", "conditions": [{"type": "x", "status": "True"}]}}),
    );
    assert_eq!(cells("", "pods", &wide, NOW)[5..], [json!("10.0.0.1"), json!("n"), json!("m"), json!("1/1")]);
    let conditions = super::conditions("", "pods", &Node::new(br#"{"status":{"phase":"Failed"}}"#));
    assert_eq!(conditions.unwrap()[0]["reason"], "Failed");
}

#[test]
fn core_kinds() {
    check("", "configmaps", json!({"data": {"a": ""}, "binaryData": {"b": ""}}), json!(["o", 2, "5m"]));
    check("", "secrets", json!({"type": "Opaque", "data": {"a": ""}}), json!(["o", "Opaque", 1, "5m"]));
    check("", "serviceaccounts", json!({}), json!(["o", "5m"]));
    check("", "namespaces", json!({"status": {"phase": "Active"}}), json!(["o", "Active", "5m"]));
    check(
        "",
        "nodes",
        json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "a"}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "1.1.1.1"}],
            "nodeInfo": {"kubeletVersion": "v1", "kernelVersion": "6.1", "architecture": "arm64"}}}),
        json!([
            "o",
            "Ready,SchedulingDisabled",
            "a,worker",
            "5m",
            "v1",
            "1.1.1.1",
            "<none>",
            "<unknown>",
            "6.1 (arm64)",
            "<unknown>"
        ]),
    );
    check(
        "",
        "nodes",
        json!({}),
        json!(["o", "Unknown", "<none>", "5m", "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"]),
    );
    check(
        "",
        "events",
        json!({"involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"}, "reason": "R", "type": "Normal",
            "message": " m\n", "count": 4, "source": {"component": "kubelet", "host": "h"}, "firstTimestamp": ago(60), "lastTimestamp": ago(5)}),
        json!(["5s", "Normal", "R", "pod/p", "spec", "kubelet, h", "m", "60s", 4, "o"]),
    );
    check(
        "events.k8s.io",
        "events",
        json!({"regarding": {"kind": "Pod"}, "reason": "R", "type": "Normal", "note": "n", "reportingController": "c",
            "eventTime": ago(60), "series": {"count": 9, "lastObservedTime": ago(2)}}),
        json!(["2s", "Normal", "R", "pod", "", "c", "n", "60s", 9, "o"]),
    );
    check(
        "",
        "resourcequotas",
        json!({"status": {"hard": {"pods": "4", "limits.cpu": "2"}, "used": {"pods": "1"}}}),
        json!(["o", "pods: 1/4", "limits.cpu: 0/2", "5m"]),
    );
    check(
        "",
        "componentstatuses",
        json!({"conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]}),
        json!(["o", "Healthy", "ok", ""]),
    );
    check(
        "",
        "podtemplates",
        json!({"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}),
        json!(["o", "c", "i", "a=b"]),
    );
    check(
        "scheduling.k8s.io",
        "priorityclasses",
        json!({"value": 7, "preemptionPolicy": "Never"}),
        json!(["o", 7, false, "5m", "Never"]),
    );
    check("coordination.k8s.io", "leases", json!({"spec": {"holderIdentity": "h"}}), json!(["o", "h", "5m"]));
    check("node.k8s.io", "runtimeclasses", json!({"handler": "h"}), json!(["o", "h", "5m"]));
    check("resource.k8s.io", "resourceclaims", json!({}), json!(["o", "pending", "5m"]));
    check(
        "resource.k8s.io",
        "resourceclaims",
        json!({"status": {"allocation": {}, "reservedFor": [{}]}}),
        json!(["o", "allocated,reserved", "5m"]),
    );
    check(
        "resource.k8s.io",
        "resourceslices",
        json!({"spec": {"driver": "d", "pool": {"name": "p"}}}),
        json!(["o", "", "d", "p", "5m"]),
    );
}

#[test]
fn workloads() {
    let template = json!({"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}], "nodeSelector": {"z": "1"}}});
    let selector = json!({"matchLabels": {"app": "w"}});
    check(
        "apps",
        "deployments",
        json!({"spec": {"replicas": 3, "template": template, "selector": selector},
            "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}}),
        json!(["o", "1/3", 2, 1, "5m", "a,b", "x,y", "app=w"]),
    );
    check(
        "apps",
        "replicasets",
        json!({"spec": {"replicas": 3, "template": template}, "status": {"replicas": 2}}),
        json!(["o", 3, 2, 0, "5m", "a,b", "x,y", "<none>"]),
    );
    check(
        "",
        "replicationcontrollers",
        json!({"spec": {"replicas": 1, "template": template, "selector": {"a": "b"}}}),
        json!(["o", 1, 0, 0, "5m", "a,b", "x,y", "a=b"]),
    );
    check(
        "apps",
        "statefulsets",
        json!({"spec": {"replicas": 2, "template": template}}),
        json!(["o", "0/2", "5m", "a,b", "x,y"]),
    );
    check(
        "apps",
        "daemonsets",
        json!({"spec": {"template": template, "selector": selector}, "status": {"desiredNumberScheduled": 2, "numberReady": 1}}),
        json!(["o", 2, 0, 1, 0, 0, "z=1", "5m", "a,b", "x,y", "app=w"]),
    );
    check(
        "apps",
        "controllerrevisions",
        json!({"metadata": {"ownerReferences": [{"controller": true, "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d"}]}, "revision": 3}),
        json!(["o", "daemonset.apps/d", 3, "5m"]),
    );
    check(
        "batch",
        "jobs",
        json!({"spec": {"parallelism": 2, "template": template}, "status": {"startTime": ago(100)}}),
        json!(["o", "Running", "0/1 of 2", "100s", "5m", "a,b", "x,y", "<none>"]),
    );
    check(
        "batch",
        "jobs",
        json!({"spec": {"completions": 2}, "status": {"succeeded": 2, "startTime": ago(100), "completionTime": ago(40),
            "conditions": [{"type": "Complete", "status": "True"}]}}),
        json!(["o", "Complete", "2/2", "60s", "5m", "", "", "<none>"]),
    );
    check(
        "batch",
        "cronjobs",
        json!({"spec": {"schedule": "* * * * *", "suspend": false}, "status": {"active": [{}], "lastScheduleTime": ago(30)}}),
        json!(["o", "* * * * *", "<none>", "False", 1, "30s", "5m", "", "", "<none>"]),
    );
    check(
        "policy",
        "poddisruptionbudgets",
        json!({"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}}),
        json!(["o", "50%", "N/A", 1, "5m"]),
    );
    check(
        "autoscaling",
        "horizontalpodautoscalers",
        json!({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 1, "maxReplicas": 5, "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
            {"type": "Pods", "pods": {"target": {"averageValue": "10"}}},
            {"type": "External", "external": {"target": {"value": "1"}}}]},
            "status": {"currentReplicas": 2, "currentMetrics": [{"resource": {"current": {"averageUtilization": 20}}}]}}),
        json!(["o", "Deployment/d", "cpu: 20%/80%, <unknown>/10 + 1 more...", "1", 5, 2, "5m"]),
    );
    check(
        "autoscaling",
        "horizontalpodautoscalers",
        json!({"spec": {"targetCPUUtilizationPercentage": 70, "maxReplicas": 5}}),
        json!(["o", "/", "cpu: <unknown>/70%", "<unset>", 5, 0, "5m"]),
    );
}

#[test]
fn networking() {
    let ports = json!([{"port": 80, "protocol": "TCP"}, {"port": 53, "nodePort": 30053, "protocol": "UDP"}]);
    check(
        "",
        "services",
        json!({"spec": {"type": "ClusterIP", "clusterIPs": ["10.96.0.9"], "ports": ports, "selector": {"a": "b"}}}),
        json!(["o", "ClusterIP", "10.96.0.9", "<none>", "80/TCP,53:30053/UDP", "5m", "a=b"]),
    );
    check(
        "",
        "services",
        json!({"spec": {"type": "LoadBalancer", "externalIPs": ["9.9.9.9"]}, "status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}}),
        json!(["o", "LoadBalancer", "<none>", "1.1.1.1,9.9.9.9", "<none>", "5m", "<none>"]),
    );
    check(
        "",
        "services",
        json!({"spec": {"type": "LoadBalancer"}}),
        json!(["o", "LoadBalancer", "<none>", "<pending>", "<none>", "5m", "<none>"]),
    );
    check(
        "",
        "endpoints",
        json!({"subsets": [{"addresses": [{"ip": "1.1.1.1"}, {"ip": "::1"}], "ports": [{"port": 80}, {"port": 81}]}]}),
        json!(["o", "1.1.1.1:80,[::1]:80,1.1.1.1:81 + 1 more...", "5m"]),
    );
    check("", "endpoints", json!({}), json!(["o", "<none>", "5m"]));
    check(
        "discovery.k8s.io",
        "endpointslices",
        json!({"addressType": "IPv4", "ports": [{"port": 80}, {"name": "n"}, {}], "endpoints": [{"addresses": ["1.1.1.1"]}]}),
        json!(["o", "IPv4", "80,n,*", "1.1.1.1", "5m"]),
    );
    check(
        "discovery.k8s.io",
        "endpointslices",
        json!({"addressType": "IPv6"}),
        json!(["o", "IPv6", "<unset>", "<unset>", "5m"]),
    );
    check(
        "networking.k8s.io",
        "ingresses",
        json!({"spec": {"tls": [{}], "rules": [{"host": "a"}, {"host": "b"}, {"host": "c"}, {"host": "d"}]}}),
        json!(["o", "<none>", "a,b,c + 1 more...", "", "80, 443", "5m"]),
    );
    check(
        "networking.k8s.io",
        "ingressclasses",
        json!({"metadata": {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
            "spec": {"controller": "c", "parameters": {"apiGroup": "g.io", "kind": "K", "name": "n"}}}),
        json!(["o (default)", "c", "K.g.io/n", "5m"]),
    );
    check(
        "networking.k8s.io",
        "networkpolicies",
        json!({"spec": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}}),
        json!(["o", "a", "5m"]),
    );
    check(
        "networking.k8s.io",
        "servicecidrs",
        json!({"spec": {"cidrs": ["10.0.0.0/8"]}}),
        json!(["o", "10.0.0.0/8", "5m"]),
    );
    check(
        "networking.k8s.io",
        "ipaddresses",
        json!({"spec": {"parentRef": {"resource": "services", "namespace": "n", "name": "s"}}}),
        json!(["o", "services/n/s", "5m"]),
    );
}

#[test]
fn storage() {
    check(
        "",
        "persistentvolumes",
        json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "storageClassName": "s",
            "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "n", "name": "c"}, "volumeMode": "Block"},
            "status": {"phase": "Bound"}}),
        json!(["o", "1Gi", "RWO,RWX", "Retain", "Bound", "n/c", "s", "<unset>", "", "5m", "Block"]),
    );
    check(
        "",
        "persistentvolumeclaims",
        json!({"spec": {"volumeName": "v"}, "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOncePod"]}}),
        json!(["o", "Bound", "v", "2Gi", "RWOP", "", "<unset>", "5m", "<unset>"]),
    );
    check(
        "",
        "persistentvolumeclaims",
        json!({"metadata": {"deletionTimestamp": "x"}, "status": {"capacity": {"storage": "2Gi"}}}),
        json!(["o", "Terminating", "", "", "", "", "<unset>", "5m", "<unset>"]),
    );
    check(
        "storage.k8s.io",
        "storageclasses",
        json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "p"}),
        json!(["o (default)", "p", "Delete", "Immediate", false, "5m"]),
    );
    check(
        "storage.k8s.io",
        "csidrivers",
        json!({"spec": {"tokenRequests": [{"audience": "a"}], "volumeLifecycleModes": ["Persistent"]}}),
        json!(["o", true, false, false, "a", false, "Persistent", "5m"]),
    );
    check("storage.k8s.io", "csinodes", json!({"spec": {"drivers": [{}]}}), json!(["o", 1, "5m"]));
    check(
        "storage.k8s.io",
        "volumeattachments",
        json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}}, "status": {"attached": true}}),
        json!(["o", "a", "v", "n", true, "5m"]),
    );
}

#[test]
fn policies() {
    check(
        "rbac.authorization.k8s.io",
        "rolebindings",
        json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}, {"kind": "User", "name": "v"},
            {"kind": "ServiceAccount", "namespace": "n", "name": "s"}]}),
        json!(["o", "Role/r", "5m", "u, v", "", "n/s"]),
    );
    check(
        "certificates.k8s.io",
        "certificatesigningrequests",
        json!({"spec": {"signerName": "s", "username": "u", "expirationSeconds": 3600},
            "status": {"certificate": "Yg==", "conditions": [{"type": "Approved"}]}}),
        json!(["o", "5m", "s", "u", "60m", "Approved,Issued"]),
    );
    check(
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        json!({"webhooks": [{}]}),
        json!(["o", 1, "5m"]),
    );
    check(
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        json!({"spec": {"validations": [{}, {}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}}),
        json!(["o", 2, "v1/ConfigMap", "5m"]),
    );
    check(
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        json!({"spec": {"policyName": "p", "paramRef": {"selector": {"matchLabels": {"a": "b"}}}}}),
        json!([
            "o",
            "p",
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},}",
            "5m"
        ]),
    );
    check("apiregistration.k8s.io", "apiservices", json!({}), json!(["o", "Local", "Unknown", "5m"]));
    check(
        "flowcontrol.apiserver.k8s.io",
        "flowschemas",
        json!({"spec": {"priorityLevelConfiguration": {"name": "p"}, "matchingPrecedence": 100}}),
        json!(["o", "p", 100, "<none>", "5m", "?"]),
    );
    check(
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        json!({"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 5}}}),
        json!(["o", "Limited", 5, "<none>", "<none>", "<none>", "5m"]),
    );
}

/// Whatever is in an object, a row has the cells its columns need.
#[test]
fn rows_fit_their_columns() {
    let resources = [
        (
            "",
            "v1",
            "pods events nodes services endpoints secrets configmaps namespaces resourcequotas persistentvolumes \
                    persistentvolumeclaims replicationcontrollers podtemplates componentstatuses serviceaccounts limitranges",
        ),
        ("apps", "v1", "deployments replicasets statefulsets daemonsets controllerrevisions"),
        ("batch", "v1", "jobs cronjobs"),
        ("autoscaling", "v2", "horizontalpodautoscalers"),
        ("networking.k8s.io", "v1", "ingresses ingressclasses networkpolicies servicecidrs"),
        (
            "storage.k8s.io",
            "v1",
            "storageclasses volumeattachments csidrivers csinodes volumeattributesclasses csistoragecapacities",
        ),
        ("rbac.authorization.k8s.io", "v1", "roles rolebindings clusterroles clusterrolebindings"),
        (
            "admissionregistration.k8s.io",
            "v1",
            "mutatingadmissionpolicies mutatingadmissionpolicybindings \
            mutatingwebhookconfigurations validatingadmissionpolicies validatingadmissionpolicybindings",
        ),
        ("resource.k8s.io", "v1", "deviceclasses resourceclaims resourceclaimtemplates resourceslices"),
        ("flowcontrol.apiserver.k8s.io", "v1", "flowschemas prioritylevelconfigurations"),
        ("policy", "v1", "poddisruptionbudgets"),
        ("events.k8s.io", "v1", "events"),
    ];
    for (group, version, names) in resources {
        for resource in names.split_whitespace() {
            let columns = columns(group, version, resource).unwrap_or_else(|| panic!("{group}/{resource}"));
            for object in [json!({}), json!(null), json!({"spec": [], "status": 1, "metadata": "x"})] {
                assert_eq!(cells(group, resource, &object, NOW).len(), columns.len(), "{group}/{resource}");
            }
        }
    }
}
