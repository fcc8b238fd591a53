//! Batches, as commits of a real server.

use link::ApplyFailure;
use serde_json::json;
use std::sync::Arc;
use store::MemoryStore;

use super::*;

const A: &str = "core/configmaps/default/a";

#[tokio::test]
async fn a_batch_is_one_commit_and_the_same_again_is_none() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    let (a, b) = (map("a", "1"), map("b", "1"));
    edge.apply(&[(A, Some(a.clone())), ("core/configmaps/default/b", Some(b.clone()))]).await.unwrap();
    let (one, two) = (edge.get(A).unwrap(), edge.get("core/configmaps/default/b").unwrap());
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(version(&one) < version(&two), "who watches can come again from either");
    assert_eq!(one["data"], a["data"]);
    assert!(one["metadata"]["uid"].is_string() && one["metadata"]["creationTimestamp"].is_string());
    assert_holds(&edge, &[(A, &a), ("core/configmaps/default/b", &b)]);
    assert_eq!(edge.book().progress().revision, 1);
    edge.apply(&[(A, Some(a.clone()))]).await.unwrap();
    assert_eq!(edge.get(A).unwrap(), one, "nothing was written that says nothing new");
    assert_eq!(edge.held(A).unwrap().source, "root:shop");
    // What is durable is what another life of this edge finds.
    let again = super::edge(edge.server().cache.store().clone()).await;
    assert_holds(&again, &[(A, &a), ("core/configmaps/default/b", &b)]);
    assert_eq!(again.book().progress(), edge.book().progress());
}

#[tokio::test]
async fn a_namespace_is_one_workspaces_or_the_edges() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    let of = |source: &str, kind: &str, name: &str, namespace: Option<&str>| {
        let mut value = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name,
            "labels": {names::PROJECTED: "yes"}, "annotations": {names::SOURCE: source}}});
        if let Some(namespace) = namespace {
            value["metadata"]["namespace"] = namespace.into();
        }
        Some(value)
    };
    let (space, secret, spy) = ("core/namespaces//shop", "core/secrets/shop/pw", "core/configmaps/shop/spy");
    let namespace = |source: &str| of(source, "Namespace", "shop", None);
    edge.apply(&[(space, namespace("root:a")), (secret, of("root:a", "Secret", "pw", Some("shop")))]).await.unwrap();
    // Nothing of another comes into it, and it does not change hands while something of the former owner is there.
    let refused = edge.refused(&[(spy, of("root:b", "ConfigMap", "spy", Some("shop")))]).await;
    assert!(refused[0].1.contains("still belongs to another workspace"), "{refused:?}");
    let refused = edge.refused(&[(space, namespace("root:b"))]).await;
    assert!(refused[0].1.contains("still holds objects of another workspace"), "{refused:?}");
    assert!(edge.get(spy).is_none() && edge.get(secret).is_some());
    // An object of the same name that is now another's goes first.
    let refused = edge.refused(&[(secret, of("root:b", "Secret", "pw", Some("shop")))]).await;
    assert!(refused[0].1.contains("still belongs"), "{refused:?}");
    assert!(edge.get(secret).is_none() && edge.held(secret).is_none());
    // Then the namespace itself, with whatever is left in it.
    let refused = edge.refused(&[(space, namespace("root:b"))]).await;
    assert!(refused[0].1.contains("is being deleted here first"), "{refused:?}");
    assert!(edge.get(space).is_none_or(|space| space["metadata"]["deletionTimestamp"].is_string()));
}

