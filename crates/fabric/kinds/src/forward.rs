//! A write that a client made on an edge and that the center decides on: the same whether it goes at once or was queued.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where it is sent, over the link's connection.
pub const PATH: &str = "/selvedge.link.v1.Link/Forward";
/// Its body is no longer than this: an object, and room for who wrote it.
pub const MOST: usize = 4 << 20;

/// The cause in a Status that says that the center's object is another one than the write builds on.
pub const STALE: &str = "StaleObject";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Forward {
    /// Of a queued write: the same however often it is sent, so that it is done once.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The object, as [`crate::ObjectKey`] has it.
    pub key: String,
    /// What the client asked for, as roles name it.
    pub verb: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    #[serde(flatten)]
    pub change: Change,
    /// What stands for the object as the client saw it: `link::entry_hash` in hexadecimal. Another one now is a conflict.
    pub precondition: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_manager: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    pub user: LocalUser,
}

/// What an edge sends: a write, or how it stands with those that waited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Said {
    Standing { standing: Standing },
    Write(Box<Forward>),
}

/// Writes that waited and that the center did not take: how many are still there to be looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Standing {
    pub refused: u64,
    /// Of which objects, some of them.
    pub objects: Vec<String>,
}

/// What is to become of the center's part of the object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// A JSON merge patch.
    Patch(Value),
    /// Written through `scale`.
    Replicas(i64),
    /// DeleteOptions.
    Delete(Value),
}

impl Default for Change {
    fn default() -> Self {
        Self::Patch(Value::Null)
    }
}

/// Somebody whom only the edge knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalUser {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What the center says when it has done it; else it says a Status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Done {
    /// What stands for the object now; empty if the edge is to hold it no more.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// The object as the edge is to hold it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
    pub warnings: Vec<String>,
}

/// Hashes as they are written.
pub fn hexadecimal(hash: u128) -> String {
    format!("{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_back() {
        for change in [
            Change::Patch(json!({"spec": {"replicas": 3, "paused": null}})),
            Change::Replicas(0),
            Change::Delete(json!({"propagationPolicy": "Orphan"})),
        ] {
            let write = Forward {
                id: "7".into(),
                key: "apps/deployments/shop/web".into(),
                verb: "patch".into(),
                change,
                precondition: hexadecimal(7),
                user: LocalUser { name: "alice".into(), groups: vec!["dev".into()], ..LocalUser::default() },
                ..Forward::default()
            };
            let text = serde_json::to_string(&write).unwrap();
            assert_eq!(serde_json::from_str::<Forward>(&text).unwrap(), write, "{text}");
        }
        assert!(serde_json::from_str::<Forward>("{}").is_err(), "no change is no write");
    }
}
