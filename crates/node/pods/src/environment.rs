//! A container's environment, with every reference resolved.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    net::IpAddr,
};

use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod};

use crate::{
    downward::{self, Place},
    env_file,
    expand::expand,
    referred::{Kind, Referred},
    spec,
};

/// What variables tell of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePorts {
    pub address: IpAddr,
    /// Name, protocol and number.
    pub ports: Vec<(String, String, i32)>,
}

/// Services by name: those of the pod's namespace, and the API's own.
pub type Services = BTreeMap<String, ServicePorts>;

/// Texts of files by volume and path: those that variables are taken from and that could be read.
pub type Files = BTreeMap<(String, String), String>;

/// The files that a container takes variables from, by volume and path.
pub fn files_of(container: &Container) -> impl Iterator<Item = (String, String)> {
    let sources = container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    let files = sources.filter_map(|source| source.file_key_ref.as_ref());
    files.map(|file| (file.volume_name.clone(), file.path.clone()))
}

/// All variables, or why they cannot be made.
pub fn of(
    pod: &Pod,
    container: &Container,
    referred: &Referred,
    files: &Files,
    services: &Services,
    place: &Place,
) -> Result<Vec<(String, String)>, String> {
    let from_services = of_services(services);
    let mut order: Vec<String> = Vec::new();
    let mut values: BTreeMap<String, String> = BTreeMap::new();
    let mut set = |name: String, value: String, values: &mut BTreeMap<String, String>| {
        if values.insert(name.clone(), value).is_none() {
            order.push(name);
        }
    };
    for (name, value) in whole(container, referred)? {
        set(name, value, &mut values);
    }
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) if !value.is_empty() => {
                let known = |name: &str| values.get(name).or_else(|| from_services.get(name)).map(String::as_str);
                Some(expand(value, known))
            }
            (_, Some(from)) => of_source(from, pod, container, referred, files, place)?,
            _ => Some(String::new()),
        };
        if let Some(value) = value {
            set(variable.name.clone(), value, &mut values);
        }
    }
    for (name, value) in from_services {
        if let Entry::Vacant(free) = values.entry(name) {
            order.push(free.key().clone());
            free.insert(value);
        }
    }
    Ok(order.into_iter().filter_map(|name| values.remove(&name).map(|value| (name, value))).collect())
}

/// Commands and arguments with their variables.
pub fn expand_all(texts: Option<&Vec<String>>, environment: &[(String, String)]) -> Vec<String> {
    let known = |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    texts.into_iter().flatten().map(|text| expand(text, known)).collect()
}

/// Whole ConfigMaps and Secrets.
fn whole(container: &Container, referred: &Referred) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    for from in container.env_from.iter().flatten() {
        let (kind, name, is_optional) = match (&from.config_map_ref, &from.secret_ref) {
            (Some(map), _) => (Kind::ConfigMap, &map.name, map.optional),
            (_, Some(secret)) => (Kind::Secret, &secret.name, secret.optional),
            _ => continue,
        };
        let Some(data) = referred.get(&(kind, name.clone())) else {
            if is_optional == Some(true) {
                continue;
            }
            return Err(missing(kind, name));
        };
        let prefix = from.prefix.as_deref().unwrap_or_default();
        for (key, entry) in data.entries.iter().filter(|(_, entry)| !entry.is_binary) {
            let value = String::from_utf8_lossy(&entry.bytes).into_owned();
            if !key.contains('=') && !key.is_empty() && !value.contains('\0') {
                found.push((format!("{prefix}{key}"), value));
            }
        }
    }
    Ok(found)
}

pub fn missing(kind: Kind, name: &str) -> String {
    format!("{} {name:?} not found", kind.word())
}

