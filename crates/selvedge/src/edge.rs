//! `selvedge edge`: the same API server on an edge's own store, and the link to its center.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ::edge::{
    Agent,
    cluster::{Cluster, Way},
    join::{self, Ask, Member},
    node::{Top, let_them_read},
    owner::Ownership,
};
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use identity::User;
use processes::Images;
use serde::{Deserialize, Serialize};
use server::range::Range;
use server::{Mount, Server};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    center,
    cli::say,
    config::{Config, Settings, StoreKind},
    deploy, fleet, inside, memory,
    process::{Mapped, Process},
    remembered::{self, Found, Record, Said},
    stop::Stop,
    up::words,
};

/// A first start waits so long for its center; then the API is served without.
const PATIENCE: Duration = Duration::from_secs(5);
/// What stops first has this long for it; then the others are stopped all the same.
const QUIET: Duration = Duration::from_secs(3);

/// Bytes of what happened that an edge remembers of each resource, and how many TLS sessions: its clients are few and near.
const HISTORY: usize = 1 << 20;
const SESSIONS: usize = 64;

/// The command: without a subcommand it runs an edge.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Edge {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    settings: EdgeSettings,
}

#[derive(Subcommand)]
enum Command {
    /// Print the kubeconfig of an edge's own administrator.
    Kubeconfig {
        /// Where the edge keeps its data.
        #[arg(long, env = "SELVEDGE_DATA_DIR", default_value = ".data/edge")]
        data_dir: PathBuf,
        /// Use this server address instead of the one the edge listens on.
        #[arg(long)]
        server: Option<String>,
    },
    /// Take an edge's welcome away, at once: its certificates are good for nothing any more.
    Revoke(fleet::Revoke),
    /// Confirm deletions that edges hold back because they are most of what is there: on some edges, or of one
    /// placement on all.
    Confirm(fleet::Confirm),
    /// Make an edge follow a center that was restored from a backup, or is another one than it knows.
    Adopt(fleet::Adopt),
    /// Print everything that runs an edge inside an existing cluster, for kubectl apply.
    Manifest(deploy::Manifest),
    /// Print a systemd unit that runs an edge on a bare node.
    SystemdUnit {
        /// What runs what the center sent, written into the unit. Without it the unit uses SELVEDGE_RUNTIME, or what the
        /// data directory remembers.
        #[arg(long, value_enum)]
        runtime: Option<Runtime>,
    },
    /// Print the configuration that an edge would run with: defaults, file, environment and flags together.
    Config(Box<EdgeSettings>),
}

