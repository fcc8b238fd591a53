//! What matters of an object of the cluster. Pure.

use kinds::{ObjectKey, names};
use link::entry_hash;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{held::hexadecimal, place};

/// As whom the edge writes to the cluster.
pub const MANAGER: &str = "selvedge-edge";
/// The value of the mark on what this edge has made, and may delete.
pub const MADE: &str = "yes";
/// The value on what was in the cluster before, and stays when the center lets go of it.
pub const ADOPTED: &str = "adopted";

/// An object of the cluster, as it was last seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub uid: String,
    /// Its resourceVersion, as far as it is a number: later is larger.
    pub version: u64,
    pub mark: Mark,
    /// What the cluster remembers of what we have applied: another value means that somebody changed some of it.
    pub fields: u128,
    /// It is being deleted.
    pub going: bool,
    /// Every cluster has one of that name: the center's may be laid over it.
    pub common: bool,
    /// Of a definition: its kind can be used.
    pub served: bool,
}

/// Whose an object of the cluster is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// The cluster's own.
    #[default]
    None,
    Ours {
        adopted: bool,
    },
    /// Another edge's, on the same cluster.
    Other(String),
}

/// What the edge remembers of an object that it has applied, or is about to: kept in its store, from before the object is made
/// until it is seen to be gone. Without one, nothing in the cluster is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Record {
    pub api_version: String,
    pub kind: String,
    pub uid: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// What was applied.
    #[serde(with = "hexadecimal")]
    pub sent: u128,
    /// [`Found::fields`] when it was.
    #[serde(with = "hexadecimal")]
    pub fields: u128,
}

impl Found {
    /// `edge` is this edge's own id.
    pub fn read(key: &ObjectKey<'_>, value: &Value, edge: &str) -> Self {
        let metadata = &value["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let mark = match metadata["labels"][names::DOWNSYNCED].as_str() {
            None => Mark::None,
            Some(mark) => match metadata["annotations"][names::EDGE].as_str() {
                Some(whose) if whose == edge => Mark::Ours { adopted: mark != MADE },
                Some(other) => Mark::Other(other.to_owned()),
                None => Mark::None,
            },
        };
        let entries = metadata["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_ours = |entry: &&Value| {
            entry["manager"] == MANAGER
                && entry["operation"] == "Apply"
                && entry["subresource"].as_str().unwrap_or_default().is_empty()
        };
        let going = metadata["deletionTimestamp"].is_string();
        let common = !going && (key.collection == "core/namespaces" || place::may_adopt(key, value).is_ok());
        let conditions = value["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let established = |one: &Value| one["type"] == "Established" && one["status"] == "True";
        Self {
            uid: text("uid").to_owned(),
            version: text("resourceVersion").parse().unwrap_or_default(),
            mark,
            fields: entries.iter().find(is_ours).map_or(0, |entry| entry_hash("", entry.to_string().as_bytes())),
            going,
            common,
            served: !going && conditions.iter().any(established),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whose_it_is() {
        let key = ObjectKey::parse("core/configmaps/shop/a").unwrap();
        let mark = |labels: Value, annotations: Value| {
            Found::read(&key, &json!({"metadata": {"labels": labels, "annotations": annotations}}), "root:florin").mark
        };
        let ours = json!({names::EDGE: "root:florin"});
        assert_eq!(mark(json!({}), ours.clone()), Mark::None);
        assert_eq!(mark(json!({names::DOWNSYNCED: "yes"}), ours.clone()), Mark::Ours { adopted: false });
        assert_eq!(mark(json!({names::DOWNSYNCED: "adopted"}), ours.clone()), Mark::Ours { adopted: true });
        assert_eq!(mark(json!({names::DOWNSYNCED: "what"}), ours), Mark::Ours { adopted: true }, "in doubt it stays");
        assert_eq!(mark(json!({names::DOWNSYNCED: "yes"}), json!({})), Mark::None);
        let other = json!({names::EDGE: "root:guilder"});
        assert_eq!(mark(json!({names::DOWNSYNCED: "yes"}), other), Mark::Other("root:guilder".into()));
        for odd in [json!(null), json!([]), json!({"metadata": 7}), json!({"metadata": {"managedFields": {}}})] {
            assert_eq!(Found::read(&key, &odd, "root:florin"), Found::default());
        }
    }

    #[test]
    fn only_a_change_of_our_fields_is_one() {
        let key = ObjectKey::parse("core/configmaps/shop/a").unwrap();
        let read = |entries: Value| Found::read(&key, &json!({"metadata": {"managedFields": entries}}), "e").fields;
        let ours = json!({"manager": MANAGER, "operation": "Apply", "fieldsV1": {"f:data": {"f:a": {}}}});
        let other = json!({"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {}});
        let status = json!({"manager": MANAGER, "operation": "Apply", "subresource": "status", "fieldsV1": {}});
        let alone = read(json!([ours]));
        assert_eq!(read(json!([other, status, ours])), alone);
        let mut less = ours.clone();
        less["fieldsV1"] = json!({});
        assert_ne!(read(json!([less])), alone);
        assert_eq!(read(json!([other])), 0);
    }
}
