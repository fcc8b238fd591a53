//! `/livez`, `/readyz` and `/healthz`: is the server alive, can it do its work?
//!
//! `/readyz` fails while the store cannot write or be reached, and while the server stops. `/livez` fails only for what
//! a restart mends: a full disk or an etcd that is away is no reason to end the process. `/healthz` is `/readyz`
//! without the shutdown.
//!
//! Checks have upstream's names where they mean the same. `etcd` is the store, whichever it is, and `store` is our own
//! name for it. A `poststarthook/…` fails when the part of the server that it names has ended, as after a panic.

use std::{
    borrow::Cow,
    sync::PoisonError,
    time::{Duration, Instant},
};

use bytes::Bytes;
use cache::Cache;
use flow::body::Body;
use futures::FutureExt;
use http::Response;
use request::Query;
use store::{Error, Store};
use tokio::{sync::Mutex, task::AbortHandle};

use crate::{Server, respond};

/// How long an answer of the store is good.
const FRESH: Duration = Duration::from_secs(1);
/// How long the store may take to answer.
const LIMIT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Live,
    Ready,
    Health,
}

/// What the store said last, and what runs in the background.
#[derive(Default)]
pub struct Health {
    store: Mutex<Option<(Instant, Trouble)>>,
    parts: std::sync::Mutex<Vec<(&'static str, AbortHandle)>>,
}

/// Why the store cannot do its work, if so.
#[derive(Clone, Debug, Default)]
struct Trouble {
    why: Option<String>,
    /// The process has to be started anew.
    is_dead: bool,
    /// Why readers do not see what the store has, if so.
    behind: Option<String>,
}

/// One named check: why it fails, if it does.
struct Check {
    name: Cow<'static, str>,
    why: Option<String>,
    /// All checks together fail if this one does.
    counts: bool,
}

impl Check {
    fn new(name: impl Into<Cow<'static, str>>, why: Option<String>) -> Self {
        Self { name: name.into(), why, counts: true }
    }
}

/// What is checked besides the store.
struct Around {
    stopping: bool,
    /// Standard error, where the log goes, cannot be written.
    log: Option<String>,
    /// Parts of the server that run in the background, and whether they have ended.
    parts: Vec<(&'static str, bool)>,
    /// The local APIServices are there.
    registered: bool,
}

// === impl Health ===

impl Health {
    /// From now on it is checked that a part of the server goes on. Parts of one name are one.
    pub fn watch(&self, name: &'static str, task: AbortHandle) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).push((name, task));
    }

