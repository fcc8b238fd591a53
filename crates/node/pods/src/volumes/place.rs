//! Where the volumes of a pod lie, and what of them its containers see.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    os::unix::fs::{FileTypeExt, MetadataExt, chown},
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Container, Pod, Volume};

use super::{Means, atomic::resolve_inside, means};
use crate::{environment::expand_all, runtime::Mount};

/// The volumes of claims on this machine, by their names in the pod.
pub type Claims = BTreeMap<String, Claimed>;

/// The volume that a claim has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub path: PathBuf,
    /// A part of the machine that somebody else cares for: whose its files are is not for a pod to say.
    pub is_host_path: bool,
}

/// Below the directory of a pod: parts of volumes as containers found them. They are made anew whenever a container
/// starts.
pub const SUB_PATHS: &str = "subpaths";

/// So much of a file is read for the variables in it.
const LARGEST_READ: u64 = 64 << 10;

/// Where a volume of a pod is, if it has a place of its own.
pub struct Mounted<'a> {
    /// The directory of the pod.
    pub dir: &'a Path,
    pub claims: &'a Claims,
}

impl Mounted<'_> {
    pub fn volume(&self, volume: &Volume) -> PathBuf {
        match means(volume) {
            Means::Host(path, _) => PathBuf::from(path),
            Means::Claim => {
                self.claims.get(&volume.name).map_or_else(|| self.own(volume), |claimed| claimed.path.clone())
            }
            _ => self.own(volume),
        }
    }

    fn own(&self, volume: &Volume) -> PathBuf {
        self.dir.join("volumes").join(&volume.name)
    }

    /// Where a container keeps a part of a volume as it found it: in memory if the volume is there.
    fn kept(&self, volume: &Volume, container: &str, index: usize) -> PathBuf {
        let in_memory = fs::read_link(self.own(volume)).ok();
        let dir = in_memory.as_deref().and_then(Path::parent);
        // No volume can have a name with a dot.
        let parts = dir.map_or_else(|| self.dir.join(SUB_PATHS), |dir| dir.join(format!(".{SUB_PATHS}")));
        parts.join(container).join(index.to_string())
    }

    /// The text of a file in a volume, if it can be read and is not outside of it.
    pub fn read(&self, pod: &Pod, volume: &str, path: &str) -> Option<String> {
        let volumes = pod.spec.as_ref()?.volumes.as_deref()?;
        let base = self.volume(volumes.iter().find(|known| known.name == volume)?).canonicalize().ok()?;
        let file = base.join(path).canonicalize().ok().filter(|file| file.starts_with(&base))?;
        let mut text = String::new();
        let mut file = fs::File::open(file).ok()?.take(LARGEST_READ);
        file.read_to_string(&mut text).ok()?;
        Some(text)
    }
}

/// What a container sees of its pod's volumes.
pub fn mounts(
    pod: &Pod,
    container: &Container,
    mounted: &Mounted<'_>,
    environment: &[(String, String)],
) -> Result<Vec<Mount>, String> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let mut found = Vec::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let volume = volumes.iter().find(|volume| volume.name == mount.name);
        let volume = volume.ok_or_else(|| format!("the pod has no volume {:?}", mount.name))?;
        let mut from = mounted.volume(volume);
        let sub = match (&mount.sub_path_expr, &mount.sub_path) {
            (Some(expression), _) if !expression.is_empty() => {
                expand_all(Some(&vec![expression.clone()]), environment).pop()
            }
            (_, sub) => sub.clone(),
        };
        if let Some(sub) = sub.filter(|sub| !sub.is_empty()) {
            let kept = mounted.kept(volume, &container.name, index);
            let found = resolve_inside(&from, &sub).and_then(|found| match means(volume) {
                // These files are replaced all at once; who has a part of them keeps what it found, as with a kubelet.
                Means::Files => keep(&found, &kept).map(|()| kept),
                _ => Ok(found),
            });
            from = found.map_err(|error| {
                format!(
                    "failed to prepare subPath for volumeMount {:?} of container {:?}: {error}",
                    mount.name, container.name
                )
            })?;
        }
        let is_read = volume.persistent_volume_claim.as_ref().and_then(|claim| claim.read_only).unwrap_or_default();
        let read_only = mount.read_only.unwrap_or_default() || is_read || matches!(means(volume), Means::Files);
        found.push(Mount { from, at: mount.mount_path.clone(), read_only });
    }
    Ok(found)
}

