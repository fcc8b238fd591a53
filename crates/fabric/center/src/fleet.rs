//! The edges of a center, as one thing that a server is started with.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use cache::{Change, ChangeKind};
use identity::User;
use kinds::EdgeId;
use link::{CloseReason, Message, Millis, admission::Admission};
use schema::status::{Result, Status};
use server::{Mount, Protocol, Server};
use store::Store;

use crate::{
    accounts::Accounts,
    bodies::Bodies,
    door,
    edges::{Edge, Edges, Order},
    forward,
    history::{History, Opened},
    intake, join,
    lead::Lead,
    mailbox::{self, Open},
    mailboxes::{self, Mailboxes},
    news::Paper,
    others::{self, Others},
    placing::Placing,
    refused::Told,
    removals::{self, Removals},
    reported, reports, resolved,
    rollouts::{self, Rollouts},
    set::Set,
    shared, status,
    target::{self, Target},
    tenant_view,
    ticks::Ticks,
    tunnel::{self, Tunnels},
    view,
};

/// The group of all edges.
pub const GROUP: &str = "system:edges";
/// Sessions that begin in a second, and at once after a quiet while. More than that and the API would feel it.
const PER_SECOND: u32 = 400;
const BURST: u32 = 400;
/// An edge that was connected when this center last ran has this long to come back before it is said to be offline.
const RETURN: Duration = Duration::from_secs(60);
/// At most this many bodies are worked on at a time, and so many requests wait for that.
const BODIES: usize = 32;
const MAY_WAIT: usize = 2048;

/// Made before the server, as it observes the server's changes from the first on; started once the server serves.
pub struct Fleet {
    store: Arc<dyn Store>,
    /// Where several centers share the store: which one this is.
    center: Option<String>,
    opened: Mutex<Option<Opened>>,
    running: OnceLock<Running>,
    pub(crate) edges: Edges,
    pub(crate) placing: Placing,
    pub(crate) rollouts: Rollouts,
    /// Whether this center drives rollouts and keeps accounts: one of several does.
    pub(crate) lead: Lead,
    pub(crate) others: Others,
    pub(crate) ticks: Ticks,
    pub(crate) statuses: status::Queue,
    pub(crate) told: Told,
    pub(crate) removals: Removals,
    pub(crate) reports_refused: intake::Refused,
    pub(crate) tunnels: Tunnels,
    pub(crate) tenant_seats: tenant_view::Seats,
    pub(crate) news: Paper,
    mailboxes: Mailboxes,
    pub(crate) open: Open,
    pub(crate) accounts: Arc<Accounts>,
    /// What edges forward, and questions about mailboxes, are read here.
    pub(crate) bodies: Bodies,
    admission: Mutex<Admission>,
    begun: AtomicU64,
    busy: AtomicU64,
    clock: Instant,
    started: i64,
    /// The furthest revision that any edge was told of.
    acked: AtomicU64,
}

struct Running {
    server: Arc<Server>,
    history: History,
}

impl Fleet {
    /// Call it before anything is written to the store in this life of it: what edges have seen is compared with where the store was.
    pub async fn open(store: Arc<dyn Store>, shared: bool) -> std::result::Result<Arc<Self>, store::Error> {
        let opened = Opened::read(store.clone(), shared).await?;
        let accounts = Arc::<Accounts>::default();
        Ok(Arc::new(Self {
            store,
            center: shared.then(|| format!("{:016x}", rand::random::<u64>())),
            opened: Mutex::new(Some(opened)),
            running: OnceLock::new(),
            edges: Edges::default(),
            placing: Placing::default(),
            rollouts: Rollouts::default(),
            lead: Lead::new(shared),
            others: Others::default(),
            ticks: Ticks::default(),
            statuses: status::Queue::default(),
            told: Told::default(),
            removals: Removals::default(),
            reports_refused: intake::Refused::default(),
            tunnels: Tunnels::default(),
            tenant_seats: tenant_view::Seats::default(),
            news: Paper::new(accounts.clone()),
            accounts,
            mailboxes: Mailboxes::default(),
            open: Open::default(),
            bodies: Bodies::new(BODIES, MAY_WAIT),
            admission: Mutex::new(Admission::new(PER_SECOND, BURST)),
            begun: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            clock: Instant::now(),
            started: clock::unix(),
            acked: AtomicU64::new(0),
        }))
    }

