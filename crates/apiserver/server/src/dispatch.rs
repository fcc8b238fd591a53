//! From an HTTP request to the verb that answers it.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use flow::body::{Arriving, Body};
use flow::{Level, Seat};
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderMap, Method, Request, Response, header::ACCEPT, request::Parts};
use http_body::Body as _;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use identity::{Attributes, Authorizer, Peer, User};
use request::{Door, Path, Query, Route, Target, Verb};
use schema::status::{Result, Status};

use crate::{
    Server, aggregation, apart, authorize,
    call::Call,
    deadline, exports, flows,
    flows::{Class, Slot},
    kinds::{Kind, system},
    mount::{AnyBody, Mount, Mounted},
    negotiate,
    negotiate::{Accept, Format, Offer},
    nonresource,
    nonresource::Here,
    onward,
    reply::Reply,
    respond, subresources, traces, verbs,
    webhooks::convert,
    workspaces::seen_from,
    workspaces::wildcard::EVERYWHERE,
};

/// More than this is not read for the sake of the connection alone, nor for longer.
const PASSED_OVER: u64 = 64 << 10;
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(500);

/// What the documents of a workspace with kinds of its own count as while they are made.
const DOCUMENT: usize = 2 << 20;

/// In the extensions of a request that is made within the process: committed with what it writes.
#[derive(Clone, Default)]
pub struct Also(pub Vec<store::Op>);

/// Who sends a request.
enum Sender<'a> {
    /// Whoever the connection and the headers say.
    Peer(&'a Peer),
    /// Somebody who was found out before.
    Known(User),
}

