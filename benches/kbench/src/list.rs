//! Listing the collection, whole or in pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::{Client, Result, Target};
use crate::objects::{collection, connect_all, report};
use crate::stats::{ProcMeter, Samples};
use crate::{Accept, Common, JSON};

pub(crate) async fn list(
    target: &Arc<Target>,
    c: &Common,
    accept: Accept,
    limit: usize,
    cached: bool,
) -> Result<Value> {
    let clients = connect_all(target, c.clients.max(1), c.shared).await?;
    let protocol = clients[0].protocol();
    let base = collection(&c.namespace);
    let query = match (limit, cached) {
        (0, false) => String::new(),
        (0, true) => "?resourceVersion=0".into(),
        (n, _) => format!("?limit={n}"),
    };
    // One list outside the measurement says how many objects there are.
    let items = {
        let probe = Client::new(target).call(Method::GET, &base, JSON, None).await?;
        serde_json::from_slice::<Value>(&probe)?["items"].as_array().map_or(0, Vec::len)
    };
    let next = Arc::new(AtomicU64::new(0));
    let bytes = Arc::new(AtomicU64::new(0));
    let meter = ProcMeter::start(&c.pid);
    let mut tasks = JoinSet::new();
    for mut client in clients {
        let (next, bytes, base, query, total) =
            (next.clone(), bytes.clone(), base.clone(), query.clone(), c.count as u64);
        tasks.spawn(async move {
            let mut s = Samples::default();
            while next.fetch_add(1, Ordering::Relaxed) < total {
                let begun = Instant::now();
                let path = format!("{base}{query}");
                let got = if limit == 0 {
                    client.drain(&path, accept.header()).await
                } else {
                    list_pages(&mut client, &base, limit).await
                };
                match got {
                    Ok(n) => {
                        s.ok(begun.elapsed());
                        bytes.fetch_add(n as u64, Ordering::Relaxed);
                    }
                    Err(e) => s.error(e),
                }
            }
            s
        });
    }
    let mut all = Samples::default();
    while let Some(s) = tasks.join_next().await {
        all.merge(s?);
    }
    let per_list = bytes.load(Ordering::Relaxed) / (all.len().max(1) as u64);
    let extra = json!({"command": "list", "accept": accept.header(), "limit": limit, "cached": cached,
        "items": items, "bytes_per_list": per_list});
    Ok(report(c, protocol, meter, &mut all, extra))
}

/// Lists page by page (JSON, since the continue token must be read).
pub(crate) async fn list_pages(client: &mut Client, base: &str, limit: usize) -> Result<usize> {
    let (mut n, mut token) = (0, String::new());
    loop {
        let mut path = format!("{base}?limit={limit}");
        if !token.is_empty() {
            path += &format!("&continue={token}");
        }
        let page = client.call(Method::GET, &path, JSON, None).await?;
        n += page.len();
        let v: Value = serde_json::from_slice(&page)?;
        match v["metadata"]["continue"].as_str() {
            Some(t) if !t.is_empty() => token = t.replace('+', "%2B").replace('=', "%3D").replace('/', "%2F"),
            _ => return Ok(n),
        }
    }
}
