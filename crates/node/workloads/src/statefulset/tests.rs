use serde_json::{Value, json};

use super::model::World;
use crate::{
    pod,
    world::{Case, at},
};
use controllers::cache::Key;

pub const CASES: &[Case] = &[
    ("statefulset/ordered-start", ordered_start),
    ("statefulset/ordered-scale-down", ordered_scale_down),
    ("statefulset/parallel", parallel),
    ("statefulset/identity", identity),
    ("statefulset/ordinals-start", ordinals_start),
    ("statefulset/rolling-update", rolling_update),
    ("statefulset/rolling-update-waits", rolling_update_waits),
    ("statefulset/partition", partition),
    ("statefulset/partition-recreates-old", partition_recreates_old),
    ("statefulset/on-delete", on_delete),
    ("statefulset/max-unavailable", max_unavailable),
    ("statefulset/rollback", rollback),
    ("statefulset/revision-history", revision_history),
    ("statefulset/replaces-failed", replaces_failed),
    ("statefulset/min-ready-seconds", min_ready_seconds),
    ("statefulset/volume-claims", volume_claims),
    ("statefulset/claim-retention-scaled", claim_retention_scaled),
    ("statefulset/claim-retention-deleted", claim_retention_deleted),
    ("statefulset/status", status),
    ("statefulset/refused", refused),
];

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn ordered_start() {
    let mut world = World::new(&json!({}));
    world.step();
    world.step();
    assert_eq!(world.names(), ["s-0"], "the second waits for the first");
    world.pods.start(&key("s-0"), "n");
    world.step();
    assert_eq!(world.names(), ["s-0"], "running is not ready");
    world.run(&key("s-0"));
    world.step();
    assert_eq!(world.names(), ["s-0", "s-1"]);
    world.settle();
    assert_eq!(world.made, ["s-0", "s-1", "s-2"]);
}

fn ordered_scale_down() {
    let mut world = World::new(&json!({}));
    world.settle();
    world.change(|spec| spec["replicas"] = 0.into());
    world.step();
    world.step();
    assert_eq!(world.deleted, ["s-2"], "the next waits until this one is gone");
    world.settle();
    assert_eq!(world.deleted, ["s-2", "s-1", "s-0"]);
    assert!(world.names().is_empty());
}

fn parallel() {
    let mut world = World::new(&json!({"podManagementPolicy": "Parallel"}));
    world.step();
    assert_eq!(world.names(), ["s-0", "s-1", "s-2"]);
    world.change(|spec| spec["replicas"] = 1.into());
    world.step();
    assert_eq!(world.names(), ["s-0"]);
    // An update takes one after the other all the same.
    let mut world = World::new(&json!({"podManagementPolicy": "Parallel"}));
    world.settle();
    world.image("v2");
    world.step();
    assert_eq!(world.deleted, ["s-2"]);
    world.pods.remove(&key("s-2"));
    world.step();
    world.step();
    assert_eq!(world.deleted, ["s-2"], "the new one is not ready yet");
    world.settle();
    assert_eq!(world.deleted, ["s-2", "s-1", "s-0"]);
}

