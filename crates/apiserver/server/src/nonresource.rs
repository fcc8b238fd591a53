//! Everything that is not a resource: health, version, metrics, discovery, OpenAPI, the issuer's documents.

use std::sync::Arc;

use bytes::Bytes;
use flow::body::Body;
use http::{HeaderMap, Response, header::ACCEPT};
use request::{Query, ROOT};
use schema::catalogue::Resource;
use schema::status::{Result, Status};
use serde_json::{Value, json};

use crate::{
    Server,
    aggregation::{Shown, merge},
    discovery, health,
    kinds::Kind,
    negotiate, render, respond,
};

pub const VERSION: &str = "v1.36.4+selvedge";

/// Where somebody looks around.
#[derive(Clone, Copy)]
pub struct Here<'a> {
    pub cluster: &'a str,
    /// Without saying which workspace: then there is only what Kubernetes has, and what people have defined.
    pub bare: bool,
}

impl Here<'_> {
    pub fn kinds(self, server: &Server) -> Vec<Arc<Kind>> {
        if self.bare { server.kinds.plain(self.cluster) } else { server.kinds.all(self.cluster) }
    }

    /// The same, with what others serve on the port.
    fn shown(self, server: &Server) -> Vec<Arc<Kind>> {
        let mut kinds = self.kinds(server);
        let others = server.mounts().iter().flat_map(|mount| mount.resources(self.cluster));
        // Where somebody has registered a server for the same, that one answers.
        let remotes = server.aggregation.remotes(self.cluster);
        let is_free =
            |one: &Resource| !remotes.iter().any(|remote| remote.group == one.group && remote.version == one.version);
        kinds.extend(others.filter(is_free).map(|resource| Arc::new(Kind::elsewhere(resource))));
        kinds
    }
}

