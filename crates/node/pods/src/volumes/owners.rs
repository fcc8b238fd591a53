//! Whose the files of a pod's volumes are: the group that it asks for (`fsGroup`), and the user that all its containers run as.

use std::{
    ffi::CStr,
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::Path,
};

use k8s_openapi::api::core::v1::Pod;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, chownat, fchmod, fchown, fstat, open, openat};

use crate::spec;

/// What a group gets of a directory that it may write in: all of it, and what is made there is the group's too.
const DIRECTORY: u32 = 0o2770;
const FILE: u32 = 0o660;
/// What is made of objects is only read.
pub(super) const READ_DIRECTORY: u32 = 0o2550;
pub(super) const READ_FILE: u32 = 0o440;
/// What is deeper in a volume is left as it is: each level takes an open file of the agent.
const DEEPEST: u32 = 256;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    pub group: Option<u32>,
    /// The same for all containers, or nobody's: whose the pod's tokens are.
    pub user: Option<u32>,
    /// A claim's volume whose root is right already is right.
    pub looks_at_root_only: bool,
}

impl Owners {
    /// What a pod asks for. Who is not root cannot give files away, and need not: all containers are the same user.
    pub fn of(pod: &Pod, is_root: bool) -> Self {
        let Some(asked) = pod.spec.as_ref().filter(|_| is_root) else { return Self::default() };
        let whole = asked.security_context.as_ref();
        let group = whole.and_then(|whole| whole.fs_group).and_then(|group| u32::try_from(group).ok());
        let policy = whole.and_then(|whole| whole.fs_group_change_policy.as_deref());
        let mut users = spec::containers(asked).map(|(_, container)| spec::run_as_user(pod, &container));
        let first = users.next().flatten();
        let user = first.filter(|_| users.all(|user| user == first)).and_then(|user| u32::try_from(user).ok());
        Self { group, user, looks_at_root_only: policy == Some("OnRootMismatch") }
    }

    /// The mode of a token: only for those that are meant, where there is somebody.
    pub fn token_mode(&self, otherwise: u32) -> u32 {
        if self.group.or(self.user).is_some() { 0o600 } else { otherwise }
    }
}

/// Whether a volume's root is what [`give`] makes of it, which does that last.
pub fn is_given(dir: &Path, group: u32) -> bool {
    fs::metadata(dir)
        .is_ok_and(|root| root.is_dir() && root.gid() == group && root.permissions().mode() & DIRECTORY == DIRECTORY)
}

/// Gives all that is below a directory to a group, and the directory itself at the end.
///
/// Containers may be at work in there, so that no name is trusted to be what it was a moment ago: links are never followed. What cannot be given
/// is left, as a kubelet leaves it.
pub fn give(dir: &Path, group: u32) -> io::Result<()> {
    let root = open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    give_directory(&root, Gid::from_raw(group), 0);
    Ok(())
}

fn give_directory(dir: &OwnedFd, group: Gid, depth: u32) {
    let entries = if depth < DEEPEST { Dir::read_from(dir).ok() } else { None };
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let given = match openat(dir, name, flags, Mode::empty()) {
            Ok(below) => {
                give_directory(&below, group, depth + 1);
                Ok(())
            }
            Err(_) => give_other(dir, name, group),
        };
        if let Err(error) = given {
            tracing::debug!(%error, ?name, "a file of a volume could not be given to its group");
        }
    }
    let given = fchown(dir, None, Some(group)).and_then(|()| {
        let mode = fstat(dir)?.st_mode | DIRECTORY;
        fchmod(dir, Mode::from_raw_mode(mode & 0o7777))
    });
    if let Err(error) = given {
        tracing::debug!(%error, "a directory of a volume could not be given to its group");
    }
}

/// Without opening it, which would do something to a pipe or a device.
fn give_other(dir: impl AsFd, name: &CStr, group: Gid) -> io::Result<()> {
    let file = openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    chownat(&file, c"", None, Some(group), AtFlags::EMPTY_PATH)?;
    let mode = fstat(&file)?.st_mode;
    if FileType::from_raw_mode(mode) == FileType::Symlink {
        return Ok(());
    }
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::set_permissions(open, fs::Permissions::from_mode((mode | FILE) & 0o7777))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn whose_volumes_are() {
        let own = |user: i64| json!({"runAsUser": user});
        for (of_pod, containers, expected) in [
            (json!({}), json!([{}]), (None, None)),
            (json!({"fsGroup": 7}), json!([{}]), (Some(7), None)),
            (json!({"runAsUser": 5}), json!([{}, {}]), (None, Some(5))),
            (json!({"runAsUser": 5, "fsGroup": 7}), json!([{}]), (Some(7), Some(5))),
            (json!({"runAsUser": 5}), json!([{}, {"securityContext": own(6)}]), (None, None)),
            (json!({}), json!([{"securityContext": own(6)}, {}]), (None, None)),
            (json!({}), json!([{"securityContext": own(6)}, {"securityContext": own(6)}]), (None, Some(6))),
        ] {
            let mut containers: Vec<Value> = containers.as_array().unwrap().clone();
            for (index, container) in containers.iter_mut().enumerate() {
                container["name"] = index.to_string().into();
            }
            let pod: Pod = serde_json::from_value(json!({"spec": {
                "securityContext": of_pod, "initContainers": &containers[1..], "containers": &containers[..1],
            }}))
            .unwrap();
            let found = Owners::of(&pod, true);
            assert_eq!((found.group, found.user), expected, "{pod:?}");
            assert_eq!(found.token_mode(0o644), if expected == (None, None) { 0o644 } else { 0o600 });
            assert_eq!(Owners::of(&pod, false), Owners::default());
        }
    }

    #[test]
    fn links_are_given_and_not_followed() {
        // A group that this user may give things to: its own. Modes are seen all the same.
        let dir = tempfile::tempdir().unwrap();
        let (volume, outside) = (dir.path().join("volume"), dir.path().join("outside"));
        fs::create_dir_all(volume.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        for (path, mode) in [("outside/x", 0o600), ("volume/a/b/x", 0o600), ("volume/run", 0o755)] {
            fs::write(dir.path().join(path), "x").unwrap();
            fs::set_permissions(dir.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::set_permissions(volume.join("a"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&outside, volume.join("directory")).unwrap();
        symlink(outside.join("x"), volume.join("a/file")).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        let group = if is_root { 4711 } else { rustix::process::getegid().as_raw() };
        assert!(!is_given(&volume, group));
        give(&volume, group).unwrap();
        assert!(is_given(&volume, group) && !is_given(&volume, group + 1));
        let seen = |path: &str| {
            let found = fs::symlink_metadata(dir.path().join(path)).unwrap();
            (found.gid() == group, found.permissions().mode() & 0o7777)
        };
        assert_eq!(seen("volume/a"), (true, 0o2770));
        assert_eq!(seen("volume/a/b/x"), (true, 0o660));
        assert_eq!(seen("volume/run"), (true, 0o775));
        assert!(seen("volume/directory").0 && seen("volume/a/file").0);
        assert_eq!(seen("outside"), (!is_root, 0o700));
        assert_eq!(seen("outside/x"), (!is_root, 0o600));
    }
}
