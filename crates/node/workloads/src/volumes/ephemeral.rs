//! Volumes that come and go with a Pod: a claim for each, which the Pod owns.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::PostParams};

use crate::{Setting, pod};
use controllers::{
    Controller, Error, Reconciler,
    cache::{Cache, Key},
    code,
    dependents::{is_namespace_terminating, message_of},
    events::{Recorder, Weight},
    owner,
};

/// The claims that a Pod has to have.
pub fn wanted(pod: &Pod) -> Vec<PersistentVolumeClaim> {
    if pod::is_deleting(pod) || pod::is_finished(pod) {
        return Vec::new();
    }
    let volumes = pod.spec.iter().filter_map(|spec| spec.volumes.as_ref()).flatten();
    let templates =
        volumes.filter_map(|volume| Some((&volume.name, volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?)));
    let claim = |(volume, template): (&String, &k8s_openapi::api::core::v1::PersistentVolumeClaimTemplate)| {
        let said = template.metadata.clone().unwrap_or_default();
        PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(format!("{}-{volume}", pod.metadata.name.as_deref().unwrap_or_default())),
                namespace: pod.metadata.namespace.clone(),
                labels: said.labels,
                annotations: said.annotations,
                owner_references: owner::reference(pod).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(template.spec.clone()),
            status: None,
        }
    };
    templates.map(claim).collect()
}

pub fn controller(setting: &mut Setting) -> Controller {
    let (client, recorder) = setting.actor("ephemeral-volume-controller", "ephemeral_volume");
    let mut builder = setting.builder("ephemeral-volume-controller");
    let all = Ephemeral { client, recorder, pods: builder.read(), claims: builder.read() };
    builder.on(&all.pods, |change, queue| {
        let has_some = |pod: &&Arc<Pod>| !wanted(pod).is_empty();
        change.new.iter().filter(has_some).for_each(|pod| queue.add(Key::of(&**pod)));
    });
    builder.build(all)
}

struct Ephemeral {
    client: Client,
    recorder: Recorder,
    pods: Arc<Cache<Pod>>,
    claims: Arc<Cache<PersistentVolumeClaim>>,
}

impl Reconciler for Ephemeral {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let Some(pod) = self.pods.get(key) else { return Ok(None) };
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        for claim in wanted(&pod) {
            let name = claim.metadata.name.clone().unwrap_or_default();
            // Whose it is, the scheduler and the node look at: another's is not used.
            if self.claims.get(&Key::of(&claim)).is_some() {
                continue;
            }
            match api.create(&PostParams::default(), &claim).await {
                Ok(_) => {}
                Err(error) if code(&error) == 409 || is_namespace_terminating(&error) => {}
                Err(error) => {
                    let message = format!("ephemeral volume claim {name}: create failed: {}", message_of(&error));
                    self.recorder.tell(&*pod, Weight::Warning, "FailedBinding", message);
                    return Err(error.into());
                }
            }
        }
        Ok(None)
    }
}
