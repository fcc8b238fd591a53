//! The driver against the center's machine, over the real transport on a pipe in memory.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use futures::{FutureExt, future::BoxFuture};
use link::{
    CenterInput as Input, CenterOutput as Output, Desired, Key, Message, Position, Report, Session, Version,
    transport::{Connection, Dial, Error, Line, Proxy},
};
use serde_json::json;
use store::MemoryStore;
use tokio::sync::watch;

use super::*;
use crate::agent::Dialer;

/// A center in memory that any number of sessions may be opened to, one after the other.
struct Center {
    desired: Mutex<MemoryDesired>,
    changes: watch::Sender<u64>,
    reports: Mutex<BTreeMap<Key, Report>>,
    floor: Mutex<Version>,
    refused: Mutex<BTreeMap<Key, String>>,
    sessions: AtomicU64,
    /// Nobody gets through.
    cut: watch::Sender<bool>,
    adopt: AtomicBool,
    /// What the edge was asked to open.
    opened: Arc<Mutex<Vec<u128>>>,
}

impl Center {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            desired: Mutex::new(MemoryDesired::new(1)),
            changes: watch::channel(0).0,
            reports: Mutex::default(),
            floor: Mutex::default(),
            refused: Mutex::default(),
            sessions: AtomicU64::new(0),
            cut: watch::channel(false).0,
            adopt: AtomicBool::new(false),
            opened: Arc::default(),
        })
    }

    fn put(&self, key: &str, value: &Value) {
        self.desired.lock().unwrap().put(&Key::from(key), bytes(value));
        self.changes.send_modify(|n| *n += 1);
    }

    fn delete(&self, key: &str) {
        self.desired.lock().unwrap().delete(&Key::from(key));
        self.changes.send_modify(|n| *n += 1);
    }

    fn root(&self) -> u128 {
        self.desired.lock().unwrap().root()
    }

    fn state(&self, key: &str) -> Option<Value> {
        let reports = self.reports.lock().unwrap();
        reports.get(key)?.state.as_ref().map(|state| serde_json::from_slice(state).unwrap())
    }

    async fn serve(self: Arc<Self>, mut line: Line) {
        let started = Instant::now();
        let id = self.sessions.fetch_add(1, SeqCst) + 1;
        let mut session = Session::new(id, 0);
        let mut changes = self.changes.subscribe();
        let mut cut = self.cut.subscribe();
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        let _ = line.send(Message::Open { ticket: id.into() }).await;
        loop {
            let input = tokio::select! {
                message = line.next() => match message {
                    Some(Ok(message)) => Input::Received(message),
                    _ => return,
                },
                _ = changes.changed() => {
                    let keys = self.desired.lock().unwrap().objects().keys().cloned().collect::<Vec<_>>();
                    let gone = ["core/configmaps/default/a", WEB].map(Key::from);
                    Input::Changed(keys.into_iter().chain(gone).collect())
                }
                _ = cut.wait_for(|cut| *cut) => return,
                _ = tick.tick() => if self.adopt.swap(false, SeqCst) { Input::Adopt } else { Input::Tick },
            };
            let mut inputs = vec![input];
            while let Some(input) = inputs.pop() {
                let now = started.elapsed().as_millis() as u64;
                let outputs = session.handle(now, input, &*self.desired.lock().unwrap());
                for output in outputs {
                    match output {
                        Output::Send(message) => drop(line.send(message).await),
                        Output::StoreReports { seq, reports } => {
                            inputs.push(Input::ReportsStored { seq, at: self.store(reports) });
                        }
                        Output::ReportFloor(floor) => *self.floor.lock().unwrap() = floor,
                        Output::Failed { key, reason } => drop(self.refused.lock().unwrap().insert(key, reason)),
                        Output::Recovered(key) => drop(self.refused.lock().unwrap().remove(&key)),
                        Output::Close => return,
                        Output::Applied { .. } | Output::Status(_) => {}
                    }
                }
            }
        }
    }

    fn store(&self, reports: Vec<Report>) -> Position {
        let mut stored = self.reports.lock().unwrap();
        for report in reports {
            if stored.get(&report.key).is_none_or(|old| old.version <= report.version) {
                stored.insert(report.key.clone(), report);
            }
        }
        self.desired.lock().unwrap().touch()
    }
}

