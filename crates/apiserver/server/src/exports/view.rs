//! The virtual workspace of an export: what its provider sees of the workspaces that bind it. Its own kinds, and what binders
//! let it claim; nothing else, nowhere else.

use std::{borrow::Cow, sync::Arc};

use ::schema::status::{Result, Status};
use cache::object::Object;
use flow::body::Body;
use http::{Response, request::Parts};
use identity::{Attributes, User};
use request::{Door, Route, Target, Verb};
use serde_json::Value;

use super::{Claim, EXPORTS, Exports, GROUP, SCHEMAS, VERSION, index, policy, schema};
use crate::{
    Server,
    authorize::{of_path, of_target},
    call::Call,
    kinds::{Kind, Kinds, system},
    nonresource, openapi,
    workspaces::seen_from,
    workspaces::wildcard::EVERYWHERE,
};

/// How the provider of an export sees one kind.
#[derive(Clone)]
pub struct View {
    exports: Arc<Exports>,
    /// The key of the export.
    pub export: Box<str>,
    kind: Arc<Kind>,
    /// `None`: it is one of the export's own.
    claim: Option<Arc<Claim>>,
}

impl View {
    /// Claims tell objects by namespace and name only, so nothing else has to be known of them.
    pub fn reaches(&self, cluster: &str, namespace: &str, name: &str) -> bool {
        let index = self.exports.read();
        let Some(binding) = index.bound(cluster, &self.export) else { return false };
        // An export that has lost its identity shows nothing, also in watches that go on.
        let known = index.export(&self.export).is_some_and(|export| !export.identity.is_empty());
        if !known {
            return false;
        }
        let (group, resource, identity) = (self.kind.group(), self.kind.plural(), &*self.kind.identity);
        // What comes from an export is there only if it, or that other export, is bound with it.
        let there = identity.is_empty() || index.has(cluster, group, resource, identity);
        let Some(claim) = self.claim.as_ref().filter(|_| there) else { return there };
        let given = |given: &Claim| given.is_as(claim) && given.covers(namespace, name);
        claim.covers(namespace, name) && binding.given().iter().any(given)
    }

    /// The workspace of the export.
    pub fn provider(&self) -> &str {
        self.export.split("//").next().unwrap_or_default()
    }

    pub fn shows(&self, object: &Object) -> bool {
        self.reaches(object.cluster(), object.namespace(), object.name())
    }

    pub fn is_claimed(&self) -> bool {
        self.claim.is_some()
    }

    pub fn exports(&self) -> &Arc<Exports> {
        &self.exports
    }

    /// May such an object be made?
    pub fn admit(&self, call: &Call, value: &Value) -> Result<()> {
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        if self.reaches(&call.cluster, &call.target.namespace, name) {
            return Ok(());
        }
        let why = "the workspace has not given the APIExport an object of that name";
        Err(Status::forbidden(call.kind.group(), call.kind.plural(), name, why))
    }
}

/// Lets a user through the door to a resource. `None`: there is nothing behind it.
pub fn enter(
    server: &Arc<Server>,
    door: &Door,
    sender: User,
    parts: &Parts,
    verb: Verb,
    cluster: &str,
    target: &Target,
) -> Result<Option<(Arc<Kind>, View, User)>> {
    let content = content(door, verb.name());
    let from = (&parts.headers, &parts.extensions);
    let user = server.allow_from(sender, from, &door.provider, &content)?;
    let key = index::key(&door.provider, &door.export);
    let found = kinds(server, &key).into_iter().find(|(kind, _)| {
        kind.group() == target.group && *kind.resource.version == *target.version && kind.plural() == target.resource
    });
    let Some((kind, claim)) = found else { return Ok(None) };
    if !target.subresource.is_empty() && kind.resource.subresource(&target.subresource).is_none() {
        return Ok(None);
    }
    if let Some(claim) = &claim {
        let attributes = of_target(verb, target);
        let provider = {
            let index = server.exports.read();
            let strict = index.of_identity(&claim.identity).find(|(_, export)| export.has_policy);
            strict.and_then(|(key, _)| key.split("//").next().map(str::to_owned))
        };
        if let Some(provider) = provider {
            policy::check_in(server, &user, &provider, &attributes)?;
        }
    }
    let claim = claim.map(Arc::new);
    let view = View { exports: server.exports.clone(), export: key.into(), kind: kind.clone(), claim };
    if cluster != EVERYWHERE {
        let is_bound = server.exports.read().bound(cluster, &view.export).is_some();
        let named = !target.name.is_empty();
        if !is_bound || named && !view.reaches(cluster, &target.namespace, &target.name) {
            return match named {
                true => Err(Status::not_found(&target.group, &target.resource, &target.name)),
                false => Ok(None),
            };
        }
    }
    // Impersonation in the provider's workspace does not count in the workspace that is looked into.
    let user = match seen_from(&user, cluster) {
        Cow::Owned(seen) => seen,
        Cow::Borrowed(_) => user,
    };
    Ok(Some((kind, view, user)))
}

