//! The objects a run works on, its connections, and what every subcommand reports.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{self, Client, Result, StatusError, Target};
use crate::stats::{ProcMeter, Samples};
use crate::{Common, JSON, LABEL};

pub(crate) fn run_id() -> String {
    let t = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}", t.as_micros())
}

pub(crate) fn filler(size: usize) -> String {
    // Not one repeated byte, so that compression on the way does not flatter.
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    (0..size)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (b'a' + (x % 26) as u8) as char
        })
        .collect()
}

pub(crate) fn configmap(name: &str, run: &str, data: Value, version: Option<&str>) -> Bytes {
    let mut o = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "labels": { LABEL: run } },
        "data": data,
    });
    if let Some(v) = version {
        o["metadata"]["resourceVersion"] = v.into();
    }
    o.to_string().into()
}

pub(crate) fn collection(ns: &str) -> String {
    format!("/api/v1/namespaces/{ns}/configmaps")
}

pub(crate) async fn ensure_namespace(target: &Arc<Target>, ns: &str) -> Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}}).to_string();
    let mut client = Client::new(target);
    match client.call(Method::POST, "/api/v1/namespaces", JSON, Some((JSON, body.into()))).await {
        Err(e) if !is_status(&e, StatusCode::CONFLICT) => Err(e),
        _ => Ok(()),
    }
}

pub(crate) fn is_status(e: &client::Error, status: StatusCode) -> bool {
    e.downcast_ref::<StatusError>().is_some_and(|s| s.status == status)
}

/// `n` connected clients: separate connections, or one shared.
pub(crate) async fn connect_all(target: &Arc<Target>, n: usize, shared: bool) -> Result<Vec<Client>> {
    let mut first = Client::new(target);
    first.connect().await?;
    let mut all = Vec::with_capacity(n);
    for _ in 1..n {
        let mut next = if shared { first.clone() } else { Client::new(target) };
        if next.protocol() == "none" {
            next.connect().await?;
        }
        all.push(next);
    }
    all.push(first);
    Ok(all)
}

/// Adds what every subcommand reports.
pub(crate) fn report(c: &Common, protocol: &str, meter: ProcMeter, samples: &mut Samples, extra: Value) -> Value {
    let (wall, processes) = meter.finish();
    let mut v = json!({
        "url": c.url, "protocol": protocol, "clients": c.clients, "shared_connection": c.shared,
        "ok": samples.len(), "errors": samples.errors, "first_error": samples.first_error,
        "seconds": wall, "ops_per_second": samples.len() as f64 / wall,
        "latency_ms": samples.summary(), "processes": processes,
    });
    if let (Some(v), Value::Object(extra)) = (v.as_object_mut(), extra) {
        v.extend(extra);
    }
    v
}
