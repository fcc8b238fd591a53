//! `--runtime process`: the node that is part of the agent. Its pods are processes of this machine.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use pods::{Pods, runtime::Runtime};
use processes::{Images, Processes};
use server::{Server, identity::User};
use services::Network;
use tokio::sync::watch;

use crate::inside;

const RETRY: Duration = Duration::from_secs(5);
/// Processes are small, and a machine bears more of them than a kubelet's 110 containers.
const MAX_PODS: u32 = 250;

/// What is said of the node on the command line and in the configuration.
#[derive(Clone)]
pub struct Process {
    /// The edge's.
    pub data_dir: PathBuf,
    pub images: Images,
}

impl Process {
    /// Runs the pods of a node of this name until told to stop. They go on without it.
    pub async fn run(self, name: String, server: Arc<Server>, stop: watch::Receiver<bool>) {
        let mut stopped = stop.clone();
        let running = async {
            let data_dir = std::path::absolute(&self.data_dir).unwrap_or_else(|_| self.data_dir.clone());
            let network = self.network(&data_dir).await;
            let runtime = self.runtime(&data_dir, &name, network).await;
            let client = inside::client(&server, User::node(&name));
            let options = pods::Options {
                node: name,
                data_dir,
                client,
                runtime,
                address: IpAddr::V4(network.node()),
                port: None,
                labels: Default::default(),
                environment: Vec::new(),
                max_pods: MAX_PODS,
                pods: Pods::default(),
            };
            pods::run(options, stop.clone()).await;
        };
        tokio::select! {
            () = running => {}
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    }

    /// The edge's part of the loopback network.
    async fn network(&self, data_dir: &Path) -> Network {
        loop {
            match Network::of(data_dir) {
                Ok(network) => return network,
                Err(error) => {
                    tracing::error!(%error, "no pod can be run; trying again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Until there is one.
    async fn runtime(&self, data_dir: &Path, name: &str, network: Network) -> Arc<dyn Runtime> {
        let options = processes::Options {
            range: Some(network.pods()),
            images: self.images.clone(),
            node: name.to_owned(),
            edge: name.to_owned(),
            ..processes::Options::new(data_dir)
        };
        loop {
            match Processes::start(options.clone()).await {
                Ok(processes) => return processes,
                Err(error) => {
                    tracing::error!(%error, "no container can be run; trying again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}
