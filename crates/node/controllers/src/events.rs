//! Records Events about objects, as `kubectl describe` shows them. An Event that repeats is counted instead of written
//! again, and the number of Events about one object is limited.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tasks::Tasks;
use tokio::sync::{Mutex, mpsc};

use crate::RESTART;

/// Events that wait to be written. Further ones are dropped: no controller waits for its Events.
const MAX_WAITING: usize = 256;
/// Different Events that are remembered, to be counted.
const MAX_REMEMBERED: usize = 512;
/// Events about one object at once, and one more after each [`REFILL`].
const BURST: f64 = 25.0;
const REFILL: SignedDuration = SignedDuration::from_mins(5);
const MAX_MESSAGE_BYTES: usize = 1024;
/// Different messages about one object for one reason, as upstream has it. Further ones within [`SIMILAR_WINDOW`] are
/// one Event.
const MAX_SIMILAR: usize = 9;
const SIMILAR_WINDOW: SignedDuration = SignedDuration::from_mins(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weight {
    Normal,
    Warning,
}

impl Weight {
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The component that Events come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Source {
    component: &'static str,
    /// The machine of the component, if it is one of several of its name.
    host: Option<Arc<str>>,
}

/// An Event that is to be written.
#[derive(Clone)]
struct Told {
    about: ObjectReference,
    source: Source,
    weight: Weight,
    reason: String,
    message: String,
    at: Timestamp,
    /// It stands for all that are similar.
    combined: bool,
}

/// Takes the Events of one component.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    source: Source,
    sender: mpsc::Sender<(Client, Told)>,
}

impl Recorder {
    pub fn tell(
        &self,
        about: &impl Resource<DynamicType = ()>,
        weight: Weight,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.tell_of(about.object_ref(&()), weight, reason, message);
    }

    /// The same for a part of an object, which the reference names.
    pub fn tell_of(&self, about: ObjectReference, weight: Weight, reason: &str, message: impl Into<String>) {
        let mut message: String = message.into();
        if message.len() > MAX_MESSAGE_BYTES {
            let end = (0..=MAX_MESSAGE_BYTES).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
            message.truncate(end);
        }
        let told = Told {
            about,
            source: self.source.clone(),
            weight,
            reason: reason.to_owned(),
            message,
            at: Timestamp::now(),
            combined: false,
        };
        if self.sender.try_send((self.client.clone(), told)).is_err() {
            tracing::debug!(reason, "an Event was dropped: too many wait to be written");
        }
    }
}

/// Makes the recorders of a process, all of whose Events one task writes.
pub struct Events {
    sender: mpsc::Sender<(Client, Told)>,
}

impl Events {
    /// Events are written until the shutdown, or until no recorder is left.
    pub fn start(tasks: &Tasks) -> Self {
        let (sender, told) = mpsc::channel::<(Client, Told)>(MAX_WAITING);
        let writer = Arc::new(Mutex::new(Writer { told, memory: Memory::default() }));
        tasks.spawn_until_shutdown("event-writer", RESTART, move || {
            let writer = writer.clone();
            async move { writer.lock().await.run().await }
        });
        Self { sender }
    }

    pub fn recorder(&self, client: Client, component: &'static str) -> Recorder {
        Recorder { client, source: Source { component, host: None }, sender: self.sender.clone() }
    }

    /// The same for a component of which each machine has one.
    pub fn recorder_of_host(&self, client: Client, component: &'static str, host: &str) -> Recorder {
        let source = Source { component, host: Some(host.into()) };
        Recorder { client, source, sender: self.sender.clone() }
    }
}

/// After a panic it goes on with the next Event.
struct Writer {
    told: mpsc::Receiver<(Client, Told)>,
    memory: Memory,
}

impl Writer {
    async fn run(&mut self) {
        while let Some((client, told)) = self.told.recv().await {
            write(&mut self.memory, client, told).await;
        }
    }
}

/// An object, or a part of it, that Events of one component are about.
type Subject = (Source, Option<String>, Option<String>);
type Same = (Subject, Weight, String, String);
type Similar = (Subject, Weight, String);

impl Told {
    fn subject(&self) -> Subject {
        (self.source.clone(), self.about.uid.clone(), self.about.field_path.clone())
    }
}

/// Earlier Events. Without I/O.
#[derive(Default)]
struct Memory {
    written: HashMap<Arc<Same>, (String, i32)>,
    oldest: VecDeque<Arc<Same>>,
    /// The hashes of messages, and the time of the last one.
    similar: HashMap<Similar, (BTreeSet<u64>, Timestamp)>,
    /// How many more Events an object may have, and since when.
    budgets: HashMap<(Source, Option<String>), (f64, Timestamp)>,
}

#[derive(Debug, PartialEq)]
enum Write {
    Nothing,
    New,
    /// The Event's name, and its count by now.
    Again(String, i32),
}

impl Memory {
    /// Makes one Event of many that differ in their messages only.
    fn combine(&mut self, mut told: Told) -> Told {
        if self.similar.len() >= MAX_REMEMBERED {
            self.similar.retain(|_, (_, last)| told.at.duration_since(*last) <= SIMILAR_WINDOW);
            if self.similar.len() >= 4 * MAX_REMEMBERED {
                self.similar.clear();
            }
        }
        let key = (told.subject(), told.weight, told.reason.clone());
        let (messages, last) = self.similar.entry(key).or_insert_with(|| (BTreeSet::new(), told.at));
        if told.at.duration_since(*last) > SIMILAR_WINDOW {
            messages.clear();
        }
        *last = told.at;
        let mut hasher = DefaultHasher::new();
        told.message.hash(&mut hasher);
        let hash = hasher.finish();
        if messages.len() < MAX_SIMILAR {
            messages.insert(hash);
        } else if !messages.contains(&hash) {
            told.message.insert_str(0, "(combined from similar events): ");
            told.combined = true;
        }
        told
    }

    fn decide(&mut self, told: &Told) -> Write {
        let about = (told.source.clone(), told.about.uid.clone());
        if self.budgets.len() >= MAX_REMEMBERED && !self.budgets.contains_key(&about) {
            // A budget that is full again is as good as none.
            self.budgets.retain(|_, (left, since)| refilled(*left, *since, told.at) < BURST);
            if self.budgets.len() >= 4 * MAX_REMEMBERED {
                self.budgets.clear();
            }
        }
        let budget = self.budgets.entry(about).or_insert((BURST, told.at));
        *budget = (refilled(budget.0, budget.1, told.at), told.at);
        if budget.0 < 1.0 {
            return Write::Nothing;
        }
        budget.0 -= 1.0;
        match self.written.get_mut(&same(told)) {
            Some((name, count)) => {
                *count += 1;
                Write::Again(name.clone(), *count)
            }
            None => Write::New,
        }
    }

    fn wrote(&mut self, told: &Told, name: String) {
        let same = Arc::new(same(told));
        if self.written.insert(same.clone(), (name, 1)).is_none() {
            self.oldest.push_back(same);
        }
        while self.oldest.len() > MAX_REMEMBERED {
            if let Some(oldest) = self.oldest.pop_front() {
                self.written.remove(&oldest);
            }
        }
    }

    fn forget(&mut self, told: &Told) {
        let same = same(told);
        self.written.remove(&same);
        self.oldest.retain(|kept| **kept != same);
    }
}

fn same(told: &Told) -> Same {
    let message = if told.combined { String::new() } else { told.message.clone() };
    (told.subject(), told.weight, told.reason.clone(), message)
}

fn refilled(left: f64, since: Timestamp, now: Timestamp) -> f64 {
    (left + now.duration_since(since).as_secs_f64().max(0.0) / REFILL.as_secs_f64()).min(BURST)
}

async fn write(memory: &mut Memory, client: Client, told: Told) {
    let told = memory.combine(told);
    let namespace = told.about.namespace.clone().unwrap_or_else(|| "default".into());
    let api: Api<Event> = Api::namespaced(client, &namespace);
    let failed = match memory.decide(&told) {
        Write::Nothing => return,
        Write::Again(name, count) => {
            let change = json!({"count": count, "lastTimestamp": Time(told.at), "message": told.message});
            let patched = api.patch_metadata(&name, &PatchParams::default(), &Patch::Strategic(change)).await;
            // Events expire: one that is gone begins anew.
            if matches!(&patched, Err(kube::Error::Api(status)) if status.code == 404) {
                memory.forget(&told);
                create(memory, &api, namespace, &told).await
            } else {
                patched.err()
            }
        }
        Write::New => create(memory, &api, namespace, &told).await,
    };
    if let Some(error) = failed {
        tracing::debug!(%error, reason = told.reason, "an Event was not written");
    }
}

async fn create(memory: &mut Memory, api: &Api<Event>, namespace: String, told: &Told) -> Option<kube::Error> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed) & 0xff;
    let about = told.about.name.as_deref().unwrap_or_default();
    let name = format!("{about}.{:x}{number:02x}", told.at.as_microsecond());
    let (component, host) = (told.source.component.to_owned(), told.source.host.as_deref().map(str::to_owned));
    let event = Event {
        metadata: ObjectMeta { name: Some(name.clone()), namespace: Some(namespace), ..ObjectMeta::default() },
        involved_object: told.about.clone(),
        reason: Some(told.reason.clone()),
        message: Some(told.message.clone()),
        type_: Some(told.weight.name().into()),
        first_timestamp: Some(Time(told.at)),
        last_timestamp: Some(Time(told.at)),
        count: Some(1),
        source: Some(EventSource { component: Some(component.clone()), host: host.clone() }),
        reporting_component: Some(component),
        reporting_instance: host,
        ..Event::default()
    };
    match api.create(&PostParams::default(), &event).await {
        Ok(_) => {
            memory.wrote(told, name);
            None
        }
        Err(error) => Some(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(uid: &str, message: &str, second: i64) -> Told {
        Told {
            about: ObjectReference { uid: Some(uid.into()), ..ObjectReference::default() },
            source: Source { component: "test", host: None },
            weight: Weight::Warning,
            reason: "Failed".into(),
            message: message.into(),
            at: Timestamp::from_second(second).unwrap(),
            combined: false,
        }
    }

    #[test]
    fn what_repeats_is_counted_and_what_repeats_too_much_is_dropped() {
        let mut memory = Memory::default();
        assert_eq!(memory.decide(&told("1", "a", 0)), Write::New);
        memory.wrote(&told("1", "a", 0), "one".into());
        assert_eq!(memory.decide(&told("1", "a", 1)), Write::Again("one".into(), 2));
        assert_eq!(memory.decide(&told("1", "b", 1)), Write::New);
        assert_eq!(memory.decide(&told("2", "a", 1)), Write::New);
        for _ in 3..25 {
            assert_ne!(memory.decide(&told("1", "a", 2)), Write::Nothing);
        }
        assert_eq!(memory.decide(&told("1", "a", 3)), Write::Nothing);
        assert_eq!(memory.decide(&told("1", "a", 303)), Write::Again("one".into(), 25));
        memory.forget(&told("1", "a", 0));
        assert_eq!(memory.decide(&told("1", "a", 1000)), Write::New);
    }

    #[test]
    fn many_that_are_similar_are_one() {
        let mut memory = Memory::default();
        let mut tell = |message: String, second: i64| {
            let told = memory.combine(told("1", &message, second));
            let write = memory.decide(&told);
            if write == Write::New {
                memory.wrote(&told, format!("event-{second}"));
            }
            (told.message, write)
        };
        for n in 0..9 {
            assert_eq!(tell(format!("pod {n}"), n), (format!("pod {n}"), Write::New));
        }
        assert_eq!(tell("pod 3".into(), 9), ("pod 3".into(), Write::Again("event-3".into(), 2)));
        assert_eq!(tell("pod 10".into(), 10), ("(combined from similar events): pod 10".into(), Write::New));
        let again = ("(combined from similar events): pod 11".into(), Write::Again("event-10".into(), 2));
        assert_eq!(tell("pod 11".into(), 11), again);
        // After a while each is news again.
        assert_eq!(tell("pod 12".into(), 700), ("pod 12".into(), Write::New));
    }

    #[test]
    fn memory_is_bounded() {
        let mut memory = Memory::default();
        for n in 0..10_000_i64 {
            let told = memory.combine(told(&n.to_string(), "a", n));
            assert_eq!(memory.decide(&told), Write::New);
            memory.wrote(&told, n.to_string());
        }
        assert!(memory.written.len() <= MAX_REMEMBERED && memory.oldest.len() <= MAX_REMEMBERED);
        assert!(memory.budgets.len() <= 4 * MAX_REMEMBERED && memory.similar.len() <= 4 * MAX_REMEMBERED);
    }
}
