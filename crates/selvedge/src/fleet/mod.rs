//! `selvedge status` and `selvedge link`: what a person sees of the fleet, and cutting an edge off to try what happens.
//!
//! Both read and write SyncTargets with the kubeconfig's own identity, as anybody can with kubectl.

mod confirm;
mod link;
mod mailbox;
mod revoke;
mod rollout;
mod row;
mod status;
mod token;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use serde_json::Value;

use crate::ws::{
    files::{self, Kubeconfig},
    place,
    remote::Remote,
};

pub use confirm::{Adopt, Confirm, run as run_confirm, run_adopt};
pub use link::{Link, run as run_link};
pub use mailbox::{Mailbox, run as run_mailbox};
pub use revoke::{Revoke, run as run_revoke};
pub use rollout::{Rollout, run as run_rollout};
pub use status::{Status, run as run_status};
pub use token::{Tokens, run as run_tokens};

const SYNCTARGETS: &str = "apis/workload.kcp.io/v1alpha1/synctargets";
/// What every edge has that something is placed on.
const TOLD: &str = "apis/edge.kcp.io/v1alpha1/syncerconfigs?limit=1";
const OFFLINE_WRITES: &str = "apis/edge.selvedge.dev/v1alpha1/offlinewrites";

/// The way to the center, and the workspace that the kubeconfig points into.
struct Fleet {
    remote: Remote,
    workspace: String,
}

impl Fleet {
    async fn connect(kubeconfig: Option<&Path>) -> Result<Self> {
        let files: Vec<PathBuf> = files::paths(kubeconfig)?;
        let config = Kubeconfig::open(&files)?;
        let (base, workspace) = place::split_server(&config.server);
        Ok(Self { remote: Remote::connect(&files, base).await?, workspace: workspace.to_owned() })
    }

    /// All edges that one may see: of every workspace, or else of one's own.
    async fn edges(&self) -> Result<Vec<Value>> {
        let everywhere = self.remote.call("GET", format!("/clusters/*/{SYNCTARGETS}"), None).await?;
        let (list, workspace) = match everywhere.code {
            401 | 403 => {
                let here = format!("/clusters/{}/{SYNCTARGETS}", self.workspace);
                (self.remote.call("GET", here, None).await?.done()?, &*self.workspace)
            }
            404 if self.is_edge().await => bail!("{}", self.of_edge().await),
            _ => (everywhere.done()?, place::ROOT),
        };
        let mut list = list;
        let mut items = match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        for item in &mut items {
            // Lists of one workspace need not say which.
            if row::workspace(item).is_empty() {
                item["metadata"]["annotations"][row::CLUSTER] = workspace.into();
            }
        }
        Ok(items)
    }

    /// Whether the server is an edge's own: it has no SyncTargets, but it holds what a center told it.
    async fn is_edge(&self) -> bool {
        let told = self.remote.call("GET", format!("/clusters/{}/{TOLD}", place::ROOT), None).await;
        told.is_ok_and(|told| told.ok())
    }

    /// What an edge says of itself, for somebody who asked it about the fleet.
    async fn of_edge(&self) -> String {
        let mut text = format!("{} is an edge's own API, and only a center knows the fleet.", self.remote.base());
        let list = async |path: &str| -> Option<Vec<Value>> {
            let answer = self.remote.call("GET", path.to_owned(), None).await.ok().filter(|answer| answer.ok())?;
            answer.body["items"].as_array().cloned()
        };
        let is_ready = |node: &&Value| {
            let mut all = node["status"]["conditions"].as_array().into_iter().flatten();
            all.any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        if let Some(nodes) = list("/api/v1/nodes").await.filter(|nodes| !nodes.is_empty()) {
            let names: Vec<&str> = nodes.iter().map(row::name).collect();
            let ready = nodes.iter().filter(is_ready).count();
            text.push_str(&format!("\n  nodes: {} ({ready} of {} ready)", names.join(", "), nodes.len()));
        }
        if let Some(pods) = list("/api/v1/pods").await {
            let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
            text.push_str(&format!("\n  pods: {running} of {} running", pods.len()));
        }
        if let Some(writes) = list(&format!("/clusters/{}/{OFFLINE_WRITES}", place::ROOT)).await {
            text.push_str(&format!("\n  writes that wait for the center, or were refused by it: {}", writes.len()));
        }
        text.push_str(
            "\nWhether it is connected and in sync: `selvedge status --kubeconfig <the center's kubeconfig>`",
        );
        text
    }

    /// What the center knows of these edges at this moment, in the same order; nothing of some if it does not say.
    async fn live(&self, edges: &[Value]) -> Result<Vec<Value>> {
        let mut known: BTreeMap<&str, Value> = BTreeMap::new();
        for workspace in edges.iter().map(row::workspace).collect::<BTreeSet<_>>() {
            let answer = self.remote.call("GET", format!("/clusters/{workspace}/fleet"), None).await?;
            known.insert(workspace, if answer.ok() { answer.body } else { Value::Null });
        }
        let of = |edge: &Value| {
            let all = known.get(row::workspace(edge)).and_then(|view| view["edges"].as_array());
            let found = all.into_iter().flatten().find(|live| live["name"] == row::name(edge));
            found.cloned().unwrap_or_default()
        };
        Ok(edges.iter().map(of).collect())
    }

    /// The edge that somebody means by `florin` or `root:org:florin`.
    async fn edge(&self, wanted: &str) -> Result<Value> {
        let mut edges = self.edges().await?;
        let is_meant = |edge: &Value| match wanted.rsplit_once(':') {
            Some((workspace, name)) => row::workspace(edge) == workspace && row::name(edge) == name,
            None => row::name(edge) == wanted,
        };
        let meant: Vec<usize> = (0..edges.len()).filter(|at| is_meant(&edges[*at])).collect();
        match meant[..] {
            [one] => Ok(edges.swap_remove(one)),
            [] => {
                let all: Vec<String> = edges.iter().map(row::path).collect();
                let known =
                    if all.is_empty() { "there are none yet".into() } else { format!("there are {}", all.join(", ")) };
                bail!("there is no edge {wanted}: {known}")
            }
            _ => {
                let all: Vec<String> = meant.iter().map(|at| row::path(&edges[*at])).collect();
                bail!("several edges are called {wanted}: say which, {}", all.join(" or "))
            }
        }
    }
}

/// One thread is enough for a command.
fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
