//! Changes that go to some edges first, with edges that never leave the process.

use super::*;

const PAGE: &str = "core/configmaps/shop/page";
const WEB: &str = "apps/deployments/shop/web";
const GOOD: &str = r#"{"status":{"replicas":1,"updatedReplicas":1,"availableReplicas":1}}"#;
const BAD: &str = r#"{"status":{"conditions":[{"type":"ReplicaFailure","status":"True","message":"no such image"}]}}"#;

impl Center {
    async fn there_is(&self, group: &str, version: &str, resource: &str, namespace: &str, value: Value) {
        let kind = self.hand().kind(group, version, resource).unwrap();
        self.hand().ensure(&kind, namespace, value).await.unwrap();
    }

    /// Edges that a placement finds, and what it places.
    async fn shop(&self, edges: usize) -> Vec<TestEdge> {
        let meta = |name: &str| json!({"name": name, "labels": {"shop": "yes"}});
        self.there_is("", "v1", "namespaces", "", json!({"metadata": meta("shop")})).await;
        self.page("1").await;
        let spec = json!({"resource": {"group": "workload.kcp.io", "version": "v1alpha1", "resource": "synctargets"},
            "instanceSelector": {"matchLabels": {"shop": "yes"}}});
        let location = json!({"metadata": meta("everywhere"), "spec": spec});
        self.there_is("scheduling.kcp.io", "v1alpha1", "locations", "", location).await;
        let mut all = Vec::new();
        for n in 0..edges {
            let name = format!("edge-{n}");
            self.there_is("workload.kcp.io", "v1alpha1", "synctargets", "", json!({"metadata": meta(&name)})).await;
            all.push(self.connect(&name, Arc::default()));
        }
        all
    }

    async fn page(&self, data: &str) {
        let kind = self.hand().kind("", "v1", "configmaps").unwrap();
        let value = json!({"metadata": {"name": "page", "namespace": "shop"}, "data": {"a": data}});
        self.hand().ensure(&kind, "shop", value).await.unwrap();
        self.hand().change(&kind, "shop", "page", "", |value| value["data"]["a"] = data.into()).await.unwrap();
    }