/// What flags, environment and file may say of an edge, besides what they say of any server.
#[derive(Args, Clone, Debug, Default)]
pub struct EdgeSettings {
    /// Where the center answers, as in https://center.example:6443. Needed at the first start only.
    #[arg(long, env = "SELVEDGE_CENTER", help_heading = "Joining")]
    center: Option<String>,
    /// The token to join with, from `selvedge join-token create`. Needed at the first start only.
    #[arg(long, env = "SELVEDGE_TOKEN", hide_env_values = true, help_heading = "Joining")]
    token: Option<String>,
    /// A file with the token to join with, read if there is no --token. Every user of the machine can see what --token
    /// says.
    #[arg(long, env = "SELVEDGE_TOKEN_FILE", value_name = "FILE", help_heading = "Joining")]
    token_file: Option<PathBuf>,
    /// The edge's name: that of its SyncTarget at the center.
    #[arg(long, env = "SELVEDGE_NAME", help_heading = "Joining")]
    name: Option<String>,
    /// Labels for the SyncTarget, as in region=west,kind=store. Used when the edge joins.
    #[arg(long, env = "SELVEDGE_LABELS", value_delimiter = ',', value_name = "KEY=VALUE", help_heading = "Joining")]
    labels: Vec<String>,
    /// What runs what the center sent. The data directory remembers it, so later starts need not say it. [default:
    /// process]
    #[arg(long, env = "SELVEDGE_RUNTIME", value_enum, help_heading = "Workloads")]
    runtime: Option<Runtime>,
    /// Lets --runtime and --kubeconfig replace what the data directory remembers. Needed once.
    #[arg(long, help_heading = "Workloads")]
    change_runtime: bool,
    /// With --runtime cluster: how to reach the cluster. Without it, the one that this program runs in.
    #[arg(long, env = "SELVEDGE_KUBECONFIG", value_name = "FILE", help_heading = "Workloads")]
    kubeconfig: Option<PathBuf>,
    /// Which workload controllers run, as in *,-scheduler: all but the scheduler. Nothing runs with --runtime cluster.
    #[arg(
        long,
        env = "SELVEDGE_CONTROLLERS",
        value_delimiter = ',',
        allow_hyphen_values = true,
        value_name = "NAME",
        help_heading = "Workloads"
    )]
    controllers: Option<Vec<String>>,
    /// At most this many Pods that have ended are kept before the oldest are deleted; 0 keeps all. 500 unless said otherwise.
    #[arg(long, env = "SELVEDGE_TERMINATED_POD_GC_THRESHOLD", value_name = "COUNT", help_heading = "Workloads")]
    terminated_pod_gc_threshold: Option<usize>,
    /// How often each HorizontalPodAutoscaler is looked at, from 1s to 1h. [default: 15s]
    #[arg(
        long,
        env = "SELVEDGE_HORIZONTAL_POD_AUTOSCALER_SYNC_PERIOD",
        value_name = "DURATION",
        help_heading = "Workloads"
    )]
    horizontal_pod_autoscaler_sync_period: Option<String>,
    /// With --runtime process: what is run for an image, as in --image nginx='/usr/sbin/nginx -g "daemon off;"'. Behind
    /// a `--` come arguments that a container's `args` replace, as in --image reporter='/opt/reporter -- --verbose'. Can
    /// be given several times.
    #[arg(long = "image", value_name = "NAME=COMMAND", help_heading = "Workloads")]
    images: Vec<String>,
    #[command(flatten)]
    server: Settings,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// This program: containers are processes of this machine.
    #[default]
    Process,
    /// Whoever uses the edge's own API: a kubelet, or nobody.
    Kubelet,
    /// A whole Kubernetes cluster: everything is applied to its API.
    Cluster,
}

impl std::fmt::Display for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Process => "process",
            Self::Kubelet => "kubelet",
            Self::Cluster => "cluster",
        })
    }
}

/// The part of a configuration file that is the edge's.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Own {
    #[serde(skip_serializing_if = "Option::is_none")]
    center: Option<String>,
    #[serde(skip_serializing)]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    /// Always there once everything is resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime: Option<Runtime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<PathBuf>,
    controllers: Vec<String>,
    terminated_pod_gc_threshold: usize,
    horizontal_pod_autoscaler_sync_period: String,
    /// What is run for images: a command, or a table of what an image says of itself.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    images: BTreeMap<String, Mapped>,
}

/// From one second, as nothing is measured more often, to an hour, as no window is longer.
fn sync_period(text: &str) -> Result<Duration> {
    let parsed = text.parse::<jiff::SignedDuration>().ok().and_then(|period| Duration::try_from(period).ok());
    let allowed = Duration::from_secs(1)..=Duration::from_secs(3600);
    parsed.filter(|period| allowed.contains(period)).with_context(|| {
        format!("--horizontal-pod-autoscaler-sync-period is {text:?}: give a duration from 1s to 1h, as in 15s")
    })
}

impl Default for Own {
    fn default() -> Self {
        Self {
            center: None,
            token: None,
            token_file: None,
            name: None,
            labels: BTreeMap::new(),
            runtime: None,
            kubeconfig: None,
            controllers: vec!["*".into()],
            terminated_pod_gc_threshold: workloads::Options::default().terminated_pods,
            horizontal_pod_autoscaler_sync_period: "15s".into(),
            images: BTreeMap::new(),
        }
    }
}

#[derive(Serialize)]
pub struct EdgeConfig {
    #[serde(flatten)]
    own: Own,
    #[serde(flatten)]
    pub server: Config,
}

