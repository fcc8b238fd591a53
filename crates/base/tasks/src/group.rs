//! A group of tasks with a shutdown signal.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use backoff::Schedule;
use pin_project_lite::pin_project;
use tokio::{
    sync::{Notify, watch},
    task::{AbortHandle, JoinHandle},
};
use tracing::Instrument;

use crate::{
    Handle, Kind,
    kind::Running,
    short::{spawn_short, watched},
    supervise::{self, Outcome},
};

/// Tasks that belong together. A clone is a handle to the same group.
#[derive(Clone, Debug)]
pub struct Tasks(Arc<Group>);

/// A critical task has ended before the shutdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub task: &'static str,
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}, without which this process cannot go on, has ended: {}", self.task, self.reason)
    }
}

impl std::error::Error for Failure {}

#[derive(Debug)]
struct Group {
    stop: watch::Sender<bool>,
    members: Mutex<BTreeMap<u64, Member>>,
    last_member: AtomicU64,
    children: Mutex<Vec<Weak<Group>>>,
    family: Arc<Family>,
}

/// What a group shares with the groups within it.
#[derive(Debug)]
struct Family {
    failed: watch::Sender<Option<Failure>>,
    /// A task of some group has ended.
    ended: Notify,
}

#[derive(Debug)]
struct Member {
    name: &'static str,
    /// `None` until the task has been spawned.
    abort: Option<AbortHandle>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

impl Tasks {
    pub fn new() -> Self {
        let family = Family { failed: watch::Sender::new(None), ended: Notify::new() };
        Self(Arc::new(Group::new(Arc::new(family))))
    }

    /// A group that stops with a signal from elsewhere, or when the sender of the signal is gone. Needs a runtime of
    /// tokio around it, as all that starts tasks does.
    pub fn following(mut signal: watch::Receiver<bool>) -> Self {
        let tasks = Self::new();
        let group = Arc::downgrade(&tasks.0);
        spawn_short("shutdown-signal", async move {
            let _ = signal.wait_for(|stop| *stop).await;
            if let Some(group) = group.upgrade() {
                group.begin_stop();
            }
        });
        tasks
    }

    /// A group within this one. It can stop alone, and stops with this one at the latest.
    pub fn group(&self) -> Self {
        let child = Arc::new(Group::new(self.0.family.clone()));
        let mut children = self.0.children();
        children.retain(|child| child.strong_count() > 0);
        children.push(Arc::downgrade(&child));
        drop(children);
        // A stop that began before the child was listed has not reached it.
        if *self.0.stop.borrow() {
            child.begin_stop();
        }
        Self(child)
    }

    /// True as soon as the group is to stop.
    pub fn shutdown(&self) -> watch::Receiver<bool> {
        self.0.stop.subscribe()
    }

    pub fn is_stopping(&self) -> bool {
        *self.0.stop.borrow()
    }

    /// Starts a task that is made anew after a panic or an error, with a backoff between. It sees the shutdown
    /// itself. If it ends well it is not started again.
    pub fn spawn_restarting<Fut>(
        &self,
        kind: impl Into<&'static Kind>,
        schedule: Schedule,
        make: impl FnMut() -> Fut + Send + 'static,
    ) -> Handle
    where
        Fut: Future<Output: Outcome> + Send + 'static,
    {
        let (kind, stop) = (kind.into(), self.shutdown());
        self.spawn(kind, move |failures| supervise::restarting(kind, schedule, failures, stop, make))
    }

    /// The same for a task that does not look at the shutdown: it is dropped then, where it waits.
    pub fn spawn_until_shutdown<Fut>(
        &self,
        kind: impl Into<&'static Kind>,
        schedule: Schedule,
        mut make: impl FnMut() -> Fut + Send + 'static,
    ) -> Handle
    where
        Fut: Future<Output: Outcome> + Send + 'static,
    {
        let stop = self.shutdown();
        self.spawn_restarting(kind, schedule, move || until(stop.clone(), make()))
    }

