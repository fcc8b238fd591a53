use std::{path::Path, sync::Arc};

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use serde_json::{Value, json};

use super::{
    bind::status_of,
    claim::{self, BY_CONTROLLER, COMPLETED, Found, PROVISIONER, Status},
    ephemeral, local, matching, protect, volume,
};
use crate::world::{Case, parse};

pub const CASES: &[Case] = &[
    ("volume/binds-smallest", binds_smallest),
    ("volume/binds-both-sides", binds_both_sides),
    ("volume/reserved-first", reserved_first),
    ("volume/named-by-claim", named_by_claim),
    ("volume/selector", selector),
    ("volume/waits-for-consumer", waits_for_consumer),
    ("volume/node-affinity", node_affinity),
    ("volume/external-provisioner", external_provisioner),
    ("volume/default-class", default_class),
    ("volume/lost", lost),
    ("volume/phases", phases),
    ("volume/reclaim", reclaim),
    ("volume/unbinds", unbinds),
    ("volume/claim-protection", claim_protection),
    ("volume/volume-protection", volume_protection),
    ("volume/ephemeral", ephemeral_volumes),
    ("volume/local-provisions", local_provisions),
    ("volume/local-refuses", local_refuses),
    ("volume/local-reclaims", local_reclaims),
];

/// A claim of 5Gi, with what is said besides.
pub fn claim(name: &str, spec: Value) -> PersistentVolumeClaim {
    let mut whole = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}, "storageClassName": ""});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    parse(
        json!({"metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")}, "spec": whole, "status": {"phase": "Pending"}}),
    )
}

/// A volume that is free.
pub fn volume(name: &str, size: &str, spec: Value) -> Arc<PersistentVolume> {
    let mut whole =
        json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "hostPath": {"path": "/x"}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    Arc::new(parse(json!({"metadata": {"name": name}, "spec": whole, "status": {"phase": "Available"}})))
}

pub fn class(name: &str, provisioner: &str, mode: &str) -> Arc<StorageClass> {
    Arc::new(parse(
        json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, "reclaimPolicy": "Delete"}),
    ))
}

fn node(name: &str) -> Node {
    parse(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"nodeInfo": {"containerRuntimeVersion": "process://1", "architecture": "", "bootID": "", "kernelVersion": "",
            "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""}},
    }))
}

fn annotate(claim: &mut PersistentVolumeClaim, name: &str, value: &str) {
    claim.metadata.annotations.get_or_insert_default().insert(name.into(), value.into());
}

fn decide(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
    classes: &[Arc<StorageClass>],
) -> claim::Plan {
    claim::decide(&Found { claim, volumes, classes, node: None })
}

fn chosen(plan: &claim::Plan) -> Option<String> {
    plan.volume.as_ref().and_then(|volume| volume.metadata.name.clone())
}

fn binds_smallest() {
    let volumes = [
        volume("small", "4Gi", json!({})),
        volume("large", "50Gi", json!({})),
        volume("right", "5Gi", json!({"accessModes": ["ReadWriteOnce", "ReadWriteMany"]})),
        volume("plain", "6Gi", json!({})),
        volume("block", "5Gi", json!({"volumeMode": "Block"})),
        volume("class", "5Gi", json!({"storageClassName": "fast"})),
        volume("taken", "5Gi", json!({"claimRef": {"namespace": "ns", "name": "other", "uid": "1"}})),
    ];
    for (spec, expected) in [
        // The fewest ways of access first, then the smallest.
        (json!({}), Some("plain")),
        (json!({"accessModes": ["ReadWriteMany"]}), Some("right")),
        (json!({"accessModes": ["ReadOnlyMany"]}), None),
        (json!({"resources": {"requests": {"storage": "7Gi"}}}), Some("large")),
        (json!({"resources": {"requests": {"storage": "51Gi"}}}), None),
        (json!({"volumeMode": "Block"}), Some("block")),
        (json!({"storageClassName": "fast"}), Some("class")),
        (json!({"storageClassName": "slow"}), None),
    ] {
        assert_eq!(chosen(&decide(&claim("c", spec.clone()), &volumes, &[])).as_deref(), expected, "{spec}");
    }
    let mut released = (*volumes[3]).clone();
    released.status.as_mut().unwrap().phase = Some("Released".into());
    assert_eq!(chosen(&decide(&claim("c", json!({})), &[Arc::new(released)], &[])), None);
}

