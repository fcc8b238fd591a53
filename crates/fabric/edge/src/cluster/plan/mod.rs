//! What to do at the cluster, and when: a state machine without I/O.
//!
//! It is told what the center wants, what is remembered of former work and what is seen in the cluster, and says what to ask the
//! cluster for next: in order, a few requests at a time, and of nothing that has to wait for something else. What does not work is
//! tried again later and holds up nobody but what needs it.

mod decide;
#[cfg(test)]
mod model;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use kinds::ObjectKey;
use link::{Key, Millis};

use super::{
    found::{Found, Mark, Record},
    order::{self, PHASES, Phase},
};
pub use decide::Wanted;
use decide::{Entry, Step, Trouble};

/// So many requests at a time.
const AT_ONCE: usize = 8;
/// What did not work is tried again after so long, doubled each time up to the longest.
const FIRST_WAIT: Millis = 1_000;
const LONGEST_WAIT: Millis = 120_000;
/// The same while the whole cluster is away.
const LONGEST_AWAY: Millis = 15_000;
const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";

/// What the rim shall do. Each of an object is answered by [`Planner::done`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Follow the marked objects of a kind, from a list of all of them on.
    Watch {
        collection: String,
        api_version: String,
        kind: String,
    },
    Unwatch {
        collection: String,
    },
    Look {
        key: Key,
    },
    /// Written down first that it will be there, if nothing is remembered of it.
    Apply {
        key: Key,
        adopted: bool,
        known: bool,
        /// Of the object as it was seen; empty if there is none.
        uid: String,
    },
    Delete {
        key: Key,
        uid: String,
        version: u64,
    },
    Release {
        key: Key,
        uid: String,
    },
    /// Nothing is to be remembered of it any more.
    Forget {
        key: Key,
    },
    /// Not to be answered: the object is not taken, or is taken by now.
    Say {
        key: Key,
        refused: Option<String>,
    },
}

/// What came of an action.
#[derive(Clone, Debug)]
pub enum Outcome {
    Looked(Option<Found>),
    Applied(Found, Record),
    /// Asked for; the watch shows when it is gone.
    Deleting,
    /// It is not there; if something of its name is, it is another one.
    Gone,
    Released,
    Forgotten,
    /// What was to be done is not wanted any more.
    Moot,
    /// The cluster says no, to this one.
    Refused(String),
    /// Nobody knows: the cluster did not answer.
    Away,
}

/// A kind of which there are objects that matter.
struct Kind {
    api_version: String,
    kind: String,
    /// How many.
    needed: usize,
    watch: Watch,
    /// What would define it.
    definition: Key,
}

enum Watch {
    Not,
    /// Nothing is known of its objects yet.
    Begun,
    Listed,
    Failed {
        reason: String,
        served: bool,
        tries: u32,
        until: Millis,
    },
}

#[derive(Default)]
pub struct Planner {
    objects: BTreeMap<Key, Entry>,
    kinds: BTreeMap<String, Kind>,
    /// To be looked at, in order.
    queue: BTreeSet<(Phase, Key)>,
    /// What is being asked for, and whether it has to be looked at again afterwards.
    busy: BTreeMap<Key, (Phase, bool)>,
    in_phase: [usize; PHASES],
    /// Who waits for an object.
    waiting: BTreeMap<Key, BTreeSet<Key>>,
    timers: BTreeSet<(Millis, Key)>,
    /// Since the cluster does not answer: how often that was, and when it is tried again.
    away: Option<(u32, Millis)>,
    actions: Vec<Action>,
}

impl Planner {
    // === what is told ===

    /// What the center wants of an object; nothing if it took it away.
    pub fn want(&mut self, key: &Key, wanted: Option<Wanted>) {
        let changed = self.objects.get(key).map(|entry| &entry.wanted) != Some(&wanted);
        if !changed || (wanted.is_none() && !self.objects.contains_key(key)) {
            return;
        }
        self.change(key, |entry| entry.wanted = wanted);
        self.wake(key);
    }

