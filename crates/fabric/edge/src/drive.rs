//! Drives the link's machine: a real connection, a real clock, the store.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kinds::ObjectKey;
use link::{
    CloseReason, Edge, EdgeInput as Input, EdgeOutput as Output, EdgeStatus as Status, Key, Message, Millis,
    ProgramStart, Tree,
    transport::{Connection, Error, Line},
};
use server::Server;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
};

use crate::{
    agent::{Dialer, Opener},
    apply::place_of,
    book::{Book, GONE},
    report::View,
    show::Shown,
    whole,
    writer::{Done, Job},
};

/// The machine looks at its clocks this often while it waits for something, and so often while all is well.
const TICK: Duration = Duration::from_millis(250);
const CALM: Duration = Duration::from_secs(1);
/// Asking for everything anew because something is missing here happens at most this often.
const RESYNC: Duration = Duration::from_secs(10);

type Opened = Result<(Connection, Line), Error>;

/// The state of an edge that the center does not let in because another machine has its identity.
const REFUSED: &str = "Refused";

pub struct Driver<'a> {
    book: &'a Arc<Book>,
    server: &'a Arc<Server>,
    link: &'a watch::Sender<Option<Connection>>,
    dialer: Arc<dyn Dialer>,
    open: Opener,
    jobs: mpsc::UnboundedSender<Job>,
    machine: Edge,
    started: Instant,
    dialling: Option<JoinHandle<Opened>>,
    /// A connection that was made in advance.
    prepared: Option<(Connection, Line)>,
    line: Option<Line>,
    connection: Option<Connection>,
    /// Sends in the background: what the machine wants sent at one time is bounded by its windows.
    outgoing: Option<mpsc::UnboundedSender<Message>>,
    shown: Shown,
    /// Why the last attempt failed.
    trouble: String,
    resync: Option<Instant>,
    resynced: Option<Instant>,
}

impl<'a> Driver<'a> {
    pub fn new(
        book: &'a Arc<Book>,
        server: &'a Arc<Server>,
        link: &'a watch::Sender<Option<Connection>>,
        (dialer, start): (Arc<dyn Dialer>, ProgramStart),
        open: Opener,
        jobs: mpsc::UnboundedSender<Job>,
    ) -> Self {
        Self {
            book,
            server,
            link,
            dialer,
            open,
            jobs,
            machine: Edge::new(0, rand::random()).is(start),
            started: Instant::now(),
            dialling: None,
            prepared: None,
            line: None,
            connection: None,
            outgoing: None,
            shown: Shown::default(),
            trouble: String::new(),
            resync: None,
            resynced: None,
        }
    }

