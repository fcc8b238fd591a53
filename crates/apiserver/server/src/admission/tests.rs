//! A whole server in memory, written to by its own controllers' hand.

use std::{collections::BTreeSet, sync::Arc};

use cache::object::Object;
use identity::User;
use schema::status::Result;
use serde_json::{Value, json};
use store::{Commit, MemoryStore, Op};

use crate::{
    Options, Server,
    call::Call,
    internal::Internal,
    kinds::Kind,
    verbs::{create, delete, write},
};

async fn running() -> (crate::start::testing::Running, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new(dir.path(), Arc::new(MemoryStore::default()));
    (crate::start::testing::start(options).await.unwrap(), dir)
}

fn hand(server: &Arc<Server>) -> Internal {
    Internal::new(server, "root", "test")
}

fn call(server: &Arc<Server>, group: &str, resource: &str) -> Call {
    let hand = hand(server);
    let kind = hand.kind(group, "v1", resource).unwrap();
    let namespace = if kind.resource.namespaced { "default" } else { "" };
    hand.call(&kind, namespace, "", "")
}

async fn make(call: &Call, mut value: Value) -> Result<Arc<Object>> {
    value["kind"] = call.kind.name().into();
    value["apiVersion"] = call.kind.api_version.as_str().into();
    create::place(call, &mut value)?;
    write::default(&call.kind, &mut value);
    create::insert(call, value).await
}

fn service(name: &str, spec: Value) -> Value {
    let mut value = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    for (key, field) in spec.as_object().unwrap() {
        value["spec"][key] = field.clone();
    }
    value
}

fn ip(object: &Object) -> String {
    object.value()["spec"]["clusterIP"].as_str().unwrap().to_owned()
}

async fn change(server: &Arc<Server>, kind: &Arc<Kind>, name: &str, edit: impl Fn(&mut Value)) -> Value {
    hand(server).change(kind, "default", name, "", edit).await.unwrap().unwrap().value()
}

#[tokio::test]
async fn addresses_and_ports_are_given_once_and_given_back() {
    let (running, _dir) = running().await;
    let server = &running.server;
    let services = call(server, "", "services");
    let held = |name: &str| server.cache.get("networking.k8s.io/ipaddresses", &format!("root//{name}")).is_some();

    let first = make(&services, service("a", json!({"type": "NodePort"}))).await.unwrap();
    let (address, port) = (ip(&first), first.value()["spec"]["ports"][0]["nodePort"].clone());
    assert!(held(&address) && port.is_i64());
    let again = make(&services, service("b", json!({"clusterIP": address}))).await.unwrap_err();
    assert_eq!(
        again.message,
        format!(
            "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"{address}\"]: failed to allocate IP {address}: \
             provided IP is already allocated"
        )
    );
    let same_port = service("b", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}));
    let again = make(&services, same_port).await.unwrap_err();
    assert!(again.message.ends_with("provided port is already allocated"), "{}", again.message);

    let external = change(server, &services.kind, "a", |value| {
        value["spec"]["type"] = "ExternalName".into();
        value["spec"]["externalName"] = "example.com".into();
    });
    let external = external.await;
    assert!(external["spec"]["clusterIP"].is_null() && external["spec"]["ports"][0]["nodePort"].is_null());
    assert!(!held(&address));
    let taken = make(
        &services,
        service("b", json!({"clusterIP": address, "type": "NodePort", "ports": [{"port": 80, "nodePort": port}]})),
    );
    taken.await.unwrap();
    delete::remove(&services, "root/default/b", "b", &delete::Options::background()).await.unwrap();
    assert!(!held(&address));

    for (spec, expected) in [
        (json!({"ipFamilyPolicy": "RequireDualStack"}), "this cluster is not configured for dual-stack services"),
        (json!({"ipFamilies": ["IPv6"]}), "not configured on this cluster"),
        (json!({"clusterIP": "192.168.1.1"}), "the provided network does not match the current range"),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
            "provided port is not in the valid range. The range of valid ports is 30000-32767",
        ),
    ] {
        let refused = make(&services, service("c", spec.clone())).await.unwrap_err();
        assert!(refused.message.ends_with(expected), "{spec}: {}", refused.message);
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_address_is_given_twice_under_load() {
    let (running, _dir) = running().await;
    let server = running.server.clone();
    let one = |n: usize| {
        let server = server.clone();
        tokio::spawn(async move {
            let services = call(&server, "", "services");
            // All want the same port, and one of them gets it.
            let fixed = make(
                &services,
                service(&format!("f{n}"), json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30000}]})),
            );
            let fixed = fixed.await.is_ok();
            (ip(&make(&services, service(&format!("s{n}"), json!({}))).await.unwrap()), fixed)
        })
    };
    let tasks: Vec<_> = (0..40).map(one).collect();
    let (mut addresses, mut winners) = (BTreeSet::new(), 0);
    for task in tasks {
        let (address, won) = task.await.unwrap();
        assert!(addresses.insert(address));
        winners += usize::from(won);
    }
    assert_eq!(winners, 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_quota_is_never_overdrawn() {
    let (running, _dir) = running().await;
    let server = running.server.clone();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"secrets": "10"}}});
    make(&call(&server, "", "resourcequotas"), quota).await.unwrap();
    let one = |n: usize| {
        let server = server.clone();
        tokio::spawn(async move {
            let secrets = call(&server, "", "secrets");
            make(&secrets, json!({"metadata": {"name": format!("s{n}")}})).await.map(|_| ())
        })
    };
    let tasks: Vec<_> = (0..40).map(one).collect();
    let mut made = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(()) => made += 1,
            Err(status) => {
                assert_eq!(status.code, 403);
                let why =
                    "is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=10, limited: secrets=10";
                assert!(status.message.ends_with(why), "{}", status.message);
            }
        }
    }
    assert_eq!(made, 10);
    let used = || server.cache.get("core/resourcequotas", "root/default/q").unwrap().value()["status"]["used"].clone();
    assert_eq!(used(), json!({"secrets": "10"}));
    let secrets = call(&server, "", "secrets");
    let some = server.cache.snapshot("core/secrets").items.range("root/default/", "").next().unwrap().clone();
    delete::remove(&secrets, &some.key, some.name(), &delete::Options::background()).await.unwrap();
    for _ in 0..200 {
        if used() == json!({"secrets": "9"}) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(used(), json!({"secrets": "9"}));
    running.stop().await;
}

