//! Files that change all at once: they lie in a directory that a link points to, and the link is replaced.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};

use super::Content;

const LINK: &str = "..data";

/// Makes a directory hold exactly this. False if it did already.
pub fn write(dir: &Path, content: &Content) -> io::Result<bool> {
    fs::create_dir_all(dir)?;
    if is_same(dir, content) {
        return Ok(false);
    }
    let new = next(dir)?;
    for (path, (bytes, mode)) in content {
        let file = dir.join(&new).join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&file, bytes)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(*mode))?;
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

/// A directory that was not there before.
fn next(dir: &Path) -> io::Result<PathBuf> {
    for number in 0..u32::MAX {
        let name = PathBuf::from(format!("..{number}"));
        match fs::create_dir(dir.join(&name)) {
            Ok(()) => {
                fs::set_permissions(dir.join(&name), fs::Permissions::from_mode(0o755))?;
                return Ok(name);
            }
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
    let is_there = |(path, (bytes, mode)): (&String, &(Vec<u8>, u32))| {
        let file = data.join(path);
        let has_mode = fs::metadata(&file).is_ok_and(|known| known.permissions().mode() & 0o777 == *mode);
        has_mode && fs::read(&file).is_ok_and(|known| known == *bytes)
    };
    data.is_dir() && count(&data, 0) == content.len() && content.iter().all(is_there)
}

fn count(dir: &Path, depth: u32) -> usize {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let entries = entries.flatten();
    entries.map(|entry| if entry.path().is_dir() && depth < 32 { count(&entry.path(), depth + 1) } else { 1 }).sum()
}

/// Whether a path, below another, stays there once links are followed.
pub fn resolve_inside(base: &Path, sub: &str) -> io::Result<PathBuf> {
    let is_plain = Path::new(sub).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !is_plain {
        return Err(io::Error::other(format!("the subPath {sub:?} does not stay in its volume")));
    }
    let base = base.canonicalize()?;
    let path = base.join(sub);
    if fs::symlink_metadata(&path).is_err() {
        fs::create_dir_all(&path)?;
    }
    let path = path.canonicalize()?;
    if path.starts_with(&base) {
        Ok(path)
    } else {
        Err(io::Error::other(format!("the subPath {sub:?} leads out of its volume")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(files: &[(&str, &str)]) -> Content {
        files.iter().map(|(path, text)| ((*path).to_owned(), (text.as_bytes().to_vec(), 0o640))).collect()
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
        assert!(write(dir, &content(&[("a", "1"), ("b/c", "2")])).unwrap());
        assert_eq!(shown(dir), [("a".into(), "1".into()), ("b".into(), "a directory".into())]);
        assert_eq!(fs::read_to_string(dir.join("b/c")).unwrap(), "2");
        assert_eq!(fs::metadata(dir.join("a")).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(!write(dir, &content(&[("a", "1"), ("b/c", "2")])).unwrap());
        let before = fs::read_link(dir.join(LINK)).unwrap();
        assert!(write(dir, &content(&[("a", "3"), ("d", "4")])).unwrap());
        assert_eq!(shown(dir), [("a".into(), "3".into()), ("d".into(), "4".into())]);
        assert!(!dir.join(before).exists());
        assert!(write(dir, &content(&[])).unwrap());
        assert_eq!(shown(dir), []);
    }

    #[test]
    fn who_was_killed_in_between_leaves_nothing_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(dir, &content(&[("a", "1")])).unwrap();
        fs::create_dir(dir.join("..1")).unwrap();
        fs::write(dir.join("..1/half"), "x").unwrap();
        symlink("..1", dir.join("..data_tmp")).unwrap();
        assert!(write(dir, &content(&[("a", "2")])).unwrap());
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
    }
}
