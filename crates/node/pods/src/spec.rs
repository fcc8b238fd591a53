//! What a pod asks for, as the runner needs to know it.

use std::{borrow::Cow, time::Duration};

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, EphemeralContainer, Pod, PodSpec};

/// What Linux takes.
const LONGEST_HOSTNAME: usize = 63;

/// What a container is to its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Has to succeed before what comes after it.
    Init,
    /// Has to be started before what comes after it, and goes on as long as the pod does.
    Sidecar,
    Main,
    /// Added to a pod that runs, to look at it.
    Ephemeral,
}

/// Every container of a pod, in the order of starting.
pub fn containers(spec: &PodSpec) -> impl Iterator<Item = (Role, Cow<'_, Container>)> {
    let init = spec.init_containers.iter().flatten().map(|container| {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        (if is_sidecar { Role::Sidecar } else { Role::Init }, Cow::Borrowed(container))
    });
    let main = spec.containers.iter().map(|container| (Role::Main, Cow::Borrowed(container)));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    init.chain(main).chain(ephemeral.map(|container| (Role::Ephemeral, Cow::Owned(as_container(container)))))
}

pub fn container<'a>(pod: &'a Pod, name: &str) -> Option<Cow<'a, Container>> {
    containers(pod.spec.as_ref()?).find(|(_, container)| container.name == name).map(|(_, container)| container)
}

fn as_container(ephemeral: &EphemeralContainer) -> Container {
    Container {
        args: ephemeral.args.clone(),
        command: ephemeral.command.clone(),
        env: ephemeral.env.clone(),
        env_from: ephemeral.env_from.clone(),
        image: ephemeral.image.clone(),
        name: ephemeral.name.clone(),
        security_context: ephemeral.security_context.clone(),
        stdin: ephemeral.stdin,
        termination_message_path: ephemeral.termination_message_path.clone(),
        termination_message_policy: ephemeral.termination_message_policy.clone(),
        tty: ephemeral.tty,
        volume_mounts: ephemeral.volume_mounts.clone(),
        working_dir: ephemeral.working_dir.clone(),
        ..Container::default()
    }
}

/// The action of a rule by which the whole pod begins anew.
const ALL: &str = "RestartAllContainers";

/// What the first rule that is meant for this exit code says to do.
fn ruled(container: &Container, code: i32) -> Option<&str> {
    let is_meant = |rule: &&ContainerRestartRule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let is_in = codes.values.iter().flatten().any(|value| *value == code);
            if codes.operator == "NotIn" { !is_in } else { is_in }
        })
    };
    container.restart_policy_rules.iter().flatten().find(is_meant).map(|rule| rule.action.as_str())
}

/// Whether all containers begin anew because this one ended with that code.
pub fn begins_anew(container: &Container, code: i32) -> bool {
    ruled(container, code) == Some(ALL)
}

/// Whether there is an end by which that would happen.
pub fn can_begin_anew(spec: &PodSpec) -> bool {
    let all = spec.init_containers.iter().flatten().chain(&spec.containers);
    all.flat_map(|container| container.restart_policy_rules.iter().flatten()).any(|rule| rule.action == ALL)
}

/// Whether a container that ended with this code is started again, as long as its pod goes on.
pub fn is_restarted(spec: &PodSpec, container: &Container, role: Role, code: i32) -> bool {
    let is_ruled = matches!(ruled(container, code), Some("Restart" | ALL));
    let policy = container.restart_policy.as_deref().or(spec.restart_policy.as_deref()).unwrap_or("Always");
    match role {
        Role::Ephemeral => false,
        Role::Sidecar => true,
        Role::Init => begins_anew(container, code) || code != 0 && (is_ruled || policy != "Never"),
        Role::Main => is_ruled || policy == "Always" || policy == "OnFailure" && code != 0,
    }
}

/// How long the pod has to end: at least a second, as a kubelet has it.
pub fn grace(pod: &Pod) -> Duration {
    let asked = pod.metadata.deletion_grace_period_seconds.filter(|_| pod.metadata.deletion_timestamp.is_some());
    let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    Duration::from_secs(asked.or(own).unwrap_or(30).max(1).unsigned_abs())
}

pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

pub fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The name that a container finds in `HOSTNAME`: the node's own if the pod has no network of its own.
pub fn hostname(pod: &Pod) -> String {
    let Some(spec) = &pod.spec else { return String::new() };
    if let Some(node) = spec.node_name.as_ref().filter(|_| is_on_host_network(pod)) {
        return node.clone();
    }
    match host_and_domain(pod) {
        (short, Some(domain)) if spec.set_hostname_as_fqdn == Some(true) => format!("{short}.{domain}"),
        (short, _) => short,
    }
}

