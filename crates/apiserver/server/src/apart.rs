//! Long work is done apart from the threads that serve everybody: on a few threads of its own, in turns between
//! workspaces.
//!
//! A thread that answers requests works on one of them until it has to wait. What may take longer than a few
//! milliseconds (a large body, a small patch of a large object, a large schema that is used for the first time, rules
//! that take long) would keep all others waiting. Such a request has a thread of its own for as long as it takes; there
//! are as many as processors, and the system shares the processors between them and the others. Small requests stay
//! where they are: handing over costs more than they do.

use std::{
    cell::Cell,
    collections::HashMap,
    future::Future,
    hash::{BuildHasher, RandomState},
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use cel::{COST_OF_ALL, Failure};
use futures::future::BoxFuture;
use request::Verb;
use schema::field::FieldErrors;
use schema::status::Result;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::{
    Server,
    call::Call,
    negotiate::{Format, Shape},
    respond,
};

/// Bodies and objects of more bytes than this are worked on apart.
pub const LARGE: usize = 64 << 10;
/// Work of this weight is done while no other is: it takes much memory.
pub const ALONE: usize = usize::MAX;
/// What work of this weight has freed is given back to the system at once.
const TRIMMED: usize = 512 << 10;
/// One turn of a request that takes longer than this has the next ones of its kind done apart.
const LONG: Duration = Duration::from_millis(20);
/// If those take less than this, they are done in place again.
const SHORT: Duration = Duration::from_millis(4);
/// How long it is remembered that a kind of request takes long.
const REMEMBERED: Duration = Duration::from_secs(30);
/// At most this many kinds of requests are remembered.
const MOST: usize = 1_000;

/// Kinds of requests that took long lately, whatever the reason.
#[derive(Default)]
pub struct Slow {
    count: AtomicUsize,
    until: Mutex<HashMap<u64, Instant>>,
    hasher: RandomState,
}

impl Slow {
    fn key(&self, call: &Call) -> u64 {
        self.hasher.hash_one((&call.cluster, &call.kind.collection))
    }

    fn is_known(&self, call: &Call) -> bool {
        if self.count.load(Relaxed) == 0 {
            return false;
        }
        let now = Instant::now();
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.retain(|_, until| *until > now);
        self.count.store(until.len(), Relaxed);
        until.contains_key(&self.key(call))
    }

    fn note(&self, key: u64) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if until.len() < MOST {
            until.insert(key, Instant::now() + REMEMBERED);
        }
        self.count.store(until.len(), Relaxed);
    }

    fn forget(&self, key: u64) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.remove(&key);
        self.count.store(until.len(), Relaxed);
    }

    /// Runs a request in place, and notes if one of its turns took long.
    pub async fn watch<F: Future>(&self, call: &Call, work: F) -> F::Output {
        let (output, longest) = Timed { work: std::pin::pin!(work), longest: Duration::ZERO }.await;
        if longest > LONG {
            self.note(self.key(call));
        }
        output
    }
}

/// A future and the longest of its turns.
struct Timed<'a, F> {
    work: Pin<&'a mut F>,
    longest: Duration,
}

impl<F: Future> Future for Timed<'_, F> {
    type Output = (F::Output, Duration);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let begun = Instant::now();
        let polled = self.work.as_mut().poll(cx);
        self.longest = self.longest.max(begun.elapsed());
        polled.map(|output| (output, self.longest))
    }
}

/// How many bytes of long work a request is, or none if it is done in place.
pub fn weight(call: &Call, verb: Verb) -> Option<usize> {
    let body = call.body.len();
    if body > LARGE {
        // A schema is compiled besides being read.
        return Some(if call.kind.is_definition() { ALONE } else { body });
    }
    if let Some(version) = call.kind.custom.as_ref().and_then(|custom| custom.version())
        && !version.is_at_hand()
    {
        return Some(version.source.len());
    }
    let stored = match verb {
        Verb::Update | Verb::Patch | Verb::Delete => true,
        // As it is stored it costs nothing to show.
        Verb::Get => {
            call.accept.format != Format::Json
                || call.accept.shape != Shape::Object
                || call.kind.is_converted()
                || respond::is_pretty(call)
        }
        _ => false,
    };
    if stored
        && !call.target.name.is_empty()
        && let Some(size) = call.get().map(|object| object.json.len()).filter(|size| *size > LARGE)
    {
        return Some(size);
    }
    let judged = !matches!(verb, Verb::Get | Verb::List | Verb::Watch);
    (judged && call.server.slow.is_known(call)).then_some(LARGE)
}

