//! The agent's side: the runtime that the runner of pods sees. All it knows is the keeper's, so it can be gone and come back at any time.

mod attached;
mod environment;
pub mod launch;
mod link;
mod runtime;

use std::{
    net::{IpAddr, Ipv4Addr, UdpSocket},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use pods::runtime::{ContainerId, Failure, NEVER_BEGAN};
use tokio::sync::Notify;

use self::link::Link;
use crate::{
    addresses::Range,
    images::Images,
    protocol::{Answer, Permitted, Request, VERSION},
    protocol::{Rules, STATE},
};

/// Below a keeper's directory: what containers see as `/`.
pub const ROOTS: &str = "roots";

/// A keeper that does not answer for so long is broken.
const PATIENCE: Duration = Duration::from_secs(30);
/// A keeper that was killed has ended after so long.
const ENDING: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct Options {
    /// The edge's; everything of this runtime is in `keeper` below it.
    pub data_dir: PathBuf,
    /// Where pods get addresses from, as base and bits; none: they have the node's.
    pub range: Option<(Ipv4Addr, u8)>,
    pub images: Images,
    pub rules: Rules,
    /// For containers that say nothing else.
    pub processes: Option<u64>,
    /// Both are told to containers.
    pub node: String,
    pub edge: String,
    /// What is run as keeper; this program itself if not said.
    pub program: Option<PathBuf>,
}

impl Options {
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            range: None,
            images: Images::default(),
            rules: Rules::default(),
            // A machine bears this many, and nobody needs so many by accident.
            processes: Some(1024),
            node: String::new(),
            edge: String::new(),
            program: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use {}: {error}", path.display())]
    Directory { path: PathBuf, error: std::io::Error },
    #[error("the keeper of containers does not start: {0}")]
    Keeper(String),
    #[error("the keeper of containers has gone away")]
    Gone,
    #[error(
        "the keeper of containers does not answer. See keeper.log in its directory; if it hangs, kill it: a new one is started, and containers with it"
    )]
    Silent,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { reason: "RuntimeUnavailable", message: error.to_string() }
    }
}

/// The runtime.
pub struct Processes {
    options: Options,
    dir: PathBuf,
    /// The edge's data directory without links, which containers do not see.
    data: PathBuf,
    range: Option<Range>,
    /// Held while a connection is made, so that there is one keeper.
    link: tokio::sync::Mutex<Option<Arc<Link>>>,
    /// What the keeper may limit, once one was asked.
    permitted: Mutex<Option<Permitted>>,
    changed: Arc<Notify>,
}

