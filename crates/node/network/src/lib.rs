//! Services on an edge without root: a user-space proxy for their addresses, and a resolver for their names.

mod dns;
pub mod network;
mod proxy;
mod table;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use backoff::{Backoff, Schedule};
use futures::StreamExt;
use k8s_openapi::api::{
    core::v1::{ObjectReference, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, Resource,
    runtime::{
        events::{self, EventType, Recorder, Reporter},
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use tasks::Tasks;
use tokio::sync::{Notify, watch};

/// For the fuzz target, which reads questions and writes answers.
pub use dns::message as dns_message;
pub use network::Network;

use crate::{
    dns::Resolver,
    proxy::{Proxy, Shut},
    table::{Address, Known, Name, Owner, Slice, host_ports},
};

/// Changes come in bursts: a table is made once for those of so long.
const TOGETHER: Duration = Duration::from_millis(20);
/// A door that could not be opened is tried again after so long.
const AGAIN: Duration = Duration::from_secs(15);
const WATCH_RETRY: Schedule = Schedule::new(Duration::from_millis(100), Duration::from_secs(30));
/// How soon a task starts again after a panic.
const RESTART: Schedule = Schedule::new(Duration::from_millis(100), Duration::from_secs(60));
/// The tasks are dropped where they wait, which takes no time.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

pub struct Options {
    /// As `system:kube-proxy`: reads Services and EndpointSlices, and tells events.
    pub client: Client,
    /// As the node: reads its Pods.
    pub node_client: Client,
    pub network: Network,
    /// Whose Pods' host ports are opened.
    pub node_name: String,
    /// Further addresses of this machine that node ports and host ports are open on, besides the node's own.
    pub also_on: Vec<IpAddr>,
}

/// What is known, for who answers and who proxies.
#[derive(Clone, Default)]
struct Shared {
    known: Arc<RwLock<Known>>,
    changed: Arc<Notify>,
}

impl Shared {
    fn read<T>(&self, ask: impl FnOnce(&Known) -> T) -> T {
        ask(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: impl FnOnce(&mut Known) -> bool) {
        if change(&mut self.known.write().unwrap_or_else(PoisonError::into_inner)) {
            self.changed.notify_one();
        }
    }
}

/// What is being served.
pub struct Services {
    resolver: Resolver,
    shared: Shared,
    options: Options,
}

/// Takes the resolver's address, so that Pods can be told of it before anything runs.
pub async fn listen(options: Options) -> io::Result<Services> {
    let shared = Shared::default();
    let resolver = Resolver::listen(options.network.dns(), shared.clone()).await?;
    Ok(Services { resolver, shared, options })
}

impl Services {
    /// Where the resolver answers.
    pub fn dns(&self) -> SocketAddr {
        self.resolver.at
    }

    /// Serves until the shutdown.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let tasks = Tasks::following(stop.clone());
        let (resolver, options, shared) = (Arc::new(self.resolver), Arc::new(self.options), self.shared);
        let (client, known) = (options.client.clone(), shared.clone());
        tasks.spawn_until_shutdown("service-watch", RESTART, move || {
            let api = Api::<Service>::all(client.clone());
            follow(api, watcher::Config::default(), known.clone(), Address::of, |known| &mut known.services)
        });
        let (client, known) = (options.client.clone(), shared.clone());
        tasks.spawn_until_shutdown("service-watch", RESTART, move || {
            let api = Api::<EndpointSlice>::all(client.clone());
            follow(api, watcher::Config::default(), known.clone(), Slice::of, |known| &mut known.slices)
        });
        let (client, known) = (options.node_client.clone(), shared.clone());
        let mine = watcher::Config::default().fields(&format!("spec.nodeName={}", options.node_name));
        tasks.spawn_until_shutdown("service-watch", RESTART, move || {
            let api = Api::<Pod>::all(client.clone());
            follow(api, mine.clone(), known.clone(), pod_ports, |known| &mut known.pods)
        });
        tasks.spawn_until_shutdown("dns-resolver", RESTART, move || resolver.clone().serve());
        let group = tasks.clone();
        tasks.spawn_until_shutdown("service-proxy", RESTART, move || {
            keep_doors(shared.clone(), options.clone(), group.clone())
        });
        // An error says that the sender is gone: then the process is stopping as well.
        let _ = stop.wait_for(|stop| *stop).await;
        tasks.stop(STOP_TIMEOUT).await;
    }
}

/// The host ports of a Pod. Most have none, and need not be remembered.
fn pod_ports(pod: &Pod) -> Option<(Name, table::HostPorts)> {
    let name = (pod.metadata.namespace.clone()?, pod.metadata.name.clone()?);
    let ports = host_ports(pod);
    (!ports.is_empty()).then_some((name, ports))
}

async fn keep_doors(shared: Shared, options: Arc<Options>, tasks: Tasks) {
    let node: Vec<IpAddr> =
        std::iter::once(options.network.node().into()).chain(options.also_on.iter().copied()).collect();
    let (base, bits) = options.network.services();
    let mask = u32::MAX << (32 - u32::from(bits));
    let is_ours = |ip: IpAddr| matches!(ip, IpAddr::V4(ip) if u32::from(ip) & mask == u32::from(base));
    let mut proxy = Proxy::new(tasks);
    let reporter = Reporter { controller: "selvedge-services".into(), instance: Some(options.node_name.clone()) };
    let recorder = Recorder::new(options.client.clone(), reporter);
    loop {
        let table = shared.read(|known| known.table(&node, is_ours));
        for shut in proxy.set(table).await {
            tracing::warn!(of = %shut.of, protocol = shut.door.protocol.name(), "{}", shut.why);
            tell(&recorder, &shut).await;
        }
        let changed = shared.changed.notified();
        match proxy.has_trouble() {
            true => drop(tokio::time::timeout(AGAIN, changed).await),
            false => changed.await,
        }
        tokio::time::sleep(TOGETHER).await;
    }
}

/// People look at the Service, not into the log.
async fn tell(recorder: &Recorder, shut: &Shut) {
    let event = events::Event {
        type_: EventType::Warning,
        reason: "FailedToListen".into(),
        note: Some(shut.why.clone()),
        action: "Listen".into(),
        secondary: None,
    };
    let Owner { kind, namespace, name } = &shut.of;
    let about = ObjectReference {
        api_version: Some("v1".into()),
        kind: Some((*kind).into()),
        namespace: Some(namespace.clone()),
        name: Some(name.clone()),
        ..ObjectReference::default()
    };
    if let Err(error) = recorder.publish(&event, &about).await {
        tracing::debug!(%error, "an event was not written");
    }
}

/// Keeps one kind, as much of it as is needed, until it is dropped.
async fn follow<K, V>(
    api: Api<K>,
    config: watcher::Config,
    shared: Shared,
    take: impl Fn(&K) -> Option<(Name, V)>,
    within: impl Fn(&mut Known) -> &mut BTreeMap<Name, V>,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    V: PartialEq,
{
    let mut stream = Box::pin(watcher(api, config));
    let mut listing: BTreeMap<Name, V> = BTreeMap::new();
    let mut backoff = Backoff::following(WATCH_RETRY);
    let name = |object: &K| {
        let meta = object.meta();
        (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    };
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::Init) => listing.clear(),
            Ok(Event::InitApply(object)) => listing.extend(take(&object)),
            Ok(Event::InitDone) => {
                let listed = std::mem::take(&mut listing);
                shared.change(|known| {
                    *within(known) = listed;
                    true
                });
                backoff.reset();
            }
            Ok(Event::Apply(object)) => shared.change(|known| match take(&object) {
                Some((key, value)) => {
                    let all = within(known);
                    let is_new = all.get(&key) != Some(&value);
                    all.insert(key, value);
                    is_new
                }
                None => within(known).remove(&name(&object)).is_some(),
            }),
            Ok(Event::Delete(object)) => shared.change(|known| within(known).remove(&name(&object)).is_some()),
            Err(error) => {
                tracing::debug!(kind = %K::kind(&()), %error, "a watch failed; it begins again");
                tokio::time::sleep(backoff.next()).await;
            }
        }
    }
}
