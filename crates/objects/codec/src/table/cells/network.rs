//! Rows of services, endpoints and ingresses.

use std::borrow::Cow;

use schema::status::qualified;
use serde_json::Value;

use crate::table::age::age;
use crate::table::read::{count, first_of, has, int, items, labels, name, selector, strings, text, text_or};
use crate::table::tree::Node;

pub(super) fn service(o: &Node<'_>, now: i64) -> Vec<Value> {
    let first_ip = o.pointer("/spec/clusterIPs/0").or_else(|| o.pointer("/spec/clusterIP"));
    let ports: Vec<String> = items(o, "/spec/ports").iter().map(service_port).collect();
    vec![
        name(o),
        text(o, "/spec/type").into(),
        first_ip.and_then(|ip| ip.as_str()).unwrap_or("<none>".into()).into(),
        external_ip(o).into(),
        if ports.is_empty() { "<none>".into() } else { ports.join(",").into() },
        age(o, now),
        labels(o, "/spec/selector"),
    ]
}

fn service_port(port: &Node<'_>) -> String {
    let (number, protocol) = (int(port, "/port"), text(port, "/protocol"));
    match int(port, "/nodePort") {
        node_port if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

fn external_ip(o: &Node<'_>) -> String {
    let mut external = strings(o, "/spec/externalIPs");
    match &*text(o, "/spec/type") {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => external.join(","),
        "LoadBalancer" => {
            let mut all = load_balancer(o);
            all.append(&mut external);
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => text(o, "/spec/externalName").into_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// The addresses a load balancer gave, each once, sorted.
fn load_balancer(o: &Node<'_>) -> Vec<String> {
    let points = items(o, "/status/loadBalancer/ingress");
    let mut addresses: Vec<String> =
        points.iter().map(|p| text_or(p, "/ip", text(p, "/hostname")).into_owned()).filter(|a| !a.is_empty()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

pub(super) fn endpoints(o: &Node<'_>, now: i64) -> Vec<Value> {
    let subsets = items(o, "/subsets");
    let mut list = Vec::new();
    for subset in &subsets {
        let addresses = || items(subset, "/addresses").into_iter().map(|address| text(&address, "/ip"));
        let ports = items(subset, "/ports");
        if ports.is_empty() {
            list.extend(addresses().map(Cow::into_owned));
        }
        for port in ports {
            list.extend(addresses().map(|ip| host_port(&ip, int(&port, "/port"))));
        }
    }
    let shown = if subsets.is_empty() { "<none>".to_owned() } else { first_of(list, 3, ",") };
    vec![name(o), shown.into(), age(o, now)]
}

fn host_port(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

pub(super) fn endpoint_slice(o: &Node<'_>, now: i64) -> Vec<Value> {
    let port = |port: &Node<'_>| match port.get("port").and_then(|number| number.as_i64()) {
        Some(number) => number.to_string(),
        None => port.get("name").and_then(|name| name.as_str()).unwrap_or("*".into()).into_owned(),
    };
    let ports = items(o, "/ports").iter().map(port).collect();
    let addresses = items(o, "/endpoints").iter().flat_map(|endpoint| strings(endpoint, "/addresses")).collect();
    let shown = |list| match first_of(list, 3, ",") {
        empty if empty.is_empty() => Value::from("<unset>"),
        shown => shown.into(),
    };
    vec![name(o), text(o, "/addressType").into(), shown(ports), shown(addresses), age(o, now)]
}

pub(super) fn ingress(o: &Node<'_>, now: i64) -> Vec<Value> {
    vec![
        name(o),
        text_or(o, "/spec/ingressClassName", "<none>").into(),
        hosts(&items(o, "/spec/rules")).into(),
        load_balancer(o).join(",").into(),
        if count(o, "/spec/tls") > 0 { "80, 443".into() } else { "80".into() },
        age(o, now),
    ]
}

/// Upstream counts all rules beyond the third shown host as more, with or without a host of their own.
fn hosts(rules: &[Node<'_>]) -> String {
    let mut list = Vec::new();
    let mut more = false;
    for rule in rules {
        more |= list.len() == 3;
        let host = text(rule, "/host");
        if !more && !host.is_empty() {
            list.push(host);
        }
    }
    match (list.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (_, true) => format!("{} + {} more...", list.join(","), rules.len() - 3),
        _ => list.join(","),
    }
}

pub(super) fn ingress_class(o: &Node<'_>, now: i64) -> Vec<Value> {
    let mut shown = o.name().into_owned();
    if annotation(o, "ingressclass.kubernetes.io/is-default-class") == "true" {
        shown.push_str(" (default)");
    }
    let parameters = if has(o, "/spec/parameters") {
        let kind = qualified(&text(o, "/spec/parameters/apiGroup"), &text(o, "/spec/parameters/kind"));
        format!("{kind}/{}", text(o, "/spec/parameters/name"))
    } else {
        "<none>".to_owned()
    };
    vec![shown.into(), text(o, "/spec/controller").into(), parameters.into(), age(o, now)]
}

pub(super) fn annotation<'a>(o: &Node<'a>, key: &str) -> Cow<'a, str> {
    let annotations = o.pointer("/metadata/annotations");
    annotations.and_then(|all| all.get(key)).and_then(|one| one.as_str()).unwrap_or_default()
}

pub(super) fn policy(o: &Node<'_>, now: i64) -> Vec<Value> {
    let pods = if has(o, "/spec/podSelector") { selector(o, "/spec/podSelector") } else { "<none>".into() };
    vec![name(o), pods, age(o, now)]
}

pub(super) fn service_cidr(o: &Node<'_>, now: i64) -> Vec<Value> {
    vec![name(o), strings(o, "/spec/cidrs").join(",").into(), age(o, now)]
}

/// Upstream gives an age although it declares no column for it.
pub(super) fn ip_address(o: &Node<'_>, now: i64) -> Vec<Value> {
    let part = |field: &str| text(o, &format!("/spec/parentRef/{field}"));
    let parent = if has(o, "/spec/parentRef") {
        let mut parent = qualified(&part("group"), &part("resource")).to_lowercase();
        for piece in [part("namespace"), part("name")] {
            if !piece.is_empty() {
                parent = format!("{parent}/{piece}");
            }
        }
        parent
    } else {
        "<none>".to_owned()
    };
    vec![name(o), parent.into(), age(o, now)]
}
