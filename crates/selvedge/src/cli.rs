//! The command line.

use std::{io::Write, path::PathBuf};

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

use crate::{
    center,
    config::{Config, Settings},
    edge, fleet, identity, secrets, up, ws,
};

/// Selvedge: an edge fabric in one binary.
///
/// Declare workloads once at the center with kubectl; Selvedge brings them to any number of edges and keeps them running.
#[derive(Parser)]
#[command(name = "selvedge", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a center: the Kubernetes API over an embedded store (or etcd).
    Center(Settings),
    /// Run an edge: the same API on its own store, which goes on without the center, and the link to the center.
    Edge(Box<edge::Edge>),
    /// Try Selvedge on this machine: a center and two edges, each a process of its own, with everything said that you need next.
    Up(up::Up),
    /// The fleet at a glance: who is connected, in sync, behind, offline since when.
    Status(fleet::Status),
    /// Cut an edge's link and heal it, to try what works offline.
    Link(fleet::Link),
    /// Where to look at what an edge holds: its mailbox, its own API, or one workspace's part of it.
    Mailbox(fleet::Mailbox),
    /// Rollouts: how far a change is on its way through the edges of a placement; pause it, resume it.
    Rollout(fleet::Rollout),
    /// Tokens that edges join with: make one, list them, delete one.
    #[command(name = "join-token")]
    JoinToken(fleet::Tokens),
    /// Print the kubeconfig of a center's administrator.
    Kubeconfig {
        /// Where the center keeps its data.
        #[arg(long, env = "SELVEDGE_DATA_DIR", default_value = ".data/center")]
        data_dir: PathBuf,
        /// Use this server address instead of the one the center listens on.
        #[arg(long)]
        server: Option<String>,
        /// Point at this workspace, for example root:org:team.
        #[arg(long)]
        workspace: Option<String>,
    },
    /// The keys that seal Secrets in the store.
    #[command(subcommand)]
    Secrets(secrets::Command),
    /// Workspaces: make them, look at them, go into them.
    Ws(ws::Ws),
    /// Print the configuration that a center would run with: defaults, file, environment and flags together.
    Config(Settings),
    /// The keys that sign ServiceAccount tokens: make a new one, list them.
    #[command(subcommand)]
    Keys(identity::Keys),
    /// Print a completion script for your shell.
    Completions { shell: clap_complete::Shell },
}

pub fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Center(settings) => center::run(&Config::resolve(settings, Config::for_center())?),
        Command::Edge(edge) => edge::run(*edge),
        Command::Up(up) => up::run(up),
        Command::Status(status) => fleet::run_status(status),
        Command::Link(link) => fleet::run_link(link),
        Command::Mailbox(mailbox) => fleet::run_mailbox(mailbox),
        Command::Rollout(rollout) => fleet::run_rollout(rollout),
        Command::JoinToken(tokens) => fleet::run_tokens(tokens),
        Command::Kubeconfig { data_dir, server, workspace } => {
            say(&center::kubeconfig(&data_dir, server.as_deref(), workspace.as_deref())?)
        }
        Command::Secrets(command) => secrets::run(command),
        Command::Ws(ws) => ws::run(ws),
        Command::Config(settings) => say(&yaml_serde::to_string(&Config::resolve(settings, Config::for_center())?)?),
        Command::Keys(command) => identity::run(&command),
        Command::Completions { shell } => {
            let mut out = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "selvedge", &mut out);
            Ok(std::io::stdout().write_all(&out)?)
        }
    }
}

/// What was asked for goes to standard output; a closed pipe is not an error.
pub fn say(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

pub fn complain(error: &anyhow::Error) {
    let _ = writeln!(std::io::stderr(), "selvedge: {error:#}");
}
