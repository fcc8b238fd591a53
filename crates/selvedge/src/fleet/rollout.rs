//! `selvedge rollout status|pause|resume`: how far a change is on its way through the edges of a placement.

use std::{
    io::IsTerminal,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Fleet;
use crate::{cli::say, ws::place};

const PLACEMENTS: &str = "apis/edge.kcp.io/v1alpha1/edgeplacements";
/// Taken away by the center once it has gone on.
const RESUME: &str = "edge.selvedge.dev/rollout-resume";
const GLANCE: Duration = Duration::from_millis(200);
/// The center takes a moment to see that something changed: what is complete before that may be what was.
const MOMENT: Duration = Duration::from_millis(1500);
const WIDTH: u64 = 30;

#[derive(Args)]
pub struct Rollout {
    #[command(subcommand)]
    command: Command,
    /// The kubeconfig to use, instead of KUBECONFIG or ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Show how far it is.
    Status {
        /// edge-placement-c, or root:org:edge-placement-c
        placement: String,
        /// Go on until it is complete. Fails if it stops.
        #[arg(long, short)]
        watch: bool,
    },
    /// Let no further edge have the change.
    Pause {
        /// edge-placement-c, or root:org:edge-placement-c
        placement: String,
    },
    /// Go on: after a pause, or although edges failed.
    Resume {
        /// edge-placement-c, or root:org:edge-placement-c
        placement: String,
    },
}

pub fn run(rollout: Rollout) -> Result<()> {
    super::runtime()?.block_on(async {
        let fleet = Fleet::connect(rollout.kubeconfig.as_deref()).await?;
        match &rollout.command {
            Command::Status { placement, watch } => status(&fleet, &path(&fleet, placement), *watch).await,
            Command::Pause { placement } => {
                let change = json!({"spec": {"rollout": {"paused": true}}});
                set(&fleet, placement, change, "is paused; `selvedge rollout resume` goes on").await
            }
            Command::Resume { placement } => {
                let paused =
                    json!({"spec": {"rollout": {"paused": null}}, "metadata": {"annotations": {RESUME: "yes"}}});
                set(&fleet, placement, paused, "goes on").await
            }
        }
    })
}

fn path(fleet: &Fleet, placement: &str) -> String {
    let (workspace, name) = place::split(placement).unwrap_or((&fleet.workspace, placement));
    format!("/clusters/{workspace}/{PLACEMENTS}/{name}")
}

async fn set(fleet: &Fleet, placement: &str, change: Value, done: &str) -> Result<()> {
    let path = path(fleet, placement);
    let found = fleet.remote.call("GET", path.clone(), None).await?.done()?;
    if found["spec"]["rollout"].is_null() {
        bail!("{placement} has no rollout: its changes go to all edges at once, unless spec.rollout is set");
    }
    fleet.remote.call("PATCH", path, Some(change)).await?.done()?;
    say(&format!("The rollout of {placement} {done}.\n"))
}

async fn status(fleet: &Fleet, path: &str, watch: bool) -> Result<()> {
    let (since, terminal) = (Instant::now(), watch && std::io::stdout().is_terminal());
    let mut shown = None;
    loop {
        let found = fleet.remote.call("GET", path.to_owned(), None).await?.done()?;
        let name = found["metadata"]["name"].as_str().unwrap_or_default();
        if found["spec"]["rollout"].is_null() {
            bail!("{name} has no rollout: its changes go to all edges at once, unless spec.rollout is set");
        }
        let rollout = &found["status"]["rollout"];
        let line = line(name, rollout);
        if shown.as_ref() != Some(&line) {
            let (before, after) = if terminal { ("\r\x1b[K", "") } else { ("", "\n") };
            say(&format!("{before}{line}{after}"))?;
            shown = Some(line);
        }
        let phase = rollout["phase"].as_str().unwrap_or_default();
        let over = matches!(phase, "Complete" | "Stopped") && since.elapsed() > MOMENT;
        if !watch || over {
            let message = rollout["message"].as_str().unwrap_or_default();
            let end = if terminal { "\n" } else { "" };
            if watch && phase == "Stopped" {
                say(end)?;
                bail!("the rollout of {name} has stopped: {message}");
            }
            return say(&format!("{end}{}", if message.is_empty() { String::new() } else { format!("{message}\n") }));
        }
        sleep(GLANCE).await;
    }
}

/// All of it in one line.
fn line(name: &str, rollout: &Value) -> String {
    let number = |field: &str| rollout[field].as_u64().unwrap_or_default();
    let (ready, total) = (number("ready"), number("total"));
    let phase = rollout["phase"].as_str().unwrap_or("Waiting");
    let mut line = format!(
        "{name} revision {} {phase:<11} {} {ready}/{total} ready",
        number("revision"),
        bar(ready, number("updated"), total)
    );
    for (field, what) in [("unavailable", "unavailable"), ("failed", "failed")] {
        if number(field) > 0 {
            line.push_str(&format!(", {} {what}", number(field)));
        }
    }
    line
}

/// Full where edges are ready, half where they have it.
fn bar(ready: u64, updated: u64, total: u64) -> String {
    // Of no edges, all are ready.
    let part = |count: u64| (count.min(total) * WIDTH).checked_div(total).unwrap_or(WIDTH);
    let (full, half) = (part(ready), part(updated.max(ready)));
    (0..WIDTH)
        .map(|n| {
            if n < full {
                '█'
            } else if n < half {
                '▒'
            } else {
                '░'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars() {
        let count = |bar: String| ['█', '▒', '░'].map(|wanted| bar.chars().filter(|c| *c == wanted).count());
        for (ready, updated, total, want) in [
            (0, 0, 10, [0, 0, 30]),
            (5, 10, 10, [15, 15, 0]),
            (10, 10, 10, [30, 0, 0]),
            (1, 0, 3, [10, 0, 20]),
            (9, 9, 0, [30, 0, 0]),
            (1, 2, 100_000, [0, 0, 30]),
        ] {
            assert_eq!(count(bar(ready, updated, total)), want, "{ready} {updated} {total}");
        }
    }

    #[test]
    fn lines() {
        let rollout =
            json!({"phase": "Progressing", "revision": 3, "total": 4, "ready": 1, "updated": 2, "unavailable": 1});
        let said = line("c", &rollout);
        assert!(said.starts_with("c revision 3 Progressing █"), "{said}");
        assert!(said.ends_with("1/4 ready, 1 unavailable"), "{said}");
        assert!(line("c", &json!(null)).starts_with("c revision 0 Waiting"));
    }
}
