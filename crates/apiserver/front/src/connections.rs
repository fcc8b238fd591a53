//! The table of open connections: how many there may be, and which one gives way when there are too many.
//!
//! A peer is a stranger until it has shown a certificate or a token that is valid. Strangers are counted by their
//! address, and are the ones that give way: first those that have sent no request yet, the oldest first. A peer that
//! has proved who it is keeps its connection and does not count against its address, so any number of machines may
//! share one.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::task::AbortHandle;

/// At most this many strangers of one address may keep the server waiting for longer than [`GRACE`].
pub const PER_ADDRESS: usize = 256;
/// A stranger that has kept the server waiting for less than this is probably just connecting: it does not count
/// against its address.
pub const GRACE: Duration = Duration::from_secs(1);
/// All connections of a server.
pub struct ConnectionTable(Mutex<Table>);

/// The slot of one connection in the table. Dropping it frees the slot.
pub struct ConnectionSlot {
    table: Arc<ConnectionTable>,
    id: u64,
    known: AtomicBool,
    /// It is known by a token.
    guest: AtomicBool,
    /// The user that the connection is counted for.
    user: Mutex<Option<Box<str>>>,
}

/// The decisions, without I/O.
#[derive(Default)]
struct Table {
    most: usize,
    taken: usize,
    next: u64,
    strangers: HashMap<u64, Stranger>,
    idle: HashMap<IpAddr, Idle>,
    guests: usize,
    /// Connections of users that may have a limited number of them.
    users: HashMap<Box<str>, usize>,
    evicted: u64,
    refused: u64,
}

struct Stranger {
    address: IpAddr,
    /// Since when the server waits for it. Nothing while the server works for it.
    idle_since: Option<Instant>,
    /// It has sent a request before.
    served: bool,
    requests: usize,
    task: Option<AbortHandle>,
}

/// The strangers of one address that the server waits for, the oldest first.
#[derive(Default)]
struct Idle {
    silent: BTreeSet<(Instant, u64)>,
    served: BTreeSet<(Instant, u64)>,
}

impl Idle {
    fn len(&self) -> usize {
        self.silent.len() + self.served.len()
    }

    fn oldest(&self) -> Option<u64> {
        self.silent.first().or_else(|| self.served.first()).map(|(_, id)| *id)
    }

    /// Whether there are more than enough that have kept the server waiting.
    fn is_full(&self, most: usize, now: Instant) -> bool {
        let full = |set: &BTreeSet<(Instant, u64)>| {
            let last = if set.len() < most { None } else { set.iter().nth(most - 1) };
            last.is_some_and(|(since, _)| now.saturating_duration_since(*since) > GRACE)
        };
        full(&self.silent) || full(&self.served)
    }
}

impl Table {
    /// A place for a new connection, and the stranger that gives way for it. Nothing if there is no place.
    fn enter(&mut self, address: IpAddr, now: Instant) -> (Option<u64>, Option<u64>) {
        let mut gives_way =
            self.idle.get(&address).filter(|idle| idle.is_full(self.per_address(), now)).and_then(Idle::oldest);
        if gives_way.is_none() && self.taken >= self.most {
            let crowd = self.idle.values().max_by_key(|idle| idle.len());
            gives_way = crowd.and_then(Idle::oldest);
            if gives_way.is_none() {
                self.refused += 1;
                return (None, None);
            }
        }
        self.next += 1;
        self.taken += 1;
        let (id, idle_since) = (self.next, Some(now));
        let stranger = Stranger { address, idle_since, served: false, requests: 0, task: None };
        self.strangers.insert(id, stranger);
        self.idle.entry(address).or_default().silent.insert((now, id));
        (Some(id), gives_way)
    }

    /// At most this many strangers of one address may keep the server waiting: an eighth of all places, if that is more.
    fn per_address(&self) -> usize {
        PER_ADDRESS.max(self.most / 8)
    }

    /// Takes a stranger out of those that can give way.
    fn forget(&mut self, id: u64) -> Option<Stranger> {
        self.work_for(id);
        self.strangers.remove(&id)
    }

    /// From now on the stranger waits for the server.
    fn work_for(&mut self, id: u64) {
        let Some(stranger) = self.strangers.get_mut(&id) else { return };
        let Some(since) = stranger.idle_since.take() else { return };
        let (address, served) = (stranger.address, stranger.served);
        if let Some(idle) = self.idle.get_mut(&address) {
            let set = if served { &mut idle.served } else { &mut idle.silent };
            set.remove(&(since, id));
            if idle.len() == 0 {
                self.idle.remove(&address);
            }
        }
    }

    /// From now on the server waits for the stranger.
    fn wait_for(&mut self, id: u64, now: Instant) {
        let Some(stranger) = self.strangers.get_mut(&id).filter(|stranger| stranger.idle_since.is_none()) else {
            return;
        };
        stranger.idle_since = Some(now);
        let idle = self.idle.entry(stranger.address).or_default();
        let set = if stranger.served { &mut idle.served } else { &mut idle.silent };
        set.insert((now, id));
    }

