//! Rows of volumes and what provides them.

use std::borrow::Cow;

use serde_json::Value;

use super::network::annotation;
use crate::table::age::age;
use crate::table::read::{count, flag, has, items, name, scalar, strings, text, text_or};
use crate::table::tree::Node;

pub(super) fn volume(o: &Node<'_>, now: i64) -> Vec<Value> {
    let claim = if has(o, "/spec/claimRef") {
        format!("{}/{}", text(o, "/spec/claimRef/namespace"), text(o, "/spec/claimRef/name"))
    } else {
        String::new()
    };
    vec![
        name(o),
        scalar(o, "/spec/capacity/storage").unwrap_or_else(|| "0".to_owned()).into(),
        access_modes(o, "/spec/accessModes").into(),
        text(o, "/spec/persistentVolumeReclaimPolicy").into(),
        phase(o).into(),
        claim.into(),
        storage_class(o).into(),
        text_or(o, "/spec/volumeAttributesClassName", "<unset>").into(),
        text(o, "/status/reason").into(),
        age(o, now),
        text_or(o, "/spec/volumeMode", "<unset>").into(),
    ]
}

pub(super) fn claim(o: &Node<'_>, now: i64) -> Vec<Value> {
    let bound = !text(o, "/spec/volumeName").is_empty();
    let capacity = || scalar(o, "/status/capacity/storage").unwrap_or_else(|| "0".to_owned());
    vec![
        name(o),
        phase(o).into(),
        text(o, "/spec/volumeName").into(),
        if bound { capacity() } else { String::new() }.into(),
        if bound { access_modes(o, "/status/accessModes") } else { String::new() }.into(),
        storage_class(o).into(),
        text_or(o, "/spec/volumeAttributesClassName", "<unset>").into(),
        age(o, now),
        text_or(o, "/spec/volumeMode", "<unset>").into(),
    ]
}

fn phase<'a>(o: &Node<'a>) -> Cow<'a, str> {
    if has(o, "/metadata/deletionTimestamp") { "Terminating".into() } else { text(o, "/status/phase") }
}

fn storage_class<'a>(o: &Node<'a>) -> Cow<'a, str> {
    let class = annotation(o, "volume.beta.kubernetes.io/storage-class");
    if class.is_empty() { text(o, "/spec/storageClassName") } else { class }
}

fn access_modes(o: &Node<'_>, pointer: &str) -> String {
    let modes = strings(o, pointer);
    let short =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let has = |mode: &str| modes.iter().any(|m| m == mode);
    short.into_iter().filter(|(mode, _)| has(mode)).map(|(_, short)| short).collect::<Vec<_>>().join(",")
}

pub(super) fn class(o: &Node<'_>, now: i64) -> Vec<Value> {
    let mut shown = o.name().into_owned();
    let marks = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    if marks.iter().any(|mark| annotation(o, mark) == "true") {
        shown.push_str(" (default)");
    }
    vec![
        shown.into(),
        text(o, "/provisioner").into(),
        text_or(o, "/reclaimPolicy", "Delete").into(),
        text_or(o, "/volumeBindingMode", "Immediate").into(),
        flag(o, "/allowVolumeExpansion").into(),
        age(o, now),
    ]
}

pub(super) fn attachment(o: &Node<'_>, now: i64) -> Vec<Value> {
    vec![
        name(o),
        text(o, "/spec/attacher").into(),
        text(o, "/spec/source/persistentVolumeName").into(),
        text(o, "/spec/nodeName").into(),
        flag(o, "/status/attached").into(),
        age(o, now),
    ]
}

pub(super) fn csi_driver(o: &Node<'_>, now: i64) -> Vec<Value> {
    let tokens = if has(o, "/spec/tokenRequests") {
        let requests = items(o, "/spec/tokenRequests");
        let audiences: Vec<_> = requests.iter().map(|t| text(t, "/audience")).collect();
        audiences.join(",")
    } else {
        "<unset>".to_owned()
    };
    let modes = strings(o, "/spec/volumeLifecycleModes");
    vec![
        name(o),
        o.pointer("/spec/attachRequired").and_then(|node| node.as_bool()).unwrap_or(true).into(),
        flag(o, "/spec/podInfoOnMount").into(),
        flag(o, "/spec/storageCapacity").into(),
        tokens.into(),
        flag(o, "/spec/requiresRepublish").into(),
        if modes.is_empty() { "<none>".into() } else { modes.join(",").into() },
        age(o, now),
    ]
}

pub(super) fn csi_node(o: &Node<'_>, now: i64) -> Vec<Value> {
    vec![name(o), count(o, "/spec/drivers").into(), age(o, now)]
}