impl Server {
    /// Answers one request. Every failure becomes a Status. What an upgraded connection needs is kept for as long as that lasts.
    ///
    /// On the heap, as it is large and a stream that goes on for days would keep its place; and boxed here, as whoever waits for a
    /// future that is not would have all that answers requests compiled once more for themselves.
    pub fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Arc<Peer>,
        keep: Arc<dyn Send + Sync>,
    ) -> BoxFuture<'static, Response<Body>> {
        Box::pin(async move {
            let response = self.handle_from(request.map(Arriving::Stream), Sender::Peer(&peer)).await;
            if let Some(upgraded) = response.extensions().get::<flow::extensions::Upgraded>() {
                upgraded.keep(Box::new(keep));
            }
            response
        })
    }

    /// A request made within the process in somebody's name. All that holds for requests from outside holds for it: roles,
    /// admission, limits, the audit log.
    pub fn request_as(
        self: Arc<Self>,
        user: User,
        mut request: Request<Full<Bytes>>,
    ) -> BoxFuture<'static, Response<Body>> {
        if let Some(audit) = &self.audit {
            audit.begin(&mut request, std::net::Ipv4Addr::UNSPECIFIED.into());
        }
        Box::pin(self.handle_from(request.map(Arriving::Whole), Sender::Known(user)))
    }

    async fn handle_from(self: Arc<Self>, mut request: Request<Arriving>, sender: Sender<'_>) -> Response<Body> {
        let started = std::time::Instant::now();
        let format = error_format(&request);
        let method = request.method().clone();
        let verb = verb_label(&request);
        let trail = audit::of(request.extensions()).cloned();
        let slot = Slot::default();
        request.extensions_mut().insert(slot.clone());
        let answer = self.clone().answer(request, sender);
        let answer = match &trail {
            None => answer.await,
            Some(trail) => match std::panic::AssertUnwindSafe(answer).catch_unwind().await {
                Ok(answer) => answer,
                Err(panic) => {
                    trail.panicked().await;
                    std::panic::resume_unwind(panic)
                }
            },
        };
        let mut response = match answer {
            Ok(response) => response,
            Err(status) => respond::failure(&status, format),
        };
        if let Some(class) = slot.class() {
            class.tell(response.headers_mut());
        }
        if let Some(trail) = trail {
            let streams = verb == "watch" || flow::extensions::goes_on(response.extensions());
            response = trail.finish(response, streams).await;
        }
        self.metrics.observe(verb, response.status().as_u16(), started.elapsed());
        if method == Method::HEAD {
            return response.map(|_| Body::empty());
        }
        response
    }

    async fn answer(self: Arc<Self>, mut request: Request<Arriving>, sender: Sender<'_>) -> Result<Response<Body>> {
        if let Some(meant) = request::meant(request.uri()) {
            *request.uri_mut() = meant;
        }
        let path = Path::parse(request.uri().path())?;
        let query = Query::parse(request.uri().query());
        deadline::check(request.method(), &path.route, &query)?;
        // Through the door of an export come those whom its workspace knows.
        let home = path.view.as_ref().map_or(&path.cluster, |door| &door.provider);
        let behind = request::behind(request.uri().path());
        let remote = match path.view {
            None => self.aggregation.find(&self, &path.cluster, &path.route),
            Some(_) => None,
        };
        let takes =
            |mount: &&Arc<dyn Mount>| path.view.is_none() && remote.is_none() && mount.takes(&path.cluster, behind);
        let mount = self.mounts.iter().find(takes).cloned();
        let sender = match sender {
            Sender::Peer(peer) => match self.identity.authenticate(peer, request.headers(), home, &*self.cache) {
                Err(_) if mount.as_ref().is_some_and(|mount| mount.is_open(behind)) => User::anonymous(),
                known => known.inspect(|user| peer.sent(user))?,
            },
            Sender::Known(user) => user,
        };
        if self.is_shut_out(&sender) && !mount.as_ref().is_some_and(|mount| mount.is_for_edges()) {
            return Err(Status::new(401, "Unauthorized", "the certificate of this edge is not good any more"));
        }
        let asked = (request.method(), request.headers());
        let mount = mount.filter(|mount| !mount.hides(&self, &sender, &path.cluster, asked));
        if let Some(trail) = audit::of(request.extensions()) {
            let attributes = match &path.route {
                Route::Resource(target) => match Verb::of(request.method(), target, &query) {
                    Some(verb) => authorize::of_request(verb, target, &query),
                    None => authorize::of_path(request.method(), request.uri().path()),
                },
                _ => authorize::of_path(request.method(), request.uri().path()),
            };
            trail.asked(&sender, &path.cluster, &attributes).await;
        }
        if let Some(mount) = mount {
            let path_behind = behind.to_owned();
            let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
            let asked = Mounted { user: sender, cluster: path.cluster, path: path_behind, request };
            return mount.serve(self, asked).await;
        }
        if let Some(remote) = remote {
            return self.pass_to_remote(remote, path, query, sender, request).await;
        }
        if let Some(door) = path.view {
            return self.through(door, path.cluster, path.route, query, sender, request).await;
        }
        match path.route {
            Route::Other(other) => {
                let _seat = self.admit_path(sender, &path.cluster, &other, &request).await?;
                if other == "/version" && request.method() != Method::GET {
                    return Err(Status::method_not_allowed().with_causes(Vec::new()));
                }
                let (cluster, bare) = (path.cluster, path.bare);
                // Documents about definitions can be as large as these are.
                let is_large =
                    self.kinds.workspace(&cluster).is_some() || !self.aggregation.remotes(&cluster).is_empty();
                if other.starts_with("/openapi/") && is_large {
                    let (server, workspace) = (self.clone(), cluster.clone());
                    let headers = request.headers().clone();
                    let work: BoxFuture<'static, Result<Response<Body>>> = Box::pin(async move {
                        let here = Here { cluster: &cluster, bare };
                        nonresource::answer(&server, here, &other, &query, &headers).await
                    });
                    return self.apart(&workspace, "", DOCUMENT, work).await?;
                }
                let here = Here { cluster: &cluster, bare };
                nonresource::answer(&self, here, &other, &query, request.headers()).await
            }
            Route::Discovery { core, group, version } => {
                let what = if core { "/api" } else { "/apis" };
                let _seat = self.admit_path(sender, &path.cluster, what, &request).await?;
                // Upstream's router knows the method of a list of resources, and minds none above it.
                let builtin = core || schema::catalogue::groups().iter().any(|known| *known.name == *group);
                if builtin && !version.is_empty() && request.method() != Method::GET {
                    return Err(Status::method_not_allowed().with_causes(Vec::new()));
                }
                let here = Here { cluster: &path.cluster, bare: path.bare };
                nonresource::discovery(&self, here, core, &group, &version, request.headers())
            }
            Route::Resource(target) => self.resource(path.cluster, target, query, sender, request).await,
        }
    }

    /// May the sender of a request, or whom they act as, do that in this workspace? If so, as whom. The audit log is
    /// told.
    pub fn allow<B>(&self, sender: User, request: &Request<B>, cluster: &str, attributes: &Attributes) -> Result<User> {
        self.allow_from(sender, (request.headers(), request.extensions()), cluster, attributes)
    }

    /// The same by what came with the request.
    pub(crate) fn allow_from(
        &self,
        sender: User,
        from: (&HeaderMap, &http::Extensions),
        cluster: &str,
        attributes: &Attributes,
    ) -> Result<User> {
        let user = self.act_as(sender, from, cluster, attributes)?;
        if let Some(slot) = from.1.get::<Slot>() {
            slot.fill(&self.flows, cluster, &user, attributes);
        }
        self.authorize(&user, cluster, attributes)?;
        self.note_allowed(from.1, &user, cluster, attributes);
        Ok(user)
    }

    /// May the user behind this request see this path? If so, a seat to be served on.
    async fn admit_path(
        &self,
        sender: User,
        cluster: &str,
        path: &str,
        request: &Request<Arriving>,
    ) -> Result<Option<Seat>> {
        let attributes = authorize::of_path(request.method(), path);
        let user = self.allow(sender, request, cluster, &attributes)?;
        let slot = request.extensions().get::<Slot>();
        self.seat_for_path(&user, cluster, path, slot.and_then(Slot::class)).await
    }

    async fn seat_for_path(
        &self,
        user: &User,
        cluster: &str,
        path: &str,
        class: Option<&Class>,
    ) -> Result<Option<Seat>> {
        match flow::level_of_path(user, path) {
            Some(level) => self.seat(level, cluster, user, class, 1).await.map(Some),
            None => Ok(None),
        }
    }

    /// A seat for a request, in the flow that it is classified as.
    pub(crate) async fn seat(
        &self,
        level: Level,
        cluster: &str,
        user: &User,
        class: Option<&Class>,
        width: usize,
    ) -> Result<Seat> {
        match class {
            Some(class) => self.inflight.enter(class.pool(level), cluster, class.flow(), width).await,
            None => self.inflight.enter(level, cluster, &user.name, width).await,
        }
    }

    async fn resource(
        self: Arc<Self>,
        cluster: String,
        target: Target,
        query: Query,
        sender: User,
        request: Request<Arriving>,
    ) -> Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        if parts.method == Method::HEAD && target.subresource != "proxy" {
            return Err(Status::method_not_allowed());
        }
        let verb = Verb::of(&parts.method, &target, &query).ok_or_else(Status::method_not_allowed)?;
        let attributes = authorize::of_request(verb, &target, &query);
        let user = match self.allow_from(sender, (&parts.headers, &parts.extensions), &cluster, &attributes) {
            Ok(user) => user,
            Err(refusal) => {
                pass_over(body).await;
                return Err(refusal);
            }
        };
        let kind = self.kinds.find(&cluster, &target.group, &target.version, &target.resource);
        let Some(kind) = kind else {
            if let Some(told) = system::unbound(&cluster, &target.group, &target.resource) {
                return Err(told);
            }
            // Groups that only definitions serve are not known to upstream's router at all.
            let builtin = schema::catalogue::groups().iter().any(|g| *g.name == *target.group);
            return if builtin { Err(Status::no_such_path()) } else { Ok(nonresource::not_found()) };
        };
        if kind.custom.is_some() && !kind.resource.namespaced && !target.namespace.is_empty() {
            return Ok(nonresource::not_found());
        }
        exports::check_policy(&self, &user, &cluster, &kind, &attributes)?;
        match &*kind.collection {
            aggregation::COLLECTION => aggregation::furnish(&self, &cluster).await?,
            flows::SCHEMAS | flows::LEVELS => flows::furnish(&self, &cluster).await?,
            _ => {}
        }
        let slot = parts.extensions.get::<Slot>().cloned().unwrap_or_default();
        let asked = Asked { cluster, kind, target, query, user, verb, view: None, slot };
        if onward::concerns(&asked.kind, &asked.target) {
            return self.pass_on(asked, parts, body.map_err(Into::into).boxed_unsync()).await;
        }
        self.perform(asked, parts, body).await
    }

    /// Lets somebody else answer. That may take for ever, so it takes no seat.
    async fn pass_on(self: Arc<Self>, asked: Asked, parts: Parts, body: AnyBody) -> Result<Response<Body>> {
        let header = parts.headers.get(ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let accept = negotiate::accept(header, Offer::Objects).unwrap_or(Accept::JSON);
        let verb = asked.verb;
        let call = asked.call(self, accept, parts.headers.clone(), Bytes::new());
        let answer = onward::answer(&call, verb, parts, body).await;
        Ok(answer.unwrap_or_else(|status| respond::call_failure(&call, &status)))
    }

    /// Tells the trail, if there is one, who may do it and why.
    pub(crate) fn note_allowed(
        &self,
        extensions: &http::Extensions,
        user: &User,
        cluster: &str,
        attributes: &Attributes,
    ) {
        if let Some(trail) = audit::of(extensions) {
            let here = self.authorization.in_workspace(cluster);
            trail.allowed(|| here.authorize(&seen_from(user, cluster), attributes).reason);
        }
    }

    /// The same through the door that the provider of an export has.
    async fn through(
        self: Arc<Self>,
        door: Door,
        cluster: String,
        route: Route,
        query: Query,
        sender: User,
        request: Request<Arriving>,
    ) -> Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let target = match route {
            Route::Resource(target) => target,
            other => {
                let user = exports::may_look(&self, &door, sender, &parts)?;
                let _seat = self.seat_for_path(&user, &door.provider, "/apis", None).await?;
                return exports::look_around(&self, &door, &cluster, &other, &parts);
            }
        };
        if parts.method == Method::HEAD {
            return Err(Status::method_not_allowed());
        }
        let verb = Verb::of(&parts.method, &target, &query).ok_or_else(Status::method_not_allowed)?;
        let asked = exports::enter(&self, &door, sender, &parts, verb, &cluster, &target)?;
        let Some((kind, view, user)) = asked else { return Ok(nonresource::not_found()) };
        let view = Some(view);
        self.perform(Asked { cluster, kind, target, query, user, verb, view, slot: Slot::default() }, parts, body).await
    }

    /// Does what was asked by somebody who may ask for it.
    async fn perform(self: Arc<Self>, asked: Asked, parts: Parts, body: Arriving) -> Result<Response<Body>> {
        let seat = self.take_seat(&asked).await?;
        let verb = asked.verb;
        let offer = match (asked.kind.custom.is_some(), verb) {
            (false, Verb::Watch) => Offer::Watch,
            (true, Verb::Watch) => Offer::CustomWatch,
            (false, Verb::List) if asked.kind.resource.can("watch") => Offer::List,
            (false, _) if !subresources::have_table(&asked.kind, &asked.target) => Offer::Tableless,
            (false, _) => Offer::Objects,
            (true, _) => Offer::CustomObjects,
        };
        let body = tokio::select! {
            biased;
            body = self.read_body(body, verb) => body?,
            // Others wait for the seat, and this client is slow: it keeps neither seat nor memory.
            () = seat.lost() => return Err(Status::too_many_requests("the body came too slowly for a busy server", 1)),
        };
        let header = parts.headers.get(ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        let header = header.as_str();
        let accept = negotiate::accept(header, offer);
        let also = parts.extensions.get::<Also>().map(|also| also.0.clone()).unwrap_or_default();
        let accepted = *accept.as_ref().unwrap_or(&Accept::JSON);
        let call = Call { also, ..asked.call(self, accepted, parts.headers, body) };
        for warning in deprecations(&call.kind) {
            call.warn(warning);
        }
        if let Err(status) = accept {
            return Ok(respond::failure(&status, error_format_of(header)));
        }
        check_size(&call)?;
        let trail = audit::of(&parts.extensions).cloned();
        let response = match apart::weight(&call, verb) {
            None => finish(&call, verb, trail.as_deref()).await,
            Some(bytes) => {
                let server = call.server.clone();
                let work = move |call: Call| -> BoxFuture<'static, Response<Body>> {
                    Box::pin(async move { finish(&call, verb, trail.as_deref()).await })
                };
                server.apart_for(call, bytes, work).await?
            }
        };
        // A list is made while it is read, and that is most of the work. A watch only begins here.
        Ok(if verb == Verb::List { response.map(|body| body.on(seat)) } else { response })
    }

    async fn take_seat(&self, asked: &Asked) -> Result<Seat> {
        let Asked { cluster, kind, target, query, user, verb, view, .. } = asked;
        // The provider of an export takes seats of its own workspace, not of those into which it looks.
        let payer = view.as_ref().map_or(cluster.as_str(), |view| view.provider());
        let level = flow::level(user, payer, *verb, target);
        let width = flow::width(*verb, query, || {
            let prefix = request::prefix(cluster, &target.namespace);
            self.cache.snapshot(&kind.collection).items.range(&prefix, "").take(flow::ENOUGH).count()
        });
        self.seat(level, payer, user, asked.slot.class(), width).await
    }

    /// Bodies are read whole, within limits of size and time.
    async fn read_body(&self, body: Arriving, verb: Verb) -> Result<Bytes> {
        if matches!(verb, Verb::Get | Verb::List | Verb::Watch) {
            return Ok(Bytes::new());
        }
        let limit = self.limits.body;
        let read = tokio::time::timeout(self.limits.arrival, Limited::new(body, limit).collect()).await;
        match read {
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                Err(Status::too_large(format!("Request entity too large: limit is {limit}")))
            }
            Ok(Err(error)) => Err(Status::bad_request(format!("the body could not be read: {error}"))),
            Err(_) => Err(Status::new(408, "Timeout", "the body did not arrive in time")),
        }
    }
}

