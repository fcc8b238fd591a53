//! Writes on a real server over a store in memory, and a center that can be away, forget to answer, and refuse.

use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use front::Running;
use futures::future::BoxFuture;
use http::Request;
use http_body_util::{BodyExt, Full};
use identity::User;
use kinds::{
    forward::{self, Done, Forward, hexadecimal},
    names,
};
use link::{Batch, Key, Position, entry_hash};
use proptest::prelude::*;
use serde_json::{Value, json};
use server::Server;
use store::{MemoryStore, Store};
use tokio::sync::{Notify, watch};

use super::{Lost, Ownership, Way, queue};
use crate::{Agent, apply};

const KEY: &str = "core/configmaps/default/menu";
const PATH: &str = "/api/v1/namespaces/default/configmaps/menu";

#[derive(Default)]
struct Fake {
    inner: Mutex<Inner>,
    opened: Notify,
    edge: OnceLock<(Arc<Server>, Arc<Agent>)>,
}

#[derive(Default)]
struct Inner {
    open: bool,
    /// The link breaks behind so many writes, each done and not answered.
    unanswered: usize,
    refuse: Option<u16>,
    content: Option<Value>,
    last: (String, Option<Done>),
    /// What was done, in order.
    done: Vec<Forward>,
    revision: u64,
    standing: u64,
}

impl Inner {
    fn hash(&self) -> String {
        let content = self.content.as_ref().map(|content| serde_json::to_vec(content).unwrap());
        content.map_or(String::new(), |content| hexadecimal(entry_hash(KEY, &content)))
    }

    fn decide(&mut self, write: Forward) -> (u16, Value) {
        if !write.id.is_empty() && self.last.0 == write.id {
            return (200, json!(self.last.1));
        }
        if let Some(code) = self.refuse {
            return (code, json!({"kind": "Status", "message": "no", "reason": "Forbidden"}));
        }
        if write.precondition != self.hash() {
            return (
                409,
                json!({"reason": "Conflict", "message": "stale", "details": {"causes": [{"reason": forward::STALE}]}}),
            );
        }
        match &write.change {
            forward::Change::Patch(patch) => patch::merge(self.content.as_mut().unwrap(), patch),
            forward::Change::Replicas(_) => {}
            forward::Change::Delete(_) => self.content = None,
        }
        let done = Done { hash: self.hash(), content: self.content.clone(), warnings: Vec::new() };
        self.last = (write.id.clone(), Some(done.clone()));
        self.done.push(write);
        (200, json!(done))
    }
}

impl Fake {
    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap())
    }

    fn open(&self, open: bool) {
        self.with(|inner| inner.open = open);
        self.opened.notify_waiters();
    }

    /// What the center has comes down.
    async fn deliver(&self) {
        let (server, agent) = self.edge.get().unwrap();
        let (content, revision) = self.with(|inner| {
            inner.revision += 1;
            (inner.content.as_ref().map(|content| Bytes::from(serde_json::to_vec(content).unwrap())), inner.revision)
        });
        let position = Position { incarnation: 1, revision };
        let changes = vec![(Key::from(KEY), content)];
        let batch = Batch { session: 1, seq: revision, position, adopt: false, changes };
        apply::apply(server, agent.book(), &batch).await.unwrap();
    }
}

impl Way for Fake {
    fn is_open(&self) -> bool {
        self.with(|inner| inner.open)
    }

    fn send(&self, body: Bytes) -> BoxFuture<'_, Result<(u16, Bytes), Lost>> {
        Box::pin(async move {
            if !self.is_open() {
                return Err(Lost::Away);
            }
            let write = match serde_json::from_slice(&body).unwrap() {
                forward::Said::Write(write) => *write,
                forward::Said::Standing { standing } => {
                    self.with(|inner| inner.standing = standing.refused);
                    return Ok((200, "{}".into()));
                }
            };
            let (code, answer) = self.with(|inner| inner.decide(write));
            let lost = self.with(|inner| {
                inner.unanswered = inner.unanswered.saturating_sub(1);
                inner.unanswered > 0
            });
            if lost {
                return Err(Lost::Broke("pulled".into()));
            }
            self.deliver().await;
            Ok((code, answer.to_string().into()))
        })
    }

    fn opens(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            loop {
                let opened = self.opened.notified();
                if self.is_open() {
                    return;
                }
                opened.await;
            }
        })
    }
}

struct World {
    center: Arc<Fake>,
    running: Running,
    replay: Option<(watch::Sender<bool>, tokio::task::JoinHandle<()>)>,
    owner: Arc<Ownership>,
    _dir: tempfile::TempDir,
}

