//! The `/etc/hosts` of a pod. Pure.

use std::{fmt::Write, net::IpAddr};

use k8s_openapi::api::core::v1::Pod;

use crate::spec;

/// What is looked for to tell whether it is the pod's own.
const HEADER: &str = "# Kubernetes-managed hosts file.";
const OF_HOST: &str = "# Kubernetes-managed hosts file (host network).";

/// The pod's name at its address, what the machine knows, and what the pod wants to know besides.
///
/// A kubelet leaves out what the machine knows where the pod has a network of its own. Here it has an address, but on the machine's network.
pub fn of(pod: &Pod, address: IpAddr, machine: &str) -> String {
    let is_on_host = spec::is_on_host_network(pod);
    let mut text = format!("{}\n", if is_on_host { OF_HOST } else { HEADER });
    if !is_on_host {
        let (name, domain) = spec::host_and_domain(pod);
        let _ = match domain {
            Some(domain) => writeln!(text, "{address}\t{name}.{domain}\t{name}"),
            None => writeln!(text, "{address}\t{name}"),
        };
    }
    text.push_str(machine);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let aliases = pod.spec.as_ref().and_then(|spec| spec.host_aliases.as_deref()).unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        let _ = writeln!(text, "{}\t{}", alias.ip, alias.hostnames.as_deref().unwrap_or_default().join("\t"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_the_pod_the_machine_and_others() {
        let alias = json!([{"ip": "10.0.0.1", "hostnames": ["a", "b.example"]}, {"ip": "::2", "hostnames": ["c"]}]);
        let added = "\n# Entries added by HostAliases.\n10.0.0.1\ta\tb.example\n::2\tc\n";
        for (more, machine, expected) in [
            (json!({}), "127.0.0.1 localhost\n", "127.9.0.7\tweb-0\n127.0.0.1 localhost\n".to_owned()),
            (json!({}), "", "127.9.0.7\tweb-0\n".to_owned()),
            (json!({"hostAliases": alias}), "::1 x", format!("127.9.0.7\tweb-0\n::1 x\n{added}")),
            (
                json!({"hostname": "db", "subdomain": "shop", "setHostnameAsFQDN": true}),
                "",
                "127.9.0.7\tdb.shop.prod.svc.cluster.local\tdb\n".to_owned(),
            ),
            (
                json!({"hostnameOverride": "a.example", "hostname": "db", "subdomain": "shop"}),
                "",
                "127.9.0.7\ta.example\n".to_owned(),
            ),
            (
                json!({"hostNetwork": true, "nodeName": "florin", "hostAliases": alias}),
                "::1 x\n",
                format!("::1 x\n{added}"),
            ),
        ] {
            let is_on_host = more.get("hostNetwork").is_some();
            let mut spec = json!({"containers": []});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let pod = json!({"metadata": {"name": "web-0", "namespace": "prod"}, "spec": spec});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let header = if is_on_host { OF_HOST } else { HEADER };
            assert_eq!(of(&pod, "127.9.0.7".parse().unwrap(), machine), format!("{header}\n{expected}"));
        }
    }
}