    async fn web(&self, image: &str) {
        let value = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": image}]}}}});
        self.there_is("apps", "v1", "deployments", "shop", value).await;
        let kind = self.hand().kind("apps", "v1", "deployments").unwrap();
        let edit = |value: &mut Value| value["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
        self.hand().change(&kind, "shop", "web", "", edit).await.unwrap();
    }

    async fn roll_out(&self, rollout: Value) {
        let selector = json!({"matchLabels": {"shop": "yes"}});
        let mut spec = json!({"locationSelectors": [selector], "namespaceSelector": selector});
        if !rollout.is_null() {
            spec["rollout"] = rollout;
        }
        self.there_is(
            "edge.kcp.io",
            "v1alpha1",
            "edgeplacements",
            "",
            json!({"metadata": {"name": "p"}, "spec": spec}),
        )
        .await;
    }

    async fn edit_placement(&self, edit: impl Fn(&mut Value)) {
        let kind = self.hand().kind("edge.kcp.io", "v1alpha1", "edgeplacements").unwrap();
        self.hand().change(&kind, "", "p", "", edit).await.unwrap().unwrap();
    }

    fn rollout(&self) -> Value {
        let kind = self.hand().kind("edge.kcp.io", "v1alpha1", "edgeplacements").unwrap();
        self.hand().get(&kind, "", "p").unwrap().value()["status"]["rollout"].clone()
    }

    async fn wait_phase(&self, phase: &str, revision: u64) {
        let is_so = || {
            let rollout = self.rollout();
            rollout["phase"] == phase && rollout["revision"] == revision
        };
        let end = Instant::now() + Duration::from_secs(20);
        while !is_so() {
            assert!(Instant::now() < end, "waited in vain for {phase} at {revision}: {}", self.rollout());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn with_page(edges: &[TestEdge], data: &str) -> usize {
    edges.iter().filter(|edge| content(edge, PAGE)["data"]["a"] == data).count()
}

/// Waits until the center has reports of all edges that say nothing of their health, three times.
async fn report_something_else(edges: &[TestEdge]) {
    for state in [r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#] {
        edges.iter().for_each(|edge| edge.report(PAGE, Some(state)));
        until("the reports", || edges.iter().all(|edge| edge.pending_reports() == 0)).await;
    }
}

fn with_image<'a>(edges: &'a [TestEdge], image: &str) -> Vec<&'a TestEdge> {
    let has = |edge: &&TestEdge| content(edge, WEB)["spec"]["template"]["spec"]["containers"][0]["image"] == image;
    edges.iter().filter(has).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_go_in_batches_and_wait_for_health() {
    let center = Center::new().await;
    let edges = center.shop(5).await;
    center.roll_out(json!({"batch": 2, "maxFailures": 0})).await;
    center.wait_phase("Complete", 1).await;
    assert_eq!(with_page(&edges, "1"), 5);
    let said = center.rollout();
    assert_eq!((&said["total"], &said["ready"], &said["unavailable"]), (&json!(5), &json!(5), &json!(0)), "{said}");

    // Nobody goes on before those that have it say that they are well.
    center.web("web:1").await;
    until("the first batch", || with_image(&edges, "web:1").len() == 2).await;
    center.wait_phase("Progressing", 2).await;
    report_something_else(&edges).await;
    assert_eq!(with_image(&edges, "web:1").len(), 2);
    for wanted in [4, 5] {
        with_image(&edges, "web:1").iter().for_each(|edge| edge.report(WEB, Some(GOOD)));
        until("the next batch", || with_image(&edges, "web:1").len() == wanted).await;
    }
    with_image(&edges, "web:1").iter().for_each(|edge| edge.report(WEB, Some(GOOD)));
    center.wait_phase("Complete", 2).await;

    // What does not work stops where it is; what is declared next goes through.
    center.web("web:broken").await;
    until("the first batch", || with_image(&edges, "web:broken").len() == 2).await;
    with_image(&edges, "web:broken")[0].report(WEB, Some(BAD));
    center.wait_phase("Stopped", 3).await;
    let said = center.rollout();
    assert!(said["message"].as_str().unwrap().contains("no such image"), "{said}");
    edges.iter().for_each(|edge| edge.report(WEB, Some(GOOD)));
    center.web("web:2").await;
    until("everybody", || with_image(&edges, "web:2").len() == 5).await;
    center.wait_phase("Complete", 4).await;
    assert_eq!(with_image(&edges, "web:broken").len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_center_that_starts_anew_goes_on() {
    let store = Arc::new(MemoryStore::default());
    let center = Center::start(store.clone()).await;
    let edges = center.shop(4).await;
    center.roll_out(json!({"batch": 1})).await;
    center.wait_phase("Complete", 1).await;
    center.web("web:1").await;
    until("the first", || with_image(&edges, "web:1").len() == 1).await;
    center.wait_phase("Progressing", 2).await;
    let had: Vec<bool> = edges.iter().map(|edge| !content(edge, WEB).is_null()).collect();
    let disks: Vec<_> = edges.iter().map(|edge| edge.disk.clone()).collect();
    drop(edges);
    drop(center);

    // Meanwhile nothing is known of edges, and what is declared is another thing.
    let center = Center::start(store).await;
    center.page("2").await;
    let edges: Vec<TestEdge> =
        disks.into_iter().enumerate().map(|(n, disk)| center.connect(&format!("edge-{n}"), disk)).collect();
    center.wait_phase("Progressing", 3).await;
    until("the first again", || with_page(&edges, "2") == 1).await;
    report_something_else(&edges).await;
    let has: Vec<bool> = edges.iter().map(|edge| !content(edge, WEB).is_null()).collect();
    assert_eq!(has, had, "the same one, and no other");
    assert_eq!(with_page(&edges, "1"), 3, "the others hold what they had");
    for n in 2..=4 {
        edges.iter().for_each(|edge| edge.report(WEB, Some(GOOD)));
        until("the next", || with_page(&edges, "2") == n).await;
    }
    edges.iter().for_each(|edge| edge.report(WEB, Some(GOOD)));
    center.wait_phase("Complete", 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turned_on_paused_resumed_and_turned_off() {
    let center = Center::new().await;
    let edges = center.shop(3).await;
    center.roll_out(json!(null)).await;
    until("everybody at once", || with_page(&edges, "1") == 3).await;
    center.edit_placement(|value| value["spec"]["rollout"] = json!({"batch": 1, "paused": true})).await;
    center.wait_phase("Complete", 1).await;
    center.page("2").await;
    center.wait_phase("Paused", 2).await;
    assert_eq!(with_page(&edges, "1"), 3);
    center.edit_placement(|value| value["spec"]["rollout"]["paused"] = false.into()).await;
    center.wait_phase("Complete", 2).await;
    assert_eq!(with_page(&edges, "2"), 3);

    // A refusal is a failure, and somebody may go on all the same.
    edges[0].disk.lock().unwrap().refuses.insert(PAGE.to_owned());
    center.page("3").await;
    center.wait_phase("Stopped", 3).await;
    center.edit_placement(|value| value["metadata"]["annotations"][placement::rollout::RESUME] = "yes".into()).await;
    until("the others", || with_page(&edges, "3") == 2).await;
    until("the annotation to be consumed", || {
        let kind = center.hand().kind("edge.kcp.io", "v1alpha1", "edgeplacements").unwrap();
        let value = center.hand().get(&kind, "", "p").unwrap().value();
        value["metadata"]["annotations"].get(placement::rollout::RESUME).is_none()
    })
    .await;
    edges[0].disk.lock().unwrap().refuses.clear();
    center.page("3, smaller").await;
    center.wait_phase("Complete", 4).await;

    // What cannot be customized goes nowhere, and does not pass for done.
    let kind = center.hand().kind("", "v1", "configmaps").unwrap();
    let edit = |to: Option<&str>| {
        let to = to.map(str::to_owned);
        move |value: &mut Value| match &to {
            Some(to) => value["metadata"]["annotations"] = json!({"edge.kcp.io/customizer": to}),
            None => drop(value["metadata"].as_object_mut().unwrap().remove("annotations")),
        }
    };
    center.hand().change(&kind, "shop", "page", "", edit(Some("nobody"))).await.unwrap();
    center.wait_phase("Stopped", 5).await;
    assert!(center.rollout()["message"].as_str().unwrap().contains("cannot be customized"), "{}", center.rollout());
    center.hand().change(&kind, "shop", "page", "", edit(None)).await.unwrap();
    center.wait_phase("Complete", 6).await;

    center.edit_placement(|value| drop(value["spec"].as_object_mut().unwrap().remove("rollout"))).await;
    center.page("4").await;
    until("everybody at once", || with_page(&edges, "4") == 3).await;
    until("nothing to be said of it", || center.rollout().is_null()).await;
    // What was kept of it is removed after the status.
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let left = center.store.range(store::Range::prefix("~rollouts/"), 0, None).await.unwrap().entries;
        if left.is_empty() {
            break;
        }
        assert!(Instant::now() < end, "{left:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_is_written_by_its_batches_not_by_its_edges() {
    let center = Center::new().await;
    let edges = center.shop(100).await;
    center.roll_out(json!({"batch": "25%"})).await;
    center.wait_phase("Complete", 1).await;
    let before = center.store.revision().await.unwrap();
    center.page("2").await;
    center.wait_phase("Complete", 2).await;
    assert_eq!(with_page(&edges, "2"), 100);
    let written = center.store.revision().await.unwrap() - before;
    assert!(written < 60, "{written} writes for four batches");
}
