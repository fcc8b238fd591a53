//! When to stop, and that it happens: a signal, or the end of who started us, and a limit for how long stopping takes.
//!
//! A thread of its own waits for signals and keeps the time. So a process ends even if every thread of the runtime is busy.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
    sync::watch,
};

/// Set in what `selvedge up` starts.
pub const HELD: &str = "SELVEDGE_HELD";
/// A process has this long to end in order. Requests have the most of it (10 s, `server::listen`).
const LIMIT: Duration = Duration::from_secs(18);
/// Sets another limit, in seconds.
const LIMIT_SET: &str = "SELVEDGE_STOP_LIMIT";
/// The last line of the log may take this long: where it goes may be what does not end.
const LAST_LINE: Duration = Duration::from_millis(500);
/// Tasks that do not end by themselves have this long when everything else has ended.
const REST: Duration = Duration::from_secs(2);

/// Made before anything is started: whoever sees that we are ready may want to stop us the moment after.
pub struct Stop {
    told: watch::Receiver<bool>,
    limit: Limit,
}

/// Ends the process if stopping takes too long.
#[derive(Clone)]
struct Limit {
    tell: Arc<watch::Sender<bool>>,
    /// What is being waited for.
    step: Arc<Mutex<&'static str>>,
}

impl Stop {
    /// Whether `selvedge up` started us.
    pub fn is_held() -> bool {
        std::env::var_os(HELD).is_some()
    }

    /// For a server, which ends within a limit after it was told to.
    pub fn within_limit() -> Result<Self> {
        let set = std::env::var(LIMIT_SET).ok().and_then(|seconds| seconds.parse().ok());
        Self::listen(Some(set.map_or(LIMIT, Duration::from_secs)))
    }

    /// With a limit, the process ends so long after it was told to at the latest.
    pub fn listen(longest: Option<Duration>) -> Result<Self> {
        let (tell, told) = watch::channel(false);
        let limit = Limit { tell: Arc::new(tell), step: Arc::new(Mutex::new("the start")) };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot listen for signals")?;
        let (mut terminate, mut interrupt) = {
            let _inside = runtime.enter();
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
        };
        let mut begun = told.clone();
        let waits = limit.clone();
        let wait = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                    _ = begun.wait_for(|told| *told) => {}
                }
                waits.tell.send_replace(true);
                if let Some(longest) = longest {
                    tokio::time::sleep(longest).await;
                    waits.give_up(longest);
                }
            });
        };
        std::thread::Builder::new().name("signals".into()).spawn(wait).context("cannot listen for signals")?;
        if Self::is_held() {
            // `selvedge up` holds the other end of our standard input: it closes when we shall stop, and also when `up` is no more.
            let tell = limit.tell.clone();
            let read = move || {
                let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
                tell.send_replace(true);
            };
            std::thread::Builder::new().name("held".into()).spawn(read).context("cannot wait for the end of up")?;
        }
        Ok(Self { told, limit })
    }

    pub async fn told(&mut self) {
        // The sender lives as long as the receiver.
        let _ = self.told.wait_for(|told| *told).await;
    }

    /// From now on the time runs, if it does not yet.
    pub fn begin(&self) {
        self.limit.tell.send_replace(true);
    }

    /// Says what is waited for from now on.
    pub fn step(&self, step: &'static str) {
        *self.limit.step.lock().unwrap_or_else(PoisonError::into_inner) = step;
    }

    /// Ends a runtime. Tasks that never yield are left behind: the process ends with them.
    pub fn end(self, runtime: Runtime) {
        self.begin();
        self.step("the tasks of the runtime");
        let begun = std::time::Instant::now();
        runtime.shutdown_timeout(REST);
        if begun.elapsed() >= REST {
            tracing::warn!("some tasks did not end within {} s; the process ends without them", REST.as_secs());
        }
    }
}

impl Limit {
    fn give_up(&self, longest: Duration) -> ! {
        let step = *self.step.lock().unwrap_or_else(PoisonError::into_inner);
        let say = move || {
            tracing::error!(
                waited_for = step,
                "stopping took longer than {} s, so the process ends now; what was acknowledged is durable",
                longest.as_secs()
            );
        };
        if let Ok(said) = std::thread::Builder::new().spawn(say) {
            let until = std::time::Instant::now() + LAST_LINE;
            while !said.is_finished() && std::time::Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        std::process::exit(1);
    }
}
