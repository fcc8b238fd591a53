//! The Workspace objects of mailboxes, over a real server.

use std::collections::BTreeSet;

use kinds::mailbox;
use store::{Commit, Op};

use super::*;

fn target(name: &str) -> (String, Value) {
    let object = json!({"kind": "SyncTarget", "apiVersion": "workload.kcp.io/v1alpha1",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:00:00Z"}});
    (format!("workload.kcp.io/synctargets/root//{name}"), object)
}

fn workspace(name: &str, of_type: &str, edge: &str) -> (String, Value) {
    let annotations = json!({mailbox::SYNC_TARGET: edge, mailbox::INVENTORY: "root"});
    let object = json!({"kind": "Workspace", "apiVersion": "tenancy.kcp.io/v1alpha1",
        "metadata": {"name": name, "uid": "u", "annotations": annotations},
        "spec": {"type": {"name": of_type, "path": "root"}, "cluster": format!("{}:{name}", mailbox::PROVIDER)},
        "status": {"phase": "Ready"}});
    (format!("tenancy.kcp.io/workspaces/{}//{name}", mailbox::PROVIDER), object)
}

async fn put(store: &Arc<dyn Store>, objects: impl IntoIterator<Item = (String, Value)>) {
    let ops = objects.into_iter().map(|(key, value)| Op::Put { key, value: cache::object::encode(&value) });
    store.commit(Commit { ops: ops.collect(), ..Commit::default() }).await.unwrap();
}

fn shown(center: &Center) -> Vec<Arc<Object>> {
    let all = center.server().cache.snapshot("tenancy.kcp.io/workspaces");
    all.items.range(&format!("{}/", mailbox::PROVIDER), "").cloned().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_missed_is_made_up_for_in_few_commits() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    put(&store, (0..200).map(|n| target(&format!("e{n}")))).await;
    let gone = mailbox::name("root", "uid-gone");
    let moved = mailbox::name("root", "uid-e7");
    put(
        &store,
        [workspace(&gone, "mailbox", "gone"), workspace(&moved, "mailbox", "e7"), workspace("mine", "universal", "")],
    )
    .await;
    let center = Center::start(store).await;
    until("mailboxes", || shown(&center).len() == 201).await;
    until("the one of nobody to go", || !shown(&center).iter().any(|object| object.name() == gone)).await;
    assert!(shown(&center).iter().any(|object| object.name() == "mine"), "what is no mailbox is left alone");
    let mailboxes: Vec<_> = shown(&center).into_iter().filter(|object| object.name() != "mine").collect();
    let commits: BTreeSet<u64> = mailboxes.iter().map(|object| object.revision).collect();
    assert!(commits.len() <= 5, "{commits:?}");
    for object in &mailboxes {
        let value = object.value();
        assert!(object.json.len() < 1000 && value["spec"]["URL"].as_str().unwrap().ends_with(object.name()), "{value}");
        let path = format!("{}:{}", mailbox::PROVIDER, object.name());
        assert_eq!(
            center.fleet.of_mailbox(&path).unwrap().name,
            value["metadata"]["annotations"][mailbox::SYNC_TARGET]
        );
    }
    let kept = mailboxes.iter().find(|object| object.name() == moved).unwrap().value();
    assert_eq!(kept["metadata"]["uid"], "u", "one that says something old is the same one still");
    let before = center.server().cache.revision();
    let hand = Internal::new(center.server(), mailbox::PROVIDER, "test");
    let kind = hand.kind("tenancy.kcp.io", "v1alpha1", "workspaces").unwrap();
    let forge = |value: &mut Value| value["metadata"]["annotations"][mailbox::SYNC_TARGET] = "other".into();
    hand.change(&kind, "", &moved, "", forge).await.unwrap();
    let told = || {
        hand.get(&kind, "", &moved).is_some_and(|o| o.value()["metadata"]["annotations"][mailbox::SYNC_TARGET] == "e7")
    };
    until("the annotation to be put right", told).await;
    // Nothing else was left to do, so nothing else was written.
    let others = shown(&center).iter().filter(|object| object.revision > before && object.name() != moved).count();
    assert_eq!(others, 0);
}
