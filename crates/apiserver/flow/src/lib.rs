//! Limits: what one client may send, and how much work is taken on at once, shared fairly.
//!
//! A request takes a seat before its body is read and before anything is done for it. `fair` decides who gets one; here are
//! only the lock around it, the waiting, and the time.

pub mod body;
pub mod extensions;
mod fair;
#[cfg(test)]
mod laws;
mod level;

use std::{
    fmt::Write,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{AcqRel, Relaxed, Release},
        },
    },
    time::{Duration, Instant},
};

use schema::status::{Result, Status};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use fair::{Fair, Id, Request, Room};
pub use level::{ENOUGH, Level, level, level_of_path, width};

/// Each user of a group may have at most this many connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimit {
    pub group: &'static str,
    pub connections: usize,
}

#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a request body.
    pub body: usize,
    /// Seats for requests that only read, for those that write, and for the system's own. Watches leave theirs once they
    /// run. More than the processors can work on at once would only be queued where nobody sees to fairness.
    pub reads: usize,
    pub writes: usize,
    pub system: usize,
    /// How long a request may wait for a seat, and how many may.
    pub patience: Duration,
    pub waiting: usize,
    /// A request must have arrived whole within this time.
    pub arrival: Duration,
    pub connections: usize,
    /// Users of a group that may have only a few connections each.
    pub connections_of: Option<ConnectionLimit>,
    /// TLS sessions that can be resumed, about a kilobyte each.
    pub sessions: usize,
    /// Bytes of what happened that are remembered of each resource: whoever watches more slowly than that starts over.
    pub history: usize,
    /// How long a list can be continued that was begun, and the past be listed.
    pub history_age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self {
            body: 3 << 20,
            reads: 4 * cores.max(2),
            // Writes wait for the disk, and the more of them do, the more share a sync.
            writes: 16 * cores.max(2),
            system: 32 * cores.max(2),
            patience: Duration::from_secs(3),
            waiting: 2048,
            arrival: Duration::from_secs(30),
            connections: 20_000,
            connections_of: None,
            sessions: 16 << 10,
            history: 16 << 20,
            // Upstream compacts its store as often.
            history_age: Duration::from_secs(300),
        }
    }
}

/// How long a seat is lent while others wait for one.
const LENT: Duration = Duration::from_millis(300);
/// How often it is looked whether a seat has been lent for too long.
const LOOK: Duration = Duration::from_millis(50);

/// How long a place on the pool for long work is lent while others wait. Work alone takes less; what takes longer waits
/// for a webhook.
const LENT_APART: Duration = Duration::from_secs(2);
/// How long a request may wait for such a place.
const PATIENCE_APART: Duration = Duration::from_secs(30);
/// Bytes of bodies that are worked on at once on that pool. In memory a body takes many times its size.
const ROOM_APART: usize = 4 << 20;

/// How long a refusal is kept back.
const HELD_BACK: Duration = Duration::from_secs(1);

/// What a workspace may have in flight at most, if anything says so.
pub type LimitOf = Box<dyn Fn(&str) -> Option<usize> + Send + Sync>;

/// Requests that share a queue, and the priority level that they belong to.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    pub name: &'a str,
    pub level: &'a str,
    pub shares: u32,
    /// A request that finds no seat waits for one.
    pub waits: bool,
}

impl<'a> From<&'a str> for Flow<'a> {
    /// Of a user whose requests nobody has classified.
    fn from(user: &'a str) -> Self {
        Self { name: user, level: "", shares: 1, waits: true }
    }
}

impl<'a> From<&'a String> for Flow<'a> {
    fn from(user: &'a String) -> Self {
        user.as_str().into()
    }
}

pub struct Inflight {
    levels: [Arc<Seats>; 3],
    /// Places on the pool for long work.
    apart: Arc<Seats>,
    room_apart: Arc<Semaphore>,
    patience: Duration,
    limit_of: OnceLock<LimitOf>,
    /// Room for those who are refused, but not yet told so.
    held_back: Semaphore,
}

struct Seats {
    name: &'static str,
    fair: Mutex<Fair<oneshot::Sender<bool>>>,
    refused: AtomicU64,
    tended: AtomicBool,
}

/// A request's right to be worked on. Dropping it gives it back.
pub struct Seat {
    seats: Arc<Seats>,
    id: Id,
}

/// A place on the pool for long work. Dropping it gives it back.
pub struct Apart {
    _seat: Seat,
    _room: OwnedSemaphorePermit,
}