/// A request to a resource that was found and allowed.
struct Asked {
    cluster: String,
    kind: Arc<Kind>,
    target: Target,
    query: Query,
    user: User,
    verb: Verb,
    view: Option<exports::View>,
    slot: Slot,
}

impl Asked {
    fn call(self, server: Arc<Server>, accept: Accept, headers: HeaderMap, body: Bytes) -> Call {
        let Self { cluster, kind, target, query, user, verb, view, .. } = self;
        Call {
            server,
            cluster,
            kind,
            target,
            query,
            accept,
            headers,
            user,
            body,
            warnings: Mutex::default(),
            notes: Default::default(),
            view,
            verb: Some(verb),
            also: Default::default(),
            relays_status: false,
        }
    }
}

/// A connection can be used again only behind what was sent on it: a small body that nobody wants is still read.
async fn pass_over(body: Arriving) {
    if body.size_hint().upper().is_some_and(|size| size <= PASSED_OVER) {
        let _ = tokio::time::timeout(PATIENCE, Limited::new(body, PASSED_OVER as usize).collect()).await;
    }
}

/// A definition is compiled, compared and published: upstream's store takes none that is larger either.
const LARGEST_DEFINITION: usize = 3 << 19;

fn check_size(call: &Call) -> Result<()> {
    let defines = call.kind.is_definition() || &*call.kind.collection == exports::SCHEMAS;
    if defines && call.body.len() > LARGEST_DEFINITION {
        return Err(Status::too_large(format!(
            "Request entity too large: limit is {LARGEST_DEFINITION} for a {}. Shorten its descriptions, or split it",
            call.kind.name()
        )));
    }
    Ok(())
}

