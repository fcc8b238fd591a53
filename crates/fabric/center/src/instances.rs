//! Tells whether one identity is used by two machines. Pure.
//!
//! Every start of an edge's program has a random number, and a machine never goes back to a number that it had before.
//! So two numbers that take turns are two programs that run at the same time. A restart, a crash, a restored backup
//! or a move to another machine brings a new number once, and the old one never comes again.

use serde::{Deserialize, Serialize};

/// Numbers that are remembered of one edge.
const KNOWN: usize = 8;
/// So often a number has to come back after another one. A session that was under way when its program was killed can
/// be heard late: it comes back once, and so does the one that it ended.
const RETURNS: u32 = 2;

/// What was seen of an edge since this center started.
#[derive(Debug, Default)]
pub struct Seen {
    /// In the order of their first sessions.
    known: Vec<Known>,
    current: u64,
}

#[derive(Debug)]
struct Known {
    id: u64,
    returns: u32,
    place: String,
}

/// A start of an edge's program, by its number and by where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// In hexadecimal digits: numbers of JSON are too short.
    pub id: String,
    #[serde(default)]
    pub place: String,
}

/// Which of several machines with one identity is let in: an annotation of the SyncTarget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Of which joining. After the next one it means nothing any more.
    pub credential: String,
    pub accepted: Instance,
    pub refused: Vec<Instance>,
}

/// What a session says of the program that it comes from.
#[derive(Clone, Debug, Default)]
pub struct Lineage {
    pub id: u64,
    pub before: Vec<u64>,
    pub place: String,
}

pub fn written(id: u64) -> String {
    format!("{id:016x}")
}

impl Lineage {
    fn has(&self, instance: &Instance) -> bool {
        std::iter::once(&self.id).chain(&self.before).any(|id| written(*id) == instance.id)
    }
}

impl Seen {
    /// A session begins. If several machines take turns, says which is let in: the one that was seen first.
    pub fn begins(&mut self, from: &Lineage, credential: &str) -> Option<Decision> {
        // An edge of an earlier version says nothing.
        if from.id == 0 {
            return None;
        }
        match self.known.iter_mut().find(|known| known.id == from.id) {
            Some(known) => {
                if self.current != from.id {
                    known.returns += 1;
                }
                if !from.place.is_empty() {
                    known.place.clone_from(&from.place);
                }
            }
            None => {
                if self.known.len() >= KNOWN {
                    self.known.remove(0);
                }
                self.known.push(Known { id: from.id, returns: 0, place: from.place.clone() });
            }
        }
        self.current = from.id;
        if self.known.iter().all(|known| known.returns < RETURNS) {
            return None;
        }
        let instance = |known: &Known| Instance { id: written(known.id), place: known.place.clone() };
        let mut returned = self.known.iter().filter(|known| known.returns > 0).map(instance);
        let (accepted, refused) = (returned.next()?, returned.collect::<Vec<_>>());
        (!refused.is_empty()).then(|| Decision { credential: credential.to_owned(), accepted, refused })
    }
}

impl Decision {
    /// Whether this is the machine that is let in, or a later start of it.
    pub fn lets_in(&self, from: &Lineage) -> bool {
        from.has(&self.accepted) && !self.refused.iter().any(|refused| from.has(refused))
    }

    /// The machine that is let in was started again: from now on it is known by that start. None if nothing changes.
    pub fn follow(&self, from: &Lineage) -> Option<Self> {
        let id = written(from.id);
        (self.lets_in(from) && self.accepted.id != id).then(|| {
            let place = if from.place.is_empty() { &self.accepted.place } else { &from.place };
            Self { accepted: Instance { id, place: place.clone() }, ..self.clone() }
        })
    }

    /// An operator says which machine is to be let in, by its number. None if there is no such machine.
    pub fn choose(&self, id: &str) -> Option<Self> {
        let mut all = std::iter::once(&self.accepted).chain(&self.refused);
        let accepted = all.clone().find(|instance| instance.id == id)?.clone();
        let refused = all.by_ref().filter(|instance| instance.id != id).cloned().collect();
        Some(Self { accepted, refused, ..self.clone() })
    }

