//! The API behind a kubeconfig, as far as our own commands need it.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use kube::{
    Client,
    client::Body,
    config::{Config, KubeConfigOptions},
};
use serde_json::{Value, json};

use super::place;

const WORKSPACES: &str = "apis/tenancy.kcp.io/v1alpha1/workspaces";

pub struct Remote {
    client: Client,
    base: String,
}

/// What the server said.
pub struct Answer {
    pub code: u16,
    pub body: Value,
}

impl Answer {
    pub fn ok(&self) -> bool {
        (200..300).contains(&self.code)
    }

    pub fn message(&self) -> String {
        match self.body["message"].as_str() {
            Some(message) => message.to_owned(),
            None => format!("the server answered {}", self.code),
        }
    }

    /// The body of what went well; otherwise what the server said, and what to do.
    pub fn done(self) -> Result<Value> {
        match self.code {
            200..300 => Ok(self.body),
            401 => bail!("the server does not know you: are the credentials in your kubeconfig still good?"),
            _ => bail!("{}", self.message()),
        }
    }
}

fn content_type(method: &str) -> &'static str {
    if method == "PATCH" { "application/merge-patch+json" } else { "application/json" }
}

impl Remote {
    pub async fn connect(files: &[PathBuf], base: &str) -> Result<Self> {
        let mut merged = kube::config::Kubeconfig::default();
        for file in files.iter().filter(|file| file.exists()) {
            merged = merged.merge(kube::config::Kubeconfig::read_from(file)?)?;
        }
        let mut config = Config::from_custom_kubeconfig(merged, &KubeConfigOptions::default()).await?;
        config.cluster_url = base.parse().with_context(|| format!("{base:?} is no server address"))?;
        config.connect_timeout = Some(std::time::Duration::from_secs(10));
        config.read_timeout = Some(std::time::Duration::from_secs(30));
        config.default_retry = false;
        Ok(Self { client: Client::try_from(config)?, base: base.to_owned() })
    }

    /// The server's address, without a workspace.
    pub fn base(&self) -> &str {
        self.base.trim_end_matches('/')
    }

    pub async fn call(&self, method: &str, path: String, body: Option<Value>) -> Result<Answer> {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("accept", "application/json").header("content-type", content_type(method));
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let sent = self.client.send(request.body(Body::from(body))?).await;
        let response = sent.map_err(|error| {
            anyhow!(error).context(format!("cannot reach {}: is the center running, and the address right?", self.base))
        })?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect_bytes().await?;
        Ok(Answer { code, body: serde_json::from_slice(&bytes).unwrap_or_default() })
    }

    /// Whether one may enter a workspace.
    pub async fn enter(&self, workspace: &str) -> Result<Answer> {
        self.call("GET", format!("/clusters/{workspace}/api"), None).await
    }

    pub async fn list(&self, workspace: &str) -> Result<Answer> {
        self.call("GET", format!("/clusters/{workspace}/{WORKSPACES}"), None).await
    }

    pub async fn get(&self, path: &str) -> Result<Answer> {
        let (parent, name) = place::split(path)?;
        self.call("GET", format!("/clusters/{parent}/{WORKSPACES}/{name}"), None).await
    }

    pub async fn create(&self, path: &str, of_type: Option<&str>) -> Result<Answer> {
        let (parent, name) = place::split(path)?;
        let mut workspace =
            json!({"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name}});
        if let Some(of_type) = of_type {
            // A type may be named with the workspace that has it: root:org:large.
            workspace["spec"]["type"] = match of_type.rsplit_once(':') {
                Some((path, name)) => json!({"path": path, "name": name}),
                None => json!({"name": of_type}),
            };
        }
        self.call("POST", format!("/clusters/{parent}/{WORKSPACES}"), Some(workspace)).await
    }

    pub async fn delete(&self, path: &str) -> Result<Answer> {
        let (parent, name) = place::split(path)?;
        self.call("DELETE", format!("/clusters/{parent}/{WORKSPACES}/{name}"), None).await
    }
}