    fn begin_request(&mut self, id: u64) {
        self.work_for(id);
        if let Some(stranger) = self.strangers.get_mut(&id) {
            stranger.requests += 1;
            stranger.served = true;
        }
    }

    fn end_request(&mut self, id: u64, now: Instant) {
        let Some(stranger) = self.strangers.get_mut(&id) else { return };
        stranger.requests = stranger.requests.saturating_sub(1);
        if stranger.requests == 0 {
            self.wait_for(id, now);
        }
    }

    /// Counts a connection for a user that may have at most `max`. False if there are too many.
    fn count_for(&mut self, user: &str, max: usize) -> bool {
        let count = self.users.entry(user.into()).or_default();
        if *count >= max {
            return false;
        }
        *count += 1;
        true
    }

    fn leave(&mut self, id: u64, user: Option<&str>) {
        self.forget(id);
        self.taken -= 1;
        if let Some(user) = user
            && let Some(count) = self.users.get_mut(user)
        {
            *count -= 1;
            if *count == 0 {
                self.users.remove(user);
            }
        }
    }
}

/// Strangers of one network of IPv6 count as one address, as each of them may choose among all of its addresses.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

impl ConnectionTable {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Table { most, ..Table::default() })))
    }

    /// A place for a connection from this address. Nothing if all places are taken by peers that proved who they are,
    /// or by requests.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Arc<ConnectionSlot>> {
        let mut table = self.table();
        let (id, gives_way) = table.enter(network_of(address), Instant::now());
        let ended = gives_way.and_then(|id| table.forget(id));
        table.evicted += u64::from(ended.is_some());
        drop(table);
        if let Some(task) = ended.and_then(|ended| ended.task) {
            task.abort();
        }
        let (known, guest) = (AtomicBool::new(false), AtomicBool::new(false));
        Some(Arc::new(ConnectionSlot { table: self.clone(), id: id?, known, guest, user: Mutex::default() }))
    }

    /// How many connections there are.
    pub fn taken(&self) -> usize {
        self.table().taken
    }

    /// How many strangers gave way, and how many connections were refused.
    pub fn turned_away(&self) -> (u64, u64) {
        let table = self.table();
        (table.evicted, table.refused)
    }

    /// For `/metrics`.
    pub fn text(&self, out: &mut String) {
        let (taken, strangers, evicted, refused) = {
            let table = self.table();
            (table.taken, table.strangers.len(), table.evicted, table.refused)
        };
        let _ = writeln!(
            out,
            "# HELP selvedge_connections Open connections.\n# TYPE selvedge_connections gauge\nselvedge_connections {taken}\n\
             # HELP selvedge_connections_unproved Open connections of peers that have shown no valid credential.\n\
             # TYPE selvedge_connections_unproved gauge\nselvedge_connections_unproved {strangers}\n\
             # HELP selvedge_connections_turned_away Connections that were closed or refused because there were too many.\n\
             # TYPE selvedge_connections_turned_away counter\n\
             selvedge_connections_turned_away_total{{how=\"closed\"}} {evicted}\n\
             selvedge_connections_turned_away_total{{how=\"refused\"}} {refused}"
        );
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// The task that serves the connection; it is ended if the connection has to give way.
    pub fn served_by(&self, task: AbortHandle) {
        if let Some(stranger) = self.table.table().strangers.get_mut(&self.id) {
            stranger.task = Some(task);
        }
    }

    /// A request of the peer had a valid token. The peer is known from now on, unless most places are taken in this
    /// way: the others are kept for certificates, and for strangers that may have one.
    pub fn know_guest(&self) {
        let mut table = self.table.table();
        if !self.known.load(Relaxed) && table.guests < table.most - table.most / 4 {
            table.guests += 1;
            table.forget(self.id);
            self.guest.store(true, Relaxed);
            self.known.store(true, Relaxed);
        }
    }

    /// The peer has shown a valid certificate.
    pub fn know(&self) {
        if !self.known.swap(true, Relaxed) {
            self.table.table().forget(self.id);
        }
    }

    /// The peer is this user, who may have at most `max` connections. False if there are too many.
    pub fn know_user(&self, name: &str, max: usize) -> bool {
        self.know();
        let counted = self.table.table().count_for(name, max);
        if counted {
            *self.user.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.into());
        }
        counted
    }

    pub fn is_known(&self) -> bool {
        self.known.load(Relaxed)
    }

    /// The server has something to do before it waits for the peer again.
    pub fn work(&self) {
        self.table.table().work_for(self.id);
    }

    /// The server waits for the peer.
    pub fn wait(&self) {
        self.table.table().wait_for(self.id, Instant::now());
    }

    /// A request of a stranger is answered for as long as the answer is held.
    pub fn request(self: &Arc<Self>) -> Request {
        self.table.table().begin_request(self.id);
        Request(self.clone())
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let user = self.user.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let mut table = self.table.table();
        table.guests -= usize::from(*self.guest.get_mut());
        table.leave(self.id, user.as_deref());
    }
}

