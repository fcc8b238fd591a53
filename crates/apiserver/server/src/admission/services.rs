//! Addresses and ports of Services: chosen here, taken and given back in the very commit that writes the Service.
//!
//! A taken address is an IPAddress object, as upstream keeps them; a taken node port is a small record of our own. Both are
//! compared in the commit, so two servers over one store cannot give the same one away twice.

use cache::object;
use rules::strategy;
use schema::field::FieldError;
use schema::status::{Result, Status};
use serde_json::{Value, json};
use store::{Compare, Op};

use crate::{call::Call, verbs::write::Beside};

const ADDRESSES: &str = "networking.k8s.io/ipaddresses";
const PORTS: &str = "-/nodeports";
/// The first block is left to those who choose for themselves.
const RESERVED: u32 = 256;
/// The families that this server has addresses of.
const FAMILIES: &[&str] = &["IPv4"];
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30000..=32767;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The ports to write to; none are made where there are none.
fn ports_mut(service: &mut Value) -> impl Iterator<Item = &mut Value> {
    service.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten()
}

fn ports(service: &Value) -> impl Iterator<Item = &Value> {
    service["spec"]["ports"].as_array().into_iter().flatten().map(|p| &p["nodePort"])
}

/// Gives a Service what it still lacks. `old` is empty for a new one.
pub fn allocate(call: &Call, service: &mut Value, old: &Value) -> Result<Beside> {
    let mut beside = Beside::default();
    addresses(call, service, old, &mut beside)?;
    node_ports(call, service, old, &mut beside)?;
    Ok(beside)
}

/// Gives back everything that a Service held.
pub fn release(call: &Call, old: &Value) -> Beside {
    let mut beside = Beside::default();
    for ip in cluster_ips(old) {
        beside.ops.push(Op::Delete { key: address_key(call, &ip) });
    }
    for port in held_ports(old) {
        beside.ops.push(Op::Delete { key: port_key(call, port) });
    }
    beside
}

fn cluster_ips(service: &Value) -> Vec<String> {
    let all = service["spec"]["clusterIPs"].as_array().cloned().unwrap_or_default();
    let mut ips: Vec<String> = all.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect();
    if let Some(one) = service["spec"]["clusterIP"].as_str()
        && !ips.iter().any(|ip| ip == one)
    {
        ips.push(one.to_owned());
    }
    ips.retain(|ip| !ip.is_empty() && ip != "None");
    ips
}