    fn parts(&self) -> Vec<(&'static str, bool)> {
        let all = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parts: Vec<(&'static str, bool)> = Vec::new();
        for (name, task) in all.iter() {
            match parts.iter_mut().find(|(known, _)| known == name) {
                Some((_, ended)) => *ended |= task.is_finished(),
                None => parts.push((*name, task.is_finished())),
            }
        }
        parts
    }

    async fn store(&self, store: &dyn Store, cache: &Cache) -> Trouble {
        let mut last = self.store.lock().await;
        if let Some((at, trouble)) = &*last
            && at.elapsed() < FRESH
        {
            return trouble.clone();
        }
        let trouble = match tokio::time::timeout(LIMIT, store.check()).await {
            Ok(Ok(())) => Trouble { behind: behind(store, cache).await, ..Trouble::default() },
            Ok(Err(error)) => {
                Trouble { why: Some(error.to_string()), is_dead: matches!(error, Error::Closed), behind: None }
            }
            Err(_) => {
                Trouble { why: Some(format!("no answer within {} seconds", LIMIT.as_secs())), ..Trouble::default() }
            }
        };
        *last = Some((Instant::now(), trouble.clone()));
        trouble
    }
}

/// Answers `/readyz` and its siblings, and single checks of them such as `/readyz/store`. `None`: there is no such
/// check.
pub async fn answer(server: &Server, path: &str, query: &Query) -> Option<Response<Body>> {
    let (name, check) = match path.trim_start_matches('/').split_once('/') {
        Some((name, check)) => (name, Some(check)),
        None => (path.trim_start_matches('/'), None),
    };
    let kind = match name {
        "livez" => Kind::Live,
        "readyz" => Kind::Ready,
        "healthz" => Kind::Health,
        _ => return None,
    };
    if check == Some("ping") {
        // It shall answer even if nothing else does.
        return Some(text(200, "ok".into()));
    }
    let store = &**server.cache.store();
    let trouble = match kind {
        // It waits for nobody: a store that is busy or stuck is no reason to end the process.
        Kind::Live => {
            let why = store.died().now_or_never();
            Trouble { is_dead: why.is_some(), why, behind: None }
        }
        Kind::Ready | Kind::Health => server.health.store(store, &server.cache).await,
    };
    let around = Around {
        stopping: *server.shutdown.borrow(),
        log: log(),
        parts: server.health.parts(),
        registered: server.aggregation.is_registered(),
    };
    let checks = checks(kind, trouble, around);
    Some(match check {
        None => all(name, &checks, query),
        Some(one) => {
            let found = checks.iter().find(|check| check.name == one)?;
            match &found.why {
                None => text(200, "ok".into()),
                Some(why) => text(500, format!("internal server error: {why}\n")),
            }
        }
    })
}

/// Why readers do not see what the store has: whoever reads waits for that, and would wait for long.
async fn behind(store: &dyn Store, cache: &Cache) -> Option<String> {
    let caught_up = async {
        let newest = store.revision().await?;
        cache.catch_up(newest).await
    };
    match tokio::time::timeout(LIMIT, caught_up).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!("what the store has was not read within {} seconds", LIMIT.as_secs())),
    }
}

/// Whether anybody can take what is logged. Asking does not wait: a terminal or pipe that is full for a moment is fine.
fn log() -> Option<String> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stderr = rustix::stdio::stderr();
    let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if let Err(error) = poll(&mut polled, Some(&at_once)) {
        return Some(error.to_string());
    }
    let broken = polled[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL);
    broken.then(|| "nobody reads standard error any more".to_owned())
}

fn checks(kind: Kind, trouble: Trouble, around: Around) -> Vec<Check> {
    let Around { stopping, log, parts, registered } = around;
    let store = match kind {
        // The store closes when the server stops.
        Kind::Live => trouble.why.filter(|_| trouble.is_dead && !stopping),
        Kind::Ready | Kind::Health => trouble.why,
    };
    let mut checks = vec![Check::new("ping", None)];
    checks.extend([Check::new("store", store.clone()), Check::new("etcd", store)]);
    // A log that nobody reads is lost and changes nothing else: it is told, and makes the server neither dead nor
    // unready.
    checks.push(Check { counts: kind == Kind::Health, ..Check::new("log", log) });
    if kind == Kind::Ready {
        checks.push(Check::new("informer-sync", trouble.behind));
    }
    for (name, ended) in parts {
        let why = (ended && !stopping).then(|| "it has ended; the log says why".to_owned());
        checks.push(Check::new(format!("poststarthook/start-{name}"), why));
    }
    if kind != Kind::Live {
        let why = (!registered).then(|| "the local APIServices are not all there yet".to_owned());
        // They only show what is served already: requests need not wait for them.
        checks.push(Check { counts: false, ..Check::new("autoregister-completion", why) });
    }
    if kind != Kind::Health {
        let why = stopping && kind == Kind::Ready;
        checks.push(Check::new("shutdown", why.then(|| "the server is shutting down".to_owned())));
    }
    checks
}

