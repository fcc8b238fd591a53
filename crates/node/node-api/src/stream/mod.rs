//! What exec, attach and port-forward are made of, whatever protocol carries it: bytes that come, and places to send some to.

pub mod channels;
pub mod resize;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::{
    outgoing::Outgoing,
    spdy::{frame, session::Session},
};
use channels::Channels;

/// What one stream brings; its end is the end of the channel.
pub type Incoming = mpsc::Receiver<Bytes>;

/// Where something is sent to.
#[derive(Clone)]
pub enum Sink {
    /// A channel of a WebSocket.
    Channel { channels: Channels, id: u8, out: Outgoing },
    /// A stream of SPDY.
    Stream { session: Arc<Mutex<Session>>, id: u32, out: Outgoing },
}

impl Sink {
    /// False if nobody is there any more.
    pub async fn send(&self, data: &[u8]) -> bool {
        match self {
            Self::Channel { channels, id, out } => out.send(channels.encode(*id, data)).await,
            Self::Stream { session, id, out } => {
                let is_open = session.lock().unwrap_or_else(PoisonError::into_inner).is_open(*id);
                is_open && out.send(frame::data(*id, data, false)).await
            }
        }
    }

    /// Says that nothing more comes, where that can be said.
    pub async fn finish(&self) {
        if let Self::Stream { session, id, out } = self {
            let said = session.lock().unwrap_or_else(PoisonError::into_inner).finish(*id);
            if let Some(said) = said {
                out.send(said).await;
            }
        }
    }

    /// Ends both directions at once.
    pub async fn cancel(&self) {
        if let Self::Stream { session, id, out } = self {
            let said = session.lock().unwrap_or_else(PoisonError::into_inner).cancel(*id);
            if let Some(said) = said {
                out.send(said).await;
            }
        }
    }
}
