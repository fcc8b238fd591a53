//! Files that change all at once: they lie in a directory that a link points to, and the link is replaced.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Component, Path, PathBuf},
};

use super::{Content, content::File, owners::READ_DIRECTORY};

const LINK: &str = "..data";

/// Makes a directory hold exactly this, for a group if it is for one. False if it did already.
pub fn write(dir: &Path, content: &Content, group: Option<u32>) -> io::Result<bool> {
    if is_same(dir, content) {
        return Ok(false);
    }
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent)?;
    }
    make(dir, group)?;
    let new = next(dir)?;
    make(&dir.join(&new), group)?;
    for (path, file) in content {
        let mut above = dir.join(&new);
        for part in Path::new(path).parent().into_iter().flat_map(Path::components) {
            above.push(part);
            make(&above, group)?;
        }
        let at = dir.join(&new).join(path);
        fs::write(&at, &file.bytes)?;
        if file.owner.or(group).is_some() {
            chown(&at, file.owner, group)?;
        }
        fs::set_permissions(&at, fs::Permissions::from_mode(file.mode))?;
    }
    let old = fs::read_link(dir.join(LINK)).ok();
    let passing = dir.join("..data_tmp");
    match fs::remove_file(&passing) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    symlink(&new, &passing)?;
    fs::rename(&passing, dir.join(LINK))?;
    show(dir, content)?;
    if let Some(old) = old.filter(|old| old.components().count() == 1) {
        let _ = fs::remove_dir_all(dir.join(old));
    }
    Ok(true)
}

/// A directory that everybody who sees it may read, whatever else the agent lets others see.
fn make(dir: &Path, group: Option<u32>) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if group.is_some() {
        chown(dir, None, group)?;
    }
    let mode = if group.is_some() { 0o755 | READ_DIRECTORY } else { 0o755 };
    fs::set_permissions(dir, fs::Permissions::from_mode(mode))
}

/// A directory that was not there before.
fn next(dir: &Path) -> io::Result<PathBuf> {
    for number in 0..u32::MAX {
        let name = PathBuf::from(format!("..{number}"));
        match fs::create_dir(dir.join(&name)) {
            Ok(()) => return Ok(name),
            // Left by somebody who was killed before it was used, unless it is in use.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::read_link(dir.join(LINK)).ok().as_deref() != Some(&name) {
                    let _ = fs::remove_dir_all(dir.join(&name));
                }
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("no name is left for a new directory"))
}

