//! Probes against servers as containers have them: TLS that nobody vouches for, and gRPC's health service.

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Request, Response,
    body::{Bytes, Incoming},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{Container, Probe};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::aws_lc_rs, pki_types::PrivatePkcs8KeyDer},
};

use super::{Miss, over_network};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

async fn asked(probe: Value) -> Result<(), String> {
    let probe: Probe = serde_json::from_value(probe).unwrap();
    let container: Container = serde_json::from_value(json!({"name": "a"})).unwrap();
    let within = Duration::from_secs(probe.timeout_seconds.unwrap_or(20).unsigned_abs().into());
    over_network(&probe, &container, HERE, within).await.map_err(|miss| match miss {
        Miss::Failed(why) => why,
        Miss::Errored(why) => format!("cannot ask: {why}"),
    })
}

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind((HERE, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// A server with a certificate of its own making, for another name, that ended long ago.
async fn https() -> u16 {
    let (listener, port) = listen().await;
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["elsewhere.example".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let certificate = params.self_signed(&key).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(|request: Request<Incoming>| async move {
                    let code = match request.uri().path() {
                        "/fine" if request.headers()["x-who"] == "me" => 204,
                        "/slow" => std::future::pending().await,
                        _ => 503,
                    };
                    Ok::<_, Infallible>(Response::builder().status(code).body(Full::<Bytes>::default()).unwrap())
                });
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    port
}

/// gRPC's health service: `up` serves, `down` does not, `slow` never says, others are not known; `none` has no such service at all.
async fn grpc() -> u16 {
    let (listener, port) = listen().await;
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let service = service_fn(|request: Request<Incoming>| async move {
                    let is_health = request.uri().path() == "/grpc.health.v1.Health/Check"
                        && request.headers()["content-type"] == "application/grpc";
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    // A frame of gRPC's: not compressed, its length, and a message with one string.
                    let name = body.get(7..).unwrap_or_default();
                    let (answer, code): (&'static [u8], &str) = match name {
                        b"" | b"up" if is_health => (&[0, 0, 0, 0, 2, 8, 1], "0"),
                        b"down" => (&[0, 0, 0, 0, 2, 8, 2], "0"),
                        b"slow" => std::future::pending().await,
                        b"none" => (&[], "12"),
                        _ => (&[], "5"),
                    };
                    let mut trailers = HeaderMap::new();
                    trailers.insert("grpc-status", code.parse().unwrap());
                    let body = Full::new(Bytes::from_static(answer));
                    let body = body.with_trailers(std::future::ready(Some(Ok::<_, Infallible>(trailers))));
                    let answer = Response::builder().header("content-type", "application/grpc");
                    Ok::<_, Infallible>(answer.body(body).unwrap())
                });
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    port
}

/// Somebody who takes connections and says nothing.
async fn silent() -> u16 {
    let (listener, port) = listen().await;
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    });
    port
}

async fn nobody() -> u16 {
    listen().await.1
}

#[tokio::test]
async fn https_whoever_vouches_for_it() {
    let port = https().await;
    let get = |path: &str, port: u16| {
        let headers = json!([{"name": "X-Who", "value": "me"}]);
        json!({"scheme": "HTTPS", "path": path, "port": port, "httpHeaders": headers})
    };
    assert_eq!(asked(json!({"httpGet": get("/fine", port)})).await, Ok(()));
    let broken = asked(json!({"httpGet": get("/broken", port)})).await;
    assert_eq!(broken, Err("HTTP probe failed with statuscode: 503".to_owned()));
    for silent in [port, silent().await] {
        let late = asked(json!({"httpGet": get("/slow", silent), "timeoutSeconds": 1})).await.unwrap_err();
        let expected = format!(
            "Get \"https://127.0.0.1:{silent}/slow\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        );
        assert_eq!(late, expected);
    }
    let plain = asked(json!({"httpGet": {"path": "/fine", "port": port}})).await;
    assert!(plain.is_err(), "a server of TLS does not understand http");
    let refused = asked(json!({"httpGet": get("/fine", nobody().await)})).await.unwrap_err();
    assert!(refused.ends_with("connect: connection refused"), "{refused}");
}

#[tokio::test]
async fn grpc_health() {
    let port = grpc().await;
    for (service, expected) in [
        ("", Ok(())),
        ("up", Ok(())),
        ("down", Err("service unhealthy (responded with \"NOT_SERVING\")".to_owned())),
        ("other", Err("error: health rpc failed with code 5".to_owned())),
        (
            "none",
            Err("error: this server does not implement the grpc health protocol (grpc.health.v1.Health)".to_owned()),
        ),
    ] {
        assert_eq!(asked(json!({"grpc": {"port": port, "service": service}})).await, expected, "{service}");
    }
    for (port, service) in [(port, "slow"), (silent().await, "up")] {
        let late = asked(json!({"grpc": {"port": port, "service": service}, "timeoutSeconds": 1})).await;
        assert_eq!(late, Err("timeout: health rpc did not complete within 1s".to_owned()));
    }
    let refused = asked(json!({"grpc": {"port": nobody().await}})).await.unwrap_err();
    assert!(refused.starts_with("timeout: failed to connect service"), "{refused}");
    // A server of HTTP/1 hangs up.
    assert!(asked(json!({"grpc": {"port": https().await}})).await.is_err());
}

#[tokio::test]
async fn tcp() {
    assert_eq!(asked(json!({"tcpSocket": {"port": silent().await}})).await, Ok(()));
    let port = nobody().await;
    let refused = asked(json!({"tcpSocket": {"port": port}})).await;
    assert_eq!(refused, Err(format!("dial tcp 127.0.0.1:{port}: connect: connection refused")));
}
