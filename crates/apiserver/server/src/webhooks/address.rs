//! Where a webhook answers: a URL, or a Service of the workspace whose ready endpoints are asked.

use std::{io, net::SocketAddr};

use cache::Cache;
use serde_json::Value;

use super::reach::Reach;

#[derive(Clone, Debug, PartialEq)]
pub enum Address {
    Host { host: String, port: u16 },
    Service { cluster: String, namespace: String, name: String, port: u16 },
}

/// What is wrong with objects of the workspace itself: whoever may write webhooks there may know it.
#[derive(Debug)]
pub struct Own(pub String);

impl std::fmt::Display for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Own {}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The address that a `clientConfig` names, and the URL that requests are made for.
pub fn read(cluster: &str, config: &Value) -> Result<(Address, String), String> {
    if let Some(url) = config["url"].as_str().filter(|url| !url.is_empty()) {
        let uri: http::Uri = url.parse().map_err(|error| format!("{url:?} is not a URL: {error}"))?;
        let host = uri.host().ok_or_else(|| format!("{url:?} names no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        return Ok((Address::Host { host, port: uri.port_u16().unwrap_or(443) }, url.to_owned()));
    }
    let service = &config["service"];
    let (name, namespace) = (text(&service["name"]), text(&service["namespace"]));
    if name.is_empty() || namespace.is_empty() {
        return Err("neither a URL nor a service is named".to_owned());
    }
    let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
    let path = text(&service["path"]).trim_start_matches('/');
    let url = format!("https://{name}.{namespace}.svc:{port}/{path}");
    let (cluster, namespace, name) = (cluster.to_owned(), namespace.to_owned(), name.to_owned());
    Ok((Address::Service { cluster, namespace, name, port }, url))
}

impl Address {
    /// The name that the webhook's certificate must be for.
    pub fn server_name(&self) -> String {
        match self {
            Self::Host { host, .. } => host.clone(),
            Self::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
        }
    }

    /// The socket to connect to now, if there is one that may be connected to.
    pub async fn resolve(&self, cache: &Cache, reach: Option<&Reach>) -> io::Result<SocketAddr> {
        let (host, port) = match self {
            Self::Host { host, port } => (host.clone(), *port),
            Self::Service { cluster, namespace, name, port } => {
                of_service(cache, cluster, namespace, name, *port).map_err(|why| io::Error::other(Own(why)))?
            }
        };
        let mut found = tokio::net::lookup_host((host.as_str(), port)).await?.peekable();
        if found.peek().is_none() {
            return Err(io::Error::other(format!("lookup {host}: no such host")));
        }
        let refused = || io::Error::other(format!("{host} is at an address that webhooks of tenants may not lead to"));
        found.find(|socket| reach.is_none_or(|reach| reach.allows(socket.ip()))).ok_or_else(refused)
    }
}

/// A ready endpoint of the Service if it has one, else its own address.
fn of_service(cache: &Cache, cluster: &str, namespace: &str, name: &str, port: u16) -> Result<(String, u16), String> {
    let found = cache.get("core/services", &format!("{cluster}/{namespace}/{name}"));
    let service = found.ok_or_else(|| format!("service {name:?} not found"))?.value();
    let spec = &service["spec"];
    if spec["type"] == "ExternalName" {
        return Ok((text(&spec["externalName"]).to_owned(), port));
    }
    let ports = spec["ports"].as_array().into_iter().flatten();
    let wanted = ports.into_iter().find(|p| p["port"].as_u64() == Some(port.into()));
    let wanted = wanted.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let mut ready = in_slices(cache, cluster, namespace, name, wanted);
    if ready.is_empty() {
        ready = in_endpoints(cache, cluster, namespace, name, wanted);
    }
    if !ready.is_empty() {
        return Ok(ready.swap_remove(rand::random_range(0..ready.len())));
    }
    match text(&spec["clusterIP"]) {
        "" | "None" => Err(format!("no endpoints available for service {name:?}")),
        ip => Ok((ip.to_owned(), port)),
    }
}

fn port_named(ports: &Value, wanted: &Value) -> Option<u16> {
    let name = text(&wanted["name"]);
    let port = ports.as_array()?.iter().find(|p| text(&p["name"]) == name)?;
    u16::try_from(port["port"].as_u64()?).ok()
}

fn in_slices(cache: &Cache, cluster: &str, namespace: &str, name: &str, wanted: &Value) -> Vec<(String, u16)> {
    let snapshot = cache.snapshot("discovery.k8s.io/endpointslices");
    let mut ready = Vec::new();
    for object in snapshot.items.range(&format!("{cluster}/{namespace}/"), "") {
        let slice = object.value();
        if slice["metadata"]["labels"]["kubernetes.io/service-name"] != name {
            continue;
        }
        let Some(port) = port_named(&slice["ports"], wanted) else { continue };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            if endpoint["conditions"]["ready"] != false {
                ready
                    .extend(endpoint["addresses"].as_array().into_iter().flatten().map(|a| (text(a).to_owned(), port)));
            }
        }
    }
    ready
}

fn in_endpoints(cache: &Cache, cluster: &str, namespace: &str, name: &str, wanted: &Value) -> Vec<(String, u16)> {
    let Some(object) = cache.get("core/endpoints", &format!("{cluster}/{namespace}/{name}")) else { return Vec::new() };
    let mut ready = Vec::new();
    for subset in object.value()["subsets"].as_array().into_iter().flatten() {
        let Some(port) = port_named(&subset["ports"], wanted) else { continue };
        ready.extend(subset["addresses"].as_array().into_iter().flatten().map(|a| (text(&a["ip"]).to_owned(), port)));
    }
    ready
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn configurations_name_their_place() {
        let host = |host: &str, port| Address::Host { host: host.to_owned(), port };
        for (config, want, url) in [
            (json!({"url": "https://hook.example/a?b=c"}), host("hook.example", 443), "https://hook.example/a?b=c"),
            (json!({"url": "https://127.0.0.1:8443"}), host("127.0.0.1", 8443), "https://127.0.0.1:8443"),
            (json!({"url": "https://[::1]:9/x"}), host("::1", 9), "https://[::1]:9/x"),
        ] {
            assert_eq!(read("root", &config).unwrap(), (want, url.to_owned()));
        }
        let (address, url) = read("a:b", &json!({"service": {"name": "s", "namespace": "n", "path": "/p"}})).unwrap();
        assert_eq!((address.server_name().as_str(), url.as_str()), ("s.n.svc", "https://s.n.svc:443/p"));
        for bad in [json!({}), json!({"url": "https://"}), json!({"service": {"name": "s"}})] {
            assert!(read("root", &bad).is_err(), "{bad}");
        }
    }
}
