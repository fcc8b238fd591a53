//! Jobs: the selector and the labels that make their pods their own.

use serde_json::{Value, json};

use crate::defaults::fields::{fill, fill_blank, flag, text, within};

pub(super) fn on_create(job: &mut Value) {
    let name = text(job, &["metadata", "name"]).to_owned();
    let uid = text(job, &["metadata", "uid"]).to_owned();
    if !flag(job, &["spec", "manualSelector"]) {
        select_own_pods(job, &name, &uid);
    }
    let labels = job
        .get("spec")
        .and_then(|s| s.get("template"))
        .and_then(|t| t.get("metadata"))
        .and_then(|m| m.get("labels"))
        .filter(|labels| labels.is_object())
        .cloned();
    if let (Some(labels), Some(metadata)) = (labels, within(job, "metadata")) {
        fill_blank(metadata, "labels", labels);
    }
}

fn select_own_pods(job: &mut Value, name: &str, uid: &str) {
    let Some(spec) = within(job, "spec") else { return };
    if let Some(labels) =
        within(spec, "template").and_then(|t| within(t, "metadata")).and_then(|metadata| within(metadata, "labels"))
    {
        // A label that is already there may be wrong; validation refuses it then.
        for (key, value) in [
            ("job-name", name),
            ("batch.kubernetes.io/job-name", name),
            ("controller-uid", uid),
            ("batch.kubernetes.io/controller-uid", uid),
        ] {
            fill(labels, key, value);
        }
    }
    fill(spec, "selector", json!({}));
    if let Some(labels) = within(spec, "selector").and_then(|selector| within(selector, "matchLabels")) {
        fill(labels, "batch.kubernetes.io/controller-uid", uid);
    }
}
