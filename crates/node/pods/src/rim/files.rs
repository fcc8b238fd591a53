//! Fills the volumes of a pod, and keeps those up to date that are made of objects. At the end nothing of them is left.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::core::v1::{Pod, Volume};

use crate::{
    downward::Place,
    referred::Referred,
    spec,
    volumes::{self, Claims, Materials, Means, Memory, Mounted, Owners, Tokens, means},
};

/// The directory of a pod: its volumes and its containers' last words.
pub fn dir(data: &Path, uid: &str) -> PathBuf {
    data.join("pods").join(uid)
}

/// Makes the directory of a pod. Volumes in there may be open to everybody, so nobody else on this machine gets into it.
pub fn make(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
}

/// Forgets all that a pod had. Its directory goes last: whoever is interrupted finds by it what else there was.
pub fn remove(data: &Path, uid: &str) {
    let dir = dir(data, uid);
    for removed in [Memory::of_machine().remove(uid), volumes::discard(&dir)] {
        if let Err(error) = removed {
            tracing::warn!(%error, path = %dir.display(), "something that a pod had is left");
        }
    }
}

/// Directories of the pod's own that have a limit, in bytes and as it was written.
pub fn limited(pod: &Pod) -> impl Iterator<Item = (&Volume, u64, &str)> {
    of(pod).iter().filter_map(|volume| volumes::limit(volume).map(|(bytes, limit)| (volume, bytes, limit)))
}

/// What to say of the first one that has become too large.
pub fn too_large(dir: &Path, pod: &Pod) -> Option<String> {
    let claims = Claims::new();
    let mounted = Mounted { dir, claims: &claims };
    let mut limited = limited(pod);
    let (volume, _, limit) =
        limited.find(|(volume, bytes, _)| volumes::used(&mounted.volume(volume), *bytes) > *bytes)?;
    Some(format!("Usage of EmptyDir volume {:?} exceeds the limit {limit:?}. ", volume.name))
}

fn of(pod: &Pod) -> &[Volume] {
    pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default()
}

/// All that is needed to fill the volumes of a pod.
pub struct Filling {
    pub dir: PathBuf,
    pub pod: Arc<Pod>,
    pub referred: Referred,
    pub tokens: Tokens,
    pub claims: Arc<Claims>,
    pub place: Place,
    /// Containers of the pod run, with what there is mounted.
    pub has_readers: bool,
}

impl Filling {
    /// Makes all volumes what they have to be, and says what people have to know of them. Can be repeated; what is
    /// right already is left alone.
    pub async fn fill(self) -> Result<Vec<String>, String> {
        let filling = tasks::spawn_blocking("pod-files", move || self.fill_now());
        filling.await.unwrap_or_else(|error| Err(format!("filling the volumes broke off: {error}")))
    }

    fn fill_now(&self) -> Result<Vec<String>, String> {
        let mut warnings = Vec::new();
        make(&self.dir).map_err(|error| format!("cannot make {}: {error}", self.dir.display()))?;
        let mounted = Mounted { dir: &self.dir, claims: &self.claims };
        let owners = Owners::of(&self.pod, rustix::process::geteuid().is_root());
        let (pod, referred, tokens, place) = (&self.pod, &self.referred, &self.tokens, &self.place);
        let of_pod = Materials { pod, referred, tokens, place, owners };
        if !self.has_readers {
            // An older version had parts of Secrets there.
            volumes::discard(&self.dir.join(volumes::SUB_PATHS)).map_err(|error| error.to_string())?;
        }
        for volume in of(&self.pod) {
            let failed = |why: String| format!("MountVolume.SetUp failed for volume {:?} : {why}", volume.name);
            let broken = |error: io::Error| failed(error.to_string());
            let at = mounted.volume(volume);
            match means(volume) {
                Means::Empty => self.make_empty(volume, &at, owners.group).map_err(broken)?,
                Means::Host(path, kind) => volumes::prepare_host_path(path, kind).map_err(failed)?,
                Means::Files => {
                    let content = volumes::content(volume, &of_pod).map_err(failed)?;
                    if volumes::is_confidential(volume) {
                        warnings.extend(self.keep_off_disk(volume, &at).map_err(broken)?);
                    }
                    volumes::write(&at, &content, owners.group).map_err(broken)?;
                }
                Means::Claim => self.give_claimed(volume, &owners).map_err(broken)?,
                Means::Unsupported(kind) => return Err(volumes::unsupported(volume, kind)),
            }
        }
        Ok(warnings)
    }

