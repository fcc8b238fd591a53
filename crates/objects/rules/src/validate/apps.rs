//! Deployment, ReplicaSet, StatefulSet, DaemonSet, ReplicationController, ControllerRevision.

use std::collections::HashSet;

use schema::names;
use schema::names::NameRule;
use serde_json::{Value, json};

use super::Rules;
use super::claims;
use super::internal;
use super::meta::{self, is_empty_selector, is_selector, selector_shown, selects};
use super::node::{Node, same};
use super::pod;

const NO_MATCH: &str = "`selector` does not match template `labels`";
const STATEFUL_SET_FIXED: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";

pub(super) fn rules(kind: &str) -> Rules {
    match kind {
        "Deployment" => Rules::new(deployment).updated(deployment_update).status(deployment_status),
        "ReplicaSet" => Rules::new(replica_set).updated(replica_set_update).status(replica_set_status),
        "StatefulSet" => {
            Rules::new(stateful_set).updated(stateful_set_update).named(NameRule::Label).status(stateful_set_status)
        }
        "DaemonSet" => Rules::new(daemon_set).updated(daemon_set_update).status(daemon_set_status),
        "ControllerRevision" => Rules::new(controller_revision).updated(controller_revision_update),
        _ => Rules::new(|_| {}),
    }
}

fn selector_required(spec: Node<'_>, what: &str) {
    let selector = spec.get("selector");
    if !selector.is_set() {
        return selector.required("");
    }
    meta::label_selector(selector);
    if is_empty_selector(selector) {
        selector.invalid_as(selector_shown(selector.value), &format!("empty selector is invalid for {what}"));
    }
}

fn selector_immutable(new: Node<'_>, old: Node<'_>) {
    let (selector, old) = (new.get("spec").get("selector"), old.get("spec").get("selector"));
    if !selector.same(old) {
        selector.invalid_as(selector_shown(selector.value), "field is immutable");
    }
}

/// The template's labels satisfy the selector; an empty selector is complained about elsewhere.
fn selector_matches(spec: Node<'_>, even_empty: bool) {
    let selector = spec.get("selector");
    let labels = spec.get("template").get("metadata").get("labels");
    let empty = selector.is_set() && is_empty_selector(selector);
    if !is_selector(selector.value) {
        return;
    }
    if (even_empty || !empty) && !selects(selector.value, labels.value) {
        labels.invalid(NO_MATCH);
    }
}

fn always_restarted(template: Node<'_>, kind: &str) {
    template.get("spec").get("restartPolicy").one_of(&["Always"]);
    let deadline = template.get("spec").get("activeDeadlineSeconds");
    if deadline.is_set() {
        deadline.forbidden(&format!("activeDeadlineSeconds in {kind} is not Supported"));
    }
}

fn replicated_template(spec: Node<'_>) {
    let selector = spec.get("selector");
    if !is_selector(selector.value) {
        return selector.invalid_as(selector_shown(selector.value), "invalid label selector");
    }
    selector_matches(spec, false);
    pod::template(spec.get("template"));
    if spec.get("replicas").int_or_0() > 1 {
        shared_disks(spec.get("template").get("spec").get("volumes"));
    }
    always_restarted(spec.get("template"), "ReplicaSet");
}

/// Several pods cannot write to one disk.
fn shared_disks(volumes: Node<'_>) {
    for volume in volumes.items() {
        let disk = volume.get("gcePersistentDisk");
        if disk.is_set() && !disk.get("readOnly").bool() {
            disk.get("readOnly").invalid_as(
                "false",
                "must be true for replicated pods > 1; GCE PD can only be mounted on multiple machines if it is read-only",
            );
        }
    }
}

fn deployment(root: Node<'_>) {
    let spec = root.get("spec");
    spec.get("replicas").non_negative();
    selector_required(spec, "deployment");
    replicated_template(spec);
    deployment_strategy(spec.get("strategy"));
    spec.get("minReadySeconds").non_negative();
    spec.get("revisionHistoryLimit").non_negative();
    let deadline = spec.get("progressDeadlineSeconds");
    deadline.non_negative();
    if deadline.int().is_some_and(|n| n <= spec.get("minReadySeconds").int_or_0()) {
        deadline.invalid("must be greater than minReadySeconds");
    }
}

