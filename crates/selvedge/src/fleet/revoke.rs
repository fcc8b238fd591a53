//! `selvedge edge revoke florin`: its certificates are good for nothing from now on.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::{Fleet, SYNCTARGETS, row};
use crate::cli::say;

#[derive(Args)]
pub struct Revoke {
    /// florin, or root:org:florin
    edge: String,
    /// The kubeconfig to use, instead of KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

pub fn run(revoke: &Revoke) -> Result<()> {
    super::runtime()?.block_on(async {
        let fleet = Fleet::connect(revoke.kubeconfig.as_deref()).await?;
        let edge = fleet.edge(&revoke.edge).await?;
        let (workspace, name) = (row::workspace(&edge), row::name(&edge));
        let change = json!({"metadata": {"annotations": {kinds::names::CREDENTIAL: center::join::REVOKED}}});
        let path = format!("/clusters/{workspace}/{SYNCTARGETS}/{name}");
        fleet.remote.call("PATCH", path, Some(change)).await?.done()?;
        say(&format!(
            "{name} is revoked: its link ends, and its certificates are not taken any more. What runs there goes on. A new token lets \
             it join again: selvedge join-token create --workspace {workspace} --name {name}\n"
        ))
    })
}
