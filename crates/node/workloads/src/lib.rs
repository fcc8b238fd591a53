//! The controllers of Kubernetes' workload kinds: from what was placed to Pods, and back to status.
//!
//! Each controller is a pure function from what is there to what has to be done, with a model that checks it under random orders
//! of events, and a thin rim of `kube-runtime` that reads and writes any Kubernetes API.

mod autoscale;
mod bounds;
mod cache;
#[cfg(test)]
mod conformance;
mod cronjob;
mod daemonset;
mod dependents;
mod deployment;
mod disruption;
mod endpoints;
mod events;
mod hash;
mod job;
mod nodes;
mod note;
mod owner;
mod pod;
mod podgc;
mod quantity;
mod queue;
mod replicaset;
mod revision;
mod scheduler;
mod statefulset;
mod volumes;
mod which;
mod worker;
#[cfg(test)]
mod world;
mod written;

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use kube::Client;
use tokio::{sync::watch, task::JoinSet};

pub use volumes::make_default_class;
pub use which::{Controller, Unknown, which};

use crate::{
    cache::Caches,
    events::{Events, Recorder},
};

/// A client for whoever asks, by the name of its account in `kube-system`: every controller acts with rights of its own. A name with a
/// colon is a user's, like `system:kube-scheduler`.
pub type Clients = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// What all caches are read with: it may list and watch everything, and hardly anything else.
const READER: &str = "system:kube-controller-manager";

/// What a controller is made from.
struct Setting {
    clients: Clients,
    caches: Caches,
    events: Events,
    options: Options,
    stop: watch::Receiver<bool>,
}

/// What can be set of controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// So many Pods that have ended are kept, or all if that is 0.
    pub terminated_pods: usize,
    /// Where volumes are directories of this machine; none where its node cannot use them.
    pub volumes: Option<PathBuf>,
    /// How often each HorizontalPodAutoscaler is looked at.
    pub autoscaler_period: Duration,
}

impl Default for Options {
    /// Upstream keeps 12,500, which is more than a small machine's whole memory.
    fn default() -> Self {
        Self { terminated_pods: 500, volumes: None, autoscaler_period: Duration::from_secs(15) }
    }
}

impl Setting {
    /// A client with the rights of an account, and what tells events as `component`.
    fn actor(&self, account: &str, component: &'static str) -> (Client, Recorder) {
        let client = (self.clients)(account);
        (client.clone(), self.events.recorder(client, component))
    }
}

/// Runs controllers until told to stop.
pub async fn run(clients: Clients, which: BTreeSet<Controller>, options: Options, mut stop: watch::Receiver<bool>) {
    let (events, writing) = Events::new();
    let caches = Caches::new(clients(READER), stop.clone());
    let mut setting = Setting { clients, caches, events, options, stop: stop.clone() };
    let mut tasks = JoinSet::new();
    for controller in which {
        match controller {
            Controller::Deployment => tasks.spawn(deployment::controller(&mut setting)),
            Controller::ReplicaSet => tasks.spawn(replicaset::controller(&mut setting)),
            Controller::ReplicationController => tasks.spawn(replicaset::of_controllers(&mut setting)),
            Controller::DaemonSet => tasks.spawn(daemonset::controller(&mut setting)),
            Controller::Disruption => tasks.spawn(disruption::controller(&mut setting)),
            Controller::Autoscaler => tasks.spawn(autoscale::controller(&mut setting)),
            Controller::NodeLifecycle => tasks.spawn(nodes::controller(&mut setting)),
            Controller::Scheduler => tasks.spawn(scheduler::controller(&mut setting)),
            Controller::StatefulSet => tasks.spawn(statefulset::controller(&mut setting)),
            Controller::Job => tasks.spawn(job::controller(&mut setting)),
            Controller::CronJob => tasks.spawn(cronjob::controller(&mut setting)),
            Controller::EndpointSlice => tasks.spawn(endpoints::controller(&mut setting)),
            Controller::EndpointSliceMirroring => tasks.spawn(endpoints::mirroring(&mut setting)),
            Controller::PodGarbageCollector => tasks.spawn(podgc::controller(&mut setting)),
            Controller::VolumeBinder => tasks.spawn(volumes::binder(&mut setting)),
            Controller::ClaimProtection => tasks.spawn(volumes::of_claims(&mut setting)),
            Controller::VolumeProtection => tasks.spawn(volumes::of_volumes(&mut setting)),
            Controller::EphemeralVolume => tasks.spawn(volumes::ephemeral(&mut setting)),
            Controller::LocalProvisioner => match setting.options.volumes.clone() {
                Some(dir) => tasks.spawn(volumes::directories(&mut setting, dir)),
                None => continue,
            },
        };
    }
    if tasks.is_empty() {
        return;
    }
    for watch in setting.caches.into_watches() {
        tasks.spawn(watch);
    }
    tasks.spawn(writing);
    loop {
        tokio::select! {
            // First: whoever ends because it was told to is not worth a word.
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            // Nothing ends by itself. Something that does would be missed by nobody until its work is.
            Some(ended) = tasks.join_next() => {
                let error = ended.err().map(|error| error.to_string());
                tracing::error!(error, "a controller ended; restart the agent, and report this");
            }
        }
    }
    tasks.shutdown().await;
}