fn deployment_strategy(strategy: Node<'_>) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").str() {
        "Recreate" => {
            if rolling.is_set() {
                rolling.forbidden("may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" if !rolling.is_set() => rolling.required("this should be defaulted and never be nil"),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            int_or_percent(unavailable);
            int_or_percent(surge);
            if amount(unavailable) == 0 && amount(surge) == 0 {
                unavailable.invalid("may not be 0 when `maxSurge` is 0");
            }
            at_most_100_percent(unavailable);
        }
        _ => strategy
            .not_supported_as(internal::shown("DeploymentStrategy", strategy.value), &["Recreate", "RollingUpdate"]),
    }
}

pub(crate) fn int_or_percent(node: Node<'_>) {
    match node.value {
        Value::String(_) => node.check(names::percent),
        _ => node.non_negative(),
    }
}

fn percent(node: Node<'_>) -> Option<i64> {
    let text = node.value.as_str().filter(|text| names::percent(text).is_empty())?;
    Some(text.trim_end_matches('%').parse().unwrap_or(i64::MAX))
}

fn amount(node: Node<'_>) -> i64 {
    percent(node).or_else(|| node.value.as_str().and_then(|s| s.parse().ok())).unwrap_or_else(|| node.int_or_0())
}

pub(crate) fn at_most_100_percent(node: Node<'_>) {
    if percent(node).is_some_and(|n| n > 100) {
        node.invalid("must not be greater than 100%");
    }
}

fn deployment_update(new: Node<'_>, old: Node<'_>) {
    deployment(new);
    selector_immutable(new, old);
}

fn counts(status: Node<'_>, fields: &[&'static str]) {
    for field in fields {
        status.get(field).non_negative();
    }
}

fn not_more(status: Node<'_>, fields: &[&'static str], ready: &str) {
    for field in fields {
        let count = status.get(field);
        if count.int_or_0() > status.get("replicas").int_or_0() {
            count.invalid_as(count.int_or_0(), "cannot be greater than status.replicas");
        }
    }
    let available = status.get("availableReplicas");
    if available.int_or_0() > status.get("readyReplicas").int_or_0() {
        available.invalid(&format!("cannot be greater than {ready}"));
    }
}

fn not_decremented(new: Node<'_>, old: Node<'_>) {
    let (count, was) = (new.get("status").get("collisionCount"), old.get("status").get("collisionCount"));
    if was.is_set() && count.int_or_0() < was.int_or_0() {
        count.invalid_as(count.int_or_0(), "cannot be decremented");
    }
}

fn deployment_status(new: Node<'_>, old: Node<'_>) {
    let status = new.get("status");
    counts(
        status,
        &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
    );
    not_more(status, &["updatedReplicas", "readyReplicas", "availableReplicas"], "readyReplicas");
    not_decremented(new, old);
}

fn replica_set(root: Node<'_>) {
    let spec = root.get("spec");
    spec.get("replicas").non_negative();
    spec.get("minReadySeconds").non_negative();
    let selector = spec.get("selector");
    if selector.is_set() {
        meta::label_selector(selector);
        if is_empty_selector(selector) {
            selector.invalid_as(selector_shown(selector.value), "empty selector is invalid for deployment");
        }
    } else {
        selector.required("");
    }
    replicated_template(spec);
}

fn replica_set_update(new: Node<'_>, old: Node<'_>) {
    replica_set(new);
    selector_immutable(new, old);
}

pub(super) fn replica_set_status(new: Node<'_>, _old: Node<'_>) {
    let status = new.get("status");
    counts(
        status,
        &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "terminatingReplicas",
            "observedGeneration",
        ],
    );
    not_more(status, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"], "readyReplicas");
}

fn stateful_set(root: Node<'_>) {
    stateful_set_spec(root.get("spec"), true);
}

fn stateful_set_spec(spec: Node<'_>, create: bool) {
    let policy = spec.get("podManagementPolicy");
    match policy.str() {
        "" => policy.required(""),
        "OrderedReady" | "Parallel" => {}
        _ => policy.invalid("must be 'OrderedReady' or 'Parallel'"),
    }
    let strategy = spec.get("updateStrategy");
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").str() {
        "" => strategy.required(""),
        "OnDelete" => {
            if rolling.is_set() {
                let shown = internal::shown("RollingUpdateStatefulSetStrategy", rolling.value);
                rolling.invalid_as(shown, "only allowed for updateStrategy 'RollingUpdate'");
            }
        }
        "RollingUpdate" => {
            rolling.get("partition").non_negative();
            let unavailable = rolling.get("maxUnavailable");
            if unavailable.is_set() {
                int_or_percent(unavailable);
                if amount(unavailable) == 0 {
                    unavailable.invalid("cannot be 0");
                }
                at_most_100_percent(unavailable);
            }
        }
        _ => strategy.invalid_as(
            internal::shown("StatefulSetUpdateStrategy", strategy.value),
            "must be 'RollingUpdate' or 'OnDelete'",
        ),
    }
    let retention = spec.get("persistentVolumeClaimRetentionPolicy");
    if retention.is_set() {
        for field in ["whenDeleted", "whenScaled"] {
            retention.get(field).one_of(&["Retain", "Delete"]);
        }
    }
    if create {
        for claim in spec.get("volumeClaimTemplates").items() {
            claims::claim_spec(claim.get("spec"));
        }
    }
    spec.get("replicas").non_negative();
    spec.get("minReadySeconds").non_negative();
    spec.get("ordinals").get("start").non_negative();
    if create {
        pod::optional(spec.get("serviceName"), names::dns1123_label);
    }
    selector_required(spec, "statefulset");
    let selector = spec.get("selector");
    if !is_selector(selector.value) {
        selector.invalid_as(selector_shown(selector.value), "");
        return always_restarted(spec.get("template"), "StatefulSet");
    }
    selector_matches(spec, false);
    let template = spec.get("template");
    let munged = stateful_template(spec);
    // A munged template only lives here, so it is checked by itself.
    let errors = super::at(template, &munged, |node| {
        pod::template(node);
    });
    for error in errors {
        template.push(error);
    }
    let metadata = template.get("metadata");
    meta::labels(template.get("labels").with(metadata.get("labels").value));
    meta::annotations(template.get("annotations").with(metadata.get("annotations").value));
    always_restarted(template, "StatefulSet");
}

