//! HorizontalPodAutoscalers: as many replicas as metrics ask for, with upstream's rules, texts and defaults.

mod behavior;
mod decide;
mod measure;
mod metric;
#[cfg(test)]
mod model;
mod replicas;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::{
    api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, MetricStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, Client, api::PostParams};

use self::{
    behavior::{History, Rules},
    decide::{Asked, Conditions, Rescale, Unusable, Wanted, bounds, combine, normalize, without_metrics},
    measure::{Asker, Scale},
    metric::View,
    replicas::Tolerances,
};
#[cfg(test)]
pub use tests::CASES;

use crate::Setting;
use controllers::{
    Controller, Error, Reconciler,
    cache::{Cache, Key},
    code,
    dependents::message_of,
    events::{Recorder, Weight},
};

pub fn controller(setting: &mut Setting) -> Controller {
    let (client, recorder) = setting.actor("horizontal-pod-autoscaler", "horizontal-pod-autoscaler");
    let period = setting.options.autoscaler_period;
    let mut builder = setting.builder("horizontal-pod-autoscaler-controller");
    let autoscalers = builder.read::<HorizontalPodAutoscaler>();
    builder.on(&autoscalers, |change, queue| {
        // The controller's own change of the status is no reason to look before it is time.
        let spec = |state: &Option<Arc<HorizontalPodAutoscaler>>| state.as_ref().map(|one| one.spec.clone());
        if spec(&change.old) != spec(&change.new) {
            change.states().for_each(|one| queue.add(Key::of(&**one)));
        }
    });
    builder.build(Autoscalers {
        asker: Asker::new(client.clone()),
        client,
        autoscalers,
        recorder,
        known: Mutex::default(),
        began: Instant::now(),
        period,
    })
}

/// What is remembered of an autoscaler.
#[derive(Default)]
struct Known {
    history: History,
    /// The Pods that its target selected last.
    pods: BTreeSet<String>,
}

struct Autoscalers {
    asker: Asker,
    client: Client,
    autoscalers: Arc<Cache<HorizontalPodAutoscaler>>,
    recorder: Recorder,
    known: Mutex<HashMap<Key, Known>>,
    began: Instant,
    /// Every autoscaler is looked at this often.
    period: Duration,
}

/// What one reconciliation came to.
#[derive(Default)]
struct Outcome {
    metrics: Option<Vec<MetricStatus>>,
    rescale: Option<Rescale>,
    /// The metrics cannot be used.
    failed: bool,
}

