//! One connection of an edge: a task that passes what happens to the link's state machine and carries out what that says.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    sync::{Arc, atomic::Ordering::Relaxed},
    task::Poll,
    time::Duration,
};

use futures::future::BoxFuture;
use kinds::names;
use link::{
    CenterInput as Input, CenterOutput as Output, CenterStatus as Status, CloseReason, Message, Millis, Position,
    Report, Session,
    transport::{Gone, Line, LineSender},
};
use placement::Id;
use schema::selector::scan;
use server::Server;

use crate::{
    Fleet,
    edges::{Edge, Live, Order},
    history::History,
    instances::Lineage,
    intake::Intake,
    intent::Intent,
    news::News,
    placing::{self, id_of},
    reports::{self, Saved},
    set::{Set, Since},
    shared, status,
    target::{Confirm, Target},
};

/// At most this many messages wait for a connection that takes no more; then nothing is read from it either.
const WAITING: usize = 64;
/// A desired set that is being put together is waited for this long.
const PATIENCE: Duration = Duration::from_secs(20);
/// An edge that comes back within this time was not away.
const GRACE: Duration = Duration::from_secs(1);
/// Timeout for the first message of an edge.
const HELLO: Duration = Duration::from_secs(10);
/// A machine that is not let in because another one has its identity asks again after so many milliseconds.
const SHARED_AGAIN: Millis = 30_000;
/// Tells what an edge took, but a cluster behind it did not, from what the edge did not take.
const IN_ITS_CLUSTER: &str = "in its cluster: ";

/// What an edge's certificate says.
pub struct Credential {
    /// Which life of which SyncTarget it is for.
    pub text: String,
    /// When it ends, in seconds since 1970.
    pub ends: i64,
}

/// From the first message to the last.
pub async fn run(fleet: Arc<Fleet>, server: Arc<Server>, edge: Arc<Edge>, credential: Credential, mut line: Line) {
    if let Err(after) = fleet.admit() {
        let _ = line.send(Message::Close { reason: CloseReason::Busy, retry_after: Some(after) }).await;
        return;
    }
    let Some(history) = fleet.history() else { return };
    // Another center may have told the edge of what this one has not heard yet.
    if server.has_shared_store() && server.catch_up().await.is_err() {
        return;
    }
    // A session ends the one before it, so it is known first whether its edge is let in.
    let Some(hello) = first_message(&mut line, &server).await else { return };
    let lineage = lineage_of(&hello);
    if !shared::lets_in(&server, &edge, &lineage, &credential.text) {
        let _ = line.send(Message::Close { reason: CloseReason::Shared, retry_after: Some(SHARED_AGAIN) }).await;
        return;
    }
    let live = Arc::new(Live::new(rand::random(), clock::unix(), line.sender()));
    let target = edge.target();
    let _ = tokio::time::timeout(PATIENCE, fleet.placing.wait()).await;
    let set = fleet.desired(&edge);
    edge.begin(live.clone());
    // From now on it hears when it is of another class; it looks once whether it is so already.
    live.order(Order::Move);
    // Whoever changes the SyncTarget tells the session from now on. What was said before is found here.
    let current = fleet.edges.get(&edge.id).filter(|known| Arc::ptr_eq(known, &edge)).map(|edge| edge.target());
    let is_same = |now: Arc<Target>| {
        (&now.uid, now.cut) == (&target.uid, false) && now.credential.as_deref() == Some(&*credential.text)
    };
    if !current.is_some_and(is_same) {
        edge.end(&live, clock::unix());
        return;
    }
    let driver = Driver {
        session: Session::new(live.id, fleet.now()),
        fleet: &fleet,
        server: &server,
        history,
        edge: &edge,
        live: &live,
        set,
        uid: &target.uid,
        ends: credential.ends,
        cursor: 0,
        greeted: false,
        confirmed: None,
        intent: Intent::default(),
        adopted: false,
        intake: Intake::default(),
        waiting: VecDeque::new(),
        sending: None,
        over: false,
        lineage,
    };
    driver.drive(line, hello).await;
    live.sender.end();
    let connected = live.facts().connected;
    // A center that stops has not lost its edges.
    if edge.end(&live, clock::unix()) {
        fleet.tunnels.end(&edge.id);
        fleet.news.tell(|| News::Edge(edge.id.clone()));
        if connected && !*server.shutdown.borrow() {
            // Whoever was sent away does not come back in a moment.
            let revoked = edge.target().credential.as_deref() != Some(&*credential.text);
            fleet.statuses.push(&edge.id, if revoked { Duration::ZERO } else { GRACE });
        }
    }
}