    /// What is served on the API's port besides the API: for [`server::Options::mounts`].
    pub fn mounts(self: &Arc<Self>) -> Vec<Arc<dyn Mount>> {
        let fleet = || self.clone();
        vec![
            Arc::new(forward::Forwards(fleet())),
            Arc::new(view::View(fleet())),
            Arc::new(join::Joining::default()),
            Arc::new(reported::Reported(fleet())),
            Arc::new(tenant_view::TenantView(fleet())),
            Arc::new(tunnel::Ends(fleet())),
            Arc::new(mailbox::Looking(fleet())),
            Arc::new(tunnel::Mailboxes(fleet())),
        ]
    }

    /// For [`server::Options::protocols`].
    pub fn protocols(self: &Arc<Self>) -> Vec<Arc<dyn Protocol>> {
        vec![Arc::new(door::Sessions(self.clone()))]
    }

    /// For [`server::Options::observers`].
    pub fn observer(self: &Arc<Self>) -> cache::Observer {
        let fleet = self.clone();
        Box::new(move |collection, change| {
            if collection == target::COLLECTION {
                fleet.target_changed(change);
            }
            fleet.placing.observe(collection, change);
            fleet.mailboxes.observe(collection, change);
            // Last: it asks the others about what it hears.
            fleet.accounts.observe(collection, change);
        })
    }

