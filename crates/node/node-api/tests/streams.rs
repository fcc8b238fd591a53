//! exec, attach and port-forward over every protocol that clients speak, as bytes on a connection.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where it is not as it should be")]

mod fake;

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    net::TcpListener,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A request whose connection becomes something else; the head of the answer.
async fn asked(path: &str, headers: &[(&str, &str)]) -> (DuplexStream, String, std::sync::Arc<fake::Fake>) {
    let (node, fake) = fake::node(std::env::temp_dir());
    let mut io = node.connect();
    let mut request = format!("POST {path} HTTP/1.1\r\nHost: n1\r\nConnection: Upgrade\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    io.write_all(format!("{request}\r\n").as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(PATIENCE, io.read_u8()).await.unwrap().unwrap());
    }
    (io, String::from_utf8(head).unwrap(), fake)
}

// ---- WebSockets ----

async fn websocket(path: &str, protocol: &str) -> (DuplexStream, std::sync::Arc<fake::Fake>) {
    let key = ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    let headers =
        [("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"), key, ("Sec-WebSocket-Protocol", protocol)];
    let (io, head, fake) = asked(path, &headers).await;
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains(protocol), "{head}");
    (io, fake)
}

async fn send(io: &mut DuplexStream, payload: &[u8]) {
    let mut frame = vec![0x82];
    match payload.len() {
        short @ 0..126 => frame.push(0x80 | short as u8),
        long => {
            frame.push(0x80 | 126);
            frame.extend((long as u16).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    io.write_all(&frame).await.unwrap();
}

/// The payload of a message; none if it is the last frame.
async fn receive(io: &mut DuplexStream) -> Option<Vec<u8>> {
    timeout(PATIENCE, async {
        let opcode = io.read_u8().await.ok()? & 15;
        let length = match io.read_u8().await.unwrap() {
            126 => usize::from(io.read_u16().await.unwrap()),
            127 => io.read_u64().await.unwrap() as usize,
            short => usize::from(short),
        };
        let mut payload = vec![0; length];
        io.read_exact(&mut payload).await.unwrap();
        (opcode != 8).then_some(payload)
    })
    .await
    .unwrap()
}

/// Everything that comes until the end, by channel.
async fn everything(io: &mut DuplexStream) -> BTreeMap<u8, Vec<u8>> {
    let mut all = BTreeMap::<u8, Vec<u8>>::new();
    while let Some(message) = receive(io).await {
        all.entry(message[0]).or_default().extend(&message[1..]);
    }
    all
}

fn status(all: &BTreeMap<u8, Vec<u8>>) -> Value {
    serde_json::from_slice(&all[&3]).unwrap()
}

#[tokio::test]
async fn exec_over_a_websocket() {
    let (mut io, _) =
        websocket("/exec/default/web/app?command=cat&input=1&output=1&error=1", "v5.channel.k8s.io").await;
    let long = vec![b'x'; 30_000];
    let sender = async {
        let mut message = vec![0];
        message.extend(&long);
        message
    };
    let message = sender.await;
    let (mut from, mut to) = tokio::io::split(&mut io);
    let sent = async {
        let mut frame = vec![0x82, 0x80 | 126];
        frame.extend((message.len() as u16).to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(&message);
        // Closed: the end of what is typed.
        frame.extend([0x82, 0x82, 0, 0, 0, 0, 255, 0]);
        to.write_all(&frame).await.unwrap();
    };
    let received = async {
        let mut bytes = Vec::new();
        while bytes.last_chunk::<4>() != Some(&[0x88, 2, 3, 232]) {
            let mut buffer = [0; 4096];
            let read = timeout(PATIENCE, from.read(&mut buffer)).await.unwrap().unwrap();
            assert!(read > 0);
            bytes.extend(&buffer[..read]);
        }
        bytes
    };
    let (_, bytes) = tokio::join!(sent, received);
    assert_eq!(bytes.iter().filter(|byte| **byte == b'x').count(), 30_000);
    assert!(String::from_utf8_lossy(&bytes).contains("{\"metadata\":{},\"status\":\"Success\"}"));
}

#[tokio::test]
async fn how_commands_end() {
    for (protocol, command, code) in
        [("v5.channel.k8s.io", "command=exit&command=7", "7"), ("v4.channel.k8s.io", "command=exit&command=3", "3")]
    {
        let (mut io, _) = websocket(&format!("/exec/default/web/app?{command}&output=1&error=1"), protocol).await;
        let all = everything(&mut io).await;
        assert_eq!(all[&2], b"no");
        assert_eq!(status(&all)["details"]["causes"][0]["message"], code);
    }
    let (mut io, _) = websocket("/exec/default/web/app?command=nothing&output=1", "v5.channel.k8s.io").await;
    let message = status(&everything(&mut io).await)["message"].clone();
    assert_eq!(message, "Internal error occurred: error executing command in container: there is no such program");
    // Somebody in the background keeps its output open: that is not waited for.
    let (mut io, _) = websocket("/exec/default/web/app?command=hold&output=1", "v5.channel.k8s.io").await;
    let all = everything(&mut io).await;
    assert_eq!((&all[&1][..], status(&all)["status"].as_str()), (&b"held"[..], Some("Success")));
}

#[tokio::test]
async fn terminals_have_a_size() {
    let (mut io, fake) =
        websocket("/exec/default/web/app?command=cat&input=1&output=1&tty=1", "v5.channel.k8s.io").await;
    send(&mut io, b"\x04{\"Width\":80,\"Height\":24}").await;
    send(&mut io, b"\0x").await;
    send(&mut io, b"\xff\0").await;
    let all = everything(&mut io).await;
    assert_eq!(all[&1], b"x");
    assert_eq!(*fake.sizes.lock().unwrap(), [(80, 24)]);
}

#[tokio::test]
async fn attaching() {
    let (mut io, fake) = websocket("/attach/default/web/app?input=1&output=1&error=1", "v5.channel.k8s.io").await;
    assert_eq!(receive(&mut io).await.unwrap(), [1], "the first message says that it stands");
    send(&mut io, b"\0hello").await;
    assert_eq!(receive(&mut io).await.unwrap(), b"\x01hello");
    assert!(!fake.left.load(std::sync::atomic::Ordering::SeqCst), "it goes on");
    send(&mut io, b"\xff\0").await;
    assert_eq!(status(&everything(&mut io).await)["status"], "Success");
}

#[tokio::test]
async fn refusals() {
    let websocket =
        [("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")];
    let with = |protocol| [&websocket[..], &[("Sec-WebSocket-Protocol", protocol)]].concat();
    for (path, headers, code) in [
        ("/exec/default/none/app?command=x&output=1", with("v5.channel.k8s.io"), 404),
        ("/exec/default/web/none?command=x&output=1", with("v5.channel.k8s.io"), 500),
        ("/exec/default/web/app?command=x", with("v5.channel.k8s.io"), 400),
        ("/exec/default/web/app?output=1", with("v5.channel.k8s.io"), 400),
        ("/exec/default/web/app?command=x&output=1", with("v9.channel.k8s.io"), 403),
        ("/exec/default/web/app?command=x&output=1", vec![], 400),
        ("/portForward/default/none", with("SPDY/3.1+portforward.k8s.io"), 404),
        ("/portForward/default/web", with("v4.channel.k8s.io"), 400),
        ("/portForward/default/web?port=x", with("v4.channel.k8s.io"), 400),
        ("/pods", vec![], 405),
    ] {
        let (_, head, _) = asked(path, &headers).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {code} ")), "{path}: {head}");
    }
}

// ---- SPDY ----

/// SYN_STREAM with headers that are packed without being made smaller.
fn opened(stream: u32, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = (headers.len() as u32).to_be_bytes().to_vec();
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        block.extend((text.len() as u32).to_be_bytes());
        block.extend(text.as_bytes());
    }
    let mut packed = if stream == 1 { vec![0x78, 0x01] } else { vec![] };
    packed.push(0);
    packed.extend((block.len() as u16).to_le_bytes());
    packed.extend((!(block.len() as u16)).to_le_bytes());
    packed.extend(block);
    let mut out = vec![0x80, 3, 0, 1];
    out.extend((10 + packed.len() as u32).to_be_bytes());
    out.extend(stream.to_be_bytes());
    out.extend([0; 6]);
    out.extend(packed);
    out
}

fn data(stream: u32, data: &[u8], fin: bool) -> Vec<u8> {
    let mut out = stream.to_be_bytes().to_vec();
    out.extend((u32::from(fin) << 24 | data.len() as u32).to_be_bytes());
    out.extend(data);
    out
}

/// What comes on each stream until all of these have ended.
async fn until_ended(io: &mut DuplexStream, streams: &[u32]) -> BTreeMap<u32, Vec<u8>> {
    let (mut all, mut open) = (BTreeMap::<u32, Vec<u8>>::new(), streams.to_vec());
    while !open.is_empty() {
        let (first, second) = (timeout(PATIENCE, io.read_u32()).await.unwrap().unwrap(), io.read_u32().await.unwrap());
        let mut body = vec![0; (second & 0xff_ffff) as usize];
        io.read_exact(&mut body).await.unwrap();
        if first & 0x8000_0000 == 0 {
            all.entry(first).or_default().extend(body);
            if second >> 24 == 1 {
                open.retain(|stream| *stream != first);
            }
        }
    }
    all
}

#[tokio::test]
async fn exec_over_spdy() {
    let headers = [("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", "v5.channel.k8s.io, v4.channel.k8s.io")];
    let (mut io, head, _) = asked("/exec/default/web/app?command=cat&input=1&output=1&error=1", &headers).await;
    assert!(
        head.starts_with("HTTP/1.1 101 ") && head.contains("x-stream-protocol-version: v4.channel.k8s.io"),
        "{head}"
    );
    for (stream, kind) in [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr")] {
        io.write_all(&opened(stream, &[("streamType", kind)])).await.unwrap();
    }
    io.write_all(&data(3, b"hello", false)).await.unwrap();
    io.write_all(&data(3, b" there", true)).await.unwrap();
    let all = until_ended(&mut io, &[1, 5, 7]).await;
    assert_eq!((&all[&5][..], &all[&1][..]), (&b"hello there"[..], &b"{\"metadata\":{},\"status\":\"Success\"}"[..]));
}

/// A port that answers whatever it is sent, and says good-bye at the end.
async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.into_split();
                tokio::io::copy(&mut from, &mut to).await.ok();
                to.write_all(b" bye").await.ok();
            });
        }
    });
    port
}

