//! The workloads of the apps and batch groups.

use serde_json::{Value, json};

use super::fields::{blank, each, fill, fill_blank, text, unset, with, within};
use super::{pod, storage};

pub(super) fn apps(kind: &str, obj: &mut Value) {
    let Some(spec) = obj.as_object_mut().and_then(|o| o.get_mut("spec")) else {
        return if matches!(kind, "Deployment" | "DaemonSet" | "ReplicaSet" | "StatefulSet") {
            fill(obj, "spec", json!({}));
            if !unset(obj.get("spec")) {
                apps(kind, obj);
            }
        };
    };
    match kind {
        "Deployment" => deployment(spec),
        "DaemonSet" => daemon_set(spec),
        "ReplicaSet" => {
            fill(spec, "replicas", 1);
            pod::template(spec, "template");
        }
        "StatefulSet" => stateful_set(spec),
        _ => {}
    }
}

fn deployment(spec: &mut Value) {
    fill(spec, "replicas", 1);
    if let Some(strategy) = within(spec, "strategy") {
        fill_blank(strategy, "type", "RollingUpdate");
        if text(strategy, &["type"]) == "RollingUpdate"
            && let Some(rolling) = within(strategy, "rollingUpdate")
        {
            fill(rolling, "maxUnavailable", "25%");
            fill(rolling, "maxSurge", "25%");
        }
    }
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "progressDeadlineSeconds", 600);
    pod::template(spec, "template");
}

fn daemon_set(spec: &mut Value) {
    if let Some(strategy) = within(spec, "updateStrategy") {
        fill_blank(strategy, "type", "RollingUpdate");
        if text(strategy, &["type"]) == "RollingUpdate"
            && let Some(rolling) = within(strategy, "rollingUpdate")
        {
            fill(rolling, "maxUnavailable", 1);
            fill(rolling, "maxSurge", 0);
        }
    }
    fill(spec, "revisionHistoryLimit", 10);
    pod::template(spec, "template");
}

fn stateful_set(spec: &mut Value) {
    fill_blank(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = within(spec, "updateStrategy") {
        if blank(strategy.get("type")) {
            fill_blank(strategy, "type", "RollingUpdate");
            fill(strategy, "rollingUpdate", json!({}));
        }
        if text(strategy, &["type"]) == "RollingUpdate" {
            with(strategy, "rollingUpdate", |rolling| fill(rolling, "partition", 0));
        }
    }
    if let Some(retention) = within(spec, "persistentVolumeClaimRetentionPolicy") {
        fill_blank(retention, "whenDeleted", "Retain");
        fill_blank(retention, "whenScaled", "Retain");
    }
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    pod::template(spec, "template");
    each(spec, "volumeClaimTemplates", |claim| {
        // Upstream writes the kind of these since it compares templates with claims it reads back.
        fill_blank(claim, "apiVersion", "v1");
        fill_blank(claim, "kind", "PersistentVolumeClaim");
        fill(claim, "metadata", json!({}));
        storage::persistent_volume_claim(claim);
    });
}

pub(super) fn batch(kind: &str, obj: &mut Value) {
    match kind {
        "Job" => job(obj),
        "CronJob" => cron_job(obj),
        _ => {}
    }
}

fn job(obj: &mut Value) {
    let Some(spec) = within(obj, "spec") else { return };
    if unset(spec.get("completions")) && unset(spec.get("parallelism")) {
        fill(spec, "completions", 1);
    }
    fill(spec, "parallelism", 1);
    let backoff = if unset(spec.get("backoffLimitPerIndex")) { 6 } else { i32::MAX };
    fill(spec, "backoffLimit", backoff);
    fill(spec, "completionMode", "NonIndexed");
    fill(spec, "suspend", false);
    let replacement = if unset(spec.get("podFailurePolicy")) { "TerminatingOrFailed" } else { "Failed" };
    fill(spec, "podReplacementPolicy", replacement);
    fill(spec, "manualSelector", false);
    job_spec(spec);
    // Before the selector is generated, the labels are not complete: the strategy of jobs does this for new ones.
    let labels = spec.get("template").and_then(|t| t.get("metadata")).and_then(|m| m.get("labels"));
    let complete = labels.filter(|labels| labels.get("batch.kubernetes.io/controller-uid").is_some()).cloned();
    if let (Some(labels), Some(metadata)) = (complete, within(obj, "metadata")) {
        fill_blank(metadata, "labels", labels);
    }
}

/// What a job and the template of a cron job have in common: the latter is defaulted only when a job is made of it.
fn job_spec(spec: &mut Value) {
    with(spec, "podFailurePolicy", |policy| {
        each(policy, "rules", |rule| {
            each(rule, "onPodConditions", |pattern| fill_blank(pattern, "status", "True"));
        });
    });
    pod::template(spec, "template");
}

fn cron_job(obj: &mut Value) {
    let Some(spec) = within(obj, "spec") else { return };
    fill_blank(spec, "concurrencyPolicy", "Allow");
    fill(spec, "suspend", false);
    fill(spec, "successfulJobsHistoryLimit", 3);
    fill(spec, "failedJobsHistoryLimit", 1);
    if let Some(template) = within(spec, "jobTemplate") {
        fill(template, "metadata", json!({}));
        if let Some(job) = within(template, "spec") {
            job_spec(job);
        }
    }
}
