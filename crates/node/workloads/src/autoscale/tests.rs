use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, MetricSpec, MetricStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use super::{
    behavior::{History, Rules},
    decide::{Asked, Conditions, Rescale, Unusable, Wanted, bounds, combine, normalize, without_metrics},
    measure::part,
    metric::{Found, View, binary, custom_samples, decimal, external_amount, object_amount, resource_samples},
    replicas::{OfPods, PodTarget, Sample, Samples, Tolerances, TotalTarget, of_total},
};
use crate::world::Case;

pub const CASES: &[Case] = &[
    ("autoscaler/utilization", utilization),
    ("autoscaler/tolerance", tolerance),
    ("autoscaler/missing-pods", missing_pods),
    ("autoscaler/unready-pods", unready_pods),
    ("autoscaler/averages", averages),
    ("autoscaler/container-resource", container_resource),
    ("autoscaler/requests", requests),
    ("autoscaler/external", external),
    ("autoscaler/custom", custom),
    ("autoscaler/largest-metric", largest_metric),
    ("autoscaler/bounds", within_bounds),
    ("autoscaler/scale-up-limit", scale_up_limit),
    ("autoscaler/stabilization", stabilization),
    ("autoscaler/policies", policies),
    ("autoscaler/scale-up-window", scale_up_window),
    ("autoscaler/zero-is-off", zero_is_off),
    ("autoscaler/conditions", conditions_keep_their_time),
    ("autoscaler/says-why-not", says_why_not),
];

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn since(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A ready Pod that has run for long, with one container that requests so many thousandths of a core.
pub fn pod(name: &str, request: i32, ready: bool) -> Pod {
    let status = if ready { "True" } else { "False" };
    let requests = json!({"cpu": format!("{request}m"), "memory": "100Mi"});
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
        "status": {"phase": "Running", "startTime": at(-3600), "conditions": [
            {"type": "Ready", "status": status, "lastTransitionTime": at(-3590)}]}
    }))
    .unwrap()
}

pub fn measured(values: &[i128]) -> Samples {
    let sample = |value: &i128| Sample { value: *value, at: at(-10), window: SignedDuration::from_secs(15) };
    values.iter().enumerate().map(|(n, value)| (format!("p{n}"), sample(value))).collect()
}

pub fn pods(count: usize) -> Vec<Pod> {
    (0..count).map(|n| pod(&format!("p{n}"), 1000, true)).collect()
}

pub fn cpu(target: PodTarget) -> OfPods<'static> {
    OfPods { resource: Some("cpu"), container: None, target }
}

pub fn replicas(metric: &OfPods<'_>, current: i32, pods: &[Pod], values: &[i128]) -> i32 {
    metric.propose(current, pods, &measured(values), Tolerances::default(), at(0)).unwrap().replicas
}

fn utilization() {
    for (current, values, percent, expected, why) in [
        (3, [300, 500, 700], 30, 5, "50 % instead of 30 %"),
        (3, [300, 300, 300], 30, 3, "just right"),
        (3, [100, 100, 100], 50, 1, "less"),
        (3, [0, 0, 0], 50, 0, "nothing"),
        (5, [1000, 1000, 1000], 50, 6, "by the Pods that are there, not by the size that is wanted"),
    ] {
        assert_eq!(replicas(&cpu(PodTarget::Utilization(percent)), current, &pods(3), &values), expected, "{why}");
    }
}

fn tolerance() {
    let half = cpu(PodTarget::Utilization(50));
    for (used, expected) in [(450, 3), (550, 3), (440, 3), (560, 4), (330, 2)] {
        assert_eq!(replicas(&half, 3, &pods(3), &[used; 3]), expected, "{used}");
    }
    let behavior = serde_json::from_value(json!({"scaleUp": {"tolerance": "0.3"}, "scaleDown": {"tolerance": "0"}}));
    let behavior = behavior.unwrap();
    let given = Tolerances::of(Rules(Some(&behavior)));
    let with = |used| half.propose(3, &pods(3), &measured(&[used; 3]), given, at(0)).unwrap().replicas;
    assert_eq!((with(640), with(660), with(490), with(330)), (3, 4, 3, 2));
    assert_eq!(Tolerances::of(Rules(None)), Tolerances { down: 0.1, up: 0.1 });
}

