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
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

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

    /// Until told to stop.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let Self { resolver, shared, options } = self;
        let client = &options.client;
        let mine = watcher::Config::default().fields(&format!("spec.nodeName={}", options.node_name));
        let services =
            follow(Api::<Service>::all(client.clone()), watcher::Config::default(), &shared, Address::of, |known| {
                &mut known.services
            });
        let slices = follow(
            Api::<EndpointSlice>::all(client.clone()),
            watcher::Config::default(),
            &shared,
            Slice::of,
            |known| &mut known.slices,
        );
        let ports = |pod: &Pod| {
            let name = (pod.metadata.namespace.clone()?, pod.metadata.name.clone()?);
            let ports = host_ports(pod);
            // Most have none, and need not be remembered.
            (!ports.is_empty()).then_some((name, ports))
        };
        let pods = follow(Api::<Pod>::all(options.node_client.clone()), mine, &shared, ports, |known| &mut known.pods);
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => {}
            _ = async { tokio::join!(services, slices, pods, resolver.serve(), keep_doors(&shared, &options)) } => {}
        }
    }
}

async fn keep_doors(shared: &Shared, options: &Options) {
    let node: Vec<IpAddr> =
        std::iter::once(options.network.node().into()).chain(options.also_on.iter().copied()).collect();
    let (base, bits) = options.network.services();
    let mask = u32::MAX << (32 - u32::from(bits));
    let is_ours = |ip: IpAddr| matches!(ip, IpAddr::V4(ip) if u32::from(ip) & mask == u32::from(base));
    let mut proxy = Proxy::default();
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
    shared: &Shared,
    take: impl Fn(&K) -> Option<(Name, V)>,
    within: impl Fn(&mut Known) -> &mut BTreeMap<Name, V>,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    V: PartialEq,
{
    let mut stream = Box::pin(watcher(api, config));
    let mut listing: BTreeMap<Name, V> = BTreeMap::new();
    let mut wait = FIRST_WAIT;
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
                wait = FIRST_WAIT;
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
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
    }
}