#[tokio::test]
async fn local_parts_survive_and_generations_grow() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    edge.apply(&[(WEB, Some(deployment("nginx:1")))]).await.unwrap();
    let first = edge.get(WEB).unwrap();
    assert_eq!((&first["metadata"]["generation"], &first["status"]), (&json!(1), &json!({})));
    edge.edit(WEB, |value| {
        value["status"] = json!({"readyReplicas": 1});
        value["metadata"]["labels"]["local"] = "x".into();
        value["metadata"]["finalizers"] = json!(["example.com/mine"]);
    })
    .await;
    edge.apply(&[(WEB, Some(deployment("nginx:2")))]).await.unwrap();
    let second = edge.get(WEB).unwrap();
    assert_eq!(second["metadata"]["generation"], 2);
    assert_eq!(second["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(second["status"]["readyReplicas"], 1);
    assert_eq!(second["metadata"]["labels"]["local"], "x");
    assert_eq!(second["spec"]["template"]["spec"]["containers"][0]["image"], "nginx:2");
    // It has a finalizer of this edge's: it is marked, and no longer the center's.
    edge.apply(&[(WEB, None)]).await.unwrap();
    assert!(edge.get(WEB).unwrap()["metadata"]["deletionTimestamp"].is_string());
    assert_holds(&edge, &[]);
    let refused = edge.refused(&[(WEB, Some(deployment("nginx:3")))]).await;
    assert!(refused[0].1.contains("still being deleted"), "{refused:?}");
}

#[tokio::test]
async fn another_object_of_the_same_name_gets_another_uid() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    edge.apply(&[(WEB, Some(deployment("nginx:1")))]).await.unwrap();
    let first = edge.get(WEB).unwrap();
    let mut other = deployment("nginx:1");
    other["spec"]["selector"] = json!({"matchLabels": {"c": "d"}});
    other["spec"]["template"]["metadata"]["labels"] = json!({"c": "d"});
    edge.apply(&[(WEB, Some(other.clone()))]).await.unwrap();
    let second = edge.get(WEB).unwrap();
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    assert_eq!(second["metadata"]["generation"], 1);
    assert_holds(&edge, &[(WEB, &other)]);
}

#[tokio::test]
async fn what_is_replaced_ends_gracefully_first() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    edge.apply(&[(WEB, Some(deployment("nginx:1")))]).await.unwrap();
    edge.edit(WEB, |value| value["metadata"]["finalizers"] = json!(["example.com/mine"])).await;
    let mut other = deployment("nginx:1");
    other["spec"]["selector"] = json!({"matchLabels": {"c": "d"}});
    other["spec"]["template"]["metadata"]["labels"] = json!({"c": "d"});
    let refused = edge.refused(&[(WEB, Some(other.clone()))]).await;
    assert!(refused[0].1.contains("is being deleted here first"), "{refused:?}");
    let going = edge.get(WEB).unwrap();
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(going["spec"]["selector"]["matchLabels"]["a"], "b");
    assert_holds(&edge, &[]);
    edge.delete(WEB).await;
    edge.apply(&[(WEB, Some(other.clone()))]).await.unwrap();
    assert_holds(&edge, &[(WEB, &other)]);
}

#[tokio::test]
async fn what_cannot_be_taken_is_named_and_nothing_is_written() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    let mut own = map("mine", "local");
    own["metadata"]["labels"] = json!({});
    edge.write("core/configmaps/default/mine", &own).await;
    let widget =
        json!({"kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": "w", "namespace": "default"}});
    let mut invalid = deployment("nginx");
    invalid["spec"]["replicas"] = json!(-1);
    let huge = map("huge", &"x".repeat(4 << 20));
    let refused = edge
        .refused(&[
            ("core/configmaps/default/mine", Some(map("mine", "center"))),
            ("example.com/widgets/default/w", Some(widget)),
            (A, Some(map("other", "1"))),
            ("nonsense", Some(map("a", "1"))),
            ("edge.selvedge.dev/_held/x/y", Some(map("y", "1"))),
            (WEB, Some(invalid)),
            ("core/configmaps/default/huge", Some(huge)),
            ("core/configmaps/default/list", Some(json!([1]))),
            ("core/configmaps/default/fine", Some(map("fine", "1"))),
        ])
        .await;
    let reasons: Vec<&str> = refused.iter().map(|(_, reason)| reason.as_str()).collect();
    for (reason, says) in reasons.iter().zip([
        "belongs to it",
        "CustomResourceDefinition was not sent",
        "calls itself default/other",
        "no key",
        "no key",
        "spec.replicas",
        "Too long",
        "no object",
    ]) {
        assert!(reason.contains(says), "{reason:?} should say {says:?}");
    }
    assert_eq!(refused.len(), 8, "{refused:?}");
    assert!(edge.get("core/configmaps/default/fine").is_none());
    assert_eq!(edge.get("core/configmaps/default/mine").unwrap()["data"]["k"], "local");
    assert_eq!((edge.book().count(), edge.book().progress().revision), (0, 0));
    // And it cannot be deleted either.
    edge.apply(&[("core/configmaps/default/mine", None)]).await.unwrap();
    assert!(edge.get("core/configmaps/default/mine").is_some());
}

