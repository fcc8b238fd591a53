//! Both ends against each other: on a pipe in memory, and over real TLS.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use http::{HeaderMap, Request, Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};

use super::*;
use crate::{Batch, Message, Position};

fn batch(bytes: usize) -> Message {
    let position = Position { incarnation: 1, revision: 2 };
    let content = Some(vec![b'x'; bytes].into());
    Message::Batch(Batch { session: 1, seq: 1, position, adopt: false, changes: vec![("core/x//a".into(), content)] })
}

/// Not to be made shorter.
fn noise(bytes: usize) -> Message {
    let mut state = 1u64;
    let content = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    });
    let Message::Batch(mut batch) = batch(0) else { unreachable!() };
    batch.changes[0].1 = Some(content.take(bytes).collect::<Vec<_>>().into());
    Message::Batch(batch)
}

/// A center that echoes streams and answers requests.
async fn serve<S>(io: S)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| async move {
        Ok::<Response<ResponseBody>, Infallible>(match request.uri().path() {
            paths::TUNNEL => {
                let (response, stream) = accept_stream(request);
                tokio::spawn(async move {
                    let (mut from, mut to) = tokio::io::split(stream);
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                    let _ = to.shutdown().await;
                });
                response
            }
            _ => {
                let mut response = Response::new(http_body_util::BodyExt::boxed_unsync(http_body_util::Full::new(
                    r#"{"message":"no such path"}"#.into(),
                )));
                *response.status_mut() = http::StatusCode::NOT_FOUND;
                response
            }
        })
    });
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(io), service).await;
}

async fn connected() -> Connection {
    let (here, there) = tokio::io::duplex(64 << 10);
    tokio::spawn(serve(there));
    Connection::over(here, "center.test".to_owned(), "").await.unwrap()
}

/// Of the edge and of the center.
fn pair() -> (Line, Line) {
    let (here, there) = tokio::io::duplex(64 << 10);
    (Line::over(here), Line::over(there))
}

#[tokio::test]
async fn messages_go_both_ways() {
    let (mut edge, mut center) = pair();
    for message in [Message::Heartbeat, batch(10), batch(200_000), noise(5_000)] {
        edge.send(message.clone()).await.unwrap();
        assert_eq!(center.next().await.unwrap().unwrap(), message);
        center.send(message.clone()).await.unwrap();
        assert_eq!(edge.next().await.unwrap().unwrap(), message);
    }
    let (sent, received) = edge.traffic();
    assert_eq!((received, sent), center.traffic());
    assert!((5_000..8_000).contains(&sent), "the large batch was compressed: {sent}");
    center.send(Message::Heartbeat).await.unwrap();
    drop(center);
    assert_eq!(edge.next().await.unwrap().unwrap(), Message::Heartbeat, "what was sent before the end arrives");
    assert!(edge.next().await.is_none());
    assert!(edge.next().await.is_none());
}

#[tokio::test]
async fn a_reader_that_waits_makes_the_writer_wait() {
    let (mut edge, center) = pair();
    let mut taken = 0u64;
    let message = noise(100_000);
    while tokio::time::timeout(Duration::from_millis(200), center.send(message.clone())).await.is_ok() {
        taken += 1;
        assert!(taken < 100, "nothing makes the center wait");
    }
    assert_eq!(center.try_send(&Message::Heartbeat), Ok(false));
    for _ in 0..taken {
        assert_eq!(edge.next().await.unwrap().unwrap(), message);
    }
    center.send(Message::Heartbeat).await.unwrap();
    assert_eq!(edge.next().await.unwrap().unwrap(), Message::Heartbeat);
}

#[tokio::test]
async fn both_sides_learn_of_the_end() {
    let (here, there) = tokio::io::duplex(64 << 10);
    let mut edge = Line::over(here);
    drop(there);
    assert!(!matches!(edge.next().await, Some(Ok(_))));
    let told = async { while edge.send(Message::Heartbeat).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(5), told).await.unwrap();

    let (edge, mut center) = pair();
    edge.send(batch(10)).await.unwrap();
    // What the center still sends does not keep the edge's last word from it.
    for _ in 0..10 {
        center.send(Message::Heartbeat).await.unwrap();
    }
    drop(edge);
    assert_eq!(center.next().await.unwrap().unwrap(), batch(10));
    assert!(center.next().await.is_none());
    let told = async { while center.send(noise(10_000)).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(5), told).await.unwrap();
}

