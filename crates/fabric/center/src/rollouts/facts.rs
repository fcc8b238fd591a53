//! How an edge fares with what a placement places on it.

use kinds::{EdgeId, ObjectKey};
use placement::{
    Id, Key,
    health::{Health, healthy, is_watched},
    rollout::{Fact, order},
};
use serde_json::Value;

use crate::{Fleet, others::Step, reports, target};

/// Where a status does not say which generation it is of: an edge says that it holds an object a moment before it says that the object's
/// status is another. So long is waited for that.
const MOMENT: i64 = 1;

/// What is known of an edge.
#[derive(Clone, Debug)]
pub struct Known {
    pub uid: Box<str>,
    pub fact: Fact,
    /// The revision that it was to have then.
    pub revision: u64,
    /// Since when it holds all of it.
    pub acked_at: Option<i64>,
}

impl Known {
    /// One of whom nothing is known yet.
    pub fn new(placement_uid: &str, edge: &Id, uid: Box<str>) -> Self {
        let order = order(placement_uid, &uid);
        let (edge, since) = (edge.to_string().into(), clock::unix());
        let fact = Fact { edge, order, online: false, acked: false, health: Health::Progressing, since };
        Self { uid, fact, revision: 0, acked_at: None }
    }

    /// How it fares with a revision that it has only just been given.
    pub fn released(&self) -> Fact {
        let since = if self.fact.online { clock::unix() } else { self.fact.since };
        Fact { acked: false, health: Health::Progressing, since, ..self.fact.clone() }
    }

    /// Whether it should be looked at again although nothing happens.
    pub fn is_fresh(&self, now: i64) -> bool {
        self.acked_at.is_some_and(|at| now - at <= MOMENT)
    }
}

/// What its health depends on.
pub fn watched<'a>(keys: impl Iterator<Item = &'a Key>) -> Vec<Key> {
    keys.filter(|key| ObjectKey::parse(key).is_some_and(|key| is_watched(key.collection))).cloned().collect()
}

/// Looks how an edge fares that is to have a revision with these keys.
pub async fn look(fleet: &Fleet, id: &Id, before: &Known, revision: u64, keys: &Keys<'_>) -> Known {
    let now = clock::unix();
    let edge = fleet.edges.get(&EdgeId::new(&id.workspace, &id.name));
    if let Some(step) = edge.as_ref().and_then(|edge| elsewhere(fleet, &edge.id, keys.placement)) {
        let step = step.filter(|step| step.revision == revision);
        let (acked, health) = step.map_or((false, Health::Progressing), |step| (step.acked, step.health()));
        let is_same = before.fact.online && before.revision == revision;
        let is_same = is_same && (before.fact.acked, &before.fact.health) == (acked, &health);
        let since = if is_same { before.fact.since } else { now };
        let fact = Fact { online: true, acked, health, since, ..before.fact.clone() };
        return Known { uid: before.uid.clone(), fact, revision, acked_at: None };
    }
    let set = edge.as_ref().and_then(|edge| fleet.placing.peek(&edge.id));
    let live = edge.as_ref().and_then(|edge| edge.session());
    let (online, acked, refused) = live.as_ref().map_or((false, false, None), |live| {
        let facts = live.facts();
        let at = set.as_ref().map(|set| set.id);
        // Objects of others that the edge refused, or that it holds for them, do not matter here.
        let acked = facts.delivered && at.is_some() && facts.delivered_of == at;
        let refused = at.and_then(|set| facts.refused_of(set).find(|(key, _)| (keys.has)(key)));
        (facts.connected, acked, refused.map(|(key, why)| format!("{key} was refused: {why}")))
    });
    let acked_at = match before.acked_at.filter(|_| before.revision == revision) {
        _ if !acked => None,
        Some(at) => Some(at),
        None => Some(now),
    };
    let held = set.as_ref().and_then(|set| set.held().into_iter().find(|key| (keys.has)(key)));
    let held = held.map(|key| format!("{key} cannot be customized there"));
    let mut health = refused.or(held).map_or(Health::Healthy, Health::Failed);
    let mut unsure = false;
    if acked && !keys.watched.is_empty() {
        let objects = set.map(|set| set.objects()).unwrap_or_default();
        for key in keys.watched.iter() {
            let Some(of) = ObjectKey::parse(key) else { continue };
            let Some(content) = objects.get(key) else { continue };
            let report = reports::get(fleet.store(), &before.uid, key).await.ok().flatten();
            let state: Value = report
                .and_then(|report| report.state)
                .and_then(|state| serde_json::from_slice(&state).ok())
                .unwrap_or_default();
            // Where the edge is a whole cluster, that may not have taken it.
            health = health.and(match state.get("refused").and_then(Value::as_str) {
                Some(why) => Health::Failed(format!("{key} was refused: {why}")),
                None => match is_current(key, content, &state) {
                    Some(false) => Health::Progressing,
                    current => {
                        unsure |= current.is_none();
                        let object: Value = serde_json::from_slice(content).unwrap_or_default();
                        healthy(of.collection, &object, state.get("status"))
                    }
                },
            });
        }
        if health == Health::Healthy && unsure && acked_at.is_none_or(|at| now - at < MOMENT) {
            health = Health::Progressing;
        }
    }
    // Of one that is away only that counts.
    let is_same = match (before.fact.online, online) {
        (false, false) => true,
        _ => {
            before.revision == revision
                && (before.fact.online, before.fact.acked, &before.fact.health) == (online, acked, &health)
        }
    };
    let since = if is_same { before.fact.since } else { now };
    let fact = Fact { online, acked, health, since, ..before.fact.clone() };
    Known { uid: before.uid.clone(), fact, revision, acked_at }
}

