//! A budget with a controller whose cache is late, and evictions at any time.

use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::Time,
};
use proptest::prelude::*;
use serde_json::json;

use super::{
    decide::{Expected, decide},
    tests::{budget, pods},
};
use crate::{
    pod,
    world::{Revision, Truth, at},
};
use controllers::cache::Key;

#[derive(Clone, Debug)]
enum Happens {
    Reconcile,
    ShowPods(usize),
    ShowBudget(usize),
    Evict(usize),
    Gone(usize),
    /// A new Pod comes and is ready at once.
    Comes,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => Just(Happens::Reconcile),
        3 => (1..3_usize).prop_map(Happens::ShowPods),
        3 => (1..3_usize).prop_map(Happens::ShowBudget),
        4 => any::<usize>().prop_map(Happens::Evict),
        2 => any::<usize>().prop_map(Happens::Gone),
        1 => Just(Happens::Comes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Evictions take from the status as the API does; however late the controller's caches are, there are never fewer ready Pods than the budget
    /// asks for.
    #[test]
    fn evictions_leave_what_the_budget_asks_for(least in 1..5_i32, events in prop::collection::vec(happens(), 0..80)) {
        let revision = Revision::default();
        let mut all: Truth<Pod> = Truth::new(&revision);
        let mut budgets: Truth<PodDisruptionBudget> = Truth::new(&revision);
        for pod in pods(5, 0) {
            let mut pod = (*pod).clone();
            pod.spec.get_or_insert_default().node_name = Some("n".into());
            all.create(pod);
        }
        budgets.create(budget(json!({"minAvailable": least})));
        let key = Key::new("ns", "b");
        for event in events {
            match event {
                Happens::Reconcile => {
                    let Some(seen) = budgets.cache.get(&key) else { continue };
                    let next = decide(&seen, &all.cache.all(), &Expected::Count(5), at(0)).status;
                    if budgets.objects[&key].metadata.resource_version == seen.metadata.resource_version
                        && seen.status.as_ref() != Some(&next)
                    {
                        budgets.change(&key, |budget| budget.status = Some(next));
                    }
                }
                Happens::ShowPods(events) => all.show(events),
                Happens::ShowBudget(events) => budgets.show(events),
                Happens::Evict(n) => {
                    // A Pod takes longer to start than its first event to arrive.
                    let Some(victim) = all.pick(n).filter(|key| all.cache.get(key).is_some()) else { continue };
                    let allowed = budgets.objects[&key].status.as_ref().and_then(|status| status.disruptions_allowed);
                    if pod::is_deleting(&all.objects[&victim]) || allowed.unwrap_or(0) < 1 {
                        continue;
                    }
                    budgets.change(&key, |budget| {
                        let status = budget.status.get_or_insert_default();
                        status.disruptions_allowed = allowed.map(|allowed| allowed - 1);
                        status.disrupted_pods.get_or_insert_default().insert(victim.name.clone(), Time(at(0)));
                    });
                    all.terminate(&victim);
                    let ready = all.objects.values().filter(|pod| pod::is_ready(pod) && !pod::is_deleting(pod)).count();
                    prop_assert!(i32::try_from(ready).unwrap() >= least, "{ready} are left");
                }
                Happens::Gone(n) => {
                    if let Some(gone) = all.pick(n).filter(|key| pod::is_deleting(&all.objects[key])) {
                        all.remove(&gone);
                    }
                }
                Happens::Comes => {
                    let mut pod = (*pods(1, 0)[0]).clone();
                    pod.metadata.name = None;
                    pod.metadata.generate_name = Some("new-".into());
                    pod.spec.get_or_insert_default().node_name = Some("n".into());
                    all.create(pod);
                }
            }
        }
    }
}
