//! Kinds of volumes with rules of their own, which pods and persistent volumes share.

use schema::names;

use super::volume;
use crate::validate::node::Node;

/// Which of the two says so; a few rules differ.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Of {
    Pod,
    PersistentVolume,
}

/// What is wrong with a source beyond fields that are missing.
pub(crate) fn source(kind: &str, source: Node<'_>, of: Of) {
    match kind {
        "gitRepo" => volume::local_path(source.get("directory")),
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            let partition = source.get("partition");
            if !(0..=255).contains(&partition.int_or_0()) {
                partition.invalid(&names::between(1, 255));
            }
        }
        "iscsi" => iscsi(source, of),
        "fc" => fibre_channel(source),
        "quobyte" => quobyte(source),
        "flocker" => flocker(source),
        "cinder" => secret(source.get("secretRef"), of),
        "flexVolume" => flex_volume(source),
        "azureFile" if of == Of::PersistentVolume => {
            let namespace = source.get("secretNamespace");
            if namespace.is_set() && namespace.is_empty() {
                namespace.required("");
            }
        }
        "azureDisk" => azure_disk(source),
        "storageos" => {
            for field in ["volumeName", "volumeNamespace"] {
                if !source.get(field).is_empty() {
                    source.get(field).check(names::dns1123_label);
                }
            }
            secret(source.get("secretRef"), of);
        }
        "glusterfs" if of == Of::PersistentVolume => {
            let namespace = source.get("endpointsNamespace");
            if namespace.is_set() && namespace.is_empty() {
                namespace.invalid("if the endpointnamespace is set, it must be a valid namespace name");
            } else if namespace.is_set() {
                namespace.check(names::dns1123_label);
            }
        }
        _ => {}
    }
}

/// A secret that is named must be named wholly.
fn secret(reference: Node<'_>, of: Of) {
    if !reference.is_set() {
        return;
    }
    let fields: &[&str] = if of == Of::PersistentVolume { &["name", "namespace"] } else { &["name"] };
    for field in fields {
        if reference.get(field).is_empty() {
            reference.get(field).required("");
        }
    }
}

fn iscsi(source: Node<'_>, of: Of) {
    let start =
        if of == Of::Pod { "must be valid format starting with iqn, eui, or naa" } else { "must be valid format" };
    let name = |at: Node<'_>| match is_qualified(at.str()) {
        None => at.invalid(start),
        Some(false) => at.invalid("must be valid format"),
        Some(true) => {}
    };
    if !source.get("iqn").is_empty() {
        name(source.get("iqn"));
    }
    let lun = source.get("lun");
    if !(0..=255).contains(&lun.int_or_0()) {
        lun.invalid(&names::between(0, 255));
    }
    let reference = source.get("secretRef");
    if !reference.is_set() && (source.get("chapAuthDiscovery").bool() || source.get("chapAuthSession").bool()) {
        reference.required("");
    }
    if of == Of::PersistentVolume && reference.is_set() && reference.get("name").is_empty() {
        reference.get("name").required("");
    }
    let initiator = source.get("initiatorName");
    if initiator.is_set() {
        name(source.get("initiatorname").with(initiator.value));
    }
}

/// Whether the name of an iSCSI node has the form that its beginning promises; `None` if it promises none.
fn is_qualified(name: &str) -> Option<bool> {
    let word = |rest: &str, length: usize| {
        let mut letters = rest.chars();
        letters.next().is_some() && {
            let rest = letters.as_str();
            rest.len() == length && rest.bytes().all(|b| b.is_ascii_alphanumeric())
        }
    };
    if let Some(rest) = name.strip_prefix("iqn") {
        return Some(dated_name(rest));
    }
    if let Some(rest) = name.strip_prefix("eui") {
        return Some(word(rest, 16));
    }
    name.strip_prefix("naa").map(|rest| word(rest, 32))
}

