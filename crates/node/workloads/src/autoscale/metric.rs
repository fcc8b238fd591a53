//! One metric of an autoscaler: from what was found out about it to the replicas that it asks for. Pure.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        autoscaling::v2::{
            ContainerResourceMetricStatus, ExternalMetricStatus, MetricIdentifier, MetricSpec, MetricStatus,
            MetricTarget, MetricValueStatus, ObjectMetricStatus, PodsMetricStatus, ResourceMetricStatus,
        },
        core::v1::Pod,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::LabelSelector},
};
use serde_json::Value;

use super::{
    decide::{Asked, Unusable},
    replicas::{OfPods, PodTarget, Proposal, Sample, Samples, Tolerances, TotalTarget, of_total},
};
use crate::quantity;

/// The window of a custom metric that names none.
const WINDOW: SignedDuration = SignedDuration::from_secs(60);

/// What was found out about a metric, or why nothing was.
pub enum Found {
    OfPods(Result<Samples, String>),
    Total(Result<i128, String>),
}

/// The target of an autoscaler.
pub struct View {
    pub namespace: String,
    /// The size that it asks for.
    pub wanted: i32,
    /// The size that it has.
    pub there: i32,
    pub pods: Vec<Pod>,
    pub tolerances: Tolerances,
    pub now: Timestamp,
}

/// A message, and the same as part of the message about all metrics.
type Failed = (String, String);

impl View {
    /// What a metric asks for, by what was found out about it.
    pub fn ask(&self, spec: &MetricSpec, found: Found) -> Result<Asked, Unusable> {
        let (reason, asked) = match (spec.type_.as_str(), found) {
            ("Resource", Found::OfPods(samples)) => ("FailedGetResourceMetric", self.resource(spec, samples)),
            ("ContainerResource", Found::OfPods(samples)) => {
                ("FailedGetContainerResourceMetric", self.container_resource(spec, samples))
            }
            ("Pods", Found::OfPods(samples)) => ("FailedGetPodsMetric", self.of_pods(spec, samples)),
            ("Object", Found::Total(amount)) => ("FailedGetObjectMetric", self.of_object(spec, amount)),
            ("External", Found::Total(amount)) => ("FailedGetExternalMetric", self.external(spec, amount)),
            (other, _) => {
                let message = format!("unknown metric source type {other:?}");
                ("InvalidMetricSourceType", Err((message.clone(), message)))
            }
        };
        asked.map_err(|(message, whole)| Unusable { reason, message, whole })
    }

    fn resource(&self, spec: &MetricSpec, samples: Result<Samples, String>) -> Result<Asked, Failed> {
        let of = spec.resource.as_ref().ok_or_else(|| absent("resource"))?;
        let (replicas, current, what) = self.of_resource(&of.name, None, &of.target, samples).map_err(|message| {
            let whole = format!("failed to get {} resource metric value: {message}", of.name);
            (message, whole)
        })?;
        let status = ResourceMetricStatus { name: of.name.clone(), current };
        let status = MetricStatus { type_: "Resource".into(), resource: Some(status), ..MetricStatus::default() };
        Ok(Asked { replicas, name: format!("{} {what}", of.name), status })
    }

    fn container_resource(&self, spec: &MetricSpec, samples: Result<Samples, String>) -> Result<Asked, Failed> {
        let of = spec.container_resource.as_ref().ok_or_else(|| absent("containerResource"))?;
        let container = Some(of.container.as_str());
        let asked = self.of_resource(&of.name, container, &of.target, samples).map_err(|message| {
            let whole = format!("failed to get {} container metric value: {message}", of.container);
            (message, whole)
        });
        let (replicas, current, what) = asked?;
        let status = ContainerResourceMetricStatus { name: of.name.clone(), container: of.container.clone(), current };
        let status = MetricStatus {
            type_: "ContainerResource".into(),
            container_resource: Some(status),
            ..MetricStatus::default()
        };
        let name = match of.target.average_value {
            Some(_) => format!("{} {what}", of.name),
            None => format!("{} container {what}", of.name),
        };
        Ok(Asked { replicas, name, status })
    }

    fn of_resource(
        &self,
        name: &str,
        container: Option<&str>,
        target: &MetricTarget,
        samples: Result<Samples, String>,
    ) -> Result<(i32, MetricValueStatus, &'static str), String> {
        let (target, measure, what) = match (amount(target.average_value.as_ref()), target.average_utilization) {
            (Some(each), _) => (PodTarget::Average(each), "usage", "resource"),
            (None, Some(percent)) => {
                (PodTarget::Utilization(percent), "utilization", "resource utilization (percentage of request)")
            }
            (None, None) => {
                return Err("invalid resource metric source: neither an average utilization target nor an average \
                            value (usage) target was set"
                    .to_owned());
            }
        };
        let resource = OfPods { resource: Some(name), container, target };
        let proposal = samples
            .map_err(|why| format!("unable to get metrics for resource {name}: {why}"))
            .and_then(|samples| resource.propose(self.wanted, &self.pods, &samples, self.tolerances, self.now))
            .map_err(|why| format!("failed to get {name} {measure}: {why}"))?;
        let shown = if name == "memory" { binary(proposal.value) } else { decimal(proposal.value) };
        let current =
            MetricValueStatus { average_utilization: proposal.utilization, average_value: Some(shown), value: None };
        Ok((proposal.replicas, current, what))
    }

