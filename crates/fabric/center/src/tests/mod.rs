//! The fleet over a real server on a store in memory, with edges that never leave the process.

mod edge;
mod mailbox;
mod mailboxes;
mod placing;
mod rollouts;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use cache::object::Object;
use edge::{TestDisk, TestEdge};
use kinds::{EdgeId, names};
use link::{CloseReason, EdgeStatus};
use serde_json::{Value, json};
use server::Server;
use server::internal::Internal;
use store::{MemoryStore, Store};

use crate::{Fleet, target::condition};

/// What a fence writes: an object, and the edge's report of it.
const FENCE_WRITES: u64 = 2;

struct Center {
    fleet: Arc<Fleet>,
    running: front::Running,
    store: Arc<dyn Store>,
    _dir: tempfile::TempDir,
}

impl Center {
    async fn start(store: Arc<dyn Store>) -> Self {
        let fleet = Fleet::open(store.clone(), false).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let options = server::Options {
            mounts: fleet.mounts(),
            observers: vec![fleet.observer()],
            ..server::Options::new(dir.path(), store.clone())
        };
        let running = front::start(options).await.unwrap();
        fleet.start(&running.server).await.unwrap();
        Self { fleet, running, store, _dir: dir }
    }

    async fn new() -> Self {
        Self::start(Arc::new(MemoryStore::default())).await
    }

    fn server(&self) -> &Arc<Server> {
        &self.running.server
    }

    fn hand(&self) -> Internal {
        Internal::new(self.server(), "root", "test")
    }

    /// An edge that holds the objects of root.
    async fn join(&self, name: &str) -> TestEdge {
        let kind = self.hand().kind("workload.kcp.io", "v1alpha1", "synctargets").unwrap();
        let target = json!({"metadata": {"name": name, "annotations": {names::WORKSPACE: "root"}}});
        self.hand().ensure(&kind, "", target).await.unwrap();
        self.connect(name, Arc::default())
    }

    fn connect(&self, name: &str, disk: Arc<Mutex<TestDisk>>) -> TestEdge {
        TestEdge::start(&self.fleet, self.server(), &EdgeId::new("root", name).user(), disk)
    }

    async fn config(&self, name: &str, data: &str) {
        let kind = self.hand().kind("", "v1", "configmaps").unwrap();
        let value = json!({"metadata": {"name": name, "namespace": "default"}, "data": {"a": data}});
        self.hand().ensure(&kind, "default", value).await.unwrap();
        self.hand().change(&kind, "default", name, "", |value| value["data"]["a"] = data.into()).await.unwrap();
    }

    async fn delete(&self, group: &str, version: &str, resource: &str, namespace: &str, name: &str) {
        let kind = self.hand().kind(group, version, resource).unwrap();
        let object: Arc<Object> = self.hand().get(&kind, namespace, name).unwrap();
        self.hand().delete(&kind, &object, &Default::default()).await.unwrap();
    }

    async fn annotate(&self, name: &str, annotation: &str, value: Option<&str>) {
        let kind = self.hand().kind("workload.kcp.io", "v1alpha1", "synctargets").unwrap();
        let edit = |object: &mut Value| match value {
            Some(value) => object["metadata"]["annotations"][annotation] = value.into(),
            None => drop(object["metadata"]["annotations"].as_object_mut().unwrap().remove(annotation)),
        };
        self.hand().change(&kind, "", name, "", edit).await.unwrap().unwrap();
    }

    fn target(&self, name: &str) -> Value {
        let kind = self.hand().kind("workload.kcp.io", "v1alpha1", "synctargets").unwrap();
        self.hand().get(&kind, "", name).unwrap().value()
    }

    fn says(&self, name: &str, kind: &str) -> String {
        let target = self.target(name);
        let found = condition(&target, kind).cloned().unwrap_or_default();
        format!("{} {}", found["status"].as_str().unwrap_or("-"), found["message"].as_str().unwrap_or("-"))
    }

    /// Waits until an edge that holds the objects of root has one that is written now, and the center has a report of
    /// it. The session has dealt with everything that came before. Says how often the store was written meanwhile.
    async fn fence(&self, edge: &TestEdge) -> u64 {
        let before = self.store.revision().await.unwrap();
        let name = format!("fence-{before}");
        let key = format!("core/configmaps/default/{name}");
        self.config(&name, "1").await;
        until("the fence", || edge.holds().contains(&key)).await;
        edge.report(&key, Some("{}"));
        until("the report of the fence", || edge.pending_reports() == 0).await;
        self.store.revision().await.unwrap() - before
    }

    /// Waits until nothing is written but what a fence writes: the object and its report.
    async fn wait_quiet(&self, edge: &TestEdge) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.fence(edge).await != FENCE_WRITES {
            assert!(Instant::now() < end, "something is written again and again");
        }
    }

    async fn wait_says(&self, name: &str, kind: &str, start: &str) -> String {
        until(&format!("{kind} of {name} to say {start}"), || self.says(name, kind).starts_with(start)).await;
        self.says(name, kind)
    }
}

