//! The resolver: answers for Services itself, and asks the machine's own resolvers for the rest.

pub mod message;
mod names;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::Semaphore,
};

use crate::Shared;

/// The usual port, and those instead of it: it may need a right that is not there, and others may listen everywhere.
const PORTS: [u16; 3] = [53, 5353, 1053];
const PATIENCE: Duration = Duration::from_secs(2);
/// So many questions wait for others' answers at the same time; more are not answered.
const TOGETHER: usize = 256;
const STREAMS: usize = 64;
const IDLE: Duration = Duration::from_secs(10);

pub struct Resolver {
    pub at: SocketAddr,
    udp: Arc<UdpSocket>,
    tcp: TcpListener,
    known: Shared,
    others: Arc<Vec<SocketAddr>>,
}

impl Resolver {
    /// On the first port that is allowed and free.
    pub async fn listen(ip: Ipv4Addr, known: Shared) -> io::Result<Self> {
        let mut bound = bind(ip, PORTS[0]).await;
        for port in &PORTS[1..] {
            if bound.is_err() {
                bound = bind(ip, *port).await;
            }
        }
        let (udp, tcp) = bound?;
        let at = udp.local_addr()?;
        let text = tokio::fs::read_to_string("/etc/resolv.conf").await.unwrap_or_default();
        let others = Arc::new(resolvers(&text, at.ip()));
        Ok(Self { at, udp: Arc::new(udp), tcp, known, others })
    }

    /// Until it is dropped.
    pub async fn serve(self: Arc<Self>) {
        let (known, others) = (&self.known, &self.others);
        let datagrams = datagrams(self.udp.clone(), known.clone(), others.clone());
        tokio::join!(datagrams, streams(&self.tcp, known.clone(), others.clone()));
    }
}

async fn bind(ip: Ipv4Addr, port: u16) -> io::Result<(UdpSocket, TcpListener)> {
    Ok((UdpSocket::bind((ip, port)).await?, TcpListener::bind((ip, port)).await?))
}

/// The machine's own, but for this one.
fn resolvers(text: &str, own: IpAddr) -> Vec<SocketAddr> {
    let named = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver")?.split_whitespace().next());
    let ips = named.filter_map(|ip| ip.split('%').next()?.parse::<IpAddr>().ok()).filter(|ip| *ip != own);
    ips.take(3).map(|ip| SocketAddr::new(ip, 53)).collect()
}

/// The answer, or none if others have to be asked.
fn own_answer(known: &Shared, query: &[u8], is_stream: bool) -> Option<Option<Vec<u8>>> {
    let question = match message::question(query) {
        Ok(question) => question,
        Err(answer) => return Some(answer),
    };
    let reply = known.read(|known| names::look_up(known, &question.name, question.kind))?;
    Some(Some(message::answer(query, &question, &reply, is_stream)))
}

fn failure(query: &[u8]) -> Option<Vec<u8>> {
    let question = message::question(query).ok()?;
    let reply = message::Reply { code: message::FAILED, ..message::Reply::default() };
    Some(message::answer(query, &question, &reply, false))
}

async fn datagrams(socket: Arc<UdpSocket>, known: Shared, others: Arc<Vec<SocketAddr>>) {
    let waiting = Arc::new(Semaphore::new(TOGETHER));
    let mut buffer = vec![0; 4096];
    loop {
        let Ok((length, client)) = socket.recv_from(&mut buffer).await else { continue };
        let Some(query) = buffer.get(..length) else { continue };
        match own_answer(&known, query, false) {
            Some(Some(answer)) => drop(socket.send_to(&answer, client).await),
            Some(None) => {}
            None => {
                let Ok(place) = waiting.clone().try_acquire_owned() else { continue };
                let (query, socket, others) = (query.to_vec(), socket.clone(), others.clone());
                tasks::spawn_short("dns-query", async move {
                    if let Some(answer) = ask(&query, &others).await.or_else(|| failure(&query)) {
                        let _ = socket.send_to(&answer, client).await;
                    }
                    drop(place);
                });
            }
        }
    }
}

/// One after the other, until one answers.
async fn ask(query: &[u8], others: &[SocketAddr]) -> Option<Vec<u8>> {
    for other in others {
        let asking = async {
            let any: IpAddr =
                if other.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
            let socket = UdpSocket::bind((any, 0)).await.ok()?;
            socket.connect(other).await.ok()?;
            socket.send(query).await.ok()?;
            let mut buffer = vec![0; 4096];
            loop {
                let length = socket.recv(&mut buffer).await.ok()?;
                // Whatever does not answer this very question is somebody's guess.
                if length >= 12
                    && buffer.get(..2) == query.get(..2)
                    && buffer.get(2).is_some_and(|flags| flags & 0x80 != 0)
                {
                    buffer.truncate(length);
                    return Some(buffer);
                }
            }
        };
        if let Ok(Some(answer)) = tokio::time::timeout(PATIENCE, asking).await {
            return Some(answer);
        }
    }
    None
}

async fn streams(listener: &TcpListener, known: Shared, others: Arc<Vec<SocketAddr>>) {
    let places = Arc::new(Semaphore::new(STREAMS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (known, others) = (known.clone(), others.clone());
        tasks::spawn_short("dns-connection", async move {
            let _ = stream_of(stream, &known, &others).await;
            drop(place);
        });
    }
}

/// Messages over TCP have their length before them.
async fn stream_of(mut stream: TcpStream, known: &Shared, others: &[SocketAddr]) -> io::Result<()> {
    loop {
        let length = tokio::time::timeout(IDLE, stream.read_u16()).await??;
        let mut query = vec![0; usize::from(length)];
        tokio::time::timeout(IDLE, stream.read_exact(&mut query)).await??;
        let answer = match own_answer(known, &query, true) {
            Some(answer) => answer,
            None => ask_by_stream(&query, others).await.or_else(|| failure(&query)),
        };
        let Some(answer) = answer else { return Ok(()) };
        let Ok(length) = u16::try_from(answer.len()) else { return Ok(()) };
        stream.write_all(&[&length.to_be_bytes()[..], &answer].concat()).await?;
    }
}

async fn ask_by_stream(query: &[u8], others: &[SocketAddr]) -> Option<Vec<u8>> {
    for other in others {
        let asking = async {
            let mut stream = TcpStream::connect(other).await.ok()?;
            let length = u16::try_from(query.len()).ok()?;
            stream.write_all(&[&length.to_be_bytes()[..], query].concat()).await.ok()?;
            let mut answer = vec![0; usize::from(stream.read_u16().await.ok()?)];
            stream.read_exact(&mut answer).await.ok()?;
            Some(answer)
        };
        if let Ok(Some(answer)) = tokio::time::timeout(PATIENCE, asking).await {
            return Some(answer);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_own_resolvers() {
        let text = "# no\nnameserver 10.0.0.1\nsearch x\nnameserver fe80::1%eth0\n nameserver 127.9.128.10\nnameserver nonsense\n";
        let found = resolvers(text, [127, 9, 128, 10].into());
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.1:53", "[fe80::1]:53"]);
    }
}
