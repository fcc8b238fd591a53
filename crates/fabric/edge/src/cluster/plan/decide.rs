//! What one object needs next. A function of what is wanted, what is remembered and what was seen.

use link::Millis;

use crate::cluster::found::{Found, Mark, Record};

/// How an object shall be, as far as decisions need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub api_version: String,
    pub kind: String,
    /// Of all that is applied.
    pub hash: u128,
    /// Not if the cluster has one already.
    pub exclusive: bool,
}

impl Wanted {
    /// What is written down before the cluster is asked.
    pub fn begun(&self, adopted: bool) -> Record {
        Record { api_version: self.api_version.clone(), kind: self.kind.clone(), adopted, ..Record::default() }
    }
}

/// Why it did not work, and when it is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub reason: String,
    /// What was wanted then; zero for nothing.
    pub of: u128,
    pub tries: u32,
    pub until: Millis,
}

/// All that is known of one object.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    pub wanted: Option<Wanted>,
    pub record: Option<Record>,
    /// As the watch of its kind, or the answer to a request, showed it. Only marked objects are watched.
    pub there: Option<Found>,
    /// The last one of which the watch has told the end: its uid and version. An answer that comes later may still show it.
    pub ended: Option<(String, u64)>,
    /// What a look found that the watch does not show; good for one decision.
    pub looked: Option<Option<Found>>,
    pub trouble: Option<Trouble>,
    /// It was said that it is refused.
    pub said: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Nothing,
    /// Asks for the object: the watch shows only what is marked, and what is not may be somebody else's.
    Look,
    /// To the object of this uid, if it is still that one; to a new one if there is none.
    Apply {
        adopted: bool,
        uid: String,
    },
    /// If it is still as it was seen: somebody may take the mark off at any moment.
    Delete {
        uid: String,
        version: u64,
    },
    /// Takes the center's part back, and leaves the rest.
    Release {
        uid: String,
    },
    /// It is gone, or not ours to delete.
    Forget,
    Refuse(String),
}

impl Entry {
    /// Somebody wants it, or has to see to it that it goes.
    pub fn is_needed(&self) -> bool {
        self.wanted.is_some() || self.record.is_some()
    }

    pub fn wanted_hash(&self) -> u128 {
        self.wanted.as_ref().map_or(0, |wanted| wanted.hash)
    }