impl World {
    async fn new(queue: bool) -> Self {
        let center = Arc::<Fake>::default();
        let mut world = Self::start(Arc::new(MemoryStore::new()), center.clone()).await;
        let mut annotations = json!({names::SOURCE: "root:shop"});
        if queue {
            annotations[names::OFFLINE_WRITES] = "queue".into();
        }
        center.with(|inner| {
            inner.content = Some(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "menu",
                "namespace": "default", "labels": {names::PROJECTED: "yes", "app": "shop"}, "annotations": annotations},
                "data": {"a": "0"}}));
        });
        center.deliver().await;
        world.replay();
        world
    }

    async fn start(store: Arc<dyn Store>, center: Arc<Fake>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let agent = Agent::new();
        let owner = Ownership::new(center.clone());
        let options = server::Options {
            observers: vec![agent.observer(), owner.observer()],
            owner: Some(owner.clone()),
            ..server::Options::new(dir.path(), store)
        };
        let running = front::start(options).await.unwrap();
        let _ = center.edge.set((running.server.clone(), agent));
        Self { center, running, replay: None, owner, _dir: dir }
    }

    /// The replaying task; one that ran before is dropped in the middle of whatever it does, as a crash would.
    fn replay(&mut self) {
        self.crash();
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(self.owner.clone().run(self.running.server.clone(), stopped));
        self.replay = Some((stop, task));
    }

    fn crash(&mut self) {
        if let Some((_, task)) = self.replay.take() {
            task.abort();
        }
    }

    async fn request(&self, method: &str, body: Value) -> (u16, Value) {
        let (code, body, _) = self.ask(method, body).await;
        (code, body)
    }

    /// The code, the body, and whether the write waits.
    async fn ask(&self, method: &str, body: Value) -> (u16, Value, bool) {
        let user = User { name: "alice".into(), groups: vec!["system:masters".into()], ..User::default() };
        let request =
            Request::builder().method(method).uri(PATH).header("content-type", "application/merge-patch+json");
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let response = self.running.server.clone().request_as(user, request.body(Full::new(body)).unwrap()).await;
        let code = response.status().as_u16();
        let waits =
            response.headers().get("warning").is_some_and(|text| text.to_str().unwrap().contains("OfflineWrite"));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap(), waits)
    }

    async fn patch(&self, data: Value) -> (u16, Value) {
        self.request("PATCH", json!({"data": data})).await
    }

    async fn here(&self) -> Value {
        self.request("GET", Value::Null).await.1
    }

    async fn settled(&self) {
        for _ in 0..2000 {
            if queue::waiting(&self.running.server).is_empty() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("the queue does not empty: {:?}", queue::waiting(&self.running.server));
    }

    fn states(&self) -> Vec<(String, u64)> {
        let snapshot = self.running.server.cache.snapshot(queue::COLLECTION);
        let state = |value: Value| {
            (value["status"]["state"].as_str().unwrap().to_owned(), value["status"]["code"].as_u64().unwrap_or(0))
        };
        snapshot.items.range("", "").map(|object| state(object.value())).collect()
    }
}

#[tokio::test]
async fn a_write_goes_to_the_center_in_the_clients_name() {
    let world = World::new(false).await;
    world.center.open(true);
    let (code, object) = world.patch(json!({"a": "1"})).await;
    assert_eq!((code, &object["data"]["a"]), (200, &json!("1")));
    let sent = world.center.with(|inner| inner.done.pop()).unwrap();
    assert_eq!((sent.user.name.as_str(), sent.verb.as_str(), sent.key.as_str()), ("alice", "patch", KEY));
    assert_eq!(sent.change, forward::Change::Patch(json!({"data": {"a": "1"}})));
    assert_eq!(sent.id, "");
    // Only the edge's part: nobody is asked.
    let (code, _) = world.request("PATCH", json!({"metadata": {"labels": {"rack": "4"}}})).await;
    assert_eq!((code, world.center.with(|inner| inner.done.len())), (200, 0));
    // The center is ahead: the change is made on top of it.
    world.center.with(|inner| inner.content.as_mut().unwrap()["data"]["b"] = "center".into());
    let (code, object) = world.patch(json!({"a": "2"})).await;
    assert_eq!((code, &object["data"]), (200, &json!({"a": "2", "b": "center"})));
    assert_eq!(object["metadata"]["labels"]["rack"], "4");
    world.center.with(|inner| inner.refuse = Some(403));
    assert_eq!(world.patch(json!({"a": "3"})).await.0, 403);
    world.center.with(|inner| (inner.refuse, inner.unanswered) = (None, 2));
    assert_eq!(world.patch(json!({"a": "4"})).await.0, 504, "nobody knows");
}

