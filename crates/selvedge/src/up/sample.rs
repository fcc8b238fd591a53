//! What a first start makes so that there is something to see: a workspace, and edges that hold what is in it.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::{
    center,
    ws::remote::{Answer, Remote},
};

const SHOP: &str = "root:shop";
const SYNCTARGETS: &str = "/clusters/root/apis/workload.kcp.io/v1alpha1/synctargets";
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes what is not there; what somebody changed since stays as it is.
pub async fn make(kubeconfig: &Path, url: &str, edges: &[&str], data: &Path) -> Result<()> {
    let remote = Remote::connect(&[kubeconfig.to_owned()], url).await?;
    let fresh = made(remote.create(SHOP, None).await?)?;
    let since = Instant::now();
    while remote.get(SHOP).await?.done()?["status"]["phase"] != "Ready" {
        if since.elapsed() > PATIENCE {
            bail!("the workspace {SHOP} is not ready after {} s: `selvedge ws list` says more", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for edge in edges {
        let target = json!({
            "apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget",
            "metadata": {"name": edge, "labels": {"edge": edge}, "annotations": {types::names::WORKSPACE: SHOP}},
        });
        made(remote.call("POST", SYNCTARGETS.into(), Some(target)).await?)?;
    }
    if fresh {
        let welcome = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "welcome"},
            "data": {"text": "Declared once at the center, read on every edge."},
        });
        let path = format!("/clusters/{SHOP}/api/v1/namespaces/default/configmaps");
        made(remote.call("POST", path, Some(welcome)).await?)?;
    }
    let shop = center::kubeconfig(&data.join("center"), None, Some(SHOP))?;
    let path = data.join("shop.kubeconfig");
    write_private(&path, &shop).with_context(|| format!("cannot write {}", path.display()))
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
        .args(["join-token", "create", "--name", name, "--kubeconfig"])
        .arg(kubeconfig)
        .stdin(Stdio::null())
        .output()
        .context("cannot make a join token")?;
    if !done.status.success() {
        bail!("there is no join token for {name}: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}
