//! The files of a volume that is made of objects. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, Pod, ServiceAccountTokenProjection, Volume, VolumeProjection,
};

use super::owners::{Owners, READ_FILE};
use crate::{
    downward::{self, Place},
    environment::missing,
    referred::{Data, Kind, Referred},
    spec,
};

/// Files by their paths in the volume.
pub type Content = BTreeMap<String, File>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub bytes: Vec<u8>,
    pub mode: u32,
    /// If not the agent's own.
    pub owner: Option<u32>,
}

/// What the volumes of a pod are made of.
pub struct Materials<'a> {
    pub pod: &'a Pod,
    pub referred: &'a Referred,
    pub tokens: &'a Tokens,
    pub place: &'a Place,
    pub owners: Owners,
}

/// A token that a volume needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenAsk {
    pub audience: String,
    pub seconds: i64,
}

/// Tokens that were got.
pub type Tokens = BTreeMap<TokenAsk, String>;

const MODE: i32 = 0o644;

impl From<&ServiceAccountTokenProjection> for TokenAsk {
    fn from(source: &ServiceAccountTokenProjection) -> Self {
        Self {
            audience: source.audience.clone().unwrap_or_default(),
            seconds: source.expiration_seconds.unwrap_or(3600).max(600),
        }
    }
}

/// What has to be in the volume, or why that cannot be made.
pub fn content(volume: &Volume, of: &Materials<'_>) -> Result<Content, String> {
    let mut found = Content::new();
    if let Some(map) = &volume.config_map {
        let mode = map.default_mode.unwrap_or(MODE);
        let from =
            Wanted { kind: Kind::ConfigMap, name: &map.name, items: map.items.as_deref(), optional: map.optional };
        from.add(of, mode, &mut found)?;
    } else if let Some(secret) = &volume.secret {
        let mode = secret.default_mode.unwrap_or(MODE);
        let name = secret.secret_name.as_deref().unwrap_or_default();
        let from = Wanted { kind: Kind::Secret, name, items: secret.items.as_deref(), optional: secret.optional };
        from.add(of, mode, &mut found)?;
    } else if let Some(downward) = &volume.downward_api {
        add_downward(downward.items.as_deref(), of, downward.default_mode.unwrap_or(MODE), &mut found)?;
    } else if let Some(projected) = &volume.projected {
        for source in projected.sources.iter().flatten() {
            let mode = projected.default_mode.unwrap_or(MODE);
            add_projected(source, of, mode, &mut found)?;
        }
    }
    if of.owners.group.is_some() {
        found.values_mut().for_each(|file| file.mode |= READ_FILE);
    }
    Ok(found)
}

fn add_projected(source: &VolumeProjection, of: &Materials<'_>, mode: i32, found: &mut Content) -> Result<(), String> {
    if let Some(map) = &source.config_map {
        let from =
            Wanted { kind: Kind::ConfigMap, name: &map.name, items: map.items.as_deref(), optional: map.optional };
        from.add(of, mode, found)?;
    }
    if let Some(secret) = &source.secret {
        let from = Wanted {
            kind: Kind::Secret,
            name: &secret.name,
            items: secret.items.as_deref(),
            optional: secret.optional,
        };
        from.add(of, mode, found)?;
    }
    if let Some(downward) = &source.downward_api {
        add_downward(downward.items.as_deref(), of, mode, found)?;
    }
    if let Some(token) = &source.service_account_token {
        let text = of.tokens.get(&TokenAsk::from(token)).ok_or("the ServiceAccount's token is not there yet")?;
        let file =
            File { bytes: text.clone().into_bytes(), mode: of.owners.token_mode(bits(mode)), owner: of.owners.user };
        found.insert(inside(&token.path)?, file);
    }
    if source.cluster_trust_bundle.is_some() || source.pod_certificate.is_some() {
        return Err("clusterTrustBundle and podCertificate are not supported on this node".to_owned());
    }
    Ok(())
}

/// A ConfigMap or a Secret, and what of it is wanted.
struct Wanted<'a> {
    kind: Kind,
    name: &'a str,
    items: Option<&'a [KeyToPath]>,
    optional: Option<bool>,
}

impl Wanted<'_> {
    fn add(&self, of: &Materials<'_>, mode: i32, found: &mut Content) -> Result<(), String> {
        let is_optional = self.optional == Some(true);
        let nothing = Data::default();
        let data = match of.referred.get(&(self.kind, self.name.to_owned())) {
            Some(data) => data,
            None if is_optional => &nothing,
            None => return Err(missing(self.kind, self.name)),
        };
        let Some(items) = self.items.filter(|items| !items.is_empty()) else {
            for (key, entry) in &data.entries {
                found.insert(inside(key)?, plain(entry.bytes.clone(), mode));
            }
            return Ok(());
        };
        for item in items {
            match data.entries.get(&item.key) {
                Some(entry) => {
                    found.insert(inside(&item.path)?, plain(entry.bytes.clone(), item.mode.unwrap_or(mode)));
                }
                None if is_optional => {}
                None => {
                    let (kind, namespace) = (self.kind.word(), spec::namespace(of.pod));
                    return Err(format!("{kind} {namespace}/{} references non-existent key: {}", self.name, item.key));
                }
            }
        }
        Ok(())
    }
}