impl Inflight {
    pub fn new(limits: &Limits) -> Self {
        let seats = |name, seats: usize, lent: Duration| {
            let waiting_of_one = (limits.waiting / 2).max(1);
            let room = Room { seats, waiting: limits.waiting, waiting_of_one, lent };
            Arc::new(Seats {
                name,
                fair: Mutex::new(Fair::new(room)),
                refused: AtomicU64::new(0),
                tended: AtomicBool::new(false),
            })
        };
        Self {
            levels: [
                seats("read", limits.reads, LENT),
                seats("write", limits.writes, LENT),
                seats("system", limits.system, LENT),
            ],
            apart: seats("apart", std::thread::available_parallelism().map_or(2, std::num::NonZero::get), LENT_APART),
            room_apart: Arc::new(Semaphore::new(ROOM_APART)),
            patience: limits.patience,
            limit_of: OnceLock::new(),
            held_back: Semaphore::new(limits.waiting),
        }
    }

    /// Says where the limits of workspaces come from. Only the first to say so is heard.
    pub fn set_limit_of(&self, limit_of: LimitOf) {
        let _ = self.limit_of.set(limit_of);
    }

    /// A seat for one request: at once if there is room, else in its turn, else not at all.
    pub async fn enter<'a>(
        &self,
        level: Level,
        workspace: &str,
        flow: impl Into<Flow<'a>>,
        width: usize,
    ) -> Result<Seat> {
        let flow = flow.into();
        let seats = match level {
            Level::Read => &self.levels[0],
            Level::Write => &self.levels[1],
            Level::System => &self.levels[2],
        };
        let limit = self.limit_of.get().and_then(|limit_of| limit_of(workspace));
        let patience = if flow.waits { self.patience } else { Duration::ZERO };
        let Flow { name: user, level, shares, .. } = flow;
        self.sit(seats, Request { workspace, user, level, shares, width, limit }, patience).await
    }

    /// A place on the pool for long work, and room for so many bytes of it.
    pub async fn enter_apart(&self, workspace: &str, user: &str, bytes: usize) -> Result<Apart> {
        let request = Request { workspace, user, level: "", shares: 1, width: 1, limit: None };
        let seat = self.sit(&self.apart, request, PATIENCE_APART).await?;
        let bytes = u32::try_from(bytes.clamp(1, ROOM_APART)).unwrap_or(1);
        let room = tokio::time::timeout(PATIENCE_APART, self.room_apart.clone().acquire_many_owned(bytes)).await;
        match room {
            Ok(Ok(room)) => Ok(Apart { _seat: seat, _room: room }),
            _ => Err(self.apart.refuse(2)),
        }
    }

    async fn sit(&self, seats: &Arc<Seats>, request: Request<'_>, patience: Duration) -> Result<Seat> {
        let begun = Instant::now();
        let waiting = {
            let mut fair = seats.lock();
            if let Some(id) = fair.sit(request, begun) {
                return Ok(Seat { seats: seats.clone(), id });
            }
            if patience.is_zero() {
                return Err(seats.refuse(1));
            }
            let (wake, woken) = oneshot::channel();
            fair.wait(request, wake).map(|(id, gone)| (Seat { seats: seats.clone(), id }, gone, woken))
        };
        let (place, gone, woken) = match waiting {
            Ok(waiting) => waiting,
            Err(full) => {
                self.hold_back().await;
                return Err(seats.refuse(1 + full.ahead / 1000));
            }
        };
        if let Some(gone) = gone {
            let _ = gone.send(false);
        }
        seats.tend();
        let left = patience.saturating_sub(begun.elapsed());
        match tokio::time::timeout(left, woken).await {
            Ok(Ok(true)) => Ok(place),
            // It had to give way.
            Ok(_) => Err(seats.refuse(1)),
            Err(_) => Err(seats.refuse(2)),
        }
    }

    /// Refusing costs little, but clients that come again at once would make it cost everything: they are answered later.
    async fn hold_back(&self) {
        if let Ok(_place) = self.held_back.try_acquire() {
            tokio::time::sleep(HELD_BACK).await;
        }
    }

    /// Seats for reading and writing together.
    pub fn seats(&self) -> usize {
        self.levels[..2].iter().map(|seats| seats.lock().seats()).sum()
    }

    /// For `/metrics`, under upstream's names.
    pub fn text(&self, out: &mut String) {
        let mut family = |name: &str, kind: &str, help: &str, value: &dyn Fn(&Seats) -> u64| {
            let _ =
                writeln!(out, "# HELP apiserver_flowcontrol_{name} {help}\n# TYPE apiserver_flowcontrol_{name} {kind}");
            let total = if kind == "counter" { "_total" } else { "" };
            for seats in self.levels.iter().chain([&self.apart]) {
                let (level, value) = (seats.name, value(seats));
                let _ = writeln!(out, "apiserver_flowcontrol_{name}{total}{{priority_level=\"{level}\"}} {value}");
            }
        };
        let seated = |seats: &Seats| seats.lock().taken() as u64;
        let waiting = |seats: &Seats| seats.lock().waiting() as u64;
        let refused = |seats: &Seats| seats.refused.load(Relaxed);
        family("current_executing_seats", "gauge", "Seats taken by requests.", &seated);
        family("current_inqueue_requests", "gauge", "Requests that wait for a seat.", &waiting);
        family("rejected_requests", "counter", "Requests refused because there was no seat in time.", &refused);
    }
}

