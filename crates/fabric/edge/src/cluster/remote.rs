//! The cluster's API, as far as it is needed: one object read, applied or deleted at a time, and kinds watched.

use std::{path::PathBuf, time::Duration};

use http::{Method, Request, header};
use http_body_util::BodyExt;
use kinds::ObjectKey;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use super::{answer::Answer, found::MANAGER};

/// For one request, from beginning to end.
const PATIENCE: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);
/// Applied configuration is YAML, of which JSON is a part.
const APPLY: &str = "application/apply-patch+yaml";

/// Where the cluster is, and who we are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    Kubeconfig(PathBuf),
    /// The cluster that this program itself runs in, as the service account of its pod.
    Within,
}

#[derive(Clone)]
pub struct Remote {
    client: Client,
    /// For people.
    pub server: String,
}

impl Remote {
    /// Reads the credentials anew; asks nobody.
    pub async fn open(way: &Way) -> Result<Self, String> {
        let mut config = match way {
            Way::Kubeconfig(path) => {
                let wrong = |error: kube::config::KubeconfigError| format!("cannot use {}: {error}", path.display());
                let file = Kubeconfig::read_from(path).map_err(wrong)?;
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(wrong)?
            }
            Way::Within => Config::incluster().map_err(|error| {
                format!("this edge does not run inside a cluster ({error}): name one with --kubeconfig")
            })?,
        };
        config.connect_timeout = Some(CONNECT);
        config.default_retry = false;
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|error| error.to_string())?;
        Ok(Self { client, server })
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    pub async fn get(&self, key: &ObjectKey<'_>, api_version: &str) -> Result<Answer, String> {
        self.ask(Method::GET, path(key, api_version), "", None).await
    }

    /// Without force, others' fields are left to them, and the answer says whose they are.
    pub async fn apply(
        &self,
        key: &ObjectKey<'_>,
        api_version: &str,
        value: &Value,
        force: bool,
    ) -> Result<Answer, String> {
        let path = format!("{}?fieldManager={MANAGER}&force={force}", path(key, api_version));
        self.ask(Method::PATCH, path, APPLY, Some(value.to_string())).await
    }

    /// Only this very object, and only as it was seen.
    pub async fn delete(
        &self,
        key: &ObjectKey<'_>,
        api_version: &str,
        uid: &str,
        version: u64,
    ) -> Result<Answer, String> {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
            "preconditions": {"uid": uid}});
        if version > 0 {
            options["preconditions"]["resourceVersion"] = version.to_string().into();
        }
        self.ask(Method::DELETE, path(key, api_version), "application/json", Some(options.to_string())).await
    }

    async fn ask(&self, method: Method, path: String, content: &str, body: Option<String>) -> Result<Answer, String> {
        let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, "application/json");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, content);
        }
        let body = Body::from(body.unwrap_or_default().into_bytes());
        let request = request.body(body).map_err(|error| error.to_string())?;
        let answering = async {
            let response = self.client.send(request).await.map_err(|error| whole(&error))?;
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await.map_err(|error| whole(&error))?.to_bytes();
            Ok(Answer { code, body: serde_json::from_slice(&bytes).unwrap_or_default() })
        };
        match tokio::time::timeout(PATIENCE, answering).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        }
    }
}

/// An error with what caused it: the outermost says least.
pub fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

fn path(key: &ObjectKey<'_>, api_version: &str) -> String {
    let base = if api_version.contains('/') { "/apis" } else { "/api" };
    let resource = key.collection.split_once('/').map(|(_, resource)| resource).unwrap_or_default();
    let home = match key.namespace {
        "" => String::new(),
        namespace => format!("/namespaces/{}", escaped(namespace)),
    };
    format!("{base}/{}{home}/{}/{}", api_version, escaped(resource), escaped(key.name))
}

/// Names of roles may have anything in them.
fn escaped(segment: &str) -> String {
    let mut out = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b'@' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (key, api_version, expected) in [
            ("core/configmaps/shop/a", "v1", "/api/v1/namespaces/shop/configmaps/a"),
            ("core/namespaces//shop", "v1", "/api/v1/namespaces/shop"),
            ("apps/deployments/shop/web", "apps/v1", "/apis/apps/v1/namespaces/shop/deployments/web"),
            (
                "rbac.authorization.k8s.io/clusterroles//a:b c/d",
                "rbac.authorization.k8s.io/v1",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/a:b%20c%2Fd",
            ),
        ] {
            assert_eq!(path(&ObjectKey::parse(key).unwrap(), api_version), expected);
        }
    }
}
