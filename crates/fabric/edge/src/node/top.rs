//! metrics.k8s.io/v1beta1: what `kubectl top` and autoscalers read, measured when it is asked for, or asked of kubelets then.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flow::body::Body;
use futures::future::BoxFuture;
use http::{
    HeaderValue, Method, Request, Response,
    header::{ACCEPT, CONTENT_TYPE},
};
use http_body_util::Full;
use identity::User;
use node_api::{Node, usage::top};
use request::Query;
use schema::catalogue::Resource;
use schema::selector::{FieldSelector, LabelSelector};
use schema::status::{Result, Status};
use serde_json::{Value, json};
use server::onward::METRICS;
use server::{Mount, Mounted, Server, onward};

use super::summary;
use crate::CLUSTER;

const PATH: &str = "/apis/metrics.k8s.io/v1beta1/";
const ROLE: &str = "system:aggregated-metrics-reader";

/// Mounted on the edge's server.
pub struct Top(Source);

#[derive(Clone)]
enum Source {
    /// Who asks before it is there is told to come again.
    Inside(Arc<OnceLock<Node>>),
    Kubelets,
}

impl Top {
    /// Of the node that runs within the agent.
    pub fn of_inside() -> Self {
        Self(Source::Inside(Arc::default()))
    }

    /// Of all nodes that have a kubelet.
    pub fn of_kubelets() -> Self {
        Self(Source::Kubelets)
    }

    pub(super) fn answer(&self, node: Node) {
        if let Source::Inside(inside) = &self.0 {
            let _ = inside.set(node);
        }
    }
}

impl Source {
    /// NodeMetrics or PodMetrics of everything.
    async fn measure(&self, server: &Arc<Server>, are_nodes: bool) -> Result<Vec<Value>> {
        let Self::Inside(node) = self else {
            let said = summary::ask(server).await;
            return Ok(match are_nodes {
                true => said
                    .iter()
                    .filter_map(|said| summary::node(said, |name| labels(server, "nodes", "", name)))
                    .collect(),
                false => {
                    let of_pod = |namespace: &str, name: &str| labels(server, "pods", namespace, name);
                    said.iter().flat_map(|said| summary::pods(said, of_pod)).collect()
                }
            });
        };
        let node = node
            .get()
            .ok_or_else(|| Status::unavailable("the node of this edge has not started yet").retry_after(1))?;
        let measured = node.measure().await.map_err(|failure| Status::unavailable(failure.to_string()))?;
        Ok(match are_nodes {
            true => vec![top::node(node.name(), &labels(server, "nodes", "", node.name()), &measured)],
            false => top::pods(&measured),
        })
    }
}

impl Mount for Top {
    fn takes(&self, cluster: &str, path: &str) -> bool {
        cluster == CLUSTER && path.starts_with(PATH)
    }

    fn resources(&self, cluster: &str) -> Vec<Resource> {
        if cluster == CLUSTER { onward::metrics() } else { Vec::new() }
    }

    fn serve(&self, server: Arc<Server>, asked: Mounted) -> BoxFuture<'static, Result<Response<Body>>> {
        let source = self.0.clone();
        Box::pin(async move {
            let attributes = asked.attributes()?;
            server.allow(asked.user.clone(), &asked.request, &asked.cluster, &attributes)?;
            let known = matches!(attributes.resource.as_str(), "nodes" | "pods") && attributes.subresource.is_empty();
            if !known {
                return Err(Status::no_such_path());
            }
            if *asked.request.method() != Method::GET || attributes.verb == "watch" {
                return Err(Status::method_not_allowed());
            }
            let items = source.measure(&server, attributes.resource == "nodes").await?;
            let query = Query::parse(asked.request.uri().query());
            let wanted = Wanted::parse(&attributes.namespace, &attributes.name, &query, &attributes.resource)?;
            let mut shown = wanted.pick(items, path_names_one(&asked.path))?;
            let accept = asked.request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
            if wants_table(accept.unwrap_or_default()) {
                shown = table(&shown, query.get("includeObject"));
            }
            let mut response = Response::new(Body::from(Bytes::from(shown.to_string())));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Ok(response)
        })
    }
}

/// Those of the object itself.
fn labels(server: &Server, resource: &str, namespace: &str, name: &str) -> Value {
    let object = server.cache.get(&format!("core/{resource}"), &format!("{CLUSTER}/{namespace}/{name}"));
    let labels = object.map(|object| object.value()["metadata"]["labels"].clone());
    labels.filter(Value::is_object).unwrap_or_else(|| json!({}))
}

