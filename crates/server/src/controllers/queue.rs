//! A queue of keys: each waits at most once, and failed ones come back after a while.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::object::Object;

#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Default)]
struct State {
    order: VecDeque<Box<str>>,
    queued: HashSet<Box<str>>,
    /// Namespaces that are being emptied: `cluster/name`.
    waiting: HashSet<Box<str>>,
}

impl Queue {
    pub fn push(&self, key: &str) {
        let mut state = self.lock();
        if state.queued.insert(key.into()) {
            state.order.push_back(key.into());
            drop(state);
            self.filled.notify_one();
        }
    }

    pub async fn pop(&self) -> Box<str> {
        loop {
            let filled = self.filled.notified();
            {
                let mut state = self.lock();
                if let Some(key) = state.order.pop_front() {
                    state.queued.remove(&key);
                    return key;
                }
            }
            filled.await;
        }
    }

    /// Back into the queue later.
    pub fn again(self: &Queue, key: Box<str>, owner: impl Fn(&str) + Send + 'static, after: Duration) {
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            owner(&key);
        });
    }

    /// The namespace of this key wants to hear of deletions inside it.
    pub fn wait_inside(&self, key: &str, waits: bool) {
        let mut state = self.lock();
        if waits {
            state.waiting.insert(key.into());
        } else {
            state.waiting.remove(key);
        }
    }

    pub fn push_if_waiting(&self, object: &Object) {
        let namespace = object.namespace();
        if namespace.is_empty() {
            return;
        }
        let key = format!("{}//{namespace}", object.cluster());
        let waits = self.lock().waiting.contains(key.as_str());
        if waits {
            self.push(&key);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
