//! `/portForward`: connections to ports of a pod. Each has a stream for data and one on which it is said what went wrong.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use http::{HeaderMap, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use pods::Pods;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};

use crate::{
    answer::{self, Body},
    outgoing::{LINGER, MAX_WAITING},
    route::{Place, Query},
    spdy::{self, connection::Stream},
    stream::{
        Incoming, Sink,
        channels::{Channels, Said},
    },
    upgrade::{self, Protocol},
    ws,
};

/// kubectl's own: a whole session of SPDY within a WebSocket.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
const ON_WEBSOCKETS: [&str; 4] = ["", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", TUNNEL];
const ON_SPDY: [&str; 1] = ["portforward.k8s.io"];
/// A stream whose other half does not come is given up.
const PAIRING: Duration = Duration::from_secs(30);
const DIAL: Duration = Duration::from_secs(10);
/// Of one request.
const MOST_PORTS: usize = 32;

pub fn answer(pods: &Pods, place: &Place, query: &Query, headers: &HeaderMap, upgraded: OnUpgrade) -> Response<Body> {
    let Some(known) = pods.find(&place.namespace, &place.pod) else {
        return answer::text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    let (protocol, response) = match upgrade::agree(headers, &ON_WEBSOCKETS, &ON_SPDY) {
        Ok(agreed) => agreed,
        Err(refusal) => return refusal,
    };
    let ports = match ports(query) {
        Ok(ports) => ports,
        Err(why) => return answer::text(StatusCode::BAD_REQUEST, why),
    };
    if ports.is_empty() && matches!(protocol, Protocol::WebSocket(name) if name != TUNNEL) {
        return answer::text(StatusCode::BAD_REQUEST, "query parameter \"port\" is required");
    }
    let pod = Pod { uid: known.uid.clone(), address: known.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)) };
    tasks::spawn_short("port-forward", async move {
        let Ok(io) = upgraded.await else { return };
        let io = TokioIo::new(io);
        match protocol {
            Protocol::Spdy(_) => over_spdy(io, pod).await,
            Protocol::WebSocket(TUNNEL) => {
                let (near, far) = tokio::io::duplex(64 << 10);
                tokio::join!(ws::connection::as_bytes(io, near), over_spdy(far, pod));
            }
            Protocol::WebSocket(name) => over_channels(io, Channels::of(name), ports, pod).await,
        }
    });
    response
}

fn ports(query: &Query) -> Result<Vec<u16>, String> {
    let texts: Vec<&str> =
        query.all("port").flat_map(|ports| ports.split(',')).filter(|port| !port.is_empty()).collect();
    if texts.len() > MOST_PORTS {
        return Err(format!("more than {MOST_PORTS} ports"));
    }
    let number = |text: &&str| {
        let port = text.parse().ok().filter(|port| *port > 0);
        port.ok_or_else(|| format!("{text:?} is no port: must be between 1 and 65535"))
    };
    texts.iter().map(number).collect()
}

#[derive(Clone, Debug)]
struct Pod {
    uid: String,
    address: IpAddr,
}

/// Two streams of one connection find each other by the number of their request.
#[derive(Default)]
struct Pairs(BTreeMap<String, Half>);

struct Half {
    since: tokio::time::Instant,
    port: u16,
    is_error: bool,
    stream: Stream,
}

struct Pair {
    port: u16,
    data: Stream,
    error: Stream,
}

impl Pairs {
    /// A pair that is complete by this stream; or the stream again if it has no place.
    fn add(&mut self, stream: Stream) -> Result<Option<Pair>, Stream> {
        let headers = &stream.headers;
        let port = headers.get("port").and_then(|port| port.parse().ok()).filter(|port| *port > 0);
        let is_error = match headers.get("streamtype") {
            Some("error") => true,
            Some("data") => false,
            _ => return Err(stream),
        };
        let (Some(port), Some(request)) = (port, headers.get("requestid").map(str::to_owned)) else {
            return Err(stream);
        };
        match self.0.remove(&request) {
            None => {
                self.0.insert(request, Half { since: tokio::time::Instant::now(), port, is_error, stream });
                Ok(None)
            }
            Some(half) if half.is_error == is_error || half.port != port => {
                self.0.insert(request, half);
                Err(stream)
            }
            Some(half) => {
                let (data, error) = if is_error { (half.stream, stream) } else { (stream, half.stream) };
                Ok(Some(Pair { port, data, error }))
            }
        }
    }

    /// Those who waited too long.
    fn late(&mut self) -> Vec<Stream> {
        let late: Vec<String> = self
            .0
            .iter()
            .filter(|(_, half)| half.since.elapsed() >= PAIRING)
            .map(|(request, _)| request.clone())
            .collect();
        late.iter().filter_map(|request| self.0.remove(request)).map(|half| half.stream).collect()
    }
}

