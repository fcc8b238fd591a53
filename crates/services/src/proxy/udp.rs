//! Leads datagrams through a door, and the answers back.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use tokio::{net::UdpSocket, task::JoinHandle};

use super::tcp::{Shared, choose};

/// A client that says nothing for so long, and is told nothing, is somebody new when it comes again.
const IDLE: Duration = Duration::from_secs(60);
/// So many clients of one door at the same time; of more, the one that came first is forgotten.
const TOGETHER: usize = 1024;
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

pub async fn serve(socket: UdpSocket, shared: Shared) {
    let socket = Arc::new(socket);
    let mut sessions: HashMap<SocketAddr, Session> = HashMap::new();
    let mut buffer = vec![0; LARGEST];
    loop {
        let received = tokio::time::timeout(IDLE, socket.recv_from(&mut buffer)).await;
        let now = Instant::now();
        let has = |to: &SocketAddr| shared.lock().unwrap_or_else(PoisonError::into_inner).has(to);
        let (length, client) = match received {
            Ok(Ok(received)) => received,
            // A client that is gone is told to this socket, too.
            Ok(Err(_)) => continue,
            Err(_) => {
                sessions.retain(|_, one| now.duration_since(one.last) < IDLE && has(&one.to));
                continue;
            }
        };
        let is_good = |one: &Session| now.duration_since(one.last) < IDLE && has(&one.to);
        if !sessions.get(&client).is_some_and(is_good) {
            sessions.remove(&client);
            if sessions.len() >= TOGETHER {
                sessions.retain(|_, one| is_good(one));
                if sessions.len() >= TOGETHER
                    && let Some(oldest) = sessions.iter().min_by_key(|(_, one)| one.last).map(|(client, _)| *client)
                {
                    sessions.remove(&oldest);
                }
            }
            let Some(session) = open(&socket, client, &shared).await else { continue };
            sessions.insert(client, session);
        }
        if let (Some(session), Some(datagram)) = (sessions.get_mut(&client), buffer.get(..length)) {
            session.last = now;
            let _ = session.socket.send(datagram).await;
        }
    }
}

async fn open(door: &Arc<UdpSocket>, client: SocketAddr, shared: &Shared) -> Option<Session> {
    let to = choose(shared, client.ip(), &[])?;
    let any: SocketAddr =
        if to.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = Arc::new(UdpSocket::bind(any).await.ok()?);
    socket.connect(to).await.ok()?;
    let (door, from) = (door.clone(), socket.clone());
    let back = tokio::spawn(async move {
        let mut buffer = vec![0; LARGEST];
        loop {
            match tokio::time::timeout(IDLE, from.recv(&mut buffer)).await {
                Ok(Ok(length)) => {
                    if let Some(datagram) = buffer.get(..length) {
                        let _ = door.send_to(datagram, client).await;
                    }
                }
                // Nobody listens there yet, or not any more.
                Ok(Err(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(_) => return,
            }
        }
    });
    Some(Session { to, socket, last: Instant::now(), back })
}
