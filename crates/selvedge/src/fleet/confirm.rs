//! `selvedge edge confirm` and `selvedge edge adopt`: what edges wait for somebody to decide.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use super::{Fleet, SYNCTARGETS, row};
use crate::cli::say;

const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(250);
const PLACEMENTS: &str = "apis/edge.kcp.io/v1alpha1/edgeplacements";

#[derive(Args)]
pub struct Confirm {
    /// The edges: florin, or root:org:florin.
    #[arg(value_name = "EDGE")]
    edges: Vec<String>,
    /// The same, as an option. Can be given several times.
    #[arg(long = "edge", value_name = "EDGE")]
    also: Vec<String>,
    /// Every edge that holds something of the placement.
    #[arg(long, requires = "placement", conflicts_with_all = ["edges", "also"])]
    all: bool,
    /// Only what this placement no longer places, as in root:shop:web. Without it, everything that the edges hold back.
    #[arg(long, value_name = "WORKSPACE:NAME")]
    placement: Option<String>,
    /// Only if it is at most so many objects on each edge: what has come since you looked is not confirmed.
    #[arg(long, value_name = "COUNT")]
    objects: Option<u64>,
    /// As the owner of the placement: states on the placement itself that the removal is intended (spec.removal:
    /// Allow). Needs no rights on the edges, and counts for edges that are offline too.
    #[arg(long, requires = "placement", conflicts_with_all = ["edges", "also", "all", "objects"])]
    owner: bool,
    /// Say so at once, before the edges have done it.
    #[arg(long)]
    no_wait: bool,
    /// The kubeconfig to use, instead of KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

#[derive(Args)]
pub struct Adopt {
    /// florin, or root:org:florin
    edge: String,
    /// Say so at once, before it has taken effect.
    #[arg(long)]
    no_wait: bool,
    /// The kubeconfig to use, instead of KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

pub fn run(confirm: Confirm) -> Result<()> {
    super::runtime()?.block_on(async {
        let fleet = Fleet::connect(confirm.kubeconfig.as_deref()).await?;
        match (&confirm.placement, confirm.owner) {
            (Some(placement), true) => fleet.intend(placement).await,
            _ => fleet.confirm(&confirm).await,
        }
    })
}

pub fn run_adopt(adopt: &Adopt) -> Result<()> {
    super::runtime()?.block_on(async {
        let fleet = Fleet::connect(adopt.kubeconfig.as_deref()).await?;
        fleet.adopt(&adopt.edge, !adopt.no_wait).await
    })
}

/// How many objects an edge holds back, of a placement or of all.
fn held(live: &Value, placement: Option<&str>) -> u64 {
    let count = match placement {
        Some(placement) => &live["heldPlacements"][placement],
        None => &live["heldDeletions"],
    };
    count.as_u64().unwrap_or_default()
}

/// What the annotation says that confirms it.
fn text(placement: Option<&str>, count: u64) -> String {
    placement.map_or_else(|| count.to_string(), |placement| format!("{placement}={count}"))
}

fn objects(count: u64) -> String {
    if count == 1 { "1 object".into() } else { format!("{count} objects") }
}

fn edges(count: usize) -> String {
    if count == 1 { "1 edge".into() } else { format!("{count} edges") }
}

impl Fleet {
    async fn confirm(&self, confirm: &Confirm) -> Result<()> {
        let (chosen, placement) = (self.chosen(confirm).await?, confirm.placement.as_deref());
        let live = self.live(&chosen).await?;
        let mut waiting = BTreeMap::new();
        let (mut total, mut refused, mut offline) = (0, 0, 0);
        for (edge, live) in chosen.iter().zip(&live) {
            let (path, count) = (row::path(edge), held(live, placement));
            offline += usize::from(live["connected"] != true);
            if count == 0 {
                if !confirm.all {
                    say(&format!("{path}: nothing is held back{}\n", of(placement)))?;
                }
                continue;
            }
            if let Some(most) = confirm.objects.filter(|most| count > *most) {
                refused += 1;
                say(&format!(
                    "{path}: not confirmed, {} are held back{} by now, more than {most}\n",
                    objects(count),
                    of(placement)
                ))?;
                continue;
            }
            let change = json!({"metadata": {"annotations": {kinds::names::CONFIRM_DELETION: text(placement, count)}}});
            self.remote.call("PATCH", target(edge), Some(change)).await?.done()?;
            say(&format!("{path}: the deletion of {}{} is confirmed\n", objects(count), of(placement)))?;
            total += count;
            waiting.insert(path, edge.clone());
        }
        let confirmed = waiting.len();
        if !confirm.no_wait {
            self.follow(waiting, placement).await?;
        }
        let done = if confirm.no_wait { "confirmed" } else { "confirmed and done" };
        say(&format!("{} on {} {done}.\n", objects(total), edges(confirmed)))?;
        if confirm.all && offline > 0 {
            say(&format!(
                "{} offline: they are asked when they come back, unless the placement's owner states the intent (--owner).\n",
                if offline == 1 { "1 edge is".to_owned() } else { format!("{offline} edges are") }
            ))?;
        }
        if refused > 0 {
            bail!("{} hold more than was to be confirmed: look at `selvedge status` and confirm again", edges(refused));
        }
        Ok(())
    }

