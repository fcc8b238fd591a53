//! Which destination of a placement is written in which SinglePlacementSlice. Pure.
//!
//! A destination stays where it is for as long as it is one, so that an edit writes one slice again, however many there are.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use crate::Id;

/// So many destinations are in one slice: some 80 KB.
pub const MOST: usize = 500;
/// Names of objects get no longer.
const LONGEST: usize = 253;

#[derive(Debug, Default)]
pub struct Slices {
    of: BTreeMap<Id, u32>,
    parts: BTreeMap<u32, BTreeSet<Id>>,
    open: BTreeSet<u32>,
    changed: BTreeSet<u32>,
}

impl Slices {
    /// A slice as it was found, before anything is set. What is in two of them is taken out of the later one.
    pub fn found(&mut self, number: u32, targets: impl IntoIterator<Item = Id>) {
        self.parts.entry(number).or_default();
        for target in targets {
            if self.of.contains_key(&target) {
                self.changed.insert(number);
            } else {
                self.put(number, target);
            }
        }
        self.mark(number);
    }

    /// A SyncTarget is a destination, perhaps by another Location than before, or is none.
    pub fn set(&mut self, target: &Id, is_destination: bool) {
        let number = match (self.of.get(target).copied(), is_destination) {
            (Some(number), true) => number,
            (None, false) => return,
            (Some(number), false) => {
                self.of.remove(target);
                if let Some(part) = self.parts.get_mut(&number) {
                    part.remove(target);
                }
                number
            }
            (None, true) => {
                let next = || (0..).find(|number| !self.parts.contains_key(number)).unwrap_or_default();
                let number = self.open.first().copied().unwrap_or_else(next);
                self.put(number, target.clone());
                number
            }
        };
        self.changed.insert(number);
        self.mark(number);
    }

    /// Everything that is a destination somewhere in the slices.
    pub fn targets(&self) -> impl Iterator<Item = &Id> {
        self.of.keys()
    }

    /// What a slice holds, if it is needed.
    pub fn part(&self, number: u32) -> Option<&BTreeSet<Id>> {
        self.parts.get(&number).filter(|part| number == 0 || !part.is_empty())
    }

    /// There is at least one slice, even of a placement that goes nowhere.
    pub fn ensure_first(&mut self) {
        if let Entry::Vacant(first) = self.parts.entry(0) {
            first.insert(BTreeSet::new());
            self.changed.insert(0);
            self.mark(0);
        }
    }

    /// The slices to be written, each with its destinations; `None` for one that is not needed any more.
    pub fn take_changed(&mut self) -> Vec<(u32, Option<BTreeSet<Id>>)> {
        let changed = std::mem::take(&mut self.changed);
        let look = |number: u32| {
            let part = self.part(number).cloned();
            if part.is_none() {
                self.parts.remove(&number);
                self.open.remove(&number);
            }
            (number, part)
        };
        changed.into_iter().map(look).collect()
    }

    /// A slice could not be written: it is to be tried again.
    pub fn again(&mut self, number: u32) {
        self.changed.insert(number);
    }

    fn put(&mut self, number: u32, target: Id) {
        self.of.insert(target.clone(), number);
        self.parts.entry(number).or_default().insert(target);
    }

    fn mark(&mut self, number: u32) {
        match self.parts.get(&number).is_some_and(|part| part.len() < MOST) {
            true => self.open.insert(number),
            false => self.open.remove(&number),
        };
    }
}

/// The first is named like the placement; others in a way that no placement's name is by chance.
pub fn name(placement: &str, uid: &str, number: u32) -> String {
    if number == 0 {
        return placement.to_owned();
    }
    let suffix = suffix(uid, number);
    let mut room = LONGEST.saturating_sub(suffix.len()).min(placement.len());
    while !placement.is_char_boundary(room) {
        room -= 1;
    }
    format!("{}{suffix}", placement[..room].trim_end_matches(['.', '-']))
}

/// The opposite of [`name`].
pub fn number(slice: &str, placement: &str, uid: &str) -> Option<u32> {
    if slice == placement {
        return Some(0);
    }
    let (rest, _) = slice.rsplit_once('-')?;
    let number = rest.rsplit_once('-')?.1.parse().ok()?;
    (name(placement, uid, number) == slice).then_some(number)
}

fn suffix(uid: &str, number: u32) -> String {
    let short: String = uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("-{number}-{}", short.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_edit_writes_one_slice() {
        let id = |n: usize| Id::new("root", &format!("t{n:05}"));
        let mut slices = Slices::default();
        for n in 0..3 * MOST {
            slices.set(&id(n), true);
        }
        let written = slices.take_changed();
        assert_eq!(
            written.iter().map(|(n, part)| (*n, part.as_ref().unwrap().len())).collect::<Vec<_>>(),
            [(0, MOST), (1, MOST), (2, MOST)]
        );
        slices.set(&id(MOST + 7), false);
        assert_eq!(slices.take_changed().len(), 1);
        slices.set(&Id::new("root", "new"), true);
        let written = slices.take_changed();
        assert_eq!(written.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1], "where there is room");
        for n in 2 * MOST..3 * MOST {
            slices.set(&id(n), false);
        }
        assert_eq!(slices.take_changed(), [(2, None)]);
        let mut empty = Slices::default();
        empty.ensure_first();
        assert_eq!(empty.take_changed(), [(0, Some(BTreeSet::new()))]);
        empty.ensure_first();
        assert_eq!(empty.take_changed(), []);
    }

    #[test]
    fn names_read_back() {
        let long = "p".repeat(LONGEST);
        for placement in ["edge-placement-c", &long, "a-1-0a1b2c3d"] {
            for n in [0, 1, 12] {
                let slice = name(placement, "0A1b2c3d-4e5f", n);
                assert!(slice.len() <= LONGEST);
                assert_eq!(number(&slice, placement, "0A1b2c3d-4e5f"), Some(n), "{slice}");
            }
        }
        assert_eq!(number("edge-placement-c-1", "edge-placement-c", "0a1b2c3d"), None);
    }

    proptest! {
        #[test]
        fn what_was_written_is_what_there_is(edits in proptest::collection::vec((0u16..40, any::<bool>(), any::<bool>()), 0..200)) {
            let id = |n: u16| Id::new("root", &n.to_string());
            let (mut slices, mut model) = (Slices::default(), BTreeSet::new());
            let mut written: BTreeMap<u32, BTreeSet<Id>> = BTreeMap::new();
            for (n, there, write) in edits {
                slices.set(&id(n), there);
                if there { model.insert(id(n)); } else { model.remove(&id(n)); }
                if write {
                    for (number, part) in slices.take_changed() {
                        match part {
                            Some(part) => drop(written.insert(number, part)),
                            None => drop(written.remove(&number)),
                        }
                    }
                    // Another life begins with what was written.
                    let mut again = Slices::default();
                    for (number, part) in &written {
                        again.found(*number, part.iter().cloned());
                    }
                    prop_assert_eq!(again.take_changed(), vec![]);
                    slices = again;
                    let all: Vec<Id> = written.values().flatten().cloned().collect();
                    prop_assert_eq!(all.len(), model.len());
                    prop_assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), model.clone());
                }
            }
        }
    }
}