fn of_source(
    from: &EnvVarSource,
    pod: &Pod,
    container: &Container,
    referred: &Referred,
    files: &Files,
    place: &Place,
) -> Result<Option<String>, String> {
    if let Some(selector) = &from.field_ref {
        return downward::field(selector, pod, place).map(Some);
    }
    if let Some(selector) = &from.resource_field_ref {
        let other = selector.container_name.as_deref().filter(|name| *name != container.name && !name.is_empty());
        return match other {
            None => downward::resource(selector, container, place),
            Some(name) => {
                let other = spec::container(pod, name).ok_or_else(|| format!("container {name} not found"))?;
                downward::resource(selector, &other, place)
            }
        }
        .map(Some);
    }
    if let Some(file) = &from.file_key_ref {
        let text = files.get(&(file.volume_name.clone(), file.path.clone()));
        let text = text.ok_or_else(|| {
            format!("couldn't parse env file: {:?} of volume {:?} cannot be read", file.path, file.volume_name)
        })?;
        let found = env_file::value(text, &file.key)
            .map_err(|why| format!("couldn't parse env file: {:?}: {why}", file.path))?;
        return match found {
            None if file.optional != Some(true) => {
                Err(format!("environment variable key {:?} not found in file {:?}", file.key, file.path))
            }
            found => Ok(found),
        };
    }
    let (kind, name, key, is_optional) = match (&from.config_map_key_ref, &from.secret_key_ref) {
        (Some(map), _) => (Kind::ConfigMap, &map.name, &map.key, map.optional),
        (_, Some(secret)) => (Kind::Secret, &secret.name, &secret.key, secret.optional),
        _ => {
            return Err(
                "this node does not know how to find the value of a variable: its source is of an unknown kind".into(),
            );
        }
    };
    let is_optional = is_optional == Some(true);
    let data = match referred.get(&(kind, name.clone())) {
        Some(data) => data,
        None if is_optional => return Ok(None),
        None => return Err(missing(kind, name)),
    };
    match data.entries.get(key).filter(|entry| !entry.is_binary) {
        Some(entry) => Ok(Some(String::from_utf8_lossy(&entry.bytes).into_owned())),
        None if is_optional => Ok(None),
        None => Err(format!("couldn't find key {key} in {} {}/{name}", kind.name(), spec::namespace(pod))),
    }
}