async fn over_spdy(io: impl AsyncRead + AsyncWrite, pod: Pod) {
    let (mut streams, _out, carried) = spdy::connection::start(io);
    let work = async {
        let (mut pairs, mut connections) = (Pairs::default(), JoinSet::new());
        let mut look = tokio::time::interval(PAIRING);
        loop {
            tokio::select! {
                stream = streams.recv() => {
                    let Some(stream) = stream else { return };
                    match pairs.add(stream) {
                        Ok(None) => {}
                        Ok(Some(Pair { port, data, error })) => {
                            let data_sink = data.sink;
                            let connection = connect(pod.clone(), port, data.incoming, data_sink, error.sink);
                            connections.spawn(tasks::watched("port-forward-connection", connection));
                        }
                        Err(stream) => stream.sink.cancel().await,
                    }
                }
                Some(_) = connections.join_next() => {}
                _ = look.tick() => for stream in pairs.late() {
                    stream.sink.cancel().await;
                }
            }
        }
    };
    tokio::select! {
        _ = carried => {}
        () = work => {}
    }
}

/// The older form: for each port one channel with data, and the next for what goes wrong. Both begin with the port's number.
async fn over_channels(io: impl AsyncRead + AsyncWrite, channels: Channels, ports: Vec<u16>, pod: Pod) {
    let (mut messages, out, carried) = ws::connection::start(io);
    let mut connections = JoinSet::new();
    let mut inputs = Vec::new();
    for (at, port) in ports.into_iter().enumerate() {
        let sink = |id: usize| Sink::Channel { channels, id: u8::try_from(id).unwrap_or(u8::MAX), out: out.clone() };
        let (data, error) = (sink(2 * at), sink(2 * at + 1));
        let (to, incoming) = mpsc::channel(MAX_WAITING);
        inputs.push(to);
        let pod = pod.clone();
        let connection = async move {
            data.send(&port.to_le_bytes()).await;
            error.send(&port.to_le_bytes()).await;
            connect(pod, port, incoming, data, error).await;
        };
        connections.spawn(tasks::watched("port-forward-connection", connection));
    }
    let sorted = async {
        while let Some(message) = messages.recv().await {
            if let Some(Said::Data { channel, data }) = channels.decode(message)
                && channel % 2 == 0
                && let Some(input) = inputs.get(usize::from(channel / 2)).filter(|_| !data.is_empty())
            {
                let _ = input.send(data).await;
            }
        }
        std::future::pending::<()>().await;
    };
    let work = async {
        while connections.join_next().await.is_some() {}
        out.send(ws::frame::close(1000)).await;
        out.flushed().await;
        tokio::time::sleep(LINGER).await;
    };
    tokio::select! {
        _ = carried => {}
        () = sorted => {}
        () = work => {}
    }
}

/// One connection, from its beginning to its end.
async fn connect(pod: Pod, port: u16, incoming: Incoming, data: Sink, error: Sink) {
    let address = SocketAddr::new(pod.address, port);
    let dialled = match timeout(DIAL, TcpStream::connect(address)).await {
        Ok(dialled) => dialled,
        Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
    };
    match dialled {
        Ok(stream) => {
            let _ = stream.set_nodelay(true);
            copy(stream, incoming, &data).await;
        }
        Err(why) => {
            let why = match why.kind() {
                std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
                std::io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
                _ => why.to_string(),
            };
            let words = format!("error forwarding port {port} to pod {}, uid : dial tcp {address}: {why}", pod.uid);
            error.send(words.as_bytes()).await;
        }
    }
    data.finish().await;
    error.finish().await;
}

async fn copy(stream: TcpStream, mut incoming: Incoming, data: &Sink) {
    let (mut from, mut to) = stream.into_split();
    let inward = async {
        while let Some(piece) = incoming.recv().await {
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    let outward = async {
        let mut buffer = vec![0; 32 << 10];
        while let Ok(read) = from.read(&mut buffer).await {
            if read == 0 || !data.send(&buffer[..read]).await {
                break;
            }
        }
        data.finish().await;
    };
    let (mut inward, mut outward) = (std::pin::pin!(inward), std::pin::pin!(outward));
    tokio::select! {
        () = &mut inward => outward.await,
        // The pod has said everything. Most clients then say no more either; the others are not waited for.
        () = &mut outward => drop(timeout(LINGER, inward).await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_a_request() {
        let read = |query| ports(&Query::parse(Some(query)));
        assert_eq!(read("port=80,443&port=1"), Ok(vec![80, 443, 1]));
        assert_eq!(read(""), Ok(vec![]));
        assert!(read("port=0").is_err() && read("port=x").is_err() && read("port=65536").is_err());
        assert!(read(&format!("port={}", ["1"; 33].join(","))).is_err());
    }
}
