//! The type of any built-in kind, including those that are never stored: options, reviews, scales, lists.

use schema::TypeId;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

pub fn find(group: &str, version: &str, kind: &str) -> Option<TypeId> {
    let schema = schema::builtin();
    // Options and Status are registered in every group.
    if matches!(kind, "Status" | "DeleteOptions" | "Table" | "PartialObjectMetadata" | "PartialObjectMetadataList") {
        return schema.find(&format!("{META}.{kind}"));
    }
    if let Some(resource) =
        schema::catalogue::builtin().iter().find(|r| &*r.group == group && &*r.version == version && &*r.kind == kind)
        && resource.ty.is_some()
    {
        return resource.ty;
    }
    let short = match group {
        "" => "core",
        other => other.split('.').next().unwrap_or(other),
    };
    schema.find(&format!("io.k8s.api.{short}.{version}.{kind}"))
}
