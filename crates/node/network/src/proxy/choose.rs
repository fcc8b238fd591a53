//! Which of those behind a door is next. Without I/O.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use crate::table::Behind;

/// So many clients of one door are remembered; of more, the one that came first is forgotten.
const REMEMBERED: usize = 4096;

#[derive(Default)]
pub struct Chooser {
    behind: Behind,
    next: usize,
    /// Who was led where, and when they came last.
    clients: HashMap<IpAddr, (SocketAddr, Instant)>,
}

impl Chooser {
    pub fn new(behind: Behind) -> Self {
        Self { behind, ..Self::default() }
    }

    pub fn set(&mut self, behind: Behind) {
        self.clients.retain(|_, (to, _)| behind.endpoints.contains(to));
        if behind.affinity.is_none() {
            self.clients.clear();
        }
        self.behind = behind;
    }

    pub fn has(&self, endpoint: &SocketAddr) -> bool {
        self.behind.endpoints.contains(endpoint)
    }

    /// `tried` are those that did not answer just now.
    pub fn choose(&mut self, client: IpAddr, tried: &[SocketAddr], now: Instant) -> Option<SocketAddr> {
        if let Some(within) = self.behind.affinity
            && let Some((to, last)) = self.clients.get_mut(&client)
            && now.duration_since(*last) <= within
            && !tried.contains(to)
        {
            *last = now;
            return Some(*to);
        }
        let count = self.behind.endpoints.len();
        for n in 0..count {
            let at = (self.next + n) % count;
            let Some(to) = self.behind.endpoints.get(at).filter(|to| !tried.contains(to)).copied() else { continue };
            self.next = (at + 1) % count;
            if self.behind.affinity.is_some() {
                self.remember(client, to, now);
            }
            return Some(to);
        }
        None
    }

    fn remember(&mut self, client: IpAddr, to: SocketAddr, now: Instant) {
        if self.clients.len() >= REMEMBERED
            && !self.clients.contains_key(&client)
            && let Some(oldest) = self.clients.iter().min_by_key(|(_, (_, last))| *last).map(|(client, _)| *client)
        {
            self.clients.remove(&oldest);
        }
        self.clients.insert(client, (to, now));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn behind(count: u16, affinity: Option<u64>) -> Behind {
        let endpoints = (1..=count).map(|n| SocketAddr::new([127, 9, 0, 1].into(), n)).collect();
        Behind { of: Default::default(), endpoints, affinity: affinity.map(Duration::from_secs) }
    }

    fn client(n: u8) -> IpAddr {
        [127, 0, 0, n].into()
    }

    #[test]
    fn one_after_the_other() {
        let mut chooser = Chooser::new(behind(3, None));
        let now = Instant::now();
        let ports: Vec<u16> = (0..6).filter_map(|_| chooser.choose(client(1), &[], now)).map(|to| to.port()).collect();
        assert_eq!(ports, [1, 2, 3, 1, 2, 3]);
        assert_eq!(Chooser::default().choose(client(1), &[], now), None);
    }

    #[test]
    fn clients_come_back_to_the_same_for_a_while() {
        let mut chooser = Chooser::new(behind(3, Some(10)));
        let now = Instant::now();
        let to = |chooser: &mut Chooser, n: u8, seconds: u64| {
            chooser.choose(client(n), &[], now + Duration::from_secs(seconds)).unwrap()
        };
        let first = to(&mut chooser, 1, 0);
        let second = to(&mut chooser, 2, 0);
        assert_ne!(first, second);
        assert_eq!((to(&mut chooser, 1, 9), to(&mut chooser, 1, 18)), (first, first), "each time counts anew");
        assert_ne!(to(&mut chooser, 1, 29), first);
        // One that is gone is nobody's any more.
        let rest = Behind {
            endpoints: behind(3, None).endpoints.into_iter().filter(|one| *one != second).collect(),
            ..behind(3, Some(10))
        };
        chooser.set(rest);
        assert_ne!(to(&mut chooser, 2, 1), second);
    }

    proptest! {
        /// Whoever is chosen is there, was not tried, and all have their turn.
        #[test]
        fn nobody_is_left_out(count in 1..9_u16, tried in prop::collection::vec(0..9_usize, 0..9), affinity in prop::option::of(1..9_u64)) {
            let behind = behind(count, affinity);
            let tried: Vec<SocketAddr> = tried.iter().filter_map(|n| behind.endpoints.get(*n).copied()).collect();
            let mut chooser = Chooser::new(behind.clone());
            let mut seen = std::collections::BTreeSet::new();
            for n in 0..count {
                let Some(to) = chooser.choose(client(u8::try_from(n).unwrap()), &tried, Instant::now()) else { break };
                prop_assert!(behind.endpoints.contains(&to) && !tried.contains(&to));
                seen.insert(to);
            }
            let open = behind.endpoints.iter().filter(|one| !tried.contains(one)).count();
            prop_assert_eq!(seen.len(), open);
        }
    }
}