pub fn run(edge: Edge) -> Result<()> {
    match edge.command {
        None => serve(&EdgeConfig::resolve(edge.settings)?),
        Some(Command::Kubeconfig { data_dir, server }) => {
            say(&center::kubeconfig_of("edge", &data_dir, server.as_deref(), None)?)
        }
        Some(Command::Revoke(revoke)) => fleet::run_revoke(&revoke),
        Some(Command::Confirm(confirm)) => fleet::run_confirm(confirm),
        Some(Command::Adopt(adopt)) => fleet::run_adopt(&adopt),
        Some(Command::Manifest(manifest)) => say(&manifest.text()?),
        Some(Command::SystemdUnit { runtime }) => say(&deploy::edge_unit(runtime)),
        Some(Command::Config(settings)) => say(&yaml_serde::to_string(&EdgeConfig::resolve(*settings)?)?),
    }
}

impl EdgeConfig {
    pub fn resolve(settings: EdgeSettings) -> Result<Self> {
        let mut own = Own::default();
        let mut config = Config::for_edge();
        let mut server = settings.server;
        if let Some(path) = server.config.take() {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read the configuration {}", path.display()))?;
            let wrong =
                || format!("{} is not a valid configuration (`selvedge edge config` prints one)", path.display());
            let mut all: yaml_serde::Mapping = yaml_serde::from_str(&text).with_context(wrong)?;
            let mut mine = yaml_serde::Mapping::new();
            const OWN: [&str; 11] = [
                "center",
                "token",
                "tokenFile",
                "name",
                "labels",
                "runtime",
                "kubeconfig",
                "controllers",
                "terminatedPodGcThreshold",
                "horizontalPodAutoscalerSyncPeriod",
                "images",
            ];
            for field in OWN {
                if let Some(value) = all.remove(field) {
                    mine.insert(field.into(), value);
                }
            }
            own = yaml_serde::from_value(mine.into()).with_context(wrong)?;
            let file: Settings = yaml_serde::from_value(all.into()).with_context(wrong)?;
            config.lay(file);
        }
        for (field, given) in
            [(&mut own.center, settings.center), (&mut own.token, settings.token), (&mut own.name, settings.name)]
        {
            *field = given.filter(|text| !text.is_empty()).or(field.take());
        }
        for label in settings.labels.iter().filter(|label| !label.is_empty()) {
            let Some((key, value)) = label.split_once('=') else {
                bail!("{label:?} is no label: write it as in region=west");
            };
            own.labels.insert(key.to_owned(), value.to_owned());
        }
        own.token_file = settings.token_file.filter(|path| !path.as_os_str().is_empty()).or(own.token_file);
        own.runtime = settings.runtime.or(own.runtime);
        own.kubeconfig = settings.kubeconfig.filter(|path| !path.as_os_str().is_empty()).or(own.kubeconfig);
        own.controllers = settings.controllers.unwrap_or(own.controllers);
        own.controllers.retain(|name| !name.is_empty());
        own.terminated_pod_gc_threshold =
            settings.terminated_pod_gc_threshold.unwrap_or(own.terminated_pod_gc_threshold);
        own.horizontal_pod_autoscaler_sync_period =
            settings.horizontal_pod_autoscaler_sync_period.unwrap_or(own.horizontal_pod_autoscaler_sync_period);
        sync_period(&own.horizontal_pod_autoscaler_sync_period)?;
        workloads::which(own.controllers.iter().map(String::as_str))?;
        for image in &settings.images {
            let (name, image) = Images::parse(image).map_err(anyhow::Error::msg)?;
            own.images.insert(name, Mapped::of(image));
        }
        let config = Config::resolve(server, config)?;
        if config.store != StoreKind::Sqlite {
            bail!("an edge keeps its data in a file of its own: --store {:?} is for centers", config.store);
        }
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let said = Said {
            runtime: own.runtime,
            kubeconfig: own.kubeconfig.take().map(absolute),
            change: settings.change_runtime,
        };
        let chosen = remembered::decide(&said, &Found::read(&config.data_dir)?, &config.data_dir)?;
        (own.runtime, own.kubeconfig) = (Some(chosen.runtime), chosen.kubeconfig);
        if !own.images.is_empty() && chosen.runtime != Runtime::Process {
            bail!("--image is for --runtime process, and this edge has --runtime {}", chosen.runtime);
        }
        Ok(Self { own, server: config })
    }