/// Nobody listens there.
async fn deaf() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

async fn forwards(io: &mut DuplexStream) {
    let (heard, refused) = (echo().await.to_string(), deaf().await.to_string());
    // Two at a time, the streams of which come as they like, and one to a port where nobody is.
    let with = |stream, kind, port: &str, request| {
        opened(stream, &[("streamType", kind), ("port", port), ("requestID", request)])
    };
    for frame in [
        with(1, "error", &heard, "0"),
        with(3, "error", &heard, "1"),
        with(5, "data", &heard, "1"),
        with(7, "data", &heard, "0"),
        with(9, "error", &refused, "2"),
        with(11, "data", &refused, "2"),
        data(5, b"one", true),
        data(7, b"two", true),
    ] {
        io.write_all(&frame).await.unwrap();
    }
    let all = until_ended(io, &[1, 3, 5, 7, 9, 11]).await;
    assert_eq!((&all[&5][..], &all[&7][..]), (&b"one bye"[..], &b"two bye"[..]));
    assert!(all[&1].is_empty() && all[&3].is_empty());
    let why = String::from_utf8_lossy(&all[&9]);
    assert!(why.starts_with(&format!("error forwarding port {refused} to pod uid, uid : dial tcp 127.0.0.1:{refused}: connect: connection refused")), "{why}");
}

