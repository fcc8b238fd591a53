use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn collector(spec: Value) -> Collector {
    Collector::read(&json!({"metadata": {"generation": 1}, "spec": spec})).unwrap()
}

fn key(edge: u8, object: u8) -> RowKey {
    RowKey { edge: format!("root:e{edge}").into(), object: format!("apps/deployments/shop/d{object}").into() }
}

/// All that is known of a row.
#[derive(Clone, Debug)]
struct Known {
    object: Value,
    region: &'static str,
}

fn known() -> impl Strategy<Value = Known> {
    let numbers = prop_oneof![
        (-5i64..5).prop_map(|n| json!(n)),
        prop_oneof![Just(0.1), Just(0.25), Just(1e17), Just(-3.5), Just(1e-9)].prop_map(|n| json!(n)),
        prop_oneof![Just("100m"), Just("1Gi"), Just("lots"), Just("3")].prop_map(|n| json!(n)),
        Just(Value::Null),
        Just(json!([1])),
    ];
    let status = prop_oneof![
        Just(json!({})),
        (numbers, 0i64..3).prop_map(|(used, ready)| json!({"used": used, "ready": ready})),
    ];
    (status, prop_oneof![Just("eu"), Just("us")]).prop_map(|(status, region)| Known {
        object: json!({"metadata": {"name": "d"}, "spec": {"replicas": 2}, "status": status}),
        region,
    })
}

#[derive(Clone, Debug)]
enum Edit {
    Set(u8, u8, Known),
    Remove(u8, u8),
    Link(u8, Link),
    Pass(i64),
    Look,
}

fn edit() -> impl Strategy<Value = Edit> {
    let link = (any::<bool>(), any::<bool>(), 0i64..40);
    prop_oneof![
        6 => (0u8..4, 0u8..3, known()).prop_map(|(e, o, known)| Edit::Set(e, o, known)),
        2 => (0u8..4, 0u8..3).prop_map(|(e, o)| Edit::Remove(e, o)),
        2 => (0u8..4, link).prop_map(|(e, (connected, in_sync, since))| Edit::Link(e, Link { connected, in_sync, since })),
        1 => (0i64..10).prop_map(Edit::Pass),
        1 => Just(Edit::Look),
    ]
}

fn specs() -> Vec<Value> {
    let fields = json!([
        {"name": "n", "type": "COUNT"}, {"name": "ready", "type": "COUNT", "subject": "obj.status.ready == 2"},
        {"name": "sum", "type": "SUM", "subject": "obj.status.used"}, {"name": "avg", "type": "AVG", "subject": "obj.status.used"},
        {"name": "min", "type": "MIN", "subject": "obj.status.used"}, {"name": "max", "type": "MAX", "subject": "obj.status.used"}]);
    vec![
        json!({"groupBy": [{"name": "region", "def": "location.labels.region"}, {"name": "ready", "def": "obj.status.ready"}],
            "combinedFields": fields, "staleAfter": "10s", "broken": "obj.status.ready < obj.spec.replicas"}),
        json!({"filter": "obj.status.ready > 0 && !sync.stale", "combinedFields": fields, "limit": 2, "staleAfter": "10s"}),
        json!({"select": [{"name": "used", "def": "obj.status.?used"}, {"name": "edge", "def": "edge.name"}], "limit": 3,
            "broken": "sync.stale ? 'old' : ''", "staleAfter": "5s"}),
        json!({"groupBy": [{"name": "sync", "def": "sync.connected && sync.inSync"}], "combinedFields": fields, "filter": "has(obj.status.used)"}),
    ]
}

/// A world, and nothing but what a summary is told of it.
#[derive(Default)]
struct World {
    rows: BTreeMap<RowKey, Known>,
    links: BTreeMap<Arc<str>, Link>,
    now: i64,
}