#[tokio::test]
async fn what_every_server_has_is_adopted_and_stays() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    let key = "core/namespaces//default";
    let uid = edge.get(key).unwrap()["metadata"]["uid"].clone();
    let sent = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default",
        "labels": {"team": "a", names::PROJECTED: "yes", "kubernetes.io/metadata.name": "default"}, "annotations": {names::SOURCE: "root:shop"}},
        "spec": {"finalizers": ["kubernetes"]}});
    edge.apply(&[(key, Some(sent.clone()))]).await.unwrap();
    let now = edge.get(key).unwrap();
    assert_eq!((&now["metadata"]["uid"], &now["metadata"]["labels"]["team"]), (&uid, &json!("a")));
    edge.apply(&[(key, None)]).await.unwrap();
    let now = edge.get(key).unwrap();
    assert!(now["metadata"]["labels"]["team"].is_null() && now["metadata"]["deletionTimestamp"].is_null(), "{now}");
    assert_holds(&edge, &[]);
}

#[tokio::test]
async fn a_namespace_goes_with_what_is_in_it() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    let key = "core/namespaces//shop";
    let sent = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "shop",
        "labels": {"kubernetes.io/metadata.name": "shop"}}, "spec": {"finalizers": ["kubernetes"]}});
    edge.apply(&[(key, Some(sent))]).await.unwrap();
    until(|| edge.get("core/serviceaccounts/shop/default").is_some()).await;
    edge.apply(&[(key, None)]).await.unwrap();
    until(|| edge.get(key).is_none()).await;
    assert!(edge.get("core/serviceaccounts/shop/default").is_none());
}

#[tokio::test]
async fn a_definition_and_its_objects_may_come_together() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    let crd = json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "conversion": {"strategy": "None"},
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema":
            {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let widget = json!({"kind": "Widget", "apiVersion": "example.com/v1",
        "metadata": {"name": "w", "namespace": "default"}, "spec": {"size": 1}});
    let (w, d) =
        ("example.com/widgets/default/w", "apiextensions.k8s.io/customresourcedefinitions//widgets.example.com");
    edge.apply(&[(w, Some(widget.clone())), (d, Some(crd))]).await.unwrap();
    assert_eq!(edge.get(w).unwrap()["metadata"]["generation"], 1);
    until(|| edge.server().kinds.find("root", "example.com", "v1", "widgets").is_some()).await;
    edge.edit(w, |value| value["status"] = json!({"ok": true})).await;
    let mut next = widget;
    next["spec"]["size"] = json!(2);
    edge.apply(&[(w, Some(next))]).await.unwrap();
    let now = edge.get(w).unwrap();
    assert_eq!((&now["metadata"]["generation"], &now["status"]["ok"]), (&json!(2), &json!(true)));
    edge.apply(&[(w, None), (d, None)]).await.unwrap();
    until(|| edge.get(d).is_none()).await;
}