    /// From a former life of this edge's. Say all of it, and all that is wanted, before asking what to do.
    pub fn remember(&mut self, key: &Key, record: Record) {
        self.change(key, |entry| entry.record = Some(record));
        self.wake(key);
    }

    /// All marked objects of a kind, as the cluster has them.
    pub fn listed(&mut self, collection: &str, found: Vec<(Key, Found)>) {
        let Some(kind) = self.kinds.get_mut(collection) else { return };
        kind.watch = Watch::Listed;
        self.back();
        let mut found: BTreeMap<Key, Found> = found.into_iter().collect();
        for key in self.keys_of(collection) {
            let there = found.remove(&key);
            self.change(&key, |entry| {
                entry.there = there;
                // What was in the way may be gone.
                if let Some(trouble) = &mut entry.trouble {
                    trouble.until = 0;
                }
            });
            self.wake(&key);
        }
        for (key, there) in found {
            self.change(&key, |entry| entry.there = Some(there));
        }
    }

    /// A kind could not be listed: the cluster does not have it, or does not let us.
    pub fn unlisted(&mut self, collection: &str, now: Millis, served: bool, reason: String) {
        let Some(kind) = self.kinds.get_mut(collection) else { return };
        let tries = if let Watch::Failed { tries, .. } = kind.watch { tries + 1 } else { 0 };
        let until = now + wait(collection, tries, LONGEST_WAIT);
        kind.watch = Watch::Failed { reason, served, tries, until };
        for key in self.keys_of(collection) {
            self.change(&key, |entry| entry.there = None);
            self.wake(&key);
        }
    }

    /// The watch shows an object.
    pub fn seen(&mut self, key: &Key, found: Found) {
        // It may have been on its way while the watch was ended.
        if ObjectKey::parse(key).is_some_and(|key| self.kinds.contains_key(key.collection)) {
            self.see(key, found);
            self.wake(key);
        }
    }

    /// The watch shows an object no longer: it is gone, or lost its mark. `last` is how it was.
    pub fn unseen(&mut self, key: &Key, last: &Found) {
        let newer = |there: &Found| there.uid != last.uid && there.version > last.version;
        if self.objects.get(key).and_then(|entry| entry.there.as_ref()).is_some_and(newer) {
            return;
        }
        self.change(key, |entry| {
            entry.there = None;
            entry.ended = Some((last.uid.clone(), last.version));
        });
        self.wake(key);
    }

    pub fn done(&mut self, key: &Key, now: Millis, outcome: Outcome) {
        let again = match self.busy.remove(key) {
            Some((phase, again)) => {
                self.in_phase[usize::from(phase)] -= 1;
                again
            }
            None => false,
        };
        if matches!(outcome, Outcome::Away) {
            let tries = self.away.map_or(0, |(tries, _)| tries + 1);
            self.away = Some((tries, now + wait(key, tries, LONGEST_AWAY)));
            return self.wake(key);
        }
        self.back();
        match outcome {
            Outcome::Looked(looked) => {
                // A marked one is as good as watched.
                if let Some(found) = looked.clone().filter(|found| found.mark != Mark::None) {
                    self.see(key, found);
                }
                self.change(key, |entry| entry.looked = Some(looked));
                self.wake(key);
            }
            Outcome::Applied(found, record) => {
                self.settle(key);
                self.change(key, |entry| entry.record = Some(record));
                self.see(key, found);
                self.wake(key);
            }
            // What was released has no mark any more: the watch would say the same.
            Outcome::Gone | Outcome::Released => {
                self.settle(key);
                self.change(key, |entry| entry.there = None);
                self.wake(key);
            }
            Outcome::Forgotten => {
                self.settle(key);
                self.change(key, |entry| entry.record = None);
            }
            Outcome::Refused(reason) => self.refuse(key, now, reason),
            Outcome::Deleting => self.settle(key),
            Outcome::Moot => self.wake(key),
            Outcome::Away => {}
        }
        if again {
            self.wake(key);
        }
    }