fn missing_pods() {
    let half = cpu(PodTarget::Utilization(50));
    assert_eq!(replicas(&half, 3, &pods(3), &[1000, 1000]), 4, "it counts as idle when there are too few");
    assert_eq!(replicas(&half, 3, &pods(3), &[100, 100]), 3, "and as busy when there are too many");
    let each = cpu(PodTarget::Average(500));
    assert_eq!(replicas(&each, 3, &pods(3), &[100, 100]), 2, "or as just right, where nothing is requested");
    assert_eq!(replicas(&half, 3, &pods(3), &[600, 600]), 3, "a change of direction is none");
}

fn unready_pods() {
    let mut all = pods(3);
    for pod in &mut all[1..] {
        let status = pod.status.as_mut().unwrap();
        status.start_time = Some(Time(at(-20)));
        let condition = &mut status.conditions.as_mut().unwrap()[0];
        (condition.status, condition.last_transition_time) = ("False".into(), Some(Time(at(-20))));
    }
    let half = cpu(PodTarget::Utilization(50));
    assert_eq!(replicas(&half, 3, &all, &[1000, 1000, 1000]), 3, "two may still take some of the load");
    assert_eq!(replicas(&half, 3, &all, &[100, 1000, 1000]), 1, "they do not count when there are too many");
    // It is ready, but was not yet during all of the window.
    let condition = &mut all[1].status.as_mut().unwrap().conditions.as_mut().unwrap()[0];
    condition.status = "True".into();
    assert_eq!(replicas(&half, 3, &all, &[100, 1000, 1000]), 1);
    all[2].status.as_mut().unwrap().phase = Some("Pending".into());
    all[1].status.as_mut().unwrap().phase = Some("Failed".into());
    assert_eq!(replicas(&half, 3, &all, &[1000]), 3, "a pending one may help, a failed one counts for nothing");
}

fn averages() {
    let asked = cpu(PodTarget::Average(200));
    let asked = asked.propose(3, &pods(3), &measured(&[300, 500, 700]), Tolerances::default(), at(0)).unwrap();
    assert_eq!((asked.replicas, asked.utilization, asked.value), (8, None, 500));
}

fn container_resource() {
    let mebi = 1024 * 1024 * 1000;
    let memory = OfPods { resource: Some("memory"), container: Some("c"), target: PodTarget::Utilization(50) };
    let values = measured(&[100 * mebi, 50 * mebi]);
    let asked = memory.propose(2, &pods(2), &values, Tolerances::default(), at(0)).unwrap();
    assert_eq!((asked.replicas, asked.utilization, asked.value), (3, Some(75), 75 * mebi));
    let used = json!({"items": [
        {"metadata": {"name": "p0"}, "timestamp": "2027-01-15T08:00:00Z", "window": "15s",
            "containers": [{"name": "a", "usage": {"cpu": "100m"}}, {"name": "b", "usage": {"cpu": "1500000n"}}]},
        {"metadata": {"name": "p1"}, "timestamp": "2027-01-15T08:00:00Z", "window": "10.5s",
            "containers": [{"name": "a", "usage": {}}]}]});
    let all = resource_samples(&used, "cpu", None);
    assert_eq!((all.len(), all["p0"].value, all["p0"].window), (1, 102, SignedDuration::from_secs(15)));
    assert_eq!(resource_samples(&used, "cpu", Some("a"))["p0"].value, 100);
    assert!(resource_samples(&used, "cpu", Some("c")).is_empty());
}

fn requests() {
    let half = cpu(PodTarget::Utilization(50));
    let says = |pods: &[Pod], metric: &OfPods<'_>| {
        metric.propose(1, pods, &measured(&[100]), Tolerances::default(), at(0)).map(|asked| asked.utilization)
    };
    let mut one = pods(1);
    let spec = one[0].spec.as_mut().unwrap();
    spec.init_containers = serde_json::from_value(json!([
        {"name": "first"}, {"name": "beside", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    ]))
    .unwrap();
    assert_eq!(says(&one, &half), Ok(Some(5)), "sidecars count, other init containers do not");
    one[0].spec.as_mut().unwrap().resources = serde_json::from_value(json!({"requests": {"cpu": "4"}})).unwrap();
    assert_eq!(says(&one, &half), Ok(Some(2)), "the request of the whole Pod");
    let of_container = OfPods { container: Some("c"), ..cpu(PodTarget::Utilization(50)) };
    assert_eq!(says(&one, &of_container), Ok(Some(10)));
    let nobody = OfPods { container: Some("x"), ..cpu(PodTarget::Utilization(50)) };
    assert_eq!(says(&one, &nobody), Err("container x not found in Pod p0".into()));
    let mut bare = pods(1);
    bare[0].spec.as_mut().unwrap().containers[0].resources = None;
    assert_eq!(says(&bare, &half), Err("missing request for cpu in container c of Pod p0".into()));
    assert_eq!(says(&bare, &cpu(PodTarget::Average(100))), Ok(None), "an average needs no request");
}