/// Makes `to` what `from` is now.
fn keep(from: &Path, to: &Path) -> io::Result<()> {
    let gone = if to.is_dir() { fs::remove_dir_all(to) } else { fs::remove_file(to) };
    match gone {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    let known = fs::metadata(from)?;
    if known.is_dir() {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            keep(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else {
        fs::copy(from, to)?;
    }
    let made = fs::metadata(to)?;
    if (made.uid(), made.gid()) != (known.uid(), known.gid()) {
        chown(to, Some(known.uid()), Some(known.gid()))?;
    }
    fs::set_permissions(to, known.permissions())
}

/// How much is below a directory, as far as it matters whether that is more than `limit`. Links are not followed.
pub fn used(dir: &Path, limit: u64) -> u64 {
    let (mut sum, mut left) = (0, vec![dir.to_owned()]);
    while let Some(dir) = left.pop().filter(|_| sum <= limit) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            sum += found.blocks() * 512;
            if found.is_dir() {
                left.push(entry.path());
            }
        }
    }
    sum
}

/// Checks that what is on the host is what the volume says, and makes it where that was asked for.
pub fn prepare_host_path(path: &str, kind: &str) -> Result<(), String> {
    let at = Path::new(path);
    let known = fs::metadata(at).ok();
    let wrong = || format!("hostPath type check failed: {path} is not a {}", word(kind));
    let make = |result: io::Result<()>| result.map_err(|error| format!("cannot make {path}: {error}"));
    match kind {
        "" => Ok(()),
        "DirectoryOrCreate" if known.is_none() => make(fs::create_dir_all(at)),
        "FileOrCreate" if known.is_none() => {
            make(fs::OpenOptions::new().create_new(true).write(true).open(at).map(|_| ()))
        }
        _ => {
            let Some(known) = known else { return Err(wrong()) };
            let is = match kind {
                "Directory" | "DirectoryOrCreate" => known.is_dir(),
                "File" | "FileOrCreate" => known.is_file(),
                "Socket" => known.file_type().is_socket(),
                "CharDevice" => known.file_type().is_char_device(),
                "BlockDevice" => known.file_type().is_block_device(),
                _ => return Err(format!("{kind} is an invalid volume type")),
            };
            if is { Ok(()) } else { Err(wrong()) }
        }
    }
}

fn word(kind: &str) -> &'static str {
    match kind {
        "Directory" | "DirectoryOrCreate" => "directory",
        "File" | "FileOrCreate" => "file",
        "Socket" => "socket file",
        "CharDevice" => "character device",
        _ => "block device",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::volumes::content::File;

    #[test]
    fn host_paths_are_what_they_say() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        fs::write(at("file"), "x").unwrap();
        for (name, kind, is_fine) in [
            ("none", "", true),
            ("none", "Directory", false),
            ("new/dir", "DirectoryOrCreate", true),
            ("new/dir", "Directory", true),
            ("file", "Directory", false),
            ("file", "File", true),
            ("made", "FileOrCreate", true),
            ("made", "File", true),
            ("file", "Socket", false),
            ("file", "Odd", false),
        ] {
            assert_eq!(prepare_host_path(&at(name), kind).is_ok(), is_fine, "{name} {kind}");
        }
    }

    #[test]
    fn a_part_of_a_config_map_stays_as_it_was_found() {
        let dir = tempfile::tempdir().unwrap();
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "volumes": [{"name": "config", "configMap": {"name": "c"}}],
            "containers": [{"name": "a", "volumeMounts": [
                {"name": "config", "mountPath": "/etc/app.conf", "subPath": "app.conf"},
                {"name": "config", "mountPath": "/etc/more", "subPath": "more"},
            ]}],
        }}))
        .unwrap();
        let spec = pod.spec.as_ref().unwrap();
        let (claims, volume) = (Claims::new(), &spec.volumes.as_ref().unwrap()[0]);
        let mounted = Mounted { dir: dir.path(), claims: &claims };
        let fill = |text: &str| {
            let file = |text: &str| File { bytes: text.as_bytes().to_vec(), mode: 0o640, owner: None };
            let content = [("app.conf".to_owned(), file(text)), ("more/x".to_owned(), file(text))].into();
            crate::volumes::write(&mounted.volume(volume), &content, None).unwrap();
        };
        for text in ["one", "two"] {
            fill(text);
            let found = mounts(&pod, &spec.containers[0], &mounted, &[]).unwrap();
            fill("later");
            assert_eq!(fs::read_to_string(&found[0].from).unwrap(), text);
            assert_eq!(fs::metadata(&found[0].from).unwrap().mode() & 0o777, 0o640);
            assert_eq!(fs::read_to_string(found[1].from.join("x")).unwrap(), text);
        }
    }

    #[test]
    fn what_is_used_is_counted_until_it_is_too_much() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(used(dir.path(), 1 << 20), 0);
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/c"), vec![1; 300_000]).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("out")).unwrap();
        let sum = used(dir.path(), 1 << 20);
        assert!((300_000..400_000).contains(&sum), "{sum}");
    }

    #[test]
    fn mounts_by_name_and_sub_path() {
        let dir = tempfile::tempdir().unwrap();
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "volumes": [{"name": "work", "emptyDir": {}}, {"name": "config", "configMap": {"name": "c"}}, {"name": "host", "hostPath": {"path": "/srv"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}}],
            "containers": [{"name": "a", "volumeMounts": [
                {"name": "work", "mountPath": "/work", "subPathExpr": "$(WHO)/x"},
                {"name": "config", "mountPath": "/etc/app"},
                {"name": "host", "mountPath": "/host", "readOnly": true},
                {"name": "data", "mountPath": "/data"},
            ]}],
        }}))
        .unwrap();
        let spec = pod.spec.as_ref().unwrap();
        let claimed = Claimed { path: "/volumes/pvc-1".into(), is_host_path: false };
        let claims = Claims::from([("data".to_owned(), claimed)]);
        let mounted = Mounted { dir: dir.path(), claims: &claims };
        crate::volumes::make_empty(&mounted.volume(&spec.volumes.as_ref().unwrap()[0]), None).unwrap();
        let found = mounts(&pod, &spec.containers[0], &mounted, &[("WHO".into(), "me".into())]).unwrap();
        let base = dir.path().canonicalize().unwrap();
        assert_eq!(found[0], Mount { from: base.join("volumes/work/me/x"), at: "/work".into(), read_only: false });
        assert_eq!(found[1], Mount { from: dir.path().join("volumes/config"), at: "/etc/app".into(), read_only: true });
        assert_eq!(found[2], Mount { from: "/srv".into(), at: "/host".into(), read_only: true });
        assert_eq!(found[3], Mount { from: "/volumes/pvc-1".into(), at: "/data".into(), read_only: true });
    }
}