    /// For the SyncTarget's condition, its Event and the log.
    pub fn message(&self, workspace: &str, edge: &str, annotation: &str) -> String {
        let shown = |instance: &Instance| match instance.place.as_str() {
            "" => instance.id.clone(),
            place => format!("{place} ({})", instance.id),
        };
        let refused: Vec<String> = self.refused.iter().map(shown).collect();
        let first = self.refused.first().map_or("", |instance| &instance.id);
        let command = format!("selvedge ws {workspace} && kubectl annotate synctarget {edge} --overwrite {annotation}");
        format!(
            "two machines use the identity of this edge, because its data directory was copied: {} is let in, {} is \
             refused. Join the refused one anew, with an empty data directory, a name and a token of its own. If it is \
             the right one: {command}={first}; when only one is left: {command}=any",
            shown(&self.accepted),
            refused.join(" and "),
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn from(id: u64, before: &[u64]) -> Lineage {
        Lineage { id, before: before.to_vec(), place: format!("machine-{id}:/data") }
    }

    fn first_decision(sessions: &[u64]) -> Option<(usize, Decision)> {
        let mut seen = Seen::default();
        sessions.iter().enumerate().find_map(|(at, id)| Some((at, seen.begins(&from(*id, &[]), "c")?)))
    }

    #[test]
    fn two_that_take_turns_are_noticed() {
        for (sessions, at, accepted, refused) in [
            (&[1, 2, 1, 2, 1][..], 4, 1, &[2][..]),
            (&[9, 1, 1, 2, 2, 1, 1, 2, 1], 8, 1, &[2]),
            (&[1, 2, 3, 1, 2, 3, 1], 6, 1, &[2, 3]),
        ] {
            let (found, decision) = first_decision(sessions).unwrap();
            let ids: Vec<String> = decision.refused.iter().map(|one| one.id.clone()).collect();
            assert_eq!((found, &decision.accepted.id), (at, &written(accepted)), "{sessions:?}");
            assert_eq!(ids, refused.iter().map(|id| written(*id)).collect::<Vec<_>>());
            let message = decision.message("root:depot", "florin", "x/y");
            let expected =
                ["machine-1:/data", "machine-2:/data", "root:depot", "florin", "x/y=0000000000000002", "x/y=any"];
            assert!(expected.iter().all(|part| message.contains(part)), "{message}");
        }
        // A session of a killed program that was heard late, and the reconnect that it causes.
        assert_eq!(first_decision(&[1, 2, 1, 2, 2, 2, 3, 3]), None);
        assert_eq!(first_decision(&[0, 1, 0, 1, 0, 1, 0]), None, "an earlier version says nothing");
    }

    #[test]
    fn the_machine_that_is_let_in_can_be_started_again_and_the_other_cannot() {
        let (_, decision) = first_decision(&[1, 2, 1, 2, 1]).unwrap();
        for (lineage, may) in [
            (from(1, &[]), true),
            (from(2, &[]), false),
            (from(3, &[1, 7]), true),
            (from(4, &[3, 1, 7]), true),
            // Of a copy that was made while the first one ran.
            (from(2, &[1, 7]), false),
            (from(5, &[2, 1, 7]), false),
            (from(5, &[7]), false),
            (from(0, &[]), false),
        ] {
            assert_eq!(decision.lets_in(&lineage), may, "{lineage:?}");
        }
        let later = decision.follow(&from(3, &[1])).unwrap();
        assert_eq!((later.accepted.id.as_str(), &later.refused), (written(3).as_str(), &decision.refused));
        assert!(later.follow(&from(3, &[1])).is_none() && later.follow(&from(2, &[])).is_none());
        let other = decision.choose(&written(2)).unwrap();
        assert!(other.lets_in(&from(2, &[])) && !other.lets_in(&from(1, &[])) && !other.lets_in(&from(3, &[1])));
        assert!(decision.choose("any").is_none());
    }

    proptest! {
        /// However one machine is started again, and however often each start connects, it is never taken for two.
        #[test]
        fn one_machine_is_never_two(sessions in prop::collection::vec(1..5_usize, 1..40)) {
            let mut seen = Seen::default();
            for (start, connects) in sessions.iter().enumerate() {
                for _ in 0..*connects {
                    prop_assert_eq!(seen.begins(&from(start as u64 + 1, &[start as u64]), "c"), None);
                }
            }
        }

        /// Two machines that end each other's sessions are noticed soon, also if both are started again meanwhile.
        #[test]
        fn two_machines_are_noticed(restarts in prop::collection::vec(any::<bool>(), 12)) {
            let mut seen = Seen::default();
            let mut ids = [1, 1001];
            let mut noticed = false;
            for (turn, restart) in restarts.iter().enumerate() {
                // A program that is started again after its session ended does not come back, but its next start does.
                if *restart && turn < 4 {
                    ids[turn % 2] += 1;
                }
                noticed |= seen.begins(&from(ids[turn % 2], &[]), "c").is_some();
            }
            prop_assert!(noticed);
        }
    }
}