#[tokio::test]
async fn services_hold_their_addresses_here_too() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    let service = |name: &str, ip: &str| {
        json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"},
            "spec": {"type": "NodePort", "clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster", "sessionAffinity": "None",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80, "nodePort": 30080}]}})
    };
    let key = "core/services/default/a";
    edge.apply(&[(key, Some(service("a", "10.96.7.7")))]).await.unwrap();
    assert!(edge.get("networking.k8s.io/ipaddresses//10.96.7.7").is_some());
    let refused = edge.refused(&[("core/services/default/b", Some(service("b", "10.96.7.7")))]).await;
    assert!(refused[0].1.contains("already allocated"), "{refused:?}");
    edge.apply(&[(key, None)]).await.unwrap();
    assert!(edge.get("networking.k8s.io/ipaddresses//10.96.7.7").is_none());
    edge.apply(&[("core/services/default/b", Some(service("b", "10.96.7.7")))]).await.unwrap();
}

#[tokio::test]
async fn clients_that_write_at_the_same_time_lose_nothing() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    edge.apply(&[(A, Some(map("a", "0")))]).await.unwrap();
    for n in 1..=20 {
        let content = map("a", &n.to_string());
        let changes = [(A, Some(content.clone()))];
        let (applied, ()) = tokio::join!(
            edge.apply(&changes),
            edge.edit(A, |value| value["metadata"]["annotations"][format!("n{n}")] = "x".into())
        );
        applied.unwrap();
        assert_holds(&edge, &[(A, &content)]);
    }
}

#[tokio::test]
async fn a_store_that_is_closed_fails_the_whole_batch() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    edge.server().cache.store().close().await;
    assert!(matches!(edge.apply(&[(A, Some(map("a", "1")))]).await, Err(ApplyFailure::Whole(_))));
}

async fn until(mut true_: impl FnMut() -> bool) {
    for _ in 0..500 {
        if true_() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("waited in vain");
}

#[tokio::test]
async fn what_is_only_made_is_never_changed_and_what_is_let_go_of_stays() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    let only = |data: &str| {
        let mut value = map("a", data);
        value["metadata"]["annotations"][names::CREATE_ONLY] = "true".into();
        value
    };
    edge.apply(&[(A, Some(only("1")))]).await.unwrap();
    assert_eq!(edge.get(A).unwrap()["data"]["k"], "1");
    edge.edit(A, |value| value["data"]["k"] = "mine".into()).await;
    edge.apply(&[(A, Some(only("2")))]).await.unwrap();
    assert_eq!(edge.get(A).unwrap()["data"]["k"], "mine", "it stays as the edge has it");
    assert_eq!(
        edge.held(A).unwrap().hash,
        link::entry_hash(A, &bytes(&only("2"))),
        "the center knows that it is there"
    );
    edge.apply(&[(A, None)]).await.unwrap();
    assert_eq!(edge.get(A), None, "the center takes away what it made");
    edge.apply(&[(A, Some(only("3")))]).await.unwrap();
    assert_eq!(edge.get(A).unwrap()["data"]["k"], "3");

    // One that the edge has is left alone, also when the center wants it no more.
    const B: &str = "core/configmaps/default/b";
    let own =
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "b", "namespace": "default", "uid": "u"}});
    edge.write(B, &own).await;
    let mut sent = only("1");
    sent["metadata"]["name"] = "b".into();
    edge.apply(&[(B, Some(sent))]).await.unwrap();
    assert!(edge.get(B).unwrap().get("data").is_none());
    edge.apply(&[(B, None)]).await.unwrap();
    assert!(edge.get(B).is_some() && edge.held(B).is_none());

    const C: &str = "core/configmaps/default/c";
    let mut stays = map("c", "1");
    stays["metadata"]["annotations"][names::ORPHAN] = "true".into();
    edge.apply(&[(C, Some(stays))]).await.unwrap();
    edge.apply(&[(C, None)]).await.unwrap();
    let left = edge.get(C).unwrap();
    assert_eq!(left["data"]["k"], "1");
    assert_eq!(left["metadata"]["labels"], json!({"app": "shop"}));
    assert!(left["metadata"].get("annotations").is_none() && edge.held(C).is_none());
}

