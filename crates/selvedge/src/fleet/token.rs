//! `selvedge join-token`: what edges join with. Tokens are Secrets at the center; kubectl can list and delete them as well.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use kinds::{
    JoinToken,
    join::{TOKEN_NAMESPACE, TOKEN_PREFIX, TOKEN_TYPE},
};
use serde_json::{Value, json};

use super::{Fleet, SYNCTARGETS};
use crate::{cli::say, identity::seconds};

/// Where the center says who it is.
const JOIN: &str = "/selvedge.link.v1.Link/Join";

#[derive(Args)]
pub struct Tokens {
    #[command(subcommand)]
    command: Command,
    /// The kubeconfig to use, instead of KUBECONFIG or ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The workspace that has the SyncTargets, instead of the kubeconfig's.
    #[arg(long, global = true)]
    workspace: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Make a token, and print nothing else: for one SyncTarget, or for any that shall have some labels.
    Create(Create),
    /// List the tokens: for whom, how often they can still be used, and until when.
    #[command(alias = "ls")]
    List,
    /// Delete a token: nobody can join with it any more. Edges that have joined stay.
    Delete {
        /// What the token begins with, up to the first dot.
        id: String,
    },
}

#[derive(Args)]
struct Create {
    /// For the edge of this name.
    #[arg(long, required_unless_present = "labels", conflicts_with = "labels")]
    name: Option<String>,
    /// For new edges of any name, whose SyncTargets get these labels.
    #[arg(long, value_delimiter = ',', value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// Further labels that the edge may choose by its own --labels: a key, or a key with the only value that it may have. Without it, none.
    #[arg(long, value_delimiter = ',', value_name = "KEY[=VALUE]")]
    allow_labels: Vec<String>,
    /// How long it can be used: 30m, 12h, 7d.
    #[arg(long, default_value = "1h")]
    expires: String,
    /// How often it can be used.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    uses: u32,
}

pub fn run(tokens: Tokens) -> Result<()> {
    super::runtime()?.block_on(async {
        let mut fleet = Fleet::connect(tokens.kubeconfig.as_deref()).await?;
        if let Some(workspace) = tokens.workspace {
            fleet.workspace = workspace;
        }
        match tokens.command {
            Command::Create(create) => fleet.create_token(&create).await,
            Command::List => fleet.list_tokens().await,
            Command::Delete { id } => fleet.delete_token(&id).await,
        }
    })
}

impl Fleet {
    fn secrets(&self) -> String {
        format!("/clusters/{}/api/v1/namespaces/{TOKEN_NAMESPACE}/secrets", self.workspace)
    }

    async fn create_token(&self, create: &Create) -> Result<()> {
        let lasts = seconds(&create.expires).filter(|seconds| *seconds > 0);
        let lasts =
            lasts.with_context(|| format!("--expires {:?} is no time: write 30m, 12h or 7d", create.expires))?;
        let mut labels = BTreeMap::new();
        for label in create.labels.iter().filter(|label| !label.is_empty()) {
            let Some((key, value)) = label.split_once('=') else {
                bail!("{label:?} is no label: write it as in region=west")
            };
            labels.insert(key.to_owned(), value.to_owned());
        }
        let allowed: Vec<String> = create.allow_labels.iter().filter(|one| !one.is_empty()).cloned().collect();
        if create.name.is_none() && labels.is_empty() {
            bail!("for whom is the token? --name names one edge, --labels what new ones get");
        }
        // The connection is the kubeconfig's, which knows whom it trusts; so what is said here is the center's own word.
        let said = self.remote.call("POST", JOIN.to_owned(), Some(json!({}))).await?;
        if said.code == 404 {
            bail!("the server of this kubeconfig takes no edges: is it a center's, or an edge's own?");
        }
        let said = said.done()?;
        let authority = said["certificateAuthority"].as_str().unwrap_or_default();
        let pin = edge::join::pin_of(authority)
            .context("the server does not say who signs its certificate: is it a center?")?;
        // Better now than when the edge is on its way.
        let there =
            self.remote.call("GET", format!("/clusters/{}/{SYNCTARGETS}?limit=1", self.workspace), None).await?;
        if there.code == 404 {
            bail!("no edge can join in {}: {}", self.workspace, there.message());
        }
        let token = JoinToken {
            id: format!("{:08x}", rand::random::<u32>()),
            secret: format!("{:032x}", rand::random::<u128>()),
            pin,
            workspace: self.workspace.clone(),
        };
        let now = jiff::Timestamp::now().as_second();
        let new = center::join::New {
            id: &token.id,
            secret: &token.secret,
            name: create.name.as_deref(),
            labels: &labels,
            allowed: &allowed,
            expires: now + lasts,
            uses: create.uses,
        };
        let secret = center::join::secret(&new);
        let mut made = self.remote.call("POST", self.secrets(), Some(secret.clone())).await?;
        if made.code == 404 {
            // Workspaces have no such namespace of their own.
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TOKEN_NAMESPACE}});
            let path = format!("/clusters/{}/api/v1/namespaces", self.workspace);
            let placed = self.remote.call("POST", path, Some(namespace)).await?;
            if placed.code != 409 {
                placed.done()?;
            }
            made = self.remote.call("POST", self.secrets(), Some(secret)).await?;
        }
        made.done()?;
        say(&format!("{token}\n"))?;
        // Whoever makes tokens tidies up; that it may not matters to nobody.
        for old in self.tokens().await.unwrap_or_default().iter().filter(|old| center::join::is_forgotten(old, now)) {
            let name = old["metadata"]["name"].as_str().unwrap_or_default();
            let _ = self.remote.call("DELETE", format!("{}/{name}", self.secrets()), None).await;
        }
        Ok(())
    }

    async fn tokens(&self) -> Result<Vec<Value>> {
        let path = format!("{}?fieldSelector=type={TOKEN_TYPE}", self.secrets());
        let mut list = self.remote.call("GET", path, None).await?.done()?;
        Ok(match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        })
    }

    async fn list_tokens(&self) -> Result<()> {
        let now = jiff::Timestamp::now().as_second();
        let mut rows = vec![["ID", "FOR", "USES LEFT", "EXPIRES", "STATE"].map(str::to_owned)];
        rows.extend(self.tokens().await?.iter().filter_map(|token| center::join::shown(token, now)));
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..5).map(width).collect();
        let line = |row: &[String; 5]| {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            format!("{}\n", cells.join("   ").trim_end())
        };
        say(&rows.iter().map(line).collect::<String>())
    }

    async fn delete_token(&self, id: &str) -> Result<()> {
        // A whole token is fine as well.
        let id = id.split('.').next().unwrap_or_default();
        let gone = self.remote.call("DELETE", format!("{}/{TOKEN_PREFIX}{id}", self.secrets()), None).await?;
        if gone.code == 404 {
            bail!("there is no join token {id} in {}: `selvedge join-token list` shows them", self.workspace);
        }
        gone.done()?;
        say(&format!("Nobody joins with {id} any more.\n"))
    }
}
