//! kbench: a small load generator for any Kubernetes-compatible API server.
//!
//! Every subcommand works on ConfigMaps in one namespace and prints one JSON
//! object on stdout. Nothing is deleted unless `clean` is called.

mod client;
mod create;
mod edges;
mod flood;
mod list;
mod mixed;
mod objects;
mod placement;
mod simulated;
mod stats;
mod watch;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::{Value, json};

use client::{Result, Target, TargetOptions};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const LABEL: &str = "kbench-run";

#[derive(Parser)]
#[command(name = "kbench", version, about = "Load generator for Kubernetes-compatible API servers")]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args, Clone)]
struct Common {
    /// Base URL of the API server, http:// or https://
    #[arg(long, global = true, default_value = "https://127.0.0.1:6443")]
    url: String,
    /// Bearer token
    #[arg(long, global = true, env = "KBENCH_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Accept any server certificate
    #[arg(long, global = true)]
    insecure: bool,
    /// PEM file with the certificate authority of the server
    #[arg(long, global = true)]
    ca: Option<String>,
    /// PEM file with a client certificate
    #[arg(long, global = true)]
    cert: Option<String>,
    /// PEM file with the key of the client certificate
    #[arg(long, global = true)]
    key: Option<String>,
    /// Do not offer HTTP/2
    #[arg(long, global = true)]
    http1: bool,
    /// Concurrent clients, each with its own connection
    #[arg(long, global = true, default_value_t = 1)]
    clients: usize,
    /// Clients share one connection, as one client-go process would (HTTP/2 only)
    #[arg(long, global = true)]
    shared: bool,
    /// Operations in all (list: lists; watch: events)
    #[arg(long, global = true, default_value_t = 1000)]
    count: usize,
    /// Bytes of data in each object written
    #[arg(long, global = true, default_value_t = 1024)]
    size: usize,
    /// Namespace to work in (created when missing)
    #[arg(long, global = true, default_value = "kbench")]
    namespace: String,
    /// Server processes whose CPU time and memory to report (comma-separated)
    #[arg(long, global = true, value_delimiter = ',')]
    pid: Vec<u32>,
}

#[derive(Subcommand)]
enum Command {
    /// Wait until /readyz answers 200
    Ready {
        /// Give up after this many seconds
        #[arg(long, default_value_t = 120)]
        timeout: u64,
        #[arg(long, default_value = "/readyz")]
        path: String,
    },
    /// Create --count ConfigMaps
    Create {
        /// Object names begin with this (default: unique to the run)
        #[arg(long)]
        prefix: Option<String>,
    },
    /// Create --count workspaces (tenancy.kcp.io) in the one that --url leads to
    Workspaces,
    /// List the namespace's ConfigMaps --count times
    List {
        #[arg(long, value_enum, default_value_t = Accept::Json)]
        accept: Accept,
        /// Page size (0: everything in one reply)
        #[arg(long, default_value_t = 0)]
        limit: usize,
        /// Send resourceVersion=0, which allows a cached answer
        #[arg(long)]
        cached: bool,
    },
    /// Open --clients watches, write --count objects, time their delivery to all
    Watch {
        /// Concurrent writers
        #[arg(long, default_value_t = 4)]
        writers: usize,
        /// Events per second to write (0: as fast as the writers can)
        #[arg(long, default_value_t = 0)]
        rate: u64,
        #[arg(long, value_enum, default_value_t = Accept::Json)]
        accept: Accept,
        /// Give up waiting for delivery after this many seconds
        #[arg(long, default_value_t = 120)]
        timeout: u64,
    },
    /// Mix of get, update, create, delete and limited list
    Mixed {
        /// Stop after this many seconds, whatever --count says
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Objects each client creates beforehand and works on
        #[arg(long, default_value_t = 50)]
        objects: usize,
        /// Weights of get:update:create+delete:list
        #[arg(long, default_value = "70:20:5:5")]
        weights: String,
    },
    /// Gets, creates and whole lists from all --clients at once, without holding back when refused
    Flood {
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// The clients share so many connections (HTTP/2)
        #[arg(long, default_value_t = 16)]
        connections: usize,
    },
    /// Register --count edges at a Selvedge center and place objects on them: an edit, a change of a placement, a Location relabelled
    Placement {
        /// The center's data directory: its authority signs the edges' certificates
        #[arg(long)]
        data_dir: String,
        /// Where the objects and placements are: a workspace of the type workload
        #[arg(long)]
        workspace: String,
        /// Seconds to wait for each step
        #[arg(long, default_value_t = 300)]
        timeout: u64,
        /// So many of the edges connect
        #[arg(long, default_value_t = 10_000)]
        connected: usize,
        /// Objects that every edge holds
        #[arg(long, default_value_t = 20)]
        objects: usize,
    },
    /// Connect --count edges to a Selvedge center: memory for each, one change to all, all coming back at once
    Edges {
        /// The center's data directory: its authority signs the edges' certificates
        #[arg(long)]
        data_dir: String,
        /// Whose objects the edges hold; --url leads to the root workspace
        #[arg(long, default_value = "root")]
        workspace: String,
        /// Give up after this many seconds of waiting
        #[arg(long, default_value_t = 300)]
        timeout: u64,
        /// The edges come first one after the other, in this many milliseconds
        #[arg(long, default_value_t = 1000)]
        ramp: u64,
    },
    /// Delete every ConfigMap that kbench made in the namespace
    Clean,
}

