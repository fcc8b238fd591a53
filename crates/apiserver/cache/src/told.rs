//! What watchers of the same thing are told is made once, for all of them.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use bytes::Bytes;
use store::Revision;

/// So many pieces are kept for those who are a little behind the others.
const KEPT: usize = 4;

/// The audiences of one collection, by what they want to hear.
#[derive(Default)]
pub struct Audiences(Mutex<HashMap<Box<str>, Weak<Audience>>>);

/// All who watch the same selection in the same form. Whoever holds it belongs to it.
#[derive(Default)]
pub struct Audience(Mutex<VecDeque<Told>>);

/// Everything between two revisions, as this audience is told of it. Nothing, if none of it concerns them.
struct Told {
    after: Revision,
    until: Revision,
    bytes: Bytes,
    /// How many have not taken it yet. The last one takes it away.
    left: usize,
}

impl Audiences {
    /// `wants` says everything on which depends what is told.
    pub fn join(&self, wants: &str) -> Arc<Audience> {
        let mut known = lock(&self.0);
        if let Some(audience) = known.get(wants).and_then(Weak::upgrade) {
            return audience;
        }
        if known.len() == known.capacity() {
            known.retain(|_, audience| audience.strong_count() > 0);
        }
        let audience = Arc::new(Audience::default());
        known.insert(wants.into(), Arc::downgrade(&audience));
        audience
    }
}

impl Audience {
    /// What comes after a revision, up to which one; made by the first of the audience who asks for it.
    pub fn after(
        self: &Arc<Self>,
        after: Revision,
        make: impl FnOnce() -> Option<(Revision, Bytes)>,
    ) -> Option<(Revision, Bytes)> {
        let others = Arc::strong_count(self) - 1;
        if others == 0 {
            return make();
        }
        // Held while it is made: the others need the very same.
        let mut kept = lock(&self.0);
        if let Some(at) = kept.iter().position(|told| told.after == after) {
            let told = &mut kept[at];
            let found = (told.until, told.bytes.clone());
            told.left -= 1;
            if told.left == 0 {
                kept.remove(at);
            }
            return Some(found);
        }
        let (until, bytes) = make()?;
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Told { after, until, bytes: bytes.clone(), left: others });
        Some((until, bytes))
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(text: &'static str) -> impl FnOnce() -> Option<(Revision, Bytes)> {
        move || Some((9, Bytes::from_static(text.as_bytes())))
    }

    #[test]
    fn it_is_made_once_and_kept_until_the_last_has_it() {
        let audiences = Audiences::default();
        let all: Vec<_> = (0..3).map(|_| audiences.join("pods")).collect();
        let other = audiences.join("nodes");
        assert_eq!(all[0].after(5, made("first")).unwrap(), (9, Bytes::from("first")));
        assert_eq!(other.after(5, made("other")).unwrap().1, "other");
        assert_eq!(all[1].after(5, made("second")).unwrap().1, "first");
        assert_eq!(all[1].after(6, made("from elsewhere")).unwrap().1, "from elsewhere");
        assert_eq!(all[2].after(5, || unreachable!()).unwrap().1, "first");
        assert_eq!(lock(&all[0].0).len(), 1, "only what some have not taken is kept");
        assert_eq!(all[0].after(5, made("anew")).unwrap().1, "anew");
    }

    #[test]
    fn whoever_is_alone_keeps_nothing_and_nothing_is_kept_of_nothing() {
        let audiences = Audiences::default();
        let one = audiences.join("pods");
        assert_eq!(one.after(1, made("a")).unwrap().1, "a");
        assert!(lock(&one.0).is_empty());
        let two = audiences.join("pods");
        assert!(one.after(1, || None).is_none());
        assert!(lock(&two.0).is_empty());
        for after in 0..100 {
            one.after(after, made("much"));
        }
        assert_eq!(lock(&two.0).len(), KEPT);
    }

    #[test]
    fn who_left_is_forgotten() {
        let audiences = Audiences::default();
        for n in 0..1000 {
            audiences.join(&format!("{n}"));
        }
        assert!(lock(&audiences.0).len() < 10);
    }
}