impl World {
    fn feed(&self, summary: &mut Summary, key: &RowKey) {
        let Some(known) = self.rows.get(key) else { return summary.remove(key) };
        let location: Arc<str> = known.region.into();
        let input = Input {
            object: &known.object,
            location: &json!({"name": known.region, "labels": {"region": known.region}}),
            edge: &json!({"name": &*key.edge}),
            link: self.links.get(&key.edge).copied().unwrap_or_default(),
            reported: true,
        };
        summary.set(key, &location, &input, self.now);
    }

    fn edit(&mut self, summary: &mut Summary, edit: Edit) {
        match edit {
            Edit::Set(e, o, known) => {
                let key = key(e, o);
                self.rows.insert(key.clone(), known);
                self.feed(summary, &key);
            }
            Edit::Remove(e, o) => {
                self.rows.remove(&key(e, o));
                summary.remove(&key(e, o));
            }
            Edit::Link(e, link) => {
                let edge = key(e, 0).edge;
                self.links.insert(edge.clone(), link);
                for key in summary.relink(&edge, &link, self.now) {
                    self.feed(summary, &key);
                }
            }
            Edit::Pass(seconds) => {
                self.now += seconds;
                for key in summary.tick(self.now) {
                    self.feed(summary, &key);
                }
            }
            Edit::Look => {}
        }
    }

    /// From scratch, by a summary that sees every row once.
    fn again(&self, spec: &Value) -> Value {
        let mut summary = Summary::new(collector(spec.clone()));
        self.rows.keys().for_each(|key| self.feed(&mut summary, key));
        summary.told()
    }

