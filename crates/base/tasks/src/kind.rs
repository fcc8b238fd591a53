//! Kinds of tasks and their counts.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

use crate::inject::Injected;

/// All kinds of this process that have run. Their number is bounded by the number of names in the code.
static KINDS: Mutex<BTreeMap<&'static str, Vec<&'static Kind>>> = Mutex::new(BTreeMap::new());

/// A kind of task: a name, and counts of all tasks with this name.
///
/// A name alone does where tasks are started now and then. Where they are started with every request, a static `Kind`
/// saves looking the name up:
///
/// ```
/// use selvedge_tasks::{Kind, spawn_short};
///
/// static REQUEST: Kind = Kind::new("request");
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// spawn_short(&REQUEST, async {}).await.ok();
/// # }
/// ```
#[derive(Debug)]
pub struct Kind {
    name: &'static str,
    is_known: AtomicBool,
    running: AtomicI64,
    panics: AtomicU64,
    restarts: AtomicU64,
    pub(crate) injected: Injected,
}

/// What is known of the tasks of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub name: &'static str,
    /// Tasks that run now or wait to be restarted.
    pub running: i64,
    pub panics: u64,
    pub restarts: u64,
}

/// The counts of all names that have been used in this process, by name.
pub fn counts() -> Vec<Counts> {
    let kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    let sum = |kinds: &[&'static Kind], count: fn(&Kind) -> u64| kinds.iter().map(|kind| count(kind)).sum();
    let of = |(name, kinds): (&&'static str, &Vec<&'static Kind>)| Counts {
        name,
        running: kinds.iter().map(|kind| kind.running.load(Relaxed)).sum(),
        panics: sum(kinds, |kind| kind.panics.load(Relaxed)),
        restarts: sum(kinds, |kind| kind.restarts.load(Relaxed)),
    };
    kinds.iter().map(of).collect()
}

impl From<&'static str> for &'static Kind {
    fn from(name: &'static str) -> Self {
        let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
        let named = kinds.entry(name).or_default();
        if let Some(kind) = named.first() {
            return kind;
        }
        let kind: &'static Kind = Box::leak(Box::new(Kind::new(name)));
        kind.is_known.store(true, Relaxed);
        kind.injected.arm(name);
        named.push(kind);
        kind
    }
}

impl Kind {
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            is_known: AtomicBool::new(false),
            running: AtomicI64::new(0),
            panics: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            injected: Injected::new(),
        }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn begin(&'static self) -> Running {
        if !self.is_known.load(Relaxed) {
            self.make_known();
        }
        self.running.fetch_add(1, Relaxed);
        Running(self)
    }

    pub(crate) fn count_panic(&self) {
        self.panics.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_restart(&self) {
        self.restarts.fetch_add(1, Relaxed);
    }

    #[cold]
    fn make_known(&'static self) {
        let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_known.swap(true, Relaxed) {
            self.injected.arm(self.name);
            kinds.entry(self.name).or_default().push(self);
        }
    }
}

/// One task that runs. It is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Running(pub &'static Kind);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Option<Counts> {
        counts().into_iter().find(|counts| counts.name == name)
    }

    #[test]
    fn a_name_and_a_static_kind_of_that_name_are_counted_together() {
        static TWICE: Kind = Kind::new("kind-twice");
        assert_eq!(of("kind-twice"), None, "a kind that never ran is not shown");
        let by_name = <&'static Kind>::from("kind-twice");
        let (first, second) = (by_name.begin(), TWICE.begin());
        TWICE.count_panic();
        by_name.count_restart();
        assert_eq!(of("kind-twice"), Some(Counts { name: "kind-twice", running: 2, panics: 1, restarts: 1 }));
        drop((first, second));
        assert_eq!(of("kind-twice").unwrap().running, 0);
        assert!(std::ptr::eq(<&'static Kind>::from("kind-twice"), by_name));
    }
}
