//! Mounts what a container asks for, in a mount namespace that is its own already.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink},
    },
    path::{Path, PathBuf},
};

use pods::runtime::Mount;
use rustix::{
    fs::{OFlags, StatVfsMountFlags},
    mount::{
        MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change,
        mount_move, mount_remount, unmount,
    },
};

use super::{
    View, absolute,
    plan::{Plan, Point, plan},
};

/// An empty directory, which is put in the place of others.
const NOTHING: &str = "hidden";
/// For what a container writes beside what is bound there: a file of its pid, a socket.
const ROOM: &str = "size=16m,mode=0755";

pub fn build(view: &View, mounts: &[Mount]) -> Result<(), String> {
    // Opened before anything is mounted over it.
    let stage = open_path(&view.stage).map_err(|error| format!("cannot open {}: {error}", view.stage.display()))?;
    let sources = mounts.iter().map(source).collect::<Result<Vec<File>, String>>()?;
    let mut wanted: Vec<PathBuf> = mounts.iter().map(|mount| absolute(Path::new(&mount.at))).collect();
    wanted.extend(view.working_dir.clone());
    if wanted.iter().any(|path| path == Path::new("/")) {
        return Err("nothing can be mounted at \"/\"".into());
    }
    let Plan { anew, points } = plan(&wanted, |path| path.canonicalize().ok());
    let mut root = PathBuf::from("/");
    for dir in &anew {
        let failed = |error: io::Error| format!("cannot put {} together: {error}", dir.display());
        let made = points.iter().filter(|point| &point.base == dir).filter_map(|point| point.rest.components().next());
        let made: Vec<&Path> = made.map(|first| Path::new(first.as_os_str())).collect();
        put_together(dir, &view.stage, &made).map_err(failed)?;
        match dir == Path::new("/") {
            true => root = view.stage.clone(),
            false => mount_move(&view.stage, dir).map_err(|error| failed(error.into()))?,
        }
    }
    // What a container mounts comes later, and may be in a directory that is hidden.
    let hiding = hide(&root, view, &stage)?;
    for point in &points {
        let Some((mount, source)) = mounts.get(point.of).zip(sources.get(point.of)) else {
            make(&root, point, true).map_err(|error| format!("cannot make {}: {error}", point.place().display()))?;
            continue;
        };
        let failed = |error: io::Error| format!("cannot mount {} at {}: {error}", mount.from.display(), mount.at);
        let is_directory = source.metadata().map_err(failed)?.is_dir();
        let place = make(&root, point, is_directory).map_err(failed)?;
        let source = format!("/proc/self/fd/{}", source.as_raw_fd());
        mount_bind_recursive(source, place).map_err(|error| failed(error.into()))?;
    }
    for at in hiding {
        mount_remount(&at, MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV, "")
            .map_err(|error| format!("cannot make {} read-only: {error}", at.display()))?;
    }
    // At last, because what is mounted within one of them had to be made there.
    for point in &points {
        let Some(mount) = mounts.get(point.of).filter(|mount| mount.read_only) else { continue };
        keep_from_writing(&below(&root, &point.place()))
            .map_err(|error| format!("cannot make {} read-only: {error}", mount.at))?;
    }
    if root != Path::new("/") {
        change_root(&root).map_err(|error| format!("cannot change to the root directory that was made: {error}"))?;
    }
    Ok(())
}

/// Opened before anything is mounted, because that may hide it.
fn source(mount: &Mount) -> Result<File, String> {
    let open = || open_path(&mount.from);
    let opened = match open() {
        // As runtimes of containers have it for paths of the host that nobody has looked at.
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir_all(&mount.from).and_then(|()| open()),
        opened => opened,
    };
    opened.map_err(|error| format!("cannot mount {} at {}: {error}", mount.from.display(), mount.at))
}

fn open_path(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::PATH.bits() as i32).open(path)
}

