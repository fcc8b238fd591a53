//! Records Events: the same one again is counted, not written anew, and nobody can flood the API.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};

use crate::{
    machine::Note,
    spec::{self, Role},
};

/// Events that wait to be written; more are dropped.
const WAITING: usize = 256;
/// So many different ones are remembered to be counted.
const REMEMBERED: usize = 512;
/// An object may have so many at once, and another one each interval.
const BURST: u32 = 25;
const INTERVAL: Duration = Duration::from_secs(300);

#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<(ObjectReference, Note)>,
}

impl Recorder {
    pub fn start(client: Client, node: String) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        tokio::spawn(write_all(client, node, waiting));
        Self { queue }
    }

    pub fn of_pod(&self, pod: &Pod, note: Note) {
        let field_path = note.container.as_deref().and_then(|name| field_path(pod, name));
        let about = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            resource_version: pod.metadata.resource_version.clone(),
            field_path,
        };
        self.record(about, note);
    }

    pub fn of_node(&self, name: &str, reason: &'static str, message: String) {
        let about = ObjectReference {
            kind: Some("Node".into()),
            name: Some(name.to_owned()),
            uid: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        self.record(about, Note { is_warning: false, container: None, reason, message });
    }

    fn record(&self, about: ObjectReference, note: Note) {
        if self.queue.try_send((about, note)).is_err() {
            tracing::debug!("an Event was dropped: too many wait to be written");
        }
    }
}

fn field_path(pod: &Pod, container: &str) -> Option<String> {
    let (role, _) = spec::containers(pod.spec.as_ref()?).find(|(_, known)| known.name == container)?;
    Some(match role {
        Role::Main => format!("spec.containers{{{container}}}"),
        Role::Init | Role::Sidecar => format!("spec.initContainers{{{container}}}"),
        Role::Ephemeral => format!("spec.ephemeralContainers{{{container}}}"),
    })
}

type Key = (Option<String>, Option<String>, bool, &'static str, String);

/// What was written, to count it.
#[derive(Default)]
struct Written {
    known: BTreeMap<Key, (String, i32)>,
    order: VecDeque<Key>,
    spent: BTreeMap<String, (u32, Instant)>,
}

impl Written {
    fn remember(&mut self, key: Key, name: String, count: i32) {
        if self.known.insert(key.clone(), (name, count)).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Whether the object may have another one.
    fn may(&mut self, object: &str) -> bool {
        let now = Instant::now();
        if self.spent.len() > REMEMBERED {
            self.spent.retain(|_, (_, since)| now.duration_since(*since) < INTERVAL * BURST);
        }
        let (spent, since) = self.spent.entry(object.to_owned()).or_insert((0, now));
        let back = u32::try_from(now.duration_since(*since).as_secs() / INTERVAL.as_secs()).unwrap_or(u32::MAX);
        if back > 0 {
            *spent = spent.saturating_sub(back);
            *since = now;
        }
        let may = *spent < BURST;
        *spent += u32::from(may);
        may
    }
}

async fn write_all(client: Client, node: String, mut waiting: mpsc::Receiver<(ObjectReference, Note)>) {
    let mut written = Written::default();
    while let Some((about, note)) = waiting.recv().await {
        if !written.may(about.uid.as_deref().unwrap_or_default()) {
            continue;
        }
        let key: Key =
            (about.uid.clone(), about.field_path.clone(), note.is_warning, note.reason, note.message.clone());
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let now = Time(Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default());
        if let Some((name, count)) = written.known.get(&key).cloned() {
            let patch = json!({"count": count + 1, "lastTimestamp": now});
            if events.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.is_ok() {
                written.remember(key, name, count + 1);
                continue;
            }
        }
        let name = format!("{}.{:x}", about.name.as_deref().unwrap_or_default(), Timestamp::now().as_nanosecond());
        let event = event(about, note, name.clone(), namespace, &node, now);
        match events.create(&PostParams::default(), &event).await {
            Ok(_) => written.remember(key, name, 1),
            Err(error) => tracing::debug!(%error, "an Event was not recorded"),
        }
    }
}

fn event(about: ObjectReference, note: Note, name: String, namespace: String, node: &str, now: Time) -> Event {
    Event {
        metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
        involved_object: about,
        type_: Some(if note.is_warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(note.reason.to_owned()),
        // The API takes a kilobyte.
        message: Some(note.message.chars().take(1000).collect()),
        source: Some(EventSource { component: Some("kubelet".into()), host: Some(node.to_owned()) }),
        reporting_component: Some("kubelet".into()),
        reporting_instance: Some(node.to_owned()),
        count: Some(1),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        ..Event::default()
    }
}
