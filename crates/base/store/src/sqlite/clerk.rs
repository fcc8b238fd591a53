//! Who writes, and when: one sync for all who came meanwhile.
//!
//! A thread writes for whoever waits. Handing a commit over to it and the answer back wakes two sleeping processors, which on a virtual
//! machine can take as long as the sync itself. So who comes alone writes by itself, as long as syncs are quick ([`Desk::alone`]).

use std::{
    collections::VecDeque,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, TryLockError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::{
    Shared,
    writer::{SAMPLE, Task, Writer},
};
use crate::{Error, Outcome, Revision};

pub(super) enum Job {
    /// The ops name each key once, and are sorted unless they are done apart.
    Commit(Task, Reply<Outcome>),
    Compact(Revision, Reply<()>),
    Scrub(Reply<()>),
    Check(Reply<()>),
    #[cfg(test)]
    Panic,
    Stop,
}

type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// A group that grows without end would keep its first callers waiting.
const MAX_GROUP: usize = 1024;
/// How long a group waits for those who were there last time and are about to come again. Syncing takes longer than this,
/// and one sync for all is better than one for the first and one for the rest.
const GATHER: Duration = Duration::from_micros(200);
/// Nobody is kept from other work by a sync that takes longer.
const QUICK: Duration = Duration::from_millis(1);

/// Whoever sits at it writes.
pub(super) struct Desk {
    /// None once the store is closed.
    writer: Mutex<Option<Writer>>,
    /// How many callers there seem to be: the last group's, and those who came meanwhile.
    crowd: AtomicUsize,
    /// Jobs that the thread was sent and has not taken.
    sent: AtomicUsize,
}

/// A write was broken off by a panic.
struct Broken;

/// How the thread ended.
enum Ended {
    InOrder,
    Broken,
}

/// The thread.
struct Clerk {
    desk: Arc<Desk>,
    jobs: Receiver<Job>,
    /// Came while the last group was being synced.
    waiting: VecDeque<Job>,
}

pub(super) fn start(
    writer: Writer,
    jobs: Receiver<Job>,
    shared: Arc<Shared>,
) -> Result<(Arc<Desk>, JoinHandle<()>), Error> {
    let desk =
        Arc::new(Desk { writer: Mutex::new(Some(writer)), crowd: AtomicUsize::new(1), sent: AtomicUsize::new(0) });
    let clerk = Clerk { desk: Arc::clone(&desk), jobs, waiting: VecDeque::new() };
    let thread = std::thread::Builder::new()
        .name("store-writer".into())
        .spawn(move || {
            // A thread that looks at the store through a panic sees that it is closed.
            let run = std::panic::catch_unwind(AssertUnwindSafe(|| clerk.run()));
            if !matches!(run, Ok(Ended::InOrder)) {
                shared.die();
            }
        })
        .map_err(|error| Error::Unavailable(format!("cannot start the store's writer: {error}")))?;
    Ok((desk, thread))
}

// === impl Desk ===

impl Desk {
    /// Writes at once if nobody else is about to and it takes no longer than handing it over. Otherwise the task comes back.
    pub(super) fn alone(&self, task: Task) -> Result<Result<Outcome, Error>, Task> {
        if self.crowd.load(Ordering::Relaxed) > 1 || self.sent.load(Ordering::Relaxed) > 0 {
            return Err(task);
        }
        let mut held = match self.writer.try_lock() {
            Ok(held) => held,
            // A panic broke off a write. The thread sees that, too, and ends the store.
            Err(TryLockError::Poisoned(_)) => return Ok(Err(Error::Closed)),
            Err(TryLockError::WouldBlock) => return Err(task),
        };
        match held.as_mut().filter(|writer| writer.takes_at_most(QUICK, &task)) {
            Some(writer) => Ok(writer.write_one(&task)),
            None => Err(task),
        }
    }

    /// To be called before a job is sent to the thread.
    pub(super) fn expect(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// The writer; an error if a panic has broken off a write, after which its state is not known.
    fn lock(&self) -> Result<MutexGuard<'_, Option<Writer>>, Broken> {
        self.writer.lock().map_err(|_| Broken)
    }

    #[cfg(test)]
    pub(super) fn writer(&self) -> MutexGuard<'_, Option<Writer>> {
        self.writer.lock().unwrap()
    }
}