pub async fn answer(
    server: &Arc<Server>,
    here: Here<'_>,
    path: &str,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response<Body>> {
    match path {
        "/version" => {
            check_version_accept(headers)?;
            Ok(json_reply(200, &version()))
        }
        // They are about all workspaces.
        "/metrics" if here.cluster != ROOT => Ok(not_found()),
        "/metrics" => Ok(respond::build(
            200,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            server.metrics.text(server).into(),
        )),
        "/openapi/v2" => Ok(server.openapi.v2(server, here, headers).await),
        "/openapi/v3" => Ok(server.openapi.v3_index(server, here)),
        "/.well-known/openid-configuration" => Ok(json_reply(200, &server.identity.openid_configuration())),
        "/openid/v1/jwks" => {
            let body = serde_json::to_vec(&server.identity.jwks()?).unwrap_or_default();
            Ok(respond::build(200, "application/jwk-set+json", body.into()))
        }
        "/" => Ok(json_reply(200, &json!({"paths": paths(server, here)}))),
        other => {
            if let Some(document) = other.strip_prefix("/openapi/v3/") {
                return Ok(server.openapi.v3(server, here, document, headers));
            }
            Ok(health::answer(server, other, query).await.unwrap_or_else(not_found))
        }
    }
}

/// What upstream's router says of a path that leads nowhere.
pub fn not_found() -> Response<Body> {
    respond::build(404, "text/plain; charset=utf-8", Bytes::from_static(b"404 page not found\n").into())
}

/// Upstream's router knows that the version comes in JSON only.
fn check_version_accept(headers: &HeaderMap) -> Result<()> {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let fits = |clause: &str| matches!(clause.split(';').next().unwrap_or_default().trim(), "*/*" | "application/json");
    if accept.trim().is_empty() || accept.split(',').any(fits) {
        return Ok(());
    }
    let what = "406: Not Acceptable\n\nAvailable representations: application/json";
    Err(Status::not_acceptable(what).with_causes(Vec::new()))
}

pub fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": VERSION, "gitCommit": option_env!("SELVEDGE_COMMIT").unwrap_or("unknown"), "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "rust", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn json_reply(code: u16, value: &Value) -> Response<Body> {
    respond::build(code, "application/json", serde_json::to_vec(value).unwrap_or_default().into())
}

fn paths(server: &Server, here: Here<'_>) -> Vec<String> {
    let mut paths: Vec<String> = [
        "/.well-known/openid-configuration",
        "/api",
        "/api/v1",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .to_vec();
    for remote in server.aggregation.shown(server, here.cluster) {
        paths.extend([format!("/apis/{}", remote.group), format!("/apis/{}/{}", remote.group, remote.version)]);
    }
    for (group, versions) in discovery::groups(&here.shown(server)) {
        if !group.is_empty() {
            paths.extend(versions.iter().map(|v| format!("/apis/{group}/{v}")));
            paths.push(format!("/apis/{group}"));
        }
    }
    paths.sort();
    paths.dedup();
    paths
}

pub fn discovery(
    server: &Server,
    here: Here<'_>,
    core: bool,
    group: &str,
    version: &str,
    headers: &HeaderMap,
) -> Result<Response<Body>> {
    let remotes = server.aggregation.shown(server, here.cluster);
    discovery_of(server, (&here.shown(server), &remotes), core, group, version, headers)
}

/// The same for whoever sees just these kinds and these APIs of remote servers.
pub fn discovery_of(
    server: &Server,
    (kinds, remotes): (&[Arc<Kind>], &[Shown]),
    core: bool,
    group: &str,
    version: &str,
    headers: &HeaderMap,
) -> Result<Response<Body>> {
    let accept = headers.get(ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if group.is_empty() && version.is_empty() {
        if wants_aggregated(accept) {
            let mut document = discovery::aggregated(kinds, core);
            if !core {
                merge::aggregated(&mut document, remotes);
            }
            return Ok(respond::build(
                200,
                discovery::AGGREGATED,
                serde_json::to_vec(&document).unwrap_or_default().into(),
            ));
        }
        let mut document =
            if core { discovery::core_versions(&server.address.to_string()) } else { discovery::group_list(kinds) };
        if !core && !remotes.is_empty() {
            merge::group_list(&mut document, remotes);
        }
        return in_format(&document, accept);
    }
    let known_group =
        discovery::groups(kinds).iter().any(|(g, _)| g == group) || remotes.iter().any(|one| *one.group == *group);
    if !known_group {
        return Ok(not_found());
    }
    let document = if version.is_empty() {
        merge::group(discovery::group(kinds, group), group, remotes)
    } else {
        discovery::resource_list(kinds, group, version)
    };
    // Versions of groups that only definitions serve are not known to upstream's router.
    if document.is_none() && !schema::catalogue::groups().iter().any(|known| *known.name == *group) {
        return Ok(not_found());
    }
    in_format(&document.ok_or_else(Status::no_such_path)?, accept)
}

fn in_format(document: &Value, accept: &str) -> Result<Response<Body>> {
    let accept = match negotiate::accept(accept, negotiate::Offer::CustomObjects) {
        Ok(accept) if accept.shape == negotiate::Shape::Object => accept,
        // These documents have no protobuf form here; those who ask for it can read JSON as well.
        _ if accept.contains("protobuf") => negotiate::Accept::JSON,
        _ => {
            return Err(Status::not_acceptable(
                "only the following media types are accepted: application/json, application/yaml, \
                 application/vnd.kubernetes.protobuf",
            ));
        }
    };
    Ok(respond::build(200, accept.format.content_type(), render::value(document, accept.format)?.into()))
}

/// The client takes the aggregated form, and before the plain one.
fn wants_aggregated(accept: &str) -> bool {
    accept.split(',').map(str::trim).any(|clause| {
        let has = |part: &str| clause.split(';').any(|p| p.trim() == part);
        clause.starts_with("application/json")
            && has("g=apidiscovery.k8s.io")
            && has("v=v2")
            && has("as=APIGroupDiscoveryList")
    })
}