impl Reconciler for Autoscalers {
    async fn reconcile(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let Some(hpa) = self.autoscalers.get(key) else {
            self.known().remove(key);
            return Ok(None);
        };
        let mut conditions = Conditions::of(&hpa, Timestamp::now());
        let mut status = hpa.status.clone().unwrap_or_default();
        let scale = match self.asker.scale(&key.namespace, &hpa.spec.scale_target_ref).await {
            Ok(scale) => scale,
            Err(failed) => {
                let message =
                    format!("the HPA controller was unable to get the target's current scale: {}", failed.message);
                self.warn(&hpa, "FailedGetScale", failed.message);
                conditions.set("AbleToScale", false, "FailedGetScale", message);
                self.save(key, &hpa, status, conditions).await?;
                return Ok(Some(self.period));
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        conditions.set("AbleToScale", true, "SucceededGetScale", message);
        let current = scale.wanted();
        self.known().entry(key.clone()).or_default().history.begin(current, self.began.elapsed());
        let outcome = match without_metrics(&hpa, current, &mut conditions) {
            Some(rescale) => Outcome { rescale, ..Outcome::default() },
            None => self.by_metrics(key, &hpa, &scale, &mut conditions).await,
        };
        status.observed_generation = hpa.metadata.generation;
        status.current_replicas = Some(current);
        status.current_metrics = outcome.metrics;
        if !outcome.failed {
            status.desired_replicas = current;
        }
        if let Some(rescale) = outcome.rescale
            && self.rescale(key, &hpa, scale, &rescale, &mut conditions).await
        {
            status.desired_replicas = rescale.to;
            status.last_scale_time = Some(Time(Timestamp::now()));
        }
        self.save(key, &hpa, status, conditions).await?;
        Ok(Some(self.period))
    }
}

impl Autoscalers {
    fn known(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn warn(&self, hpa: &HorizontalPodAutoscaler, reason: &str, message: impl Into<String>) {
        self.recorder.tell(hpa, Weight::Warning, reason, message);
    }

    /// What the metrics come to.
    async fn by_metrics(
        &self,
        key: &Key,
        hpa: &HorizontalPodAutoscaler,
        scale: &Scale,
        conditions: &mut Conditions,
    ) -> Outcome {
        let failed = |metrics| Outcome { metrics, rescale: None, failed: true };
        let rules = Rules(hpa.spec.behavior.as_ref());
        let view = match self.view(key, hpa, scale, rules, conditions).await {
            Ok(view) => view,
            Err(message) => {
                self.warn(hpa, "FailedComputeMetricsReplicas", message);
                return failed(None);
            }
        };
        let asked = hpa.spec.metrics.iter().flatten().map(|spec| async {
            let found = self.asker.find(&key.namespace, scale.selector(), spec).await;
            view.ask(spec, found)
        });
        let metrics: Vec<Result<Asked, Unusable>> = join_all(asked).await;
        for unusable in metrics.iter().filter_map(|metric| metric.as_ref().err()) {
            self.warn(hpa, unusable.reason, unusable.message.clone());
        }
        // What cannot be used keeps its place: clients read a metric's status by its number.
        let statuses = metrics.iter().map(|one| one.as_ref().map(|one| one.status.clone()).unwrap_or_default());
        let statuses = Some(statuses.collect::<Vec<MetricStatus>>()).filter(|all| !all.is_empty());
        match combine(view.wanted, &metrics, conditions) {
            Wanted::Unknown { message } => {
                self.warn(hpa, "FailedComputeMetricsReplicas", message);
                failed(statuses)
            }
            Wanted::Replicas { replicas, name } => {
                let (mut known, now) = (self.known(), self.began.elapsed());
                let history = &mut known.entry(key.clone()).or_default().history;
                let (bounds, wanted) = (bounds(hpa), (replicas, name.as_str()));
                let rescale =
                    normalize(hpa.spec.behavior.as_ref(), bounds, view.wanted, wanted, history, conditions, now);
                Outcome { metrics: statuses, rescale, failed: false }
            }
        }
    }

    /// The target as it is. An error if its Pods cannot be told from those of others.
    async fn view(
        &self,
        key: &Key,
        hpa: &HorizontalPodAutoscaler,
        scale: &Scale,
        rules: Rules<'_>,
        conditions: &mut Conditions,
    ) -> Result<View, String> {
        let selector = scale.selector();
        if selector.is_empty() {
            let message = "selector is required".to_owned();
            self.warn(hpa, "SelectorRequired", message.clone());
            let said = "the HPA target's scale is missing a selector";
            conditions.set("ScalingActive", false, "InvalidSelector", said);
            return Err(message);
        }
        let pods = self.asker.pods(&key.namespace, selector).await.map_err(|failed| {
            let message =
                format!("couldn't convert selector into a corresponding internal selector object: {}", failed.message);
            self.warn(hpa, "InvalidSelector", message.clone());
            conditions.set("ScalingActive", false, "InvalidSelector", message.clone());
            message
        })?;
        let names: BTreeSet<String> = pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
        if let Some(others) = self.shared(key, names) {
            let message = format!("pods by selector {selector} are controlled by multiple HPAs: {others}");
            self.warn(hpa, "AmbiguousSelector", message.clone());
            conditions.set("ScalingActive", false, "AmbiguousSelector", message.clone());
            return Err(message);
        }
        Ok(View {
            namespace: key.namespace.clone(),
            wanted: scale.wanted(),
            there: scale.there(),
            pods,
            tolerances: Tolerances::of(rules),
            now: Timestamp::now(),
        })
    }

    /// Remembers the Pods of an autoscaler's target. Several autoscalers that have one of them in common are named.
    fn shared(&self, key: &Key, pods: BTreeSet<String>) -> Option<String> {
        let mut known = self.known();
        let is_other = |other: &&Key| other.namespace == key.namespace && *other != key;
        let others = known.iter().filter(|(other, known)| is_other(other) && !known.pods.is_disjoint(&pods));
        let mut all: Vec<&Key> = others.map(|(other, _)| other).collect();
        let said = (!all.is_empty()).then(|| {
            all.push(key);
            all.sort();
            let named: Vec<String> = all.iter().map(|key| format!("{{{} {}}}", key.name, key.namespace)).collect();
            format!("[{}]", named.join(" "))
        });
        known.entry(key.clone()).or_default().pods = pods;
        said
    }

    /// Whether the target got its new size.
    async fn rescale(
        &self,
        key: &Key,
        hpa: &HorizontalPodAutoscaler,
        scale: Scale,
        rescale: &Rescale,
        conditions: &mut Conditions,
    ) -> bool {
        let (from, Rescale { to, reason }) = (scale.wanted(), rescale);
        if let Err(failed) = self.asker.rescale(scale, *to).await {
            let why = failed.message;
            self.warn(hpa, "FailedRescale", format!("New size: {to}; reason: {reason}; error: {why}"));
            let message = format!("the HPA controller was unable to update the target scale: {why}");
            conditions.set("AbleToScale", false, "FailedUpdateScale", message);
            return false;
        }
        self.recorder.tell(hpa, Weight::Normal, "SuccessfulRescale", format!("New size: {to}; reason: {reason}"));
        let message = format!("the HPA controller was able to update the target scale to {to}");
        conditions.set("AbleToScale", true, "SucceededRescale", message);
        if hpa.spec.behavior.is_some() {
            self.known().entry(key.clone()).or_default().history.changed(from, *to, self.began.elapsed());
        }
        true
    }

    async fn save(
        &self,
        key: &Key,
        hpa: &HorizontalPodAutoscaler,
        mut status: HorizontalPodAutoscalerStatus,
        conditions: Conditions,
    ) -> Result<(), Error> {
        status.conditions = Some(conditions.into_list());
        if hpa.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let api: Api<HorizontalPodAutoscaler> = Api::namespaced(self.client.clone(), &key.namespace);
        let changed = HorizontalPodAutoscaler { status: Some(status), ..hpa.clone() };
        match api.replace_status(&key.name, &PostParams::default(), &changed).await {
            Ok(_) => Ok(()),
            Err(error) => {
                if code(&error) != 409 {
                    self.warn(hpa, "FailedUpdateStatus", message_of(&error));
                }
                Err(error.into())
            }
        }
    }
}
