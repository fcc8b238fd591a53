//! Volumes that come and go with a Pod: a claim for each, which the Pod owns.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::PostParams};

use crate::{
    Setting,
    cache::{Cache, Key},
    dependents::{is_going, told},
    events::{Recorder, Weight},
    owner, pod,
    queue::Queue,
    worker::{Error, Reconciler, code, work},
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

pub fn controller(setting: &mut Setting) -> BoxFuture<'static, ()> {
    let (client, recorder) = setting.actor("ephemeral-volume-controller", "ephemeral_volume");
    let all = Ephemeral { client, recorder, pods: setting.caches.of(), claims: setting.caches.of() };
    let queue = Arc::new(Queue::default());
    let to = queue.clone();
    all.pods.listen(move |change| {
        let has_some = |pod: &&Arc<Pod>| !wanted(pod).is_empty();
        change.new.iter().filter(has_some).for_each(|pod| to.add(Key::of(&**pod)));
    });
    let stop = setting.stop.clone();
    Box::pin(async move {
        all.pods.ready().await;
        all.claims.ready().await;
        work("ephemeral-volume", queue, all, stop).await;
    })
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
                Err(error) if code(&error) == 409 || is_going(&error) => {}
                Err(error) => {
                    let message = format!("ephemeral volume claim {name}: create failed: {}", told(&error));
                    self.recorder.tell(&*pod, Weight::Warning, "FailedBinding", message);
                    return Err(error.into());
                }
            }
        }
        Ok(None)
    }
}
