//! How much CPU and memory the node and its containers use. It is measured when somebody asks: while nobody does, it costs nothing.

mod machine;
pub mod metrics;
pub mod summary;
pub mod top;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use pods::{
    Known, Pods,
    runtime::{ContainerId, Failure, Runtime, Usage},
};
use tokio::sync::Mutex;

use machine::Machine;

/// A rate is of at least so long.
const SHORTEST: SignedDuration = SignedDuration::from_millis(500);
/// Older than that says little about now.
const LONGEST: SignedDuration = SignedDuration::from_secs(60);
/// What was measured so lately is told again.
const FRESH: SignedDuration = SignedDuration::from_secs(1);
/// From then on, what is measured is what the next is compared with.
const BASE: SignedDuration = SignedDuration::from_secs(10);

/// What was used up to one moment.
#[derive(Clone, Debug)]
struct Sample {
    at: Timestamp,
    machine: Machine,
    containers: BTreeMap<ContainerId, Usage>,
}

/// What is used at one moment.
#[derive(Clone, Debug)]
pub struct Measured {
    pub at: Timestamp,
    pub window: Duration,
    pub machine: Used,
    pub memory_available: u64,
    pub booted_at: i64,
    pub pods: Vec<OfPod>,
}

#[derive(Clone, Debug)]
pub struct OfPod {
    pub pod: Arc<Pod>,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// How long the rates of its containers are about: less than the node's where one of them began meanwhile.
    pub window: Duration,
    /// Those that run.
    pub containers: Vec<OfContainer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfContainer {
    pub name: String,
    pub started_at: String,
    pub used: Used,
    pub processes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Since its start.
    pub cpu_nanos: u64,
    /// In each second of late.
    pub cpu_rate: u64,
    pub memory: u64,
}

impl std::iter::Sum for Used {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| Self {
            cpu_nanos: a.cpu_nanos.saturating_add(b.cpu_nanos),
            cpu_rate: a.cpu_rate.saturating_add(b.cpu_rate),
            memory: a.memory.saturating_add(b.memory),
        })
    }
}

impl OfPod {
    pub fn used(&self) -> Used {
        self.containers.iter().map(|container| container.used).sum()
    }
}

pub struct Meter {
    pods: Pods,
    runtime: Arc<dyn Runtime>,
    /// What the next is compared with, and what was told last. Who asks meanwhile waits and is told the same.
    known: Mutex<(Option<Sample>, Option<Arc<Measured>>)>,
}

impl Meter {
    pub fn new(pods: Pods, runtime: Arc<dyn Runtime>) -> Self {
        Self { pods, runtime, known: Mutex::new((None, None)) }
    }

    pub async fn measure(&self) -> Result<Arc<Measured>, Failure> {
        let mut known = self.known.lock().await;
        if let Some(last) = known.1.as_ref().filter(|last| age(last.at) < FRESH) {
            return Ok(last.clone());
        }
        let base = match known.0.take().filter(|base| age(base.at) <= LONGEST) {
            Some(base) => base,
            None => self.sample().await?,
        };
        if let Ok(missing) = Duration::try_from(SHORTEST - age(base.at)) {
            tokio::time::sleep(missing).await;
        }
        let now = self.sample().await?;
        let measured = Arc::new(compare(&base, &now, &self.pods.list()));
        let base = if age(base.at) >= BASE { now } else { base };
        *known = (Some(base), Some(measured.clone()));
        Ok(measured)
    }

    async fn sample(&self) -> Result<Sample, Failure> {
        let usage = self.runtime.usage().await?;
        let containers = usage.into_iter().filter_map(|usage| Some((usage.id.clone()?, usage))).collect();
        Ok(Sample { at: Timestamp::now(), machine: Machine::read(), containers })
    }
}

/// A clock that was set back makes nothing older.
fn age(at: Timestamp) -> SignedDuration {
    Timestamp::now().duration_since(at).max(SignedDuration::ZERO)
}

/// The time since a container started. One whose start cannot be read has run for ever.
fn since(started_at: &str, now: Timestamp) -> Duration {
    let started = started_at.parse::<Timestamp>().ok();
    started.map_or(Duration::MAX, |started| Duration::try_from(now.duration_since(started)).unwrap_or_default())
}

