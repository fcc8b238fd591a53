//! ResourceQuotas: what a write uses is charged in the very commit that writes it, so a quota is never overdrawn.
//!
//! Every charge changes the quota object and compares its revision, here and on other servers over the same store. Writers of
//! one namespace on this server take turns, which spares them the conflicts. What is freed is counted by a controller.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use cache::object;
use schema::status::Result;
use serde_json::{Value, json};
use store::{Compare, Op};
use tokio::sync::OwnedMutexGuard;

use super::{
    forbid,
    usage::{self, Amounts},
};
use crate::{Server, call::Call, kinds, verbs::write::Beside};

pub const QUOTAS: &str = "core/resourcequotas";
const CLAIMS: &str = "core/persistentvolumeclaims";
/// Claims of devices.
pub const DEVICES: &str = "resource.k8s.io/resourceclaims";

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

/// Whether what is written can change what is used of a quota.
fn is_charged(call: &Call, new: &Value, old: Option<&Value>) -> bool {
    let Some(old) = old else { return call.target.subresource.is_empty() };
    match (&*call.kind.collection, call.target.subresource.as_str()) {
        // Of a Pod only its scopes and, by a resize, its resources change.
        ("core/pods", "") => usage::ends(new) != usage::ends(old),
        ("core/pods", "resize") => true,
        (CLAIMS, "status") => usage::classes(new) != usage::classes(old) || allocated(new) != allocated(old),
        ("core/services" | CLAIMS | DEVICES, "") => true,
        _ => false,
    }
}

fn allocated(claim: &Value) -> &Value {
    &claim["status"]["allocatedResources"]["storage"]
}

/// Charges what a new object, or a change of one, uses. Costs nothing in namespaces without quotas.
pub async fn charge(call: &Call, new: &Value, old: Option<&Value>, beside: &mut Beside) -> Result<()> {
    if call.target.namespace.is_empty() || !is_charged(call, new, old) {
        return Ok(());
    }
    let prefix = format!("{}/{}/", call.cluster, call.target.namespace);
    if call.server.cache.snapshot(QUOTAS).items.range(&prefix, "").next().is_none() {
        return Ok(());
    }
    let (group, plural) = (call.kind.group(), call.kind.plural());
    let all = without_nothing(usage::of(group, plural, new));
    let more = old.map(|old| {
        let mut more = all.clone();
        for (name, had) in usage::of(group, plural, old) {
            if let Some(quantity) = more.get_mut(&name) {
                quantity.sub(&had);
            }
        }
        without_nothing(more)
    });
    let moves =
        old.is_some_and(|old| usage::ends(new) != usage::ends(old) || usage::classes(new) != usage::classes(old));
    if more.as_ref().unwrap_or(&all).is_empty() && !moves {
        return Ok(());
    }
    beside.turn = Some(call.server.turns.take(&prefix).await);
    for found in call.server.cache.snapshot(QUOTAS).items.range(&prefix, "") {
        let mut quota = found.value();
        // A quota that the object was not under before is charged all of it.
        let asked = match (old, &more) {
            (Some(old), Some(more)) if usage::matches(&quota, &call.kind.collection, old) => more,
            _ => &all,
        };
        if charge_one(call, new, asked, &mut quota)? {
            let key = format!("{QUOTAS}/{}", found.key);
            beside.compares.push(Compare { key: key.clone(), modified: found.revision });
            beside.ops.push(Op::Put { key, value: object::encode(&quota) });
        }
    }
    Ok(())
}

fn without_nothing(mut amounts: Amounts) -> Amounts {
    amounts.retain(|_, quantity| !quantity.is_zero() && !quantity.is_negative());
    amounts
}

/// Whether the quota was charged; an error if it has too little left.
fn charge_one(call: &Call, value: &Value, asked: &Amounts, quota: &mut Value) -> Result<bool> {
    let hard = usage::amounts(&quota["spec"]["hard"]);
    let mut wanted = asked.clone();
    wanted.retain(|name, _| hard.contains_key(name));
    if !usage::matches(quota, &call.kind.collection, value) {
        return Ok(false);
    }
    let name = quota["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if &*call.kind.collection == "core/pods"
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
    // What a status says has happened already.
    if !exceeded.is_empty() && call.target.subresource != "status" {
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

/// Whether a changed Pod counts otherwise than before.
pub fn is_counted_otherwise(old: &Value, new: &Value) -> bool {
    usage::ends(old) != usage::ends(new) || usage::of("", "pods", old) != usage::of("", "pods", new)
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
            let looked_at = matches!(&*collection, "core/pods" | "core/services" | CLAIMS | DEVICES);
            let value = if looked_at { object.value() } else { Value::Null };
            if usage::matches(quota, &collection, &value) {
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
    if usage::names_devices(name) {
        return ("resourceclaims".to_owned(), "resource.k8s.io".to_owned());
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
