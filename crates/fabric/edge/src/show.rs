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
    let data = [
        ("state", shown.state),
        ("message", &*shown.message),
        ("center", &shown.center),
        ("seen", &shown.seen),
        ("since", &shown.since),
    ];
    put(server, NAME, &data).await;
}

/// A ConfigMap in `kube-system` that says this.
pub async fn put(server: &Arc<Server>, name: &str, said: &[(&str, &str)]) {
    let place = Place { server, cluster: CLUSTER, collection: "core/configmaps", namespace: NAMESPACE, name };
    let said = said.iter().filter(|(_, text)| !text.is_empty());
    let data: serde_json::Map<_, _> = said.map(|(key, text)| ((*key).to_owned(), (*text).into())).collect();
    let value = json!({"kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": NAMESPACE}, "data": data});
    // Somebody may edit it at the same moment; that nobody does so for ever is enough.
    for _ in 0..3 {
        let mut commit = Commit::default();
        let old = place.get();
        if let Err(status) = place.put(value.clone(), old.as_deref(), &mut commit) {
            return tracing::debug!(error = %status.message, "a state cannot be shown");
        }
        match commit_and_see(server, commit).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => return tracing::debug!(%error, "a state cannot be shown"),
        }
    }
}