fn identity() {
    let mut world = World::new(&json!({"replicas": 1}));
    world.step();
    let made: Value = serde_json::to_value(&world.pods.objects[&key("s-0")]).unwrap();
    let revision = world.status()["updateRevision"].clone();
    assert_eq!(
        made["metadata"]["labels"],
        json!({"app": "s", "statefulset.kubernetes.io/pod-name": "s-0", "apps.kubernetes.io/pod-index": "0", "controller-revision-hash": revision})
    );
    assert_eq!((&made["spec"]["hostname"], &made["spec"]["subdomain"]), (&json!("s-0"), &json!("svc")));
    let owner = &made["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["controller"]), (&json!("StatefulSet"), &json!(true)));
}

fn ordinals_start() {
    let mut world = World::new(&json!({"replicas": 2, "ordinals": {"start": 5}}));
    world.settle();
    assert_eq!(world.names(), ["s-5", "s-6"]);
    world.change(|spec| spec["ordinals"]["start"] = 0.into());
    world.settle();
    assert_eq!(world.names(), ["s-0", "s-1"]);
}

fn rolling_update() {
    let mut world = World::new(&json!({}));
    world.settle();
    let before = world.status()["currentRevision"].clone();
    world.image("v2");
    world.step();
    assert_eq!((&world.status()["currentRevision"], world.status()["updateRevision"] == before), (&before, false));
    world.settle();
    assert_eq!(world.deleted, ["s-2", "s-1", "s-0"]);
    assert_eq!(world.images(), ["v2", "v2", "v2"]);
    assert_eq!(world.status()["currentRevision"], world.status()["updateRevision"]);
}

fn rolling_update_waits() {
    let mut world = World::new(&json!({}));
    world.settle();
    world.image("v2");
    world.step();
    world.run(&key("s-2"));
    world.step();
    world.step();
    assert_eq!(
        (world.deleted.as_slice(), world.images()),
        (&["s-2".to_owned()][..], vec!["v1".into(), "v1".into(), "v2".into()])
    );
    assert_eq!((&world.status()["updatedReplicas"], &world.status()["currentReplicas"]), (&json!(1), &json!(2)));
    world.run(&key("s-2"));
    world.step();
    assert_eq!(world.deleted, ["s-2", "s-1"], "only when the new one is ready");
}

fn partitioned(partition: i32) -> Value {
    json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}})
}

fn partition() {
    let mut world = World::new(&partitioned(2));
    world.settle();
    world.image("v2");
    world.settle();
    assert_eq!(world.images(), ["v1", "v1", "v2"]);
    assert_ne!(world.status()["currentRevision"], world.status()["updateRevision"]);
    world.change(|spec| spec["updateStrategy"]["rollingUpdate"]["partition"] = 0.into());
    world.settle();
    assert_eq!(world.images(), ["v2", "v2", "v2"]);
}

fn partition_recreates_old() {
    let mut world = World::new(&partitioned(2));
    world.settle();
    world.image("v2");
    world.settle();
    world.pods.remove(&key("s-0"));
    world.settle();
    assert_eq!(world.images(), ["v1", "v1", "v2"], "one below the partition comes back as it was");
}

fn on_delete() {
    let mut world = World::new(&json!({"updateStrategy": {"type": "OnDelete"}}));
    world.settle();
    world.image("v2");
    world.settle();
    assert_eq!(world.images(), ["v1", "v1", "v1"]);
    world.pods.remove(&key("s-1"));
    world.settle();
    assert_eq!(world.images(), ["v1", "v2", "v1"]);
}