/// What a pod is called, and in which domain if it is in one.
pub fn host_and_domain(pod: &Pod) -> (String, Option<String>) {
    let Some(spec) = &pod.spec else { return (String::new(), None) };
    let own = [&spec.hostname_override, &spec.hostname].into_iter().flatten().find(|name| !name.is_empty());
    let short: String = own.map_or(name(pod), String::as_str).chars().take(LONGEST_HOSTNAME).collect();
    let short = short.trim_end_matches(['-', '.']).to_owned();
    let domain = spec.subdomain.as_ref().filter(|domain| !domain.is_empty() && spec.hostname_override.is_none());
    (short, domain.map(|domain| format!("{domain}.{}.svc.cluster.local", namespace(pod))))
}

/// What the container itself says comes before what its pod says.
pub fn run_as_user(pod: &Pod, container: &Container) -> Option<i64> {
    let of_pod = || pod.spec.as_ref()?.security_context.as_ref()?.run_as_user;
    container.security_context.as_ref().and_then(|own| own.run_as_user).or_else(of_pod)
}

/// As a kubelet names a pod to people.
pub fn full_name(pod: &Pod) -> String {
    format!("{}_{}({})", name(pod), namespace(pod), uid(pod))
}

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub fn is_terminal(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

pub fn is_on_host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_is_restarted() {
        for (pod, own, role, code, expected) in [
            ("Always", "", Role::Main, 0, true),
            ("Always", "", Role::Main, 1, true),
            ("OnFailure", "", Role::Main, 0, false),
            ("OnFailure", "", Role::Main, 1, true),
            ("Never", "", Role::Main, 1, false),
            ("Never", "OnFailure", Role::Main, 1, true),
            ("Always", "Never", Role::Main, 1, false),
            ("Always", "", Role::Init, 0, false),
            ("Always", "", Role::Init, 1, true),
            ("OnFailure", "", Role::Init, 1, true),
            ("Never", "", Role::Init, 1, false),
            ("Never", "Always", Role::Sidecar, 0, true),
            ("Always", "", Role::Ephemeral, 1, false),
        ] {
            let mut container = json!({"name": "a"});
            if !own.is_empty() {
                container["restartPolicy"] = own.into();
            }
            let spec: PodSpec =
                serde_json::from_value(json!({"restartPolicy": pod, "containers": [container]})).unwrap();
            assert_eq!(is_restarted(&spec, &spec.containers[0], role, code), expected, "{pod} {own} {role:?} {code}");
        }
    }

    #[test]
    fn names_of_hosts() {
        for (more, expected) in [
            (json!({}), "web-0"),
            (json!({"hostname": "db", "subdomain": "shop"}), "db"),
            (
                json!({"hostname": "db", "subdomain": "shop", "setHostnameAsFQDN": true}),
                "db.shop.prod.svc.cluster.local",
            ),
            (json!({"hostnameOverride": "a.example", "hostname": "db"}), "a.example"),
            (json!({"hostNetwork": true, "nodeName": "florin", "hostname": "db"}), "florin"),
        ] {
            let mut spec = json!({"containers": []});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let pod: Pod =
                serde_json::from_value(json!({"metadata": {"name": "web-0", "namespace": "prod"}, "spec": spec}))
                    .unwrap();
            assert_eq!(hostname(&pod), expected);
        }
        let pod = Pod {
            metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                name: Some(format!("{}-b", "a".repeat(62))),
                ..Default::default()
            },
            spec: Some(PodSpec::default()),
            status: None,
        };
        assert_eq!(hostname(&pod), "a".repeat(62));
    }

    #[test]
    fn a_container_says_itself_as_whom_it_runs() {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "securityContext": {"runAsUser": 5}, "containers": [{"name": "a"}, {"name": "b", "securityContext": {"runAsUser": 6}}],
            "ephemeralContainers": [{"name": "look", "securityContext": {"runAsUser": 7}}],
        }}))
        .unwrap();
        for (name, expected) in [("a", 5), ("b", 6), ("look", 7)] {
            assert_eq!(run_as_user(&pod, &container(&pod, name).unwrap()), Some(expected), "{name}");
        }
    }

    #[test]
    fn rules_restart_by_exit_code() {
        let spec: PodSpec = serde_json::from_value(json!({"restartPolicy": "Never", "containers": [{
            "name": "a", "restartPolicy": "Never",
            "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}],
        }]}))
        .unwrap();
        assert!(is_restarted(&spec, &spec.containers[0], Role::Main, 42));
        assert!(!is_restarted(&spec, &spec.containers[0], Role::Main, 1));
    }
}