fn external() {
    use TotalTarget::{Average, Value};
    for (sizes, ready, value, target, expected, shown) in [
        ((3, 3), 3, 60_000, Value(20_000), 9, 60_000),
        ((3, 3), 2, 60_000, Value(20_000), 6, 60_000),
        ((3, 3), 3, 20_500, Value(20_000), 3, 20_500),
        ((0, 0), 0, 60_000, Value(20_000), 3, 60_000),
        ((3, 3), 3, 80_000, Average(10_000), 8, 26_667),
        ((3, 3), 3, 31_000, Average(10_000), 3, 10_334),
        ((5, 3), 3, 31_000, Average(10_000), 3, 10_334),
        ((0, 0), 0, 0, Average(10_000), 0, 0),
        ((3, 3), 3, i128::MAX, Average(1), i32::MAX, i128::MAX / 3 + 1),
    ] {
        let mut all = pods(3);
        all[ready..].iter_mut().for_each(|pod| *pod = super::tests::pod("x", 1, false));
        let asked = of_total(sizes, &all, value, target, Tolerances::default()).unwrap();
        assert_eq!((asked.replicas, asked.value), (expected, shown), "{value} {target:?} {sizes:?}");
    }
    assert_eq!(external_amount(&json!({"items": [{"value": "1500m"}, {"value": "2"}]})), Ok(3500));
    assert!(external_amount(&json!({"items": []})).is_err());
    let spec = json!({"type": "External", "external": {"metric": {"name": "queue", "selector": {"matchLabels": {"a": "b"}}},
        "target": {"type": "AverageValue", "averageValue": "10"}}});
    let asked = view(3).ask(&metric(spec.clone()), Found::Total(Ok(80_000))).unwrap();
    let name = "external metric queue(&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},})";
    assert_eq!((asked.replicas, asked.name.as_str()), (8, name));
    let status = serde_json::to_value(&asked.status).unwrap();
    assert_eq!(status["external"]["current"], json!({"averageValue": "26667m"}));
    let failed = view(3).ask(&metric(spec), Found::Total(Err("gone".into()))).unwrap_err();
    assert_eq!(failed.reason, "FailedGetExternalMetric");
    assert!(failed.message.starts_with("unable to get external metric n/queue/&LabelSelector{"), "{failed:?}");
}

fn custom() {
    let list = json!({"items": [
        {"describedObject": {"name": "p0"}, "timestamp": "2027-01-15T08:00:00Z", "windowSeconds": 30, "value": "700"},
        {"describedObject": {"name": "p1"}, "timestamp": "2027-01-15T08:00:00Z", "value": "900"}]});
    let samples = custom_samples(&list);
    assert_eq!((samples["p0"].window.as_secs(), samples["p1"].window.as_secs()), (30, 60));
    let spec = json!({"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": {"type": "AverageValue", "averageValue": "400"}}});
    let asked = view(2).ask(&metric(spec), Found::OfPods(Ok(samples))).unwrap();
    assert_eq!((asked.replicas, asked.name.as_str()), (4, "pods metric qps"));
    assert_eq!(serde_json::to_value(&asked.status).unwrap()["pods"]["current"], json!({"averageValue": "800"}));
    let of_object = |target: Value| {
        metric(
            json!({"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "web", "apiVersion": "v1"},
            "metric": {"name": "rps"}, "target": target}}),
        )
    };
    let value = of_object(json!({"type": "Value", "value": "2k"}));
    let asked = view(2).ask(&value, Found::Total(object_amount(&json!({"items": [{"value": "4k"}]})))).unwrap();
    assert_eq!((asked.replicas, asked.name.as_str()), (4, "Service metric rps"));
    assert_eq!(serde_json::to_value(&asked.status).unwrap()["object"]["current"], json!({"value": "4k"}));
    let average = of_object(json!({"type": "AverageValue", "averageValue": "1"}));
    let asked = view(2).ask(&average, Found::Total(Ok(5_000))).unwrap();
    assert_eq!((asked.replicas, asked.name.as_str()), (5, "external metric rps(nil)"));
    let failed = view(2).ask(&value, Found::Total(object_amount(&json!({"items": []})))).unwrap_err();
    assert!(failed.message.starts_with("unable to get metric rps on Service n/web: "), "{failed:?}");
    assert_eq!(failed.whole, format!("failed to get object metric value: {}", failed.message));
}

