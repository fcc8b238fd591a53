//! A container's root directory: what it mounts is below it, and `SELVEDGE_ROOT` says where that is.
//!
//! There is no file system of an image, and processes see the machine's own. Where they can have a view of their own ([`crate::view`]), a link
//! below the root leads to where things are mounted. Where not, it leads to what would be mounted, which needs no rights.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use pods::runtime::Mount;

use crate::view::absolute;

/// Where a path that the container sees is below its root.
pub fn below(root: &Path, path: &Path) -> PathBuf {
    absolute(path).components().skip(1).fold(root.to_owned(), |found, part| found.join(part))
}

/// Where links lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// To what is mounted.
    Outside,
    /// To where it is mounted, in the container's own view.
    Inside,
}

/// Makes the root as the mounts say, in place of what was there.
pub fn make(root: &Path, mounts: &[Mount], links: Links) -> io::Result<()> {
    let said = |what: &Path, error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", what.display()));
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(said(root, error)),
        _ => {}
    }
    fs::create_dir_all(root).map_err(|error| said(root, error))?;
    // Outer ones first, so that what is mounted within another is made within it.
    let mut mounts: Vec<(PathBuf, &Mount)> =
        mounts.iter().map(|mount| (below(root, Path::new(&mount.at)), mount)).collect();
    mounts.sort_by_key(|(at, _)| at.components().count());
    for (at, mount) in mounts {
        if at == root {
            let message = format!("nothing can be mounted at {:?}", mount.at);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        // What is mounted within another is found behind that one's link.
        if links == Links::Inside && at.ancestors().skip(1).any(Path::is_symlink) {
            continue;
        }
        if let Some(directory) = at.parent() {
            fs::create_dir_all(directory).map_err(|error| said(directory, error))?;
        }
        let target = if links == Links::Inside { absolute(Path::new(&mount.at)) } else { mount.from.clone() };
        match symlink(&target, &at) {
            // Within a volume that stays when the container is started again, the link may be there already.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && fs::read_link(&at).is_ok() => {
                fs::remove_file(&at).and_then(|()| symlink(&target, &at)).map_err(|error| said(&at, error))?;
            }
            // And a kubelet's mounts hide what is below them. An empty directory is what people make for that.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_dir(&at).and_then(|()| symlink(&target, &at)).map_err(|error| said(&at, error))?;
            }
            done => done.map_err(|error| said(&at, error))?,
        }
    }
    Ok(())
}

/// Where a container starts: in a directory that it mounts, or that this machine has, or that is made for it.
pub fn working_dir(root: &Path, given: Option<&str>) -> io::Result<PathBuf> {
    let Some(given) = given.filter(|given| !given.is_empty() && *given != "/") else { return Ok(root.to_owned()) };
    let own = below(root, Path::new(given));
    let theirs = Path::new("/").join(given);
    if own.is_dir() {
        return Ok(own);
    }
    if theirs.is_dir() {
        return Ok(theirs);
    }
    fs::create_dir_all(&own).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", own.display())))?;
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(from: &Path, at: &str) -> Mount {
        Mount { from: from.to_owned(), at: at.to_owned(), read_only: false }
    }

    #[test]
    fn nothing_leads_out() {
        let root = Path::new("/r");
        for (path, expected) in [
            ("/etc/config", "/r/etc/config"),
            ("etc", "/r/etc"),
            ("/", "/r"),
            ("/../../etc", "/r/etc"),
            ("/a/../../b", "/r/b"),
            ("/a/./b/", "/r/a/b"),
        ] {
            assert_eq!(below(root, Path::new(path)), Path::new(expected), "{path}");
        }
    }

    #[test]
    fn mounts_are_there_also_within_each_other_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let (data, config, file) = (dir.path().join("data"), dir.path().join("config"), dir.path().join("file"));
        fs::create_dir(&data).unwrap();
        fs::create_dir(&config).unwrap();
        fs::write(config.join("a"), "from config").unwrap();
        fs::write(&file, "a file").unwrap();
        let root = dir.path().join("roots/pod/c");
        let mounts = [mount(&config, "/data/etc"), mount(&data, "/data"), mount(&file, "/usr/share/x/index.html")];
        for _ in 0..2 {
            make(&root, &mounts, Links::Outside).unwrap();
            assert_eq!(fs::read_to_string(root.join("data/etc/a")).unwrap(), "from config");
            assert_eq!(fs::read_to_string(root.join("usr/share/x/index.html")).unwrap(), "a file");
        }
        make(&root, &mounts, Links::Inside).unwrap();
        assert_eq!(fs::read_link(root.join("data")).unwrap(), Path::new("/data"));
        assert_eq!(fs::read_link(root.join("usr/share/x/index.html")).unwrap(), Path::new("/usr/share/x/index.html"));
        make(&root, &mounts, Links::Outside).unwrap();
        fs::write(root.join("data/new"), "x").unwrap();
        make(&root, &[], Links::Outside).unwrap();
        assert!(data.join("new").exists(), "removing a root leaves what was mounted");
        assert!(make(&root, &[mount(&data, "/")], Links::Outside).is_err());
    }

    #[test]
    fn where_it_starts() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        make(&root, &[mount(dir.path(), "/work")], Links::Outside).unwrap();
        for (given, expected) in [
            (None, root.clone()),
            (Some("/"), root.clone()),
            (Some("/work"), root.join("work")),
            (Some("/usr"), "/usr".into()),
            (Some("/not/there/yet"), root.join("not/there/yet")),
        ] {
            let found = working_dir(&root, given).unwrap();
            assert_eq!(found, expected);
            assert!(found.is_dir());
        }
    }
}
