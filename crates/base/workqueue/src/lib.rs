//! A work queue: keys that have to be reconciled, and the loop that reconciles them.
//!
//! - A key is in the queue at most once, and never worked on twice at the same time. A key that is added while it is
//!   worked on is worked on once more afterwards.
//! - A key that failed comes back after a wait that grows from failure to failure ([`backoff::Schedule`]). Adding it
//!   ends the wait. [`Queue::add_after`] adds a key later.
//! - Keys can have groups. Groups take turns, so that a group with many keys does not hold up the others. With
//!   [`Queue::one_per_group`] no other key of a group is given out until the one that is worked on is done.
//! - [`work`] reconciles with a limit of concurrency. Each reconcile has a span with the name of the queue and the
//!   key. A panic in a reconcile is logged, counted, and treated as a failed reconcile.
//! - [`Queue::numbers`] and [`numbers`] are what a metrics registry shows as `workqueue_*`.
//!
//! Nothing survives a restart of the process: fill the queue from the state at start.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use std::time::Duration;
//! use selvedge_workqueue::{Again, Queue, Schedule, work};
//!
//! const RETRY: Schedule = Schedule::new(Duration::from_millis(5), Duration::from_secs(60));
//!
//! let queue: Queue<String> = Queue::new("greeter", RETRY);
//! queue.add("a".to_owned());
//! queue.add("a".to_owned());
//! let (done, mut reconciled) = tokio::sync::mpsc::unbounded_channel();
//! let working = work(&queue, 2, |key: String| {
//!     let done = done.clone();
//!     async move { done.send(key).map(|()| Again::No).map_err(|_| "nobody waits") }
//! });
//! tokio::select! {
//!     () = working => {}
//!     key = reconciled.recv() => assert_eq!(key.as_deref(), Some("a")),
//! }
//! assert_eq!(queue.numbers().adds, 1, "the second add changed nothing");
//! # }
//! ```

mod numbers;
mod queue;
mod state;
mod work;

pub use backoff::Schedule;
pub use numbers::{DURATION_BOUNDS, Durations, Numbers, numbers};
pub use queue::{Queue, Work};
pub use state::Again;
pub use work::{Failure, work};
