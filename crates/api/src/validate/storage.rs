//! The storage group.

use std::collections::HashSet;

use super::Rules;
use super::node::{Node, Quoted};
use super::pod::volume;
use crate::names;

pub(super) fn rules(kind: &str) -> Rules {
    match kind {
        "StorageClass" => Rules::new(storage_class).updated(storage_class_update),
        "CSIDriver" => Rules::new(csi_driver).updated(csi_driver_update),
        "CSINode" => Rules::new(csi_node).before(|_, _| {}).without_meta_update(),
        "VolumeAttachment" => {
            Rules::new(attachment).before(|new, old| new.get("spec").immutable(old.get("spec"))).without_meta_update()
        }
        _ => Rules::new(|_| {}),
    }
}

fn storage_class(root: Node<'_>) {
    let provisioner = root.get("provisioner");
    if provisioner.is_empty() {
        provisioner.required("");
    } else {
        provisioner.all(names::qualified_name(&provisioner.str().to_lowercase()));
    }
    let parameters = root.get("parameters");
    let mut size = 0;
    if parameters.len() > 512 {
        parameters.too_long(512);
    }
    for (key, value) in parameters.map().into_iter().flatten() {
        if key.is_empty() {
            parameters.invalid_text(key, "field can not be empty.");
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > 256 * 1024 {
        parameters.too_long(256 * 1024);
    }
    if root.get("reclaimPolicy").is_set() {
        root.get("reclaimPolicy").one_of(&["Delete", "Retain"]);
    }
    let mode = root.get("volumeBindingMode");
    if mode.is_set() {
        mode.one_of(&["Immediate", "WaitForFirstConsumer"]);
    } else {
        mode.required("");
    }
}

fn storage_class_update(new: Node<'_>, old: Node<'_>) {
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        new.get(field).immutable(old.get(field));
    }
}

fn csi_driver(root: Node<'_>) {
    let spec = root.get("spec");
    for (field, path) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if !spec.get(field).is_set() {
            spec.get(path).required("");
        }
    }
    if spec.get("fsGroupPolicy").is_set() {
        spec.get("fsGroupPolicy").one_of(&["File", "None", "ReadWriteOnceWithFSType"]);
    } else {
        spec.get("fsGroupPolicy").required("");
    }
    let mut audiences = HashSet::new();
    for token in spec.get("tokenRequests").items() {
        let audience = token.get("audience");
        if !audiences.insert(audience.str()) {
            audience.duplicate_as(Quoted(audience.str()));
        }
        let seconds = token.get("expirationSeconds");
        if let Some(n) = seconds.int() {
            if n < 600 {
                seconds.invalid("may not specify a duration less than 10 minutes");
            }
            if n > 1 << 32 {
                seconds.invalid("may not specify a duration larger than 1<<32 seconds");
            }
        }
    }
    for mode in spec.get("volumeLifecycleModes").array() {
        spec.get("volumeLifecycleModes").with(mode).one_of(&["Ephemeral", "Persistent"]);
    }
}

fn csi_driver_update(new: Node<'_>, old: Node<'_>) {
    let (spec, old_spec) = (new.get("spec"), old.get("spec"));
    csi_driver(new);
    spec.get("attachedRequired").with(spec.get("attachRequired").value).immutable(old_spec.get("attachRequired"));
    spec.get("volumeLifecycleModes").immutable(old_spec.get("volumeLifecycleModes"));
}

fn csi_node(root: Node<'_>) {
    let mut seen = HashSet::new();
    for driver in root.get("spec").get("drivers").items() {
        volume::driver_name(driver.get("name"));
        let id = driver.get("nodeID");
        if id.is_empty() {
            id.required("");
        } else if id.str().len() > 256 {
            id.invalid("must be 256 characters or less");
        }
        if !seen.insert(driver.get("name").str()) {
            driver.get("name").duplicate();
        }
    }
}

fn attachment(root: Node<'_>) {
    let spec = root.get("spec");
    volume::driver_name(spec.get("attacher"));
    let (name, inline) = (spec.get("source").get("persistentVolumeName"), spec.get("source").get("inlineVolumeSpec"));
    match (name.is_set(), inline.is_set()) {
        (false, false) => {
            spec.get("source").required("must specify exactly one of inlineVolumeSpec and persistentVolumeName")
        }
        (true, true) => {
            spec.get("source").forbidden("must specify exactly one of inlineVolumeSpec and persistentVolumeName")
        }
        (true, false) if name.is_empty() => {
            spec.get("source").get("persistentVolumeName").required("must specify non empty persistentVolumeName");
        }
        _ => {}
    }
    spec.get("nodeName").check(names::dns1123_subdomain);
}
