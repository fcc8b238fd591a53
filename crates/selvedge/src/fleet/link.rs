//! `selvedge link cut|heal florin`: as a network that fails, and comes back.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;

use super::{Fleet, SYNCTARGETS, row};
use crate::cli::say;

/// An edge that was long away tries again after a minute at most, and a bit.
const PATIENCE: Duration = Duration::from_secs(90);
const GLANCE: Duration = Duration::from_millis(100);

#[derive(Args)]
pub struct Link {
    #[command(subcommand)]
    command: Command,
    /// The kubeconfig to use, instead of KUBECONFIG or ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Say so at once, before it has taken effect.
    #[arg(long, global = true)]
    no_wait: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Cut the link of an edge: the center drops it and refuses it, as a dead network would.
    Cut {
        /// florin, or root:org:florin
        edge: String,
    },
    /// Let the edge connect again.
    Heal {
        /// florin, or root:org:florin
        edge: String,
    },
}

pub fn run(link: Link) -> Result<()> {
    super::runtime()?.block_on(async {
        let fleet = Fleet::connect(link.kubeconfig.as_deref()).await?;
        match &link.command {
            Command::Cut { edge } => set(&fleet, edge, true, !link.no_wait).await,
            Command::Heal { edge } => set(&fleet, edge, false, !link.no_wait).await,
        }
    })
}

async fn set(fleet: &Fleet, wanted: &str, cut: bool, wait: bool) -> Result<()> {
    let edge = fleet.edge(wanted).await?;
    let (workspace, name) = (row::workspace(&edge).to_owned(), row::name(&edge).to_owned());
    let path = format!("/clusters/{workspace}/{SYNCTARGETS}/{name}");
    let value = if cut { json!("cut") } else { json!(null) };
    let change = json!({"metadata": {"annotations": {kinds::names::LINK: value}}});
    fleet.remote.call("PATCH", path.clone(), Some(change)).await?.done()?;
    if !wait {
        return Ok(());
    }
    let since = Instant::now();
    while row::connected(&fleet.remote.call("GET", path.clone(), None).await?.done()?) == cut {
        if since.elapsed() > PATIENCE {
            match cut {
                true => bail!("{name} is still connected after {} s: is the center's log quiet?", PATIENCE.as_secs()),
                false => {
                    bail!("{name} did not connect in {} s: does it run, and reach the center?", PATIENCE.as_secs())
                }
            }
        }
        tokio::time::sleep(GLANCE).await;
    }
    let took = since.elapsed().as_secs_f32();
    say(&match cut {
        true => format!("The link of {name} is cut (took {took:.1} s). `selvedge link heal {wanted}` heals it.\n"),
        false => format!("{name} is connected again (took {took:.1} s).\n"),
    })
}
