use schema::catalogue::Subresource;
use serde_json::{Value, json};

use super::*;

const NOW: Now<'_> = Now { rfc3339: "2026-01-02T03:04:05Z" };

fn resource(group: &str, resource: &str, kind: &str, subresources: &[&str]) -> Resource {
    let sub = |name: &&str| Subresource {
        name: (*name).into(),
        group: "".into(),
        version: "".into(),
        kind: "".into(),
        verbs: Vec::new(),
    };
    Resource {
        group: group.into(),
        version: if kind == "HorizontalPodAutoscaler" { "v2".into() } else { "v1".into() },
        resource: resource.into(),
        singular: kind.to_lowercase().into(),
        kind: kind.into(),
        namespaced: true,
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs: Vec::new(),
        subresources: subresources.iter().map(sub).collect(),
        ty: None,
    }
}

fn deployment() -> Resource {
    resource("apps", "deployments", "Deployment", &["status", "scale"])
}

fn created(resource: &Resource, mut obj: Value) -> Value {
    prepare_create(resource, &mut obj, NOW);
    obj
}

fn updated(resource: &Resource, subresource: &str, mut new: Value, old: &Value) -> Value {
    prepare_update(resource, subresource, &mut new, old, NOW);
    new
}

#[test]
fn create_drops_status_and_starts_generation() {
    let given = json!({"metadata": {"generation": 7}, "spec": {}, "status": {"phase": "Running"}});
    let mut old_form = given.clone();
    old_form["apiVersion"] = "autoscaling/v1".into();
    let hpa = resource("autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler", &["status"]);
    assert_eq!(created(&hpa, old_form)["status"], json!({"currentReplicas": 0, "desiredReplicas": 0}));
    for (res, status, generation) in [
        (deployment(), json!({}), json!(1)),
        (resource("", "pods", "Pod", &["status"]), json!({"phase": "Pending", "qosClass": "BestEffort"}), json!(1)),
        (resource("", "services", "Service", &["status"]), json!({"loadBalancer": {}}), json!(7)),
        (resource("", "nodes", "Node", &["status"]), json!({"phase": "Running"}), json!(7)),
        (
            resource("", "persistentvolumes", "PersistentVolume", &["status"]),
            json!({"phase": "Pending", "lastPhaseTransitionTime": NOW.rfc3339}),
            json!(7),
        ),
        (
            resource("autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler", &["status"]),
            json!({"desiredReplicas": 0, "currentMetrics": null}),
            json!(7),
        ),
    ] {
        let obj = created(&res, given.clone());
        assert_eq!(obj["status"], status, "{}", res.kind);
        assert_eq!(obj["metadata"]["generation"], generation, "{}", res.kind);
    }
}

#[test]
fn namespaces_get_finalizer_and_label() {
    let ns = resource("", "namespaces", "Namespace", &["status", "finalize"]);
    let obj = created(&ns, json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["a/b"]}}));
    assert_eq!(obj["spec"]["finalizers"], json!(["a/b", "kubernetes"]));
    assert_eq!(obj["metadata"]["labels"]["kubernetes.io/metadata.name"], "n");
    let next = updated(&ns, "", json!({"metadata": {}, "spec": {}}), &obj);
    assert_eq!(next["spec"]["finalizers"], json!(["a/b", "kubernetes"]));
    let next = updated(&ns, "finalize", json!({"spec": {"finalizers": []}, "status": {"phase": "X"}}), &obj);
    assert_eq!((&next["spec"]["finalizers"], &next["status"]["phase"]), (&json!([]), &json!("Active")));
}

#[test]
fn jobs_select_their_own_pods() {
    let jobs = resource("batch", "jobs", "Job", &["status"]);
    let job = created(&jobs, json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {}}}));
    let labels = json!({"job-name": "j", "batch.kubernetes.io/job-name": "j", "controller-uid": "u",
        "batch.kubernetes.io/controller-uid": "u"});
    assert_eq!(job["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(job["metadata"]["labels"], labels);
    assert_eq!(job["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}));
    let manual = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"manualSelector": true,
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}}}});
    let job = created(&jobs, manual.clone());
    assert_eq!(job["spec"]["selector"], manual["spec"]["selector"]);
    assert_eq!(job["metadata"]["labels"], json!({"a": "b"}));
}

