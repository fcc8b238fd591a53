//! What is listened for, and where it goes: from Services, their EndpointSlices and Pods with host ports. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    fn named(name: Option<&str>) -> Option<Self> {
        match name.unwrap_or("TCP") {
            "TCP" => Some(Self::Tcp),
            "UDP" => Some(Self::Udp),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// An address of this machine that somebody may come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Door {
    pub protocol: Protocol,
    pub at: SocketAddr,
}

/// Whose a door is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub kind: &'static str,
    pub namespace: String,
    pub name: String,
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// Where those who come are led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    pub of: Owner,
    pub endpoints: Vec<SocketAddr>,
    /// A client that comes again within this time is led to the same one.
    pub affinity: Option<Duration>,
}

pub type Table = BTreeMap<Door, Behind>;

/// `namespace/name`.
pub type Name = (String, String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub name: String,
    pub protocol: Protocol,
    pub port: u16,
    pub node_port: Option<u16>,
}

/// As much of a Service as is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// None: headless.
    pub ips: Vec<IpAddr>,
    pub ports: Vec<Port>,
    pub affinity: Option<Duration>,
    /// What it is another name for.
    pub external: Option<String>,
}

impl Address {
    pub fn of(service: &Service) -> Option<(Name, Self)> {
        let name = (service.metadata.namespace.clone()?, service.metadata.name.clone()?);
        let spec = service.spec.as_ref()?;
        let ips = spec.cluster_ips.iter().flatten().chain(spec.cluster_ip.as_ref()).filter_map(|ip| ip.parse().ok());
        let ips: BTreeSet<IpAddr> = ips.collect();
        let port = |number: i32| u16::try_from(number).ok().filter(|number| *number > 0);
        let ports = spec.ports.iter().flatten().filter_map(|one| {
            Some(Port {
                name: one.name.clone().unwrap_or_default(),
                protocol: Protocol::named(one.protocol.as_deref())?,
                port: port(one.port)?,
                node_port: one.node_port.and_then(port),
            })
        });
        let seconds =
            spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(10800);
        let is_external = spec.type_.as_deref() == Some("ExternalName");
        let address = Self {
            ips: if is_external { Vec::new() } else { ips.into_iter().collect() },
            ports: ports.collect(),
            affinity: (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| Duration::from_secs(seconds)),
            external: spec.external_name.clone().filter(|_| is_external),
        };
        Some((name, address))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub ip: IpAddr,
    pub hostname: Option<String>,
    pub ready: bool,
    /// Ends, but still answers: better than nobody.
    pub lingers: bool,
}

/// As much of an EndpointSlice as is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    pub service: Name,
    pub endpoints: Vec<Endpoint>,
    pub ports: Vec<(String, Protocol, u16)>,
}

impl Slice {
    pub fn of(slice: &EndpointSlice) -> Option<(Name, Self)> {
        let namespace = slice.metadata.namespace.clone()?;
        let service = slice.metadata.labels.as_ref()?.get("kubernetes.io/service-name")?.clone();
        let mut endpoints = Vec::new();
        for one in slice.endpoints.iter().flatten() {
            let conditions = one.conditions.clone().unwrap_or_default();
            // Not said means yes, as the API has it.
            let ready = conditions.ready.unwrap_or(true);
            let lingers = conditions.serving.unwrap_or(ready) && conditions.terminating.unwrap_or(false);
            for ip in one.addresses.iter().filter_map(|ip| ip.parse().ok()) {
                endpoints.push(Endpoint { ip, hostname: one.hostname.clone(), ready, lingers });
            }
        }
        let ports = slice.ports.iter().flatten().filter_map(|port| {
            let number = u16::try_from(port.port?).ok()?;
            Some((port.name.clone().unwrap_or_default(), Protocol::named(port.protocol.as_deref())?, number))
        });
        let own = (namespace.clone(), slice.metadata.name.clone()?);
        Some((own, Self { service: (namespace, service), endpoints, ports: ports.collect() }))
    }
}

/// The host ports of a Pod: who comes to them is led to the Pod.
pub type HostPorts = Vec<(Option<IpAddr>, Protocol, u16, SocketAddr)>;

