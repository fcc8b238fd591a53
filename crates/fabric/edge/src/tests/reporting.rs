//! What is reported, and when no more.

use std::sync::Arc;

use link::{Holding, Position, Version};
use serde_json::json;
use store::MemoryStore;

use super::*;
use crate::report;

const AT: Position = Position { incarnation: 1, revision: 50 };

async fn ack(edge: &Edge, key: &str, version: Version) {
    report::acked(edge.server(), edge.book(), AT, &[(key.into(), version)]).await.unwrap();
}

#[tokio::test]
async fn a_state_is_reported_until_it_is_acked() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    edge.apply(&[(WEB, Some(deployment("nginx:1")))]).await.unwrap();
    assert_eq!(edge.view().report(WEB), None, "nothing to say yet");
    edge.edit(WEB, |value| value["status"] = json!({"replicas": 1})).await;
    let first = edge.view().report(WEB).unwrap();
    assert_eq!(first.state.as_deref(), Some(&br#"{"status":{"replicas":1}}"#[..]));
    // It changes while the report is under way: the ack is of the former state.
    edge.edit(WEB, |value| value["status"] = json!({"replicas": 2})).await;
    let second = edge.view().report(WEB).unwrap();
    assert!(second.version > first.version);
    ack(&edge, WEB, first.version).await;
    assert!(edge.view().report(WEB).is_some());
    ack(&edge, WEB, edge.view().report(WEB).unwrap().version).await;
    assert_eq!(edge.view().report(WEB), None);
    assert_eq!(edge.book().progress().seen(), Some(AT));
    // Another spec is no other state, and another start knows what was acked.
    edge.apply(&[(WEB, Some(deployment("nginx:2")))]).await.unwrap();
    assert_eq!(edge.view().report(WEB), None);
    let again = super::edge(edge.server().cache.store().clone()).await;
    assert_eq!(again.view().report(WEB), None);
    assert!(again.book().take_changed().iter().any(|key| &**key == WEB), "everything is looked at after a start");
    // A status that is gone is news too.
    edge.edit(WEB, |value| value["status"] = json!({})).await;
    assert_eq!(edge.view().report(WEB).unwrap().state.as_deref(), Some(&b"{}"[..]));
}

#[tokio::test]
async fn what_is_gone_is_reported_once() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    edge.apply(&[(WEB, Some(deployment("nginx:1")))]).await.unwrap();
    edge.edit(WEB, |value| value["status"] = json!({"replicas": 1})).await;
    ack(&edge, WEB, edge.view().report(WEB).unwrap().version).await;
    let before = edge.view().report(WEB);
    assert_eq!(before, None);
    edge.apply(&[(WEB, None)]).await.unwrap();
    let gone = edge.view().report(WEB).unwrap();
    assert_eq!(gone.state, None);
    // It comes back before anybody heard: the center's report is of another object.
    edge.apply(&[(WEB, Some(deployment("nginx:1")))]).await.unwrap();
    let back = edge.view().report(WEB).unwrap();
    assert!(back.version > gone.version && back.state.as_deref() == Some(b"{}"));
    edge.apply(&[(WEB, None)]).await.unwrap();
    let gone = edge.view().report(WEB).unwrap();
    assert!(gone.version > back.version && gone.state.is_none());
    ack(&edge, WEB, gone.version).await;
    assert_eq!(edge.view().report(WEB), None);
    // What never had a state leaves nothing behind.
    edge.apply(&[(WEB, Some(deployment("nginx:1")))]).await.unwrap();
    edge.apply(&[(WEB, None)]).await.unwrap();
    assert_eq!(edge.view().report(WEB), None);
}

#[tokio::test]
async fn another_center_hears_everything_anew() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    edge.apply(&[(WEB, Some(deployment("nginx:1")))]).await.unwrap();
    edge.edit(WEB, |value| value["status"] = json!({"replicas": 1})).await;
    let before = edge.view().report(WEB).unwrap().version;
    ack(&edge, WEB, before).await;
    let position = Position { incarnation: 2, revision: 3 };
    let batch = Batch { session: 1, seq: 1, position, adopt: true, changes: Vec::new() };
    crate::apply::apply(edge.server(), edge.book(), &batch).await.unwrap();
    let report = edge.view().report(WEB).unwrap();
    assert!(report.version > edge.view().floor() && edge.view().floor() > before);
    assert_eq!(edge.view().seen(), Some(position));
}
