//! Whether a HorizontalPodAutoscaler of this edge sets the number of an object's replicas.
//!
//! While one does, `spec.replicas` of an object that the center sent is the edge's: the autoscaler measures here, and a center that wrote its own
//! number again with every change would undo its work.

use kinds::ObjectKey;
use serde_json::Value;
use server::Server;

use crate::book::CLUSTER;

const AUTOSCALERS: &str = "autoscaling/horizontalpodautoscalers";

/// Only kinds that can have a scale are looked up.
fn can_be_scaled(collection: &str) -> bool {
    let group = collection.split('/').next().unwrap_or_default();
    matches!(collection, "apps/deployments" | "apps/replicasets" | "apps/statefulsets" | "core/replicationcontrollers")
        || group.contains('.') && !group.ends_with(".k8s.io")
}

pub fn is_autoscaled(server: &Server, key: &ObjectKey<'_>) -> bool {
    if key.namespace.is_empty() || !can_be_scaled(key.collection) {
        return false;
    }
    let all = server.cache.snapshot(AUTOSCALERS);
    let mut here = all.items.range(&format!("{CLUSTER}/{}/", key.namespace), "");
    here.any(|autoscaler| {
        let value = autoscaler.value();
        let object = || server.cache.get(key.collection, &format!("{CLUSTER}/{}/{}", key.namespace, key.name));
        targets(&value, key) && object().is_some_and(|object| is_kind_of(&value, &object.value()))
    })
}

/// Whether an autoscaler names an object of this group and name.
fn targets(autoscaler: &Value, key: &ObjectKey<'_>) -> bool {
    let target = &autoscaler["spec"]["scaleTargetRef"];
    let group = target["apiVersion"].as_str().unwrap_or_default().split_once('/').map_or("core", |(group, _)| group);
    target["name"] == *key.name && key.collection.split('/').next() == Some(group)
}

fn is_kind_of(autoscaler: &Value, object: &Value) -> bool {
    autoscaler["spec"]["scaleTargetRef"]["kind"] == object["kind"]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_autoscaler_is_of_one_object() {
        let of = |version: &str, kind: &str, name: &str| json!({"spec": {"scaleTargetRef": {"apiVersion": version, "kind": kind, "name": name}}});
        let key = |text: &'static str| ObjectKey::parse(text).unwrap();
        let web = of("apps/v1", "Deployment", "web");
        assert!(targets(&web, &key("apps/deployments/shop/web")));
        assert!(!targets(&web, &key("apps/deployments/shop/db")));
        assert!(!targets(&web, &key("core/replicationcontrollers/shop/web")));
        assert!(targets(&of("v1", "ReplicationController", "web"), &key("core/replicationcontrollers/shop/web")));
        assert!(targets(&of("example.com/v2", "Shop", "web"), &key("example.com/shops/shop/web")));
        assert!(is_kind_of(&web, &json!({"kind": "Deployment"})) && !is_kind_of(&web, &json!({"kind": "StatefulSet"})));
        for (collection, can) in [
            ("apps/statefulsets", true),
            ("example.com/shops", true),
            ("apps/daemonsets", false),
            ("core/pods", false),
            ("core/configmaps", false),
            ("networking.k8s.io/ingresses", false),
        ] {
            assert_eq!(can_be_scaled(collection), can, "{collection}");
        }
    }
}