/// Whether the path names an object: a field selector on the name does not.
fn path_names_one(path: &str) -> bool {
    let behind = path.strip_prefix(PATH).unwrap_or_default().trim_matches('/');
    let parts = behind.split('/').count();
    if behind.starts_with("namespaces/") { parts == 4 } else { parts == 2 }
}

/// Whether the first clause of an Accept header that can be served is a Table. Everything is served as JSON.
fn wants_table(accept: &str) -> bool {
    let clause = accept.split(',').map(str::trim).find_map(|clause| {
        let mut parts = clause.split(';').map(str::trim);
        let is_json = matches!(parts.next(), Some("application/json" | "application/*" | "*/*"));
        let given: Vec<&str> = parts.collect();
        let is_table = given.contains(&"as=Table")
            && given.contains(&"g=meta.k8s.io")
            && (given.contains(&"v=v1") || given.contains(&"v=v1beta1"));
        let is_plain = !given.iter().any(|part| part.starts_with("as="));
        (is_json && (is_table || is_plain)).then_some(is_table)
    });
    clause.unwrap_or(false)
}

/// One object or a list as a Table, with the columns that metrics-server has. `include` says what of each object comes along.
fn table(shown: &Value, include: &str) -> Value {
    let all = match shown["items"].as_array() {
        Some(items) => items.as_slice(),
        None => std::slice::from_ref(shown),
    };
    let row = |item: &Value| {
        let containers = item["containers"].as_array().into_iter().flatten().map(|one| &one["usage"]);
        let usages: Vec<&Value> = containers.chain(item.get("usage")).collect();
        let sum = |resource: &str, unit: &str| {
            let amounts = usages.iter().filter_map(|usage| usage[resource].as_str()?.strip_suffix(unit)?.parse().ok());
            amounts.fold(0_u64, u64::saturating_add)
        };
        let cpu = quantity(sum("cpu", "n"), 1000, &["n", "u", "m", "", "k"]);
        let memory = quantity(sum("memory", "Ki"), 1024, &["Ki", "Mi", "Gi", "Ti", "Pi"]);
        let object = match include {
            "None" => Value::Null,
            "Object" => item.clone(),
            _ => json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}),
        };
        let cells = json!([item["metadata"]["name"], cpu, memory, item["window"]]);
        match object {
            Value::Null => json!({"cells": cells}),
            object => json!({"cells": cells, "object": object}),
        }
    };
    let column = |name: &str, format: &str, description: &str| json!({"name": name, "type": "string", "format": format, "description": description, "priority": 0});
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "columnDefinitions": [
            column("Name", "name", "Name of the resource"), column("cpu", "quantity", ""),
            column("memory", "quantity", ""), column("Window", "duration", "")],
        "rows": all.iter().map(row).collect::<Vec<Value>>()})
}

/// An amount of the first unit, in the largest unit that has it as a whole number.
fn quantity(mut amount: u64, step: u64, units: &[&str]) -> String {
    let mut at = 0;
    while amount > 0 && amount.is_multiple_of(step) && at + 1 < units.len() {
        (amount, at) = (amount / step, at + 1);
    }
    if amount == 0 { "0".to_owned() } else { format!("{amount}{}", units[at]) }
}

