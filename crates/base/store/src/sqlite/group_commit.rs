//! Group commit: one sync for every commit that was queued meanwhile.
//!
//! The writer thread commits what is queued. Handing a commit over to it and the answer back wakes two sleeping
//! processors, which on a virtual machine can take as long as the sync itself. So a commit that finds the writer free
//! and nobody queued is written by its own thread, as long as syncs are fast ([`Committer::try_inline`]).

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

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::oneshot,
};

use super::{
    Shared,
    writer::{Task, UPKEEP_INTERVAL, Writer},
};
use crate::{Error, Outcome, Revision};

pub(super) enum Job {
    /// The ops name each key once, and are sorted unless each takes a revision of its own.
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
const MAX_GROUP_COMMITS: usize = 1024;
/// How long a group waits for the callers of the last group, which are about to commit again. A sync takes longer than
/// this, and one sync for all is better than one for the first and one for the rest.
const GATHER_TIMEOUT: Duration = Duration::from_micros(200);
/// A commit is written inline only if the last write took no longer than this.
const MAX_INLINE_WRITE: Duration = Duration::from_millis(1);

/// Gives commits to the writer, inline or by its thread.
pub(super) struct Committer {
    /// None once the store is closed.
    writer: Mutex<Option<Writer>>,
    /// An estimate of the number of callers: those of the last group, and those that came meanwhile.
    callers: AtomicUsize,
    /// Jobs that were sent to the thread, which has not received them yet.
    queued: AtomicUsize,
}

/// A panic has interrupted a write.
struct Interrupted;

pub(super) struct WriterThread {
    committer: Arc<Committer>,
    jobs: Receiver<Job>,
    /// Jobs that came while the last group was being synced.
    waiting: VecDeque<Job>,
}

/// The jobs that are done together.
#[derive(Default)]
struct Group {
    commits: Vec<(Task, Reply<Outcome>)>,
    compacts: Vec<(Revision, Reply<()>)>,
    scrubs: Vec<Reply<()>>,
    checks: Vec<Reply<()>>,
    /// No job came in time.
    is_idle: bool,
    /// The store is to be closed after this group.
    is_last: bool,
}

pub(super) fn start(
    writer: Writer,
    jobs: Receiver<Job>,
    shared: Arc<Shared>,
) -> Result<(Arc<Committer>, JoinHandle<()>), Error> {
    let committer = Arc::new(Committer {
        writer: Mutex::new(Some(writer)),
        callers: AtomicUsize::new(1),
        queued: AtomicUsize::new(0),
    });
    let thread = WriterThread { committer: Arc::clone(&committer), jobs, waiting: VecDeque::new() };
    let handle = std::thread::Builder::new()
        .name("store-writer".into())
        .spawn(move || {
            // The state of a writer that has panicked is not known: other threads then see a closed store.
            let run = std::panic::catch_unwind(AssertUnwindSafe(|| thread.run()));
            if !matches!(run, Ok(Ok(()))) {
                shared.die();
            }
        })
        .map_err(|error| Error::Unavailable(format!("cannot start the store's writer: {error}")))?;
    Ok((committer, handle))
}

/// Runs work that waits for the disk. If the caller is a worker of a runtime with several, the worker's other tasks go
/// on elsewhere meanwhile: a sync that takes long after all delays nobody else.
fn blocking<T>(work: impl FnOnce() -> T) -> T {
    let several = Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if several { tokio::task::block_in_place(work) } else { work() }
}

// === impl Committer ===

impl Committer {
    /// Writes at once if nobody else is about to and a write is fast. Otherwise the task is returned.
    pub(super) fn try_inline(&self, task: Task) -> Result<Result<Outcome, Error>, Task> {
        if self.callers.load(Ordering::Relaxed) > 1 || self.queued.load(Ordering::Relaxed) > 0 {
            return Err(task);
        }
        let mut held = match self.writer.try_lock() {
            Ok(held) => held,
            // A panic has interrupted a write. The thread sees that, too, and ends the store.
            Err(TryLockError::Poisoned(_)) => return Ok(Err(Error::Closed)),
            Err(TryLockError::WouldBlock) => return Err(task),
        };
        match held.as_mut().filter(|writer| writer.is_fast(MAX_INLINE_WRITE, &task)) {
            Some(writer) => Ok(blocking(|| writer.write_one(&task))),
            None => Err(task),
        }
    }

    /// To be called before a job is sent to the thread.
    pub(super) fn job_queued(&self) {
        self.queued.fetch_add(1, Ordering::Relaxed);
    }

