//! The state of the link where kubectl finds it: the ConfigMap `selvedge-link` in `kube-system` of the edge itself.

use std::sync::Arc;

use serde_json::json;
use server::{Server, replica::Place};
use store::Commit;

use crate::{apply::commit_and_see, book::CLUSTER};

pub const NAMESPACE: &str = "kube-system";
pub const NAME: &str = "selvedge-link";

/// Changes seldom: only then is it written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// `Online`, `Offline`, `RolledBack`, `Stalled`.
    pub state: &'static str,
    /// Why, and what to do.
    pub message: String,
    pub center: String,
    /// How far the edge has followed the center when it came to this.
    pub seen: String,
    pub since: String,
}

pub async fn show(server: &Arc<Server>, shown: &Shown) {
    let place = Place { server, cluster: CLUSTER, collection: "core/configmaps", namespace: NAMESPACE, name: NAME };
    let mut data = serde_json::Map::new();
    for (key, text) in [
        ("state", shown.state),
        ("message", &shown.message),
        ("center", &shown.center),
        ("seen", &shown.seen),
        ("since", &shown.since),
    ] {
        if !text.is_empty() {
            data.insert(key.into(), text.into());
        }
    }
    let value = json!({"kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": NAME, "namespace": NAMESPACE}, "data": data});
    // Somebody may edit it at the same moment; that nobody does so for ever is enough.
    for _ in 0..3 {
        let mut commit = Commit::default();
        let old = place.get();
        if let Err(status) = place.put(value.clone(), old.as_deref(), &mut commit) {
            return tracing::debug!(error = %status.message, "the state of the link cannot be shown");
        }
        match commit_and_see(server, commit).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => return tracing::debug!(%error, "the state of the link cannot be shown"),
        }
    }
}
