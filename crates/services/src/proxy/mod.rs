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

use tokio::{
    net::{TcpListener, UdpSocket},
    task::JoinHandle,
};

use self::{choose::Chooser, tcp::Shared};
use crate::table::{Behind, Door, Protocol, Table};

struct Open {
    chooser: Shared,
    task: JoinHandle<()>,
}

/// The doors that are open.
#[derive(Default)]
pub struct Proxy {
    open: BTreeMap<Door, Open>,
    /// Those that could not be opened, so that it is said once.
    shut: BTreeMap<Door, String>,
}

/// A door that cannot be opened.
pub struct Shut {
    pub door: Door,
    pub of: String,
    pub why: String,
}

impl Proxy {
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
            match open(door, behind).await {
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

async fn open(door: Door, behind: Behind) -> io::Result<Open> {
    let chooser = Arc::new(Mutex::new(Chooser::new(behind)));
    let shared = chooser.clone();
    let task = match door.protocol {
        Protocol::Tcp => {
            let listener = TcpListener::bind(door.at).await?;
            tokio::spawn(tcp::serve(listener, shared))
        }
        Protocol::Udp => {
            let socket = UdpSocket::bind(door.at).await?;
            tokio::spawn(udp::serve(socket, shared))
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
