use super::*;
use proptest::prelude::*;

fn text(text: impl AsRef<str>) -> Arc<str> {
    text.as_ref().into()
}

fn place_id(n: u8) -> Id {
    Id::new("root:shop", &format!("p{n}"))
}

#[derive(Clone, Debug)]
enum Edit {
    Place(u8, Vec<u8>),
    Select(u8, Vec<u8>),
    Hold(u8, Vec<Option<u8>>),
    Remove(u8),
    /// Connected or not; how far it is: 0 behind, 1 all but what it refused, 2 in sync.
    Edge(u8, bool, u8, Vec<u8>),
    Report(u8, u8, bool),
    Void(u8),
}

fn edit() -> impl Strategy<Value = Edit> {
    let edges = || proptest::collection::vec(0u8..5, 0..5);
    let objects = || proptest::collection::vec(0u8..4, 0..4);
    prop_oneof![
        2 => (0u8..3, edges()).prop_map(|(p, edges)| Edit::Place(p, edges)),
        2 => (0u8..3, objects()).prop_map(|(p, objects)| Edit::Select(p, objects)),
        1 => (0u8..3, proptest::collection::vec(proptest::option::of(0u8..5), 0..2)).prop_map(|(p, at)| Edit::Hold(p, at)),
        1 => (0u8..3).prop_map(Edit::Remove),
        4 => (0u8..5, any::<bool>(), 0u8..3, proptest::collection::vec(0u8..4, 0..2))
            .prop_map(|(e, connected, far, refused)| Edit::Edge(e, connected, far, refused)),
        3 => (0u8..5, 0u8..4, any::<bool>()).prop_map(|(e, o, broken)| Edit::Report(e, o, broken)),
        1 => (0u8..5).prop_map(Edit::Void),
    ]
}

/// Edges and objects, since when each, and what is wrong with it and where.
type Placed = (BTreeMap<u8, u64>, BTreeMap<u8, u64>, Vec<Option<u8>>);

#[derive(Clone, Default)]
struct ModelEdge {
    connected: bool,
    far: u8,
    refused: Vec<u8>,
    last_refused: Vec<u8>,
    synced: Option<u64>,
    complete: Option<u64>,
}

/// Everything that was said, and everything looked through whenever something is asked.
#[derive(Default)]
struct Model {
    placements: BTreeMap<u8, Placed>,
    edges: BTreeMap<u8, ModelEdge>,
    broken: BTreeSet<(u8, u8)>,
    clock: u64,
}

impl Model {
    fn edit(&mut self, edit: &Edit) {
        self.clock += 1;
        let now = self.clock;
        match edit.clone() {
            Edit::Place(p, edges) => {
                let (placed, ..) = self.placements.entry(p).or_default();
                placed.retain(|edge, _| edges.contains(edge));
                edges.iter().for_each(|edge| _ = placed.entry(*edge).or_insert(now));
            }
            Edit::Select(p, objects) => {
                let (_, selected, _) = self.placements.entry(p).or_default();
                selected.retain(|object, _| objects.contains(object));
                objects.iter().for_each(|object| _ = selected.entry(*object).or_insert(now));
            }
            Edit::Hold(p, at) => {
                self.placements.entry(p).or_default().2 = at;
            }
            Edit::Remove(p) => drop(self.placements.remove(&p)),
            Edit::Edge(e, connected, far, refused) => {
                let known = self.edges.entry(e).or_default();
                let (synced, complete) = (connected && far > 0, connected && far > 1);
                known.synced = if synced { Some(now) } else { known.synced };
                known.complete = if complete { Some(now) } else { known.complete };
                if connected {
                    known.last_refused.clone_from(&refused);
                }
                (known.connected, known.far, known.refused) = (connected, far, refused);
            }
            Edit::Report(e, o, true) => drop(self.broken.insert((e, o))),
            Edit::Report(e, o, false) => drop(self.broken.remove(&(e, o))),
            Edit::Void(e) => self.broken.retain(|(edge, _)| *edge != e),
        }
    }

    fn standing(&self, p: u8) -> Option<[usize; 5]> {
        let (edges, objects, held) = self.placements.get(&p)?;
        let mut counts = [0; 5];
        for edge in edges.keys() {
            let ModelEdge { connected, far, refused, .. } = self.edges.get(edge).cloned().unwrap_or_default();
            let troubled = |object: &u8| refused.contains(object) || self.broken.contains(&(*edge, *object));
            let held = held.contains(&None) || held.contains(&Some(*edge));
            let failing = held || objects.keys().any(troubled);
            counts[0] += 1;
            counts[match (connected, failing, far > 0) {
                (false, ..) => 1,
                (_, true, _) => 2,
                (.., false) => 3,
                (.., true) => 4,
            }] += 1;
        }
        Some(counts)
    }

    fn held(&self, object: u8) -> (Vec<u8>, usize) {
        let (mut edges, mut held) = (BTreeSet::new(), BTreeSet::new());
        for (placed, selected, _) in self.placements.values() {
            let Some(since) = selected.get(&object) else { continue };
            for (edge, at) in placed {
                edges.insert(*edge);
                let known = self.edges.get(edge).cloned().unwrap_or_default();
                let holds = if known.last_refused.contains(&object) { known.complete } else { known.synced };
                if holds.is_some_and(|synced| synced > *since.max(at)) {
                    held.insert(*edge);
                }
            }
        }
        (edges.into_iter().collect(), held.len())
    }
}