// === impl Clerk ===

impl Clerk {
    fn run(self) -> Ended {
        match self.serve() {
            Ok(()) => Ended::InOrder,
            Err(Broken) => Ended::Broken,
        }
    }

    fn serve(mut self) -> Result<(), Broken> {
        let mut stop = false;
        while !stop {
            let mut commits = Vec::new();
            let mut compacts = Vec::new();
            let mut scrubs = Vec::new();
            let mut checks = Vec::new();
            let wait = self.desk.lock()?.as_ref().map_or(SAMPLE, Writer::wait);
            let mut next = match self.waiting.pop_front() {
                Some(job) => Ok(job),
                None => self.receive(wait),
            };
            let idle = next.is_err();
            let until = Instant::now() + GATHER;
            loop {
                match next {
                    Ok(Job::Commit(commit, reply)) => commits.push((commit, reply)),
                    Ok(Job::Compact(revision, reply)) => compacts.push((revision, reply)),
                    Ok(Job::Scrub(reply)) => scrubs.push(reply),
                    Ok(Job::Check(reply)) => checks.push(reply),
                    #[cfg(test)]
                    Ok(Job::Panic) => panic!("as asked"),
                    // Also when every sender is gone.
                    Ok(Job::Stop) | Err(RecvTimeoutError::Disconnected) => stop = true,
                    Err(RecvTimeoutError::Timeout) => break,
                }
                if commits.len() >= MAX_GROUP || stop {
                    break;
                }
                next = self.gather(commits.len(), until);
            }
            let desk = Arc::clone(&self.desk);
            let mut held = desk.lock()?;
            let Some(writer) = held.as_mut() else { break };
            self.commit(writer, commits);
            for (revision, reply) in compacts {
                // Nobody waits any more if this fails.
                let _ = reply.send(writer.compact(revision));
            }
            if !scrubs.is_empty() {
                let scrubbed = writer.scrub();
                for reply in scrubs {
                    let _ = reply.send(scrubbed.clone());
                }
            }
            if !checks.is_empty() {
                let checked = writer.check();
                for reply in checks {
                    let _ = reply.send(checked.clone());
                }
            }
            if idle {
                writer.idle();
            }
            writer.tend();
        }
        if let Some(writer) = self.desk.lock()?.take() {
            writer.finish();
        }
        Ok(())
    }

    fn receive(&self, wait: Duration) -> Result<Job, RecvTimeoutError> {
        let job = self.jobs.recv_timeout(wait)?;
        self.taken(&job);
        Ok(job)
    }

    fn taken(&self, job: &Job) {
        if !matches!(job, Job::Stop) {
            self.desk.sent.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn gather(&mut self, gathered: usize, until: Instant) -> Result<Job, RecvTimeoutError> {
        if let Some(job) = self.waiting.pop_front() {
            return Ok(job);
        }
        let is_all = gathered >= self.desk.crowd.load(Ordering::Relaxed);
        let left = if is_all { Duration::ZERO } else { until.saturating_duration_since(Instant::now()) };
        self.receive(left)
    }

    fn commit(&mut self, writer: &mut Writer, commits: Vec<(Task, Reply<Outcome>)>) {
        if commits.is_empty() {
            return;
        }
        match writer.write(commits.iter().map(|(task, _)| task)) {
            Ok(outcomes) => {
                // Before the replies go out, those who wait now are others than those of this group.
                while let Ok(job) = self.jobs.try_recv() {
                    self.taken(&job);
                    self.waiting.push_back(job);
                }
                self.desk.crowd.store(commits.len() + self.waiting.len(), Ordering::Relaxed);
                for ((_, reply), outcome) in commits.into_iter().zip(outcomes) {
                    let _ = reply.send(Ok(outcome));
                }
            }
            // One of them may be too large for the room that is left; the others shall not suffer for it.
            Err(Error::Full(_)) if commits.len() > 1 => {
                for commit in commits {
                    self.commit(writer, vec![commit]);
                }
            }
            Err(error) => {
                tracing::error!(%error, commits = commits.len(), "a write to the store failed");
                for (_, reply) in commits {
                    let _ = reply.send(Err(error.clone()));
                }
            }
        }
    }
}