#[tokio::test]
async fn without_a_link_it_is_refused_or_waits() {
    let strict = World::new(false).await;
    let (code, status) = strict.patch(json!({"a": "1"})).await;
    assert_eq!((code, &status["details"]["retryAfterSeconds"]), (503, &json!(1)));
    assert_eq!(strict.request("DELETE", Value::Null).await.0, 503);

    let mut world = World::new(true).await;
    for n in 1..4 {
        assert_eq!(world.patch(json!({"a": n.to_string()})).await.1["data"]["a"], n.to_string());
    }
    assert_eq!(world.states().len(), 3);
    world.center.open(true);
    world.settled().await;
    assert_eq!(world.center.with(|inner| inner.content.clone()).unwrap()["data"]["a"], "3");
    assert!(world.states().is_empty() && world.here().await["metadata"]["annotations"][names::PENDING].is_null());

    // Away again: what is refused goes back, and what builds on it with it.
    world.center.open(false);
    world.patch(json!({"a": "4"})).await;
    world.patch(json!({"b": "5"})).await;
    world.center.with(|inner| inner.refuse = Some(403));
    world.center.open(true);
    world.settled().await;
    assert_eq!(world.states(), [("Refused".to_owned(), 403), ("Conflict".to_owned(), 409)]);
    assert_eq!(world.here().await["data"], json!({"a": "3"}));
    world.crash();
}

#[tokio::test]
async fn there_is_an_end_to_what_waits() {
    let world = World::new(true).await;
    let large = "x".repeat(900 << 10);
    let mut codes = Vec::new();
    for n in 0..20 {
        codes.push(world.patch(json!({"a": format!("{n}{large}")})).await.0);
    }
    assert!(codes.contains(&200) && codes.last() == Some(&503), "{codes:?}");
}

#[derive(Clone, Debug)]
enum Step {
    Write(u8),
    Delete,
    CenterWrites,
    Link(bool),
    Unanswered(u8),
    Refuse(bool),
    Crash,
    Pause,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..9u8).prop_map(Step::Write),
        1 => Just(Step::Delete),
        1 => Just(Step::CenterWrites),
        3 => any::<bool>().prop_map(Step::Link),
        2 => (1..4u8).prop_map(Step::Unanswered),
        1 => any::<bool>().prop_map(Step::Refuse),
        2 => Just(Step::Crash),
        3 => Just(Step::Pause),
    ];
    prop::collection::vec(step, 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Whatever happens: no write is done twice, none is lost silently, they are done in order, and in the end both agree.
    #[test]
    fn queued_writes_are_decided_once_in_order(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut world = World::new(true).await;
            let mut accepted = 0;
            // Nobody else decides on the object, and the edge knows all that the center has.
            let mut alone = !steps.iter().any(|s| matches!(s, Step::Delete | Step::CenterWrites | Step::Refuse(true)));
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Write(value) => {
                        let (code, _, waits) = world.ask("PATCH", json!({"data": {"a": format!("{n}-{value}")}})).await;
                        accepted += usize::from(waits);
                        alone &= code != 504;
                    }
                    Step::Delete => {
                        let (_, _, waits) = world.ask("DELETE", Value::Null).await;
                        accepted += usize::from(waits);
                    }
                    Step::CenterWrites => {
                        world.center.with(|inner| if let Some(content) = &mut inner.content { content["data"]["center"] = n.to_string().into(); });
                        if world.center.is_open() {
                            world.center.deliver().await;
                        }
                    }
                    Step::Link(open) => world.center.open(open),
                    Step::Unanswered(count) => world.center.with(|inner| inner.unanswered = usize::from(count) + 1),
                    Step::Refuse(refuse) => world.center.with(|inner| inner.refuse = refuse.then_some(403)),
                    Step::Crash => world.replay(),
                    Step::Pause => tokio::time::sleep(std::time::Duration::from_millis(700)).await,
                }
            }
            world.center.with(|inner| (inner.unanswered, inner.refuse) = (0, None));
            world.center.open(true);
            world.settled().await;
            let (done, content) = world.center.with(|inner| (inner.done.clone(), inner.content.clone()));
            let queued: Vec<&str> = done.iter().map(|write| write.id.as_str()).filter(|id| !id.is_empty()).collect();
            let mut once = queued.clone();
            once.sort();
            once.dedup();
            prop_assert_eq!(once.len(), queued.len(), "done twice");
            prop_assert_eq!(queued.len() + world.states().len(), accepted, "{:?}", world.states());
            prop_assert!(!alone || world.states().is_empty(), "a conflict with nobody: {:?}", world.states());
            world.center.deliver().await;
            let here = world.here().await;
            prop_assert_eq!(here.get("data"), content.as_ref().and_then(|content| content.get("data")));
            prop_assert!(here["metadata"]["annotations"][names::PENDING].is_null());
            tokio::time::sleep(std::time::Duration::from_secs(40)).await;
            prop_assert_eq!(world.center.with(|inner| inner.standing) as usize, world.states().len());
            world.crash();
            Ok(())
        })?;
    }
}