impl Processes {
    /// Finds the keeper that is there, or starts one if there ever was one: an edge without pods does without.
    pub async fn start(options: Options) -> Result<Arc<Self>, Error> {
        let wrong = |path: &Path, error| Error::Directory { path: path.to_owned(), error };
        let data = std::path::absolute(&options.data_dir).map_err(|error| wrong(&options.data_dir, error))?;
        let dir = data.join("keeper");
        let roots = dir.join(ROOTS);
        // What is below is the containers' and ours, and nobody else's on this machine.
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&roots);
        made.map_err(|error| wrong(&roots, error))?;
        let range = options.range.map(|(base, bits)| Range { base, bits }).filter(can_be_used);
        // The stage of a container is named by the same path.
        let data = std::fs::canonicalize(&data).map_err(|error| wrong(&data, error))?;
        let dir = data.join("keeper");
        let this = Arc::new(Self {
            options,
            dir,
            data,
            range,
            link: tokio::sync::Mutex::default(),
            permitted: Mutex::default(),
            changed: Arc::default(),
        });
        if this.has_kept() {
            this.link().await?;
        }
        Ok(this)
    }

    /// Whether anything was ever asked of a keeper here.
    fn has_kept(&self) -> bool {
        self.dir.join(STATE).exists()
    }

    /// The keeper as it is now, or a new one.
    async fn link(&self) -> Result<Arc<Link>, Error> {
        let mut held = self.link.lock().await;
        if let Some(link) = held.as_ref().filter(|link| !link.is_over()) {
            return Ok(link.clone());
        }
        let link = self.connect().await.inspect_err(|error| {
            tracing::error!(%error, at = %self.dir.display(), "no container can be run");
        })?;
        *held = Some(link.clone());
        // Whatever was known may have ended meanwhile.
        self.changed.notify_one();
        Ok(link)
    }

    async fn connect(&self) -> Result<Arc<Link>, Error> {
        let ours = launch::identity();
        let mut replaced = false;
        let until = Instant::now() + ENDING;
        loop {
            let stream = match launch::connect(&self.dir) {
                Ok(stream) => stream,
                Err(_) => {
                    let (dir, program) = (self.dir.clone(), self.options.program.clone());
                    let begun = tasks::spawn_blocking("start-keeper", move || launch::launch(&dir, program)).await;
                    begun.map_err(|error| Error::Keeper(error.to_string()))?.map_err(Error::Keeper)?;
                    launch::connect(&self.dir).map_err(|error| Error::Keeper(error.to_string()))?
                }
            };
            let link = Link::open(stream, self.changed.clone()).map_err(|error| Error::Keeper(error.to_string()))?;
            let hello = Request::Hello { version: VERSION, rules: self.options.rules };
            let answer = match ask(&link, &hello).await {
                // One that was just killed takes connections until the last of its files is closed.
                Err(Error::Gone) if Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    continue;
                }
                answer => answer?,
            };
            let Answer::Hello { version, program, permitted } = answer else {
                return Err(Error::Keeper("it answers strangely".into()));
            };
            // A keeper of another build becomes this one, with all its containers; once, lest two agents take turns.
            if !replaced && (program != ours || version != VERSION) && self.options.program.is_none() {
                replaced = true;
                if let Ok(program) = std::env::current_exe()
                    && let Ok(Answer::Done) = ask(&link, &Request::Replace { program }).await
                {
                    tracing::info!("the keeper of containers becomes this version");
                    let _ = tokio::time::timeout(Duration::from_secs(5), link.over()).await;
                    continue;
                }
            }
            if version < VERSION {
                return Err(Error::Keeper("it is too old and cannot be replaced: see keeper.log".into()));
            }
            let before = self.permitted.lock().unwrap_or_else(PoisonError::into_inner).replace(permitted);
            if !permitted.views && before.is_none_or(|before| before.views) {
                tracing::warn!(
                    "containers can read the data of this edge, and of other centers and edges of this user: \
                     namespaces are not permitted here. Do not run Pods here that are not trusted"
                );
            }
            ask(&link, &Request::Watch).await?;
            return Ok(link);
        }
    }

    /// Asks the keeper. If it goes away meanwhile, the next one is asked: every request can be repeated.
    async fn ask(&self, request: &Request) -> Result<Answer, Failure> {
        for _ in 0..3 {
            match ask(&*self.link().await?, request).await {
                Ok(Answer::Failed { reason, message }) => return Err(Failure { reason: known(&reason), message }),
                Ok(answer) => return Ok(answer),
                Err(Error::Gone) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Gone.into())
    }

    fn root(&self, id: &ContainerId) -> PathBuf {
        self.dir.join(ROOTS).join(&id.pod).join(&id.name)
    }
}

async fn ask(link: &Link, request: &Request) -> Result<Answer, Error> {
    tokio::time::timeout(PATIENCE, link.ask(request)).await.map_err(|_| Error::Silent)?
}

/// Ends all containers of an edge and its keeper, if there is one.
pub async fn end_all(data_dir: &Path) -> Result<(), Error> {
    let dir = data_dir.join("keeper");
    let Ok(stream) = launch::connect(&dir) else { return Ok(()) };
    let link = Link::open(stream, Arc::default()).map_err(|error| Error::Keeper(error.to_string()))?;
    match ask(&link, &Request::Stop).await {
        Ok(_) | Err(Error::Gone) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Not every system has all of the loopback network.
fn can_be_used(range: &Range) -> bool {
    let first = range.next(&Default::default(), None);
    first.is_some_and(|address| UdpSocket::bind((IpAddr::V4(address), 0)).is_ok())
}

fn known(reason: &str) -> &'static str {
    const REASONS: [&str; 7] = [
        NEVER_BEGAN,
        "RunContainerError",
        "CreateContainerError",
        "FailedCreatePodSandBox",
        "NotFound",
        "ExecError",
        "Unknown",
    ];
    REASONS.into_iter().find(|known| *known == reason).unwrap_or("RunContainerError")
}

/// Makes the keeper of an edge become another program, with all its containers. An agent does it by itself for a keeper of another build.
pub async fn replace_keeper(data_dir: &Path, program: &Path) -> Result<(), Error> {
    let keeper = |error: std::io::Error| Error::Keeper(error.to_string());
    let stream = launch::connect(&data_dir.join("keeper")).map_err(keeper)?;
    let link = Link::open(stream, Arc::default()).map_err(keeper)?;
    ask(&link, &Request::Replace { program: program.to_owned() }).await.map(|_| ())
}
