//! A queue of keys: each waits at most once, and failed ones come back after a while. Workspaces take turns.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use cache::object::Object;
use tokio::sync::Notify;

#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Default)]
struct State {
    /// The workspaces that have something in the queue and are not worked on exclusively, in the order of their turns.
    turns: VecDeque<Box<str>>,
    /// The keys of each workspace. One that is worked on exclusively stands here too, perhaps without keys.
    workspaces: HashMap<Box<str>, VecDeque<Box<str>>>,
    busy: HashSet<Box<str>>,
    queued: HashSet<Box<str>>,
    /// Namespaces that are being emptied: `cluster/name`.
    waiting: HashSet<Box<str>>,
}

impl Queue {
    pub fn push(&self, key: &str) {
        if self.lock().push(key) {
            self.filled.notify_one();
        }
    }

    pub async fn pop(&self) -> Box<str> {
        loop {
            let filled = self.filled.notified();
            {
                let mut state = self.lock();
                if let Some((workspace, key)) = state.pop() {
                    state.turn_again(workspace);
                    return key;
                }
            }
            filled.await;
        }
    }

    /// The same for several workers: no other key of the workspace is given out until [`Queue::done`] is told.
    pub async fn pop_exclusive(&self) -> Box<str> {
        loop {
            let filled = self.filled.notified();
            {
                let mut state = self.lock();
                if let Some((workspace, key)) = state.pop() {
                    state.busy.insert(workspace);
                    if !state.turns.is_empty() {
                        self.filled.notify_one();
                    }
                    return key;
                }
            }
            filled.await;
        }
    }

    /// Work on a key is done, and the next one of its workspace may follow.
    pub fn done(&self, key: &str) {
        let mut state = self.lock();
        let workspace = workspace_of(key);
        if state.busy.remove(workspace) {
            state.turn_again(workspace.into());
            if !state.turns.is_empty() {
                self.filled.notify_one();
            }
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

fn workspace_of(key: &str) -> &str {
    key.split('/').next().unwrap_or_default()
}

impl State {
    /// Whether there is something new to take.
    fn push(&mut self, key: &str) -> bool {
        if !self.queued.insert(key.into()) {
            return false;
        }
        let workspace = workspace_of(key);
        if let Some(keys) = self.workspaces.get_mut(workspace) {
            keys.push_back(key.into());
            return true;
        }
        self.workspaces.insert(workspace.into(), VecDeque::from([key.into()]));
        self.turns.push_back(workspace.into());
        true
    }

    /// The next key and its workspace, which has to be put back with [`State::turn_again`].
    fn pop(&mut self) -> Option<(Box<str>, Box<str>)> {
        while let Some(workspace) = self.turns.pop_front() {
            if let Some(key) = self.workspaces.get_mut(&workspace).and_then(VecDeque::pop_front) {
                self.queued.remove(&key);
                return Some((workspace, key));
            }
        }
        None
    }

    /// The workspace stands at the end of the line, if it has more.
    fn turn_again(&mut self, workspace: Box<str>) {
        if self.workspaces.get(&workspace).is_some_and(VecDeque::is_empty) {
            self.workspaces.remove(&workspace);
        } else {
            self.turns.push_back(workspace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn workspaces_take_turns_and_a_key_waits_once() {
        let queue = Queue::default();
        for key in ["a/1", "a/2", "a/3", "a/1", "b/1", "c", "b/2"] {
            queue.push(key);
        }
        let mut order = Vec::new();
        for _ in 0..6 {
            order.push(queue.pop().await);
        }
        assert_eq!(order, ["a/1", "b/1", "c", "a/2", "b/2", "a/3"].map(Box::from));
        assert!(tokio::time::timeout(Duration::from_millis(20), queue.pop()).await.is_err());
        queue.push("a/1");
        assert_eq!(&*queue.pop().await, "a/1");
    }

    #[tokio::test]
    async fn an_exclusive_workspace_waits_for_its_own() {
        let queue = std::sync::Arc::new(Queue::default());
        ["a/1", "a/2", "b/1"].iter().for_each(|key| queue.push(key));
        assert_eq!(&*queue.pop_exclusive().await, "a/1");
        assert_eq!(&*queue.pop_exclusive().await, "b/1");
        let next = tokio::time::timeout(Duration::from_millis(20), queue.pop_exclusive()).await;
        assert!(next.is_err(), "a is being worked on");
        queue.push("b/2");
        queue.push("a/1");
        let waiting = tokio::spawn({
            let queue = queue.clone();
            async move { queue.pop_exclusive().await }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        queue.done("a/1");
        assert_eq!(&*waiting.await.unwrap(), "a/2");
        queue.done("b/1");
        assert_eq!(&*queue.pop_exclusive().await, "b/2");
        queue.done("a/2");
        assert_eq!(&*queue.pop_exclusive().await, "a/1");
    }
}
