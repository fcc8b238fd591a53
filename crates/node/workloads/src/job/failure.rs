//! What the failure of a Pod means, by the Job's podFailurePolicy. Pure.

use k8s_openapi::api::{
    batch::v1::{JobSpec, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule},
    core::v1::Pod,
};

use super::pod;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// As without a policy: it counts towards the limit.
    Counts,
    Ignored,
    /// No Pod of this index will follow.
    FailsIndex,
    /// And why.
    FailsJob(String),
}

pub fn meaning(spec: &JobSpec, pod: &Pod) -> Meaning {
    let Some(policy) = &spec.pod_failure_policy else { return Meaning::Counts };
    for (at, rule) in policy.rules.iter().enumerate() {
        let Some(why) = matches(rule, pod) else { continue };
        match rule.action.as_str() {
            "Ignore" => return Meaning::Ignored,
            "Count" => return Meaning::Counts,
            "FailIndex" => return Meaning::FailsIndex,
            "FailJob" => {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                let of = format!("pod {namespace}/{name}");
                return Meaning::FailsJob(match why {
                    Why::Exit(container, code) => {
                        format!(
                            "Container {container} for {of} failed with exit code {code} matching FailJob rule at index {at}"
                        )
                    }
                    Why::Condition(kind) => {
                        format!("{} has condition {kind} matching FailJob rule at index {at}", of.replacen('p', "P", 1))
                    }
                });
            }
            _ => {}
        }
    }
    Meaning::Counts
}

enum Why {
    Exit(String, i32),
    Condition(String),
}

fn matches(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<Why> {
    if let Some(codes) = &rule.on_exit_codes {
        return exit(codes, pod);
    }
    let patterns = rule.on_pod_conditions.iter().flatten();
    let mut found = patterns.filter(|one| pod::has_condition(pod, &one.type_, one.status.as_deref().unwrap_or("True")));
    found.next().map(|one| Why::Condition(one.type_.clone()))
}

fn exit(codes: &PodFailurePolicyOnExitCodesRequirement, pod: &Pod) -> Option<Why> {
    let status = pod.status.as_ref()?;
    let all = status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    for one in all.filter(|one| codes.container_name.as_ref().is_none_or(|name| *name == one.name)) {
        let Some(ended) = one.state.as_ref().and_then(|state| state.terminated.as_ref()) else { continue };
        let listed = codes.values.contains(&ended.exit_code);
        if ended.exit_code != 0 && listed == (codes.operator == "In") {
            return Some(Why::Exit(one.name.clone(), ended.exit_code));
        }
    }
    None
}