/// Does what was asked for and puts the answer into the form that was asked for.
async fn finish(call: &Call, verb: Verb, trail: Option<&audit::Trail>) -> Response<Body> {
    let work = deadline::within(call, verb, run(call, verb));
    let answer = match call.server.slow.watch(call, work).await {
        Ok(reply) => convert::reply(call, reply).await,
        refused => refused,
    };
    if let Some(trail) = trail {
        traces::leave(trail, call, &answer);
    }
    match answer {
        Ok(reply) => respond::reply(call, reply).await,
        Err(status) => respond::call_failure(call, &status),
    }
}

async fn run(call: &Call, verb: Verb) -> Result<Reply> {
    if call.cluster == EVERYWHERE && (!matches!(verb, Verb::List | Verb::Watch) || !call.target.subresource.is_empty())
    {
        return Err(Status::bad_request("across workspaces one can only list and watch"));
    }
    if !call.target.subresource.is_empty() {
        return subresources::run(call, verb).await;
    }
    if !call.target.rest.is_empty() {
        return Err(Status::no_such_path());
    }
    if let Some(reply) = subresources::virtual_kind(call, verb).await {
        return reply;
    }
    check_scope(call, verb)?;
    if !call.kind.resource.can(verb.name()) {
        return Err(match verb {
            Verb::Watch => Status::method_not_supported(call.kind.group(), call.kind.plural(), "watch"),
            _ => Status::method_not_allowed(),
        });
    }
    match verb {
        Verb::Get => verbs::get::get(call).await,
        Verb::List => verbs::list::list(call).await,
        Verb::Watch => verbs::watch::watch(call).await,
        Verb::Create => verbs::create::create(call).await,
        Verb::Update => verbs::update::update(call).await,
        Verb::Patch => verbs::patch::patch(call).await,
        Verb::Delete => verbs::delete::delete(call).await,
        Verb::DeleteCollection => verbs::delete::delete_collection(call).await,
        Verb::Options => Err(Status::method_not_allowed()),
    }
}

