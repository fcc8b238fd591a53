//! From HTTP to what is spoken behind it: which protocol, and the answer that says so.

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use crate::{
    answer::{self, Body},
    ws::handshake,
};

const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const STREAM_PROTOCOLS_ACCEPTED: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");

/// What is spoken from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    WebSocket(&'static str),
    Spdy(&'static str),
}

/// The answer to a request for an upgrade, and what it leads to.
pub fn agree(
    headers: &HeaderMap,
    on_websockets: &[&'static str],
    on_spdy: &[&'static str],
) -> Result<(Protocol, Response<Body>), Response<Body>> {
    if handshake::is_wanted(headers) {
        let refuse = |why: String| answer::text(StatusCode::FORBIDDEN, why);
        let offered = || handshake::words(headers, header::SEC_WEBSOCKET_PROTOCOL);
        let protocol = handshake::agree(headers, on_websockets).ok_or_else(|| {
            refuse(format!("requested protocol(s) are not supported: {:?}; supports {on_websockets:?}", offered()))
        })?;
        let accepted =
            handshake::accept(headers, protocol).map_err(|why| answer::text(StatusCode::BAD_REQUEST, why))?;
        return Ok((Protocol::WebSocket(protocol), answer::empty(accepted)));
    }
    let asked = headers.get(header::UPGRADE).map(HeaderValue::as_bytes).unwrap_or_default();
    if !asked.eq_ignore_ascii_case(b"SPDY/3.1") {
        let why =
            format!("unable to upgrade: missing upgrade headers in request: {:?}", String::from_utf8_lossy(asked));
        return Err(answer::text(StatusCode::BAD_REQUEST, why));
    }
    let offered = handshake::words(headers, STREAM_PROTOCOL);
    let known = |offer: &&str| on_spdy.iter().find(|known| *known == offer).copied();
    // Those who do not say what they speak speak the oldest.
    let protocol = if offered.is_empty() { on_spdy.last().copied() } else { offered.iter().find_map(known) };
    let Some(protocol) = protocol else {
        let why = format!(
            "unable to upgrade: unable to negotiate protocol: client supports {offered:?}, server accepts {on_spdy:?}"
        );
        let mut refusal = answer::text(StatusCode::FORBIDDEN, why);
        for known in on_spdy {
            refusal.headers_mut().append(STREAM_PROTOCOLS_ACCEPTED, HeaderValue::from_static(known));
        }
        return Err(refusal);
    };
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answer = response.headers_mut();
    answer.insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    answer.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(STREAM_PROTOCOL, HeaderValue::from_static(protocol));
    Ok((Protocol::Spdy(protocol), answer::empty(response)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_agreed_on() {
        let spdy = ["v4.channel.k8s.io", "channel.k8s.io"];
        let with = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            agree(&headers, &["v5.channel.k8s.io"], &spdy)
                .map(|(protocol, _)| protocol)
                .map_err(|refusal| refusal.status().as_u16())
        };
        let key = [
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("upgrade", "websocket"),
        ];
        let and = |offer| [&key[..], &[("sec-websocket-protocol", offer)]].concat();
        for (headers, expected) in [
            (and("v5.channel.k8s.io"), Ok(Protocol::WebSocket("v5.channel.k8s.io"))),
            (and("v9.channel.k8s.io"), Err(403)),
            (vec![("upgrade", "websocket"), ("sec-websocket-protocol", "v5.channel.k8s.io")], Err(400)),
            (vec![("upgrade", "SPDY/3.1")], Ok(Protocol::Spdy("channel.k8s.io"))),
            (
                vec![
                    ("upgrade", "spdy/3.1"),
                    ("x-stream-protocol-version", "v5.channel.k8s.io"),
                    ("x-stream-protocol-version", "v4.channel.k8s.io"),
                ],
                Ok(Protocol::Spdy("v4.channel.k8s.io")),
            ),
            (vec![("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", "x")], Err(403)),
            (vec![("upgrade", "h2c")], Err(400)),
            (vec![], Err(400)),
        ] {
            assert_eq!(with(&headers), expected, "{headers:?}");
        }
    }
}
