//! The Node object: registered, its status kept, and its lease renewed.

use std::{collections::BTreeMap, path::Path, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus, NodeSystemInfo},
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time},
    },
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{events::Recorder, run::Options};
use crate::{admit::Room, machine::whole_seconds, resources};

const LEASES: &str = "kube-node-lease";
const LEASE_EVERY: Duration = Duration::from_secs(10);
const LEASE_LASTS: i32 = 40;
/// The status is written at least so often; its lease says more often that the node is there.
const STATUS_EVERY: u32 = 30;
const RETRY: Duration = Duration::from_secs(2);

/// What this machine has.
#[derive(Clone, Debug)]
pub struct Machine {
    pub capacity: BTreeMap<String, Quantity>,
    info: NodeSystemInfo,
}

impl Machine {
    pub fn look(data: &Path, runtime: &str, max_pods: u32) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let meminfo = read("/proc/meminfo");
        let memory = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
        let memory = memory.trim().trim_end_matches(" kB").trim();
        let mut capacity = BTreeMap::from([
            ("cpu".to_owned(), Quantity(cpus.to_string())),
            ("memory".to_owned(), Quantity(format!("{}Ki", if memory.is_empty() { "0" } else { memory }))),
            ("pods".to_owned(), Quantity(max_pods.to_string())),
        ]);
        if let Ok(disk) = rustix::fs::statvfs(data) {
            let size = disk.f_blocks.saturating_mul(disk.f_frsize) / 1024;
            capacity.insert("ephemeral-storage".to_owned(), Quantity(format!("{size}Ki")));
        }
        let release = read("/etc/os-release");
        let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux");
        let info = NodeSystemInfo {
            architecture: architecture().to_owned(),
            boot_id: read("/proc/sys/kernel/random/boot_id"),
            container_runtime_version: runtime.to_owned(),
            kernel_version: read("/proc/sys/kernel/osrelease"),
            kube_proxy_version: String::new(),
            kubelet_version: format!("v1.36.0+selvedge-{}", env!("CARGO_PKG_VERSION")),
            machine_id: read("/etc/machine-id"),
            operating_system: "linux".to_owned(),
            os_image: pretty.trim_matches('"').to_owned(),
            system_uuid: read("/etc/machine-id"),
            ..NodeSystemInfo::default()
        };
        Self { capacity, info }
    }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Keeps the Node and its lease until dropped. Whoever admits pods hears of its labels.