async fn until(what: &str, check: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn content(edge: &TestEdge, key: &str) -> Value {
    let disk = edge.disk.lock().unwrap();
    disk.holding.objects.get(key).map(|content| serde_json::from_slice(content).unwrap()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_go_down_and_reports_come_up() {
    let center = Center::new().await;
    center.config("before", "1").await;
    let florin = center.join("florin").await;
    let key = "core/configmaps/default/before";
    until("the first object", || florin.holds() == [key]).await;
    assert_eq!(content(&florin, key)["metadata"]["annotations"][names::SOURCE], "root");
    center.wait_says("florin", "Ready", "True it holds the objects of root").await;
    center.config("before", "2").await;
    center.config("after", "1").await;
    until("the changes", || content(&florin, key)["data"]["a"] == "2" && florin.holds().len() == 2).await;

    florin.report(key, Some(r#"{"ready":1}"#));
    until("the ack", || florin.pending_reports() == 0).await;
    let edge = EdgeId::new("root", "florin");
    let reported = center.fleet.reported(&edge, key).await.unwrap().unwrap();
    assert_eq!(reported.state.as_deref(), Some(&br#"{"ready":1}"#[..]));
    florin.report(key, None);
    until("the ack", || florin.pending_reports() == 0).await;
    assert_eq!(center.fleet.reports(&edge, "", 0).await.unwrap(), []);

    center.delete("", "v1", "configmaps", "default", "before").await;
    until("the deletion", || florin.holds().len() == 1).await;
    // Beside what somebody does nothing is written, and the edge stays where it is.
    center.wait_quiet(&florin).await;
    for _ in 0..20 {
        assert_eq!(center.fence(&florin).await, FENCE_WRITES);
    }
    assert!(florin.disk.lock().unwrap().online);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_edges_cost_one_write() {
    let center = Center::new().await;
    center.config("a", "1").await;
    let mut edges = Vec::new();
    for n in 0..50 {
        edges.push(center.join(&format!("edge-{n}")).await);
    }
    until("all", || edges.iter().all(|edge| edge.holds().len() == 1)).await;
    for n in 0..50 {
        center.wait_says(&format!("edge-{n}"), "Ready", "True").await;
    }
    assert_eq!(center.fleet.placing.count(), 1, "one set for all");
    center.wait_quiet(&edges[0]).await;
    let before = center.store.revision().await.unwrap();
    center.config("a", "2").await;
    let key = "core/configmaps/default/a";
    until("all", || edges.iter().all(|edge| content(edge, key)["data"]["a"] == "2")).await;
    center.fence(&edges[0]).await;
    assert_eq!(center.store.revision().await.unwrap(), before + 1 + FENCE_WRITES);
    for n in 0..50 {
        center.delete("workload.kcp.io", "v1alpha1", "synctargets", "", &format!("edge-{n}")).await;
    }
    until("the set to be let go of", || center.fleet.placing.count() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_of_most_are_held_until_confirmed() {
    let center = Center::new().await;
    for n in 0..12 {
        center.config(&format!("c{n}"), "1").await;
    }
    let florin = center.join("florin").await;
    until("all", || florin.holds().len() == 12).await;
    for n in 0..10 {
        center.delete("", "v1", "configmaps", "default", &format!("c{n}")).await;
    }
    let held = center.wait_says("florin", "DeletionHeld", "True").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let held = if held.contains("=") { center.says("florin", "DeletionHeld") } else { held };
    let left = florin.holds().len();
    assert!(left >= 6, "{left} are left");
    let number = held.rsplit('=').next().unwrap().to_owned();
    center.annotate("florin", names::CONFIRM_DELETION, Some(&number)).await;
    until("the deletions", || florin.holds().len() == 2).await;
    center.wait_says("florin", "DeletionHeld", "False").await;
    until("the annotation to be consumed", || {
        center.target("florin")["metadata"]["annotations"].get(names::CONFIRM_DELETION).is_none()
    })
    .await;
    // Naming another workspace takes everything away, and that too is held.
    center.annotate("florin", names::WORKSPACE, None).await;
    center.wait_says("florin", "DeletionHeld", "True").await;
    assert_eq!(florin.holds().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_center_is_found_out_and_adopted() {
    let store = Arc::new(MemoryStore::default());
    let center = Center::start(store.clone()).await;
    center.config("a", "1").await;
    let disk = Arc::<Mutex<TestDisk>>::default();
    let florin = center.join("florin").await;
    until("the object", || florin.holds().len() == 1).await;
    // A start on the same store is no other history.
    let disk_of = florin.disk.clone();
    drop(florin);
    center.running.server.cache.store().revision().await.unwrap();
    let again = Center::start(store).await;
    let florin = again.connect("florin", disk_of.clone());
    again.config("b", "1").await;
    until("the change", || florin.holds().len() == 2).await;
    drop(florin);
    drop(disk);

    let other = Center::new().await;
    other.config("c", "1").await;
    let target = other.join("florin").await;
    drop(target);
    let florin = other.connect("florin", disk_of);
    florin.report("core/configmaps/default/a", Some("state"));
    let said = other.wait_says("florin", "RolledBack", "True").await;
    assert!(said.ends_with(": selvedge edge adopt root:florin"), "{said}");
    assert_eq!(florin.holds().len(), 2, "it keeps what it has");
    assert!(other.says("florin", "Ready").starts_with("False"));
    other.annotate("florin", names::ADOPT, Some("yes")).await;
    until("the new center's objects", || florin.holds() == ["core/configmaps/default/c"]).await;
    other.wait_says("florin", "RolledBack", "False").await;
    until("the annotation to be consumed", || {
        other.target("florin")["metadata"]["annotations"].get(names::ADOPT).is_none()
    })
    .await;
    until("the reports", || florin.pending_reports() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_shown_where_they_matter() {
    let center = Center::new().await;
    center.config("good", "1").await;
    let florin = center.join("florin").await;
    until("the object", || florin.holds().len() == 1).await;
    florin.disk.lock().unwrap().refuses.insert("core/configmaps/default/bad".to_owned());
    center.config("bad", "1").await;
    center.config("better", "1").await;
    until("the others", || florin.holds().len() == 2).await;
    let said = center.wait_says("florin", "ObjectsRefused", "True").await;
    assert!(said.contains("could not take 1: core/configmaps/default/bad: no room"), "{said}");
    let events = || {
        let found = center.server().cache.snapshot("core/events").items;
        found.range("root/default/", "").map(|object| object.value()).find(|e| e["reason"] == "RefusedByEdge")
    };
    until("the event", || events().is_some()).await;
    let event = events().unwrap();
    assert_eq!(event["involvedObject"]["name"], "bad");
    assert!(event["message"].as_str().unwrap().contains("root:florin could not take it: no room"), "{event}");
    florin.disk.lock().unwrap().refuses.clear();
    center.config("bad", "2").await;
    until("the object that was bad", || florin.holds().len() == 3).await;
    center.wait_says("florin", "ObjectsRefused", "False").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_session_a_cut_and_a_revocation_end_a_session() {
    let center = Center::new().await;
    let florin = center.join("florin").await;
    center.wait_says("florin", "Ready", "True").await;
    let closed = |edge: &TestEdge, reason| {
        let wanted = EdgeStatus::Closed(reason);
        edge.disk.lock().unwrap().statuses.contains(&wanted)
    };
    let twin = center.connect("florin", Arc::default());
    until("the older one to be told", || closed(&florin, CloseReason::Superseded)).await;
    drop(twin);

    let _ = center.wait_says("florin", "Ready", "True").await;
    center.annotate("florin", names::LINK, Some("cut")).await;
    until("the cut", || !florin.disk.lock().unwrap().online).await;
    let said = center.wait_says("florin", "Ready", "False since").await;
    assert!(said.contains("its link was cut here"), "{said}");
    // Another edge joins and does its work meanwhile.
    let guilder = center.join("guilder").await;
    center.fence(&guilder).await;
    assert!(!center.fleet.is_connected(&EdgeId::new("root", "florin")), "it stays cut");
    center.annotate("florin", names::LINK, None).await;
    until("it to be back", || florin.disk.lock().unwrap().online).await;
    center.wait_says("florin", "Ready", "True").await;

    let started = Instant::now();
    center.delete("workload.kcp.io", "v1alpha1", "synctargets", "", "florin").await;
    until("the revocation", || closed(&florin, CloseReason::Revoked)).await;
    assert!(started.elapsed() < Duration::from_secs(1));
    until("it to be gone", || !florin.disk.lock().unwrap().online).await;
}

#[tokio::test]
async fn a_session_is_small() {
    let center = Center::new().await;
    let florin = center.join("florin").await;
    drop(florin);
    let edge = center.fleet.edges.get(&EdgeId::new("root", "florin")).unwrap();
    let (line, _other) = edge::pair();
    let credential = crate::session::Credential { text: String::new(), ends: i64::MAX };
    let task = crate::session::run(center.fleet.clone(), center.server().clone(), edge, credential, line);
    let (task, machine) = (size_of_val(&task), size_of::<link::Session>());
    let live = size_of::<crate::edges::Live>() + size_of::<crate::edges::Edge>();
    assert!(
        task + live < 6200,
        "a session's task takes {task} bytes ({machine} of them the machine), and {live} beside it"
    );
}
