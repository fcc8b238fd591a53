//! The agent on a real server, over a store in memory.

mod applying;
mod driving;
mod reporting;
mod upsyncing;

use std::sync::Arc;

use front::Running;
use kinds::{ObjectKey, names};
use link::{ApplyFailure, Batch, Key, MemoryDesired, Position, Tree};
use serde_json::{Value, json};
use server::Server;
use store::{Commit, Op, Store};

use crate::{agent::Agent, apply, book::Book, held::Held, report::View};

pub struct Edge {
    pub running: Running,
    pub agent: Arc<Agent>,
    _dir: tempfile::TempDir,
    seq: std::cell::Cell<u64>,
}

/// As a first start, or on a store that was used before.
pub async fn edge(store: Arc<dyn Store>) -> Edge {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::new();
    let options = server::Options { observers: vec![agent.observer()], ..server::Options::new(dir.path(), store) };
    let running = front::start(options).await.unwrap();
    agent.begin(&running.server).await.unwrap();
    agent.serve(&running.server);
    Edge { running, agent, _dir: dir, seq: 0.into() }
}

impl Edge {
    pub fn server(&self) -> &Arc<Server> {
        &self.running.server
    }

    pub fn book(&self) -> &Arc<Book> {
        self.agent.book()
    }

    pub fn view(&self) -> View<'_> {
        View { book: self.book(), server: self.server() }
    }

    pub async fn apply(&self, changes: &[(&str, Option<Value>)]) -> Result<(), ApplyFailure> {
        self.seq.set(self.seq.get() + 1);
        let changes = changes.iter().map(|(key, content)| (Key::from(*key), content.as_ref().map(bytes))).collect();
        let position = Position { incarnation: 1, revision: self.seq.get() };
        let batch = Batch { session: 1, seq: self.seq.get(), position, adopt: false, changes };
        apply::apply(self.server(), self.book(), &batch).await
    }

    /// The keys that were refused, and why.
    pub async fn refused(&self, changes: &[(&str, Option<Value>)]) -> Vec<(Key, String)> {
        match self.apply(changes).await {
            Err(ApplyFailure::Keys(keys)) => keys,
            other => panic!("{other:?}"),
        }
    }

    pub fn get(&self, key: &str) -> Option<Value> {
        let key = ObjectKey::parse(key).unwrap();
        apply::place_of(self.server(), &key).get().map(|object| object.value())
    }

    /// A client of the edge writes.
    pub async fn write(&self, key: &str, value: &Value) {
        let place = ObjectKey::parse(key).unwrap();
        let op = Op::Put { key: place.in_store("root"), value: cache::object::encode(value) };
        assert!(apply::commit_and_see(self.server(), Commit { ops: vec![op], ..Commit::default() }).await.unwrap());
    }

    pub async fn edit(&self, key: &str, edit: impl FnOnce(&mut Value)) {
        let mut value = self.get(key).unwrap();
        edit(&mut value);
        self.write(key, &value).await;
    }

    pub async fn delete(&self, key: &str) {
        let op = Op::Delete { key: ObjectKey::parse(key).unwrap().in_store("root") };
        assert!(apply::commit_and_see(self.server(), Commit { ops: vec![op], ..Commit::default() }).await.unwrap());
    }

    pub fn held(&self, key: &str) -> Option<Held> {
        self.agent.held(key)
    }
}

pub fn bytes(value: &Value) -> bytes::Bytes {
    serde_json::to_vec(value).unwrap().into()
}

/// A ConfigMap as the center sends it.
pub fn map(name: &str, data: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default",
        "labels": {names::PROJECTED: "yes", "app": "shop"}, "annotations": {names::SOURCE: "root:shop"}},
        "data": {"k": data}})
}

pub fn deployment(image: &str) -> Value {
    json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "web", "namespace": "default",
        "labels": {names::PROJECTED: "yes"}, "annotations": {names::SOURCE: "root:shop"}},
        "spec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": image,
                "imagePullPolicy": "Always", "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File", "resources": {}}], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
                "terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler", "securityContext": {}}}}})
}

pub const WEB: &str = "apps/deployments/default/web";

/// What the center would compare with.
pub fn desired(objects: &[(&str, &Value)]) -> MemoryDesired {
    let mut desired = MemoryDesired::new(1);
    for (key, value) in objects {
        desired.put(&Key::from(*key), bytes(value));
    }
    desired
}

/// The edge's tree is that of exactly these objects.
pub fn assert_holds(edge: &Edge, objects: &[(&str, &Value)]) {
    let want = desired(objects);
    assert_eq!((edge.book().count(), edge.book().root()), (want.count(), want.root()));
}
