//! Objects in the other versions of their kind, for managers that wrote in those.

use schema::{Schema, TypeId};
use serde_json::Value;

/// The other versions of a kind.
pub trait Versions: Sync {
    /// The object in another version, and its type there. `None` when that version is no longer served.
    fn convert(&self, object: &Value, api_version: &str) -> Option<(Value, &Schema, TypeId)>;
}
