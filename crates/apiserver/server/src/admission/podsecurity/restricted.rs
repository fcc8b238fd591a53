//! What the restricted policy asks for besides: the usual hardening of pods.

use serde_json::Value;

use super::{
    baseline::{added, unconfined},
    pod::{Pod, Violation, blamed, containers, items, plural, quoted, text, violation},
};

const VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

pub fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let names = pod.named(|context| context["allowPrivilegeEscalation"] != false);
    let who = blamed(false, &names)?;
    violation(
        "allowPrivilegeEscalation != false",
        format!("{who} must set securityContext.allowPrivilegeEscalation=false"),
    )
}

pub fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let mut details = Vec::new();
    let names = pod.named(|context| !items(&context["capabilities"]["drop"]).any(|c| c == "ALL"));
    if !names.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&names)));
    }
    let (names, bad) = added(pod, &["NET_BIND_SERVICE"]);
    if !names.is_empty() {
        let what =
            format!("{} must not include {} in securityContext.capabilities.add", containers(&names), quoted(&bad));
        details.push(what);
    }
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

pub fn volumes(pod: &Pod<'_>) -> Option<Violation> {
    let (mut names, mut kinds) = (Vec::new(), Vec::new());
    for volume in items(&pod.spec["volumes"]) {
        let kind = volume.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).find(|key| *key != "name");
        let kind = kind.unwrap_or("unknown");
        if !VOLUMES.contains(&kind) {
            names.push(text(&volume["name"]));
            kinds.push(kind);
        }
    }
    if names.is_empty() {
        return None;
    }
    kinds.sort_unstable();
    kinds.dedup();
    let detail = format!(
        "{} {} {} restricted volume {} {}",
        plural("volume", "volumes", names.len()),
        quoted(&names),
        plural("uses", "use", names.len()),
        plural("type", "types", kinds.len()),
        quoted(&kinds)
    );
    violation("restricted volume types", detail)
}

pub fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let of_pod = &pod.context()["runAsNonRoot"];
    let wrong = pod.named(|context| context["runAsNonRoot"] == false);
    // The pod's own word is only wrong if a container relies on it.
    let relies = pod.containers().any(|c| c["securityContext"]["runAsNonRoot"].is_null());
    let pod_is_wrong = *of_pod == false && relies;
    if let Some(who) = blamed(pod_is_wrong, &wrong) {
        return violation(REASON, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    if *of_pod == true {
        return None;
    }
    let silent = pod.named(|context| context["runAsNonRoot"].is_null());
    if silent.is_empty() {
        return None;
    }
    violation(REASON, format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&silent)))
}

pub fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    let is_root = |context: &Value| context["runAsUser"] == 0;
    let names = pod.named(is_root);
    let who = blamed(is_root(pod.context()), &names)?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}

pub fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let (whole, names) = unconfined(pod);
    if let Some(who) = blamed(whole, &names) {
        let what = format!("{who} must not set securityContext.seccompProfile.type to \"Unconfined\"");
        return violation("seccompProfile", what);
    }
    if pod.context()["seccompProfile"]["type"].is_string() {
        return None;
    }
    let silent = pod.named(|context| !context["seccompProfile"]["type"].is_string());
    if silent.is_empty() {
        return None;
    }
    let what = "must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"";
    violation("seccompProfile", format!("pod or {} {what}", containers(&silent)))
}
