//! What containers do not see of this machine: the data directories of centers and edges, with the keys, Secrets and
//! objects in them.
//!
//! Every center and edge leaves a link to its data directory in a directory of its user, so that edges of this user
//! know of all of them. A container could otherwise read the keys of a center on the same machine.

use std::{
    fs, io,
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt, fs::symlink},
    path::{Path, PathBuf},
};

/// Root's list of data directories.
const OF_ROOT: &str = "/var/lib/selvedge";
const LIST: &str = "data-directories";

/// Where this user's list is. None for a user without a home.
fn home() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(OF_ROOT.into());
    }
    let dir = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let state = dir("XDG_STATE_HOME").or_else(|| dir("HOME").map(|home| home.join(".local/state")))?;
    (state != Path::new("/.local/state")).then(|| state.join("selvedge"))
}

/// Says that a data directory is there. It stays on the list as long as the directory exists.
pub fn register(data_dir: &Path) -> io::Result<()> {
    let Some(list) = home().map(|home| home.join(LIST)) else { return Ok(()) };
    add(&list, data_dir)
}

fn add(list: &Path, data_dir: &Path) -> io::Result<()> {
    let data_dir = fs::canonicalize(data_dir)?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(list)?;
    for entry in fs::read_dir(list)?.flatten() {
        if fs::metadata(entry.path()).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            let _ = fs::remove_file(entry.path());
        }
    }
    match symlink(&data_dir, list.join(name_of(&data_dir))) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// FNV-1a: short, and the same in every version of this program.
fn name_of(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes().iter();
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

/// The directories that a container of an edge does not see, the edge's own data directory first.
pub fn from_containers(data_dir: &Path) -> Vec<PathBuf> {
    let mut all = vec![data_dir.to_owned()];
    all.push(format!("/dev/shm/selvedge-{}", rustix::process::geteuid().as_raw()).into());
    if let Some(home) = home() {
        all.extend(listed(&home.join(LIST)));
        // The list itself, lest a container takes something off it.
        all.push(home);
    }
    all.dedup();
    without_inner(all)
}

fn listed(list: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(list).into_iter().flatten().flatten();
    entries.filter_map(|entry| fs::read_link(entry.path()).ok()).filter(|path| path.is_absolute()).collect()
}

/// What is inside of another hidden directory is hidden with it.
fn without_inner(all: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut kept: Vec<PathBuf> = Vec::with_capacity(all.len());
    for (at, path) in all.iter().enumerate() {
        // Equal ones are hidden once.
        let hides = |other: usize, outer: &Path| path.starts_with(outer) && (path != outer || other < at);
        let mut outers = all.iter().enumerate().filter(|(other, outer)| *other != at && *outer != Path::new("/"));
        let is_inner = outers.any(|(other, outer)| hides(other, outer));
        // The edge's own is always named, because some of it is shown.
        if path != Path::new("/") && (at == 0 || !is_inner) {
            kept.push(path.clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_listed_while_they_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let (list, one, two) = (dir.path().join("list"), dir.path().join("one"), dir.path().join("two"));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&two).unwrap();
        add(&list, &one).unwrap();
        add(&list, &one).unwrap();
        assert_eq!(listed(&list), std::slice::from_ref(&one));
        fs::remove_dir(&one).unwrap();
        add(&list, &two).unwrap();
        assert_eq!(listed(&list), [two]);
        assert!(add(&list, &one).is_err(), "it is not there");
    }

    #[test]
    fn inner_directories_are_hidden_with_outer_ones() {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        for (all, expected) in [
            (&["/d/edge", "/d/center", "/d/edge"][..], &["/d/edge", "/d/center"][..]),
            (&["/d/edge", "/d/edge/inner", "/x"], &["/d/edge", "/x"]),
            (&["/d/edge", "/d", "/"], &["/d/edge", "/d"]),
        ] {
            assert_eq!(without_inner(paths(all)), paths(expected), "{all:?}");
        }
    }
}
