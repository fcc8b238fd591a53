//! Files that hold secrets: written whole or not at all, and readable by their owner only.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    time::SystemTime,
};

use super::Error;

/// Makes a directory that only its owner can enter; one that exists is fine.
pub(super) fn make_dir(path: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| Error::File { what: "make the directory", path: path.to_owned(), source })
}

/// The file's text, or `None` if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::File { what: "read", path: path.to_owned(), source }),
    }
}

/// Replaces a file as a whole and durably: after a crash there is either the old content or the new.
pub(super) fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    put(path, content, true)
}

/// Replaces a file as a whole. After a power cut it may be empty or old: only for what is made anew when it is.
pub(super) fn write_disposable(path: &Path, content: &[u8]) -> Result<(), Error> {
    put(path, content, false)
}

/// Gives a file the present time if it has this content and is its owner's alone. `false`: it is to be written.
pub(super) fn touch(path: &Path, content: &[u8]) -> bool {
    let is_right = || -> io::Result<bool> {
        let file = OpenOptions::new().write(true).open(path)?;
        let is_private = file.metadata()?.permissions().mode() & 0o777 == 0o600;
        if !is_private || fs::read(path)? != content {
            return Ok(false);
        }
        file.set_modified(SystemTime::now())?;
        Ok(true)
    };
    is_right().unwrap_or(false)
}

fn put(path: &Path, content: &[u8], durable: bool) -> Result<(), Error> {
    let beside = path.with_extension("new");
    let replace = || {
        // Left over from a crash, it may have other permissions.
        let _ = fs::remove_file(&beside);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(content)?;
        if durable {
            file.sync_all()?;
        }
        fs::rename(&beside, path)?;
        match path.parent() {
            Some(dir) if durable => File::open(dir)?.sync_all(),
            _ => Ok(()),
        }
    };
    replace()
        // Half a file would only take room on a full disk.
        .inspect_err(|_| _ = fs::remove_file(&beside))
        .map_err(|source| Error::File { what: "write", path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_private_and_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        make_dir(&inner).unwrap();
        make_dir(&inner).unwrap();
        assert_eq!(fs::metadata(&inner).unwrap().permissions().mode() & 0o777, 0o700);
        let path = inner.join("x.key");
        assert_eq!(read(&path).unwrap(), None);
        write(&path, b"one").unwrap();
        write_disposable(&path, b"two").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 1);
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        assert!(touch(&path, b"two") && !touch(&path, b"three") && !touch(&inner.join("none"), b""));
        assert!(fs::metadata(&path).unwrap().modified().unwrap() >= before);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!touch(&path, b"two"), "others can read it");
        let error = write(&dir.path().join("none/x"), b"").unwrap_err().to_string();
        assert!(error.starts_with("cannot write "), "{error}");
    }
}