fn metric(spec: Value) -> MetricSpec {
    serde_json::from_value(spec).unwrap()
}

fn view(count: usize) -> View {
    let size = i32::try_from(count).unwrap();
    View {
        namespace: "n".into(),
        wanted: size,
        there: size,
        pods: pods(count),
        tolerances: Tolerances::default(),
        now: at(0),
    }
}

pub fn hpa(mut spec: Value) -> HorizontalPodAutoscaler {
    spec["scaleTargetRef"] = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
    serde_json::from_value(json!({"metadata": {"name": "h", "namespace": "n"}, "spec": spec})).unwrap()
}

pub fn asks(replicas: i32) -> Result<Asked, Unusable> {
    Ok(Asked { replicas, name: "cpu".into(), status: MetricStatus::default() })
}

fn failing(what: &str) -> Result<Asked, Unusable> {
    let whole = format!("failed to get {what}");
    Err(Unusable { reason: "FailedGetResourceMetric", message: what.into(), whole })
}

/// One reconciliation without any I/O.
pub fn look(
    hpa: &HorizontalPodAutoscaler,
    current: i32,
    metrics: &[Result<Asked, Unusable>],
    history: &mut History,
    seconds: u64,
) -> (i32, Conditions) {
    let mut conditions = Conditions::of(hpa, at(i64::try_from(seconds).unwrap()));
    history.begin(current, since(seconds));
    let rescale: Option<Rescale> = match without_metrics(hpa, current, &mut conditions) {
        Some(rescale) => rescale,
        None => match combine(current, metrics, &mut conditions) {
            Wanted::Unknown { .. } => None,
            Wanted::Replicas { replicas, name } => {
                let behavior = hpa.spec.behavior.as_ref();
                let wanted = (replicas, name.as_str());
                normalize(behavior, bounds(hpa), current, wanted, history, &mut conditions, since(seconds))
            }
        },
    };
    if let Some(rescale) = &rescale {
        history.changed(current, rescale.to, since(seconds));
    }
    (rescale.map_or(current, |rescale| rescale.to), conditions)
}

fn said(conditions: Conditions, kind: &str) -> String {
    let found = conditions.into_list().into_iter().find(|one| one.type_ == kind);
    found.map_or_else(String::new, |one| format!("{} {}", one.status, one.reason.unwrap()))
}

/// The size, and a condition's status and reason.
fn see(
    hpa: &HorizontalPodAutoscaler,
    current: i32,
    asked: i32,
    history: &mut History,
    seconds: u64,
    kind: &str,
) -> (i32, String) {
    let (size, conditions) = look(hpa, current, &[asks(asked)], history, seconds);
    (size, said(conditions, kind))
}

fn largest_metric() {
    let plain = hpa(json!({"maxReplicas": 9}));
    let all = |current, metrics: &[Result<Asked, Unusable>]| {
        let (size, conditions) = look(&plain, current, metrics, &mut History::default(), 0);
        (size, said(conditions, "ScalingActive"))
    };
    assert_eq!(all(3, &[asks(4), asks(6), asks(1)]).0, 6);
    let gone = || failing("gone");
    assert_eq!(all(3, &[asks(2), gone()]), (3, "False FailedGetResourceMetric".into()), "would less do? unknown");
    assert_eq!(all(3, &[gone(), asks(4)]), (4, "True ValidMetricFound".into()));
    assert_eq!(all(3, &[gone(), gone()]), (3, "False FailedGetResourceMetric".into()));
    assert_eq!(all(3, &[]).0, 3);
    let mut conditions = Conditions::of(&plain, at(0));
    let Wanted::Unknown { message } = combine(3, &[failing("a"), asks(1), failing("b")], &mut conditions) else {
        panic!("it is known");
    };
    assert_eq!(message, "invalid metrics (2 invalid out of 3), first error is: failed to get a");
}

