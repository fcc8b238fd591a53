//! Runs probes and hooks.

use std::{net::IpAddr, sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{Container, LifecycleHandler, Probe},
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::{net::TcpStream, time::timeout};

use super::{grpc, http};
use crate::{
    expand::expand,
    machine::Miss,
    runtime::{ContainerId, Failure, Runtime},
};

const AGENT: &str = "kube-probe/1.36";
const HOOK_AGENT: &str = "kube-lifecycle/1.36";

pub async fn probe(
    runtime: Arc<dyn Runtime>,
    id: ContainerId,
    probe: Probe,
    container: Container,
    address: IpAddr,
) -> Result<(), Miss> {
    let within = Duration::from_secs(probe.timeout_seconds.unwrap_or(1).max(1).unsigned_abs().into());
    if let Some(exec) = &probe.exec {
        let command = expanded(exec.command.as_deref().unwrap_or_default(), &container);
        return exec_in(&*runtime, &id, &command, within).await;
    }
    over_network(&probe, &container, address, within).await
}

/// A probe's command with the values that stand in the container's own variables: what they refer to is not looked up for it.
fn expanded(command: &[String], container: &Container) -> Vec<String> {
    let value = |name: &str| {
        let mut variables = container.env.iter().flatten().rev();
        let known = variables.find(|variable| variable.name == name);
        known.map(|variable| variable.value.as_deref().unwrap_or_default())
    };
    command.iter().map(|word| expand(word, value)).collect()
}

/// What is asked through the pod's address. Who is late is told of in a kubelet's words.
async fn over_network(probe: &Probe, container: &Container, address: IpAddr, within: Duration) -> Result<(), Miss> {
    let answer = if let Some(action) = &probe.http_get {
        let url = http::url(action, container, address).map_err(Miss::Errored)?;
        let late = format!("Get {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)");
        timeout(within, http::get(action, container, address, AGENT)).await.unwrap_or(Err(late))
    } else if let Some(action) = &probe.tcp_socket {
        let port = port_of(&action.port, container).map_err(Miss::Errored)?;
        let host = action.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| address.to_string());
        match timeout(within, TcpStream::connect((host.as_str(), port))).await {
            Ok(connected) => connected.map(|_| ()).map_err(|error| http::refused(&host, port, &error)),
            Err(_) => Err(format!("dial tcp {host}:{port}: i/o timeout")),
        }
    } else if let Some(action) = &probe.grpc {
        let wrong = |_| Miss::Errored(format!("invalid port number: {}", action.port));
        let port = u16::try_from(action.port).map_err(wrong)?;
        let late = format!("timeout: health rpc did not complete within {}s", within.as_secs());
        let service = action.service.as_deref().unwrap_or_default();
        timeout(within, grpc::check(address, port, service, AGENT)).await.unwrap_or(Err(late))
    } else {
        return Err(Miss::Errored("missing probe handler".to_owned()));
    };
    answer.map_err(Miss::Failed)
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
        let done = exec_in(&*runtime, &id, exec.command.as_deref().unwrap_or_default(), within).await;
        return done.map_err(|(Miss::Failed(why) | Miss::Errored(why))| why);
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

async fn exec_in(runtime: &dyn Runtime, id: &ContainerId, command: &[String], within: Duration) -> Result<(), Miss> {
    match runtime.exec(id, command, within).await {
        Ok(output) if output.code == 0 => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.text);
            let text: String = text.trim_end().chars().take(1024).collect();
            Err(Miss::Failed(if text.is_empty() { format!("command exited with {}", output.code) } else { text }))
        }
        Err(Failure { reason: "DeadlineExceeded", .. }) => {
            let (words, late) = (command.join(" "), within.as_secs());
            Err(Miss::Failed(format!("command timed out: {words:?} timed out after {late}s")))
        }
        Err(failure) => Err(Miss::Errored(failure.message)),
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
    let number = number.ok_or_else(|| match port {
        IntOrString::String(name) => format!("couldn't find port {name:?} in container {:?}", container.name),
        IntOrString::Int(number) => format!("invalid port number: {number}"),
    })?;
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
    fn a_command_has_the_values_of_variables() {
        let container: Container = serde_json::from_value(json!({"name": "a", "env": [
            {"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "B", "value": "$(A)"},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ]}))
        .unwrap();
        let command = ["test", "$(A)$(B)$(C)", "$(D)", "$$(A)"].map(str::to_owned);
        assert_eq!(expanded(&command, &container), ["test", "2$(A)", "$(D)", "$(A)"]);
    }

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
