//! Fills the volumes of a pod, and keeps those up to date that are made of objects.

use std::{path::PathBuf, sync::Arc};

use k8s_openapi::api::core::v1::{Pod, Volume};

use crate::{
    downward::Place,
    referred::Referred,
    volumes::{self, Claims, Means, Mounted, Tokens, means},
};

/// The directory of a pod: its volumes and its containers' last words.
pub fn dir(data: &std::path::Path, uid: &str) -> PathBuf {
    data.join("pods").join(uid)
}

/// Directories of the pod's own that have a limit, in bytes and as it was written.
pub fn limited(pod: &Pod) -> impl Iterator<Item = (&Volume, u64, &str)> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    volumes.iter().filter_map(|volume| {
        let limit = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
        let bytes = u64::try_from(limit.0.parse::<api::quantity::Quantity>().ok()?.value()).ok()?;
        (bytes > 0).then_some((volume, bytes, limit.0.as_str()))
    })
}

/// What to say of the first one that has become too large.
pub fn too_large(dir: &std::path::Path, pod: &Pod) -> Option<String> {
    let claims = Claims::new();
    let mounted = Mounted { dir, claims: &claims };
    let mut limited = limited(pod);
    let (volume, _, limit) =
        limited.find(|(volume, bytes, _)| volumes::used(&mounted.volume(volume), *bytes) > *bytes)?;
    Some(format!("Usage of EmptyDir volume {:?} exceeds the limit {limit:?}. ", volume.name))
}

/// Makes all volumes what they have to be. Can be repeated; what is right already is left alone.
pub async fn fill(dir: PathBuf, pod: Arc<Pod>, referred: Referred, tokens: Tokens, place: Place) -> Result<(), String> {
    let filling = tokio::task::spawn_blocking(move || fill_now(&dir, &pod, &referred, &tokens, &place));
    filling.await.unwrap_or_else(|error| Err(format!("filling the volumes broke off: {error}")))
}

fn fill_now(
    dir: &std::path::Path,
    pod: &Pod,
    referred: &Referred,
    tokens: &Tokens,
    place: &Place,
) -> Result<(), String> {
    // Where claims are is known without this, and nothing of them is made here.
    let claims = Claims::new();
    let mounted = Mounted { dir, claims: &claims };
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    for volume in volumes {
        let failed = |why: String| format!("MountVolume.SetUp failed for volume {:?} : {why}", volume.name);
        match means(volume) {
            Means::Empty => mounted.make_empty(volume).map_err(|error| failed(error.to_string()))?,
            Means::Host(path, kind) => volumes::prepare_host_path(path, kind).map_err(failed)?,
            Means::Files => {
                let content = volumes::content(volume, pod, referred, tokens, place).map_err(failed)?;
                volumes::write(&mounted.volume(volume), &content).map_err(|error| failed(error.to_string()))?;
            }
            Means::Claim => {}
            Means::Unsupported(kind) => return Err(volumes::unsupported(volume, kind)),
        }
    }
    Ok(())
}
