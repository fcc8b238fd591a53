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

/// A Job that came from another server finds its pods by its uid there. Here it has another one.
pub fn find_pods_by_own_uid(job: &mut Value) {
    if flag(job, &["spec", "manualSelector"]) {
        return;
    }
    let uid = text(job, &["metadata", "uid"]).to_owned();
    for at in ["/metadata/labels", "/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        let Some(labels) = job.pointer_mut(at).and_then(Value::as_object_mut) else { continue };
        for name in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
            if let Some(value) = labels.get_mut(name) {
                *value = uid.as_str().into();
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_another_server_finds_its_pods_by_its_own_uid() {
        let mut job = json!({"metadata": {"name": "j", "uid": "there"}, "spec": {"template": {"metadata": {"labels": {"app": "x"}}}}});
        on_create(&mut job);
        let mut here = job.clone();
        here["metadata"]["uid"] = "here".into();
        find_pods_by_own_uid(&mut here);
        let text = job.to_string().replace("there", "here");
        assert_eq!(here, serde_json::from_str::<Value>(&text).unwrap());
        assert_eq!(here["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], "here");
        job["spec"]["manualSelector"] = true.into();
        let before = job.clone();
        find_pods_by_own_uid(&mut job);
        assert_eq!(job, before);
    }
}
