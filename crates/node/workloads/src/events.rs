//! Events about objects, as `kubectl describe` shows them. What repeats is counted instead of written again, and who repeats too
//! much is not heard for a while.

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
use tokio::sync::mpsc;

/// What is told but not written yet. An event is lost rather than waited for.
const WAITING: usize = 256;
/// So many different ones are remembered, to be counted.
const REMEMBERED: usize = 512;
/// One object may be the subject of so many at once, and of one more after each [`REFILL`].
const BURST: f64 = 25.0;
const REFILL: SignedDuration = SignedDuration::from_mins(5);
const LONGEST_MESSAGE: usize = 1024;
/// Of what is told of one object for one reason, so many messages are told apart, as upstream does it. What comes then within [`TOGETHER`] is one event.
const APART: usize = 9;
const TOGETHER: SignedDuration = SignedDuration::from_mins(10);

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

#[derive(Clone)]
struct Told {
    about: ObjectReference,
    component: &'static str,
    weight: Weight,
    reason: String,
    message: String,
    at: Timestamp,
    /// Stands for all that is similar.
    combined: bool,
}

/// What one controller tells.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    component: &'static str,
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
        let mut message: String = message.into();
        if message.len() > LONGEST_MESSAGE {
            let end = (0..=LONGEST_MESSAGE).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
            message.truncate(end);
        }
        let told = Told {
            about: about.object_ref(&()),
            component: self.component,
            weight,
            reason: reason.to_owned(),
            message,
            at: Timestamp::now(),
            combined: false,
        };
        // Full means that nobody can write at the moment, or that somebody tells too much.
        let _ = self.sender.try_send((self.client.clone(), told));
    }
}

/// Where the recorders of a process come from, and the only place that writes events.
pub struct Events {
    sender: mpsc::Sender<(Client, Told)>,
}

impl Events {
    /// The second part writes, until no recorder is left.
    pub fn new() -> (Self, impl Future<Output = ()> + Send) {
        let (sender, mut told) = mpsc::channel::<(Client, Told)>(WAITING);
        let writing = async move {
            let mut memory = Memory::default();
            while let Some((client, told)) = told.recv().await {
                write(&mut memory, client, told).await;
            }
        };
        (Self { sender }, writing)
    }

    pub fn recorder(&self, client: Client, component: &'static str) -> Recorder {
        Recorder { client, component, sender: self.sender.clone() }
    }
}

type Same = (&'static str, Option<String>, Weight, String, String);
type Similar = (&'static str, Option<String>, Weight, String);

/// What was written before. Without I/O.
#[derive(Default)]
struct Memory {
    written: HashMap<Arc<Same>, (String, i32)>,
    oldest: VecDeque<Arc<Same>>,
    /// Which messages were told, by their hashes, and when the last was.
    similar: HashMap<Similar, (BTreeSet<u64>, Timestamp)>,
    /// How many more an object may have, and when that was so.
    budgets: HashMap<(&'static str, Option<String>), (f64, Timestamp)>,
}

#[derive(Debug, PartialEq)]
enum Write {
    Nothing,
    New,
    /// The event's name, and how often it happened by now.
    Again(String, i32),
}

impl Memory {
    /// Makes one of many that differ in their words only.
    fn combine(&mut self, mut told: Told) -> Told {
        if self.similar.len() >= REMEMBERED {
            self.similar.retain(|_, (_, last)| told.at.duration_since(*last) <= TOGETHER);
            if self.similar.len() >= 4 * REMEMBERED {
                self.similar.clear();
            }
        }
        let key = (told.component, told.about.uid.clone(), told.weight, told.reason.clone());
        let (messages, last) = self.similar.entry(key).or_insert_with(|| (BTreeSet::new(), told.at));
        if told.at.duration_since(*last) > TOGETHER {
            messages.clear();
        }
        *last = told.at;
        let mut hasher = DefaultHasher::new();
        told.message.hash(&mut hasher);
        let hash = hasher.finish();
        if messages.len() < APART {
            messages.insert(hash);
        } else if !messages.contains(&hash) {
            told.message.insert_str(0, "(combined from similar events): ");
            told.combined = true;
        }
        told
    }

    fn decide(&mut self, told: &Told) -> Write {
        let about = (told.component, told.about.uid.clone());
        if self.budgets.len() >= REMEMBERED && !self.budgets.contains_key(&about) {
            // Those that are full again say nothing that a new one would not.
            self.budgets.retain(|_, (left, since)| refilled(*left, *since, told.at) < BURST);
            if self.budgets.len() >= 4 * REMEMBERED {
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
        while self.oldest.len() > REMEMBERED {
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
    (told.component, told.about.uid.clone(), told.weight, told.reason.clone(), message)
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
            // Events do not live long: one that is gone begins anew.
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
        tracing::debug!(%error, reason = told.reason, "an event was not written");
    }
}

async fn create(memory: &mut Memory, api: &Api<Event>, namespace: String, told: &Told) -> Option<kube::Error> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed) & 0xff;
    let about = told.about.name.as_deref().unwrap_or_default();
    let name = format!("{about}.{:x}{number:02x}", told.at.as_microsecond());
    let event = Event {
        metadata: ObjectMeta { name: Some(name.clone()), namespace: Some(namespace), ..ObjectMeta::default() },
        involved_object: told.about.clone(),
        reason: Some(told.reason.clone()),
        message: Some(told.message.clone()),
        type_: Some(told.weight.name().into()),
        first_timestamp: Some(Time(told.at)),
        last_timestamp: Some(Time(told.at)),
        count: Some(1),
        source: Some(EventSource { component: Some(told.component.into()), ..EventSource::default() }),
        reporting_component: Some(told.component.into()),
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
            component: "test",
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
        assert!(memory.written.len() <= REMEMBERED && memory.oldest.len() <= REMEMBERED);
        assert!(memory.budgets.len() <= 4 * REMEMBERED && memory.similar.len() <= 4 * REMEMBERED);
    }
}
