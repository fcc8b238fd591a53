//! The Services of the cluster, of which only what variables tell is kept.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{PoisonError, RwLock},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher},
};
use tokio::sync::watch;

use crate::environment::{ServicePorts, Services};

const PATIENCE: Duration = Duration::from_secs(10);

pub struct Catalog {
    /// Where the API is, if not at the address of its Service.
    api: Option<SocketAddr>,
    known: RwLock<BTreeMap<(String, String), ServicePorts>>,
    is_read: watch::Sender<bool>,
}

impl Catalog {
    pub fn new(api: Option<SocketAddr>) -> Self {
        Self { api, known: RwLock::default(), is_read: watch::channel(false).0 }
    }

    /// Follows them until dropped.
    pub async fn follow(&self, client: Client) {
        let config = watcher::Config::default().fields("spec.clusterIP!=None");
        let mut events = watcher(Api::<Service>::all(client), config).default_backoff().boxed();
        let mut at_first = BTreeMap::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init) => at_first.clear(),
                Ok(watcher::Event::InitApply(service)) => at_first.extend(of(&service)),
                Ok(watcher::Event::InitDone) => {
                    *self.known.write().unwrap_or_else(PoisonError::into_inner) = std::mem::take(&mut at_first);
                    self.is_read.send_replace(true);
                }
                Ok(watcher::Event::Apply(service)) => {
                    let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
                    known.remove(&key(&service));
                    known.extend(of(&service));
                }
                Ok(watcher::Event::Delete(service)) => {
                    self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&key(&service));
                }
                Err(error) => tracing::debug!(%error, "cannot read the Services"),
            }
        }
    }

    /// Those that a pod is told of: the API's own, and with `links` all of its namespace.
    pub async fn seen_from(&self, namespace: &str, links: bool) -> Result<Services, String> {
        let mut is_read = self.is_read.subscribe();
        if !matches!(tokio::time::timeout(PATIENCE, is_read.wait_for(|is| *is)).await, Ok(Ok(_))) {
            return Err("services have not yet been read at least once, cannot construct envvars".to_owned());
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let is_seen = |of: &str, name: &str| of == namespace && links || of == "default" && name == "kubernetes";
        let seen = known.iter().filter(|((of, name), _)| is_seen(of, name));
        let mut found: Services = BTreeMap::new();
        for ((of, name), ports) in seen {
            // A Service of its own by that name comes before the API's.
            if of == namespace || !found.contains_key(name) {
                let elsewhere = self.api.filter(|_| of == "default" && name == "kubernetes").map(|api| at(api, ports));
                found.insert(name.clone(), elsewhere.unwrap_or_else(|| ports.clone()));
            }
        }
        Ok(found)
    }
}

fn at(api: SocketAddr, ports: &ServicePorts) -> ServicePorts {
    let ports = ports.ports.iter().map(|(name, protocol, _)| (name.clone(), protocol.clone(), api.port().into()));
    ServicePorts { address: api.ip(), ports: ports.collect() }
}

fn key(service: &Service) -> (String, String) {
    let metadata = &service.metadata;
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

fn of(service: &Service) -> Option<((String, String), ServicePorts)> {
    let spec = service.spec.as_ref()?;
    let address = spec.cluster_ip.as_deref()?.parse().ok()?;
    let ports = spec.ports.iter().flatten();
    let ports = ports.map(|port| {
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        (port.name.clone().unwrap_or_default(), protocol, port.port)
    });
    Some((key(service), ServicePorts { address, ports: ports.collect() }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(namespace: &str, name: &str, address: &str, port: u16) -> Service {
        let port = json!({"name": "https", "protocol": "TCP", "port": port});
        let spec = json!({"clusterIP": address, "ports": [port]});
        serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec})).unwrap()
    }

    async fn seen(api: Option<&str>) -> Services {
        let catalog = Catalog::new(api.map(|api| api.parse().unwrap()));
        let services = [service("default", "kubernetes", "127.9.128.1", 443), service("ns", "web", "127.9.128.7", 80)];
        catalog.known.write().unwrap().extend(services.iter().filter_map(of));
        catalog.is_read.send_replace(true);
        catalog.seen_from("ns", true).await.unwrap()
    }

    #[tokio::test]
    async fn the_api_is_told_where_it_can_be_reached() {
        for (api, address, port) in [(None, "127.9.128.1", 443), (Some("127.0.0.1:7443"), "127.0.0.1", 7443)] {
            let seen = seen(api).await;
            assert_eq!(
                (seen["kubernetes"].address.to_string().as_str(), seen["kubernetes"].ports[0].2),
                (address, port)
            );
            assert_eq!((seen["web"].address.to_string().as_str(), seen["web"].ports[0].2), ("127.9.128.7", 80));
        }
    }
}
