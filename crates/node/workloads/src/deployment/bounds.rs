//! How many Pods a Deployment may have, and how many it must. Pure.

use k8s_openapi::api::apps::v1::Deployment;

use crate::bounds;

pub fn replicas(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

pub fn is_rolling(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()).unwrap_or("RollingUpdate") == "RollingUpdate"
}

/// How many more, and how many less than asked for. One of them is not 0, or nothing could ever change.
fn fences(deployment: &Deployment) -> (i32, i32) {
    if !is_rolling(deployment) {
        return (0, 0);
    }
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let total = replicas(deployment);
    let or_quarter = |given: Option<_>, up| match given {
        Some(given) => bounds::of(given, total, up),
        None => bounds::of(&k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::String("25%".into()), total, up),
    };
    let surge = or_quarter(rolling.and_then(|rolling| rolling.max_surge.as_ref()), true).unwrap_or(0).max(0);
    let unavailable =
        or_quarter(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), false).unwrap_or(0).max(0);
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

pub fn max_surge(deployment: &Deployment) -> i32 {
    fences(deployment).0
}

pub fn max_unavailable(deployment: &Deployment) -> i32 {
    let replicas = replicas(deployment);
    if replicas == 0 { 0 } else { fences(deployment).1.min(replicas) }
}

pub fn min_available(deployment: &Deployment) -> i32 {
    replicas(deployment) - max_unavailable(deployment)
}