fn compare(base: &Sample, now: &Sample, pods: &[Arc<Known>]) -> Measured {
    let window = Duration::try_from(now.at.duration_since(base.at)).unwrap_or_default().max(Duration::from_millis(1));
    let rate = |before: u64, after: u64, within: Duration| {
        let nanos = u128::from(after.saturating_sub(before)) * 1_000_000_000 / within.as_nanos().max(1);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    };
    let shortest = Duration::try_from(SHORTEST).unwrap_or_default();
    let of_container = |known: &pods::KnownContainer| {
        let run = known.current.as_ref().filter(|run| run.is_running)?;
        let usage = now.containers.get(&run.id)?;
        let (before, within) = match base.containers.get(&run.id) {
            Some(before) => (before.cpu_nanos, window),
            // It began meanwhile: its rate is of the time since then.
            None => (0, since(&run.started_at, now.at).clamp(shortest.min(window), window)),
        };
        let cpu_rate = rate(before, usage.cpu_nanos, within);
        let container = OfContainer {
            name: known.name.clone(),
            started_at: run.started_at.clone(),
            used: Used { cpu_nanos: usage.cpu_nanos, cpu_rate, memory: usage.memory_bytes },
            processes: usage.processes,
        };
        Some((container, within))
    };
    let of_pod = |known: &Arc<Known>| {
        let (containers, windows): (Vec<OfContainer>, Vec<Duration>) =
            known.containers.iter().filter_map(of_container).unzip();
        OfPod {
            pod: known.pod.clone(),
            namespace: known.namespace.clone(),
            name: known.name.clone(),
            uid: known.uid.clone(),
            window: windows.into_iter().min().unwrap_or(window),
            containers,
        }
    };
    Measured {
        at: now.at,
        window,
        machine: Used {
            cpu_nanos: now.machine.cpu_nanos,
            cpu_rate: rate(base.machine.cpu_nanos, now.machine.cpu_nanos, window),
            memory: now.machine.memory_used(),
        },
        memory_available: now.machine.memory_available,
        booted_at: now.machine.booted_at,
        pods: pods.iter().map(of_pod).filter(|pod| !pod.containers.is_empty()).collect(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use pods::{KnownContainer, Run};
    use serde_json::json;

    use super::*;

    pub(crate) fn known(namespace: &str, name: &str, running: bool) -> Known {
        let id = ContainerId { pod: format!("uid-{name}"), name: "app".into(), attempt: 0 };
        let run = Run { id, log: "0.log".into(), is_running: running, started_at: "2026-01-02T03:04:00Z".into() };
        let pod = json!({"metadata": {"name": name, "namespace": namespace, "labels": {"app": name}, "creationTimestamp": "2026-01-02T03:03:00Z"},
            "spec": {"containers": [{"name": "app", "image": "x"}]}, "status": {"startTime": "2026-01-02T03:03:30Z"}});
        Known {
            uid: format!("uid-{name}"),
            namespace: namespace.into(),
            name: name.into(),
            address: None,
            pod: Arc::new(serde_json::from_value(pod).unwrap()),
            containers: vec![KnownContainer { name: "app".into(), is_init: false, current: Some(run), previous: None }],
        }
    }

    fn sample(at: &str, machine_nanos: u64, of: &[(&str, u64, u64)]) -> Sample {
        let machine =
            Machine { cpu_nanos: machine_nanos, memory_total: 100, memory_available: 40, booted_at: 1_700_000_000 };
        let usage = |(name, cpu_nanos, memory_bytes): &(&str, u64, u64)| {
            let id = ContainerId { pod: format!("uid-{name}"), name: "app".into(), attempt: 0 };
            (id.clone(), Usage { id: Some(id), cpu_nanos: *cpu_nanos, memory_bytes: *memory_bytes, processes: 2 })
        };
        Sample { at: at.parse().unwrap(), machine, containers: of.iter().map(usage).collect() }
    }

    pub(crate) fn measured() -> Measured {
        let base = sample("2026-01-02T03:04:00Z", 1_000_000_000, &[("web", 500, 1)]);
        let now = sample(
            "2026-01-02T03:04:02Z",
            2_000_000_000,
            &[("web", 1_000_000_500, 4096), ("new", 200_000_000, 10), ("over", 1, 1)],
        );
        let pods =
            [known("default", "web", true), known("other", "new", true), known("default", "over", false)].map(Arc::new);
        compare(&base, &now, &pods)
    }

    #[test]
    fn a_container_that_began_meanwhile_is_measured_since_then() {
        let base = sample("2026-01-02T03:03:40Z", 0, &[]);
        let now = sample("2026-01-02T03:04:05Z", 0, &[("new", 1_000_000_000, 10)]);
        let measured = compare(&base, &now, &[known("default", "new", true)].map(Arc::new));
        let pod = &measured.pods[0];
        assert_eq!((pod.used().cpu_rate, pod.window), (200_000_000, Duration::from_secs(5)));
        // One that has only just begun is not divided by nothing.
        let now = sample("2026-01-02T03:04:00Z", 0, &[("new", 1_000_000, 10)]);
        let measured = compare(&base, &now, &[known("default", "new", true)].map(Arc::new));
        assert_eq!(measured.pods[0].used().cpu_rate, 2_000_000);
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let measured = measured();
        assert_eq!(measured.window, Duration::from_secs(2));
        assert_eq!(measured.machine, Used { cpu_nanos: 2_000_000_000, cpu_rate: 500_000_000, memory: 60 });
        let rates: Vec<(&str, u64)> =
            measured.pods.iter().map(|pod| (pod.name.as_str(), pod.used().cpu_rate)).collect();
        assert_eq!(rates, [("web", 500_000_000), ("new", 100_000_000)], "what does not run uses nothing");
    }
}
