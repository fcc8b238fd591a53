//! `selvedge status`: the fleet at a glance.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Fleet, row};
use crate::cli::say;

const EVERY: Duration = Duration::from_secs(1);

#[derive(Args)]
pub struct Status {
    /// Only these edges: florin, or root:org:florin.
    edges: Vec<String>,
    /// Print it again whenever something changed, until Ctrl-C.
    #[arg(long, short)]
    watch: bool,
    #[arg(long, short, value_enum, default_value = "table")]
    output: Format,
    /// The kubeconfig to use, instead of KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

pub fn run(status: Status) -> Result<()> {
    super::runtime()?.block_on(async {
        let fleet = Fleet::connect(status.kubeconfig.as_deref()).await?;
        let mut shown = None;
        loop {
            let edges = chosen(fleet.edges().await?, &status.edges)?;
            // What stays the same is not said again, though time passes.
            let live = fleet.live(&edges).await?;
            let facts: Vec<Value> = edges.iter().zip(&live).map(|(edge, live)| row::facts(edge, live)).collect();
            let changed: Vec<Value> = facts.iter().map(row::without_times).collect();
            if shown.as_ref() != Some(&changed) {
                say(&print(&facts, status.output)?)?;
            }
            shown = Some(changed);
            if !status.watch {
                return Ok(());
            }
            sleep(EVERY).await;
        }
    })
}

fn chosen(edges: Vec<Value>, named: &[String]) -> Result<Vec<Value>> {
    let is_meant = |edge: &Value, name: &String| row::name(edge) == name || row::path(edge) == *name;
    if let Some(missing) = named.iter().find(|name| !edges.iter().any(|edge| is_meant(edge, name))) {
        bail!("there is no edge {missing}: `selvedge status` shows all");
    }
    let shown = |edge: &Value| named.is_empty() || named.iter().any(|name| is_meant(edge, name));
    Ok(edges.into_iter().filter(shown).collect())
}

fn print(facts: &[Value], output: Format) -> Result<String> {
    if output == Format::Json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(&json!({"edges": facts}))?));
    }
    if facts.is_empty() {
        return Ok("There are no edges yet: `selvedge join-token create --name florin` makes a token for one.\n".into());
    }
    Ok(row::table(facts, jiff::Timestamp::now()))
}