struct Near(Arc<Center>);

impl Dialer for Near {
    fn open(&self) -> BoxFuture<'static, Result<(Connection, Line), Error>> {
        let center = self.0.clone();
        async move {
            if *center.cut.borrow() {
                return Err(Error::Timeout { address: "center".into(), seconds: 0 });
            }
            let (here, there) = tokio::io::duplex(16 << 10);
            tokio::spawn(center.serve(Line::over(there)));
            let nowhere = Dial::unverified("https://127.0.0.1:1", Proxy::none())?;
            Ok((Connection::to(&nowhere), Line::over(here)))
        }
        .boxed()
    }

    fn center(&self) -> String {
        "https://center".into()
    }
}

struct Linked {
    edge: Edge,
    center: Arc<Center>,
    stop: watch::Sender<bool>,
    run: tokio::task::JoinHandle<()>,
}

async fn linked(center: &Arc<Center>, store: Arc<dyn Store>) -> Linked {
    let edge = edge(store).await;
    let (stop, stopped) = watch::channel(false);
    let opened = center.opened.clone();
    let open = Box::new(move |_: Connection, ticket: u128| opened.lock().unwrap().push(ticket));
    let run = edge.agent.clone().run(edge.server().clone(), Arc::new(Near(center.clone())), open, stopped);
    Linked { edge, center: center.clone(), stop, run: tokio::spawn(run) }
}

impl Linked {
    async fn converged(&self) {
        until("the edge to hold what it should", || self.edge.book().root() == self.center.root()).await;
    }

    fn shown(&self) -> Option<String> {
        let shown = self.edge.get("core/configmaps/kube-system/selvedge-link")?;
        shown["data"]["state"].as_str().map(str::to_owned)
    }

    async fn stop(self) -> Edge {
        self.stop.send_replace(true);
        self.run.await.unwrap();
        self.edge
    }
}