    /// The edges that are meant.
    async fn chosen(&self, confirm: &Confirm) -> Result<Vec<Value>> {
        if confirm.all {
            return self.edges().await;
        }
        let named: Vec<&String> = confirm.edges.iter().chain(&confirm.also).collect();
        if named.is_empty() {
            bail!(
                "which edges? Name them, or add --all --placement WORKSPACE:NAME for all that hold something of a placement"
            );
        }
        let mut chosen = Vec::new();
        for name in named {
            chosen.push(self.edge(name).await?);
        }
        Ok(chosen)
    }

    /// Says of each edge when it has done it.
    async fn follow(&self, mut waiting: BTreeMap<String, Value>, placement: Option<&str>) -> Result<()> {
        let (since, all) = (Instant::now(), waiting.len());
        while !waiting.is_empty() {
            let edges: Vec<Value> = waiting.values().cloned().collect();
            let live = self.live(&edges).await?;
            for (edge, live) in edges.iter().zip(&live).filter(|(_, live)| is_done(live, placement)) {
                let path = row::path(edge);
                waiting.remove(&path);
                let left = all - waiting.len();
                let gone = if live["connected"] == true { "done" } else { "not connected any more" };
                say(&format!("{path}: {gone} ({left} of {all})\n"))?;
            }
            if waiting.is_empty() {
                break;
            }
            if since.elapsed() > PATIENCE {
                let left: Vec<&str> = waiting.keys().map(String::as_str).collect();
                bail!("not done after {} s: {}. `selvedge status` says why", PATIENCE.as_secs(), left.join(", "));
            }
            tokio::time::sleep(GLANCE).await;
        }
        Ok(())
    }

    /// The owner of a placement states that what it takes away is meant to go.
    async fn intend(&self, placement: &str) -> Result<()> {
        let (workspace, name) = placement
            .rsplit_once(':')
            .with_context(|| format!("{placement} names no placement: write the workspace too, as in root:shop:web"))?;
        let all = format!("/clusters/{workspace}/{PLACEMENTS}");
        let change = json!({"spec": {"removal": "Allow"}});
        let changed = self.remote.call("PATCH", format!("{all}/{name}"), Some(change.clone())).await?;
        if changed.code != 404 {
            changed.done()?;
            return say(&format!(
                "{placement} allows removals: what it no longer places goes from its edges, also from those that come back later.\n"
            ));
        }
        // It is gone. One of the same name, which selects nothing, states it in its place and goes again.
        let stand_in = json!({"apiVersion": "edge.kcp.io/v1alpha1", "kind": "EdgePlacement", "metadata": {"name": name},
            "spec": {"locationSelectors": [], "removal": "Allow"}});
        self.remote.call("POST", all.clone(), Some(stand_in)).await?.done()?;
        self.remote.call("DELETE", format!("{all}/{name}"), None).await?.done()?;
        say(&format!(
            "{placement} is gone, and its removal is stated to be intended: what it placed goes from its edges, also from those that come back later.\n"
        ))
    }

    async fn adopt(&self, wanted: &str, wait: bool) -> Result<()> {
        let edge = self.edge(wanted).await?;
        let path = row::path(&edge);
        let rolled_back = |live: &[Value]| live.first().is_some_and(|live| live["rolledBack"] == true);
        let edges = [edge];
        if !rolled_back(&self.live(&edges).await?) {
            return say(&format!("{path} follows this center already.\n"));
        }
        let change = json!({"metadata": {"annotations": {kinds::names::ADOPT: "yes"}}});
        self.remote.call("PATCH", target(&edges[0]), Some(change)).await?.done()?;
        let since = Instant::now();
        while wait && rolled_back(&self.live(&edges).await?) {
            if since.elapsed() > PATIENCE {
                bail!("{path} does not follow this center after {} s: `selvedge status` says why", PATIENCE.as_secs());
            }
            tokio::time::sleep(GLANCE).await;
        }
        say(&format!("{path} follows this center from now on.\n"))
    }
}

fn target(edge: &Value) -> String {
    format!("/clusters/{}/{SYNCTARGETS}/{}", row::workspace(edge), row::name(edge))
}

fn of(placement: Option<&str>) -> String {
    placement.map(|placement| format!(" of {placement}")).unwrap_or_default()
}

/// An edge that went away does not say any more.
fn is_done(live: &Value, placement: Option<&str>) -> bool {
    let busy = placement.is_none() && live["inSync"] != true && live["refused"] == 0;
    live["connected"] != true || (held(live, placement) == 0 && !busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_and_how_it_is_confirmed() {
        let live = json!({"connected": true, "inSync": false, "refused": 0, "heldDeletions": 9, "heldPlacements": {"root:shop:web": 7}});
        assert_eq!((held(&live, None), held(&live, Some("root:shop:web")), held(&live, Some("root:a:b"))), (9, 7, 0));
        assert_eq!((text(None, 9), text(Some("root:shop:web"), 7)), ("9".into(), "root:shop:web=7".into()));
        assert!(!is_done(&live, None) && !is_done(&live, Some("root:shop:web")) && is_done(&live, Some("root:a:b")));
        let done = json!({"connected": true, "inSync": true, "refused": 0, "heldDeletions": 0});
        assert!(is_done(&done, None) && is_done(&done, Some("root:shop:web")) && is_done(&Value::Null, None));
        assert_eq!(
            (objects(1), objects(2), edges(1), edges(3)),
            ("1 object".into(), "2 objects".into(), "1 edge".into(), "3 edges".into())
        );
    }
}