/// What of all that there is somebody asks for.
struct Wanted {
    resource: String,
    namespace: String,
    name: String,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Wanted {
    fn parse(namespace: &str, name: &str, query: &Query, resource: &str) -> Result<Self> {
        Ok(Self {
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            labels: LabelSelector::parse(query.get("labelSelector"))?,
            fields: FieldSelector::parse(query.get("fieldSelector"))?,
        })
    }

    /// One object, or a list.
    fn pick(&self, items: Vec<Value>, is_one: bool) -> Result<Value> {
        let text = |item: &Value, field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
        let is_here = |item: &Value| {
            (self.namespace.is_empty() || text(item, "namespace") == self.namespace)
                && (self.name.is_empty() || text(item, "name") == self.name)
        };
        let mut items = items.into_iter().filter(is_here);
        if is_one {
            return items.next().ok_or_else(|| Status::not_found(METRICS, &self.resource, &self.name));
        }
        let matches = |item: &Value| {
            let field = |path: &str| path.strip_prefix("metadata.").map(|field| text(item, field)).unwrap_or_default();
            self.labels.matches_labels(&item["metadata"]["labels"]) && self.fields.matches(field)
        };
        let items: Vec<Value> = items.filter(matches).collect();
        let kind = if self.resource == "nodes" { "NodeMetricsList" } else { "PodMetricsList" };
        Ok(json!({"kind": kind, "apiVersion": top::API_VERSION, "metadata": {}, "items": items}))
    }
}

/// Whoever may look at pods may look at what they use, as where metrics-server is installed.
pub async fn let_them_read(server: &Arc<Server>) {
    let label = |to: &str| format!("rbac.authorization.k8s.io/aggregate-to-{to}");
    let role = json!({"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": ROLE, "labels": {label("view"): "true", label("edit"): "true", label("admin"): "true"}},
        "rules": [{"apiGroups": [METRICS], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}]});
    let mut request = Request::new(Full::new(Bytes::from(role.to_string())));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http::Uri::from_static("/apis/rbac.authorization.k8s.io/v1/clusterroles");
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let code = server.clone().request_as(User::itself(), request).await.status().as_u16();
    if code != 201 && code != 409 {
        tracing::warn!(code, "the role {ROLE} could not be made: only administrators can use kubectl top");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_the_columns_of_metrics_server() {
        for (accept, is_table) in [
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", true),
            ("application/vnd.kubernetes.protobuf, application/json;as=Table;g=meta.k8s.io;v=v1", true),
            ("application/json,application/json;as=Table;v=v1;g=meta.k8s.io", false),
            ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", false),
            ("*/*", false),
            ("", false),
        ] {
            assert_eq!(wants_table(accept), is_table, "{accept}");
        }
        let metadata = json!({"name": "web", "namespace": "shop"});
        let web = json!({"kind": "PodMetrics", "metadata": metadata, "window": "15.000s", "containers": [
            {"name": "a", "usage": {"cpu": "1500000n", "memory": "512Ki"}}, {"name": "b", "usage": {"cpu": "500000n", "memory": "512Ki"}}]});
        let seen = table(&json!({"items": [web]}), "Metadata");
        let names: Vec<&Value> = seen["columnDefinitions"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["Name", "cpu", "memory", "Window"]);
        let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
        assert_eq!(seen["rows"], json!([{"cells": ["web", "2m", "1Mi", "15.000s"], "object": partial}]));
        let node = json!({"metadata": {"name": "n"}, "window": "1s", "usage": {"cpu": "0n", "memory": "3000Ki"}});
        assert_eq!(table(&node, "None")["rows"], json!([{"cells": ["n", "0", "3000Ki", "1s"]}]));
        assert_eq!(table(&json!({"items": []}), "Metadata")["rows"], json!([]));
    }

    #[test]
    fn what_is_asked_for() {
        let item = |namespace: &str, name: &str| json!({"metadata": {"name": name, "namespace": namespace, "labels": {"app": name}}});
        let items = || vec![item("a", "web"), item("a", "db"), item("b", "web")];
        let names = |shown: &Value| -> Vec<String> {
            let all = shown["items"].as_array().unwrap().iter();
            all.map(|item| {
                format!(
                    "{}/{}",
                    item["metadata"]["namespace"].as_str().unwrap(),
                    item["metadata"]["name"].as_str().unwrap()
                )
            })
            .collect()
        };
        for (namespace, query, expected) in [
            ("", "", &["a/web", "a/db", "b/web"][..]),
            ("a", "", &["a/web", "a/db"]),
            ("", "labelSelector=app%3Dweb", &["a/web", "b/web"]),
            ("", "labelSelector=app%21%3Dweb", &["a/db"]),
            ("", "fieldSelector=metadata.name%3Ddb", &["a/db"]),
            ("c", "", &[]),
        ] {
            let wanted = Wanted::parse(namespace, "", &Query::parse(Some(query)), "pods").unwrap();
            assert_eq!(names(&wanted.pick(items(), false).unwrap()), expected, "{namespace} {query}");
        }
        let one = Wanted::parse("b", "web", &Query::default(), "pods").unwrap();
        assert_eq!(one.pick(items(), true).unwrap(), item("b", "web"));
        let none = Wanted::parse("b", "db", &Query::default(), "pods").unwrap();
        assert_eq!(none.pick(items(), true).unwrap_err().code, 404);
        assert!(path_names_one("/apis/metrics.k8s.io/v1beta1/namespaces/a/pods/web"));
        assert!(path_names_one("/apis/metrics.k8s.io/v1beta1/nodes/n1"));
        assert!(!path_names_one("/apis/metrics.k8s.io/v1beta1/namespaces/a/pods"));
        assert!(!path_names_one("/apis/metrics.k8s.io/v1beta1/pods"));
    }
}
