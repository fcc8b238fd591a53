//! What holds of every decision, whatever the metrics and the rules are.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    behavior::History,
    replicas::{PodTarget, Tolerances, TotalTarget, of_total},
    tests::{asks, cpu, hpa, look, pods, replicas},
};

fn policies() -> impl Strategy<Value = Value> {
    let policy = (any::<bool>(), 1..200_i32, 1..1800_i32).prop_map(|(percent, value, period)| {
        json!({"type": if percent { "Percent" } else { "Pods" }, "value": value, "periodSeconds": period})
    });
    proptest::collection::vec(policy, 1..3).prop_map(Value::from)
}

fn rules() -> impl Strategy<Value = Value> {
    (0..600_i32, policies(), prop_oneof![Just("Max"), Just("Min"), Just("Disabled")]).prop_map(
        |(window, policies, select)| {
            json!({"stabilizationWindowSeconds": window, "selectPolicy": select, "policies": policies})
        },
    )
}

fn behavior() -> impl Strategy<Value = Option<Value>> {
    proptest::option::of((rules(), rules()).prop_map(|(up, down)| json!({"scaleUp": up, "scaleDown": down})))
}

/// How many seconds pass, and what the metrics ask for then.
fn story() -> impl Strategy<Value = Vec<(u64, i32)>> {
    proptest::collection::vec((1..400_u64, 0..60_i32), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_size_is_within_its_bounds_and_moves_towards_what_was_asked_for(
        behavior in behavior(), least in 1..10_i32, more in 0..40_i32, first in 1..50_i32, story in story(),
    ) {
        let (most, mut current, mut now) = (least + more, first, 0);
        let mut spec = json!({"minReplicas": least, "maxReplicas": most});
        if let Some(behavior) = &behavior {
            spec["behavior"] = behavior.clone();
        }
        let (hpa, mut history) = (hpa(spec), History::default());
        let mut recent: Vec<(u64, i32)> = vec![(0, first)];
        for (wait, asked) in story {
            now += wait;
            let (next, _) = look(&hpa, current, &[asks(asked)], &mut history, now);
            prop_assert!((least..=most).contains(&next), "{next} is not within {least} and {most}");
            recent.push((now, asked));
            if (least..=most).contains(&current) {
                // It never leaves the range of what is there and what was asked for lately.
                let window = match &behavior {
                    None => 300,
                    Some(rules) => rules["scaleDown"]["stabilizationWindowSeconds"].as_u64().unwrap_or(0),
                };
                let kept = recent.iter().filter(|(at, _)| *at + window > now || *at == now);
                let highest = kept.map(|(_, asked)| *asked).max().unwrap_or(asked).max(current);
                prop_assert!(next <= highest.max(least), "{next} although at most {highest} were asked for");
                let lowest = asked.min(current);
                prop_assert!(next >= lowest.min(most), "{next} although at least {lowest} were asked for");
            }
            current = next;
        }
    }

    #[test]
    fn a_size_stays_while_a_window_still_holds_a_higher_recommendation(
        window in 1..600_u64, waits in proptest::collection::vec(1..60_u64, 1..30),
    ) {
        let all = json!([{"type": "Percent", "value": 100, "periodSeconds": 1}]);
        let rules = |window: u64| json!({"stabilizationWindowSeconds": window, "selectPolicy": "Max", "policies": all});
        let hpa = hpa(json!({"maxReplicas": 50, "behavior": {"scaleUp": rules(0), "scaleDown": rules(window)}}));
        let (mut history, mut now, mut current) = (History::default(), 0, 20);
        look(&hpa, current, &[asks(20)], &mut history, now);
        for wait in waits {
            now += wait;
            (current, _) = look(&hpa, current, &[asks(1)], &mut history, now);
            prop_assert_eq!(current, if now < window { 20 } else { 1 }, "after {} of {} s", now, window);
        }
    }

    #[test]
    fn policies_bound_what_is_added_within_their_period(
        value in 1..10_i32, period in 1..300_u64, story in story(),
    ) {
        let up = json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": value, "periodSeconds": period}]});
        let down = json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Disabled",
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]});
        let hpa = hpa(json!({"maxReplicas": 1000, "behavior": {"scaleUp": up, "scaleDown": down}}));
        let (mut history, mut now, mut current) = (History::default(), 0, 1);
        let mut added: Vec<(u64, i32)> = Vec::new();
        for (wait, asked) in story {
            now += wait;
            let (next, _) = look(&hpa, current, &[asks(asked)], &mut history, now);
            prop_assert!(next >= current, "scaling down is off");
            added.push((now, next - current));
            let lately: i32 = added.iter().filter(|(at, _)| at + period > now).map(|(_, count)| count).sum();
            prop_assert!(lately <= value, "{lately} within {period} s instead of {value}");
            current = next;
        }
    }

    #[test]
    fn more_use_never_asks_for_less(count in 1..8_usize, value in 0..5000_i128, more in 0..5000_i128, percent in 1..200_i32) {
        let metric = cpu(PodTarget::Utilization(percent));
        let current = i32::try_from(count).unwrap();
        let less = replicas(&metric, current, &pods(count), &vec![value; count]);
        let most = replicas(&metric, current, &pods(count), &vec![value + more; count]);
        prop_assert!(less <= most, "{less} for {value}, and {most} for {more} more");
        let total = |value| {
            let target = TotalTarget::Value(i128::from(percent) * 10);
            of_total((current, current), &pods(count), value, target, Tolerances::default()).unwrap().replicas
        };
        prop_assert!(total(value) <= total(value + more));
    }

    #[test]
    fn memory_is_bounded(story in proptest::collection::vec(1..20_u64, 0..2000)) {
        let (plain, mut history, mut now) = (hpa(json!({"maxReplicas": 10})), History::default(), 0);
        for (n, wait) in story.iter().enumerate() {
            now += wait;
            look(&plain, 1 + i32::try_from(n % 3).unwrap(), &[asks(2)], &mut history, now);
        }
        prop_assert!(history.len() <= 2 * 3602);
    }
}
