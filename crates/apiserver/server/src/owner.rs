//! Whose a change is. On an edge much of what is served belongs to the center, and a change of it is decided there.
//!
//! The server asks once it knows what a write comes to, before anything is committed. It knows nothing of centers: whoever it
//! asks either leaves the change to it, or takes it to where it is decided and says how that went.

use std::sync::Arc;

use cache::object::Object;
use futures::future::BoxFuture;
use identity::User;
use request::Verb;
use rules::strategy;
use schema::status::Result;
use serde_json::Value;

use crate::{Server, call::Call};

pub trait Owner: Send + Sync + 'static {
    /// Whether somebody else decides on this change. Asked for every write of an object that exists, so it must be quick.
    fn is_elsewhere(&self, change: &Change<'_>) -> bool;

    /// Takes a change to where it is decided. What comes of it is the client's answer.
    fn carry<'a>(&'a self, change: Change<'a>) -> BoxFuture<'a, Result<Carried>>;
}

/// A write that is whole and valid here, and not committed.
pub struct Change<'a> {
    pub server: &'a Arc<Server>,
    /// `apps/deployments`.
    pub collection: &'a str,
    pub old: &'a Arc<Object>,
    pub before: &'a Value,
    pub to: To<'a>,
    /// What the client asked for, as roles name it.
    pub verb: &'static str,
    pub subresource: &'a str,
    pub user: &'a User,
    pub field_manager: String,
    pub dry_run: bool,
}

/// What the object becomes.
pub enum To<'a> {
    /// This, as it would be stored.
    Value {
        value: &'a Value,
        /// What a Scale of it says, if the client wrote one.
        replicas: Option<i64>,
    },
    /// Nothing, by these DeleteOptions.
    Nothing(Value),
}

/// How it went where it is decided.
pub enum Carried {
    /// Done. The object as it is here now, or would be; for a deletion, as it was.
    Done { object: Arc<Object>, warnings: Vec<String> },
    /// Somebody else was faster, and what they did is here by now.
    Again,
}

/// What the server does about a write.
pub enum Verdict {
    Here,
    /// The object is another's, and the server's own controllers leave it as it is.
    Left,
    Done(Arc<Object>),
    Again,
}

/// Asks whose a change of an existing object is, and has it carried there.
pub async fn ask(call: &Call, old: &Arc<Object>, before: &Value, to: To<'_>, dry_run: bool) -> Result<Verdict> {
    let Some(owner) = &call.server.owner else { return Ok(Verdict::Here) };
    let verb = call.verb.map_or("", Verb::name);
    let change = Change {
        server: &call.server,
        collection: &call.kind.collection,
        old,
        before,
        to,
        verb,
        subresource: &call.target.subresource,
        user: &call.user,
        field_manager: call.field_manager(),
        dry_run,
    };
    if !owner.is_elsewhere(&change) {
        return Ok(Verdict::Here);
    }
    if call.verb.is_none() {
        tracing::debug!(object = &*old.key, "the center's object is left as it is");
        return Ok(Verdict::Left);
    }
    Ok(match owner.carry(change).await? {
        Carried::Again => Verdict::Again,
        Carried::Done { object, warnings } => {
            warnings.into_iter().for_each(|warning| call.warn(warning));
            Verdict::Done(object)
        }
    })
}

/// What a write through `scale` says, in whichever field the kind keeps it.
pub fn replicas(call: &Call, value: &Value) -> Option<i64> {
    if call.target.subresource != "scale" {
        return None;
    }
    let scale = match call.kind.custom.as_ref().and_then(|custom| custom.version()) {
        Some(version) => version.scale_get(value)?.ok()?,
        None => strategy::scale::get(&call.kind.resource, value)?,
    };
    Some(scale["spec"]["replicas"].as_i64().unwrap_or(0))
}
