//! Far more requests at once than a server can work on, from clients that do not hold back when they are refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::{Client, Result, Target};
use crate::objects::{collection, configmap, connect_all, ensure_namespace, filler, is_status, report, run_id};
use crate::stats::{ProcMeter, Samples};
use crate::{Common, JSON};

/// Of each round, so many gets and creates; then one list of everything.
const GETS: u64 = 6;
const CREATES: u64 = 3;

pub(crate) async fn flood(target: &Arc<Target>, c: &Common, seconds: u64, connections: usize) -> Result<Value> {
    ensure_namespace(target, &c.namespace).await?;
    let run = run_id();
    let path = collection(&c.namespace);
    let first = format!("{path}/kf-{run}");
    let body = configmap(&format!("kf-{run}"), &run, json!({ "payload": filler(c.size) }), None);
    Client::new(target).call(Method::POST, &path, JSON, Some((JSON, body))).await?;
    let open = connect_all(target, connections.max(1), false).await?;
    let protocol = open[0].protocol();
    let meter = ProcMeter::start(&c.pid);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut tasks = JoinSet::new();
    for id in 0..c.clients.max(1) {
        let mut client = open[id % open.len()].clone();
        let (run, path, first, data) = (run.clone(), path.clone(), first.clone(), json!({ "payload": filler(c.size) }));
        tasks.spawn(async move {
            let (mut done, mut made, mut refused) = (Samples::default(), 0_u64, 0_u64);
            for i in id as u64.. {
                if Instant::now() >= end {
                    break;
                }
                let begun = Instant::now();
                let turn = i % (GETS + CREATES + 1);
                let answer = if turn < GETS {
                    client.drain(&first, JSON).await.map(|_| ())
                } else if turn < GETS + CREATES {
                    let body = configmap(&format!("kf-{run}-{id}-{i}"), &run, data.clone(), None);
                    client.call(Method::POST, &path, JSON, Some((JSON, body))).await.map(|_| made += 1)
                } else {
                    client.drain(&path, JSON).await.map(|_| ())
                };
                match answer {
                    Ok(()) => done.ok(begun.elapsed()),
                    Err(e) if is_status(&e, StatusCode::TOO_MANY_REQUESTS) => refused += 1,
                    Err(e) => done.error(e),
                }
            }
            (done, made, refused)
        });
    }
    let (mut all, mut made, mut refused) = (Samples::default(), 1, 0);
    while let Some(ended) = tasks.join_next().await {
        let (done, more, no) = ended?;
        all.merge(done);
        made += more;
        refused += no;
    }
    let extra = json!({"command": "flood", "connections": connections, "refused": refused, "made": made});
    Ok(report(c, protocol, meter, &mut all, extra))
}