/// What comes first on a connection.
async fn first_message(line: &mut Line, server: &Server) -> Option<Message> {
    let mut shutdown = server.shutdown.clone();
    tokio::select! {
        message = tokio::time::timeout(HELLO, line.next()) => message.ok()??.ok(),
        _ = shutdown.wait_for(|down| *down) => None,
    }
}

/// The message that was read in advance, then those of the line.
async fn next_of(first: &mut Option<Message>, line: &mut Line) -> Option<Message> {
    match first.take() {
        Some(first) => Some(first),
        None => line.next().await.and_then(std::result::Result::ok),
    }
}

fn lineage_of(first: &Message) -> Lineage {
    match first {
        Message::Hello(hello) => Lineage { id: hello.start, before: hello.before.clone(), place: hello.place.clone() },
        _ => Lineage::default(),
    }
}

struct Driver<'a> {
    session: Session,
    fleet: &'a Fleet,
    server: &'a Arc<Server>,
    history: &'a History,
    edge: &'a Arc<Edge>,
    live: &'a Arc<Live>,
    set: Arc<Set>,
    uid: &'a str,
    /// When the certificate of the edge ends.
    ends: i64,
    /// How many changes of the set the session was told of.
    cursor: u64,
    greeted: bool,
    confirmed: Option<Confirm>,
    /// What is taken away from the edge, and whether that is intended.
    intent: Intent,
    adopted: bool,
    intake: Intake,
    /// What the connection had no room for.
    waiting: VecDeque<Message>,
    sending: Option<BoxFuture<'static, std::result::Result<(), Gone>>>,
    over: bool,
    lineage: Lineage,
}

enum Event {
    Orders,
    Sent(bool),
    Message(Option<Message>),
    Changed,
    Tick,
    Stop,
}

