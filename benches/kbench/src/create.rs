//! Creating objects as fast as the server takes them, and waiting until it takes any.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::{Client, Result, Target};
use crate::objects::{collection, configmap, connect_all, ensure_namespace, filler, report, run_id};
use crate::stats::{ProcMeter, Samples};
use crate::{Common, JSON, LABEL};

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
    let clients = connect_all(target, c.clients.max(1), c.shared).await?;
    let protocol = clients[0].protocol();
    let run = run_id();
    let prefix: Arc<str> = prefix.unwrap_or_else(|| format!("kb-{run}")).into();
    let data = json!({ "payload": filler(c.size) });
    let next = Arc::new(AtomicU64::new(0));
    let meter = ProcMeter::start(&c.pid);
    let mut tasks = JoinSet::new();
    for mut client in clients {
        let (next, prefix, run, data, path, total) =
            (next.clone(), prefix.clone(), run.clone(), data.clone(), collection(&c.namespace), c.count as u64);
        tasks.spawn(async move {
            let mut s = Samples::default();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= total {
                    return s;
                }
                let body = configmap(&format!("{prefix}-{i:06}"), &run, data.clone(), None);
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
    Ok(report(c, protocol, meter, &mut all, json!({"command": "create", "size": c.size, "run": run})))
}

pub(crate) async fn clean(target: &Arc<Target>, c: &Common) -> Result<Value> {
    let begun = Instant::now();
    let path = format!("{}?labelSelector={LABEL}", collection(&c.namespace));
    Client::new(target).call(Method::DELETE, &path, JSON, None).await?;
    Ok(json!({ "command": "clean", "seconds": begun.elapsed().as_secs_f64() }))
}
