//! Empties a namespace of what remote API servers hold in it.
//!
//! A remote server may be slow or away, so it is asked by a task beside the controller of namespaces, which hears of
//! the end.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header::ACCEPT};
use identity::User;
use serde_json::Value;

use super::{Remote, check};
use crate::{Server, controllers::background};

const RETRY: Duration = Duration::from_secs(2);
const LARGEST: usize = 16 << 20;

/// What remote servers still hold of a namespace, and which of them could not be asked.
#[derive(Clone, Debug, Default)]
pub struct Elsewhere {
    /// Group versions that cannot be discovered.
    pub stale: Vec<String>,
    pub failures: Vec<String>,
    /// `flunders.wardle.example.com` and how many.
    pub left: Vec<(String, usize)>,
    pub finalizers: BTreeMap<String, usize>,
}

impl Elsewhere {
    pub fn is_empty(&self) -> bool {
        self.stale.is_empty() && self.failures.is_empty() && self.left.is_empty()
    }
}

/// The namespaces that are being emptied, by key. Nothing while a task is at work.
#[derive(Default)]
pub struct Cleanups(Mutex<HashMap<Box<str>, Option<Elsewhere>>>);

impl Cleanups {
    /// What was found when a namespace was emptied. Nothing if that is still going on: `tell` is called at its end.
    pub fn empty(
        &self,
        server: &Arc<Server>,
        cluster: &str,
        namespace: &str,
        tell: impl FnOnce() + Send + 'static,
    ) -> Option<Elsewhere> {
        let remotes = server.aggregation.remotes(cluster);
        let key: Box<str> = format!("{cluster}/{namespace}").into();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let after = match all.remove(&key) {
            _ if remotes.is_empty() => return Some(Elsewhere::default()),
            Some(None) => {
                all.insert(key, None);
                return None;
            }
            Some(Some(done)) if done.is_empty() => return Some(done),
            Some(Some(done)) => {
                all.insert(key.clone(), None);
                Some(done)
            }
            None => {
                all.insert(key.clone(), None);
                None
            }
        };
        drop(all);
        let (pause, namespace, host) = (after.is_some(), namespace.to_owned(), server.clone());
        background(server, async move {
            if pause {
                tokio::time::sleep(RETRY).await;
            }
            let found = sweep(&host, &remotes, &namespace).await;
            let cleanups = &host.aggregation.cleanups;
            cleanups.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Some(found));
            tell();
        });
        after
    }
}

async fn sweep(server: &Arc<Server>, remotes: &[Arc<Remote>], namespace: &str) -> Elsewhere {
    let mut found = Elsewhere::default();
    for remote in remotes.iter().filter(|remote| !remote.is_gone()) {
        let shown = remote.shown();
        if !shown.is_fresh {
            found.stale.push(remote.group_version());
            continue;
        }
        for resource in &shown.resources {
            let can = |verb: &str| resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|v| v == verb));
            if resource["scope"] == "Namespaced" && can("delete") {
                let name = resource["resource"].as_str().unwrap_or_default();
                if let Err(why) = clear(server, remote, namespace, name, can("deletecollection"), &mut found).await {
                    found.failures.push(why);
                }
            }
        }
    }
    found
}

/// Deletes the objects of one resource, and counts what is left.
async fn clear(
    server: &Arc<Server>,
    remote: &Remote,
    namespace: &str,
    resource: &str,
    at_once: bool,
    found: &mut Elsewhere,
) -> Result<(), String> {
    let path = format!("/apis/{}/namespaces/{namespace}/{resource}", remote.group_version());
    let items = list(server, remote, &path).await?;
    if items.is_empty() {
        return Ok(());
    }
    if at_once {
        ask(server, remote, Method::DELETE, &path).await?;
    } else {
        for item in &items {
            let name = item["metadata"]["name"].as_str().unwrap_or_default();
            ask(server, remote, Method::DELETE, &format!("{path}/{name}")).await?;
        }
    }
    let left = list(server, remote, &path).await?;
    for item in &left {
        for finalizer in item["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            *found.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
    }
    if !left.is_empty() {
        found.left.push((format!("{resource}.{}", remote.group), left.len()));
    }
    Ok(())
}

async fn list(server: &Arc<Server>, remote: &Remote, path: &str) -> Result<Vec<Value>, String> {
    match ask(server, remote, Method::GET, path).await? {
        Value::Null => Ok(Vec::new()),
        list => Ok(list["items"].as_array().cloned().unwrap_or_default()),
    }
}

/// The answer; null if there is nothing of that name.
async fn ask(server: &Arc<Server>, remote: &Remote, method: Method, path: &str) -> Result<Value, String> {
    let request = Request::builder().method(method.clone()).uri(path).body(());
    let (mut parts, ()) = request.map_err(|error| error.to_string())?.into_parts();
    parts.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let user = User::controller("namespace-controller");
    let (code, _, body) = check::ask(server, remote, &user, parts, Bytes::new(), LARGEST).await?;
    match code {
        200..300 => Ok(serde_json::from_slice(&body).unwrap_or_default()),
        404 | 405 => Ok(Value::Null),
        code => Err(format!("{method} {path}: the server answered {code}")),
    }
}
