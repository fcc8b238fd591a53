//! `/clusters/<workspace>/edges/<edge>/…`: what a workspace has on an edge, live through the tunnel, for the users of
//! that workspace.
//!
//! An edge may be shared, so three decisions have to agree. The workspace's own roles allow the request, as if it were
//! made in the workspace. The namespace belongs to the workspace on that edge, by what placements claim. And the edge's
//! own roles allow it for the same user: a RoleBinding that the workspace places in its namespace gives that right, and
//! goes when the namespace goes to somebody else. Only namespaces can be looked into, only reading and `log`, `exec`,
//! `attach` and `port-forward` of Pods are passed on, and whatever is open ends when the namespace changes hands.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use flow::body::Body;
use futures::future::BoxFuture;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, WARNING},
};
use identity::Attributes;
use kinds::EdgeId;
use schema::status::{Result, Status};
use serde_json::{Value, json};
use server::{Mount, Mounted, Server, onward};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::{
    Fleet,
    placing::{Moved, id_of},
    tunnel::{self, Also},
};

const PREFIX: &str = "/edges";
/// Requests that one workspace has under way to one edge, and all workspaces together. The edge takes more in all, so
/// that its owner is not kept out.
const AT_ONCE: usize = 16;
const OF_ALL: usize = 48;
/// Edges that are listed.
const LISTED: usize = 500;

pub struct TenantView(pub Arc<Fleet>);

impl Mount for TenantView {
    fn takes(&self, _cluster: &str, path: &str) -> bool {
        path == PREFIX || path.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with('/'))
    }

    fn serve(&self, server: Arc<Server>, asked: Mounted) -> BoxFuture<'static, Result<Response<Body>>> {
        let fleet = self.0.clone();
        match asked.path == PREFIX {
            true => Box::pin(async move { list(&fleet, &server, asked) }),
            false => Box::pin(pass(fleet, server, asked)),
        }
    }
}

/// What a request wants to look at.
#[derive(Debug, PartialEq, Eq)]
enum Scope<'a> {
    /// Which kinds there are.
    Discovery,
    Namespace(&'a str),
}

/// The edge that a path names, and what is behind that.
fn split(path: &str) -> Option<(EdgeId, &str)> {
    let rest = path.strip_prefix(PREFIX)?.strip_prefix('/')?;
    let at = rest.find('/').unwrap_or(rest.len());
    let (edge, behind) = rest.split_at(at);
    Some((edge.parse().ok()?, if behind.is_empty() { "/" } else { behind }))
}

/// What a request is about, if it is one that is passed on at all. Pure.
fn scope(asked: &Attributes) -> Result<Scope<'_>> {
    let refuse = |why: &str| Status::forbidden(&asked.group, &asked.resource, &asked.name, why);
    if asked.resource.is_empty() {
        let is_below =
            |root: &&str| asked.path.strip_prefix(*root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let known = ["/api", "/apis", "/openapi", "/version"].iter().any(is_below);
        return match known && matches!(asked.verb.as_str(), "get" | "head") {
            true => Ok(Scope::Discovery),
            false => Err(Status::no_such_path()),
        };
    }
    let is_read = match asked.subresource.as_str() {
        "" | "status" | "scale" => matches!(asked.verb.as_str(), "get" | "list" | "watch"),
        _ => false,
    };
    let is_pod = asked.group.is_empty() && asked.resource == "pods";
    let is_stream = is_pod
        && match asked.subresource.as_str() {
            "log" => asked.verb == "get",
            "exec" | "attach" | "portforward" => asked.verb == "create",
            _ => false,
        };
    if !is_read && !is_stream {
        return Err(refuse(
            "what an edge has is only looked at here: change it in the workspace, and it is placed anew",
        ));
    }
    if asked.namespace.is_empty() {
        return Err(refuse(
            "an edge may be shared, so only namespaces of this workspace can be looked into: name one with -n",
        ));
    }
    Ok(Scope::Namespace(&asked.namespace))
}

