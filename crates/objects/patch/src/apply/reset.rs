//! Which fields a write through some path cannot change, so that nobody comes to own them by it.

use std::sync::LazyLock;

use super::fieldset::FieldSet;

type Reset = LazyLock<FieldSet<'static>>;

static NOTHING: FieldSet<'static> = FieldSet::new();
static STATUS: Reset = LazyLock::new(|| FieldSet::of_fields(&[&["status"]]));
static SPEC: Reset = LazyLock::new(|| FieldSet::of_fields(&[&["spec"]]));
static SPEC_AND_STATUS: Reset = LazyLock::new(|| FieldSet::of_fields(&[&["spec"], &["status"]]));
static SPEC_AND_METADATA: Reset = LazyLock::new(|| FieldSet::of_fields(&[&["spec"], &["metadata"]]));
static STATUS_AND_METADATA: Reset = LazyLock::new(|| FieldSet::of_fields(&[&["status"], &["metadata"]]));
static DEPLOYMENT_STATUS: Reset = LazyLock::new(|| FieldSet::of_fields(&[&["spec"], &["metadata", "labels"]]));
static POD_STATUS: Reset = LazyLock::new(|| {
    FieldSet::of_fields(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
});
static CSR_STATUS: Reset = LazyLock::new(|| FieldSet::of_fields(&[&["spec"], &["status", "conditions"]]));
static CSR_APPROVAL: Reset = LazyLock::new(|| FieldSet::of_fields(&[&["spec"], &["status", "certificate"]]));

/// The fields that stay as they are when `resource` is written through `subresource` (empty for the resource itself).
/// `has_status` is whether the resource has a status subresource; without one, its status is a field like any other.
pub fn reset_fields(group: &str, resource: &str, subresource: &str, has_status: bool) -> &'static FieldSet<'static> {
    match (group, resource, subresource) {
        ("certificates.k8s.io", "certificatesigningrequests", "") => &SPEC_AND_STATUS,
        ("certificates.k8s.io", "certificatesigningrequests", "status") => &CSR_STATUS,
        (_, _, "approval") => &CSR_APPROVAL,
        (_, _, "" | "finalize") => {
            if has_status {
                &STATUS
            } else {
                &NOTHING
            }
        }
        ("", "pods", "status") => &POD_STATUS,
        ("", "pods", "ephemeralcontainers" | "resize") => &STATUS_AND_METADATA,
        ("apps", "deployments", "status") => &DEPLOYMENT_STATUS,
        ("" | "apps" | "batch" | "autoscaling" | "policy" | "apiextensions.k8s.io", _, "status")
        | ("networking.k8s.io", "ingresses", "status") => &SPEC,
        (_, _, "status") => &SPEC_AND_METADATA,
        _ => &NOTHING,
    }
}
