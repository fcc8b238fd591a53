//! `selvedge mailbox florin`: where to look at what an edge holds, as a workspace, as an address, or as a kubeconfig.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use super::{Fleet, row};
use crate::{cli::say, ws::files};

#[derive(Args)]
pub struct Mailbox {
    /// florin, or root:org:florin
    edge: String,
    /// The edge's own API, live through the tunnel, instead of the mailbox, which shows what it shall hold and last
    /// reported.
    #[arg(long, conflicts_with = "own")]
    live: bool,
    /// The namespaces that the current workspace has on the edge, live. Needs no rights in the edge's workspace; name
    /// the edge with its whole path then.
    #[arg(long)]
    own: bool,
    /// What to print: the path behind /clusters/, the address for `kubectl --server`, or a kubeconfig that points
    /// there.
    #[arg(long, short, value_enum, default_value = "path")]
    output: Output,
    /// The kubeconfig to use, instead of KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Path,
    Server,
    Kubeconfig,
}

pub fn run(mailbox: Mailbox) -> Result<()> {
    super::runtime()?.block_on(async {
        let fleet = Fleet::connect(mailbox.kubeconfig.as_deref()).await?;
        let path = match mailbox.own {
            true => own(&fleet, &mailbox.edge).await?,
            false => of_edge(&fleet, &mailbox.edge, mailbox.live).await?,
        };
        let server = format!("{}/clusters/{path}", fleet.remote.base());
        match mailbox.output {
            Output::Path => say(&format!("{path}\n")),
            Output::Server => say(&format!("{server}\n")),
            Output::Kubeconfig => say(&kubeconfig(&files::paths(mailbox.kubeconfig.as_deref())?, &server)?),
        }
    })
}

async fn of_edge(fleet: &Fleet, wanted: &str, live: bool) -> Result<String> {
    let edge = fleet.edge(wanted).await?;
    let (workspace, name) = (row::workspace(&edge), row::name(&edge));
    if live {
        return Ok(kinds::EdgeId::new(workspace, name).mailbox());
    }
    let uid = edge["metadata"]["uid"].as_str().context("the SyncTarget has no uid")?;
    Ok(kinds::mailbox::path(workspace, uid))
}

/// What the current workspace has there.
async fn own(fleet: &Fleet, wanted: &str) -> Result<String> {
    let here = &fleet.workspace;
    let found = fleet.remote.call("GET", format!("/clusters/{here}/edges"), None).await?.done()?;
    let edges: Vec<&str> =
        found["edges"].as_array().into_iter().flatten().filter_map(|edge| edge["edge"].as_str()).collect();
    let is_meant = |edge: &&&str| **edge == wanted || edge.rsplit(':').next() == Some(wanted);
    let meant: Vec<&&str> = edges.iter().filter(is_meant).collect();
    match meant[..] {
        [edge] => Ok(format!("{here}/edges/{edge}")),
        [] if edges.is_empty() => bail!("no EdgePlacement of {here} reaches any edge"),
        [] => bail!("no EdgePlacement of {here} reaches an edge {wanted}; they reach {}", edges.join(", ")),
        _ => bail!("several edges are called {wanted}: say which, with its whole path"),
    }
}

/// The kubeconfig with another server in its current context, and only that.
fn kubeconfig(files: &[PathBuf], server: &str) -> Result<String> {
    let mut merged = kube::config::Kubeconfig::default();
    for file in files.iter().filter(|file| file.exists()) {
        merged = merged.merge(kube::config::Kubeconfig::read_from(file)?)?;
    }
    let current = merged.current_context.clone().context("the kubeconfig has no current context")?;
    merged.contexts.retain(|context| context.name == current);
    let context = merged.contexts.first().and_then(|context| context.context.clone());
    let context = context.with_context(|| format!("the kubeconfig has no context {current}"))?;
    merged.clusters.retain(|cluster| cluster.name == context.cluster);
    merged.auth_infos.retain(|user| Some(&user.name) == context.user.as_ref());
    let cluster = merged.clusters.first_mut().and_then(|cluster| cluster.cluster.as_mut());
    let cluster = cluster.with_context(|| format!("the kubeconfig has no cluster {}", context.cluster))?;
    cluster.server = Some(server.to_owned());
    Ok(yaml_serde::to_string(&merged)?)
}
