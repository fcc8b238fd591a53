//! Paths and operations of resources.

use schema::catalogue::{Resource, Subresource};
use serde_json::{Map, Value, json};

use super::Dialect;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const BODIES: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const CUSTOM_BODIES: [&str; 2] = [BODIES[0], BODIES[1]];
const STREAMS: [&str; 2] = ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];
const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];

/// What the operations of one resource need to know.
pub(super) struct Paths<'a> {
    pub(super) dialect: Dialect,
    pub(super) resource: &'a Resource,
    /// Names of definitions: of the object and of its list.
    pub(super) object: &'a str,
    pub(super) list: &'a str,
    /// The definition that a subresource speaks.
    pub(super) subresource: &'a dyn Fn(&Subresource) -> String,
    /// Custom resources take no strategic merge patch, and are told in JSON and YAML only.
    pub(super) custom: bool,
}

/// One operation before it is written for a dialect.
struct Operation<'a> {
    action: &'a str,
    id: String,
    kind: (&'a str, &'a str, &'a str),
    parameters: Vec<&'a str>,
    body: Option<Body<'a>>,
    response: Option<&'a str>,
    codes: &'a [&'a str],
    stream: bool,
}

enum Body<'a> {
    Object(&'a str),
    DeleteOptions,
    Patch { strategic: bool },
}

