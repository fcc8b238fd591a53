//! What a SyncTarget says about its edge's link. Pure.

use std::sync::Arc;

use kinds::names;
use placement::Id;
use serde_json::Value;
use server::Server;

use crate::instances::Decision;

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
    /// The uid of the workspace that somebody who may has decided on.
    pub granted: Option<Box<str>>,
    pub cut: bool,
    /// Which deletions somebody allows.
    pub confirm: Option<Confirm>,
    pub adopt: bool,
    /// Which of several machines with its identity is let in, if there are several.
    pub decision: Option<Arc<Decision>>,
    /// The machine that an operator wants to let in.
    pub accept: Option<Box<str>>,
    /// Its status tells of trouble.
    pub troubled: bool,
    /// Its status says that the edge is connected.
    pub ready: bool,
}

/// Deletions that somebody confirms: so many, of one placement or of all.
#[derive(Clone, Debug, PartialEq)]
pub struct Confirm {
    pub up_to: u64,
    pub placement: Option<Id>,
    /// As it was written.
    pub text: Box<str>,
}

impl Confirm {
    /// `12`, or `root:shop:web=12`.
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        let (placement, number) = match text.rsplit_once('=') {
            Some((path, number)) => {
                let (workspace, name) = path.rsplit_once(':')?;
                (Some(Id::new(workspace, name)), number)
            }
            None => (None, text),
        };
        Some(Self { up_to: number.parse().ok()?, placement, text: text.into() })
    }
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
            granted: granted(annotation(names::WORKSPACE), annotation(names::WORKSPACE_GRANTED)),
            cut: annotation(names::LINK) == Some("cut"),
            confirm: annotation(names::CONFIRM_DELETION).and_then(Confirm::read),
            adopt: annotation(names::ADOPT).is_some(),
            decision: decision(value, annotation(names::INSTANCES)),
            accept: annotation(names::ACCEPT_INSTANCE).map(|text| text.trim().into()),
            troubled: TROUBLES.iter().any(|kind| is_true(kind)),
            ready: is_true("Ready"),
        })
    }
}

/// What was decided for this joining of the edge.
fn decision(value: &Value, text: Option<&str>) -> Option<Arc<Decision>> {
    let decision: Decision = serde_json::from_str(text?).ok()?;
    let credential = crate::join::credential_of(value)?;
    (decision.credential == credential).then(|| Arc::new(decision))
}

pub fn condition<'a>(value: &'a Value, kind: &str) -> Option<&'a Value> {
    value.pointer("/status/conditions")?.as_array()?.iter().find(|c| c["type"] == kind)
}

/// The uid in the server's record, if that is about the workspace that is named.
fn granted(workspace: Option<&str>, record: Option<&str>) -> Option<Box<str>> {
    let record: Value = serde_json::from_str(record?).ok()?;
    (record["workspace"].as_str() == workspace).then(|| record["uid"].as_str().map(Into::into))?
}

/// Whether a SyncTarget may have the objects of the workspace that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    Yes,
    /// Neither its own workspace nor one inside it.
    Outside,
    /// Nobody with the right to has decided that. Without it, whoever may write SyncTargets in a workspace could read all workspaces inside it.
    Undecided,
}

/// `uid` is that of the workspace as it is now; one that was made anew has to be decided on again.
pub fn may_have(home: &str, workspace: &str, granted: Option<&str>, uid: Option<&str>) -> Allowed {
    match workspace.strip_prefix(home) {
        Some("") => Allowed::Yes,
        Some(rest) if !rest.starts_with(':') => Allowed::Outside,
        Some(_) if granted.is_some() && granted == uid => Allowed::Yes,
        Some(_) => Allowed::Undecided,
        None => Allowed::Outside,
    }
}

impl Target {
    /// The workspace that it names, and whether it may have its objects.
    pub fn asks_for(&self, server: &Server, home: &str) -> Option<(&Arc<str>, Allowed)> {
        let workspace = self.workspace.as_ref()?;
        let uid = server::workspaces::uid(server, workspace);
        Some((workspace, may_have(home, workspace, self.granted.as_deref(), uid.as_deref())))
    }
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
        assert_eq!(
            read(full),
            Some(Target { workspace, cut: true, confirm: Confirm::read("12"), adopt: true, ..plain.clone() })
        );
        let odd = json!({names::WORKSPACE: "", names::LINK: "x", names::CONFIRM_DELETION: "all"});
        assert_eq!(read(odd), Some(plain));
        assert_eq!(Target::read(&json!({"metadata": {"deletionTimestamp": "t"}})), None);
        assert_eq!(Target::read(&json!(7)), None);
    }

    #[test]
    fn confirmations_are_read() {
        let of = |text: &str| Confirm::read(text).map(|c| (c.up_to, c.placement.map(|id| id.to_string())));
        assert_eq!(of(" 12 "), Some((12, None)));
        assert_eq!(of("root:shop:web=7"), Some((7, Some("root:shop:web".to_owned()))));
        for odd in ["", "all", "-1", "web=7", "root:shop:web=", "root:shop:web=x"] {
            assert_eq!(of(odd), None, "{odd}");
        }
    }

    #[test]
    fn only_what_is_inside_can_be_asked_for() {
        use Allowed::{Outside, Undecided, Yes};
        for (home, workspace, granted, uid, may) in [
            ("root", "root", None, None, Yes),
            ("root:shop", "root:shop", None, Some("u"), Yes),
            ("root", "root:shop", Some("u"), Some("u"), Yes),
            ("root", "root:shop", None, Some("u"), Undecided),
            ("root", "root:shop", Some("u"), Some("v"), Undecided),
            ("root", "root:shop", Some("u"), None, Undecided),
            ("root", "root:shop", None, None, Undecided),
            ("root:shop", "root", Some("u"), Some("u"), Outside),
            ("root:shop", "root:shopping", Some("u"), Some("u"), Outside),
            ("root:shop", "root:bank", Some("u"), Some("u"), Outside),
        ] {
            assert_eq!(may_have(home, workspace, granted, uid), may, "{home} {workspace} {granted:?} {uid:?}");
        }
        let record = r#"{"workspace": "root:shop", "uid": "u", "by": "alice"}"#;
        assert_eq!(granted(Some("root:shop"), Some(record)).as_deref(), Some("u"));
        assert_eq!(granted(Some("root:bank"), Some(record)), None);
        assert_eq!((granted(None, Some(record)), granted(Some("root:shop"), Some("{"))), (None, None));
    }
}