fn binds_both_sides() {
    let claim = claim("c", json!({}));
    let free = volume("v", "8Gi", json!({}));
    let plan = decide(&claim, std::slice::from_ref(&free), &[]);
    let (bound, has) = (plan.volume.unwrap(), plan.claim.unwrap());
    let reference = bound.spec.as_ref().unwrap().claim_ref.clone().unwrap();
    assert_eq!(
        (reference.namespace.as_deref(), reference.name.as_deref(), reference.uid.as_deref()),
        (Some("ns"), Some("c"), Some("uid-c"))
    );
    assert_eq!(matching::annotation(&bound.metadata, BY_CONTROLLER), Some("yes"));
    assert_eq!(has.spec.as_ref().unwrap().volume_name.as_deref(), Some("v"));
    for name in [BY_CONTROLLER, COMPLETED] {
        assert_eq!(matching::annotation(&has.metadata, name), Some("yes"), "{name}");
    }
    let status = status_of(&has, &plan.status.unwrap());
    assert_eq!(status.phase.as_deref(), Some("Bound"));
    assert_eq!(status.capacity.clone().unwrap()["storage"].0, "8Gi", "what the volume has, not what was asked for");
    assert_eq!(status.access_modes, Some(vec!["ReadWriteOnce".to_owned()]));
    // And then there is nothing left to do.
    let has = PersistentVolumeClaim { status: Some(status), ..has };
    assert_eq!(decide(&has, &[Arc::new(bound)], &[]), claim::Plan::default());
}

fn reserved_first() {
    let reserved =
        volume("reserved", "50Gi", json!({"claimRef": {"namespace": "ns", "name": "c"}, "storageClassName": "any"}));
    let volumes = [volume("free", "5Gi", json!({})), reserved];
    let plan = decide(&claim("c", json!({})), &volumes, &[]);
    assert_eq!(chosen(&plan).as_deref(), Some("reserved"));
    let bound = plan.volume.unwrap();
    assert_eq!(bound.spec.unwrap().claim_ref.unwrap().uid.as_deref(), Some("uid-c"));
    assert_eq!(matching::annotation(&bound.metadata, BY_CONTROLLER), None, "somebody else reserved it");
    // Reserved for a claim of the same name that is gone.
    let old = volume("old", "5Gi", json!({"claimRef": {"namespace": "ns", "name": "c", "uid": "another"}}));
    assert_eq!(chosen(&decide(&claim("c", json!({})), &[old], &[])), None);
}

fn named_by_claim() {
    let asks = claim("c", json!({"volumeName": "v"}));
    let reason = |plan: &claim::Plan| plan.note.as_ref().map(|note| note.reason);
    assert_eq!(decide(&asks, &[], &[]), claim::Plan::default(), "it waits for the volume");
    for (size, spec, why) in [
        ("1Gi", json!({}), "requested PV is too small"),
        ("5Gi", json!({"storageClassName": "x"}), "storageClassName does not match"),
        ("5Gi", json!({"volumeMode": "Block"}), "incompatible volumeMode"),
        ("5Gi", json!({"accessModes": ["ReadWriteMany"]}), "incompatible accessMode"),
    ] {
        let plan = decide(&asks, &[volume("v", size, spec)], &[]);
        assert_eq!((chosen(&plan), reason(&plan)), (None, Some("VolumeMismatch")), "{why}");
        assert!(plan.note.unwrap().message.ends_with(why), "{why}");
    }
    let plan = decide(&asks, &[volume("v", "5Gi", json!({})), volume("a", "5Gi", json!({}))], &[]);
    assert_eq!(chosen(&plan).as_deref(), Some("v"));
    let has = plan.claim.unwrap();
    assert_eq!(matching::annotation(&has.metadata, BY_CONTROLLER), None, "the claim chose it, not the controller");
    let taken = volume("v", "5Gi", json!({"claimRef": {"namespace": "ns", "name": "other", "uid": "1"}}));
    let plan = decide(&asks, &[taken], &[]);
    assert_eq!((chosen(&plan), reason(&plan)), (None, Some("FailedBinding")));
}

