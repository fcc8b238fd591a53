//! What the fields of metadata mean, for `kubectl explain`. Every kind has them, so they are described here, in a
//! sentence each.

use serde_json::Value;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

const OBJECT_META: &[(&str, &str)] = &[
    (
        "",
        "ObjectMeta is metadata that all persisted resources must have, which includes all objects users must create.",
    ),
    ("annotations", "Annotations is a map of texts that tools store with an object. Objects cannot be selected by it."),
    (
        "creationTimestamp",
        "CreationTimestamp is a timestamp representing the server time when this object was created. The server sets \
         it, in RFC 3339 form and in UTC.",
    ),
    (
        "deletionGracePeriodSeconds",
        "Number of seconds allowed for this object to gracefully terminate before it is removed. Set together with \
         deletionTimestamp; it may only be shortened. Read-only.",
    ),
    (
        "deletionTimestamp",
        "DeletionTimestamp is the RFC 3339 date and time at which this resource will be deleted, once its finalizers \
         are gone. The server sets it when a graceful deletion is requested. Read-only.",
    ),
    (
        "finalizers",
        "Must be empty before the object is removed. Each entry names a component that removes the entry when its work \
         is done, in any order. While the object is being deleted, entries can only be removed.",
    ),
    (
        "generateName",
        "GenerateName is a prefix from which the server makes a unique name, if name is not given. If the name that it \
         made is taken, the answer is 409.",
    ),
    ("generation", "A sequence number of the desired state. The server counts it. Read-only."),
    ("labels", "Map of string keys and values by which objects are organized and selected."),
    ("managedFields", "ManagedFields tells which manager set which fields, in which version. The server keeps it."),
    ("name", "Name must be unique within a namespace. Is required when creating resources. Cannot be updated."),
    (
        "namespace",
        "Namespace defines the space within which each name must be unique. Must be a DNS label. It is empty for \
         resources that are not in namespaces. Cannot be updated.",
    ),
    (
        "ownerReferences",
        "List of objects that this object depends on. When all of them have been deleted, this object is deleted too. \
         At most one of them is the managing controller.",
    ),
    (
        "resourceVersion",
        "An opaque value that represents the version of this object. It changes with every write and is used for \
         optimistic concurrency and for watches. Read-only.",
    ),
    ("selfLink", "Deprecated: selfLink is no longer populated by the system."),
    ("uid", "UID is the unique in time and space value for this object. The server makes it. Read-only."),
];

const LIST_META: &[(&str, &str)] = &[
    ("", "ListMeta describes metadata that lists and various status objects have."),
    (
        "continue",
        "Set if the list is not complete. The value is opaque: sent as the query parameter of the same name, it gets \
         the next part of the list, unless it has become too old.",
    ),
    ("remainingItemCount", "How many items follow those in this list, if that is known."),
    ("resourceVersion", "An opaque value that represents the version of this list. A watch can start from it."),
    ("selfLink", "Deprecated: selfLink is no longer populated by the system."),
];

const OWNER_REFERENCE: &[(&str, &str)] = &[
    ("", "OwnerReference identifies an owning object, in the same namespace or in none."),
    ("apiVersion", "API version of the referent."),
    ("blockOwnerDeletion", "If true, a foreground deletion of the owner waits for this object. Defaults to false."),
    ("controller", "If true, this reference points to the managing controller."),
    ("kind", "Kind of the referent."),
    ("name", "Name of the referent."),
    ("uid", "UID of the referent."),
];

const MANAGED_FIELDS: &[(&str, &str)] = &[
    ("", "ManagedFieldsEntry tells which fields a manager has set."),
    ("apiVersion", "APIVersion is the version of the resource that the fields are of."),
    ("fieldsType", "FieldsType is the format of the fields. There is only \"FieldsV1\"."),
    ("fieldsV1", "FieldsV1 holds the fields in the format \"FieldsV1\"."),
    ("manager", "Manager is the name of who manages these fields."),
    ("operation", "Operation is how the fields were set: \"Apply\" or \"Update\"."),
    ("subresource", "Subresource is the subresource through which the fields were set, if it was one."),
    ("time", "Time is when the entry was added, or its fields last changed."),
];

/// Adds descriptions to the definition of a type of metadata. Others have none.
pub(super) fn describe(name: &str, definition: &mut Value) {
    let meanings = match name.strip_prefix(META) {
        Some("ObjectMeta") => OBJECT_META,
        Some("ListMeta") => LIST_META,
        Some("OwnerReference") => OWNER_REFERENCE,
        Some("ManagedFieldsEntry") => MANAGED_FIELDS,
        _ => return,
    };
    for (field, meaning) in meanings {
        let described = match *field {
            "" => Some(&mut *definition),
            field => definition.get_mut("properties").and_then(|properties| properties.get_mut(field)),
        };
        if let Some(described) = described {
            described["description"] = (*meaning).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_exist_are_described() {
        let mut meta = json!({"type": "object", "properties": {"uid": {"type": "string"}, "other": {}}});
        describe("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", &mut meta);
        assert!(meta["properties"]["uid"]["description"].as_str().is_some_and(|text| text.starts_with("UID is")));
        assert_eq!((&meta["properties"]["other"], meta["properties"].get("name")), (&json!({}), None));
        let mut pod = json!({"type": "object"});
        describe("io.k8s.api.core.v1.Pod", &mut pod);
        assert_eq!(pod, json!({"type": "object"}));
    }

    #[test]
    fn what_is_described_exists() {
        let schema = schema::builtin();
        for (name, fields) in [
            ("ObjectMeta", OBJECT_META),
            ("ListMeta", LIST_META),
            ("OwnerReference", OWNER_REFERENCE),
            ("ManagedFieldsEntry", MANAGED_FIELDS),
        ] {
            let ty = schema.find(&format!("{META}{name}")).unwrap();
            let schema::Shape::Struct(s) = schema.shape(ty) else { panic!("{name} is no struct") };
            for (field, _) in fields.iter().filter(|(field, _)| !field.is_empty()) {
                assert!(s.fields.iter().any(|f| &*f.name == *field), "{name} has no {field}");
            }
        }
    }
}