#[tokio::test]
async fn ports_over_spdy() {
    let headers = [("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", "portforward.k8s.io")];
    let (mut io, head, _) = asked("/portForward/default/web", &headers).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    forwards(&mut io).await;
}

#[tokio::test]
async fn ports_over_spdy_within_a_websocket() {
    let (mut io, _) = websocket("/portForward/default/web", "SPDY/3.1+portforward.k8s.io").await;
    // Between the frames of the WebSocket and the bytes that are in them.
    let (mut near, far) = tokio::io::duplex(1 << 16);
    let unwrapped = tokio::spawn(async move {
        let (mut from, mut to) = tokio::io::split(far);
        let mut buffer = vec![0; 1 << 16];
        loop {
            tokio::select! {
                read = from.read(&mut buffer) => match read {
                    Ok(read) if read > 0 => send(&mut io, &buffer[..read]).await,
                    _ => return,
                },
                first = io.read_u8() => {
                    assert_eq!(first.unwrap(), 0x82);
                    let length = match io.read_u8().await.unwrap() {
                        126 => usize::from(io.read_u16().await.unwrap()),
                        short => usize::from(short),
                    };
                    let mut payload = vec![0; length];
                    io.read_exact(&mut payload).await.unwrap();
                    to.write_all(&payload).await.unwrap();
                }
            }
        }
    });
    forwards(&mut near).await;
    drop(near);
    unwrapped.await.unwrap();
}

#[tokio::test]
async fn ports_over_channels() {
    let port = echo().await;
    let (mut io, _) = websocket(&format!("/portForward/default/web?port={port}"), "v4.channel.k8s.io").await;
    let number = port.to_le_bytes();
    assert_eq!(receive(&mut io).await.unwrap(), [0, number[0], number[1]]);
    assert_eq!(receive(&mut io).await.unwrap(), [1, number[0], number[1]]);
    send(&mut io, b"\0hello").await;
    assert_eq!(receive(&mut io).await.unwrap(), b"\0hello");
}
