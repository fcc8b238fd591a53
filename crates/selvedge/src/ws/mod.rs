//! `selvedge ws`: make workspaces, look at them, go into them. Also `kubectl ws`, when installed under the name kubectl-ws.

pub mod files;
pub mod place;
pub mod remote;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};
use serde_json::Value;

use crate::cli::say;
use files::Kubeconfig;
use remote::{Answer, Remote};

/// As long does a new workspace have to become ready, and an old one to empty itself.
const PATIENCE: Duration = Duration::from_secs(60);
/// Trees are not drawn deeper.
const DEEPEST: usize = 32;

#[derive(Args)]
#[command(subcommand_precedence_over_arg = true)]
pub struct Ws {
    /// The kubeconfig to use and change, instead of KUBECONFIG or ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
    /// Go into this workspace, as `ws use` does. Without it, say where you are.
    workspace: Option<String>,
}

/// Workspaces: make them, look at them, go into them.
#[derive(Parser)]
#[command(name = "kubectl-ws", bin_name = "kubectl ws", version)]
pub struct Plugin {
    #[command(flatten)]
    ws: Ws,
}

#[derive(Subcommand)]
enum Command {
    /// Make a workspace in the current one, or at an absolute path.
    Create {
        /// team, or root:org:team
        name: String,
        /// What it is made like: the name of a WorkspaceType, with its workspace if that is not above: root:org:large
        #[arg(long = "type", value_name = "TYPE")]
        of_type: Option<String>,
        /// Go into it afterwards.
        #[arg(long)]
        enter: bool,
        /// It may be there already.
        #[arg(long)]
        ignore_existing: bool,
    },
    /// List the workspaces in the current one, or in another.
    #[command(alias = "ls")]
    List { workspace: Option<String> },
    /// Draw the current workspace, or another, with everything below it.
    Tree { workspace: Option<String> },
    /// Go into a workspace: changes the server of the kubeconfig's current context.
    Use {
        /// root:org:team (absolute), team or team:sub (below the current one), .. (up), - (back); nothing says where you are.
        workspace: Option<String>,
    },
    /// Say in which workspace you are.
    Current {
        /// Only the path.
        #[arg(long)]
        short: bool,
    },
    /// Delete a workspace and everything in it.
    Delete {
        /// team, or root:org:team
        name: String,
        /// Wait until all of it is gone.
        #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
        wait: bool,
    },
}

/// Where one is, and the way to the server.
struct Session {
    config: Kubeconfig,
    files: Vec<PathBuf>,
    base: String,
    current: String,
}

pub fn run(ws: Ws) -> Result<()> {
    let files = files::paths(ws.kubeconfig.as_deref())?;
    let config = Kubeconfig::open(&files)?;
    let (base, current) = place::split_server(&config.server);
    let session = Session { base: base.to_owned(), current: current.to_owned(), config, files };
    let command = ws.command.unwrap_or(Command::Use { workspace: ws.workspace });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(session.run(command))
}

pub fn run_plugin(plugin: Plugin) -> Result<()> {
    run(plugin.ws)
}

impl Session {
    async fn run(&self, command: Command) -> Result<()> {
        match command {
            Command::Create { name, of_type, enter, ignore_existing } => {
                self.create(&self.resolve(Some(&name))?, of_type.as_deref(), enter, ignore_existing).await
            }
            Command::List { workspace } => self.list(&self.resolve(workspace.as_deref())?).await,
            Command::Tree { workspace } => self.tree(&self.resolve(workspace.as_deref())?).await,
            Command::Use { workspace: Some(workspace) } => self.enter(&self.resolve(Some(&workspace))?).await,
            Command::Current { short: true } => say(&format!("{}\n", self.current)),
            Command::Use { workspace: None } | Command::Current { short: false } => {
                say(&format!("The current workspace is {} (context {:?}).\n", self.current, self.config.context))
            }
            Command::Delete { name, wait } => self.delete(&self.resolve(Some(&name))?, wait).await,
        }
    }

    fn resolve(&self, wanted: Option<&str>) -> Result<String> {
        match wanted {
            Some(wanted) => place::resolve(&self.current, self.config.previous.as_deref(), wanted),
            None => Ok(self.current.clone()),
        }
    }

    async fn remote(&self) -> Result<Remote> {
        Remote::connect(&self.files, &self.base).await
    }

    async fn enter(&self, path: &str) -> Result<()> {
        let answer = self.remote().await?.enter(path).await?;
        match answer.code {
            404 => bail!("{}\n`ws tree root` shows which workspaces there are", answer.message()),
            _ => answer.done()?,
        };
        self.point_at(path)
    }

    fn point_at(&self, path: &str) -> Result<()> {
        if path != self.current {
            self.config.point_at(&place::server_in(&self.base, path), &self.current)?;
        }
        say(&format!("The current workspace is {path}.\n"))
    }

    async fn create(&self, path: &str, of_type: Option<&str>, enter: bool, ignore_existing: bool) -> Result<()> {
        let remote = self.remote().await?;
        let answer = remote.create(path, of_type).await?;
        let there = answer.code == 409 && answer.body["reason"] == "AlreadyExists";
        match (there, ignore_existing) {
            (true, true) => {}
            (true, false) => {
                bail!(
                    "the workspace {path} is there already: go into it with `ws use {path}`, or add --ignore-existing"
                )
            }
            (false, _) => drop(answer.done()?),
        }
        wait_until_ready(&remote, path).await?;
        say(&format!("The workspace {path} is {}.\n", if there { "there already, and ready" } else { "ready" }))?;
        if enter { self.point_at(path) } else { Ok(()) }
    }

