//! When to stop: a signal, or the end of who started us.

use std::time::Duration;

use anyhow::Result;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// Set in what `selvedge up` starts.
pub const HELD: &str = "SELVEDGE_HELD";
/// Who was let go has this long to end by itself.
const LET_GO: Duration = Duration::from_secs(30);

/// Made before anything is started: whoever sees that we are ready may want to stop us the moment after.
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
    /// `selvedge up` holds the other end of our standard input: it closes when we shall stop, and also when `up` is no more.
    let_go: Option<oneshot::Receiver<()>>,
}

impl Stop {
    /// Whether `selvedge up` started us.
    pub fn is_held() -> bool {
        std::env::var_os(HELD).is_some()
    }

    pub fn listen() -> Result<Self> {
        let let_go = Self::is_held().then(|| {
            let (tell, told) = oneshot::channel();
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
                let _ = tell.send(());
                std::thread::sleep(LET_GO);
                std::process::exit(1);
            });
            told
        });
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())?, let_go })
    }

    pub async fn told(&mut self) {
        let let_go = async {
            match &mut self.let_go {
                Some(told) => drop(told.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = let_go => {}
        }
    }
}
