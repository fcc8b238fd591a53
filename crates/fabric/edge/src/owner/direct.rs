//! A write that goes to the center at once.

use std::{sync::Arc, time::Duration};

use cache::object;
use cache::object::Object;
use kinds::forward::{self, Done, Forward, hexadecimal};
use schema::status::Status;
use serde_json::Value;
use server::Server;
use server::owner::{Carried, Change, To};
use store::{Commit, Compare, Op};

use super::{Lost, RETRY, Way, part};
use crate::apply::{self, commit_and_see};

/// So long a client waits to read here what the center has taken.
const ARRIVAL: Duration = Duration::from_secs(5);
const TRIES: usize = 10;

pub enum Failure {
    /// There is no link.
    Away,
    /// The client's answer.
    Said(Status),
}

/// Has the center decide. `edge` is the merge patch of what the write changes of the edge's own part.
pub async fn send(way: &dyn Way, change: &Change<'_>, write: &Forward, edge: Value) -> Result<Carried, Failure> {
    let said = ask(way, write).await;
    let done = match said {
        Ok(done) => done,
        Err(Answer::Lost(Lost::Away)) => return Err(Failure::Away),
        Err(Answer::Lost(Lost::Broke(why))) => {
            let what = format!(
                "the link broke while the write was on its way to the center ({why}): whether the center has taken it can be seen \
                 when the link is back"
            );
            return Err(Failure::Said(Status::new(504, "Timeout", what)));
        }
        // The center is ahead of this edge. What it has comes by itself, and the change is made on top of that.
        Err(Answer::Stale(status)) => {
            return match arrives(change.server, write).await {
                true => Ok(Carried::Again),
                false => Err(Failure::Said(status.retry_after(RETRY))),
            };
        }
        Err(Answer::Status(status)) => return Err(Failure::Said(status)),
    };
    let mut warnings = done.warnings;
    if change.dry_run {
        return Ok(Carried::Done { object: expected(change), warnings });
    }
    if done.hash != write.precondition && !arrives(change.server, write).await {
        warnings.push("the center has taken this write, but it has not come back to this edge yet".into());
        return Ok(Carried::Done { object: expected(change), warnings });
    }
    match &change.to {
        To::Nothing(_) => Ok(Carried::Done { object: change.old.clone(), warnings }),
        To::Value { .. } => {
            let object = keep_own(change, &edge).await.map_err(Failure::Said)?;
            Ok(Carried::Done { object: object.unwrap_or_else(|| expected(change)), warnings })
        }
    }
}

/// What the center did not do.
pub enum Answer {
    Lost(Lost),
    /// Its object is another one than the write builds on.
    Stale(Status),
    Status(Status),
}

pub async fn ask(way: &dyn Way, write: &Forward) -> Result<Done, Answer> {
    let body = serde_json::to_vec(write).unwrap_or_default();
    if body.len() > forward::MOST {
        return Err(Answer::Status(Status::too_large("the write is too large to be sent to the center")));
    }
    let (code, body) = way.send(body.into()).await.map_err(Answer::Lost)?;
    if (200..300).contains(&code) {
        let unreadable = |_| Answer::Lost(Lost::Broke("the center's answer cannot be read".into()));
        return serde_json::from_slice(&body).map_err(unreadable);
    }
    let status = Status::from_value(code, &serde_json::from_slice(&body).unwrap_or_default());
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    match causes.iter().any(|cause| cause.reason == forward::STALE) {
        true => Err(Answer::Stale(status)),
        false => Err(Answer::Status(status)),
    }
}

/// Waits until what the edge has of the object is no longer what the write builds on. As the center took the write on top of
/// just that, what comes next is its outcome or later.
async fn arrives(server: &Server, write: &Forward) -> bool {
    let come = async {
        loop {
            let seen = server.cache.revision();
            match apply::held(server, &write.key) {
                Some((held, _)) if hexadecimal(held.hash) == write.precondition => {}
                // What is remembered of an object comes a revision before the object.
                _ => return caught_up(server).await,
            }
            server.cache.wait_for(seen + 1).await;
        }
    };
    tokio::time::timeout(ARRIVAL, come).await.is_ok()
}

async fn caught_up(server: &Server) {
    // A store that cannot say how far it is ends this server by itself.
    if let Ok(newest) = server.cache.store().revision().await {
        server.cache.wait_for(newest).await;
    }
}

/// The object as it should become, where it cannot be read yet.
fn expected(change: &Change<'_>) -> Arc<Object> {
    let old = change.old;
    match &change.to {
        To::Value { value, .. } => {
            let json = object::with_revision(&object::encode(value), old.revision);
            Arc::new(Object::new(old.key.clone(), json, old.created, old.revision))
        }
        To::Nothing(_) => old.clone(),
    }
}

/// Makes the edge's part of the change on what is here now.
async fn keep_own(change: &Change<'_>, edge: &Value) -> Result<Option<Arc<Object>>, Status> {
    let server = change.server;
    for _ in 0..TRIES {
        let Some(now) = server.cache.get(change.collection, &change.old.key) else { return Ok(None) };
        let before = now.value();
        let mut value = before.clone();
        part::apply_edge(&mut value, edge);
        if value == before {
            return Ok(Some(now));
        }
        let key = format!("{}/{}", change.collection, now.key);
        let commit = Commit {
            compares: vec![Compare { key: key.clone(), modified: now.revision }],
            ops: vec![Op::Put { key, value: object::encode(&value) }],
        };
        if commit_and_see(server, commit).await.map_err(|error| server::unavailable(&error))? {
            return Ok(server.cache.get(change.collection, &change.old.key));
        }
    }
    Ok(None)
}
