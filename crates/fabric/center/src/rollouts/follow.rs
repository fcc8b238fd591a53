//! What a center does about rollouts that another one drives: its own edges get what that one has decided.

use std::{collections::BTreeSet, sync::Arc};

use placement::{Id, engine::Saved, rollout::State};
use schema::status::{Result, Status};
use serde_json::Value;

use super::{
    contents,
    run::{find_edges, look_at_edges},
};
use crate::Fleet;

/// Takes up where a rollout is, and looks how the edges here fare, for the one that decides.
pub async fn follow(fleet: &Fleet, id: &Id) -> Result<()> {
    let (uid, told, moved) = {
        let mut table = fleet.rollouts.table();
        let Some(rollout) = table.get_mut(id) else { return Ok(()) };
        (rollout.due, rollout.touched) = (None, None);
        (rollout.uid.clone(), rollout.told.take(), std::mem::take(&mut rollout.moved))
    };
    if let Some((state, status)) = told
        && let Err(error) = adopt(fleet, id, &uid, &state, &status).await
    {
        if let Some(rollout) = fleet.rollouts.table().get_mut(id) {
            rollout.told.get_or_insert((state, status));
        }
        return Err(Status::internal(error.to_string()));
    }
    if moved {
        find_edges(fleet, id, &uid);
    }
    let state = fleet.rollouts.table().get(id).map(|rollout| rollout.state.clone());
    if let Some(state) = state {
        look_at_edges(fleet, id, &uid, &state).await;
    }
    Ok(())
}

/// What was decided elsewhere holds here.
async fn adopt(
    fleet: &Fleet,
    id: &Id,
    uid: &str,
    state: &State,
    status: &Value,
) -> std::result::Result<(), store::Error> {
    let known = fleet.rollouts.table().get(id).map(|rollout| rollout.saved.clone()).unwrap_or_default();
    let mut saved = std::collections::BTreeMap::<u64, Arc<Saved>>::new();
    for revision in state.revisions.iter().filter(|revision| revision.number > 0) {
        let here = known.get(&revision.number).filter(|saved| contents::digest(saved.items()) == revision.digest);
        let found = match here {
            Some(saved) => Some(saved.clone()),
            None => contents::load(fleet.store(), uid, revision.number, &revision.digest).await?,
        };
        match found {
            Some(found) => drop(saved.insert(revision.number, found)),
            // It may have been overtaken: then something newer is told soon.
            None => return Err(store::Error::Unavailable(format!("revision {} is not there", revision.number))),
        }
    }
    fleet.placing.edit(|engine| {
        let mut table = fleet.rollouts.table();
        let Some(rollout) = table.get_mut(id).filter(|rollout| *rollout.uid == *uid) else { return };
        let mut stale = BTreeSet::new();
        for (edge, known) in &mut rollout.edges {
            let revision = state.of(known.fact.order);
            if known.revision != revision {
                (known.fact, known.revision, known.acked_at) = (known.released(), revision, None);
                stale.insert(edge.clone());
            }
        }
        rollout.stale.extend(stale);
        (rollout.saved, rollout.state, rollout.said, rollout.unsaved) =
            (saved, state.clone(), Some(status.clone()), false);
        engine.set_rollout(id, Some(rollout.assign()), rollout.contents());
    });
    Ok(())
}
