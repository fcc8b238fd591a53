//! Between somebody and a command: what they type goes in, what it writes comes out, until it ends.

use std::{
    future::pending,
    pin::pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use pods::runtime::{Attached, Reader, Writer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
};

use super::Ends;
use crate::stream::{Incoming, Sink, resize::Sizes};

/// What a command has written when it ends still comes; whoever holds its ends open without writing is not waited for any longer.
const QUIET: Duration = Duration::from_secs(1);

/// Until it has ended and what it wrote is sent. Its exit code, if it is known.
pub async fn drive(attached: Attached, ends: &mut Ends) -> Option<i32> {
    let Attached { stdin, stdout, stderr, resize, mut exit } = attached;
    // A runtime may take its end for the end of whoever is attached, with a terminal or without.
    let _until_the_end = resize.clone();
    let activity = Activity::default();
    let mut output = pin!(async {
        tokio::join!(pump(stdout, ends.stdout.as_ref(), &activity), pump(stderr, ends.stderr.as_ref(), &activity));
    });
    let mut input = pin!(type_in(ends.stdin.take(), stdin));
    let mut sizes = pin!(measure(ends.resize.take(), resize));
    let mut is_silent = false;
    let code = loop {
        tokio::select! {
            code = &mut exit => break code.ok(),
            () = &mut output, if !is_silent => is_silent = true,
            () = &mut input => {}
            () = &mut sizes => {}
        }
    };
    while !is_silent {
        let before = activity.read.load(Relaxed);
        tokio::select! {
            () = &mut output => is_silent = true,
            () = tokio::time::sleep(QUIET) => {
                is_silent = activity.read.load(Relaxed) == before && activity.sending.load(Relaxed) == 0;
            }
        }
    }
    code
}

#[derive(Default)]
struct Activity {
    read: AtomicU64,
    /// How many read slowly.
    sending: AtomicU64,
}

/// From the command to whoever listens. If nobody does, it is read all the same: the command must not stand still.
async fn pump(from: Option<Reader>, to: Option<&Sink>, activity: &Activity) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 32 << 10];
    while let Ok(read) = from.read(&mut buffer).await {
        if read == 0 {
            return;
        }
        activity.read.fetch_add(1, Relaxed);
        if let Some(to) = to {
            activity.sending.fetch_add(1, Relaxed);
            to.send(&buffer[..read]).await;
            activity.sending.fetch_sub(1, Relaxed);
        }
    }
}

/// What is typed goes to the command, and its end too. Never ends.
async fn type_in(from: Option<Incoming>, to: Option<Writer>) {
    if let (Some(mut from), Some(mut to)) = (from, to) {
        while let Some(data) = from.recv().await {
            if to.write_all(&data).await.is_err() || to.flush().await.is_err() {
                // It does not read any more. What is still typed is taken, and nobody waits.
                while from.recv().await.is_some() {}
                break;
            }
        }
        let _ = to.shutdown().await;
    }
    pending().await
}

/// Never ends.
async fn measure(from: Option<Incoming>, to: Option<mpsc::Sender<(u16, u16)>>) {
    if let (Some(mut from), Some(to)) = (from, to) {
        let mut sizes = Sizes::default();
        while let Some(piece) = from.recv().await {
            if let Some(size) = sizes.feed(&piece)
                && to.send(size).await.is_err()
            {
                break;
            }
        }
    }
    pending().await
}
