//! One question of gRPC's health protocol. Its two messages are small enough to be written by hand.

use std::net::IpAddr;

use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::http::refused;

const SERVING: u8 = 1;

pub async fn check(address: IpAddr, port: u16, service: &str, agent: &str) -> Result<(), String> {
    let refuse = |error: &std::io::Error| {
        format!(
            "timeout: failed to connect service \"{address}:{port}\": {}",
            refused(&address.to_string(), port, error)
        )
    };
    let stream = TcpStream::connect((address, port)).await.map_err(|error| refuse(&error))?;
    let failed = |error: hyper::Error| format!("error: health rpc failed: {error}");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(failed)?;
    let request = Request::post(format!("http://{address}:{port}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", agent)
        .body(Full::new(question(service)))
        .map_err(|error| error.to_string())?;
    let asking = async {
        let answer = sender.send_request(request).await.map_err(failed)?;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.map_err(failed)?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        let code = trailers.get("grpc-status").or_else(|| parts.headers.get("grpc-status"));
        match code.and_then(|code| code.to_str().ok()) {
            Some("0") => {}
            Some("12") => {
                return Err(
                    "error: this server does not implement the grpc health protocol (grpc.health.v1.Health)".into()
                );
            }
            code => return Err(format!("error: health rpc failed with code {}", code.unwrap_or("unknown"))),
        }
        if is_serving(&body.to_bytes()) {
            Ok(())
        } else {
            Err("service unhealthy (responded with \"NOT_SERVING\")".to_owned())
        }
    };
    tokio::pin!(asking);
    tokio::select! {
        answer = &mut asking => answer,
        _ = connection => Err("error: health rpc failed: the connection was closed".to_owned()),
    }
}

/// A message with one string, behind the five bytes of a frame.
fn question(service: &str) -> Bytes {
    let mut message = Vec::with_capacity(service.len() + 8);
    // Names are validated to be short: lengths fit into two bytes of a varint.
    let length = service.len().min(16_383);
    if length > 0 {
        message.push(0x0a);
        if length >= 128 {
            message.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
            message.push(u8::try_from(length >> 7).unwrap_or_default());
        } else {
            message.push(u8::try_from(length).unwrap_or_default());
        }
        message.extend(&service.as_bytes()[..length]);
    }
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap_or_default().to_be_bytes());
    frame.extend(message);
    frame.into()
}

/// A message whose first field is the number of a state.
fn is_serving(frame: &[u8]) -> bool {
    frame.get(5..7) == Some(&[0x08, SERVING])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_protobuf() {
        assert_eq!(&question("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&question("ab")[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        assert_eq!(&question(&"x".repeat(200))[..8], [0, 0, 0, 0, 203, 0x0a, 0xc8, 1]);
        assert!(is_serving(&[0, 0, 0, 0, 2, 8, 1]));
        assert!(!is_serving(&[0, 0, 0, 0, 2, 8, 2]));
        assert!(!is_serving(&[0, 0, 0, 0, 0]));
    }
}