    /// Starts a task that the process cannot do without. If it ends before the shutdown, however it ends,
    /// [`Tasks::failed`] returns: the program's main function waits for that and stops in order.
    pub fn spawn_critical<Fut>(&self, kind: impl Into<&'static Kind>, future: Fut) -> Handle
    where
        Fut: Future<Output: Outcome> + Send + 'static,
    {
        let (kind, stop, family) = (kind.into(), self.shutdown(), self.0.family.clone());
        let future = Box::pin(future);
        self.spawn(kind, move |_| async move {
            let reason = supervise::run(kind, || future).await;
            if !*stop.borrow() {
                let failure = Failure { task: kind.name(), reason: reason.unwrap_or_else(|| "it returned".to_owned()) };
                tracing::error!(task = failure.task, reason = failure.reason, "a critical task has ended");
                family.failed.send_if_modified(|first| first.is_none().then(|| *first = Some(failure)).is_some());
            }
        })
    }

    /// Starts a task that runs once and is waited for at shutdown. A panic is logged and counted, and the handle
    /// tells it.
    pub fn spawn_once<Fut>(&self, kind: impl Into<&'static Kind>, future: Fut) -> JoinHandle<Fut::Output>
    where
        Fut: Future<Output: Send> + Send + 'static,
    {
        let kind = kind.into();
        let membership = self.0.enter(kind.name());
        let number = membership.number;
        let span = tracing::info_span!("task", name = kind.name());
        let task = tokio::spawn(Joined { future: watched(kind, future.instrument(span)), membership });
        self.0.set_abort(number, task.abort_handle());
        task
    }

    /// Runs a future until the group is to stop. `None` if that came first.
    pub fn until_shutdown<Fut: Future>(&self, future: Fut) -> impl Future<Output = Option<Fut::Output>> + use<Fut> {
        until(self.shutdown(), future)
    }

    /// Returns when a critical task of this group, or of a group around or within it, has failed.
    pub async fn failed(&self) -> Failure {
        let mut failed = self.0.family.failed.subscribe();
        let found = failed.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        match found {
            Some(failure) => failure,
            // The sender lives for as long as this group does.
            None => std::future::pending().await,
        }
    }

    /// Gives the signal without waiting.
    pub fn begin_stop(&self) {
        self.0.begin_stop();
    }

    /// Gives the signal and waits for all tasks of this group and of the groups within it, at most for `limit`. Tasks
    /// that have not ended by then are logged and aborted. Their names are returned.
    pub async fn stop(&self, limit: Duration) -> Vec<&'static str> {
        self.0.begin_stop();
        let all_ended = async {
            loop {
                let mut ended = std::pin::pin!(self.0.family.ended.notified());
                ended.as_mut().enable();
                if self.0.running().is_empty() {
                    return;
                }
                ended.await;
            }
        };
        if tokio::time::timeout(limit, all_ended).await.is_ok() {
            return Vec::new();
        }
        let left: Vec<&'static str> = self.0.running().into_iter().collect();
        if !left.is_empty() {
            let seconds = limit.as_secs_f32();
            tracing::warn!(tasks = left.join(", "), "some tasks did not end within {seconds} s of the shutdown");
            self.0.abort_all();
        }
        left
    }

    /// The names of the tasks of this group and of the groups within it that have not ended.
    pub fn running(&self) -> Vec<&'static str> {
        self.0.running().into_iter().collect()
    }

    fn spawn<Fut>(&self, kind: &'static Kind, work: impl FnOnce(Arc<AtomicU32>) -> Fut) -> Handle
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        let membership = self.0.enter(kind.name());
        let number = membership.number;
        let failures = Arc::new(AtomicU32::new(0));
        let span = tracing::info_span!("task", name = kind.name());
        let future = Counted { future: work(failures.clone()).instrument(span), running: kind.begin() };
        let abort = tokio::spawn(Joined { future, membership }).abort_handle();
        self.0.set_abort(number, abort.clone());
        Handle { kind, abort, failures }
    }
}

async fn until<Fut: Future>(mut stop: watch::Receiver<bool>, future: Fut) -> Option<Fut::Output> {
    tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => None,
        output = future => Some(output),
    }
}

impl Group {
    fn new(family: Arc<Family>) -> Self {
        let (members, children) = (Mutex::default(), Mutex::default());
        Self { stop: watch::Sender::new(false), members, last_member: AtomicU64::new(0), children, family }
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<u64, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn children(&self) -> MutexGuard<'_, Vec<Weak<Self>>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_stop(&self) {
        self.stop.send_replace(true);
        let children: Vec<_> = self.children().iter().filter_map(Weak::upgrade).collect();
        children.iter().for_each(|child| child.begin_stop());
    }

    fn enter(self: &Arc<Self>, name: &'static str) -> Membership {
        let number = self.last_member.fetch_add(1, Relaxed);
        self.members().insert(number, Member { name, abort: None });
        Membership { group: self.clone(), number }
    }

    fn set_abort(&self, number: u64, abort: AbortHandle) {
        // A task that has ended already is no member any more.
        if let Some(member) = self.members().get_mut(&number) {
            member.abort = Some(abort);
        }
    }

    fn running(&self) -> BTreeSet<&'static str> {
        let mut names: BTreeSet<&'static str> = self.members().values().map(|member| member.name).collect();
        let children: Vec<_> = self.children().iter().filter_map(Weak::upgrade).collect();
        children.iter().for_each(|child| names.extend(child.running()));
        names
    }

    fn abort_all(&self) {
        self.members().values().filter_map(|member| member.abort.as_ref()).for_each(AbortHandle::abort);
        let children: Vec<_> = self.children().iter().filter_map(Weak::upgrade).collect();
        children.iter().for_each(|child| child.abort_all());
    }
}

/// A task's place in its group, until it is dropped.
#[derive(Debug)]
struct Membership {
    group: Arc<Group>,
    number: u64,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.group.members().remove(&self.number);
        self.group.family.ended.notify_waiters();
    }
}

pin_project! {
    // The future is dropped before its membership ends.
    struct Joined<F> {
        #[pin]
        future: F,
        membership: Membership,
    }
}

impl<F: Future> Future for Joined<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(cx)
    }
}

pin_project! {
    // A future whose panics are caught within it.
    struct Counted<F> {
        #[pin]
        future: F,
        running: Running,
    }
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(cx)
    }
}

#[cfg(test)]
mod tests;
