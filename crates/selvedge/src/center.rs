//! `selvedge center`: the API server over a store.

use std::{
    ffi::OsString,
    io::{self, IsTerminal, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use store::Store;

use crate::{
    config::{Config, StoreKind},
    memory,
    stop::Stop,
    ws::place,
};

/// How often something is tried again for which the disk had no room.
const LATER: Duration = Duration::from_secs(5);

pub fn run(config: &Config) -> Result<()> {
    log_as(&config.log)?;
    processes::raise_file_limit();
    let mut stop = Stop::within_limit()?;
    let runtime = runtime()?;
    let done = runtime.block_on(serve(config, &mut stop));
    stop.end(runtime);
    done
}

async fn serve(config: &Config, stop: &mut Stop) -> Result<()> {
    let running = tokio::select! {
        running = start(config) => running?,
        () = stop.told() => return Ok(()),
    };
    tracing::info!(address = %running.address, data = %config.data_dir.display(), "the API is ready");
    resident::keep_some_heap();
    tokio::spawn(memory::keep_small());
    let done = tokio::select! {
        () = stop.told() => Ok(()),
        ended = store_ended(&running) => ended,
    };
    stop.begin();
    tracing::info!("stopping: finishing requests and ending watches");
    stop.step("requests, watches, and the store to be closed");
    running.stop().await;
    done
}

/// Answers when the store cannot go on. Then nothing can be written until the process is started anew.
pub async fn store_ended(running: &front::Running) -> Result<()> {
    let why = running.server.cache.store().died().await;
    Err(anyhow!("{why}. What was acknowledged is durable: start selvedge again"))
}

pub async fn start(config: &Config) -> Result<front::Running> {
    let store = sealed(config, open(config).await?).await?;
    let fleet = ::center::Fleet::open(Arc::new(store.clone()), config.store == StoreKind::Etcd).await?;
    let options = server::Options {
        mounts: fleet.mounts(),
        protocols: fleet.protocols(),
        observers: vec![fleet.observer()],
        ..options(config, &store)?
    };
    let running = front::start(options).await?;
    match fleet.start(&running.server).await {
        Err(error @ store::Error::Full(_)) => {
            tracing::warn!(%error, "edges cannot connect until something can be written");
            tokio::spawn(start_later(fleet, running.server.clone()));
        }
        started => started?,
    }
    register(&config.data_dir);
    tokio::spawn(store.follow_key_file());
    Ok(running)
}

/// Lets edges of this machine know of a data directory, so that their containers do not see it.
pub fn register(data_dir: &Path) {
    if let Err(error) = processes::register_data_dir(data_dir) {
        let data = data_dir.display();
        tracing::debug!(%error, %data, "containers of other edges on this machine may see this data directory");
    }
}

/// Lets edges in when there is room on the disk.
async fn start_later(fleet: Arc<::center::Fleet>, server: Arc<server::Server>) {
    while let Err(error) = fleet.start(&server).await {
        tracing::debug!(%error, "edges cannot connect yet");
        tokio::time::sleep(LATER).await;
    }
}

/// What a server is started with, at the center or on an edge.
pub fn options(config: &Config, store: &store::SealedStore) -> Result<server::Options> {
    Ok(server::Options {
        listen: config.listen,
        shared_store: config.store == StoreKind::Etcd,
        extra_names: config.tls_names.clone(),
        identity: config.identity.options()?,
        plugins: config.plugins()?,
        audit: config.audit.options(),
        webhook_addresses: config.webhook_addresses()?,
        limits: flow::Limits {
            reads: config.max_requests_inflight,
            writes: config.max_mutating_requests_inflight,
            history_age: Duration::from_secs(config.compaction_interval),
            connections_of: Some(::center::EDGE_CONNECTIONS),
            ..flow::Limits::default()
        },
        ..server::Options::new(&config.data_dir, Arc::new(store.clone()))
    })
}

/// The store itself, with values as they lie in it.
pub async fn open(config: &Config) -> Result<Arc<dyn Store>> {
    Ok(match config.store {
        StoreKind::Sqlite => {
            let options = store::SqliteOptions {
                accept_lost_writes: config.accept_lost_writes,
                ..store::SqliteOptions::default()
            };
            Arc::new(store::SqliteStore::open(&config.data_dir.join("store"), options)?)
        }
        StoreKind::Etcd => {
            let options = store::EtcdOptions {
                endpoints: config.etcd_endpoints.clone(),
                prefix: config.etcd_prefix.clone(),
                tls: config.etcd_tls()?,
            };
            let at = options.endpoints.join(", ");
            let connected = store::EtcdStore::connect(options).await;
            Arc::new(
                connected
                    .with_context(|| format!("cannot use etcd at {at}: is it running, and is the address right?"))?,
            )
        }
    })
}

/// The store with Secrets, and what else was chosen, sealed.
pub async fn sealed(config: &Config, store: Arc<dyn Store>) -> Result<store::SealedStore> {
    // What centers share of their identity opens more than any Secret.
    let identity = format!("{}/", identity::shared::FILES);
    // What waits on an edge, and what came of it, may have been written to a Secret.
    let writes = [server::store_prefix("edge.selvedge.dev", "offlinewrites"), format!("{}/", ::center::REPLAYED)];
    let options = store::Sealing {
        key_file: store::KeyFile::new(&config.secrets_key_file),
        prefixes: config.encrypted_prefixes().into_iter().chain([identity]).chain(writes).collect(),
        shared: config.store == StoreKind::Etcd,
    };
    Ok(store::SealedStore::open(store, options).await?)
}

pub fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")
}

pub fn log_as(filter: &str) -> Result<()> {
    // `h2` writes a line for each of some things that any client can do; what matters of them the listener says, once
    // for many. `kube_runtime` writes errors of watches as Rust structures; those that watch say them in words.
    let mut quiet = filter.to_owned();
    for crate_name in ["h2", "kube_runtime"] {
        if !filter.contains(crate_name) {
            quiet.push_str(&format!(",{crate_name}=error"));
        }
    }
    let filter = tracing_subscriber::EnvFilter::try_new(quiet)
        .with_context(|| format!("{filter:?} is no log filter: try info, or info,selvedge_server=debug"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Unheard(std::io::stderr()))
        .with_ansi(colours(io::stderr().is_terminal(), std::env::var_os("NO_COLOR")))
        // Otherwise a line that cannot be written is reported on the same stream, by a macro that panics.
        .log_internal_errors(false)
        .with_target(false)
        .init();
    Ok(())
}

/// Colours are for a terminal, and only without NO_COLOR: in a file or a journal they are noise.
fn colours(terminal: bool, no_color: Option<OsString>) -> bool {
    terminal && no_color.is_none_or(|value| value.is_empty())
}

/// A log that may be lost: a reader that is gone, a full or broken disk below it, are no reason to stop working.
struct Unheard<W>(W);

impl<W: Write> Write for Unheard<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.0.write(bytes).unwrap_or(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

/// The admin's kubeconfig, pointed elsewhere if asked.
pub fn kubeconfig(data_dir: &Path, server: Option<&str>, workspace: Option<&str>) -> Result<String> {
    kubeconfig_of("center", data_dir, server, workspace)
}

/// The same of a center or an edge.
pub fn kubeconfig_of(role: &str, data_dir: &Path, server: Option<&str>, workspace: Option<&str>) -> Result<String> {
    let path = data_dir.join("admin.kubeconfig");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "there is no {}: start the {role} first (`selvedge {role} --data-dir {}`), or name another --data-dir",
            path.display(),
            data_dir.display()
        ),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    if server.is_none() && workspace.is_none() {
        return Ok(text);
    }
    let pointed = text.lines().map(|line| match line.split_once("server: ") {
        Some((before, url)) => {
            let url = url.trim().trim_matches('"');
            let (base, here) = place::split_server(server.unwrap_or(url));
            format!("{before}server: {:?}\n", place::server_in(base, workspace.unwrap_or(here)))
        }
        None => format!("{line}\n"),
    });
    Ok(pointed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_cannot_be_written_is_no_error() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        Unheard(full).write_all(b"a line\n").unwrap();
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        Unheard(writer).write_all(b"a line\n").unwrap();
    }
}
