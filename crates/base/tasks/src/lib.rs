//! Supervised tasks: every task has a name, a policy for its end, and counts. No panic ends anything unseen.
//!
//! Use this crate instead of `tokio::spawn`, `tokio::task::spawn_blocking` and `std::thread::spawn`:
//!
//! | a task that | is started with | a panic in it |
//! |---|---|---|
//! | runs for as long as the process | [`Tasks::spawn_restarting`] | starts it anew after a backoff |
//! | the process cannot do without, such as an accept loop | [`Tasks::spawn_critical`] | stops the process in order |
//! | does one thing and must be waited for at shutdown | [`Tasks::spawn_once`] | is told to its owner by the handle |
//! | serves one connection, request or message | [`spawn_short`] | is told to its owner by the handle |
//! | blocks | [`spawn_blocking`] or [`spawn_thread`] | is told to its owner by the handle |
//!
//! [`caught`] is for one step of a task, such as the work on one key, whose panic must not cost the others theirs.
//!
//! In each case the panic is logged with the task's name and message, and counted: see [`counts`]. Names are fixed
//! strings such as `"garbage-collector"` or `"link-session"`, one for each kind of task and not one for each task, as
//! they become values of a label. The identity of one task (a peer, an object) belongs into its span.
//!
//! [`Tasks`] is a group: it has a shutdown signal, and waits for its tasks with a time limit. Counts are the
//! process's.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! use std::time::Duration;
//! use selvedge_tasks::{Schedule, Tasks, spawn_short};
//!
//! const RESTART: Schedule = Schedule::new(Duration::from_millis(100), Duration::from_secs(60));
//!
//! let tasks = Tasks::new();
//! let stop = tasks.shutdown();
//! // The closure makes the future again after a panic.
//! tasks.spawn_restarting("collector", RESTART, move || {
//!     let mut stop = stop.clone();
//!     async move { while stop.changed().await.is_ok_and(|()| !*stop.borrow()) {} }
//! });
//! let sum = spawn_short("sum", async { 1 + 1 }).await;
//! assert_eq!(sum.ok(), Some(2));
//! assert!(tasks.stop(Duration::from_secs(5)).await.is_empty(), "all tasks have ended");
//! # }
//! ```

mod group;
mod inject;
mod kind;
mod panics;
mod short;
mod supervise;

pub use backoff::Schedule;
pub use group::{Failure, Tasks};
pub use inject::{PANIC_VARIABLE, inject_panic};
pub use kind::{Counts, Kind, counts};
pub use panics::record_locations;
pub use short::{
    Caught, Panicked, Watched, caught, spawn_blocking, spawn_short, spawn_thread, spawn_thread_with, watched,
};
pub use supervise::{Handle, Outcome};