/// Which combinations of namespace, name and verb have a meaning.
fn check_scope(call: &Call, verb: Verb) -> Result<()> {
    let target = &call.target;
    if !call.kind.resource.namespaced && !target.namespace.is_empty() {
        return Err(Status::no_such_path());
    }
    let across = call.kind.resource.namespaced && target.namespace.is_empty();
    if across && !target.name.is_empty() {
        return Err(Status::no_such_path());
    }
    let named = !target.name.is_empty();
    match verb {
        Verb::Create if named => Err(Status::method_not_allowed()),
        Verb::Update | Verb::Patch if !named => Err(Status::method_not_allowed()),
        Verb::Create | Verb::DeleteCollection if across => Err(Status::method_not_allowed()),
        _ => Ok(()),
    }
}

fn deprecations(kind: &Kind) -> Vec<String> {
    match kind.custom.as_ref().and_then(|c| c.version()) {
        Some(version) => version.deprecation.iter().cloned().collect(),
        None => rules::strategy::deprecations(&kind.resource),
    }
}

/// Failures before a call exists come in a format that the client surely takes.
fn error_format(request: &Request<Arriving>) -> Format {
    error_format_of(request.headers().get(ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default())
}

fn error_format_of(header: &str) -> Format {
    negotiate::accept(header, Offer::Objects).map_or(Format::Json, |accept| accept.format)
}

/// For the metrics: the verb without looking the resource up.
fn verb_label(request: &Request<Arriving>) -> &'static str {
    match request.method().as_str() {
        "GET" if request.uri().query().is_some_and(|q| q.contains("watch=")) => "watch",
        "GET" => "get",
        "HEAD" => "head",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    }
}
