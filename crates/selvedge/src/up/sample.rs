//! What a first start makes so that there is something to see: the first example, and a workspace whose objects go to every edge.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::CLOUD;
use crate::{
    center,
    ws::remote::{Answer, Remote},
};

const SHOP: &str = "root:shop";
const INVENTORY: &str = "root:imw-1";
const PATIENCE: Duration = Duration::from_secs(20);

/// The workspaces, with their types, in the order in which they can be made.
const WORKSPACES: [(&str, Option<&str>); 5] = [
    (INVENTORY, Some("root:inventory")),
    (SHOP, Some("root:workload")),
    ("root:my-org", None),
    ("root:my-org:wmw-c", Some("root:workload")),
    ("root:my-org:wmw-s", Some("root:workload")),
];

const EDGES: &str = include_str!("../../../../examples/first/inventory.yaml");

/// What is in a workspace when it is made.
const CONTENTS: [(&str, &str); 5] = [
    (SHOP, include_str!("shop.yaml")),
    ("root:my-org:wmw-c", include_str!("../../../../examples/first/common.yaml")),
    ("root:my-org:wmw-c", include_str!("../../../../examples/first/placement-c.yaml")),
    ("root:my-org:wmw-s", include_str!("../../../../examples/first/special.yaml")),
    ("root:my-org:wmw-s", include_str!("../../../../examples/first/placement-s.yaml")),
];

/// Makes what is not there; what somebody changed since stays as it is.
pub async fn make(kubeconfig: &Path, url: &str, edges: &[&str], data: &Path) -> Result<()> {
    let remote = Remote::connect(&[kubeconfig.to_owned()], url).await?;
    let mut fresh = Vec::new();
    for (workspace, of_type) in WORKSPACES {
        if made(remote.create(workspace, of_type).await?)? {
            fresh.push(workspace);
        }
        ready(&remote, workspace).await?;
    }
    for object in inventory(edges)? {
        put(&remote, INVENTORY, object).await?;
    }
    for (workspace, text) in CONTENTS.iter().filter(|(workspace, _)| fresh.contains(workspace)) {
        for object in objects(text)? {
            put(&remote, workspace, object).await?;
        }
    }
    let shop = center::kubeconfig(&data.join("center"), None, Some(SHOP))?;
    let path = data.join("shop.kubeconfig");
    write_private(&path, &shop).with_context(|| format!("cannot write {}", path.display()))
}

async fn ready(remote: &Remote, workspace: &str) -> Result<()> {
    let since = Instant::now();
    while remote.get(workspace).await?.done()?["status"]["phase"] != "Ready" {
        if since.elapsed() > PATIENCE {
            bail!(
                "the workspace {workspace} is not ready after {} s: `selvedge ws list` says more",
                PATIENCE.as_secs()
            );
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// The edges of the first example; another one is a plain place of production, but for the cloud.
fn inventory(edges: &[&str]) -> Result<Vec<Value>> {
    let mut all = objects(EDGES)?;
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    all.retain(|object| edges.contains(&&*name(object)));
    for edge in edges {
        if !all.iter().any(|object| name(object) == *edge) {
            all.push(json!({"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget",
                "metadata": {"name": edge, "labels": {"id": edge}}}));
            let env = if *edge == CLOUD { CLOUD } else { "prod" };
            all.push(json!({"apiVersion": "scheduling.kcp.io/v1alpha1", "kind": "Location",
                "metadata": {"name": edge, "labels": {"env": env}, "annotations": {"loc-name": edge}},
                "spec": {"instanceSelector": {"matchLabels": {"id": edge}}, "trustedWorkspaces": [SHOP]}}));
        }
    }
    Ok(all)
}

fn objects(text: &str) -> Result<Vec<Value>> {
    let documents = text.split("\n---\n").map(yaml_serde::from_str::<Value>);
    documents.collect::<Result<_, _>>().context("an example that is built in is no YAML")
}

async fn put(remote: &Remote, workspace: &str, object: Value) -> Result<()> {
    let resource = match object["kind"].as_str().unwrap_or_default() {
        "Namespace" => "namespaces",
        "ConfigMap" => "configmaps",
        "Deployment" => "deployments",
        "SyncTarget" => "synctargets",
        "Location" => "locations",
        "EdgePlacement" => "edgeplacements",
        other => bail!("an example that is built in has an unknown kind, {other}"),
    };
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let base = if version.contains('/') { "apis" } else { "api" };
    let home = object["metadata"]["namespace"].as_str().map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    let path = format!("/clusters/{workspace}/{base}/{version}{home}/{resource}");
    made(remote.call("POST", path, Some(object)).await?).map(drop)
}

/// For its owner's eyes, as it holds a key.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// Whether it was made; it may have been there.
fn made(answer: Answer) -> Result<bool> {
    let there = answer.code == 409 && answer.body["reason"] == "AlreadyExists";
    if !there {
        answer.done()?;
    }
    Ok(!there)
}

/// As a person would get one.
pub fn join_token(kubeconfig: &Path, name: &str) -> Result<String> {
    let program = std::env::current_exe().context("cannot find this program itself")?;
    let done = Command::new(program)
        .args(["join-token", "create", "--workspace", INVENTORY, "--name", name, "--kubeconfig"])
        .arg(kubeconfig)
        .stdin(Stdio::null())
        .output()
        .context("cannot make a join token")?;
    if !done.status.success() {
        bail!("there is no join token for {name}: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

/// Puts a token where the edge reads it, and nobody else.
pub fn keep_token(directory: &Path, token: &str) -> Result<String> {
    let file = directory.join("join-token");
    let cannot = || format!("cannot write the join token to {}", file.display());
    std::fs::create_dir_all(directory).with_context(cannot)?;
    let _ = std::fs::remove_file(&file);
    let mut open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file).with_context(cannot)?;
    open.write_all(token.as_bytes()).with_context(cannot)?;
    Ok(file.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_can_be_read_and_edges_have_any_name() {
        assert!(CONTENTS.iter().all(|(_, text)| !objects(text).unwrap().is_empty()));
        let names = |edges: &[&str]| -> Vec<String> {
            inventory(edges).unwrap().iter().map(|o| o["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&["florin", "guilder"]), ["florin", "florin", "guilder", "guilder"]);
        assert_eq!(names(&["guilder", "thaler"]), ["guilder", "guilder", "thaler", "thaler"]);
        assert!(names(&[]).is_empty());
    }
}
