//! Kinds shared between workspaces: an APIExport offers them, an APIBinding takes them.
//!
//! * [`schema`]: what is exported, as definitions; [`compare`]: what may take its place.
//! * [`index`]: which exports and bindings there are, from the cache's own changes.
//! * [`identity`] gives exports their identity and address, [`bindings`] brings bindings to what [`bind`] decides.
//! * [`admit`] and [`policy`]: who may bind what, and do what with it.

mod admit;
mod bind;
mod bindings;
mod claims;
mod compare;
mod conditions;
mod gate;
mod identity;
pub mod index;
mod lookup;
mod ours;
mod policy;
pub mod schema;
mod view;

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

pub use admit::{create, delete, judge, update, validate};
pub use claims::Claim;
pub use gate::Gate;
pub use index::{Export, Index};
pub use lookup::{bound_collection, bound_definitions};
pub use ours::offer;
pub use policy::check as check_policy;
pub use view::{View, enter, look_around, may_look};

use crate::{Server, controllers::named, controllers::queue::Queue, kinds::DEFINITIONS};
use cache::{Cache, Change, ChangeKind, Observer};

pub const GROUP: &str = "apis.kcp.io";
pub const VERSION: &str = "v1alpha1";
pub const SCHEMAS: &str = "apis.kcp.io/apiresourceschemas";
pub const EXPORTS: &str = "apis.kcp.io/apiexports";
pub const BINDINGS: &str = "apis.kcp.io/apibindings";
const SECRETS: &str = "core/secrets";

/// What is known of all exports and bindings, and what of it has to be looked at.
#[derive(Default)]
pub struct Exports {
    index: RwLock<Index>,
    exports: Queue,
    bindings: Queue,
    /// Wakes whoever waits for the index to change.
    changed: watch::Sender<()>,
}

impl Exports {
    pub fn observer(self: &Arc<Self>) -> Observer {
        let exports = self.clone();
        Box::new(move |collection: &str, change: &Arc<Change>| exports.observe(collection, change))
    }

    pub fn read(&self) -> std::sync::RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn start(self: &Arc<Self>, server: &Arc<Server>) {
        named(server, "apiexport-controller", identity::run(self.clone(), server.clone()));
        named(server, "apibinding-controller", bindings::run(self.clone(), server.clone()));
    }

    /// Finds out who is who among the exports that are stored, before anybody is served.
    pub fn prepare(&self, cache: &Cache) {
        identity::verify_all(self, cache);
    }

    /// The identity of an export, as its key says. Its bindings are looked at again if that is news.
    fn verify(&self, export: &str, identity: Option<&str>) {
        if self.write().verify(export, identity) {
            self.read().binders(export).for_each(|key| self.bindings.push(key));
            self.changed.send_replace(());
        }
    }

    /// Another export than this one has this identity, and its key.
    fn is_of_another(&self, export: &str, identity: &str) -> bool {
        self.read().of_identity(identity).any(|(key, _)| &**key != export)
    }

    fn observe(&self, collection: &str, change: &Change) {
        let object = &change.object;
        let there = change.kind != ChangeKind::Deleted;
        match collection {
            EXPORTS => {
                self.write().set_export(object, there);
                self.exports.push(&object.key);
                self.read().binders(&object.key).for_each(|key| self.bindings.push(key));
            }
            BINDINGS => {
                self.write().set_binding(object, there);
                self.bindings.push(&object.key);
                if !there {
                    self.look_into(object.cluster());
                }
            }
            SCHEMAS => {
                let index = self.read();
                let exports = index.exports_in(object.cluster()).map(|(key, _)| key);
                exports.for_each(|key| index.binders(key).for_each(|key| self.bindings.push(key)));
            }
            // A name may have been taken or become free.
            DEFINITIONS => self.look_into(object.cluster()),
            SECRETS => {
                let index = self.read();
                let is =
                    |export: &Export| &*export.secret.0 == object.namespace() && &*export.secret.1 == object.name();
                let mine = index.exports_in(object.cluster()).filter(|(_, export)| is(export));
                mine.for_each(|(key, _)| self.exports.push(key));
            }
            _ => {}
        }
        if matches!(collection, EXPORTS | BINDINGS) {
            self.changed.send_replace(());
        }
    }

    /// All bindings of a workspace are looked at again.
    fn look_into(&self, cluster: &str) {
        self.read().bindings_in(cluster).for_each(|(key, _)| self.bindings.push(key));
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }
}