#[tokio::test]
async fn pods_are_completed() {
    let (running, _dir) = running().await;
    let server = &running.server;
    let pods = call(server, "", "pods");
    let pod = |account: &str| {
        let containers = json!([{"name": "c", "image": "i"}]);
        json!({"metadata": {"name": "p"}, "spec": {"containers": containers, "serviceAccountName": account}})
    };
    let refused = make(&pods, pod("nosuch")).await.unwrap_err();
    assert_eq!(
        refused.message,
        "pods \"p\" is forbidden: error looking up service account default/nosuch: serviceaccount \"nosuch\" not found"
    );
    let mut generated = pod("nosuch");
    generated["metadata"] = json!({"generateName": "web-"});
    let refused = make(&pods, generated).await.unwrap_err();
    assert!(refused.message.starts_with("pods \"web-\" is forbidden"), "{}", refused.message);
    let limits = json!({"metadata": {"name": "l"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}, "max": {"cpu": "2"}}]}});
    make(&call(server, "", "limitranges"), limits).await.unwrap();
    // The default account is on its way, and waited for.
    let made = make(&pods, pod("")).await.unwrap().value();
    let spec = &made["spec"];
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["priority"], 0);
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
    assert_eq!(spec["containers"][0]["resources"], json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}));
    assert!(spec["containers"][0]["volumeMounts"][0]["name"].as_str().unwrap().starts_with("kube-api-access-"));
    // Memory is not limited, so not everything is guaranteed: the class was computed after the limits came in.
    assert_eq!(made["status"]["qosClass"], "Burstable");
    let mut big = pod("");
    big["metadata"]["name"] = "big".into();
    big["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "3"}, "requests": {"cpu": "3"}});
    let refused = make(&pods, big).await.unwrap_err();
    assert_eq!(refused.message, "pods \"big\" is forbidden: maximum cpu usage per Container is 2, but limit is 3");
    running.stop().await;
}

