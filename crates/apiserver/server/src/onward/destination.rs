//! Where a request is passed on to: which node, which address, which port, by what the objects say.

use std::{net::IpAddr, sync::Arc, time::Duration};

use rustls::{ClientConfig, pki_types::ServerName};
use schema::status::{Result, Status};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::{endpoints, options};
use crate::{call::Call, webhooks};

/// Which of a node's addresses is taken. Addresses come before names, other than upstream has it: an edge that is offline has
/// no name service.
const ADDRESS_TYPES: [&str; 5] = ["InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"];
const KUBELET_PORT: u16 = 10250;
/// Until a connection stands.
const DIAL: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Without TLS.
    Plain,
    /// TLS as it comes: nobody says who a pod is.
    Anybody,
    Kubelet {
        verified: bool,
    },
    /// A node that is part of this process.
    Inside,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Destination {
    /// In the order of preference; the first whose name is known is taken.
    pub hosts: Vec<String>,
    pub port: u16,
    pub trust: Trust,
    /// With the query.
    pub path: String,
}

pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Destination {
    pub fn authority(&self) -> String {
        let host = self.hosts.first().map_or("", String::as_str);
        if host.contains(':') { format!("[{host}]:{}", self.port) } else { format!("{host}:{}", self.port) }
    }

    pub fn url(&self) -> String {
        let scheme = if self.trust == Trust::Plain { "http" } else { "https" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }

    /// A location that the destination names, as it is seen by whoever comes through here; `None` if it leads elsewhere.
    pub fn behind(&self, location: &str, prefix: &str) -> Option<String> {
        let path = match location.split_once("://") {
            None => location,
            Some((_, rest)) => {
                let path = rest.strip_prefix(&self.authority())?;
                if path.is_empty() { "/" } else { path }
            }
        };
        (path.starts_with('/') && !path.starts_with("//") && !path.starts_with(prefix))
            .then(|| format!("{prefix}{path}"))
    }

    pub async fn dial(&self, tls: Option<Arc<ClientConfig>>) -> std::result::Result<Box<dyn Io>, String> {
        let dialling = self.dial_patiently(tls);
        match tokio::time::timeout(DIAL, dialling).await {
            Ok(dialled) => dialled,
            Err(_) => Err(format!("dial tcp {}: i/o timeout", self.authority())),
        }
    }

    async fn dial_patiently(&self, tls: Option<Arc<ClientConfig>>) -> std::result::Result<Box<dyn Io>, String> {
        let mut unknown = format!("dial tcp {}: no such host", self.authority());
        for host in &self.hosts {
            let found = match tokio::net::lookup_host((host.as_str(), self.port)).await {
                Ok(found) => found,
                Err(error) => {
                    unknown = format!("dial tcp: lookup {host}: {error}");
                    continue;
                }
            };
            let mut refused = None;
            for address in found {
                match TcpStream::connect(address).await {
                    Ok(stream) => return self.shake_hands(host, stream, tls).await,
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                        refused = Some(format!("dial tcp {address}: connect: connection refused"));
                    }
                    Err(error) => refused = Some(format!("dial tcp {address}: {error}")),
                }
            }
            return Err(refused.unwrap_or(unknown));
        }
        Err(unknown)
    }

    async fn shake_hands(
        &self,
        host: &str,
        stream: TcpStream,
        tls: Option<Arc<ClientConfig>>,
    ) -> std::result::Result<Box<dyn Io>, String> {
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host:?} is no name of a server"))?;
        let connected = TlsConnector::from(tls).connect(name, stream).await;
        connected.map(|stream| Box::new(stream) as Box<dyn Io>).map_err(|error| {
            let known = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            known.map_or_else(|| error.to_string(), |known| webhooks::describe(known, host))
        })
    }
}

/// Where a log is; `None` while the pod is nowhere yet.
pub fn of_log(call: &Call) -> Result<Option<Destination>> {
    let name = &call.target.name;
    let query = options::log(&call.query, name)?;
    let pod = call.get().ok_or_else(|| call.not_found())?.value();
    let container = container(&pod, call.query.get("container"))?;
    let Some(node) = node_of(&pod) else { return Ok(None) };
    let query = if query.is_empty() { query } else { format!("?{query}") };
    let path = format!("/containerLogs/{}/{name}/{container}{query}", call.target.namespace);
    let verified = !call.query.flag("insecureSkipTLSVerifyBackend");
    of_kubelet(call, node, path, verified).map(Some)
}

