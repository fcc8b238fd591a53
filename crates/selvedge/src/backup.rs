//! `selvedge backup`: a copy of a center's data that a center can be started on.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use store::{SqliteOptions, SqliteStore, Store};

use crate::{center, cli::say};

#[derive(Args)]
pub struct Backup {
    /// Where the center keeps its data.
    #[arg(long, env = "SELVEDGE_DATA_DIR", default_value = ".data/center")]
    data_dir: PathBuf,
    /// The directory to make. It holds keys: whoever can read it is an administrator of the center.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

pub fn run(backup: &Backup) -> Result<()> {
    let (from, to) = (&backup.data_dir, &backup.to);
    if !from.join("store/store.db").exists() {
        bail!(
            "there is no store in {}: name the center's --data-dir. A center on etcd is backed up with `etcdctl snapshot save`, and by copying its pki/",
            from.display()
        );
    }
    if to.exists() {
        bail!("{} is there already: name a directory that is not", to.display());
    }
    // A copy that was interrupted must not look like a whole one.
    let unfinished = to.with_extension("unfinished");
    if unfinished.exists() {
        std::fs::remove_dir_all(&unfinished).with_context(|| format!("cannot remove {}", unfinished.display()))?;
    }
    private_dir(&unfinished.join("store"))?;
    settle(&from.join("store"))?;
    let store = unfinished.join("store/store.db");
    // SQLite takes an empty file as it is, with its mode.
    private_file(&store).with_context(|| format!("cannot make {}", store.display()))?;
    SqliteStore::copy(&from.join("store"), &store)?;
    copy_dir(&from.join("pki"), &unfinished.join("pki"))?;
    std::fs::rename(&unfinished, to).with_context(|| format!("cannot make {}", to.display()))?;
    File::open(to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))?.sync_all()?;
    let keys = if from.join("pki/secrets.key").exists() {
        ""
    } else {
        " The keys that seal Secrets lie elsewhere (--secrets-key-file): copy them, too."
    };
    say(&format!(
        "{} has the store and the keys of {}. To restore: selvedge center --data-dir with a copy of it.{keys}\n",
        to.display(),
        from.display()
    ))
}

/// Opens and closes a store that nobody uses, so that its file has what only its journal had after a crash.
fn settle(store: &Path) -> Result<()> {
    if SqliteStore::is_in_use(store) {
        return Ok(());
    }
    center::runtime()?.block_on(async {
        let store = SqliteStore::open(store, SqliteOptions::default())?;
        store.close().await;
        Ok(())
    })
}

fn private_dir(path: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot make {}", path.display()))
}

fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Copies a directory of keys; only its owner can read the copy.
fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    private_dir(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_dir(&from, &to)?;
            continue;
        }
        let copy = || -> io::Result<()> {
            let mut file = private_file(&to)?;
            io::copy(&mut File::open(&from)?, &mut file)?;
            file.sync_all()
        };
        copy().with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    }
    Ok(())
}
