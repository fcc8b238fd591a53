//! `--runtime process`: the node that is part of the agent. Its pods are processes of this machine.

use std::{
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ::edge::node::Top;
use identity::User;
use network::{Network, Services};
use node_api::Node;
use pods::{Pods, runtime::Runtime};
use processes::{Image, Images, Processes};
use serde::{Deserialize, Serialize};
use server::range::Range;
use server::{Mount, Server};
use tokio::sync::watch;

use crate::inside;

const RETRY: Duration = Duration::from_secs(5);
/// Processes are small, and a machine bears more of them than a kubelet's 110 containers.
const MAX_PODS: u32 = 250;
/// Of the Service `kubernetes`, which has the first address of all.
const API_PORT: u16 = 443;

/// What is said of the node on the command line and in the configuration.
#[derive(Clone)]
pub struct Process {
    /// The edge's.
    pub data_dir: PathBuf,
    pub images: Images,
    /// The part of the loopback network that is the edge's own.
    pub network: Network,
    /// For `kubectl top`.
    pub top: Arc<Top>,
}

/// What a configuration file says of an image.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Mapped {
    Command(Vec<String>),
    Image(Image),
}

impl Mapped {
    /// A command where that says it all.
    pub fn of(image: Image) -> Self {
        match image == Image::from(image.entrypoint.clone()) {
            true => Self::Command(image.entrypoint),
            false => Self::Image(image),
        }
    }
}

impl From<Mapped> for Image {
    fn from(mapped: Mapped) -> Self {
        match mapped {
            Mapped::Command(words) => words.into(),
            Mapped::Image(image) => image,
        }
    }
}

impl Process {
    /// What the server serves for the node, when there is one.
    pub fn mount(&self) -> Arc<dyn Mount> {
        self.top.clone()
    }

    /// Runs the pods of a node of this name until told to stop. They go on without it.
    pub async fn run(self, name: String, server: Arc<Server>, stop: watch::Receiver<bool>) {
        let mut stopped = stop.clone();
        let running = async {
            let data_dir = std::path::absolute(&self.data_dir).unwrap_or_else(|_| self.data_dir.clone());
            let client = inside::client(&server, User::node(&name));
            let services = self.services(&name, &server).await;
            let runtime = self.runtime(&data_dir, &name).await;
            let pods = Pods::default();
            let answers = node_api::Options {
                name: name.clone(),
                pods: pods.clone(),
                runtime: runtime.clone(),
                logs: data_dir.join("logs"),
            };
            ::edge::node::answer(&server, &self.top, Node::new(answers)).await;
            let resolver = services.as_ref().map(Services::dns);
            let environment = resolver.iter().map(|at| ("SELVEDGE_DNS".to_owned(), at.to_string())).collect();
            let options = pods::Options {
                node: name,
                data_dir,
                client,
                runtime,
                address: self.network.node().into(),
                port: None,
                labels: Default::default(),
                environment,
                api: self.api_elsewhere(&server),
                resolver,
                max_pods: MAX_PODS,
                pods,
            };
            let serving = async {
                if let Some(services) = services {
                    services.run(stop.clone()).await;
                }
            };
            tokio::join!(pods::run(options, stop.clone()), serving);
        };
        tokio::select! {
            () = running => {}
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    }

    /// Where Pods find the API if nobody may listen where its Service is: ports below 1024 may be another's.
    fn api_elsewhere(&self, server: &Server) -> Option<SocketAddr> {
        let (base, bits) = self.network.services();
        let service = Range::new(base, bits).first();
        let error = TcpListener::bind((service, API_PORT)).err()?;
        let ip = if server.address.ip().is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { server.address.ip() };
        (error.kind() == ErrorKind::PermissionDenied).then_some(SocketAddr::new(ip, server.address.port()))
    }

    /// None if even the resolver cannot listen: Pods run all the same.
    async fn services(&self, name: &str, server: &Arc<Server>) -> Option<Services> {
        let options = network::Options {
            client: inside::clients(server)("system:kube-proxy"),
            node_client: inside::client(server, User::node(name)),
            network: self.network,
            node_name: name.to_owned(),
            also_on: Vec::new(),
        };
        let listening = network::listen(options).await;
        listening.inspect_err(|error| tracing::error!(%error, at = %self.network.dns(), "no Service can be reached: the resolver cannot listen")).ok()
    }

    /// Until there is one.
    async fn runtime(&self, data_dir: &Path, name: &str) -> Arc<dyn Runtime> {
        let options = processes::Options {
            range: Some(self.network.pods()),
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