    /// Fails if a panic has interrupted a write, after which the writer's state is not known.
    fn lock(&self) -> Result<MutexGuard<'_, Option<Writer>>, Interrupted> {
        self.writer.lock().map_err(|_| Interrupted)
    }

    #[cfg(test)]
    pub(super) fn writer(&self) -> MutexGuard<'_, Option<Writer>> {
        self.writer.lock().unwrap()
    }
}

// === impl WriterThread ===

impl WriterThread {
    fn run(mut self) -> Result<(), Interrupted> {
        loop {
            let group = self.gather()?;
            let is_last = group.is_last;
            let committer = Arc::clone(&self.committer);
            let mut held = committer.lock()?;
            let Some(writer) = held.as_mut() else { break };
            self.serve(writer, group);
            if is_last {
                break;
            }
        }
        if let Some(writer) = self.committer.lock()?.take() {
            writer.finish();
        }
        Ok(())
    }

    /// Waits for a job, and takes those that come soon after it.
    fn gather(&mut self) -> Result<Group, Interrupted> {
        let mut group = Group::default();
        let timeout = self.committer.lock()?.as_ref().map_or(UPKEEP_INTERVAL, Writer::idle_timeout);
        let mut next = match self.waiting.pop_front() {
            Some(job) => Ok(job),
            None => self.receive(timeout),
        };
        group.is_idle = next.is_err();
        let until = Instant::now() + GATHER_TIMEOUT;
        loop {
            match next {
                Ok(Job::Commit(commit, reply)) => group.commits.push((commit, reply)),
                Ok(Job::Compact(revision, reply)) => group.compacts.push((revision, reply)),
                Ok(Job::Scrub(reply)) => group.scrubs.push(reply),
                Ok(Job::Check(reply)) => group.checks.push(reply),
                #[cfg(test)]
                Ok(Job::Panic) => panic!("as asked"),
                // Also when every sender is gone.
                Ok(Job::Stop) | Err(RecvTimeoutError::Disconnected) => group.is_last = true,
                Err(RecvTimeoutError::Timeout) => break,
            }
            if group.commits.len() >= MAX_GROUP_COMMITS || group.is_last {
                break;
            }
            next = self.receive_more(group.commits.len(), until);
        }
        Ok(group)
    }

    fn serve(&mut self, writer: &mut Writer, group: Group) {
        self.commit(writer, group.commits);
        for (revision, reply) in group.compacts {
            // Nobody waits any more if sending fails.
            let _ = reply.send(writer.compact(revision));
        }
        if !group.scrubs.is_empty() {
            let scrubbed = writer.scrub();
            for reply in group.scrubs {
                let _ = reply.send(scrubbed.clone());
            }
        }
        if !group.checks.is_empty() {
            let checked = writer.check();
            for reply in group.checks {
                let _ = reply.send(checked.clone());
            }
        }
        if group.is_idle {
            writer.idle();
        }
        writer.tend();
    }

    fn receive(&self, timeout: Duration) -> Result<Job, RecvTimeoutError> {
        let job = self.jobs.recv_timeout(timeout)?;
        self.job_received(&job);
        Ok(job)
    }

    fn job_received(&self, job: &Job) {
        if !matches!(job, Job::Stop) {
            self.committer.queued.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn receive_more(&mut self, gathered: usize, until: Instant) -> Result<Job, RecvTimeoutError> {
        if let Some(job) = self.waiting.pop_front() {
            return Ok(job);
        }
        let is_all = gathered >= self.committer.callers.load(Ordering::Relaxed);
        let left = if is_all { Duration::ZERO } else { until.saturating_duration_since(Instant::now()) };
        self.receive(left)
    }

    fn commit(&mut self, writer: &mut Writer, commits: Vec<(Task, Reply<Outcome>)>) {
        if commits.is_empty() {
            return;
        }
        match writer.write(commits.iter().map(|(task, _)| task)) {
            Ok(outcomes) => {
                // Jobs that are queued before the replies are sent come from other callers than those of this group.
                while let Ok(job) = self.jobs.try_recv() {
                    self.job_received(&job);
                    self.waiting.push_back(job);
                }
                self.committer.callers.store(commits.len() + self.waiting.len(), Ordering::Relaxed);
                for ((_, reply), outcome) in commits.into_iter().zip(outcomes) {
                    let _ = reply.send(Ok(outcome));
                }
            }
            // One commit may be too large for the room that is left; the others are not to fail for it.
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