fn max_unavailable() {
    for (most, expected) in [(json!(2), 2), (json!("50%"), 2), (json!(1), 1)] {
        let rolling = json!({"partition": 0, "maxUnavailable": most});
        let mut world = World::new(&json!({"replicas": 4, "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}));
        world.settle();
        world.image("v2");
        world.step();
        world.step();
        assert_eq!(world.deleted.len(), expected, "{most}");
        world.settle();
        assert_eq!(world.images(), ["v2"; 4], "{most}");
    }
}

fn rollback() {
    let mut world = World::new(&json!({}));
    world.settle();
    let first = world.status()["updateRevision"].clone();
    world.image("v2");
    world.settle();
    world.image("v1");
    world.settle();
    assert_eq!((&world.status()["updateRevision"], world.revisions.objects.len()), (&first, 2), "no third revision");
    let newest = world.revisions.objects.values().max_by_key(|one| one.revision).unwrap();
    assert_eq!((newest.metadata.name.as_deref(), newest.revision), (first.as_str(), 3));
    assert_eq!(world.images(), ["v1", "v1", "v1"]);
}

fn revision_history() {
    let mut world = World::new(&json!({"replicas": 1, "revisionHistoryLimit": 1}));
    for image in ["v1", "v2", "v3", "v4"] {
        world.image(image);
        world.settle();
    }
    let mut kept: Vec<i64> = world.revisions.objects.values().map(|one| one.revision).collect();
    kept.sort_unstable();
    assert_eq!(kept, [3, 4]);
}

fn replaces_failed() {
    for phase in ["Failed", "Succeeded"] {
        let mut world = World::new(&json!({}));
        world.settle();
        world.pods.end(&key("s-1"), phase);
        world.settle();
        assert_eq!((world.names().len(), world.made.last().unwrap().as_str()), (3, "s-1"));
        assert!(world.pods.objects.values().all(pod::is_ready));
    }
}

fn min_ready_seconds() {
    let mut world = World::new(&json!({"minReadySeconds": 10}));
    world.step();
    world.pods.start(&key("s-0"), "n");
    world.pods.set_ready(&key("s-0"), true, at(-9));
    world.step();
    assert_eq!(
        (world.names().len(), &world.status()["readyReplicas"], &world.status()["availableReplicas"]),
        (1, &json!(1), &json!(0))
    );
    world.pods.set_ready(&key("s-0"), false, at(0));
    world.pods.set_ready(&key("s-0"), true, at(-10));
    world.step();
    assert_eq!((world.names().len(), &world.status()["availableReplicas"]), (2, &json!(1)));
}

fn claiming(policy: Value) -> World {
    World::new(&json!({"replicas": 2, "persistentVolumeClaimRetentionPolicy": policy,
        "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"l": "1"}}, "spec": {"accessModes": ["ReadWriteOnce"]}}]}))
}

fn owners(world: &World, claim: &str) -> Vec<String> {
    let claim = &world.claims.objects[&key(claim)];
    claim.metadata.owner_references.iter().flatten().map(|one| format!("{}/{}", one.kind, one.name)).collect()
}

fn volume_claims() {
    let mut world = claiming(json!({"whenDeleted": "Retain", "whenScaled": "Retain"}));
    world.settle();
    let claim: Value = serde_json::to_value(&world.claims.objects[&key("data-s-0")]).unwrap();
    assert_eq!(claim["metadata"]["labels"], json!({"app": "s", "l": "1"}));
    let pod: Value = serde_json::to_value(&world.pods.objects[&key("s-1")]).unwrap();
    assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-s-1");
    let uid = world.claims.objects[&key("data-s-1")].metadata.uid.clone();
    world.change(|spec| spec["replicas"] = 1.into());
    world.settle();
    world.change(|spec| spec["replicas"] = 2.into());
    world.settle();
    assert_eq!(world.claims.objects[&key("data-s-1")].metadata.uid, uid, "the claim stays, and is used again");
    assert!(owners(&world, "data-s-1").is_empty());
}

fn claim_retention_scaled() {
    let mut world = claiming(json!({"whenDeleted": "Retain", "whenScaled": "Delete"}));
    world.settle();
    assert!(owners(&world, "data-s-1").is_empty());
    world.change(|spec| spec["replicas"] = 1.into());
    world.step();
    assert_eq!(owners(&world, "data-s-1"), ["Pod/s-1"], "it goes with its Pod");
    assert!(owners(&world, "data-s-0").is_empty());
}

fn claim_retention_deleted() {
    let mut world = claiming(json!({"whenDeleted": "Delete", "whenScaled": "Retain"}));
    world.settle();
    assert_eq!(owners(&world, "data-s-0"), ["StatefulSet/s"]);
    let owner = &world.claims.objects[&key("data-s-0")].metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
    world.change(|spec| spec["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] = "Retain".into());
    world.settle();
    assert!(owners(&world, "data-s-0").is_empty());
}

fn status() {
    let mut world = World::new(&json!({}));
    world.settle();
    let status = world.status();
    let revision = &status["currentRevision"];
    assert_eq!(
        status,
        json!({"observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "currentReplicas": 3, "updatedReplicas": 3,
            "collisionCount": 0, "currentRevision": revision, "updateRevision": revision})
    );
}

fn refused() {
    let mut world = World::new(&json!({}));
    world.refuses = true;
    world.step();
    let status = world.status();
    assert_eq!((&status["observedGeneration"], &status["replicas"]), (&json!(1), &json!(0)), "it was looked at");
    world.refuses = false;
    world.settle();
    world.refuses = true;
    world.pods.remove(&key("s-2"));
    world.step();
    assert_eq!((&world.status()["replicas"], &world.status()["currentReplicas"]), (&json!(2), &json!(2)));
}
