//! ResourceQuotas: what a write uses is charged in the very commit that writes it, so a quota is never overdrawn.
//!
//! Every charge changes the quota object and compares its revision, here and on other servers over the same store. Writers of
//! one namespace on this server take turns, which spares them the conflicts. What is freed is counted by a controller.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use api::status::Result;
use serde_json::{Value, json};
use store::{Compare, Op};
use tokio::sync::OwnedMutexGuard;

use super::{
    forbid,
    usage::{self, Amounts},
};
use crate::{Server, call::Call, kinds, object, verbs::write::Beside};

pub const QUOTAS: &str = "core/resourcequotas";

type Turn = Arc<tokio::sync::Mutex<()>>;

/// Whose turn it is to write, in namespaces that have quotas.
#[derive(Default)]
pub struct Turns(Mutex<HashMap<String, Turn>>);

impl Turns {
    async fn take(&self, namespace: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Namespaces come and go; those where nobody waits are forgotten.
            turns.retain(|name, turn| name == namespace || Arc::strong_count(turn) > 1);
            turns.entry(namespace.to_owned()).or_default().clone()
        };
        turn.lock_owned().await
    }
}

/// Charges what a new object, or a change of one, uses. Costs nothing in namespaces without quotas.
pub async fn charge(call: &Call, new: &Value, old: Option<&Value>, beside: &mut Beside) -> Result<()> {
    if call.target.namespace.is_empty() || !call.target.subresource.is_empty() {
        return Ok(());
    }
    let prefix = format!("{}/{}/", call.cluster, call.target.namespace);
    if call.server.cache.snapshot(QUOTAS).items.range(&prefix, "").next().is_none() {
        return Ok(());
    }
    let (group, plural) = (call.kind.group(), call.kind.plural());
    let mut asked = usage::of(group, plural, new);
    if let Some(old) = old {
        if !matches!(&*call.kind.collection, "core/services" | "core/persistentvolumeclaims") {
            return Ok(());
        }
        for (name, had) in usage::of(group, plural, old) {
            if let Some(quantity) = asked.get_mut(&name) {
                quantity.sub(&had);
            }
        }
    }
    asked.retain(|_, quantity| !quantity.is_zero() && !quantity.is_negative());
    if asked.is_empty() {
        return Ok(());
    }
    beside.turn = Some(call.server.turns.take(&prefix).await);
    for found in call.server.cache.snapshot(QUOTAS).items.range(&prefix, "") {
        let mut quota = found.value();
        if charge_one(call, new, old.is_none(), &asked, &mut quota)? {
            let key = format!("{QUOTAS}/{}", found.key);
            beside.compares.push(Compare { key: key.clone(), modified: found.revision });
            beside.ops.push(Op::Put { key, value: object::encode(&quota) });
        }
    }
    Ok(())
}

/// Whether the quota was charged; an error if it has too little left.
fn charge_one(call: &Call, value: &Value, is_new: bool, asked: &Amounts, quota: &mut Value) -> Result<bool> {
    let is_pod = &*call.kind.collection == "core/pods";
    let hard = usage::amounts(&quota["spec"]["hard"]);
    let mut wanted = asked.clone();
    wanted.retain(|name, _| hard.contains_key(name));
    if !usage::matches(quota, is_pod, value) {
        return Ok(false);
    }
    let name = quota["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if is_pod
        && is_new
        && let Some(why) = usage::unspecified(value, &hard)
    {
        return Err(forbid(call, value, &format!("failed quota: {name}: {why}")));
    }
    if wanted.is_empty() {
        return Ok(false);
    }
    let used = if is_counted(quota) {
        usage::amounts(&quota["status"]["used"])
    } else {
        recount(&call.server, &call.cluster, &call.target.namespace, quota)
    };
    let mut total = used.clone();
    usage::add(&mut total, &wanted);
    let exceeded: Vec<&String> =
        wanted.keys().filter(|name| total.get(*name).is_some_and(|t| hard.get(*name).is_some_and(|h| t > h))).collect();
    if !exceeded.is_empty() {
        let why = format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            usage::shown(&wanted, &exceeded),
            usage::shown(&used, &exceeded),
            usage::shown(&hard, &exceeded)
        );
        return Err(forbid(call, value, &why));
    }
    write_status(quota, &total);
    Ok(true)
}

/// Whether a quota's status is about what its spec limits now.
pub fn is_counted(quota: &Value) -> bool {
    let hard = quota["spec"]["hard"].as_object();
    quota["status"]["hard"] == quota["spec"]["hard"]
        && hard.into_iter().flatten().all(|(name, _)| !quota["status"]["used"][name].is_null())
}

/// Puts what is used into a quota's status.
pub fn write_status(quota: &mut Value, used: &Amounts) {
    let hard = quota["spec"]["hard"].clone();
    let used: serde_json::Map<String, Value> = hard
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| {
            let quantity = used.get(name).map_or_else(|| "0".to_owned(), ToString::to_string);
            (name.clone(), quantity.into())
        })
        .collect();
    quota["status"] = json!({"hard": hard, "used": used});
}

/// Counts what is used of a quota now.
pub fn recount(server: &Server, cluster: &str, namespace: &str, quota: &Value) -> Amounts {
    let mut used = Amounts::new();
    let mut seen: Vec<(Box<str>, String, String)> = Vec::new();
    for (name, _) in quota["spec"]["hard"].as_object().into_iter().flatten() {
        let (plural, group) = counted_resource(name);
        let collection = kinds::collection_name(&group, &plural);
        if !seen.iter().any(|(known, ..)| *known == collection) {
            seen.push((collection, group, plural));
        }
    }
    let prefix = format!("{cluster}/{namespace}/");
    for (collection, group, plural) in seen {
        for object in server.cache.snapshot(&collection).items.range(&prefix, "") {
            // Of most kinds only their number counts, and nothing of them needs to be read.
            let looked_at = matches!(&*collection, "core/pods" | "core/services" | "core/persistentvolumeclaims");
            let value = if looked_at { object.value() } else { Value::Null };
            if usage::matches(quota, &*collection == "core/pods", &value) {
                usage::add(&mut used, &usage::of(&group, &plural, &value));
            }
        }
    }
    used
}

/// The resource and group whose objects use this entry of a quota.
fn counted_resource(name: &str) -> (String, String) {
    if let Some(counted) = name.strip_prefix("count/") {
        let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
        return (plural.to_owned(), group.to_owned());
    }
    let plural = match name {
        "configmaps"
        | "persistentvolumeclaims"
        | "replicationcontrollers"
        | "resourcequotas"
        | "secrets"
        | "services" => name,
        "services.loadbalancers" | "services.nodeports" => "services",
        "requests.storage" => "persistentvolumeclaims",
        _ if name.contains(".storageclass.storage.k8s.io/") => "persistentvolumeclaims",
        _ => "pods",
    };
    (plural.to_owned(), String::new())
}
