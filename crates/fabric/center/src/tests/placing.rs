//! Placements over a real server: what arrives at edges, and what is written about it.

use super::*;

const PAGE: &str = "core/configmaps/common/page";
const NAMESPACE: &str = "core/namespaces//common";
const CONFIG: &str = "edge.kcp.io/syncerconfigs//the-one";

impl Center {
    async fn make(&self, group: &str, resource: &str, namespace: &str, value: Value) {
        let version = if matches!(group, "" | "apps") { "v1" } else { "v1alpha1" };
        let kind = self.hand().kind(group, version, resource).unwrap();
        self.hand().ensure(&kind, namespace, value).await.unwrap();
    }

    async fn change(&self, group: &str, resource: &str, namespace: &str, name: &str, edit: impl Fn(&mut Value)) {
        let version = if matches!(group, "" | "apps") { "v1" } else { "v1alpha1" };
        let kind = self.hand().kind(group, version, resource).unwrap();
        self.hand().change(&kind, namespace, name, "", edit).await.unwrap().unwrap();
    }

    /// An edge that holds what is placed on it, by a Location of the same name.
    async fn place(&self, name: &str, labels: Value) -> TestEdge {
        let target = json!({"metadata": {"name": name, "labels": {"id": name}}});
        self.make("workload.kcp.io", "synctargets", "", target).await;
        let location = json!({"metadata": {"name": name, "labels": labels, "annotations": {"loc-name": name}}, "spec": {
            "resource": {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"},
            "instanceSelector": {"matchLabels": {"id": name}}}});
        self.make("scheduling.kcp.io", "locations", "", location).await;
        self.connect(name, Arc::default())
    }

    async fn stuff(&self, count: usize) {
        self.make("", "namespaces", "", json!({"metadata": {"name": "common", "labels": {"common": "si"}}})).await;
        for n in 0..count {
            let name = if n == 0 { "page".to_owned() } else { format!("page-{n}") };
            let page = json!({"metadata": {"name": name, "namespace": "common"}, "data": {"a": "1"}});
            self.make("", "configmaps", "common", page).await;
        }
    }

    /// Waits until an edge has an edit of another page: what came before has been dealt with.
    async fn edit_another_page(&self, edge: &TestEdge) {
        self.change("", "configmaps", "common", "page-1", |value| value["data"]["a"] = "fence".into()).await;
        let key = "core/configmaps/common/page-1";
        until("the edit of another page", || content(edge, key)["data"]["a"] == "fence").await;
    }

    async fn placement(&self, name: &str, labels: Value) {
        let spec = json!({"locationSelectors": [{"matchLabels": labels}], "namespaceSelector": {"matchLabels": {"common": "si"}}});
        self.make("edge.kcp.io", "edgeplacements", "", json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    fn slice(&self, name: &str) -> Vec<String> {
        let found = self.server().cache.get("edge.kcp.io/singleplacementslices", &format!("root//{name}"));
        let value = found.map(|object| object.value()).unwrap_or_default();
        let named = |one: &Value| one["syncTargetName"].as_str().unwrap().to_owned();
        value["destinations"].as_array().into_iter().flatten().map(named).collect()
    }

    fn instances(&self, name: &str) -> (Option<u64>, Option<u64>) {
        let found = self.server().cache.get("scheduling.kcp.io/locations", &format!("root//{name}"));
        let status = found.map(|object| object.value()["status"].clone()).unwrap_or_default();
        (status["instances"].as_u64(), status["availableInstances"].as_u64())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placed_objects_go_where_they_are_placed() {
    let center = Center::new().await;
    center.stuff(1).await;
    center.placement("c", json!({"env": "prod"})).await;
    let florin = center.place("florin", json!({"env": "prod"})).await;
    let guilder = center.place("guilder", json!({"env": "test"})).await;
    until("what is placed", || florin.holds() == [PAGE, NAMESPACE, CONFIG]).await;
    center.wait_says("florin", "Ready", "True it holds what is placed on it").await;
    center.wait_says("guilder", "Ready", "True nothing is meant for it yet").await;
    assert_eq!(guilder.holds(), [""; 0]);
    until("the slice", || center.slice("c") == ["florin"]).await;
    until("the Location's status", || center.instances("florin") == (Some(1), Some(1))).await;

    // One edit is one write and reaches those whom it concerns.
    let edit = async |to: String| {
        let before = center.store.revision().await.unwrap();
        center.change("", "configmaps", "common", "page", |value| value["data"]["a"] = to.as_str().into()).await;
        until("the edit", || content(&florin, PAGE)["data"]["a"] == to.as_str()).await;
        center.store.revision().await.unwrap() - before
    };
    // What was written at the start comes to an end.
    let end = Instant::now() + Duration::from_secs(20);
    for n in 0.. {
        if edit(format!("early {n}")).await == 1 {
            break;
        }
        assert!(Instant::now() < end, "something is written again and again");
    }
    for n in 0..5 {
        assert_eq!(edit(format!("later {n}")).await, 1);
    }

    // A Location with another label: the workload is there once, and not where it was.
    center
        .change("scheduling.kcp.io", "locations", "", "guilder", |value| {
            value["metadata"]["labels"]["env"] = "prod".into()
        })
        .await;
    until("the workload", || guilder.holds() == [PAGE, NAMESPACE, CONFIG]).await;
    until("the slice", || center.slice("c") == ["florin", "guilder"]).await;
    // Parameters make two classes of one, while both are connected.
    center
        .change("", "configmaps", "common", "page", |value| {
            value["metadata"]["annotations"] = json!({"edge.kcp.io/expand-parameters": "true"});
            value["data"]["a"] = "at %(loc-name)".into();
        })
        .await;
    until("each its own", || {
        content(&florin, PAGE)["data"]["a"] == "at florin" && content(&guilder, PAGE)["data"]["a"] == "at guilder"
    })
    .await;
    assert!(
        !florin.disk.lock().unwrap().statuses.iter().any(|status| matches!(status, EdgeStatus::Closed(_))),
        "nobody had to connect again"
    );

    // A slice that somebody spoils is put right.
    center.delete("edge.kcp.io", "v1alpha1", "singleplacementslices", "", "c").await;
    until("the slice to be back", || center.slice("c") == ["florin", "guilder"]).await;
    center.delete("edge.kcp.io", "v1alpha1", "edgeplacements", "", "c").await;
    until("the slice to be gone", || center.slice("c").is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_placement_that_matches_nothing_trips_the_fuse() {
    let center = Center::new().await;
    center.stuff(12).await;
    center.placement("c", json!({"env": "prod"})).await;
    let florin = center.place("florin", json!({"env": "prod"})).await;
    until("all", || florin.holds().len() == 14).await;
    center
        .change("edge.kcp.io", "edgeplacements", "", "c", |value| {
            value["spec"]["namespaceSelector"]["matchLabels"]["common"] = "no".into();
        })
        .await;
    let held = center.wait_says("florin", "DeletionHeld", "True").await;
    assert!(held.contains("13 of 14"), "{held}");
    assert_eq!(florin.holds().len(), 14);
    center
        .change("edge.kcp.io", "edgeplacements", "", "c", |value| {
            value["spec"]["namespaceSelector"]["matchLabels"]["common"] = "si".into();
        })
        .await;
    center.wait_says("florin", "DeletionHeld", "False").await;
    assert_eq!(florin.holds().len(), 14);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_changes_nothing_and_remembers_what_unschedulable_edges_hold() {
    let store = Arc::new(MemoryStore::default());
    let center = Center::start(store.clone()).await;
    center.stuff(3).await;
    center.placement("c", json!({"env": "prod"})).await;
    let florin = center.place("florin", json!({"env": "prod"})).await;
    until("all", || florin.holds().len() == 5).await;
    until("the slice", || center.slice("c") == ["florin"]).await;
    center
        .change("workload.kcp.io", "synctargets", "", "florin", |value| value["spec"]["unschedulable"] = true.into())
        .await;
    center.placement("late", json!({"env": "prod"})).await;
    until("the empty slice", || center.server().cache.get("edge.kcp.io/singleplacementslices", "root//late").is_some())
        .await;
    let disk = florin.disk.clone();
    drop(florin);
    until("its session to end", || !center.fleet.is_connected(&EdgeId::new("root", "florin"))).await;
    let again = Center::start(store).await;
    let florin = again.connect("florin", disk);
    again.wait_says("florin", "Ready", "True").await;
    again.edit_another_page(&florin).await;
    assert_eq!((florin.holds().len(), again.slice("c"), again.slice("late").len()), (5, vec!["florin".to_owned()], 0));
    again
        .change("workload.kcp.io", "synctargets", "", "florin", |value| value["spec"]["unschedulable"] = false.into())
        .await;
    until("the late one", || again.slice("late") == ["florin"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_made_is_kept_also_after_a_restart() {
    let store = Arc::new(MemoryStore::default());
    let center = Center::start(store.clone()).await;
    center.stuff(3).await;
    center.placement("c", json!({"env": "prod"})).await;
    let florin = center.place("florin", json!({"env": "prod"})).await;
    until("all", || florin.holds().len() == 5).await;
    center
        .change("", "configmaps", "common", "page", |value| {
            value["metadata"]["annotations"] = json!({"edge.kcp.io/customizer": "gone"});
            value["data"]["a"] = "2".into();
        })
        .await;
    let id = placement::Id::new("root", "c");
    until("the fault", || center.fleet.placing.read(|engine| engine.faults(&id, 9).len()) == 1).await;
    assert_eq!(content(&florin, PAGE)["data"]["a"], "1");
    let disk = florin.disk.clone();
    drop(florin);
    let again = Center::start(store).await;
    let florin = again.connect("florin", disk);
    again.wait_says("florin", "Ready", "True").await;
    again.edit_another_page(&florin).await;
    assert_eq!((florin.holds().len(), content(&florin, PAGE)["data"]["a"].clone()), (5, json!("1")));
}
