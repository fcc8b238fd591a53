//! What a reconnect costs on the wire, what a session costs in memory, and what comes first in a session.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use std::collections::VecDeque;

use bytes::Bytes;
use selvedge_link::testing::MemoryHolding;
use selvedge_link::*;

struct Pair {
    desired: MemoryDesired,
    disk: MemoryHolding,
    session: Session,
    edge: Edge,
    statuses: Vec<CenterStatus>,
    bytes: usize,
    wire: VecDeque<(bool, Bytes)>,
}

impl Pair {
    fn new(desired: MemoryDesired, disk: MemoryHolding) -> Self {
        let session = Session::new(7_000_000_001, 0);
        Self { desired, disk, session, edge: Edge::new(0, 1), statuses: Vec::new(), bytes: 0, wire: VecDeque::new() }
    }

    fn connect(&mut self) {
        self.edge(EdgeInput::Tick);
        self.edge(EdgeInput::Connected);
        self.settle();
    }

    /// Delivers in order until nothing is under way.
    fn settle(&mut self) {
        while let Some((up, bytes)) = self.wire.pop_front() {
            self.bytes += bytes.len();
            let message = Message::decode(bytes).unwrap();
            match up {
                true => self.center(CenterInput::Received(message)),
                false => self.edge(EdgeInput::Received(message)),
            }
        }
    }

    fn edge(&mut self, input: EdgeInput) {
        for output in self.edge.handle(0, input, &self.disk) {
            match output {
                EdgeOutput::Send(message) => self.wire.push_back((true, message.encode())),
                EdgeOutput::Apply { ticket, batch } => {
                    self.disk.commit(&batch);
                    self.edge(EdgeInput::Applied { ticket });
                }
                _ => {}
            }
        }
    }

    fn center(&mut self, input: CenterInput) {
        for output in self.session.handle(0, input, &self.desired) {
            match output {
                CenterOutput::Send(message) => self.wire.push_back((false, message.encode())),
                CenterOutput::Status(status) => self.statuses.push(status),
                _ => {}
            }
        }
    }

    fn say(&mut self, input: CenterInput) {
        self.center(input);
        self.settle();
    }
}

fn thousand() -> MemoryDesired {
    let mut desired = MemoryDesired::new(0xfeed_beef_dead_cafe);
    for n in 0..1_000 {
        desired.put(&format!("apps/deployments/shop/web-{n}").into(), Bytes::from(vec![b'x'; 500]));
    }
    desired
}

fn synced(desired: &MemoryDesired) -> MemoryHolding {
    let mut pair = Pair::new(desired.clone(), MemoryHolding::default());
    pair.connect();
    assert!(pair.disk.objects == *desired.objects());
    assert!(pair.bytes < 600_000, "a first sync of half a megabyte took {} bytes", pair.bytes);
    pair.disk
}

#[test]
fn an_unchanged_edge_reconnects_with_little() {
    let desired = thousand();
    let mut pair = Pair::new(desired.clone(), synced(&desired));
    pair.connect();
    println!("reconnect of an unchanged edge: {} bytes both ways", pair.bytes);
    assert!(pair.bytes <= 200, "{}", pair.bytes);
    assert_eq!(pair.statuses.last(), Some(&CenterStatus::InSync(true)));
    println!("an idle session: {} bytes", pair.session.memory());
    assert!(pair.session.memory() < 2_048, "{}", pair.session.memory());
}

#[test]
fn an_edge_that_missed_ten_gets_those() {
    let mut desired = thousand();
    let disk = synced(&desired);
    for n in 0..10 {
        desired.put(&format!("apps/deployments/shop/web-{}", n * 97).into(), Bytes::from(vec![b'y'; 500]));
    }
    let mut pair = Pair::new(desired, disk);
    pair.connect();
    assert!(pair.disk.objects == *pair.desired.objects());
    println!("reconnect after 10 of 1,000 objects changed: {} bytes both ways, 5,000 of them content", pair.bytes);
    assert!(pair.bytes <= 10 * 500 + 5_000, "{}", pair.bytes);
    assert!(pair.session.memory() < 4_096, "{}", pair.session.memory());
}