/// What people see: a link for each first part of a path.
fn show(dir: &Path, content: &Content) -> io::Result<()> {
    let tops: Vec<&str> = content.keys().filter_map(|path| path.split('/').next()).collect();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with("..") || tops.contains(&name));
        if !is_ours {
            let _ = fs::remove_file(dir.join(name));
        }
    }
    for top in tops {
        match symlink(Path::new(LINK).join(top), dir.join(top)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn is_same(dir: &Path, content: &Content) -> bool {
    let data = dir.join(LINK);
    let is_there = |(path, file): (&String, &File)| {
        let at = data.join(path);
        let is_right = fs::metadata(&at).is_ok_and(|known| {
            known.mode() & 0o777 == file.mode && file.owner.is_none_or(|owner| owner == known.uid())
        });
        is_right && fs::read(&at).is_ok_and(|known| known == file.bytes)
    };
    data.is_dir() && count(&data, 0) == content.len() && content.iter().all(is_there)
}

fn count(dir: &Path, depth: u32) -> usize {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let entries = entries.flatten();
    entries.map(|entry| if entry.path().is_dir() && depth < 32 { count(&entry.path(), depth + 1) } else { 1 }).sum()
}

/// A path below another that stays there once links are followed. What is not there is made, as open as the volume is.
pub fn resolve_inside(base: &Path, sub: &str) -> io::Result<PathBuf> {
    let base = base.canonicalize()?;
    let mode = fs::metadata(&base)?.mode() & 0o7777;
    let mut path = base.clone();
    for part in Path::new(sub).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => continue,
            _ => return Err(io::Error::other(format!("the subPath {sub:?} does not stay in its volume"))),
        }
        if fs::symlink_metadata(&path).is_err() {
            fs::create_dir(&path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        }
        // Before anything is made in there: a container may have put a link.
        path = path.canonicalize()?;
        if !path.starts_with(&base) {
            return Err(io::Error::other(format!("the subPath {sub:?} leads out of its volume")));
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(files: &[(&str, &str)]) -> Content {
        let file = |text: &str| File { bytes: text.as_bytes().to_vec(), mode: 0o640, owner: None };
        files.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect()
    }

    fn shown(dir: &Path) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if !name.starts_with("..") {
                let text = fs::read_to_string(entry.path()).unwrap_or_else(|_| "a directory".into());
                found.push((name, text));
            }
        }
        found.sort();
        found
    }

    #[test]
    fn changes_all_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert!(write(dir, &content(&[("a", "1"), ("b/c", "2")]), None).unwrap());
        assert_eq!(shown(dir), [("a".into(), "1".into()), ("b".into(), "a directory".into())]);
        assert_eq!(fs::read_to_string(dir.join("b/c")).unwrap(), "2");
        assert_eq!(fs::metadata(dir.join("a")).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(!write(dir, &content(&[("a", "1"), ("b/c", "2")]), None).unwrap());
        let before = fs::read_link(dir.join(LINK)).unwrap();
        assert!(write(dir, &content(&[("a", "3"), ("d", "4")]), None).unwrap());
        assert_eq!(shown(dir), [("a".into(), "3".into()), ("d".into(), "4".into())]);
        assert!(!dir.join(before).exists());
        assert!(write(dir, &content(&[]), None).unwrap());
        assert_eq!(shown(dir), []);
    }

    #[test]
    fn a_file_for_another_user_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let mut content = content(&[("token", "1")]);
        assert!(write(dir.path(), &content, None).unwrap());
        content.get_mut("token").unwrap().owner = Some(own);
        assert!(!write(dir.path(), &content, None).unwrap());
        content.get_mut("token").unwrap().owner = Some(4712);
        // Only root can.
        assert_eq!(write(dir.path(), &content, None).is_ok(), own == 0);
        let owner = fs::metadata(dir.path().join("token")).unwrap().uid();
        assert_eq!(owner, if own == 0 { 4712 } else { own });
    }

    #[test]
    fn who_was_killed_in_between_leaves_nothing_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(dir, &content(&[("a", "1")]), None).unwrap();
        fs::create_dir(dir.join("..1")).unwrap();
        fs::write(dir.join("..1/half"), "x").unwrap();
        symlink("..1", dir.join("..data_tmp")).unwrap();
        assert!(write(dir, &content(&[("a", "2")]), None).unwrap());
        assert_eq!(shown(dir), [("a".into(), "2".into())]);
        assert!(!dir.join("half").exists());
    }

    #[test]
    fn a_sub_path_stays_inside() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("volume");
        fs::create_dir(&base).unwrap();
        fs::write(dir.path().join("secret"), "x").unwrap();
        symlink("../secret", base.join("out")).unwrap();
        assert!(resolve_inside(&base, "new/dir").unwrap().is_dir());
        assert!(resolve_inside(&base, "../secret").is_err());
        assert!(resolve_inside(&base, "/etc").is_err());
        assert!(resolve_inside(&base, "out").is_err());
        fs::create_dir(dir.path().join("theirs")).unwrap();
        symlink("../theirs", base.join("way")).unwrap();
        assert!(resolve_inside(&base, "way/new").is_err());
        assert!(!dir.path().join("theirs/new").exists(), "nothing is made where a link of a container leads");
    }

    #[test]
    fn what_a_sub_path_makes_is_as_open_as_its_volume() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o2777)).unwrap();
        resolve_inside(dir.path(), "a/b").unwrap();
        for made in ["a", "a/b"] {
            assert_eq!(fs::metadata(dir.path().join(made)).unwrap().mode() & 0o7777, 0o2777);
        }
    }

    #[test]
    fn a_group_may_read_and_those_below_too() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volumes/v");
        let own = rustix::process::getegid().as_raw();
        let group = if rustix::process::geteuid().is_root() { 4711 } else { own };
        write(&volume, &content(&[("a/b/c", "1"), ("d", "2")]), Some(group)).unwrap();
        let seen = |path: &str| {
            let found = fs::metadata(volume.join(path)).unwrap();
            (found.gid(), found.mode() & 0o7777)
        };
        for path in ["", "..data", "a", "a/b"] {
            assert_eq!(seen(path), (group, 0o2755), "{path}");
        }
        assert_eq!((seen("d"), seen("a/b/c")), ((group, 0o640), (group, 0o640)));
        write(&dir.path().join("volumes/w"), &content(&[("d", "2")]), None).unwrap();
        assert_eq!(fs::metadata(dir.path().join("volumes/w")).unwrap().mode() & 0o7777, 0o755);
    }
}