    fn of_pods(&self, spec: &MetricSpec, samples: Result<Samples, String>) -> Result<Asked, Failed> {
        let of = spec.pods.as_ref().ok_or_else(|| absent("pods"))?;
        let each = amount(of.target.average_value.as_ref())
            .ok_or_else(|| "invalid pods metric source: no average value target was set".to_owned());
        let proposal = samples
            .map_err(|why| format!("unable to get metric {}: {why}", of.metric.name))
            .and_then(|samples| {
                let metric = OfPods { resource: None, container: None, target: PodTarget::Average(each?) };
                metric.propose(self.wanted, &self.pods, &samples, self.tolerances, self.now)
            })
            .map_err(|message| {
                let whole = format!("failed to get pods metric value: {message}");
                (message, whole)
            })?;
        let status = PodsMetricStatus { metric: of.metric.clone(), current: average(proposal.value) };
        let status = MetricStatus { type_: "Pods".into(), pods: Some(status), ..MetricStatus::default() };
        Ok(Asked { replicas: proposal.replicas, name: format!("pods metric {}", of.metric.name), status })
    }

    fn of_object(&self, spec: &MetricSpec, found: Result<i128, String>) -> Result<Asked, Failed> {
        let of = spec.object.as_ref().ok_or_else(|| absent("object"))?;
        let (metric, about) = (&of.metric.name, &of.described_object);
        let target = total_target(&of.target, "object").map_err(|message| {
            let whole = format!("failed to get object metric value: {message}");
            (message, whole)
        })?;
        let failed = |message: String| {
            let whole = match target {
                TotalTarget::Value(_) => format!("failed to get object metric value: {message}"),
                TotalTarget::Average(_) => {
                    format!("failed to get object metric value: failed to get {metric} object metric: {message}")
                }
            };
            (message, whole)
        };
        let unable = |why: String| {
            format!("unable to get metric {metric} on {} {}/{}: {why}", about.kind, self.namespace, about.name)
        };
        let proposal = found.map_err(unable).and_then(|value| self.total(value, target)).map_err(failed)?;
        let status = ObjectMetricStatus {
            described_object: about.clone(),
            metric: of.metric.clone(),
            current: current(&proposal, target),
        };
        let status = MetricStatus { type_: "Object".into(), object: Some(status), ..MetricStatus::default() };
        let name = match target {
            TotalTarget::Value(_) => format!("{} metric {metric}", about.kind),
            TotalTarget::Average(_) => external_name(&of.metric),
        };
        Ok(Asked { replicas: proposal.replicas, name, status })
    }

    fn external(&self, spec: &MetricSpec, found: Result<i128, String>) -> Result<Asked, Failed> {
        let of = spec.external.as_ref().ok_or_else(|| absent("external"))?;
        let metric = &of.metric.name;
        let whole = |message: &str| format!("failed to get {metric} external metric value: {message}");
        let target = total_target(&of.target, "external").map_err(|message| {
            let whole = whole(&message);
            (message, whole)
        })?;
        let failed = |message: String| {
            let whole = match target {
                TotalTarget::Value(_) => whole(&format!("failed to get external metric {metric}: {message}")),
                TotalTarget::Average(_) => whole(&format!("failed to get {metric} external metric: {message}")),
            };
            (message, whole)
        };
        let selector = selector_text(of.metric.selector.as_ref());
        let unable =
            |why: String| format!("unable to get external metric {}/{metric}/{selector}: {why}", self.namespace);
        let proposal = found.map_err(unable).and_then(|value| self.total(value, target)).map_err(failed)?;
        let status = ExternalMetricStatus { metric: of.metric.clone(), current: current(&proposal, target) };
        let status = MetricStatus { type_: "External".into(), external: Some(status), ..MetricStatus::default() };
        Ok(Asked { replicas: proposal.replicas, name: external_name(&of.metric), status })
    }

    fn total(&self, value: i128, target: TotalTarget) -> Result<Proposal, String> {
        of_total((self.wanted, self.there), &self.pods, value, target, self.tolerances)
    }
}

fn absent(field: &str) -> Failed {
    let message = format!("the metric has no field {field:?} although its type needs it");
    (message.clone(), message)
}

