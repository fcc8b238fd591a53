//! `selvedge secrets`: the keys that seal values in the store.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use store::{KeyFile, SqliteStore, Store};

use crate::{
    center,
    cli::say,
    config::{Config, Settings, StoreKind},
};

/// How long a running center may take before we stop watching it.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Subcommand)]
pub enum Command {
    /// Seal everything with a new key, and throw the old one away.
    ///
    /// With the center running or not: a running one notices and does the work. If it is interrupted, it goes on when a
    /// center starts or the command is given again.
    Rotate {
        #[command(flatten)]
        settings: Settings,
        /// Only make the new key, so that it can be copied to the other centers of an etcd before it is used.
        #[arg(long)]
        prepare: bool,
    },
    /// Say which keys there are.
    Status(Settings),
}

pub fn run(command: Command) -> Result<()> {
    match command {
        Command::Rotate { settings, prepare } => {
            let config = Config::resolve(settings, Config::for_center())?;
            let keys = KeyFile::new(&config.secrets_key_file);
            if prepare {
                let next = keys.prepare()?.next.unwrap_or_default();
                return say(&format!("key {next} waits in {} for the next rotation\n", keys.path().display()));
            }
            let key = keys.rotate()?.seals;
            match config.store {
                StoreKind::Etcd => say(&format!(
                    "key {key} seals from now on. Every center of this etcd needs it in its key file, and seals what there is \
                     as soon as it has; remove the lines `opens …` when all have logged that\n"
                )),
                StoreKind::Sqlite if SqliteStore::is_in_use(&config.data_dir.join("store")) => wait(&keys, &key),
                StoreKind::Sqlite => rotate_here(&config, &key),
            }
        }
        Command::Status(settings) => {
            let config = Config::resolve(settings, Config::for_center())?;
            status(&config.secrets_key_file)
        }
    }
}

fn status(path: &Path) -> Result<()> {
    let Some(status) = KeyFile::new(path).status()? else {
        bail!("there is no key file {}: a center makes it when it first starts", path.display());
    };
    let opens = status.opens.iter().map(|key| format!("{key} opens older values: a rotation is under way\n"));
    let next = status.next.iter().map(|key| format!("{key} waits for the next rotation\n"));
    let lines = [format!("{} seals\n", status.seals)].into_iter().chain(opens).chain(next);
    say(&lines.collect::<String>())
}

fn rotate_here(config: &Config, key: &str) -> Result<()> {
    center::log_as(&config.log)?;
    let done = center::runtime()?.block_on(async {
        let store = center::sealed(config, center::open(config).await?).await?;
        let done = store.rotate().await;
        store.close().await;
        done.context("the rotation goes on when a center starts or this command is given again")
    })?;
    say(&format!("{} values are sealed with key {key}; {} old keys are gone\n", done.values, done.keys))
}

/// A running center has seen the file change and does the work; it throws the old keys away when it is through.
fn wait(keys: &KeyFile, key: &str) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while keys.status()?.is_some_and(|status| !status.opens.is_empty()) {
        if Instant::now() > end {
            bail!("the center is still at it: see its log, and `selvedge secrets status`");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    say(&format!("everything is sealed with key {key}\n"))
}