fn selector() {
    let mut ssd = (*volume("ssd", "50Gi", json!({}))).clone();
    ssd.metadata.labels = Some([("disk".to_owned(), "ssd".to_owned())].into());
    let volumes = [volume("any", "5Gi", json!({})), Arc::new(ssd)];
    for (selector, expected) in [
        (json!({"matchLabels": {"disk": "ssd"}}), Some("ssd")),
        (json!({"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}), Some("any")),
        (json!({"matchLabels": {"disk": "tape"}}), None),
    ] {
        let plan = decide(&claim("c", json!({"selector": selector})), &volumes, &[]);
        assert_eq!(chosen(&plan).as_deref(), expected, "{selector}");
    }
}

fn waits_for_consumer() {
    let classes = [class("late", "example.com/disk", "WaitForFirstConsumer")];
    let mut waiting = claim("c", json!({"storageClassName": "late"}));
    let fits = volume("v", "5Gi", json!({"storageClassName": "late"}));
    let plan = decide(&waiting, std::slice::from_ref(&fits), &classes);
    assert_eq!(
        (chosen(&plan), plan.claim.is_none()),
        (None, true),
        "nothing is chosen, and nobody is asked to make one"
    );
    assert_eq!(plan.note.unwrap().reason, "WaitForFirstConsumer");
    // The scheduler may reserve a volume itself …
    let reserved =
        volume("r", "5Gi", json!({"storageClassName": "late", "claimRef": {"namespace": "ns", "name": "c"}}));
    assert_eq!(chosen(&decide(&waiting, &[reserved], &classes)).as_deref(), Some("r"));
    // … or choose a node.
    annotate(&mut waiting, claim::NODE, "n1");
    assert_eq!(chosen(&decide(&waiting, &[fits], &classes)).as_deref(), Some("v"));
    let plan = decide(&waiting, &[], &classes);
    assert_eq!(plan.note.unwrap().reason, "ExternalProvisioning");
}

fn node_affinity() {
    let on = |host: &str| {
        let terms =
            json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]}]);
        volume(
            host,
            "5Gi",
            json!({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}, "storageClassName": "late"}),
        )
    };
    let classes = [class("late", "kubernetes.io/no-provisioner", "WaitForFirstConsumer")];
    let mut claim = claim("c", json!({"storageClassName": "late"}));
    annotate(&mut claim, claim::NODE, "n2");
    let (volumes, node) = ([on("n1"), on("n2")], node("n2"));
    let plan = claim::decide(&Found { claim: &claim, volumes: &volumes, classes: &classes, node: Some(&node) });
    assert_eq!(chosen(&plan).as_deref(), Some("n2"));
    let plan = claim::decide(&Found { claim: &claim, volumes: &volumes[..1], classes: &classes, node: Some(&node) });
    assert_eq!((chosen(&plan), plan.note.unwrap().reason), (None, "FailedBinding"));
}

fn external_provisioner() {
    let classes = [class("fast", "example.com/disk", "Immediate")];
    let mut asks = claim("c", json!({"storageClassName": "fast"}));
    let plan = decide(&asks, &[], &classes);
    assert_eq!(plan.note.as_ref().unwrap().reason, "ExternalProvisioning");
    let marked = plan.claim.unwrap();
    for name in PROVISIONER {
        assert_eq!(matching::annotation(&marked.metadata, name), Some("example.com/disk"), "{name}");
    }
    asks.metadata = marked.metadata;
    assert_eq!(decide(&asks, &[], &classes).claim, None, "it is said once");
    assert_eq!(decide(&asks, &[], &[]).note.unwrap().reason, "ProvisioningFailed", "its class is not there");
    assert_eq!(decide(&claim("c", json!({})), &[], &classes).note.unwrap().reason, "FailedBinding");
}