    fn is_exclusive(&self) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.exclusive)
    }

    /// It is there as it was applied, and so it shall be.
    pub fn is_in_place(&self) -> bool {
        let (Some(wanted), Some(record), Some(there)) = (&self.wanted, &self.record, &self.there) else { return false };
        wanted.hash == record.sent
            && record.fields == there.fields
            && record.uid == there.uid
            && there.mark == (Mark::Ours { adopted: record.adopted })
            && !there.going
    }

    /// What to do, provided that nothing has to be waited for.
    pub fn step(&self, name: &str) -> Step {
        match (&self.wanted, &self.record) {
            (Some(_), _) => self.step_to_have_it(name),
            (None, Some(record)) => self.step_to_lose_it(record),
            (None, None) => Step::Nothing,
        }
    }

    fn step_to_have_it(&self, name: &str) -> Step {
        let ours = self.record.as_ref().map(|record| record.uid.as_str()).filter(|uid| !uid.is_empty());
        let adopted = self.record.as_ref().is_some_and(|record| record.adopted);
        let found = match (&self.there, &self.looked) {
            (Some(there), _) => there,
            (None, None) => return Step::Look,
            (None, Some(None)) => return Step::Apply { adopted: false, uid: String::new() },
            (None, Some(Some(found))) => found,
        };
        let apply = |adopted| Step::Apply { adopted, uid: found.uid.clone() };
        match &found.mark {
            // The end of it is seen by the watch if it is marked; of others, by looking again.
            Mark::Ours { .. } if found.going => Step::Nothing,
            _ if found.going => Step::Refuse(format!("the former {name} is still being deleted in the cluster")),
            Mark::Ours { .. } if self.is_in_place() => Step::Nothing,
            Mark::Ours { adopted } => apply(*adopted),
            Mark::Other(edge) => Step::Refuse(format!("{name} in the cluster was applied by another edge, {edge}")),
            // Somebody took the mark off.
            Mark::None if ours == Some(&found.uid) => apply(adopted),
            Mark::None if found.common && !self.is_exclusive() => apply(true),
            Mark::None => Step::Refuse(format!(
                "{name} was made in the cluster and belongs to it: it stays as it is until one of the two is renamed or deleted"
            )),
        }
    }

    fn step_to_lose_it(&self, record: &Record) -> Step {
        match (&self.there, &self.looked) {
            // A request of which nothing was heard may have made it a moment ago.
            (None, None) => Step::Look,
            (None, Some(None)) => Step::Forget,
            (Some(there), _) | (None, Some(Some(there))) => match &there.mark {
                Mark::Ours { .. } if there.going => Step::Nothing,
                Mark::Ours { adopted: false } if !record.adopted => {
                    Step::Delete { uid: there.uid.clone(), version: there.version }
                }
                Mark::Ours { .. } => Step::Release { uid: there.uid.clone() },
                // Nothing is deleted that does not carry the mark.
                Mark::Other(_) | Mark::None => Step::Forget,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case() {
        let wanted = Some(Wanted { api_version: "v1".into(), kind: "ConfigMap".into(), hash: 5, exclusive: false });
        let record = Record { uid: "u".into(), sent: 5, fields: 7, ..Record::default() };
        let found = |mark: Mark| Found { uid: "u".into(), fields: 7, mark, ..Found::default() };
        let ours = || Some(found(Mark::Ours { adopted: false }));
        let with =
            |there: Option<Found>, looked: Option<Option<Found>>, wanted: &Option<Wanted>, record: Option<&Record>| {
                Entry { wanted: wanted.clone(), record: record.cloned(), there, looked, ..Entry::default() }.step("a")
            };
        let apply = |adopted| Step::Apply { adopted, uid: "u".into() };
        let refused = |step: Step| matches!(step, Step::Refuse(_));
        assert_eq!(with(None, None, &wanted, None), Step::Look);
        assert_eq!(with(None, Some(None), &wanted, None), Step::Apply { adopted: false, uid: String::new() });
        assert_eq!(with(ours(), None, &wanted, Some(&record)), Step::Nothing);
        let drifted = Some(Found { fields: 8, ..ours().unwrap() });
        assert_eq!(with(drifted, None, &wanted, Some(&record)), apply(false));
        assert_eq!(with(ours(), None, &wanted, None), apply(false), "of a former life");
        // Somebody else's.
        assert!(refused(with(
            None,
            Some(Some(Found { uid: "x".into(), ..found(Mark::None) })),
            &wanted,
            Some(&record)
        )));
        assert!(refused(with(None, Some(Some(found(Mark::None))), &wanted, None)));
        assert!(refused(with(Some(found(Mark::Other("b".into()))), None, &wanted, None)));
        // The mark was taken off ours; and what every cluster has.
        assert_eq!(with(None, Some(Some(found(Mark::None))), &wanted, Some(&record)), apply(false));
        let common = Found { common: true, ..found(Mark::None) };
        assert_eq!(with(None, Some(Some(common.clone())), &wanted, None), apply(true));
        // Not for a workspace that may not take over what is the cluster's own.
        let alone = wanted.clone().map(|wanted| Wanted { exclusive: true, ..wanted });
        assert!(refused(with(None, Some(Some(common)), &alone, None)));
        assert_eq!(with(None, Some(None), &alone, None), Step::Apply { adopted: false, uid: String::new() });
        // Going.
        let going = |mark: Mark| Some(Found { going: true, ..found(mark) });
        assert_eq!(with(going(Mark::Ours { adopted: false }), None, &wanted, Some(&record)), Step::Nothing);
        assert!(refused(with(None, Some(going(Mark::None)), &wanted, None)));
        // No longer wanted.
        assert_eq!(with(ours(), None, &None, Some(&record)), Step::Delete { uid: "u".into(), version: 0 });
        assert_eq!(with(ours(), None, &None, None), Step::Nothing, "of a former life: nobody said that it shall go");
        assert_eq!(with(None, None, &None, Some(&record)), Step::Look);
        assert_eq!(with(None, Some(None), &None, Some(&record)), Step::Forget);
        assert_eq!(with(Some(found(Mark::None)), None, &None, Some(&record)), Step::Forget);
        assert_eq!(with(Some(found(Mark::Other("b".into()))), None, &None, Some(&record)), Step::Forget);
        let adopted = Record { adopted: true, ..record.clone() };
        assert_eq!(with(ours(), None, &None, Some(&adopted)), Step::Release { uid: "u".into() });
        assert_eq!(
            with(Some(found(Mark::Ours { adopted: true })), None, &None, Some(&record)),
            Step::Release { uid: "u".into() }
        );
        assert_eq!(with(going(Mark::Ours { adopted: false }), None, &None, Some(&record)), Step::Nothing);
    }
}
