//! Runs probes and hooks.

use std::{net::IpAddr, sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{Container, LifecycleHandler, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::{net::TcpStream, time::timeout};

use super::{grpc, http};
use crate::runtime::{ContainerId, Failure, Runtime};

const AGENT: &str = "kube-probe/1.36";
const HOOK_AGENT: &str = "kube-lifecycle/1.36";

pub async fn probe(
    runtime: Arc<dyn Runtime>,
    id: ContainerId,
    probe: Probe,
    container: Container,
    address: IpAddr,
) -> Result<(), String> {
    let within = Duration::from_secs(probe.timeout_seconds.unwrap_or(1).max(1).unsigned_abs().into());
    if let Some(exec) = &probe.exec {
        return exec_in(&*runtime, &id, exec.command.as_deref().unwrap_or_default(), within).await;
    }
    over_network(&probe, &container, address, within).await
}

/// What is asked through the pod's address. Who is late is told of in a kubelet's words.
async fn over_network(probe: &Probe, container: &Container, address: IpAddr, within: Duration) -> Result<(), String> {
    if let Some(action) = &probe.http_get {
        let url = http::url(action, container, address)?;
        let late = format!("Get {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)");
        timeout(within, http::get(action, container, address, AGENT)).await.unwrap_or(Err(late))
    } else if let Some(action) = &probe.tcp_socket {
        let port = port_of(&action.port, container)?;
        let host = action.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| address.to_string());
        match timeout(within, TcpStream::connect((host.as_str(), port))).await {
            Ok(connected) => connected.map(|_| ()).map_err(|error| http::refused(&host, port, &error)),
            Err(_) => Err(format!("dial tcp {host}:{port}: i/o timeout")),
        }
    } else if let Some(action) = &probe.grpc {
        let port = u16::try_from(action.port).map_err(|_| format!("invalid port number: {}", action.port))?;
        let late = format!("timeout: health rpc did not complete within {}s", within.as_secs());
        let service = action.service.as_deref().unwrap_or_default();
        timeout(within, grpc::check(address, port, service, AGENT)).await.unwrap_or(Err(late))
    } else {
        Err("missing probe handler".to_owned())
    }
}

pub async fn hook(
    runtime: Arc<dyn Runtime>,
    id: ContainerId,
    handler: LifecycleHandler,
    container: Container,
    address: IpAddr,
    within: Duration,
) -> Result<(), String> {
    if let Some(exec) = &handler.exec {
        return exec_in(&*runtime, &id, exec.command.as_deref().unwrap_or_default(), within).await;
    }
    let doing = async {
        if let Some(action) = &handler.http_get {
            http::get(action, &container, address, HOOK_AGENT).await
        } else if let Some(sleep) = &handler.sleep {
            tokio::time::sleep(Duration::from_secs(sleep.seconds.max(0).unsigned_abs())).await;
            Ok(())
        } else {
            Err("cannot run handler: it has no action".to_owned())
        }
    };
    timeout(within, doing).await.unwrap_or_else(|_| Err("the hook did not end in time".to_owned()))
}

async fn exec_in(runtime: &dyn Runtime, id: &ContainerId, command: &[String], within: Duration) -> Result<(), String> {
    match runtime.exec(id, command, within).await {
        Ok(output) if output.code == 0 => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.text);
            let text: String = text.trim_end().chars().take(1024).collect();
            Err(if text.is_empty() { format!("command exited with {}", output.code) } else { text })
        }
        Err(Failure { reason: "DeadlineExceeded", .. }) => {
            Err(format!("command timed out: {command:?} timed out after {}s", within.as_secs()))
        }
        Err(failure) => Err(failure.message),
    }
}

/// A port by its number, or by its name in the container.
pub fn port_of(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_ref() == Some(name)).map(|port| port.container_port);
            named.or_else(|| name.parse().ok())
        }
    };
    let number = number.ok_or_else(|| format!("couldn't find port: {port:?} in container {:?}", container.name))?;
    u16::try_from(number).ok().filter(|port| *port > 0).ok_or_else(|| format!("invalid port number: {number}"))
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod servers;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_have_numbers_and_names() {
        let container: Container =
            serde_json::from_value(json!({"name": "a", "ports": [{"name": "web", "containerPort": 8080}]})).unwrap();
        for (port, expected) in [
            (IntOrString::Int(80), Some(80)),
            (IntOrString::String("web".into()), Some(8080)),
            (IntOrString::String("81".into()), Some(81)),
            (IntOrString::String("none".into()), None),
            (IntOrString::Int(0), None),
            (IntOrString::Int(70_000), None),
        ] {
            assert_eq!(port_of(&port, &container).ok(), expected, "{port:?}");
        }
    }
}
