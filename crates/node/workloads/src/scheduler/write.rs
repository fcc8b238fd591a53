//! What the scheduler writes: bindings, nodes for claims, who has to go, and why somebody waits.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Binding, ObjectReference, PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::json;
use tokio::time::Instant;

use super::{Rim, decide::NAME, nominated_of, uid, volumes::SELECTED_NODE};
use crate::pod;
use controllers::{cache::Key, code, dependents::message_of, events::Weight};

/// Who finds no place is told so again after so long, at the earliest.
const TELL_AGAIN: Duration = Duration::from_secs(60);

impl Rim {
    fn api(&self, key: &Key) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    pub(super) async fn bind(&self, pod: &Arc<Pod>, node: &str) -> Result<(), ()> {
        let key = Key::of(&**pod);
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(key.name.clone()),
                namespace: Some(key.namespace.clone()),
                uid: pod.metadata.uid.clone(),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".into()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let bound: Result<kube::core::Status, kube::Error> =
            self.api(&key).create_subresource("binding", &key.name, &PostParams::default(), &binding).await;
        match bound {
            Ok(_) => {
                let message = format!("Successfully assigned {key} to {node}");
                self.recorder.tell(&**pod, Weight::Normal, "Scheduled", message);
                Ok(())
            }
            // It is gone, or somebody else was faster: the cache will say so.
            Err(error) if matches!(code(&error), 404 | 409) => Err(()),
            Err(error) => {
                let message = format!("binding rejected: {}", message_of(&error));
                self.recorder.tell(&**pod, Weight::Warning, "FailedScheduling", message);
                Err(())
            }
        }
    }

    /// Says of claims for which node they are to be made. With the revision that was read: whoever makes them may have given the node back.
    pub(super) async fn choose_node(&self, claims: &[Arc<PersistentVolumeClaim>], node: &str) -> bool {
        let mut is_done = true;
        for claim in claims {
            let key = Key::of(&**claim);
            let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
            let meta =
                json!({"resourceVersion": claim.metadata.resource_version, "annotations": {SELECTED_NODE: node}});
            let change = json!({"metadata": meta});
            if let Err(error) = api.patch(&key.name, &PatchParams::default(), &Patch::Merge(change)).await {
                tracing::debug!(claim = %key, %error, "the node of a claim was not written");
                // The cache will show what is newer.
                is_done &= matches!(code(&error), 404 | 409);
            }
        }
        is_done
    }

    /// Makes room: those who go are told why, and have their time to end.
    pub(super) async fn preempt(&mut self, pod: &Arc<Pod>, victims: &[Arc<Pod>], node: &str) -> bool {
        let mut is_done = true;
        for victim in victims {
            let key = Key::of(&**victim);
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                "message": format!("{NAME}: preempting to accommodate a higher priority pod"),
                "lastTransitionTime": Time(Timestamp::now()), "observedGeneration": victim.metadata.generation,
            });
            let change = json!({"metadata": {"uid": victim.metadata.uid}, "status": {"conditions": [condition]}});
            let api = self.api(&key);
            let marked = api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(change)).await;
            let preconditions = Preconditions { uid: victim.metadata.uid.clone(), resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            let deleted = match marked {
                Ok(_) => api.delete(&key.name, &params).await.map(|_| ()),
                Err(error) => Err(error),
            };
            match deleted {
                Ok(()) => {
                    self.going.insert(uid(victim).to_owned());
                    let message = format!("Preempted by pod {} on node {node}", uid(pod));
                    self.recorder.tell(&**victim, Weight::Normal, "Preempted", message);
                }
                // It is gone already.
                Err(error) if matches!(code(&error), 404 | 409) => {
                    self.going.insert(uid(victim).to_owned());
                }
                Err(error) => {
                    tracing::warn!(pod = %key, %error, "a pod that has to make room could not be deleted; trying again");
                    is_done = false;
                }
            }
        }
        is_done
    }

    /// Says why a Pod waits, and where others go for it.
    pub(super) async fn refuse(&mut self, pod: &Arc<Pod>, why: String, node: Option<&String>) {
        let now = Instant::now();
        let last = self.told.get(uid(pod));
        let is_told = last.is_some_and(|(last, at)| *last == why && now.duration_since(*at) < TELL_AGAIN);
        if !is_told {
            self.recorder.tell(&**pod, Weight::Warning, "FailedScheduling", why.clone());
        }
        let condition = pod::condition(pod, "PodScheduled").filter(|condition| condition.status == "False");
        let is_said = condition.is_some_and(|condition| condition.message.as_ref() == Some(&why));
        let is_nominated = nominated_of(pod) == node;
        if is_told && is_nominated {
            return;
        }
        if !is_said || !is_nominated {
            let since = condition.and_then(|condition| condition.last_transition_time.clone());
            let condition = json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
                "lastProbeTime": null, "lastTransitionTime": since.unwrap_or_else(|| Time(Timestamp::now())),
                "observedGeneration": pod.metadata.generation,
            });
            let mut status = json!({"conditions": [condition]});
            if !is_nominated {
                status["nominatedNodeName"] = json!(node);
            }
            let key = Key::of(&**pod);
            let change = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
            let written =
                self.api(&key).patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(change)).await;
            if let Err(error) = written {
                tracing::debug!(pod = %key, %error, "the condition of a pod that found no node was not written");
            }
        }
        self.told.insert(uid(pod).to_owned(), (why, now));
    }
}