#[test]
fn generation_counts_what_the_kind_says() {
    let old = json!({"metadata": {"generation": 3, "uid": "u"}, "spec": {"a": 1}, "status": {"s": 1}});
    for (new, generation) in [
        (json!({"metadata": {"labels": {"l": "1"}}, "spec": {"a": 1}, "status": {"s": 2}}), 3),
        (json!({"metadata": {"annotations": {"l": "1"}}, "spec": {"a": 1}}), 4),
        (json!({"metadata": {"annotations": {"kubestellar.io/executing-count": "2"}}, "spec": {"a": 1}}), 3),
        (json!({"metadata": {"generation": 9}, "spec": {"a": 2}}), 4),
    ] {
        let got = updated(&deployment(), "", new, &old);
        assert_eq!(got["metadata"]["generation"], generation);
        assert_eq!(got["status"], json!({"s": 1}));
        assert_eq!(got["metadata"]["uid"], "u");
    }
    let secrets = resource("", "secrets", "Secret", &[]);
    let got = updated(&secrets, "", json!({"data": {}}), &json!({"metadata": {}, "data": {"a": "b"}, "type": "T"}));
    assert!(got["metadata"].get("generation").is_none());
    assert_eq!(got["type"], "T");
}

#[test]
fn status_takes_only_status() {
    let old = json!({"metadata": {"generation": 3, "labels": {"a": "b"}}, "spec": {"a": 1}, "status": {}});
    let new = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"a": 2}, "status": {"replicas": 3}});
    let got = updated(&deployment(), "status", new.clone(), &old);
    assert_eq!(got["spec"], json!({"a": 1}));
    assert_eq!(got["status"], json!({"replicas": 3}));
    assert_eq!(got["metadata"], json!({"generation": 3, "labels": {"a": "b"}}));
    let pods = resource("", "pods", "Pod", &["status"]);
    let got = updated(&pods, "status", new, &old);
    assert_eq!(got["metadata"]["labels"], json!({"x": "y"}));
}

#[test]
fn deletion_cannot_be_taken_back() {
    let old =
        json!({"metadata": {"deletionTimestamp": "t", "deletionGracePeriodSeconds": 0, "creationTimestamp": "c"}});
    let got = updated(&resource("", "configmaps", "ConfigMap", &[]), "", json!({"metadata": {}}), &old);
    assert_eq!(got["metadata"], old["metadata"]);
}

#[test]
fn signing_requests_split_status_and_approval() {
    let csr = resource("certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest", &["status"]);
    let old = json!({"metadata": {}, "spec": {"request": "r"}, "status": {"certificate": "c"}});
    let approve =
        json!({"metadata": {}, "spec": {}, "status": {"conditions": [{"type": "Approved", "status": "True"}]}});
    let got = updated(&csr, "approval", approve.clone(), &old);
    assert_eq!(got["spec"], json!({"request": "r"}));
    assert_eq!(got["status"]["certificate"], "c");
    assert_eq!(got["status"]["conditions"][0]["lastUpdateTime"], NOW.rfc3339);
    let got = updated(&csr, "status", approve, &old);
    assert!(got["status"].get("conditions").is_none(), "only approval may approve");
}

