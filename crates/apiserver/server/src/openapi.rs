//! The OpenAPI documents, made on the first request for them and kept until the kinds change.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use codec::openapi::{Dialect, Models};
use flow::body::Body;
use http::{
    HeaderMap, HeaderValue, Response,
    header::{ACCEPT, CONTENT_TYPE, ETAG, IF_NONE_MATCH},
};
use request::ROOT;
use serde_json::json;

use crate::{Server, aggregation, aggregation::Remote, discovery, kinds::Kind, nonresource::Here, respond};

/// Workspaces with kinds of their own have documents of their own. Together they take no more than this.
const MOST: usize = 32 << 20;

/// What the schemas of one document may take while it is made, by estimate.
const MOST_PUBLISHED: usize = 32 << 20;

#[derive(Default)]
pub struct Documents {
    /// By workspace (and whether it was named), generation of its kinds and name of the document.
    made: Mutex<HashMap<(String, u64, String), Bytes>>,
}

impl Documents {
    pub async fn v2(&self, server: &Arc<Server>, here: Here<'_>, headers: &HeaderMap) -> Response<Body> {
        let accept = headers.get(ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        if accept.split(',').next().is_some_and(|clause| clause.contains("proto-openapi.spec.v2")) {
            let body = self.document(server, here, "v2.pb", |kinds| v2_document(kinds, true));
            let content_type = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
            return unless_known(headers, with_etag(respond::build(200, content_type, body.clone().into()), &body));
        }
        let mut body = self.document(server, here, "v2", |kinds| v2_document(kinds, false));
        let remotes = server.aggregation.remotes(here.cluster);
        if !remotes.is_empty()
            && let Ok(mut document) = serde_json::from_slice(&body)
        {
            aggregation::openapi::v2(server, &mut document, &remotes).await;
            body = serde_json::to_vec(&document).unwrap_or_default().into();
        }
        unless_known(headers, with_etag(respond::build(200, "application/json", body.clone().into()), &body))
    }

    pub fn v3_index(&self, server: &Server, here: Here<'_>) -> Response<Body> {
        let generation = server.kinds.workspace(here.cluster).map_or(0, |w| w.generation);
        v3_index_of(&here.kinds(server), generation, &server.aggregation.remotes(here.cluster))
    }

    pub fn v3(&self, server: &Server, here: Here<'_>, path: &str, headers: &HeaderMap) -> Response<Body> {
        let kinds = here.kinds(server);
        match group_version(&kinds, path) {
            Ok((group, version)) => {
                let body = self.document(server, here, path, |kinds| v3_document(kinds, &group, &version));
                unless_known(headers, with_etag(respond::build(200, "application/json", body.clone().into()), &body))
            }
            Err(other) => other,
        }
    }

    fn document(&self, server: &Server, here: Here<'_>, name: &str, make: impl Fn(&[Arc<Kind>]) -> Vec<u8>) -> Bytes {
        let kinds = here.kinds(server);
        // Workspaces without kinds of their own share the documents; root has some that others have not.
        let workspace = server.kinds.workspace(here.cluster);
        let cluster = if here.cluster == ROOT || workspace.is_some() { here.cluster } else { "" };
        let generation = workspace.map_or(0, |w| w.generation);
        let cluster = format!("{cluster}{}", if here.bare { "/bare" } else { "" });
        let key = (cluster.clone(), generation, name.to_owned());
        if let Some(found) = self.made.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return found.clone();
        }
        let body = Bytes::from(make(&kinds));
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|(c, g, _), _| *c != cluster || *g == generation);
        if made.values().map(Bytes::len).sum::<usize>() > MOST {
            made.retain(|(c, ..), _| c.is_empty());
        }
        made.insert(key, body.clone());
        body
    }
}

/// Which documents there are, for whoever sees these kinds.
fn v3_index_of(kinds: &[Arc<Kind>], generation: u64, remotes: &[Arc<Remote>]) -> Response<Body> {
    let mut paths = serde_json::Map::new();
    let entry =
        |path: &str| json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={:016X}", hash(path, generation))});
    for path in [".well-known/openid-configuration", "api", "apis", "openid/v1/jwks", "version"] {
        paths.insert(path.to_owned(), entry(path));
    }
    for (group, versions) in discovery::groups(kinds) {
        let base = if group.is_empty() { "api".to_owned() } else { format!("apis/{group}") };
        if !group.is_empty() {
            paths.insert(base.clone(), entry(&base));
        }
        for version in versions {
            let path = format!("{base}/{version}");
            paths.insert(path.clone(), entry(&path));
        }
    }
    let mut document = json!({"paths": paths});
    aggregation::openapi::index(&mut document, remotes);
    let body = serde_json::to_vec(&document).unwrap_or_default();
    respond::build(200, "text/plain; charset=utf-8", body.into())
}