    pub async fn run(
        mut self,
        mut answers: mpsc::UnboundedReceiver<Done>,
        renew: &Notify,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut next_tick = tokio::time::Instant::now();
        let mut renewing: Option<JoinHandle<Opened>> = None;
        self.status("Offline", String::new());
        loop {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                () = tokio::time::sleep_until(next_tick) => {
                    self.tick();
                    let calm = self.link.borrow().is_some() && self.resync.is_none() && self.prepared.is_none();
                    next_tick = tokio::time::Instant::now() + if calm { CALM } else { TICK };
                }
                opened = joined(&mut self.dialling) => {
                    self.dialling = None;
                    self.dialled(opened);
                }
                opened = joined(&mut renewing) => {
                    renewing = None;
                    self.renewed(opened);
                }
                message = next(&mut self.line) => self.received(message),
                Some(done) = answers.recv() => self.done(done),
                () = self.book.changed.notified() => self.changed(),
                () = renew.notified() => {
                    if self.line.is_some() && renewing.is_none() {
                        renewing = Some(tokio::spawn(self.dialer.open()));
                    }
                }
            }
        }
        self.disconnect();
    }

    fn now(&self) -> Millis {
        self.started.elapsed().as_millis() as Millis
    }

    fn feed(&mut self, input: Input) {
        let view = View { book: self.book, server: self.server };
        let outputs = self.machine.handle(self.now(), input, &view);
        for output in outputs {
            self.carry_out(output);
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Dial => {
                if let Some(opened) = self.prepared.take() {
                    return self.dialled(Ok(opened));
                }
                if let Some(former) = self.dialling.replace(tokio::spawn(self.dialer.open())) {
                    former.abort();
                }
            }
            Output::Send(message) => {
                if let Some(outgoing) = &self.outgoing {
                    let _ = outgoing.send(message);
                }
            }
            Output::Apply { ticket, batch } => self.job(Job::Apply { ticket, batch }),
            Output::ReportsAcked { at, reports } => self.job(Job::Acked { at, reports }),
            Output::Disconnect => self.disconnect(),
            Output::Status(status) => self.machine_status(status),
        }
    }

    fn job(&self, job: Job) {
        // The writer ends after the driver.
        let _ = self.jobs.send(job);
    }

    fn tick(&mut self) {
        if self.resync.is_some_and(|at| at <= Instant::now()) {
            self.resync = None;
            self.resynced = Some(Instant::now());
            self.over_to_a_new_session();
        }
        self.feed(Input::Tick);
    }

    fn dialled(&mut self, opened: Opened) {
        match opened {
            Ok((connection, line)) => {
                self.hang_up();
                let (outgoing, mut queue) = mpsc::unbounded_channel();
                let sender = line.sender();
                tokio::spawn(async move {
                    while let Some(message) = queue.recv().await {
                        if sender.send(message).await.is_err() {
                            break;
                        }
                    }
                });
                self.outgoing = Some(outgoing);
                self.line = Some(line);
                self.connection = Some(connection);
                self.feed(Input::Connected);
            }
            Err(error) => {
                self.complain(&error);
                self.feed(Input::Disconnected);
            }
        }
    }

    /// Says what is the matter, once.
    fn complain(&mut self, error: &Error) {
        let text = error.to_string();
        if text == self.trouble {
            tracing::debug!(error = text, "no link");
        } else {
            tracing::info!(center = self.dialer.center(), error = text, "no link; trying again");
            self.trouble = text;
        }
    }

    /// A session on the new connection takes the place of the one on the old.
    fn renewed(&mut self, opened: Opened) {
        match opened {
            Ok(opened) => {
                self.prepared = Some(opened);
                self.over_to_a_new_session();
            }
            // The old one is still good; the next dial takes the new certificate anyway.
            Err(error) => tracing::warn!(%error, "cannot connect with the new certificate yet"),
        }
    }

    fn over_to_a_new_session(&mut self) {
        if self.line.is_some() {
            let kept = self.prepared.is_some();
            let close = Message::Close { reason: CloseReason::Superseded, retry_after: Some(0) };
            let shown = self.shown.clone();
            self.feed(Input::Received(close));
            if kept {
                self.shown = shown;
            }
        }
    }

    fn received(&mut self, message: Option<Result<Message, Error>>) {
        match message {
            Some(Ok(Message::Open { ticket })) => {
                if let Some(connection) = self.connection.clone() {
                    (self.open)(connection, ticket);
                }
            }
            Some(Ok(message)) => self.feed(Input::Received(message)),
            Some(Err(error)) => {
                self.complain(&self.dialer.explain(error));
                self.disconnect();
                self.feed(Input::Disconnected);
            }
            None => {
                self.disconnect();
                self.feed(Input::Disconnected);
            }
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Applied { ticket, adopted } => {
                if self.shown.state == "Stalled" {
                    self.status("Online", String::new());
                }
                self.feed(Input::Applied { ticket });
                if adopted {
                    let mut keys = Vec::new();
                    self.book.range(0, u64::MAX, &mut |_, key, _| keys.push(key.clone()));
                    let gone = self.server.cache.snapshot(GONE);
                    keys.extend(gone.items.range("", "").map(|object| Key::from(&*object.key)));
                    keys.extend(whole::candidates(self.server, self.book));
                    self.feed(Input::Reported(keys));
                }
            }
            Done::Failed { ticket, failure } => self.feed(Input::ApplyFailed { ticket, failure }),
            Done::Lost => self.ask_anew(),
        }
    }

    /// In a new session the center finds out by itself what is missing here.
    fn ask_anew(&mut self) {
        let soon = Instant::now() + Duration::from_millis(200);
        let at = self.resynced.map_or(soon, |last| soon.max(last + RESYNC));
        self.resync.get_or_insert(at);
    }

    fn changed(&mut self) {
        if self.book.take_freed() {
            self.ask_anew();
        }
        let mut keys = self.book.take_changed();
        if self.book.take_look_again() {
            keys.extend(whole::candidates(self.server, self.book));
        }
        for key in keys.iter().filter(|key| self.book.holds(key) && !self.is_there(key)) {
            self.job(Job::Lost(key.clone()));
        }
        self.feed(Input::Reported(keys));
        let promised = self.book.take_promised();
        if !promised.is_empty() {
            self.job(Job::Promise(promised));
        }
        if let Some(said) = self.book.take_left_out() {
            self.job(Job::LeftOut(said));
        }
    }

    fn is_there(&self, key: &Key) -> bool {
        ObjectKey::parse(key).is_some_and(|key| place_of(self.server, &key).get().is_some())
    }

    fn disconnect(&mut self) {
        self.hang_up();
        // A connection that takes the place of this one is there already: nobody shall find none.
        if self.prepared.is_none() {
            self.connection = None;
            self.link.send_if_modified(|link| link.take().is_some());
        }
    }

    /// What is still to be sent goes out; then the stream ends.
    fn hang_up(&mut self) {
        (self.outgoing, self.line) = (None, None);
        self.book.forget_sent();
    }

    fn machine_status(&mut self, status: Status) {
        match status {
            Status::Online => {
                self.trouble.clear();
                self.link.send_replace(self.connection.clone());
                let holds = View { book: self.book, server: self.server }.count();
                tracing::info!(center = self.dialer.center(), holds, "the link is up");
                self.status("Online", String::new());
            }
            Status::Offline => {
                let trouble = self.trouble.clone();
                if self.shown.state == "RolledBack" || self.shown.state == REFUSED {
                    return;
                }
                self.status("Offline", trouble);
            }
            Status::RolledBack { center } => {
                self.link.send_if_modified(|link| link.take().is_some());
                let message = format!(
                    "The center is at {}/{} and does not know what this edge has seen: it was restored from an older \
                     backup, or is another one. This edge keeps what it has. To follow that center, say so there: \
                     `selvedge edge adopt` with the name of this edge.",
                    center.incarnation, center.revision
                );
                tracing::error!("{message}");
                self.status("RolledBack", message);
            }
            Status::Closed(reason) => {
                self.trouble = format!("the center ended the session: {reason:?}");
                if reason == CloseReason::Revoked {
                    tracing::error!(
                        "the center does not know this edge any more: it was revoked or its SyncTarget deleted"
                    );
                }
                if reason == CloseReason::Shared {
                    self.is_shared();
                }
            }
            Status::Stalled(reason) => {
                tracing::error!(reason, "what the center sent cannot be written; trying again");
                self.status("Stalled", reason);
            }
        }
    }

    /// The center has seen two machines with the identity of this edge, and lets the other one in.
    fn is_shared(&mut self) {
        let message = "the identity of this edge is used by another machine too, and the center lets only that one in: \
                       this data directory is a copy, or was copied. The condition IdentityShared of its SyncTarget \
                       says where both are. If this is a second machine, join it anew: with an empty --data-dir, a \
                       --name of its own and a new token (`selvedge join-token create`). If it is the right one, stop the other \
                       and do what the condition says"
            .to_owned();
        if self.shown.state != REFUSED {
            tracing::error!("{message}");
        }
        self.trouble.clone_from(&message);
        self.status(REFUSED, message);
    }

    /// Shown once: who comes and goes every minute is offline all the same.
    fn status(&mut self, state: &'static str, message: String) {
        let is_said = self.shown.message == message || (state == "Offline" && !self.shown.message.is_empty());
        if self.shown.state == state && is_said {
            return;
        }
        let progress = self.book.progress();
        let seen = progress.seen().map(|seen| format!("{}/{}", seen.incarnation, seen.revision)).unwrap_or_default();
        let since = match self.shown.state == state {
            true => std::mem::take(&mut self.shown.since),
            false => clock::now(),
        };
        self.shown = Shown { state, message, center: self.dialer.center(), seen, since };
        self.job(Job::Show(self.shown.clone()));
    }
}

async fn joined(task: &mut Option<JoinHandle<Opened>>) -> Opened {
    match task {
        Some(task) => match task.await {
            Ok(opened) => opened,
            Err(error) => Err(Error::Lost(error.into())),
        },
        None => std::future::pending().await,
    }
}

async fn next(line: &mut Option<Line>) -> Option<Result<Message, Error>> {
    match line {
        Some(line) => line.next().await,
        None => std::future::pending().await,
    }
}