pub async fn keep(options: Options, machine: Machine, recorder: Recorder, room: watch::Sender<Room>) {
    let nodes: Api<Node> = Api::all(options.client.clone());
    let node = loop {
        match register(&nodes, &options, &machine).await {
            Ok(node) => break node,
            Err(error) => {
                tracing::warn!(%error, node = options.node, "the node could not be registered; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    };
    room.send_replace(room_of(&node, &machine));
    recorder.of_node(&options.node, "Starting", "Starting the runner of pods.".to_owned());
    let mut rounds = 0_u32;
    loop {
        if rounds.is_multiple_of(STATUS_EVERY) {
            match write_status(&nodes, &options, &machine).await {
                Ok(node) => _ = room.send_replace(room_of(&node, &machine)),
                Err(kube::Error::Api(error)) if error.code == 404 => {
                    // Somebody deleted it: it comes back, as a kubelet's does when it is restarted.
                    tracing::warn!(node = options.node, "the Node object is gone; registering again");
                    let _ = register(&nodes, &options, &machine).await;
                }
                Err(error) => tracing::warn!(%error, "the node's status could not be written"),
            }
        }
        if let Err(error) = renew(&options.client, &options.node, &node).await {
            tracing::warn!(%error, "the node's lease could not be renewed");
        }
        rounds = rounds.wrapping_add(1);
        tokio::time::sleep(LEASE_EVERY).await;
    }
}

/// The node as the API has it now.
pub async fn look_again(client: &Client, name: &str, machine: &Machine) -> Option<Room> {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.get(name).await.ok().map(|node| room_of(&node, machine))
}

pub fn room_of(node: &Node, machine: &Machine) -> Room {
    Room {
        name: node.metadata.name.clone().unwrap_or_default(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        allocatable: resources::numbers(Some(&machine.capacity)),
    }
}

fn labels(options: &Options) -> BTreeMap<String, String> {
    let mut labels = options.labels.clone();
    for (name, value) in [
        ("kubernetes.io/hostname", options.node.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture()),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", architecture()),
    ] {
        labels.insert(name.to_owned(), value.to_owned());
    }
    labels
}

async fn register(nodes: &Api<Node>, options: &Options, machine: &Machine) -> kube::Result<Node> {
    let labels = labels(options);
    if let Some(known) = nodes.get_opt(&options.node).await? {
        let has = known.metadata.labels.clone().unwrap_or_default();
        if labels.iter().all(|(name, value)| has.get(name) == Some(value)) {
            return Ok(known);
        }
        let patch = json!({"metadata": {"labels": labels}});
        return nodes.patch(&options.node, &PatchParams::default(), &Patch::Merge(patch)).await;
    }
    let annotations = [("volumes.kubernetes.io/controller-managed-attach-detach".to_owned(), "true".to_owned())];
    let node = Node {
        metadata: ObjectMeta {
            name: Some(options.node.clone()),
            labels: Some(labels),
            annotations: Some(annotations.into()),
            ..ObjectMeta::default()
        },
        spec: None,
        status: Some(status(options, machine, None)),
    };
    nodes.create(&PostParams::default(), &node).await
}

async fn write_status(nodes: &Api<Node>, options: &Options, machine: &Machine) -> kube::Result<Node> {
    let known = nodes.get(&options.node).await?;
    let status = status(options, machine, known.status.as_ref());
    let patch: Value = json!({"status": status});
    nodes.patch_status(&options.node, &PatchParams::default(), &Patch::Strategic(patch)).await
}

fn status(options: &Options, machine: &Machine, known: Option<&NodeStatus>) -> NodeStatus {
    let now = whole_seconds(Timestamp::now());
    let conditions = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ];
    let since = |name: &str, value: &str| {
        let mut before = known.into_iter().filter_map(|known| known.conditions.as_ref()).flatten();
        let before = before.find(|condition| condition.type_ == name && condition.status == value);
        before.and_then(|condition| condition.last_transition_time.clone()).unwrap_or(Time(now))
    };
    let address = |kind: &str, address: String| NodeAddress { type_: kind.to_owned(), address };
    let port = options.port.map(|port| DaemonEndpoint { port: i32::from(port) });
    NodeStatus {
        addresses: Some(vec![
            address("InternalIP", options.address.to_string()),
            address("Hostname", options.node.clone()),
        ]),
        allocatable: Some(machine.capacity.clone()),
        capacity: Some(machine.capacity.clone()),
        conditions: Some(
            conditions
                .into_iter()
                .map(|(name, value, reason, message)| NodeCondition {
                    type_: name.to_owned(),
                    status: value.to_owned(),
                    reason: Some(reason.to_owned()),
                    message: Some(message.to_owned()),
                    last_heartbeat_time: Some(Time(now)),
                    last_transition_time: Some(since(name, value)),
                })
                .collect(),
        ),
        daemon_endpoints: port.map(|port| NodeDaemonEndpoints { kubelet_endpoint: Some(port) }),
        node_info: Some(machine.info.clone()),
        ..NodeStatus::default()
    }
}

async fn renew(client: &Client, name: &str, node: &Node) -> kube::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let now = MicroTime(Timestamp::now());
    let patch = json!({"spec": {"renewTime": now, "holderIdentity": name, "leaseDurationSeconds": LEASE_LASTS}});
    match leases.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(error)) if error.code == 404 => {}
        other => return other.map(|_| ()),
    }
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: name.to_owned(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(LEASES.to_owned()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: Some(LEASE_LASTS),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    };
    leases.create(&PostParams::default(), &lease).await.map(|_| ())
}
