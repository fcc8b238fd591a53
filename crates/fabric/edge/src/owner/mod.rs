//! Whose an object's parts are, and what becomes of a write to what is the center's: it goes there in the client's name, or
//! waits here until it can, or is refused until then.

pub mod diff;
mod direct;
pub mod part;
mod queue;
mod replay;
mod settle;
#[cfg(test)]
mod tests;
mod way;

use std::sync::Arc;

use cache::Observer;
use futures::future::BoxFuture;
use kinds::{
    ObjectKey,
    forward::{self, Forward, LocalUser},
    names,
};
use schema::status::{Result, Status};
use server::owner::{Carried, Change, Owner, To};
use tokio::sync::Notify;

use crate::{apply, book::CLUSTER, held::Held, place, show};

pub use queue::COLLECTION as OFFLINE_WRITES;
pub use way::{Lost, Way};

/// A client may try again so soon. Short, as Go clients take it as an order and wait, ten times over.
const RETRY: u32 = 1;

pub struct Ownership {
    way: Arc<dyn Way>,
    /// Something is to be replayed, or was taken back.
    wake: Arc<Notify>,
}

impl Ownership {
    pub fn new(way: Arc<dyn Way>) -> Arc<Self> {
        Arc::new(Self { way, wake: Arc::default() })
    }

    /// For the server whose writes this judges.
    pub fn observer(&self) -> Observer {
        let wake = self.wake.clone();
        Box::new(move |collection, _| {
            if collection == queue::COLLECTION {
                wake.notify_one();
            }
        })
    }

    async fn take(&self, change: Change<'_>) -> Result<Carried> {
        let name = key_of(&change).ok_or_else(|| Status::internal("an object without a key"))?.to_string();
        // The center may have let go of it meanwhile: then it is judged anew.
        let Some((held, _)) = apply::held(change.server, &name) else { return Ok(Carried::Again) };
        let (write, edge) = self.describe(&change, &held, name)?;
        let waiting = queue::is_waiting(change.server, &write.key);
        if self.way.is_open() && !waiting {
            return match direct::send(&*self.way, &change, &write, edge).await {
                Err(direct::Failure::Away) => self.put_by(&change, &held, write).await,
                Err(direct::Failure::Said(status)) => Err(status),
                Ok(carried) => Ok(carried),
            };
        }
        self.put_by(&change, &held, write).await
    }

    /// What goes to the center, and the merge patch of what stays here.
    fn describe(&self, change: &Change<'_>, held: &Held, key: String) -> Result<(Forward, serde_json::Value)> {
        let (wanted, edge) = match &change.to {
            To::Nothing(options) => (forward::Change::Delete(options.clone()), serde_json::json!({})),
            To::Value { value, replicas } => {
                let split = part::split(change.collection, held, change.before, value).ok_or_else(|| {
                    Status::bad_request(
                        "this change sets a field to null, which cannot be said to the center: make it there",
                    )
                })?;
                let wanted = replicas.map_or(forward::Change::Patch(split.center), forward::Change::Replicas);
                (wanted, split.edge)
            }
        };
        let user = change.user;
        let write = Forward {
            id: String::new(),
            key,
            verb: change.verb.to_owned(),
            subresource: change.subresource.to_owned(),
            change: wanted,
            precondition: forward::hexadecimal(held.hash),
            field_manager: change.field_manager.clone(),
            dry_run: change.dry_run,
            user: LocalUser {
                name: user.name.clone(),
                uid: user.uid.clone(),
                groups: user.groups.clone(),
                extra: user.extra.clone(),
            },
        };
        Ok((write, edge))
    }

    /// The center cannot be asked now: the write waits, if the center allows that for this object.
    async fn put_by(&self, change: &Change<'_>, held: &Held, write: Forward) -> Result<Carried> {
        let allowed = held.annotations.contains(names::OFFLINE_WRITES)
            && change.before["metadata"]["annotations"][names::OFFLINE_WRITES] == "queue";
        if !allowed || change.dry_run {
            return Err(away(change));
        }
        let done = queue::put_by(change, write).await?;
        self.wake.notify_one();
        Ok(done)
    }
}

impl Owner for Ownership {
    fn is_elsewhere(&self, change: &Change<'_>) -> bool {
        let Some(key) = key_of(change) else { return false };
        let Some((held, _)) = apply::held(change.server, &key.to_string()) else { return false };
        let new = match &change.to {
            // The center wanted it to be there, and nothing else.
            To::Value { .. } if place::is_create_only(change.before) => return false,
            To::Value { value, .. } => Some(*value),
            To::Nothing(_) => None,
        };
        part::is_centers(change.collection, change.subresource, &held, change.before, new)
    }

    fn carry<'a>(&'a self, change: Change<'a>) -> BoxFuture<'a, Result<Carried>> {
        Box::pin(self.take(change))
    }
}

/// How the link calls the object. Only the workspace that edges have has objects of the center's.
fn key_of<'a>(change: &'a Change<'_>) -> Option<ObjectKey<'a>> {
    let old = change.old;
    (old.cluster() == CLUSTER).then(|| ObjectKey {
        collection: change.collection,
        namespace: old.namespace(),
        name: old.name(),
    })
}

/// What a client is told when its write cannot be decided on.
fn away(change: &Change<'_>) -> Status {
    let (group, resource) = change.collection.split_once('/').unwrap_or_default();
    let group = if group == "core" { "" } else { group };
    let what = schema::status::qualified(group, resource);
    let name = change.old.name();
    let shown = change.server.cache.get("core/configmaps", &format!("{CLUSTER}/{}/{}", show::NAMESPACE, show::NAME));
    let since = shown.map(|shown| shown.value()["data"]["since"].as_str().unwrap_or_default().to_owned());
    let since = since.filter(|since| !since.is_empty()).map(|since| format!(" (since {since})")).unwrap_or_default();
    let advice = match change.dry_run {
        true => String::new(),
        false => format!(
            ". To let such writes wait on the edge, set the annotation {}=queue on the object at the center",
            names::OFFLINE_WRITES
        ),
    };
    Status::unavailable(format!(
        "{what} {name:?} is the center's, and this edge has no link to it at the moment{since}: try again when it has, or \
         make the change at the center{advice}"
    ))
    .about(group, resource, name)
    .retry_after(RETRY)
}
