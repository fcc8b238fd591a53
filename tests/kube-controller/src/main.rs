//! A kube-rs controller as people write them, run by `tests/test_kube_rs.py` against the built binary.
//!
//! It reconciles each ConfigMap labelled `mirror=yes` into a Secret of the same name with server-side apply, owns that
//! Secret, and ends when every mirror is as it should be, after having changed, broken and deleted some on the way.
//! Its watches start with streaming lists (`sendInitialEvents`), which only a server with WatchList answers.
//!
//! With `--follow` it is an informer and nothing else: for every line that it reads it prints what it believes is there.

mod follow;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use serde_json::json;

const MANAGER: &str = "mirror";
const COUNT: usize = 50;

#[tokio::main]
async fn main() -> Result<()> {
    let client = Client::try_default().await.context("KUBECONFIG should name the server under test")?;
    let name = std::env::args().nth(1).context("usage: kube-controller NAMESPACE [--follow]")?;
    if std::env::args().nth(2).as_deref() == Some("--follow") {
        return follow::run(Api::namespaced(client, &name)).await;
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.get(&name).await.context("the namespace should be there")?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &name);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &name);

    // Half of the objects are there before the controller starts, half come while it runs.
    for i in 0..COUNT / 2 {
        create(&maps, i).await?;
    }
    let running = tokio::spawn(control(client, maps.clone(), secrets.clone()));
    for i in COUNT / 2..COUNT {
        create(&maps, i).await?;
    }
    mirrored(&secrets, COUNT, "0").await.context("every ConfigMap gets its Secret")?;

    for i in 0..COUNT {
        let change = json!({ "data": { "turn": "1" } });
        maps.patch(&object(i), &PatchParams::default(), &Patch::Merge(change)).await?;
    }
    mirrored(&secrets, COUNT, "1").await.context("every change arrives")?;

    // What somebody breaks is mended, since the controller watches what it owns.
    secrets.delete(&object(0), &DeleteParams::default()).await?;
    mirrored(&secrets, COUNT, "1").await.context("a deleted Secret returns")?;

    maps.delete(&object(1), &DeleteParams::default()).await?;
    mirrored(&secrets, COUNT - 1, "1")
        .await
        .context("the garbage collector takes the Secret of a deleted ConfigMap")?;
    ensure!(!running.is_finished(), "the controller should still run: {:?}", running.await);
    Ok(())
}

fn object(i: usize) -> String {
    format!("mirror-{i:03}")
}

async fn create(maps: &Api<ConfigMap>, i: usize) -> Result<()> {
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": { "name": object(i), "labels": { "mirror": "yes" } },
        "data": { "turn": "0" },
    }))?;
    maps.create(&PostParams::default(), &map).await?;
    Ok(())
}

/// Waits until there are `count` Secrets and all carry `turn`.
async fn mirrored(secrets: &Api<Secret>, count: usize, turn: &str) -> Result<()> {
    let mut there = Vec::new();
    for _ in 0..300 {
        there = secrets.list(&ListParams::default().labels("mirror=yes")).await?.items;
        let right = |s: &Secret| s.data.as_ref().and_then(|d| d.get("turn")).is_some_and(|v| v.0 == turn.as_bytes());
        if there.len() == count && there.iter().all(right) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("{} Secrets after 30 s, wanted {count} with turn {turn}", there.len())
}

async fn control(client: Client, maps: Api<ConfigMap>, secrets: Api<Secret>) {
    let watched = watcher::Config::default().labels("mirror=yes").streaming_lists();
    Controller::new(maps, watched)
        .owns(secrets, watcher::Config::default().streaming_lists())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(200)), Arc::new(client))
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn reconcile(map: Arc<ConfigMap>, client: Arc<Client>) -> kube::Result<Action> {
    let secrets: Api<Secret> = Api::namespaced((*client).clone(), &map.namespace().unwrap_or_default());
    let data: BTreeMap<String, String> = map.data.clone().unwrap_or_default();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": map.name_any(), "labels": { "mirror": "yes" },
            "ownerReferences": [map.controller_owner_ref(&())],
        },
        "stringData": data,
    });
    secrets.patch(&map.name_any(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(secret)).await?;
    Ok(Action::await_change())
}
