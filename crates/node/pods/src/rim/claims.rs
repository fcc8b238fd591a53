//! The volumes behind a pod's claims: where they are on this machine.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use kube::{Api, Client};

use crate::{
    spec,
    volumes::{self, Claimed, Claims, prepare_host_path},
};

/// All of them, or why a pod has to wait. A claim that has its volume keeps it, so this is asked once for a pod.
pub async fn find(client: &Client, pod: &Pod) -> Result<Claims, String> {
    let namespace = spec::namespace(pod);
    let of_pod: &[Volume] = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let mut found = Claims::new();
    for volume in of_pod {
        let Some((name, is_own)) = volumes::claim(pod, volume) else { continue };
        let looking = async {
            let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
            let claim = claims
                .get(&name)
                .await
                .map_err(|error| format!("failed to fetch PVC from API server: {}", told(&error)))?;
            if is_own && !is_owned(&claim, spec::uid(pod)) {
                return Err("PVC was not created for the pod (pod is not owner)".to_owned());
            }
            let volume = volume_of(&claim)?;
            let read = Api::<PersistentVolume>::all(client.clone()).get(volume).await;
            let read =
                read.map_err(|error| format!("failed to fetch PV {volume} from API server: {}", told(&error)))?;
            place(&claim, &read)
        };
        let claimed = looking.await.map_err(|why| {
            let volume = &volume.name;
            format!(
                "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process \
                 volumes=[{volume}]: error processing PVC {namespace}/{name}: {why}"
            )
        })?;
        found.insert(volume.name.clone(), claimed);
    }
    Ok(found)
}

fn is_owned(claim: &PersistentVolumeClaim, uid: &str) -> bool {
    claim.metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid)
}

fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

fn volume_of(claim: &PersistentVolumeClaim) -> Result<&str, String> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Err("PVC is being deleted".to_owned());
    }
    let is_bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty());
    name.filter(|_| is_bound).ok_or_else(|| "PVC is not bound".to_owned())
}

fn place(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<Claimed, String> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let spec = volume.spec.clone().unwrap_or_default();
    let owner = spec.claim_ref.as_ref().and_then(|reference| reference.uid.as_deref());
    if owner.is_none() || owner != claim.metadata.uid.as_deref() {
        return Err(format!("PV {name} is bound to another claim"));
    }
    if spec.volume_mode.as_deref() == Some("Block") {
        return Err(format!("PV {name} is a block device, which this node cannot give to a container"));
    }
    match (spec.local, spec.host_path) {
        (Some(local), _) if std::path::Path::new(&local.path).exists() => {
            Ok(Claimed { path: local.path.into(), is_host_path: false })
        }
        (Some(local), _) => Err(format!("path {:?} does not exist", local.path)),
        (_, Some(host)) => {
            prepare_host_path(&host.path, host.type_.as_deref().unwrap_or_default())?;
            Ok(Claimed { path: host.path.into(), is_host_path: true })
        }
        _ => Err(format!("PV {name} is of a kind that is not supported on this node: local and hostPath are")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_a_volume_that_is_the_claims_own_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let found = |phase: &str, owner: &str, source: Value| -> Result<Claimed, String> {
            let claim: PersistentVolumeClaim = serde_json::from_value(json!({
                "metadata": {"name": "data", "uid": "u1"}, "spec": {"volumeName": "v"}, "status": {"phase": phase},
            }))
            .unwrap();
            let mut spec = json!({"claimRef": {"name": "data", "uid": owner}});
            spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
            let volume = serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": spec})).unwrap();
            volume_of(&claim)?;
            place(&claim, &volume)
        };
        let local = json!({"local": {"path": path}});
        for (phase, owner, source, expected) in [
            ("Bound", "u1", local.clone(), Ok(())),
            ("Bound", "u1", json!({"hostPath": {"path": path, "type": "Directory"}}), Ok(())),
            ("Pending", "u1", local.clone(), Err("PVC is not bound")),
            ("Lost", "u1", local.clone(), Err("PVC is not bound")),
            ("Bound", "u2", local, Err("bound to another claim")),
            ("Bound", "u1", json!({"local": {"path": "/not/there"}}), Err("path \"/not/there\" does not exist")),
            ("Bound", "u1", json!({"hostPath": {"path": path, "type": "File"}}), Err("hostPath type check failed")),
            ("Bound", "u1", json!({"local": {"path": path}, "volumeMode": "Block"}), Err("block device")),
            ("Bound", "u1", json!({"nfs": {"path": "/", "server": "s"}}), Err("not supported on this node")),
        ] {
            match (found(phase, owner, source.clone()), expected) {
                (Ok(claimed), Ok(())) => {
                    let is_host_path = source.get("hostPath").is_some();
                    assert_eq!(claimed, Claimed { path: dir.path().to_owned(), is_host_path }, "{source}");
                }
                (Err(said), Err(why)) => assert!(said.contains(why), "{said}"),
                (found, _) => panic!("{phase} {owner} {source}: {found:?}"),
            }
        }
    }
}