/// What CEL rules may cost on a serving thread: about a millisecond.
const CHEAP: u64 = 20_000;

/// Evaluates rules. Nearly all cost next to nothing; those that cost more are evaluated once more, as long work, with
/// all that they may cost.
pub fn costing(validate: impl Fn(u64) -> (FieldErrors, bool)) -> FieldErrors {
    match validate(CHEAP) {
        (errors, false) => errors,
        (_, true) => in_place(|| validate(COST_OF_ALL).0),
    }
}

/// The same for one expression, which may cost what is left of its budget.
pub fn evaluating<T>(
    budget: &mut u64,
    evaluate: impl Fn(&mut u64) -> std::result::Result<T, Failure>,
) -> std::result::Result<T, Failure> {
    let given = CHEAP.min(*budget);
    let mut left = given;
    match evaluate(&mut left) {
        Err(Failure::Cost) if *budget > given => in_place(|| evaluate(budget)),
        done => {
            *budget -= given - left;
            done
        }
    }
}

/// Does long work where it is needed: other tasks of this thread go on elsewhere meanwhile. As many are done at once as
/// there are processors.
fn in_place<T>(work: impl FnOnce() -> T) -> T {
    // What is part of long work already has its place.
    if Places::is_here() {
        return work();
    }
    let several = Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if !several {
        return work();
    }
    tokio::task::block_in_place(|| {
        let _place = Places::enter();
        work()
    })
}

/// Threads that do long work in place.
struct Places;

static BUSY: Mutex<usize> = Mutex::new(0);
static LEFT: Condvar = Condvar::new();

thread_local! {
    static HERE: Cell<bool> = const { Cell::new(false) };
}

impl Places {
    fn is_here() -> bool {
        HERE.get()
    }

    fn enter() -> Self {
        let most = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let busy = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
        let mut busy = LEFT.wait_while(busy, |busy| *busy >= most).unwrap_or_else(PoisonError::into_inner);
        *busy += 1;
        HERE.set(true);
        Self
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        HERE.set(false);
        *BUSY.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        LEFT.notify_one();
    }
}

impl Server {
    /// Does long work on a thread of its own, in its turn. It goes on if nobody waits for it any more.
    pub async fn apart<T: Send + 'static>(
        self: &Arc<Self>,
        workspace: &str,
        user: &str,
        bytes: usize,
        work: BoxFuture<'static, T>,
    ) -> Result<T> {
        let place = self.inflight.enter_apart(workspace, user, bytes).await?;
        let runtime = Handle::current();
        let done = tokio::task::spawn_blocking(move || {
            let output = runtime.block_on(work);
            if bytes >= TRIMMED {
                // Each thread has a heap of its own, and keeps what was freed in it.
                let _ = resident::let_go_of_peak();
            }
            drop(place);
            output
        });
        match done.await {
            Ok(output) => Ok(output),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(schema::status::Status::unavailable("the server is shutting down").retry_after(1)),
            },
        }
    }

    /// The same for a request. If it was quick after all, the next ones of its kind are done in place again.
    pub async fn apart_for<T: Send + 'static>(
        self: &Arc<Self>,
        call: Call,
        bytes: usize,
        work: impl FnOnce(Call) -> BoxFuture<'static, T> + Send + 'static,
    ) -> Result<T> {
        let (workspace, user) = (call.cluster.clone(), call.user.name.clone());
        let key = self.slow.key(&call);
        let server = self.clone();
        let work = Box::pin(async move {
            let begun = processor_time();
            let output = work(call).await;
            if let (Some(begun), Some(ended)) = (begun, processor_time())
                && ended.saturating_sub(begun) < SHORT
            {
                server.slow.forget(key);
            }
            output
        });
        self.apart(&workspace, &user, bytes, work).await
    }
}

/// The processor time of this thread, where the system tells it.
fn processor_time() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    told.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}