/// Lets a user see what there is behind the door.
pub fn may_look(server: &Server, door: &Door, sender: User, parts: &Parts) -> Result<User> {
    let attributes = of_path(&parts.method, "/apis");
    let user = server.act_as(sender, (&parts.headers, &parts.extensions), &door.provider, &attributes)?;
    // Whoever may do something there may know what there is.
    let allowed = |verb: &&str| server.authorize(&user, &door.provider, &content(door, verb)).is_ok();
    let right = content(door, ["list", "watch", "get"].into_iter().find(allowed).unwrap_or("get"));
    server.authorize(&user, &door.provider, &right)?;
    server.note_allowed(&parts.extensions, &user, &door.provider, &right);
    Ok(user)
}

/// Discovery and OpenAPI, as far as the provider can see.
pub fn look_around(
    server: &Arc<Server>,
    door: &Door,
    cluster: &str,
    route: &Route,
    parts: &Parts,
) -> Result<Response<Body>> {
    let reads = matches!(parts.method.as_str(), "GET" | "HEAD");
    let key = index::key(&door.provider, &door.export);
    let there = cluster == EVERYWHERE || server.exports.read().bound(cluster, &key).is_some();
    if !reads || !there || server.exports.read().export(&key).is_none() {
        return Ok(nonresource::not_found());
    }
    let kinds: Vec<Arc<Kind>> = kinds(server, &key).into_iter().map(|(kind, _)| kind).collect();
    match route {
        Route::Discovery { core, group, version } => {
            nonresource::discovery_of(server, (&kinds, &[]), *core, group, version, &parts.headers)
        }
        Route::Other(path) => match path.strip_prefix("/openapi/") {
            Some(document) => Ok(openapi::of_kinds(&kinds, document)),
            None if path == "/version" => {
                let body = serde_json::to_vec(&nonresource::version()).unwrap_or_default();
                Ok(crate::respond::build(200, "application/json", body.into()))
            }
            None => Ok(nonresource::not_found()),
        },
        Route::Resource(_) => Ok(nonresource::not_found()),
    }
}

/// The right that a provider needs, in the workspace of the export.
fn content(door: &Door, verb: &str) -> Attributes {
    Attributes {
        verb: verb.to_owned(),
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        resource: "apiexports".to_owned(),
        subresource: "content".to_owned(),
        name: door.export.clone(),
        ..Attributes::default()
    }
}

/// All kinds that an export shows, with the claims by which it shows those that are not its own.
fn kinds(server: &Server, key: &str) -> Vec<(Arc<Kind>, Option<Claim>)> {
    let Some(export) = server.exports.read().export(key).cloned() else { return Vec::new() };
    if server.cache.get(EXPORTS, key).is_none() || export.identity.is_empty() {
        return Vec::new();
    }
    let provider = key.split("//").next().unwrap_or_default();
    let own = export.schemas.iter().flat_map(|name| of_schema(server, provider, name, &export.identity));
    let mut kinds: Vec<_> = own.map(|kind| (kind, None)).collect();
    for claim in &export.claims {
        // What is exported is not claimed: the export's own view of it goes further.
        let is_own = |kind: &Kind| kind.group() == &*claim.group && kind.plural() == &*claim.resource;
        if kinds.iter().any(|(kind, _)| is_own(kind)) {
            continue;
        }
        kinds.extend(claimed(server, claim).into_iter().map(|kind| (kind, Some(claim.clone()))));
    }
    kinds
}

fn of_schema(server: &Server, provider: &str, name: &str, identity: &str) -> Vec<Arc<Kind>> {
    let Some(object) = server.cache.get(SCHEMAS, &index::key(provider, name)) else { return Vec::new() };
    let Some((resource, group)) = schema::resource_of(name) else { return Vec::new() };
    let value = object.value();
    let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
    server.kinds.schemas.across(provider, group, resource, uid, identity)
}

/// Of what is claimed, the objects and their status; subresources that do something (tokens, evictions) are not part of it.
fn claimed(server: &Server, claim: &Claim) -> Vec<Arc<Kind>> {
    let is = |kind: &&Arc<Kind>| kind.group() == &*claim.group && kind.plural() == &*claim.resource;
    let kinds: Vec<Arc<Kind>> = if claim.identity.is_empty() {
        let ours = system::of_group(&claim.group);
        Kinds::builtin().iter().chain(ours).filter(is).cloned().collect()
    } else {
        let index = server.exports.read();
        let name = format!(".{}.{}", claim.resource, claim.group);
        let mut found = None;
        for (key, export) in index.of_identity(&claim.identity) {
            let is = |schema: &str| schema.find('.').is_some_and(|at| schema[at..] == name);
            if let Some(schema) = export.schemas.iter().find(|schema| is(schema)) {
                found = Some((key.split("//").next().unwrap_or_default().to_owned(), schema.clone()));
                break;
            }
        }
        drop(index);
        found.map(|(provider, name)| of_schema(server, &provider, &name, &claim.identity)).unwrap_or_default()
    };
    let listed = kinds.into_iter().filter(|kind| kind.resource.can("list") && kind.resource.can("watch"));
    let plain = |kind: Arc<Kind>| {
        let mut kind = Kind::clone(&kind);
        kind.resource.subresources.retain(|sub| &*sub.name == "status");
        Arc::new(kind)
    };
    listed.map(plain).collect()
}