    fn runtime(&self) -> Runtime {
        self.own.runtime.unwrap_or_default()
    }

    /// What later starts are to remember.
    fn record(&self) -> Record {
        Record { runtime: self.runtime(), kubeconfig: self.own.kubeconfig.clone() }
    }

    /// The cluster that everything goes to, if there is one.
    fn cluster(&self, agent: &Arc<Agent>) -> Option<Arc<Cluster>> {
        let way = self.own.kubeconfig.clone().map_or(Way::Within, Way::Kubeconfig);
        (self.runtime() == Runtime::Cluster).then(|| Cluster::new(way, agent.clone()))
    }

    /// A cluster has controllers of its own.
    fn controllers(&self) -> BTreeSet<workloads::Controller> {
        match self.runtime() {
            Runtime::Cluster => BTreeSet::new(),
            _ => workloads::which(self.own.controllers.iter().map(String::as_str)).unwrap_or_default(),
        }
    }

    /// Where volumes lie that are directories of this machine, if its node can use them.
    fn volumes(&self) -> Option<PathBuf> {
        let dir = self.server.data_dir.join("volumes");
        (self.runtime() == Runtime::Process).then(|| std::path::absolute(&dir).unwrap_or(dir))
    }

    /// The node that is part of this program, if there is one.
    fn process(&self) -> Result<Option<Process>> {
        if self.runtime() != Runtime::Process {
            return Ok(None);
        }
        let data_dir = self.server.data_dir.clone();
        let images = self.own.images.iter().map(|(name, mapped)| (name.clone(), mapped.clone().into()));
        let images = Images::new(images);
        let network = network::Network::of(&data_dir)?;
        Ok(Some(Process { data_dir, images, network, top: Arc::new(Top::of_inside()) }))
    }

    fn ask(&self) -> Result<Ask> {
        let token = match (&self.own.token, &self.own.token_file) {
            (Some(token), _) => Some(token.clone()),
            // The file may be gone once it was used.
            (None, Some(path)) if !path.exists() && words::joined(&self.server.data_dir) => None,
            (None, Some(path)) => token_in(path)?,
            (None, None) => None,
        };
        Ok(Ask {
            data_dir: self.server.data_dir.clone(),
            center: self.own.center.clone(),
            token,
            name: self.own.name.clone(),
            labels: self.own.labels.clone(),
            proxy: join::Proxy::from_env(),
        })
    }
}

/// The token in a file; nothing if the file is empty.
pub fn token_in(path: &Path) -> Result<Option<String>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the join token in {} (--token-file)", path.display()))?;
    Ok(Some(text.trim().to_owned()).filter(|token| !token.is_empty()))
}

/// A program cannot take its arguments back, so all that can be done is to say so.
pub fn warn_of_argument(mut args: impl Iterator<Item = String>) {
    if args.any(|arg| arg == "--token" || arg.starts_with("--token=")) {
        tracing::warn!(
            "every user of this machine can read the join token among the arguments of this process: pass it with --token-file"
        );
    }
}

fn serve(config: &EdgeConfig) -> Result<()> {
    center::log_as(&config.server.log)?;
    warn_of_argument(std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()));
    processes::raise_file_limit();
    resident::use_one_heap();
    // An edge is a small machine, and what takes long there is the disk.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let mut signals = Stop::within_limit()?;
    let done = runtime.block_on(run_until(config, &mut signals));
    signals.end(runtime);
    done
}

