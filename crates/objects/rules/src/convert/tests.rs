use serde_json::{Value, json};

use super::{convert, storage};

const V1: (&str, &str) = ("autoscaling", "v1");
const V2: (&str, &str) = ("autoscaling", "v2");
const CORE: (&str, &str) = ("", "v1");
const EVENTS: (&str, &str) = ("events.k8s.io", "v1");

fn converted(kind: &str, from: (&str, &str), to: (&str, &str), mut obj: Value) -> Value {
    convert(kind, from, to, &mut obj).unwrap();
    obj
}

#[test]
fn where_objects_are_stored() {
    for (group, resource, want) in [
        ("events.k8s.io", "events", ("", "v1")),
        ("", "events", ("", "v1")),
        ("autoscaling", "horizontalpodautoscalers", ("autoscaling", "v2")),
        ("apps", "deployments", ("apps", "v1")),
    ] {
        assert_eq!(storage(group, resource), want, "{group} {resource}");
    }
}

#[test]
fn unknown_pairs_are_refused() {
    let error = convert("Pod", CORE, ("", "v2"), &mut json!({})).unwrap_err();
    assert_eq!(error, "Pod cannot be converted from v1 to v2");
    assert_eq!(convert("Pod", CORE, CORE, &mut json!({"kind": "Pod"})), Ok(()));
}

#[test]
fn events() {
    let given = json!({"apiVersion": "events.k8s.io/v1", "regarding": {"name": "p"}, "note": "n", "reason": "R",
        "eventTime": "2020-01-02T03:04:05.000000Z", "reportingController": "c", "reportingInstance": "i"});
    let core = converted("Event", EVENTS, CORE, given);
    assert_eq!(
        core,
        json!({"apiVersion": "v1", "involvedObject": {"name": "p"}, "message": "n", "reason": "R", "source": {},
            "eventTime": "2020-01-02T03:04:05.000000Z", "firstTimestamp": null, "lastTimestamp": null,
            "reportingComponent": "c", "reportingInstance": "i"})
    );
    let back = converted("Event", CORE, EVENTS, core);
    assert_eq!(back["deprecatedFirstTimestamp"], Value::Null);
    assert_eq!(back["note"], "n");
    assert_eq!(back["regarding"], json!({"name": "p"}));
    let plain = converted("Event", CORE, EVENTS, json!({"reportingComponent": "", "reportingInstance": ""}));
    assert!(plain.get("reportingController").is_none() && plain.get("reportingInstance").is_none());
}

#[test]
fn autoscaler_from_v1() {
    let v2 = converted(
        "HorizontalPodAutoscaler",
        V1,
        V2,
        json!({"spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}, "status": {"currentReplicas": 0}}),
    );
    assert_eq!(
        v2["spec"]["metrics"],
        json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}])
    );
    assert_eq!(v2["status"], json!({"desiredReplicas": 0, "currentMetrics": null}));
    let bare = converted("HorizontalPodAutoscaler", V1, V2, json!({"spec": {"maxReplicas": 3}}));
    assert_eq!(bare["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
}

#[test]
fn autoscaler_goes_round() {
    let metrics = json!([
        {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
        {"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "5"}}},
        {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "s"}, "metric": {"name": "m"},
            "target": {"type": "AverageValue", "averageValue": "2"}}},
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
    ]);
    let v2 = json!({"metadata": {"name": "h"}, "spec": {"minReplicas": 1, "maxReplicas": 3, "metrics": metrics,
        "behavior": {"scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
                "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]},
            "scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}}},
        "status": {"desiredReplicas": 0, "currentMetrics": null,
            "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": null}]}});
    let v1 = converted("HorizontalPodAutoscaler", V2, V1, v2.clone());
    assert_eq!(v1["spec"]["targetCPUUtilizationPercentage"], 60);
    assert!(v1["spec"].get("metrics").is_none());
    let annotations = &v1["metadata"]["annotations"];
    assert_eq!(
        annotations["autoscaling.alpha.kubernetes.io/metrics"],
        "[{\"type\":\"Pods\",\"pods\":{\"metricName\":\"rps\",\"targetAverageValue\":\"10\"}},\
         {\"type\":\"External\",\"external\":{\"metricName\":\"q\",\"targetValue\":\"5\"}},\
         {\"type\":\"Object\",\"object\":{\"target\":{\"kind\":\"Service\",\"name\":\"s\"},\"metricName\":\"m\",\
         \"targetValue\":\"0\",\"averageValue\":\"2\"}}]"
    );
    assert!(annotations["autoscaling.alpha.kubernetes.io/behavior"].as_str().unwrap().starts_with(
        "{\"ScaleUp\":{\"StabilizationWindowSeconds\":0,\"SelectPolicy\":\"Max\",\"Policies\":[{\"Type\":\"Pods\","
    ));
    let mut back = converted("HorizontalPodAutoscaler", V1, V2, v1);
    back.as_object_mut().unwrap().remove("apiVersion");
    assert_eq!(back, v2);
}