impl Seats {
    fn lock(&self) -> MutexGuard<'_, Fair<oneshot::Sender<bool>>> {
        self.fair.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, change: impl FnOnce(&mut Fair<oneshot::Sender<bool>>) -> Vec<oneshot::Sender<bool>>) {
        let woken = change(&mut self.lock());
        for wake in woken {
            // One that is gone gives its place back itself.
            let _ = wake.send(true);
        }
    }

    /// Sees to it that seats are given on in time, as long as somebody waits: one task for all who do.
    fn tend(self: &Arc<Self>) {
        if self.tended.swap(true, AcqRel) {
            return;
        }
        let seats = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                seats.wake(|fair| fair.reclaim(Instant::now()));
                if seats.lock().waiting() == 0 {
                    seats.tended.store(false, Release);
                    // Who came in between has found it tended.
                    if seats.lock().waiting() == 0 || seats.tended.swap(true, AcqRel) {
                        return;
                    }
                }
            }
        });
    }

    fn refuse(&self, seconds: usize) -> Status {
        self.refused.fetch_add(1, Relaxed);
        Status::too_many_requests("Too many requests, please try again later.", seconds.min(10) as u32)
    }
}

impl Seat {
    /// Resolves when the seat was lent for too long and had to be given on.
    pub async fn lost(&self) {
        loop {
            tokio::time::sleep(LENT).await;
            if !self.seats.lock().is_seated(self.id) {
                return;
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.wake(|fair| fair.leave(self.id, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(reads: usize, patience: Duration) -> Inflight {
        Inflight::new(&Limits { reads, waiting: 80, patience, ..Limits::default() })
    }

    #[tokio::test]
    async fn waits_its_turn_and_gives_up_in_time() {
        let inflight = Arc::new(small(1, Duration::from_millis(200)));
        let first = inflight.enter(Level::Read, "a", "u", 1).await.unwrap();
        assert!(inflight.enter(Level::Read, "b", "u", 1).await.is_ok(), "a spare seat");
        let refused = inflight.enter(Level::Read, "a", "u", 1).await.map(|_| ()).unwrap_err();
        assert_eq!((refused.code, refused.reason), (429, "TooManyRequests"));
        assert!(inflight.enter(Level::Write, "b", "u", 1).await.is_ok(), "another level is not concerned");
        let waiting = tokio::spawn({
            let inflight = inflight.clone();
            async move { inflight.enter(Level::Read, "a", "u", 1).await.map(|_| ()) }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(first);
        waiting.await.unwrap().unwrap();
        assert!(inflight.enter(Level::Read, "c", "u", 1).await.is_ok(), "everything was given back");
    }

    #[tokio::test]
    async fn one_that_goes_away_while_waiting_leaves_nothing_behind() {
        let inflight = small(1, Duration::from_secs(5));
        let first = inflight.enter(Level::Read, "a", "u", 1).await.unwrap();
        let gone = tokio::time::timeout(Duration::from_millis(10), inflight.enter(Level::Read, "a", "u", 1)).await;
        assert!(gone.is_err());
        assert_eq!(inflight.levels[0].lock().waiting(), 0);
        drop(first);
        assert_eq!(inflight.levels[0].lock().taken(), 0);
    }

    #[tokio::test]
    async fn limits_of_workspaces_are_asked_for() {
        let inflight = small(8, Duration::from_millis(50));
        inflight.set_limit_of(Box::new(|workspace| (workspace == "small").then_some(1)));
        let _first = inflight.enter(Level::Read, "small", "u", 1).await.unwrap();
        assert!(inflight.enter(Level::Read, "small", "u", 1).await.is_err());
        assert!(inflight.enter(Level::Read, "large", "u", 1).await.is_ok());
    }

    /// Not a benchmark, but it notices if taking a seat began to cost something: a request takes some 50 µs.
    #[tokio::test]
    async fn an_idle_server_pays_next_to_nothing() {
        let inflight = small(64, Duration::from_secs(1));
        // The quickest of many rounds, as other tests want the processor too.
        let mut each = Duration::MAX;
        for _ in 0..100 {
            let begun = Instant::now();
            for _ in 0..100 {
                drop(inflight.enter(Level::Read, "root:org:team", "system:serviceaccount:default:worker", 1).await);
            }
            each = each.min(begun.elapsed() / 100);
        }
        assert!(each < Duration::from_micros(20), "{each:?}, even without optimising");
    }
}
