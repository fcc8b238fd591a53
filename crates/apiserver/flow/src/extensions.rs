//! Marks in the extensions of a response that say how it ends.

use std::sync::{Arc, Mutex, PoisonError};

/// In a response's extensions: it may take for ever, and nobody waits for its end to say that it has begun.
#[derive(Clone, Copy)]
pub struct LongRunning;

/// In a response's extensions: the connection is not HTTP any more. What is put in here is kept until it ends.
#[derive(Clone, Default)]
pub struct Upgraded(Arc<Mutex<Vec<Box<dyn Send>>>>);

impl Upgraded {
    pub fn keep(&self, kept: Box<dyn Send>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
    }
}

/// Whether an answer goes on when it is made.
pub fn goes_on(extensions: &http::Extensions) -> bool {
    extensions.get::<LongRunning>().is_some() || extensions.get::<Upgraded>().is_some()
}