/// The average counts where both are given, as validation lets only one of them through.
fn total_target(target: &MetricTarget, source: &str) -> Result<TotalTarget, String> {
    match (amount(target.average_value.as_ref()), amount(target.value.as_ref())) {
        (Some(each), _) => Ok(TotalTarget::Average(each)),
        (None, Some(value)) => Ok(TotalTarget::Value(value)),
        (None, None) => {
            Err(format!("invalid {source} metric source: neither a value target nor an average value target was set"))
        }
    }
}

fn current(proposal: &Proposal, target: TotalTarget) -> MetricValueStatus {
    match target {
        TotalTarget::Value(_) => {
            MetricValueStatus { value: Some(decimal(proposal.value)), ..MetricValueStatus::default() }
        }
        TotalTarget::Average(_) => average(proposal.value),
    }
}

fn average(value: i128) -> MetricValueStatus {
    MetricValueStatus { average_value: Some(decimal(value)), ..MetricValueStatus::default() }
}

fn external_name(metric: &MetricIdentifier) -> String {
    format!("external metric {}({})", metric.name, selector_text(metric.selector.as_ref()))
}

/// A selector as upstream's messages show it.
fn selector_text(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},"));
    let requirements = selector.match_expressions.iter().flatten().map(|one| {
        let values = one.values.iter().flatten().cloned().collect::<Vec<String>>().join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", one.key, one.operator)
    });
    let (labels, requirements) = (labels.collect::<String>(), requirements.collect::<String>());
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}"
    )
}

pub fn amount(quantity: Option<&Quantity>) -> Option<i128> {
    quantity.and_then(quantity::milli)
}

/// A field of an answer that holds an amount, in thousandths.
fn amount_of(value: &Value) -> Option<i128> {
    amount(Some(&Quantity(value.as_str()?.to_owned())))
}

/// Measurements of one resource from PodMetrics. A Pod of which a container is missing is not measured.
pub fn resource_samples(list: &Value, resource: &str, container: Option<&str>) -> Samples {
    let one = |metrics: &Value| {
        let name = metrics["metadata"]["name"].as_str()?.to_owned();
        let all = metrics["containers"].as_array()?;
        let mut mine = all.iter().filter(|one| container.is_none_or(|name| one["name"] == name)).peekable();
        mine.peek()?;
        let value = mine.map(|one| amount_of(&one["usage"][resource])).sum::<Option<i128>>()?;
        let at = metrics["timestamp"].as_str()?.parse().ok()?;
        let window = metrics["window"].as_str().and_then(|text| text.parse().ok()).unwrap_or(WINDOW);
        Some((name, Sample { value, at, window }))
    };
    items(list).filter_map(one).collect()
}

/// Measurements from a MetricValueList of the custom metrics API.
pub fn custom_samples(list: &Value) -> Samples {
    let one = |metric: &Value| {
        let name = metric["describedObject"]["name"].as_str()?.to_owned();
        let value = amount_of(&metric["value"])?;
        let at = metric["timestamp"].as_str()?.parse().ok()?;
        let window = metric["windowSeconds"].as_i64().map_or(WINDOW, SignedDuration::from_secs);
        Some((name, Sample { value, at, window }))
    };
    items(list).filter_map(one).collect()
}

/// The one value of a MetricValueList about one object.
pub fn object_amount(list: &Value) -> Result<i128, String> {
    let all: Vec<&Value> = items(list).collect();
    match all.as_slice() {
        [one] => {
            amount_of(&one["value"]).ok_or_else(|| "the custom metrics API returned a value that is none".to_owned())
        }
        all => {
            Err(format!("the custom metrics API server returned {} results when we asked for exactly one", all.len()))
        }
    }
}

/// The sum of an ExternalMetricValueList.
pub fn external_amount(list: &Value) -> Result<i128, String> {
    let values: Vec<i128> = items(list).filter_map(|one| amount_of(&one["value"])).collect();
    match values.is_empty() {
        true => Err("no metrics returned from external metrics API".to_owned()),
        false => Ok(values.into_iter().fold(0, i128::saturating_add)),
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

/// Thousandths as a quantity in its canonical form.
pub fn decimal(milli: i128) -> Quantity {
    const SUFFIXES: [&str; 8] = ["m", "", "k", "M", "G", "T", "P", "E"];
    let (mut number, mut at) = (milli, 0);
    if number == 0 {
        return Quantity("0".to_owned());
    }
    while number % 1000 == 0 && at + 1 < SUFFIXES.len() {
        (number, at) = (number / 1000, at + 1);
    }
    Quantity(format!("{number}{}", SUFFIXES[at]))
}

/// Thousandths of bytes as a quantity in its canonical form.
pub fn binary(milli: i128) -> Quantity {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if milli.abs() < 1_024_000 {
        return decimal(milli);
    }
    let (mut number, mut at) = (milli / 1000 + i128::from(milli % 1000 > 0), 0);
    while number % 1024 == 0 && at + 1 < SUFFIXES.len() {
        (number, at) = (number / 1024, at + 1);
    }
    Quantity(format!("{number}{}", SUFFIXES[at]))
}
