//! Which pod answers for a Service: one that the Endpoints or EndpointSlices of the Service name, and that really has that
//! address.

use schema::status::{Result, Status};
use serde_json::Value;

use crate::call::Call;

/// Address and port of one of the pods behind a port of a Service. `id` is what the path calls it.
pub fn pick(call: &Call, service: &str, port: &str, id: &str) -> Result<(String, u16)> {
    let found = get(call, "core/services", service).ok_or_else(|| Status::not_found("", "services", service))?;
    let name = match port.parse::<u64>() {
        Ok(number) => {
            let ports = found["spec"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
            let found = ports.iter().find(|port| port["port"].as_u64() == Some(number));
            let missing = || Status::unavailable(format!("no service port {number} found for service {service:?}"));
            found.ok_or_else(missing)?["name"].as_str().unwrap_or_default().to_owned()
        }
        Err(_) => port.to_owned(),
    };
    let mut candidates = match get(call, "core/endpoints", service) {
        Some(endpoints) => of_endpoints(&endpoints, &name),
        None => of_slices(call, service, &name),
    };
    if !candidates.is_empty() {
        let first = rand::random_range(0..candidates.len());
        candidates.rotate_left(first);
    }
    let valid = |(pod, address, _): &(String, String, u16)| {
        let addresses = get(call, "core/pods", pod).map(|pod| pod["status"]["podIPs"].clone()).unwrap_or_default();
        addresses.as_array().is_some_and(|all| all.iter().any(|one| one["ip"] == address.as_str()))
    };
    let found = candidates.into_iter().find(valid).map(|(_, address, port)| (address, port));
    found.ok_or_else(|| Status::unavailable(format!("no endpoints available for service {id:?}")))
}

/// Pod, address, port.
type Candidate = (String, String, u16);

fn of_endpoints(endpoints: &Value, name: &str) -> Vec<Candidate> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for subset in list(&endpoints["subsets"]) {
        let Some(port) = port_named(&subset["ports"], name) else { continue };
        for address in list(&subset["addresses"]) {
            found.extend(candidate(&address["targetRef"], &address["ip"], port));
        }
    }
    found
}

fn of_slices(call: &Call, service: &str, name: &str) -> Vec<Candidate> {
    let prefix = request::prefix(&call.cluster, &call.target.namespace);
    let slices = call.server.cache.snapshot("discovery.k8s.io/endpointslices");
    let mut found = Vec::new();
    for slice in slices.items.range(&prefix, "").map(|object| object.value()) {
        if slice["metadata"]["labels"]["kubernetes.io/service-name"] != service {
            continue;
        }
        let Some(port) = port_named(&slice["ports"], name) else { continue };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            if endpoint["conditions"]["ready"] != false {
                found.extend(candidate(&endpoint["targetRef"], &endpoint["addresses"][0], port));
            }
        }
    }
    found
}

fn port_named(ports: &Value, name: &str) -> Option<u16> {
    let port = ports.as_array()?.iter().find(|port| port["name"].as_str().unwrap_or_default() == name)?;
    u16::try_from(port["port"].as_u64()?).ok()
}

fn candidate(target: &Value, address: &Value, port: u16) -> Option<Candidate> {
    let pod = target["name"].as_str().filter(|_| target["kind"] == "Pod")?;
    Some((pod.to_owned(), address.as_str()?.to_owned(), port))
}

/// The first of a pod's addresses.
pub fn address_of(pod: &Value) -> &str {
    pod["status"]["podIPs"][0]["ip"].as_str().unwrap_or_default()
}

fn get(call: &Call, collection: &str, name: &str) -> Option<Value> {
    let key = format!("{}/{}/{name}", call.cluster, call.target.namespace);
    call.server.cache.get(collection, &key).map(|object| object.value())
}
