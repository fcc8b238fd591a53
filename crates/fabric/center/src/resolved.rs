//! Writes what the scheduler resolved where people read it: SinglePlacementSlices, and how many SyncTargets a Location stands for.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use cache::object::Object;
use placement::{
    Id,
    class::is_plain,
    facts::{LOCATIONS, PLACEMENTS, SLICES, TARGETS},
    schedule::Destination,
    slices::{self, Slices},
};
use schema::status::Result;
use serde_json::{Value, json};
use server::Server;
use server::internal::Internal;
use tokio::sync::Notify;

use crate::{Fleet, placing::State, removals, retries::Retries, tenures};

/// What happens within this time is one write.
const PACE: Duration = Duration::from_millis(100);
/// How often a center looks whether it leads now, while there is something that only the leader writes.
const LEAD_CHECK: Duration = Duration::from_secs(5);
const MANAGER: &str = "selvedge-placement";
const LABEL: &str = "edge.kcp.io/source-placement";
/// No value of a label is longer.
const LONGEST_VALUE: usize = 63;

/// Placements whose slices, and Locations whose status may have to be written.
#[derive(Default)]
pub struct Due {
    placements: Mutex<BTreeSet<Id>>,
    locations: Mutex<BTreeSet<Id>>,
    filled: Notify,
}

impl Due {
    pub fn placement(&self, id: &Id) {
        self.placements.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        self.filled.notify_one();
    }

    pub fn location(&self, id: &Id) {
        self.locations.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        self.filled.notify_one();
    }

    fn take(&self) -> BTreeSet<Answer> {
        let take = |of: &Mutex<BTreeSet<Id>>| std::mem::take(&mut *of.lock().unwrap_or_else(PoisonError::into_inner));
        let placements = take(&self.placements).into_iter().map(Answer::Placement);
        placements.chain(take(&self.locations).into_iter().map(Answer::Location)).collect()
    }
}

/// What is written about a placement or a Location.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Answer {
    /// Its slices, and what is recorded of its claims to namespaces.
    Placement(Id),
    Location(Id),
}

/// Writes until the server stops. A write that fails is tried again after a wait of its own and delays no other.
pub async fn run(fleet: Arc<Fleet>, server: Arc<Server>) {
    fleet.placing.wait().await;
    let due = &fleet.placing.due;
    let mut retries = Retries::default();
    // Claims are recorded by the center that leads. What this one did not record is looked at again if it comes to lead.
    let mut unrecorded: BTreeSet<Id> = BTreeSet::new();
    loop {
        if fleet.lead.is_here() {
            std::mem::take(&mut unrecorded).iter().for_each(|id| due.placement(id));
        }
        let mut answers = due.take();
        answers.extend(retries.take(Instant::now()));
        if answers.is_empty() {
            let look = (!unrecorded.is_empty()).then(|| Instant::now() + LEAD_CHECK);
            match retries.next().into_iter().chain(look).min() {
                Some(at) => drop(tokio::time::timeout_at(at.into(), due.filled.notified()).await),
                None => due.filled.notified().await,
            }
            tokio::time::sleep(PACE).await;
            continue;
        }
        for answer in answers {
            if *server.shutdown.borrow() {
                return;
            }
            let written = match &answer {
                Answer::Placement(id) => {
                    let written = write_slices(&fleet, &server, id).await;
                    if fleet.lead.is_here() {
                        let written = written.and(tenures::write(&fleet, &server, id).await);
                        written.and(removals::write(&fleet, &server, id).await)
                    } else {
                        unrecorded.insert(id.clone());
                        written
                    }
                }
                Answer::Location(id) => write_location(&fleet, &server, id).await,
            };
            match written {
                Ok(()) => retries.succeeded(&answer),
                Err(error) => {
                    let wait = retries.failed(answer.clone(), Instant::now());
                    tracing::debug!(?answer, ?wait, error = error.message, "could not be written; it is tried again");
                }
            }
        }
    }
}