async fn until(what: &str, mut is: impl FnMut() -> bool) {
    for _ in 0..1500 {
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain for {what}");
}

const A: &str = "core/configmaps/default/a";

#[tokio::test]
async fn what_the_center_says_comes_and_what_became_of_it_goes_back() {
    let center = Center::new();
    center.put(A, &map("a", "1"));
    center.put(WEB, &deployment("nginx:1"));
    let linked = linked(&center, Arc::new(MemoryStore::default())).await;
    linked.converged().await;
    assert!(linked.edge.agent.link().borrow().is_some());
    until("the state of the link", || linked.shown().as_deref() == Some("Online")).await;
    until("the tunnel", || center.opened.lock().unwrap().as_slice() == [1]).await;
    linked.edge.edit(WEB, |value| value["status"] = json!({"replicas": 1})).await;
    until("the report", || center.state(WEB) == Some(json!({"status": {"replicas": 1}}))).await;
    center.put(A, &map("a", "2"));
    linked.converged().await;
    assert_eq!(linked.edge.get(A).unwrap()["data"]["k"], "2");

    // Without a link the edge goes on, and both sides catch up afterwards.
    center.cut.send_replace(true);
    until("the link to be gone", || linked.edge.agent.link().borrow().is_none()).await;
    until("that to be shown", || linked.shown().as_deref() == Some("Offline")).await;
    linked.edge.edit(WEB, |value| value["status"] = json!({"replicas": 2})).await;
    center.delete(A);
    center.put(WEB, &deployment("nginx:2"));
    center.cut.send_replace(false);
    linked.converged().await;
    assert!(linked.edge.get(A).is_none());
    until("the report", || center.state(WEB) == Some(json!({"status": {"replicas": 2}}))).await;
    until("the ack", || linked.edge.held(WEB).unwrap().reported.is_some()).await;

    // A restart reports nothing twice and holds what it held.
    let version = center.reports.lock().unwrap()[WEB].version;
    let edge = linked.stop().await;
    let again = super::driving::linked(&center, edge.server().cache.store().clone()).await;
    again.converged().await;
    until("the link", || again.edge.agent.link().borrow().is_some()).await;
    assert_eq!(center.reports.lock().unwrap()[WEB].version, version);
}

#[tokio::test]
async fn refusals_are_told_and_block_nobody() {
    let center = Center::new();
    let linked = linked(&center, Arc::new(MemoryStore::default())).await;
    linked.edge.write(A, &map("a", "mine")).await;
    center.put(A, &map("a", "theirs"));
    center.put(WEB, &deployment("nginx:1"));
    until("the refusal", || center.refused.lock().unwrap().get(A).is_some_and(|why| why.contains(A))).await;
    until("the other one", || linked.edge.get(WEB).is_some()).await;
    assert_eq!(linked.edge.get(A).unwrap()["data"]["k"], "mine");
}

#[tokio::test]
async fn what_was_deleted_here_comes_again() {
    let center = Center::new();
    center.put(A, &map("a", "1"));
    let linked = linked(&center, Arc::new(MemoryStore::default())).await;
    linked.converged().await;
    linked.edge.delete(A).await;
    until("the object", || linked.edge.get(A).is_some()).await;
    linked.converged().await;
}

#[tokio::test]
async fn what_stands_in_the_way_is_waited_for() {
    let center = Center::new();
    center.put(A, &map("a", "1"));
    center.put(WEB, &deployment("nginx:1"));
    let linked = linked(&center, Arc::new(MemoryStore::default())).await;
    linked.converged().await;
    linked.edge.edit(A, |value| value["metadata"]["finalizers"] = json!(["example.com/mine"])).await;
    center.delete(A);
    until("the deletion", || linked.edge.held(A).is_none()).await;
    center.put(A, &map("a", "2"));
    until("the refusal", || center.refused.lock().unwrap().contains_key(A)).await;
    linked.edge.delete(A).await;
    // Long before the center would try again by itself.
    until("the new one", || linked.edge.get(A).is_some_and(|a| a["data"]["k"] == "2")).await;
}

#[tokio::test]
async fn a_center_of_another_history_is_not_followed_until_somebody_says_so() {
    let center = Center::new();
    center.put(A, &map("a", "1"));
    center.put(WEB, &deployment("nginx:1"));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let linked = linked(&center, store.clone()).await;
    linked.converged().await;
    linked.edge.edit(WEB, |value| value["status"] = json!({"replicas": 1})).await;
    until("the report", || center.state(WEB).is_some()).await;
    until("the ack", || linked.edge.held(WEB).unwrap().reported.is_some()).await;
    linked.stop().await;
    // Another one, with other objects and no reports.
    let other = Center::new();
    *other.desired.lock().unwrap() = MemoryDesired::new(99);
    other.put(WEB, &deployment("nginx:0"));
    let linked = super::driving::linked(&other, store).await;
    until("the guard", || linked.shown().as_deref() == Some("RolledBack")).await;
    assert_eq!(linked.edge.get(A).unwrap()["data"]["k"], "1");
    assert!(other.state(WEB).is_none());
    other.adopt.store(true, SeqCst);
    until("the other's object", || {
        let web = linked.edge.get(WEB).unwrap();
        web["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:0"
    })
    .await;
    until("all reports", || other.state(WEB) == Some(json!({"status": {"replicas": 1}}))).await;
    until("that to be shown", || linked.shown().as_deref() == Some("Online")).await;
    assert_eq!(linked.edge.book().progress().incarnation, other.desired.lock().unwrap().position().incarnation);
}

#[tokio::test]
async fn a_new_certificate_takes_over_without_a_gap() {
    let center = Center::new();
    center.put(A, &map("a", "1"));
    let linked = linked(&center, Arc::new(MemoryStore::default())).await;
    linked.converged().await;
    until("the link", || linked.edge.agent.link().borrow().is_some()).await;
    let mut link = linked.edge.agent.link();
    let seen: Arc<Mutex<Vec<bool>>> = Arc::default();
    let watcher = seen.clone();
    tokio::spawn(async move {
        while link.changed().await.is_ok() {
            let there = link.borrow_and_update().is_some();
            watcher.lock().unwrap().push(there);
        }
    });
    linked.edge.agent.renew_connection();
    until("another session", || seen.lock().unwrap().last() == Some(&true)).await;
    assert_eq!(center.sessions.load(SeqCst), 2);
    center.put(A, &map("a", "2"));
    linked.converged().await;
    assert_eq!(*seen.lock().unwrap(), [true], "it was never without a link");
}