    async fn list(&self, path: &str) -> Result<()> {
        let list = self.remote().await?.list(path).await?.done()?;
        let mut rows = vec![["NAME".to_owned(), "TYPE".to_owned(), "PHASE".to_owned(), "PATH".to_owned()]];
        for item in items(&list) {
            let text = |pointer: &str| item.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
            let name = text("/metadata/name");
            let child = format!("{path}:{name}");
            rows.push([name, text("/spec/type/name"), text("/status/phase"), child]);
        }
        if rows.len() == 1 {
            return say(&format!("There are no workspaces in {path}: `ws create NAME` makes one.\n"));
        }
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default() + 3;
        let widths = [width(0), width(1), width(2)];
        let line = |[name, of_type, phase, path]: &[String; 4]| {
            format!("{name:0$}{of_type:1$}{phase:2$}{path}\n", widths[0], widths[1], widths[2])
        };
        say(&rows.iter().map(line).collect::<String>())
    }

    async fn tree(&self, path: &str) -> Result<()> {
        let remote = self.remote().await?;
        let top = remote.list(path).await?;
        let mut drawn = format!("{path}\n");
        // What still has to be drawn, the next at the end: the indentation, whether it is the last there, its path.
        let mut stack = children(&top.done()?, path, "");
        while let Some(Branch { indent, last, path, depth, is_mailbox }) = stack.pop() {
            let name = path.rsplit(':').next().unwrap_or_default();
            // Nothing is in mailboxes, and there are as many as there are edges.
            let answer = match depth < DEEPEST && !is_mailbox {
                true => remote.list(&path).await?,
                false => Answer { code: 200, body: Value::Null },
            };
            let closed = if answer.ok() { "" } else { "   (you may not look inside)" };
            drawn.push_str(&format!("{indent}{} {name}{closed}\n", if last { "└──" } else { "├──" }));
            if answer.ok() {
                let indent = format!("{indent}{}", if last { "    " } else { "│   " });
                let below = children(&answer.body, &path, &indent);
                stack.extend(below.into_iter().map(|branch| Branch { depth: depth + 1, ..branch }));
            }
        }
        say(&drawn)
    }

    async fn delete(&self, path: &str, wait: bool) -> Result<()> {
        if place::is_within(&self.current, path) {
            bail!("you are in {}: leave it first with `ws use {}`", self.current, place::split(path)?.0);
        }
        let remote = self.remote().await?;
        remote.delete(path).await?.done()?;
        let since = Instant::now();
        while wait && remote.get(path).await?.code != 404 {
            if since.elapsed() > PATIENCE {
                bail!("{path} is being deleted, but not gone yet: look at `status` of the Workspace for what holds it");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        say(&format!("The workspace {path} {}.\n", if wait { "is gone" } else { "is being deleted" }))
    }
}

struct Branch {
    indent: String,
    last: bool,
    path: String,
    depth: usize,
    is_mailbox: bool,
}

fn items(list: &Value) -> impl DoubleEndedIterator<Item = &Value> {
    list["items"].as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

/// The workspaces in a list, the first one last.
fn children(list: &Value, parent: &str, indent: &str) -> Vec<Branch> {
    let branch = |(at, item): (usize, &Value)| {
        let name = item["metadata"]["name"].as_str().unwrap_or_default();
        let is_mailbox = item["spec"]["type"]["name"] == "mailbox";
        Branch { indent: indent.to_owned(), last: at == 0, path: format!("{parent}:{name}"), depth: 1, is_mailbox }
    };
    items(list).rev().enumerate().map(branch).collect()
}

async fn wait_until_ready(remote: &Remote, path: &str) -> Result<()> {
    let since = Instant::now();
    loop {
        let workspace = remote.get(path).await?.done()?;
        if workspace["status"]["phase"] == "Ready" {
            return Ok(());
        }
        if since.elapsed() > PATIENCE {
            let phase = workspace["status"]["phase"].as_str().unwrap_or("unknown");
            bail!(
                "{path} is there, but still not ready (phase {phase}): its `status.conditions` say what it waits for"
            );
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What can stand behind the words of `kubectl ws …`, for kubectl's own completion (kubectl_complete-ws).
pub fn complete(words: &[String]) -> Result<()> {
    let [before @ .., last] = words else { return Ok(()) };
    let commands = ["create", "list", "tree", "use", "current", "delete"];
    let mut offers: Vec<String> = match before {
        [] => commands.map(str::to_owned).into(),
        _ => Vec::new(),
    };
    if matches!(before.first().map(String::as_str), None | Some("use" | "delete" | "list" | "ls" | "tree")) {
        offers.extend(names_below().unwrap_or_default());
    }
    let offers = offers.iter().filter(|offer| offer.starts_with(last.as_str()));
    // The last line tells kubectl not to offer files.
    say(&offers.map(|offer| format!("{offer}\n")).chain([":4\n".to_owned()]).collect::<String>())
}

fn names_below() -> Result<Vec<String>> {
    let files = files::paths(None)?;
    let config = Kubeconfig::open(&files)?;
    let (base, current) = place::split_server(&config.server);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let list = runtime.block_on(async { Remote::connect(&files, base).await?.list(current).await?.done() })?;
    Ok(items(&list).filter_map(|item| item["metadata"]["name"].as_str()).map(str::to_owned).collect())
}
