//! Directories of a pod's own: made once, and from then on its containers'.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use super::{memory::Memory, owners};

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
    }
}
