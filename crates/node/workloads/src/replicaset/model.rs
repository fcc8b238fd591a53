//! A ReplicaSet in a world where Pods come and go in any order and its cache is late.

use std::sync::Arc;

use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
use proptest::prelude::*;

use super::{decide, tests::set};
use crate::{
    pod,
    world::{Revision, Truth, at},
};
use controllers::{cache::Key, written::Written};

#[derive(Clone, Copy, Debug)]
enum Happens {
    Reconcile,
    Show(usize),
    Relist,
    Start(usize),
    Ready(usize),
    Fail(usize),
    /// Somebody deletes a Pod.
    Delete(usize),
    /// A node has ended a Pod that was deleted.
    Gone(usize),
    Scale(i32),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        5 => Just(Happens::Reconcile),
        4 => (1..4_usize).prop_map(Happens::Show),
        1 => Just(Happens::Relist),
        2 => any::<usize>().prop_map(Happens::Start),
        2 => any::<usize>().prop_map(Happens::Ready),
        1 => any::<usize>().prop_map(Happens::Fail),
        1 => any::<usize>().prop_map(Happens::Delete),
        2 => any::<usize>().prop_map(Happens::Gone),
        1 => (0..7_i32).prop_map(Happens::Scale),
    ]
}

struct World {
    set: ReplicaSet,
    pods: Truth<Pod>,
    written: Written,
}

impl World {
    fn active(&self) -> usize {
        self.pods.objects.values().filter(|pod| pod::is_active(pod)).count()
    }

    fn reconcile(&mut self) {
        let key = Key::of(&self.set);
        if !self.written.is_shown(&key) {
            return;
        }
        let shown: Vec<Arc<Pod>> = self.pods.cache.all();
        match decide::manage(&self.set, &shown, &shown, at(0)) {
            decide::Change::Nothing => {}
            decide::Change::Create(count) => {
                let spec = self.set.spec.as_ref().unwrap();
                for _ in 0..count {
                    let made = self.pods.create(pod::from_template(spec.template.as_ref().unwrap(), &self.set));
                    self.written.wrote(&key, &self.pods.cache, &made);
                }
                assert!(self.active() <= decide::wanted(&self.set), "too many were made");
            }
            decide::Change::Delete(surplus) => {
                assert!(
                    shown.iter().filter(|pod| pod::is_active(pod)).count() >= decide::wanted(&self.set) + surplus.len()
                );
                for pod in surplus {
                    self.pods.terminate(&Key::of(&*pod));
                    self.written.deleted(&key, &self.pods.cache, &*pod);
                }
            }
        }
    }

    fn happen(&mut self, what: Happens) {
        match what {
            Happens::Reconcile => self.reconcile(),
            Happens::Show(events) => self.pods.show(events),
            Happens::Relist => self.pods.relist(),
            Happens::Scale(replicas) => self.set.spec.as_mut().unwrap().replicas = Some(replicas),
            Happens::Start(n) | Happens::Ready(n) | Happens::Fail(n) | Happens::Delete(n) | Happens::Gone(n) => {
                let Some(key) = self.pods.pick(n) else { return };
                let pod = &self.pods.objects[&key];
                match what {
                    Happens::Start(_) => self.pods.start(&key, "n"),
                    Happens::Ready(_) if pod::phase(pod) == "Running" => self.pods.set_ready(&key, true, at(0)),
                    Happens::Fail(_) if pod::node(pod).is_some() => self.pods.end(&key, "Failed"),
                    Happens::Delete(_) => self.pods.terminate(&key),
                    Happens::Gone(_) if pod::is_deleting(pod) => {
                        self.pods.remove(&key);
                    }
                    _ => {}
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the order: a late cache never makes too many Pods, and when the world is quiet there are as many as were asked for.
    #[test]
    fn a_late_cache_makes_no_pod_twice(events in prop::collection::vec(happens(), 0..80)) {
        let mut world = World { set: set(3), pods: Truth::new(&Revision::default()), written: Written::default() };
        for event in events {
            world.happen(event);
        }
        for _ in 0..3 {
            world.pods.show_all();
            world.reconcile();
        }
        prop_assert_eq!(world.active(), decide::wanted(&world.set));
        world.pods.show_all();
        prop_assert!(world.written.is_shown(&Key::of(&world.set)), "nothing is waited for for ever");
    }
}