#[test]
fn custom_objects() {
    let old = json!({"metadata": {"generation": 1, "labels": {"a": "b"}}, "spec": {"a": 1}, "status": {"s": 1}});
    for (has_status, sub, new, want) in [
        (true, "", json!({"metadata": {"labels": {}}, "spec": {"a": 1}, "status": {"s": 2}}), (1, json!({"s": 1}))),
        (true, "", json!({"metadata": {}, "spec": {"a": 2}}), (2, json!({"s": 1}))),
        (false, "", json!({"metadata": {}, "spec": {"a": 1}, "status": {"s": 2}}), (2, json!({"s": 2}))),
        (true, "status", json!({"metadata": {}, "spec": {"a": 9}, "status": {"s": 2}}), (1, json!({"s": 2}))),
        (true, "status", json!({"metadata": {}}), (1, Value::Null)),
    ] {
        let mut got = new.clone();
        prepare_update_custom(has_status, sub, &mut got, &old);
        assert_eq!(got["metadata"]["generation"], want.0, "{new}");
        assert_eq!(got.get("status").unwrap_or(&Value::Null), &want.1, "{new}");
    }
    let mut fresh = json!({"metadata": {}, "status": {}});
    prepare_create_custom(true, &mut fresh);
    assert_eq!(fresh, json!({"metadata": {"generation": 1}}));
}

#[test]
fn services_keep_what_was_allocated() {
    let services = resource("", "services", "Service", &["status"]);
    let old = json!({"metadata": {}, "spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
        "externalTrafficPolicy": "Cluster", "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30000}]}});
    let port = json!([{"port": 80, "protocol": "TCP"}]);
    let got = updated(&services, "", json!({"metadata": {}, "spec": {"type": "NodePort", "ports": port}}), &old);
    assert_eq!(got["spec"]["clusterIPs"], json!(["10.0.0.1"]));
    assert_eq!(got["spec"]["ports"][0]["nodePort"], 30000);
    let mut spec = old["spec"].clone();
    spec["type"] = "ClusterIP".into();
    let got = updated(&services, "", json!({"metadata": {}, "spec": spec}), &old);
    assert!(got["spec"]["ports"][0].get("nodePort").is_none() && got["spec"].get("externalTrafficPolicy").is_none());
    spec = old["spec"].clone();
    spec["type"] = "ExternalName".into();
    let got = updated(&services, "", json!({"metadata": {}, "spec": spec}), &old);
    assert!(got["spec"].get("clusterIP").is_none());
}

#[test]
fn qos() {
    let pod = |resources: Value| json!({"spec": {"containers": [{"resources": resources}]}});
    for (resources, want) in [
        (json!({}), "BestEffort"),
        (json!({"requests": {"cpu": "0"}}), "BestEffort"),
        (json!({"requests": {"cpu": "1"}}), "Burstable"),
        (
            json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1024Mi"}}),
            "Guaranteed",
        ),
        (json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}), "Burstable"),
        (json!({"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}), "BestEffort"),
    ] {
        assert_eq!(qos_class(&pod(resources.clone())), want, "{resources}");
    }
}

#[test]
fn binding() {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {}, "status": {}});
    let target = json!({"target": {"name": "n"}});
    assert_eq!(bind(&mut pod, &target, NOW), Ok(()));
    assert_eq!(pod["spec"]["nodeName"], "n");
    assert_eq!(pod["status"]["conditions"][0]["status"], "True");
    assert_eq!(bind(&mut pod, &target, NOW).unwrap_err(), "pod p is already assigned to node \"n\"");
}

#[test]
fn grace_and_propagation() {
    let pods = resource("", "pods", "Pod", &[]);
    let pod = |node: &str, phase: &str, period: i64| json!({"spec": {"nodeName": node, "terminationGracePeriodSeconds": period}, "status": {"phase": phase}});
    for (obj, want) in [
        (pod("", "Pending", 25), 0),
        (pod("n", "Running", 25), 25),
        (pod("n", "Running", -5), 1),
        (pod("n", "Succeeded", 25), 0),
    ] {
        assert_eq!(default_grace_period(&pods, &obj), Some(want), "{obj}");
    }
    assert_eq!(default_grace_period(&resource("", "configmaps", "ConfigMap", &[]), &json!({})), None);
    assert_eq!(default_propagation("batch", "jobs"), Propagation::Orphan);
    assert_eq!(default_propagation("apps", "deployments"), Propagation::Background);
    assert!(allow_create_on_update("coordination.k8s.io", "leases") && !allow_create_on_update("", "configmaps"));
    assert!(allow_unconditional_update("", "pods") && !allow_unconditional_update("policy", "poddisruptionbudgets"));
    assert!(!allow_unconditional_update("example.com", "gadgets"));
}

#[test]
fn scale_of_workloads() {
    let obj = json!({"metadata": {"name": "d", "labels": {"x": "y"}}, "spec": {"replicas": 2, "selector": {
        "matchLabels": {"b": "c", "a": "b"}, "matchExpressions": [{"key": "aa", "operator": "In", "values": ["2", "1"]},
        {"key": "z", "operator": "DoesNotExist"}]}}, "status": {"replicas": 1}});
    let got = scale::get(&deployment(), &obj).unwrap();
    assert_eq!(got["status"], json!({"replicas": 1, "selector": "a=b,aa in (1,2),b=c,!z"}));
    assert_eq!(got["spec"], json!({"replicas": 2}));
    assert_eq!(got["metadata"], json!({"name": "d"}));
    let mut next = obj.clone();
    scale::set(&deployment(), &mut next, &json!({"spec": {}}));
    assert_eq!(next["spec"]["replicas"], 0);
    assert!(scale::get(&resource("", "pods", "Pod", &[]), &obj).is_none());
}

#[test]
fn admission_of_pods() {
    let mut pod = json!({"metadata": {}, "spec": {"containers": [{"name": "c"}]}});
    admission::service_account(&mut pod, &json!({"imagePullSecrets": [{"name": "s"}]}), "abcde");
    assert_eq!(pod["spec"]["serviceAccount"], "default");
    assert_eq!(pod["spec"]["volumes"][0]["name"], "kube-api-access-abcde");
    assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0]["name"], "kube-api-access-abcde");
    assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "s"}]));
    let mut quiet = json!({"spec": {"automountServiceAccountToken": false, "containers": [{}]}});
    admission::service_account(&mut quiet, &json!({"automountServiceAccountToken": true}), "x");
    assert!(quiet["spec"].get("volumes").is_none());

    admission::default_tolerations(&mut pod);
    assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 2);
    let mut all = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    admission::default_tolerations(&mut all);
    assert_eq!(all["spec"]["tolerations"].as_array().unwrap().len(), 1);

    assert_eq!(admission::priority(&mut pod, None), Ok(()));
    assert_eq!(pod["spec"]["priority"], 0);
    let mut named = json!({"spec": {"priorityClassName": "nosuch"}});
    assert_eq!(admission::priority(&mut named, None).unwrap_err(), "no PriorityClass with name nosuch was found");
    let class = json!({"metadata": {"name": "high"}, "value": 10, "preemptionPolicy": "Never"});
    let mut default = json!({"spec": {}});
    assert_eq!(admission::priority(&mut default, Some(&class)), Ok(()));
    assert_eq!(default["spec"], json!({"priority": 10, "preemptionPolicy": "Never", "priorityClassName": "high"}));
}

