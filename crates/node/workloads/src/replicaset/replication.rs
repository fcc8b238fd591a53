//! ReplicationControllers, which upstream's controller treats as ReplicaSets with a simpler selector, too.

use std::borrow::Cow;

use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus},
        core::v1::{ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus},
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::Set;

impl Set for ReplicationController {
    const NAME: &'static str = "replicationcontroller-controller";
    const ACCOUNT: &'static str = "replication-controller";

    fn as_set(&self) -> Cow<'_, ReplicaSet> {
        let spec = self.spec.as_ref().map(|spec| ReplicaSetSpec {
            replicas: spec.replicas,
            min_ready_seconds: spec.min_ready_seconds,
            selector: LabelSelector { match_labels: spec.selector.clone(), match_expressions: None },
            template: spec.template.clone(),
        });
        let status = self.status.as_ref().map(|status| ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            observed_generation: status.observed_generation,
            terminating_replicas: None,
            conditions: status.conditions.as_ref().map(|all| all.iter().cloned().map(to_set).collect()),
        });
        Cow::Owned(ReplicaSet { metadata: self.metadata.clone(), spec, status })
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        let status = ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            observed_generation: status.observed_generation,
            conditions: status.conditions.map(|all| all.into_iter().map(from_set).collect()),
        };
        Self { status: Some(status), ..self.clone() }
    }
}

fn to_set(condition: ReplicationControllerCondition) -> ReplicaSetCondition {
    ReplicaSetCondition {
        type_: condition.type_,
        status: condition.status,
        reason: condition.reason,
        message: condition.message,
        last_transition_time: condition.last_transition_time,
    }
}

fn from_set(condition: ReplicaSetCondition) -> ReplicationControllerCondition {
    ReplicationControllerCondition {
        type_: condition.type_,
        status: condition.status,
        reason: condition.reason,
        message: condition.message,
        last_transition_time: condition.last_transition_time,
    }
}

#[cfg(test)]
pub mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::{super::decide, *};
    use crate::{
        pod,
        world::Case,
        world::{at, parse},
    };
    use controllers::owner::{self, Claim, Selects};

    pub const CASES: &[Case] = &[
        ("replicationcontroller/as-a-set", as_a_set),
        ("replicationcontroller/pod-of-template", pod_of_template),
        ("replicationcontroller/adopts-and-releases", adopts_and_releases),
        ("replicationcontroller/failure-condition", failure_condition),
    ];

    fn web(replicas: i32) -> ReplicationController {
        parse(json!({
            "metadata": {"name": "web", "namespace": "ns", "uid": "rc", "generation": 4},
            "spec": {"replicas": replicas, "minReadySeconds": 5, "selector": {"app": "web"},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
        }))
    }

    fn pods(count: usize) -> Vec<Arc<Pod>> {
        let one = |n| {
            parse(json!({"metadata": {"name": format!("web-{n}"), "labels": {"app": "web"}},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(0)}]}}))
        };
        (0..count).map(|n| Arc::new(one(n))).collect()
    }

    fn as_a_set() {
        let (three, there) = (web(3), pods(2));
        assert_eq!(decide::manage(&three.as_set(), &there, &there, at(9)), decide::Change::Create(1));
        let one = web(1);
        let decide::Change::Delete(surplus) = decide::manage(&one.as_set(), &there, &there, at(9)) else {
            panic!("nothing is deleted");
        };
        assert_eq!(surplus.len(), 1);
        let (status, _) = decide::status(&three.as_set(), &there, None, at(9));
        let changed = three.with_status(status);
        assert_eq!(
            serde_json::to_value(&changed.status).unwrap(),
            json!({"replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 2, "observedGeneration": 4})
        );
        let (again, _) = decide::status(&changed.as_set(), &there, None, at(10));
        assert_eq!(changed.with_status(again), changed, "a status that is the same is not written again");
        assert_eq!((changed.spec, changed.metadata), (three.spec, three.metadata));
    }

    fn pod_of_template() {
        let owner = web(1);
        let made = pod::from_template(owner.spec.as_ref().unwrap().template.as_ref().unwrap(), &owner);
        let value = serde_json::to_value(&made).unwrap();
        assert_eq!(value["metadata"]["generateName"], "web-");
        assert_eq!(
            value["metadata"]["ownerReferences"],
            json!([{"apiVersion": "v1", "kind": "ReplicationController", "name": "web", "uid": "rc",
                "controller": true, "blockOwnerDeletion": true}])
        );
    }

    fn adopts_and_releases() {
        let owner = web(1);
        let selects = super::super::selects(&owner.as_set()).unwrap();
        let claim = |selects: &Selects, pod: &Pod| owner::claim(&owner.metadata, selects, &pod.metadata);
        let orphan = &pods(1)[0];
        assert_eq!(claim(&selects, orphan), Claim::Adopt);
        let mut mine = (**orphan).clone();
        mine.metadata.owner_references = owner::reference(&owner).map(|one| vec![one]);
        assert_eq!(claim(&selects, &mine), Claim::Ours);
        mine.metadata.labels = Some([("app".to_owned(), "other".to_owned())].into());
        assert_eq!(claim(&selects, &mine), Claim::Release);
        let mut empty = web(1);
        empty.spec.as_mut().unwrap().selector = None;
        assert_eq!(claim(&super::super::selects(&empty.as_set()).unwrap(), orphan), Claim::Foreign);
    }

    fn failure_condition() {
        let failure = decide::Failure { reason: "FailedCreate", message: "exceeded quota".into() };
        let (status, _) = decide::status(&web(3).as_set(), &pods(2), Some(failure), at(1));
        let failed = web(3).with_status(status);
        assert_eq!(
            serde_json::to_value(&failed.status.as_ref().unwrap().conditions).unwrap(),
            json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota",
                "lastTransitionTime": at(1)}])
        );
        let (healed, _) = decide::status(&failed.as_set(), &pods(3), None, at(2));
        assert_eq!(failed.with_status(healed).status.unwrap().conditions, None);
    }
}
