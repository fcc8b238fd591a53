//! Tickets: what the center gives to one edge, over its session, so that the edge opens one stream with it. A ticket is good once, for
//! that edge, and for as long as somebody waits for the stream. Whoever waits keeps a place, of which an edge has so many.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kinds::EdgeId;
use tokio::sync::watch;

/// Streams to one edge, asked for or open.
pub const PER_EDGE: usize = 64;

/// `T` is whom the stream is given to.
pub struct Tickets<T>(Mutex<Inner<T>>);

struct Inner<T> {
    waiting: HashMap<u128, (EdgeId, T)>,
    /// Only of edges that have some.
    open: HashMap<EdgeId, Open>,
}

struct Open {
    places: usize,
    end: watch::Sender<bool>,
}

/// Somebody's right to a stream to an edge. Dropping it gives it back, and voids its ticket.
pub struct Place<T> {
    tickets: Arc<Tickets<T>>,
    edge: EdgeId,
    ticket: u128,
    /// Turns true when the edge is gone.
    pub ended: watch::Receiver<bool>,
}

impl<T> Default for Tickets<T> {
    fn default() -> Self {
        Self(Mutex::new(Inner { waiting: HashMap::new(), open: HashMap::new() }))
    }
}

impl<T> Tickets<T> {
    /// A place for a stream to this edge. `None` if it has too many.
    pub fn take(self: &Arc<Self>, edge: &EdgeId, ticket: u128, waits: T) -> Option<Place<T>> {
        let mut inner = self.lock();
        let open = inner.open.entry(edge.clone()).or_insert_with(|| Open { places: 0, end: watch::channel(false).0 });
        if open.places >= PER_EDGE {
            return None;
        }
        open.places += 1;
        let ended = open.end.subscribe();
        inner.waiting.insert(ticket, (edge.clone(), waits));
        Some(Place { tickets: self.clone(), edge: edge.clone(), ticket, ended })
    }

    /// Whoever waits for the stream that this edge brings. Another edge's ticket is no ticket, and stays good for its own.
    pub fn redeem(&self, edge: &EdgeId, ticket: u128) -> Option<T> {
        let mut inner = self.lock();
        inner.waiting.get(&ticket).filter(|(of, _)| of == edge)?;
        inner.waiting.remove(&ticket).map(|(_, waits)| waits)
    }

    /// The edge is gone: its streams end, and its tickets are good for nothing.
    pub fn end(&self, edge: &EdgeId) {
        let mut inner = self.lock();
        inner.waiting.retain(|_, (of, _)| of != edge);
        if let Some(open) = inner.open.get_mut(edge) {
            // Those that come after it are not meant.
            open.end.send_replace(true);
            open.end = watch::channel(false).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        let mut inner = self.tickets.lock();
        inner.waiting.remove(&self.ticket);
        if let Some(open) = inner.open.get_mut(&self.edge) {
            open.places -= 1;
            if open.places == 0 {
                inner.open.remove(&self.edge);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_once_for_one_edge_while_somebody_waits() {
        let tickets = Arc::new(Tickets::default());
        let (florin, guilder) = (EdgeId::new("root", "florin"), EdgeId::new("root", "guilder"));
        let place = tickets.take(&florin, 7, "first").unwrap();
        assert_eq!(tickets.redeem(&guilder, 7), None);
        assert_eq!(tickets.redeem(&florin, 8), None);
        assert_eq!(tickets.redeem(&florin, 7), Some("first"));
        assert_eq!(tickets.redeem(&florin, 7), None);
        drop(place);
        let place = tickets.take(&florin, 9, "second").unwrap();
        drop(place);
        assert_eq!(tickets.redeem(&florin, 9), None, "nobody waits any more");
    }

    #[test]
    fn an_edge_has_so_many_places_and_none_are_lost() {
        let tickets = Arc::new(Tickets::default());
        let (florin, guilder) = (EdgeId::new("root", "florin"), EdgeId::new("root", "guilder"));
        let mut places: Vec<_> = (0..PER_EDGE as u128).filter_map(|n| tickets.take(&florin, n, ())).collect();
        assert!(places.len() == PER_EDGE && tickets.take(&florin, 1000, ()).is_none());
        assert!(tickets.take(&guilder, 1001, ()).is_some(), "others have their own");
        places.pop();
        assert!(tickets.take(&florin, 1002, ()).is_some());
        places.clear();
        let inner = tickets.lock();
        assert!(inner.open.is_empty() && inner.waiting.is_empty(), "nothing is kept for edges without tunnels");
    }

    #[test]
    fn what_is_open_ends_with_the_edge_and_what_comes_later_does_not() {
        let tickets = Arc::new(Tickets::default());
        let florin = EdgeId::new("root", "florin");
        let before = tickets.take(&florin, 1, ()).unwrap();
        tickets.end(&florin);
        let after = tickets.take(&florin, 2, ()).unwrap();
        assert!(*before.ended.borrow() && !*after.ended.borrow());
        assert_eq!((tickets.redeem(&florin, 1), tickets.redeem(&florin, 2)), (None, Some(())));
    }
}
