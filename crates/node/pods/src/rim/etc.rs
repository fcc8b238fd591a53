//! The files below `/etc` that a pod has of its own: `hosts` and `resolv.conf`.

use std::{
    fs,
    io::{self, Read},
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::Pod;

use crate::{dns, downward::Place, hosts, runtime::Mount};

/// So much of the machine's files is read.
const LARGEST: u64 = 1 << 20;

/// Writes them anew into the pod's directory, whatever a container has made of them, and says how a container sees them and what to warn of. A
/// container that mounts something there has that instead.
pub fn make(
    dir: &Path,
    pod: &Pod,
    place: &Place,
    resolver: Option<SocketAddr>,
    mounts: &[Mount],
) -> io::Result<(Vec<Mount>, Vec<String>)> {
    let dir = dir.join("etc");
    let (mut made, mut warnings) = (Vec::new(), Vec::new());
    if is_free("/etc/hosts", mounts) {
        let address = place.address.unwrap_or(place.host);
        let text = hosts::of(pod, address, &read(Path::new("/etc/hosts")));
        let from = put(&dir, "hosts", &text)?;
        made.push(Mount { from, at: "/etc/hosts".to_owned(), read_only: false });
    }
    if is_free("/etc/resolv.conf", mounts)
        && let Some(resolv) = dns::of(pod, resolver, &read(Path::new("/etc/resolv.conf")))
    {
        let from = put(&dir, "resolv.conf", &resolv.text)?;
        made.push(Mount { from, at: "/etc/resolv.conf".to_owned(), read_only: false });
        warnings = resolv.warnings;
    }
    Ok((made, warnings))
}

/// Not in a volume either: it may be the machine's own `/etc`, and nothing of ours is to be put in there.
fn is_free(path: &str, mounts: &[Mount]) -> bool {
    mounts.iter().all(|mount| !Path::new(path).starts_with(&mount.at))
}

fn read(path: &Path) -> String {
    let mut bytes = Vec::new();
    let _ = fs::File::open(path).and_then(|file| file.take(LARGEST).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// In place, as containers that run see this very file.
fn put(dir: &Path, name: &str, text: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(dir)?;
    let path = dir.join(name);
    if fs::read(&path).ok().as_deref() != Some(text.as_bytes()) {
        fs::write(&path, text)?;
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_container_has_them_unless_it_mounts_something_there() {
        let dir = tempfile::tempdir().unwrap();
        let pod = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": []}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let place = Place {
            host: "127.9.0.1".parse().unwrap(),
            address: Some("127.9.0.7".parse().unwrap()),
            allocatable: BTreeMap::new(),
        };
        let resolver = Some(SocketAddr::from(([127, 9, 128, 10], 53)));
        for (mounted, expected) in [
            (&[][..], &["/etc/hosts", "/etc/resolv.conf"][..]),
            (&["/etc/hosts"], &["/etc/resolv.conf"]),
            (&["/etc/app", "/etc/resolv.conf/"], &["/etc/hosts"]),
            (&["/etc"], &[]),
        ] {
            let volume = |at: &&str| Mount { from: "/x".into(), at: (*at).to_owned(), read_only: true };
            let mounts: Vec<Mount> = mounted.iter().map(volume).collect();
            let (made, warnings) = make(dir.path(), &pod, &place, resolver, &mounts).unwrap();
            assert_eq!(made.iter().map(|mount| mount.at.as_str()).collect::<Vec<_>>(), expected);
            assert!(warnings.is_empty() && made.iter().all(|mount| !mount.read_only));
        }
        let file = dir.path().join("etc/hosts");
        fs::write(&file, "mine").unwrap();
        make(dir.path(), &pod, &place, resolver, &[]).unwrap();
        assert!(read(&file).contains("\n127.9.0.7\tweb\n"));
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o644);
        assert!(read(&dir.path().join("etc/resolv.conf")).contains("\nnameserver 127.9.128.10\n"));
    }
}