async fn run_until(config: &EdgeConfig, signals: &mut Stop) -> Result<()> {
    let ask = config.ask()?;
    let mut joining = tokio::spawn(async move { join::join(&ask).await });
    let joined = tokio::select! {
        joined = &mut joining => Some(joined??),
        () = tokio::time::sleep(PATIENCE) => None,
        () = signals.told() => return Ok(()),
    };
    let agent = Agent::new();
    let record = config.record();
    let runs = Runs { cluster: config.cluster(&agent), process: config.process()?, record };
    let running = start(&config.server, &agent, &runs).await?;
    tokio::spawn(memory::keep_small());
    let (stop, stopped) = watch::channel(false);
    let options = workloads::Options {
        terminated_pods: config.own.terminated_pod_gc_threshold,
        volumes: config.volumes(),
        autoscaler_period: sync_period(&config.own.horizontal_pod_autoscaler_sync_period)?,
    };
    let clients = inside::clients(&running.server);
    if options.volumes.is_some() && config.controllers().contains(&workloads::Controller::LocalProvisioner) {
        tokio::spawn(workloads::make_default_class(inside::client(&running.server, User::itself())));
    }
    let controllers = workloads::run(clients, config.controllers(), options, stopped.clone());
    let controllers = tokio::spawn(controllers);
    let mut linked = tokio::spawn(link(
        joined.ok_or(joining),
        agent,
        (runs, config.server.data_dir.clone()),
        running.server.clone(),
        stopped,
    ));
    let told = tokio::select! {
        () = signals.told() => Ok(()),
        ended = &mut linked => ended.context("the link ended").and_then(|ended| ended),
        ended = center::store_ended(&running) => ended,
    };
    signals.begin();
    tracing::info!("stopping: finishing requests and ending watches");
    stop.send_replace(true);
    signals.step("the link to the center, and the node's pods");
    if !linked.is_finished() && tokio::time::timeout(QUIET, linked).await.is_err() {
        tracing::warn!("the link and the node's pods did not end within {} s", QUIET.as_secs());
    }
    signals.step("controllers");
    if tokio::time::timeout(QUIET, controllers).await.is_err() {
        tracing::warn!("controllers did not end within {} s", QUIET.as_secs());
    }
    signals.step("requests, watches, and the store to be closed");
    running.stop().await;
    signals.step("containers");
    // Containers outlive their agent, but not `selvedge up`: who tries things wants nothing left behind.
    if Stop::is_held() {
        let _ = processes::end_all(&config.server.data_dir).await;
    }
    told
}

/// The API, which waits for nobody.
async fn start(config: &Config, agent: &Arc<Agent>, runs: &Runs) -> Result<front::Running> {
    let store = center::sealed(config, center::open(config).await?).await?;
    let ownership = Ownership::new(agent.clone());
    let common = center::options(config, &store)?;
    let options = server::Options {
        limits: flow::Limits { history: HISTORY, sessions: SESSIONS, ..common.limits },
        observers: [agent.observer(), ownership.observer()]
            .into_iter()
            .chain(runs.cluster.as_ref().map(Cluster::observer))
            .collect(),
        owner: Some(ownership.clone()),
        mounts: runs.process.iter().map(Process::mount).chain(runs.kubelets()).collect(),
        provides: false,
        releases_storage: runs.cluster.is_some(),
        services: runs.process.as_ref().map_or_else(Range::default, |process| {
            let (base, bits) = process.network.services();
            Range::new(base, bits)
        }),
        ..common
    };
    let running = front::start(options).await?;
    agent.serve(&running.server);
    if runs.has_kubelets() {
        let server = running.server.clone();
        tokio::spawn(async move { let_them_read(&server).await });
    }
    center::register(&config.data_dir);
    tokio::spawn(ownership.run(running.server.clone(), running.server.shutdown.clone()));
    tokio::spawn(store.follow_key_file());
    tracing::info!(address = %running.address, data = %config.data_dir.display(), "the API is ready");
    Ok(running)
}

type Joining = JoinHandle<Result<Arc<Member>, join::Error>>;

/// What runs what the center sent.
struct Runs {
    cluster: Option<Arc<Cluster>>,
    process: Option<Process>,
    /// For later starts.
    record: Record,
}