#[test]
fn limit_ranges() {
    let range = json!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"},
        "max": {"cpu": "2"}, "min": {"cpu": "500m"}}]}});
    let ranges = [range];
    let mut pod = json!({"metadata": {}, "spec": {"containers": [{"name": "c"}]}});
    limits::apply(&mut pod, &ranges);
    assert_eq!(pod["spec"]["containers"][0]["resources"], json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}));
    assert_eq!(
        pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    assert!(limits::violations("Pod", &pod, &ranges).is_empty());
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "3"}, "requests": {"cpu": "100m"}});
    assert_eq!(
        limits::violations("Pod", &pod, &ranges),
        [
            "minimum cpu usage per Container is 500m, but request is 100m",
            "maximum cpu usage per Container is 2, but limit is 3",
        ]
    );
    let ranges = [json!({"spec": {"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "5Gi"}}]}})];
    let claim = json!({"spec": {"resources": {"requests": {"storage": "10Gi"}}}});
    assert_eq!(
        limits::violations("PersistentVolumeClaim", &claim, &ranges),
        ["maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 10Gi"]
    );
}

#[test]
fn small_strategies() {
    let accounts = resource("", "serviceaccounts", "ServiceAccount", &[]);
    let got = created(&accounts, json!({"metadata": {}, "secrets": [{"name": "s", "namespace": "n"}]}));
    assert_eq!(got["secrets"], json!([{"name": "s"}]));

    let sets = resource("apps", "daemonsets", "DaemonSet", &["status"]);
    let old = created(&sets, json!({"metadata": {}, "spec": {"template": {"a": 1}}}));
    let key = "deprecated.daemonset.template.generation";
    assert_eq!(old["metadata"]["annotations"][key], "1");
    let got = updated(&sets, "", json!({"metadata": {}, "spec": {"template": {"a": 2}}}), &old);
    assert_eq!((&got["metadata"]["annotations"][key], &got["metadata"]["generation"]), (&json!("2"), &json!(2)));
    let got = updated(&sets, "status", json!({"metadata": {}, "status": {}}), &old);
    assert_eq!(got["metadata"]["annotations"][key], "1");

    let claims = resource("", "persistentvolumeclaims", "PersistentVolumeClaim", &["status"]);
    let source = json!({"kind": "PersistentVolumeClaim", "name": "other"});
    let got = created(&claims, json!({"metadata": {}, "spec": {"dataSource": source}}));
    assert_eq!(got["spec"]["dataSourceRef"], source);

    let crds = resource("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", &["status"]);
    let version = |name: &str, storage: bool| json!({"name": name, "storage": storage});
    let old = created(&crds, json!({"metadata": {}, "spec": {"versions": [version("v1", true)]}}));
    assert_eq!(old["status"]["storedVersions"], json!(["v1"]));
    let versions = json!([version("v1", false), version("v2", true)]);
    let got = updated(&crds, "", json!({"metadata": {}, "spec": {"versions": versions}}), &old);
    assert_eq!(got["status"]["storedVersions"], json!(["v1", "v2"]));

    let slices = resource("discovery.k8s.io", "endpointslices", "EndpointSlice", &[]);
    let old = json!({"metadata": {"generation": 1}, "endpoints": [], "ports": []});
    for (new, generation) in [
        (json!({"metadata": {"annotations": {"a": "b"}}, "endpoints": [], "ports": []}), 1),
        (json!({"metadata": {"labels": {"a": "b"}}, "endpoints": [], "ports": []}), 2),
        (json!({"metadata": {}, "endpoints": [{}], "ports": []}), 2),
    ] {
        assert_eq!(updated(&slices, "", new, &old)["metadata"]["generation"], generation);
    }
}

#[test]
fn pods_through_their_subresources() {
    let pods = resource("", "pods", "Pod", &["status", "resize", "ephemeralcontainers"]);
    let old =
        json!({"metadata": {"generation": 1}, "spec": {"containers": [{"name": "c", "image": "x", "resources": {}}]}});
    let wish = json!({"metadata": {}, "spec": {"containers": [{"name": "c", "image": "y", "resources": {"limits": {"cpu": "1"}}}],
        "ephemeralContainers": [{"name": "e"}]}});
    let got = updated(&pods, "resize", wish.clone(), &old);
    assert_eq!(got["spec"]["containers"], json!([{"name": "c", "image": "x", "resources": {"limits": {"cpu": "1"}}}]));
    assert!(got["spec"].get("ephemeralContainers").is_none());
    assert_eq!(got["metadata"]["generation"], 2);
    let got = updated(&pods, "ephemeralcontainers", wish, &old);
    assert_eq!(got["spec"]["containers"], old["spec"]["containers"]);
    assert_eq!(got["spec"]["ephemeralContainers"], json!([{"name": "e"}]));
}

#[test]
fn admission_of_other_kinds() {
    let class = |name: &str, time: &str, default: &str| {
        json!({"metadata": {"name": name, "creationTimestamp": time,
            "annotations": {"storageclass.kubernetes.io/is-default-class": default}}})
    };
    let classes = [
        class("old", "2020-01-01T00:00:00Z", "true"),
        class("new", "2021-01-01T00:00:00Z", "true"),
        class("newest", "2022-01-01T00:00:00Z", "false"),
    ];
    let mut claim = json!({"spec": {}});
    admission::default_storage_class(&mut claim, &classes);
    assert_eq!(claim["spec"]["storageClassName"], "new");
    let mut none = json!({"spec": {"storageClassName": ""}});
    admission::default_storage_class(&mut none, &classes);
    assert_eq!(none["spec"]["storageClassName"], "", "an empty class means no class");

    let mut pod = json!({"spec": {"nodeSelector": {"a": "b"}}});
    let runtime = json!({"overhead": {"podFixed": {"cpu": "1"}}, "scheduling": {"nodeSelector": {"c": "d"}}});
    assert_eq!(admission::runtime_class(&mut pod, &runtime), Ok(()));
    assert_eq!(pod["spec"], json!({"overhead": {"cpu": "1"}, "nodeSelector": {"a": "b", "c": "d"}}));
    let mut node = json!({});
    admission::taint_new_node(&mut node);
    admission::taint_new_node(&mut node);
    assert_eq!(node["spec"]["taints"].as_array().unwrap().len(), 1);
}

#[test]
fn what_a_write_warns_of() {
    let pods = resource("", "pods", "Pod", &[]);
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "nodeSelector": {"beta.kubernetes.io/os": "linux"},
        "containers": [{"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"},
                {"name": "A", "value": "$(A)3"}],
            "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP"}],
            "resources": {"limits": {"memory": "100m"}}}]}});
    assert_eq!(
        warnings(&pods, &pod, None),
        [
            "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            "spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
            "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
        ]
    );
    let mut workload = json!({"metadata": {"name": "d"}, "spec": {"template": pod}});
    let told = warnings(&deployment(), &workload, None);
    assert!(told[0].starts_with("spec.template.spec.nodeSelector[beta.kubernetes.io/os]: "), "{told:?}");
    assert!(warnings(&deployment(), &workload, Some(&workload)).is_empty(), "nothing new, nothing to say");
    workload["metadata"]["name"] = "a.b".into();
    assert!(warnings(&deployment(), &workload, None)[0].starts_with("metadata.name: this is used in Pod names"));

    let services = resource("", "services", "Service", &[]);
    for (spec, want) in [
        (
            json!({"type": "ClusterIP", "clusterIP": "None", "sessionAffinity": "ClientIP"}),
            "spec.SessionAffinity is ignored for headless services",
        ),
        (
            json!({"type": "ClusterIP", "externalName": "x"}),
            "spec.externalName is ignored when spec.type is not \"ExternalName\"",
        ),
        (
            json!({"type": "ClusterIP", "clusterIPs": ["010.0.0.1"]}),
            "spec.clusterIPs[0]: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\"",
        ),
        (
            json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.1/8"]}),
            "spec.loadBalancerSourceRanges[0]: CIDR value \"10.0.0.1/8\" is ambiguous in this context \
             (should be \"10.0.0.0/8\" or \"10.0.0.1/32\"?)",
        ),
    ] {
        assert_eq!(warnings(&services, &json!({"spec": spec}), None), [want]);
    }
    let quota = json!({"spec": {"hard": {"cpu": "2", "limits.cpu": "1500m", "requests.memory": "1Gi", "limits.memory": "2Gi"}}});
    let told = warnings(&resource("", "resourcequotas", "ResourceQuota", &[]), &quota, None);
    assert_eq!(told, ["ResourceQuota cpu (2) should be less than limits.cpu (1500m)"]);
    assert_eq!(deprecations(&resource("", "endpoints", "Endpoints", &[])).len(), 1);
    assert!(deprecations(&pods).is_empty());
}