impl Driver<'_> {
    async fn drive(mut self, mut line: Line, first: Message) {
        let mut changes = self.set.follow();
        let mut ticks = self.fleet.ticks.of(self.live.id);
        let mut shutdown = self.server.shutdown.clone();
        let mut first = Some(first);
        while !self.over {
            let event = {
                let reading = self.waiting.len() < WAITING;
                let sending = &mut self.sending;
                tokio::select! {
                    biased;
                    () = self.live.wake.notified() => Event::Orders,
                    _ = shutdown.wait_for(|down| *down) => Event::Stop,
                    sent = poll_fn(|cx| match sending {
                        Some(sending) => Pin::new(sending).poll(cx),
                        None => Poll::Pending,
                    }) => Event::Sent(sent.is_ok()),
                    message = next_of(&mut first, &mut line), if reading => Event::Message(message),
                    _ = changes.changed() => Event::Changed,
                    _ = ticks.changed() => Event::Tick,
                }
            };
            match event {
                Event::Orders => {
                    for order in self.live.take_orders() {
                        match order {
                            Order::Cut => return,
                            Order::End(reason) => self.handle(Input::End(reason)).await,
                            Order::Attend => {}
                            Order::Move => {
                                if self.go_over().await {
                                    changes = self.set.follow();
                                }
                            }
                        }
                    }
                }
                Event::Stop => self.handle(Input::End(CloseReason::Other)).await,
                Event::Sent(false) | Event::Message(None) => return,
                Event::Sent(true) => self.sent().await,
                Event::Message(Some(message)) => {
                    self.live.heard.store(clock::unix().max(0) as u64, Relaxed);
                    self.handle(Input::Received(message)).await;
                }
                Event::Changed => self.changed().await,
                // An edge that has a new certificate comes back with that one.
                Event::Tick if clock::unix() >= self.ends => self.handle(Input::End(CloseReason::Other)).await,
                Event::Tick => self.handle(Input::Tick).await,
            }
            self.attend().await;
        }
        // The last word is a Close: it may take a moment, not longer.
        let last = async {
            if let Some(sending) = self.sending.take() {
                sending.await?;
            }
            for message in self.waiting.drain(..) {
                line.send(message).await?;
            }
            Ok::<(), Gone>(())
        };
        let _ = tokio::time::timeout(GRACE, last).await;
    }

    /// The edge is of another class: from now on it is told of what is in that one's set, and of where the two differ. Whether it is so.
    async fn go_over(&mut self) -> bool {
        let now = self.fleet.desired(self.edge);
        if Arc::ptr_eq(&now, &self.set) {
            if self.look() && self.greeted {
                self.handle(Input::Changed(Vec::new())).await;
            }
            return false;
        }
        let before = std::mem::replace(&mut self.set, now);
        if before.is_empty() != self.set.is_empty() {
            self.fleet.statuses.push(&self.edge.id, GRACE);
        }
        if !self.greeted {
            return true;
        }
        let since = before.view(self.history, 0).since(self.cursor);
        // First the place, then the difference: what changes in between is told of twice rather than not at all.
        self.cursor = self.set.view(self.history, 0).head();
        let different = placing::differences(&before, &self.set);
        self.live.facts().go_over(self.set.id, &different);
        self.intent.left(before.origins(different.iter().filter(|key| !self.set.has(key))));
        self.look();
        self.intake.leave(&different);
        match since {
            Since::Keys(mut keys) => {
                keys.extend(different);
                self.handle(Input::Changed(keys)).await;
            }
            Since::Lost => self.handle(Input::Lost).await,
        }
        {
            // If there was nothing to send, it holds what is in that one as well.
            let mut facts = self.live.facts();
            if facts.delivered {
                facts.delivered_of = Some(self.set.id);
            }
            if facts.in_sync {
                facts.in_sync_at = Some((self.set.id, self.cursor));
                drop(facts);
                self.settled();
            }
        }
        self.changed_itself();
        true
    }

    async fn changed(&mut self) {
        if !self.greeted {
            return;
        }
        let (since, head) = {
            let view = self.set.view(self.history, 0);
            (view.since(self.cursor), view.head())
        };
        self.cursor = head;
        match since {
            Since::Keys(keys) if keys.is_empty() => {}
            Since::Keys(keys) => {
                let left = self.set.origins(keys.iter().filter(|key| !self.set.has(key)));
                if !left.is_empty() {
                    self.intent.left(left);
                    self.look();
                }
                self.handle(Input::Changed(keys)).await;
            }
            Since::Lost => self.handle(Input::Lost).await,
        }
    }

    /// Asks what owners intend to take away from the edge. Whether that may be another than before.
    fn look(&mut self) -> bool {
        let (fleet, edge) = (self.fleet, id_of(&self.edge.id));
        fleet.placing.read(|engine| self.intent.look(engine, &edge))
    }

    /// The edge holds what is in the set, and nothing else.
    fn settled(&mut self) {
        if !self.intent.is_empty() {
            self.intent = Intent::default();
        }
        self.fleet.placing.settled(&self.edge.id, self.set.id);
    }

    async fn handle(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now = self.fleet.now();
            let outputs = {
                let view = self.set.view(self.history, self.fleet.newest()).with(&self.intent);
                if !self.greeted && matches!(input, Input::Received(Message::Hello(_))) {
                    // The digest that is compared is of this very state.
                    (self.greeted, self.cursor) = (true, view.head());
                }
                self.session.handle(now, input, &view)
            };
            let (waiting, in_flight) = self.session.behind();
            self.live.waiting.store(waiting as u64, Relaxed);
            self.live.in_flight.store(in_flight as u64, Relaxed);
            for output in outputs {
                if let Some(input) = self.carry_out(output).await {
                    inputs.push_back(input);
                }
            }
        }
    }

    async fn carry_out(&mut self, output: Output) -> Option<Input> {
        match output {
            Output::Send(message) => return self.send(message),
            Output::StoreReports { seq, reports } => {
                let from = (&**self.edge, &**self.live, self.uid);
                let saved = self.intake.take(self.fleet, self.server, from, &self.set, &reports).await;
                if let Some(saved) = &saved {
                    reports.iter().filter(|report| saved.keeps(&report.key)).for_each(|report| self.heed(report));
                    self.say_unkept(saved);
                }
                // What was refused is acknowledged too: it would only come again.
                let position =
                    |saved: Saved| Position { incarnation: self.history.current(), revision: saved.revision };
                return Some(match saved.map(position) {
                    Some(at) => Input::ReportsStored { seq, at },
                    None => Input::ReportsFailed,
                });
            }
            Output::ReportFloor(floor) => {
                let mut books = self.edge.writing.lock().await;
                // Another center may have written since, and some may go now.
                books.ledger = None;
                match reports::void_below(self.fleet.store(), self.uid, floor).await {
                    Ok(false) => {}
                    Ok(true) => self.fleet.accounts.void(&self.edge.id),
                    // The center stops; the edge comes again.
                    Err(store::Error::Closed) => return Some(Input::End(CloseReason::Other)),
                    Err(error) => {
                        tracing::warn!(%error, edge = %self.edge.id, "old reports of an edge could not be deleted");
                        return Some(Input::ReportsFailed);
                    }
                }
            }
            Output::Applied { .. } => {}
            Output::Failed { key, reason } => {
                if let Some(source) = self.fleet.placing.source(&self.edge.id, &key) {
                    self.fleet.told.tell(self.server, &source.workspace, &self.edge.id, &key, &reason);
                }
                self.live.facts().refuse(key, reason);
                self.changed_itself();
                self.fleet.statuses.push(&self.edge.id, GRACE);
            }
            Output::Recovered(key) => {
                self.live.facts().recover(&key);
                self.changed_itself();
                self.fleet.statuses.push(&self.edge.id, GRACE);
            }
            Output::Status(status) => {
                self.note(status);
                self.changed_itself();
            }
            Output::Close => self.over = true,
        }
        None
    }

    /// Names some of the reports that were not kept in the SyncTarget's status.
    fn say_unkept(&self, saved: &Saved) {
        let mut facts = self.live.facts();
        let mut new = false;
        for (key, why) in &saved.refused {
            new |= facts.not_kept(key, || why.to_string());
        }
        drop(facts);
        if new {
            self.fleet.statuses.push(&self.edge.id, GRACE);
        }
    }

    /// An edge may take an object and have a cluster behind it that does not.
    fn heed(&self, report: &Report) {
        let refused = report.state.as_deref().and_then(|state| scan::string_at(state, &["refused"]));
        let known = self.live.facts().refused.get(&report.key).is_some_and(|reason| reason.starts_with(IN_ITS_CLUSTER));
        match refused {
            Some(reason) => {
                if let Some(source) = self.fleet.placing.source(&self.edge.id, &report.key) {
                    self.fleet.told.tell(self.server, &source.workspace, &self.edge.id, &report.key, &reason);
                }
                self.live.facts().refuse(report.key.clone(), format!("{IN_ITS_CLUSTER}{reason}"));
            }
            None if known => self.live.facts().recover(&report.key),
            None => return,
        }
        self.changed_itself();
        self.fleet.statuses.push(&self.edge.id, GRACE);
    }

    /// Others want to know how the edge stands.
    fn changed_itself(&self) {
        self.fleet.news.tell(|| News::Edge(self.edge.id.clone()));
    }

    fn note(&mut self, status: Status) {
        let mut facts = self.live.facts();
        match status {
            Status::Connected { .. } => (facts.connected, facts.set) = (true, Some(self.set.id)),
            Status::InSync(in_sync) => {
                facts.in_sync = in_sync;
                if in_sync {
                    facts.in_sync_at = Some((self.set.id, self.cursor));
                }
                drop(facts);
                if in_sync {
                    self.settled();
                }
                // Troubles that are over are written down as such; being in sync as such is not.
                if in_sync && self.edge.target().troubled {
                    self.fleet.statuses.push(&self.edge.id, Duration::ZERO);
                }
                return;
            }
            Status::Delivered(delivered) => {
                facts.delivered = delivered;
                if delivered {
                    facts.delivered_of = Some(self.set.id);
                }
                return;
            }
            Status::DeletionHeld(held) => {
                facts.held = held;
                let now = self.intent.by_placement(self.session.held());
                let before = std::mem::replace(&mut facts.held_by, now);
                let concerned: Vec<Id> = before.into_keys().chain(facts.held_by.keys().cloned()).collect();
                drop(facts);
                self.fleet.removals.push(concerned);
                let news = self.intent.news(self.session.held());
                self.fleet.placing.hold_back(&self.edge.id, news);
                self.fleet.statuses.push(&self.edge.id, Duration::ZERO);
                return;
            }
            Status::RolledBack { edge } => facts.rolled_back = Some(edge),
            Status::Stalled(why) => facts.stalled = why,
        }
        drop(facts);
        self.fleet.statuses.push(&self.edge.id, Duration::ZERO);
    }

    /// Sends, or lets wait. The session is told when the connection takes no more.
    fn send(&mut self, message: Message) -> Option<Input> {
        if self.sending.is_none() {
            match self.live.sender.try_send(&message) {
                Ok(true) => return None,
                Err(Gone) => {
                    self.over = true;
                    return None;
                }
                Ok(false) => {}
            }
            self.sending = Some(later(self.live.sender.clone(), message));
            return Some(Input::Blocked(true));
        }
        self.waiting.push_back(message);
        None
    }

    /// What waited longest was sent.
    async fn sent(&mut self) {
        self.sending = self.waiting.pop_front().map(|message| later(self.live.sender.clone(), message));
        if self.sending.is_none() {
            self.waiting = VecDeque::new();
            self.handle(Input::Blocked(false)).await;
        }
    }

    /// Does what the SyncTarget's annotations ask for, once the edge is there to do it to.
    async fn attend(&mut self) {
        let (connected, rolled_back) = {
            let facts = self.live.facts();
            (facts.connected, facts.rolled_back.is_some())
        };
        let target = self.edge.target();
        if !self.over && target.decision.as_ref().is_some_and(|decision| !decision.lets_in(&self.lineage)) {
            return self.handle(Input::End(CloseReason::Shared)).await;
        }
        self.adopted &= target.adopt;
        if !connected || self.over || (target.confirm == self.confirmed && !target.adopt) {
            return;
        }
        if target.confirm != self.confirmed {
            self.confirmed = target.confirm.clone();
            if let Some(Confirm { up_to, placement, text }) = &target.confirm {
                match placement {
                    None => self.handle(Input::ConfirmDeletion { up_to: *up_to }).await,
                    Some(placement) => {
                        if self.intent.confirm(placement, *up_to, self.session.held()) && self.look() {
                            self.handle(Input::Changed(Vec::new())).await;
                        }
                    }
                }
                self.consume(names::CONFIRM_DELETION, Some(text.to_string()));
            }
        }
        if target.adopt && !std::mem::replace(&mut self.adopted, true) {
            if rolled_back {
                // Once it has done so, the edge connects anew.
                self.handle(Input::Adopt).await;
            } else {
                self.consume(names::ADOPT, None);
            }
        }
    }

    fn consume(&self, annotation: &'static str, said: Option<String>) {
        tokio::spawn(status::consume(self.server.clone(), self.edge.id.clone(), annotation, said));
    }
}

fn later(sender: LineSender, message: Message) -> BoxFuture<'static, std::result::Result<(), Gone>> {
    Box::pin(async move { sender.send(message).await })
}