async fn pass(fleet: Arc<Fleet>, server: Arc<Server>, asked: Mounted) -> Result<Response<Body>> {
    let (edge, behind) = split(&asked.path).ok_or_else(Status::no_such_path)?;
    let (workspace, behind) = (asked.cluster.clone(), behind.to_owned());
    let asked = Mounted { path: behind, ..asked };
    let mut attributes = asked.attributes()?;
    if matches!(attributes.subresource.as_str(), "exec" | "attach" | "portforward") {
        // They are opened with GET, but the right to read does not include them.
        attributes.verb = "create".to_owned();
    }
    if !attributes.resource.is_empty() && onward::is_upgrade(asked.request.headers()) {
        attributes.verb = "create".to_owned();
    }
    let user = server.allow(asked.user, &asked.request, &workspace, &attributes)?;
    let scope = scope(&attributes)?;
    // From here on changes are heard, so none is missed between the question and the answer.
    let moved = fleet.placing.subscribe();
    let namespace = match scope {
        Scope::Discovery => None,
        Scope::Namespace(namespace) => Some(namespace.to_owned()),
    };
    if !is_theirs(&fleet, &edge, &workspace, namespace.as_deref()) {
        return Err(not_theirs(&edge, &workspace, namespace.as_deref()));
    }
    let Some(seat) = fleet.tenant_seats.take(&edge, &workspace) else {
        let why = format!("too many requests of {workspace}, or of all workspaces, to the edge {edge} are under way");
        return Err(Status::too_many_requests(why, 1));
    };
    let until = until_taken(fleet.clone(), moved, edge.clone(), workspace, namespace.clone());
    let also = Also { until: Box::pin(until), keep: Box::new(seat) };
    let mut response = tunnel::pass_with(fleet, server, &edge, user, asked.request, &asked.path, also).await?;
    if let Some(namespace) = namespace.filter(|_| response.status() == StatusCode::FORBIDDEN) {
        let hint = format!(
            "299 - \"the edge decides by its own roles: place a RoleBinding for this user in the namespace {namespace}, for \
             example to the ClusterRole view or edit\""
        );
        response.headers_mut().extend(HeaderValue::from_str(&hint).ok().map(|hint| (WARNING, hint)));
    }
    Ok(response)
}

/// Whether a namespace of an edge is a workspace's, or without one, whether it places anything there.
fn is_theirs(fleet: &Fleet, edge: &EdgeId, workspace: &str, namespace: Option<&str>) -> bool {
    fleet.edges.get(edge).is_some()
        && fleet.placing.read(|engine| match namespace {
            Some(namespace) => engine.owner_of(&id_of(edge), namespace).is_some_and(|owner| *owner == *workspace),
            None => engine.reaches(&id_of(edge), workspace),
        })
}

/// The same answer whether there is no such edge, or others have the namespace there.
fn not_theirs(edge: &EdgeId, workspace: &str, namespace: Option<&str>) -> Status {
    match namespace {
        Some(namespace) => {
            let why = format!(
                "the workspace {workspace} has no namespace {namespace} on an edge {edge}: an EdgePlacement of this \
                 workspace has to place it there, and not be in Conflict"
            );
            Status::new(404, "NotFound", why).about("", "namespaces", namespace)
        }
        None => {
            let why = format!("no EdgePlacement of the workspace {workspace} places anything on an edge {edge}");
            Status::new(404, "NotFound", why).about("workload.kcp.io", "synctargets", &edge.name)
        }
    }
}