#[test]
fn an_empty_desired_set_deletes_nothing_until_confirmed() {
    let desired = thousand();
    let mut pair = Pair::new(MemoryDesired::new(0xfeed_beef_dead_cafe), synced(&desired));
    pair.desired = desired;
    for key in pair.disk.objects.keys() {
        pair.desired.delete(key);
    }
    pair.connect();
    assert_eq!(pair.disk.objects.len(), 1_000);
    assert!(pair.statuses.contains(&CenterStatus::DeletionHeld(Some((1_000, 1_000)))));
    pair.say(CenterInput::ConfirmDeletion { up_to: 999 });
    assert_eq!(pair.disk.objects.len(), 1_000);
    pair.say(CenterInput::ConfirmDeletion { up_to: 1_000 });
    assert!(pair.disk.objects.is_empty());
    assert!(pair.statuses.contains(&CenterStatus::DeletionHeld(None)));
}

/// An edge with 2,000 objects, and the keys of all of them.
fn two_thousand() -> (Pair, Vec<Key>) {
    let mut desired = MemoryDesired::new(1);
    let keys: Vec<Key> = (0..2_000).map(|n| format!("core/configmaps/n/{n:04}").into()).collect();
    keys.iter().for_each(|key| desired.put(key, Bytes::from_static(b"{}")));
    let mut pair = Pair::new(desired, MemoryHolding::default());
    pair.connect();
    (pair, keys)
}

impl Pair {
    /// These are not desired any more; nothing of what is sent arrives yet.
    fn withdraw(&mut self, keys: &[Key]) {
        keys.iter().for_each(|key| self.desired.delete(key));
        self.center(CenterInput::Changed(keys.to_vec()));
    }

    fn has(&self, keys: &[Key]) -> usize {
        keys.iter().filter(|key| self.disk.objects.contains_key(*key)).count()
    }
}

#[test]
fn what_was_permitted_goes_whole_although_more_comes() {
    let (mut pair, keys) = two_thousand();
    // More than fits into the batches that may be in flight.
    pair.withdraw(&keys[..900]);
    pair.withdraw(&keys[900..1_100]);
    pair.settle();
    assert_eq!((pair.has(&keys[..900]), pair.has(&keys[900..1_100])), (0, 200), "each is whole");
    let held = pair.statuses.iter().rev().find(|status| matches!(status, CenterStatus::DeletionHeld(_)));
    assert_eq!(held, Some(&CenterStatus::DeletionHeld(Some((200, 1_100)))));
    assert_eq!(pair.session.held().count(), 200);
    // What is put back while it waits to be sent is not deleted.
    let (mut pair, keys) = two_thousand();
    pair.withdraw(&keys[..900]);
    pair.desired.put(&keys[899], Bytes::from_static(b"{}"));
    pair.say(CenterInput::Changed(vec![keys[899].clone()]));
    assert!(pair.disk.objects == *pair.desired.objects());
    assert_eq!(pair.statuses.last(), Some(&CenterStatus::InSync(true)));
}

#[test]
fn what_is_intended_goes_and_the_rest_is_held() {
    let (mut pair, keys) = two_thousand();
    pair.desired.intended = keys[..1_500].iter().cloned().collect();
    pair.withdraw(&keys[..1_900]);
    pair.settle();
    assert_eq!((pair.has(&keys[..1_500]), pair.has(&keys[1_500..])), (0, 500));
    let said: Vec<_> = pair.statuses.iter().filter(|s| matches!(s, CenterStatus::DeletionHeld(Some(_)))).collect();
    assert_eq!(said, [&CenterStatus::DeletionHeld(Some((400, 500)))], "the numbers are true");
    // Stated afterwards, it goes as soon as the session is asked to look.
    pair.desired.intended = keys.iter().cloned().collect();
    pair.say(CenterInput::Changed(Vec::new()));
    assert!(pair.disk.objects == *pair.desired.objects());
}

