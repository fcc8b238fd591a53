//! Ownership on the built-in kinds.
#![allow(clippy::unwrap_used, reason = "a test")]

use patch::apply::{Context, apply, reset_fields, track_update};
use schema::builtin;
use selvedge_rules::convert::BuiltInVersions;
use serde_json::{Value, json};

const NOW: &str = "2026-01-02T03:04:05Z";

fn context<'a>(group: &str, version: &'a str, kind: &'a str, manager: &'a str) -> Context<'a> {
    Context {
        schema: builtin(),
        ty: builtin().of_kind(group, version.rsplit('/').next().unwrap(), kind).unwrap(),
        api_version: version,
        kind,
        manager,
        subresource: "",
        now: NOW,
        reset: reset_fields(group, "", "", true),
        versions: None,
    }
}

/// As it comes out of defaulting.
fn deployment() -> Value {
    json!({"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","namespace":"n","labels":{"app":"d"}},
        "spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"progressDeadlineSeconds":600,"revisionHistoryLimit":10,
        "strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"}},
        "template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c1","image":"i1","imagePullPolicy":"Always",
        "env":[{"name":"E","value":"1"}],"ports":[{"containerPort":80,"protocol":"TCP"}],"resources":{},
        "terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],
        "dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},
        "terminationGracePeriodSeconds":30}}},"status":{}})
}

#[test]
fn creating_a_deployment() {
    let mut new = deployment();
    track_update(&context("apps", "apps/v1", "Deployment", "kubectl-create"), None, &mut new);
    assert_eq!(
        new["metadata"]["managedFields"],
        json!([{"manager":"kubectl-create","operation":"Update","apiVersion":"apps/v1","time":NOW,"fieldsType":"FieldsV1",
        "fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:app":{}}},
            "f:spec":{"f:progressDeadlineSeconds":{},"f:replicas":{},"f:revisionHistoryLimit":{},"f:selector":{},
            "f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{},"f:maxUnavailable":{}},"f:type":{}},
            "f:template":{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c1\"}":{".":{},
                "f:env":{".":{},"k:{\"name\":\"E\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},
                "f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},
                "f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},
                "f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}}}}])
    );
}

#[test]
fn applying_a_deployment() {
    let config = json!({"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":0,"paused":true,
        "selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{
        "containers":[{"name":"c1","image":"i1","args":["x"],"ports":[{"containerPort":80}],"env":[{"name":"E","value":"1"}]}]}}}});
    let ctx = context("apps", "apps/v1", "Deployment", "one");
    let new = apply(&ctx, None, &config, false).unwrap();
    assert_eq!(
        new["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec":{"f:paused":{},"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{
            "f:containers":{"k:{\"name\":\"c1\"}":{".":{},"f:args":{},"f:env":{"k:{\"name\":\"E\"}":{".":{},"f:name":{},"f:value":{}}},
            "f:image":{},"f:name":{},"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}}})
    );
    let nameless = json!({"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"template":{"spec":{
        "containers":[{"image":"other"}]}}}});
    let two = Context { manager: "two", ..ctx };
    let after = apply(&two, Some(&new), &nameless, false).unwrap();
    assert_eq!(
        after["spec"]["template"]["spec"]["containers"][1],
        json!({"image":"other"}),
        "validation will refuse it"
    );
    let twice = json!({"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"template":{"spec":{
        "containers":[{"name":"c3","image":"a"},{"name":"c3","image":"b"}]}}}});
    assert_eq!(
        apply(&ctx, Some(&new), &twice, false).unwrap_err().message,
        "failed to create typed patch object (/d; apps/v1, Kind=Deployment): .spec.template.spec.containers: duplicate entries for key [name=\"c3\"]"
    );
}