    /// Lets edges in. Until then they are told to come again.
    pub async fn start(self: &Arc<Self>, server: &Arc<Server>) -> std::result::Result<(), store::Error> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(opened) = opened else { return Ok(()) };
        let recorded = opened.record().await;
        if recorded.is_err() {
            // It may be tried again.
            *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened);
        }
        let history = recorded?;
        if let Err(error) = server::offer(server).await {
            tracing::error!(%error, "the kinds of placement could not be exported: other workspaces than root cannot bind them");
        }
        let _ = self.running.set(Running { server: server.clone(), history });
        let (fleet, of) = (self.clone(), server.clone());
        tokio::spawn(async move { fleet.mailboxes.run(of).await });
        let fleet = self.clone();
        tokio::spawn(async move { fleet.ticks.run().await });
        tokio::spawn(status::run(self.clone(), server.clone()));
        let (fleet, follower) = (self.clone(), server.clone());
        tokio::spawn(async move { fleet.placing.run(fleet.clone(), follower).await });
        tokio::spawn(resolved::run(self.clone(), server.clone()));
        tokio::spawn(removals::run(self.clone(), server.clone()));
        if let Some(me) = self.center.clone() {
            tokio::spawn(others::run(self.clone(), server.clone(), me.clone()));
            let (fleet, of) = (self.clone(), server.clone());
            tokio::spawn(async move { fleet.lead.run(of, me).await });
        }
        tokio::spawn(rollouts::run(self.clone(), server.clone()));
        tokio::spawn(self.clone().tidy());
        tokio::spawn(Accounts::run(self.clone(), server.clone()));
        // Whom other centers have, this one does not know.
        if self.center.is_none() {
            for edge in self.edges.list(None).iter().filter(|edge| edge.target().ready) {
                self.statuses.push(&edge.id, RETURN);
            }
        }
        Ok(())
    }

    /// The server, once there is one.
    pub fn server(&self) -> Option<&Arc<Server>> {
        self.running.get().map(|running| &running.server)
    }

    /// Which edge asks, if it may: it has an edge's certificate, and its SyncTarget is there. The first question of everything that is
    /// served to edges alone.
    pub fn edge_of(&self, user: &User) -> Result<EdgeId> {
        self.known(user).map(|edge| edge.id.clone())
    }

    pub(crate) fn known(&self, user: &User) -> Result<Arc<Edge>> {
        let refuse = |why: String| Status::new(403, "Forbidden", why);
        let id = Some(user).filter(|user| user.is_in(GROUP)).and_then(|user| EdgeId::of_user(&user.name));
        let id = id.ok_or_else(|| refuse(format!("only edges connect here, and {:?} is none", user.name)))?;
        let edge = self.edges.get(&id).ok_or_else(|| {
            refuse(format!(
                "there is no SyncTarget {} in {}: the edge was revoked, or never joined",
                id.name, id.workspace
            ))
        })?;
        if edge.target().credential.as_deref() != Some(&*user.uid) {
            return Err(join::not_welcome(&edge.id));
        }
        if edge.target().cut {
            return Err(Status::unavailable("the link is cut").retry_after(5));
        }
        Ok(edge)
    }

    /// What an edge shall hold, shared with all that shall hold the same. Complete once placing is ready: `Placing::wait`.
    pub(crate) fn desired(&self, edge: &Edge) -> Arc<Set> {
        self.placing.desired(&edge.id)
    }

    /// Says something to an edge, if it is connected and has room for it.
    pub fn tell(&self, edge: &EdgeId, message: &Message) -> bool {
        let session = self.edges.get(edge).and_then(|edge| edge.session()).filter(|live| live.facts().connected);
        session.is_some_and(|live| live.sender.try_send(message).unwrap_or(false))
    }

    /// Whether an edge is connected, to this center.
    pub fn is_connected(&self, edge: &EdgeId) -> bool {
        let session = self.edges.get(edge).and_then(|edge| edge.session());
        session.is_some_and(|live| live.facts().connected)
    }

    /// What an edge last reported of an object, by its key on the link.
    pub async fn reported(&self, edge: &EdgeId, key: &str) -> std::result::Result<Option<link::Report>, store::Error> {
        match self.edges.get(edge) {
            Some(edge) => reports::get(&*self.store, &edge.target().uid, key).await,
            None => Ok(None),
        }
    }

    /// What an edge last reported of everything: so many, behind the key `after`.
    pub async fn reports(
        &self,
        edge: &EdgeId,
        after: &str,
        limit: usize,
    ) -> std::result::Result<Vec<link::Report>, store::Error> {
        match self.edges.get(edge) {
            Some(edge) => reports::list(&*self.store, &edge.target().uid, after, limit).await,
            None => Ok(Vec::new()),
        }
    }

    /// The edge whose mailbox this path leads to.
    pub fn of_mailbox(&self, path: &str) -> Option<EdgeId> {
        let name = kinds::mailbox::of_path(path)?;
        let key = format!("{}//{name}", kinds::mailbox::PROVIDER);
        let object = self.server()?.cache.get(server::workspaces::WORKSPACES, &key)?;
        let (_, id) = mailboxes::whose(&object)?;
        // One of another uid was made anew, and has a mailbox of its own.
        let edge = self.edges.get(&id)?;
        (kinds::mailbox::uid(name) == Some(&*edge.target().uid)).then_some(id)
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(crate) fn center(&self) -> Option<&str> {
        self.center.as_deref()
    }

    pub(crate) fn history(&self) -> Option<&History> {
        self.running.get().map(|running| &running.history)
    }

    /// The furthest that is known of the store.
    pub(crate) fn newest(&self) -> u64 {
        let seen = self.server().map_or(0, |server| server.cache.revision());
        seen.max(self.acked.load(Ordering::Acquire))
    }

    pub(crate) fn acked(&self, revision: u64) {
        self.acked.fetch_max(revision, Ordering::AcqRel);
    }

    pub(crate) fn now(&self) -> Millis {
        self.clock.elapsed().as_millis() as Millis
    }

    pub(crate) fn started_at(&self) -> i64 {
        self.started
    }

    pub(crate) fn admit(&self) -> std::result::Result<(), Millis> {
        let now = self.now();
        let admitted = self.admission.lock().unwrap_or_else(PoisonError::into_inner).admit(now);
        let count = if admitted.is_ok() { &self.begun } else { &self.busy };
        count.fetch_add(1, Ordering::Relaxed);
        admitted
    }

    /// How many sessions were begun, and how many were put off.
    pub(crate) fn doorkeeping(&self) -> (u64, u64) {
        (self.begun.load(Ordering::Relaxed), self.busy.load(Ordering::Relaxed))
    }

    fn target_changed(self: &Arc<Self>, change: &Change) {
        let object = &change.object;
        let id = EdgeId::new(object.cluster(), object.name());
        let target = if change.kind == ChangeKind::Deleted { None } else { Target::read(&object.value()) };
        let Some(target) = target else {
            return self.gone(&id, change.kind == ChangeKind::Deleted);
        };
        let (edge, before) = self.edges.set(id.clone(), target);
        let (Some(before), target) = (before, edge.target()) else { return };
        if (&target.workspace, &target.granted) != (&before.workspace, &before.granted) || target.cut != before.cut {
            self.statuses.push(&id, Duration::ZERO);
        }
        if target.decision != before.decision {
            self.statuses.push(&id, Duration::ZERO);
        }
        if target.accept.is_some()
            && target.accept != before.accept
            && let Some(server) = self.server()
        {
            tokio::spawn(shared::accept(server.clone(), id.clone()));
        }
        // What was seen of the machines before is void.
        if (target.decision.is_none() && before.decision.is_some()) || target.credential != before.credential {
            *edge.seen.lock().unwrap_or_else(PoisonError::into_inner) = Default::default();
        }
        let Some(live) = edge.session() else { return };
        let order = if (&target.uid, &target.credential) != (&before.uid, &before.credential) {
            Order::End(CloseReason::Revoked)
        } else if target.cut {
            Order::Cut
        } else if (&target.confirm, target.adopt, &target.decision) != (&before.confirm, before.adopt, &before.decision)
        {
            Order::Attend
        } else {
            return;
        };
        live.order(order);
    }

    /// A SyncTarget is being deleted, or is gone.
    fn gone(self: &Arc<Self>, id: &EdgeId, deleted: bool) {
        let Some(edge) = self.edges.remove(id) else { return };
        if let Some(live) = edge.session() {
            live.order(Order::End(CloseReason::Revoked));
        }
        // While a store is loaded there is nobody to delete for: what is left over is found when the fleet starts.
        if let Some(running) = self.running.get() {
            let (fleet, server) = (self.clone(), running.server.clone());
            tokio::spawn(async move {
                let mut books = edge.writing.lock().await;
                books.close(&server, &edge);
                if deleted {
                    fleet.forget(&edge.target().uid).await;
                }
            });
        }
    }

    async fn forget(&self, uid: &str) {
        if let Err(error) = reports::forget(&*self.store, uid).await {
            tracing::warn!(%error, uid, "reports of an edge that is gone stay in the store until the next start");
        }
    }

    /// Deletes the reports of edges that went while nobody looked.
    async fn tidy(self: Arc<Self>) {
        let known = |uid: &str| self.edges.list(None).iter().any(|edge| *edge.target().uid == *uid);
        match reports::owners(&*self.store).await {
            Ok(owners) => {
                for uid in owners.iter().filter(|uid| !known(uid)) {
                    self.forget(uid).await;
                }
            }
            Err(error) => tracing::warn!(%error, "reports could not be looked through"),
        }
        // Where bytes are limited, reports count from the start; elsewhere it is enough to know when the edge reports
        // something.
        let Some(server) = self.server() else { return };
        for edge in self.edges.list(None) {
            if server.workspaces.limits(&edge.id.workspace).bytes.is_some()
                && let Err(error) = edge.writing.lock().await.open(&self, server, &edge).await
            {
                tracing::warn!(%error, edge = %edge.id, "the reports of an edge could not be counted");
            }
        }
    }
}