fn default_class() {
    let mark = |class: &Arc<StorageClass>, made: &str| -> Arc<StorageClass> {
        let mut class = serde_json::to_value(&**class).unwrap();
        class["metadata"]["annotations"] = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        class["metadata"]["creationTimestamp"] = made.into();
        Arc::new(parse(class))
    };
    let plain = class("plain", "p", "Immediate");
    let classes = [
        plain.clone(),
        mark(&class("old", "p", "Immediate"), "2026-01-01T00:00:00Z"),
        mark(&class("new", "p", "Immediate"), "2026-02-01T00:00:00Z"),
    ];
    let said = |claim: &PersistentVolumeClaim, classes: &[Arc<StorageClass>]| {
        decide(claim, &[], classes).claim.and_then(|claim| claim.spec?.storage_class_name)
    };
    let none = claim("c", json!({"storageClassName": null}));
    assert_eq!(said(&none, &classes).as_deref(), Some("new"));
    assert_eq!(said(&none, &[plain]), None);
    assert_eq!(said(&claim("c", json!({"storageClassName": ""})), &classes), None, "an empty class is a choice");
}

fn lost() {
    let mut had = claim("c", json!({"volumeName": "v"}));
    annotate(&mut had, COMPLETED, "yes");
    for (volumes, volume_name, reason) in [
        (vec![], "v", "ClaimLost"),
        (vec![volume("v", "5Gi", json!({}))], "", "ClaimLost"),
        (
            vec![volume("v", "5Gi", json!({"claimRef": {"namespace": "ns", "name": "c", "uid": "other"}}))],
            "v",
            "ClaimMisbound",
        ),
    ] {
        had.spec.as_mut().unwrap().volume_name = Some(volume_name.into());
        let plan = decide(&had, &volumes, &[]);
        assert_eq!((plan.status, plan.note.unwrap().reason), (Some(Status::Lost), reason), "{reason}");
    }
    // A volume that somebody set free by mistake is taken back.
    let free = volume("v", "5Gi", json!({}));
    let plan = decide(&had, std::slice::from_ref(&free), &[]);
    assert_eq!((chosen(&plan).as_deref(), plan.status), (Some("v"), Some(Status::Bound(free))));
}

fn of(volume: &PersistentVolume, phase: &str) -> PersistentVolume {
    let mut volume = volume.clone();
    volume.status.get_or_insert_default().phase = Some(phase.into());
    volume
}

fn phases() {
    let phase = |volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>| {
        volume::decide(volume, claim).phase.map(|(phase, _)| phase)
    };
    let free = volume("v", "5Gi", json!({}));
    assert_eq!(phase(&of(&free, "Pending"), None), Some("Available"));
    assert_eq!(phase(&free, None), None);
    let reserved = volume("v", "5Gi", json!({"claimRef": {"namespace": "ns", "name": "c"}}));
    assert_eq!(phase(&of(&reserved, "Pending"), None), Some("Available"));
    let taken = volume("v", "5Gi", json!({"claimRef": {"namespace": "ns", "name": "c", "uid": "uid-c"}}));
    let bound = claim("c", json!({"volumeName": "v"}));
    assert_eq!(phase(&taken, Some(&claim("c", json!({})))), None, "the claim does not say so yet");
    assert_eq!(phase(&taken, Some(&bound)), Some("Bound"));
    assert_eq!(phase(&of(&taken, "Bound"), None), Some("Released"));
    let mut another = bound.clone();
    another.metadata.uid = Some("another".into());
    assert_eq!(phase(&of(&taken, "Bound"), Some(&another)), Some("Released"), "of the same name, but not the same");
    assert_eq!(phase(&of(&free, "Released"), None), Some("Available"), "a person set it free");
}

fn reclaim() {
    for (policy, made, expected, reason) in [
        ("Retain", false, None, None),
        ("Delete", true, None, None),
        ("Delete", false, Some("Failed"), Some("VolumeFailedDelete")),
        ("Recycle", false, Some("Failed"), Some("VolumeFailedRecycle")),
    ] {
        let spec =
            json!({"claimRef": {"namespace": "ns", "name": "c", "uid": "1"}, "persistentVolumeReclaimPolicy": policy});
        let mut released = of(&volume("v", "5Gi", spec), "Released");
        if made {
            released.metadata.annotations = Some([(volume::BY.to_owned(), "example.com/disk".to_owned())].into());
        }
        let plan = volume::decide(&released, None);
        assert_eq!(plan.phase.as_ref().map(|(phase, _)| *phase), expected, "{policy} {made}");
        assert_eq!(plan.note.map(|note| note.reason), reason, "{policy} {made}");
        let failed = of(&released, "Failed");
        assert_eq!(volume::decide(&failed, None), volume::Plan::default(), "it stays as it is");
    }
}

