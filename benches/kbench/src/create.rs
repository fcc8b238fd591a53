//! Creating objects as fast as the server takes them, and waiting until it takes any.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::{Client, Result, Target};
use crate::objects::{collection, configmap, connect_all, ensure_namespace, filler, report, run_id};
use crate::stats::{ProcMeter, Samples};
use crate::{Common, JSON, LABEL};

/// Stands for an object's name. Neither labels nor the data of an object have it.
const NAME: &str = "@name@";

pub(crate) async fn ready(target: &Arc<Target>, timeout: u64, path: &str) -> Result<Value> {
    let begun = Instant::now();
    loop {
        let answer = Client::new(target).call(Method::GET, path, "*/*", None).await;
        match answer {
            Ok(_) => return Ok(json!({ "command": "ready", "ready_ms": begun.elapsed().as_secs_f64() * 1e3 })),
            Err(e) if begun.elapsed().as_secs() >= timeout => return Err(format!("not ready: {e}").into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

pub(crate) async fn create(target: &Arc<Target>, c: &Common, prefix: Option<String>) -> Result<Value> {
    ensure_namespace(target, &c.namespace).await?;
    let run = run_id();
    let prefix = prefix.unwrap_or_else(|| format!("kb-{run}"));
    // Made once, as they differ in their names only: what the client does beside the server is time that the server has not.
    let pattern = configmap(NAME, &run, json!({ "payload": filler(c.size) }), None);
    let pattern = String::from_utf8(pattern.into())?;
    let (before, after) = pattern.split_once(NAME).map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap_or_default();
    let body = move |i: u64| format!("{before}{prefix}-{i:06}{after}").into();
    post(target, c, collection(&c.namespace), body, json!({"command": "create", "size": c.size, "run": run})).await
}

/// Workspaces of the server, empty but for what each of them begins with.
pub(crate) async fn workspaces(target: &Arc<Target>, c: &Common) -> Result<Value> {
    let run = run_id();
    let prefix = format!("kb-{run}");
    let body = move |i: u64| {
        let (kind, api_version) = ("Workspace", "tenancy.kcp.io/v1alpha1");
        json!({"kind": kind, "apiVersion": api_version, "metadata": {"name": format!("{prefix}-{i:06}")}})
            .to_string()
            .into()
    };
    let path = "/apis/tenancy.kcp.io/v1alpha1/workspaces".to_owned();
    post(target, c, path, body, json!({"command": "workspaces", "run": run})).await
}

async fn post(
    target: &Arc<Target>,
    c: &Common,
    path: String,
    body: impl Fn(u64) -> Bytes + Clone + Send + 'static,
    extra: Value,
) -> Result<Value> {
    let clients = connect_all(target, c.clients.max(1), c.shared).await?;
    let protocol = clients[0].protocol();
    let next = Arc::new(AtomicU64::new(0));
    let meter = ProcMeter::start(&c.pid);
    let mut tasks = JoinSet::new();
    for mut client in clients {
        let (next, body, path, total) = (next.clone(), body.clone(), path.clone(), c.count as u64);
        tasks.spawn(async move {
            let mut s = Samples::default();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= total {
                    return s;
                }
                let body = body(i);
                let begun = Instant::now();
                match client.call(Method::POST, &path, JSON, Some((JSON, body))).await {
                    Ok(_) => s.ok(begun.elapsed()),
                    Err(e) => s.error(e),
                }
            }
        });
    }
    let mut all = Samples::default();
    while let Some(s) = tasks.join_next().await {
        all.merge(s?);
    }
    Ok(report(c, protocol, meter, &mut all, extra))
}

pub(crate) async fn clean(target: &Arc<Target>, c: &Common) -> Result<Value> {
    let begun = Instant::now();
    let path = format!("{}?labelSelector={LABEL}", collection(&c.namespace));
    Client::new(target).call(Method::DELETE, &path, JSON, None).await?;
    Ok(json!({ "command": "clean", "seconds": begun.elapsed().as_secs_f64() }))
}