fn addresses(call: &Call, service: &mut Value, old: &Value, beside: &mut Beside) -> Result<()> {
    let held = cluster_ips(old);
    let errors = strategy::ip_families(service, (!old.is_null()).then_some(old), FAMILIES);
    if !errors.is_empty() {
        return Err(Status::invalid("", "Service", text(&service["metadata"]["name"]), &errors));
    }
    if !strategy::service::needs_cluster_ip(&service["spec"]) {
        beside.ops.extend(held.iter().map(|ip| Op::Delete { key: address_key(call, ip) }));
        return Ok(());
    }
    let spec = &mut service["spec"];
    let asked = spec["clusterIP"].as_str().unwrap_or_default().to_owned();
    if asked == "None" {
        spec["clusterIPs"] = json!(["None"]);
        return Ok(());
    }
    let ip = if asked.is_empty() { free_address(call)? } else { asked.clone() };
    spec["clusterIP"] = ip.as_str().into();
    if spec["clusterIPs"].as_array().is_none_or(Vec::is_empty) {
        spec["clusterIPs"] = json!([ip]);
    }
    if held.contains(&ip) {
        return Ok(());
    }
    if !asked.is_empty() {
        let refuse = |why: &str| {
            let what = format!("failed to allocate IP {ip}: {why}");
            invalid(service, FieldError::invalid("spec.clusterIPs", &json!([ip]), &what))
        };
        if ip.parse::<std::net::IpAddr>().is_err() {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            return Err(invalid(service, FieldError::invalid("spec.clusterIPs[0]", &json!(ip), why)));
        }
        if !ip.parse().is_ok_and(|ip| call.server.services.contains(ip)) {
            return Err(refuse("the provided network does not match the current range"));
        }
        if call.server.cache.get(ADDRESSES, &format!("{}//{ip}", call.cluster)).is_some() {
            return Err(refuse("provided IP is already allocated"));
        }
    }
    let record = json!({"kind": "IPAddress", "apiVersion": "networking.k8s.io/v1",
        "metadata": {"name": ip, "uid": uuid::Uuid::new_v4().to_string(), "creationTimestamp": clock::now(), "labels": {
            "ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
        "spec": {"parentRef": {"resource": "services", "namespace": call.target.namespace,
            "name": service["metadata"]["name"]}}});
    take(beside, address_key(call, &ip), &record);
    Ok(())
}

fn free_address(call: &Call) -> Result<String> {
    let range = call.server.services;
    for _ in 0..1000 {
        // The last one is everybody's.
        let ip = range.nth(rand::random_range(RESERVED.min(range.size() - 1)..range.size())).to_string();
        if call.server.cache.get(ADDRESSES, &format!("{}//{ip}", call.cluster)).is_none() {
            return Ok(ip);
        }
    }
    Err(Status::internal("failed to allocate a serviceIP: range is full"))
}

fn held_ports(service: &Value) -> Vec<i64> {
    let health = service["spec"]["healthCheckNodePort"].as_i64();
    let mut held: Vec<i64> = ports(service).filter_map(Value::as_i64).chain(health).filter(|p| *p != 0).collect();
    held.sort_unstable();
    held.dedup();
    held
}

fn node_ports(call: &Call, service: &mut Value, old: &Value, beside: &mut Beside) -> Result<()> {
    let held = held_ports(old);
    let spec = &service["spec"];
    let can_have = matches!(text(&spec["type"]), "NodePort" | "LoadBalancer");
    let mut twice = None;
    let wants = strategy::service::needs_node_ports(spec);
    let wants_health =
        strategy::service::needs_health_check_port(spec) && spec["healthCheckNodePort"].as_i64().unwrap_or(0) == 0;
    let mut mine: Vec<i64> = held_ports(service);
    if !can_have {
        // A port that is asked for all the same is refused by validation.
        mine.clear();
    }
    if wants {
        let mut given: Vec<(Value, i64)> = Vec::new();
        for (at, port) in ports_mut(service).enumerate() {
            let number = port["nodePort"].as_i64().filter(|number| *number != 0);
            if number.is_some_and(|number| given.iter().any(|(of, n)| *n == number && *of != port["port"])) {
                twice = twice.or(Some((at, port["nodePort"].clone())));
            }
            // TCP and UDP on one port share one node port.
            let shared = given.iter().find(|(of, _)| *of == port["port"]).map(|(_, number)| *number);
            let number = match number.or(shared) {
                Some(number) => number,
                None => free_port(call, &mine)?,
            };
            given.push((port["port"].clone(), number));
            port["nodePort"] = number.into();
            mine.push(number);
        }
    }
    if let Some((at, number)) = twice {
        let path = format!("spec.ports[{at}].nodePort");
        return Err(invalid(service, FieldError::invalid(path, &number, "provided port is already allocated")));
    }
    if wants_health {
        let number = free_port(call, &mine)?;
        service["spec"]["healthCheckNodePort"] = number.into();
        mine.push(number);
    }
    mine.sort_unstable();
    mine.dedup();
    for port in mine.iter().filter(|p| !held.contains(p)) {
        let why = if !NODE_PORTS.contains(port) {
            "provided port is not in the valid range. The range of valid ports is 30000-32767"
        } else if port_taken(call, *port) {
            "provided port is already allocated"
        } else {
            ""
        };
        if !why.is_empty() {
            let at = ports(service).position(|p| p.as_i64() == Some(*port));
            let path = at.map_or("spec.healthCheckNodePort".to_owned(), |at| format!("spec.ports[{at}].nodePort"));
            return Err(invalid(service, FieldError::invalid(path, &(*port).into(), why)));
        }
        let record = json!({"kind": "NodePort", "apiVersion": "internal.selvedge.dev/v1",
            "metadata": {"name": port.to_string()}, "service": service["metadata"]["name"], "namespace": call.target.namespace});
        take(beside, port_key(call, *port), &record);
    }
    beside.ops.extend(held.iter().filter(|p| !mine.contains(p)).map(|p| Op::Delete { key: port_key(call, *p) }));
    Ok(())
}

fn free_port(call: &Call, mine: &[i64]) -> Result<i64> {
    for _ in 0..5000 {
        let port = rand::random_range(NODE_PORTS);
        if !mine.contains(&port) && !port_taken(call, port) {
            return Ok(port);
        }
    }
    Err(Status::internal("failed to allocate a nodePort: range is full"))
}

fn port_taken(call: &Call, port: i64) -> bool {
    call.server.cache.get(PORTS, &format!("{}//{port}", call.cluster)).is_some()
}

fn take(beside: &mut Beside, key: String, record: &Value) {
    beside.compares.push(Compare { key: key.clone(), modified: 0 });
    beside.ops.push(Op::Put { key, value: object::encode(record) });
}

fn address_key(call: &Call, ip: &str) -> String {
    format!("{ADDRESSES}/{}//{ip}", call.cluster)
}

fn port_key(call: &Call, port: i64) -> String {
    format!("{PORTS}/{}//{port}", call.cluster)
}

fn invalid(service: &Value, error: FieldError) -> Status {
    Status::invalid("", "Service", service["metadata"]["name"].as_str().unwrap_or_default(), &vec![error])
}