/// `.2001-04.com.example:storage`
fn dated_name(rest: &str) -> bool {
    let Some((date, rest)) = rest.strip_prefix('.').and_then(|rest| rest.split_at_checked(8)) else { return false };
    let dated = date.bytes().enumerate().all(|(i, b)| match i {
        4 => b == b'-',
        7 => b == b'.',
        _ => b.is_ascii_digit(),
    });
    let Some((authority, target)) = rest.split_once(':') else { return false };
    dated
        && !authority.is_empty()
        && authority.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
        && !target.is_empty()
        && !target.contains(|c: char| ",;*&$|".contains(c) || c.is_ascii_whitespace())
}

fn fibre_channel(source: Node<'_>) {
    let (names, ids, lun) = (source.get("targetWWNs"), source.get("wwids"), source.get("lun"));
    if names.is_empty() && ids.is_empty() {
        names.required("must specify either targetWWNs or wwids, but not both");
    }
    if names.is_empty() {
        return;
    }
    if !ids.is_empty() {
        names.invalid("targetWWNs and wwids can not be specified simultaneously");
    }
    if !lun.is_set() {
        lun.required("lun is required if targetWWNs is specified");
    } else if !(0..=255).contains(&lun.int_or_0()) {
        lun.invalid(&names::between(0, 255));
    }
}

fn quobyte(source: Node<'_>) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = source.get("registry");
    if registry.is_empty() {
        registry.required(PAIRS);
    } else if source.get("tenant").str().len() >= 65 {
        source.get("tenant").required("must be a UUID and may not exceed a length of 64 characters");
    } else {
        let is_pair = |pair: &str| match pair.rsplit_once(':') {
            Some((host, _)) => !host.contains(':') || host.starts_with('[') && host.ends_with(']'),
            None => false,
        };
        registry.str().split(',').filter(|pair| !is_pair(pair)).for_each(|_| registry.invalid(PAIRS));
    }
    if source.get("volume").is_empty() {
        source.get("volume").required("");
    }
}

fn flocker(source: Node<'_>) {
    let (name, id) = (source.get("datasetName"), source.get("datasetUUID"));
    if name.is_empty() && id.is_empty() {
        source.required("one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !id.is_empty() {
        source.invalid_text("resource", "datasetName and datasetUUID can not be specified simultaneously");
    }
    if name.str().contains('/') {
        name.invalid("must not contain '/'");
    }
}

fn flex_volume(source: Node<'_>) {
    for (key, option) in source.get("options").entries() {
        let domain = format!(".{}", key.split_once('/').map_or(key, |(domain, _)| domain).to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            option.invalid_text(key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn azure_disk(source: Node<'_>) {
    let (mode, kind, uri) = (source.get("cachingMode"), source.get("kind"), source.get("diskURI"));
    if mode.is_set() {
        mode.one_of(&["None", "ReadOnly", "ReadWrite"]);
    }
    if !kind.is_set() {
        return;
    }
    kind.one_of(&["Dedicated", "Managed", "Shared"]);
    let (begins, form) = if kind.str() == "Managed" {
        (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        )
    } else {
        ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")
    };
    if !uri.str().starts_with(begins) {
        uri.not_supported(&[form]);
    }
}

#[cfg(test)]
mod tests {
    use super::is_qualified;

    #[test]
    fn names_of_iscsi_nodes() {
        for (name, want) in [
            ("iqn.2001-04.com.example:storage.disk1", Some(true)),
            ("iqn.2001-04.com.example", Some(false)),
            ("iqn.2001-04.com.example:a b", Some(false)),
            ("iqn2001-04.com.example:x", Some(false)),
            ("eui.0123456789abcdef", Some(true)),
            ("eui.0123", Some(false)),
            ("naa.0123456789abcdef0123456789abcdef", Some(true)),
            ("disk", None),
        ] {
            assert_eq!(is_qualified(name), want, "{name}");
        }
    }
}