fn add_downward(
    items: Option<&[DownwardAPIVolumeFile]>,
    of: &Materials<'_>,
    mode: i32,
    found: &mut Content,
) -> Result<(), String> {
    let (pod, place) = (of.pod, of.place);
    for item in items.unwrap_or_default() {
        let text = match (&item.field_ref, &item.resource_field_ref) {
            (Some(selector), _) => downward::field(selector, pod, place)?,
            (_, Some(selector)) => {
                let name = selector.container_name.as_deref().unwrap_or_default();
                let container = spec::container(pod, name).ok_or_else(|| format!("container {name} not found"))?;
                downward::resource(selector, &container, place)?
            }
            _ => continue,
        };
        found.insert(inside(&item.path)?, plain(text.into_bytes(), item.mode.unwrap_or(mode)));
    }
    Ok(())
}

fn plain(bytes: Vec<u8>, mode: i32) -> File {
    File { bytes, mode: bits(mode), owner: None }
}

fn bits(mode: i32) -> u32 {
    mode.unsigned_abs() & 0o777
}

/// A path that stays in the volume, and out of the way of how it is updated.
fn inside(path: &str) -> Result<String, String> {
    let mut parts = path.split('/');
    let is_fine = !path.starts_with("..") && parts.all(|part| !part.is_empty() && part != "." && part != "..");
    if is_fine { Ok(path.to_owned()) } else { Err(format!("the path {path:?} does not stay in its volume")) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use serde_json::{Value, json};

    use super::*;

    fn made(volume: Value, owners: Owners) -> Result<Vec<(String, String, u32)>, String> {
        let found = files(volume, owners)?;
        Ok(found.into_iter().map(|(path, file)| (path, String::from_utf8(file.bytes).unwrap(), file.mode)).collect())
    }

    fn files(volume: Value, owners: Owners) -> Result<Content, String> {
        let volume: Volume = serde_json::from_value(volume).unwrap();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "labels": {"a": "1"}},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]},
        }))
        .unwrap();
        let map: ConfigMap = serde_json::from_value(json!({"data": {"color": "red", "size": "L"}})).unwrap();
        let secret: Secret = serde_json::from_value(json!({"data": {"password": "aHVudGVy"}})).unwrap();
        let referred = Referred::from([
            ((Kind::ConfigMap, "config".into()), Arc::new(Data::from(map))),
            ((Kind::Secret, "secret".into()), Arc::new(Data::from(secret))),
        ]);
        let tokens = Tokens::from([(TokenAsk { audience: "api".into(), seconds: 3607 }, "jwt".to_owned())]);
        let place = Place { host: "1.2.3.4".parse().unwrap(), address: None, allocatable: BTreeMap::new() };
        content(&volume, &Materials { pod: &pod, referred: &referred, tokens: &tokens, place: &place, owners })
    }

    #[test]
    fn files_of_every_kind() {
        type Expected = Result<&'static [(&'static str, &'static str, u32)], &'static str>;
        let cases: [(Value, Expected); 11] = [
            (json!({"configMap": {"name": "config"}}), Ok(&[("color", "red", 0o644), ("size", "L", 0o644)])),
            (
                json!({"configMap": {"name": "config", "defaultMode": 0o400, "items": [{"key": "color", "path": "a/b"}]}}),
                Ok(&[("a/b", "red", 0o400)]),
            ),
            (
                json!({"configMap": {"name": "config", "items": [{"key": "color", "path": "../x"}]}}),
                Err("the path \"../x\" does not stay in its volume"),
            ),
            (
                json!({"configMap": {"name": "config", "items": [{"key": "none", "path": "x"}]}}),
                Err("configmap shop/config references non-existent key: none"),
            ),
            (json!({"configMap": {"name": "none"}}), Err("configmap \"none\" not found")),
            (json!({"configMap": {"name": "none", "optional": true}}), Ok(&[])),
            (json!({"secret": {"secretName": "secret", "defaultMode": 0o600}}), Ok(&[("password", "hunter", 0o600)])),
            (
                json!({"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}),
                Ok(&[("labels", "a=\"1\"", 0o644)]),
            ),
            (
                json!({"downwardAPI": {"items": [{"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu", "divisor": "1m"}}]}}),
                Ok(&[("cpu", "1000", 0o644)]),
            ),
            (
                json!({"projected": {"sources": [
                    {"serviceAccountToken": {"audience": "api", "expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "config", "items": [{"key": "size", "path": "size"}]}},
                    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
                ]}}),
                Ok(&[("namespace", "shop", 0o644), ("size", "L", 0o644), ("token", "jwt", 0o644)]),
            ),
            (
                json!({"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}),
                Err("the ServiceAccount's token is not there yet"),
            ),
        ];
        for (mut volume, expected) in cases {
            volume["name"] = "v".into();
            let found = made(volume.clone(), Owners::default());
            let found = found.as_ref().map_err(String::as_str).map(|files| {
                files.iter().map(|(path, text, mode)| (path.as_str(), text.as_str(), *mode)).collect::<Vec<_>>()
            });
            assert_eq!(found, expected.map(<[_]>::to_vec), "{volume}");
        }
    }

    #[test]
    fn tokens_are_for_those_who_are_meant() {
        let volume = json!({"name": "v", "projected": {"defaultMode": 0o604, "sources": [
            {"serviceAccountToken": {"audience": "api", "expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "config", "items": [{"key": "size", "path": "size"}]}},
        ]}});
        for (group, user, size, token) in [
            (None, None, 0o604, 0o604),
            (None, Some(5), 0o604, 0o600),
            (Some(7), None, 0o644, 0o640),
            (Some(7), Some(5), 0o644, 0o640),
        ] {
            let found = files(volume.clone(), Owners { group, user, looks_at_root_only: false }).unwrap();
            assert_eq!((found["size"].mode, found["size"].owner), (size, None));
            assert_eq!((found["token"].mode, found["token"].owner), (token, user));
        }
    }
}
