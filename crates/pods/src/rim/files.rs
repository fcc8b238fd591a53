//! Fills the volumes of a pod, and keeps those up to date that are made of objects.

use std::{path::PathBuf, sync::Arc};

use k8s_openapi::api::core::v1::Pod;

use crate::{
    downward::Place,
    referred::Referred,
    volumes::{self, Means, Mounted, Tokens, means},
};

/// The directory of a pod: its volumes and its containers' last words.
pub fn dir(data: &std::path::Path, uid: &str) -> PathBuf {
    data.join("pods").join(uid)
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
    let mounted = Mounted { dir };
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
            Means::Unsupported(kind) => return Err(volumes::unsupported(volume, kind)),
        }
    }
    Ok(())
}
