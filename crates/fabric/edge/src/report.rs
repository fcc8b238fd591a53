//! What the center is told of its objects: always the latest, and again until it has acked it.
//!
//! Of its own objects it is told what it asks for: see [`crate::whole`].
//!
//! There is no outbox on disk. What has to be reported is what differs from what was acked, and both are in the store.

use std::sync::Arc;

use bytes::Bytes;
use cache::object::Object;
use kinds::{ObjectKey, names};
use link::{Holding, Key, Position, Report, Tree, Version, entry_hash};
use schema::selector::scan;
use server::Server;
use store::{Commit, Compare};

use crate::{
    apply::{commit_and_see, delete_record, held, place_of, put_record, write_progress},
    book::{Book, GONE, HELD, Sent, TOLD},
    held::Reported,
    whole,
};

const TRIES: usize = 30;

/// The part of an object that is the edge's to say; `None` if it says nothing. A JSON object, so that there is room for more.
///
/// `status`, and where a cluster does not take the object, `refused` with the reason; `overruled` if others changed there what is the
/// center's. Where the status says which generation it is of, also the object's `generation`, and in `of` what the center sent (`hash`), so that
/// whoever reads it can tell whether it is about that.
pub fn state(object: &Object, hash: u128) -> Option<Bytes> {
    let status = scan::raw_at(&object.json, &["status"]).filter(|status| !matches!(*status, b"{}" | b"null"));
    let observes = status.is_some_and(|status| scan::raw_at(status, &["observedGeneration"]).is_some());
    let generation = scan::raw_at(object.metadata(), &["generation"]).filter(|_| observes);
    let of = generation.map(|_| format!("\"{hash:032x}\""));
    let note = |name: &str| scan::raw_at(object.metadata(), &["annotations", name]);
    let parts = [
        ("status", status),
        ("generation", generation),
        ("of", of.as_deref().map(str::as_bytes)),
        ("refused", note(names::REFUSED)),
        ("overruled", note(names::OVERRULED)),
    ];
    let mut state = Vec::new();
    for (name, text) in parts {
        if let Some(text) = text {
            state.extend_from_slice(if state.is_empty() { b"{\"" } else { b",\"" });
            state.extend_from_slice(name.as_bytes());
            state.extend_from_slice(b"\":");
            state.extend_from_slice(text);
        }
    }
    if state.is_empty() {
        return None;
    }
    state.push(b'}');
    Some(state.into())
}

/// What an object with nothing to say says if it said something before.
const NOTHING: &[u8] = b"{}";

fn hash(state: &[u8]) -> u128 {
    entry_hash("", state)
}

/// What this edge holds, as the link's machine asks for it.
pub struct View<'a> {
    pub book: &'a Book,
    pub server: &'a Arc<Server>,
}

impl Tree for View<'_> {
    fn count(&self) -> u64 {
        self.book.count()
    }

    fn root(&self) -> u128 {
        self.book.root()
    }

    fn range(&self, from: u64, to: u64, visit: &mut dyn FnMut(u64, &Key, u128)) {
        self.book.range(from, to, visit);
    }
}

impl Holding for View<'_> {
    fn seen(&self) -> Option<Position> {
        self.book.progress().seen()
    }

    fn floor(&self) -> Version {
        self.book.progress().floor()
    }

    fn report(&self, key: &str) -> Option<Report> {
        let key = Key::from(key);
        let epoch = self.book.progress().epoch;
        let place = ObjectKey::parse(&key)?;
        let (counter, state, sent) = match held(self.server, &key) {
            Some((held, _)) => {
                let object = place_of(self.server, &place).get()?;
                let state = match (state(&object, held.hash), held.reported) {
                    (Some(state), _) => state,
                    (None, Some(_)) => Bytes::from_static(NOTHING),
                    (None, None) => return None,
                };
                let hash = hash(&state);
                if held.reported == Some(Reported { epoch, hash }) {
                    return None;
                }
                (object.revision, Some(state), Sent::Status(hash))
            }
            None => self.own(&key, &place, epoch)?,
        };
        let version = Version { epoch, counter };
        self.book.sent(&key, version, sent);
        Some(Report { key, version, state })
    }
}

impl View<'_> {
    /// What there is to say of an object that is none of the center's.
    fn own(&self, key: &Key, place: &ObjectKey<'_>, epoch: u64) -> Option<(u64, Option<Bytes>, Sent)> {
        // Before anything is looked up: what comes later has a later revision.
        let now = self.server.cache.revision();
        let told = self.server.cache.get(TOLD, key);
        let object = place_of(self.server, place).get();
        let object = object.filter(|object| whole::is_wanted(self.server, self.book, place, object));
        let state = object.as_ref().and_then(|object| whole::state(object));
        match (&object, &state, &told) {
            (Some(_), None, _) => self.book.leave_out(key, "it is too large"),
            (None, ..) | (_, _, Some(_)) => self.book.leave_in(key),
            _ => {}
        }
        match (object, state, told) {
            (Some(object), Some(state), Some(told)) => {
                let hash = hash(&state);
                let told: Reported = serde_json::from_slice(&told.json).unwrap_or_default();
                (told != Reported { epoch, hash }).then_some((object.revision, Some(state), Sent::Whole(hash)))
            }
            (Some(_), Some(_), None) => {
                self.book.promise(key);
                None
            }
            (_, _, Some(_)) => Some((now, None, Sent::Gone)),
            (_, _, None) => Some((self.server.cache.get(GONE, key)?.revision, None, Sent::Gone)),
        }
    }
}

/// Remembers that the center has these durably, in one commit.
pub async fn acked(server: &Server, book: &Book, at: Position, reports: &[(Key, Version)]) -> Result<(), store::Error> {
    let reports: Vec<_> =
        reports.iter().filter_map(|(key, version)| Some((key, version, book.take_sent(key, *version)?))).collect();
    for _ in 0..TRIES {
        let progress = book.progress();
        let mut commit = Commit::default();
        for (key, version, sent) in reports.iter().filter(|(_, version, _)| version.epoch == progress.epoch) {
            match (sent, held(server, key)) {
                (Sent::Status(hash), Some((mut held, revision))) => {
                    held.reported = Some(Reported { epoch: version.epoch, hash: *hash });
                    commit.compares.push(Compare { key: format!("{HELD}/{key}"), modified: revision });
                    put_record(&mut commit, HELD, key, &held);
                }
                (Sent::Whole(hash), None) => {
                    put_record(&mut commit, TOLD, key, &Reported { epoch: version.epoch, hash: *hash });
                    delete_record(&mut commit, GONE, key);
                }
                (Sent::Gone, None) if server.cache.get(TOLD, key).is_some() => {
                    delete_record(&mut commit, TOLD, key);
                    delete_record(&mut commit, GONE, key);
                }
                (Sent::Gone, None)
                    if server.cache.get(GONE, key).is_some_and(|gone| gone.revision == version.counter) =>
                {
                    delete_record(&mut commit, GONE, key);
                }
                _ => {}
            }
        }
        write_progress(&mut commit, progress.moved_to(at, false));
        if commit_and_see(server, commit).await? {
            return Ok(());
        }
    }
    Ok(())
}
