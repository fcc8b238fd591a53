//! `GET /clusters/<workspace>/fleet/<edge>/reports`: what an edge last reported of its objects, connected or not. Whoever may get
//! `synctargets/reports` may read it. Long answers come in parts: `next` is the `after` of the next one.

use std::sync::Arc;

use flow::body::Body;
use futures::future::BoxFuture;
use http::{Response, header::CONTENT_TYPE};
use identity::Attributes;
use kinds::EdgeId;
use request::Query;
use schema::status::{Result, Status};
use serde_json::{Value, json};
use server::{Mount, Mounted, Server};

use crate::Fleet;

/// At most this many at a time, unless fewer are asked for.
const MOST: usize = 1000;

pub struct Reported(pub Arc<Fleet>);

fn edge_in(path: &str) -> Option<&str> {
    let name = path.strip_prefix("/fleet/")?.strip_suffix("/reports")?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

impl Mount for Reported {
    fn takes(&self, _cluster: &str, path: &str) -> bool {
        edge_in(path).is_some()
    }

    fn serve(&self, server: Arc<Server>, asked: Mounted) -> BoxFuture<'static, Result<Response<Body>>> {
        let fleet = self.0.clone();
        Box::pin(async move {
            let edge = EdgeId::new(&asked.cluster, edge_in(&asked.path).unwrap_or_default());
            let attributes = Attributes {
                verb: "get".to_owned(),
                group: "workload.kcp.io".to_owned(),
                version: "v1alpha1".to_owned(),
                resource: "synctargets".to_owned(),
                subresource: "reports".to_owned(),
                name: edge.name.clone(),
                ..Attributes::default()
            };
            server.allow(asked.user, &asked.request, &asked.cluster, &attributes)?;
            if fleet.edges.get(&edge).is_none() {
                return Err(Status::not_found("workload.kcp.io", "synctargets", &edge.name));
            }
            let query = Query::parse(asked.request.uri().query());
            let limit = query.get("limit").parse().unwrap_or(MOST).clamp(1, MOST);
            let found = fleet.reports(&edge, query.get("after"), limit).await;
            let found = found.map_err(|error| Status::internal(error.to_string()))?;
            let next = (found.len() == limit).then(|| found.last().map(|report| report.key.to_string())).flatten();
            let state = |report: &link::Report| -> Value {
                report.state.as_deref().and_then(|state| serde_json::from_slice(state).ok()).unwrap_or_default()
            };
            let reports: Vec<Value> =
                found.iter().map(|report| json!({"key": &*report.key, "state": state(report)})).collect();
            let text = json!({"reports": reports, "next": next}).to_string();
            let mut response = Response::new(Body::from(text.into_bytes()));
            response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (path, edge) in [
            ("/fleet/florin/reports", Some("florin")),
            ("/fleet", None),
            ("/fleet//reports", None),
            ("/fleet/a/b/reports", None),
            ("/fleet/florin", None),
        ] {
            assert_eq!(edge_in(path), edge, "{path}");
        }
    }
}
