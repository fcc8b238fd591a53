//! What is reported of the edge's own.

use std::sync::Arc;

use link::{Holding, Position, Report, Version};
use serde_json::json;
use store::MemoryStore;

use super::*;
use crate::{book::TOLD, report, whole};

const AT: Position = Position { incarnation: 1, revision: 50 };
const CONFIG: &str = "edge.kcp.io/syncerconfigs//the-one";
const MINE: &str = "core/configmaps/default/mine";

fn config(spec: Value) -> Value {
    json!({"kind": "SyncerConfig", "apiVersion": "edge.kcp.io/v1alpha1", "metadata": {"name": "the-one",
        "labels": {names::PROJECTED: "yes"}}, "spec": spec})
}

fn maps(names: &[&str]) -> Value {
    json!({"upsync": [{"apiGroup": "", "resources": ["configmaps"], "namespaces": ["default"], "names": names}]})
}

fn own(name: &str, data: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"k": data}, "metadata": {"name": name, "namespace": "default",
        "uid": name, "managedFields": [{"manager": "kubectl"}]}})
}

impl Edge {
    /// What the driver would do until nothing is to be said any more: everything that is reported, in order.
    async fn settle(&self) -> Vec<Report> {
        let mut said = Vec::new();
        loop {
            let mut keys: std::collections::BTreeSet<Key> = self.book().take_changed().into_iter().collect();
            if self.book().take_look_again() {
                keys.extend(whole::candidates(self.server(), self.book()));
            }
            let reports: Vec<Report> = keys.iter().filter_map(|key| self.view().report(key)).collect();
            let promised = self.book().take_promised();
            whole::promise(self.server(), self.book(), &promised).await.unwrap();
            if let Some(left) = self.book().take_left_out() {
                whole::say_left_out(self.server(), &left).await;
            }
            let acks: Vec<(Key, Version)> = reports.iter().map(|report| (report.key.clone(), report.version)).collect();
            let nothing = keys.is_empty() && promised.is_empty();
            report::acked(self.server(), self.book(), AT, &acks).await.unwrap();
            said.extend(reports);
            if nothing {
                return said;
            }
        }
    }

    fn told(&self) -> usize {
        self.server().cache.snapshot(TOLD).items.len()
    }
}

fn object(report: &Report) -> Value {
    serde_json::from_slice::<Value>(report.state.as_ref().unwrap()).unwrap()["object"].take()
}

fn of<'a>(said: &'a [Report], key: &str) -> Vec<&'a Report> {
    said.iter().filter(|report| &*report.key == key).collect()
}

