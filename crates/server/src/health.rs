//! `/livez`, `/readyz` and `/healthz`: is the server alive, can it do its work?
//!
//! `/readyz` fails while the store cannot write or be reached, and while the server stops. `/livez` fails only for what a restart
//! mends: a full disk or an etcd that is away is no reason to end the process. `/healthz` is `/readyz` without the shutdown.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use http::Response;
use store::{Error, Store};
use tokio::sync::Mutex;

use crate::{Server, body::Body, request::Query, respond};

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

/// What the store said last.
#[derive(Default)]
pub struct Health {
    store: Mutex<Option<(Instant, Trouble)>>,
}

/// Why the store cannot do its work, if so.
#[derive(Clone, Debug, Default)]
struct Trouble {
    why: Option<String>,
    /// The process has to be started anew.
    is_dead: bool,
}

/// One named check: why it fails, if it does.
struct Check {
    name: &'static str,
    why: Option<String>,
}

// === impl Health ===

impl Health {
    async fn store(&self, store: &dyn Store) -> Trouble {
        let mut last = self.store.lock().await;
        if let Some((at, trouble)) = &*last
            && at.elapsed() < FRESH
        {
            return trouble.clone();
        }
        let trouble = match tokio::time::timeout(LIMIT, store.check()).await {
            Ok(Ok(())) => Trouble::default(),
            Ok(Err(error)) => Trouble { why: Some(error.to_string()), is_dead: matches!(error, Error::Closed) },
            Err(_) => Trouble { why: Some(format!("no answer within {} seconds", LIMIT.as_secs())), is_dead: false },
        };
        *last = Some((Instant::now(), trouble.clone()));
        trouble
    }
}

/// Answers `/readyz` and its siblings, and single checks of them such as `/readyz/store`. `None`: there is no such check.
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
    // Upstream's name for what lies below.
    let check = check.map(|check| if check == "etcd" { "store" } else { check });
    if check == Some("ping") {
        // It shall answer even if nothing else does.
        return Some(text(200, "ok".into()));
    }
    let store = &**server.cache.store();
    let trouble = match kind {
        // It waits for nobody: a store that is busy or stuck is no reason to end the process.
        Kind::Live => {
            let why = store.died().now_or_never();
            Trouble { is_dead: why.is_some(), why }
        }
        Kind::Ready | Kind::Health => server.health.store(store).await,
    };
    let stopping = *server.shutdown.borrow();
    let checks = checks(kind, trouble, stopping);
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

fn checks(kind: Kind, trouble: Trouble, stopping: bool) -> Vec<Check> {
    let store = match kind {
        // The store closes when the server stops.
        Kind::Live => trouble.why.filter(|_| trouble.is_dead && !stopping),
        Kind::Ready | Kind::Health => trouble.why,
    };
    let mut checks = vec![Check { name: "ping", why: None }, Check { name: "store", why: store }];
    if kind != Kind::Health {
        let why = stopping && kind == Kind::Ready;
        checks.push(Check { name: "shutdown", why: why.then(|| "the server is shutting down".to_owned()) });
    }
    checks
}

fn all(name: &str, checks: &[Check], query: &Query) -> Response<Body> {
    let excluded: Vec<&str> = query.all("exclude").map(|name| if name == "etcd" { "store" } else { name }).collect();
    let mut lines = String::new();
    let mut ok = true;
    for Check { name, why } in checks {
        let line = match why {
            _ if excluded.contains(name) => format!("[+]{name} excluded: ok\n"),
            None => format!("[+]{name} ok\n"),
            Some(why) => {
                ok = false;
                format!("[-]{name} failed: {why}\n")
            }
        };
        lines.push_str(&line);
    }
    let unknown: Vec<String> = excluded
        .iter()
        .filter(|name| !checks.iter().any(|check| check.name == **name))
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

    fn failing(kind: Kind, why: Option<&str>, is_dead: bool, stopping: bool) -> Vec<&'static str> {
        let trouble = Trouble { why: why.map(str::to_owned), is_dead };
        checks(kind, trouble, stopping)
            .into_iter()
            .filter(|check| check.why.is_some())
            .map(|check| check.name)
            .collect()
    }

    #[test]
    fn only_what_a_restart_mends_is_a_matter_of_life() {
        for kind in [Kind::Live, Kind::Ready, Kind::Health] {
            assert!(failing(kind, None, false, false).is_empty());
        }
        assert!(failing(Kind::Live, Some("full"), false, false).is_empty());
        assert_eq!(failing(Kind::Ready, Some("full"), false, false), ["store"]);
        assert_eq!(failing(Kind::Health, Some("full"), false, false), ["store"]);
        assert_eq!(failing(Kind::Live, Some("closed"), true, false), ["store"]);
        assert!(failing(Kind::Live, Some("closed"), true, true).is_empty());
        assert_eq!(failing(Kind::Ready, None, false, true), ["shutdown"]);
    }
}
