//! An edge in memory: the link's own machine, driven over a line that never leaves the process.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use identity::User;
use link::{
    ApplyFailure, Batch, EdgeInput as Input, EdgeOutput as Output, EdgeStatus, Key, Message, testing::MemoryHolding,
    transport::Line,
};
use server::Server;
use tokio::sync::mpsc;

use crate::{Fleet, GROUP, session};

#[derive(Default)]
pub struct TestDisk {
    pub holding: MemoryHolding,
    /// Names that it cannot take.
    pub refuses: BTreeSet<String>,
    pub statuses: Vec<EdgeStatus>,
    pub online: bool,
}

impl TestDisk {
    fn apply(&mut self, batch: &Batch) -> Result<(), ApplyFailure> {
        let refused: Vec<_> = batch.changes.iter().filter(|(key, _)| self.refuses.contains(&**key)).collect();
        if !refused.is_empty() {
            return Err(ApplyFailure::Keys(
                refused.iter().map(|(key, _)| (key.clone(), "no room".to_owned())).collect(),
            ));
        }
        self.holding.commit(batch);
        Ok(())
    }
}

pub struct TestEdge {
    pub disk: Arc<Mutex<TestDisk>>,
    reported: mpsc::UnboundedSender<Key>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for TestEdge {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TestEdge {
    pub fn start(fleet: &Arc<Fleet>, server: &Arc<Server>, user: &str, disk: Arc<Mutex<TestDisk>>) -> Self {
        // As if it had joined when its SyncTarget was made.
        let target = kinds::EdgeId::of_user(user).and_then(|id| fleet.edges.get(&id)).map(|edge| edge.target());
        let uid = target.and_then(|target| target.credential.clone()).unwrap_or_default().into();
        let user = User { name: user.to_owned(), uid, groups: vec![GROUP.to_owned()], ..User::default() };
        let (reported, reports) = mpsc::unbounded_channel();
        let task = tokio::spawn(run(fleet.clone(), server.clone(), user, disk.clone(), reports));
        Self { disk, reported, task }
    }

    pub fn report(&self, key: &str, state: Option<&'static str>) {
        let key: Key = key.into();
        self.disk.lock().unwrap().holding.note(&key, state.map(Bytes::from));
        self.reported.send(key).unwrap();
    }

    pub fn holds(&self) -> Vec<String> {
        self.disk.lock().unwrap().holding.objects.keys().map(|key| key.to_string()).collect()
    }

    pub fn pending_reports(&self) -> usize {
        self.disk.lock().unwrap().holding.outbox.len()
    }
}

async fn run(
    fleet: Arc<Fleet>,
    server: Arc<Server>,
    user: User,
    disk: Arc<Mutex<TestDisk>>,
    mut reports: mpsc::UnboundedReceiver<Key>,
) {
    let start = std::time::Instant::now();
    let mut machine = link::Edge::new(0, rand::random());
    let mut line: Option<Line> = None;
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    loop {
        let mut inputs = vec![tokio::select! {
            _ = ticks.tick() => Input::Tick,
            Some(key) = reports.recv() => Input::Reported(vec![key]),
            message = async { match &mut line { Some(line) => line.next().await, None => std::future::pending().await } } => {
                match message {
                    Some(Ok(message)) => Input::Received(message),
                    _ => {
                        line = None;
                        Input::Disconnected
                    }
                }
            }
        }];
        while let Some(input) = inputs.pop() {
            let now = start.elapsed().as_millis() as u64;
            let outputs = machine.handle(now, input, &disk.lock().unwrap().holding);
            for output in outputs {
                match output {
                    Output::Dial => match fleet.known(&user) {
                        Ok(edge) => {
                            let (near, far) = pair();
                            let credential = session::Credential { text: user.uid.clone(), ends: i64::MAX };
                            tokio::spawn(session::run(fleet.clone(), server.clone(), edge, credential, far));
                            line = Some(near);
                            inputs.push(Input::Connected);
                        }
                        Err(_) => inputs.push(Input::Disconnected),
                    },
                    Output::Send(message) => send(&line, message).await,
                    Output::Apply { ticket, batch } => {
                        let done = disk.lock().unwrap().apply(&batch);
                        inputs.push(match done {
                            Ok(()) => Input::Applied { ticket },
                            Err(failure) => Input::ApplyFailed { ticket, failure },
                        });
                        if batch.adopt {
                            inputs.push(Input::Reported(disk.lock().unwrap().holding.outbox.iter().cloned().collect()));
                        }
                    }
                    Output::ReportsAcked { at, reports } => disk.lock().unwrap().holding.acked(at, &reports),
                    Output::Disconnect => line = None,
                    Output::Status(status) => {
                        let mut disk = disk.lock().unwrap();
                        match &status {
                            EdgeStatus::Online => disk.online = true,
                            EdgeStatus::Offline => disk.online = false,
                            _ => {}
                        }
                        disk.statuses.push(status);
                    }
                }
            }
        }
    }
}

async fn send(line: &Option<Line>, message: Message) {
    if let Some(line) = line {
        let _ = line.send(message).await;
    }
}

/// Two ends of a line.
pub fn pair() -> (Line, Line) {
    let (here, there) = tokio::io::duplex(64 << 10);
    (Line::over(here), Line::over(there))
}