pub fn host_ports(pod: &Pod) -> HostPorts {
    let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else { return Vec::new() };
    let ip: Option<IpAddr> = status.pod_ip.as_deref().and_then(|ip| ip.parse().ok());
    let Some(ip) = ip.filter(|_| status.phase.as_deref() == Some("Running") && spec.host_network != Some(true)) else {
        return Vec::new();
    };
    let sidecars = spec.init_containers.iter().flatten().filter(|one| one.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let all = ports.filter_map(|port| {
        let host = u16::try_from(port.host_port?).ok().filter(|port| *port > 0)?;
        let to = SocketAddr::new(ip, u16::try_from(port.container_port).ok()?);
        let on = port.host_ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok()).filter(|ip| !ip.is_unspecified());
        Some((on, Protocol::named(port.protocol.as_deref())?, host, to))
    });
    all.collect()
}

/// All that is known.
#[derive(Debug, Default)]
pub struct Known {
    pub services: BTreeMap<Name, Address>,
    pub slices: BTreeMap<Name, Slice>,
    pub pods: BTreeMap<Name, HostPorts>,
}

impl Known {
    fn slices_of<'a>(&'a self, service: &'a Name) -> impl Iterator<Item = &'a Slice> {
        self.slices.values().filter(move |slice| slice.service == *service)
    }