#[test]
fn service_ports_are_keyed_by_port_and_protocol() {
    let config = json!({"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"selector":{"a":"b"},
        "ports":[{"name":"t","port":53,"protocol":"TCP"},{"name":"u","port":53,"protocol":"UDP"}]}});
    let ctx = context("", "v1", "Service", "one");
    let new = apply(&ctx, None, &config, false).unwrap();
    assert_eq!(
        new["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec":{"f:ports":{"k:{\"port\":53,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}},
            "k:{\"port\":53,\"protocol\":\"UDP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}}},"f:selector":{}}})
    );
    let fewer =
        json!({"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"ports":[{"name":"t","port":53}]}});
    let after = apply(&ctx, Some(&new), &fewer, false).unwrap();
    assert_eq!(after["spec"]["ports"], json!([{"name":"t","port":53}]), "defaulting adds the protocol again");
}

#[test]
fn managers_of_other_versions_keep_their_paths() {
    let mut live = json!({"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"h"},
        "spec":{"maxReplicas":3,"minReplicas":1,"scaleTargetRef":{"kind":"Deployment","name":"d"},"targetCPUUtilizationPercentage":50}});
    let one = context("autoscaling", "autoscaling/v1", "HorizontalPodAutoscaler", "one");
    track_update(&one, None, &mut live);
    let hpa = BuiltInVersions { kind: "HorizontalPodAutoscaler", api_version: "autoscaling/v2" };
    live = patch::apply::Versions::convert(
        &BuiltInVersions { api_version: "autoscaling/v1", ..hpa },
        &live,
        "autoscaling/v2",
    )
    .unwrap()
    .0;
    live["metadata"]["uid"] = json!("u");
    let two = context("autoscaling", "autoscaling/v2", "HorizontalPodAutoscaler", "two");
    let mut new = live.clone();
    new["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] = json!(70);
    track_update(&Context { versions: Some(&hpa), ..two }, Some(&live), &mut new);
    let entries = &new["metadata"]["managedFields"];
    assert_eq!(entries[0]["apiVersion"], "autoscaling/v1");
    assert_eq!(
        entries[0]["fieldsV1"],
        json!({"f:spec":{"f:maxReplicas":{},"f:minReplicas":{},"f:scaleTargetRef":{}}}),
        "the percentage is the other's now"
    );
    assert_eq!(entries[1]["fieldsV1"], json!({"f:spec":{"f:metrics":{}}}));
}

/// The second step of the reference transcript about custom resources, with what the first ones left.
#[test]
fn lists_of_custom_resources_are_keyed() {
    let definition = json!({"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.example.com"},
        "spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"gadgets","singular":"gadget","kind":"Gadget","listKind":"GadgetList"},
        "versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
            "spec":{"type":"object","properties":{"size":{"type":"integer"},"any":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
            "maybe":{"type":"string","nullable":true},"strings":{"type":"object","additionalProperties":{"type":"string"}},
            "tags":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
            "items":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"items":{"type":"object","required":["name"],
                "properties":{"name":{"type":"string"},"value":{"type":"integer","default":7}}}}}},
            "status":{"type":"object","properties":{"phase":{"type":"string"}}}}}}}]}});
    let compiled = selvedge_rules::crd::Definition::compile(&definition).unwrap();
    let body = compiled.versions[0].body();
    let (schema, ty) = (&body.schema, body.ty);
    let ctx = Context {
        schema,
        ty,
        api_version: "example.com/v1",
        kind: "Gadget",
        ..context("", "v1", "ConfigMap", "probe")
    };
    let mut live = json!({"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"a","labels":{"x":"y"}},"spec":{"size":7,
        "any":{"kept":{"deep":[1]}},"items":[{"name":"x","value":7},{"name":"y","value":1}],"maybe":null,"strings":{"k":"v"}}});
    track_update(&ctx, None, &mut live);
    assert_eq!(
        live["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:metadata":{"f:labels":{".":{},"f:x":{}}},"f:spec":{".":{},"f:any":{".":{},"f:kept":{".":{},"f:deep":{}}},
            "f:items":{".":{},"k:{\"name\":\"x\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"y\"}":{".":{},"f:name":{},"f:value":{}}},
            "f:maybe":{},"f:size":{},"f:strings":{".":{},"f:k":{}}}})
    );
    live["metadata"]["uid"] = json!("u");
    let config = json!({"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"a"},"spec":{"items":[{"name":"p"}],"tags":["t1"]}});
    let after = apply(&Context { manager: "one", ..ctx }, Some(&live), &config, false).unwrap();
    assert_eq!(
        after["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec":{"f:items":{"k:{\"name\":\"p\"}":{".":{},"f:name":{}}},"f:tags":{"v:\"t1\"":{}}}})
    );
    assert_eq!(after["spec"]["items"], json!([{"name":"x","value":7},{"name":"y","value":1},{"name":"p"}]));
}

/// Not a test of speed by itself: `cargo test -p selvedge-api --release -- --ignored --nocapture speed`.
#[test]
#[ignore = "prints timings"]
fn speed() {
    let text = "x".repeat(100);
    let data: serde_json::Map<_, _> = (0..10).map(|i| (format!("key{i}"), Value::from(text.clone()))).collect();
    let config_map = json!({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"n"},"data":data});
    let cases = [
        (config_map, context("", "v1", "ConfigMap", "m")),
        (deployment(), context("apps", "apps/v1", "Deployment", "m")),
    ];
    for (object, ctx) in cases {
        let rounds = 20_000u32;
        let time = |what: &str, mut each: Box<dyn FnMut() + '_>| {
            let start = std::time::Instant::now();
            for _ in 0..rounds {
                each();
            }
            println!("{} {what}: {:?}", ctx.kind, start.elapsed() / rounds);
        };
        time("clone", Box::new(|| drop(std::hint::black_box(object.clone()))));
        time(
            "clone + create",
            Box::new(|| {
                let mut new = object.clone();
                track_update(&ctx, None, &mut new);
                std::hint::black_box(new);
            }),
        );
        let mut live = object.clone();
        track_update(&ctx, None, &mut live);
        live["metadata"]["uid"] = json!("u");
        let mut changed = live.clone();
        changed["metadata"]["labels"] = json!({"new": "label"});
        let other = Context { manager: "other", ..ctx };
        time("clone", Box::new(|| drop(std::hint::black_box(changed.clone()))));
        time(
            "clone + update",
            Box::new(|| {
                let mut new = changed.clone();
                track_update(&other, Some(&live), &mut new);
                std::hint::black_box(new);
            }),
        );
        let mut config = object.clone();
        config.as_object_mut().unwrap().remove("status");
        time("apply", Box::new(|| drop(std::hint::black_box(apply(&other, Some(&live), &config, true)))));
    }
}