fn apply(accounts: &mut Accounts, edit: &Edit) {
    let edge = |e: u8| text(format!("root:e{e}"));
    let object = |o: u8| text(format!("core/configmaps/a/o{o}"));
    match edit.clone() {
        Edit::Place(p, edges) => {
            let to: Vec<_> = edges.iter().map(|e| (edge(*e), text(format!("root:l{e}")))).collect();
            accounts.open(&place_id(p), to.len());
            accounts.place(&place_id(p), &to);
        }
        Edit::Select(p, objects) => drop(accounts.select(&place_id(p), &objects.iter().map(|o| object(*o)).collect())),
        Edit::Hold(p, at) => {
            let location = |at: &Option<u8>| at.map(|l| Id::new("root", &format!("l{l}")));
            let fault = |at: &Option<u8>| Fault {
                object: "x".into(),
                location: location(at),
                path: String::new(),
                reason: "no".into(),
            };
            accounts.hold(&place_id(p), &at.iter().map(fault).collect::<Vec<_>>(), &[], &BTreeSet::new());
        }
        Edit::Remove(p) => accounts.remove(&place_id(p)),
        Edit::Edge(e, connected, far, refused) => {
            let refused = refused.iter().map(|o| (object(*o), text("too strange"))).collect();
            let now = Edge { connected, in_sync: far > 1, delivered: far > 0, refused, ..Edge::default() };
            accounts.edge(&edge(e), now, false);
        }
        Edit::Report(e, o, broken) => accounts.report(&edge(e), &object(o), broken.then(|| text("ill"))),
        Edit::Void(e) => accounts.void(&edge(e)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Counted from changes, and found by looking through everything: the same. And nobody misses that something is new.
    #[test]
    fn counting_is_as_looking_through_everything(edits in proptest::collection::vec(edit(), 0..60)) {
        let (mut accounts, mut model) = (Accounts::default(), Model::default());
        let (mut said, mut counted) = (BTreeMap::new(), BTreeMap::new());
        for edit in &edits {
            apply(&mut accounts, edit);
            model.edit(edit);
            for id in accounts.take_changed() {
                said.insert(id.clone(), accounts.standing(&id));
            }
            for source in accounts.take_counted() {
                let held = accounts.held(&source);
                counted.insert(source, held);
            }
            for p in 0..3 {
                let standing = accounts.standing(&place_id(p));
                let counts = standing.as_ref().map(|s| [s.matched, s.offline, s.failing, s.behind, s.in_sync]);
                prop_assert_eq!(counts, model.standing(p), "{:?}", edit);
                if let Some(standing) = standing {
                    prop_assert_eq!(Some(&Some(standing)), said.get(&place_id(p)), "{:?} was not told", edit);
                }
            }
            for o in 0..4 {
                let source = (text("root:shop"), text(format!("core/configmaps/a/o{o}")));
                let (edges, held) = model.held(o);
                let want = (edges.iter().map(|e| text(format!("root:e{e}"))).collect::<Vec<_>>(), held);
                let now = accounts.held(&source);
                prop_assert_eq!(&now, &want, "{:?} of {}", edit, o);
                prop_assert_eq!(counted.get(&source).cloned().unwrap_or_default(), now, "{:?} was not told of {}", edit, o);
            }
        }
        for p in 0..3 { accounts.remove(&place_id(p)); }
        for e in 0..5 { accounts.drop_edge(&text(format!("root:e{e}"))); }
        prop_assert!(accounts.edges.all().next().is_none() && accounts.placements.all().next().is_none(), "nothing is left behind");
        prop_assert!(accounts.sources.is_empty() && accounts.troubled.is_empty());
    }
}

#[test]
fn what_is_wrong_is_named() {
    let mut accounts = Accounts::default();
    let edges: Vec<_> = (0..30).map(|n| (text(format!("root:e{n:02}")), text(format!("root:l{n:02}")))).collect();
    accounts.place(&place_id(1), &edges);
    accounts.select(&place_id(1), &[text("apps/deployments/a/b")].into());
    for (edge, _) in &edges {
        accounts.edge(edge, Edge { connected: true, in_sync: true, ..Edge::default() }, false);
        accounts.report(edge, &text("apps/deployments/a/b"), Some(text("no image")));
        accounts.report(edge, &text("apps/deployments/a/other"), Some(text("not this placement's")));
    }
    let standing = accounts.standing(&place_id(1)).unwrap();
    assert_eq!((standing.failing, standing.in_sync, standing.broken.len(), standing.refused), (30, 0, 20, false));
    assert_eq!(&*standing.broken[0].reason, "no image");
    assert_eq!((&*standing.broken[0].location, &*standing.broken[0].object), ("root:l00", "apps/deployments/a/b"));
}

#[test]
fn what_edges_held_before_is_not_forgotten_by_a_restart() {
    let mut accounts = Accounts::default();
    let (edge, object) = (text("root:e1"), text("core/configmaps/a/o1"));
    accounts.place(&place_id(1), &[(edge.clone(), text("root:l1"))]);
    accounts.select(&place_id(1), &[object.clone()].into());
    accounts.begin(&place_id(1), |_| true);
    accounts.edge(&edge, Edge::default(), true);
    let source = (text("root:shop"), object.clone());
    assert_eq!(accounts.held(&source).1, 1);
    let new = text("core/configmaps/a/new");
    accounts.select(&place_id(1), &[object, new.clone()].into());
    assert_eq!(accounts.held(&(text("root:shop"), new)).1, 0, "it was not there then");
    assert_eq!(accounts.held(&source).1, 1);
}