/// Ends when the namespace is not the workspace's any more.
async fn until_taken(
    fleet: Arc<Fleet>,
    mut moved: Receiver<Arc<Moved>>,
    edge: EdgeId,
    workspace: String,
    namespace: Option<String>,
) {
    loop {
        match moved.recv().await {
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
        if !is_theirs(&fleet, &edge, &workspace, namespace.as_deref()) {
            return;
        }
    }
}

/// `GET /clusters/<workspace>/edges`: on which edges a workspace has what. Whoever may list its EdgePlacements may read
/// it.
fn list(fleet: &Fleet, server: &Server, asked: Mounted) -> Result<Response<Body>> {
    let attributes = Attributes {
        verb: "list".to_owned(),
        group: "edge.kcp.io".to_owned(),
        version: "v1alpha1".to_owned(),
        resource: "edgeplacements".to_owned(),
        ..Attributes::default()
    };
    server.allow(asked.user, &asked.request, &asked.cluster, &attributes)?;
    let found = fleet.placing.read(|engine| engine.reached_by(&asked.cluster, LISTED));
    let edges: Vec<Value> = found
        .into_iter()
        .map(|(id, namespaces)| {
            let edge = EdgeId::new(&id.workspace, &id.name);
            json!({"edge": edge.to_string(), "connected": fleet.is_connected(&edge), "namespaces": namespaces,
                "path": format!("/clusters/{}{PREFIX}/{edge}", asked.cluster)})
        })
        .collect();
    let mut response = Response::new(Body::from(json!({"edges": edges}).to_string().into_bytes()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// How many requests each workspace has under way to each edge.
#[derive(Default)]
pub struct Seats(Arc<Mutex<HashMap<(EdgeId, String), usize>>>);

struct Seat {
    seats: Arc<Mutex<HashMap<(EdgeId, String), usize>>>,
    of: (EdgeId, String),
}

impl Seats {
    fn take(&self, edge: &EdgeId, workspace: &str) -> Option<Seat> {
        let of = (edge.clone(), workspace.to_owned());
        let mut seats = lock(&self.0);
        let all: usize = seats.iter().filter(|((of, _), _)| of == edge).map(|(_, taken)| *taken).sum();
        if all >= OF_ALL {
            return None;
        }
        let taken = seats.entry(of.clone()).or_default();
        if *taken >= AT_ONCE {
            return None;
        }
        *taken += 1;
        drop(seats);
        Some(Seat { seats: self.0.clone(), of })
    }
}

fn lock(seats: &Mutex<HashMap<(EdgeId, String), usize>>) -> MutexGuard<'_, HashMap<(EdgeId, String), usize>> {
    seats.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = lock(&self.seats);
        if let Some(taken) = seats.get_mut(&self.of) {
            *taken -= 1;
            if *taken == 0 {
                seats.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(verb: &str, resource: &str, namespace: &str) -> Attributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (resource, subresource) = (resource.to_owned(), subresource.to_owned());
        let (verb, namespace) = (verb.to_owned(), namespace.to_owned());
        Attributes { verb, resource, subresource, namespace, ..Attributes::default() }
    }

    #[test]
    fn only_namespaces_are_looked_into_and_nothing_is_changed() {
        for (verb, resource, namespace, passes) in [
            ("get", "pods", "ovens", true),
            ("list", "secrets", "ovens", true),
            ("watch", "events", "ovens", true),
            ("get", "namespaces", "ovens", true),
            ("get", "pods/log", "ovens", true),
            ("create", "pods/exec", "ovens", true),
            ("create", "pods/attach", "ovens", true),
            ("create", "pods/portforward", "ovens", true),
            ("get", "pods/exec", "ovens", false),
            ("get", "pods/proxy", "ovens", false),
            ("create", "services/proxy", "ovens", false),
            ("create", "serviceaccounts/token", "ovens", false),
            ("create", "pods", "ovens", false),
            ("delete", "pods", "ovens", false),
            ("deletecollection", "pods", "ovens", false),
            ("patch", "pods/status", "ovens", false),
            ("list", "pods", "", false),
            ("list", "namespaces", "", false),
            ("get", "nodes", "", false),
            ("get", "nodes/proxy", "", false),
            ("create", "subjectaccessreviews", "", false),
        ] {
            let asked = about(verb, resource, namespace);
            let found = scope(&asked).ok();
            assert_eq!(found, passes.then_some(Scope::Namespace(namespace)), "{verb} {resource} {namespace}");
        }
    }

    #[test]
    fn discovery_is_passed_and_other_paths_are_not() {
        for (verb, path, passes) in [
            ("get", "/api", true),
            ("get", "/apis/apps/v1", true),
            ("get", "/openapi/v3/api/v1", true),
            ("get", "/version", true),
            ("post", "/api", false),
            ("get", "/apiserver", false),
            ("get", "/metrics", false),
            ("get", "/logs", false),
            ("get", "/", false),
            ("get", "/edges/root:other", false),
        ] {
            assert_eq!(scope(&Attributes::path(verb, path)).is_ok(), passes, "{verb} {path}");
        }
    }

    #[test]
    fn paths() {
        let florin = || EdgeId::new("root:depot", "florin");
        assert_eq!(split("/edges/root:depot:florin/api/v1"), Some((florin(), "/api/v1")));
        assert_eq!(split("/edges/root:depot:florin"), Some((florin(), "/")));
        for path in ["/edges", "/edges/", "/edges//api", "/edgesx/root:depot:florin/api", "/fleet"] {
            assert_eq!(split(path), None, "{path}");
        }
    }

    #[test]
    fn a_workspace_has_so_many_requests_at_once() {
        let (seats, florin) = (Seats::default(), EdgeId::new("root", "florin"));
        let mut taken: Vec<Seat> = (0..AT_ONCE).filter_map(|_| seats.take(&florin, "root:a")).collect();
        assert!(taken.len() == AT_ONCE && seats.take(&florin, "root:a").is_none());
        assert!(seats.take(&florin, "root:b").is_some(), "others have their own");
        taken.pop();
        assert!(seats.take(&florin, "root:a").is_some());
        let all =
            ["root:b", "root:c", "root:d"].map(|other| (0..AT_ONCE).filter_map(|_| seats.take(&florin, other)).count());
        assert_eq!(all, [AT_ONCE; 3], "each gives its own back");
        taken.extend((0..AT_ONCE).filter_map(|_| seats.take(&florin, "root:b")));
        taken.extend((0..AT_ONCE).filter_map(|_| seats.take(&florin, "root:c")));
        taken.extend((0..AT_ONCE).filter_map(|_| seats.take(&florin, "root:d")));
        assert_eq!(taken.len(), OF_ALL, "some are left for the edge's owner");
        taken.clear();
        assert!(lock(&seats.0).is_empty(), "nothing is kept for those that ask nothing");
    }
}
