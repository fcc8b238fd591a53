//! What is asked of a kubelet's port, by path and query. Pure.

/// A query's names and values, decoded, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(query: Option<&str>) -> Self {
        Self(form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("1" | "true" | "True" | "TRUE" | "t" | "T"))
    }
}

/// A container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub namespace: String,
    pub pod: String,
    pub container: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    Health,
    Pods,
    RunningPods,
    Logs(Place),
    Exec(Place),
    Attach(Place),
    /// The container is empty.
    PortForward(Place),
    Summary,
    ResourceMetrics,
    ContainerMetrics,
    /// A file below the directory of logs, or a directory there: empty, or with a slash at its end if it was asked for with one.
    File(String),
    Unknown,
}

impl Route {
    pub fn of(path: &str) -> Self {
        let place = |namespace: &str, pod: &str, container: &str| Place {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            container: container.to_owned(),
        };
        if let Some(file) = path.strip_prefix("/logs/") {
            return Self::File(file.to_owned());
        }
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match parts[..] {
            ["healthz"] | ["healthz", "ping" | "syncloop" | "log"] => Self::Health,
            ["pods"] => Self::Pods,
            ["runningpods"] => Self::RunningPods,
            ["stats", "summary"] => Self::Summary,
            ["metrics", "resource"] => Self::ResourceMetrics,
            ["metrics", "cadvisor"] => Self::ContainerMetrics,
            ["logs"] => Self::File(String::new()),
            ["containerLogs", namespace, pod, container] => Self::Logs(place(namespace, pod, container)),
            // With the pod's uid, for those who know it: names are enough.
            ["exec", namespace, pod, container] | ["exec", namespace, pod, _, container] => {
                Self::Exec(place(namespace, pod, container))
            }
            ["attach", namespace, pod, container] | ["attach", namespace, pod, _, container] => {
                Self::Attach(place(namespace, pod, container))
            }
            ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
                Self::PortForward(place(namespace, pod, ""))
            }
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_kubelet() {
        let place = |namespace: &str, pod: &str, container: &str| Place {
            namespace: namespace.into(),
            pod: pod.into(),
            container: container.into(),
        };
        for (path, route) in [
            ("/healthz", Route::Health),
            ("/healthz/ping", Route::Health),
            ("/pods", Route::Pods),
            ("/pods/", Route::Pods),
            ("/runningpods/", Route::RunningPods),
            ("/containerLogs/ns/web/app", Route::Logs(place("ns", "web", "app"))),
            ("/containerLogs/ns/web", Route::Unknown),
            ("/exec/ns/web/app", Route::Exec(place("ns", "web", "app"))),
            ("/exec/ns/web/uid/app", Route::Exec(place("ns", "web", "app"))),
            ("/attach/ns/web/app", Route::Attach(place("ns", "web", "app"))),
            ("/portForward/ns/web", Route::PortForward(place("ns", "web", ""))),
            ("/portForward/ns/web/uid", Route::PortForward(place("ns", "web", ""))),
            ("/stats/summary", Route::Summary),
            ("/metrics/resource", Route::ResourceMetrics),
            ("/metrics/cadvisor", Route::ContainerMetrics),
            ("/logs", Route::File(String::new())),
            ("/logs/a/b.log", Route::File("a/b.log".into())),
            ("/", Route::Unknown),
            ("/run/x", Route::Unknown),
        ] {
            assert_eq!(Route::of(path), route, "{path}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse(Some("command=sh&command=-c&command=a+b%26&input=1&tty=false"));
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["sh", "-c", "a b&"]);
        assert!(query.flag("input") && !query.flag("tty") && !query.flag("output"));
    }
}