    /// By hand, for what can be said without expressions.
    fn count(&self, which: impl Fn(&RowKey, &Known) -> bool) -> usize {
        self.rows.iter().filter(|(key, known)| which(key, known)).count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Kept up from changes, a summary says what one says that is made from all rows at once.
    #[test]
    fn incrementally_is_as_from_scratch(edits in proptest::collection::vec(edit(), 0..120), which in 0usize..4) {
        let spec = &specs()[which];
        let (mut world, mut summary) = (World::default(), Summary::new(collector(spec.clone())));
        for edit in edits {
            let look = matches!(edit, Edit::Look);
            world.edit(&mut summary, edit);
            if look {
                prop_assert_eq!(summary.told(), world.again(spec));
            }
        }
        prop_assert_eq!(summary.told(), world.again(spec));
        prop_assert_eq!(summary.len(), world.rows.len());
        let keys: Vec<RowKey> = world.rows.keys().cloned().collect();
        keys.iter().for_each(|key| summary.remove(key));
        prop_assert_eq!(summary.told(), Summary::new(collector(spec.clone())).told(), "nothing is left behind");
    }

    /// The same against counting by hand.
    #[test]
    fn groups_are_what_counting_by_hand_gives(edits in proptest::collection::vec(edit(), 0..80)) {
        let spec = json!({"groupBy": [{"name": "region", "def": "location.labels.region"}], "staleAfter": "10s",
            "combinedFields": [{"name": "n", "type": "COUNT"}, {"name": "ready", "type": "SUM", "subject": "obj.status.ready"},
                {"name": "least", "type": "MIN", "subject": "obj.status.ready"}],
            "broken": "obj.?status.?ready.orValue(0) < 2"});
        let (mut world, mut summary) = (World::default(), Summary::new(collector(spec)));
        edits.into_iter().for_each(|edit| world.edit(&mut summary, edit));
        let mut want = Vec::new();
        for region in ["eu", "us"] {
            let ready: Vec<i64> = world.rows.values().filter(|k| k.region == region).filter_map(|k| k.object["status"]["ready"].as_i64()).collect();
            let count = world.count(|_, known| known.region == region);
            if count > 0 {
                want.push(json!({"groupBy": {"region": region}, "combinedFields": {"n": count, "ready": ready.iter().sum::<i64>(),
                    "least": ready.iter().min()}}));
            }
        }
        let told = summary.told();
        prop_assert_eq!(&told["results"], &json!(want));
        let old = |key: &RowKey, _: &Known| {
            let link = world.links.get(&key.edge).copied().unwrap_or_default();
            !link.connected && link.since + 10 <= world.now
        };
        prop_assert_eq!(&told["summary"]["stale"], world.count(old));
        prop_assert_eq!(&told["summary"]["broken"], world.count(|_, known| known.object["status"]["ready"].as_i64().unwrap_or(0) < 2));
        prop_assert_eq!((&told["summary"]["errors"], &told["summary"]["rows"]), (&json!(0), &json!(world.rows.len())));
    }
}

#[test]
fn what_is_wrong_with_expressions_is_counted_and_shown() {
    let spec = json!({"filter": "obj.status.ready > 0", "combinedFields": [{"name": "sum", "type": "SUM", "subject": "obj.status.used"}],
        "broken": "7"});
    let (mut world, mut summary) = (World::default(), Summary::new(collector(spec)));
    let known = |status: Value| Known { object: json!({"status": status}), region: "eu" };
    world.edit(&mut summary, Edit::Set(1, 1, known(json!({"ready": 1, "used": "lots"}))));
    world.edit(&mut summary, Edit::Set(2, 1, known(json!({}))));
    world.edit(&mut summary, Edit::Set(3, 1, known(json!({"ready": 1, "used": 5}))));
    let told = summary.told();
    let told_of = &told["summary"];
    assert_eq!((&told_of["rows"], &told_of["selected"], &told_of["errors"]), (&json!(3), &json!(2), &json!(3)));
    assert_eq!(told["errors"], json!([{"message": "broken: 7 is neither true, false nor a text", "rows": 3}]));
    assert_eq!(told["results"], json!([{"groupBy": {}, "combinedFields": {"sum": 5}}]));
}

#[test]
fn rows_are_listed_in_order_and_only_so_many() {
    let spec = json!({"select": [{"name": "ready", "def": "obj.status.ready"}], "limit": 2, "broken": "'not ready'"});
    let (mut world, mut summary) = (World::default(), Summary::new(collector(spec)));
    for edge in [3, 1, 2] {
        let known = Known { object: json!({"status": {"ready": edge}}), region: "eu" };
        world.edit(&mut summary, Edit::Set(edge, 1, known));
    }
    let told = summary.told();
    let row = |n: u8| json!({"object": "apps/deployments/shop/d1", "namespace": "shop", "name": "d1", "edge": format!("root:e{n}"), "location": "eu", "columns": {"ready": n}});
    assert_eq!(told["results"], json!([row(1), row(2)]));
    assert_eq!((&told["summary"]["broken"], told["broken"].as_array().map(Vec::len)), (&json!(3), Some(2)));
    assert_eq!(told["broken"][0]["reason"], "not ready");
}

/// Ten thousand edges with twenty objects each: what one change costs, and what reading the answer costs.
#[test]
fn a_change_costs_the_same_however_many_rows_there_are() {
    let spec = &specs()[0];
    let mut times = Vec::new();
    for edges in [100u32, 2_000] {
        let mut summary = Summary::new(collector(spec.clone()));
        let (location, place) = (Arc::<str>::from("eu"), json!({"name": "eu", "labels": {"region": "eu"}}));
        let feed = |summary: &mut Summary, edge: u32, object: u32, ready: u32| {
            let key = RowKey {
                edge: format!("root:e{edge}").into(),
                object: format!("apps/deployments/shop/d{object}").into(),
            };
            let object = json!({"spec": {"replicas": 2}, "status": {"ready": ready, "used": edge}});
            let input = Input {
                object: &object,
                location: &place,
                edge: &place,
                link: Link { connected: true, ..Link::default() },
                reported: true,
            };
            summary.set(&key, &location, &input, 0);
        };
        for edge in 0..edges {
            (0..20).for_each(|object| feed(&mut summary, edge, object, 2));
        }
        let begun = std::time::Instant::now();
        (0..500).for_each(|n| feed(&mut summary, n % edges, n % 20, n % 3));
        times.push(begun.elapsed() / 500);
        assert_eq!(summary.told()["summary"]["rows"], edges * 20);
    }
    println!("one row: {times:?}");
    assert!(times[1] < times[0] * 8 + std::time::Duration::from_micros(100), "{times:?}");
}
