//! The edge's end of a tunnel: when the center asks for a stream, the edge opens one to it and serves its own API there. Nothing
//! listens for it. The center has authenticated whoever asks and says who that is; this edge's own roles decide what they may.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use link::transport::{Connection, paths};
use server::Server;
use tokio::sync::Semaphore;

use crate::agent::Opener;

/// Streams at one time. The center has a smaller limit of its own.
const MOST: usize = 128;

/// What opens a stream with a ticket of the center's.
pub fn opener(server: &Arc<Server>) -> Opener {
    let (server, places) = (server.clone(), Arc::new(Semaphore::new(MOST)));
    Box::new(move |connection: Connection, ticket: u128| {
        let Ok(place) = places.clone().try_acquire_owned() else {
            tracing::warn!("the center asks for more tunnels than there may be");
            return;
        };
        let server = server.clone();
        tokio::spawn(async move {
            let opened = connection.stream(paths::TUNNEL, shown(ticket)).await;
            drop(connection);
            match opened {
                Ok(stream) => server.serve_trusted(stream).await,
                Err(error) => tracing::debug!(%error, "a tunnel could not be opened"),
            }
            drop(place);
        });
    })
}

fn shown(ticket: u128) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(ticket) = HeaderValue::from_str(&format!("{ticket:032x}")) {
        headers.insert(paths::TICKET, ticket);
    }
    headers
}