#[test]
fn what_is_incidental_goes_with_the_last_and_is_not_counted() {
    let mut desired = MemoryDesired::new(1);
    let keys: Vec<Key> = ["config", "core/configmaps/n/a", "core/configmaps/n/b"].map(Key::from).to_vec();
    keys.iter().for_each(|key| desired.put(key, Bytes::from_static(b"{}")));
    let mut pair = Pair::new(desired, MemoryHolding::default());
    pair.connect();
    pair.withdraw(&keys);
    pair.settle();
    assert!(pair.statuses.contains(&CenterStatus::DeletionHeld(Some((2, 3)))));
    assert_eq!(pair.has(&keys), 3);
    pair.say(CenterInput::ConfirmDeletion { up_to: 2 });
    assert_eq!(pair.has(&keys), 0);
    // Alone it asks nobody.
    let mut desired = MemoryDesired::new(1);
    desired.put(&keys[0], Bytes::from_static(b"{}"));
    let mut pair = Pair::new(desired, MemoryHolding::default());
    pair.connect();
    pair.withdraw(&keys[..1]);
    pair.settle();
    assert_eq!((pair.has(&keys), pair.statuses.last()), (0, Some(&CenterStatus::InSync(true))));
}

#[test]
fn more_deletions_than_the_queue_holds_are_decided_together() {
    let mut desired = MemoryDesired::new(1);
    let keys: Vec<Key> = (0..50_000).map(|n| format!("core/configmaps/n/{n:05}").into()).collect();
    keys.iter().for_each(|key| desired.put(key, Bytes::from_static(b"{}")));
    let mut pair = Pair::new(desired, MemoryHolding::default());
    pair.connect();
    assert_eq!(pair.disk.objects.len(), 50_000);
    keys[..30_000].iter().for_each(|key| pair.desired.delete(key));
    pair.center(CenterInput::Changed(keys[..30_000].to_vec()));
    let held =
        |pair: &Pair| pair.statuses.iter().any(|s| matches!(s, CenterStatus::DeletionHeld(Some((30_000, 50_000)))));
    assert!(held(&pair), "{:?}", pair.statuses.last());
    assert_eq!(pair.has(&keys), 50_000, "nothing is taken before all of it is decided");
}

#[test]
fn a_center_from_a_backup_changes_nothing() {
    let backup = thousand();
    let mut later = backup.clone();
    later.put(&"apps/deployments/shop/new".into(), Bytes::from_static(b"z"));
    let disk = synced(&later);
    for center in [backup, MemoryDesired::new(5)] {
        let mut pair = Pair::new(center, MemoryHolding::default());
        pair.disk.commit(&Batch {
            session: 1,
            seq: 1,
            position: later.position(),
            adopt: false,
            changes: disk.objects.iter().map(|(key, content)| (key.clone(), Some(content.clone()))).collect(),
        });
        pair.connect();
        assert!(pair.disk.objects == *later.objects());
        assert_eq!(pair.statuses.last(), Some(&CenterStatus::RolledBack { edge: later.position() }));
        pair.say(CenterInput::Adopt);
        assert_eq!(pair.disk.seen, Some(pair.desired.position()));
    }
}

#[test]
fn a_desired_set_that_is_not_ready_is_not_compared() {
    let mut desired = thousand();
    let disk = synced(&desired);
    desired.ready = false;
    let mut pair = Pair::new(desired, disk);
    pair.connect();
    assert!(pair.bytes < 120 && pair.statuses.is_empty());
}

#[test]
fn more_than_the_queue_holds_arrives_by_another_comparison() {
    let mut desired = MemoryDesired::new(1);
    for n in 0..25_000 {
        desired.put(&format!("v1/configmaps/n/{n}").into(), Bytes::from_static(b"{}"));
    }
    let mut pair = Pair::new(desired, MemoryHolding::default());
    pair.connect();
    assert_eq!(pair.disk.objects.len(), 25_000);
    assert_eq!(pair.statuses.last(), Some(&CenterStatus::InSync(true)));
}

#[test]
fn a_blocked_transport_is_given_nothing() {
    let mut pair = Pair::new(thousand(), MemoryHolding::default());
    pair.say(CenterInput::Blocked(true));
    pair.connect();
    assert!(pair.disk.objects.is_empty());
    pair.say(CenterInput::Blocked(false));
    assert_eq!(pair.disk.objects.len(), 1_000);
}
