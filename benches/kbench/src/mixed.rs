//! A mix of reads and writes, as controllers make it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::{Client, Result, Target};
use crate::objects::{collection, configmap, connect_all, ensure_namespace, filler, report, run_id};
use crate::stats::{ProcMeter, Samples};
use crate::{Common, JSON};

pub(crate) async fn mixed(
    target: &Arc<Target>,
    c: &Common,
    seconds: u64,
    objects: usize,
    weights: &str,
) -> Result<Value> {
    let weights: Vec<u64> = weights.split(':').map(str::parse).collect::<std::result::Result<_, _>>()?;
    let [get, update, create, list] = weights[..] else {
        return Err("--weights takes four numbers, get:update:create+delete:list".into());
    };
    let sum = (get + update + create + list).max(1);
    ensure_namespace(target, &c.namespace).await?;
    let run = run_id();
    let clients = connect_all(target, c.clients.max(1), c.shared).await?;
    let protocol = clients[0].protocol();
    let barrier = Arc::new(tokio::sync::Barrier::new(clients.len() + 1));
    let next = Arc::new(AtomicU64::new(0));
    let payload = filler(c.size);
    let mut tasks = JoinSet::new();
    for (id, mut client) in clients.into_iter().enumerate() {
        let (run, payload, path, barrier, next, total) =
            (run.clone(), payload.clone(), collection(&c.namespace), barrier.clone(), next.clone(), c.count as u64);
        tasks.spawn(async move {
            let names: Vec<String> = (0..objects.max(1)).map(|i| format!("km-{run}-{id}-{i}")).collect();
            let mut made = Samples::default();
            for name in &names {
                let body = configmap(name, &run, json!({ "payload": payload }), None);
                if let Err(e) = client.call(Method::POST, &path, JSON, Some((JSON, body))).await {
                    made.error(e);
                }
            }
            barrier.wait().await;
            let end = Instant::now() + Duration::from_secs(seconds);
            let mut by_kind: [Samples; 4] = Default::default();
            by_kind[2].merge(made);
            let mut x = 0x2545_f491_4f6c_dd1d_u64 ^ (id as u64 + 1);
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= total || Instant::now() >= end {
                    return by_kind;
                }
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                let name = &names[(x >> 33) as usize % names.len()];
                let pick = x % sum;
                let t = Instant::now();
                let (kind, done) = if pick < get {
                    (0, client.drain(&format!("{path}/{name}"), JSON).await.map(|_| ()))
                } else if pick < get + update {
                    (1, read_and_replace(&mut client, &path, name, &run, &payload, i).await)
                } else if pick < get + update + create {
                    (2, create_and_delete(&mut client, &path, &format!("kt-{run}-{id}-{i}"), &run, &payload).await)
                } else {
                    (3, client.drain(&format!("{path}?limit=50"), JSON).await.map(|_| ()))
                };
                match done {
                    Ok(()) => by_kind[kind].ok(t.elapsed()),
                    Err(e) => by_kind[kind].error(e),
                }
            }
        });
    }
    barrier.wait().await;
    let meter = ProcMeter::start(&c.pid);
    let mut kinds: [Samples; 4] = Default::default();
    while let Some(r) = tasks.join_next().await {
        for (all, s) in kinds.iter_mut().zip(r?) {
            all.merge(s);
        }
    }
    let mut detail = serde_json::Map::new();
    let mut all = Samples::default();
    for (name, mut s) in ["get", "get+update", "create+delete", "list50"].into_iter().zip(kinds) {
        detail.insert(
            name.into(),
            json!({"ok": s.len(), "errors": s.errors, "first_error": s.first_error, "latency_ms": s.summary()}),
        );
        all.merge(s);
    }
    let extra = json!({"command": "mixed", "weights": weights, "size": c.size, "by_kind": detail});
    Ok(report(c, protocol, meter, &mut all, extra))
}

pub(crate) async fn read_and_replace(
    client: &mut Client,
    path: &str,
    name: &str,
    run: &str,
    payload: &str,
    i: u64,
) -> Result<()> {
    let object = format!("{path}/{name}");
    let old: Value = serde_json::from_slice(&client.call(Method::GET, &object, JSON, None).await?)?;
    let version = old["metadata"]["resourceVersion"].as_str();
    let body = configmap(name, run, json!({ "payload": payload, "turn": i.to_string() }), version);
    client.call(Method::PUT, &object, JSON, Some((JSON, body))).await.map(|_| ())
}

pub(crate) async fn create_and_delete(
    client: &mut Client,
    path: &str,
    name: &str,
    run: &str,
    payload: &str,
) -> Result<()> {
    let body = configmap(name, run, json!({ "payload": payload }), None);
    client.call(Method::POST, path, JSON, Some((JSON, body))).await?;
    client.call(Method::DELETE, &format!("{path}/{name}"), JSON, None).await.map(|_| ())
}
