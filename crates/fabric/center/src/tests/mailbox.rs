//! Mailboxes over a real center.

use futures::StreamExt;
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt, Full};
use identity::User;

use super::*;
use crate::mailbox::Open;

const KEY: &str = "core/configmaps/default/a";
const MAP: &str = "/api/v1/namespaces/default/configmaps/a";
const MAPS: &str = "/api/v1/configmaps";

async fn read(center: &Center, edge: &str, path: &str) -> (u16, Value) {
    let edge = center.fleet.edges.get(&EdgeId::new("root", edge)).unwrap();
    let mailbox = Open::at(&center.fleet, center.server(), &edge).await.unwrap();
    let response = mailbox.read(path, HeaderMap::new()).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

async fn wait_for(center: &Center, path: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let (code, value) = read(center, "florin", path).await;
        if code == 200 && is(&value) {
            return value;
        }
        assert!(Instant::now() < end, "waited in vain for {what}: {code} {value}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Asks an edge for objects of its own; returns when it was told so.
async fn ask_for(center: &Center, edge: &TestEdge, name: &str, upsync: Value) {
    let hand = center.hand();
    let kind = |group: &str, resource: &str| hand.kind(group, "v1alpha1", resource).unwrap();
    let label = |value: &mut Value| value["metadata"]["labels"]["id"] = name.into();
    hand.change(&kind("workload.kcp.io", "synctargets"), "", name, "", label).await.unwrap();
    let location = json!({"metadata": {"name": name, "labels": {"asked": "yes"}}, "spec": {
        "resource": {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"},
        "instanceSelector": {"matchLabels": {"id": name}}}});
    hand.ensure(&kind("scheduling.kcp.io", "locations"), "", location).await.unwrap();
    let placement = json!({"metadata": {"name": "asks"}, "spec": {"locationSelectors": [{"matchLabels": {"asked": "yes"}}],
        "namespaceSelector": {"matchLabels": {"nobody": "has-it"}}, "upsync": upsync}});
    hand.ensure(&kind("edge.kcp.io", "edgeplacements"), "", placement).await.unwrap();
    let config = || content(edge, "edge.kcp.io/syncerconfigs//the-one");
    until("the edge to be asked", || config()["spec"]["upsync"].as_array().is_some_and(|all| !all.is_empty())).await;
}

fn revision(value: &Value) -> u64 {
    value["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shows_what_an_edge_shall_hold_and_how_it_fares() {
    let center = Center::new().await;
    center.config("a", "1").await;
    let florin = center.join("florin").await;
    let (code, first) = read(&center, "florin", MAP).await;
    assert_eq!((code, &first["data"]["a"]), (200, &json!("1")), "{first}");
    assert_eq!(first["metadata"]["annotations"][names::SOURCE], "root");
    let kind = center.hand().kind("", "v1", "configmaps").unwrap();
    let source = center.hand().get(&kind, "default", "a").unwrap().value();
    assert_eq!(first["metadata"]["creationTimestamp"], source["metadata"]["creationTimestamp"]);
    assert_ne!(first["metadata"]["uid"], source["metadata"]["uid"]);

    center.config("a", "2").await;
    let changed = wait_for(&center, MAP, "the edit", |map| map["data"]["a"] == "2").await;
    assert_eq!(changed["metadata"]["uid"], first["metadata"]["uid"]);
    assert!(revision(&changed) > revision(&first));
    florin.report(KEY, Some(r#"{"status":{"ready":1}}"#));
    let fares = wait_for(&center, MAP, "the status", |map| map["status"]["ready"] == 1).await;
    // It stays when the spec changes, and goes when the edge takes it back.
    center.config("a", "3").await;
    let changed = wait_for(&center, MAP, "the edit", |map| map["data"]["a"] == "3").await;
    assert_eq!(changed["status"]["ready"], 1);
    florin.report(KEY, Some("{}"));
    wait_for(&center, MAP, "no status", |map| map["status"].is_null()).await;

    // Nobody looks: it is let go, and comes back as it was.
    center.fleet.open.let_go();
    assert_eq!(center.fleet.open.count(), 0);
    let (_, list) = read(&center, "florin", MAPS).await;
    assert_eq!(list["items"][0]["metadata"]["uid"], first["metadata"]["uid"]);
    assert!(revision(&list) > revision(&fares), "revisions never go back");
    let old = format!("{MAPS}?watch=1&resourceVersion={}", revision(&first));
    let (_, event) = read(&center, "florin", &old).await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)), "{event}");
    center.delete("", "v1", "configmaps", "default", "a").await;
    wait_for(&center, MAPS, "the deletion", |list| list["items"] == json!([])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_watches_keeps_it_open_and_hears_of_everything() {
    let center = Center::new().await;
    center.config("a", "1").await;
    let florin = center.join("florin").await;
    let maps = json!([{"apiGroup": "", "resources": ["configmaps"], "namespaces": ["default"], "names": ["b"]}]);
    ask_for(&center, &florin, "florin", maps).await;
    let edge = center.fleet.edges.get(&EdgeId::new("root", "florin")).unwrap();
    let mailbox = Open::at(&center.fleet, center.server(), &edge).await.unwrap();
    let response = mailbox.read(&format!("{MAPS}?watch=1"), HeaderMap::new()).await.unwrap();
    let mut events = response.into_body().into_data_stream();
    let mut next = async || -> (Value, Value) {
        let piece = tokio::time::timeout(Duration::from_secs(10), events.next()).await.unwrap().unwrap().unwrap();
        let event: Value = serde_json::from_slice(piece.split(|b| *b == b'\n').next().unwrap()).unwrap();
        (event["type"].clone(), event["object"].clone())
    };
    assert_eq!(next().await.0, "ADDED");
    center.fleet.open.let_go();
    assert_eq!(center.fleet.open.count(), 1);
    center.config("a", "2").await;
    let (kind, object) = next().await;
    assert_eq!((kind, &object["data"]["a"]), (json!("MODIFIED"), &json!("2")));
    florin.report(KEY, Some(r#"{"status":{"x":1}}"#));
    let (kind, object) = next().await;
    assert_eq!((kind, &object["status"]["x"]), (json!("MODIFIED"), &json!(1)));
    // What the edge made itself comes whole, beats what was placed, and goes.
    let up = r#"{"object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b","namespace":"default","uid":"edge"},"data":{"k":"v"}}}"#;
    florin.report("core/configmaps/default/b", Some(up));
    let (kind, object) = next().await;
    assert_eq!((kind, &object["metadata"]["labels"][names::UPSYNCED]), (json!("ADDED"), &json!("yes")));
    assert_eq!((&object["data"]["k"], &object["metadata"]["uid"]), (&json!("v"), &json!("edge")));
    florin.report("core/configmaps/default/b", None);
    assert_eq!(next().await.0, "DELETED");
    drop(events);
    center.fleet.open.let_go();
    assert_eq!(center.fleet.open.count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_kinds_are_served_with_their_definitions() {
    let center = Center::new().await;
    let florin = center.join("florin").await;
    let definition = json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "cogs.group2.test", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"group": "group2.test", "scope": "Cluster",
            "names": {"plural": "cogs", "singular": "cog", "kind": "Cog", "listKind": "CogList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let cog = json!({"object": {"kind": "Cog", "apiVersion": "group2.test/v1", "metadata": {"name": "william"}, "spec": {"teeth": 7}}});
    let cogs = "/apis/group2.test/v1/cogs";
    ask_for(&center, &florin, "florin", json!([{"apiGroup": "group2.test", "resources": ["cogs"], "names": ["*"]}]))
        .await;
    assert_eq!(read(&center, "florin", cogs).await.0, 404);
    // The object may come before what defines it.
    florin.report("group2.test/cogs//william", Some(String::leak(cog.to_string())));
    until("the ack", || florin.pending_reports() == 0).await;
    let definition = String::leak(json!({"object": definition}).to_string());
    florin.report("apiextensions.k8s.io/customresourcedefinitions//cogs.group2.test", Some(definition));
    let found = wait_for(&center, cogs, "the cog", |list| !list["items"].as_array().is_none_or(Vec::is_empty)).await;
    assert_eq!(found["items"][0]["spec"]["teeth"], 7);
    assert_eq!(read(&center, "florin", "/apis/group2.test/v1").await.1["resources"][0]["name"], "cogs");
}

/// Through the door that everybody takes.
async fn ask(center: &Center, user: &User, method: &str, path: &str) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
    let request = request.body(Full::new("{}".into())).unwrap();
    let response = center.server().clone().request_as(user.clone(), request).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_those_who_may_look_and_nobody_writes() {
    let center = Center::new().await;
    center.config("a", "1").await;
    let florin = center.join("florin").await;
    let uid = center.target("florin")["metadata"]["uid"].as_str().unwrap().to_owned();
    let at = |uid: &str, path: &str| format!("/clusters/{}{path}", kinds::mailbox::path("root", uid));
    let admin = User { name: "admin".into(), groups: vec!["system:masters".into()], ..User::default() };
    let jane = User { name: "jane".into(), groups: vec!["system:authenticated".into()], ..User::default() };

    until("its workspace", || center.fleet.of_mailbox(&kinds::mailbox::path("root", &uid)).is_some()).await;
    until("its session", || center.fleet.is_connected(&EdgeId::new("root", "florin"))).await;

    let (code, list) = ask(&center, &admin, "GET", &at(&uid, MAPS)).await;
    assert_eq!((code, &list["items"][0]["data"]["a"]), (200, &json!("1")), "{list}");
    for path in [MAPS, "/apis", "/api/v1/namespaces/default/pods/x/log"] {
        for uid in [uid.as_str(), "nobody"] {
            assert_eq!(ask(&center, &jane, "GET", &at(uid, path)).await.0, 403, "{path} {uid}");
        }
    }
    assert_eq!(ask(&center, &admin, "GET", &at("nobody", MAPS)).await.0, 404);
    let elsewhere = format!("/clusters/{}{MAPS}", kinds::mailbox::path("root:other", &uid));
    assert_eq!(ask(&center, &admin, "GET", &elsewhere).await.0, 404);
    assert_eq!(ask(&center, &admin, "GET", &at(&uid, &format!("/clusters/root{MAPS}"))).await.0, 404);

    for (method, path) in [("PUT", MAP), ("PATCH", MAP), ("DELETE", MAP)] {
        let (code, status) = ask(&center, &admin, method, &at(&uid, path)).await;
        let message = status["message"].as_str().unwrap();
        assert!(code == 405 && message.contains("edit ConfigMap default/a in the workspace root,"), "{code} {message}");
    }
    let (code, status) = ask(&center, &admin, "POST", &at(&uid, "/api/v1/namespaces/default/configmaps")).await;
    assert!(code == 405 && status["message"].as_str().unwrap().contains("EdgePlacement"), "{status}");
    drop(florin);
    until("the end of its session", || !center.fleet.is_connected(&EdgeId::new("root", "florin"))).await;
    let (code, status) = ask(&center, &admin, "GET", &at(&uid, "/api/v1/namespaces/default/pods/x/log")).await;
    assert!(code == 503 && status["message"].as_str().unwrap().contains("is not connected since"), "{status}");
}
