//! Directories in memory, for whoever asks for it: below `/dev/shm`, where nothing has to be mounted.
//!
//! Everybody on the machine may write there, so what is ours has to be seen to be ours.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Component, Path, PathBuf},
};

use super::discard::discard;

const SHARED: &str = "/dev/shm";
/// How the kernel calls a file system in memory.
const TMPFS: u64 = 0x0102_1994;

/// Where the pods of this user have what they keep in memory: `<home>/<pod>/<volume>`.
#[derive(Clone, Debug)]
pub struct Memory {
    home: PathBuf,
}

impl Memory {
    pub fn of_machine() -> Self {
        Self::below(Path::new(SHARED))
    }

    pub(super) fn below(shared: &Path) -> Self {
        Self { home: shared.join(format!("selvedge-{}", rustix::process::geteuid().as_raw())) }
    }

    /// The directory of a pod, made if there is none yet. An error where there is no memory to be had, or not so much.
    pub fn make(&self, pod: &str, at_most: Option<u64>) -> io::Result<PathBuf> {
        let shared = self.home.parent().unwrap_or(&self.home);
        let found = rustix::fs::statfs(shared)?;
        let is_tmpfs = u64::try_from(found.f_type).is_ok_and(|kind| kind == TMPFS);
        let size = u64::try_from(found.f_bsize).unwrap_or(0).saturating_mul(found.f_blocks);
        if !is_tmpfs || at_most.is_some_and(|bytes| bytes > size) {
            return Err(io::Error::other(format!("{} is not in memory, or too small", shared.display())));
        }
        let dir = self.of_pod(pod)?;
        let made = own(&self.home).and_then(|()| own(&dir));
        match made {
            // Another pod was the last to go, just now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => own(&self.home).and_then(|()| own(&dir))?,
            made => made?,
        }
        Ok(dir)
    }

    /// Forgets all that a pod has. No link is followed on the way, nor in there.
    pub fn remove(&self, pod: &str) -> io::Result<()> {
        let dir = self.of_pod(pod)?;
        if !is_ours(&self.home) {
            return Ok(());
        }
        discard(&dir)?;
        // Only while it is empty.
        let _ = fs::remove_dir(&self.home);
        Ok(())
    }

    fn of_pod(&self, pod: &str) -> io::Result<PathBuf> {
        let mut parts = Path::new(pod).components();
        match (parts.next(), parts.next()) {
            (Some(Component::Normal(name)), None) => Ok(self.home.join(name)),
            _ => Err(io::Error::other(format!("{pod:?} is no uid"))),
        }
    }
}

/// Makes a directory, or finds that it is ours.
fn own(dir: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ if is_ours(dir) => Ok(()),
        _ => Err(io::Error::other(format!("{} is another's", dir.display()))),
    }
}

/// A directory that this user made, and nobody else can get into.
fn is_ours(dir: &Path) -> bool {
    fs::symlink_metadata(dir).is_ok_and(|found| {
        found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.permissions().mode() & 0o077 == 0
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_pods_memory_is_its_own_and_goes_with_it() {
        let Ok(dir) = tempfile::tempdir_in(SHARED) else { return };
        let memory = Memory::below(dir.path());
        let made = memory.make("u1", Some(1)).unwrap();
        assert!(is_ours(&made) && is_ours(&memory.home) && made.starts_with(dir.path()));
        assert!(memory.make("u2", Some(u64::MAX)).is_err());
        assert!(memory.make("../u2", None).is_err() && memory.remove("..").is_err());
        fs::create_dir_all(dir.path().join("outside/x")).unwrap();
        symlink(dir.path().join("outside"), made.join("link")).unwrap();
        memory.make("u2", None).unwrap();
        memory.remove("u1").unwrap();
        memory.remove("u1").unwrap();
        assert!(!made.exists() && memory.home.join("u2").is_dir() && dir.path().join("outside/x").is_dir());
        memory.remove("u2").unwrap();
        assert!(!memory.home.exists());
    }

    #[test]
    fn what_another_has_put_there_is_not_taken() {
        let Ok(dir) = tempfile::tempdir_in(SHARED) else { return };
        let memory = Memory::below(dir.path());
        let theirs = dir.path().join("theirs");
        fs::create_dir_all(theirs.join("u1/precious")).unwrap();
        symlink(&theirs, &memory.home).unwrap();
        assert!(memory.make("u1", None).is_err());
        memory.remove("u1").unwrap();
        assert!(theirs.join("u1/precious").is_dir());
        fs::remove_file(&memory.home).unwrap();
        fs::create_dir(&memory.home).unwrap();
        fs::set_permissions(&memory.home, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(memory.make("u1", None).is_err());
    }
}