/// The variables by which programs of old find Services.
fn of_services(services: &Services) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (name, service) in services {
        let Some((_, _, first)) = service.ports.first() else { continue };
        let name = name.to_uppercase().replace('-', "_");
        let host = match service.address {
            IpAddr::V6(address) => format!("[{address}]"),
            IpAddr::V4(address) => address.to_string(),
        };
        found.insert(format!("{name}_SERVICE_HOST"), service.address.to_string());
        found.insert(format!("{name}_SERVICE_PORT"), first.to_string());
        for (index, (port_name, protocol, port)) in service.ports.iter().enumerate() {
            if !port_name.is_empty() {
                let port_name = port_name.to_uppercase().replace('-', "_");
                found.insert(format!("{name}_SERVICE_PORT_{port_name}"), port.to_string());
            }
            let lower = protocol.to_lowercase();
            let url = format!("{lower}://{host}:{port}");
            if index == 0 {
                found.insert(format!("{name}_PORT"), url.clone());
            }
            let prefix = format!("{name}_PORT_{port}_{}", protocol.to_uppercase());
            found.insert(format!("{prefix}_PROTO"), lower);
            found.insert(format!("{prefix}_PORT"), port.to_string());
            found.insert(format!("{prefix}_ADDR"), service.address.to_string());
            found.insert(prefix, url);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use serde_json::{Value, json};

    use super::*;
    use crate::referred::Data;

    fn made(container: Value) -> Result<Vec<(String, String)>, String> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": [container]},
        }))
        .unwrap();
        let map: ConfigMap =
            serde_json::from_value(json!({"data": {"color": "red", "size": "L"}, "binaryData": {"b": "AA=="}}))
                .unwrap();
        let secret: Secret = serde_json::from_value(json!({"data": {"password": "aHVudGVy"}})).unwrap();
        let referred = Referred::from([
            ((Kind::ConfigMap, "config".into()), Arc::new(Data::from(map))),
            ((Kind::Secret, "secret".into()), Arc::new(Data::from(secret))),
        ]);
        let service = ServicePorts {
            address: "10.0.0.11".parse().unwrap(),
            ports: vec![("client".into(), "TCP".into(), 6379), (String::new(), "UDP".into(), 53)],
        };
        let services = Services::from([("redis-primary".to_owned(), service)]);
        let place = Place { host: "1.2.3.4".parse().unwrap(), address: None, allocatable: BTreeMap::new() };
        let files = Files::from([(("work".to_owned(), "app.env".to_owned()), "COLOR='blue'\n".to_owned())]);
        of(&pod, &pod.spec.as_ref().unwrap().containers[0], &referred, &files, &services, &place)
    }

    fn value(container: Value, name: &str) -> Option<String> {
        made(container).unwrap().into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    #[test]
    fn values_come_from_everywhere() {
        let env = |env: Value| json!({"name": "a", "env": env});
        let from = |from: Value| env(json!([{"name": "V", "valueFrom": from}]));
        let file = |path: &str, key: &str, optional: bool| {
            from(json!({"fileKeyRef": {"volumeName": "work", "path": path, "key": key, "optional": optional}}))
        };
        for (container, expected) in [
            (env(json!([{"name": "V", "value": "x"}])), Ok(Some("x"))),
            (env(json!([{"name": "V"}])), Ok(Some(""))),
            (
                env(
                    json!([{"name": "A", "value": "1"}, {"name": "V", "value": "$(A)-$(B)"}, {"name": "B", "value": "2"}]),
                ),
                Ok(Some("1-$(B)")),
            ),
            (
                env(json!([{"name": "V", "value": "http://$(REDIS_PRIMARY_SERVICE_HOST)"}])),
                Ok(Some("http://10.0.0.11")),
            ),
            (from(json!({"fieldRef": {"fieldPath": "metadata.name"}})), Ok(Some("web"))),
            (from(json!({"fieldRef": {"fieldPath": "status.podIP"}})), Ok(Some("1.2.3.4"))),
            (from(json!({"configMapKeyRef": {"name": "config", "key": "color"}})), Ok(Some("red"))),
            (from(json!({"configMapKeyRef": {"name": "config", "key": "b", "optional": true}})), Ok(None)),
            (
                from(json!({"configMapKeyRef": {"name": "config", "key": "nope"}})),
                Err("couldn't find key nope in ConfigMap shop/config"),
            ),
            (from(json!({"configMapKeyRef": {"name": "config", "key": "nope", "optional": true}})), Ok(None)),
            (from(json!({"configMapKeyRef": {"name": "none", "key": "color"}})), Err("configmap \"none\" not found")),
            (from(json!({"secretKeyRef": {"name": "secret", "key": "password"}})), Ok(Some("hunter"))),
            (from(json!({"secretKeyRef": {"name": "none", "key": "x", "optional": true}})), Ok(None)),
            (from(json!({"secretKeyRef": {"name": "none", "key": "x"}})), Err("secret \"none\" not found")),
            (file("app.env", "COLOR", false), Ok(Some("blue"))),
            (file("app.env", "SIZE", true), Ok(None)),
            (file("app.env", "SIZE", false), Err("environment variable key \"SIZE\" not found in file \"app.env\"")),
            (
                file("none.env", "COLOR", true),
                Err("couldn't parse env file: \"none.env\" of volume \"work\" cannot be read"),
            ),
        ] {
            let found = made(container.clone());
            match expected {
                Err(message) => assert_eq!(found, Err(message.to_owned())),
                Ok(expected) => assert_eq!(value(container, "V").as_deref(), expected),
            }
        }
    }

    #[test]
    fn whole_maps_and_services() {
        let container = json!({
            "name": "a",
            "env": [{"name": "P_size", "value": "M"}, {"name": "REDIS_PRIMARY_PORT", "value": "mine"}],
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "config"}}, {"secretRef": {"name": "secret"}},
                        {"configMapRef": {"name": "none", "optional": true}}],
        });
        let all: BTreeMap<String, String> = made(container).unwrap().into_iter().collect();
        for (name, expected) in [
            ("P_color", Some("red")),
            ("P_size", Some("M")),
            ("P_b", None),
            ("password", Some("hunter")),
            ("REDIS_PRIMARY_SERVICE_HOST", Some("10.0.0.11")),
            ("REDIS_PRIMARY_SERVICE_PORT", Some("6379")),
            ("REDIS_PRIMARY_SERVICE_PORT_CLIENT", Some("6379")),
            ("REDIS_PRIMARY_PORT", Some("mine")),
            ("REDIS_PRIMARY_PORT_6379_TCP", Some("tcp://10.0.0.11:6379")),
            ("REDIS_PRIMARY_PORT_6379_TCP_PROTO", Some("tcp")),
            ("REDIS_PRIMARY_PORT_53_UDP_ADDR", Some("10.0.0.11")),
        ] {
            assert_eq!(all.get(name).map(String::as_str), expected, "{name}");
        }
    }

    #[test]
    fn arguments_are_expanded() {
        let environment = [("A".to_owned(), "1".to_owned())];
        assert_eq!(expand_all(Some(&vec!["--a=$(A)".into(), "$$(A)".into()]), &environment), ["--a=1", "$(A)"]);
    }
}
