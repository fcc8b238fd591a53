//! Where the volumes of a pod lie, and what of them its containers see.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Container, Pod, Volume};

use super::{Means, atomic::resolve_inside, means};
use crate::{environment::expand_all, runtime::Mount};

/// Where a volume of a pod is, if it has a place of its own.
pub struct Mounted<'a> {
    /// The directory of the pod.
    pub dir: &'a Path,
}

impl Mounted<'_> {
    pub fn volume(&self, volume: &Volume) -> PathBuf {
        match means(volume) {
            Means::Host(path, _) => PathBuf::from(path),
            _ => self.dir.join("volumes").join(&volume.name),
        }
    }

    pub fn make_empty(&self, volume: &Volume) -> io::Result<()> {
        let dir = self.volume(volume);
        fs::create_dir_all(&dir)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777))
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
    for mount in container.volume_mounts.iter().flatten() {
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
            from = resolve_inside(&from, &sub).map_err(|error| {
                format!(
                    "failed to prepare subPath for volumeMount {:?} of container {:?}: {error}",
                    mount.name, container.name
                )
            })?;
        }
        let read_only = mount.read_only.unwrap_or_default() || matches!(means(volume), Means::Files);
        found.push(Mount { from, at: mount.mount_path.clone(), read_only });
    }
    Ok(found)
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
    fn mounts_by_name_and_sub_path() {
        let dir = tempfile::tempdir().unwrap();
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "volumes": [{"name": "work", "emptyDir": {}}, {"name": "config", "configMap": {"name": "c"}}, {"name": "host", "hostPath": {"path": "/srv"}}],
            "containers": [{"name": "a", "volumeMounts": [
                {"name": "work", "mountPath": "/work", "subPathExpr": "$(WHO)/x"},
                {"name": "config", "mountPath": "/etc/app"},
                {"name": "host", "mountPath": "/host", "readOnly": true},
            ]}],
        }}))
        .unwrap();
        let spec = pod.spec.as_ref().unwrap();
        let mounted = Mounted { dir: dir.path() };
        mounted.make_empty(&spec.volumes.as_ref().unwrap()[0]).unwrap();
        let found = mounts(&pod, &spec.containers[0], &mounted, &[("WHO".into(), "me".into())]).unwrap();
        let base = dir.path().canonicalize().unwrap();
        assert_eq!(found[0], Mount { from: base.join("volumes/work/me/x"), at: "/work".into(), read_only: false });
        assert_eq!(found[1], Mount { from: dir.path().join("volumes/config"), at: "/etc/app".into(), read_only: true });
        assert_eq!(found[2], Mount { from: "/srv".into(), at: "/host".into(), read_only: true });
    }
}
