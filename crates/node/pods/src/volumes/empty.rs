//! Directories of a pod's own: made once, and from then on its containers'.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use super::{discard, memory::Memory, owners};

/// Makes a directory that whoever sees it may write in. One that is there is left as its containers have it.
pub fn make(dir: &Path, group: Option<u32>) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    // Beside its place, so that one that is there is right.
    let new = beside(dir)?;
    fs::create_dir(&new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o777))?;
    if let Some(group) = group {
        owners::give(&new, group)?;
    }
    fs::rename(new, dir)
}

/// Makes one in memory, and a link to it. After the machine was started again the link leads nowhere, and it is made anew.
pub fn make_in(memory: &Memory, pod: &str, limit: Option<u64>, link: &Path, group: Option<u32>) -> io::Result<()> {
    if link.is_dir() {
        return Ok(());
    }
    let real = memory.make(pod, limit)?.join(link.file_name().unwrap_or_default());
    make(&real, group)?;
    let new = beside(link)?;
    symlink(real, &new)?;
    fs::rename(new, link)
}

/// As [`make_in`], for files that must not be on a disk. A plain directory is there if an older version made it, or
/// if there was no memory then: it is removed, unless containers have it mounted and would lose what they read.
pub fn move_in(memory: &Memory, pod: &str, link: &Path, has_readers: bool) -> io::Result<()> {
    let is_plain = fs::symlink_metadata(link).is_ok_and(|found| found.is_dir());
    if is_plain && !has_readers {
        // There has to be memory for what comes in its place.
        memory.make(pod, None)?;
        discard(link)?;
    }
    make_in(memory, pod, None, link, None)
}

/// Removes a link to a directory in memory that is no longer there, so that a directory on disk can take its place.
pub fn forget_lost(link: &Path) -> io::Result<()> {
    if link.is_symlink() && !link.exists() { fs::remove_file(link) } else { Ok(()) }
}

/// A name that no volume has, with nothing there.
fn beside(path: &Path) -> io::Result<PathBuf> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let new = path.with_file_name(format!("..{name}"));
    match fs::remove_dir_all(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn what_containers_did_to_it_stays() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volumes/work");
        fs::create_dir_all(dir.path().join("volumes/..work/half")).unwrap();
        make(&volume, None).unwrap();
        assert_eq!((mode(&volume), fs::read_dir(&volume).unwrap().count()), (0o777, 0));
        fs::set_permissions(&volume, fs::Permissions::from_mode(0o700)).unwrap();
        make(&volume, None).unwrap();
        assert_eq!(mode(&volume), 0o700);
        let own = rustix::process::getegid().as_raw();
        make(&dir.path().join("volumes/group"), Some(own)).unwrap();
        assert_eq!(mode(&dir.path().join("volumes/group")), 0o2777);
    }

    #[test]
    fn in_memory_it_is_made_again_when_that_was_lost() {
        let Ok(shared) = tempfile::tempdir_in("/dev/shm") else { return };
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::below(shared.path());
        let link = dir.path().join("volumes/fast");
        for _ in 0..2 {
            make_in(&memory, "u1", None, &link, None).unwrap();
            assert!(link.is_symlink() && link.canonicalize().unwrap().starts_with(shared.path()));
            assert_eq!(mode(&link), 0o777);
            fs::write(link.join("x"), vec![1; 100_000]).unwrap();
            assert!(crate::volumes::used(&link, 1 << 20) >= 100_000);
            make_in(&memory, "u1", None, &link, None).unwrap();
            assert!(link.join("x").exists());
            memory.remove("u1").unwrap();
        }
        // A plain directory that there was before stays.
        let plain = dir.path().join("volumes/plain");
        fs::create_dir(&plain).unwrap();
        make_in(&memory, "u1", None, &plain, None).unwrap();
        assert!(!plain.is_symlink());
        // What was lost can be on disk from then on.
        assert!(!link.exists() && link.is_symlink());
        forget_lost(&link).unwrap();
        forget_lost(&link).unwrap();
        make(&link, None).unwrap();
        assert!(link.is_dir() && !link.is_symlink());
    }

    #[test]
    fn what_must_not_be_on_disk_leaves_it_once_nobody_reads_it() {
        let Ok(shared) = tempfile::tempdir_in("/dev/shm") else { return };
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::below(shared.path());
        let place = dir.path().join("volumes/secret");
        fs::create_dir_all(place.join("..0")).unwrap();
        fs::write(place.join("..0/password"), "hunter").unwrap();
        move_in(&memory, "u1", &place, true).unwrap();
        assert!(!place.is_symlink() && place.join("..0/password").exists());
        move_in(&memory, "u1", &place, false).unwrap();
        assert!(place.is_symlink() && place.canonicalize().unwrap().starts_with(shared.path()));
        assert!(!place.join("..0").exists());
        fs::write(place.join("password"), "hunter").unwrap();
        move_in(&memory, "u1", &place, false).unwrap();
        assert!(place.join("password").exists());
        // Without memory nothing is lost.
        let nowhere = Memory::below(dir.path());
        let other = dir.path().join("volumes/other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("password"), "hunter").unwrap();
        assert!(move_in(&nowhere, "u1", &other, false).is_err());
        assert!(other.join("password").exists());
    }
}
