//! What controllers of Kubernetes kinds are made of.
//!
//! - [`cache`]: one watch of each kind, shared by all controllers of the process.
//! - [`written`]: what a controller wrote and its caches do not show yet.
//! - [`owner`]: which objects belong to which, adoption and release.
//! - [`dependents`]: makes and deletes the Pods of an owner.
//! - [`events`]: the recorder of Events; [`note`] is an Event that a pure decision asks for.
//! - [`builder`]: connects caches, a work queue and a [`Reconciler`] to a [`Controller`].
//!
//! A controller is a [`Reconciler`]: it is given the key of an object and does what is needed by now. Which keys are
//! due, retries with backoff, concurrency and panics are the business of the crate `workqueue`.

pub mod batch;
pub mod builder;
pub mod cache;
pub mod dependents;
pub mod error;
pub mod events;
pub mod note;
pub mod owner;
pub mod written;

pub use builder::{Builder, Controller, Queue, Reconciler};
pub use error::{Error, code};

use tasks::Schedule;

/// How soon a task of this crate starts again after a panic.
const RESTART: Schedule = Schedule::new(std::time::Duration::from_millis(100), std::time::Duration::from_secs(60));
