//! A provider's watch on what it claims begins anew when binders change what they give: objects that were there before come
//! into its view without changing themselves.

use schema::status::{Result, Status};
use store::Revision;
use tokio::sync::watch;

use super::View;
use crate::call::Call;

pub struct Gate {
    view: View,
    /// What was given up to here is seen.
    opened: Revision,
    changed: watch::Receiver<()>,
}

impl Gate {
    /// For a watch that has seen everything up to a revision.
    pub fn of(call: &Call, position: Revision) -> Result<Option<Self>> {
        let Some(view) = call.view.clone().filter(View::is_claimed) else { return Ok(None) };
        let gate = Self { changed: view.exports().changed.subscribe(), opened: position, view };
        if gate.is_closed() { Err(expired()) } else { Ok(Some(gate)) }
    }

    fn is_closed(&self) -> bool {
        self.view.exports().read().claimed(&self.view.export) > self.opened
    }

    /// Answers when something else can be seen than before; never without a gate.
    pub async fn closed(gate: &mut Option<Self>) -> Status {
        let Some(gate) = gate else { return std::future::pending().await };
        while !gate.is_closed() {
            if gate.changed.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
        expired()
    }
}

fn expired() -> Status {
    Status::expired("what the workspaces give to the APIExport has changed: list again")
}
