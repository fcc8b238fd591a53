//! Where containers' logs lie: by pod and container, as a kubelet's. They outlive the pod for a while.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use k8s_openapi::api::core::v1::Pod;

use crate::{runtime::ContainerId, spec};

/// How long the logs of a pod that is gone are kept, and of how many.
const KEPT: Duration = Duration::from_secs(3600);
const MOST: usize = 200;

pub fn of(data: &Path, pod: &Pod, id: &ContainerId) -> PathBuf {
    dir(data, pod).join(&id.name).join(format!("{}.log", id.attempt))
}

pub fn dir(data: &Path, pod: &Pod) -> PathBuf {
    data.join("logs").join(format!("{}_{}_{}", spec::namespace(pod), spec::name(pod), spec::uid(pod)))
}

/// A run that is forgotten has no log any more.
pub fn forget(log: &Path) {
    let _ = fs::remove_file(log);
    for number in 1..10 {
        let mut rotated = log.as_os_str().to_owned();
        rotated.push(format!(".{number}"));
        if fs::remove_file(PathBuf::from(rotated)).is_err() {
            break;
        }
    }
}

/// Removes the logs of pods that are long gone.
pub fn prune(data: &Path, known: &BTreeSet<String>) {
    let Ok(entries) = fs::read_dir(data.join("logs")) else { return };
    let mut gone: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let uid = name.to_str().and_then(|name| name.rsplit_once('_')).map(|(_, uid)| uid);
        if uid.is_none_or(|uid| known.contains(uid)) {
            continue;
        }
        let changed = newest(&entry.path()).unwrap_or(SystemTime::UNIX_EPOCH);
        gone.push((changed, entry.path()));
    }
    gone.sort();
    let too_many = gone.len().saturating_sub(MOST);
    let now = SystemTime::now();
    for (index, (changed, path)) in gone.into_iter().enumerate() {
        let is_old = now.duration_since(changed).is_ok_and(|age| age > KEPT);
        if is_old || index < too_many {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// When something was last written there.
fn newest(dir: &Path) -> Option<SystemTime> {
    let files =
        fs::read_dir(dir).ok()?.flatten().filter_map(|entry| fs::read_dir(entry.path()).ok()).flatten().flatten();
    files.filter_map(|file| file.metadata().ok()?.modified().ok()).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_the_living_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["shop_web_u1", "shop_web_u2", "shop_web_u3"] {
            fs::create_dir_all(dir.path().join("logs").join(name).join("a")).unwrap();
        }
        fs::write(dir.path().join("logs/shop_web_u2/a/0.log"), "x").unwrap();
        prune(dir.path(), &BTreeSet::from(["u1".to_owned()]));
        let is_there = |name: &str| dir.path().join("logs").join(name).exists();
        // The second was written to a moment ago, the third never.
        assert_eq!((is_there("shop_web_u1"), is_there("shop_web_u2"), is_there("shop_web_u3")), (true, true, false));
    }
}
