//! What a kind does to an object on its way into the store: what a client may not set, generation, status.
//!
//! The order is upstream's: decode, [`crate::defaults`], [`admission`], the metadata the server sets itself (name, uid,
//! creation time), then [`prepare_create`] or [`prepare_update`], then validation.

use schema::catalogue::Resource;
use serde_json::Value;

pub mod admission;
mod create;
mod custom;
mod dropped;
mod families;
mod job;
pub mod limits;
mod metadata;
mod pod;
mod rules;
pub mod scale;
pub mod service;
#[cfg(test)]
mod tests;
mod update;
mod warnings;

pub use custom::{prepare_create_custom, prepare_update_custom};
pub use families::ip_families;
pub use job::find_pods_by_own_uid;
pub use pod::bind;

pub use crate::qos::qos_class;
pub use rules::{
    Propagation, allow_create_on_update, allow_unconditional_update, default_grace_period, default_propagation,
    deletes_gracefully,
};
pub use warnings::{deprecations, warnings};

/// The time of the request, as the server wants it written.
#[derive(Clone, Copy, Debug)]
pub struct Now<'a> {
    /// To the second: `2026-11-15T20:28:48Z`.
    pub rfc3339: &'a str,
}

/// Makes an object ready for its first write. Its name and uid are already set.
pub fn prepare_create(resource: &Resource, obj: &mut Value, now: Now<'_>) {
    dropped::leave_out(resource, obj, None);
    create::prepare(resource, obj, now);
}

/// Makes a new version of an object ready to be written over `old`. `subresource` is empty for the object itself.
///
/// `new` and `old` are in the same version.
pub fn prepare_update(resource: &Resource, subresource: &str, new: &mut Value, old: &Value, now: Now<'_>) {
    metadata::keep(new, old);
    if subresource.is_empty() {
        dropped::leave_out(resource, new, Some(old));
    }
    update::prepare(resource, subresource, new, old, now);
}