#[tokio::test]
async fn what_is_asked_for_comes_whole_and_is_taken_back() {
    let store = Arc::new(MemoryStore::default());
    let edge = edge(store.clone()).await;
    edge.write(MINE, &own("mine", "1")).await;
    edge.write("core/configmaps/default/other", &own("other", "1")).await;
    assert_eq!(edge.settle().await, [], "nobody has asked");
    assert_eq!(edge.told(), 0);

    edge.apply(&[(CONFIG, Some(config(maps(&["mine", "late"]))))]).await.unwrap();
    let said = edge.settle().await;
    assert_eq!(said.len(), 1, "{said:?}");
    let mut want = own("mine", "1");
    want["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!(object(&said[0]), want);
    // What comes later, what changes, what goes.
    edge.write("core/configmaps/default/late", &own("late", "1")).await;
    edge.write(MINE, &own("mine", "2")).await;
    edge.write("core/configmaps/default/other", &own("other", "2")).await;
    let said = edge.settle().await;
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(edge.settle().await, []);
    edge.delete("core/configmaps/default/late").await;
    let gone = edge.settle().await;
    assert_eq!((gone.len(), &*gone[0].key, &gone[0].state), (1, "core/configmaps/default/late", &None));
    assert!(gone[0].version > of(&said, "core/configmaps/default/late")[0].version);
    assert_eq!(edge.told(), 1);

    // Another start says nothing twice, and nothing is forgotten that happened in between.
    let again = super::edge(store.clone()).await;
    assert_eq!(again.settle().await, []);
    // Nobody asks any more.
    again.apply(&[(CONFIG, Some(config(maps(&["other"]))))]).await.unwrap();
    let said = again.settle().await;
    assert_eq!(of(&said, MINE)[0].state, None);
    assert_eq!(object(of(&said, "core/configmaps/default/other")[0])["data"]["k"], "2");
    again.apply(&[(CONFIG, None)]).await.unwrap();
    assert_eq!(again.settle().await.iter().filter(|report| report.state.is_none()).count(), 1);
    assert_eq!(again.told(), 0);
    assert!(again.get(MINE).is_some(), "it is the edge's");
}

#[tokio::test]
async fn a_report_that_nobody_acked_is_taken_back_too() {
    let store = Arc::new(MemoryStore::default());
    let edge = edge(store.clone()).await;
    edge.apply(&[(CONFIG, Some(config(maps(&["mine"]))))]).await.unwrap();
    edge.settle().await;
    edge.write(MINE, &own("mine", "1")).await;
    assert_eq!(edge.view().report(MINE), None, "first it is written down");
    whole::promise(edge.server(), edge.book(), &edge.book().take_promised()).await.unwrap();
    let sent = edge.view().report(MINE).unwrap();
    // The edge dies before it hears of it, and the object is deleted.
    edge.delete(MINE).await;
    let again = super::edge(store).await;
    let said = again.settle().await;
    let gone = of(&said, MINE);
    assert!(gone.len() == 1 && gone[0].state.is_none() && gone[0].version > sent.version, "{said:?}");
    assert_eq!(again.view().report(MINE), None);
}

#[tokio::test]
async fn what_came_to_be_because_of_placed_objects() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    edge.apply(&[(WEB, Some(deployment("nginx:1")))]).await.unwrap();
    let uid = edge.get(WEB).unwrap()["metadata"]["uid"].clone();
    let owned = |kind: &str, version: &str, name: &str, owner: Value| {
        json!({"kind": kind, "apiVersion": version, "metadata": {"name": name, "namespace": "default", "uid": name,
            "ownerReferences": [owner]}})
    };
    let by = |kind: &str, version: &str, name: &str, uid: &Value| json!({"kind": kind, "apiVersion": version, "name": name, "uid": uid, "controller": true});
    let set = owned("ReplicaSet", "apps/v1", "web-1", by("Deployment", "apps/v1", "web", &uid));
    edge.write("apps/replicasets/default/web-1", &set).await;
    edge.write(
        "core/pods/default/web-1-a",
        &owned("Pod", "v1", "web-1-a", by("ReplicaSet", "apps/v1", "web-1", &json!("web-1"))),
    )
    .await;
    edge.write(
        "core/pods/default/b",
        &owned("Pod", "v1", "b", by("ReplicaSet", "apps/v1", "web-1", &json!("another"))),
    )
    .await;
    edge.write(
        "core/pods/default/c",
        &json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "c", "namespace": "default"}}),
    )
    .await;
    assert_eq!(edge.settle().await, []);
    edge.apply(&[(CONFIG, Some(config(json!({"associated": {"namespaces": ["default"]}}))))]).await.unwrap();
    let mut said: Vec<String> = edge.settle().await.iter().map(|report| report.key.to_string()).collect();
    said.sort_unstable();
    assert_eq!(said, ["apps/replicasets/default/web-1", "core/pods/default/web-1-a"]);
    // The center takes the owner away: the rest is the edge's own affair.
    edge.apply(&[(WEB, None)]).await.unwrap();
    let said = edge.settle().await;
    for key in ["apps/replicasets/default/web-1", "core/pods/default/web-1-a"] {
        assert!(of(&said, key).last().unwrap().state.is_none(), "{key}");
    }
    assert_eq!(edge.told(), 0);
}

#[tokio::test]
async fn there_is_a_limit_and_it_is_said_what_is_left_out() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    edge.write("core/configmaps/default/large", &own("large", &"x".repeat(kinds::upsync::LARGEST))).await;
    edge.write(MINE, &own("mine", "1")).await;
    edge.apply(&[(CONFIG, Some(config(maps(&["*"]))))]).await.unwrap();
    let said = edge.settle().await;
    assert_eq!(of(&said, "core/configmaps/default/large"), [] as [&Report; 0]);
    assert_eq!(of(&said, MINE).len(), 1);
    let left = edge.get(CONFIG).unwrap()["status"]["leftOut"].clone();
    assert_eq!(left, json!(["core/configmaps/default/large: it is too large"]));
    assert!(of(&said, CONFIG).last().is_some_and(|report| report.state.is_some()), "and the center hears of it");
    edge.write("core/configmaps/default/large", &own("large", "small")).await;
    edge.settle().await;
    assert!(edge.get(CONFIG).unwrap()["status"].get("leftOut").is_none());
}

#[tokio::test]
async fn what_the_center_sends_later_takes_the_place_of_what_was_reported() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    edge.apply(&[(CONFIG, Some(config(maps(&["mine"]))))]).await.unwrap();
    edge.write(MINE, &own("mine", "1")).await;
    edge.settle().await;
    assert_eq!(
        edge.refused(&[(MINE, Some(map("mine", "center")))]).await.len(),
        1,
        "what goes up beats what comes down"
    );
    edge.delete(MINE).await;
    edge.apply(&[(MINE, Some(map("mine", "center")))]).await.unwrap();
    let said = edge.settle().await;
    assert_eq!(
        of(&said, MINE).last().unwrap().state.as_deref(),
        Some(&b"{}"[..]),
        "the center's report was of another one"
    );
    assert_eq!(edge.told(), 0);
}
