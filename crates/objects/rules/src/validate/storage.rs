//! StorageClass, VolumeAttributesClass, CSIDriver, CSINode, CSIStorageCapacity, VolumeAttachment.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use schema::names;

use super::amount::Amount;
use super::meta::{self, selector_shown};
use super::node::{Node, Quoted};
use super::pod::volume;
use super::{Rules, claims, internal};

const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETERS_SIZE: usize = 256 * 1024;
const MAX_ATTACHMENT_METADATA: usize = 256 * 1024;

pub(super) fn rules(kind: &str) -> Rules {
    match kind {
        "StorageClass" => Rules::new(storage_class).updated(storage_class_update),
        "VolumeAttributesClass" => Rules::new(attributes_class).again(attributes_class_update),
        "CSIDriver" => Rules::new(csi_driver).updated(csi_driver_update),
        "CSINode" => Rules::new(csi_node).before(csi_node_update).without_meta_update(),
        "CSIStorageCapacity" => Rules::new(capacity).updated(capacity_update),
        "VolumeAttachment" => {
            Rules::new(attachment).before(attachment_update).without_meta_update().status(|new, _| attached(new))
        }
        _ => Rules::new(|_| {}),
    }
}

fn provisioner(at: Node<'_>) {
    if at.is_empty() {
        at.required("");
    } else {
        let lower = at.str().to_lowercase();
        names::qualified_name(&lower).iter().for_each(|complaint| at.invalid_text(&lower, complaint));
    }
}