/// Where a stream to a container goes. `options` is the object that the request was read into.
pub fn of_stream(call: &Call, options: &Value) -> Result<Destination> {
    let (namespace, name, sub) = (&call.target.namespace, &call.target.name, call.target.subresource.as_str());
    let pod = call.get().ok_or_else(|| call.not_found())?.value();
    let place = match sub {
        "portforward" => format!("/portForward/{namespace}/{name}"),
        _ => {
            let container = container(&pod, options["container"].as_str().unwrap_or_default())?;
            format!("/{sub}/{namespace}/{name}/{container}")
        }
    };
    let unplaced = || Status::bad_request(format!("pod {name} does not have a host assigned"));
    let node = node_of(&pod).ok_or_else(unplaced)?;
    of_kubelet(call, node, format!("{place}?{}", options::to_kubelet(options)), true)
}

/// Where a proxy leads to: a pod, a pod behind a service, or a node.
pub async fn of_proxy(call: &Call, path: String) -> Result<Destination> {
    let (id, plural) = (&call.target.name, call.kind.plural());
    let what = plural.trim_end_matches('s');
    let (scheme, name, port) =
        split(id).ok_or_else(|| Status::bad_request(format!("invalid {what} request {id:?}")))?;
    let trust = if scheme == "https" { Trust::Anybody } else { Trust::Plain };
    let not_found = || Status::not_found("", plural, name);
    if plural == "nodes" {
        let kubelet = of_kubelet(call, name, path, true)?;
        kubelet.check_reachable().await?;
        let port = number(port).unwrap_or(kubelet.port);
        return Ok(if port == kubelet.port { kubelet } else { Destination { port, trust, ..kubelet } });
    }
    let (host, port) = if plural == "services" {
        endpoints::pick(call, name, port, id)?
    } else {
        let key = call.kind.key(&call.cluster, &call.target.namespace, name);
        let pod = call.server.cache.get("core/pods", &key).ok_or_else(not_found)?.value();
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let first = containers.filter_map(|container| container["ports"][0]["containerPort"].as_u64()).next();
        let usual = if trust == Trust::Plain { 80 } else { 443 };
        let port = match port {
            "" => first.and_then(|port| u16::try_from(port).ok()).unwrap_or(usual),
            text => number(text).ok_or_else(|| Status::bad_request(format!("invalid {what} request {id:?}")))?,
        };
        (endpoints::address_of(&pod).to_owned(), port)
    };
    let is_allowed = |ip| is_global_unicast(ip) || call.server.services.is_within_machine(ip);
    if !host.parse().is_ok_and(is_allowed) {
        return Err(Status::bad_request("address not allowed"));
    }
    Ok(Destination { hosts: vec![host], port, trust, path })
}

impl Destination {
    /// A node may say that its address is one of this machine's own: whoever may use its proxy may not use that.
    async fn check_reachable(&self) -> Result<()> {
        if self.trust == Trust::Inside {
            return Ok(());
        }
        for host in &self.hosts {
            let Ok(found) = tokio::net::lookup_host((host.as_str(), self.port)).await else { continue };
            let all: Vec<IpAddr> = found.map(|address| address.ip()).collect();
            if !all.is_empty() && all.iter().all(|ip| is_global_unicast(*ip)) {
                return Ok(());
            }
            return Err(Status::bad_request("address not allowed"));
        }
        Err(Status::bad_request("no addresses for hostname"))
    }
}

fn of_kubelet(call: &Call, node: &str, path: String, verified: bool) -> Result<Destination> {
    let found = call.server.cache.get("core/nodes", &format!("{}//{node}", call.cluster));
    let node = found.ok_or_else(|| Status::not_found("", "nodes", node))?.value();
    let hosts = hosts_of(&node);
    if hosts.is_empty() {
        return Err(Status::new(500, "", "no preferred addresses found; known addresses: []"));
    }
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
    let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0).unwrap_or(KUBELET_PORT);
    let inside = call.server.kubelets.inside().is_some_and(|inside| node["metadata"]["name"] == inside.name());
    let trust = if inside { Trust::Inside } else { Trust::Kubelet { verified } };
    Ok(Destination { hosts, port, trust, path })
}

fn hosts_of(node: &Value) -> Vec<String> {
    let all = node["status"]["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_type = |ty: &'static str| all.iter().filter(move |address| address["type"] == ty);
    let hosts = ADDRESS_TYPES.into_iter().flat_map(of_type).filter_map(|address| address["address"].as_str());
    hosts.filter(|host| !host.is_empty()).map(str::to_owned).collect()
}

fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty())
}

