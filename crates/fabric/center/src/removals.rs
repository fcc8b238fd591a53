//! Tells the owners of placements what of theirs edges still hold because nobody has stated that its removal is
//! intended, and keeps what owners stated for edges that come back later.
//!
//! A placement that is deleted is gone at once: a finalizer would let `kubectl delete` wait for an operator, keep the
//! name in use and hold up the deletion of its workspace. So its owner is told by an Event, and by a condition where
//! the placement is still there.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cache::object::Object;
use kinds::mailbox::PROVIDER;
use placement::{
    Id, Key,
    engine::{Engine, Removal},
};
use schema::status::Result;
use serde_json::{Value, json};
use server::Server;
use server::internal::Internal;
use tokio::sync::Notify;

use crate::{Fleet, accounts, placing::id_of, refused::EVENT};

/// What happens within this time is told together.
const PACE: Duration = Duration::from_secs(1);
/// Events are made again before they expire, as long as they are true.
const AGAIN: Duration = Duration::from_secs(1200);
/// At most this many edges are named.
const NAMED: usize = 3;
const CONDITION: &str = "RemovalHeld";
const MANAGER: &str = "selvedge-fleet";

/// Records of what placements took away are ConfigMaps in the workspace of the placement service, where tenants have no
/// rights.
const NAMESPACE: &str = "default";
const PREFIX: &str = "removal-of-";
/// A record of more bytes is not kept: edges that come back later ask then.
const LARGEST: usize = 900_000;

/// Placements whose owners may have to be told something.
#[derive(Default)]
pub struct Removals {
    due: Mutex<BTreeSet<Id>>,
    filled: Notify,
}

impl Removals {
    pub fn push(&self, placements: Vec<Id>) {
        if !placements.is_empty() {
            self.due.lock().unwrap_or_else(PoisonError::into_inner).extend(placements);
            self.filled.notify_one();
        }
    }
}

/// What edges hold of a placement that it no longer places there.
#[derive(Clone, Debug, Default, PartialEq)]
struct Held {
    objects: u64,
    edges: Vec<Id>,
}

/// Tells until the server stops.
pub async fn run(fleet: Arc<Fleet>, server: Arc<Server>) {
    let removals = &fleet.removals;
    let mut told: BTreeMap<Id, Held> = BTreeMap::new();
    loop {
        let woken = tokio::time::timeout(AGAIN, removals.filled.notified()).await.is_ok();
        if *server.shutdown.borrow() {
            return;
        }
        tokio::time::sleep(PACE).await;
        let mut due = std::mem::take(&mut *removals.due.lock().unwrap_or_else(PoisonError::into_inner));
        if !woken {
            due.extend(told.keys().cloned());
        }
        let mut now: BTreeMap<Id, Held> = BTreeMap::new();
        for edge in fleet.edges.list(None) {
            let Some(live) = edge.session() else { continue };
            for (id, count) in live.facts().held_by.iter().filter(|(id, _)| due.contains(*id)) {
                let held = now.entry(id.clone()).or_default();
                held.objects += count;
                held.edges.push(id_of(&edge.id));
            }
        }
        for id in due {
            let held = now.remove(&id);
            if woken && held.as_ref() == told.get(&id) {
                continue;
            }
            if let Err(error) = tell(&fleet, &server, &id, held.as_ref()).await {
                tracing::debug!(placement = %id, error = error.message, "the owner of a placement could not be told what edges hold of it");
            }
            match held {
                Some(held) => drop(told.insert(id, held)),
                None => drop(told.remove(&id)),
            }
        }
    }
}

async fn tell(fleet: &Fleet, server: &Arc<Server>, id: &Id, held: Option<&Held>) -> Result<()> {
    let (alive, uid, by_owner) = fleet.placing.read(|engine| {
        let alive = engine.placement(id).map(|placement| placement.uid.clone());
        let removal = engine.removal(id);
        let former = removal.map(|removal| removal.uid.clone());
        let has_left = |edge: &Id| {
            removal.is_some_and(|removal| removal.edges.contains_key(edge))
                || engine.schedule().destination_at(id, edge).is_some()
        };
        let by_owner = held.is_some_and(|held| held.edges.iter().any(has_left));
        (alive.is_some(), alive.or(former).unwrap_or_default(), by_owner)
    });
    let hand = Internal::new(server, &id.workspace, MANAGER);
    let message = match held {
        Some(held) => message(id, held, by_owner),
        None => "nothing is held any more of what this placement no longer places".to_owned(),
    };
    let now = clock::now();
    let settled = if alive {
        let kind = hand.kind("edge.kcp.io", "v1alpha1", "edgeplacements")?;
        let condition =
            (CONDITION, held.is_some(), if held.is_some() { "NotConfirmed" } else { "Settled" }, message.clone());
        let edit = |value: &mut Value| {
            let generation = value["metadata"]["generation"].clone();
            if !value["status"].is_object() {
                value["status"] = json!({});
            }
            accounts::settle(&mut value["status"], std::slice::from_ref(&condition), &generation, &now);
        };
        hand.change(&kind, "", &id.name, "status", edit).await.map(drop)
    } else {
        Ok(())
    };
    settled.and(event(server, &hand, id, &uid, held.is_some(), &message).await)
}

