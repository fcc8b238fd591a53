//! Listens at every door of the table, and leads who comes to one of those behind it.

mod choose;
mod tcp;
mod udp;

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tasks::{Handle, Tasks};
use tokio::net::{TcpListener, UdpSocket};

use self::{choose::Chooser, tcp::Shared};
use crate::RESTART;
use crate::table::{Behind, Door, Owner, Protocol, Table};

struct Open {
    chooser: Shared,
    task: Handle,
}

/// The doors that are open.
pub struct Proxy {
    tasks: Tasks,
    open: BTreeMap<Door, Open>,
    /// Those that could not be opened, so that it is said once.
    shut: BTreeMap<Door, String>,
}

/// A door that cannot be opened.
pub struct Shut {
    pub door: Door,
    pub of: Owner,
    pub why: String,
}

impl Proxy {
    pub fn new(tasks: Tasks) -> Self {
        Self { tasks, open: BTreeMap::new(), shut: BTreeMap::new() }
    }

    /// Opens and shuts doors. What comes back is new trouble.
    pub async fn set(&mut self, table: Table) -> Vec<Shut> {
        self.open.retain(|door, open| {
            let stays = table.contains_key(door);
            if !stays {
                open.task.abort();
            }
            stays
        });
        self.shut.retain(|door, _| table.contains_key(door));
        let mut trouble = Vec::new();
        for (door, behind) in table {
            if let Some(open) = self.open.get(&door) {
                open.chooser.lock().unwrap_or_else(PoisonError::into_inner).set(behind);
                continue;
            }
            let of = behind.of.clone();
            match open(&self.tasks, door, behind).await {
                Ok(opened) => {
                    self.shut.remove(&door);
                    self.open.insert(door, opened);
                }
                Err(error) => {
                    let why = why(door.at, &error);
                    if self.shut.insert(door, why.clone()).as_ref() != Some(&why) {
                        trouble.push(Shut { door, of, why });
                    }
                }
            }
        }
        trouble
    }

    /// Whether some doors should be tried again after a while.
    pub fn has_trouble(&self) -> bool {
        !self.shut.is_empty()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.open.values().for_each(|open| open.task.abort());
    }
}

async fn open(tasks: &Tasks, door: Door, behind: Behind) -> io::Result<Open> {
    let chooser = Arc::new(Mutex::new(Chooser::new(behind)));
    let shared = chooser.clone();
    let task = match door.protocol {
        Protocol::Tcp => {
            let listener = Arc::new(TcpListener::bind(door.at).await?);
            tasks.spawn_until_shutdown("proxy-tcp", RESTART, move || tcp::serve(listener.clone(), shared.clone()))
        }
        Protocol::Udp => {
            let socket = Arc::new(UdpSocket::bind(door.at).await?);
            tasks.spawn_until_shutdown("proxy-udp", RESTART, move || udp::serve(socket.clone(), shared.clone()))
        }
    };
    Ok(Open { chooser, task })
}

fn why(at: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "cannot listen on {at}: ports below 1024 need a right that this program does not have. Give the Service a higher port, or let \
             everybody use them: sysctl net.ipv4.ip_unprivileged_port_start=0"
        ),
        io::ErrorKind::AddrInUse => format!("cannot listen on {at}: another program does already"),
        _ => format!("cannot listen on {at}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;

    /// Says its letter to whoever comes, over both protocols.
    async fn somebody(letter: u8) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let socket = UdpSocket::bind(at).await.unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(&[letter]).await;
            }
        });
        tokio::spawn(async move {
            let mut buffer = [0; 64];
            while let Ok((_, from)) = socket.recv_from(&mut buffer).await {
                let _ = socket.send_to(&[letter], from).await;
            }
        });
        at
    }

    async fn free() -> SocketAddr {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap()
    }

    async fn come(at: SocketAddr) -> Option<u8> {
        TcpStream::connect(at).await.ok()?.read_u8().await.ok()
    }

    fn table(protocol: Protocol, at: SocketAddr, endpoints: &[SocketAddr]) -> Table {
        [(Door { protocol, at }, Behind { endpoints: endpoints.to_vec(), ..Behind::default() })].into()
    }

    #[tokio::test]
    async fn connections_are_led_to_whoever_is_there() {
        let (a, b, nobody, at) = (somebody(b'a').await, somebody(b'b').await, free().await, free().await);
        let mut proxy = Proxy::new(Tasks::new());
        assert!(proxy.set(table(Protocol::Tcp, at, &[a, nobody, b])).await.is_empty());
        let seen = [come(at).await, come(at).await, come(at).await, come(at).await];
        assert!(seen.iter().all(Option::is_some), "who does not answer is passed over: {seen:?}");
        assert!(seen.contains(&Some(b'a')) && seen.contains(&Some(b'b')), "{seen:?}");
        proxy.set(table(Protocol::Tcp, at, &[b])).await;
        assert_eq!([come(at).await, come(at).await], [Some(b'b'); 2]);
        proxy.set(Table::new()).await;
        // The listener goes when its task is next run.
        for _ in 0..100 {
            if come(at).await.is_none() {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("the door is still open");
    }

    #[tokio::test]
    async fn datagrams_and_their_answers() {
        let (a, at) = (somebody(b'a').await, free().await);
        let mut proxy = Proxy::new(Tasks::new());
        proxy.set(table(Protocol::Udp, at, &[a])).await;
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        client.connect(at).await.unwrap();
        let mut buffer = [0; 64];
        for _ in 0..3 {
            client.send(b"?").await.unwrap();
            assert_eq!((client.recv(&mut buffer).await.unwrap(), buffer[0]), (1, b'a'));
        }
    }

    #[tokio::test]
    async fn a_door_that_is_taken_is_said_once_and_tried_again() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (a, at) = (somebody(b'a').await, taken.local_addr().unwrap());
        let mut proxy = Proxy::new(Tasks::new());
        let told = proxy.set(table(Protocol::Tcp, at, &[a])).await;
        assert!(told.len() == 1 && told[0].why.contains("another program"), "{}", told[0].why);
        assert!(proxy.set(table(Protocol::Tcp, at, &[a])).await.is_empty() && proxy.has_trouble());
        drop(taken);
        proxy.set(table(Protocol::Tcp, at, &[a])).await;
        assert!(!proxy.has_trouble());
        assert_eq!(come(at).await, Some(b'a'));
    }
}