#[tokio::test]
async fn nobody_gives_away_what_they_do_not_have() {
    let (running, _dir) = running().await;
    let server = &running.server;
    let jane = User { name: "jane".into(), groups: vec!["system:authenticated".into()], ..User::default() };
    let as_jane = |resource: &str| {
        let mut call = call(server, "rbac.authorization.k8s.io", resource);
        call.user = jane.clone();
        call
    };
    let role = |verbs: Value| json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]});
    let refused = make(&as_jane("roles"), role(json!(["get"]))).await.unwrap_err();
    assert_eq!((refused.code, refused.reason), (403, "Forbidden"));
    let binding = json!({"metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "jane"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}});
    assert_eq!(make(&as_jane("rolebindings"), binding.clone()).await.unwrap_err().code, 403);
    make(&call(server, "rbac.authorization.k8s.io", "rolebindings"), binding.clone()).await.unwrap();
    make(&as_jane("roles"), role(json!(["get"]))).await.unwrap();
    let mut more = role(json!(["delete"]));
    more["metadata"]["name"] = "more".into();
    assert_eq!(make(&as_jane("roles"), more).await.unwrap_err().code, 403);
    let gathers =
        json!({"metadata": {"name": "g"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
    let refused = make(&as_jane("clusterroles"), gathers).await.unwrap_err();
    assert!(refused.message.ends_with("must have cluster-admin privileges to use the aggregationRule"));
    running.stop().await;
}

#[tokio::test]
async fn aggregated_roles_follow_their_parts() {
    let (running, _dir) = running().await;
    let server = &running.server;
    let roles = call(server, "rbac.authorization.k8s.io", "clusterroles");
    let rule = json!({"apiGroups": ["example.com"], "resources": ["gadgets"], "verbs": ["get"]});
    let label = "rbac.authorization.k8s.io/aggregate-to-view";
    make(&roles, json!({"metadata": {"name": "gadgets", "labels": {label: "true"}}, "rules": [rule]})).await.unwrap();
    let has = |name: &str| {
        let role = server.cache.get(&roles.kind.collection, &format!("root//{name}")).unwrap().value();
        role["rules"].as_array().unwrap().contains(&rule)
    };
    for _ in 0..200 {
        if has("admin") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(has("view") && has("edit") && has("admin"));
    running.stop().await;
}

#[tokio::test]
async fn claims_grow_only_where_volumes_can() {
    let (running, _dir) = running().await;
    let server = &running.server;
    let classes = call(server, "storage.k8s.io", "storageclasses");
    let class = |name: &str, grows: bool| json!({"metadata": {"name": name}, "provisioner": "example.com/p", "allowVolumeExpansion": grows});
    make(&classes, class("fixed", false)).await.unwrap();
    make(&classes, class("grows", true)).await.unwrap();
    let claims = call(server, "", "persistentvolumeclaims");
    for (class, expected) in [("fixed", Some(403)), ("grows", None)] {
        let claim = json!({"metadata": {"name": class}, "spec": {"storageClassName": class, "volumeName": "v",
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        make(&claims, claim).await.unwrap();
        let bind = |value: &mut Value| value["status"] = json!({"phase": "Bound"});
        hand(server).change(&claims.kind, "default", class, "status", bind).await.unwrap();
        let grow = |value: &mut Value| value["spec"]["resources"]["requests"]["storage"] = "2Gi".into();
        let grown = hand(server).change(&claims.kind, "default", class, "", grow).await;
        assert_eq!(grown.err().map(|status| status.code), expected, "{class}");
    }
    running.stop().await;
}

#[tokio::test]
async fn approved_requests_are_signed() {
    let (running, _dir) = running().await;
    let server = &running.server;
    let mut requests = call(server, "certificates.k8s.io", "certificatesigningrequests");
    requests.user = User { name: "jane".into(), groups: vec!["devs".into()], ..User::default() };
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "robot");
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let request = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem);
    let made = make(
        &requests,
        json!({"metadata": {"name": "r"}, "spec": {"request": request, "usages": ["client auth"], "username": "root",
            "signerName": "kubernetes.io/kube-apiserver-client"}}),
    );
    let made = made.await.unwrap().value();
    assert_eq!((&made["spec"]["username"], &made["spec"]["groups"]), (&json!("jane"), &json!(["devs"])));
    let approve = |value: &mut Value| {
        value["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "Test"}]);
    };
    hand(server).change(&requests.kind, "", "r", "approval", approve).await.unwrap();
    let certificate = || {
        let request = server.cache.get(&requests.kind.collection, "root//r").unwrap().value();
        request["status"]["certificate"].as_str().unwrap_or_default().to_owned()
    };
    for _ in 0..200 {
        if !certificate().is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(!certificate().is_empty());
    running.stop().await;
}

/// The store is quicker than what is read from it: whoever comes second waits for what the first has done, and does not give up before.
#[tokio::test]
async fn who_comes_second_sees_what_the_first_did() {
    let (running, _dir) = running().await;
    let server = &running.server;
    let maps = call(server, "", "configmaps");
    let made = make(&maps, json!({"metadata": {"name": "a"}})).await.unwrap();
    let gone = Op::Delete { key: maps.kind.store_key(&made.key) };
    server.cache.store().commit(Commit { compares: vec![], ops: vec![gone] }).await.unwrap();
    assert!(server.cache.get(&maps.kind.collection, &made.key).is_some(), "not seen yet");
    let second = delete::remove(&maps, &made.key, "a", &delete::Options::default()).await;
    assert_eq!(second.err().map(|status| status.code), Some(404));
}