#[tokio::test]
async fn an_autoscaler_of_the_edge_keeps_its_number_of_replicas() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    edge.apply(&[(WEB, Some(deployment("one")))]).await.unwrap();
    const AUTOSCALER: &str = "autoscaling/horizontalpodautoscalers/default/web";
    let autoscaler = json!({"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxReplicas": 9, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
    let image = |value: &Value| value.pointer("/spec/template/spec/containers/0/image").cloned().unwrap();
    for (there, number) in [(true, 7), (false, 1)] {
        match there {
            true => edge.write(AUTOSCALER, &autoscaler).await,
            false => edge.delete(AUTOSCALER).await,
        }
        edge.edit(WEB, |value| value["spec"]["replicas"] = 7.into()).await;
        let sent = deployment(if there { "two" } else { "three" });
        edge.apply(&[(WEB, Some(sent.clone()))]).await.unwrap();
        let now = edge.get(WEB).unwrap();
        assert_eq!((&now["spec"]["replicas"], image(&now)), (&json!(number), image(&sent)));
        // The center is told that the edge holds what it sent.
        assert_holds(&edge, &[(WEB, &sent)]);
    }
}

#[tokio::test]
async fn a_namespace_of_the_edge_that_only_has_to_exist_is_there() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    let key = "core/namespaces//pre";
    edge.write(
        key,
        &json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "pre", "labels": {"mine": "x"}}}),
    )
    .await;
    let sent = |exclusive: bool, labels: Value| {
        let mut value = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "pre", "labels": labels,
            "annotations": {names::SOURCE: "root:shop"}}});
        value["metadata"]["labels"][names::PROJECTED] = "yes".into();
        if exclusive {
            value["metadata"]["annotations"][names::EXCLUSIVE] = "true".into();
        }
        value
    };
    let inside = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "pre",
        "annotations": {names::SOURCE: "root:shop"}}});
    let before = edge.get(key).unwrap();
    // A workspace that is not trusted: it is there, and nothing comes into it.
    let bare = sent(true, json!({}));
    edge.apply(&[(key, Some(bare.clone()))]).await.unwrap();
    assert_eq!(edge.get(key).unwrap(), before, "it stays as it is");
    assert_holds(&edge, &[(key, &bare)]);
    let refused = edge.refused(&[("core/configmaps/pre/a", Some(inside.clone()))]).await;
    assert!(refused[0].1.contains("made on this edge and belongs to it"), "{refused:?}");
    let refused = edge.refused(&[(key, Some(sent(true, json!({"a": "b"}))))]).await;
    assert!(refused[0].1.contains("belongs to it"), "{refused:?}");
    // One that is trusted may put something in.
    let bare = sent(false, json!({}));
    edge.apply(&[(key, Some(bare.clone())), ("core/configmaps/pre/a", Some(inside.clone()))]).await.unwrap();
    assert_holds(&edge, &[(key, &bare), ("core/configmaps/pre/a", &inside)]);
    // The namespace is the edge's and stays.
    edge.apply(&[(key, None), ("core/configmaps/pre/a", None)]).await.unwrap();
    let now = edge.get(key).unwrap();
    assert_eq!(now["metadata"]["labels"], before["metadata"]["labels"]);
    assert!(now["metadata"]["deletionTimestamp"].is_null(), "{now}");
    assert!(edge.get("core/configmaps/pre/a").is_none());
    assert_holds(&edge, &[]);
}