    /// A warning where there is no memory to be had: then the files are on disk, as the pod would not run at all
    /// otherwise.
    fn keep_off_disk(&self, volume: &Volume, at: &Path) -> io::Result<Option<String>> {
        match volumes::move_into_memory(&Memory::of_machine(), spec::uid(&self.pod), at, self.has_readers) {
            Ok(()) => Ok(None),
            Err(error) => {
                volumes::forget_lost(at)?;
                let name = &volume.name;
                Ok(Some(format!("the files of volume {name:?} are on disk, because they cannot be in memory: {error}")))
            }
        }
    }

    fn make_empty(&self, volume: &Volume, at: &Path, group: Option<u32>) -> io::Result<()> {
        if volumes::is_in_memory(volume) {
            let limit = volumes::limit(volume).map(|(bytes, _)| bytes);
            let memory = Memory::of_machine();
            match volumes::make_in_memory(&memory, spec::uid(&self.pod), limit, at, group) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let (pod, volume) = (spec::name(&self.pod), &volume.name);
                    tracing::warn!(%error, pod, volume, "a volume that asked for memory is on disk");
                    volumes::forget_lost(at)?;
                }
            }
        }
        volumes::make_empty(at, group)
    }

    /// Gives what a claim has to the pod's group: once for a pod, as its containers may then do with it what they like.
    fn give_claimed(&self, volume: &Volume, owners: &Owners) -> io::Result<()> {
        let is_read = volume.persistent_volume_claim.as_ref().and_then(|claim| claim.read_only).unwrap_or_default();
        let claimed = self.claims.get(&volume.name).filter(|claimed| !claimed.is_host_path && !is_read);
        let (Some(claimed), Some(group)) = (claimed, owners.group) else { return Ok(()) };
        let done = self.dir.join("given").join(&volume.name);
        if done.exists() {
            return Ok(());
        }
        if !owners.looks_at_root_only || !volumes::is_given(&claimed.path, group) {
            volumes::give(&claimed.path, group)?;
        }
        fs::create_dir_all(self.dir.join("given"))?;
        fs::write(done, "")
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, os::unix::fs::MetadataExt};

    use serde_json::json;

    use super::*;
    use crate::volumes::Claimed;

    #[tokio::test]
    async fn a_claims_volume_is_given_once_for_a_pod() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let fill = async |uid: &str, policy: &str, is_host_path: bool| {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": "a", "uid": uid},
                "spec": {"securityContext": {"fsGroup": 4711, "fsGroupChangePolicy": policy}, "containers": [],
                    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
            }))
            .unwrap();
            let claimed = Claimed { path: path("disk"), is_host_path };
            let place = Place { host: "1.2.3.4".parse().unwrap(), address: None, allocatable: BTreeMap::new() };
            let filling = Filling {
                dir: path(uid),
                pod: Arc::new(pod),
                referred: Referred::new(),
                tokens: Tokens::new(),
                claims: Arc::new([("data".to_owned(), claimed)].into()),
                place,
                has_readers: false,
            };
            assert!(filling.fill().await.unwrap().is_empty());
        };
        let group = |name: &str| fs::metadata(path(name)).unwrap().gid();
        fs::create_dir(path("disk")).unwrap();
        fs::write(path("disk/old"), "x").unwrap();
        fill("u0", "Always", true).await;
        assert_eq!((group("disk"), group("disk/old")), (0, 0), "what is the machine's stays so");
        fill("u1", "Always", false).await;
        assert_eq!((group("disk"), group("disk/old")), (4711, 4711));
        assert_eq!(fs::metadata(path("u1")).unwrap().mode() & 0o777, 0o700);
        let take_back = || std::os::unix::fs::chown(path("disk/old"), None, Some(0)).unwrap();
        take_back();
        fill("u1", "Always", false).await;
        fill("u2", "OnRootMismatch", false).await;
        assert_eq!(group("disk/old"), 0);
        fill("u3", "Always", false).await;
        assert_eq!(group("disk/old"), 4711);
    }
}
