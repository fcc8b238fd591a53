//! `selvedge up`: a center and edges on this machine, each a process of its own, and what to try next.

mod program;
mod sample;
pub mod words;

use std::{
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{
    center,
    cli::say,
    config::{Config, Settings},
    stop::Stop,
};
use program::{Address, Program};

/// Time for a start: a debug build on a machine that is busy compiling needs its time.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Args)]
pub struct Up {
    /// An edge to run, and its address if it shall be a certain one: `florin`, `florin=127.0.0.1:7443`. [default: florin, guilder, cloud]
    #[arg(long = "edge", value_name = "NAME[=ADDRESS]")]
    edges: Vec<String>,
    /// Only the center.
    #[arg(long, conflicts_with = "edges")]
    no_edges: bool,
    #[command(flatten)]
    center: Settings,
}

/// The cloud is just another edge, with more room.
const CLOUD: &str = "cloud";
/// Who is there when nobody says otherwise.
const EDGES: &[&str] = &["florin", "guilder", CLOUD];

/// What runs where. Everything is below one directory.
struct Plan {
    data: PathBuf,
    config: Config,
    edges: Vec<(String, SocketAddr)>,
}

pub fn run(up: Up) -> Result<()> {
    let plan = Plan::make(up)?;
    let mut programs = Vec::new();
    // The programs have limits of their own.
    let mut stop = Stop::listen(None)?;
    let done = center::runtime()?.block_on(async {
        let url = tokio::select! {
            url = plan.start_all(&mut programs) => url?,
            () = stop.told() => return Ok(()),
        };
        // Nobody need listen: what runs goes on when the terminal, or the disk below the output, is gone.
        let _ = say(&words::ready(&plan.data, &url, &plan.names())?);
        stop.told().await;
        let _ = say("\n  Stopping: edges first, then the center.\n");
        Ok(())
    });
    // Whatever happened: what was started is ended, the center last.
    let (center, edges) = programs.split_at(1.min(programs.len()));
    for group in [edges, center] {
        group.iter().for_each(|program: &Arc<Program>| program.let_go());
        group.iter().for_each(|program| program.end());
        // Containers outlive an edge's agent; here they shall not.
        group.iter().for_each(|program| program.end_containers());
    }
    done
}

impl Plan {
    fn make(up: Up) -> Result<Self> {
        let mut settings = up.center;
        let data = std::path::absolute(settings.data_dir.take().unwrap_or_else(|| ".data".into()))?;
        settings.data_dir = Some(data.join("center"));
        let config = Config::resolve(settings, Config::for_center())?;
        let mut edges = Vec::new();
        let usual = || EDGES.iter().map(|name| (*name).to_owned()).collect();
        let named = if up.edges.is_empty() && !up.no_edges { usual() } else { up.edges };
        for edge in named {
            let (name, address) = edge.split_once('=').unwrap_or((&edge, "127.0.0.1:0"));
            let address = address
                .parse()
                .with_context(|| format!("{address:?} is no address for {name}: write 127.0.0.1:7443"))?;
            let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            if name.is_empty() || name == "center" || !name.bytes().all(good) {
                bail!("{name:?} is no name for an edge: lower-case letters, digits and dashes, as in florin");
            }
            if edges.iter().any(|(other, _)| other == name) {
                bail!("two edges are called {name}");
            }
            edges.push((name.to_owned(), address));
        }
        Ok(Self { data, config, edges })
    }

    fn names(&self) -> Vec<&str> {
        self.edges.iter().map(|(name, _)| &**name).collect()
    }

    /// Puts what it started into `programs`, the center first; says where the center's API is.
    async fn start_all(&self, programs: &mut Vec<Arc<Program>>) -> Result<String> {
        std::fs::create_dir_all(&self.data).with_context(|| format!("cannot make {}", self.data.display()))?;
        let file = self.data.join("center.yaml");
        std::fs::write(&file, yaml_serde::to_string(&self.config)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        let mut config = vec!["--config".into(), file.display().to_string()];
        if self.config.accept_lost_writes {
            // It is in no file.
            config.push("--accept-lost-writes".into());
        }
        let center = self.program("center", self.config.listen, move |_| Ok(config.clone()))?;
        programs.push(center.clone());
        let url = center.ready(PATIENCE).await?;

        let kubeconfig = self.data.join("center/admin.kubeconfig");
        if !self.edges.is_empty() {
            // Who joined before is where it was.
            let joined = |name: &&str| words::joined(&self.data.join(name));
            let new: Vec<&str> = self.names().into_iter().filter(|name| !joined(name)).collect();
            sample::make(&kubeconfig, &url, &new, &self.data).await?;
        }
        for (name, address) in &self.edges {
            let (kubeconfig, center, name_again) = (kubeconfig.clone(), center.clone(), name.clone());
            programs.push(self.program(name, *address, move |directory| {
                // The center may be somewhere else than at the last start; or away just now, which an edge can live with.
                let mut args = match center.url() {
                    Ok(url) => vec!["--center".into(), url],
                    Err(_) if words::joined(directory) => Vec::new(),
                    Err(error) => return Err(error),
                };
                if !words::joined(directory) {
                    let token = sample::join_token(&kubeconfig, &name_again)?;
                    let file = sample::keep_token(directory, &token)?;
                    args.extend(["--token-file".into(), file, "--name".into(), name_again.clone()]);
                }
                args.extend(["--runtime".into(), "process".into()]);
                Ok(args)
            })?);
        }
        for edge in &programs[1..] {
            edge.ready(PATIENCE).await?;
        }
        Ok(url)
    }

    fn program(
        &self,
        name: &str,
        listen: SocketAddr,
        args: impl Fn(&Path) -> Result<Vec<String>> + Send + Sync + 'static,
    ) -> Result<Arc<Program>> {
        let directory = self.data.join(name);
        let role = if name == "center" { "center" } else { "edge" };
        let width = self.edges.iter().map(|(name, _)| name.len()).max().unwrap_or_default().max("center".len());
        let listen = as_before(&directory, listen);
        Program::start(name, role, width, directory, listen, Box::new(args))
    }
}

/// With no port asked for, the one of the last start, so that whoever remembers it finds it again.
fn as_before(directory: &Path, listen: SocketAddr) -> SocketAddr {
    if listen.port() != 0 {
        return listen;
    }
    let before = Address::read(&directory.join("admin.kubeconfig")).map(|address| address.listening(listen));
    before.filter(|address| TcpListener::bind(address).is_ok()).unwrap_or(listen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(edges: &[&str]) -> Result<Plan> {
        let center = Settings { data_dir: Some("/d".into()), ..Settings::default() };
        Plan::make(Up { edges: edges.iter().map(|edge| (*edge).to_owned()).collect(), no_edges: false, center })
    }

    #[test]
    fn everything_lies_below_one_directory() {
        let plan = plan(&[]).unwrap();
        assert_eq!(plan.names(), EDGES);
        assert_eq!(plan.config.data_dir, Path::new("/d/center"));
        assert_eq!(plan.config.secrets_key_file, Path::new("/d/center/pki/secrets.key"));
    }

    #[test]
    fn edges_as_somebody_names_them() {
        let named = plan(&["a=127.0.0.1:7443", "b"]).unwrap();
        assert_eq!(named.edges[0], ("a".to_owned(), ([127, 0, 0, 1], 7443).into()));
        assert_eq!(named.edges[1], ("b".to_owned(), ([127, 0, 0, 1], 0).into()));
        for (wrong, says) in
            [(&["A"][..], "no name"), (&["center"], "no name"), (&["a", "a"], "two edges"), (&["a=x"], "no address")]
        {
            let error = plan(wrong).err().unwrap().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
