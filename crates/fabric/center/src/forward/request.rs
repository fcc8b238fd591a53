//! A forwarded write as the request that a client here would send: one of five, whatever the edge says.

use bytes::Bytes;
use cache::object::Object;
use http::{Request, header};
use http_body_util::Full;
use kinds::{
    ObjectKey,
    forward::{Change, Forward},
    names,
};
use schema::status::{Result, Status};
use serde_json::{Value, json};

/// The write as a client here would send it: the same verb, on the object as the edge has seen it.
pub fn request(
    workspace: &str,
    key: &ObjectKey<'_>,
    object: &Object,
    value: &Value,
    write: &Forward,
) -> Result<Request<Full<Bytes>>> {
    let revision = object.revision.to_string();
    let metadata = json!({"name": key.name, "resourceVersion": revision});
    let (method, subresource, content_type, body) = match (&write.change, write.verb.as_str(), &*write.subresource) {
        (Change::Patch(patch), "patch", "") => {
            let mut patch = bounded(patch)?;
            patch["metadata"]["resourceVersion"] = revision.into();
            ("PATCH", "", "application/merge-patch+json", patch)
        }
        (Change::Patch(patch), "update", "") => {
            let mut whole = value.clone();
            patch::merge(&mut whole, &bounded(patch)?);
            ("PUT", "", "application/json", whole)
        }
        (Change::Replicas(replicas), "patch", "scale") => {
            let patch = json!({"metadata": {"resourceVersion": revision}, "spec": {"replicas": replicas}});
            ("PATCH", "/scale", "application/merge-patch+json", patch)
        }
        (Change::Replicas(replicas), "update", "scale") => {
            let mut scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}});
            if !key.namespace.is_empty() {
                scale["metadata"]["namespace"] = key.namespace.into();
            }
            ("PUT", "/scale", "application/json", scale)
        }
        (Change::Delete(options), "delete" | "deletecollection", "") => {
            let uid = &value["metadata"]["uid"];
            let mut delete = json!({"apiVersion": "v1", "kind": "DeleteOptions",
                "preconditions": {"uid": uid, "resourceVersion": revision}});
            for field in ["propagationPolicy", "gracePeriodSeconds"] {
                if !options[field].is_null() {
                    delete[field] = options[field].clone();
                }
            }
            if write.dry_run {
                delete["dryRun"] = json!(["All"]);
            }
            ("DELETE", "", "application/json", delete)
        }
        (_, verb, subresource) => {
            return Err(Status::bad_request(format!("{verb:?} of {subresource:?} is nothing that edges forward")));
        }
    };
    let dry_run = if write.dry_run { "&dryRun=All" } else { "" };
    let manager = encoded(&write.field_manager);
    let path = path(workspace, key, value);
    let uri = format!("{path}{subresource}?fieldManager={manager}{dry_run}");
    let request = Request::builder().method(method).uri(uri).header(header::CONTENT_TYPE, content_type);
    let request = request.header(header::ACCEPT, "application/json").header(header::USER_AGENT, "selvedge-edge");
    request.body(Full::new(body.to_string().into())).map_err(Status::internal)
}

/// A patch without what an edge says of its own copy of the object.
fn bounded(patch: &Value) -> Result<Value> {
    let mut patch = patch.clone();
    let Some(fields) = patch.as_object_mut() else { return Err(Status::bad_request("a write needs a patch")) };
    for field in ["apiVersion", "kind", "status"] {
        fields.remove(field);
    }
    if let Some(metadata) = fields.get_mut("metadata") {
        let Some(metadata) = metadata.as_object_mut() else { return Err(Status::bad_request("metadata is an object")) };
        metadata.retain(|field, _| matches!(field.as_str(), "labels" | "annotations"));
        for (field, name) in [("labels", names::PROJECTED), ("annotations", names::SOURCE)] {
            if let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) {
                map.remove(name);
            }
        }
    }
    Ok(patch)
}

fn path(workspace: &str, key: &ObjectKey<'_>, value: &Value) -> String {
    let resource = key.collection.split_once('/').map_or("", |(_, resource)| resource);
    let api_version = value["apiVersion"].as_str().unwrap_or_default();
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let namespace = match key.namespace {
        "" => String::new(),
        namespace => format!("/namespaces/{}", encoded(namespace)),
    };
    format!("/clusters/{workspace}/{root}/{api_version}{namespace}/{resource}/{}", encoded(key.name))
}

/// For a path or a query.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_say_nothing_of_the_copy() {
        let patch = json!({"kind": "X", "status": {"a": 1}, "spec": {"a": null}, "metadata": {"finalizers": null, "name": "x",
            "ownerReferences": [], "labels": {"edge.kcp.io/projected": null, "a": "b"}, "annotations": {"edge.selvedge.dev/source": "x"}}});
        let want = json!({"spec": {"a": null}, "metadata": {"labels": {"a": "b"}, "annotations": {}}});
        assert_eq!(bounded(&patch).unwrap(), want);
        assert!(bounded(&json!([])).is_err() && bounded(&json!({"metadata": 1})).is_err());
    }

    #[test]
    fn paths_are_the_apis() {
        for (key, api_version, want) in [
            ("core/configmaps/shop/a", "v1", "/clusters/root:x/api/v1/namespaces/shop/configmaps/a"),
            ("core/namespaces//shop", "v1", "/clusters/root:x/api/v1/namespaces/shop"),
            (
                "rbac.authorization.k8s.io/clusterroles//a:b?c",
                "rbac.authorization.k8s.io/v1",
                "/clusters/root:x/apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Ab%3Fc",
            ),
        ] {
            assert_eq!(path("root:x", &ObjectKey::parse(key).unwrap(), &json!({"apiVersion": api_version})), want);
        }
    }

    /// Whatever is asked, what is sent is one of five requests.
    #[test]
    fn only_certain_things_are_forwarded() {
        let object = Object::new("root/shop/a".into(), Bytes::from_static(b"{}"), 1, 7);
        let key = ObjectKey::parse("apps/deployments/shop/a").unwrap();
        let value = json!({"apiVersion": "apps/v1", "metadata": {"uid": "u"}});
        let ask = |change: &Change, verb: &str, subresource: &str| {
            let write = Forward {
                change: change.clone(),
                verb: verb.into(),
                subresource: subresource.into(),
                ..Forward::default()
            };
            request("root", &key, &object, &value, &write).map(|request| request.method().to_string()).ok()
        };
        let (patch, replicas, delete) =
            (Change::Patch(json!({})), Change::Replicas(3), Change::Delete(json!({"dryRun": 7})));
        for verb in ["get", "create", "update", "patch", "delete", "deletecollection", "escalate", ""] {
            for subresource in ["", "scale", "status", "finalize", "../x"] {
                let want = |v: &str, s: &str, method: &str| (verb == v && subresource == s).then(|| method.to_owned());
                let patched = want("patch", "", "PATCH").or(want("update", "", "PUT"));
                assert_eq!(ask(&patch, verb, subresource), patched, "{verb} {subresource}");
                let scaled = want("patch", "scale", "PATCH").or(want("update", "scale", "PUT"));
                assert_eq!(ask(&replicas, verb, subresource), scaled, "{verb} {subresource}");
                let deleted = want("delete", "", "DELETE").or(want("deletecollection", "", "DELETE"));
                assert_eq!(ask(&delete, verb, subresource), deleted, "{verb} {subresource}");
            }
        }
    }
}
