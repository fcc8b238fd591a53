//! The agent as the rest of the edge sees it: what is held, and whether there is a link.

use std::sync::{Arc, OnceLock};

use cache::Observer;
use futures::future::BoxFuture;
use link::{
    Key, ProgramStart,
    transport::{Connection, Error, Line},
};
use server::Server;
use store::Commit;
use tokio::sync::{Notify, mpsc, watch};

use crate::{
    apply::{self, commit_and_see, write_progress},
    book::{Book, STARTS},
    drive::Driver,
    held::Held,
    writer,
};

/// Opens a session with the center, and a way for calls beside it, with whatever certificate the edge has at that time.
pub trait Dialer: Send + Sync + 'static {
    fn open(&self) -> BoxFuture<'static, Result<(Connection, Line), Error>>;

    /// What a refusal means, if more is known of it here than the center says.
    fn explain(&self, error: Error) -> Error {
        error
    }

    /// For people.
    fn center(&self) -> String;

    /// Where this edge is, for people: its machine and its data directory.
    fn place(&self) -> String {
        String::new()
    }
}

/// Answers when the center asks for a tunnel.
pub type Opener = Box<dyn Fn(Connection, u128) + Send + Sync>;

pub struct Agent {
    book: Arc<Book>,
    server: OnceLock<Arc<Server>>,
    link: watch::Sender<Option<Connection>>,
    renew: Notify,
}

impl Agent {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            book: Arc::default(),
            server: OnceLock::new(),
            link: watch::channel(None).0,
            renew: Notify::new(),
        })
    }

    /// For the server that this agent works for, before it reads its store.
    pub fn observer(&self) -> Observer {
        self.book.observer()
    }

    /// The connection to the center while there is one, with a session on it that the center has taken.
    pub fn link(&self) -> watch::Receiver<Option<Connection>> {
        self.link.subscribe()
    }

    /// What is remembered of an object (`core/configmaps/default/a`) if the center sent it. Anything else is the edge's own.
    pub fn held(&self, key: &str) -> Option<Held> {
        apply::held(self.server.get()?, key).map(|(held, _)| held)
    }

    /// The same question without the answer's details, before the server runs as well.
    pub fn holds(&self, key: &str) -> bool {
        self.book.holds(&Key::from(key))
    }

    /// There is a new certificate: goes over to a new connection, without being without one.
    pub fn renew_connection(&self) {
        self.renew.notify_one();
    }

    /// From now on the agent knows the server that it works for.
    pub fn serve(&self, server: &Arc<Server>) {
        let _ = self.server.set(server.clone());
    }

    #[cfg(test)]
    pub(crate) fn book(&self) -> &Arc<Book> {
        &self.book
    }

    /// Keeps the link until `stop`, then finishes what is being written.
    pub async fn run(
        self: Arc<Self>,
        server: Arc<Server>,
        dialer: Arc<dyn Dialer>,
        open: Opener,
        mut stop: watch::Receiver<bool>,
    ) {
        self.serve(&server);
        while let Err(error) = self.begin(&server).await {
            tracing::warn!(%error, "the edge cannot write yet");
            tokio::select! {
                () = tokio::time::sleep(std::time::Duration::from_secs(1)) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
        let start = self.count_start(&server, dialer.place()).await;
        let (jobs, queue) = mpsc::unbounded_channel();
        let (answer, answers) = mpsc::unbounded_channel();
        let writer = tokio::spawn(writer::run(server.clone(), self.book.clone(), queue, answer));
        Driver::new(&self.book, &server, &self.link, (dialer, start), open, jobs).run(answers, &self.renew, stop).await;
        self.link.send_replace(None);
        let _ = writer.await;
    }

    /// Gives this start of the program a number and writes it down with those before it. With these the center can tell
    /// a machine that was started again from a second machine with a copy of the data.
    async fn count_start(&self, server: &Server, mut place: String) -> ProgramStart {
        let mut before = self.book.starts();
        before.truncate(link::MAX_EARLIER_STARTS - 1);
        while place.len() > link::MAX_PLACE_BYTES {
            place.pop();
        }
        let start = ProgramStart { id: rand::random_range(1..=u64::MAX), before, place };
        let all: Vec<u64> = std::iter::once(start.id).chain(start.before.iter().copied()).collect();
        let mut commit = Commit::default();
        apply::put_record(&mut commit, STARTS, "starts", &all);
        // It matters only if the identity is found to be used twice, and the disk may be full.
        if let Err(error) = commit_and_see(server, commit).await {
            tracing::debug!(%error, "this start is not written down");
        }
        start
    }

    /// The first start gives this edge its first epoch, later than any of a former life.
    pub(crate) async fn begin(&self, server: &Server) -> Result<(), store::Error> {
        let mut progress = self.book.progress();
        if progress.epoch != 0 {
            return Ok(());
        }
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        progress.epoch = since.map_or(1, |since| since.as_millis() as u64).max(1);
        let mut commit = Commit::default();
        write_progress(&mut commit, progress);
        commit_and_see(server, commit).await.map(drop)
    }
}
