//! Bodies of requests to the center's own paths: so many are read at a time, and so many wait for that. What waits is
//! not read, so it takes no more memory than the connection's window.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt;
use schema::status::{Result, Status};
use server::mount::AnyBody;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// While others wait, a body has this long to arrive.
const SLOW: Duration = Duration::from_secs(1);

/// Room for a number of bodies.
pub struct Bodies {
    seats: Arc<Semaphore>,
    waiting: AtomicUsize,
    may_wait: usize,
}

/// Counts one that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// What bounds one body.
#[derive(Clone, Copy)]
pub struct Bounds {
    pub bytes: usize,
    /// From when it is asked for until it is there, waiting included.
    pub time: Duration,
}

impl Bodies {
    pub fn new(at_once: usize, may_wait: usize) -> Self {
        Self { seats: Arc::new(Semaphore::new(at_once)), waiting: AtomicUsize::new(0), may_wait }
    }

    /// A seat, once one is free.
    pub async fn seat(&self, until: Instant) -> Result<OwnedSemaphorePermit> {
        if let Ok(seat) = self.seats.clone().try_acquire_owned() {
            return Ok(seat);
        }
        let busy = || Status::too_many_requests("too many such requests are being read already; try again later", 1);
        if self.waiting.fetch_add(1, Relaxed) >= self.may_wait {
            self.waiting.fetch_sub(1, Relaxed);
            return Err(busy());
        }
        let _waiting = Waiting(&self.waiting);
        match timeout_at(until, self.seats.clone().acquire_owned()).await {
            Ok(Ok(seat)) => Ok(seat),
            _ => Err(busy()),
        }
    }

    /// Reads a body on a seat. The seat is to be kept for as long as what was read is.
    pub async fn read(&self, body: AnyBody, bounds: Bounds) -> Result<(Vec<u8>, OwnedSemaphorePermit)> {
        let until = Instant::now() + bounds.time;
        let seat = self.seat(until).await?;
        let mut reading = std::pin::pin!(read_all(body, bounds.bytes));
        // Somebody who sends slowly keeps the seat only while nobody else wants it.
        loop {
            let look = until.min(Instant::now() + SLOW);
            match timeout_at(look, reading.as_mut()).await {
                Ok(read) => return Ok((read?, seat)),
                Err(_) if Instant::now() >= until || self.waiting.load(Relaxed) > 0 => {
                    return Err(Status::new(408, "Timeout", "the body did not arrive in time"));
                }
                Err(_) => {}
            }
        }
    }
}

async fn read_all(mut body: AnyBody, most: usize) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => all.extend_from_slice(frame.data_ref().map(Bytes::as_ref).unwrap_or_default()),
            Err(error) => return Err(Status::bad_request(format!("the body could not be read: {error}"))),
        }
        if all.len() > most {
            return Err(Status::too_large(format!("the body is longer than {most} bytes")));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};

    use super::*;

    const BOUNDS: Bounds = Bounds { bytes: 10, time: Duration::from_secs(10) };

    fn whole(text: &'static str) -> AnyBody {
        Full::new(Bytes::from_static(text.as_bytes())).map_err(|never| match never {}).boxed_unsync()
    }

    fn endless() -> AnyBody {
        StreamBody::new(stream::pending::<std::result::Result<Frame<Bytes>, _>>()).boxed_unsync()
    }

    #[tokio::test]
    async fn long_bodies_are_refused() {
        let bodies = Bodies::new(1, 1);
        assert_eq!(bodies.read(whole("0123456789"), BOUNDS).await.unwrap().0, b"0123456789");
        assert_eq!(bodies.read(whole("0123456789a"), BOUNDS).await.unwrap_err().code, 413);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_gives_way_to_those_that_wait_and_too_many_do_not() {
        let bodies = Arc::new(Bodies::new(1, 1));
        let begun = Instant::now();
        assert_eq!(bodies.read(endless(), BOUNDS).await.unwrap_err().code, 408);
        assert_eq!(begun.elapsed().as_secs(), 10, "as long as nobody else waits");
        let (begun, slow) = (Instant::now(), bodies.clone());
        let slow = tokio::spawn(async move { slow.read(endless(), BOUNDS).await.unwrap_err().code });
        tokio::task::yield_now().await;
        let next = bodies.clone();
        let next = tokio::spawn(async move { next.read(whole("next"), BOUNDS).await.unwrap().0 });
        tokio::task::yield_now().await;
        assert_eq!(bodies.read(whole("late"), BOUNDS).await.unwrap_err().code, 429);
        assert_eq!((slow.await.unwrap(), next.await.unwrap()), (408, b"next".to_vec()));
        assert!(begun.elapsed() < Duration::from_secs(3));
        assert_eq!(bodies.waiting.load(Relaxed), 0);
    }
}
