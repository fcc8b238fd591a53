//! Volumes: what is in them, and where they lie on this machine.

mod atomic;
mod content;
mod discard;
mod empty;
mod memory;
mod owners;
mod place;

pub use atomic::write;
pub use content::{Content, Materials, TokenAsk, Tokens, content};
pub use discard::discard;
pub use empty::{forget_lost, make as make_empty, make_in as make_in_memory, move_in as move_into_memory};
pub use memory::Memory;
pub use owners::{Owners, give, is_given};
pub use place::{Claimed, Claims, Mounted, SUB_PATHS, mounts, prepare_host_path, used};

use k8s_openapi::api::core::v1::{Pod, Volume};

use crate::spec;

/// What a volume is to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means<'a> {
    /// A directory of the pod's own.
    Empty,
    /// Files made of objects, kept up to date.
    Files,
    /// What is there already.
    Host(&'a str, &'a str),
    /// What a claim has, see [`claim`].
    Claim,
    /// Not done here: its kind.
    Unsupported(&'static str),
}

pub fn means(volume: &Volume) -> Means<'_> {
    if let Some(host) = &volume.host_path {
        return Means::Host(&host.path, host.type_.as_deref().unwrap_or_default());
    }
    if volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() {
        return Means::Claim;
    }
    if volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.projected.is_some()
        || volume.downward_api.is_some()
    {
        return Means::Files;
    }
    let unsupported = [
        (volume.csi.is_some(), "csi"),
        (volume.nfs.is_some(), "nfs"),
        (volume.image.is_some(), "image"),
        (volume.iscsi.is_some(), "iscsi"),
        (volume.fc.is_some(), "fc"),
        (volume.git_repo.is_some(), "gitRepo"),
        (volume.flex_volume.is_some(), "flexVolume"),
        (volume.cephfs.is_some(), "cephfs"),
        (volume.rbd.is_some(), "rbd"),
        (volume.glusterfs.is_some(), "glusterfs"),
    ];
    match unsupported.into_iter().find(|(is, _)| *is) {
        Some((_, kind)) => Means::Unsupported(kind),
        // As the API fills it in for a volume without a source.
        None if volume.empty_dir.is_some() => Means::Empty,
        None => Means::Unsupported("of a kind that this node does not know"),
    }
}

/// How large a directory of the pod's own may become, in bytes and as it was written.
pub fn limit(volume: &Volume) -> Option<(u64, &str)> {
    let limit = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
    let bytes = u64::try_from(limit.0.parse::<schema::quantity::Quantity>().ok()?.value()).ok()?;
    (bytes > 0).then_some((bytes, limit.0.as_str()))
}

pub fn is_in_memory(volume: &Volume) -> bool {
    volume.empty_dir.as_ref().and_then(|empty| empty.medium.as_deref()) == Some("Memory")
}

/// Whether the files of a volume must not be on a disk, as a kubelet has it: all that is made of objects, but for
/// ConfigMaps.
pub fn is_confidential(volume: &Volume) -> bool {
    volume.secret.is_some() || volume.projected.is_some() || volume.downward_api.is_some()
}

/// The name of the claim behind a volume, and whether it has to be the pod's own.
pub fn claim(pod: &Pod, volume: &Volume) -> Option<(String, bool)> {
    match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some((claim.claim_name.clone(), false)),
        (None, Some(_)) => Some((format!("{}-{}", spec::name(pod), volume.name), true)),
        (None, None) => None,
    }
}

/// For people: why a volume cannot be had here, and what to do.
pub fn unsupported(volume: &Volume, kind: &str) -> String {
    format!(
        "MountVolume.SetUp failed for volume {:?} : volumes of kind {kind} are not supported on this node; use emptyDir, configMap, \
         secret, projected, downwardAPI, persistentVolumeClaim or hostPath, or run the pod on a node with a kubelet",
        volume.name
    )
}
