//! Removes what containers leave behind, also what they have closed to themselves.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

/// Removes a directory with all that is in it. No link is followed.
pub fn discard(dir: &Path) -> io::Result<()> {
    let removed = match fs::remove_dir_all(dir) {
        // Root needs nobody's leave: what it cannot remove does not become removable by this.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root() => {
            unlock(dir);
            fs::remove_dir_all(dir)
        }
        removed => removed,
    };
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Directories that one may not write in keep what is in them: caches of programs are often like that.
fn unlock(dir: &Path) {
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        let _ = fs::set_permissions(&dir, fs::Permissions::from_mode(0o700));
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        left.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_closed_is_removed_too() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, outside) = (dir.path().join("volume"), dir.path().join("outside"));
        fs::create_dir_all(volume.join("cache/deep")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(volume.join("cache/deep/x"), "x").unwrap();
        symlink(&outside, volume.join("cache/link")).unwrap();
        for (path, mode) in
            [(volume.join("cache/deep"), 0o555), (volume.join("cache"), 0o000), (outside.clone(), 0o555)]
        {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        unlock(&volume);
        assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o555);
        discard(&volume).unwrap();
        discard(&volume).unwrap();
        assert!(!volume.exists() && outside.exists());
    }
}