#[tokio::test]
async fn a_namespace_stays_while_users_of_the_edge_have_something_in_it() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    let of = |kind: &str, name: &str, namespace: Option<&str>| {
        let mut value = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name,
            "labels": {names::PROJECTED: "yes"}, "annotations": {names::SOURCE: "root:shop"}}});
        if let Some(namespace) = namespace {
            value["metadata"]["namespace"] = namespace.into();
        }
        value
    };
    let (space, sent, own) = ("core/namespaces//mixed", "core/configmaps/mixed/sent", "core/configmaps/mixed/own");
    let place =
        || [(space, Some(of("Namespace", "mixed", None))), (sent, Some(of("ConfigMap", "sent", Some("mixed"))))];
    edge.apply(&place()).await.unwrap();
    let local = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "own", "namespace": "mixed"}});
    edge.write(own, &local).await;
    // Not while something of the center's is to stay in it.
    let refused = edge.refused(&[(space, None)]).await;
    assert!(refused[0].1.contains("1 objects of the center's are still in the namespace mixed"), "{refused:?}");
    edge.apply(&[(space, None), (sent, None)]).await.unwrap();
    assert!(edge.get(sent).is_none() && edge.get(own).is_some());
    let kept = edge.get(space).unwrap();
    assert!(
        kept["metadata"]["deletionTimestamp"].is_null() && kept["metadata"]["labels"][names::PROJECTED].is_null(),
        "{kept}"
    );
    assert_eq!(kept["metadata"]["annotations"][names::LEFT_BY], "root:shop");
    assert_holds(&edge, &[]);
    until(|| edge.get("core/events/mixed/mixed.kept").is_some()).await;
    // Nobody else gets into it, but the workspace that had it may come back.
    let mut other = of("ConfigMap", "sent", Some("mixed"));
    other["metadata"]["annotations"][names::SOURCE] = "root:bank".into();
    let refused = edge.refused(&[(sent, Some(other))]).await;
    assert!(refused[0].1.contains("belongs to it"), "{refused:?}");
    edge.apply(&place()).await.unwrap();
    assert!(edge.get(sent).is_some() && edge.get(own).is_some());
    // And without anything of the edge's own it goes.
    edge.delete(own).await;
    edge.apply(&[(space, None), (sent, None)]).await.unwrap();
    until(|| edge.get(space).is_none()).await;
}

#[tokio::test]
async fn what_a_damaged_record_is_about_is_never_deleted() {
    let edge = edge(Arc::new(MemoryStore::default())).await;
    let (adopted, made) = ("core/namespaces//default", "core/configmaps/default/made");
    let sent = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "default",
        "annotations": {names::SOURCE: "root:shop"}}, "spec": {"finalizers": ["kubernetes"]}});
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "made", "namespace": "default",
        "annotations": {names::SOURCE: "root:shop"}}});
    edge.apply(&[(adopted, Some(sent.clone())), (made, Some(map.clone()))]).await.unwrap();
    assert!(apply::held(edge.server(), adopted).unwrap().0.adopted);
    for key in [adopted, made] {
        for damaged in [&b"{\"hash\":\"00\",\"adop"[..], b"{\"hash\":7}"] {
            let value = damaged.to_vec().into();
            let key = format!("{}/{key}", crate::book::HELD);
            let commit = Commit { ops: vec![Op::Put { key, value }], ..Commit::default() };
            apply::commit_and_see(edge.server(), commit).await.unwrap();
        }
        assert!(apply::held(edge.server(), key).unwrap().0.adopted, "it may have been here before");
    }
    // The center has it sent again, as nothing is known of it; it is still not the center's to delete.
    assert_holds(&edge, &[]);
    edge.apply(&[(made, Some(map))]).await.unwrap();
    edge.apply(&[(adopted, None), (made, None)]).await.unwrap();
    for key in [adopted, made] {
        let now = edge.get(key).unwrap();
        assert!(now["metadata"]["deletionTimestamp"].is_null(), "{now}");
        assert!(apply::held(edge.server(), key).is_none(), "the record is gone");
    }
}
