//! The versions of a built-in kind, for server-side apply: managers may have written in another version.

use patch::apply::Versions;
use schema::catalogue::split_api_version;
use schema::{Schema, TypeId, builtin};
use serde_json::Value;

use super::convert;

/// The versions of a built-in kind.
#[derive(Clone, Copy, Debug)]
pub struct BuiltInVersions<'a> {
    pub kind: &'a str,
    /// The version that objects come in.
    pub api_version: &'a str,
}

impl Versions for BuiltInVersions<'_> {
    fn convert(&self, object: &Value, api_version: &str) -> Option<(Value, &Schema, TypeId)> {
        let to = split_api_version(api_version);
        let ty = builtin().of_kind(to.0, to.1, self.kind)?;
        let mut object = object.clone();
        convert(self.kind, split_api_version(self.api_version), to, &mut object).ok()?;
        Some((object, builtin(), ty))
    }
}