/// Writes every slice of a placement that changed; the first error, if there was one.
async fn write_slices(fleet: &Fleet, server: &Arc<Server>, id: &Id) -> Result<()> {
    let (uid, changed) = {
        let mut state = fleet.placing.state();
        let State { engine, slices, .. } = &mut *state;
        let (Some(placement), Some(slices)) = (engine.placement(id), slices.get_mut(id)) else { return Ok(()) };
        let destination = |target: &Id| engine.schedule().destination_at(id, target);
        let part = |targets: BTreeSet<Id>| targets.iter().filter_map(destination).collect::<Vec<_>>();
        let changed: Vec<_> = slices.take_changed().into_iter().map(|(n, targets)| (n, targets.map(part))).collect();
        (placement.uid.clone(), changed)
    };
    let mut written = Ok(());
    for (number, destinations) in changed {
        let name = slices::name(&id.name, &uid, number);
        if let Err(error) = write_slice(server, id, &uid, &name, destinations).await {
            if let Some(slices) = fleet.placing.state().slices.get_mut(id) {
                slices.again(number);
            }
            written = written.and(Err(error));
        }
    }
    written
}

async fn write_slice(
    server: &Arc<Server>,
    id: &Id,
    uid: &str,
    name: &str,
    destinations: Option<Vec<Destination>>,
) -> Result<()> {
    let hand = Internal::new(server, &id.workspace, MANAGER);
    let kind = hand.kind("edge.kcp.io", "v1alpha1", "singleplacementslices")?;
    let found = hand.get(&kind, "", name);
    let Some(destinations) = destinations else {
        let Some(found) = found else { return Ok(()) };
        return hand.delete(&kind, &found, &Default::default()).await.map(drop);
    };
    let destinations: Value = destinations.iter().map(shown).collect();
    let Some(found) = found else {
        let mut metadata = json!({"name": name, "ownerReferences": [{"apiVersion": "edge.kcp.io/v1alpha1",
            "kind": "EdgePlacement", "name": &*id.name, "uid": uid, "controller": true, "blockOwnerDeletion": false}]});
        if id.name.len() <= LONGEST_VALUE {
            metadata["labels"] = json!({LABEL: &*id.name});
        }
        return hand.ensure(&kind, "", json!({"metadata": metadata, "destinations": destinations})).await;
    };
    if found.value()["destinations"] == destinations {
        return Ok(());
    }
    let edit = |value: &mut Value| value["destinations"] = destinations.clone();
    hand.change(&kind, "", name, "", edit).await.map(drop)
}

fn shown(destination: &Destination) -> Value {
    json!({"cluster": &*destination.target.workspace, "locationName": &*destination.location.name,
        "syncTargetName": &*destination.target.name, "syncTargetUID": &*destination.uid})
}

async fn write_location(fleet: &Fleet, server: &Arc<Server>, id: &Id) -> Result<()> {
    // A Location that went with its workspace has no kind there any more, and nothing to be written.
    if server.cache.get(LOCATIONS, &format!("{}//{}", id.workspace, id.name)).is_none() {
        return Ok(());
    }
    let hand = Internal::new(server, &id.workspace, MANAGER);
    let kind = hand.kind("scheduling.kcp.io", "v1alpha1", "locations")?;
    let Some(found) = hand.get(&kind, "", &id.name) else { return Ok(()) };
    let (instances, available) = fleet.placing.read(|engine| engine.schedule().instances(id));
    let says = |value: &Value| (value["status"]["instances"].as_u64(), value["status"]["availableInstances"].as_u64());
    if says(&found.value()) == (Some(instances as u64), Some(available as u64)) {
        return Ok(());
    }
    let edit = |value: &mut Value| {
        value["status"]["instances"] = instances.into();
        value["status"]["availableInstances"] = available.into();
    };
    hand.change(&kind, "", &id.name, "status", edit).await.map(drop)
}

/// The placement that a slice is of: its name and uid.
fn owner(object: &Object, value: &Value) -> Option<(Id, String)> {
    let owner = value.pointer("/metadata/ownerReferences/0").filter(|owner| owner["kind"] == "EdgePlacement")?;
    let id = Id::new(object.cluster(), owner["name"].as_str()?);
    Some((id, owner["uid"].as_str()?.to_owned()))
}