fn unbinds() {
    let elsewhere = claim("c", json!({"volumeName": "other"}));
    let taken = volume("v", "5Gi", json!({"claimRef": {"namespace": "ns", "name": "c", "uid": "uid-c"}}));
    let plan = volume::decide(&taken, Some(&elsewhere));
    let reference = plan.volume.unwrap().spec.unwrap().claim_ref.unwrap();
    assert_eq!((reference.name.as_deref(), reference.uid), (Some("c"), None), "a reservation by hand stays one");
    let mut ours = (*taken).clone();
    ours.metadata.annotations = Some([(BY_CONTROLLER.to_owned(), "yes".to_owned())].into());
    let freed = volume::decide(&ours, Some(&elsewhere)).volume.unwrap();
    assert_eq!((freed.spec.unwrap().claim_ref, matching::annotation(&freed.metadata, BY_CONTROLLER)), (None, None));
    let mut made = (*taken).clone();
    made.metadata.annotations = Some([(volume::BY.to_owned(), "p".to_owned())].into());
    made.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some("Delete".into());
    assert_eq!(volume::decide(&made, Some(&elsewhere)).phase.unwrap().0, "Released");
}

fn claim_protection() {
    let pod = |node: Option<&str>, phase: &str, name: &str| -> Arc<Pod> {
        Arc::new(parse(json!({
            "metadata": {"name": "p", "namespace": "ns"}, "status": {"phase": phase},
            "spec": {"nodeName": node, "containers": [], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]},
        })))
    };
    let mut claim = claim("c", json!({}));
    let next = |claim: &PersistentVolumeClaim, pods: &[Arc<Pod>]| {
        protect::next(&claim.metadata, protect::CLAIM, || protect::is_claim_used("c", pods))
    };
    assert_eq!(next(&claim, &[]), protect::Next::Hold);
    protect::change(&mut claim.metadata, protect::CLAIM, protect::Next::Hold);
    assert_eq!(next(&claim, &[]), protect::Next::Nothing);
    claim.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(crate::world::at(0)));
    for (pods, expected) in [
        (vec![], protect::Next::LetGo),
        (vec![pod(Some("n"), "Running", "c")], protect::Next::Nothing),
        // One that has ended still holds it, until it is gone.
        (vec![pod(Some("n"), "Succeeded", "c")], protect::Next::Nothing),
        (vec![pod(None, "Pending", "c")], protect::Next::LetGo),
        (vec![pod(Some("n"), "Running", "other")], protect::Next::LetGo),
    ] {
        assert_eq!(next(&claim, &pods), expected, "{pods:?}");
    }
    protect::change(&mut claim.metadata, protect::CLAIM, protect::Next::LetGo);
    assert_eq!(claim.metadata.finalizers, Some(vec![]));
    assert_eq!(next(&claim, &[]), protect::Next::Nothing, "who is on the way out is not held again");
}

fn volume_protection() {
    let taken = json!({"claimRef": {"namespace": "ns", "name": "c", "uid": "1"}});
    for (spec, phase, is_used) in [
        (json!({}), "Available", false),
        (json!({"claimRef": {"namespace": "ns", "name": "c"}}), "Available", false),
        (taken.clone(), "Available", true),
        (taken.clone(), "Bound", true),
        (taken.clone(), "Released", false),
        (taken, "Failed", false),
    ] {
        assert_eq!(protect::is_volume_used(&of(&volume("v", "5Gi", spec.clone()), phase)), is_used, "{spec} {phase}");
    }
}

fn ephemeral_volumes() {
    let pod = |phase: &str| -> Pod {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"]}});
        parse(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"}, "status": {"phase": phase},
            "spec": {"containers": [], "volumes": [
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}, {"name": "plain", "emptyDir": {}},
            ]},
        }))
    };
    let wanted = ephemeral::wanted(&pod("Pending"));
    assert_eq!(wanted.len(), 1);
    let (meta, spec) = (&wanted[0].metadata, wanted[0].spec.as_ref().unwrap());
    assert_eq!((meta.name.as_deref(), meta.namespace.as_deref()), (Some("p-scratch"), Some("ns")));
    assert_eq!(meta.labels.as_ref().unwrap()["a"], "b");
    assert_eq!(spec.access_modes, Some(vec!["ReadWriteOnce".to_owned()]));
    let owner = &meta.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("Pod", "uid-p", Some(true)));
    assert!(ephemeral::wanted(&pod("Succeeded")).is_empty());
    assert_eq!(protect::claims(&pod("Running")).collect::<Vec<_>>(), ["p-scratch"]);
}

