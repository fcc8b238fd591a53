//! An informer as people write them: a reflector over a watcher with streaming lists that tries again when it must.

use std::{collections::BTreeMap, io::Write};

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    runtime::{WatchStreamExt, reflector, watcher},
};
use serde_json::json;
use tokio::sync::mpsc;

pub async fn run(maps: Api<ConfigMap>) -> Result<()> {
    let (reader, writer) = reflector::store();
    let config = watcher::Config::default().streaming_lists();
    let mut events = std::pin::pin!(reflector(writer, watcher(maps, config).default_backoff()));
    let (ask, mut questions) = mpsc::unbounded_channel();
    std::thread::spawn(move || std::io::stdin().lines().map_while(|line| line.ok()).all(|line| ask.send(line).is_ok()));
    let (mut changes, mut lists, mut errors) = (0u64, 0u64, 0u64);
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_))) => changes += 1,
                Some(Ok(watcher::Event::InitDone)) => lists += 1,
                Some(Ok(_)) => {}
                Some(Err(_)) => errors += 1,
                None => anyhow::bail!("the watcher ended"),
            },
            question = questions.recv() => {
                if question.is_none() {
                    return Ok(());
                }
                let state: BTreeMap<String, String> =
                    reader.state().iter().map(|o| (o.name_any(), o.resource_version().unwrap_or_default())).collect();
                let answer = json!({"state": state, "changes": changes, "lists": lists, "errors": errors});
                let mut out = std::io::stdout();
                writeln!(out, "{answer}")?;
                out.flush()?;
            }
        }
    }
}
