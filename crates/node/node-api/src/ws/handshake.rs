//! Whether a request opens a WebSocket, and what is answered. Pure.

use aws_lc_rs::digest;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

/// What the key of a handshake is hashed with.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

pub fn is_wanted(headers: &HeaderMap) -> bool {
    headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// The words in all headers of this name.
pub fn words(headers: &HeaderMap, name: impl Into<HeaderName>) -> Vec<&str> {
    let values = headers.get_all(name.into()).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|word| !word.is_empty()).collect()
}

/// The first of the protocols that the client offers and that are spoken here. A client that offers none is content with the
/// empty one, if that is spoken.
pub fn agree(headers: &HeaderMap, spoken: &[&'static str]) -> Option<&'static str> {
    let offered = words(headers, header::SEC_WEBSOCKET_PROTOCOL);
    if offered.is_empty() {
        return spoken.iter().find(|name| name.is_empty()).copied();
    }
    offered.iter().find_map(|offer| spoken.iter().find(|name| !name.is_empty() && *name == offer).copied())
}

/// The answer to a handshake; what is wrong with it otherwise.
pub fn accept(headers: &HeaderMap, protocol: &'static str) -> Result<Response<()>, &'static str> {
    if headers.get(header::SEC_WEBSOCKET_VERSION).map(HeaderValue::as_bytes) != Some(b"13") {
        return Err("only version 13 of the WebSocket protocol is spoken here");
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).unwrap_or_default();
    if !BASE64_STANDARD.decode(key).is_ok_and(|key| key.len() == 16) {
        return Err("the handshake of the WebSocket has no key");
    }
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = response.headers_mut();
    answer.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID.as_bytes()].concat());
    if let Ok(hash) = HeaderValue::from_str(&BASE64_STANDARD.encode(hash)) {
        answer.insert(header::SEC_WEBSOCKET_ACCEPT, hash);
    }
    if !protocol.is_empty() {
        answer.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        pairs.collect()
    }

    #[test]
    fn the_example_of_the_specification() {
        let asked = headers(&[
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ]);
        assert!(is_wanted(&asked));
        let answer = accept(&asked, "v5.channel.k8s.io").unwrap();
        assert_eq!(answer.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(answer.headers()["sec-websocket-protocol"], "v5.channel.k8s.io");
    }

    #[test]
    fn handshakes_that_are_none() {
        for wrong in [
            headers(&[("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")]),
            headers(&[("sec-websocket-version", "13")]),
            headers(&[("sec-websocket-version", "13"), ("sec-websocket-key", "c2hvcnQ=")]),
        ] {
            assert!(accept(&wrong, "").is_err());
        }
    }

    #[test]
    fn the_clients_order_counts() {
        let spoken = ["", "v4.channel.k8s.io", "v5.channel.k8s.io"];
        for (offered, expected) in [
            (&[("sec-websocket-protocol", "v5.channel.k8s.io, v4.channel.k8s.io")][..], Some("v5.channel.k8s.io")),
            (&[("sec-websocket-protocol", "x,v4.channel.k8s.io")], Some("v4.channel.k8s.io")),
            (&[("sec-websocket-protocol", "x")], None),
            (&[], Some("")),
        ] {
            assert_eq!(agree(&headers(offered), &spoken), expected);
        }
        assert_eq!(agree(&HeaderMap::new(), &["v4.channel.k8s.io"]), None);
    }
}