/// The documents of whoever sees just these kinds, made for every request: providers ask rarely.
pub fn of_kinds(kinds: &[Arc<Kind>], path: &str) -> Response<Body> {
    let made = |body: Vec<u8>| {
        let body = Bytes::from(body);
        with_etag(respond::build(200, "application/json", body.clone().into()), &body)
    };
    match path {
        "v2" => made(v2_document(kinds, false)),
        "v3" => v3_index_of(kinds, kinds.len() as u64, &[]),
        _ => match path.strip_prefix("v3/").map(|path| group_version(kinds, path)) {
            Some(Ok((group, version))) => made(v3_document(kinds, &group, &version)),
            Some(Err(other)) => other,
            None => missing(),
        },
    }
}

/// The group and version of a document's path, or what is said of it instead.
fn group_version(kinds: &[Arc<Kind>], path: &str) -> Result<(String, String), Response<Body>> {
    let (group, version) = match path.split('/').collect::<Vec<_>>()[..] {
        ["api", version] => (String::new(), version.to_owned()),
        ["apis", group, version] => (group.to_owned(), version.to_owned()),
        _ => return Err(empty_or_missing(path)),
    };
    if kinds.iter().any(|k| k.group() == group && *k.resource.version == *version) {
        Ok((group, version))
    } else {
        Err(missing())
    }
}

fn v3_document(kinds: &[Arc<Kind>], group: &str, version: &str) -> Vec<u8> {
    let mine: Vec<_> = kinds.iter().filter(|k| k.group() == group && *k.resource.version == *version).collect();
    let mut room = MOST_PUBLISHED;
    let schemas: Vec<_> = mine.iter().map(|k| custom_models(k, Dialect::V3, &mut room)).collect();
    let described = described(mine.into_iter().zip(&schemas));
    codec::openapi::v3(schema::builtin(), (group, version), described)
}

fn v2_document(kinds: &[Arc<Kind>], in_protobuf: bool) -> Vec<u8> {
    let mut room = MOST_PUBLISHED;
    let schemas: Vec<_> = kinds.iter().map(|k| custom_models(k, Dialect::V2, &mut room)).collect();
    let (schema, described) = (schema::builtin(), described(kinds.iter().zip(&schemas)));
    if in_protobuf { codec::openapi::v2_protobuf(schema, described) } else { codec::openapi::v2(schema, described) }
}

/// The schemas of a custom kind as they are published. Once there is no more room, kinds are published without their
/// fields.
fn custom_models(kind: &Kind, dialect: Dialect, room: &mut usize) -> Option<Models> {
    let custom = kind.custom.as_ref()?;
    let version = custom.version()?;
    let left = room.checked_sub(version.weight());
    *room = left.unwrap_or(*room);
    Some(custom.definition.openapi(version, dialect, left.is_some()))
}

fn described<'a>(
    kinds: impl Iterator<Item = (&'a Arc<Kind>, &'a Option<Models>)>,
) -> impl Iterator<Item = codec::openapi::OpenApiResource<'a>> {
    use codec::openapi::{Definition, OpenApiResource};
    kinds.filter_map(|(kind, models)| {
        let schema = match models {
            Some(models) => Definition::Custom(models),
            None => Definition::BuiltIn(kind.resource.ty?),
        };
        Some(OpenApiResource { resource: &kind.resource, schema })
    })
}

fn with_etag(mut response: Response<Body>, body: &[u8]) -> Response<Body> {
    let tag = format!("\"{:016X}\"", hash(&String::from_utf8_lossy(body), 0));
    if let Ok(value) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, value);
    }
    response
}

/// A client that has the document already is told so, and not sent it again.
fn unless_known(headers: &HeaderMap, mut response: Response<Body>) -> Response<Body> {
    let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default();
    let known = headers.get(IF_NONE_MATCH).and_then(|known| known.to_str().ok()).unwrap_or_default();
    let is_known = |known: &str| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag;
    if !tag.is_empty() && known.split(',').map(str::trim).any(is_known) {
        *response.status_mut() = http::StatusCode::NOT_MODIFIED;
        response.headers_mut().remove(CONTENT_TYPE);
        return response.map(|_| Body::empty());
    }
    response
}

/// The small documents of the index that list no resources.
fn empty_or_missing(path: &str) -> Response<Body> {
    let known = matches!(path, "api" | "apis" | "version" | ".well-known/openid-configuration" | "openid/v1/jwks")
        || path
            .strip_prefix("apis/")
            .is_some_and(|group| schema::catalogue::builtin().iter().any(|r| *r.group == *group));
    if !known {
        return missing();
    }
    let document = json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "unversioned"}, "paths": {}});
    respond::build(200, "application/json", serde_json::to_vec(&document).unwrap_or_default().into())
}

fn missing() -> Response<Body> {
    let mut response = respond::build(404, "text/plain", Body::empty());
    response.headers_mut().remove(CONTENT_TYPE);
    response
}

fn hash(text: &str, seed: u64) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}