#[tokio::test]
async fn calls_end_with_their_connection() {
    let connection = connected().await;
    assert!(connection.stream(paths::TUNNEL, HeaderMap::new()).await.is_ok());
    let mut stream = connection.stream(paths::TUNNEL, HeaderMap::new()).await.unwrap();
    connection.close();
    assert!(connection.is_closed());
    let ended = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut Vec::new())).await;
    assert!(ended.unwrap().is_err());
    assert!(connection.stream(paths::TUNNEL, HeaderMap::new()).await.unwrap_err().may_pass());
}

#[tokio::test]
async fn a_message_that_is_too_long_ends_the_line() {
    let (mut edge, center) = pair();
    assert_eq!(center.send(batch(crate::MAX_MESSAGE_BYTES)).await, Err(Gone));
    assert!(edge.next().await.is_none());
}

#[tokio::test]
async fn refusals_are_told_in_words() {
    let (here, there) = tokio::io::duplex(64 << 10);
    let mut edge = Line::over(here);
    edge.send(Message::Heartbeat).await.unwrap();
    let no = Refusal { code: 403, message: "not you".to_owned(), retry_after: Some(3) };
    refuse(there, &no).await;
    match edge.next().await.unwrap().unwrap_err() {
        Error::Refused { code: Code(403), message, retry_after } => {
            assert_eq!((message.as_str(), retry_after), ("not you", Some(Duration::from_secs(3))));
        }
        other => panic!("{other}"),
    }
    assert!(edge.next().await.is_none());
    let connection = connected().await;
    match connection.stream("/nothing", HeaderMap::new()).await.unwrap_err() {
        Error::Refused { code: Code(404), message, .. } => assert_eq!(message, "no such path"),
        other => panic!("{other}"),
    }
    let answer = connection.request(Request::get("/nothing").body("".into()).unwrap()).await.unwrap();
    assert_eq!(answer.status(), 404);
}

#[tokio::test]
async fn streams_carry_bytes() {
    let connection = connected().await;
    let stream = connection.stream(paths::TUNNEL, HeaderMap::new()).await.unwrap();
    let (mut from, mut to) = tokio::io::split(stream);
    let sent: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    let expected = sent.clone();
    let writer = tokio::spawn(async move {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
    });
    let mut back = Vec::new();
    from.read_to_end(&mut back).await.unwrap();
    writer.await.unwrap();
    assert!(back == expected);
}

struct Tls {
    root: CertificateDer<'static>,
    acceptor: tokio_rustls::TlsAcceptor,
}

fn tls(name: &str, ends: i32) -> Tls {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let mut leaf = CertificateParams::new(vec![name.to_owned()]).unwrap();
    leaf.not_after = rcgen::date_time_ymd(ends, 1, 1);
    let key = KeyPair::generate().unwrap();
    let leaf = leaf.signed_by(&key, &ca).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec(), PROTOCOL.to_vec()];
    Tls { root: ca.der().clone(), acceptor: Arc::new(config).into() }
}

async fn listen(tls: &Tls) -> (SocketAddr, mpsc::UnboundedReceiver<Line>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (lines, arrived) = mpsc::unbounded_channel();
    let acceptor = tls.acceptor.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                if stream.get_ref().1.alpn_protocol() == Some(PROTOCOL) {
                    let _ = lines.send(Line::over(stream));
                } else {
                    tokio::spawn(serve(stream));
                }
            }
        }
    });
    (address, arrived)
}

