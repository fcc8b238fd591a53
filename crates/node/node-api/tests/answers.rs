//! What is asked and answered at once, and logs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where it is not as it should be")]

mod fake;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn get(logs: &std::path::Path, path: &str) -> (u16, String) {
    let (node, _) = fake::node(logs.to_owned());
    let mut io = node.connect();
    io.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut text = String::new();
    io.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn logs_of_both_runs() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("0.log"), "2026-01-02T03:04:05.000000000Z stdout F before\n").unwrap();
    std::fs::write(
        dir.path().join("1.log"),
        "2026-01-02T03:04:05.000000000Z stdout F one\n2026-01-02T03:04:06.000000000Z stderr F two\n",
    )
    .unwrap();
    for (query, expected) in [
        ("", (200, "one\ntwo\n")),
        ("?previous=true", (200, "before\n")),
        ("?tailLines=1&timestamps=true", (200, "2026-01-02T03:04:06.000000000Z two\n")),
        ("?follow=true&previous=true", (200, "before\n")),
        ("?tailLines=x", (422, "{\"message\": \"Invalid request: tailLines: \"x\" is no number from 0 on\"}")),
    ] {
        let (code, body) = get(dir.path(), &format!("/containerLogs/default/web/app{query}")).await;
        assert_eq!((code, body.as_str()), expected, "{query}");
    }
    assert_eq!(get(dir.path(), "/containerLogs/default/none/app").await, (404, "pod \"none\" does not exist\n".into()));
    assert_eq!(
        get(dir.path(), "/containerLogs/default/web/x").await,
        (404, "container \"x\" not found in pod \"web\"\n".into())
    );
    assert_eq!(get(dir.path(), "/logs/0.log").await.1, "2026-01-02T03:04:05.000000000Z stdout F before\n");
}

#[tokio::test]
async fn what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(get(dir.path(), "/healthz").await, (200, "ok".into()));
    for path in ["/pods", "/runningpods/"] {
        let list: Value = serde_json::from_str(&get(dir.path(), path).await.1).unwrap();
        assert_eq!((&list["kind"], &list["items"][0]["metadata"]["name"]), (&"PodList".into(), &"web".into()));
    }
    let summary: Value = serde_json::from_str(&get(dir.path(), "/stats/summary").await.1).unwrap();
    assert_eq!(summary["pods"][0]["containers"][0]["memory"]["workingSetBytes"], 4096);
    assert!(summary["node"]["cpu"]["usageCoreNanoSeconds"].as_u64().unwrap() > 0);
    let (_, metrics) = get(dir.path(), "/metrics/resource").await;
    assert!(metrics.contains("pod_memory_working_set_bytes{namespace=\"default\",pod=\"web\"} 4096 "), "{metrics}");
    assert!(get(dir.path(), "/metrics/cadvisor").await.1.contains("container_processes"));
    assert_eq!(get(dir.path(), "/nothing").await.0, 404);
}
