//! What a pod is told of itself: its fields, and what its containers may use.

use std::{collections::BTreeMap, net::IpAddr};

use k8s_openapi::api::core::v1::{Container, ObjectFieldSelector, Pod, ResourceFieldSelector};
use schema::quantity::Quantity as Amount;

use crate::{resources, spec};

/// What is known of a pod beside its object.
#[derive(Clone, Debug)]
pub struct Place {
    pub host: IpAddr,
    /// Its own address; none if it has the node's.
    pub address: Option<IpAddr>,
    /// What the node has to give: a container without a limit may use all of it.
    pub allocatable: resources::Amounts,
}

/// The value of a field, or why there is none.
pub fn field(selector: &ObjectFieldSelector, pod: &Pod, place: &Place) -> Result<String, String> {
    let path = selector.field_path.as_str();
    let metadata = &pod.metadata;
    let spec = pod.spec.as_ref();
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => metadata.labels.as_ref(),
            "metadata.annotations" => metadata.annotations.as_ref(),
            _ => return Err(format!("fieldPath {path:?} does not support subscript")),
        };
        return Ok(map.and_then(|map| map.get(key)).cloned().unwrap_or_default());
    }
    let address = || place.address.unwrap_or(place.host).to_string();
    Ok(match path {
        "metadata.name" => spec::name(pod).to_owned(),
        "metadata.namespace" => spec::namespace(pod).to_owned(),
        "metadata.uid" => spec::uid(pod).to_owned(),
        "metadata.labels" => lines(metadata.labels.as_ref()),
        "metadata.annotations" => lines(metadata.annotations.as_ref()),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default(),
        "status.hostIP" | "status.hostIPs" => place.host.to_string(),
        "status.podIP" | "status.podIPs" => address(),
        _ => return Err(format!("unsupported fieldPath: {path}")),
    })
}

/// `metadata.labels['name']`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once('[')?;
    let key = rest.strip_suffix(']')?;
    let key = key.strip_prefix('\'').and_then(|key| key.strip_suffix('\''));
    let quoted = || rest.strip_suffix(']')?.strip_prefix('"')?.strip_suffix('"');
    Some((map, key.or_else(quoted)?))
}

/// A map as files have it: sorted, values quoted.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines: Vec<String> = map.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}")).collect();
    lines.join("\n")
}

/// What a container asks for or may use, divided and rounded up.
pub fn resource(selector: &ResourceFieldSelector, container: &Container, place: &Place) -> Result<String, String> {
    let own = container.resources.as_ref();
    let (kind, name) = selector.resource.split_once('.').unwrap_or_default();
    let known = ["cpu", "memory", "ephemeral-storage"].contains(&name) || name.starts_with("hugepages-");
    let given = match kind {
        "limits" if known => {
            let limits = own.and_then(|own| own.limits.as_ref());
            resources::amount(limits, name).or_else(|| resources::amount(Some(&place.allocatable), name))
        }
        "requests" if known => resources::amount(own.and_then(|own| own.requests.as_ref()), name),
        _ => return Err(format!("unsupported container resource : {}", selector.resource)),
    };
    let given = given.unwrap_or_else(Amount::zero);
    let divisor = selector.divisor.as_ref().and_then(|divisor| divisor.0.parse::<Amount>().ok());
    let divisor = divisor.filter(|divisor| !divisor.is_zero()).unwrap_or_else(|| Amount::from_int(1));
    let (given, divisor) =
        if name == "cpu" { (given.milli_value(), divisor.milli_value()) } else { (given.value(), divisor.value()) };
    let divisor = divisor.max(1);
    Ok((given / divisor + i64::from(given % divisor > 0)).to_string())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use serde_json::json;

    use super::*;

    fn place() -> Place {
        Place {
            host: "10.0.0.1".parse().unwrap(),
            address: "127.5.0.7".parse().ok(),
            allocatable: [("cpu".to_owned(), Quantity("2".into())), ("memory".to_owned(), Quantity("1Gi".into()))]
                .into(),
        }
    }

    #[test]
    fn fields() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "labels": {"b": "say \"hi\"", "a": "1"},
                         "annotations": {"x/y": "z"}},
            "spec": {"nodeName": "florin", "serviceAccountName": "default", "containers": []},
        }))
        .unwrap();
        for (path, expected) in [
            ("metadata.name", Ok("web")),
            ("metadata.namespace", Ok("shop")),
            ("metadata.uid", Ok("u1")),
            ("metadata.labels", Ok("a=\"1\"\nb=\"say \\\"hi\\\"\"")),
            ("metadata.labels['a']", Ok("1")),
            ("metadata.labels['none']", Ok("")),
            ("metadata.annotations['x/y']", Ok("z")),
            ("spec.nodeName", Ok("florin")),
            ("spec.serviceAccountName", Ok("default")),
            ("status.hostIP", Ok("10.0.0.1")),
            ("status.podIP", Ok("127.5.0.7")),
            ("status.podIPs", Ok("127.5.0.7")),
            ("spec.containers", Err("unsupported fieldPath: spec.containers")),
        ] {
            let selector = ObjectFieldSelector { field_path: path.into(), ..ObjectFieldSelector::default() };
            let found = field(&selector, &pod, &place());
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{path}");
        }
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let container: Container = serde_json::from_value(
            json!({"name": "a", "resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "100Mi"}}}),
        )
        .unwrap();
        for (name, divisor, expected) in [
            ("limits.cpu", None, "2"),
            ("limits.cpu", Some("1m"), "1500"),
            ("requests.cpu", None, "0"),
            ("limits.memory", Some("1Mi"), "1024"),
            ("requests.memory", Some("1Mi"), "100"),
            ("requests.memory", None, "104857600"),
        ] {
            let selector = ResourceFieldSelector {
                resource: name.into(),
                divisor: divisor.map(|divisor| Quantity(divisor.into())),
                ..ResourceFieldSelector::default()
            };
            assert_eq!(resource(&selector, &container, &place()).as_deref(), Ok(expected), "{name} {divisor:?}");
        }
    }
}
