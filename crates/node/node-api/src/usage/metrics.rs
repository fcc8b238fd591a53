//! `/metrics/resource` and `/metrics/cadvisor`, as far as anybody reads them. Pure.

use std::fmt::Write;

use jiff::Timestamp;

use super::{Measured, OfContainer, OfPod};

/// What metrics of resources there are of everything.
pub fn resource(measured: &Measured) -> String {
    let at = measured.at.as_millisecond();
    let mut out = Text::default();
    let containers =
        || measured.pods.iter().flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)));
    out.begin("container_cpu_usage_seconds_total", "counter", "CPU time that the container has used, in core-seconds");
    for (pod, container) in containers() {
        out.line(&labels(pod, Some(container)), seconds(container.used.cpu_nanos), Some(at));
    }
    out.begin("container_memory_working_set_bytes", "gauge", "Memory that the container uses, in bytes");
    for (pod, container) in containers() {
        out.line(&labels(pod, Some(container)), container.used.memory, Some(at));
    }
    out.begin("container_start_time_seconds", "gauge", "When the container was started, in seconds of Unix time");
    for (pod, container) in containers() {
        if let Ok(started) = container.started_at.parse::<Timestamp>() {
            out.line(&labels(pod, Some(container)), started.as_second(), None);
        }
    }
    out.begin("node_cpu_usage_seconds_total", "counter", "CPU time that the node has used, in core-seconds");
    out.line("", seconds(measured.machine.cpu_nanos), Some(at));
    out.begin("node_memory_working_set_bytes", "gauge", "Memory that the node uses, in bytes");
    out.line("", measured.machine.memory, Some(at));
    out.begin(
        "pod_cpu_usage_seconds_total",
        "counter",
        "CPU time that the pod's containers have used, in core-seconds",
    );
    for pod in &measured.pods {
        out.line(&labels(pod, None), seconds(pod.used().cpu_nanos), Some(at));
    }
    out.begin("pod_memory_working_set_bytes", "gauge", "Memory that the pod's containers use, in bytes");
    for pod in &measured.pods {
        out.line(&labels(pod, None), pod.used().memory, Some(at));
    }
    out.begin("resource_scrape_error", "gauge", "1 if something could not be measured");
    out.line("", 0, None);
    out.text
}

/// The few of cAdvisor's metrics that dashboards cannot do without.
pub fn containers(measured: &Measured) -> String {
    let at = measured.at.as_millisecond();
    let mut out = Text::default();
    for (name, kind, help) in [
        ("container_cpu_usage_seconds_total", "counter", "CPU time that the container has used, in core-seconds"),
        ("container_memory_usage_bytes", "gauge", "Memory that the container uses, in bytes"),
        ("container_memory_working_set_bytes", "gauge", "Memory that the container uses, in bytes"),
        ("container_processes", "gauge", "Processes of the container"),
    ] {
        out.begin(name, kind, help);
        for pod in &measured.pods {
            for container in &pod.containers {
                let labels = labels(pod, Some(container));
                match name {
                    "container_cpu_usage_seconds_total" => {
                        out.line(&labels, seconds(container.used.cpu_nanos), Some(at))
                    }
                    "container_processes" => out.line(&labels, container.processes, Some(at)),
                    _ => out.line(&labels, container.used.memory, Some(at)),
                }
            }
        }
    }
    out.text
}

fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

/// Names of pods and containers need no quoting.
fn labels(pod: &OfPod, container: Option<&OfContainer>) -> String {
    let of_pod = format!("namespace=\"{}\",pod=\"{}\"", pod.namespace, pod.name);
    match container {
        Some(container) => format!("{{container=\"{}\",{of_pod}}}", container.name),
        None => format!("{{{of_pod}}}"),
    }
}

#[derive(Default)]
struct Text {
    text: String,
    name: &'static str,
}

impl Text {
    fn begin(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, labels: &str, value: impl std::fmt::Display, at: Option<i64>) {
        let _ = write!(self.text, "{}{labels} {value}", self.name);
        if let Some(at) = at {
            let _ = write!(self.text, " {at}");
        }
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_scrapers_read_them() {
        let measured = super::super::tests::measured();
        let text = resource(&measured);
        for line in [
            "container_cpu_usage_seconds_total{container=\"app\",namespace=\"default\",pod=\"web\"} 1.000000500 1767323042000",
            "container_start_time_seconds{container=\"app\",namespace=\"default\",pod=\"web\"} 1767323040",
            "pod_memory_working_set_bytes{namespace=\"other\",pod=\"new\"} 10 1767323042000",
            "node_memory_working_set_bytes 60 1767323042000",
            "resource_scrape_error 0",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
        assert!(
            containers(&measured)
                .contains("container_processes{container=\"app\",namespace=\"default\",pod=\"web\"} 2 ")
        );
    }
}
