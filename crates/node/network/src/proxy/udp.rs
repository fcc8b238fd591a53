//! Leads datagrams through a door, and the answers back.

use std::{
    collections::HashMap,
    io::ErrorKind,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use tokio::{net::UdpSocket, task::JoinHandle};

use super::tcp::{Shared, choose};

/// A client that says nothing for so long is somebody new when it comes again.
const IDLE: Duration = Duration::from_secs(60);
/// So many clients of one door at the same time; of more, the one that came first is forgotten.
const TOGETHER: usize = 1024;
/// A buffer of this size is there only while datagrams come: most doors are quiet most of the time.
const LARGEST: usize = 65_535;

struct Session {
    to: SocketAddr,
    socket: Arc<UdpSocket>,
    last: Instant,
    back: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.back.abort();
    }
}

pub async fn serve(door: Arc<UdpSocket>, shared: Shared) {
    let mut sessions: HashMap<SocketAddr, Session> = HashMap::new();
    loop {
        let waited = tokio::time::timeout(IDLE, door.readable()).await;
        sessions.retain(|_, one| is_good(one, &shared, Instant::now()));
        if waited.is_err() {
            continue;
        }
        let mut buffer = vec![0; LARGEST];
        loop {
            let (length, client) = match door.try_recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // That a client is gone is told here, too. Whatever else it is, it must not keep a core busy.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    break;
                }
            };
            let Some(datagram) = buffer.get(..length) else { continue };
            if let Some(socket) = session(&mut sessions, &door, client, &shared).await {
                let _ = socket.send(datagram).await;
            }
        }
    }
}

fn is_good(one: &Session, shared: &Shared, now: Instant) -> bool {
    now.duration_since(one.last) < IDLE && shared.lock().unwrap_or_else(PoisonError::into_inner).has(&one.to)
}

/// The way of a client, found or made.
async fn session(
    sessions: &mut HashMap<SocketAddr, Session>,
    door: &Arc<UdpSocket>,
    client: SocketAddr,
    shared: &Shared,
) -> Option<Arc<UdpSocket>> {
    let now = Instant::now();
    if let Some(found) = sessions.get_mut(&client).filter(|one| is_good(one, shared, now)) {
        found.last = now;
        return Some(found.socket.clone());
    }
    sessions.remove(&client);
    if sessions.len() >= TOGETHER
        && let Some(oldest) = sessions.iter().min_by_key(|(_, one)| one.last).map(|(client, _)| *client)
    {
        sessions.remove(&oldest);
    }
    let opened = open(door, client, shared).await?;
    let socket = opened.socket.clone();
    sessions.insert(client, opened);
    Some(socket)
}

async fn open(door: &Arc<UdpSocket>, client: SocketAddr, shared: &Shared) -> Option<Session> {
    let to = choose(shared, client.ip(), &[])?;
    let any: SocketAddr =
        if to.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = Arc::new(UdpSocket::bind(any).await.ok()?);
    socket.connect(to).await.ok()?;
    let back = tasks::spawn_short("proxy-udp-session", answers(socket.clone(), door.clone(), client));
    Some(Session { to, socket, last: Instant::now(), back })
}

async fn answers(from: Arc<UdpSocket>, door: Arc<UdpSocket>, client: SocketAddr) {
    loop {
        if from.readable().await.is_err() {
            return;
        }
        let mut buffer = vec![0; LARGEST];
        loop {
            match from.try_recv(&mut buffer) {
                Ok(length) => {
                    if let Some(datagram) = buffer.get(..length) {
                        let _ = door.send_to(datagram, client).await;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Nobody listens there yet, or not any more.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    break;
                }
            }
        }
    }
}
