//! What a new pod is given before it is validated: its account and token, priority, tolerations, limits.

use std::time::Duration;

use rules::strategy::{admission, limits};
use schema::quantity::Quantity;
use schema::status::{Cause, Result, Status};
use serde_json::Value;

use super::{Plugin, all, forbid, on, one, usage};
use crate::call::Call;

/// The default account is made right after its namespace: whoever is quicker waits for it.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

pub async fn create(call: &Call, pod: &mut Value) -> Result<()> {
    if on(call, Plugin::LimitRanger) {
        limits::apply(pod, &all(call, "core/limitranges", &call.target.namespace));
    }
    if on(call, Plugin::ServiceAccount) {
        service_account(call, pod).await?;
    }
    always_pull(call, pod);
    if on(call, Plugin::Priority) {
        priority(call, pod)?;
    }
    if on(call, Plugin::DefaultTolerationSeconds) {
        admission::default_tolerations(pod);
    }
    if on(call, Plugin::RuntimeClass) {
        runtime_class(call, pod)?;
    }
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
    topology(call, pod, &node);
    Ok(())
}

/// Says in the labels of a pod, or of its binding, where its node is. A node that is not there yet says nothing.
pub fn topology(call: &Call, object: &mut Value, node: &str) {
    if node.is_empty() || !on(call, Plugin::PodTopologyLabels) {
        return;
    }
    if let Some(node) = one(call, "core/nodes", "", node) {
        admission::topology_labels(object, &node);
    }
}

/// Whoever asks for it never runs an image that somebody else has pulled with rights of their own.
fn always_pull(call: &Call, pod: &mut Value) {
    if !on(call, Plugin::AlwaysPullImages) {
        return;
    }
    for field in ["initContainers", "containers", "ephemeralContainers"] {
        let containers = pod["spec"].get_mut(field).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.insert("imagePullPolicy".to_owned(), "Always".into());
        }
    }
}

/// A change keeps what creation decided.
pub fn update(call: &Call, new: &mut Value, old: &Value) {
    always_pull(call, new);
    if !call.target.subresource.is_empty() {
        return;
    }
    for field in ["priority", "preemptionPolicy"] {
        if new["spec"][field].is_null() && !old["spec"][field].is_null() {
            new["spec"][field] = old["spec"][field].clone();
        }
    }
    if on(call, Plugin::DefaultTolerationSeconds) {
        admission::default_tolerations(new);
    }
}

async fn service_account(call: &Call, pod: &mut Value) -> Result<()> {
    if is_mirror(pod) {
        return match identity::pod_references::not_for_mirrors(pod) {
            Some(why) => Err(forbid(call, pod, why)),
            None => Ok(()),
        };
    }
    let name = admission::service_account_name(pod).to_owned();
    let Some(account) = find_account(call, &name).await else {
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount \"{name}\" not found",
            call.target.namespace
        );
        return Err(forbid(call, pod, &why));
    };
    let suffix = schema::names::generate("", |n| rand::random_range(0..n));
    admission::service_account(pod, &account, &suffix);
    Ok(())
}

fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string()
}

async fn find_account(call: &Call, name: &str) -> Option<Value> {
    let find = || one(call, "core/serviceaccounts", &call.target.namespace, name);
    let found = find();
    if found.is_some() || name != "default" {
        return found;
    }
    let looked = tokio::time::timeout(PATIENCE, async {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            if let Some(account) = find() {
                return account;
            }
        }
    });
    looked.await.ok()
}

fn priority(call: &Call, pod: &mut Value) -> Result<()> {
    let name = pod["spec"]["priorityClassName"].as_str().unwrap_or_default();
    let class = if name.is_empty() {
        default_priority(all(call, "scheduling.k8s.io/priorityclasses", ""))
    } else {
        one(call, "scheduling.k8s.io/priorityclasses", "", name)
    };
    admission::priority(pod, class.as_ref()).map_err(|why| forbid(call, pod, &why))
}

/// Of several default classes the lowest counts.
fn default_priority(classes: Vec<Value>) -> Option<Value> {
    let default = classes.into_iter().filter(|class| class["globalDefault"] == true);
    default.min_by_key(|class| class["value"].as_i64().unwrap_or_default())
}

fn runtime_class(call: &Call, pod: &mut Value) -> Result<()> {
    let Some(name) = pod["spec"]["runtimeClassName"].as_str().filter(|n| !n.is_empty()).map(str::to_owned) else {
        return match &pod["spec"]["overhead"] {
            Value::Object(overhead) if !overhead.is_empty() => Err(forbid(
                call,
                pod,
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            )),
            _ => Ok(()),
        };
    };
    let Some(class) = one(call, "node.k8s.io/runtimeclasses", "", &name) else {
        return Err(forbid(call, pod, &format!("pod rejected: RuntimeClass {name:?} not found")));
    };
    admission::runtime_class(pod, &class).map_err(|why| forbid(call, pod, &why))
}

/// A pod that runs somewhere may only ask for what its node could ever give.
pub fn resize(call: &Call, pod: &Value, old: &Value) -> Result<()> {
    let name = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if name.is_empty() || pod["metadata"]["generation"] == old["metadata"]["generation"] {
        return Ok(());
    }
    let Some(node) = one(call, "core/nodes", "", name) else {
        return Err(forbid(call, pod, &format!("node {name:?} not found")));
    };
    let refuse = |why: String, reason: &str| {
        let cause = Cause { reason: reason.into(), message: String::new(), field: String::new() };
        Err(forbid(call, pod, &why).with_causes(vec![cause]))
    };
    let system = node["metadata"]["labels"]["kubernetes.io/os"].as_str().unwrap_or("linux");
    if system != "linux" {
        let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
        return refuse(why, "UnsupportedPlatform");
    }
    let (wanted, there) = (usage::pod_total(&pod["spec"], "requests"), usage::amounts(&node["status"]["allocatable"]));
    let of = |amounts: &usage::Amounts, name: &str| amounts.get(name).cloned().unwrap_or_else(Quantity::zero);
    let mut missing = Vec::new();
    for name in ["cpu", "memory"] {
        let (wanted, there) = (of(&wanted, name), of(&there, name));
        if wanted > there {
            let shown = |amount: &Quantity| if name == "cpu" { amount.milli_value() } else { amount.value() };
            missing.push(format!("{name}, requested: {}, allocatable: {}", shown(&wanted), shown(&there)));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    refuse(format!("node didn't have enough allocatable resources: {}", missing.join("; ")), "NodeCapacity")
}

/// What the limit ranges of the namespace have against a pod or a claim.
pub fn within_limits(call: &Call, value: &Value) -> Result<()> {
    if !on(call, Plugin::LimitRanger) {
        return Ok(());
    }
    let ranges = all(call, "core/limitranges", &call.target.namespace);
    if ranges.is_empty() {
        return Ok(());
    }
    let found = limits::violations(call.kind.name(), value, &ranges);
    match found.as_slice() {
        [] => Ok(()),
        [one] => Err(forbid(call, value, one)),
        many => Err(refuse_all(call, value, many)),
    }
}

fn refuse_all(call: &Call, value: &Value, many: &[String]) -> Status {
    forbid(call, value, &format!("[{}]", many.join(", ")))
}
