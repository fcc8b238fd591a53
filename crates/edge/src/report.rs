//! What the center is told of its objects: always the latest, and again until it has acked it.
//!
//! There is no outbox on disk. What has to be reported is what differs from what was acked, and both are in the store.

use std::sync::Arc;

use api::selector::scan;
use bytes::Bytes;
use link::{Holding, Key, Position, Report, Tree, Version, entry_hash};
use server::{Server, object::Object};
use store::{Commit, Compare};
use types::ObjectKey;

use crate::{
    apply::{commit_and_see, delete_record, held, place_of, put_record, write_progress},
    book::{Book, GONE, HELD},
    held::Reported,
};

const TRIES: usize = 30;

/// The part of an object that is the edge's to say; `None` if it says nothing. A JSON object, so that there is room for more.
pub fn state(object: &Object) -> Option<Bytes> {
    let status = scan::raw_at(&object.json, &["status"])?;
    if matches!(status, b"{}" | b"null") {
        return None;
    }
    Some([b"{\"status\":", status, b"}"].concat().into())
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
        let (counter, state) = match held(self.server, &key) {
            Some((held, _)) => {
                let object = place_of(self.server, &place).get()?;
                let state = match (state(&object), held.reported) {
                    (Some(state), _) => state,
                    (None, Some(_)) => Bytes::from_static(NOTHING),
                    (None, None) => return None,
                };
                if held.reported == Some(Reported { epoch, hash: hash(&state) }) {
                    return None;
                }
                (object.revision, Some(state))
            }
            None => (self.server.cache.get(GONE, &key)?.revision, None),
        };
        let version = Version { epoch, counter };
        self.book.sent(&key, version, state.as_deref().map(hash));
        Some(Report { key, version, state })
    }
}

/// Remembers that the center has these durably, in one commit.
pub async fn acked(server: &Server, book: &Book, at: Position, reports: &[(Key, Version)]) -> Result<(), store::Error> {
    let reports: Vec<_> =
        reports.iter().filter_map(|(key, version)| Some((key, version, book.take_sent(key, *version)?))).collect();
    for _ in 0..TRIES {
        let progress = book.progress();
        let mut commit = Commit::default();
        for (key, version, state) in reports.iter().filter(|(_, version, _)| version.epoch == progress.epoch) {
            match (state, held(server, key)) {
                (Some(hash), Some((mut held, revision))) => {
                    held.reported = Some(Reported { epoch: version.epoch, hash: *hash });
                    commit.compares.push(Compare { key: format!("{HELD}/{key}"), modified: revision });
                    put_record(&mut commit, HELD, key, &held);
                }
                (None, None) if server.cache.get(GONE, key).is_some_and(|gone| gone.revision == version.counter) => {
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
