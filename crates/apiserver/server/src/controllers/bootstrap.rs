//! What exists in a workspace from its first moment: made in a few commits, so that a first start is a few writes.

use std::{
    net::{IpAddr, Ipv4Addr, UdpSocket},
    sync::Arc,
};

use identity::{front_proxy, policy};
use request::ROOT;
use schema::status::Result;
use serde_json::{Value, json};

use crate::{Server, flows, internal::Internal};

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// etcd takes at most 128 operations and as many compares in one commit.
const AT_ONCE: usize = 50;

/// Group, resource, namespace, object.
type Wanted = (&'static str, &'static str, &'static str, Value);

/// Makes what must exist before the first request is answered. What is there already stays as it is.
pub async fn prepare(server: &Arc<Server>, cluster: &str) -> Result<()> {
    let hand = Internal::new(server, cluster, "kube-apiserver");
    let mut all = wanted(server);
    if cluster == ROOT {
        let rbac = "rbac.authorization.k8s.io";
        all.extend(policy::root_cluster_roles().into_iter().map(|role| (rbac, "clusterroles", "", role)));
        let bindings = policy::root_cluster_role_bindings();
        all.extend(bindings.into_iter().map(|one| (rbac, "clusterrolebindings", "", one)));
        // Since when the use of tokens in Secrets could be seen: upstream's cleaner of such tokens asks for it.
        let today = clock::now().split('T').next().unwrap_or_default().to_owned();
        let name = "kube-apiserver-legacy-service-account-token-tracking";
        all.push(("", "configmaps", "kube-system", json!({"metadata": {"name": name}, "data": {"since": today}})));
    }
    // Namespaces come before what lives in them.
    let (namespaces, rest) = all.split_at(NAMESPACES.len());
    for some in std::iter::once(namespaces).chain(rest.chunks(AT_ONCE)) {
        make(&hand, some).await?;
    }
    point_to_here(&hand).await?;
    if cluster == ROOT {
        authentication(&hand, cluster).await?;
    }
    Ok(())
}

/// What of these is missing is made in one commit.
async fn make(hand: &Internal, wanted: &[Wanted]) -> Result<()> {
    let kinds: Vec<_> =
        wanted.iter().map(|(group, resource, ..)| hand.kind(group, "v1", resource)).collect::<Result<_>>()?;
    let all: Vec<_> = kinds.iter().zip(wanted).map(|(kind, (.., home, value))| (kind, *home, value.clone())).collect();
    hand.make_missing(&all).await
}

fn wanted(server: &Server) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for name in NAMESPACES {
        wanted.push(("", "namespaces", "", json!({"metadata": {"name": name}})));
    }
    for (name, value, text) in [
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ] {
        let class = json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority",
            "description": text});
        wanted.push(("scheduling.k8s.io", "priorityclasses", "", class));
    }
    let range = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": [server.services.to_string()]}});
    wanted.push(("networking.k8s.io", "servicecidrs", "", range));
    wanted.push(("", "services", "default", service(server)));
    wanted.push(("", "endpoints", "default", endpoints(server)));
    wanted.push(("discovery.k8s.io", "endpointslices", "default", slice(server)));
    let rbac = "rbac.authorization.k8s.io";
    wanted.extend(policy::cluster_roles().into_iter().map(|role| (rbac, "clusterroles", "", role)));
    wanted.extend(policy::cluster_role_bindings().into_iter().map(|one| (rbac, "clusterrolebindings", "", one)));
    wanted.extend(policy::roles().into_iter().map(|(home, role)| (rbac, "roles", home, role)));
    wanted.extend(policy::role_bindings().into_iter().map(|(home, one)| (rbac, "rolebindings", home, one)));
    wanted.push(("", "configmaps", "kube-system", authentication_map(server, ROOT)));
    wanted.extend(flows::objects().into_iter().map(|(resource, value)| (flows::GROUP, resource, "", value)));
    wanted
}

fn service(server: &Server) -> Value {
    let (ip, port) = (server.services.first(), server.address.port());
    json!({"metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"type": "ClusterIP", "clusterIP": ip,
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]}})
}

/// Where others reach this server. One that listens everywhere names the address by which this machine leaves its network.
fn reachable(server: &Server) -> IpAddr {
    let listens = server.address.ip();
    if !listens.is_unspecified() {
        return listens;
    }
    let outward = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        // Nothing is sent: connecting only asks the system for the route.
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    outward().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn endpoints(server: &Server) -> Value {
    json!({"metadata": {"name": "kubernetes", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": reachable(server)}],
            "ports": [{"name": "https", "port": server.address.port(), "protocol": "TCP"}]}]})
}

fn slice(server: &Server) -> Value {
    let address = reachable(server);
    json!({"metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": server.address.port(), "protocol": "TCP"}]})
}

/// A server that was started somewhere else before says where it is now.
async fn point_to_here(hand: &Internal) -> Result<()> {
    let server = hand.server();
    for (group, resource, want, fields) in [
        ("", "endpoints", endpoints(server), &["subsets"][..]),
        ("discovery.k8s.io", "endpointslices", slice(server), &["addressType", "endpoints", "ports"]),
    ] {
        let kind = hand.kind(group, "v1", resource)?;
        let Some(have) = hand.get(&kind, "default", "kubernetes") else { continue };
        let have = have.value();
        if fields.iter().any(|field| have[*field] != want[*field]) {
            // Validation would refuse an address of the loopback, where this server may well be.
            let edit = |value: &mut Value| fields.iter().for_each(|field| value[*field] = want[*field].clone());
            hand.change_trusted(&kind, "default", "kubernetes", edit).await?;
        }
    }
    let services = hand.kind("", "v1", "services")?;
    let port = json!(server.address.port());
    if let Some(have) = hand.get(&services, "default", "kubernetes")
        && have.value()["spec"]["ports"][0]["targetPort"] != port
    {
        let edit = |value: &mut Value| value["spec"]["ports"][0]["targetPort"] = port.clone();
        hand.change(&services, "default", "kubernetes", "", edit).await?;
    }
    Ok(())
}

/// Tells aggregated API servers how they know the users of this one. What an earlier version said is corrected.
pub async fn authentication(hand: &Internal, cluster: &str) -> Result<()> {
    let want = authentication_map(hand.server(), cluster);
    let kind = hand.kind("", "v1", "configmaps")?;
    hand.ensure(&kind, "kube-system", want.clone()).await?;
    let Some(have) = hand.get(&kind, "kube-system", AUTHENTICATION) else { return Ok(()) };
    let have = have.value();
    let Some(wanted) = want["data"].as_object() else { return Ok(()) };
    if wanted.iter().all(|(key, value)| have["data"][key] == *value) {
        return Ok(());
    }
    let edit = |value: &mut Value| wanted.iter().for_each(|(key, text)| value["data"][key] = text.clone());
    hand.change(&kind, "kube-system", AUTHENTICATION, "", edit).await.map(drop)
}

const AUTHENTICATION: &str = "extension-apiserver-authentication";

fn authentication_map(server: &Server, cluster: &str) -> Value {
    let names = json!([front_proxy::name(cluster)]).to_string();
    json!({"metadata": {"name": AUTHENTICATION}, "data": {
        "client-ca-file": server.identity.ca_pem(),
        "requestheader-client-ca-file": server.identity.pki().front_proxy().pem(),
        "requestheader-allowed-names": names,
        "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
        "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]"}})
}
