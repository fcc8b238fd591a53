//! EndpointSlices and Endpoints: the addresses behind each Service.

mod address;
#[cfg(test)]
mod model;
mod slices;
mod subsets;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::{
    core::v1::{Endpoints, Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams, Preconditions},
};

#[cfg(test)]
pub use tests::CASES;

use crate::{
    Setting,
    cache::{Cache, Key},
    dependents::is_going,
    events::{Recorder, Weight},
    pod,
    queue::Queue,
    worker::{Error, Reconciler, code, work},
    written::Written,
};

/// Caches that are late are asked again after so long, should no event come.
const LATE: Duration = Duration::from_secs(1);
const ZONE: &str = "topology.kubernetes.io/zone";

pub fn controller(setting: &mut Setting) -> BoxFuture<'static, ()> {
    let (client, recorder) = setting.actor("endpointslice-controller", "endpoint-slice-controller");
    let (old_client, _) = setting.actor("endpoint-controller", "endpoint-controller");
    let caches = &mut setting.caches;
    let all = Slices {
        client,
        old_client,
        recorder,
        services: caches.of(),
        pods: caches.of(),
        nodes: caches.of(),
        slices: caches.of(),
        endpoints: caches.of(),
        written: Written::default(),
    };
    let queue = Arc::new(Queue::default());
    let to = queue.clone();
    all.services.listen(move |change| change.states().for_each(|service| to.add(Key::of(&**service))));
    let (to, services) = (queue.clone(), all.services.clone());
    all.pods.listen(move |change| {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && view(old) == view(new)
        {
            return;
        }
        let namespace = change.states().find_map(|pod| pod.metadata.namespace.clone()).unwrap_or_default();
        for service in services.within(&namespace) {
            if change.states().any(|pod| address::selects(&service, pod)) {
                to.add(Key::of(&*service));
            }
        }
    });
    let to = queue.clone();
    all.slices.listen(move |change| {
        for slice in change.states() {
            if let Some(service) = slices::service_of(slice) {
                to.add(Key::new(slice.metadata.namespace.as_deref().unwrap_or_default(), service));
            }
        }
    });
    let to = queue.clone();
    all.endpoints.listen(move |change| change.states().for_each(|endpoints| to.add(Key::of(&**endpoints))));
    let stop = setting.stop.clone();
    Box::pin(async move {
        all.services.ready().await;
        all.pods.ready().await;
        all.nodes.ready().await;
        all.slices.ready().await;
        all.endpoints.ready().await;
        work("endpointslice", queue, all, stop).await;
    })
}

/// What Services see of a Pod: the rest of it may change without them.
fn view(pod: &Pod) -> impl PartialEq + '_ {
    let status = pod.status.as_ref();
    (
        (&pod.metadata.uid, &pod.metadata.labels, pod::is_deleting(pod), pod::is_finished(pod), pod::is_ready(pod)),
        (status.and_then(|status| status.pod_ip.as_ref()), status.and_then(|status| status.pod_ips.as_ref())),
        pod::node(pod),
    )
}

struct Slices {
    client: Client,
    /// For Endpoints, which are another account's.
    old_client: Client,
    recorder: Recorder,
    services: Arc<Cache<Service>>,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
    slices: Arc<Cache<EndpointSlice>>,
    endpoints: Arc<Cache<Endpoints>>,
    written: Written,
}

impl Reconciler for Slices {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        if !self.written.is_shown(key) {
            return Ok(Some(LATE));
        }
        let all = self.slices.within(&key.namespace);
        let mine: Vec<&EndpointSlice> = all
            .iter()
            .map(|slice| &**slice)
            .filter(|slice| slices::service_of(slice) == Some(key.name.as_str()))
            .collect();
        let Some(service) = self.services.get(key) else {
            self.written.forget(key);
            return self.clean_up(key, &mine).await;
        };
        let pods = self.pods.within(&key.namespace);
        let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).filter(|pod| address::selects(&service, pod)).collect();
        let plan = slices::decide(&service, &pods, &mine, &self.zones());
        let endpoints = subsets::decide(&service, &pods, self.endpoints.get(key).as_deref());
        let (slices, endpoints) =
            futures::future::join(self.write(key, plan, &mine), self.write_endpoints(key, endpoints)).await;
        if let Err(error) = slices.and(endpoints) {
            if !error.is_conflict() {
                let message = format!("Error updating Endpoint Slices for Service {key}: {error}");
                self.recorder.tell(&*service, Weight::Warning, "FailedToUpdateEndpointSlices", message);
            }
            return Err(error);
        }
        Ok(None)
    }
}

impl Slices {
    fn zones(&self) -> BTreeMap<String, String> {
        let nodes = self.nodes.all();
        let zone = |node: &Arc<Node>| {
            let zone = node.metadata.labels.as_ref()?.get(ZONE)?.clone();
            Some((node.metadata.name.clone()?, zone))
        };
        nodes.iter().filter_map(zone).collect()
    }

    async fn write(&self, key: &Key, plan: slices::Plan, mine: &[&EndpointSlice]) -> Result<(), Error> {
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.namespace);
        for slice in &plan.create {
            match api.create(&PostParams::default(), slice).await {
                Ok(made) => self.written.wrote(key, &self.slices, &made),
                Err(error) if is_going(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for slice in &plan.update {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            let made = api.replace(name, &PostParams::default(), slice).await?;
            self.written.wrote(key, &self.slices, &made);
        }
        let gone =
            mine.iter().filter(|slice| slice.metadata.name.as_ref().is_some_and(|name| plan.delete.contains(name)));
        join_all(gone.map(|slice| self.delete_slice(key, slice))).await.into_iter().collect()
    }

    async fn delete_slice(&self, key: &Key, slice: &EndpointSlice) -> Result<(), Error> {
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.namespace);
        match api
            .delete(slice.metadata.name.as_deref().unwrap_or_default(), &this_one(slice.metadata.uid.clone()))
            .await
        {
            Err(error) if !matches!(code(&error), 404 | 409) => Err(error.into()),
            _ => {
                self.written.deleted(key, &self.slices, slice);
                Ok(())
            }
        }
    }

    async fn write_endpoints(&self, key: &Key, wanted: Option<Endpoints>) -> Result<(), Error> {
        let Some(wanted) = wanted else { return Ok(()) };
        let api: Api<Endpoints> = Api::namespaced(self.old_client.clone(), &key.namespace);
        let written = match wanted.metadata.resource_version {
            Some(_) => api.replace(&key.name, &PostParams::default(), &wanted).await,
            None => api.create(&PostParams::default(), &wanted).await,
        };
        match written {
            Ok(made) => self.written.wrote(key, &self.endpoints, &made),
            Err(error) if is_going(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// A Service that is gone takes along what was made for it.
    async fn clean_up(&self, key: &Key, mine: &[&EndpointSlice]) -> Result<Option<Duration>, Error> {
        for slice in mine {
            self.delete_slice(key, slice).await?;
        }
        if let Some(endpoints) = self.endpoints.get(key).filter(|endpoints| subsets::is_ours(endpoints)) {
            let api: Api<Endpoints> = Api::namespaced(self.old_client.clone(), &key.namespace);
            match api.delete(&key.name, &this_one(endpoints.metadata.uid.clone())).await {
                Err(error) if !matches!(code(&error), 404 | 409) => return Err(error.into()),
                _ => {}
            }
        }
        self.written.forget(key);
        Ok(None)
    }
}

fn this_one(uid: Option<String>) -> DeleteParams {
    DeleteParams { preconditions: Some(Preconditions { uid, resource_version: None }), ..DeleteParams::default() }
}
