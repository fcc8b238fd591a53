//! Follows the marked objects of one kind in the cluster.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use kinds::{ObjectKey, names};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    runtime::watcher::{self, Event as Seen, watcher},
};
use link::Key;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Event, found::Found, inward::Shown, remote::whole};

/// A watch begins anew after so long: a connection that died without a word is found out by then.
const LONGEST: u32 = 120;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A kind to follow.
pub struct Followed {
    pub collection: String,
    pub api_version: String,
    pub kind: String,
    /// This edge's own id.
    pub edge: Arc<str>,
}

/// Until nobody listens any more, or the cluster has no such kind for us.
pub async fn follow(client: Client, what: Followed, events: mpsc::Sender<Event>) {
    let (group, version) = what.api_version.split_once('/').unwrap_or(("", &what.api_version));
    let resource = what.collection.split_once('/').map(|(_, resource)| resource).unwrap_or_default();
    let of = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: what.api_version.clone(),
        kind: what.kind.clone(),
        plural: resource.to_owned(),
    };
    let config = watcher::Config::default().labels(names::DOWNSYNCED).timeout(LONGEST);
    let mut stream = Box::pin(watcher(Api::<DynamicObject>::all_with(client, &of), config));
    let (mut listed, mut wait) = (Vec::new(), FIRST_WAIT);
    while let Some(seen) = stream.next().await {
        let event = match seen {
            Ok(Seen::Init) => {
                listed = Vec::new();
                continue;
            }
            Ok(Seen::InitApply(object)) => {
                listed.extend(what.read(object));
                continue;
            }
            Ok(Seen::InitDone) => {
                Some(Event::Listed { collection: what.collection.clone(), found: std::mem::take(&mut listed) })
            }
            Ok(Seen::Apply(object)) => what.read(object).map(|(key, found, shown)| Event::Seen { key, found, shown }),
            Ok(Seen::Delete(object)) => what.read(object).map(|(key, found, _)| Event::Unseen { key, found }),
            Err(error) => {
                let Some(event) = what.failed(&error) else { continue };
                let over = matches!(event, Event::Unlisted { .. });
                if events.send(event).await.is_err() || over {
                    return;
                }
                tokio::time::sleep(wait.mul_f64(rand::random_range(0.5..1.0))).await;
                wait = (wait * 2).min(LONGEST_WAIT);
                continue;
            }
        };
        wait = FIRST_WAIT;
        if let Some(event) = event
            && events.send(event).await.is_err()
        {
            return;
        }
    }
}

impl Followed {
    fn read(&self, object: DynamicObject) -> Option<(Key, Found, Shown)> {
        let mut value: Value = serde_json::to_value(object).ok()?;
        let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default();
        let key: Key = format!("{}/{}/{}", self.collection, text("namespace"), text("name")).into();
        let found = Found::read(&ObjectKey::parse(&key)?, &value, &self.edge);
        Some((key, found, Shown::read(&mut value)))
    }

    /// What is to be said of it; nothing if the watch only begins anew.
    fn failed(&self, error: &watcher::Error) -> Option<Event> {
        use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
        let said = match error {
            InitialListFailed(kube::Error::Api(status))
            | WatchStartFailed(kube::Error::Api(status))
            | WatchFailed(kube::Error::Api(status)) => Some(status),
            WatchError(status) => Some(status),
            _ => None,
        };
        let collection = || self.collection.clone();
        Some(match said.map(|status| (status.code, &status.message)) {
            Some((410, _)) => return None,
            Some((404 | 405, _)) => Event::Unlisted {
                collection: collection(),
                served: false,
                reason: format!("the cluster has no {} in {}", self.kind, self.api_version),
            },
            Some((403, message)) => Event::Unlisted {
                collection: collection(),
                served: true,
                reason: format!("the edge may not follow {} there: {message}", self.collection),
            },
            Some((code, message)) => Event::Failing(format!("{message} ({code})")),
            None => Event::Failing(whole(error)),
        })
    }
}
