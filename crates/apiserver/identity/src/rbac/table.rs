//! Roles, found by what their rules are about: a decision looks only at those that could answer it.

use std::{collections::HashMap, sync::Arc};

use super::{
    index::Words,
    rule::{Key, Question, Rules},
};

/// The place of a role in the table.
pub(super) type RoleId = u32;
/// Where bindings lead that name no kind of role.
pub(super) const NOWHERE: RoleId = 0;
/// Marking more roles than this costs more than looking into those that a user has.
const MOST_MARKED: usize = 4096;

/// Roles under numbers, also those that are only bound and do not exist.
#[derive(Debug)]
pub(super) struct Table {
    ids: HashMap<Arc<str>, HashMap<Arc<str>, RoleId>>,
    slots: Vec<Slot>,
    free: Vec<RoleId>,
    /// Which roles say something about what.
    about: HashMap<Key, Vec<RoleId>>,
    /// How many bindings lead to roles that are not there.
    pub dangling: usize,
}

#[derive(Debug, Default)]
struct Slot {
    rules: Option<Arc<Rules>>,
    /// It exists in this layer; otherwise its rules are those of the layer below.
    own: bool,
    /// How many bindings refer to it.
    bound: usize,
}

impl Default for Table {
    fn default() -> Self {
        let nowhere = vec![Slot::default()];
        Self { ids: HashMap::new(), slots: nowhere, free: Vec::new(), about: HashMap::new(), dangling: 0 }
    }
}

impl Table {
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    fn find(&self, namespace: &str, name: &str) -> Option<RoleId> {
        self.ids.get(namespace)?.get(name).copied()
    }

    pub fn rules(&self, id: RoleId) -> Option<&Arc<Rules>> {
        self.slots.get(id as usize)?.rules.as_ref()
    }

    /// The rules of a role that this layer has itself.
    pub fn own(&self, namespace: &str, name: &str) -> Option<&Arc<Rules>> {
        let slot = &self.slots[self.find(namespace, name)? as usize];
        slot.rules.as_ref().filter(|_| slot.own)
    }

    /// Gives a role its rules; those that are not its `own` are the lower layer's, if that has it.
    pub fn set(&mut self, words: &mut Words, key: (&str, &str), rules: Option<Arc<Rules>>, own: bool) {
        if own || self.find(key.0, key.1).is_some() {
            let id = self.id(words, key);
            self.fill(id, rules, own);
            self.forget_unused(key, id);
        }
    }

    /// The number of a role that one more binding refers to.
    pub fn bind(&mut self, words: &mut Words, key: Option<(&str, &str)>, below: Option<Arc<Rules>>) -> RoleId {
        let id = match key {
            None => NOWHERE,
            Some(key) => match self.find(key.0, key.1) {
                Some(known) => known,
                None => {
                    let id = self.id(words, key);
                    self.fill(id, below, false);
                    id
                }
            },
        };
        let slot = &mut self.slots[id as usize];
        slot.bound += 1;
        self.dangling += usize::from(slot.rules.is_none());
        id
    }

    pub fn unbind(&mut self, key: Option<(&str, &str)>, id: RoleId) {
        let slot = &mut self.slots[id as usize];
        slot.bound -= 1;
        self.dangling -= usize::from(slot.rules.is_none());
        if let Some(key) = key {
            self.forget_unused(key, id);
        }
    }

    fn fill(&mut self, id: RoleId, rules: Option<Arc<Rules>>, own: bool) {
        let slot = &mut self.slots[id as usize];
        let old = slot.rules.take();
        if old.is_none() {
            self.dangling -= slot.bound;
        }
        if rules.is_none() {
            self.dangling += slot.bound;
        }
        (slot.rules, slot.own) = (rules.clone(), own);
        for key in old.iter().flat_map(|rules| rules.keys()) {
            if let Some(roles) = self.about.get_mut(&key) {
                roles.retain(|other| *other != id);
                if roles.is_empty() {
                    self.about.remove(&key);
                }
            }
        }
        for key in rules.iter().flat_map(|rules| rules.keys()) {
            self.about.entry(key).or_default().push(id);
        }
    }

    fn id(&mut self, words: &mut Words, (namespace, name): (&str, &str)) -> RoleId {
        let ids = self.ids.entry(words.word(namespace)).or_default();
        *ids.entry(words.word(name)).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.slots.push(Slot::default());
                u32::try_from(self.slots.len() - 1).unwrap_or(NOWHERE)
            })
        })
    }

    fn forget_unused(&mut self, (namespace, name): (&str, &str), id: RoleId) {
        let slot = &self.slots[id as usize];
        if slot.own || slot.bound > 0 {
            return;
        }
        self.fill(id, None, false);
        self.free.push(id);
        if let Some(ids) = self.ids.get_mut(namespace) {
            ids.remove(name);
            if ids.is_empty() {
                self.ids.remove(namespace);
            }
        }
    }

    /// The roles that could answer a question.
    pub fn candidates<'a>(&'a self, question: &Question<'a>) -> Candidates<'a> {
        let question = question.among(|key| self.about.contains_key(&key));
        let lists = || question.keys().iter().filter_map(|key| self.about.get(key));
        let words = self.slots.len() / 64 + 1;
        let marked = if lists().map(Vec::len).sum::<usize>() <= MOST_MARKED {
            let mut marked = vec![0; words];
            lists().flatten().for_each(|id| marked[*id as usize / 64] |= 1 << (id % 64));
            marked
        } else {
            vec![u64::MAX; words]
        };
        Candidates { table: self, question, marked }
    }
}

/// The roles that still could answer a question; one that did not is not asked again.
pub(super) struct Candidates<'a> {
    table: &'a Table,
    question: Question<'a>,
    marked: Vec<u64>,
}

impl Candidates<'_> {
    pub fn none(&self) -> bool {
        self.question.keys().is_empty()
    }

    pub fn allow(&mut self, id: RoleId) -> bool {
        let (word, bit) = (id as usize / 64, 1 << (id % 64));
        if self.marked[word] & bit == 0 {
            return false;
        }
        self.marked[word] &= !bit;
        self.table.rules(id).is_some_and(|rules| rules.allow(&self.question))
    }
}