impl Runs {
    fn has_kubelets(&self) -> bool {
        self.cluster.is_none() && self.process.is_none()
    }

    /// What kubelets measure, where they are what runs things.
    fn kubelets(&self) -> Option<Arc<dyn Mount>> {
        self.has_kubelets().then(|| Arc::new(Top::of_kubelets()) as Arc<dyn Mount>)
    }
}

/// Keeps the link and its certificate until told to stop. An edge that cannot join is an error.
async fn link(
    joined: Result<Arc<Member>, Joining>,
    agent: Arc<Agent>,
    (runs, data_dir): (Runs, PathBuf),
    server: Arc<Server>,
    mut stop: watch::Receiver<bool>,
) -> Result<()> {
    let member = match joined {
        Ok(member) => member,
        Err(joining) => tokio::select! {
            member = joining => member??,
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        },
    };
    // The center has taken the edge, so the way it is run is the edge's from now on.
    match runs.record.keep(&data_dir) {
        Ok(()) => tracing::info!(runtime = %runs.record.runtime, "the edge's runtime"),
        Err(error) => {
            tracing::warn!(%error, data = %data_dir.display(), "the runtime is not remembered for later starts")
        }
    }
    let open = ::edge::tunnel::opener(&server);
    let applying = async {
        if let Some(cluster) = runs.cluster {
            cluster.run(server.clone(), member.edge(), stop.clone()).await;
        }
        if let Some(process) = runs.process {
            process.run(member.edge().name, server.clone(), stop.clone()).await;
        }
    };
    let linked = agent.clone().run(server.clone(), member.clone(), open, stop.clone());
    tokio::join!(linked, member.clone().keep(agent, stop.clone()), applying);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let server = || Settings { data_dir: Some(dir.path().join("edge")), ..Settings::default() };
        let settings = || EdgeSettings {
            token_file: Some(file.clone()),
            runtime: Some(Runtime::Kubelet),
            server: server(),
            ..EdgeSettings::default()
        };
        let ask = || EdgeConfig::resolve(settings()).unwrap().ask();
        let error = format!("{:#}", ask().err().unwrap());
        assert!(error.contains("--token-file") && error.contains("token"), "{error}");
        std::fs::write(&file, "a.b.c.root\n").unwrap();
        assert_eq!(ask().unwrap().token.as_deref(), Some("a.b.c.root"));
        std::fs::write(&file, "\n").unwrap();
        assert_eq!(ask().unwrap().token, None);
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(dir.path().join("edge")).unwrap();
        std::fs::write(dir.path().join("edge/edge.json"), "{}").unwrap();
        assert_eq!(ask().unwrap().token, None, "an edge that has joined needs none");
    }

    #[test]
    fn flags_win_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("e.yaml");
        std::fs::write(
            &path,
            "center: https://a\nname: florin\nlabels: {region: west, kind: store}\nlisten: 127.0.0.1:7000\n",
        )
        .unwrap();
        let settings = |labels: &[&str]| EdgeSettings {
            center: Some("https://b".into()),
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            server: Settings { config: Some(path.clone()), ..Settings::default() },
            ..EdgeSettings::default()
        };
        let config = EdgeConfig::resolve(settings(&["region=east"])).unwrap();
        assert_eq!((config.own.center.as_deref(), config.own.name.as_deref()), (Some("https://b"), Some("florin")));
        assert_eq!((config.own.labels["region"].as_str(), config.own.labels["kind"].as_str()), ("east", "store"));
        assert_eq!(config.server.listen.port(), 7000);
        assert!(config.server.data_dir.ends_with("edge"));
        let printed = yaml_serde::to_string(&config).unwrap();
        assert!(printed.contains("name: florin") && printed.contains("dataDir:"), "{printed}");
        assert!(EdgeConfig::resolve(settings(&["region"])).is_err());
        std::fs::write(&path, "nmae: florin\n").unwrap();
        let error = format!("{:#}", EdgeConfig::resolve(settings(&[])).map(|_| ()).unwrap_err());
        assert!(error.contains("e.yaml") && error.contains("nmae"), "{error}");
    }
}
