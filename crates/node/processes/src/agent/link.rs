//! A connection to the keeper: many questions at a time, each answered in its own time.

use std::{
    collections::HashMap,
    io,
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::Serialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::{OwnedReadHalf, OwnedWriteHalf},
    sync::{Notify, oneshot, watch},
};

use super::Error;
use crate::protocol::{Answer, Answered, Frames, Kind, Request, json};

/// As [`crate::protocol::Asked`] is read.
#[derive(Serialize)]
pub struct Ask<'a> {
    pub number: u64,
    pub ask: &'a Request,
}

pub struct Link {
    last: AtomicU64,
    writer: tokio::sync::Mutex<OwnedWriteHalf>,
    waiting: Arc<Mutex<Waiting>>,
    over: watch::Receiver<bool>,
}

type Waiting = HashMap<u64, oneshot::Sender<Answer>>;

impl Link {
    /// `changed` is told when the keeper says so, and when it is gone.
    pub fn open(stream: UnixStream, changed: Arc<Notify>) -> io::Result<Arc<Self>> {
        stream.set_nonblocking(true)?;
        let (reader, writer) = tokio::net::UnixStream::from_std(stream)?.into_split();
        let waiting = Arc::new(Mutex::new(Waiting::new()));
        let (tell, over) = watch::channel(false);
        let told = waiting.clone();
        let end = LinkEnd { tell, waiting: told, changed };
        tasks::spawn_short("keeper-link", async move { hear(reader, &end.waiting, &end.changed).await });
        Ok(Arc::new(Self { last: AtomicU64::new(0), writer: writer.into(), waiting, over }))
    }

    pub fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    pub async fn over(&self) {
        let _ = self.over.clone().wait_for(|over| *over).await;
    }

    pub async fn ask(&self, request: &Request) -> Result<Answer, Error> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (tell, told) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(number, tell);
        let bytes = json(&Ask { number, ask: request });
        // Whoever stops waiting in the middle of writing would leave half a frame: so it is written by somebody who does not stop.
        if self.is_over() || self.writer.lock().await.write_all(&bytes).await.is_err() {
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
            return Err(Error::Gone);
        }
        told.await.map_err(|_| Error::Gone)
    }
}

/// Tells all that the link is over, also if its task panicked.
struct LinkEnd {
    tell: watch::Sender<bool>,
    waiting: Arc<Mutex<Waiting>>,
    changed: Arc<Notify>,
}

impl Drop for LinkEnd {
    fn drop(&mut self) {
        self.tell.send_replace(true);
        // Those that wait for an answer learn it by this.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.changed.notify_one();
    }
}

async fn hear(mut reader: OwnedReadHalf, waiting: &Mutex<Waiting>, changed: &Notify) {
    let (mut frames, mut buffer) = (Frames::default(), vec![0; 8 << 10]);
    loop {
        match reader.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => frames.push(&buffer[..count]),
        }
        loop {
            match frames.next() {
                Ok(Some(frame)) if frame.kind == Kind::Json => {
                    let Ok(Answered { number, answer }) = serde_json::from_slice(&frame.bytes) else { continue };
                    if matches!(answer, Answer::Changed) {
                        changed.notify_one();
                    }
                    let teller = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
                    if let Some(teller) = teller {
                        let _ = teller.send(answer);
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}