impl Paths<'_> {
    pub(super) fn write(&self, paths: &mut Map<String, Value>) {
        let r = self.resource;
        let base =
            if r.group.is_empty() { format!("/api/{}", r.version) } else { format!("/apis/{}/{}", r.group, r.version) };
        let scope = if r.namespaced { "/namespaces/{namespace}" } else { "" };
        let all = format!("{base}{scope}/{}", r.resource);
        let one = format!("{all}/{{name}}");
        let mut collection = Map::new();
        self.collection(&mut collection);
        let namespace: &[&str] = if r.namespaced { &["namespace"] } else { &[] };
        self.put(paths, all, collection, namespace);
        if r.namespaced && r.can("list") {
            let id = format!("list{}{}ForAllNamespaces", self.prefix(), r.kind);
            let mut everywhere = Map::new();
            everywhere.insert("get".to_owned(), self.operation(&self.list_operation(id)));
            self.put(paths, format!("{base}/{}", r.resource), everywhere, &[]);
        }
        let mut object = Map::new();
        self.object(&mut object);
        let named: &[&str] = if r.namespaced { &["name", "namespace"] } else { &["name"] };
        self.put(paths, one.clone(), object, named);
        for subresource in &r.subresources {
            let mut operations = Map::new();
            self.subresource(subresource, &mut operations);
            self.put(paths, format!("{one}/{}", subresource.name), operations, named);
        }
    }

    /// Adds a path. What all its operations take is said once, for the path.
    fn put(&self, paths: &mut Map<String, Value>, path: String, mut operations: Map<String, Value>, names: &[&str]) {
        if operations.is_empty() {
            return;
        }
        let mut parameters: Vec<Value> = names.iter().map(|name| self.in_path(name)).collect();
        parameters.push(self.query("pretty"));
        let taken = |operation: &Value| operation.get("parameters").and_then(Value::as_array).cloned();
        let mut shared = operations.values().next().and_then(taken).unwrap_or_default();
        shared.retain(|p| operations.values().all(|o| taken(o).is_some_and(|ps| ps.contains(p))));
        shared.retain(|p| p["in"] != "body");
        for operation in operations.values_mut().filter_map(Value::as_object_mut) {
            if let Some(Value::Array(own)) = operation.get_mut("parameters") {
                own.retain(|p| !shared.contains(p));
                if own.is_empty() {
                    operation.remove("parameters");
                }
            }
        }
        parameters.extend(shared);
        parameters.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
        operations.insert("parameters".to_owned(), parameters.into());
        paths.insert(path, operations.into());
    }

    fn collection(&self, into: &mut Map<String, Value>) {
        let r = self.resource;
        let kind = (&*r.group, &*r.version, &*r.kind);
        if r.can("list") {
            into.insert("get".to_owned(), self.operation(&self.list_operation(self.id("list", ""))));
        }
        if r.can("create") {
            let create = Operation {
                action: "post",
                id: self.id("create", ""),
                kind,
                parameters: WRITE.to_vec(),
                body: Some(Body::Object(self.object)),
                response: Some(self.object),
                codes: &["200", "201", "202"],
                stream: false,
            };
            into.insert("post".to_owned(), self.operation(&create));
        }
        if r.can("deletecollection") {
            let id = format!("delete{}Collection{}{}", self.prefix(), self.scope(), r.kind);
            let mut parameters: Vec<&str> = LIST.to_vec();
            if !self.custom {
                parameters.extend(DELETE);
                parameters.retain(|p| !matches!(*p, "allowWatchBookmarks" | "watch"));
                parameters.sort_unstable();
            }
            let status = format!("{META}.Status");
            let delete = Operation {
                action: "deletecollection",
                id,
                kind,
                parameters,
                body: (!self.custom).then_some(Body::DeleteOptions),
                response: Some(&status),
                codes: &["200"],
                stream: false,
            };
            into.insert("delete".to_owned(), self.operation(&delete));
        }
    }

    fn list_operation(&self, id: String) -> Operation<'_> {
        let r = self.resource;
        Operation {
            action: "list",
            id,
            kind: (&r.group, &r.version, &r.kind),
            parameters: LIST.to_vec(),
            body: None,
            response: Some(self.list),
            codes: &["200"],
            stream: true,
        }
    }

    fn object(&self, into: &mut Map<String, Value>) {
        let r = self.resource;
        let kind = (&*r.group, &*r.version, &*r.kind);
        for (verb, method) in [("get", "get"), ("update", "put"), ("patch", "patch")] {
            if r.can(verb) {
                into.insert(method.to_owned(), self.verb(verb, "", kind, self.object));
            }
        }
        if r.can("delete") {
            let status = format!("{META}.Status");
            // A few kinds answer a deletion with the object that was deleted.
            let answers_object = &*r.group == "resource.k8s.io"
                || matches!(
                    &*r.resource,
                    "pods"
                        | "services"
                        | "serviceaccounts"
                        | "persistentvolumeclaims"
                        | "persistentvolumes"
                        | "podtemplates"
                        | "resourcequotas"
                        | "storageclasses"
                        | "volumeattachments"
                        | "csidrivers"
                        | "csinodes"
                        | "volumeattributesclasses"
                );
            let delete = Operation {
                action: "delete",
                id: self.id("delete", ""),
                kind,
                parameters: DELETE.to_vec(),
                body: Some(Body::DeleteOptions),
                response: Some(if answers_object { self.object } else { &status }),
                codes: &["200", "202"],
                stream: false,
            };
            into.insert("delete".to_owned(), self.operation(&delete));
        }
    }

    fn subresource(&self, s: &Subresource, into: &mut Map<String, Value>) {
        let own = self.resource;
        let kind = match self.custom {
            true => (&*own.group, &*own.version, &*own.kind),
            false => (&*s.group, &*s.version, &*s.kind),
        };
        let suffix = capital(&s.name);
        if matches!(&*s.name, "proxy" | "exec" | "attach" | "portforward") {
            let methods: &[&str] = match &*s.name {
                "proxy" => &["delete", "get", "head", "options", "patch", "post", "put"],
                _ => &["get", "post"],
            };
            for method in methods {
                let id = format!(
                    "connect{}{}{}{}{suffix}",
                    self.prefix(),
                    capital(method),
                    self.scope(),
                    self.resource.kind
                );
                let connect = Operation {
                    action: "connect",
                    id,
                    kind,
                    parameters: Vec::new(),
                    body: None,
                    response: None,
                    codes: &["200"],
                    stream: false,
                };
                into.insert((*method).to_owned(), self.operation(&connect));
            }
            return;
        }
        let definition = (self.subresource)(s);
        for (verb, method) in [("get", "get"), ("update", "put"), ("patch", "patch"), ("create", "post")] {
            if s.verbs.iter().any(|v| &**v == verb) {
                into.insert(method.to_owned(), self.verb(verb, &suffix, kind, &definition));
            }
        }
    }

    /// Reading or writing one object, or a subresource of it.
    fn verb(&self, verb: &str, suffix: &str, kind: (&str, &str, &str), definition: &str) -> Value {
        let (action, name, parameters, body, codes): (_, _, &[&str], _, &[&str]) = match verb {
            "get" if self.custom => ("get", "read", &["resourceVersion"], None, &["200"]),
            "get" => ("get", "read", &[], None, &["200"]),
            "update" => ("put", "replace", WRITE, Some(Body::Object(definition)), &["200", "201"]),
            "create" => ("post", "create", WRITE, Some(Body::Object(definition)), &["200", "201", "202"]),
            _ if self.custom => ("patch", "patch", PATCH, Some(Body::Patch { strategic: false }), &["200"]),
            _ => ("patch", "patch", PATCH, Some(Body::Patch { strategic: true }), &["200", "201"]),
        };
        self.operation(&Operation {
            action,
            id: self.id(name, suffix),
            kind,
            parameters: parameters.to_vec(),
            body,
            response: Some(definition),
            codes,
            stream: false,
        })
    }

    /// `readAppsV1NamespacedDeploymentScale`
    fn id(&self, verb: &str, suffix: &str) -> String {
        format!("{verb}{}{}{}{suffix}", self.prefix(), self.scope(), self.resource.kind)
    }

    fn scope(&self) -> &'static str {
        if self.resource.namespaced { "Namespaced" } else { "" }
    }

    /// `AppsV1`
    fn prefix(&self) -> String {
        format!("{}{}", group_name(&self.resource.group), capital(&self.resource.version))
    }

    fn operation(&self, operation: &Operation<'_>) -> Value {
        let (group, version, kind) = operation.kind;
        let mut tag = group_name(&self.resource.group);
        if let Some(first) = tag.get_mut(..1) {
            first.make_ascii_lowercase();
        }
        let mut written = json!({
            "operationId": operation.id,
            "tags": [format!("{tag}_{}", self.resource.version)],
            "x-kubernetes-action": operation.action,
            "x-kubernetes-group-version-kind": {"group": group, "kind": kind, "version": version},
        });
        let mut parameters: Vec<Value> = operation.parameters.iter().map(|p| self.query(p)).collect();
        let media: Vec<&str> = match (self.custom, operation.stream) {
            (true, _) => CUSTOM_BODIES.to_vec(),
            (false, true) => BODIES.iter().chain(&STREAMS).copied().collect(),
            (false, false) => BODIES.to_vec(),
        };
        match self.dialect {
            Dialect::V3 => {
                if let Some(body) = &operation.body {
                    written["requestBody"] = self.v3_body(body);
                }
                let content = |name: &str| -> Value {
                    let schema = json!({"schema": {"$ref": self.dialect.reference(name)}});
                    media.iter().map(|m| ((*m).to_owned(), schema.clone())).collect::<Map<_, _>>().into()
                };
                let answer = match operation.response {
                    Some(name) => json!({"description": "OK", "content": content(name)}),
                    None => json!({"description": "OK", "content": {"*/*": {"schema": {"type": "string"}}}}),
                };
                written["responses"] = responses(operation.codes, &answer);
            }
            Dialect::V2 => {
                if let Some(body) = &operation.body {
                    parameters.push(self.v2_body(body));
                    written["consumes"] = json!(self.body_types(body));
                } else if self.custom {
                    written["consumes"] = json!(CUSTOM_BODIES);
                }
                written["produces"] = json!(media);
                written["schemes"] = json!(["https"]);
                let answer = match operation.response {
                    Some(name) => json!({"description": "OK", "schema": {"$ref": self.dialect.reference(name)}}),
                    None => json!({"description": "OK", "schema": {"type": "string"}}),
                };
                written["responses"] = responses(operation.codes, &answer);
            }
        }
        if !parameters.is_empty() {
            written["parameters"] = parameters.into();
        }
        written
    }

    fn body_name(body: &Body<'_>) -> String {
        match body {
            Body::Object(name) => (*name).to_owned(),
            Body::DeleteOptions => format!("{META}.DeleteOptions"),
            Body::Patch { .. } => format!("{META}.Patch"),
        }
    }

    fn body_types(&self, body: &Body<'_>) -> &'static [&'static str] {
        match body {
            Body::Patch { strategic: true } => &PATCHES,
            Body::Patch { strategic: false } => &PLAIN_PATCHES,
            _ if self.custom => &CUSTOM_BODIES,
            _ => &["*/*"],
        }
    }

    fn v3_body(&self, body: &Body<'_>) -> Value {
        let schema = json!({"schema": {"$ref": self.dialect.reference(&Self::body_name(body))}});
        let content: Map<String, Value> =
            self.body_types(body).iter().map(|t| ((*t).to_owned(), schema.clone())).collect();
        let mut written = json!({"content": content});
        if !matches!(body, Body::DeleteOptions) {
            written["required"] = true.into();
        }
        written
    }

    fn v2_body(&self, body: &Body<'_>) -> Value {
        let mut written =
            json!({"in": "body", "name": "body", "schema": {"$ref": self.dialect.reference(&Self::body_name(body))}});
        if !matches!(body, Body::DeleteOptions) {
            written["required"] = true.into();
        }
        written
    }

    fn in_path(&self, name: &str) -> Value {
        match self.dialect {
            Dialect::V3 => {
                json!({"in": "path", "name": name, "required": true, "schema": {"type": "string", "uniqueItems": true}})
            }
            Dialect::V2 => json!({"in": "path", "name": name, "required": true, "type": "string", "uniqueItems": true}),
        }
    }

    fn query(&self, name: &str) -> Value {
        let kind = match name {
            "gracePeriodSeconds" | "limit" | "timeoutSeconds" => "integer",
            "allowWatchBookmarks"
            | "force"
            | "ignoreStoreReadErrorWithClusterBreakingPotential"
            | "orphanDependents"
            | "sendInitialEvents"
            | "watch" => "boolean",
            _ => "string",
        };
        match self.dialect {
            Dialect::V3 => json!({"in": "query", "name": name, "schema": {"type": kind, "uniqueItems": true}}),
            Dialect::V2 => json!({"in": "query", "name": name, "type": kind, "uniqueItems": true}),
        }
    }
}

const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
/// Of kinds that have no strategic merge.
const PLAIN_PATCHES: [&str; 3] = [PATCHES[0], PATCHES[1], PATCHES[3]];

fn responses(codes: &[&str], answer: &Value) -> Value {
    let mut responses: Map<String, Value> = codes.iter().map(|code| ((*code).to_owned(), answer.clone())).collect();
    responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    responses.into()
}

/// `RbacAuthorization` for `rbac.authorization.k8s.io`.
fn group_name(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    group.trim_end_matches(".k8s.io").split(['.', '-']).map(capital).collect()
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