/// Puts an empty directory over each that is hidden. In the one that the stage is in, only the way to the stage is
/// there.
/// Answers what was mounted, to be made read-only when all mount points are there.
fn hide(root: &Path, view: &View, stage: &File) -> Result<Vec<PathBuf>, String> {
    let (mut empty, mut made) = (None::<PathBuf>, Vec::new());
    for dir in &view.hidden {
        let at = below(root, dir);
        // What is not there, or is covered by a mount, need not be hidden.
        if !at.is_dir() {
            continue;
        }
        let failed = |error: io::Error| format!("cannot hide {}: {error}", dir.display());
        match (&empty, view.stage.strip_prefix(dir)) {
            (Some(empty), Err(_)) => mount_bind(empty, &at).map_err(|error| failed(error.into()))?,
            (_, inner) => {
                let data = c"size=64k,mode=0755";
                mount("selvedge", &at, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(data))
                    .map_err(|error| failed(error.into()))?;
                let nothing = at.join(NOTHING);
                fs::create_dir(&nothing).map_err(failed)?;
                empty.get_or_insert(nothing);
                if let Ok(inner) = inner {
                    let place = at.join(inner);
                    fs::create_dir_all(&place).map_err(failed)?;
                    let source = format!("/proc/self/fd/{}", stage.as_raw_fd());
                    mount_bind(source, place).map_err(|error| failed(error.into()))?;
                }
                made.push(at);
            }
        }
    }
    Ok(made)
}

fn below(root: &Path, place: &Path) -> PathBuf {
    place.strip_prefix("/").map_or_else(|_| place.to_owned(), |place| root.join(place))
}

/// A directory in memory with all that `dir` has, but for what is `made` there. What cannot be bound is left out.
fn put_together(dir: &Path, stage: &Path, made: &[&Path]) -> io::Result<()> {
    let about = fs::metadata(dir)?;
    mount("selvedge", stage, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(&*std::ffi::CString::new(ROOM)?))?;
    // It may be within what is bound, and shall not be bound itself.
    mount_change(stage, MountPropagationFlags::UNBINDABLE)?;
    fs::set_permissions(stage, Permissions::from_mode(about.mode() & 0o7777))?;
    let _ = chown(stage, Some(about.uid()), Some(about.gid()));
    for entry in fs::read_dir(dir)?.flatten() {
        let name = entry.file_name();
        if made.contains(&Path::new(&name)) || (dir == Path::new("/dev") && is_console(&name.to_string_lossy())) {
            continue;
        }
        let (from, to) = (entry.path(), stage.join(&name));
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_symlink() {
            let _ = fs::read_link(&from).and_then(|target| symlink(target, &to));
        } else if kind.is_dir() {
            let bound = fs::create_dir(&to).is_ok() && mount_bind_recursive(&from, &to).is_ok();
            _ = bound || fs::remove_dir(&to).is_ok();
        } else {
            let bound = File::create(&to).is_ok() && mount_bind_recursive(&from, &to).is_ok();
            _ = bound || fs::remove_file(&to).is_ok();
        }
    }
    Ok(mount_change(stage, MountPropagationFlags::PRIVATE)?)
}

/// Virtual terminals of the machine: there are a hundred of them, and no container has any use for them.
fn is_console(name: &str) -> bool {
    let digits = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    name.strip_prefix("tty").is_some_and(digits) || name.starts_with("vcs")
}

/// Makes what is missing of a mount point. A container may have put a link where another is about to mount: nothing is made behind it.
fn make(root: &Path, point: &Point, is_directory: bool) -> io::Result<PathBuf> {
    let mut place = below(root, &point.base);
    let mut parts = point.rest.components().peekable();
    while let Some(part) = parts.next() {
        place.push(part);
        match fs::symlink_metadata(&place) {
            Ok(found) if found.is_symlink() => {
                return Err(io::Error::other(format!("{} is a link", point.place().display())));
            }
            Ok(_) => {}
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) if is_directory || parts.peek().is_some() => fs::create_dir(&place)?,
            Err(_) => _ = File::create_new(&place)?,
        }
    }
    match fs::metadata(&place)?.is_dir() == is_directory {
        true => Ok(place),
        false if is_directory => Err(io::Error::other("what is there is not a directory")),
        false => Err(io::Error::other("what is there is a directory")),
    }
}

/// What the mount has besides may not be taken away from it by somebody who is not root.
fn keep_from_writing(place: &Path) -> rustix::io::Result<()> {
    let has = rustix::fs::statvfs(place)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (there, flag) in [
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        if has.contains(there) {
            flags |= flag;
        }
    }
    mount_remount(place, flags, "")
}

fn change_root(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root)?;
    match rustix::process::pivot_root(".", ".") {
        Ok(()) => unmount(".", UnmountFlags::DETACH)?,
        // The first file system of a machine that never left it cannot be put aside, only covered.
        Err(rustix::io::Errno::INVAL) => {
            mount_move(".", "/")?;
            rustix::process::chroot(".")?;
        }
        Err(error) => return Err(error.into()),
    }
    std::env::set_current_dir("/")
}