/// The template as its pods will have it: with a volume for each claim, and without a name of its own.
fn stateful_template(spec: Node<'_>) -> Value {
    let mut template = spec.get("template").value.clone();
    let claims = spec.get("volumeClaimTemplates");
    let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) else { return template };
    pod.remove("subdomain");
    pod.remove("hostname");
    if !claims.is_empty() {
        let names: Vec<&str> = claims.items().map(|c| c.get("metadata").get("name").str()).collect();
        let known: HashSet<&str> = names.iter().copied().collect();
        let mut volumes: Vec<Value> =
            names.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})).collect();
        let own = pod.get("volumes").and_then(Value::as_array).cloned().unwrap_or_default();
        volumes.extend(
            own.into_iter().filter(|v| !v.get("name").and_then(Value::as_str).is_some_and(|n| known.contains(n))),
        );
        pod.insert("volumes".to_owned(), volumes.into());
    }
    template
}

fn stateful_set_update(new: Node<'_>, old: Node<'_>) {
    stateful_set_spec(new.get("spec"), false);
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        if let Some(map) = spec.as_object_mut() {
            for field in [
                "replicas",
                "template",
                "updateStrategy",
                "minReadySeconds",
                "ordinals",
                "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy",
            ] {
                map.remove(field);
            }
        }
        spec
    };
    if !same(&fixed(new.get("spec").value), &fixed(old.get("spec").value)) {
        new.get("spec").forbidden(STATEFUL_SET_FIXED);
    }
}

fn stateful_set_status(new: Node<'_>, old: Node<'_>) {
    let status = new.get("status");
    counts(
        status,
        &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
    );
    not_more(
        status,
        &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
        "status.readyReplicas",
    );
    not_decremented(new, old);
}

fn daemon_set(root: Node<'_>) {
    let spec = root.get("spec");
    let selector = spec.get("selector");
    meta::label_selector(selector);
    selector_matches(spec, true);
    if selector.is_set() && is_empty_selector(selector) {
        selector.invalid_as(selector_shown(selector.value), "empty selector is invalid for daemonset");
    }
    pod::template(spec.get("template"));
    always_restarted(spec.get("template"), "DaemonSet");
    spec.get("minReadySeconds").non_negative();
    daemon_set_strategy(spec.get("updateStrategy"));
    spec.get("revisionHistoryLimit").non_negative();
}

fn daemon_set_strategy(strategy: Node<'_>) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").str() {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.is_set() => rolling.required(""),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            int_or_percent(unavailable);
            int_or_percent(surge);
            at_most_100_percent(unavailable);
            at_most_100_percent(surge);
            match (amount(unavailable) != 0, amount(surge) != 0) {
                (true, true) => surge.invalid("may not be set when maxUnavailable is non-zero"),
                (false, false) => unavailable.required("cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => strategy.not_supported_as(
            internal::shown("DaemonSetUpdateStrategy", strategy.value),
            &["RollingUpdate", "OnDelete"],
        ),
    }
}

fn daemon_set_update(new: Node<'_>, old: Node<'_>) {
    daemon_set(new);
    selector_immutable(new, old);
}

pub(super) fn replication_controller(root: Node<'_>) {
    let spec = root.get("spec");
    spec.get("minReadySeconds").non_negative();
    let (selector, replicas, template) = (spec.get("selector"), spec.get("replicas"), spec.get("template"));
    if selector.is_empty() {
        selector.required("");
    }
    if !replicas.is_set() {
        replicas.required("");
    }
    replicas.non_negative();
    if !template.is_set() {
        return template.required("");
    }
    let labels = template.get("metadata").get("labels");
    if !selector.is_empty() && !selects(&json!({"matchLabels": selector.value}), labels.value) {
        labels.invalid(NO_MATCH);
    }
    pod::template(template);
    if replicas.int_or_0() > 1 {
        shared_disks(template.get("spec").get("volumes"));
    }
    always_restarted(template, "ReplicationController");
}

fn daemon_set_status(new: Node<'_>, old: Node<'_>) {
    counts(
        new.get("status"),
        &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
    );
    not_decremented(new, old);
}

fn controller_revision(root: Node<'_>) {
    root.get("revision").non_negative();
    let data = root.get("data");
    match data.value {
        Value::Null => data.required("data is mandatory"),
        Value::Object(_) => {}
        _ => data.required("data must be a valid JSON object"),
    }
}

fn controller_revision_update(new: Node<'_>, old: Node<'_>) {
    new.get("revision").non_negative();
    new.get("data").immutable(old.get("data"));
}