/// A claim that the scheduler has chosen this machine's node for.
fn for_local(spec: Value) -> PersistentVolumeClaim {
    let mut claim = claim("c", spec);
    claim.spec.as_mut().unwrap().storage_class_name = Some(local::CLASS.into());
    annotate(&mut claim, claim::NODE, "here");
    annotate(&mut claim, PROVISIONER[0], local::NAME);
    claim
}

fn provision(claim: &PersistentVolumeClaim) -> local::Next {
    local::provision(claim, Some(&local::class()), Some(&node("here")), Path::new("/data/volumes"))
}

fn local_provisions() {
    let local::Next::Make(made) = provision(&for_local(json!({}))) else { panic!("none is made") };
    let spec = made.spec.clone().unwrap();
    assert_eq!(made.metadata.name.as_deref(), Some("pvc-uid-c"));
    assert_eq!(matching::annotation(&made.metadata, volume::BY), Some(local::NAME));
    assert_eq!(spec.local.unwrap().path, "/data/volumes/pvc-uid-c");
    assert_eq!(spec.capacity.unwrap()["storage"].0, "5Gi");
    assert_eq!(
        (spec.storage_class_name.as_deref(), spec.persistent_volume_reclaim_policy.as_deref()),
        (Some("local"), Some("Delete"))
    );
    assert!(local::is_ours(&made, Some(&node("here"))) && !local::is_ours(&made, Some(&node("there"))));
    // It fits the claim that it was made for.
    let plan = decide(&for_local(json!({})), &[Arc::new(*made)], &[Arc::new(local::class())]);
    assert_eq!(plan.claim.unwrap().spec.unwrap().volume_name.as_deref(), Some("pvc-uid-c"));
    let mut elsewhere = for_local(json!({}));
    annotate(&mut elsewhere, claim::NODE, "there");
    let mut waiting = for_local(json!({}));
    waiting.metadata.annotations.as_mut().unwrap().remove(claim::NODE);
    for (claim, why) in [
        (elsewhere, "another node's"),
        (waiting, "the scheduler has not said where"),
        (for_local(json!({"volumeName": "v"})), "it has one"),
    ] {
        assert_eq!(provision(&claim), local::Next::Nothing, "{why}");
    }
    let other = class("local", "example.com/disk", "Immediate");
    let not_ours = local::provision(&for_local(json!({})), Some(&other), Some(&node("here")), Path::new("/"));
    assert_eq!(not_ours, local::Next::Nothing);
}

fn local_refuses() {
    for (spec, why) in [
        (json!({"accessModes": ["ReadWriteMany"]}), "ReadWriteMany"),
        (json!({"volumeMode": "Block"}), "block device"),
        (json!({"selector": {"matchLabels": {"a": "b"}}}), "selector"),
    ] {
        let local::Next::Refuse(said) = provision(&for_local(spec)) else { panic!("{why} was not refused") };
        assert!(said.contains(why), "{said}");
    }
}

fn local_reclaims() {
    let local::Next::Make(made) = provision(&for_local(json!({}))) else { panic!("none is made") };
    let here = node("here");
    for (phase, is_over) in [("Pending", false), ("Bound", false), ("Released", true), ("Failed", false)] {
        assert_eq!(local::is_over(&of(&made, phase), Some(&here)), is_over, "{phase}");
    }
    assert!(!local::is_over(&of(&made, "Released"), Some(&node("there"))), "another machine's directory");
    let mut kept = of(&made, "Released");
    kept.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some("Retain".into());
    assert!(!local::is_over(&kept, Some(&here)));
    let mut theirs = of(&made, "Released");
    theirs.metadata.annotations = Some([(volume::BY.to_owned(), "example.com/disk".to_owned())].into());
    assert!(!local::is_over(&theirs, Some(&here)));
}