#[tokio::test]
async fn over_tls_with_the_right_root_only() {
    let center = tls("localhost", 2100);
    let (address, mut arrived) = listen(&center).await;
    let url = format!("https://localhost:{}/clusters/root:org", address.port());
    let dial = Dial::new(&url, std::slice::from_ref(&center.root), None, Proxy::none()).unwrap();
    for _ in 0..2 {
        let mut edge = dial.session().await.unwrap();
        let mut line = arrived.recv().await.unwrap();
        edge.send(batch(3_000_000)).await.unwrap();
        assert_eq!(line.next().await.unwrap().unwrap(), batch(3_000_000));
        line.send(Message::Heartbeat).await.unwrap();
        // With it came what the next connection resumes by.
        assert_eq!(edge.next().await.unwrap().unwrap(), Message::Heartbeat);
        let calls = Connection::to(&dial);
        assert_eq!(calls.request(Request::get("/nothing").body("".into()).unwrap()).await.unwrap().status(), 404);
    }

    // A connection after the first says no certificates again.
    let stream = dial.call().await.unwrap();
    assert_eq!(stream.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Resumed));

    let other = Dial::new(&url, &[tls("localhost", 2100).root], None, Proxy::none()).unwrap();
    let error = Connection::open(&other).await.unwrap_err();
    assert!(matches!(&error, Error::Tls { .. }) && !error.may_pass(), "{error}");
    assert!(Connection::open(&Dial::unverified(&url, Proxy::none()).unwrap()).await.is_ok());

    let old = tls("localhost", 2020);
    let (address, _arrived) = listen(&old).await;
    let url = format!("https://localhost:{}", address.port());
    let dial = Dial::new(&url, std::slice::from_ref(&old.root), None, Proxy::none()).unwrap();
    let error = Connection::open(&dial).await.unwrap_err();
    let Error::Tls { error: rustls::Error::InvalidCertificate(why), .. } = &error else { panic!("{error}") };
    assert!(matches!(why, rustls::CertificateError::ExpiredContext { .. }), "{why:?}");

    let dial = Dial::new("https://127.0.0.1:1", &[old.root], None, Proxy::none()).unwrap();
    assert!(Connection::open(&dial).await.unwrap_err().may_pass());
    for wrong in ["127.0.0.1:6443", "http://center.example", "https://", "https:///x"] {
        assert!(matches!(Dial::unverified(wrong, Proxy::none()), Err(Error::Url { .. })), "{wrong}");
    }
}

#[tokio::test]
async fn through_a_proxy() {
    let center = tls("center.test", 2100);
    let (address, mut arrived) = listen(&center).await;
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = proxy.local_addr().unwrap().port();
    // Answers by the name that is asked for, and wants a name and a password.
    tokio::spawn(async move {
        while let Ok((mut client, _)) = proxy.accept().await {
            tokio::spawn(async move {
                let mut asked = vec![0; 1000];
                let n = client.read(&mut asked).await.unwrap();
                let asked = String::from_utf8_lossy(&asked[..n]).into_owned();
                if !asked.contains("Proxy-Authorization: Basic bWU6cHc=\r\n") {
                    client.write_all(b"HTTP/1.1 407 Authenticate\r\n\r\n").await.unwrap();
                } else if asked.starts_with("CONNECT center.test:6443 HTTP/1.1\r\n") {
                    client.write_all(b"HTTP/1.1 200 Go\r\nVia: me\r\n\r\n").await.unwrap();
                    let mut center = tokio::net::TcpStream::connect(address).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut center).await;
                } else {
                    client.write_all(b"HTTP/1.1 403 Not there\r\n\r\n").await.unwrap();
                }
            });
        }
    });
    let open = async |url: &str, who: &str| {
        let proxy = Proxy::new(Some(&format!("http://{who}127.0.0.1:{port}")), "");
        Connection::open(&Dial::new(url, std::slice::from_ref(&center.root), None, proxy).unwrap()).await
    };
    open("https://center.test:6443", "me:pw@").await.unwrap();
    let proxy = Proxy::new(Some(&format!("http://me:pw@127.0.0.1:{port}")), "");
    let dial = Dial::new("https://center.test:6443", std::slice::from_ref(&center.root), None, proxy).unwrap();
    let _edge = dial.session().await.unwrap();
    arrived.recv().await.unwrap();
    let error = open("https://center.test:6443", "").await.unwrap_err();
    assert!(matches!(&error, Error::Proxy(ProxyError::Authentication { .. })) && !error.may_pass(), "{error}");
    let error = open("https://other.test:6443", "me:pw@").await.unwrap_err();
    assert!(error.to_string().contains("403 Not there") && !error.may_pass(), "{error}");
}
