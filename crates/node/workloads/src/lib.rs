//! The controllers of Kubernetes' workload kinds: from what was placed to Pods, and back to status.
//!
//! Each controller is a pure function from the state to the next steps, with a model that checks it under random orders
//! of events, and a thin rim that reads and writes any Kubernetes API: see the crate `controllers`.

mod autoscale;
mod bounds;
#[cfg(test)]
mod conformance;
mod cronjob;
mod daemonset;
mod deployment;
mod disruption;
mod endpoints;
mod hash;
mod job;
mod nodes;
mod pod;
mod podgc;
mod quantity;
mod replicaset;
mod revision;
mod scheduler;
mod statefulset;
mod volumes;
mod which;
#[cfg(test)]
mod world;

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use controllers::{
    Builder,
    cache::Caches,
    events::{Events, Recorder},
};
use kube::Client;
use tasks::Tasks;
use tokio::sync::watch;

pub use volumes::make_default_class;
pub use which::{Controller, Unknown, which};

/// Makes a client for an account of `kube-system`: every controller acts with rights of its own. A name with a colon is
/// that of a user, like `system:kube-scheduler`.
pub type Clients = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// The user that all caches are read as: it may list and watch everything, and hardly anything else.
const READER: &str = "system:kube-controller-manager";

/// At the shutdown controllers are dropped where they wait, which takes no time.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The parts that all controllers share.
struct Setting {
    clients: Clients,
    caches: Caches,
    events: Events,
    options: Options,
}

/// What can be set of controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of Pods that have ended and are kept. 0 keeps all.
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
    /// A client with the rights of an account, and a recorder of Events that come from `component`.
    fn actor(&self, account: &str, component: &'static str) -> (Client, Recorder) {
        let client = (self.clients)(account);
        (client.clone(), self.events.recorder(client, component))
    }

    fn builder(&mut self, name: &'static str) -> Builder<'_> {
        Builder::new(name, &mut self.caches)
    }
}

/// Runs controllers until the shutdown.
pub async fn run(clients: Clients, which: BTreeSet<Controller>, options: Options, mut stop: watch::Receiver<bool>) {
    let tasks = Tasks::following(stop.clone());
    let (events, caches) = (Events::start(&tasks), Caches::new(clients(READER)));
    let mut setting = Setting { clients, caches, events, options };
    let chosen: Vec<controllers::Controller> =
        which.into_iter().filter_map(|controller| make(controller, &mut setting)).collect();
    chosen.into_iter().for_each(|controller| controller.start(&tasks));
    setting.caches.start(&tasks);
    // An error says that the sender is gone: then the process is stopping as well.
    let _ = stop.wait_for(|stop| *stop).await;
    tasks.stop(STOP_TIMEOUT).await;
}

/// `None` for a controller that has nothing to do on this machine.
fn make(controller: Controller, setting: &mut Setting) -> Option<controllers::Controller> {
    Some(match controller {
        Controller::Deployment => deployment::controller(setting),
        Controller::ReplicaSet => replicaset::controller(setting),
        Controller::ReplicationController => replicaset::of_controllers(setting),
        Controller::DaemonSet => daemonset::controller(setting),
        Controller::Disruption => disruption::controller(setting),
        Controller::Autoscaler => autoscale::controller(setting),
        Controller::NodeLifecycle => nodes::controller(setting),
        Controller::Scheduler => scheduler::controller(setting),
        Controller::StatefulSet => statefulset::controller(setting),
        Controller::Job => job::controller(setting),
        Controller::CronJob => cronjob::controller(setting),
        Controller::EndpointSlice => endpoints::controller(setting),
        Controller::EndpointSliceMirroring => endpoints::mirroring(setting),
        Controller::PodGarbageCollector => podgc::controller(setting),
        Controller::VolumeBinder => volumes::binder(setting),
        Controller::ClaimProtection => volumes::of_claims(setting),
        Controller::VolumeProtection => volumes::of_volumes(setting),
        Controller::EphemeralVolume => volumes::ephemeral(setting),
        Controller::LocalProvisioner => volumes::directories(setting, setting.options.volumes.clone()?),
    })
}
