//! What an edge needs to run somewhere: the manifests for an existing cluster, the unit for a bare node.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::{
    edge::{Runtime, token_in},
    image,
};

/// For systemd, as packages install them.
pub const CENTER_UNIT: &str = include_str!("../../../deploy/systemd/selvedge-center.service");
const EDGE_UNIT: &str = include_str!("../../../deploy/systemd/selvedge-edge.service");
/// The unit sets the runtime before it reads the file of the operator, which has the last word.
const BEFORE: &str = "EnvironmentFile=";

/// The unit of an edge with this runtime.
pub fn edge_unit(runtime: Option<Runtime>) -> String {
    match runtime {
        Some(runtime) => EDGE_UNIT.replacen(
            BEFORE,
            &format!(
                "Environment=SELVEDGE_RUNTIME={runtime}
{BEFORE}"
            ),
            1,
        ),
        None => EDGE_UNIT.to_owned(),
    }
}

#[derive(Args)]
pub struct Manifest {
    /// Where the center answers, as in https://center.example:6443.
    #[arg(long)]
    center: String,
    /// The token to join with, from `selvedge join-token create`.
    #[arg(long, required_unless_present = "token_file")]
    token: Option<String>,
    /// A file with the token to join with: what --token says can be seen by every user of the machine.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// The edge's name: that of its SyncTarget at the center.
    #[arg(long)]
    name: String,
    /// The image to run. `selvedge image` makes the one that is named here; the cluster's nodes need it, or a registry has it.
    #[arg(long, default_value = image::NAME)]
    image: String,
    /// The namespace to put everything into.
    #[arg(long, default_value = "selvedge-edge")]
    namespace: String,
    /// A proxy on the way to the center.
    #[arg(long)]
    https_proxy: Option<String>,
    /// What runs what the center sent. With `cluster`, this very cluster does, and the edge is given the rights that it needs for that.
    #[arg(long, value_enum)]
    runtime: Option<Runtime>,
}

impl Manifest {
    pub fn text(&self) -> Result<String> {
        let token = match (&self.token, &self.token_file) {
            (Some(token), _) => token.clone(),
            (None, Some(path)) => token_in(path)?.unwrap_or_default(),
            (None, None) => String::new(),
        };
        if let Err(why) = token.parse::<kinds::JoinToken>() {
            bail!("{why}");
        }
        let documents = self.objects(&token).iter().map(yaml_serde::to_string).collect::<Result<Vec<_>, _>>()?;
        let image = &self.image;
        let how = if image == image::NAME {
            "# `selvedge image` makes this image. Give it to the nodes of the cluster (`selvedge image | ctr -n k8s.io images import -`),\n\
             # or push it to a registry and name it with --image.\n"
        } else {
            ""
        };
        Ok(format!("# Runs the edge {} from the image {image}.\n{how}{}", self.name, documents.join("---\n")))
    }

    fn objects(&self, token: &str) -> Vec<Value> {
        let (name, namespace) = ("selvedge-edge", self.namespace.as_str());
        let labels = json!({"app.kubernetes.io/name": name, "app.kubernetes.io/instance": self.name});
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        let global = json!({"name": name, "labels": labels});
        let account = json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}]);
        vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": global, "rules": self.rules()}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": global,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}, "subjects": account}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "stringData": {"token": token}}),
            // Keys, certificates and objects outlive the pod: the token is used up by then.
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {
                "selector": labels, "ports": [{"name": "https", "port": 443, "targetPort": "https"}]}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {
                "replicas": 1, "strategy": {"type": "Recreate"}, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": self.pod()}}}),
        ]
    }

    fn rules(&self) -> Value {
        if self.runtime != Some(Runtime::Cluster) {
            // What it needs to know of the cluster that it runs in; it changes nothing there.
            return json!([{"apiGroups": [""], "resources": ["nodes", "namespaces"], "verbs": ["get", "list", "watch"]}]);
        }
        // Anything can be placed. Giving rights that one does not have needs words of its own.
        json!([
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "clusterroles"], "verbs": ["escalate", "bind"]},
        ])
    }

    fn pod(&self) -> Value {
        let name = "selvedge-edge";
        let mut env = Vec::new();
        if let Some(proxy) = &self.https_proxy {
            env.push(json!({"name": "HTTPS_PROXY", "value": proxy}));
        }
        let host = format!("{name}.{}.svc", self.namespace);
        let args = ["edge", "--data-dir", "/var/lib/selvedge", "--listen", "0.0.0.0:6443", "--tls-names", &host];
        let args = args.into_iter().chain(["--token-file", "/etc/selvedge/join/token"]);
        let mut args: Vec<&str> = args.chain(["--center", &self.center, "--name", &self.name]).collect();
        let runtime = self.runtime.map(|runtime| runtime.to_string());
        if let Some(runtime) = &runtime {
            args.extend(["--runtime", runtime]);
        }
        json!({
            "serviceAccountName": name,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "edge", "image": self.image, "command": ["selvedge"], "args": args, "env": env,
                "ports": [{"name": "https", "containerPort": 6443}],
                "readinessProbe": {"httpGet": {"path": "/readyz", "port": "https", "scheme": "HTTPS"}},
                "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}},
                "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [{"name": "data", "mountPath": "/var/lib/selvedge"},
                    {"name": "join", "mountPath": "/etc/selvedge/join", "readOnly": true}]
            }],
            // The Secret may be deleted when the edge has joined.
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}},
                {"name": "join", "secret": {"secretName": name, "optional": true, "defaultMode": 0o440}}]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_names_its_runtime() {
        assert_eq!(edge_unit(None), EDGE_UNIT);
        let named = edge_unit(Some(Runtime::Kubelet));
        let (at, file) = (named.find("Environment=SELVEDGE_RUNTIME=kubelet\n"), named.find(BEFORE));
        assert!(at.is_some() && at < file, "{named}");
    }

    #[test]
    fn a_manifest_has_everything_an_edge_needs() {
        let token = format!("a.b.{}.root", "0".repeat(64));
        let manifest = Manifest {
            center: "https://c".into(),
            token: Some(token.clone()),
            token_file: None,
            name: "florin".into(),
            image: "x:1".into(),
            namespace: "there".into(),
            https_proxy: Some("http://p:1".into()),
            runtime: None,
        };
        let text = manifest.text().unwrap();
        let kinds: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("kind: ")).collect();
        for kind in ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Secret", "Deployment"] {
            assert!(kinds.contains(&kind), "{kinds:?}");
        }
        assert_eq!(text.matches(&token).count(), 1, "the token is in the Secret and nowhere else");
        assert!(!text.contains("--runtime") && !text.contains("delete"), "it changes nothing where it only runs");
        let cluster = Manifest { runtime: Some(Runtime::Cluster), ..manifest };
        let text = cluster.text().unwrap();
        assert!(
            ["- --runtime\n", "- cluster\n", "- delete\n", "- escalate\n"].iter().all(|one| text.contains(one)),
            "{text}"
        );
        assert!(Manifest { token: Some("x".into()), ..cluster }.text().is_err());
    }
}
