//! EndpointSlices and Endpoints: the addresses behind each Service.

mod address;
mod mirror;
#[cfg(test)]
mod mirror_tests;
mod mirroring;
#[cfg(test)]
mod model;
mod slices;
mod subsets;
#[cfg(test)]
mod tests;
mod writer;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::{
    core::v1::{Endpoints, Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client, api::PostParams};

pub use self::mirroring::controller as mirroring;
use self::writer::{Writer, this_one};
#[cfg(test)]
pub use self::{mirror_tests::CASES as MIRRORING, tests::CASES};

use crate::{Setting, pod};
use controllers::{
    Controller, Error, Reconciler,
    cache::{Cache, Key},
    code,
    dependents::is_namespace_terminating,
    events::{Recorder, Weight},
    written::{CACHE_RETRY, Written},
};

const ZONE: &str = "topology.kubernetes.io/zone";

pub fn controller(setting: &mut Setting) -> Controller {
    let (client, recorder) = setting.actor("endpointslice-controller", "endpoint-slice-controller");
    let (old_client, _) = setting.actor("endpoint-controller", "endpoint-controller");
    let mut builder = setting.builder("endpointslice-controller");
    let all = Slices {
        writer: Writer { client, slices: builder.read(), written: Written::default() },
        old_client,
        recorder,
        services: builder.reconcile(),
        pods: builder.read(),
        nodes: builder.read(),
        endpoints: builder.reconcile(),
    };
    let services = all.services.clone();
    builder.on(&all.pods, move |change, queue| {
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && view(old) == view(new)
        {
            return;
        }
        let namespace = change.states().find_map(|pod| pod.metadata.namespace.clone()).unwrap_or_default();
        for service in services.within(&namespace) {
            if change.states().any(|pod| address::selects(&service, pod)) {
                queue.add(Key::of(&*service));
            }
        }
    });
    all.writer.listen(&builder, slices::CONTROLLER);
    builder.build(all)
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
    writer: Writer,
    /// For Endpoints, which are another account's.
    old_client: Client,
    recorder: Recorder,
    services: Arc<Cache<Service>>,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
    endpoints: Arc<Cache<Endpoints>>,
}

impl Reconciler for Slices {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        if !self.writer.written.is_shown(key) {
            return Ok(Some(CACHE_RETRY));
        }
        let all = self.writer.of_service(key, slices::CONTROLLER);
        let mine: Vec<&EndpointSlice> = all.iter().map(|slice| &**slice).collect();
        let Some(service) = self.services.get(key) else {
            self.writer.written.forget(key);
            return self.clean_up(key, &mine).await;
        };
        let pods = self.pods.within(&key.namespace);
        let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).filter(|pod| address::selects(&service, pod)).collect();
        let plan = slices::decide(&service, &pods, &mine, &self.zones());
        let endpoints = subsets::decide(&service, &pods, self.endpoints.get(key).as_deref());
        let (slices, endpoints) =
            futures::future::join(self.writer.write(key, plan, &mine), self.write_endpoints(key, endpoints)).await;
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

    async fn write_endpoints(&self, key: &Key, wanted: Option<Endpoints>) -> Result<(), Error> {
        let Some(wanted) = wanted else { return Ok(()) };
        let api: Api<Endpoints> = Api::namespaced(self.old_client.clone(), &key.namespace);
        let written = match wanted.metadata.resource_version {
            Some(_) => api.replace(&key.name, &PostParams::default(), &wanted).await,
            None => api.create(&PostParams::default(), &wanted).await,
        };
        match written {
            Ok(made) => self.writer.written.wrote(key, &self.endpoints, &made),
            Err(error) if is_namespace_terminating(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// A Service that is gone takes along what was made for it.
    async fn clean_up(&self, key: &Key, mine: &[&EndpointSlice]) -> Result<Option<Duration>, Error> {
        for slice in mine {
            self.writer.delete(key, slice).await?;
        }
        if let Some(endpoints) = self.endpoints.get(key).filter(|endpoints| subsets::is_ours(endpoints)) {
            let api: Api<Endpoints> = Api::namespaced(self.old_client.clone(), &key.namespace);
            match api.delete(&key.name, &this_one(endpoints.metadata.uid.clone())).await {
                Err(error) if !matches!(code(&error), 404 | 409) => return Err(error.into()),
                _ => {}
            }
        }
        self.writer.written.forget(key);
        Ok(None)
    }
}