/// A request of a stranger.
pub struct Request(Arc<ConnectionSlot>);

impl Drop for Request {
    fn drop(&mut self) {
        self.0.table.table().end_request(self.0.id, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(n: u8) -> IpAddr {
        [10, 0, 0, n].into()
    }

    fn table(most: usize) -> Table {
        Table { most, ..Table::default() }
    }

    #[test]
    fn silent_strangers_of_one_address_give_way_to_the_next_of_it() {
        let (mut table, start) = (table(1000), Instant::now());
        assert_eq!(table.per_address(), PER_ADDRESS);
        let ids: Vec<u64> = (0..PER_ADDRESS).map(|_| table.enter(address(1), start).0.unwrap()).collect();
        assert_eq!(table.enter(address(1), start).1, None, "they may just be connecting");
        let later = start + GRACE * 2;
        assert_eq!(table.enter(address(2), later).1, None, "another address is not concerned");
        assert_eq!(table.enter(address(1), later).1, Some(ids[0]));
        table.forget(ids[0]);
        table.forget(ids[1]);
        table.work_for(ids[2]);
        assert_eq!(table.enter(address(1), later).1, None, "one proved who it is, one waits for the server");
    }

    #[test]
    fn a_full_table_has_room_for_all_but_those_behind_it() {
        let (mut table, now) = (table(4), Instant::now());
        let ids: Vec<u64> = (0..4).map(|n| table.enter(address(n / 3), now + GRACE * n.into()).0.unwrap()).collect();
        table.begin_request(ids[0]);
        table.end_request(ids[0], now + GRACE * 9);
        assert_eq!(table.enter(address(9), now + GRACE * 10).1, Some(ids[1]), "the oldest that never sent a request");
        for id in &ids {
            table.forget(*id);
        }
        let more: Vec<Option<u64>> = (0..2).map(|_| table.enter(address(9), now).1).collect();
        assert!(more[0].is_some(), "a stranger gives way");
        let strangers: Vec<u64> = table.strangers.keys().copied().collect();
        strangers.iter().for_each(|id| drop(table.forget(*id)));
        assert_eq!(table.enter(address(9), now), (None, None), "peers that are known keep their places");
        assert_eq!(table.refused, 1);
    }

    #[test]
    fn the_connections_of_a_user_are_limited() {
        let mut table = table(100);
        for _ in 0..3 {
            table.enter(address(1), Instant::now());
            assert!(table.count_for("a", 3));
        }
        assert!(!table.count_for("a", 3) && table.count_for("b", 3));
        table.leave(1, Some("a"));
        assert!(table.count_for("a", 3));
    }

    #[test]
    fn tokens_do_not_take_all_places() {
        let connections = ConnectionTable::new(8);
        let all: Vec<Arc<ConnectionSlot>> = (0..8).filter_map(|n| connections.enter(address(n))).collect();
        all.iter().for_each(|slot| slot.know_guest());
        assert_eq!(all.iter().filter(|slot| slot.is_known()).count(), 6);
        let more = connections.enter(address(9)).unwrap();
        more.know();
        assert!(more.is_known() && connections.turned_away() == (1, 0));
        drop((all, more));
        let table = connections.table();
        assert_eq!((table.taken, table.guests, table.strangers.len()), (0, 0, 0));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let network = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), address(1));
    }

    proptest! {
        /// Whatever happens, the sets name exactly the strangers that the server waits for, and nothing is left behind.
        #[test]
        fn the_books_balance(steps in prop::collection::vec((0u8..6, 0u8..3, any::<u16>()), 0..200)) {
            let (mut table, start) = (table(20), Instant::now());
            let mut here: Vec<u64> = Vec::new();
            for (n, (step, from, which)) in steps.into_iter().enumerate() {
                let now = start + Duration::from_millis(100 * n as u64);
                let id = here.get(usize::from(which) % here.len().max(1)).copied().unwrap_or(99_999);
                match step {
                    0 => {
                        let (new, gives_way) = table.enter(address(from), now);
                        if let Some(id) = gives_way {
                            prop_assert!(table.forget(id).is_some());
                        }
                        here.extend(new);
                    }
                    1 => table.work_for(id),
                    2 => table.wait_for(id, now),
                    3 => table.begin_request(id),
                    4 => table.end_request(id, now),
                    _ => {
                        if let Some(at) = here.iter().position(|other| *other == id) {
                            here.remove(at);
                            table.leave(id, None);
                        }
                    }
                }
                let waited_for = table.strangers.values().filter(|stranger| stranger.idle_since.is_some()).count();
                prop_assert_eq!(table.idle.values().map(Idle::len).sum::<usize>(), waited_for);
                prop_assert!(table.idle.values().all(|idle| idle.len() > 0));
                prop_assert_eq!(table.taken, here.len());
            }
        }
    }
}