    /// Those who may be asked: who is ready, or else who is about to end but still answers.
    pub fn endpoints<'a>(&'a self, service: &'a Name) -> impl Iterator<Item = (&'a Slice, &'a Endpoint)> {
        let all = move || self.slices_of(service).flat_map(|slice| slice.endpoints.iter().map(move |one| (slice, one)));
        let any_ready = all().any(|(_, one)| one.ready);
        all().filter(move |(_, one)| if any_ready { one.ready } else { one.lingers })
    }

    fn behind(&self, service: &Name, address: &Address, port: &Port) -> Behind {
        let mut endpoints = Vec::new();
        for (slice, one) in self.endpoints(service) {
            let to = slice.ports.iter().filter(|(name, protocol, _)| *name == port.name && *protocol == port.protocol);
            endpoints.extend(to.map(|(.., number)| SocketAddr::new(one.ip, *number)));
        }
        endpoints.sort_unstable();
        endpoints.dedup();
        let of = Owner { kind: "Service", namespace: service.0.clone(), name: service.1.clone() };
        Behind { of, endpoints, affinity: address.affinity }
    }

    /// Doors with nobody behind them are left out: whoever comes is refused at once, and need not wait.
    pub fn table(&self, node: &[IpAddr], is_ours: impl Fn(IpAddr) -> bool) -> Table {
        let mut table = Table::new();
        for (name, address) in &self.services {
            for port in &address.ports {
                let behind = self.behind(name, address, port);
                if behind.endpoints.is_empty() {
                    continue;
                }
                let ips = address.ips.iter().filter(|ip| is_ours(**ip)).map(|ip| SocketAddr::new(*ip, port.port));
                let nodes =
                    port.node_port.into_iter().flat_map(|port| node.iter().map(move |ip| SocketAddr::new(*ip, port)));
                for at in ips.chain(nodes) {
                    table.insert(Door { protocol: port.protocol, at }, behind.clone());
                }
            }
        }
        for ((namespace, name), ports) in &self.pods {
            for (on, protocol, port, to) in ports {
                let all = on.map_or_else(|| node.to_vec(), |on| vec![on]);
                for at in all.into_iter().map(|ip| SocketAddr::new(ip, *port)) {
                    let behind = table.entry(Door { protocol: *protocol, at }).or_insert_with(|| Behind {
                        of: Owner { kind: "Pod", namespace: namespace.clone(), name: name.clone() },
                        ..Behind::default()
                    });
                    behind.endpoints.push(*to);
                }
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn service(spec: Value) -> (Name, Address) {
        Address::of(&parse(json!({"metadata": {"name": "web", "namespace": "ns"}, "spec": spec}))).unwrap()
    }

    fn slice(name: &str, endpoints: Value) -> (Name, Slice) {
        Slice::of(&parse(json!({"metadata": {"name": name, "namespace": "ns", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "http", "port": 8080}, {"name": "dns", "port": 5300, "protocol": "UDP"}]})))
        .unwrap()
    }

    fn doors(known: &Known) -> Vec<(String, Vec<String>)> {
        let node = ["127.9.0.1".parse().unwrap()];
        let table = known.table(&node, |ip| ip.to_string().starts_with("127.9."));
        let text = |at: &SocketAddr| at.to_string();
        table
            .iter()
            .map(|(door, behind)| {
                (format!("{} {}", door.protocol.name(), door.at), behind.endpoints.iter().map(text).collect())
            })
            .collect()
    }

    fn known(spec: Value, endpoints: Value) -> Known {
        Known { services: [service(spec)].into(), slices: [slice("web-1", endpoints)].into(), pods: BTreeMap::new() }
    }

    fn ports() -> Value {
        json!([{"name": "http", "port": 80, "nodePort": 30080}, {"name": "dns", "port": 53, "protocol": "UDP"}])
    }

    #[test]
    fn doors_of_a_service() {
        let known = known(
            json!({"type": "NodePort", "clusterIP": "127.9.128.5", "clusterIPs": ["127.9.128.5"], "ports": ports()}),
            json!([{"addresses": ["127.9.0.7"], "conditions": {"ready": true}}, {"addresses": ["127.9.0.8"], "conditions": {"ready": false}}]),
        );
        let to = |to: &str| vec![to.to_owned()];
        assert_eq!(
            doors(&known),
            [
                ("tcp 127.9.0.1:30080".into(), to("127.9.0.7:8080")),
                ("tcp 127.9.128.5:80".into(), to("127.9.0.7:8080")),
                ("udp 127.9.128.5:53".into(), to("127.9.0.7:5300")),
            ]
        );
    }

    #[test]
    fn who_is_asked() {
        let one = |ready: bool, serving: bool, terminating: bool, ip: &str| json!({"addresses": [ip], "conditions": {"ready": ready, "serving": serving, "terminating": terminating}});
        let spec = || json!({"clusterIP": "127.9.128.5", "ports": [{"name": "http", "port": 80}]});
        for (endpoints, expected) in [
            (json!([one(true, true, false, "127.9.0.1"), one(false, true, true, "127.9.0.2")]), vec!["127.9.0.1:8080"]),
            (
                json!([one(false, false, false, "127.9.0.1"), one(false, true, true, "127.9.0.2")]),
                vec!["127.9.0.2:8080"],
            ),
            (json!([{"addresses": ["127.9.0.3"]}]), vec!["127.9.0.3:8080"]),
        ] {
            assert_eq!(doors(&known(spec(), endpoints.clone()))[0].1, expected, "{endpoints}");
        }
        assert!(doors(&known(spec(), json!([one(false, false, true, "127.9.0.1")]))).is_empty(), "nobody: no door");
    }

    #[test]
    fn what_is_no_door() {
        let ready = || json!([{"addresses": ["127.9.0.7"]}]);
        for spec in [
            json!({"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}),
            json!({"clusterIP": "10.96.0.7", "ports": [{"name": "http", "port": 80}]}),
            json!({"type": "ExternalName", "externalName": "example.com", "clusterIP": "127.9.128.5", "ports": [{"name": "http", "port": 80}]}),
            json!({"clusterIP": "127.9.128.5", "ports": [{"name": "http", "port": 80, "protocol": "SCTP"}]}),
            json!({"clusterIP": "127.9.128.5", "ports": [{"name": "other", "port": 80}]}),
        ] {
            assert!(doors(&known(spec.clone(), ready())).is_empty(), "{spec}");
        }
    }

    #[test]
    fn affinity_has_a_time() {
        let of = |spec: Value| service(spec).1.affinity;
        assert_eq!(of(json!({"sessionAffinity": "None"})), None);
        assert_eq!(of(json!({"sessionAffinity": "ClientIP"})), Some(Duration::from_secs(10800)));
        let config = json!({"clientIP": {"timeoutSeconds": 5}});
        assert_eq!(
            of(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config})),
            Some(Duration::from_secs(5))
        );
    }

    #[test]
    fn host_ports_of_pods() {
        let pod = |phase: &str, host: bool| -> Pod {
            parse(
                json!({"spec": {"hostNetwork": host, "containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 8080},
                {"containerPort": 81, "hostPort": 8081, "hostIP": "127.0.0.1"}, {"containerPort": 82}]}]}, "status": {"phase": phase, "podIP": "127.9.0.7"}}),
            )
        };
        let mut known = Known::default();
        known.pods.insert(("ns".into(), "p".into()), host_ports(&pod("Running", false)));
        assert_eq!(
            doors(&known),
            [
                ("tcp 127.0.0.1:8081".into(), vec!["127.9.0.7:81".to_owned()]),
                ("tcp 127.9.0.1:8080".into(), vec!["127.9.0.7:80".to_owned()]),
            ]
        );
        assert!(host_ports(&pod("Pending", false)).is_empty() && host_ports(&pod("Running", true)).is_empty());
    }
}