/// One Event for what is held, and one for its end; each is brought up to date rather than made anew.
async fn event(server: &Server, hand: &Internal, id: &Id, uid: &str, held: bool, message: &str) -> Result<()> {
    let bytes = i64::try_from(EVENT + message.len()).unwrap_or(i64::MAX);
    if server.workspaces.has_room(&id.workspace, 1, bytes).is_err() {
        return Ok(());
    }
    let (reason, of_type) = if held { (CONDITION, "Warning") } else { ("RemovalDone", "Normal") };
    let mut hasher = DefaultHasher::new();
    (&id.name, uid, reason).hash(&mut hasher);
    let short: String = id.name.chars().take(200).collect();
    let name = format!("{short}.{:016x}", hasher.finish());
    let (kind, now) = (hand.kind("", "v1", "events")?, clock::now());
    if hand.get(&kind, "default", &name).is_some() {
        let edit = |value: &mut Value| {
            value["message"] = message.into();
            value["count"] = (value["count"].as_u64().unwrap_or(1) + 1).into();
            value["lastTimestamp"] = now.as_str().into();
        };
        return hand.change(&kind, "default", &name, "", edit).await.map(drop);
    }
    let about = json!({"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement", "name": &*id.name, "uid": uid});
    let event = json!({"metadata": {"name": name, "namespace": "default"}, "involvedObject": about, "type": of_type,
        "reason": reason, "message": message, "source": {"component": MANAGER}, "count": 1,
        "firstTimestamp": now, "lastTimestamp": now});
    hand.ensure(&kind, "default", event).await
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// `by_owner`: the owner of the placement did it, and not that of the inventory.
fn message(id: &Id, held: &Held, by_owner: bool) -> String {
    let named = held.edges.iter().take(NAMED).map(Id::to_string).collect::<Vec<_>>().join(", ");
    let more = held.edges.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let what = format!(
        "{} that this placement no longer places {} on {} ({named}{more}): {} most of what is there",
        counted(held.objects, "object"),
        if held.objects == 1 { "stays" } else { "stay" },
        counted(held.edges.len() as u64, "edge"),
        if held.objects == 1 { "it is" } else { "they are" },
    );
    match by_owner {
        true => format!(
            "{what}, and nobody has stated that their removal is intended. If it is, the owner of the placement runs: selvedge edge \
             confirm --owner --placement {id} (which sets spec.removal to Allow), or an operator of the edges runs: selvedge edge confirm \
             --all --placement {id}"
        ),
        false => format!(
            "{what}. Locations or SyncTargets were changed so that it does not reach these edges any more. If that is meant, an operator \
             of the edges runs: selvedge edge confirm --all --placement {id}"
        ),
    }
}

/// Whether an object is such a record.
pub fn is_record(object: &Object) -> bool {
    object.cluster() == PROVIDER && object.namespace() == NAMESPACE && object.name().starts_with(PREFIX)
}

fn read(value: &Value) -> Option<(Id, Removal)> {
    let text = |field: &str| value["data"][field].as_str();
    let keys: Vec<String> = serde_json::from_str(text("objects")?).ok()?;
    let edges = |field: &str| serde_json::from_str::<HashMap<String, String>>(text(field).unwrap_or("{}")).ok();
    let edge = |(path, uid): (String, String)| {
        let (workspace, name) = path.rsplit_once(':')?;
        Some((Id::new(workspace, name), uid.into()))
    };
    let removal = Removal {
        uid: text("uid")?.into(),
        allowed: text("allowed")? == "true",
        keys: Arc::new(keys.iter().map(|key| Key::from(key.as_str())).collect()),
        edges: edges("edges")?.into_iter().filter_map(edge).collect(),
        holding: edges("holding")?.into_iter().filter_map(edge).collect(),
    };
    Some((Id::new(text("workspace")?, text("placement")?), removal))
}

fn data(id: &Id, removal: &Removal) -> Value {
    let keys: Vec<&str> = removal.keys.iter().map(|key| &**key).collect();
    let named = |edges: &BTreeMap<Id, Box<str>>| {
        let named: BTreeMap<String, &str> = edges.iter().map(|(edge, uid)| (edge.to_string(), &**uid)).collect();
        serde_json::to_string(&named).unwrap_or_default()
    };
    json!({"workspace": &*id.workspace, "placement": &*id.name, "uid": &*removal.uid,
        "allowed": removal.allowed.to_string(),
        "objects": serde_json::to_string(&keys).unwrap_or_default(),
        "edges": named(&removal.edges), "holding": named(&removal.holding)})
}

/// After placements are known: what was taken away in a former life of the center, from edges that are still there.
pub fn load(engine: &mut Engine, server: &Server) {
    let prefix = format!("{PROVIDER}/{NAMESPACE}/{PREFIX}");
    for object in server.cache.snapshot(crate::tenures::COLLECTION).items.range(&prefix, "") {
        let found = if is_record(object) { read(&object.value()) } else { None };
        let Some((id, mut removal)) = found else { continue };
        let is_there = |edge: &Id, uid: &str| engine.schedule().instance(edge).is_some_and(|found| *found.uid == *uid);
        removal.edges.retain(|edge, uid| is_there(edge, uid));
        removal.holding.retain(|edge, uid| is_there(edge, uid));
        if engine.removal(&id).is_none() && !removal.is_done() {
            engine.set_removal(&id, Some(removal));
        }
    }
}

/// Every placement of which there is a record.
pub fn recorded(server: &Server) -> Vec<Id> {
    let prefix = format!("{PROVIDER}/{NAMESPACE}/{PREFIX}");
    let snapshot = server.cache.snapshot(crate::tenures::COLLECTION);
    let records = snapshot.items.range(&prefix, "").filter(|object| is_record(object));
    records.filter_map(|object| read(&object.value()).map(|(id, _)| id)).collect()
}

/// Keeps the record of what a placement took away and whether its owner intends that, while there are edges that have
/// not done it.
pub async fn write(fleet: &Fleet, server: &Arc<Server>, id: &Id) -> Result<()> {
    let removal = fleet.placing.read(|engine| engine.removal(id).cloned());
    let hand = Internal::new(server, PROVIDER, MANAGER);
    let kind = hand.kind("", "v1", "configmaps")?;
    // One record for a name: its owner may state the intent in a later placement of the same name.
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    let name = format!("{PREFIX}{:016x}", hasher.finish());
    let found = hand.get(&kind, NAMESPACE, &name);
    let wanted = removal.map(|removal| data(id, &removal)).filter(|data| data.to_string().len() <= LARGEST);
    match (found, wanted) {
        (None, None) => Ok(()),
        (Some(found), None) => hand.delete(&kind, &found, &Default::default()).await,
        (None, Some(data)) => hand.ensure(&kind, NAMESPACE, json!({"metadata": {"name": name}, "data": data})).await,
        (Some(found), Some(data)) if found.value()["data"] == data => Ok(()),
        (Some(_), Some(data)) => {
            hand.change(&kind, NAMESPACE, &name, "", |value| value["data"] = data.clone()).await.map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_read_back() {
        let id = Id::new("root:shop", "web");
        let removal = Removal {
            uid: "u".into(),
            allowed: true,
            keys: Arc::new(["core/configmaps/a/b".into(), "core/namespaces//a".into()].into()),
            edges: [(Id::new("root:imw", "florin"), "f".into())].into(),
            holding: [(Id::new("root:imw", "guilder"), "g".into())].into(),
        };
        assert_eq!(read(&json!({"data": data(&id, &removal)})), Some((id, removal)));
        assert_eq!(
            read(
                &json!({"data": {"workspace": "a", "placement": "b", "uid": "u", "allowed": "true", "objects": "{", "edges": "{}"}})
            ),
            None
        );
    }

    #[test]
    fn owners_are_told_where_and_what_to_do() {
        let held = Held { objects: 35, edges: (0..5).map(|n| Id::new("root:imw", &format!("e{n}"))).collect() };
        let by_others = message(&Id::new("root:shop", "web"), &held, false);
        assert!(
            by_others.contains("Locations or SyncTargets were changed") && !by_others.contains("--owner"),
            "{by_others}"
        );
        let one = Held { objects: 9, edges: vec![Id::new("root:imw", "florin")] };
        let said = message(&Id::new("root:shop", "web"), &one, true);
        assert!(said.starts_with("9 objects that this placement no longer places stay on 1 edge (root:imw:florin): "));
        let said = message(&Id::new("root:shop", "web"), &held, true);
        assert!(
            said.starts_with("35 objects that this placement no longer places stay on 5 edges (root:imw:e0, "),
            "{said}"
        );
        assert!(
            said.contains("root:imw:e2 and 2 more)") && said.ends_with("--all --placement root:shop:web"),
            "{said}"
        );
    }
}
