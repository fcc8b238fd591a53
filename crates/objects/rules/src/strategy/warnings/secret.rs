//! TLS secrets whose parts cannot be what they should be. Only the PEM around them is looked at.

use base64::Engine as _;
use serde_json::Value;

use crate::defaults::fields::text;

pub(super) fn secret(obj: &Value, out: &mut Vec<String>) {
    if text(obj, &["type"]) != "kubernetes.io/tls" {
        return;
    }
    let part = |key: &str| {
        let bytes = base64::engine::general_purpose::STANDARD.decode(text(obj, &["data", key])).unwrap_or_default();
        blocks(&String::from_utf8_lossy(&bytes))
    };
    let wrong = certificate(&part("tls.crt")).or_else(|| key(&part("tls.key")));
    out.extend(wrong.map(|why| format!("tls: {why}")));
}

/// The types of the PEM blocks in a text.
fn blocks(pem: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = pem;
    while let Some((_, after)) = rest.split_once("-----BEGIN ") {
        let Some((kind, body)) = after.split_once("-----") else { break };
        match body.split_once(&format!("-----END {kind}-----")) {
            Some((_, next)) => {
                found.push(kind.to_owned());
                rest = next;
            }
            None => rest = body,
        }
    }
    found
}

fn certificate(blocks: &[String]) -> Option<String> {
    match blocks {
        [] => Some("failed to find any PEM data in certificate input".to_owned()),
        _ if blocks.iter().any(|kind| kind == "CERTIFICATE") => None,
        [one] if one.ends_with("PRIVATE KEY") => Some(
            "failed to find certificate PEM data in certificate input, but did find a private key; \
             PEM inputs may have been switched"
                .to_owned(),
        ),
        others => Some(format!(
            "failed to find \"CERTIFICATE\" PEM block in certificate input \
             after skipping PEM blocks of the following types: [{}]",
            others.join(" ")
        )),
    }
}

fn key(blocks: &[String]) -> Option<String> {
    match blocks {
        [] => Some("failed to find any PEM data in key input".to_owned()),
        _ if blocks.iter().any(|kind| kind.ends_with("PRIVATE KEY")) => None,
        [one] if one == "CERTIFICATE" => {
            Some("found a certificate rather than a key in the PEM for the private key".to_owned())
        }
        others => Some(format!(
            "failed to find PEM block with type ending in \"PRIVATE KEY\" in key input \
             after skipping PEM blocks of the following types: [{}]",
            others.join(" ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_of_a_tls_secret() {
        let pem = |kind: &str| format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n");
        for (crt, key, want) in [
            ("x".to_owned(), String::new(), "tls: failed to find any PEM data in certificate input"),
            (pem("CERTIFICATE"), "x".to_owned(), "tls: failed to find any PEM data in key input"),
            (
                pem("CERTIFICATE"),
                pem("CERTIFICATE"),
                "tls: found a certificate rather than a key in the PEM for the private key",
            ),
            (
                pem("EC PRIVATE KEY"),
                pem("CERTIFICATE"),
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched",
            ),
            (pem("CERTIFICATE"), pem("RSA PRIVATE KEY"), ""),
        ] {
            let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
            let obj = json!({"type": "kubernetes.io/tls", "data": {"tls.crt": encode(&crt), "tls.key": encode(&key)}});
            let mut out = Vec::new();
            secret(&obj, &mut out);
            assert_eq!(out.join(""), want);
        }
    }
}