fn parameters(parameters: Node<'_>) {
    let mut size = 0;
    if parameters.len() > MAX_PARAMETERS {
        return parameters.too_long(MAX_PARAMETERS);
    }
    for (key, value) in parameters.map().into_iter().flatten() {
        if key.is_empty() {
            parameters.invalid_text(key, "field can not be empty.");
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_PARAMETERS_SIZE {
        parameters.too_long(MAX_PARAMETERS_SIZE);
    }
}

fn storage_class(root: Node<'_>) {
    provisioner(root.get("provisioner"));
    parameters(root.get("parameters"));
    if !root.get("reclaimPolicy").is_empty() {
        root.get("reclaimPolicy").one_of(&["Delete", "Retain"]);
    }
    let mode = root.get("volumeBindingMode");
    if mode.is_set() {
        mode.one_of(&["Immediate", "WaitForFirstConsumer"]);
    } else {
        mode.required("");
    }
    topologies(root.get("allowedTopologies"));
}

fn topologies(list: Node<'_>) {
    let mut terms: Vec<BTreeMap<&str, BTreeSet<&str>>> = Vec::new();
    for term in list.items() {
        let mut seen = BTreeMap::new();
        for expression in term.get("matchLabelExpressions").items() {
            let (key, values) = (expression.get("key"), expression.get("values"));
            if values.is_empty() {
                values.required("");
            }
            let mut set = BTreeSet::new();
            for value in values.items() {
                if !set.insert(value.str()) {
                    value.duplicate();
                }
            }
            key.check(names::qualified_name);
            if seen.insert(key.str(), set).is_some() {
                key.duplicate();
            }
        }
        for _ in terms.iter().filter(|other| **other == seen) {
            term.get("matchLabelExpressions").duplicate_as(Quoted(""));
        }
        // Upstream begins with one empty term for each that is given.
        if seen.is_empty() {
            (0..list.len()).for_each(|_| term.get("matchLabelExpressions").duplicate_as(Quoted("")));
        }
        terms.push(seen);
    }
}

fn storage_class_update(new: Node<'_>, old: Node<'_>) {
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        new.get(field).immutable(old.get(field));
    }
}

fn attributes_class(root: Node<'_>) {
    provisioner(root.get("driverName"));
    parameters(root.get("parameters"));
    if root.get("parameters").is_empty() {
        root.get("parameters").required("must contain at least one key/value pair");
    }
}

fn attributes_class_update(new: Node<'_>, old: Node<'_>) {
    for field in ["driverName", "parameters"] {
        if !new.get(field).same(old.get(field)) {
            new.get(field).forbidden(&format!("updates to {field} are forbidden."));
        }
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
    }
    let mut audiences = HashSet::new();
    for token in spec.get("tokenRequests").items() {
        let audience = token.get("audience");
        if !audiences.insert(audience.str()) {
            audience.duplicate_as(Quoted(audience.str()));
            continue;
        }
        let seconds = token.get("expirationSeconds");
        if let Some(n) = seconds.int() {
            if n < 600 {
                seconds.invalid("may not specify a duration less than 10 minutes");
            }
            if n > 1 << 32 {
                seconds.invalid("may not specify a duration larger than 2^32 seconds");
            }
        }
    }
    for mode in spec.get("volumeLifecycleModes").array() {
        spec.get("volumeLifecycleModes").with(mode).one_of(&["Persistent", "Ephemeral"]);
    }
    if !spec.get("seLinuxMount").is_set() {
        spec.get("seLinuxMount").required("");
    }
    let period = spec.get("nodeAllocatableUpdatePeriodSeconds");
    if period.int().is_some_and(|n| n < 10) {
        period.invalid("must be greater than or equal to 10 seconds");
    }
    let in_secrets = spec.get("serviceAccountTokenInSecrets");
    if in_secrets.is_set() && spec.get("tokenRequests").is_empty() {
        in_secrets.invalid("serviceAccountTokenInSecrets is set but no tokenRequests are specified");
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
        let (name, id) = (driver.get("name"), driver.get("nodeID"));
        volume::driver_name(name);
        if id.is_empty() {
            id.required("");
        } else if id.str().len() > 256 {
            id.invalid("must be 256 characters or less");
        }
        driver.get("allocatable").get("count").non_negative();
        if !seen.insert(name.str()) {
            name.duplicate_as(Quoted(name.str()));
        }
        let mut keys = HashSet::new();
        for key in driver.get("topologyKeys").array() {
            // Upstream names the driver, not the key.
            let key = driver.with(key);
            if key.is_empty() {
                key.required("");
            }
            if !keys.insert(key.str()) {
                key.duplicate();
            }
            key.check(names::qualified_name);
        }
    }
}

fn csi_node_update(new: Node<'_>, old: Node<'_>) {
    let drivers = new.get("spec").get("drivers");
    for was in old.get("spec").get("drivers").items() {
        for driver in drivers.items().filter(|driver| driver.get("name").str() == was.get("name").str()) {
            if ["nodeID", "topologyKeys"].iter().any(|field| !driver.get(field).same(was.get(field))) {
                let mut shown = driver.value.clone();
                shown["allocatable"] = serde_json::Value::Null;
                drivers.invalid_as(internal::shown("CSINodeDriver", &shown), "field is immutable");
            }
        }
    }
}

fn capacity(root: Node<'_>) {
    meta::label_selector(root.get("nodeTopology"));
    root.get("storageClassName").check(names::dns1123_subdomain);
    let amount = root.get("capacity");
    if Amount::of(amount.value) < Amount::zero() {
        amount.invalid("must be greater than or equal to 0");
    }
}

fn capacity_update(new: Node<'_>, old: Node<'_>) {
    let topology = new.get("nodeTopology");
    // Whether there is a selector counts: an empty one selects all, and none nothing.
    if topology.is_set() != old.get("nodeTopology").is_set() || !topology.same(old.get("nodeTopology")) {
        topology.invalid_as(selector_shown(topology.value), "field is immutable");
    }
    new.get("storageClassName").immutable(old.get("storageClassName"));
}

fn attachment(root: Node<'_>) {
    let (spec, source) = (root.get("spec"), root.get("spec").get("source"));
    volume::driver_name(spec.get("attacher"));
    let (name, inline) = (source.get("persistentVolumeName"), source.get("inlineVolumeSpec"));
    let one_of = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (name.is_set(), inline.is_set()) {
        (false, false) => source.required(one_of),
        (true, true) => source.forbidden(one_of),
        (true, false) if name.is_empty() => name.required("must specify non empty persistentVolumeName"),
        (true, false) => {}
        (false, true) => claims::inline_volume(inline),
    }
    spec.get("nodeName").check(names::dns1123_subdomain);
    attached(root);
    if name.is_set() {
        name.check(names::dns1123_subdomain);
    }
}

fn attached(root: Node<'_>) {
    let metadata = root.get("status").get("attachmentMetadata");
    let size: usize =
        metadata.map().into_iter().flatten().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ATTACHMENT_METADATA {
        metadata.too_long(MAX_ATTACHMENT_METADATA);
    }
    for field in ["attachError", "detachError"] {
        let error = root.get("status").get(field);
        if error.get("message").str().len() > 1024 {
            error.get("message").too_long(MAX_ATTACHMENT_METADATA);
        }
        if error.get("errorCode").int_or_0() < 0 {
            error.get("errorCode").invalid(&names::between(0, i64::from(i32::MAX)));
        }
    }
}

fn attachment_update(new: Node<'_>, old: Node<'_>) {
    let spec = new.get("spec");
    if !spec.same(old.get("spec")) {
        spec.invalid_as(internal::shown("VolumeAttachmentSpec", spec.value), "field is immutable");
    }
}