/// Whether what an edge says of an object is about what it shall hold now, and its controller has seen that. `None` where that is not said:
/// not every status has an `observedGeneration`.
pub fn is_current(key: &str, content: &[u8], state: &Value) -> Option<bool> {
    let observed = state.pointer("/status/observedGeneration")?.as_i64()?;
    let generation = state.get("generation")?.as_i64()?;
    let of = state.get("of")?.as_str()?;
    Some(observed >= generation && of == format!("{:032x}", link::entry_hash(key, content)))
}

/// How an edge fares that is connected to another center, if that one says so; `None` if it is not.
fn elsewhere(fleet: &Fleet, edge: &EdgeId, placement: &str) -> Option<Option<Step>> {
    let me = fleet.center().filter(|_| !fleet.is_connected(edge))?;
    let key = format!("{}//{}", edge.workspace, edge.name);
    let target = fleet.server()?.cache.get(target::COLLECTION, &key)?.value();
    let ready = target::condition(&target, "Ready").is_some_and(|condition| condition["status"] == "True");
    let center = target.pointer("/status/center").and_then(Value::as_str).filter(|center| ready && *center != me)?;
    Some(fleet.others.of(center, edge)?.steps.remove(placement))
}

/// What a revision consists of.
pub struct Keys<'a> {
    /// The placement's uid.
    pub placement: &'a str,
    pub has: &'a (dyn Fn(&str) -> bool + Send + Sync),
    pub watched: &'a [Key],
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_of_something_else_is_not_about_this() {
        let (key, content) = ("apps/deployments/site/web", b"{}");
        let (now, before) =
            (format!("{:032x}", link::entry_hash(key, content)), format!("{:032x}", link::entry_hash(key, b"[]")));
        for (state, current) in [
            (json!({}), None),
            (json!({"status": {"readyReplicas": 1}}), None),
            // An edge of before edges said what it is of.
            (json!({"status": {"observedGeneration": 2}}), None),
            (json!({"status": {"observedGeneration": 2}, "generation": 2, "of": now}), Some(true)),
            (json!({"status": {"observedGeneration": 1}, "generation": 2, "of": now}), Some(false)),
            (json!({"status": {"observedGeneration": 1}, "generation": 1, "of": before}), Some(false)),
        ] {
            assert_eq!(is_current(key, content, &state), current, "{state}");
        }
    }
}