fn all(name: &str, checks: &[Check], query: &Query) -> Response<Body> {
    let mut excluded: Vec<&str> = query.all("exclude").collect();
    // Two names for one check.
    for (one, other) in [("etcd", "store"), ("store", "etcd")] {
        if excluded.contains(&one) && !excluded.contains(&other) {
            excluded.push(other);
        }
    }
    let mut lines = String::new();
    let mut ok = true;
    for Check { name, why, counts } in checks {
        let line = match why {
            _ if excluded.contains(&&**name) => format!("[+]{name} excluded: ok\n"),
            None => format!("[+]{name} ok\n"),
            Some(why) => {
                ok &= !counts;
                format!("[-]{name} failed: {why}\n")
            }
        };
        lines.push_str(&line);
    }
    let unknown: Vec<String> = excluded
        .iter()
        .filter(|name| !checks.iter().any(|check| *check.name == ***name))
        .map(|name| format!("{name:?}"))
        .collect();
    if !unknown.is_empty() {
        let all = unknown.join(",");
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {all}\n"));
    }
    match (ok, query.has("verbose")) {
        (true, false) => text(200, "ok".into()),
        (true, true) => text(200, format!("{lines}{name} check passed\n")),
        (false, _) => text(500, format!("{lines}{name} check failed\n")),
    }
}

fn text(code: u16, body: String) -> Response<Body> {
    respond::build(code, "text/plain; charset=utf-8", Bytes::from(body).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(stopping: bool) -> Around {
        Around { stopping, log: None, parts: vec![("garbage-collector-controller", false)], registered: true }
    }

    fn failing_of(kind: Kind, trouble: Trouble, around: Around) -> Vec<String> {
        let failing = checks(kind, trouble, around).into_iter().filter(|check| check.why.is_some() && check.counts);
        failing.map(|check| check.name.into_owned()).collect()
    }

    fn failing(kind: Kind, why: Option<&str>, is_dead: bool, stopping: bool) -> Vec<String> {
        let trouble = Trouble { why: why.map(str::to_owned), is_dead, behind: None };
        failing_of(kind, trouble, around(stopping))
    }

    #[test]
    fn each_check_fails_for_a_reason_of_its_own() {
        let behind = || Trouble { behind: Some("late".to_owned()), ..Trouble::default() };
        assert_eq!(failing_of(Kind::Ready, behind(), around(false)), ["informer-sync"]);
        assert!(failing_of(Kind::Live, behind(), around(false)).is_empty());
        let ended = || Around { parts: vec![("garbage-collector-controller", true)], ..around(false) };
        for kind in [Kind::Live, Kind::Ready, Kind::Health] {
            let failing = failing_of(kind, Trouble::default(), ended());
            assert_eq!(failing, ["poststarthook/start-garbage-collector-controller"], "a restart mends it");
        }
        assert!(failing_of(Kind::Live, Trouble::default(), Around { stopping: true, ..ended() }).is_empty());
        let early = || Around { registered: false, ..around(false) };
        assert!(failing_of(Kind::Ready, Trouble::default(), early()).is_empty(), "it is only told");
        assert!(failing_of(Kind::Live, Trouble::default(), early()).is_empty());
        let silent = || Around { log: Some("gone".to_owned()), ..around(false) };
        assert_eq!(failing_of(Kind::Health, Trouble::default(), silent()), ["log"]);
        assert!(failing_of(Kind::Ready, Trouble::default(), silent()).is_empty());
    }

    #[tokio::test]
    async fn a_part_that_ends_is_noticed() {
        let health = Health::default();
        health.watch("a", tokio::spawn(std::future::pending::<()>()).abort_handle());
        let ends = tokio::spawn(async {});
        health.watch("b", ends.abort_handle());
        ends.await.unwrap();
        health.watch("b", tokio::spawn(std::future::pending::<()>()).abort_handle());
        assert_eq!(health.parts(), [("a", false), ("b", true)]);
    }

    #[test]
    fn only_what_a_restart_mends_is_a_matter_of_life() {
        for kind in [Kind::Live, Kind::Ready, Kind::Health] {
            assert!(failing(kind, None, false, false).is_empty());
        }
        assert!(failing(Kind::Live, Some("full"), false, false).is_empty());
        assert_eq!(failing(Kind::Ready, Some("full"), false, false), ["store", "etcd"]);
        assert_eq!(failing(Kind::Health, Some("full"), false, false), ["store", "etcd"]);
        assert_eq!(failing(Kind::Live, Some("closed"), true, false), ["store", "etcd"]);
        assert!(failing(Kind::Live, Some("closed"), true, true).is_empty());
        assert_eq!(failing(Kind::Ready, None, false, true), ["shutdown"]);
    }
}