fn within_bounds() {
    let plain = hpa(json!({"minReplicas": 2, "maxReplicas": 5}));
    let one = |current, asked, kind| see(&plain, current, asked, &mut History::default(), 0, kind);
    assert_eq!(one(9, 1, "ScalingActive"), (5, String::new()), "no metric is needed for that");
    assert_eq!(one(1, 1, "ScalingActive"), (2, String::new()));
    assert_eq!(one(3, 5, "ScalingLimited"), (5, "False DesiredWithinRange".into()));
    assert_eq!(one(3, 9, "ScalingLimited"), (5, "True TooManyReplicas".into()));
    let mut history = History::default();
    assert_eq!(see(&plain, 3, 0, &mut history, 0, "ScalingLimited").0, 3);
    assert_eq!(see(&plain, 3, 0, &mut history, 301, "ScalingLimited"), (2, "True TooFewReplicas".into()));
    for (current, to, why) in [(9, 5, "above Spec.MaxReplicas"), (1, 2, "below Spec.MinReplicas")] {
        let reason = format!("Current number of replicas {why}");
        let told = without_metrics(&plain, current, &mut Conditions::of(&plain, at(0)));
        assert_eq!(told, Some(Some(Rescale { to, reason })));
    }
}

fn scale_up_limit() {
    let wide = hpa(json!({"maxReplicas": 100}));
    for (current, expected) in [(1, 4), (3, 6), (10, 20)] {
        let seen = see(&wide, current, 50, &mut History::default(), 0, "ScalingLimited");
        assert_eq!(seen, (expected, "True ScaleUpLimit".into()));
    }
}

fn stabilization() {
    let (plain, mut history) = (hpa(json!({"maxReplicas": 10})), History::default());
    assert_eq!(see(&plain, 4, 4, &mut history, 0, "AbleToScale"), (4, "True ReadyForNewScale".into()));
    for seconds in [15, 100, 299] {
        let seen = see(&plain, 4, 1, &mut history, seconds, "AbleToScale");
        assert_eq!(seen, (4, "True ScaleDownStabilized".into()));
    }
    assert_eq!(see(&plain, 4, 2, &mut history, 301, "AbleToScale"), (2, "True ReadyForNewScale".into()));
    // A controller that has just started knows nothing of what was asked for before, and keeps what it finds.
    assert_eq!(see(&plain, 4, 1, &mut History::default(), 0, "AbleToScale"), (4, "True ScaleDownStabilized".into()));
    let short = json!({"scaleUp": rules(0, json!([{"type": "Percent", "value": 900, "periodSeconds": 15}])),
        "scaleDown": rules(10, json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]))});
    let (short, mut history) = (hpa(json!({"maxReplicas": 10, "behavior": short})), History::default());
    assert_eq!(see(&short, 4, 1, &mut history, 0, "AbleToScale"), (4, "True ScaleDownStabilized".into()));
    assert_eq!(see(&short, 4, 1, &mut history, 9, "AbleToScale").0, 4);
    assert_eq!(see(&short, 4, 1, &mut history, 11, "AbleToScale").0, 1);
}

fn rules(window: i32, policies: Value) -> Value {
    json!({"stabilizationWindowSeconds": window, "selectPolicy": "Max", "policies": policies})
}

fn policies() {
    let pods = |value| json!({"type": "Pods", "value": value, "periodSeconds": 60});
    let percent = json!({"type": "Percent", "value": 50, "periodSeconds": 60});
    let behavior = json!({"scaleUp": rules(0, json!([pods(2), percent])), "scaleDown": rules(0, json!([pods(1)]))});
    let (ruled, mut history) = (hpa(json!({"maxReplicas": 100, "behavior": behavior})), History::default());
    assert_eq!(see(&ruled, 10, 50, &mut history, 0, "ScalingLimited"), (15, "True ScaleUpLimit".into()));
    assert_eq!(see(&ruled, 15, 50, &mut history, 15, "ScalingLimited").0, 15, "that was all for this minute");
    assert_eq!(see(&ruled, 15, 50, &mut history, 61, "ScalingLimited").0, 23, "half of fifteen, rounded up");
    assert_eq!(see(&ruled, 23, 1, &mut history, 200, "ScalingLimited"), (22, "True ScaleDownLimit".into()));
    assert_eq!(see(&ruled, 22, 1, &mut history, 215, "ScalingLimited").0, 22);
    let mut least = behavior.clone();
    least["scaleUp"]["selectPolicy"] = "Min".into();
    let least = hpa(json!({"maxReplicas": 100, "behavior": least}));
    assert_eq!(see(&least, 10, 50, &mut History::default(), 0, "ScalingLimited").0, 12);
    let mut off = behavior;
    off["scaleDown"]["selectPolicy"] = "Disabled".into();
    off["scaleUp"]["selectPolicy"] = "Disabled".into();
    let off = hpa(json!({"maxReplicas": 100, "behavior": off}));
    assert_eq!(see(&off, 22, 1, &mut History::default(), 0, "ScalingLimited").0, 22);
    assert_eq!(see(&off, 22, 90, &mut History::default(), 0, "ScalingLimited").0, 22);
}

