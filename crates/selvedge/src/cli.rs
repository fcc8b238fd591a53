//! The command line.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{
    backup, center,
    config::{Config, Settings},
    deploy, edge, fleet, identity, image, secrets, up, version, ws,
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
    #[command(after_long_help = CENTER_EXAMPLES)]
    Center(Box<Center>),
    /// Run an edge: the same API on its own store, which goes on without the center, and the link to the center.
    #[command(after_long_help = EDGE_EXAMPLES)]
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
    /// Copy a center's data into a directory, while it runs or not. A center can be started on the copy.
    Backup(backup::Backup),
    /// Workspaces: make them, look at them, go into them.
    Ws(ws::Ws),
    /// Print the configuration that a center would run with: defaults, file, environment and flags together.
    Config(Box<Settings>),
    /// The keys that sign ServiceAccount tokens: make a new one, list them.
    #[command(subcommand)]
    Keys(identity::Keys),
    /// Print a completion script for your shell.
    Completions { shell: clap_complete::Shell },
    /// Print the manual page of this program, or write the pages of all its commands.
    Man {
        /// Write one page for each command into this directory, such as /usr/local/share/man/man1.
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// Write a container image of this program, for `docker load` or `ctr images import`.
    Image(image::Image),
    /// Print the version of this program and of the Kubernetes API that it serves.
    Version(version::Version),
}

/// The command: without a subcommand it runs a center.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
struct Center {
    #[command(subcommand)]
    command: Option<CenterCommand>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Subcommand)]
enum CenterCommand {
    /// Print a systemd unit that runs a center.
    SystemdUnit,
}

const CENTER_EXAMPLES: &str = "\
Examples:
  selvedge center                                                  # on this machine, data in .data/center
  selvedge center --data-dir /var/lib/selvedge-center --listen 0.0.0.0:6443 --tls-names center.example
  selvedge center --store etcd --etcd-endpoints http://etcd.example:2379
  selvedge center systemd-unit > /etc/systemd/system/selvedge-center.service";

const EDGE_EXAMPLES: &str = "\
Examples:
  selvedge edge --center https://center.example:6443 --token-file join-token --data-dir /var/lib/selvedge-edge
  selvedge edge --data-dir /var/lib/selvedge-edge                  # every later start
  selvedge edge kubeconfig --data-dir /var/lib/selvedge-edge > edge.kubeconfig
  selvedge edge systemd-unit > /etc/systemd/system/selvedge-edge.service";

/// The settings of the store that are only for centers: an edge has a file of its own.
const CENTERS_ONLY: [&str; 6] =
    ["store", "etcd_endpoints", "etcd_prefix", "etcd_cafile", "etcd_certfile", "etcd_keyfile"];

/// All commands with their help.
fn command() -> clap::Command {
    let without_etcd = |edge: clap::Command| {
        edge.mut_args(|arg| if CENTERS_ONLY.contains(&arg.get_id().as_str()) { arg.hide(true) } else { arg })
    };
    Cli::command().mut_subcommand("edge", |edge| without_etcd(edge).mut_subcommand("config", without_etcd))
}

pub fn parse() -> Cli {
    Cli::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit())
}

pub fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Center(center) => match center.command {
            None => center::run(&Config::resolve(center.settings, Config::for_center())?),
            Some(CenterCommand::SystemdUnit) => say(deploy::CENTER_UNIT),
        },
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
        Command::Backup(backup) => backup::run(&backup),
        Command::Ws(ws) => ws::run(ws),
        Command::Config(settings) => say(&yaml_serde::to_string(&Config::resolve(*settings, Config::for_center())?)?),
        Command::Keys(command) => identity::run(&command),
        Command::Completions { shell } => {
            let mut out = Vec::new();
            clap_complete::generate(shell, &mut command(), "selvedge", &mut out);
            say(&String::from_utf8(out)?)
        }
        Command::Man { dir } => man(dir.as_deref()),
        Command::Image(image) => image::run(&image),
        Command::Version(version) => version::run(&version),
    }
}

/// The manual page of the program, or with a directory those of all commands.
fn man(dir: Option<&Path>) -> Result<()> {
    let Some(dir) = dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command()).render(&mut page)?;
        return say(&String::from_utf8(page)?);
    };
    std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(command(), dir))
        .with_context(|| format!("cannot write manual pages in {}", dir.display()))
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