/// The container that is meant: the one that is named, or the only one.
fn container(pod: &Value, wanted: &str) -> Result<String> {
    let names = |field: &str| -> Vec<&str> {
        let all = pod["spec"][field].as_array().into_iter().flatten();
        all.filter_map(|container| container["name"].as_str()).collect()
    };
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let all = [names("initContainers"), names("containers"), names("ephemeralContainers")].concat();
    if !wanted.is_empty() {
        let unknown = || Status::bad_request(format!("container {wanted} is not valid for pod {name}"));
        return all.iter().find(|known| **known == wanted).map(|known| (*known).to_owned()).ok_or_else(unknown);
    }
    match names("containers").as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => Err(Status::bad_request(format!("a container name must be specified for pod {name}"))),
        _ => {
            let all = all.join(" ");
            Err(Status::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{all}]"
            )))
        }
    }
}

/// `name`, `name:port` or `scheme:name:port`.
fn split(id: &str) -> Option<(&str, &str, &str)> {
    let parts: Vec<&str> = id.split(':').collect();
    let (scheme, name, port) = match parts[..] {
        [name] => ("", name, ""),
        [name, port] => ("", name, port),
        [scheme, name, port] => (scheme, name, port),
        _ => return None,
    };
    (!name.is_empty() && matches!(scheme, "" | "http" | "https")).then_some((scheme, name, port))
}

fn number(port: &str) -> Option<u16> {
    port.parse().ok().filter(|port| *port > 0)
}

fn is_global_unicast(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || ip.is_link_local() || ip.is_broadcast())
        }
        IpAddr::V6(ip) => !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || ip.is_unicast_link_local()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_container_that_is_meant() {
        let pod = |containers: &[&str]| {
            let containers: Vec<Value> = containers.iter().map(|name| json!({"name": name})).collect();
            json!({"metadata": {"name": "p"}, "spec": {"containers": containers, "initContainers": [{"name": "first"}],
                "ephemeralContainers": [{"name": "debug"}]}})
        };
        for (containers, wanted, expected) in [
            (&["a"][..], "", Ok("a")),
            (&["a", "b"], "b", Ok("b")),
            (&["a"], "debug", Ok("debug")),
            (&["a", "b"], "", Err("a container name must be specified for pod p, choose one of: [first a b debug]")),
            (&[], "", Err("a container name must be specified for pod p")),
            (&["a"], "x", Err("container x is not valid for pod p")),
        ] {
            let got = container(&pod(containers), wanted);
            match expected {
                Ok(name) => assert_eq!(got.unwrap(), name),
                Err(why) => assert_eq!((got.as_ref().unwrap_err().code, &*got.unwrap_err().message), (400, why)),
            }
        }
    }

    #[test]
    fn addresses_come_before_names() {
        let node = json!({"status": {"addresses": [{"type": "Hostname", "address": "n"}, {"type": "ExternalIP", "address": "2.2.2.2"},
            {"type": "InternalIP", "address": "1.1.1.1"}, {"type": "InternalIP", "address": "::1"}, {"type": "Other", "address": "x"}]}});
        assert_eq!(hosts_of(&node), ["1.1.1.1", "::1", "2.2.2.2", "n"]);
        assert!(hosts_of(&json!({})).is_empty());
    }

    #[test]
    fn names_with_scheme_and_port() {
        for (id, expected) in [
            ("a", Some(("", "a", ""))),
            ("a:80", Some(("", "a", "80"))),
            ("https:a:", Some(("https", "a", ""))),
            (":a:1", Some(("", "a", "1"))),
            ("ftp:a:1", None),
            ("http::1", None),
            ("a:b:c:d", None),
        ] {
            assert_eq!(split(id), expected, "{id}");
        }
    }

    #[test]
    fn nobody_is_led_to_this_machine() {
        for (ip, allowed) in [
            ("10.1.2.3", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("169.254.169.254", false),
            ("fe80::1", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("fd00::1", true),
        ] {
            assert_eq!(is_global_unicast(ip.parse().unwrap()), allowed, "{ip}");
        }
    }

    #[test]
    fn locations_stay_behind_the_proxy() {
        let there = Destination { hosts: vec!["10.0.0.1".into()], port: 80, trust: Trust::Plain, path: "/".into() };
        for (location, expected) in [
            ("/login", Some("/api/x/proxy/login")),
            ("http://10.0.0.1:80/a?b=c", Some("/api/x/proxy/a?b=c")),
            ("http://10.0.0.1:80", Some("/api/x/proxy/")),
            ("https://example.com/", None),
            ("relative", None),
            ("//example.com/", None),
            ("/api/x/proxy/there", None),
        ] {
            assert_eq!(there.behind(location, "/api/x/proxy").as_deref(), expected, "{location}");
        }
    }
}