fn scale_up_window() {
    let any = json!([{"type": "Pods", "value": 50, "periodSeconds": 15}]);
    let behavior = json!({"scaleUp": rules(60, any.clone()), "scaleDown": rules(0, any)});
    let (slow, mut history) = (hpa(json!({"maxReplicas": 100, "behavior": behavior})), History::default());
    assert_eq!(see(&slow, 2, 2, &mut history, 0, "AbleToScale").0, 2);
    assert_eq!(see(&slow, 2, 8, &mut history, 30, "AbleToScale"), (2, "True ScaleUpStabilized".into()));
    assert_eq!(see(&slow, 2, 9, &mut history, 61, "AbleToScale"), (8, "True ScaleUpStabilized".into()));
}

fn zero_is_off() {
    let plain = hpa(json!({"minReplicas": 2, "maxReplicas": 5}));
    let seen = see(&plain, 0, 3, &mut History::default(), 0, "ScalingActive");
    assert_eq!(seen, (0, "False ScalingDisabled".into()));
}

fn conditions_keep_their_time() {
    let mut hpa = hpa(json!({"maxReplicas": 3}));
    let mut conditions = Conditions::of(&hpa, at(0));
    conditions.set("AbleToScale", true, "A", "a");
    hpa.status = Some(HorizontalPodAutoscalerStatus { conditions: Some(conditions.into_list()), ..Default::default() });
    for (is_true, time) in [(true, at(0)), (false, at(9))] {
        let mut conditions = Conditions::of(&hpa, at(9));
        conditions.set("AbleToScale", is_true, "B", "b");
        let list = conditions.into_list();
        assert_eq!((list.len(), &list[0].last_transition_time), (1, &Some(Time(time))));
        assert_eq!(list[0].reason.as_deref(), Some("B"));
    }
}

fn says_why_not() {
    let half = cpu(PodTarget::Utilization(50));
    let why = |pods: &[Pod]| half.propose(1, pods, &measured(&[]), Tolerances::default(), at(0)).unwrap_err();
    assert_eq!(why(&[]), "no pods returned by selector while calculating replica count");
    assert_eq!(why(&pods(1)), "did not receive metrics for targeted pods (pods might be unready)");
    let spec = metric(
        json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}),
    );
    let failed = view(1).ask(&spec, Found::OfPods(Err("unable to fetch".into()))).unwrap_err();
    let message = "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch";
    assert_eq!((failed.reason, failed.message.as_str()), ("FailedGetResourceMetric", message));
    assert_eq!(failed.whole, format!("failed to get cpu resource metric value: {message}"));
    let asked = view(2).ask(&spec, Found::OfPods(Ok(measured(&[1000, 1000])))).unwrap();
    assert_eq!((asked.replicas, asked.name.as_str()), (4, "cpu resource utilization (percentage of request)"));
    let current = json!({"averageUtilization": 100, "averageValue": "1"});
    assert_eq!(serde_json::to_value(&asked.status).unwrap()["resource"]["current"], current);
    let odd = metric(json!({"type": "Odd"}));
    assert_eq!(view(1).ask(&odd, Found::Total(Ok(1))).unwrap_err().reason, "InvalidMetricSourceType");
}

#[test]
fn amounts_are_shown_as_upstream_shows_them() {
    for (milli, text) in [(0, "0"), (1500, "1500m"), (2000, "2"), (2_000_000, "2k"), (1_500_000, "1500"), (-5, "-5m")] {
        assert_eq!(decimal(milli).0, text);
    }
    for (bytes, text) in [(0, "0"), (512, "512"), (1024, "1Ki"), (100 << 20, "100Mi"), ((100 << 20) + 1, "104857601")] {
        assert_eq!(binary(bytes * 1000).0, text);
    }
    assert_eq!(part("app=a,b in (c)"), "app%3Da%2Cb%20in%20%28c%29");
}
