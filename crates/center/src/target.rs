//! What a SyncTarget says about its edge's link. Pure.

use std::sync::Arc;

use serde_json::Value;
use types::names;

pub const COLLECTION: &str = "workload.kcp.io/synctargets";

/// Conditions that somebody has to act on, and that go away when the edge is as it should be.
pub const TROUBLES: [&str; 5] = ["DeletionHeld", "RolledBack", "Stalled", "ObjectsRefused", "OfflineWritesRefused"];

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    pub uid: Box<str>,
    /// What a certificate has to say to be its edge's.
    pub credential: Option<Box<str>>,
    /// Whose objects the edge shall hold.
    pub workspace: Option<Arc<str>>,
    pub cut: bool,
    /// How many deletions somebody allows.
    pub confirm: Option<u64>,
    pub adopt: bool,
    /// Its status tells of trouble.
    pub troubled: bool,
    /// Its status says that the edge is connected.
    pub ready: bool,
}

impl Target {
    /// `None` for one that is being deleted: its edge is not welcome any more.
    pub fn read(value: &Value) -> Option<Self> {
        let metadata = value.get("metadata")?;
        if metadata.get("deletionTimestamp").is_some() {
            return None;
        }
        let annotation = |name: &str| metadata.get("annotations")?.get(name)?.as_str();
        let is_true = |kind: &str| condition(value, kind).is_some_and(|c| c["status"] == "True");
        Some(Self {
            uid: metadata.get("uid").and_then(Value::as_str).unwrap_or_default().into(),
            credential: crate::join::credential_of(value).map(Into::into),
            workspace: annotation(names::WORKSPACE).filter(|name| !name.is_empty()).map(Arc::from),
            cut: annotation(names::LINK) == Some("cut"),
            confirm: annotation(names::CONFIRM_DELETION).and_then(|number| number.trim().parse().ok()),
            adopt: annotation(names::ADOPT).is_some(),
            troubled: TROUBLES.iter().any(|kind| is_true(kind)),
            ready: is_true("Ready"),
        })
    }
}

pub fn condition<'a>(value: &'a Value, kind: &str) -> Option<&'a Value> {
    value.pointer("/status/conditions")?.as_array()?.iter().find(|c| c["type"] == kind)
}

/// Whether a SyncTarget in `home` may ask for the objects of a workspace: its own, or one inside it. Else whoever may write
/// SyncTargets somewhere could read everything.
pub fn may_ask_for(home: &str, workspace: &str) -> bool {
    workspace.strip_prefix(home).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn targets_are_read() {
        let read = |annotations: Value| {
            Target::read(&json!({"metadata": {"uid": "u", "annotations": annotations},
                "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Stalled", "status": "False"}]}}))
        };
        let plain = Target { uid: "u".into(), credential: Some("u".into()), ready: true, ..Target::default() };
        assert_eq!(read(json!({})), Some(plain.clone()));
        let full = json!({names::WORKSPACE: "root:shop", names::LINK: "cut", names::CONFIRM_DELETION: " 12", names::ADOPT: ""});
        let workspace = Some("root:shop".into());
        assert_eq!(read(full), Some(Target { workspace, cut: true, confirm: Some(12), adopt: true, ..plain.clone() }));
        let odd = json!({names::WORKSPACE: "", names::LINK: "x", names::CONFIRM_DELETION: "all"});
        assert_eq!(read(odd), Some(plain));
        assert_eq!(Target::read(&json!({"metadata": {"deletionTimestamp": "t"}})), None);
        assert_eq!(Target::read(&json!(7)), None);
    }

    #[test]
    fn only_what_is_inside_can_be_asked_for() {
        for (home, workspace, may) in [
            ("root", "root", true),
            ("root", "root:shop", true),
            ("root:shop", "root:shop:a", true),
            ("root:shop", "root", false),
            ("root:shop", "root:shopping", false),
            ("root:shop", "root:bank", false),
        ] {
            assert_eq!(may_ask_for(home, workspace), may, "{home} {workspace}");
        }
    }
}
