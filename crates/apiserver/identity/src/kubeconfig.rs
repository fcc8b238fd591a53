//! The kubeconfig with which an administrator reaches the server.

use std::{net::SocketAddr, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    Error, files,
    pki::{ADMIN, Pair},
};

/// Where a client finds the server; a workspace other than the default has its own path.
pub fn server_url(address: SocketAddr, workspace: Option<&str>) -> String {
    // Nobody can connect to "any address".
    let address = match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => format!("127.0.0.1:{}", v4.port()),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => format!("[::1]:{}", v6.port()),
        other => other.to_string(),
    };
    match workspace {
        Some(workspace) => format!("https://{address}/clusters/{workspace}"),
        None => format!("https://{address}"),
    }
}

pub fn render(server: &str, ca_pem: &str, client: &Pair) -> String {
    let encoded = |pem: &str| STANDARD.encode(pem);
    // JSON strings are YAML strings: quoting the address is enough to be safe.
    let server = serde_json::Value::from(server);
    format!(
        "apiVersion: v1\nkind: Config\npreferences: {{}}\ncurrent-context: selvedge\n\
         clusters:\n- name: selvedge\n  cluster:\n    server: {server}\n    certificate-authority-data: {}\n\
         contexts:\n- name: selvedge\n  context:\n    cluster: selvedge\n    user: {ADMIN}\n\
         users:\n- name: {ADMIN}\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n",
        encoded(ca_pem),
        encoded(&client.certificate),
        encoded(&client.key),
    )
}

/// Where the cluster is and by which authority to know it, for whoever has no credentials yet.
pub fn cluster_info(server: &str, ca_pem: &str) -> String {
    let server = serde_json::Value::from(server);
    format!(
        "apiVersion: v1\nkind: Config\npreferences: {{}}\nclusters:\n- name: \"\"\n  cluster:\n    server: {server}\n    \
         certificate-authority-data: {}\n",
        STANDARD.encode(ca_pem)
    )
}

/// Writes the file as a whole, readable by its owner only. One that is right already is kept, and only gets the time of this start:
/// that works on a full disk, too.
pub fn write(path: &Path, server: &str, ca_pem: &str, client: &Pair) -> Result<(), Error> {
    let text = render(server, ca_pem, client);
    if files::touch(path, text.as_bytes()) { Ok(()) } else { files::write_disposable(path, text.as_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (address, workspace, expected) in [
            ("127.0.0.1:6443", None, "https://127.0.0.1:6443"),
            ("0.0.0.0:1", Some("root:a:b"), "https://127.0.0.1:1/clusters/root:a:b"),
            ("[::]:2", None, "https://[::1]:2"),
            ("[fd00::1]:2", None, "https://[fd00::1]:2"),
        ] {
            assert_eq!(server_url(address.parse().unwrap(), workspace), expected);
        }
    }

    #[test]
    fn content() {
        let client = Pair { certificate: "C".to_owned(), key: "K".to_owned() };
        let text = render("https://[::1]:1/clusters/root:a", "A", &client);
        for line in [
            "    server: \"https://[::1]:1/clusters/root:a\"\n",
            "    certificate-authority-data: QQ==\n",
            "    client-certificate-data: Qw==\n",
            "    client-key-data: Sw==\n",
            "current-context: selvedge\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
