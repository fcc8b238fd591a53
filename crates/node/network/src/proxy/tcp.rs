//! Leads connections through a door.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    io::copy_bidirectional_with_sizes,
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use super::choose::Chooser;

const DIAL: Duration = Duration::from_secs(5);
/// So many connections go through one door at the same time; more wait to be accepted.
const TOGETHER: usize = 4096;
/// What one connection keeps in memory for each direction: most of them carry little.
const BUFFER: usize = 8 * 1024;

static CONNECTION: tasks::Kind = tasks::Kind::new("proxy-connection");

pub type Shared = Arc<Mutex<Chooser>>;

pub fn choose(shared: &Shared, client: IpAddr, tried: &[SocketAddr]) -> Option<SocketAddr> {
    shared.lock().unwrap_or_else(PoisonError::into_inner).choose(client, tried, Instant::now())
}

/// Until it is dropped. Connections that are open go on.
pub async fn serve(listener: Arc<TcpListener>, shared: Shared) {
    let places = Arc::new(Semaphore::new(TOGETHER));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Too many open files, mostly: others have to end first.
                tracing::debug!(%error, "cannot accept a connection to a Service");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let shared = shared.clone();
        tasks::spawn_short(&CONNECTION, async move {
            lead(stream, client, &shared).await;
            drop(place);
        });
    }
}

async fn lead(mut stream: TcpStream, client: SocketAddr, shared: &Shared) {
    let mut tried = Vec::new();
    while let Some(to) = choose(shared, client.ip(), &tried) {
        match tokio::time::timeout(DIAL, TcpStream::connect(to)).await {
            Ok(Ok(mut onward)) => {
                let _ = (stream.set_nodelay(true), onward.set_nodelay(true));
                // Whoever ends, the other end learns it; there is nobody else to be told.
                let _ = copy_bidirectional_with_sizes(&mut stream, &mut onward, BUFFER, BUFFER).await;
                return;
            }
            // Gone, and the slices do not say so yet: another one may do.
            _ => tried.push(to),
        }
    }
}