#[derive(Clone, Copy, ValueEnum, PartialEq)]
enum Accept {
    Json,
    Protobuf,
    Table,
}

impl Accept {
    fn header(self) -> &'static str {
        match self {
            Accept::Json => JSON,
            Accept::Protobuf => PROTOBUF,
            Accept::Table => "application/json;as=Table;v=v1;g=meta.k8s.io",
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = if cli.is_single() {
        tokio::runtime::Builder::new_current_thread().enable_all().build()
    } else {
        tokio::runtime::Runtime::new()
    };
    let done = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(cli)));
    let (text, code) = match done {
        Ok(v) => (v, ExitCode::SUCCESS),
        Err(e) => (json!({ "error": e.to_string() }), ExitCode::FAILURE),
    };
    // Whoever closed our stdout does not want to know.
    let _ = writeln!(std::io::stdout(), "{text}");
    code
}

impl Cli {
    /// One client that writes needs one thread: with more, each answer would wake another processor, and what that takes would be measured.
    /// Long answers are read by two.
    fn is_single(&self) -> bool {
        matches!(self.command, Command::Create { .. }) && self.common.clients <= 1
    }
}

async fn run(cli: Cli) -> Result<Value> {
    let c = cli.common;
    let target = Target::new(&TargetOptions {
        url: c.url.clone(),
        token: c.token.clone(),
        insecure: c.insecure,
        ca: c.ca.clone(),
        cert: c.cert.clone(),
        key: c.key.clone(),
        http1: c.http1,
    })?;
    match cli.command {
        Command::Ready { timeout, path } => create::ready(&target, timeout, &path).await,
        Command::Create { prefix } => create::create(&target, &c, prefix).await,
        Command::Workspaces => create::workspaces(&target, &c).await,
        Command::List { accept, limit, cached } => list::list(&target, &c, accept, limit, cached).await,
        Command::Watch { writers, rate, accept, timeout } => {
            watch::watch(&target, &c, writers, rate, accept, Duration::from_secs(timeout)).await
        }
        Command::Mixed { seconds, objects, weights } => mixed::mixed(&target, &c, seconds, objects, &weights).await,
        Command::Flood { seconds, connections } => flood::flood(&target, &c, seconds, connections).await,
        Command::Placement { data_dir, workspace, timeout, connected, objects } => {
            let plan =
                placement::Plan { data_dir, workspace, timeout: Duration::from_secs(timeout), connected, objects };
            placement::placement(&target, &c, &plan).await
        }
        Command::Edges { data_dir, workspace, timeout, ramp } => {
            let plan = edges::Plan {
                data_dir,
                workspace,
                timeout: Duration::from_secs(timeout),
                ramp: Duration::from_millis(ramp),
            };
            edges::edges(&target, &c, &plan).await
        }
        Command::Clean => create::clean(&target, &c).await,
    }
}