    // === what is asked ===

    /// What to do now.
    pub fn next(&mut self, now: Millis) -> Vec<Action> {
        while let Some((at, key)) = self.timers.first().cloned().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, key.clone()));
            self.wake(&key);
        }
        let due = |kind: &Kind| matches!(kind.watch, Watch::Failed { until, .. } if until <= now);
        let again: Vec<String> =
            self.kinds.iter().filter(|(_, kind)| due(kind)).map(|(name, _)| name.clone()).collect();
        again.iter().for_each(|collection| self.watch(collection));
        let most = match self.away {
            Some((_, until)) if until > now => 0,
            // One goes ahead and finds out.
            Some(_) => 1,
            None => AT_ONCE,
        };
        while self.busy.len() < most {
            let Some((phase, key)) = self.queue.first().cloned() else { break };
            if self.in_phase[..usize::from(phase)].iter().any(|asked| *asked > 0) {
                break;
            }
            self.queue.remove(&(phase, key.clone()));
            if let Some(action) = self.decide(&key, now) {
                self.in_phase[usize::from(phase)] += 1;
                self.busy.insert(key, (phase, false));
                self.actions.push(action);
            }
        }
        std::mem::take(&mut self.actions)
    }

    /// When to ask again although nothing happens.
    pub fn wake_at(&self) -> Option<Millis> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let away = self.away.filter(|_| !self.queue.is_empty()).map(|(_, until)| until);
        let kinds = self.kinds.values().filter_map(|kind| match kind.watch {
            Watch::Failed { until, .. } if until < Millis::MAX => Some(until),
            _ => None,
        });
        timer.into_iter().chain(away).chain(kinds).min()
    }

    /// Why an object is not in the cluster as it shall be.
    pub fn refused(&self, key: &Key) -> Option<&str> {
        let entry = self.objects.get(key)?;
        entry.wanted.as_ref()?;
        entry.trouble.as_ref().map(|trouble| trouble.reason.as_str())
    }

    pub fn record(&self, key: &Key) -> Option<&Record> {
        self.objects.get(key)?.record.as_ref()
    }

    /// Whether the cluster has what the center last sent of it.
    pub fn is_in_place(&self, key: &Key) -> bool {
        self.objects.get(key).is_some_and(Entry::is_in_place)
    }

    // === inside ===

    /// The cluster answers.
    fn back(&mut self) {
        self.away = None;
    }

    fn keys_of(&self, collection: &str) -> Vec<Key> {
        let from: Key = format!("{collection}/").into();
        let all = self.objects.range(from.clone()..).take_while(|(key, _)| key.starts_with(&*from));
        all.map(|(key, _)| key.clone()).collect()
    }

    /// Every change of an entry: counts what is needed of its kind, and lets go of what nobody needs.
    fn change(&mut self, key: &Key, change: impl FnOnce(&mut Entry)) {
        let Some(collection) = ObjectKey::parse(key).map(|key| key.collection.to_owned()) else { return };
        let entry = self.objects.entry(key.clone()).or_default();
        let before = entry.is_needed();
        change(entry);
        let after = entry.is_needed();
        if entry.trouble.as_ref().is_some_and(|trouble| trouble.of != entry.wanted_hash()) {
            // It is about something else than what is wanted by now.
            entry.trouble = None;
        }
        let named = match (&entry.wanted, &entry.record) {
            (Some(wanted), _) => Some((wanted.api_version.clone(), wanted.kind.clone())),
            (None, Some(record)) => Some((record.api_version.clone(), record.kind.clone())),
            (None, None) => None,
        };
        if !after && entry.there.is_none() {
            self.objects.remove(key);
        }
        if let Some((api_version, kind)) = named {
            self.need(&collection, api_version, kind, !before);
        } else if before {
            self.release_kind(&collection);
        }
    }

    fn need(&mut self, collection: &str, api_version: String, kind: String, one_more: bool) {
        let (group, resource) = collection.split_once('/').unwrap_or_default();
        let known = self.kinds.entry(collection.to_owned()).or_insert_with(|| Kind {
            api_version: api_version.clone(),
            kind: kind.clone(),
            needed: 0,
            watch: Watch::Not,
            definition: format!("{DEFINITIONS}//{resource}.{group}").into(),
        });
        known.needed += usize::from(one_more);
        if known.api_version != api_version && one_more {
            // It is stored in another version by now. Whoever follows the former one begins anew.
            (known.api_version, known.kind) = (api_version, kind);
            if !matches!(known.watch, Watch::Not) {
                self.watch(collection);
            }
        }
    }

    fn release_kind(&mut self, collection: &str) {
        let Some(kind) = self.kinds.get_mut(collection) else { return };
        kind.needed -= 1;
        if kind.needed == 0 {
            self.kinds.remove(collection);
            self.actions.push(Action::Unwatch { collection: collection.to_owned() });
            for key in self.keys_of(collection) {
                self.objects.remove(&key);
            }
        }
    }

    fn watch(&mut self, collection: &str) {
        let Some(kind) = self.kinds.get_mut(collection) else { return };
        let tries = if let Watch::Failed { tries, .. } = kind.watch { Some(tries) } else { None };
        // A kind that cannot be listed stays so until a list says otherwise.
        match (&mut kind.watch, tries) {
            (Watch::Failed { until, .. }, Some(_)) => *until = Millis::MAX,
            (watch, _) => *watch = Watch::Begun,
        }
        self.actions.push(Action::Watch {
            collection: collection.to_owned(),
            api_version: kind.api_version.clone(),
            kind: kind.kind.clone(),
        });
    }

    /// Takes what is newer.
    fn see(&mut self, key: &Key, found: Found) {
        let entry = self.objects.get(key);
        let there = entry.and_then(|entry| entry.there.as_ref());
        let ended = entry.and_then(|entry| entry.ended.as_ref());
        if ended.is_some_and(|(uid, version)| *uid == found.uid && *version >= found.version) {
            return;
        }
        if there.is_none_or(|there| there.uid != found.uid || there.version <= found.version) {
            self.change(key, |entry| entry.there = Some(found));
        }
    }

    /// What was asked for was done.
    fn settle(&mut self, key: &Key) {
        let Some(entry) = self.objects.get_mut(key) else { return };
        entry.trouble = None;
        if std::mem::take(&mut entry.said) {
            self.actions.push(Action::Say { key: key.clone(), refused: None });
        }
    }

    /// Something changed about an object: it is looked at, and so is whoever waits for it.
    fn wake(&mut self, key: &Key) {
        let waiting = self.waiting.remove(key).unwrap_or_default();
        for key in std::iter::once(key).chain(&waiting) {
            if let Some((_, again)) = self.busy.get_mut(key) {
                *again = true;
                continue;
            }
            let Some(entry) = self.objects.get(key).filter(|entry| entry.is_needed()) else { continue };
            let Some(parsed) = ObjectKey::parse(key) else { continue };
            let phase = match entry.wanted.is_some() {
                true => order::applied_in(parsed.collection),
                false => order::deleted_in(parsed.collection),
            };
            self.queue.insert((phase, key.clone()));
        }
        // A definition came into use.
        if let Some(plural) = key.strip_prefix(DEFINITIONS).and_then(|rest| rest.strip_prefix("//"))
            && self.is_served(key)
            && let Some((resource, group)) = plural.split_once('.')
        {
            let collection = format!("{group}/{resource}");
            if self
                .kinds
                .get(&collection)
                .is_some_and(|kind| matches!(kind.watch, Watch::Failed { until, .. } if until != Millis::MAX))
            {
                self.watch(&collection);
            }
        }
    }

    fn is_served(&self, key: &Key) -> bool {
        self.objects.get(key).and_then(|entry| entry.there.as_ref()).is_some_and(|there| there.served)
    }

    /// What has to be there before: another object that the center wants as well, and that can still come.
    fn waits_for(&self, key: &ObjectKey<'_>, definition: &Key) -> Option<Key> {
        let comes = |key: &Key| self.objects.get(key).filter(|entry| entry.wanted.is_some() && entry.trouble.is_none());
        if comes(definition).is_some() && !self.is_served(definition) {
            return Some(definition.clone());
        }
        if key.namespace.is_empty() {
            return None;
        }
        let home: Key = format!("core/namespaces//{}", key.namespace).into();
        let is_home = |there: Option<&Found>| there.is_some_and(|there| !there.going);
        comes(&home).filter(|entry| !is_home(entry.there.as_ref())).map(|_| home)
    }

    fn decide(&mut self, key: &Key, now: Millis) -> Option<Action> {
        let parsed = ObjectKey::parse(key)?;
        let entry = self.objects.get(key)?;
        if entry.trouble.as_ref().is_some_and(|trouble| trouble.until > now) {
            return None;
        }
        let wanted = entry.wanted.is_some();
        let kind = self.kinds.get(parsed.collection)?;
        if wanted && let Some(first) = self.waits_for(&parsed, &kind.definition) {
            self.waiting.entry(first).or_default().insert(key.clone());
            return None;
        }
        match &kind.watch {
            Watch::Listed => {}
            Watch::Begun => return None,
            Watch::Not => {
                self.watch(parsed.collection);
                return None;
            }
            Watch::Failed { reason, served, .. } => {
                let (reason, served) = (reason.clone(), *served);
                if wanted {
                    self.refuse(key, now, reason);
                } else if !served {
                    // What was of that kind went with it.
                    return Some(Action::Forget { key: key.clone() });
                }
                return None;
            }
        }
        let step = entry.step(parsed.name);
        let (known, in_place, looked) = (entry.record.is_some(), entry.is_in_place(), entry.looked.is_some());
        if looked {
            self.change(key, |entry| entry.looked = None);
        }
        let key = key.clone();
        Some(match step {
            Step::Nothing => {
                if in_place {
                    self.settle(&key);
                }
                return None;
            }
            Step::Look => Action::Look { key },
            Step::Apply { adopted, uid } => {
                if !known {
                    // It may be there from now on, whatever is heard of the request.
                    self.change(&key, |entry| entry.record = entry.wanted.as_ref().map(|wanted| wanted.begun(adopted)));
                }
                Action::Apply { key, adopted, known, uid }
            }
            Step::Delete { uid, version } => Action::Delete { key, uid, version },
            Step::Release { uid } => Action::Release { key, uid },
            Step::Forget => Action::Forget { key },
            Step::Refuse(reason) => {
                self.refuse(&key, now, reason);
                return None;
            }
        })
    }

    fn refuse(&mut self, key: &Key, now: Millis, reason: String) {
        let Some(entry) = self.objects.get(key) else { return };
        let of = entry.wanted_hash();
        let (tries, said) = match &entry.trouble {
            Some(before) => (before.tries + 1, before.reason == reason),
            None => (0, false),
        };
        if !said && entry.wanted.is_some() {
            self.actions.push(Action::Say { key: key.clone(), refused: Some(reason.clone()) });
        }
        let until = now + wait(key, tries, LONGEST_WAIT);
        self.timers.insert((until, key.clone()));
        self.change(key, |entry| {
            entry.said |= entry.wanted.is_some();
            entry.trouble = Some(Trouble { reason, of, tries, until });
        });
        // Nobody waits for what does not come.
        for waiting in self.waiting.remove(key).unwrap_or_default() {
            self.wake(&waiting);
        }
    }
}

/// Doubled with every attempt, and never the same for two objects.
fn wait(what: &str, tries: u32, longest: Millis) -> Millis {
    let mut hasher = DefaultHasher::new();
    (what, tries).hash(&mut hasher);
    let full = FIRST_WAIT.saturating_mul(1 << tries.min(16)).min(longest);
    full / 2 + hasher.finish() % (full / 2).max(1)
}