fn targets(value: &Value) -> impl Iterator<Item = (Id, &str)> {
    value["destinations"].as_array().into_iter().flatten().filter_map(|one| {
        Some((Id::new(one["cluster"].as_str()?, one["syncTargetName"].as_str()?), one["syncTargetUID"].as_str()?))
    })
}

/// Before SyncTargets are taken up: those that are unschedulable keep what the slices say that they have.
pub fn recall(state: &mut State, server: &Server) {
    let unschedulable = |object: &Arc<Object>| {
        let value = object.value();
        let uid = value["metadata"]["uid"].as_str().map(str::to_owned);
        uid.filter(|_| value["spec"]["unschedulable"] == true)
    };
    let snapshot = server.cache.snapshot(TARGETS);
    let closed: HashSet<String> = snapshot.items.range("", "").filter_map(unschedulable).collect();
    if closed.is_empty() {
        return;
    }
    for object in server.cache.snapshot(SLICES).items.range("", "") {
        let value = object.value();
        let Some((placement, _)) = owner(object, &value) else { continue };
        for (_, uid) in targets(&value).filter(|(_, uid)| closed.contains(*uid)) {
            state.engine.recall(uid, placement.clone());
        }
    }
}

/// After everything is taken up: what is written already, and what has to be.
pub fn load(state: &mut State, server: &Server, due: &Due) {
    let State { engine, slices, .. } = state;
    let mut found: HashMap<Id, Vec<(u32, Vec<Id>)>> = HashMap::new();
    for object in server.cache.snapshot(SLICES).items.range("", "") {
        let value = object.value();
        let Some((id, uid)) = owner(object, &value) else { continue };
        let current = engine.placement(&id).is_some_and(|placement| *placement.uid == *uid);
        let Some(number) = slices::number(object.name(), &id.name, &uid).filter(|_| current) else { continue };
        found.entry(id).or_default().push((number, targets(&value).map(|(target, _)| target).collect()));
    }
    for object in server.cache.snapshot(PLACEMENTS).items.range("", "") {
        let id = Id::new(object.cluster(), object.name());
        if engine.placement(&id).is_none() || is_plain(&id) {
            continue;
        }
        let mut parts = found.remove(&id).unwrap_or_default();
        parts.sort();
        let mut now = Slices::default();
        parts.into_iter().for_each(|(number, targets)| now.found(number, targets));
        let wanted: BTreeSet<Id> = engine.schedule().destinations(&id).into_iter().map(|one| one.target).collect();
        let stale: Vec<Id> = now.targets().filter(|target| !wanted.contains(target)).cloned().collect();
        stale.iter().for_each(|target| now.set(target, false));
        // Also those that stay: their Location or uid may be another, and a slice that says so already is not written.
        wanted.iter().for_each(|target| now.set(target, true));
        now.ensure_first();
        slices.insert(id.clone(), now);
        due.placement(&id);
    }
    for object in server.cache.snapshot(LOCATIONS).items.range("", "") {
        due.location(&Id::new(object.cluster(), object.name()));
    }
}

/// A slice is another one than it was, perhaps by somebody else's hand: it is put right.
pub fn changed(state: &mut State, object: &Object, gone: bool, due: &Due) {
    let value = object.value();
    let State { engine, slices, .. } = state;
    let Some((id, uid)) = owner(object, &value) else { return };
    if engine.placement(&id).is_none_or(|placement| *placement.uid != *uid) {
        return;
    }
    let Some(number) = slices::number(object.name(), &id.name, &uid) else { return };
    let Some(slices) = slices.get_mut(&id) else { return };
    let destination = |target: &Id| engine.schedule().destination_at(&id, target);
    let wanted = slices.part(number).map(|part| part.iter().filter_map(destination).map(|one| shown(&one)).collect());
    let said = (!gone).then(|| value["destinations"].clone());
    if wanted != said {
        slices.again(number);
        due.placement(&id);
    }
}
